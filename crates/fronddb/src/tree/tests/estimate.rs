//! Estimates of ranges that several runs of one buffer have a part in.

use super::*;

fn number_key(number: u32) -> Vec<u8> {
    crate::base::key::inner(TreeId(1), format!("{number:05}").as_bytes())
}

fn seal_of(harness: &mut Harness, numbers: impl Iterator<Item = u32>) {
    for number in numbers {
        harness.write(&number_key(number), Kind::Put, b"value");
    }
    harness.seal_all();
}

fn rows(harness: &Harness, from: u32, to: u32) -> u64 {
    let version = harness.tree.version();
    harness.tree.estimate(&version, &number_key(from), Some(&number_key(to))).expect("estimate").rows
}

#[test]
fn of_many_runs_over_the_same_keys_one_stands_for_all() {
    let mut harness = Harness::new();
    for run in 0..6 {
        seal_of(&mut harness, (0..(run + 1) * 20).map(|at| at * 600 / ((run + 1) * 20)));
    }
    // 420 messages lie evenly over 0..600.
    let estimated = rows(&harness, 100, 400);
    assert!((190..=230).contains(&estimated), "{estimated}");
}

#[test]
fn runs_one_behind_the_other_are_each_looked_at() {
    let mut harness = Harness::new();
    for run in 0..6 {
        let first = run * 100;
        seal_of(&mut harness, (first..first + 100).take(if run == 0 { 100 } else { 30 }));
    }
    assert_eq!(rows(&harness, 510, 525), 15, "in the last run alone");
    assert_eq!(rows(&harness, 0, 600), 250);
}

#[test]
fn a_row_that_is_written_over_and_over_is_one_row() {
    let mut harness = Harness::new();
    let write = |harness: &mut Harness, keys: std::ops::Range<u32>, times: usize, kind: Kind| {
        for number in (0..times).flat_map(|_| keys.clone()) {
            harness.write(&number_key(number), kind, if kind == Kind::Put { b"value" } else { b"" });
        }
    };
    write(&mut harness, 0..3, 20, Kind::Put);
    assert_eq!(rows(&harness, 0, 10), 3);
    write(&mut harness, 0..1, 1, Kind::Delete);
    assert_eq!(rows(&harness, 0, 10), 2);
    write(&mut harness, 0..1, 5, Kind::Put);
    assert_eq!(rows(&harness, 0, 10), 3);
    // More than are counted one by one.
    write(&mut harness, 100..200, 60, Kind::Put);
    let estimated = rows(&harness, 100, 200);
    assert!((60..=160).contains(&estimated), "{estimated} of 100");
    let version = harness.tree.version();
    let bytes = harness.tree.estimate(&version, &number_key(100), Some(&number_key(200))).expect("estimate").bytes;
    assert!((60 * 14..=160 * 14).contains(&bytes), "{bytes}");
}
