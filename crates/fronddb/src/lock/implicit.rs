//! Waiting for locks that are not in the table.
//!
//! A transaction may write keys without locking them, because a lock on another key covers them (entries of secondary
//! indexes). What it has written then is a lock all the same, an *implicit* one: whoever meets the undecided change waits
//! for the writer to end or to undo it. The wait stands in the graph like any other, so that it ends by timeout, cancellation
//! and deadlock; it stands in no queue, because what it waits for is no entry that could be handed on.
//!
//! A writer that undoes a part of what it has written says so afterwards ([`Locker::has_undone`]), and whoever waits for it looks
//! at its key once it has registered. Either the look comes after the undoing, or the registration before the saying, and then
//! it is woken to look again: both are read-modify-writes of the writer's count of followers.
//!
//! The other direction, a covered write that meets a range lock, is the writer's affair: it asks [`LockTable::has_ranges`]
//! and takes a point lock where there are some. The argument why one of the two always sees the other is in the
//! database's `covered`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::key::LockKey;
use super::owner::Owner;
use super::table::{Inner, LockTable, Locker};
use super::wait::{Registered, Request, Search, Told};
use super::{Mode, Wait};
use crate::base::{Result, TreeId, TxnId};

impl LockTable {
    /// True when range locks are held or waited for in `tree`. May be true for want of knowing; never false after a range
    /// was registered (both are sequentially consistent).
    #[inline]
    pub fn has_ranges(&self, tree: TreeId) -> bool {
        self.0.range_group(tree).count.load(Ordering::SeqCst) > 0
    }
}

impl Locker {
    /// Waits until `blocker`, whose undecided change of `key` was met, has released its locks, or its change `is_there` no more.
    /// Returns at once when it is not known (any more).
    ///
    /// # Errors
    /// As [`Locker::lock`] and `is_there`; `LockTimeout` at once with [`Wait::NoWait`].
    pub fn wait_for(
        &self,
        blocker: TxnId,
        (tree, key): (TreeId, &[u8]),
        mode: Mode,
        wait: Wait,
        is_there: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        let Some(blocker) = self.table.find_owner(blocker) else { return Ok(()) };
        let seq = self.table.next_seq.fetch_add(1, Ordering::SeqCst);
        let request = Request { owner: &self.owner, mode, seq, wait: Some(wait), is_implicit: true };
        self.table.wait_for(&request, &blocker, &LockKey::new(tree, key), is_there)
    }

    /// Its owner has undone some of what it has written: who waits for that looks again.
    pub fn has_undone(&self) {
        if self.owner.followers.fetch_add(0, Ordering::SeqCst) > 0 {
            self.table.graph.lock().undone(&self.owner);
        }
    }
}

impl Inner {
    fn wait_for(
        &self,
        request: &Request<'_>,
        blocker: &Arc<Owner>,
        key: &LockKey,
        is_there: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        let owner = request.owner;
        let deadline = self.deadline(request.wait);
        let mut told = Told::new(self, owner);
        let mut waits = false;
        let failure = loop {
            if owner.has_ended() {
                break Inner::closed(owner);
            }
            let mut search = Search::new(self, request);
            search.held(blocker, Mode::Exclusive);
            if search.blockers.is_empty() {
                search.finish(None, waits);
                return Ok(());
            }
            if !request.may_sleep() {
                return Err(self.timed_out(owner));
            }
            waits = true;
            match search.register(key, None) {
                Registered::Again => continue,
                Registered::Failed(error) => break error,
                Registered::Sleep(mut graph) => {
                    let untold = self.untold(&mut graph, owner, &mut told);
                    drop(graph);
                    self.tell(owner, &untold);
                }
            }
            match is_there() {
                Ok(true) => {}
                Ok(false) => {
                    Search::new(self, request).finish(None, waits);
                    return Ok(());
                }
                Err(error) => break error,
            }
            // Not registered anew: who has woken it meanwhile is not to be forgotten.
            if let Err(error) = self.sleep(owner, self.graph.lock(), deadline) {
                break error;
            }
        };
        self.graph.lock().withdraw(owner, request.seq);
        Err(failure)
    }
}
