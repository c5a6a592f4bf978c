//! A storage in memory that tells a test of writes and syncs before it does them, so that the test may hold them up.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use fronddb::Result;
use fronddb::io::{CallClass, Directory, File, MemoryStorage, OpenMode, Storage};

/// What is told; it is called in the thread that writes or syncs.
#[derive(Clone)]
pub(crate) struct Hook(Arc<dyn Fn(CallClass) + Send + Sync>);

impl Hook {
    pub(crate) fn new(hook: impl Fn(CallClass) + Send + Sync + 'static) -> Hook {
        Hook(Arc::new(hook))
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

/// Tells of files whose names end like this.
#[derive(Debug)]
pub(crate) struct HookedStorage(pub(crate) MemoryStorage, pub(crate) &'static str, pub(crate) Hook);

#[derive(Debug)]
struct HookedFile(Arc<dyn File>, Hook);

impl Storage for HookedStorage {
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.0.create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        let file = self.0.open(path, mode)?;
        let is_hooked = path.extension().is_some_and(|extension| extension == self.1);
        Ok(if is_hooked { Arc::new(HookedFile(file, self.2.clone())) } else { file })
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.0.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.exists(path)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.0.sync_dir(dir)
    }

    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>> {
        self.0.open_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.0.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> Result<u64> {
        self.0.free_bytes(dir)
    }
}

impl File for HookedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        (self.1.0)(CallClass::Write);
        self.0.write_at(buf, offset)
    }

    fn sync_data(&self) -> Result<()> {
        (self.1.0)(CallClass::Sync);
        self.0.sync_data()
    }

    fn len(&self) -> Result<u64> {
        self.0.len()
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.0.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<bool> {
        self.0.allocate(offset, length)
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        self.0.punch(offset, length)
    }
}
