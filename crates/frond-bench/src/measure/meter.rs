//! Everything measured around one phase: start a [`Meter`], give each thread a [`Worker`], finish to a [`Phase`].
//!
//! Operations are counted in one shared counter, by batch; latencies in a histogram per worker, merged at the end. A
//! thread samples counter, bytes and memory ten times a second and moves the progress bar.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::curve::{Curve, Point};
use super::files::disk_bytes;
use super::histogram::{Latencies, LatencySummary};
use super::resources::{Resources, reset_peak_memory};
use crate::{Error, Result};

const SAMPLE_PERIOD: Duration = Duration::from_millis(100);
const CURVE_POINTS_MAX: usize = 2_000;

/// A phase in progress.
pub struct Meter {
    name: String,
    operations: Arc<AtomicU64>,
    began: Instant,
    before: Resources,
    latencies: Latencies,
    sampler: JoinHandle<Curve>,
    stop: Sender<()>,
}

impl Meter {
    /// Begins a phase of `total` operations (0: unknown). `show` draws a progress bar on the error output.
    pub fn start(name: &str, total: u64, show: bool) -> Meter {
        reset_peak_memory();
        let operations = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = mpsc::channel();
        let (before, began) = (Resources::now(), Instant::now());
        let counter = operations.clone();
        let bar = progress_bar(name, total, show);
        let sampler = std::thread::spawn(move || {
            let mut curve = Curve::default();
            loop {
                curve.0.push(sample(&counter, began, &before));
                show_progress(&bar, &curve);
                match stopped.recv_timeout(SAMPLE_PERIOD) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            curve.0.push(sample(&counter, began, &before));
            bar.finish_and_clear();
            curve
        });
        Meter { name: name.to_owned(), operations, began, before, latencies: Latencies::new(), sampler, stop }
    }

    /// A recorder for one thread; give it back by [`Meter::add`].
    pub fn worker(&self) -> Worker {
        Worker { operations: self.operations.clone(), latencies: Latencies::new() }
    }

    /// Takes a thread's latencies.
    pub fn add(&mut self, worker: Worker) {
        self.latencies.add(&worker.latencies);
    }

    /// Ends the phase. `directory` is the database's, for its size on disk.
    pub fn finish(self, directory: &Path) -> Result<Phase> {
        let seconds = self.began.elapsed().as_secs_f64();
        let after = Resources::now();
        // A sampler that is gone already is found out by `join`.
        self.stop.send(()).unwrap_or_default();
        let curve = self.sampler.join().map_err(|_| Error::new("the sampling thread panicked"))?;
        let operations = self.operations.load(Ordering::Relaxed);
        let per_operation = |count: f64| if operations == 0 { 0.0 } else { count / operations as f64 };
        Ok(Phase {
            name: self.name,
            operations,
            seconds,
            rate: operations as f64 / seconds,
            latency: self.latencies.summary(),
            cpu_us_per_operation: per_operation((after.cpu - self.before.cpu).as_secs_f64() * 1e6),
            written_bytes_per_operation: per_operation((after.written_bytes - self.before.written_bytes) as f64),
            read_bytes_per_operation: per_operation((after.read_bytes - self.before.read_bytes) as f64),
            read_calls_per_operation: per_operation((after.read_calls - self.before.read_calls) as f64),
            disk_bytes: disk_bytes(directory)?,
            memory_peak_bytes: after.memory_peak_bytes,
            slowest_second: curve.slowest_second(),
            first_quarter: curve.rate_between(0.0, 0.25),
            last_quarter: curve.rate_between(0.75, 1.0),
            curve: curve.thinned(CURVE_POINTS_MAX),
        })
    }
}

/// One thread's recorder.
#[derive(Debug)]
pub struct Worker {
    operations: Arc<AtomicU64>,
    latencies: Latencies,
}

impl Worker {
    /// Notes `operations` done together in `latency`.
    pub fn record(&mut self, operations: u64, latency: Duration) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.latencies.record(latency);
    }

    /// Runs `work`, notes its latency for `operations`.
    pub fn time<T>(&mut self, operations: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let began = Instant::now();
        let done = work()?;
        self.record(operations, began.elapsed());
        Ok(done)
    }

    /// Notes operations whose latency is of no interest.
    pub fn count(&mut self, operations: u64) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }
}

/// What was measured over one phase of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Phase {
    /// What was done.
    pub name: String,
    /// How many operations.
    pub operations: u64,
    /// In how many seconds.
    pub seconds: f64,
    /// Operations per second.
    pub rate: f64,
    /// Latencies of commits or single operations.
    pub latency: Option<LatencySummary>,
    /// CPU of the whole process, background threads included.
    pub cpu_us_per_operation: f64,
    /// Bytes sent to storage.
    pub written_bytes_per_operation: f64,
    /// Bytes fetched from storage.
    pub read_bytes_per_operation: f64,
    /// Read system calls.
    pub read_calls_per_operation: f64,
    /// Size of the database at the end of the phase.
    pub disk_bytes: u64,
    /// Largest anonymous memory in the phase, what the process held before the database was opened included.
    pub memory_peak_bytes: u64,
    /// Lowest rate over any one second.
    pub slowest_second: Option<f64>,
    /// Rate over the first quarter of the operations.
    pub first_quarter: Option<f64>,
    /// Rate over the last quarter of the operations.
    pub last_quarter: Option<f64>,
    /// Progress over time.
    pub curve: Curve,
}

fn sample(operations: &AtomicU64, began: Instant, before: &Resources) -> Point {
    let now = Resources::now();
    Point {
        operations: operations.load(Ordering::Relaxed),
        seconds: began.elapsed().as_secs_f64(),
        written_bytes: now.written_bytes - before.written_bytes,
        memory_bytes: now.memory_bytes,
    }
}

fn progress_bar(name: &str, total: u64, show: bool) -> ProgressBar {
    let target = if show { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let template = if total > 0 {
        "{prefix:>12} {wide_bar} {percent:>3} % {human_pos} of {human_len}  {msg}  {eta} left"
    } else {
        "{prefix:>12} {spinner} {human_pos}  {msg}"
    };
    let style = ProgressStyle::with_template(template).expect("a constant template is valid");
    ProgressBar::with_draw_target(Some(total).filter(|&total| total > 0), target)
        .with_style(style)
        .with_prefix(name.to_owned())
}

/// Position, rate over the last second, bytes written per operation.
fn show_progress(bar: &ProgressBar, curve: &Curve) {
    let Some(now) = curve.0.last().filter(|now| now.operations > 0) else {
        return;
    };
    let then = curve.0[curve.0.len().saturating_sub(11)];
    let rate = (now.operations - then.operations) as f64 / (now.seconds - then.seconds).max(1e-3);
    bar.set_position(now.operations);
    bar.set_message(format!("{rate:.0}/s  {:.0} B written each", now.written_bytes as f64 / now.operations as f64));
}
