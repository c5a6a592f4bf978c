//! Statistics against what is known of the workload: bytes as the storage saw them, blocks of a tree whose blocks can be
//! counted, histograms of events that can be counted.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use fronddb::format::blob::head_bytes;
use fronddb::io::{Event, MemoryStorage, TraceStorage};
use fronddb::{
    BulkOptions, CursorOptions, Database, Distribution, Op, Program, Statistics, Tree, TreeOptions, TreeTraffic,
};

use crate::support::{BLOB_BYTES_MIN, DIRECTORY, Random, begin, collect, open, options};

/// Bytes written to files whose path contains `part`, zeros that fill them not counted, and their syncs.
fn traced(trace: &TraceStorage, part: &str) -> (u64, u64) {
    let mut names: HashMap<u64, PathBuf> = HashMap::new();
    let (mut bytes, mut syncs) = (0, 0);
    for event in trace.events() {
        let is_meant = |file: &u64| names[file].to_string_lossy().contains(part);
        match event {
            Event::Open { file, path, .. } => {
                names.insert(file, path);
            }
            Event::Write { file, data, .. } if is_meant(&file) && data.iter().any(|byte| *byte != 0) => {
                bytes += data.len() as u64;
            }
            Event::Sync { file } | Event::Persist { file, .. } if is_meant(&file) => syncs += 1,
            _ => {}
        }
    }
    (bytes, syncs)
}

fn json_number(statistics: &Statistics, object: &str, name: &str) -> f64 {
    let json = statistics.to_json();
    let inside = json.split_once(&format!("\"{object}\":{{")).unwrap().1.split('}').next().unwrap();
    let value = inside.split_once(&format!("\"{name}\":")).unwrap().1;
    value.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn bytes_by_tree_are_those_of_the_whole() {
    let memory = MemoryStorage::new();
    let db = Database::open(DIRECTORY, options(&memory)).unwrap();
    let names = ["large", "small", "tiny", "loaded", "empty"];
    let [large, small, tiny, loaded, _] = names.map(|name| db.create_tree(name, &TreeOptions::default()).unwrap());
    let mut random = Random::new(5);
    let mut value = |bytes: usize| (0..bytes).map(|_| random.next() as u8).collect::<Vec<u8>>();
    for round in 0..4u32 {
        for row in 0..2000u32 {
            db.put(&large, &row.to_be_bytes(), &value(100)).unwrap();
        }
        for row in 0..50u32 {
            db.put(&small, &(50 * round + row).to_be_bytes(), &value(20)).unwrap();
        }
        db.checkpoint().unwrap();
        db.wait_idle().unwrap();
    }
    db.put(&tiny, b"key", &value(BLOB_BYTES_MIN)).unwrap();
    db.delete(&tiny, b"another").unwrap();
    let txn = begin(&db);
    let mut load = txn.bulk(&loaded, &BulkOptions::default()).unwrap();
    for row in 0..500u32 {
        load.add(&row.to_be_bytes(), &value(60)).unwrap();
    }
    load.finish(&mut |_| true).unwrap();
    drop(load);
    txn.commit().unwrap();
    db.checkpoint().unwrap();
    db.wait_idle().unwrap();
    let of: HashMap<String, TreeTraffic> =
        db.trees().unwrap().into_iter().map(|tree| (tree.name, tree.traffic)).collect();
    let user = names.map(|name| of[name].user_bytes);
    assert_eq!(user, [4 * 2000 * 104, 4 * 50 * 24, 3 + BLOB_BYTES_MIN as u64 + 7, 500 * 64, 0]);
    // Random bytes compress badly: each is written at least once; those of many rounds more often.
    let written = names.map(|name| of[name].bytes_written);
    assert!(written[0] > 11 * user[0] / 10 && written[0] < 6 * user[0], "written={} user={}", written[0], user[0]);
    assert!(written[1] > user[1] / 2 && written[1] < 20 * user[1], "written={} user={}", written[1], user[1]);
    assert!(written[2] >= BLOB_BYTES_MIN as u64 && written[2] < BLOB_BYTES_MIN as u64 + 8192, "written={}", written[2]);
    assert!(written[3] > user[3] * 9 / 10 && written[3] < 2 * user[3], "written={} user={}", written[3], user[3]);
    assert_eq!(written[4], 0);
    let all = db.statistics().unwrap();
    let whole = all.seal_bytes + all.flush_bytes + all.compact_bytes + all.blob_bytes;
    let sum: u64 = written.iter().sum();
    // The catalog is a tree, too, and padding is nobody's.
    assert!(sum <= whole && sum > whole * 95 / 100, "sum={sum} whole={whole}");
}

#[test]
fn bytes_by_cause_are_those_that_reached_the_files() {
    let trace = TraceStorage::new(&MemoryStorage::new());
    let plain = options(trace.storage());
    let db = Database::open(DIRECTORY, plain.storage(Some(Arc::new(trace.clone())))).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let before = db.statistics().unwrap();
    let (log_before, data_before) = (traced(&trace, "log"), traced(&trace, "data.frond"));
    let (mut random, mut user) = (Random::new(3), 0);
    let mut value = |bytes: usize| (0..bytes).map(|_| random.next() as u8).collect::<Vec<u8>>();
    for row in 0..3000u32 {
        let value = value(if row % 500 == 0 { BLOB_BYTES_MIN + 10 } else { 100 });
        db.put(&tree, &(row % 2000).to_be_bytes(), &value).unwrap();
        user += 4 + value.len() as u64;
    }
    db.checkpoint().unwrap();
    db.wait_idle().unwrap();
    db.checkpoint().unwrap();
    let now = db.statistics().unwrap();
    let (log, data) = (traced(&trace, "log"), traced(&trace, "data.frond"));
    assert_eq!(now.user_bytes - before.user_bytes, user);
    let of = |field: fn(&Statistics) -> u64| field(&now) - field(&before);
    assert_eq!(of(|all| all.log_bytes_written), log.0 - log_before.0);
    let data_bytes =
        of(|all| all.blob_bytes + all.seal_bytes + all.flush_bytes + all.compact_bytes + all.publish_bytes);
    assert_eq!(data_bytes, data.0 - data_before.0);
    // One sync may concern two files.
    let (syncs, log_syncs) = (log.1 - log_before.1, of(|all| all.log_syncs));
    assert!((log_syncs..log_syncs + 20).contains(&syncs), "syncs={syncs} log_syncs={log_syncs}");
    // Each row went into the log once, blobs but for their heads into the data file at once, and level 0 into a run once.
    let blobs = 6 * (BLOB_BYTES_MIN + 10 - head_bytes(BLOB_BYTES_MIN + 10)) as u64;
    let log_bytes = of(|all| all.log_bytes);
    assert!((user - blobs..2 * user).contains(&log_bytes), "log_bytes={log_bytes} user={user}");
    let blob_bytes = of(|all| all.blob_bytes);
    assert!((blobs..blobs + 6 * 4096).contains(&blob_bytes), "blob_bytes={blob_bytes}");
    let seal_bytes = of(|all| all.seal_bytes);
    assert!((user - blobs..2 * user).contains(&seal_bytes), "seal_bytes={seal_bytes} user={user}");
    assert!(of(|all| all.compact_bytes) > 0 && of(|all| all.blocks_read_bulk) > 0);
    let told = now.amplification();
    let by_cause = [
        ("log", told.log, now.log_bytes_written),
        ("blob", told.blob, now.blob_bytes),
        ("seal", told.seal, now.seal_bytes),
        ("flush", told.flush, now.flush_bytes),
        ("compact", told.compact, now.compact_bytes),
        ("publish", told.publish, now.publish_bytes),
    ];
    for (name, told, bytes) in by_cause {
        let real = bytes as f64 / now.user_bytes as f64;
        let shown = json_number(&now, "amplification", name);
        assert!((shown - real).abs() < 0.001 && (told - real).abs() < 1e-9, "{name}={told} shown={shown}");
    }
    let write = by_cause.iter().map(|(_, _, bytes)| bytes).sum::<u64>() as f64 / now.user_bytes as f64;
    assert!((now.write_amplification() - write).abs() < 1e-9 && told.write == now.write_amplification());
}

/// A tree of leaves with nothing pending above them and nothing of them cached, but for what opening it reads.
fn leaves(storage: &MemoryStorage) -> (Database, Tree) {
    let db = open(storage);
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let mut random = Random::new(5);
    let value: Vec<u8> = (0..200).map(|_| random.next() as u8).collect();
    for row in 0..ROWS {
        db.put(&tree, &(2 * row).to_be_bytes(), &value).unwrap();
    }
    db.checkpoint().unwrap();
    db.compact(None, &[], &[], &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
    let db = open(storage);
    let tree = db.open_tree("t").unwrap();
    (db, tree)
}

const ROWS: u32 = 4000;

fn scan(db: &Database, tree: &Tree) -> usize {
    let txn = begin(db);
    collect(&mut txn.cursor(tree, CursorOptions::default()).unwrap()).unwrap().len()
}

#[test]
fn reads_are_counted_for_whom_they_were_made() {
    let storage = MemoryStorage::new();
    let (db, tree) = leaves(&storage);
    // The catalog was looked into.
    let start = db.statistics().unwrap();
    let since = |now: &Statistics| (now.gets - start.gets, now.blocks_read_point - start.blocks_read_point);
    // The first read wants filter, index and the block of the row, the second finds them, the filter answers the third.
    assert!(db.get(&tree, &ROWS.to_be_bytes()).unwrap().is_some());
    let first = db.statistics().unwrap();
    assert_eq!(since(&first), (1, 3));
    assert!(db.get(&tree, &ROWS.to_be_bytes()).unwrap().is_some());
    assert!(db.get(&tree, &(ROWS + 1).to_be_bytes()).unwrap().is_none());
    let read = db.statistics().unwrap();
    assert_eq!(since(&read), (3, 3));
    assert_eq!(read.run_lookups - start.run_lookups, 3);
    assert_eq!(read.filter_positives - start.filter_positives, 2);
    assert_eq!(read.filter_negatives - start.filter_negatives, 1);
    assert_eq!(read.filter_false_positives, 0);
    let per_get = read.blocks_read_point as f64 / read.gets as f64;
    assert!((read.read_amplification() - per_get).abs() < 1e-9);
    assert!((json_number(&read, "amplification", "read") - per_get).abs() < 1e-3);
    // A scan reads, and point reads are not charged for it.
    assert_eq!(scan(&db, &tree), ROWS as usize);
    let scanned = db.statistics().unwrap();
    assert_eq!(since(&scanned), (3, 3));
    let parts = scanned.blocks_read_point + scanned.blocks_read_scan + scanned.blocks_read_meta;
    assert_eq!(scanned.blocks_read, parts);
    assert!((scanned.read_amplification() - per_get).abs() < 1e-9);
    assert_eq!((scanned.blocks_read_bulk, read.blocks_read_bulk), (0, 0));
    db.check(&mut |_| {}, None).unwrap();
    let checked = db.statistics().unwrap();
    assert!(checked.blocks_read_bulk >= 2 && since(&checked) == (3, 3), "{checked:?}");
    // A uniqueness check is a point read too, of a write.
    begin(&db).insert(&tree, &(ROWS + 3).to_be_bytes(), b"v").unwrap();
    let inserted = db.statistics().unwrap();
    assert_eq!((since(&inserted), inserted.write_checks), ((3, 3), 1));
    let per_read = inserted.blocks_read_point as f64 / (inserted.gets + 1) as f64;
    assert!((inserted.read_amplification() - per_read).abs() < 1e-9);
}

#[test]
fn a_scan_of_an_unread_tree_is_no_read_per_get() {
    let storage = MemoryStorage::new();
    let (db, tree) = leaves(&storage);
    let before = db.statistics().unwrap();
    assert_eq!(scan(&db, &tree), ROWS as usize);
    let after = db.statistics().unwrap();
    assert!(after.blocks_read_scan > before.blocks_read_scan, "{after:?}");
    assert_eq!((after.blocks_read_point, after.gets), (before.blocks_read_point, before.gets));
    assert_eq!(after.read_amplification(), before.read_amplification());
}

fn assert_in_order(times: &Distribution) {
    let percentiles = [times.p50_micros, times.p95_micros, times.p99_micros, times.p999_micros];
    assert!(percentiles.is_sorted(), "{times:?}");
    assert!(times.sum_micros <= times.count * times.max_micros, "{times:?}");
}

#[test]
fn histograms_hold_as_many_events_as_there_were() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let before = db.statistics().unwrap();
    for row in 0..64u32 {
        db.get(&tree, &row.to_be_bytes()).unwrap();
    }
    let read = db.statistics().unwrap();
    assert_eq!(read.gets - before.gets, 64);
    assert_eq!(read.read.count - before.read.count, 4, "one in sixteen");
    assert_in_order(&read.read);
    assert_eq!((read.stall.count, read.stalls), (0, 0));
    // Nobody seals and flushes but the writers, once level 0 has no room left for them.
    let mut rows = 0u32;
    while db.statistics().unwrap().stalls < 3 {
        db.put(&tree, &rows.to_be_bytes(), &[7; 1000]).unwrap();
        rows += 1;
        assert!(rows < 20_000, "no writer was ever stopped");
    }
    let stopped = db.statistics().unwrap();
    assert_eq!((stopped.stall.count, stopped.stalls), (3, 3));
    assert_in_order(&stopped.stall);
    assert_in_order(&stopped.commit);
    assert_eq!(stopped.commit.count - before.commit.count, u64::from(rows));
    assert_eq!(stopped.log_sync.count, stopped.log_syncs);
    assert_in_order(&stopped.log_sync);
    assert_eq!(json_number(&stopped, "stall", "count"), 3.0);
    assert_eq!(json_number(&stopped, "read", "count"), read.read.count as f64);
}

#[test]
fn messages_that_need_no_read_read_nothing() {
    let storage = MemoryStorage::new();
    let (db, tree) = leaves(&storage);
    // The first write of all looks where there is space in the file.
    db.create_tree("other", &TreeOptions::default()).unwrap();
    let key = |number: u32| number.to_be_bytes();
    let mut append = Vec::new();
    Program { ops: vec![Op::Append { bytes: b"!".to_vec() }] }.encode(&mut append);
    let before = db.statistics().unwrap();
    let txn = begin(&db);
    txn.put(&tree, &key(0), b"put").unwrap();
    txn.put(&tree, &key(1), b"new").unwrap();
    txn.insert_if_absent(&tree, &key(2), b"too late").unwrap();
    txn.insert_if_absent(&tree, &key(3), b"absent").unwrap();
    txn.delete(&tree, &key(4)).unwrap();
    txn.delete(&tree, &key(5)).unwrap();
    txn.single_delete(&tree, &key(6)).unwrap();
    txn.update(&tree, &key(8), &append).unwrap();
    txn.delete_range(&tree, &key(100), &key(200)).unwrap();
    txn.commit().unwrap();
    let after = db.statistics().unwrap();
    assert_eq!(after.messages - before.messages, 9);
    let reads = |all: &Statistics| (all.blocks_read, all.blocks_read_bulk, all.bytes_read, all.write_checks, all.gets);
    assert_eq!(reads(&after), reads(&before));
    let txn = begin(&db);
    let value = |number: u32| txn.get(&tree, &key(number)).unwrap().map(|value| value.to_vec());
    let old = value(10).unwrap();
    assert_eq!(old.len(), 200);
    assert_eq!([0, 1, 3].map(value), [b"put".to_vec(), b"new".to_vec(), b"absent".to_vec()].map(Some));
    assert_eq!(value(2).as_ref(), Some(&old));
    assert_eq!([4, 5, 6, 100, 198].map(value), [const { None }; 5]);
    assert_eq!(value(8), Some([&old[..], b"!"].concat()));
    assert_eq!([98, 200].map(value), [Some(old.clone()), Some(old)]);
    drop(txn);
    // Two are new, two are deleted one by one and fifty together.
    assert_eq!(scan(&db, &tree), ROWS as usize + 2 - 2 - 50);
}
