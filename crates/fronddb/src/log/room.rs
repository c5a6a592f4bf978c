//! Space for what is appended: segments are prepared ahead, claimed by rotations, taken by the writer and given back.

use std::sync::Arc;

use super::pool::Live;
use super::segment::{HEADER_BYTES, Segment};
use super::{Boundaries, Log, NO_BOUNDARY, Wanted, frame};
use crate::base::sync::atomic::Ordering;
use crate::base::{ErrorKind, Lsn, Result};

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
    /// Begins a new segment with the next record, and returns that record's position. Call it with the level-0 gate
    /// held exclusively, see above. Without a record since the last rotation nothing changes. A full disk is no reason to
    /// fail, unless something `must_follow`: appends do then, until there is a segment.
    ///
    /// # Errors
    /// `NoSpace`, `Io` when no segment could be prepared: nothing changed. `Poisoned`.
    pub fn rotate(&self, must_follow: bool) -> Result<Lsn> {
        self.check_poison()?;
        let at = self.tail.load(Ordering::Acquire);
        if self.is_overflowing() {
            // It is to have another segment than what follows.
            self.write_up_to(Lsn(at), Wanted::Write)?;
        }
        let mut boundaries = self.boundaries.lock();
        if at != boundaries.latest {
            if self.pool.prepared() <= boundaries.pending.len() {
                let claimed = boundaries.pending.len();
                match self.prepare_unless(|| self.pool.prepared() > claimed) {
                    // Level 0 can be emptied all the same, which is what makes space; nothing can be appended until then.
                    Err(error) if error.kind() == ErrorKind::NoSpace && !must_follow => {}
                    result => result?,
                }
            }
            boundaries.latest = at;
            boundaries.pending.push_back(at);
            if boundaries.pending.len() == 1 {
                self.next_boundary.store(at, Ordering::Release);
            }
        }
        drop(boundaries);
        self.update_room();
        Ok(Lsn(at))
    }

    /// Waits for who prepares a segment just now, and prepares one if there are not enough then.
    fn prepare_unless(&self, are_enough: impl FnOnce() -> bool) -> Result<()> {
        let seen = self.pool.next_number();
        if are_enough() { Ok(()) } else { self.pool.prepare_after(seen) }
    }

    pub(super) fn is_boundary(&self, position: u64) -> bool {
        self.next_boundary.load(Ordering::Acquire) <= position
    }

    /// Takes the next segment, whose first record is at `position`. What is known of rotations and of segments changes together.
    pub(super) fn take_segment(&self, position: u64) -> Result<Arc<Segment>> {
        let mut boundaries = self.boundaries.lock();
        let segment = self.pool.take(position)?;
        while boundaries.pending.front().is_some_and(|boundary| *boundary <= position) {
            boundaries.pending.pop_front();
        }
        self.next_boundary.store(boundaries.pending.front().copied().unwrap_or(NO_BOUNDARY), Ordering::Release);
        drop(boundaries);
        self.update_room();
        Ok(segment)
    }

    /// Says up to where appends are sure to find space: to the end of the newest segment, or of the large record that has it to itself,
    /// and of the prepared ones that no rotation has claimed or is to have; and not past a rotation that found no segment.
    pub(super) fn update_room(&self) {
        let boundaries = self.boundaries.lock();
        let ready = self.pool.ready(boundaries.pending.len() + self.kept());
        let room_end = if boundaries.is_large_coming {
            0
        } else if let Some(boundary) = boundaries.pending.get(ready.prepared) {
            *boundary
        } else {
            let (end, is_exact) = self.newest_end(&boundaries, ready.newest.as_ref());
            // A frame that does not fit leaves less than its length in the segment before. Where a segment begins to be kept, one
            // frame may have been let past it.
            let spare: u64 = ready.spare.iter().map(|capacity| capacity.saturating_sub(self.ring_frame_max)).sum();
            end.saturating_sub(if is_exact { 0 } else { self.ring_frame_max }) + spare
        };
        self.room_end.store(room_end, Ordering::Relaxed);
    }

    /// Where the newest segment is full, begun or claimed by a rotation; and whether nothing goes there any more.
    fn newest_end(&self, boundaries: &Boundaries, newest: Option<&Live>) -> (u64, bool) {
        match (boundaries.pending.back(), newest) {
            (Some(boundary), _) => (boundary + self.options.segment_bytes, false),
            (None, Some(Live { closed_at: Some(end), .. })) => (*end, true),
            (None, Some(live)) => (live.start + live.segment.as_ref().map_or(0, |segment| segment.capacity), false),
            (None, None) => (self.start, true),
        }
    }

    /// Whether what is in the ring will take a prepared segment.
    pub(super) fn is_overflowing(&self) -> bool {
        let boundaries = self.boundaries.lock();
        let ready = self.pool.ready(0);
        self.tail.load(Ordering::Acquire) > self.newest_end(&boundaries, ready.newest.as_ref()).0
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
        while self.is_keeping_segment() {
            let seen = self.pool.next_number();
            if self.keeps_segment() {
                break;
            }
            self.pool.prepare_after(seen)?;
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

    /// True when a record of `bytes` can be appended without another segment than those that are prepared. A large one has a segment to
    /// itself.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        let bytes = frame::frame_bytes(bytes);
        (bytes <= self.ring_frame_max && self.reaches(bytes)) || !self.lacks_segment()
    }

    /// Makes sure that the segment which is taken at `position` holds `bytes`, and that it is none that is kept, but by a
    /// rotation there for just this. The caller appends alone.
    pub(super) fn secure_large(&self, position: u64, bytes: u64) -> Result<()> {
        let may_take = || {
            let follows_rotation = self.boundaries.lock().pending.iter().any(|boundary| *boundary <= position);
            let kept = if follows_rotation { 0 } else { self.kept() };
            kept == 0 || self.pool.prepared() > kept
        };
        while !may_take() {
            self.prepare_unless(may_take)?;
        }
        self.pool.enlarge_next(bytes)
    }

    /// Prepares a segment for records of `bytes` together, no larger than they need, where the disk has no space for a usual one.
    ///
    /// # Errors
    /// `NoSpace`, `Io`: nothing changed. `Poisoned`.
    pub fn prepare_small(&self, bytes: u64) -> Result<()> {
        self.check_poison()?;
        self.pool.prepare_one(Some(self.small_capacity(bytes)))?;
        self.update_room();
        Ok(())
    }

    fn small_capacity(&self, bytes: u64) -> u64 {
        // What a frame may leave unused at its end (`update_room`) comes on top.
        (bytes + self.ring_frame_max).next_multiple_of(4096).min(self.options.segment_bytes)
    }

    /// Bytes of the file that [`Log::prepare_small`] makes.
    pub fn small_file_bytes(&self, bytes: u64) -> u64 {
        HEADER_BYTES + self.small_capacity(bytes)
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

    /// Finds space for a frame of `bytes`. Of threads that find none one prepares a segment, and the others wait for it.
    #[cold]
    pub(super) fn make_room(&self, bytes: u64) -> Result<()> {
        loop {
            while self.boundaries.lock().is_large_coming {
                drop(self.writer.lock());
            }
            let seen = self.pool.next_number();
            self.update_room();
            if self.reaches(bytes) {
                return Ok(());
            }
            if !self.boundaries.lock().is_large_coming {
                self.pool.prepare_after(seen)?;
            }
        }
    }

    /// Does one bounded piece of background work, if there is any: prepares the next segment, or writes zeros ahead of
    /// the records. True when there may be more to do.
    ///
    /// # Errors
    /// `NoSpace`, `Io` when no segment could be prepared: nothing changed. `Poisoned`.
    pub fn prepare_step(&self) -> Result<bool> {
        self.check_poison()?;
        let seen = self.pool.next_number();
        if self.lacks_segment() {
            self.pool.prepare_after(seen)?;
            self.update_room();
            return Ok(true);
        }
        let place = self.writer.try_lock().and_then(|writer| writer.place());
        if let Some((segment, offset)) = place
            && self.fill_ahead(&segment, offset)?
        {
            return Ok(true);
        }
        match self.pool.next() {
            Some(next) => self.fill_ahead(&next, 0),
            None => Ok(false),
        }
    }

    fn fill_ahead(&self, segment: &Segment, offset: u64) -> Result<bool> {
        let _pass = self.pool.changing()?;
        let step = self.options.fill_bytes;
        self.or_poison(segment.fill_ahead(offset, FILL_STEPS_AHEAD * step, step))
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

    /// Recycles the segments wholly below `before`, which no restart will read any more, and makes the beginning of what follows them
    /// durable where that is not (L5 of [`super::pool`]).
    ///
    /// # Errors
    /// `Io`; what is left is released the next time if that passes, and stays until the next opening otherwise. `Poisoned`.
    pub fn release(&self, before: Lsn) -> Result<()> {
        self.check_poison()?;
        let result = loop {
            match self.pool.release(before, self.durable_lsn()) {
                Ok(None) => break Ok(()),
                Ok(Some(wanted)) => self.wait_durable(wanted)?,
                Err(error) => break Err(error),
            }
        };
        self.update_room();
        result
    }
}
