//! The parts of a raw entry block, read and checked but not yet laid out: tags, keys, payloads. Their form is
//! described in [`super::builder`]; [`super::decode`] makes arrays of them.

use super::builder::{TAG_BLOB, TAG_COMMITTED, TAG_KIND, TAG_SAME_KEY, TAG_WRITTEN};
use crate::base::codec::Decoder;
use crate::base::{Error, Result};
use crate::format::Kind;
use crate::format::columns::Ints;
use crate::format::strings::{PlaneAt, StoredStrings, shortest, total};

pub(super) fn damaged(what: &str) -> Error {
    Error::corruption(format!("entry block: {what}"))
}

/// Tags, every one of them valid.
pub(super) struct Tags<'a> {
    pub(super) ints: Ints<'a>,
    /// Messages with a key of their own, with a stamp, with a step.
    pub(super) distinct: usize,
    pub(super) stamped: usize,
    pub(super) written: usize,
    /// Number of the key of each message; empty when each has its own.
    pub(super) owners: Vec<u32>,
}

impl<'a> Tags<'a> {
    pub(super) fn decode(decoder: &mut Decoder<'a>, count: usize) -> Result<Tags<'a>> {
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

    pub(super) fn is(&self, index: usize, mask: u8) -> bool {
        self.ints.get(index) as u8 & mask != 0
    }

    #[inline]
    pub(super) fn key_of(&self, index: usize) -> usize {
        self.owners.get(index).map_or(index, |key| *key as usize)
    }
}

/// How strings are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Rows,
    /// `heads_first`: the heads of all planes, then their bodies; otherwise each body after its head.
    Planes {
        heads_first: bool,
    },
}

pub(super) fn decode_payloads<'a>(
    decoder: &mut Decoder<'a>,
    form: Form,
    count: usize,
    limit: usize,
    plane: &mut Vec<u8>,
    matrix: Vec<u8>,
) -> Result<StoredStrings<'a>> {
    let lengths = Ints::decode(decoder, count)?;
    let bytes = total(&lengths, count, limit)?;
    let Form::Planes { heads_first } = form else {
        return Ok(StoredStrings { lengths, planes: Vec::new(), matrix, tails: decoder.take(bytes)? });
    };
    let (mut columns, mut rows) = (usize::MAX, 0);
    for length in (0..count).map(|index| lengths.get(index) as usize).filter(|length| *length > 0) {
        columns = columns.min(length);
        rows += 1;
    }
    let columns = if rows == 0 { 0 } else { columns };
    StoredStrings::decode(decoder, lengths, columns, rows, bytes, heads_first, limit, plane, matrix)
}

/// Keys as they are stored.
pub(super) enum Keys<'a> {
    Planes(StoredStrings<'a>),
    Rows { shared: Ints<'a>, rests: Ints<'a>, bytes: &'a [u8] },
}

impl<'a> Keys<'a> {
    pub(super) fn decode(
        decoder: &mut Decoder<'a>,
        form: Form,
        distinct: usize,
        limit: usize,
        plane: &mut Vec<u8>,
        matrix: Vec<u8>,
    ) -> Result<Keys<'a>> {
        let first = Ints::decode(decoder, distinct)?;
        if let Form::Planes { heads_first } = form {
            // These lengths count the common prefix, which lies in memory once: the limit is checked later.
            let bytes = total(&first, distinct, usize::MAX)?;
            let columns = shortest(&first, distinct);
            let strings =
                StoredStrings::decode(decoder, first, columns, distinct, bytes, heads_first, limit, plane, matrix)?;
            return Ok(Keys::Planes(strings));
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
    pub(super) fn prefix(&self, distinct: usize) -> usize {
        match self {
            Keys::Planes(strings) => {
                strings.planes.iter().take_while(|plane| matches!(plane, PlaneAt::Constant(_))).count()
            }
            Keys::Rows { shared, rests, .. } => {
                (1..distinct).map(|index| shared.get(index)).min().unwrap_or_else(|| rests.get(0)) as usize
            }
        }
    }

    pub(super) fn length(&self, index: usize) -> usize {
        match self {
            Keys::Planes(strings) => strings.length(index),
            Keys::Rows { shared, rests, .. } => (shared.get(index) + rests.get(index)) as usize,
        }
    }

    pub(super) fn same_length(&self, distinct: usize) -> bool {
        match self {
            Keys::Planes(strings) => strings.lengths.is_constant(),
            Keys::Rows { .. } => (1..distinct).all(|index| self.length(index) == self.length(0)),
        }
    }

    /// Appends the first `prefix` bytes of the first key.
    pub(super) fn put_prefix(&self, out: &mut [u8]) {
        match self {
            Keys::Planes(strings) => out.iter_mut().zip(&strings.planes).for_each(|(byte, plane)| {
                *byte = match plane {
                    PlaneAt::Constant(value) => *value,
                    PlaneAt::Matrix(_) => 0,
                };
            }),
            Keys::Rows { bytes, .. } => out.copy_from_slice(&bytes[..out.len()]),
        }
    }
}
