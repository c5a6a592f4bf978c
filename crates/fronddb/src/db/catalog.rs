//! The catalog: which trees there are.
//!
//! Owns the layout of tree 0, where each tree has two rows, and what this process remembers of them. The rows are
//! written by ordinary transactional messages, so creating, renaming and dropping commit, roll back, crash
//! and recover like everything else.
//!
//! | key | value |
//! |---|---|
//! | `n` ‖ name | version (1), tree id (varint), codec tag, zstd level (i8), metadata (to the end) |
//! | `i` ‖ tree id (u32, big endian) | name |
//!
//! # What is remembered
//!
//! Handles of committed trees by name, filled when a tree is opened, so that opening a database with thousands
//! of trees reads none of them. A transaction keeps its own changes ([`CatalogChanges`]) and applies them to what is
//! remembered when it commits.
//!
//! - C1: what is remembered is committed. An entry read from the tree is kept only if no change was applied
//!   meanwhile (`epoch`).
//! - C2: all handles of a tree share one `dropped` flag, found by id (`flags`).
//! - C3: a handle serves the opening of a database that it was made by, and no other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::options::TreeOptions;
use super::tree_handle::{Tree, TreeInner};
use crate::base::codec::{Decoder, put_varint};
use crate::base::compress::Codec;
use crate::base::sync::Mutex;
use crate::base::{Error, ErrorKind, Result, TreeId};

/// The tree that holds the catalog.
pub(crate) const CATALOG: TreeId = TreeId(0);
/// The first tree of a user.
pub(crate) const FIRST_TREE: u32 = 1;
/// Longest name of a tree, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 1 << 10;
/// Longest metadata of a tree, in bytes.
pub(crate) const METADATA_BYTES_MAX: usize = 16 << 20;

const ROW_VERSION: u8 = 1;
const BY_NAME: u8 = b'n';
const BY_ID: u8 = b'i';
/// Handles remembered by name; past it all are forgotten and read again.
const REMEMBERED_MAX: usize = 4096;

/// Key of the row of the tree called `name`.
pub(crate) fn name_key(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(BY_NAME);
    key.extend_from_slice(name.as_bytes());
    key
}

/// What all keys of rows by id begin with.
pub(crate) fn id_prefix() -> Vec<u8> {
    vec![BY_ID]
}

/// Key of the row that names tree `id`.
pub(crate) fn id_key(id: TreeId) -> Vec<u8> {
    let mut key = vec![BY_ID];
    key.extend_from_slice(&id.0.to_be_bytes());
    key
}

/// The tree id in a key of the catalog, if it is that of a row by id.
pub(crate) fn id_of_key(key: &[u8]) -> Option<TreeId> {
    let id: [u8; 4] = key.strip_prefix(&[BY_ID])?.try_into().ok()?;
    Some(TreeId(u32::from_be_bytes(id)))
}

/// The name in a key of a row by name.
pub(crate) fn name_of_key(key: &[u8]) -> Result<String> {
    let name = key.strip_prefix(&[BY_NAME]).and_then(|name| std::str::from_utf8(name).ok());
    name.map(str::to_owned).ok_or_else(|| Error::corruption("catalog key is malformed, tree=0"))
}

/// Checks a tree's name and options against their limits.
pub(crate) fn check(name: &str, options: &TreeOptions) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(Error::invalid(format!("tree name out of range, bytes={} bytes_max={NAME_BYTES_MAX}", name.len())));
    }
    if options.metadata.len() > METADATA_BYTES_MAX {
        return Err(Error::invalid(format!(
            "tree metadata too long, bytes={} bytes_max={METADATA_BYTES_MAX}",
            options.metadata.len()
        )));
    }
    options.codec.map_or(Ok(()), Codec::check)
}

/// A row by name, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: TreeId,
    pub(crate) codec: Codec,
    pub(crate) metadata: Vec<u8>,
}

impl Row {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.metadata.len());
        out.push(ROW_VERSION);
        put_varint(&mut out, u64::from(self.id.0));
        let level = if let Codec::Zstd { level } = self.codec { level } else { 0 };
        out.extend_from_slice(&[self.codec.tag(), level as u8]);
        out.extend_from_slice(&self.metadata);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Row> {
        let mut decoder = Decoder::new(bytes);
        let version = decoder.u8()?;
        if version != ROW_VERSION {
            return Err(Error::new(
                ErrorKind::UnsupportedFormat,
                format!("catalog row of an unknown version, found={version} known={ROW_VERSION}"),
            ));
        }
        let id = TreeId(decoder.varint_u32()?);
        let (tag, level) = (decoder.u8()?, decoder.u8()? as i8);
        let codec = match tag {
            0 => Codec::None,
            1 => Codec::Lz4,
            2 => Codec::Zstd { level },
            _ => return Err(Error::corruption(format!("catalog row with unknown codec, tag={tag}"))),
        };
        Ok(Row { id, codec, metadata: decoder.rest().to_vec() })
    }

    pub(crate) fn options(&self) -> TreeOptions {
        TreeOptions { codec: Some(self.codec), metadata: self.metadata.clone() }
    }
}

/// What a transaction has changed in the catalog and not yet committed.
#[derive(Debug, Default)]
pub(crate) struct CatalogChanges {
    /// By name: what it now stands for. Steps say which savepoint undoes them.
    log: Vec<(u32, Change)>,
}

/// One change, with the step of the transaction that made it.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// A name now means this tree.
    Named(String, Tree),
    /// A name now means nothing.
    Unnamed(String),
    /// A tree is gone.
    Dropped(TreeId),
    /// A tree has another codec.
    Codec(TreeId, Codec),
    /// A tree has been created.
    Created(TreeId, Codec),
    /// Any name may mean something else now.
    AnyName,
}

impl CatalogChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    pub(crate) fn push(&mut self, step: u32, change: Change) {
        self.log.push((step, change));
    }

    /// What `name` means to the transaction, if it changed that.
    pub(crate) fn find(&self, name: &str) -> Option<Option<Tree>> {
        self.log.iter().rev().find_map(|(_, change)| match change {
            Change::Named(changed, tree) if changed == name => Some(Some(tree.clone())),
            Change::Unnamed(changed) if changed == name => Some(None),
            _ => None,
        })
    }

    /// True when the transaction has dropped the tree.
    pub(crate) fn has_dropped(&self, id: TreeId) -> bool {
        self.log.iter().any(|(_, change)| matches!(change, Change::Dropped(dropped) if *dropped == id))
    }

    /// Forgets the changes of steps from `step` on and returns the trees that are thereby not created.
    pub(crate) fn undo_from(&mut self, step: u32) -> Vec<TreeId> {
        let undone = self.log.iter().filter(|(made, _)| *made >= step).filter_map(|(_, change)| match change {
            Change::Created(id, _) => Some(*id),
            _ => None,
        });
        let created = undone.collect();
        self.log.retain(|(made, _)| *made < step);
        created
    }
}

#[derive(Debug, Default)]
struct Remembered {
    epoch: u64,
    by_name: HashMap<String, Tree>,
    flags: HashMap<TreeId, Weak<AtomicBool>>,
}

/// What this process remembers of the catalog.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// Its number among all that this process has had, which its handles bear (C3).
    opening: u64,
    remembered: Mutex<Remembered>,
}

impl Default for Catalog {
    fn default() -> Catalog {
        static OPENINGS: AtomicU64 = AtomicU64::new(1);
        Catalog { opening: OPENINGS.fetch_add(1, Ordering::Relaxed), remembered: Mutex::default() }
    }
}

impl Catalog {
    /// Fails with `NotFound` once the tree is dropped, and with `Closed` when it is another database's, or of an earlier opening of
    /// this one.
    #[inline]
    pub(crate) fn check(&self, tree: &TreeInner) -> Result<()> {
        if tree.opening == self.opening { tree.check() } else { Err(foreign(tree)) }
    }

    /// The handle of a committed tree, if it is remembered.
    pub(crate) fn find(&self, name: &str) -> Option<Tree> {
        self.remembered.lock().by_name.get(name).cloned()
    }

    /// To be taken before a row is read and given to [`Catalog::remember`].
    pub(crate) fn epoch(&self) -> u64 {
        self.remembered.lock().epoch
    }

    /// A handle for a tree.
    pub(crate) fn handle(&self, name: &str, row: &Row) -> Tree {
        let mut remembered = self.remembered.lock();
        let flags = &mut remembered.flags;
        let dropped = match flags.get(&row.id).and_then(Weak::upgrade) {
            Some(flag) => flag,
            None => {
                let flag = Arc::new(AtomicBool::new(false));
                if flags.len() >= REMEMBERED_MAX && flags.len().is_power_of_two() {
                    flags.retain(|_, flag| flag.strong_count() > 0);
                }
                flags.insert(row.id, Arc::downgrade(&flag));
                flag
            }
        };
        let (opening, name, options) = (self.opening, name.to_owned(), row.options());
        Tree { inner: Arc::new(TreeInner { opening, id: row.id, name, options, dropped }) }
    }

    /// Remembers a committed tree that was read at `epoch`; false when something has changed since (C1).
    pub(crate) fn remember(&self, epoch: u64, tree: &Tree) -> bool {
        let mut remembered = self.remembered.lock();
        if remembered.epoch != epoch {
            return false;
        }
        if remembered.by_name.len() >= REMEMBERED_MAX {
            remembered.by_name.clear();
        }
        remembered.by_name.insert(tree.name().to_owned(), tree.clone());
        true
    }

    /// Applies the changes of a transaction that has committed; returns the codecs that changed, none for trees that are gone.
    pub(crate) fn commit(&self, changes: &CatalogChanges) -> Vec<(TreeId, Option<Codec>)> {
        let mut remembered = self.remembered.lock();
        remembered.epoch += 1;
        let mut codecs = Vec::new();
        for (_, change) in &changes.log {
            match change {
                Change::Named(name, _) | Change::Unnamed(name) => {
                    remembered.by_name.remove(name);
                }
                Change::Dropped(id) => {
                    set_dropped(&mut remembered, *id);
                    codecs.push((*id, None));
                }
                Change::Codec(id, codec) => {
                    remembered.by_name.retain(|_, tree| tree.id() != *id);
                    codecs.push((*id, Some(*codec)));
                }
                Change::Created(id, codec) => codecs.push((*id, Some(*codec))),
                Change::AnyName => remembered.by_name.clear(),
            }
        }
        codecs
    }

    /// Trees whose creation was undone.
    pub(crate) fn undo(&self, created: &[TreeId]) {
        let mut remembered = self.remembered.lock();
        created.iter().for_each(|id| set_dropped(&mut remembered, *id));
    }
}

#[cold]
fn foreign(tree: &TreeInner) -> Error {
    Error::new(
        ErrorKind::Closed,
        format!("the handle of a tree is another opening's of a database, name={}", tree.name),
    )
}

fn set_dropped(remembered: &mut Remembered, id: TreeId) {
    if let Some(flag) = remembered.flags.remove(&id).and_then(|flag| flag.upgrade()) {
        flag.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_back() {
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd { level: -3 }] {
            let row = Row { id: TreeId(300), codec, metadata: b"meta".to_vec() };
            assert_eq!(Row::decode(&row.encode()).ok(), Some(row));
        }
        assert_eq!(Row::decode(&[9, 1, 0, 0]).map_err(|error| error.kind()), Err(ErrorKind::UnsupportedFormat));
        assert!(Row::decode(&[]).is_err());
    }

    #[test]
    fn keys_name_what_they_are_made_of() {
        assert_eq!(id_of_key(&id_key(TreeId(5))), Some(TreeId(5)));
        assert_eq!(id_of_key(&name_key("i")), None);
        assert_eq!(name_of_key(&name_key("x")).ok().as_deref(), Some("x"));
    }

    #[test]
    fn changes_are_undone_by_step() {
        let mut changes = CatalogChanges::default();
        let tree = Tree::for_tests(TreeId(1), "a", TreeOptions::default());
        changes.push(0, Change::Named("a".into(), tree));
        changes.push(2, Change::Created(TreeId(9), Codec::None));
        changes.push(2, Change::Unnamed("a".into()));
        assert!(matches!(changes.find("a"), Some(None)));
        assert_eq!(changes.undo_from(1), vec![TreeId(9)]);
        assert!(matches!(changes.find("a"), Some(Some(_))));
        assert!(changes.find("b").is_none());
    }
}
