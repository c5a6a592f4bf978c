//! Axes: which values get a tick, and where a value lies.

use super::{Chart, Scale};

/// One axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
    /// Values that get a line and a label.
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// From zero to a round number at or above `high`, with about `count` ticks.
    pub(super) fn linear(high: f64, count: usize) -> Axis {
        let step = round_step(high.max(f64::MIN_POSITIVE) / count as f64);
        let steps = (high / step).ceil().max(1.0) as u64;
        let ticks: Vec<f64> = (0..=steps).map(|at| at as f64 * step).collect();
        Axis { low: 0.0, high: steps as f64 * step, scale: Scale::Linear, ticks }
    }

    /// Whole powers of ten around `low..=high`.
    pub(super) fn logarithmic(low: f64, high: f64) -> Axis {
        let (first, last) = (low.max(1.0).log10().floor() as i32, high.max(10.0).log10().ceil() as i32);
        let first = first.min(last - 1);
        let ticks: Vec<f64> = (first..=last).map(|power| 10f64.powi(power)).collect();
        Axis { low: 10f64.powi(first), high: 10f64.powi(last), scale: Scale::Logarithmic, ticks }
    }

    /// From zero to exactly `high`: time ends where the run ends.
    pub(super) fn time(high: f64, count: usize) -> Axis {
        let mut axis = Axis::linear(high, count);
        axis.high = high.max(f64::MIN_POSITIVE);
        axis.ticks.retain(|tick| *tick <= high);
        axis
    }

    /// 0 at the low end, 1 at the high end; values outside are moved to the nearer end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
        };
        share.clamp(0.0, 1.0)
    }
}

/// 1, 2 or 5 times a power of ten, at or above `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|round| *round >= step * 0.999_999)
        .unwrap_or(step)
}

/// A tick's label: 0, 250, 1.5 k, 20 k, 1 M.
pub(super) fn label(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e3 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = format!("{scaled:.2}");
    format!("{}{unit}", digits.trim_end_matches('0').trim_end_matches('.'))
}

impl Chart {
    /// Time and rate.
    pub(super) fn axes(&self, time_ticks: usize, rate_ticks: usize) -> (Axis, Axis) {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let ends = points().map(|point| point.0).chain(self.marks.iter().map(|mark| mark.seconds));
        let high = points().map(|point| point.1).fold(0.0, f64::max);
        let low = points().map(|point| point.1).filter(|rate| *rate > 0.0).fold(f64::INFINITY, f64::min).min(high);
        let rate = match self.scale {
            Scale::Linear => Axis::linear(high, rate_ticks),
            Scale::Logarithmic => Axis::logarithmic(low, high),
        };
        (Axis::time(ends.fold(0.0, f64::max), time_ticks), rate)
    }
}
