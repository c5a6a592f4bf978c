//! Reading the log of a database that nobody has open, record by record, for people.

use std::path::Path;

use super::check::CheckOptions;
use crate::base::{CommitNumber, Lsn, Result, TreeId, TxnId};

/// One thing that a log record says. A record with many messages is told as many events with one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEvent<'a> {
    /// Position of the record.
    pub lsn: Lsn,
    /// The transaction.
    pub txn: TxnId,
    /// Which of its steps; 0 where that does not matter.
    pub step: u32,
    /// What happened.
    pub action: LogAction<'a>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogAction<'a> {
    /// One key was changed.
    Message {
        /// `put`, `insert-if-absent`, `delete`, `single-delete` or `update`.
        kind: &'static str,
        /// The tree.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
        /// Value or update program; for a blob the reference to it.
        payload: &'a [u8],
        /// True when the value lies in the data file.
        blob: bool,
    },
    /// An interval of keys was deleted.
    RangeDelete {
        /// The tree.
        tree: TreeId,
        /// Lowest key deleted.
        start: &'a [u8],
        /// Lowest key above it that is not deleted; empty: to the end of the tree.
        end: &'a [u8],
    },
    /// The transaction committed.
    Commit {
        /// Its place in the order of commits.
        number: CommitNumber,
    },
    /// The transaction was rolled back.
    Abort,
    /// Some of its steps were rolled back.
    AbortSteps {
        /// The first.
        from: u32,
        /// The last.
        to: u32,
    },
    /// It was prepared.
    Prepare {
        /// Its external id.
        xid: &'a [u8],
        /// Locks that it holds.
        locks: u64,
    },
}

/// Tells `visit` everything that the live segments of the log at `path` say, oldest first, until it answers false.
///
/// # Errors
/// `NotFound`, `AlreadyOpen`, `UnsupportedFormat`, `Corruption` where the log is damaged, `Io`.
pub fn log_records(
    _path: impl AsRef<Path>,
    _options: &CheckOptions,
    _visit: &mut dyn FnMut(&LogEvent<'_>) -> bool,
) -> Result<()> {
    Err(super::not_built())
}
