//! Large values through the store: cut into chunks, each a sealed block of its own ([`BlobRef`]).

use super::Store;
use super::load::located;
use super::output::Output;
use crate::base::compress::{Codec, Compressor};
use crate::base::page_buf::PageBuf;
use crate::base::space::PAGE_BYTES;
use crate::base::{BlockPtr, Error, Result};
use crate::format::blob::BlobRef;
use crate::format::block::{self, BlockKind, Opened, open_with};
use crate::store::Urgency;
use std::sync::Arc;

/// Bytes of a value in one chunk.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes written at a time.
const WRITE_BYTES: usize = 4 * CHUNK_BYTES;

/// Writes a value to extents of its own. Written, not synced.
///
/// # Errors
/// `NoSpace`, `Io`; the space is given back.
pub fn write_blob(store: &Arc<Store>, codec: Codec, value: &[u8]) -> Result<BlobRef> {
    let mut compressor = Compressor::new();
    let mut sealed = Vec::new();
    let mut chunks = Vec::new();
    let mut output = Output::new(store, Urgency::Ordinary, 0, WRITE_BYTES, PageBuf::default(), Vec::new());
    let mut waiting: Vec<(usize, u32)> = Vec::new();
    let mut flush = |output: &mut Output, waiting: &mut Vec<(usize, u32)>| -> Result<()> {
        let base = output.reserve(output.filled())?;
        chunks.extend(waiting.drain(..).map(|(at, stored)| BlockPtr { offset: base + at as u64, stored }));
        output.write(|_, _| {})
    };
    for piece in value.chunks(CHUNK_BYTES) {
        sealed.clear();
        let stored = block::seal_unplaced(BlockKind::BlobChunk, codec, piece, &mut compressor, &mut sealed)?;
        if !output.fits(stored) {
            flush(&mut output, &mut waiting)?;
        }
        waiting.push((output.push(&sealed), stored as u32));
    }
    if output.filled() > 0 {
        flush(&mut output, &mut waiting)?;
    }
    let (extents, _, _) = output.finish();
    Ok(BlobRef { bytes: value.len() as u64, extents, chunks })
}

/// Gives back the space of a blob that was written for nothing: no message and no log record names it.
pub fn free_blob(store: &Store, blob: &BlobRef) {
    blob.extents.iter().for_each(|extent| store.free_unpublished(*extent));
}

/// Reads a value back.
///
/// # Errors
/// `Io`, `Corruption`.
pub fn read_blob(store: &Store, blob: &BlobRef) -> Result<Vec<u8>> {
    let bytes = usize::try_from(blob.bytes).map_err(|_| Error::corruption("impossible length of a large value"))?;
    let mut value: Vec<u8> = Vec::new();
    let mut scratch = Vec::new();
    let mut chunks = blob.chunks.as_slice();
    while let Some(first) = chunks.first() {
        // Neighbours are read at once.
        let mut count = 1;
        let mut end = first.offset + u64::from(first.stored);
        while let Some(next) = chunks.get(count) {
            let next_end = next.offset.saturating_add(u64::from(next.stored));
            if next.offset < end || next.offset - end >= PAGE_BYTES || next_end - first.offset > 1 << 20 {
                break;
            }
            end = next_end;
            count += 1;
        }
        let (now, later) = chunks.split_at(count);
        chunks = later;
        let mut append = |stored: &[u8]| -> Result<()> {
            for chunk in now {
                let at = (chunk.offset - first.offset) as usize;
                let piece = stored.get(at..at + chunk.stored as usize).unwrap_or_default();
                let opened = open_with(BlockKind::BlobChunk, chunk.offset, piece, &mut scratch)
                    .map_err(|error| located(error, store, *chunk, "piece of a large value"))?;
                match opened {
                    Opened::AsStored(raw) => value.extend_from_slice(raw),
                    Opened::Decompressed => value.extend_from_slice(&scratch),
                }
                if value.len() > bytes {
                    break;
                }
            }
            Ok(())
        };
        let all = BlockPtr { offset: first.offset, stored: (end - first.offset) as u32 };
        store
            .read_with(all.offset, all.stored as usize, |stored| Ok(append(stored)))
            .map_err(|error| located(error, store, all, "piece of a large value"))??;
    }
    if value.len() != bytes {
        let at = blob.chunks.first().copied().unwrap_or_default();
        let error =
            Error::corruption(format!("large value of the wrong length, bytes={} expected={bytes}", value.len()));
        return Err(located(error, store, at, "large value"));
    }
    Ok(value)
}
