//! The offline check: reads everything a database has stored and names every damage.
//!
//! Owns [`check`] and its report. Works on a directory that nobody has open, writes nothing, and goes on after each
//! damage it meets, so that one run names all of it. [`crate::Database::check`] is the same walk over an open database.

use std::collections::{BTreeMap, HashSet};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::catalog::{self, CATALOG};
use super::engine::Engine;
use super::json::JsonWriter;
use super::monitor::Finding;
use super::options::{Options, check_directory};
use super::recovery;
use crate::base::clock::Clock;
use crate::base::memory::MemoryBudget;
use crate::base::space::PAGE_BYTES;
use crate::base::{CommitNumber, Error, ErrorKind, Extent, Lsn, Result, TreeId, key};
use crate::format::record::Record;
use crate::format::{Superblock, Uncommitted, View};
use crate::io::{DiskStorage, Storage, is_damage};
use crate::log::{LogOptions, LogReader};
use crate::store::{DATA_FILE, Opened, Store, StoreOptions, StoredImage};
use crate::tree::verify::{Problem, VerifyReport};

/// How a database is checked, salvaged or its log printed.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Where log segments live; `None`: `log` in the database's directory.
    pub log_dir: Option<PathBuf>,
    /// Memory that it may take, in bytes, at least [`crate::MEMORY_BYTES_MIN`].
    pub memory_bytes: usize,
    /// The files; `None`: the machine's.
    pub storage: Option<Arc<dyn Storage>>,
}

impl Default for CheckOptions {
    fn default() -> CheckOptions {
        CheckOptions { log_dir: None, memory_bytes: 64 << 20, storage: None }
    }
}

/// How far a check or a salvage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProgress {
    /// What it is doing, in a word: `log`, `tree`, `space`, `rows`.
    pub phase: &'static str,
    /// Bytes read, or rows written, so far.
    pub done: u64,
    /// How many there will be; 0 when that is not known.
    pub total: u64,
    /// Damages found so far.
    pub findings: u64,
}

/// How far the check of an open database is, in stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OnlineCheckProgress {
    /// Read so far.
    pub bytes_done: u64,
    /// How many there were when it began, at least `bytes_done`.
    pub bytes_total: u64,
}

/// Told of the progress of a check; breaks to end it.
pub type OnlineCheckCallback<'a> = &'a mut dyn FnMut(OnlineCheckProgress) -> ControlFlow<()>;

/// What a check found and how much it read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Every damage, in the order of its discovery.
    pub findings: Vec<Finding>,
    /// The trees that some damage concerns, or may concern, with their names where the catalog tells them.
    pub damaged: BTreeMap<TreeId, Option<String>>,
    /// Generation of the superblock that was checked.
    pub generation: u64,
    /// Trees in the catalog.
    pub trees: u64,
    /// Nodes read.
    pub nodes: u64,
    /// Runs read, leaf bases included.
    pub runs: u64,
    /// Messages read.
    pub messages: u64,
    /// Bytes read from the data file.
    pub bytes: u64,
    /// Log records read.
    pub log_records: u64,
    /// Time that it took, in microseconds.
    pub micros: u64,
}

impl CheckReport {
    /// True when nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// The trees that some damage concerns, each once, ascending.
    pub fn damaged_trees(&self) -> Vec<TreeId> {
        self.damaged.keys().copied().collect()
    }

    /// The report as a JSON object.
    pub fn to_json(&self) -> String {
        let mut json = JsonWriter::new();
        json.begin_object();
        json.field_bool("clean", self.is_clean());
        json.field("generation", self.generation);
        json.field("trees", self.trees);
        json.field("nodes", self.nodes);
        json.field("runs", self.runs);
        json.field("messages", self.messages);
        json.field("bytes", self.bytes);
        json.field("log_records", self.log_records);
        json.field("micros", self.micros);
        write_findings(&mut json, &self.findings);
        json.end_object();
        json.finish()
    }
}

pub(super) fn write_findings(json: &mut JsonWriter, findings: &[Finding]) {
    json.begin_array_field("findings");
    for finding in findings {
        json.begin_object();
        json.field_str("file", &finding.file);
        if let Some(offset) = finding.offset {
            json.field("offset", offset);
        }
        if let Some(tree) = finding.tree {
            json.field("tree", u64::from(tree.0));
        }
        if let Some(last) = finding.tree_last.filter(|last| finding.tree != Some(*last)) {
            json.field("tree_last", u64::from(last.0));
        }
        if let Some(name) = &finding.tree_name {
            json.field_str("tree_name", name);
        }
        json.field_str("message", &finding.message);
        json.end_object();
    }
    json.end_array();
}

/// Reads and checks everything stored in the database at `path`, which nobody may have open. Writes nothing.
///
/// # Errors
/// `NotFound`, `AlreadyOpen`, `UnsupportedFormat`; `Io` when the check itself cannot go on. Damage is a finding and no
/// error, also when it is such that the database would not open.
pub fn check(
    path: impl AsRef<Path>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(&CheckProgress),
) -> Result<CheckReport> {
    let clock = Clock::machine();
    let started = clock.micros();
    let directory = path.as_ref();
    let mut check = Check { report: CheckReport::default(), progress };
    let engine = check.damage_is_finding(recovery::open(directory, &options.engine_options()))?;
    // The engine holds the lock if it opened; the files are as they were in any case.
    let offline = Offline::new(directory, options);
    if let Some(opened) = check.damage_is_finding(offline.open_store())? {
        opened.damaged.iter().for_each(|error| check.found(error, None));
        check.log(&offline, &opened)?;
        check.generation(&opened.superblocks, engine.as_ref());
    }
    if let Some(engine) = &engine {
        check.tree(engine);
        let names = check.catalog(engine)?;
        for found in &mut check.report.findings {
            found.tree_name = found.tree.and_then(|tree| engine.tree_name(tree));
        }
        check.spread(&names);
        check.report.bytes = engine.store.statistics().read_bytes;
    }
    check.name_first_trees();
    check.report.micros = clock.micros().saturating_sub(started);
    Ok(check.report)
}

impl CheckOptions {
    /// Opens for reading only.
    pub(super) fn engine_options(&self) -> Options {
        let options = Options::new().read_only(true).memory_bytes(self.memory_bytes).log_dir(self.log_dir.clone());
        match &self.storage {
            Some(storage) => options.storage(Some(storage.clone())),
            None => options,
        }
    }
}

/// The files of a database that is not open.
pub(super) struct Offline<'a> {
    directory: &'a Path,
    log_directory: PathBuf,
    storage: Arc<dyn Storage>,
    memory_bytes: usize,
}

impl<'a> Offline<'a> {
    pub(super) fn new(directory: &'a Path, options: &CheckOptions) -> Offline<'a> {
        Offline {
            directory,
            log_directory: options.log_dir.clone().unwrap_or_else(|| directory.join(recovery::LOG_DIRECTORY)),
            storage: options.storage.clone().unwrap_or_else(|| Arc::new(DiskStorage::new())),
            memory_bytes: options.memory_bytes,
        }
    }

    /// Keeps others from opening it.
    ///
    /// # Errors
    /// `NotFound` when there is no database, `AlreadyOpen`, `InvalidArgument` for an empty path, `Io`.
    pub(super) fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        check_directory("the database's directory", Some(self.directory))?;
        check_directory("log_dir", Some(&self.log_directory))?;
        if !Store::exists(&*self.storage, self.directory)? {
            let message = format!("no database there, directory={}", self.directory.display());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        let lock = self.storage.lock(&self.directory.join(recovery::LOCK_FILE))?;
        let log_lock = recovery::lock_log(&*self.storage, self.directory, &self.log_directory)?;
        Ok(Box::new((log_lock, lock)))
    }

    pub(super) fn open_store(&self) -> Result<Opened> {
        let options = StoreOptions { read_only: true, ..StoreOptions::default() };
        Store::open(&self.storage, self.directory, &options)
    }

    /// Shows every record from `from` on, until `visit` answers false; those before a damage too.
    pub(super) fn read_log(
        &self,
        opened: &Opened,
        from: Lsn,
        visit: &mut dyn FnMut(Lsn, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let mut damage = Vec::new();
        let read = self.read_sound_log(opened, from, visit, &mut damage);
        match (read, damage.into_iter().next()) {
            (Ok(false), _) => Ok(()),
            // A damaged header says more than what is missing for want of its segment.
            (_, Some(damage)) => Err(damage),
            (read, None) => read.map(drop),
        }
    }

    /// False: `visit` had enough.
    fn read_sound_log(
        &self,
        opened: &Opened,
        from: Lsn,
        visit: &mut dyn FnMut(Lsn, &[u8]) -> Result<bool>,
        damage: &mut Vec<Error>,
    ) -> Result<bool> {
        let options = LogOptions::new(opened.store.superblock().uuid, &MemoryBudget::new(self.memory_bytes));
        let reader = LogReader::open_damaged(&*self.storage, &self.log_directory, &options, from, damage)?;
        let mut reader = reader.known_durable(opened.log_end());
        while let Some(mut batch) = reader.next_batch()? {
            while let Some((lsn, bytes)) = batch.next()? {
                if !visit(lsn, bytes)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

struct Check<'a> {
    report: CheckReport,
    progress: &'a mut dyn FnMut(&CheckProgress),
}

impl Check<'_> {
    fn found(&mut self, error: &Error, tree: Option<TreeId>) {
        self.report.findings.push(finding(error, tree));
    }

    /// Damage, and what the disk does not give back, becomes a finding; other errors stay errors.
    fn damage_is_finding<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_damage(&error) => {
                self.found(&error, None);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The log from where the oldest generation that may still be opened would replay it.
    fn log(&mut self, offline: &Offline<'_>, opened: &Opened) -> Result<()> {
        let superblocks = &opened.superblocks;
        let Some(newest) = superblocks.first() else { return Ok(()) };
        // K2: the two newest generations keep their log; older slots are only remains.
        let kept = superblocks.iter().take(2).filter(|superblock| superblock.generation + 1 >= newest.generation);
        let from = kept.map(|superblock| superblock.body.log_start).min().unwrap_or_default();
        let mut records = 0;
        let read = offline.read_log(opened, from, &mut |lsn, bytes| {
            records += 1;
            decode_whole(lsn, bytes).map(|()| true)
        });
        self.report.log_records = records;
        self.tell("log", records, 0);
        // What opening already met need not be told again.
        match read {
            Err(error) if is_damage(&error) => {
                let again = finding(&error, None);
                let is_same = |known: &Finding| match again.offset {
                    Some(_) => known.offset == again.offset,
                    None => known.message == again.message,
                };
                if !self.report.findings.iter().any(is_same) {
                    self.report.findings.push(again);
                }
                Ok(())
            }
            other => other,
        }
    }

    fn generation(&mut self, superblocks: &[Superblock], engine: Option<&Engine>) {
        let newest = superblocks.first().map_or(0, |superblock| superblock.generation);
        let opened = engine.map_or(newest, |engine| engine.store.superblock().generation);
        self.report.generation = opened;
        if opened != newest {
            let message = format!("the newest generation is damaged, generation={newest} opened={opened}");
            self.found(&Error::corruption(message), None);
        }
    }

    /// Every node and run, and whether the stored map of space says the same as they do.
    fn tree(&mut self, engine: &Engine) {
        let total = engine.store.statistics().image_bytes;
        let tell = |walked: &VerifyReport, progress: &mut dyn FnMut(&CheckProgress)| {
            let done = engine.store.statistics().read_bytes.min(total);
            progress(&CheckProgress { phase: "tree", done, total, findings: walked.problems.len() as u64 });
        };
        let walked = engine.tree.verify(&mut |walked| {
            tell(walked, self.progress);
            ControlFlow::Continue(())
        });
        self.report.nodes = walked.nodes;
        self.report.runs = walked.runs;
        self.report.messages = walked.messages;
        self.report.findings.extend(walked.problems.iter().map(finding_in_tree));
        match engine.store.stored_image() {
            Ok(image) => {
                image.damaged.iter().for_each(|error| self.found(error, None));
                self.space(&walked, &image);
            }
            Err(error) => self.found(&error, None),
        }
    }

    fn space(&mut self, walked: &VerifyReport, image: &StoredImage) {
        let pages = |extents: &[Extent]| extents.iter().map(|extent| extent.start..extent.end()).collect::<Vec<_>>();
        let mut used = pages(&walked.extents);
        used.extend(pages(&image.own));
        used.sort_by_key(|range| range.start);
        for pair in used.windows(2).filter(|pair| pair[0].end > pair[1].start) {
            self.found(&Error::corruption(format!("space is used twice, offset={}", pair[1].start * PAGE_BYTES)), None);
        }
        if !image.damaged.is_empty() {
            return;
        }
        let (used, stored) = (joined(used), joined(pages(&image.extents)));
        for range in without(&used, &stored) {
            let (offset, bytes) = (range.start * PAGE_BYTES, (range.end - range.start) * PAGE_BYTES);
            self.found(&Error::corruption(format!("space in use counts as free, bytes={bytes} offset={offset}")), None);
        }
        // Below damage there is space that the walk did not reach.
        if walked.problems.is_empty() {
            for range in without(&stored, &used) {
                let (offset, bytes) = (range.start * PAGE_BYTES, (range.end - range.start) * PAGE_BYTES);
                self.found(
                    &Error::corruption(format!("space counts as used by nobody, bytes={bytes} offset={offset}")),
                    None,
                );
            }
        }
    }

    /// Names the trees that findings begin with.
    fn name_first_trees(&mut self) {
        for found in &self.report.findings {
            if let Some(tree) = found.tree {
                let name = self.report.damaged.entry(tree).or_default();
                *name = name.take().or_else(|| found.tree_name.clone());
            }
        }
    }

    /// Names the trees after the first that findings reach to, of those that there are.
    fn spread(&mut self, names: &BTreeMap<TreeId, String>) {
        for found in &self.report.findings {
            let (Some(first), Some(last)) = (found.tree, found.tree_last) else { continue };
            let reached = names.range(first..=last.max(first));
            self.report.damaged.extend(reached.map(|(tree, name)| (*tree, Some(name.clone()))));
        }
    }

    /// Whether every tree's two rows say the same; the names of the trees, as far as they can be read.
    fn catalog(&mut self, engine: &Engine) -> Result<BTreeMap<TreeId, String>> {
        let (trees, mut damage) = engine.trees("")?;
        self.report.trees = trees.len() as u64;
        let view = View {
            snapshot: CommitNumber::LATEST,
            own: None,
            uncommitted: Uncommitted::Hidden,
            statuses: &*engine.statuses,
        };
        let by_name: HashSet<TreeId> = trees.iter().map(|info| info.id).collect();
        let (mut nameless, mut names) = (Vec::new(), BTreeMap::new());
        let by_id = engine.for_each_id(&mut |id, name| {
            let name = String::from_utf8_lossy(name).into_owned();
            if !by_name.contains(&id) {
                nameless.push((id, name.clone()));
            }
            names.insert(id, name);
        })?;
        damage.extend(by_id);
        names.extend(trees.iter().map(|info| (info.id, info.name.clone())));
        damage.iter().for_each(|error| self.found(error, None));
        // Rows that cannot be read are not missing.
        let is_whole = damage.is_empty();
        for (id, name) in nameless.into_iter().filter(|_| is_whole) {
            let message = format!("the catalog has a row by number and none by name for tree {name:?}, tree={id}");
            self.found(&Error::corruption(message), Some(id));
        }
        for info in trees {
            let key = key::inner(CATALOG, &catalog::id_key(info.id));
            let name = engine.tree.get(&engine.tree.version(), &view, &key);
            if let Some(name) = self.damage_is_finding(name)?
                && name.as_deref() != Some(info.name.as_bytes())
            {
                let message = format!("the catalog's rows disagree about tree {:?}, tree={}", info.name, info.id);
                self.found(&Error::corruption(message), Some(info.id));
            }
        }
        Ok(names)
    }

    fn tell(&mut self, phase: &'static str, done: u64, total: u64) {
        let findings = self.report.findings.len() as u64;
        (self.progress)(&CheckProgress { phase, done, total, findings });
    }
}

/// Decodes a record with all that it holds.
fn decode_whole(lsn: Lsn, bytes: &[u8]) -> Result<()> {
    if let Record::Messages(mut messages) | Record::CommitWithMessages { mut messages, .. } =
        Record::decode(lsn, bytes)?
    {
        while messages.next()?.is_some() {}
    }
    Ok(())
}

/// Neighbouring and overlapping ranges become one.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// What of `ranges` lies outside `others`; both joined.
fn without(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut out = Vec::new();
    for range in ranges {
        let mut start = range.start;
        let first = others.partition_point(|other| other.end <= range.start);
        for other in others[first..].iter().take_while(|other| other.start < range.end) {
            if start < other.start {
                out.push(start..other.start);
            }
            start = start.max(other.end);
        }
        if start < range.end {
            out.push(start..range.end);
        }
    }
    out
}

/// Damage of the tree as a finding.
pub(super) fn finding_in_tree(problem: &Problem) -> Finding {
    finding_in_trees(&problem.error, problem.extent, (problem.tree, problem.tree_last))
}

/// Damage of something that these trees, from the first to the last, may have a part in.
pub(super) fn finding_in_trees(error: &Error, extent: Option<Extent>, (tree, tree_last): (TreeId, TreeId)) -> Finding {
    let mut found = finding(error, None);
    found.offset = found.offset.or(extent.map(Extent::offset));
    let names_last = found.tree_last != found.tree;
    (found.tree, found.tree_last) = (Some(tree), Some(tree_last));
    if tree_last != tree && !names_last {
        found.message = format!("{}, up to tree={tree_last}", found.message);
    }
    found
}

/// An error as a finding: where it is stands in its message, as `offset=` and as the name of a file.
pub(super) fn finding(error: &Error, tree: Option<TreeId>) -> Finding {
    let message = error.message();
    let number = |name: &str| {
        let (_, after) = message.split_once(name)?;
        after.split(|character: char| !character.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let words = || message.split([' ', ',', ':', '=', '"']);
    let segment = words().find(|word| word.ends_with(".log"));
    let file = segment
        .map(|path| path.rsplit('/').take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("/"));
    let whole = if message.starts_with("the log ") { recovery::LOG_DIRECTORY } else { DATA_FILE };
    // A block knows its tree better than the run that it is in.
    let tree_in = |name| number(name).and_then(|tree| u32::try_from(tree).ok()).map(TreeId);
    let tree = tree_in("tree=").or(tree);
    Finding {
        file: file.unwrap_or_else(|| whole.to_owned()),
        offset: number("offset="),
        tree,
        tree_last: tree_in("tree_last=").or(tree),
        tree_name: None,
        message: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Codec;
    use crate::db::batch::WriteBatch;
    use crate::db::database::Database;
    use crate::db::options::{TreeOptions, TxnOptions};
    use crate::io::MemoryStorage;

    /// A sound database with the trees `a` and `b` after its catalog lost these keys.
    fn checked_without(keys: &[Vec<u8>]) -> Result<CheckReport> {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let options = Options::new().create_if_missing(true).storage(Some(storage.clone())).manual_background(true);
        let db = Database::open("/db", options)?;
        for name in ["a", "b"] {
            let tree = db.create_tree(name, &TreeOptions::default())?;
            assert_eq!(tree.id().0, u32::from(name == "b") + 1);
        }
        let row = catalog::Row { id: CATALOG, codec: Codec::None, metadata: Vec::new() };
        let rows = db.engine().catalog.handle("", &row);
        let mut batch = WriteBatch::new();
        keys.iter().try_for_each(|key| batch.delete(&rows, key))?;
        db.write(&batch, TxnOptions::default())?;
        db.close()?;
        check("/db", &CheckOptions { storage: Some(storage), ..CheckOptions::default() }, &mut |_| {})
    }

    #[test]
    fn a_tree_with_one_of_its_two_rows_is_a_finding() -> Result<()> {
        assert!(checked_without(&[])?.is_clean());
        let found = checked_without(&[catalog::name_key("b")])?.findings;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].tree, found[0].tree_name.as_deref()), (Some(TreeId(2)), Some("b")));
        assert!(found[0].message.contains("none by name for tree \"b\""), "{found:?}");
        let found = checked_without(&[catalog::id_key(TreeId(1))])?.findings;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].tree, Some(TreeId(1)));
        let both = [catalog::name_key("b"), catalog::id_key(TreeId(2))];
        assert!(checked_without(&both)?.is_clean(), "as dropped");
        Ok(())
    }

    #[test]
    fn ranges_are_joined_and_subtracted() {
        assert_eq!(joined(vec![4..6, 1..3, 3..4, 9..10]), [1..6, 9..10]);
        assert_eq!(without(&[1..6, 9..10], &[2..3, 5..9]), [1..2, 3..5, 9..10]);
        assert!(without(std::slice::from_ref(&(1..6)), std::slice::from_ref(&(1..6))).is_empty());
        assert_eq!(without(std::slice::from_ref(&(1..6)), &[]), vec![1..6]);
    }

    #[test]
    fn a_finding_takes_its_place_from_the_message() {
        let error = Error::corruption("damaged log record in /x/log/00000007.log, offset=4096 lsn=12 durable_lsn=99");
        let found = finding(&error, None);
        assert_eq!((found.file.as_str(), found.offset, found.tree), ("log/00000007.log", Some(4096), None));
        let error = Error::corruption("run 3: block does not match its checksum, file=data.frond offset=65536 tree=4");
        let found = finding(&error, None);
        assert_eq!((found.file.as_str(), found.offset, found.tree), ("data.frond", Some(65536), Some(TreeId(4))));
        let error = Error::corruption("damaged block, run=3 tree=4 tree_last=7, file=data.frond offset=65536 bytes=9");
        let found = finding(&error, None);
        assert_eq!((found.tree, found.tree_last), (Some(TreeId(4)), Some(TreeId(7))));
    }
}
