//! What the database layer counts, from which [`super::statistics`] makes its figures.
//!
//! Everything here is relaxed: a figure may be a moment old, never wrong for good.

use crate::base::metrics::{Counter, Histogram};

/// Counters of one open database.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) begins: Counter,
    pub(crate) commits: Counter,
    pub(crate) commits_read_only: Counter,
    pub(crate) rollbacks: Counter,
    pub(crate) gets: Counter,
    pub(crate) gets_found: Counter,
    pub(crate) write_checks: Counter,
    pub(crate) cursor_seeks: Counter,
    pub(crate) cursor_steps: Counter,
    pub(crate) messages: Counter,
    pub(crate) user_bytes: Counter,
    pub(crate) log_bytes: Counter,
    pub(crate) log_records: Counter,
    pub(crate) blob_bytes: Counter,
    pub(crate) lock_timeouts: Counter,
    pub(crate) deadlocks: Counter,
    pub(crate) stalls: Counter,
    pub(crate) publications: Counter,
    /// Microseconds from the call of a commit to its acknowledgement.
    pub(crate) commit: Histogram,
    /// Nanoseconds of point reads, one in [`READ_SAMPLE`].
    pub(crate) read: Histogram,
    /// Microseconds that admission held a writer.
    pub(crate) stall: Histogram,
}

/// One in this many point reads is timed.
pub(crate) const READ_SAMPLE: u64 = 16;
