//! Bulk loads that become leaves at once: written once, and as transactional as any other write, wherever the machine stops.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use fronddb::format::superblock::{SUPERBLOCK_BYTES, Slot, Superblock, slot_offset};
use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, OpenMode, Storage};
use fronddb::{
    BulkOptions, CheckOptions, CursorOptions, Database, Error, ErrorKind, Isolation, Options, Result, Transaction,
    Tree, TreeOptions, TxnOptions, check,
};

use crate::support::{BLOB_BYTES_MIN, DIRECTORY, Random, begin, collect, collect_backward, fresh, open, options};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Rows that differ by `salt`; a few of them are kept apart from their keys.
fn rows(count: u32, salt: u8) -> Rows {
    let row = |number: u32| {
        let length = if number % 300 == 7 { BLOB_BYTES_MIN + 50 } else { 30 };
        let value = (0..length).map(|at| salt ^ (number.wrapping_mul(31) as usize + at * at) as u8).collect();
        (number.wrapping_mul(2_654_435_761).to_be_bytes().to_vec(), value)
    };
    (0..count).map(row).collect()
}

fn load(txn: &Transaction, tree: &Tree, rows: &Rows) -> Result<()> {
    let mut bulk = txn.bulk(tree, &BulkOptions::default())?;
    rows.iter().rev().try_for_each(|(key, value)| bulk.add(key, value))?;
    bulk.finish(&mut |_| true)
}

fn seen(txn: &Transaction, tree: &Tree) -> Rows {
    let mut cursor = txn.cursor(tree, CursorOptions::default()).unwrap();
    let forward = collect(&mut cursor).unwrap();
    assert!(forward == collect_backward(&mut cursor).unwrap());
    for (key, value) in forward.iter().step_by(101) {
        assert_eq!(txn.get(tree, key).unwrap().as_deref(), Some(&value[..]));
    }
    forward.into_iter().collect()
}

fn present(db: &Database, name: &str) -> Rows {
    seen(&begin(db), &db.open_tree(name).unwrap())
}

/// Nothing is left to do, nothing is wrong, and every page has an owner.
fn assert_clean(storage: &MemoryStorage, db: Database, context: &str) {
    db.checkpoint().unwrap();
    db.wait_idle().unwrap();
    db.close().unwrap();
    let options = CheckOptions { storage: Some(Arc::new(storage.clone())), ..CheckOptions::default() };
    let report = check(Path::new(DIRECTORY), &options, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{context}: {:?}", report.findings);
}

#[test]
fn a_load_is_written_once_and_not_to_the_log() {
    let (storage, db, tree) = fresh();
    let rows = rows(20_000, 1);
    let before = db.statistics().unwrap();
    let txn = begin(&db);
    load(&txn, &tree, &rows).unwrap();
    txn.commit().unwrap();
    db.wait_idle().unwrap();
    let after = db.statistics().unwrap();
    let user = after.user_bytes - before.user_bytes;
    assert!(user > 700_000, "{user}");
    assert!(after.log_bytes - before.log_bytes < 100, "{}", after.to_json());
    assert!(after.seal_bytes == before.seal_bytes && after.flush_bytes == before.flush_bytes);
    // The last leaf may be joined with what follows.
    assert!(after.compact_bytes - before.compact_bytes < user + user / 4, "{}", after.to_json());
    assert!(after.height > 2, "small nodes: {}", after.to_json());
    assert!(present(&db, "t") == rows);
    let image = storage.crash(1);
    assert_clean(&storage, db, "loaded");
    let db = open(&image);
    assert_eq!(db.recovery_report().unwrap().messages, 2, "the catalog's");
    assert!(present(&db, "t") == rows);
    assert_clean(&image, db, "recovered");
}

#[test]
fn it_goes_between_trees_that_share_a_leaf() {
    for others in [1, 20, 3000] {
        let (storage, db, low) = fresh();
        let create = |name: &str| db.create_tree(name, &TreeOptions::default()).unwrap();
        let (first, middle, last, high) = (create("first"), create("middle"), create("last"), create("high"));
        let other = rows(others, 9);
        for (key, value) in &other {
            db.put(&low, key, value).unwrap();
            db.put(&high, key, value).unwrap();
        }
        let loads = [(&middle, rows(5_000, 1)), (&last, rows(900, 2)), (&first, rows(700, 3))];
        for (tree, rows) in &loads {
            // Some of the others' messages lie in level 0, in runs on both sides, and in leaves.
            db.put(&low, b"more", b"").unwrap();
            db.put(&high, b"more", b"").unwrap();
            db.checkpoint().unwrap();
            let before = db.statistics().unwrap().log_bytes;
            let txn = begin(&db);
            load(&txn, tree, rows).unwrap();
            txn.commit().unwrap();
            assert!(db.statistics().unwrap().log_bytes < before + 100, "{others}");
        }
        for round in 0..2 {
            for (tree, rows) in &loads {
                assert!(present(&db, tree.name()) == *rows, "{others} {round}");
            }
            assert_eq!(present(&db, "t").len(), others as usize + 1);
            assert_eq!(present(&db, "high").len(), others as usize + 1);
            db.check(&mut |finding| panic!("{finding:?}"), None).unwrap();
            db.wait_idle().unwrap();
        }
        assert_clean(&storage, db, "between");
    }
}

#[test]
fn snapshots_savepoints_and_later_writes_mean_what_they_always_mean() {
    let (storage, db, tree) = fresh();
    let (first, second) = (rows(2_000, 1), rows(1_500, 2));
    let other = db.create_tree("other", &TreeOptions::default()).unwrap();
    let early = db.begin(TxnOptions { consistent_snapshot: true, ..TxnOptions::default() }).unwrap();
    let uncommitted = db.begin(TxnOptions { isolation: Isolation::ReadUncommitted, ..TxnOptions::default() }).unwrap();
    let txn = begin(&db);
    txn.put(&other, b"k", b"v").unwrap();
    let mark = txn.savepoint().unwrap();
    load(&txn, &tree, &first).unwrap();
    assert!(seen(&txn, &tree) == first);
    assert!(seen(&uncommitted, &tree) == first);
    assert!(seen(&early, &tree).is_empty() && present(&db, "t").is_empty());
    // A second mark, a truncation and writes on top of the load, undone.
    let loaded = txn.savepoint().unwrap();
    txn.truncate_tree(&tree).unwrap();
    assert!(seen(&txn, &tree).is_empty());
    txn.put(&tree, b"k", b"v").unwrap();
    txn.rollback_to(loaded).unwrap();
    assert!(seen(&txn, &tree) == first);
    txn.rollback_to(mark).unwrap();
    assert!(seen(&txn, &tree).is_empty() && seen(&uncommitted, &tree).is_empty());
    // Dead rows lie there now, so this one goes through level 0.
    let before = db.statistics().unwrap().log_bytes;
    load(&txn, &tree, &second).unwrap();
    assert!(db.statistics().unwrap().log_bytes > before + 10_000);
    assert!(seen(&txn, &tree) == second);
    txn.commit().unwrap();
    assert!(seen(&early, &tree).is_empty());
    assert!(present(&db, "t") == second);
    drop((early, uncommitted));
    // And writes on top of leaves that were grafted.
    let third = rows(3_000, 3);
    let txn = begin(&db);
    let fresh = txn.create_tree("third", &TreeOptions::default()).unwrap();
    load(&txn, &fresh, &third).unwrap();
    txn.commit().unwrap();
    let mut expected = third.clone();
    for (number, key) in third.keys().enumerate().filter(|(number, _)| number % 3 != 0) {
        if number % 3 == 1 {
            db.delete(&fresh, key).unwrap();
            expected.remove(key);
        } else {
            db.put(&fresh, key, b"changed").unwrap();
            expected.insert(key.clone(), b"changed".to_vec());
        }
    }
    assert!(present(&db, "third") == expected);
    db.wait_idle().unwrap();
    db.checkpoint().unwrap();
    assert!(present(&db, "third") == expected);
    db.drop_tree("third").unwrap();
    assert_clean(&storage, db, "dropped");
}

#[test]
fn what_scans_remember_of_dead_rows_does_not_hide_a_load() {
    let (storage, db, tree) = fresh();
    let rows = rows(1_000, 1);
    rows.iter().for_each(|(key, value)| db.put(&tree, key, value).unwrap());
    rows.keys().for_each(|key| db.delete(&tree, key).unwrap());
    // A scan that passes over dead rows leaves a marker behind at the first live one.
    db.put(&tree, &[0xff; 8], b"").unwrap();
    (0..2).for_each(|_| assert_eq!(present(&db, "t").len(), 1));
    db.delete(&tree, &[0xff; 8]).unwrap();
    db.compact(Some(&tree), b"", b"", &mut |_| ControlFlow::Continue(())).unwrap();
    db.wait_idle().unwrap();
    let log = db.statistics().unwrap().log_bytes;
    let txn = begin(&db);
    load(&txn, &tree, &rows).unwrap();
    assert!(db.statistics().unwrap().log_bytes == log, "the tree was not bare");
    assert!(seen(&txn, &tree) == rows);
    txn.commit().unwrap();
    assert!(present(&db, "t") == rows);
    assert_clean(&storage, db, "scanned");
}

#[test]
fn a_full_disk_ends_a_load_and_nothing_else() {
    let (storage, db, tree) = fresh();
    let other = db.create_tree("other", &TreeOptions::default()).unwrap();
    db.put(&other, b"k", b"v").unwrap();
    db.checkpoint().unwrap();
    let live = db.statistics().unwrap().file_bytes_live;
    storage.set_capacity(storage.occupied_bytes() + (1 << 20));
    let txn = begin(&db);
    txn.put(&other, b"with it", b"v").unwrap();
    let error = load(&txn, &tree, &rows(60_000, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(seen(&txn, &tree).is_empty());
    txn.commit().unwrap();
    assert_eq!(present(&db, "other").len(), 2);
    storage.set_capacity(64 << 20);
    db.checkpoint().unwrap();
    assert!(db.statistics().unwrap().file_bytes_live < live + (64 << 10));
    let txn = begin(&db);
    load(&txn, &tree, &rows(60_000, 1)).unwrap();
    txn.commit().unwrap();
    assert!(present(&db, "t") == rows(60_000, 1));
    assert_clean(&storage, db, "resumed");
}

/// What is deleted and still pending makes the space that a load lacks, as for any other write: for its leaves, and for what it spills.
#[test]
fn a_load_that_lacks_space_brings_pending_deletes_down() {
    for memory_bytes in [8 << 20, 64 << 10] {
        let (storage, db, tree) = fresh();
        let other = db.create_tree("other", &TreeOptions::default()).unwrap();
        let long = |row: u32| Random::new(u64::from(row)).bytes(3900);
        (0..900u32).for_each(|row| db.put(&other, &row.to_be_bytes(), &long(row)).unwrap());
        db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        (0..900u32).for_each(|row| db.delete(&other, &row.to_be_bytes()).unwrap());
        for _ in 0..3 {
            db.checkpoint().unwrap();
            while db.step_background().unwrap() {}
        }
        let live = || db.statistics().unwrap().file_bytes_live;
        assert!(live() > 3 << 20, "the deletes are not pending, live={}", live());
        storage.set_capacity(storage.occupied_bytes() + (1 << 20));
        let txn = begin(&db);
        let load = || {
            let mut bulk = txn.bulk(&tree, &BulkOptions { memory_bytes, ..BulkOptions::default() })?;
            rows(30_000, 1).iter().try_for_each(|(key, value)| bulk.add(key, value))?;
            bulk.finish(&mut |_| true)
        };
        let error = load().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        while db.step_background().unwrap() {}
        assert!(live() < 1 << 20, "the deletes are still pending, live={} {error}", live());
        // It serves again when two publications are without it.
        for _ in 0..2 {
            db.checkpoint().unwrap();
            while db.step_background().unwrap() {}
        }
        load().unwrap_or_else(|error| panic!("memory_bytes={memory_bytes} live={}: {error}", live()));
        txn.commit().unwrap();
        assert!(present(&db, "t") == rows(30_000, 1));
        assert_clean(&storage, db, "after the retry");
    }
}

#[test]
fn a_prepared_load_waits_for_its_decision_across_crashes() {
    for commit in [true, false] {
        let (storage, db, tree) = fresh();
        let rows = rows(2_000, 5);
        let txn = begin(&db);
        load(&txn, &tree, &rows).unwrap();
        txn.prepare(b"xid").unwrap();
        let image = storage.crash(3);
        let db = open(&image);
        assert!(present(&db, "t").is_empty());
        db.checkpoint().unwrap();
        let image = image.crash(4);
        let db = open(&image);
        if commit {
            db.commit_prepared(b"xid").unwrap();
        } else {
            db.rollback_prepared(b"xid").unwrap();
        }
        let image = image.crash(5);
        let db = open(&image);
        assert!(present(&db, "t") == if commit { rows } else { Rows::new() }, "commit={commit}");
        assert_clean(&image, db, "decided");
    }
}

#[test]
fn the_newest_superblock_may_be_lost_after_the_commit() {
    let (storage, db, tree) = fresh();
    db.checkpoint().unwrap();
    let rows = rows(3_000, 4);
    let txn = begin(&db);
    load(&txn, &tree, &rows).unwrap();
    txn.commit().unwrap();
    let generation = db.statistics().unwrap().generation;
    let image = storage.crash(1);
    image.overwrite(&Path::new(DIRECTORY).join("data.frond"), slot_offset(generation), &[0x5a; 4096]).unwrap();
    let db = open(&image);
    assert_eq!(db.recovery_report().unwrap().generation, generation - 1);
    assert!(present(&db, "t") == rows);
    assert_clean(&image, db, "one before");
}

#[test]
fn space_of_a_load_that_was_rolled_back_comes_back() {
    for crash in [false, true] {
        let (mut storage, mut db, tree) = fresh();
        db.checkpoint().unwrap();
        db.wait_idle().unwrap();
        let used = |db: &Database| db.statistics().unwrap().file_bytes_live;
        let before = used(&db);
        let txn = begin(&db);
        load(&txn, &tree, &rows(30_000, 1)).unwrap();
        let loaded = used(&db);
        assert!(loaded > before + (600 << 10), "before={before} loaded={loaded}");
        if crash {
            db.checkpoint().unwrap();
            storage = storage.crash(5);
            drop(txn);
            db = open(&storage);
        } else {
            txn.rollback().unwrap();
        }
        for _ in 0..3 {
            db.wait_idle().unwrap();
            db.checkpoint().unwrap();
        }
        let after = used(&db);
        assert!(after < before + (64 << 10), "crash={crash} before={before} loaded={loaded} after={after}");
        assert!(db.statistics().unwrap().height < 3, "crash={crash}");
        // What was dead is gone, so the next load is grafted again.
        let tree = db.open_tree("t").unwrap();
        let log = db.statistics().unwrap().log_bytes;
        let txn = begin(&db);
        load(&txn, &tree, &rows(1_000, 2)).unwrap();
        txn.commit().unwrap();
        assert!(db.statistics().unwrap().log_bytes < log + 100, "crash={crash}");
        assert_clean(&storage, db, "cleaned");
    }
}

/// What is known of each step of the workload below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Committed,
    Unknown,
    RolledBack,
}

/// Loads between other writes: one undone to a savepoint, one kept, one rolled back with its tree, one prepared and committed.
fn workload(options: Options) -> (Vec<Heard>, Vec<Error>) {
    let mut heard = Vec::new();
    let mut errors = Vec::new();
    let opened = Database::open(DIRECTORY, options).and_then(|db| {
        for name in ["low", "kept", "undone", "high"] {
            db.create_tree(name, &TreeOptions::default())?;
        }
        for name in ["low", "high"] {
            let tree = db.open_tree(name)?;
            rows(20, 8).iter().try_for_each(|(key, value)| db.put(&tree, key, value))?;
        }
        db.checkpoint()?;
        while db.step_background()? {}
        Ok(db)
    });
    let db = match opened {
        Ok(db) => db,
        Err(error) => return (heard, vec![error]),
    };
    let mut note = |outcome: std::result::Result<(), (Heard, Error)>, good| {
        heard.push(outcome.as_ref().map_or_else(|(heard, _)| *heard, |()| good));
        errors.extend(outcome.err().map(|(_, error)| error));
    };
    let undone = |error| (Heard::RolledBack, error);
    let unknown = |error| (Heard::Unknown, error);
    note(
        (|| {
            let txn = db.begin(TxnOptions::default()).map_err(undone)?;
            let before = || -> Result<()> {
                let mark = txn.savepoint()?;
                load(&txn, &db.open_tree("undone")?, &rows(700, 1))?;
                txn.rollback_to(mark)?;
                load(&txn, &db.open_tree("kept")?, &rows(900, 2))?;
                txn.put(&db.open_tree("low")?, b"with it", b"v")
            };
            before().map_err(undone)?;
            txn.commit().map_err(unknown)
        })(),
        Heard::Committed,
    );
    let step = || db.step_background().map(|_| ()).map_err(unknown);
    (0..2).for_each(|_| note(step(), Heard::Committed));
    note(
        (|| {
            let txn = db.begin(TxnOptions::default()).map_err(undone)?;
            let tree = txn.create_tree("rolled back", &TreeOptions::default()).map_err(undone)?;
            load(&txn, &tree, &rows(700, 3)).map_err(undone)?;
            txn.rollback().map_err(unknown)
        })(),
        Heard::RolledBack,
    );
    note(
        (|| {
            let txn = db.begin(TxnOptions::default()).map_err(undone)?;
            let tree = txn.create_tree("prepared", &TreeOptions::default()).map_err(undone)?;
            load(&txn, &tree, &rows(800, 4)).map_err(undone)?;
            txn.prepare(b"xid").map_err(unknown)?;
            step()?;
            db.commit_prepared(b"xid").map_err(unknown)
        })(),
        Heard::Committed,
    );
    (0..6).for_each(|_| note(step(), Heard::Committed));
    errors.extend(db.close().err());
    (heard, errors)
}

fn verify(storage: &MemoryStorage, heard: &[Heard], context: &str) {
    let db = Database::open(DIRECTORY, options(storage)).unwrap_or_else(|error| panic!("{context}: {error}"));
    db.check(&mut |finding| panic!("{context}: {finding:?}"), None).unwrap();
    if heard.is_empty() {
        return;
    }
    for prepared in db.prepared().unwrap() {
        assert_eq!(heard[4], Heard::Unknown, "{context}");
        db.commit_prepared(&prepared.xid).unwrap();
    }
    for round in 0..2 {
        let context = format!("{context}, round={round}");
        assert!(present(&db, "undone").is_empty(), "{context}");
        assert!(db.open_tree("rolled back").is_err(), "{context}");
        let kept = present(&db, "kept");
        assert!(kept.is_empty() || kept == rows(900, 2), "{context}: {}", kept.len());
        let whole = !kept.is_empty();
        assert!(heard[0] == Heard::Unknown || whole == (heard[0] == Heard::Committed), "{context}");
        let mut low = rows(20, 8);
        if whole {
            low.insert(b"with it".to_vec(), b"v".to_vec());
        }
        assert!(present(&db, "low") == low, "{context}");
        assert!(present(&db, "high") == rows(20, 8), "{context}");
        match db.open_tree("prepared") {
            Ok(_) => assert!(present(&db, "prepared") == rows(800, 4) && heard[4] != Heard::RolledBack, "{context}"),
            Err(error) => assert!(error.kind() == ErrorKind::NotFound && heard[4] != Heard::Committed, "{context}"),
        }
        db.wait_idle().unwrap();
        db.checkpoint().unwrap();
    }
    assert_clean(storage, db, context);
}

/// What a kill left, without its newest superblock; `None` while there is but one.
fn without_newest(image: &MemoryStorage) -> Option<MemoryStorage> {
    let path = Path::new(DIRECTORY).join("data.frond");
    let file = image.open(&path, OpenMode { read_only: true, ..OpenMode::default() }).ok()?;
    let mut generations = Vec::new();
    for at in (0..4).map(slot_offset) {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        file.read_at(&mut bytes, at).ok()?;
        if let Ok(Slot::Valid(superblock)) = Superblock::decode(at, &bytes) {
            generations.push(superblock.generation);
        }
    }
    let newest = generations.iter().max().filter(|_| generations.len() > 1)?;
    image.overwrite(&path, slot_offset(*newest), &[0x5a; SUPERBLOCK_BYTES]).unwrap();
    Some(image.snapshot())
}

/// Runs the workload once for each call that a rule watches, and verifies what is left of it after a kill, also without the newest
/// superblock, and after a loss of power.
fn each(rule: &FaultRule) {
    let mut nth = 1;
    loop {
        let memory = MemoryStorage::new();
        let plan = FaultPlan::new();
        plan.add(FaultRule { nth, ..rule.clone() });
        let faulty = FaultStorage::new(Arc::new(memory.clone()), plan.clone());
        let (heard, errors) = workload(options(&memory).storage(Some(Arc::new(faulty))));
        let context = format!("{:?} permanent={} at call {nth}", rule.fault, rule.permanent);
        if plan.fired() == 0 {
            assert!(errors.is_empty(), "{context}: {errors:?}");
            assert!(nth > 100, "the workload makes few calls: {nth}");
            return;
        }
        for error in &errors {
            use ErrorKind::{Corruption, Io, NoSpace, NotFound, Poisoned};
            assert!(matches!(error.kind(), Io | NoSpace | Poisoned | Corruption | NotFound), "{context}: {error}");
        }
        verify(&memory.snapshot(), &heard, &context);
        if let Some(image) = without_newest(&memory.snapshot()) {
            verify(&image, &heard, &format!("{context}, newest superblock lost"));
        }
        verify(&memory.crash(nth), &heard, &context);
        nth += stride();
    }
}

fn stride() -> u64 {
    std::env::var("FAULT_STRIDE").ok().and_then(|value| value.parse().ok()).unwrap_or(1)
}

fn calls() -> FaultRule {
    FaultRule::once(CallClass::Open, 1, Fault::Error).any_call()
}

#[test]
fn a_stop_at_any_call_leaves_each_load_whole_or_gone() {
    each(&FaultRule { permanent: true, ..calls() });
}

#[test]
fn any_failing_call_leaves_each_load_whole_or_gone() {
    each(&calls());
}

#[test]
fn any_short_write_leaves_each_load_whole_or_gone() {
    each(&FaultRule { fault: Fault::ShortWrite, classes: vec![CallClass::Write], ..calls() });
}

/// A leaf of what was truncated and one of what was loaded beside it become one before the truncation has come down to them.
#[test]
fn what_was_truncated_before_a_load_beside_it_stays_away() {
    let (storage, db, tree) = fresh();
    for key in [&b"k"[..], b"l"] {
        db.put(&tree, key, b"v").unwrap();
    }
    let other = db.create_tree("u", &TreeOptions::default()).unwrap();
    db.compact(None, b"", b"", &mut |_| ControlFlow::Continue(())).unwrap();
    let txn = begin(&db);
    txn.truncate_tree(&tree).unwrap();
    txn.commit().unwrap();
    let txn = begin(&db);
    let loaded: Rows = (0..3u8).map(|number| (vec![number], vec![0; 3000])).collect();
    load(&txn, &other, &loaded).unwrap();
    txn.commit().unwrap();
    for _ in 0..2 {
        while db.step_background().unwrap() {}
        assert!(present(&db, "t").is_empty());
        assert!(present(&db, "u") == loaded);
        db.checkpoint().unwrap();
        db.compact(None, b"", b"", &mut |_| ControlFlow::Continue(())).unwrap();
    }
    drop((tree, other));
    assert_clean(&storage, db, "truncated");
}
