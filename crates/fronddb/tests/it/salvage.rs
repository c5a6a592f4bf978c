//! Salvage: how much a damaged log costs, what it makes up of messages without their row, and what it leaves behind if it fails.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, OpenMode, Storage, read_file};
use fronddb::{CheckOptions, Database, ErrorKind, LogAction, TreeOptions, check, log_records, salvage};

use crate::damage::{data_file, read};
use crate::support::{DIRECTORY, Random, begin, fresh, open, options};

fn on(storage: &MemoryStorage) -> CheckOptions {
    with(Arc::new(storage.clone()))
}

fn with(storage: Arc<dyn Storage>) -> CheckOptions {
    CheckOptions { storage: Some(storage), memory_bytes: 8 << 20, ..CheckOptions::default() }
}

/// A segment's file, and where the segment begins if it was begun.
struct Segment {
    path: PathBuf,
    start: Option<u64>,
}

fn segments(storage: &MemoryStorage) -> Vec<Segment> {
    let paths = storage.files().into_iter().map(|(path, _)| path);
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect();
    paths.sort();
    let of = |path: PathBuf| {
        let bytes = read_file(storage, &path).unwrap();
        let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let number: u64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let start = (field(32) == number).then(|| field(48));
        Segment { path, start }
    };
    paths.into_iter().map(of).collect()
}

/// Rows that only the log has, in three segments of it, as a power failure leaves them; and where the log has each.
fn in_the_log() -> (MemoryStorage, Vec<u64>) {
    let storage = MemoryStorage::new();
    // One memtable holds them all.
    let db = Database::open(DIRECTORY, options(&storage).memory_bytes(16 << 20).level0_bytes(4 << 20)).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    db.checkpoint().unwrap();
    let mut random = Random::new(1);
    for row in 0..2600u32 {
        db.put(&tree, &row.to_be_bytes(), &random.bytes(1000)).unwrap();
    }
    let crashed = storage.snapshot().crash(1);
    drop(db);
    // The next opening prepares a segment and fails before it needs it.
    std::mem::forget(open(&crashed));
    let crashed = crashed.snapshot();
    let lsns = logged(&crashed).0;
    (crashed, lsns)
}

/// Where the log has which writes, and how its reading ended.
fn logged(storage: &MemoryStorage) -> (Vec<u64>, fronddb::Result<()>) {
    let mut lsns = Vec::new();
    let end = log_records(DIRECTORY, &on(storage), &mut |event| {
        if matches!(event.action, LogAction::Message { .. }) {
            lsns.push(event.lsn.0);
        }
        true
    });
    (lsns, end)
}

#[test]
fn a_damaged_header_of_a_log_segment_costs_only_what_is_in_it_and_after_it() {
    let (storage, lsns) = in_the_log();
    let segments = segments(&storage);
    let mut kept = Vec::new();
    for (index, Segment { path, start }) in segments.iter().enumerate() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let end = segments[index + 1..].iter().find_map(|next| next.start).unwrap_or(u64::MAX);
        let holds = |lsn: &u64| start.is_some_and(|start| (start..end).contains(lsn));
        // One that was prepared, or that the tree's state needs no more, costs nothing.
        let before = lsns.iter().position(holds).unwrap_or(lsns.len());
        // A flipped bit, and a sector that the disk does not give back.
        for is_flipped in [true, false] {
            let context = format!("file={name} is_flipped={is_flipped}");
            let (copy, plan) = (storage.snapshot(), FaultPlan::new());
            if is_flipped {
                copy.flip_bit(path, 0, 0).unwrap();
            } else {
                plan.add(FaultRule::unreadable(0..512).on(&path.display().to_string()));
            }
            let faulty = with(Arc::new(FaultStorage::new(Arc::new(copy.clone()), plan)));
            let report = salvage(DIRECTORY, "/new", &faulty, &mut |_| {}).unwrap();
            let rows: Vec<u32> =
                read(&copy, "/new").keys().map(|(_, key)| u32::from_be_bytes(key[..].try_into().unwrap())).collect();
            assert_eq!(rows, (0..before as u32).collect::<Vec<_>>(), "{context}: {:#?}", report.findings);
            assert!(
                report.findings.iter().any(|found| found.file.ends_with(name)),
                "{context}: {:#?}",
                report.findings
            );
            assert!(report.log_cut, "{context}");
            if is_flipped {
                let (read, end) = logged(&copy);
                assert_eq!(read, lsns[..before], "{context}");
                let error = end.unwrap_err();
                assert!(error.is_unreadable() && error.to_string().contains(name), "{context}: {error}");
                let report = check(DIRECTORY, &on(&copy), &mut |_| {}).unwrap();
                assert_eq!(report.findings.len(), 1, "{context}: {:#?}", report.findings);
                // As strict as ever.
                let error = Database::open(DIRECTORY, options(&copy)).map(drop).unwrap_err();
                assert!(error.is_unreadable() && error.to_string().contains(name), "{context}: {error}");
            }
        }
        kept.push(before);
    }
    let lossy = kept.iter().filter(|kept| **kept < lsns.len()).count();
    assert!(lossy >= 3 && lossy < kept.len() && segments.last().unwrap().start.is_none(), "{kept:?}");
}

#[test]
fn an_insert_above_a_lost_row_makes_up_no_value() {
    let (storage, db, tree) = fresh();
    let mut random = Random::new(2);
    let rows: Vec<_> = (0..600u32).map(|row| (row.to_be_bytes(), random.bytes(100))).collect();
    rows.iter().for_each(|(key, value)| db.put(&tree, key, value).unwrap());
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    let txn = begin(&db);
    rows.iter().for_each(|(key, _)| txn.insert_if_absent(&tree, key, b"made up").unwrap());
    txn.insert_if_absent(&tree, b"new", b"inserted").unwrap();
    txn.commit().unwrap();
    let crashed = storage.snapshot();
    drop(db);
    let bytes = read_file(&crashed, &data_file()).unwrap();
    let mut lost = 0;
    for offset in (0..bytes.len()).filter(|offset| bytes[*offset] != 0).step_by(1500) {
        let copy = crashed.snapshot();
        copy.flip_bit(&data_file(), offset as u64, 3).unwrap();
        let Ok(report) = salvage(DIRECTORY, "/new", &on(&copy), &mut |_| {}) else { continue };
        let rescued = read(&copy, "/new");
        for ((_, key), value) in &rescued {
            let is_row = rows.iter().any(|(known, row)| known[..] == key[..] && row == value);
            let is_new = key == b"new" && value == b"inserted";
            assert!(is_row || is_new, "offset={offset} key={key:?} value={value:?}: {:#?}", report.findings);
        }
        let missing = rows.len() + 1 - rescued.len();
        assert!(missing == 0 || !report.findings.is_empty(), "offset={offset} missing={missing}");
        lost += usize::from(missing > 0);
    }
    assert!(lost > 10, "lost={lost}");
}

#[test]
fn a_salvage_that_fails_leaves_nothing_that_opens() {
    let (storage, _) = in_the_log();
    let (mut failed, mut nth) = (0, 1);
    loop {
        let (copy, plan) = (storage.snapshot(), FaultPlan::new());
        plan.add(FaultRule::once(CallClass::Write, nth, Fault::NoSpace).on("/new/"));
        let faulty = with(Arc::new(FaultStorage::new(Arc::new(copy.clone()), plan.clone())));
        let salvaged = salvage(DIRECTORY, "/new", &faulty, &mut |_| {});
        if plan.fired() == 0 {
            salvaged.unwrap();
            break;
        }
        if salvaged.is_err() {
            let opened = Database::open("/new", options(&copy).create_if_missing(false)).map(drop);
            assert_eq!(opened.unwrap_err().kind(), ErrorKind::NotFound, "nth={nth}");
            failed += 1;
            // What is left is no hindrance.
            salvage(DIRECTORY, "/new", &on(&copy), &mut |_| {}).unwrap_or_else(|error| panic!("nth={nth}: {error}"));
        }
        assert!(copy.exists(Path::new(DIRECTORY)).unwrap());
        nth += 1;
    }
    assert!(failed > 3, "failed={failed} of {nth}");
}

#[test]
fn a_salvage_into_a_directory_with_files_is_refused_and_leaves_them() {
    let (storage, _) = in_the_log();
    for file in ["/new/letter", "/new/log/letter"].map(Path::new) {
        let copy = storage.snapshot();
        copy.create_dir_all(file.parent().unwrap()).unwrap();
        copy.open(file, OpenMode { create: true, ..OpenMode::default() }).unwrap().write_at(&[7; 4096], 0).unwrap();
        let plan = FaultPlan::new();
        plan.add(FaultRule::from(CallClass::Write, 2, Fault::NoSpace).on("/new/"));
        let faulty = with(Arc::new(FaultStorage::new(Arc::new(copy.clone()), plan)));
        let refused = salvage(DIRECTORY, "/new", &faulty, &mut |_| {}).map(drop);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument, "{}", file.display());
        assert!(copy.exists(file).unwrap(), "{}", file.display());
    }
}
