//! Files, behind three small traits with four implementations.
//!
//! Owns every call to the operating system that touches files. What a file *means* is for `store` and `log`.
//!
//! Rooms, in reading order: [`disk`] (real files), [`memory`] (a simulated disk that can crash), [`fault`] (makes
//! the n-th call fail), [`trace`] (records all calls, so that a test can visit every crash point).
//!
//! # What a caller may rely on
//! - I1: [`File::write_at`] and [`File::set_len`] are visible to reads at once, and durable after the next
//!   successful [`File::sync_data`] on any handle of the file. Without it a crash keeps any subset, in
//!   any order, torn at 512 bytes. A [`File::write_durable_at`] is durable when it returns, and makes nothing else so.
//! - I2: a created, renamed or removed name is durable after [`Storage::sync_dir`], or [`Directory::sync`], on its directory.
//!   [`Storage::create_dir_all`] is durable when it returns.
//! - I3: after a failed sync or durable write nothing is known about what was written since the last successful sync: never
//!   retry it (the kernel forgets the error and the data).
//! - I4: a failed write leaves any mixture of old and new in its range, and nothing else changed.
//! - I5: direct files need offset, length and memory aligned to 4 KiB; [`crate::base::page_buf::PageBuf`] is. The
//!   memory back end enforces it, so that tests notice.
//!
//! Everything here may be called from any thread. Calls that touch overlapping ranges of a file are the
//! caller's to order.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Error, ErrorKind, Result};

pub mod disk;
pub mod fault;
pub mod memory;
pub mod trace;

pub use disk::DiskStorage;
pub use fault::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, Held};
pub use memory::{CrashMode, MemoryStorage};
pub use trace::{Event, Replay, TraceStorage};

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenMode {
    /// Create it when it does not exist.
    pub create: bool,
    /// With `create`: fail (`Io`, whose source says that it exists) when there is anything of its name, if only a link to a place elsewhere. Nobody
    /// but the owner may open the new file.
    pub exclusive: bool,
    /// Cut it to length 0.
    pub truncate: bool,
    /// Bypass the page cache where the file system can.
    pub direct: bool,
    /// Refuse writes through this handle.
    pub read_only: bool,
}

/// A place that holds files: a disk, or what stands in for one.
pub trait Storage: Send + Sync + Debug {
    /// Creates a directory and its missing parents, durably. No error when it exists; `InvalidArgument` for an empty path.
    fn create_dir_all(&self, dir: &Path) -> Result<()>;

    /// Opens a file. `Io` when it does not exist and `mode.create` is off.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>>;

    /// Names of the files (not directories) in a directory, sorted.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;

    /// True when there is a file or directory of this name.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Removes a file. Handles of it stay usable.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Gives a file another name, replacing what had it, in one step.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Opens a directory whose names are to be made durable again and again.
    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>>;

    /// Locks a file (created when missing) against every other process and handle until the guard is
    /// dropped or the process ends. `AlreadyOpen` when it is locked. A file that is there need not be writable.
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>>;

    /// Bytes that can still be written in the file system of `dir`.
    fn free_bytes(&self, dir: &Path) -> Result<u64>;
}

/// An open directory. Closed when the last reference goes.
pub trait Directory: Send + Sync + Debug {
    /// As [`Storage::sync_dir`], but takes no descriptor for it.
    fn sync(&self) -> Result<()>;
}

/// A directory of a storage that has no handles of them.
#[derive(Debug)]
struct NamedDirectory<S>(S, PathBuf);

impl<S: Storage> Directory for NamedDirectory<S> {
    fn sync(&self) -> Result<()> {
        self.0.sync_dir(&self.1)
    }
}

/// An open file. Closed when the last reference goes.
pub trait File: Send + Sync + Debug {
    /// Fills `buf` from `offset`; `Io` when the file ends before.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Writes all of `buf` at `offset`, extending the file when needed.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;

    /// The same into the page cache, where the file is otherwise written past it: the system has it sooner, and an error of
    /// the disk is told by the next `sync_data`. Of whole pages.
    fn write_cached_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)
    }

    /// Writes as [`File::write_at`], and has it durable, with the length that the file needs for it, when it returns. Says nothing of what was
    /// written before, which a disk may still have in a cache that this write goes past. One call, and with such a disk one
    /// request, in place of two.
    fn write_durable_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)?;
        self.sync_data()
    }

    /// Makes what was written, and the length, durable.
    fn sync_data(&self) -> Result<()>;

    /// Length in bytes.
    fn len(&self) -> Result<u64>;

    /// True when the length is 0.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts or extends (by zeros) to `length`.
    fn set_len(&self, length: u64) -> Result<()>;

    /// Reserves space for a range and extends the file to its end if shorter; content does not change. False where the file system
    /// cannot reserve: then the file only has the length. `NoSpace` when the disk cannot hold it: as after any failure, it may have a part
    /// of it then, and be longer. [`File::set_len`] gives back what lies beyond a length, also if that is the one it has.
    fn allocate(&self, offset: u64, length: u64) -> Result<bool>;

    /// Gives the space of a range back; it reads as zeros after. The length stays.
    fn punch(&self, offset: u64, length: u64) -> Result<()>;

    /// True when it was to be opened past the page cache and the file system refused that.
    fn refused_direct(&self) -> bool {
        false
    }
}

/// The whole content of a file.
///
/// # Errors
/// As [`Storage::open`] and [`File::read_at`].
pub fn read_file(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>> {
    let file = storage.open(path, OpenMode { read_only: true, ..OpenMode::default() })?;
    let length = usize::try_from(file.len()?).map_err(|_| Error::internal("file larger than memory"))?;
    let mut bytes = vec![0; length];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Replaces the content of a file in one durable step: a crash leaves the old or the new content.
///
/// # Errors
/// `InvalidArgument` for a path without a directory or name; else what the storage reports.
pub fn replace_file(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::invalid(format!("not a file name, path={}", path.display())));
    };
    let mut temporary_name = name.to_os_string();
    temporary_name.push(".new");
    let temporary = dir.join(temporary_name);
    let file = storage.open(&temporary, OpenMode { create: true, truncate: true, ..OpenMode::default() })?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    storage.rename(&temporary, path)?;
    storage.sync_dir(dir)
}

/// True when a read failed because the disk, or the file system, does not give back what is stored there: a bad sector, a
/// checksum below us, a file that was cut. Others (no memory, a closed descriptor, a connection that timed out) say
/// nothing about what is stored.
///
/// Direct reads get what the block layer of Linux makes of a disk's answer: `ENODATA` for a medium error, `EREMOTEIO` for a
/// failure of the device's own, `EILSEQ` for one of its protection information; and `EIO`, as all reads through the page cache.
/// `EBADMSG` and `EUCLEAN` are a file system's own checks.
pub(crate) fn is_lost(error: &Error) -> bool {
    use rustix::io::Errno;
    let Some(system) = error.system() else { return false };
    if system.kind() == std::io::ErrorKind::UnexpectedEof {
        return true;
    }
    let lost = [Errno::IO, Errno::NODATA, Errno::REMOTEIO, Errno::ILSEQ, Errno::BADMSG, Errno::UCLEAN];
    lost.iter().any(|lost| system.raw_os_error() == Some(lost.raw_os_error()))
}

/// True when something stored is damaged, or the disk does not give it back: what else there is may still be read.
pub(crate) fn is_damage(error: &Error) -> bool {
    error.kind() == ErrorKind::Corruption || is_lost(error)
}

/// True when a call found no descriptor or no memory: it has done nothing, and the same may succeed later. Not to be believed of a sync (I3).
pub(crate) fn is_want(error: &Error) -> bool {
    use rustix::io::Errno;
    let wants = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    let number = error.system().and_then(std::io::Error::raw_os_error);
    wants.iter().any(|want| number == Some(want.raw_os_error()))
}

/// Wraps an operating system error with the call and the path it happened on.
fn failed(call: &str, path: &Path, error: impl Into<std::io::Error>) -> Error {
    Error::io(format!("{call} failed, path={}", path.display()), error.into())
}

/// Refuses the empty path: it has no parent that could be made first.
fn check_named(dir: &Path) -> Result<()> {
    if dir.as_os_str().is_empty() { Err(Error::invalid("the path of a directory is empty")) } else { Ok(()) }
}

/// Checks what a direct file needs (I5).
fn check_aligned(path: &Path, offset: u64, buf: &[u8]) -> Result<()> {
    const UNIT: usize = crate::base::page_buf::ALIGNMENT;
    if !offset.is_multiple_of(UNIT as u64) || !buf.len().is_multiple_of(UNIT) || buf.as_ptr().align_offset(UNIT) != 0 {
        return Err(Error::invalid(format!(
            "direct access that is not aligned, path={} offset={offset} bytes={}",
            path.display(),
            buf.len()
        )));
    }
    Ok(())
}
