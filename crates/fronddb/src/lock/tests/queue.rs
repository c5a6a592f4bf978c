//! Who goes before whom: a place in the queue alone makes no deadlock (L6).
//!
//! A latched shard holds a range request up in the midst of its examination, so that what happens in that window does so in a
//! known order.

use super::*;
use crate::base::random::Random;
use crate::base::sync::MutexGuard;
use crate::lock::key::LockKey;
use crate::lock::points::Shard;

/// Latches the last shard; returns that and `count` keys of other shards, in ascending order.
fn hold_the_last_shard(table: &LockTable, count: usize) -> (MutexGuard<'_, Shard>, Vec<Vec<u8>>) {
    let last = table.0.shards.len() - 1;
    let keys = (0u16..).map(|n| n.to_be_bytes().to_vec());
    let keys = keys.filter(|key| LockKey::new(TREE, key).hash() as usize & last != last).take(count).collect();
    (table.0.shards[last].lock(), keys)
}

/// As `table.stats().waiting`, without the shards.
fn waiting(table: &LockTable) -> usize {
    table.0.graph.lock().waits().count()
}

fn until(condition: impl Fn() -> bool) {
    let since = std::time::Instant::now();
    while !condition() {
        assert!(since.elapsed() < WATCHDOG, "it does not come to that");
        thread::yield_now();
    }
}

fn spawn<T: Send + 'static>(request: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(request()));
    receive
}

fn answer<T>(receive: &mpsc::Receiver<crate::base::Result<T>>) -> Result<T, Option<ErrorKind>> {
    match receive.recv_timeout(WATCHDOG) {
        Ok(result) => result.map_err(|error| Some(error.kind())),
        Err(_) => Err(None),
    }
}

#[test]
fn an_owner_passes_a_range_that_is_still_looking_for_it() {
    let table = table();
    let [x, r] = [1, 2].map(|id| table.locker(TxnId(id)));
    let (latched, keys) = hold_the_last_shard(&table, 2);
    assert!(x.lock(TREE, &keys[0], Exclusive, Wait::Forever).is_ok());
    let range = spawn(move || r.lock_range(TREE, b"", b"", Exclusive, Wait::Forever));
    until(|| table.has_ranges(TREE));
    let locker = x.clone();
    let point = spawn(move || locker.lock(TREE, &keys[1], Exclusive, Wait::Forever));
    until(|| waiting(&table) == 1);
    drop(latched);
    assert_eq!(answer(&point), Ok(Granted::New));
    until(|| waiting(&table) == 1);
    x.release_all();
    assert_eq!(answer(&range), Ok(Granted::New));
    assert_eq!(table.stats().deadlocks, 0);
}

#[test]
fn an_owner_that_has_unlocked_a_point_passes_a_range_that_waits_for_another() {
    let table = table();
    let [x, r] = [1, 2].map(|id| table.locker(TxnId(id)));
    let (latched, keys) = hold_the_last_shard(&table, 3);
    for key in &keys[..2] {
        assert!(x.lock(TREE, key, Exclusive, Wait::Forever).is_ok());
    }
    drop(latched);
    let range = spawn(move || r.lock_range(TREE, b"", b"", Exclusive, Wait::Forever));
    until(|| waiting(&table) == 1);
    let (latched, keys) = hold_the_last_shard(&table, 3);
    x.unlock(TREE, &keys[0]);
    let locker = x.clone();
    let point = spawn(move || locker.lock(TREE, &keys[2], Exclusive, Wait::Forever));
    until(|| waiting(&table) == 2);
    drop(latched);
    assert_eq!(answer(&point), Ok(Granted::New));
    assert!(range.try_recv().is_err(), "two points are in its way");
    x.release_all();
    assert_eq!(answer(&range), Ok(Granted::New));
    assert_eq!(table.stats().deadlocks, 0);
}

#[test]
fn who_waits_for_a_lock_that_stays_waits_on_when_its_owner_unlocks_or_gives_up_another() {
    let table = table();
    let [x, y, z] = [1, 2, 3].map(|id| table.locker(TxnId(id)));
    assert!(x.lock(TREE, b"k", Shared, Wait::Forever).is_ok());
    assert!(x.lock(TREE, b"other", Shared, Wait::Forever).is_ok());
    assert!(z.lock(TREE, b"z", Shared, Wait::Forever).is_ok());
    let waiter = y.clone();
    let granted = in_background(&table, move || waiter.lock(TREE, b"k", Exclusive, Wait::Forever));
    x.unlock(TREE, b"other");
    assert_eq!(x.owner.followers.load(Ordering::SeqCst), 1, "after an unlock");
    assert!(busy(x.try_lock_range(TREE, b"l", b"", Exclusive)));
    assert_eq!(x.owner.followers.load(Ordering::SeqCst), 1, "after a range that was not granted");
    let soon = Wait::Timeout(Duration::ZERO);
    assert_eq!(kind(x.lock(TREE, b"z", Exclusive, soon)), Some(ErrorKind::LockTimeout));
    assert_eq!(x.owner.followers.load(Ordering::SeqCst), 1, "after a wait that was given up");
    assert_eq!(x.lock(TREE, b"k", Exclusive, Wait::Forever).ok(), Some(Granted::Raised));
    x.release_all();
    assert_eq!(answer(&granted), Ok(Granted::New));
    assert_eq!(table.stats().deadlocks, 0);
}

#[test]
fn a_cycle_through_a_place_in_the_queue_has_no_victim() {
    for range in [false, true] {
        let table = table();
        let [h, w, y] = [1, 2, 3].map(|id| table.locker(TxnId(id)));
        assert!(h.lock(TREE, b"k", Shared, Wait::Forever).is_ok());
        assert!(y.lock(TREE, b"y", Exclusive, Wait::Forever).is_ok());
        let waiter = w.clone();
        let first = in_background(&table, move || match range {
            false => waiter.lock(TREE, b"k", Exclusive, Wait::Forever),
            true => waiter.lock_range(TREE, b"k", b"l", Exclusive, Wait::Forever),
        });
        let waiter = y.clone();
        let behind = in_background(&table, move || waiter.lock(TREE, b"k", Shared, Wait::Forever));
        let waiter = h.clone();
        let closing = spawn(move || waiter.lock(TREE, b"y", Exclusive, Wait::Forever));
        assert_eq!(answer(&behind), Ok(Granted::New), "before w, which waits for h, which waits for y");
        assert!(first.try_recv().is_err() && closing.try_recv().is_err());
        y.release_all();
        assert_eq!(answer(&closing), Ok(Granted::New));
        h.release_all();
        assert_eq!(answer(&first), Ok(Granted::New));
        assert_eq!(table.stats().deadlocks, 0);
    }
}

#[test]
fn a_deadlock_is_found_beside_places_in_the_queue() {
    let table = table();
    let [a, b, c] = [1, 2, 3].map(|id| table.locker(TxnId(id)));
    assert!(a.lock(TREE, b"a", Exclusive, Wait::Forever).is_ok());
    assert!(a.lock(TREE, b"more", Exclusive, Wait::Forever).is_ok(), "so that b is the victim");
    assert!(b.lock(TREE, b"b", Exclusive, Wait::Forever).is_ok());
    let waiter = a.clone();
    let first = in_background(&table, move || waiter.lock(TREE, b"b", Exclusive, Wait::Forever));
    let waiter = c.clone();
    let behind = in_background(&table, move || waiter.lock_range(TREE, b"", b"", Exclusive, Wait::Forever));
    assert_eq!(kind(b.lock(TREE, b"a", Exclusive, Wait::Forever)), Some(ErrorKind::Deadlock));
    b.release_all();
    assert_eq!(answer(&first), Ok(Granted::New));
    a.release_all();
    assert_eq!(answer(&behind), Ok(Granted::New));
    assert_eq!(table.stats().deadlocks, 1);
}

/// Transactions that lock points and ranges in ascending order, and unlock some points, cannot wait for each other in a circle.
fn ascending(table: &LockTable, ids: std::ops::Range<u64>) -> crate::base::Result<()> {
    let mut random = Random(0x1234_5678_9abc_def1 ^ (ids.start + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for id in ids {
        let locker = table.locker(TxnId(id));
        let mut low = 0u8;
        while low < 12 {
            let mode = if random.below(2) == 0 { Shared } else { Exclusive };
            let high = low + 1 + random.below(4) as u8;
            if random.below(4) == 0 {
                locker.lock_range(TREE, &[low], &[high], mode, Wait::Forever)?;
            } else {
                locker.lock(TREE, &[low], mode, Wait::Forever)?;
                if random.below(3) == 0 {
                    locker.unlock(TREE, &[low]);
                }
            }
            if random.below(4) == 0 {
                thread::yield_now();
            }
            low = high;
        }
        locker.release_all();
    }
    Ok(())
}

#[test]
fn requests_in_ascending_order_never_end_in_a_deadlock() {
    let table = table();
    let threads = [1, 2, 3, 4].map(|thread| {
        let table = table.clone();
        spawn(move || ascending(&table, thread * 100_000..thread * 100_000 + 4000))
    });
    threads.iter().for_each(|thread| assert_eq!(answer(thread), Ok(())));
    assert!(table.stats().waits > 0 && table.stats().deadlocks == 0);
}
