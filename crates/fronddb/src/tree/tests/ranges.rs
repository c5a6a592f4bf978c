//! Scans between many range-deletes.

use super::*;
use crate::format::message::LOOKS;

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
