//! The lock table: locks exclude each other, every deadlock is found, no wake-up is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use shuttle::thread;

use super::{below, explore};
use crate::base::clock::Clock;
use crate::base::memory::MemoryBudget;
use crate::base::sync::atomic::AtomicBool;
use crate::base::{ErrorKind, Result, TreeId, TxnId};
use crate::lock::{Attempt, HeldLock, LockOptions, LockTable, Locker, Mode, Wait};

const TREE: TreeId = TreeId(3);
const KEYS: usize = 3;

fn table() -> LockTable {
    let options = LockOptions { shards: 2, ..LockOptions::default() };
    LockTable::new(MemoryBudget::new(1 << 20), Clock::manual(), options)
}

/// Who believes to hold each key: so many shared, or -1 for one exclusively. No point at which others go on.
#[derive(Default)]
struct Shadow([AtomicI64; KEYS]);

struct Holding<'a> {
    shadow: &'a Shadow,
    modes: [Option<Mode>; KEYS],
    /// Keys that a range covers: they are not given back one by one.
    ranged: [bool; KEYS],
}

impl<'a> Holding<'a> {
    fn new(shadow: &'a Shadow) -> Holding<'a> {
        Holding { shadow, modes: [None; KEYS], ranged: [false; KEYS] }
    }

    fn give_back(&mut self, key: usize) {
        match self.modes[key].take() {
            Some(Mode::Shared) => drop(self.shadow.0[key].fetch_sub(1, Ordering::SeqCst)),
            Some(Mode::Exclusive) => self.shadow.0[key].store(0, Ordering::SeqCst),
            None => {}
        }
    }

    fn take(&mut self, key: usize, mode: Mode) {
        let count = &self.shadow.0[key];
        let (before, after) = match (self.modes[key], mode) {
            (Some(held), wanted) if held >= wanted => return,
            (None, Mode::Shared) => {
                assert!(count.fetch_add(1, Ordering::SeqCst) >= 0, "L1: shared beside exclusive");
                self.modes[key] = Some(mode);
                return;
            }
            (None, Mode::Exclusive) => (0, -1),
            (Some(_), _) => (1, -1),
        };
        assert_eq!(count.swap(after, Ordering::SeqCst), before, "L1: exclusive beside another");
        self.modes[key] = Some(mode);
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        (0..KEYS).for_each(|key| self.give_back(key));
    }
}

/// One request of a random kind; what it was granted is taken in the shadow.
fn request(locker: &mut Locker, holding: &mut Holding<'_>, ranges: bool) -> Result<()> {
    let mode = [Mode::Shared, Mode::Exclusive][below(2)];
    let key = below(KEYS);
    match below(if ranges { 8 } else { 5 }) {
        4 => {
            // Given back in the shadow first.
            let is_kept = |key: &usize| holding.modes[*key] == Some(Mode::Exclusive) && below(2) == 0;
            let kept: Vec<usize> = (0..KEYS).filter(is_kept).collect();
            (0..KEYS).filter(|key| !kept.contains(key)).for_each(|key| holding.give_back(key));
            holding.ranged = [false; KEYS];
            let low = |key: &usize| vec![*key as u8];
            let lock = |key| HeldLock { tree: TREE, low: low(key), high: None, mode: Mode::Exclusive };
            *locker = locker.keep_only(&kept.iter().map(lock).collect::<Vec<_>>());
        }
        3 => {
            // Given back in the shadow first: the lock outlasts what it says.
            if !holding.ranged[key] && holding.modes[key].is_some() {
                holding.give_back(key);
                locker.unlock(TREE, &[key as u8]);
            }
        }
        0 => {
            if let Attempt::Granted(_) = locker.try_lock(TREE, &[key as u8], mode)? {
                holding.take(key, mode);
            }
        }
        5.. => {
            let end = key + 1 + below(KEYS - key);
            locker.lock_range(TREE, &[key as u8], &[end as u8], mode, Wait::Forever)?;
            for key in key..end {
                holding.take(key, mode);
                holding.ranged[key] = true;
            }
        }
        _ => {
            locker.lock(TREE, &[key as u8], mode, Wait::Forever)?;
            holding.take(key, mode);
        }
    }
    Ok(())
}

/// Two transactions of a few requests; every one ends.
fn owner(table: &LockTable, shadow: &Shadow, first: u64, ranges: bool) {
    for id in first..first + 2 {
        let mut locker = table.locker(TxnId(id));
        let mut holding = Holding::new(shadow);
        for _ in 0..4 {
            if let Err(error) = request(&mut locker, &mut holding, ranges) {
                assert!(matches!(error.kind(), ErrorKind::Deadlock | ErrorKind::Cancelled), "{error}");
                break;
            }
        }
        drop(holding);
        locker.release_all();
    }
}

fn owners(ranges: bool, cancel: bool) {
    let (table, shadow) = (table(), Arc::new(Shadow::default()));
    let mut threads: Vec<_> = (0..3u64)
        .map(|thread| {
            let (table, shadow) = (table.clone(), shadow.clone());
            thread::spawn(move || owner(&table, &shadow, 10 * (thread + 1), ranges))
        })
        .collect();
    let other = table.clone();
    threads.push(thread::spawn(move || {
        for _ in 0..2 {
            if cancel {
                other.cancel(TxnId(10 * (1 + below(3) as u64)));
            }
            other.sweep_step(4);
        }
    }));
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert!(shadow.0.iter().all(|count| count.load(Ordering::SeqCst) == 0));
    while table.sweep_step(100) {}
    let late = table.locker(TxnId(1000));
    let all = late.try_lock_range(TREE, &[], &[], Mode::Exclusive).expect("open");
    assert!(matches!(all, Attempt::Granted(_)), "L2: an ended owner is in the way");
}

#[test]
fn points_exclude_each_other_and_every_wait_ends() {
    explore(1, || owners(false, false));
}

#[test]
fn points_and_ranges_exclude_each_other_and_every_wait_ends() {
    explore(1, || owners(true, false));
}

#[test]
fn a_cancelled_wait_ends_and_leaves_nothing_behind() {
    explore(1, || owners(true, true));
}

/// Whoever waits is told that it was cancelled, or ended, by another thread, while the holder of the lock goes on
/// holding it.
#[test]
fn a_wait_is_ended_from_another_thread() {
    explore(1, || {
        let table = table();
        let (end, range) = (below(2) == 0, below(2) == 0);
        let (holder, waiter) = (table.locker(TxnId(1)), table.locker(TxnId(2)));
        holder.lock(TREE, &[0], Mode::Exclusive, Wait::Forever).expect("free");
        let other = table.clone();
        let ender = thread::spawn(move || if end { other.release_all(TxnId(2)) } else { other.cancel(TxnId(2)) });
        let waiter = thread::spawn(move || match range {
            true => waiter.lock_range(TREE, &[], &[], Mode::Shared, Wait::Forever),
            false => waiter.lock(TREE, &[0], Mode::Shared, Wait::Forever),
        });
        let told = waiter.join().expect("no panic").map_err(|error| error.kind());
        assert_eq!(told, Err(if end { ErrorKind::Closed } else { ErrorKind::Cancelled }));
        ender.join().expect("no panic");
        holder.release_all();
    });
}

/// Who locks in ascending order, and unlocks points again, is never told of a deadlock: places in the queue make none.
#[test]
fn requests_in_ascending_order_never_end_in_a_deadlock() {
    explore(1, || {
        let table = table();
        let threads: Vec<_> = (1..4u64)
            .map(|id| {
                let locker = table.locker(TxnId(id));
                thread::spawn(move || -> Result<()> {
                    let mut low = below(2) as u8;
                    while low < 4 {
                        let mode = [Mode::Shared, Mode::Exclusive][below(2)];
                        let high = low + 1 + below(3) as u8;
                        match below(3) {
                            0 => drop(locker.lock_range(TREE, &[low], &[high], mode, Wait::Forever)?),
                            kind => {
                                locker.lock(TREE, &[low], mode, Wait::Forever)?;
                                if kind == 1 {
                                    locker.unlock(TREE, &[low]);
                                }
                            }
                        }
                        low = high;
                    }
                    locker.release_all();
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().expect("no panic").map_err(|error| error.to_string()), Ok(()));
        }
    });
}

/// Who waits for a change that its writer has not decided goes on when that is undone, while the writer goes on as well.
#[test]
fn who_waits_for_an_undecided_change_goes_on_when_it_is_undone() {
    explore(1, || {
        let table = table();
        let writer = table.locker(TxnId(1));
        // The change of each key: there until it is undone.
        let changes = Arc::new([const { AtomicBool::new(true) }; 2]);
        let waiters: Vec<_> = (0..2u8)
            .map(|key| {
                let (locker, changes) = (table.locker(TxnId(2 + u64::from(key))), changes.clone());
                thread::spawn(move || {
                    let is_there = || Ok(changes[usize::from(key)].load(Ordering::SeqCst));
                    locker.wait_for(TxnId(1), (TREE, &[key]), Mode::Shared, Wait::Forever, is_there)
                })
            })
            .collect();
        for change in &*changes {
            change.store(false, Ordering::SeqCst);
            writer.has_undone();
        }
        for waiter in waiters {
            assert_eq!(waiter.join().expect("no panic").map_err(|error| error.to_string()), Ok(()));
        }
        writer.release_all();
    });
}
