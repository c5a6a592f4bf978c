//! Flushes that readers pay for.

use super::*;
use crate::store::Urgency;

/// A tree at rest: no buffer asks for a flush by its size, and the one above the leaf of `key(300)` has two runs.
fn at_rest() -> Harness {
    let mut harness = Harness::new();
    for number in 0..600 {
        harness.write(&key(number), Kind::Put, format!("value {number:08}").as_bytes());
    }
    harness.seal_all();
    harness.compact(Vec::new(), None);
    for round in 0..2u8 {
        harness.write(&key(300), Kind::Put, &[round; 20]);
        harness.seal_all();
    }
    while harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    assert!(harness.tree.debt().pending_bytes > 0);
    assert!(!flush(&harness, true), "nobody has read yet");
    harness
}

fn flush(harness: &Harness, idle: bool) -> bool {
    harness.tree.flush_for_reads(&harness.retention(), idle).expect("flush")
}

/// Reads that it takes until a flush is done for them.
fn reads_until_flushed(harness: &Harness, idle: bool) -> usize {
    (1..100_000)
        .find(|_| {
            harness.seek_often(&key(300), 1);
            flush(harness, idle)
        })
        .expect("a flush after some reads")
}

#[test]
fn a_buffer_is_flushed_once_its_readers_have_paid_for_it() {
    let harness = at_rest();
    let reads = reads_until_flushed(&harness, false);
    assert!(reads > 10, "not at once: {reads}");
    // One after the other, down to the leaf.
    harness.seek_often(&key(300), 100_000);
    while flush(&harness, false) {}
    assert_eq!(harness.tree.debt().pending_bytes, 0, "{}", harness.tree.shape().expect("shape"));
    harness.seek_often(&key(300), 100_000);
    assert!(!harness.tree.has_rents(), "reads of a leaf alone pay nothing");
    harness.check();
}

#[test]
fn idle_processors_do_it_sooner() {
    let (dear, cheap) = (reads_until_flushed(&at_rest(), false), reads_until_flushed(&at_rest(), true));
    assert!(cheap * 4 < dear, "{cheap} reads in place of {dear}");
}

#[test]
fn what_cursors_have_to_read_from_the_file_is_paid_for() {
    let harness = at_rest();
    let cached = reads_until_flushed(&at_rest(), false);
    let cache = &harness.tree.env().cache;
    cache.set_read_nanos(100_000);
    let everything = Extent { start: 0, pages: 1 << 14 };
    let read = (1..100_000).find(|_| {
        cache.remove_range(everything);
        harness.seek_often(&key(300), 1);
        flush(&harness, false)
    });
    let read = read.expect("a flush after some reads");
    assert!(read * 10 < cached, "{read} reads in place of {cached}");
}

#[test]
fn point_reads_pay_too_and_less() {
    let harness = at_rest();
    let seeks = reads_until_flushed(&at_rest(), false);
    let version = harness.tree.version();
    let view = harness.view(CommitNumber(harness.now));
    let gets = (0..60_000).find(|number| {
        harness.tree.get(&version, &view.view(), &key(number % 600)).expect("get");
        flush(&harness, false)
    });
    let gets = gets.expect("a flush after some reads") as usize;
    assert!(gets > 2 * seeks, "{gets} gets, {seeks} seeks");
}

#[test]
fn what_was_paid_goes_on_with_the_next_run_and_ends_with_the_flush() {
    let mut harness = at_rest();
    let needed = reads_until_flushed(&at_rest(), false);
    harness.seek_often(&key(300), needed - 1);
    assert!(!flush(&harness, false));
    harness.write(&key(301), Kind::Put, b"one more");
    harness.seal_all();
    assert!(reads_until_flushed(&harness, false) < needed / 2, "it was nearly paid");
    harness.seek_often(&key(300), 1);
    assert!(!flush(&harness, false), "a new account");
}

#[test]
fn a_slot_that_is_gone_leaves_the_list() {
    let harness = at_rest();
    harness.seek_often(&key(300), 100_000);
    assert!(harness.tree.has_rents());
    harness.compact(Vec::new(), None);
    assert!(!flush(&harness, true));
    assert!(!harness.tree.has_rents());
}

#[test]
fn without_space_it_waits_and_nobody_hears_of_it() {
    let harness = at_rest();
    let store = &harness.tree.env().store;
    harness.storage.set_capacity(0);
    let taken: Vec<Extent> = std::iter::from_fn(|| store.allocate(1, Urgency::Ordinary).ok()).collect();
    harness.seek_often(&key(300), 100_000);
    let before = harness.tree.shape().expect("shape");
    while flush(&harness, false) {}
    assert_eq!(harness.tree.shape().expect("shape"), before, "nothing could be written");
    assert!(!flush(&harness, true), "its readers pay once more");
    harness.storage.set_capacity(u64::MAX);
    taken.into_iter().for_each(|extent| store.free_unpublished(extent));
    assert!(reads_until_flushed(&harness, false) > 10);
    harness.check();
}
