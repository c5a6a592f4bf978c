//! Many writes at once: one log record, whatever their number and trees, up to 1 MiB.
//!
//! A batch is one buffer: each write is a header of [`HEADER_BYTES`] and its inner key and payload, so that
//! locking, logging and level 0 read it without another copy. It remembers which trees it names, once each.

use std::sync::Arc;

use smallvec::SmallVec;

use super::tree_handle::{Tree, TreeInner};
use crate::base::key::{PREFIX_BYTES, check_key, check_value};
use crate::base::{Error, Result, TreeId};
use crate::format::{Kind, program};

/// Kind, flags, length of the inner key, length of the payload.
const HEADER_BYTES: usize = 10;
const COVERED: u8 = 1;
const UNIQUE: u8 = 2;
const SHARING: u8 = 4;
/// Trees remembered from earlier fillings.
const TREES_KEPT: usize = 16;
/// Longest update program, in bytes.
pub(crate) const PROGRAM_BYTES_MAX: usize = 1 << 20;

/// Writes to any number of trees, applied in order and as one by [`crate::Transaction::write`] or
/// [`crate::Database::write`]. Reuse it: [`WriteBatch::clear`] keeps its memory.
///
/// Each write takes an exclusive lock on its key, unless it is *covered*: the caller says by
/// [`WriteBatch::set_covered`] that a lock on another key (the row's, for an entry of a secondary index) keeps
/// everybody else from this one. Cursors that lock what they read meet covered writes all the same: they wait for
/// those that are not decided, and a covered write waits for the range locks of others.
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    count: usize,
    covered: bool,
    sharing: bool,
    is_relief: bool,
    trees: SmallVec<[NamedTree; 4]>,
}

/// A tree that the batch names, or named before it was cleared.
#[derive(Debug, Clone)]
struct NamedTree {
    tree: Arc<TreeInner>,
    used: bool,
    /// Some of its writes are covered.
    covered: bool,
}

/// One write of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    pub(crate) kind: Kind,
    /// A lock on another key covers it.
    pub(crate) covered: bool,
    /// The key must not have a value.
    pub(crate) unique: bool,
    /// A value that it has is not going to be written by who is told of it.
    pub(crate) sharing: bool,
    /// Inner key.
    pub(crate) key: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl<'a> Write<'a> {
    pub(crate) fn tree(&self) -> TreeId {
        crate::base::key::tree_of(self.key)
    }

    pub(crate) fn user_key(&self) -> &'a [u8] {
        self.key.get(PREFIX_BYTES..).unwrap_or_default()
    }
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
        (self.covered, self.sharing, self.is_relief) = (false, false, false);
        if self.trees.len() > TREES_KEPT {
            self.trees.clear();
        }
        for named in &mut self.trees {
            (named.used, named.covered) = (false, false);
        }
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

    /// Bytes of keys and payloads, as their user gave them.
    pub(crate) fn user_bytes(&self) -> u64 {
        (self.bytes.len() - self.count * (HEADER_BYTES + PREFIX_BYTES)) as u64
    }

    /// Memory held, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether writes added from now on are covered by a lock on another key.
    pub fn set_covered(&mut self, covered: bool) {
        self.covered = covered;
    }

    /// Whether a key that an insertion added from now on finds taken is left locked shared, and not exclusive: for who is told so
    /// and does not go on to write it. Several who insert a key that exists then do not wait for each other.
    pub fn set_sharing(&mut self, sharing: bool) {
        self.sharing = sharing;
    }

    /// `key` gets `value`. Needs no read.
    ///
    /// # Errors
    /// `InvalidArgument` when key or value is past its limit; so for all writes below.
    pub fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        check_value(value)?;
        self.add(Kind::Put, 0, tree, key, value)
    }

    /// `key` gets `value`; the whole batch fails with `KeyExists` if it already has one.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        check_value(value)?;
        self.add(Kind::Put, UNIQUE, tree, key, value)
    }

    /// `key` gets `value` unless it already has one. Needs no read, unless the value is as long as
    /// [`crate::Options::blob_bytes_min`]: then whether the key has one is looked up before the value is written.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn insert_if_absent(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        check_value(value)?;
        self.add(Kind::InsertIfAbsent, 0, tree, key, value)
    }

    /// `key` gets no value. Needs no read.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, tree: &Tree, key: &[u8]) -> Result<()> {
        self.add(Kind::Delete, 0, tree, key, &[])
    }

    /// `key`, which has been put exactly once since it last had no value, gets no value: the cheapest
    /// delete, for keys that know no plain deletes, updates and blind inserts, as entries of secondary indexes. Needs no read. See
    /// [`crate::Transaction::single_delete`] for what becomes of others.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn single_delete(&mut self, tree: &Tree, key: &[u8]) -> Result<()> {
        self.add(Kind::SingleDelete, 0, tree, key, &[])
    }

    /// The value of `key` changes by an encoded update program (`fronddb::Program`). Needs no read.
    ///
    /// # Errors
    /// As [`WriteBatch::put`]; `InvalidArgument` when the program is malformed or longer than 1 MiB, or reaches past
    /// [`UPDATE_REACH_BYTES_MAX`](crate::UPDATE_REACH_BYTES_MAX).
    pub fn update(&mut self, tree: &Tree, key: &[u8], program: &[u8]) -> Result<()> {
        if program.len() > PROGRAM_BYTES_MAX {
            return Err(Error::invalid(format!("update program too long, bytes={}", program.len())));
        }
        program::Program::decode(program).map_err(|error| Error::invalid(error.message().to_owned()))?.check()?;
        self.add(Kind::Update, 0, tree, key, program)
    }

    fn add(&mut self, kind: Kind, flags: u8, tree: &Tree, key: &[u8], payload: &[u8]) -> Result<()> {
        check_key(key)?;
        self.use_tree(tree);
        let flags = flags | if self.covered { COVERED } else { 0 } | if self.sharing { SHARING } else { 0 };
        self.bytes.reserve(HEADER_BYTES + PREFIX_BYTES + key.len() + payload.len());
        self.bytes.extend_from_slice(&[kind as u8, flags]);
        self.bytes.extend_from_slice(&((PREFIX_BYTES + key.len()) as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&tree.id().0.to_be_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
        self.count += 1;
        Ok(())
    }

    #[inline]
    fn use_tree(&mut self, tree: &Tree) {
        let covered = self.covered;
        match self.trees.iter_mut().find(|named| Arc::ptr_eq(&named.tree, &tree.inner)) {
            Some(named) => {
                named.used = true;
                named.covered |= covered;
            }
            None => self.trees.push(NamedTree { tree: tree.inner.clone(), used: true, covered }),
        }
    }

    /// The trees that its writes name.
    pub(crate) fn trees(&self) -> impl Iterator<Item = &Arc<TreeInner>> {
        self.trees.iter().filter(|named| named.used).map(|named| &named.tree)
    }

    /// Those into which it writes without locking the keys.
    pub(crate) fn covered_trees(&self) -> impl Iterator<Item = &Arc<TreeInner>> {
        self.trees.iter().filter(|named| named.covered).map(|named| &named.tree)
    }

    /// Lets it in on a full disk as if all of its writes took rows away. For a few small ones without which something would stay half done.
    pub(crate) fn let_in_as_deletes(&mut self) {
        self.is_relief = true;
    }

    /// Whether all of its writes take rows away, or count as such.
    pub(crate) fn deletes_only(&self) -> bool {
        self.is_relief || self.writes().all(|write| matches!(write.kind, Kind::Delete | Kind::SingleDelete))
    }

    /// The writes, in order.
    pub(crate) fn writes(&self) -> Writes<'_> {
        Writes { rest: &self.bytes }
    }
}

/// Iterates over the writes of a batch.
#[derive(Debug, Clone)]
pub(crate) struct Writes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Writes<'a> {
    type Item = Write<'a>;

    #[inline]
    fn next(&mut self) -> Option<Write<'a>> {
        let (header, rest) = self.rest.split_first_chunk::<HEADER_BYTES>()?;
        let [kind, flags, k0, k1, k2, k3, p0, p1, p2, p3] = *header;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes([k0, k1, k2, k3]) as usize)?;
        let (payload, rest) = rest.split_at_checked(u32::from_le_bytes([p0, p1, p2, p3]) as usize)?;
        self.rest = rest;
        let kind = Kind::from_number(kind).ok()?;
        let (covered, unique, sharing) = (flags & COVERED != 0, flags & UNIQUE != 0, flags & SHARING != 0);
        Some(Write { kind, covered, unique, sharing, key, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::options::TreeOptions;

    #[test]
    fn writes_come_back_as_they_were_added() {
        let tree = Tree::for_tests(TreeId(7), "t", TreeOptions::default());
        let mut batch = WriteBatch::new();
        batch.set_sharing(true);
        batch.insert(&tree, b"a", b"1").expect("within limits");
        batch.set_sharing(false);
        batch.set_covered(true);
        batch.single_delete(&tree, b"bb").expect("within limits");
        let writes: Vec<_> = batch.writes().collect();
        assert_eq!(writes.len(), 2);
        assert!(writes[0].unique && !writes[0].covered && writes[0].key == b"\0\0\0\x07a" && writes[0].payload == b"1");
        assert!(writes[0].sharing && !writes[1].sharing);
        assert!(writes[1].covered && writes[1].kind == Kind::SingleDelete && writes[1].user_key() == b"bb");
        batch.clear();
        assert_eq!((batch.len(), batch.writes().count(), batch.trees().count()), (0, 0, 0));
    }

    #[test]
    fn a_write_past_a_limit_changes_nothing() {
        let tree = Tree::for_tests(TreeId(1), "t", TreeOptions::default());
        let mut batch = WriteBatch::new();
        assert!(batch.put(&tree, &vec![0; crate::base::key::KEY_BYTES_MAX + 1], b"").is_err());
        assert!(batch.is_empty() && batch.bytes() == 0);
    }
}
