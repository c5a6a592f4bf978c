//! Clipped runs: what is left of a run of which everything below a key has gone elsewhere.
//!
//! On a full disk a flush or compaction may not find space for all that it would write. It ends at some key then, and its
//! inputs stay, clipped, for what lies beyond ([`crate::tree`]'s steps). Nothing is written for that: the clipped run has another
//! description of the same blocks, and the same name. Its first key is higher, its counts are smaller, and the pages before its
//! first block are its own no longer. Index and filter are those of the whole run (R5).
//!
//! Its range-deletes lose what lies below the clip: there they have been carried out, or stand elsewhere with their age, and
//! what lies below now may have lost its own. So a clip never moves down, also where a later piece of the work ends before it.

use std::sync::Arc;

use super::counters::Event;
use super::path::IndexPath;
use super::{CursorMode, Run};
use crate::base::space::PAGE_BYTES;
use crate::base::{BlockPtr, Extent, Result};
use crate::format::RangeDelete;
use crate::format::block::RangeList;
use crate::format::run_meta::KIND_COUNT;

/// What [`Run::clipped`] leaves.
#[derive(Debug)]
pub struct Clipped {
    /// What lies at the key and above it, if there is anything.
    pub run: Option<Arc<Run>>,
    /// Extents that are the run's no longer, once nobody reads the part that has gone.
    pub freed: Vec<Extent>,
}

impl Run {
    /// The run without what lies below `from`; itself, where that has gone already. Reads what goes once more, to count it.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub fn clipped(self: &Arc<Run>, from: &[u8], mode: CursorMode) -> Result<Clipped> {
        if from <= self.meta.clip.as_slice() {
            return Ok(Clipped { run: Some(self.clone()), freed: Vec::new() });
        }
        let mut meta = self.meta.clone();
        let mut gone = [0; KIND_COUNT];
        let mut cursor = self.cursor(mode);
        let mut valid = cursor.first()?;
        while valid && cursor.key() < from {
            let message = cursor.message();
            gone[message.kind as usize] += 1;
            meta.blobs = meta.blobs.saturating_sub(u64::from(message.blob));
            meta.blob_bytes = meta.blob_bytes.saturating_sub(message.blob_bytes());
            valid = cursor.next()?;
        }
        for (kept, gone) in meta.kinds.iter_mut().zip(gone) {
            *kept = kept.saturating_sub(gone);
        }
        let messages = meta.messages;
        meta.messages = messages.saturating_sub(gone.iter().sum());
        meta.clip = from.to_vec();
        let ranges = self.range_deletes()?.iter().filter(|range| range.end.as_slice() > from).count() as u64;
        // In the order of writing, the first is the last of them.
        let mut parts = Vec::new();
        if !meta.ranges.is_none() {
            self.read_ranges(Event::BlockReadMeta, |part| parts.push(part))?;
        }
        let parts_bytes: u64 = parts.iter().map(|part| u64::from(part.stored)).sum();
        if ranges == 0 && !meta.ranges.is_none() {
            meta.bytes -= parts_bytes;
            meta.ranges = BlockPtr::NONE;
        }
        meta.range_deletes = ranges;
        let first = if valid {
            let before = self.entry_bytes_before(&meta.first_key)?;
            meta.first_key = cursor.key().to_vec();
            meta.bytes -= self.entry_bytes_before(&meta.first_key)?.saturating_sub(before);
            let raw_bytes = u128::from(meta.raw_bytes) * u128::from(meta.messages) / u128::from(messages.max(1));
            meta.raw_bytes = raw_bytes as u64;
            IndexPath::seek(self, &meta.first_key)?.ptr()
        } else if ranges > 0 {
            (meta.index, meta.filter) = (BlockPtr::NONE, BlockPtr::NONE);
            (meta.bytes, meta.raw_bytes) = (parts_bytes, 0);
            (meta.first_key, meta.last_key) = (Vec::new(), Vec::new());
            parts.last().copied().unwrap_or(meta.ranges)
        } else {
            return Ok(Clipped { run: None, freed: meta.extents });
        };
        let freed = split_off_front(&mut meta.extents, first.offset / PAGE_BYTES);
        let run = Run::new(meta, &self.store, &self.cache, &self.counters);
        run.set_old_versions(self.old_versions().min(run.meta.messages));
        Ok(Clipped { run: Some(run), freed })
    }

    /// Stored bytes of the blocks of messages before the one where `key` is found.
    fn entry_bytes_before(&self, key: &[u8]) -> Result<u64> {
        // A whole run begins with its first block, wherever its first key's messages lie.
        IndexPath::seek(self, key).map(|path| path.entry().before.bytes)
    }

    /// True when the block lies in one of its extents.
    pub(super) fn holds(&self, ptr: BlockPtr) -> bool {
        let end = ptr.offset.saturating_add(u64::from(ptr.stored));
        let is_inside = |extent: &Extent| extent.offset() <= ptr.offset && end <= extent.offset() + extent.bytes();
        self.meta.extents.iter().any(is_inside)
    }
}

/// The parts of range-deletes at and above `clip`.
pub(super) fn ranges_from(list: &[RangeDelete], clip: &[u8]) -> RangeList {
    let left = list.iter().filter(|range| range.end.as_slice() > clip).cloned();
    let clipped = left.map(|mut range| {
        if range.start.as_slice() < clip {
            range.start = clip.to_vec();
        }
        range
    });
    RangeList::new(clipped.collect())
}

/// Takes the pages before `page`, which is in one of the extents, out of the list, which is in the order of writing.
fn split_off_front(extents: &mut Vec<Extent>, page: u64) -> Vec<Extent> {
    let is_there = |extent: &Extent| (extent.start..extent.end()).contains(&page);
    let Some(at) = extents.iter().position(is_there) else { return Vec::new() };
    let mut freed: Vec<Extent> = extents.drain(..at).collect();
    let first = &mut extents[0];
    let pages = (page - first.start) as u32;
    if pages > 0 {
        freed.push(Extent { start: first.start, pages });
        *first = Extent { start: page, pages: first.pages - pages };
    }
    extents.shrink_to_fit();
    freed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_before_the_first_block_that_is_left_are_freed() {
        let extent = |start, pages| Extent { start, pages };
        let whole = vec![extent(100, 8), extent(20, 4), extent(300, 9)];
        let parted = |page| {
            let mut left = whole.clone();
            let freed = split_off_front(&mut left, page);
            (freed, left)
        };
        assert_eq!(parted(100), (vec![], whole.clone()));
        assert_eq!(parted(107), (vec![extent(100, 7)], vec![extent(107, 1), extent(20, 4), extent(300, 9)]));
        assert_eq!(parted(20), (vec![extent(100, 8)], vec![extent(20, 4), extent(300, 9)]));
        assert_eq!(parted(304), (vec![extent(100, 8), extent(20, 4), extent(300, 4)], vec![extent(304, 5)]));
    }
}
