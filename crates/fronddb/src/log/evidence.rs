//! Torn end, or damage?
//!
//! A log is read until a frame is bad. After a crash that is how it ends: the frame was being written, or was written
//! and never synced. But a frame that was durable and is bad now is damage, and to end the log there would
//! silently lose acknowledged commits. Frames and segment headers say up to where the log was durable when they
//! were made; so if anything valid says that for a position above the bad frame, it is damage.
//!
//! Where the bad frame ends is not known, so every eight-byte word after it is tried as a header. Headers have a check of
//! 32 bits over their position and epoch; a candidate must also be followed by a record whose checksum fits. Only a
//! *window* needs to be looked at: the writer bounds how far above what is durable a frame can be appended, so
//! the next frames further on than that all vouch for the bad one, and within the window there is one of
//! them if the log goes on at all. The search reads what a crash left, stale frames of earlier uses included, and must
//! stay linear: a false candidate passes the header's check once in four thousand million.

use super::frame::{self, Header};
use super::segment::HEADER_BYTES;
use crate::base::Result;
use crate::base::page_buf::PageBuf;
use crate::io::File;

const CHUNK: u64 = 1 << 20;

/// Looks in a segment for a frame at or after `from` that says that the log was durable above `bad`. Returns what
/// it says. `start` and `epoch` are the segment's; `end` the length of its file.
pub(super) fn find(
    file: &dyn File,
    (start, epoch): (u64, u64),
    from: u64,
    bad: u64,
    window: u64,
    end: u64,
) -> Result<Option<u64>> {
    let mut offset = HEADER_BYTES + (from - start);
    let stop = offset.saturating_add(window).min(end);
    let mut chunk = PageBuf::zeroed(CHUNK as usize);
    while offset < stop {
        let aligned = offset / 4096 * 4096;
        let length = CHUNK.min(stop.next_multiple_of(4096).min(end) - aligned);
        file.read_at(&mut chunk[..length as usize], aligned)?;
        let bytes = &chunk[..length as usize];
        let last = length.saturating_sub(frame::HEADER_BYTES as u64);
        let mut at = offset - aligned;
        while at <= last {
            let position = start + (aligned + at - HEADER_BYTES);
            if let Some(header) = candidate(&bytes[at as usize..], position, epoch, bad)
                && record_fits(file, aligned + at, &header, end)?
            {
                return Ok(Some(header.durable));
            }
            at += 8;
        }
        if aligned + at <= offset || aligned + length >= stop {
            break;
        }
        offset = aligned + at;
    }
    Ok(None)
}

/// The header at `position` if it is one that vouches for `bad`. The cheap questions come first.
#[inline]
fn candidate(bytes: &[u8], position: u64, epoch: u64, bad: u64) -> Option<Header> {
    let words = bytes.first_chunk::<16>()?;
    let first = u64::from_le_bytes(*words.first_chunk::<8>()?);
    let distance = u32::from_le_bytes(*words[8..].first_chunk::<4>()?);
    if first == 0 || u64::from(distance) >= position.saturating_sub(bad) {
        return None;
    }
    Header::decode(words, position, epoch).filter(|header| header.durable > bad)
}

fn record_fits(file: &dyn File, offset: u64, header: &Header, end: u64) -> Result<bool> {
    let bytes = frame::frame_bytes(header.stored);
    if offset + bytes > end {
        return Ok(false);
    }
    let aligned = offset / 4096 * 4096;
    let length = (offset + bytes).next_multiple_of(4096).min(end) - aligned;
    let mut buffer = PageBuf::zeroed(length as usize);
    file.read_at(&mut buffer, aligned)?;
    let record = (offset - aligned) as usize + frame::HEADER_BYTES;
    Ok(frame::record_crc(&buffer[record..record + header.stored]) == header.crc)
}
