//! What a measured stretch of work did: rate over time, latencies, CPU, bytes.

use frond_load::insert::Outcome;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::server::Counters;

/// A stretch of work in units: rows, transactions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) units: f64,
    pub(crate) seconds: f64,
    /// Units by second; a last second that is not whole is left out.
    pub(crate) by_second: Vec<f64>,
    pub(crate) latency_ms: Latency,
    pub(crate) server_cpu_seconds: f64,
    pub(crate) client_cpu_seconds: f64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    /// Reads and writes that reached the disk, where they are counted.
    #[serde(default)]
    pub(crate) operations: Option<(u64, u64)>,
    pub(crate) memory_peak: u64,
}

/// Latencies of statements or transactions in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
    /// Points of the distribution: milliseconds, share of statements that took at most that long.
    pub(crate) distribution: Vec<(f64, f64)>,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        let quantiles = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0];
        Latency {
            p50: ms(0.5),
            p99: ms(0.99),
            p999: ms(0.999),
            max: histogram.max() as f64 / 1e3,
            distribution: quantiles.iter().map(|&quantile| (ms(quantile), quantile)).collect(),
        }
    }
}

impl Work {
    pub(crate) fn of_inserts(outcome: &Outcome, before: &Counters, after: &Counters) -> Self {
        let seconds = outcome.elapsed.as_secs_f64();
        let mut by_second: Vec<f64> = outcome.rows_by_second.iter().map(|&rows| rows as f64).collect();
        by_second.resize(seconds as usize, 0.0);
        Work {
            units: outcome.rows as f64,
            seconds,
            by_second,
            latency_ms: Latency::of(&outcome.latency_us),
            client_cpu_seconds: outcome.client_cpu.as_secs_f64(),
            ..Work::default()
        }
        .with(before, after)
    }

    /// Adds what the server used between two moments.
    pub(crate) fn with(mut self, before: &Counters, after: &Counters) -> Self {
        self.server_cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        self.bytes_read = after.bytes_read.saturating_sub(before.bytes_read);
        self.bytes_written = after.bytes_written.saturating_sub(before.bytes_written);
        self.operations =
            before.operations.zip(after.operations).map(|((reads, writes), (reads_after, writes_after))| {
                (reads_after.saturating_sub(reads), writes_after.saturating_sub(writes))
            });
        self.memory_peak = after.memory_peak;
        self
    }

    pub(crate) fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.units / self.seconds } else { 0.0 }
    }

    fn mean(seconds: &[f64]) -> f64 {
        if seconds.is_empty() { f64::NAN } else { seconds.iter().sum::<f64>() / seconds.len() as f64 }
    }

    /// Mean rate of the first and of the last quarter.
    pub(crate) fn quarters(&self) -> (f64, f64) {
        let quarter = (self.by_second.len() / 4).max(1).min(self.by_second.len());
        (Self::mean(&self.by_second[..quarter]), Self::mean(&self.by_second[self.by_second.len() - quarter..]))
    }

    pub(crate) fn worst_second(&self) -> f64 {
        self.by_second.iter().copied().fold(f64::NAN, f64::min)
    }

    /// Reads and writes of the disk per second; NaN where they are not counted.
    pub(crate) fn operations_per_second(&self) -> (f64, f64) {
        let (reads, writes) =
            self.operations.map_or((f64::NAN, f64::NAN), |(reads, writes)| (reads as f64, writes as f64));
        (reads / self.seconds, writes / self.seconds)
    }

    pub(crate) fn written_per_unit(&self) -> f64 {
        self.bytes_written as f64 / self.units.max(1.0)
    }

    pub(crate) fn cpu_us_per_unit(&self) -> f64 {
        self.server_cpu_seconds * 1e6 / self.units.max(1.0)
    }
}

/// The middle of several values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// The geometric mean of ratios, and its standard error.
pub(crate) fn mean_ratio(ratios: &[f64]) -> (f64, f64) {
    let count = ratios.len() as f64;
    let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count;
    let squares = ratios.iter().map(|ratio| (ratio.ln() - mean).powi(2)).sum::<f64>();
    (mean.exp(), mean.exp() * (squares / (count - 1.0) / count).sqrt())
}

/// The sum of the first ones by that of the second ones, and its standard error, to which each pair's distance from that ratio adds (W. G. Cochran,
/// "Sampling Techniques", the ratio estimate).
pub(crate) fn ratio_of_totals(pairs: &[(f64, f64)]) -> (f64, f64) {
    let count = pairs.len() as f64;
    let (above, below) = pairs.iter().fold((0.0, 0.0), |(above, below), pair| (above + pair.0, below + pair.1));
    let ratio = above / below;
    let squares = pairs.iter().map(|pair| (pair.0 - ratio * pair.1).powi(2)).sum::<f64>();
    (ratio, (squares / (count - 1.0) / count).sqrt() / (below / count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarters_and_worst_second_come_from_the_curve() {
        let work = Work { by_second: vec![8.0, 8.0, 1.0, 6.0, 6.0, 6.0, 4.0, 2.0], ..Work::default() };
        assert_eq!(work.quarters(), (8.0, 3.0));
        assert_eq!(work.worst_second(), 1.0);
        assert!(Work::default().worst_second().is_nan());
    }

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        assert_eq!(median(&[4.0, 1.0, 3.0, f64::NAN]), 3.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_stalled_slice_costs_its_share() {
        let (ratio, error) = ratio_of_totals(&[(1.0, 100.0), (110.0, 100.0), (108.0, 100.0), (109.0, 100.0)]);
        assert!((ratio - 0.82).abs() < 1e-9, "{ratio}");
        // Distances -81, 28, 26 and 27.
        assert!((error - 0.27).abs() < 0.001, "{error}");
        assert_eq!(ratio_of_totals(&[(3.0, 2.0), (6.0, 4.0)]), (1.5, 0.0));
    }

    #[test]
    fn a_half_and_a_double_are_on_average_one() {
        let (mean, error) = mean_ratio(&[0.5, 2.0, 0.5, 2.0]);
        assert!((mean - 1.0).abs() < 1e-9, "{mean}");
        // Four logarithms, each ln 2 away from their mean.
        assert!((error - 2f64.ln() / 3f64.sqrt()).abs() < 1e-9, "{error}");
        assert!(mean_ratio(&[]).0.is_nan());
        assert!(mean_ratio(&[1.5]).1.is_nan());
    }
}
