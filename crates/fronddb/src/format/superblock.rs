//! The superblock: the one place from which everything else is reached.
//!
//! Publishing generation g writes one superblock into slot g % [`SLOTS`] of the data file. Slots lie
//! [`SLOT_STRIDE_BYTES`] apart, so that neither a torn nor a misdirected write of one can touch another. Opening takes
//! the newest one that is valid.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, `FRONDSUP` |
//! | 8 | 4 | format version |
//! | 12 | 4 | length of the fields |
//! | 16 | 8 | checksum: [`checksum::block`] at the slot's address, over all 4096 bytes with this field zero |
//! | 24 | … | fields: generation (u64), uuid (16 bytes), then varints: highest page any block may lie below, root (offset, stored; 0 0 for none), height, log start, log end, oldest memtable, next run, next transaction, next commit; then three lists preceded by their counts: space map pieces, status pieces (each offset, stored), and the extra bytes |
//! | … | … | zeros |
//!
//! A slot whose first [`SECTOR_BYTES`] are zeros is empty, whatever follows. That is one sector, so a slot is erased whole or not
//! at all; and who publishes into an empty slot and stops before that sector is written has published nothing.
//!
//! The first 24 bytes, and what the checksum covers, stay as they are in every future version: so a version that
//! is newer is told from damage, and refused by name.
//!
//! ```
//! use fronddb::format::superblock::{Slot, Superblock, slot_offset};
//! let first = Superblock { generation: 1, ..Superblock::default() };
//! let bytes = first.encode()?;
//! assert_eq!(Superblock::decode(slot_offset(1), &bytes)?, Slot::Valid(Box::new(first)));
//! assert!(Superblock::decode(slot_offset(2), &bytes).is_err(), "at another slot's address it is damage");
//! # Ok::<(), fronddb::base::Error>(())
//! ```

use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::{BlockPtr, CommitNumber, Error, ErrorKind, Lsn, Result, RunId, TxnId, checksum};

/// Number of slots.
pub const SLOTS: u64 = 4;
/// Distance of slots in the file, in bytes.
pub const SLOT_STRIDE_BYTES: u64 = 16 << 10;
/// The part of the data file that holds the slots, in bytes from its start.
pub const SLOTS_BYTES: u64 = SLOTS * SLOT_STRIDE_BYTES;
/// Length of a superblock, in bytes.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// What decides whether a slot is empty: its first sector, which the disk writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;
/// Version of the data file's format that this code writes, and the highest that it reads. 2: entry blocks of version 2.
pub const FORMAT_VERSION: u32 = 2;
/// Most pieces of which an image (space map or status) may consist.
pub const PIECES_MAX: usize = 48;
/// Most extra bytes.
pub const EXTRA_BYTES_MAX: usize = 2 << 10;

const MAGIC: &[u8; 8] = b"FRONDSUP";
const CHECKSUM_AT: std::ops::Range<usize> = 16..24;
const FIELDS_AT: usize = 24;

/// Offset of the slot of `generation` in the data file.
pub fn slot_offset(generation: u64) -> u64 {
    generation % SLOTS * SLOT_STRIDE_BYTES
}

/// What a generation says to the layers above the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SuperblockBody {
    /// The root node; `None` for an empty tree.
    pub root: Option<BlockPtr>,
    /// Height of the tree; 0 for an empty one.
    pub height: u32,
    /// Pieces of the status image; empty when there is none.
    pub status: Vec<BlockPtr>,
    /// Replay of the log starts here.
    pub log_start: Lsn,
    /// The log was durable up to here before this was written; 0: not known.
    pub log_end: Lsn,
    /// The oldest memtable that is not in the root.
    pub oldest_memtable: u64,
    /// Every run below has been named.
    pub next_run: RunId,
    /// Every transaction below has begun.
    pub next_txn: TxnId,
    /// Every commit below is in the status image or the log.
    pub next_commit: CommitNumber,
    /// Anything else, at most [`EXTRA_BYTES_MAX`].
    pub extra: Vec<u8>,
}

/// A generation's root record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Superblock {
    /// Number of the publication, from 1.
    pub generation: u64,
    /// Names the database; drawn when it is created.
    pub uuid: [u8; 16],
    /// Every page that the generation references is below this one: a file that ends before was cut.
    pub end_page: u64,
    /// Pieces of the space map's summary.
    pub space_map: Vec<BlockPtr>,
    /// What the layers above put there.
    pub body: SuperblockBody,
}

/// What a slot holds that is not damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slot {
    /// Never written, or erased.
    Empty,
    /// A superblock.
    Valid(Box<Superblock>),
}

fn put_pieces(out: &mut Vec<u8>, what: &str, pieces: &[BlockPtr]) -> Result<()> {
    if pieces.len() > PIECES_MAX {
        return Err(Error::internal(format!(
            "{what} of too many pieces, count={} count_max={PIECES_MAX}",
            pieces.len()
        )));
    }
    put_varint(out, pieces.len() as u64);
    pieces.iter().for_each(|piece| piece.encode(out));
    Ok(())
}

fn pieces(decoder: &mut Decoder<'_>) -> Result<Vec<BlockPtr>> {
    let count = decoder.count(2)?;
    if count > PIECES_MAX {
        return Err(Error::corruption(format!("too many pieces, count={count} count_max={PIECES_MAX}")));
    }
    (0..count).map(|_| BlockPtr::decode(decoder)).collect()
}

impl Superblock {
    /// Offset of its slot in the data file.
    pub fn offset(&self) -> u64 {
        slot_offset(self.generation)
    }

    /// The bytes of its slot, [`SUPERBLOCK_BYTES`] long.
    ///
    /// # Errors
    /// `InvalidArgument` when the extra bytes are too long, `Internal` when an image has too many pieces.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let body = &self.body;
        if body.extra.len() > EXTRA_BYTES_MAX {
            return Err(Error::invalid(format!(
                "superblock extra too long, bytes={} bytes_max={EXTRA_BYTES_MAX}",
                body.extra.len()
            )));
        }
        let mut out = Vec::with_capacity(SUPERBLOCK_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 12]);
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.uuid);
        put_varint(&mut out, self.end_page);
        body.root.unwrap_or(BlockPtr::NONE).encode(&mut out);
        put_varint(&mut out, u64::from(body.height));
        for number in [
            body.log_start.0,
            body.log_end.0,
            body.oldest_memtable,
            body.next_run.0,
            body.next_txn.0,
            body.next_commit.0,
        ] {
            put_varint(&mut out, number);
        }
        put_pieces(&mut out, "space map", &self.space_map)?;
        put_pieces(&mut out, "status image", &body.status)?;
        put_bytes(&mut out, &body.extra);
        let length = (out.len() - FIELDS_AT) as u32;
        if out.len() > SUPERBLOCK_BYTES {
            return Err(Error::internal(format!("superblock too long, bytes={}", out.len())));
        }
        out.resize(SUPERBLOCK_BYTES, 0);
        out[12..16].copy_from_slice(&length.to_le_bytes());
        let sum = checksum::block(self.offset(), &out);
        out[CHECKSUM_AT].copy_from_slice(&sum.to_le_bytes());
        Ok(out)
    }

    /// Reads the slot at `offset` of the data file.
    ///
    /// # Errors
    /// `Corruption` when it is damaged, `UnsupportedFormat` when it is whole but of a version that this code
    /// does not know.
    pub fn decode(offset: u64, bytes: &[u8]) -> Result<Slot> {
        decode(offset, bytes).map_err(|error| error.context(format!("superblock slot at offset={offset}")))
    }
}

fn decode(offset: u64, bytes: &[u8]) -> Result<Slot> {
    if bytes.len() != SUPERBLOCK_BYTES {
        return Err(Error::corruption(format!("wrong length, bytes={}", bytes.len())));
    }
    if bytes[..SECTOR_BYTES].iter().all(|byte| *byte == 0) {
        return Ok(Slot::Empty);
    }
    let mut decoder = Decoder::new(bytes);
    if decoder.take(MAGIC.len())? != MAGIC {
        return Err(Error::corruption("no superblock: wrong magic"));
    }
    let (version, length, sum) = (decoder.u32()?, decoder.u32()?, decoder.u64()?);
    let mut copy = bytes.to_vec();
    copy[CHECKSUM_AT].fill(0);
    let expected = checksum::block(offset, &copy);
    if sum != expected {
        return Err(Error::corruption(format!("wrong checksum, expected={expected:#018x} got={sum:#018x}")));
    }
    if !(1..=FORMAT_VERSION).contains(&version) {
        return Err(Error::new(
            ErrorKind::UnsupportedFormat,
            format!("unknown format version, got={version} known={FORMAT_VERSION}"),
        ));
    }
    let mut fields = Decoder::new(decoder.take(length as usize)?);
    let superblock = decode_fields(&mut fields)?;
    fields.finish()?;
    if superblock.offset() != offset {
        return Err(Error::corruption(format!("generation in the wrong slot, generation={}", superblock.generation)));
    }
    Ok(Slot::Valid(Box::new(superblock)))
}

fn decode_fields(fields: &mut Decoder<'_>) -> Result<Superblock> {
    let generation = fields.u64()?;
    let uuid = fields.take(16)?.try_into().unwrap_or_default();
    let end_page = fields.varint()?;
    let root = BlockPtr::decode(fields)?;
    let body = SuperblockBody {
        root: (!root.is_none()).then_some(root),
        height: fields.varint_u32()?,
        log_start: Lsn(fields.varint()?),
        log_end: Lsn(fields.varint()?),
        oldest_memtable: fields.varint()?,
        next_run: RunId(fields.varint()?),
        next_txn: TxnId(fields.varint()?),
        next_commit: CommitNumber(fields.varint()?),
        status: Vec::new(),
        extra: Vec::new(),
    };
    let space_map = pieces(fields)?;
    let status = pieces(fields)?;
    let extra = fields.bytes()?.to_vec();
    if generation == 0 || extra.len() > EXTRA_BYTES_MAX {
        return Err(Error::corruption(format!("impossible fields, generation={generation} extra={}", extra.len())));
    }
    Ok(Superblock { generation, uuid, end_page, space_map, body: SuperblockBody { status, extra, ..body } })
}

#[cfg(test)]
mod tests;
