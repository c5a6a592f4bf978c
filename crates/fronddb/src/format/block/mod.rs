//! Blocks: the unit of compression, of checksums and of caching.
//!
//! Rooms, in reading order: this file (the envelope that every stored block has), [`builder`]
//! (blocks of messages as stored), [`entries`] and `decode` with `stored` (the same
//! blocks in memory, and the cursor over them), [`index`] (where the blocks of a run are), [`ranges`]
//! (range-deletes of a run), `range_list` (the newest that covers a key).
//!
//! # Stored form
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | checksum over the block's address and everything after this field |
//! | 8 | 1 | kind, see [`BlockKind`] |
//! | 9 | 1 | format version of the kind |
//! | 10 | 1 | codec tag of the payload |
//! | 11 | 1 | 0 |
//! | 12 | 4 | bytes of the payload decompressed |
//! | 16 | 4 | bytes of the payload as stored |
//! | 20 | – | payload |
//!
//! The address in the checksum makes a misdirected write or read visible. A writer that does not know yet
//! where its blocks will lie compresses first ([`seal_unplaced`]) and computes the checksum later ([`place`]).
//!
//! ```
//! use fronddb::base::compress::{Codec, Compressor};
//! use fronddb::format::block::{BlockKind, open, seal};
//! let mut stored = Vec::new();
//! seal(BlockKind::Status, Codec::Lz4, &[7; 1000], 8192, &mut Compressor::new(), &mut stored).unwrap();
//! assert!(stored.len() < 100);
//! assert_eq!(open(BlockKind::Status, 8192, &stored).unwrap(), [7; 1000]);
//! assert!(open(BlockKind::Status, 4096, &stored).is_err()); // read from the wrong place
//! ```

pub mod builder;
mod decode;
pub mod entries;
pub mod index;
mod range_list;
pub mod ranges;
mod stored;

pub use builder::{BLOCK_BYTES_MAX, EntryBlockBuilder, Layout, PLANES_MIN};
pub use entries::{EntryBlock, EntryCursor, Payload};
pub use index::{Held, IndexBlock, IndexBuilder, IndexEntry};
pub use range_list::{RangeList, Stretch, sort_ranges};
pub use ranges::{RangeBlock, RangeLists};

use crate::base::checksum;
use crate::base::codec::Decoder;
use crate::base::compress::{self, Codec, Compressor};
use crate::base::{Error, ErrorKind, Result};

/// Bytes in front of each payload.
pub const HEADER_BYTES: usize = 20;
/// Largest payload that [`open`] decompresses. Larger than the largest message.
pub const RAW_BYTES_MAX: usize = 1 << 30;

/// What a block holds. The numbers are stored: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockKind {
    /// Messages of a run.
    Entries = 1,
    /// Where the blocks of a run are.
    Index = 2,
    /// Filter of a run.
    Filter = 3,
    /// Range-deletes of a run.
    Ranges = 4,
    /// A piece of a large value.
    BlobChunk = 5,
    /// A node of the tree.
    Node = 6,
    /// A piece of the space map.
    SpaceMap = 7,
    /// The status image.
    Status = 8,
}

impl BlockKind {
    /// Format version written for this kind, and the highest that is read.
    pub const fn version(self) -> u8 {
        match self {
            // 2: the heads of planes stand together.
            BlockKind::Entries => 2,
            // 2: there may be another block with those before.
            BlockKind::Ranges => 2,
            // 2: bytes of large values may be counted.
            BlockKind::Index | BlockKind::Node => 2,
            _ => 1,
        }
    }
}

/// Appends the stored form of `raw` at `address` to `out` and returns its length in bytes.
///
/// # Errors
/// `Internal` if the codec fails; `InvalidArgument` past [`RAW_BYTES_MAX`].
pub fn seal(
    kind: BlockKind,
    codec: Codec,
    raw: &[u8],
    address: u64,
    compressor: &mut Compressor,
    out: &mut Vec<u8>,
) -> Result<usize> {
    let start = out.len();
    let stored = seal_unplaced(kind, codec, raw, compressor, out)?;
    place(address, &mut out[start..]);
    Ok(stored)
}

/// Like [`seal`] without the checksum, which [`place`] puts in once the address is known.
///
/// # Errors
/// `Internal` if the codec fails; `InvalidArgument` past [`RAW_BYTES_MAX`].
pub fn seal_unplaced(
    kind: BlockKind,
    codec: Codec,
    raw: &[u8],
    compressor: &mut Compressor,
    out: &mut Vec<u8>,
) -> Result<usize> {
    if raw.len() > RAW_BYTES_MAX {
        return Err(Error::invalid(format!("block too large, bytes={} bytes_max={RAW_BYTES_MAX}", raw.len())));
    }
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let tag = compressor.compress(codec, raw, out)?;
    let payload = out.len() - start - HEADER_BYTES;
    let header = &mut out[start..start + HEADER_BYTES];
    header[8..12].copy_from_slice(&[kind as u8, kind.version(), tag, 0]);
    header[12..16].copy_from_slice(&(raw.len() as u32).to_le_bytes());
    header[16..20].copy_from_slice(&(payload as u32).to_le_bytes());
    Ok(HEADER_BYTES + payload)
}

/// Binds a block sealed by [`seal_unplaced`] (all of it, header first) to its address.
pub fn place(address: u64, stored: &mut [u8]) {
    let sum = checksum::block(address, &stored[8..]);
    stored[..8].copy_from_slice(&sum.to_le_bytes());
}

/// The raw bytes of a stored block.
///
/// # Errors
/// `Corruption` for anything but a sound block of this kind at this address; `UnsupportedFormat` for a
/// sound block of a newer version.
pub fn open(kind: BlockKind, address: u64, stored: &[u8]) -> Result<Vec<u8>> {
    let mut scratch = Vec::new();
    match open_with(kind, address, stored, &mut scratch)? {
        Opened::AsStored(raw) => Ok(raw.to_vec()),
        Opened::Decompressed => Ok(scratch),
    }
}

/// Where the raw bytes of a block opened by [`open_with`] are.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened<'a> {
    /// It was stored uncompressed: they are in what was read.
    AsStored(&'a [u8]),
    /// They are the content of the scratch vector.
    Decompressed,
}

/// Like [`open`], without an allocation when `scratch` is large enough.
///
/// # Errors
/// As [`open`].
pub fn open_with<'a>(kind: BlockKind, address: u64, stored: &'a [u8], scratch: &mut Vec<u8>) -> Result<Opened<'a>> {
    let mut decoder = Decoder::new(stored);
    let sum = decoder.u64()?;
    let expected = checksum::block(address, stored.get(8..).unwrap_or_default());
    if sum != expected {
        return Err(Error::corruption(format!("block checksum mismatch, stored={sum:016x} computed={expected:016x}")));
    }
    let found = decoder.u8()?;
    if found != kind as u8 {
        return Err(Error::corruption(format!("block of the wrong kind, kind={found} expected={}", kind as u8)));
    }
    let version = decoder.u8()?;
    if version > kind.version() {
        return Err(Error::new(
            ErrorKind::UnsupportedFormat,
            format!("block of a newer format, version={version} version_max={}", kind.version()),
        ));
    }
    let tag = decoder.u8()?;
    let reserved = decoder.u8()?;
    let raw_bytes = decoder.u32()? as usize;
    let payload_bytes = decoder.u32()? as usize;
    let payload = decoder.rest();
    if version == 0 || reserved != 0 || payload.len() != payload_bytes || raw_bytes > RAW_BYTES_MAX {
        return Err(Error::corruption(format!(
            "impossible block header, version={version} reserved={reserved} raw={raw_bytes} stored={payload_bytes} found={}",
            payload.len()
        )));
    }
    if tag == Codec::None.tag() && raw_bytes == payload_bytes {
        return Ok(Opened::AsStored(payload));
    }
    scratch.clear();
    scratch.resize(raw_bytes, 0);
    compress::decompress(tag, payload, scratch)?;
    Ok(Opened::Decompressed)
}

#[cfg(test)]
mod entry_tests;
#[cfg(test)]
pub(crate) mod samples;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_sealed_block_opens_at_its_address_only(raw: Vec<u8>, repeat in 1usize..20, address: u64, level in 0i8..3) {
            let raw = raw.repeat(repeat);
            let codec = if level == 0 { Codec::None } else { Codec::Zstd { level } };
            let mut out = vec![1, 2, 3];
            let stored = seal(BlockKind::Entries, codec, &raw, address, &mut Compressor::new(), &mut out)?;
            prop_assert_eq!(out.len(), 3 + stored);
            prop_assert_eq!(open(BlockKind::Entries, address, &out[3..])?, raw);
            prop_assert!(open(BlockKind::Entries, address ^ 4096, &out[3..]).is_err());
            prop_assert!(open(BlockKind::Index, address, &out[3..]).is_err());
        }

        #[test]
        fn every_flipped_bit_is_noticed(raw: Vec<u8>, bit: prop::sample::Index) {
            let mut out = Vec::new();
            seal(BlockKind::Node, Codec::Lz4, &raw, 4096, &mut Compressor::new(), &mut out)?;
            let bit = bit.index(out.len() * 8);
            out[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(open(BlockKind::Node, 4096, &out).is_err());
        }

        #[test]
        fn arbitrary_bytes_with_a_valid_checksum_never_panic(mut bytes: Vec<u8>, kind in 0u8..9) {
            if let Some(first) = bytes.get_mut(8) {
                *first = kind;
            }
            if bytes.len() >= 8 {
                place(0, &mut bytes);
            }
            let _ = open(BlockKind::Entries, 0, &bytes);
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_name() {
        let mut out = Vec::new();
        seal(BlockKind::Node, Codec::None, b"x", 0, &mut Compressor::new(), &mut out).expect("seals");
        out[9] = BlockKind::Node.version() + 1;
        place(0, &mut out);
        assert_eq!(open(BlockKind::Node, 0, &out).map_err(|e| e.kind()), Err(ErrorKind::UnsupportedFormat));
    }
}
