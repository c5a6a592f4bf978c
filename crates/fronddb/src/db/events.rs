//! What a server's error log should hold: rare events, told to the callback of [`super::options::Options::on_log`].
//!
//! | level | events |
//! |---|---|
//! | error | the database is poisoned, with the cause; damage was found |
//! | warning | the disk is full; a segment of the log cannot be prepared or recycled; work failed that is tried again; free space cannot be given back; writers were stopped for long; a damaged superblock was passed over |
//! | note | recovery begins, goes on, is done; the file system refuses direct i/o; the disk has space again |
//!
//! Told in whatever thread meets the event, also under latches, so the callback must be quick and must not call the
//! database. The same damage is told once; stops of writers at most every [`STALL_EVERY_MICROS`].

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::report::RecoveryReport;
use crate::base::Error;
use crate::base::sync::Mutex;

/// Stops of writers shorter than this are not told, in microseconds.
const STALL_SLOW_MICROS: u64 = 1_000_000;
/// The least time between two that are.
const STALL_EVERY_MICROS: u64 = 10_000_000;
/// The least time between two words of recovery's progress, in microseconds.
const PROGRESS_EVERY_MICROS: u64 = 1_000_000;
/// The least time between two words of segments of the log that fail, in microseconds.
const SEGMENT_EVERY_MICROS: u64 = 10_000_000;
/// The least time between two words of space that cannot be given back, or of work that is tried again, in microseconds.
const FAILURE_EVERY_MICROS: u64 = 600_000_000;
/// Damages that are told, at most: past this, `check` tells more.
const DAMAGES_MAX: usize = 100;

/// How grave an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum LogLevel {
    /// Something is broken and somebody has to act.
    Error = 1,
    /// Something goes badly and may pass.
    Warning = 2,
    /// Good to know.
    Note = 3,
}

/// Told of rare events. See [`super::options::Options::on_log`].
pub type LogCallback = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// The events of one database.
#[derive(Default)]
pub(crate) struct EventLog {
    callback: Option<LogCallback>,
    damages: Mutex<HashSet<String>>,
    /// When a stop of writers, or progress, was told last, plus one.
    stall_micros: AtomicU64,
    progress_micros: AtomicU64,
    /// It was told that a segment of the log failed, and when, plus one; and none was ready since.
    has_segment_failed: AtomicBool,
    segment_micros: AtomicU64,
    /// When it was told last that space was not given back, or that work is tried again, plus one.
    shrink_micros: AtomicU64,
    work_micros: AtomicU64,
}

impl std::fmt::Debug for EventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLog").finish_non_exhaustive()
    }
}

impl EventLog {
    pub(crate) fn new(callback: Option<LogCallback>) -> EventLog {
        EventLog { callback, ..EventLog::default() }
    }

    pub(crate) fn tell(&self, level: LogLevel, message: impl FnOnce() -> String) {
        if let Some(callback) = &self.callback {
            callback(level, &message());
        }
    }

    /// Tells of damage, if the error is that and was not told before.
    #[cold]
    pub(crate) fn damage(&self, error: &Error) {
        if !error.is_unreadable() || self.callback.is_none() {
            return;
        }
        let mut told = self.damages.lock();
        if told.len() < DAMAGES_MAX && told.insert(error.to_string()) {
            drop(told);
            self.tell(LogLevel::Error, || format!("damage found: {error}"));
        }
    }

    /// A writer was stopped for `micros` until `now`.
    pub(crate) fn stall(&self, now: u64, micros: u64) {
        if micros >= STALL_SLOW_MICROS && is_due(&self.stall_micros, now, STALL_EVERY_MICROS) {
            let milliseconds = micros / 1000;
            self.tell(LogLevel::Warning, || {
                format!("writers were stopped because level 0 was full, milliseconds={milliseconds}")
            });
        }
    }

    /// A segment of the log could not be prepared or recycled, which will be tried again. Told once, until segments are ready again.
    #[cold]
    pub(crate) fn segment_failed(&self, now: u64, error: &Error) {
        if !self.has_segment_failed.load(Ordering::Relaxed) && is_due(&self.segment_micros, now, SEGMENT_EVERY_MICROS) {
            self.has_segment_failed.store(true, Ordering::Relaxed);
            self.tell(LogLevel::Warning, || {
                format!("the log lacks a segment, what needs one fails until it can be made: {error}")
            });
        }
    }

    /// The log lacks no segment.
    #[inline]
    pub(crate) fn segments_are_ready(&self) {
        self.has_segment_failed.store(false, Ordering::Relaxed);
    }

    /// Free space could not be given back: nobody needs that, but the files take more than they should.
    #[cold]
    pub(crate) fn shrink_failed(&self, now: u64, error: &Error) {
        if is_due(&self.shrink_micros, now, FAILURE_EVERY_MICROS) {
            self.tell(LogLevel::Warning, || format!("free space could not be given back to the file system: {error}"));
        }
    }

    /// Background work met a failure that may pass, and will be tried again. Not told of what waits for a segment of the log, which was.
    #[cold]
    pub(crate) fn work_failed(&self, now: u64, error: &Error) {
        if !self.has_segment_failed.load(Ordering::Relaxed) && is_due(&self.work_micros, now, FAILURE_EVERY_MICROS) {
            self.tell(LogLevel::Warning, || format!("background work failed, and will be tried again: {error}"));
        }
    }

    /// Recovery has read `done` of about `total` bytes of log.
    pub(crate) fn progress(&self, now: u64, done: u64, total: u64) {
        if is_due(&self.progress_micros, now, PROGRESS_EVERY_MICROS) {
            self.tell(LogLevel::Note, || format!("recovery goes on, log_bytes={done} of={total}"));
        }
    }

    /// The option `direct_io` is on, and the file system does not have it.
    pub(crate) fn refused_direct(&self, directory: &Path) {
        let shown = directory.display();
        self.tell(LogLevel::Note, || {
            format!("the file system refuses direct i/o, the system's cache holds the data as well, directory={shown}")
        });
    }

    /// The database serves.
    pub(crate) fn recovered(&self, report: &RecoveryReport, directory: &Path) {
        let shown = directory.display();
        self.tell(LogLevel::Note, || match report.created {
            true => format!("the database is created, directory={shown}"),
            false => format!(
                "recovery is done, milliseconds={} log_bytes={} records={} messages={} committed={} aborted={} prepared={}",
                report.total_micros / 1000,
                report.bytes_read,
                report.records,
                report.messages,
                report.committed,
                report.aborted,
                report.prepared
            ),
        });
    }

    /// Recovery begins: its progress is due from now on.
    pub(crate) fn begin_progress(&self, now: u64) {
        self.progress_micros.store(now.saturating_add(1), Ordering::Relaxed);
    }
}

/// True when `last` was never, or `every` before `now`; then it becomes `now`.
fn is_due(last: &AtomicU64, now: u64, every: u64) -> bool {
    let before = last.load(Ordering::Relaxed);
    let due = before == 0 || now.saturating_add(1) >= before.saturating_add(every);
    due && last.compare_exchange(before, now.saturating_add(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ErrorKind;

    type Told = Arc<Mutex<Vec<(LogLevel, String)>>>;

    fn log() -> (EventLog, Told) {
        let told = Told::default();
        let copy = told.clone();
        let callback: LogCallback = Arc::new(move |level, text: &str| copy.lock().push((level, text.to_owned())));
        (EventLog::new(Some(callback)), told)
    }

    #[test]
    fn the_same_damage_is_told_once_and_other_errors_are_not() {
        let (log, told) = log();
        for message in ["here", "there", "here"] {
            log.damage(&Error::corruption(message));
        }
        log.damage(&Error::invalid("no damage"));
        assert_eq!(told.lock().len(), 2);
        (0..2 * DAMAGES_MAX).for_each(|n| log.damage(&Error::corruption(n.to_string())));
        assert_eq!(told.lock().len(), DAMAGES_MAX);
    }

    #[test]
    fn stops_of_writers_are_told_when_they_are_long_and_not_too_often() {
        let (log, told) = log();
        log.stall(0, STALL_SLOW_MICROS - 1);
        assert!(told.lock().is_empty());
        for now in [0, STALL_EVERY_MICROS - 1, STALL_EVERY_MICROS] {
            log.stall(now, STALL_SLOW_MICROS);
        }
        assert_eq!(told.lock().len(), 2);
    }

    #[test]
    fn a_segment_that_fails_is_told_once_until_segments_are_ready_and_not_too_often() {
        let (log, told) = log();
        let error = Error::new(ErrorKind::Io, "no descriptor");
        for now in [0, 1, SEGMENT_EVERY_MICROS] {
            log.segment_failed(now, &error);
        }
        assert_eq!(told.lock().len(), 1);
        log.segments_are_ready();
        for now in [SEGMENT_EVERY_MICROS - 1, SEGMENT_EVERY_MICROS, 3 * SEGMENT_EVERY_MICROS] {
            log.segment_failed(now, &error);
        }
        assert_eq!(told.lock().len(), 2);
        assert!(told.lock().iter().all(|(level, text)| *level == LogLevel::Warning && text.contains("no descriptor")));
    }

    #[test]
    fn progress_is_told_after_a_while() {
        let (log, told) = log();
        log.begin_progress(5);
        log.progress(6, 1, 2);
        log.progress(5 + PROGRESS_EVERY_MICROS, 1, 2);
        assert_eq!(*told.lock(), [(LogLevel::Note, "recovery goes on, log_bytes=1 of=2".to_owned())]);
    }
}
