//! What a cursor reads at once, and asks for before it needs it.
//!
//! A *window* is one read of several consecutive blocks that are not cached, or of a single one that was asked for; they are decoded when
//! the cursor gets to them. Windows begin with the second block that is read one after the other (with the first in a long scan) and double
//! up to what the mode allows. They end where the keys that are wanted end. No block beyond is read: it may be another tree's, and
//! damaged. Where a window cannot be read, its blocks are read one by one. A short range, whose end is known and near, is one
//! window from its first block on: another read costs more than blocks for which the reader may not come.
//!
//! Once windows are as large as they get, the next one is asked for as soon as the cursor has one
//! ([`Store::ask`](crate::store::Store::ask)), so that it is read while the rows of this one are used. Compactions do not: they
//! have a thread each and many runs, whose windows take memory.
//!
//! Who goes to a key in several runs at once tries each in the cache first ([`RunCursor::try_go`]), asks for what is not there
//! ([`RunCursor::ask`]), and then goes to it: so the device has all these reads before it at the same time. The cache is not told that such a block is
//! being read: who misses it too asks for it once more.

use super::{Goal, RunCursor};
use crate::base::space::PAGE_BYTES;
use crate::base::{BlockPtr, Result};
use crate::run::counters::Event;
use crate::store::Window;
use std::ops::Range;

/// Up to this size the blocks of a range are read at once.
const SHORT_RANGE_BYTES_MAX: usize = 64 << 10;

/// Bytes of cached blocks in a row that a long scan reads again rather than read twice.
const BRIDGE_BYTES_MAX: u64 = 48 << 10;

impl RunCursor {
    /// Asks for the block at which it stopped when it tried to go there, with those that it would read in one go.
    pub fn ask(&mut self, goal: Goal<'_>) {
        let Some(path) = self.path.as_ref().filter(|_| self.has_stopped) else { return };
        let range = self.window_range(goal.is_backward()).unwrap_or_else(|| range_of(path.ptr()));
        self.run.cache.trim_for((range.end - range.start) as usize);
        // What is wrong with it is told when it is read.
        self.asked = self.run.store.ask(&range, self.window.take(), self.run.cache.budget()).ok();
    }

    /// Gets the window of the block of the path, if it was asked for or there are several blocks to read, and asks for the next.
    pub(super) fn next_window(&mut self, ptr: BlockPtr, backward: bool) -> Result<()> {
        let old = self.window.take();
        let has_jumped = self.has_jumped();
        let asked = self.asked.take().filter(|asked| asked.range().contains(&ptr.offset));
        let range = match &asked {
            Some(asked) => Some(asked.range().clone()),
            None => self.window_range(backward),
        };
        self.window_bytes = (self.window_bytes * 2).min(self.mode.read_ahead_bytes);
        let Some(range) = range else { return Ok(()) };
        self.ask_after(&range, backward, old);
        let window = match asked {
            Some(asked) => asked.take(),
            None => self.run.store.read_window(&range, self.run.cache.budget()),
        };
        let window = match window {
            // A place in it is bad, perhaps not this block's: it is read alone.
            Err(error) if error.is_unreadable() => return Ok(()),
            window => window?,
        };
        self.lone_reads += u32::from(has_jumped || range == range_of(ptr));
        self.run.counters.add(Event::ReadAhead, 1);
        self.run.counters.add(Event::ReadBytes, range.end - range.start);
        self.window = Some(window);
        Ok(())
    }

    /// True when it fills the cache and has read no block that follows another.
    fn has_jumped(&self) -> bool {
        self.mode.fill_cache && self.window_bytes == 0
    }

    /// The window of the block of the path, if there are several blocks to read.
    fn window_range(&self, backward: bool) -> Option<Range<u64>> {
        let limit = match (self.mode.fill_cache, self.window_bytes) {
            (false, _) => self.mode.read_ahead_bytes,
            (true, 0) => SHORT_RANGE_BYTES_MAX.min(self.mode.read_ahead_bytes),
            (true, bytes) => bytes,
        };
        let plan = self.plan(backward, limit, None)?;
        (plan.blocks > 1 && !(self.has_jumped() && plan.is_cut)).then_some(plan.range)
    }

    /// Asks for the window that follows `range` (precedes it, if `backward`), once windows are of full size.
    fn ask_after(&mut self, range: &Range<u64>, backward: bool, old: Option<Window>) {
        let is_of_full_size = self.window_bytes > 0 && self.window_bytes == self.mode.read_ahead_bytes;
        if self.mode.asks_ahead && is_of_full_size {
            let plan = self.plan(backward, self.window_bytes, Some(range));
            // Two windows at a time: the cache makes room for them now, not when the next block comes.
            self.run.cache.trim_for(2 * self.window_bytes);
            // What is wrong with the next window is told when it is needed.
            self.asked = plan.and_then(|plan| self.run.store.ask(&plan.range, old, self.run.cache.budget()).ok());
        }
    }

    /// The blocks that one read of up to `limit` bytes brings: from the one of the path on or, where `after` is given, from the
    /// first outside of it. None if the first are cached.
    fn plan(&self, backward: bool, limit: usize, after: Option<&Range<u64>>) -> Option<Plan> {
        let mut plan: Option<Plan> = None;
        // The plan and the cached blocks after it, to be read again if others follow.
        let mut bridge: Option<Plan> = None;
        let blocks = self.path.as_ref()?.neighbours(backward, &self.range);
        for ptr in blocks.skip_while(|ptr| after.is_some_and(|after| after.contains(&ptr.offset))) {
            let is_cached =
                (plan.is_some() || after.is_some()) && self.mode.fill_cache && self.run.cache.contains(ptr.offset);
            let block = range_of(ptr);
            let longer = match bridge.as_ref().or(plan.as_ref()) {
                Some(before) => before.with(&block, backward),
                None => Some(Plan { range: block, blocks: 1, is_cut: false }),
            };
            let Some(longer) = longer else { break };
            if longer.blocks > 1 && longer.bytes() > limit as u64 {
                return plan.map(|plan| Plan { is_cut: true, ..plan });
            }
            if !is_cached {
                (plan, bridge) = (Some(longer), None);
                continue;
            }
            let cached_bytes = longer.bytes() - plan.as_ref().map_or(0, Plan::bytes);
            if !self.mode.is_long || cached_bytes > BRIDGE_BYTES_MAX {
                break;
            }
            bridge = Some(longer);
        }
        plan
    }
}

/// Where a block lies.
pub(super) fn range_of(ptr: BlockPtr) -> Range<u64> {
    ptr.offset..ptr.offset + u64::from(ptr.stored)
}

/// What one read is to bring.
#[derive(Debug)]
struct Plan {
    range: Range<u64>,
    blocks: usize,
    /// It ends where it would become longer than allowed.
    is_cut: bool,
}

impl Plan {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The same with the block after it (before it, if `backward`), unless that lies elsewhere.
    fn with(&self, block: &Range<u64>, backward: bool) -> Option<Plan> {
        let range = if backward { block.start..self.range.end } else { self.range.start..block.end };
        let gap =
            if backward { self.range.start.checked_sub(block.end) } else { block.start.checked_sub(self.range.end) };
        gap.filter(|gap| *gap < PAGE_BYTES).map(|_| Plan { range, blocks: self.blocks + 1, is_cut: false })
    }
}
