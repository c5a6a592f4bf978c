//! Versions of the tree: readers go on with the one they began with while memtables are sealed, runs move down and
//! publications let space be used again. And dead ranges, which scans leave while others write.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use shuttle::thread;

use super::{below, explore};
use crate::base::compress::Codec;
use crate::base::key::inner;
use crate::base::memory::MemoryBudget;
use crate::base::sync::{Mutex, RwLock};
use crate::base::{CommitNumber, Lsn, TreeId, TxnId};
use crate::cache::Cache;
use crate::format::{Kind, Message, Retention, Stamp, Statuses, SuperblockBody, Uncommitted};
use crate::io::{MemoryStorage, Storage};
use crate::memtable::{ChunkPool, Memtable};
use crate::run::CodecTable;
use crate::store::{Store, StoreOptions};
use crate::tree::cursor::{CursorOptions, OwnedView};
use crate::tree::dead::{DeadRanges, Way};
use crate::tree::tests::{AllCommitted, NoHolders, shared};
use crate::tree::{BeTree, PublishInput, TreeEnv, TreeTuning, Version};

/// Rows that every reader must find.
const ROWS: u32 = 12;

fn key(number: u32) -> Vec<u8> {
    inner(TreeId(1), &number.to_be_bytes())
}

/// An empty tree of transactions with these states.
pub(super) fn tree_of(budget: &MemoryBudget, statuses: Arc<dyn Statuses>) -> Arc<BeTree> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    storage.create_dir_all(Path::new("db")).expect("folder");
    let options = StoreOptions { direct: false, reserve_bytes: 0, ..StoreOptions::default() };
    let store = Store::create(&storage, Path::new("db"), &options, [7; 16], SuperblockBody::default());
    let env = TreeEnv {
        store: store.expect("create"),
        cache: Arc::new(Cache::new(budget.clone())),
        budget: budget.clone(),
        statuses,
        run_counters: Arc::default(),
        holders: Arc::new(NoHolders),
        options: TreeTuning { leaf_runs: 1, leaf_bytes_max: 1 << 10, ..TreeTuning::tiny() },
        codecs: CodecTable::new(Codec::None),
        run_ids: Arc::new(AtomicU64::new(1)),
    };
    let active = Arc::new(Memtable::new(1, &ChunkPool::new(budget)));
    Arc::new(BeTree::open(env, None, Vec::new(), active).expect("open"))
}

/// A tree, and what the database around it does: the gate, and the sequence of writes.
struct World {
    tree: Arc<BeTree>,
    budget: MemoryBudget,
    gate: RwLock<()>,
    next: Mutex<u64>,
}

impl World {
    fn new() -> World {
        let budget = MemoryBudget::new(4 << 20);
        let tree = tree_of(&budget, Arc::new(AllCommitted));
        World { tree, budget, gate: RwLock::new(()), next: Mutex::new(1) }
    }

    fn put(&self, number: u32) {
        let _gate = self.gate.read();
        let mut next = self.next.lock();
        *next += 1;
        let (seq, key) = (*next, key(number));
        let payload = [number as u8; 40];
        let message =
            Message { key: &key, seq, stamp: Stamp::Settled, kind: Kind::Put, blob: false, payload: &payload };
        self.tree.version().active.insert(seq, (TxnId(seq), 0), &message, || None);
        self.tree.dead_ranges().on_write(|tell| tell(&key));
    }

    fn retention(&self) -> Retention<'static> {
        Retention { snapshots: vec![CommitNumber(*self.next.lock())], statuses: &AllCommitted }
    }

    fn switch(&self) {
        let _gate = self.gate.write();
        let id = *self.next.lock();
        self.tree.switch_active(Arc::new(Memtable::new(id, &ChunkPool::new(&self.budget))));
    }

    fn seal(&self) {
        self.switch();
        self.tree.seal_step(&self.retention()).expect("seal");
    }

    fn work(&self) {
        self.tree.work_step(&self.retention(), 1.0).expect("work");
    }

    fn publish(&self) {
        let input = |_: &Version| PublishInput {
            status_image: vec![1, 2, 3],
            log_start: Lsn(0),
            log_end: Lsn(0),
            next_txn: TxnId(1),
            next_commit: CommitNumber(1),
            extra: Vec::new(),
        };
        self.tree.publish(input, || Ok(())).expect("publish");
    }

    fn view(&self) -> OwnedView {
        OwnedView {
            snapshot: CommitNumber::LATEST,
            own: None,
            uncommitted: Uncommitted::Hidden,
            statuses: shared(AllCommitted),
        }
    }

    /// Every row is found, by key and by scan, with its value.
    fn read(&self) {
        let view = self.view();
        let number = below(ROWS as usize) as u32;
        let version = self.tree.version();
        let value = self.tree.get(&version, &view.view(), &key(number)).expect("get");
        assert_eq!(value.as_deref(), Some(&[number as u8; 40][..]), "row {number}");
        let mut cursor = self.tree.cursor(view, Vec::new(), None, CursorOptions::default());
        let mut found = 0;
        let mut more = cursor.first().expect("first");
        while more {
            assert_eq!((cursor.key(), cursor.value()), (key(found).as_slice(), &[found as u8; 40][..]));
            found += 1;
            more = cursor.next().expect("next");
        }
        assert_eq!(found, ROWS);
    }
}

fn history() {
    let world = Arc::new(World::new());
    for number in 0..ROWS {
        world.put(number);
        if number % 5 == 4 {
            world.seal();
        }
    }
    world.publish();
    let run = |act: fn(&World)| {
        let world = world.clone();
        thread::spawn(move || act(&world))
    };
    let threads = [
        run(|world| (0..2).for_each(|_| world.read())),
        run(|world| {
            for _ in 0..2 {
                world.put(below(ROWS as usize) as u32);
                world.seal();
                world.publish();
            }
        }),
        run(|world| {
            for _ in 0..2 {
                world.work();
                world.publish();
            }
        }),
    ];
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    while !world.tree.version().sealed.is_empty() {
        world.tree.seal_step(&world.retention()).expect("seal");
    }
    world.read();
    let report = world.tree.verify(&mut |_| ControlFlow::Continue(()));
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn readers_find_every_row_while_runs_move_and_their_space_is_used_again() {
    explore(5, history);
}

#[test]
fn a_write_beside_a_scan_is_seen_by_it_or_cuts_what_it_leaves() {
    explore(1, || {
        scan_beside_write(Way::Up);
    });
    explore(1, || {
        scan_beside_write(Way::Down);
    });
}

fn scan_beside_write(way: Way) {
    let dead = Arc::new(DeadRanges::default());
    let memtable = Arc::new(Memtable::new(1, &ChunkPool::new(&MemoryBudget::new(1 << 20))));
    let (other, written) = (dead.clone(), memtable.clone());
    let writer = thread::spawn(move || {
        let key = key(5);
        let message = Message { key: &key, seq: 1, stamp: Stamp::Settled, kind: Kind::Put, blob: false, payload: b"" };
        written.insert(1, (TxnId(1), 0), &message, || None);
        other.on_write(|tell| tell(&key));
    });
    // Scans of another tree come and go, and what they leave.
    let another = dead.clone();
    let elsewhere = thread::spawn(move || {
        let tree = TreeId(2);
        let watch = another.watch(Way::Up, &inner(tree, b"a"), Some(&inner(tree, b"z"))).expect("few scans");
        another.end_watch(watch, Some((&inner(tree, b"a\0"), CommitNumber(1))));
        another.on_write(|tell| tell(&inner(tree, b"a")));
    });
    let (from, bound) = match way {
        Way::Up => (key(0), key(9)),
        Way::Down => (key(9), key(0)),
    };
    let watch = dead.watch(way, &from, Some(&bound)).expect("few scans");
    let mut cursor = memtable.cursor();
    let end = match way {
        Way::Up => {
            cursor.seek(&key(0));
            if cursor.valid() { cursor.key().to_vec() } else { key(9) }
        }
        Way::Down => {
            cursor.seek_before(&key(9));
            if cursor.valid() { [cursor.key(), &[0]].concat() } else { key(0) }
        }
    };
    dead.end_watch(watch, Some((&end, CommitNumber(1))));
    writer.join().expect("no panic");
    elsewhere.join().expect("no panic");
    assert_eq!(dead.around(&key(5), CommitNumber(9)), None, "the marker covers a row");
    assert!(dead.around(&key(if way == Way::Up { 4 } else { 6 }), CommitNumber(9)).is_some());
}
