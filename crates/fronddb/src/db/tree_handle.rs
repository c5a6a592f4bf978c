//! What names a tree to its users.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::options::TreeOptions;
use crate::base::compress::Codec;
use crate::base::{Error, ErrorKind, Result, TreeId};
use crate::run::TreeTraffic;

/// A tree of an open database: a name, its id and its options as they were when it was opened. A cheap clone.
///
/// It stays valid until the tree is dropped; after that every use is `NotFound`. Renaming does not invalidate it. With another
/// database, or after its own is closed, every use is `Closed`.
#[derive(Debug, Clone)]
pub struct Tree {
    pub(crate) inner: Arc<TreeInner>,
}

#[derive(Debug)]
pub(crate) struct TreeInner {
    /// Which opening of a database made it, see [`super::catalog`].
    pub(crate) opening: u64,
    pub(crate) id: TreeId,
    pub(crate) name: String,
    pub(crate) options: TreeOptions,
    /// Shared by all handles of the tree; set when a drop of it commits, or its creation is undone.
    pub(crate) dropped: Arc<AtomicBool>,
}

impl Tree {
    /// Its number, never used again after it is dropped.
    pub fn id(&self) -> TreeId {
        self.inner.id
    }

    /// Its name when it was opened.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its options when it was opened.
    pub fn options(&self) -> &TreeOptions {
        &self.inner.options
    }

    #[cfg(test)]
    pub(crate) fn for_tests(id: TreeId, name: &str, options: TreeOptions) -> Tree {
        Tree { inner: Arc::new(TreeInner { opening: 0, id, name: name.to_owned(), options, dropped: Arc::default() }) }
    }
}

impl TreeInner {
    /// Fails with `NotFound` once it is dropped.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) { Err(no_tree(&self.name)) } else { Ok(()) }
    }
}

/// The error for a tree that does not exist.
pub(crate) fn no_tree(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("no such tree, name={name}"))
}

/// A row of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeInfo {
    /// Its number.
    pub id: TreeId,
    /// Its name.
    pub name: String,
    /// Its codec.
    pub codec: Codec,
    /// Bytes of its owner's metadata.
    pub metadata_bytes: usize,
    /// What has been written for it since the database was opened.
    pub traffic: TreeTraffic,
}

/// About how much a range of keys holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RangeEstimate {
    /// Rows.
    pub rows: u64,
    /// Bytes as stored; what is in memory alone, as it was given.
    pub bytes: u64,
    /// Of these, what values take that are kept apart, also such as are gone and not given back yet.
    pub blob_bytes: u64,
}
