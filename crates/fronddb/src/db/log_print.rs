//! Reading the log of a database that nobody has open, record by record, for people.

use std::path::Path;

use super::check::{CheckOptions, Offline};
use crate::base::{CommitNumber, Lsn, Result, TreeId, TxnId, key};
use crate::format::message::Kind;
use crate::format::record::{Messages, Record};

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
        /// Locks that its record names; more may have been told before.
        locks: u64,
    },
    /// It is about to be prepared, and holds many locks.
    Locks {
        /// Those that the record names.
        locks: u64,
    },
}

impl LogEvent<'_> {
    /// The event as one line of text; `encode` writes keys, values and external ids.
    pub fn line(&self, encode: &mut dyn FnMut(&[u8], &mut Vec<u8>)) -> Vec<u8> {
        let mut line = format!("lsn={} txn={} ", self.lsn, self.txn).into_bytes();
        let mut field = |name: &str, bytes: &[u8]| {
            line.extend_from_slice(name.as_bytes());
            encode(bytes, &mut line);
        };
        match self.action {
            LogAction::Message { kind, tree, key, payload, blob } => {
                field(&format!("step={} {kind} tree={tree} key=", self.step), key);
                if blob {
                    field(" value=(blob)", b"");
                } else if !kind.ends_with("delete") {
                    field(" value=", payload);
                }
            }
            LogAction::RangeDelete { tree, start, end } => {
                field(&format!("step={} range-delete tree={tree} from=", self.step), start);
                field(" to=", end);
            }
            LogAction::Commit { number } => field(&format!("commit number={number}"), b""),
            LogAction::Abort => field("abort", b""),
            LogAction::AbortSteps { from, to } => field(&format!("abort-steps from={from} to={to}"), b""),
            LogAction::Prepare { xid, locks } => {
                field(&format!("prepare locks={locks} xid="), xid);
            }
            LogAction::Locks { locks } => field(&format!("locks locks={locks}"), b""),
        }
        line
    }
}

/// Tells `visit` everything that the live segments of the log at `path` say, oldest first, until it answers false.
///
/// # Errors
/// `NotFound`, `AlreadyOpen`, `UnsupportedFormat`, `Corruption` where the log is damaged, after what could be read, `Io`.
pub fn log_records(
    path: impl AsRef<Path>,
    options: &CheckOptions,
    visit: &mut dyn FnMut(&LogEvent<'_>) -> bool,
) -> Result<()> {
    let offline = Offline::new(path.as_ref(), options);
    let _lock = offline.lock()?;
    let opened = offline.open_store()?;
    offline.read_log(&opened, opened.store.superblock().body.log_start, &mut |lsn, bytes| tell(lsn, bytes, visit))
}

fn tell(lsn: Lsn, bytes: &[u8], visit: &mut dyn FnMut(&LogEvent<'_>) -> bool) -> Result<bool> {
    let event = |txn, step, action| LogEvent { lsn, txn, step, action };
    Ok(match Record::decode(lsn, bytes)? {
        Record::Messages(messages) => tell_messages(lsn, messages, visit)?,
        Record::CommitWithMessages { number, messages } => {
            let (txn, step) = (messages.txn(), messages.step());
            tell_messages(lsn, messages, visit)? && visit(&event(txn, step, LogAction::Commit { number }))
        }
        Record::RangeDelete { txn, step, start, end, .. } => {
            let (tree, start) = key::split(start).unwrap_or_default();
            // The end of a whole tree is the beginning of the next one.
            let end = key::split(end).filter(|(end_tree, _)| *end_tree == tree).map_or(&[][..], |(_, end)| end);
            visit(&event(txn, step, LogAction::RangeDelete { tree, start, end }))
        }
        Record::Commit { txn, number } => visit(&event(txn, 0, LogAction::Commit { number })),
        Record::Abort { txn } => visit(&event(txn, 0, LogAction::Abort)),
        Record::AbortSteps { txn, from, to } => visit(&event(txn, 0, LogAction::AbortSteps { from, to })),
        Record::Prepare { txn, external_id, locks, .. } => {
            visit(&event(txn, 0, LogAction::Prepare { xid: external_id, locks: locks.count() as u64 }))
        }
        Record::Locks { txn, locks } => visit(&event(txn, 0, LogAction::Locks { locks: locks.count() as u64 })),
    })
}

fn tell_messages(lsn: Lsn, mut messages: Messages<'_>, visit: &mut dyn FnMut(&LogEvent<'_>) -> bool) -> Result<bool> {
    let (txn, step) = (messages.txn(), messages.step());
    while let Some(message) = messages.next()? {
        let (tree, key) = key::split(message.key).unwrap_or_default();
        let kind = match message.kind {
            Kind::Put => "put",
            Kind::InsertIfAbsent => "insert-if-absent",
            Kind::Delete => "delete",
            Kind::SingleDelete => "single-delete",
            Kind::Update => "update",
        };
        let action = LogAction::Message { kind, tree, key, payload: message.payload, blob: message.blob };
        if !visit(&LogEvent { lsn, txn, step, action }) {
            return Ok(false);
        }
    }
    Ok(true)
}
