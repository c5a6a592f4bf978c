//! The point locks of one shard, ordered by key.
//!
//! The common entry is one holder and nothing else; further shared holders and the queue of waiters are in a
//! box that most entries lack. Whoever meets a holder that has ended drops it.
//!
//! Owners that end do not visit their entries. Insertion pays for that instead: a shard that has doubled since its last
//! purge drops what is dead, so that removal costs a few nanoseconds a lock (one pass in key order) instead
//! of a search each. See also `release`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::Mode;
use super::key::LockKey;
use super::owner::Owner;

/// Memory of an entry: its slot in a node of a B-tree that is two thirds full.
pub(super) const ENTRY_BYTES: usize = (size_of::<LockKey>() + size_of::<Entry>()) * 3 / 2;

/// A shard of at most this many entries is purged as a whole, at a few nanoseconds an entry; a larger one in windows.
const WHOLE_MAX: usize = 2048;
/// Entries that one window visits, and insertions from one window to the next: garbage stays below a quarter.
const WINDOW: usize = 256;
const WINDOW_EVERY: usize = 64;
/// A shard smaller than this is not purged.
const PURGE_MIN: usize = 64;

/// A shard.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) map: BTreeMap<LockKey, Entry>,
    /// Bytes gained by entries made, lost by entries removed, and not yet reported to the table.
    pub(super) unreported: isize,
    /// Locks granted, for statistics.
    pub(super) granted: u64,
    /// At this many entries those of ended owners are purged.
    purge_at: usize,
    /// The last key that a window visited.
    visited: Option<LockKey>,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard { map: BTreeMap::new(), unreported: 0, granted: 0, purge_at: PURGE_MIN, visited: None }
    }
}

impl Shard {
    /// Purges some entries of ended owners, if there may be many; to be called before an entry is made.
    #[inline]
    pub(super) fn make_room(&mut self) {
        if self.map.len() >= self.purge_at {
            self.purge();
        }
    }

    #[cold]
    fn purge(&mut self) {
        if self.map.len() <= WHOLE_MAX {
            let mut freed = 0;
            let entries = std::mem::take(&mut self.map).into_iter();
            let live = entries.filter_map(|(key, mut entry)| {
                entry.purge();
                if !entry.is_free() {
                    return Some((key, entry));
                }
                freed += ENTRY_BYTES + key.heap_bytes();
                None
            });
            self.map = live.collect();
            self.unreported -= freed as isize;
            self.purge_at = (self.map.len() * 2).max(PURGE_MIN);
        } else {
            let after = self.visited.take();
            self.visited = self.purge_window(after, WINDOW).0;
            self.purge_at = self.map.len() + WINDOW_EVERY;
        }
    }

    /// Purges among up to `budget` entries after a key. Returns the last key visited, `None` when the end was
    /// reached, and the number visited.
    pub(super) fn purge_window(&mut self, after: Option<LockKey>, budget: usize) -> (Option<LockKey>, usize) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut visited, mut last, mut dead) = (0, None, Vec::new());
        for (key, entry) in self.map.range_mut((start, Bound::Unbounded)) {
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
            self.remove_if_free(key);
        }
        (last, visited)
    }

    /// The entry of `key`, made if need be.
    pub(super) fn entry(&mut self, key: &LockKey) -> &mut Entry {
        self.map.entry(key.clone()).or_insert_with_key(|key| {
            self.unreported += (ENTRY_BYTES + key.heap_bytes()) as isize;
            Entry { holder: None, mode: Mode::Shared, more: None }
        })
    }

    /// Removes the entry of `key` if nobody holds it or waits for it.
    pub(super) fn remove_if_free(&mut self, key: &LockKey) {
        if self.map.get(key).is_some_and(Entry::is_free) {
            self.map.remove(key);
            self.unreported -= (ENTRY_BYTES + key.heap_bytes()) as isize;
        }
    }

    /// Takes `owner` off the holders of `key`; false if it was none.
    pub(super) fn remove_holder(&mut self, key: &LockKey, owner: &Arc<Owner>) -> bool {
        let Some(entry) = self.map.get_mut(key) else { return false };
        let found = entry.remove_holder(owner);
        if found && entry.is_free() {
            self.map.remove(key);
            self.unreported -= (ENTRY_BYTES + key.heap_bytes()) as isize;
        }
        found
    }

    /// Lets others share `key`, which `owner` holds exclusively; false if it does not.
    pub(super) fn lower(&mut self, key: &LockKey, owner: &Arc<Owner>) -> bool {
        let Some(entry) = self.map.get_mut(key) else { return false };
        let found = entry.mode_of(owner) == Some(Mode::Exclusive);
        if found {
            entry.mode = Mode::Shared;
        }
        found
    }
}

/// Who waits for a point, in the order of arrival.
#[derive(Debug, Clone)]
pub(super) struct Waiter {
    pub(super) owner: Arc<Owner>,
    pub(super) mode: Mode,
    pub(super) seq: u64,
}

/// One locked key.
#[derive(Debug)]
pub(super) struct Entry {
    /// `None` only while there are waiters.
    pub(super) holder: Option<Arc<Owner>>,
    /// Of all holders. Exclusive: there is one.
    pub(super) mode: Mode,
    pub(super) more: Option<Box<More>>,
}

/// The rare rest of an entry.
#[derive(Debug, Default)]
pub(super) struct More {
    /// Shared holders besides the first.
    pub(super) holders: Vec<Arc<Owner>>,
    pub(super) waiters: VecDeque<Waiter>,
}

impl Entry {
    #[inline]
    pub(super) fn new(owner: Arc<Owner>, mode: Mode) -> Entry {
        Entry { holder: Some(owner), mode, more: None }
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = &Arc<Owner>> {
        self.holder.iter().chain(self.more.iter().flat_map(|more| &more.holders))
    }

    pub(super) fn waiters(&self) -> impl DoubleEndedIterator<Item = &Waiter> {
        self.more.iter().flat_map(|more| &more.waiters)
    }

    pub(super) fn has_waiters(&self) -> bool {
        self.more.as_ref().is_some_and(|more| !more.waiters.is_empty())
    }

    /// True when `owner` and no other holds it, and nobody waits.
    pub(super) fn is_only(&self, owner: &Arc<Owner>) -> bool {
        self.more.is_none() && self.holder.as_ref().is_some_and(|holder| Arc::ptr_eq(holder, owner))
    }

    /// The mode in which `owner` holds it.
    pub(super) fn mode_of(&self, owner: &Arc<Owner>) -> Option<Mode> {
        self.holders().any(|holder| Arc::ptr_eq(holder, owner)).then_some(self.mode)
    }

    /// Drops holders that have ended.
    pub(super) fn purge(&mut self) {
        if let Some(more) = &mut self.more {
            more.holders.retain(|holder| !holder.has_ended());
        }
        if self.holder.as_ref().is_some_and(|holder| holder.has_ended()) {
            self.holder = None;
        }
        self.tidy();
    }

    /// Takes `owner` off the holders; false if it was none.
    pub(super) fn remove_holder(&mut self, owner: &Arc<Owner>) -> bool {
        if self.holder.as_ref().is_some_and(|holder| Arc::ptr_eq(holder, owner)) {
            self.holder = None;
            self.tidy();
            return true;
        }
        let Some(more) = &mut self.more else { return false };
        let count = more.holders.len();
        more.holders.retain(|holder| !Arc::ptr_eq(holder, owner));
        let found = more.holders.len() < count;
        self.tidy();
        found
    }

    /// Makes `owner` a holder. The caller has made sure that nobody is in the way, and has purged.
    pub(super) fn grant(&mut self, owner: &Arc<Owner>, mode: Mode) {
        if self.mode_of(owner).is_some() || self.holder.is_none() {
            let is_sole = self.holders().all(|holder| Arc::ptr_eq(holder, owner));
            assert!(mode == Mode::Shared || is_sole, "L1: an exclusive lock has one holder");
            self.mode = mode;
            self.holder = Some(owner.clone());
        } else {
            assert!(mode == Mode::Shared && self.mode == Mode::Shared, "L1: an exclusive lock has one holder");
            self.more.get_or_insert_default().holders.push(owner.clone());
        }
    }

    pub(super) fn push_waiter(&mut self, waiter: Waiter) {
        self.more.get_or_insert_default().waiters.push_back(waiter);
    }

    pub(super) fn remove_waiter(&mut self, owner: &Arc<Owner>) {
        if let Some(more) = &mut self.more {
            more.waiters.retain(|waiter| !Arc::ptr_eq(&waiter.owner, owner));
        }
        self.tidy();
    }

    /// True when it can be dropped.
    pub(super) fn is_free(&self) -> bool {
        self.holder.is_none() && self.more.is_none()
    }

    fn tidy(&mut self) {
        let Some(more) = &mut self.more else { return };
        if self.holder.is_none() {
            self.holder = more.holders.pop();
        }
        if more.holders.is_empty() && more.waiters.is_empty() {
            self.more = None;
        }
    }
}

/// True when the two modes exclude each other.
#[inline]
pub(super) fn conflict(a: Mode, b: Mode) -> bool {
    a == Mode::Exclusive || b == Mode::Exclusive
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::TxnId;

    #[test]
    fn holders_come_and_go() {
        let [a, b, c] = [1, 2, 3].map(|id| Owner::new(TxnId(id), 0));
        let mut entry = Entry::new(a.clone(), Mode::Shared);
        entry.grant(&b, Mode::Shared);
        entry.grant(&c, Mode::Shared);
        assert!(entry.remove_holder(&a) && !entry.remove_holder(&a));
        assert_eq!(entry.holders().count(), 2);
        b.end();
        entry.purge();
        assert!(entry.is_only(&c));
        entry.grant(&c, Mode::Exclusive);
        assert_eq!(entry.mode_of(&c), Some(Mode::Exclusive));
        entry.push_waiter(Waiter { owner: a.clone(), mode: Mode::Shared, seq: 1 });
        assert!(entry.remove_holder(&c) && !entry.is_free());
        entry.remove_waiter(&a);
        assert!(entry.is_free());
    }
}
