//! `frond bench`: the workloads of `frond-bench`, on FrondDB.

use clap::Args;
use frond_bench::cli::RunCommand;

use crate::failure::{Failure, Outcome};

/// Run a workload and report rate, latency, bytes written and memory
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond bench iibench --rows 5000000
  frond bench --json result.json iibench

`make bench` runs the same workloads side by side with RocksDB.")]
pub(crate) struct Bench {
    #[command(flatten)]
    run: RunCommand,
}

impl Bench {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        self.run.execute().map_err(|error| Failure::negative(format!("bench: {error}")))
    }
}
