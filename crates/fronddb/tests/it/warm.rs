//! After a restart the blocks that were hot are read again.

use std::path::Path;
use std::time::{Duration, Instant};

use fronddb::Database;
use fronddb::io::{MemoryStorage, Storage};

use crate::support::{DIRECTORY, options};

const KEYS: std::ops::Range<u32> = 2000..2050;

fn open(storage: &MemoryStorage) -> Database {
    Database::open(DIRECTORY, options(storage).manual_background(false)).unwrap()
}

fn read(db: &Database) {
    let tree = db.open_tree("t").unwrap();
    for number in KEYS {
        assert!(db.get(&tree, &number.to_be_bytes()).unwrap().is_some());
    }
}

/// Blocks that reading the keys after a reopening brings into the cache, once the database says that it is warm.
fn misses_after_reopening(storage: &MemoryStorage) -> u64 {
    let db = open(storage);
    let began = Instant::now();
    while !db.is_warm() {
        assert!(began.elapsed() < Duration::from_secs(60), "warming comes to its end");
        std::thread::sleep(Duration::from_millis(2));
    }
    db.open_tree("t").unwrap();
    let before = db.statistics().unwrap().cache_misses;
    read(&db);
    db.statistics().unwrap().cache_misses - before
}

#[test]
fn hot_blocks_come_back_and_a_missing_or_damaged_list_is_no_list() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let tree = db.create_tree("t", &Default::default()).unwrap();
    let mut batch = fronddb::WriteBatch::new();
    for number in 0..5000u32 {
        batch.put(&tree, &number.to_be_bytes(), &number.wrapping_mul(0x9e37_79b9).to_be_bytes().repeat(10)).unwrap();
    }
    db.write(&batch, Default::default()).unwrap();
    // Nothing is left to be compacted after a reopening: new blocks would be cold ones.
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    db.checkpoint().unwrap();
    db.wait_idle().unwrap();
    read(&db);
    db.close().unwrap();
    let warm = misses_after_reopening(&storage);

    let list = Path::new(DIRECTORY).join("hot-keys");
    storage.flip_bit(&list, 20, 3).unwrap();
    let cold = misses_after_reopening(&storage);
    assert!(warm < cold, "warm={warm} cold={cold}");
    storage.remove(&list).unwrap();
    assert!(misses_after_reopening(&storage) > warm);
}

/// Nobody reads ahead of use there, so nothing is left to be waited for.
#[test]
fn a_database_that_is_open_read_only_is_warm_from_the_start() {
    let storage = MemoryStorage::new();
    open(&storage).close().unwrap();
    let options = options(&storage).manual_background(false).create_if_missing(false);
    let db = Database::open(DIRECTORY, options.read_only(true)).unwrap();
    assert!(db.is_warm());
}
