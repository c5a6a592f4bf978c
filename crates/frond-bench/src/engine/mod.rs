//! What a workload may ask of a storage engine.
//!
//! The traits are the smallest set that every workload needs and every engine can answer with its best means; they
//! are generic rather than dynamic so that a call costs what the engine's own call costs. An engine's extra work to fit
//! them (a copied value, a prefixed key) would be charged to it, so implementations avoid both.
//!
//! Implementations: [`frond`], [`model`] (a sorted map), `rocksdb` (cargo feature).

pub mod frond;
pub mod model;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A tree's position in [`OpenOptions::trees`].
pub type TreeIndex = usize;

/// When a commit may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// When it would survive a power loss.
    Sync,
    /// When the operating system has it.
    Write,
    /// At once; a crash leaves a consistent earlier state.
    None,
}

/// How blocks are compressed, alike for every engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// Not at all.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard at this level.
    Zstd(i8),
}

impl std::str::FromStr for Codec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Codec> {
        match text.split_once(':').unwrap_or((text, "1")) {
            ("none", _) => Ok(Codec::None),
            ("lz4", _) => Ok(Codec::Lz4),
            ("zstd", level) => {
                level.parse().map(Codec::Zstd).map_err(|_| Error::usage(format!("bad level codec={text}")))
            }
            _ => Err(Error::usage(format!("codecs are none, lz4, zstd:<level>; got codec={text}"))),
        }
    }
}

impl std::fmt::Display for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Codec::None => f.write_str("none"),
            Codec::Lz4 => f.write_str("lz4"),
            Codec::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

/// How to open a database for a run.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Created if missing.
    pub directory: PathBuf,
    /// Everything the engine may hold in memory: write buffers, caches, filters.
    pub memory_bytes: u64,
    /// Codec of every tree.
    pub codec: Codec,
    /// Names of the trees; the same at every open of one directory.
    pub trees: Vec<String>,
    /// Transactions must see their own writes and roll back. Engines whose transactions always can ignore it; RocksDB
    /// uses its cheaper blind write batches where it is false.
    pub transactional: bool,
    /// Engine-specific settings for experiments, `name=value`; an engine refuses names it does not know.
    pub tuning: BTreeMap<String, String>,
}

impl OpenOptions {
    /// Defaults: 256 MiB, zstd level 1, blind transactions.
    pub fn new(directory: &Path, trees: &[&str]) -> OpenOptions {
        OpenOptions {
            directory: directory.to_path_buf(),
            memory_bytes: 256 << 20,
            codec: Codec::Zstd(1),
            trees: trees.iter().map(|name| name.to_string()).collect(),
            transactional: false,
            tuning: BTreeMap::new(),
        }
    }

    /// The tuning value `name`, parsed, or `default`.
    pub fn tuned<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T> {
        match self.tuning.get(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| Error::usage(format!("bad setting {name}={text}"))),
        }
    }
}

/// What an engine counted about itself since it was opened. `None` where it does not count.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Bytes written, by cause.
    pub written_bytes: BTreeMap<String, u64>,
    /// Blocks read from files for gets and scans; at least those of this thread.
    pub block_reads: Option<u64>,
    /// Time that writers were slowed or stopped, in microseconds.
    pub stall_us: Option<u64>,
    /// Transactions committed that had written.
    pub commits: Option<u64>,
    /// Syncs of the log.
    pub log_syncs: Option<u64>,
    /// The engine's own account of its memory, by part.
    pub memory_bytes: BTreeMap<String, u64>,
    /// Whatever else it counts, for a closer look.
    pub all: serde_json::Value,
}

/// An open database. Clones share it.
pub trait Engine: Clone + Send + Sync + Sized + 'static {
    /// A transaction of it.
    type Transaction: Transaction;
    /// A cursor over one of its trees.
    type Cursor: Cursor;

    /// Lower-case name, as on the command line and in results.
    const NAME: &'static str;

    /// Opens or creates.
    fn open(options: &OpenOptions) -> Result<Self>;

    /// Closes in good order, as far as the engine knows one. Every other clone must be gone.
    fn close(self) -> Result<()>;

    /// A new transaction.
    fn begin(&self) -> Result<Self::Transaction>;

    /// The newest committed value of `key`, into `value` (cleared first); false when absent.
    fn get(&self, tree: TreeIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// A cursor over the committed state as of now, not yet positioned.
    fn cursor(&self, tree: TreeIndex) -> Result<Self::Cursor>;

    /// Moves what is in memory to disk and waits for it.
    fn checkpoint(&self) -> Result<()>;

    /// Waits until background work has come to rest by itself.
    fn settle(&self) -> Result<()>;

    /// Merges everything pending, so that size and scans show the steady state.
    fn compact(&self) -> Result<()>;

    /// Counters since open.
    fn statistics(&self) -> Result<Statistics>;
}

/// Changes that become visible together. Dropping rolls back.
pub trait Transaction: Sized {
    /// Sets `key` whatever was there; reads nothing.
    fn put(&mut self, tree: TreeIndex, key: &[u8], value: &[u8]) -> Result<()>;

    /// Sets `key`, an entry that belongs to a row put in this transaction: whoever changes the entry changes the row
    /// first, so an engine with locks need not lock the entry too.
    fn put_entry(&mut self, tree: TreeIndex, key: &[u8]) -> Result<()> {
        self.put(tree, key, &[])
    }

    /// Sets `key` unless it is there; false and unchanged if it is. A blind transaction may
    /// find out at commit only, and fail there.
    fn insert(&mut self, tree: TreeIndex, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Removes `key` whether or not it is there; reads nothing.
    fn delete(&mut self, tree: TreeIndex, key: &[u8]) -> Result<()>;

    /// Removes a `key` that was put exactly once since it was last removed.
    fn single_delete(&mut self, tree: TreeIndex, key: &[u8]) -> Result<()>;

    /// As [`Engine::get`], with the transaction's own changes where [`OpenOptions::transactional`] was set.
    fn get(&mut self, tree: TreeIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Makes the changes visible, and durable as asked.
    fn commit(self, durability: Durability) -> Result<()>;

    /// Forgets the changes.
    fn rollback(self) -> Result<()>;
}

/// A position in one tree. Every move says whether there is an entry there; `key` and `value` may be asked only if so.
pub trait Cursor {
    /// To the first entry.
    fn seek_first(&mut self) -> Result<bool>;
    /// To the last entry.
    fn seek_last(&mut self) -> Result<bool>;
    /// To the first entry at or after `key`.
    fn seek(&mut self, key: &[u8]) -> Result<bool>;
    /// One entry forward.
    fn next(&mut self) -> Result<bool>;
    /// One entry backward.
    fn previous(&mut self) -> Result<bool>;
    /// Key of the entry.
    fn key(&self) -> &[u8];
    /// Value of the entry.
    fn value(&self) -> &[u8];
}
