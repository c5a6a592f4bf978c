//! One shard of the cache: a table of blocks, decoded or packed, under a latch, with a line of those on probation and a clock
//! hand for the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::offsets::Offsets;
use super::{CAUSES, CacheStatistics, CachedBlock, Priority};
use crate::base::hash::{NumberMap, NumberSet};
use crate::base::pool::Piece;
use crate::base::sync::{Condvar, Mutex};
use crate::format::block::EntryBlock;

/// Bytes that the tables, the ghosts and the headers of the allocator take for a block, about.
const ENTRY_BYTES: usize = 160;

/// Blocks of each shard whose decoded form stays beside the packed one.
pub(super) const RECENT_MAX: usize = 4;
/// One ghost for so many blocks: remembering longer lets in what comes back too seldom to be worth its room.
const BLOCKS_PER_GHOST: usize = 2;
/// Ghosts of a shard in any case.
const GHOSTS_MIN: usize = 16;
/// Tickets of blocks that are gone are dropped from the line when they are more than the others and this.
const STALE_TICKETS_MAX: usize = 64;

/// A piece of a large value counts as so many blocks as it has of these bytes: in their number, they would be most of the cache.
const BLOCK_BYTES_USUAL: usize = 16 << 10;

/// How a block is held.
#[derive(Debug, Clone)]
pub(super) enum Form {
    Decoded(CachedBlock),
    /// Messages as they are stored.
    Packed(Arc<Piece>),
    /// The same and decoded as well, while it is one of the last.
    Recent(Box<Recent>),
}

#[derive(Debug, Clone)]
pub(super) struct Recent {
    pub(super) stored: Arc<Piece>,
    pub(super) block: Arc<EntryBlock>,
}

impl Form {
    /// Bytes that a block of this form takes here, besides those of the pool.
    pub(super) fn entry_bytes(&self) -> usize {
        match self {
            Form::Decoded(block) => entry_bytes(block),
            Form::Packed(_) | Form::Recent(_) => size_of::<Piece>() + ENTRY_BYTES,
        }
    }

    /// As how many blocks it counts.
    fn weight(&self) -> usize {
        match self {
            Form::Decoded(CachedBlock::Chunk(piece)) => (piece.len() / BLOCK_BYTES_USUAL).max(1),
            _ => 1,
        }
    }

    /// The stored form, of a block that is packed.
    fn stored(&self) -> Option<&Arc<Piece>> {
        match self {
            Form::Decoded(_) => None,
            Form::Packed(stored) => Some(stored),
            Form::Recent(both) => Some(&both.stored),
        }
    }

    /// Messages that are here decoded.
    fn messages(&self) -> Option<&Arc<EntryBlock>> {
        match self {
            Form::Decoded(CachedBlock::Entries(block)) => Some(block),
            Form::Recent(both) => Some(&both.block),
            _ => None,
        }
    }
}

/// Bytes that a decoded block takes here, besides those of the pool.
pub(super) fn entry_bytes(block: &CachedBlock) -> usize {
    block.memory_bytes() + ENTRY_BYTES
}

/// The mebibyte of the data file that `offset` lies in: blocks of one are in one shard.
#[inline]
pub(super) fn mebibyte(offset: u64) -> u64 {
    offset >> 20
}

/// A block, where a lookup finds it.
#[derive(Debug)]
struct Held {
    form: Form,
    at: u32,
    priority: Priority,
}

const _: () = assert!(size_of::<Option<(u64, Held)>>() == 32, "a slot of the table is half of a cache line");

/// What the hand meets.
#[derive(Debug)]
struct Entry {
    offset: u64,
    bytes: usize,
    weight: u32,
    /// Its number in the line, while it is on probation.
    ticket: Option<u64>,
}

/// Where blocks were that left without having been used again, the latest of them. A place that holds another block by now may be
/// among them: that block then skips its probation.
#[derive(Debug, Default)]
struct Ghosts {
    offsets: NumberSet<u64>,
    oldest_first: VecDeque<u64>,
}

impl Ghosts {
    fn add(&mut self, offset: u64, max: usize) {
        if self.offsets.insert(offset) {
            self.oldest_first.push_back(offset);
        }
        while self.oldest_first.len() > max {
            if let Some(oldest) = self.oldest_first.pop_front() {
                self.offsets.remove(&oldest);
            }
        }
    }

    fn take(&mut self, offset: u64) -> bool {
        self.offsets.remove(&offset)
    }
}

#[derive(Debug, Default)]
struct Table {
    by_offset: Offsets<Held>,
    /// Entries of each mebibyte, for freeing extents.
    by_mebibyte: NumberMap<u64, Vec<u32>>,
    entries: Vec<Option<Entry>>,
    /// Rounds of the hand that each entry survives ([`ROUNDS`]), and above them how often a packed one was decoded since the
    /// hand was there. Apart and small, because every lookup comes here.
    counts: Vec<u8>,
    /// Entries that have a recent form, oldest first. Others may be among them.
    recent: VecDeque<u32>,
    vacant: Vec<u32>,
    /// Tickets and entries of blocks on probation, oldest first. Some may be gone: the ticket tells.
    line: VecDeque<(u64, u32)>,
    on_probation: usize,
    /// Weights of the entries, and of those on probation.
    weight: usize,
    line_weight: usize,
    ghosts: Ghosts,
    hand: usize,
    loading: NumberSet<u64>,
    hits: [u64; CAUSES],
    decodes: u64,
    insertions: u64,
    evictions: u64,
}

/// Bits of a count that are rounds of the hand.
const ROUNDS: u8 = 3;
/// One decoding in a count.
const DECODE: u8 = ROUNDS + 1;
/// Decodings that a count has room for.
pub(super) const DECODES_MAX: u8 = u8::MAX / DECODE;

/// See the module.
#[derive(Debug)]
pub(super) struct Shard {
    table: Mutex<Table>,
    loaded: Condvar,
    /// What [`Shard::standing`] tells, written under the latch.
    blocks: AtomicUsize,
    on_probation: AtomicUsize,
    oldest_ticket: AtomicU64,
}

/// What a shard holds, by weight, without its latch: as it was a moment ago.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) blocks: usize,
    pub(super) on_probation: usize,
    /// `u64::MAX`: none is on probation.
    pub(super) oldest_ticket: u64,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard {
            table: Mutex::default(),
            loaded: Condvar::default(),
            blocks: AtomicUsize::new(0),
            on_probation: AtomicUsize::new(0),
            oldest_ticket: AtomicU64::new(u64::MAX),
        }
    }
}

/// What a lookup found.
pub(super) enum Looked {
    Found(CachedBlock),
    /// To be decoded; `decodes`: how often it was since the hand was there, this time included.
    Packed {
        stored: Arc<Piece>,
        decodes: u8,
    },
    /// Nothing: the caller must load it and end the reservation.
    Reserved,
}

/// What a sweep did.
pub(super) struct Swept {
    /// Bytes of the block that was evicted, if one was.
    pub(super) freed: usize,
    /// The hand was at the end of the table, and starts again.
    pub(super) at_end: bool,
}

/// Entries that one sweep looks at, under the latch.
const SWEEP_MAX: usize = 64;

impl Shard {
    #[inline]
    pub(super) fn lookup(&self, offset: u64) -> Option<CachedBlock> {
        match self.table.lock().find(offset, Priority::Low)? {
            Looked::Found(block) => Some(block),
            Looked::Packed { .. } | Looked::Reserved => None,
        }
    }

    /// Up to `max` blocks of messages that are in use; `all`: of those that were read by themselves.
    pub(super) fn hot(&self, max: usize, all: bool) -> Vec<Arc<EntryBlock>> {
        let table = self.table.lock();
        let is_hot = |held: &&Held| table.counts[held.at as usize] & ROUNDS > 0 || all && held.priority > Priority::Low;
        let hot = table.by_offset.values().filter(is_hot).filter_map(|held| held.form.messages().cloned());
        hot.take(max).collect()
    }

    pub(super) fn standing(&self) -> Standing {
        Standing {
            blocks: self.blocks.load(Ordering::Relaxed),
            on_probation: self.on_probation.load(Ordering::Relaxed),
            oldest_ticket: self.oldest_ticket.load(Ordering::Relaxed),
        }
    }

    fn tell_standing(&self, table: &Table) {
        self.blocks.store(table.weight, Ordering::Relaxed);
        self.on_probation.store(table.line_weight, Ordering::Relaxed);
        self.oldest_ticket.store(table.line.front().map_or(u64::MAX, |(ticket, _)| *ticket), Ordering::Relaxed);
    }

    pub(super) fn contains(&self, offset: u64) -> bool {
        self.table.lock().by_offset.get(offset).is_some()
    }

    /// The block at `offset` and whether it is in use. To look here is no use.
    pub(super) fn peek(&self, offset: u64) -> Option<(Form, bool)> {
        let table = self.table.lock();
        let held = table.by_offset.get(offset)?;
        Some((held.form.clone(), table.counts[held.at as usize] & ROUNDS > 0))
    }

    /// The block at `offset`, which has at least this priority from now on.
    #[inline]
    pub(super) fn lookup_or_reserve(&self, offset: u64, priority: Priority) -> Looked {
        let mut table = self.table.lock();
        loop {
            match table.find(offset, priority) {
                Some(Looked::Packed { stored, .. }) => {
                    return Looked::Packed { stored, decodes: table.count_decode(offset) };
                }
                Some(found) => return found,
                None => {}
            }
            if table.loading.insert(offset) {
                return Looked::Reserved;
            }
            self.loaded.wait(&mut table);
        }
    }

    pub(super) fn end_reservation(&self, offset: u64) {
        self.table.lock().loading.remove(&offset);
        self.loaded.notify_all();
    }

    /// Puts a block in, on probation if it gets a ticket and is not known from before; the bytes of the one that it replaces.
    pub(super) fn insert(
        &self,
        offset: u64,
        form: Form,
        bytes: usize,
        priority: Priority,
        ticket: Option<u64>,
    ) -> usize {
        let mut table = self.table.lock();
        let table = &mut *table;
        let is_known = priority > Priority::Low && table.ghosts.take(offset);
        let ticket = ticket.filter(|_| !is_known);
        let replaced = table.by_offset.get(offset).map(|held| held.at);
        let freed = replaced.map_or(0, |at| table.remove(at));
        let at = table.vacant.pop().unwrap_or_else(|| {
            table.entries.push(None);
            table.counts.push(0);
            (table.entries.len() - 1) as u32
        });
        let weight = form.weight();
        table.entries[at as usize] = Some(Entry { offset, bytes, weight: weight as u32, ticket });
        table.counts[at as usize] = if ticket.is_some() { 0 } else { priority as u8 };
        table.weight += weight;
        if let Some(ticket) = ticket {
            table.add_to_line(ticket, at);
            table.line_weight += weight;
        }
        if matches!(form, Form::Recent(_)) {
            table.add_recent(at);
        }
        table.by_offset.insert(offset, Held { form, at, priority });
        table.by_mebibyte.entry(mebibyte(offset)).or_default().push(at);
        table.insertions += 1;
        self.tell_standing(table);
        freed
    }

    /// A packed block was decoded: `block` stays decoded, in `bytes`, or else as a recent form. The bytes freed; all of
    /// `bytes` if the block is not here any more.
    pub(super) fn unpacked(
        &self,
        offset: u64,
        from: &Arc<Piece>,
        block: &Arc<EntryBlock>,
        bytes: Option<usize>,
    ) -> usize {
        let mut table = self.table.lock();
        let table = &mut *table;
        let held = table.by_offset.get_mut(offset);
        let Some((at, form)) = held.and_then(|held| match held.form.stored() {
            Some(stored) if Arc::ptr_eq(stored, from) => Some((held.at, &mut held.form)),
            _ => None,
        }) else {
            return bytes.unwrap_or(0);
        };
        let Some(bytes) = bytes else {
            *form = Form::Recent(Box::new(Recent { stored: Arc::clone(from), block: Arc::clone(block) }));
            table.add_recent(at);
            return 0;
        };
        *form = Form::Decoded(CachedBlock::Entries(Arc::clone(block)));
        table.counts[at as usize] &= ROUNDS;
        let entry = table.entries[at as usize].as_mut();
        entry.map_or(bytes, |entry| std::mem::replace(&mut entry.bytes, bytes))
    }

    /// Forgets the blocks of `mebibyte` that begin in `[start, end)`; the bytes freed.
    pub(super) fn remove_in(&self, mebibyte: u64, start: u64, end: u64) -> usize {
        let mut table = self.table.lock();
        let Some(all) = table.by_mebibyte.get(&mebibyte) else { return 0 };
        let inside =
            |at: &u32| table.entries[*at as usize].as_ref().is_some_and(|entry| (start..end).contains(&entry.offset));
        let inside: Vec<u32> = all.iter().copied().filter(inside).collect();
        let freed = inside.into_iter().map(|at| table.remove(at)).sum();
        self.tell_standing(&table);
        freed
    }

    /// Forgets the block at `offset`; the bytes freed.
    pub(super) fn forget(&self, offset: u64) -> usize {
        let mut table = self.table.lock();
        let freed = table.by_offset.get(offset).map(|held| held.at).map_or(0, |at| table.remove(at));
        self.tell_standing(&table);
        freed
    }

    /// Ends the probation of the blocks longest on it, up to one that was not used and goes, and some at most; its bytes.
    pub(super) fn judge(&self) -> usize {
        let mut table = self.table.lock();
        let table = &mut *table;
        let mut freed = 0;
        for _ in 0..SWEEP_MAX {
            let Some((ticket, at)) = table.line.pop_front() else { break };
            let entry = table.entries[at as usize].as_mut().filter(|entry| entry.ticket == Some(ticket));
            let Some(entry) = entry else { continue };
            let count = &mut table.counts[at as usize];
            if *count & ROUNDS > 0 {
                *count = (*count & !ROUNDS) | 1;
                entry.ticket = None;
                table.on_probation -= 1;
                table.line_weight -= entry.weight as usize;
                continue;
            }
            let offset = entry.offset;
            // The places of many large values are soon remembered that would not all fit.
            let is_large = entry.weight > 1;
            if !is_large && table.by_offset.get(offset).is_some_and(|held| held.priority > Priority::Low) {
                table.ghosts.add(offset, (table.by_offset.len() / BLOCKS_PER_GHOST).max(GHOSTS_MIN));
            }
            table.evictions += 1;
            freed = table.remove(at);
            break;
        }
        self.tell_standing(table);
        freed
    }

    /// Moves the hand, past blocks on probation, until it evicts one or comes to the end of the table, by some entries at most.
    pub(super) fn sweep(&self) -> Swept {
        let mut table = self.table.lock();
        let table = &mut *table;
        for _ in 0..SWEEP_MAX {
            let hand = table.hand;
            let Some(entry) = table.entries.get(hand) else {
                table.hand = 0;
                return Swept { freed: 0, at_end: true };
            };
            table.hand += 1;
            match (entry, &mut table.counts[hand]) {
                (Some(Entry { ticket: None, .. }), count) if *count & ROUNDS == 0 => {
                    table.evictions += 1;
                    let freed = table.remove(hand as u32);
                    self.tell_standing(table);
                    return Swept { freed, at_end: false };
                }
                (Some(Entry { ticket: None, .. }), count) => *count = (*count & ROUNDS) - 1,
                _ => {}
            }
        }
        Swept { freed: 0, at_end: false }
    }

    /// Each block on probation stands in the line once, and nothing else counts as such.
    #[cfg(test)]
    pub(super) fn check_line(&self) {
        let table = self.table.lock();
        let mut tickets: Vec<_> =
            (0..).zip(&table.entries).filter_map(|(at, entry)| Some((entry.as_ref()?.ticket?, at))).collect();
        tickets.sort_unstable();
        let standing = |(ticket, at): &(u64, u32)| {
            table.entries[*at as usize].as_ref().is_some_and(|entry| entry.ticket == Some(*ticket))
        };
        let line: Vec<_> = table.line.iter().copied().filter(standing).collect();
        assert_eq!((line, table.on_probation), (tickets.clone(), tickets.len()));
        assert!(table.line.len() <= 2 * table.on_probation.max(STALE_TICKETS_MAX) + STALE_TICKETS_MAX + 1);
        let weight = |is_counted: &dyn Fn(&Entry) -> bool| {
            table
                .entries
                .iter()
                .flatten()
                .filter(|entry| is_counted(entry))
                .map(|entry| entry.weight as usize)
                .sum::<usize>()
        };
        assert_eq!(self.standing().on_probation, weight(&|entry| entry.ticket.is_some()));
        assert_eq!(self.standing().blocks, weight(&|_| true));
    }

    #[cfg(test)]
    pub(super) fn packed_blocks(&self) -> usize {
        self.table.lock().by_offset.values().filter(|held| held.form.stored().is_some()).count()
    }

    pub(super) fn add_to(&self, statistics: &mut CacheStatistics) {
        let table = self.table.lock();
        for (sum, hits) in statistics.hits.iter_mut().zip(table.hits) {
            *sum += hits;
        }
        statistics.insertions += table.insertions;
        statistics.evictions += table.evictions;
        statistics.blocks += table.by_offset.len() as u64;
        statistics.decodes += table.decodes;
    }
}

impl Table {
    /// The block at `offset`, used unless it has to be decoded first, and of this `priority` at least.
    #[inline]
    fn find(&mut self, offset: u64, priority: Priority) -> Option<Looked> {
        let held = self.by_offset.get_mut(offset)?;
        if held.priority < priority {
            held.priority = priority;
        }
        let (count, full) = (&mut self.counts[held.at as usize], held.priority as u8 + 1);
        let (block, decodes) = match &held.form {
            Form::Decoded(block) => (block.clone(), 0),
            Form::Recent(both) => (CachedBlock::Entries(Arc::clone(&both.block)), *count & !ROUNDS),
            Form::Packed(stored) => {
                return Some(Looked::Packed { stored: Arc::clone(stored), decodes: 0 });
            }
        };
        if *count != decodes | full {
            *count = decodes | full; // to write it each time would take the line from the other cores
        }
        self.hits[block.cause()] += 1;
        Some(Looked::Found(block))
    }

    /// The packed block at `offset` is about to be decoded; how often since the hand was there, up to [`DECODES_MAX`].
    fn count_decode(&mut self, offset: u64) -> u8 {
        let Some(held) = self.by_offset.get(offset) else { return 0 };
        let count = &mut self.counts[held.at as usize];
        let decodes = (*count & !ROUNDS).saturating_add(DECODE) & !ROUNDS;
        *count = decodes | (held.priority as u8 + 1);
        self.hits[0] += 1;
        self.decodes += 1;
        decodes / DECODE
    }

    fn add_to_line(&mut self, ticket: u64, at: u32) {
        if self.line.len() > 2 * self.on_probation + STALE_TICKETS_MAX {
            let entries = &self.entries;
            let stands =
                |ticket: u64, at: u32| entries[at as usize].as_ref().is_some_and(|entry| entry.ticket == Some(ticket));
            self.line.retain(|(ticket, at)| stands(*ticket, *at));
        }
        self.line.push_back((ticket, at));
        self.on_probation += 1;
    }

    /// The recent form of entry `at` is the newest; the oldest goes.
    fn add_recent(&mut self, at: u32) {
        self.recent.push_back(at);
        if self.recent.len() <= RECENT_MAX {
            return;
        }
        let oldest = self.recent.pop_front().filter(|oldest| !self.recent.contains(oldest));
        let entry = oldest.and_then(|oldest| self.entries[oldest as usize].as_ref());
        if let Some(Held { form, .. }) = entry.and_then(|entry| self.by_offset.get_mut(entry.offset))
            && let Form::Recent(both) = form
        {
            *form = Form::Packed(Arc::clone(&both.stored));
        }
    }

    fn remove(&mut self, at: u32) -> usize {
        let Some(entry) = self.entries[at as usize].take() else { return 0 };
        self.by_offset.remove(entry.offset);
        self.weight -= entry.weight as usize;
        if entry.ticket.is_some() {
            self.on_probation -= 1;
            self.line_weight -= entry.weight as usize;
        }
        let mebibyte = mebibyte(entry.offset);
        if let Some(all) = self.by_mebibyte.get_mut(&mebibyte) {
            all.retain(|other| *other != at);
            if all.is_empty() {
                self.by_mebibyte.remove(&mebibyte);
            }
        }
        self.vacant.push(at);
        entry.bytes
    }
}
