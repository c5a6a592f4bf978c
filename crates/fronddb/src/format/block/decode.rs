//! Decodes entry blocks: raw bytes in (their form is described in [`super::builder`]), arrays out
//! ([`super::entries`]). Refuses everything that could make a later access fail, and sizes that no
//! builder produces before anything is allocated for them.

use super::builder::{
    BLOCK_BYTES_MAX, FLAG_HEADS_FIRST, FLAG_KEY_PLANES, FLAG_PAYLOAD_PLANES, FLAG_SEQ, TAG_COMMITTED, TAG_SAME_KEY,
    TAG_WRITTEN,
};
use super::entries::{EntryBlock, Numbers, Spans};
use super::stored::{Form, Keys, Tags, damaged, decode_payloads};
use crate::base::codec::Decoder;
use crate::base::pool::{Piece, Pool};
use crate::base::{Result, scratch};
use crate::format::columns::Ints;
use crate::format::strings::StoredStrings;
use std::cell::Cell;

/// Zeros at the end (E4).
const PADDING: usize = 8;
/// Most messages in a block: each counts for a byte at least ([`super::EntryBlockBuilder::size`]).
const COUNT_MAX: usize = BLOCK_BYTES_MAX;
/// Largest decoded block of several messages: tables and numbers take up to 29 bytes a message where
/// the builder's estimate has 14.
const DECODED_BYTES_MAX: usize = 16 * BLOCK_BYTES_MAX;

/// Planes of larger blocks are not kept as working memory.
const SCRATCH_BYTES_MAX: usize = 128 << 10;

thread_local! {
    /// Memory for planes, kept between blocks: what comes and goes with each block between the blocks that stay would
    /// fragment the allocator's memory.
    static SCRATCH: Cell<[Vec<u8>; 3]> = const { Cell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

impl EntryBlock {
    /// Decodes and validates the raw form, into memory of its own. `seq`: what [`crate::format::Message::seq`] is if
    /// the block stores none.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(raw: &[u8], seq: u64) -> Result<EntryBlock> {
        EntryBlock::decode_with(raw, seq, Piece::alone)
    }

    /// As [`EntryBlock::decode`], into memory of `pool`.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode_in(raw: &[u8], seq: u64, pool: &Pool) -> Result<EntryBlock> {
        EntryBlock::decode_with(raw, seq, |length| pool.take(length))
    }

    fn decode_with(raw: &[u8], seq: u64, memory: impl FnOnce(usize) -> Piece) -> Result<EntryBlock> {
        let mut decoder = Decoder::new(raw);
        let flags = decoder.u8()?;
        let count = decoder.length()?;
        let known = FLAG_SEQ | FLAG_KEY_PLANES | FLAG_PAYLOAD_PLANES | FLAG_HEADS_FIRST;
        if flags & !known != 0 || count == 0 || count > COUNT_MAX {
            return Err(damaged(&format!("impossible header, flags={flags} count={count}")));
        }
        // Only a block of a single message may be larger, and that one is not packed.
        let limit = if count == 1 { DECODED_BYTES_MAX + raw.len() } else { DECODED_BYTES_MAX };
        let tags = Tags::decode(&mut decoder, count)?;
        let [mut plane, key_matrix, payload_matrix] = scratch::take(&SCRATCH);
        let form = |planes: u8| match (flags & planes != 0, flags & FLAG_HEADS_FIRST != 0) {
            (false, _) => Form::Rows,
            (true, heads_first) => Form::Planes { heads_first },
        };
        let keys = form(FLAG_KEY_PLANES);
        let keys = Keys::decode(&mut decoder, keys, tags.distinct, limit, &mut plane, key_matrix)?;
        let payloads = form(FLAG_PAYLOAD_PLANES);
        let payloads = decode_payloads(&mut decoder, payloads, count, limit, &mut plane, payload_matrix)?;
        let stamps = Ints::decode(&mut decoder, tags.stamped)?;
        let steps = Ints::decode(&mut decoder, tags.written)?;
        let seqs = if flags & FLAG_SEQ != 0 { Some(Ints::decode(&mut decoder, count)?) } else { None };
        decoder.finish()?;
        if (0..tags.written).any(|index| steps.get(index) > u64::from(u32::MAX)) {
            return Err(damaged("impossible step"));
        }

        let prefix = keys.prefix(tags.distinct);
        let mut arrays = Arrays { bytes: 0, limit };
        arrays.place(prefix)?;
        let key_lengths =
            Lengths { same: keys.same_length(tags.distinct), of: |index| keys.length(tags.key_of(index)) - prefix };
        let payload_lengths = Lengths { same: payloads.lengths.is_constant(), of: |index| payloads.length(index) };
        let mut key_spans = arrays.strings(&key_lengths, count)?;
        let mut payload_spans = arrays.strings(&payload_lengths, count)?;
        arrays.ends(&mut key_spans, &key_lengths, count)?;
        arrays.ends(&mut payload_spans, &payload_lengths, count)?;
        let tag_numbers = arrays.numbers(&tags.ints, count)?;
        let stamp_numbers = arrays.numbers(&stamps, if tags.stamped > 0 { count } else { 0 })?;
        let step_numbers = arrays.numbers(&steps, if tags.written > 0 { count } else { 0 })?;
        let seq_numbers = match &seqs {
            Some(seqs) => arrays.numbers(seqs, count)?,
            None => Numbers { low: seq, ..Numbers::default() },
        };
        arrays.place(PADDING)?;

        let mut bytes = memory(arrays.bytes);
        bytes.fill(0);
        keys.put_prefix(&mut bytes[..prefix]);
        put_ends(&mut bytes, key_spans, &key_lengths, count);
        put_ends(&mut bytes, payload_spans, &payload_lengths, count);
        let mut block = EntryBlock {
            bytes,
            count: count as u32,
            prefix: prefix as u32,
            keys: key_spans,
            payloads: payload_spans,
            tags: tag_numbers,
            stamps: stamp_numbers,
            steps: step_numbers,
            seqs: seq_numbers,
        };
        block.fill_keys(&keys, &tags);
        block.fill_payloads(&payloads);
        put_numbers(&mut block.bytes, tag_numbers, (0..count).map(|index| Some(tags.ints.get(index))));
        let mut next = 0..;
        let stamped = |index| tags.is(index, TAG_COMMITTED | TAG_WRITTEN).then(|| stamps.get(next.next().unwrap_or(0)));
        put_numbers(&mut block.bytes, stamp_numbers, (0..count).map(stamped));
        let mut next = 0..;
        let written = |index| tags.is(index, TAG_WRITTEN).then(|| steps.get(next.next().unwrap_or(0)));
        put_numbers(&mut block.bytes, step_numbers, (0..count).map(written));
        if let Some(seqs) = &seqs {
            put_numbers(&mut block.bytes, seq_numbers, (0..count).map(|index| Some(seqs.get(index))));
        }
        block.check_order(&tags)?;
        let key_matrix = match keys {
            Keys::Planes(strings) => strings.matrix,
            Keys::Rows { .. } => Vec::new(),
        };
        let scratch = [plane, key_matrix, payloads.matrix];
        if scratch.iter().all(|memory| memory.capacity() <= SCRATCH_BYTES_MAX) {
            scratch::keep(&SCRATCH, scratch);
        }
        Ok(block)
    }

    fn fill_keys(&mut self, keys: &Keys<'_>, tags: &Tags<'_>) {
        let (count, prefix) = (self.count(), self.prefix as usize);
        match keys {
            Keys::Planes(strings) if self.keys.ends == 0 && tags.owners.is_empty() => {
                let (start, stride) = (self.keys.start as usize, self.keys.fixed as usize);
                strings.fill_fixed(&mut self.bytes[start..start + stride * count], stride, prefix, count);
            }
            Keys::Planes(strings) => {
                let (mut row, mut tail, mut next_tail) = (usize::MAX, 0, 0);
                for index in 0..count {
                    if tags.key_of(index) != row {
                        row = tags.key_of(index);
                        tail = next_tail;
                        next_tail += strings.length(row) - strings.planes.len();
                    }
                    let span = self.keys.get(&self.bytes, index);
                    strings.fill_one(&mut self.bytes[span], prefix, row, tail);
                }
            }
            Keys::Rows { shared, rests, bytes } => {
                let (mut row, mut at, mut before) = (usize::MAX, 0, 0..0);
                for index in 0..count {
                    let span = self.keys.get(&self.bytes, index);
                    if tags.key_of(index) == row {
                        self.bytes.copy_within(before, span.start);
                    } else {
                        row = tags.key_of(index);
                        let rest = &bytes[at..at + rests.get(row) as usize];
                        at += rest.len();
                        // The first key shares nothing with a key before it, but its prefix lies apart.
                        let (copied, rest) = match row {
                            0 => (0, &rest[prefix..]),
                            _ => (shared.get(row) as usize - prefix, rest),
                        };
                        self.bytes.copy_within(before.start..before.start + copied, span.start);
                        self.bytes[span.start + copied..span.end].copy_from_slice(rest);
                    }
                    before = span;
                }
            }
        }
    }

    fn fill_payloads(&mut self, payloads: &StoredStrings<'_>) {
        let start = self.payloads.start as usize;
        if payloads.planes.is_empty() {
            self.bytes[start..start + payloads.tails.len()].copy_from_slice(payloads.tails);
        } else if self.payloads.ends == 0 {
            let stride = self.payloads.fixed as usize;
            let count = self.count();
            payloads.fill_fixed(&mut self.bytes[start..start + stride * count], stride, 0, count);
        } else {
            let (mut row, mut tail) = (0, 0);
            for index in 0..self.count() {
                let span = self.payloads.get(&self.bytes, index);
                if !span.is_empty() {
                    let rest = span.len() - payloads.planes.len();
                    payloads.fill_one(&mut self.bytes[span], 0, row, tail);
                    row += 1;
                    tail += rest;
                }
            }
        }
    }

    fn check_order(&self, tags: &Tags<'_>) -> Result<()> {
        for index in 1..self.count() {
            if !tags.is(index, TAG_SAME_KEY) && !self.rest_below(index - 1, index) {
                return Err(damaged("keys out of order"));
            }
        }
        Ok(())
    }
}

/// Lengths of strings by message.
struct Lengths<F: Fn(usize) -> usize> {
    /// All are the same.
    same: bool,
    of: F,
}

/// Lays out the arrays of a block.
struct Arrays {
    /// Bytes laid out so far.
    bytes: usize,
    limit: usize,
}

impl Arrays {
    fn place(&mut self, bytes: usize) -> Result<u32> {
        let at = self.bytes;
        self.bytes = at.checked_add(bytes).filter(|end| *end <= self.limit).ok_or_else(|| damaged("too large"))?;
        Ok(at as u32)
    }

    fn strings<F: Fn(usize) -> usize>(&mut self, lengths: &Lengths<F>, count: usize) -> Result<Spans> {
        let sum = if lengths.same {
            (lengths.of)(0).checked_mul(count)
        } else {
            (0..count).try_fold(0usize, |sum, index| sum.checked_add((lengths.of)(index)))
        };
        let sum = sum.ok_or_else(|| damaged("too large"))?;
        let start = self.place(sum)?;
        let fixed = if lengths.same { (lengths.of)(0) as u32 } else { 0 };
        Ok(Spans { start, fixed, ends: 0, wide: sum > usize::from(u16::MAX) })
    }

    fn ends<F: Fn(usize) -> usize>(&mut self, spans: &mut Spans, lengths: &Lengths<F>, count: usize) -> Result<()> {
        if !lengths.same {
            // Position 0 means that there is no table; it cannot be one, because strings of different lengths
            // lie in front of it.
            spans.ends = self.place(count * if spans.wide { 4 } else { 2 })?;
        }
        Ok(())
    }

    fn numbers(&mut self, ints: &Ints<'_>, count: usize) -> Result<Numbers> {
        let width = ints.width_bytes();
        Ok(Numbers { low: ints.low(), at: self.place(count * width)?, width: width as u8 })
    }
}

fn put_ends<F: Fn(usize) -> usize>(bytes: &mut [u8], spans: Spans, lengths: &Lengths<F>, count: usize) {
    if spans.ends == 0 {
        return;
    }
    let width = if spans.wide { 4 } else { 2 };
    let table = &mut bytes[spans.ends as usize..];
    let mut end = 0u64;
    for (index, slot) in table.chunks_exact_mut(width).take(count).enumerate() {
        end += (lengths.of)(index) as u64;
        slot.copy_from_slice(&end.to_le_bytes()[..width]);
    }
}

/// Fills a column of numbers; where there is none, the offset stays 0.
fn put_numbers(bytes: &mut [u8], numbers: Numbers, values: impl Iterator<Item = Option<u64>>) {
    let width = usize::from(numbers.width);
    if width == 0 {
        return;
    }
    for (slot, value) in bytes[numbers.at as usize..].chunks_exact_mut(width).zip(values) {
        if let Some(value) = value {
            slot.copy_from_slice(&value.wrapping_sub(numbers.low).to_le_bytes()[..width]);
        }
    }
}
