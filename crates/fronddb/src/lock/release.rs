//! Ending an owner in constant time, and getting the memory of its locks back.
//!
//! An ended owner's entries are free the moment it is marked (L2), so removing them is housekeeping. The end of
//! an owner of few locks does it at once, which keeps shards small under many short transactions and needs no
//! background thread. Larger ones go to the sweeper: by their list of points if they kept one, else by one pass
//! over all shards, which serves all ended owners at once.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::key::LockKey;
use super::owner::{Owner, chunk_points};
use super::table::{Inner, LockTable};
use crate::base::TreeId;
use crate::base::sync::Mutex;

/// Points that the end of an owner removes at once.
const INLINE_MAX: usize = 256;

/// What waits to be swept.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    pub(super) work: Mutex<Work>,
}

/// The sweeper's work.
#[derive(Debug, Default)]
pub(super) struct Work {
    listed: VecDeque<Arc<Owner>>,
    /// Shards still to be visited by the pass that frees owners without a list.
    shards_left: usize,
    shard: usize,
    /// The last key visited in the shard.
    after: Option<LockKey>,
}

impl LockTable {
    /// Frees memory of ended owners, visiting about `budget` locks; true while there is more to do. For a
    /// background thread. Nobody waits for it: ended owners block no one.
    pub fn sweep_step(&self, budget: usize) -> bool {
        self.0.sweep_step(budget)
    }
}

impl Inner {
    /// Ends an owner: its locks count as free from here on.
    pub(super) fn end(&self, owner: &Arc<Owner>) {
        if !owner.end() {
            return;
        }
        // A request registers its edge (followers, SeqCst) before it looks whether the blocker has ended; here
        // the end is marked (SeqCst) before followers are looked at. One of the two sees the other (L3).
        if owner.followers.load(Ordering::SeqCst) > 0 || owner.waiting.load(Ordering::SeqCst) {
            self.graph.lock().end(owner);
        }
        let mut owners = self.owner_group(owner.id).lock();
        if owners.get(&owner.id).is_some_and(|current| Arc::ptr_eq(current, owner)) {
            owners.remove(&owner.id);
        }
        drop(owners);
        let held = owner.held.lock();
        let (small, unlisted) = (!held.unlisted && held.points() + held.ranges.len() <= INLINE_MAX, held.unlisted);
        drop(held);
        if small {
            self.sweep_owner(owner, usize::MAX);
        } else {
            let mut work = self.sweeper.work.lock();
            if unlisted {
                work.shards_left = self.shards.len() + 1;
            }
            work.listed.push_back(owner.clone());
        }
    }

    /// See [`LockTable::sweep_step`].
    pub(super) fn sweep_step(&self, budget: usize) -> bool {
        let mut left = budget.max(1);
        let next = self.sweeper.work.lock().listed.pop_front();
        if let Some(owner) = next {
            left = left.saturating_sub(self.sweep_owner(&owner, left));
            let held = owner.held.lock();
            let rest = held.points() + held.ranges.len();
            drop(held);
            if rest > 0 {
                self.sweeper.work.lock().listed.push_front(owner);
            }
        }
        let mut work = self.sweeper.work.lock();
        while left > 0 && work.shards_left > 0 {
            left = left.saturating_sub(self.sweep_shard(&mut work, left));
        }
        work.shards_left > 0 || !work.listed.is_empty()
    }

    pub(super) fn has_garbage(&self) -> bool {
        let work = self.sweeper.work.lock();
        work.shards_left > 0 || !work.listed.is_empty()
    }

    /// Removes about `budget` listed points and ranges of an ended owner; returns how many it visited.
    fn sweep_owner(&self, owner: &Arc<Owner>, budget: usize) -> usize {
        let mut visited = 0;
        while visited < budget {
            let mut held = owner.held.lock();
            if let Some((tree, id)) = held.ranges.pop() {
                drop(held);
                self.sweep_range(owner, tree, id);
                visited += 1;
                continue;
            }
            let Some(chunk) = held.pop_chunk() else { break };
            drop(held);
            for key in chunk_points(&chunk) {
                let mut shard = self.shard(&key).lock();
                shard.remove_holder(&key, owner);
                self.report(&mut shard);
                visited += 1;
            }
            self.charge(-(chunk.capacity() as isize));
        }
        visited
    }

    fn sweep_range(&self, owner: &Arc<Owner>, tree: TreeId, id: u32) {
        let mut trees = self.range_group(tree).trees.lock();
        let Some(intervals) = trees.get_mut(&tree.0) else { return };
        // The number may have passed to a range of another owner, or to a waiting one.
        if intervals.get(id).is_some_and(|range| range.granted && Arc::ptr_eq(&range.owner, owner)) {
            self.remove_range(intervals, id);
            if intervals.len() == 0 {
                trees.remove(&tree.0);
            }
        }
    }

    /// Visits up to `budget` entries of the current shard of the pass and removes those of ended owners.
    fn sweep_shard(&self, work: &mut Work, budget: usize) -> usize {
        let index = work.shard % self.shards.len();
        let mut shard = self.shards[index].lock();
        let start = work.after.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut visited = 0;
        let mut last = None;
        let mut dead = Vec::new();
        for (key, entry) in shard.map.range_mut((start, Bound::Unbounded)) {
            entry.purge();
            if entry.is_free() {
                dead.push(key.clone());
            }
            visited += 1;
            if visited >= budget {
                last = Some(key.clone());
                break;
            }
        }
        for key in &dead {
            shard.remove_if_free(key);
        }
        self.report(&mut shard);
        work.after = last;
        if work.after.is_none() {
            work.shard = index + 1;
            work.shards_left -= 1;
        }
        visited.max(1)
    }

    /// Gives a point back before the end.
    pub(super) fn unlock(&self, owner: &Arc<Owner>, tree: TreeId, key: &[u8]) {
        let key = LockKey::new(tree, key);
        let mut shard = self.shard(&key).lock();
        if !shard.remove_holder(&key, owner) {
            return;
        }
        let freed = owner.held.lock().unlist_last(&key);
        let group = self.range_group(tree);
        if group.count.load(Ordering::SeqCst) > 0
            && let Some(intervals) = group.trees.lock().get_mut(&tree.0)
        {
            // L5: a range that has seen this point would wait for an owner that is no longer in its way.
            intervals.disturb(&key);
        }
        self.report(&mut shard);
        drop(shard);
        if freed != 0 {
            self.charge(-freed);
        }
        if owner.followers.load(Ordering::SeqCst) > 0 {
            self.graph.lock().poke_followers(owner);
        }
    }
}
