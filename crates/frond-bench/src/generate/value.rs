//! Values of a chosen compressibility.

use super::random::{Random, mix};

/// Makes values: the first part of each is random, the rest repeats one byte, which any codec removes.
#[derive(Debug, Clone, Copy)]
pub struct Values {
    seed: u64,
    bytes: usize,
    random_bytes: usize,
}

impl Values {
    /// Values of `bytes` bytes, of which the share `entropy` (0 to 1) cannot be compressed.
    pub fn new(seed: u64, bytes: usize, entropy: f64) -> Values {
        Values { seed, bytes, random_bytes: ((bytes as f64 * entropy).round() as usize).min(bytes) }
    }

    /// Length of a value.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Value number `number` in its `version`, into `out` (cleared first).
    pub fn generate(&self, number: u64, version: u64, out: &mut Vec<u8>) {
        out.clear();
        out.resize(self.bytes, b'=');
        Random::new(mix(self.seed) ^ mix(number) ^ version).fill(&mut out[..self.random_bytes]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_function_of_number_and_version() {
        let values = Values::new(1, 100, 0.5);
        let make = |number, version| {
            let mut out = Vec::new();
            values.generate(number, version, &mut out);
            out
        };
        assert_eq!(make(5, 0), make(5, 0));
        assert_ne!(make(5, 0), make(5, 1));
        assert_ne!(make(5, 0), make(6, 0));
        assert_eq!(make(5, 0).len(), 100);
        assert_eq!(make(5, 0)[50..], [b'='; 50]);
    }
}
