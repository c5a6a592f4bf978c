//! Walks runs.
use super::Run;
use crate::base::Result;
use crate::format::Message;
use crate::format::block::{EntryBlock, Payload};
use std::sync::Arc;

/// How a cursor reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorMode {
    /// Blocks read stay in the cache (at low priority).
    pub fill_cache: bool,
    /// How much to read at once when several consecutive blocks are wanted; 0: one block.
    pub read_ahead_bytes: usize,
}

/// A cursor over the messages of a run. Owns its run.
#[derive(Debug)]
pub struct RunCursor {}

impl RunCursor {
    /// Newest message of the lowest key at or above `key`; false if there is none.
    ///
    /// # Errors
    /// `Io`, `Corruption`: the cursor stands nowhere afterwards.
    pub fn seek(&mut self, _key: &[u8]) -> Result<bool> {
        unimplemented!()
    }
    /// Oldest message of the highest key below `key`; false if there is none.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn seek_before(&mut self, _key: &[u8]) -> Result<bool> {
        unimplemented!()
    }
    /// First message.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn first(&mut self) -> Result<bool> {
        unimplemented!()
    }
    /// Last message.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn last(&mut self) -> Result<bool> {
        unimplemented!()
    }
    /// Next message.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn next(&mut self) -> Result<bool> {
        unimplemented!()
    }
    /// Previous message.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn prev(&mut self) -> Result<bool> {
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
    /// Payload it stands on, keeping the block alive.
    pub fn payload(&self) -> Payload {
        unimplemented!()
    }
    /// Block and number it stands on.
    pub fn entry(&self) -> (&Arc<EntryBlock>, usize) {
        unimplemented!()
    }
    /// The run.
    pub fn run(&self) -> &Arc<Run> {
        unimplemented!()
    }
}
