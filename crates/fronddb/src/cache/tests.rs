//! The cache against a model, under concurrency, its memory and its speed.

use super::pressure::{HOT_DECODES_MIN, MEAN_OVER, SLOW_READ};
use super::{Cache, CachedBlock, Priority, shard};
use crate::base::memory::{MemoryBudget, Purpose};
use crate::base::random::Random;
use crate::base::{Error, Extent};
use crate::format::block::samples::{CpuTime, Sample, iibench};
use crate::format::block::{EntryBlock, EntryBlockBuilder, Layout};
use crate::format::{Kind, Stamp};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The raw form of a block of one message, whose payload begins with `start` and has `payload_bytes` bytes.
fn raw_block(start: &[u8], payload_bytes: usize) -> Vec<u8> {
    let mut payload = start.to_vec();
    payload.resize(payload_bytes, 1);
    let sample =
        Sample { key: b"0001key".to_vec(), seq: 1, stamp: Stamp::Settled, kind: Kind::Put, blob: false, payload };
    let (mut builder, mut raw) = (EntryBlockBuilder::new(false), Vec::new());
    builder.add(&sample.message());
    builder.finish(Layout::default(), &mut raw);
    raw
}

/// A block that names its offset.
fn block(offset: u64, payload_bytes: usize) -> CachedBlock {
    let raw = raw_block(&offset.to_le_bytes(), 8 + payload_bytes);
    CachedBlock::Entries(Arc::new(EntryBlock::decode(&raw, 0).expect("decodes")))
}

fn offset_in(block: &CachedBlock) -> u64 {
    match block {
        CachedBlock::Entries(block) => {
            block.message(0, b"").payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
        }
        _ => panic!("another kind"),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Get { slot: u64, bytes: usize, priority: u8 },
    GetFailing { slot: u64 },
    Insert { slot: u64, bytes: usize },
    Lookup { slot: u64 },
    RemoveRange { page: u64, pages: u32 },
    SetLimit { bytes: usize },
    OthersUse { bytes: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..400, 0usize..20_000, 0u8..3).prop_map(|(slot, bytes, priority)| Step::Get { slot, bytes, priority }),
        1 => (0u64..400).prop_map(|slot| Step::GetFailing { slot }),
        2 => (0u64..400, 0usize..20_000).prop_map(|(slot, bytes)| Step::Insert { slot, bytes }),
        4 => (0u64..400).prop_map(|slot| Step::Lookup { slot }),
        1 => (0u64..2200, 1u32..600).prop_map(|(page, pages)| Step::RemoveRange { page, pages }),
        1 => (10_000usize..2_000_000).prop_map(|bytes| Step::SetLimit { bytes }),
        1 => (0usize..300_000).prop_map(|bytes| Step::OthersUse { bytes }),
    ]
}

proptest! {
    #[test]
    fn the_cache_holds_what_was_put_in_or_nothing(steps in prop::collection::vec(step(), 1..300)) {
        let budget = MemoryBudget::new(1 << 20);
        let cache = Cache::new(budget.clone());
        let mut others = 0;
        // What may be there: the payload length last put in at each offset.
        let mut model: BTreeMap<u64, usize> = BTreeMap::new();
        let offset_of = |slot: u64| slot * 22_123;
        for step in steps {
            match step {
                Step::Get { slot, bytes, priority } => {
                    let offset = offset_of(slot);
                    let priority = [Priority::Low, Priority::Normal, Priority::High][usize::from(priority)];
                    let mut loaded = false;
                    let found = cache.get(offset, priority, || { loaded = true; Ok(block(offset, bytes)) })?;
                    prop_assert_eq!(offset_in(&found), offset);
                    if loaded {
                        model.insert(offset, bytes);
                    } else {
                        prop_assert_eq!(found.memory_bytes(), block(offset, model[&offset]).memory_bytes());
                    }
                }
                Step::GetFailing { slot } => {
                    let result = cache.get(offset_of(slot), Priority::Normal, || Err(Error::corruption("no")));
                    prop_assert!(result.is_err() || model.contains_key(&offset_of(slot)));
                }
                Step::Insert { slot, bytes } => {
                    cache.insert(offset_of(slot), block(offset_of(slot), bytes), Priority::Normal);
                    model.insert(offset_of(slot), bytes);
                }
                Step::Lookup { slot } => {
                    if let Some(found) = cache.lookup(offset_of(slot)) {
                        prop_assert_eq!(offset_in(&found), offset_of(slot));
                        prop_assert!(model.contains_key(&offset_of(slot)));
                    }
                }
                Step::RemoveRange { page, pages } => {
                    let extent = Extent { start: page, pages };
                    cache.remove_range(extent);
                    model.retain(|offset, _| *offset < extent.offset() || *offset >= extent.offset() + extent.bytes());
                }
                Step::SetLimit { bytes } => {
                    budget.set_limit(bytes);
                    cache.trim();
                }
                Step::OthersUse { bytes } => {
                    budget.sub(Purpose::Level0, others);
                    budget.add(Purpose::Level0, bytes);
                    others = bytes;
                    cache.trim();
                }
            }
            prop_assert!(cache.bytes() <= budget.cache_allowance());
            prop_assert_eq!(cache.bytes(), budget.used(Purpose::Cache));
            cache.shards.iter().for_each(|shard| shard.check_line());
        }
        let mut sum = 0;
        for slot in 0..400 {
            if let Some(found) = cache.lookup(offset_of(slot)) {
                prop_assert!(model.contains_key(&offset_of(slot)));
                sum += shard::entry_bytes(&found);
            }
        }
        prop_assert_eq!(sum, cache.bytes());
        drop(cache);
        prop_assert_eq!(budget.used(Purpose::Cache), 0);
    }
}

#[test]
fn threads_load_each_block_once_at_a_time_and_never_see_another() {
    const BLOCKS: u64 = 64;
    let budget = MemoryBudget::new(200_000);
    let cache = Cache::new(budget.clone());
    let loading: Vec<AtomicU32> = (0..BLOCKS).map(|_| AtomicU32::new(0)).collect();
    let loads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cache, loading, loads, budget) = (&cache, &loading, &loads, &budget);
            scope.spawn(move || {
                let mut random = Random(thread);
                for round in 0..5_000 {
                    let slot = random.below(BLOCKS);
                    let offset = slot * 40_000;
                    let fails = random.below(20) == 0;
                    let result = cache.get(offset, Priority::Normal, || {
                        assert_eq!(loading[slot as usize].fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        loads.fetch_add(1, Ordering::Relaxed);
                        let loaded = block(offset, 4_000);
                        loading[slot as usize].fetch_sub(1, Ordering::SeqCst);
                        if fails { Err(Error::corruption("no")) } else { Ok(loaded) }
                    });
                    match result {
                        Ok(found) => assert_eq!(offset_in(&found), offset),
                        Err(_) => assert!(fails),
                    }
                    match round % 50 {
                        0 => cache.remove_range(Extent { start: random.below(600), pages: 20 }),
                        1 => budget.set_limit(100_000 + random.below(200_000) as usize),
                        _ => {}
                    }
                }
            });
        }
    });
    cache.trim();
    let held: usize =
        (0..BLOCKS).filter_map(|slot| cache.lookup(slot * 40_000)).map(|found| shard::entry_bytes(&found)).sum();
    assert_eq!(held, cache.bytes());
    assert_eq!(held, budget.used(Purpose::Cache));
    assert!(cache.bytes() <= budget.cache_allowance());
    assert!(loads.load(Ordering::Relaxed) > BLOCKS);
}

#[test]
fn a_load_that_panics_lets_the_others_go() {
    let cache = Cache::new(MemoryBudget::new(1 << 20));
    let panics = std::panic::AssertUnwindSafe(|| {
        let _ = cache.get(0, Priority::Normal, || panic!("a load fails badly"));
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(cache.get(0, Priority::Normal, || Ok(block(0, 10))).map(|found| offset_in(&found)).ok(), Some(0));
}

#[test]
fn a_scan_does_not_push_out_what_is_used() {
    let cache = Cache::new(MemoryBudget::new(1 << 20));
    let (kept, scanned) = (0..40u64, 1000..5000u64);
    for slot in kept.clone() {
        cache.insert(slot * 40_000, block(slot * 40_000, 10_000), Priority::High);
    }
    for slot in scanned {
        cache.insert(slot * 40_000, block(slot * 40_000, 10_000), Priority::Low);
        if slot % 20 == 0 {
            kept.clone().for_each(|slot| {
                cache.lookup(slot * 40_000);
            });
        }
    }
    let left = kept.filter(|slot| cache.lookup(slot * 40_000).is_some()).count();
    assert!(left >= 38, "left={left}");
    assert!(cache.statistics().evictions > 3000);
}

/// Reads the blocks of `slots` in turn; how many had to be loaded.
fn loads(cache: &Cache, slots: impl Iterator<Item = u64>) -> usize {
    let mut loads = 0;
    for slot in slots {
        let offset = slot * 40_000;
        let found = cache.get(offset, Priority::Normal, || {
            loads += 1;
            Ok(block(offset, 10_000))
        });
        assert_eq!(found.map(|found| offset_in(&found)).ok(), Some(offset));
    }
    loads
}

/// A budget of which `bytes` are left to what is counted.
fn leaving(bytes: usize) -> MemoryBudget {
    MemoryBudget::new(bytes / 3 * 4)
}

#[test]
fn blocks_that_are_read_now_and_then_outlast_those_read_once() {
    let cache = Cache::new(leaving(896 << 10)); // of about a hundred blocks
    let (often, mut once) = (0..40u64, 1_000..u64::MAX);
    // Of 140 reads each 40 are of the same blocks: a cache that goes by the latest use never finds one of them.
    let mut rounds = || {
        let passing = once.by_ref().take(100);
        loads(&cache, passing);
        loads(&cache, often.clone())
    };
    let before: Vec<usize> = (0..3).map(|_| rounds()).collect();
    let after: Vec<usize> = (0..20).map(|_| rounds()).collect();
    assert_eq!(before[0], 40);
    assert_eq!(after, [0; 20], "before: {before:?}");
    assert!(cache.statistics().evictions > 2_000);
}

#[test]
fn blocks_in_use_outlast_large_values_that_are_read_now_and_then() {
    for priority in [Priority::Low, Priority::Normal] {
        let cache = Cache::new(leaving(8 << 20));
        loads(&cache, (0..300).chain(0..300));
        for _ in 0..3 {
            (0..64).for_each(|number| cache.add_chunk((1 << 40) + number * (300 << 10), &[7; 256 << 10], priority));
        }
        let left = (0..300).filter(|slot| cache.contains(slot * 40_000)).count();
        assert!(left >= 270, "{left} of 300, {priority:?}");
        assert!(cache.is_full() && cache.chunk((1 << 40) + 63 * (300 << 10)).is_some());
        cache.shards.iter().for_each(|shard| shard.check_line());
    }
}

#[test]
fn a_block_that_comes_back_soon_skips_the_line_and_one_of_a_scan_does_not() {
    let cache = Cache::new(leaving(896 << 10));
    loads(&cache, (0..60).chain(0..60)); // in use, so that the line is short
    loads(&cache, 100..200);
    assert!(cache.is_full() && cache.contains(0));
    let gone = (100..200u64).rfind(|slot| !cache.contains(slot * 40_000)).expect("some are gone");
    let passing = |from: u64| loads(&cache, from..from + 60);
    assert_eq!(loads(&cache, [gone].into_iter()), 1);
    passing(1_000);
    assert!(cache.contains(gone * 40_000));
    // As many pass by one that was never here, or was brought in by a scan.
    assert_eq!(loads(&cache, [500].into_iter()), 1);
    cache.insert(501 * 40_000, block(501 * 40_000, 10_000), Priority::Low);
    passing(2_000);
    assert!(!cache.contains(500 * 40_000) && !cache.contains(501 * 40_000));
    cache.insert(501 * 40_000, block(501 * 40_000, 10_000), Priority::Low);
    passing(3_000);
    assert!(!cache.contains(501 * 40_000));
}

#[test]
fn a_block_that_a_scan_brought_in_stays_like_others_once_they_ask_for_it() {
    let lasts = |asked: Priority| {
        let cache = Cache::new(leaving(896 << 10));
        let insert = |slot: u64, priority| cache.insert(slot * 40_000, block(slot * 40_000, 10_000), priority);
        let ask = || cache.get(0, asked, || Err(Error::internal("it is here"))).map(drop).expect("finds it");
        insert(0, Priority::Low);
        ask();
        (1..300).for_each(|slot| insert(slot, Priority::Low)); // so that its probation ends
        ask();
        (1_000..9_000)
            .position(|slot| {
                insert(slot, Priority::High);
                !cache.contains(0)
            })
            .expect("goes some time")
    };
    assert!(lasts(Priority::High) > lasts(Priority::Low));
}

/// A block's stored form in these tests: what [`unpack`] makes a block of.
fn stored(offset: u64, version: u64) -> [u8; 16] {
    let mut stored = [0; 16];
    stored[..8].copy_from_slice(&offset.to_le_bytes());
    stored[8..].copy_from_slice(&version.to_le_bytes());
    stored
}

/// A block of 12 KB in the cache's memory, from its stored form.
fn unpack(cache: &Cache, stored: &[u8]) -> crate::base::Result<EntryBlock> {
    EntryBlock::decode_in(&raw_block(stored, 12_000), 0, cache.pool())
}

/// A cache that packs blocks where it is short of room, however fast they are read.
fn packing(budget: &MemoryBudget) -> Cache {
    let cache = Cache::new(budget.clone());
    cache.packs_always.store(true, Ordering::Relaxed);
    cache
}

/// Gets the block at `offset`, and tells whether it was read.
fn get_entries(cache: &Cache, offset: u64, version: u64, priority: Priority) -> bool {
    let mut read = false;
    let found = cache.entries(
        offset,
        priority,
        |stored| unpack(cache, stored),
        |visit| {
            read = true;
            visit(&stored(offset, version))
        },
    );
    let found = found.expect("loads");
    assert_eq!(found.message(0, b"").payload[..16], stored(offset, version), "offset={offset}");
    read
}

#[test]
fn a_full_cache_holds_packed_blocks_and_decodes_those_that_are_hot() {
    let budget = leaving(1792 << 10);
    let cache = packing(&budget);
    let offsets = || (0..400u64).map(|slot| slot * 40_000);
    let reads = |offsets: &mut dyn Iterator<Item = u64>| {
        offsets.filter(|offset| get_entries(&cache, *offset, 1, Priority::Normal)).count()
    };
    // 400 blocks of 12 KB in 2 MiB: after the second pass all that are read often enough are here.
    assert_eq!(reads(&mut offsets()), 400);
    reads(&mut offsets());
    reads(&mut offsets());
    assert_eq!(reads(&mut offsets()), 0);
    assert!(cache.bytes() <= budget.cache_allowance());
    let before = cache.statistics();
    assert!(cache.packed_blocks() > 200 && before.decodes > 200, "{before:?}");

    // Each of a few is decoded some times, until it stays so; others in between take the recent places.
    let few = || offsets().take(3);
    for _ in 0..2 * HOT_DECODES_MIN {
        reads(&mut few());
        reads(&mut offsets().skip(300));
    }
    let before = cache.statistics().decodes;
    assert_eq!(reads(&mut few()), 0);
    assert_eq!(cache.statistics().decodes, before);

    // With room, all are decoded once more and then no longer, but for those that are recent forever.
    budget.set_limit(64 << 20);
    reads(&mut offsets());
    let before = cache.statistics().decodes;
    assert_eq!(reads(&mut offsets()), 0);
    let after = cache.statistics();
    assert_eq!(after.decodes, before);
    assert!(cache.packed_blocks() <= 16 * shard::RECENT_MAX, "{after:?}");
}

#[test]
fn the_slower_reads_are_the_more_often_a_block_is_decoded_before_it_stays_so() {
    let set = |cache: &Cache, read: u64, decode: u64| {
        cache.read_nanos.store(read * MEAN_OVER, Ordering::Relaxed);
        cache.decode_nanos.store(decode * MEAN_OVER, Ordering::Relaxed);
    };
    for (read, decode, expected) in
        [(0, 0, 6), (90_000, 15_000, 6), (300_000, 15_000, 20), (4_000_000, 12_000, 63), (u64::MAX / MEAN_OVER, 1, 63)]
    {
        let cache = Cache::new(leaving(1792 << 10));
        set(&cache, read, decode);
        assert_eq!(cache.hot_decodes(), expected, "read={read} decode={decode}");
    }

    let budget = leaving(1792 << 10);
    let cache = packing(&budget);
    let read = |slots: std::ops::Range<u64>| {
        for slot in slots {
            // Blocks that are read here tell how long it took.
            set(&cache, 300_000, 15_000);
            get_entries(&cache, slot * 40_000, 1, Priority::Normal);
        }
    };
    (0..3).for_each(|_| read(0..400));
    // The hand does not come by: what is read in between is here.
    let decoded = |uses: u64| {
        let blocks = cache.packed_blocks();
        for _ in 0..uses {
            read(0..3);
            read(300..390);
        }
        blocks - cache.packed_blocks()
    };
    assert_eq!(decoded(15), 0);
    assert!(decoded(10) >= 3);
}

#[test]
fn a_statement_that_comes_back_to_a_packed_block_finds_it_decoded() {
    let cache = packing(&MemoryBudget::new(1 << 20));
    (0..400u64).for_each(|slot| {
        get_entries(&cache, slot * 40_000, 1, Priority::Normal);
    });
    let before = cache.statistics();
    (0..10).for_each(|_| assert!(!get_entries(&cache, 399 * 40_000, 1, Priority::Normal)));
    let after = cache.statistics();
    assert_eq!(after.decodes, before.decodes);
    assert_eq!(after.hits[0], before.hits[0] + 10);
}

#[test]
fn a_packed_block_that_is_damaged_is_an_error() {
    let cache = packing(&MemoryBudget::new(1 << 20));
    (0..400u64).for_each(|slot| {
        get_entries(&cache, slot * 40_000, 1, Priority::Low);
    });
    let packed = (0..400u64).map(|slot| slot * 40_000).rfind(|offset| cache.contains(*offset)).expect("some are here");
    let damaged = |_: &[u8]| Err(Error::corruption("no"));
    let found = cache.entries(packed, Priority::Normal, damaged, |_| Err(Error::internal("is here")));
    assert_eq!(found.map(|_| ()).map_err(|error| error.kind()), Err(crate::base::ErrorKind::Corruption));
    assert!(!get_entries(&cache, packed, 1, Priority::Normal));
}

#[test]
fn blocks_are_packed_only_where_reads_are_slow() {
    let cache = Cache::new(MemoryBudget::new(1 << 20));
    let micros = |micros| std::time::Duration::from_micros(micros);
    let packed = || {
        (0..400u64).for_each(|slot| {
            get_entries(&cache, slot * 40_000, 1, Priority::Normal);
        });
        cache.remove_range(Extent { start: 0, pages: 400 });
        cache.packed_blocks() > 0
    };
    (0..100).for_each(|_| cache.learn(micros(30), micros(15)));
    assert!(!cache.is_pressed());
    (0..10_000).for_each(|_| cache.learn(micros(0), micros(15)));
    let mean = cache.read_nanos.load(Ordering::Relaxed) / MEAN_OVER;
    assert!(mean > 20_000, "what was not read from a device tells nothing");
    assert!(!packed());
    (0..100).for_each(|_| cache.learn(micros(5_000), micros(15)));
    assert!(packed());
    // A limited volume: nine reads at once, one that waits.
    for read in 0..10_000 {
        cache.learn(micros(if read % 10 == 9 { 5_000 } else { 30 }), micros(15));
        let mean = |lately: &AtomicU64| lately.load(Ordering::Relaxed);
        assert!(mean(&cache.read_nanos) > SLOW_READ * mean(&cache.decode_nanos), "read {read}");
    }
    (0..10_000).for_each(|_| cache.learn(micros(30), micros(15)));
    assert!(!packed());
}

#[derive(Debug, Clone)]
enum PackedStep {
    Get { slot: u64, times: u8, priority: u8 },
    Reuse { page: u64, pages: u32 },
    SetLimit { bytes: usize },
}

fn packed_step() -> impl Strategy<Value = PackedStep> {
    prop_oneof![
        12 => (0u64..200, 1u8..10, 0u8..2).prop_map(|(slot, times, priority)| PackedStep::Get { slot, times, priority }),
        1 => (0u64..1100, 1u32..300).prop_map(|(page, pages)| PackedStep::Reuse { page, pages }),
        1 => (100_000usize..3_000_000).prop_map(|bytes| PackedStep::SetLimit { bytes }),
    ]
}

proptest! {
    /// Whatever form a block is held in, what is found is what its place holds now.
    #[test]
    fn a_packed_block_is_never_an_earlier_one(steps in prop::collection::vec(packed_step(), 1..400)) {
        let budget = MemoryBudget::new(300_000);
        let cache = packing(&budget);
        let mut versions = vec![0u64; 200];
        let offset_of = |slot: u64| slot * 22_123;
        for step in steps {
            match step {
                PackedStep::Get { slot, times, priority } => {
                    let priority = [Priority::Low, Priority::Normal][usize::from(priority)];
                    for _ in 0..times {
                        get_entries(&cache, offset_of(slot), versions[slot as usize], priority);
                    }
                }
                PackedStep::Reuse { page, pages } => {
                    let extent = Extent { start: page, pages };
                    cache.remove_range(extent);
                    let inside = extent.offset()..extent.offset() + extent.bytes();
                    let reused = (0..200).filter(|slot| inside.contains(&offset_of(*slot)));
                    reused.for_each(|slot| versions[slot as usize] += 1);
                }
                PackedStep::SetLimit { bytes } => {
                    budget.set_limit(bytes);
                    cache.trim();
                }
            }
            prop_assert!(cache.bytes() <= budget.cache_allowance());
            prop_assert_eq!(cache.bytes(), budget.used(Purpose::Cache));
            cache.shards.iter().for_each(|shard| shard.check_line());
        }
        cache.remove_range(Extent { start: 0, pages: 2000 });
        prop_assert_eq!(cache.statistics().blocks, 0);
        prop_assert_eq!(cache.pool().resident_bytes(), cache.bytes());
        drop(cache);
        prop_assert_eq!(budget.used(Purpose::Cache), 0);
    }
}

#[test]
fn threads_that_share_packed_blocks_find_their_own() {
    const BLOCKS: u64 = 64;
    let budget = MemoryBudget::new(300_000);
    let cache = packing(&budget);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cache, budget) = (&cache, &budget);
            scope.spawn(move || {
                let mut random = Random(thread);
                for round in 0..3_000 {
                    let priority = if random.below(8) == 0 { Priority::Low } else { Priority::Normal };
                    // Half of the reads go to a few blocks, so that some become hot.
                    let slot = random.below(if round % 2 == 0 { 4 } else { BLOCKS });
                    get_entries(cache, slot * 40_000, 1, priority);
                    match round % 50 {
                        0 => cache.remove_range(Extent { start: random.below(600), pages: 20 }),
                        1 => budget.set_limit(200_000 + random.below(400_000) as usize),
                        _ => {}
                    }
                }
            });
        }
    });
    cache.trim();
    assert_eq!(cache.bytes(), budget.used(Purpose::Cache));
    assert!(cache.bytes() <= budget.cache_allowance());
    assert!(cache.statistics().decodes > 0);
    cache.remove_range(Extent { start: 0, pages: 1000 });
    assert_eq!(cache.pool().resident_bytes(), cache.bytes());
}

/// `cargo test --release -p fronddb speed_of_the_cache -- --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn speed_of_the_cache() {
    let cache = Cache::new(MemoryBudget::new(1 << 30));
    for (count, rounds) in [(100u64, 20_000u64), (20_000, 100)] {
        (0..count).for_each(|slot| cache.insert(slot * 12_345, block(slot * 12_345, 100), Priority::Normal));
        let mut random = Random(1);
        let offsets: Vec<u64> = (0..count).map(|_| random.below(count) * 12_345).collect();
        let start = CpuTime::now();
        for _ in 0..rounds {
            for offset in &offsets {
                let found = cache.get(*offset, Priority::Normal, || Err(Error::internal("is cached")));
                std::hint::black_box(&found);
            }
        }
        println!("lookup among {count} blocks: {:.0} ns", start.elapsed() / (rounds * count) as f64);
    }
}

/// Memory of the process against what the cache counts, after much eviction.
#[test]
#[ignore = "measures"]
fn memory_of_the_cache() {
    let resident = || -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").expect("is there");
        text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
    };
    // Real blocks, decoded as a reader does, and now and then an index or a filter of another size.
    let samples = &iibench(40_000);
    let mut raws = Vec::new();
    for tree in samples {
        let mut builder = EntryBlockBuilder::new(false);
        for sample in tree {
            if builder.size() + sample.key.len() + sample.payload.len() + 16 > 16 << 10 {
                let mut raw = Vec::new();
                builder.finish(Layout::default(), &mut raw);
                raws.push(raw);
            }
            builder.add(&sample.message());
        }
    }
    let before = resident();
    let cache = Cache::new(MemoryBudget::new(256 << 20));
    let mut random = Random(1);
    for round in 0..200_000u64 {
        let offset = random.below(2 << 30);
        let cached = match random.below(20) {
            0 => block(offset, random.below(100_000) as usize),
            _ => {
                let raw = &raws[random.below(raws.len() as u64) as usize];
                CachedBlock::Entries(Arc::new(EntryBlock::decode(raw, 0).expect("decodes")))
            }
        };
        cache.insert(offset, cached, Priority::Normal);
        if round % 50_000 == 49_999 {
            let (resident, counted) = (resident() - before, cache.bytes());
            println!(
                "resident {} MiB, counted {} MiB: {:+.1} %",
                resident >> 20,
                counted >> 20,
                (resident as f64 / counted as f64 - 1.0) * 100.0
            );
        }
    }
}

#[test]
fn what_is_peeked_at_is_not_in_use() {
    let budget = MemoryBudget::new(1 << 20);
    let cache = Cache::new(budget);
    let decode = |raw: &[u8]| EntryBlock::decode(raw, 0);
    assert!(cache.peek(0, decode).expect("peeks").is_none());
    for number in 0..2000u64 {
        cache.insert(number << 14, block(number << 14, 4000), Priority::Low);
        let (_, stays) = cache.peek(number << 14, decode).expect("peeks").expect("the newest stays");
        assert_eq!(stays, !cache.is_full(), "number={number}");
    }
    assert!(cache.is_full());
    let kept = (0..2000).map(|number| number << 14).filter(|offset| cache.contains(*offset)).last().expect("some stay");
    assert!(cache.lookup(kept).is_some());
    assert!(cache.peek(kept, decode).expect("peeks").expect("is there").1);
    assert_eq!(cache.statistics().hits[0], 1);
}

#[test]
fn blocks_of_data_that_cannot_fit_are_packed_from_the_first_on() {
    let budget = leaving(4 << 20);
    let cache = packing(&budget);
    let read = |slots: std::ops::Range<u64>| {
        slots.for_each(|slot| assert!(get_entries(&cache, slot * 40_000, 1, Priority::Normal)));
        cache.packed_blocks()
    };
    cache.set_data_bytes(budget.cache_allowance() as u64);
    assert_eq!(read(0..20), 0, "all may fit");
    cache.set_data_bytes(budget.cache_allowance() as u64 + 1);
    assert_eq!(read(20..60), 40);
    let few = || (20..23u64).for_each(|slot| assert!(!get_entries(&cache, slot * 40_000, 1, Priority::Normal)));
    few();
    assert_eq!(cache.packed_blocks(), 40, "one use more does not make them hot");
    assert!(!cache.is_full());
}

#[test]
fn an_adopted_block_is_packed_where_a_read_one_would_be() {
    let budget = MemoryBudget::new(1 << 20);
    let cache = Cache::new(budget);
    cache.packs_always.store(true, Ordering::Relaxed);
    let decode = |raw: &[u8]| EntryBlock::decode(raw, 0);
    for number in 0..400u64 {
        let (offset, raw) = (number << 14, raw_block(&(number << 14).to_le_bytes(), 4000));
        cache.adopt(offset, cache.pool().copy(&raw), 2 * raw.len(), decode);
        let (adopted, _) = cache.peek(offset, decode).expect("peeks").expect("the newest stays");
        assert_eq!(offset_in(&CachedBlock::Entries(adopted)), offset);
    }
    assert!(cache.is_full() && cache.packed_blocks() > 0);
    assert_eq!(cache.statistics().decodes, 0, "to peek is no use");
    let blocks = cache.statistics().blocks;
    cache.adopt(1 << 30, cache.pool().copy(&[7; 40]), 40, decode);
    assert!(!cache.contains(1 << 30) && cache.statistics().blocks == blocks, "what is damaged stays out");
}
