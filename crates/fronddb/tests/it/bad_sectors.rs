//! A disk that does not give back what a sector held: what lies there is damaged, everything else goes on, nothing is poisoned.

use std::ops::Range;
use std::sync::Arc;

use fronddb::format::superblock::slot_offset;
use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};
use fronddb::{CheckOptions, Database, Error, ErrorKind, check, salvage};

use crate::damage::{Rows, TREES, World, data_file, read, world};
use crate::support::{DIRECTORY, begin, collect, options};

const PAGE: u64 = 4096;

/// A copy of what `storage` holds on a disk that follows a plan, and the copy without it.
fn faulty(storage: &MemoryStorage) -> (FaultPlan, Arc<dyn Storage>, MemoryStorage) {
    let (plan, copy) = (FaultPlan::new(), storage.snapshot());
    (plan.clone(), Arc::new(FaultStorage::new(Arc::new(copy.clone()), plan)), copy)
}

/// The same, with bad sectors in the data file.
fn with_bad(storage: &MemoryStorage, range: Range<u64>) -> (Arc<dyn Storage>, MemoryStorage) {
    let (plan, faulty, copy) = faulty(storage);
    plan.add(FaultRule::unreadable(range).on("/db/data.frond"));
    (faulty, copy)
}

fn open(storage: &Arc<dyn Storage>) -> Result<Database, Error> {
    Database::open(DIRECTORY, options(&MemoryStorage::new()).storage(Some(storage.clone())))
}

fn check_options(storage: &Arc<dyn Storage>) -> CheckOptions {
    CheckOptions { storage: Some(storage.clone()), memory_bytes: 8 << 20, ..CheckOptions::default() }
}

/// Background work until there is none, or none that can be done.
fn work(db: &Database, context: &str) {
    let mut failed = 0;
    for _ in 0..1000 {
        match db.step_background() {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) if error.is_unreadable() => failed += 1,
            Err(error) => panic!("{context}: {error}"),
        }
        // As the threads do, which pause and try again.
        if failed > 20 {
            return;
        }
    }
    panic!("{context}: the work has no end");
}

/// What the trees of a database yield, and why some yield nothing: each tree's rows are right, or its error names the place.
fn serve(db: &Database, wanted: &Rows, context: &str) -> Vec<Error> {
    let mut errors = Vec::new();
    for name in TREES {
        let tree = match db.open_tree(name) {
            Ok(tree) => tree,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        let mut is_whole = true;
        for ((_, key), value) in wanted.iter().filter(|((tree, _), _)| tree == name) {
            match db.get(&tree, key) {
                Ok(got) => assert_eq!(got.as_deref(), Some(&value[..]), "{context}: tree={name}"),
                Err(error) => {
                    is_whole = false;
                    errors.push(error);
                }
            }
        }
        let txn = begin(db);
        let rows = txn.cursor(&tree, Default::default()).and_then(|mut cursor| collect(&mut cursor));
        match rows {
            Ok(rows) => assert_eq!(rows.len(), wanted.keys().filter(|(tree, _)| tree == name).count(), "{context}"),
            // What a scan reads ahead may be another tree's.
            Err(error) if is_whole => panic!("{context}: every row of the tree can be read, but not in order: {error}"),
            Err(error) => errors.push(error),
        }
    }
    for error in &errors {
        let message = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{context}: {error}");
        assert!(message.contains("data.frond") && message.contains("offset="), "{context}: {message}");
    }
    errors
}

fn is_named_by(db: &Database) -> bool {
    let mut findings = Vec::new();
    db.check(&mut |found| findings.push(found), None).unwrap();
    findings.iter().any(|found| found.file == "data.frond" && found.offset.is_some())
}

/// The rows of a salvage are such as there were, and all of them if nothing was lost.
fn assert_rescued(world: &World, storage: &Arc<dyn Storage>, copy: &MemoryStorage, context: &str) -> usize {
    let salvaged = salvage(DIRECTORY, "/new", &check_options(storage), &mut |_| {});
    let salvaged = salvaged.unwrap_or_else(|error| panic!("{context}: {error}"));
    let rows = read(copy, "/new");
    for ((tree, key), value) in &rows {
        let known = (tree.clone(), key.clone(), value.clone());
        assert!(tree.starts_with("lost-") || world.history.contains(&known), "{context}: {tree} {key:?}");
    }
    assert!(!salvaged.findings.is_empty() || rows == world.rows, "{context}: something is missing silently");
    rows.len()
}

#[test]
fn a_bad_sector_anywhere_in_the_data_file_is_damage_of_what_lies_there() {
    let world = world();
    let files = world.storage.files();
    let pages = files.iter().find(|(path, _)| *path == data_file()).unwrap().1 / PAGE;
    let (mut partly, mut usable, mut rescued, mut named, mut refused, mut refused_again) = (0, 0, 0, 0, 0, 0);
    for page in 0..pages {
        let context = format!("page={page} offset={}", page * PAGE);
        let bad = page * PAGE..page * PAGE + 512;
        let (storage, copy) = with_bad(&world.storage, bad);
        let is_named = || {
            let report = check(DIRECTORY, &check_options(&storage), &mut |_| {});
            let report = report.unwrap_or_else(|error| panic!("{context}: {error}"));
            report.findings.iter().any(|found| found.file == "data.frond" && found.offset.is_some())
        };
        named += u64::from(is_named());
        // For a root that both generations have.
        let is_refused = |when: &str| {
            let Err(error) = open(&storage) else { return false };
            let is_root = error.kind() == ErrorKind::Corruption && error.message().contains("node");
            let is_here = error.message().contains(&format!("offset={} ", page * PAGE));
            assert!(is_root && is_here && is_named(), "{context} {when}: {error}");
            true
        };
        if is_refused("at first") {
            refused += 1;
            continue;
        }
        rescued += u64::from(assert_rescued(&world, &storage, &copy, &context) * 2 > world.rows.len());
        let db = open(&storage).unwrap_or_else(|error| panic!("{context}: {error}"));
        let errors = serve(&db, &world.rows, &context);
        assert!(errors.is_empty() || is_named_by(&db), "{context}: {errors:?}");
        work(&db, &context);
        let mut wanted = world.rows.clone();
        let mut writable = 0;
        for name in TREES {
            let Ok(tree) = db.open_tree(name) else { continue };
            db.put(&tree, b"new", b"v").unwrap();
            wanted.insert((name.to_owned(), b"new".to_vec()), b"v".to_vec());
            writable += 1;
        }
        let seal = db.checkpoint();
        assert!(seal.as_ref().err().is_none_or(Error::is_unreadable), "{context}: {seal:?}");
        work(&db, &context);
        let errors = serve(&db, &wanted, &context);
        assert!(errors.is_empty() || is_named_by(&db), "{context}: {errors:?}");
        assert!(db.poisoned().is_none(), "{context}: {:?}", db.poisoned());
        drop(db);
        if !errors.is_empty() {
            partly += 1;
            usable += u64::from(writable == TREES.len());
            assert!(is_named(), "{context}: {errors:?}");
        }
        // The disk took what it does not give back, and nobody reads a root that was just written.
        refused_again += u64::from(is_refused("again"));
    }
    assert!(
        partly > 10 && usable * 10 >= partly * 8,
        "of {pages} pages {partly} hid rows, and {usable} left all trees writable"
    );
    assert!(refused <= 1 && refused_again <= 1, "{refused}, {refused_again}");
    assert!(named > 10 && rescued * 10 > pages * 9, "named={named} rescued={rescued} of {pages}");
}

#[test]
fn a_superblock_that_the_disk_does_not_give_back_costs_at_most_its_generation() {
    let world = world();
    let newest = crate::support::open(&world.storage.snapshot()).recovery_report().unwrap().generation;
    for generation in newest - 3..=newest {
        let at = slot_offset(generation);
        let context = format!("generation={generation} of {newest}");
        let (storage, copy) = with_bad(&world.storage, at..at + 512);
        let report = check(DIRECTORY, &check_options(&storage), &mut |_| {}).unwrap();
        let is_it = |found: &fronddb::Finding| found.offset == Some(at) && found.file == "data.frond";
        assert!(report.findings.iter().any(is_it), "{context}: {:#?}", report.findings);
        assert_eq!(assert_rescued(&world, &storage, &copy, &context), world.rows.len(), "{context}");
        let db = open(&storage).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(db.recovery_report().unwrap().generation, newest - u64::from(generation == newest), "{context}");
        assert_eq!(serve(&db, &world.rows, &context).len(), 0, "{context}");
        // And also from then on, when the slot is written and cannot be read again.
        for round in 0..5u8 {
            let (tree, key) = (db.open_tree("a").unwrap(), [b'n', round]);
            db.put(&tree, &key, b"v").unwrap();
            db.checkpoint().unwrap();
            let (storage, _) = with_bad(&copy, at..at + 512);
            let again = open(&storage).unwrap_or_else(|error| panic!("{context} round={round}: {error}"));
            assert!(again.get(&again.open_tree("a").unwrap(), &key).unwrap().is_some(), "{context} round={round}");
        }
    }
}

#[test]
fn a_log_that_the_disk_does_not_give_back_is_refused_named_and_ends_there_for_a_salvage() {
    let world = world();
    let (plan, storage, copy) = faulty(&world.storage);
    plan.add(FaultRule::unreadable(PAGE..2 * PAGE).on("/db/log/"));
    let error = open(&storage).map(|_| ()).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains(".log"), "{error}");
    let report = check(DIRECTORY, &check_options(&storage), &mut |_| {}).unwrap();
    assert!(report.findings.iter().any(|found| found.file.ends_with(".log")), "{:#?}", report.findings);
    let rescued = assert_rescued(&world, &storage, &copy, "log");
    assert!(rescued * 2 > world.rows.len(), "rescued={rescued}");
    // Nothing has changed: if the disk gives it back one day, all is there.
    plan.clear();
    assert_eq!(serve(&open(&storage).unwrap(), &world.rows, "log").len(), 0);
}

#[test]
fn a_read_that_fails_for_another_reason_damages_and_poisons_nothing() {
    let world = world();
    for nth in (1..120).step_by(3) {
        for fault in [Fault::Error, Fault::NoMemory] {
            // The disk answers at the second attempt.
            let (plan, storage, _) = faulty(&world.storage);
            plan.add(FaultRule::once(CallClass::Read, nth, fault).on("data.frond"));
            let context = format!("nth={nth} fault={fault:?}");
            let db = open(&storage).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(serve(&db, &world.rows, &context).len(), 0, "{context}");
            while db.step_background().unwrap_or_else(|error| panic!("{context}: {error}")) {}
        }
        // There is no memory for some time.
        let (plan, storage, _) = faulty(&world.storage);
        plan.add(FaultRule::from(CallClass::Read, nth, Fault::NoMemory).on("data.frond"));
        let context = format!("nth={nth}");
        match open(&storage) {
            Err(error) => assert!(error.kind() == ErrorKind::Io && error.is_passing(), "{context}: {error}"),
            Ok(db) => {
                for _ in 0..50 {
                    match db.step_background() {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => assert!(error.is_passing(), "{context}: {error}"),
                    }
                }
                assert!(db.poisoned().is_none(), "{context}: {:?}", db.poisoned());
                plan.clear();
                while db.step_background().unwrap_or_else(|error| panic!("{context}: {error}")) {}
                assert_eq!(serve(&db, &world.rows, &context).len(), 0, "{context}");
            }
        }
        plan.clear();
        let report = check(DIRECTORY, &check_options(&storage), &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{context}: {:#?}", report.findings);
    }
}
