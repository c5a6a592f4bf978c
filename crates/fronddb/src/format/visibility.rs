//! Which messages a reader sees. Transactions are above this layer, so their states come in through
//! [`Statuses`], implemented by the status table of `txn` and by the models of the tests.

use super::message::Stamp;
use crate::base::{CommitNumber, TxnId};

/// The state of one step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Neither committed nor aborted (or prepared: undecided all the same).
    Active,
    /// Committed at this number.
    Committed(CommitNumber),
    /// Rolled back, whole or (for this step) to a savepoint.
    Aborted,
}

/// Answers what became of a transaction.
pub trait Statuses: Send + Sync {
    /// The state of step `step` of `txn`. An id below the low-water mark that is not known to be aborted
    /// is committed at a number that every snapshot sees (answered as `Committed(CommitNumber(0))`).
    fn status(&self, txn: TxnId, step: u32) -> Status;
}

/// What one read sees: everything committed up to a snapshot, and what its own transaction wrote.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Commits up to and including this one are seen; [`CommitNumber::LATEST`] for all.
    pub snapshot: CommitNumber,
    /// The reading transaction, if it has written.
    pub own: Option<TxnId>,
    /// Also sees what is not committed (READ UNCOMMITTED); never what is aborted.
    pub uncommitted: bool,
    /// The states of all transactions.
    pub statuses: &'a dyn Statuses,
}

impl View<'_> {
    /// True when a message with this stamp counts for this reader.
    #[inline]
    pub fn sees(&self, stamp: Stamp) -> bool {
        match stamp {
            Stamp::Settled => true,
            Stamp::Committed(number) => number <= self.snapshot || self.uncommitted,
            Stamp::Written { txn, step } => match self.statuses.status(txn, step) {
                Status::Committed(number) => number <= self.snapshot || self.uncommitted,
                Status::Active => self.uncommitted || self.own == Some(txn),
                Status::Aborted => false,
            },
        }
    }
}

/// What a compaction must keep: the snapshots that may still be read.
#[derive(Clone)]
pub struct Retention<'a> {
    /// Every live and future snapshot is at or above this number.
    pub horizon: CommitNumber,
    /// Live snapshots above the horizon and the newest commit at the time, ascending. A version that is
    /// superseded by a newer committed one is needed only if some snapshot lies in between.
    pub snapshots: Vec<CommitNumber>,
    /// The states of all transactions.
    pub statuses: &'a dyn Statuses,
}
