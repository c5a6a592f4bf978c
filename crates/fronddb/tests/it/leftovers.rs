//! What compactions had to leave for a snapshot or an open transaction gives its space back when that is over, without writes.

use std::ops::ControlFlow;

use fronddb::io::MemoryStorage;
use fronddb::{CompactProgress, CursorOptions, Database, Transaction, Tree, TreeOptions};

use crate::support::{begin, collect, fresh, open};

const ROWS: u32 = 6_000;

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(2_654_435_761).to_be_bytes()
}

fn fill(txn: &Transaction, tree: &Tree, salt: u8) {
    for number in 0..ROWS {
        let value: Vec<u8> = (0..60).map(|at| salt ^ (number.wrapping_mul(31 + at) >> 7) as u8).collect();
        txn.put(tree, &key(number), &value).unwrap();
    }
}

fn at_rest(db: &Database) {
    db.checkpoint().unwrap();
    while db.step_background().unwrap() {}
}

/// An id is forgotten when the memtable is gone in which its transaction ended.
fn write_another(db: &Database) {
    db.put(&db.create_tree("another", &TreeOptions::default()).unwrap(), b"k", b"v").unwrap();
    at_rest(db);
}

fn live(db: &Database) -> u64 {
    db.statistics().unwrap().file_bytes_live
}

fn rows(db: &Database, tree: &Tree) -> usize {
    collect(&mut begin(db).cursor(tree, CursorOptions::default()).unwrap()).unwrap().len()
}

/// With rows of a tree in its leaves, and what the database takes without them.
fn filled() -> (MemoryStorage, Database, Tree, u64) {
    let (storage, db, tree) = fresh();
    at_rest(&db);
    let empty = live(&db);
    let txn = begin(&db);
    fill(&txn, &tree, 0);
    txn.commit().unwrap();
    at_rest(&db);
    let mut told = |_: CompactProgress| ControlFlow::Continue(());
    db.compact(None, b"", b"", &mut told).unwrap();
    assert!(live(&db) > empty + 200_000, "{} {empty}", live(&db));
    (storage, db, tree, empty)
}

#[test]
fn a_large_transaction_that_was_rolled_back_leaves_nothing() {
    let (_, db, tree) = fresh();
    at_rest(&db);
    let empty = live(&db);
    let txn = begin(&db);
    fill(&txn, &tree, 0);
    at_rest(&db);
    assert!(live(&db) > empty + 200_000);
    txn.rollback().unwrap();
    assert!(db.statistics().unwrap().aborted_ids > 0);
    at_rest(&db);
    write_another(&db);
    let statistics = db.statistics().unwrap();
    assert_eq!(
        (statistics.aborted_ids, db.estimate(&tree, b"", b"").unwrap().rows),
        (0, 0),
        "{}",
        db.tree_shape().unwrap()
    );
    assert!(live(&db) < empty + 30_000, "{} {empty}", live(&db));
}

#[test]
fn a_rollback_before_a_crash_is_cleaned_up_after_where_nodes_are_read() {
    let (storage, db, tree) = fresh();
    at_rest(&db);
    let empty = live(&db);
    let txn = begin(&db);
    fill(&txn, &tree, 0);
    at_rest(&db);
    drop((txn, tree));
    let db = open(&storage.crash(1));
    let tree = db.open_tree("t").unwrap();
    assert_eq!(rows(&db, &tree), 0);
    at_rest(&db);
    write_another(&db);
    assert_eq!(db.statistics().unwrap().aborted_ids, 0);
    assert!(live(&db) < empty + 30_000, "{} {empty}", live(&db));
}

#[test]
fn a_tree_dropped_beside_a_reader_gives_its_space_back_after_it() {
    let (_, db, tree, empty) = filled();
    let reader = begin(&db);
    assert_eq!(collect(&mut reader.cursor(&tree, CursorOptions::default()).unwrap()).unwrap().len(), ROWS as usize);
    db.drop_tree("t").unwrap();
    at_rest(&db);
    assert!(live(&db) > empty + 200_000);
    reader.commit().unwrap();
    at_rest(&db);
    assert!(live(&db) < empty + 30_000, "{} {empty}", live(&db));
}

#[test]
fn old_versions_and_deletes_kept_for_a_reader_go_after_it() {
    let (_, db, tree, empty) = filled();
    let one = live(&db) - empty;
    let reader = begin(&db);
    let seen = |reader: &Transaction| collect(&mut reader.cursor(&tree, CursorOptions::default()).unwrap()).unwrap();
    let before = seen(&reader);
    let txn = begin(&db);
    fill(&txn, &tree, 0x5a);
    for number in (0..ROWS).step_by(2) {
        txn.delete(&tree, &key(number)).unwrap();
    }
    txn.commit().unwrap();
    at_rest(&db);
    let mut told = |_: CompactProgress| ControlFlow::Continue(());
    db.compact(None, b"", b"", &mut told).unwrap();
    assert!(live(&db) > empty + one + one / 3, "{} {empty} {one}", live(&db));
    assert!(seen(&reader) == before);
    drop(reader);
    at_rest(&db);
    assert!(live(&db) < empty + one * 2 / 3, "{} {empty} {one}", live(&db));
    assert_eq!(rows(&db, &tree), ROWS as usize / 2);
    // Nothing is written again for nothing.
    let written = |db: &Database| db.statistics().unwrap().compact_bytes;
    let (before, other) = (written(&db), db.create_tree("other", &TreeOptions::default()).unwrap());
    db.put(&other, b"k", b"v").unwrap();
    at_rest(&db);
    assert!(written(&db) < before + 10_000);
}
