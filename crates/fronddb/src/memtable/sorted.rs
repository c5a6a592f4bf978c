//! The memtable that recovery builds: all messages of the replayed log, sorted in bulk.
//!
//! Inserting a replayed log one message after another, as writers do, would take seconds. Here each replaying
//! thread copies the messages of its records into a [`SortedPart`] of its own, in the order in which it meets them;
//! [`SortedMemtable::build`] then sorts each part on its own thread and merges the parts, every thread
//! merging a range of keys. What results never changes, and a read is a binary search: first among every
//! [`STRIDE`]-th key, a table that fits the processor's cache, then in one stride.
//!
//! Order: as in the active memtable: key ascending, sequence number descending, of equals the later first.
//! Messages of one record must be added to one part, in their order; of equals the one that lies further
//! on in the part is the later.
//!
//! - Q1: `entries` are in order; each place points to a whole message in `chunks`.
//!
//! Bytes of a message in a chunk: length of payload (u32), of key (u16), kind and blob flag (u8), a zero byte, sequence
//! number (u64), transaction (u64), step (u32), key, payload.

use std::cmp::Ordering as Order;
use std::fmt;
use std::ops::ControlFlow;

use super::active::range_bytes;
use super::sample::RangeSample;
use crate::base::TxnId;
use crate::base::helpers::with_helpers;
use crate::base::memory::{MemoryBudget, Purpose};
use crate::base::page_buf::PageBuf;
use crate::base::sync::Mutex;
use crate::format::block::RangeLists;
use crate::format::{Kind, Message, RangeDelete, Stamp};

/// Bytes of a chunk, unless one message is longer.
const CHUNK_BYTES: usize = 4 << 20;
/// Bytes of the first chunk of a part: most restarts find little in the log.
const CHUNK_BYTES_FIRST: usize = 64 << 10;
const HEADER_BYTES: usize = 28;
const BLOB: u8 = 0x80;
/// Entries from one key of the coarse table to the next.
const STRIDE: usize = 32;
/// Messages whose kinds an estimate looks at.
const SAMPLED_MAX: usize = 128;
/// Below so many messages a second thread costs more than it saves.
const PARALLEL_MIN: usize = 20_000;

type Prefix = (u64, u64);

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    /// The first 16 bytes of the key, zero-padded.
    prefix: Prefix,
    /// Chunk (high half) and offset in it.
    place: u64,
}

/// The bytes of messages, in chunks.
#[derive(Debug, Default)]
struct Chunks(Vec<PageBuf>);

/// What is known about messages without looking at them.
#[derive(Debug)]
struct Books {
    kinds: [u64; 6],
    min_seq: u64,
    max_seq: u64,
    ranges: Vec<RangeDelete>,
    /// Bytes that messages take.
    bytes: usize,
}

/// Messages on their way into a [`SortedMemtable`]; one per replaying thread.
#[derive(Debug)]
pub struct SortedPart {
    chunks: Chunks,
    used: usize,
    entries: Vec<Entry>,
    books: Books,
}

/// An immutable memtable. Same reads as [`super::Memtable`].
pub struct SortedMemtable {
    id: u64,
    chunks: Chunks,
    entries: Vec<Entry>,
    coarse: Vec<Prefix>,
    books: Books,
    ranges: RangeLists,
    memory_bytes: usize,
    budget: MemoryBudget,
}

impl Books {
    fn new() -> Books {
        Books { kinds: [0; 6], min_seq: u64::MAX, max_seq: 0, ranges: Vec::new(), bytes: 0 }
    }

    #[inline]
    fn note(&mut self, seq: u64, stamp: Stamp) {
        self.min_seq = self.min_seq.min(seq);
        self.max_seq = self.max_seq.max(seq);
        debug_assert!(matches!(stamp, Stamp::Written { .. }), "messages of the log are written by a transaction");
    }

    fn absorb(&mut self, other: Books) {
        for (kind, count) in self.kinds.iter_mut().zip(other.kinds) {
            *kind += count;
        }
        self.min_seq = self.min_seq.min(other.min_seq);
        self.max_seq = self.max_seq.max(other.max_seq);
        self.bytes += other.bytes;
        self.ranges.extend(other.ranges);
    }
}

fn prefix_of(key: &[u8]) -> Prefix {
    let number = |from: usize| match key.get(from..from + 8) {
        Some(bytes) => u64::from_be_bytes(bytes.try_into().unwrap_or_default()),
        None => {
            let mut padded = [0; 8];
            let rest = key.get(from..).unwrap_or_default();
            padded[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(padded)
        }
    };
    (number(0), number(8))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}

impl Chunks {
    #[inline]
    fn at(&self, place: u64) -> &[u8] {
        &self.0[(place >> 32) as usize][(place & 0xffff_ffff) as usize..]
    }

    #[inline]
    fn key(&self, place: u64) -> &[u8] {
        let bytes = self.at(place);
        let length = u16::from_le_bytes([bytes[4], bytes[5]]) as usize;
        &bytes[HEADER_BYTES..HEADER_BYTES + length]
    }

    fn seq(&self, place: u64) -> u64 {
        u64_at(self.at(place), 8)
    }

    #[inline]
    fn message(&self, place: u64) -> Message<'_> {
        let bytes = self.at(place);
        let payload_bytes = u32_at(bytes, 0) as usize;
        let key_bytes = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
        let (key, rest) = bytes[HEADER_BYTES..].split_at(key_bytes);
        Message {
            key,
            seq: u64_at(bytes, 8),
            stamp: Stamp::Written { txn: TxnId(u64_at(bytes, 16)), step: u32_at(bytes, 24) },
            kind: Kind::from_number(bytes[6] & !BLOB).unwrap_or(Kind::Put),
            blob: bytes[6] & BLOB != 0,
            payload: &rest[..payload_bytes],
        }
    }

    /// The order of entries, when both point into these chunks.
    #[inline]
    fn compare(&self, a: &Entry, b: &Entry) -> Order {
        a.prefix.cmp(&b.prefix).then_with(|| self.compare_beyond_prefix(a.place, b.place))
    }

    fn compare_beyond_prefix(&self, a: u64, b: u64) -> Order {
        self.key(a).cmp(self.key(b)).then_with(|| self.seq(b).cmp(&self.seq(a))).then(b.cmp(&a))
    }
}

impl Default for SortedPart {
    fn default() -> SortedPart {
        SortedPart::new()
    }
}

impl SortedPart {
    /// Empty.
    pub fn new() -> SortedPart {
        SortedPart { chunks: Chunks::default(), used: 0, entries: Vec::new(), books: Books::new() }
    }

    /// Copies a message with its `seq` and its stamp, which must be `Written`. Records may come in any order.
    #[inline]
    pub fn add(&mut self, message: &Message<'_>) {
        let Stamp::Written { txn, step } = message.stamp else {
            debug_assert!(false, "messages of the log are written by a transaction");
            return;
        };
        let (key, payload) = (message.key, message.payload);
        let bytes = HEADER_BYTES + key.len() + payload.len();
        if self.chunks.0.last().is_none_or(|chunk| chunk.len() - self.used < bytes) {
            self.grow(bytes);
        }
        let index = self.chunks.0.len() - 1;
        let out = &mut self.chunks.0[index][self.used..self.used + bytes];
        out[0..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        out[4..6].copy_from_slice(&(key.len() as u16).to_le_bytes());
        out[6] = message.kind as u8 | if message.blob { BLOB } else { 0 };
        out[8..16].copy_from_slice(&message.seq.to_le_bytes());
        out[16..24].copy_from_slice(&txn.0.to_le_bytes());
        out[24..28].copy_from_slice(&step.to_le_bytes());
        out[HEADER_BYTES..HEADER_BYTES + key.len()].copy_from_slice(key);
        out[HEADER_BYTES + key.len()..].copy_from_slice(payload);
        self.entries.push(Entry { prefix: prefix_of(key), place: (index as u64) << 32 | self.used as u64 });
        self.used += bytes;
        self.books.bytes += bytes;
        self.books.kinds[message.kind as usize] += 1;
        self.books.note(message.seq, message.stamp);
    }

    #[cold]
    fn grow(&mut self, bytes_min: usize) {
        let next = self.chunks.0.last().map_or(CHUNK_BYTES_FIRST, |last| (last.len() * 4).min(CHUNK_BYTES));
        self.chunks.0.push(PageBuf::zeroed(next.max(bytes_min)));
        self.used = 0;
    }

    /// Adds a range-delete.
    pub fn add_range(&mut self, range: RangeDelete) {
        self.books.note(range.seq, range.stamp);
        self.books.bytes += range_bytes(&range);
        self.books.ranges.push(range);
    }

    /// Number of messages so far.
    pub fn messages(&self) -> usize {
        self.entries.len()
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.books.bytes
    }

    fn sort(&mut self) {
        let chunks = &self.chunks;
        self.entries.sort_unstable_by(|a, b| chunks.compare(a, b));
    }
}

impl SortedMemtable {
    /// Sorts and merges, each with one thread per part. Its memory is counted in `budget` as
    /// [`Purpose::Level0`].
    pub fn build(id: u64, budget: &MemoryBudget, mut parts: Vec<SortedPart>) -> SortedMemtable {
        let total: usize = parts.iter().map(SortedPart::messages).sum();
        let threads = if total < PARALLEL_MIN { 1 } else { parts.len() };
        each(threads, parts.iter_mut(), SortedPart::sort);

        let mut chunks = Chunks::default();
        let mut books = Books::new();
        let mut lists = Vec::new();
        for part in parts {
            let offset = (chunks.0.len() as u64) << 32;
            chunks.0.extend(part.chunks.0);
            books.absorb(part.books);
            lists.push((part.entries, offset));
        }
        let mut lists: Vec<Vec<Entry>> = lists
            .into_iter()
            .map(|(mut entries, offset)| {
                if offset > 0 {
                    entries.iter_mut().for_each(|entry| entry.place += offset);
                }
                entries
            })
            .filter(|entries| !entries.is_empty())
            .collect();
        let mut entries = if lists.len() == 1 { lists.swap_remove(0) } else { merge(&chunks, &lists, threads) };
        entries.shrink_to_fit();
        let coarse: Vec<Prefix> = entries.iter().step_by(STRIDE).map(|entry| entry.prefix).collect();

        let ranges = RangeLists::from(std::mem::take(&mut books.ranges));
        let memory_bytes = chunks.0.iter().map(|chunk| chunk.padded().len()).sum::<usize>()
            + entries.capacity() * size_of::<Entry>()
            + coarse.capacity() * size_of::<Prefix>()
            + ranges.iter().map(range_bytes).sum::<usize>();
        budget.add(Purpose::Level0, memory_bytes);
        SortedMemtable { id, chunks, entries, coarse, books, ranges, memory_bytes, budget: budget.clone() }
    }

    /// See [`super::Level0::sample`]: exact but for the kinds.
    pub(super) fn sample(&self, lower: &[u8], upper: Option<&[u8]>) -> Option<RangeSample> {
        let last = upper.map_or(self.entries.len(), |upper| self.lower_bound(upper));
        let first = self.lower_bound(lower).min(last);
        let mut sample = RangeSample { messages: (last - first) as f64, ..RangeSample::default() };
        let message = |entry: &Entry| self.chunks.message(entry.place);
        for at in (first..last).step_by((last - first).div_ceil(SAMPLED_MAX).max(1)) {
            let older = self.entries.get(at + 1).map(message);
            sample.look_at(&message(&self.entries[at]), older.as_ref());
        }
        Some(sample)
    }

    /// Where the next key begins after the message there, looked for in steps that double.
    pub(super) fn next_key(&self, at: usize) -> usize {
        let Some(first) = self.entries.get(at) else { return at };
        let key = self.chunks.key(first.place);
        let is_same = |other: &Entry| other.prefix == first.prefix && self.chunks.key(other.place) == key;
        let mut step = 1;
        while self.entries.get(at + step).is_some_and(is_same) {
            step *= 2;
        }
        let (from, end) = (at + step / 2, self.entries.len().min(at + step));
        from + self.entries[from..end].partition_point(is_same)
    }

    /// The index of the first message that is not before every message of `key`.
    #[inline]
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        let prefix = prefix_of(key);
        let stride = self.coarse.partition_point(|first| *first < prefix);
        let from = stride.saturating_sub(1) * STRIDE;
        // Keys that share 16 bytes with this one may fill many strides.
        let upto = match self.coarse.get(stride) {
            Some(first) if *first == prefix => stride + self.coarse[stride..].partition_point(|first| *first == prefix),
            _ => stride,
        };
        let upto = (upto * STRIDE).min(self.entries.len());
        from + self.entries[from..upto].partition_point(|entry| {
            entry.prefix.cmp(&prefix).then_with(|| self.chunks.key(entry.place).cmp(key)) == Order::Less
        })
    }

    /// The message at `index`.
    #[inline]
    pub(super) fn message_at(&self, index: usize) -> Option<Message<'_>> {
        self.entries.get(index).map(|entry| self.chunks.message(entry.place))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Its number, as given.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Visits the messages of `key`, newest to oldest, until the visitor breaks off.
    pub fn get(&self, key: &[u8], mut visit: impl FnMut(&Message<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut index = self.lower_bound(key);
        while let Some(message) = self.message_at(index).filter(|message| message.key == key) {
            visit(&message)?;
            index += 1;
        }
        ControlFlow::Continue(())
    }

    /// True when there is a range-delete.
    pub fn has_range_deletes(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Shows `visit` the range-deletes.
    pub fn range_deletes<T>(&self, visit: impl FnOnce(&RangeLists) -> T) -> T {
        visit(&self.ranges)
    }

    /// Bytes that messages and range-deletes take.
    pub fn bytes(&self) -> usize {
        self.books.bytes
    }

    /// Bytes held from the system.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Number of messages; range-deletes are not among them.
    pub fn messages(&self) -> u64 {
        self.entries.len() as u64
    }

    /// True without messages and range-deletes.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.ranges.is_empty()
    }

    /// Number of messages by kind number.
    pub fn kinds(&self) -> [u64; 6] {
        self.books.kinds
    }

    /// Lowest and highest sequence number, range-deletes included; `None` when empty.
    pub fn seq_bounds(&self) -> Option<(u64, u64)> {
        (self.books.min_seq <= self.books.max_seq).then_some((self.books.min_seq, self.books.max_seq))
    }
}

impl Drop for SortedMemtable {
    fn drop(&mut self) {
        self.budget.sub(Purpose::Level0, self.memory_bytes);
    }
}

impl fmt::Debug for SortedMemtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortedMemtable")
            .field("id", &self.id)
            .field("messages", &self.messages())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Does `work` on each item, on up to so many threads.
fn each<T: Send>(threads: usize, items: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let items = Mutex::new(items);
    let all = with_helpers(threads.saturating_sub(1), |_| {
        loop {
            let Some(item) = items.lock().next() else { break };
            work(item);
        }
    });
    for done in all {
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

/// Merges sorted lists: cuts all of them at the same keys, and merges the pieces between two cuts on a thread each.
fn merge(chunks: &Chunks, lists: &[Vec<Entry>], threads: usize) -> Vec<Entry> {
    let total = lists.iter().map(Vec::len).sum();
    let mut merged = vec![Entry::default(); total];
    let Some(longest) = lists.iter().max_by_key(|list| list.len()) else { return merged };
    let mut tasks = Vec::new();
    let mut rest = merged.as_mut_slice();
    let mut from = vec![0; lists.len()];
    for task in 1..=threads {
        let upto: Vec<usize> = match longest.get(longest.len() * task / threads) {
            Some(pivot) => {
                let below = |entry: &Entry| chunks.compare(entry, pivot) == Order::Less;
                lists.iter().map(|list| list.partition_point(below)).collect()
            }
            None => lists.iter().map(Vec::len).collect(),
        };
        let pieces: Vec<&[Entry]> =
            lists.iter().zip(from.iter().zip(&upto)).map(|(list, (from, upto))| &list[*from..*upto]).collect();
        let (out, others) = rest.split_at_mut(pieces.iter().map(|piece| piece.len()).sum());
        rest = others;
        from = upto;
        tasks.push((pieces, out));
    }
    each(threads, tasks.into_iter(), |(pieces, out)| merge_pieces(chunks, pieces, out));
    merged
}

fn merge_pieces(chunks: &Chunks, mut pieces: Vec<&[Entry]>, out: &mut [Entry]) {
    pieces.retain(|piece| !piece.is_empty());
    for slot in out {
        let mut least = 0;
        for other in 1..pieces.len() {
            if chunks.compare(&pieces[other][0], &pieces[least][0]) == Order::Less {
                least = other;
            }
        }
        *slot = pieces[least][0];
        pieces[least] = &pieces[least][1..];
        if pieces[least].is_empty() {
            pieces.remove(least);
        }
    }
}
