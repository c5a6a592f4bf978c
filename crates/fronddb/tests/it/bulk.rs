//! Bulk loads: rows in any order into an empty tree, all of them or none.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};
use fronddb::{
    BulkOptions, CheckOptions, CursorOptions, Database, ErrorKind, Isolation, Result, Transaction, Tree, TreeOptions,
    TxnOptions, WriteBatch, check,
};

use crate::support::{BLOB_BYTES_MIN, DIRECTORY, begin, collect, fresh, open, options};

const ROWS: u32 = 12_000;

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// So little memory that most rows are spilled.
fn tight() -> BulkOptions {
    BulkOptions {
        memory_bytes: 64 << 10,
        temporary_dir: Some(PathBuf::from("/tmp/sort")),
        first_duplicate: false,
        passed_over_max: None,
    }
}

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(2_654_435_761).to_be_bytes()
}

fn value(number: u32) -> Vec<u8> {
    let length = if number.is_multiple_of(1_000) { BLOB_BYTES_MIN + number as usize } else { 20 };
    number.to_le_bytes().iter().copied().cycle().take(length).collect()
}

fn load(txn: &Transaction, tree: &Tree, progress: &mut dyn FnMut() -> bool) -> Result<()> {
    let mut bulk = txn.bulk(tree, &tight())?;
    for number in 0..ROWS {
        bulk.add(&key(number), &value(number))?;
    }
    assert!(bulk.progress().rows_added == u64::from(ROWS) && bulk.progress().bytes_spilled > 0);
    bulk.finish(&mut |_| progress())?;
    assert_eq!(bulk.progress().rows_written, u64::from(ROWS));
    Ok(())
}

fn assert_loaded(rows: &[(Vec<u8>, Vec<u8>)]) {
    assert_eq!(rows.len(), ROWS as usize);
    let mut numbers: Vec<u32> = (0..ROWS).collect();
    numbers.sort_by_key(|number| key(*number));
    for (row, number) in rows.iter().zip(numbers) {
        assert!(row.0 == key(number) && row.1 == value(number), "number={number}");
    }
}

fn rows(db: &Database, tree: &Tree) -> Vec<(Vec<u8>, Vec<u8>)> {
    let txn = begin(db);
    let mut cursor = txn.cursor(tree, CursorOptions::default()).unwrap();
    collect(&mut cursor).unwrap()
}

#[test]
fn a_load_is_there_when_it_is_committed_and_gone_when_it_is_rolled_back() {
    let (storage, db, tree) = fresh();
    for commit in [false, true] {
        let txn = begin(&db);
        load(&txn, &tree, &mut || true).unwrap();
        assert!(rows(&db, &tree).is_empty());
        let mut own = txn.cursor(&tree, CursorOptions::default()).unwrap();
        assert_loaded(&collect(&mut own).unwrap());
        if commit {
            txn.commit().unwrap()
        } else {
            txn.rollback().unwrap()
        }
        assert_eq!(rows(&db, &tree).len(), if commit { ROWS as usize } else { 0 });
    }
    assert!(storage.files().iter().all(|(path, _)| !path.starts_with("/tmp")));
    db.wait_idle().unwrap();
    assert_loaded(&rows(&db, &tree));
    drop((db, tree));
    let db = open(&storage.crash(1));
    let tree = db.open_tree("t").unwrap();
    assert_loaded(&rows(&db, &tree));
    assert_eq!(kind(begin(&db).bulk(&tree, &tight())), Some(ErrorKind::InvalidArgument), "it has rows");
}

#[test]
fn a_key_that_comes_twice_is_named_and_nothing_is_written() {
    let (_storage, db, tree) = fresh();
    let txn = begin(&db);
    let other = txn.create_tree("other", &TreeOptions::default()).unwrap();
    txn.put(&other, b"before", b"").unwrap();
    let mut bulk = txn.bulk(&tree, &tight()).unwrap();
    for number in (0..ROWS).chain([4_999, 17]) {
        bulk.add(&key(number), b"a row that takes some room").unwrap();
    }
    assert_eq!(kind(bulk.finish(&mut |_| true)), Some(ErrorKind::KeyExists));
    assert_eq!(bulk.duplicate(), Some((&key(4_999).min(key(17))[..], &b"a row that takes some room"[..])));
    assert_eq!(kind(bulk.finish(&mut |_| true)), Some(ErrorKind::Closed));
    assert_eq!(kind(bulk.add(b"k", b"")), Some(ErrorKind::Closed));
    let mut own = txn.cursor(&tree, CursorOptions::default()).unwrap();
    assert!(!own.first().unwrap());
    load(&txn, &tree, &mut || true).unwrap();
    txn.commit().unwrap();
    assert_loaded(&rows(&db, &tree));
    assert_eq!(rows(&db, &other).len(), 1);
}

#[test]
fn the_first_key_that_comes_again_is_named_if_asked_for() {
    let (_storage, db, tree) = fresh();
    let txn = begin(&db);
    let again = [7_000u32, 17, 9_999, 17];
    for at in [0, ROWS / 2, ROWS] {
        let mut bulk = txn.bulk(&tree, &BulkOptions { first_duplicate: true, ..tight() }).unwrap();
        let late = (ROWS..2 * ROWS).chain(again);
        for (nth, number) in (0..ROWS).chain(late).enumerate() {
            if nth as u32 == at + ROWS {
                bulk.add(&key(at / 2), b"the first to come again").unwrap();
            }
            bulk.add(&key(number), b"a row that takes some room").unwrap();
        }
        let mut told = 0;
        assert_eq!(
            kind(bulk.finish(&mut |_| {
                told += 1;
                true
            })),
            Some(ErrorKind::KeyExists)
        );
        assert_eq!(bulk.duplicate(), Some((&key(at / 2)[..], &b"the first to come again"[..])));
        assert!(told > 2, "of what is passed over too: {told}");
    }
    load(&txn, &tree, &mut || true).unwrap();
    txn.commit().unwrap();
    assert_loaded(&rows(&db, &tree));
}

#[test]
fn a_load_that_is_given_up_leaves_the_transaction_as_it_was() {
    let (storage, db, tree) = fresh();
    let before = db.statistics().unwrap().memory_work_bytes;
    let txn = begin(&db);
    let mut calls = 0;
    let given_up = load(&txn, &tree, &mut || {
        calls += 1;
        calls < 2
    });
    assert_eq!(kind(given_up), Some(ErrorKind::Cancelled));
    let dropped = txn.bulk(&tree, &BulkOptions::default()).unwrap();
    drop(dropped);
    assert!(db.statistics().unwrap().memory_work_bytes < before + (1 << 20));
    txn.commit().unwrap();
    assert!(rows(&db, &tree).is_empty());
    assert!(storage.files().iter().all(|(path, _)| !path.starts_with("/tmp")));
    let txn = begin(&db);
    let mut late = txn.bulk(&tree, &tight()).unwrap();
    txn.rollback().unwrap();
    assert_eq!(kind(late.add(b"k", b"v")), Some(ErrorKind::Closed));
    assert_eq!(kind(late.finish(&mut |_| true)), Some(ErrorKind::Closed));
}

#[test]
fn a_load_whose_temporary_files_failed_cannot_go_on_without_what_they_held() {
    let memory = MemoryStorage::new();
    let plan = FaultPlan::new();
    let failing: Arc<dyn Storage> = Arc::new(FaultStorage::new(Arc::new(memory.clone()), plan.clone()));
    let db = Database::open(DIRECTORY, options(&memory).storage(Some(failing))).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let txn = begin(&db);
    let mut bulk = txn.bulk(&tree, &tight()).unwrap();
    plan.add(FaultRule::once(CallClass::Write, 1, Fault::NoSpace).on("frond-sort"));
    let failed = (0..).find(|number| bulk.add(&key(*number), &value(*number)).is_err()).unwrap();
    assert_eq!(kind(bulk.add(&key(failed), &value(failed))), Some(ErrorKind::Closed));
    assert_eq!(kind(bulk.finish(&mut |_| true)), Some(ErrorKind::Closed));
    drop(bulk);
    load(&txn, &tree, &mut || true).unwrap();
    txn.commit().unwrap();
    assert_loaded(&rows(&db, &tree));
}

#[test]
fn to_find_a_tree_of_deleted_rows_empty_may_be_given_up_and_cancelled() {
    let (_storage, db, tree) = fresh();
    let writer = begin(&db);
    (0..3000).for_each(|number| writer.put(&tree, &key(number), b"v").unwrap());
    (0..3000).for_each(|number| writer.delete(&tree, &key(number)).unwrap());
    writer.commit().unwrap();
    let txn = begin(&db);
    let briefly = BulkOptions { passed_over_max: Some(1000), ..tight() };
    assert_eq!(kind(txn.bulk(&tree, &briefly)), Some(ErrorKind::InvalidArgument));
    begin(&db).put(&tree, b"nothing is locked", b"").unwrap();
    db.cancel(txn.id()).unwrap();
    assert_eq!(kind(txn.bulk(&tree, &tight())), Some(ErrorKind::Cancelled));
    let mut bulk = txn.bulk(&tree, &tight()).unwrap();
    bulk.add(b"k", b"v").unwrap();
    bulk.finish(&mut |_| true).unwrap();
    txn.commit().unwrap();
    assert_eq!(rows(&db, &tree).len(), 1);
}

#[test]
fn others_are_kept_out_and_what_they_have_not_decided_is_waited_for() {
    let (_storage, db, tree) = fresh();
    let impatient = || {
        let lock_timeout = Some(Duration::ZERO);
        db.begin(TxnOptions { lock_timeout, isolation: Isolation::ReadCommitted, ..TxnOptions::default() }).unwrap()
    };
    let mut covered = WriteBatch::new();
    covered.set_covered(true);
    covered.put(&tree, b"k", b"").unwrap();
    let writer = impatient();
    writer.write(&covered).unwrap();
    assert_eq!(kind(impatient().bulk(&tree, &tight())), Some(ErrorKind::LockTimeout));
    writer.rollback().unwrap();
    // Who is refused has locked nothing.
    let (_other_storage, other_db, full) = fresh();
    other_db.put(&full, b"k", b"").unwrap();
    let refused = begin(&other_db);
    assert_eq!(kind(refused.bulk(&full, &tight())), Some(ErrorKind::InvalidArgument));
    other_db
        .begin(TxnOptions { lock_timeout: Some(Duration::ZERO), ..TxnOptions::default() })
        .unwrap()
        .put(&full, b"l", b"")
        .unwrap();
    let loader = impatient();
    let mut bulk = loader.bulk(&tree, &tight()).unwrap();
    assert_eq!(kind(impatient().put(&tree, b"k", b"")), Some(ErrorKind::LockTimeout));
    assert_eq!(kind(impatient().write(&covered)), Some(ErrorKind::LockTimeout));
    bulk.add(b"a", b"1").unwrap();
    bulk.finish(&mut |_| true).unwrap();
    loader.put(&tree, b"b", b"2").unwrap();
    loader.commit().unwrap();
    assert_eq!(rows(&db, &tree).len(), 2);
}

#[test]
fn a_crash_at_any_moment_leaves_all_rows_or_none_and_no_lost_space() {
    let (storage, db, tree) = fresh();
    let mut images: Vec<(MemoryStorage, bool)> = Vec::new();
    let txn = begin(&db);
    let mut calls = 0u64;
    load(&txn, &tree, &mut || {
        calls += 1;
        images.push((storage.crash(calls), false));
        while db.step_background().unwrap() {}
        images.push((storage.crash(calls), false));
        true
    })
    .unwrap();
    assert!(calls > 1);
    db.checkpoint().unwrap();
    images.push((storage.crash(7), false));
    txn.commit().unwrap();
    images.push((storage.crash(8), true));
    db.checkpoint().unwrap();
    images.push((storage.crash(9), true));
    for (number, (image, committed)) in images.into_iter().enumerate() {
        let db = open(&image);
        let tree = db.open_tree("t").unwrap();
        if committed {
            assert_loaded(&rows(&db, &tree));
        } else {
            assert!(rows(&db, &tree).is_empty(), "image={number}");
        }
        db.checkpoint().unwrap();
        db.wait_idle().unwrap();
        db.close().unwrap();
        let options = CheckOptions { storage: Some(Arc::new(image.clone())), ..CheckOptions::default() };
        let report = check(Path::new(DIRECTORY), &options, &mut |_| {}).unwrap();
        assert!(report.is_clean(), "image={number} {:?}", report.findings);
    }
}
