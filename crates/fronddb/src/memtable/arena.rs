//! Memory of a memtable: allocated piece by piece, given back all at once.
//!
//! A bump allocator that many threads use at the same time: a piece is one atomic add in the current chunk, a new
//! chunk is taken from [`ChunkPool`] under a mutex. They grow from [`CHUNK_BYTES_FIRST`] to [`CHUNK_BYTES_MAX`], so that a small database
//! stays small; those of an arena that has grown are of large pages, because a search touches memory all over, and with small pages most of its
//! time went into finding them.
//!
//! - A1: a piece is aligned to [`ALIGNMENT`], overlaps no other piece, and lives as long as the arena. Its bytes are whatever they
//!   were: an earlier memtable's may be among them.
//! - A2: memory of a chunk below `used` has been given out; what is at or above it has not.
//!
//! On failure: as with every Rust allocation, the process aborts when the system has no memory.
#![allow(unsafe_code, reason = "concurrent allocation of pieces out of one map has no safe form")]

use std::ptr::NonNull;

use super::chunk_pool::ChunkPool;
use crate::base::page_buf::{LARGE_PAGE_BYTES, PageBuf};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Alignment of all pieces.
pub(super) const ALIGNMENT: usize = 8;
/// Bytes of the first chunk.
const CHUNK_BYTES_FIRST: usize = 64 << 10;
/// Bytes of the chunks of an arena that has grown.
const CHUNK_BYTES_MAX: usize = LARGE_PAGE_BYTES;
/// A larger piece than this share of a chunk gets a chunk of its own, so that the rest of the current one is not lost.
const LARGE_SHARE: usize = 8;

struct Chunk {
    base: NonNull<u8>,
    bytes: usize,
    /// Owns the bytes.
    memory: PageBuf,
    used: AtomicUsize,
}

#[derive(Default)]
struct Held {
    /// Each from `Box::leak`; taken back when the arena is dropped.
    chunks: Vec<NonNull<Chunk>>,
    bytes: usize,
}

/// The arena.
pub(super) struct Arena {
    current: AtomicPtr<Chunk>,
    /// Bytes given out of chunks that are not the current one. Of a chunk they are added just before another follows it.
    used_before: AtomicUsize,
    held: Mutex<Held>,
    source: ChunkPool,
}

// Safety: the pointers are to maps that the arena owns; pieces are handed out once (A1), by atomic operations.
unsafe impl Send for Arena {}
// Safety: as above; all methods take `&self` and synchronise by `used` and the mutex.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new(source: &ChunkPool) -> Arena {
        let arena = Arena {
            current: AtomicPtr::new(std::ptr::null_mut()),
            used_before: AtomicUsize::new(0),
            held: Mutex::new(Held::default()),
            source: source.clone(),
        };
        arena.install(&mut arena.held.lock(), CHUNK_BYTES_FIRST);
        arena
    }

    /// A piece of `bytes` (A1).
    #[inline]
    pub(super) fn allocate(&self, bytes: usize) -> NonNull<u8> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let current = self.current.load(Ordering::Acquire);
        // Safety: `current` points to a chunk in `held`, none of which is freed before the arena is dropped.
        let chunk = unsafe { &*current };
        if bytes <= chunk.bytes / LARGE_SHARE {
            let start = chunk.used.fetch_add(bytes, Ordering::Relaxed);
            if start <= chunk.bytes - bytes {
                // Safety: `start + bytes` is inside the chunk; the add gave this range to this call alone.
                return unsafe { chunk.base.add(start) };
            }
        }
        self.allocate_slowly(bytes)
    }

    #[cold]
    fn allocate_slowly(&self, bytes: usize) -> NonNull<u8> {
        let mut held = self.held.lock();
        loop {
            // Safety: as in `allocate`.
            let chunk = unsafe { &*self.current.load(Ordering::Acquire) };
            if bytes > chunk.bytes / LARGE_SHARE && chunk.bytes == CHUNK_BYTES_MAX {
                let own = self.take(&mut held, bytes.next_multiple_of(CHUNK_BYTES_FIRST), bytes);
                self.used_before.fetch_add(bytes, Ordering::Relaxed);
                // Safety: taken just now.
                return unsafe { own.as_ref().base };
            }
            if bytes <= chunk.bytes / LARGE_SHARE {
                let start = chunk.used.fetch_add(bytes, Ordering::Relaxed);
                if start <= chunk.bytes - bytes {
                    // Safety: as in `allocate`.
                    return unsafe { chunk.base.add(start) };
                }
            }
            self.used_before.fetch_add(chunk.used.load(Ordering::Relaxed).min(chunk.bytes), Ordering::Relaxed);
            self.install(&mut held, (chunk.bytes * 2).min(CHUNK_BYTES_MAX));
        }
    }

    /// Makes a new chunk the current one.
    fn install(&self, held: &mut Held, bytes: usize) {
        let chunk = self.take(held, bytes, 0);
        self.current.store(chunk.as_ptr(), Ordering::Release);
    }

    fn take(&self, held: &mut Held, bytes: usize, used: usize) -> NonNull<Chunk> {
        let mut memory = self.source.take(bytes);
        let chunk = Chunk { base: memory.raw(0, bytes), bytes, memory, used: AtomicUsize::new(used) };
        let chunk = Box::new(chunk);
        let chunk = NonNull::from(Box::leak(chunk));
        held.bytes += bytes;
        held.chunks.push(chunk);
        chunk
    }

    /// A number that is different for each piece of a thread: the address where the next one may lie.
    #[inline]
    pub(super) fn ticket(&self) -> usize {
        // Safety: as in `allocate`.
        let chunk = unsafe { &*self.current.load(Ordering::Acquire) };
        chunk.base.as_ptr() as usize + chunk.used.load(Ordering::Relaxed)
    }

    /// Bytes given out; a chunk too many for the moment in which another follows it.
    #[inline]
    pub(super) fn used_bytes(&self) -> usize {
        // Safety: as in `allocate`.
        let chunk = unsafe { &*self.current.load(Ordering::Acquire) };
        self.used_before.load(Ordering::Relaxed) + chunk.used.load(Ordering::Relaxed).min(chunk.bytes)
    }

    /// Bytes of its chunks.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.lock().bytes
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let held = std::mem::take(self.held.get_mut());
        // Safety: leaked by `take`, and nothing points to it or its bytes after the arena (A1).
        let chunks = held.chunks.iter().map(|chunk| unsafe { Box::from_raw(chunk.as_ptr()) });
        self.source.give_back(chunks.map(|chunk| chunk.memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::memory::{MemoryBudget, Purpose};

    #[test]
    fn pieces_are_aligned_and_apart_and_the_budget_gets_its_bytes_back() {
        let budget = MemoryBudget::new(1 << 30);
        let arena = Arena::new(&ChunkPool::new(&budget));
        let mut pieces = Vec::new();
        let sizes = if cfg!(miri) { 200 } else { 20_000 };
        for index in 0..sizes {
            let bytes = [8, 24, 100, 1000, if index % 50 == 3 { 40_000 } else { 1 }][index % 5];
            let piece = arena.allocate(bytes);
            assert_eq!(piece.as_ptr() as usize % ALIGNMENT, 0);
            // Safety: the piece has `bytes` bytes and is this test's alone.
            let slice = unsafe { std::slice::from_raw_parts_mut(piece.as_ptr(), bytes) };
            slice.fill(0xff);
            pieces.push((piece.as_ptr() as usize, bytes));
        }
        pieces.sort_unstable();
        assert!(pieces.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let given: usize = pieces.iter().map(|(_, bytes)| bytes.next_multiple_of(ALIGNMENT)).sum();
        assert!(arena.used_bytes() >= given && arena.used_bytes() <= arena.held_bytes());
        assert_eq!(budget.used(Purpose::Level0), arena.held_bytes());
        drop(arena);
        assert_eq!(budget.used(Purpose::Level0), 0);
    }
}
