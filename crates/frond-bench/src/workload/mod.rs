//! The runs. Each is a function from an engine type, the [`Common`] settings and its own options to an [`Outcome`];
//! [`run`] chooses by name.

pub mod commit;
pub mod iibench;
mod parallel;
pub mod queue;
pub mod reads;
mod records;
pub mod recovery;
pub mod rollback;
pub mod scans;
pub mod ycsb;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::engine::frond::Frond;
use crate::engine::model::Model;
use crate::engine::{Codec, Durability, Engine, OpenOptions, Statistics};
use crate::measure::{Meter, Phase, Resources, disk_bytes, whole_peak_memory};
use crate::{At, Error, Result};

/// An empty file in every directory that a run made.
const MARK: &str = "made-by-frond-bench";

/// The default of [`Common::memory`].
const MEMORY_MIB: u64 = 256;

/// Settings that every workload has.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct Common {
    /// Directory for the database: a new or an empty one, or one of an earlier run, which it replaces
    #[arg(long, global = true, default_value = "frond-bench.db")]
    pub directory: PathBuf,
    /// Memory budget of the engine in MiB [default: 256, or what a comparison of the suite is recorded with]
    #[arg(long, global = true, value_name = "MIB")]
    pub memory: Option<u64>,
    /// none, lz4 or zstd:<level>
    #[arg(long, global = true, default_value = "zstd:1")]
    pub codec: Codec,
    /// Seed of everything random
    #[arg(long, global = true, default_value_t = 1)]
    pub seed: u64,
    /// Setting of an engine, for experiments; `engine.NAME=VALUE` is for that engine only
    #[arg(long = "set", global = true, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub tuning: Vec<(String, String)>,
    /// No progress bars
    #[arg(long, global = true)]
    pub quiet: bool,
    /// Keep the database afterwards
    #[arg(long, global = true)]
    pub keep: bool,
    /// Arguments by which this program runs as a child of itself.
    #[arg(skip = vec!["child".to_owned()])]
    pub child_arguments: Vec<String>,
}

fn parse_setting(text: &str) -> Result<(String, String)> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| Error::usage(format!("settings are NAME=VALUE; got {text}")))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Seconds, so many that their end can be told.
fn parse_seconds(text: &str) -> Result<f64> {
    let can_end = |seconds: &f64| {
        let time = Duration::try_from_secs_f64(*seconds).ok();
        time.is_some_and(|time| Instant::now().checked_add(time).is_some())
    };
    let seconds = text.parse().ok().filter(can_end);
    seconds.ok_or_else(|| Error::usage(format!("not a time in seconds: {text}")))
}

impl Common {
    /// Defaults in `directory`, without progress bars.
    pub fn new(directory: &Path) -> Common {
        Common {
            directory: directory.to_path_buf(),
            memory: None,
            codec: Codec::Zstd(1),
            seed: 1,
            tuning: Vec::new(),
            quiet: true,
            keep: false,
            child_arguments: vec!["child".to_owned()],
        }
    }

    /// Memory budget of the engine.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or(MEMORY_MIB) << 20
    }

    /// These settings as on the command line: the budget, and what is not the default. The places of files, and what
    /// changes no figure, are left out.
    pub(crate) fn arguments(&self) -> String {
        let default = Common::new(&self.directory);
        let mut words = vec![format!("--memory {}", self.memory_bytes() >> 20)];
        if self.codec != default.codec {
            words.push(format!("--codec {}", self.codec));
        }
        if self.seed != default.seed {
            words.push(format!("--seed {}", self.seed));
        }
        words.extend(self.tuning.iter().map(|(name, value)| format!("--set {name}={value}")));
        words.join(" ")
    }

    /// How to open a database with these trees.
    pub fn open_options(&self, trees: &[&str]) -> OpenOptions {
        OpenOptions {
            memory_bytes: self.memory_bytes(),
            codec: self.codec,
            tuning: self.tuning.iter().cloned().collect(),
            ..OpenOptions::new(&self.directory, trees)
        }
    }

    /// Opens a new, empty database.
    pub fn create<E: Engine>(&self, trees: &[&str]) -> Result<E> {
        self.prepare()?;
        E::open(&self.open_options(trees))
    }

    /// Makes the directory, empty but for the mark of the benchmarks, by which a later run knows that it may remove it.
    pub fn prepare(&self) -> Result<()> {
        self.remove()?;
        let mark = self.directory.join(MARK);
        std::fs::create_dir_all(&self.directory).at_path(&self.directory)?;
        std::fs::File::create(&mark).map(|_| ()).at_path(&mark)
    }

    /// What a run that did not end well left, in words: a loss of rows is looked into there, and 10 GiB are not to be
    /// left unnoticed.
    pub(crate) fn left(&self) -> Option<String> {
        let bytes = self.is_marked().then(|| disk_bytes(&self.directory).ok())??;
        let place = self.directory.display();
        Some(format!("the run's database stays in {place} ({} MiB) until the next run there", bytes >> 20))
    }

    /// A run made the directory and has not removed it.
    fn is_marked(&self) -> bool {
        self.directory.join(MARK).exists()
    }

    /// Refuses a directory with files in it that no run of the benchmarks made.
    fn refuse_foreign(&self) -> Result<()> {
        let empty = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            entries => entries.at_path(&self.directory)?.next().is_none(),
        };
        if empty || self.is_marked() {
            return Ok(());
        }
        Err(Error::usage(format!(
            "{} holds files that no benchmark made, and they stay; name a new directory by --directory, or empty this \
             one yourself",
            self.directory.display()
        )))
    }

    /// Removes the database.
    pub fn remove(&self) -> Result<()> {
        self.refuse_foreign()?;
        match self.remove_marked() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed.at_path(&self.directory),
        }
    }

    /// The mark goes last, so that an interrupted removal can be done again.
    fn remove_marked(&self) -> std::io::Result<()> {
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => std::fs::remove_dir_all(entry.path())?,
                false if entry.file_name() == MARK => {}
                false => std::fs::remove_file(entry.path())?,
            }
        }
        match std::fs::remove_file(self.directory.join(MARK)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // What is mounted or linked there stays, empty.
        let _ = std::fs::remove_dir(&self.directory);
        Ok(())
    }

    /// Begins a measured phase.
    pub fn meter(&self, name: &str, total: u64) -> Meter {
        Meter::start(name, total, !self.quiet)
    }
}

/// A figure of a run that is not one of a phase's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fact {
    /// What it is.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: String,
}

/// What a run found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// In order of time.
    pub phases: Vec<Phase>,
    /// Further figures.
    pub facts: Vec<Fact>,
    /// The engine's own counters at the end.
    pub statistics: Statistics,
    /// Anonymous memory before the engine was opened: the process's fixed part.
    pub memory_base_bytes: u64,
    /// Largest anonymous memory in or between the phases, of all processes that had the database open.
    #[serde(default)]
    pub memory_peak_bytes: u64,
}

impl Outcome {
    /// To be made before the engine is opened.
    pub fn new() -> Outcome {
        Outcome { memory_base_bytes: Resources::now().memory_bytes, ..Outcome::default() }
    }

    /// Adds a figure.
    pub fn fact(&mut self, name: &str, value: f64, unit: &str) {
        self.facts.push(Fact { name: name.to_owned(), value, unit: unit.to_owned() });
    }
}

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    /// FrondDB.
    Frond,
    /// A sorted map in memory.
    Model,
    /// RocksDB (feature `rocksdb`).
    #[cfg(feature = "rocksdb")]
    Rocksdb,
}

impl EngineName {
    /// The default.
    pub const FIRST: EngineName = EngineName::Frond;

    /// Those worth comparing, ours first.
    pub fn compared() -> Vec<EngineName> {
        EngineName::value_variants().iter().copied().filter(|name| *name != EngineName::Model).collect()
    }

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            EngineName::Frond => Frond::NAME,
            EngineName::Model => Model::NAME,
            #[cfg(feature = "rocksdb")]
            EngineName::Rocksdb => crate::engine::rocksdb::Rocks::NAME,
        }
    }

    /// Calls `work` with the engine's type.
    pub fn dispatch<W: OnEngine>(self, work: W) -> Result<W::Answer> {
        match self {
            EngineName::Frond => work.call::<Frond>(),
            EngineName::Model => work.call::<Model>(),
            #[cfg(feature = "rocksdb")]
            EngineName::Rocksdb => work.call::<crate::engine::rocksdb::Rocks>(),
        }
    }
}

/// Something to do with an engine chosen at run time.
pub trait OnEngine {
    /// What comes of it.
    type Answer;

    /// Does it.
    fn call<E: Engine>(self) -> Result<Self::Answer>;
}

/// Which workload, with its options.
#[derive(Debug, Clone, Serialize, Deserialize, Subcommand)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Load the iiBench table: auto-increment primary key, three secondary indexes on random values
    Iibench(iibench::Options),
    /// YCSB workloads A to F
    Ycsb(ycsb::Options),
    /// Single-row commits
    Commit(commit::Options),
    /// Random point reads, existing and absent
    Reads(reads::Options),
    /// Whole-table and short scans, after a load and after random updates
    Scans(scans::Options),
    /// Roll back small and large transactions
    Rollback(rollback::Options),
    /// Insert at the tail, delete at the head
    Queue(queue::Options),
    /// Kill -9 under load and reopen
    Recovery(recovery::Options),
}

impl Workload {
    /// As on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Iibench(_) => "iibench",
            Workload::Ycsb(_) => "ycsb",
            Workload::Commit(_) => "commit",
            Workload::Reads(_) => "reads",
            Workload::Scans(_) => "scans",
            Workload::Rollback(_) => "rollback",
            Workload::Queue(_) => "queue",
            Workload::Recovery(_) => "recovery",
        }
    }

    /// Its options by name.
    pub fn parameters(&self) -> Result<BTreeMap<String, serde_json::Value>> {
        let value = serde_json::to_value(self)?;
        let options = value.as_object().and_then(|one| one.values().next()?.as_object()).cloned();
        Ok(options.unwrap_or_default().into_iter().collect())
    }
}

/// One run, as handed to a child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// On what.
    pub engine: EngineName,
    /// With which settings.
    pub common: Common,
    /// What.
    pub workload: Workload,
}

impl Spec {
    /// Of `engine`, with the settings that concern it.
    pub fn new(engine: EngineName, common: &Common, workload: &Workload) -> Spec {
        let mut common = common.clone();
        common.tuning = common.tuning.into_iter().filter_map(|setting| setting_for(engine.name(), setting)).collect();
        Spec { engine, common, workload: workload.clone() }
    }
}

/// The setting without its engine, if it is for this one.
fn setting_for(engine: &str, (name, value): (String, String)) -> Option<(String, String)> {
    match name.split_once('.') {
        None => Some((name, value)),
        Some((meant, rest)) => (meant == engine).then(|| (rest.to_owned(), value)),
    }
}

impl OnEngine for &Spec {
    type Answer = Outcome;

    fn call<E: Engine>(self) -> Result<Outcome> {
        let common = &self.common;
        match &self.workload {
            Workload::Iibench(options) => iibench::run::<E>(common, options),
            Workload::Ycsb(options) => ycsb::run::<E>(common, options),
            Workload::Commit(options) => commit::run::<E>(common, options),
            Workload::Reads(options) => reads::run::<E>(common, options),
            Workload::Scans(options) => scans::run::<E>(common, options),
            Workload::Rollback(options) => rollback::run::<E>(common, options),
            Workload::Queue(options) => queue::run::<E>(common, options),
            Workload::Recovery(options) => recovery::run::<E>(common, options, self.engine),
        }
    }
}

/// Does a run in this process, checks its database, and removes it unless asked to keep it.
pub fn run(spec: &Spec) -> Result<Outcome> {
    let mut outcome = spec.engine.dispatch(spec)?;
    outcome.memory_peak_bytes = outcome.memory_peak_bytes.max(whole_peak_memory());
    if spec.engine == EngineName::Frond {
        check(&spec.common.directory)?;
    }
    if !spec.common.keep {
        spec.common.remove()?;
    }
    Ok(outcome)
}

/// Reads all of a closed database of FrondDB: a speed counts only if the data are sound after it.
fn check(directory: &Path) -> Result<()> {
    let report = fronddb::check(directory, &fronddb::CheckOptions::default(), &mut |_| {})?;
    let Some(finding) = report.findings.first() else { return Ok(()) };
    let damaged = directory.join(&finding.file);
    let offset = finding.offset.map(|offset| format!(" offset={offset}")).unwrap_or_default();
    Err(Error::new(format!("{} is damaged after the run: {}{offset}", damaged.display(), finding.message)))
}

/// Durability's default on the command line.
pub(crate) const DURABLE: Durability = Durability::Sync;

#[cfg(test)]
mod tests;
