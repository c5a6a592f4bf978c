//! The recovery log (signatures first; the layer follows).
//!
//! Also, as soon as io is merged:
//! ```text
//! Log::create(storage: Arc<dyn Storage>, dir: &Path, options: LogOptions, start: Lsn) -> Result<Log>
//! LogReader::open(storage: Arc<dyn Storage>, dir: &Path, options: &LogOptions, from: Lsn) -> Result<LogReader>
//! Log::open(storage, dir, options, tail: LogTail) -> Result<Log>      // tail from LogReader::finish
//! ```
#![allow(missing_docs, unused_variables, clippy::unimplemented)]

use crate::base::compress::Codec;
use crate::base::{Lsn, Result};

#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Names the database: segments of another one are refused.
    pub uuid: [u8; 16],
    /// Bytes of records in a segment.
    pub segment_bytes: u64,
    /// Bytes of the ring into which records are copied. A power of two.
    pub buffer_bytes: usize,
    pub direct: bool,
    /// For records of at least `compress_bytes_min`.
    pub codec: Codec,
    pub compress_bytes_min: usize,
}

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its position: the sequence number of its messages.
    pub lsn: Lsn,
    /// The first position after it: what to wait for.
    pub end: Lsn,
}

#[derive(Debug)]
pub struct Log {}

impl Log {
    /// Call it with the level-0 gate held shared. `NoSpace`: nothing changed. `Poisoned`: an earlier write or sync failed.
    pub fn append(&self, payload: &[u8]) -> Result<Appended> {
        unimplemented!()
    }
    /// Waits until everything below `end` is handed to the operating system; writes it itself if nobody does.
    pub fn wait_written(&self, end: Lsn) -> Result<()> {
        unimplemented!()
    }
    /// Waits until everything below `end` is durable; becomes the flusher if nobody is.
    pub fn wait_durable(&self, end: Lsn) -> Result<()> {
        unimplemented!()
    }
    /// Makes all that was appended durable and returns its end.
    pub fn sync(&self) -> Result<Lsn> {
        unimplemented!()
    }
    /// End of what was appended; written; durable.
    pub fn end_lsn(&self) -> Lsn {
        unimplemented!()
    }
    pub fn written_lsn(&self) -> Lsn {
        unimplemented!()
    }
    pub fn durable_lsn(&self) -> Lsn {
        unimplemented!()
    }
    /// Begins a new segment and returns its first position. Call it with the gate held exclusively.
    pub fn rotate(&self) -> Result<Lsn> {
        unimplemented!()
    }
    /// One bounded piece of background work (next segment, zero fill); true when more is to be done.
    pub fn prepare_step(&self) -> Result<bool> {
        unimplemented!()
    }
    /// Recycles the segments wholly below `before`.
    pub fn release(&self, before: Lsn) -> Result<()> {
        unimplemented!()
    }
    /// Bytes in live segments: what a restart reads.
    pub fn live_bytes(&self) -> u64 {
        unimplemented!()
    }
    /// The first cause, when poisoned.
    pub fn poisoned(&self) -> Option<crate::base::Error> {
        unimplemented!()
    }
}

/// Hands out the records from a position on, in order, cut at the torn end. Damage is an error.
#[derive(Debug)]
pub struct LogReader {}

impl LogReader {
    /// The next few MiB of records; `None` at the end. Behind a mutex, several threads take turns here and decode
    /// what they got in parallel.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        unimplemented!()
    }
    /// After `None`: where the log ends, for `Log::open`.
    pub fn finish(self) -> Result<LogTail> {
        unimplemented!()
    }
}

/// Checked records, to be decompressed and decoded by whoever took the batch.
#[derive(Debug)]
pub struct RecordBatch {}

impl RecordBatch {
    /// The next record: position and payload (see `format::record::Record::decode`).
    #[expect(clippy::should_implement_trait, reason = "it lends")]
    pub fn next(&mut self) -> Result<Option<(Lsn, &[u8])>> {
        unimplemented!()
    }
}

/// Where the log of an earlier run ends.
#[derive(Debug)]
pub struct LogTail {}

impl LogTail {
    pub fn end(&self) -> Lsn {
        unimplemented!()
    }
}
