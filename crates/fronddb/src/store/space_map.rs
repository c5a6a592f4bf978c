//! The stored form of the allocator: one bitmap per region, and a summary that says where they are.
//!
//! A publication writes the bitmaps of the regions that it changed, and the whole summary: 14 bytes per region, which is
//! 224 KiB for a file of 1 TiB. Both are frames at new places. The summary carries the checksum of each bitmap's
//! frame, so that an older frame at the same address (a write that the disk lost) does not pass for the newer.

use super::bitmap::{BITMAP_BYTES, Bitmap, REGION_PAGES};
use super::data_file::DataFile;
use super::frame::{FrameKind, HEADER_BYTES};
use crate::base::codec::Decoder;
use crate::base::space::PAGE_BYTES;
use crate::base::{BlockPtr, Error, Result};

/// What the summary says about a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Entry {
    /// Page of the frame of its bitmap; 0: none of its pages is in the image.
    pub(super) map_page: u64,
    /// Pages in the image.
    pub(super) image_pages: u32,
    /// The low half of the checksum of that frame.
    pub(super) check: u32,
}

const ENTRY_BYTES: usize = 14;

/// Length of a summary, in bytes.
pub(super) fn summary_bytes(regions: usize) -> usize {
    4 + regions * ENTRY_BYTES
}

pub(super) fn encode_summary(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(summary_bytes(entries.len()));
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for entry in entries {
        out.extend_from_slice(&entry.map_page.to_le_bytes());
        out.extend_from_slice(&(entry.image_pages as u16).to_le_bytes());
        out.extend_from_slice(&entry.check.to_le_bytes());
    }
    out
}

pub(super) fn decode_summary(bytes: &[u8]) -> Result<Vec<Entry>> {
    let mut decoder = Decoder::new(bytes);
    let count = decoder.u32()? as usize;
    if bytes.len() != summary_bytes(count) {
        return Err(Error::corruption(format!("summary of wrong length, regions={count} bytes={}", bytes.len())));
    }
    let mut entries = Vec::with_capacity(count);
    for region in 0..count {
        let entry = Entry { map_page: decoder.u64()?, image_pages: u32::from(decoder.u16()?), check: decoder.u32()? };
        if entry.image_pages > REGION_PAGES
            || entry.map_page > u64::MAX / PAGE_BYTES - 1
            || (entry.map_page == 0 && entry.image_pages > 0)
        {
            return Err(Error::corruption(format!("impossible summary, region={region} entry={entry:?}")));
        }
        entries.push(entry);
    }
    decoder.finish()?;
    Ok(entries)
}

/// Where the frame of a region's bitmap lies.
pub(super) fn map_ptr(map_page: u64) -> BlockPtr {
    BlockPtr { offset: map_page * PAGE_BYTES, stored: (HEADER_BYTES + BITMAP_BYTES) as u32 }
}

/// Reads the bitmap of a region and compares it with what the summary says of it.
pub(super) fn read_bitmap(data: &DataFile, region: usize, entry: Entry) -> Result<Bitmap> {
    if entry.map_page == 0 {
        return Ok(Bitmap::empty());
    }
    let (_, checksum, payload) = data.frame(FrameKind::Region, region as u32, map_ptr(entry.map_page))?;
    let bytes: &[u8; BITMAP_BYTES] = payload
        .as_slice()
        .try_into()
        .map_err(|_| data.corruption(format!("bitmap of wrong length, region={region} bytes={}", payload.len())))?;
    let bitmap = Bitmap::from_bytes(bytes);
    if checksum as u32 != entry.check || bitmap.count() != entry.image_pages {
        return Err(data.corruption(format!(
            "bitmap is not the one that the summary names, region={region} offset={} expected={:#010x} got={:#010x}",
            entry.map_page * PAGE_BYTES,
            entry.check,
            checksum as u32
        )));
    }
    Ok(bitmap)
}

/// Reads an image that lies in pieces. With a generation, every piece must be of that one.
pub(super) fn read_pieces(
    data: &DataFile,
    kind: FrameKind,
    pieces: &[BlockPtr],
    generation: Option<u64>,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let (of, _, payload) = data.frame(kind, index as u32, *piece)?;
        if generation.is_some_and(|generation| generation != of) {
            return Err(data.corruption(format!(
                "{kind:?} piece of another generation, offset={} got={of} expected={generation:?}",
                piece.offset
            )));
        }
        bytes.extend_from_slice(&payload);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_summary_is_read_back(entries in proptest::collection::vec((1..1u64 << 50, 0..=REGION_PAGES, any::<u32>()), 0..40)) {
            let entries: Vec<Entry> =
                entries.into_iter().map(|(map_page, image_pages, check)| Entry { map_page, image_pages, check }).collect();
            let bytes = encode_summary(&entries);
            prop_assert_eq!(bytes.len(), summary_bytes(entries.len()));
            prop_assert_eq!(decode_summary(&bytes)?, entries);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = decode_summary(&bytes);
        }
    }
}
