//! Writes that another key's lock covers, and readers that lock: each waits for the other, so there are no phantoms and
//! no write skew through a secondary index.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fronddb::{
    CursorOptions, Database, ErrorKind, Isolation, LockMode, Locked, Result, Transaction, Tree, TreeOptions,
    TxnOptions, Wait, WriteBatch,
};

use crate::support::{Random, begin, collect, collect_backward, fresh, open};

const GAPS: [Isolation; 2] = [Isolation::RepeatableRead, Isolation::Serializable];

/// A table `t` and its index `i`.
fn table() -> (fronddb::io::MemoryStorage, Database, Tree, Tree) {
    let (storage, db, rows) = fresh();
    let index = db.create_tree("i", &TreeOptions::default()).unwrap();
    (storage, db, rows, index)
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

fn at(db: &Database, isolation: Isolation, timeout: Duration) -> Transaction {
    db.begin(TxnOptions { isolation, lock_timeout: Some(timeout), ..TxnOptions::default() }).unwrap()
}

fn impatient(db: &Database, isolation: Isolation) -> Transaction {
    at(db, isolation, Duration::ZERO)
}

fn patient(db: &Database, isolation: Isolation) -> Transaction {
    at(db, isolation, Duration::from_secs(60))
}

/// A row, locked, and its entry, covered.
fn insert(txn: &Transaction, rows: &Tree, index: &Tree, entry: &[u8], key: &[u8]) -> Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(rows, key, b"row")?;
    batch.set_covered(true);
    batch.put(index, entry, key)?;
    txn.write(&batch)
}

fn delete(txn: &Transaction, rows: &Tree, index: &Tree, entry: &[u8], key: &[u8]) -> Result<()> {
    let mut batch = WriteBatch::new();
    batch.delete(rows, key)?;
    batch.set_covered(true);
    batch.single_delete(index, entry)?;
    txn.write(&batch)
}

fn scan(txn: &Transaction, tree: &Tree, lock: Option<LockMode>, backward: bool) -> Result<usize> {
    let mut cursor = txn.cursor(tree, CursorOptions { lock, ..CursorOptions::range(*b"b", *b"y") })?;
    let rows = if backward { collect_backward(&mut cursor) } else { collect(&mut cursor) };
    rows.map(|rows| rows.len())
}

fn until_someone_waits(db: &Database) {
    while db.locks().unwrap().iter().all(|lock| lock.waits_for.is_empty()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_locking_scan_waits_for_entries_that_are_not_decided() {
    let (_storage, db, rows, index) = table();
    insert(&begin(&db), &rows, &index, b"m", b"never committed").unwrap();
    for isolation in GAPS {
        for backward in [false, true] {
            for lock in [Some(LockMode::Shared), Some(LockMode::Exclusive)] {
                let writer = begin(&db);
                insert(&writer, &rows, &index, b"k", b"1").unwrap();
                let reader = impatient(&db, isolation);
                assert_eq!(kind(scan(&reader, &index, lock, backward)), Some(ErrorKind::LockTimeout));
                drop(reader);
                let reader = patient(&db, isolation);
                std::thread::scope(|scope| {
                    let found = scope.spawn(|| scan(&reader, &index, lock, backward));
                    until_someone_waits(&db);
                    writer.commit().unwrap();
                    assert_eq!(found.join().unwrap().unwrap(), 1, "the entry is there, and no other");
                });
                reader.rollback().unwrap();
                let cleaner = begin(&db);
                delete(&cleaner, &rows, &index, b"k", b"1").unwrap();
                let reader = impatient(&db, isolation);
                assert_eq!(kind(scan(&reader, &index, lock, backward)), Some(ErrorKind::LockTimeout), "a delete");
                cleaner.commit().unwrap();
                assert_eq!(scan(&reader, &index, lock, backward).unwrap(), 0);
            }
        }
    }
}

#[test]
fn a_serializable_reader_waits_without_asking_for_locks() {
    let (_storage, db, rows, index) = table();
    let writer = begin(&db);
    insert(&writer, &rows, &index, b"k", b"1").unwrap();
    let reader = impatient(&db, Isolation::Serializable);
    assert_eq!(kind(scan(&reader, &index, None, false)), Some(ErrorKind::LockTimeout));
    assert_eq!(kind(reader.get(&index, b"k")), Some(ErrorKind::LockTimeout));
    writer.rollback().unwrap();
    assert_eq!(scan(&reader, &index, None, false).unwrap(), 0);
    assert!(reader.get(&index, b"k").unwrap().is_none());
}

#[test]
fn what_the_reader_wrote_itself_does_not_hinder_it() {
    let (_storage, db, rows, index) = table();
    let txn = impatient(&db, Isolation::Serializable);
    insert(&txn, &rows, &index, b"k", b"1").unwrap();
    for backward in [false, true] {
        assert_eq!(scan(&txn, &index, Some(LockMode::Exclusive), backward).unwrap(), 1);
    }
    insert(&txn, &rows, &index, b"l", b"2").unwrap();
    let savepoint = txn.savepoint().unwrap();
    insert(&txn, &rows, &index, b"n", b"3").unwrap();
    txn.rollback_to(savepoint).unwrap();
    assert_eq!(scan(&txn, &index, None, false).unwrap(), 2);
    txn.commit().unwrap();
}

#[test]
fn at_read_committed_a_row_waits_for_its_delete_and_an_insertion_is_not_seen() {
    let (_storage, db, rows, index) = table();
    let setup = begin(&db);
    insert(&setup, &rows, &index, b"d", b"1").unwrap();
    insert(&setup, &rows, &index, b"e", b"2").unwrap();
    setup.commit().unwrap();
    let writer = begin(&db);
    insert(&writer, &rows, &index, b"f", b"3").unwrap();
    delete(&writer, &rows, &index, b"e", b"2").unwrap();
    for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
        let options = |wait| CursorOptions { lock: Some(LockMode::Exclusive), wait, ..CursorOptions::default() };
        let reader = impatient(&db, isolation);
        for backward in [false, true] {
            let mut skipping = reader.cursor(&index, options(Wait::SkipLocked)).unwrap();
            let found = if backward { collect_backward(&mut skipping) } else { collect(&mut skipping) };
            assert_eq!(found.unwrap(), [(b"d".to_vec(), b"1".to_vec())]);
            let mut waiting = reader.cursor(&index, options(Wait::Default)).unwrap();
            let found = if backward { collect_backward(&mut waiting) } else { collect(&mut waiting) };
            assert_eq!(kind(found), Some(ErrorKind::LockTimeout));
        }
        let mut plain = reader.cursor(&index, CursorOptions::range(*b"e", *b"f")).unwrap();
        let stands = plain.first().unwrap();
        assert_eq!(stands, isolation == Isolation::ReadCommitted);
        if stands {
            assert!(!plain.lock_row(LockMode::Shared, Wait::SkipLocked).unwrap());
            assert!(plain.first().unwrap());
            assert_eq!(kind(plain.lock_row(LockMode::Shared, Wait::NoWait)), Some(ErrorKind::LockTimeout));
        }
        let skipped = reader.get_locked(&index, b"e", LockMode::Shared, Wait::SkipLocked).unwrap();
        assert_eq!(skipped, Locked::Skipped);
        let refused = reader.get_locked(&index, b"e", LockMode::Shared, Wait::NoWait);
        assert_eq!(kind(refused), Some(ErrorKind::LockTimeout));
    }
    let reader = patient(&db, Isolation::ReadCommitted);
    std::thread::scope(|scope| {
        let found = scope.spawn(|| scan(&reader, &index, Some(LockMode::Exclusive), false));
        until_someone_waits(&db);
        writer.commit().unwrap();
        assert_eq!(found.join().unwrap().unwrap(), 2, "d and f");
    });
}

/// Moves the row's entry.
fn move_entry(txn: &Transaction, rows: &Tree, index: &Tree, from: &[u8], to: &[u8], key: &[u8]) -> Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(rows, key, b"row")?;
    batch.set_covered(true);
    batch.single_delete(index, from)?;
    batch.put(index, to, key)?;
    txn.write(&batch)
}

#[test]
fn an_entry_that_moves_back_while_it_is_waited_for_is_found_where_it_is() {
    let levels = [Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::RepeatableRead];
    for isolation in levels.into_iter().chain([Isolation::Serializable]) {
        for (backward, place) in [(false, b"c"), (true, b"k")] {
            let (_storage, db, rows, index) = table();
            let setup = begin(&db);
            insert(&setup, &rows, &index, b"e", b"1").unwrap();
            setup.commit().unwrap();
            let writer = patient(&db, Isolation::ReadCommitted);
            move_entry(&writer, &rows, &index, b"e", place, b"1").unwrap();
            let reader = patient(&db, isolation);
            std::thread::scope(|scope| {
                let found = scope.spawn(|| scan(&reader, &index, Some(LockMode::Exclusive), backward));
                until_someone_waits(&db);
                writer.commit().unwrap();
                assert_eq!(found.join().unwrap().unwrap(), 1, "{isolation:?}, backward: {backward}");
            });
        }
    }
}

#[test]
fn an_entry_that_moves_to_and_fro_is_always_found() {
    for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let (_storage, db, rows, index) = table();
        let setup = begin(&db);
        insert(&setup, &rows, &index, b"e", b"1").unwrap();
        setup.commit().unwrap();
        let mover_is_done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let places = [b"e", b"c", b"k"];
                for step in 0..3000 {
                    let (from, to) = (places[step % 3], places[(step + 1) % 3]);
                    loop {
                        let writer = patient(&db, Isolation::ReadCommitted);
                        let moved = move_entry(&writer, &rows, &index, from, to, b"1");
                        match kind(moved.and_then(|()| writer.commit())) {
                            Some(ErrorKind::Deadlock) => continue,
                            other => break assert_eq!(other, None),
                        }
                    }
                    if step % 100 == 0 {
                        db.checkpoint().unwrap();
                    }
                }
                mover_is_done.store(1, Ordering::Release);
            });
            let mut backward = false;
            while mover_is_done.load(Ordering::Acquire) == 0 {
                let reader = patient(&db, isolation);
                let options = CursorOptions { lock: Some(LockMode::Shared), ..CursorOptions::range(*b"b", *b"y") };
                let mut cursor = reader.cursor(&index, options).unwrap();
                let found = if backward { cursor.last() } else { cursor.first() };
                match found {
                    Err(error) if error.kind() == ErrorKind::Deadlock => {}
                    found => assert!(found.unwrap(), "{isolation:?}, backward: {backward}"),
                }
                backward = !backward;
            }
        });
    }
}

#[test]
fn a_covered_write_waits_for_a_range_lock_and_fails_without_effect() {
    let (_storage, db, rows, index) = table();
    for lock in [LockMode::Shared, LockMode::Exclusive] {
        let reader = impatient(&db, Isolation::RepeatableRead);
        assert_eq!(scan(&reader, &index, Some(lock), false).unwrap(), 0);
        let writer = impatient(&db, Isolation::ReadCommitted);
        assert_eq!(kind(insert(&writer, &rows, &index, b"k", b"1")), Some(ErrorKind::LockTimeout));
        assert_eq!(writer.failed_operation(), Some(1));
        assert!(writer.get(&rows, b"1").unwrap().is_none() && writer.get(&index, b"k").unwrap().is_none());
        // Nor does it keep the row's lock, for which others would wait in vain.
        let other = impatient(&db, Isolation::ReadCommitted);
        insert(&other, &rows, &index, b"z", b"1").unwrap();
        other.rollback().unwrap();
        insert(&writer, &rows, &index, b"z", b"2").unwrap();
        assert_eq!(scan(&reader, &index, Some(lock), true).unwrap(), 0, "no phantom");
        reader.commit().unwrap();
        insert(&writer, &rows, &index, b"k", b"1").unwrap();
        writer.rollback().unwrap();
    }
    let owner = impatient(&db, Isolation::Serializable);
    assert_eq!(scan(&owner, &index, Some(LockMode::Exclusive), false).unwrap(), 0);
    insert(&owner, &rows, &index, b"k", b"1").unwrap();
    assert_eq!(scan(&owner, &index, None, false).unwrap(), 1);
    let mut autocommit = WriteBatch::new();
    autocommit.set_covered(true);
    autocommit.put(&index, b"l", b"").unwrap();
    let options = TxnOptions { lock_timeout: Some(Duration::ZERO), ..TxnOptions::default() };
    assert_eq!(kind(db.write(&autocommit, options)), Some(ErrorKind::LockTimeout));
    owner.commit().unwrap();
    db.write(&autocommit, options).unwrap();
}

#[test]
fn a_covered_write_that_fails_gives_back_what_it_locked_for_the_entries_before() {
    let (_storage, db, rows, index) = table();
    let reader = impatient(&db, Isolation::RepeatableRead);
    // In the way of the second entry alone; the first is locked because there are ranges in the tree.
    reader.lock_range(&index, b"k", b"l", LockMode::Shared, Wait::NoWait).unwrap();
    let writer = impatient(&db, Isolation::RepeatableRead);
    let mut batch = WriteBatch::new();
    batch.put(&rows, b"1", b"row").unwrap();
    batch.set_covered(true);
    batch.put(&index, b"a", b"1").unwrap();
    batch.put(&index, b"k", b"1").unwrap();
    assert_eq!(kind(writer.write(&batch)), Some(ErrorKind::LockTimeout));
    assert_eq!(writer.failed_operation(), Some(2));
    let locks = db.locks().unwrap();
    assert!(locks.iter().all(|lock| lock.txn.0 != writer.id()), "{locks:?}");
    reader.commit().unwrap();
    writer.write(&batch).unwrap();
}

#[test]
fn a_writer_goes_on_in_the_range_while_the_first_reader_waits_for_it() {
    let (_storage, db, rows, index) = table();
    let writer = impatient(&db, Isolation::RepeatableRead);
    insert(&writer, &rows, &index, b"k", b"1").unwrap();
    let reader = patient(&db, Isolation::RepeatableRead);
    std::thread::scope(|scope| {
        let found = scope.spawn(|| scan(&reader, &index, Some(LockMode::Exclusive), false));
        until_someone_waits(&db);
        insert(&writer, &rows, &index, b"j", b"2").unwrap();
        insert(&writer, &rows, &index, b"l", b"3").unwrap();
        writer.commit().unwrap();
        assert_eq!(found.join().unwrap().unwrap(), 3);
    });
}

#[test]
fn implicit_waits_are_in_the_graph_and_can_be_cancelled() {
    let (_storage, db, rows, index) = table();
    let other = db.create_tree("j", &TreeOptions::default()).unwrap();
    let [one, two] = [(&index, b"1"), (&other, b"2")].map(|(tree, key)| {
        let txn = patient(&db, Isolation::Serializable);
        insert(&txn, &rows, tree, b"k", key).unwrap();
        txn
    });
    let outcomes = std::thread::scope(|scope| {
        let run = |txn: Transaction, tree: Tree| {
            scope.spawn(move || {
                scan(&txn, &tree, None, false).map_err(|error| error.kind())?;
                txn.commit().map_err(|error| error.kind())
            })
        };
        [run(one, other.clone()), run(two, index.clone())].map(|thread| thread.join().unwrap())
    });
    assert!(outcomes.contains(&Ok(())) && outcomes.contains(&Err(ErrorKind::Deadlock)), "{outcomes:?}");

    let writer = begin(&db);
    insert(&writer, &rows, &index, b"l", b"3").unwrap();
    let reader = patient(&db, Isolation::Serializable);
    std::thread::scope(|scope| {
        let found = scope.spawn(|| scan(&reader, &index, None, false));
        until_someone_waits(&db);
        let wait = db.locks().unwrap().into_iter().find(|lock| !lock.waits_for.is_empty()).unwrap();
        assert_eq!((wait.tree, wait.start.as_slice(), wait.waits_for.len()), (index.id(), &b"l"[..], 1));
        db.cancel(reader.id()).unwrap();
        assert_eq!(kind(found.join().unwrap()), Some(ErrorKind::Cancelled));
    });
}

#[test]
fn who_waits_for_an_entry_goes_on_when_its_writer_undoes_it() {
    let (_storage, db, rows, index) = table();
    let writer = begin(&db);
    insert(&writer, &rows, &index, b"z", b"kept").unwrap();
    let savepoint = writer.savepoint().unwrap();
    // Whichever comes first: the reader's look, its registration or the undoing.
    for round in 0..200 {
        insert(&writer, &rows, &index, b"k", b"undone").unwrap();
        let reader = patient(&db, GAPS[round % 2]);
        std::thread::scope(|scope| {
            let found = scope.spawn(|| scan(&reader, &index, Some(LockMode::Exclusive), round % 3 == 0));
            if round < 4 {
                until_someone_waits(&db);
            } else {
                (0..round * 20).for_each(|_| std::hint::spin_loop());
            }
            writer.rollback_to(savepoint).unwrap();
            assert_eq!(found.join().unwrap().unwrap(), 0, "round={round}");
        });
    }
    // What it undoes elsewhere lets nobody by.
    insert(&writer, &rows, &index, b"k", b"kept").unwrap();
    let later = writer.savepoint().unwrap();
    insert(&writer, &rows, &index, b"l", b"undone").unwrap();
    let reader = at(&db, Isolation::RepeatableRead, Duration::from_millis(300));
    std::thread::scope(|scope| {
        let found = scope.spawn(|| scan(&reader, &index, Some(LockMode::Shared), false));
        while !found.is_finished() && db.locks().unwrap().iter().all(|lock| lock.waits_for.is_empty()) {
            std::thread::yield_now();
        }
        writer.rollback_to(later).unwrap();
        assert_eq!(kind(found.join().unwrap()), Some(ErrorKind::LockTimeout));
    });
    let reader = patient(&db, Isolation::RepeatableRead);
    std::thread::scope(|scope| {
        let found = scope.spawn(|| scan(&reader, &index, Some(LockMode::Shared), false));
        until_someone_waits(&db);
        writer.commit().unwrap();
        assert_eq!(found.join().unwrap().unwrap(), 1);
    });
}

#[test]
fn entries_of_a_prepared_transaction_are_waited_for_also_after_a_restart() {
    let (storage, db, rows, index) = table();
    let writer = begin(&db);
    insert(&writer, &rows, &index, b"k", b"1").unwrap();
    writer.prepare(b"xid").unwrap();
    let refused = |db: &Database, index: &Tree| {
        let reader = impatient(db, Isolation::RepeatableRead);
        kind(scan(&reader, index, Some(LockMode::Shared), false))
    };
    assert_eq!(refused(&db, &index), Some(ErrorKind::LockTimeout));
    drop((db, rows, index));
    let db = open(&storage.crash(3));
    let index = db.open_tree("i").unwrap();
    assert_eq!(refused(&db, &index), Some(ErrorKind::LockTimeout));
    db.commit_prepared(b"xid").unwrap();
    let reader = impatient(&db, Isolation::RepeatableRead);
    assert_eq!(scan(&reader, &index, Some(LockMode::Shared), false).unwrap(), 1);
}

#[test]
fn write_skew_through_an_index_is_stopped_at_serializable() {
    let (_storage, db, rows, index) = table();
    let [one, two] = [(); 2].map(|()| patient(&db, Isolation::Serializable));
    for txn in [&one, &two] {
        assert_eq!(scan(txn, &index, None, false).unwrap(), 0);
    }
    let outcomes = std::thread::scope(|scope| {
        let run = |txn: Transaction, key: &'static [u8]| {
            let (rows, index) = (rows.clone(), index.clone());
            scope.spawn(move || insert(&txn, &rows, &index, key, key).and_then(|()| txn.commit()).is_ok())
        };
        [run(one, b"k"), run(two, b"l")].map(|thread| thread.join().unwrap())
    });
    assert_eq!(outcomes.iter().filter(|committed| **committed).count(), 1);
}

/// Each transaction counts the entries and adds one while there are fewer than the limit: one after another they
/// would stop at the limit, so at SERIALIZABLE they do.
#[test]
fn many_threads_that_count_and_insert_never_pass_the_limit() {
    const THREADS: u64 = 4;
    const LIMIT: usize = 8;
    let (_storage, db, rows, index) = table();
    let deadlocks = AtomicUsize::new(0);
    for round in 0..30u64 {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (db, rows, index, deadlocks) = (&db, &rows, &index, &deadlocks);
                scope.spawn(move || {
                    let mut random = Random::new(round * THREADS + thread);
                    for number in 0..20 {
                        let txn = patient(db, Isolation::Serializable);
                        let attempt = || -> Result<bool> {
                            let backward = random.clone().below(2) == 0;
                            if scan(&txn, index, None, backward)? >= LIMIT {
                                return Ok(false);
                            }
                            // Each is put once: it is taken away by a single-delete.
                            let entry = [b'b' + random.clone().below(20) as u8, round as u8, thread as u8, number];
                            insert(&txn, rows, index, &entry, &entry)?;
                            Ok(true)
                        };
                        match attempt() {
                            Ok(_) => txn.commit().unwrap(),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
                                deadlocks.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        random.next();
                    }
                });
            }
        });
        let check = begin(&db);
        let entries = collect(&mut check.cursor(&index, CursorOptions::default()).unwrap()).unwrap();
        assert!(entries.len() <= LIMIT, "round={round} entries={}", entries.len());
        for (entry, key) in entries {
            delete(&check, &rows, &index, &entry, &key).unwrap();
        }
        check.commit().unwrap();
    }
    println!("deadlocks: {}", deadlocks.load(Ordering::Relaxed));
}

/// A range-delete does not wait for covered writes that are not decided: it wipes them out, whatever compactions do and when.
#[test]
fn what_a_range_delete_wipes_out_stays_so() {
    for truncates in [false, true] {
        for compacts in 0..4 {
            let (_storage, db, rows, index) = table();
            let writer = begin(&db);
            insert(&writer, &rows, &index, b"k", b"1").unwrap();
            let compact = |step| {
                if compacts & step != 0 {
                    db.checkpoint().unwrap();
                    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
                }
            };
            let wiper = begin(&db);
            match truncates {
                true => wiper.truncate_tree(&index).unwrap(),
                false => wiper.delete_range(&index, b"a", b"z").unwrap(),
            }
            wiper.commit().unwrap();
            compact(1);
            assert_eq!(writer.get(&index, b"k").unwrap(), None, "compacts={compacts}");
            writer.commit().unwrap();
            compact(2);
            assert_eq!(begin(&db).get(&index, b"k").unwrap(), None, "compacts={compacts}");
            assert!(begin(&db).get(&rows, b"1").unwrap().is_some());
        }
    }
}
