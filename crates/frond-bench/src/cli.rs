//! The commands, shared by the binaries `frond-bench` and `frond bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::report::{Report, facts_table, phases_table};
use crate::workload::{Common, EngineName, Spec, Workload, run};
use crate::{Error, Result};

/// `run`: one workload on one engine.
#[derive(Debug, Args)]
pub struct RunCommand {
    /// Which engine
    #[arg(long, global = true, value_enum, default_value_t = default_engine())]
    pub engine: EngineName,
    #[command(flatten)]
    common: Common,
    /// Write the result as JSON to this file, `-` for the output
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    workload: Workload,
}

fn default_engine() -> EngineName {
    EngineName::value_variants().last().copied().unwrap_or(EngineName::Model)
}

impl RunCommand {
    /// Runs, prints the tables, writes the JSON.
    pub fn execute(self) -> Result<()> {
        let spec = Spec { engine: self.engine, common: self.common, workload: self.workload };
        let report = Report::new(&spec, run(&spec)?)?;
        let to_output = self.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
        if to_output {
            return print(&serde_json::to_string_pretty(&report)?);
        }
        if let Some(path) = &self.json {
            std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
        }
        print(&phases_table(&report))?;
        print(&facts_table(&report))
    }
}

/// Prints a line; a closed pipe is an error like any other.
fn print(text: &str) -> Result<()> {
    use std::io::Write;
    writeln!(std::io::stdout(), "{text}").map_err(Error::from)
}
