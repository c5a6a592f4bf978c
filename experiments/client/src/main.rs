//! `frond-client`: SQL against private MariaDB servers. See `frond-client --help`.
//!
//! Rooms, in reading order: `server` (a private server as our child), then one for each subcommand: `kill_loop`, `random_sql`.
//! The protocol and random numbers are those of `frond_load`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod kill_loop;
mod random_sql;
mod server;

#[derive(Debug, Parser)]
#[command(version, about = "SQL against private MariaDB servers with FROND: kill loops, random SQL")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kill a server under mixed SQL again and again; after each restart everything acknowledged is there and nothing half-done
    KillLoop(kill_loop::KillLoop),
    /// Run random SQL on InnoDB tables and on FROND tables of one server: the answers must be the same
    RandomSql(random_sql::RandomSql),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::KillLoop(command) => command.execute(),
        Command::RandomSql(command) => command.execute(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("frond-client: {error}");
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
