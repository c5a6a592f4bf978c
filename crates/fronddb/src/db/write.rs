//! The write path: decide, prepare, apply.
//!
//! 1. *Decide* ([`super::decide`]): trees exist; admission; every lock is taken; every uniqueness is checked. Here anything may fail.
//! 2. *Prepare*: large values are written to extents of their own; covered writes make sure that no range lock of another
//!    transaction stands where they go ([`super::covered`]).
//! 3. *Apply*: records of at most [`RECORD_BYTES_MAX`] go into the log and from there into the active memtable, each
//!    under the gate. Only the log can fail here, and then the step is aborted.
//!
//! - W1: the sequence number of every message is the position of its log record (seq = LSN).
//! - W2: a record and its messages belong to the memtable that was active when the record was appended: both
//!   happen in one hold of the gate.
//! - W3: writers of one key are ordered by its lock, or by the lock that covers it; so per key the order of
//!   positions is the order of writing.
//! - W4: the space of a large value is not given back when a restart may find the record that names it: not after a record was
//!   appended, and not after a failure of the log other than a refusal.

use std::cell::RefCell;

use super::batch::{Write, WriteBatch};
use super::core::{TxnCore, TxnState, Writer};
use super::covered::CoveredPass;
use super::decide::{Decided, Taken};
use super::engine::Engine;
use super::full_disk::Admitted;
use crate::base::compress::Codec;
use crate::base::{CommitNumber, Error, ErrorKind, Lsn, Result, TreeId, TxnId, scratch};
use crate::format::blob::{BlobRef, reference_bytes_max};
use crate::format::record::{MessageBatch, Record};
use crate::format::{Kind, Message, RangeDelete, Stamp, Uncommitted, View};
use crate::run::write_blob;

/// A batch longer than this becomes several records.
const RECORD_BYTES_MAX: usize = 1 << 20;
/// One that is committed at once shares its record with the commit up to this length: all commits wait while it goes into the log and level 0,
/// where nothing so short is compressed or written to the disk by itself.
const COMMIT_RECORD_BYTES_MAX: usize = 4 << 10;

thread_local! {
    /// Where records are put together; kept for its memory.
    static RECORD: RefCell<MessageBatch> = RefCell::new(MessageBatch::new());
    /// For single writes, which are batches of one.
    static SINGLE: RefCell<WriteBatch> = RefCell::new(WriteBatch::new());
}

/// What a thread keeps of either: one large write must not hold memory for good.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Lends this thread's scratch batch, empty.
pub(crate) fn with_single<T>(use_it: impl FnOnce(&mut WriteBatch) -> Result<T>) -> Result<T> {
    scratch::lend(&SINGLE, WriteBatch::new, |batch| {
        batch.clear();
        let done = use_it(batch);
        if batch.memory_bytes() > KEPT_BYTES_MAX {
            *batch = WriteBatch::new();
        }
        done
    })
}

/// Lends the batch in which this thread puts records together, with whatever is in it.
fn with_record<T>(use_it: impl FnOnce(&mut MessageBatch) -> T) -> T {
    scratch::lend(&RECORD, MessageBatch::new, |record| {
        let done = use_it(record);
        if record.memory_bytes() > KEPT_BYTES_MAX {
            *record = MessageBatch::new();
        }
        done
    })
}

/// Large values of a batch that have been written, by the index of their write. Gives their space back
/// unless it is [`Blobs::keep`]t, as it must be from when the log may have the record that names it (W4).
struct Blobs<'a> {
    engine: &'a Engine,
    references: Vec<(usize, BlobRef, Vec<u8>)>,
}

impl Blobs<'_> {
    fn payload(&self, index: usize) -> Option<&[u8]> {
        let at = self.references.binary_search_by_key(&index, |(write, ..)| *write).ok()?;
        self.references.get(at).map(|(.., payload)| payload.as_slice())
    }

    /// After the log failed with `error`: keeps all, unless the log has nothing of the record for sure.
    fn keep_unless_refused(self, error: &Error) {
        if !is_refusal(error) {
            self.keep();
        }
    }

    fn keep(self) {
        let count = self.references.len();
        self.keep_first(count);
    }

    /// Gives the space of those after the first `count` back.
    fn keep_first(mut self, count: usize) {
        self.references.drain(..count);
    }
}

impl Drop for Blobs<'_> {
    fn drop(&mut self) {
        // The log may have the record: the next opening knows.
        if std::thread::panicking() {
            return;
        }
        let extents = self.references.iter().flat_map(|(_, reference, _)| &reference.extents);
        extents.for_each(|extent| self.engine.store.free_unpublished(*extent));
    }
}

/// Whether the log has nothing of a record that it failed to append: what else goes wrong may do so after the record was written.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::InvalidArgument | ErrorKind::Closed) || error.is_passing()
}

impl TxnCore {
    /// As [`Engine::admit`]. Who waits for room is heard when it is cancelled.
    #[inline]
    pub(super) fn admit(
        &self,
        state: &TxnState,
        bytes: usize,
        deletes_only: impl FnOnce() -> bool,
    ) -> Result<Admitted<'_>> {
        let admitted = self.engine.admit(bytes, &self.cancelled, deletes_only);
        admitted.inspect_err(|error| self.scan_failed(state, error))
    }

    /// Applies a batch in a transaction that goes on.
    pub(crate) fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.engine.past_full_log(batch.bytes(), || batch.deletes_only(), || self.write_once(batch))
    }

    fn write_once(&self, batch: &WriteBatch) -> Result<()> {
        let mut state = self.writing_batch()?;
        if batch.is_empty() {
            return Ok(());
        }
        let Decided { skipped, mut taken, admitted } = self.decide(&mut state, batch)?;
        let (blobs, _pass) = match self.prepare_to_apply(&mut state, batch, &skipped, &mut taken, false) {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.undecide(&mut state, batch, taken, error)),
        };
        self.apply(&mut state, batch, &skipped, blobs, admitted)
    }

    /// The second part: what large values of the batch are in, and the pass for its covered writes.
    fn prepare_to_apply(
        &self,
        state: &mut TxnState,
        batch: &WriteBatch,
        skipped: &[usize],
        taken: &mut Taken,
        commits: bool,
    ) -> Result<(Blobs<'_>, Option<CoveredPass<'_>>)> {
        let blobs = self.write_blobs(state, batch, skipped)?;
        if commits && state.blobs_unsynced {
            self.engine.store.sync()?;
        }
        Ok((blobs, self.enter_covered(state, batch, taken)?))
    }

    /// Applies a batch without locks and checks: all of its keys are in a range that this transaction has locked.
    pub(crate) fn write_locked(&self, batch: &WriteBatch) -> Result<()> {
        self.engine.past_full_log(batch.bytes(), || batch.deletes_only(), || self.write_locked_once(batch))
    }

    fn write_locked_once(&self, batch: &WriteBatch) -> Result<()> {
        let mut state = self.writing_batch()?;
        if batch.is_empty() {
            return Ok(());
        }
        batch.trees().try_for_each(|tree| self.check_tree(&state, tree))?;
        let admitted = self.admit(&state, self.level0_bytes(batch), || batch.deletes_only())?;
        let blobs = self.write_blobs(&mut state, batch, &[])?;
        self.apply(&mut state, batch, &[], blobs, admitted)
    }

    /// W3 of [`super::covered`] alone.
    #[cfg(test)]
    pub(super) fn apply_inside(&self, batch: &WriteBatch) -> Result<()> {
        let mut state = self.writing()?;
        let admitted = self.admit(&state, batch.bytes(), || false)?;
        self.apply(&mut state, batch, &[], Blobs { engine: &self.engine, references: Vec::new() }, admitted)
    }

    /// Applies a batch and commits, with one record where it is short.
    pub(crate) fn write_and_commit(&self, batch: &WriteBatch) -> Result<()> {
        let started = self.engine.clock.micros();
        if batch.bytes() > COMMIT_RECORD_BYTES_MAX || batch.is_empty() {
            self.write(batch)?;
            return self.commit();
        }
        self.engine.past_full_log(batch.bytes(), || batch.deletes_only(), || self.write_and_commit_once(batch, started))
    }

    fn write_and_commit_once(&self, batch: &WriteBatch, started: u64) -> Result<()> {
        let mut state = self.writing_batch()?;
        let step = state.step_to_write(false)?;
        let Decided { skipped, mut taken, admitted } = self.decide(&mut state, batch)?;
        let (blobs, pass) = match self.prepare_to_apply(&mut state, batch, &skipped, &mut taken, true) {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.undecide(&mut state, batch, taken, error)),
        };
        let writer = self.writer(&mut state).clone();
        let engine = &self.engine;
        let appended = with_record(|record| {
            fill(record, batch, &skipped, &blobs);
            engine.append_commit(&writer, step, record, |insert| {
                for_each_message(batch, &skipped, &blobs, insert);
            })
        });
        drop((pass, admitted));
        let (end, messages) = match appended {
            Ok(appended) => appended,
            Err(error) => {
                blobs.keep_unless_refused(&error);
                return Err(error);
            }
        };
        blobs.keep();
        self.count_messages(messages);
        engine.counters.here().messages.add(messages);
        engine.counters.here().user_bytes.add(batch.user_bytes());
        self.end_committed(&mut state, &writer);
        drop(state);
        engine.after_write();
        engine.wait_committed(end, self.options.durability, started)
    }

    /// At first-updater-wins: fails when `key` changed after the snapshot.
    pub(crate) fn check_conflict(&self, state: &TxnState, snapshot: Option<CommitNumber>, key: &[u8]) -> Result<()> {
        let Some(snapshot) = snapshot else { return Ok(()) };
        if self.changed_after(state, snapshot, key)? {
            return Err(Error::new(ErrorKind::Conflict, "the row was changed after this transaction's snapshot"));
        }
        Ok(())
    }

    /// Whether others have committed a change of the inner key after `snapshot`, which this transaction holds.
    pub(crate) fn changed_after(&self, state: &TxnState, snapshot: CommitNumber, key: &[u8]) -> Result<bool> {
        let engine = &self.engine;
        let view = self.latest_view(state);
        engine.counters.here().write_checks.add(1);
        engine.tree.changed_after(&engine.tree.version_guard(), &view, key, snapshot)
    }

    /// What a locking read or a uniqueness check sees: everything committed, and its own.
    pub(crate) fn latest_view(&self, state: &TxnState) -> View<'_> {
        View {
            snapshot: CommitNumber::LATEST,
            own: state.writer.as_ref().map(|writer| writer.txn),
            uncommitted: Uncommitted::Hidden,
            statuses: self.engine.statuses.as_ref(),
        }
    }

    pub(super) fn is_large(&self, write: &Write<'_>) -> bool {
        write.payload.len() >= self.engine.options.blob_bytes_min
            && matches!(write.kind, Kind::Put | Kind::InsertIfAbsent)
    }

    /// Bytes of a batch that log and level 0 take: of a large value that is what refers to it.
    pub(super) fn level0_bytes(&self, batch: &WriteBatch) -> usize {
        if batch.bytes() < self.engine.options.blob_bytes_min {
            return batch.bytes();
        }
        let apart = |write: &Write<'_>| write.payload.len().saturating_sub(reference_bytes_max(write.payload.len()));
        let large = batch.writes().filter(|write| self.is_large(write));
        batch.bytes() - large.map(|write| apart(&write)).sum::<usize>()
    }

    /// Writes the large values of a batch.
    fn write_blobs(&self, state: &mut TxnState, batch: &WriteBatch, skipped: &[usize]) -> Result<Blobs<'_>> {
        let engine = &*self.engine;
        let mut blobs = Blobs { engine, references: Vec::new() };
        if batch.bytes() < engine.options.blob_bytes_min {
            return Ok(blobs);
        }
        for (index, write) in batch.writes().enumerate().filter(|(index, _)| skipped.binary_search(index).is_err()) {
            if self.is_large(&write) {
                let codec: Codec = engine.tree.env().codecs.get(write.tree());
                let reference = engine.noting_lack(write_blob(&engine.store, codec, write.payload))?;
                let stored = reference.stored_bytes();
                engine.counters.here().blob_bytes.add(stored);
                engine.admission.wrote_apart(stored);
                engine.tree.env().codecs.count_blob(write.tree(), write.payload.len() as u64, stored);
                let mut payload = Vec::new();
                reference.encode(&mut payload);
                blobs.references.push((index, reference, payload));
                state.blobs_unsynced = true;
            }
        }
        Ok(blobs)
    }

    fn apply(
        &self,
        state: &mut TxnState,
        batch: &WriteBatch,
        skipped: &[usize],
        blobs: Blobs<'_>,
        mut admitted: Admitted<'_>,
    ) -> Result<()> {
        let engine = &self.engine;
        let long = batch.bytes() > RECORD_BYTES_MAX;
        let step = state.step_to_write(long)?;
        let writer = self.writer(state);
        writer.logged = true;
        let txn = writer.txn;
        state.written = Some(step);
        let mut logged = 0;
        let applied = if long {
            self.apply_long((txn, step), batch, skipped, &blobs, &mut logged, &mut admitted)
        } else {
            with_record(|record| {
                fill(record, batch, skipped, &blobs);
                engine.append_messages(txn, step, record, |insert| for_each_message(batch, skipped, &blobs, insert))
            })
        };
        let messages = match applied {
            Ok(messages) => messages,
            Err(error) if long => {
                // Pieces that went in are undone; their large values belong to them.
                if is_refusal(&error) {
                    blobs.keep_first(logged)
                } else {
                    blobs.keep()
                }
                if self.abort_steps(state, step).is_err() {
                    self.end_aborted(state);
                }
                return Err(error);
            }
            Err(error) => {
                blobs.keep_unless_refused(&error);
                return Err(error);
            }
        };
        drop(admitted);
        blobs.keep();
        self.count_messages(messages);
        engine.counters.here().messages.add(messages);
        engine.counters.here().user_bytes.add(batch.user_bytes());
        engine.after_write();
        Ok(())
    }

    /// Cuts a long batch, which has a step to itself, into several records, and lets level 0 be emptied between them. When one of them
    /// fails, those before it have been applied; `logged` is how many large values are in those.
    fn apply_long(
        &self,
        (txn, step): (TxnId, u32),
        batch: &WriteBatch,
        skipped: &[usize],
        blobs: &Blobs<'_>,
        logged: &mut usize,
        admitted: &mut Admitted<'_>,
    ) -> Result<u64> {
        let engine = &self.engine;
        let (mut messages, mut bytes) = (0, 0);
        let mut piece: Vec<Message<'_>> = Vec::new();
        // Not the thread's: emptying level 0 may write.
        let mut record = MessageBatch::new();
        let mut flush = |record: &mut MessageBatch, piece: &mut Vec<Message<'_>>| -> Result<()> {
            engine.wait_while_full()?;
            messages += engine.append_messages(txn, step, record, |insert| piece.iter().for_each(insert))?;
            *logged += piece.iter().filter(|message| message.blob).count();
            admitted.applied(piece.iter().map(|message| message.key.len() + message.payload.len()).sum());
            engine.after_write();
            record.clear();
            piece.clear();
            Ok(())
        };
        for_each_message_with(batch, skipped, blobs, &mut |message| {
            record.add(message);
            bytes += message.key.len() + message.payload.len();
            piece.push(*message);
            if bytes < RECORD_BYTES_MAX {
                return Ok(());
            }
            bytes = 0;
            flush(&mut record, &mut piece)
        })?;
        if !piece.is_empty() {
            flush(&mut record, &mut piece)?;
        }
        Ok(messages)
    }

    /// Deletes the inner keys from `start` up to `end`; the caller has locked them.
    pub(crate) fn write_range_delete(&self, state: &mut TxnState, start: &[u8], end: &[u8]) -> Result<()> {
        let engine = &self.engine;
        let step = state.step_to_write(false)?;
        let admitted = self.admit(state, start.len() + end.len(), || true)?;
        state.statement.fresh.clear();
        state.has_deleted_ranges = true;
        let writer = self.writer(state);
        writer.logged = true;
        let txn = writer.txn;
        state.written = Some(step);
        engine.past_full_log(0, || true, || engine.append_range_delete(txn, step, start, end))?;
        drop(admitted);
        self.count_messages(1);
        engine.counters.here().messages.add(1);
        engine.counters.here().user_bytes.add((start.len() + end.len()) as u64);
        engine.after_write();
        Ok(())
    }
}

/// Encodes the messages of a batch.
fn fill(record: &mut MessageBatch, batch: &WriteBatch, skipped: &[usize], blobs: &Blobs<'_>) {
    record.clear();
    for_each_message(batch, skipped, blobs, &mut |message| record.add(message));
}

/// Visits the messages that a batch stands for. Sequence numbers and stamps are set by who takes them.
#[inline]
fn for_each_message(batch: &WriteBatch, skipped: &[usize], blobs: &Blobs<'_>, visit: &mut dyn FnMut(&Message<'_>)) {
    for (index, write) in batch.writes().enumerate() {
        if let Some(message) = message_of(index, &write, skipped, blobs) {
            visit(&message);
        }
    }
}

fn for_each_message_with<'b>(
    batch: &'b WriteBatch,
    skipped: &[usize],
    blobs: &'b Blobs<'_>,
    visit: &mut dyn FnMut(&Message<'b>) -> Result<()>,
) -> Result<()> {
    for (index, write) in batch.writes().enumerate() {
        if let Some(message) = message_of(index, &write, skipped, blobs) {
            visit(&message)?;
        }
    }
    Ok(())
}

#[inline]
fn message_of<'b>(index: usize, write: &Write<'b>, skipped: &[usize], blobs: &'b Blobs<'_>) -> Option<Message<'b>> {
    let plain = Message {
        key: write.key,
        seq: 0,
        stamp: Stamp::Settled,
        kind: write.kind,
        blob: false,
        payload: write.payload,
    };
    if skipped.is_empty() && blobs.references.is_empty() {
        return Some(plain);
    }
    if skipped.binary_search(&index).is_ok() {
        return None;
    }
    // A large value goes in as a put: that its key had none has been checked under its lock.
    Some(match blobs.payload(index) {
        Some(payload) => Message { kind: Kind::Put, blob: true, payload, ..plain },
        None => plain,
    })
}

impl Engine {
    /// Appends a record of messages and inserts them into the active memtable; returns their number.
    fn append_messages(
        &self,
        txn: TxnId,
        step: u32,
        record: &mut MessageBatch,
        messages: impl Fn(&mut dyn FnMut(&Message<'_>)),
    ) -> Result<u64> {
        let count = record.count() as u64;
        if count == 0 {
            return Ok(0);
        }
        let log = self.log()?;
        let bytes = record.record(txn, step);
        let _gate = self.pass_gate()?;
        let appended = self.logged(log.append(bytes))?;
        let guard = self.poison_on_panic();
        let version = self.tree.version_guard();
        messages(&mut |message| version.active.insert(appended.lsn.0, (txn, step), message, || Some(self.retention())));
        self.report_written(&messages);
        guard.done();
        self.counters.here().log_records.add(1);
        self.counters.here().log_bytes.add(bytes.len() as u64);
        Ok(count)
    }

    /// Appends messages and commit as one record; returns its end and the number of messages.
    fn append_commit(
        &self,
        writer: &Writer,
        step: u32,
        record: &mut MessageBatch,
        messages: impl Fn(&mut dyn FnMut(&Message<'_>)),
    ) -> Result<(Lsn, u64)> {
        let log = self.log()?;
        let count = record.count() as u64;
        let mut end = Lsn(0);
        let _gate = self.pass_gate()?;
        let committed = self.statuses.commit_with(writer.txn, |number| {
            let bytes = record.commit_record(writer.txn, step, number);
            let appended = log.append(bytes)?;
            end = appended.end;
            let guard = self.poison_on_panic();
            let version = self.tree.version_guard();
            messages(&mut |message| {
                version.active.insert(appended.lsn.0, (writer.txn, step), message, || Some(self.retention()))
            });
            self.report_written(&messages);
            guard.done();
            self.counters.here().log_records.add(1);
            self.counters.here().log_bytes.add(bytes.len() as u64);
            Ok(appended.lsn)
        });
        self.logged(committed)?;
        Ok((end, count))
    }

    /// Tells the dead ranges of keys that have just been written.
    #[inline]
    fn report_written(&self, messages: &impl Fn(&mut dyn FnMut(&Message<'_>))) {
        self.tree.dead_ranges().on_write(|tell| messages(&mut |message| tell(message.key)));
    }

    fn append_range_delete(&self, txn: TxnId, step: u32, start: &[u8], end: &[u8]) -> Result<()> {
        let log = self.log()?;
        let mut bytes = Vec::with_capacity(32 + start.len() + end.len());
        Record::RangeDelete { txn, step, start, end, seq: 0 }.encode(&mut bytes);
        let _gate = self.pass_gate()?;
        let appended = self.logged(log.append(&bytes))?;
        let stamp = Stamp::Written { txn, step };
        let range = RangeDelete { start: start.to_vec(), end: end.to_vec(), seq: appended.lsn.0, stamp };
        let guard = self.poison_on_panic();
        self.tree.version_guard().active.insert_range(range);
        guard.done();
        self.counters.here().log_records.add(1);
        self.counters.here().log_bytes.add(bytes.len() as u64);
        Ok(())
    }
}

/// The inner keys of a whole tree, from the first to the one after the last.
pub(crate) fn tree_bounds(tree: TreeId) -> (Vec<u8>, Vec<u8>) {
    (crate::base::key::tree_start(tree), crate::base::key::tree_end(tree))
}

#[cfg(test)]
mod tests;
