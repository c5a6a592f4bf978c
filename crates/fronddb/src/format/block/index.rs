//! Index blocks: where the blocks of a run are.
//!
//! An index has one entry per block: a *separator* (above the last key of the block before, at or below
//! the first key of this one), where the block is stored, how much lies before it ([`Held`]), and
//! whether the block *continues*: begins with a message of the key with which the block before ends. Large runs
//! have two levels: the entries of the top one point to index blocks.
//!
//! Raw form: level u8 (0: entries point to entry blocks, 1: to index blocks; 2 more: large values lie before it) · count
//! varint · messages before the first entry varint · stored bytes before it varint · bytes of large values before it varint (if
//! the level says so) · for each entry: bytes shared with the separator
//! before (varint), the rest of the separator (byte string), flags u8 (1 continues, 2 has large values), distance of the block
//! from the end of the block before (zigzag varint; from 0 for the first), its stored length (varint),
//! messages under it (varint), stored bytes of the entry blocks under it (varint, level 1 only), bytes of the large values of
//! its messages (varint, if the flags say so). Large values are of version 2.
//!
//! In memory, separators lie end to end beside arrays of numbers, and are searched by their *heads*, the first eight bytes after the
//! prefix that all of them share, as numbers. A search begins where the wanted head would be if heads lay at equal distances, and
//! goes on from there in steps that double: of keys that are numbers that is next to where it ends, and of others it takes at most twice the
//! steps of a binary search. An index is seldom in the processor's caches, and each place that is looked at costs a read of memory.
//!
//! Beside where a block is in the file lies a reference to where it is in memory, if a reader left it there ([`IndexBlock::remember`]). It
//! keeps nothing: what the cache lets go is gone, but for the memory of the block's own fields (some 200 bytes, counted by nobody), which stays
//! until another block takes the place or the index goes. References are of one *phase* of the cache ([`Cache::room`](crate::cache::Cache::room)).

use super::EntryBlock;
use super::entries::head;
use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::prefetch::{CACHE_LINE_BYTES, prefetch, upgrade};
use crate::base::sync::Mutex;
use crate::base::{BlockPtr, Error, Result};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

const FLAG_CONTINUES: u8 = 1;
const FLAG_BLOBS: u8 = 2;
/// Added to the level.
const BLOBS_BEFORE: u8 = 2;
/// The first step from a guess: half of what one read of memory brings.
const STEP_FIRST: usize = 4;
/// So many of the bytes that all separators share are where a search looks anyway: a tree's and most of a number's.
const FRONT_BYTES: usize = 12;

/// What blocks of a run hold, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Messages.
    pub messages: u64,
    /// Stored bytes of the entry blocks.
    pub bytes: u64,
    /// Bytes that the large values of the messages take elsewhere in the data file; none where they were not counted yet.
    pub blob_bytes: u64,
}

impl Held {
    /// Both together; `None` past what can be counted.
    pub fn checked_add(self, other: Held) -> Option<Held> {
        Some(Held {
            messages: self.messages.checked_add(other.messages)?,
            bytes: self.bytes.checked_add(other.bytes)?,
            blob_bytes: self.blob_bytes.checked_add(other.blob_bytes)?,
        })
    }

    /// What is here and not in `other`.
    pub fn saturating_sub(self, other: Held) -> Held {
        Held {
            messages: self.messages.saturating_sub(other.messages),
            bytes: self.bytes.saturating_sub(other.bytes),
            blob_bytes: self.blob_bytes.saturating_sub(other.blob_bytes),
        }
    }
}

impl std::ops::AddAssign for Held {
    fn add_assign(&mut self, other: Held) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.blob_bytes += other.blob_bytes;
    }
}

/// One entry of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// The block.
    pub ptr: BlockPtr,
    /// What all entry blocks of the run before it hold.
    pub before: Held,
    /// It begins with the key with which the block before ends.
    pub continues: bool,
}

/// Builds index blocks.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    entries: Vec<u8>,
    count: usize,
    /// Separators of the first and the last entry.
    first: Vec<u8>,
    last: Vec<u8>,
    first_continues: bool,
    separator_bytes: usize,
    end: u64,
    before: Held,
    held: Held,
}

impl IndexBuilder {
    /// Adds a block with what it holds, or what those under it do.
    pub fn add(&mut self, level: u8, separator: &[u8], continues: bool, ptr: BlockPtr, held: Held) {
        if self.count == 0 {
            self.first.extend_from_slice(separator);
            self.first_continues = continues;
        }
        let shared = self.last.iter().zip(separator).take_while(|(a, b)| a == b).count();
        put_varint(&mut self.entries, shared as u64);
        put_bytes(&mut self.entries, &separator[shared..]);
        let has_blobs = held.blob_bytes > 0;
        self.entries.push(if continues { FLAG_CONTINUES } else { 0 } | if has_blobs { FLAG_BLOBS } else { 0 });
        let distance = ptr.offset.wrapping_sub(self.end) as i64;
        put_varint(&mut self.entries, ((distance << 1) ^ (distance >> 63)) as u64);
        put_varint(&mut self.entries, u64::from(ptr.stored));
        put_varint(&mut self.entries, held.messages);
        if level > 0 {
            put_varint(&mut self.entries, held.bytes);
        }
        if has_blobs {
            put_varint(&mut self.entries, held.blob_bytes);
        }
        self.end = ptr.offset + u64::from(ptr.stored);
        self.last.clear();
        self.last.extend_from_slice(separator);
        self.separator_bytes += separator.len();
        self.count += 1;
        self.held += held;
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the raw form, about.
    pub fn size(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of all separators, which the decoded block holds whole.
    pub fn separator_bytes(&self) -> usize {
        self.separator_bytes
    }

    /// What the entry blocks under it hold.
    pub fn held(&self) -> Held {
        self.held
    }

    /// Separator of its first entry, and whether that continues.
    pub fn first(&self) -> (&[u8], bool) {
        (&self.first, self.first_continues)
    }

    /// Appends the raw form to `out` and empties the builder for the next index block of the same run.
    pub fn finish(&mut self, level: u8, out: &mut Vec<u8>) {
        let blobs_before = self.before.blob_bytes > 0;
        out.push(if blobs_before { level + BLOBS_BEFORE } else { level });
        put_varint(out, self.count as u64);
        put_varint(out, self.before.messages);
        put_varint(out, self.before.bytes);
        if blobs_before {
            put_varint(out, self.before.blob_bytes);
        }
        out.extend_from_slice(&self.entries);
        self.before += std::mem::take(&mut self.held);
        self.entries.clear();
        self.first.clear();
        self.last.clear();
        (self.count, self.separator_bytes, self.end) = (0, 0, 0);
    }

    /// Empties the builder for another run.
    pub fn reset(&mut self) {
        self.finish(0, &mut Vec::new());
        self.before = Held::default();
    }
}

/// A decoded, validated index block.
///
/// What a search looks at first, and mostly all of it, is on its first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct IndexBlock {
    /// The heads of the first and the last entry, without a look at those.
    outer_heads: (u64, u64),
    heads: Box<[u64]>,
    places: Box<[Place]>,
    /// Bytes that all separators share.
    shared: u32,
    /// The first of them.
    front: [u8; FRONT_BYTES],
    separators: Vec<u8>,
    ends: Vec<u32>,
    level: u8,
    /// Messages and stored bytes before each entry.
    before: Vec<(u64, u64)>,
    /// Bytes of large values before each entry; empty where there are none, mostly.
    blob_bytes_before: Vec<u64>,
    /// What lies before the end.
    totals: Held,
}

const _: () = assert!(std::mem::offset_of!(IndexBlock, separators) == CACHE_LINE_BYTES);

/// What a read of one key needs of an entry.
#[derive(Debug)]
#[repr(align(32))]
struct Place {
    offset: u64,
    stored: u32,
    continues: bool,
    /// That of the reference; odd while there is none.
    phase: AtomicU8,
    block: Mutex<Weak<EntryBlock>>,
}

// Mutexes that a model checker steps through are larger.
#[cfg(not(feature = "schedules"))]
const _: () = assert!(size_of::<Place>() == 32, "none lies on two cache lines");

impl Place {
    #[inline]
    fn ptr(&self) -> BlockPtr {
        BlockPtr { offset: self.offset, stored: self.stored }
    }
}

fn damaged(what: &str) -> Error {
    Error::corruption(format!("index block: {what}"))
}

impl IndexBlock {
    /// Decodes and validates the raw form.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(raw: &[u8]) -> Result<IndexBlock> {
        let mut decoder = Decoder::new(raw);
        let first = decoder.u8()?;
        let (level, blobs_before) = (first % BLOBS_BEFORE, first >= BLOBS_BEFORE);
        let count = decoder.count(6)?;
        if first > 1 + BLOBS_BEFORE || count == 0 {
            return Err(damaged("impossible header"));
        }
        let (messages, bytes) = (decoder.varint()?, decoder.varint()?);
        let blob_bytes = if blobs_before { decoder.varint()? } else { 0 };
        let mut totals = Held { messages, bytes, blob_bytes };
        let mut blob_bytes_before = Vec::new();
        let mut places = Vec::with_capacity(count);
        let mut before = Vec::with_capacity(count);
        let mut ends: Vec<u32> = Vec::with_capacity(count);
        let mut separators: Vec<u8> = Vec::new();
        let mut end = 0u64;
        let mut start = 0;
        for index in 0..count {
            let shared = decoder.length()?;
            let rest = decoder.bytes()?;
            // Separators of a run of 2^16 blocks of the longest keys stay below this.
            if shared > separators.len() - start || separators.len() + shared + rest.len() > u32::MAX as usize / 2 {
                return Err(damaged("impossible separator"));
            }
            let at = separators.len();
            separators.extend_from_within(start..start + shared);
            separators.extend_from_slice(rest);
            let flags = decoder.u8()?;
            if flags > FLAG_CONTINUES | FLAG_BLOBS {
                return Err(damaged("unknown flag"));
            }
            if index > 0 {
                let order = separators[start..at].cmp(&separators[at..]);
                if order.is_gt() || (order.is_eq() && flags & FLAG_CONTINUES == 0) {
                    return Err(damaged("separators out of order"));
                }
            }
            let distance = decoder.varint()?;
            let distance = (distance >> 1) as i64 ^ -((distance & 1) as i64);
            let ptr = BlockPtr { offset: end.wrapping_add(distance as u64), stored: decoder.varint_u32()? };
            let messages = decoder.varint()?;
            let bytes = if level > 0 { decoder.varint()? } else { u64::from(ptr.stored) };
            let blob_bytes = if flags & FLAG_BLOBS == 0 { 0 } else { decoder.varint()? };
            if ptr.offset > u64::MAX / 2 || ptr.is_none() {
                return Err(damaged("impossible address"));
            }
            end = ptr.offset + u64::from(ptr.stored);
            places.push(Place {
                offset: ptr.offset,
                stored: ptr.stored,
                continues: flags & FLAG_CONTINUES != 0,
                phase: AtomicU8::new(1),
                block: Mutex::default(),
            });
            before.push((totals.messages, totals.bytes));
            if totals.blob_bytes > 0 {
                blob_bytes_before.resize(index, 0);
                blob_bytes_before.push(totals.blob_bytes);
            }
            let held = Held { messages, bytes, blob_bytes };
            totals = totals.checked_add(held).ok_or_else(|| damaged("too many messages or bytes"))?;
            start = at;
            ends.push(separators.len() as u32);
        }
        decoder.finish()?;
        separators.shrink_to_fit();
        blob_bytes_before.shrink_to_fit();
        let first = &separators[..ends[0] as usize];
        let shared = first.iter().zip(&separators[start..]).take_while(|(a, b)| a == b).count();
        let starts = std::iter::once(0).chain(ends.iter().map(|end| *end as usize));
        let heads: Vec<u64> =
            starts.zip(&ends).map(|(start, end)| head(&separators[start + shared..*end as usize])).collect();
        let outer_heads = (heads[0], heads[count - 1]);
        let mut front = [0; FRONT_BYTES];
        let copied = shared.min(FRONT_BYTES);
        front[..copied].copy_from_slice(&separators[..copied]);
        let (heads, places, shared) = (heads.into(), places.into(), shared as u32);
        Ok(IndexBlock {
            outer_heads,
            heads,
            places,
            shared,
            front,
            separators,
            ends,
            level,
            before,
            blob_bytes_before,
            totals,
        })
    }

    /// 0 when its entries point to entry blocks, 1 when to index blocks.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Number of entries, at least 1.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Entry `index`; the last one past the end.
    #[inline]
    pub fn entry(&self, index: usize) -> IndexEntry {
        let index = index.min(self.places.len() - 1);
        let place = &self.places[index];
        IndexEntry { ptr: place.ptr(), before: self.held_before(index), continues: place.continues }
    }

    /// The block of entry `index`; of the last one past the end.
    #[inline]
    pub fn ptr(&self, index: usize) -> BlockPtr {
        self.places[index.min(self.places.len() - 1)].ptr()
    }

    /// The messages of entry `index`, which is below the count, if a reader [left](IndexBlock::remember) them there in this `phase`, an even
    /// number, and they still are in memory.
    #[inline]
    pub fn remembered(&self, index: usize, phase: u8) -> Option<Arc<EntryBlock>> {
        let place = &self.places[index];
        // Ordering, here and below: what the phase is decides about what the cache learns, and nothing else.
        if place.phase.load(Ordering::Relaxed) != phase {
            return None;
        }
        upgrade(&place.block.lock())
    }

    /// Leaves a reference to the messages of entry `index`, which is below the count, for readers to come in this phase.
    pub fn remember(&self, index: usize, phase: u8, block: &Arc<EntryBlock>) {
        let place = &self.places[index];
        *place.block.lock() = Arc::downgrade(block);
        place.phase.store(phase, Ordering::Relaxed);
    }

    /// What the run holds before entry `index`, or, past the last one, up to the end of that.
    #[inline]
    fn held_before(&self, index: usize) -> Held {
        let Some(&(messages, bytes)) = self.before.get(index) else { return self.totals };
        Held { messages, bytes, blob_bytes: self.blob_bytes_before.get(index).copied().unwrap_or_default() }
    }

    /// What the run holds before the end of entry `index`.
    pub fn held_until(&self, index: usize) -> Held {
        self.held_before(index.saturating_add(1))
    }

    /// Separator of entry `index`, which is below the count.
    #[inline]
    pub fn separator(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.separators[start..self.ends[index] as usize]
    }

    /// The entry whose block holds the first message at or above `key`, unless all of that block lies below
    /// (then it is the first of the next block). The block before the first for keys below: entry 0.
    #[inline]
    pub fn find(&self, key: &[u8]) -> usize {
        let mut index = self.upper_bound(key).saturating_sub(1);
        // The separator of a block that continues is its first key, of which newer messages are before.
        while index > 0 && self.places[index].continues && self.separator(index) == key {
            index -= 1;
        }
        index
    }

    /// Number of entries whose separator is at or below `key`.
    #[inline]
    fn upper_bound(&self, key: &[u8]) -> usize {
        let all = self.shared as usize;
        let shared = all.min(key.len());
        let front = if all <= FRONT_BYTES { self.front.as_slice() } else { &self.separators };
        match key[..shared].cmp(&front[..shared]) {
            std::cmp::Ordering::Less => return 0,
            std::cmp::Ordering::Greater => return self.count(),
            std::cmp::Ordering::Equal if key.len() < all => return 0,
            std::cmp::Ordering::Equal => {}
        }
        let rest = &key[all..];
        let wanted = head(rest);
        let first = self.heads_below(wanted);
        let end = match (self.heads.get(first), wanted.checked_add(1)) {
            (Some(found), Some(next)) if *found == wanted => self.heads_below(next),
            (Some(_), Some(_)) => first,
            _ => self.count(),
        };
        let (mut low, mut length) = (first, end - first);
        while length > 0 {
            let half = length / 2;
            let at_or_below = &self.separator(low + half)[all..] <= rest;
            low = if at_or_below { low + half + 1 } else { low };
            length = if at_or_below { length - half - 1 } else { half };
        }
        low
    }

    /// Number of heads below `wanted`.
    #[inline]
    fn heads_below(&self, wanted: u64) -> usize {
        let heads = &*self.heads;
        let (first, last) = self.outer_heads;
        if wanted <= first {
            return 0;
        }
        if wanted > last {
            return heads.len();
        }
        // From here on: first < wanted <= last, and so heads[low] < wanted <= heads[high].
        let (mut low, mut high) = (0, heads.len() - 1);
        let share = (wanted - first) as f64 / (last - first) as f64;
        let guess = ((high as f64 * share) as usize).min(high);
        // Most searches end here or one before.
        for near in [guess.saturating_sub(1), guess] {
            prefetch(self.places[near..].as_ptr().cast(), 1);
        }
        let mut step = STEP_FIRST;
        if heads[guess] < wanted {
            low = guess;
            while low + step < high && heads[low + step] < wanted {
                low += step;
                step *= 2;
            }
            high = high.min(low + step);
        } else {
            high = guess;
            while high >= low + step && heads[high - step] >= wanted {
                high -= step;
                step *= 2;
            }
            low = low.max(high.saturating_sub(step));
        }
        low + heads[low..high].partition_point(|found| *found < wanted)
    }

    /// Bytes really allocated.
    pub fn memory_bytes(&self) -> usize {
        self.separators.capacity()
            + self.ends.capacity() * size_of::<u32>()
            + self.heads.len() * size_of::<u64>()
            + self.places.len() * size_of::<Place>()
            + self.before.capacity() * size_of::<(u64, u64)>()
            + self.blob_bytes_before.capacity() * size_of::<u64>()
            + size_of::<IndexBlock>()
            + 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_come_back_and_are_found(mut keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..6), 1..60), level in 0u8..2, blobs_from in 0usize..60, probes in prop::collection::vec(prop::collection::vec(0u8..5, 0..7), 20), places in prop::collection::vec(0u64..1 << 60, 60)) {
            keys.sort();
            let mut builder = IndexBuilder::default();
            let mut model = Vec::new();
            let mut before = Held::default();
            for (index, key) in keys.iter().enumerate() {
                let continues = index > 0 && keys[index - 1] == *key;
                // Anywhere in a file of an exbibyte, near each other and far apart.
                let offset = if index % 4 == 0 { places[index] } else { places[0] + index as u64 * 77 % 13 * 5000 };
                let ptr = BlockPtr { offset, stored: 3 + index as u32 };
                // The first block that has large values is any of them, or none.
                let blob_bytes = if index >= blobs_from && index % 3 > 0 { places[index] >> 8 } else { 0 };
                let held = Held { messages: index as u64, bytes: u64::from(ptr.stored), blob_bytes };
                builder.add(level, key, continues, ptr, held);
                model.push(IndexEntry { ptr, before, continues });
                before += held;
            }
            prop_assert_eq!(builder.held(), before);
            let mut raw = Vec::new();
            builder.finish(level, &mut raw);
            let block = IndexBlock::decode(&raw)?;
            prop_assert_eq!(block.count(), keys.len());
            prop_assert_eq!(block.level(), level);
            for (index, expected) in model.iter().enumerate() {
                prop_assert_eq!(block.entry(index), *expected);
                prop_assert_eq!(block.separator(index), &keys[index][..]);
            }
            prop_assert_eq!(block.held_until(keys.len() - 1), before);
            prop_assert_eq!(block.held_until(usize::MAX), before);
            // The next block of the run goes on from there.
            builder.add(level, b"next", false, BlockPtr { offset: 9, stored: 9 }, Held::default());
            raw.clear();
            builder.finish(level, &mut raw);
            prop_assert_eq!(IndexBlock::decode(&raw)?.entry(0).before, before);
            for probe in probes.iter().chain(&keys) {
                let mut expected = keys.partition_point(|key| key <= probe).saturating_sub(1);
                while expected > 0 && model[expected].continues && keys[expected] == *probe {
                    expected -= 1;
                }
                prop_assert_eq!(block.find(probe), expected);
            }
        }

        #[test]
        fn numbers_are_found_however_they_lie(mut keys in prop::collection::vec((0u64..u64::MAX, 0u32..64), 1..300), probes in prop::collection::vec((any::<u64>(), 0u32..64), 40), tail in 0usize..3, front in 0usize..20) {
            // Most are small, some far away: the worst for a guess.
            let number = |(number, shift): (u64, u32)| number >> shift;
            keys.sort_by_key(|key| number(*key));
            let keys: Vec<Vec<u8>> = keys.into_iter().map(|key| [&[7; 20][..front], &number(key).to_be_bytes(), &[1; 2][..tail]].concat()).collect();
            let mut builder = IndexBuilder::default();
            for (index, key) in keys.iter().enumerate() {
                let continues = index > 0 && keys[index - 1] == *key;
                builder.add(0, key, continues, BlockPtr { offset: index as u64 * 8, stored: 8 }, Held { messages: 1, bytes: 8, blob_bytes: 0 });
            }
            let mut raw = Vec::new();
            builder.finish(0, &mut raw);
            let block = IndexBlock::decode(&raw)?;
            let near = |key: &Vec<u8>| [key[..key.len() - 1].to_vec(), key.clone(), [&key[..], &[0]].concat()];
            let probes = probes.iter().map(|probe| [&[7; 20][..front], &number(*probe).to_be_bytes()].concat());
            for probe in probes.chain(keys.iter().flat_map(near)).chain([vec![7; 2], vec![7; 3], vec![0xff; 12]]) {
                prop_assert_eq!(block.upper_bound(&probe), keys.partition_point(|key| *key <= probe));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut raw: Vec<u8>, probe: Vec<u8>) {
            for level in 0..4 {
                if let Some(first) = raw.first_mut() {
                    *first = level;
                }
                if let Ok(block) = IndexBlock::decode(&raw) {
                    block.find(&probe);
                }
            }
        }
    }
}
