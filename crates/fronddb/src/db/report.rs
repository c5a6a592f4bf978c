//! What recovery says about itself: progress while it runs, a report afterwards.

use super::json::JsonWriter;

/// The phases of recovery, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecoveryPhase {
    /// Superblock, allocator, statuses, root.
    Roots,
    /// Reading the log segments.
    Log,
    /// Sorting their messages into memtables.
    Sort,
    /// Settling transactions: aborting the unfinished, locking for the prepared.
    Transactions,
    /// Serving.
    Done,
}

impl RecoveryPhase {
    /// Its name, as in the JSON form.
    pub fn name(self) -> &'static str {
        match self {
            RecoveryPhase::Roots => "roots",
            RecoveryPhase::Log => "log",
            RecoveryPhase::Sort => "sort",
            RecoveryPhase::Transactions => "transactions",
            RecoveryPhase::Done => "done",
        }
    }
}

/// How far recovery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryProgress {
    /// What it is doing.
    pub phase: RecoveryPhase,
    /// Bytes of log read so far.
    pub bytes_done: u64,
    /// Bytes of log to read in all, as far as known.
    pub bytes_total: u64,
}

/// What the last opening of the database found and did. Also kept as `recovery.json` in its directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// True when the database was made by this opening.
    pub created: bool,
    /// Generation of the superblock that was opened.
    pub generation: u64,
    /// Superblock slots that were damaged or older than the newest.
    pub superblocks_skipped: u32,
    /// Log segments read.
    pub segments: u64,
    /// Bytes of log read.
    pub bytes_read: u64,
    /// Bytes of log records replayed.
    pub bytes_replayed: u64,
    /// Log records replayed.
    pub records: u64,
    /// Messages put into memtables.
    pub messages: u64,
    /// Where the log ended.
    pub log_end: u64,
    /// Transactions whose commit was replayed.
    pub committed: u64,
    /// Unfinished transactions that were aborted.
    pub aborted: u64,
    /// Prepared transactions that wait for a decision.
    pub prepared: u64,
    /// Time per phase, in microseconds.
    pub phase_micros: [(&'static str, u64); 4],
    /// Time in all until the database served, in microseconds.
    pub total_micros: u64,
}

impl RecoveryReport {
    /// The report as a JSON object.
    pub fn to_json(&self) -> String {
        let mut json = JsonWriter::new();
        json.begin_object();
        json.field_bool("created", self.created);
        json.field("generation", self.generation);
        json.field("superblocks_skipped", u64::from(self.superblocks_skipped));
        json.field("segments", self.segments);
        json.field("bytes_read", self.bytes_read);
        json.field("bytes_replayed", self.bytes_replayed);
        json.field("records", self.records);
        json.field("messages", self.messages);
        json.field("log_end", self.log_end);
        json.field("committed", self.committed);
        json.field("aborted", self.aborted);
        json.field("prepared", self.prepared);
        json.begin_object_field("phase_micros");
        for (name, micros) in self.phase_micros.iter().filter(|(name, _)| !name.is_empty()) {
            json.field(name, *micros);
        }
        json.end_object();
        json.field("total_micros", self.total_micros);
        json.end_object();
        json.finish()
    }
}

/// How long a restart would take if the process ended now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveryEstimate {
    /// Bytes of log that would be read.
    pub bytes: u64,
    /// Messages in level 0. What it has forgotten of rows that were written over and over would be sorted as well.
    pub messages: u64,
    /// Time, in microseconds, from the speed of earlier recoveries on this machine or a cautious guess.
    pub micros: u64,
}
