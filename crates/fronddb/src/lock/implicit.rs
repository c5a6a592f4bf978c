//! Waiting for locks that are not in the table.
//!
//! A transaction may write keys without locking them, because a lock on another key covers them (entries of secondary
//! indexes). What it has written then is a lock all the same, an *implicit* one: whoever meets the undecided change waits
//! for the writer's end. The wait stands in the graph like any other, so that it ends by timeout, cancellation and
//! deadlock; it stands in no queue, because what it waits for is no entry that could be handed on.
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
    /// Waits until `blocker`, whose undecided change of `key` was met, has released its locks. Returns at once when it
    /// is not known (any more).
    ///
    /// # Errors
    /// As [`Locker::lock`]; `LockTimeout` at once with [`Wait::NoWait`].
    pub fn wait_for(&self, blocker: TxnId, tree: TreeId, key: &[u8], mode: Mode, wait: Wait) -> Result<()> {
        match self.table.find_owner(blocker) {
            Some(blocker) => self.table.wait_for(&self.owner, &blocker, &LockKey::new(tree, key), mode, wait),
            None => Ok(()),
        }
    }
}

impl Inner {
    fn wait_for(&self, owner: &Arc<Owner>, blocker: &Arc<Owner>, key: &LockKey, mode: Mode, wait: Wait) -> Result<()> {
        let seq = self.next_seq.fetch_add(1, Ordering::SeqCst);
        let request = Request { owner, mode, seq, wait: Some(wait) };
        let deadline = self.deadline(Some(wait));
        let mut told = Told::new(self, owner);
        let mut waits = false;
        let failure = loop {
            if owner.has_ended() {
                break Inner::closed(owner);
            }
            let mut search = Search::new(self, &request);
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
                Registered::Again => {}
                Registered::Failed(error) => break error,
                Registered::Sleep(mut graph) => {
                    let untold = self.untold(&mut graph, owner, &mut told);
                    if untold.is_empty() {
                        if let Err(error) = self.sleep(owner, graph, deadline) {
                            break error;
                        }
                    } else {
                        drop(graph);
                        self.tell(owner, &untold);
                    }
                }
            }
        };
        self.graph.lock().withdraw(owner, seq);
        Err(failure)
    }
}
