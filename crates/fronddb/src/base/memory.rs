//! One memory budget for the whole database (promise P7, decision D11), split by purpose and counted in
//! bytes. Whoever holds memory reports it here; the cache takes what the others leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a piece of memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Purpose {
    /// Memtables.
    Level0 = 0,
    /// Nodes, run descriptions, tables of the allocator.
    Metadata = 1,
    /// The cache: blocks, indexes, filters.
    Cache = 2,
    /// The lock table.
    Locks = 3,
    /// Cursors, transactions, buffers of writers, the log's buffer.
    Work = 4,
}

/// All purposes, in the order of their numbers.
pub const PURPOSES: [Purpose; 5] = [Purpose::Level0, Purpose::Metadata, Purpose::Cache, Purpose::Locks, Purpose::Work];

#[derive(Debug)]
struct Counters {
    limit: AtomicUsize,
    used: [AtomicUsize; PURPOSES.len()],
}

/// The budget. Clones share their counters.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<Counters>);

impl MemoryBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> MemoryBudget {
        MemoryBudget(Arc::new(Counters { limit: AtomicUsize::new(limit), used: Default::default() }))
    }

    /// The configured limit, in bytes.
    pub fn limit(&self) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit; the cache follows at its next insertion or trim.
    pub fn set_limit(&self, bytes: usize) {
        self.0.limit.store(bytes, Ordering::Relaxed);
    }

    /// Reports `bytes` more in use for `purpose`.
    pub fn add(&self, purpose: Purpose, bytes: usize) {
        self.0.used[purpose as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reports `bytes` less in use for `purpose`.
    pub fn sub(&self, purpose: Purpose, bytes: usize) {
        self.0.used[purpose as usize].fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes in use for `purpose`.
    pub fn used(&self, purpose: Purpose) -> usize {
        self.0.used[purpose as usize].load(Ordering::Relaxed)
    }

    /// Bytes in use for all purposes.
    pub fn used_total(&self) -> usize {
        self.0.used.iter().map(|used| used.load(Ordering::Relaxed)).sum()
    }

    /// What the cache may hold: the limit less what all other purposes use, and never less than a
    /// sixteenth of the limit.
    pub fn cache_allowance(&self) -> usize {
        let limit = self.limit();
        let others = self.used_total().saturating_sub(self.used(Purpose::Cache));
        limit.saturating_sub(others).max(limit / 16)
    }
}
