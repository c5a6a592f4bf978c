//! The tree against a model: random writes, seals, flushes, publications and reopenings, with tiny nodes.

mod estimate;
mod heirs;
mod held;
mod lacking;
mod late;
mod panics;
mod parting;
mod ranges;
mod release;
mod rent;
mod stretches;
mod together;
mod versions;
mod wide;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use proptest::prelude::*;

use super::cursor::{OwnedView, TreeCursor};
use super::*;
use crate::base::compress::Codec;
use crate::base::striped::Kept;
use crate::base::{CommitNumber, Lsn, TreeId};
use crate::format::block;
use crate::format::program::{Op, Program};
use crate::format::{Kind, Message, RangeDelete, Retention, Stamp, Status, SuperblockBody, Uncommitted};
use crate::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};
use crate::memtable::ChunkPool;
use crate::store::StoreOptions;

/// Every transaction committed at the number of its id, but for one.
pub(crate) struct AllCommitted;

/// That one is rolled back.
const ROLLED_BACK: TxnId = TxnId(1 << 40);

/// As a view owns it.
pub(crate) fn shared(statuses: impl Statuses + 'static) -> Kept<dyn Statuses> {
    (Arc::new(statuses) as Arc<dyn Statuses>).into()
}

impl Statuses for AllCommitted {
    fn status(&self, txn: TxnId, _step: u32) -> Status {
        if txn == ROLLED_BACK { Status::Aborted } else { Status::Committed(CommitNumber(txn.0)) }
    }
}

/// Nobody minds which transactions runs hold.
pub(crate) struct NoHolders;

impl RunHolders for NoHolders {
    fn run_added(&self, _txns: &[TxnId]) {}
    fn run_removed(&self, _txns: &[TxnId]) {}
    fn run_released(&self, _txns: &[TxnId]) {}
}

/// (commit number, value), ascending.
type Versions = Vec<(u64, Option<Vec<u8>>)>;

struct Harness {
    storage: Arc<MemoryStorage>,
    tree: Arc<BeTree>,
    budget: MemoryBudget,
    now: u64,
    memtable: u64,
    model: BTreeMap<Vec<u8>, Versions>,
    /// Commits up to this one are in the tree's stored form.
    snapshots: Vec<CommitNumber>,
}

fn store_options() -> StoreOptions {
    StoreOptions { direct: false, reserve_bytes: 0, ..StoreOptions::default() }
}

fn env(store: Arc<Store>, budget: &MemoryBudget, next_run: u64, tuning: TreeTuning) -> TreeEnv {
    TreeEnv {
        store,
        cache: Arc::new(Cache::new(budget.clone())),
        budget: budget.clone(),
        statuses: Arc::new(AllCommitted),
        run_counters: Arc::default(),
        holders: Arc::new(NoHolders),
        options: tuning,
        codecs: CodecTable::new(Codec::default()),
        run_ids: Arc::new(AtomicU64::new(next_run)),
    }
}

impl Harness {
    fn new() -> Harness {
        Harness::with(TreeTuning::tiny())
    }

    fn with(tuning: TreeTuning) -> Harness {
        let storage = Arc::new(MemoryStorage::new());
        let budget = MemoryBudget::new(4 << 20);
        let shared: Arc<dyn Storage> = storage.clone();
        shared.create_dir_all(Path::new("db")).expect("folder");
        let store = Store::create(&shared, Path::new("db"), &store_options(), [7; 16], SuperblockBody::default())
            .expect("create");
        let active = Arc::new(Memtable::new(1, &ChunkPool::new(&budget)));
        let tree = BeTree::open(env(store, &budget, 1, tuning), None, Vec::new(), active).expect("open");
        Harness {
            storage,
            tree: Arc::new(tree),
            budget,
            now: 0,
            memtable: 1,
            model: BTreeMap::new(),
            snapshots: Vec::new(),
        }
    }

    fn retention(&self) -> Retention<'static> {
        let mut snapshots = self.snapshots.clone();
        snapshots.push(CommitNumber(self.now));
        Retention { snapshots, statuses: &AllCommitted }
    }

    fn write(&mut self, key: &[u8], kind: Kind, payload: &[u8]) {
        self.now += 1;
        let message = Message { key, seq: self.now, stamp: Stamp::Settled, kind, blob: false, payload };
        self.tree.version().active.insert(self.now, (TxnId(self.now), 0), &message, || None);
        self.tree.dead_ranges().on_write(|tell| tell(key));
        let versions = self.model.entry(key.to_vec()).or_default();
        let before = versions.last().and_then(|(_, value)| value.clone());
        let after = match kind {
            Kind::Put => Some(payload.to_vec()),
            Kind::InsertIfAbsent => before.or_else(|| Some(payload.to_vec())),
            Kind::Delete | Kind::SingleDelete => None,
            Kind::Update => crate::format::program::apply(payload, before).expect("well formed"),
        };
        versions.push((self.now, after));
    }

    /// Of which nobody ever sees anything.
    fn write_rolled_back(&mut self, key: &[u8], kind: Kind) {
        self.now += 1;
        let stamp = Stamp::Written { txn: ROLLED_BACK, step: 0 };
        let message = Message { key, seq: self.now, stamp, kind, blob: false, payload: b"rolled back" };
        self.tree.version().active.insert(self.now, (ROLLED_BACK, 0), &message, || None);
        self.tree.dead_ranges().on_write(|tell| tell(key));
    }

    fn delete_range(&mut self, start: Vec<u8>, end: Vec<u8>) {
        if start >= end {
            return;
        }
        self.now += 1;
        for (_, versions) in self.model.range_mut(start.clone()..end.clone()) {
            versions.push((self.now, None));
        }
        let stamp = Stamp::Written { txn: TxnId(self.now), step: 0 };
        self.tree.version().active.insert_range(RangeDelete { start, end, seq: self.now, stamp });
    }

    fn switch(&mut self) {
        self.memtable += 1;
        self.tree.switch_active(Arc::new(Memtable::new(self.memtable, &ChunkPool::new(&self.budget))));
    }

    fn seal_all(&mut self) {
        self.switch();
        while !self.tree.version().sealed.is_empty() {
            assert!(self.tree.seal_step(&self.retention()).expect("seal").is_some());
        }
    }

    fn compact(&self, lower: Vec<u8>, upper: Option<Vec<u8>>) {
        let mut pass = self.tree.compact_pass(lower, upper, self.now);
        for _ in 0..10_000 {
            match self.tree.compact_step(&self.retention(), &mut pass).expect("compact") {
                CompactStep::Done => return,
                step => assert_ne!(step, CompactStep::Busy, "nobody else works"),
            }
        }
        panic!("a pass comes to its end");
    }

    fn rows(&self) -> u64 {
        let estimate = self.tree.estimate(&self.tree.version(), &[], None).expect("estimate");
        assert_eq!(estimate.pending, 0, "nothing is left in buffers");
        estimate.rows
    }

    fn publish(&self) {
        self.try_publish().expect("publish");
    }

    fn try_publish(&self) -> crate::base::Result<publish::Published> {
        let input = |_: &Version| PublishInput {
            status_image: vec![1, 2, 3],
            log_start: Lsn(0),
            log_end: Lsn(0),
            next_txn: TxnId(self.now + 1),
            next_commit: CommitNumber(self.now + 1),
            extra: Vec::new(),
        };
        self.tree.publish(input, || Ok(()))
    }

    /// Checks everything now, after all work that there is, and opened again.
    fn check_to_the_end(&mut self) {
        self.check();
        while self.tree.work_step(&self.retention(), 0.0).expect("work") {}
        self.check();
        self.reopen();
        self.check();
    }

    /// Stops without warning right after a publication, and opens what is stored.
    fn reopen(&mut self) {
        self.reopen_on(&|storage| storage);
    }

    /// Goes on with what `storage_on` makes of the storage.
    fn reopen_on(&mut self, storage_on: &dyn Fn(Arc<dyn Storage>) -> Arc<dyn Storage>) {
        self.seal_all();
        self.publish();
        self.storage = Arc::new(self.storage.crash(self.now));
        self.budget = MemoryBudget::new(4 << 20);
        let shared = storage_on(self.storage.clone());
        let opened = Store::open(&shared, Path::new("db"), &store_options()).expect("open store");
        let body = &opened.superblocks[0].body;
        let active = Arc::new(Memtable::new(self.memtable + 1, &ChunkPool::new(&self.budget)));
        self.memtable += 1;
        let env = env(opened.store, &self.budget, body.next_run.0, self.tree.env().options);
        self.tree = Arc::new(BeTree::open(env, body.root, Vec::new(), active).expect("open tree"));
        self.snapshots.clear();
    }

    fn view(&self, snapshot: CommitNumber) -> OwnedView {
        OwnedView { snapshot, own: None, uncommitted: Uncommitted::Hidden, statuses: shared(AllCommitted) }
    }

    fn expected(&self, snapshot: CommitNumber) -> Vec<(Vec<u8>, Vec<u8>)> {
        let visible = |versions: &Versions| {
            versions.iter().rev().find(|(number, _)| *number <= snapshot.0).and_then(|(_, value)| value.clone())
        };
        self.model.iter().filter_map(|(key, versions)| Some((key.clone(), visible(versions)?))).collect()
    }

    fn check(&self) {
        let mut all = self.snapshots.clone();
        all.push(CommitNumber::LATEST);
        for snapshot in all {
            let expected = self.expected(snapshot);
            let view = self.view(snapshot);
            let mut cursor = self.tree.cursor(view.clone(), Vec::new(), None, CursorOptions::default());
            let mut forward = Vec::new();
            let mut more = cursor.first().expect("first");
            while more {
                forward.push((cursor.key().to_vec(), cursor.value().to_vec()));
                more = cursor.next().expect("next");
            }
            assert_eq!(forward, expected, "forward at {snapshot}");
            let mut backward = Vec::new();
            let mut more = cursor.last().expect("last");
            while more {
                backward.push((cursor.key().to_vec(), cursor.value().to_vec()));
                more = cursor.prev().expect("prev");
            }
            backward.reverse();
            assert_eq!(backward, expected, "backward at {snapshot}");
            self.check_turning(&view, &expected);
            let version = self.tree.version();
            for key in self.model.keys() {
                let got = self.tree.get(&version, &view.view(), key).expect("get").map(Value::into_vec);
                let want = expected.iter().find(|(other, _)| other == key).map(|(_, value)| value.clone());
                assert_eq!(got, want, "get {key:02x?} at {snapshot}");
            }
        }
        self.verify();
    }

    fn verify(&self) {
        let report = self.tree.verify(&mut |_| ControlFlow::Continue(()));
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }

    /// Goes through some of the rows, turning back for a row now and then, and begins anew from a key in the middle.
    fn check_turning(&self, view: &OwnedView, expected: &[(Vec<u8>, Vec<u8>)]) {
        let inside = &expected[expected.len() / 5..expected.len() - expected.len() / 7];
        let (Some(first), Some(last)) = (inside.first(), inside.last()) else { return };
        let upper = [&last.0[..], &[0]].concat();
        let mut cursor = self.tree.cursor(view.clone(), first.0.clone(), Some(upper), CursorOptions::default());
        let row = |cursor: &TreeCursor| cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec()));
        assert!(cursor.first().expect("first"));
        for (at, wanted) in inside.iter().enumerate() {
            assert_eq!(row(&cursor).as_ref(), Some(wanted), "row {at}");
            if at % 7 == 5 {
                assert!(cursor.prev().expect("prev"));
                assert_eq!(row(&cursor).as_ref(), inside.get(at - 1), "before row {at}");
                assert!(cursor.next().expect("next"));
                assert_eq!(row(&cursor).as_ref(), Some(wanted), "row {at} again");
            }
            if at % 11 == 8 {
                assert!(cursor.seek(&inside[at / 2].0).expect("seek"));
                assert!(cursor.next().expect("next"));
                assert!(cursor.seek(&wanted.0).expect("seek"));
            }
            assert_eq!(cursor.next().expect("next"), at + 1 < inside.len(), "after row {at}");
        }
        assert_eq!(row(&cursor), None, "past the upper bound");
    }
}

impl Harness {
    /// Leaves of 600 rows, and above that of `key(300)` a buffer with so many runs that put it anew.
    fn with_runs_above_a_leaf(runs: u8) -> Harness {
        let mut harness = Harness::new();
        for number in 0..600 {
            harness.write(&key(number), Kind::Put, format!("value {number:08}").as_bytes());
        }
        harness.seal_all();
        harness.compact(Vec::new(), None);
        for round in 0..runs {
            harness.write(&key(300), Kind::Put, &[round; 20]);
            harness.seal_all();
        }
        harness
    }

    /// Positions cursors at `key`.
    fn seek_often(&self, key: &[u8], times: usize) {
        let view = self.view(CommitNumber(self.now));
        let mut cursor = self.tree.cursor(view, Vec::new(), None, CursorOptions::default());
        for _ in 0..times {
            cursor.seek(key).expect("seek");
        }
    }
}

fn key(number: u16) -> Vec<u8> {
    crate::base::key::inner(TreeId(1 + u32::from(number % 3)), format!("{:05}", number / 3).as_bytes())
}

#[derive(Debug, Clone)]
enum Step {
    Put(u16, u8),
    Insert(u16, u8),
    Delete(u16),
    Update(u16, u8),
    DeleteRange(u16, u16),
    Fill(u16, u16),
    RollBack(u16, u16),
    Snapshot,
    Forget,
    Seal,
    Work(u8),
    Piece(u8, u16),
    Read(u16, bool),
    Compact(u16, u16),
    Publish,
    Reopen,
}

/// Changes of one key, so many deletes among twelve others.
fn changes(deletes: u32) -> impl Strategy<Value = Step> {
    let number = 0u16..600;
    prop_oneof![
        8 => (number.clone(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => (number.clone(), any::<u8>()).prop_map(|(key, value)| Step::Insert(key, value)),
        deletes => number.clone().prop_map(Step::Delete),
        2 => (number, any::<u8>()).prop_map(|(key, value)| Step::Update(key, value)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0u16..600;
    let step = prop_oneof![
        18 => changes(6),
        2 => (number.clone(), number.clone()).prop_map(|(a, b)| Step::DeleteRange(a.min(b), a.max(b))),
        4 => (number.clone(), 1u16..200).prop_map(|(from, count)| Step::Fill(from, count)),
        1 => (number.clone(), 1u16..200).prop_map(|(from, count)| Step::RollBack(from, count)),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Forget),
        4 => Just(Step::Seal),
        4 => (0u8..4).prop_map(Step::Work),
        4 => (0u8..4, 0u16..6000).prop_map(|(threshold, bytes)| Step::Piece(threshold, bytes)),
        3 => (number.clone(), any::<bool>()).prop_map(|(key, idle)| Step::Read(key, idle)),
        1 => (number.clone(), number.clone()).prop_map(|(a, b)| Step::Compact(a.min(b), a.max(b))),
        2 => Just(Step::Publish),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..80)
}

fn play(harness: &mut Harness, step: &Step) {
    match *step {
        Step::RollBack(from, count) => {
            let kind = [Kind::Put, Kind::InsertIfAbsent, Kind::Delete][usize::from(count) % 3];
            (from..from + count).for_each(|number| harness.write_rolled_back(&key(number), kind));
        }
        Step::Put(number, value) => harness.write(&key(number), Kind::Put, &[value; 20]),
        Step::Insert(number, value) => harness.write(&key(number), Kind::InsertIfAbsent, &[value; 20]),
        Step::Delete(number) => harness.write(&key(number), Kind::Delete, &[]),
        Step::Update(number, value) => {
            let mut payload = Vec::new();
            Program { ops: vec![Op::SetBytes { offset: 1, bytes: vec![value] }] }.encode(&mut payload);
            harness.write(&key(number), Kind::Update, &payload);
        }
        Step::DeleteRange(from, to) => harness.delete_range(key(from), key(to)),
        Step::Fill(from, count) => {
            for number in from..from + count {
                harness.write(&key(number), Kind::Put, format!("value {number:08}").as_bytes());
            }
        }
        Step::Snapshot => harness.snapshots.push(CommitNumber(harness.now)),
        Step::Forget => {
            if !harness.snapshots.is_empty() {
                harness.snapshots.remove(0);
            }
        }
        Step::Seal => harness.seal_all(),
        Step::Work(threshold) => {
            harness.tree.work_step(&harness.retention(), f32::from(threshold) / 3.0).expect("work");
            harness.verify();
        }
        Step::Piece(threshold, bytes) => {
            let threshold = f32::from(threshold) / 3.0;
            let worked = harness.tree.work_piece(&harness.retention(), threshold, Some(u64::from(bytes)));
            worked.expect("work");
            harness.verify();
        }
        Step::Read(number, idle) => {
            harness.seek_often(&key(number), 200);
            harness.tree.flush_for_reads(&harness.retention(), idle).expect("work");
            harness.verify();
        }
        Step::Compact(from, to) => harness.compact(key(from), Some(key(to))),
        Step::Publish => harness.publish(),
        Step::Reopen => harness.reopen(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_tree_answers_like_a_sorted_map_of_versions(steps in steps()) {
        let mut harness = Harness::new();
        for step in &steps {
            play(&mut harness, step);
        }
        harness.check();
    }
}

#[test]
fn a_tree_grows_and_shrinks_and_its_space_comes_back() {
    let mut harness = Harness::new();
    for round in 0..30u16 {
        for number in 0..300 {
            harness.write(
                &key(round * 300 + number),
                Kind::Put,
                format!("{round} {number} {:0100}", u32::from(number) * 7919).as_bytes(),
            );
        }
        harness.seal_all();
        while harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    }
    assert!(harness.tree.version().root.height() > 2, "height={}", harness.tree.version().root.height());
    harness.check();
    harness.delete_range(Vec::new(), vec![0xff; 8]);
    harness.seal_all();
    for _ in 0..1000 {
        if !harness.tree.work_step(&harness.retention(), 0.0).expect("work") {
            break;
        }
    }
    harness.check();
    for _ in 0..4 {
        harness.publish();
    }
    let totals = *harness.tree.version().root.totals();
    assert_eq!((totals.base_rows, totals.base_bytes), (0, 0), "{totals:?}");
    harness.reopen();
    harness.check();
}

#[test]
fn after_compacting_everything_the_count_of_rows_is_exact() {
    let mut harness = Harness::new();
    for round in 0..5u16 {
        for number in 0..1500 {
            let value = format!("{round} {number} {:080}", u32::from(number) * 7919);
            match (number + round) % 5 {
                0 => harness.write(&key(number), Kind::Delete, &[]),
                1 => harness.write(&key(number), Kind::InsertIfAbsent, value.as_bytes()),
                _ => harness.write(&key(number), Kind::Put, value.as_bytes()),
            }
        }
        harness.seal_all();
        while round < 3 && harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    }
    harness.delete_range(key(300), key(450));
    harness.seal_all();
    harness.compact(Vec::new(), None);
    let expected = harness.expected(CommitNumber::LATEST).len() as u64;
    assert_eq!(harness.rows(), expected);
    let written = harness.tree.counters().compactions.get();
    harness.compact(Vec::new(), None);
    assert_eq!(harness.tree.counters().compactions.get(), written, "what is clean is not written again");
    harness.check();
}

#[test]
fn blind_inserts_of_one_key_are_one_message_once_they_are_sealed() {
    let mut harness = Harness::new();
    for round in 0..10_000u16 {
        harness.write(&key(1), Kind::InsertIfAbsent, &round.to_le_bytes());
    }
    harness.seal_all();
    let root = harness.tree.version().root.clone();
    assert_eq!(root.slots()[0].runs().map(|run| run.meta().messages).collect::<Vec<_>>(), [1]);
    harness.check();
}

/// Rows that do not compress well, in several rounds of sealing and work.
fn grown(rounds: u16) -> Harness {
    let mut harness = Harness::new();
    for round in 0..rounds {
        for number in 0..300 {
            let value = format!("{round} {number} {:0100}", u32::from(number) * 7919);
            harness.write(&key(round * 300 + number), Kind::Put, value.as_bytes());
        }
        harness.seal_all();
        while harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    }
    harness
}

#[test]
fn a_range_is_compacted_and_the_rest_left_alone() {
    let mut harness = grown(20);
    for number in 0..6000u16 {
        harness.write(&key(number), Kind::Put, b"new");
    }
    harness.seal_all();
    let slots = harness.tree.version().root.slots().len();
    assert!(slots > 1, "slots={slots}");
    let lower = harness.tree.version().root.slots()[1].lower().to_vec();
    let upper = vec![0xff; 8];
    let pending = |harness: &Harness, lower: &[u8], upper: &[u8]| {
        harness.tree.estimate(&harness.tree.version(), lower, Some(upper)).expect("estimate").pending
    };
    let before = pending(&harness, &[], &lower);
    assert!(before > 0 && pending(&harness, &lower, &upper) > 0);
    harness.compact(lower.clone(), Some(upper.clone()));
    assert_eq!((pending(&harness, &lower, &upper), pending(&harness, &[], &lower)), (0, before));
    harness.check();
}

#[test]
fn a_pass_beside_writers_leaves_nothing_that_was_there_before_it_above_the_leaves() {
    let mut harness = grown(30);
    let height = harness.tree.version().root.height();
    assert!(height > 2, "height={height}");
    (5..9000u16).step_by(10).for_each(|number| harness.write(&key(number), Kind::Delete, &[]));
    harness.seal_all();
    let mut pass = harness.tree.compact_pass(Vec::new(), None, harness.now);
    for round in 0.. {
        assert!(round < 10_000, "a pass comes to its end");
        (1..9000u16).step_by(70).for_each(|number| harness.write(&key(number), Kind::Put, b"beside"));
        harness.seal_all();
        if harness.tree.compact_step(&harness.retention(), &mut pass).expect("compact") == CompactStep::Done {
            break;
        }
    }
    let (root, mut deletes) = (harness.tree.version().root.clone(), 0);
    let walked = step::for_each_run(harness.tree.env(), &root, &mut |run| {
        deletes += run.meta().kinds[Kind::Delete as usize];
        Ok(ControlFlow::Continue(()))
    });
    assert!(walked.is_ok_and(|flow| flow.is_continue()));
    assert_eq!(deletes, 0);
    harness.compact(Vec::new(), None);
    harness.check();
}

#[test]
fn a_tree_of_which_little_is_left_becomes_small_again() {
    let mut harness = grown(30);
    let height = harness.tree.version().root.height();
    assert!(height > 2, "height={height}");
    for number in (0..9000u16).filter(|number| number % 100 != 0) {
        harness.write(&key(number), Kind::Delete, &[]);
    }
    harness.seal_all();
    harness.compact(Vec::new(), None);
    while harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    let root = harness.tree.version().root.clone();
    let shape = harness.tree.shape().expect("shape");
    assert!(root.height() < height, "before={height} now:\n{shape}");
    assert!(harness.tree.counters().joins.get() > 0);
    let mut leaves = 0;
    let walked = step::for_each_run(harness.tree.env(), &root, &mut |_| {
        leaves += 1;
        Ok(std::ops::ControlFlow::Continue(()))
    });
    assert!(walked.is_ok_and(|flow| flow.is_continue()));
    // 90 rows would fit into a leaf or two; every border between trees and each half of a split may leave one more.
    assert!(leaves <= 8, "leaves={leaves}\n{shape}");
    assert_eq!(harness.rows(), 90);
    harness.check();
    harness.reopen();
    harness.check();
}

#[test]
fn a_queue_leaves_dead_ranges_that_scans_jump_over() {
    let mut harness = Harness::new();
    let view = harness.view(CommitNumber::LATEST);
    for number in 0..3000u16 {
        harness.write(&key(number), Kind::Put, b"job");
    }
    let mut passed = 0;
    for _ in 0..2000 {
        let mut cursor = harness.tree.cursor(view.clone(), Vec::new(), None, CursorOptions::default());
        assert!(cursor.first().expect("first"));
        let head = cursor.key().to_vec();
        passed = cursor.rows_passed_over();
        drop(cursor);
        harness.write(&head, Kind::Delete, &[]);
    }
    assert!(passed <= 3, "the last scan passed over {passed} keys");
    // Writes into the dead range are seen.
    harness.write(&key(100 * 3), Kind::Put, b"again");
    harness.check();
}

#[test]
fn what_is_rolled_back_is_walked_over_once_each_way() {
    let key = |number: u16| crate::base::key::inner(TreeId(1), &number.to_be_bytes());
    for backward in [false, true] {
        let mut harness = Harness::new();
        harness.write(&key(0), Kind::Put, b"first");
        for number in 1..3000u16 {
            // Under some of it lies what was deleted before, under some what was there all the time.
            if number % 5 == 0 {
                harness.write(&key(number), Kind::Delete, &[]);
            }
            if number == 1500 {
                harness.write(&key(number), Kind::Put, b"stays");
            }
            harness.write_rolled_back(&key(number), Kind::Put);
        }
        harness.write(&key(3000), Kind::Put, b"last");
        let view = harness.view(CommitNumber::LATEST);
        let scan = |give_up_after: Option<u64>| {
            let mut cursor = harness.tree.cursor(view.clone(), Vec::new(), None, CursorOptions::default());
            if let Some(keys) = give_up_after {
                cursor.give_up_after(keys);
            }
            let mut found = Vec::new();
            let mut valid = if backward { cursor.last() } else { cursor.first() }.expect("begin");
            while valid {
                found.push(cursor.value().to_vec());
                valid = if backward { cursor.prev() } else { cursor.next() }.expect("move");
            }
            if backward && !cursor.gave_up() {
                found.reverse();
            }
            (found, cursor.rows_passed_over(), cursor.gave_up())
        };
        let one_end = if backward { b"last".to_vec() } else { b"first".to_vec() };
        assert_eq!(scan(Some(1000)), (vec![one_end], 1001, true));
        let all = ["first", "stays", "last"].map(|value| value.as_bytes().to_vec()).to_vec();
        let (found, passed, gave_up) = scan(None);
        assert!(found == all && !gave_up && passed >= 2998, "{passed} keys passed over");
        let (found, passed, gave_up) = scan(Some(1000));
        assert!(found == all && !gave_up && passed <= 10, "{passed} keys passed over again");
        // What is written there afterwards is seen.
        harness.write(&key(700), Kind::Put, b"new");
        let scan_again = {
            let mut cursor = harness.tree.cursor(view.clone(), Vec::new(), None, CursorOptions::default());
            cursor.seek(&key(600)).expect("seek") && cursor.value() == b"new"
        };
        assert!(scan_again);
    }
}

#[test]
fn a_stack_leaves_dead_ranges_that_scans_jump_over() {
    let mut harness = Harness::new();
    let view = harness.view(CommitNumber::LATEST);
    let number = |at: u16| crate::base::key::inner(TreeId(1), &at.to_be_bytes());
    for at in 0..10_100u16 {
        harness.write(&number(at), Kind::Put, b"job");
    }
    for at in (100..10_100u16).rev() {
        harness.write(&number(at), Kind::Delete, &[]);
    }
    let pop = |harness: &mut Harness, wanted: u16| {
        let mut cursor = harness.tree.cursor(view.clone(), Vec::new(), None, CursorOptions::default());
        assert!(cursor.last().expect("last"));
        assert_eq!(cursor.key(), number(wanted));
        let passed = cursor.rows_passed_over();
        drop(cursor);
        harness.write(&number(wanted), Kind::Delete, &[]);
        passed
    };
    assert!(pop(&mut harness, 99) <= 10_100);
    for at in (50..99).rev() {
        let passed = pop(&mut harness, at);
        assert!(passed <= 3, "{passed} keys passed over before {at}");
    }
    // What is pushed is seen, and costs little.
    for at in 50..90 {
        harness.write(&number(at), Kind::Put, b"again");
        let passed = pop(&mut harness, at);
        assert!(passed <= 5, "{passed} keys passed over before {at}");
        harness.write(&number(at), Kind::Put, b"again");
    }
    harness.check();
    harness.seal_all();
    harness.check();
}

#[test]
fn a_row_that_is_written_while_a_scan_goes_down_is_never_hidden() {
    let mut harness = Harness::new();
    let number = |at: u16| crate::base::key::inner(TreeId(1), &at.to_be_bytes());
    for at in 0..600u16 {
        harness.write(&number(at), Kind::Put, b"old");
    }
    for at in (1..599u16).filter(|at| *at != 300) {
        harness.write(&number(at), Kind::Delete, &[]);
    }
    for written in [598, 597, 540, 535, 534, 533, 400, 301, 299, 200, 1] {
        for backward in [true, false] {
            harness.tree.dead_ranges().on_graft(&[], None);
            let snapshot = CommitNumber(harness.now);
            let mut cursor = harness.tree.cursor(harness.view(snapshot), Vec::new(), None, CursorOptions::default());
            let go = |cursor: &mut TreeCursor| if backward { cursor.prev() } else { cursor.next() }.expect("goes on");
            assert!(if backward { cursor.last() } else { cursor.first() }.expect("begins"));
            // A source of the memtable that stands further on does not see it.
            harness.write(&number(written), Kind::Put, b"new");
            let mut rows = 1;
            while go(&mut cursor) {
                rows += 1;
            }
            assert_eq!(rows, 3);
            harness.check();
            harness.check();
            harness.write(&number(written), Kind::Delete, &[]);
            harness.check();
        }
    }
}

/// What happens beside scans that leave dead ranges.
#[derive(Debug, Clone)]
enum Beside {
    Put(u16),
    /// Each key is deleted for itself.
    Empty(u16, u16),
    /// As much is written, or deleted, and rolled back.
    RollBack(u16, u16),
    /// A scan from there, over so many rows, with a write in its midst.
    Scan(u16, u8, bool, u16),
    Switch,
    Seal,
    Work,
}

fn beside() -> impl Strategy<Value = Beside> {
    let number = 0u16..600;
    prop_oneof![
        3 => number.clone().prop_map(Beside::Put),
        3 => (number.clone(), 0u16..400).prop_map(|(from, count)| Beside::Empty(from, count)),
        2 => (number.clone(), 0u16..400).prop_map(|(from, count)| Beside::RollBack(from, count)),
        6 => (number.clone(), any::<u8>(), any::<bool>(), number).prop_map(|(from, rows, up, key)| Beside::Scan(from, rows, up, key)),
        1 => Just(Beside::Switch),
        1 => Just(Beside::Seal),
        1 => Just(Beside::Work),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_dead_range_hides_a_row(steps in prop::collection::vec(beside(), 1..60), snapshot_at in 0usize..60) {
        let mut harness = Harness::new();
        (0..600).for_each(|number| harness.write(&key(number), Kind::Put, b"old"));
        for (at, step) in steps.into_iter().enumerate() {
            if at == snapshot_at {
                harness.snapshots.push(CommitNumber(harness.now));
            }
            match step {
                Beside::Put(number) => harness.write(&key(number), Kind::Put, b"new"),
                Beside::Empty(from, count) => {
                    (from..(from + count).min(600)).for_each(|number| harness.write(&key(number), Kind::Delete, &[]));
                }
                Beside::RollBack(from, count) => {
                    let kind = if count % 3 == 0 { Kind::Delete } else { Kind::Put };
                    (from..(from + count).min(600)).for_each(|number| harness.write_rolled_back(&key(number), kind));
                }
                Beside::Scan(from, rows, up, written) => {
                    let snapshot = harness.snapshots.first().copied().filter(|_| rows % 4 == 0);
                    let snapshot = snapshot.unwrap_or(CommitNumber(harness.now));
                    let view = harness.view(snapshot);
                    let mut expected = harness.expected(snapshot);
                    // Of one tree, or of all.
                    let tree = TreeId(1 + u32::from(from % 3));
                    let (lower, upper) = match rows % 2 {
                        0 => (Vec::new(), None),
                        _ => (crate::base::key::tree_start(tree), Some(crate::base::key::tree_end(tree))),
                    };
                    expected.retain(|(key, _)| *key >= lower && upper.as_ref().is_none_or(|upper| key < upper));
                    if up {
                        expected.retain(|(other, _)| *other >= key(from));
                    } else {
                        expected.retain(|(other, _)| *other < key(from));
                        expected.reverse();
                    }
                    let mut cursor = harness.tree.cursor(view, lower, upper, CursorOptions::default());
                    let mut more = if up { cursor.seek(&key(from)) } else { cursor.seek_before(&key(from)) }.expect("seek");
                    let mut found = Vec::new();
                    while more {
                        if found.len() == usize::from(rows) / 16 {
                            let kind = if rows % 3 == 0 { Kind::Delete } else { Kind::Put };
                            harness.write(&key(written), kind, if kind == Kind::Put { b"beside" } else { b"" });
                        }
                        found.push((cursor.key().to_vec(), cursor.value().to_vec()));
                        more = if up { cursor.next() } else { cursor.prev() }.expect("goes on");
                    }
                    prop_assert_eq!(found, expected);
                }
                Beside::Switch => harness.switch(),
                Beside::Seal => harness.seal_all(),
                Beside::Work => while harness.tree.work_step(&harness.retention(), 0.0).expect("work") {},
            }
        }
        harness.check();
    }
}

/// Does all work whose urgency is at least `threshold`; the number of steps that met damage.
fn work_past_damage(harness: &Harness, threshold: f32) -> u32 {
    let mut failures = 0;
    loop {
        match harness.tree.work_step(&harness.retention(), threshold) {
            Ok(true) => {}
            Ok(false) => return failures,
            Err(error) => {
                assert!(error.is_unreadable(), "{error}");
                failures += 1;
                assert!(failures < 100, "the same damage is met again and again: {error}");
            }
        }
    }
}

#[test]
fn a_flush_that_fell_behind_takes_the_oldest_runs_alone() {
    let mut harness = grown(20);
    let runs = |harness: &Harness| -> Vec<Vec<u64>> {
        let slots = harness.tree.version().root.slots().to_vec();
        slots.iter().map(|slot| slot.buffer().iter().map(|run| run.meta().id.0).collect()).collect()
    };
    for round in 0..20u16 {
        (0..600).for_each(|number| harness.write(&key(number * 10), Kind::Put, &round.to_le_bytes()));
        harness.seal_all();
    }
    let before = runs(&harness);
    assert!(harness.tree.version().root.height() > 1 && before.iter().all(|slot| slot.len() >= 20));
    assert!(harness.tree.work_step(&harness.retention(), 1.0).expect("work"));
    let after = runs(&harness);
    let changed: Vec<usize> = (0..before.len()).filter(|slot| before[*slot] != after[*slot]).collect();
    assert_eq!(changed.len(), 1, "one slot, and its node did not split");
    let (before, after) = (&before[changed[0]], &after[changed[0]]);
    assert_eq!(before.len() - after.len(), 6, "twice what asks for a flush");
    assert!(before.starts_with(after), "the newest stay");
    harness.check();
    while harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    harness.check();
}

/// Makes the first block of an extent one of a version that is not known.
fn make_newer(storage: &MemoryStorage, extent: Extent) {
    let path = Path::new("db").join(crate::store::DATA_FILE);
    let file = storage.open(&path, crate::io::OpenMode::default()).expect("open");
    let mut block = vec![0; block::HEADER_BYTES];
    file.read_at(&mut block, extent.offset()).expect("read");
    let payload: [u8; 4] = block[16..20].try_into().expect("four bytes");
    block.resize(block::HEADER_BYTES + u32::from_le_bytes(payload) as usize, 0);
    file.read_at(&mut block, extent.offset()).expect("read");
    block[9] = 99;
    block::place(extent.offset(), &mut block);
    file.write_at(&block, extent.offset()).expect("write");
}

#[test]
fn a_run_that_cannot_be_read_keeps_no_other_slot_from_being_compacted() {
    let path = Path::new("db").join(crate::store::DATA_FILE);
    let flip = |storage: &MemoryStorage, extent: Extent| {
        storage.flip_bit(path.as_path(), extent.offset() + 30, 3).expect("flip");
    };
    work_beside_a_run(&flip);
    work_beside_a_run(&make_newer);
}

fn work_beside_a_run(spoil: &dyn Fn(&MemoryStorage, Extent)) {
    let mut harness = Harness::new();
    for round in 0..6u16 {
        for number in 0..600 {
            harness.write(
                &key(number),
                Kind::Put,
                format!("{round} {number} {:0100}", u32::from(number) * 7919).as_bytes(),
            );
        }
        harness.seal_all();
        while round < 3 && harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    }
    let version = harness.tree.version();
    let pending: Vec<_> = version.root.slots().iter().filter(|slot| !slot.buffer().is_empty()).cloned().collect();
    assert!(pending.len() > 1, "several slots have something to do");
    let damaged = &pending[0].buffer()[0].meta().extents[0];
    spoil(&harness.storage, *damaged);
    assert_eq!(work_past_damage(&harness, 0.01), 1, "the damaged slot is tried once");
    let version = harness.tree.version();
    let left: Vec<_> = version.root.slots().iter().filter(|slot| !slot.buffer().is_empty()).collect();
    assert_eq!(left.len(), 1, "all other slots were compacted");
    assert_eq!(harness.tree.debt().urgency, 0.0, "what cannot be done slows nobody down");
    let lower = left[0].lower().to_vec();
    let mut failures = 0;
    for round in 0..60u16 {
        for number in (0..600).filter(|number| key(*number) >= lower) {
            harness.write(&key(number), Kind::Put, format!("{round} {:0100}", number).as_bytes());
        }
        harness.seal_all();
        failures += work_past_damage(&harness, 1.0);
    }
    assert!(failures <= 1, "the damaged run is tried once more, with what lies on top: failures={failures}");
    let version = harness.tree.version();
    let damaged = &version.root.slots()[version.root.find(&lower)];
    assert!(damaged.is_damaged() && damaged.buffer().len() > 1, "what is written into it stays in its buffer");
    let runs = damaged.buffer().len();
    assert!(runs <= 16, "what is written into it becomes more and more runs, runs={runs}");
    assert!(harness.tree.debt().urgency < 1.0, "urgency={}", harness.tree.debt().urgency);
}

#[test]
fn no_node_is_read_under_the_latch() {
    type Step = fn(&BeTree, &Retention<'_>);
    let steps: [Step; 3] = [
        |tree, retention| {
            tree.work_step(retention, 0.0).expect("work");
        },
        |tree, retention| {
            let mut pass = tree.compact_pass(Vec::new(), None, u64::MAX);
            tree.compact_step(retention, &mut pass).expect("compact");
        },
        |tree, retention| {
            let mut writer = tree.graft_writer(&key(9000), None, Stamp::Settled);
            writer.add(&key(9000), b"value", false).expect("write");
            tree.graft_step(retention, &mut writer.finish().expect("write")).expect("graft");
        },
    ];
    for (number, step) in steps.into_iter().enumerate() {
        let mut harness = grown(20);
        let plan = FaultPlan::new();
        harness.reopen_on(&|storage| Arc::new(FaultStorage::new(storage, plan.clone())));
        assert!(harness.tree.version().root.height() > 1);
        plan.add(FaultRule::once(CallClass::Read, 1, Fault::Hold));
        std::thread::scope(|scope| {
            let retention = harness.retention();
            let tree = &harness.tree;
            scope.spawn(move || step(tree, &retention));
            let _held = plan.wait_held();
            assert!(harness.tree.state.try_lock().is_some(), "step {number} reads while it holds the latch");
        });
    }
}

#[test]
fn a_node_that_cannot_be_read_keeps_no_other_part_from_being_compacted() {
    let mut harness = Harness::new();
    let write = |harness: &mut Harness, round: u16| {
        for number in 0..2000 {
            harness.write(
                &key(number),
                Kind::Put,
                format!("{round} {number} {:080}", u32::from(number) * 7919).as_bytes(),
            );
        }
        harness.seal_all();
    };
    for round in 0..4 {
        write(&mut harness, round);
        while harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    }
    assert!(harness.tree.version().root.height() > 1);
    harness.reopen();
    let version = harness.tree.version();
    let child = version.root.slots().iter().find_map(|slot| match slot.target() {
        node::Target::Node(child) => Some(child.ptr()),
        node::Target::Leaf(_) => None,
    });
    let damaged = child.expect("a child node").offset + 30;
    drop(version);
    harness.storage.flip_bit(Path::new("db").join(crate::store::DATA_FILE).as_path(), damaged, 3).expect("flip");
    write(&mut harness, 9);
    assert_eq!(work_past_damage(&harness, 0.01), 1, "the damaged node is tried once");
    assert_eq!(harness.tree.debt().urgency, 0.0);
    // As on a full disk, where whatever is pending is done.
    (0..40).for_each(|number| harness.write(&key(number * 50), Kind::Put, b"pending"));
    harness.seal_all();
    while harness.tree.work_step(&harness.retention(), 0.0).expect("nobody tries it again") {}
    let version = harness.tree.version();
    let left: Vec<_> = version.root.slots().iter().filter(|slot| !slot.buffer().is_empty()).cloned().collect();
    assert_eq!(left.len(), 1, "all other slots were flushed");
    let lower = left[0].lower().to_vec();
    for round in 10..70u16 {
        if round == 40 {
            harness.delete_range(key(0), key(1000));
        }
        let upper = if round < 40 { 2000 } else { 900 };
        for number in (0..upper).step_by(if round < 40 { 1 } else { 2 }) {
            harness.write(&key(number), Kind::Put, &round.to_le_bytes());
        }
        harness.seal_all();
        while harness.tree.work_step(&harness.retention(), 1.0).expect("nothing touches the damaged node") {}
    }
    let version = harness.tree.version();
    let slot = &version.root.slots()[version.root.find(&lower)];
    assert!(slot.is_damaged());
    assert!(slot.buffer().len() <= 6, "runs={}", slot.buffer().len());
    // What was written since is all there, and nothing that was deleted comes back.
    let view = harness.view(CommitNumber::LATEST);
    for number in 0..2000 {
        let last = harness.model[&key(number)].last().expect("written").1.clone();
        match harness.tree.get(&version, &view.view(), &key(number)) {
            Ok(value) => assert_eq!(value.map(|value| value.to_vec()), last, "number={number}"),
            Err(error) => assert!(error.is_unreadable() && last.is_none(), "number={number}: {error}"),
        }
    }
}

/// The first two neighbouring leaves with runs that may be joined.
fn small_pair(env: &TreeEnv, node: &Node) -> Option<[Arc<node::Slot>; 2]> {
    let fits = |pair: &&[Arc<node::Slot>]| pair[0].may_join(&pair[1]) && !pair.iter().any(|slot| slot.is_empty());
    let here = node.slots().windows(2).find(fits).map(|pair| [pair[0].clone(), pair[1].clone()]);
    here.or_else(|| {
        node.slots().iter().find_map(|slot| match slot.target() {
            node::Target::Node(child) => small_pair(env, child.load(env).expect("load")),
            node::Target::Leaf(_) => None,
        })
    })
}

/// The leaf slot that a key belongs to.
fn leaf_slot(env: &TreeEnv, node: &Node, key: &[u8]) -> Arc<node::Slot> {
    let slot = &node.slots()[node.find(key)];
    match slot.target() {
        node::Target::Node(child) => leaf_slot(env, child.load(env).expect("load"), key),
        node::Target::Leaf(_) => slot.clone(),
    }
}

#[test]
fn of_two_leaves_that_cannot_be_joined_the_damaged_one_is_left_alone() {
    // A damaged filter makes no leaf a damaged one.
    for with_filter in [true, false] {
        one_of_two_is_left_alone(with_filter);
    }
}

fn one_of_two_is_left_alone(with_filter: bool) {
    let mut harness = grown(10);
    for number in (0..3000u16).filter(|number| number % 20 != 0) {
        harness.write(&key(number), Kind::Delete, &[]);
    }
    harness.seal_all();
    let root = |harness: &Harness| harness.tree.version().root.clone();
    let mut found = None;
    for _ in 0..1000 {
        found = small_pair(harness.tree.env(), &root(&harness));
        if found.is_some() || !harness.tree.work_step(&harness.retention(), 0.01).expect("work") {
            break;
        }
    }
    let [one, other] = found.expect("leaves become small one after the other");
    let damaged = other.runs().next().expect("a run").meta().extents[0];
    let file = Path::new("db").join(crate::store::DATA_FILE);
    harness.storage.flip_bit(&file, damaged.offset() + 30, 3).expect("flip");
    if !with_filter {
        for run in one.runs() {
            harness.storage.flip_bit(&file, run.meta().filter.offset + 30, 3).expect("flip");
        }
    }
    let mut failures = 0;
    for _ in 0..1000 {
        match harness.tree.work_step(&harness.retention(), 0.01) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                assert_eq!(error.kind(), crate::base::ErrorKind::Corruption, "{error}");
                failures += 1;
            }
        }
    }
    assert_eq!(failures, 1);
    let env = harness.tree.env();
    assert!(leaf_slot(env, &root(&harness), other.lower()).is_damaged());
    assert!(!leaf_slot(env, &root(&harness), one.lower()).is_damaged());
    assert_eq!(harness.tree.debt().urgency, 0.0);
}

/// Writes these rows of tree 2, between those of the trees 1 and 3, for a graft.
fn graft_of(harness: &mut Harness, rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Graft {
    let (lower, upper) = (crate::base::key::tree_start(TreeId(2)), crate::base::key::tree_end(TreeId(2)));
    assert!(harness.tree.is_bare(&harness.tree.version(), &lower, Some(&upper)).expect("read"));
    harness.now += 1;
    let mut writer = harness.tree.graft_writer(&lower, Some(&upper), Stamp::Settled);
    for (key, value) in rows {
        let key = crate::base::key::inner(TreeId(2), &key);
        writer.add(&key, &value, false).expect("write");
        harness.model.insert(key, vec![(harness.now, Some(value))]);
    }
    writer.finish().expect("write")
}

fn graft(harness: &mut Harness, rows: u16) -> Graft {
    let value = |row: u16| (0..60).map(|at| (row.wrapping_mul(7919) >> (at % 11)) as u8).collect();
    graft_of(harness, (0..rows).map(|row| (format!("{row:05}").into_bytes(), value(row))))
}

/// Many rows of the trees 1 and 3, all in leaves.
fn around(rows: u16) -> Harness {
    let mut harness = Harness::new();
    for row in 0..rows {
        for tree in [1, 3] {
            let key = crate::base::key::inner(TreeId(tree), format!("{row:05}").as_bytes());
            harness.write(&key, Kind::Put, &[(row.wrapping_mul(31) % 251) as u8; 50].map(|byte| byte ^ row as u8));
        }
        if row % 200 == 199 {
            harness.seal_all();
            while harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
        }
    }
    harness.seal_all();
    harness.compact(Vec::new(), None);
    harness
}

#[test]
fn a_graft_waits_for_a_seal_into_the_same_slots() {
    let mut harness = around(20);
    assert_eq!(harness.tree.version().root.height(), 1);
    let mut graft = graft(&mut harness, 500);
    let sealing = harness.tree.state.lock().reservations.begin_seal(1, Vec::new()).expect("nobody works");
    assert_eq!(harness.tree.graft_step(&harness.retention(), &mut graft).expect("graft"), GraftStep::Busy);
    harness.tree.state.lock().reservations.end(sealing);
    assert_eq!(harness.tree.graft_step(&harness.retention(), &mut graft).expect("graft"), GraftStep::Done);
    assert_eq!(
        harness.tree.graft_step(&harness.retention(), &mut graft).expect("graft"),
        GraftStep::Done,
        "it is over"
    );
    harness.check();
    harness.reopen();
    harness.check();
}

#[test]
fn what_was_dropped_above_the_leaves_is_joined_where_it_lies() {
    let mut harness = around(3000);
    let root = harness.tree.version().root.clone();
    let count = root.slots().len();
    assert!(root.height() > 1 && count > 3, "height={} slots={count}", root.height());
    harness.delete_range(root.slots()[1].lower().to_vec(), root.slots()[count - 1].lower().to_vec());
    harness.seal_all();
    for index in 1..count - 1 {
        let root = harness.tree.version().root.clone();
        let (slot, upper) = (&root.slots()[index], root.upper(index, None));
        let mut state = harness.tree.state.lock();
        let job = plan::reserve(&harness.tree.env, &mut state.reservations, root.height(), slot, upper);
        let job = job.expect("loaded").expect("nobody works");
        drop(state);
        harness.tree.do_job(&harness.retention(), &job).expect("drop");
    }
    let root = harness.tree.version().root.clone();
    assert!(root.slots()[1].may_join(&root.slots()[2]), "empty leaves beside each other");
    // A seal relies on the pivots, so nothing can be joined meanwhile.
    let sealing = harness.tree.state.lock().reservations.begin_seal(root.height(), Vec::new()).expect("nobody works");
    while harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    assert_eq!(harness.tree.version().root.slots().len(), count);
    harness.tree.state.lock().reservations.end(sealing);
    while harness.tree.work_step(&harness.retention(), 0.0).expect("work") {}
    assert!(harness.tree.version().root.slots().len() < count);
    harness.check();
    harness.reopen();
    harness.check();
}

#[test]
fn a_drop_lets_seals_in_while_it_reads() {
    for partly in [false, true] {
        let mut harness = around(3000);
        let root = harness.tree.version().root.clone();
        let (height, slot) = (root.height(), root.slots()[1].clone());
        let upper = root.upper(1, None).expect("more slots").to_vec();
        assert!(height > 1);
        let node::Target::Node(child) = slot.target() else { panic!("a node") };
        assert!(child.load(&harness.tree.env).expect("load").slots().len() <= harness.tree.env.options.fanout_max);
        let end = if partly { [&slot.lower()[..], b"0"].concat() } else { upper.clone() };
        harness.delete_range(slot.lower().to_vec(), end);
        harness.seal_all();
        let root = harness.tree.version().root.clone();
        let (slot, upper) = (&root.slots()[1], root.upper(1, None));
        let mut state = harness.tree.state.lock();
        let job = plan::reserve(&harness.tree.env, &mut state.reservations, height, slot, upper);
        let job = job.expect("loaded").expect("nobody works");
        drop(state);
        // What comes while the job works: a row above the dropped ones, and another beside.
        let inside = [&slot.lower()[..], b"new"].concat();
        harness.write(&inside, Kind::Put, b"newer than the drop");
        harness.write(&[upper.expect("bounded"), b"new"].concat(), Kind::Put, b"beside");
        harness.switch();
        let retention = harness.retention();
        assert!(harness.tree.seal_step(&retention).expect("seal").is_none(), "the pivots may change");
        assert_eq!(harness.tree.begin_alone(&retention, &job).expect("reads").is_some(), !partly);
        assert!(harness.tree.seal_step(&retention).expect("seal").is_some(), "partly={partly}");
        harness.tree.do_job(&retention, &job).expect("drop");
        harness.check_to_the_end();
    }
}

#[test]
fn a_leaf_with_a_range_delete_in_its_base_is_written_again_when_rows_come_behind_it() {
    let mut harness = Harness::new();
    let number = |at: u16| crate::base::key::inner(TreeId(1), &at.to_be_bytes());
    let value = |at: u16| crate::base::random::Random(u64::from(at)).bytes(40);
    for at in 0..100 {
        harness.write(&number(at), Kind::Put, &value(at));
    }
    harness.snapshots.push(CommitNumber(harness.now));
    harness.delete_range(number(99), number(1000));
    harness.seal_all();
    while harness.tree.work_step(&harness.retention(), 0.0).expect("work") {}
    for at in 200..220 {
        harness.write(&number(at), Kind::Put, &value(at));
    }
    harness.seal_all();
    while harness.tree.work_step(&harness.retention(), 0.0).expect("work") {}
    harness.check();
    harness.snapshots.clear();
    harness.reopen();
    harness.check();
}

/// Seven leaves of rows of one tree under two nodes, and those rows.
fn two_nodes() -> (Harness, impl Fn(u16) -> Vec<u8>) {
    let mut harness = Harness::new();
    let number = |at: u16| crate::base::key::inner(TreeId(1), &at.to_be_bytes());
    (0..700).for_each(|at| harness.write(&number(at), Kind::Put, &random_value(at, 40)));
    harness.seal_all();
    while harness.tree.work_step(&harness.retention(), 0.0).expect("work") {}
    assert_eq!(harness.tree.version().root.height(), 2);
    (harness, number)
}

fn random_value(at: u16, bytes: usize) -> Vec<u8> {
    crate::base::random::Random(u64::from(at)).bytes(bytes)
}

#[test]
fn what_a_range_delete_covers_stays_deleted_below_what_is_left_of_it() {
    let (mut harness, number) = two_nodes();
    let root = harness.tree.version().root.clone();
    let node::Target::Node(child) = root.slots()[0].target() else { panic!("a node") };
    let leaves = child.load(harness.tree.env()).expect("load").slots().to_vec();
    let (lower, upper) = (leaves[1].lower(), leaves[2].lower());
    let in_leaf: Vec<u16> =
        (0..700).filter(|at| number(*at) >= lower.to_vec() && number(*at) < upper.to_vec()).collect();
    let middle = 30;
    harness.delete_range(number(in_leaf[middle]), number(in_leaf[in_leaf.len() - 1]));
    harness.seal_all();
    for at in &in_leaf[..middle] {
        harness.write(&number(*at), Kind::Put, &random_value(*at + 1, 60));
    }
    harness.write(&number(in_leaf[middle + 2]), Kind::Put, b"again");
    harness.seal_all();
    let leaf = |harness: &Harness| {
        let root = harness.tree.version().root.clone();
        leaf_slot(harness.tree.env(), &root, &number(in_leaf[middle]))
    };
    while leaf(&harness).urgency() < 1.3 {
        assert!(harness.tree.work_piece(&harness.retention(), 1.0, Some(1)).expect("work"));
    }
    let is_above = |harness: &Harness| {
        harness.tree.version().root.slots()[0].buffer().iter().any(|run| run.meta().range_deletes > 0)
    };
    assert!(is_above(&harness));
    // The disk has space again.
    assert!(harness.tree.work_step(&harness.retention(), 1.0).expect("work"));
    assert!(is_above(&harness) && leaf(&harness).buffer().is_empty(), "the leaf was written");
    harness.check();
    while harness.tree.work_step(&harness.retention(), 0.0).expect("work") {}
    harness.reopen();
    harness.check();
}

#[test]
fn what_a_small_leaf_gets_at_once_is_due_and_only_too_much_for_a_buffer_falls_behind() {
    let mut harness = Harness::new();
    let mut seal = |rows: std::ops::Range<u16>| {
        for at in rows {
            harness.write(&crate::base::key::inner(TreeId(1), &at.to_be_bytes()), Kind::Put, &random_value(at, 100));
        }
        harness.seal_all();
        harness.tree.debt().urgency
    };
    // Ten times what asks for work in so small a leaf.
    let due = seal(0..100);
    assert!(due > 1.0 && due < 3.0, "urgency={due}");
    let behind = seal(100..300);
    assert!(behind > 3.0, "urgency={behind}");
}

#[test]
fn range_deletes_that_no_reader_tells_apart_become_one() {
    let mut harness = Harness::new();
    let number = |at: u16| crate::base::key::inner(TreeId(1), &at.to_be_bytes());
    let stages = |harness: &mut Harness| {
        for stage in 0..30 {
            (0..10).for_each(|at| harness.write(&number(100 + at), Kind::Put, &[stage; 20]));
            harness.delete_range(number(100 + u16::from(stage % 3)), number(110));
            harness.delete_range(number(100), number(110));
            harness.seal_all();
        }
    };
    harness.write(&number(100), Kind::Put, b"seen by the first snapshot");
    harness.snapshots.push(CommitNumber(harness.now));
    stages(&mut harness);
    harness.snapshots.push(CommitNumber(harness.now));
    stages(&mut harness);
    harness.check();
    while harness.tree.work_step(&harness.retention(), 0.0).expect("work") {}
    let version = harness.tree.version();
    let ranges: u64 = version.root.slots()[0].runs().map(|run| run.meta().range_deletes).sum();
    assert_eq!(ranges, 2, "one for each snapshot that does not see it");
    harness.check();
    harness.reopen();
    harness.check();
}

#[test]
fn a_check_finds_what_is_newer_than_a_range_delete_above_it() {
    let mut harness = Harness::new();
    let number = |at: u16| crate::base::key::inner(TreeId(1), &at.to_be_bytes());
    harness.delete_range(number(10), number(20));
    harness.seal_all();
    [9, 12, 20].iter().for_each(|at| harness.write(&number(*at), Kind::Put, b"newer"));
    harness.seal_all();
    let version = harness.tree.version();
    let slot = &version.root.slots()[0];
    let [newer, ranges] = slot.buffer() else { panic!("two runs") };
    let problems_with = |buffer: [&Arc<Run>; 2]| {
        let env = harness.tree.env();
        let buffer = buffer.into_iter().cloned().collect();
        let slot = node::Slot::new(&env.options, slot.lower().clone(), buffer, node::Target::Leaf(None));
        let root = Node::new(&env.budget, 1, vec![slot]);
        let (active, sealed) = (version.active.clone(), version.sealed.clone());
        harness.tree.version.store(Arc::new(Version::new(version.number, active, sealed, root, version.grafts)));
        harness.tree.verify(&mut |_| ControlFlow::Continue(())).problems
    };
    assert!(problems_with([newer, ranges]).is_empty());
    let problems = problems_with([ranges, newer]);
    let text = problems.iter().map(|problem| problem.error.to_string()).collect::<Vec<_>>();
    assert!(text.len() == 1 && text[0].contains("N5"), "{text:?}");
}

#[test]
fn a_piece_that_ends_below_what_has_gone_brings_none_of_that_back() {
    let (mut harness, number) = two_nodes();
    harness.delete_range(number(10), number(20));
    (30..200).for_each(|at| harness.write(&number(at), Kind::Put, &random_value(at, 150)));
    harness.delete_range(number(210), number(220));
    harness.seal_all();
    let clip = |harness: &Harness| {
        let root = harness.tree.version().root.clone();
        root.slots()[0].buffer().last().map(|run| run.meta().clip.clone())
    };
    assert!(harness.tree.work_piece(&harness.retention(), 1.0, Some(1 << 10)).expect("work"));
    let gone = clip(&harness);
    assert!(gone.as_deref() > Some(&number(20)[..]));
    (0..30).for_each(|at| harness.write(&number(at), Kind::Put, &random_value(at, 400)));
    harness.seal_all();
    let runs = harness.tree.version().root.slots()[0].buffer().len();
    assert!(harness.tree.work_piece(&harness.retention(), 1.0, Some(1 << 10)).expect("work"));
    assert_eq!((clip(&harness), harness.tree.version().root.slots()[0].buffer().len()), (gone, runs));
    harness.check();
}

#[test]
fn nodes_are_not_joined_below_a_range_delete() {
    let mut harness = around(3000);
    let root = harness.tree.version().root.clone();
    assert!(root.height() > 1);
    let mut env = harness.tree.env().clone();
    env.options.fanout_max = 1000;
    let neighbours = |harness: &Harness| {
        let root = harness.tree.version().root.clone();
        for slot in &root.slots()[..2] {
            let node::Target::Node(child) = slot.target() else { panic!("a node") };
            child.load(harness.tree.env()).expect("load");
        }
        super::install::join_slots(&env, &root.slots()[0], &root.slots()[1]).is_some()
    };
    assert!(neighbours(&harness));
    let lower = root.slots()[0].lower().to_vec();
    harness.delete_range(lower.clone(), [&lower[..], &[9]].concat());
    harness.seal_all();
    assert!(
        !neighbours(&harness),
        "what is older than the range-delete would be taken for as new as what is beside it"
    );
}

#[test]
fn two_leaves_that_are_being_joined_stay_in_one_node_beside_a_graft() {
    for distance in [1, 2, -2, -3] {
        let mut harness = around(3000);
        let mut graft = graft(&mut harness, 4000);
        let root = harness.tree.version().root.clone();
        assert!(root.height() > 1);
        let start = crate::base::key::tree_start(TreeId(2));
        let mut node = root.clone();
        while node.height() > 1 {
            let node::Target::Node(child) = node.slots()[node.find(&start)].target() else { panic!("a node") };
            node = child.load(&harness.tree.env).expect("load").clone();
        }
        // Two neighbours on either side of the slot that the graft goes to.
        let Some(at) = node.find(&start).checked_add_signed(distance) else { continue };
        let (Some(one), Some(next)) = (node.slots().get(at), node.slots().get(at + 1)) else { continue };
        let upper = node.slots().get(at + 2).map(|slot| slot.lower().to_vec());
        let upper = upper.unwrap_or_else(|| crate::base::key::tree_start(TreeId(4)));
        let job = plan::reserve_join(&mut harness.tree.state.lock().reservations, 1, one, next, Some(&upper));
        let job = job.expect("nobody works");
        let step = |graft: &mut Graft| harness.tree.graft_step(&harness.retention(), graft).expect("graft");
        while step(&mut graft) == GraftStep::Worked {}
        harness.tree.do_job(&harness.retention(), &job).expect("join");
        while step(&mut graft) != GraftStep::Done {}
        harness.check();
        harness.reopen();
        harness.check();
    }
}

/// A transaction that commits whenever its state has been looked at.
struct CommitsWhenLookedAt(AtomicU64);

impl Statuses for CommitsWhenLookedAt {
    fn status(&self, _txn: TxnId, _step: u32) -> Status {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => Status::Active,
            _ => Status::Committed(CommitNumber(1)),
        }
    }
}

#[test]
fn a_watching_read_misses_no_change_that_is_committed_while_it_looks() {
    let harness = Harness::new();
    let (key, txn) = (key(1), TxnId(7));
    let stamp = Stamp::Written { txn, step: 0 };
    let message = Message { key: &key, seq: 1, stamp, kind: Kind::Put, blob: false, payload: b"new" };
    harness.tree.version().active.insert(1, (txn, 0), &message, || None);
    let view =
        || OwnedView { statuses: shared(CommitsWhenLookedAt(AtomicU64::new(0))), ..harness.view(CommitNumber::LATEST) };

    let owned = view();
    let (value, undecided) =
        harness.tree.get_watching(&harness.tree.version(), &owned.view(), &key, Wanted::Whole).expect("get");
    assert_eq!((value.map(Value::into_vec), undecided), (None, Some(txn)));
    for to_first in [true, false] {
        let mut cursor = harness.tree.cursor(view(), Vec::new(), None, CursorOptions::default());
        cursor.watch_undecided();
        let found = if to_first { cursor.first() } else { cursor.last() };
        assert!(!found.expect("position"));
        assert_eq!(cursor.undecided(), Some((txn, &key[..])), "forward: {to_first}");
    }
}

/// A compaction may begin with what it was told to keep some time ago, and then meet runs with newer commits.
#[test]
fn a_compaction_keeps_what_snapshots_need_that_began_after_it_looked() {
    for held_before in [true, false] {
        let mut harness = Harness::new();
        let key = b"\0\0\0\x01k".to_vec();
        (0..20u8).for_each(|number| harness.write(&[b"\0\0\0\x01z", &[number][..]].concat(), Kind::Put, b"filler"));
        harness.write(&key, Kind::Put, b"one");
        if held_before {
            harness.snapshots.push(CommitNumber(harness.now));
        }
        harness.seal_all();
        let earlier = harness.retention();
        harness.write(b"\0\0\0\x01a", Kind::Put, b"x");
        if !held_before {
            harness.snapshots.push(CommitNumber(harness.now));
        }
        harness.write(&key, Kind::Put, b"two");
        harness.snapshots.push(CommitNumber(harness.now));
        harness.write(&key, Kind::Put, b"three");
        // Another thread seals meanwhile, and knows of all of them.
        harness.seal_all();
        while harness.tree.work_step(&earlier, 0.0).expect("work") {}
        harness.check();
    }
}

/// One byte, and another far behind it.
#[test]
fn a_small_update_of_a_long_value_stays_small() {
    for codec in [Codec::default(), Codec::None] {
        let mut harness = Harness::new();
        harness.tree.env().codecs.set(TreeId(1), Some(codec));
        let far = 100 << 20;
        let program =
            Program { ops: vec![Op::IfNull { value: vec![1] }, Op::SetBytes { offset: far, bytes: vec![7] }] };
        let mut payload = Vec::new();
        program.encode(&mut payload);
        harness.write(b"\0\0\0\x01k", Kind::Update, &payload);
        harness.seal_all();
        let before = harness.budget.used_total();
        while harness.tree.work_step(&harness.retention(), 0.0).expect("work") {}
        let view = harness.view(CommitNumber::LATEST);
        let value = harness.tree.get(&harness.tree.version(), &view.view(), b"\0\0\0\x01k").expect("get");
        assert_eq!(value.map(|value| value.len()), Some(far as usize + 1));
        let grown = harness.budget.used_total().saturating_sub(before);
        assert!(grown < 1 << 20, "codec={codec:?} grown={grown}");
    }
}
