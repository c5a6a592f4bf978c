//! What room in the cache is worth just now: whether there is any, and what reads of the file and decoding have taken lately.
//!
//! From these follow whether a block is kept packed, and whether background work may take the room and the file from
//! readers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::shard;
use super::{Cache, EntryBlock, Piece, Stopwatch};

/// A read that takes so many times what decoding takes is slow.
pub(super) const SLOW_READ: u64 = 4;
/// A packed block is kept decoded when it was decoded so many times between two visits of the hand, however fast reads are.
pub(super) const HOT_DECODES_MIN: u8 = 6;
/// One read in so many is timed.
const TIMED_EVERY: u64 = 64;
/// What takes less was not read from a device.
const READ_NANOS_MIN: u64 = 2_000;
/// Timed reads that a mean is over, about. A volume that limits its I/Os answers many at once and lets others wait long: they
/// count together.
pub(super) const MEAN_OVER: u64 = 128;
/// A cache that was full has room again when one part in so many of the allowance is free.
const ROOM_PART: usize = 8;

impl Cache {
    /// True from when a block had to go until a good part of the allowance is free.
    pub fn is_full(&self) -> bool {
        #[cfg(test)]
        if self.full_always.load(Ordering::Relaxed) {
            return true;
        }
        if !self.full.load(Ordering::Relaxed) {
            return false;
        }
        let allowance = self.budget.cache_allowance();
        let full = self.bytes() > allowance - allowance / ROOM_PART;
        if !full {
            self.full.store(false, Ordering::Relaxed);
        }
        full
    }

    /// While there is room for all that may be asked for, the number of this while: blocks may be used without asking here. Else none,
    /// and uses are counted. As of the last [`Cache::trim`].
    #[inline]
    pub fn room(&self) -> Option<u8> {
        #[cfg(test)]
        if self.full_always.load(Ordering::Relaxed) {
            return None;
        }
        let phase = self.phase.load(Ordering::Relaxed);
        phase.is_multiple_of(2).then_some(phase as u8)
    }

    /// Looks whether the phase that [`Cache::room`] tells of is over.
    pub(super) fn look_for_room(&self) {
        let phase = self.phase.load(Ordering::Relaxed);
        if self.is_short() == phase.is_multiple_of(2) {
            // Another thread may have seen it, too.
            let next = phase.wrapping_add(1);
            let _ = self.phase.compare_exchange(phase, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// True when there is room for what nobody has asked for yet. The last quarter is for what is asked for.
    pub fn has_room(&self) -> bool {
        !self.is_full() && self.bytes() <= self.budget.cache_allowance() / 4 * 3
    }

    /// Learns how many bytes the blocks take in the file that may be asked for.
    pub fn set_data_bytes(&self, bytes: u64) {
        self.data_bytes.store(bytes, Ordering::Relaxed);
    }

    /// True when there is no room for all that may be asked for, not even packed, or none at the moment.
    fn is_short(&self) -> bool {
        self.data_bytes.load(Ordering::Relaxed) > self.budget.cache_allowance() as u64 || self.is_full()
    }

    /// What reading a block from the file takes lately, in nanoseconds; 0: not known.
    pub fn read_nanos(&self) -> u64 {
        self.read_nanos.load(Ordering::Relaxed) / MEAN_OVER
    }

    /// It says that it is full from now on.
    #[cfg(test)]
    pub(crate) fn act_full(&self) {
        self.full_always.store(true, Ordering::Relaxed);
    }

    /// From now on it says that reads take so long, whatever they take.
    #[cfg(test)]
    pub(crate) fn set_read_nanos(&self, nanos: u64) {
        self.learns_nothing.store(true, Ordering::Relaxed);
        self.read_nanos.store(nanos * MEAN_OVER, Ordering::Relaxed);
    }

    /// True when reads are slow and there is no room: each byte that is held for something else costs reads.
    pub fn is_pressed(&self) -> bool {
        #[cfg(test)]
        if self.packs_always.load(Ordering::Relaxed) {
            return self.is_short();
        }
        let (read, decode) = (self.read_nanos.load(Ordering::Relaxed), self.decode_nanos.load(Ordering::Relaxed));
        read > SLOW_READ * decode && self.is_short()
    }

    /// How often a packed block is to be decoded between two visits of the hand until that costs more than the reads that its room
    /// saves: as often as decoding goes into a read.
    pub(super) fn hot_decodes(&self) -> u8 {
        let (read, decode) = (self.read_nanos.load(Ordering::Relaxed), self.decode_nanos.load(Ordering::Relaxed));
        (read / decode.max(1)).clamp(HOT_DECODES_MIN.into(), shard::DECODES_MAX.into()) as u8
    }

    /// A stopwatch for a read, if it is one to be timed.
    pub(super) fn stopwatch(&self) -> Option<Stopwatch> {
        self.reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(TIMED_EVERY).then(Stopwatch::start)
    }

    /// Learns what reading and decoding a block took. Blocks that a scan had read ahead tell nothing.
    pub(super) fn learn(&self, read: Duration, decode: Duration) {
        let (read, decode) = (read.as_nanos() as u64, decode.as_nanos() as u64);
        if read < READ_NANOS_MIN {
            return;
        }
        #[cfg(test)]
        if self.learns_nothing.load(Ordering::Relaxed) {
            return;
        }
        for (lately, new) in [(&self.read_nanos, read), (&self.decode_nanos, decode)] {
            let old = lately.load(Ordering::Relaxed);
            lately.store(if old == 0 { new * MEAN_OVER } else { old - old / MEAN_OVER + new }, Ordering::Relaxed);
        }
    }

    /// The stored form of `block` if it is to be kept instead of the block.
    pub(super) fn pack(&self, stored: &[u8], block: &EntryBlock) -> Option<Piece> {
        self.packs_of(stored.len(), block.raw_bytes()).then(|| self.pool.copy(stored))
    }

    /// True when a block that comes in is to be packed, and becomes smaller by that.
    pub(super) fn packs_of(&self, stored_bytes: usize, raw_bytes: usize) -> bool {
        stored_bytes <= raw_bytes / 4 * 3 && self.is_pressed()
    }
}
