//! `frond-bench`: the benchmarks, and the comparison with RocksDB. See `frond-bench --help`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use frond_bench::cli::{CompareCommand, RenderCommand, RunCommand, SuiteCommand};

#[derive(Debug, Parser)]
#[command(about = "Benchmarks of FrondDB and its rivals")]
#[command(version = concat!(env!("CARGO_PKG_VERSION"), ", commit ", env!("FROND_BENCH_COMMIT")))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one workload on one engine
    Run(RunCommand),
    /// Run one workload on several engines, each in a process of its own, and compare
    Compare(CompareCommand),
    /// Run the recorded comparisons, all or some, and write docs/benchmarks.md
    Suite(SuiteCommand),
    /// Write docs/benchmarks.md anew from the recorded results
    Render(RenderCommand),
    /// Serve a parent process
    #[command(hide = true)]
    Child,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(command) => command.execute(),
        Command::Compare(command) => command.execute(),
        Command::Suite(command) => command.execute(),
        Command::Render(command) => command.execute(),
        Command::Child => frond_bench::child::serve(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("frond-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
