//! The stored form of the status table, and replay of the log over it.
//!
//! The image lists what is *not* settled; any other id below the next one is committed and visible to all, for
//! after a restart there are no old snapshots.
//!
//! ```text
//! u8      version, 1
//! varint  next transaction id      varint  next commit number
//! varint  number of open ones,     each: varint id, u8 flags (1: prepared), if prepared: bytes xid
//! varint  number of aborted ones,  each: varint id, varint number of intervals (0: the whole), each: varint from, varint to
//! varint  number of held ones,     each: varint id, varint runs of the root that list it
//! ```
//!
//! Ids ascend in each list. Only open and aborted ids are listed as held: of others nobody asks.
//!
//! Replay is idempotent over the image: a record about an id that the image (or an earlier record) has settled
//! changes nothing, whatever it says, so the log may start before the image. An id is aborted at the end of recovery if it
//! is neither decided nor prepared.

use std::collections::BTreeMap;

use super::backlog::{Backlog, What};
use super::status::{Open, StatusTable, XID_BYTES_MAX};
use super::steps::Steps;
use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::hash::NumberMap;
use crate::base::{CommitNumber, Error, ErrorKind, Result, TxnId};
use crate::format::Status;

const VERSION: u8 = 1;
const PREPARED: u8 = 1;
/// No id or number reaches this.
const NUMBER_MAX: u64 = 1 << 60;

impl StatusTable {
    /// The image. Take it together with the root, under what guards the root's changes (see the header of
    /// `status`), and make the log durable up to here before the image counts.
    pub fn image(&self) -> Vec<u8> {
        let order = self.order.lock();
        let inner = self.inner.lock();
        let mut out = vec![VERSION];
        put_varint(&mut out, inner.next_txn);
        put_varint(&mut out, *order);
        put_varint(&mut out, inner.open.len() as u64);
        for (txn, open) in inner.open_by_id() {
            put_varint(&mut out, txn.0);
            match &open.xid {
                None => out.push(0),
                Some(xid) => {
                    out.push(PREPARED);
                    put_bytes(&mut out, xid);
                }
            }
        }
        put_varint(&mut out, inner.backlog.iter().len() as u64);
        for (txn, what) in inner.backlog.iter() {
            put_varint(&mut out, txn.0);
            let What::Steps(steps) = what else {
                put_varint(&mut out, 0);
                continue;
            };
            put_varint(&mut out, steps.len() as u64);
            for (from, to) in steps.iter() {
                put_varint(&mut out, u64::from(from));
                put_varint(&mut out, u64::from(to));
            }
        }
        let mut held: BTreeMap<TxnId, u32> = BTreeMap::new();
        for txn in inner.open.keys().copied().chain(inner.backlog.held_by(1)) {
            let runs = inner.backlog.runs(txn);
            if runs > 0 {
                held.insert(txn, runs);
            }
        }
        put_varint(&mut out, held.len() as u64);
        for (txn, runs) in held {
            put_varint(&mut out, txn.0);
            put_varint(&mut out, u64::from(runs));
        }
        out
    }

    /// The table that an image describes, ready for replay; end that with [`StatusTable::finish_recovery`].
    ///
    /// # Errors
    /// `UnsupportedFormat` for another version, `Corruption` when it is malformed.
    pub fn restore(image: &[u8]) -> Result<StatusTable> {
        StatusTable::decode(image).map_err(|error| error.context("status image"))
    }

    fn decode(image: &[u8]) -> Result<StatusTable> {
        let mut decoder = Decoder::new(image);
        let version = decoder.u8()?;
        if version != VERSION {
            let message = format!("unknown version, found={version} known={VERSION}");
            return Err(Error::new(ErrorKind::UnsupportedFormat, message));
        }
        let (next_txn, next_commit) = (decoder.varint()?, decoder.varint()?);
        if !(1..NUMBER_MAX).contains(&next_txn) || !(1..NUMBER_MAX).contains(&next_commit) {
            return Err(Error::corruption(format!("impossible counters, txn={next_txn} commit={next_commit}")));
        }
        let mut ids = Ascending { next: next_txn, last: 0 };
        let mut open = NumberMap::default();
        for _ in 0..decoder.count(2)? {
            let txn = ids.read(&mut decoder)?;
            let xid = match decoder.u8()? {
                0 => None,
                PREPARED => Some(decoder.bytes()?.to_vec()),
                flags => return Err(Error::corruption(format!("unknown flags, txn={txn} flags={flags}"))),
            };
            if xid.as_ref().is_some_and(|xid| xid.len() > XID_BYTES_MAX) {
                return Err(Error::corruption(format!("xid too long, txn={txn}")));
            }
            open.insert(txn, Open { xid });
        }
        ids.last = 0;
        let mut backlog = Backlog::default();
        for _ in 0..decoder.count(2)? {
            let txn = ids.read(&mut decoder)?;
            let what = decode_what(&mut decoder)?;
            if what == What::Whole && open.contains_key(&txn) {
                return Err(Error::corruption(format!("both open and aborted, txn={txn}")));
            }
            // Which memtables hold it is known at the end of recovery.
            backlog.put(txn, what, u64::MAX);
        }
        ids.last = 0;
        for _ in 0..decoder.count(2)? {
            let txn = ids.read(&mut decoder)?;
            backlog.set_runs(txn, decoder.varint_u32()?);
        }
        decoder.finish()?;
        Ok(StatusTable::with(next_txn, next_commit, open, backlog))
    }

    /// Replay: a record of `txn` was read. Every record of a transaction may be announced, in any order.
    ///
    /// # Errors
    /// `Corruption` for an impossible id.
    pub fn replay_seen(&self, txn: TxnId) -> Result<()> {
        if !(1..NUMBER_MAX).contains(&txn.0) {
            return Err(Error::corruption(format!("impossible transaction in the log, txn={txn}")));
        }
        let mut inner = self.inner.lock();
        let from = inner.replay_from.ok_or_else(|| Error::internal("replay after the end of recovery"))?;
        let is_new = txn.0 >= from && !inner.open.contains_key(&txn);
        if is_new && (txn.0 >= inner.next_txn || self.is_unseen(txn)) {
            inner.next_txn = inner.next_txn.max(txn.0 + 1);
            self.states.add(txn, from);
            self.states.set(txn, Status::Active);
            inner.open.insert(txn, Open::default());
        }
        Ok(())
    }

    /// True for an id of the replayed log that has no state yet: it was skipped when a higher one was seen.
    fn is_unseen(&self, txn: TxnId) -> bool {
        match self.states.status(txn, 0) {
            Status::Active => true,
            // Its chunk does not exist.
            Status::Committed(number) => number.0 == 0,
            Status::Aborted => false,
        }
    }

    /// Replay of a commit record.
    ///
    /// # Errors
    /// `Corruption` for an impossible id or number, or when it was aborted.
    pub fn replay_commit(&self, txn: TxnId, number: CommitNumber) -> Result<()> {
        if !(1..NUMBER_MAX).contains(&number.0) {
            return Err(Error::corruption(format!("impossible commit in the log, txn={txn} number={number}")));
        }
        self.replay_seen(txn)?;
        let mut order = self.order.lock();
        let inner = self.inner.lock();
        if inner.backlog.get(txn) == Some(&What::Whole) {
            return Err(Error::corruption(format!("commit of an aborted transaction, txn={txn} number={number}")));
        }
        let is_open = inner.open.contains_key(&txn);
        drop(inner);
        *order = (*order).max(number.0 + 1);
        if is_open {
            self.finish_commit(txn, number);
        }
        Ok(())
    }

    /// Replay of an abort record.
    ///
    /// # Errors
    /// `Corruption` for an impossible id.
    pub fn replay_abort(&self, txn: TxnId) -> Result<()> {
        self.replay_seen(txn)?;
        let mut inner = self.inner.lock();
        if inner.open.contains_key(&txn) {
            self.finish_abort(&mut inner, txn, u64::MAX);
        }
        Ok(())
    }

    /// Replay of a rollback to a savepoint.
    ///
    /// # Errors
    /// `Corruption` for an impossible id or interval.
    pub fn replay_abort_steps(&self, txn: TxnId, from: u32, to: u32) -> Result<()> {
        if from > to {
            return Err(Error::corruption(format!(
                "empty interval of steps in the log, txn={txn} from={from} to={to}"
            )));
        }
        self.replay_seen(txn)?;
        let mut inner = self.inner.lock();
        // A decided one: the image has its steps, or has forgotten them.
        if inner.open.contains_key(&txn) {
            self.finish_abort_steps(&mut inner, txn, (from, to), u64::MAX);
        }
        Ok(())
    }

    /// Replay of a prepare record.
    ///
    /// # Errors
    /// `Corruption` for an impossible id, a name too long, or one that another transaction has.
    pub fn replay_prepare(&self, txn: TxnId, xid: &[u8]) -> Result<()> {
        if xid.len() > XID_BYTES_MAX {
            return Err(Error::corruption(format!("xid too long in the log, txn={txn} bytes={}", xid.len())));
        }
        self.replay_seen(txn)?;
        let mut inner = self.inner.lock();
        let is_news = inner.open.get(&txn).is_some_and(|open| open.xid.is_none());
        if !is_news {
            // Decided by what the image knows: its name may have been given to another since.
            return Ok(());
        }
        if inner.xids.contains_key(xid) {
            return Err(Error::corruption(format!("two prepared transactions of one xid, txn={txn}")));
        }
        inner.prepare(txn, xid);
        Ok(())
    }

    /// Ends recovery: what is open and not prepared becomes aborted; those ids are returned. `memtable` is the highest
    /// id of a memtable that was made from the log (or the active one): up to it, aborted messages may lie there.
    pub fn finish_recovery(&self, memtable: u64) -> Vec<TxnId> {
        let mut inner = self.inner.lock();
        let undecided = inner.open_by_id().into_iter().filter(|(_, open)| open.xid.is_none()).map(|(txn, _)| txn);
        let undecided: Vec<TxnId> = undecided.collect();
        for txn in &undecided {
            self.finish_abort(&mut inner, *txn, memtable);
        }
        inner.backlog.set_memtables(memtable);
        if let Some(from) = inner.replay_from.take() {
            // Ids that the log skips never wrote anything.
            self.states.settle_unseen(from..inner.next_txn, |txn| inner.open.contains_key(&txn));
        }
        self.states.add(TxnId(inner.next_txn), 0);
        undecided
    }
}

/// Reads ids that ascend and are below the next.
struct Ascending {
    next: u64,
    last: u64,
}

impl Ascending {
    fn read(&mut self, decoder: &mut Decoder<'_>) -> Result<TxnId> {
        let id = decoder.varint()?;
        if id <= self.last || id >= self.next {
            return Err(Error::corruption(format!("transaction out of order, txn={id} last={}", self.last)));
        }
        self.last = id;
        Ok(TxnId(id))
    }
}

fn decode_what(decoder: &mut Decoder<'_>) -> Result<What> {
    let count = decoder.count(2)?;
    if count == 0 {
        return Ok(What::Whole);
    }
    let (mut steps, mut before) = (Steps::default(), None);
    for _ in 0..count {
        let (from, to) = (decoder.varint_u32()?, decoder.varint_u32()?);
        if from > to || before.is_some_and(|last| from <= last) {
            return Err(Error::corruption(format!("intervals of steps out of order, from={from} to={to}")));
        }
        steps.add(from, to);
        before = Some(to);
    }
    Ok(What::Steps(steps))
}
