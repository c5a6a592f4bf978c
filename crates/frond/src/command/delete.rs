//! `frond delete`: keys, ranges, and whole trees.

use std::ffi::OsString;

use clap::Args;

use crate::encoding::{EncodingArgs, shown};
use crate::failure::{During, Failure, Outcome};
use crate::target::Target;

/// Delete a key, a range of keys, or a whole tree, durably
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond delete demo fruit apple                  exit code 1 if there was none
  frond delete demo fruit --from a --to c        all keys from `a` up to, but not including, `c`
  frond delete demo fruit --drop                 the tree with all its rows")]
pub(crate) struct Delete {
    #[command(flatten)]
    target: Target,
    /// The tree
    tree: String,
    /// The key
    #[arg(required_unless_present_any = ["from", "to", "drop"], conflicts_with_all = ["from", "to", "drop"])]
    key: Option<OsString>,
    /// Lowest key of a range to delete
    #[arg(long, value_name = "KEY", conflicts_with = "drop")]
    from: Option<OsString>,
    /// Lowest key above it that stays
    #[arg(long, value_name = "KEY", conflicts_with = "drop")]
    to: Option<OsString>,
    /// Drop the tree
    #[arg(long)]
    drop: bool,
    #[command(flatten)]
    encoding: EncodingArgs,
}

impl Delete {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let key = self.encoding.option("key", self.key.as_ref())?;
        let from = self.encoding.option("--from", self.from.as_ref())?.unwrap_or_default();
        let to = self.encoding.option("--to", self.to.as_ref())?.unwrap_or_default();
        let is_range = self.from.is_some() || self.to.is_some();
        if is_range && let Some(wrong) = wrong_range(&from, self.to.as_ref().map(|_| &to[..])) {
            return Err(Failure::usage(wrong));
        }
        let db = self.target.open()?;
        let tree = self.target.open_tree(&db, &self.tree)?;
        let txn = db.begin(Default::default()).during("delete")?;
        let mut existed = true;
        match &key {
            Some(key) => existed = txn.delete_existing(&tree, key).during("delete")?,
            None if self.drop => txn.drop_tree(&self.tree).during("drop")?,
            None => txn.delete_range(&tree, &from, &to).during("delete")?,
        }
        txn.commit().during("delete")?;
        self.target.close(db)?;
        match key {
            Some(key) if !existed => {
                Err(Failure::negative(format!("no such key: tree={:?} key={}", self.tree, shown(&key))))
            }
            _ => Ok(()),
        }
    }
}

/// Why nobody means this range: as a script has it whose variable is not set, it would reach to the end of the tree.
fn wrong_range(from: &[u8], to: Option<&[u8]>) -> Option<&'static str> {
    match to {
        Some([]) => Some("--to is empty; without it the range ends with the tree"),
        Some(to) if from >= to => Some("no key lies in the range, --from is not below --to"),
        None if from.is_empty() => Some("--from is empty; --drop removes the tree with all its rows"),
        _ => None,
    }
}
