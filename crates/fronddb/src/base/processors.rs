//! What the system says of its processors: whether they have nothing to do ([`Processors`]), so that work that nobody waits for
//! is nearly free; and how long a thread had to wait for one ([`Stopwatch`]).
//!
//! For the first, two things are looked at: how long the machine's processors were idle, and how much of what this process may use (its
//! affinity, its control group's quota) it did not use. The less counts.

use super::sync::Mutex;
use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long it is watched before it says anything, in microseconds.
const WATCH_MICROS: u64 = 150_000;
/// A last look that is longer ago says nothing about now, in microseconds.
const STALE_MICROS: u64 = 2_000_000;
/// So much of one processor must be idle. What is idle in pieces, while many threads wait for the same sync of a log, is not had for nothing: a
/// thread that works then keeps those from a processor as they wake. Two processors with such threads were idle for 0.4 to 0.5 of one (decision 8).
const IDLE_MIN: f64 = 0.75;
/// What the system counts processor time in: a hundredth of a second on every Linux; see proc_stat(5), `USER_HZ`.
const TICK_MICROS: f64 = 10_000.0;

/// Watches the processors. Work that begins because they are idle is told to it, or it would look as if they
/// no longer were.
#[derive(Debug, Default)]
pub struct Processors {
    /// The last look, and what it said.
    last: Mutex<(Option<Sample>, bool)>,
    own_micros: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    /// When it was taken.
    micros: u64,
    times: Times,
    /// What [`Processors::count_own`] has been told of.
    own_micros: u64,
}

/// Processor time since the machine, or the process, started, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    /// All of the machine's processors, idle.
    idle: u64,
    /// This process.
    process: u64,
}

impl Processors {
    /// Whether three quarters of a processor or more are idle, as of a look a moment ago; `now` in microseconds.
    pub fn are_idle(&self, now: u64) -> bool {
        let (last, are_idle) = &mut *self.last.lock();
        if last.is_some_and(|last| now < last.micros + WATCH_MICROS) {
            return *are_idle;
        }
        // Ordering: a hint.
        let own_micros = self.own_micros.load(Ordering::Relaxed);
        let sample = times().map(|times| Sample { micros: now, times, own_micros });
        let recent = last.filter(|last| now < last.micros + STALE_MICROS);
        let usable = usable() as f64;
        *are_idle = recent.zip(sample).is_some_and(|(last, sample)| idle_between(&last, &sample, usable) >= IDLE_MIN);
        *last = sample;
        *are_idle
    }

    /// A thread has worked for `micros` because processors were idle.
    pub fn count_own(&self, micros: u64) {
        self.own_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// How many processors this process may use, now; 1 where the system does not say. Takes some microseconds.
pub fn usable() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Processors that this process, which may use `usable`, could have used as well, or used only because they were idle.
fn idle_between(last: &Sample, now: &Sample, usable: f64) -> f64 {
    let span = (now.micros - last.micros).max(1) as f64;
    let spent = |last: u64, now: u64| now.saturating_sub(last) as f64 * TICK_MICROS / span;
    let machine = spent(last.times.idle, now.times.idle);
    let left = usable - spent(last.times.process, now.times.process);
    let own = now.own_micros.saturating_sub(last.own_micros) as f64 / span;
    machine.min(left) + own.min(1.0)
}

/// Measures what a thread does, without the time for which it could have run and no processor was free.
///
/// Where the system does not count that time (it is the second number of `/proc/PID/schedstat`, in nanoseconds; the Linux
/// kernel's documentation, scheduler/sched-stats), it is not left out. One reading takes a few microseconds.
#[derive(Debug)]
pub struct Stopwatch {
    begun: Instant,
    waited: Duration,
}

impl Stopwatch {
    /// Starts one, for this thread.
    pub fn start() -> Stopwatch {
        let waited = thread_waited();
        Stopwatch { begun: Instant::now(), waited }
    }

    /// The time since it was started, or since the last lap.
    pub fn lap(&mut self) -> Duration {
        let elapsed = self.begun.elapsed();
        let last = std::mem::replace(self, Stopwatch::start());
        elapsed.saturating_sub(self.waited.saturating_sub(last.waited))
    }
}

/// For how long this thread has waited for a processor since it was started.
fn thread_waited() -> Duration {
    let mut counts = [0; 64]; // three numbers of up to twenty digits
    let read = File::open("/proc/thread-self/schedstat").and_then(|mut file| file.read(&mut counts)).unwrap_or(0);
    let counts = std::str::from_utf8(&counts[..read]).unwrap_or_default();
    Duration::from_nanos(nanos_waited(counts).unwrap_or(0))
}

fn nanos_waited(counts: &str) -> Option<u64> {
    counts.split_whitespace().nth(1)?.parse().ok()
}

/// None where the system does not say.
fn times() -> Option<Times> {
    let machine = std::fs::read_to_string("/proc/stat").ok()?;
    let process = std::fs::read_to_string("/proc/self/stat").ok()?;
    Some(Times { idle: machine_idle(machine.lines().next()?)?, process: process_used(&process)? })
}

/// From the first line of `/proc/stat`: idle, and waiting for a disk.
fn machine_idle(line: &str) -> Option<u64> {
    let mut times = line.strip_prefix("cpu ")?.split_whitespace().skip(3).map(|time| time.parse::<u64>().ok());
    Some(times.next()?? + times.next()??)
}

/// From `/proc/self/stat`: in user mode and in the kernel. The name, in brackets, may hold anything.
fn process_used(line: &str) -> Option<u64> {
    let (_, fields) = line.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(|time| time.parse::<u64>().ok());
    Some(times.next()?? + times.next()??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_understood() {
        assert_eq!(machine_idle("cpu  10 1 5 80 4 0 0 0 7 0"), Some(84));
        assert_eq!(machine_idle("cpu0 10 1 5 80 4 0 0 0"), None);
        assert_eq!(machine_idle("cpu  10 one 5"), None);
        assert_eq!(process_used("17 (a ) b) S 1 17 17 0 -1 0 1 2 3 4 250 50 9 9 20 0"), Some(300));
        assert_eq!(process_used("17 (short) S 1"), None);
    }

    #[test]
    fn a_stopwatch_leaves_out_the_wait_for_a_processor() {
        assert_eq!(nanos_waited("4096 250 3\n"), Some(250));
        assert_eq!(nanos_waited("4096"), None);
        let mut watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(20));
        assert!(watch.lap() >= Duration::from_millis(10), "sleep is not such a wait");
        // More threads than processors, so that each has to wait for its turns: together they cannot have had more than there is.
        let threads = 4 * usable();
        let begun = Instant::now();
        let (measured, waited) = std::thread::scope(|scope| {
            let spin = || {
                let mut watch = Stopwatch::start();
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(100) {
                    std::hint::spin_loop();
                }
                (watch.lap(), thread_waited())
            };
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(spin)).collect();
            let all = all.into_iter().map(|thread| thread.join().unwrap());
            all.fold((Duration::ZERO, Duration::ZERO), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        });
        // Some sandboxes count no such time: nothing is left out there, and nothing can be asserted.
        let is_counted = waited > Duration::ZERO;
        assert!(!is_counted || measured < begun.elapsed() * threads as u32 / 2, "{measured:?}");
    }

    #[test]
    fn the_less_of_machine_and_process_counts_and_own_work_is_idle_time() {
        let at = |micros, idle, process, own_micros| Sample { micros, times: Times { idle, process }, own_micros };
        let (begin, second) = (at(0, 0, 0, 0), 1_000_000);
        assert_eq!(idle_between(&begin, &at(second, 0, 0, 0), 2.0), 0.0, "others use the machine");
        assert_eq!(idle_between(&begin, &at(second, 6200, 200, 0), 2.0), 0.0, "the quota is used up");
        assert_eq!(idle_between(&begin, &at(second, 150, 50, 0), 2.0), 1.5);
        assert_eq!(idle_between(&begin, &at(second, 0, 200, 700_000), 2.0), 0.7);
    }

    /// As on two processors; the second with what idle work had taken while it was still done there.
    #[test]
    fn one_client_leaves_enough_and_many_that_wait_for_syncs_do_not() {
        let at = |idle, process, own_micros| Sample { micros: 1_000_000, times: Times { idle, process }, own_micros };
        let begin = Sample { micros: 0, times: Times { idle: 0, process: 0 }, own_micros: 0 };
        assert!(idle_between(&begin, &at(100, 60, 0), 2.0) >= IDLE_MIN);
        assert!(idle_between(&begin, &at(50, 120, 120_000), 2.0) < IDLE_MIN);
    }

    #[test]
    fn nothing_is_said_before_it_was_watched() {
        let processors = Processors::default();
        assert!(!processors.are_idle(0));
        assert!(!processors.are_idle(WATCH_MICROS / 2), "not yet long enough");
        assert!(!processors.are_idle(STALE_MICROS), "too long ago");
    }
}
