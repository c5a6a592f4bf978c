//! Isolation, locks, deadlocks, cancellation, distributed transactions, size.

use std::ops::Bound;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fronddb::base::clock::Clock;
use fronddb::io::{CrashMode, FaultPlan, FaultStorage, MemoryStorage};
use fronddb::{
    BulkOptions, CursorOptions, Database, Durability, ErrorKind, Isolation, LockMode, Locked, Op, Program, Result,
    Statistics, Transaction, Tree, TreeOptions, TxnOptions, Wait, WriteBatch,
};

use crate::support::{DIRECTORY, Random, begin, collect, fresh, open, options};

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

fn at(db: &Database, isolation: Isolation) -> Transaction {
    let lock_timeout = Some(Duration::ZERO);
    db.begin(TxnOptions { isolation, lock_timeout, ..TxnOptions::default() }).unwrap()
}

fn rows(txn: &Transaction, tree: &Tree) -> Vec<(Vec<u8>, Vec<u8>)> {
    collect(&mut txn.cursor(tree, CursorOptions::default()).unwrap()).unwrap()
}

/// Coalescing at a restart would lock what lies between a transaction's keys before it is known whose that is.
#[test]
fn prepared_transactions_whose_locks_lie_between_each_other_come_back() {
    const KEYS: u32 = 12_000;
    let (storage, db, tree) = fresh();
    let txns = [begin(&db), begin(&db)];
    for key in 0..KEYS {
        txns[key as usize % 2].put(&tree, &key.to_be_bytes(), b"1").unwrap();
    }
    for (xid, txn) in [b"even", b"odd!"].into_iter().zip(txns) {
        txn.prepare(xid).unwrap();
    }
    drop((tree, db));
    let db = open(&storage);
    assert_eq!(db.prepared().unwrap().len(), 2);
    let tree = db.open_tree("t").unwrap();
    let other = at(&db, Isolation::RepeatableRead);
    for key in (0..KEYS).step_by(97) {
        assert_eq!(kind(other.put(&tree, &key.to_be_bytes(), b"2")), Some(ErrorKind::LockTimeout), "{key}");
    }
    db.commit_prepared(b"even").unwrap();
    db.rollback_prepared(b"odd!").unwrap();
    assert_eq!(rows(&begin(&db), &tree).len(), KEYS as usize / 2);
}

#[test]
fn a_snapshot_has_no_phantoms_and_a_locking_read_sees_the_latest_row() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"a", b"1").unwrap();
    let reader = at(&db, Isolation::RepeatableRead);
    assert_eq!(rows(&reader, &tree).len(), 1);
    db.put(&tree, b"a", b"2").unwrap();
    db.put(&tree, b"b", b"2").unwrap();
    assert_eq!(rows(&reader, &tree), [(b"a".to_vec(), b"1".to_vec())]);
    let locked = reader.get_locked(&tree, b"a", LockMode::Exclusive, Wait::NoWait).unwrap();
    assert!(matches!(locked, Locked::Row(value) if value[..] == *b"2"));
    let strict = TxnOptions { first_updater_wins: true, consistent_snapshot: true, ..TxnOptions::default() };
    drop(reader);
    let strict = db.begin(strict).unwrap();
    db.put(&tree, b"a", b"3").unwrap();
    assert_eq!(kind(strict.put(&tree, b"a", b"4")), Some(ErrorKind::Conflict));
    assert_eq!(kind(strict.put(&tree, b"c", b"4")), None);
}

#[test]
fn a_key_that_others_changed_after_the_snapshot_is_told_from_one_they_did_not() {
    let (_storage, db, tree) = fresh();
    for key in [b"changed", b"deleted", b"covered", b"written"] {
        db.put(&tree, key, b"1").unwrap();
    }
    let txn = begin(&db);
    let changed = |key: &[u8]| txn.changed_after_snapshot(&tree, key).unwrap();
    db.put(&tree, b"before", b"1").unwrap();
    assert!(!changed(b"before"), "there is no snapshot yet");
    assert_eq!(txn.get(&tree, b"none").unwrap(), None);
    assert!(!changed(b"before") && !changed(b"none"));
    db.put(&tree, b"changed", b"2").unwrap();
    db.delete(&tree, b"deleted").unwrap();
    db.put(&tree, b"new", b"2").unwrap();
    let other = begin(&db);
    other.delete_range(&tree, b"covered", b"d").unwrap();
    other.commit().unwrap();
    let undone = begin(&db);
    undone.put(&tree, b"written", b"2").unwrap();
    undone.rollback().unwrap();
    txn.put(&tree, b"written", b"2").unwrap();
    txn.put(&tree, b"changed", b"3").unwrap();
    for round in 0..2 {
        for (key, is_changed) in [
            (&b"changed"[..], true),
            (b"deleted", true),
            (b"new", true),
            (b"covered", true),
            (b"written", false),
            (b"before", false),
        ] {
            assert_eq!(changed(key), is_changed, "round={round} key={}", String::from_utf8_lossy(key));
        }
        // And from the tree.
        db.checkpoint().unwrap();
    }
    txn.commit().unwrap();
    let locking = at(&db, Isolation::Serializable);
    assert!(locking.get(&tree, b"new").unwrap().is_some());
    assert!(!locking.changed_after_snapshot(&tree, b"new").unwrap(), "it has none");
}

#[test]
fn at_read_committed_that_is_told_of_the_snapshot_of_the_statement() {
    let (_storage, db, tree) = fresh();
    let txn = at(&db, Isolation::ReadCommitted);
    let changed = || txn.changed_after_snapshot(&tree, b"k").unwrap();
    assert_eq!(txn.get(&tree, b"k").unwrap(), None);
    db.put(&tree, b"k", b"1").unwrap();
    assert!(!changed(), "outside of statements each read sees what there is");
    txn.begin_statement().unwrap();
    db.put(&tree, b"k", b"2").unwrap();
    assert!(!changed(), "it has read nothing yet");
    assert!(txn.get(&tree, b"k").unwrap().is_some_and(|value| value[..] == *b"2"));
    db.put(&tree, b"k", b"3").unwrap();
    assert!(changed());
    txn.put(&tree, b"k", b"4").unwrap();
    assert!(changed(), "also when it has written over it");
    txn.begin_statement().unwrap();
    assert!(!changed());
    assert!(txn.get(&tree, b"k").unwrap().is_some_and(|value| value[..] == *b"4"));
    assert!(!changed());
}

#[test]
fn an_insert_sees_the_row_that_an_update_of_the_same_batch_gives() {
    let (_storage, db, tree) = fresh();
    let mut first = Vec::new();
    Program { ops: vec![Op::IfNull { value: b"first".to_vec() }] }.encode(&mut first);
    let mut more = Vec::new();
    Program { ops: vec![Op::Append { bytes: b"more".to_vec() }] }.encode(&mut more);
    let insert = |key: &[u8], prepare: &dyn Fn(&mut WriteBatch)| {
        let mut batch = WriteBatch::new();
        prepare(&mut batch);
        batch.insert(&tree, key, b"second").unwrap();
        kind(begin(&db).write(&batch))
    };
    assert_eq!(insert(b"a", &|batch| batch.update(&tree, b"a", &first).unwrap()), Some(ErrorKind::KeyExists));
    assert_eq!(insert(b"a", &|batch| batch.update(&tree, b"a", &more).unwrap()), None, "there is no row to append to");
    db.put(&tree, b"b", b"was").unwrap();
    let gone_and_given = |batch: &mut WriteBatch| {
        batch.delete(&tree, b"b").unwrap();
        batch.update(&tree, b"b", &first).unwrap();
    };
    assert_eq!(insert(b"b", &gone_and_given), Some(ErrorKind::KeyExists));
    assert_eq!(insert(b"b", &|batch| batch.delete(&tree, b"b").unwrap()), None);
}

#[test]
fn updates_are_not_lost_and_dirty_writes_wait() {
    let (_storage, db, tree) = fresh();
    let first = at(&db, Isolation::ReadCommitted);
    let second = at(&db, Isolation::ReadCommitted);
    first.put(&tree, b"k", b"first").unwrap();
    assert_eq!(kind(second.put(&tree, b"k", b"second")), Some(ErrorKind::LockTimeout));
    assert_eq!(second.get_locked(&tree, b"k", LockMode::Shared, Wait::SkipLocked).unwrap(), Locked::Skipped);
    first.commit().unwrap();
    second.put(&tree, b"k", b"second").unwrap();
    second.commit().unwrap();
    assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"second"[..]));
}

#[test]
fn write_skew_is_stopped_at_serializable_only() {
    let (_storage, db, tree) = fresh();
    for (isolation, allowed) in [(Isolation::RepeatableRead, true), (Isolation::Serializable, false)] {
        let first = at(&db, isolation);
        let second = at(&db, isolation);
        assert_eq!((rows(&first, &tree).len(), rows(&second, &tree).len()), (0, 0));
        let one = first.put(&tree, b"1", b"").is_ok();
        let two = second.put(&tree, b"2", b"").is_ok();
        assert_eq!(one && two, allowed, "{isolation:?}");
    }
}

#[test]
fn a_locking_scan_locks_the_gaps_it_passed() {
    let (_storage, db, tree) = fresh();
    for key in [b"b", b"d", b"f"] {
        db.put(&tree, key, b"").unwrap();
    }
    let scanner = at(&db, Isolation::RepeatableRead);
    let locking = CursorOptions { lock: Some(LockMode::Shared), ..CursorOptions::range(*b"b", *b"e") };
    let mut cursor = scanner.cursor(&tree, locking.clone()).unwrap();
    assert_eq!(collect(&mut cursor).unwrap().len(), 2);
    assert_eq!(crate::support::collect_backward(&mut cursor).unwrap().len(), 2);
    let writer = at(&db, Isolation::RepeatableRead);
    assert_eq!(kind(writer.put(&tree, b"c", b"")), Some(ErrorKind::LockTimeout));
    assert_eq!(kind(writer.put(&tree, b"a", b"")), None);
    assert_eq!(kind(writer.put(&tree, b"g", b"")), None);
    drop(scanner);
    assert_eq!(kind(writer.put(&tree, b"c", b"")), None);
    let relaxed = at(&db, Isolation::ReadCommitted);
    let mut cursor = relaxed.cursor(&tree, CursorOptions { wait: Wait::SkipLocked, ..locking }).unwrap();
    assert_eq!(collect(&mut cursor).unwrap().len(), 2);
    let other = at(&db, Isolation::ReadCommitted);
    assert_eq!(kind(other.put(&tree, b"cc", b"")), None);
    assert_eq!(kind(other.put(&tree, b"d", b"")), Some(ErrorKind::LockTimeout));
}

#[test]
fn a_deadlock_has_one_victim_and_the_other_goes_on() {
    let (_storage, db, tree) = fresh();
    let long = TxnOptions { lock_timeout: Some(Duration::from_secs(20)), ..TxnOptions::default() };
    let first = db.begin(long).unwrap();
    let second = db.begin(long).unwrap();
    first.put(&tree, b"a", b"1").unwrap();
    second.put(&tree, b"b", b"2").unwrap();
    let outcomes = std::thread::scope(|scope| {
        let run = |txn: Transaction, key: &'static [u8]| {
            let tree = tree.clone();
            scope.spawn(move || {
                let outcome = txn.put(&tree, key, b"x").map_err(|error| error.kind());
                if outcome.is_err() {
                    assert_eq!(kind(txn.get(&tree, b"a")), Some(ErrorKind::Closed));
                    return outcome;
                }
                txn.commit().map_err(|error| error.kind())
            })
        };
        let threads = [run(first, b"b"), run(second, b"a")];
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(outcomes.contains(&Ok(())) && outcomes.contains(&Err(ErrorKind::Deadlock)), "{outcomes:?}");
    assert_eq!(db.statistics().unwrap().deadlocks, 1);
}

#[test]
fn who_does_not_wait_is_in_no_deadlock() {
    let (_storage, db, tree) = fresh();
    let waits = |limit| TxnOptions { lock_timeout: Some(limit), ..TxnOptions::default() };
    let patient = db.begin(waits(Duration::from_secs(60))).unwrap();
    let impatient = db.begin(waits(Duration::ZERO)).unwrap();
    for (txn, key) in [(&impatient, b"1"), (&patient, b"2")] {
        txn.put(&tree, key, b"").unwrap();
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| patient.put(&tree, b"1", b""));
        while db.locks().unwrap().iter().all(|lock| lock.waits_for.is_empty()) {
            assert!(!waiting.is_finished());
            std::thread::yield_now();
        }
        assert_eq!(kind(impatient.put(&tree, b"2", b"")), Some(ErrorKind::LockTimeout));
        assert_eq!(kind(impatient.delete_range(&tree, b"2", b"3")), Some(ErrorKind::LockTimeout));
        impatient.rollback().unwrap();
        waiting.join().unwrap().unwrap();
    });
    patient.commit().unwrap();
    assert_eq!(db.statistics().unwrap().deadlocks, 0);
}

#[test]
fn a_read_only_transaction_holds_no_locks() {
    let (_storage, db, tree) = fresh();
    let reader = db.begin(TxnOptions { read_only: true, ..TxnOptions::default() }).unwrap();
    for mode in [LockMode::Shared, LockMode::Exclusive] {
        assert_eq!(kind(reader.lock_range(&tree, b"a", b"b", mode, Wait::NoWait)), Some(ErrorKind::ReadOnly));
        assert_eq!(kind(reader.get_locked(&tree, b"a", mode, Wait::NoWait)), Some(ErrorKind::ReadOnly));
    }
    at(&db, Isolation::RepeatableRead).put(&tree, b"a", b"").unwrap();
}

#[test]
fn rows_are_inserted_while_another_transaction_waits_to_delete_all() {
    for _ in 0..20 {
        let (_storage, db, tree) = fresh();
        let long = TxnOptions { lock_timeout: Some(Duration::from_secs(60)), ..TxnOptions::default() };
        let writer = db.begin(long).unwrap();
        for n in 0..20_000u32 {
            writer.insert(&tree, &n.to_be_bytes(), b"row").unwrap();
        }
        let deleter = db.begin(long).unwrap();
        std::thread::scope(|scope| {
            let deletion = scope.spawn(|| deleter.delete_range(&tree, b"", b"").map_err(|error| error.kind()));
            for n in 20_000..30_000u32 {
                writer.insert(&tree, &n.to_be_bytes(), b"row").unwrap();
            }
            writer.commit().unwrap();
            assert_eq!(deletion.join().unwrap(), Ok(()));
        });
        deleter.commit().unwrap();
        assert_eq!(rows(&begin(&db), &tree), []);
        assert_eq!(db.statistics().unwrap().deadlocks, 0);
    }
}

#[test]
fn a_cancellation_that_met_no_wait_is_forgotten_when_the_next_statement_begins() {
    let (_storage, db, tree) = fresh();
    let owner = begin(&db);
    owner.put(&tree, b"1", b"b").unwrap();
    let waiting =
        db.begin(TxnOptions { lock_timeout: Some(Duration::from_millis(1)), ..TxnOptions::default() }).unwrap();
    waiting.put(&tree, b"2", b"c").unwrap();
    db.cancel(waiting.id()).unwrap();
    assert_eq!(kind(waiting.put(&tree, b"1", b"d")), Some(ErrorKind::Cancelled), "the same statement is cancelled");
    db.cancel(waiting.id()).unwrap();
    waiting.begin_statement().unwrap();
    assert_eq!(kind(waiting.put(&tree, b"1", b"d")), Some(ErrorKind::LockTimeout), "the next one waits");
}

#[test]
fn a_scan_hears_a_cancellation_while_it_passes_over_keys_without_rows() {
    let (_storage, db, tree) = fresh();
    let keys = |from: u32| (from..from + 2000).map(u32::to_be_bytes);
    let write = |txn: &Transaction, from| keys(from).for_each(|key| txn.put(&tree, &key, b"v").unwrap());
    // Deleted, with a row at either end; and then keys of which another transaction has not decided yet.
    let writer = begin(&db);
    write(&writer, 1);
    keys(1).for_each(|key| writer.delete(&tree, &key).unwrap());
    [0u32, 5000].iter().for_each(|row| writer.put(&tree, &row.to_be_bytes(), b"v").unwrap());
    writer.commit().unwrap();
    let undecided = begin(&db);
    write(&undecided, 2500);
    for lock in [None, Some(LockMode::Shared)] {
        let reader = db.begin(TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() }).unwrap();
        let ranges: &[(u32, u32)] = if lock.is_none() { &[(1, 2500), (2500, 4999)] } else { &[(1, 2500)] };
        for (from, to) in ranges {
            let bounds = (Bound::Included(from.to_be_bytes().to_vec()), Bound::Excluded(to.to_be_bytes().to_vec()));
            let options = CursorOptions { lower: bounds.0, upper: bounds.1, lock, ..CursorOptions::default() };
            let mut cursor = reader.cursor(&tree, options).unwrap();
            for forward in [true, false] {
                let mut scan = || if forward { cursor.first() } else { cursor.last() };
                db.cancel(reader.id()).unwrap();
                assert_eq!(kind(scan()), Some(ErrorKind::Cancelled), "from={from} forward={forward} lock={lock:?}");
            }
        }
        // Where there are rows to stop at, who scans looks for himself; a wait is cancelled then.
        let mut cursor = reader.cursor(&tree, CursorOptions { lock, ..CursorOptions::default() }).unwrap();
        db.cancel(reader.id()).unwrap();
        assert!(cursor.first().unwrap());
        assert_eq!(kind(reader.put(&tree, &2500u32.to_be_bytes(), b"w")), Some(ErrorKind::Cancelled));
    }
    assert_eq!(collect(&mut begin(&db).cursor(&tree, CursorOptions::default()).unwrap()).unwrap().len(), 2);
}

#[test]
fn a_scan_hears_a_cancellation_while_it_skips_locked_rows() {
    let (_storage, db, tree) = fresh();
    (0..3u32).for_each(|row| db.put(&tree, &row.to_be_bytes(), b"v").unwrap());
    let holder = begin(&db);
    (0..3u32).for_each(|row| holder.put(&tree, &row.to_be_bytes(), b"w").unwrap());
    let reader = db.begin(TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() }).unwrap();
    let (lock, wait) = (Some(LockMode::Exclusive), Wait::SkipLocked);
    let mut cursor = reader.cursor(&tree, CursorOptions { lock, wait, ..CursorOptions::default() }).unwrap();
    for forward in [true, false] {
        let mut scan = || if forward { cursor.first() } else { cursor.last() };
        assert!(!scan().unwrap(), "all are held by another");
        db.cancel(reader.id()).unwrap();
        assert_eq!(kind(scan()), Some(ErrorKind::Cancelled), "forward={forward}");
        assert!(!scan().unwrap(), "it is cancelled once");
    }
}

#[test]
fn a_waiting_thread_is_cancelled_from_another() {
    let (_storage, db, tree) = fresh();
    let holder = begin(&db);
    holder.put(&tree, b"k", b"1").unwrap();
    let (send, receive) = mpsc::channel();
    let waiter = {
        let (db, tree) = (db.clone(), tree.clone());
        std::thread::spawn(move || {
            let txn = begin(&db);
            send.send(txn.id()).unwrap();
            let outcome = kind(txn.put(&tree, b"k", b"2"));
            (outcome, kind(txn.put(&tree, b"other", b"2")))
        })
    };
    let id = receive.recv().unwrap();
    let started = Instant::now();
    while db.locks().unwrap().iter().all(|lock| lock.waits_for.is_empty()) {
        assert!(started.elapsed() < Duration::from_secs(10), "nobody waits");
        std::thread::yield_now();
    }
    assert_eq!(db.transactions().unwrap().len(), 2);
    db.cancel(id).unwrap();
    assert_eq!(waiter.join().unwrap(), (Some(ErrorKind::Cancelled), None));
    assert_eq!(kind(db.cancel(999_999)), Some(ErrorKind::NotFound));
}

/// Whoever keeps the decision, like the server's binary log, has the second phase without a sync of its own.
#[test]
fn both_phases_are_as_durable_as_asked() {
    let (storage, db, tree) = fresh();
    for (number, durability) in [(1, Durability::None), (2, Durability::Sync), (3, Durability::None)] {
        let txn = begin(&db);
        txn.put(&tree, &[number], b"prepared").unwrap();
        txn.prepare(&[b'x', number]).unwrap();
        let syncs = db.statistics().unwrap().log_syncs;
        db.commit_prepared_with(&[b'x', number], durability).unwrap();
        let syncs = db.statistics().unwrap().log_syncs - syncs;
        assert_eq!(syncs > 0, durability == Durability::Sync, "number={number} syncs={syncs}");
        assert_eq!(begin(&db).get(&tree, &[number]).unwrap().as_deref(), Some(&b"prepared"[..]));
    }
    let syncs = db.statistics().unwrap().log_syncs;
    let txn = begin(&db);
    txn.put(&tree, b"\x04", b"prepared").unwrap();
    txn.prepare_with(b"x\x04", Durability::None).unwrap();
    assert_eq!((db.statistics().unwrap().log_syncs, db.prepared().unwrap().len()), (syncs, 1));
    // The last decision may be lost: then it is asked for again. And so may the last prepared transaction.
    let crashed = storage.crash_with(CrashMode::Lost, 1);
    let again = open(&crashed);
    let undecided = again.prepared().unwrap();
    assert_eq!(undecided.iter().map(|info| info.xid.clone()).collect::<Vec<_>>(), [b"x\x03"]);
    again.commit_prepared(b"x\x03").unwrap();
    let tree = again.open_tree("t").unwrap();
    assert_eq!(begin(&again).get(&tree, &[3]).unwrap().as_deref(), Some(&b"prepared"[..]));
    drop((db, tree));
}

/// Their locks take several records; that of the prepare comes last, so whoever finds it has found all.
#[test]
fn a_prepared_transaction_keeps_very_many_locks() {
    const ROWS: u32 = 1_500;
    let key = |row: u32| [&row.to_be_bytes()[..], &[b'k'; 1_000]].concat();
    let are_locked = |db: &Database| {
        let tree = db.open_tree("t").unwrap();
        let other = begin(db);
        other.set_lock_timeout(Some(Duration::ZERO)).unwrap();
        (0..ROWS).filter(|row| kind(other.put(&tree, &key(*row), b"")) == Some(ErrorKind::LockTimeout)).count()
    };
    let (storage, db, tree) = fresh();
    let (txn, between) = (begin(&db), begin(&db));
    for row in 0..ROWS {
        txn.put(&tree, &key(row), b"prepared").unwrap();
        // Else they would become a few ranges.
        between.put(&tree, &[&key(row)[..], b"+"].concat(), b"").unwrap();
    }
    let records = db.statistics().unwrap().log_records;
    txn.prepare_with(b"many", Durability::Write).unwrap();
    assert!(db.statistics().unwrap().log_records > records + 4, "one record has all the locks");
    let mut found = 0;
    for seed in 0..16 {
        let mode = [CrashMode::Lost, CrashMode::Cut, CrashMode::Torn, CrashMode::Kept][seed as usize % 4];
        let image = open(&storage.crash_with(mode, seed));
        let is_prepared = image.prepared().unwrap().iter().any(|info| info.xid == b"many");
        assert_eq!(are_locked(&image), if is_prepared { ROWS as usize } else { 0 }, "seed={seed}");
        found += usize::from(is_prepared);
    }
    assert!((1..16).contains(&found), "images are with it and without, found={found}");
    // After a checkpoint they are in the log once more, after an opening as well.
    db.checkpoint().unwrap();
    let image = storage.crash(1);
    for _ in 0..2 {
        assert_eq!(are_locked(&open(&image)), ROWS as usize);
    }
    let again = open(&image);
    again.commit_prepared(b"many").unwrap();
    assert_eq!(are_locked(&again), 0);
    assert_eq!(again.get(&again.open_tree("t").unwrap(), &key(7)).unwrap().as_deref(), Some(&b"prepared"[..]));
    drop((db, tree));
}

/// A branch may wait for its decision for long: what it has only looked at others may change.
#[test]
fn a_branch_keeps_the_locks_of_what_it_has_written_alone() {
    let (storage, db, tree) = fresh();
    let key = |n: u32| n.to_be_bytes();
    for n in (0..200).step_by(2) {
        db.put(&tree, &key(n), b"before").unwrap();
    }
    let txn = at(&db, Isolation::RepeatableRead);
    let lock = |mode| CursorOptions { lock: Some(mode), ..CursorOptions::default() };
    // All rows and gaps, of which some are written, deleted or made; some are in level 0 no more.
    assert_eq!(collect(&mut txn.cursor(&tree, lock(LockMode::Exclusive)).unwrap()).unwrap().len(), 100);
    let mark = txn.savepoint().unwrap();
    txn.put(&tree, &key(44), b"undone").unwrap();
    txn.rollback_to(mark).unwrap();
    txn.put(&tree, &key(10), b"after").unwrap();
    txn.put(&tree, &key(13), b"new").unwrap();
    txn.delete(&tree, &key(20)).unwrap();
    db.checkpoint().unwrap();
    txn.put(&tree, &key(15), b"new").unwrap();
    txn.put(&tree, &key(17), b"new").unwrap();
    let seen = db.create_tree("seen", &TreeOptions::default()).unwrap();
    txn.lock_range(&seen, b"a", b"b", LockMode::Shared, Wait::Default).unwrap();
    txn.get_locked(&seen, b"x", LockMode::Exclusive, Wait::Default).unwrap();
    txn.put(&seen, b"y", b"new").unwrap();
    let locked = |db: &Database| {
        let (tree, seen) = (db.open_tree("t").unwrap(), db.open_tree("seen").unwrap());
        let other = at(db, Isolation::ReadCommitted);
        let is_locked = |tree: &Tree, key: &[u8]| match other.get_locked(tree, key, LockMode::Exclusive, Wait::Default)
        {
            Err(error) => error.kind() == ErrorKind::LockTimeout,
            Ok(_) => false,
        };
        let rows: Vec<u32> = (0..201).filter(|n| is_locked(&tree, &key(*n))).collect();
        let seen: Vec<u8> = (b'a'..=b'z').filter(|key| is_locked(&seen, &[*key])).collect();
        other.rollback().unwrap();
        (rows, seen)
    };
    assert_eq!(locked(&db), ((0..201).collect(), b"axy".to_vec()));
    txn.release_unwritten().unwrap();
    let written = (vec![10, 13, 15, 17, 20], b"y".to_vec());
    assert_eq!(locked(&db), written);
    // It goes on: what is locked anew is kept.
    txn.get_locked(&tree, &key(100), LockMode::Exclusive, Wait::Default).unwrap();
    txn.put(&tree, &key(101), b"new").unwrap();
    assert_eq!(locked(&db).0, [10, 13, 15, 17, 20, 100, 101]);
    txn.release_unwritten().unwrap();
    txn.prepare(b"branch").unwrap();
    let written = (vec![10, 13, 15, 17, 20, 101], b"y".to_vec());
    assert_eq!(locked(&db), written);
    let image = storage.crash(1);
    drop((tree, seen, db));
    let db = open(&image);
    assert_eq!(locked(&db), written);
    db.commit_prepared(b"branch").unwrap();
    assert_eq!(locked(&db), (Vec::new(), Vec::new()));
    let value = |n| db.get(&db.open_tree("t").unwrap(), &key(n)).unwrap().map(|value| value.to_vec());
    assert_eq!([10, 13, 20].map(value), [Some(b"after".to_vec()), Some(b"new".to_vec()), None]);
}

/// Who has deleted a range has no message at each key; of very many keys it is not looked which are written.
#[test]
fn a_branch_that_deleted_ranges_keeps_all_its_locks() {
    let (_storage, db, tree) = fresh();
    let txn = at(&db, Isolation::RepeatableRead);
    txn.delete_range(&tree, b"a", b"c").unwrap();
    txn.release_unwritten().unwrap();
    let other = at(&db, Isolation::ReadCommitted);
    assert_eq!(kind(other.put(&tree, b"b", b"")), Some(ErrorKind::LockTimeout));
}

/// No record of locks takes a segment for itself, or a full disk may have no segment for the next.
#[test]
fn locks_of_a_prepare_share_a_segment_also_with_little_memory() {
    const RING_SHARE_BYTES: u64 = 64 << 10;
    let storage = MemoryStorage::new();
    let db = Database::open(DIRECTORY, options(&storage).memory_bytes(16 << 20)).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let (between, txn) = (begin(&db), begin(&db));
    for row in 0..2_000u32 {
        let key = [&row.to_be_bytes()[..], &Random::new(u64::from(row)).bytes(70)].concat();
        between.get_locked(&tree, &[&key[..], b"+"].concat(), LockMode::Exclusive, Wait::NoWait).unwrap();
        txn.get_locked(&tree, &key, LockMode::Exclusive, Wait::NoWait).unwrap();
    }
    let before = db.statistics().unwrap();
    txn.prepare(b"many").unwrap();
    let after = db.statistics().unwrap();
    let (records, bytes) = (after.log_records - before.log_records, after.log_bytes - before.log_bytes);
    assert!(bytes > 2 * RING_SHARE_BYTES && bytes < records * RING_SHARE_BYTES, "records={records} bytes={bytes}");
}

/// A crash may leave the first records of many locks without that of the prepare. They are nobody's: no later transaction has the number.
#[test]
fn locks_of_a_prepare_that_was_cut_short_are_nobodys() {
    let key = |row: u32| [&row.to_be_bytes()[..], &Random::new(u64::from(row)).bytes(1_000)].concat();
    let (storage, db, tree) = fresh();
    db.checkpoint().unwrap();
    // Numbers that nothing in the log has seen but these records. The first lies between, or the other's would become a few ranges.
    let (between, txn) = (begin(&db), begin(&db));
    for row in 0..1_500 {
        between.get_locked(&tree, &[&key(row)[..], b"+"].concat(), LockMode::Exclusive, Wait::NoWait).unwrap();
        txn.get_locked(&tree, &key(row), LockMode::Exclusive, Wait::NoWait).unwrap();
    }
    txn.prepare_with(b"many", Durability::Write).unwrap();
    let mut cut_short = 0;
    for seed in 0..24 {
        let image = storage.crash_with([CrashMode::Cut, CrashMode::Torn][seed as usize % 2], seed);
        let db = open(&image);
        if !db.prepared().unwrap().is_empty() {
            continue;
        }
        cut_short += usize::from(db.recovery_report().unwrap().records > 0);
        let tree = db.open_tree("t").unwrap();
        for row in 0..3u32 {
            let later = begin(&db);
            later.put(&tree, &key(row), b"").unwrap();
            later.prepare(&row.to_be_bytes()).unwrap();
        }
        let again = open(&image.crash(seed));
        assert_eq!((again.prepared().unwrap().len(), again.locks().unwrap().len()), (3, 3), "seed={seed}");
    }
    assert!(cut_short > 0, "no image has a part of the records");
}

#[test]
fn prepared_transactions_keep_their_locks_over_restarts_and_checkpoints() {
    let (storage, db, tree) = fresh();
    for number in 0..3u8 {
        let txn = begin(&db);
        txn.put(&tree, &[number], b"prepared").unwrap();
        txn.prepare(&[b'x', number]).unwrap();
    }
    let again = begin(&db);
    again.put(&tree, b"z", b"").unwrap();
    assert_eq!(kind(again.prepare(b"x\0")), Some(ErrorKind::KeyExists));
    db.commit_prepared(b"x\0").unwrap();
    assert_eq!(kind(db.commit_prepared(b"x\0")), Some(ErrorKind::NotFound));
    db.checkpoint().unwrap();
    let mut db = db;
    for _ in 0..3 {
        db.checkpoint().unwrap();
        db.close().unwrap();
        db = open(&storage);
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.prepared().unwrap().len(), 2);
        let txn = at(&db, Isolation::ReadCommitted);
        assert_eq!(kind(txn.put(&tree, &[1], b"")), Some(ErrorKind::LockTimeout));
        assert_eq!(txn.get(&tree, &[1]).unwrap(), None);
        txn.put(&tree, b"more", b"rows").unwrap();
        txn.commit().unwrap();
    }
    db.commit_prepared(&[b'x', 1]).unwrap();
    db.rollback_prepared(&[b'x', 2]).unwrap();
    db.close().unwrap();
    let db = open(&storage);
    let tree = db.open_tree("t").unwrap();
    assert!(db.prepared().unwrap().is_empty());
    assert_eq!(db.get(&tree, &[1]).unwrap().as_deref(), Some(&b"prepared"[..]));
    assert_eq!(db.get(&tree, &[2]).unwrap(), None);
    assert!(db.locks().unwrap().is_empty());
}

#[test]
fn a_prepared_transaction_keeps_its_age_its_isolation_level_and_its_messages() {
    let (storage, clock) = (MemoryStorage::new(), Clock::manual());
    let with = |clock: &Clock| Database::open(DIRECTORY, options(&storage).clock(Some(clock.clone()))).unwrap();
    let shown = |db: &Database| {
        let told = |info: fronddb::TransactionInfo| {
            assert_eq!((info.id, info.prepared), (0, true));
            (info.isolation, info.age_ms, info.messages)
        };
        db.transactions().unwrap().into_iter().map(told).collect::<Vec<_>>()
    };
    let mut db = with(&clock);
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    clock.advance_micros(2_000_000);
    let mut expected = Vec::new();
    use Isolation::{ReadCommitted, ReadUncommitted, RepeatableRead, Serializable};
    for (number, isolation) in [ReadUncommitted, ReadCommitted, RepeatableRead, Serializable].into_iter().enumerate() {
        let txn = at(&db, isolation);
        for row in 0..number as u8 {
            txn.put(&tree, &[number as u8, row], b"prepared").unwrap();
        }
        txn.get_locked(&tree, &[number as u8], LockMode::Exclusive, Wait::Default).unwrap();
        // Its age counts from where it began.
        clock.advance_micros(1_000_000);
        txn.prepare(&[number as u8]).unwrap();
        expected.push((isolation, 1_000 * (4 - number as u64), number as u64));
    }
    // One of many locks, of which most are in records before the one that tells of it.
    let many = at(&db, ReadCommitted);
    for row in 0..400u32 {
        many.put(&tree, &[&row.to_be_bytes()[..], &[b'k'; 1_000]].concat(), b"").unwrap();
    }
    many.prepare(b"many").unwrap();
    expected.push((ReadCommitted, 0, 400));
    assert_eq!(shown(&db), expected);
    let older = |expected: &mut Vec<(Isolation, u64, u64)>, clock: &Clock| {
        clock.advance_micros(60_000_000);
        expected.iter_mut().for_each(|entry| entry.1 += 60_000);
    };

    // A crash, and another one of the database that has come out of it.
    for _ in 0..2 {
        older(&mut expected, &clock);
        drop(db);
        db = with(&clock);
        assert_eq!(shown(&db), expected, "after a crash");
    }
    // A checkpoint writes the records again, and what was before them goes.
    for _ in 0..3 {
        older(&mut expected, &clock);
        db.checkpoint().unwrap();
        while db.step_background().unwrap() {}
        assert_eq!(shown(&db), expected, "after a checkpoint");
        db.close().unwrap();
        db = with(&clock);
        assert_eq!(shown(&db), expected, "after a clean restart");
    }
    // The clock was set back before they began.
    db.close().unwrap();
    db = with(&Clock::manual());
    assert!(shown(&db).iter().all(|entry| entry.1 == 0));
    db.close().unwrap();
    db = with(&clock);
    assert_eq!(shown(&db), expected);
    for number in 0..4u8 {
        db.commit_prepared(&[number]).unwrap();
    }
    assert_eq!(shown(&db), expected[4..]);
}

#[test]
fn a_transaction_larger_than_memory_rolls_back_at_once_and_commits_at_once() {
    let (storage, plan) = (MemoryStorage::new(), FaultPlan::new());
    let counted = FaultStorage::new(Arc::new(storage.clone()), plan.clone());
    let db = Database::open(DIRECTORY, options(&storage).storage(Some(Arc::new(counted)))).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    for commit in [false, true] {
        let txn = begin(&db);
        let mut batch = WriteBatch::new();
        for row in 0..150_000u32 {
            batch.put(&tree, &row.wrapping_mul(2_654_435_761).to_be_bytes(), &[row as u8; 100]).unwrap();
            if batch.len() == 500 {
                txn.write(&batch).unwrap();
                batch.clear();
            }
        }
        let before = db.statistics().unwrap();
        assert!(before.memory_bytes < 9 << 20, "{}", before.to_json());
        let calls = plan.calls_total();
        if commit {
            txn.commit().unwrap()
        } else {
            txn.rollback().unwrap()
        };
        // One record, and what else the log had not written; no row, node or block is visited.
        let after = db.statistics().unwrap();
        assert!(plan.calls_total() - calls < 10, "{}", after.to_json());
        assert!(after.log_records - before.log_records <= 1, "{}", after.to_json());
        assert!(after.log_bytes - before.log_bytes < 100, "{}", after.to_json());
        let visited = |seen: &Statistics| (seen.messages, seen.cache_hits, seen.cache_misses, seen.compactions);
        assert_eq!(visited(&after), visited(&before));
        let seen = db.get(&tree, &1u32.wrapping_mul(2_654_435_761).to_be_bytes()).unwrap();
        assert_eq!(seen.is_some(), commit);
    }
    let unfinished = begin(&db);
    let mut batch = WriteBatch::new();
    for row in 0..20_000u32 {
        batch.delete(&tree, &row.wrapping_mul(2_654_435_761).to_be_bytes()).unwrap();
    }
    unfinished.write(&batch).unwrap();
    let db = open(&storage.crash(1));
    let tree = db.open_tree("t").unwrap();
    let txn = begin(&db);
    assert_eq!(rows(&txn, &tree).len(), 150_000);
    drop(unfinished);
}

#[test]
fn blobs_are_read_back_and_their_space_is_used_again() {
    let (_storage, db, tree) = fresh();
    let large = |byte: u8| (0..300_000u32).map(|index| byte.wrapping_add((index / 1000) as u8)).collect::<Vec<_>>();
    let mut sizes = Vec::new();
    for round in 0..6u8 {
        for key in 0..4u8 {
            db.put(&tree, &[key], &large(round * 4 + key)).unwrap();
        }
        db.checkpoint().unwrap();
        db.wait_idle().unwrap();
        db.checkpoint().unwrap();
        for key in 0..4u8 {
            assert_eq!(db.get(&tree, &[key]).unwrap().map(|value| value.into_vec()), Some(large(round * 4 + key)));
        }
        sizes.push(db.statistics().unwrap().file_bytes_used);
    }
    assert!(sizes[5] < 4 * sizes[0], "space is not used again: {sizes:?}");
    let huge = vec![1u8; 256 << 20];
    assert_eq!(kind(db.put(&tree, b"huge", &[&huge[..], b"x"].concat())), Some(ErrorKind::InvalidArgument));
}

#[test]
fn an_external_id_may_be_used_again_once_it_is_decided() {
    let (storage, db, tree) = fresh();
    for value in [b"1", b"2"] {
        let txn = begin(&db);
        txn.put(&tree, b"k", value).unwrap();
        txn.prepare(b"x").unwrap();
        if value == b"1" {
            db.commit_prepared(b"x").unwrap();
        }
    }
    // It publishes, and level 0 stays: the log still has both, the statuses know of the second alone.
    let loaded = db.create_tree("loaded", &TreeOptions::default()).unwrap();
    let publications = db.statistics().unwrap().publications;
    let txn = begin(&db);
    let mut bulk = txn.bulk(&loaded, &BulkOptions::default()).unwrap();
    (0..600u32).for_each(|row| bulk.add(&row.to_be_bytes(), &[7; 90]).unwrap());
    bulk.finish(&mut |_| true).unwrap();
    txn.commit().unwrap();
    let statistics = db.statistics().unwrap();
    assert!(statistics.publications > publications && statistics.seals == 0);
    drop(db);
    for storage in [storage.snapshot(), storage.crash(3)] {
        let db = open(&storage);
        let prepared = db.prepared().unwrap();
        assert_eq!(prepared.iter().map(|info| &info.xid[..]).collect::<Vec<_>>(), [b"x"]);
        db.commit_prepared(b"x").unwrap();
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"2"[..]));
    }
}

#[test]
fn transactions_that_only_lock_leave_nothing_behind() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"k", b"v").unwrap();
    db.checkpoint().unwrap();
    let before = db.statistics().unwrap().aborted_ids;
    for round in 0..100 {
        let txn = begin(&db);
        txn.get_locked(&tree, b"k", LockMode::Exclusive, Wait::Default).unwrap();
        if round % 2 == 0 { txn.commit().unwrap() } else { txn.rollback().unwrap() }
    }
    assert_eq!(db.statistics().unwrap().aborted_ids, before);
    assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
}
