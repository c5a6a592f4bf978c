//! Blocked Bloom filter.
use crate::base::Result;

/// A decoded filter.
#[derive(Debug)]
pub struct Filter {}

impl Filter {
    /// Decodes and validates the raw form.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(_raw: &[u8]) -> Result<Filter> {
        unimplemented!()
    }
    /// False when no key with this hash is in the set.
    pub fn may_contain(&self, _hash: u64) -> bool {
        unimplemented!()
    }
    /// Bytes really allocated.
    pub fn memory_bytes(&self) -> usize {
        unimplemented!()
    }
}
