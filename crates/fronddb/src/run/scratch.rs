//! The working memory of a writer, which the next one takes over.
//!
//! It counts in the memory budget. What a block or a run far larger than others has made large is let go.

use super::Store;
use super::hashes::Hashes;
use super::traffic::Shares;
use crate::base::compress::Compressor;
use crate::base::memory::{Charge, MemoryBudget, Purpose};
use crate::base::page_buf::PageBuf;
use crate::format::block::{BlockKind, EntryBlockBuilder, IndexBuilder};
use crate::store::RESERVE_PIECE_BYTES_MIN;

/// A chunk is such a part of the memory budget, within these bounds.
const CHUNK_PART: usize = 128;
const CHUNK_BYTES_MIN: usize = 128 << 10;
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Larger working memory of one sort than this, or than so many blocks, is not kept: one large row or filter would hold it for good.
const SCRATCH_BYTES_KEPT: usize = 256 << 10;
const SCRATCH_BLOCKS_KEPT: usize = 8;

/// Working memory of a writer, kept for the next one.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) chunk: PageBuf,
    pub(super) blocks: Vec<usize>,
    pub(super) builder: EntryBlockBuilder,
    pub(super) index: IndexBuilder,
    pub(super) compressor: Compressor,
    pub(super) raw: Vec<u8>,
    pub(super) sealed: Vec<u8>,
    pub(super) hashes: Hashes,
    pub(super) waiting: Vec<Waiting>,
    pub(super) separators: Vec<u8>,
    pub(super) shares: Shares,
    charge: Option<Charge>,
}

/// Working memory of a compressor, about.
const COMPRESSOR_BYTES: usize = 256 << 10;

/// Arrays of a block builder, in blocks.
const BUILDER_BLOCKS: usize = 8;

impl Scratch {
    /// Bytes that it takes without the chunk, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.builder.memory_bytes()
            + self.raw.capacity()
            + self.sealed.capacity()
            + self.hashes.memory_bytes()
            + self.waiting.capacity() * size_of::<Waiting>()
            + self.separators.capacity()
            + self.shares.memory_bytes()
            + COMPRESSOR_BYTES
    }

    /// Tells the budget what it takes, with a chunk of `chunk_bytes`, or will take at least.
    pub(super) fn recount(&mut self, budget: &MemoryBudget, block_bytes: usize, chunk_bytes: usize) {
        let to_come = (BUILDER_BLOCKS * block_bytes).saturating_sub(self.builder.memory_bytes());
        let bytes = chunk_bytes + self.memory_bytes() + to_come;
        self.charge.get_or_insert_with(|| Charge::new(budget, Purpose::Work, 0)).set(bytes);
    }

    /// Lets go what a block or run far larger than others has left behind.
    pub(super) fn shrink(&mut self, block_bytes: usize) {
        let kept_max = SCRATCH_BYTES_KEPT.max(SCRATCH_BLOCKS_KEPT * block_bytes);
        for buffer in [&mut self.raw, &mut self.sealed, &mut self.separators] {
            if buffer.capacity() > kept_max {
                *buffer = Vec::new();
            }
        }
        if self.builder.memory_bytes() > kept_max {
            self.builder = EntryBlockBuilder::default();
        }
        if self.hashes.memory_bytes() > SCRATCH_BYTES_KEPT {
            self.hashes = Hashes::default();
        }
        if self.shares.memory_bytes() > SCRATCH_BYTES_KEPT {
            self.shares = Shares::default();
        }
        if self.chunk.capacity() > CHUNK_BYTES_MAX {
            self.chunk = PageBuf::default();
        }
    }
}

/// Bytes that a writer collects before it writes them, in one piece: less where memory is scarce, or space.
pub(super) fn chunk_bytes(store: &Store, budget: &MemoryBudget) -> usize {
    if store.is_short() {
        return RESERVE_PIECE_BYTES_MIN as usize;
    }
    (budget.limit() / CHUNK_PART).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
}

/// A block in the chunk, which waits for its address.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) kind: BlockKind,
    pub(super) at: usize,
    pub(super) stored: u32,
    pub(super) raw_bytes: usize,
    pub(super) is_heir: bool,
    /// Entry blocks: end of the separator in `separators`, number of messages, bytes of their large values, first key is the last one before.
    pub(super) separator_end: usize,
    pub(super) messages: u64,
    pub(super) blob_bytes: u64,
    pub(super) continues: bool,
}
