//! `frond-bench`: the benchmarks, and the comparison with RocksDB. See `frond-bench --help`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use frond_bench::cli::RunCommand;

#[derive(Debug, Parser)]
#[command(about = "Benchmarks of FrondDB and its rivals", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one workload on one engine
    Run(RunCommand),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(command) => command.execute(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("frond-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
