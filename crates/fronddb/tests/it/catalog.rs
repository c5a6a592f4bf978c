//! Trees: visibility, names, crash-safety, options, thousands of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};
use fronddb::{
    BulkOptions, CheckOptions, Codec, CursorOptions, Database, ErrorKind, Isolation, LockMode, Options, Result,
    Transaction, Tree, TreeOptions, TxnOptions, Wait, check,
};

use crate::support::{DIRECTORY, Random, begin, collect, fresh, open, options};

#[test]
fn deleting_a_range_that_spans_inner_nodes_leaves_a_sound_tree() {
    for bulk in [false, true] {
        let (storage, db, tree) = fresh();
        let key = |row: u32| row.to_be_bytes();
        let mut random = Random::new(1);
        let behind = db.create_tree("behind", &TreeOptions::default()).unwrap();
        for row in 0..6000 {
            let value: Vec<u8> = (0..100).map(|_| random.next() as u8).collect();
            db.put(if row % 4 == 0 { &behind } else { &tree }, &key(row), &value).unwrap();
            while row % 100 == 0 && db.step_background().unwrap() {}
        }
        db.checkpoint().unwrap();
        while db.step_background().unwrap() {}
        assert!(db.statistics().unwrap().height >= 3, "{}", db.statistics().unwrap().height);
        let txn = begin(&db);
        txn.delete_range(&tree, &key(0), &key(6000)).unwrap();
        txn.commit().unwrap();
        db.checkpoint().unwrap();
        while db.step_background().unwrap() {}
        if bulk {
            let txn = begin(&db);
            let mut bulk = txn.bulk(&tree, &BulkOptions::default()).unwrap();
            (0..1000).for_each(|row| bulk.add(&key(row), &[row as u8; 40]).unwrap());
            bulk.finish(&mut |_| true).unwrap();
            txn.commit().unwrap();
            while db.step_background().unwrap() {}
        }
        db.close().unwrap();
        let options = CheckOptions { storage: Some(Arc::new(storage.clone())), ..CheckOptions::default() };
        let report = check(DIRECTORY, &options, &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{report:?}");
        let db = open(&storage);
        let tree = db.open_tree("t").unwrap();
        let txn = begin(&db);
        let rows = collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap();
        assert_eq!(rows.len(), if bulk { 1000 } else { 0 });
        assert!(rows.iter().enumerate().all(|(at, (key, _))| *key == (at as u32).to_be_bytes()));
        let behind = db.open_tree("behind").unwrap();
        assert_eq!(collect(&mut txn.cursor(&behind, CursorOptions::default()).unwrap()).unwrap().len(), 1500);
    }
}

#[test]
fn who_waited_for_a_tree_that_was_dropped_is_told() {
    let read = |txn: &Transaction, tree: &Tree| txn.get(tree, b"k").map(|_| ());
    let scan = |txn: &Transaction, tree: &Tree| txn.cursor(tree, CursorOptions::default())?.first().map(|_| ());
    let lock_rows = |txn: &Transaction, tree: &Tree| {
        let options = CursorOptions { lock: Some(LockMode::Shared), ..CursorOptions::default() };
        txn.cursor(tree, options)?.first().map(|_| ())
    };
    type Look<'a> = &'a (dyn Fn(&Transaction, &Tree) -> Result<()> + Sync);
    let looks: [(&str, Isolation, Look<'_>); 4] = [
        ("read", Isolation::Serializable, &read),
        ("scan", Isolation::Serializable, &scan),
        ("locking scan with gaps", Isolation::RepeatableRead, &lock_rows),
        ("locking scan", Isolation::ReadCommitted, &lock_rows),
    ];
    for (name, isolation, look) in looks {
        let (_storage, db, tree) = fresh();
        db.put(&tree, b"k", b"v").unwrap();
        let lock_timeout = Some(Duration::from_secs(60));
        let reader = db.begin(TxnOptions { isolation, lock_timeout, ..TxnOptions::default() }).unwrap();
        let dropper = begin(&db);
        // So that the scans see the row, and wait for its lock.
        dropper.lock_range(&tree, b"", b"", LockMode::Exclusive, Wait::Default).unwrap();
        std::thread::scope(|scope| {
            let looked = scope.spawn(|| look(&reader, &tree));
            while db.locks().unwrap().iter().all(|lock| lock.waits_for.is_empty()) {
                std::thread::yield_now();
            }
            dropper.drop_tree("t").unwrap();
            dropper.commit().unwrap();
            assert_eq!(looked.join().unwrap().map_err(|error| error.kind()), Err(ErrorKind::NotFound), "{name}");
        });
    }
}

#[test]
fn trees_are_created_renamed_and_dropped_with_their_transaction() {
    let (storage, db, tree) = fresh();
    db.put(&tree, b"k", b"v").unwrap();
    let txn = begin(&db);
    let new = txn.create_tree("new", &TreeOptions::default()).unwrap();
    txn.put(&new, b"k", b"new").unwrap();
    txn.rename_tree("t", "renamed").unwrap();
    assert_eq!(txn.open_tree("t").map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    assert_eq!(txn.get(&txn.open_tree("renamed").unwrap(), b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(db.open_tree("new").is_err() && db.open_tree("t").is_ok());
    txn.rollback().unwrap();
    assert_eq!(db.put(&new, b"k", b"v").map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    let txn = begin(&db);
    let mark = txn.savepoint().unwrap();
    txn.drop_tree("t").unwrap();
    assert_eq!(txn.get(&tree, b"k").map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    txn.rollback_to(mark).unwrap();
    assert_eq!(txn.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    txn.rename_tree("t", "u").unwrap();
    txn.commit().unwrap();
    assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
    db.drop_tree("u").unwrap();
    assert_eq!(db.get(&tree, b"k").map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    let again = db.create_tree("t", &TreeOptions::default()).unwrap();
    assert!(again.id() > tree.id() && db.get(&again, b"k").unwrap().is_none());
    let db = open(&storage.crash(3));
    let names: Vec<_> = db.trees().unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["t"]);
    assert!(db.create_tree("v", &TreeOptions::default()).unwrap().id() > again.id());
}

#[test]
fn trees_are_listed_by_what_their_names_begin_with() {
    let (_storage, db, _tree) = fresh();
    for name in ["a/b", "a/b/1", "a/b#P#p0", "a/c", "b", "a/\u{ff}", "a0"] {
        db.create_tree(name, &TreeOptions::default()).unwrap();
    }
    let under = |prefix: &str| -> Vec<String> {
        let (trees, damage) = db.readable_trees_under(prefix).unwrap();
        assert!(damage.is_empty());
        trees.into_iter().map(|info| info.name).collect()
    };
    assert_eq!(under("a/b"), ["a/b", "a/b#P#p0", "a/b/1"]);
    assert_eq!(under("a/b#"), ["a/b#P#p0"]);
    assert_eq!(under("a/"), ["a/b", "a/b#P#p0", "a/b/1", "a/c", "a/\u{ff}"]);
    assert!(under("a/b/1/").is_empty() && under("z").is_empty());
    assert_eq!(under(""), db.trees().unwrap().into_iter().map(|info| info.name).collect::<Vec<_>>());
}

#[test]
fn truncating_and_dropping_give_space_back() {
    let (storage, db, tree) = fresh();
    let fill = |tree: &fronddb::Tree| {
        for row in 0..4000u32 {
            let value: Vec<u8> = (0..200u32).map(|byte| (row.wrapping_mul(byte + 1) >> 3) as u8).collect();
            let mut batch = fronddb::WriteBatch::new();
            batch.put(tree, &row.to_be_bytes(), &value).unwrap();
            let options = TxnOptions { durability: fronddb::Durability::None, ..TxnOptions::default() };
            db.write(&batch, options).unwrap();
        }
        db.checkpoint().unwrap();
        db.wait_idle().unwrap();
    };
    let other = db.create_tree("dropped", &TreeOptions::default()).unwrap();
    for round in 0..2 {
        let tree = [&tree, &other][round];
        fill(tree);
        let (full, occupied) = (db.statistics().unwrap().file_bytes_live, storage.occupied_bytes());
        let txn = begin(&db);
        match round {
            0 => txn.truncate_tree(tree).unwrap(),
            _ => txn.drop_tree("dropped").unwrap(),
        }
        txn.commit().unwrap();
        for _ in 0..3 {
            db.checkpoint().unwrap();
            db.wait_idle().unwrap();
        }
        let empty = db.statistics().unwrap().file_bytes_live;
        assert!(empty < full / 4, "full={full} empty={empty}");
        let given_back = occupied - storage.occupied_bytes();
        assert!(given_back > (full - empty) * 3 / 4, "the file system has it back: {given_back} of {full} - {empty}");
    }
    let txn = begin(&db);
    assert!(collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap().is_empty());
}

#[test]
fn a_handle_tells_its_own_trees_options_while_names_change_places() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let trees = [b"one", b"two"].map(|metadata| {
        let name = std::str::from_utf8(metadata).unwrap();
        db.create_tree(name, &TreeOptions { codec: None, metadata: metadata.to_vec() }).unwrap()
    });
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..500 {
                let txn = begin(&db);
                for (old, new) in [("one", "other"), ("two", "one"), ("other", "two")] {
                    txn.rename_tree(old, new).unwrap();
                }
                txn.commit().unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
        });
        while !is_done.load(Ordering::Relaxed) {
            for (tree, metadata) in trees.iter().zip([b"one", b"two"]) {
                assert_eq!(begin(&db).tree_options(tree).unwrap().metadata, metadata);
            }
        }
    });
}

#[test]
fn options_and_metadata_are_kept() {
    let (storage, db, _tree) = fresh();
    let options = TreeOptions { codec: Some(Codec::Lz4), metadata: b"table definition".to_vec() };
    let tree = db.create_tree("m", &options).unwrap();
    let txn = begin(&db);
    let changed = TreeOptions { codec: Some(Codec::None), metadata: vec![9; 100_000] };
    txn.set_tree_options(&tree, &changed).unwrap();
    assert_eq!(txn.tree_options(&tree).unwrap(), changed);
    txn.commit().unwrap();
    db.close().unwrap();
    let db = open(&storage);
    let tree = db.open_tree("m").unwrap();
    assert_eq!(*tree.options(), changed);
    let info = db.trees().unwrap().into_iter().find(|info| info.name == "m").unwrap();
    assert_eq!((info.codec, info.metadata_bytes), (Codec::None, 100_000));
}

#[test]
fn thousands_of_trees_are_neither_read_nor_written_at_opening() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let txn = begin(&db);
    for number in 0..3000 {
        let tree = txn.create_tree(&format!("tree {number:05}"), &TreeOptions::default()).unwrap();
        txn.put(&tree, b"k", format!("{number}").as_bytes()).unwrap();
    }
    txn.commit().unwrap();
    db.checkpoint().unwrap();
    db.wait_idle().unwrap();
    db.close().unwrap();
    let db = open(&storage);
    let before = db.statistics().unwrap();
    assert!(before.blocks_read < 5, "blocks_read={}", before.blocks_read);
    // The first background step reads the catalog, for the codecs; trees themselves are left alone.
    while db.step_background().unwrap() {}
    let after = db.statistics().unwrap();
    let read = (after.blocks_read, after.bytes_read);
    assert!(read.0 < 64 && read.1 < 256 << 10, "blocks and bytes read: {read:?}");
    assert_eq!(after.bytes_written(), before.bytes_written());
    let tree = db.open_tree("tree 02000").unwrap();
    assert_eq!(db.get(&tree, b"k").unwrap().as_deref(), Some(&b"2000"[..]));
    assert_eq!(db.trees().unwrap().len(), 3000);
}

#[test]
fn the_handle_of_a_tree_serves_its_own_database_alone() {
    let kind = |error: fronddb::Result<()>| error.map_err(|error| error.kind());
    let (storage, db, tree) = fresh();
    let (_other_storage, other, others) = fresh();
    db.put(&tree, b"k", b"v").unwrap();
    other.put(&others, b"k", b"w").unwrap();
    let txn = begin(&other);
    assert_eq!(kind(txn.put(&tree, b"k", b"w")), Err(ErrorKind::Closed));
    assert_eq!(kind(txn.get(&tree, b"k").map(drop)), Err(ErrorKind::Closed));
    assert_eq!(kind(txn.delete_range(&tree, b"", b"")), Err(ErrorKind::Closed));
    assert_eq!(kind(txn.cursor(&tree, CursorOptions::default()).map(drop)), Err(ErrorKind::Closed));
    assert_eq!(kind(other.get(&tree, b"k").map(drop)), Err(ErrorKind::Closed));
    assert_eq!(kind(other.estimate(&tree, b"", b"").map(drop)), Err(ErrorKind::Closed));
    db.close().unwrap();
    let db = open(&storage);
    assert_eq!(kind(db.put(&tree, b"k", b"w")), Err(ErrorKind::Closed));
    let again = db.open_tree("t").unwrap();
    assert_eq!(db.get(&again, b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

/// What there is: the trees by name, each with its metadata and its rows.
type State = BTreeMap<String, (Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)>;

fn row(number: u8, value: u8) -> (Vec<u8>, Vec<u8>) {
    (vec![b'k', number], vec![value; 300])
}

fn rows(value: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..100).map(|number| row(number, value)).collect()
}

fn described(metadata: &str) -> TreeOptions {
    TreeOptions { metadata: metadata.as_bytes().to_vec(), ..TreeOptions::default() }
}

/// Creates a tree with rows, in the transaction and in what is expected of it.
fn create(txn: &Transaction, state: &mut State, name: &str, metadata: &str, value: u8) -> Result<()> {
    let tree = txn.create_tree(name, &described(metadata))?;
    rows(value).iter().try_for_each(|(key, value)| txn.put(&tree, key, value))?;
    state.insert(name.to_owned(), (metadata.into(), rows(value)));
    Ok(())
}

fn rename(txn: &Transaction, state: &mut State, old: &str, new: &str) -> Result<()> {
    txn.rename_tree(old, new)?;
    let tree = state.remove(old).unwrap();
    assert!(state.insert(new.to_owned(), tree).is_none());
    Ok(())
}

type Change = fn(&Transaction, &mut State) -> Result<()>;

/// One transaction each.
const CHANGES: [Change; 7] = [
    |txn, state| {
        create(txn, state, "a", "first", 1)?;
        create(txn, state, "b", "second", 2)
    },
    |txn, state| rename(txn, state, "a", "c"),
    |txn, state| {
        txn.set_tree_options(&txn.open_tree("b")?, &described("changed"))?;
        state.get_mut("b").unwrap().0 = b"changed".to_vec();
        Ok(())
    },
    |txn, state| {
        let tree = txn.open_tree("c")?;
        txn.truncate_tree(&tree)?;
        let (key, value) = row(7, 3);
        txn.put(&tree, &key, &value)?;
        state.get_mut("c").unwrap().1 = vec![(key, value)];
        Ok(())
    },
    |txn, state| {
        rename(txn, state, "b", "between")?;
        rename(txn, state, "c", "b")?;
        rename(txn, state, "between", "c")
    },
    |txn, state| {
        let mark = txn.savepoint()?;
        txn.drop_tree("b")?;
        create(txn, &mut State::new(), "never", "", 4)?;
        txn.rollback_to(mark)?;
        let (key, value) = row(200, 5);
        txn.put(&txn.open_tree("b")?, &key, &value)?;
        state.get_mut("b").unwrap().1.push((key, value));
        Ok(())
    },
    |txn, state| {
        txn.drop_tree("c")?;
        create(txn, state, "c", "anew", 6)
    },
];

/// Makes the changes until something fails. What must be there then: one of the answers.
fn change_until_failure(options: Options) -> std::result::Result<(), Vec<State>> {
    let mut state = State::new();
    let Ok(db) = Database::open(DIRECTORY, options) else { return Err(vec![state]) };
    for (number, change) in CHANGES.iter().enumerate() {
        let mut next = state.clone();
        let changed = db.begin(TxnOptions::default()).and_then(|txn| {
            change(&txn, &mut next)?;
            Ok(txn)
        });
        let Ok(txn) = changed else { return Err(vec![state]) };
        if txn.commit().is_err() {
            return Err(vec![state, next]);
        }
        state = next;
        let upkeep = || -> Result<()> {
            if number % 2 == 0 {
                db.checkpoint()?;
            }
            while db.step_background()? {}
            Ok(())
        };
        if upkeep().is_err() {
            return Err(vec![state]);
        }
    }
    match found(&db) {
        Ok(found) => assert_eq!(found, state),
        Err(_) => return Err(vec![state]),
    }
    db.close().map_err(|_| vec![state])
}

/// What there is in a database.
fn found(db: &Database) -> Result<State> {
    let txn = db.begin(TxnOptions::default())?;
    let trees = db.trees()?.into_iter().map(|info| {
        let tree = txn.open_tree(&info.name)?;
        let rows = collect(&mut txn.cursor(&tree, CursorOptions::default())?)?;
        Ok((info.name, (tree.options().metadata.clone(), rows)))
    });
    trees.collect()
}

#[test]
fn a_stop_at_any_call_leaves_each_change_of_trees_whole_or_undone() {
    for nth in 1.. {
        let (memory, plan) = (MemoryStorage::new(), FaultPlan::new());
        plan.add(FaultRule::from(CallClass::Open, nth, Fault::Error).any_call());
        let storage = FaultStorage::new(Arc::new(memory.clone()), plan.clone());
        let changed = change_until_failure(options(&memory).storage(Some(Arc::new(storage))));
        if plan.fired() == 0 {
            assert!(changed.is_ok() && nth > 100, "nth={nth}");
            return;
        }
        // That a file cannot be removed at the end is no failure.
        let Err(expected) = changed else { continue };
        for (what, image) in [("killed", memory.snapshot()), ("without power", memory.crash(nth))] {
            let db = open(&image);
            let found = found(&db).unwrap();
            assert!(expected.contains(&found), "{what} at call {nth}: {found:?}, expected {expected:?}");
            db.check(&mut |finding| panic!("{what} at call {nth}: {finding:?}"), None).unwrap();
        }
    }
}
