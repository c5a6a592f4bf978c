//! The store's own blocks: bitmaps of regions, the summary of the space map, pieces of the status image.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic, `FSPC` |
//! | 4 | 2 | version, 1 |
//! | 6 | 2 | kind |
//! | 8 | 8 | checksum: [`checksum::block`] at the frame's offset in the file, over everything after this field |
//! | 16 | 8 | generation that wrote it |
//! | 24 | 4 | index: number of the region or of the piece |
//! | 28 | 4 | length of the payload |
//! | 32 | … | payload |

use crate::base::codec::Decoder;
use crate::base::{Error, ErrorKind, Result, checksum};

/// Length of what precedes the payload, in bytes.
pub(super) const HEADER_BYTES: usize = 32;
const MAGIC: &[u8; 4] = b"FSPC";
const VERSION: u16 = 1;
const CHECKED_FROM: usize = 16;

/// What a frame holds. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum FrameKind {
    /// The bitmap of a region.
    Region = 1,
    /// A piece of the summary of all regions.
    Summary = 2,
    /// A piece of the status image.
    Status = 3,
}

/// A frame that was checked.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) generation: u64,
    pub(super) checksum: u64,
    pub(super) payload: &'a [u8],
}

/// Writes a frame to the front of `out`, which must have room for header and payload; returns its checksum.
pub(super) fn seal(out: &mut [u8], kind: FrameKind, generation: u64, index: u32, payload: &[u8], address: u64) -> u64 {
    let out = &mut out[..HEADER_BYTES + payload.len()];
    out[0..4].copy_from_slice(MAGIC);
    out[4..6].copy_from_slice(&VERSION.to_le_bytes());
    out[6..8].copy_from_slice(&(kind as u16).to_le_bytes());
    out[16..24].copy_from_slice(&generation.to_le_bytes());
    out[24..28].copy_from_slice(&index.to_le_bytes());
    out[28..32].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    out[32..].copy_from_slice(payload);
    let sum = checksum::block(seed(address, kind, VERSION), &out[CHECKED_FROM..]);
    out[8..16].copy_from_slice(&sum.to_le_bytes());
    sum
}

/// Folds kind and version into the checksum, so that no bit of the header goes unchecked and a newer version is
/// told from damage.
fn seed(address: u64, kind: FrameKind, version: u16) -> u64 {
    address ^ u64::from(kind as u16 ^ (version << 8)) << 48
}

/// Checks the frame at the front of `bytes`, which was read from `address`.
pub(super) fn open(bytes: &[u8], kind: FrameKind, index: u32, address: u64) -> Result<Frame<'_>> {
    open_unnamed(bytes, kind, index, address)
        .map_err(|error| error.context(format!("{kind:?} frame, index={index} offset={address}")))
}

fn open_unnamed(bytes: &[u8], kind: FrameKind, index: u32, address: u64) -> Result<Frame<'_>> {
    let mut decoder = Decoder::new(bytes);
    if decoder.take(MAGIC.len())? != MAGIC {
        return Err(Error::corruption("wrong magic"));
    }
    let (version, got_kind, sum) = (decoder.u16()?, decoder.u16()?, decoder.u64()?);
    let (generation, got_index, length) = (decoder.u64()?, decoder.u32()?, decoder.u32()?);
    let payload = decoder.take(length as usize)?;
    let expected = checksum::block(seed(address, kind, version), &bytes[CHECKED_FROM..HEADER_BYTES + payload.len()]);
    if sum != expected {
        return Err(Error::corruption(format!("wrong checksum, expected={expected:#018x} got={sum:#018x}")));
    }
    if version != VERSION {
        return Err(Error::new(
            ErrorKind::UnsupportedFormat,
            format!("unknown frame version, got={version} known={VERSION}"),
        ));
    }
    if got_kind != kind as u16 || got_index != index {
        return Err(Error::corruption(format!("another frame, got_kind={got_kind} got_index={got_index}")));
    }
    Ok(Frame { generation, checksum: sum, payload })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;

    use super::*;

    fn sealed(payload: &[u8], address: u64) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES + payload.len()];
        seal(&mut out, FrameKind::Summary, 7, 3, payload, address);
        out
    }

    proptest! {
        #[test]
        fn what_is_sealed_is_opened_at_its_address_only(payload: Vec<u8>, address: u32, other: u32) {
            let bytes = sealed(&payload, u64::from(address));
            let frame = open(&bytes, FrameKind::Summary, 3, u64::from(address))?;
            prop_assert_eq!((frame.generation, frame.payload), (7, &payload[..]));
            prop_assert!(open(&bytes, FrameKind::Status, 3, u64::from(address)).is_err());
            prop_assert!(open(&bytes, FrameKind::Summary, 4, u64::from(address)).is_err());
            prop_assert!(address == other || open(&bytes, FrameKind::Summary, 3, u64::from(other)).is_err());
        }

        #[test]
        fn every_inverted_bit_is_noticed(payload: Vec<u8>, at: prop::sample::Index, bit in 0..8u8) {
            let mut bytes = sealed(&payload, 8192);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(open(&bytes, FrameKind::Summary, 3, 8192).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = open(&bytes, FrameKind::Region, 0, 0);
        }
    }
}
