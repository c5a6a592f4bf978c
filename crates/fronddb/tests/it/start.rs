//! A start reads little, however large the database is, and keeps a report.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fronddb::io::{Event, MemoryStorage, Storage, TraceStorage, read_file};
use fronddb::{CursorOptions, Database, Options, TreeOptions, WriteBatch};

use crate::support::{DIRECTORY, Random, begin, collect, fresh, open, options};

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

/// What a start made of the log.
#[derive(Debug, PartialEq, Eq)]
struct Replayed {
    /// Records, messages, transactions committed, aborted and prepared.
    counts: [u64; 5],
    trees: [Vec<(Vec<u8>, Vec<u8>)>; 2],
}

/// Some MiB of log: transactions that commit, roll back, go back to a savepoint and delete ranges, some of them unfinished,
/// one prepared.
fn eventful(options: impl Fn(&MemoryStorage) -> Options) -> MemoryStorage {
    let storage = MemoryStorage::new();
    let db = Database::open(DIRECTORY, options(&storage)).unwrap();
    let trees = ["first", "second"].map(|name| db.create_tree(name, &TreeOptions::default()).unwrap());
    let mut random = Random::new(8);
    let mut unfinished = Vec::new();
    for number in 0..1_000u32 {
        let txn = begin(&db);
        let mut put = |rows: u32| {
            for _ in 0..rows {
                let row = 1_000 * number + random.below(1_000) as u32;
                let bytes = random.below(600) as usize;
                txn.put(&trees[random.below(2) as usize], &row.to_be_bytes(), &random.bytes(bytes)).unwrap();
            }
        };
        put(8);
        if number % 5 == 1 {
            let mark = txn.savepoint().unwrap();
            put(8);
            txn.rollback_to(mark).unwrap();
            put(2);
        }
        if number % 7 == 2 {
            // Something of its own, something of the one before.
            let (lower, upper) = (1_000 * number.saturating_sub(1) + 600, 1_000 * number + 400);
            txn.delete_range(&trees[0], &lower.to_be_bytes(), &upper.to_be_bytes()).unwrap();
            put(2);
        }
        match number % 10 {
            3 => txn.rollback().unwrap(),
            _ if number == 502 => txn.prepare(b"waits").unwrap(),
            // Those after it delete nothing of it, which is locked.
            9 if number % 7 != 1 => unfinished.push(txn),
            _ => txn.commit().unwrap(),
        }
    }
    storage.crash(5)
}

#[test]
fn a_log_that_several_threads_read_is_replayed_as_by_one() {
    let options = |storage: &MemoryStorage| options(storage).memory_bytes(64 << 20).level0_bytes(16 << 20);
    let crashed = eventful(options);
    let replay = |is_alone: bool| {
        let image = crashed.snapshot();
        let db = Database::open(DIRECTORY, options(&image).manual_background(is_alone)).unwrap();
        let report = db.recovery_report().unwrap();
        assert!(report.bytes_replayed > 3 << 20, "{report:?}");
        assert_eq!(report.phase_micros.map(|(name, _)| name), ["roots", "log", "sort", "transactions"]);
        let phases: u64 = report.phase_micros.iter().map(|(_, micros)| micros).sum();
        assert!(phases <= report.total_micros, "{report:?}");
        let rows = |name: &str| {
            let txn = begin(&db);
            collect(&mut txn.cursor(&db.open_tree(name).unwrap(), CursorOptions::default()).unwrap()).unwrap()
        };
        let trees = [rows("first"), rows("second")];
        db.check(&mut |finding| panic!("{finding:?}"), None).unwrap();
        let counts = [report.records, report.messages, report.committed, report.aborted, report.prepared];
        Replayed { counts, trees }
    };
    let alone = replay(true);
    let [_, messages, committed, aborted, prepared] = alone.counts;
    assert!(messages > 8_000 && committed > 700 && aborted > 0 && prepared == 1, "{:?}", alone.counts);
    assert!(alone.trees.iter().all(|rows| rows.len() > 2_000));
    for _ in 0..3 {
        let together = replay(false);
        assert_eq!(together.counts, alone.counts);
        assert!(together.trees == alone.trees, "other rows");
    }
}
