//! Walks the messages of a run in both directions.
//!
//! Blocks come from the cache, from the read-ahead buffer, or from the file, in this order. Read-ahead
//! starts with the second block that is read one after the other (with the first when the cache is not filled, as in
//! compactions) and doubles up to what the mode allows: one read brings several consecutive blocks that are not cached, which
//! are decoded when the cursor gets to them.
//!
//! The first blocks after a jump stay in the cache like those of point reads, because short scans come back to them, and
//! to the small runs in buffers above all. What a cursor reads after that is the first to go.

use super::Run;
use super::counters::Event;
use super::path::IndexPath;
use crate::base::memory::{Charge, Purpose};
use crate::base::space::PAGE_BYTES;
use crate::base::{BlockPtr, Error, Result};
use crate::cache::{CachedBlock, Priority};
use crate::format::Message;
use crate::format::block::{EntryBlock, EntryCursor, Payload};
use crate::store::ReadBuf;
use std::sync::Arc;

/// First read-ahead of a cursor that fills the cache, in bytes.
const READ_AHEAD_BYTES_MIN: usize = 32 << 10;

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
}

impl Default for CursorMode {
    /// For user scans: fills the cache, reads up to 256 KiB ahead.
    fn default() -> CursorMode {
        CursorMode { fill_cache: true, read_ahead_bytes: 256 << 10, is_long: false }
    }
}

/// Consecutive blocks as read from the file.
#[derive(Debug)]
struct Ahead {
    offset: u64,
    stored: ReadBuf,
    _charge: Charge,
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
    ahead: Option<Ahead>,
    /// Size of the next read-ahead; 0: not yet.
    window: usize,
    /// Blocks since the last jump.
    steps: u32,
}

#[expect(clippy::should_implement_trait, reason = "`next` moves a cursor; what it stands on is borrowed from it")]
impl RunCursor {
    pub(super) fn new(run: &Arc<Run>, mode: CursorMode) -> RunCursor {
        RunCursor {
            run: Arc::clone(run),
            mode,
            path: None,
            loaded: 0,
            entries: EntryCursor::default(),
            ahead: None,
            window: 0,
            steps: 0,
        }
    }

    /// Newest message of the lowest key at or above `key`; false if there is none.
    ///
    /// # Errors
    /// `Io`, `Corruption`: the cursor stands nowhere afterwards.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if self.run.meta.messages == 0 || key > self.run.meta.last_key.as_slice() {
            return Ok(self.leave());
        }
        self.jump(false, |run| IndexPath::seek(run, key))?;
        if self.entries.seek(key) {
            return Ok(true);
        }
        self.enter_next()
    }

    /// Oldest message of the highest key below `key`; false if there is none.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool> {
        if self.run.meta.messages == 0 || key <= self.run.meta.first_key.as_slice() {
            return Ok(self.leave());
        }
        self.jump(true, |run| IndexPath::seek(run, key))?;
        if self.entries.seek_before(key) {
            return Ok(true);
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
        self.jump(false, IndexPath::first)?;
        Ok(self.entries.first())
    }

    /// Last message.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn last(&mut self) -> Result<bool> {
        if self.run.meta.messages == 0 {
            return Ok(self.leave());
        }
        self.jump(true, IndexPath::last)?;
        Ok(self.entries.last())
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
            return Ok(true);
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
    pub fn entry(&self) -> (&Arc<EntryBlock>, usize) {
        match self.entries.block() {
            Some(block) if self.entries.valid() => (block, self.entries.index()),
            _ => panic!("the cursor stands on no message"),
        }
    }

    /// The run.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Stands nowhere.
    fn leave(&mut self) -> bool {
        self.path = None;
        self.entries.clear();
        false
    }

    /// Goes to a block anywhere; `backward`: on the way to those before it.
    fn jump(&mut self, backward: bool, open: impl FnOnce(&Run) -> Result<IndexPath>) -> Result<()> {
        let path = match open(&self.run) {
            Ok(path) => path,
            Err(error) => {
                self.leave();
                return Err(error);
            }
        };
        let same = self.entries.block().is_some() && path.ptr().offset == self.loaded;
        self.path = Some(path);
        if same {
            return Ok(());
        }
        self.window = if self.mode.is_long { self.mode.read_ahead_bytes } else { 0 };
        self.steps = 0;
        self.load(backward)
    }

    fn enter_next(&mut self) -> Result<bool> {
        Ok(self.step(false)? && self.entries.first())
    }

    fn enter_prev(&mut self) -> Result<bool> {
        Ok(self.step(true)? && self.entries.last())
    }

    /// Goes to the neighbouring block; false, and nowhere, when there is none.
    fn step(&mut self, backward: bool) -> Result<bool> {
        let Some(path) = &mut self.path else { return Ok(false) };
        let moved = if backward { path.prev(&self.run) } else { path.next(&self.run) };
        match moved {
            Ok(true) => {}
            Ok(false) => return Ok(self.leave()),
            Err(error) => {
                self.leave();
                return Err(error);
            }
        }
        self.window = if self.window == 0 { READ_AHEAD_BYTES_MIN } else { self.window };
        self.steps = self.steps.saturating_add(1);
        self.load(backward)?;
        Ok(true)
    }

    /// Gets the block that the path stands on.
    fn load(&mut self, backward: bool) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let ptr = path.ptr();
        let found = match self.run.cache.lookup(ptr.offset) {
            Some(CachedBlock::Entries(block)) => Ok(block),
            Some(_) => {
                Err(Error::internal(format!("the cache has no messages where they should be, offset={}", ptr.offset)))
            }
            None => self.fetch(ptr, backward),
        };
        match found {
            Ok(block) => {
                self.entries.reset(block);
                self.loaded = ptr.offset;
                Ok(())
            }
            Err(error) => {
                self.leave();
                Err(error)
            }
        }
    }

    /// Reads a block that is not cached.
    fn fetch(&mut self, ptr: BlockPtr, backward: bool) -> Result<Arc<EntryBlock>> {
        let run = Arc::clone(&self.run);
        let tree = self.path.as_ref().map_or(run.tree(), IndexPath::tree);
        // A packed block is in the cache as well.
        let is_cached = self.mode.fill_cache && run.cache.contains(ptr.offset);
        if !is_cached && self.piece(ptr).is_none() {
            self.read_ahead(backward)?;
        }
        let cause = if self.mode.fill_cache { Event::BlockReadScan } else { Event::BlockReadBulk };
        let decode = |stored: &[u8]| run.decode_entries(ptr, tree, stored);
        let read = |visit: &mut dyn FnMut(&[u8]) -> Result<Arc<EntryBlock>>| match self.piece(ptr) {
            Some(stored) => {
                run.counters.add(cause, 1);
                visit(stored)
            }
            None => run.read_stored(ptr, cause, visit),
        };
        if !self.mode.fill_cache {
            return read(&mut |stored| decode(stored).map(Arc::new));
        }
        let is_far = self.mode.is_long || self.steps >= SHORT_BLOCKS;
        run.cache.entries(ptr.offset, if is_far { Priority::Low } else { Priority::Normal }, decode, read)
    }

    /// The stored block, if it was read ahead.
    fn piece(&self, ptr: BlockPtr) -> Option<&[u8]> {
        let ahead = self.ahead.as_ref()?;
        let start = usize::try_from(ptr.offset.checked_sub(ahead.offset)?).ok()?;
        ahead.stored.get(start..start.checked_add(ptr.stored as usize)?)
    }

    /// Reads the block of the path and those that the cursor will come to next, if there are several.
    fn read_ahead(&mut self, backward: bool) -> Result<()> {
        self.ahead = None;
        let Some(path) = &self.path else { return Ok(()) };
        let limit = if self.mode.fill_cache { self.window } else { usize::MAX }.min(self.mode.read_ahead_bytes) as u64;
        let mut blocks = path.neighbours(backward);
        let Some(nearest) = blocks.next() else { return Ok(()) };
        let (mut start, mut end, mut count) = (nearest.offset, nearest.offset + u64::from(nearest.stored), 1);
        for ptr in blocks {
            let (next_start, next_end) = (ptr.offset, ptr.offset + u64::from(ptr.stored));
            let gap = if backward { start.checked_sub(next_end) } else { next_start.checked_sub(end) };
            let larger = end.max(next_end) - start.min(next_start);
            let is_cached = self.mode.fill_cache && self.run.cache.contains(ptr.offset);
            if gap.is_none_or(|gap| gap >= PAGE_BYTES) || larger > limit || is_cached {
                break;
            }
            (start, end, count) = (start.min(next_start), end.max(next_end), count + 1);
        }
        if count > 1 {
            let stored = self.run.store.read(start, (end - start) as usize)?;
            self.run.counters.add(Event::ReadAhead, 1);
            self.run.counters.add(Event::ReadBytes, end - start);
            let charge = Charge::new(self.run.cache.budget(), Purpose::Work, stored.memory_bytes());
            self.ahead = Some(Ahead { offset: start, stored, _charge: charge });
        }
        self.window = (self.window * 2).min(self.mode.read_ahead_bytes);
        Ok(())
    }
}
