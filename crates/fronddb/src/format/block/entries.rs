//! Entry blocks as they lie in memory, and the cursor over them.
//!
//! A block is decoded into one buffer of arrays, so that every message is reached by its number without
//! looking at its neighbours:
//!
//! ```text
//! prefix ‖ rests of the keys ‖ payloads ‖ ends of the rests ‖ ends of the payloads ‖ tags ‖ stamps ‖ steps ‖ seqs ‖ 8 zeros
//! ```
//!
//! The prefix is what all keys have in common. Strings of one length need no ends, tags that are all the
//! same no tags, and numbers are offsets from their minimum in 0, 1, 2, 4 or 8 bytes. A search compares
//! the first eight bytes of the rests as integers.
//!
//! Invariants, established by [`EntryBlock::decode`] ([`super::decode`]) and relied on afterwards:
//!
//! - **E1** all positions are inside the buffer, ends ascend;
//! - **E2** tags name a known kind;
//! - **E3** keys ascend; equal neighbours are messages of one key, newest first;
//! - **E4** eight bytes follow the last rest.

use crate::base::pool::Piece;
use crate::base::prefetch::FRONT_BYTES;
use crate::base::{CommitNumber, Error, TxnId};
use crate::format::{Kind, Message, Stamp};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::builder::{TAG_BLOB, TAG_COMMITTED, TAG_KIND, TAG_PUT, TAG_WRITTEN};

/// Most rests of keys take no more: then the memory for a key is asked for once.
const REST_BYTES_USUAL: usize = 32;
/// Keys that take up to so many bytes are read from memory at once when they are searched.
const SEARCHED_BYTES: usize = 512;

/// Strings that lie end to end in the buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spans {
    /// Where the first begins.
    pub(super) start: u32,
    /// Their length, if they all have the same.
    pub(super) fixed: u32,
    /// Where the table of their ends lies; 0: they all have the same length.
    pub(super) ends: u32,
    /// Ends take four bytes, otherwise two.
    pub(super) wide: bool,
}

impl Spans {
    #[inline]
    fn end(&self, bytes: &[u8], index: usize) -> usize {
        let at = self.ends as usize;
        if self.wide { read::<4>(bytes, at + 4 * index) as usize } else { read::<2>(bytes, at + 2 * index) as usize }
    }

    #[inline]
    pub(super) fn get(&self, bytes: &[u8], index: usize) -> Range<usize> {
        let start = self.start as usize;
        if self.ends == 0 {
            let start = start + index * self.fixed as usize;
            return start..start + self.fixed as usize;
        }
        let from = if index == 0 { 0 } else { self.end(bytes, index - 1) };
        start + from..start + self.end(bytes, index)
    }
}

/// Numbers, one per message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Numbers {
    /// The lowest.
    pub(super) low: u64,
    /// Where the offsets lie.
    pub(super) at: u32,
    /// Bytes of an offset: 0, 1, 2, 4 or 8.
    pub(super) width: u8,
}

impl Numbers {
    #[inline]
    fn get(&self, bytes: &[u8], index: usize) -> u64 {
        let at = self.at as usize;
        self.low.wrapping_add(match self.width {
            0 => 0,
            1 => read::<1>(bytes, at + index),
            2 => read::<2>(bytes, at + 2 * index),
            4 => read::<4>(bytes, at + 4 * index),
            _ => read::<8>(bytes, at + 8 * index),
        })
    }
}

#[inline]
fn read<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut window = [0; 8];
    window[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(window)
}

/// A decoded block of messages. Everything is validated when it is decoded: what follows cannot fail.
#[derive(Debug)]
pub struct EntryBlock {
    pub(super) bytes: Piece,
    pub(super) count: u32,
    /// Bytes that all keys have in common; they lie at the front of the buffer.
    pub(super) prefix: u32,
    pub(super) keys: Spans,
    pub(super) payloads: Spans,
    /// Tags, as offsets from the lowest.
    pub(super) tags: Numbers,
    pub(super) stamps: Numbers,
    pub(super) steps: Numbers,
    pub(super) seqs: Numbers,
}

/// The first eight bytes of `string`, so that integers compare as the strings do; zeros follow a short one.
#[inline]
pub(super) fn head(string: &[u8]) -> u64 {
    match string.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut window = [0; 8];
            window[..string.len()].copy_from_slice(string);
            u64::from_be_bytes(window)
        }
    }
}

impl EntryBlock {
    /// Number of messages, at least 1.
    #[inline]
    pub fn count(&self) -> usize {
        self.count as usize
    }

    #[inline]
    fn common(&self) -> &[u8] {
        &self.bytes[..self.prefix as usize]
    }

    /// What follows the common prefix in the key of message `index`.
    #[inline]
    pub(super) fn rest(&self, index: usize) -> &[u8] {
        &self.bytes[self.keys.get(&self.bytes, index)]
    }

    /// [`head`] of the rest of message `index`, read with one load (E4).
    #[inline]
    fn rest_head(&self, index: usize) -> u64 {
        let span = self.keys.get(&self.bytes, index);
        let length = span.end - span.start;
        let word = self.bytes[span.start..].first_chunk::<8>().map_or(0, |chunk| u64::from_be_bytes(*chunk));
        if length >= 8 {
            word
        } else if length == 0 {
            0
        } else {
            word & (u64::MAX << (64 - 8 * length))
        }
    }

    /// True when the rest of message `index` is below that of message `other`.
    #[inline]
    pub(super) fn rest_below(&self, index: usize, other: usize) -> bool {
        match self.rest_head(index).cmp(&self.rest_head(other)) {
            Ordering::Equal => self.rest(index) < self.rest(other),
            order => order.is_lt(),
        }
    }

    /// Has the processor read what a search looks at, and where the payload that it finds is looked up: one place after the other
    /// would each cost a read of memory.
    #[inline]
    fn prefetch_keys(&self) {
        let keys = self.payloads.start as usize;
        let (prefix, rests) = (self.prefix as usize, keys - self.prefix as usize);
        if keys <= SEARCHED_BYTES {
            self.bytes.prefetch(0..keys);
        } else {
            for quarter in 1..4 {
                let at = prefix + rests / 4 * quarter;
                self.bytes.prefetch(at..at + 1);
            }
        }
        let ends = self.payloads.ends as usize;
        if ends > 0 && self.count() <= SEARCHED_BYTES / 8 {
            self.bytes.prefetch(ends..ends + 2 * self.count());
        }
    }

    /// Has the processor read the payload of message `index`, if there is one, or the front of a long one.
    #[inline]
    pub fn prefetch_payload(&self, index: usize) {
        if index < self.count() {
            let span = self.payloads.get(&self.bytes, index);
            self.bytes.prefetch(span.start..span.end.min(span.start + FRONT_BYTES));
        }
    }

    /// Number of the first message whose key is at or above `key`; `count()` if there is none.
    #[inline]
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        self.prefetch_keys();
        let common = self.common();
        let shared = common.len().min(key.len());
        match key[..shared].cmp(&common[..shared]) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.count(),
            Ordering::Equal if key.len() < common.len() => return 0,
            Ordering::Equal => {}
        }
        let rest = &key[common.len()..];
        let wanted = head(rest);
        let (mut low, mut length) = (0, self.count());
        while length > 0 {
            let half = length / 2;
            let middle = low + half;
            let found = self.rest_head(middle);
            let below = found < wanted || (found == wanted && self.rest(middle) < rest);
            low = if below { middle + 1 } else { low };
            length = if below { length - half - 1 } else { half };
        }
        low
    }

    /// True when message `index` has exactly this key.
    #[inline]
    pub fn key_equals(&self, index: usize, key: &[u8]) -> bool {
        key.split_at_checked(self.prefix as usize)
            .is_some_and(|(common, rest)| rest == self.rest(index) && common == self.common())
    }

    /// Compares the key of message `index` with `key`.
    #[inline]
    pub fn key_cmp(&self, index: usize, key: &[u8]) -> Ordering {
        let common = self.common();
        match key.split_at_checked(common.len()) {
            Some((front, rest)) => common.cmp(front).then_with(|| self.rest(index).cmp(rest)),
            None => common.cmp(key),
        }
    }

    /// True when messages `index` and `other` have the same key.
    #[inline]
    pub fn same_key(&self, index: usize, other: usize) -> bool {
        self.rest(index) == self.rest(other)
    }

    /// Replaces `out` by the key of message `index`.
    #[inline]
    pub fn copy_key(&self, index: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.common());
        out.extend_from_slice(self.rest(index));
    }

    /// Message `index`, whose key the caller has at hand.
    #[inline]
    pub fn message<'a>(&'a self, index: usize, key: &'a [u8]) -> Message<'a> {
        let bytes: &[u8] = &self.bytes;
        let tag = self.tags.get(bytes, index) as u8;
        let stamp = if tag & (TAG_COMMITTED | TAG_WRITTEN) == 0 {
            Stamp::Settled
        } else if tag & TAG_COMMITTED != 0 {
            Stamp::Committed(CommitNumber(self.stamps.get(bytes, index)))
        } else {
            Stamp::Written { txn: TxnId(self.stamps.get(bytes, index)), step: self.steps.get(bytes, index) as u32 }
        };
        Message {
            key,
            seq: self.seqs.get(bytes, index),
            stamp,
            kind: kind_of(tag),
            blob: tag & TAG_BLOB != 0,
            payload: self.payload_bytes(index),
        }
    }

    /// Kind of message `index`.
    #[inline]
    pub fn kind(&self, index: usize) -> Kind {
        kind_of(self.tags.get(&self.bytes, index) as u8)
    }

    /// True when its messages are puts of values, each the only one of its key, all with one stamp: who sees one of them sees
    /// all, and needs to look at no other message of the block for it.
    #[inline]
    pub fn is_uniform(&self) -> bool {
        let same = self.tags.width == 0 && self.stamps.width == 0 && self.steps.width == 0;
        same && self.tags.low & !u64::from(TAG_COMMITTED | TAG_WRITTEN) == u64::from(TAG_PUT)
    }

    /// Payload of message `index`.
    #[inline]
    pub fn payload_bytes(&self, index: usize) -> &[u8] {
        &self.bytes[self.payloads.get(&self.bytes, index)]
    }

    /// Payload of message `index`, keeping the block alive.
    #[inline]
    pub fn payload(self: &Arc<Self>, index: usize) -> Payload {
        let span = self.payloads.get(&self.bytes, index);
        Payload { block: Arc::clone(self), start: span.start as u32, bytes: (span.end - span.start) as u32 }
    }

    /// Bytes really allocated that no pool counts.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.uncounted_bytes() + size_of::<EntryBlock>() + 2 * size_of::<usize>()
    }

    /// Bytes of the messages as they lie in memory.
    pub fn raw_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The kind in a tag, which was validated (E2).
#[inline]
fn kind_of(tag: u8) -> Kind {
    match tag & TAG_KIND {
        TAG_PUT => Kind::Put,
        2 => Kind::InsertIfAbsent,
        3 => Kind::Delete,
        4 => Kind::SingleDelete,
        _ => Kind::Update,
    }
}

/// A payload that keeps its block alive. Derefs to the bytes.
#[derive(Debug, Clone)]
pub struct Payload {
    block: Arc<EntryBlock>,
    start: u32,
    bytes: u32,
}

impl std::ops::Deref for Payload {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.block.bytes[self.start as usize..self.start as usize + self.bytes as usize]
    }
}

/// A cursor over the messages of one block. Owns the block and a copy of the key it stands on, whose
/// memory it keeps from block to block.
#[derive(Debug, Default)]
pub struct EntryCursor {
    block: Option<Arc<EntryBlock>>,
    /// Message it stands on; the block's count when on none.
    index: usize,
    key: Vec<u8>,
}

#[expect(clippy::should_implement_trait, reason = "`next` moves a cursor; what it stands on is borrowed from it")]
impl EntryCursor {
    /// Over `block`, standing nowhere.
    pub fn new(block: Arc<EntryBlock>) -> EntryCursor {
        let mut cursor = EntryCursor::default();
        cursor.reset(block);
        cursor
    }

    /// Goes over to another block, standing nowhere.
    #[inline]
    pub fn reset(&mut self, block: Arc<EntryBlock>) {
        self.index = block.count();
        self.key.clear();
        self.key.reserve(block.prefix as usize + REST_BYTES_USUAL);
        self.key.extend_from_slice(block.common());
        self.block = Some(block);
    }

    /// Lets go of the block, standing nowhere.
    pub fn clear(&mut self) {
        self.block = None;
        self.index = 0;
    }

    /// The block, unless it has none.
    pub fn block(&self) -> Option<&Arc<EntryBlock>> {
        self.block.as_ref()
    }

    /// Number of the message it stands on.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Stands on message `index`; false (and nowhere) when there is no such message.
    #[inline]
    pub fn move_to(&mut self, index: usize) -> bool {
        let Some(block) = &self.block else { return false };
        if index >= block.count() {
            self.index = block.count();
            return false;
        }
        self.index = index;
        self.key.truncate(block.prefix as usize);
        let span = block.keys.get(&block.bytes, index);
        let length = span.end - span.start;
        match block.bytes[span.start..].first_chunk::<8>() {
            // E4. A copy of a length that is known beforehand is no call.
            Some(chunk) if length <= 8 => {
                self.key.extend_from_slice(chunk);
                self.key.truncate(block.prefix as usize + length);
            }
            _ => self.key.extend_from_slice(&block.bytes[span]),
        }
        true
    }

    /// First (newest) message of the lowest key at or above `key`; false if there is none.
    pub fn seek(&mut self, key: &[u8]) -> bool {
        let Some(block) = &self.block else { return false };
        let index = block.lower_bound(key);
        block.prefetch_payload(index);
        self.move_to(index)
    }

    /// Last (oldest) message of the highest key below `key`; false if there is none.
    pub fn seek_before(&mut self, key: &[u8]) -> bool {
        let index = self.block.as_ref().map_or(0, |block| block.lower_bound(key));
        self.move_to(index.wrapping_sub(1))
    }

    /// First message.
    pub fn first(&mut self) -> bool {
        self.move_to(0)
    }

    /// Last message.
    pub fn last(&mut self) -> bool {
        let count = self.block.as_ref().map_or(0, |block| block.count());
        self.move_to(count.wrapping_sub(1))
    }

    /// Next message; false (and nowhere) at the end.
    #[inline]
    pub fn next(&mut self) -> bool {
        self.move_to(self.index.saturating_add(1))
    }

    /// Shows `take` the messages that follow, up to `most`: what all keys of the block have in common, the rest of the key, the
    /// payload. Stands on the last one of those before the first that it refuses; how many those are.
    #[inline]
    pub fn pass(&mut self, most: usize, mut take: impl FnMut(&[u8], &[u8], &[u8]) -> bool) -> usize {
        let Some(block) = &self.block else { return 0 };
        let first = self.index.saturating_add(1);
        let end = block.count().min(first.saturating_add(most));
        let mut at = first;
        while at < end && take(block.common(), block.rest(at), block.payload_bytes(at)) {
            at += 1;
        }
        let passed = at.saturating_sub(first);
        if passed > 0 {
            self.move_to(at - 1);
        }
        passed
    }

    /// Previous message; false (and nowhere) at the start.
    #[inline]
    pub fn prev(&mut self) -> bool {
        if !self.valid() {
            return false;
        }
        self.move_to(self.index.wrapping_sub(1))
    }

    /// True when it stands on a message.
    #[inline]
    pub fn valid(&self) -> bool {
        self.block.as_ref().is_some_and(|block| self.index < block.count())
    }

    /// Key it stands on. Meaningful only where [`EntryCursor::valid`].
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Message it stands on.
    ///
    /// # Panics
    /// When it stands nowhere.
    #[inline]
    pub fn message(&self) -> Message<'_> {
        match &self.block {
            Some(block) if self.index < block.count() => block.message(self.index, &self.key),
            _ => panic!("{}", Error::internal("the cursor stands on no message")),
        }
    }

    /// Payload it stands on.
    ///
    /// # Panics
    /// When it stands nowhere.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        match &self.block {
            Some(block) if self.index < block.count() => block.payload_bytes(self.index),
            _ => panic!("{}", Error::internal("the cursor stands on no message")),
        }
    }
}
