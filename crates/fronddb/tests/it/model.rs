//! The reference model: random operations at all isolation levels, in trees of all codecs, bulk loads, transactions,
//! savepoints, snapshots, prepares, background steps and crashes, compared with sorted maps. Single-threaded and driven by
//! hand, so a seed tells the whole story:
//! `MODEL_SEED=17 cargo test --test it model` runs one, `MODEL_SEEDS=5000` more than the default number, `MODEL_FROM=100000`
//! others.

mod cursors;

use std::collections::BTreeMap;

use fronddb::io::MemoryStorage;
use fronddb::{
    BulkOptions, Codec, CursorOptions, Database, Durability, ErrorKind, Isolation, LockMode, Locked, Op, Options,
    Program, Result, Savepoint, Transaction, Tree, TreeOptions, TxnOptions, Wait,
};

use self::cursors::Held;
use crate::support::{Random, collect, collect_backward, options};

type Key = (usize, Vec<u8>);
type Map = BTreeMap<Key, Vec<u8>>;

const TREES: usize = 4;
/// The tree whose keys are put only where they have no value, so that a single-delete may take them.
const ENTRIES: usize = 3;
const KEYS: u64 = 120;

fn tree_options(number: usize) -> TreeOptions {
    let codecs = [Codec::Zstd { level: 1 }, Codec::None, Codec::Lz4];
    TreeOptions { codec: Some(codecs[number % codecs.len()]), ..TreeOptions::default() }
}

/// What a transaction did to a key or a range.
#[derive(Debug, Clone)]
enum Change {
    Put(Key, Vec<u8>),
    InsertIfAbsent(Key, Vec<u8>),
    Delete(Key),
    Append(Key, Vec<u8>),
    Nothing,
    DeleteRange(usize, Vec<u8>, Vec<u8>),
}

impl Change {
    fn apply(&self, map: &mut Map) {
        match self {
            Change::Put(key, value) => {
                map.insert(key.clone(), value.clone());
            }
            Change::InsertIfAbsent(key, value) => {
                map.entry(key.clone()).or_insert_with(|| value.clone());
            }
            Change::Delete(key) => {
                map.remove(key);
            }
            Change::Append(key, bytes) => {
                if let Some(value) = map.get_mut(key) {
                    value.extend_from_slice(bytes);
                }
            }
            Change::Nothing => {}
            Change::DeleteRange(tree, lower, upper) => {
                map.retain(|(of, key), _| of != tree || key < lower || key >= upper);
            }
        }
    }

    /// The tree and the first key that it may have changed.
    fn place(&self) -> Option<(usize, &Vec<u8>)> {
        match self {
            Change::Put(key, _) | Change::InsertIfAbsent(key, _) | Change::Append(key, _) | Change::Delete(key) => {
                Some((key.0, &key.1))
            }
            Change::Nothing => None,
            Change::DeleteRange(tree, lower, _) => Some((*tree, lower)),
        }
    }

    fn touches(&self, key: &Key) -> bool {
        match self {
            Change::Put(written, _) | Change::InsertIfAbsent(written, _) | Change::Append(written, _) => written == key,
            Change::Delete(written) => written == key,
            Change::Nothing => false,
            Change::DeleteRange(tree, lower, upper) => key.0 == *tree && *lower <= key.1 && key.1 < *upper,
        }
    }
}

fn apply(changes: &[Change], base: &Map) -> Map {
    let mut map = base.clone();
    changes.iter().for_each(|change| change.apply(&mut map));
    map
}

/// What a transaction at REPEATABLE READ sees of others.
struct Snapshot {
    map: Map,
    /// How many transactions had committed.
    commits: usize,
}

struct Open {
    txn: Transaction,
    isolation: Isolation,
    durability: Durability,
    first_updater_wins: bool,
    snapshot: Option<Snapshot>,
    /// Within a statement: what its plain reads see at READ COMMITTED, once there was one.
    statement: Option<Option<Map>>,
    /// Within a statement: what its cursors see that see what is committed, below REPEATABLE READ, once there was one.
    walked: Option<Map>,
    changes: Vec<Change>,
    marks: Vec<(Savepoint, usize)>,
    cursors: Vec<Held>,
}

impl Open {
    fn locks_gaps(&self) -> bool {
        matches!(self.isolation, Isolation::RepeatableRead | Isolation::Serializable)
    }
}

struct World {
    seed: u64,
    random: Random,
    storage: MemoryStorage,
    db: Database,
    trees: Vec<Tree>,
    /// The states after each commit, oldest first; those before the first are gone for good.
    states: Vec<Map>,
    /// What each commit since the start changed.
    commits: Vec<Vec<Change>>,
    open: Vec<Open>,
    prepared: BTreeMap<Vec<u8>, Vec<Change>>,
    /// Bulk loads whose rows became leaves at once.
    grafts: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let storage = MemoryStorage::new();
        let db = Database::open(crate::support::DIRECTORY, World::options(seed, &storage)).unwrap();
        let create = |number| db.create_tree(&format!("tree {number}"), &tree_options(number)).unwrap();
        let trees = (0..TREES).map(create).collect();
        World {
            seed,
            random: Random::new(seed),
            storage,
            db,
            trees,
            states: vec![Map::new()],
            commits: Vec::new(),
            open: Vec::new(),
            prepared: BTreeMap::new(),
            grafts: 0,
        }
    }

    fn options(seed: u64, storage: &MemoryStorage) -> Options {
        options(storage).log_compression(seed % 2 == 1)
    }

    fn committed(&self) -> &Map {
        self.states.last().unwrap()
    }

    /// These changes have been committed.
    fn commit(&mut self, changes: Vec<Change>) {
        let state = apply(&changes, self.committed());
        self.states.push(state);
        self.commits.push(changes);
    }

    /// Everything committed so far has become durable.
    fn durable(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    fn key(&mut self) -> Key {
        let tree = self.random.below(TREES as u64) as usize;
        (tree, format!("key{:04}", self.random.below(KEYS)).into_bytes())
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.below(60) {
            0 => 5000 + self.random.below(9000),
            1..6 => 0,
            _ => self.random.below(90),
        };
        let byte = self.random.below(256) as u8;
        (0..length).map(|index| byte.wrapping_add((index / 7) as u8)).collect()
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..12 if self.open.len() < 4 => self.begin(),
            0..46 => self.write(),
            46 => {
                let tree = self.random.below(TREES as u64) as usize;
                self.load(tree);
            }
            47..50 => {
                let tree = self.random.below(TREES as u64) as usize;
                if self.recreate(tree) && self.open.is_empty() {
                    self.begin();
                }
                self.load(tree);
            }
            50..68 => self.read(),
            68..71 => self.mark(),
            71..73 => self.turn(),
            73..84 => self.end(),
            84..86 => self.prepare(),
            86..88 => self.decide(),
            88..96 => {
                self.db.step_background().unwrap();
            }
            96 => {
                self.db.checkpoint().unwrap();
                self.durable();
            }
            97 => {
                let durability = if self.random.below(2) == 0 { Durability::Sync } else { Durability::None };
                self.single(durability);
            }
            98 if self.random.below(3) == 0 => self.crash(),
            step => {
                if step == 98 {
                    self.write_over();
                }
                while self.db.step_background().unwrap() {}
            }
        }
        self.follow_cursors();
        if self.random.below(4) == 0 {
            self.move_cursors();
        }
    }

    fn begin(&mut self) {
        let isolation = match self.random.below(6) {
            0 => Isolation::ReadUncommitted,
            1 => Isolation::ReadCommitted,
            2 => Isolation::Serializable,
            _ => Isolation::RepeatableRead,
        };
        let first_updater_wins = isolation == Isolation::RepeatableRead && self.random.below(3) == 0;
        let durability = if self.random.below(3) == 0 { Durability::None } else { Durability::Sync };
        let options = TxnOptions {
            isolation,
            durability,
            lock_timeout: Some(std::time::Duration::ZERO),
            first_updater_wins,
            ..TxnOptions::default()
        };
        let txn = self.db.begin(options).unwrap();
        let (changes, marks, cursors) = (Vec::new(), Vec::new(), Vec::new());
        self.open.push(Open {
            txn,
            isolation,
            durability,
            first_updater_wins,
            snapshot: None,
            statement: None,
            walked: None,
            changes,
            marks,
            cursors,
        });
    }

    /// The transaction has its snapshot, from now on if it had none.
    fn snapshot(&mut self, at: usize) -> &Snapshot {
        let now = || Snapshot { map: self.states.last().unwrap().clone(), commits: self.commits.len() };
        self.open[at].snapshot.get_or_insert_with(now)
    }

    /// What a plain read at READ COMMITTED sees: throughout a statement the same.
    fn statement(&mut self, at: usize) -> Map {
        let now = self.committed().clone();
        match &mut self.open[at].statement {
            Some(seen) => seen.get_or_insert(now).clone(),
            None => now,
        }
    }

    /// The same of a cursor that sees what is committed, below REPEATABLE READ.
    fn walked(&mut self, at: usize) -> Map {
        let now = self.committed().clone();
        let open = &mut self.open[at];
        if open.statement.is_some() { open.walked.get_or_insert(now).clone() } else { now }
    }

    /// A statement begins, and ends the one before, or ends.
    fn turn(&mut self) {
        let Some(at) = self.pick() else { return };
        let begins = self.random.below(3) > 0;
        let open = &mut self.open[at];
        let turned = if begins { open.txn.begin_statement() } else { open.txn.end_statement() };
        turned.unwrap();
        open.statement = begins.then_some(None);
        open.walked = None;
    }

    /// At first-updater-wins, after a write or locking read of `key` was answered: whether it was refused because somebody
    /// changed the row, which must be so where its value is another, and may be so where it was touched.
    fn is_conflict<T>(&mut self, at: usize, key: &Key, result: &Result<T>) -> bool {
        let is_refused = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict);
        let is_answered = result.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::LockTimeout);
        if !self.open[at].first_updater_wins {
            assert!(!is_refused, "seed {}: {key:?}", self.seed);
        } else if is_answered {
            let since = self.snapshot(at);
            let (before, commits) = (since.map.get(key).cloned(), since.commits);
            let is_touched = self.commits[commits..].iter().flatten().any(|change| change.touches(key));
            let is_other = before.as_ref() != self.committed().get(key);
            assert!(
                if is_refused { is_touched } else { !is_other },
                "seed {}: {key:?}, refused={is_refused}",
                self.seed
            );
        }
        is_refused
    }

    fn pick(&mut self) -> Option<usize> {
        if self.open.is_empty() { None } else { Some(self.random.below(self.open.len() as u64) as usize) }
    }

    /// Whether somebody else could hold a lock.
    fn contended(&self) -> bool {
        self.open.len() + self.prepared.len() > 1
    }

    /// True when done, false when another transaction was in the way.
    fn granted<T>(&self, result: &Result<T>) -> bool {
        match result {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::LockTimeout && self.contended() => false,
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn write(&mut self) {
        let Some(at) = self.pick() else { return };
        let (key, value) = (self.key(), self.value());
        let latest = apply(&self.open[at].changes, self.committed());
        let kind = match (key.0 == ENTRIES, latest.contains_key(&key)) {
            (false, _) => self.random.below(20),
            (true, false) => [0, 0, 0, 10, 15, 16, 18][self.random.below(7) as usize],
            (true, true) => [20, 20, 20, 10, 15, 16, 18][self.random.below(7) as usize],
        };
        let open = &self.open[at];
        let tree = &self.trees[key.0];
        let (result, change) = match kind {
            0..8 => (open.txn.put(tree, &key.1, &value), Change::Put(key.clone(), value)),
            8..10 => {
                let result = open.txn.insert_if_absent(tree, &key.1, &value);
                // A large value is not written blindly: what counts is whether the latest row exists.
                let change = match value.len() < crate::support::BLOB_BYTES_MIN {
                    true => Change::InsertIfAbsent(key.clone(), value),
                    false if latest.contains_key(&key) => Change::Nothing,
                    false => Change::Put(key.clone(), value),
                };
                (result, change)
            }
            10..13 => (open.txn.delete(tree, &key.1), Change::Delete(key.clone())),
            13..15 => {
                let mut program = Vec::new();
                Program { ops: vec![Op::Append { bytes: vec![7; 3] }] }.encode(&mut program);
                (open.txn.update(tree, &key.1, &program), Change::Append(key.clone(), vec![7; 3]))
            }
            15 => {
                let mut upper = key.1.clone();
                *upper.last_mut().unwrap() += 4;
                let result = open.txn.delete_range(tree, &key.1, &upper);
                (result, Change::DeleteRange(key.0, key.1.clone(), upper))
            }
            16..18 => {
                let existed = open.txn.delete_existing(tree, &key.1);
                if let Ok(existed) = &existed {
                    assert_eq!(*existed, latest.contains_key(&key), "seed {}", self.seed);
                }
                // Without a latest row nothing is written, whatever an older snapshot shows.
                let change = if matches!(existed, Ok(true)) { Change::Delete(key.clone()) } else { Change::Nothing };
                (existed.map(|_| ()), change)
            }
            20 => (open.txn.single_delete(tree, &key.1), Change::Delete(key.clone())),
            _ => {
                let result = open.txn.insert(tree, &key.1, &value);
                if let Err(error) = &result
                    && error.kind() == ErrorKind::KeyExists
                {
                    assert!(latest.contains_key(&key), "seed {}: {key:?}", self.seed);
                    self.is_conflict(at, &key, &result);
                    return;
                }
                assert!(result.is_err() || !latest.contains_key(&key), "seed {}: {key:?}", self.seed);
                (result, Change::Put(key.clone(), value))
            }
        };
        // A range-delete does not look at what it deletes; the others have taken their snapshot though they did not get their lock.
        let takes_snapshot = kind != 15 && !(16..18).contains(&kind);
        if self.open[at].first_updater_wins && takes_snapshot {
            self.snapshot(at);
        }
        if kind != 15 && self.is_conflict(at, &key, &result) {
            return;
        }
        if self.granted(&result) {
            assert!(!self.is_prepared(&key), "seed {}: wrote to what a prepared transaction wrote", self.seed);
            self.open[at].changes.push(change);
        }
    }

    /// Makes a tree anew, in a transaction of its own, unless somebody has a lock in it.
    fn recreate(&mut self, at: usize) -> bool {
        let lock_timeout = Some(std::time::Duration::ZERO);
        let txn = self.db.begin(TxnOptions { lock_timeout, ..TxnOptions::default() }).unwrap();
        let name = format!("tree {at}");
        let made = txn.drop_tree(&name).and_then(|()| txn.create_tree(&name, &tree_options(at)));
        if let Err(error) = &made
            && error.kind() == ErrorKind::LockTimeout
        {
            return false;
        }
        self.trees[at] = made.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        txn.commit().unwrap();
        let mut state = self.committed().clone();
        state.retain(|(tree, _), _| *tree != at);
        self.states.push(state);
        self.durable();
        // What a snapshot saw in the tree is gone with it.
        for open in &mut self.open {
            let snapshot = open.snapshot.as_mut().map(|snapshot| &mut snapshot.map);
            for map in snapshot.into_iter().chain(open.statement.iter_mut().flatten()).chain(&mut open.walked) {
                map.retain(|(tree, _), _| *tree != at);
            }
            open.cursors.extract_if(.., |held| held.tree == at).for_each(|held| held.refuses(ErrorKind::NotFound));
        }
        true
    }

    /// Loads a tree that is empty for the transaction, now and then with a key twice or giving up half-way.
    fn load(&mut self, tree: usize) {
        let Some(at) = self.pick() else { return };
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for _ in 0..1 + self.random.below(600) {
            let key = format!("key{:04}", self.random.below(10 * KEYS)).into_bytes();
            let value = self.value();
            rows.insert(key, value);
        }
        let memory_bytes = if self.random.below(2) == 0 { 0 } else { 1 };
        let twice = self.random.below(10) == 0;
        let give_up = self.random.below(10) == 0;
        let latest = apply(&self.open[at].changes, self.committed());
        let is_empty = latest.keys().all(|(of, _)| *of != tree);
        let options = BulkOptions { memory_bytes, ..BulkOptions::default() };
        let begun = self.open[at].txn.bulk(&self.trees[tree], &options);
        if let Err(error) = &begun
            && error.kind() == ErrorKind::InvalidArgument
        {
            return assert!(!is_empty, "seed {}: {error}", self.seed);
        }
        if !self.granted(&begun) {
            return;
        }
        assert!(is_empty, "seed {}: loading a tree that has rows", self.seed);
        let mut bulk = begun.unwrap();
        rows.iter().rev().for_each(|(key, value)| bulk.add(key, value).unwrap());
        if twice {
            let (key, value) = rows.first_key_value().unwrap();
            bulk.add(key, value).unwrap();
        }
        let log_bytes = self.db.statistics().unwrap().log_bytes;
        match bulk.finish(&mut |_| !give_up) {
            Ok(()) => assert!(!twice && !give_up, "seed {}", self.seed),
            Err(error) if error.kind() == ErrorKind::KeyExists => return assert!(twice, "seed {}", self.seed),
            Err(error) if error.kind() == ErrorKind::Cancelled => return assert!(give_up, "seed {}", self.seed),
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
        self.grafts += u64::from(self.db.statistics().unwrap().log_bytes == log_bytes);
        for (key, value) in rows {
            let key = (tree, key);
            assert!(!self.is_prepared(&key), "seed {}: loaded what a prepared transaction wrote", self.seed);
            self.open[at].changes.push(Change::Put(key, value));
        }
    }

    /// Whether a prepared transaction has written this key.
    fn is_prepared(&self, key: &Key) -> bool {
        self.prepared.values().flatten().any(|change| change.touches(key))
    }

    fn read(&mut self) {
        let Some(at) = self.pick() else { return };
        let key = self.key();
        let kind = self.random.below(6);
        let base = match self.open[at].isolation {
            Isolation::RepeatableRead if kind != 5 => self.snapshot(at).map.clone(),
            Isolation::ReadUncommitted => self.with_others(at),
            Isolation::ReadCommitted if kind != 5 => self.statement(at),
            _ => self.committed().clone(),
        };
        let open = &self.open[at];
        let seen = apply(&open.changes, &base);
        let tree = &self.trees[key.0];
        let context = format!("seed {}, {:?}, {key:?}", self.seed, open.isolation);
        match kind {
            0..3 => {
                let value = open.txn.get(tree, &key.1);
                if self.granted(&value) {
                    assert_eq!(value.unwrap().as_deref(), seen.get(&key).map(Vec::as_slice), "{context}");
                }
            }
            5 => {
                let mode = if key.1.len().is_multiple_of(2) { LockMode::Shared } else { LockMode::Exclusive };
                let got = open.txn.get_locked(tree, &key.1, mode, Wait::SkipLocked);
                let is_skipped = matches!(got, Ok(Locked::Skipped));
                if !is_skipped && self.is_conflict(at, &key, &got) {
                    return;
                }
                match got.unwrap() {
                    Locked::Skipped => assert!(self.contended(), "{context}"),
                    Locked::Absent => assert_eq!(seen.get(&key), None, "{context}"),
                    Locked::Row(value) => assert_eq!(Some(&value[..]), seen.get(&key).map(Vec::as_slice), "{context}"),
                }
            }
            _ => {
                let options =
                    CursorOptions { lower: std::ops::Bound::Included(key.1.clone()), ..CursorOptions::default() };
                let mut cursor = open.txn.cursor(tree, options).unwrap();
                let rows = if kind == 3 { collect(&mut cursor) } else { collect_backward(&mut cursor) };
                if self.granted(&rows) {
                    let expected: Vec<_> = seen
                        .range(key.clone()..(key.0 + 1, Vec::new()))
                        .map(|((_, key), value)| (key.clone(), value.clone()))
                        .collect();
                    assert!(rows.unwrap() == expected, "{context}: scan differs");
                }
            }
        }
    }

    /// What is committed, and what all others have done. They cannot have done anything to the same key.
    fn with_others(&self, at: usize) -> Map {
        self.of_others(at).fold(self.committed().clone(), |map, changes| apply(changes, &map))
    }

    /// What each other transaction has done that is under way.
    fn of_others(&self, at: usize) -> impl Iterator<Item = &Vec<Change>> {
        let open = self.open.iter().enumerate().filter(move |(other, _)| *other != at).map(|(_, open)| &open.changes);
        open.chain(self.prepared.values())
    }

    fn mark(&mut self) {
        let Some(at) = self.pick() else { return };
        let back = self.random.below(2) == 0;
        let open = &mut self.open[at];
        if back && !open.marks.is_empty() {
            let to = self.random.below(open.marks.len() as u64) as usize;
            let (mark, length) = open.marks[to];
            open.txn.rollback_to(mark).unwrap();
            open.changes.truncate(length);
            open.marks.truncate(to + 1);
        } else {
            open.marks.push((open.txn.savepoint().unwrap(), open.changes.len()));
        }
    }

    fn end(&mut self) {
        let Some(at) = self.pick() else { return };
        let open = self.open.swap_remove(at);
        if self.random.below(4) == 0 {
            open.txn.rollback().unwrap();
            return cursors::are_closed(open.cursors);
        }
        open.txn.commit().unwrap();
        cursors::are_closed(open.cursors);
        // A commit without messages logs nothing, so it waits for nothing.
        let wrote = open.changes.iter().any(|change| !matches!(change, Change::Nothing));
        self.commit(open.changes);
        if open.durability == Durability::Sync && wrote {
            self.durable();
        }
    }

    fn single(&mut self, durability: Durability) {
        let key = self.key();
        self.single_at(key, durability);
    }

    /// A few rows are written over and over: level 0 forgets what nobody sees any more, under cursors that stand there.
    fn write_over(&mut self) {
        let keys = [self.key(), self.key(), self.key()];
        let count = 1 + self.random.below(3) as usize;
        for turn in 0..30 {
            self.single_at(keys[turn % count].clone(), Durability::None);
            self.follow_cursors();
        }
    }

    fn single_at(&mut self, key: Key, durability: Durability) {
        let value = self.value();
        let mut batch = fronddb::WriteBatch::new();
        let change = if key.0 == ENTRIES && self.committed().contains_key(&key) {
            batch.single_delete(&self.trees[key.0], &key.1).unwrap();
            Change::Delete(key)
        } else {
            batch.put(&self.trees[key.0], &key.1, &value).unwrap();
            Change::Put(key, value)
        };
        let options = TxnOptions { durability, lock_timeout: Some(std::time::Duration::ZERO), ..TxnOptions::default() };
        match self.db.write(&batch, options) {
            Ok(()) => {
                self.commit(vec![change]);
                if durability == Durability::Sync {
                    self.durable();
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::LockTimeout, "seed {}: {error}", self.seed),
        }
    }

    fn prepare(&mut self) {
        let Some(at) = self.pick() else { return };
        let open = self.open.swap_remove(at);
        // The first that is free: coordinators give the ids of what is decided to others.
        let mut names = (0..).map(|number: u32| format!("xid {number}").into_bytes());
        let xid = names.find(|name| !self.prepared.contains_key(name)).unwrap();
        open.txn.prepare(&xid).unwrap();
        cursors::are_closed(open.cursors);
        self.prepared.insert(xid, open.changes);
        self.durable();
    }

    fn decide(&mut self) {
        let Some((xid, changes)) = self.prepared.pop_first() else { return };
        if self.random.below(2) == 0 {
            self.db.commit_prepared(&xid).unwrap();
            self.commit(changes);
        } else {
            self.db.rollback_prepared(&xid).unwrap();
        }
        self.durable();
    }

    fn crash(&mut self) {
        let crashed = self.storage.crash(self.random.next());
        self.open.clear();
        self.storage = crashed;
        let db = Database::open(crate::support::DIRECTORY, World::options(self.seed, &self.storage));
        self.db = db.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        self.trees = (0..TREES).map(|number| self.db.open_tree(&format!("tree {number}")).unwrap()).collect();
        self.compare();
        let xids: Vec<_> = self.db.prepared().unwrap().into_iter().map(|info| info.xid).collect();
        let mut expected: Vec<_> = self.prepared.keys().cloned().collect();
        expected.sort_by_key(|xid| xids.iter().position(|other| other == xid));
        assert_eq!(xids, expected, "seed {}", self.seed);
    }

    /// What is there must be one of the states since the last durable one; it is the only one from now on.
    fn compare(&mut self) {
        let txn = self.db.begin(TxnOptions { read_only: true, ..TxnOptions::default() }).unwrap();
        let mut found = Map::new();
        for (number, tree) in self.trees.iter().enumerate() {
            for (key, value) in collect(&mut txn.cursor(tree, CursorOptions::default()).unwrap()).unwrap() {
                found.insert((number, key), value);
            }
        }
        let at = self.states.iter().rposition(|state| *state == found);
        let at = at.unwrap_or_else(|| {
            let last = self.committed();
            let different = |key: &&Key| found.get(*key) != last.get(*key);
            let keys: Vec<_> = found.keys().chain(last.keys()).filter(different).take(5).collect();
            panic!("seed {}: no state is like what was found; differs from the last at {keys:?}", self.seed)
        });
        self.states = vec![self.states.swap_remove(at)];
    }

    fn finish(mut self) -> u64 {
        self.open.clear();
        while self.db.step_background().unwrap() {}
        self.states.drain(..self.states.len() - 1);
        self.compare();
        self.db.check(&mut |finding| panic!("seed {}: {finding:?}", self.seed), None).unwrap();
        self.grafts
    }
}

fn run(seed: u64, steps: u64) -> u64 {
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.finish()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// So many seeds, the usual ones or others.
fn seed_range(seeds: u64) -> std::ops::Range<u64> {
    let first = number("MODEL_FROM").unwrap_or(0);
    first..first + seeds
}

#[test]
fn long_random_histories_agree_with_the_model() {
    if let Some(seed) = number("MODEL_SEED") {
        run(seed, number("MODEL_STEPS").unwrap_or(1500));
        return;
    }
    let seeds = number("MODEL_SEEDS").unwrap_or(40);
    let grafts: u64 = seed_range(seeds).map(|seed| run(seed, number("MODEL_STEPS").unwrap_or(1500))).sum();
    println!("grafts={grafts}");
    assert!(grafts > seeds, "few loads became leaves at once, grafts={grafts}");
}

/// Each history ends in a crash and a reopening, wherever it then is: in a seal, between publications, with
/// transactions open and prepared.
#[test]
fn thousands_of_short_histories_survive_a_crash_at_their_end() {
    for seed in seed_range(number("MODEL_SEEDS").unwrap_or(3000)) {
        let mut world = World::new(1_000_000 + seed);
        for _ in 0..20 + seed % 97 {
            world.step();
        }
        world.crash();
        world.finish();
    }
}
