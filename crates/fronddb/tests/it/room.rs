//! The system fails to give room in the data file, or to take some back: nothing is lost by that, and work goes on.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};
use fronddb::{Database, LogLevel, Options, Tree, TreeOptions};

use crate::support::{DIRECTORY, Random, open, options};

struct World {
    memory: MemoryStorage,
    plan: FaultPlan,
    warnings: Arc<Mutex<Vec<String>>>,
    options: Options,
}

impl World {
    fn new(manual: bool) -> World {
        let (memory, plan) = (MemoryStorage::new(), FaultPlan::new());
        let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = warnings.clone();
        let options = options(&memory)
            .storage(Some(Arc::new(FaultStorage::new(Arc::new(memory.clone()), plan.clone()))))
            .manual_background(manual)
            .on_log(Some(Arc::new(move |level, text: &str| {
                if level != LogLevel::Note {
                    told.lock().unwrap().push(text.to_owned());
                }
            })));
        World { memory, plan, warnings, options }
    }

    fn open(&self) -> Database {
        Database::open(DIRECTORY, self.options.clone()).unwrap()
    }

    fn verify(&self, db: &Database, rows: &[u32]) {
        let check = |db: &Database| {
            let tree = db.open_tree("kept").unwrap();
            for row in rows {
                let found = db.get(&tree, &row.to_be_bytes()).unwrap();
                assert!(found.as_deref() == Some(&value(*row)[..]), "row={row}");
            }
            db.check(&mut |finding| panic!("{finding:?}"), None).unwrap();
        };
        check(db);
        check(&open(&self.memory.crash(3)));
    }
}

fn value(row: u32) -> Vec<u8> {
    Random::new(u64::from(row)).bytes(3000)
}

fn fill(db: &Database, tree: &Tree, rows: std::ops::Range<u32>) {
    rows.for_each(|row| db.put(tree, &row.to_be_bytes(), &value(row)).unwrap());
}

/// Publishes until what was dropped is free.
fn publish(db: &Database) {
    (0..3).for_each(|_| db.checkpoint().unwrap());
}

fn compact(db: &Database) {
    for _ in 0..2 {
        db.compact(None, b"", b"", &mut |_| ControlFlow::Continue(())).unwrap();
    }
}

#[test]
fn free_space_that_the_system_does_not_take_back_is_told_of_once_and_nothing_else_comes_of_it() {
    for (fault, manual) in [(Fault::Error, true), (Fault::Error, false), (Fault::NoMemory, true)] {
        let context = format!("{fault:?} manual={manual}");
        let world = World::new(manual);
        let db = world.open();
        let [kept, gone] = ["kept", "gone"].map(|name| db.create_tree(name, &TreeOptions::default()).unwrap());
        fill(&db, &kept, 0..300);
        fill(&db, &gone, 0..2000);
        fill(&db, &kept, 300..600);
        publish(&db);
        drop(gone);
        for class in [CallClass::Punch, CallClass::SetLen] {
            world.plan.add(FaultRule::from(class, 1, fault).on("data.frond"));
        }
        db.drop_tree("gone").unwrap();
        publish(&db);
        db.wait_idle().unwrap();
        fill(&db, &kept, 600..700);
        compact(&db);
        let tried = world.plan.fired();
        assert!((1..100).contains(&tried), "{context}: tried {tried} times");
        assert!(db.poisoned().is_none(), "{context}: {:?}", db.poisoned());
        let warnings = world.warnings.lock().unwrap().clone();
        assert_eq!(warnings.len(), 1, "{context}: {warnings:?}");
        assert!(warnings[0].contains("could not be given back"), "{context}: {warnings:?}");
        world.plan.clear();
        world.verify(&db, &(0..700).collect::<Vec<_>>());
        let tree = db.create_tree("more", &TreeOptions::default()).unwrap();
        fill(&db, &tree, 0..2000);
        drop(tree);
        publish(&db);
        let full = world.memory.occupied_bytes();
        db.drop_tree("more").unwrap();
        publish(&db);
        db.wait_idle().unwrap();
        compact(&db);
        let left = world.memory.occupied_bytes();
        assert!(left + (3 << 20) < full, "{context}: of {full} bytes {left} are left when the system takes some again");
        db.close().unwrap();
    }
}

#[test]
fn work_for_which_the_system_has_no_room_for_a_while_goes_on_after_that() {
    for fault in [Fault::Error, Fault::NoMemory] {
        for manual in [true, false] {
            let context = format!("{fault:?} manual={manual}");
            let world = World::new(manual);
            let db = world.open();
            let tree = db.create_tree("kept", &TreeOptions::default()).unwrap();
            let fail = |nth| world.plan.add(FaultRule::once(CallClass::Allocate, nth, fault).on("data.frond"));
            (1..8).for_each(fail);
            let mut rows = Vec::new();
            for row in 0..3000u32 {
                match db.put(&tree, &row.to_be_bytes(), &value(row)) {
                    Ok(()) => rows.push(row),
                    Err(error) => assert!(error.is_passing(), "{context}: {error}"),
                }
            }
            assert!(rows.len() > 2900, "{context}: rows={}", rows.len());
            assert!(db.poisoned().is_none(), "{context}: {:?}", db.poisoned());
            assert!(world.plan.fired() >= 7, "{context}");
            world.plan.clear();
            publish(&db);
            db.wait_idle().unwrap();
            world.verify(&db, &rows);
            db.close().unwrap();
        }
    }
}

#[test]
fn a_database_for_which_the_system_has_no_room_for_long_refuses_writes_and_can_be_read() {
    for fault in [Fault::Error, Fault::NoMemory] {
        let world = World::new(true);
        let db = world.open();
        let tree = db.create_tree("kept", &TreeOptions::default()).unwrap();
        fill(&db, &tree, 0..300);
        world.plan.add(FaultRule::from(CallClass::Allocate, 1, fault).on("data.frond"));
        let refused = (300..10_000).find_map(|row| db.put(&tree, &u32::to_be_bytes(row), &value(row)).err());
        let error = refused.expect("it needs no room");
        assert!(error.is_passing(), "{fault:?}: {error}");
        assert!(db.checkpoint().is_err_and(|error| error.is_passing()), "{fault:?}");
        assert!(db.poisoned().is_none(), "{fault:?}: {:?}", db.poisoned());
        world.verify(&db, &(0..300).collect::<Vec<_>>());
        world.plan.clear();
        fill(&db, &tree, 300..600);
        publish(&db);
        world.verify(&db, &(0..600).collect::<Vec<_>>());
        db.close().unwrap();
    }
}
