//! Writes runs: messages in, extents and a [`RunMeta`] out.
//!
//! Messages collect in an entry block; a full block is encoded, compressed and put into the output
//! chunk ([`super::output`]); filter, range-deletes and index follow at the end. Addresses are known only when a
//! chunk is written, therefore index entries wait for that.
//!
//! A block is cut before the message that would make it larger than asked for, where the codec changes, and at tree
//! boundaries unless it is still small: trees differ in the shape of their keys. One message may make a block as large as an extent.

use super::heirs::{Born, Heirs};
use super::layout;
use super::output::Output;
use super::scratch::{Scratch, Waiting, chunk_bytes};
use super::{RunOptions, Store};
use crate::base::checksum::key_hash;
use crate::base::compress::Codec;
use crate::base::space::PAGE_BYTES;
use crate::base::{BlockPtr, Error, Result, RunId, TxnId, key};
use crate::format::block::{self, BLOCK_BYTES_MAX, BlockKind, Held, IndexBuilder, RangeBlock, ranges, sort_ranges};
use crate::format::{Message, RangeDelete, RunMeta, Stamp, filter};
use crate::store::{EXTENT_PAGES_MAX, Urgency};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

/// An index block is cut at this size, in bytes of its raw form besides its first separator.
const INDEX_BYTES: usize = 16 << 10;
/// It is also cut at so many bytes of separators: in memory those are whole.
const INDEX_SEPARATOR_BYTES: usize = 256 << 10;
/// An index entry takes at most this much besides its separator.
const INDEX_ENTRY_BYTES: usize = 64;
/// Space for index blocks behind the chunk is taken in pieces of this size, in bytes, if there is any.
const INDEX_PIECE_BYTES: usize = 1 << 20;
/// A chunk is written when the separators of the blocks in it take so much. (Blocks of long keys may be stored in few bytes.)
const SEPARATOR_BYTES_MAX: usize = 1 << 20;
/// At a tree boundary a block is cut when it has at least this part of its target size.
const TREE_CUT_PART: usize = 8;

/// A filter takes at most so many bytes: as many as an extent has room for, with the head of the block. Runs of more keys have fewer bits
/// for each.
const FILTER_BYTES_MAX: usize = EXTENT_PAGES_MAX as usize * PAGE_BYTES as usize - block::HEADER_BYTES;
/// Range-deletes that take more than this, in bytes, are parted, so that a block of them fits an extent even where nothing compresses.
const RANGES_BYTES_MAX: usize = if cfg!(test) { 16 << 10 } else { 16 << 20 };

/// Space for the chunk.
struct Reserved {
    base: u64,
    bytes: usize,
}

/// An index block that is complete.
#[derive(Debug)]
struct Partition {
    raw: Vec<u8>,
    separator: Vec<u8>,
    continues: bool,
    held: Held,
}

/// Writes one run. Dropped unfinished, it gives its extents back.
#[derive(Debug)]
pub struct RunWriter {
    options: RunOptions,
    block_bytes: usize,
    output: Output,
    scratch: Box<Scratch>,
    meta: RunMeta,
    /// Tree and codec of the block being built.
    prefix: [u8; key::PREFIX_BYTES],
    codec: Codec,
    /// Separator of the block being built, and whether it continues.
    separator: Vec<u8>,
    continues: bool,
    partitions: Vec<Partition>,
    ranges: Vec<RangeDelete>,
    unresolved: HashSet<TxnId>,
    last_txn: TxnId,
    /// The next messages come from blocks in use; how many of the block being built do.
    is_in_use: bool,
    in_use: u64,
    /// Bytes of the large values of the block being built.
    blob_bytes: u64,
    heirs: Heirs,
    has_heirs: bool,
    /// Messages of a key that has a newer one here.
    old_versions: u64,
    /// Its messages reach a run for the first time.
    is_first: bool,
}

impl RunWriter {
    /// Nothing is allocated or written yet. `expected_bytes`: a guess at the stored size, so that the run
    /// lies in one piece (0: none); small runs are written by one call in the end.
    pub fn new(store: &Arc<Store>, id: RunId, options: &RunOptions, expected_bytes: u64) -> RunWriter {
        let mut scratch = options.codecs.take_scratch();
        scratch.builder.reset(options.has_seq);
        scratch.index.reset();
        scratch.hashes.clear();
        scratch.waiting.clear();
        scratch.separators.clear();
        scratch.shares.clear();
        let (chunk, blocks) = (std::mem::take(&mut scratch.chunk), std::mem::take(&mut scratch.blocks));
        let chunk_bytes = chunk_bytes(store, options.cache.budget());
        scratch.recount(options.cache.budget(), options.block_bytes, chunk_bytes);
        RunWriter {
            options: options.clone(),
            block_bytes: options.block_bytes.clamp(1 << 10, BLOCK_BYTES_MAX),
            output: Output::new(store, Urgency::Compaction, expected_bytes, chunk_bytes, chunk, blocks),
            scratch,
            meta: RunMeta { id, min_seq: u64::MAX, has_seq: options.has_seq, ..RunMeta::default() },
            prefix: [0; key::PREFIX_BYTES],
            codec: Codec::None,
            separator: Vec::new(),
            continues: false,
            partitions: Vec::new(),
            ranges: Vec::new(),
            unresolved: HashSet::new(),
            last_txn: TxnId(0),
            is_in_use: false,
            in_use: 0,
            blob_bytes: 0,
            heirs: Heirs::default(),
            has_heirs: false,
            old_versions: 0,
            is_first: false,
        }
    }

    /// Its messages reach a run for the first time: they are counted as their user's ([`super::traffic`]).
    #[must_use]
    pub fn with_first(mut self, is_first: bool) -> RunWriter {
        self.is_first = is_first;
        self
    }

    /// Who asks for space when it is short. At first [`Urgency::Compaction`].
    #[must_use]
    pub fn with_urgency(mut self, urgency: Urgency) -> RunWriter {
        self.output.set_urgency(urgency);
        self
    }

    /// Nothing that its messages are made of is older than `min_seq`. They themselves may say that they are newer: what was read from a run
    /// without sequence numbers has that run's highest.
    #[must_use]
    pub fn with_min_seq(mut self, min_seq: u64) -> RunWriter {
        self.meta.min_seq = min_seq;
        self
    }

    /// Whether the messages that follow come from what readers use: a block that has many of them is an heir.
    #[inline]
    pub fn set_in_use(&mut self, is_in_use: bool) {
        self.is_in_use = is_in_use;
    }

    /// Adds a message: its key above the last one's, or the same key and an older message.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; `Internal` when out of order.
    #[inline]
    pub fn add(&mut self, message: &Message<'_>) -> Result<()> {
        let order = match self.scratch.builder.is_empty() {
            true => message.key.cmp(&self.meta.last_key),
            false => message.key.cmp(self.scratch.builder.last_key()),
        };
        let first = self.meta.messages == 0;
        let new_key = order.is_gt() || first;
        if order == Ordering::Less && !first {
            return Err(Error::internal(format!("message out of order in a run, run={}", self.meta.id)));
        }
        if first || message.key.first_chunk() != Some(&self.prefix) {
            self.start_tree(message, new_key)?;
        }
        let builder = &mut self.scratch.builder;
        if !builder.is_empty() && builder.size_with(message) > self.block_bytes {
            self.cut(message.key, new_key)?;
        }
        if new_key && self.options.filter_bits_per_key > 0 {
            self.scratch.hashes.push(key_hash(message.key));
        }
        self.scratch.builder.push(message, new_key || self.scratch.builder.is_empty());
        self.note(message.stamp, message.seq);
        if self.is_first {
            // Of a large value only the key: the value was counted when it was written.
            let payload = if message.blob { 0 } else { message.payload.len() };
            let bytes = message.key.len().saturating_sub(key::PREFIX_BYTES) + payload;
            self.scratch.shares.given(key::tree_of(&self.prefix), bytes as u64);
        }
        self.in_use += u64::from(self.is_in_use);
        self.old_versions += u64::from(!new_key);
        self.meta.messages += 1;
        self.meta.kinds[message.kind as usize] += 1;
        let blob_bytes = message.blob_bytes();
        self.meta.blobs += u64::from(message.blob);
        self.meta.blob_bytes += blob_bytes;
        self.blob_bytes += blob_bytes;
        Ok(())
    }

    /// Another tree begins with `message`.
    #[cold]
    fn start_tree(&mut self, message: &Message<'_>, new_key: bool) -> Result<()> {
        let codec = self.options.codecs.get(key::tree_of(message.key));
        let builder = &self.scratch.builder;
        if self.meta.messages == 0 {
            self.meta.first_key = message.key.to_vec();
            self.separator = message.key[..message.key.len().min(key::PREFIX_BYTES)].to_vec();
        } else if !builder.is_empty() && (codec != self.codec || builder.size() >= self.block_bytes / TREE_CUT_PART) {
            self.cut(message.key, new_key)?;
        }
        if !self.scratch.builder.is_empty() {
            let size = self.scratch.builder.size() as u64;
            self.scratch.shares.tree_ends(key::tree_of(&self.prefix), size);
        }
        self.codec = codec;
        if let Some(prefix) = message.key.first_chunk() {
            self.prefix = *prefix;
        }
        Ok(())
    }

    #[inline]
    fn note(&mut self, stamp: Stamp, seq: u64) {
        self.meta.min_seq = self.meta.min_seq.min(seq);
        self.meta.max_seq = self.meta.max_seq.max(seq);
        match stamp {
            Stamp::Settled => {}
            Stamp::Committed(number) => self.meta.newest_commit = self.meta.newest_commit.max(number),
            Stamp::Written { txn, .. } => {
                if txn != self.last_txn || self.unresolved.is_empty() {
                    self.last_txn = txn;
                    self.unresolved.insert(txn);
                }
            }
        }
    }

    /// Adds a range-delete, in any order, at any time.
    ///
    /// # Errors
    /// `Internal` when the run stores no sequence numbers or the range is empty.
    pub fn add_range(&mut self, range: RangeDelete) -> Result<()> {
        if !self.options.has_seq || range.start >= range.end {
            return Err(Error::internal(format!("range-delete that the run cannot hold, run={}", self.meta.id)));
        }
        self.note(range.stamp, range.seq);
        self.meta.range_deletes += 1;
        self.ranges.push(range);
        Ok(())
    }

    /// Ends the block being built, before a message with `next_key`.
    fn cut(&mut self, next_key: &[u8], new_key: bool) -> Result<()> {
        let last_key = self.scratch.builder.last_key();
        let separator = if new_key { key::separator(last_key, next_key) } else { next_key.to_vec() };
        self.meta.last_key.clear();
        self.meta.last_key.extend_from_slice(last_key);
        self.end_block()?;
        self.separator = separator;
        self.continues = !new_key;
        Ok(())
    }

    fn end_block(&mut self) -> Result<()> {
        let scratch = &mut *self.scratch;
        let tree = key::tree_of(scratch.builder.first_key());
        let layouts = self.options.codecs.layouts();
        let layout = layout::choose(layouts, tree, self.codec, &mut scratch.builder, &mut scratch.compressor)?;
        let messages = scratch.builder.count() as u64;
        let size = scratch.builder.size() as u64;
        self.meta.raw_bytes += size;
        scratch.raw.clear();
        scratch.builder.finish(layout, &mut scratch.raw);
        scratch.separators.extend_from_slice(&self.separator);
        let is_heir = 2 * std::mem::take(&mut self.in_use) >= messages;
        self.has_heirs |= is_heir;
        let waiting = Waiting {
            kind: BlockKind::Entries,
            at: 0,
            stored: 0,
            raw_bytes: scratch.raw.len(),
            is_heir,
            separator_end: self.separator.len(),
            messages,
            blob_bytes: std::mem::take(&mut self.blob_bytes),
            continues: self.continues,
        };
        let before = self.meta.bytes;
        self.put(waiting, self.codec)?;
        self.scratch.shares.block_ends(key::tree_of(&self.prefix), size, self.meta.bytes - before);
        Ok(())
    }

    /// Seals what is in `raw` and puts it into the chunk.
    fn put(&mut self, mut waiting: Waiting, codec: Codec) -> Result<()> {
        let scratch = &mut *self.scratch;
        scratch.sealed.clear();
        let stored =
            block::seal_unplaced(waiting.kind, codec, &scratch.raw, &mut scratch.compressor, &mut scratch.sealed)?;
        if !self.output.fits(stored) || self.scratch.separators.len() > SEPARATOR_BYTES_MAX {
            // The separator of the waiting block stays for its own chunk.
            let own = self.scratch.separators.len() - waiting.separator_end;
            let separator = self.scratch.separators.split_off(own);
            self.write_waiting()?;
            self.scratch.separators = separator;
        }
        waiting.at = self.output.push(&self.scratch.sealed);
        waiting.stored = stored as u32;
        waiting.separator_end = self.scratch.separators.len();
        self.meta.bytes += stored as u64;
        self.scratch.waiting.push(waiting);
        Ok(())
    }

    /// Writes the chunk, to several places if there is no other way.
    fn write_waiting(&mut self) -> Result<()> {
        while self.output.filled() > 0 {
            let (base, count) = match self.output.reserve_blocks() {
                Err(error) if error.lacks_room() && self.leave_filter_out() => continue,
                found => found?,
            };
            self.place_waiting(base, count);
            let (heirs, cache) = (&mut self.heirs, &self.options.cache);
            self.output.write_blocks(count, |base, chunk| heirs.keep(base, chunk, cache))?;
        }
        Ok(())
    }

    /// Goes without the filter when that is the block for which there is no place: rows are found without it, if more slowly, and level 0 must be
    /// emptied. Whoever can wait does.
    fn leave_filter_out(&mut self) -> bool {
        let waiting = &mut self.scratch.waiting;
        if !self.output.is_sealing() || waiting.first().is_none_or(|first| first.kind != BlockKind::Filter) {
            return false;
        }
        let filter = waiting.remove(0);
        let bytes = self.output.leave_first_out();
        waiting.iter_mut().for_each(|other| other.at -= bytes);
        self.meta.bytes -= u64::from(filter.stored);
        true
    }

    /// The first `count` blocks of the chunk will be written at `base`: they have addresses now.
    fn place_waiting(&mut self, base: u64, count: usize) {
        let end = self.output.end_of(count);
        let scratch = &mut *self.scratch;
        let mut start = 0;
        for waiting in scratch.waiting.drain(..count) {
            let ptr = BlockPtr { offset: base + waiting.at as u64, stored: waiting.stored };
            if waiting.is_heir {
                self.heirs.expect(Born { kind: waiting.kind, ptr, raw_bytes: waiting.raw_bytes });
            }
            match waiting.kind {
                BlockKind::Filter => self.meta.filter = ptr,
                BlockKind::Ranges => self.meta.ranges = ptr,
                _ => {
                    let separator = &scratch.separators[start..waiting.separator_end];
                    let index = &scratch.index;
                    if index.size() >= INDEX_BYTES + index.first().0.len()
                        || index.separator_bytes() >= INDEX_SEPARATOR_BYTES
                    {
                        self.partitions.push(end_partition(&mut scratch.index));
                    }
                    let (messages, blob_bytes) = (waiting.messages, waiting.blob_bytes);
                    let held = Held { messages, bytes: u64::from(ptr.stored), blob_bytes };
                    scratch.index.add(0, separator, waiting.continues, ptr, held);
                }
            }
            start = waiting.separator_end;
        }
        scratch.separators.drain(..start);
        for waiting in &mut scratch.waiting {
            waiting.at -= end;
            waiting.separator_end -= start;
        }
    }

    fn write_chunk(&mut self) -> Result<()> {
        let (heirs, cache) = (&mut self.heirs, &self.options.cache);
        self.output.write(|base, chunk| heirs.keep(base, chunk, cache))
    }

    /// Bytes stored so far, estimating what is not compressed yet.
    #[inline]
    pub fn stored_bytes(&self) -> u64 {
        let building = self.scratch.builder.size() as u64;
        let filter = self.scratch.hashes.len() as u64 * u64::from(self.options.filter_bits_per_key) / 8;
        // A third, until the blocks before tell better.
        let part = building * (self.meta.bytes + (1 << 10)) / (self.meta.raw_bytes + (3 << 10));
        self.meta.bytes + filter + part
    }

    /// Bytes of the messages so far, as they lie in memory.
    pub fn raw_bytes(&self) -> u64 {
        self.meta.raw_bytes + self.scratch.builder.size() as u64
    }

    /// Messages so far of keys that have a newer one here.
    pub fn old_versions(&self) -> u64 {
        self.old_versions
    }

    /// Messages so far.
    pub fn messages(&self) -> u64 {
        self.meta.messages
    }

    /// Messages and range-deletes: none so far.
    pub fn is_empty(&self) -> bool {
        self.meta.messages == 0 && self.ranges.is_empty()
    }

    /// Writes what is left. The data is written, not synced. The heirs are for [`super::Run::adopt`].
    ///
    /// # Errors
    /// `NoSpace`, `Io`; the extents are given back.
    pub fn finish(mut self) -> Result<(RunMeta, Heirs)> {
        if !self.scratch.builder.is_empty() {
            self.meta.last_key.clear();
            self.meta.last_key.extend_from_slice(self.scratch.builder.last_key());
            self.end_block()?;
        }
        self.put_filter()?;
        self.put_ranges()?;
        if !self.is_empty() {
            self.write_rest()?;
        }
        let RunWriter { output, mut scratch, mut meta, unresolved, options, heirs, .. } = self;
        (meta.extents, scratch.chunk, scratch.blocks) = output.finish();
        scratch.shares.count(meta.bytes, options.codecs.traffic());
        scratch.shrink(options.block_bytes);
        scratch.recount(options.cache.budget(), options.block_bytes, scratch.chunk.capacity());
        options.codecs.put_scratch(scratch);
        meta.unresolved = unresolved.into_iter().collect();
        meta.unresolved.sort_unstable();
        meta.min_seq = meta.min_seq.min(meta.max_seq);
        meta.last_key.shrink_to_fit();
        Ok((meta, heirs))
    }

    fn put_filter(&mut self) -> Result<()> {
        if self.scratch.hashes.len() == 0 {
            return Ok(());
        }
        let bits = filter::bits_that_fit(self.scratch.hashes.len(), self.options.filter_bits_per_key, FILTER_BYTES_MAX);
        if bits == 0 {
            return Ok(());
        }
        self.scratch.raw.clear();
        filter::encode(self.scratch.hashes.iter(), bits, &mut self.scratch.raw);
        self.put_special(BlockKind::Filter, Codec::None)
    }

    fn put_ranges(&mut self) -> Result<()> {
        if self.ranges.is_empty() {
            return Ok(());
        }
        let mut all = std::mem::take(&mut self.ranges);
        sort_ranges(&mut all);
        let mut rest = &all[..];
        loop {
            let mut bytes = 0;
            let fits = |range: &&RangeDelete| {
                bytes += ranges::encoded_bytes_max(range);
                bytes <= RANGES_BYTES_MAX
            };
            let (part, behind) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            self.scratch.raw.clear();
            let before = Some(self.meta.ranges).filter(|ptr| !ptr.is_none());
            RangeBlock::encode(part, before, &mut self.scratch.raw);
            self.put_special(BlockKind::Ranges, Codec::Lz4)?;
            if behind.is_empty() {
                break;
            }
            // The next part says where this one lies.
            self.write_waiting()?;
            rest = behind;
        }
        self.ranges = all;
        Ok(())
    }

    fn put_special(&mut self, kind: BlockKind, codec: Codec) -> Result<()> {
        let waiting = Waiting {
            kind,
            at: 0,
            stored: 0,
            raw_bytes: self.scratch.raw.len(),
            is_heir: self.has_heirs && kind == BlockKind::Filter,
            separator_end: 0,
            messages: 0,
            blob_bytes: 0,
            continues: false,
        };
        self.put(waiting, codec)
    }

    /// Writes the last chunk with the index behind it: in one piece, or some blocks at a time if the index is large.
    fn write_rest(&mut self) -> Result<()> {
        let mut rest = self.index_bytes_max();
        let behind = if self.output.fits(rest) { rest } else { 0 };
        let bytes = self.output.filled() + behind;
        let mut space = match self.output.reserve(bytes) {
            Err(error) if error.lacks_room() && self.output.filled() > 0 => {
                self.write_waiting()?;
                Reserved { base: 0, bytes: 0 }
            }
            base => Reserved { base: base?, bytes },
        };
        self.place_waiting(space.base, self.scratch.waiting.len());
        if self.scratch.index.count() > 0 {
            let last = end_partition(&mut self.scratch.index);
            self.partitions.push(last);
        }
        let mut top = IndexBuilder::default();
        let partitions = std::mem::take(&mut self.partitions);
        for partition in &partitions {
            let ptr = self.put_index(&mut space, &mut rest, &partition.raw)?;
            top.add(1, &partition.separator, partition.continues, ptr, partition.held);
            self.meta.index = ptr;
        }
        if partitions.len() > 1 {
            let mut raw = Vec::new();
            top.finish(1, &mut raw);
            self.meta.index = self.put_index(&mut space, &mut rest, &raw)?;
        }
        self.write_chunk()
    }

    /// Upper bound of what the index will take.
    fn index_bytes_max(&self) -> usize {
        let scratch = &self.scratch;
        let entries = scratch.index.size() + scratch.separators.len() + scratch.waiting.len() * INDEX_ENTRY_BYTES;
        let parts = self.partitions.iter().map(|part| part.raw.len() + part.separator.len() + 2 * INDEX_ENTRY_BYTES);
        let longest = scratch.index.first().0.len() + scratch.separators.len();
        2 * entries + parts.sum::<usize>() + longest + (entries / INDEX_BYTES + 3) * (2 * INDEX_ENTRY_BYTES)
    }

    /// Puts an index block where it has its address at once: into `space` or, past the end of that, into new space. `rest`: what this
    /// block and those that follow take, about.
    fn put_index(&mut self, space: &mut Reserved, rest: &mut usize, raw: &[u8]) -> Result<BlockPtr> {
        let scratch = &mut *self.scratch;
        scratch.sealed.clear();
        let codec = Codec::Zstd { level: 1 };
        let stored = block::seal_unplaced(BlockKind::Index, codec, raw, &mut scratch.compressor, &mut scratch.sealed)?;
        if self.output.filled() + stored > space.bytes {
            self.write_chunk()?;
            let bytes = (*rest).min(INDEX_PIECE_BYTES).max(stored);
            *space = match self.output.reserve(bytes) {
                Err(error) if error.lacks_room() && bytes > stored => {
                    Reserved { base: self.output.reserve(stored)?, bytes: stored }
                }
                base => Reserved { base: base?, bytes },
            };
        }
        *rest = rest.saturating_sub(stored);
        let at = self.output.push(&self.scratch.sealed);
        self.meta.bytes += stored as u64;
        let ptr = BlockPtr { offset: space.base + at as u64, stored: stored as u32 };
        if self.has_heirs {
            self.heirs.expect(Born { kind: BlockKind::Index, ptr, raw_bytes: raw.len() });
        }
        Ok(ptr)
    }
}

fn end_partition(index: &mut IndexBuilder) -> Partition {
    let (separator, continues) = index.first();
    let mut partition = Partition { raw: Vec::new(), separator: separator.to_vec(), continues, held: index.held() };
    index.finish(0, &mut partition.raw);
    partition
}
