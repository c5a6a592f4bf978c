//! `frond check`: is everything as it was written?

use clap::Args;
use fronddb::{CheckReport, Finding, TreeId};

use crate::encoding::shown_name;
use crate::failure::{During, Failure, Outcome};
use crate::output::print;
use crate::progress::Progress;
use crate::quantity::{bytes, count, micros};
use crate::target::Target;

/// Read everything stored, verify all checksums and invariants, name every damage; exit code 1 if there is any
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond check demo && echo sound
  frond check demo --json | jq '.findings[].file'

It changes nothing and needs the database closed. Each damage is a line: file, offset, number and name of the tree, what is wrong.")]
pub(crate) struct Check {
    #[command(flatten)]
    target: Target,
    /// The report as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let progress = Progress::bytes("check", 0);
        let report = fronddb::check(&self.target.path, &self.target.opening.check_options(), &mut |at| {
            progress.set_total(at.total);
            progress.set(at.done);
            progress.say(if at.findings == 0 { String::new() } else { format!("{} damages", at.findings) });
        })
        .during(format_args!("check {}", self.target.name()))?;
        drop(progress);
        print(&if self.json { report.to_json() } else { describe(&report) })?;
        if report.is_clean() {
            return Ok(());
        }
        let trees: Vec<String> = report.damaged_trees().iter().map(|tree| named(&report, *tree)).collect();
        Err(Failure::negative(format!(
            "{} is damaged: findings={} trees={}; `frond salvage {} NEW` rescues what is readable",
            self.target.name(),
            report.findings.len(),
            if trees.is_empty() { "unknown".to_owned() } else { trees.join(",") },
            self.target.name()
        )))
    }
}

/// The name of a damaged tree, or its number where nobody knows the name.
fn named(report: &CheckReport, tree: TreeId) -> String {
    let name = report.damaged.get(&tree).and_then(Option::as_deref);
    name.map_or_else(|| tree.to_string(), shown_name)
}

/// One damage as a line.
pub(crate) fn line(finding: &Finding) -> String {
    let offset = finding.offset.map(|offset| format!(" offset={offset}")).unwrap_or_default();
    let tree = finding.tree.map(|tree| format!(" tree={tree}")).unwrap_or_default();
    let name = finding.tree_name.as_ref().map(|name| format!(" name={}", shown_name(name))).unwrap_or_default();
    format!("file={}{offset}{tree}{name}: {}", finding.file, finding.message)
}

fn describe(report: &CheckReport) -> String {
    let mut lines: Vec<String> = report.findings.iter().map(line).collect();
    lines.push(format!(
        "{}: generation {}, {} trees, {} nodes, {} runs, {} messages, {} read, {} log records, {}",
        if report.is_clean() { "sound" } else { "damaged" },
        report.generation,
        count(report.trees),
        count(report.nodes),
        count(report.runs),
        count(report.messages),
        bytes(report.bytes),
        count(report.log_records),
        micros(report.micros)
    ));
    lines.join("\n")
}
