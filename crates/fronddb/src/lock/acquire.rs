//! A point request, from the fast path to the wait.

use std::collections::btree_map;
use std::sync::Arc;

use super::key::LockKey;
use super::owner::Owner;
use super::points::{ENTRY_BYTES, Entry, Shard, Waiter};
use super::table::Inner;
use super::wait::{Registered, Request, Search, Told};
use super::{Attempt, Granted, Mode, Wait};
use crate::base::sync::MutexGuard;
use crate::base::sync::atomic::Ordering;
use crate::base::{Result, TreeId};

/// What the examination of a point found.
enum Decision<'a> {
    Granted(Granted),
    /// Somebody is in the way of a request that does not wait.
    Busy,
    /// The request stands in the queue.
    Wait(Registered<'a>),
}

impl Inner {
    /// Locks a point. `wait` is `None` for an attempt that answers `Busy`.
    #[inline]
    pub(super) fn lock_point(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
        wait: Option<Wait>,
    ) -> Result<Attempt> {
        if owner.has_ended() {
            return Err(Inner::closed(owner));
        }
        let lock_key = LockKey::new(tree, key);
        let heap_bytes = lock_key.heap_bytes();
        let mut shard = self.shard(&lock_key).lock();
        shard.make_room();
        let no_ranges = self.range_group(tree).count.load(Ordering::SeqCst) == 0;
        let lock_key = match shard.map.entry(lock_key) {
            btree_map::Entry::Vacant(vacant) if no_ranges => {
                vacant.insert(Entry::new(owner.clone(), mode));
                shard.unreported += (ENTRY_BYTES + heap_bytes) as isize;
                self.note_granted(shard, owner, tree, key);
                return Ok(Attempt::Granted(Granted::New));
            }
            btree_map::Entry::Vacant(vacant) => vacant.into_key(),
            btree_map::Entry::Occupied(mut occupied) => {
                let entry = occupied.get_mut();
                if entry.is_only(owner) {
                    if mode <= entry.mode {
                        return Ok(Attempt::Granted(Granted::Already));
                    }
                    if no_ranges {
                        entry.mode = mode;
                        return Ok(Attempt::Granted(Granted::Raised));
                    }
                } else if no_ranges && entry.more.is_none() && entry.holder.as_ref().is_some_and(|one| one.has_ended())
                {
                    *entry = Entry::new(owner.clone(), mode);
                    self.note_granted(shard, owner, tree, key);
                    return Ok(Attempt::Granted(Granted::New));
                }
                occupied.key().clone()
            }
        };
        self.lock_point_slow(shard, owner, &lock_key, mode, wait)
    }

    /// Lists a new point with its owner and lets go of the shard.
    #[inline]
    pub(super) fn note_granted(&self, mut shard: MutexGuard<'_, Shard>, owner: &Arc<Owner>, tree: TreeId, key: &[u8]) {
        shard.granted += 1;
        // Only the owner's own thread adds.
        owner.weight.store(owner.weight.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let grown = owner.held.lock().push(tree, key);
        let mut over = self.report(&mut shard);
        drop(shard);
        if grown != 0 {
            over |= self.charge(grown);
        }
        if over {
            self.relieve();
        }
    }

    #[cold]
    fn lock_point_slow<'a>(
        &'a self,
        shard: MutexGuard<'a, Shard>,
        owner: &Arc<Owner>,
        key: &LockKey,
        mode: Mode,
        wait: Option<Wait>,
    ) -> Result<Attempt> {
        // L4: numbered before it looks at the ranges.
        let request =
            Request { owner, mode, seq: self.next_seq.fetch_add(1, Ordering::SeqCst), wait, is_implicit: false };
        let deadline = self.deadline(wait);
        let mut queued = false;
        let mut told = Told::new(self, owner);
        // Dropped before that.
        let mut shard = shard;
        loop {
            let failure = match self.examine_point(&mut shard, key, &request, &mut queued) {
                Decision::Granted(Granted::New | Granted::Raised) => {
                    let entry = shard.entry(key);
                    // A holder that was in the way may have ended since the examination began.
                    entry.purge();
                    let listed = entry.mode_of(owner).is_some();
                    entry.remove_waiter(owner);
                    entry.grant(owner, mode);
                    if listed {
                        return Ok(Attempt::Granted(Granted::Raised));
                    }
                    self.note_granted(shard, owner, key.tree(), &key.to_bytes());
                    return Ok(Attempt::Granted(Granted::New));
                }
                Decision::Granted(Granted::Already) => {
                    self.leave_queue(&mut shard, key, owner);
                    return Ok(Attempt::Granted(Granted::Already));
                }
                Decision::Busy => {
                    self.leave_queue(&mut shard, key, owner);
                    return match wait {
                        None => Ok(Attempt::Busy),
                        Some(_) => Err(self.timed_out(owner)),
                    };
                }
                Decision::Wait(Registered::Again) => continue,
                Decision::Wait(Registered::Failed(error)) => error,
                Decision::Wait(Registered::Sleep(mut graph)) => {
                    self.report(&mut shard);
                    drop(shard);
                    let untold = self.untold(&mut graph, owner, &mut told);
                    if !untold.is_empty() {
                        drop(graph);
                        self.tell(owner, &untold);
                        shard = self.shard(key).lock();
                        continue;
                    }
                    let woken = self.sleep(owner, graph, deadline);
                    shard = self.shard(key).lock();
                    match woken {
                        Ok(()) => continue,
                        Err(error) => error,
                    }
                }
            };
            self.leave_queue(&mut shard, key, owner);
            drop(shard);
            self.graph.lock().withdraw(owner, request.seq);
            return Err(failure);
        }
    }

    /// Decides about a point, under its shard. A request that has to wait enters the queue of its key.
    fn examine_point<'a>(
        &'a self,
        shard: &mut Shard,
        key: &LockKey,
        request: &Request<'_>,
        queued: &mut bool,
    ) -> Decision<'a> {
        let group = self.range_group(key.tree());
        // Held until edges are registered, so that no waiting range leaves unnoticed.
        let mut trees = (group.count.load(Ordering::SeqCst) > 0).then(|| group.trees.lock());
        let mut intervals = trees.as_mut().and_then(|trees| trees.get_mut(&key.tree().0));
        let mut search = Search::new(self, request);
        if let Some(entry) = shard.map.get_mut(key) {
            entry.purge();
            if entry.mode_of(request.owner).is_some_and(|held| request.mode <= held) {
                search.finish(None, *queued);
                return Decision::Granted(Granted::Already);
            }
            entry.holders().for_each(|holder| search.held(holder, entry.mode));
            for waiter in entry.waiters().rev() {
                if search.waiting(&waiter.owner, waiter.mode, waiter.seq) && waiter.mode == Mode::Exclusive {
                    // It waits for all that came before it, as this request waits for it.
                    break;
                }
            }
        }
        if let Some(intervals) = &mut intervals
            && search.ranges(intervals, key, &key.successor(), None)
        {
            search.finish(None, *queued);
            return Decision::Granted(Granted::Already);
        }
        if search.blockers.is_empty() {
            search.finish(intervals, *queued);
            return Decision::Granted(Granted::New);
        }
        if !request.may_sleep() {
            return Decision::Busy;
        }
        if !*queued {
            *queued = true;
            let waiter = Waiter { owner: request.owner.clone(), mode: request.mode, seq: request.seq };
            shard.entry(key).push_waiter(waiter);
        }
        Decision::Wait(search.register(key, None))
    }

    /// Takes the request out of the queue of its key, if it stands there.
    fn leave_queue(&self, shard: &mut MutexGuard<'_, Shard>, key: &LockKey, owner: &Arc<Owner>) {
        if let Some(entry) = shard.map.get_mut(key) {
            entry.remove_waiter(owner);
        }
        shard.remove_if_free(key);
        self.report(shard);
    }
}
