//! Bulk loading: the rows of a tree that is empty, in any order.
//!
//! Rows are sorted outside of the tree ([`super::sorter`]) and then written in key order, in one step of the
//! transaction: a failure undoes that step and nothing else. The transaction holds a lock on the whole tree,
//! so no row is locked; that no key comes twice is seen when the sorted rows pass by, so no row is looked up.
//!
//! Where they go:
//!
//! - Rows of more than a few MiB, into a tree in which nothing lies at all, become leaves at once ([`super::graft`]): written once, and
//!   not to the log.
//! - Others go through the log and level 0, a batch at a time. In key order each memtable becomes runs that touch few slots, and
//!   these move down the tree whole instead of being rewritten at each level.
//!
//! Either way a crash, a rollback and a savepoint mean what they always mean.

use std::path::PathBuf;
use std::sync::Arc;

use super::batch::WriteBatch;
use super::core::{TxnCore, TxnState};
use super::options::{Wait, check_directory};
use super::sorter::{Row, Sorter};
use super::tree_handle::Tree;
use crate::base::key::{check_key, check_value, tree_end, tree_start, write_inner};
use crate::base::{CommitNumber, Error, ErrorKind, Result, TxnId};
use crate::format::Uncommitted;
use crate::lock::Mode;
use crate::tree::{CursorOptions, GraftWriter, Wanted};

/// Rows that are written, and told of, at a time.
const BATCH_BYTES: usize = 128 << 10;
/// Memory for sorting, unless the caller says otherwise: this part of the budget, and at most so much.
const MEMORY_PART: usize = 8;
const MEMORY_BYTES_DEFAULT: usize = 64 << 20;

/// How rows are sorted.
#[derive(Debug, Clone, Default)]
pub struct BulkOptions {
    /// Memory to sort in, in bytes, counted in the database's budget; 0: an eighth of the budget, at most 64 MiB.
    pub memory_bytes: usize,
    /// Where rows that do not fit are spilled; `None`: `tmp` in the database's directory. Files there have no name and
    /// are gone with the process.
    pub temporary_dir: Option<PathBuf>,
    /// Of keys that are added more than once, name the one that was the first to come again, as if rows were written one by
    /// one, which takes a pass over all of them. Otherwise the lowest is named.
    pub first_duplicate: bool,
    /// A tree of which the first row lies behind more keys without one (deleted, rolled back) counts as one with rows: they need not be
    /// passed over to say that it is empty. `None`: all are.
    pub passed_over_max: Option<u64>,
}

/// How far a bulk load is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BulkProgress {
    /// Rows added.
    pub rows_added: u64,
    /// Bytes of their keys and values.
    pub bytes_added: u64,
    /// Bytes written to temporary files.
    pub bytes_spilled: u64,
    /// Rows merged and written to the tree.
    pub rows_written: u64,
}

/// Loads a tree. Made by [`crate::Transaction::bulk`]; to be used like a cursor, by the thread of its transaction. Dropped
/// unfinished, it has written nothing.
#[derive(Debug)]
pub struct Bulk {
    core: Arc<TxnCore>,
    tree: Tree,
    sorter: Option<Sorter>,
    progress: BulkProgress,
    first_duplicate: bool,
    /// Temporary files lie where the database does.
    spills_beside: bool,
    /// With the number of the row.
    duplicate: Option<(Vec<u8>, Vec<u8>, u64)>,
}

impl TxnCore {
    pub(crate) fn bulk(self: &Arc<Self>, tree: &Tree, options: &BulkOptions) -> Result<Bulk> {
        check_directory("temporary_dir", options.temporary_dir.as_deref())?;
        self.lock_empty(tree, options.passed_over_max)?;
        let engine = &self.engine;
        let memory = match options.memory_bytes {
            0 => (engine.budget.limit() / MEMORY_PART).min(MEMORY_BYTES_DEFAULT),
            bytes => bytes,
        };
        let directory = options.temporary_dir.clone().unwrap_or_else(|| engine.directory.join("tmp"));
        Ok(Bulk {
            core: self.clone(),
            tree: tree.clone(),
            sorter: Some(Sorter::new(
                engine.storage.clone(),
                &directory,
                &engine.budget,
                memory,
                self.cancelled.clone(),
            )),
            progress: BulkProgress::default(),
            first_duplicate: options.first_duplicate,
            spills_beside: options.temporary_dir.is_none(),
            duplicate: None,
        })
    }

    /// Locks a whole tree and makes sure that it has no row; looks first, because the lock stays also where the tree turns out to have some.
    fn lock_empty(&self, tree: &Tree, passed_over_max: Option<u64>) -> Result<()> {
        let mut state = self.writing()?;
        self.check_tree(&state, &tree.inner)?;
        self.check_empty(&state, tree, passed_over_max)?;
        let limit = self.lock_wait(Wait::Default);
        self.lock_span(&mut state, tree.id(), b"", b"", Mode::Exclusive, limit)?;
        tree.inner.check()?;
        while let Some((txn, key)) = self.check_empty(&state, tree, passed_over_max)? {
            self.wait_for_txn(&mut state, txn, &key, Mode::Exclusive, Wait::Default)?;
        }
        Ok(())
    }

    /// Fails where a tree has a row that nobody is changing just now; says who is changing one.
    fn check_empty(
        &self,
        state: &TxnState,
        tree: &Tree,
        passed_over_max: Option<u64>,
    ) -> Result<Option<(TxnId, Vec<u8>)>> {
        let own = state.writer.as_ref().map(|writer| writer.txn);
        let view = self.engine.owned_view(CommitNumber::LATEST, own, Uncommitted::Hidden);
        let options = CursorOptions { wanted: Wanted::Nothing, ..CursorOptions::default() };
        let upper = Some(tree_end(tree.id())).filter(|end| !end.is_empty());
        // Others go on beside the first look, and level 0 is to keep what it comes down to.
        let _kept = self.engine.snapshots.acquire();
        let mut cursor = self.engine.tree.cursor(view, tree_start(tree.id()), upper, options);
        cursor.watch_undecided();
        cursor.stop_when(self.cancelled.clone());
        if let Some(keys) = passed_over_max {
            cursor.give_up_after(keys);
        }
        let found = cursor.first().inspect_err(|error| self.scan_failed(state, error))?;
        match cursor.undecided() {
            Some((txn, key)) => Ok(Some((txn, key.to_vec()))),
            None if found || cursor.gave_up() => {
                Err(Error::invalid(format!("tree is not empty, name={}", tree.name())))
            }
            None => Ok(None),
        }
    }
}

impl Bulk {
    /// Adds a row.
    ///
    /// # Errors
    /// `InvalidArgument` when key or value is past its limit; `NoSpace`, `Io` of the temporary files, `Cancelled`: the load is given up
    /// then; `Closed` once the transaction has ended or the load is finished or given up.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        self.core.check_live()?;
        let Some(sorter) = &mut self.sorter else { return Err(finished()) };
        if let Err(error) = sorter.add(key, value) {
            // It has lost rows: whoever goes on must not get a tree without them.
            self.sorter = None;
            if error.kind() == ErrorKind::Cancelled {
                self.core.step_failed(&error);
            }
            return if self.spills_beside { self.core.engine.noting_lack(Err(error)) } else { Err(error) };
        }
        self.progress.rows_added += 1;
        self.progress.bytes_added += (key.len() + value.len()) as u64;
        self.progress.bytes_spilled = sorter.spilled_bytes();
        Ok(())
    }

    /// How far it is.
    pub fn progress(&self) -> BulkProgress {
        self.progress
    }

    /// Writes all rows. `progress` is called every 128 KiB; when it says false, the load is given up.
    ///
    /// # Errors
    /// `KeyExists` when a key was added twice ([`Bulk::duplicate`]); `Cancelled` when `progress` gave up; else as
    /// [`crate::Transaction::put`] and [`Bulk::add`]. Nothing has been written then.
    pub fn finish(&mut self, progress: &mut dyn FnMut(&BulkProgress) -> bool) -> Result<()> {
        let Some(sorter) = self.sorter.take() else { return Err(finished()) };
        let core = self.core.clone();
        let written = core.all_or_nothing(|| self.write(sorter, progress));
        if written.is_err() {
            self.progress.rows_written = 0;
        }
        written
    }

    /// The row that was added although its key was there, after [`Bulk::finish`] has failed with `KeyExists`: of the lowest such
    /// key, or the first of all ([`BulkOptions::first_duplicate`]).
    pub fn duplicate(&self) -> Option<(&[u8], &[u8])> {
        self.duplicate.as_ref().map(|(key, value, _)| (key.as_slice(), value.as_slice()))
    }

    /// Which of the rows added, from 0, [`Bulk::duplicate`] is.
    pub fn duplicate_number(&self) -> Option<u64> {
        self.duplicate.as_ref().map(|(.., number)| *number)
    }

    /// Of two rows in a row with one key, the second came again.
    fn note_duplicate(&mut self, row: Row<'_>) {
        if self.duplicate.as_ref().is_none_or(|(.., number)| row.number < *number) {
            self.duplicate = Some((row.key.to_vec(), row.value.to_vec(), row.number));
        }
    }

    fn write(&mut self, sorter: Sorter, progress: &mut dyn FnMut(&BulkProgress) -> bool) -> Result<()> {
        let mut merged = sorter.finish()?;
        let mut sink = match self.core.graft_writer(&self.tree, self.progress.bytes_added)? {
            Some(writer) => Sink::Graft { writer: Box::new(writer), key: Vec::new(), rows: 0, bytes: 0 },
            None => Sink::Level0(WriteBatch::new()),
        };
        let mut last: Option<Vec<u8>> = None;
        let mut passed_over = 0;
        while let Some(row) = merged.row() {
            let comes_again = last.as_deref() == Some(row.key);
            if comes_again {
                self.note_duplicate(row);
                if !self.first_duplicate {
                    break;
                }
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(row.key);
            let bytes = if self.duplicate.is_none() {
                self.put(&mut sink, row.key, row.value)?
            } else {
                passed_over += row.key.len() + row.value.len();
                passed_over
            };
            merged.advance()?;
            if bytes >= BATCH_BYTES {
                passed_over = 0;
                self.pass(&mut sink, progress)?;
            }
        }
        if self.duplicate.is_some() {
            return Err(Error::new(ErrorKind::KeyExists, "a key was added twice"));
        }
        self.pass(&mut sink, progress)?;
        match sink {
            Sink::Graft { writer, .. } => {
                let engine = &self.core.engine;
                let graft = engine.noting_lack(writer.finish())?;
                engine.noting_lack(self.core.graft(&self.tree, graft, self.progress.bytes_added))
            }
            Sink::Level0(_) => Ok(()),
        }
    }

    /// Adds a row to where rows go; returns the bytes that it has not told of.
    fn put(&self, sink: &mut Sink, key: &[u8], value: &[u8]) -> Result<usize> {
        match sink {
            Sink::Level0(batch) => {
                batch.put(&self.tree, key, value)?;
                Ok(batch.bytes())
            }
            Sink::Graft { writer, key: inner, rows, bytes } => {
                inner.clear();
                write_inner(self.tree.id(), key, inner);
                let engine = &self.core.engine;
                engine.noting_lack(writer.add(inner, value, value.len() >= engine.options.blob_bytes_min))?;
                *rows += 1;
                *bytes += key.len() + value.len();
                Ok(*bytes)
            }
        }
    }

    /// Writes what has collected, and tells of it.
    fn pass(&mut self, sink: &mut Sink, progress: &mut dyn FnMut(&BulkProgress) -> bool) -> Result<()> {
        match sink {
            Sink::Level0(batch) => {
                self.core.write_locked(batch)?;
                self.progress.rows_written += batch.len() as u64;
                batch.clear();
            }
            Sink::Graft { rows, bytes, .. } => {
                self.core.check_live()?;
                self.progress.rows_written += std::mem::take(rows);
                *bytes = 0;
            }
        }
        if progress(&self.progress) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Cancelled, "the bulk load was given up"))
    }
}

/// Where sorted rows go.
enum Sink {
    /// Through the log and level 0.
    Level0(WriteBatch),
    /// To leaves; rows and bytes since it was told of them, and room for an inner key.
    Graft { writer: Box<GraftWriter>, key: Vec<u8>, rows: u64, bytes: usize },
}

fn finished() -> Error {
    Error::new(ErrorKind::Closed, "the bulk load is finished or was given up")
}
