//! Giving free space back to the file system: the tail of the file is cut off, and holes are punched.
//!
//! Done in steps by whoever has idle time, region by region: those where space has been freed since they were looked at, and once each
//! of those that the opening found. Free space that is handed out again soon is better kept, so the caller says
//! how much to keep. While a hole is punched its pages count as used, so that nobody writes to them meanwhile.
//!
//! Nobody needs what is given back, so a cut or a hole that fails is passed over and told of, and the next one is made. A hole is not tried
//! again before more is freed in its region; what was not cut off is out of use until the file is cut again, grows, or is opened.
//!
//! Small holes are left, until the disk has been full for a while: then the space behind them is needed where larger pieces fit.

use super::bitmap::REGION_PAGES;
use super::data_file::{DataFile, count};
use super::reserve::Pool;
use super::{Store, allocator::Allocator};
use crate::base::space::PAGE_BYTES;
use crate::base::{Error, ErrorKind, Extent, Result};

/// Holes smaller than this are not worth a hole unless the disk is full: 64 KiB.
const HOLE_PAGES_MIN: u32 = 16;
/// Not worth a change of the file's metadata below a megabyte.
const CUT_PAGES_MIN: u64 = 256;
/// Regions looked at in one step, each of which may have to be read.
const REGIONS_PER_STEP: u32 = 16;

/// How far a [`Store::shrink_step`] may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShrinkLimits {
    /// Most bytes to give back in this step, but a megabyte at least where the end of the file is cut off.
    pub step_bytes: u64,
    /// Free bytes at the end of the file that are kept for its growth.
    pub keep_bytes: u64,
    /// Give small holes back as well, if the reserve lacks space. While that is done, others may find less than there is.
    pub small_holes: bool,
}

impl Default for ShrinkLimits {
    fn default() -> ShrinkLimits {
        ShrinkLimits { step_bytes: 64 << 20, keep_bytes: 1 << 20, small_holes: false }
    }
}

/// What a step gave back.
#[derive(Debug, Clone, Default)]
pub struct Shrunk {
    /// Bytes cut off the end.
    pub cut_bytes: u64,
    /// Bytes punched.
    pub punched_bytes: u64,
    /// True when there is nothing left to do.
    pub is_done: bool,
    /// Why something could not be given back.
    pub failure: Option<Error>,
}

impl Shrunk {
    /// Bytes given back.
    fn bytes(&self) -> u64 {
        self.cut_bytes + self.punched_bytes
    }

    /// Keeps a failure of the system.
    fn passing_over<T>(&mut self, outcome: Result<T>) -> Result<Option<T>> {
        match outcome {
            Err(error) if error.kind() == ErrorKind::Io => {
                self.failure = Some(error);
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }
}

impl Store {
    /// Gives some free space back to the file system, after the reserve has what it lacks of it; when that is not enough, small holes
    /// too if `limits` says so, whose space the reserve may have elsewhere.
    ///
    /// # Errors
    /// `Poisoned`, `ReadOnly`, `NoSpace` when a hole needs some, and what keeps the reserve from being filled; the space stays free then.
    pub fn shrink_step(&self, limits: ShrinkLimits) -> Result<Shrunk> {
        self.data.check_writable()?;
        // What the reserve should hold grows with the data, without any shortage.
        let is_reserve_wanted = self.allocator.lock().reserve.is_wanted;
        let mut hole_pages_min = HOLE_PAGES_MIN;
        if is_reserve_wanted {
            match self.fill_reserve() {
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    let mut allocator = self.allocator.lock();
                    // Publications are served by single pages, and come before all.
                    let lacks = allocator.reserve.lacking().map(|(pool, _)| pool);
                    if limits.small_holes && lacks.is_some_and(|pool| pool != Pool::Publication) {
                        hole_pages_min = 1;
                        allocator.look_at_scraps();
                    }
                }
                result => result?,
            }
        }
        let mut shrunk = Shrunk::default();
        let cut = self.cut_tail(limits);
        let (cut_bytes, is_cut) = shrunk.passing_over(cut)?.unwrap_or((0, true));
        shrunk.cut_bytes = cut_bytes;
        if !is_cut {
            return Ok(shrunk);
        }
        let mut looked = 0;
        while shrunk.bytes() < limits.step_bytes && looked < REGIONS_PER_STEP {
            let pages_max = (limits.step_bytes - shrunk.bytes()).div_ceil(PAGE_BYTES);
            let pages_max = pages_max.clamp(u64::from(HOLE_PAGES_MIN), u64::from(REGION_PAGES)) as u32;
            let mut allocator = self.allocator.lock();
            let Some(region) = allocator.to_shrink.pop_first() else {
                shrunk.is_done = true;
                break;
            };
            looked += 1;
            let Some(hole) = allocator.take_hole(region, hole_pages_min, pages_max, &self.data) else { continue };
            // There may be another.
            allocator.to_shrink.insert(region);
            drop(allocator);
            let punched = self.data.punch(hole.start, u64::from(hole.pages));
            let mut allocator = self.allocator.lock();
            allocator.free(hole, punched.is_ok());
            if punched.is_err() {
                // Not tried again before more is freed there: a file system may need space for it.
                allocator.to_shrink.remove(&region);
            }
            drop(allocator);
            if shrunk.passing_over(punched)?.is_some() {
                count(&self.data.counters.punched_bytes, hole.bytes());
                shrunk.punched_bytes += hole.bytes();
            }
        }
        Ok(shrunk)
    }

    /// Cuts free pages off the end, and returns how many bytes those were; and whether that is all that is to be cut.
    fn cut_tail(&self, limits: ShrinkLimits) -> Result<(u64, bool)> {
        let _growing = self.growing.lock();
        let mut allocator = self.allocator.lock();
        let Ok(used_end) = allocator.used_end(&self.data) else {
            return Ok((0, true));
        };
        let last = used_end + limits.keep_bytes.div_ceil(PAGE_BYTES);
        let before = allocator.file_pages();
        if last + CUT_PAGES_MIN > before {
            return Ok((0, true));
        }
        let pages_max = limits.step_bytes.div_ceil(PAGE_BYTES).max(CUT_PAGES_MIN);
        let end = last.max(before.saturating_sub(pages_max));
        allocator.cut(end);
        drop(allocator);
        self.data.cut(end)?;
        Ok(((before - end) * PAGE_BYTES, last + CUT_PAGES_MIN > end))
    }
}

impl Allocator {
    /// Has the regions looked at again in which there were no holes but small ones.
    fn look_at_scraps(&mut self) {
        let scraps = std::mem::take(&mut self.scraps);
        self.to_shrink.extend(scraps);
    }

    /// Takes an idle run of a region that is worth punching.
    fn take_hole(&mut self, index: usize, pages_min: u32, pages_max: u32, data: &DataFile) -> Option<Extent> {
        let limit = self.limit(index);
        let region = self.regions.get(index)?;
        if region.loaded.is_none() && region.entry.image_pages + HOLE_PAGES_MIN > limit {
            return None;
        }
        let region = self.load(index, data).ok()?;
        let Some((start, pages)) = region.idle.runs(limit).find(|(_, pages)| *pages >= pages_min) else {
            let has_scraps = region.idle.runs(limit).next().is_some();
            if has_scraps {
                self.scraps.insert(index);
            }
            return None;
        };
        let start = index as u64 * u64::from(REGION_PAGES) + u64::from(start);
        let extent = Extent { start, pages: pages.min(pages_max) };
        self.mark(extent);
        Some(extent)
    }
}
