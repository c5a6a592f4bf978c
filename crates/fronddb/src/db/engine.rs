//! The engine behind every handle: what an open database consists of, and whether it still works.
//!
//! Owns the parts and the three flags *closed*, *poisoned*, *read-only*. What is done with the parts stands in
//! its own room: [`super::write`], [`super::read`], [`super::checkpoint`], [`super::recovery`], [`super::background`].
//!
//! # Latches, in the order in which they may be taken
//!
//! 1. a transaction's own state (`TxnCore::state`);
//! 2. `switching` (one change of the active memtable at a time);
//! 3. `gate`: shared by whoever appends to the log and inserts into the active memtable, exclusive for the
//!    moment in which log segment and memtable change together;
//! 4. `prepared`;
//! 5. the status table's, the log's, the tree's own;
//! 6. `catalog`, `sessions`: leaves, nothing is taken under them.
//!
//! Transactional locks are never waited for while 2 to 6 are held.
//!
//! # Failure
//!
//! - E1: the first fatal failure is kept and answers every later write (`Poisoned`); it is never cleared.
//! - E2: a panic between the first visible change of a write and its last, and one in a step of background work, poisons
//!   ([`PoisonOnPanic`]). On its way there it lets latches go: a seal or a publication that would go on from there fails, and poisons as well
//!   ([`Engine::whole`]). No publication begins, or goes on past the log's sync, in a database that is poisoned.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::admission::Admission;
use super::background::Wake;
use super::catalog::Catalog;
use super::counters::Counters;
use super::covered::CoveredGate;
use super::events::{EventLog, LogLevel};
use super::full_disk::FullDisk;
use super::graft::Grafts;
use super::leftovers::Leftovers;
use super::options::Options;
use super::prepared::PreparedTable;
use super::report::RecoveryReport;
use super::sessions::Sessions;
use crate::base::clock::Clock;
use crate::base::memory::{Charge, MemoryBudget};
use crate::base::processors::Processors;
use crate::base::striped::Spread;
use crate::base::sync::{Mutex, RwLock, RwLockReadGuard};
use crate::base::{Error, ErrorKind, Lsn, Result};
use crate::cache::Cache;
use crate::format::Statuses;
use crate::io::Storage;
use crate::lock::LockTable;
use crate::log::Log;
use crate::memtable::ChunkPool;
use crate::run::RunCounters;
use crate::store::Store;
use crate::tree::BeTree;
use crate::txn::{Snapshots, StatusTable};

/// A guard of the directory's lock file, if it is still held.
pub(crate) type DirectoryLock = Mutex<Option<Box<dyn Send + Sync>>>;

/// Everything that an open database consists of.
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) directory: PathBuf,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) clock: Clock,
    pub(crate) budget: MemoryBudget,
    pub(crate) chunk_pool: ChunkPool,
    pub(crate) store: Arc<Store>,
    pub(crate) cache: Arc<Cache>,
    /// None in a database that was opened read-only.
    pub(crate) log: Option<Log>,
    pub(crate) tree: Arc<BeTree>,
    pub(crate) run_counters: Arc<RunCounters>,
    pub(crate) statuses: Arc<StatusTable>,
    /// Those two, for cursors to keep.
    pub(crate) spread_tree: Spread<BeTree>,
    pub(crate) spread_statuses: Spread<dyn Statuses>,
    pub(crate) snapshots: Snapshots,
    pub(crate) locks: LockTable,
    pub(crate) catalog: Catalog,
    pub(crate) prepared: PreparedTable,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) admission: Admission,
    pub(crate) full_disk: FullDisk,
    pub(crate) counters: Counters,
    pub(crate) events: Arc<EventLog>,
    pub(crate) covered: CoveredGate,
    pub(crate) grafts: Grafts,
    pub(crate) leftovers: Arc<Leftovers>,
    pub(crate) wake: Wake,
    pub(crate) processors: Processors,
    pub(crate) report: RecoveryReport,

    pub(crate) gate: RwLock<()>,
    pub(crate) switching: Mutex<()>,
    pub(crate) checkpoints: super::checkpoint::Ledger,
    pub(crate) next_tree: AtomicU32,
    pub(crate) opened_micros: u64,
    /// Changeable copies of options.
    pub(crate) checkpoint_interval_ms: AtomicU64,
    pub(crate) recovery_target_ms: AtomicU64,
    pub(crate) log_sync_period_ms: AtomicU64,

    pub(crate) directory_lock: DirectoryLock,
    /// The allocator's bitmaps and the states of transactions, as of the last look.
    pub(crate) map_memory: Mutex<Charge>,
    /// Keys of what was hot before the start and has not been read again; none when that is over.
    pub(crate) hot_left: Mutex<Option<Vec<Vec<u8>>>>,
    /// The first background work has been done.
    pub(crate) begun: Mutex<bool>,
    pub(crate) closed: AtomicBool,
    pub(crate) poison: OnceLock<Error>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Engine {
    /// What every append to the log passes. Nobody does any more when [`super::database`] has closed it behind the last.
    pub(crate) fn pass_gate(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let pass = self.gate.read();
        self.check_open()?;
        Ok(pass)
    }

    /// Fails with `Closed` once the database is closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "database is closed"));
        }
        Ok(())
    }

    /// Fails unless the database takes writes.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.poison.get().is_some() || self.log.is_none() {
            return Err(self.why_not_writable());
        }
        Ok(())
    }

    #[cold]
    fn why_not_writable(&self) -> Error {
        match self.poison.get() {
            Some(first) => poisoned(first),
            None => Error::new(ErrorKind::ReadOnly, "database is open read-only"),
        }
    }

    /// The log of a database that takes writes.
    #[inline]
    pub(crate) fn log(&self) -> Result<&Log> {
        self.log.as_ref().ok_or_else(|| self.why_not_writable())
    }

    /// Stops all writing for good (E1) and returns what callers get from now on.
    pub(crate) fn poison(&self, cause: &Error) -> Error {
        let mut is_first = false;
        let first = self.poison.get_or_init(|| {
            is_first = true;
            cause.clone()
        });
        if is_first {
            self.events.tell(LogLevel::Error, || format!("the database is poisoned and refuses writes: {cause}"));
        }
        self.wake.everybody();
        poisoned(first)
    }

    /// Passes a result of the log on: what the log could not do for want of space can be tried again, as what it could not do for a segment
    /// in which nothing is yet; what it refused changed nothing; every other failure of it poisons.
    #[inline]
    pub(crate) fn logged<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error.kind() {
            ErrorKind::NoSpace => {
                self.disk_is_full(&error);
                error
            }
            ErrorKind::InvalidArgument | ErrorKind::Closed => error,
            _ if error.is_passing() => {
                self.events.segment_failed(self.clock.micros(), &error);
                error
            }
            _ => self.poison(&error),
        })
    }

    /// Bytes of messages at which the active memtable seals.
    pub(crate) fn level0_bytes(&self) -> usize {
        self.options.level0_limit(self.budget.limit())
    }

    /// End of the log; 0 in a database that was opened read-only.
    pub(crate) fn log_end(&self) -> Lsn {
        self.log.as_ref().map_or(Lsn(0), Log::end_lsn)
    }

    /// Passes a result of the tree on. Of a seal or a publication what is `Internal` poisons, also in a thread of the caller's (B3): the tree may be left half
    /// changed, by a panic of another thread too, which has perhaps not got as far as to poison.
    pub(crate) fn whole<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| if error.kind() == ErrorKind::Internal { self.poison(&error) } else { error })
    }

    /// To be held from the first visible change of a write to its last.
    pub(crate) fn poison_on_panic(&self) -> PoisonOnPanic<'_> {
        PoisonOnPanic { engine: self }
    }
}

/// The error of a database that was poisoned by `first`.
pub(crate) fn poisoned(first: &Error) -> Error {
    Error::new(ErrorKind::Poisoned, format!("database is poisoned, reopen it to recover, first cause: {first}"))
}

/// Poisons when dropped by a panic (E2).
pub(crate) struct PoisonOnPanic<'a> {
    engine: &'a Engine,
}

impl PoisonOnPanic<'_> {
    /// The change is complete.
    #[inline]
    pub(crate) fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.engine.poison(&Error::internal("panic in the middle of a write or a step"));
        }
    }
}
