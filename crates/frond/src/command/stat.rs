//! `frond stat`: how a database stands.

use clap::Args;
use fronddb::{RecoveryReport, Statistics};

use crate::failure::{During, Outcome};
use crate::output::{note, print};
use crate::quantity::{bytes, count, micros};
use crate::target::Target;

/// Show size, shape and restart work of a database
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond stat demo
  frond stat demo --json | jq .statistics.file_bytes

The counters of a running program are in its own statistics (`Database::statistics`, `frond_statistics`); this command
opens a database that nobody has open, so what it counts began a moment ago.")]
pub(crate) struct Stat {
    #[command(flatten)]
    target: Target,
    /// Everything, as JSON
    #[arg(long)]
    json: bool,
}

impl Stat {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        let db = self.target.open_read_only()?;
        let during = || format!("read statistics of {}", self.target.name());
        let statistics = db.statistics().during(during())?;
        let recovery = db.recovery_report().during(during())?;
        let (trees, damage) = db.readable_trees().during(during())?;
        let trees = trees.len();
        if let Some(error) = damage.first() {
            note(&format!("some trees are not counted: {error}"));
        }
        if self.json {
            return print(&format!(
                "{{\"trees\":{trees},\"statistics\":{},\"recovery\":{}}}",
                statistics.to_json(),
                recovery.to_json()
            ));
        }
        print(&describe(trees, &statistics, &recovery))
    }
}

fn describe(trees: usize, now: &Statistics, recovery: &RecoveryReport) -> String {
    let rows = [
        ("trees", count(trees as u64)),
        ("data file", format!("{}, of it in use {}", bytes(now.file_bytes), bytes(now.file_bytes_used))),
        ("tree", format!("{} levels, {} runs in the root's buffers", now.height, now.root_runs)),
        ("waiting to be flushed", bytes(now.pending_bytes)),
        ("newest superblock", format!("generation {}", now.generation)),
        ("commits", format!("{} since creation", count(now.commit_number))),
        ("log", format!("{} since creation, {} to replay", bytes(recovery.log_end), bytes(recovery.bytes_read))),
        (
            "prepared transactions",
            format!("{} waiting, {} aborted ids to clean", now.transactions_prepared, now.aborted_ids),
        ),
        (
            "this opening",
            format!(
                "{}: {} of log read, {} records, {} messages; {} transactions committed, {} aborted",
                micros(recovery.total_micros),
                bytes(recovery.bytes_read),
                count(recovery.records),
                count(recovery.messages),
                count(recovery.committed),
                count(recovery.aborted)
            ),
        ),
        ("memory", format!("{} of {}", bytes(now.memory_bytes), bytes(now.memory_bytes_max))),
    ];
    let lines: Vec<String> = rows.iter().map(|(name, text)| format!("{name:<22} {text}")).collect();
    lines.join("\n")
}
