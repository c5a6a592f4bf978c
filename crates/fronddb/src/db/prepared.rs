//! Prepared transactions: the time between the two phases of a distributed commit.
//!
//! A prepared transaction has no session. It keeps its id, its locks and its place in the status table until it is
//! decided by its external id, across restarts too: its prepare record carries its locks; where they are many, most are in records before that one,
//! within the same hold of `switching` or of the gate, so that no checkpoint parts them. Because the log in front
//! of a checkpoint is thrown away, the log behind each seal repeats the prepare records of all undecided
//! transactions: mostly at its very beginning, while the gate is held exclusively ([`Engine::log_prepared_again`]).
//!
//! Before that it may give back what it has locked and not written ([`TxnCore::release_unwritten`]): nobody knows how long the decision
//! takes. What it has written is found by looking at its locked keys as anybody else would, who meets an undecided change there.
//!
//! The prepare record also says when the transaction began, at which isolation level, and how much it has written ([`Origin`]), for who
//! looks for a transaction that nobody decides. Where the record does not say so, which is one of a version before, the opening makes an
//! origin up, and what is logged from then on has that.
//!
//! One caller at a time decides a transaction ([`PreparedTable::claim`]); whoever wants to decide it meanwhile waits to hear what became of that, so
//! that "no such transaction" says that it is decided, and never that it may be.
//!
//! On failure: a decision whose record the log has no room for is `NoSpace`, and the transaction stays prepared, with its locks. So it
//! does if what it changes in the catalog cannot be read just now. Once its record is written, it is decided.
//!
//! # Many locks
//!
//! Of a branch with millions of locks these are more than 100 MiB. When it prepares, all but the last record are written beside writers
//! (Z2, Z4). Where they are more than the log's ring takes at once, a seal leaves them for later, and the next flush writes them first, beside
//! writers again ([`Engine::log_prepared_later`]):
//!
//! - Z1: until they are written the memtable that was sealed stays in level 0 ([`crate::tree::BeTree::hold_memtables_before`]). So no
//!   publication begins replay behind the records before, a crash finds those, and what there is of the new ones says nothing else.
//! - Z2: no seal comes while they are written, because `switching` is held: they lie in the log of one memtable.
//! - Z3: a transaction may be decided meanwhile. Its records may lie behind its end in the log then, and replay passes them over, also
//!   where its name is another's by then (`replay_prepare` of [`crate::txn`]). They may lack locks that were given back: that comes
//!   after the end is logged.
//! - Z4: each is written out before the next is appended, so that the ring has room for others.
//!
//! On a full disk they are written under the gate whatever they are, into the segment that is kept for them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::catalog::CatalogChanges;
use super::core::{TxnCore, Writer};
use super::cursor::user_key;
use super::engine::Engine;
use super::monitor::{PreparedInfo, TransactionInfo};
use super::options::{Durability, Isolation};
use crate::base::key::{inner, tree_end};
use crate::base::sync::{Condvar, Mutex};
use crate::base::{CommitNumber, Error, ErrorKind, Lsn, Result, TxnId};
use crate::format::record::{Origin, PreparedLock, Record, encode_locks, encode_prepare};
use crate::format::visibility::Uncommitted;
use crate::lock::{HeldLock, Mode};
use crate::log::Log;
use crate::store::ShrinkLimits;
use crate::tree::cursor::check_stop;
use crate::tree::{CursorOptions, Wanted};
use crate::txn::Prepared;

/// Longest external id, in bytes.
pub(crate) const XID_BYTES_MAX: usize = 160;

/// What this process knows of prepared transactions beyond their status.
#[derive(Debug, Default)]
pub(crate) struct PreparedTable {
    entries: Mutex<HashMap<Vec<u8>, Entry>>,
    /// Somebody has decided one, or given that up.
    decided: Condvar,
    /// Something was prepared since the last seal.
    is_used: AtomicBool,
}

#[derive(Debug)]
struct Entry {
    txn: TxnId,
    origin: Origin,
    /// `None` for one that was prepared before the database was opened.
    catalog: Option<CatalogChanges>,
    /// Somebody is committing it or rolling it back.
    deciding: bool,
    /// Bytes of the records of its locks, about.
    bytes: usize,
}

/// What the log says of a prepared transaction.
#[derive(Debug, Default)]
pub(crate) struct LoggedPrepare {
    pub(crate) origin: Option<Origin>,
    pub(crate) locks: Vec<HeldLock>,
}

impl PreparedTable {
    /// Takes in a transaction that recovery found prepared. Where the log does not say when it began, it did so now, at `wall_ms`.
    pub(crate) fn recovered(&self, prepared: &Prepared, logged: &LoggedPrepare, wall_ms: u64) {
        let bytes = logged.locks.iter().map(bytes_of).sum();
        let unknown = Origin { began_ms: wall_ms, isolation: number_of(Isolation::default()), messages: 0 };
        let origin = logged.origin.unwrap_or(unknown);
        let entry = Entry { txn: prepared.txn, origin, catalog: None, deciding: false, bytes };
        self.entries.lock().insert(prepared.xid.clone(), entry);
    }

    /// Bytes of the records of all undecided transactions, about: as they are before the log compresses them.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.lock().values().map(|entry| entry.bytes).sum()
    }

    fn is_undecided(&self, xid: &[u8], txn: TxnId) -> bool {
        self.entries.lock().get(xid).is_some_and(|entry| entry.txn == txn)
    }

    fn undecided(&self) -> Vec<(TxnId, Vec<u8>, Origin)> {
        self.entries.lock().iter().map(|(xid, entry)| (entry.txn, xid.clone(), entry.origin)).collect()
    }

    /// Claims a prepared transaction, so that only one caller decides it. It stays listed until it is decided, because a new segment needs its
    /// record as long as its end is not logged.
    pub(crate) fn claim(&self, xid: &[u8]) -> Result<Claim<'_>> {
        let mut entries = self.entries.lock();
        loop {
            match entries.get_mut(xid) {
                Some(entry) if entry.deciding => self.decided.wait(&mut entries),
                Some(entry) => {
                    entry.deciding = true;
                    let (txn, is_recovered) = (entry.txn, entry.catalog.is_none());
                    return Ok(Claim { table: self, xid: xid.to_vec(), txn, is_recovered, is_decided: false });
                }
                None => return Err(Error::new(ErrorKind::NotFound, "no such prepared transaction")),
            }
        }
    }
}

/// The right to decide a prepared transaction. Who drops it without having done so has given that up.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    table: &'a PreparedTable,
    xid: Vec<u8>,
    txn: TxnId,
    /// It was prepared before the database was opened.
    is_recovered: bool,
    is_decided: bool,
}

impl Claim<'_> {
    /// The decision is in the log. Returns what the transaction has changed in the catalog, as far as that was known.
    pub(crate) fn decided(mut self) -> Option<CatalogChanges> {
        self.is_decided = true;
        let entry = self.table.entries.lock().remove(&self.xid);
        entry.and_then(|entry| entry.catalog)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.is_decided
            && let Some(entry) = self.table.entries.lock().get_mut(&self.xid)
        {
            entry.deciding = false;
        }
        self.table.decided.notify_all();
    }
}

/// Locks of one record, in bytes or a little more, at most; less where the log's memory is small: a record that is large for that
/// keeps everybody waiting, and leaves no room in its segment.
const LOCKS_BYTES: usize = 256 << 10;
/// What a record has beside its locks, at most.
const BESIDE_LOCKS_BYTES: usize = XID_BYTES_MAX + 48;

fn stored(locks: &[HeldLock]) -> impl ExactSizeIterator<Item = PreparedLock<'_>> {
    locks.iter().map(|lock| PreparedLock {
        tree: lock.tree,
        exclusive: lock.mode == Mode::Exclusive,
        key: &lock.low,
        end: lock.high.as_deref(),
    })
}

/// What a lock takes in a record, or a little more.
fn bytes_of(lock: &HeldLock) -> usize {
    lock.low.len() + lock.high.as_ref().map_or(0, Vec::len) + 16
}

/// The records by which a transaction that holds `locks` is prepared, that of the prepare last.
fn records(log: &Log, txn: TxnId, xid: &[u8], origin: Origin, locks: &[HeldLock]) -> impl Iterator<Item = Vec<u8>> {
    let bytes_max = LOCKS_BYTES.min(log.shared_record_bytes_max().saturating_sub(BESIDE_LOCKS_BYTES));
    let mut rest = Some(locks);
    std::iter::from_fn(move || {
        let locks = rest.take()?;
        let mut bytes = 0;
        let is_too_much = |lock: &HeldLock| {
            let is_first = bytes == 0;
            bytes += bytes_of(lock);
            !is_first && bytes > bytes_max
        };
        let (now, later) = locks.split_at(locks.iter().position(is_too_much).unwrap_or(locks.len()));
        let mut record = Vec::with_capacity(bytes + BESIDE_LOCKS_BYTES);
        if later.is_empty() {
            encode_prepare(&mut record, txn, xid, Some(origin), stored(now));
        } else {
            encode_locks(&mut record, txn, stored(now));
            rest = Some(later);
        }
        Some(record)
    })
}

/// The stored number of an isolation level.
fn number_of(isolation: Isolation) -> u8 {
    match isolation {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
        Isolation::RepeatableRead => 2,
        Isolation::Serializable => 3,
    }
}

/// The isolation level of a stored number; there is no other one.
fn isolation_of(number: u8) -> Isolation {
    match number {
        0 => Isolation::ReadUncommitted,
        1 => Isolation::ReadCommitted,
        2 => Isolation::RepeatableRead,
        _ => Isolation::Serializable,
    }
}

/// A lock of a prepare record, as the lock table takes it.
pub(crate) fn held(lock: &PreparedLock<'_>) -> HeldLock {
    HeldLock {
        tree: lock.tree,
        low: lock.key.to_vec(),
        high: lock.end.map(<[u8]>::to_vec),
        mode: if lock.exclusive { Mode::Exclusive } else { Mode::Shared },
    }
}

/// All locks of a transaction, of which most stand in records before that of the prepare. There they may stand twice: where writing them
/// again had been begun before, and had not come to its end.
pub(crate) fn all_held(before: Vec<HeldLock>, last: Vec<HeldLock>) -> Vec<HeldLock> {
    let mut all = before;
    all.extend(last);
    all.sort_unstable();
    all.dedup();
    all
}

fn expect_unused(entries: &HashMap<Vec<u8>, Entry>, xid: &[u8]) -> Result<()> {
    if entries.contains_key(xid) {
        return Err(Error::new(ErrorKind::KeyExists, "external id is in use by a prepared transaction"));
    }
    Ok(())
}

/// Keys that are looked at, at most, for what the transaction has written there, and that are found; and how long that may take: it may have to
/// read them from the disk, while everybody waits. Locks on others are kept.
const LOOKED_MAX: u64 = 1 << 20;
const FOUND_MAX: usize = 64 << 10;
const LOOK_TIME_MAX: Duration = Duration::from_millis(500);
/// So many rows of a range from one look at the clock to the next.
const ROWS_BETWEEN_CLOCKS: u64 = 64;

impl TxnCore {
    /// What its prepare record is to tell of it.
    pub(super) fn origin(&self) -> Origin {
        let clock = &self.engine.clock;
        let age_ms = clock.micros().saturating_sub(self.began_micros) / 1000;
        Origin {
            began_ms: clock.wall_ms().saturating_sub(age_ms),
            isolation: number_of(self.options.isolation),
            messages: self.messages(),
        }
    }

    /// Gives back the locks of keys that the transaction has not written.
    pub(crate) fn release_unwritten(&self) -> Result<()> {
        let mut state = self.active()?;
        if state.has_deleted_ranges || !state.catalog.is_empty() {
            return Ok(()); // of these there is no message at each key
        }
        let Some(writer) = state.writer.clone() else { return Ok(()) };
        let mut left = Left { looks: LOOKED_MAX, finds: FOUND_MAX, until: Instant::now() + LOOK_TIME_MAX };
        let mut kept = Vec::new();
        for lock in writer.locker.export() {
            if lock.mode == Mode::Exclusive {
                check_stop(&self.cancelled)?;
                self.keep_written(writer.txn, lock, &mut left, &mut kept)?;
            }
        }
        kept.sort_unstable();
        kept.dedup();
        let locker = writer.locker.keep_only(&kept);
        state.writer = Some(Writer { locker, ..writer });
        state.statement.fresh.clear();
        Ok(())
    }

    /// What is to be kept of an exclusive lock: the keys in it that `txn` has written; all of it where that is too much to look for.
    fn keep_written(&self, txn: TxnId, lock: HeldLock, left: &mut Left, kept: &mut Vec<HeldLock>) -> Result<()> {
        let engine = &self.engine;
        // Others go on meanwhile, and level 0 is to keep what it comes down to.
        let _kept = engine.snapshots.acquire();
        if left.is_used_up() {
            kept.push(lock);
            return Ok(());
        }
        let Some(high) = &lock.high else {
            left.looks -= 1;
            let (version, key) = (engine.tree.version_guard(), inner(lock.tree, &lock.low));
            let is_written = engine.tree.is_changed_by(&version, &engine.latest(), &key, txn);
            if is_written.inspect_err(|error| engine.events.damage(error))? {
                kept.push(lock);
            }
            return Ok(());
        };
        let upper = if high.is_empty() { tree_end(lock.tree) } else { inner(lock.tree, high) };
        let view = engine.owned_view(CommitNumber::LATEST, None, Uncommitted::Hidden);
        let options = CursorOptions { wanted: Wanted::Nothing, ..CursorOptions::default() };
        let (lower, upper) = (inner(lock.tree, &lock.low), Some(upper).filter(|upper| !upper.is_empty()));
        let mut cursor = engine.tree.cursor(view, lower, upper, options);
        cursor.stop_when(self.cancelled.clone());
        cursor.give_up_after(left.looks);
        cursor.collect_undecided(txn, left.finds);
        let mut rows = 0;
        let mut found = cursor.first()?;
        while found && rows < left.looks && cursor.collected().len() <= left.finds {
            if rows.is_multiple_of(ROWS_BETWEEN_CLOCKS) && left.is_used_up() {
                break;
            }
            rows += 1;
            found = cursor.next()?;
        }
        left.looks = left.looks.saturating_sub(rows);
        let written = cursor.collected();
        if found || cursor.gave_up() || written.len() > left.finds {
            kept.push(lock);
            return Ok(());
        }
        left.finds -= written.len();
        let point = |key: &Vec<u8>| HeldLock { low: user_key(key).to_vec(), high: None, ..lock.clone() };
        kept.extend(written.iter().map(point));
        Ok(())
    }
}

/// How much may yet be looked at, and found.
struct Left {
    looks: u64,
    finds: usize,
    until: Instant,
}

impl Left {
    fn is_used_up(&self) -> bool {
        self.looks == 0 || Instant::now() >= self.until
    }
}

impl Engine {
    /// Prepares; returns the end of the record, which must become durable before the caller hears of it.
    pub(crate) fn prepare(
        &self,
        writer: &Writer,
        xid: &[u8],
        origin: Origin,
        catalog: &mut CatalogChanges,
    ) -> Result<Lsn> {
        if xid.is_empty() || xid.len() > XID_BYTES_MAX {
            return Err(Error::invalid(format!(
                "external id out of range, bytes={} bytes_max={XID_BYTES_MAX}",
                xid.len()
            )));
        }
        let log = self.log()?;
        let locks = self.locks.export(writer.txn);
        let bytes = locks.iter().map(bytes_of).sum();
        let mut records: Vec<_> = records(log, writer.txn, xid, origin, &locks).collect();
        let last = records.pop().unwrap_or_default();
        let switching = (!records.is_empty()).then(|| self.switching.lock());
        if switching.is_some() {
            expect_unused(&self.prepared.entries.lock(), xid)?;
            for record in &records {
                self.log_beside_writers(log, record)?;
            }
        }
        let _gate = self.pass_gate()?;
        let mut entries = self.prepared.entries.lock();
        expect_unused(&entries, xid)?;
        self.prepared.is_used.store(true, Ordering::Relaxed);
        self.keep_segment(log)?;
        let mut end = Lsn(0);
        let prepared = self.statuses.prepare_with(writer.txn, xid, || {
            let appended = log.append(&last)?;
            end = appended.end;
            Ok(appended.lsn)
        });
        self.logged(prepared)?;
        self.counters.here().log_records.add(1 + records.len() as u64);
        self.counters.here().log_bytes.add((records.iter().map(Vec::len).sum::<usize>() + last.len()) as u64);
        let catalog = Some(std::mem::take(catalog));
        entries.insert(xid.to_vec(), Entry { txn: writer.txn, origin, catalog, deciding: false, bytes });
        Ok(end)
    }

    /// While transactions are prepared, a log segment is kept for their records, so that level 0 can be sealed on a full disk, as long as they fit into
    /// one; until nothing was prepared between two seals.
    fn keep_segment(&self, log: &Log) -> Result<()> {
        if log.is_keeping_segment() {
            return Ok(());
        }
        let kept = log.keep_segment(true);
        if kept.is_err() {
            self.logged(log.keep_segment(false))?;
        }
        self.logged(kept)
    }

    /// The same for those that recovery found: then the segment may come later, from who keeps segments ready. Nothing else waits for it.
    pub(crate) fn keep_segment_for_recovered(&self) -> Result<()> {
        match &self.log {
            Some(log) if self.prepared_count() > 0 => match self.logged(log.keep_segment(true)) {
                Err(error) if error.lacks_room() => Ok(()),
                kept => kept,
            },
            _ => Ok(()),
        }
    }

    /// Whether their records have to be written again behind the next seal; keeps no segment when there have been none for long.
    pub(crate) fn has_prepared_to_log(&self, log: &Log) -> Result<bool> {
        let has_prepared = self.prepared_count() > 0;
        if !self.prepared.is_used.swap(has_prepared, Ordering::Relaxed) && !has_prepared {
            self.logged(log.keep_segment(false))?;
        }
        Ok(has_prepared)
    }

    /// The prepare records of all undecided transactions. Very many locks take a while to be written down, so this is done before the
    /// gate is taken: a transaction that is still listed under the gate has lost none of them.
    pub(crate) fn prepared_records(&self) -> Result<HashMap<TxnId, Vec<Vec<u8>>>> {
        let log = self.log()?;
        let undecided = self.prepared.undecided().into_iter();
        let made = |(txn, xid, origin): (_, Vec<u8>, _)| {
            (txn, records(log, txn, &xid, origin, &self.locks.export(txn)).collect())
        };
        Ok(undecided.map(made).collect())
    }

    /// Whether the records of all undecided transactions are so many that writers should not wait for them, and the disk is not full.
    pub(crate) fn is_prepared_logged_later(&self, log: &Log) -> bool {
        self.prepared.bytes() > log.shared_record_bytes_max() && !self.was_disk_full_lately()
    }

    /// Writes what a seal has left for later, beside writers; then memtables may leave level 0 (Z1 to Z4). On failure it is still to be
    /// written: what there is of it does no harm.
    pub(crate) fn log_prepared_later(&self) -> Result<()> {
        if !self.tree.holds_memtables() {
            return Ok(());
        }
        let log = self.log()?;
        let _switching = self.switching.lock();
        // Others may have done it.
        let undecided = if self.tree.holds_memtables() { self.prepared.undecided() } else { Vec::new() };
        for (txn, xid, origin) in undecided {
            let locks = self.locks.export(txn);
            let is_undecided = |_: &Vec<u8>| self.prepared.is_undecided(&xid, txn);
            for record in records(log, txn, &xid, origin, &locks).take_while(is_undecided) {
                let bytes = self.log_beside_writers(log, &record)?;
                self.note_repeated_bytes(bytes);
            }
        }
        self.tree.let_memtables_go();
        Ok(())
    }

    /// Appends one of many records of locks, and waits until it is written out (Z4). Returns its bytes in the log. `switching` is held (Z2).
    fn log_beside_writers(&self, log: &Log, record: &[u8]) -> Result<u64> {
        let gate = self.pass_gate()?;
        let appended = self.logged(log.append(record))?;
        drop(gate);
        self.logged(log.wait_written(appended.end))?;
        Ok(appended.end.0 - appended.lsn.0)
    }

    /// Writes the prepare records of all undecided transactions again; those that are `made` need not be made. The gate is held
    /// exclusively and a new segment has just begun.
    pub(crate) fn log_prepared_again(&self, made: &HashMap<TxnId, Vec<Vec<u8>>>) -> Result<()> {
        let log = self.log()?;
        let append = |records: &[Vec<u8>]| records.iter().try_for_each(|record| log.append(record).map(|_| ()));
        for (xid, entry) in self.prepared.entries.lock().iter() {
            self.logged(match made.get(&entry.txn) {
                Some(records) => append(records),
                None => {
                    let locks = self.locks.export(entry.txn);
                    append(&records(log, entry.txn, xid, entry.origin, &locks).collect::<Vec<_>>())
                }
            })?;
        }
        Ok(())
    }

    /// The same at an opening, which has begun a segment. A full disk may have no space for a usual one: then one of just their size will do, for which
    /// the data file gives free space back if need be; no more than that, because level 0, which recovery has just built, is to be written to the rest.
    pub(crate) fn log_prepared_at_opening(&self) -> Result<()> {
        let lacks_space = |outcome: &Result<()>| matches!(outcome, Err(error) if error.kind() == ErrorKind::NoSpace);
        let records = self.prepared_records()?;
        let mut logged = self.log_prepared_again(&records);
        if lacks_space(&logged) {
            let log = self.log()?;
            let bytes: u64 = records.values().flatten().map(|record| Log::bytes_of(record.len())).sum();
            let mut prepared = log.prepare_small(bytes);
            let step_bytes = log.small_file_bytes(bytes);
            let limits = ShrinkLimits { step_bytes, keep_bytes: 0, ..ShrinkLimits::default() };
            let mut is_done = false;
            while lacks_space(&prepared) && !is_done {
                // The disk may not have held what it was given back.
                is_done = self.shrink_step(limits)?.is_done;
                prepared = log.prepare_small(bytes);
            }
            prepared?;
            logged = self.log_prepared_again(&records);
        }
        logged?;
        self.note_repeated();
        Ok(())
    }

    pub(crate) fn prepared_list(&self) -> Vec<PreparedInfo> {
        let entries = self.prepared.entries.lock();
        let mut list: Vec<_> = entries
            .iter()
            .map(|(xid, entry)| PreparedInfo { xid: xid.clone(), txn: entry.txn, recovered: entry.catalog.is_none() })
            .collect();
        list.sort_by_key(|info| info.txn);
        list
    }

    /// The same, as open ones are shown.
    pub(crate) fn prepared_transactions(&self) -> Vec<TransactionInfo> {
        let now = self.clock.wall_ms();
        let shown = |Entry { txn, origin, .. }: &Entry| TransactionInfo {
            id: 0,
            txn: Some(*txn),
            isolation: isolation_of(origin.isolation),
            age_ms: now.saturating_sub(origin.began_ms),
            messages: origin.messages,
            prepared: true,
        };
        let mut list: Vec<_> = self.prepared.entries.lock().values().map(shown).collect();
        list.sort_by_key(|info| info.txn);
        list
    }

    pub(crate) fn prepared_count(&self) -> usize {
        self.prepared.entries.lock().len()
    }

    /// Aborts a prepared transaction. Unlike that of another one its abort must be in the log: without it a restart would
    /// find the transaction prepared again.
    fn abort_logged(&self, txn: TxnId) -> Result<()> {
        let log = self.log()?;
        let _gate = self.pass_gate()?;
        let memtable = self.tree.version_guard().active.id();
        let append = || self.append_small(log, &Record::Abort { txn }).map(|appended| appended.lsn);
        let aborted = self.statuses.abort_with(txn, memtable, append);
        self.logged(aborted).map(|_| ())
    }

    pub(crate) fn commit_prepared(&self, xid: &[u8], durability: Durability) -> Result<()> {
        self.check_open()?;
        let started = self.clock.micros();
        // That there is no such transaction is true whatever state the database is in, and is asked for others' transactions.
        let claim = self.prepared.claim(xid)?;
        self.check_writable()?;
        let txn = claim.txn;
        let read = if claim.is_recovered { self.prepared_changes(txn)? } else { CatalogChanges::default() };
        let end = self.past_full_log(0, || true, || self.commit_logged(txn))?;
        let changes = claim.decided().unwrap_or(read);
        self.apply_catalog(&changes);
        self.locks.release_all(txn);
        self.counters.here().commits.add(1);
        self.wait_committed(end, durability, started)
    }

    pub(crate) fn rollback_prepared(&self, xid: &[u8]) -> Result<()> {
        self.check_open()?;
        let claim = self.prepared.claim(xid)?;
        self.check_writable()?;
        let txn = claim.txn;
        self.past_full_log(0, || true, || self.abort_logged(txn))?;
        let undone = claim.decided().map(|mut changes| changes.undo_from(0)).unwrap_or_default();
        self.undo_catalog(&undone);
        self.locks.release_all(txn);
        self.counters.here().rollbacks.add(1);
        self.logged(self.log()?.sync()).map(|_| ())
    }
}
