//! Builds entry blocks: messages in, raw bytes (before compression) out.
//!
//! # Raw form
//!
//! | field | form |
//! |---|---|
//! | flags | u8: 1 sequence numbers stored, 2 keys in planes, 4 payloads in planes, 8 heads of planes first |
//! | count | varint, at least 1 |
//! | tags | integers, one per message: kind (3 bits), 8 blob, 16 same key as the message before, 32 committed, 64 written |
//! | keys | of messages without the same-key bit; in planes or in rows, see below |
//! | payload lengths | integers, one per message |
//! | payload planes | planes 0…P-1 of the payloads that are not empty; P is the least of their lengths. Only with flag 4 |
//! | payload rows | what is left of each payload, end to end |
//! | stamps | integers: commit numbers and transaction ids of messages with bit 32 or 64 |
//! | steps | integers: steps of messages with bit 64 |
//! | sequence numbers | integers, one per message. Only with flag 1 |
//!
//! Keys in planes: lengths (integers) · planes 0…K-1, where K is the least length · what is left of each key.
//! Planes: with flag 8 the heads of all, then their bodies, so that heads, which are much alike, compress; without it,
//! which only version 1 wrote, each head is followed by its body.
//! Keys in rows: bytes shared with the key before (integers) · length of the rest (integers) · the rests.
//!
//! Rows suit text, which a general compressor understands better; the run writer finds out which is
//! smaller (`run/layout.rs`). The stored form is for size only: readers decode it into arrays
//! ([`super::entries`]), which is why there are no restart points in it.

use crate::base::codec::put_varint;
use crate::format::columns::put_ints;
use crate::format::strings::{Planes, Strings};
use crate::format::{Kind, Message, Stamp};

pub(super) const FLAG_SEQ: u8 = 1;
pub(super) const FLAG_KEY_PLANES: u8 = 2;
pub(super) const FLAG_PAYLOAD_PLANES: u8 = 4;
pub(super) const FLAG_HEADS_FIRST: u8 = 8;

pub(super) const TAG_KIND: u8 = 7;
pub(super) const TAG_PUT: u8 = Kind::Put as u8;
pub(super) const TAG_BLOB: u8 = 8;
pub(super) const TAG_SAME_KEY: u8 = 16;
pub(super) const TAG_COMMITTED: u8 = 32;
pub(super) const TAG_WRITTEN: u8 = 64;

/// A block of several messages is cut before it grows past this, so that a decoder can refuse more.
pub const BLOCK_BYTES_MAX: usize = 512 << 10;

/// Which parts of a block are turned into planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Keys in planes, otherwise in rows.
    pub key_planes: bool,
    /// Payloads in planes, otherwise in rows.
    pub payload_planes: bool,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { key_planes: true, payload_planes: true }
    }
}

/// Below this many strings planes are not worth their headers, and layouts are the same.
pub const PLANES_MIN: usize = 8;

/// Builds entry blocks, one after another; keeps its memory between them.
#[derive(Debug)]
pub struct EntryBlockBuilder {
    has_seq: bool,
    tags: Vec<u8>,
    keys: Strings,
    payloads: Strings,
    stamps: Vec<u64>,
    steps: Vec<u64>,
    seqs: Vec<u64>,
    /// Bytes that all keys have in common.
    prefix: usize,
    /// Bytes of the keys in memory, where a key is repeated for each of its messages.
    key_bytes: usize,
    last_start: usize,
    ints: Vec<u64>,
    planes: Planes,
}

impl Default for EntryBlockBuilder {
    fn default() -> EntryBlockBuilder {
        EntryBlockBuilder::new(false)
    }
}

impl EntryBlockBuilder {
    /// An empty builder; `has_seq`: sequence numbers are stored.
    pub fn new(has_seq: bool) -> EntryBlockBuilder {
        let mut builder = EntryBlockBuilder {
            has_seq,
            tags: Vec::new(),
            keys: Strings::default(),
            payloads: Strings::default(),
            stamps: Vec::new(),
            steps: Vec::new(),
            seqs: Vec::new(),
            prefix: 0,
            key_bytes: 0,
            last_start: 0,
            ints: Vec::new(),
            planes: Planes::default(),
        };
        builder.clear();
        builder
    }

    /// Forgets all messages; what follows stores sequence numbers or not.
    pub fn reset(&mut self, has_seq: bool) {
        self.has_seq = has_seq;
        self.clear();
    }

    fn clear(&mut self) {
        self.tags.clear();
        self.keys.clear();
        self.payloads.clear();
        self.stamps.clear();
        self.steps.clear();
        self.seqs.clear();
        self.prefix = 0;
        self.key_bytes = 0;
        self.last_start = 0;
    }

    /// Bytes really allocated, about.
    pub fn memory_bytes(&self) -> usize {
        let words = [&self.stamps, &self.steps, &self.seqs, &self.ints];
        let words: usize = words.iter().map(|list| list.capacity() * size_of::<u64>()).sum();
        let strings = self.keys.memory_bytes() + self.payloads.memory_bytes() + self.planes.memory_bytes();
        self.tags.capacity() + strings + words
    }

    /// Adds a message: its key above the last one's, or the same key and an older message. Returns true
    /// when the key differs from the last one's.
    #[inline]
    pub fn add(&mut self, message: &Message<'_>) -> bool {
        let new_key = self.tags.is_empty() || self.last_key() != message.key;
        self.push(message, new_key);
        new_key
    }

    /// Like [`EntryBlockBuilder::add`], where the caller knows whether the key differs from the last one's (it does
    /// in the first message of a block).
    #[inline]
    pub fn push(&mut self, message: &Message<'_>, new_key: bool) {
        let mut tag = message.kind as u8;
        if message.blob {
            tag |= TAG_BLOB;
        }
        match message.stamp {
            Stamp::Settled => {}
            Stamp::Committed(number) => {
                tag |= TAG_COMMITTED;
                self.stamps.push(number.0);
            }
            Stamp::Written { txn, step } => {
                tag |= TAG_WRITTEN;
                self.stamps.push(txn.0);
                self.steps.push(u64::from(step));
            }
        }
        if new_key {
            if self.tags.is_empty() {
                self.prefix = message.key.len();
            } else {
                self.prefix = self.prefix_with(message.key);
            }
            self.last_start = self.keys.bytes.len();
            self.keys.push(message.key);
        } else {
            tag |= TAG_SAME_KEY;
        }
        self.key_bytes += message.key.len();
        self.tags.push(tag);
        self.payloads.push(message.payload);
        if self.has_seq {
            self.seqs.push(message.seq);
        }
    }

    /// Key of the last message added; empty when there is none.
    #[inline]
    pub fn last_key(&self) -> &[u8] {
        &self.keys.bytes[self.last_start..]
    }

    /// Key of the first message; empty when there is none.
    pub fn first_key(&self) -> &[u8] {
        self.keys.ends.first().map_or(&[], |end| &self.keys.bytes[..*end as usize])
    }

    /// About how many bytes the block takes in memory once decoded.
    #[inline]
    pub fn size(&self) -> usize {
        let count = self.tags.len();
        let per_message = 1
            + if self.keys.shortest == self.keys.longest { 0 } else { 2 }
            + if self.payloads.shortest == self.payloads.longest { 0 } else { 2 }
            + if self.stamps.is_empty() { 0 } else { 6 }
            + if self.has_seq { 4 } else { 0 };
        self.prefix + self.key_bytes - count * self.prefix + self.payloads.bytes.len() + count * per_message
    }

    /// How many bytes all keys and this one have in common.
    #[inline]
    fn prefix_with(&self, key: &[u8]) -> usize {
        match key.get(..self.prefix) == self.keys.bytes.get(..self.prefix) {
            true => self.prefix,
            false => key.iter().zip(&self.keys.bytes).take_while(|(a, b)| a == b).count(),
        }
    }

    /// As [`EntryBlockBuilder::size`], were this message added. A key that has less in common with the others makes all of them longer.
    #[inline]
    pub fn size_with(&self, message: &Message<'_>) -> usize {
        const HEAD_BYTES: usize = 16;
        let longer = (self.prefix - self.prefix_with(message.key)) * self.count().saturating_sub(1);
        self.size() + longer + message.key.len() + message.payload.len() + HEAD_BYTES
    }

    /// Bytes of all payloads.
    pub fn payload_bytes(&self) -> usize {
        self.payloads.bytes.len()
    }

    /// Messages added so far.
    #[inline]
    pub fn count(&self) -> usize {
        self.tags.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// Appends the raw form to `out` and empties the builder for the next block. There must be a message.
    pub fn finish(&mut self, layout: Layout, out: &mut Vec<u8>) {
        self.encode(layout, out);
        self.clear();
    }

    /// Appends the raw form to `out` and keeps the messages, so that another layout can be tried.
    pub fn encode(&mut self, layout: Layout, out: &mut Vec<u8>) {
        let key_planes = layout.key_planes && self.keys.len() >= PLANES_MIN;
        let payload_planes = layout.payload_planes && self.payloads.len() >= PLANES_MIN;
        out.push(
            if self.has_seq { FLAG_SEQ } else { 0 }
                | if key_planes { FLAG_KEY_PLANES } else { 0 }
                | if payload_planes { FLAG_PAYLOAD_PLANES } else { 0 }
                | if key_planes || payload_planes { FLAG_HEADS_FIRST } else { 0 },
        );
        put_varint(out, self.tags.len() as u64);
        self.ints.clear();
        self.ints.extend(self.tags.iter().map(|tag| u64::from(*tag)));
        put_ints(&self.ints, out);
        self.encode_keys(key_planes, out);
        self.encode_payloads(payload_planes, out);
        put_ints(&self.stamps, out);
        put_ints(&self.steps, out);
        if self.has_seq {
            put_ints(&self.seqs, out);
        }
    }

    /// Appends the keys alone, as [`EntryBlockBuilder::encode`] would.
    pub fn encode_keys(&mut self, planes: bool, out: &mut Vec<u8>) {
        if planes {
            return self.planes.put(&self.keys, self.keys.shortest, out);
        }
        self.ints.clear();
        let mut before: &[u8] = &[];
        self.ints.extend(self.keys.iter().map(|key| {
            let shared = before.iter().zip(key).take_while(|(a, b)| a == b).count();
            before = key;
            shared as u64
        }));
        put_ints(&self.ints, out);
        let shared_at = self.ints.len();
        for (index, key) in self.keys.iter().enumerate() {
            self.ints.push(key.len() as u64 - self.ints[index]);
        }
        put_ints(&self.ints[shared_at..], out);
        for (key, shared) in self.keys.iter().zip(&self.ints) {
            out.extend_from_slice(&key[*shared as usize..]);
        }
    }

    /// Appends the payloads alone, as [`EntryBlockBuilder::encode`] would.
    pub fn encode_payloads(&mut self, planes: bool, out: &mut Vec<u8>) {
        let lengths = self.payloads.iter().map(<[u8]>::len).filter(|length| planes && *length > 0);
        let columns = lengths.min().unwrap_or(0);
        self.planes.put(&self.payloads, columns, out);
    }
}
