//! Transactions: the way everything is read and written.

use std::ops::Deref;

use super::batch::WriteBatch;
use super::cursor::Cursor;
use super::options::{CursorOptions, LockMode, TreeOptions, Wait};
use super::tree_handle::{RangeEstimate, Tree};
use crate::base::Result;

/// A value as it was read. Derefs to its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    bytes: Vec<u8>,
}

impl Value {
    /// The bytes, without a copy where it owns them.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

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
    id: u64,
}

impl Transaction {
    /// Its number among the sessions of this process, for [`crate::Database::cancel`] and
    /// [`crate::Database::transactions`].
    pub fn id(&self) -> u64 {
        self.id
    }

    // Trees.

    /// Creates a tree. Others see it when this commits. The name is locked until then.
    ///
    /// # Errors
    /// `KeyExists` when the name is taken; `InvalidArgument` when it is empty or longer than 1 KiB.
    pub fn create_tree(&self, _name: &str, _options: &TreeOptions) -> Result<Tree> {
        Err(super::not_built())
    }

    /// Opens a tree by name.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn open_tree(&self, _name: &str) -> Result<Tree> {
        Err(super::not_built())
    }

    /// Drops a tree with all its rows, at a cost that does not depend on them.
    ///
    /// # Errors
    /// `NotFound`; lock errors when others use the tree.
    pub fn drop_tree(&self, _name: &str) -> Result<()> {
        Err(super::not_built())
    }

    /// Gives a tree another name. Handles stay valid.
    ///
    /// # Errors
    /// `NotFound`, `KeyExists`, `InvalidArgument`, lock errors.
    pub fn rename_tree(&self, _old: &str, _new: &str) -> Result<()> {
        Err(super::not_built())
    }

    /// Removes all rows of a tree, at a cost that does not depend on them.
    ///
    /// # Errors
    /// `NotFound`, lock errors.
    pub fn truncate_tree(&self, _tree: &Tree) -> Result<()> {
        Err(super::not_built())
    }

    /// Replaces codec and metadata of a tree.
    ///
    /// # Errors
    /// `NotFound`, lock errors.
    pub fn set_tree_options(&self, _tree: &Tree, _options: &TreeOptions) -> Result<()> {
        Err(super::not_built())
    }

    /// Codec and metadata of a tree as this transaction sees them.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn tree_options(&self, _tree: &Tree) -> Result<TreeOptions> {
        Err(super::not_built())
    }

    // Reading.

    /// The value of `key`, if it has one.
    ///
    /// # Errors
    /// `NotFound` for a dropped tree, `Closed`, `Io`, `Corruption`; at SERIALIZABLE also lock errors.
    pub fn get(&self, _tree: &Tree, _key: &[u8]) -> Result<Option<Value>> {
        Err(super::not_built())
    }

    /// Whether `key` has a value. Does not load it.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn contains(&self, _tree: &Tree, _key: &[u8]) -> Result<bool> {
        Err(super::not_built())
    }

    /// Locks `key` and reads its latest committed value (or what this transaction wrote).
    ///
    /// # Errors
    /// As [`Transaction::get`]; `Deadlock`, `LockTimeout`, `Cancelled`, `Conflict`.
    pub fn get_locked(&self, _tree: &Tree, _key: &[u8], _mode: LockMode, _wait: Wait) -> Result<Locked> {
        Err(super::not_built())
    }

    /// Locks the keys from `lower` (included) to `upper` (excluded; empty: to the end of the tree), also those that
    /// do not exist.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `Cancelled`, `Closed`.
    pub fn lock_range(&self, _tree: &Tree, _lower: &[u8], _upper: &[u8], _mode: LockMode, _wait: Wait) -> Result<()> {
        Err(super::not_built())
    }

    /// A cursor over `tree`.
    ///
    /// # Errors
    /// `NotFound` for a dropped tree, `Closed`, `InvalidArgument` for a bound that is too long.
    pub fn cursor(&self, _tree: &Tree, _options: CursorOptions) -> Result<Cursor> {
        Err(super::not_built())
    }

    /// About how many rows and stored bytes lie from `lower` (included) to `upper` (excluded; empty: to the end).
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn estimate(&self, _tree: &Tree, _lower: &[u8], _upper: &[u8]) -> Result<RangeEstimate> {
        Err(super::not_built())
    }

    // Writing.

    /// `key` gets `value`. Needs no read.
    ///
    /// # Errors
    /// As all writes: `InvalidArgument` (limits), `NotFound` (dropped tree), `ReadOnly`, lock errors, `Conflict`,
    /// `NoSpace`, `Poisoned`, `Closed`.
    pub fn put(&self, _tree: &Tree, _key: &[u8], _value: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    /// `key` gets `value`.
    ///
    /// # Errors
    /// `KeyExists` if it already has one; otherwise as [`Transaction::put`].
    pub fn insert(&self, _tree: &Tree, _key: &[u8], _value: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    /// `key` gets `value` unless it already has one. Needs no read.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn insert_if_absent(&self, _tree: &Tree, _key: &[u8], _value: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    /// `key` gets no value. Needs no read.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&self, _tree: &Tree, _key: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    /// `key` gets no value; whether it had one. Reads.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_existing(&self, _tree: &Tree, _key: &[u8]) -> Result<bool> {
        Err(super::not_built())
    }

    /// `key`, which has been put exactly once since it last had no value, gets no value: the cheapest
    /// delete. Needs no read.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn single_delete(&self, _tree: &Tree, _key: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    /// The value of `key` changes by an encoded update program. Needs no read.
    ///
    /// # Errors
    /// As [`Transaction::put`]; `InvalidArgument` when the program is malformed.
    pub fn update(&self, _tree: &Tree, _key: &[u8], _program: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    /// All keys from `lower` (included) to `upper` (excluded; empty: to the end of the tree) get no value, at a cost
    /// that does not depend on their number. Locks the range.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete_range(&self, _tree: &Tree, _lower: &[u8], _upper: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    /// All writes of a batch as one: on an error none of them has happened. The fast way to write.
    ///
    /// # Errors
    /// As [`Transaction::put`] and [`Transaction::insert`]; see [`Transaction::failed_operation`].
    pub fn write(&self, _batch: &WriteBatch) -> Result<()> {
        Err(super::not_built())
    }

    /// Which write of the last batch failed (from 0), if its failure is that of one write: a taken key, a lock.
    pub fn failed_operation(&self) -> Option<usize> {
        None
    }

    // Ending, wholly or in part.

    /// Sets a mark to roll back to. Costs nothing.
    ///
    /// # Errors
    /// `Closed`.
    pub fn savepoint(&self) -> Result<Savepoint> {
        Err(super::not_built())
    }

    /// Undoes everything since `savepoint`, which stays set; later marks are gone. Takes constant time. Locks
    /// taken since are kept.
    ///
    /// # Errors
    /// `NotFound` when the mark is gone; `Closed`, `Poisoned`.
    pub fn rollback_to(&self, _savepoint: Savepoint) -> Result<()> {
        Err(super::not_built())
    }

    /// Forgets a mark and all later ones; what was done since stays.
    ///
    /// # Errors
    /// `NotFound` when the mark is gone; `Closed`.
    pub fn release(&self, _savepoint: Savepoint) -> Result<()> {
        Err(super::not_built())
    }

    /// First phase of a distributed commit: from now on the transaction survives crashes, with its locks, until
    /// [`crate::Database::commit_prepared`] or [`crate::Database::rollback_prepared`] decides it. Durable on return. The
    /// external id is 1 to 128 bytes.
    ///
    /// # Errors
    /// `KeyExists` when the external id is in use, `InvalidArgument`, `NoSpace`, `Poisoned`; the transaction is then
    /// rolled back.
    pub fn prepare(self, _xid: &[u8]) -> Result<()> {
        Err(super::not_built())
    }

    /// Makes everything visible to others and durable as asked. Takes constant time.
    ///
    /// # Errors
    /// `Poisoned` when the log fails: whether the commit survives shows after reopening. `Closed` after `Deadlock`.
    pub fn commit(self) -> Result<()> {
        Err(super::not_built())
    }

    /// Undoes everything. Takes constant time.
    ///
    /// # Errors
    /// None in practice: a rollback that cannot be logged is found out by recovery.
    pub fn rollback(self) -> Result<()> {
        Err(super::not_built())
    }
}
