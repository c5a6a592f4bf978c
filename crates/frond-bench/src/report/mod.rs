//! Outcomes as tables and data.

mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::workload::{Outcome, Spec};

pub use table::{facts_table, phases_table};

/// An outcome with what is needed to repeat it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Which engine.
    pub engine: String,
    /// Which workload.
    pub workload: String,
    /// Its options.
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// Memory budget.
    pub memory_budget_bytes: u64,
    /// Codec of all trees.
    pub codec: String,
    /// Engine-specific settings.
    pub tuning: Vec<(String, String)>,
    /// What was found.
    pub outcome: Outcome,
}

impl Report {
    /// Of a run that is done.
    pub fn new(spec: &Spec, outcome: Outcome) -> Result<Report> {
        Ok(Report {
            engine: spec.engine.name().to_owned(),
            workload: spec.workload.name().to_owned(),
            parameters: spec.workload.parameters()?,
            memory_budget_bytes: spec.common.memory << 20,
            codec: spec.common.codec.to_string(),
            tuning: spec.common.tuning.clone(),
            outcome,
        })
    }
}
