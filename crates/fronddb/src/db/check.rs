//! The offline check: reads everything a database has stored and names every damage.
//!
//! Owns [`check`] and its report. Works on a directory that nobody has open, writes nothing, and goes on after each
//! damage it meets, so that one run names all of it. [`crate::Database::check`] is the same walk over an open database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::json::JsonWriter;
use super::monitor::Finding;
use crate::base::{Result, TreeId};
use crate::io::Storage;

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

/// What a check found and how much it read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Every damage, in the order of its discovery.
    pub findings: Vec<Finding>,
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
        let mut trees: Vec<TreeId> = self.findings.iter().filter_map(|finding| finding.tree).collect();
        trees.sort_unstable();
        trees.dedup();
        trees
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
    _path: impl AsRef<Path>,
    _options: &CheckOptions,
    _progress: &mut dyn FnMut(&CheckProgress),
) -> Result<CheckReport> {
    Err(super::not_built())
}
