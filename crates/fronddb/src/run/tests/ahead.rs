//! Windows that are asked for: by readers beside the cursor, by readers that the test plays itself, by none.

use super::*;
use crate::base::Result;
use crate::base::key::KeyRange;
use crate::base::memory::Purpose;
use crate::run::{Goal, RunCursor};
use std::ops::Range;

const ASKING: CursorMode = CursorMode { fill_cache: true, read_ahead_bytes: 32 << 10, is_long: true, asks_ahead: true };

/// A world with a run of several windows.
fn long_run() -> (World, Vec<Sample>, RunMeta, Arc<Run>) {
    let world = world();
    world.options.codecs.set_default(Codec::None);
    let mut random = Random(11);
    let samples: Vec<Sample> =
        iibench(3000)[1].clone().into_iter().map(|sample| Sample { payload: random.bytes(200), ..sample }).collect();
    let meta = world.write(&samples).expect("writes");
    let run = world.open(&meta);
    (world, samples, meta, run)
}

/// Memory of windows, and of what the writer keeps for the next run.
fn work_bytes(world: &World) -> usize {
    world.cache.budget().used(Purpose::Work)
}

/// Walks from where the cursor stands to the end.
fn walk(cursor: &mut RunCursor, mut more: Result<bool>, backward: bool) -> Result<Vec<Vec<u8>>> {
    let mut payloads = Vec::new();
    while more? {
        payloads.push(cursor.message().payload.to_vec());
        more = if backward { cursor.prev() } else { cursor.next() };
    }
    Ok(payloads)
}

#[test]
fn who_wants_nothing_read_ahead_reads_block_by_block() {
    let (world, samples, meta, run) = long_run();
    world.forget_cached(&meta);
    let mut cursor = run.cursor(CursorMode { read_ahead_bytes: 0, ..ASKING });
    let first = cursor.first();
    assert_eq!(walk(&mut cursor, first, false).expect("reads").len(), samples.len());
    assert_eq!(world.counters.statistics().read_aheads, 0);
}

#[test]
fn windows_asked_for_hold_what_windows_read_in_place_hold() {
    let (world, samples, meta, run) = long_run();
    let idle = work_bytes(&world);
    let forward: Vec<Vec<u8>> = samples.iter().map(|sample| sample.payload.clone()).collect();
    let backward: Vec<Vec<u8>> = forward.iter().rev().cloned().collect();
    let mut random = Random(5);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| while world.store.serve_ask() {});
        }
        for read_ahead_bytes in [0, 1 << 10, 4 << 10, 20 << 10, 64 << 10, 256 << 10, 4 << 20] {
            for (is_long, fill_cache) in [(false, false), (false, true), (true, false), (true, true)] {
                let mode = CursorMode { fill_cache, read_ahead_bytes, is_long, asks_ahead: true };
                let fresh = || {
                    world.forget_cached(&meta);
                    run.cursor(mode)
                };
                let mut cursor = fresh();
                let first = cursor.first();
                assert!(walk(&mut cursor, first, false).expect("reads") == forward, "{mode:?}");
                let mut cursor = fresh();
                let last = cursor.last();
                assert!(walk(&mut cursor, last, true).expect("reads") == backward, "{mode:?}");
                // With turns and jumps.
                let mut cursor = fresh();
                for _ in 0..20 {
                    let key = probe(&samples, &mut random);
                    let at = samples.partition_point(|sample| sample.key < key);
                    assert_eq!(cursor.seek(&key).expect("reads"), at < samples.len());
                    let mut at = at as isize;
                    for back in [false, true, false] {
                        for _ in 0..random.below(300) {
                            let Some(sample) = usize::try_from(at).ok().and_then(|at| samples.get(at)) else { break };
                            assert!(cursor.message().payload == sample.payload, "{mode:?}");
                            let moved = if back { cursor.prev() } else { cursor.next() };
                            at += if back { -1 } else { 1 };
                            assert_eq!(moved.expect("reads"), (0..samples.len() as isize).contains(&at));
                        }
                    }
                }
            }
        }
        world.store.stop_readers();
    });
    assert_eq!(work_bytes(&world), idle);
}

#[test]
fn without_readers_the_same_reads_are_made_in_place() {
    let (world, samples, meta, run) = long_run();
    let reads = |mode: CursorMode| {
        world.forget_cached(&meta);
        let before = world.store.statistics();
        let mut cursor = run.cursor(mode);
        let first = cursor.first();
        assert_eq!(walk(&mut cursor, first, false).expect("reads").len(), samples.len());
        let after = world.store.statistics();
        (after.reads - before.reads, after.read_bytes - before.read_bytes)
    };
    for is_long in [false, true] {
        let mode = CursorMode { is_long, ..ASKING };
        assert_eq!(reads(mode), reads(CursorMode { asks_ahead: false, ..mode }));
    }
}

#[test]
fn an_error_in_a_window_asked_for_is_told_when_its_block_is_needed() {
    for backward in [false, true] {
        let (world, samples, _, run) = long_run();
        let mut cursor = run.cursor(ASKING);
        assert!(if backward { cursor.last() } else { cursor.first() }.expect("reads"));
        world.plan.add(FaultRule::from(CallClass::Read, 1, Fault::NoMemory));
        assert!(world.store.serve_ask());
        assert_eq!(world.plan.fired(), 2, "it is tried twice");
        world.plan.clear();
        let mut seen = Vec::new();
        let error = loop {
            seen.push(cursor.message().payload.to_vec());
            match if backward { cursor.prev() } else { cursor.next() } {
                Ok(more) => assert!(more, "the error is told"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(!cursor.valid());
        let bytes: usize = seen.iter().map(Vec::len).sum();
        assert!(bytes > 20 << 10 && bytes < 32 << 10, "the window before is used to its end, bytes={bytes}");
        // The same cursor goes on from there.
        let rest = match backward {
            false => cursor.seek(&samples[seen.len()].key),
            true => cursor.seek_before(&samples[samples.len() - seen.len()].key),
        };
        let rest = walk(&mut cursor, rest, backward).expect("reads");
        let mut all: Vec<Vec<u8>> = samples.iter().map(|sample| sample.payload.clone()).collect();
        if backward {
            all.reverse();
        }
        assert!([seen, rest].concat() == all);
    }
}

#[test]
fn an_error_in_a_window_that_is_not_needed_is_told_nobody() {
    let (world, samples, _, run) = long_run();
    let mut cursor = run.cursor(ASKING);
    assert!(cursor.first().expect("reads"));
    world.plan.add(FaultRule::from(CallClass::Read, 1, Fault::NoMemory));
    assert!(world.store.serve_ask());
    assert_eq!(world.plan.fired(), 2, "it is tried twice");
    world.plan.clear();
    let far = samples.len() / 2;
    let seek = cursor.seek(&samples[far].key);
    assert_eq!(walk(&mut cursor, seek, false).expect("reads").len(), samples.len() - far);
}

#[test]
fn dropping_a_cursor_waits_for_no_read_and_gives_the_memory_back() {
    let (world, _, meta, run) = long_run();
    let idle = work_bytes(&world);
    let cursor = |world: &World| {
        let mut cursor = run.cursor(ASKING);
        assert!(cursor.first().expect("reads"));
        assert!(work_bytes(world) > idle);
        cursor
    };
    // Not begun: no reader finds it any more.
    drop(cursor(&world));
    assert_eq!(work_bytes(&world), idle);
    // Read, and not taken.
    world.forget_cached(&meta);
    let standing = cursor(&world);
    assert!(world.store.serve_ask());
    drop(standing);
    assert_eq!(work_bytes(&world), idle);
    // Being read.
    world.forget_cached(&meta);
    let standing = cursor(&world);
    world.plan.add(FaultRule::once(CallClass::Read, 1, Fault::Hold));
    std::thread::scope(|scope| {
        scope.spawn(|| world.store.serve_ask());
        let _held = world.plan.wait_held();
        drop(standing);
        assert!(work_bytes(&world) > idle, "the read goes on");
    });
    assert_eq!(work_bytes(&world), idle);
}

#[test]
fn nothing_is_read_ahead_of_the_keys_that_are_wanted() {
    let (world, samples, meta, run) = long_run();
    let keys: Vec<&Vec<u8>> = samples.iter().map(|sample| &sample.key).collect();
    let (low, high) = (samples.len() / 2, samples.len() / 2 + 20);
    let range = Arc::new(KeyRange { lower: keys[low].clone(), upper: Some(keys[high].clone()) });
    for backward in [false, true] {
        let read_bytes = |range: &Arc<KeyRange>| {
            world.forget_cached(&meta);
            let mut cursor = run.cursor_within(CursorMode { read_ahead_bytes: 256 << 10, ..ASKING }, range);
            let before = world.store.statistics().read_bytes;
            let mut more =
                if backward { cursor.seek_before(keys[high]) } else { cursor.seek(keys[low]) }.expect("reads");
            while more && (range.lower.as_slice()..range.upper.as_deref().unwrap_or_default()).contains(&cursor.key()) {
                more = if backward { cursor.prev() } else { cursor.next() }.expect("reads");
            }
            world.store.statistics().read_bytes - before
        };
        let bytes = read_bytes(&range);
        assert!(bytes < 32 << 10, "bytes={bytes}");
    }
}

#[test]
fn a_short_range_is_one_read_and_a_long_one_begins_with_a_block() {
    let (world, samples, meta, run) = long_run();
    let key = |row: usize| &samples[row].key;
    let mode = CursorMode { read_ahead_bytes: 16 << 10, asks_ahead: false, ..CursorMode::default() };
    let windows = |rows: Range<usize>, wanted: usize, backward: bool| {
        world.forget_cached(&meta);
        let (lower, upper) = (key(rows.start).clone(), Some(key(rows.end).clone()));
        let mut cursor = run.cursor_within(mode, &Arc::new(KeyRange { lower, upper }));
        let before = world.counters.statistics().read_aheads;
        let mut more = if backward { cursor.seek_before(key(rows.end)) } else { cursor.seek(key(rows.start)) };
        for row in 0..wanted {
            let expected = if backward { rows.end - 1 - row } else { rows.start + row };
            assert!(more.expect("reads") && cursor.key() == key(expected).as_slice(), "row={expected}");
            more = if backward { cursor.prev() } else { cursor.next() };
        }
        (world.counters.statistics().read_aheads - before, cursor.lone_reads())
    };
    for backward in [false, true] {
        assert_eq!(windows(700..740, 40, backward), (1, 1), "one window: backward={backward}");
        assert_eq!(windows(720..2690, 1, backward), (0, 1), "one block: backward={backward}");
        assert_eq!(windows(720..2690, 20, backward), (1, 1), "a block and a window: backward={backward}");
    }
}

#[test]
fn a_short_walk_asks_for_nothing() {
    let (world, _, _, run) = long_run();
    let mut cursor = run.cursor(CursorMode { read_ahead_bytes: 256 << 10, is_long: false, ..ASKING });
    assert!(cursor.first().expect("reads"));
    for _ in 0..200 {
        assert!(cursor.next().expect("reads"));
    }
    assert!(!world.store.has_asks());
}

#[test]
fn a_long_scan_bridges_cached_blocks_and_reads_nothing_where_all_are_cached() {
    let (world, samples, meta, run) = long_run();
    let reads = |warm: &dyn Fn(usize) -> bool, is_long: bool| {
        world.forget_cached(&meta);
        samples.iter().enumerate().filter(|(row, _)| warm(*row)).for_each(|(_, sample)| {
            run.warm(&sample.key, Place::Buffer).expect("reads");
        });
        let before = world.counters.statistics();
        let mut cursor = run.cursor(CursorMode { is_long, ..ASKING });
        let first = cursor.first();
        assert_eq!(walk(&mut cursor, first, false).expect("reads").len(), samples.len());
        let after = world.counters.statistics();
        (after.read_aheads - before.read_aheads, after.read_bytes - before.read_bytes)
    };
    let (cold, bytes) = reads(&|_| false, true);
    let (bridged, _) = reads(&|row| row % 40 == 0, true);
    let (broken, _) = reads(&|row| row % 40 == 0, false);
    assert!(bridged <= cold + 1 && broken > 2 * bridged, "cold={cold} bridged={bridged} broken={broken}");
    let half = samples.len() / 2;
    let (_, second_half) = reads(&|row| row < half, true);
    assert!(second_half < bytes * 2 / 3, "bytes={bytes} second_half={second_half}");
    assert_eq!(reads(&|_| true, true), (0, 0));
}

#[test]
fn a_long_scan_leaves_a_full_cache_alone() {
    let (world, samples, _, run) = long_run();
    let budget = world.cache.budget();
    budget.set_limit(work_bytes(&world) + (300 << 10));
    for sample in &samples {
        run.warm(&sample.key, Place::Buffer).expect("reads");
    }
    assert!(world.cache.is_full());
    let before = world.cache.statistics();
    let mut cursor = run.cursor(CursorMode { asks_ahead: false, ..ASKING });
    let first = cursor.first();
    assert_eq!(walk(&mut cursor, first, false).expect("reads").len(), samples.len());
    let after = world.cache.statistics();
    assert!(after.insertions < before.insertions + 10, "{before:?} {after:?}");
}

/// A cursor's place, and the message there.
fn stand(cursor: &RunCursor) -> Option<(Vec<u8>, Vec<u8>)> {
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.message().payload.to_vec()))
}

#[test]
fn who_tries_reads_no_block_of_messages_and_what_is_asked_for_then_is_read_once() {
    let (world, samples, meta, run) = long_run();
    let idle = work_bytes(&world);
    let far = samples[samples.len() / 2 + 7].key.clone();
    for goal in [Goal::First, Goal::AtOrAbove(&far), Goal::Last, Goal::Below(&far)] {
        world.forget_cached(&meta);
        let expected = {
            let mut cursor = run.cursor(CursorMode::default());
            assert!(cursor.go(goal).expect("reads"));
            stand(&cursor)
        };
        world.forget_cached(&meta);
        let mut cursor = run.cursor(CursorMode::default());
        assert!(!cursor.try_go(goal).expect("reads"), "{goal:?}");
        assert!(!cursor.valid());
        let before = (world.counters.statistics().read_aheads, world.store.statistics().reads);
        assert!(!cursor.try_go(goal).expect("the index is there now"), "{goal:?}");
        assert_eq!(world.store.statistics().reads, before.1);
        cursor.ask(goal);
        assert!(world.store.serve_ask());
        assert_eq!(world.store.statistics().reads, before.1 + 1);
        assert!(cursor.go(goal).expect("reads"));
        assert_eq!(
            (world.counters.statistics().read_aheads, world.store.statistics().reads),
            (before.0 + 1, before.1 + 1),
            "{goal:?}"
        );
        assert_eq!((stand(&cursor), cursor.lone_reads()), (expected.clone(), 1), "{goal:?}");
        // What is cached needs no reading, and nothing is asked for.
        let mut other = run.cursor(CursorMode::default());
        assert!(other.try_go(goal).expect("reads"), "{goal:?}");
        other.ask(goal);
        assert!(!world.store.has_asks());
        assert_eq!(stand(&other), expected);
    }
    assert_eq!(work_bytes(&world), idle);
}

#[test]
fn who_tries_and_asks_gets_where_others_go_at_once_whatever_is_cached() {
    let (world, samples, meta, run) = long_run();
    let idle = work_bytes(&world);
    let mut random = Random(23);
    for round in 0..600 {
        world.forget_cached(&meta);
        // A block here and there is cached.
        for _ in 0..random.below(40) {
            run.warm(&samples[random.below(samples.len() as u64) as usize].key, Place::Buffer).expect("reads");
        }
        let (lower, upper) = (probe(&samples, &mut random), probe(&samples, &mut random));
        let upper = (upper > lower).then_some(upper);
        let first = samples.partition_point(|sample| sample.key < lower);
        let end = upper.as_ref().map_or(samples.len(), |upper| samples.partition_point(|sample| sample.key < *upper));
        let mut cursor = run.cursor_within(mode(round), &Arc::new(KeyRange { lower, upper }));
        for _ in 0..6 {
            let key = probe(&samples, &mut random);
            let at = samples.partition_point(|sample| sample.key < key);
            let (goal, at) = match random.below(4) {
                0 => (Goal::First, 0),
                1 => (Goal::AtOrAbove(&key), at),
                2 => (Goal::Last, samples.len() - 1),
                _ => (Goal::Below(&key), at.wrapping_sub(1)),
            };
            if !cursor.try_go(goal).expect("reads") {
                cursor.ask(goal);
                match random.below(3) {
                    0 if world.store.has_asks() => assert!(world.store.serve_ask()),
                    // Somebody else reads it meanwhile.
                    1 => run.warm(&key, Place::Buffer).expect("reads"),
                    _ => {}
                }
                cursor.go(goal).expect("reads");
            }
            // Outside of what is wanted it may stand anywhere or nowhere.
            let mut at = at;
            let backward = random.below(2) == 0;
            for _ in 0..random.below(60) {
                if !(first..end).contains(&at) {
                    break;
                }
                let expected = (samples[at].key.clone(), samples[at].payload.clone());
                assert_eq!(stand(&cursor), Some(expected), "{goal:?} {:?}", mode(round));
                if backward { cursor.prev() } else { cursor.next() }.expect("reads");
                at = if backward { at.wrapping_sub(1) } else { at + 1 };
            }
        }
    }
    assert_eq!(work_bytes(&world), idle);
}

#[test]
fn an_error_in_what_was_asked_for_is_told_who_goes_there_and_the_next_one_gets_there() {
    let (world, samples, _, run) = long_run();
    let goal = Goal::AtOrAbove(&samples[samples.len() / 2].key);
    let mut cursor = run.cursor(CursorMode::default());
    assert!(!cursor.try_go(goal).expect("the index can be read"));
    cursor.ask(goal);
    world.plan.add(FaultRule::from(CallClass::Read, 1, Fault::NoMemory));
    assert!(world.store.serve_ask());
    world.plan.clear();
    assert_eq!(cursor.go(goal).expect_err("it was not read").kind(), ErrorKind::Io);
    assert!(!cursor.valid());
    assert!(cursor.go(goal).expect("reads"));
    assert_eq!(cursor.key(), samples[samples.len() / 2].key.as_slice());
}

#[test]
fn what_is_asked_for_is_counted_as_what_is_read_in_place_and_nothing_follows_where_nothing_is_read_ahead() {
    let (world, samples, meta, run) = long_run();
    let goal = Goal::AtOrAbove(&samples[samples.len() / 2 + 7].key);
    for (is_long, fill_cache) in [(false, false), (false, true), (true, false), (true, true)] {
        let mode = CursorMode { fill_cache, read_ahead_bytes: 0, is_long, asks_ahead: true };
        let lone_reads = |asks: bool| {
            world.forget_cached(&meta);
            let mut cursor = run.cursor(mode);
            if asks {
                assert!(!cursor.try_go(goal).expect("reads"));
                cursor.ask(goal);
                assert!(world.store.serve_ask());
            }
            assert!(cursor.go(goal).expect("reads"));
            for _ in 0..100 {
                assert!(cursor.next().expect("reads"));
            }
            assert!(!world.store.has_asks(), "{mode:?}");
            cursor.lone_reads()
        };
        assert_eq!(lone_reads(true), lone_reads(false), "{mode:?}");
    }
}

#[test]
fn a_block_that_is_cached_as_it_is_stored_is_not_asked_for() {
    let world = world();
    world.options.codecs.set_default(Codec::Lz4);
    let samples: Vec<Sample> =
        iibench(3000)[1].clone().into_iter().map(|sample| Sample { payload: vec![7; 200], ..sample }).collect();
    let run = world.open(&world.write(&samples).expect("writes"));
    world.cache.set_read_nanos(1_000_000);
    world.cache.set_data_bytes(1 << 30);
    for sample in &samples {
        run.warm(&sample.key, Place::Buffer).expect("reads");
    }
    for sample in samples.iter().step_by(50) {
        let mut cursor = run.cursor(CursorMode::default());
        assert!(cursor.try_go(Goal::AtOrAbove(&sample.key)).expect("reads"));
    }
    assert!(world.cache.statistics().decodes > 0, "some were packed");
}
