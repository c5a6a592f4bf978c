//! Which files the log has: prepared ones to go on in, live ones that a restart would read.
//!
//! Owns their numbers. A prepared segment lies ready under its final name, allocated, so that to begin it takes no call
//! that changes a directory. Released segments become prepared ones by a rename; those beyond [`PREPARED_MAX`] are
//! removed.
//!
//! - L1: numbers are given out in ascending order and taken in that order. A number is above those of all files that
//!   were there when the log was opened.
//! - L2: a name is durable before its segment is begun.
//! - L3: from the log's creation on its directory is never without a segment, also after a crash: the last one is removed only
//!   when the name of another is durable. So a directory without any is the wrong one.
//! - L4: after [`Pool::close`] nothing in the directory is changed any more: it may be somebody else's by then.
//! - L5: the first live segment is durable before there is a second one beside it that may not be. A restart takes the first
//!   segment that it finds for the beginning of the log; were that a later one, whose sectors happened to reach the disk, records would
//!   be missing that nobody ever vouched for, and the database be refused. So [`Pool::release`] lets a segment go only once the
//!   next is durable, and a writer syncs the first before it begins another ([`Pool::first_written`]).
//! - L6: a prepared segment says in its header whose it is, so that the log of another database is known also where nothing was begun.
//!   A new file is signed; a released one is by its last use; one that a crash kept from being signed is when it is recycled.
//! - L7: what fails here before a name or a byte of a live segment has changed has changed nothing, and may be tried again: the error says so
//!   ([`Error::is_passing`]). A failed sync never says so. The directory is held open, so that none is wanted in the middle of a change of names.
//!
//! Latches: `preparing` is held over calls to files and directories, `is_closed` shared over those that change something; then comes
//! `state`, which is held over none.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use smallvec::SmallVec;

use super::LogOptions;
use super::segment::{self, HEADER_BYTES, Segment};
use crate::base::page_buf::PageBuf;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
use crate::base::{Error, ErrorKind, Lsn, Result};
use crate::io::{self, Directory, File, OpenMode, Storage};

/// Prepared segments that released ones are kept for.
const PREPARED_MAX: usize = 2;
/// Bytes written again at a time.
const REWRITE_BYTES: usize = 1 << 20;

/// A segment that holds records.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) number: u64,
    pub(super) start: u64,
    /// Position after its last record; `None` for the one that is written to.
    pub(super) end: Option<u64>,
    /// Nothing more goes into it from here on, although it may have room.
    pub(super) closed_at: Option<u64>,
    /// `None` for one of an earlier opening.
    pub(super) segment: Option<Arc<Segment>>,
}

/// What [`Pool::ready`] finds.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) prepared: usize,
    /// Capacities.
    pub(super) spare: SmallVec<[u64; 4]>,
    pub(super) newest: Option<Live>,
}

#[derive(Debug, Default)]
struct State {
    prepared: VecDeque<Arc<Segment>>,
    live: VecDeque<Live>,
}

/// The files of the log.
#[derive(Debug)]
pub(super) struct Pool {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    names: Arc<dyn Directory>,
    direct: bool,
    segment_bytes: u64,
    uuid: [u8; 16],
    /// Bytes of the headers of segments that were signed.
    signed_bytes: AtomicU64,
    /// The next number.
    preparing: Mutex<u64>,
    is_closed: RwLock<bool>,
    state: Mutex<State>,
}

impl Pool {
    /// # Errors
    /// What the storage reports.
    pub(super) fn new(storage: Arc<dyn Storage>, dir: PathBuf, options: &LogOptions, next: u64) -> Result<Pool> {
        let names = storage.open_dir(&dir)?;
        let LogOptions { direct, segment_bytes, uuid, .. } = *options;
        let (preparing, is_closed, state) = (Mutex::new(next), RwLock::new(false), Mutex::default());
        let signed_bytes = AtomicU64::new(0);
        Ok(Pool { storage, dir, names, direct, segment_bytes, uuid, signed_bytes, preparing, is_closed, state })
    }

    /// As who prepares or releases a segment just now.
    #[cfg(test)]
    pub(super) fn preparing(&self) -> MutexGuard<'_, u64> {
        self.preparing.lock()
    }

    /// Ends all changes, those under way first (L4).
    pub(super) fn close(&self) {
        *self.is_closed.write() = true;
    }

    /// A pass for a change of a file or of names. Who holds one takes neither another nor `preparing`.
    pub(super) fn changing(&self) -> Result<RwLockReadGuard<'_, bool>> {
        let is_closed = self.is_closed.read();
        if *is_closed {
            return Err(Error::new(ErrorKind::Closed, "database is closed"));
        }
        Ok(is_closed)
    }

    /// Adds a segment that an earlier opening wrote, in order of positions.
    pub(super) fn add_live(&self, number: u64, start: u64, end: u64) {
        self.state.lock().live.push_back(Live { number, start, end: Some(end), closed_at: Some(end), segment: None });
    }

    /// The number of the segment that is taken next.
    pub(super) fn first_number(&self) -> u64 {
        let next = self.preparing.lock();
        self.state.lock().prepared.front().map_or(*next, |segment| segment.number)
    }

    /// Where the first live segment begins, if this opening writes it. It is durable when anything above that is.
    pub(super) fn first_written(&self) -> Option<u64> {
        self.state.lock().live.front().filter(|live| live.segment.is_some()).map(|live| live.start)
    }

    /// Number of prepared segments.
    pub(super) fn prepared(&self) -> usize {
        self.state.lock().prepared.len()
    }

    /// The next number; who prepares a segment meanwhile is waited for.
    pub(super) fn next_number(&self) -> u64 {
        *self.preparing.lock()
    }

    /// What lies ready, how much of it is spare beyond the first `claimed`, and the newest live segment.
    pub(super) fn ready(&self, claimed: usize) -> Ready {
        let state = self.state.lock();
        let spare = state.prepared.iter().skip(claimed).map(|segment| segment.capacity).collect();
        Ready { prepared: state.prepared.len(), spare, newest: state.live.back().cloned() }
    }

    /// Makes one more prepared segment of the usual size, unless there is one more since the next number was `seen`.
    ///
    /// # Errors
    /// `NoSpace`; then nothing changed.
    pub(super) fn prepare_after(&self, seen: u64) -> Result<()> {
        let next = self.preparing.lock();
        if *next == seen { self.prepare(next, None) } else { Ok(()) }
    }

    /// Makes one more prepared segment, of `capacity` or the usual size.
    ///
    /// # Errors
    /// `NoSpace`; then nothing changed.
    pub(super) fn prepare_one(&self, capacity: Option<u64>) -> Result<()> {
        self.prepare(self.preparing.lock(), capacity)
    }

    fn prepare(&self, mut next: MutexGuard<'_, u64>, capacity: Option<u64>) -> Result<()> {
        let _pass = self.changing()?;
        let number = *next;
        let capacity = capacity.unwrap_or(self.segment_bytes);
        let path = segment::path_of(&self.dir, number);
        let mode = OpenMode { create: true, truncate: true, direct: self.direct, ..OpenMode::default() };
        let made = self.storage.open(&path, mode).map_err(unharmed).and_then(|file| {
            let segment = Segment::new(number, file, capacity);
            segment.reserve().map_err(unharmed)?;
            self.sign(&*segment.file)?;
            self.names.sync()?;
            Ok(segment)
        });
        match made {
            Ok(segment) => {
                *next += 1;
                self.state.lock().prepared.push_back(Arc::new(segment));
                Ok(())
            }
            Err(error) => {
                // An empty file that stays behind is truncated by the next attempt.
                let _ = self.storage.remove(&path);
                Err(error.context(format!("prepare log segment {}", path.display())))
            }
        }
    }

    /// Makes sure that the segment which is taken next has room for `capacity`.
    pub(super) fn enlarge_next(&self, capacity: u64) -> Result<()> {
        let first = self.state.lock().prepared.front().cloned();
        let Some(first) = first else { return self.prepare_one(Some(capacity)) };
        if first.capacity >= capacity {
            return Ok(());
        }
        let _pass = self.changing()?;
        let larger = first.succeeded_by(first.number, capacity);
        larger.reserve().map_err(unharmed)?;
        let mut state = self.state.lock();
        match state.prepared.front_mut() {
            Some(front) if front.number == larger.number => *front = Arc::new(larger),
            _ => return Err(Error::internal("the next log segment was taken while it was enlarged")),
        }
        Ok(())
    }

    /// Takes the next prepared segment, whose first record will be at `start`; prepares one if there is none.
    pub(super) fn take(&self, start: u64) -> Result<Arc<Segment>> {
        loop {
            let mut state = self.state.lock();
            if let Some(segment) = state.prepared.pop_front() {
                if let Some(last) = state.live.back_mut() {
                    last.end.get_or_insert(start);
                }
                let (number, taken) = (segment.number, Some(Arc::clone(&segment)));
                let live = Live { number, start, end: None, closed_at: None, segment: taken };
                state.live.push_back(live);
                return Ok(segment);
            }
            drop(state);
            self.prepare_one(None)?;
        }
    }

    /// The segment that was taken last gets no record more than those below `end`.
    pub(super) fn close_last(&self, end: u64) {
        if let Some(last) = self.state.lock().live.back_mut() {
            last.closed_at = Some(end);
        }
    }

    /// Gives the space of the prepared segment that would be taken last back.
    pub(super) fn remove_last_prepared(&self) -> Result<()> {
        let _next = self.preparing.lock();
        let _pass = self.changing()?;
        let last = self.state.lock().prepared.pop_back();
        let Some(last) = last else { return Ok(()) };
        if let Err(error) = self.storage.remove(&segment::path_of(&self.dir, last.number)) {
            self.state.lock().prepared.push_back(last);
            return Err(unharmed_by_want(error));
        }
        self.names.sync()
    }

    /// The first prepared segment.
    pub(super) fn next(&self) -> Option<Arc<Segment>> {
        self.state.lock().prepared.front().cloned()
    }

    /// The live segments.
    pub(super) fn live(&self) -> Vec<Live> {
        self.state.lock().live.iter().cloned().collect()
    }

    /// Recycles or removes the segments that end at or below `before`. The last one that there is gets the usual size back or, if the disk has no
    /// space for that, stays as it is (L3). Stops before one whose successor is not durable (L5), as far as `durable` tells: `Some`
    /// position up to which the log must be first. What could not be released yet stays for the next time.
    pub(super) fn release(&self, before: Lsn, durable: Lsn) -> Result<Option<Lsn>> {
        let mut next = self.preparing.lock();
        let _pass = self.changing()?;
        let mut changed = false;
        let mut wanted = None;
        let released = loop {
            let mut state = self.state.lock();
            if state.live.front().is_none_or(|live| live.end.is_none_or(|end| end > before.0)) {
                break Ok(());
            }
            // What an earlier opening wrote is durable.
            let successor = state.live.get(1).filter(|live| live.segment.is_some());
            wanted = successor.map(|live| Lsn(live.start + 1)).filter(|wanted| *wanted > durable);
            if wanted.is_some() {
                break Ok(());
            }
            let Some(live) = state.live.pop_front() else { break Ok(()) };
            let keep = state.prepared.len() < PREPARED_MAX;
            let is_last = state.live.is_empty() && state.prepared.is_empty();
            drop(state);
            let number = live.number;
            let recycled = if keep { self.recycle(number, live.segment.clone(), *next, is_last) } else { Ok(None) };
            let removed = match &recycled {
                Ok(None) if !is_last => self.storage.remove(&segment::path_of(&self.dir, number)),
                _ => Ok(()),
            };
            match (recycled, removed) {
                (Ok(Some(segment)), _) => {
                    *next += 1;
                    // Its name must be durable before it can be taken (L2).
                    self.names.sync()?;
                    self.state.lock().prepared.push_back(Arc::new(segment));
                    changed = false;
                }
                (Ok(None), Ok(())) if !is_last => changed = true,
                (outcome, removed) => {
                    self.state.lock().live.push_front(live);
                    break outcome.map(drop).and(removed.map_err(unharmed_by_want));
                }
            }
        };
        if changed {
            self.names.sync()?;
        }
        released.map(|()| wanted)
    }

    /// Gives a file the number `next`; `None` when it is not of the usual size, which a shorter one gets if it `may_grow`, or has
    /// holes, as a copy may, and the disk has no space for them.
    fn recycle(
        &self,
        number: u64,
        segment: Option<Arc<Segment>>,
        next: u64,
        may_grow: bool,
    ) -> Result<Option<Segment>> {
        let path = segment::path_of(&self.dir, number);
        let is_known = segment.is_some();
        let recycled = match segment {
            Some(segment) => segment.succeeded_by(next, self.segment_bytes),
            None => {
                let mode = OpenMode { direct: self.direct, ..OpenMode::default() };
                Segment::new(next, self.storage.open(&path, mode).map_err(unharmed)?, self.segment_bytes)
            }
        };
        let usual = HEADER_BYTES + self.segment_bytes;
        let bytes = recycled.file.len().map_err(unharmed)?;
        if bytes > usual || (bytes < usual && !may_grow) {
            return Ok(None);
        }
        if bytes < usual || !is_known {
            match recycled.reserve() {
                Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(None),
                result => result.map_err(unharmed)?,
            }
        }
        if !is_known {
            self.sign_unsigned(&*recycled.file)?;
        }
        self.storage.rename(&path, &segment::path_of(&self.dir, next)).map_err(unharmed_by_want)?;
        Ok(Some(recycled))
    }

    /// Deals with the files that were there when the log was opened and hold nothing: also those beyond the torn end,
    /// whose headers must not be taken for part of the log at the next restart.
    pub(super) fn recycle_leftovers(&self, numbers: &[u64]) -> Result<()> {
        let mut unfit = Vec::new();
        let mut next = self.preparing.lock();
        for number in numbers {
            let keep = self.prepared() < PREPARED_MAX;
            match if keep { self.recycle(*number, None, *next, false)? } else { None } {
                Some(segment) => {
                    *next += 1;
                    self.state.lock().prepared.push_back(Arc::new(segment));
                }
                None => unfit.push(*number),
            }
        }
        drop(next);
        if self.live().is_empty() && self.prepared() == 0 {
            match self.prepare_one(None) {
                // They stay until an opening finds space (L3).
                Err(error) if error.kind() == ErrorKind::NoSpace && !unfit.is_empty() => unfit.clear(),
                result => result?,
            }
        }
        for number in unfit {
            self.storage.remove(&segment::path_of(&self.dir, number))?;
        }
        self.names.sync()
    }

    /// Says in a segment whose it is, before it is begun.
    fn sign(&self, file: &dyn File) -> Result<()> {
        let mut page = PageBuf::zeroed(HEADER_BYTES as usize);
        segment::Header::of_nothing(self.uuid).encode(&mut page);
        file.write_at(&page, 0).map_err(unharmed)?;
        self.signed_bytes.fetch_add(HEADER_BYTES, Ordering::Relaxed);
        file.sync_data()
    }

    /// Bytes that were written to sign segments.
    pub(super) fn signed_bytes(&self) -> u64 {
        self.signed_bytes.load(Ordering::Relaxed)
    }

    /// Signs what a crash kept from being signed, or an earlier version prepared.
    fn sign_unsigned(&self, file: &dyn File) -> Result<()> {
        let mut page = PageBuf::zeroed(HEADER_BYTES as usize);
        file.read_at(&mut page, 0).map_err(unharmed)?;
        if page.iter().all(|byte| *byte == 0) { self.sign(file) } else { Ok(()) }
    }

    /// Cuts the last live segment off behind its last record, at `end`.
    pub(super) fn cut(&self, end: Lsn) -> Result<()> {
        let _pass = self.changing()?;
        let Some(last) = self.state.lock().live.back().cloned() else { return Ok(()) };
        let mode = OpenMode { direct: self.direct, ..OpenMode::default() };
        let file = match last.segment {
            Some(segment) => Arc::clone(&segment.file),
            None => self.storage.open(&segment::path_of(&self.dir, last.number), mode)?,
        };
        let bytes = (HEADER_BYTES + last.end.unwrap_or(end.0) - last.start).next_multiple_of(4096);
        if file.len()? > bytes { file.set_len(bytes) } else { Ok(()) }
    }

    /// Makes what an earlier opening left in the live segments durable: it may have been written and not synced. What is not known
    /// to be durable is written again first where it was read through the page cache: after a failed sync the system takes
    /// pages for written that the disk never got, and no further sync would write them.
    pub(super) fn secure_live(&self, durable: u64) -> Result<()> {
        let mode = OpenMode { direct: self.direct, ..OpenMode::default() };
        for live in self.live() {
            let file = self.storage.open(&segment::path_of(&self.dir, live.number), mode)?;
            let (is_cached, end) = (!self.direct || file.refused_direct(), live.end.unwrap_or(live.start));
            if is_cached && live.start >= durable {
                rewrite(&*file, 0, HEADER_BYTES + end - live.start)?;
            } else if is_cached && end > durable {
                rewrite(&*file, HEADER_BYTES + durable - live.start, HEADER_BYTES + end - live.start)?;
            }
            file.sync_data()?;
        }
        Ok(())
    }
}

/// The failure of a call that changes nothing that is believed in (L7).
fn unharmed(error: Error) -> Error {
    if error.kind() == ErrorKind::Io { error.into_passing() } else { error }
}

/// The failure of a call that changes names: by anything else than a want it may be half done.
fn unharmed_by_want(error: Error) -> Error {
    if io::is_want(&error) { unharmed(error) } else { error }
}

/// Writes what a file holds from `from` to `upto` again, as it is, in whole pages.
fn rewrite(file: &dyn File, from: u64, upto: u64) -> Result<()> {
    let end = upto.next_multiple_of(4096).min(file.len()?);
    let mut offset = from / 4096 * 4096;
    let mut chunk = PageBuf::zeroed(REWRITE_BYTES);
    while offset < end {
        let bytes = (end - offset).min(REWRITE_BYTES as u64) as usize;
        file.read_at(&mut chunk[..bytes], offset)?;
        file.write_at(&chunk[..bytes], offset)?;
        offset += bytes as u64;
    }
    Ok(())
}
