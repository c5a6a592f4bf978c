//! Admission: writers go no faster than the tree can digest, and are slowed smoothly before they are stopped.
//!
//! Two things fill: level 0, while a sealed memtable is still being written; and the buffers of the tree, when
//! flushes and compactions fall behind. Each has a soft bound, from which on writers are paced, and level 0 has a hard
//! one, at which they wait. In between, the pace falls in proportion: at fill `x` between soft and hard, writers
//! get `2 · (1 - x)` times the rate at which level 0 drained lately, so the fill settles where both are equal.
//!
//! While the disk is full and level 0 with it, writes get `NoSpace`, but for those that only delete: they have half a
//! memtable more.
//!
//! Pacing is a leaky bucket that all writers share: each takes its bytes' worth of time out of it and sleeps until
//! its turn when that lies ahead.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::engine::Engine;
use super::events::LogLevel;
use crate::base::{Error, ErrorKind, Result};

/// Sealed memtables beside the active one before writers stop.
const SEALED_MAX: usize = 1;
/// Fill of the active memtable from which on writers are paced while another is sealed.
const LEVEL0_SOFT: f64 = 0.4;
/// Urgency of the tree's work from which on writers are paced; 1 is normal work.
const URGENCY_SOFT: f64 = 3.0;
/// Urgency at which the pace is lowest.
const URGENCY_HARD: f64 = 8.0;
/// Slowest pace, in bytes per second.
const PACE_MIN: f64 = 256.0 * 1024.0;
/// Turns closer than this are taken at once, in microseconds.
const SLEEP_MIN: u64 = 500;
/// Fill of the active memtable up to which deletes go on while the disk is full: space can come back through them alone.
const LEVEL0_DELETES: f64 = 1.5;
/// Level 0 grows by so many bytes at once: the cache makes room for them before.
const LEVEL0_STEP: usize = 2 << 20;
/// Longest sleep before the pace is looked at again, in microseconds.
const SLEEP_MAX: u64 = 50_000;

/// The state of admission.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Bytes per second at which level 0 drained lately.
    drain: AtomicU64,
    /// When the next writer's turn is, on the database's clock, in microseconds.
    turn: AtomicU64,
    /// Background work met a full disk and has not got over it.
    pub(crate) disk_full: AtomicBool,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission { drain: AtomicU64::new(32 << 20), turn: AtomicU64::new(0), disk_full: AtomicBool::new(false) }
    }
}

impl Admission {
    /// A memtable of `bytes` was written in `micros`.
    pub(crate) fn drained(&self, bytes: usize, micros: u64) {
        let rate = bytes as f64 * 1e6 / micros.max(1000) as f64;
        let old = self.drain.load(Ordering::Relaxed) as f64;
        self.drain.store((old * 0.7 + rate * 0.3) as u64, Ordering::Relaxed);
    }

    /// Bytes per second that writers may write now; `None`: as they like.
    fn pace(&self, level0_fill: f64, sealed: usize, urgency: f64) -> Option<f64> {
        let part = |value: f64, soft: f64, hard: f64| ((value - soft) / (hard - soft)).clamp(0.0, 1.0);
        let by_level0 = if sealed >= SEALED_MAX { part(level0_fill, LEVEL0_SOFT, 1.0) } else { 0.0 };
        let by_tree = part(urgency, URGENCY_SOFT, URGENCY_HARD);
        let fill = by_level0.max(by_tree);
        if fill == 0.0 {
            return None;
        }
        let drain = self.drain.load(Ordering::Relaxed) as f64;
        Some((drain * 2.0 * (1.0 - fill)).max(PACE_MIN))
    }

    /// Takes a turn of `bytes` at `pace`; returns how long to wait for it, in microseconds.
    fn take_turn(&self, now: u64, bytes: usize, pace: f64) -> u64 {
        let cost = (bytes as f64 * 1e6 / pace) as u64;
        let mut turn = self.turn.load(Ordering::Relaxed);
        loop {
            let next = turn.max(now) + cost;
            match self.turn.compare_exchange_weak(turn, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return turn.saturating_sub(now),
                Err(other) => turn = other,
            }
        }
    }
}

impl Engine {
    /// Lets a writer with `bytes` of messages pass, at once, after a while, or not (`NoSpace`). `deletes_only` is asked
    /// when it matters.
    #[inline]
    pub(crate) fn admit(&self, bytes: usize, deletes_only: impl FnOnce() -> bool) -> Result<()> {
        let version = self.tree.version_guard();
        let sealed = version.sealed.len();
        let urgency = version.root.totals().urgency;
        if sealed < SEALED_MAX && f64::from(urgency) <= URGENCY_SOFT {
            return Ok(());
        }
        let fill = version.active.bytes() as f64 / self.level0_bytes() as f64;
        drop(version);
        if (1.0..LEVEL0_DELETES).contains(&fill) && self.admission.disk_full.load(Ordering::Acquire) && deletes_only() {
            return self.check_writable();
        }
        self.admit_slowly(bytes, fill, sealed, f64::from(urgency))
    }

    #[cold]
    fn admit_slowly(&self, bytes: usize, fill: f64, sealed: usize, urgency: f64) -> Result<()> {
        if fill >= 1.0 && sealed >= SEALED_MAX {
            return self.wait_for_room();
        }
        if self.options.manual_background {
            return Ok(());
        }
        let Some(pace) = self.admission.pace(fill, sealed, urgency) else { return Ok(()) };
        let wait = self.admission.take_turn(self.clock.micros(), bytes, pace);
        if wait >= SLEEP_MIN {
            let wait = wait.min(SLEEP_MAX);
            std::thread::sleep(Duration::from_micros(wait));
            self.counters.stalls.add(1);
            self.counters.stall.record(wait);
        }
        Ok(())
    }

    /// Waits until level 0 has room again.
    fn wait_for_room(&self) -> Result<()> {
        let started = self.clock.micros();
        let outcome = loop {
            if let Err(error) = self.check_writable() {
                break Err(error);
            }
            let version = self.tree.version_guard();
            let full = version.sealed.len() >= SEALED_MAX && version.active.bytes() >= self.level0_bytes();
            drop(version);
            if !full {
                break Ok(());
            }
            if self.admission.disk_full.load(Ordering::Acquire) {
                break Err(Error::new(ErrorKind::NoSpace, "level 0 is full and the disk has no space to empty it"));
            }
            match self.step_by_hand() {
                Err(error) => break Err(error),
                Ok(true) => {}
                Ok(false) => self.wake.wait_for_progress(),
            }
        };
        let now = self.clock.micros();
        let waited = now.saturating_sub(started);
        self.counters.stalls.add(1);
        self.counters.stall.record(waited);
        self.events.stall(now, waited);
        outcome
    }

    /// Background work has met a full disk.
    pub(crate) fn disk_is_full(&self, error: &Error) {
        if !self.admission.disk_full.swap(true, Ordering::AcqRel) {
            self.events
                .tell(LogLevel::Warning, || format!("the disk is full, writes will fail when level 0 is: {error}"));
        }
    }

    /// Background work has found space again.
    pub(crate) fn disk_has_space(&self) {
        if self.admission.disk_full.swap(false, Ordering::AcqRel) {
            self.events.tell(LogLevel::Note, || "the disk has space again".to_owned());
        }
    }

    /// Seals the active memtable when a write has filled it. That it could not be sealed is for the next
    /// writer to hear, at admission.
    #[inline]
    pub(crate) fn after_write(&self) {
        let version = self.tree.version_guard();
        let limit = self.level0_bytes();
        if version.active.bytes() >= limit && version.sealed.len() < SEALED_MAX {
            drop(version);
            self.seal_full(limit);
        }
        if self.budget.lacks(LEVEL0_STEP) {
            // Level 0 grows into the cache's share.
            self.cache.trim_for(LEVEL0_STEP);
        }
    }

    #[cold]
    fn seal_full(&self, limit: usize) {
        match self.seal_active(limit) {
            Ok(true) => self.counters.checkpoints_by_size.add(1),
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace => self.disk_is_full(&error),
            Err(error) => {
                self.poison(&error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_falls_from_free_to_slowest() {
        let admission = Admission::default();
        assert_eq!(admission.pace(0.9, 0, 1.0), None);
        assert_eq!(admission.pace(0.3, 1, 1.0), None);
        let half = admission.pace(0.7, 1, 1.0).expect("paced");
        let full = admission.pace(1.0, 1, 1.0).expect("paced");
        assert!(half > full && full == PACE_MIN);
        assert!(admission.pace(0.0, 0, URGENCY_HARD).expect("paced") == PACE_MIN);
    }

    #[test]
    fn turns_are_taken_one_after_another() {
        let admission = Admission::default();
        assert_eq!(admission.take_turn(100, 1000, 1e6), 0);
        assert_eq!(admission.take_turn(100, 1000, 1e6), 1000);
        assert_eq!(admission.take_turn(5000, 1000, 1e6), 0);
    }
}
