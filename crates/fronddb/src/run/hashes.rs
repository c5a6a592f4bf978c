//! The hashes of a run's keys, kept until its filter is made.
//!
//! They are many for a moment (a leaf of small rows has a hundred thousand), so they lie in memory that goes back to the
//! system rather than to the allocator, where each writing thread would keep its own.

use crate::base::page_buf::PageBuf;

const HASH_BYTES: usize = size_of::<u64>();

/// A list of hashes.
#[derive(Debug, Default)]
pub(super) struct Hashes {
    memory: PageBuf,
    count: usize,
}

impl Hashes {
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn push(&mut self, hash: u64) {
        let at = self.count * HASH_BYTES;
        if at == self.memory.len() {
            self.grow();
        }
        self.memory[at..at + HASH_BYTES].copy_from_slice(&hash.to_le_bytes());
        self.count += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = PageBuf::zeroed((2 * self.memory.capacity()).max(1));
        let capacity = larger.capacity();
        larger.set_len(capacity);
        larger[..self.memory.len()].copy_from_slice(&self.memory);
        self.memory = larger;
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.memory.as_chunks::<HASH_BYTES>().0[..self.count].iter().map(|hash| u64::from_le_bytes(*hash))
    }

    /// Bytes that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_comes_back() {
        let mut hashes = Hashes::default();
        for count in [3, 20_000, 0] {
            hashes.clear();
            (0..count).for_each(|number| hashes.push(number * 77));
            assert_eq!(hashes.len() as u64, count);
            assert!(hashes.iter().eq((0..count).map(|number| number * 77)));
        }
        assert!(hashes.memory_bytes() >= 20_000 * HASH_BYTES);
    }
}
