//! The database's side of a bulk load that is grafted ([`crate::tree::graft`]).
//!
//! # What makes it sound
//!
//! The rows become leaves with the stamp of the loading transaction while that is open, as the messages of any transaction do whose
//! memtables are sealed before it ends. So there is nothing new in the log and nothing to replay: the runs are in the tree
//! because a published root has them, and the transaction's status says what they mean.
//!
//! - B1: two publications with the graft in their roots are durable before [`TxnCore::graft`] returns, and so before the
//!   transaction's commit or prepare record can be. A crash before finds no commit record: it aborts the transaction, and what it finds of
//!   the graft with it. After, the newest generation and the one before both have the graft, so losing the newest superblock
//!   loses nothing (K2 of [`super::checkpoint`]).
//! - B2: space: until a publication has them, the extents belong to nobody whom a crash leaves behind. From then on they are
//!   accounted for like those of other runs.
//! - B3: the transaction holds a lock on the whole tree, and its latch from the check that the tree is bare to the last installation; so no
//!   message of the tree is written in between (G1).
//!
//! # Rows of a load that was rolled back
//!
//! A leaf without anything pending asks for no compaction, so nothing would come to drop them. [`Grafts`] remembers the tree of each
//! graft whose transaction is not known to be committed, in memory and in the superblock's extra bytes, and background work
//! compacts the trees of those that were aborted. A note lost costs space until the next compaction of the tree, never a row.

use super::core::TxnCore;
use super::engine::Engine;
use super::tree_handle::Tree;
use super::write::tree_bounds;
use crate::base::codec::{Decoder, put_varint};
use crate::base::sync::Mutex;
use crate::base::{Error, Result, TreeId, TxnId};
use crate::format::{Stamp, Status, Statuses, SuperblockBody};
use crate::tree::{CompactPass, CompactStep, Graft, GraftStep, GraftWriter};

/// Smaller loads go through level 0, in bytes of keys and values; where level 0 is small, an eighth of it.
const GRAFT_BYTES_MIN: usize = 4 << 20;
/// Grafts that are remembered until their transactions are decided. Past it, loads go through level 0.
const UNDECIDED_MAX: usize = 64;
/// Publications with the graft before the transaction may end (B1).
const PUBLICATIONS: usize = 2;

/// A graft whose transaction is not known to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    txn: TxnId,
    step: u32,
    tree: TreeId,
}

#[derive(Debug, Default)]
struct Notes {
    notes: Vec<Note>,
    /// The compaction of the tree of a graft that was aborted.
    cleaning: Option<(Note, CompactPass)>,
    /// A thread is at it.
    is_cleaning: bool,
}

/// Grafts that may have to be cleaned up after.
#[derive(Debug, Default)]
pub(crate) struct Grafts(Mutex<Notes>);

impl Grafts {
    /// What a superblock says.
    pub(crate) fn restore(body: &SuperblockBody) -> Grafts {
        // It is space that depends on these bytes, no row: what cannot be read is passed over.
        let notes = body.extra.get(4..).and_then(|bytes| decode(bytes).ok()).unwrap_or_default();
        Grafts(Mutex::new(Notes { notes, ..Notes::default() }))
    }

    /// Appends what the superblock is to say.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let inner = self.0.lock();
        put_varint(out, inner.notes.len() as u64);
        for note in &inner.notes {
            put_varint(out, note.txn.0);
            put_varint(out, u64::from(note.step));
            put_varint(out, u64::from(note.tree.0));
        }
    }

    /// Remembers one, if there is room: whoever begins a graft has looked, but others may have come since.
    fn add(&self, note: Note) {
        let mut inner = self.0.lock();
        if inner.notes.len() < UNDECIDED_MAX {
            inner.notes.push(note);
        }
    }
}

fn decode(bytes: &[u8]) -> Result<Vec<Note>> {
    let mut decoder = Decoder::new(bytes);
    let count = decoder.count(3)?;
    let mut notes = Vec::with_capacity(count);
    for _ in 0..count {
        let (txn, step, tree) = (TxnId(decoder.varint()?), decoder.varint_u32()?, TreeId(decoder.varint_u32()?));
        notes.push(Note { txn, step, tree });
    }
    decoder.finish()?;
    Ok(notes)
}

/// Lowest inner key of a tree, and the lowest above it, if there is one.
fn bounds(tree: TreeId) -> (Vec<u8>, Option<Vec<u8>>) {
    let (lower, upper) = tree_bounds(tree);
    (lower, Some(upper).filter(|upper| !upper.is_empty()))
}

impl TxnCore {
    /// Begins a graft of `bytes` bytes of rows into a tree that the transaction has locked whole; `None` when the load is to go
    /// through level 0: it is small, or something lies in the tree, if only the dead rows of an earlier load.
    pub(crate) fn graft_writer(&self, tree: &Tree, bytes: u64) -> Result<Option<GraftWriter>> {
        let mut state = self.writing()?;
        let engine = &self.engine;
        engine.begin_once()?;
        engine.forget_committed_grafts();
        let (lower, upper) = bounds(tree.id());
        let is_full = engine.grafts.0.lock().notes.len() >= UNDECIDED_MAX;
        if is_full || bytes < GRAFT_BYTES_MIN.min(engine.level0_bytes() / 8) as u64 {
            return Ok(None);
        }
        if !engine.tree.is_bare(&engine.tree.version(), &lower, upper.as_deref())? {
            return Ok(None);
        }
        let step = state.step_to_write(false)?;
        let stamp = Stamp::Written { txn: self.writer(&mut state).txn, step };
        Ok(Some(engine.tree.graft_writer(&lower, upper.as_deref(), stamp)))
    }

    /// Puts the rows into the tree and makes them durable.
    pub(crate) fn graft(&self, tree: &Tree, graft: Graft, user_bytes: u64) -> Result<()> {
        let engine = &self.engine;
        let (rows, blob_bytes) = (graft.rows(), graft.blob_bytes());
        engine.counters.here().blob_bytes.add(blob_bytes);
        self.install(tree, graft)?;
        engine.counters.here().messages.add(rows);
        engine.counters.here().user_bytes.add(user_bytes);
        self.count_messages(rows);
        engine.wake.progress();
        for _ in 0..PUBLICATIONS {
            engine.publish()?;
        }
        Ok(())
    }

    fn install(&self, tree: &Tree, graft: Graft) -> Result<()> {
        let engine = &self.engine;
        let mut state = self.writing()?;
        tree.inner.check()?;
        let (lower, upper) = bounds(tree.id());
        let step = state.step_to_write(false)?;
        let writer = self.writer(&mut state);
        let txn = writer.txn;
        let is_same = graft.stamp() == Stamp::Written { txn, step };
        if !is_same || !engine.tree.is_bare(&engine.tree.version(), &lower, upper.as_deref())? {
            return Err(Error::invalid("the transaction was used while its bulk load was being finished"));
        }
        engine.grafts.add(Note { txn, step, tree: tree.id() });
        // From here on its end is logged, and so is the undoing of this step.
        writer.logged = true;
        state.written = Some(step);
        let mut graft = graft;
        loop {
            engine.check_writable()?;
            let guard = engine.poison_on_panic();
            let stepped = engine.tree.graft_step(&engine.retention(), &mut graft);
            guard.done();
            match stepped? {
                GraftStep::Done => return Ok(()),
                GraftStep::Worked => {}
                GraftStep::Unfit => return Err(Error::internal("no leaf is around a tree that is empty")),
                GraftStep::Busy if engine.step_by_hand()? => {}
                GraftStep::Busy => engine.wake.wait_for_progress(),
            }
        }
    }
}

impl Engine {
    fn is_graft_aborted(&self, note: &Note) -> bool {
        self.statuses.status(note.txn, note.step) == Status::Aborted
    }

    /// Forgets the grafts of transactions that are committed.
    fn forget_committed_grafts(&self) {
        let is_committed = |note: &Note| matches!(self.statuses.status(note.txn, note.step), Status::Committed(_));
        self.grafts.0.lock().notes.retain(|note| !is_committed(note));
    }

    /// Whether rows of a load that was rolled back are still to be dropped.
    pub(crate) fn has_grafts_to_clean(&self) -> bool {
        let inner = self.grafts.0.lock();
        inner.cleaning.is_some() || inner.is_cleaning || inner.notes.iter().any(|note| self.is_graft_aborted(note))
    }

    /// Goes on with dropping the rows of loads that were rolled back; false when there is nothing to do just now.
    pub(crate) fn clean_grafts_step(&self) -> Result<bool> {
        let (note, mut pass) = {
            let mut inner = self.grafts.0.lock();
            if inner.is_cleaning {
                return Ok(false);
            }
            let aborted = inner.notes.iter().find(|note| self.is_graft_aborted(note)).copied();
            let begin = |note: Note| {
                let (lower, upper) = bounds(note.tree);
                (note, self.tree.compact_pass(lower, upper, self.log_end().0))
            };
            let Some(cleaning) = inner.cleaning.take().or_else(|| aborted.map(begin)) else { return Ok(false) };
            inner.is_cleaning = true;
            cleaning
        };
        let stepped = self.tree.compact_step(&self.retention(), &mut pass);
        let mut inner = self.grafts.0.lock();
        inner.is_cleaning = false;
        let is_over = match &stepped {
            Ok(step) => *step == CompactStep::Done,
            // It would meet the damage again and again.
            Err(error) => error.is_unreadable(),
        };
        if is_over {
            inner.notes.retain(|other| *other != note);
        } else {
            inner.cleaning = Some((note, pass));
        }
        Ok(stepped? != CompactStep::Busy)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::sync::Arc;

    use super::*;
    use crate::base::random::Random;
    use crate::db::bulk::BulkOptions;
    use crate::db::database::Database;
    use crate::db::options::{CursorOptions, Options, TreeOptions, TxnOptions};
    use crate::format::superblock::EXTRA_BYTES_MAX;
    use crate::io::MemoryStorage;
    use crate::tree::TreeTuning;

    fn body(extra: Vec<u8>) -> SuperblockBody {
        SuperblockBody { extra, ..SuperblockBody::default() }
    }

    #[test]
    fn as_many_notes_as_there_may_be_fit_a_superblock_and_come_back() {
        let grafts = Grafts::default();
        for number in 0..2 * UNDECIDED_MAX as u64 {
            grafts.add(Note { txn: TxnId(u64::MAX - number), step: u32::MAX, tree: TreeId(u32::MAX - number as u32) });
        }
        let mut extra = 7u32.to_le_bytes().to_vec();
        grafts.encode(&mut extra);
        assert!(extra.len() <= EXTRA_BYTES_MAX);
        let notes = grafts.0.lock().notes.clone();
        assert_eq!(notes.len(), UNDECIDED_MAX);
        assert_eq!(Grafts::restore(&body(extra)).0.lock().notes, notes);
    }

    #[test]
    fn a_superblock_that_says_nothing_of_grafts_has_none() {
        for extra in [Vec::new(), vec![1, 2], 7u32.to_le_bytes().to_vec()] {
            assert!(Grafts::restore(&body(extra)).0.lock().notes.is_empty());
        }
    }

    /// A database with tiny nodes and no threads.
    fn open(storage: &MemoryStorage) -> Result<Database> {
        let options = Options::new().create_if_missing(true).storage(Some(Arc::new(storage.clone())));
        let options = options.tree_tuning(Some(TreeTuning::tiny())).manual_background(true).level0_bytes(64 << 10);
        Database::open("/db", options.memory_bytes(8 << 20).checkpoint_interval_ms(0).recovery_target_ms(0))
    }

    fn row(number: u32) -> (Vec<u8>, Vec<u8>) {
        let mut random = Random(u64::from(number));
        ([&number.to_be_bytes()[..], &random.bytes(200)].concat(), random.bytes(500))
    }

    #[test]
    fn a_load_of_more_leaves_than_a_node_may_have_goes_in_beside_what_waits_above_them() -> Result<()> {
        let storage = MemoryStorage::new();
        let db = open(&storage)?;
        let create = |name: &str| db.create_tree(name, &TreeOptions::default());
        let (low, tree, high) = (create("low")?, create("loaded")?, create("high")?);
        for number in 0..40 {
            let (key, value) = row(number);
            db.put(&low, &key, &value)?;
            db.put(&high, &key, &value)?;
        }
        db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(()))?;
        db.put(&low, b"waits", b"")?;
        db.put(&high, b"waits", b"")?;
        db.checkpoint()?;
        let root = db.engine().tree.version().root.clone();
        let above = &root.slots()[root.find(&bounds(tree.id()).0)];
        assert!(root.height() == 2 && !above.buffer().is_empty(), "{}", db.engine().tree.shape()?);

        let (logged, rows) = (db.statistics()?.log_bytes, 12_000);
        let txn = db.begin(TxnOptions::default())?;
        let mut bulk = txn.bulk(&tree, &BulkOptions::default())?;
        (0..rows).map(row).try_for_each(|(key, value)| bulk.add(&key, &value))?;
        bulk.finish(&mut |_| true)?;
        txn.commit()?;
        assert!(db.statistics()?.log_bytes < logged + 100, "it was no graft");
        while db.step_background()? {}
        assert!(db.poisoned().is_none());
        db.check(&mut |finding| panic!("{finding:?}"), None)?;

        let image = storage.crash(1);
        for db in [db, open(&image)?] {
            let tree = db.open_tree("loaded")?;
            let txn = db.begin(TxnOptions::default())?;
            let mut cursor = txn.cursor(&tree, CursorOptions::default())?;
            let mut more = cursor.first()?;
            for number in 0..rows {
                assert!(more && (cursor.key().to_vec(), cursor.value().to_vec()) == row(number), "row {number}");
                more = cursor.next()?;
            }
            assert!(!more);
            db.check(&mut |finding| panic!("{finding:?}"), None)?;
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(extra in proptest::collection::vec(any::<u8>(), 0..60)) {
            Grafts::restore(&body(extra));
        }
    }
}
