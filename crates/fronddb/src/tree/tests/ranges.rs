//! Scans between many range-deletes.

use super::*;
use crate::format::message::LOOKS;
use crate::tree::source::MOVES;

/// How many range-deletes are looked at by `step`, and what it returns.
fn looks<T>(step: impl FnOnce() -> T) -> (u64, T) {
    let before = LOOKS.get();
    let result = step();
    (LOOKS.get() - before, result)
}

/// Rows of a whole scan, this way and back.
fn scan(harness: &Harness, snapshot: CommitNumber) -> (usize, usize) {
    let mut cursor = harness.tree.cursor(harness.view(snapshot), Vec::new(), None, CursorOptions::default());
    let (mut forward, mut backward) = (0, 0);
    let mut more = cursor.first().expect("first");
    while more {
        forward += 1;
        more = cursor.next().expect("next");
    }
    more = cursor.last().expect("last");
    while more {
        backward += 1;
        more = cursor.prev().expect("prev");
    }
    (forward, backward)
}

#[test]
fn scans_between_many_range_deletes_look_at_few_of_them() {
    const ROWS: u32 = 4_000;
    let number = |at: u32| crate::base::key::inner(TreeId(1), &at.to_be_bytes());
    let mut harness = Harness::new();
    (0..ROWS).for_each(|at| harness.write(&number(at), Kind::Put, b"row"));
    harness.seal_all();
    let before = CommitNumber(harness.now);
    // As one would remove entities one by one; each range has lost its rows and one row beside it has not.
    (0..ROWS / 2).step_by(8).for_each(|at| harness.delete_range(number(at), number(at + 3)));
    let between = CommitNumber(harness.now);
    (ROWS / 2..ROWS).step_by(8).for_each(|at| harness.delete_range(number(at), number(at + 3)));
    for at in (0..ROWS).step_by(400) {
        harness.write(&number(at + 1), Kind::Put, b"again");
    }
    let left = harness.expected(CommitNumber::LATEST).len();
    assert_eq!(left, ROWS as usize * 5 / 8 + 10);
    let (looked, rows) = looks(|| scan(&harness, CommitNumber::LATEST));
    assert_eq!(rows, (left, left));
    assert!(looked < 40 * u64::from(ROWS), "looked={looked}");
    let (looked, rows) = looks(|| scan(&harness, before));
    assert_eq!(rows, (ROWS as usize, ROWS as usize));
    assert!(looked < u64::from(ROWS), "who sees none of them looks once at each: looked={looked}");
    // Who sees half of them shares the lists with the others.
    let (looked, rows) = looks(|| scan(&harness, between));
    assert_eq!(rows, (ROWS as usize * 13 / 16, ROWS as usize * 13 / 16));
    assert!(looked < 40 * u64::from(ROWS), "looked={looked}");
    harness.check();
    // The same with the range-deletes in a run.
    harness.seal_all();
    let (looked, rows) = looks(|| scan(&harness, CommitNumber::LATEST));
    assert_eq!(rows, (left, left));
    assert!(looked < 40 * u64::from(ROWS), "looked={looked}");
    harness.check_to_the_end();
}

#[test]
fn a_scan_jumps_over_what_a_range_delete_has_emptied_in_a_sealed_memtable() {
    let number = |at: u32| crate::base::key::inner(TreeId(1), &at.to_be_bytes());
    let mut harness = Harness::new();
    (0..2_000).for_each(|at| harness.write(&number(at), Kind::Put, b"row"));
    harness.switch();
    harness.delete_range(number(1), number(1_999));
    harness.write(&number(1_000), Kind::Put, b"again");
    let before = MOVES.get();
    assert_eq!(scan(&harness, CommitNumber::LATEST), (3, 3));
    let moves = MOVES.get() - before;
    assert!(moves < 40, "moves={moves}");
    harness.check_to_the_end();
}

/// Asks for every key by itself, and compares.
fn get_all(harness: &Harness, snapshot: CommitNumber) -> usize {
    let expected: std::collections::BTreeMap<_, _> = harness.expected(snapshot).into_iter().collect();
    let (version, view) = (harness.tree.version(), harness.view(snapshot));
    for key in harness.model.keys() {
        let found = harness.tree.get(&version, &view.view(), key).expect("get");
        assert_eq!(found.map(Value::into_vec).as_ref(), expected.get(key), "{key:?} at {snapshot}");
    }
    harness.model.len()
}

#[test]
fn range_deletes_that_cover_each_other_cost_a_read_little() {
    const TIMES: u32 = 1_000;
    const ROWS: u32 = 400;
    let number = |at: u32| crate::base::key::inner(TreeId(1), &at.to_be_bytes());
    type Bounds = fn(u32) -> (u32, u32);
    let ways: [(&str, Bounds); 4] = [
        ("the same again and again", |_| (0, ROWS)),
        ("from one start, the newer the wider", |at| (0, 1 + at * (ROWS - 1) / TIMES)),
        ("inside each other", |at| (at * 190 / TIMES, ROWS - at * 190 / TIMES)),
        ("around each other", |at| (190 - at * 190 / TIMES, 210 + at * 190 / TIMES)),
    ];
    for (name, bounds) in ways {
        let mut harness = Harness::new();
        (0..ROWS).for_each(|at| harness.write(&number(at), Kind::Put, b"old"));
        harness.seal_all();
        (0..ROWS).for_each(|at| harness.write(&number(at), Kind::Put, b"row"));
        let before = CommitNumber(harness.now);
        for at in 0..TIMES {
            if at == TIMES / 2 {
                harness.snapshots.extend([before, CommitNumber(harness.now)]);
            }
            let (start, end) = bounds(at);
            harness.write(&number(start + at % (end - start)), Kind::Put, b"staged");
            harness.delete_range(number(start), number(end));
        }
        (0..ROWS).step_by(3).for_each(|at| harness.write(&number(at), Kind::Put, b"new"));
        harness.check();
        let snapshots: Vec<_> = [before, CommitNumber::LATEST].into_iter().chain(harness.snapshots.clone()).collect();
        for snapshot in snapshots {
            let (looked, _) = looks(|| scan(&harness, snapshot));
            assert!(looked < 100 * u64::from(ROWS), "{name}: a scan at {snapshot}, looked={looked}");
        }
        let (looked, gets) = looks(|| get_all(&harness, CommitNumber::LATEST));
        assert!(looked < 40 * gets as u64, "{name}: gets={gets} looked={looked}");
        harness.check_to_the_end();
    }
}
