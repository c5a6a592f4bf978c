//! Large values, stored outside runs.
//!
//! The message of a large value carries a [`BlobRef`], and in it the value's head: its first bytes ([`head_bytes`]), for who
//! wants no more than those. The rest lies in extents of its own, cut into
//! chunks, each a sealed block of kind `BlobChunk` that begins at a page. The extents belong to the one
//! message that holds the reference, and are freed when a compaction drops it.
//!
//! | field | encoding |
//! |---|---|
//! | bytes | varint: length of the value |
//! | extents | varint count, then extents |
//! | chunks | varint count, then block addresses |
//! | head | varint length, bytes; nothing at all where there is none, as before there were heads |

use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::{BlockPtr, Error, Extent, Result, key};

/// Longest head.
const HEAD_BYTES_MAX: usize = 2 << 10;
/// A head is one part in so many of the value at most.
const HEAD_PART: usize = 16;

/// Length of the head of a value of this length: enough for a row's short columns where they come first, and little beside the rest.
pub fn head_bytes(bytes: usize) -> usize {
    (bytes / HEAD_PART).min(HEAD_BYTES_MAX)
}

/// Longest that the reference to a value of this length is, but where the free space lies in very many pieces.
pub fn reference_bytes_max(bytes: usize) -> usize {
    head_bytes(bytes) + 64 + bytes / 2048
}

/// Where a large value is: the payload of a message with the `blob` flag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlobRef {
    /// Length of the value.
    pub bytes: u64,
    /// Where it lies; freed when the message is dropped.
    pub extents: Vec<Extent>,
    /// Its chunks, in order; each a sealed block.
    pub chunks: Vec<BlockPtr>,
    /// Its first bytes, which are in no chunk.
    pub head: Vec<u8>,
}

/// Bytes that the large value of this reference takes in the data file; of a malformed one, none: who follows it is told.
pub fn stored_bytes(reference: &[u8]) -> u64 {
    let decoder = &mut Decoder::new(reference);
    let add = |decoder: &mut Decoder<'_>| -> Result<u64> {
        decoder.varint()?;
        let count = decoder.count(2)?;
        (0..count).try_fold(0u64, |sum, _| Ok(sum.saturating_add(Extent::decode(decoder)?.bytes())))
    };
    add(decoder).unwrap_or_default()
}

impl BlobRef {
    /// Bytes that it takes in the data file.
    pub fn stored_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.bytes()).sum()
    }

    /// Appends the stored form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.bytes);
        put_varint(out, self.extents.len() as u64);
        self.extents.iter().for_each(|extent| extent.encode(out));
        put_varint(out, self.chunks.len() as u64);
        self.chunks.iter().for_each(|chunk| chunk.encode(out));
        if !self.head.is_empty() {
            put_bytes(out, &self.head);
        }
    }

    /// Reads what [`BlobRef::encode`] wrote.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<BlobRef> {
        let bytes = decoder.varint()?;
        if bytes > key::VALUE_BYTES_MAX as u64 {
            return Err(Error::corruption(format!("impossible length of a large value, bytes={bytes}")));
        }
        let count = decoder.count(2)?;
        let extents = (0..count).map(|_| Extent::decode(decoder)).collect::<Result<_>>()?;
        let count = decoder.count(2)?;
        let chunks = (0..count).map(|_| BlockPtr::decode(decoder)).collect::<Result<_>>()?;
        let head = if decoder.is_empty() { Vec::new() } else { decoder.bytes()?.to_vec() };
        Ok(BlobRef { bytes, extents, chunks, head })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn references_are_read_back(
            bytes in 0u64..1 << 28,
            extents in prop::collection::vec((0u64..1 << 40, 1u32..1 << 14), 0..5),
            chunks in prop::collection::vec((0u64..1 << 50, 1u32..1 << 20), 0..5),
            head: Vec<u8>,
        ) {
            let blob = BlobRef {
                bytes,
                extents: extents.into_iter().map(|(start, pages)| Extent { start, pages }).collect(),
                chunks: chunks.into_iter().map(|(offset, stored)| BlockPtr { offset, stored }).collect(),
                head,
            };
            let mut out = Vec::new();
            blob.encode(&mut out);
            prop_assert_eq!(stored_bytes(&out), blob.stored_bytes());
            prop_assert_eq!(BlobRef::decode(&mut Decoder::new(&out))?, blob);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = BlobRef::decode(&mut Decoder::new(&bytes));
            stored_bytes(&bytes);
        }
    }
}
