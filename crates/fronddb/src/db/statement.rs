//! Statements inside a transaction: one snapshot for all that they read at READ COMMITTED, and row locks that they
//! give back.
//!
//! A front end whose language has statements says where one begins and ends. Between, plain reads at READ COMMITTED
//! see one snapshot, taken at the first of them, so that a statement of many calls sees one state. Who says nothing gets
//! a snapshot per call.
//!
//! A statement at READ COMMITTED or READ UNCOMMITTED may give back the lock of a row that it locked, looked at and had
//! no use for. [`FreshLocks`] remembers which locks may go:
//!
//! - U1: a key is in it only if this statement's locking read newly locked it and nothing was written to it since.
//! - U2: what it forgets (it is bounded) stays locked to the end of the transaction.

use std::sync::Arc;

use super::core::{TxnCore, TxnState};
use super::options::Isolation;
use super::tree_handle::Tree;
use crate::base::checksum::key_hash;
use crate::base::key::{check_key, inner, split, write_inner};
use crate::base::{CommitNumber, Result, TreeId};
use crate::lock::Granted;
use crate::txn::Snapshot;

/// Locks that can be given back, at most: more than a front end reads at a time.
const FRESH_MAX: usize = 256;
/// Longer keys are not remembered.
const FRESH_KEY_BYTES_MAX: usize = 4 << 10;

/// What belongs to the current statement.
#[derive(Debug, Default)]
pub(crate) struct Statement {
    /// Between [`TxnCore::begin_statement`] and [`TxnCore::end_statement`].
    is_open: bool,
    snapshot: Option<Arc<Snapshot>>,
    /// Of walks that lock what they find in it: they wait, and plain reads may come after that.
    walk_snapshot: Option<Arc<Snapshot>>,
    pub(crate) fresh: FreshLocks,
}

impl Statement {
    /// The snapshot for a plain read at READ COMMITTED.
    pub(crate) fn snapshot(&mut self, acquire: impl FnOnce() -> Snapshot) -> Arc<Snapshot> {
        Self::hold(self.is_open, &mut self.snapshot, acquire)
    }

    /// The number of the snapshot that plain reads have been given.
    pub(crate) fn held_snapshot(&self) -> Option<CommitNumber> {
        self.snapshot.as_ref().map(|snapshot| snapshot.number())
    }

    /// The snapshot for a cursor that sees what is committed, below REPEATABLE READ: another one than plain reads have.
    pub(crate) fn walk_snapshot(&mut self, acquire: impl FnOnce() -> Snapshot) -> Arc<Snapshot> {
        Self::hold(self.is_open, &mut self.walk_snapshot, acquire)
    }

    fn hold(is_open: bool, slot: &mut Option<Arc<Snapshot>>, acquire: impl FnOnce() -> Snapshot) -> Arc<Snapshot> {
        if is_open { slot.get_or_insert_with(|| Arc::new(acquire())).clone() } else { Arc::new(acquire()) }
    }

    /// Begins a call that sees one state like a statement. True where there is no statement around it: then it is to [`Statement::part`].
    pub(crate) fn join(&mut self) -> bool {
        !std::mem::replace(&mut self.is_open, true)
    }

    pub(crate) fn part(&mut self) {
        self.is_open = false;
        self.snapshot = None;
    }

    fn turn(&mut self, is_open: bool) {
        self.is_open = is_open;
        self.snapshot = None;
        self.walk_snapshot = None;
        self.fresh.clear();
    }
}

/// Inner keys that this statement newly locked, the last [`FRESH_MAX`] of them (U1, U2). Keeps its memory.
#[derive(Debug, Default)]
pub(crate) struct FreshLocks {
    slots: Vec<Fresh>,
    /// Where the next one goes.
    next: usize,
    count: usize,
}

#[derive(Debug, Default)]
struct Fresh {
    is_used: bool,
    hash: u64,
    key: Vec<u8>,
}

impl FreshLocks {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn clear(&mut self) {
        if self.count > 0 {
            self.slots.iter_mut().for_each(|slot| slot.is_used = false);
            self.count = 0;
        }
        self.next = 0;
    }

    fn add(&mut self, tree: TreeId, key: &[u8]) {
        if key.len() > FRESH_KEY_BYTES_MAX {
            return;
        }
        if self.next == self.slots.len() {
            if self.slots.len() < FRESH_MAX {
                self.slots.push(Fresh::default());
            } else {
                self.next = 0;
            }
        }
        if let Some(slot) = self.slots.get_mut(self.next) {
            self.count += usize::from(!slot.is_used);
            write_inner(tree, key, &mut slot.key);
            slot.hash = key_hash(&slot.key);
            slot.is_used = true;
            self.next += 1;
        }
    }

    /// Forgets an inner key; true if it was there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        if self.count == 0 {
            return false;
        }
        let hash = key_hash(key);
        let found = self.slots.iter_mut().find(|slot| slot.is_used && slot.hash == hash && slot.key == key);
        if let Some(slot) = found {
            slot.is_used = false;
            self.count -= 1;
            return true;
        }
        false
    }
}

impl TxnCore {
    pub(crate) fn begin_statement(&self) -> Result<()> {
        let mut state = self.active()?;
        state.statement.turn(true);
        self.forget_cancellation(&state);
        Ok(())
    }

    pub(crate) fn end_statement(&self) -> Result<()> {
        self.active()?.statement.turn(false);
        Ok(())
    }

    /// Takes note of how a locking read got its lock.
    pub(crate) fn note_locked(&self, state: &mut TxnState, tree: TreeId, key: &[u8], granted: Granted) {
        if !matches!(self.options.isolation, Isolation::ReadUncommitted | Isolation::ReadCommitted) {
            return;
        }
        match granted {
            Granted::New => state.statement.fresh.add(tree, key),
            Granted::Raised | Granted::Already => {
                if !state.statement.fresh.is_empty() {
                    state.statement.fresh.remove(&inner(tree, key));
                }
            }
        }
    }

    pub(crate) fn unlock(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let mut state = self.active()?;
        Ok(self.unlock_fresh(&mut state, &inner(tree.id(), key)))
    }

    /// Gives the lock of an inner key back, if it may go (U1).
    pub(crate) fn unlock_fresh(&self, state: &mut TxnState, key: &[u8]) -> bool {
        if !state.statement.fresh.remove(key) {
            return false;
        }
        if let (Some(writer), Some((tree, key))) = (&state.writer, split(key)) {
            writer.locker.unlock(tree, key);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: TreeId = TreeId(7);

    #[test]
    fn the_last_locks_are_remembered_and_each_is_given_back_once() {
        let mut fresh = FreshLocks::default();
        let key = |n: usize| n.to_be_bytes();
        for n in 0..FRESH_MAX + 10 {
            fresh.add(TREE, &key(n));
        }
        assert!(!fresh.remove(&inner(TREE, &key(9))), "U2: forgotten");
        for n in 10..FRESH_MAX + 10 {
            assert!(fresh.remove(&inner(TREE, &key(n))) && !fresh.remove(&inner(TREE, &key(n))), "n={n}");
        }
        assert!(fresh.is_empty());
        fresh.add(TREE, b"again");
        fresh.clear();
        assert!(fresh.is_empty() && !fresh.remove(&inner(TREE, b"again")));
        fresh.add(TREE, &[1; FRESH_KEY_BYTES_MAX + 1]);
        assert!(fresh.is_empty());
    }
}
