//! Decodes entry blocks: raw bytes in (their form is described in [`super::builder`]), arrays out
//! ([`super::entries`]). Refuses everything that could make a later access fail, and sizes that no
//! builder produces before anything is allocated for them.

use super::builder::{
    BLOCK_BYTES_MAX, FLAG_KEY_PLANES, FLAG_PAYLOAD_PLANES, FLAG_SEQ, TAG_BLOB, TAG_COMMITTED, TAG_KIND, TAG_SAME_KEY,
    TAG_WRITTEN,
};
use super::columns::{Ints, Plane, take_plane};
use super::entries::{EntryBlock, Numbers, Spans};
use crate::base::codec::Decoder;
use crate::base::{Error, Result};
use crate::format::Kind;
use std::cell::Cell;

/// Capacities are multiples of this.
const CAPACITY_UNIT: usize = 1024;
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

fn damaged(what: &str) -> Error {
    Error::corruption(format!("entry block: {what}"))
}

impl EntryBlock {
    /// Decodes and validates the raw form. `seq`: what [`crate::format::Message::seq`] is if the block stores none.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(raw: &[u8], seq: u64) -> Result<EntryBlock> {
        let mut decoder = Decoder::new(raw);
        let flags = decoder.u8()?;
        let count = decoder.length()?;
        if flags & !(FLAG_SEQ | FLAG_KEY_PLANES | FLAG_PAYLOAD_PLANES) != 0 || count == 0 || count > COUNT_MAX {
            return Err(damaged(&format!("impossible header, flags={flags} count={count}")));
        }
        // Only a block of a single message may be larger, and that one is not packed.
        let limit = if count == 1 { DECODED_BYTES_MAX + raw.len() } else { DECODED_BYTES_MAX };
        let tags = Tags::decode(&mut decoder, count)?;
        let [mut plane, key_matrix, payload_matrix] = SCRATCH.take();
        let keys =
            Keys::decode(&mut decoder, flags & FLAG_KEY_PLANES != 0, tags.distinct, limit, &mut plane, key_matrix)?;
        let payloads =
            decode_payloads(&mut decoder, flags & FLAG_PAYLOAD_PLANES != 0, count, limit, &mut plane, payload_matrix)?;
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

        let mut bytes = Vec::with_capacity(arrays.bytes.next_multiple_of(CAPACITY_UNIT));
        keys.put_prefix(prefix, &mut bytes);
        bytes.resize(arrays.bytes, 0);
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
            SCRATCH.set(scratch);
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

    fn fill_payloads(&mut self, payloads: &Strings<'_>) {
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

/// Tags, every one of them valid.
struct Tags<'a> {
    ints: Ints<'a>,
    /// Messages with a key of their own, with a stamp, with a step.
    distinct: usize,
    stamped: usize,
    written: usize,
    /// Number of the key of each message; empty when each has its own.
    owners: Vec<u32>,
}

impl<'a> Tags<'a> {
    fn decode(decoder: &mut Decoder<'a>, count: usize) -> Result<Tags<'a>> {
        let mut tags =
            Tags { ints: Ints::decode(decoder, count)?, distinct: 0, stamped: 0, written: 0, owners: Vec::new() };
        let checked = if tags.ints.is_constant() { 1 } else { count };
        for index in 0..checked {
            let tag = u8::try_from(tags.ints.get(index)).map_err(|_| damaged("impossible tag"))?;
            Kind::from_number(tag & TAG_KIND)?;
            let known = TAG_KIND | TAG_BLOB | TAG_SAME_KEY | TAG_COMMITTED | TAG_WRITTEN;
            if tag & !known != 0 || tag & (TAG_COMMITTED | TAG_WRITTEN) == TAG_COMMITTED | TAG_WRITTEN {
                return Err(damaged("impossible tag"));
            }
            tags.distinct += usize::from(tag & TAG_SAME_KEY == 0);
            tags.stamped += usize::from(tag & (TAG_COMMITTED | TAG_WRITTEN) != 0);
            tags.written += usize::from(tag & TAG_WRITTEN != 0);
        }
        if tags.is(0, TAG_SAME_KEY) {
            return Err(damaged("the first message has no key"));
        }
        if checked < count {
            tags.distinct *= count;
            tags.stamped *= count;
            tags.written *= count;
        }
        if tags.distinct < count {
            let mut keys = 0;
            tags.owners = (0..count)
                .map(|index| {
                    keys += u32::from(!tags.is(index, TAG_SAME_KEY));
                    keys - 1
                })
                .collect();
        }
        Ok(tags)
    }

    fn is(&self, index: usize, mask: u8) -> bool {
        self.ints.get(index) as u8 & mask != 0
    }

    #[inline]
    fn key_of(&self, index: usize) -> usize {
        self.owners.get(index).map_or(index, |key| *key as usize)
    }
}

/// Strings as they are stored: the same byte of each in a plane, then what is left of each.
struct Strings<'a> {
    lengths: Ints<'a>,
    planes: Vec<PlaneAt>,
    /// The varied planes. Working memory, see [`SCRATCH`].
    matrix: Vec<u8>,
    tails: &'a [u8],
}

#[derive(Clone, Copy)]
enum PlaneAt {
    Constant(u8),
    /// Where in the matrix it begins.
    Matrix(usize),
}

/// Sum of a column of lengths, or an error past `limit`.
fn total(lengths: &Ints<'_>, count: usize, limit: usize) -> Result<usize> {
    let sum = if lengths.is_constant() {
        usize::try_from(lengths.low()).ok().and_then(|length| length.checked_mul(count))
    } else {
        (0..count).try_fold(0usize, |sum, index| sum.checked_add(usize::try_from(lengths.get(index)).ok()?))
    };
    sum.filter(|sum| *sum <= limit).ok_or_else(|| damaged("strings too long"))
}

impl<'a> Strings<'a> {
    #[expect(clippy::too_many_arguments, reason = "private, called twice, each argument of another kind")]
    /// Reads `columns` planes of `rows` strings, which have `bytes` bytes in all, and their tails.
    fn decode(
        decoder: &mut Decoder<'a>,
        lengths: Ints<'a>,
        columns: usize,
        rows: usize,
        bytes: usize,
        limit: usize,
        plane: &mut Vec<u8>,
        mut matrix: Vec<u8>,
    ) -> Result<Strings<'a>> {
        if columns > decoder.remaining() / 2 {
            return Err(damaged("more planes than bytes"));
        }
        let mut planes = Vec::with_capacity(columns);
        matrix.clear();
        for _ in 0..columns {
            planes.push(match take_plane(decoder, rows, plane)? {
                Plane::Constant(value) => PlaneAt::Constant(value),
                Plane::Varied if matrix.len() + rows > limit => return Err(damaged("planes too large")),
                Plane::Varied => {
                    matrix.extend_from_slice(plane);
                    PlaneAt::Matrix(matrix.len() - rows)
                }
            });
        }
        let tails = columns.checked_mul(rows).and_then(|in_planes| bytes.checked_sub(in_planes));
        let tails = decoder.take(tails.ok_or_else(|| damaged("planes larger than their strings"))?)?;
        Ok(Strings { lengths, planes, matrix, tails })
    }

    fn length(&self, index: usize) -> usize {
        self.lengths.get(index) as usize
    }

    /// Fills strings of one length into the `rows` rows of `out`, leaving out their first `skip` bytes.
    fn fill_fixed(&self, out: &mut [u8], stride: usize, skip: usize, rows: usize) {
        if stride == 0 {
            return;
        }
        for (column, plane) in self.planes.iter().skip(skip).enumerate() {
            match *plane {
                PlaneAt::Constant(0) => {}
                PlaneAt::Constant(value) => out.chunks_exact_mut(stride).for_each(|row| row[column] = value),
                PlaneAt::Matrix(at) => {
                    let values = &self.matrix[at..at + rows];
                    out.chunks_exact_mut(stride).zip(values).for_each(|(row, value)| row[column] = *value);
                }
            }
        }
        let in_planes = self.planes.len() - skip;
        if stride > in_planes {
            for (row, tail) in out.chunks_exact_mut(stride).zip(self.tails.chunks_exact(stride - in_planes)) {
                row[in_planes..].copy_from_slice(tail);
            }
        }
    }

    /// Fills string `row`, whose tail begins at `tail`, into `out`, leaving out its first `skip` bytes.
    fn fill_one(&self, out: &mut [u8], skip: usize, row: usize, tail: usize) {
        for (slot, plane) in out.iter_mut().zip(self.planes.iter().skip(skip)) {
            *slot = match *plane {
                PlaneAt::Constant(value) => value,
                PlaneAt::Matrix(at) => self.matrix[at + row],
            };
        }
        let in_planes = self.planes.len() - skip;
        let rest = out.len() - in_planes;
        out[in_planes..].copy_from_slice(&self.tails[tail..tail + rest]);
    }
}

fn decode_payloads<'a>(
    decoder: &mut Decoder<'a>,
    planes: bool,
    count: usize,
    limit: usize,
    plane: &mut Vec<u8>,
    matrix: Vec<u8>,
) -> Result<Strings<'a>> {
    let lengths = Ints::decode(decoder, count)?;
    let bytes = total(&lengths, count, limit)?;
    if !planes {
        return Ok(Strings { lengths, planes: Vec::new(), matrix, tails: decoder.take(bytes)? });
    }
    let (mut columns, mut rows) = (usize::MAX, 0);
    for length in (0..count).map(|index| lengths.get(index) as usize).filter(|length| *length > 0) {
        columns = columns.min(length);
        rows += 1;
    }
    Strings::decode(decoder, lengths, if rows == 0 { 0 } else { columns }, rows, bytes, limit, plane, matrix)
}

/// Keys as they are stored.
enum Keys<'a> {
    Planes(Strings<'a>),
    Rows { shared: Ints<'a>, rests: Ints<'a>, bytes: &'a [u8] },
}

impl<'a> Keys<'a> {
    fn decode(
        decoder: &mut Decoder<'a>,
        planes: bool,
        distinct: usize,
        limit: usize,
        plane: &mut Vec<u8>,
        matrix: Vec<u8>,
    ) -> Result<Keys<'a>> {
        let first = Ints::decode(decoder, distinct)?;
        if planes {
            // These lengths count the common prefix, which lies in memory once: the limit is checked later.
            let bytes = total(&first, distinct, usize::MAX)?;
            let columns = if first.is_constant() {
                first.low() as usize
            } else {
                (0..distinct).map(|index| first.get(index) as usize).min().unwrap_or(0)
            };
            return Ok(Keys::Planes(Strings::decode(decoder, first, columns, distinct, bytes, limit, plane, matrix)?));
        }
        let rests = Ints::decode(decoder, distinct)?;
        let bytes = decoder.take(total(&rests, distinct, decoder.remaining())?)?;
        let mut before = 0u64;
        for index in 0..distinct {
            let shared = first.get(index);
            if shared > before {
                return Err(damaged("a key shares more than there is"));
            }
            before = shared + rests.get(index);
        }
        Ok(Keys::Rows { shared: first, rests, bytes })
    }

    /// Bytes that all keys have in common.
    fn prefix(&self, distinct: usize) -> usize {
        match self {
            Keys::Planes(strings) => {
                strings.planes.iter().take_while(|plane| matches!(plane, PlaneAt::Constant(_))).count()
            }
            Keys::Rows { shared, rests, .. } => {
                (1..distinct).map(|index| shared.get(index)).min().unwrap_or_else(|| rests.get(0)) as usize
            }
        }
    }

    fn length(&self, index: usize) -> usize {
        match self {
            Keys::Planes(strings) => strings.length(index),
            Keys::Rows { shared, rests, .. } => (shared.get(index) + rests.get(index)) as usize,
        }
    }

    fn same_length(&self, distinct: usize) -> bool {
        match self {
            Keys::Planes(strings) => strings.lengths.is_constant(),
            Keys::Rows { .. } => (1..distinct).all(|index| self.length(index) == self.length(0)),
        }
    }

    /// Appends the first `prefix` bytes of the first key.
    fn put_prefix(&self, prefix: usize, out: &mut Vec<u8>) {
        match self {
            Keys::Planes(strings) => out.extend(strings.planes[..prefix].iter().map(|plane| match plane {
                PlaneAt::Constant(value) => *value,
                PlaneAt::Matrix(_) => 0,
            })),
            Keys::Rows { bytes, .. } => out.extend_from_slice(&bytes[..prefix]),
        }
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
