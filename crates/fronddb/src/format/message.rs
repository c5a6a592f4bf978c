//! Messages: what a write leaves behind, from the memtable down to the leaf.
//!
//! A message says what happens to one key. It is named by its inner key and carries a [`Stamp`] (who
//! wrote it, or when that was committed), a [`Kind`] and a payload. Messages of one key are always kept
//! **newest first**: by sequence number in memtables, by position in runs (within a run, and from run to
//! run). Only runs that hold a range-delete also store sequence numbers, because there position does not
//! say whether a message is older than the range-delete.
//!
//! Sequence numbers: the sequence number of a message is the LSN of the log record that carries it, so all
//! messages of one record share it. Messages of one record that name the same key are ordered by their
//! place in the record.

use super::blob;
use crate::base::{CommitNumber, Error, Result, TxnId};

/// What a message does. The numbers are stored: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key has the payload as its value.
    Put = 1,
    /// The key has the payload as its value unless it already has one.
    InsertIfAbsent = 2,
    /// The key has no value.
    Delete = 3,
    /// The key, put exactly once since it last had no value, has no value: put and single-delete annihilate
    /// each other wherever they meet. For keys that are never, not even before that put, removed by a plain delete nor
    /// changed by updates and blind inserts, as entries of secondary indexes are; range-deletes are no harm.
    SingleDelete = 4,
    /// The value changes by the program in the payload (see [`crate::format::program`]).
    Update = 5,
}

impl Kind {
    /// The kind with this number.
    ///
    /// # Errors
    /// `Corruption` for an unknown number.
    pub fn from_number(number: u8) -> Result<Kind> {
        Ok(match number {
            1 => Kind::Put,
            2 => Kind::InsertIfAbsent,
            3 => Kind::Delete,
            4 => Kind::SingleDelete,
            5 => Kind::Update,
            _ => return Err(Error::corruption(format!("unknown message kind, number={number}"))),
        })
    }
}

/// Who wrote a message, or when that was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stamp {
    /// Committed, and visible to every snapshot that exists or will exist.
    Settled,
    /// Committed at this number.
    Committed(CommitNumber),
    /// Written by a transaction whose fate must be looked up.
    Written {
        /// The transaction.
        txn: TxnId,
        /// Which of its steps: a transaction counts its savepoints and rollbacks to them, so that a
        /// rollback to a savepoint aborts an interval of steps.
        step: u32,
    },
}

/// A message, borrowed from where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The inner key.
    pub key: &'a [u8],
    /// Sequence number. In a run that stores none: the highest one in the run.
    pub seq: u64,
    /// Who wrote it.
    pub stamp: Stamp,
    /// What it does.
    pub kind: Kind,
    /// True when the payload is an encoded [`crate::format::blob::BlobRef`] and not the value itself.
    /// Only for `Put`.
    pub blob: bool,
    /// Value or program; empty for deletes.
    pub payload: &'a [u8],
}

impl Message<'_> {
    /// Bytes that its large value takes in the data file; 0 where it has none.
    #[inline]
    pub fn blob_bytes(&self) -> u64 {
        if self.blob { blob::stored_bytes(self.payload) } else { 0 }
    }
}

/// Deletes every key of an interval that is older than it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeDelete {
    /// Lowest inner key deleted.
    pub start: Vec<u8>,
    /// Lowest inner key above `start` that is not deleted. Never empty.
    pub end: Vec<u8>,
    /// It deletes the messages of lower sequence number. Comparable with [`Message::seq`].
    pub seq: u64,
    /// Who wrote it.
    pub stamp: Stamp,
}

impl RangeDelete {
    /// True when `key` lies in the interval.
    pub fn covers(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && key < self.end.as_slice()
    }

    /// Somebody looks at it among others.
    #[inline]
    pub(crate) fn look(&self) {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
    }
}

#[cfg(test)]
thread_local! {
    /// How often this thread has looked at a range-delete among others.
    pub(crate) static LOOKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
