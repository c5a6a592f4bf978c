//! Flushes that readers pay for.

use proptest::test_runner::TestRunner;

use super::*;
use crate::run::Run;
use crate::store::Urgency;
use crate::tree::node::Target;
use crate::tree::plan::{self, SlotName};
use crate::tree::rent::QUICK_READ_NANOS;

/// A tree at rest: no buffer asks for a flush by its size, and the one above the leaf of `key(300)` has two runs. What its file takes for a
/// read is no part of what is paid: on a slow one the first read would pay for all.
fn at_rest() -> Harness {
    let harness = Harness::with_runs_above_a_leaf(2);
    harness.tree.env().cache.set_read_nanos(1);
    while harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    assert!(harness.tree.debt().pending_bytes > 0);
    assert!(!flush(&harness, true), "nobody has read yet");
    harness
}

fn flush(harness: &Harness, idle: bool) -> bool {
    harness.tree.flush_for_reads(&harness.retention(), idle).expect("flush").is_some()
}

/// Reads that it takes until a flush is done for them.
fn reads_until_flushed(harness: &Harness, idle: bool) -> usize {
    reads_of_until_flushed(harness, 300, idle)
}

fn reads_of_until_flushed(harness: &Harness, number: u16, idle: bool) -> usize {
    (1..100_000)
        .find(|_| {
            harness.seek_often(&key(number), 1);
            flush(harness, idle)
        })
        .expect("a flush after some reads")
}

/// Point reads that it takes, of keys all over the tree.
fn gets_until_flushed(harness: &Harness, idle: bool) -> usize {
    let version = harness.tree.version();
    let view = harness.view(CommitNumber(harness.now));
    let gets = (0..60_000).find(|number| {
        harness.tree.get(&version, &view.view(), &key(number % 600)).expect("get");
        flush(harness, idle)
    });
    gets.expect("a flush after some reads") as usize
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
fn in_a_full_cache_idle_processors_do_it_sooner_for_cursors_while_the_file_is_quick() {
    let with_room = |read_nanos| {
        let harness = at_rest();
        // What it reads comes to the cache, so that how long reads are said to take is no part of what is paid.
        harness.seek_often(&key(300), 1);
        harness.tree.env().cache.set_read_nanos(read_nanos);
        harness
    };
    let full = |read_nanos| {
        let harness = with_room(read_nanos);
        harness.tree.env().cache.act_full();
        harness
    };
    for read_nanos in [1, QUICK_READ_NANOS - 1, QUICK_READ_NANOS] {
        let is_sooner = read_nanos < QUICK_READ_NANOS;
        let expected = reads_until_flushed(&with_room(read_nanos), is_sooner);
        assert_eq!(reads_until_flushed(&full(read_nanos), true), expected, "a read takes {read_nanos} ns");
    }
    // Beside the read of a block a filter is little: a fifth of the charge, and of that no part is cheap.
    for (idle, times) in [(true, 4), (false, 3)] {
        let gets = |harness: &Harness| gets_until_flushed(harness, idle);
        let (roomy, in_full) = (gets(&with_room(1)), gets(&full(1)));
        assert!(in_full > times * roomy, "{in_full} gets, {roomy} where the cache has room, idle={idle}");
    }
}

#[test]
fn slots_whose_readers_have_paid_a_part_keep_no_place_from_one_that_is_paid_for() {
    let mut harness = Harness::with(TreeTuning { node_buffer_bytes: 64, ..TreeTuning::tiny() });
    harness.tree.env().cache.set_read_nanos(1);
    for number in 0..6000 {
        harness.write(&key(number), Kind::Put, &noise(u64::from(number), 200));
    }
    harness.seal_all();
    harness.compact(Vec::new(), None);
    (0..6000).step_by(10).for_each(|number| harness.write(&key(number), Kind::Put, b"newer"));
    harness.seal_all();
    while harness.tree.work_step(&harness.retention(), 1.0).expect("work") {}
    let paid = reads_of_until_flushed(&harness, 0, false);
    // All others are noted, as many as there are places, and their readers go away.
    for reads in [paid / 10, 1] {
        (0..5900).step_by(10).for_each(|number| harness.seek_often(&key(number), reads));
        assert!(!flush(&harness, false), "nothing is paid for");
    }
    let wait = reads_of_until_flushed(&harness, 5990, false);
    assert!(wait <= 2 * paid, "a buffer was flushed after {paid} reads, the next one after {wait}");
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
fn a_cursor_pays_for_what_it_goes_through_as_well() {
    let wide = || {
        let mut harness = Harness::with_runs_above_a_leaf(0);
        harness.tree.env().cache.set_read_nanos(1);
        (300..330).step_by(3).for_each(|number| harness.write(&key(number), Kind::Put, b"one of ten"));
        harness.seal_all();
        assert!(!flush(&harness, true), "nobody has read yet");
        harness
    };
    let until_flushed = |read: &dyn Fn(&mut TreeCursor)| {
        let harness = wide();
        let found = (1..100_000).find(|_| {
            let options = CursorOptions::default();
            let view = harness.view(CommitNumber(harness.now));
            read(&mut harness.tree.cursor(view, key(300), Some(key(330)), options));
            flush(&harness, false)
        });
        found.expect("a flush after some reads")
    };
    let five_more = |cursor: &mut TreeCursor, go: fn(&mut TreeCursor) -> Result<bool>| {
        (0..5).for_each(|_| assert!(go(cursor).expect("step"), "there are ten rows"));
    };
    let seeks = until_flushed(&|cursor| assert!(cursor.first().expect("first")));
    let forward = until_flushed(&|cursor| {
        assert!(cursor.first().expect("first"));
        five_more(cursor, TreeCursor::next);
    });
    let backward = until_flushed(&|cursor| {
        assert!(cursor.last().expect("last"));
        five_more(cursor, TreeCursor::prev);
    });
    assert!(forward * 2 <= seeks && backward * 2 <= seeks, "{seeks} seeks, {forward} and {backward} times five rows");
}

#[test]
fn point_reads_pay_too_and_less() {
    let harness = at_rest();
    let seeks = reads_until_flushed(&at_rest(), false);
    let gets = gets_until_flushed(&harness, false);
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

/// A leaf with small runs above it, as many as are gathered and one more that is newer than those and large, or small.
fn small_runs(newest: u16) -> Harness {
    let mut harness = Harness::new();
    for number in 0..40 {
        harness.write(&key(number), Kind::Put, &noise(u64::from(number), 100));
    }
    harness.seal_all();
    harness.compact(Vec::new(), None);
    for round in 0..4 {
        harness.write(&key(20 + round), Kind::Put, &noise(u64::from(round), 20));
        harness.seal_all();
    }
    for number in 0..newest {
        harness.write(&key(number), Kind::Put, &noise(u64::from(number), 100));
    }
    harness.seal_all();
    let (runs, leaves) = runs_and_leaves(&harness);
    assert_eq!((runs.len(), leaves.len()), (5, 1), "{}", harness.tree.shape().expect("shape"));
    harness
}

#[test]
fn a_few_runs_that_would_be_cheapest_alone_take_the_next_one_along() {
    let mut harness = Harness::new();
    for number in 0..60 {
        harness.write(&key(number), Kind::Put, &noise(u64::from(number), 100));
    }
    harness.seal_all();
    harness.compact(Vec::new(), None);
    for keys in [8, 1, 1, 1] {
        (0..keys).for_each(|number| harness.write(&key(20 + number), Kind::Put, &noise(u64::from(keys), 100)));
        harness.seal_all();
    }
    let (runs, leaf) = runs_and_leaves(&harness);
    assert_eq!(runs.len(), 4);
    reads_until_flushed(&harness, false);
    let (runs, same_leaf) = runs_and_leaves(&harness);
    assert_eq!((runs.len(), same_leaf), (1, leaf), "the leaf stays");
    harness.check_to_the_end();
}

/// Bytes that no codec makes smaller.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let next =
        |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    std::iter::successors(next(&seed), next).map(|state| (state >> 56) as u8).take(length).collect()
}

/// The runs in the buffers of the root, newest first, and the leaves below them.
fn runs_and_leaves(harness: &Harness) -> (Vec<u64>, Vec<u64>) {
    let root = harness.tree.version().root.clone();
    let id = |run: &Arc<Run>| run.meta().id.0;
    let leaf = |slot: &Arc<node::Slot>| match slot.target() {
        Target::Leaf(base) => base.as_ref().map(id),
        Target::Node(_) => None,
    };
    (
        root.slots().iter().flat_map(|slot| slot.buffer()).map(id).collect(),
        root.slots().iter().filter_map(leaf).collect(),
    )
}

#[test]
fn many_small_runs_are_made_one_before_the_leaf_is_written_again() {
    let mut harness = small_runs(1);
    let (_, leaf) = runs_and_leaves(&harness);
    let small = reads_until_flushed(&harness, false);
    let (runs, same_leaf) = runs_and_leaves(&harness);
    assert_eq!((runs.len(), same_leaf), (1, leaf), "the leaf stays");
    // What is checked is read, and paid for.
    let large = reads_until_flushed(&harness, false);
    assert!(runs_and_leaves(&harness).0.is_empty());
    assert!(small * 4 < large, "{small} reads, then {large}");
    harness.check_to_the_end();
    let harness = small_runs(1);
    reads_until_flushed(&harness, false);
    assert_eq!(runs_and_leaves(&harness).0.len(), 1);
    harness.check();
}

#[test]
fn what_comes_on_top_meanwhile_stays_there() {
    let mut harness = small_runs(1);
    harness.seek_often(&key(20), 100_000);
    let retention = harness.retention();
    let root = harness.tree.version().root.clone();
    let name = SlotName { height: 1, lower: root.slots()[0].lower().clone() };
    let job = {
        let (env, state) = (harness.tree.env(), &mut harness.tree.state.lock());
        plan::reserve_gathering(env, &mut state.reservations, name.height, &root.slots()[0], None, 5).expect("free")
    };
    harness.write(&key(21), Kind::Delete, b"");
    harness.seal_all();
    harness.tree.do_job(&retention, &job).expect("gathered");
    let (runs, _) = runs_and_leaves(&harness);
    assert_eq!(runs.len(), 2);
    harness.check_to_the_end();
}

#[test]
fn what_is_large_is_not_written_again_for_what_is_small() {
    let harness = small_runs(30);
    let (before, leaf) = runs_and_leaves(&harness);
    reads_until_flushed(&harness, false);
    let (after, new_leaf) = runs_and_leaves(&harness);
    assert!(
        after.is_empty() && new_leaf != leaf,
        "{before:?} became {after:?}: the newest run is nearly as large as the leaf"
    );
}

/// Few writes between seals, many reads, and no flush by size: the leaf of all keys is large for what is above it.
fn steps_of_readers() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        16 => changes(4),
        2 => Just(Step::Snapshot),
        1 => Just(Step::Forget),
        8 => Just(Step::Seal),
        6 => (0u16..600, any::<bool>()).prop_map(|(key, idle)| Step::Read(key, idle)),
        1 => Just(Step::Publish),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 30..120)
}

#[test]
fn what_is_gathered_answers_like_a_sorted_map_of_versions() {
    let tuning = TreeTuning { leaf_bytes_max: 128 << 10, ..TreeTuning::tiny() };
    let mut runner = TestRunner::new(ProptestConfig { cases: 60, ..ProptestConfig::default() });
    let gathered = std::cell::Cell::new(0);
    let played = runner.run(&steps_of_readers(), |steps| {
        let mut harness = Harness::with(tuning);
        for number in 0..600 {
            harness.write(&key(number), Kind::Put, &noise(u64::from(number), 100));
        }
        harness.seal_all();
        harness.compact(Vec::new(), None);
        for step in &steps {
            let before = runs_and_leaves(&harness);
            play(&mut harness, step);
            let after = runs_and_leaves(&harness);
            if matches!(step, Step::Read(..)) && after.1 == before.1 && after.0.len() < before.0.len() {
                gathered.set(gathered.get() + 1);
            }
        }
        harness.check();
        Ok(())
    });
    played.expect("every case");
    assert!(gathered.get() > 20, "runs were gathered in the cases, times={}", gathered.get());
}

#[test]
fn a_damaged_run_ends_the_gathering_and_what_is_whole_stays() {
    let harness = small_runs(1);
    let before = runs_and_leaves(&harness);
    let damaged = harness.tree.version().root.slots()[0].buffer()[4].meta().extents[0];
    harness.tree.env().cache.remove_range(Extent { start: 0, pages: 1 << 14 });
    let path = Path::new("db").join(crate::store::DATA_FILE);
    harness.seek_often(&key(2), 100_000);
    harness.storage.flip_bit(&path, damaged.offset() + 30, 3).expect("flip");
    harness.tree.env().cache.remove_range(Extent { start: 0, pages: 1 << 14 });
    let error = harness.tree.flush_for_reads(&harness.retention(), false).expect_err("a damaged run");
    assert_eq!(error.kind(), crate::base::ErrorKind::Corruption);
    assert_eq!(runs_and_leaves(&harness), before);
    let (version, view) = (harness.tree.version(), harness.view(CommitNumber(harness.now)));
    for number in 0..10_000 {
        let row = harness.tree.get(&version, &view.view(), &key(number % 20)).expect("the others have it");
        assert!(row.is_some());
    }
    assert!(!flush(&harness, true), "it is not tried again");
}
