//! `frond salvage`: what is readable, to a new database.

use std::path::PathBuf;

use clap::Args;
use fronddb::SalvageReport;

use super::check::line;
use crate::encoding::shown_name;
use crate::failure::{During, Failure, Outcome};
use crate::output::{give_name, print};
use crate::progress::Progress;
use crate::quantity::{bytes, count};
use crate::target::Target;

/// Write what is readable of a damaged database to a new one; exit code 1 if something was lost
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond salvage demo demo-rescued && echo nothing was lost

The damaged database is only read. In the new one each row has its newest readable version: where the damage hid a newer
version or a delete, that is an older one. Interrupted, it leaves what it wrote as NEW.PID.partial, which may be removed.")]
pub(crate) struct Salvage {
    #[command(flatten)]
    target: Target,
    /// Directory of the new database; must not exist
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// The report as JSON
    #[arg(long)]
    json: bool,
}

impl Salvage {
    /// Does it, under a temporary name until it is complete.
    pub(crate) fn run(self) -> Outcome {
        if self.new.exists() {
            return Err(Failure::usage(format!("{} exists; name a directory that does not", self.new.display())));
        }
        let Some(name) = self.new.file_name() else {
            return Err(Failure::usage(format!("not a directory's name: {}", self.new.display())));
        };
        let mut partial = name.to_os_string();
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = self.new.with_file_name(partial);
        let progress = Progress::rows("salvage", 0);
        let salvaged = fronddb::salvage(&self.target.path, &partial, &self.target.opening.check_options(), &mut |at| {
            progress.set_total(at.total);
            progress.set(at.done);
            progress.say(format!("{}, {} damages", at.phase, at.findings));
        })
        .during(format_args!("salvage {}", self.target.name()));
        drop(progress);
        let report = match salvaged {
            Ok(report) => report,
            Err(failure) => {
                // The failure that is being reported matters more than one of cleaning up.
                let _ = std::fs::remove_dir_all(&partial);
                return Err(failure);
            }
        };
        give_name(&partial, &self.new).map_err(|error| {
            Failure::files(format_args!("name the new database {}", self.new.display()), &error)
                .then(format!("it is complete, perhaps as {} still", partial.display()))
        })?;
        print(&if self.json { report.to_json() } else { describe(&report) })?;
        if report.findings.is_empty() && report.prepared_dropped == 0 {
            return Ok(());
        }
        Err(Failure::negative(format!(
            "not all of {} was readable: damages={} messages_lost={} prepared_dropped={}{}",
            self.target.name(),
            report.findings.len(),
            report.messages_lost,
            report.prepared_dropped,
            if report.log_cut { "; the last commits may be missing, the log is damaged" } else { "" }
        )))
    }
}

fn describe(report: &SalvageReport) -> String {
    let mut lines: Vec<String> = report.findings.iter().map(line).collect();
    for tree in &report.trees {
        lines.push(format!(
            "tree {}: {} rows, {}{}",
            shown_name(&tree.name),
            count(tree.rows),
            bytes(tree.bytes),
            if tree.damages == 0 { String::new() } else { format!(", {} damages", tree.damages) }
        ));
    }
    if report.log_cut {
        lines.push(
            "the log is damaged and was read up to there: later commits, if there were any, are lost, uncounted"
                .to_owned(),
        );
    }
    lines.push(format!(
        "rescued {} rows of {} trees; lost {} blocks with about {} messages",
        count(report.rows()),
        report.trees.len(),
        count(report.blocks_lost),
        count(report.messages_lost)
    ));
    lines.join("\n")
}
