//! Random point reads of existing and absent keys, the table a chosen multiple of the memory budget.
//!
//! Where the table fits (`--ratio` below about 0.5), one scan warms the cache first. Reads from storage per get are
//! counted by the operating system (read calls; both engines read with one call per block or range of blocks) and by the
//! engine (block reads), over all gets of a phase. After it, some gets are looked at one by one, so that the reads of those
//! that the cache did not answer are told by themselves.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::parallel::{parallel, repeat_for};
use super::records::{FITS, RecordOptions, Records, TREES, expect, load, warm};
use super::{Common, Outcome};
use crate::Result;
use crate::engine::Engine;
use crate::generate::Random;
use crate::measure::{Phase, ThreadReads};

/// Options of the point reads.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct Options {
    /// Keys and values together, as a multiple of the memory budget
    #[arg(long, default_value_t = 10.0)]
    pub ratio: f64,
    /// Seconds of each kind of read
    #[arg(long, value_parser = super::parse_seconds, default_value_t = 15.0)]
    pub seconds: f64,
    /// Reading threads
    #[arg(long, default_value_t = 1)]
    pub threads: u64,
    /// Merge everything pending first
    #[arg(long)]
    pub compact: bool,
    /// Shape of the records
    #[command(flatten)]
    #[serde(flatten)]
    pub records: RecordOptions,
}

/// Loads, warms where it fits, reads existing keys, reads absent keys.
pub fn run<E: Engine>(common: &Common, options: &Options) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let engine: E = common.create(&TREES)?;
    let records = Records::new(common.seed, &options.records);
    let count = records.count_of((common.memory_bytes() as f64 * options.ratio) as u64).max(1);
    outcome.phases.push(load(&engine, common, &records, count)?);
    outcome.fact("disk size as a multiple of the budget", disk_ratio(&outcome, common), "×");
    if options.compact {
        engine.compact()?;
    }
    if options.ratio < FITS {
        warm(&engine)?;
    }
    for (name, existing) in [("get existing", true), ("get absent", false)] {
        // Steady state: what the phase before it left in the cache is not what is measured.
        read(&engine, common, options, &records, count, existing, "warm up", options.seconds / 5.0)?;
        let before = engine.statistics()?.block_reads;
        let phase = read(&engine, common, options, &records, count, existing, name, options.seconds)?;
        if let (Some(before), Some(after), 1) = (before, engine.statistics()?.block_reads, options.threads) {
            let each = (after - before) as f64 / phase.operations.max(1) as f64;
            outcome.fact(&format!("block reads per {name}, by the engine"), each, "");
        }
        outcome.phases.push(phase);
        if existing && options.ratio >= FITS {
            look_at_misses(&engine, common, &records, count, &mut outcome)?;
        }
    }
    outcome.statistics = engine.statistics()?;
    engine.close()?;
    Ok(outcome)
}

/// Figure of [`look_at_misses`].
pub(crate) const READS_PER_MISS: &str = "reads per get existing that the cache did not answer";
const LOOKED_AT: u64 = 5_000;

/// Blocks read, as the engine counts them, for single gets of existing keys for which the system read from storage. A get for which it read
/// nothing was answered by the cache.
fn look_at_misses<E: Engine>(
    engine: &E,
    common: &Common,
    records: &Records,
    count: u64,
    outcome: &mut Outcome,
) -> Result<()> {
    let thread = ThreadReads::new()?;
    let mut random = Random::new(common.seed ^ LOOKED_AT);
    let mut value = Vec::new();
    let mut misses = 0u64;
    let before = engine.statistics()?.block_reads;
    for _ in 0..LOOKED_AT {
        let number = random.below(count);
        let (found, bytes) = thread.count(|| engine.get(0, &records.key(number), &mut value))?;
        expect(found, true, number)?;
        misses += u64::from(bytes > 0);
    }
    outcome.fact("share of get existing that the cache did not answer", misses as f64 / LOOKED_AT as f64, "");
    if let (Some(before), Some(after), 1..) = (before, engine.statistics()?.block_reads, misses) {
        outcome.fact(READS_PER_MISS, (after - before) as f64 / misses as f64, "");
    }
    Ok(())
}

fn disk_ratio(outcome: &Outcome, common: &Common) -> f64 {
    outcome.phases.last().map_or(0.0, |phase| phase.disk_bytes as f64 / common.memory_bytes() as f64)
}

#[expect(clippy::too_many_arguments, reason = "one measurement, spelled out where it is called")]
fn read<E: Engine>(
    engine: &E,
    common: &Common,
    options: &Options,
    records: &Records,
    count: u64,
    existing: bool,
    name: &str,
    seconds: f64,
) -> Result<Phase> {
    let mut meter = common.meter(name, 0);
    let work = |thread: u64, worker: &mut crate::measure::Worker| {
        let mut random = Random::new(common.seed ^ (thread + 1) ^ name.len() as u64);
        let mut value = Vec::new();
        repeat_for(seconds, || {
            let number = random.below(count) + if existing { 0 } else { count };
            let found = worker.time(1, || engine.get(0, &records.key(number), &mut value))?;
            expect(found, existing, number)
        })
    };
    if options.threads == 1 {
        // On this thread: RocksDB's counters of block reads are the calling thread's.
        let mut worker = meter.worker();
        work(0, &mut worker)?;
        meter.add(worker);
    } else {
        parallel(&mut meter, options.threads, work)?;
    }
    meter.finish(&common.directory)
}
