//! Rows of many versions.

use super::*;
use crate::tree::source::MOVES;

const VERSIONS: u64 = 3_000;

/// How often `step` moves a source.
fn moves(step: impl FnOnce()) -> u64 {
    let before = MOVES.get();
    step();
    MOVES.get() - before
}

/// Three rows beside each other, the one in the middle of many versions of all kinds, with snapshots among them.
fn hot_row() -> Harness {
    let mut harness = Harness::new();
    let mut append = Vec::new();
    Program { ops: vec![Op::Append { bytes: b"+".to_vec() }] }.encode(&mut append);
    [3, 6, 9].iter().for_each(|number| harness.write(&key(*number), Kind::Put, b"row"));
    for version in 0..VERSIONS {
        match version % 40 {
            0..10 => harness.write(&key(6), Kind::Put, &version.to_be_bytes()),
            10 => harness.write(&key(6), Kind::Delete, &[]),
            11..15 => harness.write(&key(6), Kind::InsertIfAbsent, &version.to_be_bytes()),
            _ => harness.write(&key(6), Kind::Update, &append),
        }
        if version % 247 == 0 {
            harness.snapshots.push(CommitNumber(harness.now));
        }
    }
    harness
}

#[test]
fn a_row_of_many_versions_is_read_both_ways_as_it_was_at_any_time() {
    let mut harness = hot_row();
    harness.check();
    // Half of them in a run.
    harness.seal_all();
    for version in 0..VERSIONS {
        harness.write(&key(6), Kind::Put, &version.to_le_bytes());
    }
    harness.check();
    harness.check_to_the_end();
}

#[test]
fn a_scan_passes_a_row_of_many_versions_without_going_through_them() {
    let mut harness = hot_row();
    harness.write(&key(6), Kind::Put, b"newest");
    let mut cursor =
        harness.tree.cursor(harness.view(CommitNumber::LATEST), Vec::new(), None, CursorOptions::default());
    let forward = moves(|| {
        assert!(cursor.first().expect("first"));
        while cursor.next().expect("next") {}
    });
    let backward = moves(|| {
        assert!(cursor.last().expect("last"));
        while cursor.prev().expect("prev") {}
    });
    assert!(forward < 40 && backward < 60, "forward={forward} backward={backward}");
}
