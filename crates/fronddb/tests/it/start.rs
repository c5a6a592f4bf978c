//! A start reads little, however large the database is, and keeps a report.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fronddb::io::{Event, MemoryStorage, Storage, TraceStorage, read_file};
use fronddb::{Database, WriteBatch};

use crate::support::{DIRECTORY, fresh, open, options};

/// A database of so many rows, all of them in the tree; then a few that are in the log alone.
fn database(rows: u32) -> (MemoryStorage, Database) {
    let storage = MemoryStorage::new();
    let db = Database::open(DIRECTORY, options(&storage)).unwrap();
    let tree = db.create_tree("t", &Default::default()).unwrap();
    let write = |numbers: std::ops::Range<u32>| {
        let mut batch = WriteBatch::new();
        for number in numbers {
            let value = number.wrapping_mul(0x9e37_79b9).to_be_bytes().repeat(10);
            batch.put(&tree, &number.reverse_bits().to_be_bytes(), &value).unwrap();
        }
        db.write(&batch, Default::default()).unwrap();
    };
    for first in (0..rows).step_by(500) {
        write(first..first + 500);
        while db.step_background().unwrap() {}
    }
    db.checkpoint().unwrap();
    db.wait_idle().unwrap();
    write(rows..rows + 10);
    (storage, db)
}

/// Bytes read by opening the database, and by a first read after it.
fn bytes_read_by_starting(storage: &MemoryStorage, rows: u32) -> (u64, u64) {
    let traced = TraceStorage::new(storage);
    let read = || {
        let bytes = |event: &Event| if let Event::Read { bytes, .. } = event { *bytes as u64 } else { 0 };
        traced.events().iter().map(bytes).sum::<u64>()
    };
    let db = Database::open(DIRECTORY, options(storage).storage(Some(Arc::new(traced.clone())))).unwrap();
    let opening = read();
    let tree = db.open_tree("t").unwrap();
    assert!(db.get(&tree, &(rows / 2).reverse_bits().to_be_bytes()).unwrap().is_some());
    assert!(db.get(&tree, &(rows + 5).reverse_bits().to_be_bytes()).unwrap().is_some());
    (opening, read() - opening)
}

#[test]
fn the_report_counts_the_segments_that_were_replayed() {
    let (storage, db, tree) = fresh();
    let report = db.recovery_report().unwrap();
    assert_eq!((report.created, report.segments), (true, 0));
    db.put(&tree, b"one", b"segment").unwrap();
    let reopened = |storage: &MemoryStorage| Database::open(DIRECTORY, options(storage)).unwrap();
    let report = reopened(&storage.snapshot()).recovery_report().unwrap();
    assert_eq!((report.created, report.segments), (false, 1), "{report:?}");
    // Each sealed memtable leaves one behind.
    let begun = |storage: &MemoryStorage| {
        let logs = storage.files().into_iter().map(|(path, _)| path).filter(|path| path.extension().is_some());
        let logs = logs.filter(|path| path.extension().is_some_and(|end| end == "log"));
        logs.filter(|path| read_file(storage, path).unwrap().iter().take(4096).any(|byte| *byte != 0)).count() as u64
    };
    for number in 0..200u32 {
        db.put(&tree, &number.to_be_bytes(), &[7; 500]).unwrap();
    }
    let crashed = storage.snapshot();
    let report = reopened(&crashed).recovery_report().unwrap();
    assert!(report.segments >= 2, "{report:?}");
    assert!(report.segments <= begun(&crashed), "{report:?} begun={}", begun(&crashed));
    assert!(report.to_json().contains(&format!("\"segments\":{}", report.segments)), "{}", report.to_json());
}

#[test]
fn opening_and_a_first_read_take_no_more_of_a_large_database_than_of_a_small_one() {
    for (rows, data_bytes_min) in [(1_000, 20 << 10), (60_000, 2 << 20)] {
        let (storage, db) = database(rows);
        let crashed = storage.snapshot();
        let data_bytes = storage.files().iter().find(|(path, _)| path.ends_with("data.frond")).unwrap().1;
        assert!(data_bytes >= data_bytes_min, "rows={rows} bytes={data_bytes}");
        db.close().unwrap();

        let (opening, reading) = bytes_read_by_starting(&storage, rows);
        assert!(opening <= 256 << 10, "after closing, rows={rows} opening={opening}");
        assert!(reading <= 96 << 10, "after closing, rows={rows} reading={reading}");

        // The whole segment of the log here, which is shorter than what is looked through for records after the end.
        let (opening, reading) = bytes_read_by_starting(&crashed, rows);
        assert!(opening <= (256 << 10) + (3 << 20), "after a crash, rows={rows} opening={opening}");
        assert!(reading <= 96 << 10, "after a crash, rows={rows} reading={reading}");
    }
}

/// What is kept for people of the last start, if anything is.
fn kept(storage: &MemoryStorage) -> Option<String> {
    let path = Path::new(DIRECTORY).join("recovery.json");
    let is_there = storage.exists(&path).unwrap();
    is_there.then(|| String::from_utf8(read_file(storage, &path).unwrap()).unwrap())
}

#[test]
fn the_report_of_a_start_is_kept_by_the_first_background_work() {
    let (storage, db, tree) = fresh();
    assert_eq!(kept(&storage), None);
    db.step_background().unwrap();
    assert_eq!(kept(&storage), Some(db.recovery_report().unwrap().to_json()));
    assert!(kept(&storage).unwrap().contains("\"created\":true"));
    for row in 0..7u32 {
        db.put(&tree, &row.to_be_bytes(), b"v").unwrap();
    }
    let storage = storage.crash(3);
    let db = open(&storage);
    let report = db.recovery_report().unwrap();
    assert!(report.messages >= 7, "{report:?}");
    assert!(kept(&storage).unwrap().contains("\"created\":true"), "of the start before");
    db.step_background().unwrap();
    assert_eq!(kept(&storage), Some(report.to_json()));
}

#[test]
fn a_start_with_threads_keeps_its_report_soon_and_one_that_only_reads_none() {
    let (storage, db, tree) = fresh();
    db.put(&tree, b"k", b"v").unwrap();
    db.close().unwrap();
    let read_only = options(&storage).create_if_missing(false).read_only(true).manual_background(false);
    let db = Database::open(DIRECTORY, read_only).unwrap();
    let _ = db.step_background();
    assert!(db.recovery_report().unwrap().messages > 0);
    db.close().unwrap();
    assert_eq!(kept(&storage), None);
    let db = Database::open(DIRECTORY, options(&storage).manual_background(false)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while kept(&storage) != Some(db.recovery_report().unwrap().to_json()) {
        assert!(Instant::now() < deadline, "{:?}", kept(&storage));
        std::thread::yield_now();
    }
}
