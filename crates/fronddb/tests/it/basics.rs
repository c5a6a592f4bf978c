//! What every user does first.

use fronddb::{CursorOptions, Database, ErrorKind, Isolation, Options, TreeOptions, TxnOptions, WriteBatch};

use crate::support::{DIRECTORY, begin, collect, collect_backward, fresh, open, options};

#[test]
fn a_row_is_read_back_by_the_writer_and_after_commit_by_others() {
    let (_storage, db, tree) = fresh();
    let txn = begin(&db);
    txn.put(&tree, b"k", b"v").unwrap();
    assert_eq!(txn.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(db.get(&tree, b"k").unwrap(), None);
    txn.commit().unwrap();
    assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_rollback_and_a_drop_leave_nothing() {
    let (_storage, db, tree) = fresh();
    let txn = begin(&db);
    txn.put(&tree, b"a", b"1").unwrap();
    txn.rollback().unwrap();
    let txn = begin(&db);
    txn.put(&tree, b"b", b"1").unwrap();
    drop(txn);
    let txn = begin(&db);
    assert!(collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap().is_empty());
    txn.put(&tree, b"a", b"2").unwrap();
    txn.commit().unwrap();
    assert_eq!(db.get(&tree, b"a").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn committed_rows_are_there_after_reopening() {
    let (storage, db, tree) = fresh();
    for number in 0..100u32 {
        db.put(&tree, &number.to_be_bytes(), format!("value {number}").as_bytes()).unwrap();
    }
    let open_at_close = begin(&db);
    open_at_close.put(&tree, b"never", b"x").unwrap();
    db.close().unwrap();
    drop(open_at_close);
    let db = open(&storage);
    let report = db.recovery_report().unwrap();
    assert_eq!((report.aborted, report.created), (1, false), "{report:?}");
    let tree = db.open_tree("t").unwrap();
    for number in 0..100u32 {
        let value = db.get(&tree, &number.to_be_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(format!("value {number}").as_bytes()));
    }
    assert_eq!(db.get(&tree, b"never").unwrap(), None);
}

#[test]
fn cursors_go_both_ways_between_bounds() {
    let (_storage, db, tree) = fresh();
    for key in ["a", "ab", "abc", "b", "c"] {
        db.put(&tree, key.as_bytes(), key.as_bytes()).unwrap();
    }
    let txn = begin(&db);
    let keys = |options: CursorOptions| -> Vec<String> {
        let mut cursor = txn.cursor(&tree, options).unwrap();
        let forward = collect(&mut cursor).unwrap();
        assert_eq!(forward, collect_backward(&mut cursor).unwrap());
        forward.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect()
    };
    assert_eq!(keys(CursorOptions::default()), ["a", "ab", "abc", "b", "c"]);
    assert_eq!(keys(CursorOptions::prefix(*b"ab")), ["ab", "abc"]);
    assert_eq!(keys(CursorOptions::range(*b"ab", *b"c")), ["ab", "abc", "b"]);
    let mut cursor = txn.cursor(&tree, CursorOptions::default()).unwrap();
    assert!(cursor.seek(b"abb").unwrap());
    assert_eq!(cursor.key(), b"abc");
    assert!(cursor.seek_for_prev(b"abb").unwrap());
    assert_eq!(cursor.key(), b"ab");
    assert!(cursor.next().unwrap() && cursor.prev().unwrap() && cursor.prev().unwrap());
    assert_eq!(cursor.key(), b"a");
    assert!(!cursor.prev().unwrap() && !cursor.valid());
    txn.commit().unwrap();
    assert_eq!(cursor.first().map_err(|error| error.kind()), Err(ErrorKind::Closed));
}

#[test]
fn an_insert_of_an_existing_key_is_refused_and_named() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"k", b"1").unwrap();
    let txn = begin(&db);
    assert_eq!(txn.insert(&tree, b"k", b"2").map_err(|error| error.kind()), Err(ErrorKind::KeyExists));
    let mut batch = WriteBatch::new();
    batch.insert(&tree, b"x", b"1").unwrap();
    batch.insert(&tree, b"x", b"2").unwrap();
    assert_eq!(txn.write(&batch).map_err(|error| error.kind()), Err(ErrorKind::KeyExists));
    assert_eq!(txn.failed_operation(), Some(1));
    assert_eq!(txn.get(&tree, b"x").unwrap(), None);
    batch.clear();
    batch.delete(&tree, b"k").unwrap();
    batch.insert(&tree, b"k", b"3").unwrap();
    txn.write(&batch).unwrap();
    txn.commit().unwrap();
    assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"3"[..]));
}

#[test]
fn savepoints_undo_in_any_depth() {
    let (_storage, db, tree) = fresh();
    let txn = begin(&db);
    txn.put(&tree, b"a", b"0").unwrap();
    let outer = txn.savepoint().unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    let inner = txn.savepoint().unwrap();
    txn.put(&tree, b"a", b"2").unwrap();
    txn.put(&tree, b"b", b"2").unwrap();
    txn.rollback_to(inner).unwrap();
    assert_eq!(txn.get(&tree, b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(txn.get(&tree, b"b").unwrap(), None);
    txn.put(&tree, b"b", b"3").unwrap();
    txn.rollback_to(inner).unwrap();
    assert_eq!(txn.get(&tree, b"b").unwrap(), None);
    txn.rollback_to(outer).unwrap();
    assert_eq!(txn.rollback_to(inner).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    assert_eq!(txn.get(&tree, b"a").unwrap().as_deref(), Some(&b"0"[..]));
    txn.put(&tree, b"c", b"4").unwrap();
    txn.commit().unwrap();
    assert_eq!(db.get(&tree, b"a").unwrap().as_deref(), Some(&b"0"[..]));
    assert_eq!(db.get(&tree, b"c").unwrap().as_deref(), Some(&b"4"[..]));
}

#[test]
fn wrong_arguments_are_refused_and_change_nothing() {
    let (storage, db, tree) = fresh();
    let kind = |result: fronddb::Result<()>| result.map_err(|error| error.kind());
    assert_eq!(kind(db.put(&tree, &vec![0; 40 << 10], b"")), Err(ErrorKind::InvalidArgument));
    assert_eq!(db.open_tree("none").map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    assert_eq!(
        db.create_tree("", &TreeOptions::default()).map(|_| ()).map_err(|error| error.kind()),
        Err(ErrorKind::InvalidArgument)
    );
    let second = Database::open(DIRECTORY, options(&storage));
    assert_eq!(second.map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::AlreadyOpen));
    let txn = db.begin(TxnOptions { read_only: true, ..TxnOptions::default() }).unwrap();
    assert_eq!(kind(txn.put(&tree, b"k", b"v")), Err(ErrorKind::ReadOnly));
    drop(txn);
    let clone = db.clone();
    db.close().unwrap();
    assert_eq!(kind(clone.put(&tree, b"k", b"v")), Err(ErrorKind::Closed));
    drop(clone);
    assert!(Options::new().memory_bytes(1).validate().is_err());
    let db = open(&storage);
    assert_eq!(db.get(&db.open_tree("t").unwrap(), b"k").unwrap(), None);
}

#[test]
fn a_read_only_opening_replays_and_writes_nothing() {
    let (storage, db, tree) = fresh();
    db.put(&tree, b"k", b"v").unwrap();
    db.close().unwrap();
    let before = storage.files();
    let db = Database::open(DIRECTORY, options(&storage).create_if_missing(false).read_only(true)).unwrap();
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!(db.put(&tree, b"k", b"w").map_err(|error| error.kind()), Err(ErrorKind::ReadOnly));
    db.close().unwrap();
    assert_eq!(storage.files(), before);
}

#[test]
fn isolation_levels_see_what_they_promise() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"k", b"old").unwrap();
    let at = |isolation| db.begin(TxnOptions { isolation, ..TxnOptions::default() }).unwrap();
    let uncommitted = at(Isolation::ReadUncommitted);
    let committed = at(Isolation::ReadCommitted);
    let repeatable = at(Isolation::RepeatableRead);
    let read = |txn: &fronddb::Transaction| txn.get(&tree, b"k").unwrap().unwrap().into_vec();
    assert_eq!(read(&repeatable), b"old");
    let writer = begin(&db);
    writer.put(&tree, b"k", b"new").unwrap();
    assert_eq!(
        (read(&uncommitted), read(&committed), read(&repeatable)),
        (b"new".into(), b"old".into(), b"old".into())
    );
    writer.commit().unwrap();
    assert_eq!((read(&committed), read(&repeatable)), (b"new".to_vec(), b"old".to_vec()));
}

#[test]
fn a_scan_of_what_is_not_committed_shows_nothing_of_it_once_it_is_rolled_back() {
    let (_storage, db, one) = fresh();
    let other = db.create_tree("other", &TreeOptions::default()).unwrap();
    let reader = db.begin(TxnOptions { isolation: Isolation::ReadUncommitted, ..TxnOptions::default() }).unwrap();
    for (tree, whole) in [(&one, true), (&other, false)] {
        let mut batch = WriteBatch::new();
        (0..2000u32).for_each(|row| batch.put(tree, &row.to_be_bytes(), b"never").unwrap());
        let writer = begin(&db);
        let mark = writer.savepoint().unwrap();
        writer.write(&batch).unwrap();
        // Into a run, whose blocks are all of one step of one transaction.
        db.checkpoint().unwrap();
        let mut cursor = reader.cursor(tree, CursorOptions::default()).unwrap();
        assert!(cursor.seek(&500u32.to_be_bytes()).unwrap());
        (0..5).for_each(|_| assert!(cursor.next().unwrap()));
        if whole {
            writer.rollback().unwrap();
        } else {
            writer.rollback_to(mark).unwrap();
        }
        assert!(!cursor.next().unwrap(), "whole={whole}");
    }
}
