//! Counts what threads do and prints a line of JSON each second and a summary.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::cpu::Stretch;

/// A latency in microseconds beyond which it is counted as this: an hour.
const LATENCY_MAX: u64 = 3_600_000_000;

struct Counts {
    rows: u64,
    latency: Histogram<u64>,
}

impl Counts {
    fn new() -> Self {
        let latency =
            Histogram::new_with_bounds(1, LATENCY_MAX, 3).unwrap_or_else(|_| unreachable!("the bounds are right"));
        Counts { rows: 0, latency }
    }

    fn json(&self) -> String {
        let at = |quantile| self.latency.value_at_quantile(quantile);
        format!(
            "\"transactions\":{},\"p50_us\":{},\"p99_us\":{},\"p999_us\":{},\"max_us\":{}",
            self.latency.len(),
            at(0.5),
            at(0.99),
            at(0.999),
            self.latency.max()
        )
    }
}

pub(crate) struct Meter {
    begun: Instant,
    cpu: Stretch,
    second: Mutex<Counts>,
    ended: AtomicBool,
}

/// Rows and transactions of all seconds.
struct Totals {
    counts: Counts,
    rows_per_second: Vec<u64>,
}

impl Meter {
    pub(crate) fn new(server_pid: Option<u32>) -> Self {
        let second = Mutex::new(Counts::new());
        Meter { begun: Instant::now(), cpu: Stretch::begin(server_pid), second, ended: AtomicBool::new(false) }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// A transaction was acknowledged.
    pub(crate) fn record(&self, rows: u64, latency: Duration) {
        if let Ok(mut counts) = self.second.lock() {
            counts.rows += rows;
            counts.latency.saturating_record((latency.as_micros() as u64).max(1));
        }
    }

    /// Runs `threads` times `work(number)`, printing meanwhile, and then the summary with `label` (members of a JSON object).
    /// The first error is returned; what was acknowledged until then is summed up nevertheless.
    pub(crate) fn run(
        &self,
        label: &str,
        threads: u64,
        work: impl Fn(u64) -> Result<(), String> + Sync,
    ) -> Result<(), String> {
        let mut totals = Totals { counts: Counts::new(), rows_per_second: Vec::new() };
        std::thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
            let printer = scope.spawn(|| {
                while !self.ended.load(Ordering::Acquire) {
                    self.print_second(&mut totals);
                }
                totals
            });
            let mut done = Ok(());
            for worker in workers {
                // All have ended before the summary is made.
                let one = worker.join().unwrap_or_else(|_| Err("a thread panicked".into()));
                done = done.and(one);
            }
            let seconds = self.elapsed().as_secs_f64();
            self.ended.store(true, Ordering::Release);
            printer.thread().unpark();
            printer.join().map(|totals| self.print_summary(&totals, label, seconds)).unwrap_or_default();
            done
        })
    }

    /// Waits for the end of the running second, or of the work, and prints what happened in it.
    fn print_second(&self, totals: &mut Totals) {
        let number = totals.rows_per_second.len() as u64 + 1;
        let end = Duration::from_secs(number);
        while let Some(left) = end.checked_sub(self.elapsed()).filter(|left| !left.is_zero()) {
            if self.ended.load(Ordering::Acquire) {
                break;
            }
            std::thread::park_timeout(left);
        }
        let counts = match self.second.lock() {
            Ok(mut counts) => std::mem::replace(&mut *counts, Counts::new()),
            Err(_) => return,
        };
        totals.counts.rows += counts.rows;
        let _ = totals.counts.latency.add(&counts.latency);
        if self.elapsed() >= end {
            // A second that the end of the work cut off is in the summary only.
            totals.rows_per_second.push(counts.rows);
            println!("{{\"kind\":\"second\",\"second\":{number},\"rows\":{},{}}}", counts.rows, counts.json());
        }
    }

    fn print_summary(&self, totals: &Totals, label: &str, seconds: f64) {
        let rows = totals.counts.rows;
        let slowest = totals.rows_per_second.iter().min().copied().unwrap_or(rows);
        let quarter = totals.rows_per_second.len().div_ceil(4);
        let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len().max(1) as f64;
        let first = mean(&totals.rows_per_second[..quarter]);
        let last = mean(&totals.rows_per_second[totals.rows_per_second.len() - quarter..]);
        println!(
            "{{\"kind\":\"summary\",{label},\"seconds\":{seconds:.3},\"rows\":{rows},\"rows_per_s\":{:.1},\
             \"rows_per_s_first_quarter\":{first:.1},\"rows_per_s_last_quarter\":{last:.1},\"rows_slowest_second\":{slowest},{}{}}}",
            rows as f64 / seconds,
            totals.counts.json(),
            self.cpu.json()
        );
    }
}

/// Holds a thread to so many rows a second; 0 is no limit.
pub(crate) struct Pace {
    begun: Instant,
    rows_per_second: f64,
    rows: u64,
}

impl Pace {
    pub(crate) fn new(rows_per_second: f64) -> Self {
        Pace { begun: Instant::now(), rows_per_second, rows: 0 }
    }

    /// Waits until the next `rows` are due. Time that was lost is made up for.
    pub(crate) fn wait(&mut self, rows: u64) {
        if self.rows_per_second <= 0.0 {
            return;
        }
        let due = Duration::from_secs_f64(self.rows as f64 / self.rows_per_second);
        self.rows += rows;
        if let Some(left) = due.checked_sub(self.begun.elapsed()) {
            std::thread::sleep(left);
        }
    }
}
