//! Entry blocks: messages of a run, decoded for direct access by number.
use crate::base::Result;
use crate::format::Message;
use std::sync::Arc;

/// A decoded block of messages. Everything is validated when it is decoded: what follows cannot fail.
#[derive(Debug)]
pub struct EntryBlock {}

impl EntryBlock {
    /// Decodes and validates the raw form. `seq`: what [`Message::seq`] is if the block stores none.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(_raw: &[u8], _seq: u64) -> Result<EntryBlock> {
        unimplemented!()
    }
    /// Number of messages, at least 1.
    pub fn count(&self) -> usize {
        unimplemented!()
    }
    /// Number of the first message whose key is at or above `key`; `count()` if none.
    pub fn lower_bound(&self, _key: &[u8]) -> usize {
        unimplemented!()
    }
    /// True when message `index` has exactly this key.
    pub fn key_equals(&self, _index: usize, _key: &[u8]) -> bool {
        unimplemented!()
    }
    /// Replaces `out` by the key of message `index`.
    pub fn copy_key(&self, _index: usize, _out: &mut Vec<u8>) {
        unimplemented!()
    }
    /// Message `index`, whose key the caller has at hand.
    pub fn message<'a>(&'a self, _index: usize, _key: &'a [u8]) -> Message<'a> {
        unimplemented!()
    }
    /// Payload of message `index`, keeping the block alive.
    pub fn payload(self: &Arc<Self>, _index: usize) -> Payload {
        unimplemented!()
    }
    /// Bytes really allocated.
    pub fn memory_bytes(&self) -> usize {
        unimplemented!()
    }
}

/// A payload that keeps its block alive. Derefs to the bytes.
#[derive(Debug, Clone)]
pub struct Payload {
    block: Arc<EntryBlock>,
    start: u32,
    bytes: u32,
}

impl std::ops::Deref for Payload {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let _ = (&self.block, self.start, self.bytes);
        unimplemented!()
    }
}

/// A cursor over the messages of one block. Owns the block and the key it stands on.
#[derive(Debug)]
pub struct EntryCursor {}

impl EntryCursor {
    /// Stands nowhere.
    pub fn new(_block: Arc<EntryBlock>) -> EntryCursor {
        unimplemented!()
    }
    /// First (newest) message of the lowest key at or above `key`; false if there is none.
    pub fn seek(&mut self, _key: &[u8]) -> bool {
        unimplemented!()
    }
    /// Last (oldest) message of the highest key below `key`; false if there is none.
    pub fn seek_before(&mut self, _key: &[u8]) -> bool {
        unimplemented!()
    }
    /// First message.
    pub fn first(&mut self) -> bool {
        unimplemented!()
    }
    /// Last message.
    pub fn last(&mut self) -> bool {
        unimplemented!()
    }
    /// Next message; false at the end.
    pub fn next(&mut self) -> bool {
        unimplemented!()
    }
    /// Previous message; false at the start.
    pub fn prev(&mut self) -> bool {
        unimplemented!()
    }
    /// True when it stands on a message.
    pub fn valid(&self) -> bool {
        unimplemented!()
    }
    /// Key it stands on.
    pub fn key(&self) -> &[u8] {
        unimplemented!()
    }
    /// Message it stands on.
    pub fn message(&self) -> Message<'_> {
        unimplemented!()
    }
}
