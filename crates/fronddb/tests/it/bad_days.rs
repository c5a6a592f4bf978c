//! Rows of the failure policy that have no test of their own elsewhere.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};
use fronddb::{Database, Durability, ErrorKind, TreeOptions, TxnOptions, WriteBatch};

use crate::support::{DIRECTORY, begin, fresh, open, options};

#[test]
fn a_full_disk_is_an_ordinary_error_and_service_resumes() {
    let storage = MemoryStorage::new();
    storage.set_capacity(12 << 20);
    let db = open(&storage);
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let value: Vec<u8> = (0..3000u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut written = 0u32;
    let error = loop {
        match db.put(&tree, &written.to_be_bytes(), &value) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 20_000, "the disk never fills");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(written > 100);
    let check = |db: &Database| {
        let tree = db.open_tree("t").unwrap();
        for row in (0..written).step_by(97) {
            assert_eq!(db.get(&tree, &row.to_be_bytes()).unwrap().as_deref(), Some(&value[..]));
        }
    };
    check(&db);
    begin(&db).rollback().unwrap();
    storage.set_capacity(64 << 20);
    let resumed = (0..50).any(|_| {
        let _ = db.step_background();
        db.put(&tree, b"again", b"v").is_ok()
    });
    assert!(resumed, "{:?}", db.put(&tree, b"again", b"v"));
    db.checkpoint().unwrap();
    check(&open(&storage.crash(5)));
}

#[test]
fn a_failed_log_sync_poisons_and_reads_go_on() {
    let memory = MemoryStorage::new();
    let plan = FaultPlan::new();
    let storage = FaultStorage::new(Arc::new(memory.clone()), plan.clone());
    let db = Database::open(DIRECTORY, options(&memory).storage(Some(Arc::new(storage)))).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    db.put(&tree, b"k", b"v").unwrap();
    plan.add(FaultRule::once(CallClass::Sync, 1, Fault::Error).on("log"));
    assert_eq!(db.put(&tree, b"k", b"w").map_err(|error| error.kind()), Err(ErrorKind::Poisoned));
    assert_eq!(db.put(&tree, b"x", b"y").map_err(|error| error.kind()), Err(ErrorKind::Poisoned));
    assert!(db.poisoned().is_some() && db.get(&tree, b"k").is_ok());
    assert_eq!(db.close().map_err(|error| error.kind()), Err(ErrorKind::Poisoned));
    let db = open(&memory.crash(1));
    assert!(db.get(&db.open_tree("t").unwrap(), b"k").unwrap().is_some());
}

#[test]
fn a_newer_format_is_refused() {
    let (storage, db, _tree) = fresh();
    db.close().unwrap();
    let path = Path::new(DIRECTORY).join("data.frond");
    for generation in 0..4u64 {
        let at = fronddb::format::superblock::slot_offset(generation) + 8;
        storage.overwrite(&path, at, &99u32.to_le_bytes()).unwrap();
    }
    let error = Database::open(DIRECTORY, options(&storage)).map(|_| ()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnsupportedFormat | ErrorKind::Corruption), "{error}");
}

#[test]
fn the_newest_superblock_may_be_lost() {
    let (storage, db, tree) = fresh();
    for round in 0..5u32 {
        db.put(&tree, &round.to_be_bytes(), b"v").unwrap();
        db.checkpoint().unwrap();
    }
    db.put(&tree, b"last", b"v").unwrap();
    let generation = db.statistics().unwrap().generation;
    db.close().unwrap();
    let at = fronddb::format::superblock::slot_offset(generation);
    storage.overwrite(&Path::new(DIRECTORY).join("data.frond"), at, &[0x5a; 4096]).unwrap();
    let db = open(&storage);
    let tree = db.open_tree("t").unwrap();
    let report = db.recovery_report().unwrap();
    assert_eq!((report.generation, report.superblocks_skipped), (generation - 1, 1));
    assert!((0..5u32).all(|round| db.get(&tree, &round.to_be_bytes()).unwrap().is_some()));
    assert!(db.get(&tree, b"last").unwrap().is_some());
}

#[test]
fn unsynced_commits_are_covered_by_a_later_sync_and_torn_off_as_a_whole() {
    let commit = |db: &Database, tree: &fronddb::Tree, key: u32, durability| {
        let mut batch = WriteBatch::new();
        batch.put(tree, &key.to_be_bytes(), &[1; 700]).unwrap();
        batch.put(tree, &(1000 + key).to_be_bytes(), &[2; 700]).unwrap();
        db.write(&batch, TxnOptions { durability, ..TxnOptions::default() }).unwrap();
    };
    for seed in 0..40 {
        let (storage, db, tree) = fresh();
        (0..10).for_each(|key| commit(&db, &tree, key, Durability::None));
        commit(&db, &tree, 10, Durability::Sync);
        (11..40)
            .for_each(|key| commit(&db, &tree, key, if key % 2 == 0 { Durability::Write } else { Durability::None }));
        let db = open(&storage.crash(seed));
        let tree = db.open_tree("t").unwrap();
        let there = |key: u32| db.get(&tree, &key.to_be_bytes()).unwrap().is_some();
        let end = (0..40).find(|key| !there(*key)).unwrap_or(40);
        assert!(end >= 11, "seed {seed}: the synced commit does not cover those before it");
        assert!((0..40).all(|key| there(key) == (key < end) && there(1000 + key) == (key < end)), "seed {seed}");
    }
}

#[test]
fn memory_follows_its_setting_while_running() {
    let (_storage, db, tree) = fresh();
    assert_eq!(db.set_memory_bytes(1).map_err(|error| error.kind()), Err(ErrorKind::InvalidArgument));
    db.set_memory_bytes(32 << 20).unwrap();
    db.set_memory_bytes(8 << 20).unwrap();
    for row in 0..3000u32 {
        let mut batch = WriteBatch::new();
        batch.put(&tree, &row.to_be_bytes(), &[row as u8; 500]).unwrap();
        db.write(&batch, TxnOptions { durability: Durability::None, ..TxnOptions::default() }).unwrap();
    }
    let statistics = db.statistics().unwrap();
    assert!(statistics.memory_bytes <= 8 << 20 && statistics.seals > 0, "{}", statistics.to_json());
    assert!(statistics.level0_bytes <= 3 * statistics.level0_bytes_max);
    assert!(db.estimated_recovery().unwrap().bytes < 1 << 20);
    db.set_checkpoint_interval(Duration::ZERO).unwrap();
    db.sync_log().unwrap();
}
