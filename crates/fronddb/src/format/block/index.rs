//! Index blocks: where the blocks of a run are.
use crate::base::{BlockPtr, Result};

/// One entry of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// The block.
    pub ptr: BlockPtr,
    /// Messages in all blocks before it.
    pub messages_before: u64,
}

/// Builds index blocks.
#[derive(Debug, Default)]
pub struct IndexBuilder {}

/// A decoded, validated index block.
#[derive(Debug)]
pub struct IndexBlock {}

impl IndexBlock {
    /// Decodes and validates the raw form.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(_raw: &[u8]) -> Result<IndexBlock> {
        unimplemented!()
    }
    /// Bytes really allocated.
    pub fn memory_bytes(&self) -> usize {
        unimplemented!()
    }
}
