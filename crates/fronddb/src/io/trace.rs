//! Records all calls in order, so that a test can visit every crash point.
//!
//! A [`TraceStorage`] works on a [`MemoryStorage`] and keeps a deep copy of it from the start. Calls that change something are
//! serialised, so their recorded order is the order in which they happened. [`TraceStorage::replay`] makes
//! them again one by one on another copy; between any two steps the caller may crash that copy:
//!
//! ```
//! use fronddb::io::{MemoryStorage, OpenMode, Storage, TraceStorage};
//! let traced = TraceStorage::new(&MemoryStorage::new());
//! let file = traced.open("/a".as_ref(), OpenMode { create: true, ..OpenMode::default() })?;
//! file.write_at(b"frond", 0)?;
//! file.sync_data()?;
//! let mut replay = traced.replay();
//! let mut lengths = Vec::new();
//! while replay.step() {
//!     let left = replay.storage().crash(7);
//!     lengths.push(left.files().first().map(|(_, length)| *length));
//! }
//! assert_eq!(lengths.len(), traced.events().len());
//! # Ok::<(), fronddb::base::Error>(())
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

// Not the facade's: in tests of schedules a call to the simulated disk is one step.
use parking_lot::Mutex;

use super::{Directory, File, MemoryStorage, NamedDirectory, OpenMode, Storage};
use crate::base::Result;
use crate::base::page_buf::PageBuf;

/// A call that was made. Files are named by the number of the [`Event::Open`] that opened them.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are the arguments of the calls")]
pub enum Event {
    /// [`Storage::open`], whether or not it succeeded.
    Open { file: u64, path: PathBuf, mode: OpenMode },
    /// [`Storage::create_dir_all`].
    CreateDir { dir: PathBuf },
    /// [`Storage::remove`].
    Remove { path: PathBuf },
    /// [`Storage::rename`].
    Rename { from: PathBuf, to: PathBuf },
    /// [`Storage::sync_dir`].
    SyncDir { dir: PathBuf },
    /// [`Storage::lock`]; not made again by a replay beyond creating the file.
    Lock { path: PathBuf },
    /// [`File::read_at`]; a replay passes it over.
    Read { file: u64, offset: u64, bytes: usize },
    /// [`File::write_at`].
    Write { file: u64, offset: u64, data: Arc<PageBuf> },
    /// [`File::sync_data`].
    Sync { file: u64 },
    /// [`File::write_durable_at`]: what the [`Event::Write`] before it wrote there is durable from now on.
    Persist { file: u64, offset: u64, data: Arc<PageBuf> },
    /// [`File::set_len`].
    SetLen { file: u64, length: u64 },
    /// [`File::allocate`].
    Allocate { file: u64, offset: u64, length: u64 },
    /// [`File::punch`].
    Punch { file: u64, offset: u64, length: u64 },
}

impl Event {
    /// True when the call can change what a crash leaves.
    pub fn is_change(&self) -> bool {
        !matches!(self, Event::Read { .. })
    }
}

#[derive(Debug)]
struct Trace {
    start: MemoryStorage,
    below: MemoryStorage,
    /// Held over recording *and* doing, so that both have one order.
    events: Mutex<Vec<Event>>,
}

/// A storage that records its calls. Clones share the record.
#[derive(Debug, Clone)]
pub struct TraceStorage(Arc<Trace>);

impl TraceStorage {
    /// Starts from a deep copy of `start`.
    pub fn new(start: &MemoryStorage) -> TraceStorage {
        TraceStorage(Arc::new(Trace { start: start.snapshot(), below: start.snapshot(), events: Mutex::default() }))
    }

    /// The storage that the calls act on.
    pub fn storage(&self) -> &MemoryStorage {
        &self.0.below
    }

    /// What was recorded so far.
    pub fn events(&self) -> Vec<Event> {
        self.0.events.lock().clone()
    }

    /// Makes the calls recorded so far again, on a copy of the start.
    pub fn replay(&self) -> Replay {
        Replay { storage: self.0.start.snapshot(), events: self.events().into_iter(), files: HashMap::new(), next: 0 }
    }

    /// The storage as it was after the first `count` events.
    pub fn storage_at(&self, count: usize) -> MemoryStorage {
        let mut replay = self.replay();
        while replay.done() < count && replay.step() {}
        replay.storage
    }

    fn run<T>(&self, event: Event, call: impl FnOnce(&MemoryStorage) -> T) -> T {
        let mut events = self.0.events.lock();
        events.push(event);
        call(&self.0.below)
    }
}

/// Makes recorded calls again, one at a time.
#[derive(Debug)]
pub struct Replay {
    storage: MemoryStorage,
    events: std::vec::IntoIter<Event>,
    files: HashMap<u64, Arc<dyn File>>,
    next: usize,
}

impl Replay {
    /// The storage as of now. Crash it, or copy it; writing to it spoils the replay.
    pub fn storage(&self) -> &MemoryStorage {
        &self.storage
    }

    /// Number of events made again.
    pub fn done(&self) -> usize {
        self.next
    }

    /// The event that the next step makes.
    pub fn upcoming(&self) -> Option<&Event> {
        self.events.as_slice().first()
    }

    /// Makes the next call; false when there is none. A call that failed when it was recorded fails again,
    /// which is no concern here.
    pub fn step(&mut self) -> bool {
        let Some(event) = self.events.next() else {
            return false;
        };
        self.next += 1;
        let _ = self.make(event);
        true
    }

    fn make(&mut self, event: Event) -> Result<()> {
        let storage = &self.storage;
        let on = |file: u64, call: &dyn Fn(&dyn File) -> Result<()>| match self.files.get(&file) {
            Some(file) => call(&**file),
            None => Ok(()),
        };
        match event {
            Event::Open { file, path, mode } => {
                let opened = storage.open(&path, mode)?;
                self.files.insert(file, opened);
                Ok(())
            }
            Event::CreateDir { dir } => storage.create_dir_all(&dir),
            Event::Remove { path } => storage.remove(&path),
            Event::Rename { from, to } => storage.rename(&from, &to),
            Event::SyncDir { dir } => storage.sync_dir(&dir),
            Event::Lock { path } => storage.lock(&path).map(drop),
            Event::Read { .. } => Ok(()),
            Event::Write { file, offset, data } => on(file, &|file| file.write_at(&data, offset)),
            Event::Sync { file } => on(file, &|file| file.sync_data()),
            Event::Persist { file, offset, data } => on(file, &|file| file.write_durable_at(&data, offset)),
            Event::SetLen { file, length } => on(file, &|file| file.set_len(length)),
            Event::Allocate { file, offset, length } => on(file, &|file| file.allocate(offset, length).map(drop)),
            Event::Punch { file, offset, length } => on(file, &|file| file.punch(offset, length)),
        }
    }
}

impl Storage for TraceStorage {
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.run(Event::CreateDir { dir: dir.to_path_buf() }, |below| below.create_dir_all(dir))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut events = self.0.events.lock();
        let number = events.len() as u64;
        events.push(Event::Open { file: number, path: path.to_path_buf(), mode });
        let file = self.0.below.open(path, mode)?;
        Ok(Arc::new(TraceFile { storage: self.clone(), file, number }))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.0.below.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.below.exists(path)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.run(Event::Remove { path: path.to_path_buf() }, |below| below.remove(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let event = Event::Rename { from: from.to_path_buf(), to: to.to_path_buf() };
        self.run(event, |below| below.rename(from, to))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.run(Event::SyncDir { dir: dir.to_path_buf() }, |below| below.sync_dir(dir))
    }

    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>> {
        self.0.below.open_dir(dir)?;
        Ok(Arc::new(NamedDirectory(self.clone(), dir.to_path_buf())))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.run(Event::Lock { path: path.to_path_buf() }, |below| below.lock(path))
    }

    fn free_bytes(&self, dir: &Path) -> Result<u64> {
        self.0.below.free_bytes(dir)
    }
}

#[derive(Debug)]
struct TraceFile {
    storage: TraceStorage,
    file: Arc<dyn File>,
    number: u64,
}

impl File for TraceFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let event = Event::Read { file: self.number, offset, bytes: buf.len() };
        self.storage.run(event, |_| self.file.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let event = Event::Write { file: self.number, offset, data: Arc::new(PageBuf::from_slice(buf)) };
        self.storage.run(event, |_| self.file.write_at(buf, offset))
    }

    /// Two events: a crash between them finds any part of it.
    fn write_durable_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)?;
        let event = Event::Persist { file: self.number, offset, data: Arc::new(PageBuf::from_slice(buf)) };
        self.storage.run(event, |_| self.file.write_durable_at(buf, offset))
    }

    fn sync_data(&self) -> Result<()> {
        self.storage.run(Event::Sync { file: self.number }, |_| self.file.sync_data())
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.storage.run(Event::SetLen { file: self.number, length }, |_| self.file.set_len(length))
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<bool> {
        let event = Event::Allocate { file: self.number, offset, length };
        self.storage.run(event, |_| self.file.allocate(offset, length))
    }

    fn refused_direct(&self) -> bool {
        self.file.refused_direct()
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        let event = Event::Punch { file: self.number, offset, length };
        self.storage.run(event, |_| self.file.punch(offset, length))
    }
}

#[cfg(test)]
mod tests;
