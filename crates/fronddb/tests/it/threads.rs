//! Databases with their background threads, on real files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use fronddb::tree::TreeTuning;
use fronddb::{
    BulkOptions, CursorOptions, Database, Durability, Isolation, Options, Transaction, TreeOptions, TxnOptions,
    WriteBatch,
};

use crate::support::{begin, collect};

/// A directory that goes when dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("fronddb-it-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn small() -> Options {
    Options::new().create_if_missing(true).memory_bytes(16 << 20).level0_bytes(1 << 20).tree_tuning(Some(TreeTuning {
        leaf_bytes_max: 128 << 10,
        block_bytes: 4 << 10,
        ..TreeTuning::tiny()
    }))
}

#[test]
fn writers_and_scanners_run_beside_flushes_and_compactions() {
    let scratch = Scratch::new();
    let db = Database::open(&scratch.0, small()).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    const WRITERS: u32 = 3;
    const ROWS: u32 = 20_000;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, tree) = (db.clone(), tree.clone());
            scope.spawn(move || {
                let mut batch = WriteBatch::new();
                for row in 0..ROWS {
                    let number = (row.wrapping_mul(2_654_435_761) / WRITERS) * WRITERS % (1 << 24) + writer;
                    batch.put(&tree, &number.to_be_bytes(), &row.to_be_bytes().repeat(10)).unwrap();
                    if row % 100 == 99 {
                        let options = TxnOptions { durability: Durability::Write, ..TxnOptions::default() };
                        db.write(&batch, options).unwrap();
                        batch.clear();
                    }
                }
            });
        }
        let (db, tree) = (db.clone(), tree.clone());
        scope.spawn(move || {
            for _ in 0..5 {
                let txn = begin(&db);
                let first = collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap();
                let again = collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap();
                assert!(first == again && first.is_sorted(), "a snapshot does not change");
            }
        });
    });
    let count = |db: &Database| {
        let txn = db.begin(TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() }).unwrap();
        collect(&mut txn.cursor(&db.open_tree("t").unwrap(), CursorOptions::default()).unwrap()).unwrap().len()
    };
    let rows = count(&db);
    assert!(rows > 50_000, "rows={rows}");
    db.wait_idle().unwrap();
    assert_eq!(count(&db), rows);
    db.check(&mut |finding| panic!("{finding:?}"), None).unwrap();
    let statistics = db.statistics().unwrap();
    assert!(statistics.seals > 0 && statistics.compactions > 0, "{}", statistics.to_json());
    db.close().unwrap();
    let db = Database::open(&scratch.0, small()).unwrap();
    assert_eq!(count(&db), rows);
}

/// Level 0 holds few versions of each row, and every reader finds its own: one from before, new ones, and one that sees the uncommitted. While nobody has
/// a snapshot from before, readers of the uncommitted are kept theirs by what they read alone.
#[test]
fn rows_that_are_written_over_and_over_stay_few_in_level_0() {
    const ROWS: u32 = 50;
    const WRITERS: u32 = 3;
    const WRITES: u32 = 10_000;
    let scratch = Scratch::new();
    let db = Database::open(&scratch.0, small().memory_bytes(64 << 20).level0_bytes(16 << 20)).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let put = |row: u32, value: u32| {
        let mut batch = WriteBatch::new();
        batch.put(&tree, &row.to_be_bytes(), &value.to_be_bytes()).unwrap();
        db.write(&batch, TxnOptions { durability: Durability::Write, ..TxnOptions::default() }).unwrap();
    };
    (0..ROWS).for_each(|row| put(row, 0));
    let old = begin(&db);
    let value = |txn: &Transaction, row: u32| {
        let value = txn.get(&tree, &row.to_be_bytes()).unwrap().expect("a row that is always there");
        u32::from_be_bytes(value[..].try_into().unwrap())
    };
    assert_eq!(value(&old, 0), 0);
    let put_and_undo = |row: u32| {
        let txn = db.begin(TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() }).unwrap();
        txn.put(&tree, &row.to_be_bytes(), &0u32.to_be_bytes()).unwrap();
        txn.rollback().unwrap();
    };
    let work = || {
        let left = &AtomicU64::new(u64::from(WRITERS));
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (put, put_and_undo) = (&put, &put_and_undo);
                scope.spawn(move || {
                    for write in 1..=WRITES {
                        let row = write.wrapping_mul(2_654_435_761) % ROWS;
                        put(row, write * WRITERS + writer);
                        if write.is_multiple_of(3) {
                            put_and_undo(row);
                        }
                    }
                    left.fetch_sub(1, Ordering::Release);
                });
            }
            for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
                let (db, tree) = (&db, &tree);
                scope.spawn(move || {
                    while left.load(Ordering::Acquire) > 0 {
                        let txn = db.begin(TxnOptions { isolation, ..TxnOptions::default() }).unwrap();
                        assert!((0..ROWS).map(|row| value(&txn, row)).max() <= Some((WRITES + 1) * WRITERS));
                        let rows = collect(&mut txn.cursor(tree, CursorOptions::default()).unwrap()).unwrap();
                        assert_eq!(rows.len(), ROWS as usize);
                    }
                });
            }
        })
    };
    work();
    assert!((0..ROWS).all(|row| value(&old, row) == 0));
    drop(old);
    work();
    let shape = db.tree_shape().unwrap();
    let messages = shape.strip_prefix("level 0: active ").and_then(|rest| rest.split([',', '\n']).next()).unwrap();
    assert!(messages.parse::<u32>().unwrap() < 20 * ROWS, "{shape}");
    assert_eq!(db.statistics().unwrap().seals, 0);
}

#[test]
fn bulk_loads_run_beside_writers_flushes_and_compactions() {
    const LOADERS: u32 = 2;
    const LOADS: u32 = 12;
    const ROWS: u32 = 20_000;
    let scratch = Scratch::new();
    let db = Database::open(&scratch.0, small()).unwrap();
    let value = |load: u32, row: u32| (row ^ load).to_be_bytes().repeat(8);
    let key = |row: u32| row.wrapping_mul(2_654_435_761).to_be_bytes();
    let done = std::sync::atomic::AtomicBool::new(false);
    let kept = std::sync::Mutex::new(Vec::new());
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Trees between those that are loaded, so that runs lie on both sides of them.
            let mut trees = Vec::new();
            let mut row = 0u32;
            while !done.load(Ordering::Relaxed) {
                if row.is_multiple_of(4_000) && trees.len() < 40 {
                    trees.push(db.create_tree(&format!("written {}", trees.len()), &TreeOptions::default()).unwrap());
                }
                let mut batch = WriteBatch::new();
                for _ in 0..100 {
                    let tree = &trees[row as usize % trees.len()];
                    batch.put(tree, &key(row), &value(7, row)).unwrap();
                    row += 1;
                }
                let options = TxnOptions { durability: Durability::Write, ..TxnOptions::default() };
                db.write(&batch, options).unwrap();
            }
            row
        });
        let loaders: Vec<_> = (0..LOADERS)
            .map(|loader| {
                let (db, kept) = (&db, &kept);
                scope.spawn(move || {
                    for load in 0..LOADS {
                        let txn = begin(db);
                        let name = format!("loaded {loader} {load}");
                        let tree = txn.create_tree(&name, &TreeOptions::default()).unwrap();
                        let mut bulk = txn.bulk(&tree, &BulkOptions::default()).unwrap();
                        (0..ROWS).for_each(|row| bulk.add(&key(row), &value(load, row)).unwrap());
                        bulk.finish(&mut |_| true).unwrap();
                        if load % 3 == 2 {
                            txn.rollback().unwrap();
                        } else {
                            txn.commit().unwrap();
                            kept.lock().unwrap().push((name, load));
                        }
                    }
                })
            })
            .collect();
        loaders.into_iter().for_each(|loader| loader.join().unwrap());
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    let verify = |db: &Database| {
        let txn = begin(db);
        let mut found = 0;
        for info in db.trees().unwrap() {
            let rows = collect(&mut txn.cursor(&db.open_tree(&info.name).unwrap(), CursorOptions::default()).unwrap());
            let rows = rows.unwrap();
            match kept.lock().unwrap().iter().find(|(name, _)| *name == info.name) {
                Some((name, load)) => {
                    let mut expected: Vec<_> = (0..ROWS).map(|row| (key(row).to_vec(), value(*load, row))).collect();
                    expected.sort_unstable();
                    assert!(rows == expected, "{name}");
                }
                None => {
                    assert!(info.name.starts_with("written"), "{}", info.name);
                    found += rows.len();
                }
            }
        }
        assert_eq!(found, written as usize);
        assert_eq!(kept.lock().unwrap().len() as u32, LOADERS * LOADS * 2 / 3);
    };
    verify(&db);
    db.wait_idle().unwrap();
    db.check(&mut |finding| panic!("{finding:?}"), None).unwrap();
    db.close().unwrap();
    let db = Database::open(&scratch.0, small()).unwrap();
    verify(&db);
    db.check(&mut |finding| panic!("{finding:?}"), None).unwrap();
}

/// What an embedder keeps for a thread, and what that does with the database when the thread ends.
struct AtEnd(std::cell::RefCell<Option<Box<dyn FnOnce()>>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(last) = self.0.take() {
            last();
        }
    }
}

thread_local!(static AT_END: AtEnd = const { AtEnd(std::cell::RefCell::new(None)) });

#[test]
fn a_thread_that_ends_may_use_the_database_from_its_destructors() {
    let scratch = Scratch::new();
    let db = Database::open(&scratch.0, Options::new().create_if_missing(true).memory_bytes(16 << 20)).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let work = |db: &Database, name: &str| {
        let tree = db.open_tree("t").unwrap();
        let value = [name.as_bytes(), &[7; 3000]].concat();
        db.put(&tree, name.as_bytes(), &value).unwrap();
        db.checkpoint().unwrap();
        assert!(db.get(&tree, name.as_bytes()).unwrap().as_deref() == Some(&value[..]));
        let txn = begin(db);
        let mut cursor = txn.cursor(&tree, CursorOptions::default()).unwrap();
        assert!(collect(&mut cursor).unwrap().iter().any(|(key, _)| key == name.as_bytes()));
        txn.delete(&tree, b"other").unwrap();
        txn.commit().unwrap();
    };
    let ending = db.clone();
    std::thread::spawn(move || {
        let last = ending.clone();
        // What is made first is dropped last: the engine's own memory of the thread has gone by then.
        AT_END.with(|at_end| *at_end.0.borrow_mut() = Some(Box::new(move || work(&last, "at the end"))));
        work(&ending, "before");
    })
    .join()
    .unwrap();
    assert!(db.get(&tree, b"at the end").unwrap().is_some() && db.get(&tree, b"before").unwrap().is_some());
}
