//! What the operating system says of this process: CPU, bytes, memory. Linux's `/proc`; zero where it is missing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::{At, Result};

/// Totals since the process began, and the memory it holds now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Resources {
    /// CPU time of all threads, user and system.
    pub cpu: Duration,
    /// Bytes sent to storage.
    pub written_bytes: u64,
    /// Bytes fetched from storage.
    pub read_bytes: u64,
    /// Read system calls.
    pub read_calls: u64,
    /// Resident anonymous memory: without the program's own pages.
    pub memory_bytes: u64,
    /// The largest since the process began or [`reset_peak_memory`]: the peak of the resident set less the program's
    /// pages as of now, which only grow.
    pub memory_peak_bytes: u64,
}

impl Resources {
    /// As of now.
    pub fn now() -> Resources {
        let clock = clock_gettime(ClockId::ProcessCPUTime);
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Resources {
            cpu: Duration::new(clock.tv_sec as u64, clock.tv_nsec as u32),
            written_bytes: field(&io, "write_bytes:"),
            read_bytes: field(&io, "read_bytes:"),
            read_calls: field(&io, "syscr:"),
            memory_bytes: field(&status, "RssAnon:") << 10,
            memory_peak_bytes: peak_in(&status),
        }
    }
}

fn peak_in(status: &str) -> u64 {
    field(status, "VmHWM:").saturating_sub(field(status, "RssFile:")) << 10
}

/// [`Resources::memory_peak_bytes`] of another process that lives.
pub fn peak_memory_of(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    std::fs::read_to_string(&path).map(|status| peak_in(&status)).at(path)
}

/// The largest of the peaks that were reset.
static PEAK_BEFORE: AtomicU64 = AtomicU64::new(0);

/// The largest memory since the process began, whatever was reset.
pub fn whole_peak_memory() -> u64 {
    let now = Resources::now().memory_peak_bytes;
    PEAK_BEFORE.fetch_max(now, Ordering::Relaxed).max(now)
}

/// Starts a new peak of [`Resources::memory_peak_bytes`].
pub fn reset_peak_memory() {
    whole_peak_memory();
    // A kernel without this keeps the older, higher peak: the report errs on the strict side.
    std::fs::write("/proc/self/clear_refs", "5").unwrap_or_default();
}

/// What this thread has had read from storage, as the operating system tells. (Its calls are not reads of storage alone: an engine may look at
/// the system's files as well.)
#[derive(Debug)]
pub struct ThreadReads {
    io: File,
}

impl ThreadReads {
    /// For this thread.
    pub fn new() -> Result<ThreadReads> {
        let path = "/proc/thread-self/io";
        Ok(ThreadReads { io: File::open(path).at(path)? })
    }

    /// Runs `work` on this thread; what it answers, and the bytes that were read from storage for it.
    pub fn count<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, u64)> {
        let before = self.look()?;
        let done = work()?;
        Ok((done, self.look()?.saturating_sub(before)))
    }

    fn look(&self) -> Result<u64> {
        let mut text = [0; 512];
        let bytes = self.io.read_at(&mut text, 0).at("this thread's counters")?;
        Ok(field(&String::from_utf8_lossy(&text[..bytes]), "read_bytes:"))
    }
}

fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_by_name() {
        assert_eq!(field("rchar: 5\nwrite_bytes: 4096\ncancelled_write_bytes: 1\n", "write_bytes:"), 4096);
        assert_eq!(field("RssAnon:\t    1234 kB\n", "RssAnon:"), 1234);
        assert_eq!(field("", "VmRSS:"), 0);
    }

    #[test]
    fn a_peak_that_was_reset_counts_for_the_whole() {
        let bytes = 64 << 20;
        drop(std::hint::black_box(vec![1u8; bytes]));
        reset_peak_memory();
        assert!(whole_peak_memory() >= bytes as u64);
        assert!(peak_memory_of(std::process::id()).unwrap() > 0);
    }

    #[test]
    fn what_is_read_from_storage_counts_and_nothing_else() {
        // Beside this program, which lies on a disk: a folder for temporary files may lie in memory.
        let program = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        crate::measure::drop_cached_pages(directory.path()).unwrap();
        let reads = ThreadReads::new().unwrap();
        let read = |path: &str| {
            let file = File::open(path).at(path)?;
            (0..5).try_for_each(|at| file.read_exact_at(&mut [0; 4096], at << 17)).at(path)
        };
        assert_eq!(reads.count(|| read("/dev/zero")).unwrap().1, 0);
        let path = path.to_str().unwrap();
        assert!(reads.count(|| read(path)).unwrap().1 >= 5 * 4096, "it lies on storage");
        assert_eq!(reads.count(|| read(path)).unwrap().1, 0, "it is cached now");
    }

    #[test]
    fn this_process_has_used_cpu_and_memory() {
        let resources = Resources::now();
        assert!(resources.cpu > Duration::ZERO);
        assert!(resources.memory_peak_bytes >= resources.memory_bytes);
    }
}
