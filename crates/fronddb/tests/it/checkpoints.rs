//! Checkpoints by the period and for the recovery-time target, on a clock that stands still, and what a restart would take;
//! and whom a checkpoint lets go on.

use std::sync::Arc;
use std::time::Duration;

use fronddb::base::clock::Clock;
use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};
use fronddb::{Database, Durability, LockMode, Options, Tree, TreeOptions, TxnOptions, Wait, WriteBatch};

use crate::support::{DIRECTORY, Random, options};

const SECOND: u64 = 1_000_000;

/// Level 0 is so large that no memtable fills.
fn roomy(storage: &MemoryStorage, clock: &Clock) -> Options {
    options(storage)
        .memory_bytes(64 << 20)
        .level0_bytes(16 << 20)
        .log_segment_bytes(64 << 20)
        .clock(Some(clock.clone()))
}

fn setup(change: impl Fn(Options) -> Options) -> (MemoryStorage, Clock, Database, Tree) {
    let (storage, clock) = (MemoryStorage::new(), Clock::manual());
    let db = Database::open(DIRECTORY, change(roomy(&storage, &clock))).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    db.checkpoint().unwrap();
    idle(&db);
    (storage, clock, db, tree)
}

/// Background steps until there is nothing to do.
fn idle(db: &Database) {
    while db.step_background().unwrap() {}
}

/// Rows that no codec makes smaller, `bytes` of them in about a kilobyte each.
fn write(db: &Database, tree: &Tree, random: &mut Random, bytes: usize) {
    for _ in 0..bytes >> 10 {
        let mut batch = WriteBatch::new();
        batch.put(tree, &random.next().to_be_bytes(), &random.bytes(1 << 10)).unwrap();
        db.write(&batch, Default::default()).unwrap();
    }
}

fn by_time(db: &Database) -> u64 {
    db.statistics().unwrap().checkpoints_by_time
}

fn by_target(db: &Database) -> u64 {
    db.statistics().unwrap().checkpoints_by_target
}

/// How many messages a restart after a kill replays just now.
fn replayed(storage: &MemoryStorage) -> u64 {
    let image = storage.snapshot();
    Database::open(DIRECTORY, roomy(&image, &Clock::manual())).unwrap().recovery_report().unwrap().messages
}

#[test]
fn a_checkpoint_comes_with_the_period_and_not_before() {
    let (storage, clock, db, tree) = setup(|options| options.checkpoint_interval_ms(60_000));
    let mut random = Random::new(1);
    write(&db, &tree, &mut random, 10 << 10);
    clock.advance_micros(59 * SECOND);
    idle(&db);
    assert_eq!((by_time(&db), replayed(&storage)), (0, 10), "a second is missing");
    clock.advance_micros(2 * SECOND);
    idle(&db);
    assert_eq!((by_time(&db), replayed(&storage)), (1, 0));
    clock.advance_micros(600 * SECOND);
    idle(&db);
    assert_eq!(by_time(&db), 1, "nothing was written since");
    write(&db, &tree, &mut random, 1 << 10);
    idle(&db);
    assert_eq!((by_time(&db), replayed(&storage)), (2, 0), "the period has long passed");
}

#[test]
fn the_period_may_be_changed_and_switched_off_at_any_time() {
    let (storage, clock, db, tree) = setup(|options| options.checkpoint_interval_ms(0));
    let mut random = Random::new(2);
    write(&db, &tree, &mut random, 5 << 10);
    clock.advance_micros(100_000 * SECOND);
    idle(&db);
    assert_eq!((by_time(&db), replayed(&storage)), (0, 5), "never by time");
    db.set_checkpoint_interval(Duration::from_secs(10)).unwrap();
    idle(&db);
    assert_eq!((by_time(&db), replayed(&storage)), (1, 0));
    write(&db, &tree, &mut random, 5 << 10);
    clock.advance_micros(9 * SECOND);
    idle(&db);
    assert_eq!(by_time(&db), 1);
    db.set_checkpoint_interval(Duration::from_secs(5)).unwrap();
    idle(&db);
    assert_eq!((by_time(&db), replayed(&storage)), (2, 0));
    db.set_checkpoint_interval(Duration::ZERO).unwrap();
    write(&db, &tree, &mut random, 5 << 10);
    clock.advance_micros(100_000 * SECOND);
    idle(&db);
    assert_eq!((by_time(&db), replayed(&storage)), (2, 5));
}

/// Longest estimate, in microseconds, while 6 MB are written and background work is done.
fn longest_estimate(db: &Database, tree: &Tree) -> u64 {
    let mut random = Random::new(3);
    let mut longest = 0;
    for _ in 0..60 {
        write(db, tree, &mut random, 100 << 10);
        idle(db);
        longest = longest.max(db.estimated_recovery().unwrap().micros);
    }
    longest
}

#[test]
fn the_recovery_target_bounds_what_a_restart_would_take() {
    let (_storage, _clock, db, tree) = setup(|options| options);
    let without = longest_estimate(&db, &tree);
    assert_eq!(by_target(&db), 0, "there is no target");
    for target_ms in [12, 20] {
        let target = 1000 * target_ms;
        assert!(without > target * 2, "without={without} target={target}");
        let (storage, _clock, db, tree) = setup(|options| options.recovery_target_ms(target_ms));
        let longest = longest_estimate(&db, &tree);
        assert!(by_target(&db) > 0, "longest={longest} target={target}");
        assert!(longest <= target * 2, "longest={longest} target={target}");
        assert_eq!(by_time(&db), 0);
        assert!(replayed(&storage) < 6000 * target / without, "what is replayed is bounded as well");
    }
    let (_storage, _clock, db, tree) = setup(|options| options.recovery_target_ms(60_000));
    let longest = longest_estimate(&db, &tree);
    assert!(
        by_target(&db) == 0 && longest.abs_diff(without) < 1000,
        "it is far away, longest={longest} without={without}"
    );
}

#[test]
fn the_recovery_target_may_be_changed_at_any_time() {
    let (storage, _clock, db, tree) = setup(|options| options);
    let longest = longest_estimate(&db, &tree);
    assert_eq!((by_target(&db), replayed(&storage)), (0, 6000));
    db.set_recovery_target(Duration::from_millis(15)).unwrap();
    idle(&db);
    assert_eq!((by_target(&db), replayed(&storage)), (1, 0));
    db.set_recovery_target(Duration::ZERO).unwrap();
    assert_eq!(longest_estimate(&db, &tree) / 1000, longest / 1000);
    assert_eq!(by_target(&db), 1);
}

#[test]
fn the_estimated_recovery_grows_with_the_log_and_falls_with_a_checkpoint() {
    let (_storage, _clock, db, tree) = setup(|options| options);
    let mut random = Random::new(4);
    let mut before = db.estimated_recovery().unwrap();
    for _ in 0..4 {
        write(&db, &tree, &mut random, 1 << 20);
        idle(&db);
        let now = db.estimated_recovery().unwrap();
        assert!(now.bytes - before.bytes >= 1 << 20 && now.messages == before.messages + 1024, "{before:?} {now:?}");
        assert!(now.micros > before.micros + 1000, "a megabyte is not replayed in a millisecond: {before:?} {now:?}");
        let statistics = db.statistics().unwrap();
        assert_eq!((statistics.log_live_bytes, statistics.recovery_micros), (now.bytes, now.micros));
        before = now;
    }
    db.checkpoint().unwrap();
    let after = db.estimated_recovery().unwrap();
    assert!(after.bytes < 64 << 10 && after.messages == 0 && after.micros < before.micros / 2, "{before:?} {after:?}");
}

/// They leave no message, so level 0 stays empty, but the log has their records.
#[test]
fn transactions_that_only_lock_and_are_prepared_do_not_keep_the_log() {
    let (storage, clock, db, tree) = setup(|options| options.checkpoint_interval_ms(60_000).log_segment_bytes(1 << 20));
    let prepare = |from: u32, count: u32| {
        for number in from..from + count {
            let txn = db.begin(TxnOptions::default()).unwrap();
            for key in 0..20 {
                let name = format!("a key of some length {number} {key}");
                txn.get_locked(&tree, name.as_bytes(), LockMode::Exclusive, Wait::Default).unwrap();
            }
            txn.prepare(&number.to_be_bytes()).unwrap();
            if number % 2 == 0 {
                db.commit_prepared(&number.to_be_bytes()).unwrap();
            } else {
                db.rollback_prepared(&number.to_be_bytes()).unwrap();
            }
        }
    };
    prepare(0, 8_000);
    assert!(db.estimated_recovery().unwrap().bytes > 1 << 20, "{:?}", db.estimated_recovery());
    db.checkpoint().unwrap();
    assert!(db.estimated_recovery().unwrap().bytes < 64 << 10, "{:?}", db.estimated_recovery());
    let before = by_time(&db);
    prepare(8_000, 8_000);
    clock.advance_micros(61 * SECOND);
    idle(&db);
    assert_eq!(by_time(&db), before + 1);
    assert!(db.estimated_recovery().unwrap().bytes < 64 << 10, "{:?}", db.estimated_recovery());
    assert!(db.statistics().unwrap().log_live_bytes < 3 << 20, "segments are given back");
    // What is written again for those that stay prepared is no reason for the next checkpoint.
    let txn = db.begin(TxnOptions::default()).unwrap();
    txn.put(&tree, b"k", b"v").unwrap();
    txn.prepare(b"stays").unwrap();
    for _ in 0..3 {
        clock.advance_micros(61 * SECOND);
        idle(&db);
    }
    assert_eq!(by_time(&db), before + 2);
    drop(db);
    let db = Database::open(DIRECTORY, roomy(&storage, &Clock::manual())).unwrap();
    assert_eq!(db.prepared().unwrap().len(), 1);
}

#[test]
fn everything_else_goes_on_while_a_checkpoint_waits_for_the_disk() {
    const CALLS: u32 = 1_000;
    let (memory, plan) = (MemoryStorage::new(), FaultPlan::new());
    let held = FaultStorage::new(Arc::new(memory.clone()), plan.clone());
    let options = roomy(&memory, &Clock::machine()).storage(Some(Arc::new(held))).manual_background(false);
    let db = Database::open(DIRECTORY, options).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let key = |session: u8, number: u32| [&[session][..], &number.to_be_bytes()].concat();
    for number in 0..2_000 {
        let durability = Durability::None;
        let txn = db.begin(TxnOptions { durability, ..TxnOptions::default() }).unwrap();
        txn.put(&tree, &key(0, number), &[7; 500]).unwrap();
        txn.commit().unwrap();
    }
    let old = db.begin(TxnOptions { consistent_snapshot: true, ..TxnOptions::default() }).unwrap();
    for number in 0..1_000 {
        db.put(&tree, &key(0, number), b"newer").unwrap();
    }
    db.wait_idle().unwrap();
    // Of what was written, and of what makes it the database.
    for sync in [1, 2] {
        plan.add(FaultRule::once(CallClass::Sync, sync, Fault::Hold).on("data.frond"));
        std::thread::scope(|scope| {
            let checkpoint = scope.spawn(|| db.checkpoint().unwrap());
            let held = plan.wait_held();
            let commits =
                scope.spawn(|| (0..CALLS).for_each(|row| db.put(&tree, &key(1, row), &row.to_be_bytes()).unwrap()));
            let reads = scope.spawn(|| {
                for row in 0..CALLS {
                    let value = db.get(&tree, &key(0, 2 * row)).unwrap().unwrap();
                    assert_eq!(value.len(), if 2 * row < 1_000 { 5 } else { 500 });
                }
            });
            let old_reads = scope.spawn(|| {
                for row in 0..CALLS {
                    assert_eq!(old.get(&tree, &key(0, 2 * row)).unwrap().unwrap().len(), 500);
                }
            });
            let rollbacks = scope.spawn(|| {
                for call in 0..CALLS {
                    let txn = db.begin(TxnOptions::default()).unwrap();
                    (0..3).for_each(|row| txn.put(&tree, &key(2, 3 * call + row), b"never").unwrap());
                    txn.rollback().unwrap();
                }
            });
            for session in [commits, reads, old_reads, rollbacks] {
                session.join().unwrap();
            }
            assert!(!checkpoint.is_finished(), "a checkpoint syncs the data file");
            drop(held);
            checkpoint.join().unwrap();
        });
        plan.clear();
    }
    old.rollback().unwrap();
    assert!(db.get(&tree, &key(2, 0)).unwrap().is_none() && db.get(&tree, &key(1, CALLS - 1)).unwrap().is_some());
    db.check(&mut |finding| panic!("{finding:?}"), None).unwrap();
}
