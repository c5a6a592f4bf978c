//! The open database.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::background::Threads;
use super::batch::WriteBatch;
use super::callbacks::Callbacks;
use super::check::OnlineCheckCallback;
use super::checkpoint_times::{CheckpointCause, CheckpointSummary};
use super::compact::CompactCallback;
use super::core::TxnCore;
use super::engine::{Engine, poisoned};
use super::monitor::{Finding, LockInfo, PreparedInfo, TransactionInfo};
use super::options::{Durability, MEMORY_BYTES_MIN, Options, TreeOptions, TxnOptions};
use super::report::{RecoveryEstimate, RecoveryReport};
use super::statistics::Statistics;
use super::transaction::Transaction;
use super::tree_handle::{RangeEstimate, Tree, TreeInfo};
use super::write::with_single;
use crate::base::key::{self, check_key};
use crate::base::striped::Spread;
use crate::base::sync::{Condvar, Mutex};
use crate::base::{Error, ErrorKind, Result};
use crate::tree::Value;

/// An open database. A cheap clone; the last clone to be dropped (or [`Database::close`]) stops its
/// threads and gives the directory free. Stopping makes no checkpoint: it syncs the log, gives back the rest of its last segment and notes which
/// blocks are hot. A start is always a recovery, and short.
#[derive(Debug, Clone)]
pub struct Database {
    handle: Arc<Handle>,
}

/// What the clones of a [`Database`] share. Transactions hold the engine only, so that they do not keep the
/// threads running.
#[derive(Debug)]
struct Handle {
    engine: Arc<Engine>,
    /// For transactions to keep.
    engines: Spread<Engine>,
    threads: Threads,
    callbacks: Callbacks,
    /// Whether all has been stopped, and that it has.
    is_shut: Mutex<bool>,
    has_shut: Condvar,
}

impl Handle {
    /// Stops everything once. Other calls return when that is done, but for those from within a callback, which it waits for.
    fn shut(&self) -> Result<()> {
        let engine = &self.engine;
        if engine.closed.swap(true, Ordering::AcqRel) {
            if !self.callbacks.is_called_here() {
                let mut is_shut = self.is_shut.lock();
                while !*is_shut {
                    self.has_shut.wait(&mut is_shut);
                }
            }
            return engine.poison.get().map_or(Ok(()), |first| Err(poisoned(first)));
        }
        let _shutting = Shutting(self);
        self.threads.stop(engine);
        for core in engine.sessions.all() {
            core.cancel();
        }
        // Writers that passed the check before are let finish.
        drop(engine.gate.write());
        let synced = match (&engine.log, engine.poison.get()) {
            (_, Some(first)) => Err(poisoned(first)),
            (Some(log), None) => engine.logged(log.end()),
            (None, None) => Ok(()),
        };
        engine.keep_hot();
        // What a caller's thread still publishes, flushes or writes ends before the directories may be another's.
        engine.checkpoints.wait_published();
        engine.store.close();
        if let Some(log) = &engine.log {
            log.close();
        }
        engine.directory_lock.lock().take();
        self.callbacks.close();
        synced
    }
}

/// Lets others that close go on, also after a panic.
struct Shutting<'a>(&'a Handle);

impl Drop for Shutting<'_> {
    fn drop(&mut self) {
        *self.0.is_shut.lock() = true;
        self.0.has_shut.notify_all();
    }
}

/// Zero means never: what is less than one is one.
fn milliseconds(period: Duration) -> u64 {
    if period.is_zero() { 0 } else { u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1) }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.shut();
    }
}

impl Database {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// Opens the database in the directory `path`, by recovery.
    ///
    /// # Errors
    /// `NotFound` (none there and not asked to make one), `AlreadyOpen`, `UnsupportedFormat`, `Corruption`, `Io`,
    /// `InvalidArgument` for an option out of range or an empty path.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        let callbacks = Callbacks::default();
        let engine = Arc::new(super::recovery::open(path.as_ref(), &callbacks.bind(&options))?);
        let threads = Threads::start(&engine)?;
        let engines = Spread::new(&engine);
        Ok(Database {
            handle: Arc::new(Handle {
                engine,
                engines,
                threads,
                callbacks,
                is_shut: Mutex::new(false),
                has_shut: Condvar::new(),
            }),
        })
    }

    /// Stops the threads and gives the directory free, whatever other clones exist: their use is `Closed` from now
    /// on. Open transactions are rolled back. Commits that did not wait are synced. No callback of the options is called once this has
    /// returned; those under way in other threads are waited for. So is a closing by another clone, but from within a callback.
    ///
    /// # Errors
    /// `Poisoned` when the database had been poisoned; it is closed nevertheless.
    pub fn close(self) -> Result<()> {
        self.handle.shut()
    }

    /// Begins a transaction. Touches nothing shared until its first read or write.
    ///
    /// # Errors
    /// `Closed`; `Poisoned` unless it is read-only.
    pub fn begin(&self, options: TxnOptions) -> Result<Transaction> {
        Ok(Transaction::new(TxnCore::begin(self.handle.engines.get(), options)?))
    }

    // Trees, each call a transaction of its own.

    /// Opens a tree by name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn open_tree(&self, name: &str) -> Result<Tree> {
        self.engine().open_tree(name)
    }

    /// Creates a tree, durably.
    ///
    /// # Errors
    /// As [`Transaction::create_tree`].
    pub fn create_tree(&self, name: &str, options: &TreeOptions) -> Result<Tree> {
        let txn = self.begin(TxnOptions::default())?;
        let tree = txn.create_tree(name, options)?;
        txn.commit()?;
        Ok(tree)
    }

    /// Drops a tree, durably.
    ///
    /// # Errors
    /// As [`Transaction::drop_tree`].
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        let txn = self.begin(TxnOptions::default())?;
        txn.drop_tree(name)?;
        txn.commit()
    }

    /// All trees that are committed, by name.
    ///
    /// # Errors
    /// As [`Database::get`]; also when the rows of some trees in the catalog cannot be read: the others are to be had from
    /// [`Database::readable_trees`].
    pub fn trees(&self) -> Result<Vec<TreeInfo>> {
        let (trees, damage) = self.readable_trees()?;
        damage.into_iter().next().map_or(Ok(trees), Err)
    }

    /// The trees that are committed, by name, but for those whose rows in the catalog cannot be read; and each damage that is in
    /// the way.
    ///
    /// # Errors
    /// `Closed`, `Io`.
    pub fn readable_trees(&self) -> Result<(Vec<TreeInfo>, Vec<Error>)> {
        self.engine().trees("")
    }

    /// Of these, the trees whose names begin with `prefix`, in time that depends on their number and not on that of all.
    ///
    /// # Errors
    /// `Closed`, `Io`.
    pub fn readable_trees_under(&self, prefix: &str) -> Result<(Vec<TreeInfo>, Vec<Error>)> {
        self.engine().trees(prefix)
    }

    // Single operations, each a transaction of its own.

    /// The latest committed value of `key`.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Value>> {
        check_key(key)?;
        self.engine().catalog.check(&tree.inner)?;
        self.engine().read_latest(tree.id(), key)
    }

    /// `key` gets `value`, durably.
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`Transaction::commit`].
    pub fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        with_single(|batch| {
            batch.put(tree, key, value)?;
            self.write(batch, TxnOptions::default())
        })
    }

    /// `key` gets no value, durably.
    ///
    /// # Errors
    /// As [`Database::put`].
    pub fn delete(&self, tree: &Tree, key: &[u8]) -> Result<()> {
        with_single(|batch| {
            batch.delete(tree, key)?;
            self.write(batch, TxnOptions::default())
        })
    }

    /// A whole batch as one transaction: one wait, and up to 4 KiB one log record, which the commit is in. A longer batch has one for each MiB,
    /// and the commit another.
    ///
    /// # Errors
    /// As [`Transaction::write`] and [`Transaction::commit`].
    pub fn write(&self, batch: &WriteBatch, options: TxnOptions) -> Result<()> {
        let txn = self.begin(options)?;
        txn.core().write_and_commit(batch)
    }

    /// About how many rows and stored bytes lie from `lower` (included) to `upper` (excluded; empty: to the end).
    ///
    /// # Errors
    /// As [`Database::get`].
    pub fn estimate(&self, tree: &Tree, lower: &[u8], upper: &[u8]) -> Result<RangeEstimate> {
        self.engine().check_open()?;
        self.engine().catalog.check(&tree.inner)?;
        self.engine().estimate(tree.id(), lower, upper)
    }

    // Distributed transactions.

    /// Prepared transactions that wait for a decision.
    ///
    /// # Errors
    /// `Closed`.
    pub fn prepared(&self) -> Result<Vec<PreparedInfo>> {
        self.engine().check_open()?;
        Ok(self.engine().prepared_list())
    }

    /// Commits a prepared transaction, durably. While somebody else decides it, it waits to hear what became of that.
    ///
    /// # Errors
    /// `NotFound` when no such transaction waits, because it is decided or never was; as [`Transaction::commit`]. One that an earlier opening prepared stays prepared when its
    /// changes of trees cannot be read just now (`Io`).
    pub fn commit_prepared(&self, xid: &[u8]) -> Result<()> {
        self.commit_prepared_with(xid, Durability::Sync)
    }

    /// Commits a prepared transaction, durable as asked. Until the commit is durable, a restart may find the transaction prepared again:
    /// less than [`Durability::Sync`] is for who keeps the decision elsewhere until [`Database::sync_log`].
    ///
    /// # Errors
    /// As [`Database::commit_prepared`].
    pub fn commit_prepared_with(&self, xid: &[u8], durability: Durability) -> Result<()> {
        self.engine().commit_prepared(xid, durability)
    }

    /// Rolls a prepared transaction back, durably.
    ///
    /// # Errors
    /// As [`Database::commit_prepared`].
    pub fn rollback_prepared(&self, xid: &[u8]) -> Result<()> {
        self.engine().rollback_prepared(xid)
    }

    // Upkeep.

    /// Seals level 0, writes it into the tree and publishes: after it, a restart replays almost nothing.
    ///
    /// # Errors
    /// `NoSpace`, `Poisoned`, `ReadOnly`, `Closed`.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine().checkpoint(CheckpointCause::Request)
    }

    /// Compacts the keys from `lower` (included) to `upper` (excluded; empty: to the end) of a tree, or everything: all
    /// pending messages go down to the leaves, dead space is written away and given back to the file system. Others go
    /// on meanwhile and go first. Row counts are exact afterwards, apart from what is written meanwhile and what open
    /// snapshots and transactions keep alive. `told` hears of progress and may end it: what is done stays.
    ///
    /// # Errors
    /// `InvalidArgument` for bounds without a tree; `Cancelled` when `told` breaks; `NotFound` when the tree is dropped;
    /// `NoSpace`, `Io`, `Corruption`, `Poisoned`, `ReadOnly`, `Closed`.
    pub fn compact(&self, tree: Option<&Tree>, lower: &[u8], upper: &[u8], told: CompactCallback<'_>) -> Result<()> {
        let engine = self.engine();
        engine.check_writable()?;
        let Some(tree) = tree else {
            if !lower.is_empty() || !upper.is_empty() {
                return Err(Error::invalid("bounds without a tree"));
            }
            return engine.compact(Vec::new(), None, told);
        };
        engine.catalog.check(&tree.inner)?;
        let end = if upper.is_empty() { key::tree_end(tree.id()) } else { key::inner(tree.id(), upper) };
        engine.compact(key::inner(tree.id(), lower), Some(end).filter(|end| !end.is_empty()), told)
    }

    /// Makes every commit so far durable.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`.
    pub fn sync_log(&self) -> Result<()> {
        let engine = self.engine();
        engine.check_writable()?;
        engine.logged(engine.log()?.sync()).map(|_| ())
    }

    /// True once the blocks that were hot before the start have been read again, as far as the cache has room. A database that is open
    /// read-only, or whose background work is done by hand, reads none ahead of their use, and is warm from the start.
    pub fn is_warm(&self) -> bool {
        self.engine().is_warm()
    }

    /// Gives the memory budget another size, in bytes; all parts follow within a moment.
    ///
    /// # Errors
    /// `InvalidArgument` below [`crate::MEMORY_BYTES_MIN`].
    pub fn set_memory_bytes(&self, bytes: usize) -> Result<()> {
        self.engine().check_open()?;
        if bytes < MEMORY_BYTES_MIN {
            return Err(Error::invalid(format!("memory budget too small, bytes={bytes} bytes_min={MEMORY_BYTES_MIN}")));
        }
        self.engine().set_memory_bytes(bytes);
        Ok(())
    }

    /// Sets the period of checkpoints; zero: none by time.
    ///
    /// # Errors
    /// `Closed`.
    pub fn set_checkpoint_interval(&self, interval: Duration) -> Result<()> {
        let engine = self.engine();
        engine.check_open()?;
        engine.checkpoint_interval_ms.store(milliseconds(interval), Ordering::Relaxed);
        Ok(())
    }

    /// Sets the recovery-time target; zero: none.
    ///
    /// # Errors
    /// `Closed`.
    pub fn set_recovery_target(&self, target: Duration) -> Result<()> {
        let engine = self.engine();
        engine.check_open()?;
        engine.recovery_target_ms.store(milliseconds(target), Ordering::Relaxed);
        Ok(())
    }

    /// Sets the period after which commits that did not wait are made durable, counted from the last such sync; zero: none
    /// by time.
    ///
    /// # Errors
    /// `Closed`.
    pub fn set_log_sync_period(&self, period: Duration) -> Result<()> {
        let engine = self.engine();
        engine.check_open()?;
        engine.log_sync_period_ms.store(milliseconds(period), Ordering::Relaxed);
        engine.wake.everybody();
        Ok(())
    }

    /// Reads and checks everything stored, and reports every damage found. `told` hears of the progress, and may end the
    /// check. Other work may go on.
    ///
    /// # Errors
    /// `Closed`; `Cancelled` when `told` breaks, after what was found until then has been reported; `Io` when the check
    /// itself cannot go on. Damage is a finding and no error.
    pub fn check(&self, report: &mut dyn FnMut(Finding), told: Option<OnlineCheckCallback<'_>>) -> Result<()> {
        self.engine().check(report, told)
    }

    // Looking inside.

    /// A copy of all statistics.
    ///
    /// # Errors
    /// `Closed`.
    pub fn statistics(&self) -> Result<Statistics> {
        self.engine().check_open()?;
        Ok(self.engine().statistics())
    }

    /// What the opening of this database found and did.
    ///
    /// # Errors
    /// `Closed`.
    pub fn recovery_report(&self) -> Result<RecoveryReport> {
        self.engine().check_open()?;
        Ok(self.engine().report.clone())
    }

    /// How often checkpoints were made for `cause`, when the last, and how long they took.
    ///
    /// # Errors
    /// `Closed`.
    pub fn checkpoint_summary(&self, cause: CheckpointCause) -> Result<CheckpointSummary> {
        self.engine().check_open()?;
        Ok(self.engine().checkpoint_summary(cause))
    }

    /// How long a restart would take if the process ended now.
    ///
    /// # Errors
    /// `Closed`.
    pub fn estimated_recovery(&self) -> Result<RecoveryEstimate> {
        self.engine().check_open()?;
        Ok(self.engine().estimated_recovery())
    }

    /// Open transactions.
    ///
    /// # Errors
    /// `Closed`.
    pub fn transactions(&self) -> Result<Vec<TransactionInfo>> {
        self.engine().check_open()?;
        Ok(self.engine().transactions())
    }

    /// Locks held, [`crate::LOCKS_LISTED_MAX`] at most, and waited for.
    ///
    /// # Errors
    /// `Closed`.
    pub fn locks(&self) -> Result<Vec<LockInfo>> {
        self.engine().check_open()?;
        Ok(self.engine().lock_list())
    }

    /// Ends the wait that transaction `id` is in, for a lock or for room in level 0, or the next one it enters, with `Cancelled`; also a
    /// cursor's step over many keys without rows (deleted, or not committed yet). For the threads that kill sessions. A long scan of rows
    /// is its caller's to stop, between two of them. Point reads and waits for the log go on to their end, and so does a batch of which a
    /// part is written; bulk loads and compactions are given up by their callbacks.
    ///
    /// # Errors
    /// `NotFound` when no such transaction is open; `Closed`.
    pub fn cancel(&self, id: u64) -> Result<()> {
        self.engine().check_open()?;
        let core = self.engine().sessions.find(id);
        let core = core.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no such transaction, id={id}")))?;
        core.cancel();
        Ok(())
    }

    /// The shape of the tree as text, for people and tests: memtables, nodes, runs, leaves. Its form may change.
    ///
    /// # Errors
    /// `Closed`; `Io`, `Corruption` when a node cannot be loaded.
    pub fn tree_shape(&self) -> Result<String> {
        self.engine().check_open()?;
        self.engine().tree.shape()
    }

    /// The failure that poisoned the database, if one did.
    pub fn poisoned(&self) -> Option<Error> {
        self.engine().poison.get().cloned()
    }

    // Driving by hand.

    /// Does one step of background work in this thread; false when there was none. With
    /// [`Options::manual_background`] the only source of it besides writers that cannot go on.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`; `NoSpace`, `Io`, `Corruption` as the step met them.
    pub fn step_background(&self) -> Result<bool> {
        self.engine().step_background()
    }

    /// Waits until no background work is left to do.
    ///
    /// # Errors
    /// As [`Database::step_background`].
    pub fn wait_idle(&self) -> Result<()> {
        self.engine().wait_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::MemoryStorage;

    #[test]
    fn what_began_before_the_close_leaves_the_log_to_who_opens_the_directory_next() -> Result<()> {
        let storage = MemoryStorage::new();
        let open = |storage: &MemoryStorage| {
            let options = Options::new().create_if_missing(true).storage(Some(Arc::new(storage.clone())));
            Database::open("/db", options.memory_bytes(MEMORY_BYTES_MIN).manual_background(true))
        };
        let before = open(&storage)?;
        before.create_tree("t", &TreeOptions::default())?;
        let engine = before.engine().clone();
        let log = engine.log()?;
        assert!(log.prepare_step()?, "a segment lies ready");
        let end = log.end_lsn();
        before.close()?;

        let db = open(&storage)?;
        let tree = db.open_tree("t")?;
        (0..50u8).try_for_each(|row| db.put(&tree, &[row], &[row]))?;
        let files = storage.files();
        // What a step, or whoever else passed the check before, does next.
        let done = [log.prepare_step().map(drop), log.keep_segment(true), log.release(end), log.rotate(true).map(drop)];
        let crashed = open(&storage.snapshot())?;
        let tree = crashed.open_tree("t")?;
        for row in 0..50u8 {
            assert_eq!(crashed.get(&tree, &[row])?.as_deref(), Some(&[row][..]));
        }
        assert_eq!(storage.files(), files);
        let kinds = done.map(|done| done.map_err(|error| error.kind()));
        assert!(kinds.contains(&Err(ErrorKind::Closed)), "{kinds:?}");
        assert!(engine.poison.get().is_none());
        Ok(())
    }
}
