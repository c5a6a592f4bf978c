//! Checkpoints: seal, flush, publish; and what may be forgotten afterwards.
//!
//! A memtable is named by the first log position of its segment, so the oldest memtable that is not in the root
//! says where replay begins. A publication captures the root, then the transaction statuses, then the end of the log;
//! before its superblock is written the log is durable up to that end, which the superblock names: no log that recovery finds
//! later may end before.
//!
//! - K1: what a superblock refers to (messages in runs, statuses) was written by log records that are durable.
//!   Otherwise a transaction could survive a crash in half.
//! - K2: segments are recycled only below the replay start of the generation *before* the newest, so that losing the
//!   newest superblock loses nothing.
//! - K3: an aborted id is forgotten only when no run and no memtable that anybody still reads can hold it.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::checkpoint_times::{CheckpointCause, CheckpointSummary, CheckpointTimes};
use super::engine::Engine;
use super::report::RecoveryEstimate;
use crate::base::sync::Mutex;
use crate::base::{CommitNumber, ErrorKind, Lsn, Result, TxnId};
use crate::format::Retention;
use crate::memtable::{Level0, Memtable, SortedMemtable};
use crate::tree::PublishInput;

/// Replay speed assumed until one was measured, in bytes of log per second.
const REPLAY_BYTES_PER_S: u64 = 150 << 20;
/// What a restart costs without any log, in microseconds.
const RESTART_MICROS: u64 = 5_000;
/// Replays shorter than this say nothing about the speed, in bytes.
const REPLAY_MEASURED_MIN: u64 = 4 << 20;

/// How long after a publication another is made for the sake of space alone, in microseconds.
const IDLE_PUBLISH_MICROS: u64 = 2_000_000;
/// How often level 0 is emptied while the disk is full, and for some seconds after, in microseconds.
const FULL_CHECKPOINT_MICROS: u64 = 200_000;
/// How long after a publication another one is made then, in microseconds.
const FULL_PUBLISH_MICROS: u64 = 100_000;
/// How many of those follow a change of the tree.
const IDLE_PUBLICATIONS: u32 = 2;

/// A memtable that may be gone.
#[derive(Debug)]
enum WeakLevel0 {
    Active(Weak<Memtable>),
    Sorted(Weak<SortedMemtable>),
}

impl WeakLevel0 {
    fn is_gone(&self) -> bool {
        match self {
            WeakLevel0::Active(memtable) => memtable.strong_count() == 0,
            WeakLevel0::Sorted(memtable) => memtable.strong_count() == 0,
        }
    }
}

#[derive(Debug, Default)]
struct LedgerState {
    /// Replay starts of the newest generation and of the one before.
    newest_start: Lsn,
    previous_start: Lsn,
    /// Memtables that left level 0 or will, and that somebody may read, oldest first.
    past: VecDeque<(u64, WeakLevel0)>,
    checkpoint_micros: u64,
    sync_micros: u64,
    publish_micros: u64,
    /// Publications still worth making for the sake of space, and the version that they were counted from.
    idle_publications: u32,
    counted_version: u64,
    times: CheckpointTimes,
}

/// What checkpoints remember from one to the next.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Held from a publication to the release of the log that it makes needless, so that these follow each other (K2), and nothing
    /// is published or released once the database is closed.
    publishing: Mutex<()>,
    state: Mutex<LedgerState>,
    replay_bytes_per_s: u64,
    /// The beginning of the log behind the last seal, and the bytes of what it repeats of that before: what it is longer is new.
    repeated_end: AtomicU64,
}

impl Ledger {
    /// For a database whose newest superblock begins replay at `start`, which took `micros` for `bytes`.
    pub(crate) fn new(start: Lsn, sealed: &[Level0], bytes: u64, micros: u64, now: u64) -> Ledger {
        let mut state = LedgerState { newest_start: start, previous_start: start, ..LedgerState::default() };
        state.checkpoint_micros = now;
        state.sync_micros = now;
        state.past.extend(sealed.iter().rev().map(|level0| (level0.id(), weak(level0))));
        let measured = bytes >= REPLAY_MEASURED_MIN && micros > 0;
        let replay_bytes_per_s = if measured { bytes * 1_000_000 / micros } else { REPLAY_BYTES_PER_S };
        Ledger {
            publishing: Mutex::new(()),
            state: Mutex::new(state),
            replay_bytes_per_s: replay_bytes_per_s.max(1 << 20),
            repeated_end: AtomicU64::new(0),
        }
    }

    /// How long a restart takes that replays so many bytes.
    fn restart_micros(&self, bytes: u64) -> u64 {
        RESTART_MICROS + bytes * 1_000_000 / self.replay_bytes_per_s
    }

    /// The publication of this version, whose replay begins at `start`, is durable; returns below where the log is needed no more (K2).
    fn published(&self, version: u64, start: Lsn, now: u64) -> Lsn {
        let mut state = self.state.lock();
        state.previous_start = state.newest_start;
        state.newest_start = start;
        state.publish_micros = now;
        state.times.published(start.0, now);
        // One that began before the change that is counted from does nothing for its space.
        if version >= state.counted_version {
            state.idle_publications = state.idle_publications.saturating_sub(1);
        }
        state.previous_start
    }

    /// Whether the tree, which is at this version, is to be published for the sake of space alone: what a compaction replaced is free
    /// again two publications later, and no seal may come for a long time. `wait` is the time between publications.
    fn is_publication_due(&self, version: u64, wait: u64, now: u64) -> bool {
        let mut state = self.state.lock();
        if state.counted_version != version {
            state.counted_version = version;
            state.idle_publications = IDLE_PUBLICATIONS;
        }
        state.idle_publications > 0 && now.saturating_sub(state.publish_micros) >= wait
    }

    /// The memtables that somebody may still read, ascending, the active one last. `active` is asked before it is looked which left level
    /// 0: one that is sealed in between is among these, because it is entered there before another becomes active.
    fn memtables_in_use(&self, active: impl FnOnce() -> u64) -> Vec<u64> {
        let active = active();
        let mut state = self.state.lock();
        state.past.retain(|(_, memtable)| !memtable.is_gone());
        let past = state.past.iter().map(|(id, _)| *id);
        past.filter(|id| *id < active).chain([active]).collect()
    }

    /// Waits for the publication under way. Once the database is closed there is no other.
    pub(super) fn wait_published(&self) {
        drop(self.publishing.lock());
    }
}

fn weak(level0: &Level0) -> WeakLevel0 {
    match level0 {
        Level0::Active(memtable) => WeakLevel0::Active(Arc::downgrade(memtable)),
        Level0::Sorted(memtable) => WeakLevel0::Sorted(Arc::downgrade(memtable)),
    }
}

impl Engine {
    /// What compaction has to keep.
    pub(crate) fn retention(&self) -> Retention<'_> {
        self.snapshots.retention(self.statuses.as_ref())
    }

    /// Makes the active memtable a sealed one if it holds at least `bytes_min` bytes of messages; for a checkpoint of this cause.
    pub(crate) fn seal_active(&self, bytes_min: usize, cause: CheckpointCause) -> Result<bool> {
        let _switching = self.switching.lock();
        self.seal_switching(bytes_min, cause)
    }

    /// The same for who can go on as well without: false where somebody else is sealing it, or writes very many locks, which takes a while.
    pub(crate) fn try_seal_active(&self, bytes_min: usize, cause: CheckpointCause) -> Result<bool> {
        let Some(_switching) = self.switching.try_lock() else { return Ok(false) };
        self.seal_switching(bytes_min, cause)
    }

    /// The same by who holds `switching`.
    fn seal_switching(&self, bytes_min: usize, cause: CheckpointCause) -> Result<bool> {
        let log = self.log()?;
        let active = self.tree.version_guard().active.clone();
        // Transactions that only lock, and are prepared, leave no messages, but records.
        if active.bytes() < bytes_min || (active.is_empty() && (bytes_min > 0 || self.logged_since_seal() == 0)) {
            return Ok(false);
        }
        let is_later = self.is_prepared_logged_later(log);
        let prepared = if is_later { HashMap::new() } else { self.prepared_records()? };
        // Its memory is had while writers go on.
        let next = Memtable::new(0, &self.chunk_pool);
        let _gate = self.gate.write();
        self.check_open()?;
        // Others may have been prepared until the gate was had.
        let is_later = is_later || self.is_prepared_logged_later(log);
        let has_prepared = self.has_prepared_to_log(log)?;
        let start = self.logged(log.rotate(has_prepared))?;
        let guard = self.poison_on_panic();
        if is_later {
            self.tree.hold_memtables_before(start.0);
        } else {
            self.log_prepared_again(&prepared)?;
            self.tree.let_memtables_go();
        }
        self.note_repeated();
        let now = self.clock.micros();
        {
            let mut state = self.checkpoints.state.lock();
            state.past.push_back((active.id(), WeakLevel0::Active(Arc::downgrade(&active))));
            state.times.sealed(active.id(), cause, now);
        }
        self.tree.switch_active(Arc::new(next.renumbered(start.0)));
        guard.done();
        self.admission.sealed(now, active.bytes());
        self.wake.flush();
        Ok(true)
    }

    /// What the log ends with now, it will repeat behind the next seal.
    pub(crate) fn note_repeated(&self) {
        self.checkpoints.repeated_end.store(self.log_end().0, Ordering::Relaxed);
    }

    /// So much has been repeated later, behind other records.
    pub(crate) fn note_repeated_bytes(&self, bytes: u64) {
        self.checkpoints.repeated_end.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of the log that the next seal makes needless.
    fn logged_since_seal(&self) -> u64 {
        self.log_end().0.saturating_sub(self.checkpoints.repeated_end.load(Ordering::Relaxed))
    }

    /// Writes what the last seal has left for later, then the oldest sealed memtable into the tree, and publishes. False when there is
    /// none, or none that can be written just now.
    pub(crate) fn flush_step(&self) -> Result<bool> {
        let bytes = self.tree.version_guard().sealed.last().map(Level0::bytes);
        let Some(bytes) = bytes else { return Ok(false) };
        let _guard = self.poison_on_panic();
        let started = self.clock.micros();
        let written = self.log_prepared_later().and_then(|()| self.tree.seal_step(&self.retention()));
        if self.whole(self.sealed(written))?.is_none() {
            return Ok(false);
        }
        self.note_backed();
        self.admission.drained(bytes, self.clock.micros().saturating_sub(started));
        self.wake.progress();
        self.publish()?;
        Ok(true)
    }

    /// Makes the present root durable.
    pub(crate) fn publish(&self) -> Result<()> {
        let log = self.log()?;
        let (end, captured) = (Cell::new(Lsn(0)), Cell::new(0));
        let input = |version: &crate::tree::Version| {
            captured.set(version.number);
            let status_image = self.statuses.image();
            end.set(log.end_lsn());
            let oldest = version.sealed.last().map_or_else(|| version.active.id(), Level0::id);
            let mut extra = self.next_tree.load(Ordering::Relaxed).to_le_bytes().to_vec();
            self.grafts.encode(&mut extra);
            PublishInput {
                status_image,
                log_start: Lsn(oldest),
                log_end: end.get(),
                next_txn: TxnId(0),
                next_commit: CommitNumber(0),
                extra,
            }
        };
        {
            let _publishing = self.checkpoints.publishing.lock();
            // Before the latch goes.
            let _guard = self.poison_on_panic();
            self.check_writable()?;
            let ready = || {
                self.logged(log.wait_durable(end.get()))?;
                self.check_writable()
            };
            let published = self.whole(self.tree.publish(input, ready))?;
            self.counters.here().publications.add(1);
            let release = self.checkpoints.published(captured.get(), published.log_start, self.clock.micros());
            // The next publication releases what this one could not.
            self.logged(log.release(release)).or_else(|error| if error.is_passing() { Ok(()) } else { Err(error) })?;
        }
        self.keep_compactions_possible();
        self.forget_unread();
        Ok(())
    }

    fn memtables_in_use(&self) -> Vec<u64> {
        self.checkpoints.memtables_in_use(|| self.tree.version_guard().active.id())
    }

    /// Tells the status table which memtables nobody reads any more (K3).
    pub(crate) fn forget_unread(&self) {
        if let Some(oldest) = self.memtables_in_use().first() {
            self.statuses.memtables_flushed_below(*oldest);
        }
    }

    /// Lets memory of the states of transactions go that nobody needs.
    pub(crate) fn forget_states(&self) {
        self.statuses.advance(self.snapshots.horizon(), || self.memtables_in_use());
    }

    /// Brings everything written so far into the tree and publishes it.
    pub(crate) fn checkpoint(&self, cause: CheckpointCause) -> Result<()> {
        self.check_writable()?;
        self.begin_once()?;
        self.count_checkpoint(cause);
        match self.seal_active(0, cause) {
            // What is sealed already gives segments of the log back.
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.write_sealed()?;
                self.publish()?;
                self.publish()?;
                self.seal_active(0, cause)?;
            }
            result => {
                result?;
            }
        }
        match self.write_sealed() {
            // What is lacking may be had from what waits for the next publications: replaced extents, and old segments of the log.
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.publish()?;
                self.publish()?;
                self.write_sealed()?;
            }
            result => result?,
        }
        self.publish()
    }

    /// Begins a checkpoint, which is over when what is sealed has been written; false while the one before is not.
    pub(crate) fn begin_checkpoint(&self, cause: CheckpointCause) -> Result<bool> {
        if !self.tree.version_guard().sealed.is_empty() {
            return Ok(false);
        }
        self.count_checkpoint(cause);
        self.seal_active(0, cause)
    }

    fn count_checkpoint(&self, cause: CheckpointCause) {
        let now = self.clock.micros();
        let mut state = self.checkpoints.state.lock();
        state.checkpoint_micros = now;
        state.times.begin(cause, now);
    }

    /// A writer has filled level 0 and sealed it. The period goes on: what a checkpoint by time is for is what has been waiting for longer.
    pub(crate) fn count_full(&self) {
        self.checkpoints.state.lock().times.begin(CheckpointCause::Size, self.clock.micros());
    }

    /// How often, and how long.
    pub(crate) fn checkpoint_summary(&self, cause: CheckpointCause) -> CheckpointSummary {
        self.checkpoints.state.lock().times.summary(cause, self.clock.micros())
    }

    /// Brings all sealed memtables into the tree.
    fn write_sealed(&self) -> Result<()> {
        let active = self.tree.version_guard().active.id();
        while self.tree.version_guard().sealed.last().is_some_and(|oldest| oldest.id() < active) {
            self.check_writable()?;
            if !self.flush_step()? && !self.step_by_hand()? {
                self.wake.wait_for_progress();
            }
        }
        Ok(())
    }

    /// How long a restart would take now.
    pub(crate) fn estimated_recovery(&self) -> RecoveryEstimate {
        let bytes = self.log_end().0.saturating_sub(self.checkpoints.state.lock().newest_start.0);
        let version = self.tree.version_guard();
        let messages = version.active.messages() + version.sealed.iter().map(Level0::messages).sum::<u64>();
        RecoveryEstimate { bytes, messages, micros: self.checkpoints.restart_micros(bytes) }
    }

    /// How long a restart would take now, but for what a checkpoint would only write down again.
    fn estimated_avoidable_micros(&self) -> u64 {
        let active = self.tree.version_guard().active.id();
        let repeated = self.checkpoints.repeated_end.load(Ordering::Relaxed).saturating_sub(active);
        let repeated_again = repeated.min(self.prepared.bytes() as u64);
        let bytes = self.log_end().0.saturating_sub(self.checkpoints.state.lock().newest_start.0);
        self.checkpoints.restart_micros(bytes.saturating_sub(repeated_again))
    }

    /// Begins the checkpoint that time or the recovery target ask for; says whether one is due.
    pub(crate) fn due_checkpoint(&self) -> Option<CheckpointCause> {
        let version = self.tree.version_guard();
        let logged = self.logged_since_seal();
        if version.active.is_empty() && logged == 0 {
            return None;
        }
        let interval = self.checkpoint_interval_ms.load(Ordering::Relaxed).saturating_mul(1000);
        let since = self.clock.micros().saturating_sub(self.checkpoints.state.lock().checkpoint_micros);
        if interval > 0 && since >= interval {
            return Some(CheckpointCause::Time);
        }
        // What was deleted makes space when it is in the tree, and the log when it is given back.
        if self.was_disk_full_lately() && since >= FULL_CHECKPOINT_MICROS {
            return Some(CheckpointCause::Size);
        }
        let target = self.recovery_target_ms.load(Ordering::Relaxed).saturating_mul(1000);
        let bytes = version.active.bytes().max(logged as usize);
        let worth_it = bytes >= self.level0_bytes() / 8 && version.sealed.is_empty();
        if target > 0 && worth_it && self.estimated_avoidable_micros() > target.max(2 * RESTART_MICROS) {
            return Some(CheckpointCause::Target);
        }
        None
    }

    /// Whether to publish for the sake of space alone.
    pub(crate) fn due_publication(&self) -> bool {
        let wait = if self.was_disk_full_lately() { FULL_PUBLISH_MICROS } else { IDLE_PUBLISH_MICROS };
        self.checkpoints.is_publication_due(self.tree.version_guard().number, wait, self.clock.micros())
    }

    /// When a root was made durable last, on the database's clock, in microseconds.
    pub(crate) fn last_publication(&self) -> u64 {
        self.checkpoints.state.lock().publish_micros
    }

    /// How long it is until the periodic sync of the log is due; `None` where there is no such period.
    pub(crate) fn until_log_sync(&self) -> Option<Duration> {
        let period = self.log_sync_period_ms.load(Ordering::Relaxed).saturating_mul(1000);
        let since = self.clock.micros().saturating_sub(self.checkpoints.state.lock().sync_micros);
        (period > 0).then(|| Duration::from_micros(period.saturating_sub(since)))
    }

    /// Whether the periodic sync of the log is due; the caller then does it.
    pub(crate) fn due_log_sync(&self) -> bool {
        let is_due = self.until_log_sync().is_some_and(|left| left.is_zero());
        if is_due {
            self.checkpoints.state.lock().sync_micros = self.clock.micros();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Error;
    use crate::base::memory::MemoryBudget;
    use crate::base::random::Random;
    use crate::db::database::Database;
    use crate::db::options::{Durability, LockMode, Options, TreeOptions, TxnOptions, Wait};
    use crate::db::prepared::LoggedPrepare;
    use crate::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};
    use crate::lock::{HeldLock, Mode};
    use crate::memtable::ChunkPool;
    use crate::txn::Prepared;

    /// Poisoned before it begins, and while it waits for the log's sync: by another thread, which panicked or met what is fatal.
    #[test]
    fn a_poisoned_database_publishes_nothing() {
        let kind = |result: Result<()>| result.map_err(|error| error.kind());
        for while_it_waits in [false, true] {
            let (memory, plan) = (MemoryStorage::new(), FaultPlan::new());
            let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(Arc::new(memory), plan.clone()));
            let options = Options::new().create_if_missing(true).storage(Some(storage)).manual_background(true);
            let db = Database::open("/db", options.memory_bytes(8 << 20)).expect("opens");
            let tree = db.create_tree("t", &TreeOptions::default()).expect("creates");
            db.checkpoint().expect("works");
            let wanted = TxnOptions { durability: Durability::None, ..TxnOptions::default() };
            let txn = db.begin(wanted).expect("begins");
            txn.put(&tree, b"key", b"value").expect("puts");
            txn.commit().expect("commits");
            let (engine, generation) = (db.engine(), db.statistics().expect("open").generation);
            let poison = || kind(engine.whole(Err(Error::internal("found by another thread"))));
            if while_it_waits {
                plan.add(FaultRule::once(CallClass::Sync, 1, Fault::Hold).on("log"));
                std::thread::scope(|scope| {
                    let publishing = scope.spawn(|| kind(engine.publish()));
                    let held = plan.wait_held();
                    assert_eq!(poison(), Err(ErrorKind::Poisoned));
                    drop(held);
                    assert_eq!(publishing.join().expect("no panic"), Err(ErrorKind::Poisoned));
                });
            } else {
                assert_eq!(poison(), Err(ErrorKind::Poisoned));
                assert_eq!(kind(engine.publish()), Err(ErrorKind::Poisoned));
            }
            assert_eq!(db.statistics().expect("open").generation, generation, "while_it_waits={while_it_waits}");
        }
    }

    /// They came after it had looked how many there are.
    #[test]
    fn a_seal_that_has_waited_for_the_gate_leaves_very_many_locks_for_later() -> Result<()> {
        const XID: &[u8] = b"xid";
        let options = Options::new().create_if_missing(true).storage(Some(Arc::new(MemoryStorage::new())));
        let db = Database::open("/db", options.manual_background(true).memory_bytes(8 << 20))?;
        let (engine, tree) = (db.engine(), db.create_tree("t", &TreeOptions::default())?);
        let txn = db.begin(TxnOptions::default())?;
        txn.put(&tree, b"key", b"value")?;
        txn.prepare(XID)?;
        let prepared = Prepared { txn: db.prepared()?[0].txn, xid: XID.to_vec() };
        let lock = |row: u32| HeldLock {
            tree: tree.id(),
            low: [&row.to_be_bytes()[..], &[7; 1000]].concat(),
            high: None,
            mode: Mode::Exclusive,
        };
        let locks: Vec<_> = (0..4_000).map(lock).collect();
        let gate = engine.gate.read();
        std::thread::scope(|scope| {
            let sealing = scope.spawn(|| engine.seal_active(0, CheckpointCause::Size));
            while engine.gate.try_read().is_some() {
                std::thread::yield_now();
            }
            engine.prepared.recovered(&prepared, &LoggedPrepare { origin: None, locks }, 0);
            drop(gate);
            assert!(sealing.join().expect("no panic").expect("seals"));
        });
        assert!(engine.tree.holds_memtables(), "they were written while everybody waited");
        db.commit_prepared(XID)?;
        db.close()
    }

    #[test]
    fn the_recovery_target_asks_for_no_checkpoint_that_would_only_repeat_the_locks_of_prepared_transactions()
    -> Result<()> {
        let options = Options::new().create_if_missing(true).storage(Some(Arc::new(MemoryStorage::new())));
        let options = options.manual_background(true).memory_bytes(32 << 20).level0_bytes(4 << 20);
        let db = Database::open("/db", options.checkpoint_interval_ms(0).recovery_target_ms(1))?;
        let (engine, tree) = (db.engine(), db.create_tree("t", &TreeOptions::default())?);
        // Others have locks between these, or they would become a few ranges.
        let (between, txn) = (db.begin(TxnOptions::default())?, db.begin(TxnOptions::default())?);
        for row in 0..3_000u64 {
            let key = Random(row).bytes(500);
            between.get_locked(&tree, &[&key[..], b"+"].concat(), LockMode::Exclusive, Wait::NoWait)?;
            txn.put(&tree, &key, b"")?;
        }
        txn.prepare(b"xid")?;
        drop(between);
        db.checkpoint()?;
        let target = engine.recovery_target_ms.load(Ordering::Relaxed) * 1000;
        assert!(
            engine.estimated_recovery().micros > target.max(2 * RESTART_MICROS),
            "{:?}",
            engine.estimated_recovery()
        );
        let value = Random(0).bytes(10_000);
        let put = |rows: u32| (0..rows).try_for_each(|row| db.put(&tree, &row.to_be_bytes(), &value));
        put(60)?;
        assert!(engine.logged_since_seal() >= (engine.level0_bytes() / 8) as u64);
        assert_eq!(engine.due_checkpoint(), None);
        put(60)?;
        assert_eq!(engine.due_checkpoint(), Some(CheckpointCause::Target), "of what is new it can be rid");
        db.checkpoint()?;
        db.rollback_prepared(b"xid")?;
        put(60)?;
        assert_eq!(engine.due_checkpoint(), Some(CheckpointCause::Target), "the locks are no more");
        db.close()
    }

    #[test]
    fn a_checkpoint_that_lacks_space_goes_on_with_what_waits_for_the_next_publications() -> Result<()> {
        let plan = FaultPlan::new();
        let storage = FaultStorage::new(Arc::new(MemoryStorage::new()), plan.clone());
        let options = Options::new().create_if_missing(true).storage(Some(Arc::new(storage)));
        let db = Database::open("/db", options.manual_background(true).checkpoint_interval_ms(0))?;
        let tree = db.create_tree("t", &TreeOptions::default())?;
        db.put(&tree, b"key", b"value")?;
        let generation = db.statistics()?.generation;
        plan.add(FaultRule::once(CallClass::Write, 1, Fault::NoSpace).on("data.frond"));
        db.checkpoint()?;
        let statistics = db.statistics()?;
        assert!(statistics.sealed_memtables == 0 && statistics.generation >= generation + 3, "{statistics:?}");
        db.close()
    }

    #[test]
    fn what_is_sealed_while_it_is_looked_may_be_read() {
        let budget = MemoryBudget::new(8 << 20);
        let ledger = Ledger::new(Lsn(0), &[], 0, 0, 0);
        let sealed = Arc::new(Memtable::new(64, &ChunkPool::new(&budget)));
        let seal = || {
            let past = (sealed.id(), WeakLevel0::Active(Arc::downgrade(&sealed)));
            ledger.state.lock().past.push_back(past);
            128
        };
        assert_eq!(ledger.memtables_in_use(seal), [sealed.id(), 128]);
        // As it was before it was sealed.
        assert_eq!(ledger.memtables_in_use(|| sealed.id()), [sealed.id()]);
        drop(sealed);
        assert_eq!(ledger.memtables_in_use(|| 128), [128]);
    }

    #[test]
    fn a_publication_counts_for_what_was_changed_before_it_began() {
        let ledger = Ledger::new(Lsn(0), &[], 0, 0, 0);
        let is_due = |version, now| ledger.is_publication_due(version, 10, now);
        assert!(is_due(1, 10));
        // The second version is installed while the first is published.
        assert!(is_due(2, 10));
        ledger.published(1, Lsn(0), 20);
        for now in [30, 40] {
            assert!(!is_due(2, now - 1) && is_due(2, now), "two publications have the change, now={now}");
            ledger.published(2, Lsn(0), now);
        }
        assert!(!is_due(2, 1000));
        assert!(is_due(3, 1000));
        ledger.published(4, Lsn(0), 1000);
        ledger.published(4, Lsn(0), 1010);
        assert!(!is_due(3, 2000), "a later version has the change as well");
    }
}
