//! `frond scan`: rows in order.

use std::ffi::OsString;
use std::ops::Bound;

use clap::Args;
use fronddb::CursorOptions;

use crate::encoding::EncodingArgs;
use crate::failure::{During, Outcome};
use crate::output::Output;
use crate::target::Target;

/// Print rows in order, key and value separated by a tab
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond scan demo fruit                          all rows
  frond scan demo fruit --prefix ap --limit 10
  frond scan demo fruit --from b --to d          from `b` (included) to `d` (excluded)
  frond scan demo fruit --after b --through d    from `b` (excluded) to `d` (included)
  frond scan demo fruit --reverse --limit 1      the last row
  frond scan demo fruit --count                  how many")]
pub(crate) struct Scan {
    #[command(flatten)]
    target: Target,
    /// The tree
    tree: String,
    /// First key
    #[arg(long, value_name = "KEY", conflicts_with = "after")]
    from: Option<OsString>,
    /// First key, left out
    #[arg(long, value_name = "KEY")]
    after: Option<OsString>,
    /// Last key, left out
    #[arg(long, value_name = "KEY", conflicts_with = "through")]
    to: Option<OsString>,
    /// Last key
    #[arg(long, value_name = "KEY")]
    through: Option<OsString>,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY")]
    prefix: Option<OsString>,
    /// From the last key to the first
    #[arg(short, long)]
    reverse: bool,
    /// At most so many rows
    #[arg(short = 'n', long, value_name = "ROWS")]
    limit: Option<u64>,
    /// Without values
    #[arg(short, long)]
    keys_only: bool,
    /// Only how many rows there are
    #[arg(short, long)]
    count: bool,
    #[command(flatten)]
    encoding: EncodingArgs,
}

impl Scan {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let options = self.cursor_options()?;
        let db = self.target.open_read_only()?;
        let tree = self.target.open_tree(&db, &self.tree)?;
        let txn = self.target.begin_read(&db)?;
        let during = || format!("scan {} of {}", self.tree, self.target.name());
        let mut cursor = txn.cursor(&tree, options).during(during())?;
        let mut output = Output::standard();
        let mut line = Vec::new();
        let mut rows = 0;
        let limit = self.limit.unwrap_or(u64::MAX);
        let encoding = self.encoding.encoding;
        while rows < limit && if self.reverse { cursor.prev() } else { cursor.next() }.during(during())? {
            rows += 1;
            if self.count {
                continue;
            }
            line.clear();
            encoding.encode(cursor.key(), &mut line);
            if !self.keys_only {
                line.push(b'\t');
                encoding.encode(cursor.value(), &mut line);
            }
            output.line(&line)?;
        }
        if self.count {
            output.line(rows.to_string())?;
        }
        output.finish()
    }

    fn cursor_options(&self) -> Outcome<CursorOptions> {
        let bound = |what, included: &Option<OsString>, what_excluded, excluded: &Option<OsString>| {
            let included = self.encoding.option(what, included.as_ref())?.map(Bound::Included);
            let excluded = self.encoding.option(what_excluded, excluded.as_ref())?.map(Bound::Excluded);
            Ok(included.or(excluded).unwrap_or(Bound::Unbounded))
        };
        Ok(CursorOptions {
            lower: bound("--from", &self.from, "--after", &self.after)?,
            upper: bound("--through", &self.through, "--to", &self.to)?,
            prefix: self.encoding.option("--prefix", self.prefix.as_ref())?.unwrap_or_default(),
            keys_only: self.keys_only || self.count,
            fill_cache: false,
            ..CursorOptions::default()
        })
    }
}
