//! Sequences of operations on a database in memory, with crashes, against a sorted map.
//!
//! Each operation is a byte, followed by the bytes that it needs. One transaction at a time, and every commit is durable,
//! so after a crash exactly what was committed is there.
//!
//! On a small disk there is one operation more: the disk has so much room left. What it refuses for that (`NoSpace`) has changed
//! nothing; reads, commits, rollbacks and restarts go on. But where the log has one segment only, which a disk without room for a second leaves it
//! with, a commit or a rollback to a savepoint may be refused as well: of the one nothing is there, by the other nothing has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use fronddb::io::MemoryStorage;
use fronddb::tree::TreeTuning;
use fronddb::{
    CursorOptions, Database, ErrorKind, Op, Options, Program, Result, Savepoint, Transaction, Tree, TreeOptions,
    TxnOptions,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The only tree.
pub(super) const TREE: &str = "t";
const OPERATIONS_MAX: usize = 400;
const MUST: &str = "one transaction on a sound disk never fails";
/// An operation on a small disk leaves it a multiple of this.
const ROOM_BYTES: u64 = 16 << 10;

struct World {
    storage: MemoryStorage,
    is_small: bool,
    db: Database,
    tree: Tree,
    committed: Map,
    txn: Option<Open>,
}

struct Open {
    txn: Transaction,
    map: Map,
    marks: Vec<(Savepoint, Map)>,
}

/// Tiny nodes, and no threads.
pub(super) fn options(storage: &MemoryStorage) -> Options {
    Options::new()
        .create_if_missing(true)
        .storage(Some(Arc::new(storage.clone())))
        .memory_bytes(8 << 20)
        .level0_bytes(64 << 10)
        .log_segment_bytes(1 << 20)
        .tree_tuning(Some(TreeTuning::tiny()))
        .blob_bytes_min(1 << 10)
        .checkpoint_interval_ms(0)
        .recovery_target_ms(0)
        .manual_background(true)
}

fn open(storage: &MemoryStorage) -> (Database, Tree) {
    let db = Database::open("/db", options(storage)).expect(MUST);
    let tree = match db.open_tree(TREE) {
        Err(error) if error.kind() == ErrorKind::NotFound => db.create_tree(TREE, &TreeOptions::default()),
        other => other,
    };
    (db, tree.expect(MUST))
}

impl World {
    fn open_txn(&mut self) -> &mut Open {
        let World { db, committed, txn, .. } = self;
        txn.get_or_insert_with(|| Open {
            txn: db.begin(TxnOptions::default()).expect(MUST),
            map: committed.clone(),
            marks: Vec::new(),
        })
    }

    /// Whether it was done, or refused by a full disk.
    fn is_done<T>(&self, outcome: Result<T>) -> bool {
        let is_refused = outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace);
        if !(self.is_small && is_refused) {
            outcome.map(drop).expect(MUST);
        }
        !is_refused
    }

    /// The same of what only a log with a single segment may refuse.
    fn is_logged(&self, outcome: Result<()>) -> bool {
        let is_logged = self.is_done(outcome);
        let segments = self.storage.files().iter().filter(|(path, _)| path.starts_with("/db/log")).count();
        assert!(is_logged || segments == 1, "refused, segments={segments}");
        is_logged
    }

    fn restart(&mut self, seed: u64) {
        self.txn = None;
        self.storage = self.storage.crash(seed);
        (self.db, self.tree) = open(&self.storage);
        self.compare();
    }

    fn write(&mut self, number: u8, key: Vec<u8>, argument: u8) {
        let tree = self.tree.clone();
        let value = noise(argument, usize::from(argument) * 9);
        let mut end = key.clone();
        end.push(argument);
        let txn = &self.open_txn().txn;
        let outcome = match number {
            0..=3 => txn.put(&tree, &key, &value),
            4 => txn.delete(&tree, &key),
            5 => txn.delete_range(&tree, &key, &end),
            6 => txn.insert_if_absent(&tree, &key, &value),
            _ => {
                let mut program = Vec::new();
                Program { ops: vec![Op::Append { bytes: vec![argument] }] }.encode(&mut program);
                txn.update(&tree, &key, &program)
            }
        };
        if !self.is_done(outcome) {
            return;
        }
        let map = &mut self.open_txn().map;
        match number {
            0..=3 => drop(map.insert(key, value)),
            4 => drop(map.remove(&key)),
            5 => map.retain(|other, _| *other < key || *other >= end),
            6 => drop(map.entry(key).or_insert(value)),
            _ => map.get_mut(&key).into_iter().for_each(|value| value.push(argument)),
        }
    }

    fn control(&mut self, number: u8, argument: u8) {
        match number {
            8 => {
                let open = self.open_txn();
                let mark = open.txn.savepoint().expect(MUST);
                open.marks.push((mark, open.map.clone()));
            }
            9 => {
                let Some((mark, map)) = self.open_txn().marks.last().cloned() else { return };
                let outcome = self.open_txn().txn.rollback_to(mark);
                if self.is_logged(outcome) {
                    self.open_txn().map = map;
                }
            }
            10 | 11 => {
                let Some(open) = self.txn.take() else { return };
                if self.is_logged(open.txn.commit()) {
                    self.committed = open.map;
                } else {
                    self.restart(u64::from(argument));
                }
            }
            12 => {
                if let Some(open) = self.txn.take() {
                    open.txn.rollback().expect(MUST);
                }
            }
            13 if self.is_small && argument >= 128 => {
                let room = u64::from(argument - 128) * ROOM_BYTES;
                self.storage.set_capacity(self.storage.occupied_bytes() + room);
            }
            13 => {
                let stepped = self.db.step_background();
                self.is_done(stepped);
            }
            14 => {
                let outcome = self.db.checkpoint();
                self.is_done(outcome);
            }
            _ => self.restart(u64::from(argument)),
        }
    }

    /// What the open transaction, or a new one, sees.
    fn compare(&mut self) {
        let tree = self.tree.clone();
        let Open { txn, map, .. } = self.open_txn();
        let mut cursor = txn.cursor(&tree, CursorOptions::default()).expect(MUST);
        let mut found = Map::new();
        let mut more = cursor.first().expect(MUST);
        while more {
            found.insert(cursor.key().to_vec(), cursor.value().to_vec());
            more = cursor.next().expect(MUST);
        }
        assert_eq!(&found, map);
        let mut more = cursor.last().expect(MUST);
        for (key, value) in map.iter().rev() {
            assert!(more && cursor.key() == key && cursor.value() == value, "backward, key={key:?}");
            more = cursor.prev().expect(MUST);
        }
        assert!(!more);
        for (key, value) in map.iter().step_by(7) {
            assert_eq!(txn.get(&tree, key).expect(MUST).as_deref(), Some(&value[..]));
        }
    }
}

/// Bytes that no codec makes shorter.
fn noise(seed: u8, length: usize) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Runs the operations that the bytes stand for.
pub fn operations(bytes: &[u8]) {
    run(bytes, false);
}

/// The same on a disk that may be full.
pub fn small_disk(bytes: &[u8]) {
    run(bytes, true);
}

fn run(bytes: &[u8], is_small: bool) {
    let storage = MemoryStorage::new();
    let (db, tree) = open(&storage);
    // The log gets its second segment.
    while db.step_background().expect(MUST) {}
    let mut world = World { storage, is_small, db, tree, committed: Map::new(), txn: None };
    let mut source = bytes.iter().copied();
    for _ in 0..OPERATIONS_MAX {
        let Some(byte) = source.next() else { break };
        let number = byte & 15;
        let argument = source.next().unwrap_or(0);
        if number < 8 {
            let key = vec![b'k'; usize::from(byte >> 6)].into_iter().chain([byte >> 4, source.next().unwrap_or(0)]);
            world.write(number, key.collect(), argument);
        } else {
            world.control(number, argument);
        }
    }
    world.storage.set_capacity(u64::MAX);
    world.compare();
    world.txn = None;
    world.db.check(&mut |finding| panic!("{finding:?}"), None).expect(MUST);
}
