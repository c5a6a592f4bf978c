//! Compression of long records, by whoever appends them.

use super::{Appended, Log};
use crate::base::Result;
use crate::base::compress::Compressor;
use crate::base::memory::{Charge, Purpose};

/// A compressor and the buffer that it writes to.
#[derive(Debug, Default)]
pub(super) struct Compression {
    compressor: Compressor,
    stored: Vec<u8>,
    charge: Option<Charge>,
}

/// Working memory of a compressor of long records, about; of short records less.
const COMPRESSOR_BYTES: usize = 512 << 10;

/// Compressors kept between uses: more threads than this seldom compress at the same time, and each has working memory.
const COMPRESSORS_MAX: usize = 4;

impl Log {
    /// Appends a record, compressed where that makes it shorter.
    pub(super) fn append_compressed(&self, record: &[u8]) -> Result<Appended> {
        let mut compression = self.compressors.lock().pop().unwrap_or_default();
        let Compression { compressor, stored, .. } = &mut compression;
        stored.clear();
        stored.extend_from_slice(&(record.len() as u32).to_le_bytes());
        let tag = compressor.compress(self.options.codec, record, stored)?;
        let appended = match tag {
            0 => self.append_stored(tag, record),
            _ => self.append_stored(tag, stored),
        };
        if stored.capacity() <= self.options.buffer_bytes {
            let bytes = COMPRESSOR_BYTES.min(8 * stored.capacity()) + stored.capacity();
            let charge = compression.charge.get_or_insert_with(|| Charge::new(&self.options.budget, Purpose::Work, 0));
            charge.set(bytes);
            let mut kept = self.compressors.lock();
            if kept.len() < COMPRESSORS_MAX {
                kept.push(compression);
            }
        }
        appended
    }
}
