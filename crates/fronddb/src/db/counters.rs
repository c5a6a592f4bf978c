//! What the database layer counts, from which [`super::statistics`] makes its figures.
//!
//! Everything here is relaxed: a figure may be a moment old, never wrong for good.

use crate::base::metrics::{Counter, Histogram};
use crate::base::striped::Striped;

/// Counters of one open database.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counts: Striped<Counts>,
    /// Microseconds from the call of a commit to its acknowledgement.
    pub(crate) commit: Histogram,
    /// Nanoseconds of point reads, one in [`READ_SAMPLE`].
    pub(crate) read: Histogram,
    /// Microseconds that admission held a writer.
    pub(crate) stall: Histogram,
}

impl Counters {
    /// Those to which this thread adds.
    #[inline]
    pub(crate) fn here(&self) -> &Counts {
        self.counts.here()
    }

    /// The sum of one of them over all threads.
    pub(crate) fn sum(&self, of: impl Fn(&Counts) -> &Counter) -> u64 {
        self.counts.iter().map(|counts| of(counts).get()).sum()
    }
}

/// What some of the threads have done.
#[derive(Debug, Default)]
pub(crate) struct Counts {
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
}

/// One in this many point reads is timed.
pub(crate) const READ_SAMPLE: u64 = 16;
