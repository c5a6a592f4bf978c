//! A full disk: nothing acknowledged is at risk, deletes go on, and what they free is used at once.
//!
//! - F1: the store keeps space for all that level 0 holds ([`Engine::back_level0`]), so that it can be emptied whatever the
//!   disk does. Space is kept a piece ahead, by `frond-tick` or else by the writer that would go beyond.
//! - F2: a write that goes beyond gets `NoSpace`. One that only deletes may use what is kept for compactions; when
//!   that, or the log, has no room for it, it first empties level 0, which gives back segments of the log.
//! - F3: while the disk is full, background work does whatever is pending, because deletes make space only when they
//!   arrive at the leaves.
//! - F4: while the disk is full, that work is done in pieces that what is kept for compactions suffices for: each ends at some key, and
//!   gives back the space of what it has read before the next one begins ([`Engine::piece_bytes`]). A slot that finds no space for the smallest
//!   either gives way to the others.
//!   Level 0 is emptied often, until nobody has met the full disk for seconds: what is deleted just after a little space was found serves soon, too.
//! - F5: nothing here waits for space from elsewhere; a write that finds none says so. Nor does a write wait on for a level 0 that cannot be
//!   emptied, whatever the reason.
//! - F6: space is kept as well for what was admitted and is not in level 0 yet: in between a write may wait long for locks. Each is counted
//!   ([`Admitted`]) but for small ones, so that single rows touch nothing that all writers change. [`UNCOUNTED_WRITES`] of the largest of these at
//!   once take an eighth of what is kept ahead, at most as much as is kept for compactions at least, which seals may draw on too. More of them at
//!   once, each stopped between admission and level 0 while the disk fills up, could be more than there is space for.
//!
//! Two files can meet the full disk, the data file and the log. Space for level 0 and for compactions is the store's reserve
//! ([`crate::store`]), and comes before segments that the log has ready. The log has none: level 0 is sealed without another segment ([`Log::rotate`]), and what was written of it
//! gives a segment back.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::background::PAUSE;
use super::checkpoint_times::CheckpointCause;
use super::engine::Engine;
use super::events::LogLevel;
use crate::base::sync::Mutex;
use crate::base::{Error, ErrorKind, Result};
use crate::log::Log;

/// How far ahead of level 0 space is kept for it, as a part of its limit, and at most.
const BACKED_AHEAD_PART: usize = 8;
const BACKED_AHEAD_MAX: usize = 8 << 20;
/// So many of the largest writes that are not counted take such a part of what is kept ahead (F6).
const UNCOUNTED_WRITES: usize = 256;
const UNCOUNTED_PART: usize = 8;
/// Stored, level 0 takes so much more than in memory at worst: pages are whole, pieces of space are not used to their ends.
const STORED_MORE_PART: u64 = 4;
const STORED_MORE_BYTES: u64 = 128 << 10;
/// Kept for compactions: a part of the data, within bounds. The upper is about what a flush of a whole buffer takes.
const COMPACTION_PART: u64 = 16;
const COMPACTION_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=16 << 20;
/// A piece of work writes such a part of what is kept for compactions, and less each time after it lacked space, but not less than this.
const PIECE_PART: u64 = 2;
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// After so many times, when the largest would be as small, it begins anew with another slot.
const PIECES_LACKED_MAX: u32 = 8;
/// How often a delete empties level 0 before it gives up.
const RELIEFS_MAX: usize = 3;
/// Who waits for level 0 is told of a failure other than a full disk when so many seals have failed meanwhile: the first may be a passing one.
const SEALS_FAILED_MAX: u64 = 2;
/// After background work has lacked space, the disk is taken for full for so long at least, in microseconds.
const FULL_MICROS: u64 = 1_000_000;
/// So long after somebody has met a full disk last it is over, and told that there is space again, in microseconds: else each write that is refused
/// for its size, between others that are not, would be two words in the error log.
const CALM_MICROS: u64 = 10_000_000;
/// After so long without a publication, space kept for level 0 is given back, in microseconds.
const REST_MICROS: u64 = 1_000_000;
/// The record of a write takes so many bytes more than its messages, about.
const RECORD_MORE_BYTES: usize = 4 << 10;

/// What is known of the disk's space.
#[derive(Debug, Default)]
pub(crate) struct FullDisk {
    /// Something lacked space, and not everything has been found since.
    is_full: AtomicBool,
    /// Since when, on the database's clock, in microseconds.
    full_since: AtomicU64,
    /// When background work lacked space last, on the database's clock, in microseconds; 0: it has gone on since.
    full_at: AtomicU64,
    /// When anybody met a full disk last, on the database's clock, in microseconds.
    met_at: AtomicU64,
    /// It was told that the disk is full, and not yet that it has space again.
    is_told: AtomicBool,
    seals: Mutex<FailedSeals>,
    /// Level 0 may grow to so many bytes: for them space is kept (F1).
    backed: AtomicUsize,
    /// The same for who only looks at this; none while space is given back. Both are written by who holds `backing`.
    passes_to: AtomicUsize,
    /// So large are writes at most that are not counted (F6).
    uncounted_max: AtomicUsize,
    /// Bytes that were admitted and counted, and are not in level 0 yet.
    admitted: AtomicUsize,
    /// Held while it is looked what was admitted and space is kept for that, so that nobody gives back what was kept for another just before.
    backing: Mutex<()>,
    /// When keeping space is tried again in the background.
    try_again_at: AtomicU64,
    /// How often in a row a piece of work has lacked space.
    pieces_lacked: AtomicU32,
}

/// What keeps level 0 from being emptied.
#[derive(Debug, Default)]
struct FailedSeals {
    /// How many have failed since the opening.
    count: u64,
    /// Why the last one has; none when it has not.
    why: Option<Error>,
}

/// A write that was admitted: its bytes are counted until it is dropped, which is when they are in level 0 or will never be (F6).
#[derive(Debug)]
pub(crate) struct Admitted<'a> {
    counted: usize,
    full_disk: &'a FullDisk,
}

impl Admitted<'_> {
    /// Bytes that are counted.
    #[inline]
    pub(crate) fn counted(&self) -> usize {
        self.counted
    }

    /// So many of its bytes are in level 0.
    pub(crate) fn applied(&mut self, bytes: usize) {
        let bytes = bytes.min(self.counted);
        self.counted -= bytes;
        if bytes > 0 {
            self.full_disk.admitted.fetch_sub(bytes, Ordering::Release);
        }
    }
}

impl Drop for Admitted<'_> {
    #[inline]
    fn drop(&mut self) {
        self.applied(self.counted);
    }
}

impl FullDisk {
    /// Level 0 may grow to so many bytes (F1).
    fn backed(&self) -> usize {
        self.backed.load(Ordering::Relaxed)
    }

    /// Counts a write of `bytes`, unless it is small.
    #[inline]
    pub(crate) fn count_large(&self, bytes: usize) -> Admitted<'_> {
        if bytes <= self.uncounted_max.load(Ordering::Relaxed) {
            return Admitted { counted: 0, full_disk: self };
        }
        self.count(bytes)
    }

    fn count(&self, bytes: usize) -> Admitted<'_> {
        self.admitted.fetch_add(bytes, Ordering::SeqCst);
        Admitted { counted: bytes, full_disk: self }
    }

    /// Bytes that are counted. To be asked before level 0 is: what is missing here is there.
    #[inline]
    pub(crate) fn admitted(&self) -> usize {
        self.admitted.load(Ordering::SeqCst)
    }

    /// Whether space is kept for `total` bytes of level 0, and the disk is not full.
    #[inline]
    pub(crate) fn is_backed(&self, total: usize) -> bool {
        total <= self.passes_to.load(Ordering::SeqCst) && !self.is_full.load(Ordering::Acquire)
    }

    /// How many seals have failed so far.
    pub(crate) fn failed_seals(&self) -> u64 {
        self.seals.lock().count
    }

    /// Why who waits for level 0 since so many seals had failed should not wait on: the disk is full, or it was tried again and again in vain.
    pub(crate) fn why_not_sealed(&self, failed_before: u64) -> Option<Error> {
        let seals = self.seals.lock();
        let is_hopeless = seals.count >= failed_before + SEALS_FAILED_MAX;
        let why = seals.why.as_ref().filter(|why| is_hopeless || why.kind() == ErrorKind::NoSpace)?;
        Some(why.clone().context("level 0 is full and can't be emptied"))
    }
}

impl Engine {
    /// Makes sure that level 0 can be emptied when a write of `bytes` is in it (F1, F2). On a full disk it is to be
    /// asked for each write: what seals drew has to be made good first, or writes would use up what deletes need.
    #[cold]
    pub(crate) fn back_write<'a>(
        &'a self,
        admitted: Admitted<'a>,
        bytes: usize,
        deletes_only: impl FnOnce() -> bool,
    ) -> Result<Admitted<'a>> {
        let admitted = if admitted.counted == bytes { admitted } else { self.full_disk.count(bytes) };
        match self.back_admitted() {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.disk_is_full(&error);
                return if deletes_only() { self.admit_delete(bytes, false).map(|()| admitted) } else { Err(error) };
            }
            result => result?,
        }
        if !self.log_has_room_for(bytes) && deletes_only() {
            self.admit_delete(bytes, false)?;
        }
        Ok(admitted)
    }

    /// Keeps space for all that was admitted, and a piece ahead of it if there is some.
    fn back_admitted(&self) -> Result<()> {
        self.back_level0(self.backed_ahead()).or_else(|error| match error.kind() {
            ErrorKind::NoSpace => self.back_level0(0),
            _ => Err(error),
        })
    }

    /// What level 0 holds and what is on its way there.
    fn admitted_level0(&self) -> usize {
        let admitted = self.full_disk.admitted();
        admitted + self.tree.version_guard().level0_bytes()
    }

    /// Lets a write that only deletes, and is counted, go on although the disk is full, if there is any way. `has_failed`: the log did not have
    /// the room that it seems to have.
    fn admit_delete(&self, bytes: usize, has_failed: bool) -> Result<()> {
        let beyond = self.store.compaction_reserve_bytes() as usize / 4;
        for relief in 0.. {
            let backed = self.full_disk.backed();
            let total = self.admitted_level0();
            if total <= backed + beyond && self.log_has_room_for(bytes) && (relief > 0 || !has_failed) {
                break;
            }
            if relief == RELIEFS_MAX {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "the disk is full, and level 0 can't be emptied for a delete",
                ));
            }
            // Twice: what the log holds for the generation before is given back when there is another one.
            self.checkpoint(CheckpointCause::Size)?;
            self.publish()?;
        }
        Ok(())
    }

    /// Does what appends to the log. When that has no room, and it `may_wait`, level 0 is emptied, which gives back segments of
    /// the log, and it is tried again. Nothing that a checkpoint takes may be held.
    pub(crate) fn past_full_log<T>(
        &self,
        bytes: usize,
        may_wait: impl Fn() -> bool,
        mut append: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        for round in 0..RELIEFS_MAX {
            match append() {
                Err(error) if error.kind() == ErrorKind::NoSpace && may_wait() => {
                    let _counted = self.full_disk.count(bytes);
                    self.admit_delete(bytes, round > 0)?
                }
                result => return result,
            }
        }
        append()
    }

    fn log_has_room_for(&self, bytes: usize) -> bool {
        self.log.as_ref().is_some_and(|log| log.has_room_for(bytes + RECORD_MORE_BYTES))
    }

    /// Keeps space for what level 0 holds and was admitted to it and `ahead` bytes more, and gives back what is kept beyond that.
    fn back_level0(&self, ahead: usize) -> Result<()> {
        let _backing = self.full_disk.backing.lock();
        self.back_backing(ahead)
    }

    /// The same by who holds `backing`.
    fn back_backing(&self, ahead: usize) -> Result<()> {
        let stored = (self.admitted_level0() + ahead) as u64;
        let stored = stored + stored / STORED_MORE_PART + STORED_MORE_BYTES;
        let outcome = self.store.reserve_level0(stored);
        self.note_backing();
        outcome.map_err(|error| error.context("no space is left to write level 0 to"))
    }

    /// Lets what is kept for compactions follow the size of the data; from the opening on, before free space is given back that is to be kept.
    pub(crate) fn keep_compactions_possible(&self) {
        let live = self.store.statistics().image_bytes;
        let wanted = (live / COMPACTION_PART).clamp(*COMPACTION_BYTES.start(), *COMPACTION_BYTES.end());
        self.store.set_compaction_reserve(wanted);
    }

    /// Looks how much space is kept for level 0, when nobody is changing that.
    pub(crate) fn note_backed(&self) {
        let _backing = self.full_disk.backing.lock();
        self.note_backing();
    }

    /// The same by who holds `backing`.
    fn note_backing(&self) {
        let stored = self.store.level0_reserve_bytes().saturating_sub(STORED_MORE_BYTES);
        let backed = stored * STORED_MORE_PART / (STORED_MORE_PART + 1);
        let uncounted_max = self.backed_ahead() / UNCOUNTED_PART / UNCOUNTED_WRITES;
        self.full_disk.backed.store(backed as usize, Ordering::Relaxed);
        self.full_disk.passes_to.store(backed as usize, Ordering::Relaxed);
        self.full_disk.uncounted_max.store(uncounted_max, Ordering::Relaxed);
    }

    fn backed_ahead(&self) -> usize {
        (self.level0_bytes() / BACKED_AHEAD_PART).min(BACKED_AHEAD_MAX)
    }

    /// Keeps space ahead of level 0 or, at rest, gives back what it will not need soon.
    pub(crate) fn back_ahead(&self, at_rest: bool) -> Result<()> {
        let ahead = self.backed_ahead();
        let wanted = self.admitted_level0() + ahead;
        let backed = self.full_disk.backed();
        if at_rest && backed > 2 * wanted {
            let backing = self.full_disk.backing.lock();
            // Who is not counted below does not pass on what is given back, but asks for space itself.
            self.full_disk.passes_to.store(0, Ordering::SeqCst);
            self.back_backing(ahead)?;
            drop(backing);
            // It may have done so before this gave back.
            let is_short = self.full_disk.backed() < self.admitted_level0();
            return if is_short { self.back_level0(ahead) } else { Ok(()) };
        }
        if backed < wanted || self.is_disk_full() { self.back_level0(2 * ahead) } else { Ok(()) }
    }

    /// Whether the disk is taken for full.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.full_disk.is_full.load(Ordering::Acquire)
    }

    /// Whether somebody has met a full disk within seconds.
    pub(crate) fn was_disk_full_lately(&self) -> bool {
        self.full_disk.is_told.load(Ordering::Acquire)
    }

    /// Whether it has been so for a while: what is then lacking does not come by itself.
    pub(crate) fn has_been_full(&self) -> bool {
        let since = self.full_disk.full_since.load(Ordering::Relaxed);
        self.is_disk_full() && self.clock.micros().saturating_sub(since) >= FULL_MICROS
    }

    /// Notes whether a memtable could be written, if it was tried.
    pub(crate) fn sealed<T>(&self, outcome: Result<Option<T>>) -> Result<Option<T>> {
        match &outcome {
            Ok(Some(_)) => self.full_disk.seals.lock().why = None,
            Ok(None) => {}
            Err(error) => {
                let mut seals = self.full_disk.seals.lock();
                seals.count += 1;
                seals.why = Some(error.clone());
            }
        }
        outcome
    }

    /// How much a piece of work writes, about, while the disk is full (F4); none while it is not.
    fn piece_bytes(&self) -> Option<u64> {
        let lacked = self.full_disk.pieces_lacked.load(Ordering::Relaxed);
        let bytes = (self.store.compaction_reserve_bytes() / PIECE_PART) >> lacked.min(PIECES_LACKED_MAX);
        self.is_disk_full().then(|| bytes.max(PIECE_BYTES_MIN))
    }

    /// A flush or compaction, or on a full disk a piece of one.
    pub(crate) fn move_down_step(&self, threshold: f32) -> Result<bool> {
        let was_full = self.is_disk_full();
        let worked = self.tree.work_piece(&self.retention(), threshold, self.piece_bytes());
        match &worked {
            Ok(true) => self.full_disk.pieces_lacked.store(0, Ordering::Relaxed),
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.work_lacked_space(error);
                if was_full {
                    let lacked = (self.full_disk.pieces_lacked.load(Ordering::Relaxed) + 1) % PIECES_LACKED_MAX;
                    self.full_disk.pieces_lacked.store(lacked, Ordering::Relaxed);
                    if lacked == 0 {
                        self.tree.pass_over_lacking();
                    }
                }
                // Space that waits for the next publication comes back.
                self.publish()?;
            }
            Ok(false) | Err(_) => {}
        }
        worked
    }

    /// Passes on what came of writing a large value or a bulk load to the data file.
    pub(crate) fn noting_lack<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|error| {
            if error.kind() == ErrorKind::NoSpace {
                self.work_lacked_space(error);
            }
        })
    }

    /// Background work has met a full disk, or a large value or a bulk load has: deletes that still wait for their turn make space for it (F3).
    pub(crate) fn work_lacked_space(&self, error: &Error) {
        self.full_disk.full_at.store(self.clock.micros().max(1), Ordering::Relaxed);
        self.disk_is_full(error);
    }

    /// Somebody has met a full disk.
    pub(crate) fn disk_is_full(&self, error: &Error) {
        let now = self.clock.micros();
        self.full_disk.met_at.store(now, Ordering::Relaxed);
        if !self.is_disk_full() {
            self.full_disk.full_since.store(now, Ordering::Relaxed);
        }
        self.full_disk.is_full.store(true, Ordering::Release);
        if !self.full_disk.is_told.swap(true, Ordering::AcqRel) {
            self.events
                .tell(LogLevel::Warning, || format!("the disk is full, writes that are not deletes fail: {error}"));
        }
    }

    /// Background work found the space that it needed.
    pub(crate) fn space_was_found(&self) {
        self.full_disk.full_at.store(0, Ordering::Relaxed);
    }

    /// All that is to be kept is kept: the disk has space again, unless background work needed more a short time ago.
    fn space_is_kept(&self) {
        let (now, full_at) = (self.clock.micros(), self.full_disk.full_at.load(Ordering::Relaxed));
        if full_at == 0 || now.saturating_sub(full_at) >= FULL_MICROS {
            self.full_disk.is_full.store(false, Ordering::Release);
        }
        let is_calm = now.saturating_sub(self.full_disk.met_at.load(Ordering::Relaxed)) >= CALM_MICROS;
        if is_calm && !self.is_disk_full() && self.full_disk.is_told.swap(false, Ordering::AcqRel) {
            self.events.tell(LogLevel::Note, || "the disk has space again".to_owned());
        }
    }

    /// A piece of what makes appends and seals find space.
    pub(crate) fn keep_space(&self, log: &Log) -> Result<bool> {
        let now = self.clock.micros();
        if now < self.full_disk.try_again_at.load(Ordering::Relaxed) && !self.options.manual_background {
            return Ok(false);
        }
        let at_rest = now.saturating_sub(self.last_publication()) >= REST_MICROS;
        // The log comes second, and on a full disk takes none ahead: it gets its own segments back from checkpoints, which need the
        // other space.
        let kept = self.back_ahead(at_rest).and_then(|()| match self.is_disk_full() {
            true => Ok(false),
            false => self.logged(log.prepare_step()),
        });
        if kept.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace) {
            let _gate = self.gate.write();
            self.logged(log.give_back_spare())?;
        }
        match &kept {
            Ok(_) => {
                self.events.segments_are_ready();
                self.space_is_kept();
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.full_disk.try_again_at.store(now + PAUSE.as_micros() as u64, Ordering::Relaxed);
            }
            Err(_) => {}
        }
        kept
    }

    /// A full disk keeps nobody from the rest of the work.
    pub(crate) fn but_for_space<T: Default>(&self, outcome: Result<T>) -> Result<T> {
        outcome.or_else(|error| match error.kind() {
            ErrorKind::NoSpace => {
                self.disk_is_full(&error);
                Ok(T::default())
            }
            _ => Err(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::base::random::Random;
    use crate::db::database::Database;
    use crate::db::options::{Options, TreeOptions};
    use crate::io::MemoryStorage;

    fn open(storage: &MemoryStorage) -> Result<Database> {
        let options = Options::new().create_if_missing(true).storage(Some(Arc::new(storage.clone())));
        let options = options.memory_bytes(64 << 20).level0_bytes(8 << 20).log_segment_bytes(1 << 20);
        Database::open("/db", options.checkpoint_interval_ms(0).manual_background(true))
    }

    /// Whatever is given back is another's at once.
    #[test]
    fn what_is_kept_for_compactions_is_still_there_after_a_restart_on_a_full_disk() -> Result<()> {
        let storage = MemoryStorage::new();
        let db = open(&storage)?;
        let tree = db.create_tree("t", &TreeOptions::default())?;
        let value = Random(1).bytes(256 << 10);
        (0..160u8).try_for_each(|row| db.put(&tree, &[row], &value))?;
        for _ in 0..2 {
            db.checkpoint()?;
            while db.step_background()? {}
        }
        let kept = db.engine().store.compaction_reserve_bytes();
        assert!(kept > 2 << 20, "{kept}");
        // As a kill leaves it.
        let left = storage.snapshot();
        left.set_capacity(left.occupied_bytes());
        let db = open(&left)?;
        for _ in 0..200 {
            if let Err(error) = db.step_background() {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            }
            left.set_capacity(left.occupied_bytes());
        }
        assert!(db.engine().store.compaction_reserve_bytes() >= kept);
        Ok(())
    }

    #[test]
    fn space_that_is_kept_for_a_write_is_not_given_back_by_another_that_had_looked_before() -> Result<()> {
        const LARGE: usize = 4 << 20;
        let db = open(&MemoryStorage::new())?;
        let engine = db.engine();
        // As who has looked how much was admitted, and goes on later than the other.
        let backing = engine.full_disk.backing.lock();
        engine.store.reserve_level0(1)?;
        std::thread::scope(|scope| -> Result<()> {
            let other = scope.spawn(|| engine.back_write(engine.full_disk.count(LARGE), LARGE, || false));
            let until = Instant::now() + Duration::from_millis(200);
            while !other.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            engine.store.reserve_level0(1)?;
            drop(backing);
            let _admitted = other.join().expect("no panic")?;
            assert!(engine.store.level0_reserve_bytes() >= LARGE as u64);
            Ok(())
        })?;
        db.close()
    }

    /// It may be giving back what level 0 would be said to be kept.
    #[test]
    fn what_is_kept_for_level_0_is_said_by_nobody_while_another_changes_it() -> Result<()> {
        let db = open(&MemoryStorage::new())?;
        let engine = db.engine();
        let tree = db.create_tree("t", &TreeOptions::default())?;
        engine.back_level0(8 << 20)?;
        db.put(&tree, b"key", b"value")?;
        engine.seal_active(0, CheckpointCause::Size)?;
        let passes_to = || engine.full_disk.passes_to.load(Ordering::SeqCst);
        let backing = engine.full_disk.backing.lock();
        std::thread::scope(|scope| -> Result<()> {
            engine.full_disk.passes_to.store(0, Ordering::SeqCst);
            let flush = scope.spawn(|| engine.flush_step());
            while !engine.tree.version_guard().sealed.is_empty() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(50));
            let by_flush = passes_to();
            engine.note_backing();
            let kept = passes_to();
            let back = scope.spawn(|| engine.back_ahead(true));
            std::thread::sleep(Duration::from_millis(50));
            let by_other = passes_to();
            drop(backing);
            assert!(flush.join().expect("no panic")?);
            back.join().expect("no panic")?;
            assert_eq!((by_flush, by_other), (0, kept));
            assert!((1..kept).contains(&passes_to()), "the rest was given back");
            Ok(())
        })?;
        db.close()
    }

    #[test]
    fn a_write_is_counted_until_it_is_in_level_0_and_a_small_one_not_at_all() {
        let full_disk = FullDisk::default();
        full_disk.uncounted_max.store(100, Ordering::Relaxed);
        let small = full_disk.count_large(100);
        assert_eq!((small.counted(), full_disk.admitted()), (0, 0));
        let mut large = full_disk.count_large(101);
        let other = full_disk.count(7);
        large.applied(40);
        assert_eq!((large.counted(), full_disk.admitted()), (61, 68));
        large.applied(100);
        drop((small, large));
        assert_eq!(full_disk.admitted(), 7);
        drop(other);
        assert_eq!(full_disk.admitted(), 0);
    }
}
