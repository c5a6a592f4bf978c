//! What a front end is told: who is about to wait for whom, and what an error log should hold.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use fronddb::base::clock::Clock;
use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};
use fronddb::{
    Database, ErrorKind, LockMode, LogCallback, LogLevel, Options, Transaction, TreeOptions, TxnOptions, Wait,
};

use crate::support::{DIRECTORY, begin, open, options};

type Events = Arc<Mutex<Vec<(LogLevel, String)>>>;

fn keep(events: &Events) -> Option<LogCallback> {
    let events = events.clone();
    Some(Arc::new(move |level, message: &str| events.lock().unwrap().push((level, message.to_owned()))))
}

fn told(events: &Events, level: LogLevel, beginning: &str) -> usize {
    let events = events.lock().unwrap();
    events.iter().filter(|(at, message)| *at == level && message.starts_with(beginning)).count()
}

/// What the observer was told, and the transactions that it ends when it is told of them.
#[derive(Default)]
struct Watch {
    waits: Vec<(u64, u64)>,
    ends: Vec<u64>,
    victims: Vec<Transaction>,
    /// Where waits are cancelled as soon as they are told, and once more when they end.
    cancels: Option<Database>,
}

/// A transaction that gives up waiting almost at once.
fn impatient(db: &Database) -> Transaction {
    db.begin(TxnOptions { lock_timeout: Some(std::time::Duration::from_millis(1)), ..TxnOptions::default() }).unwrap()
}

fn watched(storage: &MemoryStorage) -> (Database, Arc<Mutex<Watch>>) {
    let watch: Arc<Mutex<Watch>> = Arc::default();
    let copy = watch.clone();
    let observe = move |waiter: u64, blocker: u64| {
        let mut watch = copy.lock().unwrap();
        watch.waits.push((waiter, blocker));
        if let Some(at) = watch.victims.iter().position(|txn| txn.id() == blocker) {
            watch.victims.remove(at).rollback().unwrap();
        }
        if let Some(db) = &watch.cancels {
            db.cancel(waiter).unwrap();
        }
    };
    let copy = watch.clone();
    let ended = move |waiter: u64| {
        let mut watch = copy.lock().unwrap();
        watch.ends.push(waiter);
        if let Some(db) = &watch.cancels {
            db.cancel(waiter).unwrap();
        }
    };
    let options: Options =
        options(storage).on_lock_wait(Some(Arc::new(observe))).on_lock_wait_end(Some(Arc::new(ended)));
    (Database::open(DIRECTORY, options).unwrap(), watch)
}

#[test]
fn the_observer_hears_of_each_blocker_once_before_the_wait_and_of_its_end_and_may_end_it() {
    let (db, watch) = watched(&MemoryStorage::new());
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let blockers: Vec<Transaction> = (0..3).map(|_| begin(&db)).collect();
    let ids: Vec<u64> = blockers.iter().map(Transaction::id).collect();
    for blocker in &blockers {
        blocker.get_locked(&tree, b"k", LockMode::Shared, Wait::Default).unwrap();
    }
    watch.lock().unwrap().victims = blockers;
    let waiter = begin(&db);
    // Nobody else runs: without the observer's help this would wait for good.
    waiter.put(&tree, b"k", b"1").unwrap();
    let mut waits = std::mem::take(&mut watch.lock().unwrap().waits);
    waits.sort_unstable();
    assert_eq!(waits, ids.iter().map(|id| (waiter.id(), *id)).collect::<Vec<_>>());
    assert_eq!(std::mem::take(&mut watch.lock().unwrap().ends), [waiter.id()]);

    let ranged = begin(&db);
    let id = waiter.id();
    watch.lock().unwrap().victims.push(waiter);
    ranged.lock_range(&tree, b"a", b"z", LockMode::Shared, Wait::Default).unwrap();
    assert_eq!(watch.lock().unwrap().waits, [(ranged.id(), id)]);
    assert_eq!(watch.lock().unwrap().ends, [ranged.id()]);
}

#[test]
fn who_does_not_wait_is_not_reported_and_a_prepared_transaction_keeps_its_number() {
    let storage = MemoryStorage::new();
    let (db, watch) = watched(&storage);
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let blocker = begin(&db);
    blocker.put(&tree, b"k", b"1").unwrap();
    let waiter = impatient(&db);
    let refused = waiter.get_locked(&tree, b"k", LockMode::Shared, Wait::NoWait);
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::LockTimeout));
    waiter.get_locked(&tree, b"k", LockMode::Shared, Wait::SkipLocked).unwrap();
    assert!(watch.lock().unwrap().waits.is_empty() && watch.lock().unwrap().ends.is_empty());
    let id = blocker.id();
    blocker.prepare(b"xid").unwrap();
    assert_eq!(waiter.put(&tree, b"k", b"2").map_err(|error| error.kind()), Err(ErrorKind::LockTimeout));
    assert_eq!(watch.lock().unwrap().waits, [(waiter.id(), id)]);
    drop((waiter, tree));
    db.close().unwrap();

    let (db, watch) = watched(&storage);
    let tree = db.open_tree("t").unwrap();
    let waiter = impatient(&db);
    assert_eq!(waiter.put(&tree, b"k", b"2").map_err(|error| error.kind()), Err(ErrorKind::LockTimeout));
    assert_eq!(watch.lock().unwrap().waits, [(waiter.id(), 0)], "prepared before the database was opened");
    db.rollback_prepared(b"xid").unwrap();
}

#[test]
fn the_observer_may_cancel_the_wait_that_it_is_told_of() {
    let (db, watch) = watched(&MemoryStorage::new());
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let blocker = begin(&db);
    blocker.put(&tree, b"k", b"1").unwrap();
    watch.lock().unwrap().cancels = Some(db.clone());
    let waiter = begin(&db);
    // Nobody else runs: a cancellation that got lost would leave this waiting for the timeout.
    assert_eq!(waiter.put(&tree, b"k", b"2").map_err(|error| error.kind()), Err(ErrorKind::Cancelled));
    let ranged = waiter.lock_range(&tree, b"a", b"z", LockMode::Shared, Wait::Default);
    assert_eq!(ranged.map_err(|error| error.kind()), Err(ErrorKind::Cancelled));
    assert_eq!(watch.lock().unwrap().ends, [waiter.id(), waiter.id()]);
    watch.lock().unwrap().cancels = None;
    // What came when the wait was ending was meant for that statement as well.
    waiter.begin_statement().unwrap();
    waiter.set_lock_timeout(Some(Duration::from_millis(1))).unwrap();
    assert_eq!(waiter.put(&tree, b"k", b"2").map_err(|error| error.kind()), Err(ErrorKind::LockTimeout));
    blocker.rollback().unwrap();
    waiter.put(&tree, b"k", b"2").unwrap();
}

#[test]
fn recovery_tells_that_it_begins_and_is_done() {
    let storage = MemoryStorage::new();
    let events = Events::default();
    let db = Database::open(DIRECTORY, options(&storage).on_log(keep(&events))).unwrap();
    assert_eq!(told(&events, LogLevel::Note, "the database is created, directory=/db"), 1);
    db.create_tree("t", &TreeOptions::default()).unwrap();
    db.close().unwrap();
    assert_eq!(events.lock().unwrap().len(), 1);
    let db = Database::open(DIRECTORY, options(&storage).on_log(keep(&events))).unwrap();
    assert_eq!(told(&events, LogLevel::Note, "recovery begins, generation="), 1);
    assert_eq!(told(&events, LogLevel::Note, "recovery is done, milliseconds="), 1);
    db.close().unwrap();
}

#[test]
fn poisoning_is_told_once_with_its_cause() {
    let disk = MemoryStorage::new();
    let plan = FaultPlan::new();
    let storage = FaultStorage::new(Arc::new(disk.clone()), plan.clone());
    let events = Events::default();
    let options = options(&disk).storage(Some(Arc::new(storage))).on_log(keep(&events));
    let db = Database::open(DIRECTORY, options).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    plan.add(FaultRule::once(CallClass::Sync, 1, Fault::Error).on("log"));
    for _ in 0..3 {
        assert!(db.put(&tree, b"k", b"v").is_err());
    }
    assert_eq!(told(&events, LogLevel::Error, "the database is poisoned and refuses writes: "), 1);
    let message = events.lock().unwrap().last().unwrap().1.clone();
    assert!(message.contains("injected"), "{message}");
}

/// Seconds without a full disk after which it is told that there is space again.
const CALM_SECONDS: u64 = 10;

#[test]
fn a_full_disk_is_told_when_it_is_met_and_when_it_has_passed() {
    let storage = MemoryStorage::new();
    storage.set_capacity(12 << 20);
    let (events, clock) = (Events::default(), Clock::manual());
    let options = options(&storage).on_log(keep(&events)).clock(Some(clock.clone()));
    let db = Database::open(DIRECTORY, options).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let value: Vec<u8> = (0..3000u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut key = 0u32;
    while db.put(&tree, &key.to_be_bytes(), &value).is_ok() {
        key += 1;
        assert!(key < 20_000, "the disk never fills");
    }
    while db.put(&tree, &key.to_be_bytes(), &value).is_ok() {}
    assert_eq!(told(&events, LogLevel::Warning, "the disk is full"), 1);
    assert_eq!(told(&events, LogLevel::Note, "the disk has space again"), 0);
    // Writes that are refused between others that are not are one event.
    for _ in 0..20 {
        storage.set_capacity(1 << 30);
        clock.advance_micros(1_000_000);
        db.wait_idle().unwrap();
        db.put(&tree, b"in between", b"").unwrap();
        storage.set_capacity(storage.occupied_bytes());
        while db.put(&tree, &key.to_be_bytes(), &value).is_ok() {
            key += 1;
        }
    }
    assert_eq!(told(&events, LogLevel::Warning, "the disk is full"), 1);
    storage.set_capacity(1 << 30);
    clock.advance_micros(CALM_SECONDS * 1_000_000 - 1);
    db.wait_idle().unwrap();
    assert_eq!(told(&events, LogLevel::Note, "the disk has space again"), 0);
    clock.advance_micros(1);
    db.wait_idle().unwrap();
    assert_eq!(told(&events, LogLevel::Note, "the disk has space again"), 1);
    storage.set_capacity(storage.occupied_bytes());
    while db.put(&tree, &key.to_be_bytes(), &value).is_ok() {
        key += 1;
    }
    assert_eq!(told(&events, LogLevel::Warning, "the disk is full"), 2);
}

/// Who waits for a lock when the database is closed is let go then, and may find what a callback would refer to gone.
#[test]
fn no_callback_begins_or_goes_on_once_the_database_is_closed() {
    let (is_closed, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (waits, is_waiting) = mpsc::channel();
    let begins = {
        let (is_closed, calls) = (is_closed.clone(), calls.clone());
        move |_: u64, _: u64| {
            waits.send(()).unwrap();
            // As long as a closing would take that does not wait for this.
            let began = Instant::now();
            while !is_closed.load(Ordering::SeqCst) && began.elapsed() < Duration::from_millis(300) {
                std::thread::yield_now();
            }
            assert!(!is_closed.load(Ordering::SeqCst), "the closing has not waited");
            calls.fetch_add(1, Ordering::SeqCst);
        }
    };
    let ends = {
        let is_closed = is_closed.clone();
        move |_: u64| assert!(!is_closed.load(Ordering::SeqCst), "called after the closing")
    };
    let storage = MemoryStorage::new();
    let options = options(&storage).on_lock_wait(Some(Arc::new(begins))).on_lock_wait_end(Some(Arc::new(ends)));
    let db = Database::open(DIRECTORY, options).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let (holder, waiter) = (begin(&db), begin(&db));
    holder.put(&tree, b"k", b"1").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.put(&tree, b"k", b"2"));
        is_waiting.recv().unwrap();
        db.close().unwrap();
        is_closed.store(true, Ordering::SeqCst);
        let failed = waiting.join().unwrap().map_err(|error| error.kind());
        assert!(matches!(failed, Err(ErrorKind::Cancelled | ErrorKind::Closed)), "{failed:?}");
    });
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert!(holder.put(&tree, b"k", b"3").is_err());
}

/// The second of two who close returns no earlier than the first; from within a callback, for which the first waits, it does.
#[test]
fn all_who_close_return_when_it_is_closed() {
    let (waits, is_waiting) = mpsc::channel();
    let (goes_on, may_go_on) = mpsc::channel::<Option<Database>>();
    let may_go_on = Mutex::new(may_go_on);
    let begins = move |_: u64, _: u64| {
        waits.send(()).unwrap();
        // The clone that it closes; then the signal that ends it.
        let within = may_go_on.lock().unwrap().recv().unwrap();
        within.unwrap().close().unwrap();
        may_go_on.lock().unwrap().recv().unwrap();
    };
    let storage = MemoryStorage::new();
    let db = Database::open(DIRECTORY, options(&storage).on_lock_wait(Some(Arc::new(begins)))).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let (holder, waiter) = (begin(&db), begin(&db));
    holder.put(&tree, b"k", b"1").unwrap();
    let closed = AtomicUsize::new(0);
    let (second, third) = (db.clone(), db.clone());
    let close = |db: Database| {
        db.close().unwrap();
        closed.fetch_add(1, Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.put(&tree, b"k", b"2"));
        is_waiting.recv().unwrap();
        scope.spawn(|| close(db));
        while holder.get(&tree, b"k").is_ok() {
            std::thread::yield_now();
        }
        scope.spawn(|| close(second));
        goes_on.send(Some(third)).unwrap();
        // As long as a closing would take that does not wait.
        let began = Instant::now();
        while closed.load(Ordering::SeqCst) == 0 && began.elapsed() < Duration::from_millis(300) {
            std::thread::yield_now();
        }
        assert_eq!(closed.load(Ordering::SeqCst), 0, "before the callback has ended");
        goes_on.send(None).unwrap();
        assert!(waiting.join().unwrap().is_err());
    });
    assert_eq!(closed.load(Ordering::SeqCst), 2);
}

#[test]
fn a_file_system_without_direct_access_is_told_once_at_opening() {
    for (wanted, refused, notes) in [(true, true, 1), (true, false, 0), (false, true, 0)] {
        let storage = MemoryStorage::new();
        if refused {
            storage.refuse_direct();
        }
        let events = Events::default();
        let options = options(&storage).direct_io(wanted).on_log(keep(&events));
        let db = Database::open(DIRECTORY, options).unwrap();
        let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
        db.put(&tree, b"k", b"v").unwrap();
        db.checkpoint().unwrap();
        assert_eq!(told(&events, LogLevel::Note, "the file system refuses direct i/o"), notes);
    }
}

#[test]
fn damage_that_a_read_meets_is_told_once() {
    let storage = MemoryStorage::new();
    let db = open(&storage);
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    for key in 0..500u32 {
        db.put(&tree, &key.to_be_bytes(), &key.to_le_bytes().repeat(20)).unwrap();
    }
    db.checkpoint().unwrap();
    db.wait_idle().unwrap();
    db.close().unwrap();
    let file = Path::new(DIRECTORY).join("data.frond");
    let length = storage.files().iter().find(|(path, _)| *path == file).unwrap().1;
    // Some place holds the row's leaf: damage to that one is met by the read, and not by the opening.
    let met = (64 << 10..length).step_by(128).any(|place| {
        let damaged = storage.snapshot();
        damaged.flip_bit(&file, place, 1).unwrap();
        let events = Events::default();
        let Ok(db) = Database::open(DIRECTORY, options(&damaged).on_log(keep(&events))) else { return false };
        let read = || db.open_tree("t").and_then(|tree| db.get(&tree, &7u32.to_be_bytes()));
        let failed = (0..2).filter(|_| read().is_err()).count();
        assert_eq!(told(&events, LogLevel::Error, "damage found: corruption"), failed.min(1));
        failed == 2
    });
    assert!(met);
}
