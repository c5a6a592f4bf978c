//! `frond dump`: rows as text.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fronddb::{CursorOptions, Database, Transaction, Tree};

use super::{csv_form, line_form};
use crate::encoding::EncodingArgs;
use crate::failure::{During, Failure, Outcome};
use crate::output::{Output, note};
use crate::progress::Progress;
use crate::quantity::count;
use crate::target::Target;

/// A text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Everything, trees with their options, losslessly; see `frond load`
    Lines,
    /// The keys and values of one tree
    Csv,
}

/// Write trees as text: a consistent snapshot of all of them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond dump demo > demo.lines                          all trees, losslessly
  frond dump demo fruit --output fruit.lines            one tree; the file appears when it is complete
  frond dump demo fruit --format csv -o fruit.csv       key,value for a spreadsheet
  frond dump demo | ssh host frond load demo --create   to another machine

Interrupted, it leaves what it wrote to --output as .NAME.PID.partial beside it, which may be removed.
Changes of transactions that are prepared (XA) and wait for a decision are not in it; standard error says so.")]
pub(crate) struct Dump {
    #[command(flatten)]
    target: Target,
    /// Trees to dump [default: all]
    #[arg(value_name = "TREE")]
    trees: Vec<String>,
    /// The text form
    #[arg(short, long, value_enum, default_value = "lines")]
    format: Form,
    /// The file to write; `-` is standard output. A device or pipe is written as it is
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    encoding: EncodingArgs,
}

impl Dump {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        if self.format == Form::Csv && self.trees.len() != 1 {
            return Err(Failure::usage("CSV holds one tree: name it, or use --format lines"));
        }
        let db = self.target.open_read_only()?;
        let txn = self.target.begin_read(&db)?;
        let trees = self.open_trees(&db)?;
        // Only the progress needs them: what is damaged is told where its rows are read.
        let sizes: fronddb::Result<Vec<_>> = trees.iter().map(|tree| txn.estimate(tree, b"", b"")).collect();
        let progress = Progress::rows("dump", sizes.map_or(0, |sizes| sizes.iter().map(|size| size.rows).sum()));
        let mut output = Output::create(&self.output)?;
        match self.format {
            Form::Lines => self.lines(&txn, &trees, &mut output, &progress)?,
            Form::Csv => self.csv(&txn, &trees, &mut output, &progress)?,
        }
        output.finish()?;
        drop(progress);
        let prepared = db.prepared().during(format_args!("read {}", self.target.name()))?.len() as u64;
        if prepared > 0 {
            note(&format!(
                "left out: changes of prepared transactions that wait for a decision, count={}",
                count(prepared)
            ));
        }
        Ok(())
    }

    fn open_trees(&self, db: &Database) -> Outcome<Vec<Tree>> {
        if !self.trees.is_empty() {
            return self.trees.iter().map(|name| self.target.open_tree(db, name)).collect();
        }
        let all = db.trees().during(format_args!("read the catalog of {}", self.target.name()))?;
        all.iter().map(|info| self.target.open_tree(db, &info.name)).collect()
    }

    fn lines(&self, txn: &Transaction, trees: &[Tree], output: &mut Output, progress: &Progress) -> Outcome {
        output.line(line_form::FIRST)?;
        let mut line = Vec::new();
        let mut rows = 0;
        for tree in trees {
            let options = tree.options();
            line_form::tree_line(tree.name(), options.codec.unwrap_or_default(), &options.metadata, &mut line);
            output.line(&line)?;
            rows = self.each_row(txn, tree, rows, progress, &mut |key, value| {
                line_form::row_line(key, value, &mut line);
                output.line(&line)
            })?;
        }
        output.line(line_form::end_line(rows))
    }

    fn csv(&self, txn: &Transaction, trees: &[Tree], output: &mut Output, progress: &Progress) -> Outcome {
        let failed = |error| Failure::files("write CSV", &error);
        let (mut record, mut key_text, mut value_text) = (Vec::new(), Vec::new(), Vec::new());
        csv_form::record(csv_form::HEADER.map(str::as_bytes), &mut record).map_err(failed)?;
        output.write(&record)?;
        let encoding = self.encoding.encoding;
        for tree in trees {
            self.each_row(txn, tree, 0, progress, &mut |key, value| {
                key_text.clear();
                value_text.clear();
                encoding.encode(key, &mut key_text);
                encoding.encode(value, &mut value_text);
                csv_form::record([&key_text, &value_text], &mut record).map_err(failed)?;
                output.write(&record)
            })?;
        }
        Ok(())
    }

    fn each_row(
        &self,
        txn: &Transaction,
        tree: &Tree,
        mut rows: u64,
        progress: &Progress,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Outcome,
    ) -> Outcome<u64> {
        const SHOW_EVERY: u64 = 1 << 12;
        let during = || format!("dump tree {:?} of {}", tree.name(), self.target.name());
        let options = CursorOptions { fill_cache: false, ..CursorOptions::default() };
        let mut cursor = txn.cursor(tree, options).during(during())?;
        while cursor.next().during(during())? {
            visit(cursor.key(), cursor.value())?;
            rows += 1;
            if rows.is_multiple_of(SHOW_EVERY) {
                progress.set(rows);
            }
        }
        Ok(rows)
    }
}
