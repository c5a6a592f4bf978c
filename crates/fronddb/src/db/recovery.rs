//! Recovery: the only way in which a database opens.
//!
//! 1. *Roots*: the newest valid superblock; its statuses; its root node. Where one of them is damaged, the generation
//!    before and a little more log give the same state.
//! 2. *Log*: every record from the replay start on is read by as many threads as there are processors, up to
//!    [`READERS`]. Messages go into parts of one memtable, decisions about transactions into lists.
//! 3. *Sort*: the parts become one sorted memtable, in bulk; it waits to be written into the tree like any sealed one.
//! 4. *Transactions*: the lists are applied in log order; what is neither committed nor prepared is aborted, at a
//!    cost that does not depend on its size; prepared transactions get their locks back.
//!
//! Nothing here is proportional to the data or to the number of trees. All else (writing the memtable down, codecs,
//! the report's file) happens while serving.
//!
//! - R1: replay is idempotent: a crash during or after recovery, before the next publication, replays the same log.
//! - R2: a blob that a replayed message refers to is marked as used before anything is allocated.
//! - R3: the names of a creation are durable before anything is acknowledged, also where that was interrupted after the last of them
//!   was given and another opening goes on.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::background::Wake;
use super::catalog::{self, Catalog};
use super::checkpoint::Ledger;
use super::engine::Engine;
use super::events::{EventLog, LogLevel};
use super::graft::Grafts;
use super::leftovers::{Holders, Leftovers};
use super::options::{Options, check_directory};
use super::prepared::{LoggedPrepare, PreparedTable, all_held};
use super::replay::{Event, Reading};
use super::report::{RecoveryPhase, RecoveryProgress, RecoveryReport};
use super::sessions::Sessions;
use crate::base::clock::Clock;
use crate::base::compress::Codec;
use crate::base::helpers::with_helpers;
use crate::base::memory::{Charge, MemoryBudget, Purpose};
use crate::base::processors::{self, Processors};
use crate::base::space::PAGE_BYTES;
use crate::base::striped::Spread;
use crate::base::sync::Mutex;
use crate::base::{Error, ErrorKind, Lsn, Result, TxnId, random};
use crate::cache::Cache;
use crate::format::{Statuses, Superblock, SuperblockBody};
use crate::io::{DiskStorage, Storage, is_damage, replace_file};
use crate::lock::{HeldLock, LOCK_BYTES_UNBOUNDED, LockOptions, LockTable, VictimPreference, WaitObserver};
use crate::log::{Log, LogOptions, LogReader, LogTail};
use crate::memtable::{ChunkPool, Level0, Memtable, SortedMemtable};
use crate::run::{CodecTable, RunCounters};
use crate::store::{Opened, Store, StoreOptions};
use crate::tree::{BeTree, Node, TreeEnv, TreeTuning};
use crate::txn::{Snapshots, StatusTable};

/// Most threads that read and decode the log.
const READERS: usize = 4;
/// The file whose lock says that a directory is in use.
pub(super) const LOCK_FILE: &str = "LOCK";
/// The file whose lock says that a log outside of its database's directory is in use. It may stand beside a [`LOCK_FILE`].
const LOG_LOCK_FILE: &str = "LOG-LOCK";
/// Where the report of the last recovery is kept.
const REPORT_FILE: &str = "recovery.json";
/// Directory of log segments, where no other is given.
pub(super) const LOG_DIRECTORY: &str = "log";
/// Log records from this size on are compressed, if that is asked for. Shorter ones seldom save a page of a synced write, and cost
/// a commit as much as all else that it does by itself.
const COMPRESS_BYTES_MIN: usize = 4 << 10;

/// Names and parts that every phase needs.
struct Recovery<'a> {
    options: &'a Options,
    directory: PathBuf,
    log_directory: PathBuf,
    storage: Arc<dyn Storage>,
    clock: Clock,
    budget: MemoryBudget,
    report: RecoveryReport,
    events: Arc<EventLog>,
    leftovers: Arc<Leftovers>,
    started: u64,
    phase_started: u64,
    tolerated: Option<Mutex<Tolerated>>,
}

/// For salvage: damage that was passed over.
#[derive(Debug, Default)]
pub(crate) struct Tolerated {
    pub(crate) damage: Vec<Error>,
    /// Some of it is the log's, which was read only up to there.
    pub(crate) log_cut: bool,
}

/// Opens a damaged database for reading what is left, and tells what was passed over.
pub(crate) fn open_damaged(directory: &Path, options: &Options) -> Result<(Engine, Tolerated)> {
    open_with(directory, options, Some(Mutex::default()))
}

/// Opens the database in `directory`.
pub(crate) fn open(directory: &Path, options: &Options) -> Result<Engine> {
    open_with(directory, options, None).map(|(engine, _)| engine)
}

fn open_with(directory: &Path, options: &Options, tolerated: Option<Mutex<Tolerated>>) -> Result<(Engine, Tolerated)> {
    options.validate()?;
    check_directory("the database's directory", Some(directory))?;
    let clock = options.clock.clone().unwrap_or_else(Clock::machine);
    let started = clock.micros();
    let mut recovery = Recovery {
        options,
        directory: directory.to_owned(),
        log_directory: options.log_dir.clone().unwrap_or_else(|| directory.join(LOG_DIRECTORY)),
        storage: options.storage.clone().unwrap_or_else(|| Arc::new(DiskStorage::new())),
        budget: MemoryBudget::new(options.memory_bytes),
        report: RecoveryReport::default(),
        events: Arc::new(EventLog::new(options.on_log.clone())),
        leftovers: Arc::default(),
        clock,
        started,
        phase_started: started,
        tolerated,
    };
    let lock = recovery.prepare_directory()?;
    let mut engine = recovery.run()?;
    engine.directory_lock = Mutex::new(Some(lock));
    engine.keep_compactions_possible();
    if engine.log.is_some() {
        // The new active memtable begins here, so replay may begin here one day.
        engine.log_prepared_at_opening()?;
    }
    recovery.events.recovered(&recovery.report, &recovery.directory);
    if engine.store.refused_direct() {
        recovery.events.refused_direct(&recovery.directory);
    }
    Ok((engine, recovery.tolerated.map(Mutex::into_inner).unwrap_or_default()))
}

impl Recovery<'_> {
    /// Locks the directory, and makes the database in it where there is none and that is asked for.
    fn prepare_directory(&mut self) -> Result<Box<dyn Send + Sync>> {
        let storage = self.storage.clone();
        let shown = self.directory.display().to_string();
        let exists = Store::exists(&*storage, &self.directory)?;
        if !exists && !self.options.create_if_missing {
            return Err(Error::new(ErrorKind::NotFound, format!("no database there, directory={shown}")));
        }
        if !exists {
            storage.create_dir_all(&self.directory)?;
        }
        let lock = storage.lock(&self.directory.join(LOCK_FILE))?;
        // Another process may have made it before the lock was ours.
        if Store::exists(&*storage, &self.directory)? {
            if self.options.error_if_exists {
                return Err(Error::invalid(format!("the database exists, directory={shown}")));
            }
            let log_lock = lock_log(&*storage, &self.directory, &self.log_directory)?;
            return Ok(Box::new((log_lock, lock)));
        }
        self.clear_log_directory()?;
        let log_lock = lock_log_directory(&*storage, &self.directory, &self.log_directory)?;
        self.create()?;
        self.report.created = true;
        Ok(Box::new((log_lock, lock)))
    }

    /// Makes the files of an empty database: the log before the data file that refers to it has its name, and before that
    /// the note by which the log is known again if this is interrupted.
    fn create(&self) -> Result<()> {
        let uuid = draw_uuid();
        let start = Lsn(0);
        let body = SuperblockBody { log_start: start, ..SuperblockBody::default() };
        Store::begin_creation(&self.storage, &self.directory, uuid, body)?;
        drop(Log::create(self.storage.clone(), &self.log_directory, self.log_options(uuid), start)?);
        Store::finish_creation(&self.storage, &self.directory, &self.store_options(None)).map(|_| ())
    }

    /// Removes the log of a creation that was interrupted. Any other is another database's, or the last that is left of this
    /// one, and stays.
    fn clear_log_directory(&self) -> Result<()> {
        self.storage.create_dir_all(&self.log_directory)?;
        if let Some(uuid) = Store::interrupted_creation(&*self.storage, &self.directory)? {
            Log::remove_unbegun(&*self.storage, &self.log_directory, &self.log_options(uuid))?;
        }
        Log::refuse_segments(&*self.storage, &self.log_directory)
    }

    fn store_options(&self, generation: Option<u64>) -> StoreOptions {
        StoreOptions {
            direct: self.options.direct_io,
            read_only: self.options.read_only,
            generation,
            keep_slots: true,
            ..StoreOptions::default()
        }
    }

    fn log_options(&self, uuid: [u8; 16]) -> LogOptions {
        let options = self.options;
        let ring = 1usize << (options.memory_bytes / 64).clamp(256 << 10, 4 << 20).ilog2();
        // A segment belongs to one memtable, whose messages take less room in the log than in memory.
        let needed = options.level0_limit(options.memory_bytes) as u64;
        let segment = options.log_segment_bytes.min(needed).max(4 * ring as u64).next_multiple_of(PAGE_BYTES);
        LogOptions {
            segment_bytes: segment,
            buffer_bytes: ring,
            direct: options.direct_io,
            codec: if options.log_compression { Codec::Zstd { level: 1 } } else { Codec::None },
            compress_bytes_min: COMPRESS_BYTES_MIN,
            clock: self.clock.clone(),
            ..LogOptions::new(uuid, &self.budget)
        }
    }

    /// Ends a phase and tells of the next.
    fn phase(&mut self, ended: RecoveryPhase, next: RecoveryPhase) {
        let now = self.clock.micros();
        if let Some(entry) = self.report.phase_micros.get_mut(ended as usize) {
            *entry = (ended.name(), now.saturating_sub(self.phase_started));
        }
        self.phase_started = now;
        self.progress(next, self.report.bytes_read, self.report.bytes_read);
    }

    fn progress(&self, phase: RecoveryPhase, bytes_done: u64, bytes_total: u64) {
        if let Some(callback) = &self.options.on_recovery_progress {
            callback(&RecoveryProgress { phase, bytes_done, bytes_total });
        }
    }

    /// Tries the newest generation and, where that one is damaged, the one before.
    fn run(&mut self) -> Result<Engine> {
        self.progress(RecoveryPhase::Roots, 0, 0);
        let candidates = Store::candidates(&self.storage, &self.directory, &self.store_options(None))?;
        for error in &candidates.damaged {
            self.events.tell(LogLevel::Warning, || format!("a superblock is passed over: {error}"));
        }
        if let Some(error) = candidates.overtaken {
            // A salvage takes what is there, and says that some of it may be wrong.
            let Some(tolerated) = &self.tolerated else { return Err(error) };
            tolerated.lock().damage.push(error);
        }
        let mut skipped = candidates.damaged.len() as u32;
        let mut first_damage = None;
        for generation in candidates.generations {
            self.report = RecoveryReport { created: self.report.created, ..RecoveryReport::default() };
            self.report.superblocks_skipped = skipped;
            let opened = Store::open(&self.storage, &self.directory, &self.store_options(Some(generation)));
            match opened.and_then(|opened| self.open_generation(opened)) {
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    skipped += 1;
                    self.events.tell(LogLevel::Warning, || format!("the generation is passed over: {error}"));
                    if let Some(tolerated) = &self.tolerated {
                        tolerated.lock().damage.push(error.clone());
                    }
                    // The first damage says more than what an older generation lacks.
                    first_damage.get_or_insert(error);
                }
                outcome => return outcome,
            }
        }
        Err(first_damage.unwrap_or_else(|| Error::internal("no generation to open")))
    }

    fn open_generation(&mut self, opened: Opened) -> Result<Engine> {
        let log_end = opened.log_end();
        let store = opened.store;
        let superblock = store.superblock();
        if superblock.generation == 1 && !self.options.read_only && !self.report.created {
            self.storage.sync_dir(&self.directory)?;
        }
        let statuses = self.statuses(&store, &superblock)?;
        let env = self.tree_env(&store, &statuses, &superblock);
        let root = superblock.body.root.map(|ptr| Node::load(&env, ptr)).transpose()?;
        self.report.generation = superblock.generation;
        self.phase(RecoveryPhase::Roots, RecoveryPhase::Log);

        let log_options = self.log_options(superblock.uuid);
        let start = superblock.body.log_start;
        let (readings, tail) = self.read_log(&store, &log_options, start, log_end)?;
        self.report.bytes_read = tail.end().0.saturating_sub(start.0);
        self.report.log_end = tail.end().0;
        self.report.segments = tail.segments_read();
        self.phase(RecoveryPhase::Log, RecoveryPhase::Sort);

        let mut next_tree = stored_next_tree(&superblock);
        let mut parts = Vec::new();
        let mut events = Vec::new();
        for reading in readings {
            self.report.records += reading.records;
            self.report.messages += reading.messages;
            self.report.bytes_replayed += reading.bytes;
            next_tree = next_tree.max(reading.next_tree);
            parts.push(reading.part);
            events.extend(reading.events);
        }
        let memtable = SortedMemtable::build(start.0, &self.budget, parts);
        let sealed = if memtable.is_empty() { Vec::new() } else { vec![Level0::Sorted(Arc::new(memtable))] };
        self.phase(RecoveryPhase::Sort, RecoveryPhase::Transactions);

        let log = if self.options.read_only {
            None
        } else {
            Some(Log::open(self.storage.clone(), &self.log_directory, log_options, tail)?)
        };
        let active = log.as_ref().map_or(self.report.log_end, |log| log.end_lsn().0);
        let logged = self.replay(&statuses, events, active)?;
        let grafts = Grafts::restore(&superblock.body);
        let parts = Parts { env, root, statuses, sealed, log, active, next_tree, start, logged, grafts };
        let engine = self.assemble(parts)?;
        if !self.options.read_only {
            // From here on space of other generations may be used again (S1).
            engine.store.erase_slots(&opened.unwanted)?;
        }
        Ok(engine)
    }

    fn statuses(&self, store: &Store, superblock: &Superblock) -> Result<Arc<StatusTable>> {
        if superblock.body.status.is_empty() {
            return Ok(Arc::new(StatusTable::restore(&StatusTable::new().image())?));
        }
        let image = store.read_image(&superblock.body.status)?;
        Ok(Arc::new(StatusTable::restore(&image).map_err(|error| error.context("transaction statuses"))?))
    }

    /// Reads the log from `start` on, in parallel; it was durable up to `log_end`.
    fn read_log(
        &self,
        store: &Store,
        options: &LogOptions,
        start: Lsn,
        log_end: Lsn,
    ) -> Result<(Vec<Reading>, LogTail)> {
        if let Some(tolerated) = &self.tolerated {
            return self.read_damaged_log(store, options, start, log_end, tolerated);
        }
        let reader = LogReader::open(&*self.storage, &self.log_directory, options, start)?.known_durable(log_end);
        // The last segment is counted as full: where it ends shows when it is read.
        let total = reader.last_start().0.saturating_sub(start.0) + options.segment_bytes;
        self.events.begin_progress(self.clock.micros());
        if !self.report.created {
            let (generation, shown) = (self.report.generation, self.directory.display());
            self.events.tell(LogLevel::Note, || format!("recovery begins, generation={generation} directory={shown}"));
        }
        let reader = Mutex::new(reader);
        let threads = processors::usable().min(READERS);
        let threads = if self.options.manual_background { 1 } else { threads };
        let failed = AtomicBool::new(false);
        let read = |tell: bool| -> Result<Reading> {
            let mut reading = Reading::new();
            let mut done = 0;
            while !failed.load(Ordering::Relaxed) {
                let Some(mut batch) = reader.lock().next_batch()? else { break };
                while let Some((lsn, bytes)) = batch.next()? {
                    reading.record(store, lsn, bytes)?;
                    done = lsn.0.saturating_sub(start.0);
                }
                if tell {
                    self.progress(RecoveryPhase::Log, done, total.max(done));
                    self.events.progress(self.clock.micros(), done, total.max(done));
                }
            }
            Ok(reading)
        };
        let read = |tell: bool| read(tell).inspect_err(|_| failed.store(true, Ordering::Relaxed));
        let readings = with_helpers(threads - 1, |number| read(number == 0))
            .into_iter()
            .map(|reading| reading.unwrap_or_else(|_| Err(Error::internal("panic while reading the log"))));
        let readings = readings.collect::<Result<Vec<_>>>()?;
        Ok((readings, reader.into_inner().finish()?))
    }

    /// Reads the log up to the first damage, or the first place that the disk does not give back: what comes out is a prefix of what was written.
    fn read_damaged_log(
        &self,
        store: &Store,
        options: &LogOptions,
        start: Lsn,
        log_end: Lsn,
        tolerated: &Mutex<Tolerated>,
    ) -> Result<(Vec<Reading>, LogTail)> {
        let (mut reading, mut damage) = (Reading::new(), Vec::new());
        let mut read = |reader: &mut LogReader| -> Result<()> {
            while let Some(mut batch) = reader.next_batch()? {
                while let Some((lsn, bytes)) = batch.next()? {
                    reading.record(store, lsn, bytes)?;
                }
            }
            Ok(())
        };
        let opened = LogReader::open_damaged(&*self.storage, &self.log_directory, options, start, &mut damage);
        let tail = match opened.map(|reader| reader.known_durable(log_end)) {
            Err(error) if is_damage(&error) => {
                damage.push(error);
                LogTail::empty(start)
            }
            opened => {
                let mut reader = opened?;
                match read(&mut reader) {
                    Err(error) if is_damage(&error) => damage.push(error),
                    done => done?,
                }
                reader.give_up();
                reader.finish()?
            }
        };
        let mut tolerated = tolerated.lock();
        tolerated.log_cut |= !damage.is_empty();
        tolerated.damage.extend(damage);
        Ok((vec![reading], tail))
    }

    /// Applies what the log says about transactions; returns what it says of prepared ones.
    fn replay(
        &mut self,
        statuses: &StatusTable,
        mut events: Vec<(Lsn, Event)>,
        active: u64,
    ) -> Result<HashMap<TxnId, LoggedPrepare>> {
        events.sort_by_key(|(lsn, _)| *lsn);
        // Some locks are in records of their own, before that of the prepare; those may be without one.
        let (mut logged, mut early) = (HashMap::new(), HashMap::<TxnId, Vec<HeldLock>>::new());
        for (lsn, event) in events {
            let applied = match event {
                Event::Seen(txn) => statuses.replay_seen(txn),
                Event::Commit(txn, number) => {
                    self.report.committed += 1;
                    logged.remove(&txn);
                    statuses.replay_commit(txn, number)
                }
                Event::Abort(txn) => {
                    logged.remove(&txn);
                    statuses.replay_abort(txn)
                }
                Event::AbortSteps(txn, from, to) => statuses.replay_abort_steps(txn, from, to),
                Event::Prepare(txn, xid, origin, held) => {
                    let before = early.remove(&txn).unwrap_or_default();
                    logged.insert(txn, LoggedPrepare { origin, locks: all_held(before, held) });
                    statuses.replay_prepare(txn, &xid)
                }
                Event::Locks(txn, held) => {
                    early.entry(txn).or_default().extend(held);
                    // Its number is not to be another's, whose prepare would take them.
                    statuses.replay_seen(txn)
                }
            };
            applied.map_err(|error| error.context(format!("replay, lsn={lsn}")))?;
        }
        self.report.aborted = statuses.finish_recovery(active).len() as u64;
        Ok(logged)
    }

    fn tree_env(&self, store: &Arc<Store>, statuses: &Arc<StatusTable>, superblock: &Superblock) -> TreeEnv {
        let events = self.events.clone();
        TreeEnv {
            store: store.clone(),
            cache: Arc::new(Cache::new(self.budget.clone())),
            budget: self.budget.clone(),
            statuses: statuses.clone(),
            run_counters: Arc::new(RunCounters::observed(move |error| events.damage(error))),
            holders: Arc::new(Holders { statuses: statuses.clone(), leftovers: self.leftovers.clone() }),
            options: self.tuning(),
            codecs: CodecTable::new(self.options.default_codec),
            run_ids: Arc::new(AtomicU64::new(superblock.body.next_run.0.max(1))),
        }
    }

    fn wait_observer(&self) -> Option<WaitObserver> {
        let (begins, ends) = (self.options.on_lock_wait.clone(), self.options.on_lock_wait_end.clone());
        let is_wanted = begins.is_some() || ends.is_some();
        is_wanted.then(|| {
            WaitObserver::new(move |waiter, blocker| match blocker {
                Some(blocker) => begins.iter().for_each(|begins| begins(waiter, blocker)),
                None => ends.iter().for_each(|ends| ends(waiter)),
            })
        })
    }

    fn assemble(&mut self, parts: Parts) -> Result<Engine> {
        let Parts { env, root, statuses, sealed, log, active, next_tree, start, mut logged, grafts } = parts;
        let (budget, chunk_pool) = (self.budget.clone(), ChunkPool::new(&self.budget));
        let (store, cache, run_counters) = (env.store.clone(), env.cache.clone(), env.run_counters.clone());
        let sessions = Arc::new(Sessions::default());
        let observer = self.wait_observer();
        let preference = self.options.on_deadlock.clone();
        let preference = preference.map(|callback| VictimPreference::new(move |one, other| callback(one, other)));
        let lock_options =
            LockOptions { bytes_max: LOCK_BYTES_UNBOUNDED, observer, preference, ..LockOptions::default() };
        let lock_table = LockTable::new(budget.clone(), self.clock.clone(), lock_options);
        let memtable = Arc::new(Memtable::new(active, &chunk_pool));
        let tree = Arc::new(BeTree::with_root(env, root, sealed.clone(), memtable));
        let prepared = PreparedTable::default();
        for undecided in statuses.prepared() {
            let logged = logged.remove(&undecided.txn).unwrap_or_default();
            lock_table.import(undecided.txn, &logged.locks)?;
            prepared.recovered(&undecided, &logged, self.clock.wall_ms());
            self.report.prepared += 1;
        }
        lock_table.set_bytes_max(lock_bytes(self.options.memory_bytes));
        self.phase(RecoveryPhase::Transactions, RecoveryPhase::Done);
        let now = self.clock.micros();
        self.report.total_micros = now.saturating_sub(self.started);
        let replay_micros: u64 = self.report.phase_micros.iter().map(|(_, micros)| *micros).sum();
        let checkpoints = Ledger::new(start, &sealed, self.report.bytes_replayed, replay_micros, now);
        let map_memory = Mutex::new(Charge::new(&budget, Purpose::Metadata, 0));
        Ok(Engine {
            options: self.options.clone(),
            directory: self.directory.clone(),
            storage: self.storage.clone(),
            clock: self.clock.clone(),
            budget,
            chunk_pool,
            store,
            cache,
            log,
            spread_tree: Spread::new(&tree),
            tree,
            run_counters,
            snapshots: Snapshots::new(&statuses),
            spread_statuses: Spread::new(&(statuses.clone() as Arc<dyn Statuses>)),
            statuses,
            locks: lock_table,
            catalog: Catalog::default(),
            prepared,
            sessions,
            admission: Default::default(),
            full_disk: Default::default(),
            counters: Default::default(),
            events: self.events.clone(),
            covered: Default::default(),
            grafts,
            leftovers: self.leftovers.clone(),
            wake: Wake::default(),
            processors: Processors::default(),
            report: self.report.clone(),
            gate: Default::default(),
            switching: Default::default(),
            checkpoints,
            next_tree: AtomicU32::new(next_tree),
            opened_micros: self.started,
            checkpoint_interval_ms: AtomicU64::new(self.options.checkpoint_interval_ms),
            recovery_target_ms: AtomicU64::new(self.options.recovery_target_ms),
            log_sync_period_ms: AtomicU64::new(self.options.log_sync_period_ms),
            directory_lock: Mutex::new(None),
            map_memory,
            hot_left: Mutex::default(),
            begun: Mutex::new(false),
            closed: AtomicBool::new(false),
            poison: Default::default(),
        })
    }

    fn tuning(&self) -> TreeTuning {
        self.options.tree_tuning.unwrap_or_else(|| TreeTuning {
            block_bytes: self.options.block_bytes,
            base_filter_bits: self.options.filter_bits_per_key,
            ..TreeTuning::default()
        })
    }
}

/// What is known after replay.
struct Parts {
    env: TreeEnv,
    root: Option<Arc<Node>>,
    statuses: Arc<StatusTable>,
    sealed: Vec<Level0>,
    log: Option<Log>,
    active: u64,
    next_tree: u32,
    start: Lsn,
    logged: HashMap<TxnId, LoggedPrepare>,
    grafts: Grafts,
}

/// Locks the log of the database in `directory`, if it lies elsewhere: a copy of the database would find the same log there, and go on
/// in it. Where there is no log nothing is made: who reads it finds that out.
pub(super) fn lock_log(
    storage: &dyn Storage,
    directory: &Path,
    log_directory: &Path,
) -> Result<Option<Box<dyn Send + Sync>>> {
    if Log::exists(storage, log_directory)? { lock_log_directory(storage, directory, log_directory) } else { Ok(None) }
}

fn lock_log_directory(
    storage: &dyn Storage,
    directory: &Path,
    log_directory: &Path,
) -> Result<Option<Box<dyn Send + Sync>>> {
    let is_named = |part| matches!(part, Component::Normal(_));
    let is_inside = log_directory.strip_prefix(directory).is_ok_and(|rest| rest.components().all(is_named));
    if is_inside { Ok(None) } else { storage.lock(&log_directory.join(LOG_LOCK_FILE)).map(Some) }
}

/// The lock table's part of a memory budget, in bytes.
pub(crate) fn lock_bytes(memory_bytes: usize) -> usize {
    memory_bytes / 16
}

fn stored_next_tree(superblock: &Superblock) -> u32 {
    let stored = superblock.body.extra.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    stored.max(catalog::FIRST_TREE)
}

/// A name for a new database that no other has.
fn draw_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    let (low, high) = uuid.split_at_mut(8);
    low.copy_from_slice(&random::draw().to_le_bytes());
    high.copy_from_slice(&random::draw().to_le_bytes());
    uuid
}

impl Engine {
    /// Keeps the report beside the database, for people. Whether that succeeds matters to nothing.
    pub(crate) fn keep_report(&self) {
        let path = self.directory.join(REPORT_FILE);
        let _ = replace_file(&*self.storage, &path, self.report.to_json().as_bytes());
    }
}
