//! Both memtables against a sorted map, one operation after another; then the active one under threads.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::{ChunkPool, Level0, Level0Cursor, Memtable, SortedMemtable, SortedPart};
use crate::base::checksum::key_hash;
use crate::base::key::inner;
use crate::base::memory::{MemoryBudget, Purpose};
use crate::base::random::mix;
use crate::base::{CommitNumber, Result};
use crate::base::{TreeId, TxnId};
use crate::format::block::RangeLists;
use crate::format::program::{Op, Program};
use crate::format::resolve::{Found, KeyReader, Sink, Stamper, compact};
use crate::format::{Kind, Message, RangeDelete, Retention, Stamp, Status, Statuses, Uncommitted, View};

/// A message without its key: sequence number, transaction, step, kind, blob flag, payload.
type Body = (u64, u64, u32, Kind, bool, Vec<u8>);
/// In the order of level 0. The last part of the key makes later insertions come first.
type Model = BTreeMap<(Vec<u8>, Reverse<u64>, Reverse<usize>), Body>;

fn body(message: &Message<'_>) -> Body {
    let Stamp::Written { txn, step } = message.stamp else { panic!("stamp") };
    (message.seq, txn.0, step, message.kind, message.blob, message.payload.to_vec())
}

fn message<'a>(key: &'a [u8], body: &'a Body) -> Message<'a> {
    let stamp = Stamp::Written { txn: TxnId(body.1), step: body.2 };
    Message { key, seq: body.0, stamp, kind: body.3, blob: body.4, payload: &body.5 }
}

#[derive(Debug, Clone)]
struct Insert {
    key: Vec<u8>,
    body: Body,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let user = prop_oneof![
        prop::collection::vec(0u8..3, 0..4),
        prop::collection::vec(0u8..2, 10..16),
        (0u8..2, 0usize..40).prop_map(|(byte, count)| vec![byte; count]),
        prop::collection::vec(any::<u8>(), 0..30),
    ];
    (0u32..3, user).prop_map(|(tree, user)| inner(TreeId(tree * 64), &user))
}

fn inserts() -> impl Strategy<Value = Vec<Insert>> {
    let kind = prop::sample::select(vec![Kind::Put, Kind::Delete, Kind::Update, Kind::InsertIfAbsent]);
    let body = (0u64..20, 1u64..9, 0u32..3, kind, any::<bool>(), prop::collection::vec(any::<u8>(), 0..20));
    let count = if cfg!(miri) { 30 } else { 200 };
    prop::collection::vec((key(), body).prop_map(|(key, body)| Insert { key, body }), 0..count)
}

fn model_of(inserts: &[Insert]) -> Model {
    let entry = |(index, insert): (usize, &Insert)| {
        ((insert.key.clone(), Reverse(insert.body.0), Reverse(index)), insert.body.clone())
    };
    inserts.iter().enumerate().map(entry).collect()
}

fn active(inserts: &[Insert], budget: &MemoryBudget) -> Level0 {
    let memtable = Memtable::new(7, &ChunkPool::new(budget));
    for Insert { key, body } in inserts {
        memtable.insert(body.0, (TxnId(body.1), body.2), &message(key, body), || None);
    }
    Level0::Active(Arc::new(memtable))
}

/// Spread over parts by sequence number, as records are over threads.
fn sorted(inserts: &[Insert], parts: u64, budget: &MemoryBudget) -> Level0 {
    let mut all: Vec<SortedPart> = (0..parts).map(|_| SortedPart::new()).collect();
    for Insert { key, body } in inserts {
        all[(body.0 % parts) as usize].add(&message(key, body));
    }
    Level0::Sorted(Arc::new(SortedMemtable::build(7, budget, all)))
}

fn at(cursor: &Level0Cursor) -> Option<(Vec<u8>, Body)> {
    cursor.valid().then(|| (cursor.key().to_vec(), body(&cursor.message())))
}

fn check(level0: &Level0, model: &Model, probes: &[Vec<u8>]) {
    let expected: Vec<_> = model.iter().map(|((key, ..), body)| (key.clone(), body.clone())).collect();
    let mut cursor = level0.cursor();
    assert_eq!(at(&cursor), None);
    let walk = |cursor: &mut Level0Cursor, step: fn(&mut Level0Cursor)| -> Vec<_> {
        let next = || {
            let found = at(cursor);
            step(cursor);
            found
        };
        std::iter::from_fn(next).collect()
    };
    cursor.first();
    assert_eq!(walk(&mut cursor, Level0Cursor::next), expected);
    cursor.first();
    let mut expected_newest = expected.clone();
    expected_newest.dedup_by(|later, first| later.0 == first.0);
    assert_eq!(walk(&mut cursor, Level0Cursor::next_key), expected_newest);
    cursor.last();
    let mut backward = walk(&mut cursor, Level0Cursor::prev);
    backward.reverse();
    assert_eq!(backward, expected);
    for probe in probes {
        let index = expected.partition_point(|(key, _)| key < probe);
        cursor.seek(probe);
        assert_eq!(at(&cursor).as_ref(), expected.get(index), "seek {probe:?}");
        cursor.prev();
        let before = index.checked_sub(1).map(|index| &expected[index]);
        if index < expected.len() {
            assert_eq!(at(&cursor).as_ref(), before, "prev {probe:?}");
        }
        // From the second message on as well, which may be of the next key.
        cursor.seek(probe);
        cursor.next();
        if let Some((key, _)) = at(&cursor) {
            cursor.next_key();
            let beyond = expected.iter().find(|(other, _)| *other > key);
            assert_eq!(at(&cursor).as_ref(), beyond, "next_key {probe:?}");
        }
        cursor.seek_before(probe);
        assert_eq!(at(&cursor).as_ref(), before, "seek_before {probe:?}");
        if before.is_some() {
            cursor.next();
            assert_eq!(at(&cursor).as_ref(), expected.get(index), "next {probe:?}");
        }
        let mut found = Vec::new();
        let flow = level0.get(probe, key_hash(probe), |message| {
            assert_eq!(message.key, probe);
            found.push(body(message));
            ControlFlow::Continue(())
        });
        assert!(flow.is_continue());
        let same: Vec<_> = expected.iter().filter(|(key, _)| key == probe).map(|(_, body)| body.clone()).collect();
        assert_eq!(found, same);
        let mut seen = 0;
        let flow = level0.get(probe, key_hash(probe), |_| {
            seen += 1;
            ControlFlow::Break(())
        });
        assert_eq!((flow.is_break(), seen), (!same.is_empty(), same.len().min(1)));
    }
    assert_eq!(level0.messages(), expected.len() as u64);
    assert_eq!(level0.kinds().iter().sum::<u64>(), expected.len() as u64);
    let seqs = || expected.iter().map(|(_, body)| body.0);
    assert_eq!(level0.seq_bounds(), seqs().min().zip(seqs().max()));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 3 } else { 256 }, ..ProptestConfig::default() })]
    #[test]
    fn both_memtables_agree_with_a_sorted_map(inserts in inserts(), parts in 1u64..4, more in prop::collection::vec(key(), 0..20)) {
        let budget = MemoryBudget::new(1 << 30);
        let model = model_of(&inserts);
        let probes: Vec<_> = inserts.iter().map(|insert| insert.key.clone()).chain(more).collect();
        let both = [active(&inserts, &budget), sorted(&inserts, parts, &budget)];
        for level0 in &both {
            check(level0, &model, &probes);
        }
        prop_assert_eq!(budget.used(Purpose::Level0), both.iter().map(Level0::memory_bytes).sum::<usize>());
        drop(both);
        prop_assert_eq!(budget.used(Purpose::Level0), 0);
    }

    #[test]
    fn ascending_runs_in_several_trees_keep_the_order(runs in prop::collection::vec((0u32..200, 0u32..100, 1u32..20), 1..20)) {
        let budget = MemoryBudget::new(1 << 30);
        let mut inserts = Vec::new();
        for (tree, from, count) in runs {
            for number in from..from + count {
                let key = inner(TreeId(tree), &number.to_be_bytes());
                inserts.push(Insert { key, body: (inserts.len() as u64 / 3, 1, 0, Kind::Put, false, vec![]) });
            }
        }
        check(&active(&inserts, &budget), &model_of(&inserts), &[]);
    }
}

#[test]
fn a_parallel_build_gives_the_same_order() {
    let budget = MemoryBudget::new(1 << 30);
    let mut random = 1u64;
    let count = if cfg!(miri) { 100 } else { 60_000 };
    let inserts: Vec<_> = (0..count)
        .map(|seq| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = inner(TreeId((random >> 60) as u32), format!("a long common prefix {}", random >> 50).as_bytes());
            Insert { key, body: (seq / 4, seq / 40 + 1, 0, Kind::Put, false, vec![1; (random >> 58) as usize]) }
        })
        .collect();
    let model = model_of(&inserts);
    for parts in 1..=4 {
        let Level0::Sorted(memtable) = sorted(&inserts, parts, &budget) else { panic!("sorted") };
        let mut cursor = memtable.cursor();
        cursor.first();
        for ((key, ..), body) in &model {
            assert_eq!(at(&cursor).as_ref(), Some(&(key.clone(), body.clone())));
            cursor.next();
        }
        assert!(!cursor.valid());
    }
}

#[test]
fn range_deletes_are_given_and_counted() {
    let budget = MemoryBudget::new(1 << 30);
    let memtable = Memtable::new(1, &ChunkPool::new(&budget));
    assert!(memtable.is_empty() && !memtable.has_range_deletes() && memtable.range_deletes(RangeLists::is_empty));
    let range = |seq, start: &[u8]| RangeDelete {
        start: start.to_vec(),
        end: b"zzzz".to_vec(),
        seq,
        stamp: Stamp::Written { txn: TxnId(seq + 100), step: 0 },
    };
    let mut part = SortedPart::new();
    for one in [range(5, b"aaaa"), range(9, b"bbbb"), range(7, b"cccc"), range(7, b"dddd")] {
        memtable.insert_range(one.clone());
        part.add_range(one);
    }
    let sorted = SortedMemtable::build(1, &budget, vec![part]);
    for level0 in [Level0::Active(Arc::new(memtable)), Level0::Sorted(Arc::new(sorted))] {
        let mut starts: Vec<_> = level0.range_deletes(|lists| lists.iter().map(|range| range.start.clone()).collect());
        starts.sort();
        assert_eq!(starts, [b"aaaa", b"bbbb", b"cccc", b"dddd"]);
        assert!(!level0.is_empty() && level0.messages() == 0 && level0.bytes() > 0);
        assert_eq!(level0.seq_bounds(), Some((5, 9)));
    }
    assert_eq!(budget.used(Purpose::Level0), 0);
}

/// As when each row of a table is read after a range-delete beside it. It takes minutes where a read costs what all of them do.
#[test]
fn a_read_after_each_of_many_range_deletes_costs_little() {
    let budget = MemoryBudget::new(1 << 30);
    let memtable = Memtable::new(1, &ChunkPool::new(&budget));
    let count = if cfg!(miri) { 100u64 } else { 100_000 };
    let key = |number: u64| mix(number).to_be_bytes();
    for seq in 1..=count {
        let end = [&key(seq)[..], b"x"].concat();
        let stamp = Stamp::Written { txn: TxnId(1), step: 0 };
        memtable.insert_range(RangeDelete { start: key(seq).to_vec(), end, seq, stamp });
        for probe in [seq, seq / 2 + 1] {
            let key = key(probe);
            let found: Vec<u64> = memtable.range_deletes(|lists| {
                lists.lists().iter().flat_map(|list| list.covering(&key)).map(|range| range.seq).collect()
            });
            assert_eq!(found, [probe]);
        }
    }
    assert!(memtable.bytes() as u64 > count * 24);
    drop(memtable);
    assert_eq!(budget.used(Purpose::Level0), 0);
}

#[test]
fn threads_that_insert_and_read_see_whole_messages_in_order() {
    let budget = MemoryBudget::new(1 << 30);
    let memtable = Arc::new(Memtable::new(1, &ChunkPool::new(&budget)));
    let threads = 4u64;
    let count = if cfg!(miri) { 60u64 } else { 20_000 };
    let done: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (memtable, done) = (&memtable, &done);
            scope.spawn(move || {
                for index in 0..count {
                    // Half of the keys ascend and are contended, half are scattered; all are distinct.
                    let number = if index % 2 == 0 {
                        index * threads + thread
                    } else {
                        (index * threads + thread).reverse_bits()
                    };
                    let key = inner(TreeId((index % 2) as u32), &number.to_be_bytes());
                    let payload = key.repeat(2);
                    let body = (index, thread + 1, 0, Kind::Put, false, payload);
                    memtable.insert(index, (TxnId(thread + 1), 0), &message(&key, &body), || None);
                    done[thread as usize].store(index + 1, Ordering::Release);
                }
            });
        }
        for _ in 0..2 {
            let (memtable, done) = (&memtable, &done);
            scope.spawn(move || {
                let mut cursor = memtable.cursor();
                while done.iter().any(|done| done.load(Ordering::Acquire) < count) {
                    let before: u64 = done.iter().map(|done| done.load(Ordering::Acquire)).sum();
                    let (mut seen, mut last) = (0, Vec::new());
                    cursor.first();
                    while let Some(message) = cursor.get() {
                        assert!(message.key > &last[..], "order");
                        assert_eq!(message.payload, message.key.repeat(2), "whole");
                        last = message.key.to_vec();
                        seen += 1;
                        cursor.next();
                    }
                    assert!(seen >= before, "what was inserted before the walk is met, seen={seen} before={before}");
                }
            });
        }
    });
    assert_eq!(memtable.messages(), threads * count);
    for thread in 0..threads {
        let key = inner(TreeId(0), &thread.to_be_bytes());
        assert!(memtable.get(&key, key_hash(&key), |_| ControlFlow::Break(())).is_break());
    }
    let mut cursor = memtable.cursor();
    cursor.last();
    let mut walked = 0;
    while cursor.valid() && walked < 100 {
        walked += 1;
        cursor.prev();
    }
    drop(memtable);
    assert!(budget.used(Purpose::Level0) > 0, "the cursor keeps the messages");
    drop(cursor);
    assert_eq!(budget.used(Purpose::Level0), 0);
}

/// Readers pass over the versions of rows that writers add some to.
#[test]
fn keys_are_met_once_and_in_order_while_they_get_more_versions() {
    let memtable = Arc::new(Memtable::new(1, &ChunkPool::new(&MemoryBudget::new(1 << 30))));
    let keys = 7u64;
    let count = if cfg!(miri) { 60u64 } else { 20_000 };
    let insert = |seq: u64| {
        // Three keys share all that is compared as a number.
        let key = inner(TreeId(1), &[&(seq % keys / 3).to_be_bytes()[..], &[(seq % keys % 3) as u8]].concat());
        let body = (seq, 1, 0, Kind::Put, false, seq.to_be_bytes().to_vec());
        memtable.insert(seq, (TxnId(1), 0), &message(&key, &body), || None);
    };
    (1..=keys).for_each(insert);
    let done = AtomicU64::new(keys);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in keys + 1..=count {
                insert(seq);
                done.store(seq, Ordering::Release);
            }
        });
        let mut cursor = memtable.cursor();
        loop {
            let before = done.load(Ordering::Acquire);
            let mut seen: Vec<(Vec<u8>, u64)> = Vec::new();
            cursor.first();
            while let Some(message) = cursor.get() {
                seen.push((message.key.to_vec(), message.seq));
                cursor.next_key();
            }
            assert_eq!(seen.len() as u64, keys);
            assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0), "{seen:?}");
            // Each is met at what is then its newest message.
            assert!(seen.iter().all(|(_, seq)| *seq + keys > before), "before={before} {seen:?}");
            if before == count {
                break;
            }
        }
    });
}

/// Transactions in the order of their numbers, which their commits have too: one rolled back, the last ones open.
struct Fates {
    rolled_back: u64,
    open_from: u64,
}

impl Statuses for Fates {
    fn status(&self, txn: TxnId, _step: u32) -> Status {
        match txn.0 {
            txn if txn >= self.open_from => Status::Active,
            txn if txn % 10 == self.rolled_back => Status::Aborted,
            txn => Status::Committed(CommitNumber(txn)),
        }
    }
}

/// The value of `key` at a snapshot, of messages from newest to oldest.
fn value_of<'m>(snapshot: CommitNumber, fates: &Fates, messages: impl Iterator<Item = &'m Body>) -> Option<Vec<u8>> {
    let view = View { snapshot, own: None, uncommitted: Uncommitted::Hidden, statuses: fates };
    let (mut reader, mut older) = (KeyReader::new(), None);
    for body in messages {
        match reader.message(&view, &message(b"key!", body)) {
            Found::Undecided { .. } => continue,
            Found::Absent => {}
            Found::Here => older = Some(body.5.clone()),
        }
        break;
    }
    reader.finish(older).expect("programs are well formed")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 3 } else { 256 }, ..ProptestConfig::default() })]
    #[test]
    fn what_is_forgotten_no_snapshot_needs(
        writes in prop::collection::vec((0u64..6, 0u8..8, any::<bool>()), 0..if cfg!(miri) { 60 } else { 300 }),
        rolled_back in 0u64..20,
        open in 0u64..5,
        snapshots_max in 0usize..4,
    ) {
        let memtable = Arc::new(Memtable::new(1, &ChunkPool::new(&MemoryBudget::new(1 << 30))));
        let key = |number: u64| inner(TreeId(1), &[&(number / 3).to_be_bytes()[..], &[(number % 3) as u8]].concat());
        let mut model: BTreeMap<Vec<u8>, Vec<Body>> = BTreeMap::new();
        // Rows whose keys know single-deletes: put only while they are not there.
        let mut singles = [false; 3];
        let mut live: Vec<CommitNumber> = Vec::new();
        let mut program = Vec::new();
        Program { ops: vec![Op::Append { bytes: vec![7] }] }.encode(&mut program);
        for (seq, (number, kind, turns)) in (1u64..).zip(writes) {
            let fates = Fates { rolled_back, open_from: seq.saturating_sub(open).max(1) };
            let newest = (0..fates.open_from).rev().find(|txn| *txn == 0 || txn % 10 != rolled_back).map_or(CommitNumber(0), CommitNumber);
            // Snapshots come at the newest commit, and the oldest ones go.
            if turns {
                live.push(newest);
                live.drain(..live.len().saturating_sub(snapshots_max));
            }
            let retention = || {
                let mut snapshots = live.clone();
                snapshots.push(newest);
                snapshots.dedup();
                Some(Retention { snapshots, statuses: &fates })
            };
            let (kind, payload) = match kind {
                _ if number < 3 => {
                    let is_there = &mut singles[number as usize];
                    *is_there ^= seq % 10 != rolled_back;
                    if *is_there == (seq % 10 != rolled_back) { (Kind::Put, vec![seq as u8; 3]) } else { (Kind::SingleDelete, vec![]) }
                }
                0..4 => (Kind::Put, vec![seq as u8; 9]),
                4 => (Kind::InsertIfAbsent, vec![seq as u8; 5]),
                5 => (Kind::Update, program.clone()),
                _ => (Kind::Delete, vec![]),
            };
            let (key, written) = (key(number), (seq, seq, 0, kind, kind == Kind::Put && seq % 7 == 0, payload));
            memtable.insert(seq, (TxnId(seq), 0), &message(&key, &written), retention);
            model.entry(key).or_default().insert(0, written);
            for (key, bodies) in &model {
                let mut found = Vec::new();
                let _ = memtable.get(key, key_hash(key), |message| {
                    found.push(body(message));
                    ControlFlow::Continue(())
                });
                prop_assert_eq!(&found[0], &bodies[0], "the newest stays");
                for snapshot in live.iter().copied().chain([newest, CommitNumber::LATEST]) {
                    let value = |bodies: &[Body]| value_of(snapshot, &fates, bodies.iter());
                    prop_assert_eq!(value(&found), value(bodies), "snapshot={} of {:?}: {:?} of {:?}", snapshot, live, found, bodies);
                }
                let blobs = |bodies: &[Body]| bodies.iter().filter(|body| body.4).count();
                prop_assert_eq!(blobs(&found), blobs(bodies), "who drops a blob has to tell");
            }
        }
        let mut cursor = memtable.cursor();
        cursor.first();
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        while let Some((key, body)) = at(&cursor) {
            prop_assert!(model[&key].contains(&body));
            forward.push((key, body));
            cursor.next();
        }
        cursor.last();
        while let Some(row) = at(&cursor) {
            backward.insert(0, row);
            cursor.prev();
        }
        prop_assert_eq!(&forward, &backward);
        let kinds: [u64; 6] = std::array::from_fn(|kind| forward.iter().filter(|(_, body)| body.3 as usize == kind).count() as u64);
        prop_assert_eq!((memtable.messages(), memtable.kinds()), (forward.len() as u64, kinds));
    }
}

/// A memtable in which so many rows were written in turn, so many times in all.
fn written_over(count: u64, rows: u64, retention: impl Fn(u64) -> Option<Retention<'static>>) -> Memtable {
    let memtable = Memtable::new(1, &ChunkPool::new(&MemoryBudget::new(1 << 30)));
    for seq in 1..=count {
        let key = inner(TreeId(1), &(seq % rows).to_be_bytes());
        let body = (seq, seq, 0, Kind::Put, false, vec![]);
        memtable.insert(seq, (TxnId(seq), 0), &message(&key, &body), || retention(seq));
    }
    memtable
}

#[test]
fn a_row_that_is_written_over_and_over_leaves_few_versions() {
    static ALL_COMMITTED: Fates = Fates { rolled_back: 10, open_from: u64::MAX };
    let count = if cfg!(miri) { 300 } else { 30_000 };
    for rows in [1, 3, 100] {
        let memtable = written_over(count, rows, |seq| {
            Some(Retention { snapshots: vec![CommitNumber(seq - 1)], statuses: &ALL_COMMITTED })
        });
        assert!(memtable.messages() <= 15 + 5 * rows, "{} of {rows} rows", memtable.messages());
        let held = written_over(count, rows, |seq| {
            Some(Retention { snapshots: vec![CommitNumber(0), CommitNumber(seq - 1)], statuses: &ALL_COMMITTED })
        });
        assert!(held.messages() <= 15 + 5 * rows, "no version is as old as the old snapshot");
    }
}

/// Of a row that came and went, and of one that went and came, what is left adds up to what it was: nothing more, nothing less.
#[test]
fn what_is_left_of_rows_that_come_and_go_adds_up() {
    static ALL_COMMITTED: Fates = Fates { rolled_back: u64::MAX, open_from: u64::MAX };
    for (rows, (first, then)) in (1..=9u64).flat_map(|rows| {
        [(rows, (Kind::Put, Kind::Delete)), (rows, (Kind::Delete, Kind::Put)), (rows, (Kind::Put, Kind::Put))]
    }) {
        let memtable = Memtable::new(1, &ChunkPool::new(&MemoryBudget::new(1 << 30)));
        for seq in 0..100 * rows {
            let (key, turn) = (inner(TreeId(1), &(seq % rows).to_be_bytes()), seq / rows);
            let body = (seq, seq, 0, if turn % 2 == 0 { first } else { then }, false, vec![]);
            memtable.insert(seq, (TxnId(seq), 0), &message(&key, &body), || {
                Some(Retention { snapshots: vec![CommitNumber(seq.saturating_sub(1))], statuses: &ALL_COMMITTED })
            });
        }
        assert!(memtable.messages() <= 20 * rows, "{} of {rows} rows", memtable.messages());
        let sample = memtable.sample(&inner(TreeId(1), &[]), None).expect("a tree that is there");
        let (puts, deletes) = (sample.kinds[Kind::Put as usize], sample.kinds[Kind::Delete as usize]);
        let expected = if first == then { rows } else { 0 };
        assert_eq!(puts.wrapping_sub(deletes), expected, "{first:?}, then {then:?}");
    }
}

/// What a compaction keeps.
#[derive(Default)]
struct Left(Vec<Kind>);

impl Sink for Left {
    fn keep(&mut self, message: &Message<'_>) -> Result<()> {
        self.0.push(message.kind);
        Ok(())
    }

    fn drop_blob(&mut self, _payload: &[u8]) {
        unreachable!("no blobs here");
    }
}

/// A row comes and goes by single-deletes over a put that lies deeper, and level 0 forgets what was rolled back in between. Were a
/// single-delete forgotten too under the next put, the one after it would leave with that put, and uncover the one that lies deeper.
#[test]
fn what_is_forgotten_leaves_each_put_its_single_delete() {
    let key = inner(TreeId(1), b"row");
    let memtable = Memtable::new(1, &ChunkPool::new(&MemoryBudget::new(1 << 30)));
    let deeper: Body = (1, 1, 0, Kind::Put, false, vec![]);
    let (mut is_there, mut newest, mut written) = (true, 1, 0);
    for seq in (12..2_000).filter(|seq| seq % 10 == 2 || seq % 50 == 3) {
        let open = Fates { rolled_back: 2, open_from: seq };
        let kind = if is_there { Kind::SingleDelete } else { Kind::Put };
        memtable.insert(seq, (TxnId(seq), 0), &message(&key, &(seq, seq, 0, kind, false, vec![])), || {
            Some(Retention { snapshots: vec![CommitNumber(newest)], statuses: &open })
        });
        written += 1;
        if seq % 10 != 2 {
            (is_there, newest) = (!is_there, seq);
        }
        let mut found = Vec::new();
        let _ = memtable.get(&key, key_hash(&key), |message| {
            found.push(body(message));
            ControlFlow::Continue(())
        });
        found.push(deeper.clone());
        let messages: Vec<_> = found.iter().map(|body| message(&key, body)).collect();
        let ended = Fates { rolled_back: 2, open_from: seq + 1 };
        let retention = Retention { snapshots: vec![CommitNumber(newest)], statuses: &ended };
        let mut left = Left::default();
        compact(&mut Stamper::new(), &retention, true, &messages, &[], &mut left).expect("no programs here");
        let expected = if is_there { vec![Kind::Put] } else { vec![] };
        assert_eq!(left.0, expected, "after {seq}, of {found:?}");
    }
    assert!(memtable.messages() < written, "nothing was forgotten");
}

/// Where all versions have to stay, they lie in as few leaves as other rows do: about ten in each.
#[test]
fn versions_of_a_row_behind_a_full_leaf_share_leaves() {
    let count = 3_000;
    let (one, spread) = (written_over(count, 1, |_| None), written_over(count, count, |_| None));
    assert_eq!((one.messages(), spread.messages()), (count, count));
    let behind = Memtable::new(1, &ChunkPool::new(&MemoryBudget::new(1 << 30)));
    for seq in 1..=count {
        // Fifteen rows fill the leaf that all versions of the sixteenth come to the end of.
        let key = inner(TreeId(1), &seq.min(16).to_be_bytes());
        behind.insert(seq, (TxnId(seq), 0), &message(&key, &(seq, seq, 0, Kind::Put, false, vec![])), || None);
    }
    for memtable in [&one, &behind] {
        assert!(memtable.bytes() < 2 * spread.bytes(), "{} and {}", memtable.bytes(), spread.bytes());
    }
}
