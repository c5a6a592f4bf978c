//! Many writes at once: one log record, whatever their number and trees.

use super::tree_handle::Tree;
use crate::base::Result;

/// Writes to any number of trees, applied in order and as one by [`crate::Transaction::write`] or
/// [`crate::Database::write`]. Reuse it: [`WriteBatch::clear`] keeps its memory.
///
/// Each write takes an exclusive lock on its key, unless it is *covered*: the caller says by
/// [`WriteBatch::set_covered`] that a lock on another key (the row's, for an entry of a secondary index) keeps
/// everybody else from this one.
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    count: usize,
    covered: bool,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Removes all writes, keeps the memory, and makes further writes lock again.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.covered = false;
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True without a write.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Memory that the writes take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether writes added from now on are covered by a lock on another key.
    pub fn set_covered(&mut self, covered: bool) {
        self.covered = covered;
    }

    /// `key` gets `value`. Needs no read.
    ///
    /// # Errors
    /// `InvalidArgument` when key or value is past its limit; so for all writes below.
    pub fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(tree, key, value)
    }

    /// `key` gets `value`; the whole batch fails with `KeyExists` if it already has one.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(tree, key, value)
    }

    /// `key` gets `value` unless it already has one. Needs no read.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn insert_if_absent(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(tree, key, value)
    }

    /// `key` gets no value. Needs no read.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, tree: &Tree, key: &[u8]) -> Result<()> {
        self.add(tree, key, &[])
    }

    /// `key`, which has been put exactly once since it last had no value, gets no value: the cheapest
    /// delete, for entries of secondary indexes. Needs no read.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn single_delete(&mut self, tree: &Tree, key: &[u8]) -> Result<()> {
        self.add(tree, key, &[])
    }

    /// The value of `key` changes by an encoded update program. Needs no read.
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; `InvalidArgument` when the program is malformed.
    pub fn update(&mut self, tree: &Tree, key: &[u8], program: &[u8]) -> Result<()> {
        self.add(tree, key, program)
    }

    fn add(&mut self, _tree: &Tree, _key: &[u8], _payload: &[u8]) -> Result<()> {
        self.count += 1;
        Err(super::not_built())
    }
}
