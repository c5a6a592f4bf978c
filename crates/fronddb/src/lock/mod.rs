//! The lock table: point and range locks of writers, kept to the end of their transaction.
//!
//! It knows ids, trees as numbers, and bytes; not transactions, not trees. An *owner* is whatever the caller
//! gives an id; it has at most one thread that locks at a time.
//!
//! Rooms, in reading order: [`key`], [`owner`], [`points`] (a shard's ordered map of locked keys),
//! [`intervals`] (the ranges of a tree), [`graph`] (who waits for whom), [`table`] (the whole, accounting),
//! [`acquire`] (a point, from the fast path to the wait), [`wait`] (who is in the way, and sleeping),
//! [`acquire_range`], [`implicit`] (waiting for what is not in the table), [`release`] (ending in constant
//! time, sweeping), [`coalesce`] (many points of one owner into few ranges), [`monitor`] (what there is, for
//! people and for prepare records).
//!
//! # What a lock covers
//!
//! A point is the range of one key. Two locks of different owners conflict when they overlap and one of them
//! is exclusive; keys need not exist, so a range lock also locks the gaps (no phantoms), and a shared range
//! keeps others' exclusive points, that is insertions, out. A range is `[low, high)` in one tree; an empty
//! `high` is the end of the tree.
//!
//! # How a request is decided
//!
//! In the order of arrival: it waits for every conflicting lock that is *held*, and for every conflicting
//! request that waits and came *earlier*, unless that one waits, directly or not, for the requester (going behind
//! it would be a deadlock made by the queue alone; so an upgrade passes those who wait for its own shared
//! lock). It registers in the queue of its key (or as a waiting range), adds its edges to the graph, looks
//! for a deadlock and sleeps on its owner's condition variable. When all its edges are gone it is woken and
//! examines itself again; it grants itself.
//!
//! The graph may know too late that an earlier request waits for the requester: a range is seen as waiting while it still
//! examines the points, and whoever was woken has no edges until it has examined itself again. So edges to waiting
//! requests are marked as *soft*, and a cycle with a soft edge has no victim: see [`graph`], L6.
//!
//! Points live in shards chosen by a hash of the key, each an *ordered* map, so that a range request examines
//! one interval per shard instead of all locks. A point request looks at the ranges of its tree only if a
//! counter says that there are any.
//!
//! # Ending
//!
//! [`LockTable::release_all`] marks the owner as ended and wakes those who have an edge to it. An ended
//! owner's entries count as free from that moment and are removed later, by whoever meets them, by
//! shards as they grow, and by [`LockTable::sweep_step`]. So the end of an owner of millions of locks costs
//! its caller microseconds. Locks taken after a savepoint are kept when it is rolled back.
//!
//! # Invariants
//!
//! * **L1** No two live owners hold conflicting locks.
//! * **L2** A lock of an ended owner blocks nobody.
//! * **L3** A sleeping request has an edge to each live owner that it must wait for, and every way in which
//!   such a reason can vanish (the owner ends, stops waiting, unlocks, lowers) wakes it. So no wake-up is lost.
//! * **L4** Requests are numbered *before* they look at the others. A point that waits with a number above a
//!   range's has seen that range; one with a lower number is found by the range's examination.
//! * **L5** A range examines shard after shard. Whoever lets a request past a waiting range (or unlocks or lowers a point
//!   under it) marks it *disturbed*; it is only granted, and only sleeps, if it was not disturbed
//!   since its examination began.
//! * **L6** A cycle in which an edge stands for a place in a queue has no victim: that edge goes, and its source, examined
//!   again, finds that the earlier request waits for it and goes first. So a victim is chosen only among owners
//!   each of which waits for a lock that the next one holds.
//!
//! # Order of latches
//!
//! shards (ascending) → ranges → graph → an owner's list. The coalescer's mutex comes before all, the
//! registry of owners is taken alone; the sweeper's mutex comes before the shards, too. Nothing is held while a request sleeps.
//!
//! # Memory
//!
//! Counted in [`crate::base::memory::Purpose::Locks`]. Above [`LockOptions::bytes_max`] the table first sweeps,
//! then coalesces: see [`coalesce`]. The bound holds for owners of many locks; it is never enforced by an error.

mod acquire;
mod acquire_range;
mod coalesce;
mod graph;
mod implicit;
mod intervals;
mod key;
mod monitor;
mod owner;
mod points;
mod release;
mod table;
#[cfg(test)]
mod tests;
mod wait;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

pub use monitor::{LockInfo, LockSnapshot, LockStats, WaitInfo};
pub use table::{LockTable, Locker};

use crate::base::TreeId;

/// What a lock allows others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Others may hold shared locks.
    Shared = 1,
    /// Others hold nothing.
    Exclusive = 2,
}

/// What to do while another owner is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Fail at once with `LockTimeout`.
    NoWait,
    /// Fail with `LockTimeout` after this long.
    Timeout(Duration),
    /// Wait as long as it takes.
    Forever,
}

/// How a lock was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted {
    /// The owner did not hold it before.
    New,
    /// The owner held it before in a weaker mode.
    Raised,
    /// The owner held it, or more, before.
    Already,
}

/// The answer of the try variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Granted.
    Granted(Granted),
    /// Another owner is in the way; nothing changed.
    Busy,
}

/// One held lock, as it stands in a prepare record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldLock {
    /// The tree.
    pub tree: TreeId,
    /// The key, or the lower end of the range.
    pub low: Vec<u8>,
    /// `None` for a point; the excluded upper end of a range, empty for the end of the tree.
    pub high: Option<Vec<u8>>,
    /// The mode.
    pub mode: Mode,
}

/// Told who is about to wait for whom, by their labels: in the waiting thread, once for each blocker, with no latch held;
/// and in the same way, without a blocker, once the wait that it was told of is over, however it ended.
/// The request stands in its queue and in the graph already and is examined again afterwards, so that the observer may end
/// the blocker, and cancel either.
#[derive(Clone)]
pub struct WaitObserver(Arc<dyn Fn(u64, Option<u64>) + Send + Sync>);

impl WaitObserver {
    /// An observer that is called with the labels of the waiter and the blocker ([`LockTable::labelled_locker`]); `None`: its
    /// wait is over.
    pub fn new(observe: impl Fn(u64, Option<u64>) + Send + Sync + 'static) -> WaitObserver {
        WaitObserver(Arc::new(observe))
    }
}

impl std::fmt::Debug for WaitObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WaitObserver")
    }
}

/// Asked which of two owners, by their labels, is rather to be the victim of a deadlock: `Less`: the first; `Equal`: whoever
/// holds fewer locks. Under the mutex of the graph: it must be quick and must not use the table.
#[derive(Clone)]
pub struct VictimPreference(Arc<dyn Fn(u64, u64) -> Ordering + Send + Sync>);

impl VictimPreference {
    /// A preference between owners that have labels ([`LockTable::labelled_locker`]).
    pub fn new(prefer: impl Fn(u64, u64) -> Ordering + Send + Sync + 'static) -> VictimPreference {
        VictimPreference(Arc::new(prefer))
    }
}

impl std::fmt::Debug for VictimPreference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VictimPreference")
    }
}

/// A bound that no table reaches.
pub const LOCK_BYTES_UNBOUNDED: usize = isize::MAX as usize;

/// How a table is made.
#[derive(Debug, Clone)]
pub struct LockOptions {
    /// Number of shards, rounded up to a power of two. More let more threads lock at once; fewer make range
    /// locks cheaper, which visit them all.
    pub shards: usize,
    /// Above this many bytes, point locks coalesce into ranges.
    pub bytes_max: usize,
    /// Who is told of waits.
    pub observer: Option<WaitObserver>,
    /// Who has a say in the choice of a deadlock's victim.
    pub preference: Option<VictimPreference>,
}

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions { shards: 16, bytes_max: 64 << 20, observer: None, preference: None }
    }
}
