//! Log records: what the log keeps of each write, and of each decision about a transaction.
//!
//! Owns the layout of a record's bytes. How records are framed, checksummed and placed in files belongs to
//! [`crate::log`], whose position ([`Lsn`]) is the sequence number of all messages of a record. Changes of the
//! catalog are ordinary messages of tree 0; the end of a prepared transaction is an ordinary commit or abort.
//!
//! Rooms: this file (the kinds of record), [`batch`] (the messages inside a record), [`turned`] (records of many messages
//! as the log stores them).
//!
//! A batch of messages is written once, into a [`MessageBatch`], and given its header when it is known whether
//! it will be logged as [`Record::Messages`] or, with the commit, as [`Record::CommitWithMessages`], which makes a
//! durable one-row transaction one record. Reading is lazy and borrows from the record: [`Record::decode`] reads
//! the header, [`Messages::next`] one message after another. Damaged bytes give `Corruption`, never a panic.
//!
//! # Bytes
//!
//! A record is a number, then its fields. Integers are varints ([`crate::base::codec`]); *string* is a length and
//! its bytes.
//!
//! | number | record | fields |
//! |---|---|---|
//! | 1 | messages | txn, step, messages to the end |
//! | 2 | range-delete | txn, step, start (string), end (string) |
//! | 3 | commit | txn, commit number |
//! | 4 | commit with messages | txn, step, commit number, messages to the end |
//! | 5 | abort | txn |
//! | 6 | abort steps | txn, from, to (both included) |
//! | 7 | prepare, before log format 4 | txn, external id (string), number of locks, locks |
//! | 8 | locks | txn, number of locks, locks: those that a prepare record which follows lacks, because they are many |
//! | 9 | prepare | txn, external id (string), origin, number of locks, locks |
//!
//! An origin: when the transaction began (milliseconds since 1970 began), isolation level (u8: 0 read uncommitted, 1 read committed,
//! 2 repeatable read, 3 serializable), messages that it had written.
//!
//! A lock: tree, flags (1 exclusive, 2 range), key (string), for a range also its end (string, empty: none).
//!
//! ```
//! use fronddb::base::{CommitNumber, Lsn, TxnId};
//! use fronddb::format::record::Record;
//! let mut bytes = Vec::new();
//! Record::Commit { txn: TxnId(300), number: CommitNumber(7) }.encode(&mut bytes);
//! assert_eq!(bytes, [3, 0xac, 2, 7]);
//! assert!(matches!(Record::decode(Lsn(0), &bytes), Ok(Record::Commit { txn: TxnId(300), .. })));
//! ```

pub mod batch;
#[cfg(test)]
mod tests;
pub mod turned;

pub use batch::{MessageBatch, Messages};

use super::{RangeDelete, Stamp};
use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::{CommitNumber, Error, Lsn, Result, TreeId, TxnId};

pub(crate) const MESSAGES: u8 = 1;
const RANGE_DELETE: u8 = 2;
const COMMIT: u8 = 3;
pub(crate) const COMMIT_WITH_MESSAGES: u8 = 4;
const ABORT: u8 = 5;
const ABORT_STEPS: u8 = 6;
const PREPARE: u8 = 7;
const LOCKS: u8 = 8;
const PREPARE_WITH_ORIGIN: u8 = 9;

const ISOLATION_MAX: u8 = 3;

const LOCK_EXCLUSIVE: u8 = 1;
const LOCK_RANGE: u8 = 2;
/// Fewest bytes of a stored lock: tree, flags, empty key.
const LOCK_BYTES_MIN: usize = 3;

/// A decoded record, borrowing from its bytes.
#[derive(Debug, Clone)]
pub enum Record<'a> {
    /// Messages of a transaction that goes on.
    Messages(Messages<'a>),
    /// A transaction deletes an interval of keys.
    RangeDelete {
        /// The transaction.
        txn: TxnId,
        /// Its step.
        step: u32,
        /// Lowest inner key deleted.
        start: &'a [u8],
        /// Lowest inner key above `start` that is not deleted.
        end: &'a [u8],
        /// The record's position: what is older is deleted.
        seq: u64,
    },
    /// A transaction commits, prepared or not.
    Commit {
        /// The transaction.
        txn: TxnId,
        /// Its place in the order of commits.
        number: CommitNumber,
    },
    /// A transaction's last messages and its commit in one.
    CommitWithMessages {
        /// Its place in the order of commits.
        number: CommitNumber,
        /// Its last messages; they also name the transaction.
        messages: Messages<'a>,
    },
    /// A transaction, prepared or not, is rolled back.
    Abort {
        /// The transaction.
        txn: TxnId,
    },
    /// Some steps of a transaction are rolled back.
    AbortSteps {
        /// The transaction.
        txn: TxnId,
        /// First step rolled back.
        from: u32,
        /// Last step rolled back.
        to: u32,
    },
    /// A transaction can be committed by its external id, also after a restart.
    Prepare {
        /// The transaction.
        txn: TxnId,
        /// The name that a transaction coordinator gave it.
        external_id: &'a [u8],
        /// `None` in a record of before log format 4.
        origin: Option<Origin>,
        /// What it has locked; with the records of locks before it, as far as they follow the transaction's last prepare record.
        locks: PreparedLocks<'a>,
    },
    /// Some of the locks of a prepare record that follows.
    Locks {
        /// The transaction.
        txn: TxnId,
        /// What it has locked.
        locks: PreparedLocks<'a>,
    },
}

/// What is kept of a prepared transaction's life before it was prepared, for who looks at it and finds no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// When it began: milliseconds since 1970 began, by the wall clock.
    pub began_ms: u64,
    /// Its isolation level by number (see the header), 3 at most.
    pub isolation: u8,
    /// Messages that it had written.
    pub messages: u64,
}

/// A lock that a prepared transaction holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreparedLock<'a> {
    /// The tree.
    pub tree: TreeId,
    /// True for exclusive, false for shared.
    pub exclusive: bool,
    /// The user key locked, or the lowest one of the range.
    pub key: &'a [u8],
    /// `None`: the lock is of one key. Otherwise the lowest user key above the range, empty for no bound.
    pub end: Option<&'a [u8]>,
}

/// The locks of a [`Record::Prepare`] or [`Record::Locks`]; an iterator over checked bytes.
#[derive(Debug, Clone)]
pub struct PreparedLocks<'a> {
    decoder: Decoder<'a>,
    left: usize,
}

impl<'a> Record<'a> {
    /// Reads the record at `lsn`. Messages inside are read later, one by one.
    ///
    /// # Errors
    /// `Corruption` when the bytes are not a record.
    pub fn decode(lsn: Lsn, bytes: &'a [u8]) -> Result<Record<'a>> {
        decode(lsn, bytes).map_err(|error| error.context(format!("log record, lsn={lsn}")))
    }

    /// Appends the record to `out`. Records with messages are written by [`MessageBatch`], [`encode_prepare`] and [`encode_locks`] write
    /// records of locks from a list; here they are copied as they are.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Messages(messages) => {
                out.push(MESSAGES);
                put_varint(out, messages.txn().0);
                put_varint(out, u64::from(messages.step()));
                out.extend_from_slice(messages.encoded());
            }
            Record::RangeDelete { txn, step, start, end, .. } => {
                out.push(RANGE_DELETE);
                put_varint(out, txn.0);
                put_varint(out, u64::from(*step));
                put_bytes(out, start);
                put_bytes(out, end);
            }
            Record::Commit { txn, number } => {
                out.push(COMMIT);
                put_varint(out, txn.0);
                put_varint(out, number.0);
            }
            Record::CommitWithMessages { number, messages } => {
                out.push(COMMIT_WITH_MESSAGES);
                put_varint(out, messages.txn().0);
                put_varint(out, u64::from(messages.step()));
                put_varint(out, number.0);
                out.extend_from_slice(messages.encoded());
            }
            Record::Abort { txn } => {
                out.push(ABORT);
                put_varint(out, txn.0);
            }
            Record::AbortSteps { txn, from, to } => {
                out.push(ABORT_STEPS);
                put_varint(out, txn.0);
                put_varint(out, u64::from(*from));
                put_varint(out, u64::from(*to));
            }
            Record::Prepare { txn, external_id, origin, locks } => {
                encode_prepare(out, *txn, external_id, *origin, locks.clone());
            }
            Record::Locks { txn, locks } => encode_locks(out, *txn, locks.clone()),
        }
    }

    /// The transaction that the record is about.
    pub fn txn(&self) -> TxnId {
        match self {
            Record::Messages(messages) | Record::CommitWithMessages { messages, .. } => messages.txn(),
            Record::RangeDelete { txn, .. }
            | Record::Commit { txn, .. }
            | Record::Abort { txn }
            | Record::AbortSteps { txn, .. }
            | Record::Prepare { txn, .. }
            | Record::Locks { txn, .. } => *txn,
        }
    }

    /// The range-delete as a memtable takes it; `None` for other records.
    pub fn to_range_delete(&self) -> Option<RangeDelete> {
        match self {
            Record::RangeDelete { txn, step, start, end, seq } => Some(RangeDelete {
                start: start.to_vec(),
                end: end.to_vec(),
                seq: *seq,
                stamp: Stamp::Written { txn: *txn, step: *step },
            }),
            _ => None,
        }
    }
}

/// Appends a [`Record::Prepare`] to `out`; without an origin that of before log format 4.
pub fn encode_prepare<'l>(
    out: &mut Vec<u8>,
    txn: TxnId,
    external_id: &[u8],
    origin: Option<Origin>,
    locks: impl ExactSizeIterator<Item = PreparedLock<'l>>,
) {
    out.push(if origin.is_some() { PREPARE_WITH_ORIGIN } else { PREPARE });
    put_varint(out, txn.0);
    put_bytes(out, external_id);
    if let Some(origin) = origin {
        put_varint(out, origin.began_ms);
        out.push(origin.isolation);
        put_varint(out, origin.messages);
    }
    put_locks(out, locks);
}

/// Appends a [`Record::Locks`] to `out`.
pub fn encode_locks<'l>(out: &mut Vec<u8>, txn: TxnId, locks: impl ExactSizeIterator<Item = PreparedLock<'l>>) {
    out.push(LOCKS);
    put_varint(out, txn.0);
    put_locks(out, locks);
}

fn put_locks<'l>(out: &mut Vec<u8>, locks: impl ExactSizeIterator<Item = PreparedLock<'l>>) {
    put_varint(out, locks.len() as u64);
    for lock in locks {
        put_varint(out, u64::from(lock.tree.0));
        let exclusive = if lock.exclusive { LOCK_EXCLUSIVE } else { 0 };
        let range = if lock.end.is_some() { LOCK_RANGE } else { 0 };
        out.push(exclusive | range);
        put_bytes(out, lock.key);
        if let Some(end) = lock.end {
            put_bytes(out, end);
        }
    }
}

fn decode<'a>(lsn: Lsn, bytes: &'a [u8]) -> Result<Record<'a>> {
    let mut decoder = Decoder::new(bytes);
    let number = decoder.u8()?;
    let txn = TxnId(decoder.varint()?);
    let record = match number {
        MESSAGES => {
            let step = decoder.varint_u32()?;
            Record::Messages(Messages::new(lsn, txn, step, decoder.rest()))
        }
        RANGE_DELETE => {
            let (step, start, end) = (decoder.varint_u32()?, decoder.bytes()?, decoder.bytes()?);
            if start >= end {
                return Err(Error::corruption("range-delete is empty"));
            }
            Record::RangeDelete { txn, step, start, end, seq: lsn.0 }
        }
        COMMIT => Record::Commit { txn, number: CommitNumber(decoder.varint()?) },
        COMMIT_WITH_MESSAGES => {
            let step = decoder.varint_u32()?;
            let number = CommitNumber(decoder.varint()?);
            Record::CommitWithMessages { number, messages: Messages::new(lsn, txn, step, decoder.rest()) }
        }
        ABORT => Record::Abort { txn },
        ABORT_STEPS => {
            let (from, to) = (decoder.varint_u32()?, decoder.varint_u32()?);
            if from > to {
                return Err(Error::corruption(format!("aborted steps are reversed, from={from} to={to}")));
            }
            Record::AbortSteps { txn, from, to }
        }
        PREPARE | PREPARE_WITH_ORIGIN => {
            let external_id = decoder.bytes()?;
            let has_origin = number == PREPARE_WITH_ORIGIN;
            let origin = if has_origin { Some(decode_origin(&mut decoder)?) } else { None };
            Record::Prepare { txn, external_id, origin, locks: decode_locks(&mut decoder)? }
        }
        LOCKS => Record::Locks { txn, locks: decode_locks(&mut decoder)? },
        _ => return Err(Error::corruption(format!("unknown record, number={number}"))),
    };
    decoder.finish()?;
    Ok(record)
}

fn decode_origin(decoder: &mut Decoder<'_>) -> Result<Origin> {
    let origin = Origin { began_ms: decoder.varint()?, isolation: decoder.u8()?, messages: decoder.varint()? };
    if origin.isolation > ISOLATION_MAX {
        return Err(Error::corruption(format!("unknown isolation level, number={}", origin.isolation)));
    }
    Ok(origin)
}

fn decode_locks<'a>(decoder: &mut Decoder<'a>) -> Result<PreparedLocks<'a>> {
    let left = decoder.count(LOCK_BYTES_MIN)?;
    let locks = PreparedLocks { decoder: decoder.clone(), left };
    for _ in 0..left {
        decode_lock(decoder)?;
    }
    Ok(locks)
}

fn decode_lock<'a>(decoder: &mut Decoder<'a>) -> Result<PreparedLock<'a>> {
    let tree = TreeId(decoder.varint_u32()?);
    let flags = decoder.u8()?;
    if flags & !(LOCK_EXCLUSIVE | LOCK_RANGE) != 0 {
        return Err(Error::corruption(format!("unknown lock flags, flags={flags}")));
    }
    let key = decoder.bytes()?;
    let end = if flags & LOCK_RANGE != 0 { Some(decoder.bytes()?) } else { None };
    Ok(PreparedLock { tree, exclusive: flags & LOCK_EXCLUSIVE != 0, key, end })
}

impl<'a> Iterator for PreparedLocks<'a> {
    type Item = PreparedLock<'a>;

    fn next(&mut self) -> Option<PreparedLock<'a>> {
        self.left = self.left.checked_sub(1)?;
        decode_lock(&mut self.decoder).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for PreparedLocks<'_> {}
