//! The state of one transaction, and how it ends.
//!
//! Owns: which snapshot it reads, which id it writes under, its savepoints. A transaction that only reads draws
//! no id; the first write or lock draws one ([`TxnState::writer`]).
//!
//! # Steps and savepoints
//!
//! Every message carries the step in which its transaction wrote it. Setting a mark begins a new step; rolling
//! back to it declares the interval of steps since then aborted, with one log record, and begins a new step. No row
//! is visited (constant-time recovery, Antonopoulos et al., PVLDB 12(12) 2019).
//!
//! - X1: `step` never decreases, and no message is written in a step after it was aborted.
//! - X2: `Ended` is final. Cursors and later calls find it and answer `Closed`.
//! - X3: locks are released only after the status has changed, so that who gets them sees the outcome.
//! - X4: no message is written in a step above [`STEP_MAX`]: the number after it stands for the transaction as a whole where a
//!   status is asked for. Once the steps are used up writes are refused; marks can be set and rolled back to all the same.
//!
//! # States
//!
//! `Active` → `Ended` by [`TxnCore::commit`], [`TxnCore::rollback`], [`TxnCore::prepare`] (its id lives on in
//! [`super::prepared`]) or by losing a deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::catalog::CatalogChanges;
use super::engine::Engine;
use super::options::{Durability, Isolation, TxnOptions, Wait};
use super::statement::Statement;
use super::transaction::Savepoint;
use crate::base::striped::Kept;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{CommitNumber, Error, ErrorKind, Lsn, Result, TxnId};
use crate::format::record::Record;
use crate::lock::{self, Locker};
use crate::log::{Appended, Log};
use crate::txn::Snapshot;

/// The last step that something is written in (X4).
const STEP_MAX: u32 = u32::MAX - 1;

/// A transaction, shared by its handle and its cursors.
#[derive(Debug)]
pub(crate) struct TxnCore {
    pub(crate) id: u64,
    pub(crate) engine: Kept<Engine>,
    pub(crate) options: TxnOptions,
    pub(crate) began_micros: u64,
    /// A cancellation that came before there was a locker to hand it to.
    pub(super) cancelled: Arc<AtomicBool>,
    /// The id it writes under, 0 for none; for monitoring, which must not wait for `state`.
    txn: AtomicU64,
    /// Messages written; for monitoring.
    messages: AtomicU64,
    /// Mirrors `TxnState::ended`, for cursors, which step without the latch.
    over: AtomicBool,
    lock_timeout: LockTimeout,
    state: Mutex<TxnState>,
}

/// How long it waits for a lock, in nanoseconds; may change while it is open.
#[derive(Debug)]
struct LockTimeout(AtomicU64);

impl LockTimeout {
    /// As the database says. One less is for ever.
    const DEFAULT: u64 = u64::MAX;

    fn new(limit: Option<Duration>) -> LockTimeout {
        LockTimeout(AtomicU64::new(LockTimeout::encode(limit)))
    }

    fn encode(limit: Option<Duration>) -> u64 {
        let forever = LockTimeout::DEFAULT - 1;
        limit.map_or(LockTimeout::DEFAULT, |limit| u64::try_from(limit.as_nanos()).unwrap_or(forever).min(forever))
    }

    fn set(&self, limit: Option<Duration>) {
        self.0.store(LockTimeout::encode(limit), Ordering::Relaxed);
    }

    fn get(&self, default: Duration) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            LockTimeout::DEFAULT => default,
            limit if limit == LockTimeout::DEFAULT - 1 => Duration::MAX,
            limit => Duration::from_nanos(limit),
        }
    }
}

/// What changes in a transaction's life.
#[derive(Debug, Default)]
pub(crate) struct TxnState {
    ended: bool,
    pub(crate) writer: Option<Writer>,
    snapshot: Option<Arc<Snapshot>>,
    pub(crate) statement: Statement,
    savepoints: Vec<Mark>,
    next_savepoint: u32,
    pub(crate) step: u32,
    /// No message that still counts was written in a later step than this.
    pub(crate) written: Option<u32>,
    /// Blobs have been written that no sync of the data file covers.
    pub(crate) blobs_unsynced: bool,
    /// It has deleted ranges, perhaps undone since.
    pub(crate) has_deleted_ranges: bool,
    pub(crate) catalog: CatalogChanges,
    pub(crate) failed_operation: Option<usize>,
}

impl TxnState {
    /// The number of the snapshot that it has taken for all of its life, if it has.
    pub(crate) fn held_snapshot(&self) -> Option<CommitNumber> {
        self.snapshot.as_ref().map(|snapshot| snapshot.number())
    }

    /// The number of the snapshot that plain reads see, where one was taken that they go on to see.
    pub(crate) fn read_snapshot(&self) -> Option<CommitNumber> {
        self.held_snapshot().or_else(|| self.statement.held_snapshot())
    }

    /// The step for a write about to be made; when it is to be `alone`, one that nothing was written in.
    pub(crate) fn step_to_write(&mut self, alone: bool) -> Result<u32> {
        let step = if alone { self.unwritten_step() } else { self.step };
        if step > STEP_MAX {
            return Err(Error::invalid(format!("too many steps in one transaction, steps_max={STEP_MAX}")));
        }
        self.step = step;
        Ok(step)
    }

    /// The current step if nothing was written in it, or the next one. There is one, because nothing is written in the last (X4).
    fn unwritten_step(&self) -> u32 {
        if self.written == Some(self.step) { self.step + 1 } else { self.step }
    }
}

/// What a transaction that writes or locks has.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) txn: TxnId,
    pub(crate) locker: Locker,
    /// It has put messages into the log.
    pub(crate) logged: bool,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    number: u32,
    /// First step after it.
    step: u32,
}

impl TxnCore {
    pub(crate) fn begin(engine: Kept<Engine>, options: TxnOptions) -> Result<Arc<TxnCore>> {
        engine.check_open()?;
        if !options.read_only
            && let Some(first) = engine.poison.get()
        {
            return Err(super::engine::poisoned(first));
        }
        engine.counters.here().begins.add(1);
        let core = Arc::new(TxnCore {
            id: engine.sessions.draw(),
            began_micros: engine.clock.micros(),
            engine,
            options,
            cancelled: Arc::new(AtomicBool::new(false)),
            txn: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            over: AtomicBool::new(false),
            lock_timeout: LockTimeout::new(options.lock_timeout),
            state: Mutex::new(TxnState::default()),
        });
        if options.consistent_snapshot {
            core.state.lock().snapshot = Some(Arc::new(core.engine.snapshots.acquire()));
        }
        core.engine.sessions.add(&core);
        Ok(core)
    }

    /// The id it writes under, if it has one.
    pub(crate) fn txn(&self) -> Option<TxnId> {
        Some(TxnId(self.txn.load(Ordering::Acquire))).filter(|txn| txn.0 != 0)
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    pub(crate) fn count_messages(&self, count: u64) {
        self.messages.fetch_add(count, Ordering::Relaxed);
    }

    /// Its state, while it is active and the database open.
    pub(crate) fn active(&self) -> Result<MutexGuard<'_, TxnState>> {
        self.engine.check_open()?;
        let state = self.state.lock();
        if state.ended {
            return Err(Error::new(ErrorKind::Closed, "transaction has ended"));
        }
        Ok(state)
    }

    /// Fails with `Closed` once it has ended or the database is closed.
    #[inline]
    pub(crate) fn check_live(&self) -> Result<()> {
        self.engine.check_open()?;
        if self.over.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "transaction has ended"));
        }
        Ok(())
    }

    /// As [`TxnCore::active`], for a call that writes.
    pub(crate) fn writing(&self) -> Result<MutexGuard<'_, TxnState>> {
        self.check_not_read_only()?;
        self.engine.check_writable()?;
        self.active()
    }

    /// As [`TxnCore::writing`], for a batch: what an earlier one failed at is forgotten, also when this one is refused.
    pub(crate) fn writing_batch(&self) -> Result<MutexGuard<'_, TxnState>> {
        let writing = self.writing().inspect_err(|_| self.state.lock().failed_operation = None);
        writing.map(|mut state| {
            state.failed_operation = None;
            state
        })
    }

    /// What it failed at; readable also after its end.
    pub(crate) fn failed_operation(&self) -> Option<usize> {
        self.state.lock().failed_operation
    }

    /// Its id and locker, drawn at the first call.
    pub(crate) fn writer<'s>(&self, state: &'s mut TxnState) -> &'s mut Writer {
        state.writer.get_or_insert_with(|| {
            let txn = self.engine.statuses.begin();
            let locker = self.engine.locks.labelled_locker(txn, self.id);
            // Sequentially consistent, as in `cancel`: one of the two sees what the other has stored.
            self.txn.store(txn.0, Ordering::SeqCst);
            if self.cancelled.load(Ordering::SeqCst) {
                locker.cancel();
            }
            Writer { txn, locker, logged: false }
        })
    }

    /// Ends the wait that it is in, for a lock or for room, or the next one, or a scan that passes over keys without rows.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        let txn = self.txn.load(Ordering::SeqCst);
        if txn != 0 {
            self.engine.locks.cancel(TxnId(txn));
        }
    }

    /// Forgets a cancellation that met no wait: it was meant for the statement before. One that came while a wait was ending may be
    /// known to the locks alone.
    pub(crate) fn forget_cancellation(&self, state: &TxnState) {
        let was_cancelled = self.cancelled.load(Ordering::Relaxed) && self.cancelled.swap(false, Ordering::SeqCst);
        if let Some(writer) = state.writer.as_ref().filter(|writer| was_cancelled || writer.locker.is_cancelled()) {
            writer.locker.clear_cancel();
            // That may have taken the next cancellation with it, which says here first that there is one.
            if self.cancelled.load(Ordering::SeqCst) {
                writer.locker.cancel();
            }
        }
    }

    /// The snapshot that a plain read uses now; `None` for the latest committed state.
    pub(crate) fn snapshot(&self, state: &mut TxnState) -> Option<Arc<Snapshot>> {
        match self.options.isolation {
            // A snapshot is serializable for who only reads.
            Isolation::Serializable if !self.options.read_only => None,
            Isolation::ReadUncommitted => None,
            Isolation::ReadCommitted => Some(state.statement.snapshot(|| self.engine.snapshots.acquire())),
            Isolation::RepeatableRead | Isolation::Serializable => {
                Some(state.snapshot.get_or_insert_with(|| Arc::new(self.engine.snapshots.acquire())).clone())
            }
        }
    }

    /// The snapshot of a cursor that sees what is committed; below REPEATABLE READ not that of plain reads.
    pub(crate) fn committed_snapshot(&self, state: &mut TxnState) -> Option<Arc<Snapshot>> {
        match self.options.isolation {
            Isolation::ReadUncommitted | Isolation::ReadCommitted => {
                Some(state.statement.walk_snapshot(|| self.engine.snapshots.acquire()))
            }
            _ => self.snapshot(state),
        }
    }

    /// The number of the snapshot that its writes must not overtake, where it asked for that.
    pub(crate) fn conflict_snapshot(&self, state: &mut TxnState) -> Option<CommitNumber> {
        let strict = self.options.first_updater_wins && self.options.isolation == Isolation::RepeatableRead;
        if strict { self.snapshot(state).map(|snapshot| snapshot.number()) } else { None }
    }

    /// From now on it waits so long for a lock; `None`: as the database says.
    pub(crate) fn set_lock_timeout(&self, limit: Option<Duration>) -> Result<()> {
        self.check_live()?;
        self.lock_timeout.set(limit);
        Ok(())
    }

    /// How a lock is waited for. [`Wait::SkipLocked`] is the caller's affair: it tries.
    pub(crate) fn lock_wait(&self, wait: Wait) -> lock::Wait {
        let timeout = |limit: Duration| match limit {
            Duration::MAX => lock::Wait::Forever,
            // Who does not wait is in no deadlock.
            Duration::ZERO => lock::Wait::NoWait,
            limit => lock::Wait::Timeout(limit),
        };
        match wait {
            Wait::Default => timeout(self.lock_timeout.get(self.engine.options.lock_timeout)),
            Wait::Timeout(limit) => timeout(limit),
            Wait::NoWait | Wait::SkipLocked => lock::Wait::NoWait,
        }
    }

    /// Takes note of how a lock request failed: who loses a deadlock is rolled back.
    pub(crate) fn lock_failed(&self, state: &mut TxnState, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Deadlock => {
                self.engine.counters.here().deadlocks.add(1);
                self.end_aborted(state);
            }
            ErrorKind::LockTimeout => self.engine.counters.here().lock_timeouts.add(1),
            ErrorKind::Cancelled => self.cancelled.store(false, Ordering::Release),
            _ => {}
        }
        error
    }

    /// Takes note of how a scan failed, other than by a lock, or a wait for room: the cancellation that it met is over.
    #[cold]
    pub(crate) fn scan_failed(&self, state: &TxnState, error: &Error) {
        if error.kind() == ErrorKind::Cancelled {
            self.forget_cancellation(state);
        }
    }

    /// As [`TxnCore::scan_failed`], for a step of a scan, which does not hold the state.
    #[cold]
    pub(crate) fn step_failed(&self, error: &Error) {
        self.engine.events.damage(error);
        self.scan_failed(&self.state.lock(), error);
    }

    // Savepoints.

    pub(crate) fn savepoint(&self) -> Result<Savepoint> {
        let mut state = self.active()?;
        let number = state.next_savepoint;
        // The last number is given to none: front ends may use it for "no mark".
        let Some(next) = number.checked_add(1) else {
            return Err(Error::invalid(format!("too many marks in one transaction, marks_max={number}")));
        };
        let step = state.unwritten_step();
        state.next_savepoint = next;
        state.step = step;
        state.savepoints.push(Mark { number, step });
        Ok(Savepoint(number))
    }

    pub(crate) fn rollback_to(&self, savepoint: Savepoint) -> Result<()> {
        let mut state = self.active()?;
        let at = find_mark(&state, savepoint)?;
        let from = state.savepoints[at].step;
        self.abort_steps(&mut state, from)?;
        state.savepoints.truncate(at + 1);
        Ok(())
    }

    pub(crate) fn release(&self, savepoint: Savepoint) -> Result<()> {
        let mut state = self.active()?;
        let at = find_mark(&state, savepoint)?;
        state.savepoints.truncate(at);
        Ok(())
    }

    /// Does several writes of which all are to be there or none. If they cannot be undone, the transaction ends without any effect.
    pub(crate) fn all_or_nothing<T>(&self, writes: impl FnOnce() -> Result<T>) -> Result<T> {
        let savepoint = self.savepoint()?;
        let written = writes();
        if written.is_err() && self.rollback_to(savepoint).is_err() {
            self.end_aborted(&mut self.state.lock());
        }
        // One that has ended with the failure has no savepoints left.
        let _ = self.release(savepoint);
        written
    }

    /// Declares everything written in steps from `from` on aborted. On failure nothing has changed.
    pub(crate) fn abort_steps(&self, state: &mut TxnState, from: u32) -> Result<()> {
        let to = state.step.min(STEP_MAX);
        let writer = state.writer.clone().filter(|_| state.written.is_some_and(|written| written >= from));
        if let Some(writer) = &writer {
            self.engine.past_full_log(0, || true, || self.engine.log_abort_steps(writer.txn, from, to))?;
            writer.locker.has_undone();
        }
        let undone = state.catalog.undo_from(from);
        self.engine.undo_catalog(&undone);
        if writer.is_none() {
            return Ok(());
        }
        state.step = to + 1;
        state.written = from.checked_sub(1);
        // Their steps ascend.
        for mark in state.savepoints.iter_mut().rev().take_while(|mark| mark.step >= from) {
            mark.step = to + 1;
        }
        Ok(())
    }

    // Ends.

    pub(crate) fn commit(&self) -> Result<()> {
        self.commit_with(self.options.durability)
    }

    pub(crate) fn commit_with(&self, durability: Durability) -> Result<()> {
        let mut state = self.active()?;
        let end = match state.writer.clone().filter(|writer| writer.logged) {
            None => {
                self.end_unwritten(&mut state);
                self.engine.counters.here().commits_read_only.add(1);
                return Ok(());
            }
            Some(writer) => {
                let started = self.engine.clock.micros();
                let end = self.engine.past_full_log(0, || true, || self.commit_written(&mut state, &writer));
                end.map(|end| (end, started))
            }
        };
        let (end, started) = match end {
            Ok(end) => end,
            Err(error) => {
                self.end_aborted(&mut state);
                return Err(error);
            }
        };
        drop(state);
        self.engine.wait_committed(end, durability, started)
    }

    fn commit_written(&self, state: &mut TxnState, writer: &Writer) -> Result<Lsn> {
        let engine = &self.engine;
        engine.check_writable()?;
        if state.blobs_unsynced {
            engine.store.sync()?;
        }
        let end = engine.commit_logged(writer.txn)?;
        self.end_committed(state, writer);
        Ok(end)
    }

    /// After the commit record: applies what others remember, gives the locks free, ends.
    pub(crate) fn end_committed(&self, state: &mut TxnState, writer: &Writer) {
        self.engine.apply_catalog(&std::mem::take(&mut state.catalog));
        writer.locker.release_all();
        self.engine.counters.here().commits.add(1);
        self.finish(state);
    }

    pub(crate) fn rollback(&self) -> Result<()> {
        let mut state = self.state.lock();
        if !state.ended {
            self.end_aborted(&mut state);
        }
        Ok(())
    }

    /// Ends it without its effects. Cannot fail: an abort that the log does not take is found by recovery.
    pub(crate) fn end_aborted(&self, state: &mut TxnState) {
        if state.ended {
            return;
        }
        let catalog = state.catalog.undo_from(0);
        self.engine.undo_catalog(&catalog);
        match state.writer.clone() {
            Some(writer) if writer.logged => {
                self.engine.abort(writer.txn);
                writer.locker.release_all();
                self.finish(state);
            }
            _ => self.end_unwritten(state),
        }
        self.engine.counters.here().rollbacks.add(1);
    }

    fn end_unwritten(&self, state: &mut TxnState) {
        if let Some(writer) = state.writer.clone() {
            self.engine.statuses.end_unwritten(writer.txn);
            writer.locker.release_all();
        }
        self.finish(state);
    }

    pub(crate) fn prepare(&self, xid: &[u8], durability: Durability) -> Result<()> {
        let mut state = self.writing()?;
        let prepared = self.prepare_written(&mut state, xid, durability);
        if prepared.is_err() {
            self.end_aborted(&mut state);
        }
        prepared
    }

    fn prepare_written(&self, state: &mut TxnState, xid: &[u8], durability: Durability) -> Result<()> {
        if state.blobs_unsynced {
            self.engine.store.sync()?;
        }
        let (writer, origin) = (self.writer(state).clone(), self.origin());
        let end =
            self.engine.past_full_log(0, || true, || self.engine.prepare(&writer, xid, origin, &mut state.catalog))?;
        self.finish(state);
        self.engine.wait_logged(end, durability)
    }

    fn finish(&self, state: &mut TxnState) {
        state.ended = true;
        self.over.store(true, Ordering::Release);
        state.snapshot = None;
        state.statement = Statement::default();
        state.writer = None;
        state.savepoints = Vec::new();
        self.engine.sessions.remove(self.id);
    }
}

fn find_mark(state: &TxnState, savepoint: Savepoint) -> Result<usize> {
    let found = state.savepoints.binary_search_by_key(&savepoint.0, |mark| mark.number);
    found.map_err(|_| Error::new(ErrorKind::NotFound, format!("no such savepoint, number={}", savepoint.0)))
}

impl Engine {
    /// Logs a commit and makes it visible; returns the end of its record.
    pub(crate) fn commit_logged(&self, txn: TxnId) -> Result<Lsn> {
        let log = self.log()?;
        let mut end = Lsn(0);
        let _gate = self.pass_gate()?;
        let committed = self.statuses.commit_with(txn, |number| {
            let appended = self.append_small(log, &Record::Commit { txn, number })?;
            end = appended.end;
            Ok(appended.lsn)
        });
        self.logged(committed)?;
        Ok(end)
    }

    /// Appends the record of a decision, and counts it.
    pub(super) fn append_small(&self, log: &Log, record: &Record<'_>) -> Result<Appended> {
        let mut bytes = Vec::with_capacity(32);
        record.encode(&mut bytes);
        let appended = log.append(&bytes)?;
        self.counters.here().log_records.add(1);
        self.counters.here().log_bytes.add(bytes.len() as u64);
        Ok(appended)
    }

    /// Waits as the durability asks, and times the commit.
    pub(crate) fn wait_committed(&self, end: Lsn, durability: Durability, started: u64) -> Result<()> {
        self.wait_logged(end, durability)?;
        self.counters.commit.record(self.clock.micros().saturating_sub(started));
        Ok(())
    }

    fn wait_logged(&self, end: Lsn, durability: Durability) -> Result<()> {
        let log = self.log()?;
        self.logged(match durability {
            Durability::Sync => log.wait_durable(end),
            Durability::Write => log.wait_written(end),
            Durability::None => Ok(()),
        })
    }

    /// Appends a small record, unless the database is closed; an error of the log is kept for others to meet and not reported here.
    fn append_or_ignore(&self, record: &Record<'_>) -> Result<Lsn> {
        if self.check_open().is_ok()
            && let Ok(log) = self.log()
        {
            let mut bytes = Vec::with_capacity(32);
            record.encode(&mut bytes);
            if let Ok(appended) = self.logged(log.append(&bytes)) {
                self.counters.here().log_records.add(1);
                return Ok(appended.lsn);
            }
        }
        Ok(Lsn(0))
    }

    /// Aborts a transaction that has put messages into the log and is not prepared: no record means aborted.
    pub(crate) fn abort(&self, txn: TxnId) {
        let _gate = self.gate.read();
        let memtable = self.tree.version_guard().active.id();
        // What has no record of its end is rolled back by a restart as well, so that this one is missing is no failure.
        let _ = self.statuses.abort_with(txn, memtable, || self.append_or_ignore(&Record::Abort { txn }));
    }

    fn log_abort_steps(&self, txn: TxnId, from: u32, to: u32) -> Result<()> {
        let log = self.log()?;
        let _gate = self.pass_gate()?;
        let memtable = self.tree.version_guard().active.id();
        let aborted = self.statuses.abort_steps_with(txn, from, to, memtable, || {
            let mut bytes = Vec::with_capacity(24);
            Record::AbortSteps { txn, from, to }.encode(&mut bytes);
            self.counters.here().log_records.add(1);
            log.append(&bytes).map(|appended| appended.lsn)
        });
        self.logged(aborted).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
