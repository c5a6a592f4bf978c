//! Transactions: the way everything is read and written.

use std::sync::Arc;
use std::time::Duration;

use super::batch::WriteBatch;
use super::bulk::{Bulk, BulkOptions};
use super::core::TxnCore;
use super::cursor::Cursor;
use super::options::{CursorOptions, Durability, LockMode, TreeOptions, Wait};
use super::tree_handle::{RangeEstimate, Tree};
use super::write::with_single;
use crate::base::Result;
use crate::tree::Value;

/// What a locking read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Locked {
    /// The row, locked.
    Row(Value),
    /// No row; the place where it would be is locked.
    Absent,
    /// Another transaction holds the lock and the caller asked to skip such rows.
    Skipped,
}

/// A mark inside a transaction, to roll back to. Marks nest to any depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Savepoint(pub(crate) u32);

impl Savepoint {
    /// Its number inside its transaction, for front ends that keep marks as numbers.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The mark with this number; using one that the transaction never set is `NotFound`.
    pub fn from_number(number: u32) -> Savepoint {
        Savepoint(number)
    }
}

/// A transaction. Used by one thread at a time; may move between threads. Dropping it rolls it back, in
/// time independent of its size, and never panics.
///
/// Errors leave the transaction usable and the failed operation without effect, except `Deadlock` (the transaction
/// has been rolled back, and further use is `Closed`) and `Poisoned`.
#[derive(Debug)]
pub struct Transaction {
    core: Arc<TxnCore>,
}

impl Transaction {
    /// Its number among the sessions of this process, for [`crate::Database::cancel`] and
    /// [`crate::Database::transactions`].
    pub fn id(&self) -> u64 {
        self.core.id
    }

    pub(crate) fn new(core: Arc<TxnCore>) -> Transaction {
        Transaction { core }
    }

    pub(crate) fn core(&self) -> &Arc<TxnCore> {
        &self.core
    }

    // Trees.

    /// Creates a tree. Others see it when this commits. The name is locked until then.
    ///
    /// # Errors
    /// `KeyExists` when the name is taken; `InvalidArgument` when it is empty or longer than 1 KiB.
    pub fn create_tree(&self, name: &str, options: &TreeOptions) -> Result<Tree> {
        self.core.create_tree(name, options)
    }

    /// Opens a tree by name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn open_tree(&self, name: &str) -> Result<Tree> {
        self.core.open_tree(name)
    }

    /// Drops a tree with all its rows, at a cost that does not depend on them. Once that is committed the tree is gone for
    /// everybody: names and the being of trees follow commits and not snapshots, so that a reader whose snapshot is older
    /// gets `NotFound`. It keeps the rows of a tree that is truncated.
    ///
    /// # Errors
    /// `NotFound`; lock errors when others use the tree.
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        self.core.drop_tree(name)
    }

    /// Gives a tree another name. Handles stay valid.
    ///
    /// # Errors
    /// `NotFound`, `KeyExists`, `InvalidArgument`, lock errors.
    pub fn rename_tree(&self, old: &str, new: &str) -> Result<()> {
        self.core.rename_tree(old, new)
    }

    /// Removes all rows of a tree, at a cost that does not depend on them. Older snapshots still have them.
    ///
    /// # Errors
    /// `NotFound`, lock errors.
    pub fn truncate_tree(&self, tree: &Tree) -> Result<()> {
        self.core.truncate_tree(tree)
    }

    /// Replaces codec and metadata of a tree.
    ///
    /// # Errors
    /// `NotFound`, lock errors.
    pub fn set_tree_options(&self, tree: &Tree, options: &TreeOptions) -> Result<()> {
        self.core.set_tree_options(tree, options)
    }

    /// Codec and metadata of a tree as this transaction sees them.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn tree_options(&self, tree: &Tree) -> Result<TreeOptions> {
        self.core.tree_options(tree)
    }

    // Reading.

    /// The value of `key`, if it has one.
    ///
    /// # Errors
    /// `NotFound` for a dropped tree, `Closed`, `Io`, `Corruption`; at SERIALIZABLE also lock errors.
    pub fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Value>> {
        self.core.get(tree, key)
    }

    /// As [`Transaction::get`]; of a value that is kept apart no more than its head, as by [`crate::CursorOptions::heads_only`].
    ///
    /// # Errors
    /// As there.
    pub fn get_head(&self, tree: &Tree, key: &[u8]) -> Result<Option<Value>> {
        self.core.get_head(tree, key)
    }

    /// The values of many keys, in their order, as of one moment: at [`Isolation::ReadCommitted`] the statement's, or the call's.
    ///
    /// # Errors
    /// As [`Transaction::get`], and the first that `keys` gives.
    pub fn get_many<'k>(
        &self,
        tree: &Tree,
        keys: impl IntoIterator<Item = Result<&'k [u8]>>,
    ) -> Result<Vec<Option<Value>>> {
        self.core.get_many(tree, keys)
    }

    /// Whether `key` has a value. Does not load it.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.core.contains(tree, key)
    }

    /// Whether this transaction has taken a snapshot that lasts until its end: at its first plain read at
    /// [`Isolation::RepeatableRead`], at once when it is to be a consistent one. False after its end.
    pub fn has_snapshot(&self) -> bool {
        self.core.active().is_ok_and(|state| state.held_snapshot().is_some())
    }

    /// Whether others have committed a change of `key` after the snapshot that this transaction's plain reads see, which at
    /// [`Isolation::ReadCommitted`] is the statement's: then a locking read or a write of it meets another row than they do.
    /// It is to be asked with the key locked, and stays so as long as it is and the snapshot lasts: without the lock it may
    /// miss what is being committed. False where no such snapshot was taken.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn changed_after_snapshot(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.core.changed_after_snapshot(tree, key)
    }

    /// Locks `key` and reads its latest committed value (or what this transaction wrote).
    ///
    /// # Errors
    /// As [`Transaction::get`]; `Deadlock`, `LockTimeout`, `Cancelled`, `Conflict`.
    pub fn get_locked(&self, tree: &Tree, key: &[u8], mode: LockMode, wait: Wait) -> Result<Locked> {
        self.core.get_locked(tree, key, mode, wait)
    }

    /// Locks the keys from `lower` (included) to `upper` (excluded; empty: to the end of the tree), also those that
    /// do not exist.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `Cancelled`, `ReadOnly`, `Closed`.
    pub fn lock_range(&self, tree: &Tree, lower: &[u8], upper: &[u8], mode: LockMode, wait: Wait) -> Result<()> {
        self.core.lock_range(tree, lower, upper, mode, wait)
    }

    /// Gives back the lock of `key` if this statement's locking read newly took it and nothing was written to it since;
    /// whether it did. For rows at READ COMMITTED and READ UNCOMMITTED that were locked, looked at and not wanted; at
    /// the other levels it does nothing, as it does when an earlier statement held the lock already, when a
    /// range covers the key, and beyond the last 256 rows locked.
    ///
    /// # Errors
    /// `Closed`, `InvalidArgument` for a key that is too long.
    pub fn unlock(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.core.unlock(tree, key)
    }

    /// Begins a statement, and ends the one before: at READ COMMITTED its plain reads and cursors see one snapshot, taken at
    /// the first of them. Without this call each of them takes its own. No effect on reads at other levels. A
    /// cancellation that met no wait was meant for the statement before, and is forgotten. Costs nothing shared.
    ///
    /// # Errors
    /// `Closed`.
    pub fn begin_statement(&self) -> Result<()> {
        self.core.begin_statement()
    }

    /// Ends a statement: its snapshot is released (a cursor that reads it keeps it until it is positioned anew or dropped), and
    /// its locks stay.
    ///
    /// # Errors
    /// `Closed`.
    pub fn end_statement(&self) -> Result<()> {
        self.core.end_statement()
    }

    /// From now on waits so long for a lock, in place of [`TxnOptions::lock_timeout`]; `None`: as
    /// [`Options::lock_timeout`] says. Of any thread's calls, those that begin later.
    ///
    /// [`Options::lock_timeout`]: super::Options::lock_timeout
    ///
    /// # Errors
    /// `Closed`.
    pub fn set_lock_timeout(&self, limit: Option<Duration>) -> Result<()> {
        self.core.set_lock_timeout(limit)
    }

    /// A cursor over `tree`.
    ///
    /// # Errors
    /// `NotFound` for a dropped tree, `Closed`, `InvalidArgument` for a bound that is too long.
    pub fn cursor(&self, tree: &Tree, options: CursorOptions) -> Result<Cursor> {
        self.core.cursor(tree, options)
    }

    /// About how many rows and stored bytes lie from `lower` (included) to `upper` (excluded; empty: to the end).
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn estimate(&self, tree: &Tree, lower: &[u8], upper: &[u8]) -> Result<RangeEstimate> {
        let state = self.core.active()?;
        self.core.check_tree(&state, &tree.inner)?;
        self.core.engine.estimate(tree.id(), lower, upper)
    }

    // Writing.

    /// `key` gets `value`. Needs no read.
    ///
    /// # Errors
    /// As all writes: `InvalidArgument` (limits), `NotFound` (dropped tree), `ReadOnly`, lock errors, `Conflict`,
    /// `NoSpace`, `Poisoned`, `Closed`.
    pub fn put(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        with_single(|batch| {
            batch.put(tree, key, value)?;
            self.core.write(batch)
        })
    }

    /// `key` gets `value`.
    ///
    /// # Errors
    /// `KeyExists` if it already has one; otherwise as [`Transaction::put`].
    pub fn insert(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        with_single(|batch| {
            batch.insert(tree, key, value)?;
            self.core.write(batch)
        })
    }

    /// `key` gets `value` unless it already has one. Needs no read, unless the value is as long as
    /// [`crate::Options::blob_bytes_min`]: then whether the key has one is looked up before the value is written.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn insert_if_absent(&self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        with_single(|batch| {
            batch.insert_if_absent(tree, key, value)?;
            self.core.write(batch)
        })
    }

    /// `key` gets no value. Needs no read.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&self, tree: &Tree, key: &[u8]) -> Result<()> {
        with_single(|batch| {
            batch.delete(tree, key)?;
            self.core.write(batch)
        })
    }

    /// `key` gets no value; whether it had one. Reads.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_existing(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.core.delete_existing(tree, key)
    }

    /// `key`, which has been put exactly once since it last had no value, gets no value: the cheapest
    /// delete. Needs no read.
    ///
    /// For keys that are only ever put or inserted, and removed by this and range-deletes, as entries of secondary indexes are: no
    /// [`Transaction::delete`], [`Transaction::delete_existing`], [`Transaction::update`] or [`Transaction::insert_if_absent`], not
    /// even before that put. What was rolled back does not count. What becomes of a key that was put more than once or written in
    /// those ways is undefined: an older value may be there again, at once or after a later compaction. No other key is touched.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn single_delete(&self, tree: &Tree, key: &[u8]) -> Result<()> {
        with_single(|batch| {
            batch.single_delete(tree, key)?;
            self.core.write(batch)
        })
    }

    /// The value of `key` changes by an encoded update program. Needs no read.
    ///
    /// # Errors
    /// As [`Transaction::put`]; `InvalidArgument` when the program is malformed.
    pub fn update(&self, tree: &Tree, key: &[u8], program: &[u8]) -> Result<()> {
        with_single(|batch| {
            batch.update(tree, key, program)?;
            self.core.write(batch)
        })
    }

    /// All keys from `lower` (included) to `upper` (excluded; empty: to the end of the tree) get no value, at a cost
    /// that does not depend on their number. Locks the range.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_range(&self, tree: &Tree, lower: &[u8], upper: &[u8]) -> Result<()> {
        self.core.delete_range(tree, lower, upper)
    }

    /// All writes of a batch as one: on an error none of them has happened. The fast way to write.
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`Transaction::insert`]; see [`Transaction::failed_operation`].
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.core.write(batch)
    }

    /// Which write of the last batch failed (from 0), if its failure is that of one write: a taken key, a lock.
    pub fn failed_operation(&self) -> Option<usize> {
        self.core.failed_operation()
    }

    /// Loads a tree that has no row, with rows in any order. Locks the tree.
    ///
    /// # Errors
    /// As [`Transaction::put`]; `InvalidArgument` when the tree has rows, and for an empty path.
    pub fn bulk(&self, tree: &Tree, options: &BulkOptions) -> Result<Bulk> {
        self.core.bulk(tree, options)
    }

    // Ending, wholly or in part.

    /// Sets a mark to roll back to. Costs nothing. No mark has the number [`u32::MAX`].
    ///
    /// # Errors
    /// `Closed`; `InvalidArgument` after four thousand million marks in one transaction. After as many with a write between
    /// each and the next it is writes that are refused so, while marks still can be rolled back to.
    pub fn savepoint(&self) -> Result<Savepoint> {
        self.core.savepoint()
    }

    /// Undoes everything since `savepoint`, which stays set; later marks are gone. Takes constant time. Locks
    /// taken since are kept.
    ///
    /// # Errors
    /// `NotFound` when the mark is gone; `Closed`, `Poisoned`.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<()> {
        self.core.rollback_to(savepoint)
    }

    /// Forgets a mark and all later ones; what was done since stays.
    ///
    /// # Errors
    /// `NotFound` when the mark is gone; `Closed`.
    pub fn release(&self, savepoint: Savepoint) -> Result<()> {
        self.core.release(savepoint)
    }

    /// Gives back the locks of keys that it has not written, for one that is about to be prepared and has no more to look at:
    /// it may wait for its decision for long. Shared locks go, and exclusive ones of points and ranges but for the keys in them that have changes of this
    /// transaction. After [`Transaction::delete_range`] all stay, and so do those of keys beyond the first million, or that half a second is not enough to look at.
    ///
    /// # Errors
    /// `Closed`, `Cancelled`, `Io`, `Corruption`: all locks stay.
    pub fn release_unwritten(&self) -> Result<()> {
        self.core.release_unwritten()
    }

    /// First phase of a distributed commit: from now on the transaction survives crashes, with its locks, until
    /// [`crate::Database::commit_prepared`] or [`crate::Database::rollback_prepared`] decides it. Durable on return. The
    /// external id is 1 to 160 bytes.
    ///
    /// # Errors
    /// `KeyExists` when the external id is in use, `InvalidArgument`, `NoSpace`, `Poisoned`; the transaction is then
    /// rolled back. But what fails as `Poisoned` may have reached the log: then the next opening finds it prepared.
    pub fn prepare(self, xid: &[u8]) -> Result<()> {
        self.prepare_with(xid, Durability::Sync)
    }

    /// The same, durable as asked: with less than [`Durability::Sync`] a crash may lose it, as it may lose a commit.
    ///
    /// # Errors
    /// As [`Transaction::prepare`].
    pub fn prepare_with(self, xid: &[u8], durability: Durability) -> Result<()> {
        self.core.prepare(xid, durability)
    }

    /// Makes everything visible to others and durable as asked. Takes constant time.
    ///
    /// # Errors
    /// `Poisoned` when the log fails: whether the commit survives shows after reopening. `Closed` after `Deadlock`.
    pub fn commit(self) -> Result<()> {
        self.core.commit()
    }

    /// The same, durable as asked now, whatever the transaction was begun with: for who learns only in the end what it has written.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_with(self, durability: Durability) -> Result<()> {
        self.core.commit_with(durability)
    }

    /// Undoes everything. Takes constant time.
    ///
    /// # Errors
    /// None in practice: a rollback that cannot be logged is found out by recovery.
    pub fn rollback(self) -> Result<()> {
        self.core.rollback()
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // A rollback has nothing to report that the caller could act on.
        let _ = self.core.rollback();
    }
}
