//! The cache: decoded blocks by their offset in the data file.
use crate::base::memory::MemoryBudget;
use crate::base::{Extent, Result};
use crate::format::block::{EntryBlock, IndexBlock, RangeBlock};
use crate::format::filter::Filter;
use std::sync::Arc;

/// A cached block.
#[derive(Debug, Clone)]
pub enum CachedBlock {
    /// Messages.
    Entries(Arc<EntryBlock>),
    /// Index.
    Index(Arc<IndexBlock>),
    /// Filter.
    Filter(Arc<Filter>),
    /// Range-deletes.
    Ranges(Arc<RangeBlock>),
}

/// How long an unused block stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Scans and compactions: first to go.
    Low = 0,
    /// Entry blocks of point reads.
    Normal = 1,
    /// Indexes and filters.
    High = 2,
}

/// What the cache did since it was made, and what it holds.
#[derive(Debug, Clone, Copy, Default)]
pub struct CacheStatistics {
    /// Lookups that found their block: entries, indexes, filters, ranges.
    pub hits: [u64; 4],
    /// Lookups that did not.
    pub misses: [u64; 4],
    /// Blocks inserted.
    pub insertions: u64,
    /// Blocks evicted for room.
    pub evictions: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Blocks held.
    pub blocks: u64,
}

/// The cache. Share it in an `Arc`.
#[derive(Debug)]
pub struct Cache {}

impl Cache {
    /// An empty cache that takes what `budget` leaves to it.
    pub fn new(_budget: MemoryBudget) -> Cache {
        unimplemented!()
    }
    /// The block at `offset`, if it is here.
    pub fn lookup(&self, _offset: u64) -> Option<CachedBlock> {
        unimplemented!()
    }
    /// The block at `offset`; what `load` gives if it is not here. Two threads that miss load once.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn get(
        &self,
        _offset: u64,
        _priority: Priority,
        _load: impl FnOnce() -> Result<CachedBlock>,
    ) -> Result<CachedBlock> {
        unimplemented!()
    }
    /// Puts a block in, or replaces it.
    pub fn insert(&self, _offset: u64, _block: CachedBlock, _priority: Priority) {
        unimplemented!()
    }
    /// Forgets every block in `extent`. To be called when the extent is freed, before it can be used again.
    pub fn remove_range(&self, _extent: Extent) {
        unimplemented!()
    }
    /// Evicts down to the budget's allowance.
    pub fn trim(&self) {
        unimplemented!()
    }
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        unimplemented!()
    }
    /// Counters.
    pub fn statistics(&self) -> CacheStatistics {
        unimplemented!()
    }
}
