//! What a node knows about a run: where it is, what it holds.
//!
//! Stored inside nodes (`format/node.rs`). Layout: a version byte, then the fields in the
//! order of [`RunMeta`], integers as varints, byte strings and lists preceded by their length. Version 1 has neither `clip` nor `blob_bytes`
//! and version 2 no `blob_bytes`; they are still written for runs that need no more.

use super::message::Kind;
use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::{BlockPtr, CommitNumber, Error, ErrorKind, Extent, Result, RunId, TxnId};

/// Number of message kinds plus one: `RunMeta::kinds` is indexed by kind number.
pub const KIND_COUNT: usize = 6;

/// Of whole runs without large values.
const VERSION_WHOLE: u8 = 1;
/// Of clipped runs without large values.
const VERSION_CLIPPED: u8 = 2;
const VERSION: u8 = 3;

/// Description of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunMeta {
    /// Its name.
    pub id: RunId,
    /// Where it lies, in the order it was written. Its blocks are inside them.
    pub extents: Vec<Extent>,
    /// Bytes of all its blocks as stored.
    pub bytes: u64,
    /// Bytes of all its entry blocks decoded.
    pub raw_bytes: u64,
    /// Top index block; none only when the run has no messages.
    pub index: BlockPtr,
    /// Filter, or none.
    pub filter: BlockPtr,
    /// Range-deletes, or none.
    pub ranges: BlockPtr,
    /// Number of messages.
    pub messages: u64,
    /// Messages by kind number.
    pub kinds: [u64; KIND_COUNT],
    /// Lowest key of a message; empty when there is none.
    pub first_key: Vec<u8>,
    /// Highest key of a message; empty when there is none.
    pub last_key: Vec<u8>,
    /// Nothing that its messages were made of has a lower sequence number.
    pub min_seq: u64,
    /// Highest sequence number.
    pub max_seq: u64,
    /// True when sequence numbers are stored with the messages.
    pub has_seq: bool,
    /// Highest commit number in a `Committed` stamp; 0 when there is none.
    pub newest_commit: CommitNumber,
    /// The distinct transactions in `Written` stamps, ascending.
    pub unresolved: Vec<TxnId>,
    /// Messages whose payload is a blob.
    pub blobs: u64,
    /// Number of range-deletes.
    pub range_deletes: u64,
    /// What lay below this key has gone elsewhere, and its space with it; all else here speaks of what is left. Empty for a
    /// whole run.
    pub clip: Vec<u8>,
    /// Bytes of the data file that the large values of its messages take; 0 where it was written before that was counted.
    pub blob_bytes: u64,
}

/// The rows that messages of these kinds make at the bottom of the tree: an update stands there above the put that it changes,
/// and a delete, while somebody may still see it, above the one that it deletes.
pub fn rows_of(kinds: &[u64; KIND_COUNT]) -> u64 {
    let of = |kind: Kind| kinds[kind as usize];
    (of(Kind::Put) + of(Kind::InsertIfAbsent)).saturating_sub(of(Kind::Delete) + of(Kind::SingleDelete))
}

impl RunMeta {
    /// The rows that it holds, if it is the base of a leaf.
    pub fn rows(&self) -> u64 {
        rows_of(&self.kinds)
    }

    /// True when nothing is left to resolve: no unresolved writer, no commit number.
    pub fn is_settled(&self) -> bool {
        self.unresolved.is_empty() && self.newest_commit.0 == 0
    }

    /// True when a part of it has gone elsewhere.
    pub fn is_clipped(&self) -> bool {
        !self.clip.is_empty()
    }

    /// Bytes of its extents.
    pub fn extent_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.bytes()).sum()
    }

    /// Bytes that it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<RunMeta>()
            + self.extents.capacity() * size_of::<Extent>()
            + self.first_key.capacity()
            + self.last_key.capacity()
            + self.clip.capacity()
            + self.unresolved.capacity() * size_of::<TxnId>()
    }

    /// Appends the stored form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let version = match (self.blob_bytes, self.is_clipped()) {
            (0, false) => VERSION_WHOLE,
            (0, true) => VERSION_CLIPPED,
            _ => VERSION,
        };
        out.push(version);
        put_varint(out, self.id.0);
        put_varint(out, self.extents.len() as u64);
        for extent in &self.extents {
            extent.encode(out);
        }
        put_varint(out, self.bytes);
        put_varint(out, self.raw_bytes);
        for ptr in [self.index, self.filter, self.ranges] {
            ptr.encode(out);
        }
        put_varint(out, self.messages);
        for count in self.kinds {
            put_varint(out, count);
        }
        put_bytes(out, &self.first_key);
        put_bytes(out, &self.last_key);
        put_varint(out, self.min_seq);
        put_varint(out, self.max_seq);
        out.push(u8::from(self.has_seq));
        put_varint(out, self.newest_commit.0);
        put_varint(out, self.unresolved.len() as u64);
        let mut last = 0;
        for txn in &self.unresolved {
            put_varint(out, txn.0.wrapping_sub(last));
            last = txn.0;
        }
        put_varint(out, self.blobs);
        put_varint(out, self.range_deletes);
        if version > VERSION_WHOLE {
            put_bytes(out, &self.clip);
        }
        if version > VERSION_CLIPPED {
            put_varint(out, self.blob_bytes);
        }
    }

    /// Reads what [`RunMeta::encode`] wrote.
    ///
    /// # Errors
    /// `Corruption` when it is malformed, `UnsupportedFormat` when it is newer.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<RunMeta> {
        let version = decoder.u8()?;
        if !(VERSION_WHOLE..=VERSION).contains(&version) {
            let kind = if version > VERSION { ErrorKind::UnsupportedFormat } else { ErrorKind::Corruption };
            return Err(Error::new(kind, format!("unknown run format, version={version} version_max={VERSION}")));
        }
        let id = RunId(decoder.varint()?);
        let mut extents = Vec::with_capacity(decoder.clone().count(2)?);
        for _ in 0..decoder.count(2)? {
            extents.push(Extent::decode(decoder)?);
        }
        let bytes = decoder.varint()?;
        let raw_bytes = decoder.varint()?;
        let index = BlockPtr::decode(decoder)?;
        let filter = BlockPtr::decode(decoder)?;
        let ranges = BlockPtr::decode(decoder)?;
        let messages = decoder.varint()?;
        let mut kinds = [0; KIND_COUNT];
        for count in &mut kinds {
            *count = decoder.varint()?;
        }
        let first_key = decoder.bytes()?.to_vec();
        let last_key = decoder.bytes()?.to_vec();
        let min_seq = decoder.varint()?;
        let max_seq = decoder.varint()?;
        let has_seq = match decoder.u8()? {
            0 => false,
            1 => true,
            other => return Err(Error::corruption(format!("impossible flag in a run description, flag={other}"))),
        };
        let newest_commit = CommitNumber(decoder.varint()?);
        let mut unresolved = Vec::with_capacity(decoder.clone().count(1)?);
        let mut last = 0u64;
        for _ in 0..decoder.count(1)? {
            last = last.wrapping_add(decoder.varint()?);
            unresolved.push(TxnId(last));
        }
        if unresolved.windows(2).any(|pair| pair[0] >= pair[1]) || first_key > last_key {
            return Err(Error::corruption(format!("run description out of order, run={id}")));
        }
        let blobs = decoder.varint()?;
        let range_deletes = decoder.varint()?;
        let clip = if version == VERSION_WHOLE { Vec::new() } else { decoder.bytes()?.to_vec() };
        let blob_bytes = if version > VERSION_CLIPPED { decoder.varint()? } else { 0 };
        let is_below = messages > 0 && first_key < clip;
        if is_below || (clip.is_empty() && version == VERSION_CLIPPED) {
            return Err(Error::corruption(format!("impossible clip in a run description, run={id}")));
        }
        Ok(RunMeta {
            id,
            extents,
            bytes,
            raw_bytes,
            index,
            filter,
            ranges,
            messages,
            kinds,
            first_key,
            last_key,
            min_seq,
            max_seq,
            has_seq,
            newest_commit,
            unresolved,
            blobs,
            range_deletes,
            clip,
            blob_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn descriptions_come_back(numbers: [u32; 12], places in prop::array::uniform3(0u64..1 << 60), keys: [Vec<u8>; 2], clipped in 0usize..9, txns in prop::collection::btree_set(any::<u64>(), 0..9), has_seq: bool) {
            let number = |index: usize| u64::from(numbers[index]);
            let mut keys = keys;
            keys.sort();
            let [first_key, last_key] = keys;
            let clip = first_key[..clipped.min(first_key.len())].to_vec();
            let meta = RunMeta {
                id: RunId(number(0)),
                extents: (1..5).map(|pages| Extent { start: places[0] / 4096 * u64::from(pages), pages }).collect(),
                bytes: number(2),
                raw_bytes: number(3),
                index: BlockPtr { offset: places[1], stored: numbers[5] },
                filter: BlockPtr::NONE,
                ranges: BlockPtr { offset: places[2], stored: numbers[4] },
                messages: number(6),
                kinds: [number(7), 0, 1, number(8), 3, number(9)],
                first_key,
                last_key,
                min_seq: number(10),
                max_seq: u64::MAX,
                has_seq,
                newest_commit: CommitNumber(number(11)),
                unresolved: txns.into_iter().map(TxnId).collect(),
                blobs: 1,
                range_deletes: number(1),
                clip,
                blob_bytes: number(4) << 12,
            };
            for blob_bytes in [0, meta.blob_bytes] {
                let meta = RunMeta { blob_bytes, ..meta.clone() };
                let mut out = Vec::new();
                meta.encode(&mut out);
                let mut decoder = Decoder::new(&out);
                prop_assert_eq!(&RunMeta::decode(&mut decoder)?, &meta);
                decoder.finish()?;
            }
            prop_assert!(meta.memory_bytes() > size_of::<RunMeta>());
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>) {
            let _ = RunMeta::decode(&mut Decoder::new(&bytes));
            bytes.insert(0, VERSION);
            let _ = RunMeta::decode(&mut Decoder::new(&bytes));
        }
    }

    #[test]
    fn a_newer_description_is_refused() {
        let mut out = Vec::new();
        RunMeta::default().encode(&mut out);
        out[0] = VERSION + 1;
        let kind = RunMeta::decode(&mut Decoder::new(&out)).map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::UnsupportedFormat));
    }
}
