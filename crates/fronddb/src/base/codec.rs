//! Bounds-checked reading and writing of integers and byte strings.
//!
//! Fixed-width integers are little endian. Varints are LEB128: seven bits a byte, least significant
//! first. A [`Decoder`] never panics on any input; a decoder that fails says at which offset.

use super::{Error, Result};

/// Appends `value` as a varint (1 to 10 bytes).
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the length of `bytes` as a varint, then `bytes`.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Number of bytes that [`put_varint`] writes for `value`.
#[inline]
pub fn varint_bytes(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Reads from the front of a byte string.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    start: usize,
}

impl<'a> Decoder<'a> {
    /// Starts at the first byte of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, start: bytes.len() }
    }

    /// Bytes consumed so far.
    #[inline]
    pub fn offset(&self) -> usize {
        self.start - self.bytes.len()
    }

    /// Bytes left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// True when nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[cold]
    fn short(&self, what: &str) -> Error {
        Error::corruption(format!("truncated or malformed {what}, offset={}", self.offset()))
    }

    /// Takes the next `length` bytes.
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        match self.bytes.split_at_checked(length) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => Err(self.short("byte string")),
        }
    }

    /// Takes everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// A byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        match self.bytes.split_first() {
            Some((byte, tail)) => {
                self.bytes = tail;
                Ok(*byte)
            }
            None => Err(self.short("byte")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(*head)
            }
            None => Err(self.short("integer")),
        }
    }

    /// A little-endian u16.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// A little-endian u32.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A little-endian u64.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A varint.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.short("varint"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.short("varint"))
    }

    /// A varint that must fit a u32.
    pub fn varint_u32(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| self.short("varint of 32 bits"))
    }

    /// A varint used as a length or count; it must fit a usize.
    #[inline]
    pub fn length(&mut self) -> Result<usize> {
        usize::try_from(self.varint()?).map_err(|_| self.short("length"))
    }

    /// A byte string preceded by its length.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    /// A number of elements, each of at least `bytes_min` bytes: a count that cannot fit what is left
    /// is refused before anything is allocated for it.
    pub fn count(&mut self, bytes_min: usize) -> Result<usize> {
        let count = self.length()?;
        if count > self.remaining() / bytes_min.max(1) {
            return Err(self.short("count"));
        }
        Ok(count)
    }

    /// Fails unless everything was consumed.
    pub fn finish(self) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.short("end: bytes left over")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value: u64, bytes: Vec<u8>) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_bytes(value));
            put_bytes(&mut out, &bytes);
            let mut decoder = Decoder::new(&out);
            prop_assert_eq!(decoder.varint()?, value);
            prop_assert_eq!(decoder.bytes()?, &bytes[..]);
            decoder.finish()?;
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let mut decoder = Decoder::new(&bytes);
            while decoder.bytes().is_ok() && !decoder.is_empty() {}
        }
    }

    #[test]
    fn an_overlong_varint_is_refused() {
        assert!(Decoder::new(&[0xff; 11]).varint().is_err());
        assert!(Decoder::new(&[0x80]).varint().is_err());
        assert_eq!(
            Decoder::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).varint().ok(),
            Some(u64::MAX)
        );
    }
}
