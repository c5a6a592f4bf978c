//! The writing end of the log: from the ring to the files.
//!
//! Whoever holds the writer takes complete frames out of the ring, in order, into a staging buffer, and writes that in
//! whole pages. The buffer keeps the last, partial page: the next write repeats its beginning with the same
//! bytes and continues it. Such a rewrite is safe if the disk writes 512 bytes whole or not at all: sectors of the
//! beginning do not change, and the sector in which the old end lies holds, torn or not, a prefix that is the same.
//! The rest of a page is zero, so the frame after the last one of a write is never taken for one.
//!
//! A segment is begun when the next frame does not fit the current one, or lies where the log was rotated.
//! Frames know nothing of segments. A record that is too large for the ring gets a segment to itself, and is copied
//! through the staging buffer; it is made durable before the next segment is begun, whose header then vouches for it.
//!
//! A pass for commits that wait for a sync writes durably where it can: one call, and one request to a disk that can write past its
//! cache, in place of a write and a sync. That is so where nothing else is to become durable with it, as such a write says
//! nothing of those before. It keeps the writer for the time of a sync, so it is not done among those who would
//! write meanwhile.
//!
//! - W1: `staging[..staged]` is what the file holds, or will hold after the next write, at `offset`.
//! - W2: `position` = `consumed` of the ring; below `written`, all is handed to the operating system.
//! - W3: every segment with bytes below `written` and not durable is in `unsynced`. It goes by their numbers: the file of one
//!   may be another's by the time at which it is synced.
//! - W4: but for a record that is too large for the ring, nothing is written that ends above `durable + unsynced_bytes_max`
//!   or, if that is more, above `durable` and the staging buffer; so frames vouch for what lies not too far below them: see
//!   [`super::evidence`].

use std::sync::Arc;

use super::frame::{self, Header};
use super::segment::{self, HEADER_BYTES, Segment, Way};
use super::{Log, RING_SHARE, Wanted};
use crate::base::Result;
use crate::base::page_buf::PageBuf;
use crate::base::sync::atomic::Ordering;

const PAGE: usize = 4096;
/// So many passes for commits that do not sync go past the page cache after one for a commit that does.
const DIRECT_PASSES: u32 = 8;
/// So many passes for commits that sync leave the sync to itself after one for somebody else.
const APART_PASSES: u32 = 64;
/// More is not written durably: others may need the ring's room before that has ended.
const DURABLE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Writer {
    segment: Option<Arc<Segment>>,
    /// Position of the segment's first frame.
    start: u64,
    staging: PageBuf,
    staged: usize,
    offset: u64,
    pub(super) position: u64,
    /// Begin a segment before the next frame, whatever it is.
    begin_next: bool,
    /// Passes to come that go past the page cache although nobody waits for a sync.
    direct_passes: u32,
    /// Passes to come that do not write durably although somebody waits for a sync.
    apart_passes: u32,
    /// Of this pass; `Durable` where that can be.
    way: Way,
    unsynced: Vec<Arc<Segment>>,
}

/// Room for a header page, a partial page, the longest frame of the ring, and what fills its last page.
pub(super) const fn staging_bytes(ring_bytes: usize) -> usize {
    2 * PAGE + ring_bytes / RING_SHARE + PAGE
}

impl Writer {
    pub(super) fn new(ring_bytes: usize, position: u64) -> Writer {
        let staging = PageBuf::zeroed(staging_bytes(ring_bytes));
        let (segment, unsynced) = (None, Vec::new());
        Writer {
            segment,
            start: position,
            staging,
            staged: 0,
            offset: 0,
            position,
            begin_next: false,
            direct_passes: 0,
            apart_passes: 0,
            way: Way::Direct,
            unsynced,
        }
    }

    /// Called when a pass begins.
    ///
    /// A commit that waits for the write alone is quicker through the page cache; a sync after it has then to write the
    /// page. Among commits that sync, all write past it, as a direct write has to clean the page first.
    pub(super) fn choose_way(&mut self, wanted: Wanted) {
        self.way = match wanted {
            Wanted::Sync if self.apart_passes == 0 => Way::Durable,
            Wanted::Write if self.direct_passes == 0 => Way::Cached,
            _ => Way::Direct,
        };
        match wanted {
            Wanted::Sync => {
                self.direct_passes = DIRECT_PASSES;
                self.apart_passes = self.apart_passes.saturating_sub(1);
            }
            Wanted::Write => {
                self.direct_passes = self.direct_passes.saturating_sub(1);
                self.apart_passes = APART_PASSES;
            }
        }
    }

    /// Somebody writes who waits for nothing but room for records, as the pass before did.
    pub(super) fn sync_apart(&mut self) {
        self.way = self.way_apart();
        self.apart_passes = APART_PASSES;
    }

    /// Bytes of this writer's memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.staging.len()
    }

    /// The segments to sync so that everything written becomes durable; the current one last.
    pub(super) fn unsynced(&self) -> Vec<Arc<Segment>> {
        self.unsynced.clone()
    }

    /// After `segments`, an answer of [`Writer::unsynced`], were synced: those that were not written to any more even then need no
    /// further sync. The last one may have been written to since, also when it is no longer the current one (W3).
    pub(super) fn forget_synced(&mut self, segments: &[Arc<Segment>]) {
        let complete = segments.split_last().map_or(&[][..], |(_, complete)| complete);
        self.unsynced.retain(|segment| !complete.iter().any(|synced| synced.number == segment.number));
    }

    /// Offset in the current segment up to which records were written, and the segment.
    pub(super) fn place(&self) -> Option<(Arc<Segment>, u64)> {
        self.segment.as_ref().map(|segment| (Arc::clone(segment), self.offset + self.staged as u64))
    }

    /// Room left in the current segment, in bytes.
    fn room(&self) -> u64 {
        match &self.segment {
            Some(segment) => (self.start + segment.capacity).saturating_sub(self.position),
            None => 0,
        }
    }

    /// Takes the complete frames below `limit` out of the ring and writes them.
    pub(super) fn drain(&mut self, log: &Log, limit: u64) -> Result<()> {
        let before = self.position;
        while self.position < limit {
            let Some(bytes) = log.ring.complete(self.position) else { break };
            if self.begin_next || bytes > self.room() || log.is_boundary(self.position) {
                self.begin_segment(log)?;
            }
            if self.staged + bytes as usize > self.staging.len() - PAGE {
                self.write_out(log)?;
            }
            log.ring.take(self.position, &mut self.staging[self.staged..self.staged + bytes as usize]);
            self.staged += bytes as usize;
            self.position += bytes;
            log.ring.consume(self.position);
        }
        if self.position > before { self.write_last(log) } else { Ok(()) }
    }

    /// Writes a record that is too large for the ring, at `position`, which everything below was drained up to.
    pub(super) fn write_large(&mut self, log: &Log, position: u64, header: Header, record: &[u8]) -> Result<()> {
        debug_assert_eq!(self.position, position);
        self.begin_segment(log)?;
        let (first, second) = header.encode(position, log.epoch);
        self.stage(log, &first.to_le_bytes())?;
        self.stage(log, &second.to_le_bytes())?;
        self.stage(log, record)?;
        self.stage(log, &[0; 8][..record.len().next_multiple_of(8) - record.len()])?;
        self.position += frame::frame_bytes(record.len());
        log.ring.consume(self.position);
        self.write_out(log)?;
        self.sync(log)?;
        self.begin_next = true;
        log.pool.close_last(self.position);
        Ok(())
    }

    fn stage(&mut self, log: &Log, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.staged + PAGE >= self.staging.len() {
                self.write_staging(log, self.way_apart())?;
            }
            let room = self.staging.len() - PAGE - self.staged;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.staging[self.staged..self.staged + now.len()].copy_from_slice(now);
            self.staged += now.len();
            bytes = later;
        }
        Ok(())
    }

    /// Goes on in the next prepared segment, whose header is staged before its first frame.
    fn begin_segment(&mut self, log: &Log) -> Result<()> {
        self.write_out(log)?;
        if log.pool.first_written().is_some_and(|start| start >= log.durable.load(Ordering::Acquire)) {
            // L5 of the pool.
            self.sync(log)?;
        }
        let segment = log.take_segment(self.position)?;
        let header = segment::Header {
            uuid: log.options.uuid,
            number: segment.number,
            epoch: log.epoch,
            start: self.position,
            durable: log.durable.load(Ordering::Acquire),
            window: log.window(),
        };
        header.encode(&mut self.staging[..PAGE]);
        self.staged = PAGE;
        self.offset = 0;
        debug_assert_eq!(HEADER_BYTES, PAGE as u64);
        self.start = self.position;
        self.begin_next = false;
        self.unsynced.push(Arc::clone(&segment));
        self.segment = Some(segment);
        Ok(())
    }

    /// Writes what is staged up to `position`, which is the end of a frame.
    fn write_out(&mut self, log: &Log) -> Result<()> {
        if self.position == log.written.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.write_staging(log, self.way_apart())?;
        log.written.store(self.position, Ordering::Release);
        Ok(())
    }

    /// The same at the end of a pass; durably where it may be, and everything before is.
    fn write_last(&mut self, log: &Log) -> Result<()> {
        let is_alone = log.durable.load(Ordering::Acquire) == log.written.load(Ordering::Relaxed);
        if self.way != Way::Durable || !is_alone || self.staged > DURABLE_BYTES_MAX {
            return self.write_out(log);
        }
        let start = log.options.clock.micros();
        self.write_staging(log, Way::Durable)?;
        log.written.store(self.position, Ordering::Release);
        log.synced(self.position, start);
        // All but the current one were durable before.
        self.unsynced.drain(..self.unsynced.len().saturating_sub(1));
        Ok(())
    }

    /// How a pass writes what is not made durable by that.
    fn way_apart(&self) -> Way {
        if self.way == Way::Cached { Way::Cached } else { Way::Direct }
    }

    fn write_staging(&mut self, log: &Log, way: Way) -> Result<()> {
        if self.unsynced_bytes(log) > log.options.unsynced_bytes_max {
            self.sync(log)?;
        }
        let Some(segment) = &self.segment else { return Ok(()) };
        let length = self.staged.next_multiple_of(PAGE);
        self.staging[self.staged..length].fill(0);
        let _pass = log.pool.changing()?;
        segment.write(&self.staging[..length], self.offset, log.options.fill_bytes, way)?;
        log.counters.batches.fetch_add(1, Ordering::Relaxed);
        log.counters.written_bytes.fetch_add(length as u64, Ordering::Relaxed);
        let whole = self.staged / PAGE * PAGE;
        self.staging.copy_within(whole..length, 0);
        self.offset += whole as u64;
        self.staged -= whole;
        Ok(())
    }

    fn unsynced_bytes(&self, log: &Log) -> u64 {
        self.position.saturating_sub(log.durable.load(Ordering::Acquire))
    }

    /// Makes everything written durable while nothing else is written.
    fn sync(&mut self, log: &Log) -> Result<()> {
        let written = log.written.load(Ordering::Acquire);
        let segments = self.unsynced();
        log.sync_segments(&segments, written)?;
        self.forget_synced(&segments);
        Ok(())
    }
}
