//! Marks: against a model, nested to any depth, and where steps and numbers end.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::db::batch::WriteBatch;
use crate::db::database::Database;
use crate::db::options::{Options, TreeOptions};
use crate::db::transaction::Transaction;
use crate::db::tree_handle::Tree;
use crate::io::MemoryStorage;

const KEYS: u8 = 7;

fn open(memory: &MemoryStorage) -> Result<Database> {
    let options = Options::new().create_if_missing(true).storage(Some(Arc::new(memory.clone())));
    Database::open("/db", options.manual_background(true).memory_bytes(8 << 20))
}

fn fresh() -> Result<(MemoryStorage, Database, Tree)> {
    let memory = MemoryStorage::new();
    let db = open(&memory)?;
    let tree = db.create_tree("t", &TreeOptions::default())?;
    Ok((memory, db, tree))
}

fn is_refused<T>(result: Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::InvalidArgument)
}

#[test]
fn when_the_steps_are_used_up_writes_are_refused_and_marks_can_be_rolled_back_to() -> Result<()> {
    let (memory, db, tree) = fresh()?;
    let txn = db.begin(TxnOptions::default())?;
    let has = |value: &[u8]| Ok::<_, Error>(txn.get(&tree, b"key")?.as_deref() == Some(value));
    txn.put(&tree, b"key", b"before")?;
    txn.core().active()?.step = STEP_MAX;
    let first = txn.savepoint()?;
    txn.put(&tree, b"key", b"last")?;
    let mut long = WriteBatch::new();
    (0..1100u16).try_for_each(|row| long.put(&tree, &row.to_be_bytes(), &[7; 1 << 10]))?;
    assert!(is_refused(txn.write(&long)), "a long batch has a step to itself");
    txn.put(&tree, b"key", b"last of all")?;
    let second = txn.savepoint()?;
    assert!(is_refused(txn.put(&tree, b"key", b"none")));
    assert!(is_refused(txn.delete_range(&tree, b"", b"")));
    assert!(is_refused(txn.create_tree("other", &TreeOptions::default())));
    txn.rollback_to(second)?;
    assert!(has(b"last of all")?);
    txn.rollback_to(first)?;
    assert!(has(b"before")?);
    assert!(is_refused(txn.put(&tree, b"key", b"none")));
    txn.release(first)?;
    assert_eq!(txn.core().active()?.step, u32::MAX);
    txn.commit()?;
    assert_eq!(db.get(&tree, b"key")?.as_deref(), Some(&b"before"[..]));
    assert_eq!(db.get(&tree, &[0, 0])?.as_deref(), None);
    assert!(db.open_tree("other").is_err());
    let db = open(&memory.snapshot())?;
    assert_eq!(db.get(&db.open_tree("t")?, b"key")?.as_deref(), Some(&b"before"[..]));
    Ok(())
}

#[test]
fn no_mark_has_the_last_number() -> Result<()> {
    let (_memory, db, tree) = fresh()?;
    let txn = db.begin(TxnOptions::default())?;
    txn.core().active()?.next_savepoint = u32::MAX - 1;
    let last = txn.savepoint()?;
    assert_eq!(last.number(), u32::MAX - 1);
    txn.put(&tree, b"key", b"value")?;
    for _ in 0..2 {
        assert!(is_refused(txn.savepoint()));
    }
    txn.rollback_to(last)?;
    assert_eq!(txn.get(&tree, b"key")?, None);
    txn.release(last)?;
    txn.put(&tree, b"key", b"value")
}

#[derive(Debug, Clone)]
enum Event {
    Put(u8),
    Delete(u8),
    /// Of a key and so many behind it.
    DeleteRange(u8, u8),
    Mark,
    RollbackTo(prop::sample::Index),
    Release(prop::sample::Index),
    /// Everything written so far goes into the tree.
    Checkpoint,
}

fn event() -> impl Strategy<Value = Event> {
    let pick = any::<prop::sample::Index>;
    prop_oneof![
        8 => (0..KEYS).prop_map(Event::Put),
        2 => (0..KEYS).prop_map(Event::Delete),
        1 => (0..KEYS, 1..4u8).prop_map(|(key, count)| Event::DeleteRange(key, count)),
        5 => Just(Event::Mark),
        4 => pick().prop_map(Event::RollbackTo),
        2 => pick().prop_map(Event::Release),
        1 => Just(Event::Checkpoint),
    ]
}

type Map = BTreeMap<u8, u32>;

/// A transaction, and what it should see.
struct Model {
    txn: Transaction,
    tree: Tree,
    map: Map,
    /// Those that are set, with what was there then.
    marks: Vec<(Savepoint, Map)>,
    gone: Vec<Savepoint>,
    writes: u32,
}

impl Model {
    /// Only where the steps are used up may a write be refused, and then it has no effect.
    fn wrote(&mut self, written: Result<()>, change: impl FnOnce(&mut Map)) -> Result<()> {
        if self.txn.core().active()?.step > STEP_MAX {
            assert!(is_refused(written));
            return Ok(());
        }
        change(&mut self.map);
        written
    }

    fn apply(&mut self, event: Event, db: &Database) -> Result<()> {
        match event {
            Event::Put(key) => {
                self.writes += 1;
                let value = self.writes;
                let written = self.txn.put(&self.tree, &[key], &value.to_be_bytes());
                self.wrote(written, |map| _ = map.insert(key, value))?;
            }
            Event::Delete(key) => {
                let written = self.txn.delete(&self.tree, &[key]);
                self.wrote(written, |map| _ = map.remove(&key))?;
            }
            Event::DeleteRange(key, count) => {
                let written = self.txn.delete_range(&self.tree, &[key], &[key + count]);
                self.wrote(written, |map| map.retain(|other, _| !(key..key + count).contains(other)))?;
            }
            Event::Mark => self.marks.push((self.txn.savepoint()?, self.map.clone())),
            Event::RollbackTo(pick) if !self.marks.is_empty() => {
                let at = pick.index(self.marks.len());
                self.txn.rollback_to(self.marks[at].0)?;
                self.map.clone_from(&self.marks[at].1);
                self.forget_marks(at + 1);
            }
            Event::Release(pick) if !self.marks.is_empty() => {
                let at = pick.index(self.marks.len());
                self.txn.release(self.marks[at].0)?;
                self.forget_marks(at);
            }
            Event::RollbackTo(_) | Event::Release(_) => {}
            Event::Checkpoint => db.checkpoint()?,
        }
        Ok(())
    }

    fn forget_marks(&mut self, kept: usize) {
        self.gone.extend(self.marks.drain(kept..).map(|(mark, _)| mark));
    }

    fn check(&self) -> Result<()> {
        for mark in &self.gone {
            for used in [self.txn.rollback_to(*mark), self.txn.release(*mark)] {
                assert_eq!(used.map_err(|error| error.kind()), Err(ErrorKind::NotFound), "{mark:?}");
            }
        }
        let mut seen = Map::new();
        for key in 0..KEYS + 4 {
            if let Some(value) = self.txn.get(&self.tree, &[key])? {
                seen.insert(key, number(&value));
            }
        }
        assert_eq!(seen, self.map);
        Ok(())
    }
}

fn number(value: &[u8]) -> u32 {
    u32::from_be_bytes(value.try_into().expect("four bytes"))
}

fn committed(db: &Database, tree: &Tree) -> Result<Map> {
    let rows = (0..KEYS + 4).map(|key| Ok(db.get(tree, &[key])?.map(|value| (key, number(&value)))));
    rows.filter_map(Result::transpose).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn exactly_what_was_done_since_a_mark_is_undone(
        events in prop::collection::vec(event(), 1..80),
        // The steps end after so many, or do not.
        steps_left in prop::option::of(0u32..12),
        commits in any::<bool>()
    ) {
        let (memory, db, tree) = fresh()?;
        let txn = db.begin(TxnOptions::default())?;
        if let Some(left) = steps_left {
            txn.core().active()?.step = u32::MAX - left;
        }
        let (map, marks, gone) = (Map::new(), Vec::new(), Vec::new());
        let mut model = Model { txn, tree: tree.clone(), map, marks, gone, writes: 0 };
        for event in events {
            model.apply(event, &db)?;
            model.check()?;
        }
        let Model { txn, map, .. } = model;
        let expected = if commits { map } else { Map::new() };
        if commits { txn.commit()? } else { txn.rollback()? }
        prop_assert_eq!(&committed(&db, &tree)?, &expected);
        let restarted = open(&memory.snapshot())?;
        prop_assert_eq!(&committed(&restarted, &restarted.open_tree("t")?)?, &expected);
    }
}
