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
    /// The state of step `step` of `txn`, for which a message that can be read is the reason to ask. One that has ended and is not known
    /// to be aborted may be answered as `Committed(CommitNumber(0))` where every snapshot sees its number.
    fn status(&self, txn: TxnId, step: u32) -> Status;
}

/// What a read sees of what others have not committed, or have after its snapshot; never what is aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Uncommitted {
    /// Nothing.
    #[default]
    Hidden,
    /// All of it (READ UNCOMMITTED).
    Seen,
    /// What they have written, but not what they have deleted: every key that has a value, or may come to have one. For who locks what
    /// it finds, and looks again then.
    Added,
}

/// What one read sees: everything committed up to a snapshot, and what its own transaction wrote.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Commits up to and including this one are seen; [`CommitNumber::LATEST`] for all.
    pub snapshot: CommitNumber,
    /// The reading transaction, if it has written.
    pub own: Option<TxnId>,
    /// What it sees of the rest.
    pub uncommitted: Uncommitted,
    /// The states of all transactions.
    pub statuses: &'a dyn Statuses,
}

/// How a reader sees a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// It counts.
    Seen,
    /// It does not: committed later, or aborted.
    Unseen,
    /// It does not, because this other transaction, which made it, has neither committed nor aborted.
    Undecided(TxnId),
}

impl View<'_> {
    /// How this reader sees a message with this stamp, of a delete or of anything else: from one look at the transaction's state, which
    /// may change at any time.
    #[inline]
    pub fn sight(&self, stamp: Stamp, is_delete: bool) -> Sight {
        let uncommitted = match self.uncommitted {
            Uncommitted::Hidden => false,
            Uncommitted::Seen => true,
            Uncommitted::Added => !is_delete,
        };
        let number = match stamp {
            Stamp::Settled => return Sight::Seen,
            Stamp::Committed(number) => number,
            Stamp::Written { txn, step } => match self.statuses.status(txn, step) {
                Status::Committed(number) => number,
                Status::Active if uncommitted || self.own == Some(txn) => return Sight::Seen,
                Status::Active => return Sight::Undecided(txn),
                Status::Aborted => return Sight::Unseen,
            },
        };
        if number <= self.snapshot || uncommitted { Sight::Seen } else { Sight::Unseen }
    }

    /// True when a message with this stamp, of a delete or of anything else, counts for this reader.
    #[inline]
    pub fn sees(&self, stamp: Stamp, is_delete: bool) -> bool {
        self.sight(stamp, is_delete) == Sight::Seen
    }

    /// True when a message with this stamp is rolled back: then no reader sees it, ever.
    pub fn aborted(&self, stamp: Stamp) -> bool {
        match stamp {
            Stamp::Written { txn, step } => self.statuses.status(txn, step) == Status::Aborted,
            Stamp::Settled | Stamp::Committed(_) => false,
        }
    }

    /// When a message with this stamp was committed: 0 when settled, `None` when it was not.
    pub fn committed(&self, stamp: Stamp) -> Option<CommitNumber> {
        match stamp {
            Stamp::Settled => Some(CommitNumber(0)),
            Stamp::Committed(number) => Some(number),
            Stamp::Written { txn, step } => match self.statuses.status(txn, step) {
                Status::Committed(number) => Some(number),
                Status::Active | Status::Aborted => None,
            },
        }
    }
}

/// What a compaction must keep: the snapshots that may still be read.
#[derive(Clone)]
pub struct Retention<'a> {
    /// Snapshots that may be read, ascending, never empty: the first is the *horizon* (every live and
    /// future snapshot is at or above it), the last is the newest commit at the time (every future
    /// snapshot is at or above that one), in between are the live ones.
    pub snapshots: Vec<CommitNumber>,
    /// The states of all transactions.
    pub statuses: &'a dyn Statuses,
}

impl Retention<'_> {
    /// Every live and future snapshot is at or above this number.
    pub fn horizon(&self) -> CommitNumber {
        self.snapshots.first().copied().unwrap_or_default()
    }

    /// The newest commit when the retention was taken. What commits later counts as undecided.
    pub fn newest(&self) -> CommitNumber {
        self.snapshots.last().copied().unwrap_or_default()
    }

    /// True when some snapshot sees `older` but not `newer`, or may since the retention was taken, so that both versions are needed.
    pub fn separates(&self, older: CommitNumber, newer: CommitNumber) -> bool {
        let first = self.snapshots.partition_point(|snapshot| *snapshot < older);
        older < newer && self.snapshots.get(first).is_none_or(|snapshot| *snapshot < newer)
    }

    /// True when whoever sees what has the stamp `shown` sees what has the stamp `with` too. Of what is not decided that is not known.
    pub fn shows_with(&self, shown: Stamp, with: Stamp) -> bool {
        match (shown, with) {
            (Stamp::Settled | Stamp::Committed(_), Stamp::Settled) => true,
            (Stamp::Committed(shown), Stamp::Committed(with)) => !self.separates(shown, with),
            _ => false,
        }
    }
}
