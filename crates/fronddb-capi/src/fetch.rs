//! Many rows by one call, packed into the caller's buffer.
//!
//! The layout is the header's: two lengths of 4 bytes, the key, the value, zeros up to a multiple of 8. A row that
//! does not fit leaves the cursor *at* it, marked as pending, so that nothing is read twice.
//!
//! Of values that are lent, the pointer stands before the key. The cursor keeps their blocks until its next call.

use engine::{Error, Result};

use crate::border::{Bytes, Status, check_flags, enter, need, null};
use crate::constants::{FROND_FETCH_HEADER_BYTES, FROND_FETCH_KEYS_ONLY, FROND_FETCH_LENT};
use crate::cursor::{Move, frond_cursor};
use crate::types::frond_fetch;

/// Values of fewer bytes are copied: lending them would spare nothing.
const LENT_BYTES_MIN: usize = 64;
/// Values of so many bytes end a fetch, as a full buffer does: their blocks stay in memory though the cache may have given them up.
const LENT_BYTES_MAX: usize = 256 << 10;

/// A packed row takes a multiple of so many bytes.
const WORD: usize = 8;

/// What is left of the buffer.
struct Packer {
    next: *mut u8,
    room: usize,
    /// Of all rows so far.
    lent_bytes: usize,
}

/// How a value goes to the caller.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Copied,
    /// Copied, with a pointer to the copy.
    CopiedWithPointer,
    Lent,
}

/// Copies `from`, which is mostly short: then without a call.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline]
unsafe fn copy_short(from: &[u8], to: *mut u8) {
    /// Two words that overlap.
    unsafe fn ends<const N: usize>(from: &[u8], to: *mut u8) {
        // Safety: `from` has N bytes at least, and as many are writable behind `to`.
        unsafe {
            let (first, last) = (from.as_ptr(), from.as_ptr().add(from.len() - N));
            let (first, last) = (first.cast::<[u8; N]>().read(), last.cast::<[u8; N]>().read());
            to.cast::<[u8; N]>().write(first);
            to.add(from.len() - N).cast::<[u8; N]>().write(last);
        }
    }
    // Safety: each takes no more bytes than there are.
    unsafe {
        match from.len() {
            0 => {}
            1 => ends::<1>(from, to),
            2..4 => ends::<2>(from, to),
            4..8 => ends::<4>(from, to),
            8..=16 => ends::<8>(from, to),
            bytes => to.copy_from_nonoverlapping(from.as_ptr(), bytes),
        }
    }
}

impl Packer {
    /// Packs a row with its key in two parts; its packed length, as an error if it does not fit.
    #[inline]
    fn pack(&mut self, [front, rest]: [&[u8]; 2], value: &[u8], pass: Pass) -> std::result::Result<usize, usize> {
        let copied = if pass == Pass::Lent { &[] } else { value };
        let head = FROND_FETCH_HEADER_BYTES + if pass == Pass::Copied { 0 } else { size_of::<*const u8>() };
        let key_bytes = front.len() + rest.len();
        let used = head + key_bytes + copied.len();
        let bytes = used.next_multiple_of(WORD);
        let Some(room) = self.room.checked_sub(bytes) else { return Err(bytes) };
        let lengths = [key_bytes as u32, value.len() as u32];
        // Safety: all that is written lies in the next `bytes`, of which there are at least a header's, and `room` said that as
        // much is left of a buffer that is writable (C1) and not shared with what the engine reads from (C3).
        unsafe {
            self.next.add(bytes - WORD).cast::<[u8; WORD]>().write([0; WORD]);
            self.next.cast::<[u32; 2]>().write_unaligned(lengths);
            if pass != Pass::Copied {
                let at = if pass == Pass::Lent { value.as_ptr() } else { self.next.add(head + key_bytes) };
                self.next.add(FROND_FETCH_HEADER_BYTES).cast::<*const u8>().write_unaligned(at);
            }
            copy_short(front, self.next.add(head));
            copy_short(rest, self.next.add(head + front.len()));
            if !copied.is_empty() {
                self.next.add(head + key_bytes).copy_from_nonoverlapping(copied.as_ptr(), copied.len());
            }
            self.next = self.next.add(bytes);
        }
        self.room = room;
        self.lent_bytes += if pass == Pass::Lent { value.len() } else { 0 };
        Ok(bytes)
    }

    /// Packs a row of `fetch` and counts it there.
    #[inline]
    fn add(
        &mut self,
        fetch: &mut frond_fetch,
        key: [&[u8]; 2],
        value: &[u8],
        pass: Pass,
    ) -> std::result::Result<(), usize> {
        fetch.bytes += self.pack(key, value, pass)?;
        fetch.rows += 1;
        Ok(())
    }

    fn may_go_on(&self) -> bool {
        self.lent_bytes < LENT_BYTES_MAX
    }
}

impl frond_cursor {
    fn fetch(&mut self, first: Move<'_>, fetch: &mut frond_fetch) -> Result<()> {
        (fetch.rows, fetch.more, fetch.bytes, fetch.bytes_needed, fetch.peeked) = (0, 1, 0, 0, 0);
        check_flags(fetch.flags, FROND_FETCH_KEYS_ONLY | FROND_FETCH_LENT)?;
        let (keys_only, lent) = (fetch.flags & FROND_FETCH_KEYS_ONLY != 0, fetch.flags & FROND_FETCH_LENT != 0);
        if fetch.buffer.is_null() && fetch.capacity > 0 {
            return Err(null("buffer"));
        }
        if fetch.capacity > isize::MAX as usize {
            return Err(Error::invalid(format!("buffer too long, bytes={}", fetch.capacity)));
        }
        let mut packer = Packer { next: fetch.buffer, room: fetch.capacity, lent_bytes: 0 };
        let rows_max = if fetch.rows_max == 0 { u32::MAX } else { fetch.rows_max };
        let (mut step, following) = (first, self.turn(first));
        let mut has_looked = false;
        while fetch.rows < rows_max && packer.may_go_on() {
            let again = std::mem::take(&mut self.pending) && matches!(step, Move::Next | Move::Prev);
            if again {
                self.inner.check_live()?;
            }
            let onward = has_looked && matches!(step, Move::Next);
            let is_at_row = again || onward && self.inner.advance() || {
                has_looked = true;
                self.go(step)?
            };
            if fetch.rows == 0 {
                // What was lent before goes only now: the key may lie in it.
                self.inner.let_go();
            }
            if !is_at_row {
                fetch.more = 0;
                break;
            }
            let pass = match lent {
                false => Pass::Copied,
                true if !keys_only && self.inner.value().len() >= LENT_BYTES_MIN && self.inner.keep_value() => {
                    Pass::Lent
                }
                true => Pass::CopiedWithPointer,
            };
            let value = if keys_only { &[] } else { self.inner.value() };
            if let Err(bytes) = packer.add(fetch, [&[], self.inner.key()], value, pass) {
                self.pending = true;
                fetch.bytes_needed = bytes;
                break;
            }
            if self.inner.is_peeked() {
                fetch.peeked = 1;
                break;
            }
            step = following;
            if !(has_looked && matches!(step, Move::Next)) {
                continue;
            }
            // What follows in the block of this row, which is kept if that was lent.
            self.inner.pass((rows_max - fetch.rows) as usize, |key, value| {
                let value = if keys_only { &[] } else { value };
                let pass = match pass {
                    Pass::Lent if value.len() < LENT_BYTES_MIN => Pass::CopiedWithPointer,
                    pass => pass,
                };
                packer.may_go_on() && packer.add(fetch, key, value, pass).is_ok()
            });
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
        let mut packer = Packer { next: buffer.as_mut_ptr(), room: 40, lent_bytes: 0 };
        assert_eq!(packer.pack([b"k", b"ey"], b"value", Pass::Copied), Ok(16));
        assert_eq!(packer.pack([b"", b"0123456789"], b"abcdefg", Pass::Copied), Err(32));
        assert_eq!(packer.pack([b"01234567", b"89"], b"abcdef", Pass::Copied), Ok(24));
        assert_eq!(packer.pack([b"", b""], b"", Pass::Copied), Err(8));
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

    #[test]
    fn a_lent_value_is_pointed_to_and_a_copied_one_follows_its_key() {
        let mut buffer = [0xee_u8; 64];
        let start = buffer.as_mut_ptr();
        let mut packer = Packer { next: start, room: 64, lent_bytes: 0 };
        let value = [7_u8; 100];
        assert_eq!(packer.pack([b"k", b"ey"], &value, Pass::Lent), Ok(24));
        assert_eq!(packer.pack([b"k", b"ey"], b"value", Pass::CopiedWithPointer), Ok(24));
        assert_eq!(packer.pack([b"k", b"ey"], b"value", Pass::CopiedWithPointer), Err(24));
        let pointers = [value.as_ptr(), start.wrapping_add(24 + 16 + 3).cast_const()];
        for (row, (pointer, length)) in buffer.chunks(24).zip(pointers.iter().zip([100_u32, 5])) {
            assert_eq!(row[..8], [3_u32.to_ne_bytes(), length.to_ne_bytes()].concat());
            assert_eq!(row[8..16], pointer.addr().to_ne_bytes());
            assert_eq!(&row[16..19], b"key");
        }
        assert_eq!(&buffer[19..24], &[0; 5]);
        assert_eq!(&buffer[43..48], b"value");
    }
}
