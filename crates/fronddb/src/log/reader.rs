//! Reading the log: for recovery, and to print it.
//!
//! A [`LogReader`] hands out the records from a position on, in order, in batches of a chunk of a file. Frames are
//! checked here; decompressing and decoding is left to whoever takes a batch, so that several threads that take turns at
//! a reader behind a mutex read, decompress and decode at the same time. Several readers may also read the same log, from
//! different positions.
//!
//! Where the log ends: segments follow each other without a gap, so each but the last ends where the next begins. A bad
//! frame before that, or in the last one, is the torn end of the log unless something valid says that it was durable
//! ([`super::evidence`]); then it is `Corruption`, naming file and offset. Records are handed out only up to there, so
//! what comes out is always a prefix of what was appended.
//!
//! Who knows up to where the log was durable once says so ([`LogReader::known_durable`]): a log that ends before is damaged, or lacks
//! its last segments, although nothing in it says so.
//!
//! Who would rather have a part of a damaged log than none ([`LogReader::open_damaged`]) gets it without the segments whose headers
//! cannot be read: numbers ascend with positions, so such a one is a gap where the reading ends, or holds nothing.
//!
//! Segments before the position stay live: a root older than the newest one may still need them, and only
//! [`super::Log::release`] says when not.
//!
//! The same evidence says up to where the log is known to be durable: what is beyond is a bounded tail, and [`super::Log::open`] writes it
//! again where it may have been read from a page cache that outlived a failed sync.
//!
//! Segments that were begun after the torn end hold nothing that was acknowledged: they are left to
//! [`super::Log::open`] to recycle, before it writes anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{self, Header};
use super::segment::{self, HEADER_BYTES};
use super::{LogOptions, RECORD_BYTES_MAX, evidence};
use crate::base::page_buf::PageBuf;
use crate::base::{Error, Lsn, Result, compress};
use crate::format::record::turned;
use crate::io::{File, OpenMode, Storage, is_damage};

/// Bytes read at a time.
const CHUNK: u64 = 1 << 20;

/// A segment that was begun.
#[derive(Debug)]
struct Found {
    header: segment::Header,
    file: Arc<dyn File>,
    path: PathBuf,
    bytes: u64,
}

/// Reads the records of a log in order.
#[derive(Debug)]
pub struct LogReader {
    /// In order; the first holds `from`, or begins the log.
    segments: Vec<Found>,
    /// Segments before those, which a restart from an older root would need: number, first position, end.
    earlier: Vec<(u64, u64, u64)>,
    /// Numbers of files that hold nothing of the log.
    leftovers: Vec<u64>,
    next_number: u64,
    index: usize,
    position: u64,
    ended: bool,
    /// The log was durable up to here: it cannot end before.
    known_durable: u64,
    /// What was read says that the log was durable up to here.
    vouched: u64,
    dir: PathBuf,
}

/// Some records, checked but not yet decompressed.
#[derive(Debug)]
pub struct RecordBatch {
    buffer: PageBuf,
    frames: Vec<Frame>,
    next: usize,
    raw: Vec<u8>,
    record: Vec<u8>,
    segment: u64,
    /// Its frames say that the log was durable up to here.
    vouched: u64,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    lsn: u64,
    at: usize,
    stored: usize,
    tag: u8,
}

/// Where the log of an earlier run ends, and which files it has: what [`super::Log::open`] goes on from.
#[derive(Debug, Clone)]
pub struct LogTail {
    end: u64,
    /// Number, first position, end.
    live: Vec<(u64, u64, u64)>,
    leftovers: Vec<u64>,
    next_number: u64,
    segments_read: u64,
    durable: u64,
}

impl LogTail {
    /// A log without files that will begin at `start`.
    pub(crate) fn empty(start: Lsn) -> LogTail {
        LogTail {
            end: start.0,
            live: Vec::new(),
            leftovers: Vec::new(),
            next_number: 1,
            segments_read: 0,
            durable: start.0,
        }
    }

    /// The position after the last record: the next one's.
    pub fn end(&self) -> Lsn {
        Lsn(self.end)
    }

    /// How many segments were read to find it.
    pub fn segments_read(&self) -> u64 {
        self.segments_read
    }

    /// The log is known to be durable up to here. What follows was found, also in the page cache, and may never have reached the disk.
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    pub(super) fn live(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.live.iter().copied()
    }

    pub(super) fn leftovers(&self) -> &[u64] {
        &self.leftovers
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }
}

impl LogReader {
    /// Reads from `from` on, which is where a record or a segment begins: what [`super::Log::rotate`] returned, or
    /// the end of the log.
    ///
    /// # Errors
    /// `Corruption` for a damaged segment header, a foreign segment, when there is no segment at all, which never is so (L3 of
    /// [`super::pool`]), or when records from `from` on are missing; `UnsupportedFormat`; `Io`.
    pub fn open(storage: &dyn Storage, dir: &Path, options: &LogOptions, from: Lsn) -> Result<LogReader> {
        LogReader::scan(storage, dir, options, None)?.begin(dir, from)
    }

    /// The same for a damaged log: files whose headers are damaged, or not given back by the disk, are left out and told in
    /// `damage`.
    ///
    /// # Errors
    /// As [`LogReader::open`], but for those.
    pub fn open_damaged(
        storage: &dyn Storage,
        dir: &Path,
        options: &LogOptions,
        from: Lsn,
        damage: &mut Vec<Error>,
    ) -> Result<LogReader> {
        let reader = LogReader::scan(storage, dir, options, Some(&mut *damage))?;
        if reader.segments.is_empty() && !damage.is_empty() {
            return Ok(LogReader { position: from.0, ..reader });
        }
        reader.begin(dir, from)
    }

    /// Goes to `from`.
    fn begin(self, dir: &Path, from: Lsn) -> Result<LogReader> {
        let mut reader = self;
        if reader.segments.is_empty() && reader.leftovers.is_empty() {
            let shown = dir.display();
            return Err(Error::corruption(format!(
                "the log is missing: no segment where it should be; mount or name the right log directory, directory={shown}"
            )));
        }
        // The last segment that begins at or below `from` holds it; what is before is of no use any more.
        let before = reader.segments.partition_point(|found| found.header.start <= from.0);
        if before == 0
            && let Some(first) = reader.segments.first()
        {
            let (path, start) = (first.path.display(), first.header.start);
            return Err(Error::corruption(format!("log segments are missing before {path}, lsn={from} start={start}")));
        }
        let last = before.saturating_sub(1);
        let ends = reader.segments.iter().skip(1).map(|next| next.header.start);
        reader.earlier = reader.segments[..last]
            .iter()
            .zip(ends)
            .map(|(found, end)| (found.header.number, found.header.start, end))
            .collect();
        reader.segments.drain(..last);
        reader.position = from.0;
        Ok(reader)
    }

    /// Reads all that there is, from the first position of the oldest segment on.
    ///
    /// # Errors
    /// As [`LogReader::open`].
    pub fn open_oldest(storage: &dyn Storage, dir: &Path, options: &LogOptions) -> Result<LogReader> {
        let mut reader = LogReader::scan(storage, dir, options, None)?;
        reader.position = reader.segments.first().map_or(0, |found| found.header.start);
        Ok(reader)
    }

    /// First position of the last segment: the log ends there or later.
    pub fn last_start(&self) -> Lsn {
        Lsn(self.segments.last().map_or(self.position, |found| found.header.start))
    }

    /// Numbers of the files in `dir`, if no segment there was begun and none is another database's.
    pub(super) fn unbegun(storage: &dyn Storage, dir: &Path, options: &LogOptions) -> Result<Vec<u64>> {
        match LogReader::scan(storage, dir, options, None) {
            Ok(reader) if reader.segments.is_empty() => Ok(reader.leftovers),
            Ok(_) => Ok(Vec::new()),
            Err(error) if error.is_unreadable() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Reads the headers. With `damage`, those that cannot be read are told there.
    fn scan(
        storage: &dyn Storage,
        dir: &Path,
        options: &LogOptions,
        mut damage: Option<&mut Vec<Error>>,
    ) -> Result<LogReader> {
        let (mut segments, mut leftovers) = (Vec::<Found>::new(), Vec::new());
        let names = if storage.exists(dir)? { storage.list(dir)? } else { Vec::new() };
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::number_of(name)).collect();
        numbers.sort_unstable();
        let mut page = PageBuf::zeroed(HEADER_BYTES as usize);
        for number in &numbers {
            let path = segment::path_of(dir, *number);
            let mode = OpenMode { direct: options.direct, read_only: true, ..OpenMode::default() };
            let file = storage.open(&path, mode)?;
            let bytes = file.len()?;
            if bytes < HEADER_BYTES {
                // Its preparation was interrupted.
                leftovers.push(*number);
                continue;
            }
            let read = file.read_at(&mut page, 0);
            let read = read
                .and_then(|()| segment::check_intact(&page).map(drop).map_err(|error| error.context(path.display())));
            match (read, &mut damage) {
                (Err(error), Some(damage)) if is_damage(&error) => {
                    damage.push(error);
                    continue;
                }
                (read, _) => read?,
            }
            let header = segment::Header::decode(&page, *number, &options.uuid)
                .map_err(|error| error.context(path.display()))?;
            match header {
                Some(header) => {
                    if segments.last().is_some_and(|last| last.header.start > header.start) {
                        let message =
                            format!("log segments out of order at {}, start={}", path.display(), header.start);
                        return Err(Error::corruption(message));
                    }
                    segments.push(Found { header, file, path, bytes });
                }
                None => leftovers.push(*number),
            }
        }
        let next_number = numbers.last().map_or(1, |last| last + 1);
        Ok(LogReader {
            segments,
            earlier: Vec::new(),
            leftovers,
            next_number,
            index: 0,
            position: 0,
            ended: false,
            known_durable: 0,
            vouched: 0,
            dir: dir.to_path_buf(),
        })
    }

    /// The same reader, which takes a log that ends before `end` for damaged.
    #[must_use]
    pub fn known_durable(self, end: Lsn) -> LogReader {
        LogReader { known_durable: end.0, ..self }
    }

    /// The next records; `None` at the end of the log.
    ///
    /// # Errors
    /// `Corruption` for damage, naming file and offset; `Io`.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while !self.ended {
            let Some(found) = self.segments.get(self.index) else {
                self.check_end()?;
                break;
            };
            let limit = self.segments.get(self.index + 1).map_or(u64::MAX, |next| next.header.start);
            if self.position == limit {
                self.index += 1;
                continue;
            }
            let batch = found.read(self.position, limit)?;
            if let Some((batch, end)) = batch {
                self.position = end;
                self.vouched = self.vouched.max(batch.vouched);
                return Ok(Some(batch));
            }
            self.end_or_damage()?;
        }
        self.ended = true;
        Ok(None)
    }

    /// There is no good frame at the position: the log ends here, or is damaged.
    fn end_or_damage(&mut self) -> Result<()> {
        let bad = self.position;
        let found = &self.segments[self.index];
        let mut durable = found.vouches_for(bad, bad)?;
        for later in &self.segments[self.index + 1..] {
            if durable.is_some() {
                break;
            }
            let begun = later.header.durable;
            durable = if begun > bad { Some(begun) } else { later.vouches_for(later.header.start, bad)? };
        }
        if let Some(durable) = durable {
            let offset = HEADER_BYTES + (bad - found.header.start);
            return Err(Error::corruption(format!(
                "damaged log record in {}, offset={offset} lsn={bad} durable_lsn={durable}",
                found.path.display()
            )));
        }
        self.check_end()?;
        self.ended = true;
        Ok(())
    }

    /// Whether the log may end at the position.
    fn check_end(&self) -> Result<()> {
        let (end, durable) = (self.position, self.known_durable);
        if end >= durable {
            return Ok(());
        }
        let place = match self.segments.get(self.index) {
            Some(found) => {
                let offset = HEADER_BYTES + (end - found.header.start);
                format!("{} is damaged, or segments after it are missing, offset={offset}", found.path.display())
            }
            None => format!("segments are missing, directory={}", self.dir.display()),
        };
        Err(Error::corruption(format!("the log ends too early: {place} lsn={end} durable_lsn={durable}")))
    }

    /// The file that holds the position it was opened at, and that file's first position.
    #[cfg(test)]
    pub(super) fn first_segment(&self) -> Option<(PathBuf, u64)> {
        self.segments.first().map(|found| (found.path.clone(), found.header.start))
    }

    /// Takes the log to end where reading has come to: for what is readable of a damaged one.
    pub fn give_up(&mut self) {
        self.ended = true;
    }

    /// Where the log ends. Only after [`LogReader::next_batch`] has returned `None`.
    ///
    /// # Errors
    /// `Internal` when it has not.
    pub fn finish(self) -> Result<LogTail> {
        if !self.ended {
            return Err(Error::internal("the log was not read to its end"));
        }
        let LogReader { segments, earlier: mut live, mut leftovers, next_number, index, position: end, .. } = self;
        let kept = segments.len().min(index + 1);
        let begun = segments[..kept].iter().map(|found| found.header.durable);
        let durable = begun.fold(self.known_durable.max(self.vouched), u64::max);
        leftovers.extend(segments[kept..].iter().map(|found| found.header.number));
        live.extend(segments[..kept].iter().enumerate().map(|(index, found)| {
            let upto = segments[..kept].get(index + 1).map_or(end, |next| next.header.start);
            (found.header.number, found.header.start, upto)
        }));
        Ok(LogTail { end, live, leftovers, next_number, segments_read: kept as u64, durable })
    }
}

impl Found {
    /// Reads frames from `position` on and below `limit`; with the position after them. `None` when there is no
    /// good one.
    fn read(&self, position: u64, limit: u64) -> Result<Option<(RecordBatch, u64)>> {
        let offset = HEADER_BYTES + (position - self.header.start);
        let mut wanted = CHUNK;
        loop {
            let aligned = offset / 4096 * 4096;
            let length = wanted.min(self.bytes.saturating_sub(aligned));
            let mut buffer = PageBuf::zeroed(length as usize);
            self.file.read_at(&mut buffer, aligned)?;
            let mut frames = Vec::new();
            let mut at = (offset - aligned) as usize;
            let mut lsn = position;
            let mut vouched = 0;
            while let Some(header) = buffer.get(at..).and_then(|bytes| Header::decode(bytes, lsn, self.header.epoch)) {
                let bytes = frame::frame_bytes(header.stored);
                let record = at + frame::HEADER_BYTES;
                if lsn + bytes > limit || aligned + at as u64 + bytes > self.bytes {
                    break;
                }
                let Some(stored) = buffer.get(record..record + header.stored) else {
                    if frames.is_empty() {
                        wanted = (at as u64 + bytes).next_multiple_of(4096);
                    }
                    break;
                };
                if frame::record_crc(stored) != header.crc {
                    break;
                }
                frames.push(Frame { lsn, at: record, stored: header.stored, tag: header.tag });
                vouched = vouched.max(header.durable);
                at += bytes as usize;
                lsn += bytes;
            }
            if frames.is_empty() && wanted > length && length > 0 && aligned + length < self.bytes {
                continue;
            }
            let segment = self.header.number;
            let batch = RecordBatch { buffer, frames, next: 0, raw: Vec::new(), record: Vec::new(), segment, vouched };
            return Ok((!batch.frames.is_empty()).then_some((batch, lsn)));
        }
    }

    /// Whether a frame at or after `from` says that the log was durable above `bad`.
    fn vouches_for(&self, from: u64, bad: u64) -> Result<Option<u64>> {
        let place = (self.header.start, self.header.epoch);
        evidence::find(&*self.file, place, from, bad, self.header.window, self.bytes)
    }
}

impl RecordBatch {
    /// The next record: its position and its bytes (see [`crate::format::record::Record::decode`]); `None` at the end.
    ///
    /// # Errors
    /// `Corruption` when it cannot be decompressed or turned back.
    #[expect(clippy::should_implement_trait, reason = "it lends: a decompressed record lives here")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<(Lsn, &[u8])>> {
        let Some(Frame { lsn, at, stored, tag }) = self.frames.get(self.next).copied() else { return Ok(None) };
        self.next += 1;
        let stored = &self.buffer[at..at + stored];
        if tag == 0 {
            return Ok(Some((Lsn(lsn), stored)));
        }
        let context = |error: Error| error.context(format!("log record, segment={} lsn={lsn}", self.segment));
        let Some((length, compressed)) = stored.split_first_chunk::<4>() else {
            return Err(context(Error::corruption("compressed record without length")));
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > RECORD_BYTES_MAX {
            return Err(context(Error::corruption(format!("compressed record too long, bytes={length}"))));
        }
        self.raw.resize(length, 0);
        compress::decompress(tag & !frame::TURNED, compressed, &mut self.raw).map_err(context)?;
        if tag & frame::TURNED == 0 {
            return Ok(Some((Lsn(lsn), &self.raw)));
        }
        turned::turn_back(&self.raw, &mut self.record).map_err(context)?;
        Ok(Some((Lsn(lsn), &self.record)))
    }

    /// Number of records, those already taken included.
    pub fn records(&self) -> usize {
        self.frames.len()
    }

    /// Number of the segment that they are in.
    pub fn segment(&self) -> u64 {
        self.segment
    }
}
