//! Segments: the files of the log.
//!
//! A segment is a header page, then frames. The record area is one piece of the log's space of positions: position `p` lies at
//! offset `4096 + p - start`. Files are named by a number that is never given out again, and recycled by
//! giving them the next number; the header still names the old one until the segment is begun, so that the name
//! says what a file is for and the header what it holds.
//!
//! Files are allocated whole when prepared. Where nothing was ever written, zeros are written ahead of the records in
//! large steps behind the header page, so that a commit overwrites written space: a sync need not change the file's metadata, and writing into
//! allocated but unwritten space is what file systems got wrong. A file system that cannot allocate has all of the zeros written at once.
//!
//! # Bytes of the header (the first 512 of its page; the rest is zero)
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `FRONDLOG` |
//! | 8 | 4 | format version, 4; 1 to 3 are read: before records could be turned, before records of locks, before origins |
//! | 12 | 4 | checksum of the 512 bytes with this field zero |
//! | 16 | 16 | id of the database |
//! | 32 | 8 | number of the segment; 0 in one that was prepared and never begun |
//! | 40 | 8 | epoch: the number of the first segment that this opening of the database began |
//! | 48 | 8 | position of the first frame |
//! | 56 | 8 | position below which the log was durable when the segment was begun |
//! | 64 | 8 | window: no frame lies further above what was durable when it was appended |
//!
//! Only the first 512 bytes count, because disks write 512 bytes whole or not at all. The place of magic, version and
//! checksum never changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::page_buf::PageBuf;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::{Error, ErrorKind, Result, checksum};
use crate::io::File;

/// Bytes of the header page.
pub(super) const HEADER_BYTES: u64 = 4096;
const CHECKED_BYTES: usize = 512;
const MAGIC: [u8; 8] = *b"FRONDLOG";
/// Newest format that this version reads and the one that it writes.
pub const LOG_FORMAT: u32 = 4;
const EXTENSION: &str = ".log";

/// Bytes of zeros written at a time where space cannot be reserved otherwise.
const RESERVE_BYTES: u64 = 1 << 20;

/// What a segment's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) uuid: [u8; 16],
    pub(super) number: u64,
    pub(super) epoch: u64,
    pub(super) start: u64,
    pub(super) durable: u64,
    pub(super) window: u64,
}

impl Header {
    /// Of a segment that holds nothing yet: says only whose it is.
    pub(super) fn of_nothing(uuid: [u8; 16]) -> Header {
        Header { uuid, number: 0, epoch: 0, start: 0, durable: 0, window: 0 }
    }

    /// Fills the header page.
    pub(super) fn encode(&self, page: &mut [u8]) {
        page[..HEADER_BYTES as usize].fill(0);
        page[0..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&LOG_FORMAT.to_le_bytes());
        page[16..32].copy_from_slice(&self.uuid);
        for (index, field) in [self.number, self.epoch, self.start, self.durable, self.window].iter().enumerate() {
            page[32 + index * 8..40 + index * 8].copy_from_slice(&field.to_le_bytes());
        }
        let crc = checksum::log(0, &page[..CHECKED_BYTES]);
        page[12..16].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the header page of the file with this number. `None`: the segment was not begun, and the file holds
    /// nothing or what a segment of another number left in it.
    ///
    /// # Errors
    /// `Corruption` when the page is damaged or of another database, `UnsupportedFormat` when it is newer.
    pub(super) fn decode(page: &[u8], number: u64, uuid: &[u8; 16]) -> Result<Option<Header>> {
        let checked = check_intact(page)?;
        if checked.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let u32_at = |at: usize| u32::from_le_bytes(checked[at..at + 4].try_into().unwrap_or_default());
        let u64_at = |at: usize| u64::from_le_bytes(checked[at..at + 8].try_into().unwrap_or_default());
        if u32_at(8) > LOG_FORMAT {
            let message = format!("log segment is newer than this program, format={} known={LOG_FORMAT}", u32_at(8));
            return Err(Error::new(ErrorKind::UnsupportedFormat, message));
        }
        let header = Header {
            uuid: checked[16..32].try_into().unwrap_or_default(),
            number: u64_at(32),
            epoch: u64_at(40),
            start: u64_at(48),
            durable: u64_at(56),
            window: u64_at(64),
        };
        // Also when it was not begun: who opens the wrong directory must not recycle what is in it.
        if header.uuid != *uuid {
            return Err(Error::corruption("log segment belongs to another database"));
        }
        if header.number != number {
            return Ok(None);
        }
        if !header.start.is_multiple_of(8) || header.start > START_MAX || header.durable > header.start {
            return Err(Error::corruption(format!("impossible log segment, start={}", header.start)));
        }
        Ok(Some(header))
    }
}

/// The checked bytes of a header page that is as it was written, by whichever database, or was never written.
///
/// # Errors
/// `Corruption`.
pub(super) fn check_intact(page: &[u8]) -> Result<&[u8]> {
    let Some(checked) = page.get(..CHECKED_BYTES) else {
        return Err(Error::corruption("log segment is shorter than its header"));
    };
    let mut copy = checked.to_vec();
    copy[12..16].fill(0);
    let is_intact = checked[0..8] == MAGIC && checksum::log(0, &copy).to_le_bytes() == checked[12..16];
    if is_intact || checked.iter().all(|byte| *byte == 0) {
        return Ok(checked);
    }
    Err(Error::corruption("damaged header of a log segment, offset=0"))
}

/// No log gets as far as this; so positions, offsets and windows can be added up.
const START_MAX: u64 = 1 << 62;

/// The name of the file with this number.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:08}{EXTENSION}")
}

/// The number in a file's name; `None` for other files.
pub(super) fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(EXTENSION)?;
    if number.len() < 8 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse().ok()
}

/// The path of the file with this number.
pub(super) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(file_name(number))
}

/// How records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Past the page cache.
    Direct,
    /// Into the page cache.
    Cached,
    /// Past the page cache, and durable when the call returns.
    Durable,
}

/// An open segment, prepared or begun.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) file: Arc<dyn File>,
    /// Bytes of the record area.
    pub(super) capacity: u64,
    filling: Arc<Filling>,
}

/// How far a file was filled; shared by a segment and those that take its place in the file, a larger one or one with the
/// next number. So zeros never come over records, also when who fills ahead looked up a segment that is gone by then.
#[derive(Debug)]
struct Filling {
    /// Everything in the file below this offset was written at least once. Changed under `latch`.
    written: AtomicU64,
    latch: Mutex<()>,
}

impl Segment {
    /// In a file of which no more than the header page is known to be written.
    pub(super) fn new(number: u64, file: Arc<dyn File>, capacity: u64) -> Segment {
        let filling = Arc::new(Filling { written: AtomicU64::new(HEADER_BYTES), latch: Mutex::new(()) });
        Segment { number, file, capacity, filling }
    }

    /// A segment with this number and room in the same file. Who still fills the old one does not get in the way of who
    /// writes this one.
    pub(super) fn succeeded_by(&self, number: u64, capacity: u64) -> Segment {
        let (file, filling) = (Arc::clone(&self.file), Arc::clone(&self.filling));
        Segment { number, file, capacity, filling }
    }

    /// Offset up to which the file was written at least once.
    pub(super) fn filled(&self) -> u64 {
        self.filling.written.load(Ordering::Acquire)
    }

    fn file_bytes(&self) -> u64 {
        HEADER_BYTES + self.capacity
    }

    /// Writes records, and zeros after them where the file ends to have been written; aligned.
    pub(super) fn write(&self, bytes: &[u8], offset: u64, fill_bytes: u64, way: Way) -> Result<()> {
        let write = |way| match way {
            Way::Direct => self.file.write_at(bytes, offset),
            Way::Cached => self.file.write_cached_at(bytes, offset),
            Way::Durable => self.file.write_durable_at(bytes, offset),
        };
        let end = offset + bytes.len() as u64;
        if end <= self.filled() {
            return write(way);
        }
        let _filling = self.filling.latch.lock();
        write(if way == Way::Cached { Way::Direct } else { way })?;
        self.fill(end.max(self.filled()), fill_bytes)
    }

    /// Writes zeros ahead of `offset`, one step of at most `fill_bytes`; false when it is `ahead` bytes ahead already.
    pub(super) fn fill_ahead(&self, offset: u64, ahead: u64, fill_bytes: u64) -> Result<bool> {
        let _filling = self.filling.latch.lock();
        let filled = self.filled();
        if filled >= (offset + ahead).min(self.file_bytes()) {
            return Ok(false);
        }
        self.fill(filled, fill_bytes)?;
        Ok(true)
    }

    /// Reserves the space of the whole file. Where the file system cannot do that, zeros are written where nothing was, so that no record
    /// finds the disk full, unless each write takes new space there. On failure the file has the length that it had, and gives back what it
    /// got beyond.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub(super) fn reserve(&self) -> Result<()> {
        let before = self.file.len()?;
        let reserved = self.file.allocate(0, self.file_bytes()).and_then(|is_reserved| {
            while !is_reserved && before < self.file_bytes() && self.fill_ahead(0, self.file_bytes(), RESERVE_BYTES)? {}
            Ok(())
        });
        if reserved.is_err() {
            let _filling = self.filling.latch.lock();
            self.file.set_len(before)?;
            self.filling.written.fetch_min(before.max(HEADER_BYTES), Ordering::AcqRel);
        }
        reserved
    }

    /// Writes zeros from `from`, below which all was written; under the latch.
    fn fill(&self, from: u64, bytes: u64) -> Result<()> {
        let upto = (from + bytes).min(self.file_bytes());
        if from < upto {
            let zeros = PageBuf::zeroed((upto - from) as usize);
            self.file.write_at(&zeros, from)?;
        }
        self.filling.written.store(upto.max(from), Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{MemoryStorage, OpenMode, Storage};

    fn header() -> Header {
        Header { uuid: [7; 16], number: 3, epoch: 2, start: 800, durable: 792, window: 5 }
    }

    #[test]
    fn a_header_is_read_back_and_every_bit_of_it_counts() {
        let mut page = vec![0xff; 4096];
        header().encode(&mut page);
        assert_eq!(Header::decode(&page, 3, &[7; 16]).expect("header"), Some(header()));
        assert_eq!(Header::decode(&page, 4, &[7; 16]).expect("of an earlier use"), None);
        assert_eq!(Header::decode(&[0; 4096], 4, &[7; 16]).expect("never used"), None);
        for number in [3, 4] {
            let error = Header::decode(&page, number, &[8; 16]).expect_err("other");
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert!(error.message().contains("another database"));
        }
        for bit in 0..CHECKED_BYTES * 8 {
            let mut damaged = page.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&damaged, 3, &[7; 16]).expect_err("damage").kind(), ErrorKind::Corruption);
        }
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let mut page = vec![0; 4096];
        header().encode(&mut page);
        page[8] = 9;
        page[12..16].fill(0);
        let crc = checksum::log(0, &page[..CHECKED_BYTES]);
        page[12..16].copy_from_slice(&crc.to_le_bytes());
        let error = Header::decode(&page, 3, &[7; 16]).expect_err("newer");
        assert_eq!(error.kind(), ErrorKind::UnsupportedFormat);
        assert!(error.message().contains(&format!("format=9 known={LOG_FORMAT}")));
    }

    #[test]
    fn a_segment_for_which_the_disk_has_not_enough_keeps_nothing_of_it() {
        for refuses_allocate in [false, true] {
            let storage = MemoryStorage::new();
            storage.create_dir_all(Path::new("/d")).expect("folder");
            if refuses_allocate {
                storage.refuse_allocate();
            }
            let mode = OpenMode { create: true, ..OpenMode::default() };
            let file = storage.open(Path::new("/d/log"), mode).expect("create");
            let segment = Segment::new(1, file, 1 << 20);
            segment.reserve().expect("space");
            let before = (storage.occupied_bytes(), segment.file.len().expect("length"), segment.filled());
            storage.set_capacity(before.0 + (1 << 20));
            let larger = segment.succeeded_by(1, 4 << 20);
            assert_eq!(larger.reserve().expect_err("no space").kind(), ErrorKind::NoSpace);
            let after = (storage.occupied_bytes(), segment.file.len().expect("length"), segment.filled());
            assert_eq!(after, before);
            storage.set_capacity(u64::MAX);
            larger.reserve().expect("space");
            assert_eq!(storage.occupied_bytes(), before.0 + (3 << 20), "without holes");
        }
    }

    #[test]
    fn names_carry_numbers() {
        for number in [0, 1, 99_999_999, 123_456_789_012] {
            assert_eq!(number_of(&file_name(number)), Some(number));
        }
        for name in ["1.log", "00000001.tmp", "0000000x.log", "LOCK", "+0000001.log"] {
            assert_eq!(number_of(name), None);
        }
    }
}
