//! External sort: rows in any order in, rows in key order out, in bounded memory.
//!
//! Rows collect in one piece of memory. When it is full they are sorted and spilled to a temporary file; when a level has
//! [`FAN_IN`] spills, these are merged into one of the next level. In the end all spills and what is still in memory are
//! merged. The spills of a level lie one behind the other in one file, which goes when they are merged: so a sort has as many
//! files open as levels, however long it is. A temporary file loses its name as soon as it is open, so none outlives the
//! process.
//!
//! A spill is a list of blocks: length (u32) and checksum (u64) of what follows, then rows: length of key (u16), of value
//! (u32), number (u48), key, value. Rows are numbered as they come; those of equal key come out next to each other, in the
//! order of their numbers. A long row has a block of its own, of which a merge holds the key until it is the row's turn.
//!
//! Memory, counted in the budget: the piece that rows collect in, which doubles as they come up to what it may have, and a block per spill
//! that is being merged. Not counted: one row that is longer than those.
//!
//! A merge of spills may go through gigabytes within one call: it ends with `Cancelled` once its transaction is cancelled.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::base::key::KEY_BYTES_MAX;
use crate::base::memory::{Charge, MemoryBudget, Purpose};
use crate::base::{Error, ErrorKind, Result, checksum, random};
use crate::io::{File, OpenMode, Storage};
use crate::tree::cursor::check_stop;

/// Spills of one level that are merged at a time.
const FAN_IN: usize = 64;
/// A block is full at this length: such a part of the memory, within bounds. A longer row makes a longer block.
const BLOCK_PART: usize = 512;
const BLOCK_BYTES_MIN: usize = 4 << 10;
const BLOCK_BYTES_MAX: usize = 128 << 10;
/// What is read of a block that is longer than any of several rows: enough for the key.
const HEAD_BYTES: usize = ROW_HEADER_BYTES + KEY_BYTES_MAX;
const BLOCK_HEADER_BYTES: usize = 12;
const ROW_HEADER_BYTES: usize = 12;
/// Names that are tried for a temporary file.
const NAMES_MAX: usize = 100;
/// Of the number in it.
const NUMBER_BYTES: usize = 6;
/// What the piece of memory begins with, and the longest one: places in it are 32 bits.
const MEMORY_BYTES_MIN: usize = 64 << 10;
const MEMORY_BYTES_MAX: usize = 1 << 30;
/// Rows that are merged between two looks whether to stop.
const ROWS_BETWEEN_LOOKS: u32 = 1 << 10;

/// A row on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Rows that came before it.
    pub(crate) number: u64,
}

/// A row in memory.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The first bytes of the key.
    prefix: u64,
    at: u32,
}

/// Rows on their way to be sorted.
#[derive(Debug)]
pub(crate) struct Sorter {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    budget: MemoryBudget,
    stop: Arc<AtomicBool>,
    /// What the piece may have, and what of it is counted in the budget.
    memory_bytes: usize,
    held_bytes: usize,
    data: Vec<u8>,
    entries: Vec<Entry>,
    /// Each level's are merged from those of the level before, and share a file.
    levels: Vec<Vec<Spill>>,
    spilled_bytes: u64,
    rows: u64,
}

/// Sorted rows in a part of a file without a name.
#[derive(Debug)]
struct Spill {
    file: Arc<dyn File>,
    /// Where it begins and ends in the file.
    start: u64,
    end: u64,
    /// Blocks of twice this length and more are of one row.
    block_bytes: usize,
}

impl Sorter {
    /// Nothing is made in `directory` before the memory is full. Merges end while `stop` is set.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        directory: &Path,
        budget: &MemoryBudget,
        memory_bytes: usize,
        stop: Arc<AtomicBool>,
    ) -> Sorter {
        Sorter {
            storage,
            directory: directory.to_owned(),
            budget: budget.clone(),
            stop,
            memory_bytes: memory_bytes.clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX),
            held_bytes: 0,
            data: Vec::new(),
            entries: Vec::new(),
            levels: Vec::new(),
            spilled_bytes: 0,
            rows: 0,
        }
    }

    /// Bytes written to temporary files so far.
    pub(crate) fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }

    /// Adds a row.
    ///
    /// # Errors
    /// `NoSpace` and `Io` of the temporary files; `Cancelled` from within a merge.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let bytes = ROW_HEADER_BYTES + key.len() + value.len();
        while self.data.capacity() - self.data.len() < bytes || self.entries.len() == self.entries.capacity() {
            if self.held_bytes < self.memory_bytes {
                self.grow();
            } else if self.data.is_empty() {
                break; // a row that is longer than all of it
            } else {
                self.spill()?;
            }
        }
        self.entries.push(Entry { prefix: prefix_of(key), at: self.data.len() as u32 });
        push_row(&mut self.data, Row { key, value, number: self.rows });
        self.rows += 1;
        Ok(())
    }

    /// Takes twice the memory, or all that it may.
    fn grow(&mut self) {
        let held = (2 * self.held_bytes).clamp(MEMORY_BYTES_MIN, self.memory_bytes);
        self.budget.add(Purpose::Work, held - self.held_bytes);
        self.held_bytes = held;
        self.reserve();
    }

    /// Rows have three quarters of the memory, their places a quarter.
    fn reserve(&mut self) {
        let (data, entries) = (self.held_bytes / 4 * 3, self.held_bytes / 4 / size_of::<Entry>());
        self.data.shrink_to(data); // longer, after a row that did not fit
        self.data.reserve_exact(data.saturating_sub(self.data.len()));
        self.entries.reserve_exact(entries.saturating_sub(self.entries.len()));
    }

    fn sort(&mut self) {
        let data = &self.data;
        let key = |entry: &Entry| row_at(data, entry.at as usize).map_or(&[][..], |(row, _)| row.key);
        // What came later lies behind.
        let order = |a: &Entry, b: &Entry| (key(a), a.at).cmp(&(key(b), b.at));
        self.entries.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| order(a, b)));
    }

    fn spill(&mut self) -> Result<()> {
        self.sort();
        let mut writer = self.spill_writer(0)?;
        for entry in &self.entries {
            if let Some((row, _)) = row_at(&self.data, entry.at as usize) {
                writer.add(row)?;
            }
        }
        let spill = writer.finish()?;
        self.data.clear();
        self.entries.clear();
        self.reserve();
        self.keep(spill, 0)
    }

    fn keep(&mut self, spill: Spill, level: usize) -> Result<()> {
        self.spilled_bytes += spill.end - spill.start;
        if self.levels.len() <= level {
            self.levels.push(Vec::new());
        }
        self.levels[level].push(spill);
        if self.levels[level].len() < FAN_IN {
            return Ok(());
        }
        let blocks = Charge::new(&self.budget, Purpose::Work, FAN_IN * self.block_bytes());
        let mut merged = Merged::new(std::mem::take(&mut self.levels[level]), None)?;
        let mut writer = self.spill_writer(level + 1)?;
        let mut merged_rows = 0u32;
        while let Some(row) = merged.row() {
            if merged_rows.is_multiple_of(ROWS_BETWEEN_LOOKS) {
                check_stop(&self.stop)?;
            }
            merged_rows = merged_rows.wrapping_add(1);
            writer.add(row)?;
            merged.advance()?;
        }
        drop((merged, blocks));
        self.keep(writer.finish()?, level + 1)
    }

    fn block_bytes(&self) -> usize {
        (self.memory_bytes / BLOCK_PART).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
    }

    /// Of a spill behind those that its level has.
    fn spill_writer(&self, level: usize) -> Result<SpillWriter> {
        let (file, start) = match self.levels.get(level).and_then(|spills| spills.last()) {
            Some(last) => (last.file.clone(), last.end),
            None => (create_file(&*self.storage, &self.directory)?, 0),
        };
        Ok(SpillWriter { file, start, at: start, block_bytes: self.block_bytes(), block: vec![0; BLOCK_HEADER_BYTES] })
    }

    /// All rows in key order.
    ///
    /// # Errors
    /// As [`Sorter::add`]; `Corruption` when a temporary file is not what was written.
    pub(crate) fn finish(mut self) -> Result<Merged> {
        self.sort();
        let spills: Vec<Spill> = std::mem::take(&mut self.levels).into_iter().flatten().collect();
        let blocks = Charge::new(&self.budget, Purpose::Work, spills.len() * self.block_bytes());
        Ok(Merged { _blocks: Some(blocks), ..Merged::new(spills, Some(self))? })
    }
}

impl Drop for Sorter {
    fn drop(&mut self) {
        self.budget.sub(Purpose::Work, self.held_bytes);
    }
}

fn prefix_of(key: &[u8]) -> u64 {
    let mut padded = [0; 8];
    let length = key.len().min(8);
    padded[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(padded)
}

const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize, "the length of a key has two bytes");

fn push_row(out: &mut Vec<u8>, row: Row<'_>) {
    out.extend_from_slice(&(row.key.len() as u16).to_le_bytes());
    out.extend_from_slice(&(row.value.len() as u32).to_le_bytes());
    out.extend_from_slice(&row.number.to_le_bytes()[..NUMBER_BYTES]);
    out.extend_from_slice(row.key);
    out.extend_from_slice(row.value);
}

/// Where a row lies that begins at a place.
struct RowAt {
    number: u64,
    key_at: usize,
    value_at: usize,
    end: usize,
}

fn row_bounds(bytes: &[u8], at: usize) -> Option<RowAt> {
    let header: &[u8; ROW_HEADER_BYTES] = bytes.get(at..)?.first_chunk()?;
    let [k0, k1, v0, v1, v2, v3, number @ ..] = *header;
    let mut wide = [0; 8];
    wide[..NUMBER_BYTES].copy_from_slice(&number);
    let (key_bytes, value_bytes) = (u16::from_le_bytes([k0, k1]), u32::from_le_bytes([v0, v1, v2, v3]));
    let key_at = at + ROW_HEADER_BYTES;
    let value_at = key_at + usize::from(key_bytes);
    Some(RowAt { number: u64::from_le_bytes(wide), key_at, value_at, end: value_at.checked_add(value_bytes as usize)? })
}

/// The row at a place, and where it ends.
fn row_at(bytes: &[u8], at: usize) -> Option<(Row<'_>, usize)> {
    let RowAt { number, key_at, value_at, end } = row_bounds(bytes, at)?;
    Some((Row { key: bytes.get(key_at..value_at)?, value: bytes.get(value_at..end)?, number }, end))
}

/// A file that has lost its name. The directory may be one that others write to as well: nothing that lies there already is opened, under
/// whatever name it waits.
fn create_file(storage: &dyn Storage, directory: &Path) -> Result<Arc<dyn File>> {
    storage.create_dir_all(directory)?;
    let mode = OpenMode { create: true, exclusive: true, ..OpenMode::default() };
    for _ in 0..NAMES_MAX {
        let path = directory.join(draw_name());
        match storage.open(&path, mode) {
            Err(error) if error.system().is_some_and(|error| error.kind() == std::io::ErrorKind::AlreadyExists) => {}
            opened => {
                let file = opened?;
                storage.remove(&path)?;
                return Ok(file);
            }
        }
    }
    let shown = directory.display();
    Err(Error::new(ErrorKind::Io, format!("no name is left for a temporary file, directory={shown}")))
}

/// A name that nobody guesses.
fn draw_name() -> String {
    #[cfg(test)]
    if let Some(name) = tests::NEXT_NAMES.with_borrow_mut(Vec::pop) {
        return name;
    }
    format!("frond-sort-{:016x}.tmp", random::draw())
}

struct SpillWriter {
    file: Arc<dyn File>,
    start: u64,
    /// Where the next block goes.
    at: u64,
    block_bytes: usize,
    block: Vec<u8>,
}

impl SpillWriter {
    fn add(&mut self, row: Row<'_>) -> Result<()> {
        let is_long = row.key.len() + row.value.len() >= self.block_bytes;
        if is_long && self.block.len() > BLOCK_HEADER_BYTES {
            self.flush()?;
        }
        push_row(&mut self.block, row);
        if self.block.len() >= self.block_bytes { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let (header, rows) = self.block.split_at_mut(BLOCK_HEADER_BYTES);
        header[..4].copy_from_slice(&(rows.len() as u32).to_le_bytes());
        header[4..].copy_from_slice(&checksum::block(self.at, rows).to_le_bytes());
        self.file.write_at(&self.block, self.at)?;
        self.at += self.block.len() as u64;
        self.block.truncate(BLOCK_HEADER_BYTES);
        self.block.shrink_to(2 * self.block_bytes);
        Ok(())
    }

    fn finish(mut self) -> Result<Spill> {
        if self.block.len() > BLOCK_HEADER_BYTES {
            self.flush()?;
        }
        Ok(Spill { file: self.file, start: self.start, end: self.at, block_bytes: self.block_bytes })
    }
}

/// Where rows come from in order: a file, or the memory.
#[derive(Debug)]
enum Source {
    File(BlockReader),
    Memory { sorter: Sorter, at: usize },
}

impl Source {
    fn place(&self) -> Option<(&[u8], usize)> {
        match self {
            Source::File(reader) => Some((&reader.block, reader.at)),
            Source::Memory { sorter, at } => Some((&sorter.data, sorter.entries.get(*at)?.at as usize)),
        }
    }

    /// Key and number of the row, by which rows are ordered.
    fn order(&self) -> Option<(&[u8], u64)> {
        let (bytes, at) = self.place()?;
        let RowAt { number, key_at, value_at, .. } = row_bounds(bytes, at)?;
        Some((bytes.get(key_at..value_at)?, number))
    }

    /// The row, if its block is complete.
    fn row(&self) -> Option<Row<'_>> {
        let (bytes, at) = self.place()?;
        row_at(bytes, at).map(|(row, _)| row)
    }

    fn advance(&mut self) -> Result<()> {
        match self {
            Source::Memory { at, .. } => *at += 1,
            Source::File(reader) => {
                reader.at = row_at(&reader.block, reader.at).map_or(reader.block.len(), |(_, end)| end);
                if reader.at >= reader.block.len() {
                    return reader.load();
                }
            }
        }
        Ok(())
    }

    /// Makes sure that the row's block is complete.
    fn complete(&mut self) -> Result<()> {
        match self {
            Source::File(reader) if reader.block.len() < reader.length => reader.complete(),
            _ => Ok(()),
        }
    }
}

/// Reads a spill block by block.
#[derive(Debug)]
struct BlockReader {
    spill: Spill,
    /// Where the block begins, what of it is there, how long it is, and its checksum.
    start: u64,
    block: Vec<u8>,
    length: usize,
    sum: u64,
    /// The row in it.
    at: usize,
}

impl BlockReader {
    fn new(spill: Spill) -> Result<BlockReader> {
        let start = spill.start;
        let mut reader = BlockReader { spill, start, block: Vec::new(), length: 0, sum: 0, at: 0 };
        reader.load_at(start)?;
        Ok(reader)
    }

    /// Reads the next block; none is an empty one.
    fn load(&mut self) -> Result<()> {
        self.load_at(self.start + (BLOCK_HEADER_BYTES + self.length) as u64)
    }

    fn load_at(&mut self, start: u64) -> Result<()> {
        let few = (2 * self.spill.block_bytes).max(HEAD_BYTES);
        self.block.clear();
        self.block.shrink_to(few);
        (self.start, self.length, self.at) = (start, 0, 0);
        if start >= self.spill.end {
            return Ok(());
        }
        let mut header = [0; BLOCK_HEADER_BYTES];
        self.spill.file.read_at(&mut header, start)?;
        let [l0, l1, l2, l3, sum @ ..] = header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length == 0 || start + BLOCK_HEADER_BYTES as u64 + u64::from(length) > self.spill.end {
            return Err(damaged());
        }
        (self.length, self.sum) = (length as usize, u64::from_le_bytes(sum));
        if self.length < few {
            return self.complete();
        }
        self.block.resize(HEAD_BYTES, 0);
        self.spill.file.read_at(&mut self.block, start + BLOCK_HEADER_BYTES as u64)?;
        // The rest of the block tells whether the key is right; without one, nobody would come to read the rest.
        let has_key = row_bounds(&self.block, 0).is_some_and(|row| row.value_at <= HEAD_BYTES);
        if has_key { Ok(()) } else { Err(damaged()) }
    }

    /// Reads the whole block.
    fn complete(&mut self) -> Result<()> {
        self.block.clear();
        self.block.reserve_exact(self.length);
        self.block.resize(self.length, 0);
        self.spill.file.read_at(&mut self.block, self.start + BLOCK_HEADER_BYTES as u64)?;
        if checksum::block(self.start, &self.block) != self.sum {
            self.block.clear();
            return Err(damaged());
        }
        Ok(())
    }
}

fn damaged() -> Error {
    Error::corruption("a temporary file of a sort is not what was written")
}

/// Rows in key order.
#[derive(Debug)]
pub(crate) struct Merged {
    sources: Vec<Source>,
    /// A heap of the sources that have a row, the one with the lowest key (and number) first.
    heap: Vec<usize>,
    /// A block of each spill.
    _blocks: Option<Charge>,
}

impl Merged {
    /// Of one file of blocks.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub(super) fn of_file(file: Arc<dyn File>, bytes: u64) -> Result<Merged> {
        Merged::new(vec![Spill { file, start: 0, end: bytes, block_bytes: BLOCK_BYTES_MAX }], None)
    }

    fn new(spills: Vec<Spill>, memory: Option<Sorter>) -> Result<Merged> {
        let mut sources: Vec<Source> = Vec::with_capacity(spills.len() + 1);
        for spill in spills {
            sources.push(Source::File(BlockReader::new(spill)?));
        }
        sources.extend(memory.map(|sorter| Source::Memory { sorter, at: 0 }));
        let heap: Vec<usize> = (0..sources.len()).filter(|source| sources[*source].order().is_some()).collect();
        let mut merged = Merged { sources, heap, _blocks: None };
        (0..merged.heap.len() / 2).rev().for_each(|place| merged.sift(place));
        merged.complete_first()?;
        Ok(merged)
    }

    fn complete_first(&mut self) -> Result<()> {
        self.heap.first().map_or(Ok(()), |first| self.sources[*first].complete())
    }

    /// The row that comes next.
    pub(crate) fn row(&self) -> Option<Row<'_>> {
        self.sources[*self.heap.first()?].row()
    }

    /// Goes on to the row after it.
    ///
    /// # Errors
    /// `Io`, `Corruption`.
    pub(crate) fn advance(&mut self) -> Result<()> {
        let Some(first) = self.heap.first().copied() else { return Ok(()) };
        self.sources[first].advance()?;
        if self.sources[first].order().is_none() {
            self.heap.swap_remove(0);
        }
        self.sift(0);
        self.complete_first()
    }

    /// What the source at a place of the heap is ordered by.
    fn order(&self, place: usize) -> (&[u8], u64) {
        self.sources[self.heap[place]].order().unwrap_or_default()
    }

    /// Moves the source at a place of the heap down to where it belongs.
    fn sift(&mut self, mut place: usize) {
        loop {
            let mut lowest = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap.len() && self.order(child) < self.order(lowest) {
                    lowest = child;
                }
            }
            if lowest == place {
                return;
            }
            self.heap.swap(place, lowest);
            place = lowest;
        }
    }
}
