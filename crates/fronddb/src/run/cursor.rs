//! Walks the messages of a run in both directions.
//!
//! Blocks come from the cache (a compaction's without being used there), from a window ([`windows`]), or from the file, in this order.
//!
//! The first blocks after a jump stay in the cache like those of point reads, because short scans come back to them, and
//! to the small runs in buffers above all. What a cursor reads after that is the first to go, and what a long scan reads
//! does not come into a full cache. Of the index a long scan leaves blocks that are the first to go, and what does not fill the cache
//! none. Blocks that are cached end a window, but for a long scan few of them in a row are read again: less than
//! another read costs.

mod windows;

use super::Run;
use super::counters::Event;
use super::path::{Access, IndexPath, Way};
use crate::base::key::KeyRange;
use crate::base::{BlockPtr, Result, TreeId};
use crate::cache::Priority;
use crate::format::Message;
use crate::format::block::{EntryBlock, EntryCursor, Payload};
use crate::store::{Asked, Window};
use std::sync::Arc;

/// First read-ahead of a cursor that fills the cache, in bytes: two blocks as most are stored.
const READ_AHEAD_BYTES_MIN: usize = 24 << 10;

/// Blocks after a jump that a short scan reads.
const SHORT_BLOCKS: u32 = 8;

/// How a cursor reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorMode {
    /// Blocks read stay in the cache.
    pub fill_cache: bool,
    /// How much to read at once when several consecutive blocks are wanted; 0: one block.
    pub read_ahead_bytes: usize,
    /// It is part of a long scan: it reads ahead at once, and what it reads leaves the cache first.
    pub is_long: bool,
    /// Has the next window read while it goes through one, once windows are of full size.
    pub asks_ahead: bool,
}

impl Default for CursorMode {
    /// For user scans: fills the cache, reads up to 256 KiB ahead.
    fn default() -> CursorMode {
        CursorMode { fill_cache: true, read_ahead_bytes: 256 << 10, is_long: false, asks_ahead: true }
    }
}

/// Where a cursor goes, and so in which direction it travels from there.
#[derive(Debug, Clone, Copy)]
pub enum Goal<'a> {
    /// As [`RunCursor::first`].
    First,
    /// As [`RunCursor::seek`].
    AtOrAbove(&'a [u8]),
    /// As [`RunCursor::last`].
    Last,
    /// As [`RunCursor::seek_before`].
    Below(&'a [u8]),
}

impl Goal<'_> {
    fn is_backward(self) -> bool {
        matches!(self, Goal::Last | Goal::Below(_))
    }
}

/// A cursor over the messages of a run. Owns its run.
#[derive(Debug)]
pub struct RunCursor {
    run: Arc<Run>,
    mode: CursorMode,
    path: Option<IndexPath>,
    /// Offset of the block that `entries` is over.
    loaded: u64,
    entries: EntryCursor,
    /// The block is cached and in use. Known where the cursor does not fill the cache.
    is_in_use: bool,
    /// The keys that are wanted.
    range: Arc<KeyRange>,
    window: Option<Window>,
    /// The window after it, or the one where the cursor is about to go.
    asked: Option<Asked>,
    /// It reads no block of messages, and stops where it would have to.
    is_trying: bool,
    /// It has stopped there, at the block where its path stands.
    has_stopped: bool,
    /// Size of the next window; 0: none yet.
    window_bytes: usize,
    /// Blocks since the last jump.
    steps: u32,
    /// Reads of the file for single blocks and for short ranges, not for what follows.
    lone_reads: u32,
}

#[expect(clippy::should_implement_trait, reason = "`next` moves a cursor; what it stands on is borrowed from it")]
impl RunCursor {
    pub(super) fn new(run: &Arc<Run>, mode: CursorMode, range: Arc<KeyRange>) -> RunCursor {
        let range = match run.is_clipped() && range.lower < run.meta.first_key {
            true => Arc::new(KeyRange { lower: run.meta.first_key.clone(), upper: range.upper.clone() }),
            false => range,
        };
        RunCursor {
            run: Arc::clone(run),
            mode,
            path: None,
            loaded: 0,
            entries: EntryCursor::default(),
            is_in_use: false,
            range,
            window: None,
            asked: None,
            is_trying: false,
            has_stopped: false,
            window_bytes: 0,
            steps: 0,
            lone_reads: 0,
        }
    }

    /// Goes there.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn go(&mut self, goal: Goal<'_>) -> Result<bool> {
        match goal {
            Goal::First => self.first(),
            Goal::AtOrAbove(key) => self.seek(key),
            Goal::Last => self.last(),
            Goal::Below(key) => self.seek_before(key),
        }
    }

    /// Goes there unless a block of messages on the way is not cached: then false, and it stands nowhere.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn try_go(&mut self, goal: Goal<'_>) -> Result<bool> {
        (self.is_trying, self.has_stopped) = (true, false);
        let went = self.go(goal);
        self.is_trying = false;
        went.map(|_| !self.has_stopped)
    }

    /// Newest message of the lowest key at or above `key`; false if there is none among those that are wanted.
    ///
    /// # Errors
    /// `Io`, `Corruption`: the cursor stands nowhere afterwards.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let is_beyond = self.range.upper.as_deref().is_some_and(|upper| key >= upper);
        if self.run.meta.messages == 0 || key > self.run.meta.last_key.as_slice() || is_beyond {
            return Ok(self.leave());
        }
        if self.run.is_clipped() && key < self.run.meta.first_key.as_slice() {
            return self.first();
        }
        self.to(key)
    }

    /// To the first message at or above `key`, which is not below a clipped run.
    fn to(&mut self, key: &[u8]) -> Result<bool> {
        let is_there = self.jump(false, |run, way| IndexPath::seek_by(run, way, key))?;
        if !is_there || self.entries.seek(key) {
            return Ok(is_there);
        }
        self.enter_next()
    }

    /// Oldest message of the highest key below `key`; false if there is none among those that are wanted.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool> {
        let is_beyond = key <= self.range.lower.as_slice();
        if self.run.meta.messages == 0 || key <= self.run.meta.first_key.as_slice() || is_beyond {
            return Ok(self.leave());
        }
        let is_there = self.jump(true, |run, way| {
            let mut path = IndexPath::seek_by(run, way, key)?;
            if path.is_above(key) {
                path.prev(run)?;
            }
            Ok(path)
        })?;
        if !is_there || self.entries.seek_before(key) {
            return Ok(is_there);
        }
        self.enter_prev()
    }

    /// First message.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn first(&mut self) -> Result<bool> {
        if self.run.meta.messages == 0 {
            return Ok(self.leave());
        }
        if self.run.is_clipped() {
            let run = self.run.clone();
            return self.to(&run.meta.first_key);
        }
        Ok(self.jump(false, IndexPath::first)? && self.entries.first())
    }

    /// Last message.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn last(&mut self) -> Result<bool> {
        if self.run.meta.messages == 0 {
            return Ok(self.leave());
        }
        Ok(self.jump(true, IndexPath::last)? && self.entries.last())
    }

    /// Next message; false (and nowhere) after the last one.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    #[inline]
    pub fn next(&mut self) -> Result<bool> {
        if !self.entries.valid() {
            return Ok(false);
        }
        if self.entries.next() {
            return Ok(true);
        }
        self.enter_next()
    }

    /// Previous message; false (and nowhere) before the first one.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        if !self.entries.valid() {
            return Ok(false);
        }
        if self.entries.prev() {
            let is_gone = self.run.is_clipped() && self.entries.key() < self.run.meta.first_key.as_slice();
            return Ok(!is_gone || self.leave());
        }
        self.enter_prev()
    }

    /// True when it stands on a message.
    #[inline]
    pub fn valid(&self) -> bool {
        self.entries.valid()
    }

    /// Key it stands on. Meaningful only where [`RunCursor::valid`].
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.entries.key()
    }

    /// Message it stands on.
    ///
    /// # Panics
    /// When it stands nowhere.
    #[inline]
    pub fn message(&self) -> Message<'_> {
        self.entries.message()
    }

    /// Payload it stands on.
    ///
    /// # Panics
    /// When it stands nowhere.
    #[inline]
    pub fn payload_bytes(&self) -> &[u8] {
        self.entries.payload()
    }

    /// Payload it stands on, keeping the block alive.
    ///
    /// # Panics
    /// When it stands nowhere.
    pub fn payload(&self) -> Payload {
        let (block, index) = self.entry();
        block.payload(index)
    }

    /// Block and number it stands on.
    ///
    /// # Panics
    /// When it stands nowhere.
    #[inline]
    pub fn entry(&self) -> (&Arc<EntryBlock>, usize) {
        match self.entries.block() {
            Some(block) if self.entries.valid() => (block, self.entries.index()),
            _ => panic!("the cursor stands on no message"),
        }
    }

    /// Messages that follow the one it stands on in its block, up to the first at or above `limit`, where whoever sees this one
    /// sees them all and nothing else of the block concerns them ([`EntryBlock::is_uniform`]); none where that is not so. Also whether
    /// the block has that first one.
    pub fn uniform_ahead(&self, limit: Option<&[u8]>) -> Option<(usize, bool)> {
        let block = self.entries.block().filter(|block| block.is_uniform())?;
        let last = block.count() - 1;
        let end = match limit {
            Some(limit) if block.key_cmp(last, limit).is_ge() => block.lower_bound(limit),
            _ => block.count(),
        };
        Some((end.saturating_sub(self.entries.index() + 1), end <= last))
    }

    /// To the next message, which [`RunCursor::uniform_ahead`] has counted.
    #[inline]
    pub fn advance(&mut self) {
        self.entries.next();
    }

    /// Over such messages at once: [`EntryCursor::pass`].
    #[inline]
    pub fn pass(&mut self, most: usize, take: impl FnMut(&[u8], &[u8], &[u8]) -> bool) -> usize {
        self.entries.pass(most, take)
    }

    /// True when it goes past the cache, over a block that readers use.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        self.is_in_use
    }

    /// Reads of the file for single blocks, and for the short ranges that begin where it jumped to, until now.
    pub fn lone_reads(&self) -> u32 {
        self.lone_reads
    }

    /// The run.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Stands nowhere. The path stays: whoever goes through the index next, and past the cache, finds its blocks by it.
    fn leave(&mut self) -> bool {
        self.entries.clear();
        false
    }

    /// Goes to a block anywhere; `backward`: on the way to those before it. False where it has stopped.
    fn jump(&mut self, backward: bool, open: impl FnOnce(&Run, Way<'_>) -> Result<IndexPath>) -> Result<bool> {
        let access = self.access();
        let from = self.path.as_ref().filter(|_| access == Access::Bulk);
        let path = match open(&self.run, Way { access, from }) {
            Ok(path) => path,
            Err(error) => {
                self.leave();
                return Err(error);
            }
        };
        let same = self.entries.block().is_some() && path.ptr().offset == self.loaded;
        self.path = Some(path);
        if same {
            return Ok(true);
        }
        self.window_bytes = if self.mode.is_long { self.mode.read_ahead_bytes } else { 0 };
        self.steps = 0;
        self.load(backward)
    }

    fn access(&self) -> Access {
        match self.mode {
            CursorMode { fill_cache: false, .. } => Access::Bulk,
            CursorMode { is_long: true, .. } => Access::LongScan,
            _ => Access::Scan,
        }
    }

    fn enter_next(&mut self) -> Result<bool> {
        Ok(self.step(false)? && self.entries.first())
    }

    fn enter_prev(&mut self) -> Result<bool> {
        Ok(self.step(true)? && self.entries.last())
    }

    /// Goes to the neighbouring block; false, and nowhere, when there is none with keys that are wanted.
    fn step(&mut self, backward: bool) -> Result<bool> {
        let Some(path) = &mut self.path else { return Ok(false) };
        if path.is_last_of(backward, &self.range) {
            return Ok(self.leave());
        }
        let moved = if backward { path.prev(&self.run) } else { path.next(&self.run) };
        match moved {
            Ok(true) => {}
            Ok(false) => return Ok(self.leave()),
            Err(error) => {
                self.leave();
                return Err(error);
            }
        }
        if self.window_bytes == 0 {
            self.window_bytes = READ_AHEAD_BYTES_MIN.min(self.mode.read_ahead_bytes);
        }
        self.steps = self.steps.saturating_add(1);
        self.load(backward)
    }

    /// Gets the block that the path stands on; false where it stops.
    fn load(&mut self, backward: bool) -> Result<bool> {
        let Some(path) = &self.path else { return Ok(false) };
        let ptr = path.ptr();
        let found = match self.cached(path) {
            Ok(Some(found)) => Ok(found),
            Ok(None) if self.is_trying && !self.is_packed(ptr) => {
                self.has_stopped = true;
                return Ok(self.leave());
            }
            Ok(None) => self.fetch(ptr, backward).map(|block| (block, false)),
            Err(error) => Err(error),
        };
        match found {
            Ok((block, is_in_use)) => {
                self.entries.reset(block);
                self.is_in_use = is_in_use;
                self.loaded = ptr.offset;
                Ok(true)
            }
            Err(error) => {
                self.leave();
                Err(error)
            }
        }
    }

    /// A block that is cached, and whether it is in use.
    fn cached(&self, path: &IndexPath) -> Result<Option<(Arc<EntryBlock>, bool)>> {
        let (run, ptr) = (&self.run, path.ptr());
        if !self.mode.fill_cache {
            return run.cache.peek(ptr.offset, |stored| run.decode_entries(ptr, path.tree(), stored));
        }
        Ok(run.entries_in_memory(path)?.map(|block| (block, false)))
    }

    /// True of a block that [`RunCursor::cached`] does not find and that is in the cache nevertheless: it has to be decoded.
    fn is_packed(&self, ptr: BlockPtr) -> bool {
        self.mode.fill_cache && self.run.cache.contains(ptr.offset)
    }

    /// The tree of the block that the path stands on, to name in errors.
    fn tree(&self) -> TreeId {
        self.path.as_ref().map_or_else(|| self.run.tree(), IndexPath::tree)
    }

    /// Reads a block that is not cached.
    fn fetch(&mut self, ptr: BlockPtr, backward: bool) -> Result<Arc<EntryBlock>> {
        let run = Arc::clone(&self.run);
        let tree = self.tree();
        if stored_in(&self.window, ptr).is_none() && !self.is_packed(ptr) {
            self.next_window(ptr, backward)?;
        }
        let cause = if self.mode.fill_cache { Event::BlockReadScan } else { Event::BlockReadBulk };
        let decode = |stored: &[u8]| run.decode_entries(ptr, tree, stored);
        let mut lone_reads = 0;
        let window = &self.window;
        let mut read = |visit: &mut dyn FnMut(&[u8]) -> Result<Arc<EntryBlock>>| match stored_in(window, ptr) {
            Some(stored) => {
                run.counters.add(cause, 1);
                visit(stored)
            }
            None => {
                lone_reads += 1;
                run.read_stored(ptr, Some((tree, tree)), cause, visit)
            }
        };
        let passes_by = || self.mode.is_long && run.cache.is_full() && !run.cache.contains(ptr.offset);
        let block = if !self.mode.fill_cache || passes_by() {
            read(&mut |stored| decode(stored).map(Arc::new))
        } else {
            let is_far = self.mode.is_long || self.steps >= SHORT_BLOCKS;
            run.cache.entries(ptr.offset, if is_far { Priority::Low } else { Priority::Normal }, decode, read)
        };
        self.lone_reads += lone_reads;
        // A window of this block alone has served.
        if self.window.as_ref().is_some_and(|window| *window.range() == windows::range_of(ptr)) {
            self.window = None;
        }
        block
    }
}

/// The block as it lies in the window, if it does.
fn stored_in(window: &Option<Window>, ptr: BlockPtr) -> Option<&[u8]> {
    window.as_ref()?.block(ptr)
}
