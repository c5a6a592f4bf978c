//! Outcomes as tables and data.
//!
//! Rooms: [`table`] (one engine) · [`ratio`] (engines side by side) · [`goals`] (what must be reached) · [`markdown`]
//! (`docs/benchmarks.md`) · [`machine`] (where it was measured).

mod goals;
mod machine;
mod markdown;
mod ratio;
mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::measure::Phase;
use crate::plot::{Chart, Scale, Series};
use crate::workload::{Outcome, Spec};

pub use goals::{Bound, Goal, goals, goals_between};
pub use machine::{commit, machine};
pub use markdown::{section, summary, with_section};
pub use ratio::ratio_table;
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
            memory_budget_bytes: spec.common.memory_bytes(),
            codec: spec.common.codec.to_string(),
            tuning: spec.common.tuning.clone(),
            outcome,
        })
    }

    /// The phase of this name.
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        self.outcome.phases.iter().find(|phase| phase.name == name)
    }

    /// The further figure of this name.
    pub fn fact(&self, name: &str) -> Option<f64> {
        self.outcome.facts.iter().find(|fact| fact.name == name).map(|fact| fact.value)
    }

    /// Largest memory less the process's fixed part, as a share of the budget.
    pub fn memory_share(&self) -> Option<f64> {
        let peak = self.outcome.phases.iter().map(|phase| phase.memory_peak_bytes).max()?;
        let own = peak.max(self.outcome.memory_peak_bytes).saturating_sub(self.outcome.memory_base_bytes);
        Some(own as f64 / self.memory_budget_bytes.max(1) as f64)
    }

    /// The typical rate: the geometric mean over all phases that have one.
    pub fn typical_rate(&self) -> f64 {
        let rates = self.outcome.phases.iter().filter(|phase| phase.operations > 1).map(|phase| phase.rate);
        let logarithms: Vec<f64> = rates.map(f64::ln).collect();
        (logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64).exp()
    }

    /// A numeric option of the workload.
    pub fn number(&self, option: &str) -> Option<f64> {
        self.parameters.get(option)?.as_f64()
    }
}

/// The same workload on several engines, one after the other in one invocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    /// Heading of its section.
    pub title: String,
    /// To repeat it.
    pub command: String,
    /// Of the sources.
    pub commit: String,
    /// In general words.
    pub machine: String,
    /// Ours first.
    pub reports: Vec<Report>,
}

/// Phases shorter than this have no picture.
const PICTURE_SECONDS_MIN: f64 = 10.0;

impl Comparison {
    /// Name of the workload.
    pub fn workload(&self) -> &str {
        self.reports.first().map_or("", |report| report.workload.as_str())
    }

    /// Rates over time of the first phase, if it ran long enough to have any.
    pub fn chart(&self) -> Option<Chart> {
        let phase = self.reports.first()?.outcome.phases.first()?;
        (phase.seconds >= PICTURE_SECONDS_MIN).then(|| {
            let line = |report: &Report| {
                report.phase(&phase.name).map(|phase| Series::of_curve(&report.engine, &phase.curve, 0.0, 1.0))
            };
            Chart {
                title: format!("{}: {}", self.title, phase.name),
                unit: "per second".to_owned(),
                scale: Scale::Linear,
                series: self.reports.iter().filter_map(line).collect(),
                marks: Vec::new(),
            }
        })
    }
}
