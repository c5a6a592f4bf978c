//! Reads of the data file: any bytes of it, by its whole pages.
//!
//! What is read to be decoded at once goes into memory that is used again: a little for each thread, and for long reads a few pieces that all
//! threads share, because there may be many threads.

use std::ops::{Deref, Range};

use super::Store;
use crate::base::page_buf::PageBuf;
use crate::base::space::PAGE_BYTES;
use crate::base::sync::Mutex;
use crate::base::{Result, scratch};

/// [`Store::read_with`] keeps memory up to this size per thread for its next call; of longer pieces, so long at most, a few for all threads,
/// of which there may be many.
const THREAD_SCRATCH_BYTES_MAX: usize = 64 << 10;
const SHARED_SCRATCH_BYTES_MAX: usize = 1 << 20;
const SHARED_SCRATCHES_MAX: usize = 2;

/// Aligned memory and the part of it that was asked for; derefs to that part.
#[derive(Debug, Clone)]
pub struct ReadBuf {
    pub(super) buf: PageBuf,
    range: Range<usize>,
}

impl ReadBuf {
    /// Bytes that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.buf.capacity()
    }
}

impl Deref for ReadBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[self.range.clone()]
    }
}

/// Memory for long reads.
#[derive(Debug, Default)]
pub(super) struct Scratches(
    /// The shorter ones first.
    Mutex<Vec<PageBuf>>,
);

impl Scratches {
    fn take(&self) -> PageBuf {
        self.0.lock().pop().unwrap_or_default()
    }

    /// Keeps the longest of them.
    fn keep(&self, buf: PageBuf) {
        if buf.capacity() <= SHARED_SCRATCH_BYTES_MAX {
            let mut kept = self.0.lock();
            let at = kept.partition_point(|other| other.capacity() <= buf.capacity());
            kept.insert(at, buf);
            if kept.len() > SHARED_SCRATCHES_MAX {
                kept.remove(0);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.lock().iter().map(PageBuf::capacity).sum()
    }
}

/// The page-aligned range around a byte range: its offset, its length, and the byte range in it.
fn aligned(offset: u64, bytes: usize) -> (u64, usize, Range<usize>) {
    let start = offset / PAGE_BYTES * PAGE_BYTES;
    let within = (offset - start) as usize;
    (start, within + bytes, within..within + bytes)
}

impl Store {
    /// Reads `bytes` bytes at any `offset` of the data file.
    ///
    /// # Errors
    /// `Corruption` when the range is outside the file, else what the storage reports.
    pub fn read(&self, offset: u64, bytes: usize) -> Result<ReadBuf> {
        let mut buf = self.buffer(offset, bytes, PageBuf::default())?;
        self.fill(&mut buf, offset)?;
        Ok(buf)
    }

    /// Memory for `bytes` bytes at `offset`: that of `old`, if it suffices.
    pub(super) fn buffer(&self, offset: u64, bytes: usize, old: PageBuf) -> Result<ReadBuf> {
        self.data.check_range(offset, bytes as u64)?;
        let (_, length, range) = aligned(offset, bytes);
        let mut buf = old;
        if buf.capacity() < length {
            drop(buf);
            buf = PageBuf::zeroed(length);
        }
        buf.set_len(length);
        Ok(ReadBuf { buf, range })
    }

    /// Reads what begins at `offset` into its buffer.
    pub(super) fn fill(&self, buf: &mut ReadBuf, offset: u64) -> Result<()> {
        self.data.read(&mut buf.buf, offset - buf.range.start as u64)
    }

    /// Reads like [`Store::read`] into memory that the thread reuses, and hands the bytes to `with`: the cheaper way when they
    /// are decoded or decompressed at once.
    ///
    /// # Errors
    /// As [`Store::read`], and what `with` returns.
    pub fn read_with<T>(&self, offset: u64, bytes: usize, with: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        thread_local! {
            static SCRATCH: std::cell::Cell<PageBuf> = std::cell::Cell::default();
        }
        let (_, length, _) = aligned(offset, bytes);
        let is_long = length > THREAD_SCRATCH_BYTES_MAX;
        let old = if is_long { self.scratches.take() } else { scratch::take(&SCRATCH) };
        let mut buf = self.buffer(offset, bytes, old)?;
        let result = self.fill(&mut buf, offset).and_then(|()| with(&buf));
        if is_long {
            self.scratches.keep(buf.buf)
        } else {
            scratch::keep(&SCRATCH, buf.buf)
        }
        result
    }
}
