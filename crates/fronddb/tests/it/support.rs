//! What the tests share: databases on a simulated disk, driven by hand.

pub(crate) mod hooked;

use std::sync::Arc;

use fronddb::io::MemoryStorage;
use fronddb::tree::TreeTuning;
use fronddb::{Cursor, Database, Options, Result, Transaction, Tree, TreeOptions, TxnOptions};

/// The directory of every test database.
pub(crate) const DIRECTORY: &str = "/db";

/// Values from this length on are blobs in test databases.
pub(crate) const BLOB_BYTES_MIN: usize = 4 << 10;

/// Options for a database on `storage` with tiny nodes and no threads.
pub(crate) fn options(storage: &MemoryStorage) -> Options {
    Options::new()
        .create_if_missing(true)
        .storage(Some(Arc::new(storage.clone())))
        .memory_bytes(8 << 20)
        .level0_bytes(64 << 10)
        .log_segment_bytes(1 << 20)
        .tree_tuning(Some(TreeTuning::tiny()))
        .blob_bytes_min(BLOB_BYTES_MIN)
        .checkpoint_interval_ms(0)
        .recovery_target_ms(0)
        .manual_background(true)
}

/// Opens the database on `storage`.
pub(crate) fn open(storage: &MemoryStorage) -> Database {
    Database::open(DIRECTORY, options(storage)).unwrap()
}

/// A new database and a tree in it.
pub(crate) fn fresh() -> (MemoryStorage, Database, Tree) {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    (storage, db, tree)
}

/// A transaction with default options.
pub(crate) fn begin(db: &Database) -> Transaction {
    db.begin(TxnOptions::default()).unwrap()
}

/// Everything that a cursor yields, forward.
pub(crate) fn collect(cursor: &mut Cursor) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut rows = Vec::new();
    let mut more = cursor.first()?;
    while more {
        rows.push((cursor.key().to_vec(), cursor.value().to_vec()));
        more = cursor.next()?;
    }
    Ok(rows)
}

/// Everything that a cursor yields, backward, in forward order.
pub(crate) fn collect_backward(cursor: &mut Cursor) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut rows = Vec::new();
    let mut more = cursor.last()?;
    while more {
        rows.push((cursor.key().to_vec(), cursor.value().to_vec()));
        more = cursor.prev()?;
    }
    rows.reverse();
    Ok(rows)
}

/// A small generator of pseudo-random numbers (splitmix64): the same everywhere for a seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}
