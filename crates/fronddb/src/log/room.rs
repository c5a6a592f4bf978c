//! Space for what is appended: segments are prepared ahead and given back.

use super::pool::Live;
use super::{Boundaries, Log, frame};
use crate::base::sync::atomic::Ordering;
use crate::base::{Lsn, Result};

/// Lets other appends wait; dropped before the writer is released.
#[derive(Debug)]
pub(super) struct Alone<'a>(&'a Log);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.boundaries.lock().is_large_coming = false;
        self.0.update_room();
    }
}

/// How far zeros are written ahead of the records in the background, in steps of [`LogOptions::fill_bytes`].
const FILL_STEPS_AHEAD: u64 = 8;

impl Log {
    /// Says up to where appends are sure to find space: everywhere while there is a prepared segment that no rotation
    /// has claimed or is to have, else to the end of the newest segment less what may be on its way there, or to the end of the large record
    /// that has it to itself; and not past a rotation that found no segment.
    pub(super) fn update_room(&self) {
        let boundaries = self.boundaries.lock();
        let prepared = self.pool.prepared();
        let room_end = if boundaries.is_large_coming {
            0
        } else if prepared > boundaries.pending.len() + self.kept() {
            u64::MAX
        } else if let Some(boundary) = boundaries.pending.get(prepared) {
            *boundary
        } else {
            let (end, is_exact) = self.newest_end(&boundaries);
            if is_exact { end } else { end.saturating_sub(self.ring.bytes()) }
        };
        self.room_end.store(room_end, Ordering::Relaxed);
    }

    /// Where the newest segment is full, begun or claimed by a rotation; and whether nothing is on its way there.
    fn newest_end(&self, boundaries: &Boundaries) -> (u64, bool) {
        match (boundaries.pending.back(), self.pool.live().last()) {
            (Some(boundary), _) => (boundary + self.options.segment_bytes, false),
            (None, Some(Live { closed_at: Some(end), .. })) => (*end, true),
            (None, Some(live)) => (live.start + live.segment.as_ref().map_or(0, |segment| segment.capacity), false),
            (None, None) => (self.start, true),
        }
    }

    /// Whether what is in the ring will take a prepared segment.
    pub(super) fn is_overflowing(&self) -> bool {
        self.tail.load(Ordering::Acquire) > self.newest_end(&self.boundaries.lock()).0
    }

    /// From now on a prepared segment is kept for the next rotation, so that what has to follow that has room whatever the disk does;
    /// or no longer.
    ///
    /// # Errors
    /// `NoSpace`, `Io` when it could not be prepared: one is kept when there is one. `Poisoned`.
    pub fn keep_segment(&self, keep: bool) -> Result<()> {
        self.check_poison()?;
        if self.keeps_one.swap(keep, Ordering::Relaxed) == keep && !keep {
            return Ok(());
        }
        self.update_room();
        while keep && !self.keeps_segment() {
            self.pool.prepare_one(None)?;
            self.update_room();
        }
        Ok(())
    }

    /// Whether one is kept, or to be.
    pub fn is_keeping_segment(&self) -> bool {
        self.keeps_one.load(Ordering::Relaxed)
    }

    fn kept(&self) -> usize {
        usize::from(self.is_keeping_segment())
    }

    /// True when the next rotation finds a segment that no record before it will take.
    fn keeps_segment(&self) -> bool {
        let claimed = self.boundaries.lock().pending.len();
        self.pool.prepared() > claimed && self.reaches(frame::frame_bytes(1))
    }

    /// True when a record of `bytes` can be appended without another segment than those that are prepared.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.reaches(frame::frame_bytes(bytes)) || !self.lacks_segment()
    }

    /// Whether a frame of `bytes` is sure to find space.
    fn reaches(&self, bytes: u64) -> bool {
        self.tail.load(Ordering::Relaxed) + bytes <= self.room_end.load(Ordering::Relaxed)
    }

    /// True when no segment lies ready for what is appended beyond the present one.
    pub fn lacks_segment(&self) -> bool {
        let boundaries = self.boundaries.lock();
        self.pool.prepared() <= boundaries.pending.len() + self.kept()
    }

    /// Makes other appends wait for the writer, which the caller holds, until the answer is dropped.
    pub(super) fn append_alone(&self) -> Alone<'_> {
        self.boundaries.lock().is_large_coming = true;
        self.update_room();
        Alone(self)
    }

    /// Finds space for a frame of `bytes`.
    #[cold]
    pub(super) fn make_room(&self, bytes: u64) -> Result<()> {
        while self.boundaries.lock().is_large_coming {
            drop(self.writer.lock());
        }
        if self.reaches(bytes) {
            return Ok(());
        }
        if self.lacks_segment() {
            self.pool.prepare_one(None)?;
        }
        self.update_room();
        Ok(())
    }

    /// Does one bounded piece of background work, if there is any: prepares the next segment, or writes zeros ahead of
    /// the records. True when there may be more to do.
    ///
    /// # Errors
    /// `NoSpace`, `Io` when no segment could be prepared: nothing changed. `Poisoned`.
    pub fn prepare_step(&self) -> Result<bool> {
        self.check_poison()?;
        if self.lacks_segment() {
            self.pool.prepare_one(None)?;
            self.update_room();
            return Ok(true);
        }
        let ahead = FILL_STEPS_AHEAD * self.options.fill_bytes;
        let place = self.writer.try_lock().and_then(|writer| writer.place());
        if let Some((segment, offset)) = place
            && self.or_poison(segment.fill_ahead(offset, ahead, self.options.fill_bytes))?
        {
            return Ok(true);
        }
        match self.pool.next() {
            Some(next) => self.or_poison(next.fill_ahead(0, ahead, self.options.fill_bytes)),
            None => Ok(false),
        }
    }

    /// Removes a prepared segment that nothing is sure to need, if there is one: the disk is full, and others need its space more. Call
    /// it with the level-0 gate held exclusively.
    ///
    /// # Errors
    /// `Io`. `Poisoned`.
    pub fn give_back_spare(&self) -> Result<()> {
        self.check_poison()?;
        let claimed = self.boundaries.lock().pending.len() + self.kept();
        // What is in the ring, and a record that begins a segment, may need one.
        if self.is_overflowing() || self.pool.prepared() <= claimed + 1 {
            return Ok(());
        }
        let removed = self.pool.remove_last_prepared();
        self.update_room();
        removed
    }

    /// Recycles the segments wholly below `before`, which no restart will read any more.
    ///
    /// # Errors
    /// `Io`; a file may then stay until the next opening. `Poisoned`.
    pub fn release(&self, before: Lsn) -> Result<()> {
        self.check_poison()?;
        let result = self.pool.release(before);
        self.update_room();
        result
    }
}
