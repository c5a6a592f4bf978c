//! Closing beside calls of other threads: when it has returned, the directory may be somebody else's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fronddb::io::{MemoryStorage, TraceStorage};
use fronddb::{Database, ErrorKind, Result, Tree, TreeOptions, WriteBatch};

use crate::support::{BLOB_BYTES_MIN, DIRECTORY, Random, begin, options};

fn changes(trace: &TraceStorage) -> usize {
    trace.events().iter().filter(|event| event.is_change()).count()
}

/// What a caller's thread may be in the middle of: large values, rows, checkpoints, bulk loads, compactions.
fn work(db: &Database, tree: &Tree, random: &mut Random) -> Result<()> {
    let mut batch = WriteBatch::new();
    for _ in 0..20 {
        batch.put(tree, &random.next().to_be_bytes(), &random.bytes(100))?;
    }
    batch.put(tree, &random.next().to_be_bytes(), &random.bytes(2 * BLOB_BYTES_MIN))?;
    db.write(&batch, Default::default())?;
    let loaded = db.create_tree(&format!("{}", random.next()), &TreeOptions::default())?;
    let txn = db.begin(Default::default())?;
    let mut bulk = txn.bulk(&loaded, &Default::default())?;
    for row in 0..300u64 {
        bulk.add(&row.to_be_bytes(), &random.bytes(50))?;
    }
    bulk.finish(&mut |_| true)?;
    txn.commit()?;
    db.checkpoint()
}

#[test]
fn nothing_is_changed_after_a_close_whatever_other_threads_do() {
    for round in 0..30u64 {
        let memory = MemoryStorage::new();
        let trace = TraceStorage::new(&memory);
        let settings = options(&memory).storage(Some(Arc::new(trace.clone())));
        let db = Database::open(DIRECTORY, settings).unwrap();
        let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
        let begun = AtomicBool::new(false);
        let (closed, ended) = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut random = Random::new(round);
                loop {
                    if let Err(error) = work(&db, &tree, &mut random) {
                        return error;
                    }
                    begun.store(true, Ordering::Release);
                }
            });
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            // A moment of its own for each round: after so many more changes.
            let until = changes(&trace) + round as usize;
            while changes(&trace) < until {
                std::thread::yield_now();
            }
            db.clone().close().unwrap();
            let closed = changes(&trace);
            let error = worker.join().unwrap();
            assert!(matches!(error.kind(), ErrorKind::Closed | ErrorKind::Cancelled), "{error}");
            (closed, changes(&trace))
        });
        assert_eq!(closed, ended, "round {round}");
        drop((tree, db));
        let db = Database::open(DIRECTORY, options(trace.storage())).unwrap();
        db.check(&mut |finding| panic!("round {round}: {finding:?}"), None).unwrap();
        drop(begin(&db));
    }
}
