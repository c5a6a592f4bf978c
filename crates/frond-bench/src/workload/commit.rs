//! Single-row commits: each transaction puts one record. Durable, what is measured is the log and group commit: one
//! sync per group, which is one per commit with one thread and fewer with more.

use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::parallel::{parallel, repeat_for};
use super::records::{RecordOptions, Records, TREES};
use super::{Common, DURABLE, Outcome};
use crate::Result;
use crate::engine::{Durability, Engine, Statistics};

/// Options of the single-row commits.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct Options {
    /// Numbers of threads, one phase each
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    pub threads: Vec<u64>,
    /// Seconds of each phase
    #[arg(long, value_parser = super::parse_seconds, default_value_t = 10.0)]
    pub seconds: f64,
    /// When a transaction is acknowledged
    #[arg(long, value_enum, default_value_t = DURABLE)]
    pub durability: Durability,
    /// Shape of the records
    #[command(flatten)]
    #[serde(flatten)]
    pub records: RecordOptions,
}

/// One phase per number of threads.
pub fn run<E: Engine>(common: &Common, options: &Options) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let engine: E = common.create(&TREES)?;
    let records = Records::new(common.seed, &options.records);
    let next = AtomicU64::new(0);
    for &threads in &options.threads {
        let name = format!("{threads} thread{}", if threads == 1 { "" } else { "s" });
        let before = engine.statistics()?;
        let mut meter = common.meter(&name, 0);
        parallel(&mut meter, threads, |_, worker| {
            repeat_for(options.seconds, || {
                let number = next.fetch_add(1, Ordering::Relaxed);
                worker.time(1, || records.put(&engine, number, number + 1, options.durability))
            })
        })?;
        outcome.phases.push(meter.finish(&common.directory)?);
        if let Some(syncs) = syncs_per_commit(&before, &engine.statistics()?) {
            outcome.fact(&format!("{name}: syncs of the log per commit"), syncs, "");
        }
    }
    outcome.statistics = engine.statistics()?;
    engine.close()?;
    Ok(outcome)
}

/// `None` for an engine that does not count them, or that committed nothing.
fn syncs_per_commit(before: &Statistics, after: &Statistics) -> Option<f64> {
    let commits = after.commits? - before.commits?;
    let syncs = after.log_syncs? - before.log_syncs?;
    (commits > 0).then(|| syncs as f64 / commits as f64)
}
