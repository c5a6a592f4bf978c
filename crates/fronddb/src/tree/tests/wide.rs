//! Grafts of more leaves than a node may have, beside what keeps nodes from being parted.

use super::*;

/// Slots of the largest node.
fn widest(env: &TreeEnv, node: &Arc<Node>) -> usize {
    let below = node.slots().iter().map(|slot| match slot.target() {
        node::Target::Node(child) => widest(env, child.load(env).expect("load")),
        node::Target::Leaf(_) => 0,
    });
    below.max().unwrap_or_default().max(node.slots().len())
}

fn step(harness: &Harness, graft: &mut Graft) -> GraftStep {
    let stepped = harness.tree.graft_step(&harness.retention(), graft).expect("graft");
    let slots = widest(harness.tree.env(), &harness.tree.version().root);
    assert!(slots <= graft::slots_full(&harness.tree.env.options) + 10, "G4: slots={slots}");
    harness.verify();
    stepped
}

/// Rows of tree 2 that no codec makes shorter, for a graft.
fn graft(harness: &mut Harness, rows: u16) -> Graft {
    graft_of(harness, (0..rows).map(|row| (row.to_be_bytes().to_vec(), random_value(row, 600))))
}

/// One message on either side of the graft, in one run.
fn write_beside(harness: &mut Harness, round: u8) {
    for tree in [1, 3] {
        harness.write(&crate::base::key::inner(TreeId(tree), b"beside"), Kind::Put, &[round]);
    }
    harness.seal_all();
}

#[test]
fn a_graft_below_messages_that_wait_goes_in_by_parts_and_makes_no_huge_node() {
    let mut harness = around(1500);
    assert!(harness.tree.version().root.height() > 1);
    let mut rows = graft(&mut harness, 1000);
    let mut steps = Vec::new();
    for round in 0..100 {
        // What others write goes on coming.
        write_beside(&mut harness, round);
        steps.push(step(&harness, &mut rows));
        if steps.last() == Some(&GraftStep::Done) {
            break;
        }
        assert_eq!(steps.last(), Some(&GraftStep::Worked), "nobody else works");
    }
    assert_eq!(steps.last(), Some(&GraftStep::Done), "it does not wait for the others to stop");
    assert!(steps.len() > 4, "{}", steps.len());
    harness.check_to_the_end();
}

#[test]
fn a_graft_that_nothing_waits_above_goes_in_at_once() {
    let mut harness = around(1500);
    let mut rows = graft(&mut harness, 1000);
    assert_eq!(step(&harness, &mut rows), GraftStep::Done);
    let fanout = harness.tree.env.options.fanout_max;
    assert!(widest(harness.tree.env(), &harness.tree.version().root) <= fanout);
    harness.check_to_the_end();
}

#[test]
fn a_graft_into_the_root_stops_before_that_is_too_large_while_another_leaf_is_compacted() {
    let mut harness = Harness::new();
    for row in 0..10 {
        for tree in [1, 3] {
            let key = crate::base::key::inner(TreeId(tree), &[row as u8]);
            harness.write(&key, Kind::Put, &random_value(10 * tree as u16 + row, 700));
        }
    }
    harness.seal_all();
    harness.compact(Vec::new(), None);
    let root = harness.tree.version().root.clone();
    let at = root.find(&crate::base::key::tree_start(TreeId(2)));
    assert!(root.height() == 1 && root.slots().len() > 1, "{:?}", harness.tree.shape());
    let other = if at > 0 { 0 } else { root.slots().len() - 1 };
    let upper = root.upper(other, None);
    let job = plan::reserve_leaves(&mut harness.tree.state.lock().reservations, 1, &root.slots()[other], None, upper);
    let job = job.expect("nobody works");
    let mut rows = graft(&mut harness, 1000);
    assert_eq!(step(&harness, &mut rows), GraftStep::Worked);
    assert_eq!(step(&harness, &mut rows), GraftStep::Busy);
    harness.tree.state.lock().reservations.end_job(&job);
    assert_eq!(step(&harness, &mut rows), GraftStep::Done);
    harness.check_to_the_end();
}

#[test]
fn a_graft_of_which_a_part_is_in_the_tree_gives_the_space_of_the_rest_back() {
    let mut harness = around(1500);
    write_beside(&mut harness, 0);
    // What is taken, and neither the tree's nor kept for a full disk.
    let others = |harness: &Harness| {
        (0..3).for_each(|_| harness.publish());
        while harness.tree.release_some() {}
        let report = harness.tree.verify(&mut |_| ControlFlow::Continue(()));
        let statistics = harness.tree.env.store.statistics();
        statistics.used_bytes - statistics.reserve_bytes - report.bytes
    };
    let before = others(&harness);
    let (lower, upper) = (crate::base::key::tree_start(TreeId(2)), crate::base::key::tree_end(TreeId(2)));
    let mut writer = harness.tree.graft_writer(&lower, Some(&upper), Stamp::Settled);
    for row in 0..200u16 {
        // Rows that fill a leaf each, and a value kept apart of each.
        let key = |part: &[u8]| crate::base::key::inner(TreeId(2), &[&row.to_be_bytes(), part].concat());
        let long = random_value(row, 5 << 10);
        writer.add(&key(b"apart"), &long, true).expect("write");
        writer.add(&key(b"row"), &long, false).expect("write");
    }
    let mut rows = writer.finish().expect("write");
    assert_eq!(step(&harness, &mut rows), GraftStep::Worked);
    drop(rows);
    let after = others(&harness);
    assert!(after < before + (128 << 10), "before={before} after={after}");
    harness.verify();
}
