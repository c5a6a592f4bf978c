//! The recovery log: one stream of records, in segments (decisions D4 and D9).
//!
//! Owns positions, files and durability of records; deliberately not what a record says
//! ([`crate::format::record`]), nor which memtable a segment belongs to.
//!
//! Rooms, in reading order: this file (what a writer of records calls), [`compression`] (of long records), [`frame`] (one
//! record's wrapping), [`ring`] (where records are copied in parallel), [`passes`] (who writes and syncs for all), [`waiters`] (who waits for
//! that), [`writer`] (from the ring to the files), [`segment`] (one file), [`pool`] (which files there are), [`room`] (space in them for what
//! comes), [`reader`] (what recovery and `frond log` call), [`evidence`] (torn end or damage?).
//!
//! # How it works
//!
//! *Append.* One atomic exchange reserves the record's position, which is its LSN and its place in the ring. The copy runs
//! in parallel with other copies. No thread of its own writes: whoever waits for a record becomes the writer if nobody
//! is, takes all complete frames out of the ring, writes them in one piece and, if durability is waited for, syncs; mostly by one
//! call ([`writer`]).
//! Who comes meanwhile waits, and one of those becomes the next: group commit (DeWitt et al., SIGMOD 1984) that clocks
//! itself, without timers, also for commits that wait for the write alone. A sync wakes those whom it served and one of
//! those who came after it began, who becomes the next leader. Where more threads commit than there are processors, syncs
//! are for groups ([`passes`]). The write and the sync are separate roles, so that while
//! one thread syncs another can write on. Where nobody does they are one step.
//!
//! *Rotate.* The log is cut at its end: the next record begins a new segment. Only the position is noted; the writer
//! changes files when it comes there. Positions go on without a gap.
//!
//! # Protocol of the level-0 gate
//!
//! Append with the gate held shared; rotate with it held exclusively, so that no reservation is in flight and the
//! position returned is a boundary between records. Append may have to wait for room in the ring: it then becomes the
//! writer itself or waits for the one there is, which never takes the gate; so the holder of the exclusive gate waits for
//! I/O at most as long as one append does. It waits likewise for a record that is too large for the ring, which the writer writes
//! at once. Rotate itself does no I/O, and waits for nobody's, when [`Log::prepare_step`] has made a
//! segment ready, and prepares one itself otherwise.
//!
//! # Invariants
//!
//! - G1: durable <= written <= consumed <= end, and each only grows.
//! - G2: a position is given out once per epoch; frames are checked against both.
//! - G3: `durable` moves only after a successful sync of every file that holds bytes below it and above where it was, or after a
//!   durable write of all of these bytes.
//! - G4: what is appended ends below `room_end`, up to where segments are there, whatever the disk does.
//!
//! Latches, in the order in which they may be taken: sync role, write role, writer, syncing, boundaries, pool (`preparing`, `is_closed`, `state`),
//! a segment's `filling`, `cause`, the queues of [`waiters`]; `compressors` alone.
//!
//! # On failure
//!
//! A failed write or sync poisons the log: everything later fails with `Poisoned` and the first cause, and nothing
//! is retried, because after a failed sync nobody knows what the disk holds. Where a segment is prepared, in which nothing is yet, it fails with
//! `Io` instead, and the file is removed; unless it was a sync that failed, that may be tried again, and the error is a passing one
//! (L7 of [`pool`]). `NoSpace` comes only where
//! space is asked for, before anything changed: from [`Log::append`] when there is no room for the record in prepared
//! segments (a record that is too large for the ring leaves no room in its segment), and from [`Log::rotate`].

mod compression;
mod evidence;
mod frame;
mod options;
mod passes;
mod pool;
pub mod reader;
mod ring;
mod room;
mod segment;
mod waiters;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossbeam_utils::CachePadded;

pub use options::{Appended, LogOptions, LogStatistics};
pub use reader::{LogReader, LogTail, RecordBatch};
pub use segment::LOG_FORMAT;

use self::compression::{Compression, Trials};
use self::frame::Header;
use self::pool::Pool;
use self::ring::Ring;
use self::waiters::Waiters;
use self::writer::Writer;
use crate::base::compress::Codec;
use crate::base::memory::Purpose;
use crate::base::metrics::Histogram;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::{Error, ErrorKind, Lsn, Result};
use crate::io::Storage;

/// Longest record, in bytes.
pub const RECORD_BYTES_MAX: usize = (256 << 20) - 64;
/// A frame of more than the ring's size divided by this does not go through the ring.
const RING_SHARE: usize = 4;
const NO_BOUNDARY: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Counters {
    written_bytes: AtomicU64,
    batches: AtomicU64,
    sync_micros: Histogram,
    ring_waits: AtomicU64,
}

#[derive(Debug)]
struct Boundaries {
    /// Where segments are to begin; in `Log::next_boundary` the first of them.
    pending: VecDeque<u64>,
    /// The latest rotation, or where the log was opened.
    latest: u64,
    /// A record that does not go through the ring is on its way: other appends wait for the writer, who has it.
    is_large_coming: bool,
}

/// What a pass of the writer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Write,
    Sync,
}

/// The log. All methods may be called from any thread.
///
/// Dropping it stops: what was not waited for may be lost, as in a crash.
#[derive(Debug)]
pub struct Log {
    /// Where the next record will be.
    tail: CachePadded<AtomicU64>,
    /// Appends that end above must ask for space first.
    room_end: AtomicU64,
    /// A prepared segment is for a rotation only: see [`Log::keep_segment`].
    keeps_one: AtomicBool,
    poisoned: AtomicBool,
    epoch: u64,
    ring_frame_max: u64,
    start: u64,
    ring: Ring,
    written: CachePadded<AtomicU64>,
    durable: CachePadded<AtomicU64>,
    next_boundary: AtomicU64,
    boundaries: Mutex<Boundaries>,
    writer: Mutex<Writer>,
    sync_role: Mutex<()>,
    /// Somebody lets others come, and takes the role then.
    gathering: AtomicBool,
    /// Of those who wait for the write alone; others write beside it.
    write_role: Mutex<()>,
    syncing: Mutex<()>,
    /// Those who wait for a sync, and those who wait for the write alone.
    wait_sync: Waiters,
    wait_write: Waiters,
    pool: Pool,
    compressors: Mutex<Vec<Compression>>,
    trials: Trials,
    cause: Mutex<Option<Error>>,
    counters: Counters,
    options: LogOptions,
    memory_bytes: usize,
}

impl Log {
    /// A new log in `dir`, which must hold no segments; its first record will be at `start`, a multiple of 8.
    ///
    /// # Errors
    /// `InvalidArgument` when there are segments or a size is impossible; `NoSpace`, `Io`.
    pub fn create(storage: Arc<dyn Storage>, dir: &Path, options: LogOptions, start: Lsn) -> Result<Log> {
        storage.create_dir_all(dir)?;
        Log::refuse_segments(&*storage, dir)?;
        Log::open(storage, dir, options, LogTail::empty(start))
    }

    /// True when there are segments in `dir`, whosever they are.
    ///
    /// # Errors
    /// What the storage reports.
    pub fn exists(storage: &dyn Storage, dir: &Path) -> Result<bool> {
        Ok(storage.exists(dir)? && Log::any_segment(storage, dir)?.is_some())
    }

    fn any_segment(storage: &dyn Storage, dir: &Path) -> Result<Option<String>> {
        Ok(storage.list(dir)?.into_iter().find(|name| segment::number_of(name).is_some()))
    }

    /// An error if there are segments in `dir`.
    ///
    /// # Errors
    /// `InvalidArgument`; `Io`.
    pub fn refuse_segments(storage: &dyn Storage, dir: &Path) -> Result<()> {
        match Log::any_segment(storage, dir)? {
            Some(name) => {
                let shown = dir.join(name).display().to_string();
                Err(Error::invalid(format!(
                    "there is a log already, another database's or that of a lost data file; remove it if nobody needs it, \
                     file={shown}"
                )))
            }
            None => Ok(()),
        }
    }

    /// Removes what an interrupted [`Log::create`] with these options left in `dir`: segments that hold nothing. Others stay.
    ///
    /// # Errors
    /// What the storage reports.
    pub fn remove_unbegun(storage: &dyn Storage, dir: &Path, options: &LogOptions) -> Result<()> {
        for number in LogReader::unbegun(storage, dir, options)? {
            storage.remove(&segment::path_of(dir, number))?;
        }
        storage.sync_dir(dir)
    }

    /// Goes on where the log of an earlier run ends. What that run wrote is made durable, what lies beyond the torn
    /// end is given up, and the next record begins a new segment.
    ///
    /// # Errors
    /// `InvalidArgument` for impossible sizes; `NoSpace`, `Io`.
    pub fn open(storage: Arc<dyn Storage>, dir: &Path, options: LogOptions, tail: LogTail) -> Result<Log> {
        options.check()?;
        let end = tail.end().0;
        if !end.is_multiple_of(8) {
            return Err(Error::invalid(format!("log starts between words, lsn={end}")));
        }
        let pool = Pool::new(storage, PathBuf::from(dir), &options, tail.next_number())?;
        for (number, from, upto) in tail.live() {
            pool.add_live(number, from, upto);
        }
        pool.secure_live(tail.durable())?;
        pool.recycle_leftovers(tail.leftovers())?;
        if pool.prepared() == 0 {
            match pool.prepare_one(None) {
                // Nothing can be appended until there is space.
                Err(error) if error.kind() == ErrorKind::NoSpace => {}
                result => result?,
            }
        }
        let epoch = pool.first_number();
        let writer = Writer::new(options.buffer_bytes, end);
        let memory_bytes = options.buffer_bytes + writer.memory_bytes();
        options.budget.add(Purpose::Work, memory_bytes);
        let position = || CachePadded::new(AtomicU64::new(end));
        let log = Log {
            tail: position(),
            room_end: AtomicU64::new(0),
            keeps_one: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            epoch,
            ring_frame_max: (options.buffer_bytes / RING_SHARE) as u64,
            start: end,
            ring: Ring::new(options.buffer_bytes, end),
            written: position(),
            durable: position(),
            next_boundary: AtomicU64::new(NO_BOUNDARY),
            boundaries: Mutex::new(Boundaries { pending: VecDeque::new(), latest: end, is_large_coming: false }),
            writer: Mutex::new(writer),
            sync_role: Mutex::new(()),
            gathering: AtomicBool::new(false),
            write_role: Mutex::new(()),
            syncing: Mutex::new(()),
            wait_sync: Waiters::default(),
            wait_write: Waiters::default(),
            pool,
            compressors: Mutex::new(Vec::new()),
            trials: Trials::new(),
            cause: Mutex::new(None),
            counters: Counters::default(),
            options,
            memory_bytes,
        };
        log.update_room();
        Ok(log)
    }

    /// What a record of `bytes` takes in the log.
    pub fn bytes_of(bytes: usize) -> u64 {
        frame::frame_bytes(bytes)
    }

    /// The longest record that goes through the ring beside others, and shares a segment with them.
    pub fn shared_record_bytes_max(&self) -> usize {
        self.ring_frame_max.saturating_sub(frame::frame_bytes(0)) as usize
    }

    /// Adds a record. Call it with the level-0 gate held shared, see above.
    ///
    /// # Errors
    /// `InvalidArgument` for an empty or too long record, `NoSpace`: nothing changed. `Poisoned`.
    #[inline]
    pub fn append(&self, record: &[u8]) -> Result<Appended> {
        if record.is_empty() || record.len() > RECORD_BYTES_MAX {
            return Err(Error::invalid(format!("log record of impossible length, bytes={}", record.len())));
        }
        if record.len() >= self.options.compress_bytes_min && self.options.codec != Codec::None {
            return self.append_compressed(record);
        }
        self.append_stored(Codec::None.tag(), record)
    }

    #[inline]
    fn append_stored(&self, tag: u8, stored: &[u8]) -> Result<Appended> {
        if self.poisoned.load(Ordering::Relaxed) {
            return Err(self.poison_error());
        }
        let bytes = frame::frame_bytes(stored.len());
        let crc = frame::record_crc(stored);
        let header = Header { stored: stored.len(), tag, crc, durable: 0 };
        if bytes > self.ring_frame_max {
            return self.append_large(header, stored, bytes);
        }
        let lsn = self.reserve(bytes)?;
        let end = lsn + bytes;
        if !self.ring.has_room_for(end) {
            self.wait_for_ring(end)?;
        }
        let header = Header { durable: self.durable.load(Ordering::Relaxed), ..header };
        self.ring.put(lsn, header.encode(lsn, self.epoch), stored);
        Ok(Appended { lsn: Lsn(lsn), end: Lsn(end) })
    }

    /// Takes the next `bytes` positions. That there is room for them is looked at in the same step: of threads that see the last room
    /// one has it (G4).
    #[inline]
    fn reserve(&self, bytes: u64) -> Result<u64> {
        let mut lsn = self.tail.load(Ordering::Acquire);
        loop {
            // Read after the tail, which the exchange below finds unchanged.
            if lsn + bytes > self.room_end.load(Ordering::Relaxed) {
                self.make_room(bytes)?;
                lsn = self.tail.load(Ordering::Acquire);
                continue;
            }
            match self.tail.compare_exchange_weak(lsn, lsn + bytes, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(lsn),
                Err(tail) => lsn = tail,
            }
        }
    }

    #[cold]
    fn wait_for_ring(&self, end: u64) -> Result<()> {
        self.counters.ring_waits.fetch_add(1, Ordering::Relaxed);
        while !self.ring.has_room_for(end) {
            self.check_poison()?;
            if let Some(mut writer) = self.writer.try_lock() {
                writer.sync_apart();
                self.drain(&mut writer)?;
            }
            if !self.ring.has_room_for(end) {
                // Another writes, or has not copied its record yet.
                crate::base::sync::yield_now();
            }
        }
        Ok(())
    }

    /// No other record is appended from when the room for this one is decided to when what it leaves is known.
    #[cold]
    fn append_large(&self, header: Header, stored: &[u8], bytes: u64) -> Result<Appended> {
        let mut writer = self.writer.lock();
        writer.sync_apart();
        self.check_poison()?;
        let alone = self.append_alone();
        let lsn = loop {
            // What is in the ring may need segments of its own before the large one's.
            let lsn = self.tail.load(Ordering::Acquire);
            while writer.position < lsn {
                self.drain(&mut writer)?;
                crate::base::sync::yield_now();
            }
            if writer.position > lsn {
                continue;
            }
            self.secure_large(lsn, bytes.next_multiple_of(4096))?;
            if self.tail.compare_exchange(lsn, lsn + bytes, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                break lsn;
            }
        };
        let header = Header { durable: self.durable.load(Ordering::Relaxed), ..header };
        self.or_poison(writer.write_large(self, lsn, header, stored))?;
        drop(alone);
        drop(writer);
        self.wake_all();
        Ok(Appended { lsn: Lsn(lsn), end: Lsn(lsn + bytes) })
    }

    /// Makes everything durable and cuts the last file off behind it: the last thing that is done with the log. A restart
    /// then has nothing to look through for records after the end.
    ///
    /// # Errors
    /// `Poisoned`. Where a file cannot be cut, it stays as it is.
    pub fn end(&self) -> Result<()> {
        let end = self.sync()?;
        let _ = self.pool.cut(end);
        Ok(())
    }

    /// Ends all changes of its files, those under way first; then the directory may be another's (L4). What is not written by now
    /// is lost, as in a crash.
    pub fn close(&self) {
        self.pool.close();
    }

    fn wake_all(&self) {
        self.wait_sync.wake_all();
        self.wait_write.wake_all();
    }

    /// The position after the last record.
    pub fn end_lsn(&self) -> Lsn {
        Lsn(self.tail.load(Ordering::Acquire))
    }

    /// Below it, everything is handed to the operating system.
    pub fn written_lsn(&self) -> Lsn {
        Lsn(self.written.load(Ordering::Acquire))
    }

    /// Below it, everything is durable.
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Bytes from the first live segment to the end: at most so many would a restart read.
    pub fn live_bytes(&self) -> u64 {
        let start = self.pool.live().first().map_or(self.start, |live| live.start);
        self.end_lsn().0.saturating_sub(start)
    }

    /// What was done since the log was opened.
    pub fn statistics(&self) -> LogStatistics {
        let counter = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStatistics {
            appended_bytes: self.end_lsn().0 - self.start,
            written_bytes: counter(&self.counters.written_bytes) + self.pool.signed_bytes(),
            batches: counter(&self.counters.batches),
            sync_micros: self.counters.sync_micros.snapshot(),
            ring_waits: counter(&self.counters.ring_waits),
        }
    }

    /// How far above what is durable a frame can end when it is appended: by what is written (W4), what is staged, and what is in
    /// the ring. The longest frame comes on top, so that a frame which is to be found begins below.
    fn window(&self) -> u64 {
        let (ring, staging) = (self.ring.bytes(), writer::staging_bytes(self.options.buffer_bytes) as u64);
        self.options.unsynced_bytes_max.max(staging) + staging + ring + self.ring_frame_max
    }

    /// Why the log is poisoned, if it is.
    pub fn poisoned(&self) -> Option<Error> {
        self.poisoned.load(Ordering::Acquire).then(|| self.poison_error())
    }

    fn check_poison(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) { Err(self.poison_error()) } else { Ok(()) }
    }

    /// The failure of a write or sync poisons.
    fn or_poison<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.poison(&error))
    }

    #[cold]
    fn poison(&self, cause: &Error) -> Error {
        if cause.kind() != ErrorKind::Poisoned {
            self.cause.lock().get_or_insert_with(|| cause.clone());
            self.poisoned.store(true, Ordering::Release);
        }
        self.wake_all();
        self.poison_error()
    }

    #[cold]
    fn poison_error(&self) -> Error {
        let cause = self.cause.lock().as_ref().map_or_else(String::new, Error::to_string);
        Error::new(ErrorKind::Poisoned, format!("the log cannot be written any more: {cause}"))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.options.budget.sub(Purpose::Work, self.memory_bytes);
    }
}
