//! Large values, stored outside runs.
//!
//! The message of a large value carries a [`BlobRef`]. The value lies in extents of its own, cut into
//! chunks, each a sealed block of kind `BlobChunk` that begins at a page. The extents belong to the one
//! message that holds the reference, and are freed when a compaction drops it.
//!
//! | field | encoding |
//! |---|---|
//! | bytes | varint: length of the value |
//! | extents | varint count, then extents |
//! | chunks | varint count, then block addresses |

use crate::base::codec::{Decoder, put_varint};
use crate::base::{BlockPtr, Error, Extent, Result, key};

/// Where a large value is: the payload of a message with the `blob` flag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlobRef {
    /// Length of the value.
    pub bytes: u64,
    /// Where it lies; freed when the message is dropped.
    pub extents: Vec<Extent>,
    /// Its chunks, in order; each a sealed block.
    pub chunks: Vec<BlockPtr>,
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
        Ok(BlobRef { bytes, extents, chunks })
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
        ) {
            let blob = BlobRef {
                bytes,
                extents: extents.into_iter().map(|(start, pages)| Extent { start, pages }).collect(),
                chunks: chunks.into_iter().map(|(offset, stored)| BlockPtr { offset, stored }).collect(),
            };
            let mut out = Vec::new();
            blob.encode(&mut out);
            prop_assert_eq!(BlobRef::decode(&mut Decoder::new(&out))?, blob);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = BlobRef::decode(&mut Decoder::new(&bytes));
        }
    }
}
