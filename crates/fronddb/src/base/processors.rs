//! Whether processors of the machine have nothing to do, so that work that nobody waits for is nearly free.

use super::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How long it is watched before it says anything, in microseconds.
const WATCH_MICROS: u64 = 150_000;
/// A last look that is longer ago says nothing about now, in microseconds.
const STALE_MICROS: u64 = 2_000_000;
/// So much of one processor must be idle.
const IDLE_MIN: f64 = 0.5;

/// Watches the machine's processors. Work that begins because they are idle is told to it, or it would look as if they
/// no longer were.
#[derive(Debug, Default)]
pub struct Processors {
    last: Mutex<Option<Sample>>,
    own_micros: AtomicU64,
    are_idle: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    /// When it was taken.
    micros: u64,
    /// Time that processors have been idle, and time of all of them, in ticks.
    ticks: (u64, u64),
    own_micros: u64,
}

impl Processors {
    /// Looks at the machine, if it has not for a while; `now` in microseconds.
    pub fn watch(&self, now: u64) {
        let mut last = self.last.lock();
        if last.is_some_and(|last| now < last.micros + WATCH_MICROS) {
            return;
        }
        // Ordering: a hint.
        let own_micros = self.own_micros.load(Ordering::Relaxed);
        let sample = ticks().map(|ticks| Sample { micros: now, ticks, own_micros });
        let recent = last.filter(|last| now < last.micros + STALE_MICROS);
        let idle = recent.zip(sample).is_some_and(|(last, sample)| idle_between(&last, &sample) >= IDLE_MIN);
        self.are_idle.store(idle, Ordering::Relaxed);
        *last = sample;
    }

    /// Whether, when last looked at, half a processor or more was idle.
    pub fn are_idle(&self) -> bool {
        self.are_idle.load(Ordering::Relaxed)
    }

    /// A thread has worked for `micros` because processors were idle.
    pub fn count_own(&self, micros: u64) {
        self.own_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// Processors that were idle, or were only working because others were idle.
fn idle_between(last: &Sample, now: &Sample) -> f64 {
    let span = (now.micros - last.micros).max(1) as f64;
    let (idle, all) = (now.ticks.0.saturating_sub(last.ticks.0), now.ticks.1.saturating_sub(last.ticks.1));
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get()) as f64;
    let own = now.own_micros.saturating_sub(last.own_micros) as f64 / span;
    idle as f64 / all.max(1) as f64 * processors + own.min(1.0)
}

/// Time that processors have been idle, and time of all of them, since the machine started, in ticks; see proc_stat(5). None where the
/// system does not say.
fn ticks() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    parse(text.lines().next()?)
}

fn parse(line: &str) -> Option<(u64, u64)> {
    // user nice system idle iowait irq softirq steal; time of guests is in user time already.
    let times: Vec<u64> =
        line.strip_prefix("cpu ")?.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((times.get(3)? + times.get(4)?, times.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_the_system_is_understood() {
        assert_eq!(parse("cpu  10 1 5 80 4 0 0 0 7 0"), Some((84, 100)));
        assert_eq!(parse("cpu0 10 1 5 80 4 0 0 0"), None);
        assert_eq!(parse("cpu  10 one 5"), None);
    }

    #[test]
    fn own_work_counts_as_idle_time() {
        let at = |micros, ticks, own_micros| Sample { micros, ticks, own_micros };
        assert_eq!(idle_between(&at(0, (0, 0), 0), &at(1000, (0, 100), 0)), 0.0);
        assert_eq!(idle_between(&at(0, (0, 0), 0), &at(1000, (0, 100), 700)), 0.7);
        assert!(idle_between(&at(0, (0, 0), 0), &at(1000, (100, 100), 0)) >= 1.0);
    }

    #[test]
    fn nothing_is_said_before_it_was_watched() {
        let processors = Processors::default();
        processors.watch(0);
        assert!(!processors.are_idle());
        processors.watch(WATCH_MICROS / 2);
        assert!(!processors.are_idle(), "not yet long enough");
        processors.watch(STALE_MICROS);
        assert!(!processors.are_idle(), "too long ago");
    }
}
