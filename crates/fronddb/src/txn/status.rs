//! The status table: begins, commits, aborts and prepares transactions, and answers what became of them.
//!
//! # Order of commits
//!
//! One mutex, the *order*, is held while a transaction's fate is decided: the caller's closure appends the log
//! record in it, then the state changes, then (for a commit) the visible number moves. So commit records stand in
//! the log in the order of their numbers; the visible number never runs ahead of a state; and whoever takes the
//! order, as [`StatusTable::image`] does, sees of each fate both the record and the state, or neither.
//! The closure must therefore only append (and may block for room in the log's buffer), never wait for what needs
//! an image. A commit is visible before it is durable, which is sound because whatever depends on it comes later
//! in the same log.
//!
//! # Order of latches
//!
//! order → registry (`inner`). Lookups take neither.
//!
//! # What the layers above must do
//!
//! * Call [`StatusTable::note_run_added`] for the output of a compaction or flush before `note_run_removed` for its
//!   inputs, both under whatever guards the current root, and capture the root for a publication together with
//!   [`StatusTable::image`] under the same guard; so an image counts exactly the runs of its root.
//! * Make the log durable up to its end at the image before the superblock that names the image.
//! * Call [`StatusTable::note_run_released`] and [`StatusTable::memtables_flushed_below`] only when no reader can
//!   reach the run or memtable any more; name those that one can in [`StatusTable::advance`].
//! * Put all messages of a transaction into memtables before its end.

use std::collections::HashMap;
use std::sync::Arc;

use super::backlog::{Backlog, BacklogStats};
use super::states::States;
use crate::base::hash::NumberMap;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{CommitNumber, Error, ErrorKind, Lsn, Result, TxnId};
use crate::format::{Status, Statuses};

/// Longest global name of a prepared transaction, in bytes.
pub const XID_BYTES_MAX: usize = 256;

/// So many aborted ids are forgotten in one hold of the registry: well under a millisecond.
const FORGET_AT_ONCE: usize = 1024;

/// A transaction that waits for its coordinator's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// Its id.
    pub txn: TxnId,
    /// Its global name.
    pub xid: Vec<u8>,
}

/// A transaction whose fate is open.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// Its global name, once it is prepared.
    pub(super) xid: Option<Vec<u8>>,
}

/// What the registry's mutex protects.
#[derive(Debug)]
pub(super) struct Registry {
    pub(super) next_txn: u64,
    pub(super) open: NumberMap<TxnId, Open>,
    pub(super) xids: HashMap<Vec<u8>, TxnId>,
    pub(super) backlog: Backlog,
    /// During recovery: the next id of the image; below it, what the image does not name is settled.
    pub(super) replay_from: Option<u64>,
}

/// The states of all transactions of a database.
#[derive(Debug)]
pub struct StatusTable {
    pub(super) states: States,
    /// The next commit number; see the header.
    pub(super) order: Mutex<u64>,
    pub(super) inner: Mutex<Registry>,
    visible: Arc<AtomicU64>,
}

impl Default for StatusTable {
    fn default() -> StatusTable {
        StatusTable::new()
    }
}

impl StatusTable {
    /// The table of a new database: the first transaction is 1, the first commit 1.
    pub fn new() -> StatusTable {
        let table = StatusTable::with(1, 1, NumberMap::default(), Backlog::default());
        table.inner.lock().replay_from = None;
        table
    }

    /// A table about to replay; ids below `next_txn` that are neither open nor aborted are settled.
    pub(super) fn with(next_txn: u64, next_commit: u64, open: NumberMap<TxnId, Open>, backlog: Backlog) -> StatusTable {
        let states = States::new(next_txn);
        for txn in open.keys() {
            states.add(*txn, next_txn);
            states.set(*txn, Status::Active);
        }
        for (txn, what) in backlog.iter() {
            match what {
                super::backlog::What::Whole => states.set(txn, Status::Aborted),
                super::backlog::What::Steps(steps) => {
                    steps.iter().for_each(|(from, to)| states.add_steps(txn, from, to));
                }
            }
        }
        states.advance(CommitNumber(0), Vec::new, next_txn, &backlog);
        let xids = open.iter().filter_map(|(txn, open)| Some((open.xid.clone()?, *txn))).collect();
        StatusTable {
            states,
            order: Mutex::new(next_commit),
            inner: Mutex::new(Registry { next_txn, open, xids, backlog, replay_from: Some(next_txn) }),
            visible: Arc::new(AtomicU64::new(next_commit - 1)),
        }
    }

    /// Registers a transaction that is about to write.
    pub fn begin(&self) -> TxnId {
        let mut inner = self.inner.lock();
        let txn = TxnId(inner.next_txn);
        inner.next_txn += 1;
        self.states.add(txn, 0);
        inner.open.insert(txn, Open::default());
        txn
    }

    /// Commits. `append` is given the commit number and appends the record to the log; when it fails, the
    /// transaction stays as it is.
    ///
    /// # Errors
    /// That of `append`; `Closed` when the transaction is not open.
    pub fn commit_with(
        &self,
        txn: TxnId,
        append: impl FnOnce(CommitNumber) -> Result<Lsn>,
    ) -> Result<(CommitNumber, Lsn)> {
        let mut order = self.order.lock();
        self.check_open(txn)?;
        let number = CommitNumber(*order);
        let lsn = append(number)?;
        *order += 1;
        self.finish_commit(txn, number);
        Ok((number, lsn))
    }

    /// The state, then the visible number. The order is held.
    pub(super) fn finish_commit(&self, txn: TxnId, number: CommitNumber) {
        self.states.set(txn, Status::Committed(number));
        self.inner.lock().close(txn);
        self.visible.fetch_max(number.0, Ordering::SeqCst);
    }

    /// Aborts. `memtable` is the memtable that is active now, after the transaction's last write.
    ///
    /// # Errors
    /// As [`StatusTable::commit_with`].
    pub fn abort_with(&self, txn: TxnId, memtable: u64, append: impl FnOnce() -> Result<Lsn>) -> Result<Lsn> {
        let _order = self.order.lock();
        self.check_open(txn)?;
        let lsn = append()?;
        let mut inner = self.inner.lock();
        self.finish_abort(&mut inner, txn, memtable);
        Ok(lsn)
    }

    /// Ends a transaction that has no message anywhere, so that nobody will ask for it.
    pub fn end_unwritten(&self, txn: TxnId) {
        let mut inner = self.inner.lock();
        if inner.open.contains_key(&txn) {
            self.states.set(txn, Status::Aborted);
            inner.close(txn);
        }
    }

    pub(super) fn finish_abort(&self, inner: &mut MutexGuard<'_, Registry>, txn: TxnId, memtable: u64) {
        self.states.set(txn, Status::Aborted);
        inner.close(txn);
        inner.backlog.abort(txn, memtable);
    }

    /// Aborts the steps `from..=to` of a transaction that goes on. Later writes must use later steps.
    ///
    /// # Errors
    /// As [`StatusTable::commit_with`]; `InvalidArgument` for an empty interval.
    pub fn abort_steps_with(
        &self,
        txn: TxnId,
        from: u32,
        to: u32,
        memtable: u64,
        append: impl FnOnce() -> Result<Lsn>,
    ) -> Result<Lsn> {
        if from > to {
            return Err(Error::invalid(format!("empty interval of steps, from={from} to={to}")));
        }
        let _order = self.order.lock();
        self.check_open(txn)?;
        let lsn = append()?;
        let mut inner = self.inner.lock();
        self.finish_abort_steps(&mut inner, txn, (from, to), memtable);
        Ok(lsn)
    }

    pub(super) fn finish_abort_steps(
        &self,
        inner: &mut MutexGuard<'_, Registry>,
        txn: TxnId,
        (from, to): (u32, u32),
        memtable: u64,
    ) {
        inner.backlog.abort_steps(txn, from, to, memtable);
        self.states.add_steps(txn, from, to);
    }

    /// Prepares under a global name, which must be free.
    ///
    /// # Errors
    /// As [`StatusTable::commit_with`]; `InvalidArgument` when the name is too long or taken or the transaction is
    /// prepared already.
    pub fn prepare_with(&self, txn: TxnId, xid: &[u8], append: impl FnOnce() -> Result<Lsn>) -> Result<Lsn> {
        if xid.len() > XID_BYTES_MAX {
            return Err(Error::invalid(format!("xid too long, bytes={} bytes_max={XID_BYTES_MAX}", xid.len())));
        }
        let _order = self.order.lock();
        self.check_open(txn)?;
        if self.inner.lock().is_prepared(txn, xid) {
            return Err(Error::invalid(format!("the transaction or its xid is prepared already, txn={txn}")));
        }
        let lsn = append()?;
        self.inner.lock().prepare(txn, xid);
        Ok(lsn)
    }

    fn check_open(&self, txn: TxnId) -> Result<()> {
        if self.inner.lock().open.contains_key(&txn) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Closed, format!("the transaction is not open, txn={txn}")))
    }

    /// All prepared transactions, by id.
    pub fn prepared(&self) -> Vec<Prepared> {
        let inner = self.inner.lock();
        let prepared = |(txn, open): (TxnId, &Open)| Some(Prepared { txn, xid: open.xid.clone()? });
        inner.open_by_id().into_iter().filter_map(prepared).collect()
    }

    /// The prepared transaction of this name.
    pub fn find_prepared(&self, xid: &[u8]) -> Option<TxnId> {
        self.inner.lock().xids.get(xid).copied()
    }

    /// The newest commit that a new snapshot sees; it sees all before it, too.
    #[inline]
    pub fn visible(&self) -> CommitNumber {
        CommitNumber(self.visible.load(Ordering::SeqCst))
    }

    pub(super) fn visible_cell(&self) -> Arc<AtomicU64> {
        self.visible.clone()
    }

    /// The id that the next transaction gets.
    pub fn next_txn(&self) -> TxnId {
        TxnId(self.inner.lock().next_txn)
    }

    /// Transactions whose fate is open: how many, and the oldest of them.
    #[cfg(test)]
    pub fn open(&self) -> (usize, Option<TxnId>) {
        let inner = self.inner.lock();
        (inner.open.len(), inner.open.keys().min().copied())
    }

    /// A run that lists these writers as unresolved is in the root from now on.
    pub fn note_run_added(&self, unresolved: &[TxnId]) {
        self.inner.lock().backlog.run_added(unresolved);
    }

    /// A run has left the root; readers may still have it.
    pub fn note_run_removed(&self, unresolved: &[TxnId]) {
        self.inner.lock().backlog.run_removed(unresolved);
    }

    /// The last reader of a run that had left the root has let it go.
    pub fn note_run_released(&self, unresolved: &[TxnId]) {
        let mut inner = self.inner.lock();
        let forgotten = inner.backlog.run_released(unresolved);
        self.forget(inner, &forgotten);
    }

    /// All memtables of ids below `id` are in runs of the root, and no reader has them any more. Forgets in pieces, so that others begin
    /// and commit between them: no id depends on another, and to be forgotten late does no harm.
    pub fn memtables_flushed_below(&self, id: u64) {
        let mut may_be_more = true;
        while may_be_more {
            let mut inner = self.inner.lock();
            let forgotten;
            (forgotten, may_be_more) = inner.backlog.memtables_flushed_below(id, FORGET_AT_ONCE);
            self.forget(inner, &forgotten);
        }
    }

    fn forget(&self, _inner: MutexGuard<'_, Registry>, forgotten: &[TxnId]) {
        forgotten.iter().for_each(|txn| self.states.forget_steps(*txn));
    }

    /// Transactions of which something is aborted and that at least `runs_min` runs, not 0, hold, ascending.
    pub fn aborted_in_runs(&self, runs_min: u32) -> Vec<TxnId> {
        self.inner.lock().backlog.held_by(runs_min)
    }

    /// How much is aborted and not forgotten.
    pub fn backlog(&self) -> BacklogStats {
        self.inner.lock().backlog.stats()
    }

    /// Lets memory of states go that nobody needs: no snapshot from `horizon` on, or nobody who reads any of the `memtables`, which are
    /// those that somebody may still read, ascending, the active one last, or a run. They are asked for while begins and ends wait. For a
    /// background thread, from time to time.
    pub fn advance(&self, horizon: CommitNumber, memtables: impl FnOnce() -> Vec<u64>) {
        let inner = self.inner.lock();
        self.states.advance(horizon, memtables, inner.next_txn, &inner.backlog);
    }

    /// Memory of the states: while a snapshot stays open, eight bytes for each transaction of which level 0 may hold messages, and
    /// 8 KiB at most for each that a run lists as unresolved; otherwise next to nothing.
    pub fn memory_bytes(&self) -> usize {
        self.states.memory_bytes()
    }

    /// No id below is undecided, and of none is there anybody who could ask when it was committed and does not see it.
    #[cfg(test)]
    pub fn low_water(&self) -> TxnId {
        self.states.low_water()
    }
}

impl Registry {
    /// Those that are open, ascending.
    pub(super) fn open_by_id(&self) -> Vec<(TxnId, &Open)> {
        let mut all: Vec<_> = self.open.iter().map(|(txn, open)| (*txn, open)).collect();
        all.sort_unstable_by_key(|(txn, _)| *txn);
        all
    }

    pub(super) fn close(&mut self, txn: TxnId) {
        if let Some(xid) = self.open.remove(&txn).and_then(|open| open.xid) {
            self.xids.remove(&xid);
        }
    }

    fn is_prepared(&self, txn: TxnId, xid: &[u8]) -> bool {
        self.xids.contains_key(xid) || self.open.get(&txn).is_some_and(|open| open.xid.is_some())
    }

    pub(super) fn prepare(&mut self, txn: TxnId, xid: &[u8]) {
        if let Some(open) = self.open.get_mut(&txn) {
            open.xid = Some(xid.to_vec());
            self.xids.insert(xid.to_vec(), txn);
        }
    }
}

impl Statuses for StatusTable {
    #[inline]
    fn status(&self, txn: TxnId, step: u32) -> Status {
        self.states.status(txn, step)
    }
}
