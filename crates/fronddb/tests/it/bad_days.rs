//! Rows of the failure policy that have no test of their own elsewhere.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fronddb::base::BlockPtr;
use fronddb::base::clock::Clock;
use fronddb::format::superblock::{SUPERBLOCK_BYTES, Slot, Superblock, slot_offset};
use fronddb::io::{CallClass, CrashMode, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, OpenMode, Storage};
use fronddb::{Database, Durability, ErrorKind, Options, Tree, TreeOptions, TxnOptions, WriteBatch};

use crate::support::{DIRECTORY, Random, begin, collect, fresh, open, options};

/// A value that no codec makes shorter.
fn noise(row: u32) -> Vec<u8> {
    let mut random = Random::new(u64::from(row));
    (0..3000).map(|_| random.next() as u8).collect()
}

/// Puts rows until the disk is full; how many there are.
fn fill(db: &Database, tree: &Tree) -> u32 {
    for row in 0..100_000u32 {
        if let Err(error) = db.put(tree, &row.to_be_bytes(), &noise(row)) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert!(row > 100, "{error}");
            return row;
        }
    }
    panic!("the disk never fills");
}

#[test]
fn a_full_disk_is_an_ordinary_error_and_service_resumes() {
    let storage = MemoryStorage::new();
    storage.set_capacity(12 << 20);
    let db = open(&storage);
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    db.put(&tree, b"before", b"v").unwrap();
    let written = fill(&db, &tree);
    let check = |db: &Database, from: u32| {
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.get(&tree, b"before").unwrap().as_deref(), Some(&b"v"[..]));
        for row in (from..written).step_by(97) {
            assert!(db.get(&tree, &row.to_be_bytes()).unwrap().as_deref() == Some(&noise(row)[..]), "row={row}");
        }
    };
    check(&db, 0);
    assert_eq!(db.put(&tree, b"no", &noise(0)).map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
    // Checkpoints are possible, and so is a restart.
    db.checkpoint().unwrap();
    assert_eq!(db.statistics().unwrap().sealed_memtables, 0);
    assert_eq!(db.estimated_recovery().unwrap().messages, 0);
    check(&open(&storage.crash(5)), 0);
    check(&open(&storage.snapshot()), 0);
    // A transaction that began before is rolled back.
    let txn = begin(&db);
    for row in 0..97u32 {
        txn.delete(&tree, &row.to_be_bytes()).unwrap();
    }
    txn.rollback().unwrap();
    check(&db, 0);
    // Space that comes from elsewhere serves at once.
    storage.set_capacity(13 << 20);
    db.put(&tree, b"again", b"v").unwrap();
    check(&open(&storage.crash(6)), 0);
}

#[test]
fn deletes_go_on_when_the_disk_is_full_and_make_room() {
    let usual = |storage: &MemoryStorage| {
        let options = Options::new().create_if_missing(true).memory_bytes(16 << 20);
        options.storage(Some(Arc::new(storage.clone())))
    };
    let small = 24 << 20;
    let cases = [
        (true, small, false),
        (false, small, false),
        (false, small, false),
        (false, 100 << 20, false),
        (true, small, true),
        (false, small, true),
    ];
    for (manual, capacity, has_prepared) in cases {
        let storage = MemoryStorage::new();
        storage.set_capacity(capacity);
        let options = if capacity == small { options(&storage) } else { usual(&storage) };
        let db = Database::open(DIRECTORY, options.manual_background(manual)).unwrap();
        let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
        if has_prepared {
            let txn = begin(&db);
            txn.put(&tree, b"prepared", b"v").unwrap();
            txn.prepare(b"xid").unwrap();
        }
        let written = fill(&db, &tree);
        for row in 0..written {
            let deleted = db.delete(&tree, &row.to_be_bytes());
            assert!(
                deleted.is_ok(),
                "deletes go on: {deleted:?}, row={row} of {written} manual={manual} {has_prepared}"
            );
        }
        if has_prepared {
            db.commit_prepared(b"xid").unwrap();
        }
        put_until_it_works(&db, &tree, b"again");
        drop(db);
        let db = open(&storage.crash(u64::from(written)));
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.get(&tree, &1u32.to_be_bytes()).unwrap(), None);
        assert_eq!(db.get(&tree, b"prepared").unwrap().is_some(), has_prepared);
        assert!(db.get(&tree, b"again").unwrap().as_deref() == Some(&noise(0)[..]));
    }
}

/// Each opening begins a segment with the records of what is prepared, and may find no space for it.
#[test]
fn a_full_disk_is_opened_again_and_again_beside_a_prepared_transaction() {
    for locks in [1u32, 4_000] {
        let mut storage = MemoryStorage::new();
        storage.set_capacity(24 << 20);
        let db = open(&storage);
        let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
        let txn = begin(&db);
        for lock in 0..locks {
            txn.put(&tree, format!("prepared {:016x}", Random::new(u64::from(lock)).next()).as_bytes(), b"v").unwrap();
        }
        txn.prepare(b"xid").unwrap();
        let written = fill(&db, &tree);
        let mut databases = vec![(db, tree)];
        for round in 0..5 {
            // Those before are not closed, which would give the rest of their segments back.
            storage = storage.snapshot();
            storage.set_capacity(24 << 20);
            let opened = Database::open(DIRECTORY, options(&storage));
            let db = opened.unwrap_or_else(|error| panic!("round={round} locks={locks}: {error}"));
            let tree = db.open_tree("t").unwrap();
            assert_eq!(db.prepared().unwrap().len(), 1);
            assert!(db.get(&tree, &(written - 1).to_be_bytes()).unwrap().is_some());
            if round % 2 == 1 {
                db.delete(&tree, &(written - 1 - round).to_be_bytes()).unwrap();
            }
            databases.push((db, tree));
        }
        let (db, tree) = databases.pop().unwrap();
        for row in 0..written {
            let deleted = db.delete(&tree, &row.to_be_bytes());
            assert!(deleted.is_ok(), "{deleted:?}, row={row} of {written} locks={locks}");
        }
        db.commit_prepared(b"xid").unwrap();
        put_until_it_works(&db, &tree, b"again");
    }
}

/// What has to be written again behind the next seal has a segment kept for it, which no large record takes.
#[test]
fn large_records_leave_the_segment_that_is_kept_for_prepared_transactions() {
    let (memory, plan, db, tree) = faulty(true);
    let txn = begin(&db);
    txn.put(&tree, b"prepared", b"v").unwrap();
    txn.prepare(b"xid").unwrap();
    let put = |row: u32| {
        let mut batch = WriteBatch::new();
        (0..30u32)
            .for_each(|part| batch.put(&tree, &[row.to_be_bytes(), part.to_be_bytes()].concat(), &noise(row)).unwrap());
        db.write(&batch, TxnOptions::default())
    };
    (0..6).for_each(|row| put(row).unwrap());
    plan.add(FaultRule::from(CallClass::Allocate, 1, Fault::NoSpace).on("log"));
    for row in 0..60 {
        if let Err(error) = put(row) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        }
    }
    // Deletes in a large record, too, when what is left of the segment would hold it.
    let mut batch = WriteBatch::new();
    for row in 0..1_200u32 {
        let name = Random::new(u64::from(row)).bytes(60);
        batch.delete(&tree, &name).unwrap();
    }
    db.write(&batch, TxnOptions::default()).unwrap();
    db.rollback_prepared(b"xid").unwrap();
    db.delete(&tree, b"x").unwrap();
    let db = open(&memory.crash(3));
    assert!(db.prepared().unwrap().is_empty());
}

#[test]
fn truncating_makes_room_on_a_full_disk() {
    for manual in [true, false] {
        let storage = MemoryStorage::new();
        storage.set_capacity(24 << 20);
        let db = Database::open(DIRECTORY, options(&storage).manual_background(manual)).unwrap();
        let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
        let other = db.create_tree("other", &TreeOptions::default()).unwrap();
        let before = fill(&db, &tree);
        // It is opened as it is.
        drop((db, tree, other));
        let db = Database::open(DIRECTORY, options(&storage).manual_background(manual)).unwrap();
        let (tree, other) = (db.open_tree("t").unwrap(), db.open_tree("other").unwrap());
        let txn = begin(&db);
        txn.truncate_tree(&tree).unwrap();
        txn.commit().unwrap();
        for row in 0..before / 2 {
            put_until_it_works(&db, &other, &row.to_be_bytes());
        }
        let error = db.get(&tree, &0u32.to_be_bytes());
        assert!(matches!(error, Ok(None)), "{error:?} manual={manual}");
    }
}

/// Writes that go through on a disk that is all but full do not keep the space of a tree that was truncated meanwhile waiting.
#[test]
fn what_is_truncated_after_a_full_disk_makes_room_without_being_asked() {
    let storage = MemoryStorage::new();
    storage.set_capacity(24 << 20);
    let clock = Clock::manual();
    let db = Database::open(DIRECTORY, options(&storage).manual_background(false).clock(Some(clock.clone()))).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let other = db.create_tree("other", &TreeOptions::default()).unwrap();
    let written = fill(&db, &tree);
    for row in 0..written / 4 {
        db.delete(&tree, &row.to_be_bytes()).unwrap();
    }
    let wait = |micros: u64, is_so: &dyn Fn(u64) -> bool| {
        let began = (clock.micros(), Instant::now());
        while !is_so(clock.micros() - began.0) {
            assert!(began.1.elapsed() < Duration::from_secs(50), "{}", db.statistics().unwrap().file_bytes_live);
            clock.advance_micros(micros);
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // After some seconds nobody meets the full disk any more.
    wait(10_000, &|passed| db.put(&other, b"little", b"v").is_ok() && passed > 3_000_000);
    let full = db.statistics().unwrap().file_bytes_live;
    let txn = begin(&db);
    txn.truncate_tree(&tree).unwrap();
    txn.commit().unwrap();
    // Long before a checkpoint is due for the time alone.
    wait(1_000, &|passed| {
        assert!(passed < 50_000_000);
        db.statistics().unwrap().file_bytes_live < full / 4
    });
}

/// A database with a tree, on a storage whose calls fail as the plan says.
fn faulty(manual: bool) -> (MemoryStorage, FaultPlan, Database, Tree) {
    let memory = MemoryStorage::new();
    let plan = FaultPlan::new();
    let storage = FaultStorage::new(Arc::new(memory.clone()), plan.clone());
    let options = options(&memory).storage(Some(Arc::new(storage))).manual_background(manual);
    let db = Database::open(DIRECTORY, options).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    (memory, plan, db, tree)
}

/// Lets the log get no space any more, not that of its own old segments either, and uses its last; that goes to short records.
fn fill_log(plan: &FaultPlan, db: &Database, tree: &Tree) {
    plan.add(FaultRule::from(CallClass::Allocate, 1, Fault::NoSpace).on("log"));
    plan.add(FaultRule::from(CallClass::Names, 1, Fault::NoSpace).on("log"));
    for value in [&noise(0)[..], b""] {
        let full = (0..100_000u32).find_map(|row| db.put(tree, &row.to_be_bytes(), value).err());
        assert_eq!(full.map(|error| error.kind()), Some(ErrorKind::NoSpace));
    }
}

/// No decision is acknowledged that a restart would not find.
#[test]
fn prepared_transactions_are_decided_on_a_full_log_or_stay_prepared() {
    let (memory, plan, db, tree) = faulty(true);
    for number in 0..4u8 {
        let txn = begin(&db);
        txn.put(&tree, &[number], b"prepared").unwrap();
        txn.prepare(&[b'x', number]).unwrap();
    }
    let xids = |db: &Database| db.prepared().unwrap().into_iter().map(|info| info.xid).collect::<Vec<_>>();
    fill_log(&plan, &db, &tree);
    for number in 0..4u8 {
        let xid = [b'x', number];
        let decided = if number % 2 == 0 { db.rollback_prepared(&xid) } else { db.commit_prepared(&xid) };
        match decided {
            Ok(()) => assert!(!xids(&db).contains(&xid.to_vec())),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                let txn = begin(&db);
                txn.set_lock_timeout(Some(Duration::ZERO)).unwrap();
                let locked = txn.put(&tree, &[number], b"").map_err(|error| error.kind());
                assert!(matches!(locked, Err(ErrorKind::LockTimeout | ErrorKind::NoSpace)), "{locked:?}");
            }
        }
        assert_eq!(xids(&open(&memory.crash(u64::from(number)))), xids(&db), "as acknowledged, number={number}");
    }
    assert!(db.poisoned().is_none());
    plan.clear();
    let left = xids(&db);
    assert!(!left.is_empty(), "the log was never full");
    for xid in left {
        if xid[1] % 2 == 0 { db.rollback_prepared(&xid).unwrap() } else { db.commit_prepared(&xid).unwrap() }
    }
    let db = open(&memory.crash(9));
    let tree = db.open_tree("t").unwrap();
    assert!(xids(&db).is_empty());
    for number in 0..4u8 {
        assert_eq!(db.get(&tree, &[number]).unwrap().is_some(), number % 2 == 1, "number={number}");
    }
}

#[test]
fn a_full_log_is_emptied_beside_a_prepared_transaction() {
    let (memory, plan, db, tree) = faulty(true);
    let txn = begin(&db);
    txn.put(&tree, b"prepared", b"v").unwrap();
    txn.prepare(b"xid").unwrap();
    plan.add(FaultRule::from(CallClass::Allocate, 1, Fault::NoSpace).on("log"));
    let put = |row: u32| db.put(&tree, &row.to_be_bytes(), &noise(row));
    let full = (0..100_000).find_map(|row| put(row).err()).map(|error| error.kind());
    assert_eq!(full, Some(ErrorKind::NoSpace));
    for row in 0..2_000u32 {
        db.delete(&tree, &row.to_be_bytes()).unwrap();
        if row % 100 == 0 {
            while put(row).is_ok() {}
        }
    }
    db.commit_prepared(b"xid").unwrap();
    assert!(db.poisoned().is_none());
    let db = open(&memory.crash(3));
    assert!(db.get(&db.open_tree("t").unwrap(), b"prepared").unwrap().is_some());
}

#[test]
fn long_writes_that_the_log_refuses_give_the_space_of_their_values_back() {
    let (memory, plan, db, tree) = faulty(true);
    let txn = begin(&db);
    txn.put(&tree, b"prepared", b"v").unwrap();
    txn.prepare(b"xid").unwrap();
    fill_log(&plan, &db, &tree);
    let long = Random::new(1).bytes(2 << 20);
    let mut occupied = Vec::new();
    for _ in 0..20 {
        assert_eq!(db.put(&tree, b"long", &long).map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
        occupied.push(memory.occupied_bytes());
    }
    assert!(occupied[19] < occupied[0] + (2 << 20), "{occupied:?}");
    plan.clear();
    db.put(&tree, b"long", &long).unwrap();
    db.commit_prepared(b"xid").unwrap();
    let db = open(&memory.crash(1));
    let tree = db.open_tree("t").unwrap();
    assert!(db.get(&tree, b"long").unwrap().as_deref() == Some(&long[..]));
    assert!(db.get(&tree, b"prepared").unwrap().is_some());
}

/// Waits for the room that deletes make.
fn put_until_it_works(db: &Database, tree: &Tree, key: &[u8]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = db.put(tree, key, &noise(0)) {
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(Instant::now() < deadline, "{error}: {:?}", db.statistics().unwrap());
        if db.step_background().is_err() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_failed_log_sync_poisons_and_reads_go_on() {
    let (memory, plan, db, tree) = faulty(true);
    db.put(&tree, b"k", b"v").unwrap();
    plan.add(FaultRule::once(CallClass::Sync, 1, Fault::Error).on("log"));
    assert_eq!(db.put(&tree, b"k", b"w").map_err(|error| error.kind()), Err(ErrorKind::Poisoned));
    assert_eq!(db.put(&tree, b"x", b"y").map_err(|error| error.kind()), Err(ErrorKind::Poisoned));
    assert!(db.poisoned().is_some() && db.get(&tree, b"k").is_ok());
    // A coordinator asks everybody about what only others have.
    for decided in [db.commit_prepared(b"another's"), db.rollback_prepared(b"another's")] {
        assert_eq!(decided.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    }
    assert_eq!(db.close().map_err(|error| error.kind()), Err(ErrorKind::Poisoned));
    let db = open(&memory.crash(1));
    assert!(db.get(&db.open_tree("t").unwrap(), b"k").unwrap().is_some());
}

#[test]
fn a_newer_format_is_refused_and_both_versions_are_named() {
    let (storage, db, _tree) = fresh();
    let generation = db.statistics().unwrap().generation;
    db.close().unwrap();
    let path = Path::new(DIRECTORY).join("data.frond");
    let mut bytes = superblock(&storage, generation).encode().unwrap();
    bytes[8..12].copy_from_slice(&99u32.to_le_bytes());
    bytes[16..24].fill(0);
    let sum = fronddb::base::checksum::block(slot_offset(generation), &bytes);
    bytes[16..24].copy_from_slice(&sum.to_le_bytes());
    storage.overwrite(&path, slot_offset(generation), &bytes).unwrap();
    let error = Database::open(DIRECTORY, options(&storage)).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedFormat, "{error}");
    let known = fronddb::format::superblock::FORMAT_VERSION.to_string();
    assert!(error.to_string().contains("99") && error.to_string().contains(&known), "{error}");
}

/// A database on a storage that will panic at the next write to the data file.
fn about_to_panic(manual: bool) -> (MemoryStorage, Database) {
    let (memory, plan, db, tree) = faulty(manual);
    db.put(&tree, b"k", b"v").unwrap();
    plan.add(FaultRule::once(CallClass::Write, 1, Fault::Panic).on("data.frond"));
    (memory, db)
}

/// Poisoned, readable, and whole after reopening.
fn assert_poisoned(memory: &MemoryStorage, db: Database) {
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.put(&tree, b"k", b"w").map_err(|error| error.kind()), Err(ErrorKind::Poisoned));
    assert_eq!(db.checkpoint().map_err(|error| error.kind()), Err(ErrorKind::Poisoned));
    assert!(db.poisoned().is_some_and(|cause| cause.to_string().contains("panic")));
    assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    drop(db);
    let db = open(&memory.crash(3));
    assert_eq!(db.get(&db.open_tree("t").unwrap(), b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_panic_in_a_step_poisons_and_nobody_waits_for_ever() {
    let (memory, db) = about_to_panic(true);
    let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.checkpoint()));
    assert!(step.is_err(), "the panic goes on to the caller");
    assert_poisoned(&memory, db);
}

#[test]
fn a_panic_in_a_background_thread_poisons() {
    let (memory, db) = about_to_panic(false);
    // Whoever meets it first: this thread or one in the background.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.checkpoint()));
    assert_poisoned(&memory, db);
}

#[test]
fn the_newest_superblock_may_be_lost() {
    let (storage, db, tree) = fresh();
    for round in 0..5u32 {
        db.put(&tree, &round.to_be_bytes(), b"v").unwrap();
        db.checkpoint().unwrap();
    }
    db.put(&tree, b"last", b"v").unwrap();
    let generation = db.statistics().unwrap().generation;
    db.close().unwrap();
    let at = fronddb::format::superblock::slot_offset(generation);
    storage.overwrite(&Path::new(DIRECTORY).join("data.frond"), at, &[0x5a; 4096]).unwrap();
    let db = open(&storage);
    let tree = db.open_tree("t").unwrap();
    let report = db.recovery_report().unwrap();
    assert_eq!((report.generation, report.superblocks_skipped), (generation - 1, 1));
    assert!((0..5u32).all(|round| db.get(&tree, &round.to_be_bytes()).unwrap().is_some()));
    assert!(db.get(&tree, b"last").unwrap().is_some());
}

/// The superblock of this generation, as it stands in its slot.
fn superblock(storage: &MemoryStorage, generation: u64) -> Superblock {
    let path = Path::new(DIRECTORY).join("data.frond");
    let file = storage.open(&path, OpenMode { read_only: true, ..OpenMode::default() }).unwrap();
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    let at = slot_offset(generation);
    file.read_at(&mut bytes, at).unwrap();
    let Slot::Valid(superblock) = Superblock::decode(at, &bytes).unwrap() else { panic!("an empty slot") };
    *superblock
}

fn damage(storage: &MemoryStorage, block: BlockPtr) {
    let path = Path::new(DIRECTORY).join("data.frond");
    storage.flip_bit(&path, block.offset + 20, 3).unwrap();
}

/// A database with some generations, rows in all of them and in the log; its newest generation.
fn generations() -> (MemoryStorage, u64) {
    let (storage, db, tree) = fresh();
    for round in 0..7u32 {
        for row in 0..200 {
            db.put(&tree, &(1000 * round + row).to_be_bytes(), &[round as u8; 50]).unwrap();
        }
        db.checkpoint().unwrap();
        while db.step_background().unwrap() {}
    }
    let prepared = begin(&db);
    prepared.put(&tree, b"prepared", b"v").unwrap();
    prepared.prepare(b"xid").unwrap();
    db.put(&tree, b"last", b"v").unwrap();
    let generation = db.statistics().unwrap().generation;
    // As a kill leaves it.
    (storage.snapshot(), generation)
}

fn assert_all_there(db: &Database) {
    let tree = db.open_tree("t").unwrap();
    for round in 0..7u32 {
        for row in 0..200 {
            let value = db.get(&tree, &(1000 * round + row).to_be_bytes()).unwrap();
            assert_eq!(value.as_deref(), Some(&[round as u8; 50][..]), "round={round} row={row}");
        }
    }
    assert!(db.get(&tree, b"last").unwrap().is_some() && db.get(&tree, b"prepared").unwrap().is_none());
    assert_eq!(db.prepared().unwrap().len(), 1);
    let mut findings = Vec::new();
    db.check(&mut |finding| findings.push(finding), None).unwrap();
    assert_eq!(findings, []);
}

#[test]
fn a_damaged_root_map_or_status_of_the_newest_generation_costs_nothing() {
    for part in ["root", "space map", "statuses"] {
        let (storage, generation) = generations();
        let newest = superblock(&storage, generation);
        let block = match part {
            "root" => newest.body.root.unwrap(),
            "space map" => newest.space_map[0],
            _ => newest.body.status[0],
        };
        damage(&storage, block);
        let before = superblock(&storage, generation - 1);
        assert!(before.body.root != newest.body.root, "another tree");
        let db = Database::open(DIRECTORY, options(&storage)).unwrap_or_else(|error| panic!("{part}: {error}"));
        let report = db.recovery_report().unwrap();
        assert_eq!((report.generation, report.superblocks_skipped), (generation - 1, 1), "{part}");
        assert!(report.messages > 0 && report.messages <= report.records, "{part}: counted once");
        assert_all_there(&db);
        // The generation that was skipped does not come back, also when its damage was a passing one.
        let storage = storage.crash(9);
        damage(&storage, block);
        let db = open(&storage);
        assert_eq!(db.recovery_report().unwrap().generation, generation - 1, "{part}");
        db.checkpoint().unwrap();
        assert_all_there(&db);
        drop(db);
        let db = open(&storage.crash(10));
        assert_eq!(db.recovery_report().unwrap().superblocks_skipped, 0, "{part}");
        assert_all_there(&db);
    }
}

#[test]
fn no_generation_before_the_one_before_the_newest_is_tried() {
    let (storage, generation) = generations();
    let open_it = |storage: &MemoryStorage| Database::open(DIRECTORY, options(storage)).map(|_| ());
    damage(&storage, superblock(&storage, generation).body.root.unwrap());
    let data = Path::new(DIRECTORY).join("data.frond");
    let one = storage.snapshot();
    // What two generations before had may have been used again: also if the newest superblock is the one that is lost.
    damage(&storage, superblock(&storage, generation - 1).body.root.unwrap());
    assert_eq!(open_it(&storage).map_err(|error| error.kind()), Err(ErrorKind::Corruption));
    one.overwrite(&data, slot_offset(generation), &[0x5a; 4096]).unwrap();
    damage(&one, superblock(&one, generation - 1).body.root.unwrap());
    let error = open_it(&one).unwrap_err();
    assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains("node"), "{error}");
    // A failed opening changes nothing: what is left can still be rescued.
    assert_eq!(superblock(&storage, generation).generation, generation);
}

/// A generation two before the newest lost its space to that one: its blocks are there, and may be others'.
#[test]
fn a_generation_that_two_lost_ones_may_have_overtaken_is_salvaged_and_not_opened() {
    let (storage, generation) = generations();
    let data = Path::new(DIRECTORY).join("data.frond");
    let lost = |generations: &[u64]| {
        let storage = storage.snapshot();
        let damage = |generation: &u64| storage.overwrite(&data, slot_offset(*generation), &[0x5a; 4096]).unwrap();
        generations.iter().for_each(damage);
        storage
    };
    let two = lost(&[generation, generation - 1]);
    for is_read_only in [false, true] {
        let options = options(&two).create_if_missing(false).read_only(is_read_only);
        let error = Database::open(DIRECTORY, options).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(error.message().contains("salvage it") && error.message().contains("data.frond"), "{error}");
    }
    assert_eq!(superblock(&two, generation - 2).generation, generation - 2, "nothing has changed");
    let check_options = || fronddb::CheckOptions {
        storage: Some(Arc::new(two.clone())),
        memory_bytes: 8 << 20,
        ..fronddb::CheckOptions::default()
    };
    let says_so = |findings: &[fronddb::Finding]| findings.iter().any(|found| found.message.contains("salvage it"));
    let report = fronddb::check(DIRECTORY, &check_options(), &mut |_| {}).unwrap();
    assert!(says_so(&report.findings), "{:#?}", report.findings);
    let report = fronddb::salvage(DIRECTORY, "/new", &check_options(), &mut |_| {}).unwrap();
    assert!(says_so(&report.findings) && report.rows() > 500, "rows={} {:#?}", report.rows(), report.findings);
    // One that may be newer, and one that is surely older.
    let db = open(&lost(&[generation, generation - 2]));
    assert_eq!(db.recovery_report().unwrap().generation, generation - 1);
    assert_all_there(&db);
    let db = open(&lost(&[generation - 1, generation - 2]));
    assert_eq!(db.recovery_report().unwrap().generation, generation);
    assert_all_there(&db);
}

#[test]
fn slots_that_were_never_written_are_no_lost_generations() {
    let (storage, db, tree) = fresh();
    let mut young = 0;
    loop {
        db.put(&tree, b"key", b"v").unwrap();
        let generation = db.statistics().unwrap().generation;
        if generation > 3 {
            break;
        }
        let image = storage.snapshot();
        if generation > 1 {
            let data = Path::new(DIRECTORY).join("data.frond");
            image.overwrite(&data, slot_offset(generation), &[0x5a; 4096]).unwrap();
            young += 1;
        }
        let again = open(&image);
        assert_eq!(again.recovery_report().unwrap().superblocks_skipped, u32::from(generation > 1));
        assert!(again.get(&again.open_tree("t").unwrap(), b"key").unwrap().is_some());
        db.checkpoint().unwrap();
    }
    assert!(young > 0);
}

#[test]
fn unsynced_commits_are_covered_by_a_later_sync_and_torn_off_as_a_whole() {
    let commit = |db: &Database, tree: &fronddb::Tree, key: u32, durability| {
        let mut batch = WriteBatch::new();
        batch.put(tree, &key.to_be_bytes(), &[1; 700]).unwrap();
        batch.put(tree, &(1000 + key).to_be_bytes(), &[2; 700]).unwrap();
        db.write(&batch, TxnOptions { durability, ..TxnOptions::default() }).unwrap();
    };
    for seed in 0..40 {
        let (storage, db, tree) = fresh();
        (0..10).for_each(|key| commit(&db, &tree, key, Durability::None));
        commit(&db, &tree, 10, Durability::Sync);
        (11..40)
            .for_each(|key| commit(&db, &tree, key, if key % 2 == 0 { Durability::Write } else { Durability::None }));
        let db = open(&storage.crash(seed));
        let tree = db.open_tree("t").unwrap();
        let there = |key: u32| db.get(&tree, &key.to_be_bytes()).unwrap().is_some();
        let end = (0..40).find(|key| !there(*key)).unwrap_or(40);
        assert!(end >= 11, "seed {seed}: the synced commit does not cover those before it");
        assert!((0..40).all(|key| there(key) == (key < end) && there(1000 + key) == (key < end)), "seed {seed}");
    }
}

#[test]
fn memory_follows_its_setting_while_running() {
    let (_storage, db, tree) = fresh();
    assert_eq!(db.set_memory_bytes(1).map_err(|error| error.kind()), Err(ErrorKind::InvalidArgument));
    db.set_memory_bytes(32 << 20).unwrap();
    db.set_memory_bytes(8 << 20).unwrap();
    for row in 0..3000u32 {
        let mut batch = WriteBatch::new();
        batch.put(&tree, &row.to_be_bytes(), &[row as u8; 500]).unwrap();
        db.write(&batch, TxnOptions { durability: Durability::None, ..TxnOptions::default() }).unwrap();
    }
    let statistics = db.statistics().unwrap();
    assert!(statistics.memory_bytes <= 8 << 20 && statistics.seals > 0, "{}", statistics.to_json());
    assert!(statistics.level0_bytes <= 3 * statistics.level0_bytes_max);
    assert!(db.estimated_recovery().unwrap().bytes < 1 << 20);
    db.set_checkpoint_interval(Duration::ZERO).unwrap();
    db.sync_log().unwrap();
}

#[test]
fn what_an_open_snapshot_keeps_of_transactions_is_counted() {
    let (_storage, db, tree) = fresh();
    let options = || TxnOptions { durability: Durability::None, ..TxnOptions::default() };
    let metadata = || {
        while db.step_background().unwrap() {}
        db.statistics().unwrap().memory_metadata_bytes
    };
    let reader = begin(&db);
    assert_eq!(reader.get(&tree, b"k").unwrap(), None);
    let before = metadata();
    for _ in 0..50_000 {
        let txn = db.begin(options()).unwrap();
        txn.put(&tree, b"k", b"v").unwrap();
        txn.commit().unwrap();
    }
    let kept = metadata() - before;
    assert!(kept > 350_000, "eight bytes for each: {kept}");
    assert_eq!(reader.get(&tree, b"k").unwrap(), None);
    db.checkpoint().unwrap();
    assert!(metadata() < before + kept / 2, "level 0 has nothing of them");
    assert_eq!(reader.get(&tree, b"k").unwrap(), None);
    drop(reader);
    db.put(&tree, b"k", b"w").unwrap();
    assert!(metadata() < before + kept / 2);
}

/// The log names space for large values of a transaction that never ended, and the growth of the data file that gave it was not
/// synced before the power went.
fn without_its_growth() -> MemoryStorage {
    let (memory, db, tree) = fresh();
    db.checkpoint().unwrap();
    let big = begin(&db);
    for number in 0..3u32 {
        big.put(&tree, &number.to_be_bytes(), &Random::new(u64::from(number)).bytes(2 << 20)).unwrap();
    }
    db.put(&tree, b"small", b"acknowledged").unwrap();
    let length = |storage: &MemoryStorage| {
        storage.files().into_iter().find(|(path, _)| path.ends_with("data.frond")).map(|(_, length)| length)
    };
    let crashed = memory.crash_with(CrashMode::Lost, 1);
    assert!(length(&crashed) < length(&memory), "the growth is lost");
    crashed
}

#[test]
fn space_past_the_end_of_the_data_file_is_nobodys_for_who_only_reads() {
    let crashed = without_its_growth();
    let files = crashed.files();
    let check_options = || fronddb::CheckOptions {
        storage: Some(Arc::new(crashed.clone())),
        memory_bytes: 8 << 20,
        ..fronddb::CheckOptions::default()
    };
    let report = fronddb::check(DIRECTORY, &check_options(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    let db = Database::open(DIRECTORY, options(&crashed).create_if_missing(false).read_only(true)).unwrap();
    let tree = db.open_tree("t").unwrap();
    assert_eq!(db.get(&tree, b"small").unwrap().as_deref(), Some(&b"acknowledged"[..]));
    assert_eq!(collect(&mut begin(&db).cursor(&tree, Default::default()).unwrap()).unwrap().len(), 1);
    drop(db);
    assert_eq!(crashed.files(), files, "looking has changed nothing");
    let report = fronddb::salvage(DIRECTORY, "/new", &check_options(), &mut |_| {}).unwrap();
    assert_eq!((report.rows(), report.findings.len()), (1, 0));
}

#[test]
fn a_restart_on_a_full_disk_needs_no_room_for_space_that_the_log_names() {
    for spare in [0u64, 600 << 10, 3 << 20] {
        let crashed = without_its_growth();
        crashed.set_capacity(crashed.occupied_bytes() + spare);
        let db = Database::open(DIRECTORY, options(&crashed)).unwrap_or_else(|error| panic!("spare={spare}: {error}"));
        let tree = db.open_tree("t").unwrap();
        assert_eq!(db.get(&tree, b"small").unwrap().as_deref(), Some(&b"acknowledged"[..]));
        db.checkpoint().unwrap();
        for row in 0..40u32 {
            // Not for want of space in the middle of a write: what is handed out is backed.
            match db.put(&tree, &row.to_be_bytes(), &Random::new(1).bytes(100 << 10)) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "spare={spare}: {error}"),
                Ok(()) => assert!(spare > 0 || row < 20, "more than there is room for"),
            }
        }
        assert!(db.poisoned().is_none(), "spare={spare}: {:?}", db.poisoned());
        crashed.set_capacity(u64::MAX);
        for row in 0..40u32 {
            db.put(&tree, &row.to_be_bytes(), &Random::new(u64::from(row)).bytes(300 << 10)).unwrap();
            db.checkpoint().unwrap();
        }
        while db.step_background().unwrap() {}
        let left = crashed.crash(spare);
        let again = open(&left);
        let tree = again.open_tree("t").unwrap();
        for row in 0..40u32 {
            let value = again.get(&tree, &row.to_be_bytes()).unwrap();
            assert!(value.as_deref() == Some(&Random::new(u64::from(row)).bytes(300 << 10)[..]), "row={row}");
        }
        let mut findings = Vec::new();
        again.checkpoint().unwrap();
        again.check(&mut |finding| findings.push(finding), None).unwrap();
        assert_eq!(findings, [], "spare={spare}");
    }
}
