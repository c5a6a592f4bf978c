//! The active memtable's B-link trees: readers find all that was there, in order, while leaves and nodes split.
//!
//! The orders of memory that it relies on are not modelled here: see [`crate::weak_memory_tests`].

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use shuttle::thread;

use super::{below, explore};
use crate::base::checksum::key_hash;
use crate::base::key::inner;
use crate::base::memory::MemoryBudget;
use crate::base::{CommitNumber, Lsn, TreeId, TxnId};
use crate::format::{Kind, Message, Stamp, Uncommitted, View};
use crate::memtable::{ChunkPool, Memtable};
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

struct Table {
    memtable: Arc<Memtable>,
    statuses: StatusTable,
    snapshots: Snapshots,
    /// The commits of each row, ascending.
    commits: Mutex<HashMap<usize, Vec<u64>>>,
}

impl Table {
    fn write(&self, row: usize) {
        let txn = self.statuses.begin();
        let written = self.statuses.commit_with(txn, |number| {
            let (key, payload) = (key(5, row as u32), number.0.to_le_bytes());
            let kind = if below(3) == 0 { Kind::Delete } else { Kind::Put };
            let message = Message { key: &key, seq: 0, stamp: Stamp::Settled, kind, blob: false, payload: &payload };
            let retention = || Some(self.snapshots.retention(&self.statuses));
            self.memtable.insert(number.0, (txn, 0), &message, retention);
            self.commits.lock().expect("no panic").entry(row).or_default().push(number.0);
            Ok(Lsn(number.0))
        });
        written.expect("committed");
    }

    /// The newest version of a row at a snapshot.
    fn read(&self, row: usize, snapshot: CommitNumber) -> Option<u64> {
        let view = View { snapshot, own: None, uncommitted: Uncommitted::Hidden, statuses: &self.statuses };
        let (key, mut found) = (key(5, row as u32), None);
        let _ = self.memtable.get(&key, key_hash(&key), |message| {
            if view.sees(message.stamp, false) {
                found = Some(message.seq);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// The same of all rows, from the oldest version of the last one up.
    fn read_backward(&self, snapshot: CommitNumber) -> Vec<Option<u64>> {
        let met = all(&self.memtable, true);
        let newest = |row| met.iter().find(|(key, seq)| *key == self::key(5, row) && *seq <= snapshot.0);
        (0..ROWS as u32).map(|row| newest(row).map(|(_, seq)| *seq)).collect()
    }
}

/// Readers find their version of every row while writers forget those below and above it.
#[test]
fn a_snapshot_finds_its_versions_while_others_are_forgotten() {
    explore(1, || {
        let statuses = StatusTable::new();
        let snapshots = Snapshots::new(&statuses);
        let memtable = Arc::new(Memtable::new(1, &ChunkPool::new(&MemoryBudget::new(64 << 20))));
        let table = Arc::new(Table { memtable, statuses, snapshots, commits: Mutex::default() });
        (0..12).for_each(|write| table.write(write % ROWS));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let table = table.clone();
                thread::spawn(move || (0..6).for_each(|_| table.write(below(ROWS))))
            })
            .collect();
        let reader = table.clone();
        let reader = thread::spawn(move || {
            for _ in 0..2 {
                let snapshot = reader.snapshots.acquire();
                let backward = reader.read_backward(snapshot.number());
                let forward = (0..ROWS).map(|row| (row, reader.read(row, snapshot.number())));
                for (row, found) in (0..).zip(backward).chain(forward) {
                    let commits = reader.commits.lock().expect("no panic")[&row].clone();
                    let newest = commits.into_iter().rfind(|number| *number <= snapshot.number().0);
                    assert_eq!(found, newest, "row={row} snapshot={}", snapshot.number());
                }
            }
        });
        writers.into_iter().chain([reader]).for_each(|thread| thread.join().expect("no panic"));
        assert!(table.memtable.messages() < 24, "nothing was forgotten");
    });
}
