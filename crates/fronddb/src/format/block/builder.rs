//! Builds entry blocks.
use crate::format::Message;

/// Builds an entry block from messages in order.
#[derive(Debug, Default)]
pub struct EntryBlockBuilder {}

impl EntryBlockBuilder {
    /// An empty builder; `has_seq`: sequence numbers are stored.
    pub fn new(_has_seq: bool) -> EntryBlockBuilder {
        unimplemented!()
    }
    /// Adds a message: its key above the last one's, or the same key and an older message.
    pub fn add(&mut self, _message: &Message<'_>) {
        unimplemented!()
    }
    /// Bytes that the block will take in memory once decoded.
    pub fn size(&self) -> usize {
        unimplemented!()
    }
    /// Messages added so far.
    pub fn count(&self) -> usize {
        unimplemented!()
    }
    /// Appends the raw form to `out` and empties the builder for the next block.
    pub fn finish(&mut self, _out: &mut Vec<u8>) {
        unimplemented!()
    }
}
