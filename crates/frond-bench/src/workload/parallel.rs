//! Threads of a phase.

use std::time::{Duration, Instant};

use crate::measure::{Meter, Worker};
use crate::{Error, Result};

/// Runs `work` on `threads` threads at once, each with its number and recorder; the first error wins.
pub(super) fn parallel(
    meter: &mut Meter,
    threads: u64,
    work: impl Fn(u64, &mut Worker) -> Result<()> + Sync,
) -> Result<()> {
    let workers: Vec<Worker> = (0..threads.max(1)).map(|_| meter.worker()).collect();
    let done: Vec<Result<Worker>> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0u64..)
            .zip(workers)
            .map(|(number, mut worker)| scope.spawn(move || work(number, &mut worker).map(|()| worker)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Worker>>| {
            thread.join().unwrap_or_else(|_| Err(Error::new("a thread panicked")))
        };
        threads.into_iter().map(join).collect()
    });
    done.into_iter().try_for_each(|worker| worker.map(|worker| meter.add(worker)))
}

/// Repeats `step` for `seconds`; looks at the clock every 16 steps.
pub(super) fn repeat_for(seconds: f64, mut step: impl FnMut() -> Result<()>) -> Result<()> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        (0..16).try_for_each(|_| step())?;
    }
    Ok(())
}

/// Waits until `operations` are due at `rate` per second since `began`; rate 0 is no limit.
pub(super) fn pace(began: Instant, operations: u64, rate: u64) {
    if rate > 0 {
        let due = Duration::from_secs_f64(operations as f64 / rate as f64);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
}
