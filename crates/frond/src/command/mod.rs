//! The subcommands, one file each.

mod bench;
mod check;
mod create;
pub(crate) mod csv_form;
mod delete;
mod dump;
mod get;
pub(crate) mod line_form;
mod load;
mod log;
mod plug;
mod put;
mod salvage;
mod scan;
mod stat;
mod trees;
mod version;

use clap::Subcommand;

use crate::failure::Outcome;

/// What the tool can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(create::Create),
    Put(put::Put),
    Get(get::Get),
    Delete(delete::Delete),
    Scan(scan::Scan),
    Trees(trees::Trees),
    Stat(stat::Stat),
    Dump(dump::Dump),
    Load(load::Load),
    Check(check::Check),
    Salvage(salvage::Salvage),
    Log(log::Log),
    Bench(bench::Bench),
    #[command(name = bench::CHILD, hide = true)]
    BenchChild(bench::BenchChild),
    Plug(plug::Plug),
    #[command(name = plug::LOADER, hide = true)]
    PlugLoad(plug::PlugLoad),
    Version(version::Version),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        match self {
            Command::Create(command) => command.run(),
            Command::Put(command) => command.run(),
            Command::Get(command) => command.run(),
            Command::Delete(command) => command.run(),
            Command::Scan(command) => command.run(),
            Command::Trees(command) => command.run(),
            Command::Stat(command) => command.run(),
            Command::Dump(command) => command.run(),
            Command::Load(command) => command.run(),
            Command::Check(command) => command.run(),
            Command::Salvage(command) => command.run(),
            Command::Log(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::BenchChild(command) => command.run(),
            Command::Plug(command) => command.run(),
            Command::PlugLoad(command) => command.run(),
            Command::Version(command) => command.run(),
        }
    }
}
