//! Salvage: what is readable of a damaged database, written to a new one.
//!
//! Owns [`salvage`] and its report. The damaged directory is only read.

use std::path::Path;

use super::check::{CheckOptions, CheckProgress, write_findings};
use super::json::JsonWriter;
use super::monitor::Finding;
use crate::base::Result;

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
    /// Prepared transactions that waited for a decision; their changes were left out.
    pub prepared_dropped: u64,
}

/// What was rescued of one tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SalvagedTree {
    /// Its name; a made-up one when the catalog's row was lost.
    pub name: String,
    /// Rows written to the new database.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Damages that concern it.
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
/// # Errors
/// `NotFound`, `AlreadyOpen`, `UnsupportedFormat`; `InvalidArgument` when `to` exists; `Corruption` when nothing at all
/// can be read; what writing the new database meets.
pub fn salvage(
    _from: impl AsRef<Path>,
    _to: impl AsRef<Path>,
    _options: &CheckOptions,
    _progress: &mut dyn FnMut(&CheckProgress),
) -> Result<SalvageReport> {
    Err(super::not_built())
}
