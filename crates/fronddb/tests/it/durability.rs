//! What each durability promises, what the period of syncs adds, and that commits share syncs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fronddb::base::clock::Clock;
use fronddb::io::{CallClass, CrashMode, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};
use fronddb::{Database, Durability, ErrorKind, Options, Tree, TreeOptions, TxnOptions, WriteBatch};

use crate::support::{DIRECTORY, fresh, open, options};

fn with(durability: Durability) -> TxnOptions {
    TxnOptions { durability, ..TxnOptions::default() }
}

fn put(db: &Database, tree: &Tree, row: u32, durability: Durability) {
    let mut batch = WriteBatch::new();
    batch.put(tree, &row.to_be_bytes(), &[row as u8; 700]).unwrap();
    db.write(&batch, with(durability)).unwrap();
}

/// How many rows from the first on are there; none after them.
fn rows(storage: &MemoryStorage, most: u32) -> u32 {
    let db = open(storage);
    let tree = db.open_tree("t").unwrap();
    let is_there = |row: &u32| db.get(&tree, &row.to_be_bytes()).unwrap().is_some();
    let count = (0..most).find(|row| !is_there(row)).unwrap_or(most);
    assert!(!(count..most).any(|row| is_there(&row)), "no prefix, count={count}");
    count
}

#[test]
fn a_commit_that_was_written_survives_a_kill() {
    let (storage, db, tree) = fresh();
    for row in (0..20).step_by(2) {
        put(&db, &tree, row, Durability::Write);
        // What the process had given to the operating system.
        assert_eq!(rows(&storage.snapshot(), 40), row + 1);
        let txn = db.begin(with(Durability::Write)).unwrap();
        txn.put(&tree, &(row + 1).to_be_bytes(), b"of a transaction").unwrap();
        txn.commit().unwrap();
        assert_eq!(rows(&storage.snapshot(), 40), row + 2);
    }
}

#[test]
fn of_commits_that_wait_for_nothing_a_kill_leaves_the_first() {
    let (storage, db, tree) = fresh();
    let (mut before, most) = (0, 1200);
    for row in 0..most {
        put(&db, &tree, row, Durability::None);
        if row % 100 == 99 {
            let left = rows(&storage.snapshot(), most);
            assert!((before..=row + 1).contains(&left), "row={row} left={left} before={before}");
            before = left;
        }
    }
    assert!(before > 0, "the ring is not so large");
    put(&db, &tree, most, Durability::Write);
    assert_eq!(rows(&storage.snapshot(), most + 1), most + 1, "the one that was written takes all before it along");
}

/// How many rows a power loss leaves that keeps nothing unsynced, when `period_ms` went by after the commits.
fn after_a_period(durability: Durability, period_ms: u64) -> u32 {
    let clock = Clock::manual();
    let storage = MemoryStorage::new();
    let options = options(&storage).clock(Some(clock.clone())).log_sync_period_ms(period_ms);
    let db = Database::open(DIRECTORY, options).unwrap();
    let tree = db.create_tree("t", &Default::default()).unwrap();
    while db.step_background().unwrap() {}
    (0..3).for_each(|row| put(&db, &tree, row, durability));
    clock.advance_micros(999_000);
    while db.step_background().unwrap() {}
    let early = rows(&storage.crash_with(CrashMode::Lost, 0), 3);
    assert_eq!(early, 0, "{durability:?}: synced before the period was over");
    clock.advance_micros(1_000);
    while db.step_background().unwrap() {}
    rows(&storage.crash_with(CrashMode::Lost, 0), 3)
}

#[test]
fn the_period_syncs_commits_that_did_not_wait() {
    for durability in [Durability::Write, Durability::None] {
        assert_eq!(after_a_period(durability, 1000), 3, "{durability:?}");
        assert_eq!(after_a_period(durability, 0), 0, "{durability:?}: nothing else synced them");
    }
}

#[test]
fn the_period_may_be_changed_at_any_time() {
    let clock = Clock::manual();
    let storage = MemoryStorage::new();
    let options = options(&storage).clock(Some(clock.clone())).log_sync_period_ms(0);
    let db = Database::open(DIRECTORY, options).unwrap();
    let tree = db.create_tree("t", &Default::default()).unwrap();
    let rows_after = |row: u32, period_ms: u64, waited_ms: u64| {
        put(&db, &tree, row, Durability::None);
        db.set_log_sync_period(Duration::from_millis(period_ms)).unwrap();
        clock.advance_micros(1000 * waited_ms);
        while db.step_background().unwrap() {}
        rows(&storage.crash_with(CrashMode::Lost, 0), row + 1)
    };
    assert_eq!(rows_after(0, 0, 5000), 0);
    assert_eq!(rows_after(1, 1000, 1000), 2, "shorter than what went by since the last sync");
    assert_eq!(rows_after(2, 3000, 2999), 2);
    assert_eq!(rows_after(3, 3000, 1), 4);
    assert_eq!(rows_after(4, 0, 60_000), 4, "off again");
}

#[test]
fn a_period_below_the_finest_is_that_one_and_not_none() {
    let clock = Clock::manual();
    let storage = MemoryStorage::new();
    let db = Database::open(DIRECTORY, options(&storage).clock(Some(clock.clone()))).unwrap();
    let tree = db.create_tree("t", &Default::default()).unwrap();
    db.set_log_sync_period(Duration::from_micros(500)).unwrap();
    put(&db, &tree, 0, Durability::None);
    clock.advance_micros(1000);
    while db.step_background().unwrap() {}
    assert_eq!(rows(&storage.crash_with(CrashMode::Lost, 0), 1), 1);
}

/// Options of a database whose calls the plan watches.
fn watched(memory: &MemoryStorage, plan: &FaultPlan) -> Options {
    options(memory).storage(Some(Arc::new(FaultStorage::new(Arc::new(memory.clone()), plan.clone()))))
}

#[test]
fn commits_that_come_during_a_sync_share_the_next() {
    const THREADS: u32 = 8;
    const ROUNDS: u32 = 5;
    let (memory, plan) = (MemoryStorage::new(), FaultPlan::new());
    let db = Database::open(DIRECTORY, watched(&memory, &plan)).unwrap();
    let tree = db.create_tree("t", &Default::default()).unwrap();
    let synced = plan.calls(CallClass::Sync);
    for round in 0..ROUNDS {
        let records = || db.statistics().unwrap().log_records;
        let before = records();
        plan.add(FaultRule::once(CallClass::Sync, 1, Fault::Hold).on("log"));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (db, tree) = (&db, &tree);
                scope.spawn(move || put(db, tree, round * THREADS + thread, Durability::Sync));
            }
            let _held = plan.wait_held();
            // One of them syncs; all others append meanwhile. Were they kept from it, this would end nevertheless.
            let deadline = Instant::now() + Duration::from_secs(20);
            while records() < before + u64::from(THREADS) && Instant::now() < deadline {
                std::thread::yield_now();
            }
        });
        plan.clear();
    }
    let syncs = plan.calls(CallClass::Sync) - synced;
    assert!(syncs <= u64::from(2 * ROUNDS), "syncs={syncs} commits={}", ROUNDS * THREADS);
    assert_eq!(rows(&memory.crash_with(CrashMode::Lost, 0), ROUNDS * THREADS), ROUNDS * THREADS);
}

#[test]
fn the_period_syncs_while_a_publication_waits_for_the_disk() {
    const ROWS: u32 = 5;
    let (memory, plan, clock) = (MemoryStorage::new(), FaultPlan::new(), Clock::manual());
    let options = watched(&memory, &plan).clock(Some(clock.clone()));
    let db = Database::open(DIRECTORY, options.log_sync_period_ms(100).manual_background(false)).unwrap();
    let tree = db.create_tree("t", &Default::default()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let becomes = |is_so: &dyn Fn() -> bool| {
        while !is_so() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        is_so()
    };
    plan.add(FaultRule::once(CallClass::Sync, 1, Fault::Hold).on("data.frond"));
    let synced = std::thread::scope(|scope| {
        scope.spawn(|| db.checkpoint().unwrap());
        let _held = plan.wait_held();
        // For the sake of what the checkpoint replaces another publication is due, which waits for this one.
        clock.advance_micros(10_000_000);
        let synced = (0..ROWS).filter(|row| {
            put(&db, &tree, *row, Durability::None);
            clock.advance_micros(100_000);
            becomes(&|| rows(&memory.crash_with(CrashMode::Lost, 0), row + 1) == row + 1)
        });
        synced.count()
    });
    assert_eq!(synced, ROWS as usize);
}

/// Commits rows of which a failed sync loses the last ones, as the page cache does; how many rows a restart by `options` finds.
fn restart_after_a_failed_sync(storage: &MemoryStorage, options: impl Fn(Arc<dyn Storage>) -> Options) -> u32 {
    let plan = FaultPlan::new();
    let failing: Arc<dyn Storage> = Arc::new(FaultStorage::new(Arc::new(storage.clone()), plan.clone()));
    let db = Database::open(DIRECTORY, options(failing)).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    (0..5).for_each(|row| put(&db, &tree, row, Durability::Sync));
    // Another segment begins: its header is lost as well.
    db.checkpoint().unwrap();
    (5..8).for_each(|row| put(&db, &tree, row, Durability::Write));
    plan.add(FaultRule::once(CallClass::Sync, 1, Fault::Error).on("log"));
    assert_eq!(db.sync_log().unwrap_err().kind(), ErrorKind::Poisoned);
    drop(db);
    storage.forget_unsynced();
    let db = Database::open(DIRECTORY, options(Arc::new(storage.clone()))).unwrap();
    let tree = db.open_tree("t").unwrap();
    (0..8u32).take_while(|row| db.get(&tree, &row.to_be_bytes()).unwrap().is_some()).count() as u32
}

#[test]
fn what_a_restart_serves_after_a_failed_sync_of_the_page_cache_is_durable() {
    for refused in [false, true] {
        let storage = MemoryStorage::new();
        if refused {
            storage.refuse_direct();
        }
        let options = |used| options(&storage).storage(Some(used)).direct_io(refused);
        let served = restart_after_a_failed_sync(&storage, options);
        assert_eq!(served, 8, "the page cache still holds what the failed sync lost");
        for mode in CrashMode::ALL {
            assert_eq!(rows(&storage.crash_with(mode, 1), 8), served, "mode={mode:?} refused={refused}");
        }
    }
}
