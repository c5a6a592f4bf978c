//! Columns: how many small integers, or the same byte of many strings, become few bits.
//!
//! Keys and rows of database tables are mostly integers laid end to end: their high bytes hardly vary,
//! their low bytes are noise. General compressors see the noise, and lose the rest in it. Therefore entry
//! blocks are turned by 90 degrees first: byte `p` of all keys becomes one *plane*, and each plane is
//! stored as offsets from its minimum in as few bits as its range needs (frame of reference), or as
//! differences of neighbours if those have the smaller range. A constant plane costs two bytes. Measured
//! in `docs/decisions/0002-block-format.md`: a third fewer bytes than zstd alone, at a quarter of its time.
//!
//! | form | layout |
//! |---|---|
//! | integers | width in bits u8 (0–64), minimum varint, packed offsets, least significant bit first |
//! | plane, head | width u8 (0–8, +16: differences), minimum u8, first value u8 (differences only) |
//! | plane, body | packed offsets |
//!
//! `n` offsets of `w` bits take `⌈n·w/8⌉` bytes; the bits left over are 0.

use crate::base::codec::{Decoder, put_varint};
use crate::base::{Error, Result};

/// Set in a plane's width when the offsets are of differences between neighbours.
const DIFFERENCES: u8 = 16;

/// Below this many values a plane is never stored as differences: nothing to gain.
const DIFFERENCES_MIN: usize = 8;

/// Appends `values` as an integer column.
pub(super) fn put_ints(values: &[u64], out: &mut Vec<u8>) {
    let low = values.iter().copied().min().unwrap_or(0);
    let high = values.iter().copied().max().unwrap_or(0);
    let width = 64 - (high - low).leading_zeros();
    out.push(width as u8);
    put_varint(out, low);
    if width == 0 {
        return;
    }
    let (mut bits, mut held) = (0u128, 0);
    for value in values {
        bits |= u128::from(value - low) << held;
        held += width;
        while held >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
    if held > 0 {
        out.push(bits as u8);
    }
}

/// An integer column, borrowed from where it is stored.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ints<'a> {
    low: u64,
    width: usize,
    packed: &'a [u8],
}

impl<'a> Ints<'a> {
    /// Reads a column of `count` values.
    pub(super) fn decode(decoder: &mut Decoder<'a>, count: usize) -> Result<Ints<'a>> {
        let width = usize::from(decoder.u8()?);
        let low = decoder.varint()?;
        if width > 64 {
            return Err(Error::corruption(format!("impossible column width, bits={width}")));
        }
        let bits = count.checked_mul(width).ok_or_else(|| Error::corruption("column too long"))?;
        Ok(Ints { low, width, packed: decoder.take(bits.div_ceil(8))? })
    }

    /// Lowest value.
    pub(super) fn low(&self) -> u64 {
        self.low
    }

    /// True when all values are the same.
    pub(super) fn is_constant(&self) -> bool {
        self.width == 0
    }

    /// Bytes that an offset from the lowest value takes in memory: 0, 1, 2, 4 or 8.
    pub(super) fn width_bytes(&self) -> usize {
        match self.width {
            0 => 0,
            1..=8 => 1,
            9..=16 => 2,
            17..=32 => 4,
            _ => 8,
        }
    }

    /// Value `index`, which is below the count it was decoded with (otherwise: some number).
    #[inline]
    pub(super) fn get(&self, index: usize) -> u64 {
        if self.width == 0 {
            return self.low;
        }
        let bit = index * self.width;
        let tail = self.packed.get(bit / 8..).unwrap_or_default();
        let window = match tail.first_chunk::<16>() {
            Some(window) => u128::from_le_bytes(*window),
            None => {
                let mut window = [0; 16];
                window[..tail.len()].copy_from_slice(tail);
                u128::from_le_bytes(window)
            }
        };
        let offset = (window >> (bit % 8)) as u64 & (u64::MAX >> (64 - self.width));
        self.low.wrapping_add(offset)
    }
}

/// Lowest value and bits of the range of `values`.
#[inline]
fn range(values: &[u8]) -> (u8, u32) {
    let (mut low, mut high) = (u8::MAX, 0);
    for value in values {
        low = low.min(*value);
        high = high.max(*value);
    }
    (low, if values.is_empty() { 0 } else { 8 - (high - low).leading_zeros() })
}

fn pack(values: &[u8], low: u8, width: u32, out: &mut Vec<u8>) {
    match width {
        0 => {}
        8 => out.extend_from_slice(values),
        _ => {
            out.reserve(values.len());
            let mut chunks = values.chunks_exact(8);
            for chunk in &mut chunks {
                let bits = chunk.iter().rev().fold(0u64, |bits, value| bits << width | u64::from(value - low));
                out.extend_from_slice(&bits.to_le_bytes()[..width as usize]);
            }
            let rest = chunks.remainder();
            let bits = rest.iter().rev().fold(0u64, |bits, value| bits << width | u64::from(value - low));
            out.extend_from_slice(&bits.to_le_bytes()[..(rest.len() * width as usize).div_ceil(8)]);
        }
    }
}

/// Appends `values` as a plane: its head to `heads`, its body to `bodies`. `scratch` is working memory.
pub(super) fn put_plane(values: &[u8], scratch: &mut Vec<u8>, heads: &mut Vec<u8>, bodies: &mut Vec<u8>) {
    let (low, width) = range(values);
    if width > 0 && values.len() >= DIFFERENCES_MIN {
        scratch.clear();
        scratch.extend(values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])));
        let (step, step_width) = range(scratch);
        if step_width < width {
            heads.extend_from_slice(&[step_width as u8 | DIFFERENCES, step, values[0]]);
            pack(scratch, step, step_width, bodies);
            return;
        }
    }
    // A plane that is stored as it is has no offset.
    let low = if width == 8 { 0 } else { low };
    heads.extend_from_slice(&[width as u8, low]);
    pack(values, low, width, bodies);
}

/// A plane read by [`PlaneHead::take_body`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plane {
    /// All values are this one.
    Constant(u8),
    /// They are in the output vector.
    Varied,
}

/// How a plane is packed.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlaneHead {
    width: usize,
    low: u8,
    /// The first value, when the offsets are of differences.
    first: Option<u8>,
}

impl PlaneHead {
    /// Reads a head.
    pub(super) fn take(decoder: &mut Decoder<'_>) -> Result<PlaneHead> {
        let form = decoder.u8()?;
        let low = decoder.u8()?;
        let width = usize::from(form & !DIFFERENCES);
        if width > 8 || (width == 8 && form & DIFFERENCES != 0) {
            return Err(Error::corruption(format!("impossible plane, form={form}")));
        }
        let first = if form & DIFFERENCES == 0 { None } else { Some(decoder.u8()?) };
        Ok(PlaneHead { width, low, first })
    }

    /// Reads the body of a plane of `count` values; unless it is constant, `out` is replaced by them.
    pub(super) fn take_body(self, decoder: &mut Decoder<'_>, count: usize, out: &mut Vec<u8>) -> Result<Plane> {
        let PlaneHead { width, low, first } = self;
        let Some(mut value) = first else {
            if width == 0 {
                return Ok(Plane::Constant(low));
            }
            unpack(decoder.take((count * width).div_ceil(8))?, low, width, count, out);
            return Ok(Plane::Varied);
        };
        let steps = count.checked_sub(1).ok_or_else(|| Error::corruption("plane of differences without values"))?;
        unpack(decoder.take((steps * width).div_ceil(8))?, low, width, steps, out);
        out.push(0);
        for slot in out.iter_mut() {
            let step = *slot;
            *slot = value;
            value = value.wrapping_add(step);
        }
        Ok(Plane::Varied)
    }
}

/// Replaces `out` by `count` values. `packed` holds them.
#[inline]
fn unpack(packed: &[u8], low: u8, width: usize, count: usize, out: &mut Vec<u8>) {
    out.clear();
    match width {
        0 => out.resize(count, low),
        8 => out.extend(packed.iter().map(|value| value.wrapping_add(low))),
        1 => unpack_as::<1>(packed, low, count, out),
        2 => unpack_as::<2>(packed, low, count, out),
        3 => unpack_as::<3>(packed, low, count, out),
        4 => unpack_as::<4>(packed, low, count, out),
        5 => unpack_as::<5>(packed, low, count, out),
        6 => unpack_as::<6>(packed, low, count, out),
        _ => unpack_as::<7>(packed, low, count, out),
    }
}

#[inline]
fn unpack_as<const WIDTH: usize>(packed: &[u8], low: u8, count: usize, out: &mut Vec<u8>) {
    out.resize(count.next_multiple_of(8), 0);
    let (whole, _) = out.as_chunks_mut::<8>();
    let mut groups = packed.chunks_exact(WIDTH);
    let mut values = whole.iter_mut();
    for (group, values) in groups.by_ref().zip(&mut values) {
        *values = unpack_group::<WIDTH>(group, low);
    }
    if let Some(values) = values.next() {
        *values = unpack_group::<WIDTH>(groups.remainder(), low);
    }
    out.truncate(count);
}

/// Eight values: halves, quarters and eighths of the group move apart, all lanes of a word at once.
#[inline]
fn unpack_group<const WIDTH: usize>(group: &[u8], low: u8) -> [u8; 8] {
    const EACH_32: u64 = 0x0000_0001_0000_0001;
    const EACH_16: u64 = 0x0001_0001_0001_0001;
    const EACH_8: u64 = 0x0101_0101_0101_0101;
    let bits = group.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    let half = (1 << (4 * WIDTH)) - 1;
    let bits = bits & half | (bits >> (4 * WIDTH) & half) << 32;
    let quarter = EACH_32 * ((1 << (2 * WIDTH)) - 1);
    let bits = bits & quarter | (bits >> (2 * WIDTH) & quarter) << 16;
    let eighth = EACH_16 * ((1 << WIDTH) - 1);
    let bits = bits & eighth | (bits >> WIDTH & eighth) << 8;
    // Added by byte: the seven low bits cannot reach the next one, the highest are added without a carry.
    let (low, high_bits) = (EACH_8 * u64::from(low), EACH_8 << 7);
    let sum = (bits & !high_bits) + (low & !high_bits);
    (sum ^ ((bits ^ low) & high_bits)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_come_back(values in prop::collection::vec(any::<u64>(), 0..100), shift in 0u32..64) {
            let values: Vec<u64> = values.iter().map(|value| value >> shift).collect();
            let mut out = Vec::new();
            put_ints(&values, &mut out);
            let mut decoder = Decoder::new(&out);
            let ints = Ints::decode(&mut decoder, values.len())?;
            decoder.finish()?;
            for (index, value) in values.iter().enumerate() {
                prop_assert_eq!(ints.get(index), *value);
            }
        }

        #[test]
        fn planes_come_back(values in prop::collection::vec(any::<u8>(), 0..100), mask: u8, low: u8, sums: bool) {
            let mut values: Vec<u8> = values.iter().map(|value| (value & mask).wrapping_add(low)).collect();
            if sums {
                for index in 1..values.len() {
                    values[index] = values[index].wrapping_add(values[index - 1]);
                }
            }
            let (mut heads, mut bodies, mut back) = (Vec::new(), Vec::new(), Vec::new());
            put_plane(&values, &mut Vec::new(), &mut heads, &mut bodies);
            let (mut head, mut body) = (Decoder::new(&heads), Decoder::new(&bodies));
            match PlaneHead::take(&mut head)?.take_body(&mut body, values.len(), &mut back)? {
                Plane::Constant(value) => prop_assert!(values.iter().all(|other| *other == value)),
                Plane::Varied => prop_assert_eq!(back, values),
            }
            head.finish()?;
            body.finish()?;
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, count in 0usize..300) {
            let mut decoder = Decoder::new(&bytes);
            let mut out = Vec::new();
            while !decoder.is_empty() {
                let head = PlaneHead::take(&mut decoder);
                if head.and_then(|head| head.take_body(&mut decoder, count, &mut out)).is_err() {
                    break;
                }
            }
            if let Ok(ints) = Ints::decode(&mut Decoder::new(&bytes), count) {
                (0..count).for_each(|index| { ints.get(index); });
            }
        }
    }

    #[test]
    fn a_sequence_costs_its_first_value() {
        let values: Vec<u8> = (0..1000u32).map(|value| value as u8).collect();
        let (mut heads, mut bodies) = (Vec::new(), Vec::new());
        put_plane(&values, &mut Vec::new(), &mut heads, &mut bodies);
        assert_eq!((heads, bodies), (vec![DIFFERENCES, 1, 0], vec![]));
    }
}
