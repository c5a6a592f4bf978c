//! Filters: a blocked Bloom filter over the hashes of a run's keys.
//!
//! Putze, Sanders, Singler (2007): all bits of a key lie in one block of 64 bytes, so that a probe
//! touches one cache line. The block is chosen by the high half of the hash, the bits by nine-bit pieces of the hash times an odd
//! constant. At 10 bits a key one absent key in a hundred passes (0.96 %, measured in a test below).
//!
//! Raw form: number of bits per key (u8) · 0 (7 bytes) · blocks of 64 bytes.

use crate::base::checksum::place_of;
use crate::base::pool::{Piece, Pool, UNIT_BYTES};
use crate::base::{Error, Result};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 64;
const HEADER_BYTES: usize = 8;
/// Nine-bit pieces that a product of 64 bits gives.
const PROBES_MAX: u32 = 7;
/// Odd, and unrelated to the constants of the hash.
const MIX: u64 = 0xd6e8_feb8_6659_fd93;

/// A filter in memory.
#[derive(Debug)]
pub struct Filter {
    probes: u32,
    bits_per_key: u8,
    /// Blocks of 64 bytes, aligned as such because pieces are.
    lines: Piece,
}

const _: () = assert!(UNIT_BYTES.is_multiple_of(BLOCK_BYTES), "blocks do not straddle cache lines");

fn probes(bits_per_key: u8) -> u32 {
    // ln 2 times the bits, rounded; slightly fewer because blocks fill unevenly.
    (u32::from(bits_per_key) * 65 / 100).clamp(1, PROBES_MAX)
}

/// As many of `bits_per_key` bits as let the raw form of a filter over `count` keys take no more than `bytes_max`. 0: a filter that small is of
/// no use.
pub fn bits_that_fit(count: usize, bits_per_key: u8, bytes_max: usize) -> u8 {
    let lines = bytes_max.saturating_sub(HEADER_BYTES) / BLOCK_BYTES;
    let bits = (lines * BLOCK_BYTES * 8) as u64 / (count as u64).max(1);
    bits_per_key.min(bits.min(255) as u8)
}

/// Appends the raw form of a filter over `hashes`, of `bits_per_key` bits each.
pub fn encode(hashes: impl ExactSizeIterator<Item = u64>, bits_per_key: u8, out: &mut Vec<u8>) {
    let bits = hashes.len() as u64 * u64::from(bits_per_key);
    let lines = (bits.div_ceil(8 * BLOCK_BYTES as u64).max(1) as usize).min(u32::MAX as usize);
    out.extend_from_slice(&[bits_per_key, 0, 0, 0, 0, 0, 0, 0]);
    let start = out.len();
    out.resize(start + lines * BLOCK_BYTES, 0);
    let probes = probes(bits_per_key);
    let blocks = &mut out[start..];
    for hash in hashes {
        let block = &mut blocks[place_of(hash, lines) * BLOCK_BYTES..][..BLOCK_BYTES];
        let mut mixed = hash.wrapping_mul(MIX);
        for _ in 0..probes {
            let bit = (mixed >> 55) as usize;
            block[bit / 8] |= 1 << (bit % 8);
            mixed <<= 9;
        }
    }
}

impl Filter {
    /// Decodes and validates the raw form, into memory of its own.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(raw: &[u8]) -> Result<Filter> {
        Filter::decode_with(raw, Piece::alone)
    }

    /// As [`Filter::decode`], into memory of `pool`.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode_in(raw: &[u8], pool: &Pool) -> Result<Filter> {
        Filter::decode_with(raw, |length| pool.take(length))
    }

    fn decode_with(raw: &[u8], memory: impl FnOnce(usize) -> Piece) -> Result<Filter> {
        let (header, body) = raw
            .split_at_checked(HEADER_BYTES)
            .filter(|(header, body)| {
                header[0] > 0
                    && header[1..].iter().all(|byte| *byte == 0)
                    && !body.is_empty()
                    && body.len() % BLOCK_BYTES == 0
            })
            .ok_or_else(|| Error::corruption(format!("impossible filter, bytes={}", raw.len())))?;
        let mut lines = memory(body.len());
        lines.copy_from_slice(body);
        Ok(Filter { probes: probes(header[0]), bits_per_key: header[0], lines })
    }

    /// False when no key with this hash is in the set.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let (lines, _) = self.lines.as_chunks::<BLOCK_BYTES>();
        let line = &lines[place_of(hash, lines.len())];
        let mut mixed = hash.wrapping_mul(MIX);
        let mut missing = 0;
        for _ in 0..self.probes {
            let bit = (mixed >> 55) as usize;
            missing |= !line[bit / 8 % BLOCK_BYTES] >> (bit % 8) & 1;
            mixed <<= 9;
        }
        missing == 0
    }

    /// Bits per key that it was made with.
    pub fn bits_per_key(&self) -> u8 {
        self.bits_per_key
    }

    /// Bytes really allocated that no pool counts.
    pub fn memory_bytes(&self) -> usize {
        self.lines.uncounted_bytes() + size_of::<Filter>() + 2 * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::checksum::key_hash;
    use proptest::prelude::*;

    fn hashes(range: std::ops::Range<u64>) -> Vec<u64> {
        range.map(|number| key_hash(&number.to_be_bytes())).collect()
    }

    proptest! {
        #[test]
        fn what_is_in_passes(start: u32, count in 0u64..3000, bits in 1u8..30) {
            let hashes = hashes(u64::from(start)..u64::from(start) + count);
            let mut raw = Vec::new();
            encode(hashes.iter().copied(), bits, &mut raw);
            let filter = Filter::decode(&raw)?;
            prop_assert!(hashes.iter().all(|hash| filter.may_contain(*hash)));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut raw: Vec<u8>, extend: bool, hash: u64) {
            if extend {
                raw.splice(..0, [10, 0, 0, 0, 0, 0, 0, 0]);
                raw.resize(8 + raw.len().div_ceil(64) * 64, 1);
            }
            if let Ok(filter) = Filter::decode(&raw) {
                filter.may_contain(hash);
            }
        }
    }

    #[test]
    fn a_filter_has_fewer_bits_where_more_do_not_fit() {
        let extent = (64 << 20) - 20;
        assert_eq!(bits_that_fit(0, 14, extent), 14);
        assert_eq!(bits_that_fit(38_000_000, 14, extent), 14);
        assert_eq!(bits_that_fit(39_000_000, 14, extent), 13);
        assert_eq!(bits_that_fit(500_000_000, 14, extent), 1);
        assert_eq!(bits_that_fit(600_000_000, 14, extent), 0);
        for (count, bytes) in [(1, 8 + 64), (1000, 8 + 64), (1000, 1500), (5000, 4000), (3, 8 + 128)] {
            let bits = bits_that_fit(count, 255, bytes);
            let mut raw = Vec::new();
            encode(hashes(0..count as u64).into_iter(), bits.max(1), &mut raw);
            assert!(bits == 0 || raw.len() <= bytes, "count={count} bytes={bytes} bits={bits} raw={}", raw.len());
        }
    }

    #[test]
    fn few_absent_keys_pass() {
        let inside = hashes(0..100_000);
        for (bits, per_mille_max) in [(6, 80), (8, 35), (10, 14), (12, 8), (16, 4)] {
            let mut raw = Vec::new();
            encode(inside.iter().copied(), bits, &mut raw);
            let filter = Filter::decode(&raw).expect("decodes");
            let passed = hashes(1_000_000..1_200_000).iter().filter(|hash| filter.may_contain(**hash)).count();
            println!("{bits} bits a key: {:.2} % pass", passed as f64 / 2000.0);
            assert!(passed <= per_mille_max * 200, "bits={bits} passed={passed}");
        }
    }
}
