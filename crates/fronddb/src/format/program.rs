//! Update programs: what an `Update` message does to the stored value, without the writer reading it.
//!
//! A program is a list of operations, applied in order to the bytes of the value. On a key without a value
//! it does nothing, unless an [`Op::IfNull`] gives one. Programs are total: whatever the value is, the
//! result is defined (a value that is too short is extended with zeros), so that a program that was
//! accepted can be applied years later, during a compaction. So that a few bytes do not make every read of their key take a quarter
//! of a gigabyte, one that is accepted reaches no further than [`UPDATE_REACH_BYTES_MAX`]; stored ones are applied wherever they reach.
//!
//! | op | encoding (all integers varints unless said) |
//! |---|---|
//! | set bytes | 1, offset, bytes |
//! | add | 2, offset, u8 width, u8 flags (1 big endian, 2 signed, 4 saturate), zigzag delta |
//! | if null | 3, bytes |
//! | append | 4, bytes |

use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::key::VALUE_BYTES_MAX;
use crate::base::{Error, Result};

/// Bytes of a value that an operation with an offset may set or add to, from its beginning on.
pub const UPDATE_REACH_BYTES_MAX: usize = 1 << 20;

/// What an [`Op::Add`] does when the sum does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Modulo 2^(8·width).
    Wrap,
    /// Stays at the nearest representable number.
    Saturate,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Replaces the bytes at `offset`; a shorter value is extended with zeros.
    SetBytes {
        /// Where.
        offset: u32,
        /// By what.
        bytes: Vec<u8>,
    },
    /// Adds `delta` to the integer of `width` bytes at `offset`.
    Add {
        /// Where.
        offset: u32,
        /// 1 to 8 bytes.
        width: u8,
        /// True for big endian.
        big_endian: bool,
        /// True for two's complement.
        signed: bool,
        /// How much.
        delta: i64,
        /// What when it does not fit.
        overflow: Overflow,
    },
    /// When the key has no value: gives it this one; otherwise nothing.
    IfNull {
        /// The value.
        value: Vec<u8>,
    },
    /// Appends to the value, as much as there is room for below [`VALUE_BYTES_MAX`].
    Append {
        /// What.
        bytes: Vec<u8>,
    },
}

/// A program: operations applied in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// The operations.
    pub ops: Vec<Op>,
}

const BIG_ENDIAN: u8 = 1;
const SIGNED: u8 = 2;
const SATURATE: u8 = 4;

impl Program {
    /// Checks what can be checked without the value.
    ///
    /// # Errors
    /// `InvalidArgument` for a width that is none, an operation that reaches too far, or a value that is too long.
    pub fn check(&self) -> Result<()> {
        for op in &self.ops {
            if let Op::Add { width: width @ (0 | 9..), .. } = op {
                return Err(Error::invalid(format!("add to an integer of no width, width={width}")));
            }
            let (end, end_max) = match (extent_of(op), op) {
                (Some(bytes), _) => (bytes.end, UPDATE_REACH_BYTES_MAX),
                (None, Op::IfNull { value: bytes } | Op::Append { bytes }) => (bytes.len(), VALUE_BYTES_MAX),
                (None, _) => continue,
            };
            if end > end_max {
                return Err(Error::invalid(format!("update reaches too far, end={end} end_max={end_max}")));
            }
        }
        Ok(())
    }

    /// Appends the stored form (a message payload) to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for op in &self.ops {
            match op {
                Op::SetBytes { offset, bytes } => {
                    out.push(1);
                    put_varint(out, u64::from(*offset));
                    put_bytes(out, bytes);
                }
                Op::Add { offset, width, big_endian, signed, delta, overflow } => {
                    out.push(2);
                    put_varint(out, u64::from(*offset));
                    out.push(*width);
                    let flag = |on: bool, flag: u8| if on { flag } else { 0 };
                    let saturate = *overflow == Overflow::Saturate;
                    out.push(flag(*big_endian, BIG_ENDIAN) | flag(*signed, SIGNED) | flag(saturate, SATURATE));
                    put_varint(out, ((*delta as u64) << 1) ^ ((*delta >> 63) as u64));
                }
                Op::IfNull { value } => {
                    out.push(3);
                    put_bytes(out, value);
                }
                Op::Append { bytes } => {
                    out.push(4);
                    put_bytes(out, bytes);
                }
            }
        }
    }

    /// Length of the stored form, in bytes.
    pub fn encoded_bytes(&self) -> usize {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        bytes.len()
    }

    /// Reads a whole message payload.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(payload: &[u8]) -> Result<Program> {
        let mut decoder = Decoder::new(payload);
        let mut ops = Vec::new();
        while !decoder.is_empty() {
            ops.push(decode_op(&mut decoder)?);
        }
        Ok(Program { ops })
    }
}

fn decode_op(decoder: &mut Decoder<'_>) -> Result<Op> {
    Ok(match decoder.u8()? {
        1 => Op::SetBytes { offset: decoder.varint_u32()?, bytes: decoder.bytes()?.to_vec() },
        2 => {
            let offset = decoder.varint_u32()?;
            let (width, flags) = (decoder.u8()?, decoder.u8()?);
            let zigzag = decoder.varint()?;
            if !(1..=8).contains(&width) || flags > 7 {
                return Err(Error::corruption(format!("malformed add in an update, width={width} flags={flags}")));
            }
            Op::Add {
                offset,
                width,
                big_endian: flags & BIG_ENDIAN != 0,
                signed: flags & SIGNED != 0,
                delta: (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64),
                overflow: if flags & SATURATE != 0 { Overflow::Saturate } else { Overflow::Wrap },
            }
        }
        3 => Op::IfNull { value: decoder.bytes()?.to_vec() },
        4 => Op::Append { bytes: decoder.bytes()?.to_vec() },
        other => return Err(Error::corruption(format!("unknown operation in an update, number={other}"))),
    })
}

impl Program {
    /// The value after the program; `None` stays `None` unless an [`Op::IfNull`] gives a value.
    pub fn apply(&self, mut value: Option<Vec<u8>>) -> Option<Vec<u8>> {
        for op in &self.ops {
            match (op, &mut value) {
                (Op::IfNull { value: first }, slot @ None) => *slot = Some(first.clone()),
                (Op::IfNull { .. }, Some(_)) | (_, None) => {}
                (Op::SetBytes { offset, bytes }, Some(value)) => {
                    if let Some(place) = place(value, *offset, bytes.len()) {
                        place.copy_from_slice(bytes);
                    }
                }
                (Op::Append { bytes }, Some(value)) => {
                    let room = VALUE_BYTES_MAX.saturating_sub(value.len()).min(bytes.len());
                    value.extend_from_slice(&bytes[..room]);
                }
                (Op::Add { offset, width, big_endian, signed, delta, overflow }, Some(value)) => {
                    if let Some(place) = place(value, *offset, usize::from(*width)) {
                        add(place, *big_endian, *signed, *delta, *overflow);
                    }
                }
            }
        }
        value
    }

    /// How long a value of this length (`None`: none) is after the program, at most.
    pub fn length_after(&self, length: Option<usize>) -> Option<usize> {
        self.ops.iter().fold(length, |length, op| match (op, length) {
            (Op::IfNull { value }, None) => Some(value.len()),
            (_, None) => None,
            (Op::Append { bytes }, Some(length)) => Some(length.saturating_add(bytes.len())),
            (op, Some(length)) => Some(length.max(extent_of(op).map_or(0, |bytes| bytes.end))),
        })
    }

    /// Makes it do what it does now and then what `newer` does. What `newer` overwrites or adds to is taken together, so that many
    /// updates of the same columns do not make a long program.
    pub fn append(&mut self, newer: Program) {
        newer.ops.into_iter().for_each(|op| absorb(&mut self.ops, op));
    }
}

/// The value after the encoded program.
///
/// # Errors
/// `Corruption` when the program is malformed.
pub fn apply(program: &[u8], value: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    Ok(Program::decode(program)?.apply(value))
}

/// The bytes of `value` at `offset`, after extending it; none past the longest value, where nothing happens.
fn place(value: &mut Vec<u8>, offset: u32, length: usize) -> Option<&mut [u8]> {
    let start = offset as usize;
    let end = start.checked_add(length).filter(|end| *end <= VALUE_BYTES_MAX)?;
    if value.len() < end {
        value.resize(end, 0);
    }
    value.get_mut(start..end)
}

fn add(place: &mut [u8], big_endian: bool, signed: bool, delta: i64, overflow: Overflow) {
    if big_endian {
        place.reverse();
    }
    let bits = 8 * place.len() as u32;
    let mut bytes = [0; 16];
    bytes[..place.len()].copy_from_slice(place);
    let raw = i128::from_le_bytes(bytes);
    let (old, low, high) = if signed {
        let shift = 128 - bits;
        ((raw << shift) >> shift, -(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (raw, 0, (1i128 << bits) - 1)
    };
    let sum = old + i128::from(delta);
    let sum = if overflow == Overflow::Saturate { sum.clamp(low, high) } else { sum };
    place.copy_from_slice(&sum.to_le_bytes()[..place.len()]);
    if big_endian {
        place.reverse();
    }
}

/// Bytes that an operation reads and writes; `None`: it depends on the length of the value.
fn extent_of(op: &Op) -> Option<std::ops::Range<usize>> {
    let (offset, length) = match op {
        Op::SetBytes { offset, bytes } => (*offset as usize, bytes.len()),
        Op::Add { offset, width, .. } => (*offset as usize, usize::from(*width)),
        Op::IfNull { .. } | Op::Append { .. } => return None,
    };
    Some(offset..offset.saturating_add(length))
}

/// Earlier operations that [`absorb`] looks at: a program of very many places takes no time in proportion to their square.
const LOOKS_MAX: usize = 256;

/// Appends an operation, or puts it into an earlier one of the same bytes if nothing in between touches them.
fn absorb(ops: &mut Vec<Op>, op: Op) {
    if let (Some(Op::Append { bytes }), Op::Append { bytes: more }) = (ops.last_mut(), &op) {
        bytes.extend_from_slice(more);
        return;
    }
    // From the first of these on there is a value, and no operation takes it away.
    if let Op::IfNull { .. } = op
        && ops.iter().take(LOOKS_MAX).any(|earlier| matches!(earlier, Op::IfNull { .. }))
    {
        return;
    }
    if let Some(bytes) = extent_of(&op) {
        for earlier in ops.iter_mut().rev().take(LOOKS_MAX) {
            let Some(earlier_bytes) = extent_of(earlier) else { break };
            if earlier_bytes == bytes {
                match (earlier, &op) {
                    (slot, Op::SetBytes { .. }) => {
                        *slot = op;
                        return;
                    }
                    (
                        Op::Add { big_endian, signed, delta, overflow: Overflow::Wrap, .. },
                        Op::Add {
                            big_endian: also_big_endian,
                            signed: also_signed,
                            delta: more,
                            overflow: Overflow::Wrap,
                            ..
                        },
                    ) if big_endian == also_big_endian && signed == also_signed => {
                        *delta = delta.wrapping_add(*more);
                        return;
                    }
                    (
                        Op::Add { big_endian, signed, delta, overflow: Overflow::Saturate, .. },
                        Op::Add {
                            big_endian: also_big_endian,
                            signed: also_signed,
                            delta: more,
                            overflow: Overflow::Saturate,
                            ..
                        },
                    ) if big_endian == also_big_endian && signed == also_signed && (*delta < 0) == (*more < 0) => {
                        // What has reached a bound stays there, in this direction.
                        let Some(sum) = delta.checked_add(*more) else { break };
                        *delta = sum;
                        return;
                    }
                    _ => break,
                }
            }
            if earlier_bytes.start < bytes.end && bytes.start < earlier_bytes.end {
                break;
            }
        }
    }
    ops.push(op);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn updates_of_very_many_places_are_taken_together_one_after_the_other() {
        let mut program = Program { ops: vec![Op::IfNull { value: Vec::new() }] };
        let places = 100_000u32;
        for place in (0..places).chain(places - 10..places) {
            program.append(Program { ops: vec![Op::SetBytes { offset: place, bytes: vec![place as u8] }] });
        }
        assert_eq!(program.ops.len(), 1 + places as usize, "the last ten are written over");
        let expected: Vec<u8> = (0..places).map(|place| place as u8).collect();
        assert!(program.apply(None) == Some(expected));
    }

    fn op() -> impl Strategy<Value = Op> {
        let bytes = prop::collection::vec(any::<u8>(), 0..12);
        prop_oneof![
            (0u32..40, bytes.clone()).prop_map(|(offset, bytes)| Op::SetBytes { offset, bytes }),
            (0u32..40, 1u8..=8, any::<(bool, bool, bool)>(), any::<i64>()).prop_map(
                |(offset, width, (big_endian, signed, saturate), delta)| Op::Add {
                    offset,
                    width,
                    big_endian,
                    signed,
                    delta,
                    overflow: if saturate { Overflow::Saturate } else { Overflow::Wrap },
                }
            ),
            bytes.clone().prop_map(|value| Op::IfNull { value }),
            bytes.prop_map(|bytes| Op::Append { bytes }),
        ]
    }

    fn encoded(ops: &[Op]) -> Vec<u8> {
        let mut out = Vec::new();
        Program { ops: ops.to_vec() }.encode(&mut out);
        out
    }

    proptest! {
        #[test]
        fn programs_are_read_back(ops in prop::collection::vec(op(), 0..6)) {
            prop_assert_eq!(Program::decode(&encoded(&ops))?.ops, ops);
        }

        #[test]
        fn composing_is_applying_one_after_the_other(
            first in prop::collection::vec(op(), 0..4),
            second in prop::collection::vec(op(), 0..4),
            value: Option<Vec<u8>>,
        ) {
            let (mut first, second) = (Program { ops: first }, Program { ops: second });
            let expected = second.apply(first.apply(value.clone()));
            first.append(second);
            let length = first.length_after(value.as_ref().map(Vec::len));
            prop_assert!(length >= expected.as_ref().map(Vec::len));
            prop_assert_eq!(first.apply(value), expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(program: Vec<u8>, value: Option<Vec<u8>>) {
            let _ = apply(&program, value);
        }
    }

    fn added(start: &[u8], big_endian: bool, signed: bool, delta: i64, overflow: Overflow) -> Vec<u8> {
        let op = Op::Add { offset: 0, width: start.len() as u8, big_endian, signed, delta, overflow };
        apply(&encoded(&[op]), Some(start.to_vec())).expect("well formed").expect("a value")
    }

    #[test]
    fn sums_wrap_or_saturate_at_their_width() {
        assert_eq!(added(&[0xff], false, false, 1, Overflow::Wrap), [0]);
        assert_eq!(added(&[0xff], false, false, 1, Overflow::Saturate), [0xff]);
        assert_eq!(added(&[0x80], false, true, -1, Overflow::Saturate), [0x80]);
        assert_eq!(added(&[0x80], false, true, -1, Overflow::Wrap), [0x7f]);
        assert_eq!(added(&[0, 0xff], true, false, 1, Overflow::Wrap), [1, 0]);
        assert_eq!(added(&[1, 0], false, false, -2, Overflow::Saturate), [0, 0]);
    }

    #[test]
    fn many_updates_of_the_same_columns_stay_a_short_program() {
        let add =
            |offset| Op::Add { offset, width: 4, big_endian: true, signed: true, delta: 3, overflow: Overflow::Wrap };
        let update = Program { ops: vec![add(8), Op::SetBytes { offset: 20, bytes: vec![7; 5] }] };
        let mut program = update.clone();
        for _ in 0..1000 {
            program.append(update.clone());
        }
        assert!(encoded(&program.ops).len() < 30, "{program:?}");
        let value = program.apply(Some(vec![0; 30])).expect("a value");
        assert_eq!(value[8..12], 3003u32.to_be_bytes());
    }

    #[test]
    fn a_missing_value_stays_missing_unless_one_is_given() {
        assert_eq!(apply(&encoded(&[Op::Append { bytes: vec![1] }]), None).expect("well formed"), None);
        let ops = [Op::IfNull { value: vec![5] }, Op::Append { bytes: vec![6] }];
        assert_eq!(apply(&encoded(&ops), None).expect("well formed"), Some(vec![5, 6]));
        assert_eq!(apply(&encoded(&ops), Some(vec![1])).expect("well formed"), Some(vec![1, 6]));
    }
}
