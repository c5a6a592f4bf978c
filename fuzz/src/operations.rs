//! Sequences of operations on a database in memory, with crashes, against a sorted map.
//!
//! Each operation is a byte, followed by the bytes that it needs. One transaction at a time, and every commit is durable,
//! so after a crash exactly what was committed is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use fronddb::io::MemoryStorage;
use fronddb::tree::TreeTuning;
use fronddb::{
    CursorOptions, Database, ErrorKind, Op, Options, Program, Savepoint, Transaction, Tree, TreeOptions, TxnOptions,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const OPERATIONS_MAX: usize = 400;
const MUST: &str = "one transaction on a sound disk never fails";

struct World {
    storage: MemoryStorage,
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

fn open(storage: &MemoryStorage) -> (Database, Tree) {
    let options = Options::new()
        .create_if_missing(true)
        .storage(Some(Arc::new(storage.clone())))
        .memory_bytes(8 << 20)
        .level0_bytes(64 << 10)
        .log_segment_bytes(1 << 20)
        .tree_tuning(Some(TreeTuning::tiny()))
        .blob_bytes_min(1 << 10)
        .checkpoint_interval_ms(0)
        .recovery_target_ms(0)
        .manual_background(true);
    let db = Database::open("/db", options).expect(MUST);
    let tree = match db.open_tree("t") {
        Err(error) if error.kind() == ErrorKind::NotFound => db.create_tree("t", &TreeOptions::default()),
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

    fn write(&mut self, number: u8, key: Vec<u8>, argument: u8) {
        let tree = self.tree.clone();
        let Open { txn, map, .. } = self.open_txn();
        let value = vec![argument; usize::from(argument) * 9];
        match number {
            0..=3 => {
                txn.put(&tree, &key, &value).expect(MUST);
                map.insert(key, value);
            }
            4 => {
                txn.delete(&tree, &key).expect(MUST);
                map.remove(&key);
            }
            5 => {
                let mut end = key.clone();
                end.push(argument);
                txn.delete_range(&tree, &key, &end).expect(MUST);
                map.retain(|other, _| *other < key || *other >= end);
            }
            6 => {
                txn.insert_if_absent(&tree, &key, &value).expect(MUST);
                map.entry(key).or_insert(value);
            }
            _ => {
                let mut program = Vec::new();
                Program { ops: vec![Op::Append { bytes: vec![argument] }] }.encode(&mut program);
                txn.update(&tree, &key, &program).expect(MUST);
                if let Some(value) = map.get_mut(&key) {
                    value.push(argument);
                }
            }
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
                let open = self.open_txn();
                if let Some((mark, map)) = open.marks.last() {
                    open.txn.rollback_to(*mark).expect(MUST);
                    open.map.clone_from(map);
                }
            }
            10 | 11 => {
                if let Some(open) = self.txn.take() {
                    open.txn.commit().expect(MUST);
                    self.committed = open.map;
                }
            }
            12 => {
                if let Some(open) = self.txn.take() {
                    open.txn.rollback().expect(MUST);
                }
            }
            13 => {
                self.db.step_background().expect(MUST);
            }
            14 => self.db.checkpoint().expect(MUST),
            _ => {
                self.txn = None;
                self.storage = self.storage.crash(u64::from(argument));
                (self.db, self.tree) = open(&self.storage);
                self.compare();
            }
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
    }
}

/// Runs the operations that the bytes stand for.
pub fn operations(bytes: &[u8]) {
    let storage = MemoryStorage::new();
    let (db, tree) = open(&storage);
    let mut world = World { storage, db, tree, committed: Map::new(), txn: None };
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
    world.compare();
    world.txn = None;
    world.db.check(&mut |finding| panic!("{finding:?}"), None).expect(MUST);
}
