//! Prepared transactions with so many locks that a checkpoint writes them down again beside writers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use fronddb::io::{CallClass, CrashMode, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};
use fronddb::{Database, Durability, ErrorKind, LockMode, Result, Transaction, Tree, TreeOptions, TxnOptions, Wait};

use crate::support::hooked::{Hook, HookedStorage};
use crate::support::{DIRECTORY, Random, begin, options};

/// Their records are more than the log's ring takes at once.
const MANY: u32 = 3_000;
/// And more than a segment of it.
const VERY_MANY: u32 = 12_000;
/// Rows of the transaction are so far apart; the others it has only locked.
const WRITTEN: u32 = 100;
const XID: &[u8] = b"many";

fn open_on(storage: Arc<dyn Storage>) -> Result<Database> {
    Database::open(DIRECTORY, options(&MemoryStorage::new()).storage(Some(storage)).memory_bytes(16 << 20))
}

fn open(image: &MemoryStorage) -> Database {
    open_on(Arc::new(image.clone())).unwrap()
}

fn faulty() -> (MemoryStorage, FaultPlan, Database) {
    let (memory, plan) = (MemoryStorage::new(), FaultPlan::new());
    let db = open_on(Arc::new(FaultStorage::new(Arc::new(memory.clone()), plan.clone()))).unwrap();
    (memory, plan, db)
}

fn key(row: u32) -> Vec<u8> {
    [&row.to_be_bytes()[..], &Random::new(u64::from(row)).bytes(100)].concat()
}

/// A transaction of so many locks. Another one has locks between them, as long as it is there, or they would become a few ranges.
fn lock(db: &Database, locks: u32) -> (Tree, Transaction, Transaction) {
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let (between, txn) = (begin(db), begin(db));
    for row in 0..locks {
        between.get_locked(&tree, &[&key(row)[..], b"+"].concat(), LockMode::Exclusive, Wait::NoWait).unwrap();
        txn.get_locked(&tree, &key(row), LockMode::Exclusive, Wait::NoWait).unwrap();
        if row % WRITTEN == 0 {
            txn.put(&tree, &key(row), b"prepared").unwrap();
        }
    }
    (tree, between, txn)
}

/// Prepares such a transaction.
fn prepare(db: &Database, locks: u32) -> (Tree, Transaction) {
    let (tree, between, txn) = lock(db, locks);
    txn.prepare(XID).unwrap();
    (tree, between)
}

fn put(db: &Database, tree: &Tree, key: &[u8]) -> Result<()> {
    let txn = db.begin(TxnOptions { durability: Durability::None, ..TxnOptions::default() })?;
    txn.put(tree, key, b"beside")?;
    txn.commit()
}

/// Outcomes of so many writes, as far as they do not wait for what is held just now.
fn put_beside(db: &Database, tree: &Tree, rows: u32) -> Vec<Result<()>> {
    let (told, heard) = mpsc::channel();
    let (db, tree) = (db.clone(), tree.clone());
    std::thread::spawn(move || {
        (0..rows).for_each(|row| _ = told.send(put(&db, &tree, &[b"beside", &row.to_be_bytes()[..]].concat())));
    });
    (0..rows).map_while(|_| heard.recv_timeout(Duration::from_secs(10)).ok()).collect()
}

fn locked(db: &Database, rows: u32) -> usize {
    let tree = db.open_tree("t").unwrap();
    let other = begin(db);
    other.set_lock_timeout(Some(Duration::ZERO)).unwrap();
    let is_locked = |row: &u32| match other.put(&tree, &key(*row), b"") {
        Ok(()) => false,
        Err(error) => error.kind() == ErrorKind::LockTimeout,
    };
    (0..rows).step_by(37).filter(is_locked).count()
}

fn xids(db: &Database) -> Vec<Vec<u8>> {
    db.prepared().unwrap().into_iter().map(|info| info.xid).collect()
}

/// The transaction is prepared, with all of its locks; when it is committed, all that it has written is there.
fn assert_whole(image: &MemoryStorage, rows: u32, what: &str) {
    let db = open(image);
    assert_eq!(xids(&db), [XID], "{what}");
    assert_eq!(locked(&db, rows), (0..rows).step_by(37).count(), "{what}");
    db.commit_prepared(XID).unwrap();
    assert!(db.locks().unwrap().is_empty(), "{what}");
    let tree = db.open_tree("t").unwrap();
    for row in (0..rows).step_by(WRITTEN as usize) {
        assert_eq!(db.get(&tree, &key(row)).unwrap().as_deref(), Some(&b"prepared"[..]), "{what} row={row}");
    }
}

#[test]
fn writers_go_on_while_a_checkpoint_writes_down_very_many_locks() {
    let (memory, plan, db) = faulty();
    let (tree, _between) = prepare(&db, MANY);
    db.sync_log().unwrap();
    plan.add(FaultRule::once(CallClass::Write, 1, Fault::Hold).on("log"));
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| db.checkpoint());
        let held = plan.wait_held();
        let passed = put_beside(&db, &tree, 100);
        drop(held);
        assert_eq!(passed.iter().filter(|passed| passed.is_ok()).count(), 100, "{passed:?}");
        checkpoint.join().unwrap().unwrap();
    });
    assert_whole(&memory.crash(1), MANY, "after the checkpoint");
}

#[test]
fn and_while_one_with_very_many_locks_prepares_and_a_checkpoint_waits_for_that() {
    let (memory, plan, db) = faulty();
    let (tree, _between, txn) = lock(&db, MANY);
    db.sync_log().unwrap();
    plan.add(FaultRule::once(CallClass::Write, 2, Fault::Hold).on("log"));
    std::thread::scope(|scope| {
        let preparing = scope.spawn(|| txn.prepare(XID));
        let held = plan.wait_held();
        let checkpoint = scope.spawn(|| db.checkpoint());
        std::thread::sleep(Duration::from_millis(100));
        let passed = put_beside(&db, &tree, 100);
        drop(held);
        assert_eq!(passed.iter().filter(|passed| passed.is_ok()).count(), 100, "{passed:?}");
        preparing.join().unwrap().unwrap();
        checkpoint.join().unwrap().unwrap();
    });
    assert_whole(&memory.crash(1), MANY, "after both");
}

#[test]
fn whenever_the_machine_stops_a_prepared_transaction_has_all_its_locks() {
    let memory = MemoryStorage::new();
    let (images, is_armed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let (taken, armed, machine) = (images.clone(), is_armed.clone(), memory.clone());
    let hook = Hook::new(move |class| {
        if class == CallClass::Write && armed.load(Ordering::SeqCst) {
            let mut taken = taken.lock().unwrap();
            let number = taken.len();
            taken.push(machine.crash_with(CrashMode::ALL[number % 5], number as u64));
        }
    });
    let db = open_on(Arc::new(HookedStorage(memory.clone(), "log", hook))).unwrap();
    let (tree, _between) = prepare(&db, MANY);
    is_armed.store(true, Ordering::SeqCst);
    for round in 0..4u8 {
        put(&db, &tree, &[b'x', round]).unwrap();
        db.checkpoint().unwrap();
        let number = images.lock().unwrap().len();
        images.lock().unwrap().push(memory.crash_with(CrashMode::ALL[number % 5], number as u64));
    }
    is_armed.store(false, Ordering::SeqCst);
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 4 * 5, "the locks are written in several steps: {}", images.len());
    for (number, image) in images.iter().enumerate() {
        if number % 3 == 0 {
            // The opening writes them once more.
            drop(open(image));
        }
        assert_whole(&image.crash(number as u64), MANY, &format!("image={number}"));
    }
}

#[test]
fn and_beside_writers_who_seal_again_and_again() {
    let memory = MemoryStorage::new();
    let options = options(&memory).memory_bytes(16 << 20).manual_background(false);
    let db = Database::open(DIRECTORY, options).unwrap();
    let (tree, _between) = prepare(&db, MANY);
    let before = db.statistics().unwrap().seals;
    let mut images = Vec::new();
    std::thread::scope(|scope| {
        let (db, tree) = (&db, &tree);
        let write =
            |writer: u8| (0..6_000u32).try_for_each(|row| put(db, tree, &[&[writer], &row.to_be_bytes()[..]].concat()));
        let writers = [1, 2].map(|writer| scope.spawn(move || write(writer)));
        while writers.iter().any(|writer| !writer.is_finished()) && images.len() < 40 {
            images.push(memory.crash(images.len() as u64));
            std::thread::sleep(Duration::from_millis(10));
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    });
    images.push(memory.crash(41));
    let seals = db.statistics().unwrap().seals - before;
    assert!(seals > 5, "seals={seals}");
    assert!(db.poisoned().is_none());
    for (number, image) in images.iter().enumerate() {
        assert_whole(image, MANY, &format!("image={number} of {}", images.len()));
    }
}

/// Before its records stand in the log once more, or between them. Another may have its name then.
#[test]
fn a_transaction_that_is_decided_while_its_locks_are_written_down_is_decided() {
    for (commits, nth) in [(true, 1), (false, 1), (true, 3), (false, 3)] {
        let (memory, plan, db) = faulty();
        let (tree, between) = prepare(&db, MANY);
        db.sync_log().unwrap();
        plan.add(FaultRule::once(CallClass::Write, nth, Fault::Hold).on("log"));
        std::thread::scope(|scope| {
            let checkpoint = scope.spawn(|| db.checkpoint());
            let held = plan.wait_held();
            let decided = scope.spawn(|| if commits { db.commit_prepared(XID) } else { db.rollback_prepared(XID) });
            // It waits for the disk by then.
            while !xids(&db).is_empty() {
                std::thread::yield_now();
            }
            let other = begin(&db);
            other.put(&tree, b"other", b"prepared").unwrap();
            other.prepare_with(XID, Durability::None).unwrap();
            drop(held);
            decided.join().unwrap().unwrap();
            checkpoint.join().unwrap().unwrap();
        });
        drop(between);
        db.sync_log().unwrap();
        for seed in 0..4 {
            let image = open(&memory.crash(seed));
            let what = format!("commits={commits} nth={nth} seed={seed}");
            assert_eq!((xids(&image), image.locks().unwrap().len()), (vec![XID.to_vec()], 1), "{what}");
            image.commit_prepared(XID).unwrap();
            let tree = image.open_tree("t").unwrap();
            assert_eq!(image.get(&tree, b"other").unwrap().as_deref(), Some(&b"prepared"[..]), "{what}");
            let value = image.get(&tree, &key(WRITTEN)).unwrap();
            assert_eq!(value.as_deref(), commits.then_some(&b"prepared"[..]), "{what}");
        }
    }
}

#[test]
fn where_the_log_has_no_room_for_them_level_0_stays_until_it_has() {
    let (memory, plan, db) = faulty();
    let (tree, between) = prepare(&db, VERY_MANY);
    put(&db, &tree, b"before").unwrap();
    plan.add(FaultRule::from(CallClass::Allocate, 1, Fault::NoSpace).on("log"));
    plan.add(FaultRule::from(CallClass::Names, 1, Fault::NoSpace).on("log"));
    for round in 0..3 {
        assert_eq!(db.checkpoint().map_err(|error| error.kind()), Err(ErrorKind::NoSpace), "round={round}");
        assert_whole(&memory.crash(round), VERY_MANY, "on a full disk");
    }
    assert!(db.poisoned().is_none());
    plan.clear();
    drop(between);
    for round in 0..3u64 {
        put(&db, &tree, &round.to_be_bytes()).unwrap();
        db.checkpoint().unwrap();
        assert_eq!(db.statistics().unwrap().sealed_memtables, 0);
        assert_whole(&memory.crash(round), VERY_MANY, "when there is space again");
    }
    db.commit_prepared(XID).unwrap();
    db.checkpoint().unwrap();
    assert_eq!(xids(&open(&memory.crash(7))), [] as [Vec<u8>; 0]);
}
