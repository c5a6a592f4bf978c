//! A log in a directory of its own; a log that is not there, not whole, or another database's; a creation that was interrupted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fronddb::io::{
    CallClass, CrashMode, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, OpenMode, Storage, read_file,
};
use fronddb::{CheckOptions, Database, Error, ErrorKind, LogAction, Options, TreeOptions, check, log_records, salvage};

use crate::support::{DIRECTORY, begin, open, options};

const LOG: &str = "/fast/log";

fn named<'a>(storage: &MemoryStorage, log: impl Into<Option<&'a str>>) -> Options {
    options(storage).log_dir(log.into().map(PathBuf::from))
}

fn offline<'a>(storage: &MemoryStorage, log: impl Into<Option<&'a str>>) -> CheckOptions {
    let log_dir = log.into().map(PathBuf::from);
    CheckOptions { log_dir, memory_bytes: 8 << 20, storage: Some(Arc::new(storage.clone())) }
}

/// A database at `directory` whose log is at `log`: a row in the tree, another in the log. As a kill leaves it.
fn make(storage: &MemoryStorage, directory: &str, log: &str) {
    let db = Database::open(directory, named(storage, log)).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    db.put(&tree, b"in the tree", b"1").unwrap();
    db.checkpoint().unwrap();
    db.put(&tree, b"in the log", b"2").unwrap();
    std::mem::forget(db);
}

/// Files of a directory with what is in them, but for that by which a log is locked.
fn content(storage: &MemoryStorage, dir: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let files = storage.files().into_iter().map(|(path, _)| path).filter(|path| path.starts_with(dir));
    let files = files.filter(|path| !path.ends_with("LOG-LOCK"));
    files.map(|path| (path.clone(), read_file(storage, &path).unwrap())).collect()
}

fn is_told(error: &Error, words: &[&str]) {
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    words.iter().for_each(|word| assert!(error.to_string().contains(word), "{word:?} is missing: {error}"));
}

/// Whoever looks at the database with this log directory is told so, and nothing there is changed.
fn is_refused(storage: &MemoryStorage, log: &str, words: &[&str]) {
    // The databases of `storage` are still open, as far as its locks know.
    let storage = storage.snapshot();
    let before = content(&storage, log);
    let options = named(&storage, log);
    let tried = [
        Database::open(DIRECTORY, options.clone()).map(drop),
        Database::open(DIRECTORY, options.create_if_missing(false).read_only(true)).map(drop),
        log_records(DIRECTORY, &offline(&storage, log), &mut |_| true),
    ];
    tried.into_iter().for_each(|tried| is_told(&tried.unwrap_err(), words));
    let report = check(DIRECTORY, &offline(&storage, log), &mut |_| {}).unwrap();
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    let found = &report.findings[0];
    assert!(words.iter().all(|word| found.message.contains(word)) && found.file.contains("log"), "{found:?}");
    let salvaged = salvage(DIRECTORY, "/rescued", &offline(&storage, log), &mut |_| {}).unwrap();
    assert!(salvaged.rows() >= 1 && !salvaged.findings.is_empty(), "{salvaged:?}");
    assert_eq!(content(&storage, log), before);
}

#[test]
fn a_log_in_a_directory_of_its_own_is_used_by_all() {
    let storage = MemoryStorage::new();
    make(&storage, DIRECTORY, LOG);
    for seed in 0..10 {
        let storage = storage.crash(seed);
        assert!(!content(&storage, LOG).is_empty() && content(&storage, "/db/log").is_empty());
        let report = check(DIRECTORY, &offline(&storage, LOG), &mut |_| {}).unwrap();
        assert!(report.is_clean() && report.log_records > 0, "{report:?}");
        let mut keys = Vec::new();
        log_records(DIRECTORY, &offline(&storage, LOG), &mut |event| {
            if let LogAction::Message { key, .. } = event.action {
                keys.push(key.to_vec());
            }
            true
        })
        .unwrap();
        assert_eq!(keys, [b"in the log"]);
        let salvaged = salvage(DIRECTORY, "/rescued", &offline(&storage, LOG), &mut |_| {}).unwrap();
        assert_eq!((salvaged.rows(), salvaged.findings.len()), (2, 0));
        // It is not remembered: who forgets to name it is told.
        is_told(&Database::open(DIRECTORY, options(&storage)).map(drop).unwrap_err(), &["missing", "/db/log"]);
        for round in 0..3u8 {
            let db = Database::open(DIRECTORY, named(&storage, LOG)).unwrap();
            let tree = db.open_tree("t").unwrap();
            for key in [&b"in the tree"[..], b"in the log"] {
                assert!(db.get(&tree, key).unwrap().is_some(), "seed={seed} round={round}");
            }
            assert_eq!(db.get(&tree, b"later").unwrap().map(|value| value[0]), round.checked_sub(1));
            db.put(&tree, b"later", &[round]).unwrap();
            db.close().unwrap();
        }
        assert!(content(&storage, "/db/log").is_empty());
    }
}

#[test]
fn a_log_directory_that_is_empty_or_missing_is_refused() {
    let storage = MemoryStorage::new();
    make(&storage, DIRECTORY, LOG);
    // As a mount point is while its device is not there.
    storage.create_dir_all(Path::new("/slow/log")).unwrap();
    is_refused(&storage, "/slow/log", &["the log is missing", "mount or name", "/slow/log"]);
    is_refused(&storage, "/nowhere/log", &["the log is missing", "/nowhere/log"]);
    for (path, _) in content(&storage, LOG) {
        storage.remove(&path).unwrap();
    }
    is_refused(&storage, LOG, &["the log is missing", LOG]);
}

#[test]
fn the_log_of_another_database_is_refused_and_left_alone() {
    let storage = MemoryStorage::new();
    make(&storage, DIRECTORY, LOG);
    make(&storage, "/other", "/other/log");
    is_refused(&storage, "/other/log", &["another database", "/other/log/"]);
    // One that has no record yet; and none that was not released.
    drop(Database::open("/new", named(&storage, "/new/log")).unwrap());
    is_refused(&storage, "/new/log", &["another database", "/new/log/"]);
    make(&storage, "/third", "/third/log");
    let third = storage.snapshot();
    let db = Database::open("/third", named(&third, "/third/log")).unwrap();
    (0..4).for_each(|_| db.checkpoint().unwrap());
    db.close().unwrap();
    is_refused(&third, "/third/log", &["another database", "/third/log/"]);
}

/// Opens a database of which all is in the tree, does what there is to do in the background, and closes it.
fn rest(storage: &MemoryStorage, directory: &str, log: &str) {
    let db = Database::open(directory, named(storage, log)).unwrap();
    for _ in 0..2 {
        db.checkpoint().unwrap();
        while db.step_background().unwrap() {}
    }
    db.close().unwrap();
}

/// Its own log has nothing for the database then, so nothing in it can be missed.
#[test]
fn the_log_of_another_database_is_refused_by_one_at_rest() {
    let storage = MemoryStorage::new();
    make(&storage, DIRECTORY, LOG);
    make(&storage, "/other", "/other/log");
    let storage = storage.snapshot();
    rest(&storage, DIRECTORY, LOG);
    let new = Database::open("/new", named(&storage, "/new/log")).unwrap();
    while new.step_background().unwrap() {}
    drop(new);
    is_refused(&storage, "/new/log", &["another database", "/new/log/"]);
    for _ in 0..3 {
        rest(&storage, "/other", "/other/log");
        is_refused(&storage, "/other/log", &["another database", "/other/log/"]);
    }
    // As an earlier version left it, until it is opened.
    for (path, _) in content(&storage, "/other/log") {
        storage.overwrite(&path, 0, &[0; 4096]).unwrap();
    }
    rest(&storage, "/other", "/other/log");
    is_refused(&storage, "/other/log", &["another database", "/other/log/"]);
}

#[test]
fn a_log_that_is_in_use_is_refused_to_a_copy_of_its_database() {
    let storage = MemoryStorage::new();
    let db = Database::open(DIRECTORY, named(&storage, LOG)).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    db.put(&tree, b"before", b"1").unwrap();
    storage.create_dir_all(Path::new("/copy")).unwrap();
    for (path, bytes) in content(&storage, DIRECTORY) {
        let mode = OpenMode { create: true, ..OpenMode::default() };
        let copy = storage.open(&Path::new("/copy").join(path.file_name().unwrap()), mode).unwrap();
        copy.write_at(&bytes, 0).unwrap();
    }
    let before = content(&storage, LOG);
    let tried = [
        Database::open("/copy", named(&storage, LOG)).map(drop),
        Database::open("/copy", named(&storage, LOG).create_if_missing(false).read_only(true)).map(drop),
        log_records("/copy", &offline(&storage, LOG), &mut |_| true),
        check("/copy", &offline(&storage, LOG), &mut |_| {}).map(drop),
        salvage("/copy", "/rescued", &offline(&storage, LOG), &mut |_| {}).map(drop),
    ];
    for (number, tried) in tried.into_iter().enumerate() {
        let error = tried.expect_err("in use");
        assert_eq!(error.kind(), ErrorKind::AlreadyOpen, "{number}: {error}");
        assert!(error.to_string().contains("/fast/log/LOG-LOCK"), "{number}: {error}");
    }
    assert_eq!(content(&storage, LOG), before);
    db.put(&tree, b"after", b"2").unwrap();
    db.close().unwrap();
    // Where there is no log to lock, nothing is made: it may be where one is to be mounted.
    storage.create_dir_all(Path::new("/slow/log")).unwrap();
    assert_eq!(Database::open(DIRECTORY, named(&storage, "/slow/log")).unwrap_err().kind(), ErrorKind::Corruption);
    assert_eq!(storage.list(Path::new("/slow/log")).unwrap(), [""; 0]);
    let db = Database::open(DIRECTORY, named(&storage, LOG)).unwrap();
    let tree = db.open_tree("t").unwrap();
    assert!(db.get(&tree, b"before").unwrap().is_some() && db.get(&tree, b"after").unwrap().is_some());
}

/// The begun segment with the highest number.
fn last_segment(storage: &MemoryStorage, log: &str) -> PathBuf {
    let number = |path: &Path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let begun = |(path, bytes): &(PathBuf, Vec<u8>)| bytes[32..40] == number(path).to_le_bytes();
    content(storage, log).into_iter().filter(begun).map(|(path, _)| path).max().unwrap()
}

#[test]
fn a_lost_last_segment_is_missed() {
    // After the first step the log of the generation before is still there, which must not help; later it is not.
    for steps in [1, 20] {
        let storage = MemoryStorage::new();
        let db = Database::open(DIRECTORY, named(&storage, LOG)).unwrap();
        let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
        let mut rows = 0u32;
        let mut put = |count: u32| {
            for _ in 0..count {
                db.put(&tree, &rows.to_be_bytes(), &[1; 1000]).unwrap();
                rows += 1;
            }
            rows
        };
        while db.statistics().unwrap().seals == 0 {
            put(1);
        }
        put(3);
        // What was sealed goes into the tree; the next segment has rows already.
        (0..steps).for_each(|_| _ = db.step_background().unwrap());
        let rows = put(1);
        let lost = storage.crash(1);
        let read = Database::open(DIRECTORY, named(&lost.snapshot(), LOG)).unwrap();
        let tree = read.open_tree("t").unwrap();
        assert!((0..rows).all(|row| read.get(&tree, &row.to_be_bytes()).unwrap().is_some()));
        lost.remove(&last_segment(&lost, LOG)).unwrap();
        is_refused(&lost, LOG, &["ends too early", "missing", LOG]);
    }
}

/// The database is made, works, and is whole.
fn works(storage: &MemoryStorage, log: Option<&str>, context: &str) {
    for round in 0..2u8 {
        let db = match Database::open(DIRECTORY, named(storage, log)) {
            Ok(db) => db,
            Err(error) => panic!("{context}: {error}"),
        };
        if round == 0 {
            let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
            db.put(&tree, b"k", b"v").unwrap();
        }
        let tree = db.open_tree("t").unwrap();
        assert!(begin(&db).get(&tree, b"k").unwrap().is_some(), "{context}");
        db.close().unwrap();
        // What the interrupted creation did is as durable as what came after.
        let lost = storage.crash_with(CrashMode::Lost, 0);
        let db = Database::open(DIRECTORY, named(&lost, log).create_if_missing(false));
        let found = db.and_then(|db| db.get(&db.open_tree("t")?, b"k").map(|value| value.is_some()));
        assert!(matches!(found, Ok(true)), "{context}, after a power loss: {found:?}");
    }
    let report = check(DIRECTORY, &offline(storage, log), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{context}: {report:?}");
}

#[test]
fn an_interrupted_creation_can_be_repeated() {
    for log in [None, Some(LOG)] {
        repeat_interrupted_creations(log);
    }
}

fn repeat_interrupted_creations(log: Option<&str>) {
    let mut interrupted = 0;
    for class in CallClass::ALL {
        for fault in [Fault::Error, Fault::NoSpace] {
            for nth in 1.. {
                let memory = MemoryStorage::new();
                let plan = FaultPlan::new();
                plan.add(FaultRule::from(class, nth, fault));
                let storage = FaultStorage::new(Arc::new(memory.clone()), plan.clone());
                let first = Database::open(DIRECTORY, named(&memory, log).storage(Some(Arc::new(storage))));
                // Dropping it makes calls.
                let fired = plan.fired();
                let failed = first.is_err();
                std::mem::forget(first);
                if fired == 0 {
                    break;
                }
                interrupted += u64::from(failed);
                let context = format!("log at {log:?}, {fault:?} from {class:?} {nth} on");
                works(&memory.snapshot(), log, &context);
                (0..6).for_each(|seed| works(&memory.crash(seed), log, &format!("{context}, then crash {seed}")));
            }
        }
    }
    assert!(interrupted > 30, "interrupted={interrupted}");
}

#[test]
fn a_log_whose_data_file_is_lost_is_not_taken_for_an_interrupted_creation() {
    let storage = MemoryStorage::new();
    let log = format!("{DIRECTORY}/log");
    make(&storage, DIRECTORY, &log);
    let storage = storage.crash(1);
    let data = Path::new(DIRECTORY).join("data.frond");
    let kept = storage.snapshot();
    storage.remove(&data).unwrap();
    let before = content(&storage, &log);
    for _ in 0..2 {
        let error = Database::open(DIRECTORY, options(&storage)).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(&log) && error.to_string().contains("lost data file"), "{error}");
        assert_eq!(content(&storage, &log), before);
    }
    let db = open(&kept);
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.get(&tree, b"in the log").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_creation_leaves_the_log_of_another_database_alone_however_often_it_is_tried() {
    let storage = MemoryStorage::new();
    drop(Database::open("/new", named(&storage, "/new/log")).unwrap());
    make(&storage, "/other", "/other/log");
    // An earlier version did not write into a segment whose it is before it was begun.
    drop(Database::open("/old", named(&storage, "/old/log")).unwrap());
    for (path, _) in content(&storage, "/old/log") {
        storage.overwrite(&path, 0, &[0; 4096]).unwrap();
    }
    for log in ["/new/log", "/other/log", "/old/log"] {
        let before = content(&storage, log);
        for _ in 0..3 {
            let error = Database::open(DIRECTORY, named(&storage, log)).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.to_string().contains(log), "{error}");
            assert_eq!(content(&storage, log), before);
        }
    }
    // Nothing of the refused ones is in the way of another.
    drop(open(&storage));
}
