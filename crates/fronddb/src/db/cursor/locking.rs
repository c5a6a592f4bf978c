//! Cursors that lock what they find.
//!
//! One finds the next row in the latest committed state, locks it together with the gap before it, and makes sure that the
//! row is still the next one: only a commit or a covered write (see `covered`) in between can have changed that, so the
//! look is repeated when there was one. Where another transaction has written without locking, it waits for that one's end
//! and looks again: once before it locks the gap, so that the writer may go on writing there, and from then on with the gap
//! locked.
//!
//! At READ COMMITTED it locks rows and no gaps, and waits where an undecided change stands at a row that it stops at. Each
//! look sees one committed state, and when the row is gone once it is locked, the look is repeated from where it began: a
//! commit that moves a row, by deleting one key and writing another, is seen whole, to whichever side the row went.

use super::super::core::{TxnCore, TxnState};
use super::super::options::{LockMode, Wait};
use super::super::read::{Settled, mode_of};
use super::peek::Began;
use super::{At, Cursor, successor, user_key};
use crate::base::key::{inner, lower_of, tree_end};
use crate::base::{CommitNumber, Result, TxnId};
use crate::lock::{Attempt, Mode};
use crate::tree::cursor::check_stop;
use crate::tree::{TreeCursor, Wanted};
use crate::txn::Snapshot;

impl Cursor {
    /// Locks the row that it is at, and reads it again as it is now; false when it is gone or (with
    /// [`Wait::SkipLocked`]) held by another, and the cursor stays between its neighbours.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `Cancelled`, `Conflict`, `Closed`, `Io`, `Corruption`.
    pub fn lock_row(&mut self, mode: LockMode, wait: Wait) -> Result<bool> {
        Ok(self.valid() && self.lock_here(mode_of(mode), wait)? == Taken::Row)
    }

    /// Gives back the lock of the row that it is at, where this statement took it and nothing was written to the row since;
    /// whether it did. See [`crate::Transaction::unlock`]. The cursor stays at the row.
    ///
    /// # Errors
    /// `Closed`.
    pub fn unlock_row(&mut self) -> Result<bool> {
        if self.at != At::Own {
            return Ok(false);
        }
        let mut state = self.core.active()?;
        Ok(self.core.unlock_fresh(&mut state, &self.key))
    }

    /// Locks the row that it is at, and reads it again; where that gives no row, it stands where the row was.
    pub(super) fn lock_here(&mut self, mode: Mode, wait: Wait) -> Result<Taken> {
        let key = inner(self.tree.id, self.key());
        self.at = At::Gone;
        self.key = key.clone();
        let core = self.core.clone();
        let mut state = core.active()?;
        core.check_not_read_only()?;
        if core.lock_point(&mut state, self.tree.id, user_key(&key), mode, wait)? == Attempt::Busy {
            return Ok(Taken::Busy);
        }
        self.take_row(&core, &mut state, key, mode, wait)
    }

    pub(super) fn forward_locked(&mut self, core: &TxnCore, state: &mut TxnState, from: &[u8]) -> Result<bool> {
        let from = from.max(&self.range.lower).to_vec();
        self.find_locked(core, state, Began::From(from))
    }

    pub(super) fn backward_locked(
        &mut self,
        core: &TxnCore,
        state: &mut TxnState,
        below: Option<&[u8]>,
    ) -> Result<bool> {
        let below = lower_of(below, self.range.upper.as_deref());
        self.find_locked(core, state, Began::Below(below.map(<[u8]>::to_vec)))
    }

    /// Finds the next row from where the look begins, and locks it.
    fn find_locked(&mut self, core: &TxnCore, state: &mut TxnState, mut began: Began) -> Result<bool> {
        let locks_gaps = self.locks_gaps();
        let mut looked = Looked::default();
        loop {
            let row = self.look(core, state, &mut looked, |source| match &began {
                Began::From(from) => source.seek(from),
                Began::Below(Some(below)) => source.seek_before(below),
                Began::Below(None) => source.last(),
            })?;
            let found = row.as_ref().map(|(key, _)| key.as_slice());
            if locks_gaps && !self.settle_passed(core, state, &mut looked, &began, found)? {
                continue;
            }
            let Some((key, value)) = row else { return Ok(false) };
            if locks_gaps {
                return self.accept(core, state, key, value);
            }
            match self.lock_found(core, state, &key)? {
                Taken::Row => return Ok(true),
                Taken::Busy if self.peeks => return Ok(self.peek(key, value, began)),
                Taken::Busy => began = began.past(key),
                Taken::Gone => {}
            }
            check_stop(&core.cancelled).inspect_err(|error| core.scan_failed(state, error))?;
        }
    }

    /// [`Cursor::settle_gap`] for what a look has passed from where it began up to the row that it `found`, or to the end.
    fn settle_passed(
        &self,
        core: &TxnCore,
        state: &mut TxnState,
        looked: &mut Looked,
        began: &Began,
        found: Option<&[u8]>,
    ) -> Result<bool> {
        match began {
            Began::From(from) => {
                let end = found.map(successor).or_else(|| self.range.upper.clone());
                let end = end.as_deref();
                self.settle_gap(core, state, looked, (from, end), end)
            }
            Began::Below(below) => {
                let start = found.unwrap_or(&self.range.lower);
                self.settle_gap(core, state, looked, (start, below.as_deref()), Some(start))
            }
        }
    }

    /// Looks for the row that it is to lock. Where no gaps are locked, it sees one committed state: commits go on meanwhile, and it
    /// must not see half of one. (Who locks gaps looks again when there was a commit.)
    fn look(
        &mut self,
        core: &TxnCore,
        state: &mut TxnState,
        looked: &mut Looked,
        seek: impl FnOnce(&mut TreeCursor) -> Result<bool>,
    ) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        looked.at = Moment::now(core);
        let one_state = (!self.locks_gaps()).then(|| core.engine.snapshots.acquire());
        let source = self.source(state);
        source.see(one_state.as_ref().map_or(CommitNumber::LATEST, Snapshot::number));
        let found = seek(source).inspect_err(|error| core.scan_failed(state, error))?;
        let row = if found { Some(source.cursor_row()) } else { None };
        looked.undecided = source.undecided().map(|(txn, key)| (txn, key.to_vec()));
        Ok(row)
    }

    /// Locks the gap that a look has passed, up to its `far` end, and waits for whoever is changing something there; false
    /// when the look has to be repeated.
    fn settle_gap(
        &self,
        core: &TxnCore,
        state: &mut TxnState,
        looked: &mut Looked,
        (start, end): (&[u8], Option<&[u8]>),
        far: Option<&[u8]>,
    ) -> Result<bool> {
        let may_lock = looked.undecided.is_none() || std::mem::replace(&mut looked.has_waited, true);
        if may_lock && looked.locked.as_ref().is_none_or(|locked| locked.as_deref() != far) {
            if end.is_none_or(|end| start < end) {
                self.lock_gap(core, state, start, end)?;
            }
            if looked.at != Moment::now(core) || looked.at.covered.is_none() {
                looked.locked = Some(far.map(<[u8]>::to_vec));
                return Ok(false);
            }
        }
        let Some((txn, key)) = looked.undecided.take() else { return Ok(true) };
        core.wait_for_txn(state, txn, &key, self.lock.unwrap_or(Mode::Shared), self.wait)?;
        Ok(false)
    }

    /// Whether it locks what it passes, and waits for whoever is changing something there.
    fn locks_gaps(&self) -> bool {
        self.gaps && self.wait != Wait::SkipLocked
    }

    /// Locks the inner keys from `start` up to `end` (`None`: to the end of the tree).
    fn lock_gap(&self, core: &TxnCore, state: &mut TxnState, start: &[u8], end: Option<&[u8]>) -> Result<()> {
        let tree_end = tree_end(self.tree.id);
        let end = end.filter(|end| *end != tree_end.as_slice()).map(user_key).unwrap_or_default();
        let mode = self.lock.unwrap_or(Mode::Shared);
        core.lock_span(state, self.tree.id, user_key(start), end, mode, core.lock_wait(self.wait))?;
        // It may have been dropped by whom the lock was waited for; not any more.
        self.tree.check()
    }

    /// Locks the row at `key` and stands there, if it is there still and can be had.
    fn lock_found(&mut self, core: &TxnCore, state: &mut TxnState, key: &[u8]) -> Result<Taken> {
        let mode = self.lock.unwrap_or(Mode::Shared);
        let wait = if self.peeks { Wait::SkipLocked } else { self.wait };
        if core.lock_point(state, self.tree.id, user_key(key), mode, wait)? == Attempt::Busy {
            return Ok(Taken::Busy);
        }
        self.take_row(core, state, key.to_vec(), mode, wait)
    }

    /// Stands at a row that is locked and known to be current.
    fn accept(&mut self, core: &TxnCore, state: &mut TxnState, key: Vec<u8>, value: Vec<u8>) -> Result<bool> {
        let snapshot = core.conflict_snapshot(state);
        core.check_conflict(state, snapshot, &key)?;
        self.key = key;
        self.value = value;
        self.at = At::Own;
        Ok(true)
    }

    /// Reads the row at `key`, which is locked, as it is now, and stands there; the lock is given back where it does not.
    fn take_row(
        &mut self,
        core: &TxnCore,
        state: &mut TxnState,
        key: Vec<u8>,
        mode: Mode,
        wait: Wait,
    ) -> Result<Taken> {
        self.tree.check()?;
        let snapshot = core.conflict_snapshot(state);
        core.check_conflict(state, snapshot, &key)?;
        let wanted = if self.keys_only { Wanted::Nothing } else { Wanted::Whole };
        match core.read_settled(state, &key, mode, wait, wanted)? {
            Settled::Value(Some(value)) => {
                self.value = value.into_vec();
                self.key = key;
                self.at = At::Own;
                Ok(Taken::Row)
            }
            none => {
                core.unlock_fresh(state, &key);
                Ok(if matches!(none, Settled::Busy) { Taken::Busy } else { Taken::Gone })
            }
        }
    }
}

/// What became of a row that was found, when it was to be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Row,
    /// There is none any more.
    Gone,
    /// Another transaction holds or changes it, and it was not to be waited for.
    Busy,
}

/// When a cursor looked: what had been committed, and which covered writes had gone in.
#[derive(Debug, Default, PartialEq, Eq)]
struct Moment {
    visible: CommitNumber,
    /// `None` when one was on its way.
    covered: Option<u64>,
}

impl Moment {
    fn now(core: &TxnCore) -> Moment {
        let covered = core.engine.covered.mark();
        Moment { visible: core.engine.statuses.visible(), covered }
    }
}

/// The looks of one positioning that locks gaps.
#[derive(Debug, Default)]
struct Looked {
    /// When the last one began, and the undecided change that it met.
    at: Moment,
    undecided: Option<(TxnId, Vec<u8>)>,
    /// It has waited for a writer without holding the gap.
    has_waited: bool,
    /// The far end of the gap that was locked before the last look.
    locked: Option<Option<Vec<u8>>>,
}

impl TreeCursor {
    /// A copy of the row at which it stands.
    fn cursor_row(&self) -> (Vec<u8>, Vec<u8>) {
        (self.key().to_vec(), self.value().to_vec())
    }
}
