//! Level 0: the newest messages, in memory. Their durable form is the log.
//!
//! Owns the order of messages in memory and their memory; deliberately not which memtable is active, when it is
//! sealed, or what a reader sees.
//!
//! Rooms, in reading order: [`active`] (the memtable that writers add to), [`leaves`], [`leaf`], [`node`], [`arena`] and [`chunk_pool`]
//! (its concurrent core and memory; with `sample` the only unsafe code), [`order`], [`presence`] (what need not be searched), [`sample`] (how much lies in a range), [`sorted`] (what recovery builds from the log in
//! bulk), [`cursor`] (walking either), and here [`Level0`], which is either.
//!
//! Why B-link trees of small leaves, and with what numbers: `docs/decisions/0003-level-0.md`.

mod active;
mod arena;
mod chunk_pool;
mod cursor;
mod leaf;
mod leaves;
mod node;
mod order;
mod presence;
mod sample;
mod sorted;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;

pub use active::Memtable;
pub use chunk_pool::ChunkPool;
pub use cursor::Level0Cursor;
pub(crate) use sample::RangeSample;
pub use sorted::{SortedMemtable, SortedPart};

use crate::format::Message;
use crate::format::block::RangeLists;

/// A memtable of level 0. Clones share it.
#[derive(Debug, Clone)]
pub enum Level0 {
    /// Writers add to it, or did until it was sealed.
    Active(Arc<Memtable>),
    /// Recovery built it.
    Sorted(Arc<SortedMemtable>),
}

macro_rules! either {
    ($level0:expr, $memtable:ident => $call:expr) => {
        match $level0 {
            Level0::Active($memtable) => $call,
            Level0::Sorted($memtable) => $call,
        }
    };
}

impl Level0 {
    /// Its number, as given when it was made.
    pub fn id(&self) -> u64 {
        either!(self, memtable => memtable.id())
    }

    /// Visits the messages of `key`, whose [`key_hash`](crate::base::checksum::key_hash) is `hash`, newest to oldest, until the visitor breaks off.
    #[inline]
    pub fn get(&self, key: &[u8], hash: u64, visit: impl FnMut(&Message<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        match self {
            Level0::Active(memtable) => memtable.get(key, hash, visit),
            Level0::Sorted(memtable) => memtable.get(key, visit),
        }
    }

    /// A cursor, nowhere yet.
    pub fn cursor(&self) -> Level0Cursor {
        either!(self, memtable => memtable.cursor())
    }

    /// About how many messages lie in `[lower, upper)` (`None`: no upper bound), without visiting them; `None` for a range that
    /// reaches over several trees.
    pub(crate) fn sample(&self, lower: &[u8], upper: Option<&[u8]>) -> Option<RangeSample> {
        either!(self, memtable => memtable.sample(lower, upper))
    }

    /// True when there is a range-delete.
    #[inline]
    pub fn has_range_deletes(&self) -> bool {
        either!(self, memtable => memtable.has_range_deletes())
    }

    /// Shows `visit` the range-deletes.
    #[inline]
    pub fn range_deletes<T>(&self, visit: impl FnOnce(&RangeLists) -> T) -> T {
        either!(self, memtable => memtable.range_deletes(visit))
    }

    /// Bytes that messages and range-deletes take: compare with the threshold for sealing.
    pub fn bytes(&self) -> usize {
        either!(self, memtable => memtable.bytes())
    }

    /// Bytes held from the system.
    pub fn memory_bytes(&self) -> usize {
        either!(self, memtable => memtable.memory_bytes())
    }

    /// Number of messages; range-deletes are not among them.
    pub fn messages(&self) -> u64 {
        either!(self, memtable => memtable.messages())
    }

    /// True without messages and range-deletes.
    pub fn is_empty(&self) -> bool {
        either!(self, memtable => memtable.is_empty())
    }

    /// Number of messages by kind number, as in `RunMeta::kinds`.
    pub fn kinds(&self) -> [u64; 6] {
        either!(self, memtable => memtable.kinds())
    }

    /// Bounds of the sequence numbers of what was ever added, range-deletes included; `None` when empty.
    pub fn seq_bounds(&self) -> Option<(u64, u64)> {
        either!(self, memtable => memtable.seq_bounds())
    }
}

impl Memtable {
    /// A cursor, nowhere yet.
    pub fn cursor(&self) -> Level0Cursor {
        Level0Cursor::active(self.leaf_cursor())
    }
}

impl SortedMemtable {
    /// A cursor, nowhere yet.
    pub fn cursor(self: &Arc<Self>) -> Level0Cursor {
        Level0Cursor::sorted(Arc::clone(self))
    }
}
