//! `frond version`.

use clap::Args;

use crate::failure::Outcome;
use crate::output::print;

/// Print the version
#[derive(Debug, Args)]
pub(crate) struct Version {}

impl Version {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        print(concat!("frond ", env!("CARGO_PKG_VERSION")))
    }
}
