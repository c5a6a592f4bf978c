//! Writes runs.
use super::{RunOptions, Store};
use crate::base::{Result, RunId};
use crate::format::{Message, RangeDelete, RunMeta};
use std::sync::Arc;

/// Writes one run. Dropped unfinished, it gives its extents back.
#[derive(Debug)]
pub struct RunWriter {}

impl RunWriter {
    /// Nothing is allocated or written yet. `expected_bytes`: a guess at the stored size (0: none); small runs are
    /// written by one call in the end.
    pub fn new(_store: &Arc<Store>, _id: RunId, _options: &RunOptions, _expected_bytes: u64) -> RunWriter {
        unimplemented!()
    }
    /// Adds a message: its key above the last one's, or the same key and an older message.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; `Internal` when out of order.
    pub fn add(&mut self, _message: &Message<'_>) -> Result<()> {
        unimplemented!()
    }
    /// Adds a range-delete, in any order, at any time.
    ///
    /// # Errors
    /// `Internal` when the run stores no sequence numbers.
    pub fn add_range(&mut self, _range: RangeDelete) -> Result<()> {
        unimplemented!()
    }
    /// Bytes stored so far, estimating what is not compressed yet.
    pub fn stored_bytes(&self) -> u64 {
        unimplemented!()
    }
    /// Bytes of the messages so far, as they lie in memory.
    pub fn raw_bytes(&self) -> u64 {
        unimplemented!()
    }
    /// Messages so far.
    pub fn messages(&self) -> u64 {
        unimplemented!()
    }
    /// Messages and range-deletes: none so far.
    pub fn is_empty(&self) -> bool {
        unimplemented!()
    }
    /// Writes what is left. The data is written, not synced.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; the extents are given back.
    pub fn finish(self) -> Result<RunMeta> {
        unimplemented!()
    }
}
