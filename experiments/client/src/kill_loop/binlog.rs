//! K7: the binary log and the journal of transfers tell the same transactions.
//!
//! After every restart the binary logs written since the last one are decoded by `mariadb-binlog`. A transaction counts when
//! its end (Xid) is there: the server then promises it to replicas, so recovery must have committed it; and what a table
//! holds and no binary log tells, a replica would never get.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{BINLOG_NAME, DATABASE};
use crate::server::Installation;
use frond_load::wire::{Connection, text};

pub(crate) struct Agreement {
    program: PathBuf,
    told: BTreeSet<(u64, u64)>,
    read: BTreeSet<PathBuf>,
}

impl Agreement {
    pub(crate) fn new(installation: &Installation) -> Self {
        Agreement { program: installation.program("mariadb-binlog"), told: BTreeSet::new(), read: BTreeSet::new() }
    }

    /// All files but the newest, which the running server writes to and which holds nothing of ours yet.
    pub(crate) fn verify(&mut self, data: &Path, connection: &mut Connection) -> Result<(), String> {
        let rows = connection.rows("SHOW BINARY LOGS").map_err(|error| error.to_string())?;
        let mut files: Vec<PathBuf> =
            rows.iter().filter_map(|row| row.first()).map(|name| data.join(text(name))).collect();
        files.pop();
        for file in files {
            if self.read.insert(file.clone()) {
                self.read_file(&file)?;
            }
        }
        let query = "SELECT worker, seq FROM journal";
        let there: BTreeSet<(u64, u64)> = connection
            .rows(query)
            .map_err(|error| error.to_string())?
            .iter()
            .filter_map(|row| Some((text(row.first()?).parse().ok()?, text(row.get(1)?).parse().ok()?)))
            .collect();
        let only_told: Vec<_> = self.told.difference(&there).take(5).collect();
        let only_there: Vec<_> = there.difference(&self.told).take(5).collect();
        if only_told.is_empty() && only_there.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{BINLOG_NAME} and tables disagree: in the log only {only_told:?}, in the table only {only_there:?} (worker, seq)"
        ))
    }

    fn read_file(&mut self, file: &Path) -> Result<(), String> {
        let output = Command::new(&self.program)
            .args(["--no-defaults", "--base64-output=DECODE-ROWS", "--verbose"])
            .arg(file)
            .output()
            .map_err(|error| format!("cannot run mariadb-binlog: {error}"))?;
        // A log cut off by the kill ends in an error after its last whole event.
        self.read_text(&String::from_utf8_lossy(&output.stdout));
        Ok(())
    }

    /// Rows of the journal are told as `### INSERT INTO`, `### SET`, `###   @1=worker`, `###   @2=seq`.
    fn read_text(&mut self, words: &str) {
        let wanted = format!("### INSERT INTO `{DATABASE}`.`journal`");
        let mut open = Vec::new();
        let mut worker = None;
        let mut in_journal = false;
        for line in words.lines() {
            if line.starts_with("### INSERT") || line.starts_with("### UPDATE") || line.starts_with("### DELETE") {
                in_journal = line == wanted;
            } else if let Some(value) = line.strip_prefix("###   @1=").filter(|_| in_journal) {
                worker = value.parse().ok();
            } else if let Some(value) = line.strip_prefix("###   @2=").filter(|_| in_journal) {
                open.extend(worker.zip(value.parse().ok()));
            } else if line.contains("GTID ") {
                open.clear();
            } else if line.contains("Xid = ") {
                self.told.extend(open.drain(..));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Agreement;
    use std::path::PathBuf;

    #[test]
    fn only_rows_of_whole_transactions_count() {
        let mut agreement = Agreement { program: PathBuf::new(), told: Default::default(), read: Default::default() };
        let insert =
            |seq: u64| format!("### INSERT INTO `bank`.`journal`\n### SET\n###   @1=3\n###   @2={seq}\n###   @3='a'\n");
        let other = "### UPDATE `bank`.`account_a`\n### WHERE\n###   @1=9\n###   @2=9\n";
        let words = format!(
            "#1 server id 1 \tGTID 0-1-1 trans\n{other}{}#1 \tXid = 7\n#1 \tGTID 0-1-2 trans\n{}#1 \tGTID 0-1-3 trans\n{}",
            insert(1),
            insert(2),
            insert(3)
        );
        agreement.read_text(&words);
        assert_eq!(agreement.told.into_iter().collect::<Vec<_>>(), [(3, 1)]);
    }
}
