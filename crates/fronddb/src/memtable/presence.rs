//! Which keys a memtable may have, for point reads of those that it has not.
//!
//! Most reads of a large table find nothing in level 0, and a search for nothing touches as many cache lines as one for
//! something. So a Bloom filter is asked first, of which all bits of a key lie in one word: a read of it is one cache line, an insert
//! one atomic operation, or none where the bits are there already. Its size goes by the memory budget; where level 0 is made larger than by
//! default, more keys pass.
//!
//! - K1: the bits of a key are set before a message of it can be found. So whoever has learnt of the message by the list, or
//!   of its transaction's end, finds them set.

use crate::base::checksum::place_of;
use crate::base::memory::{MemoryBudget, Purpose, default_level0_bytes};
use crate::base::sync::atomic::{AtomicU64, Ordering};

/// Level 0 has a byte of filter for so many of its own: about a message.
const LEVEL0_BYTES_PER_BYTE: usize = 128;
const BYTES_MIN: usize = 256;
/// Bits of a key.
const BITS: u32 = 3;
/// Odd, and unrelated to the constants of the hash.
const MIX: u64 = 0x9fb2_1c65_1e98_df25;

pub(super) struct Presence {
    words: Box<[AtomicU64]>,
    budget: MemoryBudget,
}

impl Presence {
    pub(super) fn new(budget: &MemoryBudget) -> Presence {
        let bytes = (default_level0_bytes(budget.limit()) / LEVEL0_BYTES_PER_BYTE).max(BYTES_MIN);
        let words: Box<[AtomicU64]> = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        budget.add(Purpose::Level0, words.len() * 8);
        Presence { words, budget: budget.clone() }
    }

    /// The word of a key and its bits.
    #[inline]
    fn place(&self, hash: u64) -> (&AtomicU64, u64) {
        let mut mixed = hash.wrapping_mul(MIX);
        let mut bits = 0;
        for _ in 0..BITS {
            bits |= 1 << (mixed >> 58);
            mixed <<= 6;
        }
        (&self.words[place_of(hash, self.words.len())], bits)
    }

    /// A message of the key with this hash comes.
    #[inline]
    pub(super) fn add(&self, hash: u64) {
        let (word, bits) = self.place(hash);
        // Ordering, here and below: K1 follows from how the message is published.
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// False when there is no message of the key with this hash.
    #[inline]
    pub(super) fn may_have(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        word.load(Ordering::Relaxed) & bits == bits
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.len() * 8
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.budget.sub(Purpose::Level0, self.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::checksum::key_hash;

    #[test]
    fn what_was_added_passes_and_little_else_does() {
        let budget = MemoryBudget::new(if cfg!(miri) { 1 << 20 } else { 64 << 20 });
        let presence = Presence::new(&budget);
        assert_eq!(budget.used(Purpose::Level0), budget.limit() / 1024);
        let hash = |number: u32| key_hash(&number.to_be_bytes());
        let full = presence.bytes() as u32;
        (0..full).for_each(|number| presence.add(hash(number)));
        assert!((0..full).all(|number| presence.may_have(hash(number))));
        let passed = (full..3 * full).filter(|number| presence.may_have(hash(*number))).count();
        assert!(passed < full as usize / 5, "{passed} of {} that are not there", 2 * full);
        drop(presence);
        assert_eq!(budget.used(Purpose::Level0), 0);
    }
}
