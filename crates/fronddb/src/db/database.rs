//! The open database.

use std::path::Path;
use std::time::Duration;

use super::batch::WriteBatch;
use super::monitor::{Finding, LockInfo, PreparedInfo, TransactionInfo};
use super::options::{Options, TreeOptions, TxnOptions};
use super::report::{RecoveryEstimate, RecoveryReport};
use super::statistics::Statistics;
use super::transaction::{Transaction, Value};
use super::tree_handle::{Tree, TreeInfo};
use crate::base::{Error, Result};

/// An open database. A cheap clone; the last clone to be dropped (or [`Database::close`]) stops its
/// threads and gives the directory free. Stopping writes nothing: a start is always a recovery, and short.
#[derive(Debug, Clone)]
pub struct Database {
    _engine: (),
}

impl Database {
    /// Opens the database in the directory `path`, by recovery.
    ///
    /// # Errors
    /// `NotFound` (none there and not asked to make one), `AlreadyOpen`, `UnsupportedFormat`, `Corruption`, `Io`,
    /// `InvalidArgument` for an option out of range.
    pub fn open(_path: impl AsRef<Path>, options: Options) -> Result<Database> {
        options.validate()?;
        Err(super::not_built())
    }

    /// Stops the threads and gives the directory free, whatever other clones exist: their use is `Closed` from now
    /// on. Open transactions are rolled back. Commits that did not wait are synced.
    ///
    /// # Errors
    /// `Poisoned` when the database had been poisoned; it is closed nevertheless.
    pub fn close(self) -> Result<()> {
        Err(super::not_built())
    }

    /// Begins a transaction. Touches nothing shared until its first read or write.
    ///
    /// # Errors
    /// `Closed`; `Poisoned` unless it is read-only.
    pub fn begin(&self, _options: TxnOptions) -> Result<Transaction> {
        Err(super::not_built())
    }

    // Trees, each call a transaction of its own.

    /// Opens a tree by name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn open_tree(&self, _name: &str) -> Result<Tree> {
        Err(super::not_built())
    }

    /// Creates a tree, durably.
    ///
    /// # Errors
    /// As [`Transaction::create_tree`].
    pub fn create_tree(&self, _name: &str, _options: &TreeOptions) -> Result<Tree> {
        Err(super::not_built())
    }

    /// Drops a tree, durably.
    ///
    /// # Errors
    /// As [`Transaction::drop_tree`].
    pub fn drop_tree(&self, _name: &str) -> Result<()> {
        Err(super::not_built())
    }

    /// All trees that are committed, by name.
    ///
    /// # Errors
    /// As [`Database::get`].
    pub fn trees(&self) -> Result<Vec<TreeInfo>> {
        Err(super::not_built())
    }

    // Single operations, each a transaction of its own.

    /// The latest committed value of `key`.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get(&self, _tree: &Tree, _key: &[u8]) -> Result<Option<Value>> {
        Err(super::not_built())
    }

    /// `key` gets `value`, durably.
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`Transaction::commit`].
    pub fn put(&self, _tree: &Tree, _key: &[u8], _value: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    /// `key` gets no value, durably.
    ///
    /// # Errors
    /// As [`Database::put`].
    pub fn delete(&self, _tree: &Tree, _key: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    /// A whole batch as one transaction: one log record, one wait.
    ///
    /// # Errors
    /// As [`Transaction::write`] and [`Transaction::commit`].
    pub fn write(&self, _batch: &WriteBatch, _options: TxnOptions) -> Result<()> {
        Err(super::not_built())
    }

    // Distributed transactions.

    /// Prepared transactions that wait for a decision.
    ///
    /// # Errors
    /// `Closed`.
    pub fn prepared(&self) -> Result<Vec<PreparedInfo>> {
        Err(super::not_built())
    }

    /// Commits a prepared transaction, durably.
    ///
    /// # Errors
    /// `NotFound` when no such transaction waits; as [`Transaction::commit`].
    pub fn commit_prepared(&self, _xid: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    /// Rolls a prepared transaction back, durably.
    ///
    /// # Errors
    /// As [`Database::commit_prepared`].
    pub fn rollback_prepared(&self, _xid: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    // Upkeep.

    /// Seals level 0, writes it into the tree and publishes: after it, a restart replays almost nothing.
    ///
    /// # Errors
    /// `NoSpace`, `Poisoned`, `ReadOnly`, `Closed`.
    pub fn checkpoint(&self) -> Result<()> {
        Err(super::not_built())
    }

    /// Makes every commit so far durable.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`.
    pub fn sync_log(&self) -> Result<()> {
        Err(super::not_built())
    }

    /// Gives the memory budget another size, in bytes; all parts follow within a moment.
    ///
    /// # Errors
    /// `InvalidArgument` below [`crate::MEMORY_BYTES_MIN`].
    pub fn set_memory_bytes(&self, _bytes: usize) -> Result<()> {
        Err(super::not_built())
    }

    /// Sets the period of checkpoints; zero: none by time.
    ///
    /// # Errors
    /// `Closed`.
    pub fn set_checkpoint_interval(&self, _interval: Duration) -> Result<()> {
        Err(super::not_built())
    }

    /// Sets the recovery-time target; zero: none.
    ///
    /// # Errors
    /// `Closed`.
    pub fn set_recovery_target(&self, _target: Duration) -> Result<()> {
        Err(super::not_built())
    }

    /// Reads and checks everything stored, and reports every damage found. Other work may go on.
    ///
    /// # Errors
    /// `Closed`; `Io` when the check itself cannot go on. Damage is a finding and no error.
    pub fn check(&self, _report: &mut dyn FnMut(Finding)) -> Result<()> {
        Err(super::not_built())
    }

    // Looking inside.

    /// A copy of all statistics.
    ///
    /// # Errors
    /// `Closed`.
    pub fn statistics(&self) -> Result<Statistics> {
        Err(super::not_built())
    }

    /// What the opening of this database found and did.
    ///
    /// # Errors
    /// `Closed`.
    pub fn recovery_report(&self) -> Result<RecoveryReport> {
        Err(super::not_built())
    }

    /// How long a restart would take if the process ended now.
    ///
    /// # Errors
    /// `Closed`.
    pub fn estimated_recovery(&self) -> Result<RecoveryEstimate> {
        Err(super::not_built())
    }

    /// Open transactions.
    ///
    /// # Errors
    /// `Closed`.
    pub fn transactions(&self) -> Result<Vec<TransactionInfo>> {
        Err(super::not_built())
    }

    /// Locks held and waited for.
    ///
    /// # Errors
    /// `Closed`.
    pub fn locks(&self) -> Result<Vec<LockInfo>> {
        Err(super::not_built())
    }

    /// Ends the lock wait that transaction `id` is in, or the next one it enters, with `Cancelled`. For the
    /// threads that kill sessions.
    ///
    /// # Errors
    /// `NotFound` when no such transaction is open; `Closed`.
    pub fn cancel(&self, _id: u64) -> Result<()> {
        Err(super::not_built())
    }

    /// The failure that poisoned the database, if one did.
    pub fn poisoned(&self) -> Option<Error> {
        None
    }

    // Driving by hand.

    /// Does one step of background work in this thread; false when there was none. With
    /// [`Options::manual_background`] the only source of it besides writers that cannot go on.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`; `NoSpace`, `Io`, `Corruption` as the step met them.
    pub fn step_background(&self) -> Result<bool> {
        Err(super::not_built())
    }

    /// Waits until no background work is left to do.
    ///
    /// # Errors
    /// As [`Database::step_background`].
    pub fn wait_idle(&self) -> Result<()> {
        Err(super::not_built())
    }
}
