//! `frond put`: one durable write.

use std::ffi::OsString;
use std::io::Read;

use clap::Args;

use crate::encoding::EncodingArgs;
use crate::failure::{During, Failure, Outcome};
use crate::target::Target;

/// Set the value of a key, durably
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond put demo fruit apple red
  frond put demo fruit apple - < apple.jpg             the value is the input, byte for byte
  frond put demo fruit --encoding hex 0001 cafe
  frond put demo fruit --insert apple green            fails with exit code 14 if there is one")]
pub(crate) struct Put {
    #[command(flatten)]
    target: Target,
    /// The tree
    tree: String,
    /// The key
    key: OsString,
    /// The value; `-` reads it from standard input
    #[arg(allow_hyphen_values = true)]
    value: OsString,
    #[command(flatten)]
    encoding: EncodingArgs,
    /// Fail if the key has a value
    #[arg(long)]
    insert: bool,
}

impl Put {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let key = self.encoding.argument("key", &self.key)?;
        let value = if self.value == "-" { standard_input()? } else { self.encoding.argument("value", &self.value)? };
        let db = self.target.open()?;
        let tree = self.target.open_tree(&db, &self.tree)?;
        let txn = db.begin(Default::default()).during("put")?;
        if self.insert { txn.insert(&tree, &key, &value) } else { txn.put(&tree, &key, &value) }.during("put")?;
        txn.commit().during("put")?;
        self.target.close(db)
    }
}

fn standard_input() -> Outcome<Vec<u8>> {
    let mut value = Vec::new();
    std::io::stdin().read_to_end(&mut value).map_err(|error| Failure::files("read standard input", &error))?;
    Ok(value)
}
