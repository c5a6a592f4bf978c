//! Tests of the table and the snapshots: against a model with memtables, runs and restarts; under threads; timing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::base::{CommitNumber, ErrorKind, Lsn, Result, TxnId};
use crate::format::{Status, Statuses};

mod model;
mod passing;

fn commit(table: &StatusTable, txn: TxnId) -> Result<CommitNumber> {
    Ok(table.commit_with(txn, |number| Ok(Lsn(number.0)))?.0)
}

fn abort(table: &StatusTable, txn: TxnId, memtable: u64) -> Result<()> {
    table.abort_with(txn, memtable, || Ok(Lsn(0))).map(drop)
}

/// Somebody may still read every memtable.
fn all_read() -> Vec<u64> {
    (0..=9).collect()
}

fn failing<T>() -> Result<T> {
    Err(crate::base::Error::new(ErrorKind::NoSpace, "test"))
}

#[test]
fn a_failed_append_leaves_the_transaction_open() -> Result<()> {
    let table = StatusTable::new();
    let txn = table.begin();
    assert_eq!(table.commit_with(txn, |_| failing()).map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
    assert!(table.abort_with(txn, 1, failing).is_err());
    assert!(table.abort_steps_with(txn, 0, 3, 1, failing).is_err());
    assert!(table.prepare_with(txn, b"x", failing).is_err());
    assert_eq!(
        (table.status(txn, 0), table.visible(), table.open()),
        (Status::Active, CommitNumber(0), (1, Some(txn)))
    );
    assert_eq!((table.prepared(), table.find_prepared(b"x")), (vec![], None));
    assert_eq!(commit(&table, txn)?, CommitNumber(1));
    assert_eq!(commit(&table, txn).map_err(|error| error.kind()), Err(ErrorKind::Closed));
    Ok(())
}

#[test]
fn prepared_transactions_are_found_by_name_and_survive_recovery() -> Result<()> {
    let table = StatusTable::new();
    let [a, b, c] = [table.begin(), table.begin(), table.begin()];
    table.prepare_with(a, b"one", || Ok(Lsn(0)))?;
    assert!(table.prepare_with(b, b"one", || Ok(Lsn(0))).is_err());
    assert!(table.prepare_with(a, b"two", || Ok(Lsn(0))).is_err());
    assert!(table.prepare_with(b, &[0; XID_BYTES_MAX + 1], || Ok(Lsn(0))).is_err());
    table.prepare_with(b, b"two", || Ok(Lsn(0)))?;
    commit(&table, b)?;
    let restarted = StatusTable::restore(&table.image())?;
    assert_eq!(restarted.finish_recovery(1), [c]);
    assert_eq!(restarted.prepared(), [Prepared { txn: a, xid: b"one".to_vec() }]);
    assert_eq!((restarted.find_prepared(b"one"), restarted.find_prepared(b"two")), (Some(a), None));
    assert_eq!((restarted.status(a, 0), restarted.status(c, 0)), (Status::Active, Status::Aborted));
    assert_eq!(restarted.status(b, 0), Status::Committed(CommitNumber(0)));
    abort(&restarted, a, 1)?;
    assert_eq!(restarted.status(a, 0), Status::Aborted);
    assert_eq!(restarted.begin(), TxnId(4));
    Ok(())
}

/// A prepare is written again beside the decision, and may come after it.
#[test]
fn a_prepare_behind_the_end_of_its_transaction_says_nothing() -> Result<()> {
    for (commits, is_named_again) in [(true, true), (true, false), (false, true), (false, false)] {
        let table = StatusTable::restore(&StatusTable::new().image())?;
        let [first, second] = [TxnId(1), TxnId(2)];
        let prepare = |txn| table.replay_seen(txn).and_then(|()| table.replay_prepare(txn, b"x"));
        prepare(first)?;
        if commits {
            table.replay_commit(first, CommitNumber(1))?
        } else {
            table.replay_abort(first)?
        }
        if is_named_again {
            prepare(second)?;
        }
        // Twice, as where the first time did not come to its end.
        prepare(first)?;
        prepare(first)?;
        assert_eq!(table.find_prepared(b"x"), is_named_again.then_some(second));
        table.finish_recovery(1);
        let fate = if commits { Status::Committed(CommitNumber(1)) } else { Status::Aborted };
        assert_eq!((table.status(first, 0), table.prepared().len()), (fate, usize::from(is_named_again)));
    }
    Ok(())
}

#[test]
fn an_old_open_transaction_keeps_one_chunk_and_not_all_later_states() -> Result<()> {
    let table = StatusTable::new();
    let old = table.begin();
    let mut last = old;
    for n in 0..20_000 {
        last = table.begin();
        if n % 1000 == 7 { abort(&table, last, 1)? } else { _ = commit(&table, last)? }
    }
    table.advance(table.visible(), all_read);
    assert_eq!(table.low_water(), old);
    assert_eq!(table.states.chunks(), 2);
    assert_eq!(
        (table.status(old, 0), table.status(TxnId(9_000), 0)),
        (Status::Active, Status::Committed(CommitNumber(0)))
    );
    assert_eq!(table.status(TxnId(9_009), 3), Status::Aborted);
    commit(&table, old)?;
    table.advance(table.visible(), all_read);
    assert_eq!(table.low_water().0, last.0 + 1);
    assert_eq!(table.status(TxnId(9_009), 3), Status::Aborted);
    table.memtables_flushed_below(2);
    table.advance(table.visible(), all_read);
    assert_eq!(table.backlog(), BacklogStats::default());
    Ok(())
}

#[test]
fn behind_an_old_snapshot_states_are_not_looked_at_again_and_again() -> Result<()> {
    let table = StatusTable::new();
    let snapshots = Snapshots::new(&table);
    let first = table.begin();
    commit(&table, first)?;
    let old = snapshots.acquire();
    let mut open = first;
    for n in 0..50_000 {
        let txn = table.begin();
        match n {
            25_000 => open = txn,
            _ if n % 1000 == 7 => abort(&table, txn, 1)?,
            _ => _ = commit(&table, txn)?,
        }
    }
    table.advance(snapshots.horizon(), all_read);
    let chunks = table.states.chunks();
    assert!(chunks > 40, "chunks={chunks}");
    assert!(table.states.due(snapshots.horizon()) <= 2, "the one with the open transaction, and the last one");
    let middle = snapshots.acquire();
    drop(old);
    table.advance(snapshots.horizon(), all_read);
    assert_eq!((table.low_water(), table.states.chunks()), (open, 2), "all that settled was found");
    drop(middle);
    commit(&table, open)?;
    table.advance(snapshots.horizon(), all_read);
    assert_eq!((table.low_water(), table.states.chunks()), (table.next_txn(), 1));
    Ok(())
}

#[test]
fn states_wait_for_the_snapshots_below_them() -> Result<()> {
    let table = StatusTable::new();
    let snapshots = Snapshots::new(&table);
    let before = snapshots.acquire();
    let txn = table.begin();
    let number = commit(&table, txn)?;
    let after = snapshots.acquire();
    table.advance(snapshots.horizon(), all_read);
    assert_eq!(table.status(txn, 0), Status::Committed(number));
    let retention = snapshots.retention(&table);
    assert_eq!((retention.horizon(), retention.snapshots), (before.number(), vec![before.number(), number]));
    snapshots.tick(50);
    drop(before);
    assert_eq!((snapshots.live(), snapshots.oldest_age_micros()), (1, Some(50)));
    table.advance(snapshots.horizon(), all_read);
    assert_eq!(table.status(txn, 0), Status::Committed(CommitNumber(0)));
    drop(after);
    assert_eq!((snapshots.live(), snapshots.oldest_age_micros()), (0, None));
    Ok(())
}

#[test]
fn snapshots_beyond_a_block_find_room() {
    let table = StatusTable::new();
    let snapshots = Snapshots::new(&table);
    let many: Vec<Snapshot> = (0..1000).map(|_| snapshots.acquire()).collect();
    assert_eq!(snapshots.live(), 1000);
    drop(many);
    assert_eq!(snapshots.live(), 0);
}

proptest! {
    #[test]
    fn damaged_images_are_refused_or_consistent(cut in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>(), bit in 0u8..8) {
        let table = StatusTable::new();
        let ids: Vec<TxnId> = (0..6).map(|_| table.begin()).collect();
        table.prepare_with(ids[0], b"xid", || Ok(Lsn(0)))?;
        table.abort_steps_with(ids[1], 2, 3, 1, || Ok(Lsn(0)))?;
        table.abort_steps_with(ids[1], 7, 9, 1, || Ok(Lsn(0)))?;
        abort(&table, ids[2], 1)?;
        table.note_run_added(&ids);
        let image = table.image();
        prop_assert_eq!(StatusTable::restore(&image)?.image(), image.clone());
        prop_assert!(StatusTable::restore(&image[..cut.index(image.len())]).is_err());
        let mut damaged = image;
        let at = flip.index(damaged.len());
        damaged[at] ^= 1 << bit;
        if let Ok(table) = StatusTable::restore(&damaged) {
            prop_assert!(StatusTable::restore(&table.image()).is_ok());
        }
    }
}

/// Commit numbers of the stress test.
const COMMITS: usize = 60_000;

#[test]
fn readers_never_miss_a_visible_commit_and_never_see_a_later_one() {
    let table = StatusTable::new();
    let snapshots = Snapshots::new(&table);
    let by_number: Vec<AtomicU64> = (0..COMMITS + 8).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let (table, by_number) = (&table, &by_number);
                scope.spawn(move || {
                    for n in 0..COMMITS / 3 {
                        let txn = table.begin();
                        if (n + thread) % 16 == 0 {
                            assert!(abort(table, txn, 1).is_ok());
                            assert_eq!(table.status(txn, 0), Status::Aborted);
                            continue;
                        }
                        let result = table.commit_with(txn, |number| {
                            by_number[number.0 as usize].store(txn.0, Ordering::SeqCst);
                            Ok(Lsn(0))
                        });
                        assert!(result.is_ok_and(|(number, _)| table.visible() >= number));
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let mut newest = CommitNumber(0);
                let mut n = 1;
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = snapshots.acquire();
                    let seen = snapshot.number();
                    assert!(seen >= newest, "the visible number went back");
                    newest = seen;
                    for number in (seen.0.saturating_sub(20) + 1..seen.0 + 20).take_while(|n| (*n as usize) < COMMITS) {
                        let txn = TxnId(by_number[number as usize].load(Ordering::SeqCst));
                        if txn.0 == 0 {
                            assert!(number > seen.0, "a visible commit without a transaction");
                            continue;
                        }
                        let status = table.status(txn, 0);
                        if number <= seen.0 {
                            let settled = [CommitNumber(0), CommitNumber(number)].map(Status::Committed);
                            assert!(settled.contains(&status), "{status:?} of commit {number} at {seen}");
                        } else {
                            let later = [Status::Active, Status::Committed(CommitNumber(number))];
                            assert!(later.contains(&status), "{status:?} of commit {number} at {seen}");
                        }
                    }
                    n += 1;
                    if n % 8 == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let number = table.visible();
                if number.0 > 0 {
                    let txn = TxnId(by_number[number.0 as usize].load(Ordering::SeqCst));
                    assert_ne!(table.status(txn, 0), Status::Active, "the newest commit is visible and not committed");
                }
            }
        });
        scope.spawn(|| {
            let mut last = CommitNumber(0);
            while !stop.load(Ordering::Relaxed) {
                let horizon = snapshots.horizon();
                assert!(horizon >= last, "N1");
                last = horizon;
                table.advance(horizon, all_read);
            }
        });
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(results.iter().all(|result| result.is_ok()));
    });
    table.advance(snapshots.horizon(), all_read);
    assert_eq!(table.low_water(), table.next_txn());
}

fn nanos_each(count: u64, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / count as f64
}

#[test]
#[ignore = "timing"]
fn speed() {
    let table = StatusTable::new();
    let snapshots = Snapshots::new(&table);
    let count = 2_000_000u64;
    println!(
        "begin and commit: {:.0} ns",
        nanos_each(count, || for _ in 0..count {
            let txn = table.begin();
            let _ = commit(&table, txn);
        })
    );
    println!(
        "snapshot: {:.1} ns",
        nanos_each(count, || for _ in 0..count {
            drop(std::hint::black_box(snapshots.acquire()));
        })
    );
    println!(
        "status in a chunk: {:.1} ns",
        nanos_each(count, || for n in 0..count {
            std::hint::black_box(table.status(TxnId(1 + n), 0));
        })
    );
    println!(
        "horizon: {:.0} ns",
        nanos_each(1000, || for _ in 0..1000 {
            std::hint::black_box(snapshots.horizon());
        })
    );
    println!("advance: {:.0} us", nanos_each(1000, || table.advance(snapshots.horizon(), all_read)));
    println!(
        "status below the low-water mark: {:.1} ns",
        nanos_each(count, || for n in 0..count {
            std::hint::black_box(table.status(TxnId(1 + n), 0));
        })
    );
    for _ in 0..10_000 {
        let txn = table.begin();
        let _ = abort(&table, txn, 1);
    }
    println!(
        "advance with 10,000 aborted: {:.0} us",
        nanos_each(1000, || table.advance(snapshots.horizon(), all_read))
    );
    println!("advance again: {:.1} us", nanos_each(1000, || table.advance(snapshots.horizon(), all_read)));
    println!(
        "status below it, 10,000 aborted: {:.1} ns",
        nanos_each(count, || for n in 0..count {
            std::hint::black_box(table.status(TxnId(1 + n), 0));
        })
    );
}
