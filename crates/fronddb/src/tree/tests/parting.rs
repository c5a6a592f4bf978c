//! Flushes that part a node of the root, and seals beside them.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::tree::node::{Slot, Target};
use crate::tree::plan::Job;

/// A key of the tree's upper half.
fn upper_key(number: u32) -> Vec<u8> {
    crate::base::key::inner(TreeId(3), format!("9{:07}", number.wrapping_mul(2_654_435_761) % 10_000_000).as_bytes())
}

/// A tree whose root has a slot that asks for a flush into a child with too many slots, and where that slot begins.
fn with_wide_child() -> (Harness, Arc<[u8]>) {
    let mut harness = around(3000);
    for round in 0..100 {
        for number in 0..150 {
            harness.write(&upper_key(150 * round + number), Kind::Put, &random_value(number as u16, 60));
        }
        harness.seal_all();
        let root = harness.tree.version().root.clone();
        let is_wide = |slot: &&Arc<node::Slot>| {
            let node::Target::Node(child) = slot.target() else { return false };
            let child = child.load(harness.tree.env()).expect("load");
            slot.urgency() >= 1.0 && split::is_too_wide(&harness.tree.env.options, child)
        };
        if let Some(slot) = root.slots().iter().find(is_wide) {
            return (harness, slot.lower().clone());
        }
        // What is below the root asks first, so the buffer above fills while leaves become more.
        while harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    }
    panic!("a child of the root has too many slots at some time");
}

fn reserve(harness: &Harness, lower: &[u8]) -> Option<Job> {
    let root = harness.tree.version().root.clone();
    let index = root.find(lower);
    let (slot, upper) = (&root.slots()[index], root.upper(index, None));
    let mut state = harness.tree.state.lock();
    plan::reserve(&harness.tree.env, &mut state.reservations, root.height(), slot, upper).expect("loaded")
}

fn child(harness: &Harness, lower: &[u8]) -> Arc<Node> {
    let root = harness.tree.version().root.clone();
    let node::Target::Node(child) = root.slots()[root.find(lower)].target() else { panic!("a node") };
    child.loaded().expect("loaded").clone()
}

/// Rows in all parts of what the slot leads to, and elsewhere.
fn write_everywhere(harness: &mut Harness, lower: &[u8], round: u8) {
    for slot in child(harness, lower).slots() {
        harness.write(&[slot.lower(), &b"beside"[..]].concat(), Kind::Put, &[round; 30]);
    }
    (0..200).for_each(|number| harness.write(&key(number * 3), Kind::Put, &[round]));
}

/// How many runs wait above each part of the job's child, which is to be parted at the pivots; none where it is not.
fn waiting(harness: &Harness, job: &Job, pivots: &[Arc<[u8]>]) -> Option<Vec<usize>> {
    let root = harness.tree.version().root.clone();
    let name = |lower: &Arc<[u8]>| plan::SlotName { height: job.name.height, lower: lower.clone() };
    let lowers = std::iter::once(&job.name.lower).chain(pivots);
    lowers.map(|lower| plan::slot_at(&root, &name(lower)).map(|(slot, _)| slot.buffer().len())).collect()
}

#[test]
fn seals_go_on_while_a_flush_parts_a_node() {
    let (mut harness, lower) = with_wide_child();
    let pivots = split::pivots(&harness.tree.env.options, &child(&harness, &lower));
    let job = reserve(&harness, &lower).expect("nobody works");
    for round in 0..2 {
        write_everywhere(&mut harness, &lower, round);
        harness.switch();
        assert!(harness.tree.seal_step(&harness.retention()).expect("seal").is_some(), "nothing keeps writers waiting");
        harness.check();
    }
    harness.tree.do_job(&harness.retention(), &job).expect("flush");
    assert_eq!(waiting(&harness, &job, &pivots), Some(vec![2; 1 + pivots.len()]), "what came meanwhile");
    harness.check_to_the_end();
}

/// Calls back when it is asked for the first time, as the merge rules do in the midst of a seal.
struct Asked<'a>(AtomicBool, &'a (dyn Fn() + Send + Sync));

impl Statuses for Asked<'_> {
    fn status(&self, txn: TxnId, step: u32) -> Status {
        if !self.0.swap(true, Ordering::Relaxed) {
            (self.1)();
        }
        AllCommitted.status(txn, step)
    }
}

#[test]
fn a_node_is_parted_while_a_seal_writes() {
    for has_begun_before in [false, true] {
        let (mut harness, lower) = with_wide_child();
        let pivots = split::pivots(&harness.tree.env.options, &child(&harness, &lower));
        write_everywhere(&mut harness, &lower, 0);
        harness.now += 1;
        let (key, stamp) = (upper_key(7), Stamp::Written { txn: TxnId(harness.now), step: 0 });
        let message = Message { key: &key, seq: harness.now, stamp, kind: Kind::Put, blob: false, payload: b"asks" };
        harness.tree.version().active.insert(harness.now, (TxnId(harness.now), 0), &message, || None);
        harness.model.entry(key.clone()).or_default().push((harness.now, Some(b"asks".to_vec())));
        let before = has_begun_before.then(|| reserve(&harness, &lower).expect("nobody works"));
        harness.switch();
        let part = || {
            let later = if before.is_none() { reserve(&harness, &lower) } else { None };
            let job = before.as_ref().or(later.as_ref()).expect("the seal knows the pivots");
            harness.tree.do_job(&harness.retention(), job).expect("flush");
            assert_eq!(waiting(&harness, job, &pivots), Some(vec![0; 1 + pivots.len()]), "nothing of the seal yet");
        };
        let asked = Asked(AtomicBool::new(false), &part);
        let retention = Retention { snapshots: vec![CommitNumber(harness.now)], statuses: &asked };
        assert!(harness.tree.seal_step(&retention).expect("seal").is_some());
        assert!(asked.0.load(Ordering::Relaxed), "the node was parted in the midst");
        harness.check_to_the_end();
    }
}

#[test]
fn a_node_is_not_parted_below_a_range_delete_that_may_lie_on_both_sides() {
    let (mut harness, lower) = with_wide_child();
    let pivots = split::pivots(&harness.tree.env.options, &child(&harness, &lower));
    let job = reserve(&harness, &lower).expect("nobody works");
    harness.delete_range(lower.to_vec(), vec![0xff; 8]);
    harness.switch();
    assert!(harness.tree.seal_step(&harness.retention()).expect("seal").is_some());
    harness.tree.do_job(&harness.retention(), &job).expect("flush");
    assert_eq!(waiting(&harness, &job, &pivots), None);
    harness.check_to_the_end();
}

#[test]
fn a_seal_does_not_cut_where_a_node_will_be_parted_into_many() {
    let (harness, _) = with_wide_child();
    let (env, root) = (&harness.tree.env, harness.tree.version().root.clone());
    let cuts_at = |slots: usize| {
        let leaf = |number| {
            let lower = upper_key(number);
            Slot::new(&env.options, lower.into(), Vec::new(), Target::Leaf(None))
        };
        let mut leaves: Vec<_> = (0..slots as u32).map(leaf).collect();
        leaves.sort_by(|a, b| a.lower().cmp(b.lower()));
        let child = Node::new(&env.budget, root.height() - 1, leaves);
        let asking = root.slots().iter().max_by(|a, b| a.urgency().total_cmp(&b.urgency())).expect("slots");
        let slot = Slot::new(&env.options, Arc::from([].as_slice()), asking.buffer().to_vec(), Target::node(child));
        let root = Node::new(&env.budget, root.height(), vec![slot]);
        split::seal_cuts(&env.options, &plan::Reservations::default(), &root).len()
    };
    let fanout = env.options.fanout_max;
    assert_eq!((cuts_at(fanout), cuts_at(fanout + 1), cuts_at(2 * fanout + 1)), (0, 1, 2));
    assert_eq!(cuts_at(20 * fanout), 0, "so many runs would be more than one flush takes");
}
