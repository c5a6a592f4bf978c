//! An index knows where its blocks are in memory.

use super::*;

/// Looks for blocks of messages: at the index, at the cache with and without success, at the file.
#[derive(Debug, PartialEq, Eq)]
struct Looks {
    index: u64,
    cache: u64,
    misses: u64,
    file: u64,
}

/// What `act` looks at.
fn looks(world: &World, act: impl FnOnce()) -> Looks {
    let now = || {
        let (runs, cache) = (world.counters.statistics(), world.cache.statistics());
        let file = runs.block_reads_point + runs.block_reads_scan;
        [runs.blocks_remembered, cache.hits[0], cache.misses[0], file]
    };
    let before = now();
    act();
    let after = now();
    let [index, cache, misses, file] = std::array::from_fn(|at| after[at] - before[at]);
    Looks { index, cache, misses, file }
}

fn get(run: &Run, sample: &Sample) {
    let found = run.get(&sample.key, key_hash(&sample.key), &mut |message| {
        assert_eq!(message.payload, sample.payload);
        ControlFlow::Break(())
    });
    assert!(found.expect("reads").is_break());
}

fn seek(run: &Arc<Run>, sample: &Sample) {
    let mut cursor = run.cursor(CursorMode::default());
    assert!(cursor.seek(&sample.key).expect("reads"));
    assert_eq!(cursor.message().payload, sample.payload);
}

fn estimate(run: &Run, sample: &Sample) {
    let above = [&sample.key[..], &[0]].concat();
    assert_eq!(run.estimate(&sample.key, &above).expect("reads").messages, 1);
}

const AT_INDEX: Looks = Looks { index: 1, cache: 0, misses: 0, file: 0 };
const AT_CACHE: Looks = Looks { index: 0, cache: 1, misses: 0, file: 0 };
const AT_FILE: Looks = Looks { index: 0, cache: 0, misses: 1, file: 1 };

/// A run, and a message from within one of its blocks.
fn one_of_many() -> (World, RunMeta, Arc<Run>, Sample) {
    let world = world();
    let samples = &iibench(2000)[1];
    let meta = world.write(samples).expect("writes");
    let run = world.open(&meta);
    let index = run.top_index(super::super::path::Access::Scan).expect("reads");
    assert!(index.level() == 0 && index.count() > 4);
    let borders: BTreeSet<&[u8]> = (0..index.count()).map(|at| index.separator(at)).collect();
    let at = (1000..2000).find(|at| !borders.contains(&samples[*at].key[..])).expect("a key that begins no block");
    (world, meta, run, samples[at].clone())
}

#[test]
fn a_block_that_is_read_again_is_found_by_its_index() {
    let (world, _, run, sample) = one_of_many();
    assert_eq!(looks(&world, || get(&run, &sample)), AT_FILE);
    assert_eq!(looks(&world, || get(&run, &sample)), AT_CACHE, "one that is read once leaves nothing");
    assert_eq!(looks(&world, || get(&run, &sample)), AT_INDEX);
    assert_eq!(looks(&world, || seek(&run, &sample)), AT_INDEX);
    assert_eq!(looks(&world, || estimate(&run, &sample)), AT_INDEX);
}

#[test]
fn what_a_cursor_finds_in_the_cache_others_find_by_the_index() {
    let (world, _, run, sample) = one_of_many();
    assert_eq!(looks(&world, || seek(&run, &sample)).file, 1);
    assert_eq!(looks(&world, || seek(&run, &sample)), AT_CACHE);
    assert_eq!(looks(&world, || get(&run, &sample)), AT_INDEX);
}

#[test]
fn an_index_keeps_no_block() {
    let (world, meta, run, sample) = one_of_many();
    (0..3).for_each(|_| get(&run, &sample));
    // A reader has the index still, as it was.
    let index = run.top_index(super::super::path::Access::Scan).expect("reads");
    let (at, phase) = (index.find(&sample.key), world.cache.room().expect("room"));
    let block = index.remembered(at, phase).expect("known");
    assert_eq!(Arc::strong_count(&block), 2, "the cache's and this one");
    world.forget_cached(&meta);
    assert_eq!(Arc::strong_count(&block), 1);
    drop(block);
    assert!(index.remembered(at, phase).is_none());
    assert_eq!(looks(&world, || get(&run, &sample)), AT_FILE);
}

#[test]
fn a_cache_that_has_to_let_blocks_go_hears_of_each_use() {
    let (world, _, run, sample) = one_of_many();
    (0..3).for_each(|_| get(&run, &sample));
    let beside = |world: &World| world.cache.statistics().hits[1..3].iter().sum::<u64>();
    let before = beside(&world);
    (0..40).for_each(|_| get(&run, &sample));
    assert_eq!(beside(&world), before, "with room not of its index and filter either");
    world.cache.act_full();
    for _ in 0..20 {
        assert_eq!(looks(&world, || get(&run, &sample)), AT_CACHE);
        assert_eq!(looks(&world, || seek(&run, &sample)), AT_CACHE);
    }
    assert!(beside(&world) > before, "of those now and then");
}

#[test]
fn when_there_is_room_again_each_block_is_asked_for_once_more() {
    let (world, _, run, sample) = one_of_many();
    (0..3).for_each(|_| get(&run, &sample));
    // More than there is memory for may be asked for, and then not any more.
    world.cache.set_data_bytes(1 << 30);
    world.cache.trim();
    assert_eq!(world.cache.room(), None);
    assert_eq!(looks(&world, || get(&run, &sample)), AT_CACHE);
    world.cache.set_data_bytes(0);
    world.cache.trim();
    assert!(world.cache.room().is_some());
    assert_eq!(looks(&world, || get(&run, &sample)), AT_CACHE, "so that it counts as used");
    assert_eq!(looks(&world, || get(&run, &sample)), AT_INDEX);
}

#[test]
fn an_index_that_a_long_scan_brought_and_others_use_stays_as_theirs_do() {
    let (world, meta, run, sample) = one_of_many();
    let mut cursor = run.cursor(CursorMode { is_long: true, asks_ahead: false, ..CursorMode::default() });
    let mut more = cursor.first().expect("reads");
    while more {
        more = cursor.next().expect("reads");
    }
    drop(cursor);
    (0..3).for_each(|_| get(&run, &sample));
    // Down to where blocks that the scan brought went.
    let blocks = world.cache.statistics().blocks;
    for limit in (8..512).rev() {
        world.cache.budget().set_limit(limit << 10);
        world.cache.trim();
        if world.cache.statistics().blocks < blocks / 2 {
            break;
        }
    }
    assert!(world.cache.statistics().blocks < blocks / 2);
    assert!(world.cache.contains(meta.index.offset));
}
