//! Ending an owner in constant time, and getting the memory of its locks back; giving single points back, or half of them, before
//! that; keeping a few of many locks.
//!
//! An ended owner's entries are free the moment it is marked (L2); nobody waits for their removal, which is spread
//! over three places: whoever locks the same key takes the entry over; a shard that has doubled purges itself as it
//! grows (see `points`), which is all that many short transactions need; and [`LockTable::sweep_step`], for a
//! background thread, passes over all shards after owners have ended, which gives back what a large one left. Ranges
//! are removed at the end of their owner if they are few, else by the sweeper.
//!
//! An owner that keeps a few of its locks ([`Locker::keep_only`]) has an *heir*, of the same id: that is granted what is kept beside
//! its holder, which alone can be in the way; then the holder ends. Who waits for one of these locks is woken by that, and finds the
//! heir. A range that has looked at a point before the heir was there, and at the holder after its end, would find neither: so it is
//! marked as disturbed (L5).

use std::collections::VecDeque;
use std::sync::Arc;

use super::intervals::Range;
use super::key::LockKey;
use super::owner::Owner;
use super::points::ENTRY_BYTES;
use super::table::{Inner, LockTable, Locker};
use super::{HeldLock, Mode};
use crate::base::TreeId;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicUsize, Ordering};

/// Ranges that the end of an owner removes at once.
const INLINE_MAX: usize = 64;

/// What waits to be swept.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    work: Mutex<Work>,
    /// Locks of owners that ended since the last pass began, at most.
    dead: AtomicUsize,
}

/// The sweeper's work.
#[derive(Debug, Default)]
struct Work {
    /// Ended owners of many ranges.
    owners: VecDeque<Arc<Owner>>,
    /// The shard and the last key that the pass has visited; no pass is under way when it is `None`.
    pass: Option<(usize, Option<LockKey>)>,
}

impl LockTable {
    /// Frees memory of ended owners, visiting about `budget` locks; true until a pass over the whole table is
    /// complete. For a background thread, every second or so. Nobody waits for it: ended owners block no one.
    pub fn sweep_step(&self, budget: usize) -> bool {
        self.0.sweep_step(budget)
    }
}

impl Locker {
    /// Gives everything back but `kept`: points and ranges that are held exclusively, or lie in such ranges. They are then the locks of the
    /// owner that is returned, which has the same id, and this one has ended.
    pub fn keep_only(&self, kept: &[HeldLock]) -> Locker {
        Locker { owner: self.table.hand_over(&self.owner, kept), table: self.table.clone() }
    }
}

impl Inner {
    fn hand_over(&self, holder: &Arc<Owner>, kept: &[HeldLock]) -> Arc<Owner> {
        let heir = Owner::new(holder.id, holder.label);
        for lock in kept {
            match &lock.high {
                None => self.bequeath_point(holder, &heir, lock.tree, &lock.low),
                Some(high) => self.bequeath_range(&heir, lock.tree, &lock.low, high),
            }
        }
        self.owner_group(holder.id).lock().insert(holder.id, heir.clone());
        self.end(holder);
        heir
    }

    fn bequeath_point(&self, holder: &Arc<Owner>, heir: &Arc<Owner>, tree: TreeId, key: &[u8]) {
        let lock_key = LockKey::new(tree, key);
        let mut shard = self.shard(&lock_key).lock();
        shard.make_room();
        let entry = shard.entry(&lock_key);
        entry.purge();
        entry.remove_holder(holder);
        entry.grant(heir, Mode::Exclusive);
        self.disturb_ranges(tree, &lock_key);
        self.note_granted(shard, heir, tree, key);
    }

    /// Ranges are looked at under their group's mutex: whoever does sees the holder's, or the heir's.
    fn bequeath_range(&self, heir: &Arc<Owner>, tree: TreeId, low: &[u8], high: &[u8]) {
        let mut trees = self.range_group(tree).trees.lock();
        let intervals = trees.entry(tree.0).or_default();
        let (low, high) = (LockKey::new(tree, low), LockKey::upper(tree, high));
        let owner = heir.clone();
        let range = Range { low, high, owner, mode: Mode::Exclusive, granted: false, seq: 0, disturbed: false };
        let id = self.insert_range(intervals, range);
        self.grant_range(intervals, heir, id);
        heir.weight.fetch_add(1, Ordering::Relaxed);
    }

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
        let mut held = owner.held.lock();
        let listed = held.give_up();
        let few = held.ranges.len() <= INLINE_MAX;
        drop(held);
        if listed > 0 {
            self.charge(-(listed as isize));
        }
        if few {
            self.sweep_all_ranges(owner);
        } else {
            self.sweeper.work.lock().owners.push_back(owner.clone());
        }
        let weight = owner.weight.load(Ordering::Relaxed);
        if weight > 0 {
            self.sweeper.dead.fetch_add(weight as usize, Ordering::Relaxed);
        }
    }

    /// See [`LockTable::sweep_step`].
    pub(super) fn sweep_step(&self, budget: usize) -> bool {
        let mut left = budget.max(1);
        let mut work = self.sweeper.work.lock();
        while let Some(owner) = work.owners.front() {
            let swept = self.sweep_ranges(owner, left);
            left = left.saturating_sub(swept);
            if left == 0 {
                return true;
            }
            work.owners.pop_front();
        }
        if work.pass.is_none() {
            if self.sweeper.dead.swap(0, Ordering::Relaxed) == 0 {
                return false;
            }
            work.pass = Some((0, None));
        }
        while let Some((index, after)) = work.pass.take() {
            let Some(shard) = self.shards.get(index) else { return false };
            if left == 0 {
                work.pass = Some((index, after));
                break;
            }
            let mut shard = shard.lock();
            let (last, visited) = shard.purge_window(after, left);
            self.report(&mut shard);
            left = left.saturating_sub(visited.max(1));
            work.pass = Some(if last.is_some() { (index, last) } else { (index + 1, None) });
        }
        true
    }

    /// True when sweeping is worth more than coalescing: a good part of the memory is of ended owners.
    pub(super) fn has_garbage(&self) -> bool {
        let work = self.sweeper.work.lock();
        let dead = self.sweeper.dead.load(Ordering::Relaxed).saturating_mul(ENTRY_BYTES);
        let bytes = self.bytes.load(Ordering::Relaxed).max(0) as usize;
        !work.owners.is_empty() || work.pass.is_some() || dead > bytes / 8
    }

    /// Removes all ranges of an ended owner.
    pub(super) fn sweep_all_ranges(&self, owner: &Arc<Owner>) {
        self.sweep_ranges(owner, usize::MAX);
    }

    /// Removes up to `budget` ranges of an ended owner; returns how many it visited.
    fn sweep_ranges(&self, owner: &Arc<Owner>, budget: usize) -> usize {
        for visited in 0..budget {
            let Some((tree, id)) = owner.held.lock().ranges.pop() else { return visited };
            self.sweep_range(owner, tree, id);
        }
        budget
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

    /// Gives a point back before the end.
    pub(super) fn unlock(&self, owner: &Arc<Owner>, tree: TreeId, key: &[u8]) {
        let key = LockKey::new(tree, key);
        let mut shard = self.shard(&key).lock();
        if !shard.remove_holder(&key, owner) {
            return;
        }
        let freed = owner.held.lock().unlist_last(&key);
        self.disturb_ranges(tree, &key);
        self.report(&mut shard);
        drop(shard);
        if freed != 0 {
            self.charge(-freed);
        }
        self.reconsider(owner, &key);
    }

    /// Makes an exclusive point a shared one.
    pub(super) fn lower(&self, owner: &Arc<Owner>, tree: TreeId, key: &[u8]) {
        let key = LockKey::new(tree, key);
        let mut shard = self.shard(&key).lock();
        if !shard.lower(&key, owner) {
            return;
        }
        self.disturb_ranges(tree, &key);
        drop(shard);
        self.reconsider(owner, &key);
    }

    /// L5: a range that has seen a point would wait for an owner that is no longer in its way. Under the point's shard.
    fn disturb_ranges(&self, tree: TreeId, key: &LockKey) {
        let group = self.range_group(tree);
        if group.count.load(Ordering::SeqCst) > 0
            && let Some(intervals) = group.trees.lock().get_mut(&tree.0)
        {
            intervals.disturb(key);
        }
    }

    /// Has those who wait for `owner` at a point examine themselves again (L3).
    fn reconsider(&self, owner: &Owner, key: &LockKey) {
        if owner.followers.load(Ordering::SeqCst) > 0 {
            self.graph.lock().unlocked(owner, key);
        }
    }
}
