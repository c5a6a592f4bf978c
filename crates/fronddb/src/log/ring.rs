//! The ring into which records are copied, in parallel, on their way to the file.
//!
//! A record's place in the ring is its position in the log modulo the ring's size, so that the one atomic add that
//! reserves its position reserves its memory too. Copies run in parallel and finish in any order. That a
//! frame is complete is said by its first word, which is stored last and is never zero: the ring carries its own
//! completion table (as Aeron's log buffers do). Who takes a frame out leaves zeros behind, then moves `consumed`,
//! which lets the space be reserved again.
//!
//! Words are atomic, so all this is safe code; a copy moves eight bytes at a time.
//!
//! - R1: words outside `consumed .. consumed + bytes` as seen by a writer are zero; a writer waits until its whole
//!   frame lies inside before it stores anything.
//! - R2: the first word of a frame is stored with release after all others, and loaded with acquire before them.
//! - R3: one thread at a time takes frames out (the holder of the log's writer).

use crossbeam_utils::CachePadded;

use super::frame::{self, HEADER_BYTES};
use crate::base::sync::atomic::{AtomicU64, Ordering};

/// The ring.
#[derive(Debug)]
pub(super) struct Ring {
    words: Box<[AtomicU64]>,
    /// Everything below was taken out.
    consumed: CachePadded<AtomicU64>,
}

impl Ring {
    /// An empty ring of `bytes`, a power of two, whose first frame will lie at `start`.
    pub(super) fn new(bytes: usize, start: u64) -> Ring {
        assert!(bytes.is_power_of_two() && bytes >= 4096, "size of the log's ring, bytes={bytes}");
        let words = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        Ring { words, consumed: CachePadded::new(AtomicU64::new(start)) }
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Everything below this position was taken out.
    #[inline]
    pub(super) fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Acquire)
    }

    #[inline]
    fn word(&self, index: u64) -> &AtomicU64 {
        &self.words[index as usize & (self.words.len() - 1)]
    }

    /// True when a frame that ends at `end` may be put in (R1).
    #[inline]
    pub(super) fn has_room_for(&self, end: u64) -> bool {
        end - self.consumed() <= self.bytes()
    }

    /// Copies a frame to its place, for which there is room.
    #[inline]
    pub(super) fn put(&self, position: u64, header: (u64, u64), record: &[u8]) {
        debug_assert!(self.has_room_for(position + frame::frame_bytes(record.len())), "R1");
        let at = position / 8;
        self.word(at + 1).store(header.1, Ordering::Relaxed);
        let mut index = at + 2;
        let (whole, rest) = record.as_chunks::<8>();
        for chunk in whole {
            self.word(index).store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
            index += 1;
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(index).store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
        self.word(at).store(header.0, Ordering::Release);
    }

    /// Length of the complete frame at `position`, header included; `None` while it is not complete.
    #[inline]
    pub(super) fn complete(&self, position: u64) -> Option<u64> {
        match self.word(position / 8).load(Ordering::Acquire) {
            0 => None,
            first => Some(frame::frame_bytes(frame::stored_bytes(first))),
        }
    }

    /// Copies the complete frame at `position` to `out`, which has its length, and leaves zeros. The space is given
    /// back by [`Ring::consume`].
    pub(super) fn take(&self, position: u64, out: &mut [u8]) {
        debug_assert!(out.len() >= HEADER_BYTES && out.len().is_multiple_of(8));
        for (index, chunk) in (position / 8..).zip(out.as_chunks_mut::<8>().0) {
            let word = self.word(index);
            *chunk = word.load(Ordering::Relaxed).to_le_bytes();
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Gives back everything below `position`.
    #[inline]
    pub(super) fn consume(&self, position: u64) {
        self.consumed.store(position, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_around_the_end_of_the_ring() {
        let start = 8 * 1_000_003;
        let ring = Ring::new(4096, start);
        let mut position = start;
        for length in (1..=700).chain([3000, 4080]) {
            let record: Vec<u8> = (0..length).map(|byte| (byte * 7) as u8 | 1).collect();
            let header = frame::Header { stored: length, tag: 0, crc: 9, durable: 0 }.encode(position, 1);
            assert_eq!(ring.complete(position), None);
            ring.put(position, header, &record);
            let bytes = ring.complete(position).expect("complete");
            assert_eq!(bytes, frame::frame_bytes(length));
            let mut out = vec![0; bytes as usize];
            ring.take(position, &mut out);
            assert_eq!(out[..8], header.0.to_le_bytes());
            assert_eq!(out[8..16], header.1.to_le_bytes());
            assert_eq!(out[16..16 + length], record[..]);
            assert!(out[16 + length..].iter().all(|byte| *byte == 0));
            position += bytes;
            ring.consume(position);
            assert!(ring.has_room_for(position + 4096) && !ring.has_room_for(position + 4104));
        }
        assert!(ring.words.iter().all(|word| word.load(Ordering::Relaxed) == 0), "R1");
    }
}
