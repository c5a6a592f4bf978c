//! Transactions (signatures; the bodies follow).

use std::sync::Arc;

use crate::base::{CommitNumber, Lsn, Result, TxnId};
use crate::format::{Retention, Status, Statuses};

/// What a transaction's reads see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Isolation {
    /// Also what is not committed.
    ReadUncommitted = 1,
    /// Each statement its own snapshot.
    ReadCommitted = 2,
    /// One snapshot.
    RepeatableRead = 3,
    /// As repeatable read; reads lock.
    Serializable = 4,
}

/// A transaction that waits for its coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// Its id.
    pub txn: TxnId,
    /// Its global name.
    pub xid: Vec<u8>,
}

/// The states of all transactions.
#[derive(Debug)]
pub struct StatusTable(());

#[expect(unused_variables, reason = "signatures first")]
impl StatusTable {
    /// The table of a new database.
    pub fn new() -> StatusTable {
        unimplemented!()
    }
    /// Registers a transaction.
    pub fn begin(&self) -> TxnId {
        unimplemented!()
    }
    /// Commits: `append` gets the commit number and appends the log record; calls are serialised, in number order.
    pub fn commit_with(
        &self,
        txn: TxnId,
        append: impl FnOnce(CommitNumber) -> Result<Lsn>,
    ) -> Result<(CommitNumber, Lsn)> {
        unimplemented!()
    }
    /// Aborts; `memtable` is the active one after the transaction's last write.
    pub fn abort_with(&self, txn: TxnId, memtable: u64, append: impl FnOnce() -> Result<Lsn>) -> Result<Lsn> {
        unimplemented!()
    }
    /// Aborts steps `from..=to` of a transaction that goes on.
    pub fn abort_steps_with(
        &self,
        txn: TxnId,
        from: u32,
        to: u32,
        memtable: u64,
        append: impl FnOnce() -> Result<Lsn>,
    ) -> Result<Lsn> {
        unimplemented!()
    }
    /// Prepares.
    pub fn prepare_with(&self, txn: TxnId, xid: &[u8], append: impl FnOnce() -> Result<Lsn>) -> Result<Lsn> {
        unimplemented!()
    }
    /// All prepared transactions.
    pub fn prepared(&self) -> Vec<Prepared> {
        unimplemented!()
    }
    /// The prepared transaction of this name.
    pub fn find_prepared(&self, xid: &[u8]) -> Option<TxnId> {
        unimplemented!()
    }
    /// Every commit up to this one is visible to a new snapshot.
    pub fn visible(&self) -> CommitNumber {
        unimplemented!()
    }
    /// A run with these unresolved writers joined the root. Call before `note_run_removed` of its inputs.
    pub fn note_run_added(&self, unresolved: &[TxnId]) {
        unimplemented!()
    }
    /// A run left the root.
    pub fn note_run_removed(&self, unresolved: &[TxnId]) {
        unimplemented!()
    }
    /// The last reader of a run that had left the root is gone.
    pub fn note_run_released(&self, unresolved: &[TxnId]) {
        unimplemented!()
    }
    /// Memtables of ids below `id` are flushed and unread.
    pub fn memtables_flushed_below(&self, id: u64) {
        unimplemented!()
    }
    /// Lets the low-water mark pass what every snapshot from `horizon` on sees.
    pub fn advance(&self, horizon: CommitNumber) {
        unimplemented!()
    }
    /// Every id below is committed, or in the aborted set.
    pub fn low_water(&self) -> TxnId {
        unimplemented!()
    }
    /// The status image; take it at the moment the root is captured.
    pub fn image(&self) -> Vec<u8> {
        unimplemented!()
    }
    /// The table that an image describes, ready for replay.
    pub fn restore(image: &[u8]) -> Result<StatusTable> {
        unimplemented!()
    }
    /// Replay: a record of `txn` was seen.
    pub fn replay_seen(&self, txn: TxnId) {
        unimplemented!()
    }
    /// Replay of a commit record.
    pub fn replay_commit(&self, txn: TxnId, number: CommitNumber) -> Result<()> {
        unimplemented!()
    }
    /// Replay of an abort record.
    pub fn replay_abort(&self, txn: TxnId) -> Result<()> {
        unimplemented!()
    }
    /// Replay of a rollback to a savepoint.
    pub fn replay_abort_steps(&self, txn: TxnId, from: u32, to: u32) -> Result<()> {
        unimplemented!()
    }
    /// Replay of a prepare record.
    pub fn replay_prepare(&self, txn: TxnId, xid: &[u8]) -> Result<()> {
        unimplemented!()
    }
    /// Ends replay: what is active becomes aborted; returns those ids.
    pub fn finish_recovery(&self, active_memtable: u64) -> Vec<TxnId> {
        unimplemented!()
    }
}

impl Statuses for StatusTable {
    fn status(&self, _txn: TxnId, _step: u32) -> Status {
        unimplemented!()
    }
}

/// The registry of live snapshots.
#[derive(Debug)]
pub struct Snapshots(());

/// A live snapshot; released when dropped. Share it in an `Arc`.
#[derive(Debug)]
pub struct Snapshot(Arc<()>);

impl Snapshot {
    /// What it sees.
    pub fn number(&self) -> CommitNumber {
        unimplemented!()
    }
}

#[expect(unused_variables, reason = "signatures first")]
impl Snapshots {
    /// The registry over the visible number of `statuses`.
    pub fn new(statuses: &StatusTable) -> Snapshots {
        unimplemented!()
    }
    /// A snapshot of everything committed now.
    pub fn acquire(&self) -> Snapshot {
        unimplemented!()
    }
    /// Every live and future snapshot is at or above this number.
    pub fn horizon(&self) -> CommitNumber {
        unimplemented!()
    }
    /// What compaction must keep.
    pub fn retention<'a>(&self, statuses: &'a dyn Statuses) -> Retention<'a> {
        unimplemented!()
    }
}
