//! Compaction on request: exact counts, space that comes back, others that go on meanwhile.

use std::ops::ControlFlow;

use fronddb::{CompactProgress, CursorOptions, Database, ErrorKind, Tree, TreeOptions, WriteBatch};

use crate::support::{BLOB_BYTES_MIN, Random, begin, collect, fresh, open};

fn value(random: &mut Random) -> Vec<u8> {
    (0..60).map(|_| random.next() as u8).collect()
}

fn fill(db: &Database, tree: &Tree, random: &mut Random, rows: u32) {
    for first in (0..rows).step_by(100) {
        let mut batch = WriteBatch::new();
        for number in first..first + 100 {
            batch.put(tree, &number.to_be_bytes(), &value(random)).unwrap();
        }
        db.write(&batch, Default::default()).unwrap();
        while db.step_background().unwrap() {}
    }
}

fn quietly(_: CompactProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn counts_are_exact_after_it_and_space_comes_back() {
    let (storage, db, tree) = fresh();
    let other = db.create_tree("other", &TreeOptions::default()).unwrap();
    let mut random = Random::new(1);
    fill(&db, &tree, &mut random, 6000);
    fill(&db, &other, &mut random, 500);
    let txn = begin(&db);
    for number in (0..6000u32).filter(|number| number % 8 != 0) {
        txn.delete(&tree, &number.to_be_bytes()).unwrap();
    }
    txn.commit().unwrap();
    for number in 0..300u32 {
        db.put(&tree, &random.next().to_be_bytes(), &number.to_be_bytes()).unwrap();
    }
    db.compact(Some(&tree), b"", b"", &mut quietly).unwrap();
    let txn = begin(&db);
    let rows = collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap();
    let counted = db.estimate(&tree, b"", b"").unwrap().rows;
    assert_eq!(counted, rows.len() as u64);
    drop(txn);

    let statistics = db.statistics().unwrap();
    let payload: usize = rows.iter().map(|(key, value)| key.len() + value.len()).sum();
    let other_bytes = 500 * 64;
    // Indexes, filters and whole pages of tiny leaves come on top.
    let bound = 3 * (payload + other_bytes) as u64 + (1 << 20);
    assert!(statistics.file_bytes_live < bound, "live={} bound={bound}", statistics.file_bytes_live);
    db.close().unwrap();
    let db = open(&storage);
    let tree = db.open_tree("t").unwrap();
    let txn = begin(&db);
    assert_eq!(collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap(), rows);
}

#[test]
fn what_an_open_snapshot_sees_stays() {
    let (_storage, db, tree) = fresh();
    let mut random = Random::new(2);
    fill(&db, &tree, &mut random, 1000);
    let reader = begin(&db);
    let before = collect(&mut reader.cursor(&tree, CursorOptions::default()).unwrap()).unwrap();
    let txn = begin(&db);
    txn.delete_range(&tree, b"", b"").unwrap();
    txn.commit().unwrap();
    db.compact(None, b"", b"", &mut quietly).unwrap();
    assert_eq!(collect(&mut reader.cursor(&tree, CursorOptions::default()).unwrap()).unwrap(), before);
    drop(reader);
    db.compact(None, b"", b"", &mut quietly).unwrap();
    assert_eq!(db.estimate(&tree, b"", b"").unwrap().rows, 0);
    let txn = begin(&db);
    assert!(collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap().is_empty());
}

#[test]
fn it_tells_how_far_it_is_and_can_be_ended() {
    let (_storage, db, tree) = fresh();
    let mut random = Random::new(3);
    fill(&db, &tree, &mut random, 4000);
    let mut told = Vec::new();
    db.compact(Some(&tree), b"", b"", &mut |progress| {
        told.push(progress);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(told.len() > 3 && told.is_sorted_by_key(|progress| progress.bytes_done), "{told:?}");
    let last = told[told.len() - 1];
    assert!(last.bytes_total > 0 && last.bytes_done == last.bytes_total, "{last:?}");

    let mut left = 2;
    let ended = db.compact(Some(&tree), b"", b"", &mut |_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(db.compact(None, b"a", b"", &mut quietly).unwrap_err().kind(), ErrorKind::InvalidArgument);
    db.put(&tree, b"still", b"works").unwrap();
}

#[test]
fn a_check_tells_how_far_it_is_and_can_be_ended() {
    let (_storage, db, tree) = fresh();
    fill(&db, &tree, &mut Random::new(6), 2000);
    db.compact(None, b"", b"", &mut quietly).unwrap();
    let mut told = Vec::new();
    let mut listen = |progress| {
        told.push(progress);
        ControlFlow::Continue(())
    };
    db.check(&mut |finding| panic!("{finding:?}"), Some(&mut listen)).unwrap();
    assert!(told.len() > 3 && told.is_sorted_by_key(|progress| progress.bytes_done), "{told:?}");
    let last = told.last().unwrap();
    assert!(last.bytes_done > last.bytes_total / 2 && last.bytes_done <= last.bytes_total, "{last:?}");

    let mut calls = 0;
    let mut end = |_| {
        calls += 1;
        if calls == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let ended = db.check(&mut |finding| panic!("{finding:?}"), Some(&mut end));
    assert_eq!((ended.unwrap_err().kind(), calls), (ErrorKind::Cancelled, 2));
}

#[test]
fn writers_and_readers_go_on_meanwhile() {
    let storage = fronddb::io::MemoryStorage::new();
    let options = crate::support::options(&storage).manual_background(false);
    let db = Database::open(crate::support::DIRECTORY, options).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let mut random = Random::new(4);
    for number in 0..3000u32 {
        let txn =
            db.begin(fronddb::TxnOptions { durability: fronddb::Durability::None, ..Default::default() }).unwrap();
        txn.put(&tree, &number.to_be_bytes(), &value(&mut random)).unwrap();
        txn.commit().unwrap();
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut random = Random::new(5);
            for round in 0..3000u32 {
                let key = (random.below(4000) as u32).to_be_bytes();
                let options = fronddb::TxnOptions { durability: fronddb::Durability::None, ..Default::default() };
                let txn = db.begin(options).unwrap();
                txn.put(&tree, &key, &round.to_be_bytes()).unwrap();
                txn.commit().unwrap();
                assert_eq!(db.get(&tree, &key).unwrap().as_deref(), Some(&round.to_be_bytes()[..]));
            }
        });
        while !writer.is_finished() {
            db.compact(Some(&tree), b"", b"", &mut quietly).unwrap();
        }
    });
    db.compact(Some(&tree), b"", b"", &mut quietly).unwrap();
    let txn = begin(&db);
    let rows = collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap().len() as u64;
    assert_eq!(db.estimate(&tree, b"", b"").unwrap().rows, rows);
    drop(txn);
    let mut findings = 0;
    db.check(
        &mut |finding| {
            println!("{finding:?}");
            findings += 1;
        },
        None,
    )
    .unwrap();
    assert_eq!(findings, 0);
}

#[test]
fn what_readers_merge_again_and_again_is_moved_down() {
    let (_storage, db, tree) = fresh();
    let mut random = Random::new(5);
    fill(&db, &tree, &mut random, 2000);
    db.compact(Some(&tree), b"", b"", &mut quietly).unwrap();
    for number in 0..40u32 {
        db.put(&tree, &(number * 50).to_be_bytes(), b"changed").unwrap();
    }
    db.checkpoint().unwrap();
    while db.step_background().unwrap() {}
    let pending = || db.statistics().unwrap().pending_bytes;
    assert!(pending() > 0, "too little for the buffers to ask");
    let txn = begin(&db);
    let rows = collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap();
    for round in 0.. {
        assert!(round < 20_000, "pending: {}", pending());
        let mut cursor = txn.cursor(&tree, CursorOptions::default()).unwrap();
        cursor.seek(&(round % 2000u32).to_be_bytes()).unwrap();
        while db.step_background().unwrap() {}
        if pending() == 0 {
            break;
        }
    }
    assert!(db.statistics().unwrap().compactions_for_reads > 0);
    assert_eq!(collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap(), rows);
}

/// Without a request: in the runs that say so, a value that lies apart is a few bytes.
#[test]
fn large_values_that_are_written_over_or_deleted_give_their_space_back_before_long() {
    const ROWS: u32 = 300;
    let (_storage, db, tree) = fresh();
    let mut random = Random::new(8);
    let settle = || {
        for _ in 0..3 {
            db.checkpoint().unwrap();
            while db.step_background().unwrap() {}
        }
        db.statistics().unwrap().file_bytes_live
    };
    let mut live = Vec::new();
    for _ in 0..5 {
        for row in 0..ROWS {
            db.put(&tree, &row.to_be_bytes(), &random.bytes(8 * BLOB_BYTES_MIN)).unwrap();
        }
        live.push(settle());
    }
    let once = u64::from(ROWS) * 8 * BLOB_BYTES_MIN as u64;
    assert!(live.iter().all(|live| *live < 2 * once), "what was written over stays: {live:?}, once {once}");
    // Nor does it wait for level 0 to be full of references.
    settle();
    let used = || db.statistics().unwrap().file_bytes_used / (128 * BLOB_BYTES_MIN as u64);
    let before = used();
    for _ in 0..8 {
        db.put(&tree, b"one", &random.bytes(128 * BLOB_BYTES_MIN)).unwrap();
        while db.step_background().unwrap() {}
    }
    let more = used() - before;
    assert!(more < 6, "what was written over in level 0 stays, values={more}");
    (0..ROWS).for_each(|row| db.delete(&tree, &row.to_be_bytes()).unwrap());
    let left = settle();
    assert!(left < once / 4, "what was deleted stays: {left}, once {once}");
}
