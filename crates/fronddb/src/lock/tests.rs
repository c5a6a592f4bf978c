//! Tests of the whole table: rules (here), against a model, under threads, and timing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::base::clock::Clock;
use crate::base::memory::{MemoryBudget, Purpose};
use crate::base::{ErrorKind, TxnId};

mod model;
mod queue;
mod speed;
mod stress;

use Mode::{Exclusive, Shared};

const TREE: TreeId = TreeId(7);
/// Long enough that only a lost wake-up takes it.
const WATCHDOG: Duration = Duration::from_secs(60);

fn table_of(bytes_max: usize) -> (LockTable, MemoryBudget, Clock) {
    let (budget, clock) = (MemoryBudget::new(1 << 30), Clock::manual());
    let options = LockOptions { bytes_max, ..LockOptions::default() };
    (LockTable::new(budget.clone(), clock.clone(), options), budget, clock)
}

fn table() -> LockTable {
    table_of(64 << 20).0
}

fn busy(attempt: crate::base::Result<Attempt>) -> bool {
    attempt.is_ok_and(|attempt| attempt == Attempt::Busy)
}

fn kind<T>(result: crate::base::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// Sweeps what has ended before the call: the pass under way, then another.
fn sweep_all(table: &LockTable) {
    while table.sweep_step(100) {}
    while table.sweep_step(100) {}
}

/// Runs `request` in a thread and returns once it sleeps.
fn in_background<T: Send + 'static>(
    table: &LockTable,
    request: impl FnOnce() -> T + Send + 'static,
) -> mpsc::Receiver<T> {
    let before = table.stats().waiting;
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(request()));
    while table.stats().waiting == before {
        thread::yield_now();
    }
    receive
}

#[test]
fn shared_locks_share_and_exclusive_ones_do_not() {
    let table = table();
    let [a, b] = [1, 2].map(|id| table.locker(TxnId(id)));
    assert_eq!(a.lock(TREE, b"k", Shared, Wait::NoWait).ok(), Some(Granted::New));
    assert_eq!(a.lock(TREE, b"k", Shared, Wait::NoWait).ok(), Some(Granted::Already));
    assert_eq!(b.lock(TREE, b"k", Shared, Wait::NoWait).ok(), Some(Granted::New));
    assert_eq!(kind(b.lock(TREE, b"k", Exclusive, Wait::NoWait)), Some(ErrorKind::LockTimeout));
    assert!(busy(b.try_lock(TREE, b"k", Exclusive)));
    assert_eq!(b.lock(TreeId(8), b"k", Exclusive, Wait::NoWait).ok(), Some(Granted::New), "another tree");
    a.release_all();
    assert_eq!(b.lock(TREE, b"k", Exclusive, Wait::NoWait).ok(), Some(Granted::Raised), "an upgrade");
    assert_eq!(b.lock(TREE, b"k", Shared, Wait::NoWait).ok(), Some(Granted::Already));
    assert_eq!(kind(a.lock(TREE, b"x", Shared, Wait::NoWait)), Some(ErrorKind::Closed));
    assert_eq!(table.export(TxnId(2)).len(), 2);
}

#[test]
fn a_range_locks_its_gaps() {
    let table = table();
    let [a, b] = [1, 2].map(|id| table.locker(TxnId(id)));
    assert_eq!(a.lock_range(TREE, b"d", b"m", Shared, Wait::NoWait).ok(), Some(Granted::New));
    assert_eq!(a.lock_range(TREE, b"e", b"m", Shared, Wait::NoWait).ok(), Some(Granted::Already));
    assert!(busy(b.try_lock(TREE, b"d", Exclusive)));
    assert!(busy(b.try_lock(TREE, b"lzzz", Exclusive)), "a gap");
    assert!(!busy(b.try_lock(TREE, b"e", Shared)));
    assert!(!busy(b.try_lock(TREE, b"m", Exclusive)), "the end is excluded");
    assert!(!busy(b.try_lock_range(TREE, b"a", b"f", Shared)));
    assert!(busy(b.try_lock_range(TREE, b"a", b"f", Exclusive)));
    assert!(busy(a.try_lock_range(TREE, b"k", b"", Exclusive)), "b holds m");
    assert!(busy(a.try_lock(TREE, b"e", Exclusive)), "b holds e");
    assert!(!busy(a.try_lock_range(TREE, b"n", b"", Exclusive)));
    assert!(busy(b.try_lock(TREE, b"zzz", Shared)), "no upper bound");
    assert_eq!(kind(a.lock_range(TREE, b"b", b"a", Shared, Wait::NoWait)), Some(ErrorKind::InvalidArgument));
    a.release_all();
    assert!(!busy(b.try_lock(TREE, b"d", Exclusive)));
    b.release_all();
    assert_eq!(table.stats().ranges, 0);
    sweep_all(&table);
    assert_eq!(table.stats().points, 0);
}

#[test]
fn touching_ranges_of_an_owner_join() {
    let table = table();
    let a = table.locker(TxnId(1));
    for (low, high) in [("a", "c"), ("e", "g"), ("c", "e"), ("b", "f")] {
        assert!(a.lock_range(TREE, low.as_bytes(), high.as_bytes(), Shared, Wait::NoWait).is_ok());
    }
    assert_eq!(a.export(), [HeldLock { tree: TREE, low: b"a".to_vec(), high: Some(b"g".to_vec()), mode: Shared }]);
    a.release_all();
    assert_eq!(table.stats().ranges, 0);
}

#[test]
fn later_requests_queue_behind_earlier_ones() {
    let table = table();
    let [a, b, c, d] = [1, 2, 3, 4].map(|id| table.locker(TxnId(id)));
    assert!(a.lock(TREE, b"k", Shared, Wait::Forever).is_ok());
    let waiter = b.clone();
    let granted = in_background(&table, move || waiter.lock(TREE, b"k", Exclusive, Wait::Forever));
    assert!(busy(c.try_lock(TREE, b"k", Shared)), "it would overtake");
    assert!(busy(c.try_lock_range(TREE, b"a", b"z", Shared)), "it would overtake");
    let waiter = d.clone();
    let range = in_background(&table, move || waiter.lock_range(TREE, b"a", b"z", Shared, Wait::Forever));
    assert!(busy(c.try_lock(TREE, b"f", Exclusive)), "behind the waiting range");
    assert!(!busy(c.try_lock(TREE, b"f", Shared)));
    let snapshot = table.snapshot(10);
    assert_eq!(snapshot.locks.len(), 2);
    let edges: Vec<_> = snapshot.waits.iter().map(|wait| (wait.owner.0, wait.blockers.clone())).collect();
    assert!(edges.contains(&(2, vec![TxnId(1)])) && edges.contains(&(4, vec![TxnId(2)])), "{edges:?}");
    a.release_all();
    assert!(granted.recv_timeout(WATCHDOG).is_ok_and(|result| result.is_ok()));
    assert!(range.try_recv().is_err());
    b.release_all();
    assert!(range.recv_timeout(WATCHDOG).is_ok_and(|result| result.is_ok()));
}

#[test]
fn an_upgrade_passes_those_who_wait_for_it() {
    let table = table();
    let [a, b] = [1, 2].map(|id| table.locker(TxnId(id)));
    assert!(a.lock(TREE, b"k", Shared, Wait::Forever).is_ok());
    let waiter = b.clone();
    let granted = in_background(&table, move || waiter.lock(TREE, b"k", Exclusive, Wait::Forever));
    assert_eq!(a.lock(TREE, b"k", Exclusive, Wait::Forever).ok(), Some(Granted::Raised));
    a.release_all();
    assert!(granted.recv_timeout(WATCHDOG).is_ok_and(|result| result.is_ok()));
}

#[test]
fn an_owner_passes_a_range_that_waits_for_it() {
    let table = table();
    let [a, b] = [1, 2].map(|id| table.locker(TxnId(id)));
    assert!(a.lock(TREE, b"b", Exclusive, Wait::Forever).is_ok());
    let waiter = b.clone();
    let granted = in_background(&table, move || waiter.lock_range(TREE, b"a", b"z", Shared, Wait::Forever));
    assert_eq!(a.lock(TREE, b"x", Exclusive, Wait::Forever).ok(), Some(Granted::New));
    assert_eq!(a.lock_range(TREE, b"c", b"d", Exclusive, Wait::Forever).ok(), Some(Granted::New));
    a.unlock(TREE, b"b");
    assert!(granted.try_recv().is_err(), "x is in its way");
    a.release_all();
    assert!(granted.recv_timeout(WATCHDOG).is_ok_and(|result| result.is_ok()));
}

#[test]
fn deadlocks_over_points_ranges_and_upgrades_are_found_at_once() {
    for shape in ["points", "ranges", "point and range", "upgrades"] {
        let table = table();
        let [a, b] = [1, 2].map(|id| table.locker(TxnId(id)));
        assert!(a.lock(TREE, b"extra", Shared, Wait::Forever).is_ok(), "so that b is the victim");
        let lock = |locker: &Locker, which: u8| -> crate::base::Result<Granted> {
            let (low, high) = if which == 0 { (b"a", b"b") } else { (b"m", b"n") };
            match shape {
                "points" => locker.lock(TREE, low, Exclusive, Wait::Forever),
                "ranges" => locker.lock_range(TREE, low, high, Exclusive, Wait::Forever),
                "point and range" if locker.id() == TxnId(1) => locker.lock(TREE, low, Exclusive, Wait::Forever),
                "point and range" => locker.lock_range(TREE, low, high, Shared, Wait::Forever),
                _ => locker.lock(
                    TREE,
                    b"k",
                    if (which == 0) == (locker.id() == TxnId(1)) { Shared } else { Exclusive },
                    Wait::Forever,
                ),
            }
        };
        assert!(lock(&a, 0).is_ok() && lock(&b, 1).is_ok(), "{shape}");
        thread::scope(|scope| {
            let first = scope.spawn(|| lock(&a, 1));
            while table.stats().waiting == 0 {
                thread::yield_now();
            }
            assert_eq!(kind(lock(&b, 0)), Some(ErrorKind::Deadlock), "{shape}");
            assert_eq!(table.stats().waiting, 1);
            b.release_all();
            assert!(first.join().is_ok_and(|result| result.is_ok()), "{shape}");
        });
        assert_eq!(table.stats().deadlocks, 1);
    }
}

#[test]
fn a_sleeping_victim_is_woken() {
    let table = table();
    let [a, b] = [1, 2].map(|id| table.locker(TxnId(id)));
    assert!(a.lock(TREE, b"a", Exclusive, Wait::Forever).is_ok());
    assert!(b.lock(TREE, b"b", Exclusive, Wait::Forever).is_ok());
    assert!(b.lock(TREE, b"more", Exclusive, Wait::Forever).is_ok());
    let waiter = a.clone();
    let victim = in_background(&table, move || {
        let result = waiter.lock(TREE, b"b", Exclusive, Wait::Forever);
        waiter.release_all();
        result
    });
    assert!(b.lock(TREE, b"a", Exclusive, Wait::Forever).is_ok());
    assert_eq!(victim.recv_timeout(WATCHDOG).ok().and_then(kind), Some(ErrorKind::Deadlock));
    assert!(table.stats().last_deadlock.is_some_and(|text| text.contains("victim=1")));
}

#[test]
fn waits_end_by_timeout_cancellation_and_the_owners_end() {
    let (table, _, clock) = table_of(1 << 20);
    let [a, b, c] = [1, 2, 3].map(|id| table.locker(TxnId(id)));
    assert!(a.lock(TREE, b"k", Exclusive, Wait::Forever).is_ok());
    let second = Wait::Timeout(Duration::from_secs(1));
    let waiter = b.clone();
    let timed_out = in_background(&table, move || waiter.lock(TREE, b"k", Exclusive, second));
    let waiter = c.clone();
    let behind = in_background(&table, move || waiter.lock_range(TREE, b"a", b"z", Shared, Wait::Forever));
    clock.advance_micros(1_000_000);
    table.wake_expired();
    assert_eq!(timed_out.recv_timeout(WATCHDOG).ok().and_then(kind), Some(ErrorKind::LockTimeout));
    table.cancel(TxnId(3));
    assert_eq!(behind.recv_timeout(WATCHDOG).ok().and_then(kind), Some(ErrorKind::Cancelled));
    assert_eq!(table.stats().ranges, 0, "the waiting range is gone");
    b.cancel();
    assert_eq!(kind(b.lock(TREE, b"k", Shared, Wait::Forever)), Some(ErrorKind::Cancelled), "it met the next wait");
    b.cancel();
    b.clear_cancel();
    let waiter = b.clone();
    let ended = in_background(&table, move || waiter.lock(TREE, b"k", Exclusive, Wait::Forever));
    b.release_all();
    assert_eq!(ended.recv_timeout(WATCHDOG).ok().and_then(kind), Some(ErrorKind::Closed));
    assert_eq!(table.stats().waiting, 0);
}

#[test]
fn those_behind_a_wait_that_was_given_up_go_on() {
    for range in [false, true] {
        let table = table();
        let [a, b, c] = [1, 2, 3].map(|id| table.locker(TxnId(id)));
        assert!(a.lock(TREE, b"k", Shared, Wait::Forever).is_ok());
        let waiter = b.clone();
        let given_up = in_background(&table, move || match range {
            false => waiter.lock(TREE, b"k", Exclusive, Wait::Forever),
            true => waiter.lock_range(TREE, b"a", b"z", Exclusive, Wait::Forever),
        });
        let waiter = c.clone();
        let behind = in_background(&table, move || waiter.lock(TREE, b"k", Shared, Wait::Forever));
        b.cancel();
        assert_eq!(given_up.recv_timeout(WATCHDOG).ok().and_then(kind), Some(ErrorKind::Cancelled));
        assert!(behind.recv_timeout(WATCHDOG).is_ok_and(|result| result.is_ok()), "b has not ended, only given up");
    }
}

#[test]
fn the_end_of_a_large_owner_is_cheap_and_its_memory_comes_back() {
    for count in [10_000u32, 100_000] {
        let (table, budget, _) = table_of(1 << 30);
        let a = table.locker(TxnId(1));
        for n in 0..count {
            assert!(a.lock(TREE, &n.to_be_bytes(), Exclusive, Wait::NoWait).is_ok());
        }
        assert!(budget.used(Purpose::Locks) > count as usize * 60);
        a.release_all();
        assert!(table.stats().points > 9_000, "not removed by the caller");
        let b = table.locker(TxnId(2));
        assert_eq!(b.lock(TREE, &7u32.to_be_bytes(), Exclusive, Wait::NoWait).ok(), Some(Granted::New));
        sweep_all(&table);
        assert_eq!(table.stats().points, 1);
        b.release_all();
        sweep_all(&table);
        assert_eq!(table.stats().points, 0);
        assert!(budget.used(Purpose::Locks) < 64 << 10, "{}", budget.used(Purpose::Locks));
    }
}

#[test]
fn keys_locked_in_sequence_coalesce_without_locking_others_keys() {
    let bytes_max = 256 << 10;
    let (table, budget, _) = table_of(bytes_max);
    let [a, b, c] = [1, 2, 3].map(|id| table.locker(TxnId(id)));
    let foreign: Vec<u32> = (0..200_000).step_by(10_007).map(|n| n | 1).collect();
    for n in &foreign {
        assert!(b.lock(TREE, &n.to_be_bytes(), Exclusive, Wait::NoWait).is_ok());
    }
    for n in (0..200_000u32).step_by(2) {
        assert!(a.lock(TREE, &n.to_be_bytes(), Exclusive, Wait::NoWait).is_ok());
        assert!(table.bytes() < bytes_max * 2, "n={n} bytes={}", table.bytes());
    }
    assert!(table.stats().coalesced > 90_000);
    for n in (0..200_000u32).step_by(2) {
        assert!(busy(c.try_lock(TREE, &n.to_be_bytes(), Shared)), "n={n}");
    }
    for n in &foreign {
        assert_eq!(b.lock(TREE, &n.to_be_bytes(), Exclusive, Wait::NoWait).ok(), Some(Granted::Already));
    }
    assert!(!busy(c.try_lock(TREE, &200_001u32.to_be_bytes(), Exclusive)), "above the last key");
    let exported = a.export();
    assert!(exported.len() < 5_000, "{}", exported.len());
    for locker in [a, b, c] {
        locker.release_all();
    }
    sweep_all(&table);
    assert_eq!((table.stats().points, table.stats().ranges), (0, 0));
    assert!(budget.used(Purpose::Locks) < 64 << 10);
    let restarted = table_of(64 << 20).0;
    assert!(restarted.import(TxnId(1), &exported).is_ok());
    assert!(restarted.export(TxnId(1)) == exported);
}

#[test]
fn locks_that_lie_between_each_other_come_back_one_owner_after_the_other() {
    let (bytes_max, keys) = (256 << 10, 20_000u32);
    let owners = [TxnId(1), TxnId(2)];
    let exported = {
        let table = table_of(bytes_max).0;
        let [a, b] = owners.map(|id| table.locker(id));
        for n in 0..keys {
            let owner = if n % 2 == 0 { &a } else { &b };
            assert!(owner.lock(TREE, &n.to_be_bytes(), Exclusive, Wait::NoWait).is_ok());
        }
        assert!(table.bytes() > bytes_max, "nothing can be joined");
        [a.export(), b.export()]
    };
    let table = table_of(LOCK_BYTES_UNBOUNDED).0;
    for (owner, locks) in owners.into_iter().zip(&exported) {
        table.import(owner, locks).unwrap();
        assert!(table.export(owner) == *locks);
    }
    table.set_bytes_max(bytes_max);
    // Now that all are there, others can lock what is between them, and no more is joined than before.
    let other = table.locker(TxnId(3));
    for n in 0..keys {
        assert!(busy(other.try_lock(TREE, &n.to_be_bytes(), Shared)), "n={n}");
    }
    assert!(!busy(other.try_lock(TREE, &keys.to_be_bytes(), Exclusive)));
}

#[test]
fn scattered_keys_stay_within_the_bound_and_leave_room() {
    let bytes_max = 512 << 10;
    let (table, _, _) = table_of(bytes_max);
    let [a, c] = [1, 2].map(|id| table.locker(TxnId(id)));
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    for n in 0..100_000 {
        assert!(a.lock(TREE, &key(n), Exclusive, Wait::NoWait).is_ok());
    }
    assert!(table.bytes() < bytes_max * 2, "bytes={}", table.bytes());
    for n in 0..100_000 {
        assert!(busy(c.try_lock(TREE, &key(n), Shared)), "n={n}");
    }
    assert!(!busy(c.try_lock(TREE, b"", Exclusive)) && !busy(c.try_lock(TREE, &[0xff; 9], Exclusive)));
}

#[test]
fn short_transactions_leave_little_behind_without_a_sweeper() {
    let (table, _, _) = table_of(1 << 30);
    let large = table.locker(TxnId(1));
    for live in [0u64, 50_000] {
        for n in 0..live {
            assert!(large.lock(TREE, &n.to_be_bytes(), Exclusive, Wait::NoWait).is_ok());
        }
        for txn in 2..100_000u64 {
            let locker = table.locker(TxnId(txn));
            let key = (txn << 32).to_be_bytes();
            assert!(locker.lock(TREE, &key, Exclusive, Wait::NoWait).is_ok());
            locker.release_all();
        }
        let points = table.stats().points as u64;
        assert!(points <= live / 2 * 3 + 1024, "live={live} points={points}");
    }
}

#[test]
fn who_waits_to_share_a_point_gets_it_when_it_is_lowered_and_others_wait_on() {
    let table = table();
    let [a, b, c, d] = [1, 2, 3, 4].map(|id| table.locker(TxnId(id)));
    assert!(a.lock(TREE, b"k", Exclusive, Wait::NoWait).is_ok());
    let (reader, ranger, writer) = (b.clone(), c.clone(), d.clone());
    let read = in_background(&table, move || reader.lock(TREE, b"k", Shared, Wait::Forever));
    let ranged = in_background(&table, move || ranger.lock_range(TREE, b"a", b"z", Shared, Wait::Forever));
    let written = in_background(&table, move || writer.lock(TREE, b"k", Exclusive, Wait::Forever));
    a.lower(TREE, b"k");
    for granted in [read, ranged] {
        assert_eq!(granted.recv_timeout(WATCHDOG).ok().and_then(Result::ok), Some(Granted::New));
    }
    assert!(matches!(a.try_lock(TREE, b"k", Shared), Ok(Attempt::Granted(Granted::Already))));
    [b, c].iter().for_each(Locker::release_all);
    assert!(written.try_recv().is_err());
    a.release_all();
    assert!(written.recv_timeout(WATCHDOG).is_ok_and(|result| result.is_ok()));
    d.lower(TREE, b"none");
    a.lower(TREE, b"k");
    assert!(busy(table.locker(TxnId(5)).try_lock(TREE, b"k", Shared)), "of another, and of none");
}

#[test]
fn unlocked_points_are_free_and_unlisted() {
    let (table, budget, _) = table_of(1 << 20);
    let [a, b] = [1, 2].map(|id| table.locker(TxnId(id)));
    for n in 0..50_000u32 {
        assert!(a.lock(TREE, &n.to_be_bytes(), Shared, Wait::NoWait).is_ok());
        a.unlock(TREE, &n.to_be_bytes());
    }
    assert!(budget.used(Purpose::Locks) < 32 << 10, "the list does not grow");
    assert!(a.lock(TREE, b"k", Exclusive, Wait::NoWait).is_ok());
    let waiter = b.clone();
    let granted = in_background(&table, move || waiter.lock(TREE, b"k", Exclusive, Wait::Forever));
    a.unlock(TREE, b"k");
    assert!(granted.recv_timeout(WATCHDOG).is_ok_and(|result| result.is_ok()));
    assert_eq!(Arc::strong_count(&b.owner), 3, "handle, registry, entry");
    assert_eq!(b.owner.followers.load(Ordering::SeqCst), 0);
}
