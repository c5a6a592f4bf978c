//! What compactions had to leave for a snapshot or an open transaction gives its space back when that is over, without writes.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use fronddb::base::clock::Clock;
use fronddb::base::random::mix;
use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};
use fronddb::{CompactProgress, CursorOptions, Database, Transaction, Tree, TreeOptions};

use crate::support::hooked::{Hook, HookedStorage};
use crate::support::{DIRECTORY, begin, collect, fresh, open, options};

const ROWS: u32 = 6_000;

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(2_654_435_761).to_be_bytes()
}

/// Noise: it takes as much space in every layout, whichever a block happens to be stored in.
fn fill(txn: &Transaction, tree: &Tree, salt: u8) {
    for number in 0..ROWS {
        let value: Vec<u8> = (0..60).map(|at| mix(u64::from(number) << 16 | at << 8 | u64::from(salt)) as u8).collect();
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
fn what_was_left_when_a_read_or_a_write_failed_goes_later() {
    for (class, fault) in [(CallClass::Write, Fault::NoSpace), (CallClass::Read, Fault::NoMemory)] {
        let (memory, plan, clock) = (MemoryStorage::new(), FaultPlan::new(), Clock::manual());
        let storage = FaultStorage::new(Arc::new(memory.clone()), plan.clone());
        let options = options(&memory).storage(Some(Arc::new(storage))).clock(Some(clock.clone()));
        let db = Database::open(DIRECTORY, options).unwrap();
        let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
        at_rest(&db);
        let empty = live(&db);
        let txn = begin(&db);
        fill(&txn, &tree, 0);
        at_rest(&db);
        txn.rollback().unwrap();
        plan.add(FaultRule::from(class, 1, fault).on("data.frond"));
        // The want of space is noted, that of memory told.
        let stepped = db.step_background();
        assert!(plan.fired() > 0 && (stepped.is_err() || class == CallClass::Write), "{class:?} {stepped:?}");
        plan.clear();
        clock.advance_micros(10_000_000);
        at_rest(&db);
        assert!(live(&db) < empty + 30_000, "{class:?} {} {empty}", live(&db));
    }
}

#[test]
fn a_transaction_of_which_a_part_was_rolled_back_before_all_was_leaves_nothing() {
    let (_, db, tree) = fresh();
    at_rest(&db);
    let empty = live(&db);
    let txn = begin(&db);
    fill(&txn, &tree, 0);
    let mark = txn.savepoint().unwrap();
    fill(&txn, &tree, 1);
    txn.rollback_to(mark).unwrap();
    at_rest(&db);
    assert!(live(&db) > empty + 200_000);
    txn.rollback().unwrap();
    at_rest(&db);
    assert!(live(&db) < empty + 30_000, "{} {empty}", live(&db));
}

/// A memtable is being written while its transaction is rolled back and what it has in the tree is cleaned.
#[test]
fn what_comes_into_the_tree_after_the_rollback_was_cleaned_up_goes_as_well() {
    let ((stopped, has_stopped), (let_on, may_go)) = (channel(), channel());
    let holds = Arc::new(AtomicBool::new(false));
    let (held, may_go) = (holds.clone(), Mutex::new(may_go));
    let hook = Hook::new(move |class| {
        if class == CallClass::Write && held.swap(false, Ordering::AcqRel) {
            stopped.send(()).unwrap();
            may_go.lock().unwrap().recv().unwrap();
        }
    });
    let memory = MemoryStorage::new();
    let storage = HookedStorage(memory.clone(), "frond", hook);
    let db = Database::open(DIRECTORY, options(&memory).storage(Some(Arc::new(storage)))).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    at_rest(&db);
    let empty = live(&db);
    let txn = begin(&db);
    fill(&txn, &tree, 0);
    at_rest(&db);
    (0..ROWS / 12).for_each(|number| txn.put(&tree, &key(number), &[7; 60]).unwrap());
    holds.store(true, Ordering::Release);
    std::thread::scope(|scope| {
        scope.spawn(|| db.checkpoint().unwrap());
        has_stopped.recv().unwrap();
        txn.rollback().unwrap();
        while db.step_background().unwrap() {}
        let_on.send(()).unwrap();
    });
    at_rest(&db);
    write_another(&db);
    assert_eq!(db.statistics().unwrap().aborted_ids, 0, "{}", db.tree_shape().unwrap());
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
