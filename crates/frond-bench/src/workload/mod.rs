//! The runs. Each is a function from an engine type, the [`Common`] settings and its own options to an [`Outcome`];
//! [`run`] chooses by name.

pub mod iibench;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::engine::model::Model;
use crate::engine::{Codec, Durability, Engine, OpenOptions, Statistics};
use crate::measure::{Meter, Phase, Resources};
use crate::{Error, Result};

/// Settings that every workload has.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct Common {
    /// Directory for the database; emptied first
    #[arg(long, global = true, default_value = "frond-bench.db")]
    pub directory: PathBuf,
    /// Memory budget of the engine in MiB
    #[arg(long, global = true, default_value_t = 256)]
    pub memory: u64,
    /// none, lz4 or zstd:<level>
    #[arg(long, global = true, default_value = "zstd:1")]
    pub codec: Codec,
    /// Seed of everything random
    #[arg(long, global = true, default_value_t = 1)]
    pub seed: u64,
    /// Setting of one engine, for experiments
    #[arg(long = "set", global = true, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub tuning: Vec<(String, String)>,
    /// No progress bars
    #[arg(long, global = true)]
    pub quiet: bool,
    /// Keep the database afterwards
    #[arg(long, global = true)]
    pub keep: bool,
}

fn parse_setting(text: &str) -> Result<(String, String)> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| Error::new(format!("settings are NAME=VALUE; got {text}")))?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Common {
    /// Defaults in `directory`, without progress bars.
    pub fn new(directory: &Path) -> Common {
        Common {
            directory: directory.to_path_buf(),
            memory: 256,
            codec: Codec::Zstd(1),
            seed: 1,
            tuning: Vec::new(),
            quiet: true,
            keep: false,
        }
    }

    /// How to open a database with these trees.
    pub fn open_options(&self, trees: &[&str]) -> OpenOptions {
        OpenOptions {
            memory_bytes: self.memory << 20,
            codec: self.codec,
            tuning: self.tuning.iter().cloned().collect(),
            ..OpenOptions::new(&self.directory, trees)
        }
    }

    /// Opens a new, empty database.
    pub fn create<E: Engine>(&self, trees: &[&str]) -> Result<E> {
        self.remove()?;
        E::open(&self.open_options(trees))
    }

    /// Removes the database.
    pub fn remove(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
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
    /// Resident set before the engine was opened: the process's fixed part.
    pub memory_base_bytes: u64,
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
    /// A sorted map in memory.
    Model,
    /// RocksDB (feature `rocksdb`).
    #[cfg(feature = "rocksdb")]
    Rocksdb,
}

impl EngineName {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            EngineName::Model => Model::NAME,
            #[cfg(feature = "rocksdb")]
            EngineName::Rocksdb => crate::engine::rocksdb::Rocks::NAME,
        }
    }
}

/// Which workload, with its options.
#[derive(Debug, Clone, Serialize, Deserialize, Subcommand)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Load the iiBench table: auto-increment primary key, three secondary indexes on random values
    Iibench(iibench::Options),
}

impl Workload {
    /// As on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Iibench(_) => "iibench",
        }
    }

    /// Its options by name.
    pub fn parameters(&self) -> Result<BTreeMap<String, serde_json::Value>> {
        let value = serde_json::to_value(self)?;
        let options = value.as_object().and_then(|one| one.values().next()?.as_object()).cloned();
        Ok(options.unwrap_or_default().into_iter().collect())
    }

    fn run_on<E: Engine>(&self, common: &Common) -> Result<Outcome> {
        match self {
            Workload::Iibench(options) => iibench::run::<E>(common, options),
        }
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

/// Does a run in this process, and removes its database unless asked to keep it.
pub fn run(spec: &Spec) -> Result<Outcome> {
    let outcome = match spec.engine {
        EngineName::Model => spec.workload.run_on::<Model>(&spec.common),
        #[cfg(feature = "rocksdb")]
        EngineName::Rocksdb => spec.workload.run_on::<crate::engine::rocksdb::Rocks>(&spec.common),
    }?;
    if !spec.common.keep {
        spec.common.remove()?;
    }
    Ok(outcome)
}

/// Durability's default on the command line.
pub(crate) const DURABLE: Durability = Durability::Sync;
