//! What the table holds, for people and for prepare records; and its statistics.

use std::sync::Arc;

use super::key::LockKey;
use super::owner::Owner;
use super::table::{Inner, LockTable, Locker};
use super::{Attempt, HeldLock, Mode};
use crate::base::metrics::{Counter, Histogram, HistogramSnapshot};
use crate::base::{Error, Result, TreeId, TxnId};

/// Counters of rare events; the granting of points is counted in the shards.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) ranges: Counter,
    pub(super) waits: Counter,
    pub(super) timeouts: Counter,
    pub(super) deadlocks: Counter,
    pub(super) cancellations: Counter,
    pub(super) coalesced: Counter,
    pub(super) wait_micros: Histogram,
}

/// Statistics since the table was made.
#[derive(Debug, Clone)]
pub struct LockStats {
    /// Memory in use now, in bytes.
    pub bytes: usize,
    /// Entries of point locks now, with those of ended owners that were not swept yet.
    pub points: usize,
    /// Ranges now, held or waited for.
    pub ranges: usize,
    /// Requests that wait now.
    pub waiting: usize,
    /// Point locks granted.
    pub points_granted: u64,
    /// Range locks granted.
    pub ranges_granted: u64,
    /// Requests that had to wait.
    pub waits: u64,
    /// Requests that were not granted in time, or at once where they would not wait.
    pub timeouts: u64,
    /// Requests that ended as victims of a deadlock.
    pub deadlocks: u64,
    /// Waits that were cancelled.
    pub cancellations: u64,
    /// Point locks that became part of a range to save memory.
    pub coalesced: u64,
    /// How long granted waits took, in microseconds.
    pub wait_micros: HistogramSnapshot,
    /// The last deadlock: its victim and its cycle.
    pub last_deadlock: Option<String>,
}

/// A lock that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Who holds it.
    pub owner: TxnId,
    /// What.
    pub lock: HeldLock,
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitInfo {
    /// Whose request.
    pub owner: TxnId,
    /// For what.
    pub lock: HeldLock,
    /// For how long, in microseconds.
    pub micros: u64,
    /// Who is in the way: the edges of the wait-for graph.
    pub blockers: Vec<TxnId>,
}

/// The content of the table at about one moment (shard after shard).
#[derive(Debug, Clone, Default)]
pub struct LockSnapshot {
    /// Locks that are held.
    pub locks: Vec<LockInfo>,
    /// There were more locks than asked for.
    pub truncated: bool,
    /// Requests that wait; always all of them.
    pub waits: Vec<WaitInfo>,
}

fn held_lock(low: &LockKey, high: Option<&LockKey>, mode: Mode) -> HeldLock {
    HeldLock { tree: low.tree(), low: low.to_bytes(), high: high.map(LockKey::to_bytes), mode }
}

impl LockTable {
    /// Statistics.
    pub fn stats(&self) -> LockStats {
        let inner = &self.0;
        let (mut points, mut points_granted) = (0, 0);
        for shard in &inner.shards {
            let shard = shard.lock();
            points += shard.map.len();
            points_granted += shard.granted;
        }
        let ranges = inner.ranges.iter().map(|group| group.trees.lock().values().map(|tree| tree.len()).sum::<usize>());
        let ranges = ranges.sum();
        let metrics = &inner.metrics;
        let graph = inner.graph.lock();
        LockStats {
            bytes: self.bytes(),
            points,
            ranges,
            waiting: graph.waits().count(),
            points_granted,
            ranges_granted: metrics.ranges.get(),
            waits: metrics.waits.get(),
            timeouts: metrics.timeouts.get(),
            deadlocks: metrics.deadlocks.get(),
            cancellations: metrics.cancellations.get(),
            coalesced: metrics.coalesced.get(),
            wait_micros: metrics.wait_micros.snapshot(),
            last_deadlock: graph.last_deadlock.clone(),
        }
    }

    /// Up to `locks_max` held locks, and all waits for somebody.
    pub fn snapshot(&self, locks_max: usize) -> LockSnapshot {
        let mut locks = Vec::new();
        let truncated = !self.0.visit(None, &mut |owner, lock| {
            if locks.len() < locks_max {
                locks.push(LockInfo { owner: owner.id, lock });
                return true;
            }
            false
        });
        let now = self.0.clock.micros();
        let graph = self.0.graph.lock();
        let waits = graph.blocked().map(|wait| WaitInfo {
            owner: wait.owner.id,
            lock: held_lock(&wait.low, wait.high.as_ref(), wait.mode),
            micros: now.saturating_sub(wait.since_micros),
            blockers: wait.blockers.iter().map(|blocker| blocker.owner.id).collect(),
        });
        LockSnapshot { locks, truncated, waits: waits.collect() }
    }

    /// What `owner` holds, sorted; for the prepare record. Empty for an unknown owner.
    pub fn export(&self, owner: TxnId) -> Vec<HeldLock> {
        self.0.find_owner(owner).map(|owner| self.0.export(&owner)).unwrap_or_default()
    }

    /// Grants `owner` what it exported, as after a restart, before anybody else can lock. While several owners are imported the table
    /// must be [`LOCK_BYTES_UNBOUNDED`]: coalescing would lock what lies between one's points, and does not yet know whose it is.
    ///
    /// # Errors
    /// `Internal` when another owner is in the way, which exported locks never are to each other.
    pub fn import(&self, owner: TxnId, locks: &[HeldLock]) -> Result<()> {
        let locker = self.locker(owner);
        for lock in locks {
            let attempt = match &lock.high {
                None => locker.try_lock(lock.tree, &lock.low, lock.mode)?,
                Some(high) => locker.try_lock_range(lock.tree, &lock.low, high, lock.mode)?,
            };
            if attempt == Attempt::Busy {
                return Err(Error::internal(format!("imported locks conflict, txn={owner} tree={}", lock.tree)));
            }
        }
        Ok(())
    }
}

impl Locker {
    /// As [`LockTable::export`], for this owner.
    pub fn export(&self) -> Vec<HeldLock> {
        self.table.export(&self.owner)
    }
}

impl Inner {
    fn export(&self, owner: &Arc<Owner>) -> Vec<HeldLock> {
        let held = owner.held.lock();
        let listed = (!held.unlisted).then(|| held.list());
        drop(held);
        let mut locks = Vec::new();
        match listed {
            Some(points) => {
                for key in points {
                    let shard = self.shard(&key).lock();
                    let mode = shard.map.get(&key).and_then(|entry| entry.mode_of(owner));
                    locks.extend(mode.map(|mode| held_lock(&key, None, mode)));
                }
                // Asked for after the points, which another thread may make a range of meanwhile.
                let trees: std::collections::BTreeSet<TreeId> =
                    owner.held.lock().ranges.iter().map(|(tree, _)| *tree).collect();
                for tree in trees {
                    let trees = self.range_group(tree).trees.lock();
                    let ranges = trees.get(&tree.0).into_iter().flat_map(|tree| tree.iter());
                    let own = ranges.filter(|(_, range)| range.granted && Arc::ptr_eq(&range.owner, owner));
                    locks.extend(own.map(|(_, range)| held_lock(&range.low, Some(&range.high), range.mode)));
                }
            }
            None => {
                self.visit(Some(owner), &mut |_, lock| {
                    locks.push(lock);
                    true
                });
            }
        }
        locks.sort_unstable();
        locks.dedup();
        locks
    }

    /// Shows every held lock (of `only`) until `show` answers false; false then.
    fn visit(&self, only: Option<&Arc<Owner>>, show: &mut dyn FnMut(&Arc<Owner>, HeldLock) -> bool) -> bool {
        let wanted = |holder: &Arc<Owner>| only.is_none_or(|only| Arc::ptr_eq(only, holder)) && !holder.has_ended();
        for shard in &self.shards {
            let shard = shard.lock();
            for (key, entry) in &shard.map {
                for holder in entry.holders().filter(|holder| wanted(holder)) {
                    if !show(holder, held_lock(key, None, entry.mode)) {
                        return false;
                    }
                }
            }
        }
        for group in &self.ranges {
            let trees = group.trees.lock();
            for (_, range) in trees.values().flat_map(|tree| tree.iter()) {
                if range.granted
                    && wanted(&range.owner)
                    && !show(&range.owner, held_lock(&range.low, Some(&range.high), range.mode))
                {
                    return false;
                }
            }
        }
        true
    }
}
