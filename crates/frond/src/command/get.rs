//! `frond get`: one value.

use std::ffi::OsString;

use clap::Args;

use crate::encoding::{EncodingArgs, shown};
use crate::failure::{During, Failure, Outcome};
use crate::output::Output;
use crate::target::Target;

/// Print the value of a key; exit code 1 if it has none
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond get demo fruit apple
  frond get demo fruit apple --raw > apple.jpg         byte for byte, no newline added
  frond get demo fruit pear || echo no pear")]
pub(crate) struct Get {
    #[command(flatten)]
    target: Target,
    /// The tree
    tree: String,
    /// The key
    key: OsString,
    #[command(flatten)]
    encoding: EncodingArgs,
    /// Print the value byte for byte, without a newline
    #[arg(long)]
    raw: bool,
}

impl Get {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let key = self.encoding.argument("key", &self.key)?;
        let db = self.target.open_read_only()?;
        let tree = self.target.open_tree(&db, &self.tree)?;
        let value = db.get(&tree, &key).during(format_args!("get from {}", self.target.name()))?;
        let Some(value) = value else {
            return Err(Failure::negative(format!("no such key: tree={:?} key={}", self.tree, shown(&key))));
        };
        let mut output = Output::standard();
        if self.raw {
            output.write(&value)?;
        } else {
            let mut line = Vec::new();
            self.encoding.encoding.encode(&value, &mut line);
            output.line(line)?;
        }
        output.finish()
    }
}
