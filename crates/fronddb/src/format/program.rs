//! Update programs: what an `Update` message does to the stored value.
use crate::base::Result;

/// Width and signedness etc. of an `Add`.
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
    /// Appends to the value.
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

impl Program {
    /// Appends the stored form (a message payload) to `out`.
    pub fn encode(&self, _out: &mut Vec<u8>) {
        unimplemented!()
    }
    /// Reads a whole message payload.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(_payload: &[u8]) -> Result<Program> {
        unimplemented!()
    }
}

/// The value after the encoded program; `None` stays `None` unless an `IfNull` gives a value.
///
/// # Errors
/// `Corruption` when the program is malformed.
pub fn apply(_program: &[u8], _value: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
    unimplemented!()
}

/// The encoded program that does `older`, then `newer`.
///
/// # Errors
/// `Corruption` when one is malformed.
pub fn compose(_older: &[u8], _newer: &[u8]) -> Result<Vec<u8>> {
    unimplemented!()
}
