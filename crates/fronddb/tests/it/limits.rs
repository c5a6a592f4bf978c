//! The longest of everything is taken and read back; one more is refused and changes nothing.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use fronddb::io::MemoryStorage;
use fronddb::{
    BulkOptions, CheckOptions, Codec, Database, Durability, ErrorKind, Op, Options, Overflow, Program, Result,
    TreeOptions, TxnOptions, WriteBatch, check, log_records, salvage,
};

use crate::support::{BLOB_BYTES_MIN, DIRECTORY, Random, begin, collect, fresh, options};

const KEY_BYTES_MAX: usize = 32 << 10;
const VALUE_BYTES_MAX: usize = 256 << 20;
/// So far does an update reach.
const UPDATE_REACH_BYTES_MAX: usize = 1 << 20;
const NAME_BYTES_MAX: usize = 1 << 10;
const METADATA_BYTES_MAX: usize = 16 << 20;

fn large(storage: &MemoryStorage) -> Options {
    options(storage).memory_bytes(256 << 20).level0_bytes(32 << 20).log_segment_bytes(64 << 20)
}

fn refused(result: Result<()>) {
    assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::InvalidArgument));
}

#[test]
fn one_large_batch_keeps_level_0_within_its_bounds() {
    let storage = MemoryStorage::new();
    let db = Database::open(
        DIRECTORY,
        options(&storage).memory_bytes(64 << 20).level0_bytes(2 << 20).log_segment_bytes(64 << 20),
    )
    .unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    let value = Random::new(1).bytes(600);
    (0..40_000u32).for_each(|row| batch.put(&tree, &row.to_be_bytes(), &value).unwrap());
    begin(&db).write(&batch).unwrap();
    let statistics = db.statistics().unwrap();
    let most = 2 * statistics.level0_bytes_max + (2 << 20);
    assert!(statistics.level0_bytes <= most, "level0={} most={most}", statistics.level0_bytes);
}

#[test]
fn an_empty_path_is_refused_wherever_one_is_given() {
    let storage = MemoryStorage::new();
    let none = PathBuf::new();
    for create in [true, false] {
        refused(Database::open(&none, options(&storage).create_if_missing(create)).map(drop));
        refused(
            Database::open(DIRECTORY, options(&storage).create_if_missing(create).log_dir(Some(none.clone())))
                .map(drop),
        );
        refused(Database::open(&none, Options::new().create_if_missing(create)).map(drop));
    }
    assert!(storage.files().is_empty());
    let db = Database::open(DIRECTORY, options(&storage)).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let unsorted = BulkOptions { temporary_dir: Some(none.clone()), ..BulkOptions::default() };
    refused(begin(&db).bulk(&tree, &unsorted).map(drop));
    db.close().unwrap();
    let offline = |log_dir: Option<&PathBuf>| CheckOptions {
        log_dir: log_dir.cloned(),
        storage: Some(Arc::new(storage.clone())),
        ..CheckOptions::default()
    };
    for (path, log_dir) in [(DIRECTORY, Some(&none)), ("", None)] {
        let options = offline(log_dir);
        refused(check(path, &options, &mut |_| {}).map(drop));
        refused(salvage(path, "/new", &options, &mut |_| {}).map(drop));
        refused(log_records(path, &options, &mut |_| true));
    }
    refused(salvage(DIRECTORY, "", &offline(None), &mut |_| {}).map(drop));
    assert!(check(DIRECTORY, &offline(None), &mut |_| {}).unwrap().is_clean());
}

#[test]
fn a_compression_level_past_its_limits_is_refused() {
    let storage = MemoryStorage::new();
    for level in [-8, 23, i8::MIN, i8::MAX] {
        let codec = Codec::Zstd { level };
        refused(Database::open(DIRECTORY, options(&storage).default_codec(codec)).map(drop));
        assert!(storage.files().is_empty(), "level={level}");
    }
    for level in [-7, 22] {
        let codec = Codec::Zstd { level };
        let db = Database::open(DIRECTORY, options(&storage).default_codec(codec)).unwrap();
        let named = TreeOptions { codec: Some(codec), ..TreeOptions::default() };
        db.create_tree(&format!("t{level}"), &named).unwrap();
        let past = TreeOptions { codec: Some(Codec::Zstd { level: level + level.signum() }), ..named };
        refused(db.create_tree("past", &past).map(drop));
        db.close().unwrap();
    }
}

#[test]
fn the_longest_keys_are_kept_and_longer_ones_refused() {
    let storage = MemoryStorage::new();
    let db = Database::open(DIRECTORY, large(&storage)).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let mut random = Random::new(1);
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> = (0..20u8)
        .map(|number| {
            // Some differ in their last byte only.
            let mut key = if number < 10 { vec![7; KEY_BYTES_MAX] } else { random.bytes(KEY_BYTES_MAX) };
            key[KEY_BYTES_MAX - 1] = number;
            (key, random.bytes(BLOB_BYTES_MIN - 1))
        })
        .collect();
    rows.sort();
    for (key, value) in &rows {
        db.put(&tree, key, value).unwrap();
    }
    let long = vec![7; KEY_BYTES_MAX + 1];
    refused(db.put(&tree, &long, b"v"));
    refused(db.get(&tree, &long).map(|_| ()));
    refused(db.delete(&tree, &long));
    let txn = begin(&db);
    refused(txn.put(&tree, &long, b"v"));
    refused(txn.delete_range(&tree, b"", &long));
    refused(WriteBatch::new().put(&tree, &long, b"v"));
    txn.commit().unwrap();
    let check = |db: &Database| {
        let tree = db.open_tree("t").unwrap();
        for (key, value) in &rows {
            assert!(db.get(&tree, key).unwrap().as_deref() == Some(&value[..]));
        }
        let txn = begin(db);
        assert!(collect(&mut txn.cursor(&tree, Default::default()).unwrap()).unwrap() == rows);
    };
    check(&db);
    check(&Database::open(DIRECTORY, large(&storage.crash(1))).unwrap());
    db.checkpoint().unwrap();
    db.wait_idle().unwrap();
    db.check(&mut |finding| panic!("{finding:?}"), None).unwrap();
    check(&db);
    db.close().unwrap();
    check(&Database::open(DIRECTORY, large(&storage)).unwrap());
}

#[test]
fn the_longest_values_are_kept_and_longer_ones_refused() {
    let storage = MemoryStorage::new();
    // The longest value that may go through log and buffers, and the longest of all.
    let options = || large(&storage).blob_bytes_min(16 << 20);
    let db = Database::open(DIRECTORY, options()).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let mut value = Random::new(2).bytes(1 << 20).repeat(VALUE_BYTES_MAX >> 20);
    let inline = &value.clone()[..(16 << 20) - 1];
    db.put(&tree, b"inline", inline).unwrap();
    db.put(&tree, b"longest", &value).unwrap();
    value.push(1);
    refused(db.put(&tree, b"longest", &value));
    refused(db.put(&tree, b"longer", &value));
    refused(WriteBatch::new().put(&tree, b"longer", &value));
    value.pop();
    let check = |db: &Database| {
        let tree = db.open_tree("t").unwrap();
        assert!(db.get(&tree, b"inline").unwrap().as_deref() == Some(inline));
        assert!(db.get(&tree, b"longest").unwrap().as_deref() == Some(&value[..]));
        assert!(db.get(&tree, b"longer").unwrap().is_none());
    };
    check(&db);
    db.checkpoint().unwrap();
    db.wait_idle().unwrap();
    check(&db);
    drop(db);
    check(&Database::open(DIRECTORY, options()).unwrap());
}

#[test]
fn the_longest_names_and_metadata_of_trees_are_kept_and_longer_ones_refused() {
    let storage = MemoryStorage::new();
    let db = Database::open(DIRECTORY, large(&storage)).unwrap();
    let name = "n".repeat(NAME_BYTES_MAX);
    let metadata = Random::new(3).bytes(METADATA_BYTES_MAX);
    let wanted = TreeOptions { metadata, ..TreeOptions::default() };
    let mut longer = wanted.clone();
    longer.metadata.push(1);
    let tree = db.create_tree(&name, &wanted).unwrap();
    db.put(&tree, b"k", b"v").unwrap();
    refused(db.create_tree(&"n".repeat(NAME_BYTES_MAX + 1), &TreeOptions::default()).map(|_| ()));
    refused(db.create_tree("m", &longer).map(|_| ()));
    let txn = begin(&db);
    refused(txn.rename_tree(&name, &"n".repeat(NAME_BYTES_MAX + 1)));
    refused(txn.set_tree_options(&tree, &longer));
    txn.commit().unwrap();
    let check = |db: &Database| {
        let tree = db.open_tree(&name).unwrap();
        assert!(tree.options().metadata == wanted.metadata);
        assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(db.trees().unwrap().len(), 1);
    };
    check(&db);
    db.checkpoint().unwrap();
    db.wait_idle().unwrap();
    db.close().unwrap();
    check(&Database::open(DIRECTORY, large(&storage)).unwrap());
}

#[test]
fn a_value_that_grows_by_updates_beyond_an_extent_stays_whole() {
    let storage = MemoryStorage::new();
    let settings = || options(&storage).memory_bytes(256 << 20).level0_bytes(8 << 20).log_segment_bytes(8 << 20);
    let mut db = Database::open(DIRECTORY, settings()).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let mut random = Random::new(1);
    let piece = random.bytes((1 << 20) - 100);
    let mut program = Vec::new();
    Program { ops: vec![Op::Append { bytes: piece.clone() }] }.encode(&mut program);
    for key in [&b"blob"[..], b"in its block"] {
        let first = if key == b"blob" { BLOB_BYTES_MIN } else { 1 };
        db.put(&tree, key, &vec![b'a'; first]).unwrap();
        for _ in 0..70 {
            let mut batch = WriteBatch::new();
            batch.update(&tree, key, &program).unwrap();
            db.write(&batch, TxnOptions { durability: Durability::None, ..TxnOptions::default() }).unwrap();
        }
        db.checkpoint().unwrap();
        while db.step_background().unwrap() {}
        db.compact(Some(&tree), b"", b"", &mut |_| ControlFlow::Continue(())).unwrap();
    }
    for round in 0..2 {
        let tree = db.open_tree("t").unwrap();
        for key in [&b"blob"[..], b"in its block"] {
            let value = db.get(&tree, key).unwrap().unwrap();
            let first = if key == b"blob" { BLOB_BYTES_MIN } else { 1 };
            assert!(value.len() == first + 70 * piece.len() && value.ends_with(&piece), "{}", value.len());
        }
        if round == 0 {
            db.close().unwrap();
            db = Database::open(DIRECTORY, settings()).unwrap();
        }
    }
}

#[test]
fn an_update_reaches_no_further_than_it_may_make_a_short_value_long() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"k", b"short").unwrap();
    let txn = begin(&db);
    let encoded = |op: Op| {
        let mut program = Vec::new();
        Program { ops: vec![op] }.encode(&mut program);
        program
    };
    let set = |offset: usize| encoded(Op::SetBytes { offset: offset as u32, bytes: b"x".to_vec() });
    let (big_endian, signed, overflow) = (true, true, Overflow::Wrap);
    let add =
        |offset: usize| encoded(Op::Add { offset: offset as u32, width: 8, big_endian, signed, delta: 1, overflow });
    for program in [set(UPDATE_REACH_BYTES_MAX), add(UPDATE_REACH_BYTES_MAX - 7), set(VALUE_BYTES_MAX - 1)] {
        assert_eq!(txn.update(&tree, b"k", &program).map_err(|error| error.kind()), Err(ErrorKind::InvalidArgument));
    }
    txn.update(&tree, b"k", &set(UPDATE_REACH_BYTES_MAX - 1)).unwrap();
    txn.update(&tree, b"k", &add(UPDATE_REACH_BYTES_MAX - 8)).unwrap();
    assert_eq!(txn.get(&tree, b"k").unwrap().unwrap().len(), UPDATE_REACH_BYTES_MAX);
    txn.rollback().unwrap();
    assert_eq!(begin(&db).get(&tree, b"k").unwrap().as_deref(), Some(b"short".as_slice()));
}
