//! Strings of one kind, such as the keys of a block, in planes ([`super::columns`]): the same byte of each together, as far as
//! all have it, then what is left of each.
//!
//! [`Strings`] and [`Planes`] write them, [`StoredStrings`] reads them. Where their lengths and how many there are
//! is stored, and whether planes are used at all, is up to whoever owns the format: [`super::block`],
//! [`super::record`].

use super::columns::{Ints, Plane, PlaneHead, put_ints, put_plane};
use crate::base::codec::Decoder;
use crate::base::{Error, Result};

fn damaged(what: &str) -> Error {
    Error::corruption(format!("strings in planes: {what}"))
}

/// Strings end to end.
#[derive(Debug)]
pub(super) struct Strings {
    pub(super) bytes: Vec<u8>,
    pub(super) ends: Vec<u32>,
    /// Length of the shortest; `usize::MAX` when there is none.
    pub(super) shortest: usize,
    pub(super) longest: usize,
}

impl Default for Strings {
    fn default() -> Strings {
        Strings { bytes: Vec::new(), ends: Vec::new(), shortest: usize::MAX, longest: 0 }
    }
}

impl Strings {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.shortest = usize::MAX;
        self.longest = 0;
    }

    #[inline]
    pub(super) fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len() as u32);
        self.shortest = self.shortest.min(string.len());
        self.longest = self.longest.max(string.len());
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<u32>()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let string = &self.bytes[start..*end as usize];
            start = *end as usize;
            string
        })
    }
}

/// Working memory of planes.
#[derive(Debug, Default)]
pub(super) struct Planes {
    lengths: Vec<u64>,
    plane: Vec<u8>,
    bodies: Vec<u8>,
    scratch: Vec<u8>,
}

impl Planes {
    /// Bytes really allocated.
    pub(super) fn memory_bytes(&self) -> usize {
        let lengths = self.lengths.capacity() * size_of::<u64>();
        lengths + self.plane.capacity() + self.bodies.capacity() + self.scratch.capacity()
    }

    /// Appends strings: their lengths, the first `columns` bytes of all that have some as planes (heads, then bodies), and what is left
    /// of each.
    pub(super) fn put(&mut self, strings: &Strings, columns: usize, out: &mut Vec<u8>) {
        self.lengths.clear();
        self.lengths.extend(strings.iter().map(|string| string.len() as u64));
        put_ints(&self.lengths, out);
        for column in 0..columns {
            gather(strings, column, &mut self.plane);
            put_plane(&self.plane, &mut self.scratch, out, &mut self.bodies);
        }
        out.append(&mut self.bodies);
        if columns == 0 {
            out.extend_from_slice(&strings.bytes);
        } else if strings.longest > columns {
            strings.iter().for_each(|string| out.extend_from_slice(string.get(columns..).unwrap_or_default()));
        }
    }
}

/// Replaces `plane` by byte `column` of all strings that have it.
#[inline]
fn gather(strings: &Strings, column: usize, plane: &mut Vec<u8>) {
    plane.clear();
    if strings.shortest == strings.longest {
        plane.extend(strings.bytes.get(column..).unwrap_or_default().iter().step_by(strings.longest.max(1)));
    } else {
        plane.extend(strings.iter().filter_map(|string| string.get(column)));
    }
}

/// Strings as they are stored: the same byte of each in a plane, then what is left of each.
pub(super) struct StoredStrings<'a> {
    pub(super) lengths: Ints<'a>,
    pub(super) planes: Vec<PlaneAt>,
    /// The varied planes. Working memory that the caller lends.
    pub(super) matrix: Vec<u8>,
    pub(super) tails: &'a [u8],
}

#[derive(Clone, Copy)]
pub(super) enum PlaneAt {
    Constant(u8),
    /// Where in the matrix it begins.
    Matrix(usize),
}

/// Sum of a column of lengths, or an error past `limit`.
pub(super) fn total(lengths: &Ints<'_>, count: usize, limit: usize) -> Result<usize> {
    let sum = if lengths.is_constant() {
        usize::try_from(lengths.low()).ok().and_then(|length| length.checked_mul(count))
    } else {
        (0..count).try_fold(0usize, |sum, index| sum.checked_add(usize::try_from(lengths.get(index)).ok()?))
    };
    sum.filter(|sum| *sum <= limit).ok_or_else(|| damaged("strings too long"))
}

/// The least of a column of lengths; 0 of none.
pub(super) fn shortest(lengths: &Ints<'_>, count: usize) -> usize {
    match lengths.is_constant() {
        true => lengths.low() as usize,
        false => (0..count).map(|index| lengths.get(index) as usize).min().unwrap_or(0),
    }
}

impl<'a> StoredStrings<'a> {
    #[expect(clippy::too_many_arguments, reason = "called three times, each argument of another kind")]
    /// Reads `columns` planes of `rows` strings, which have `bytes` bytes in all, and their tails.
    pub(super) fn decode(
        decoder: &mut Decoder<'a>,
        lengths: Ints<'a>,
        columns: usize,
        rows: usize,
        bytes: usize,
        heads_first: bool,
        limit: usize,
        plane: &mut Vec<u8>,
        mut matrix: Vec<u8>,
    ) -> Result<StoredStrings<'a>> {
        if columns > decoder.remaining() / 2 {
            return Err(damaged("more planes than bytes"));
        }
        let mut planes = Vec::with_capacity(columns);
        matrix.clear();
        let mut heads = heads_first.then(|| decoder.clone());
        if heads_first {
            for _ in 0..columns {
                PlaneHead::take(decoder)?;
            }
        }
        for _ in 0..columns {
            let head = PlaneHead::take(heads.as_mut().unwrap_or(decoder))?;
            planes.push(match head.take_body(decoder, rows, plane)? {
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
        Ok(StoredStrings { lengths, planes, matrix, tails })
    }

    pub(super) fn length(&self, index: usize) -> usize {
        self.lengths.get(index) as usize
    }

    /// Fills strings of one length into the `rows` rows of `out`, leaving out their first `skip` bytes.
    pub(super) fn fill_fixed(&self, out: &mut [u8], stride: usize, skip: usize, rows: usize) {
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
    pub(super) fn fill_one(&self, out: &mut [u8], skip: usize, row: usize, tail: usize) {
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
