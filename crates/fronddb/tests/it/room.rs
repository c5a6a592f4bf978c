//! The system fails to give room in the data file, or to take some back: nothing is lost by that, and work goes on.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};
use fronddb::{Database, ErrorKind, LogLevel, Options, Tree, TreeOptions};

use crate::support::{DIRECTORY, Random, begin, fresh, open, options};

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
fn a_database_for_which_the_system_has_no_room_for_long_refuses_writes_and_can_be_emptied_and_read() {
    for fault in [Fault::Error, Fault::NoMemory] {
        let world = World::new(true);
        let db = world.open();
        let tree = db.create_tree("kept", &TreeOptions::default()).unwrap();
        fill(&db, &tree, 0..300);
        world.plan.add(FaultRule::from(CallClass::Allocate, 1, fault).on("data.frond"));
        let refused = (300..10_000).find_map(|row| db.put(&tree, &u32::to_be_bytes(row), &value(row)).err());
        let error = refused.expect("it needs no room");
        assert!(error.is_passing(), "{fault:?}: {error}");
        // Space is kept for what level 0 holds.
        db.checkpoint().unwrap();
        assert_eq!(db.estimated_recovery().unwrap().messages, 0, "{fault:?}");
        assert!(db.poisoned().is_none(), "{fault:?}: {:?}", db.poisoned());
        world.verify(&db, &(0..300).collect::<Vec<_>>());
        world.plan.clear();
        fill(&db, &tree, 300..600);
        publish(&db);
        world.verify(&db, &(0..600).collect::<Vec<_>>());
        db.close().unwrap();
    }
}

/// The segment that is kept for the records of what was found prepared cannot be made: nothing that moves messages needs it.
#[test]
fn level_0_is_emptied_although_no_segment_can_be_prepared_for_a_recovered_transaction() {
    let (memory, db, tree) = fresh();
    let txn = begin(&db);
    txn.put(&tree, b"prepared", b"v").unwrap();
    txn.prepare(b"xid").unwrap();
    fill(&db, &tree, 0..10);
    // As a kill leaves it.
    let left = memory.snapshot();
    let open = |nth, manual| {
        let plan = FaultPlan::new();
        let classes = vec![CallClass::Open, CallClass::Names];
        plan.add(FaultRule { classes, ..FaultRule::from(CallClass::Open, nth, Fault::NoDescriptor) }.on("log"));
        let storage = FaultStorage::new(Arc::new(left.snapshot()), plan.clone());
        let options = options(&left).storage(Some(Arc::new(storage))).manual_background(manual);
        Database::open(DIRECTORY, options).map(|db| (plan, db))
    };
    let nth = (1..1000).find(|nth| open(*nth, true).is_ok()).expect("opens");
    let (plan, db) = open(nth, false).unwrap();
    let tree = db.open_tree("t").unwrap();
    let writer = std::thread::spawn({
        let (db, tree) = (db.clone(), tree.clone());
        move || (10..10_000).find_map(|row| db.put(&tree, &u32::to_be_bytes(row), &value(row)).err())
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    // What was recovered is in the tree then.
    while !writer.is_finished() || db.statistics().unwrap().seals == 0 {
        assert!(Instant::now() < deadline, "level 0 stays full: {:?}", db.statistics().unwrap());
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = writer.join().unwrap().expect("it needs no segment");
    assert!(error.is_passing() && plan.fired() > 0, "{error}");
    plan.clear();
    db.put(&tree, &10u32.to_be_bytes(), &value(10)).unwrap();
    db.commit_prepared(b"xid").unwrap();
    assert!(db.poisoned().is_none(), "{:?}", db.poisoned());
    assert!(db.get(&tree, b"prepared").unwrap().is_some());
    (0..11)
        .for_each(|row: u32| assert!(db.get(&tree, &row.to_be_bytes()).unwrap().as_deref() == Some(&value(row)[..])));
}

/// Each of them writes in vain before it finds out, and publishes for the space that waits for that.
#[test]
fn threads_that_lack_space_do_not_end_each_others_pauses() {
    let world = World::new(false);
    let db = Database::open(DIRECTORY, world.options.clone().background_threads(3)).unwrap();
    let tree = db.create_tree("kept", &TreeOptions::default()).unwrap();
    // All over the tree, so that there is work in many places of it.
    let put = |row: u32| db.put(&tree, &row.wrapping_mul(0x9e37_79b1).to_be_bytes(), &value(row));
    (0..2000).for_each(|row| put(row).unwrap());
    let lack = FaultRule::from(CallClass::Write, 1, Fault::NoSpace).on("data.frond");
    // But for the superblock's slots, which have their space from the beginning.
    world.plan.add(FaultRule { offsets: Some(64 << 10..u64::MAX), ..lack });
    let refused = (2000..10_000).find_map(|row| put(row).err());
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::NoSpace));
    let (before, began) = (world.plan.fired(), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let pauses = began.elapsed().as_millis() as u64 / 500 + 1;
    let tried = world.plan.fired() - before;
    // A few calls of each of five threads.
    assert!(tried <= pauses * 5 * 4, "tried {tried} times in {pauses} pauses");
    assert!(db.poisoned().is_none(), "{:?}", db.poisoned());
    world.plan.clear();
    publish(&db);
    put(0).unwrap();
    db.close().unwrap();
}

/// The segment for what is prepared is all that is lacking: the rest of the free space is for what recovery finds in level 0.
#[test]
fn an_opening_that_lacks_a_segment_gives_back_no_more_than_that_takes() {
    let world = World::new(true);
    let db = world.open();
    let [kept, gone] = ["kept", "gone"].map(|name| db.create_tree(name, &TreeOptions::default()).unwrap());
    fill(&db, &kept, 0..300);
    fill(&db, &gone, 0..2000);
    let txn = begin(&db);
    txn.put(&kept, b"prepared", b"v").unwrap();
    txn.prepare(b"xid").unwrap();
    drop(gone);
    for class in [CallClass::Punch, CallClass::SetLen] {
        world.plan.add(FaultRule::from(class, 1, Fault::Error).on("data.frond"));
    }
    db.drop_tree("gone").unwrap();
    publish(&db);
    compact(&db);
    publish(&db);
    // As a kill leaves it, with space that is free and was not given back yet.
    let left = world.memory.snapshot();
    for lacked in 1..20 {
        let (storage, plan) = (left.snapshot(), FaultPlan::new());
        for nth in 1..=lacked {
            plan.add(FaultRule::once(CallClass::Allocate, nth, Fault::NoSpace).on("log"));
        }
        for class in [CallClass::Punch, CallClass::SetLen] {
            plan.add(FaultRule::from(class, 1, Fault::Latency(Duration::ZERO)).on("data.frond"));
        }
        let failing = FaultStorage::new(Arc::new(storage.clone()), plan.clone());
        let db = Database::open(DIRECTORY, options(&storage).storage(Some(Arc::new(failing)))).unwrap();
        assert_eq!(db.prepared().unwrap().len(), 1);
        if plan.fired() > lacked {
            let given = left.occupied_bytes().saturating_sub(storage.occupied_bytes());
            assert!(given < 3 << 20, "{given} bytes were given back");
            return;
        }
    }
    panic!("nothing was given back");
}
