//! Sealed blocks become large aligned writes.
//!
//! Blocks are collected in a chunk of aligned memory. When it is full, or at the end, space for it is
//! taken, the blocks learn their addresses, and the chunk is written at once. Space comes from one
//! extent as long as that lasts: the first is as large as the writer expects the run to be, and what is
//! left of the last one is given back. Where the disk is full and free space is scattered, the blocks of a chunk go to several places.
//!
//! On failure, and when dropped before [`Output::finish`], all extents go back: no publication knows them.

use crate::base::page_buf::PageBuf;
use crate::base::space::PAGE_BYTES;
use crate::base::{Error, Extent, Result};
use crate::format::block;
use crate::store::{EXTENT_PAGES_MAX, Store, Urgency};
use std::sync::Arc;

/// The first size of a chunk.
const CHUNK_BYTES_FIRST: usize = 64 << 10;
/// Most pages taken ahead of need: 16 MiB.
const AHEAD_PAGES_MAX: u32 = 4096;

/// See the module.
#[derive(Debug)]
pub(super) struct Output {
    store: Arc<Store>,
    urgency: Urgency,
    /// Bytes collected before they are written.
    chunk_bytes: usize,
    chunk: PageBuf,
    filled: usize,
    /// Where each block in the chunk begins.
    blocks: Vec<usize>,
    extents: Vec<Extent>,
    /// What is left of the last extent.
    left: Option<Extent>,
    /// Pages that the writer still expects to need.
    expected: u64,
}

impl Output {
    /// Writes `chunk_bytes` at a time. `chunk` and `blocks` are working memory.
    pub(super) fn new(
        store: &Arc<Store>,
        urgency: Urgency,
        expected_bytes: u64,
        chunk_bytes: usize,
        chunk: PageBuf,
        mut blocks: Vec<usize>,
    ) -> Output {
        blocks.clear();
        Output {
            store: Arc::clone(store),
            urgency,
            chunk_bytes,
            chunk,
            filled: 0,
            blocks,
            extents: Vec::new(),
            left: None,
            expected: expected_bytes.div_ceil(PAGE_BYTES),
        }
    }

    /// See [`super::RunWriter::with_urgency`].
    pub(super) fn set_urgency(&mut self, urgency: Urgency) {
        self.urgency = urgency;
    }

    /// Whether level 0 is emptied.
    pub(super) fn is_sealing(&self) -> bool {
        self.urgency == Urgency::Seal
    }

    /// Bytes in the chunk.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// True when `bytes` more go into the chunk; an empty chunk takes anything.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        self.filled + bytes <= self.chunk_bytes || self.filled == 0
    }

    /// Adds a block without its address and returns its place in the chunk.
    pub(super) fn push(&mut self, sealed: &[u8]) -> usize {
        let at = self.filled;
        let end = at + sealed.len();
        if end > self.chunk.capacity() {
            // A larger block than a chunk, or the first of all: chunks grow by doubling up to their usual size.
            let bytes = end.max((2 * self.chunk.capacity()).max(CHUNK_BYTES_FIRST).min(self.chunk_bytes));
            let mut larger = PageBuf::zeroed(bytes);
            self.chunk.set_len(at);
            larger[..at].copy_from_slice(&self.chunk);
            self.chunk = larger;
        }
        self.chunk.set_len(end);
        self.chunk[at..end].copy_from_slice(sealed);
        self.filled = end;
        self.blocks.push(at);
        at
    }

    /// Finds contiguous space for `bytes` bytes from the chunk's start on and returns its address.
    pub(super) fn reserve(&mut self, bytes: usize) -> Result<u64> {
        let needed = bytes as u64;
        if needed > u64::from(EXTENT_PAGES_MAX) * PAGE_BYTES {
            return Err(Error::invalid(format!("block larger than an extent, bytes={bytes}")));
        }
        let pages = needed.div_ceil(PAGE_BYTES).max(1) as u32;
        if let Some(left) = self.left.filter(|left| left.pages >= pages) {
            return Ok(left.offset());
        }
        self.give_back_rest();
        let ahead = self.expected.clamp(u64::from(pages), u64::from(AHEAD_PAGES_MAX.max(pages))) as u32;
        let extent = match self.store.allocate(ahead, self.urgency) {
            Err(error) if error.lacks_room() && ahead > pages => {
                self.expected = 0;
                self.store.allocate(pages, self.urgency)?
            }
            result => result?,
        };
        self.left = Some(extent);
        self.extents.push(extent);
        Ok(extent.offset())
    }

    /// Finds contiguous space for the blocks in the chunk or, where there is none for all, for the first of them; returns its address,
    /// and how many they are.
    pub(super) fn reserve_blocks(&mut self) -> Result<(u64, usize)> {
        let mut count = self.blocks.len();
        loop {
            match self.reserve(self.end_of(count)) {
                Err(error) if error.lacks_room() && count > 1 => count /= 2,
                base => return base.map(|base| (base, count)),
            }
        }
    }

    /// Where the first `count` blocks of the chunk end in it.
    pub(super) fn end_of(&self, count: usize) -> usize {
        self.blocks.get(count).copied().unwrap_or(self.filled)
    }

    /// Writes the chunk to the space that [`Output::reserve`] found for it, shows `visit` where and what was written, and
    /// empties it.
    pub(super) fn write(&mut self, visit: impl FnOnce(u64, &[u8])) -> Result<()> {
        self.write_blocks(self.blocks.len(), visit)
    }

    /// The same for its first `count` blocks; the others stay.
    pub(super) fn write_blocks(&mut self, count: usize, visit: impl FnOnce(u64, &[u8])) -> Result<()> {
        if self.filled == 0 {
            return Ok(());
        }
        let Some(left) = self.left else {
            return Err(Error::internal("run output without space"));
        };
        let end = self.end_of(count);
        let ends = self.blocks[..count].iter().skip(1).copied().chain([end]);
        for (at, end) in self.blocks.iter().zip(ends) {
            block::place(left.offset() + *at as u64, &mut self.chunk[*at..end]);
        }
        let mut rest = PageBuf::default();
        if end < self.filled {
            rest = PageBuf::zeroed(self.filled - end);
            rest.copy_from_slice(&self.chunk[end..self.filled]);
        }
        self.chunk.set_len(end);
        self.chunk.clear_padding();
        self.store.write(left, 0, &self.chunk)?;
        visit(left.offset(), &self.chunk[..end]);
        let pages = (end as u64).div_ceil(PAGE_BYTES) as u32;
        self.expected = self.expected.saturating_sub(u64::from(pages));
        self.left =
            (left.pages > pages).then(|| Extent { start: left.start + u64::from(pages), pages: left.pages - pages });
        self.filled -= end;
        self.blocks.drain(..count);
        self.blocks.iter_mut().for_each(|at| *at -= end);
        if self.filled > 0 || self.chunk.capacity() > self.chunk_bytes {
            self.chunk = rest;
        }
        Ok(())
    }

    /// Takes the first block out of the chunk, and returns how many bytes that were.
    pub(super) fn leave_first_out(&mut self) -> usize {
        let end = self.end_of(1);
        self.chunk.copy_within(end..self.filled, 0);
        self.filled -= end;
        self.chunk.set_len(self.filled);
        self.blocks.drain(..self.blocks.len().min(1));
        self.blocks.iter_mut().for_each(|at| *at -= end);
        end
    }

    /// Gives back what was not needed of the last extent.
    fn give_back_rest(&mut self) {
        let Some(left) = self.left.take() else { return };
        self.store.free_unpublished(left);
        if let Some(last) = self.extents.last_mut() {
            last.pages -= left.pages;
            if last.pages == 0 {
                self.extents.pop();
            }
        }
    }

    /// The extents with neighbours joined, and the working memory.
    pub(super) fn finish(mut self) -> (Vec<Extent>, PageBuf, Vec<usize>) {
        self.give_back_rest();
        let mut joined: Vec<Extent> = Vec::with_capacity(self.extents.len());
        for extent in self.extents.drain(..) {
            match joined.last_mut() {
                Some(last) if last.end() == extent.start && same_region(last.start, extent.end() - 1) => {
                    last.pages += extent.pages;
                }
                _ => joined.push(extent),
            }
        }
        joined.shrink_to_fit();
        (joined, std::mem::take(&mut self.chunk), std::mem::take(&mut self.blocks))
    }
}

/// An extent does not cross regions, so joined ones must not either.
fn same_region(first: u64, last: u64) -> bool {
    first / u64::from(EXTENT_PAGES_MAX) == last / u64::from(EXTENT_PAGES_MAX)
}

impl Drop for Output {
    /// Gives back every extent, unless it was finished.
    fn drop(&mut self) {
        for extent in self.extents.drain(..) {
            self.store.free_unpublished(extent);
        }
    }
}
