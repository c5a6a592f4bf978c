//! Blocks that take the places of cached ones.
//!
//! A compaction frees blocks that readers use and writes others with the same messages. The writer keeps the stored form of
//! such an *heir* until its run is complete, because messages are decoded with what only the whole run tells; then the cache
//! adopts it. The index of a run with heirs comes along, and its filter if it lies where filters are [asked](super::presence).
//!
//! All of it is best effort: what is not adopted is read when somebody wants it.

use super::load::decode;
use super::{Place, Run};
use crate::base::BlockPtr;
use crate::base::pool::Piece;
use crate::cache::{Cache, CachedBlock, Priority};
use crate::format::block::{BlockKind, IndexBlock};
use crate::format::filter::Filter;
use std::sync::Arc;

/// A block of a run that is being written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Born {
    pub(super) kind: BlockKind,
    pub(super) ptr: BlockPtr,
    pub(super) raw_bytes: usize,
}

/// The heirs of a run.
#[derive(Debug, Default)]
pub struct Heirs {
    /// In a chunk that is not written yet.
    waiting: Vec<Born>,
    written: Vec<(Born, Piece)>,
}

impl Heirs {
    pub(super) fn expect(&mut self, born: Born) {
        self.waiting.push(born);
    }

    /// The chunk with all that are expected was written at `base`.
    pub(super) fn keep(&mut self, base: u64, chunk: &[u8], cache: &Cache) {
        for born in self.waiting.drain(..) {
            let at = (born.ptr.offset - base) as usize;
            self.written.push((born, cache.pool().copy(&chunk[at..at + born.ptr.stored as usize])));
        }
        // They are the cache's already, as far as memory goes.
        cache.trim();
    }
}

impl Run {
    /// Hands the heirs that were kept when this run was written to the cache. It will lie at `place`.
    pub fn adopt(&self, heirs: Heirs, place: Place) {
        for (Born { kind, ptr, raw_bytes }, stored) in heirs.written {
            let block = match kind {
                BlockKind::Entries => {
                    let decode = |stored: &[u8]| self.decode_entries(ptr, self.tree(), stored);
                    self.cache.adopt(ptr.offset, stored, raw_bytes, decode);
                    continue;
                }
                BlockKind::Index => {
                    decode(kind, ptr, &stored, IndexBlock::decode).map(|index| CachedBlock::Index(Arc::new(index)))
                }
                BlockKind::Filter if self.has_in_all_likelihood(self.tree(), place) => continue,
                BlockKind::Filter => decode(kind, ptr, &stored, |raw| Filter::decode_in(raw, self.cache.pool()))
                    .map(|filter| CachedBlock::Filter(Arc::new(filter))),
                _ => continue,
            };
            if let Ok(block) = block {
                self.cache.insert(ptr.offset, block, Priority::High);
            }
        }
    }
}
