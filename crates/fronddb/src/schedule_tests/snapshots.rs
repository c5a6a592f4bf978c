//! The status table and the registry of snapshots.

use std::sync::{Arc, Mutex, Weak};

use shuttle::thread;

use super::{below, explore};
use crate::base::{CommitNumber, Lsn, TxnId};
use crate::format::{Status, Statuses};
use crate::txn::{Snapshot, Snapshots, StatusTable};

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
            other.advance(held.horizon(), || vec![0, 1, 2]);
        }
    }));
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    look(&table, &snapshots, &fates);
}

#[test]
fn a_snapshot_sees_what_was_committed_before_it_and_nothing_else() {
    explore(1, history);
}

/// The transactions whose messages a memtable holds.
type Written = Mutex<Vec<TxnId>>;

/// What a reader holds.
#[derive(Clone, Default)]
struct Version {
    /// Ascending, the active one last.
    memtables: Vec<(u64, Arc<Written>)>,
    /// The transactions that each lists as unresolved.
    runs: Vec<Arc<Vec<TxnId>>>,
}

/// Level 0 and a list of runs. No latch of it is held where others go on.
#[derive(Default)]
struct Level0 {
    version: Mutex<Version>,
    past: Mutex<Vec<(u64, Weak<Written>)>>,
    lingering: Mutex<Vec<Arc<Vec<TxnId>>>>,
}

impl Level0 {
    fn new() -> Level0 {
        let level0 = Level0::default();
        level0.version.lock().expect("no panic").memtables.push((1, Arc::default()));
        level0
    }

    fn version(&self) -> Version {
        self.version.lock().expect("no panic").clone()
    }

    fn active(&self) -> u64 {
        self.version().memtables.last().expect("one is active").0
    }

    fn write(&self, txn: TxnId) {
        let version = self.version();
        let (_, active) = version.memtables.last().expect("one is active");
        active.lock().expect("no panic").push(txn);
    }

    fn in_use(&self) -> Vec<u64> {
        let active = self.active();
        let past = self.past.lock().expect("no panic");
        let in_use = past.iter().filter(|(id, memtable)| *id < active && memtable.strong_count() > 0);
        in_use.map(|(id, _)| *id).chain([active]).collect()
    }

    fn seal(&self) {
        let mut version = self.version.lock().expect("no panic");
        let (id, active) = version.memtables.last().expect("one is active").clone();
        self.past.lock().expect("no panic").push((id, Arc::downgrade(&active)));
        version.memtables.push((id + 1, Arc::default()));
    }

    /// Writes the oldest sealed memtable as a run.
    fn flush(&self, table: &StatusTable) {
        let memtables = self.version().memtables;
        let [(_, sealed), _, ..] = &memtables[..] else { return };
        let written = sealed.lock().expect("no panic").clone();
        let run = unresolved(table, &written);
        table.note_run_added(&run);
        let mut version = self.version.lock().expect("no panic");
        version.memtables.remove(0);
        version.runs.push(Arc::new(run));
    }

    /// Makes all runs one.
    fn compact(&self, table: &StatusTable) {
        let runs = self.version().runs;
        let run = unresolved(table, &runs.iter().flat_map(|run| run.iter().copied()).collect::<Vec<_>>());
        table.note_run_added(&run);
        self.version.lock().expect("no panic").runs = vec![Arc::new(run)];
        runs.iter().for_each(|run| table.note_run_removed(run));
        self.lingering.lock().expect("no panic").extend(runs);
    }

    /// Tells which memtables and runs nobody reads any more.
    fn forget(&self, table: &StatusTable, snapshots: &Snapshots) {
        let all = std::mem::take(&mut *self.lingering.lock().expect("no panic"));
        let (read, unread): (Vec<_>, Vec<_>) = all.into_iter().partition(|run| Arc::strong_count(run) > 1);
        self.lingering.lock().expect("no panic").extend(read);
        unread.iter().for_each(|run| table.note_run_released(run));
        table.memtables_flushed_below(self.in_use()[0]);
        table.advance(snapshots.horizon(), || self.in_use());
    }
}

/// Those whose number the writer of a run does not know.
fn unresolved(table: &StatusTable, txns: &[TxnId]) -> Vec<TxnId> {
    txns.iter().copied().filter(|txn| table.status(*txn, 0) == Status::Active).collect()
}

fn write(table: &StatusTable, level0: &Level0, fates: &Fates) {
    if below(3) == 0 {
        level0.seal();
    }
    let txn = table.begin();
    level0.write(txn);
    if below(4) == 0 {
        assert!(table.abort_with(txn, level0.active(), || Ok(Lsn(0))).is_ok());
        fates.0.lock().expect("no panic").push((txn, None));
        return;
    }
    let committed = table.commit_with(txn, |number| {
        fates.0.lock().expect("no panic").push((txn, Some(number)));
        Ok(Lsn(0))
    });
    assert!(committed.is_ok());
}

/// Asks for everything that a version has a message of.
fn ask(table: &StatusTable, snapshot: &Snapshot, version: &Version, fates: &Fates) {
    let known = fates.0.lock().expect("no panic").clone();
    let written = |memtable: &Arc<Written>| memtable.lock().expect("no panic").clone();
    let in_memtables = version.memtables.iter().flat_map(|(_, memtable)| written(memtable));
    let asked: Vec<TxnId> = in_memtables.chain(version.runs.iter().flat_map(|run| run.iter().copied())).collect();
    for txn in asked {
        let status = table.status(txn, 0);
        let fate = known.iter().find(|(other, _)| *other == txn).map(|(_, number)| *number);
        let is_right = match (fate, status) {
            (Some(None), _) => status == Status::Aborted,
            (Some(Some(number)), Status::Committed(told)) => {
                told == number || (told.0 == 0 && number <= snapshot.number())
            }
            (Some(Some(number)), _) => status == Status::Active && number > snapshot.number(),
            (None, Status::Committed(told)) => told > snapshot.number(),
            (None, _) => true,
        };
        assert!(is_right, "S4: txn={txn} fate={fate:?} answer={status:?} snapshot={}", snapshot.number());
    }
}

#[test]
fn the_number_of_a_commit_is_there_while_a_message_of_it_may_be_read() {
    explore(1, || {
        let (table, level0) = (Arc::new(StatusTable::new()), Arc::new(Level0::new()));
        let (snapshots, fates) = (Arc::new(Snapshots::new(&table)), Arc::new(Fates::default()));
        // No horizon is above it.
        let old = snapshots.acquire();
        let mut threads = Vec::new();
        for _ in 0..2 {
            let (table, level0, fates) = (table.clone(), level0.clone(), fates.clone());
            threads.push(thread::spawn(move || (0..5).for_each(|_| write(&table, &level0, &fates))));
        }
        let (reading, held, known, asked) = (table.clone(), snapshots.clone(), fates.clone(), level0.clone());
        threads.push(thread::spawn(move || {
            let (snapshot, first) = (held.acquire(), asked.version());
            for _ in 0..8 {
                ask(&reading, &snapshot, &first, &known);
                ask(&reading, &snapshot, &asked.version(), &known);
            }
        }));
        let (moving, held, moved) = (table.clone(), snapshots.clone(), level0.clone());
        threads.push(thread::spawn(move || {
            for _ in 0..8 {
                if below(2) == 0 {
                    moved.seal();
                }
                moved.flush(&moving);
                moved.forget(&moving, &held);
                if below(4) == 0 {
                    moved.compact(&moving);
                }
            }
        }));
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        for _ in 0..2 {
            level0.seal();
            while level0.version().memtables.len() > 1 {
                level0.flush(&table);
            }
            level0.compact(&table);
            level0.forget(&table, &snapshots);
            level0.forget(&table, &snapshots);
        }
        assert_eq!(table.memory_bytes(), StatusTable::new().memory_bytes(), "one chunk, which has ids to give");
        drop(old);
    });
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
