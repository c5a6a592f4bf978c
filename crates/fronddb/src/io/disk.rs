//! Real files.
//!
//! Reads and writes are `pread`/`pwrite` loops. A file is opened with `O_DIRECT` when asked, and through the page
//! cache where the file system refuses that (tmpfs, some network and FUSE file systems). `write_cached_at` goes through a
//! second descriptor without it, which is opened by way of `/proc`, because the file may have been renamed; where that
//! fails it is a `write_at`. `write_durable_at` is `pwritev2` with `RWF_DSYNC`, and a `pwrite` and an `fdatasync` where that is not known. `allocate` is
//! `fallocate`, which most file systems do piece by piece; those without it only get the length. `punch` falls back to writing zeros. All go through libc, where tests
//! that preload a library make them fail.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::{Directory, File, OpenMode, Storage, check_named, failed};
use crate::base::page_buf::PageBuf;
use crate::base::{Error, ErrorKind, Result};

/// Zeros are written in pieces of this size where holes cannot be punched.
const ZERO_BYTES: usize = 256 << 10;

/// The machine's file systems.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskStorage;

impl DiskStorage {
    /// The machine's file systems.
    pub fn new() -> DiskStorage {
        DiskStorage
    }
}

#[derive(Debug)]
struct DiskFile {
    file: std::fs::File,
    path: PathBuf,
    /// Opened with `O_DIRECT` in vain.
    refused_direct: bool,
    /// The same file through the page cache, once it was wanted.
    cached: OnceLock<Option<std::fs::File>>,
}

fn open_with(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    loop {
        let mode = if flags.contains(OFlags::EXCL) { 0o600 } else { 0o640 };
        match rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode)) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[derive(Debug)]
struct DiskDirectory {
    directory: OwnedFd,
    path: PathBuf,
}

impl Directory for DiskDirectory {
    fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.directory).map_err(|error| failed("sync directory", &self.path, error))
    }
}

fn open_directory(dir: &Path) -> Result<DiskDirectory> {
    let directory = open_with(dir, OFlags::RDONLY | OFlags::DIRECTORY);
    let directory = directory.map_err(|error| failed("open directory", dir, error))?;
    Ok(DiskDirectory { directory, path: dir.to_path_buf() })
}

/// The directory that holds `path`, which is not empty; the current one for a bare name.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Opens a file to be locked. Who may not write it, or anything in a file system that is mounted for reading, locks it as
/// well: the lock needs no more than a descriptor. Where the file is missing and cannot be made there is nothing to lock, and
/// others who may write, or see the same directory by another mount, would not be kept out: that stays an error.
fn open_to_lock(path: &Path) -> rustix::io::Result<OwnedFd> {
    open_with(path, OFlags::RDWR | OFlags::CREATE).or_else(|refused| match refused {
        Errno::ROFS | Errno::ACCESS | Errno::PERM => open_with(path, OFlags::RDONLY).map_err(|_| refused),
        _ => Err(refused),
    })
}

/// An exclusive lock of a file. Unlocks it in so many words: closing the file alone would leave it locked
/// for as long as a child process that was being started at the time has a copy of the descriptor.
struct FileLock(OwnedFd);

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Storage for DiskStorage {
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        check_named(dir)?;
        let mut missing = Vec::new();
        let mut at = dir;
        while !self.exists(at)? {
            missing.push(at);
            at = parent(at);
        }
        for dir in missing.into_iter().rev() {
            match std::fs::create_dir(dir) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                result => result.map_err(|error| failed("create directory", dir, error))?,
            }
            self.sync_dir(parent(dir))?;
        }
        if !dir.is_dir() {
            return Err(failed("create directory", dir, Errno::NOTDIR));
        }
        Ok(())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut flags = if mode.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        flags.set(OFlags::CREATE, mode.create);
        flags.set(OFlags::EXCL, mode.create && mode.exclusive);
        flags.set(OFlags::TRUNC, mode.truncate && !mode.read_only);
        let mut refused_direct = false;
        let opened = match mode.direct {
            true => match open_with(path, flags | OFlags::DIRECT) {
                Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                    refused_direct = true;
                    open_with(path, flags)
                }
                result => result,
            },
            false => open_with(path, flags),
        };
        let file = std::fs::File::from(opened.map_err(|error| failed("open", path, error))?);
        Ok(Arc::new(DiskFile { file, path: path.to_path_buf(), refused_direct, cached: OnceLock::new() }))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(|error| failed("list", dir, error))? {
            let entry = entry.map_err(|error| failed("list", dir, error))?;
            let kind = entry.file_type().map_err(|error| failed("list", dir, error))?;
            if let (false, Ok(name)) = (kind.is_dir(), entry.file_name().into_string()) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|error| failed("look up", path, error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        std::fs::remove_file(path).map_err(|error| failed("remove", path, error))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to).map_err(|error| failed("rename", from, error))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        open_directory(dir)?.sync()
    }

    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>> {
        Ok(Arc::new(open_directory(dir)?))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        let file = open_to_lock(path).map_err(|error| failed("open", path, error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Box::new(FileLock(file))),
            Err(Errno::WOULDBLOCK) => {
                Err(Error::new(ErrorKind::AlreadyOpen, format!("the file is locked, path={}", path.display())))
            }
            Err(error) => Err(failed("lock", path, error)),
        }
    }

    fn free_bytes(&self, dir: &Path) -> Result<u64> {
        let status = rustix::fs::statvfs(dir).map_err(|error| failed("free space", dir, error))?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }
}

impl DiskFile {
    /// Writes by one of its descriptors.
    fn write_through(&self, file: &std::fs::File, buf: &[u8], offset: u64) -> Result<()> {
        file.write_all_at(buf, offset).map_err(|error| failed("write", &self.path, error).context(at(offset)))
    }

    fn open_cached(&self) -> Option<std::fs::File> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        open_with(path.as_ref(), OFlags::RDWR).ok().map(std::fs::File::from)
    }

    fn fallocate(&self, flags: FallocateFlags, offset: u64, length: u64) -> rustix::io::Result<()> {
        loop {
            match rustix::fs::fallocate(self.file.as_fd(), flags, offset, length) {
                Err(Errno::INTR) => {}
                result => return result,
            }
        }
    }

    fn write_zeros(&self, offset: u64, length: u64) -> Result<()> {
        let zeros = PageBuf::zeroed(ZERO_BYTES);
        let mut done = 0;
        while done < length {
            let step = (length - done).min(ZERO_BYTES as u64);
            self.write_at(&zeros[..step as usize], offset + done)?;
            done += step;
        }
        Ok(())
    }
}

impl File for DiskFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        // A direct read that ends inside a page is at the end of the file: going on would be refused as
        // misaligned, and `read_exact_at` would report that instead of the end.
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(count) if count > 0 => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if done == 0 || error.raw_os_error() != Some(Errno::INVAL.raw_os_error()) => {
                    return Err(failed("read", &self.path, error).context(at(offset)));
                }
                _ => {
                    let error = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                    return Err(failed("read", &self.path, error).context(at(offset + done as u64)));
                }
            }
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_through(&self.file, buf, offset)
    }

    fn write_cached_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let cached = self.cached.get_or_init(|| self.open_cached()).as_ref();
        self.write_through(cached.unwrap_or(&self.file), buf, offset)
    }

    fn write_durable_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let (rest, offset) = (&buf[done..], offset + done as u64);
            match rustix::io::pwritev2(&self.file, &[IoSlice::new(rest)], offset, ReadWriteFlags::DSYNC) {
                Ok(count) if count > 0 => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.write_at(rest, offset)?;
                    return self.sync_data();
                }
                result => {
                    let error: std::io::Error =
                        result.map_or_else(Into::into, |_| std::io::ErrorKind::WriteZero.into());
                    return Err(failed("durable write", &self.path, error).context(at(offset)));
                }
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| failed("sync", &self.path, error))
    }

    fn len(&self) -> Result<u64> {
        self.file.metadata().map(|data| data.len()).map_err(|error| failed("length", &self.path, error))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.file.set_len(length).map_err(|error| failed("set length", &self.path, error))
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<bool> {
        if length == 0 {
            return Ok(true);
        }
        match self.fallocate(FallocateFlags::empty(), offset, length) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let end = offset.saturating_add(length);
                if self.len()? < end {
                    self.set_len(end)?;
                }
                Ok(false)
            }
            Err(error) => Err(failed("allocate", &self.path, error).context(at(offset))),
            Ok(()) => Ok(true),
        }
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        let length = length.min(self.len()?.saturating_sub(offset));
        if length == 0 {
            return Ok(());
        }
        match self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(offset, length),
            result => result.map_err(|error| failed("punch", &self.path, error).context(at(offset))),
        }
    }

    fn refused_direct(&self) -> bool {
        self.refused_direct
    }
}

fn at(offset: u64) -> String {
    format!("at offset={offset}")
}

#[cfg(test)]
mod tests;
