//! The cache: decoded blocks by their offset in the data file.
//!
//! It is never dirty: every block in it can be read again, so eviction never writes. Blocks
//! are distributed over shards by the mebibyte that they lie in, so that freeing an extent visits few of them; each shard is a
//! table under a latch.
//!
//! # What goes
//!
//! Most blocks of a table larger than memory are read once and not again for long; so a block of messages that comes in is on
//! *probation*: in a line, whose oldest block goes when something has to and the line is [a tenth](PROBATION_PART) of the cache.
//! If it was used meanwhile, it leaves the line and stays; if not, its place is remembered for a while (a *ghost*), and when it
//! comes back it skips the line. This is S3-FIFO (Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023).
//! It differs in what follows: for blocks that left the line, one clock hand (CLOCK, Corbató 1968) goes through all shards in
//! turn, so that a shard full of blocks in use does not pay for what goes in there. A hit raises a block's count to its
//! priority; the hand lowers counts and evicts at zero. Indexes and filters, and blocks that take over from others in
//! use, skip the line; what scans bring in leaves no ghost. Pieces of large values count by their bytes in this, and leave no ghost either: they
//! stay if they are used while they are in the line.
//!
//! # Packed blocks
//!
//! While there is room, blocks are kept decoded. Where the cache is full and reads are slow, a block of messages that is read
//! goes in *packed*: as it is stored, compressed, so that two or three blocks fit where one did; each use decodes it. Of data that
//! is larger than the cache even as it is stored ([`Cache::set_data_bytes`]) that is done from the first block on: what came in
//! decoded before would take the room of others long after. Slow is a
//! read of [`SLOW_READ`](pressure::SLOW_READ) times what decoding takes: on a device that answers as fast as a block is decoded, packing costs more
//! than it saves. Both are measured without the time that the thread waited for a processor ([`Stopwatch`]): where many threads
//! share few, that is most of either. The few that were used last of each shard keep their decoded form
//! beside, so that a statement that comes back to a row does not pay twice. Its decoded form takes the room of one or two more
//! packed ones, each of which saves about one read between two visits of the hand. So a packed block is kept decoded from when it
//! is decoded [as often](Cache::hot_decodes) between two visits as a read takes the time of decoding, or while there is room again.
//!
//! # Heirs
//!
//! When the tree rewrites messages, the blocks that readers use are freed, and new ones hold their messages. Who writes these
//! learns which of the old ones were in use ([`Cache::peek`]), and puts the new ones in as soon as they are written
//! ([`Cache::adopt`]): so readers do not pay for what is moved below them.
//!
//! # Uses that are not counted
//!
//! While there is room for all that may be asked for, nobody needs to know what is in use. Runs then come by blocks that they have asked for here
//! before ([`Cache::room`]): asking costs a read in memory more than the search in a block. When that while is over, the hand starts with
//! what was counted until then, and blocks are asked for here again, once at least in each while, so that one that stays in use stays.
//!
//! The bytes of blocks lie in the cache's [`Pool`], which tells the budget (`Purpose::Cache`) of the pages that it
//! holds; the cache adds what the blocks and the table take besides. What all of it may be is whatever the budget leaves
//! at the moment. The hand keeps what is in use a little below that, so that holes of evicted blocks can wait
//! for new ones; holes are given back to the system when they are more than that.
//!
//! Invariants:
//! - C1: a block is found under its offset only as long as its extent is not freed: whoever frees an
//!   extent calls [`Cache::remove_range`] first, when no reader can load from it any more.
//! - C2: while one thread loads a block, others that want it wait for that load.
//!
//! Latch: one per shard, never two at a time; no I/O under it.

mod offsets;
mod pressure;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

use crate::base::memory::{MemoryBudget, Purpose};
use crate::base::pool::{Piece, Pool};
use crate::base::processors::Stopwatch;
use crate::base::space::Extent;
use crate::base::{Error, Result};
use crate::format::block::{EntryBlock, IndexBlock, RangeBlock};
use crate::format::filter::Filter;
use shard::{Form, Looked, Recent, Shard};

/// A cached block.
#[derive(Debug, Clone)]
pub enum CachedBlock {
    /// Messages.
    Entries(Arc<EntryBlock>),
    /// Index.
    Index(Arc<IndexBlock>),
    /// Filter.
    Filter(Arc<Filter>),
    /// Range-deletes.
    Ranges(Arc<RangeBlock>),
    /// A piece of a large value.
    Chunk(Arc<Piece>),
}

impl CachedBlock {
    /// Its place in the counters of [`CacheStatistics`].
    fn cause(&self) -> usize {
        match self {
            CachedBlock::Entries(_) => 0,
            CachedBlock::Index(_) => 1,
            CachedBlock::Filter(_) => 2,
            CachedBlock::Ranges(_) => 3,
            CachedBlock::Chunk(_) => 4,
        }
    }

    /// The messages, where the block at `offset` has to be one of messages.
    ///
    /// # Errors
    /// `Internal` when it is of another kind.
    #[inline]
    pub fn messages(self, offset: u64) -> Result<Arc<EntryBlock>> {
        match self {
            CachedBlock::Entries(block) => Ok(block),
            other => Err(Error::internal(format!(
                "cache holds another kind of block, kind={} offset={offset}",
                other.cause()
            ))),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            CachedBlock::Entries(block) => block.memory_bytes(),
            CachedBlock::Index(block) => block.memory_bytes(),
            CachedBlock::Filter(block) => block.memory_bytes(),
            CachedBlock::Ranges(block) => block.memory_bytes(),
            CachedBlock::Chunk(piece) => size_of::<Piece>() + piece.uncounted_bytes(),
        }
    }
}

/// How long an unused block stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Scans and compactions: first to go.
    Low = 0,
    /// Entry blocks of point reads.
    Normal = 1,
    /// Indexes and filters.
    High = 2,
}

/// Kinds of blocks.
const CAUSES: usize = 5;

/// What the cache did since it was made, and what it holds.
#[derive(Debug, Clone, Copy, Default)]
pub struct CacheStatistics {
    /// Lookups that found their block: entries, indexes, filters, ranges, pieces of large values.
    pub hits: [u64; CAUSES],
    /// Lookups that did not.
    pub misses: [u64; CAUSES],
    /// Blocks inserted.
    pub insertions: u64,
    /// Blocks evicted for room.
    pub evictions: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Blocks held.
    pub blocks: u64,
    /// Hits that decoded a packed block.
    pub decodes: u64,
}

const SHARDS: usize = 16;
/// Rounds of the hand after which a trim gives up: more than any block survives unused.
const ROUNDS_MAX: usize = 8;
/// The line of blocks on probation is one part in so many of the blocks.
const PROBATION_PART: usize = 10;
/// One part in so many of the allowance is left to holes. With less, blocks of different sizes find no hole, and most that
/// come in cost page faults: decision 12.
const HOLES_PART: usize = 16;

/// The cache. Share it in an `Arc`.
#[derive(Debug)]
pub struct Cache {
    budget: MemoryBudget,
    shards: Box<[CachePadded<Shard>]>,
    pool: Pool,
    /// Bytes of what is cached, besides the pool's.
    bytes: AtomicUsize,
    /// The shard that the hand is in.
    hand: AtomicUsize,
    /// The next block's place in the line.
    tickets: AtomicU64,
    /// See [`Cache::is_full`].
    full: AtomicBool,
    /// Even while there is room for all, odd while there is not: [`Cache::room`].
    phase: AtomicU32,
    /// See [`Cache::set_data_bytes`].
    data_bytes: AtomicU64,
    misses: [AtomicU64; CAUSES],
    /// Reads of messages that were not here.
    reads: AtomicU64,
    /// What reading and decoding [`MEAN_OVER`](pressure::MEAN_OVER) blocks took lately, in nanoseconds.
    read_nanos: AtomicU64,
    decode_nanos: AtomicU64,
    #[cfg(test)]
    packs_always: AtomicBool,
    #[cfg(test)]
    full_always: AtomicBool,
    #[cfg(test)]
    learns_nothing: AtomicBool,
}

impl Cache {
    /// An empty cache that takes what `budget` leaves to it.
    pub fn new(budget: MemoryBudget) -> Cache {
        let shards = (0..SHARDS).map(|_| CachePadded::new(Shard::default())).collect();
        let pool = Pool::new(&budget);
        let (bytes, hand, tickets) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU64::new(0));
        Cache {
            budget,
            shards,
            pool,
            bytes,
            hand,
            tickets,
            full: AtomicBool::new(false),
            phase: AtomicU32::new(0),
            data_bytes: AtomicU64::new(0),
            misses: Default::default(),
            reads: AtomicU64::new(0),
            read_nanos: AtomicU64::new(0),
            decode_nanos: AtomicU64::new(0),
            #[cfg(test)]
            packs_always: AtomicBool::new(false),
            #[cfg(test)]
            full_always: AtomicBool::new(false),
            #[cfg(test)]
            learns_nothing: AtomicBool::new(false),
        }
    }

    /// The budget that it shares with all others.
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Where the bytes of blocks are to lie.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    fn shard(&self, offset: u64) -> &Shard {
        &self.shards[shard::mebibyte(offset) as usize % SHARDS]
    }

    /// The piece of a large value at `offset`, decoded, if it is here.
    pub fn chunk(&self, offset: u64) -> Option<Arc<Piece>> {
        match self.lookup(offset) {
            Some(CachedBlock::Chunk(piece)) => Some(piece),
            _ => None,
        }
    }

    /// Puts in what was read of a large value because [`Cache::chunk`] did not have it, on probation as any block.
    pub fn add_chunk(&self, offset: u64, raw: &[u8], priority: Priority) {
        let chunk = CachedBlock::Chunk(Arc::new(self.pool.copy(raw)));
        self.misses[chunk.cause()].fetch_add(1, Ordering::Relaxed);
        self.insert(offset, chunk, priority);
    }

    /// The block at `offset`, if it is here.
    #[inline]
    pub fn lookup(&self, offset: u64) -> Option<CachedBlock> {
        self.shard(offset).lookup(offset)
    }

    /// True when the block at `offset` is here. Does not count as a use.
    pub fn contains(&self, offset: u64) -> bool {
        self.shard(offset).contains(offset)
    }

    /// The block at `offset`, if it is here decoded. To look at it here is no use.
    pub fn glance(&self, offset: u64) -> Option<CachedBlock> {
        match self.shard(offset).peek(offset)? {
            (Form::Decoded(block), _) => Some(block),
            _ => None,
        }
    }

    /// The messages at `offset`, if they are here, and whether they are in use: true of all as long as nothing has to go. To look at
    /// them here is no use.
    ///
    /// # Errors
    /// Those of `decode`; `Internal` when a block of another kind is there.
    pub fn peek(
        &self,
        offset: u64,
        decode: impl FnOnce(&[u8]) -> Result<EntryBlock>,
    ) -> Result<Option<(Arc<EntryBlock>, bool)>> {
        let Some((form, stays)) = self.shard(offset).peek(offset) else { return Ok(None) };
        let block = match form {
            Form::Decoded(block) => block.messages(offset)?,
            Form::Recent(both) => both.block,
            Form::Packed(stored) => Arc::new(decode(&stored)?),
        };
        Ok(Some((block, stays || !self.is_full())))
    }

    /// Puts in messages that have just been written at `offset`, as a read would leave them. What cannot be decoded stays out:
    /// its reader is told why.
    pub fn adopt(
        &self,
        offset: u64,
        stored: Piece,
        raw_bytes: usize,
        decode: impl FnOnce(&[u8]) -> Result<EntryBlock>,
    ) {
        let form = if self.packs_of(stored.len(), raw_bytes) {
            Form::Packed(Arc::new(stored))
        } else {
            let Ok(block) = decode(&stored) else { return };
            Form::Decoded(CachedBlock::Entries(Arc::new(block)))
        };
        self.put_beside(offset, form, Priority::Normal, None);
    }

    /// Lookups of messages by readers so far.
    pub fn lookups(&self) -> u64 {
        let statistics = self.statistics();
        statistics.hits[0] + statistics.misses[0]
    }

    /// Shows `visit` up to `max` blocks of messages that are in use.
    pub fn for_each_hot(&self, max: usize, visit: &mut dyn FnMut(&EntryBlock)) {
        let (mut left, all) = (max, !self.is_full());
        for shard in &self.shards {
            let blocks = shard.hot(left, all);
            left -= blocks.len();
            blocks.iter().for_each(|block| visit(block));
        }
    }

    /// The block at `offset`; what `load` gives if it is not here. Two threads that miss load once. The block has the highest of the
    /// priorities with which it was asked for.
    ///
    /// # Errors
    /// Those of `load`.
    #[inline]
    pub fn get(
        &self,
        offset: u64,
        priority: Priority,
        load: impl FnOnce() -> Result<CachedBlock>,
    ) -> Result<CachedBlock> {
        match self.shard(offset).lookup_or_reserve(offset, priority) {
            Looked::Found(block) => Ok(block),
            Looked::Packed { .. } => Err(Error::internal(format!("cache holds messages, offset={offset}"))),
            Looked::Reserved => self.load(offset, priority, || Ok((load()?, None))),
        }
    }

    /// Loads a block and keeps it, packed if it comes with its stored form.
    #[cold]
    fn load(
        &self,
        offset: u64,
        priority: Priority,
        load: impl FnOnce() -> Result<(CachedBlock, Option<Piece>)>,
    ) -> Result<CachedBlock> {
        /// Lets the waiters go also when `load` panics.
        struct Reservation<'a>(&'a Shard, u64);
        impl Drop for Reservation<'_> {
            fn drop(&mut self) {
                self.0.end_reservation(self.1);
            }
        }
        let reservation = Reservation(self.shard(offset), offset);
        let (block, stored) = load()?;
        self.misses[block.cause()].fetch_add(1, Ordering::Relaxed);
        match (&block, stored) {
            (CachedBlock::Entries(entries), Some(stored)) => {
                let stored = Arc::new(stored);
                let form = match priority {
                    Priority::Low => Form::Packed(stored),
                    _ => Form::Recent(Box::new(Recent { stored, block: Arc::clone(entries) })),
                };
                self.put(offset, form, priority);
            }
            _ => self.put(offset, Form::Decoded(block.clone()), priority),
        }
        drop(reservation);
        Ok(block)
    }

    /// Puts a block in, or replaces it.
    pub fn insert(&self, offset: u64, block: CachedBlock, priority: Priority) {
        self.put(offset, Form::Decoded(block), priority);
    }

    fn put(&self, offset: u64, form: Form, priority: Priority) {
        let ticket = (priority < Priority::High).then(|| self.tickets.fetch_add(1, Ordering::Relaxed));
        self.put_beside(offset, form, priority, ticket);
    }

    /// As [`Cache::put`], past the line without a ticket.
    fn put_beside(&self, offset: u64, form: Form, priority: Priority, ticket: Option<u64>) {
        // Counted before others can see and evict it, so that the sum never falls below zero.
        let bytes = form.entry_bytes();
        self.account(bytes, 0);
        let freed = self.shard(offset).insert(offset, form, bytes, priority, ticket);
        self.account(0, freed);
        self.trim();
    }

    fn account(&self, added: usize, freed: usize) {
        self.bytes.fetch_add(added, Ordering::Relaxed);
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
        self.budget.add(Purpose::Cache, added);
        self.budget.sub(Purpose::Cache, freed);
    }

    /// Forgets every block in `extent`. To be called when the extent is freed, before it can be used again.
    pub fn remove_range(&self, extent: Extent) {
        let (start, end) = (extent.offset(), extent.offset() + extent.bytes());
        for mebibyte in shard::mebibyte(start)..=shard::mebibyte(end - 1) {
            let freed = self.shards[mebibyte as usize % SHARDS].remove_in(mebibyte, start, end);
            self.account(0, freed);
        }
    }

    /// Forgets the block at `offset`, which nobody is going to ask for soon.
    pub fn forget(&self, offset: u64) {
        let freed = self.shard(offset).forget(offset);
        self.account(0, freed);
    }

    /// Evicts down to the budget's allowance, and gives holes back to the system where they are too many.
    pub fn trim(&self) {
        self.trim_for(0);
        self.look_for_room();
    }

    /// As [`Cache::trim`], leaving `bytes` of the allowance free: for who is about to use them.
    pub fn trim_for(&self, bytes: usize) {
        // A block survives a few rounds of the hand at most, unless it is used meanwhile.
        let mut rounds_left = ROUNDS_MAX * SHARDS;
        loop {
            let allowance = self.budget.cache_allowance();
            let (held, allowance) = (self.bytes(), allowance - bytes.min(allowance / 2));
            if held <= allowance {
                return;
            }
            let share = allowance / HOLES_PART;
            let in_use = held.saturating_sub(self.pool.idle_bytes());
            // Somewhat more than need be, so that it is not done for every block.
            if in_use <= allowance - share && self.pool.purge(held - allowance + share / 2) > 0 {
                continue;
            }
            if rounds_left == 0 {
                return;
            }
            let freed = if let Some(shard) = self.oldest_of_long_line() {
                shard.judge()
            } else {
                let at = self.hand.load(Ordering::Relaxed);
                let swept = self.shards[at % SHARDS].sweep();
                if swept.at_end {
                    rounds_left -= 1;
                    // Of several threads that see the end of a shard, one moves the hand on.
                    let _ = self.hand.compare_exchange(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
                }
                swept.freed
            };
            self.account(0, freed);
            if freed > 0 && !self.full.load(Ordering::Relaxed) {
                self.full.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The shard with the block that is longest on probation, if the line is as long as it may be.
    fn oldest_of_long_line(&self) -> Option<&Shard> {
        let (mut blocks, mut on_probation, mut oldest) = (0, 0, (u64::MAX, None));
        for shard in &self.shards {
            let standing = shard.standing();
            blocks += standing.blocks;
            on_probation += standing.on_probation;
            if standing.oldest_ticket < oldest.0 {
                oldest = (standing.oldest_ticket, Some(&**shard));
            }
        }
        oldest.1.filter(|_| on_probation * PROBATION_PART >= blocks)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.pool.resident_bytes()
    }

    #[cfg(test)]
    fn packed_blocks(&self) -> usize {
        self.shards.iter().map(|shard| shard.packed_blocks()).sum()
    }

    /// Counters.
    pub fn statistics(&self) -> CacheStatistics {
        let mut statistics = CacheStatistics { bytes: self.bytes() as u64, ..CacheStatistics::default() };
        for shard in &self.shards {
            shard.add_to(&mut statistics);
        }
        for (sum, misses) in statistics.misses.iter_mut().zip(&self.misses) {
            *sum = misses.load(Ordering::Relaxed);
        }
        statistics
    }

    /// The block of messages at `offset`. If it is not here, `read` shows the stored block to what it is given, which decodes
    /// it with `decode`.
    ///
    /// # Errors
    /// Those of `read` and `decode`; `Internal` when a block of another kind is there.
    #[inline]
    pub fn entries(
        &self,
        offset: u64,
        priority: Priority,
        decode: impl Fn(&[u8]) -> Result<EntryBlock>,
        read: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<Arc<EntryBlock>>) -> Result<Arc<EntryBlock>>,
    ) -> Result<Arc<EntryBlock>> {
        let block = match self.shard(offset).lookup_or_reserve(offset, Priority::Low) {
            Looked::Found(block) => block,
            Looked::Packed { stored, decodes } => {
                return self.unpack(offset, &stored, decodes >= self.hot_decodes(), priority, decode);
            }
            Looked::Reserved => self.load(offset, priority, || {
                let mut kept = None;
                let mut watch = self.stopwatch();
                let block = read(&mut |stored| {
                    let read = watch.as_mut().map(Stopwatch::lap);
                    let block = Arc::new(decode(stored)?);
                    if let (Some(watch), Some(read)) = (&mut watch, read) {
                        self.learn(read, watch.lap());
                    }
                    kept = self.pack(stored, &block);
                    Ok(block)
                })?;
                Ok((CachedBlock::Entries(block), kept))
            })?,
        };
        block.messages(offset)
    }

    /// Decodes a packed block, and keeps it decoded if it is `hot` or there is room.
    #[cold]
    fn unpack(
        &self,
        offset: u64,
        stored: &Arc<Piece>,
        hot: bool,
        priority: Priority,
        decode: impl Fn(&[u8]) -> Result<EntryBlock>,
    ) -> Result<Arc<EntryBlock>> {
        let block = Arc::new(decode(stored)?);
        let keep = hot || !self.is_pressed();
        if priority > Priority::Low {
            let bytes = keep.then(|| shard::entry_bytes(&CachedBlock::Entries(Arc::clone(&block))));
            self.account(bytes.unwrap_or(0), 0);
            let freed = self.shard(offset).unpacked(offset, stored, &block, bytes);
            self.account(0, freed);
        }
        self.trim();
        Ok(block)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.budget.sub(Purpose::Cache, *self.bytes.get_mut());
    }
}
