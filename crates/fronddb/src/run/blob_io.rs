//! Large values through the store: what follows the head is cut into chunks, each a sealed block of its own ([`BlobRef`]).

use super::Store;
use super::load::located;
use super::output::Output;
use crate::base::compress::{Codec, Compressor};
use crate::base::page_buf::PageBuf;
use crate::base::space::PAGE_BYTES;
use crate::base::{BlockPtr, Error, Result};
use crate::cache::{Cache, Priority};
use crate::format::blob::{BlobRef, head_bytes};
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
    let (head, rest) = value.split_at(head_bytes(value.len()));
    for piece in rest.chunks(CHUNK_BYTES) {
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
    Ok(BlobRef { bytes: value.len() as u64, extents, chunks, head: head.to_vec() })
}

/// Gives back the space of a blob that was written for nothing: no message and no log record names it.
pub fn free_blob(store: &Store, blob: &BlobRef) {
    blob.extents.iter().for_each(|extent| store.free_unpublished(*extent));
}

/// Reads a value back from the disk.
///
/// # Errors
/// `Io`, `Corruption`.
pub fn read_blob(store: &Store, blob: &BlobRef) -> Result<Vec<u8>> {
    read_with(store, blob, |chunks, take| read_chunks(store, chunks, take))
}

/// The same, of what the cache does not have; where it `keeps` that, it has it from now on.
///
/// # Errors
/// As there.
pub fn read_cached_blob(store: &Store, cache: &Cache, keeps: Option<Priority>, blob: &BlobRef) -> Result<Vec<u8>> {
    read_with(store, blob, |mut chunks, take| {
        while let [first, others @ ..] = chunks {
            if let Some(piece) = cache.chunk(first.offset) {
                take(&piece)?;
                chunks = others;
                continue;
            }
            let missing = others.iter().take_while(|chunk| !cache.contains(chunk.offset)).count() + 1;
            let mut offsets = chunks.iter().map(|chunk| chunk.offset);
            read_chunks(store, &chunks[..missing], &mut |raw| {
                if let (Some(offset), Some(priority)) = (offsets.next(), keeps) {
                    cache.add_chunk(offset, raw, priority);
                }
                take(raw)
            })?;
            chunks = &chunks[missing..];
        }
        Ok(())
    })
}

/// Takes a piece of a value, which follows the one before.
type Take<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

fn read_with(
    store: &Store,
    blob: &BlobRef,
    read: impl FnOnce(&[BlockPtr], &mut Take<'_>) -> Result<()>,
) -> Result<Vec<u8>> {
    let bytes = usize::try_from(blob.bytes).map_err(|_| Error::corruption("impossible length of a large value"))?;
    let wrong = |length: usize| {
        let at = blob.chunks.first().copied().unwrap_or_default();
        let error = Error::corruption(format!("large value of the wrong length, bytes={length} expected={bytes}"));
        located(error, store, at, "large value")
    };
    let mut value = Vec::with_capacity(blob.head.len());
    value.extend_from_slice(&blob.head);
    read(&blob.chunks, &mut |raw| {
        value.extend_from_slice(raw);
        if value.len() > bytes { Err(wrong(value.len())) } else { Ok(()) }
    })?;
    if value.len() == bytes { Ok(value) } else { Err(wrong(value.len())) }
}

/// Gives `take` the pieces of a value one by one; neighbours are read at once.
fn read_chunks(store: &Store, mut chunks: &[BlockPtr], take: &mut Take<'_>) -> Result<()> {
    let mut scratch = Vec::new();
    while let Some(first) = chunks.first() {
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
        let mut take_all = |stored: &[u8]| -> Result<()> {
            for chunk in now {
                let at = (chunk.offset - first.offset) as usize;
                let piece = stored.get(at..at + chunk.stored as usize).unwrap_or_default();
                let opened = open_with(BlockKind::BlobChunk, chunk.offset, piece, &mut scratch)
                    .map_err(|error| located(error, store, *chunk, "piece of a large value"))?;
                match opened {
                    Opened::AsStored(raw) => take(raw)?,
                    Opened::Decompressed => take(&scratch)?,
                }
            }
            Ok(())
        };
        let all = BlockPtr { offset: first.offset, stored: (end - first.offset) as u32 };
        store
            .read_with(all.offset, all.stored as usize, |stored| Ok(take_all(stored)))
            .map_err(|error| located(error, store, all, "piece of a large value"))??;
    }
    Ok(())
}
