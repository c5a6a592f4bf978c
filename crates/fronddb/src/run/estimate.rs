//! How much of a run lies in a range of keys.
//!
//! The index says how much lies before each block ([`Held`]), so only the two blocks at the ends of the range are in
//! doubt. They are looked into where they are cached; else half of them counts. A range of whole trees is counted to the
//! row: blocks at borders of trees are read, as are the few that hold something else than one put for each row. So are those at borders of
//! trees in which large values are referred to: they may weigh more than all else in the range. A damaged block
//! counts half too: who reads its rows is told of it.

use super::Run;
use super::counters::Event;
use super::path::{Access, IndexPath, Way};
use crate::base::Result;
use crate::base::key::PREFIX_BYTES;
use crate::format::block::{EntryBlock, Held};
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
    /// About how much lies in `lo <= key < hi` (empty `hi`: no bound). Exact to
    /// half a block at each end, and to a message where the blocks at the ends are cached or are one block.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn estimate(&self, lo: &[u8], hi: &[u8]) -> Result<Held> {
        self.within(lo, hi, Border::Guess)
    }

    /// The same, and how many of the messages are rows. Exact where both are borders of trees
    /// and either each message is a put or few blocks lie between them; else as [`Run::estimate`] says.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn rows(&self, lo: &[u8], hi: &[u8]) -> Result<(u64, Held)> {
        let whole = is_border(lo) && is_border(hi);
        let held = self.within(lo, hi, if whole { Border::Read } else { Border::Guess })?;
        let all = (self.meta.rows(), self.meta.messages.max(1));
        if held.messages == 0 || all.0 == all.1 {
            return Ok((held.messages, held));
        }
        if whole && let Some(kinds) = self.kinds(lo, hi)? {
            return Ok((rows_of(&kinds), held));
        }
        Ok((part(all.0, held.messages, all.1), held))
    }

    fn within(&self, lo: &[u8], hi: &[u8], border: Border) -> Result<Held> {
        let lo = self.within_clip(lo);
        if self.meta.messages == 0 || (!hi.is_empty() && lo >= hi) {
            return Ok(Held::default());
        }
        let low = self.path_to(lo)?;
        let rank_at = |path: &IndexPath, key: &[u8]| self.rank(path, key, || self.block_at(path, key, border));
        if hi.is_empty() {
            let top = self.top_index(Access::Scan)?;
            return Ok(top.held_until(top.count()).saturating_sub(rank_at(&low, lo)?));
        }
        if low.reaches(hi) {
            // Both ends in one block: worth reading it.
            let block = self.sound(&low)?;
            let rank = |key| self.rank(&low, key, || Ok(block.clone()));
            return Ok(rank(hi)?.saturating_sub(rank(lo)?));
        }
        let high = IndexPath::seek_by(self, Way { access: Access::Scan, from: Some(&low) }, hi)?;
        Ok(rank_at(&high, hi)?.saturating_sub(rank_at(&low, lo)?))
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
            Border::Guess if is_border(key) && path.held_until().blob_bytes > path.entry().before.blob_bytes => {
                self.sound(path)
            }
            Border::Read => self.sound(path),
            Border::Guess => self.entries_in_memory(path),
        }
    }

    /// What the run holds before `key`, which falls into the block at `path`. That is asked for where it matters; half of it counts
    /// where it is not known.
    fn rank(
        &self,
        path: &IndexPath,
        key: &[u8],
        block: impl FnOnce() -> Result<Option<Arc<EntryBlock>>>,
    ) -> Result<Held> {
        let before = path.entry().before;
        if key <= path.separator() || (key <= self.meta.first_key.as_slice() && !self.is_clipped()) {
            return Ok(before);
        }
        let held = path.held_until().saturating_sub(before);
        let block = block()?;
        let messages = block.as_ref().map_or(held.messages / 2, |block| block.lower_bound(key) as u64);
        let blob_bytes = match block {
            Some(block) if held.blob_bytes > 0 => blob_bytes_of(&block, messages as usize),
            _ => held.blob_bytes / 2,
        };
        let mut below = before;
        below += Held { messages, bytes: part(held.bytes, messages, held.messages), blob_bytes };
        Ok(below)
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

/// True for the lowest key of a tree.
fn is_border(key: &[u8]) -> bool {
    key.len() <= PREFIX_BYTES
}

/// That part of `all` that `some` is of `whole`.
fn part(all: u64, some: u64, whole: u64) -> u64 {
    (u128::from(all) * u128::from(some) / u128::from(whole.max(1))) as u64
}

/// Bytes that the large values of the first `count` messages of a block take.
fn blob_bytes_of(block: &EntryBlock, count: usize) -> u64 {
    (0..count.min(block.count())).map(|index| block.message(index, &[]).blob_bytes()).sum()
}
