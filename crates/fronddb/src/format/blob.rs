//! Large values, stored outside runs.
use crate::base::codec::Decoder;
use crate::base::{BlockPtr, Extent, Result};

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
    /// Appends the stored form to `out`.
    pub fn encode(&self, _out: &mut Vec<u8>) {
        unimplemented!()
    }
    /// Reads what [`BlobRef::encode`] wrote.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(_decoder: &mut Decoder<'_>) -> Result<BlobRef> {
        unimplemented!()
    }
}
