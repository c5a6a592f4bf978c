//! What callers of the log give it and get from it.

use crate::base::clock::Clock;
use crate::base::compress::Codec;
use crate::base::memory::MemoryBudget;
use crate::base::metrics::HistogramSnapshot;
use crate::base::processors;
use crate::base::{Error, Lsn, Result};

/// Smallest ring, in bytes. Smaller in tests of schedules, so that it is full at times.
const RING_BYTES_MIN: u64 = if cfg!(feature = "schedules") { 4 << 10 } else { 16 << 10 };

/// How the log works. None of it is stored but `uuid`; all may differ at the next opening.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Names the database: segments of another one are refused.
    pub uuid: [u8; 16],
    /// Bytes of records in a segment; at least four times `buffer_bytes`.
    pub segment_bytes: u64,
    /// Bytes of the ring into which records are copied; a power of two.
    pub buffer_bytes: usize,
    /// Most bytes written and not synced; bounds what a restart reads beyond the end of the log.
    pub unsynced_bytes_max: u64,
    /// Bytes of zeros written at a time where a segment was never written.
    pub fill_bytes: u64,
    /// Bypass the page cache.
    pub direct: bool,
    /// Compression of records of at least `compress_bytes_min`.
    pub codec: Codec,
    /// Shorter records are never compressed.
    pub compress_bytes_min: usize,
    /// Where the buffers are counted.
    pub budget: MemoryBudget,
    /// Measures syncs.
    pub clock: Clock,
    /// Where more threads than these wait for syncs, a leader lets others come.
    pub processors: usize,
}

impl LogOptions {
    /// The usual sizes: segments of 96 MiB, a ring of 4 MiB, fast Zstandard from 4 KiB on, direct.
    pub fn new(uuid: [u8; 16], budget: &MemoryBudget) -> LogOptions {
        LogOptions {
            uuid,
            segment_bytes: 96 << 20,
            buffer_bytes: 4 << 20,
            unsynced_bytes_max: 4 << 20,
            fill_bytes: 1 << 20,
            direct: true,
            codec: Codec::Zstd { level: 1 },
            compress_bytes_min: 4 << 10,
            budget: budget.clone(),
            clock: Clock::machine(),
            processors: processors::usable(),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let ring = self.buffer_bytes as u64;
        let pages = |bytes: u64| bytes > 0 && bytes.is_multiple_of(4096);
        if !self.buffer_bytes.is_power_of_two() || ring < RING_BYTES_MIN || self.segment_bytes < 4 * ring {
            return Err(Error::invalid(format!("log sizes, buffer={ring} segment={}", self.segment_bytes)));
        }
        if !pages(self.segment_bytes) || !pages(self.fill_bytes) {
            return Err(Error::invalid(format!(
                "unaligned log sizes, segment={} fill={}",
                self.segment_bytes, self.fill_bytes
            )));
        }
        Ok(())
    }
}

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its position: the sequence number of its messages.
    pub lsn: Lsn,
    /// The first position after it: what to wait for.
    pub end: Lsn,
}

/// What the log has done since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Bytes appended, with their frames.
    pub appended_bytes: u64,
    /// Bytes written, with headers and repeated pages, without zeros written ahead.
    pub written_bytes: u64,
    /// Writes.
    pub batches: u64,
    /// What each sync took, and each write that was durable when it returned, in microseconds.
    pub sync_micros: HistogramSnapshot,
    /// Appends that found the ring full.
    pub ring_waits: u64,
}
