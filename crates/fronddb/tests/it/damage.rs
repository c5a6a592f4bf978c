//! Bits flip anywhere: the check names it or nothing is wrong, nothing false is served, and what is readable is rescued.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fronddb::io::MemoryStorage;
use fronddb::{CheckOptions, Database, ErrorKind, Options, TreeOptions, check, salvage};

use crate::support::{BLOB_BYTES_MIN, DIRECTORY, Random, begin, collect, open};

const TREES: [&str; 3] = ["a", "b", "c"];
const SEEDS: u64 = 200;

type Rows = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// A database, what is in it, and every value that a key ever had.
struct World {
    storage: MemoryStorage,
    rows: Rows,
    history: BTreeSet<(String, Vec<u8>, Vec<u8>)>,
}

/// Rows in all places: leaves, buffers, blobs, the log; replaced, deleted, and written by transactions that never end.
fn world() -> World {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let trees = TREES.map(|name| db.create_tree(name, &TreeOptions::default()).unwrap());
    let (mut rows, mut history) = (Rows::new(), BTreeSet::new());
    let mut random = Random::new(7);
    for round in 0..12u32 {
        let txn = begin(&db);
        for _ in 0..150 {
            let (tree, number) = (&trees[random.below(3) as usize], random.below(600));
            let (name, key) = (tree.name().to_owned(), number.to_be_bytes().to_vec());
            if random.below(5) == 0 {
                txn.delete(tree, &key).unwrap();
                rows.remove(&(name, key));
                continue;
            }
            let length = if random.below(200) == 0 { BLOB_BYTES_MIN + 100 } else { 20 + random.below(60) as usize };
            let value: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            txn.put(tree, &key, &value).unwrap();
            history.insert((name.clone(), key.clone(), value.clone()));
            rows.insert((name, key), value);
        }
        txn.commit().unwrap();
        let undone = begin(&db);
        undone.put(&trees[0], &(1_000 + u64::from(round)).to_be_bytes(), b"never committed").unwrap();
        if round % 3 == 2 {
            db.checkpoint().unwrap();
            while db.step_background().unwrap() {}
        }
        if round % 2 == 0 {
            undone.rollback().unwrap();
        } else {
            std::mem::forget(undone);
        }
    }
    db.checkpoint().unwrap();
    let txn = begin(&db);
    txn.put(&trees[1], b"in the log", b"only").unwrap();
    txn.commit().unwrap();
    let key = ("b".to_owned(), b"in the log".to_vec());
    history.insert((key.0.clone(), key.1.clone(), b"only".to_vec()));
    rows.insert(key, b"only".to_vec());
    db.sync_log().unwrap();
    // As a kill leaves it.
    let storage = storage.snapshot();
    drop(db);
    World { storage: storage.crash(1), rows, history }
}

fn options(storage: &MemoryStorage) -> CheckOptions {
    CheckOptions { storage: Some(Arc::new(storage.clone())), memory_bytes: 8 << 20, ..CheckOptions::default() }
}

fn read(storage: &MemoryStorage, directory: &str) -> Rows {
    let options = Options::new().storage(Some(Arc::new(storage.clone()))).memory_bytes(8 << 20).read_only(true);
    let db = Database::open(directory, options).unwrap();
    let mut rows = Rows::new();
    for info in db.trees().unwrap() {
        let tree = db.open_tree(&info.name).unwrap();
        let txn = begin(&db);
        let mut cursor = txn.cursor(&tree, Default::default()).unwrap();
        rows.extend(collect(&mut cursor).unwrap().into_iter().map(|(key, value)| ((info.name.clone(), key), value)));
    }
    rows
}

#[test]
fn a_sound_database_is_clean_and_salvaged_whole() {
    let world = world();
    let report = check(DIRECTORY, &options(&world.storage), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(report.nodes > 1 && report.runs > 3 && report.log_records > 0, "{report:?}");
    let report = salvage(DIRECTORY, "/new", &options(&world.storage), &mut |_| {}).unwrap();
    assert_eq!((report.findings.len(), report.rows()), (0, world.rows.len() as u64));
    assert_eq!(read(&world.storage, "/new"), world.rows);
    // Looking has changed nothing.
    assert!(check(DIRECTORY, &options(&world.storage), &mut |_| {}).unwrap().is_clean());
}

#[test]
fn a_flipped_bit_is_named_and_the_rest_is_rescued() {
    let world = world();
    let files: Vec<(PathBuf, Vec<u64>)> =
        world.storage.files().iter().map(|(path, _)| used(&world.storage, path)).collect();
    let files: Vec<_> = files.into_iter().filter(|(path, used)| is_data(path) && !used.is_empty()).collect();
    let (data, log): (Vec<_>, Vec<_>) = files.iter().partition(|(path, _)| path.ends_with("data.frond"));
    let (mut named, mut rescued) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = Random::new(seed);
        let storage = world.storage.snapshot();
        let files = if seed % 4 == 0 { &log } else { &data };
        let (path, used) = files[random.below(files.len() as u64) as usize];
        let offset = used[random.below(used.len() as u64) as usize];
        storage.flip_bit(path, offset, random.below(8) as u8).unwrap();
        let context = format!("seed={seed} file={} offset={offset}", path.display());
        let report =
            check(DIRECTORY, &options(&storage), &mut |_| {}).unwrap_or_else(|error| panic!("{context}: {error}"));
        named += usize::from(!report.is_clean());
        match salvage(DIRECTORY, "/new", &options(&storage), &mut |_| {}) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{context}: {error}"),
            Ok(salvaged) => {
                let rows = read(&storage, "/new");
                for ((tree, key), value) in &rows {
                    let known = (tree.clone(), key.clone(), value.clone());
                    assert!(tree.starts_with("lost-") || world.history.contains(&known), "{context}: {tree} {key:?}");
                }
                if salvaged.findings.is_empty() {
                    assert!(rows == world.rows || !report.is_clean(), "{context}: something is missing silently");
                }
                rescued += usize::from(rows.len() * 2 > world.rows.len());
            }
        }
    }
    assert!(named > 20, "hardly a flip hit anything, named={named}");
    assert!(rescued as u64 > SEEDS * 3 / 4, "rescued={rescued} of {SEEDS}");
}

/// Where a file is not zero: most of a file is free space or not yet written.
fn used(storage: &MemoryStorage, path: &Path) -> (PathBuf, Vec<u64>) {
    let bytes = fronddb::io::read_file(storage, path).unwrap();
    let used = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at as u64);
    (path.to_path_buf(), used.collect())
}

fn is_data(path: &Path) -> bool {
    path.ends_with("data.frond") || path.extension().is_some_and(|extension| extension == "log")
}
