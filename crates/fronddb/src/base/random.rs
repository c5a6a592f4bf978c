//! Pseudo-random numbers that a seed repeats: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). For simulated crashes and for
//! tests. What the engine does depends on chance nowhere; only names are drawn ([`draw`]).

use std::hash::{BuildHasher, Hasher};

/// A number that nobody guesses and that does not come again: of what the system gives tables to hash with.
pub fn draw() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// A good mixing of 64 bits: the number that follows the state `value` in the sequence.
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The sequence that begins with a seed.
#[cfg(test)]
#[derive(Debug, Clone)]
pub struct Random(pub u64);

#[cfg(test)]
impl Random {
    /// Any number.
    #[expect(clippy::should_implement_trait, reason = "it has no end; as an iterator each number would be an option")]
    pub fn next(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        number
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// So many bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_paper() {
        let mut random = Random(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
        assert_eq!(random.below(0), 0);
    }
}
