//! Salvage: what is readable of a damaged database, written to a new one.
//!
//! Owns [`salvage`] and its report. The damaged directory is only read. What is readable is decided by
//! [`crate::tree::salvage`]; here it becomes rows of new trees.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::WriteBatch;
use super::catalog::{self, CATALOG, Row};
use super::check::{CheckOptions, CheckProgress, finding, finding_in_trees, write_findings};
use super::database::Database;
use super::engine::Engine;
use super::json::JsonWriter;
use super::monitor::Finding;
use super::options::{Durability, Options, TreeOptions, TxnOptions};
use super::recovery::{self, LOG_DIRECTORY, Tolerated};
use super::tree_handle::Tree;
use crate::base::{Error, ErrorKind, Result, TreeId, key};
use crate::io::{DiskStorage, Storage};
use crate::store::DATA_FILE;
use crate::tree::salvage::{Damage, SalvageSink};

/// What was rescued and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// Every damage met.
    pub findings: Vec<Finding>,
    /// The trees, by name.
    pub trees: Vec<SalvagedTree>,
    /// Damaged nodes, runs and blocks that were left out.
    pub blocks_lost: u64,
    /// Messages that those held, as far as their surroundings tell.
    pub messages_lost: u64,
    /// The log is damaged: it was read up to there, and commits that only it had may be missing, which nothing here counts.
    pub log_cut: bool,
    /// Prepared transactions that waited for a decision; their changes were left out.
    pub prepared_dropped: u64,
}

/// What was rescued of one tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SalvagedTree {
    /// Its number in the damaged database.
    pub id: TreeId,
    /// Its name; a made-up one when the catalog's row was lost.
    pub name: String,
    /// Rows written to the new database.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Damages that concern it, or may.
    pub damages: u64,
}

impl SalvageReport {
    /// Rows written over all trees.
    pub fn rows(&self) -> u64 {
        self.trees.iter().map(|tree| tree.rows).sum()
    }

    /// The report as a JSON object.
    pub fn to_json(&self) -> String {
        let mut json = JsonWriter::new();
        json.begin_object();
        json.field("rows", self.rows());
        json.field("blocks_lost", self.blocks_lost);
        json.field("messages_lost", self.messages_lost);
        json.field_bool("log_cut", self.log_cut);
        json.field("prepared_dropped", self.prepared_dropped);
        json.begin_array_field("trees");
        for tree in &self.trees {
            json.begin_object();
            json.field_str("name", &tree.name);
            json.field("rows", tree.rows);
            json.field("bytes", tree.bytes);
            json.field("damages", tree.damages);
            json.end_object();
        }
        json.end_array();
        write_findings(&mut json, &self.findings);
        json.end_object();
        json.finish()
    }
}

/// Writes what is readable of the database at `from` to a new one at `to`: the newest committed state of every row that
/// no damage hides. Where damage hid a newer version or a delete, the row may be an older version than the last.
///
/// When it fails, what it made is removed but for empty directories. Killed, it leaves at `to` a database that opens and is not complete:
/// work under another name if that must not be.
///
/// # Errors
/// `NotFound`, `AlreadyOpen`, `UnsupportedFormat`; `InvalidArgument` when there are files in `to`, or in a directory `log` there; `Corruption` when nothing at all
/// can be read; what writing the new database meets.
pub fn salvage(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&CheckProgress),
) -> Result<SalvageReport> {
    let (engine, tolerated) = recovery::open_damaged(from.as_ref(), &options.engine_options())?;
    let storage = options.storage.clone().unwrap_or_else(|| Arc::new(DiskStorage::new()));
    let target = Options::new()
        .create_if_missing(true)
        .error_if_exists(true)
        .memory_bytes(options.memory_bytes)
        .checkpoint_interval_ms(0)
        .storage(Some(storage.clone()));
    for directory in directories(to.as_ref()) {
        // All files there are removed when it fails.
        if storage.list(&directory).is_ok_and(|names| !names.is_empty()) {
            return Err(Error::invalid(format!("the new database has files already, path={}", directory.display())));
        }
    }
    let salvaged = Database::open(&to, target).and_then(|db| fill(db, &engine, &tolerated, progress));
    salvaged.inspect_err(|error| {
        // With these it is somebody else's, who was faster.
        if !matches!(error.kind(), ErrorKind::AlreadyOpen | ErrorKind::InvalidArgument) {
            discard(&*storage, to.as_ref());
        }
    })
}

/// Writes all that is readable to `db`, which is new, and closes it.
fn fill(
    db: Database,
    engine: &Engine,
    tolerated: &Tolerated,
    progress: &mut dyn FnMut(&CheckProgress),
) -> Result<SalvageReport> {
    let mut rescue = Rescue {
        db: &db,
        catalog: Vec::new(),
        names: HashMap::new(),
        trees: None,
        current: None,
        batch: WriteBatch::new(),
        rows: 0,
        report: SalvageReport {
            prepared_dropped: engine.report.prepared,
            log_cut: tolerated.log_cut,
            ..SalvageReport::default()
        },
        progress,
    };
    rescue.report.findings.extend(tolerated.damage.iter().map(|error| finding(error, None)));
    engine.tree.salvage(&mut rescue)?;
    let report = rescue.finish()?;
    db.checkpoint()?;
    db.close()?;
    Ok(report)
}

/// Removes what a failed salvage made, first the file without which there is no database. Why the salvage failed matters more than a
/// failure of this.
fn discard(storage: &dyn Storage, directory: &Path) {
    let _ = storage.remove(&directory.join(DATA_FILE));
    for directory in directories(directory) {
        for name in storage.list(&directory).unwrap_or_default() {
            let _ = storage.remove(&directory.join(name));
        }
        let _ = storage.sync_dir(&directory);
    }
}

/// Where a database in `directory` has its files.
fn directories(directory: &Path) -> [PathBuf; 2] {
    [directory.join(LOG_DIRECTORY), directory.to_path_buf()]
}

/// Bytes of a transaction of the new database.
const BATCH_BYTES: usize = 4 << 20;
const PROGRESS_ROWS: u64 = 1 << 12;

/// Writes the rows of a damaged database to a new one.
struct Rescue<'a> {
    db: &'a Database,
    /// Rows of the catalog by name: name, tree's number and options.
    catalog: Vec<(String, Row)>,
    /// Names by the catalog's rows by number.
    names: HashMap<TreeId, String>,
    /// The new trees and their places in the report; made when the catalog has been read, which comes first.
    trees: Option<HashMap<TreeId, (Tree, usize)>>,
    current: Option<(TreeId, Tree, usize)>,
    batch: WriteBatch,
    rows: u64,
    report: SalvageReport,
    progress: &'a mut dyn FnMut(&CheckProgress),
}

impl SalvageSink for Rescue<'_> {
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Some((tree, key)) = key::split(key) else { return Ok(()) };
        if tree == CATALOG {
            self.catalog_row(key, value);
            return Ok(());
        }
        if self.current.as_ref().is_none_or(|(current, ..)| *current != tree) {
            let (handle, place) = self.tree(tree)?;
            self.current = Some((tree, handle, place));
        }
        if let Some((_, handle, place)) = &self.current {
            self.batch.put(handle, key, value)?;
            if let Some(tree) = self.report.trees.get_mut(*place) {
                tree.rows += 1;
                tree.bytes += (key.len() + value.len()) as u64;
            }
        }
        self.rows += 1;
        if self.rows.is_multiple_of(PROGRESS_ROWS) {
            let findings = self.report.findings.len() as u64;
            (self.progress)(&CheckProgress { phase: "rows", done: self.rows, total: 0, findings });
        }
        if self.batch.bytes() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn damage(&mut self, damage: Damage) {
        self.report.findings.push(finding_in_trees(&damage.error, damage.extent, damage.trees));
        self.report.blocks_lost += 1;
        self.report.messages_lost += damage.messages;
    }
}

/// What a tree is called of which the catalog knows nothing.
fn lost_name(id: TreeId) -> String {
    format!("lost-{id}")
}

impl Rescue<'_> {
    fn catalog_row(&mut self, key: &[u8], value: &[u8]) {
        if let Some(id) = catalog::id_of_key(key) {
            self.names.insert(id, String::from_utf8_lossy(value).into_owned());
            return;
        }
        match catalog::name_of_key(key).and_then(|name| Ok((name, Row::decode(value)?))) {
            Ok(row) => self.catalog.push(row),
            Err(error) => self.report.findings.push(finding(&error, Some(CATALOG))),
        }
    }

    /// All trees that the catalog knows.
    fn known_trees(&mut self) -> Result<HashMap<TreeId, (Tree, usize)>> {
        let mut trees = HashMap::new();
        for (name, row) in std::mem::take(&mut self.catalog) {
            let made = self.create(row.id, &name, &row.options())?;
            trees.insert(row.id, made);
        }
        let mut names: Vec<_> = std::mem::take(&mut self.names).into_iter().collect();
        names.sort_unstable();
        for (id, name) in names {
            if let Entry::Vacant(vacant) = trees.entry(id) {
                vacant.insert(self.create(id, &name, &TreeOptions::default())?);
            }
        }
        Ok(trees)
    }

    /// The new tree for the old one with this number.
    fn tree(&mut self, id: TreeId) -> Result<(Tree, usize)> {
        let mut trees = match self.trees.take() {
            Some(trees) => trees,
            None => self.known_trees()?,
        };
        let found = match trees.get(&id) {
            Some(found) => found.clone(),
            None => {
                let made = self.create(id, &lost_name(id), &TreeOptions::default())?;
                trees.insert(id, made.clone());
                made
            }
        };
        self.trees = Some(trees);
        Ok(found)
    }

    fn create(&mut self, id: TreeId, name: &str, options: &TreeOptions) -> Result<(Tree, usize)> {
        let (name, tree) = match self.db.create_tree(name, options) {
            Err(error) if error.kind() == ErrorKind::KeyExists => {
                let other = format!("{name}-{id}");
                let tree = self.db.create_tree(&other, options)?;
                (other, tree)
            }
            made => (name.to_owned(), made?),
        };
        let place = self.report.trees.len();
        self.report.trees.push(SalvagedTree { id, name, ..SalvagedTree::default() });
        Ok((tree, place))
    }

    fn flush(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            let options = TxnOptions { durability: Durability::None, ..TxnOptions::default() };
            self.db.write(&self.batch, options)?;
            self.batch.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<SalvageReport> {
        self.flush()?;
        if self.trees.is_none() {
            self.known_trees()?;
        }
        let SalvageReport { findings, trees, .. } = &mut self.report;
        for tree in trees.iter_mut() {
            let concerns = |found: &&Finding| found.tree <= Some(tree.id) && Some(tree.id) <= found.tree_last;
            tree.damages = findings.iter().filter(concerns).count() as u64;
        }
        for found in findings.iter_mut() {
            let tree = trees.iter().find(|tree| Some(tree.id) == found.tree && tree.name != lost_name(tree.id));
            found.tree_name = tree.map(|tree| tree.name.clone());
        }
        trees.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(self.report)
    }
}
