//! Reading blocks of a run, and naming damage: file, offset, run and tree.

use super::Run;
use super::counters::Event;
use crate::base::{BlockPtr, Error, Result, TreeId, scratch};
use crate::format::block::{BlockKind, EntryBlock, IndexBlock, Opened, RangeBlock, RangeList, open_with};
use crate::format::filter::Filter;
use crate::store::Store;
use std::cell::Cell;
use std::sync::Arc;

/// Decompressed blocks up to this size are kept as the thread's working memory.
const SCRATCH_BYTES_MAX: usize = 256 << 10;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The first and the last of some trees.
pub(super) type Trees = (TreeId, TreeId);

/// Adds to a damage error where it is.
pub(super) fn located(error: Error, store: &Store, ptr: BlockPtr, what: &str) -> Error {
    if !error.is_unreadable() {
        return error;
    }
    error.context(format_args!("{what}, file={} offset={} bytes={}", store.path().display(), ptr.offset, ptr.stored))
}

/// Opens a stored block and decodes its raw form.
pub(super) fn decode<T>(
    kind: BlockKind,
    ptr: BlockPtr,
    stored: &[u8],
    decode: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<T> {
    // Taken out while it is in use: `decode` may wait for a latch, and another read of this thread may come in between.
    let mut scratch = scratch::take(&SCRATCH);
    let result = open_with(kind, ptr.offset, stored, &mut scratch).and_then(|opened| match opened {
        Opened::AsStored(raw) => decode(raw),
        Opened::Decompressed => decode(&scratch),
    });
    if scratch.capacity() <= SCRATCH_BYTES_MAX {
        scratch::keep(&SCRATCH, scratch);
    }
    result
}

impl Run {
    /// Names run and tree as well.
    pub(super) fn located(&self, error: Error, ptr: BlockPtr, tree: TreeId, what: &str) -> Error {
        self.located_in(error, ptr, Some((tree, tree)), what)
    }

    /// Names run, and the first and the last tree that the block may hold something of, if that is known.
    pub(super) fn located_in(&self, error: Error, ptr: BlockPtr, trees: Option<Trees>, what: &str) -> Error {
        let trees = match trees {
            None => String::new(),
            Some((tree, last)) if tree == last => format!(" tree={tree}"),
            Some((first, last)) => format!(" tree={first} tree_last={last}"),
        };
        located(error, &self.store, ptr, &format!("{what}, run={}{trees}", self.meta.id))
    }

    /// Reads a block of messages from the file.
    pub(super) fn read_entries(&self, ptr: BlockPtr, tree: TreeId, cause: Event) -> Result<EntryBlock> {
        self.read_stored(ptr, Some((tree, tree)), cause, |stored| self.decode_entries(ptr, tree, stored))
    }

    /// Shows `visit`, whose errors name the block, a block as the file has it.
    pub(super) fn read_stored<T>(
        &self,
        ptr: BlockPtr,
        trees: Option<Trees>,
        cause: Event,
        visit: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        self.counters.add(cause, 1);
        self.counters.add(Event::ReadBytes, u64::from(ptr.stored));
        let visited = self.store.read_with(ptr.offset, ptr.stored as usize, |stored| Ok(visit(stored)));
        visited.map_err(|error| self.located_in(error, ptr, trees, "unreadable block"))?
    }

    /// Checks and decodes a stored block of messages.
    pub(super) fn decode_entries(&self, ptr: BlockPtr, tree: TreeId, stored: &[u8]) -> Result<EntryBlock> {
        let decoded = |raw: &[u8]| EntryBlock::decode_in(raw, self.meta.max_seq, self.cache.pool());
        decode(BlockKind::Entries, ptr, stored, decoded)
            .map_err(|error| self.located(error, ptr, tree, "damaged block"))
    }

    fn read_meta<T>(
        &self,
        kind: BlockKind,
        ptr: BlockPtr,
        cause: Event,
        decoded: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        // Range-deletes reach where the run has no messages.
        let trees = if kind == BlockKind::Ranges { None } else { self.trees() };
        self.read_stored(ptr, trees, cause, |stored| {
            let opened = decode(kind, ptr, stored, decoded);
            opened.map_err(|error| self.located_in(error, ptr, trees, "damaged block"))
        })
    }

    /// Reads an index block from the file.
    pub(super) fn read_index(&self, ptr: BlockPtr, cause: Event) -> Result<IndexBlock> {
        self.read_meta(BlockKind::Index, ptr, cause, IndexBlock::decode)
    }

    /// Reads the filter from the file. If that cannot be, the run has none until it can (a check reads it).
    pub(super) fn read_filter(&self, cause: Event) -> Result<Filter> {
        let decoded = |raw: &[u8]| Filter::decode_in(raw, self.cache.pool());
        let read = self.read_meta(BlockKind::Filter, self.meta.filter, cause, decoded);
        match &read {
            Ok(_) => self.regain_filter(),
            Err(error) if error.is_unreadable() => self.lose_filter(error),
            Err(_) => {}
        }
        read
    }

    /// Reads the range-deletes from the file: all parts, the last one first, of which `part` learns the places.
    pub(super) fn read_ranges(&self, cause: Event, mut part: impl FnMut(BlockPtr)) -> Result<RangeBlock> {
        let read = |ptr| self.read_meta(BlockKind::Ranges, ptr, cause, RangeBlock::decode);
        let mut parts = vec![self.meta.ranges];
        part(self.meta.ranges);
        let mut block = read(self.meta.ranges)?;
        let mut all = Vec::new();
        while let Some(before) = block.before {
            all.extend_from_slice(&block.list);
            if parts.contains(&before) {
                let error = Error::corruption("range-deletes that lead back to themselves");
                return Err(self.located_in(error, before, None, "damaged run"));
            }
            parts.push(before);
            part(before);
            block = read(before)?;
        }
        if !all.is_empty() {
            all.extend_from_slice(&block.list);
            block.list = Arc::new(RangeList::new(all));
        }
        Ok(block)
    }
}
