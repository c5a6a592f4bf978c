//! What recovery's reading threads collect from the log: messages, and decisions about transactions.

use super::catalog::{self, CATALOG};
use super::prepared::held;
use crate::base::codec::Decoder;
use crate::base::{CommitNumber, Lsn, Result, TxnId, key};
use crate::format::blob::BlobRef;
use crate::format::record::{Messages, Origin, Record};
use crate::lock::HeldLock;
use crate::memtable::SortedPart;
use crate::store::Store;

/// A decision about a transaction, in the log.
#[derive(Debug)]
pub(crate) enum Event {
    Seen(TxnId),
    Commit(TxnId, CommitNumber),
    Abort(TxnId),
    AbortSteps(TxnId, u32, u32),
    Prepare(TxnId, Vec<u8>, Option<Origin>, Vec<HeldLock>),
    /// Locks of a prepare record that follows.
    Locks(TxnId, Vec<HeldLock>),
}

/// What one reading thread collects.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) part: SortedPart,
    pub(crate) events: Vec<(Lsn, Event)>,
    last_seen: Option<TxnId>,
    pub(crate) records: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) next_tree: u32,
}

impl Reading {
    pub(crate) fn new() -> Reading {
        Reading {
            part: SortedPart::new(),
            events: Vec::new(),
            last_seen: None,
            records: 0,
            messages: 0,
            bytes: 0,
            next_tree: 0,
        }
    }

    fn seen(&mut self, lsn: Lsn, txn: TxnId) {
        if self.last_seen != Some(txn) {
            self.last_seen = Some(txn);
            self.events.push((lsn, Event::Seen(txn)));
        }
    }

    pub(crate) fn record(&mut self, store: &Store, lsn: Lsn, bytes: &[u8]) -> Result<()> {
        self.records += 1;
        self.bytes += bytes.len() as u64;
        let record = Record::decode(lsn, bytes)?;
        match record {
            Record::Messages(messages) => self.take(store, lsn, messages)?,
            Record::CommitWithMessages { number, messages } => {
                let txn = messages.txn();
                self.take(store, lsn, messages)?;
                self.events.push((lsn, Event::Commit(txn, number)));
            }
            Record::RangeDelete { txn, .. } => {
                self.seen(lsn, txn);
                self.messages += 1;
                if let Some(range) = record.to_range_delete() {
                    self.part.add_range(range);
                }
            }
            Record::Commit { txn, number } => self.events.push((lsn, Event::Commit(txn, number))),
            Record::Abort { txn } => self.events.push((lsn, Event::Abort(txn))),
            Record::AbortSteps { txn, from, to } => self.events.push((lsn, Event::AbortSteps(txn, from, to))),
            Record::Prepare { txn, external_id, origin, locks } => {
                let locks = locks.map(|lock| held(&lock)).collect();
                self.events.push((lsn, Event::Prepare(txn, external_id.to_vec(), origin, locks)));
            }
            Record::Locks { txn, locks } => {
                self.events.push((lsn, Event::Locks(txn, locks.map(|lock| held(&lock)).collect())));
            }
        }
        Ok(())
    }

    fn take(&mut self, store: &Store, lsn: Lsn, mut messages: Messages<'_>) -> Result<()> {
        self.seen(lsn, messages.txn());
        while let Some(message) = messages.next()? {
            self.messages += 1;
            if message.blob {
                let reference = BlobRef::decode(&mut Decoder::new(message.payload))?;
                reference.extents.iter().try_for_each(|extent| store.mark_used(*extent))?;
            }
            if let Some((CATALOG, row)) = key::split(message.key)
                && let Some(tree) = catalog::id_of_key(row)
            {
                self.next_tree = self.next_tree.max(tree.0.saturating_add(1));
            }
            self.part.add(&message);
        }
        Ok(())
    }
}
