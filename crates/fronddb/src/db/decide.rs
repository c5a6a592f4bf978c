//! The first part of the write path: locks and uniqueness of a batch, before anything is written ([`super::write`]).
//!
//! A write locks its key exclusively, an insertion looks whether the key has a value. An insertion of which a duplicate is only
//! reported (`sharing`) asks for the exclusive lock without waiting; where somebody is in the way it asks for a shared one,
//! which is enough to say that the key exists: so several who insert a key that exists do not wait for each other, nor for who reads
//! it. Where it finds under the shared lock that the key has no value (a deletion or a rollback was waited for), it gives that lock back
//! and waits for the exclusive one.
//!
//! - D1: that a key exists is told under a lock of it, exclusive, or shared where the caller says that it is not going to write it
//!   (`sharing`). Such an insertion never goes from a shared lock that it took itself to an exclusive one.
//! - D2: a batch that fails before it is applied leaves the locks of the writes before the failing one as they were: none of these has a
//!   message, so a lock that this call took protects nothing.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::batch::{Write, WriteBatch, Writes};
use super::core::{TxnCore, TxnState};
use super::full_disk::Admitted;
use super::options::{Isolation, Wait};
use crate::base::{CommitNumber, Error, ErrorKind, Result};
use crate::format::{Kind, program};
use crate::lock::{self, Attempt, Granted, Mode};

/// What earlier writes of a batch say about its keys. Read only as far as asked, because keys that were not
/// locked before are not in it.
struct Earlier<'a> {
    writes: Writes<'a>,
    passed: usize,
    exists: HashMap<&'a [u8], bool>,
}

impl Earlier<'_> {
    /// Whether the writes before `index` leave `key` with a value; `None` when they do not say.
    fn find(&mut self, index: usize, key: &[u8]) -> Option<bool> {
        while self.passed < index {
            let write = self.writes.next()?;
            self.passed += 1;
            match write.kind {
                Kind::Put | Kind::InsertIfAbsent => self.exists.insert(write.key, true),
                Kind::Delete | Kind::SingleDelete => self.exists.insert(write.key, false),
                // One that gives a value where there is none; another leaves things as they are.
                Kind::Update => match program::apply(write.payload, None) {
                    Ok(Some(_)) => self.exists.insert(write.key, true),
                    _ => None,
                },
            };
        }
        self.exists.get(key).copied()
    }
}

/// A batch of which everything is decided.
pub(super) struct Decided<'a> {
    /// The writes that turn out to do nothing (insertions of large values where a value exists), ascending.
    pub(super) skipped: Vec<usize>,
    pub(super) taken: Taken,
    pub(super) admitted: Admitted<'a>,
}

/// Of which writes a call took the lock, or raised it.
pub(super) type Taken = SmallVec<[(usize, Granted); 8]>;

/// What has been decided of a batch so far.
struct Decisions<'a> {
    conflict: Option<CommitNumber>,
    wait: lock::Wait,
    earlier: Earlier<'a>,
    skipped: Vec<usize>,
    taken: Taken,
    /// A lock has been asked for.
    waited: bool,
}

fn key_exists(index: usize) -> Error {
    Error::new(ErrorKind::KeyExists, format!("key exists, operation={index}"))
}

impl TxnCore {
    /// Locks and checks everything that a batch needs.
    pub(super) fn decide(&self, state: &mut TxnState, batch: &WriteBatch) -> Result<Decided<'_>> {
        batch.trees().try_for_each(|tree| self.check_tree(state, tree))?;
        let admitted = self.admit(state, self.level0_bytes(batch), || batch.deletes_only())?;
        let mut decisions = Decisions {
            conflict: self.conflict_snapshot(state),
            wait: self.lock_wait(Wait::Default),
            earlier: Earlier { writes: batch.writes(), passed: 0, exists: HashMap::new() },
            skipped: Vec::new(),
            taken: SmallVec::new(),
            waited: false,
        };
        for (index, write) in batch.writes().enumerate() {
            if let Err(error) = self.decide_one(state, &mut decisions, index, &write) {
                state.failed_operation = Some(index);
                if error.kind() != ErrorKind::Deadlock {
                    self.give_back(state, batch, &decisions.taken);
                }
                return Err(error);
            }
        }
        if decisions.waited {
            // A tree may have been dropped by whom a lock was waited for.
            batch.trees().try_for_each(|tree| tree.check())?;
        }
        Ok(Decided { skipped: decisions.skipped, taken: decisions.taken, admitted })
    }

    /// What follows the decisions has failed, before anything was written (D2).
    #[cold]
    pub(super) fn undecide(&self, state: &mut TxnState, batch: &WriteBatch, mut taken: Taken, error: Error) -> Error {
        if error.kind() != ErrorKind::Deadlock {
            taken.sort_unstable_by_key(|(index, _)| *index);
            self.give_back(state, batch, &taken);
        }
        error
    }

    fn decide_one(
        &self,
        state: &mut TxnState,
        decisions: &mut Decisions<'_>,
        index: usize,
        write: &Write<'_>,
    ) -> Result<()> {
        let mut granted = Granted::Already;
        if !write.covered {
            decisions.waited = true;
            granted = match write.unique && write.sharing {
                false => self.lock_write(state, write, Mode::Exclusive, decisions.wait)?,
                true => self.lock_to_insert(state, decisions, index, write)?,
            };
            // Also for a lock held already: it may be left from a conflict before, or be a range's.
            self.check_conflict(state, decisions.conflict, write.key)?;
        }
        let large_insert = write.kind == Kind::InsertIfAbsent && self.is_large(write);
        if write.unique || large_insert {
            let in_batch = if granted == Granted::Already { decisions.earlier.find(index, write.key) } else { None };
            let exists = match in_batch {
                Some(exists) => exists,
                None => self.has_latest(state, write.key)?,
            };
            if exists && large_insert {
                decisions.skipped.push(index);
            } else if exists {
                if write.sharing && granted != Granted::Already {
                    self.writer(state).locker.lower(write.tree(), write.user_key());
                }
                return Err(key_exists(index));
            }
        }
        if granted != Granted::Already {
            decisions.taken.push((index, granted));
        }
        Ok(())
    }

    /// Locks the key of a write.
    fn lock_write(&self, state: &mut TxnState, write: &Write<'_>, mode: Mode, wait: lock::Wait) -> Result<Granted> {
        let granted = self.writer(state).locker.lock(write.tree(), write.user_key(), mode, wait);
        let granted = granted.map_err(|error| self.lock_failed(state, error))?;
        self.keep_locked(state, write, granted);
        Ok(granted)
    }

    /// What a write needs is not given back with a row that was read.
    fn keep_locked(&self, state: &mut TxnState, write: &Write<'_>, granted: Granted) {
        if granted != Granted::New && !state.statement.fresh.is_empty() {
            state.statement.fresh.remove(write.key);
        }
    }

    /// Locks the key of an insertion of which a duplicate is only reported (D1). Exclusively; where somebody is in the way, shared
    /// first, which is enough to say that the key exists.
    fn lock_to_insert(
        &self,
        state: &mut TxnState,
        decisions: &Decisions<'_>,
        index: usize,
        write: &Write<'_>,
    ) -> Result<Granted> {
        let attempt = self.writer(state).locker.try_lock(write.tree(), write.user_key(), Mode::Exclusive);
        if let Attempt::Granted(granted) = attempt.map_err(|error| self.lock_failed(state, error))? {
            self.keep_locked(state, write, granted);
            return Ok(granted);
        }
        let shared = self.lock_write(state, write, Mode::Shared, decisions.wait)?;
        self.check_conflict(state, decisions.conflict, write.key)?;
        if self.has_latest(state, write.key)? {
            return Err(key_exists(index));
        }
        if shared == Granted::New {
            // Two who both went from here to an exclusive lock would be a deadlock.
            self.writer(state).locker.unlock(write.tree(), write.user_key());
        }
        self.lock_write(state, write, Mode::Exclusive, decisions.wait)
    }

    /// The batch has failed, and `taken` is ascending: the locks of those of its writes that had been decided are what they were. At SERIALIZABLE the
    /// failure has told that these keys had no value, which stays so.
    fn give_back(&self, state: &mut TxnState, batch: &WriteBatch, taken: &[(usize, Granted)]) {
        let tells = self.options.isolation == Isolation::Serializable;
        let Some(writer) = &state.writer else { return };
        let mut writes = batch.writes().enumerate();
        for (taken, granted) in taken {
            let Some((_, write)) = writes.find(|(index, _)| index == taken) else { return };
            match granted {
                Granted::New if !tells => writer.locker.unlock(write.tree(), write.user_key()),
                _ => writer.locker.lower(write.tree(), write.user_key()),
            }
        }
    }

    fn has_latest(&self, state: &TxnState, key: &[u8]) -> Result<bool> {
        let engine = &self.engine;
        let view = self.latest_view(state);
        engine.counters.here().write_checks.add(1);
        engine.tree.contains(&engine.tree.version_guard(), &view, key)
    }
}
