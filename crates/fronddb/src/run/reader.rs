//! Reads runs.
use super::{CursorMode, RunCounters, RunCursor, Store};
use crate::base::Result;
use crate::cache::Cache;
use crate::format::block::EntryBlock;
use crate::format::{Message, RangeDelete, RunMeta};
use std::ops::ControlFlow;
use std::sync::Arc;

/// An open run. Opening does no I/O.
#[derive(Debug)]
pub struct Run {}

impl Run {
    /// Opens a run.
    pub fn new(_meta: RunMeta, _store: &Arc<Store>, _cache: &Arc<Cache>, _counters: &Arc<RunCounters>) -> Arc<Run> {
        unimplemented!()
    }
    /// Its description.
    pub fn meta(&self) -> &RunMeta {
        unimplemented!()
    }
    /// False when no message of a key with this `checksum::key_hash` is here. True when there is no filter.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn may_contain(&self, _hash: u64) -> Result<bool> {
        unimplemented!()
    }
    /// Shows the messages of `key`, newest first, until told to stop. Asks the filter itself. Ignores range-deletes.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn get(
        &self,
        _key: &[u8],
        _hash: u64,
        _visit: &mut dyn FnMut(&Message<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        unimplemented!()
    }
    /// Like [`Run::get`]; also shows block and number, so that the payload can be kept without a copy
    /// ([`EntryBlock::payload`]).
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn get_entries(
        &self,
        _key: &[u8],
        _hash: u64,
        _visit: &mut dyn FnMut(&Message<'_>, &Arc<EntryBlock>, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        unimplemented!()
    }
    /// A cursor that stands nowhere yet.
    pub fn cursor(self: &Arc<Run>, _mode: CursorMode) -> RunCursor {
        unimplemented!()
    }
    /// Its range-deletes, ascending by start. Cheap when there are none.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn range_deletes(&self) -> Result<Arc<[RangeDelete]>> {
        unimplemented!()
    }
    /// About how many (messages, stored bytes) lie in `lo <= key < hi` (empty `hi`: no bound).
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn estimate(&self, _lo: &[u8], _hi: &[u8]) -> Result<(u64, u64)> {
        unimplemented!()
    }
    /// Reads everything past the cache and checks it against the description.
    ///
    /// # Errors
    /// `Io`; `Corruption` naming the first damage.
    pub fn verify(&self) -> Result<()> {
        unimplemented!()
    }
}
