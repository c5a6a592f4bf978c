//! `frond`: the command-line tool of FrondDB.
//!
//! A library only so that its decoders can be fuzzed; the program is [`run`].
//!
//! Owns the command line and what people see; all it does with a database goes through the public API of `fronddb`.
//!
//! Rooms, in reading order: [`command`] (one file per subcommand), [`target`] (which database, and opening it),
//! [`encoding`] (keys and values as text), [`failure`] (exit codes and the one line on standard error), [`output`]
//! (standard output, files that appear whole or not at all), [`progress`], [`quantity`] (sizes and counts), [`decoders`] (the fuzz targets).
#![deny(unsafe_code)]

mod command;
#[doc(hidden)]
pub mod decoders;
mod encoding;
mod failure;
mod output;
mod progress;
mod quantity;
mod target;

use std::process::ExitCode;

use clap::Parser;

use crate::command::Command;

const ABOUT: &str = "FrondDB's tool: look into a database, change it, check it, move it, measure it";

const FIRST_STEPS: &str = "\
First steps:
  frond create demo fruit              a database in the directory `demo`, with a tree `fruit`
  frond put demo fruit apple red       a durable write
  frond get demo fruit apple
  frond scan demo fruit --prefix a     ordered, from and to where you like
  frond dump demo > demo.lines         everything, as text
  frond load copy --create demo.lines  and back
  frond check demo                     is every byte as it was written?
  frond plug                           kill it at full speed, and see what is left (a minute)

`frond help COMMAND` shows examples of each command.

A database is a directory, opened by one process at a time. Keys and values are bytes; in arguments and output they are
text with escapes (\\n, \\t, \\\\, \\xNN) unless --encoding says otherwise.

Exit codes: 0 done · 1 the answer is no: key absent, damage found, plug test failed · 2 wrong usage · 3 bad line in the
input · 4 cannot read the input or write the output · from 11 on, 10 + the engine's status code: 14 key exists, 15 invalid argument,
16 not found, 18 already open, 19 disk full, 20 i/o error, 21 damaged data, 22 newer format, 23 poisoned, 26 bug ·
141 nobody reads the output any more.";

#[derive(Debug, Parser)]
#[command(name = "frond", version, about = ABOUT, after_help = FIRST_STEPS, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Does what the arguments of the process say.
pub fn run() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
