//! `data.frond` as the rest of the store sees it: whole aligned pages, counted, and poisoned after a fatal failure.
//!
//! - F1: after a failed sync, or a failure that the store declares fatal, every call that would write fails with
//!   `Poisoned` and the first cause; reads go on.
//! - F2: an address outside the file is `Corruption`, since addresses come from stored data.
//! - F3: after [`DataFile::close`] nothing is written, synced or cut any more: the file may be somebody else's by then.
//! - F4: no sync succeeds beside or after one that failed. The system tells a lost write to one sync only, whoever wrote it; so they
//!   are made one at a time, and the other must not believe its own success. Who waited for one that began after its own call needs no other.
//! - F5: a read that the disk does not answer, not at the second attempt either, is `Corruption` of what lies there
//!   ([`io::is_lost`]): whoever can do without it goes on. Any other failure of a read says nothing about what is stored, and passes.
//! - F6: a failure to get room changes nothing that is believed in, and passes. So does one to give some back, which
//!   nobody needs: it is passed over ([`super::shrink`]).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::frame::{self, FrameKind};
use crate::base::page_buf::PageBuf;
use crate::base::space::PAGE_BYTES;
use crate::base::sync::{Mutex, RwLock, RwLockReadGuard};
use crate::base::{BlockPtr, Error, ErrorKind, Result};
use crate::io::{self, File};

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) punched_bytes: AtomicU64,
    pub(super) publications: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// The failure of a call that changes nothing that is believed in (F6).
fn unharmed(error: Error) -> Error {
    if error.kind() == ErrorKind::Io { error.into_passing() } else { error }
}

#[derive(Debug)]
pub(super) struct DataFile {
    file: Arc<dyn File>,
    path: PathBuf,
    read_only: bool,
    /// Length in pages. Changed only under the store's `growing` lock.
    pages: AtomicU64,
    poison: OnceLock<Error>,
    /// Held shared during each change of the file.
    is_closed: RwLock<bool>,
    /// Held during a sync, inside of `is_closed` (F4).
    syncing: Mutex<()>,
    /// How many syncs have begun.
    begun: AtomicU64,
    pub(super) counters: Counters,
}

impl DataFile {
    pub(super) fn new(file: Arc<dyn File>, path: &Path, read_only: bool) -> Result<DataFile> {
        let pages = AtomicU64::new(file.len()? / PAGE_BYTES);
        let path = path.to_path_buf();
        let (poison, is_closed) = (OnceLock::new(), RwLock::new(false));
        let (syncing, begun, counters) = (Mutex::new(()), AtomicU64::new(0), Counters::default());
        Ok(DataFile { file, path, read_only, pages, poison, is_closed, syncing, begun, counters })
    }

    pub(super) fn refused_direct(&self) -> bool {
        self.file.refused_direct()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(super) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Names this file in an error.
    pub(super) fn name(&self, error: Error) -> Error {
        error.context(format!("data file {}", self.path.display()))
    }

    pub(super) fn corruption(&self, message: String) -> Error {
        self.name(Error::corruption(message))
    }

    /// The first cause, once poisoned.
    pub(super) fn poisoned(&self) -> Option<&Error> {
        self.poison.get()
    }

    /// Refuses all writing from now on; the first cause stays. Returns the cause given.
    pub(super) fn poison(&self, cause: Error) -> Error {
        let _ = self.poison.set(cause.clone());
        cause
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        if let Some(cause) = self.poison.get() {
            return Err(Error::new(ErrorKind::Poisoned, format!("the store stopped writing, first cause: {cause}")));
        }
        if self.read_only {
            return Err(self.name(Error::new(ErrorKind::ReadOnly, "the store was opened for reading")));
        }
        Ok(())
    }

    /// Ends all changes of the file, those under way first (F3).
    pub(super) fn close(&self) {
        *self.is_closed.write() = true;
    }

    /// A pass for one change of the file.
    fn changing(&self) -> Result<RwLockReadGuard<'_, bool>> {
        self.check_writable()?;
        let is_closed = self.is_closed.read();
        if *is_closed {
            return Err(Error::new(ErrorKind::Closed, "database is closed"));
        }
        Ok(is_closed)
    }

    /// Checks that a byte range lies in the file (F2).
    pub(super) fn check_range(&self, offset: u64, bytes: u64) -> Result<()> {
        let length = self.pages() * PAGE_BYTES;
        if offset.checked_add(bytes).is_none_or(|end| end > length) {
            let message = format!("address outside the file, offset={offset} bytes={bytes} file_bytes={length}");
            return Err(self.corruption(message));
        }
        Ok(())
    }

    /// Fills `buf` from a page-aligned offset (F5).
    pub(super) fn read(&self, buf: &mut PageBuf, offset: u64) -> Result<()> {
        let bytes = buf.padded().len() as u64;
        self.check_range(offset, bytes)?;
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, bytes);
        let read = self.file.read_at(buf.padded_mut(), offset);
        let read = read.or_else(|_| self.file.read_at(buf.padded_mut(), offset));
        read.map_err(|error| match io::is_lost(&error) {
            true => self.name(error.into_damage().context(format!("cannot be read, offset={offset} bytes={bytes}"))),
            false => unharmed(error),
        })
    }

    /// Writes the whole pages of `buf` at a page-aligned offset.
    pub(super) fn write(&self, buf: &PageBuf, offset: u64) -> Result<()> {
        let _pass = self.changing()?;
        let bytes = buf.padded().len() as u64;
        count(&self.counters.writes, 1);
        count(&self.counters.written_bytes, bytes);
        self.file.write_at(buf.padded(), offset)
    }

    /// Makes everything written durable, or poisons: after a failed sync nobody knows what is on the disk.
    pub(super) fn sync(&self) -> Result<()> {
        let _pass = self.changing()?;
        // One that begins from now on has all that was written before this call.
        let before = self.begun.load(Ordering::SeqCst);
        let _syncing = self.syncing.lock();
        // The one that was waited for may have failed.
        self.check_writable()?;
        if self.begun.load(Ordering::SeqCst) > before {
            return Ok(());
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        count(&self.counters.syncs, 1);
        self.file.sync_data().map_err(|error| self.poison(error))
    }

    /// Makes sure that the disk holds room for a range of pages of the file. On failure it may hold some for a part of it.
    pub(super) fn back(&self, start: u64, pages: u64) -> Result<()> {
        let _pass = self.changing()?;
        self.file.allocate(start * PAGE_BYTES, pages * PAGE_BYTES).map(drop).map_err(unharmed)
    }

    /// As [`DataFile::back`] for what lies between page `from`, where the file ends, and another. On failure it ends at `from` again: nobody
    /// would know of what the disk has given for it by then, and that may be the last that it had.
    pub(super) fn lengthen(&self, from: u64, end: u64) -> Result<()> {
        let _pass = self.changing()?;
        if let Err(error) = self.file.allocate(from * PAGE_BYTES, (end - from) * PAGE_BYTES) {
            // Where this fails too, it is found by the next opening.
            let _ = self.file.set_len(from * PAGE_BYTES);
            return Err(unharmed(error));
        }
        self.pages.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Makes the file reach a page, where the disk may hold no room for what it has not yet.
    pub(super) fn stretch(&self, end: u64) -> Result<()> {
        let _pass = self.changing()?;
        self.file.set_len(end * PAGE_BYTES)?;
        self.pages.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Cuts the file.
    pub(super) fn cut(&self, pages: u64) -> Result<()> {
        let _pass = self.changing()?;
        self.file.set_len(pages * PAGE_BYTES)?;
        self.pages.store(pages, Ordering::Release);
        Ok(())
    }

    /// Gives the disk back what it may hold for a range of pages.
    pub(super) fn punch(&self, start: u64, pages: u64) -> Result<()> {
        let _pass = self.changing()?;
        self.file.punch(start * PAGE_BYTES, pages * PAGE_BYTES)
    }

    /// Reads and checks a frame; returns its generation, checksum and payload.
    pub(super) fn frame(&self, kind: FrameKind, index: u32, at: BlockPtr) -> Result<(u64, u64, Vec<u8>)> {
        if !at.offset.is_multiple_of(PAGE_BYTES) {
            return Err(self.corruption(format!("{kind:?} frame at an odd address, offset={}", at.offset)));
        }
        self.check_range(at.offset, u64::from(at.stored))?;
        let mut buf = PageBuf::zeroed(at.stored as usize);
        self.read(&mut buf, at.offset)?;
        let frame = frame::open(&buf, kind, index, at.offset).map_err(|error| self.name(error))?;
        Ok((frame.generation, frame.checksum, frame.payload.to_vec()))
    }
}
