//! The machine in general words, and the commit of this program: what a reader needs to judge figures, and nothing
//! that names a host.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use crate::{At, Result};

const SYNCS: usize = 200;
const BLOCK: [u8; 4096] = [0; 4096];

/// Cores, memory, kind of system, and what a sync costs in `directory`.
pub fn machine(directory: &Path) -> Result<String> {
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
    let gib = (kib as f64 / f64::from(1 << 20)).ceil();
    let sync = sync_us(directory)?;
    Ok(format!("{cores} cores, {gib} GiB, {}, fdatasync of 4 KiB {sync:.0} µs", std::env::consts::OS))
}

/// Median time of a 4 KiB write and fdatasync into written space.
fn sync_us(directory: &Path) -> Result<f64> {
    let path = directory.join("sync-probe");
    let mut times = probe(&path).at_path(&path)?;
    std::fs::remove_file(&path).at_path(&path)?;
    times.sort_by(f64::total_cmp);
    Ok(times[SYNCS / 2])
}

/// The time of each write and sync.
fn probe(path: &Path) -> std::io::Result<Vec<f64>> {
    let mut file = std::fs::File::create(path)?;
    (0..SYNCS).try_for_each(|_| file.write_all(&BLOCK))?;
    file.sync_all()?;
    drop(file);
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let began = Instant::now();
        file.write_all(&BLOCK)?;
        file.sync_data()?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

/// Short name of the commit that this program was built from, marked where the sources differed from it.
pub fn commit() -> String {
    env!("FROND_BENCH_COMMIT").to_owned()
}
