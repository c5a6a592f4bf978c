//! Counters, gauges and histograms that many threads update without a lock.
//!
//! A [`Histogram`] is log-linear, as in HdrHistogram: values below 32 have a bucket each; above, every
//! power of two is cut into 32 buckets, so that a bucket is at most 1/32 (3.1 %) of its value wide. All 64-bit
//! values fit into 1,920 buckets (15 KiB). Recording is three relaxed atomic operations. A snapshot is a plain value: snapshots add up (threads,
//! shards) and subtract (what happened between two moments).
//!
//! A snapshot taken while others record may split one recording (its bucket counted, its sum not yet). Its
//! count is the sum of its buckets, so percentiles always agree with the count.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

const SUB_BITS: u32 = 5;
const SUB_COUNT: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB_COUNT;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at 0.
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum of all additions.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A level that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// A gauge at 0.
    pub const fn new() -> Gauge {
        Gauge(AtomicI64::new(0))
    }

    /// Moves the level by `change`.
    #[inline]
    pub fn add(&self, change: i64) {
        self.0.fetch_add(change, Ordering::Relaxed);
    }

    /// Sets the level.
    #[inline]
    pub fn set(&self, level: i64) {
        self.0.store(level, Ordering::Relaxed);
    }

    /// The level.
    #[inline]
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The distribution of recorded values, such as latencies in nanoseconds. The caller chooses the unit.
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.snapshot().fmt(f)
    }
}

#[inline]
fn bucket_of(value: u64) -> usize {
    if value < SUB_COUNT as u64 {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros();
    let sub = (value >> (exponent - SUB_BITS)) as usize & (SUB_COUNT - 1);
    (exponent - SUB_BITS + 1) as usize * SUB_COUNT + sub
}

/// The highest value that falls into the bucket.
fn bucket_high(index: usize) -> u64 {
    if index < SUB_COUNT {
        return index as u64;
    }
    let shift = (index / SUB_COUNT - 1) as u32;
    let low = ((SUB_COUNT + index % SUB_COUNT) as u64) << shift;
    low + ((1u64 << shift) - 1)
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Histogram {
        Histogram {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }

    /// Counts `value`.
    #[inline]
    pub fn record(&self, value: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(value)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
        if self.max.load(Ordering::Relaxed) < value {
            self.max.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// What was recorded so far.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let buckets: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        HistogramSnapshot {
            count: buckets.iter().sum(),
            sum: self.sum.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
            buckets,
        }
    }
}

/// A histogram's content at one moment.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct HistogramSnapshot {
    count: u64,
    sum: u64,
    max: u64,
    /// Empty stands for all zero.
    buckets: Vec<u64>,
}

impl std::fmt::Debug for HistogramSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("mean", &self.mean())
            .field("p50", &self.percentile(50.0))
            .field("p99", &self.percentile(99.0))
            .field("max", &self.max)
            .finish()
    }
}

impl HistogramSnapshot {
    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum; wraps past 2^64.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest value; 0 when there is none. After [`HistogramSnapshot::since`] it is exact only if the
    /// largest value of all time lies in the interval, else the upper edge of the highest bucket.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The arithmetic mean; 0 when there is no value.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The value that `percent` of the values do not exceed, at most 3.1 % above the true one; 0 when there
    /// is none. 0 gives the smallest, 100 the largest.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (percent.clamp(0.0, 100.0) / 100.0 * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bucket_high(index).min(self.max);
            }
        }
        self.max
    }

    /// Adds the values of `other`.
    pub fn merge(&mut self, other: &HistogramSnapshot) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
    }

    /// What was recorded after `earlier`, an older snapshot of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &HistogramSnapshot) -> HistogramSnapshot {
        let mut buckets = self.buckets.clone();
        for (mine, theirs) in buckets.iter_mut().zip(&earlier.buckets) {
            *mine = mine.saturating_sub(*theirs);
        }
        let highest = buckets.iter().rposition(|count| *count > 0);
        HistogramSnapshot {
            count: buckets.iter().sum(),
            sum: self.sum.wrapping_sub(earlier.sum),
            max: highest.map_or(0, |index| bucket_high(index).min(self.max)),
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_cover_all_values_without_gaps() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_high(BUCKETS - 1), u64::MAX);
        for index in 0..BUCKETS - 1 {
            let high = bucket_high(index);
            assert_eq!(bucket_of(high), index, "high={high}");
            assert_eq!(bucket_of(high + 1), index + 1, "high={high}");
        }
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        let empty = Histogram::new().snapshot();
        assert_eq!((empty.count(), empty.max(), empty.percentile(99.0)), (0, 0, 0));
        assert_eq!(empty.mean(), 0.0);
        assert_eq!(HistogramSnapshot::default().percentile(50.0), 0);
    }

    #[test]
    fn threads_lose_no_recording() {
        let histogram = Histogram::new();
        let counter = Counter::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for value in 0..10_000 {
                        histogram.record(value);
                        counter.add(1);
                    }
                });
            }
        });
        let all = histogram.snapshot();
        assert_eq!((all.count(), all.max(), counter.get()), (40_000, 9_999, 40_000));
        assert_eq!(all.sum(), 4 * (9_999 * 10_000 / 2));
    }

    proptest! {
        #[test]
        fn percentiles_are_within_the_resolution(mut values in prop::collection::vec(0u64..1 << 50, 1..200), percent in 0.0f64..100.0) {
            let histogram = Histogram::new();
            values.iter().for_each(|value| histogram.record(*value));
            values.sort_unstable();
            let rank = ((percent / 100.0 * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let answer = histogram.snapshot().percentile(percent);
            prop_assert!(answer >= exact && answer as f64 <= exact as f64 * (1.0 + 1.0 / 32.0) + 1.0, "{answer} {exact}");
        }

        #[test]
        fn merge_and_since_are_inverse(first in prop::collection::vec(any::<u32>(), 0..50), second in prop::collection::vec(any::<u32>(), 0..50)) {
            let (both, only_second) = (Histogram::new(), Histogram::new());
            first.iter().for_each(|value| both.record(u64::from(*value)));
            let earlier = both.snapshot();
            for value in &second {
                both.record(u64::from(*value));
                only_second.record(u64::from(*value));
            }
            let between = both.snapshot().since(&earlier);
            prop_assert_eq!(between.count(), second.len() as u64);
            prop_assert_eq!(between.sum(), only_second.snapshot().sum());
            prop_assert_eq!(&between.buckets, &only_second.snapshot().buckets);
            let mut merged = earlier;
            merged.merge(&only_second.snapshot());
            prop_assert_eq!(merged, both.snapshot());
        }
    }
}
