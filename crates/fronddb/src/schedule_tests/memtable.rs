//! The active memtable's B-link trees: readers find all that was there, in order, while leaves and nodes split.
//!
//! The orders of memory that it relies on are not modelled here: see [`crate::weak_memory_tests`].

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use shuttle::thread;

use super::tree::tree_of;
use super::{below, explore};
use crate::base::checksum::key_hash;
use crate::base::key::inner;
use crate::base::memory::MemoryBudget;
use crate::base::{CommitNumber, Lsn, TreeId, TxnId};
use crate::format::{Kind, Message, Stamp, Statuses, Uncommitted, View};
use crate::memtable::{ChunkPool, Memtable};
use crate::tree::BeTree;
use crate::tree::cursor::{CursorOptions, OwnedView, TreeCursor};
use crate::txn::{Snapshots, StatusTable};

/// Keys that are there from the beginning: one leaf and a half.
const BEFORE: u32 = 22;

fn key(tree: u32, number: u32) -> Vec<u8> {
    inner(TreeId(tree), &number.to_be_bytes())
}

fn insert(memtable: &Memtable, key: &[u8], seq: u64) {
    let payload = seq.to_le_bytes();
    let message = Message { key, seq, stamp: Stamp::Settled, kind: Kind::Put, blob: false, payload: &payload };
    memtable.insert(seq, (TxnId(seq), 0), &message, || None);
}

fn has(memtable: &Memtable, key: &[u8], seq: u64) -> bool {
    let mut found = false;
    let _ = memtable.get(key, key_hash(key), |message| {
        assert_eq!((message.key, message.payload), (key, message.seq.to_le_bytes().as_slice()), "M1");
        found |= message.seq == seq;
        ControlFlow::Continue(())
    });
    found
}

fn all(memtable: &Arc<Memtable>, backward: bool) -> Vec<(Vec<u8>, u64)> {
    let mut cursor = memtable.cursor();
    if backward {
        cursor.last()
    } else {
        cursor.first()
    }
    let mut rows = Vec::new();
    while cursor.valid() {
        let message = cursor.message();
        rows.push((message.key.to_vec(), message.seq));
        if backward { cursor.prev() } else { cursor.next() }
    }
    if backward {
        rows.reverse();
    }
    rows
}

/// Keys ascending, and for one key the newest first.
fn assert_ordered(rows: &[(Vec<u8>, u64)]) {
    let ordered = |pair: &[(Vec<u8>, u64)]| pair[0].0 < pair[1].0 || pair[0].0 == pair[1].0 && pair[0].1 > pair[1].1;
    assert!(rows.windows(2).all(ordered), "out of order: {rows:?}");
}

fn history() {
    let memtable = Arc::new(Memtable::new(1, &ChunkPool::new(&MemoryBudget::new(64 << 20))));
    for number in 0..BEFORE {
        insert(&memtable, &key(5, 10 * number), 1);
    }
    let writers: Vec<_> = (0..2u64)
        .map(|writer| {
            let memtable = memtable.clone();
            thread::spawn(move || {
                for index in 0..5u64 {
                    let seq = 10 * (writer + 1) + index;
                    // In the middle, at the end, in another tree; also the same key from both writers.
                    let key = match below(4) {
                        0 => key(5, 10 * BEFORE + seq as u32),
                        1 => key(4 + 2 * below(2) as u32, index as u32),
                        _ => key(5, 10 * below(BEFORE as usize) as u32 + index as u32),
                    };
                    insert(&memtable, &key, seq);
                    assert!(has(&memtable, &key, seq), "an own insert is not found");
                }
            })
        })
        .collect();
    let reader = memtable.clone();
    let reader = thread::spawn(move || {
        let backward = below(2) == 0;
        let rows = all(&reader, backward);
        assert_ordered(&rows);
        let old = rows.iter().filter(|(_, seq)| *seq == 1).count();
        assert_eq!(old, BEFORE as usize, "a message was passed over, backward={backward}");
        for _ in 0..3 {
            assert!(has(&reader, &key(5, 10 * below(BEFORE as usize) as u32), 1), "a message was not found");
        }
    });
    writers.into_iter().chain([reader]).for_each(|thread| thread.join().expect("no panic"));
    let rows = all(&memtable, false);
    assert_ordered(&rows);
    assert_eq!(rows, all(&memtable, true));
    assert_eq!((rows.len(), memtable.messages()), (BEFORE as usize + 10, u64::from(BEFORE) + 10));
}

#[test]
fn readers_find_every_message_while_leaves_split() {
    explore(1, history);
}

#[test]
fn two_trees_begin_at_the_same_time() {
    explore(1, || {
        let memtable = Arc::new(Memtable::new(1, &ChunkPool::new(&MemoryBudget::new(64 << 20))));
        let writers: Vec<_> = (0..3u32)
            .map(|writer| {
                let memtable = memtable.clone();
                thread::spawn(move || {
                    for number in 0..2 {
                        let key = key(1 + (writer + number) % 3, 7);
                        insert(&memtable, &key, u64::from(10 * writer + number));
                        assert!(has(&memtable, &key, u64::from(10 * writer + number)));
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let rows = all(&memtable, false);
        assert_ordered(&rows);
        assert_eq!((rows.len(), &rows), (6, &all(&memtable, true)));
    });
}

/// Rows that are written over and over, one leaf of them.
const ROWS: usize = 3;

/// What a row was.
#[derive(Default)]
struct Past {
    /// The commits and the version that each left, ascending.
    commits: Vec<(CommitNumber, u64)>,
    /// Versions without a row.
    deletes: Vec<u64>,
    /// The version that one who sees the uncommitted found, change after change.
    shown: Vec<Option<u64>>,
    /// How many of these are done: the last one may be under way.
    done: usize,
}

struct Table {
    tree: Arc<BeTree>,
    /// The tree's.
    memtable: Arc<Memtable>,
    statuses: Arc<StatusTable>,
    snapshots: Snapshots,
    /// Held by who writes the row, until its transaction ends.
    locks: [shuttle::sync::Mutex<()>; ROWS],
    pasts: Mutex<[Past; ROWS]>,
    /// The newest version.
    seq: AtomicU64,
}

impl Table {
    fn new() -> Table {
        let statuses = Arc::new(StatusTable::new());
        let snapshots = Snapshots::new(&statuses);
        let tree = tree_of(&MemoryBudget::new(64 << 20), statuses.clone());
        Table {
            memtable: tree.version().active.clone(),
            tree,
            statuses,
            snapshots,
            locks: Default::default(),
            pasts: Mutex::default(),
            seq: AtomicU64::new(0),
        }
    }

    fn past<T>(&self, row: usize, look: impl FnOnce(&mut Past) -> T) -> T {
        look(&mut self.pasts.lock().expect("no panic")[row])
    }

    /// Does what makes `version` the one that is found.
    fn change<T>(&self, row: usize, version: Option<u64>, change: impl FnOnce() -> T) {
        self.past(row, |past| past.shown.push(version));
        change();
        self.past(row, |past| past.done = past.shown.len());
    }

    fn put(&self, row: usize, txn: TxnId, step: u32) -> u64 {
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let kind = if below(3) == 0 { Kind::Delete } else { Kind::Put };
        let (key, payload) = (key(5, row as u32), seq.to_le_bytes());
        let message = Message { key: &key, seq: 0, stamp: Stamp::Settled, kind, blob: false, payload: &payload };
        if kind == Kind::Delete {
            self.past(row, |past| past.deletes.push(seq));
        }
        let retention = || Some(self.snapshots.retention(&*self.statuses));
        self.change(row, Some(seq), || self.memtable.insert(seq, (txn, step), &message, retention));
        seq
    }

    /// A transaction that writes a row once or twice; all of it or the second time may be undone.
    fn write(&self, row: usize) {
        let _locked = self.locks[row].lock();
        let txn = self.statuses.begin();
        let mut version = self.put(row, txn, 0);
        if below(4) == 0 {
            let second = self.put(row, txn, 1);
            if below(2) == 0 {
                let undo = || self.statuses.abort_steps_with(txn, 1, 1, 1, || Ok(Lsn(0))).expect("undone");
                self.change(row, Some(version), undo);
            } else {
                version = second;
            }
        }
        if below(3) == 0 {
            let before = self.past(row, |past| past.commits.last().map(|(_, version)| *version));
            let undo = || self.statuses.abort_with(txn, 1, || Ok(Lsn(0))).expect("undone");
            return self.change(row, before, undo);
        }
        let committed = self.statuses.commit_with(txn, |number| {
            self.past(row, |past| past.commits.push((number, version)));
            Ok(Lsn(number.0))
        });
        committed.expect("committed");
    }

    /// The version of each row that is found in level 0.
    fn versions(&self, view: &View<'_>, backward: bool) -> [Option<u64>; ROWS] {
        let mut found = [None; ROWS];
        if backward {
            // From the oldest version of the last row up.
            let mut cursor = self.memtable.cursor();
            cursor.last();
            while cursor.valid() {
                let message = cursor.message();
                if view.sees(message.stamp, message.kind == Kind::Delete) {
                    let row = (0..ROWS).find(|row| message.key == key(5, *row as u32)).expect("a row");
                    found[row] = Some(message.seq);
                }
                cursor.prev();
            }
            return found;
        }
        for (row, found) in found.iter_mut().enumerate() {
            let key = key(5, row as u32);
            let _ = self.memtable.get(&key, key_hash(&key), |message| {
                if view.sees(message.stamp, message.kind == Kind::Delete) {
                    *found = Some(message.seq);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
        }
        found
    }

    /// A snapshot finds of each row what was committed last before it.
    fn check_snapshot(&self) {
        let snapshot = self.snapshots.acquire();
        let number = snapshot.number();
        let view = View { snapshot: number, own: None, uncommitted: Uncommitted::Hidden, statuses: &*self.statuses };
        for backward in [true, false] {
            for (row, found) in self.versions(&view, backward).into_iter().enumerate() {
                let newest = |past: &mut Past| past.commits.iter().rfind(|(commit, _)| *commit <= number).copied();
                let newest = self.past(row, newest).map(|(_, version)| version);
                assert_eq!(found, newest, "row={row} snapshot={number} backward={backward}");
            }
        }
    }

    /// What each row is to one who sees the uncommitted: by key, and by walks through the tree.
    fn dirty(&self, way: Way) -> [Option<u64>; ROWS] {
        let view = OwnedView {
            snapshot: CommitNumber::LATEST,
            own: None,
            uncommitted: Uncommitted::Seen,
            statuses: (self.statuses.clone() as Arc<dyn Statuses>).into(),
        };
        let version_of = |value: &[u8]| u64::from_le_bytes(value.try_into().expect("a version"));
        let mut found = [None; ROWS];
        if way == Way::ByKey {
            for (row, found) in found.iter_mut().enumerate() {
                let value = self.tree.get(&self.tree.version(), &view.view(), &key(5, row as u32)).expect("get");
                *found = value.map(|value| version_of(&value));
            }
            return found;
        }
        let mut cursor = self.tree.cursor(view, Vec::new(), None, CursorOptions::default());
        let (first, next): (fn(&mut _) -> _, fn(&mut _) -> _) = match way {
            Way::Backward => (TreeCursor::last, TreeCursor::prev),
            _ => (TreeCursor::first, TreeCursor::next),
        };
        let mut more = first(&mut cursor).expect("moved");
        while more {
            let row = (0..ROWS).find(|row| cursor.key() == key(5, *row as u32)).expect("a row");
            found[row] = Some(version_of(cursor.value()));
            more = next(&mut cursor).expect("moved");
        }
        found
    }

    /// Who sees the uncommitted finds of each row what it was at some moment of the look.
    fn check_uncommitted(&self) {
        for way in [Way::ByKey, Way::Forward, Way::Backward] {
            let before: [usize; ROWS] = std::array::from_fn(|row| self.past(row, |past| past.done));
            let _kept = self.snapshots.acquire();
            for (row, found) in self.dirty(way).into_iter().enumerate() {
                let since = before[row].saturating_sub(1);
                let is_shown = self.past(row, |past| {
                    let value = |version: &Option<u64>| version.filter(|version| !past.deletes.contains(version));
                    let was_none = before[row] == 0 && found.is_none();
                    was_none || past.shown[since..].iter().any(|version| value(version) == found)
                });
                let shown = || self.past(row, |past| format!("{:?}, deletes {:?}", &past.shown[since..], past.deletes));
                assert!(is_shown, "row={row} {way:?}: {found:?}, not one of {}", shown());
            }
        }
    }
}

/// How a row is found.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    ByKey,
    Forward,
    Backward,
}

/// Readers find their version of every row while writers, of whom some undo what they wrote, forget those below and above it.
#[test]
fn readers_find_their_versions_while_others_are_forgotten() {
    let (all, forgetful) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = (all.clone(), forgetful.clone());
    explore(1, move || {
        let table = Arc::new(Table::new());
        // Or one row of more versions than a walk backward collects.
        let rows = if below(3) == 0 { 1 } else { ROWS };
        (0..12).for_each(|write| table.write(write % rows));
        let writers = (0..2).map(|_| {
            let table = table.clone();
            thread::spawn(move || (0..6).for_each(|_| table.write(below(rows))))
        });
        let checks = [Table::check_snapshot, Table::check_uncommitted].map(|check| {
            let table = table.clone();
            thread::spawn(move || (0..2).for_each(|_| check(&table)))
        });
        let threads: Vec<_> = writers.chain(checks).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        counts.0.fetch_add(1, Ordering::Relaxed);
        let forgot = table.memtable.messages() < table.seq.load(Ordering::Relaxed);
        counts.1.fetch_add(u64::from(forgot), Ordering::Relaxed);
    });
    let [all, forgetful] = [all, forgetful].map(|count| count.load(Ordering::Relaxed));
    assert!(forgetful > all / 2, "of {all} histories {forgetful} forgot something");
}
