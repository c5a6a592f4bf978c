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
