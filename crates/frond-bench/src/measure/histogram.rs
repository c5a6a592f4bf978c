//! Latencies without keeping every sample.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latencies in nanoseconds, to three digits.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

impl Latencies {
    /// None yet.
    pub fn new() -> Latencies {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("constant bounds are valid");
        histogram.auto(true);
        Latencies(histogram)
    }

    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos().max(1) as u64);
    }

    /// Adds all of another.
    pub fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// The table's figures; `None` without samples.
    pub fn summary(&self) -> Option<LatencySummary> {
        let at = |share| self.0.value_at_quantile(share) as f64 / 1e3;
        (!self.0.is_empty()).then(|| LatencySummary {
            samples: self.0.len(),
            p50_us: at(0.50),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.0.max() as f64 / 1e3,
        })
    }
}

/// Percentiles in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// How many were recorded.
    pub samples: u64,
    /// Half took no longer.
    pub p50_us: f64,
    /// 99 % took no longer.
    pub p99_us: f64,
    /// 99.9 % took no longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_one_to_a_thousand() {
        let mut latencies = Latencies::new();
        (1..=1_000).for_each(|us| latencies.record(Duration::from_micros(us)));
        let summary = latencies.summary().expect("samples were recorded");
        assert_eq!(summary.samples, 1_000);
        for (got, want) in
            [(summary.p50_us, 500.0), (summary.p99_us, 990.0), (summary.p999_us, 999.0), (summary.max_us, 1_000.0)]
        {
            assert!((got / want - 1.0).abs() < 0.002, "got={got} want={want}");
        }
    }

    #[test]
    fn no_samples_no_figures() {
        assert_eq!(Latencies::new().summary(), None);
    }
}
