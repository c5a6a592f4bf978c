//! `frond bench`: the workloads of `frond-bench`, on FrondDB.

use clap::Args;
use frond_bench::ErrorKind;
use frond_bench::cli::RunCommand;

use crate::failure::{Failure, Outcome};

/// Run a workload and report rate, latency, bytes written and memory
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond bench iibench --rows 5000000         index-heavy inserts, in durable transactions of 1,000 rows
  frond bench ycsb --help                    the options of a workload: A to F, records, threads …
  frond bench commit --json result.json      durable single-row commits, 1 and 16 threads
  frond bench rollback                       of a thousand and of five million rows

`make bench` runs the same workloads side by side with RocksDB.")]
pub(crate) struct Bench {
    #[command(flatten)]
    run: RunCommand,
}

impl Bench {
    /// Does it.
    pub(crate) fn run(mut self) -> Outcome {
        self.run.common.child_arguments = vec![CHILD.to_owned()];
        self.run.execute().map_err(|error| failure(&error))
    }
}

/// Name of the hidden subcommand that serves a workload which ends its own process.
pub(crate) const CHILD: &str = "bench-child";

/// Serve `frond bench`
#[derive(Debug, Args)]
pub(crate) struct BenchChild {}

impl BenchChild {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        frond_bench::child::serve().map_err(|error| failure(&error))
    }
}

fn failure(error: &frond_bench::Error) -> Failure {
    let failure = match error.kind() {
        ErrorKind::Usage => Failure::usage(format!("bench: {}", error.message())),
        ErrorKind::Files(cause) => Failure::files(format_args!("bench: {}", error.message()), cause),
        ErrorKind::Frond(cause) => Failure::engine("bench", cause),
        // It has said why on the same standard error.
        ErrorKind::Child(code) => Failure::new(*code, ""),
        _ => Failure::negative(format!("bench: {}", error.message())),
    };
    match error.left() {
        Some(left) => failure.then(left),
        None => failure,
    }
}
