//! Admission: writers go no faster than the tree can digest, and are slowed smoothly before they are stopped.
//!
//! Two things fill: level 0, while a sealed memtable is still being written; and the buffers of the tree, when
//! flushes and compactions fall behind. Each has a soft bound, from which on writers are paced, and level 0 has a hard
//! one, at which they wait. In between, level 0 lets writers use its room evenly over the time that the sealed memtable
//! will still take at the rate at which level 0 drained lately: they go at one pace and are not stopped. For the tree, whose
//! work has no end, the pace falls in proportion: at urgency `x` between soft and hard, writers get `2 · (1 - x)` times the
//! rate at which they wrote lately. Above the middle they slow down, below it they speed up, until the urgency stays in the
//! middle because they write as much as the tree takes.
//!
//! A writer who finds the active memtable full seals it, unless somebody else is about that or keeps it from being sealed just now (very many locks of
//! prepared transactions take a while to be written). Then it goes on, and the next writer looks again; at twice the limit it waits.
//!
//! What becomes of writes while the disk is full says [`super::full_disk`].
//!
//! Pacing is a leaky bucket that all writers share: each takes its bytes' worth of time out of it and waits until
//! its turn when that lies ahead, or until there is no reason to any more. No turn is further away than the longest wait, and what
//! is left of the bucket goes when a memtable has been written: turns that were given at the slowest pace say nothing about the
//! next one.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::checkpoint_times::CheckpointCause;
use super::engine::Engine;
use super::full_disk::Admitted;
use crate::base::{Error, ErrorKind, Result};

/// Sealed memtables beside the active one before writers stop.
const SEALED_MAX: usize = 1;
/// Fill of the active memtable from which on writers are paced while another is sealed.
const LEVEL0_SOFT: f64 = 0.4;
/// Part of the expected time that a sealed memtable is thought to need still when that has passed.
const OVERDUE: f64 = 0.125;
/// Writers that were slowed to less than this part of what level 0 drains begin again from here.
const INTAKE_MIN: f64 = 0.05;
/// Urgency of the tree's work from which on writers are paced; 1 is normal work.
const URGENCY_SOFT: f64 = 3.0;
/// Urgency at which the pace is lowest.
const URGENCY_HARD: f64 = 8.0;
/// Slowest pace, in bytes per second.
const PACE_MIN: f64 = 256.0 * 1024.0;
/// Turns closer than this are taken at once, in microseconds.
const SLEEP_MIN: u64 = 500;
/// Where the cache is pressed, level 0 leaves it room: a memtable is sealed at one part in so many of the limit.
const EARLY_SEAL_PART: usize = 4;
/// But not sooner after the one before, in microseconds: who writes fast needs the room to write less.
const EARLY_SEAL_MICROS: u64 = 8_000_000;
/// Large values that lie apart take so many times the limit of level 0 at most before the memtable that refers to them is sealed: what is written over among
/// them is given back no sooner.
const APART_LIMITS: u64 = 8;
/// A memtable that cannot be sealed just now grows to so many times the limit before writers wait.
const UNSEALED_LIMITS: usize = 2;
/// Level 0 grows by so many bytes at once: the cache makes room for them before.
const LEVEL0_STEP: usize = 2 << 20;
/// Longest wait before the pace is looked at again, in microseconds.
const SLEEP_MAX: u64 = 50_000;

/// The state of admission.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Bytes per second at which level 0 drained lately.
    drain: AtomicU64,
    /// Bytes per second that were written lately.
    intake: AtomicU64,
    /// Of the memtable sealed last: when that was, on the database's clock, in microseconds, and its bytes.
    sealed_at: AtomicU64,
    sealed_bytes: AtomicUsize,
    /// Bytes of large values that were written since then.
    apart: AtomicU64,
    /// When the next writer's turn is, on the database's clock, in microseconds.
    turn: AtomicU64,
}

impl Default for Admission {
    fn default() -> Admission {
        Admission {
            drain: AtomicU64::new(32 << 20),
            intake: AtomicU64::new(32 << 20),
            sealed_at: AtomicU64::new(0),
            sealed_bytes: AtomicUsize::new(0),
            apart: AtomicU64::new(0),
            turn: AtomicU64::new(0),
        }
    }
}

impl Admission {
    /// A memtable of `bytes` was sealed.
    pub(crate) fn sealed(&self, now: u64, bytes: usize) {
        self.sealed_bytes.store(bytes, Ordering::Relaxed);
        self.apart.store(0, Ordering::Relaxed);
        let before = self.sealed_at.swap(now, Ordering::Relaxed);
        blend(&self.intake, bytes, now.saturating_sub(before));
    }

    /// A large value that takes so many bytes was written.
    pub(crate) fn wrote_apart(&self, bytes: u64) {
        self.apart.fetch_add(bytes, Ordering::Relaxed);
    }

    fn micros_since_seal(&self, now: u64) -> u64 {
        now.saturating_sub(self.sealed_at.load(Ordering::Relaxed))
    }

    /// A memtable of `bytes` was written in `micros`.
    pub(crate) fn drained(&self, bytes: usize, micros: u64) {
        blend(&self.drain, bytes, micros);
        self.turn.store(0, Ordering::Relaxed);
    }

    /// Bytes per second that writers may write now; `None`: as they like. The active memtable holds `active` of `limit` bytes.
    fn pace(&self, now: u64, active: usize, limit: usize, sealed: usize, urgency: f64) -> Option<f64> {
        let drain = self.drain.load(Ordering::Relaxed) as f64;
        let urgent = ((urgency - URGENCY_SOFT) / (URGENCY_HARD - URGENCY_SOFT)).clamp(0.0, 1.0);
        let intake = (self.intake.load(Ordering::Relaxed) as f64).max(drain * INTAKE_MIN);
        let by_tree = (urgent > 0.0).then_some(intake * 2.0 * (1.0 - urgent));
        let by_level0 = (sealed >= SEALED_MAX && active as f64 > LEVEL0_SOFT * limit as f64).then(|| {
            let room = limit.saturating_sub(active) as f64;
            room / self.seconds_to_go(now, drain)
        });
        let pace = by_tree.into_iter().chain(by_level0).reduce(f64::min)?;
        Some(pace.max(PACE_MIN))
    }

    /// How long the sealed memtable will still take. One that takes longer than was expected is always about to be done.
    fn seconds_to_go(&self, now: u64, drain: f64) -> f64 {
        let whole = self.sealed_bytes.load(Ordering::Relaxed) as f64 / drain.max(1.0);
        let gone = self.micros_since_seal(now) as f64 / 1e6;
        (whole - gone).max(whole * OVERDUE).max(1e-3)
    }

    /// Takes a turn of `bytes` at `pace`; returns how long to wait for it, in microseconds.
    fn take_turn(&self, now: u64, bytes: usize, pace: f64) -> u64 {
        let cost = (bytes as f64 * 1e6 / pace) as u64;
        let mut turn = self.turn.load(Ordering::Relaxed);
        loop {
            let next = (turn.max(now) + cost).min(now + SLEEP_MAX);
            match self.turn.compare_exchange_weak(turn, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return turn.saturating_sub(now),
                Err(other) => turn = other,
            }
        }
    }
}

/// Lets a rate follow what it was just now.
fn blend(rate: &AtomicU64, bytes: usize, micros: u64) {
    let now = bytes as f64 * 1e6 / micros.max(1000) as f64;
    let old = rate.load(Ordering::Relaxed) as f64;
    rate.store((old * 0.7 + now * 0.3) as u64, Ordering::Relaxed);
}

/// Whether nothing slows writers down.
fn is_free(sealed: usize, urgency: f32) -> bool {
    sealed < SEALED_MAX && f64::from(urgency) <= URGENCY_SOFT
}

impl Engine {
    /// Lets a writer with `bytes` of messages pass, at once, after a while, or not (`NoSpace`; `Cancelled` when it waits for room and `stop`
    /// is set). `deletes_only` is asked when it matters. What is returned is to be held until the messages are in level 0.
    #[inline]
    pub(crate) fn admit(
        &self,
        bytes: usize,
        stop: &AtomicBool,
        deletes_only: impl FnOnce() -> bool,
    ) -> Result<Admitted<'_>> {
        let mut admitted = self.full_disk.count_large(bytes);
        let counted = self.full_disk.admitted();
        let version = self.tree.version_guard();
        let sealed = version.sealed.len();
        let urgency = version.root.totals().urgency;
        let active = version.active.bytes();
        let is_free = is_free(sealed, urgency);
        let total = version.level0_bytes() + counted + (bytes - admitted.counted());
        let is_backed = self.full_disk.is_backed(total);
        if is_free && is_backed {
            return Ok(admitted);
        }
        drop(version);
        if !is_backed {
            admitted = self.back_write(admitted, bytes, deletes_only)?;
        }
        if !is_free {
            self.admit_slowly(bytes, stop, active, sealed, f64::from(urgency))?;
        }
        Ok(admitted)
    }

    fn passes_freely(&self) -> bool {
        let version = self.tree.version_guard();
        is_free(version.sealed.len(), version.root.totals().urgency)
    }

    #[cold]
    fn admit_slowly(&self, bytes: usize, stop: &AtomicBool, active: usize, sealed: usize, urgency: f64) -> Result<()> {
        let limit = self.level0_bytes();
        if active >= limit && sealed >= SEALED_MAX {
            return self.wait_for_room(Some(stop));
        }
        if self.options.manual_background {
            return Ok(());
        }
        let started = self.clock.micros();
        let Some(pace) = self.admission.pace(started, active, limit, sealed, urgency) else { return Ok(()) };
        let wait = self.admission.take_turn(started, bytes, pace);
        if wait >= SLEEP_MIN {
            self.wake.pause(Duration::from_micros(wait.min(SLEEP_MAX)), || self.passes_freely());
            self.counters.here().stalls.add(1);
            self.counters.stall.record(self.clock.micros().saturating_sub(started));
        }
        Ok(())
    }

    /// Waits while level 0 is full. For the later parts of a write that was admitted whole; the level-0 gate may not be held.
    pub(crate) fn wait_while_full(&self) -> Result<()> {
        if self.is_level0_full() { self.wait_for_room(None) } else { Ok(()) }
    }

    fn is_level0_full(&self) -> bool {
        let version = self.tree.version_guard();
        version.sealed.len() >= SEALED_MAX && version.active.bytes() >= self.level0_bytes()
    }

    /// Waits until level 0 has room again, or it shows that it cannot be emptied, or `stop` is set.
    fn wait_for_room(&self, stop: Option<&AtomicBool>) -> Result<()> {
        let started = self.clock.micros();
        let failed_before = self.full_disk.failed_seals();
        let outcome = loop {
            if let Err(error) = self.check_writable() {
                break Err(error);
            }
            if !self.is_level0_full() {
                break Ok(());
            }
            if let Some(why) = self.full_disk.why_not_sealed(failed_before) {
                break Err(why);
            }
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                break Err(Error::new(
                    ErrorKind::Cancelled,
                    "a write was cancelled while it waited for room in level 0",
                ));
            }
            match self.step_by_hand() {
                Err(error) => break Err(error),
                Ok(true) => {}
                Ok(false) => self.wake.wait_for_progress(),
            }
        };
        let now = self.clock.micros();
        let waited = now.saturating_sub(started);
        self.counters.here().stalls.add(1);
        self.counters.stall.record(waited);
        self.events.stall(now, waited);
        outcome
    }

    /// Seals the active memtable when a write has filled it. That it could not be sealed is for the next
    /// writer to hear, at admission.
    #[inline]
    pub(crate) fn after_write(&self) {
        let version = self.tree.version_guard();
        let (limit, active) = (self.level0_bytes(), version.active.bytes());
        let is_heavy = self.admission.apart.load(Ordering::Relaxed) >= APART_LIMITS * limit as u64;
        if (active >= limit / EARLY_SEAL_PART || is_heavy) && version.sealed.len() < SEALED_MAX {
            drop(version);
            if active >= limit || is_heavy || self.is_early_seal_due() {
                self.seal_full(active, limit);
            }
        }
        if self.budget.lacks(LEVEL0_STEP) {
            // Level 0 grows into the cache's share.
            self.cache.trim_for(LEVEL0_STEP);
        }
    }

    fn is_early_seal_due(&self) -> bool {
        // Where tests drive the background work, no seal depends on how long reads took.
        !self.options.manual_background
            && self.cache.is_pressed()
            && self.admission.micros_since_seal(self.clock.micros()) >= EARLY_SEAL_MICROS
    }

    /// Where somebody keeps it from being sealed for a while, writers go on, but not without end.
    #[cold]
    fn seal_full(&self, active: usize, limit: usize) {
        let bytes_min = active.min(limit);
        let sealed = if active < UNSEALED_LIMITS * limit {
            self.try_seal_active(bytes_min, CheckpointCause::Size)
        } else {
            self.seal_active(bytes_min, CheckpointCause::Size)
        };
        match sealed {
            Ok(true) => self.count_full(),
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace => self.disk_is_full(&error),
            // Somebody is closing the database.
            Err(error) if error.kind() == ErrorKind::Closed => {}
            Err(error) if error.is_passing() => {}
            Err(error) => {
                self.poison(&error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::ScopedJoinHandle;
    use std::time::Instant;

    use super::*;
    use crate::db::database::Database;
    use crate::db::options::{Options, TreeOptions, TxnOptions};
    use crate::io::MemoryStorage;

    const MIB: usize = 1 << 20;

    /// Its memtables are small, and threads seal them.
    fn small() -> Result<Database> {
        let options = Options::new().create_if_missing(true).storage(Some(Arc::new(MemoryStorage::new())));
        let options = options.memory_bytes(8 << 20).level0_bytes(64 << 10).checkpoint_interval_ms(0);
        Database::open("/db", options.recovery_target_ms(0))
    }

    #[test]
    fn who_waits_for_room_in_level_0_is_heard_when_it_is_cancelled() -> Result<()> {
        let db = small()?;
        let (engine, tree) = (db.engine(), db.create_tree("t", &TreeOptions::default())?);
        // No thread gets any further.
        let held = engine.begun.lock();
        let txn = db.begin(TxnOptions::default())?;
        let id = txn.id();
        let put = |row: u32| txn.put(&tree, &row.to_be_bytes(), &[7; 3000]);
        let refused = std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..10_000).find_map(|row| put(row).err().map(|error| (row, error))));
            let deadline = Instant::now() + Duration::from_secs(30);
            while !engine.is_level0_full() && Instant::now() < deadline {
                std::thread::yield_now();
            }
            let cancelled = db.cancel(id);
            while !writer.is_finished() && Instant::now() < deadline {
                std::thread::yield_now();
            }
            let has_ended = writer.is_finished();
            drop(held);
            let refused = writer.join().expect("no panic").filter(|_| has_ended);
            cancelled.map(|()| refused)
        })?;
        let (row, error) = refused.ok_or_else(|| Error::internal("it was not heard"))?;
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        // Nothing of that write is there, and the transaction goes on.
        assert!(txn.get(&tree, &row.to_be_bytes())?.is_none() && txn.get(&tree, &(row - 1).to_be_bytes())?.is_some());
        put(row)?;
        txn.commit()?;
        assert!(db.get(&tree, &row.to_be_bytes())?.is_some());
        db.close()
    }

    /// Whatever it is that keeps level 0 from being emptied; the first time it may be a passing failure.
    #[test]
    fn who_waits_for_a_level_0_that_is_tried_to_be_emptied_in_vain_is_told_why() -> Result<()> {
        let db = small()?;
        let (engine, tree) = (db.engine(), db.create_tree("t", &TreeOptions::default())?);
        // No thread gets any further.
        let held = engine.begun.lock();
        let put = |row: u32| db.put(&tree, &row.to_be_bytes(), &[7; 3000]);
        let why = std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..10_000).find_map(|row| put(row).err()));
            let deadline = Instant::now() + Duration::from_secs(30);
            while !writer.is_finished() && Instant::now() < deadline {
                if engine.is_level0_full() {
                    let failed = Error::new(ErrorKind::Io, "tried in vain").into_passing();
                    assert!(engine.sealed::<()>(Err(failed)).is_err());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let has_ended = writer.is_finished();
            drop(held);
            writer.join().expect("no panic").filter(|_| has_ended)
        });
        assert!(why.as_ref().is_some_and(|why| why.is_passing() && why.message().contains("level 0")), "{why:?}");
        put(0)?;
        db.close()
    }

    /// As while very many locks are written down, or others seal.
    #[test]
    fn who_fills_level_0_while_it_cannot_be_sealed_goes_on_until_it_is_twice_as_full() -> Result<()> {
        let options = Options::new().create_if_missing(true).storage(Some(Arc::new(MemoryStorage::new())));
        let options = options.memory_bytes(8 << 20).level0_bytes(64 << 10).checkpoint_interval_ms(0);
        let db = Database::open("/db", options.recovery_target_ms(0).manual_background(true))?;
        let (engine, tree) = (db.engine(), db.create_tree("t", &TreeOptions::default())?);
        let active = || engine.tree.version_guard().active.bytes();
        let (limit, is_over) = (engine.level0_bytes(), AtomicBool::new(false));
        let fill = |until: usize| {
            let mut rows = (0..u64::MAX).take_while(|_| active() < until && !is_over.load(Ordering::Relaxed));
            rows.try_for_each(|row| db.put(&tree, &[row, until as u64].map(u64::to_be_bytes).concat(), &[7; 3000]))
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        let wait_until = |is_so: &dyn Fn() -> bool| {
            while !is_so() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let switching = engine.switching.lock();
        std::thread::scope(|scope| -> Result<()> {
            let writer = scope.spawn(|| fill(limit * 3 / 2));
            wait_until(&|| writer.is_finished());
            let has_passed = writer.is_finished();
            let other: ScopedJoinHandle<'_, Result<()>> = scope.spawn(|| fill(limit * 5 / 2));
            wait_until(&|| active() >= 2 * limit);
            std::thread::sleep(Duration::from_millis(50));
            let reached = active();
            is_over.store(true, Ordering::Relaxed);
            drop(switching);
            writer.join().expect("no panic")?;
            other.join().expect("no panic")?;
            assert!(has_passed);
            assert!((2 * limit..2 * limit + 10_000).contains(&reached), "{reached}");
            assert_eq!(engine.tree.version_guard().sealed.len(), 1);
            Ok(())
        })?;
        db.close()
    }

    #[test]
    fn the_pace_falls_from_free_to_slowest() {
        let admission = Admission::default();
        assert_eq!(admission.pace(0, 9 * MIB, 10 * MIB, 0, 1.0), None);
        assert_eq!(admission.pace(0, 3 * MIB, 10 * MIB, 1, 1.0), None);
        assert_eq!(admission.pace(0, 10 * MIB, 10 * MIB, 1, 1.0), Some(PACE_MIN));
        assert_eq!(admission.pace(0, 0, 10 * MIB, 0, URGENCY_HARD), Some(PACE_MIN));
    }

    #[test]
    fn room_is_used_evenly_over_the_time_that_is_left() {
        let admission = Admission::default();
        admission.sealed(1_000_000, 64 * MIB); // takes two seconds at 32 MiB/s
        let pace = |now, active| admission.pace(now, active, 64 * MIB, 1, 1.0).expect("paced") / MIB as f64;
        assert_eq!(pace(2_000_000, 32 * MIB), 32.0);
        assert_eq!(pace(2_500_000, 32 * MIB), 64.0);
        // A second too late.
        assert_eq!(pace(4_000_000, 62 * MIB), 8.0);
    }

    #[test]
    fn turns_are_taken_one_after_another() {
        let admission = Admission::default();
        assert_eq!(admission.take_turn(100, 1000, 1e6), 0);
        assert_eq!(admission.take_turn(100, 1000, 1e6), 1000);
        assert_eq!(admission.take_turn(5000, 1000, 1e6), 0);
        assert_eq!(admission.take_turn(5000, 1000, 1e6), 1000);
        // At the slowest pace no more is owed than the longest wait.
        assert_eq!(admission.take_turn(5000, 1 << 20, PACE_MIN), 2000);
        assert_eq!(admission.take_turn(5000 + SLEEP_MAX, 1 << 20, 1e9), 0);
        admission.drained(1 << 20, 1000);
        assert_eq!(admission.take_turn(5000, 1000, 1e6), 0);
    }
}
