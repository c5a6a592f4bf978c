//! A simulated disk in memory, with a volatile cache and crashes.
//!
//! A [`MemoryStorage`] is a cheap handle; clones share one disk. [`MemoryStorage::crash`] leaves that disk alone and
//! returns another one, which holds what a power loss at this moment could have left:
//!
//! - Of each file: any subset of what was written since its last `sync_data`, torn at sectors of 512 bytes, in any
//!   order; the length likewise ([`inode`]).
//! - Of the names: any subset of the creations, renames and removals since the last `sync_dir` of their
//!   directory; each takes effect wholly or not at all.
//! - Of the locks: none.
//!
//! How that subset is drawn is the [`CrashMode`]; the seed decides mode and draw, and the same seed on the same
//! sequence of calls gives the same disk.
//!
//! Also here: a capacity, for `NoSpace`; deep copies; and hands to damage files with.
//!
//! Locks: `Disk::names` before any `Inode::content`; neither is held when a call returns.
#![allow(rustdoc::private_intra_doc_links, reason = "the headers are for readers of the source")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

// Not the facade's: in tests of schedules a call to the simulated disk is one step.
use parking_lot::Mutex;

use super::{Directory, File, NamedDirectory, OpenMode, Storage, check_aligned, check_named, failed};
use crate::base::{Error, ErrorKind, Result};

mod crash;
mod inode;

pub use crash::CrashMode;
use inode::{Inode, Space};

/// A disk in memory. Clones share it; [`MemoryStorage::snapshot`] copies it.
#[derive(Debug, Clone)]
pub struct MemoryStorage(Arc<Disk>);

#[derive(Debug)]
struct Disk {
    names: Mutex<Names>,
    space: Arc<Space>,
    /// Numbers the changes, so that a crash can cut them at a moment.
    moment: AtomicU64,
    refuses_direct: AtomicBool,
    refuses_allocate: AtomicBool,
}

#[derive(Debug, Default, Clone)]
struct Names {
    dirs: BTreeSet<PathBuf>,
    current: BTreeMap<PathBuf, Arc<Inode>>,
    durable: BTreeMap<PathBuf, Arc<Inode>>,
    pending: Vec<NameChange>,
    /// Shared with the guards.
    locks: Arc<Mutex<BTreeSet<PathBuf>>>,
    next_inode: u64,
}

/// A change of names that no `sync_dir` has made durable yet.
#[derive(Debug, Clone)]
struct NameChange {
    moment: u64,
    removed: Option<PathBuf>,
    added: Option<(PathBuf, Arc<Inode>)>,
}

impl NameChange {
    fn touches(&self, dir: &Path) -> bool {
        let added = self.added.as_ref().map(|(path, _)| path);
        self.removed.iter().chain(added).any(|path| path.parent() == Some(dir))
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, Arc<Inode>>) {
        if let Some(path) = &self.removed {
            names.remove(path);
        }
        if let Some((path, inode)) = &self.added {
            names.insert(path.clone(), inode.clone());
        }
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: Arc<Disk>,
    inode: Arc<Inode>,
    path: PathBuf,
    mode: OpenMode,
    refused_direct: bool,
}

struct LockGuard {
    locks: Arc<Mutex<BTreeSet<PathBuf>>>,
    path: PathBuf,
}

impl Drop for LockGuard {
    /// Unlocks.
    fn drop(&mut self) {
        self.locks.lock().remove(&self.path);
    }
}

/// One spelling per path: without `.` and doubled separators.
fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

fn not_found(call: &str, path: &Path) -> Error {
    failed(call, path, std::io::Error::from(std::io::ErrorKind::NotFound))
}

impl Default for MemoryStorage {
    fn default() -> MemoryStorage {
        MemoryStorage::new()
    }
}

impl MemoryStorage {
    /// An empty disk without a limit of space.
    pub fn new() -> MemoryStorage {
        let names = Names { dirs: BTreeSet::from([PathBuf::new(), PathBuf::from("/")]), ..Names::default() };
        MemoryStorage::with(names, Arc::new(Space::new(u64::MAX)))
    }

    fn with(names: Names, space: Arc<Space>) -> MemoryStorage {
        MemoryStorage(Arc::new(Disk {
            names: Mutex::new(names),
            space,
            moment: AtomicU64::new(1),
            refuses_direct: AtomicBool::new(false),
            refuses_allocate: AtomicBool::new(false),
        }))
    }

    /// From now on files are not opened past the page cache, as on file systems that refuse that.
    pub fn refuse_direct(&self) {
        self.0.refuses_direct.store(true, Ordering::Relaxed);
    }

    /// From now on no space is reserved: files get the length alone, as on file systems that know nothing else.
    pub fn refuse_allocate(&self) {
        self.0.refuses_allocate.store(true, Ordering::Relaxed);
    }

    /// Limits (or no longer limits, by `u64::MAX`) what all files together may occupy. What is above
    /// the limit already stays.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.space.set_capacity(bytes);
    }

    /// Bytes that files occupy: written or allocated, and not punched; whole pages.
    pub fn occupied_bytes(&self) -> u64 {
        self.0.space.occupied()
    }

    /// Every file with its length, sorted by path.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        self.0.names.lock().current.iter().map(|(path, inode)| (path.clone(), inode.length())).collect()
    }

    /// True when something would be at risk in a crash now.
    pub fn has_unsynced(&self) -> bool {
        let names = self.0.names.lock();
        !names.pending.is_empty() || names.current.values().any(|inode| inode.has_unsynced())
    }

    /// From now on what no sync has made durable passes for written, as pages of the page cache do after a failed sync: reads find it, a
    /// later sync makes durable only what is written again, and a crash may take the rest.
    pub fn forget_unsynced(&self) {
        self.0.names.lock().current.values().for_each(|inode| inode.forget_unsynced());
    }

    /// Inverts a bit of a file, in what is durable and in the cache alike: damage that nobody wrote.
    ///
    /// # Errors
    /// `Io` when there is no such file or it ends before.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> Result<()> {
        self.damage(path, offset, &mut |byte| *byte ^= 1 << (bit % 8))
    }

    /// Replaces bytes of a file, in what is durable and in the cache alike: damage that nobody wrote.
    ///
    /// # Errors
    /// `Io` when there is no such file or it ends before.
    pub fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
        for (at, new) in (offset..).zip(bytes) {
            self.damage(path, at, &mut |byte| *byte = *new)?;
        }
        Ok(())
    }

    fn damage(&self, path: &Path, offset: u64, change: &mut dyn FnMut(&mut u8)) -> Result<()> {
        let inode = self.inode("damage", &normal(path))?;
        if inode.damage(offset, change) { Ok(()) } else { Err(not_found("damage", path)) }
    }

    /// A deep copy, volatile state included: what happens to one disk afterwards does not happen to the other.
    /// Locks are not copied.
    pub fn snapshot(&self) -> MemoryStorage {
        self.copy(|inode, space| inode.copy(space), |names| names.clone())
    }

    /// What a power loss now could leave; the seed chooses among the possibilities.
    pub fn crash(&self, seed: u64) -> MemoryStorage {
        self.crash_with(CrashMode::from_seed(seed), seed)
    }

    /// What a power loss now could leave, of the given kind.
    pub fn crash_with(&self, mode: CrashMode, seed: u64) -> MemoryStorage {
        let last = self.0.moment.load(Ordering::Relaxed);
        let first = {
            let names = self.0.names.lock();
            let changes = names.pending.iter().map(|change| change.moment);
            let inodes = names.current.values().chain(names.durable.values());
            changes.chain(inodes.filter_map(|inode| inode.first_unsynced())).min().unwrap_or(last)
        };
        let draw = crash::Draw::new(mode, seed, first, last);
        self.copy(
            |inode, space| inode.after_crash(&draw, space),
            |names| {
                let mut left = names.durable.clone();
                names.pending.iter().filter(|change| draw.name_survives(change.moment)).for_each(|change| {
                    change.apply(&mut left);
                });
                Names { current: left.clone(), durable: left, pending: Vec::new(), ..names.clone() }
            },
        )
    }

    fn copy(
        &self,
        copy_inode: impl Fn(&Inode, &Arc<Space>) -> Inode,
        copy_names: impl Fn(&Names) -> Names,
    ) -> MemoryStorage {
        let space = Arc::new(Space::new(self.0.space.capacity()));
        let mut copies: BTreeMap<u64, Arc<Inode>> = BTreeMap::new();
        let mut copied = |inode: &Arc<Inode>| {
            copies.entry(inode.number).or_insert_with(|| Arc::new(copy_inode(inode, &space))).clone()
        };
        let mut names = copy_names(&self.0.names.lock());
        names.current.values_mut().for_each(|inode| *inode = copied(inode));
        names.durable.values_mut().for_each(|inode| *inode = copied(inode));
        for change in &mut names.pending {
            if let Some((_, inode)) = &mut change.added {
                *inode = copied(inode);
            }
        }
        names.locks = Arc::default();
        let storage = MemoryStorage::with(names, space);
        storage.0.moment.store(self.0.moment.load(Ordering::Relaxed), Ordering::Relaxed);
        storage
    }

    fn inode(&self, call: &str, path: &Path) -> Result<Arc<Inode>> {
        self.0.names.lock().current.get(path).cloned().ok_or_else(|| not_found(call, path))
    }
}

impl Disk {
    fn next_moment(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::Relaxed)
    }

    /// Changes the current names, and remembers that the change is not durable.
    fn change(&self, names: &mut Names, removed: Option<PathBuf>, added: Option<(PathBuf, Arc<Inode>)>) {
        let change = NameChange { moment: self.next_moment(), removed, added };
        change.apply(&mut names.current);
        names.pending.push(change);
    }
}

impl Names {
    fn check_parent(&self, call: &str, path: &Path) -> Result<()> {
        match path.parent() {
            Some(parent) if self.dirs.contains(parent) => Ok(()),
            _ => Err(not_found(call, path)),
        }
    }
}

impl Storage for MemoryStorage {
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        check_named(dir)?;
        let mut names = self.0.names.lock();
        let dir = normal(dir);
        if let Some(file) = dir.ancestors().find(|dir| names.current.contains_key(*dir)) {
            return Err(failed("create directory", file, std::io::Error::from(std::io::ErrorKind::NotADirectory)));
        }
        names.dirs.extend(dir.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let path = normal(path);
        let mut names = self.0.names.lock();
        let inode = match names.current.get(&path) {
            Some(_) if mode.create && mode.exclusive => {
                return Err(failed("open", &path, std::io::Error::from(std::io::ErrorKind::AlreadyExists)));
            }
            Some(inode) => inode.clone(),
            None if mode.create && !names.dirs.contains(&path) => {
                names.check_parent("open", &path)?;
                names.next_inode += 1;
                let inode = Arc::new(Inode::new(names.next_inode, self.0.space.clone()));
                self.0.change(&mut names, None, Some((path.clone(), inode.clone())));
                inode
            }
            None => return Err(not_found("open", &path)),
        };
        if mode.truncate && !mode.read_only {
            inode.set_length(0, self.0.next_moment());
        }
        let refused_direct = mode.direct && self.0.refuses_direct.load(Ordering::Relaxed);
        let mode = OpenMode { direct: mode.direct && !refused_direct, ..mode };
        Ok(Arc::new(MemoryFile { disk: self.0.clone(), inode, path, mode, refused_direct }))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let (names, dir) = (self.0.names.lock(), normal(dir));
        if !names.dirs.contains(&dir) {
            return Err(not_found("list", &dir));
        }
        let files = names.current.keys().filter(|path| path.parent() == Some(&dir));
        Ok(files.filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect())
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let (names, path) = (self.0.names.lock(), normal(path));
        Ok(names.dirs.contains(&path) || names.current.contains_key(&path))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let (mut names, path) = (self.0.names.lock(), normal(path));
        if !names.current.contains_key(&path) {
            return Err(not_found("remove", &path));
        }
        self.0.change(&mut names, Some(path), None);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (mut names, from, to) = (self.0.names.lock(), normal(from), normal(to));
        let inode = names.current.get(&from).cloned().ok_or_else(|| not_found("rename", &from))?;
        names.check_parent("rename", &to)?;
        if from != to {
            self.0.change(&mut names, Some(from), Some((to, inode)));
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let (mut guard, dir) = (self.0.names.lock(), normal(dir));
        let names = &mut *guard;
        if !names.dirs.contains(&dir) {
            return Err(not_found("sync directory", &dir));
        }
        let (durable, pending) = names.pending.drain(..).partition(|change| change.touches(&dir));
        names.pending = pending;
        let durable: Vec<NameChange> = durable;
        durable.iter().for_each(|change| change.apply(&mut names.durable));
        Ok(())
    }

    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>> {
        if !self.0.names.lock().dirs.contains(&normal(dir)) {
            return Err(not_found("open directory", dir));
        }
        Ok(Arc::new(NamedDirectory(self.clone(), dir.to_path_buf())))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.open(path, OpenMode { create: true, ..OpenMode::default() })?;
        let (path, locks) = (normal(path), self.0.names.lock().locks.clone());
        if !locks.lock().insert(path.clone()) {
            return Err(Error::new(ErrorKind::AlreadyOpen, format!("the file is locked, path={}", path.display())));
        }
        Ok(Box::new(LockGuard { locks, path }))
    }

    fn free_bytes(&self, _dir: &Path) -> Result<u64> {
        Ok(self.0.space.free())
    }
}

impl MemoryFile {
    fn check_writable(&self) -> Result<()> {
        if self.mode.read_only {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!("the file was opened for reading, path={}", self.path.display()),
            ));
        }
        Ok(())
    }

    fn no_space(&self, call: &str, offset: u64) -> Error {
        let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
        failed(call, &self.path, error).context(format!("at offset={offset}"))
    }
}

impl File for MemoryFile {
    fn refused_direct(&self) -> bool {
        self.refused_direct
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.mode.direct {
            check_aligned(&self.path, offset, buf)?;
        }
        if self.inode.read(buf, offset) {
            return Ok(());
        }
        let error = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        Err(failed("read", &self.path, error).context(format!("at offset={offset}")))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check_writable()?;
        if self.mode.direct {
            check_aligned(&self.path, offset, buf)?;
        }
        if self.inode.write(buf, offset, self.disk.next_moment()) {
            Ok(())
        } else {
            Err(self.no_space("write", offset))
        }
    }

    fn write_durable_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)?;
        self.inode.persist(offset, buf.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        self.inode.sync();
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.inode.length())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.check_writable()?;
        self.inode.set_length(length, self.disk.next_moment());
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<bool> {
        self.check_writable()?;
        if self.disk.refuses_allocate.load(Ordering::Relaxed) {
            let end = offset + length;
            if self.inode.length() < end {
                self.inode.set_length(end, self.disk.next_moment());
            }
            return Ok(false);
        }
        let done = self.inode.allocate(offset, length, self.disk.next_moment());
        if done { Ok(true) } else { Err(self.no_space("allocate", offset)) }
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        self.check_writable()?;
        self.inode.punch(offset, length, self.disk.next_moment());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
