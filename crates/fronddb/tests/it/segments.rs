//! The log wants another segment, and there is no descriptor or no memory for it: what needs one fails and may be tried again, and nothing else.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};
use fronddb::{Database, ErrorKind, LogLevel, Options, Tree, TreeOptions};

use crate::support::{DIRECTORY, Random, begin, open, options};

/// What the error log was told.
type Told = Arc<Mutex<Vec<(LogLevel, String)>>>;

struct World {
    memory: MemoryStorage,
    plan: FaultPlan,
    told: Told,
    options: Options,
}

impl World {
    fn new(manual: bool) -> World {
        let (memory, plan, told) = (MemoryStorage::new(), FaultPlan::new(), Told::default());
        let storage = FaultStorage::new(Arc::new(memory.clone()), plan.clone());
        let copy = told.clone();
        let options = options(&memory)
            .storage(Some(Arc::new(storage)))
            .manual_background(manual)
            .on_log(Some(Arc::new(move |level, text| copy.lock().unwrap().push((level, text.to_owned())))));
        World { memory, plan, told, options }
    }

    fn open(&self) -> (Database, Tree) {
        let db = Database::open(DIRECTORY, self.options.clone()).unwrap();
        let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
        (db, tree)
    }

    /// From now on calls of a class fail where the log is.
    fn fail(&self, class: CallClass, fault: Fault) {
        self.plan.add(FaultRule::from(class, 1, fault).on("log"));
    }

    fn warnings(&self) -> Vec<String> {
        let told = self.told.lock().unwrap();
        told.iter().filter(|(level, _)| *level != LogLevel::Note).map(|(_, text)| text.clone()).collect()
    }

    /// All rows that were acknowledged are there, now and after a crash.
    fn verify(&self, db: &Database, rows: &BTreeSet<u32>) {
        let check = |db: &Database| {
            let tree = db.open_tree("t").unwrap();
            for row in rows {
                assert!(db.get(&tree, &row.to_be_bytes()).unwrap().is_some(), "row={row}");
            }
            db.check(&mut |finding| panic!("{finding:?}"), None).unwrap();
        };
        check(db);
        (0..3).for_each(|seed| check(&open(&self.memory.crash(seed))));
    }
}

fn value(row: u32) -> Vec<u8> {
    Random::new(u64::from(row)).bytes(3000)
}

#[test]
fn writes_that_no_segment_can_be_made_for_fail_and_go_on_when_it_can() {
    for (class, manual) in [(CallClass::Open, true), (CallClass::Open, false), (CallClass::Allocate, true)] {
        for fault in [Fault::NoDescriptor, Fault::NoMemory] {
            let world = World::new(manual);
            let (db, tree) = world.open();
            // What has a name in the log's directory already is not given back either.
            world.fail(class, fault);
            world.fail(CallClass::Names, fault);
            let mut rows = BTreeSet::new();
            let refused = (0..10_000u32).find_map(|row| {
                let written = db.put(&tree, &row.to_be_bytes(), &value(row));
                rows.extend(written.is_ok().then_some(row));
                written.err()
            });
            let context = format!("{class:?} {fault:?} manual={manual}");
            let error = refused.unwrap_or_else(|| panic!("{context}: the log is never full"));
            assert!(error.kind() == ErrorKind::Io && error.is_passing(), "{context}: {error}");
            assert!(rows.len() > 300, "{context}: what was ready was not used, rows={}", rows.len());
            for row in 20_000..20_010u32 {
                assert!(db.put(&tree, &row.to_be_bytes(), &value(row)).is_err(), "{context}");
            }
            let txn = begin(&db);
            txn.set_lock_timeout(Some(std::time::Duration::ZERO)).unwrap();
            txn.rollback().unwrap();
            assert!(db.checkpoint().is_err_and(|error| error.is_passing()), "{context}");
            assert!(db.step_background().is_err_and(|error| error.is_passing() || !manual), "{context}");
            assert!(db.poisoned().is_none(), "{context}");
            world.verify(&db, &rows);
            let warnings = world.warnings();
            assert_eq!(warnings.len(), 1, "{context}: {warnings:?}");
            assert!(warnings[0].contains("the log lacks a segment"), "{context}: {warnings:?}");
            world.plan.clear();
            db.checkpoint().unwrap();
            for row in 30_000..31_000u32 {
                db.put(&tree, &row.to_be_bytes(), &value(row)).unwrap();
                rows.insert(row);
            }
            world.verify(&db, &rows);
            db.close().unwrap();
        }
    }
}

#[test]
fn segments_that_could_not_be_recycled_are_with_the_next_publication() {
    for fault in [Fault::NoDescriptor, Fault::NoMemory] {
        let world = World::new(true);
        let (db, tree) = world.open();
        let mut rows = BTreeSet::new();
        let mut write = |from: u32| {
            for row in from..from + 200 {
                db.put(&tree, &row.to_be_bytes(), &value(row)).unwrap();
                rows.insert(row);
                while db.step_background().unwrap() {}
            }
            db.checkpoint().unwrap();
        };
        world.fail(CallClass::Names, fault);
        write(0);
        assert!(db.poisoned().is_none() && world.plan.fired() > 0);
        world.plan.clear();
        write(1000);
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
        let segments =
            world.memory.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|is| is == "log"));
        assert!(segments.count() <= 5, "{:?}", world.memory.files());
        world.verify(&db, &rows);
    }
}

/// What a sync that failed leaves behind nobody knows, whatever it says of the cause.
#[test]
fn a_sync_that_fails_poisons_whatever_the_cause() {
    for fault in [Fault::NoDescriptor, Fault::NoMemory, Fault::Error] {
        for class in [CallClass::Sync, CallClass::SyncDir] {
            let world = World::new(true);
            let (db, tree) = world.open();
            world.fail(class, fault);
            let failed = (0..10_000u32).find_map(|row| db.put(&tree, &row.to_be_bytes(), &value(row)).err());
            assert_eq!(failed.map(|error| error.kind()), Some(ErrorKind::Poisoned), "{class:?} {fault:?}");
            world.plan.clear();
            assert_eq!(db.put(&tree, b"x", b"").map_err(|error| error.kind()), Err(ErrorKind::Poisoned));
        }
    }
}
