//! An open run: point reads. Opening does no I/O; blocks come through the cache.
//!
//! A point read of a cached run is: key range → filter (one cache line; where it is [worth it](super::presence)) → index (binary search
//! by the first eight bytes of separators) → entry block (likewise). Filter and top index are reached by a [`Shortcut`] that
//! leaves the cache's table alone. While that has room for all, entry blocks that it was asked for are reached by their index likewise.

use super::counters::Event;
use super::path::{Access, IndexPath};
use super::presence::{self, Place};
use super::shortcut::Shortcut;
use super::{CursorMode, RunCounters, RunCursor};
use crate::base::key::KeyRange;
use crate::base::memory::{Charge, Purpose};
use crate::base::{BlockPtr, Error, Result, TreeId, key};
use crate::cache::{Cache, CachedBlock, Priority};
use crate::format::block::{EntryBlock, IndexBlock, RangeList};
use crate::format::filter::Filter;
use crate::format::{Kind, Message, RunMeta};
use crate::store::Store;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What a point read shows the messages it finds to: the message, its block and its number there.
pub type EntryVisitor<'v> = dyn FnMut(&Message<'_>, &Arc<EntryBlock>, usize) -> ControlFlow<()> + 'v;

/// An open run.
#[derive(Debug)]
pub struct Run {
    pub(super) meta: RunMeta,
    pub(super) store: Arc<Store>,
    pub(super) cache: Arc<Cache>,
    pub(super) counters: Arc<RunCounters>,
    front: Front,
    /// Messages of keys that have a newer one here, if it was written since the start.
    old_versions: AtomicU64,
    /// What is left of the range-deletes of a clipped run.
    ranges_left: OnceLock<Arc<RangeList>>,
    _charge: Charge,
}

/// What every point read of the run looks at, on one cache line; then its filter, which not all ask.
#[derive(Debug)]
#[repr(C, align(64))]
struct Front {
    /// [`head`](key::head)s of the first and the last key.
    heads: (u128, u128),
    is_empty: bool,
    is_clipped: bool,
    has_range_deletes: bool,
    /// No longer, once its filter could not be read: then any key may be here.
    has_filter: AtomicBool,
    top: Shortcut<IndexBlock>,
    filter: Shortcut<Filter>,
}

// Mutexes that a model checker steps through are larger.
#[cfg(not(feature = "schedules"))]
const _: () = assert!(std::mem::offset_of!(Front, filter) <= 64, "a read of a base looks at one line");

/// What the allocator and the reference count add to a run and its description.
const ALLOCATION_BYTES: usize = 64;

#[cold]
fn wrong_kind(what: &str, ptr: BlockPtr) -> Error {
    Error::internal(format!("the cache has another block where {what} should be, offset={}", ptr.offset))
}

impl Run {
    /// Opens a run.
    pub fn new(meta: RunMeta, store: &Arc<Store>, cache: &Arc<Cache>, counters: &Arc<RunCounters>) -> Arc<Run> {
        let bytes = size_of::<Run>() - size_of::<RunMeta>() + meta.memory_bytes() + ALLOCATION_BYTES;
        let charge = Charge::new(cache.budget(), Purpose::Metadata, bytes);
        let (store, cache, counters) = (Arc::clone(store), Arc::clone(cache), Arc::clone(counters));
        let front = Front {
            heads: (key::head(&meta.first_key), key::head(&meta.last_key)),
            is_empty: meta.messages == 0,
            is_clipped: meta.is_clipped(),
            has_range_deletes: meta.range_deletes > 0,
            has_filter: AtomicBool::new(!meta.filter.is_none()),
            top: Shortcut::default(),
            filter: Shortcut::default(),
        };
        let (old_versions, ranges_left) = (AtomicU64::new(0), OnceLock::new());
        Arc::new(Run { meta, store, cache, counters, front, old_versions, ranges_left, _charge: charge })
    }

    /// Keeps in mind how many of its messages have a newer one here.
    pub fn set_old_versions(&self, count: u64) {
        self.old_versions.store(count, Ordering::Relaxed);
    }

    /// Messages of keys that have a newer one here, if that is known.
    pub(super) fn old_versions(&self) -> u64 {
        self.old_versions.load(Ordering::Relaxed)
    }

    /// What a compaction drops, about, when all that it holds is decided and no snapshot needs old versions: those, deletes, and
    /// whatever range-deletes cover.
    pub fn leftovers(&self) -> u64 {
        let count = |kind: Kind| self.meta.kinds[kind as usize];
        let ranged = if self.meta.range_deletes > 0 { self.meta.messages.max(1) } else { 0 };
        let old = self.old_versions();
        (count(Kind::Delete) + count(Kind::SingleDelete) + old).max(ranged)
    }

    /// Its description.
    #[inline]
    pub fn meta(&self) -> &RunMeta {
        &self.meta
    }

    /// The tree of its first message, to name in errors.
    pub(super) fn tree(&self) -> TreeId {
        key::tree_of(&self.meta.first_key)
    }

    /// The first and the last tree of its messages, if it has any.
    pub(super) fn trees(&self) -> Option<(TreeId, TreeId)> {
        (!self.front.is_empty).then(|| (self.tree(), key::tree_of(&self.meta.last_key)))
    }

    /// An index block, through the cache or past it.
    #[inline]
    pub(super) fn index(&self, ptr: BlockPtr, access: Access) -> Result<Arc<IndexBlock>> {
        let load = || Ok(CachedBlock::Index(Arc::new(self.read_index(ptr, access.cause())?)));
        let block = match access.priority() {
            Some(priority) => self.cache.get(ptr.offset, priority, load),
            None => self.cache.glance(ptr.offset).map_or_else(load, Ok),
        };
        match block? {
            CachedBlock::Index(block) => Ok(block),
            _ => Err(wrong_kind("an index", ptr)),
        }
    }

    /// The top index block.
    #[inline]
    pub(super) fn top_index(&self, access: Access) -> Result<Arc<IndexBlock>> {
        let lookup = || self.index(self.meta.index, access);
        match access {
            Access::Point | Access::Scan => self.front.top.follow(self.cache.room(), lookup),
            Access::LongScan | Access::Bulk => self.front.top.borrow(lookup),
        }
    }

    #[inline]
    fn has_filter(&self) -> bool {
        self.front.has_filter.load(Ordering::Relaxed)
    }

    /// True when somebody found that its filter cannot be read. Reads do without it, which costs them time.
    pub fn lacks_filter(&self) -> bool {
        !self.meta.filter.is_none() && !self.has_filter()
    }

    /// Remembers that the filter cannot be read, and tells it once.
    #[cold]
    pub(super) fn lose_filter(&self, error: &Error) {
        if self.front.has_filter.swap(false, Ordering::Relaxed) {
            self.counters.tell(&error.clone().context("reads do without a filter until a compaction writes it anew"));
        }
    }

    /// What kept it from being read has passed.
    pub(super) fn regain_filter(&self) {
        self.front.has_filter.store(true, Ordering::Relaxed);
    }

    /// The filter; none when there is none, or none that can be read. Rows do not depend on it.
    #[inline]
    fn filter(&self, cause: Event) -> Result<Option<Arc<Filter>>> {
        if !self.has_filter() {
            return Ok(None);
        }
        match self.front.filter.follow(self.cache.room(), || self.cached_filter(cause)) {
            Ok(filter) => Ok(Some(filter)),
            Err(error) if error.is_unreadable() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn cached_filter(&self, cause: Event) -> Result<Arc<Filter>> {
        let ptr = self.meta.filter;
        let load = || Ok(CachedBlock::Filter(Arc::new(self.read_filter(cause)?)));
        match self.cache.get(ptr.offset, Priority::High, load)? {
            CachedBlock::Filter(filter) => Ok(filter),
            _ => Err(wrong_kind("a filter", ptr)),
        }
    }

    /// The block of messages at `path`, if it is in memory decoded.
    ///
    /// # Errors
    /// `Internal` when a block of another kind is there.
    #[inline]
    pub(super) fn entries_in_memory(&self, path: &IndexPath) -> Result<Option<Arc<EntryBlock>>> {
        let room = self.cache.room();
        if let Some(block) = room.and_then(|phase| path.remembered(phase)) {
            self.counters.add(Event::BlockRemembered, 1);
            return Ok(Some(block));
        }
        let offset = path.ptr().offset;
        let Some(block) = self.cache.lookup(offset) else { return Ok(None) };
        let block = block.messages(offset)?;
        if let Some(phase) = room {
            path.remember(phase, &block);
        }
        Ok(Some(block))
    }

    /// The block of messages at `path`.
    #[inline]
    pub(super) fn entries_at(&self, path: &IndexPath, tree: TreeId, cause: Event) -> Result<Arc<EntryBlock>> {
        // A cache that counts uses learns what this one is as well.
        if self.cache.room().is_some()
            && let Some(block) = self.entries_in_memory(path)?
        {
            return Ok(block);
        }
        self.entries(path.ptr(), tree, cause)
    }

    /// A block of messages, through the cache.
    #[inline]
    fn entries(&self, ptr: BlockPtr, tree: TreeId, cause: Event) -> Result<Arc<EntryBlock>> {
        self.cache.entries(
            ptr.offset,
            Priority::Normal,
            |stored| self.decode_entries(ptr, tree, stored),
            |visit| self.read_stored(ptr, Some((tree, tree)), cause, visit),
        )
    }

    /// False when no message of a key with this `checksum::key_hash` is here. True when there is no filter that can be read.
    ///
    /// # Errors
    /// `Io`.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> Result<bool> {
        let Some(filter) = self.filter(Event::BlockReadMetaPoint)? else { return Ok(!self.front.is_empty) };
        let found = filter.may_contain(hash);
        self.counters.add(if found { Event::FilterPositive } else { Event::FilterNegative }, 1);
        Ok(found)
    }

    /// True when it has range-deletes.
    #[inline]
    pub fn has_range_deletes(&self) -> bool {
        self.front.has_range_deletes
    }

    /// True when a part of it has gone elsewhere ([`super::clip`]).
    #[inline]
    pub(super) fn is_clipped(&self) -> bool {
        self.front.is_clipped
    }

    /// True when `key` is in the range of the run's messages.
    #[inline]
    pub fn in_range(&self, key: &[u8]) -> bool {
        let at = key::head(key);
        let (first, last) = self.front.heads;
        !self.front.is_empty
            && (first < at || (first == at && self.meta.first_key.as_slice() <= key))
            && (at < last || (at == last && key <= self.meta.last_key.as_slice()))
    }

    /// Shows the messages of `key`, newest first, until told to stop. Asks key range and filter itself. Ignores
    /// range-deletes.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn get(
        &self,
        key: &[u8],
        hash: u64,
        visit: &mut dyn FnMut(&Message<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        self.get_entries(key, hash, Place::Buffer, &mut |message, _, _| visit(message))
    }

    /// Like [`Run::get`] for a run that lies at `place`; also shows block and number, so that the payload can be kept without a copy
    /// ([`EntryBlock::payload`]).
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn get_entries(
        &self,
        key: &[u8],
        hash: u64,
        place: Place,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        if !self.in_range(key) {
            return Ok(ControlFlow::Continue(()));
        }
        self.counters.add(Event::PointRead, 1);
        let tree = key::tree_of(key);
        let learn = |is_found: bool| {
            if place == Place::Base {
                self.counters.presence.learn(tree, hash, is_found);
            }
        };
        let is_likely = self.has_in_all_likelihood(tree, place);
        if is_likely && presence::is_counted(hash) {
            self.let_filter_go();
        }
        let asks = !is_likely && self.has_filter();
        if asks && !self.may_contain(hash)? {
            learn(false);
            return Ok(ControlFlow::Continue(()));
        }
        let mut path = IndexPath::seek_point(self, key)?;
        let mut block = self.entries_at(&path, tree, Event::BlockReadPoint)?;
        let mut index = block.lower_bound(key);
        block.prefetch_payload(index);
        let mut found = false;
        loop {
            if index == block.count() {
                // The next block, if it is the one where the key begins or goes on. If not, its damage concerns others.
                if !path.goes_on(key) || !path.next(self)? {
                    break;
                }
                block = self.entries_at(&path, tree, Event::BlockReadPoint)?;
                index = 0;
                continue;
            }
            if !block.key_equals(index, key) {
                break;
            }
            if !found {
                learn(true);
            }
            found = true;
            if visit(&block.message(index, key), &block, index).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            index += 1;
        }
        if !found {
            learn(false);
            if asks && self.has_filter() {
                self.counters.add(Event::FilterFalsePositive, 1);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// True when a key of `tree` that is read is in this run at `place`, unless a newer one has it: its filter is not worth asking.
    #[inline]
    pub(super) fn has_in_all_likelihood(&self, tree: TreeId, place: Place) -> bool {
        place == Place::Base && self.counters.presence.is_likely(tree)
    }

    /// The filter goes from the cache, if it is there and others need the room.
    fn let_filter_go(&self) {
        if self.front.filter.leads_somewhere() && self.cache.is_pressed() {
            self.cache.forget(self.meta.filter.offset);
        }
    }

    /// Brings the filter and the blocks that a read of `key` would want into the cache.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn warm(&self, key: &[u8], place: Place) -> Result<()> {
        if !self.in_range(key) {
            return Ok(());
        }
        if !self.has_in_all_likelihood(key::tree_of(key), place) {
            self.filter(Event::BlockReadMeta)?;
        }
        let path = IndexPath::seek(self, key)?;
        self.entries_at(&path, key::tree_of(key), Event::BlockReadBulk).map(|_| ())
    }

    /// A cursor that stands nowhere yet.
    pub fn cursor(self: &Arc<Run>, mode: CursorMode) -> RunCursor {
        RunCursor::new(self, mode, Arc::default())
    }

    /// A cursor that stands nowhere yet and of which only keys in `range` are wanted: it reads no block without any, and finds others
    /// only beside them.
    pub fn cursor_within(self: &Arc<Run>, mode: CursorMode, range: &Arc<KeyRange>) -> RunCursor {
        RunCursor::new(self, mode, range.clone())
    }

    /// Its range-deletes, ascending by start, newest first among equals. Cheap when there are none.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn range_deletes(&self) -> Result<Arc<RangeList>> {
        self.range_deletes_for(Event::BlockReadMeta)
    }

    /// The same for a point read.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn range_deletes_of_point(&self) -> Result<Arc<RangeList>> {
        self.range_deletes_for(Event::BlockReadMetaPoint)
    }

    fn range_deletes_for(&self, cause: Event) -> Result<Arc<RangeList>> {
        let ptr = self.meta.ranges;
        if ptr.is_none() {
            return Ok(Arc::default());
        }
        let load = || Ok(CachedBlock::Ranges(Arc::new(self.read_ranges(cause, |_| {})?)));
        let list = match self.cache.get(ptr.offset, Priority::High, load)? {
            CachedBlock::Ranges(block) => Arc::clone(&block.list),
            _ => return Err(wrong_kind("range-deletes", ptr)),
        };
        if !self.front.is_clipped {
            return Ok(list);
        }
        Ok(self.ranges_left.get_or_init(|| Arc::new(super::clip::ranges_from(&list, &self.meta.clip))).clone())
    }
}
