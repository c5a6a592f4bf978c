//! Space for what is appended: segments are prepared ahead and given back.

use super::{Log, frame};
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
    /// has claimed, else to the end of the newest segment less what may be on its way there, or to the end of the large record
    /// that has it to itself; and not past a rotation that found no segment.
    pub(super) fn update_room(&self) {
        let boundaries = self.boundaries.lock();
        let prepared = self.pool.prepared();
        let room_end = if boundaries.is_large_coming {
            0
        } else if prepared > boundaries.pending.len() {
            u64::MAX
        } else if let Some(boundary) = boundaries.pending.get(prepared) {
            *boundary
        } else {
            let ordinary = |start, capacity: u64| start + capacity.saturating_sub(self.ring.bytes());
            match (boundaries.pending.back(), self.pool.live().last()) {
                (Some(boundary), _) => ordinary(*boundary, self.options.segment_bytes),
                (None, Some(live)) => live.closed_at.unwrap_or_else(|| {
                    ordinary(live.start, live.segment.as_ref().map_or(0, |segment| segment.capacity))
                }),
                (None, None) => self.start,
            }
        };
        self.room_end.store(room_end, Ordering::Relaxed);
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
        self.pool.prepared() <= self.boundaries.lock().pending.len()
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
