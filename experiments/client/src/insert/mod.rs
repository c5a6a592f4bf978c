//! The experiments of the published papers that are made of SQL statements, on any server and engine: iiBench insertion (E1,
//! and with one row per transaction E3), rolling back a large transaction (E7), a queue table (E8).
//!
//! Output: one JSON object a line, one each second and a summary at the end, with `"kind"` first. Latencies are those of whole
//! transactions, in microseconds. Rows are made and sent as literal text, so that the client takes little of the machine: the
//! summary tells its CPU time beside the server's.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use frond_load::purchase::create_table;
use frond_load::wire::Connection;

mod cpu;
mod iibench;
mod meter;
mod queue;
mod rollback;

/// What all of them take.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The server's socket
    #[arg(long)]
    socket: PathBuf,
    /// The database; it is created where it is missing
    #[arg(long, default_value = "experiment")]
    database: String,
    /// The engine of tables that are created
    #[arg(long, default_value = "FROND")]
    engine: String,
    /// Appended to CREATE TABLE: options of the engine
    #[arg(long, default_value = "")]
    table_options: String,
    /// Of the random values
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Process id of the server, to tell its CPU time in the summary
    #[arg(long)]
    server_pid: Option<u32>,
}

impl Target {
    /// A connection to the experiment's database.
    fn connect(&self) -> Result<Connection, String> {
        let open = || {
            let mut connection = Connection::open(&self.socket, "")?;
            connection.run(format!("CREATE DATABASE IF NOT EXISTS {}", self.database))?;
            connection.run(format!("USE {}", self.database))?;
            Ok(connection)
        };
        open().map_err(|error: frond_load::wire::Failure| format!("{}: {error}", self.socket.display()))
    }

    /// The same, with the table of iiBench in it.
    fn connect_to_purchases(&self) -> Result<Connection, String> {
        /// ER_TABLE_EXISTS_ERROR
        const TABLE_EXISTS: u16 = 1050;
        let mut connection = self.connect()?;
        match connection.run(format!("{} {}", create_table(PURCHASES, &self.engine), self.table_options)) {
            Err(error) if error.code() != TABLE_EXISTS => Err(error.to_string()),
            _ => Ok(connection),
        }
    }
}

/// The table of iiBench, as [`frond_load::purchase`] has it.
const PURCHASES: &str = "purchases_index";

#[derive(Debug, Subcommand)]
pub(crate) enum Experiment {
    /// Insert rows of purchases_index, many per transaction
    Iibench(iibench::Iibench),
    /// Change many rows in one transaction and roll it back
    Rollback(rollback::Rollback),
    /// Insert at the tail of a table and delete at its head
    Queue(queue::Queue),
}

impl Experiment {
    pub(crate) fn execute(&self) -> Result<(), String> {
        match self {
            Experiment::Iibench(command) => command.execute(),
            Experiment::Rollback(command) => command.execute(),
            Experiment::Queue(command) => command.execute(),
        }
    }
}
