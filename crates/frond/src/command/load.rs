//! `frond load`: rows from text, in large durable transactions.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::PathBuf;
use std::rc::Rc;

use clap::{Args, ValueEnum};
use fronddb::{Database, ErrorKind, Tree, TreeOptions, TxnOptions, WriteBatch};

use super::csv_form::Records;
use super::dump::Form;
use super::line_form::{self, Line};
use crate::encoding::EncodingArgs;
use crate::failure::{During, Failure, INPUT, Outcome};
use crate::output::note;
use crate::progress::Progress;
use crate::quantity::{count, parse_bytes};
use crate::target::Target;

/// More of the first line is not looked at to tell what the input is.
const FIRST_LINE_MAX: u64 = 64 << 10;
/// No line of a dump is longer, in bytes: each byte of the longest key and value takes four at most.
const LINE_MAX: u64 = 4 * ((256 << 20) + (64 << 10));

/// What to do with a row whose key has a value already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IfExists {
    /// Give it the new one
    Replace,
    /// Keep the old one, unseen: how many were kept is not counted
    Keep,
    /// Stop with exit code 14
    Fail,
}

/// Read rows from text (what `frond dump` wrote, or CSV) into a database
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond load copy --create demo.lines                 a dump into a new database
  frond dump demo | frond load copy --create          the same without a file
  frond load demo --tree fruit fruit.csv              CSV with two columns, key and value, and a header
  gzip -dc big.csv.gz | frond load demo --tree big --create --no-header

Rows are committed durably in transactions of --batch bytes. When a line is wrong, the message names it, nothing of its
transaction is stored, and all transactions before it are: mend the line and load again (with `--if-exists replace` or `keep`).")]
pub(crate) struct Load {
    #[command(flatten)]
    target: Target,
    /// The file to read; `-` is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    input: PathBuf,
    /// The text form [default: by the first line]
    #[arg(short, long, value_enum)]
    format: Option<Form>,
    /// CSV: the tree to load into. A dump in lines names its trees itself
    #[arg(short, long)]
    tree: Option<String>,
    /// Make the database, and trees, that are missing
    #[arg(short, long)]
    create: bool,
    /// What to do with a key that has a value already
    #[arg(long, value_enum, default_value = "replace")]
    if_exists: IfExists,
    /// CSV: the first record is a row
    #[arg(long)]
    no_header: bool,
    /// Bytes of keys and values per transaction
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "4M")]
    batch: u64,
    #[command(flatten)]
    encoding: EncodingArgs,
}

impl Load {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let progress = Rc::new(Progress::bytes("load", self.input_bytes()));
        let mut input = self.open_input(&progress)?;
        let mut first = Vec::new();
        let start = input.by_ref().take(FIRST_LINE_MAX).read_until(b'\n', &mut first);
        start.map_err(|error| self.input_failed(&error))?;
        let is_dump = first.starts_with(line_form::FIRST_WORD.as_bytes());
        let form = self.format.unwrap_or(if is_dump { Form::Lines } else { Form::Csv });
        if form == Form::Csv && self.tree.is_none() {
            return Err(Failure::usage(format!(
                "{} does not begin with `{}`: name the tree to load CSV into with --tree",
                self.input_name(),
                line_form::FIRST
            )));
        }
        if form == Form::Lines && self.tree.is_some() {
            return Err(Failure::usage("a dump in lines names its trees itself: leave --tree out".to_owned()));
        }
        // Before anything is made.
        if form == Form::Lines && first.trim_ascii_end() != line_form::FIRST.as_bytes() {
            let reason = format_args!("not a dump that this version reads; it begins `{}`", line_form::FIRST);
            return Err(Failure::new(INPUT, format!("{}, line 1: {reason}", self.input_name())));
        }
        let db = self.target.open_with(self.target.opening.options().create_if_missing(self.create))?;
        let mut loader = Loader { load: &self, db: &db, batch: WriteBatch::new(), pending: 0, committed: 0, line: 0 };
        let loaded = match form {
            Form::Lines => loader.lines(input),
            Form::Csv => loader.csv(Cursor::new(first).chain(input)),
        };
        let committed = loader.committed;
        drop(progress);
        loaded.map_err(|failure| failure.then(format_args!("rows loaded before it: {committed}")))?;
        self.target.close(db)?;
        let kept =
            if self.if_exists == IfExists::Keep { ", or left as they were where their key had a value" } else { "" };
        note(&format!("{} rows loaded{kept}", count(committed)));
        Ok(())
    }

    fn input_name(&self) -> String {
        if self.input.as_os_str() == "-" { "standard input".to_owned() } else { self.input.display().to_string() }
    }

    fn input_failed(&self, error: &std::io::Error) -> Failure {
        Failure::files(format_args!("read {}", self.input_name()), error)
    }

    fn input_bytes(&self) -> u64 {
        std::fs::metadata(&self.input).map_or(0, |metadata| metadata.len())
    }

    fn open_input(&self, progress: &Rc<Progress>) -> Outcome<Box<dyn BufRead>> {
        let source: Box<dyn Read> = if self.input.as_os_str() == "-" {
            Box::new(std::io::stdin())
        } else {
            Box::new(File::open(&self.input).map_err(|error| self.input_failed(&error))?)
        };
        let counted = Counted { source, progress: Rc::clone(progress), bytes: 0 };
        Ok(Box::new(BufReader::with_capacity(256 << 10, counted)))
    }
}

/// Shows how far the input is read.
struct Counted {
    source: Box<dyn Read>,
    progress: Rc<Progress>,
    bytes: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.bytes += read as u64;
        self.progress.set(self.bytes);
        Ok(read)
    }
}

struct Loader<'a> {
    load: &'a Load,
    db: &'a Database,
    batch: WriteBatch,
    pending: u64,
    committed: u64,
    line: u64,
}

impl Loader<'_> {
    fn wrong(&self, reason: impl std::fmt::Display) -> Failure {
        Failure::new(INPUT, format!("{}, line {}: {reason}", self.load.input_name(), self.line))
    }

    /// The lines after the first.
    fn lines(&mut self, mut input: impl BufRead) -> Outcome {
        self.line = 1;
        let mut tree = None;
        let mut rows = 0;
        let mut line = Vec::new();
        loop {
            line.clear();
            self.line += 1;
            let read = input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
            if read.map_err(|error| self.load.input_failed(&error))? as u64 == LINE_MAX && !line.ends_with(b"\n") {
                return Err(self.wrong("longer than any row"));
            }
            // A line without its newline was cut short, even if it looks well formed.
            let Some(text) = line.strip_suffix(b"\n") else {
                return Err(self.wrong("the dump is cut short: its last line, `end rows=…`, is missing"));
            };
            match line_form::parse(text).map_err(|reason| self.wrong(reason))? {
                Line::Tree { name, codec, metadata } => {
                    self.commit()?;
                    tree = Some(self.tree(&name, &TreeOptions { codec: Some(codec), metadata })?);
                }
                Line::Row { key, value } => {
                    let Some(tree) = &tree else {
                        return Err(self.wrong("a row before the first `tree` line"));
                    };
                    rows += 1;
                    self.row(tree, &key, &value)?;
                }
                Line::End { rows: expected } if expected == rows => {
                    self.nothing_follows(input)?;
                    return self.commit();
                }
                Line::End { rows: expected } => {
                    self.commit()?;
                    return Err(self.wrong(format_args!("rows are missing from the dump: {rows} of {expected}")));
                }
            }
        }
    }

    /// The line just read is the dump's last: what comes after it would be passed over.
    fn nothing_follows(&mut self, mut input: impl BufRead) -> Outcome {
        if input.fill_buf().map_err(|error| self.load.input_failed(&error))?.is_empty() {
            return Ok(());
        }
        self.line += 1;
        Err(self.wrong("the dump ended on the line before; load dumps one at a time"))
    }

    fn csv(&mut self, input: impl Read) -> Outcome {
        let name = self.load.tree.clone().unwrap_or_default();
        let tree = self.tree(&name, &TreeOptions::default())?;
        let mut records = Records::new(input, !self.load.no_header, self.load.encoding.encoding);
        loop {
            match records.next() {
                Ok(None) => return self.commit(),
                Ok(Some(row)) => {
                    self.line = row.line;
                    self.row(&tree, &row.key, &row.value)?;
                }
                Err((line, reason)) => {
                    self.line = line;
                    return Err(self.wrong(reason));
                }
            }
        }
    }

    fn tree(&self, name: &str, options: &TreeOptions) -> Outcome<Tree> {
        if !self.load.create {
            return self.load.target.open_tree(self.db, name).map_err(|failure| failure.then("--create makes it"));
        }
        match self.db.create_tree(name, options) {
            Err(error) if error.kind() == ErrorKind::KeyExists => self.load.target.open_tree(self.db, name),
            other => other.during(format_args!("create tree {name:?}")),
        }
    }

    fn row(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Outcome {
        let added = match self.load.if_exists {
            IfExists::Replace => self.batch.put(tree, key, value),
            IfExists::Keep => self.batch.insert_if_absent(tree, key, value),
            IfExists::Fail => self.batch.insert(tree, key, value),
        };
        added.map_err(|error| self.wrong(error))?;
        self.pending += 1;
        if self.batch.bytes() as u64 >= self.load.batch { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Outcome {
        if !self.batch.is_empty() {
            self.db.write(&self.batch, TxnOptions::default()).during(format_args!(
                "load {}, the transaction that ends at line {}",
                self.load.input_name(),
                self.line
            ))?;
        }
        self.batch.clear();
        self.committed += std::mem::take(&mut self.pending);
        Ok(())
    }
}
