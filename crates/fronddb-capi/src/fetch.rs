//! Many rows by one call, packed into the caller's buffer.
//!
//! The layout is the header's: two lengths of 4 bytes, the key, the value, zeros up to a multiple of 8. A row that
//! does not fit leaves the cursor *at* it, marked as pending, so that nothing is read twice.

use engine::{Error, Result};

use crate::border::{Bytes, Status, check_flags, enter, need, null};
use crate::constants::{FROND_FETCH_HEADER_BYTES, FROND_FETCH_KEYS_ONLY};
use crate::cursor::{Move, frond_cursor};
use crate::types::frond_fetch;

/// What is left of the buffer.
struct Packer {
    next: *mut u8,
    room: usize,
}

impl Packer {
    /// Length of a packed row.
    fn packed_bytes(key: &[u8], value: &[u8]) -> usize {
        (FROND_FETCH_HEADER_BYTES + key.len() + value.len()).next_multiple_of(8)
    }

    /// Packs a row; its packed length, as an error if it does not fit.
    fn pack(&mut self, key: &[u8], value: &[u8]) -> std::result::Result<usize, usize> {
        let bytes = Packer::packed_bytes(key, value);
        let header = [key.len() as u32, value.len() as u32].map(u32::to_ne_bytes);
        let zeros = [0; 8];
        let used = FROND_FETCH_HEADER_BYTES + key.len() + value.len();
        let Some(room) = self.room.checked_sub(bytes) else { return Err(bytes) };
        for part in [header.as_flattened(), key, value, &zeros[..bytes - used]] {
            // Safety: the parts are `bytes` long together, and `room` said that as much is left of a buffer that is
            // writable (C1) and not shared with what the engine reads from (C3).
            unsafe {
                self.next.copy_from_nonoverlapping(part.as_ptr(), part.len());
                self.next = self.next.add(part.len());
            }
        }
        self.room = room;
        Ok(bytes)
    }
}

impl frond_cursor {
    fn fetch(&mut self, first: Move<'_>, fetch: &mut frond_fetch) -> Result<()> {
        (fetch.rows, fetch.more, fetch.bytes, fetch.bytes_needed) = (0, 1, 0, 0);
        check_flags(fetch.flags, FROND_FETCH_KEYS_ONLY)?;
        if fetch.buffer.is_null() && fetch.capacity > 0 {
            return Err(null("buffer"));
        }
        if fetch.capacity > isize::MAX as usize {
            return Err(Error::invalid(format!("buffer too long, bytes={}", fetch.capacity)));
        }
        let mut packer = Packer { next: fetch.buffer, room: fetch.capacity };
        let rows_max = if fetch.rows_max == 0 { u32::MAX } else { fetch.rows_max };
        let mut step = first;
        while fetch.rows < rows_max {
            let again = std::mem::take(&mut self.pending) && matches!(step, Move::Next | Move::Prev);
            if !(again || self.go(step)?) {
                fetch.more = 0;
                break;
            }
            let value = if fetch.flags & FROND_FETCH_KEYS_ONLY == 0 { self.inner.value() } else { &[] };
            match packer.pack(self.inner.key(), value) {
                Ok(bytes) => {
                    fetch.rows += 1;
                    fetch.bytes += bytes;
                }
                Err(bytes) => {
                    self.pending = true;
                    fetch.bytes_needed = bytes;
                    break;
                }
            }
            step = first.onward();
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_cursor_fetch(
    cursor: Option<&mut frond_cursor>,
    r#move: u32,
    key: Bytes<'_>,
    fetch: Option<&mut frond_fetch>,
) -> Status {
    enter("frond_cursor_fetch", || {
        let (cursor, fetch) = (need(cursor, "cursor")?, need(fetch, "fetch")?);
        cursor.fetch(Move::new(r#move, key)?, fetch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_packed_to_the_byte_and_one_that_does_not_fit_changes_nothing() {
        let mut buffer = [0xee_u8; 48];
        let mut packer = Packer { next: buffer.as_mut_ptr(), room: 40 };
        assert_eq!(packer.pack(b"key", b"value"), Ok(16));
        assert_eq!(packer.pack(b"0123456789", b"abcdefg"), Err(32));
        assert_eq!(packer.pack(b"0123456789", b"abcdef"), Ok(24));
        assert_eq!(packer.pack(b"", b""), Err(8));
        let mut expected = Vec::new();
        for (key, value) in [(&b"key"[..], &b"value"[..]), (b"0123456789", b"abcdef")] {
            expected.extend((key.len() as u32).to_ne_bytes());
            expected.extend((value.len() as u32).to_ne_bytes());
            expected.extend(key);
            expected.extend(value);
            expected.resize(expected.len().next_multiple_of(8), 0);
        }
        expected.resize(48, 0xee);
        assert_eq!(buffer[..], expected[..]);
    }
}
