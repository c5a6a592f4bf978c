//! Statements at READ COMMITTED: one snapshot each, and row locks given back; what locking cursors lock at each level.

use std::time::Duration;

use fronddb::{
    CursorOptions, Database, ErrorKind, Isolation, LockMode, Locked, Sees, Transaction, Tree, TxnOptions, Wait,
    WriteBatch,
};

use crate::support::{begin, collect, fresh, open};

const LEVELS: [Isolation; 4] =
    [Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];

fn at(db: &Database, isolation: Isolation) -> Transaction {
    let lock_timeout = Some(Duration::ZERO);
    db.begin(TxnOptions { isolation, lock_timeout, ..TxnOptions::default() }).unwrap()
}

fn value(txn: &Transaction, tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    txn.get(tree, key).unwrap().map(|value| value.to_vec())
}

fn count(txn: &Transaction, tree: &Tree) -> usize {
    collect(&mut txn.cursor(tree, CursorOptions::default()).unwrap()).unwrap().len()
}

/// Whether another transaction could write the key now.
fn is_free(db: &Database, tree: &Tree, key: &[u8]) -> bool {
    match at(db, Isolation::ReadCommitted).put(tree, key, b"probe") {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::LockTimeout);
            false
        }
    }
}

fn lock(txn: &Transaction, tree: &Tree, key: &[u8], mode: LockMode) {
    assert!(txn.get_locked(tree, key, mode, Wait::Default).unwrap() != Locked::Skipped);
}

fn locking(mode: LockMode) -> CursorOptions {
    CursorOptions { lock: Some(mode), ..CursorOptions::default() }
}

#[test]
fn the_reads_of_a_statement_see_one_snapshot_and_the_next_statement_a_newer_one() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"a", b"1").unwrap();
    let reader = at(&db, Isolation::ReadCommitted);
    reader.begin_statement().unwrap();
    db.put(&tree, b"a", b"2").unwrap();
    assert_eq!(value(&reader, &tree, b"a").as_deref(), Some(&b"2"[..]), "the snapshot is taken at the first read");
    db.put(&tree, b"a", b"3").unwrap();
    db.put(&tree, b"b", b"3").unwrap();
    assert_eq!(value(&reader, &tree, b"a").as_deref(), Some(&b"2"[..]));
    assert_eq!((value(&reader, &tree, b"b"), count(&reader, &tree)), (None, 1));
    reader.put(&tree, b"own", b"").unwrap();
    assert_eq!(count(&reader, &tree), 2, "its own writes show");
    reader.begin_statement().unwrap();
    assert_eq!((value(&reader, &tree, b"a").as_deref(), count(&reader, &tree)), (Some(&b"3"[..]), 3));
    reader.end_statement().unwrap();
    assert_eq!(value(&reader, &tree, b"a").as_deref(), Some(&b"3"[..]));
    db.put(&tree, b"a", b"4").unwrap();
    assert_eq!(
        value(&reader, &tree, b"a").as_deref(),
        Some(&b"4"[..]),
        "without a statement each call sees the latest"
    );
    db.put(&tree, b"c", b"4").unwrap();
    assert_eq!(count(&reader, &tree), 4);
}

#[test]
fn reads_of_many_keys_see_one_state_also_outside_of_a_statement() {
    let (_storage, db, tree) = fresh();
    let txn = at(&db, Isolation::ReadCommitted);
    let keys: [&[u8]; 2] = [b"a", b"b"];
    let sum = |of: [u8; 2]| {
        let mut batch = WriteBatch::new();
        keys.iter().zip(of).for_each(|(key, value)| batch.put(&tree, key, &[value]).unwrap());
        db.write(&batch, TxnOptions::default()).unwrap();
    };
    let read = |between: &dyn Fn()| {
        let keys = keys.iter().enumerate().map(|(at, key)| {
            if at == 1 {
                between();
            }
            Ok(*key)
        });
        let values = txn.get_many(&tree, keys).unwrap();
        values.into_iter().map(|value| value.unwrap().to_vec()).collect::<Vec<_>>().concat()
    };
    sum([10, 0]);
    assert_eq!(read(&|| sum([0, 10])), [10, 0], "committed between");
    assert_eq!(read(&|| ()), [0, 10], "a later call sees it");
    txn.begin_statement().unwrap();
    assert_eq!(read(&|| ()), [0, 10]);
    sum([5, 5]);
    assert_eq!(read(&|| ()), [0, 10], "a statement sees one state in all its calls");
    txn.end_statement().unwrap();
    assert_eq!(read(&|| ()), [5, 5]);
}

#[test]
fn a_cursor_sees_the_committed_snapshot_of_the_statement_or_the_latest_where_it_is_told_so() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"a", b"1").unwrap();
    let writer = at(&db, Isolation::ReadCommitted);
    db.put(&tree, b"A", b"1").unwrap();
    writer.put(&tree, b"b", b"1").unwrap();
    writer.delete(&tree, b"A").unwrap();
    for (isolation, plain) in LEVELS.into_iter().take(3).zip([2, 2, 2]) {
        let reader = at(&db, isolation);
        let rows = |sees| {
            let options = CursorOptions { sees, ..CursorOptions::default() };
            collect(&mut reader.cursor(&tree, options).unwrap()).unwrap().len()
        };
        reader.begin_statement().unwrap();
        assert_eq!((rows(Sees::Level), rows(Sees::Committed), rows(Sees::Latest)), (plain, 2, 2), "{isolation:?}");
        assert_eq!(rows(Sees::Added), 3, "all three, {isolation:?}");
        db.put(&tree, b"c", b"1").unwrap();
        assert_eq!((rows(Sees::Committed), rows(Sees::Latest), rows(Sees::Added)), (2, 3, 4), "{isolation:?}");
        if isolation != Isolation::ReadUncommitted {
            assert_eq!(rows(Sees::Level), 2, "{isolation:?}");
        }
        reader.rollback().unwrap();
        db.delete(&tree, b"c").unwrap();
    }
}

#[test]
fn a_cursor_may_leave_out_what_its_own_transaction_has_written() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"a", b"1").unwrap();
    db.put(&tree, b"b", b"1").unwrap();
    let writer = at(&db, Isolation::RepeatableRead);
    assert_eq!(count(&writer, &tree), 2);
    db.delete(&tree, b"b").unwrap();
    writer.delete(&tree, b"a").unwrap();
    writer.put(&tree, b"b", b"2").unwrap();
    writer.put(&tree, b"c", b"2").unwrap();
    let rows = |sees| {
        let options = CursorOptions { sees, ..CursorOptions::default() };
        collect(&mut writer.cursor(&tree, options).unwrap()).unwrap()
    };
    let pair = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    assert_eq!(rows(Sees::Level), [pair(b"b", b"2"), pair(b"c", b"2")]);
    assert_eq!(rows(Sees::Others), [pair(b"a", b"1"), pair(b"b", b"1")]);
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        let txn = at(&db, isolation);
        txn.put(&tree, b"d", b"3").unwrap();
        let options = CursorOptions { sees: Sees::Others, ..CursorOptions::default() };
        let rows = collect(&mut txn.cursor(&tree, options).unwrap()).unwrap();
        assert_eq!(rows, [pair(b"a", b"1")], "{isolation:?}");
    }
}

/// A statement that fails is undone beside any number of others, and reads of what the transaction wrote stay quick.
#[test]
fn a_transaction_may_undo_every_other_of_very_many_statements() {
    const STATEMENTS: u32 = 60_000;
    let (storage, db, tree) = fresh();
    let txn = begin(&db);
    for number in 0..STATEMENTS {
        txn.put(&tree, &number.to_be_bytes(), b"kept").unwrap();
        let savepoint = txn.savepoint().unwrap();
        txn.put(&tree, &number.to_be_bytes(), b"undone").unwrap();
        txn.rollback_to(savepoint).unwrap();
        txn.release(savepoint).unwrap();
    }
    let are_kept = |txn: &Transaction, tree: &Tree| {
        (0..STATEMENTS).all(|number| value(txn, tree, &number.to_be_bytes()).as_deref() == Some(b"kept"))
    };
    assert!(are_kept(&txn, &tree));
    db.checkpoint().unwrap();
    assert!(are_kept(&txn, &tree));
    txn.prepare(b"many").unwrap();
    drop(db);
    let db = open(&storage.crash(1));
    db.commit_prepared(b"many").unwrap();
    assert!(are_kept(&begin(&db), &db.open_tree("t").unwrap()));
}

#[test]
fn statements_change_nothing_at_other_levels() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"a", b"1").unwrap();
    let repeatable = at(&db, Isolation::RepeatableRead);
    let uncommitted = at(&db, Isolation::ReadUncommitted);
    let writer = at(&db, Isolation::ReadCommitted);
    for txn in [&repeatable, &uncommitted] {
        txn.begin_statement().unwrap();
        assert_eq!(value(txn, &tree, b"a").as_deref(), Some(&b"1"[..]));
    }
    writer.put(&tree, b"a", b"2").unwrap();
    assert_eq!(value(&uncommitted, &tree, b"a").as_deref(), Some(&b"2"[..]));
    writer.commit().unwrap();
    repeatable.begin_statement().unwrap();
    assert_eq!(value(&repeatable, &tree, b"a").as_deref(), Some(&b"1"[..]));
    repeatable.end_statement().unwrap();
    assert_eq!(value(&repeatable, &tree, b"a").as_deref(), Some(&b"1"[..]));
}

/// A walk that locks what it finds waits; what the statement reads plainly after that is not as old as the walk.
#[test]
fn a_walk_over_what_is_committed_has_a_snapshot_of_its_own() {
    for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
        let (_storage, db, tree) = fresh();
        db.put(&tree, b"a", b"1").unwrap();
        let reader = at(&db, isolation);
        let walked = || {
            let options = CursorOptions { sees: Sees::Committed, ..CursorOptions::default() };
            collect(&mut reader.cursor(&tree, options).unwrap()).unwrap()
        };
        reader.begin_statement().unwrap();
        assert_eq!(walked(), [(b"a".to_vec(), b"1".to_vec())]);
        db.put(&tree, b"a", b"2").unwrap();
        assert_eq!(value(&reader, &tree, b"a").as_deref(), Some(&b"2"[..]), "{isolation:?}");
        db.put(&tree, b"a", b"3").unwrap();
        assert_eq!(walked(), [(b"a".to_vec(), b"1".to_vec())], "walks of a statement see one state");
        reader.begin_statement().unwrap();
        assert_eq!(walked(), [(b"a".to_vec(), b"3".to_vec())]);
    }
}

#[test]
fn a_statement_holds_a_snapshot_from_its_first_read_to_its_end() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"a", b"1").unwrap();
    let reader = at(&db, Isolation::ReadCommitted);
    let lags = || {
        db.put(&tree, b"a", b"x").unwrap();
        let statistics = db.statistics().unwrap();
        statistics.oldest_snapshot < statistics.commit_number
    };
    reader.begin_statement().unwrap();
    assert!(!lags(), "nothing has been read");
    reader.get(&tree, b"a").unwrap();
    assert!(lags());
    reader.end_statement().unwrap();
    assert!(!lags());
    reader.begin_statement().unwrap();
    reader.get(&tree, b"a").unwrap();
    reader.commit().unwrap();
    assert!(!lags());
}

#[test]
fn a_row_that_was_locked_and_not_wanted_is_given_back() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"a", b"1").unwrap();
    for isolation in LEVELS {
        let txn = at(&db, isolation);
        let gives_back = matches!(isolation, Isolation::ReadUncommitted | Isolation::ReadCommitted);
        for key in [b"a", b"z"] {
            lock(&txn, &tree, key, LockMode::Exclusive);
            assert!(!is_free(&db, &tree, key));
            assert_eq!(txn.unlock(&tree, key).unwrap(), gives_back, "{isolation:?}");
            assert_eq!(is_free(&db, &tree, key), gives_back, "{isolation:?}");
            assert!(!txn.unlock(&tree, key).unwrap());
        }
    }
}

#[test]
fn a_lock_that_was_held_before_or_has_been_written_under_stays() {
    let (_storage, db, tree) = fresh();
    let txn = at(&db, Isolation::ReadCommitted);
    txn.begin_statement().unwrap();
    for key in [b"a", b"b", b"c", b"d", b"e"] {
        lock(&txn, &tree, key, LockMode::Shared);
    }
    lock(&txn, &tree, b"b", LockMode::Shared);
    lock(&txn, &tree, b"c", LockMode::Exclusive);
    txn.put(&tree, b"d", b"").unwrap();
    let mut batch = fronddb::WriteBatch::new();
    batch.delete(&tree, b"e").unwrap();
    txn.write(&batch).unwrap();
    for (key, what) in [(b"b", "locked twice"), (b"c", "raised"), (b"d", "written"), (b"e", "written by a batch")] {
        assert!(!txn.unlock(&tree, key).unwrap() && !is_free(&db, &tree, key), "{what}");
    }
    txn.begin_statement().unwrap();
    lock(&txn, &tree, b"a", LockMode::Shared);
    assert!(!txn.unlock(&tree, b"a").unwrap() && !is_free(&db, &tree, b"a"), "locked by an earlier statement");
    lock(&txn, &tree, b"x", LockMode::Exclusive);
    txn.end_statement().unwrap();
    assert!(!txn.unlock(&tree, b"x").unwrap() && !is_free(&db, &tree, b"x"), "its statement is over");
    lock(&txn, &tree, b"y", LockMode::Exclusive);
    txn.delete_range(&tree, b"y", b"yy").unwrap();
    assert!(!txn.unlock(&tree, b"y").unwrap() && !is_free(&db, &tree, b"y"), "deleted with its range");
}

#[test]
fn a_locking_cursor_gives_back_the_row_it_is_at() {
    let (_storage, db, tree) = fresh();
    for key in [b"a", b"b", b"c"] {
        db.put(&tree, key, b"1").unwrap();
    }
    let txn = at(&db, Isolation::ReadCommitted);
    txn.begin_statement().unwrap();
    let mut cursor = txn.cursor(&tree, locking(LockMode::Exclusive)).unwrap();
    assert!(!cursor.unlock_row().unwrap(), "at no row");
    assert!(cursor.first().unwrap() && cursor.unlock_row().unwrap() && !cursor.unlock_row().unwrap());
    assert_eq!((cursor.key(), is_free(&db, &tree, b"a")), (&b"a"[..], true));
    assert!(cursor.next().unwrap());
    assert!(!is_free(&db, &tree, b"b"));
    txn.put(&tree, b"b", b"2").unwrap();
    assert!(!cursor.unlock_row().unwrap() && !is_free(&db, &tree, b"b"));
    assert!(cursor.next().unwrap() && cursor.key() == b"c");
    let mut plain = txn.cursor(&tree, CursorOptions::default()).unwrap();
    assert!(plain.seek(b"a").unwrap() && plain.lock_row(LockMode::Shared, Wait::NoWait).unwrap());
    assert!(!is_free(&db, &tree, b"a") && plain.unlock_row().unwrap() && is_free(&db, &tree, b"a"));
    assert!(!is_free(&db, &tree, b"c"));
}

#[test]
fn whoever_waits_for_a_row_goes_on_when_it_is_given_back() {
    let (_storage, db, tree) = fresh();
    let txn = at(&db, Isolation::ReadCommitted);
    lock(&txn, &tree, b"a", LockMode::Exclusive);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| db.put(&tree, b"a", b"2").map_err(|error| error.kind()));
        while db.locks().unwrap().iter().all(|lock| lock.waits_for.is_empty()) {
            std::thread::yield_now();
        }
        assert!(txn.unlock(&tree, b"a").unwrap());
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

#[test]
fn locking_cursors_lock_gaps_from_repeatable_read_on() {
    let (_storage, db, tree) = fresh();
    for key in [b"b", b"d", b"f"] {
        db.put(&tree, key, b"").unwrap();
    }
    for isolation in LEVELS {
        let gaps = matches!(isolation, Isolation::RepeatableRead | Isolation::Serializable);
        for backward in [false, true] {
            let txn = at(&db, isolation);
            let mut cursor = txn.cursor(&tree, locking(LockMode::Exclusive)).unwrap();
            let rows = if backward { crate::support::collect_backward(&mut cursor) } else { collect(&mut cursor) };
            assert_eq!(rows.unwrap().len(), 3);
            for key in [b"a", b"c", b"e", b"g"] {
                assert_eq!(is_free(&db, &tree, key), !gaps, "{isolation:?} backward={backward}");
            }
            for key in [b"b", b"d", b"f"] {
                assert!(!is_free(&db, &tree, key), "{isolation:?} backward={backward}");
            }
            let ranges = db.locks().unwrap().iter().filter(|lock| lock.end.is_some()).count();
            assert_eq!(ranges > 0, gaps, "{isolation:?}");
        }
    }
}
