//! What monitoring shows: transactions, locks, findings of a check.

use super::options::{Isolation, LockMode};
use crate::base::{TreeId, TxnId};

/// An open transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionInfo {
    /// Its number for [`crate::Database::cancel`]; 0 for prepared ones, which have no session.
    pub id: u64,
    /// Its id in the database, once it has written or locked.
    pub txn: Option<TxnId>,
    /// Its isolation level.
    pub isolation: Isolation,
    /// How long ago it began, in milliseconds. Of a prepared one by the wall clock, over restarts too: 0 where that was set back to before
    /// then. One prepared by a version that did not keep this began when the database was first opened by one that does, at the default
    /// isolation level.
    pub age_ms: u64,
    /// Messages that it has written; 0 of a prepared one of such a version.
    pub messages: u64,
    /// True when it is prepared.
    pub prepared: bool,
}

/// A prepared transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedInfo {
    /// The external id.
    pub xid: Vec<u8>,
    /// Its id in the database.
    pub txn: TxnId,
    /// True when it was prepared before the database was last opened.
    pub recovered: bool,
}

/// Most locks held that [`crate::Database::locks`] lists; all that are waited for it does.
pub const LOCKS_LISTED_MAX: usize = 100_000;

/// A lock held or waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// The owner, or who waits.
    pub txn: TxnId,
    /// The tree.
    pub tree: TreeId,
    /// The key, or the lowest key of the range.
    pub start: Vec<u8>,
    /// For a range: the lowest key above it (empty: no end). `None` for a key.
    pub end: Option<Vec<u8>>,
    /// How strongly.
    pub mode: LockMode,
    /// For one that waits: whom it waits for. Empty for one that is held.
    pub waits_for: Vec<TxnId>,
    /// For one that waits: for how long, in microseconds. 0 for one that is held.
    pub waited_micros: u64,
}

/// One thing that a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// File, relative to the database's directory; of a log elsewhere, with its directory's name alone.
    pub file: String,
    /// Offset in it, in bytes, where known.
    pub offset: Option<u64>,
    /// The tree concerned, where known; of several, the first.
    pub tree: Option<TreeId>,
    /// The last tree that may be concerned: [`Finding::tree`] again, or a later one when the damaged part holds, or may hold,
    /// several.
    pub tree_last: Option<TreeId>,
    /// The first one's name, where the catalog tells it.
    pub tree_name: Option<String>,
    /// What is wrong, in words.
    pub message: String,
}
