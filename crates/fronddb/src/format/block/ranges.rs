//! Range-delete blocks: the range-deletes of a run.
use crate::base::Result;
use crate::format::RangeDelete;

/// The decoded range-deletes of a run, ascending by start, newest first.
#[derive(Debug)]
pub struct RangeBlock {
    /// The range-deletes.
    pub list: std::sync::Arc<[RangeDelete]>,
}

impl RangeBlock {
    /// Decodes and validates the raw form.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(_raw: &[u8]) -> Result<RangeBlock> {
        unimplemented!()
    }
    /// Bytes really allocated.
    pub fn memory_bytes(&self) -> usize {
        unimplemented!()
    }
}
