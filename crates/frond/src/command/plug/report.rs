//! What came out, as a table and as JSON.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use fronddb::{CheckReport, RecoveryReport};
use serde_json::{Value, json};

use super::Rate;
use crate::quantity::{bytes, count, micros};

/// One kill.
pub(crate) struct Drop {
    /// Asked for.
    pub rate: Rate,
    /// Rows in the table before.
    pub rows_before: u64,
    /// The last row acknowledged before the kill.
    pub rows_acknowledged: u64,
    /// Rows inserted, committed or not.
    pub rows_inserted: u64,
    /// Rows in the table after.
    pub rows_found: u64,
    /// Time of inserting.
    pub seconds: f64,
    /// Written to storage while inserting.
    pub bytes_written: u64,
    /// 99th percentile of commit times.
    pub commit_p99_micros: u64,
    /// What opening after the kill did.
    pub recovery: RecoveryReport,
    /// Time until the first query answered after the kill.
    pub after_kill: Duration,
    /// The same after checkpoint and close.
    pub after_close: Duration,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// All kills.
#[derive(Default)]
pub(crate) struct Report {
    pub rows_asked: u64,
    pub memory: u64,
    pub seed: u64,
    pub drops: Vec<Drop>,
    /// Of the database at the end; not made when a kill went wrong.
    pub check: Option<CheckReport>,
    /// Of the database at the end.
    pub disk_bytes: u64,
}

/// A rate as it is asked for.
pub(crate) fn rate_name(rate: Rate) -> String {
    rate.map_or_else(|| "full speed".to_owned(), |rate| format!("{} rows/s", count(rate)))
}

impl Drop {
    /// True when nothing is wrong.
    pub(crate) fn is_good(&self) -> bool {
        self.problems.is_empty()
    }

    fn rate_reached(&self) -> u64 {
        (self.rows_inserted as f64 / self.seconds.max(1e-3)) as u64
    }

    fn verdict(&self) -> String {
        if self.is_good() { "all there".to_owned() } else { format!("BAD: {}", self.problems.join("; ")) }
    }

    /// In a line.
    pub(crate) fn describe(&self) -> String {
        format!(
            "killed at {} after {} acknowledged rows; first answer after {}, {} of log replayed; {} rows verified through 4 indexes: {}",
            rate_name(self.rate),
            count(self.rows_acknowledged),
            micros(self.after_kill.as_micros() as u64),
            bytes(self.recovery.bytes_replayed),
            count(self.rows_found),
            self.verdict()
        )
    }
}

impl Report {
    /// True when nothing is wrong.
    pub(crate) fn is_good(&self) -> bool {
        self.problems() == 0
    }

    /// How much is wrong.
    pub(crate) fn problems(&self) -> usize {
        let damages = self.check.as_ref().map_or(0, |check| check.findings.len());
        self.drops.iter().map(|drop| drop.problems.len()).sum::<usize>() + damages
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED).set_header([
            "inserting at",
            "rows/s",
            "rows\nacknowledged",
            "half-done,\nundone",
            "rows found",
            "log\nreplayed",
            "first query\nafter kill",
            "after clean\nclose",
            "verdict",
        ]);
        for drop in &self.drops {
            table.add_row([
                rate_name(drop.rate),
                count(drop.rate_reached()),
                count(drop.rows_acknowledged),
                count(drop.recovery.aborted),
                count(drop.rows_found),
                bytes(drop.recovery.bytes_replayed),
                micros(drop.after_kill.as_micros() as u64),
                micros(drop.after_close.as_micros() as u64),
                drop.verdict(),
            ]);
        }
        table.column_iter_mut().skip(1).take(7).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        table.to_string()
    }

    /// What the table means, and what else was seen.
    pub(crate) fn legend(&self) -> String {
        let load = self.drops.first();
        let per_row = load.map_or(0, |drop| drop.bytes_written / drop.rows_inserted.max(1));
        let check = match &self.check {
            Some(check) if check.is_clean() => {
                format!("clean ({} messages, {} read)", count(check.messages), bytes(check.bytes))
            }
            Some(check) => format!("{} damages", check.findings.len()),
            None => "not made".to_owned(),
        };
        format!(
            "A row is four index entries; a transaction is {} rows, acknowledged after its sync. Rows found beyond those\n\
             acknowledged were committed when the kill came and not yet acknowledged; half-done transactions were undone\n\
             (one is left open on purpose). Both times are from opening, with the page cache dropped, to the answer of the\n\
             first query; a clean close is a checkpoint and a close.\n\
             First load: {} written, {per_row} bytes per row, commit p99 {}. Disk at the end: {}, {} bytes per row.\n\
             frond check: {check}.",
            count(super::TRANSACTION_ROWS),
            bytes(load.map_or(0, |drop| drop.bytes_written)),
            micros(load.map_or(0, |drop| drop.commit_p99_micros)),
            bytes(self.disk_bytes),
            self.disk_bytes / self.drops.last().map_or(1, |drop| drop.rows_found.max(1)),
        )
    }

    /// For programs.
    pub(crate) fn to_json(&self) -> Value {
        let drops: Vec<Value> = self.drops.iter().map(Drop::to_json).collect();
        json!({
            "good": self.is_good(),
            "rows_asked": self.rows_asked,
            "memory_bytes": self.memory,
            "seed": self.seed,
            "disk_bytes": self.disk_bytes,
            "check_findings": self.check.as_ref().map(|check| check.findings.len()),
            "drops": drops,
        })
    }
}

impl Drop {
    fn to_json(&self) -> Value {
        json!({
            "rate_asked": self.rate,
            "rate_reached": self.rate_reached(),
            "rows_before": self.rows_before,
            "rows_acknowledged": self.rows_acknowledged,
            "rows_inserted": self.rows_inserted,
            "rows_found": self.rows_found,
            "seconds": self.seconds,
            "bytes_written": self.bytes_written,
            "commit_p99_micros": self.commit_p99_micros,
            "log_bytes_read": self.recovery.bytes_read,
            "log_bytes_replayed": self.recovery.bytes_replayed,
            "transactions_aborted": self.recovery.aborted,
            "recovery_micros": self.recovery.total_micros,
            "first_query_after_kill_micros": self.after_kill.as_micros() as u64,
            "first_query_after_close_micros": self.after_close.as_micros() as u64,
            "problems": self.problems,
        })
    }
}
