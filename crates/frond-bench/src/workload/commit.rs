//! Single-row commits: each transaction puts one record. Durable, what is measured is the log and group commit.

use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::parallel::{parallel, repeat_for};
use super::records::{RecordOptions, Records, TREES};
use super::{Common, DURABLE, Outcome};
use crate::Result;
use crate::engine::{Durability, Engine};

/// Options of the single-row commits.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct Options {
    /// Numbers of threads, one phase each
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    pub threads: Vec<u64>,
    /// Seconds of each phase
    #[arg(long, default_value_t = 10.0)]
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
        let mut meter = common.meter(&format!("{threads} thread{}", if threads == 1 { "" } else { "s" }), 0);
        parallel(&mut meter, threads, |_, worker| {
            repeat_for(options.seconds, || {
                let number = next.fetch_add(1, Ordering::Relaxed);
                worker.time(1, || records.put(&engine, number, number + 1, options.durability))
            })
        })?;
        outcome.phases.push(meter.finish(&common.directory)?);
    }
    outcome.statistics = engine.statistics()?;
    engine.close()?;
    Ok(outcome)
}
