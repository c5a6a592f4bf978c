//! Progress over time, sampled about ten times a second, and the figures read off it.

use serde::{Deserialize, Serialize};

/// One sample: totals since the phase began.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the phase began.
    pub seconds: f64,
    /// Operations done.
    pub operations: u64,
    /// Bytes sent to storage.
    pub written_bytes: u64,
    /// Anonymous memory at this moment.
    pub memory_bytes: u64,
}

/// Samples in order of time; the first is at zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve(pub Vec<Point>);

impl Curve {
    /// Operations done at `seconds`, interpolated.
    fn operations_at(&self, seconds: f64) -> f64 {
        interpolate(&self.0, seconds, |point| point.seconds, |point| point.operations as f64)
    }

    /// When the `operations`-th was done, interpolated.
    fn seconds_at(&self, operations: f64) -> f64 {
        interpolate(&self.0, operations, |point| point.operations as f64, |point| point.seconds)
    }

    fn end(&self) -> Option<Point> {
        self.0.last().copied()
    }

    /// Operations per second over the operations from share `from` to share `to` of them all.
    pub fn rate_between(&self, from: f64, to: f64) -> Option<f64> {
        let total = self.end()?.operations as f64;
        let seconds = self.seconds_at(to * total) - self.seconds_at(from * total);
        (seconds > 0.0).then(|| (to - from) * total / seconds)
    }

    /// The lowest rate over any one second, whichever its beginning. `None` for phases shorter than that.
    pub fn slowest_second(&self) -> Option<f64> {
        let end = self.end()?.seconds;
        let starts = self.0.iter().map(|point| point.seconds).filter(|start| start + 1.0 <= end);
        starts.map(|start| self.operations_at(start + 1.0) - self.operations_at(start)).min_by(f64::total_cmp)
    }

    /// The middle of each whole period of `period` seconds, and the rate in it.
    pub fn rates(&self, period: f64) -> Vec<(f64, f64)> {
        let periods = (self.end().map_or(0.0, |end| end.seconds) / period).floor() as u64;
        let rate = |at: u64| {
            let begin = at as f64 * period;
            let operations = self.operations_at(begin + period) - self.operations_at(begin);
            (begin + period / 2.0, operations / period)
        };
        (0..periods).map(rate).collect()
    }

    /// The curve thinned to at most `count` samples, for storing.
    pub fn thinned(&self, count: usize) -> Curve {
        let step = self.0.len().div_ceil(count.max(1)).max(1);
        let last = self.0.len().saturating_sub(1);
        Curve(
            self.0
                .iter()
                .enumerate()
                .filter(|(at, _)| at % step == 0 || *at == last)
                .map(|(_, point)| *point)
                .collect(),
        )
    }
}

/// The value of `y` where `x` reaches `target`; `x` and `y` never fall along the points.
fn interpolate(points: &[Point], target: f64, x: impl Fn(&Point) -> f64, y: impl Fn(&Point) -> f64) -> f64 {
    let at = points.partition_point(|point| x(point) < target);
    match (at.checked_sub(1).and_then(|before| points.get(before)), points.get(at)) {
        (None, None) => 0.0,
        (None, Some(point)) | (Some(point), None) => y(point),
        (Some(before), Some(after)) => {
            let share = (target - x(before)) / (x(after) - x(before));
            y(before) + share * (y(after) - y(before))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 operations a second for 4 s, a pause of 1 s in the middle of second 2.
    fn paused() -> Curve {
        let at = |tenth: u64| match tenth {
            0..=15 => tenth * 10,
            16..=25 => 150,
            _ => (tenth - 10) * 10,
        };
        Curve(
            (0..=50)
                .map(|tenth| Point {
                    seconds: tenth as f64 / 10.0,
                    operations: at(tenth),
                    written_bytes: 0,
                    memory_bytes: 0,
                })
                .collect(),
        )
    }

    #[test]
    fn a_pause_across_two_seconds_is_found() {
        assert!(paused().slowest_second().expect("longer than a second") < 1e-9);
        assert_eq!(paused().rates(1.0).len(), 5);
        assert!((paused().rates(1.0)[1].1 - 50.0).abs() < 1e-6);
    }

    #[test]
    fn quarters_are_of_the_operations_not_of_the_time() {
        let rate = paused().rate_between(0.0, 0.25).expect("not empty");
        assert!((rate - 100.0).abs() < 1e-6, "rate={rate}");
        let rate = paused().rate_between(0.25, 0.5).expect("not empty");
        assert!((rate - 50.0).abs() < 60.0, "rate={rate}");
    }

    #[test]
    fn thinning_keeps_both_ends() {
        let thin = paused().thinned(7);
        assert!(thin.0.len() <= 8);
        assert_eq!(thin.0.first(), paused().0.first());
        assert_eq!(thin.0.last(), paused().0.last());
    }
}
