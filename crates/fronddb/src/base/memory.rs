//! One memory budget for the whole database, split by purpose and counted in
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

/// One part in so many of the budget is left to what cannot be counted: what the allocator keeps for each thread,
/// stacks, memory inside codecs. It does not grow with the budget past a point.
const UNCOUNTED_PART: usize = 4;
const UNCOUNTED_BYTES_MAX: usize = 16 << 20;

/// Bytes of level 0 under a budget, unless they are set.
pub fn default_level0_bytes(budget: usize) -> usize {
    (budget / 8).min(32 << 20)
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

    /// What may be counted in all: the limit less a little that nobody counts.
    #[inline]
    fn countable(&self) -> usize {
        let limit = self.limit();
        limit - (limit / UNCOUNTED_PART).min(UNCOUNTED_BYTES_MAX)
    }

    /// True when less than `bytes` are left.
    #[inline]
    pub fn lacks(&self, bytes: usize) -> bool {
        self.used_total() + bytes > self.countable()
    }

    /// What the cache may hold: the limit less what all other purposes use and a little that nobody counts,
    /// and never less than a sixteenth of the limit.
    pub fn cache_allowance(&self) -> usize {
        let others = self.used_total().saturating_sub(self.used(Purpose::Cache));
        self.countable().saturating_sub(others).max(self.limit() / 16)
    }
}

/// Memory reported to the budget for as long as this lives.
#[derive(Debug)]
pub struct Charge {
    budget: MemoryBudget,
    purpose: Purpose,
    bytes: usize,
}

impl Charge {
    /// Reports `bytes` in use for `purpose`.
    pub fn new(budget: &MemoryBudget, purpose: Purpose, bytes: usize) -> Charge {
        budget.add(purpose, bytes);
        Charge { budget: budget.clone(), purpose, bytes }
    }

    /// It is `bytes` now.
    pub fn set(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            self.budget.add(self.purpose, bytes - self.bytes);
        } else {
            self.budget.sub(self.purpose, self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    /// Reports the memory as free.
    fn drop(&mut self) {
        self.budget.sub(self.purpose, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_reported_as_long_as_it_lives() {
        let budget = MemoryBudget::new(1000);
        let mut charge = Charge::new(&budget, Purpose::Work, 100);
        for bytes in [300, 0, 50] {
            charge.set(bytes);
            assert_eq!((budget.used(Purpose::Work), budget.cache_allowance()), (bytes, 1000 - 250 - bytes));
        }
        drop(charge);
        assert_eq!(budget.used_total(), 0);
    }
}
