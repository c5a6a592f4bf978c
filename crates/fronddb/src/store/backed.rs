//! Free space that the disk holds room for, and how it is found when the disk is full.
//!
//! What was punched has no room; after a start nothing is known of any free space, and what was kept for a full disk before is among it. Where the
//! disk has no room for a run that was to be taken, one is taken that is known to have some; else the disk is asked for what is not known, in
//! small pieces and, where it says no, page by page: room for a page that it holds already is no more for it. It is asked only where all of the run might be
//! found, which may be pieces that it has beside each other.
//!
//! A disk that has not enough for a run has given what it had, which may be the last: it gets that back, or it is looked for as what is not known.

use super::allocator::{Allocator, REGION, Taken, place};
use super::bitmap::Bitmap;
use super::data_file::DataFile;
use super::{RESERVE_PIECE_PAGES_MIN, Store};
use crate::base::{ErrorKind, Extent, Result};

/// So often the disk is asked in a row whether it holds room for free space of which that is not known.
const UNKNOWN_TRIES_MAX: usize = 4096;

impl Store {
    /// Takes a free run of which it is not known whether the disk holds room for it, if it does. What was kept for a full disk is of that
    /// kind after a start.
    pub(super) fn take_unknown(&self, pages: u32) -> Result<Option<Extent>> {
        for _ in 0..UNKNOWN_TRIES_MAX {
            let Some(mut taken) = self.allocator.lock().take_unknown(pages, &self.data) else { break };
            let piece = taken.extent;
            let held = match self.data.back(piece.start, u64::from(piece.pages)) {
                Ok(()) if piece.pages == pages => return Ok(Some(piece)),
                Ok(()) => vec![piece],
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    // Each page by itself: others may go with what lies beside them.
                    let single = (piece.start..piece.end()).map(|start| Extent { start, pages: 1 });
                    single.filter(|page| self.data.back(page.start, 1).is_ok()).collect()
                }
                Err(error) => {
                    self.give_up(taken);
                    return Err(error);
                }
            };
            taken.empty.append(&mut taken.unknown);
            let mut allocator = self.allocator.lock();
            allocator.free_again(&taken);
            allocator.found_room(&held);
            if let Some(backed) = allocator.take_backed_of(place(piece).0, pages) {
                return Ok(Some(backed));
            }
        }
        Ok(None)
    }

    /// Gives back what was just taken, because the disk did not get room for it.
    pub(super) fn give_up(&self, mut taken: Taken) {
        // Not what may have been there before: on a full disk nobody finds that again.
        if !taken.empty.iter().all(|empty| self.data.punch(empty.start, u64::from(empty.pages)).is_ok()) {
            taken.unknown.append(&mut taken.empty);
        }
        self.allocator.lock().free_again(&taken);
    }
}

impl Allocator {
    /// Takes a free run in loaded regions for which the disk is known to hold room. Slower than [`Allocator::take`]:
    /// for when the disk is full.
    pub(super) fn take_backed(&mut self, pages: u32) -> Option<Extent> {
        (0..self.regions.len()).find_map(|index| self.take_backed_of(index, pages))
    }

    fn take_backed_of(&mut self, index: usize, pages: u32) -> Option<Extent> {
        let region = self.regions[index].loaded.as_ref()?;
        let start = region.used.union(&region.hollow).find_clear(0, self.limit(index), pages).ok()?;
        let extent = Extent { start: index as u64 * REGION + u64::from(start), pages };
        self.mark(extent);
        Some(extent)
    }

    /// Finds a free run for which the disk may hold room, as far as is known, and takes what of it is to be asked for next: all, or a piece of
    /// which that is not known. Reads the bitmaps of regions.
    pub(super) fn take_unknown(&mut self, pages: u32, data: &DataFile) -> Option<Taken> {
        let extent = (self.unknown_from..self.regions.len()).find_map(|index| {
            if self.free_pages(index) < pages {
                return None;
            }
            let limit = self.limit(index);
            let is_first = index == self.unknown_from;
            let region = self.load(index, data).ok()?;
            if is_first && region.hollow.intersection(&region.idle).count() == 0 {
                self.unknown_from = index + 1;
                return None;
            }
            let empty = region.hollow.without(&region.idle);
            let start = region.used.union(&empty).find_clear(0, limit, pages).ok()?;
            let whole = Extent { start: index as u64 * REGION + u64::from(start), pages };
            if pages <= RESERVE_PIECE_PAGES_MIN {
                return Some(whole);
            }
            let mut run = Bitmap::empty();
            run.set(start, pages);
            let unknown = region.hollow.intersection(&region.idle).intersection(&run).runs(limit).next();
            Some(unknown.map_or(whole, |(first, _)| Extent {
                start: index as u64 * REGION + u64::from(first),
                pages: RESERVE_PIECE_PAGES_MIN.min(start + pages - first),
            }))
        })?;
        Some(self.mark_taken(extent))
    }

    /// Gives back what was just taken; what of it was hollow is so again.
    pub(super) fn free_again(&mut self, taken: &Taken) {
        self.free(taken.extent, false);
        for unknown in &taken.unknown {
            // Others may have found none there meanwhile.
            self.unknown_from = self.unknown_from.min(place(*unknown).0);
        }
        for hollow in taken.empty.iter().chain(&taken.unknown) {
            let (index, start) = place(*hollow);
            if let Some(loaded) = &mut self.regions[index].loaded {
                loaded.hollow.set(start, hollow.pages);
            }
        }
        for empty in &taken.empty {
            let (index, start) = place(*empty);
            if let Some(loaded) = &mut self.regions[index].loaded {
                loaded.idle.clear(start, empty.pages);
            }
        }
    }

    /// The disk holds room for these free pages.
    pub(super) fn found_room(&mut self, free: &[Extent]) {
        for extent in free {
            let (index, start) = place(*extent);
            if let Some(loaded) = &mut self.regions[index].loaded {
                loaded.hollow.clear(start, extent.pages);
                loaded.idle.set(start, extent.pages);
            }
        }
    }
}
