//! What runs did, for statistics. Counted by thread, so that readers do not share cache lines. And what all runs share
//! besides: who is told of damage that fails no read, and whether keys that are read are there.

use super::presence::Presence;
use crate::base::Error;
use crate::base::striped::Striped;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Event {
    PointRead = 0,
    FilterNegative = 1,
    FilterPositive = 2,
    FilterFalsePositive = 3,
    BlockReadPoint = 4,
    BlockReadScan = 5,
    BlockReadBulk = 6,
    BlockReadMeta = 7,
    ReadBytes = 8,
    ReadAhead = 9,
    BlockReadMetaPoint = 10,
    BlockRemembered = 11,
}

const EVENTS: usize = 12;

/// Told of damage that reads go on without; by any thread, also under latches.
type DamageObserver = Box<dyn Fn(&Error) + Send + Sync>;

/// Counters of all runs of a database. Share it in an `Arc`.
#[derive(Default)]
pub struct RunCounters {
    events: Striped<[AtomicU64; EVENTS]>,
    pub(super) presence: Presence,
    observer: Option<DamageObserver>,
}

impl fmt::Debug for RunCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunCounters").field(&self.statistics()).finish()
    }
}

/// A moment of [`RunCounters`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunStatistics {
    /// Point reads of a run whose key range has the key.
    pub point_reads: u64,
    /// Point reads that the filter answered: surely absent.
    pub filter_negatives: u64,
    /// Point reads that passed the filter.
    pub filter_positives: u64,
    /// Those that passed, although the run has no message of the key.
    pub filter_false_positives: u64,
    /// Blocks of messages read from the file for point reads.
    pub block_reads_point: u64,
    /// Blocks of messages read from the file for scans that fill the cache, and for estimates.
    pub block_reads_scan: u64,
    /// Blocks of messages read from the file for compactions and checks, past the cache, and to warm it.
    pub block_reads_bulk: u64,
    /// Indexes, filters and range-deletes read from the file.
    pub block_reads_meta: u64,
    /// Of these, those read for point reads.
    pub block_reads_meta_point: u64,
    /// Blocks of messages that an index knew, so that the cache was not asked.
    pub blocks_remembered: u64,
    /// Bytes of all blocks read from the file.
    pub read_bytes: u64,
    /// Windows: reads of several blocks at once, and of what was asked for before it was needed.
    pub read_aheads: u64,
}

impl RunCounters {
    /// Counters whose runs tell `observe` of damage that fails no read.
    pub fn observed(observe: impl Fn(&Error) + Send + Sync + 'static) -> RunCounters {
        RunCounters { observer: Some(Box::new(observe)), ..RunCounters::default() }
    }

    pub(super) fn tell(&self, error: &Error) {
        self.observer.iter().for_each(|observe| observe(error));
    }

    #[inline]
    pub(super) fn add(&self, event: Event, amount: u64) {
        self.events.here()[event as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Sums of all stripes.
    pub fn statistics(&self) -> RunStatistics {
        let sum = |event: Event| self.events.iter().map(|events| events[event as usize].load(Ordering::Relaxed)).sum();
        RunStatistics {
            point_reads: sum(Event::PointRead),
            filter_negatives: sum(Event::FilterNegative),
            filter_positives: sum(Event::FilterPositive),
            filter_false_positives: sum(Event::FilterFalsePositive),
            block_reads_point: sum(Event::BlockReadPoint),
            block_reads_scan: sum(Event::BlockReadScan),
            block_reads_bulk: sum(Event::BlockReadBulk),
            block_reads_meta: sum(Event::BlockReadMeta) + sum(Event::BlockReadMetaPoint),
            block_reads_meta_point: sum(Event::BlockReadMetaPoint),
            blocks_remembered: sum(Event::BlockRemembered),
            read_bytes: sum(Event::ReadBytes),
            read_aheads: sum(Event::ReadAhead),
        }
    }
}
