//! Real threads on few keys: locks exclude each other, no wake-up is lost, every deadlock is found.
//!
//! Requests wait for ever, so that a lost wake-up or an unseen deadlock stops a thread, and the watchdog
//! notices. A shadow counts who believes to hold each key.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize};

use super::*;
use crate::base::random::Random;

const KEYS: usize = 12;

/// Per key: how many hold it shared, or -1 for one that holds it exclusively.
struct Shadow([AtomicI64; KEYS]);

/// What one transaction holds in the shadow.
struct Holding<'a> {
    shadow: &'a Shadow,
    modes: [Option<Mode>; KEYS],
}

impl Holding<'_> {
    fn take(&mut self, key: usize, mode: Mode) {
        let count = &self.shadow.0[key];
        match (self.modes[key], mode) {
            (Some(held), wanted) if held >= wanted => return,
            (None, Shared) => assert!(count.fetch_add(1, Ordering::SeqCst) >= 0, "shared beside exclusive"),
            (None, Exclusive) => assert_eq!(count.swap(-1, Ordering::SeqCst), 0, "exclusive beside another"),
            _ => assert_eq!(count.swap(-1, Ordering::SeqCst), 1, "upgraded beside another"),
        }
        self.modes[key] = Some(mode);
    }

    fn give_back(self) {
        for (key, mode) in self.modes.iter().enumerate() {
            match mode {
                Some(Shared) => drop(self.shadow.0[key].fetch_sub(1, Ordering::SeqCst)),
                Some(Exclusive) => self.shadow.0[key].store(0, Ordering::SeqCst),
                None => {}
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Mix {
    threads: u64,
    transactions: u64,
    ranges: bool,
    /// Sometimes cancel another owner.
    cancels: bool,
    coalesce: bool,
}

fn run(mix: Mix) -> LockStats {
    let table = table();
    let shadow = Arc::new(Shadow(Default::default()));
    let ids = Arc::new(AtomicU64::new(1));
    let done = Arc::new(AtomicUsize::new(0));
    let (send, finished) = mpsc::channel();
    for thread in 0..mix.threads {
        let (table, shadow, ids, send, done) = (table.clone(), shadow.clone(), ids.clone(), send.clone(), done.clone());
        thread::spawn(move || {
            let mut random = Random(0x1234_5678_9abc_def1 ^ (thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for _ in 0..mix.transactions {
                let id = TxnId(ids.fetch_add(1, Ordering::Relaxed));
                transaction(&table, &shadow, id, &mut random, mix);
            }
            done.fetch_add(1, Ordering::SeqCst);
            let _ = send.send(());
        });
    }
    drop(send);
    for _ in 0..mix.threads {
        match finished.recv_timeout(WATCHDOG) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("a thread hangs: {:#?}", table.snapshot(100)),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                assert_eq!(done.load(Ordering::SeqCst) as u64, mix.threads, "a thread has panicked");
            }
        }
    }
    sweep_all(&table);
    let stats = table.stats();
    assert_eq!((stats.points, stats.ranges, stats.waiting), (0, 0, 0));
    stats
}

fn transaction(table: &LockTable, shadow: &Shadow, id: TxnId, random: &mut Random, mix: Mix) {
    let locker = table.locker(id);
    if mix.coalesce {
        locker.owner.weight.store(100 + random.below(100), Ordering::Relaxed);
    }
    let mut holding = Holding { shadow, modes: [None; KEYS] };
    for _ in 0..1 + random.below(5) {
        let mode = if random.below(2) == 0 { Shared } else { Exclusive };
        let low = random.below(KEYS as u64) as u8;
        let range = mix.ranges && random.below(3) == 0;
        let high = if range { low + 1 + random.below(4) as u8 } else { low + 1 };
        let result = if range {
            locker.lock_range(TREE, &[low], &[high], mode, Wait::Forever)
        } else {
            locker.lock(TREE, &[low], mode, Wait::Forever)
        };
        match result {
            Ok(_) => (low..high.min(KEYS as u8)).for_each(|key| holding.take(key as usize, mode)),
            Err(error) if error.kind() == ErrorKind::Deadlock => break,
            Err(error) if error.kind() == ErrorKind::Cancelled && mix.cancels => break,
            Err(error) => panic!("{error}"),
        }
        if mix.cancels && random.below(8) == 0 {
            table.cancel(TxnId(id.0.saturating_sub(1 + random.below(4))));
        }
        if mix.coalesce && random.below(4) == 0 {
            table.0.coalesce_step();
        }
        if random.below(4) == 0 {
            thread::yield_now();
        }
    }
    holding.give_back();
    locker.release_all();
}

const BASE: Mix = Mix { threads: 6, transactions: 4_000, ranges: false, cancels: false, coalesce: false };

#[test]
fn threads_on_points_exclude_each_other_and_never_hang() {
    let stats = run(BASE);
    assert!(stats.deadlocks > 0 && stats.waits > 0);
}

#[test]
fn threads_on_points_and_ranges_exclude_each_other_and_never_hang() {
    let stats = run(Mix { ranges: true, ..BASE });
    assert!(stats.deadlocks > 0 && stats.ranges_granted > 0);
}

#[test]
fn cancellations_leave_nobody_behind() {
    let stats = run(Mix { ranges: true, cancels: true, ..BASE });
    assert!(stats.cancellations > 0);
}

#[test]
fn coalescing_amid_waiters_keeps_locks_exclusive() {
    run(Mix { ranges: true, coalesce: true, ..BASE });
}
