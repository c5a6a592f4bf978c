//! The status table and the registry of snapshots.

use std::sync::Arc;
use std::sync::Mutex;

use shuttle::thread;

use super::{below, explore};
use crate::base::{CommitNumber, Lsn, TxnId};
use crate::format::{Status, Statuses};
use crate::txn::{Snapshots, StatusTable};

/// What became of each transaction, noted within the deciding closure: no point at which others go on.
#[derive(Default)]
struct Fates(Mutex<Vec<(TxnId, Option<CommitNumber>)>>);

fn decide(table: &StatusTable, fates: &Fates) {
    if below(3) == 0 {
        // In no memtable that is still there: forgotten with the next flush.
        let gone = table.begin();
        assert!(table.abort_with(gone, 0, || Ok(Lsn(0))).is_ok());
    }
    let txn = table.begin();
    assert_eq!(table.status(txn, 0), Status::Active);
    if below(3) == 0 {
        let aborted = table.abort_with(txn, 1, || Ok(Lsn(0)));
        assert!(aborted.is_ok());
        fates.0.lock().expect("no panic").push((txn, None));
        assert_eq!(table.status(txn, 0), Status::Aborted);
        return;
    }
    let steps = below(2) == 0;
    if steps {
        assert!(table.abort_steps_with(txn, 1, 2, 1, || Ok(Lsn(0))).is_ok());
    }
    let committed = table.commit_with(txn, |number| {
        fates.0.lock().expect("no panic").push((txn, Some(number)));
        Ok(Lsn(0))
    });
    let (number, _) = committed.expect("open");
    assert!(table.visible() >= number, "a commit is visible when it returns");
    let expected = [Status::Committed(number), Status::Committed(CommitNumber(0))];
    assert!(expected.contains(&table.status(txn, 0)));
    if steps {
        assert_eq!(table.status(txn, 2), Status::Aborted, "S3");
        assert!(expected.contains(&table.status(txn, 3)));
    }
}

/// Every snapshot sees all commits up to its number and none above.
fn look(table: &StatusTable, snapshots: &Snapshots, fates: &Fates) {
    let snapshot = snapshots.acquire();
    let known = fates.0.lock().expect("no panic").clone();
    for (txn, number) in known {
        let status = table.status(txn, 0);
        match number {
            None => assert_eq!(status, Status::Aborted),
            Some(number) if number <= snapshot.number() => {
                let seen = [Status::Committed(number), Status::Committed(CommitNumber(0))];
                assert!(seen.contains(&status), "{status:?} of commit {number} at {}", snapshot.number());
            }
            Some(number) => {
                let later = [Status::Active, Status::Committed(number)];
                assert!(later.contains(&status), "{status:?} of commit {number} at {}", snapshot.number());
            }
        }
    }
}

fn history() {
    let table = Arc::new(StatusTable::new());
    let (snapshots, fates) = (Arc::new(Snapshots::new(&table)), Arc::new(Fates::default()));
    let mut threads = Vec::new();
    for _ in 0..2 {
        let (table, fates) = (table.clone(), fates.clone());
        threads.push(thread::spawn(move || (0..4).for_each(|_| decide(&table, &fates))));
    }
    let (reading, held, known) = (table.clone(), snapshots.clone(), fates.clone());
    threads.push(thread::spawn(move || (0..2).for_each(|_| look(&reading, &held, &known))));
    let (other, held) = (table.clone(), snapshots.clone());
    threads.push(thread::spawn(move || {
        for _ in 0..3 {
            other.memtables_flushed_below(1);
            other.advance(held.horizon());
        }
    }));
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    look(&table, &snapshots, &fates);
}

#[test]
fn a_snapshot_sees_what_was_committed_before_it_and_nothing_else() {
    explore(1, history);
}

#[test]
fn no_snapshot_lies_below_a_horizon() {
    explore(1, || {
        let table = Arc::new(StatusTable::new());
        let snapshots = Arc::new(Snapshots::new(&table));
        let highest = Arc::new(Mutex::new(CommitNumber(0)));
        let other = table.clone();
        let committer = thread::spawn(move || {
            for _ in 0..3 {
                let txn = other.begin();
                assert!(other.commit_with(txn, |_| Ok(Lsn(0))).is_ok());
            }
        });
        let (surveyed, noted) = (snapshots.clone(), highest.clone());
        let computer = thread::spawn(move || {
            for _ in 0..2 {
                let horizon = surveyed.horizon();
                let mut highest = noted.lock().expect("no panic");
                *highest = highest.max(horizon);
            }
        });
        let acquirer = thread::spawn(move || {
            let snapshot = snapshots.acquire();
            thread::yield_now();
            let highest = *highest.lock().expect("no panic");
            assert!(snapshot.number() >= highest, "N1: {} < {highest}", snapshot.number());
        });
        [committer, computer, acquirer].into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}
