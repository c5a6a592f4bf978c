//! Cursors that peek at rows which others hold, and take those that are wanted.

use std::time::Duration;

use fronddb::{
    Cursor, CursorOptions, Database, ErrorKind, Isolation, LockMode, Result, Transaction, Tree, TxnOptions, Wait,
    WriteBatch,
};

use crate::support::{begin, fresh};

const LEVELS: [Isolation; 2] = [Isolation::ReadUncommitted, Isolation::ReadCommitted];

fn at(db: &Database, isolation: Isolation) -> Transaction {
    let lock_timeout = Some(Duration::from_secs(60));
    db.begin(TxnOptions { isolation, lock_timeout, ..TxnOptions::default() }).unwrap()
}

fn peeking() -> CursorOptions {
    CursorOptions { lock: Some(LockMode::Exclusive), wait: Wait::NoWait, peeks: true, ..CursorOptions::default() }
}

/// Rows of one-letter keys, all with the value 1.
fn table(keys: &[u8]) -> (Database, Tree) {
    let (_storage, db, tree) = fresh();
    for key in keys {
        db.put(&tree, &[*key], b"1").unwrap();
    }
    (db, tree)
}

fn put(txn: &Transaction, tree: &Tree, key: u8, value: u8) {
    txn.put(tree, &[key], &[value]).unwrap();
}

/// The rows of a walk as text, with a mark behind those that are peeked at: `a1 b1?`.
fn walk(cursor: &mut Cursor, backward: bool) -> Result<String> {
    let mut rows = Vec::new();
    let mut is_at_row = if backward { cursor.last()? } else { cursor.first()? };
    while is_at_row {
        rows.push(row(cursor));
        is_at_row = if backward { cursor.prev()? } else { cursor.next()? };
    }
    Ok(rows.join(" "))
}

fn row(cursor: &Cursor) -> String {
    let mark = if cursor.is_peeked() { "?" } else { "" };
    format!("{}{}{mark}", String::from_utf8_lossy(cursor.key()), String::from_utf8_lossy(cursor.value()))
}

/// Calls `again` in a thread of its own, and `meanwhile` once that waits.
fn again_while(db: &Database, cursor: &mut Cursor, meanwhile: impl FnOnce()) -> Result<bool> {
    std::thread::scope(|scope| {
        let found = scope.spawn(|| cursor.again());
        while db.locks().unwrap().iter().all(|lock| lock.waits_for.is_empty()) {
            assert!(!found.is_finished(), "it does not wait");
            std::thread::yield_now();
        }
        meanwhile();
        found.join().unwrap()
    })
}

fn locks_of(db: &Database, txn: &Transaction) -> usize {
    db.locks().unwrap().iter().filter(|lock| lock.txn.0 == txn.id()).count()
}

#[test]
fn rows_that_others_hold_are_shown_as_they_were_committed_last_and_not_locked() {
    for isolation in LEVELS {
        let (db, tree) = table(b"abcdef");
        let writer = begin(&db);
        put(&writer, &tree, b'b', b'2');
        put(&writer, &tree, b'B', b'2');
        writer.delete(&tree, b"d").unwrap();
        writer.get_locked(&tree, b"e", LockMode::Shared, Wait::Default).unwrap();
        let reader = at(&db, isolation);
        reader.begin_statement().unwrap();
        let mut cursor = reader.cursor(&tree, peeking()).unwrap();
        assert_eq!(walk(&mut cursor, false).unwrap(), "a1 b1? c1 d1? e1? f1", "{isolation:?}");
        assert_eq!(walk(&mut cursor, true).unwrap(), "f1 e1? d1? c1 b1? a1", "{isolation:?}");
        assert_eq!(locks_of(&db, &reader), 3, "{isolation:?}");
        assert!(cursor.seek(b"b").unwrap() && cursor.is_peeked() && !cursor.unlock_row().unwrap());
        writer.commit().unwrap();
        assert_eq!(row(&cursor), "b1?", "it stays as it was read");
        assert_eq!(walk(&mut cursor, false).unwrap(), "B2 a1 b2 c1 e1 f1", "{isolation:?}");
    }
}

#[test]
fn a_row_that_is_held_shared_is_peeked_at_by_who_wants_it_exclusively() {
    let (db, tree) = table(b"ab");
    let other = begin(&db);
    other.get_locked(&tree, b"a", LockMode::Shared, Wait::Default).unwrap();
    let reader = at(&db, Isolation::ReadCommitted);
    let shared = CursorOptions { lock: Some(LockMode::Shared), ..peeking() };
    assert_eq!(walk(&mut reader.cursor(&tree, shared).unwrap(), false).unwrap(), "a1 b1");
    reader.rollback().unwrap();
    let reader = at(&db, Isolation::ReadCommitted);
    assert_eq!(walk(&mut reader.cursor(&tree, peeking()).unwrap(), false).unwrap(), "a1? b1");
}

#[test]
fn a_row_that_is_wanted_is_waited_for_and_read_as_it_is_then() {
    for wants_commit in [true, false] {
        let (db, tree) = table(b"abc");
        let writer = begin(&db);
        put(&writer, &tree, b'b', b'2');
        let reader = at(&db, Isolation::ReadCommitted);
        let mut cursor = reader.cursor(&tree, CursorOptions { wait: Wait::Default, ..peeking() }).unwrap();
        assert!(cursor.first().unwrap() && cursor.again().unwrap(), "a row that is locked stays");
        assert_eq!(row(&cursor), "a1");
        assert!(cursor.next().unwrap() && cursor.is_peeked());
        let found =
            again_while(&db, &mut cursor, || if wants_commit { writer.commit() } else { writer.rollback() }.unwrap());
        assert!(found.unwrap());
        assert_eq!(row(&cursor), if wants_commit { "b2" } else { "b1" });
        assert_eq!(locks_of(&db, &reader), 2);
        assert!(cursor.next().unwrap());
        assert_eq!(row(&cursor), "c1");
        assert!(!cursor.next().unwrap() && !cursor.again().unwrap());
    }
}

/// Where it went away, the walk goes on with the next one; where the same commit moved it to before where it was, but behind the
/// row before, with that.
#[test]
fn a_row_that_is_gone_by_then_is_followed_by_the_next_one_or_by_itself_where_it_has_moved_to() {
    // A table of a, e and h; e goes, and f is held by a third. (backward, where e comes to be, what follows)
    let cases: [(bool, Option<u8>, &str); 6] = [
        (false, None, "f1?"),
        (false, Some(b'c'), "c2"),
        (false, Some(b'g'), "f1?"),
        (true, None, "b1?"),
        (true, Some(b'g'), "g2"),
        (true, Some(b'c'), "c2"),
    ];
    for (backward, moves_to, follows) in cases {
        let (db, tree) = table(b"abefh");
        let (writer, third) = (begin(&db), begin(&db));
        writer.delete(&tree, b"e").unwrap();
        moves_to.into_iter().for_each(|key| put(&writer, &tree, key, b'2'));
        let reader = at(&db, Isolation::ReadCommitted);
        let held = if backward { b"b" } else { b"f" };
        third.get_locked(&tree, held, LockMode::Exclusive, Wait::Default).unwrap();
        if backward {
            // Nothing between e and h, where the look for e begins.
            db.delete(&tree, b"f").unwrap();
        } else {
            db.delete(&tree, b"b").unwrap();
        }
        let mut cursor = reader.cursor(&tree, CursorOptions { wait: Wait::Default, ..peeking() }).unwrap();
        let start = if backward { cursor.last() } else { cursor.first() };
        assert!(start.unwrap());
        let step = if backward { cursor.prev() } else { cursor.next() };
        assert!(step.unwrap());
        assert_eq!(row(&cursor), "e1?");
        assert!(again_while(&db, &mut cursor, || writer.commit().unwrap()).unwrap());
        assert_eq!(row(&cursor), follows, "backward={backward} moves_to={moves_to:?}");
    }
}

#[test]
fn the_last_row_of_a_walk_may_be_gone_by_then() {
    let (db, tree) = table(b"ab");
    let writer = begin(&db);
    writer.delete(&tree, b"b").unwrap();
    let reader = at(&db, Isolation::ReadCommitted);
    let mut cursor = reader.cursor(&tree, CursorOptions { wait: Wait::Default, ..peeking() }).unwrap();
    assert!(cursor.first().unwrap() && cursor.next().unwrap());
    assert!(!again_while(&db, &mut cursor, || writer.commit().unwrap()).unwrap());
    assert!(!cursor.valid() && !cursor.next().unwrap());
    assert_eq!(locks_of(&db, &reader), 1, "what is not there does not stay locked");
}

#[test]
fn taking_a_row_waits_as_the_cursor_was_told() {
    let (db, tree) = table(b"abcd");
    let writer = begin(&db);
    put(&writer, &tree, b'b', b'2');
    put(&writer, &tree, b'c', b'2');
    let reader = at(&db, Isolation::ReadCommitted);
    let mut cursor = reader.cursor(&tree, peeking()).unwrap();
    assert!(cursor.seek(b"b").unwrap());
    assert_eq!(cursor.again().unwrap_err().kind(), ErrorKind::LockTimeout);
    assert!(!cursor.valid() && !cursor.is_peeked() && cursor.key().is_empty());
    assert!(cursor.next().unwrap());
    assert_eq!(row(&cursor), "c1?", "on from where the row is");
    let mut cursor = reader.cursor(&tree, CursorOptions { wait: Wait::SkipLocked, ..peeking() }).unwrap();
    assert!(cursor.seek(b"b").unwrap() && cursor.again().unwrap());
    assert_eq!(row(&cursor), "c1?");
    assert!(cursor.again().unwrap());
    assert_eq!(row(&cursor), "d1");
    assert!(cursor.seek_for_prev(b"c").unwrap() && cursor.again().unwrap() && cursor.again().unwrap());
    assert_eq!(row(&cursor), "a1");
    assert!(cursor.seek(b"c").unwrap() && !cursor.lock_row(LockMode::Exclusive, Wait::SkipLocked).unwrap());
    writer.commit().unwrap();
    assert!(cursor.seek(b"c").unwrap());
    assert_eq!(row(&cursor), "c2");
}

#[test]
fn where_gaps_are_locked_nothing_is_peeked_at() {
    let (db, tree) = table(b"ab");
    let writer = begin(&db);
    put(&writer, &tree, b'b', b'2');
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let reader = at(&db, isolation);
        let mut cursor = reader.cursor(&tree, peeking()).unwrap();
        assert_eq!(walk(&mut cursor, false).unwrap_err().kind(), ErrorKind::LockTimeout, "{isolation:?}");
    }
    let reader = at(&db, Isolation::ReadCommitted);
    let plain = CursorOptions { peeks: true, ..CursorOptions::default() };
    assert_eq!(walk(&mut reader.cursor(&tree, plain).unwrap(), false).unwrap(), "a1 b1");
}

/// A covered write has no lock on its key: that somebody changes the row shows only once it is locked.
#[test]
fn a_row_whose_change_is_covered_by_another_lock_is_peeked_at_as_well() {
    let (db, tree) = table(b"abc");
    let writer = begin(&db);
    let mut batch = WriteBatch::new();
    batch.set_covered(true);
    batch.delete(&tree, b"b").unwrap();
    writer.write(&batch).unwrap();
    let reader = at(&db, Isolation::ReadCommitted);
    reader.begin_statement().unwrap();
    let mut cursor = reader.cursor(&tree, CursorOptions { wait: Wait::Default, ..peeking() }).unwrap();
    assert_eq!(walk(&mut cursor, false).unwrap(), "a1 b1? c1");
    assert_eq!(locks_of(&db, &reader), 2, "not the row that it was peeked at");
    assert!(cursor.seek(b"b").unwrap());
    assert!(again_while(&db, &mut cursor, || writer.commit().unwrap()).unwrap());
    assert_eq!(row(&cursor), "c1");
}
