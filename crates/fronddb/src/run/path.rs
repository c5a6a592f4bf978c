//! A place in the index of a run: which entry block, and its neighbours in both directions.

use super::Run;
use super::counters::Event;
use crate::base::key::KeyRange;
use crate::base::{BlockPtr, Error, Result, TreeId, key};
use crate::cache::Priority;
use crate::format::block::{EntryBlock, Held, IndexBlock, IndexEntry};
use std::cmp::Ordering;
use std::sync::Arc;

/// Who goes through an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// A read of one key.
    Point,
    /// A short scan, or whoever comes back.
    Scan,
    /// A scan that goes on and on.
    LongScan,
    /// A compaction or a scan that fills no cache.
    Bulk,
}

impl Access {
    /// As what blocks that have to be read are counted.
    pub(super) fn cause(self) -> Event {
        if self == Access::Point { Event::BlockReadMetaPoint } else { Event::BlockReadMeta }
    }

    /// How blocks stay in the cache; none: they do not come there.
    pub(super) fn priority(self) -> Option<Priority> {
        match self {
            Access::Point | Access::Scan => Some(Priority::High),
            Access::LongScan => Some(Priority::Low),
            Access::Bulk => None,
        }
    }
}

/// How a path comes by its blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) access: Access,
    /// A path of the same run whose blocks need not be read again.
    pub(super) from: Option<&'a IndexPath>,
}

impl From<Access> for Way<'_> {
    fn from(access: Access) -> Self {
        Way { access, from: None }
    }
}

/// Stands on an entry of the lower (or only) index level.
#[derive(Debug, Clone)]
pub(super) struct IndexPath {
    /// The upper level and the entry in it, when there are two.
    top: Option<(Arc<IndexBlock>, usize)>,
    leaf: Arc<IndexBlock>,
    at: usize,
    access: Access,
}

impl IndexPath {
    fn open(run: &Run, way: Way<'_>, choose: impl Fn(&IndexBlock) -> usize) -> Result<IndexPath> {
        let access = way.access;
        let root = run.top_index(access)?;
        if root.level() == 0 {
            let at = choose(&root);
            return Ok(IndexPath { top: None, leaf: root, at, access });
        }
        let part = choose(&root);
        let known = way.from.and_then(|path| path.lower_at(root.ptr(part)));
        let leaf = known.map_or_else(|| lower(run, &root, part, access), Ok)?;
        let at = choose(&leaf);
        Ok(IndexPath { top: Some((root, part)), leaf, at, access })
    }

    /// The lower index block at `ptr`, if it stands in that.
    fn lower_at(&self, ptr: BlockPtr) -> Option<Arc<IndexBlock>> {
        let (top, part) = self.top.as_ref()?;
        (top.ptr(*part) == ptr).then(|| self.leaf.clone())
    }

    /// The block where a search for `key` begins ([`IndexBlock::find`]).
    #[inline]
    pub(super) fn seek(run: &Run, key: &[u8]) -> Result<IndexPath> {
        IndexPath::seek_by(run, Access::Scan.into(), key)
    }

    /// The same for a point read.
    #[inline]
    pub(super) fn seek_point(run: &Run, key: &[u8]) -> Result<IndexPath> {
        IndexPath::seek_by(run, Access::Point.into(), key)
    }

    /// The same in another way.
    #[inline]
    pub(super) fn seek_by(run: &Run, way: Way<'_>, key: &[u8]) -> Result<IndexPath> {
        IndexPath::open(run, way, |index| index.find(key))
    }

    /// The first block.
    pub(super) fn first(run: &Run, way: Way<'_>) -> Result<IndexPath> {
        IndexPath::open(run, way, |_| 0)
    }

    /// The last block.
    pub(super) fn last(run: &Run, way: Way<'_>) -> Result<IndexPath> {
        IndexPath::open(run, way, |index| index.count() - 1)
    }

    /// Goes to the next block; false, and stays, at the last one.
    pub(super) fn next(&mut self, run: &Run) -> Result<bool> {
        if self.at + 1 < self.leaf.count() {
            self.at += 1;
            return Ok(true);
        }
        match &mut self.top {
            Some((top, part)) if *part + 1 < top.count() => {
                self.leaf = lower(run, top, *part + 1, self.access)?;
                *part += 1;
                self.at = 0;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Goes to the previous block; false, and stays, at the first one.
    pub(super) fn prev(&mut self, run: &Run) -> Result<bool> {
        if self.at > 0 {
            self.at -= 1;
            return Ok(true);
        }
        match &mut self.top {
            Some((top, part)) if *part > 0 => {
                self.leaf = lower(run, top, *part - 1, self.access)?;
                *part -= 1;
                self.at = self.leaf.count() - 1;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// True when no block that follows (precedes, if `backward`) may have keys of `range`.
    pub(super) fn is_last_of(&self, backward: bool, range: &KeyRange) -> bool {
        if backward {
            let (own, lower) = (self.separator(), range.lower.as_slice());
            return own < lower || (own == lower && !self.entry().continues);
        }
        let is_behind = |next: &[u8]| range.upper.as_deref().is_some_and(|upper| next >= upper);
        self.next_separator().is_none_or(is_behind)
    }

    /// True when the block that follows may have messages of `key`, which is not below its own.
    pub(super) fn goes_on(&self, key: &[u8]) -> bool {
        self.next_separator().is_some_and(|next| next <= key)
    }

    /// The separator of the block that follows, if there is one.
    fn next_separator(&self) -> Option<&[u8]> {
        match &self.top {
            _ if self.at + 1 < self.leaf.count() => Some(self.leaf.separator(self.at + 1)),
            Some((top, part)) if *part + 1 < top.count() => Some(top.separator(*part + 1)),
            _ => None,
        }
    }

    /// True when all keys of its block are at or above `key`.
    pub(super) fn is_above(&self, key: &[u8]) -> bool {
        self.separator() >= key && !self.entry().continues
    }

    /// Its entry.
    #[inline]
    pub(super) fn entry(&self) -> IndexEntry {
        self.leaf.entry(self.at)
    }

    /// Where its block is.
    #[inline]
    pub(super) fn ptr(&self) -> BlockPtr {
        self.leaf.ptr(self.at)
    }

    /// Its block, if readers left it here in this phase of the cache and it still is in memory.
    #[inline]
    pub(super) fn remembered(&self, phase: u8) -> Option<Arc<EntryBlock>> {
        self.leaf.remembered(self.at, phase)
    }

    /// Leaves its block here for readers to come.
    pub(super) fn remember(&self, phase: u8, block: &Arc<EntryBlock>) {
        self.leaf.remember(self.at, phase, block);
    }

    /// Its separator.
    pub(super) fn separator(&self) -> &[u8] {
        self.leaf.separator(self.at)
    }

    /// The tree of its first messages, to name in errors.
    pub(super) fn tree(&self) -> TreeId {
        key::tree_of(self.separator())
    }

    /// What the run holds up to the end of its block.
    pub(super) fn held_until(&self) -> Held {
        self.leaf.held_until(self.at)
    }

    /// True when `key`, which is not below its block, is not above it either, as far as this index block can tell.
    pub(super) fn reaches(&self, key: &[u8]) -> bool {
        match self.leaf.count() - 1 - self.at {
            0 => self.top.is_none(),
            _ => key <= self.leaf.separator(self.at + 1),
        }
    }

    /// The blocks that follow it in this index block (or precede it, if `backward`), nearest first, itself included; of
    /// the others those that may have keys of `range`.
    pub(super) fn neighbours<'a>(&'a self, backward: bool, range: &'a KeyRange) -> impl Iterator<Item = BlockPtr> + 'a {
        let (leaf, here) = (&self.leaf, self.at);
        let count = if backward { here + 1 } else { leaf.count() - here };
        let is_wanted = move |at: usize| match at.cmp(&here) {
            Ordering::Less => leaf.separator(at + 1) > range.lower.as_slice(),
            Ordering::Equal => true,
            Ordering::Greater => range.upper.as_deref().is_none_or(|upper| leaf.separator(at) < upper),
        };
        let places = (0..count).map(move |step| if backward { here - step } else { here + step });
        places.take_while(move |at| is_wanted(*at)).map(|at| leaf.ptr(at))
    }
}

impl Run {
    /// Where the block behind those of `key` begins, above `key`, or the first if `key` lies before all; none behind the last, and where
    /// the index does not tell.
    pub fn border_after(&self, key: &[u8]) -> Option<Vec<u8>> {
        if self.meta.messages == 0 || key < self.meta.first_key.as_slice() {
            return (self.meta.messages > 0).then(|| self.meta.first_key.clone());
        }
        // A key may go on in blocks of which it is the separator.
        let after = [key, &[0]].concat();
        match IndexPath::seek(self, &after) {
            Ok(path) => path.next_separator().map(<[u8]>::to_vec),
            Err(_) => {
                let top = self.top_index(Access::Scan).ok()?;
                let next = top.find(&after) + 1;
                (next < top.count()).then(|| top.separator(next).to_vec())
            }
        }
    }
}

fn lower(run: &Run, top: &IndexBlock, part: usize, access: Access) -> Result<Arc<IndexBlock>> {
    let ptr = top.ptr(part);
    let leaf = run.index(ptr, access)?;
    if leaf.level() != 0 {
        let error = Error::corruption(format!("index block of the wrong level, level={}", leaf.level()));
        return Err(run.located_in(error, ptr, run.trees(), "damaged index"));
    }
    Ok(leaf)
}
