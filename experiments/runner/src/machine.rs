//! The machine in general words: what matters to the figures, nothing that names it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cleanup;
use crate::failure::{Failure, While};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: f64,
    pub(crate) processor: String,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) distribution: String,
    pub(crate) file_system: String,
    /// A 4 KiB append and fdatasync, in microseconds.
    pub(crate) sync_us: f64,
    /// Random 4 KiB reads per second by 16 threads, not cached.
    pub(crate) reads_per_second: f64,
    /// Bytes per second written in sequence, not cached.
    pub(crate) bytes_per_second: f64,
}

/// Bytes of the file that the disk is measured with.
const PROBE_BYTES: u64 = 256 << 20;
const BLOCK: usize = 4096;
const O_DIRECT: i32 = 0o40000;

impl Machine {
    /// Looks at the machine, and measures the disk below `folder` for about `time` a measure.
    pub(crate) fn measure(folder: &Path, time: Duration) -> Result<Self, Failure> {
        let probe = cleanup::Directory::new(folder.join("probe"));
        fs::create_dir_all(probe.path()).or_say("cannot measure the disk")?;
        Self::measure_with(&probe.path().join("file"), time)
    }

    fn measure_with(path: &Path, time: Duration) -> Result<Self, Failure> {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str, separator: char| {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(separator).map_or("", |(_, value)| value).trim().trim_matches('"').to_string()
        };
        let memory = value(&text("/proc/meminfo"), "MemTotal", ':');
        let bytes_per_second = write_rate(path).or_say("cannot measure the disk")?;
        Ok(Machine {
            cores: cores(),
            processor: value(&text("/proc/cpuinfo"), "model name", ':'),
            memory_bytes: memory.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * 1024,
            kernel: text("/proc/sys/kernel/osrelease").split('-').next().unwrap_or_default().trim().into(),
            distribution: value(&text("/etc/os-release"), "PRETTY_NAME", '='),
            file_system: file_system(path),
            reads_per_second: read_rate(path, time).or_say("cannot measure the disk")?,
            sync_us: sync_time(path, time).or_say("cannot measure the disk")?,
            bytes_per_second,
        })
    }
}

/// Cores that this process may use.
fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

fn file_system(path: &Path) -> String {
    match rustix::fs::statfs(path).map(|stat| stat.f_type as u64) {
        Ok(0xef53) => "ext4".into(),
        Ok(0x5846_5342) => "xfs".into(),
        Ok(0x9123_683e) => "btrfs".into(),
        Ok(0x0102_1994) => "tmpfs (memory: the figures say nothing about disks)".into(),
        Ok(0x794c_7630) => "overlay".into(),
        _ => "another".into(),
    }
}

/// A buffer at an address that O_DIRECT takes.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(bytes: usize) -> Self {
        let buffer = vec![0x5a; bytes + BLOCK];
        let offset = buffer.as_ptr().align_offset(BLOCK);
        Aligned(buffer, offset)
    }

    fn slice(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.0[self.1..self.1 + bytes]
    }
}

/// Not every file system has O_DIRECT; without it the figure is that of the cache and too good.
fn open(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.clone().custom_flags(O_DIRECT).open(path).or_else(|_| options.open(path))
}

fn write_rate(path: &Path) -> std::io::Result<f64> {
    const CHUNK: usize = 1 << 20;
    let file = open(path)?;
    let mut chunk = Aligned::new(CHUNK);
    let begin = Instant::now();
    for at in 0..PROBE_BYTES / CHUNK as u64 {
        file.write_all_at(chunk.slice(CHUNK), at * CHUNK as u64)?;
    }
    file.sync_all()?;
    Ok(PROBE_BYTES as f64 / begin.elapsed().as_secs_f64())
}

fn read_rate(path: &Path, time: Duration) -> std::io::Result<f64> {
    let begin = Instant::now();
    let reads: Vec<std::io::Result<u64>> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..16u64)
            .map(|seed| {
                scope.spawn(move || {
                    let file = open(path)?;
                    let mut random = frond_load::random::Random::new(seed);
                    let mut block = Aligned::new(BLOCK);
                    let mut reads = 0;
                    while begin.elapsed() < time {
                        let at = random.below(PROBE_BYTES / BLOCK as u64) * BLOCK as u64;
                        file.read_exact_at(block.slice(BLOCK), at)?;
                        reads += 1;
                    }
                    Ok(reads)
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or(Ok(0))).collect()
    });
    let total: u64 = reads.into_iter().sum::<std::io::Result<u64>>()?;
    Ok(total as f64 / begin.elapsed().as_secs_f64())
}

fn sync_time(path: &Path, time: Duration) -> std::io::Result<f64> {
    let file = open(path)?;
    let mut block = Aligned::new(BLOCK);
    let begin = Instant::now();
    let mut syncs = 0u64;
    while begin.elapsed() < time {
        file.write_all_at(block.slice(BLOCK), syncs * BLOCK as u64 % PROBE_BYTES)?;
        file.sync_data()?;
        syncs += 1;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / syncs.max(1) as f64)
}
