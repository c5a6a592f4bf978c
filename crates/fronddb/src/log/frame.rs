//! The frame around each record in the log, and when to believe it.
//!
//! A frame is two words and the record's bytes. Its check covers its own position, so that a frame that
//! an earlier use left in a recycled segment never passes, and the *epoch*: each opening of the database writes under an epoch of
//! its own, so that what a crash left beyond the end of the log never passes either, although positions there are given
//! out again. It also covers the length and the checksum of the record, so that a good header is good evidence by itself.
//!
//! Each frame says how far below it the log was durable when it was appended. A damaged record below such a position
//! was acknowledged and is damage; a bad frame that nothing later vouches for is the torn end of the log.
//!
//! # Bytes
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | length of the record as stored (28 bits), codec (3 bits), turned ([`TURNED`], highest bit) |
//! | 4 | 4 | CRC-32C of the stored record |
//! | 8 | 4 | position of the frame less the position known durable; all ones: unknown |
//! | 12 | 4 | CRC-32C of position, epoch, and the 12 bytes before |
//! | 16 | | the record, zero-padded to 8 bytes; compressed and turned ones begin with the length before compression (4 bytes) |
//!
//! Positions are multiples of 8. A stored record is never empty, so the first word of a frame is never 0.

/// Bytes before the record.
pub(super) const HEADER_BYTES: usize = 16;
/// Longest record as stored, in bytes.
pub(super) const STORED_BYTES_MAX: usize = (1 << 28) - 1;
/// Set in the tag of a record that was turned ([`crate::format::record::turned`]), whether it was compressed after that or not.
pub(super) const TURNED: u8 = 8;
const LENGTH_BITS: u32 = 28;
const DURABLE_UNKNOWN: u32 = u32::MAX;

/// What a frame's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Length of the record as stored, in bytes.
    pub(super) stored: usize,
    /// Its codec ([`crate::base::compress`]), and [`TURNED`].
    pub(super) tag: u8,
    /// Its checksum.
    pub(super) crc: u32,
    /// The log was durable up to here when the frame was appended; 0: unknown.
    pub(super) durable: u64,
}

/// Bytes of the frame of a record of `stored` bytes.
#[inline]
pub(super) fn frame_bytes(stored: usize) -> u64 {
    (HEADER_BYTES + stored.next_multiple_of(8)) as u64
}

/// Checksum of a stored record.
#[inline]
pub(super) fn record_crc(record: &[u8]) -> u32 {
    crc32c::crc32c(record)
}

#[inline]
fn check(position: u64, epoch: u64, first: u64, distance: u32) -> u32 {
    let mut bytes = [0; 28];
    bytes[0..8].copy_from_slice(&position.to_le_bytes());
    bytes[8..16].copy_from_slice(&epoch.to_le_bytes());
    bytes[16..24].copy_from_slice(&first.to_le_bytes());
    bytes[24..28].copy_from_slice(&distance.to_le_bytes());
    crc32c::crc32c(&bytes)
}

impl Header {
    /// The two words before the record.
    #[inline]
    pub(super) fn encode(&self, position: u64, epoch: u64) -> (u64, u64) {
        debug_assert!((1..=STORED_BYTES_MAX).contains(&self.stored) && self.tag < 16 && position.is_multiple_of(8));
        let first = self.stored as u64 | u64::from(self.tag) << LENGTH_BITS | u64::from(self.crc) << 32;
        let distance = u32::try_from(position.wrapping_sub(self.durable)).unwrap_or(DURABLE_UNKNOWN);
        let second = u64::from(distance) | u64::from(check(position, epoch, first, distance)) << 32;
        (first, second)
    }

    /// Reads the header at `position`; `None` when it is not the header of a frame that belongs there.
    #[inline]
    pub(super) fn decode(bytes: &[u8], position: u64, epoch: u64) -> Option<Header> {
        let (first, rest) = bytes.split_first_chunk::<8>()?;
        let first = u64::from_le_bytes(*first);
        let second = u64::from_le_bytes(*rest.first_chunk::<8>()?);
        let distance = second as u32;
        let stored = stored_bytes(first);
        if stored == 0 || check(position, epoch, first, distance) != (second >> 32) as u32 {
            return None;
        }
        let durable = if distance == DURABLE_UNKNOWN { 0 } else { position.saturating_sub(u64::from(distance)) };
        Some(Header { stored, tag: (first as u32 >> LENGTH_BITS) as u8, crc: (first >> 32) as u32, durable })
    }
}

/// Length of the stored record, from the first word of its frame.
#[inline]
pub(super) fn stored_bytes(first: u64) -> usize {
    first as usize & STORED_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn a_frame_passes_only_where_it_was_written(stored in 1usize..=STORED_BYTES_MAX, tag in 0u8..16, crc: u32, position in 0u64..1 << 50, back in 0u64..1 << 34, epoch: u64, bit in 0usize..128) {
            let position = position * 8;
            let durable = position.saturating_sub(back);
            let header = Header { stored, tag, crc, durable };
            let (first, second) = header.encode(position, epoch);
            let mut bytes = [first.to_le_bytes(), second.to_le_bytes()].concat();
            let known = if position - durable < u64::from(u32::MAX) { durable } else { 0 };
            prop_assert_eq!(Header::decode(&bytes, position, epoch), Some(Header { durable: known, ..header }));
            prop_assert_eq!(Header::decode(&bytes, position + 8, epoch), None);
            prop_assert_eq!(Header::decode(&bytes, position, epoch ^ 1), None);
            prop_assert_eq!(Header::decode(&bytes[..15], position, epoch), None);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Header::decode(&bytes, position, epoch), None);
        }
    }
}
