//! Every released format opens: `tests/fixtures/vN` (`vN-logM`) holds a database that version N (with version M of the log) wrote, each file compressed by zstd, and
//! `rows.txt`, what must be found in it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use fronddb::base::checksum;
use fronddb::base::clock::Clock;
use fronddb::format::superblock::FORMAT_VERSION;
use fronddb::io::{CrashMode, MemoryStorage, OpenMode, Storage};
use fronddb::log::LOG_FORMAT;
use fronddb::{
    Codec, CursorOptions, Database, Durability, Isolation, Op, Overflow, Program, TreeOptions, TxnOptions, WriteBatch,
};

use crate::support::{DIRECTORY, begin, collect, open, options};

const ROWS_FILE: &str = "rows.txt";
/// Longer values are listed as length and hash.
const SHOWN_BYTES_MAX: usize = 60;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn fixture_name() -> String {
    format!("v{FORMAT_VERSION}-log{LOG_FORMAT}")
}

/// What is in a database, as text.
fn rows(db: &Database) -> String {
    let mut out = String::new();
    let txn = begin(db);
    let mut trees = db.trees().unwrap();
    trees.sort_by(|a, b| a.name.cmp(&b.name));
    for info in trees {
        let tree = db.open_tree(&info.name).unwrap();
        let options = txn.tree_options(&tree).unwrap();
        writeln!(out, "tree {} {:?} {}", info.name, options.codec, options.metadata.escape_ascii()).unwrap();
        for (key, value) in collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap() {
            write!(out, "{} ", key.escape_ascii()).unwrap();
            if value.len() <= SHOWN_BYTES_MAX {
                writeln!(out, "{}", value.escape_ascii()).unwrap();
            } else {
                writeln!(out, "{} bytes {:016x}", value.len(), checksum::key_hash(&value)).unwrap();
            }
        }
    }
    for prepared in db.prepared().unwrap() {
        writeln!(out, "prepared {}", prepared.xid.escape_ascii()).unwrap();
    }
    out
}

/// Isolation level, age in milliseconds and messages of each prepared transaction, in the order of their ids.
fn prepared(db: &Database) -> Vec<(Isolation, u64, u64)> {
    let mut list = db.transactions().unwrap();
    list.retain(|info| info.prepared);
    list.into_iter().map(|info| (info.isolation, info.age_ms, info.messages)).collect()
}

fn load(dir: &Path, storage: &MemoryStorage, into: &Path) {
    storage.create_dir_all(into).unwrap();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let target = into.join(path.file_stem().unwrap());
        if path.is_dir() {
            load(&path, storage, &into.join(path.file_name().unwrap()));
        } else if path.extension().is_some_and(|extension| extension == "zst") {
            let bytes = zstd::decode_all(&fs::read(&path).unwrap()[..]).unwrap();
            let file = storage.open(&target, OpenMode { create: true, ..OpenMode::default() }).unwrap();
            file.write_at(&bytes, 0).unwrap();
            file.sync_data().unwrap();
        }
    }
    storage.sync_dir(into).unwrap();
}

#[test]
fn every_released_format_opens_and_goes_on() {
    let mut names = Vec::new();
    for entry in fs::read_dir(fixtures()).unwrap() {
        let dir = entry.unwrap().path();
        let expected = fs::read_to_string(dir.join(ROWS_FILE)).unwrap();
        let storage = MemoryStorage::new();
        load(&dir, &storage, Path::new(DIRECTORY));
        // The clock of who wrote it stood at 8 s.
        let clock = Clock::manual();
        clock.advance_micros(8_000_000);
        let db = Database::open(DIRECTORY, options(&storage).clock(Some(clock.clone()))).unwrap();
        assert_eq!(rows(&db), expected, "{}", dir.display());
        db.check(&mut |finding| panic!("{}: {finding:?}", dir.display()), None).unwrap();

        // What was not kept of prepared transactions then is as if they had begun now, from now on also after restarts.
        clock.advance_micros(5_000_000);
        let is_kept = dir.file_name().is_some_and(|name| name.to_str() == Some(&fixture_name()));
        let mut shown = vec![(Isolation::ReadCommitted, 11_000, 1), (Isolation::RepeatableRead, 8_000, 400)];
        shown.truncate(db.prepared().unwrap().len());
        if !is_kept {
            shown.fill((Isolation::RepeatableRead, 5_000, 0));
        }
        assert_eq!(prepared(&db), shown, "{}", dir.display());

        // It can be written, compacted and opened again.
        db.commit_prepared(b"waits").unwrap();
        let tree = db.open_tree("numbers").unwrap();
        db.put(&tree, b"later", b"new").unwrap();
        db.checkpoint().unwrap();
        while db.step_background().unwrap() {}
        let after = rows(&db);
        assert!(after.contains("later new\n") && !after.contains("\nprepared waits"), "{after}");
        db.close().unwrap();
        let db = Database::open(DIRECTORY, options(&storage).clock(Some(clock))).unwrap();
        assert_eq!(rows(&db), after, "{}", dir.display());
        assert_eq!(prepared(&db), shown[1..], "{}", dir.display());
        db.check(&mut |finding| panic!("{}: {finding:?}", dir.display()), None).unwrap();
        names.push(dir.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    assert_eq!(
        names,
        ["v1", "v2", "v2-log2", "v2-log3", &fixture_name()],
        "one fixture for each version of the superblock or the log"
    );
}

/// A database with something of every kind, in runs, in level 0, and only in the log.
fn write_all(db: &Database, clock: &Clock) {
    let none = TxnOptions { durability: Durability::None, ..TxnOptions::default() };
    let plain = TreeOptions { codec: Some(Codec::None), metadata: b"owner's \0bytes".to_vec() };
    let (numbers, texts) = (
        db.create_tree("numbers", &TreeOptions::default()).unwrap(),
        db.create_tree("texts", &TreeOptions { codec: Some(Codec::Lz4), ..TreeOptions::default() }).unwrap(),
    );
    let odd = db.create_tree("odd \u{e9}", &plain).unwrap();
    db.create_tree("dropped", &TreeOptions::default()).unwrap();
    for row in 0u32..300 {
        let mut batch = WriteBatch::new();
        batch.put(&numbers, &row.to_be_bytes(), &[row.to_be_bytes(), (row * row).to_be_bytes()].concat()).unwrap();
        batch.put(&texts, format!("text {}", row * 7 % 300).as_bytes(), &row.to_be_bytes()).unwrap();
        db.write(&batch, none).unwrap();
    }
    db.put(&odd, b"large", &b"a large value ".repeat(700)).unwrap();
    db.checkpoint().unwrap();
    while db.step_background().unwrap() {}

    let mut program = Vec::new();
    let add = Op::Add { offset: 4, width: 4, big_endian: true, signed: false, delta: 1, overflow: Overflow::Saturate };
    Program { ops: vec![add, Op::Append { bytes: b"!".to_vec() }] }.encode(&mut program);
    let txn = begin(db);
    txn.update(&numbers, &5u32.to_be_bytes(), &program).unwrap();
    txn.delete(&numbers, &6u32.to_be_bytes()).unwrap();
    txn.delete_range(&numbers, &20u32.to_be_bytes(), &280u32.to_be_bytes()).unwrap();
    txn.single_delete(&texts, b"text 7").unwrap();
    txn.insert_if_absent(&texts, b"text 14", b"ignored").unwrap();
    txn.insert_if_absent(&texts, b"zz", b"").unwrap();
    let mark = txn.savepoint().unwrap();
    txn.put(&numbers, b"undone", b"").unwrap();
    txn.rollback_to(mark).unwrap();
    txn.commit().unwrap();
    clock.advance_micros(2_000_000);
    let waits = db.begin(TxnOptions { isolation: Isolation::ReadCommitted, ..TxnOptions::default() }).unwrap();
    clock.advance_micros(3_000_000);
    waits.put(&odd, b"waits", b"prepared").unwrap();
    waits.prepare(b"waits").unwrap();
    let undone = begin(db);
    undone.put(&numbers, b"undone", b"").unwrap();
    // Its messages go into runs, its fate into the status image.
    db.checkpoint().unwrap();
    undone.rollback().unwrap();
    db.drop_tree("dropped").unwrap();
    db.put(&odd, b"only in the log", &b"compressible ".repeat(400)).unwrap();
    db.put(&texts, b"last", b"one").unwrap();
    let mut batch = WriteBatch::new();
    for row in 1000u32..1400 {
        batch.put(&numbers, &row.to_be_bytes(), &[row.to_be_bytes(), (row * row).to_be_bytes()].concat()).unwrap();
        batch.put(&texts, format!("text {row}").as_bytes(), &row.to_be_bytes()).unwrap();
    }
    db.write(&batch, none).unwrap();
    // Its locks take several records.
    let many = begin(db);
    for row in 0u32..400 {
        many.put(&odd, &[&row.to_be_bytes()[..], &[b'k'; 1_000]].concat(), b"").unwrap();
    }
    clock.advance_micros(3_000_000);
    many.prepare(b"many").unwrap();
}

#[test]
#[ignore = "writes tests/fixtures for the present version"]
fn write_the_fixture() {
    let storage = MemoryStorage::new();
    let clock = Clock::manual();
    let db = Database::open(DIRECTORY, options(&storage).clock(Some(clock.clone()))).unwrap();
    write_all(&db, &clock);
    let unfinished = begin(&db);
    unfinished.put(&db.open_tree("numbers").unwrap(), b"unfinished", b"").unwrap();
    db.sync_log().unwrap();
    let left = storage.crash_with(CrashMode::Kept, 1);

    let dir = fixtures().join(fixture_name());
    let _ = fs::remove_dir_all(&dir);
    for (path, length) in left.files() {
        let relative = path.strip_prefix(DIRECTORY).unwrap();
        if relative.to_str() == Some("LOCK") || length == 0 {
            continue;
        }
        let file = left.open(&path, OpenMode { read_only: true, ..OpenMode::default() }).unwrap();
        let mut bytes = vec![0; length as usize];
        file.read_at(&mut bytes, 0).unwrap();
        let target = dir.join(format!("{}.zst", relative.display()));
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, zstd::encode_all(&bytes[..], 19).unwrap()).unwrap();
    }
    fs::write(dir.join(ROWS_FILE), rows(&open(&left))).unwrap();
}
