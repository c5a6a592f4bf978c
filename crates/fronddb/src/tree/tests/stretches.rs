//! Rows that a cursor goes through without looking at anything else.

use super::*;
use crate::tree::source::MOVES;

fn number(at: u32) -> Vec<u8> {
    crate::base::key::inner(TreeId(1), &at.to_be_bytes())
}

/// The rows in `[from, to)`, and how often sources were moved for them.
fn read(harness: &Harness, from: u32, to: u32) -> (Vec<Vec<u8>>, u64) {
    let before = MOVES.get();
    let view = harness.view(CommitNumber::LATEST);
    let mut cursor = harness.tree.cursor(view, number(from), Some(number(to)), CursorOptions::default());
    let mut keys = Vec::new();
    let mut more = cursor.first().expect("first");
    while more {
        keys.push(cursor.key().to_vec());
        more = cursor.next().expect("next");
    }
    assert!(!cursor.valid());
    (keys, MOVES.get() - before)
}

#[test]
fn a_range_within_a_block_moves_each_source_once_and_others_only_interrupt_it() {
    let tuning = TreeTuning { block_bytes: 16 << 10, leaf_bytes_max: 1 << 20, ..TreeTuning::tiny() };
    let mut harness = Harness::with(tuning);
    (0..100).for_each(|at| harness.write(&number(2 * at), Kind::Put, b"row"));
    harness.seal_all();
    harness.compact(Vec::new(), None);
    let (keys, idle) = read(&harness, 201, 300);
    assert!(keys.is_empty(), "behind the last row");
    let evens = |range: std::ops::Range<u32>| range.map(|at| number(2 * at)).collect::<Vec<_>>();
    // What is not cached is gone to twice.
    read(&harness, 0, 200);
    let (keys, one) = read(&harness, 20, 22);
    assert_eq!(keys, evens(10..11));
    let (keys, ten) = read(&harness, 20, 40);
    assert_eq!(keys, evens(10..20));
    assert_eq!((one, ten), (idle + 1, idle + 1), "one seek in the run, whatever the range has");
    // Rows of another source, which the range begins with, has in the middle, and ends with.
    [19, 41, 59, 61].iter().for_each(|at| harness.write(&number(*at), Kind::Put, b"new"));
    let mut expected = [vec![number(19)], evens(10..31), vec![number(41), number(59)]].concat();
    expected.sort();
    let (keys, moves) = read(&harness, 19, 61);
    assert_eq!(keys, expected);
    assert!(moves < 20, "moves={moves}");
    harness.write(&number(50), Kind::Delete, &[]);
    expected.retain(|key| *key != number(50));
    assert_eq!(read(&harness, 19, 61).0, expected);
    harness.check_to_the_end();
}
