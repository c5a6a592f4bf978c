//! Slots whose work finds no space give way to others.

use super::*;
use crate::tree::plan::{self, Job};

/// The next job, begun and ended without effect, which lacks space or not.
fn next(harness: &Harness, lacks_space: bool) -> Option<plan::SlotName> {
    let env = harness.tree.env();
    let picked = harness.tree.planned(&mut |state, root| plan::pick(env, &mut state.reservations, root, 0.0, None));
    let job: Job = picked.expect("plan")?;
    let mut state = harness.tree.state.lock();
    state.reservations.end_job(&job);
    state.reservations.note_space(lacks_space.then(|| job.name.clone()));
    Some(job.name)
}

#[test]
fn a_slot_that_finds_no_space_gives_way_until_one_finds_some_or_none_is_left() {
    let mut harness = Harness::new();
    for number in 0..6000 {
        harness.write(&key(number), Kind::Put, format!("value {number:08}").as_bytes());
    }
    harness.seal_all();
    harness.compact(Vec::new(), None);
    for number in (0..6000).step_by(7) {
        harness.write(&key(number), Kind::Put, b"anew");
    }
    harness.seal_all();
    for _ in 0..2 {
        let first = next(&harness, true).expect("there is work");
        assert_eq!(next(&harness, true).as_ref(), Some(&first), "in a smaller piece");
        let mut seen = vec![first.clone()];
        loop {
            harness.tree.pass_over_lacking();
            let Some(name) = next(&harness, true) else { break };
            assert!(!seen.contains(&name), "{name:?} has given way");
            seen.push(name);
        }
        assert!(seen.len() > 1, "others had their turn: {seen:?}");
        // All have: from the beginning.
        assert_eq!(next(&harness, true).as_ref(), Some(&first));
        harness.tree.pass_over_lacking();
        assert_ne!(next(&harness, false).as_ref(), Some(&first));
        assert_eq!(next(&harness, false), Some(first), "there is space again");
    }
    harness.check_to_the_end();
}
