//! Bits flip anywhere: the check names it or nothing is wrong, nothing false is served, other trees stay usable, and what is
//! readable is rescued.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fronddb::io::MemoryStorage;
use fronddb::{
    CheckOptions, CheckReport, CursorOptions, Database, Error, ErrorKind, Op, Options, Program, Result, TreeOptions,
    check, salvage,
};

use crate::support::{BLOB_BYTES_MIN, DIRECTORY, Random, begin, collect, open};

pub(crate) const TREES: [&str; 3] = ["a", "b", "c"];
const SEEDS: u64 = 200;
/// Bits that are flipped, each in a database that is then opened.
const FLIPS: u64 = 2500;

pub(crate) type Rows = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// A database, what is in it, and every value that a key ever had.
pub(crate) struct World {
    pub(crate) storage: MemoryStorage,
    pub(crate) rows: Rows,
    pub(crate) history: BTreeSet<(String, Vec<u8>, Vec<u8>)>,
    /// The row that the last commit wrote.
    last: (String, Vec<u8>),
    /// The storage as it was before each of the commits that are in the log only.
    before: Vec<MemoryStorage>,
}

impl World {
    /// What is there if the last commit is taken for one that the crash tore.
    fn without_last(&self) -> Rows {
        let mut rows = self.rows.clone();
        rows.remove(&self.last);
        rows
    }
}

/// Rows in all places: leaves, buffers, blobs, the log; replaced, deleted, and written by transactions that never end.
pub(crate) fn world() -> World {
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
            let value = random.bytes(length);
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
    let (mut last, mut before) = (None, Vec::new());
    for (number, tree) in trees.iter().cycle().take(7).enumerate() {
        before.push(storage.snapshot());
        let (key, value) = (format!("in the log {number}").into_bytes(), random.bytes(100 * number));
        db.put(tree, &key, &value).unwrap();
        history.insert((tree.name().to_owned(), key.clone(), value.clone()));
        rows.insert((tree.name().to_owned(), key.clone()), value);
        last = Some((tree.name().to_owned(), key));
    }
    // As a kill leaves it.
    let storage = storage.snapshot();
    drop(db);
    World { storage: storage.crash(1), rows, history, last: last.unwrap(), before }
}

fn options(storage: &MemoryStorage) -> CheckOptions {
    CheckOptions { storage: Some(Arc::new(storage.clone())), memory_bytes: 8 << 20, ..CheckOptions::default() }
}

pub(crate) fn read(storage: &MemoryStorage, directory: &str) -> Rows {
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
                    // The last sync's frames cannot be told from a torn end.
                    let is_torn = path.parent().is_some_and(|dir| dir.ends_with("log")) && rows == world.without_last();
                    let is_known = rows == world.rows || is_torn || !report.is_clean();
                    assert!(is_known, "{context}: something is missing silently");
                }
                rescued += usize::from(rows.len() * 2 > world.rows.len());
            }
        }
    }
    assert!(named > 20, "hardly a flip hit anything, named={named}");
    assert!(rescued as u64 > SEEDS * 3 / 4, "rescued={rescued} of {SEEDS}");
}

/// What a damaged database serves, opened for reading.
struct Served {
    /// What each tree yielded, and what ended the scan.
    trees: Vec<(Rows, Result<()>)>,
    /// Point reads of all rows that failed, and those that answered.
    errors: Vec<Error>,
    answered: Rows,
}

fn serve(storage: &MemoryStorage, wanted: &Rows) -> Result<Served> {
    let options = Options::new().storage(Some(Arc::new(storage.clone()))).memory_bytes(8 << 20).read_only(true);
    let db = Database::open(DIRECTORY, options.manual_background(true))?;
    let (mut served, mut open) = (Served { trees: Vec::new(), errors: Vec::new(), answered: Rows::new() }, Vec::new());
    for name in TREES {
        let mut rows = Rows::new();
        let mut scan = || -> Result<()> {
            let tree = db.open_tree(name)?;
            open.push(tree.clone());
            db.estimate(&tree, b"", b"")?;
            let txn = db.begin(Default::default())?;
            let mut cursor = txn.cursor(&tree, CursorOptions::default())?;
            let mut more = cursor.first()?;
            while more {
                rows.insert((name.to_owned(), cursor.key().to_vec()), cursor.value().to_vec());
                more = cursor.next()?;
            }
            Ok(())
        };
        let end = scan();
        served.trees.push((rows, end));
    }
    for (tree, key) in wanted.keys() {
        let Some(handle) = open.iter().find(|open| open.name() == tree) else { continue };
        match db.get(handle, key) {
            Ok(Some(value)) => drop(served.answered.insert((tree.clone(), key.clone()), value.to_vec())),
            Ok(None) => {}
            Err(error) => served.errors.push(error),
        }
    }
    Ok(served)
}

/// The check names the file, and where something of a tree is damaged, place and tree.
fn assert_named(report: &CheckReport, file: &str, context: &str) {
    let named = report.findings.iter().any(|finding| finding.file.ends_with(file));
    assert!(named, "{context}: {:#?}", report.findings);
    if file == "data.frond" {
        let placed = report.findings.iter().any(|finding| finding.offset.is_some());
        assert!(placed, "{context}: {:#?}", report.findings);
    }
}

#[test]
fn no_flip_in_any_file_is_served_and_other_trees_stay_usable() {
    let world = world();
    let files: Vec<(PathBuf, Vec<u64>)> =
        world.storage.files().iter().map(|(path, _)| used(&world.storage, path)).collect();
    let filled: Vec<_> = files.iter().filter(|(_, used)| !used.is_empty()).collect();
    let [data] = filled.iter().filter(|(path, _)| path.ends_with("data.frond")).collect::<Vec<_>>()[..] else {
        panic!()
    };
    let (mut refused, mut partly, mut usable) = (0, 0, 0);
    for seed in 0..FLIPS {
        let mut random = Random::new(seed);
        let storage = world.storage.snapshot();
        let (path, used) = if seed % 2 == 0 { data } else { filled[random.below(filled.len() as u64) as usize] };
        let offset = used[random.below(used.len() as u64) as usize];
        storage.flip_bit(path, offset, random.below(8) as u8).unwrap();
        let file = path.file_name().unwrap().to_str().unwrap();
        let context = format!("seed={seed} file={} offset={offset}", path.display());
        let report = || check(DIRECTORY, &options(&storage), &mut |_| {}).unwrap();
        let served = match serve(&storage, &world.rows) {
            Err(error) => {
                assert!(error.is_unreadable(), "{context}: {error}");
                assert!(error.to_string().contains(file), "{context}: {error}");
                assert_named(&report(), file, &context);
                refused += 1;
                continue;
            }
            Ok(served) => served,
        };
        let mut rows = served.answered.clone();
        rows.extend(served.trees.iter().flat_map(|(rows, _)| rows.clone()));
        for (key, value) in rows.iter().chain(&served.answered) {
            assert!(world.rows.get(key) == Some(value), "{context}: a wrong row of {key:?}");
        }
        let mut errors: Vec<_> = served.trees.iter().filter_map(|(_, end)| end.as_ref().err()).collect();
        let sound = served.trees.len() - errors.len();
        errors.extend(&served.errors);
        if errors.is_empty() {
            let is_torn = rows == world.without_last();
            assert!(is_torn || rows == world.rows, "{context}: rows are missing silently");
            assert!(!is_torn || file.ends_with(".log"), "{context}: the last commit is missing silently");
            continue;
        }
        partly += 1;
        usable += u64::from(sound > 0);
        let report = report();
        for error in errors {
            assert!(error.is_unreadable(), "{context}: {error}");
            let message = error.to_string();
            assert!(message.contains(file) && message.contains("offset="), "{context}: {message}");
            assert!(
                !message.contains("tree=") || !report.damaged_trees().is_empty(),
                "{context}: {:#?}",
                report.findings
            );
        }
        assert_named(&report, file, &context);
    }
    assert!(refused > 5, "refused={refused}");
    assert!(partly > FLIPS / 4, "flips that made something unreadable: {partly} of {FLIPS}");
    assert!(usable > partly * 9 / 10, "flips that left a tree whole: {usable} of {partly}");
}

/// Where in the log the two differ.
fn changed(one: &MemoryStorage, other: &MemoryStorage) -> (PathBuf, Vec<u64>) {
    let bytes = |storage: &MemoryStorage, path: &Path| fronddb::io::read_file(storage, path).unwrap();
    let mut changes = one.files().into_iter().filter_map(|(path, _)| {
        let pairs = bytes(one, &path).into_iter().zip(bytes(other, &path));
        let at: Vec<u64> = (0..).zip(pairs).filter(|(_, (one, other))| one != other).map(|(at, _)| at).collect();
        (!at.is_empty()).then_some((path, at))
    });
    let change = changes.next().unwrap();
    assert!(changes.next().is_none() && change.0.extension().is_some_and(|extension| extension == "log"));
    change
}

#[test]
fn a_damaged_frame_of_the_log_is_taken_for_a_torn_end_only_if_it_is_the_last() {
    let world = world();
    let (path, written) = changed(&world.before[0], &world.storage);
    let (_, of_last) = changed(world.before.last().unwrap(), &world.storage);
    let last = of_last[0];
    let (mut named, mut torn) = (0, 0);
    let earlier = written.iter().filter(|offset| **offset < last).step_by(16);
    for offset in earlier.chain(of_last.iter().step_by(4)).copied() {
        let storage = world.storage.snapshot();
        storage.flip_bit(&path, offset, (offset % 8) as u8).unwrap();
        let context = format!("offset={offset} last={last}");
        let report = check(DIRECTORY, &options(&storage), &mut |_| {}).unwrap();
        match serve(&storage, &world.rows) {
            Ok(served) => {
                assert!(served.errors.is_empty() && report.is_clean(), "{context}: {:?} {report:?}", served.errors);
                let is_torn = served.answered == world.without_last();
                assert!(is_torn || served.answered == world.rows, "{context}");
                assert!(
                    !is_torn || offset >= last,
                    "{context}: a commit that a later one vouches for is missing silently"
                );
                torn += usize::from(is_torn);
            }
            Err(error) => {
                assert!(error.kind() == ErrorKind::Corruption && offset < last, "{context}: {error}");
                assert_named(&report, path.file_name().unwrap().to_str().unwrap(), &context);
                named += 1;
            }
        }
    }
    assert!(named > 100 && torn > 50, "named={named} torn={torn}");
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

/// Six hundred trees, and a bit flipped in a block of the catalog's rows.
fn with_damaged_catalog() -> MemoryStorage {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let metadata = Random::new(1).bytes(1 << 10);
    for number in 0..600 {
        let options = TreeOptions { metadata: metadata.clone(), ..TreeOptions::default() };
        db.create_tree(&format!("t{number:03}"), &options).unwrap();
    }
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    db.close().unwrap();
    let places = used(&storage, &data_file()).1;
    let mut random = Random::new(2);
    loop {
        let damaged = storage.snapshot();
        let place = places[random.below(places.len() as u64) as usize];
        damaged.flip_bit(&data_file(), place, 3).unwrap();
        let Ok(report) = check(DIRECTORY, &options(&damaged), &mut |_| {}) else { continue };
        let is_of_catalog = report.findings.iter().any(|finding| finding.tree == Some(fronddb::base::TreeId(0)));
        // Not its filter, which nobody asks who reads all rows.
        if is_of_catalog && !open(&damaged.snapshot()).readable_trees().unwrap().1.is_empty() {
            return damaged;
        }
    }
}

#[test]
fn trees_are_listed_past_a_damaged_block_of_the_catalog() {
    let damaged = with_damaged_catalog();
    let db = open(&damaged);
    assert!(db.trees().unwrap_err().is_unreadable());
    let (trees, damages) = db.readable_trees().unwrap();
    assert!(damages.len() == 1 && damages[0].is_unreadable() && damages[0].message().contains("tree=0"), "{damages:?}");
    let listed: BTreeSet<_> = trees.iter().map(|info| info.name.clone()).collect();
    assert!(listed.len() == trees.len() && (400..600).contains(&listed.len()), "listed={}", listed.len());
    for name in (0..600).map(|number| format!("t{number:03}")) {
        match db.open_tree(&name) {
            Ok(_) => assert!(listed.contains(&name), "{name} can be opened and is not listed"),
            Err(error) => assert!(error.is_unreadable() && !listed.contains(&name), "{name}: {error}"),
        }
    }
    let report = check(DIRECTORY, &options(&damaged.snapshot().crash(1)), &mut |_| {}).unwrap();
    assert_eq!(report.trees, trees.len() as u64);
}

/// Nothing that is damaged elsewhere makes a failure of it, also where it changes the catalog.
#[test]
fn a_prepared_transaction_is_committed_beside_a_damaged_block_of_the_catalog() {
    let damaged = with_damaged_catalog();
    for drops in [false, true] {
        let storage = damaged.snapshot();
        let db = open(&storage);
        let listed = db.readable_trees().unwrap().0;
        let (name, other) = (&listed[0].name, &listed[1].name);
        let txn = begin(&db);
        txn.put(&db.open_tree(name).unwrap(), b"key", b"value").unwrap();
        if drops {
            txn.drop_tree(other).unwrap();
        }
        txn.prepare(b"xid").unwrap();
        drop(db);
        let db = open(&storage.crash(1));
        let (tree, other) = (db.open_tree(name).unwrap(), db.open_tree(other).unwrap());
        db.commit_prepared(b"xid").unwrap();
        assert_eq!(db.get(&tree, b"key").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(db.get(&other, b"key").is_err(), drops);
    }
}

/// Rows of the catalog with versions in several blocks: each damage of a database in which a snapshot held them.
#[test]
fn the_listing_of_trees_comes_to_an_end_where_a_row_has_versions_in_several_blocks() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let mut random = Random::new(3);
    let mut metadata = || Random::new(random.below(1 << 30)).bytes(12 << 10);
    let mut snapshots = Vec::new();
    for number in 0..4 {
        let options = TreeOptions { metadata: metadata(), ..TreeOptions::default() };
        db.create_tree(&format!("t{number}"), &options).unwrap();
    }
    for _ in 0..3 {
        let snapshot = begin(&db);
        snapshot.open_tree("t0").unwrap();
        snapshots.push(snapshot);
        for number in 0..4 {
            let txn = begin(&db);
            let tree = txn.open_tree(&format!("t{number}")).unwrap();
            txn.set_tree_options(&tree, &TreeOptions { metadata: metadata(), ..TreeOptions::default() }).unwrap();
            txn.commit().unwrap();
        }
    }
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    db.checkpoint().unwrap();
    let storage = storage.snapshot();
    let mut damaged = 0;
    for offset in used(&storage, &data_file()).1.into_iter().step_by(3000) {
        let Some(db) = open_to_read(&flipped(&storage, offset)) else { continue };
        let (trees, damages) = db.readable_trees().unwrap();
        assert!(damages.iter().all(Error::is_unreadable), "offset={offset}: {damages:?}");
        assert!(trees.len() == 4 || !damages.is_empty(), "offset={offset} trees={}", trees.len());
        damaged += u32::from(!damages.is_empty());
    }
    assert!(damaged > 10, "damaged={damaged}");
}

#[test]
fn a_scan_meets_no_damage_of_the_trees_beside_its_own() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let mut random = Random::new(9);
    for name in TREES {
        let tree = db.create_tree(name, &TreeOptions::default()).unwrap();
        (0..600u32).for_each(|row| db.put(&tree, &row.to_be_bytes(), &random.bytes(100)).unwrap());
    }
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    db.close().unwrap();
    let mut damaged_trees = 0;
    for offset in used(&storage, &data_file()).1.into_iter().step_by(1500) {
        let Some(db) = open_to_read(&flipped(&storage, offset)) else { continue };
        let trees: Vec<_> = TREES.iter().filter_map(|name| db.open_tree(name).ok()).collect();
        if trees.len() == TREES.len() {
            let listed = db.trees().unwrap_or_else(|error| panic!("offset={offset}: {error}"));
            assert_eq!(listed.len(), TREES.len());
        }
        for tree in trees {
            let is_whole = (0..600u32).all(|row| db.get(&tree, &row.to_be_bytes()).is_ok());
            damaged_trees += u32::from(!is_whole);
            let txn = begin(&db);
            let mut cursor = txn.cursor(&tree, CursorOptions::default()).unwrap();
            let scanned = collect(&mut cursor);
            let mut scan_back = || -> Result<u32> {
                let (mut more, mut rows) = (cursor.last()?, 0);
                while more {
                    (rows, more) = (rows + 1, cursor.prev()?);
                }
                Ok(rows)
            };
            let backward = scan_back();
            let context = format!("tree={} offset={offset}", tree.name());
            assert!(
                is_whole || scanned.is_err() || backward.is_err(),
                "{context}: a row that scans find is not found by its key"
            );
            if is_whole {
                assert_eq!(scanned.unwrap_or_else(|error| panic!("{context}: {error}")).len(), 600);
                assert_eq!(backward.unwrap_or_else(|error| panic!("{context}: {error}")), 600);
            }
        }
    }
    assert!(damaged_trees > 50, "damaged_trees={damaged_trees}");
}

/// The catalog is damaged, but not for all trees: those whose rows can be read take writes without end.
#[test]
fn a_damaged_block_of_the_catalog_keeps_no_other_tree_from_being_written() {
    let damaged = with_damaged_catalog();
    let options = crate::support::options(&damaged).manual_background(false).lock_timeout(Duration::from_secs(5));
    let db = Database::open(DIRECTORY, options).unwrap();
    let tree =
        (0..600).rev().find_map(|number| db.open_tree(&format!("t{number:03}")).ok()).expect("most are readable");
    let deadline = Instant::now() + Duration::from_secs(60);
    let value = Random::new(3).bytes(1000);
    let db = Arc::new(db);
    let (sender, receiver) = std::sync::mpsc::channel();
    let writer = {
        let db = db.clone();
        std::thread::spawn(move || {
            for row in 0..1_000u32 {
                sender.send(db.put(&tree, &row.to_be_bytes(), &value)).unwrap();
            }
        })
    };
    for row in 0..1_000 {
        let written = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        written.unwrap_or_else(|_| panic!("hangs at row={row}")).unwrap();
    }
    writer.join().unwrap();
}

/// A copy of `storage` with a bit flipped in the byte of the data file at `offset`.
fn flipped(storage: &MemoryStorage, offset: u64) -> MemoryStorage {
    let storage = storage.snapshot();
    storage.flip_bit(&data_file(), offset, (offset % 8) as u8).unwrap();
    storage
}

/// What a check of `storage` with one bit flipped says.
fn checked_with_flip(storage: &MemoryStorage, offset: u64) -> CheckReport {
    check(DIRECTORY, &options(&flipped(storage, offset)), &mut |_| {}).unwrap()
}

/// The database there, if it can be opened for reading.
fn open_to_read(storage: &MemoryStorage) -> Option<Database> {
    let options = Options::new().storage(Some(Arc::new(storage.clone()))).memory_bytes(8 << 20).read_only(true);
    Database::open(DIRECTORY, options.manual_background(true)).ok()
}

pub(crate) fn data_file() -> PathBuf {
    Path::new(DIRECTORY).join("data.frond")
}

#[test]
fn every_damaged_block_and_large_value_is_named_by_one_check() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let mut random = Random::new(3);
    for name in TREES {
        let tree = db.create_tree(name, &TreeOptions::default()).unwrap();
        for number in 0..20u32 {
            let length = if name == "c" && number % 10 == 5 { BLOB_BYTES_MIN + 100 } else { 60 };
            db.put(&tree, &number.to_be_bytes(), &random.bytes(length)).unwrap();
        }
    }
    db.checkpoint().unwrap();
    db.close().unwrap();
    assert!(check(DIRECTORY, &options(&storage), &mut |_| {}).unwrap().is_clean());
    // Where blocks of the first two trees and large values of the third are, and a bit in each.
    let mut places = BTreeMap::new();
    for offset in used(&storage, &data_file()).1.into_iter().step_by(61) {
        let report = checked_with_flip(&storage, offset);
        if let [found] = report.findings.as_slice() {
            let tree = found.tree.map_or(0, |tree| tree.0);
            let is_block = found.message.contains("damaged block") && (1..=2).contains(&tree);
            if is_block || found.message.contains("large value") && tree == 3 {
                places.insert((tree, found.offset.unwrap()), offset);
            }
        }
    }
    for tree in 1..=3 {
        assert!(places.range((tree, 0)..(tree + 1, 0)).count() >= 1, "{places:?}");
    }
    assert!(places.len() >= 5, "{places:?}");
    places.values().for_each(|offset| storage.flip_bit(&data_file(), *offset, (offset % 8) as u8).unwrap());
    let report = check(DIRECTORY, &options(&storage), &mut |_| {}).unwrap();
    for (tree, offset) in places.keys() {
        let is_it = |found: &&fronddb::Finding| {
            found.tree.is_some_and(|found| found.0 == *tree) && found.offset == Some(*offset)
        };
        assert_eq!(
            report.findings.iter().filter(is_it).count(),
            1,
            "tree={tree} offset={offset}: {:#?}",
            report.findings
        );
    }
    assert_eq!(report.findings.len(), places.len(), "{:#?}", report.findings);
    assert_eq!(report.damaged_trees().iter().map(|tree| tree.0).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_block_of_many_small_trees_damages_all_of_them() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        let tree = db.create_tree(name, &TreeOptions::default()).unwrap();
        db.put(&tree, b"key", b"v").unwrap();
    }
    db.checkpoint().unwrap();
    db.close().unwrap();
    let mut shared = 0;
    for offset in used(&storage, &data_file()).1.into_iter().step_by(13) {
        let report = checked_with_flip(&storage, offset);
        let storage = flipped(&storage, offset);
        let Some(db) = open_to_read(&storage) else { continue };
        let mut online = Vec::new();
        db.check(&mut |found| online.push(found), None).unwrap();
        let salvaged = salvage(DIRECTORY, "/new", &self::options(&storage.snapshot()), &mut |_| {}).unwrap();
        let mut damaged = 0;
        for (name, number) in names.iter().zip(1..) {
            let Ok(tree) = db.open_tree(name) else { continue };
            assert_eq!(tree.id().0, number);
            if let Err(error) = db.get(&tree, b"key") {
                assert!(error.is_unreadable(), "offset={offset}: {error}");
                assert!(report.damaged_trees().contains(&tree.id()), "{name} offset={offset}: {:#?}", report.findings);
                let reaches =
                    |found: &fronddb::Finding| found.tree <= Some(tree.id()) && Some(tree.id()) <= found.tree_last;
                assert!(online.iter().any(reaches), "{name} offset={offset}: {online:#?}");
                let rescued = salvaged.trees.iter().find(|tree| tree.name == *name).unwrap();
                assert!(rescued.rows == 1 || rescued.damages > 0, "{name} offset={offset}: {salvaged:#?}");
                damaged += 1;
            }
        }
        shared += usize::from(damaged > 1);
    }
    assert!(shared > 1, "shared={shared}");
}

#[test]
fn what_a_damaged_tree_lost_makes_nothing_of_another_tree_a_damage() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let [a, b, c] = TREES.map(|name| db.create_tree(name, &TreeOptions::default()).unwrap());
    let mut random = Random::new(11);
    for tree in [&a, &b] {
        (0..600u32).for_each(|row| db.put(tree, &row.to_be_bytes(), &random.bytes(100)).unwrap());
    }
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    // Of a row that there is not: it is sound, and makes none.
    let txn = begin(&db);
    let mut program = Vec::new();
    Program { ops: vec![Op::Append { bytes: b"more".to_vec() }] }.encode(&mut program);
    [&a, &b, &c].iter().for_each(|tree| txn.update(tree, b"none", &program).unwrap());
    txn.commit().unwrap();
    let crashed = storage.snapshot();
    drop(db);
    let mut damaged = 0;
    for offset in used(&crashed, &data_file()).1.into_iter().step_by(1500) {
        let storage = flipped(&crashed, offset);
        let Ok(report) = salvage(DIRECTORY, "/new", &options(&storage), &mut |_| {}) else { continue };
        let is_block = |found: &fronddb::Finding| found.message.contains("damaged block");
        let Some(block) = report.findings.iter().find(|found| is_block(found)) else { continue };
        let concerned = block.tree..=block.tree_last;
        for tree in report.trees.iter().filter(|tree| !concerned.contains(&Some(tree.id))) {
            assert_eq!(tree.damages, 0, "{} offset={offset}: {:#?}", tree.name, report.findings);
        }
        damaged += 1;
    }
    assert!(damaged > 20, "damaged={damaged}");
}

#[test]
fn a_large_value_of_which_only_the_log_knows_is_checked() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    db.checkpoint().unwrap();
    let mut random = Random::new(5);
    let mut place = |write: &dyn Fn(&[u8])| {
        let before = storage.snapshot();
        write(&random.bytes(BLOB_BYTES_MIN + 100));
        let bytes = |storage: &MemoryStorage| fronddb::io::read_file(storage, &data_file()).unwrap();
        let (old, new) = (bytes(&before), bytes(&storage));
        (0..new.len()).find(|at| old.get(*at) != new.get(*at)).unwrap() as u64 + 100
    };
    let kept = place(&|value| db.put(&tree, b"kept", value).unwrap());
    let undone = place(&|value| {
        let txn = begin(&db);
        txn.put(&tree, b"undone", value).unwrap();
        txn.rollback().unwrap();
    });
    let crashed = storage.snapshot();
    drop(db);
    assert!(check(DIRECTORY, &options(&crashed), &mut |_| {}).unwrap().is_clean());
    // Nobody will ever read it, and nothing synced it.
    assert!(checked_with_flip(&crashed, undone).is_clean());
    let report = checked_with_flip(&crashed, kept);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert_eq!((report.findings[0].tree_name.as_deref(), report.findings[0].offset.is_some()), (Some("t"), true));
    crashed.flip_bit(&data_file(), kept, (kept % 8) as u8).unwrap();
    let db = open(&crashed);
    let tree = db.open_tree("t").unwrap();
    let error = db.get(&tree, b"kept").unwrap_err();
    assert!(error.is_unreadable() && error.message().contains(&format!("tree={}", tree.id())), "{error}");
    let mut found = Vec::new();
    db.check(&mut |finding| found.push(finding), None).unwrap();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].tree, found[0].tree_last), (Some(tree.id()), Some(tree.id())));
}

/// The blocks of a tree that is dropped go unread with the leaves that are its own alone. In a leaf that it shares with a tree beside it they
/// stay, and so does their damage, which concerns nobody. A node whose leaf it shares is left out: without it the trees beside, and for the
/// last one those that are created later, are unreadable as well.
#[test]
fn a_damaged_tree_is_dropped_and_created_anew() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let mut random = Random::new(13);
    let row = |number: u32| number.to_be_bytes();
    for name in TREES {
        let tree = db.create_tree(name, &TreeOptions::default()).unwrap();
        // Some values lie apart, so a drop has to read where.
        let value_bytes = |number: u32| if number % 40 == 7 { BLOB_BYTES_MIN } else { 100 };
        (0..600).for_each(|number| db.put(&tree, &row(number), &random.bytes(value_bytes(number))).unwrap());
    }
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    db.close().unwrap();
    let (mut clean, mut shared, mut spaces_lost) = (0, 0, 0);
    for offset in used(&storage, &data_file()).1.into_iter().step_by(1000) {
        let storage = flipped(&storage, offset);
        let before = check(DIRECTORY, &options(&storage), &mut |_| {}).unwrap();
        let [finding] = before.findings.as_slice() else { continue };
        let Some(name) = finding.tree_name.as_deref().filter(|name| TREES.contains(name)) else { continue };
        if finding.message.contains("node in") && finding.tree_last != finding.tree {
            continue;
        }
        let context = format!("tree={name} offset={offset}");
        let db = open(&storage);
        let tree = db.open_tree(name).unwrap();
        let is_damaged = |number| db.get(&tree, &row(number)).is_err_and(|error| error.is_unreadable());
        if !(0..600).any(is_damaged) {
            continue;
        }
        db.drop_tree(name).unwrap_or_else(|error| panic!("{context}: {error}"));
        let tree = db.create_tree(name, &TreeOptions::default()).unwrap();
        (0..600).for_each(|number| db.put(&tree, &row(number), b"anew").unwrap());
        db.checkpoint().unwrap();
        let mut met = 0;
        while db.step_background().unwrap_or_else(|error| {
            assert!(error.is_unreadable(), "{context}: {error}");
            met += 1;
            met < 10
        }) {}
        (0..600).for_each(|number| assert_eq!(db.get(&tree, &row(number)).unwrap().as_deref(), Some(&b"anew"[..])));
        for beside in TREES.map(|name| db.open_tree(name).unwrap()) {
            (0..600).for_each(|number| assert!(db.get(&beside, &row(number)).unwrap().is_some(), "{context}"));
        }
        let mut online = Vec::new();
        db.check(&mut |finding| online.push(finding.offset), None).unwrap();
        db.close().unwrap();
        let after = check(DIRECTORY, &options(&storage), &mut |_| {}).unwrap();
        // Where large values lay that unreadable blocks told of.
        let (lost, left): (Vec<_>, Vec<_>) =
            after.findings.iter().partition(|finding| finding.message.contains("used by nobody"));
        spaces_lost += lost.len();
        let left: Vec<_> = left.into_iter().map(|finding| finding.offset).collect();
        assert_eq!(online, left, "{context}");
        if met == 0 {
            assert!(left.is_empty(), "{context}: {:#?}", after.findings);
            clean += 1;
        } else {
            assert_eq!((left, after.damaged_trees()), (vec![finding.offset], before.damaged_trees()), "{context}");
            shared += 1;
        }
    }
    assert!(clean > 120 && shared < 60 && spaces_lost > 0, "clean={clean} shared={shared} spaces_lost={spaces_lost}");
}
