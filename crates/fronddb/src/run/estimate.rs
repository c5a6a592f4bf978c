//! How much of a run lies in a range of keys.
//!
//! The index says how many messages and stored bytes lie before each block, so only the two blocks at the ends of the range are in
//! doubt. They are looked into where they are cached; else half of them counts. A range of whole trees is counted to the
//! row: blocks at borders of trees are read, as are the few that hold something else than one put for each row. A damaged block
//! counts half too: who reads its rows is told of it.

use super::Run;
use super::counters::Event;
use super::path::{Access, IndexPath, Way};
use crate::base::Result;
use crate::base::key::PREFIX_BYTES;
use crate::format::block::EntryBlock;
use crate::format::run_meta::{KIND_COUNT, rows_of};
use std::sync::Arc;

/// Blocks of a range of whole trees that are looked into because their messages are not all rows.
const BLOCKS_COUNTED_MAX: usize = 64;

/// How a block at an end of a range becomes known.
#[derive(Clone, Copy, PartialEq)]
enum Border {
    /// It counts half unless it is cached.
    Guess,
    Read,
}

impl Run {
    /// About how many (messages, stored bytes) lie in `lo <= key < hi` (empty `hi`: no bound). Exact to
    /// half a block at each end, and to a message where the blocks at the ends are cached or are one block.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn estimate(&self, lo: &[u8], hi: &[u8]) -> Result<(u64, u64)> {
        self.within(lo, hi, Border::Guess)
    }

    /// About how many (rows, stored bytes) lie in `lo <= key < hi` (empty `hi`: no bound). Exact where both are borders of trees
    /// and either each message is a put or few blocks lie between them; else as [`Run::estimate`] says.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn rows(&self, lo: &[u8], hi: &[u8]) -> Result<(u64, u64)> {
        let is_border = |key: &[u8]| key.len() <= PREFIX_BYTES;
        let whole = is_border(lo) && is_border(hi);
        let (messages, bytes) = self.within(lo, hi, if whole { Border::Read } else { Border::Guess })?;
        let all = (self.meta.rows(), self.meta.messages.max(1));
        if messages == 0 || all.0 == all.1 {
            return Ok((messages, bytes));
        }
        if whole && let Some(kinds) = self.kinds(lo, hi)? {
            return Ok((rows_of(&kinds), bytes));
        }
        Ok(((u128::from(messages) * u128::from(all.0) / u128::from(all.1)) as u64, bytes))
    }

    fn within(&self, lo: &[u8], hi: &[u8], border: Border) -> Result<(u64, u64)> {
        let lo = self.within_clip(lo);
        if self.meta.messages == 0 || (!hi.is_empty() && lo >= hi) {
            return Ok((0, 0));
        }
        let low = self.path_to(lo)?;
        let rank_at = |path: &IndexPath, key: &[u8]| self.rank(path, key, || self.block_at(path, key, border));
        let span = |low: (u64, u64), high: (u64, u64)| (high.0.saturating_sub(low.0), high.1.saturating_sub(low.1));
        if hi.is_empty() {
            let top = self.top_index(Access::Scan)?;
            return Ok(span(rank_at(&low, lo)?, top.totals_after(top.count())));
        }
        if low.reaches(hi) {
            // Both ends in one block: worth reading it.
            let block = self.sound(&low)?;
            return Ok(span(self.rank(&low, lo, || Ok(block.clone()))?, self.rank(&low, hi, || Ok(block.clone()))?));
        }
        let high = IndexPath::seek_by(self, Way { access: Access::Scan, from: Some(&low) }, hi)?;
        Ok(span(rank_at(&low, lo)?, rank_at(&high, hi)?))
    }

    /// `key` or, where that has gone from a clipped run, the first that is left.
    fn within_clip<'a>(&'a self, key: &'a [u8]) -> &'a [u8] {
        if self.is_clipped() { key.max(&self.meta.first_key) } else { key }
    }

    fn path_to(&self, key: &[u8]) -> Result<IndexPath> {
        if key <= self.meta.first_key.as_slice() && !self.is_clipped() {
            IndexPath::first(self, Access::Scan.into())
        } else {
            IndexPath::seek(self, key)
        }
    }

    /// The block at `path`, unless it is damaged.
    fn sound(&self, path: &IndexPath) -> Result<Option<Arc<EntryBlock>>> {
        match self.entries_at(path, path.tree(), Event::BlockReadScan) {
            Err(error) if error.is_unreadable() => Ok(None),
            block => block.map(Some),
        }
    }

    /// The block at `path` as far as `border` allows, to see how much of it lies before `key`.
    fn block_at(&self, path: &IndexPath, key: &[u8], border: Border) -> Result<Option<Arc<EntryBlock>>> {
        match border {
            // What has gone is in no estimate.
            _ if self.is_clipped() && key == self.meta.first_key => self.sound(path),
            Border::Read => self.sound(path),
            Border::Guess => self.entries_in_memory(path),
        }
    }

    /// Messages and stored bytes before `key`, which falls into the block at `path`. That is asked for where it matters; half of it counts
    /// where it is not known.
    fn rank(
        &self,
        path: &IndexPath,
        key: &[u8],
        block: impl FnOnce() -> Result<Option<Arc<EntryBlock>>>,
    ) -> Result<(u64, u64)> {
        let (entry, after) = (path.entry(), path.totals_after());
        if key <= path.separator() || (key <= self.meta.first_key.as_slice() && !self.is_clipped()) {
            return Ok((entry.messages_before, entry.bytes_before));
        }
        let (messages, bytes) = (after.0 - entry.messages_before, after.1 - entry.bytes_before);
        let below = block()?.map_or(messages / 2, |block| block.lower_bound(key) as u64);
        let bytes_below = (u128::from(bytes) * u128::from(below) / u128::from(messages.max(1))) as u64;
        Ok((entry.messages_before + below, entry.bytes_before + bytes_below))
    }

    /// Messages in `lo <= key < hi` by kind; none where they lie in many blocks, or in damaged ones.
    fn kinds(&self, lo: &[u8], hi: &[u8]) -> Result<Option<[u64; KIND_COUNT]>> {
        let mut kinds = [0; KIND_COUNT];
        let lo = self.within_clip(lo);
        let mut path = self.path_to(lo)?;
        for _ in 0..BLOCKS_COUNTED_MAX {
            if !hi.is_empty() && path.separator() >= hi {
                return Ok(Some(kinds));
            }
            let Some(block) = self.sound(&path)? else { return Ok(None) };
            let end = if hi.is_empty() { block.count() } else { block.lower_bound(hi) };
            for index in block.lower_bound(lo)..end {
                kinds[block.kind(index) as usize] += 1;
            }
            if end < block.count() || !path.next(self)? {
                return Ok(Some(kinds));
            }
        }
        Ok(None)
    }
}
