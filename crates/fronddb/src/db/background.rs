//! The only place that starts threads, and the order in which background work is done.
//!
//! | thread | does |
//! |---|---|
//! | `frond-flush` | seals memtables into the tree and publishes; the work of the next as well when `background_threads` is 1 |
//! | `frond-work-N` | flushes and compactions, the most urgent first, then cleans up after bulk loads, snapshots and rollbacks, then what readers would have flushed; `background_threads` less one of them |
//! | `frond-tick` | prepares log segments and memory of level 0, begins checkpoints and publishes when that is due, forgets, shrinks, warms the cache |
//! | `frond-sync` | syncs the log by its period, whatever the others wait for |
//! | `frond-read-N` | reads what cursors ask for before they need it ([`crate::store::Store::ask`]) |
//!
//! The work itself is in steps that any thread may call. In manual mode no thread exists: [`Engine::step_background`]
//! does one step of all of it, in a fixed order, so that a test is deterministic.
//!
//! # Failure
//!
//! - B1: a step that met a full disk is tried again after a pause, which progress of others ends and their failures do not. It keeps no other step
//!   from being done.
//! - B2: a step that met data which is damaged, of a newer version, or that the disk does not give back, is tried again after a pause, and what it
//!   could not do stays undone; reads of other trees go on. So is one whose read failed for another reason, for want of memory say, or that could not
//!   prepare or recycle a segment of the log, or get room in the data file: it changed nothing. Free space that cannot be given back stays where it is,
//!   and nothing waits for that. None of this keeps `frond-tick` from the rest of what it does.
//! - B3: any other failure, and a panic, poisons, in whichever thread the step runs;
//! - B4: what goes wrong in a read for a cursor is told to that cursor, when it needs what was to be read, and to nobody else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::checkpoint_times::CheckpointCause;
use super::engine::Engine;
use crate::base::sync::{Condvar, Mutex};
use crate::base::{Error, ErrorKind, Result};
use crate::store::{ShrinkLimits, Shrunk};
use crate::tree::rent::Paid;

/// Urgency at which flushes and compactions begin.
const WORK_THRESHOLD: f32 = 1.0;
/// How long an idle thread sleeps at most.
const IDLE: Duration = Duration::from_millis(200);
/// How long a thread pauses after a failure that may pass, unless there is progress.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// How often `frond-tick` looks around.
const TICK: Duration = Duration::from_millis(20);
/// Threads that read for cursors. One that finds none free reads for itself.
const READERS: usize = 2;
/// Locks of ended transactions freed in one step.
const SWEEP_LOCKS: usize = 4096;

#[derive(Debug, Default)]
struct WakeState {
    stop: bool,
    /// Counts what is announced, so that nothing announced before a wait is missed.
    announced: u64,
}

/// How threads and writers wait for each other.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    state: Mutex<WakeState>,
    flush: Condvar,
    progress: Condvar,
}

impl Wake {
    /// There is a memtable to write.
    pub(crate) fn flush(&self) {
        self.state.lock().announced += 1;
        self.flush.notify_all();
    }

    /// Something was done that others may wait for.
    pub(crate) fn progress(&self) {
        self.state.lock().announced += 1;
        self.progress.notify_all();
        self.flush.notify_all();
    }

    /// Something failed: who waits for progress should look whether to go on with that. This wakes no thread: of two that lack space each would
    /// end the other's pause (B1).
    fn failed(&self) {
        self.progress.notify_all();
    }

    /// Everybody should look at the flags of the engine.
    pub(crate) fn everybody(&self) {
        self.flush();
        self.progress();
    }

    fn stop(&self) {
        self.state.lock().stop = true;
        self.everybody();
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// Waits a moment for the next progress.
    pub(crate) fn wait_for_progress(&self) {
        let mut state = self.state.lock();
        self.progress.wait_for(&mut state, Duration::from_millis(10));
    }

    /// Waits for `limit`, or until progress has made it needless.
    pub(crate) fn pause(&self, limit: Duration, is_over: impl Fn() -> bool) {
        let deadline = Instant::now() + limit;
        let mut seen = self.announced();
        while !is_over() {
            let mut state = self.state.lock();
            while state.announced == seen {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                self.progress.wait_for(&mut state, left);
            }
            seen = state.announced;
        }
    }

    /// What has been announced so far.
    fn announced(&self) -> u64 {
        self.state.lock().announced
    }

    /// Waits for work when none was found; not at all when something was announced after `since`, before it was looked for.
    fn wait_for_work(&self, since: u64, limit: Duration) {
        let mut state = self.state.lock();
        if !state.stop && state.announced == since {
            self.flush.wait_for(&mut state, limit);
        }
    }

    /// Waits for the next announcement.
    fn rest(&self, limit: Duration) {
        self.wait_for_work(self.announced(), limit);
    }
}

/// The threads of an open database.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    /// Starts the threads; those that read alone in a database that takes no writes. On failure none is left.
    pub(crate) fn start(engine: &Arc<Engine>) -> Result<Threads> {
        let threads = Threads::default();
        if !engine.options.manual_background
            && let Err(error) = threads.start_all(engine)
        {
            threads.stop(engine);
            return Err(error);
        }
        Ok(threads)
    }

    fn start_all(&self, engine: &Arc<Engine>) -> Result<()> {
        for number in 1..=READERS {
            self.spawn(engine, format!("frond-read-{number}"), Engine::serve_cursors)?;
        }
        if engine.log.is_none() {
            return Ok(());
        }
        self.spawn(engine, "frond-tick".to_owned(), |engine| {
            if !engine.tick()? {
                engine.wake.rest(TICK);
            }
            Ok(())
        })?;
        self.spawn(engine, "frond-sync".to_owned(), |engine| {
            engine.sync_by_period()?;
            engine.wake.rest(engine.until_log_sync().map_or(IDLE, |left| left.min(IDLE)));
            Ok(())
        })?;
        let movers = engine.options.background_threads;
        let flush = if movers == 1 { Engine::move_anything } else { Engine::move_level0 };
        self.spawn(engine, "frond-flush".to_owned(), flush)?;
        for number in 1..movers {
            self.spawn(engine, format!("frond-work-{number}"), Engine::move_down)?;
        }
        Ok(())
    }

    fn spawn(&self, engine: &Arc<Engine>, name: String, step: fn(&Engine) -> Result<()>) -> Result<()> {
        let engine = engine.clone();
        let run = move || {
            let body = AssertUnwindSafe(|| engine.run(step));
            if catch_unwind(body).is_err() {
                engine.poison(&Error::internal("panic in a background thread"));
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(run);
        self.0.lock().push(thread.map_err(|error| Error::io("start a background thread", error))?);
        Ok(())
    }

    /// Ends the threads and waits for them.
    pub(crate) fn stop(&self, engine: &Engine) {
        engine.wake.stop();
        engine.store.stop_readers();
        let threads = std::mem::take(&mut *self.0.lock());
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() {
                // A panic in the thread has poisoned the database already.
                let _ = thread.join();
            }
        }
    }
}

impl Engine {
    /// Runs `step` until the threads are stopped or the database is poisoned.
    fn run(&self, step: fn(&Engine) -> Result<()>) {
        while !self.wake.is_stopped() && self.poison.get().is_none() {
            match step(self) {
                Ok(()) => {}
                Err(error) if self.may_pass(&error) => self.wake.rest(PAUSE),
                Err(error) => {
                    self.poison(&error);
                }
            }
        }
    }

    /// Whether background work may be tried again after this failure (B1 to B3).
    fn may_pass(&self, error: &Error) -> bool {
        match error.kind() {
            _ if error.is_unreadable() => {
                self.events.damage(error);
                true
            }
            ErrorKind::NoSpace => {
                self.work_lacked_space(error);
                self.wake.failed();
                true
            }
            ErrorKind::Closed => true,
            _ if error.is_passing() => {
                self.events.work_failed(self.clock.micros(), error);
                true
            }
            _ => false,
        }
    }

    /// As [`Engine::begin_once`], by who seals: what keeps it from that, writers may be waiting for.
    fn begin_to_seal(&self) -> Result<()> {
        self.begin_once().or_else(|error| self.sealed(Err::<Option<()>, _>(error)).map(drop))
    }

    /// The turn of the thread that seals.
    fn move_level0(&self) -> Result<()> {
        self.begin_to_seal()?;
        let since = self.wake.announced();
        if !self.flush_step()? {
            self.wake.wait_for_work(since, IDLE);
        }
        Ok(())
    }

    /// The turn of a thread that flushes and compacts.
    fn move_down(&self) -> Result<()> {
        self.begin_once()?;
        self.move_down_after(None)
    }

    /// The same after something else has lacked space: what lacks space must not keep from their turn those that make some.
    fn move_down_after(&self, lack: Option<Error>) -> Result<()> {
        let since = self.wake.announced();
        let (worked, lack) = match self.move_down_step(self.work_threshold()) {
            Err(error) if error.kind() == ErrorKind::NoSpace => (false, lack.or(Some(error))),
            worked => (worked?, lack),
        };
        if worked
            || self.clean_grafts_step()?
            || self.clean_at_rest()?
            || (lack.is_none() && self.work_for_readers()?)
        {
            if self.is_disk_full() {
                // What one step has brought down a level, others bring on.
                if lack.is_none() && !worked {
                    self.space_was_found();
                }
                self.publish()?;
            }
            self.wake.progress();
        } else if let Some(error) = lack {
            return Err(error);
        } else {
            self.wake.wait_for_work(since, IDLE);
        }
        Ok(())
    }

    /// Urgency from which on flushes and compactions are done: on a full disk any, because they make space (F3 of
    /// [`super::full_disk`]).
    fn work_threshold(&self) -> f32 {
        if self.is_disk_full() { 0.0 } else { WORK_THRESHOLD }
    }

    /// A compaction of what was left over, and a rest for as long again, unless its space is needed.
    fn clean_at_rest(&self) -> Result<bool> {
        let began = self.clock.micros();
        let done = self.clean_leftovers_step()?;
        if done && !self.is_disk_full() {
            self.wake.rest(Duration::from_micros(self.clock.micros().saturating_sub(began)));
        }
        Ok(done)
    }

    /// What readers have paid for; where processors are idle, in part.
    fn work_for_readers(&self) -> Result<bool> {
        if !self.tree.has_rents() {
            return Ok(false);
        }
        let began = self.clock.micros();
        let are_idle = self.processors.are_idle(began);
        let done = self.tree.flush_for_reads(&self.retention(), are_idle)?;
        let took = self.clock.micros().saturating_sub(began);
        self.processors.count_own(took);
        if done == Some(Paid::Part) {
            // For as long again the readers have the machine's memory and caches to themselves, unless there is other work. Those that
            // have paid lose more by waiting.
            self.wake.rest(Duration::from_micros(took));
        }
        Ok(done.is_some())
    }

    /// The turn of a thread that is alone: level 0 comes first, because writers wait for it.
    fn move_anything(&self) -> Result<()> {
        self.begin_to_seal()?;
        match self.flush_step() {
            Ok(true) => Ok(()),
            Ok(false) => self.move_down(),
            // What moves down, or is cleaned up, may make the space that is lacking (B1).
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.work_lacked_space(&error);
                self.move_down_after(Some(error))
            }
            Err(error) => Err(error),
        }
    }

    /// The turn of a thread that reads for cursors.
    fn serve_cursors(&self) -> Result<()> {
        self.store.serve_ask();
        Ok(())
    }

    /// What has to be done now and then, besides moving messages down. True when it is to be done again at once.
    fn tick(&self) -> Result<bool> {
        self.begin_once()?;
        // Told last: what is due may be what makes it pass.
        let tended = self.tend();
        self.chunk_pool.prepare();
        let warms_on = self.warm_step();
        // The rest of it is for the thread that seals.
        let begun = self.due_checkpoint().map_or(Ok(None), |cause| Ok(self.begin_checkpoint(cause)?.then_some(cause)));
        // Where none could begin, what waits for a publication may be the space that is lacking for the one before.
        if !matches!(begun, Ok(Some(_))) && self.due_publication() {
            self.publish()?;
        }
        if begun? == Some(CheckpointCause::Time) {
            self.keep_hot();
        }
        tended.map(|_| warms_on)
    }

    /// The first background work after opening: what opening need not wait for.
    /// Nobody moves messages before it is done, because runs are written with the codecs of their trees.
    pub(crate) fn begin_once(&self) -> Result<()> {
        let mut begun = self.begun.lock();
        if !*begun {
            self.load_codecs()?;
            self.keep_segment_for_recovered()?;
            self.keep_report();
            self.recall_hot();
            *begun = true;
        }
        Ok(())
    }

    /// Syncs the log when its period is over.
    fn sync_by_period(&self) -> Result<()> {
        match &self.log {
            Some(log) if self.due_log_sync() => self.logged(log.sync()).map(drop),
            _ => Ok(()),
        }
    }

    /// Log segments, locks, statuses, space: a bounded piece of each, whatever becomes of the others; true when something was done.
    fn tend(&self) -> Result<bool> {
        let kept = self.log.as_ref().map_or(Ok(false), |log| self.but_for_space(self.keep_space(log)));
        let mut more = self.locks.sweep_step(SWEEP_LOCKS);
        more |= self.tree.release_some();
        self.forget_states();
        self.forget_unread();
        let limits = ShrinkLimits { small_holes: self.has_been_full(), ..ShrinkLimits::default() };
        let shrunk = self.but_for_space(self.shrink_step(limits).map(|shrunk| !shrunk.is_done));
        self.map_memory.lock().set(self.store.map_bytes() + self.statuses.memory_bytes());
        self.cache.set_data_bytes(self.store.data_bytes());
        self.cache.trim();
        more |= kept?;
        Ok(shrunk? || more)
    }

    /// Gives free space back, and tells of what could not be.
    pub(crate) fn shrink_step(&self, limits: ShrinkLimits) -> Result<Shrunk> {
        let shrunk = self.store.shrink_step(limits)?;
        if let Some(error) = &shrunk.failure {
            self.events.shrink_failed(self.clock.micros(), error);
        }
        Ok(shrunk)
    }

    /// One step of any background work in this thread; false when there is none.
    pub(crate) fn step_background(&self) -> Result<bool> {
        self.check_writable()?;
        let _guard = self.poison_on_panic();
        let stepped = self.step_any();
        stepped.map_err(|error| if self.may_pass(&error) { error } else { self.poison(&error) })
    }

    fn step_any(&self) -> Result<bool> {
        self.begin_once()?;
        let is_full = self.is_disk_full();
        // On a full disk it may find, or give back, the space that all else lacks.
        let tended = is_full.then(|| self.tend());
        let mut lack = None;
        let mut is_done = |outcome: Result<bool>| match outcome {
            // Told last: what is due may be what makes it pass (B1).
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                lack.get_or_insert(error);
                Ok(false)
            }
            outcome => outcome,
        };
        if is_done(self.flush_step())? {
            return Ok(true);
        }
        let work = || self.but_for_space(self.move_down_step(self.work_threshold()));
        let publish = || self.publish().map(|()| true);
        if is_full {
            let stepped = self.move_down_step(self.work_threshold()).inspect(|worked| {
                if !worked {
                    self.space_was_found();
                }
            });
            let worked = self.but_for_space(stepped)?;
            if (worked || self.due_publication()) && is_done(publish())? {
                return Ok(true);
            }
        }
        if let Some(cause) = self.due_checkpoint()
            && is_done(self.checkpoint(cause).map(|()| true))?
        {
            return Ok(true);
        }
        let for_readers = || self.tree.flush_for_reads(&self.retention(), false).map(|done| done.is_some());
        let has_worked =
            (!is_full && work()?) || self.clean_grafts_step()? || self.clean_leftovers_step()? || for_readers()?;
        if has_worked && is_done(publish())? {
            return Ok(true);
        }
        self.sync_by_period()?;
        let tended = tended.unwrap_or_else(|| self.tend());
        lack.map_or(tended, Err)
    }

    /// In manual mode, a step on behalf of who cannot go on without it; otherwise false.
    pub(crate) fn step_by_hand(&self) -> Result<bool> {
        if self.options.manual_background { self.step_background() } else { Ok(false) }
    }

    /// Waits until nothing is left to do in the background.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        loop {
            self.check_writable()?;
            if self.options.manual_background {
                if !self.step_background()? {
                    return Ok(());
                }
                continue;
            }
            let debt = self.tree.debt();
            if debt.sealed == 0 && debt.urgency < WORK_THRESHOLD && !self.has_grafts_to_clean() {
                self.but_for_space(self.back_ahead(true))?;
                let shrink = || self.shrink_step(ShrinkLimits::default()).map(|shrunk| !shrunk.is_done);
                while self.but_for_space(shrink())? {}
                return Ok(());
            }
            if self.is_disk_full() {
                return Err(Error::new(ErrorKind::NoSpace, "the disk is full"));
            }
            self.wake.flush();
            self.wake.wait_for_progress();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Clock;
    use crate::base::random::Random;
    use crate::db::database::Database;
    use crate::db::options::{Options, TreeOptions, TxnOptions};
    use crate::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};

    /// It stays due, and what gives space back is what may make it pass.
    #[test]
    fn a_publication_that_lacks_space_keeps_nothing_else_of_a_step_from_its_turn() -> Result<()> {
        let (plan, clock) = (FaultPlan::new(), Clock::manual());
        let storage = FaultStorage::new(Arc::new(MemoryStorage::new()), plan.clone());
        let options =
            Options::new().create_if_missing(true).storage(Some(Arc::new(storage))).clock(Some(clock.clone()));
        let db = Database::open("/db", options.manual_background(true).checkpoint_interval_ms(0))?;
        let (engine, tree) = (db.engine(), db.create_tree("t", &TreeOptions::default())?);
        let value = Random(1).bytes(200_000);
        (0..40u8).try_for_each(|row| db.put(&tree, &[row], &value))?;
        db.checkpoint()?;
        drop(tree);
        db.drop_tree("t")?;
        (0..4).try_for_each(|_| db.checkpoint())?;
        while engine.move_down_step(0.0)? {}
        (0..3).try_for_each(|_| engine.publish())?;
        engine.due_publication();
        clock.advance_micros(10_000_000);
        engine.work_lacked_space(&Error::new(ErrorKind::NoSpace, "it was another's"));
        plan.add(FaultRule::from(CallClass::Write, 1, Fault::NoSpace).on("data.frond"));
        assert!(engine.due_publication() && engine.due_checkpoint().is_none());
        let given_back = || plan.calls(CallClass::Punch) + plan.calls(CallClass::SetLen);
        let before = given_back();
        let lack = db.step_background().map_err(|error| error.kind());
        assert_eq!(lack, Err(ErrorKind::NoSpace), "it is told all the same");
        assert!(engine.due_publication() && given_back() > before);
        plan.clear();
        while db.step_background()? {}
        db.close()
    }

    /// Space that it would give back may be what the memtable waits for.
    #[test]
    fn a_memtable_that_cannot_be_written_keeps_no_publication_from_its_turn() -> Result<()> {
        let clock = Clock::manual();
        let options = Options::new().create_if_missing(true).storage(Some(Arc::new(MemoryStorage::new())));
        let options = options.clock(Some(clock.clone())).manual_background(true).checkpoint_interval_ms(0);
        let db = Database::open("/db", options)?;
        let (engine, tree) = (db.engine(), db.create_tree("t", &TreeOptions::default())?);
        db.put(&tree, b"sealed", b"")?;
        assert!(engine.seal_active(0, CheckpointCause::Size)?);
        db.put(&tree, b"active", b"")?;
        engine.work_lacked_space(&Error::new(ErrorKind::NoSpace, "for the memtable"));
        clock.advance_micros(500_000);
        assert_eq!(engine.due_checkpoint(), Some(CheckpointCause::Size));
        let generation = db.statistics()?.generation;
        engine.tick()?;
        assert_eq!(db.statistics()?.generation, generation + 1);
        while db.step_background()? {}
        db.close()
    }

    #[test]
    fn where_one_thread_moves_all_what_cleans_up_has_its_turn_while_a_memtable_lacks_space() -> Result<()> {
        let plan = FaultPlan::new();
        let storage = FaultStorage::new(Arc::new(MemoryStorage::new()), plan.clone());
        let options = Options::new().create_if_missing(true).storage(Some(Arc::new(storage)));
        let db = Database::open("/db", options.manual_background(true).checkpoint_interval_ms(0))?;
        let (engine, tree) = (db.engine(), db.create_tree("t", &TreeOptions::default())?);
        let txn = db.begin(TxnOptions::default())?;
        (0..100u8).try_for_each(|row| txn.put(&tree, &[row], &[7; 1000]))?;
        db.checkpoint()?;
        while engine.move_down_step(0.0)? {}
        txn.rollback()?;
        let held = || engine.statuses.aborted_in_runs(1).len();
        assert_eq!(held(), 1);
        db.put(&tree, b"sealed", b"")?;
        assert!(engine.seal_active(0, CheckpointCause::Size)?);
        plan.add(FaultRule::once(CallClass::Write, 1, Fault::NoSpace).on("data.frond"));
        engine.move_anything()?;
        assert!(engine.is_disk_full() && engine.tree.version_guard().sealed.len() == 1);
        while db.step_background()? {}
        assert_eq!(held(), 0);
        db.close()
    }

    #[test]
    fn a_segment_that_cannot_be_prepared_keeps_nothing_else_of_a_tick_from_its_turn() -> Result<()> {
        let (plan, clock) = (FaultPlan::new(), Clock::manual());
        let storage = FaultStorage::new(Arc::new(MemoryStorage::new()), plan.clone());
        let options =
            Options::new().create_if_missing(true).storage(Some(Arc::new(storage))).clock(Some(clock.clone()));
        let options = options.manual_background(true).log_segment_bytes(1 << 20).checkpoint_interval_ms(0);
        let db = Database::open("/db", options)?;
        let (engine, tree) = (db.engine(), db.create_tree("t", &TreeOptions::default())?);
        db.put(&tree, b"key", &[7; 1000])?;
        db.checkpoint()?;
        for class in [CallClass::Open, CallClass::Names] {
            plan.add(FaultRule::from(class, 1, Fault::NoDescriptor).on("log"));
        }
        while engine.tend().is_ok() {
            db.put(&tree, b"key", &[7; 1000])?;
        }
        while engine.move_down_step(0.0)? {}
        clock.advance_micros(10_000_000);
        assert!(engine.due_publication());
        let generation = db.statistics()?.generation;
        assert!(engine.tick().is_err_and(|error| error.is_passing()));
        assert_eq!(db.statistics()?.generation, generation + 1);
        plan.clear();
        while engine.tick()? {}
        db.close()
    }
}
