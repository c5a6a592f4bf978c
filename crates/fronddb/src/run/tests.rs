//! Runs against a plain list of messages, with damage, failures of the storage, and their speed.

mod ahead;
mod clip;
mod damage;
mod heirs;
mod index;
mod remembered;

use super::{
    CodecTable, CursorMode, Place, Run, RunCounters, RunOptions, RunWriter, read_blob, read_cached_blob, write_blob,
};
use crate::base::checksum::key_hash;
use crate::base::compress::Codec;
use crate::base::key::KeyRange;
use crate::base::memory::{MemoryBudget, Purpose};
use crate::base::random::{Random, mix};
use crate::base::space::PAGE_BYTES;
use crate::base::{ErrorKind, RunId, TreeId, TxnId, key};
use crate::cache::{Cache, Priority};
use crate::format::block::Held;
use crate::format::block::samples::{CpuTime, Sample, iibench, mixed};
use crate::format::message::Kind;
use crate::format::{Message, RangeDelete, RunMeta, Stamp, SuperblockBody};
use crate::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};
use crate::store::{DATA_FILE, Store, StoreOptions, Urgency};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

struct World {
    memory: MemoryStorage,
    store: Arc<Store>,
    cache: Arc<Cache>,
    counters: Arc<RunCounters>,
    plan: FaultPlan,
    options: RunOptions,
}

fn world() -> World {
    let memory = MemoryStorage::new();
    let plan = FaultPlan::new();
    let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(Arc::new(memory.clone()), plan.clone()));
    storage.create_dir_all(Path::new("/db")).expect("creates");
    let options = StoreOptions { reserve_bytes: 0, ..StoreOptions::default() };
    let store =
        Store::create(&storage, Path::new("/db"), &options, [1; 16], SuperblockBody::default()).expect("creates");
    let cache = Arc::new(Cache::new(MemoryBudget::new(64 << 20)));
    let options = RunOptions {
        block_bytes: 1 << 10,
        filter_bits_per_key: 10,
        has_seq: false,
        codecs: CodecTable::new(Codec::default()),
        cache: cache.clone(),
    };
    World { memory, store, cache, counters: Arc::default(), plan, options }
}

impl World {
    fn write(&self, samples: &[Sample]) -> crate::base::Result<RunMeta> {
        let mut writer = RunWriter::new(&self.store, RunId(7), &self.options, 0);
        for sample in samples {
            writer.add(&sample.message())?;
        }
        writer.finish().map(|(meta, _)| meta)
    }

    fn open(&self, meta: &RunMeta) -> Arc<Run> {
        // What is written down is what is opened.
        let mut stored = Vec::new();
        meta.encode(&mut stored);
        let mut decoder = crate::base::codec::Decoder::new(&stored);
        let meta = RunMeta::decode(&mut decoder).expect("decodes");
        decoder.finish().expect("nothing left");
        Run::new(meta, &self.store, &self.cache, &self.counters)
    }

    fn forget_cached(&self, meta: &RunMeta) {
        meta.extents.iter().for_each(|extent| self.cache.remove_range(*extent));
        assert_eq!(self.cache.statistics().blocks, 0);
    }

    /// But for what is kept for a full disk.
    fn used(&self) -> u64 {
        let statistics = self.store.statistics();
        statistics.used_bytes - statistics.reserve_bytes
    }
}

fn mode(number: u64) -> CursorMode {
    CursorMode {
        fill_cache: number.is_multiple_of(2),
        read_ahead_bytes: [0, 3 << 10, 256 << 10][(number / 2 % 3) as usize],
        is_long: number / 6 % 2 == 1,
        asks_ahead: number / 12 % 2 == 1,
    }
}

/// Messages, and bytes of their large values.
fn counts<'a>(samples: impl Iterator<Item = &'a Sample>) -> (u64, u64) {
    samples.fold((0, 0), |sum, sample| (sum.0 + 1, sum.1 + sample.message().blob_bytes()))
}

fn probe(samples: &[Sample], random: &mut Random) -> Vec<u8> {
    let mut key = samples[random.below(samples.len() as u64) as usize].key.clone();
    match random.below(8) {
        0 => {
            key.pop();
        }
        1 => key.push(0),
        2 => {
            let at = random.below(key.len() as u64) as usize;
            key[at] = random.next() as u8;
        }
        3 => key.truncate(random.below(key.len() as u64) as usize),
        _ => {}
    }
    key
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_run_is_the_list_it_was_written_from(seed: u64, count in 1usize..3000, has_seq: bool, block_bytes in 1usize..5, expected: bool) {
        let samples = mixed(seed, count);
        let mut world = world();
        world.options.has_seq = has_seq;
        world.options.block_bytes = 1 << (block_bytes + 9);
        world.options.codecs.set(TreeId(6), Some([Codec::None, Codec::Lz4][(seed % 2) as usize]));
        let mut writer = RunWriter::new(&world.store, RunId(7), &world.options, if expected { 3 << 20 } else { 0 });
        for sample in &samples {
            writer.add(&sample.message())?;
        }
        let (meta, _) = writer.finish()?;
        let run = world.open(&meta);
        run.verify()?;
        prop_assert_eq!(meta.messages, samples.len() as u64);
        prop_assert_eq!(&meta.first_key, &samples[0].key);
        prop_assert_eq!(&meta.last_key, &samples[samples.len() - 1].key);
        prop_assert!(meta.extent_bytes() < meta.bytes + 3 * PAGE_BYTES);
        let seq_of = |sample: &Sample| if has_seq { sample.seq } else { meta.max_seq };

        let mut cursor = run.cursor(mode(seed));
        let mut random = Random(seed);
        for (index, sample) in samples.iter().enumerate() {
            let more = if index == 0 { cursor.first()? } else { cursor.next()? };
            prop_assert!(more);
            let mut expected = sample.message();
            expected.seq = seq_of(sample);
            prop_assert_eq!(cursor.message(), expected);
            let payload = cursor.payload();
            prop_assert_eq!(&payload[..], &sample.payload[..]);
        }
        prop_assert!(!cursor.next()? && !cursor.valid() && !cursor.next()? && !cursor.prev()?);
        for (index, sample) in samples.iter().rev().enumerate() {
            let more = if index == 0 { cursor.last()? } else { cursor.prev()? };
            prop_assert!(more);
            prop_assert_eq!(cursor.key(), &sample.key[..]);
            prop_assert_eq!(cursor.message().payload, &sample.payload[..]);
        }
        prop_assert!(!cursor.prev()?);

        for _ in 0..100 {
            let key = probe(&samples, &mut random);
            let bound = samples.partition_point(|sample| sample.key < key);
            let mut found = Vec::new();
            let flow = run.get(&key, key_hash(&key), &mut |message| {
                found.push((message.seq, message.payload.to_vec()));
                ControlFlow::Continue(())
            })?;
            prop_assert!(flow.is_continue());
            let expected: Vec<_> = samples[bound..]
                .iter()
                .take_while(|sample| sample.key == key)
                .map(|sample| (seq_of(sample), sample.payload.clone()))
                .collect();
            prop_assert_eq!(found, expected);

            prop_assert_eq!(cursor.seek(&key)?, bound < samples.len());
            for sample in samples[bound..].iter().take(5) {
                prop_assert_eq!(cursor.key(), &sample.key[..]);
                prop_assert_eq!(cursor.message().payload, &sample.payload[..]);
                cursor.next()?;
            }
            prop_assert_eq!(cursor.seek_before(&key)?, bound > 0);
            for sample in samples[..bound].iter().rev().take(5) {
                prop_assert_eq!(cursor.key(), &sample.key[..]);
                prop_assert_eq!(cursor.message().payload, &sample.payload[..]);
                cursor.prev()?;
            }
        }

        // With all blocks cached, estimates are exact.
        let mut warm = run.cursor(CursorMode { fill_cache: true, read_ahead_bytes: 0, is_long: false, asks_ahead: false });
        let mut more = warm.first()?;
        while more {
            more = warm.next()?;
        }
        let mut ends = [probe(&samples, &mut random), probe(&samples, &mut random)];
        ends.sort();
        let between = samples.iter().filter(|sample| ends[0] <= sample.key && sample.key < ends[1]);
        let found = |held: Held| (held.messages, held.blob_bytes);
        if !ends[1].is_empty() {
            prop_assert_eq!(found(run.estimate(&ends[0], &ends[1])?), counts(between));
        }
        prop_assert_eq!(found(run.estimate(&[], &[])?), counts(samples.iter()));
        prop_assert_eq!((meta.messages, meta.blob_bytes), counts(samples.iter()));
    }

    #[test]
    fn a_bounded_cursor_finds_all_that_is_wanted_and_reads_no_block_beyond(seed: u64, count in 1usize..2000, block_bytes in 0usize..3) {
        let samples = mixed(seed, count);
        let mut world = world();
        world.options.block_bytes = 256 << block_bytes;
        let meta = world.write(&samples)?;
        let run = world.open(&meta);
        let mut random = Random(seed);
        for round in 0..30 {
            let mut ends = [probe(&samples, &mut random), probe(&samples, &mut random)];
            ends.sort();
            let [lower, upper] = ends;
            let places = [&lower, &upper].map(|end| samples.partition_point(|sample| sample.key < *end));
            let wanted = &samples[places[0]..places[1]];
            let range = KeyRange { lower: lower.clone(), upper: Some(upper.clone()) };
            let mut cursor = run.cursor_within(mode(seed + round), &Arc::new(range));
            let is_wanted = |key: &[u8]| lower.as_slice() <= key && key < upper.as_slice();
            let mut more = cursor.seek(&lower)?;
            for sample in wanted {
                prop_assert!(more);
                prop_assert_eq!(cursor.key(), &sample.key[..]);
                prop_assert_eq!(cursor.message().payload, &sample.payload[..]);
                more = cursor.next()?;
            }
            prop_assert!(!more || !is_wanted(cursor.key()));
            more = cursor.seek_before(&upper)?;
            for sample in wanted.iter().rev() {
                prop_assert!(more);
                prop_assert_eq!(cursor.key(), &sample.key[..]);
                prop_assert_eq!(cursor.message().payload, &sample.payload[..]);
                more = cursor.prev()?;
            }
            prop_assert!(!more || !is_wanted(cursor.key()));
            prop_assert!(!cursor.seek_before(&lower)? && !cursor.seek(&upper)?);
            prop_assert!(run.border_after(&lower).is_none_or(|border| border > lower));
        }
    }

    #[test]
    fn every_flipped_bit_of_a_run_is_noticed(seed: u64, count in 1usize..400, place: prop::sample::Index, bit in 0u8..8) {
        let world = world();
        let samples = mixed(seed, count);
        let meta = world.write(&samples)?;
        let run = world.open(&meta);
        run.verify()?;
        // Padding between and after the blocks does not count.
        let mut offsets = Vec::new();
        let mut blocks = vec![meta.index, meta.filter];
        let index = run.read_index(meta.index, super::counters::Event::BlockReadMeta)?;
        blocks.extend((0..index.count()).map(|at| index.entry(at).ptr));
        blocks.iter().for_each(|ptr| offsets.extend(ptr.offset..ptr.offset + u64::from(ptr.stored)));
        let offset = offsets[place.index(offsets.len())];
        world.memory.flip_bit(&Path::new("/db").join(DATA_FILE), offset, bit)?;
        let error = run.verify().expect_err("noticed");
        prop_assert_eq!(error.kind(), ErrorKind::Corruption);
        let message = error.to_string();
        prop_assert!(["file=/db/data.frond", "offset=", "run=7", "tree="].iter().all(|part| message.contains(part)), "{}", message);
        // Reading never gives anything that was not written, and never panics.
        world.forget_cached(&meta);
        let mut cursor = run.cursor(mode(seed));
        let mut at = 0;
        let mut step = cursor.first();
        while let Ok(true) = step {
            prop_assert_eq!(cursor.key(), &samples[at].key[..]);
            at += 1;
            step = cursor.next();
        }
        prop_assert!(step.is_err() || at == samples.len());
        if step.is_err() {
            prop_assert!(!cursor.valid());
        }
    }

    #[test]
    fn blobs_come_back_and_their_damage_is_noticed(bytes in 0usize..3_000_000, compressible: bool, place: prop::sample::Index) {
        let world = world();
        let mut random = Random(bytes as u64);
        let value: Vec<u8> = if compressible { b"frond ".iter().copied().cycle().take(bytes).collect() } else { random.bytes(bytes) };
        let blob = write_blob(&world.store, Codec::default(), &value)?;
        prop_assert_eq!(&read_blob(&world.store, &blob)?, &value);
        let read = |keeps: bool| {
            let keeps = keeps.then_some(Priority::Normal);
            read_cached_blob(&world.store, &world.cache, keeps, &blob)
        };
        prop_assert_eq!(&read(false)?, &value);
        prop_assert_eq!(world.cache.statistics().blocks, 0);
        // Some pieces are there, and others not.
        if let Some(chunk) = blob.chunks.get(place.index(blob.chunks.len().max(1))) {
            prop_assert_eq!(&read(true)?, &value);
            world.cache.forget(chunk.offset);
            prop_assert_eq!(&read(true)?, &value);
            prop_assert_eq!(world.cache.statistics().misses[4], blob.chunks.len() as u64 + 1);
        }
        if let Some(chunk) = blob.chunks.get(place.index(blob.chunks.len().max(1))) {
            let offset = chunk.offset + place.index(chunk.stored as usize) as u64;
            world.memory.flip_bit(&Path::new("/db").join(DATA_FILE), offset, 3)?;
            let error = read_blob(&world.store, &blob).expect_err("noticed");
            prop_assert_eq!(error.kind(), ErrorKind::Corruption);
            prop_assert_eq!(read(true)?, value);
        }
    }
}

/// A run of some megabytes.
fn write_large(world: &mut World) -> (Vec<Sample>, RunMeta) {
    world.options.codecs.set_default(Codec::None);
    let mut random = Random(9);
    let mut samples = iibench(30_000)[2].clone();
    samples.iter_mut().for_each(|sample| sample.payload = random.bytes(200));
    let meta = world.write(&samples).expect("writes");
    (samples, meta)
}

#[test]
fn a_large_run_has_two_index_levels_and_several_extents() {
    let mut world = world();
    world.options.block_bytes = 1 << 10;
    let (samples, meta) = write_large(&mut world);
    let run = world.open(&meta);
    run.verify().expect("is sound");
    assert_eq!(run.index(meta.index, super::path::Access::Scan).expect("reads").level(), 1);
    assert!(meta.bytes > 6 << 20);
    let mut cursor =
        run.cursor(CursorMode { fill_cache: false, read_ahead_bytes: 256 << 10, is_long: false, asks_ahead: false });
    assert!(cursor.last().expect("reads"));
    for sample in samples.iter().rev() {
        assert_eq!(cursor.key(), sample.key);
        cursor.prev().expect("reads");
    }
    for sample in samples.iter().step_by(97) {
        assert!(cursor.seek(&sample.key).expect("reads"));
        assert_eq!(cursor.message().payload, sample.payload);
    }
    let (lo, hi) = (&samples[1000].key, &samples[20_000].key);
    let Held { messages, bytes, .. } = run.estimate(lo, hi).expect("reads");
    assert!(messages.abs_diff(19_000) < 100 && bytes > 3 << 20, "messages={messages} bytes={bytes}");
    assert!(world.counters.statistics().read_aheads > 10);
}

#[test]
fn a_small_run_is_one_write_into_one_extent_of_its_size() {
    let mut world = world();
    world.options.block_bytes = 16 << 10;
    let samples = &iibench(8000)[1];
    world.write(samples).expect("warms up");
    let before = world.store.statistics();
    let meta = world.write(samples).expect("writes");
    let after = world.store.statistics();
    assert_eq!(after.writes - before.writes, 1);
    assert_eq!(meta.extents.len(), 1);
    assert_eq!(meta.extent_bytes(), meta.bytes.next_multiple_of(PAGE_BYTES));
    assert_eq!(after.used_bytes - before.used_bytes, meta.extent_bytes());
}

#[test]
fn one_key_with_many_versions_fills_many_blocks() {
    let world = world();
    let mut samples = mixed(3, 200);
    let middle = samples.len() / 2;
    let hot = samples[middle].clone();
    let versions = (0..500).map(|age| Sample { seq: 10_000_000 - age, payload: vec![age as u8; 50], ..hot.clone() });
    samples.splice(middle..=middle, versions);
    let meta = world.write(&samples).expect("writes");
    let run = world.open(&meta);
    run.verify().expect("is sound");
    let first = samples.iter().position(|sample| sample.key == hot.key).expect("is there");
    let versions: Vec<&Sample> = samples.iter().filter(|sample| sample.key == hot.key).collect();
    let mut found = 0;
    let _ = run
        .get(&hot.key, key_hash(&hot.key), &mut |message| {
            assert_eq!(message.payload, versions[found].payload);
            found += 1;
            ControlFlow::Continue(())
        })
        .expect("reads");
    assert_eq!(found, versions.len());
    let mut cursor = run.cursor(CursorMode::default());
    assert!(cursor.seek(&hot.key).expect("reads"));
    assert_eq!(cursor.message().payload, versions[0].payload);
    assert!(cursor.seek_before(&hot.key).expect("reads"));
    assert_eq!(cursor.key(), samples[first - 1].key);
    let mut above = hot.key.clone();
    above.push(0);
    assert!(cursor.seek_before(&above).expect("reads"));
    assert_eq!(cursor.message().payload, versions[versions.len() - 1].payload);
}

#[test]
fn the_largest_keys_and_values_make_large_blocks() {
    let world = world();
    let mut random = Random(4);
    let mut samples: Vec<Sample> = (0..20)
        .map(|number| Sample {
            key: key::inner(TreeId(3), &random.bytes(key::KEY_BYTES_MAX)),
            payload: random.bytes([0, 64 << 10, 3 << 20, 100][number % 4]),
            ..mixed(1, 1).remove(0)
        })
        .collect();
    samples.sort_by(|a, b| a.key.cmp(&b.key));
    let meta = world.write(&samples).expect("writes");
    let run = world.open(&meta);
    run.verify().expect("is sound");
    for sample in &samples {
        let flow = run.get(&sample.key, key_hash(&sample.key), &mut |message| {
            assert_eq!(message.payload, sample.payload);
            ControlFlow::Break(())
        });
        assert!(flow.expect("reads").is_break());
    }
    let huge = Sample { payload: vec![0; 1 << 10], ..samples[0].clone() };
    assert_eq!(world.write(&[samples[1].clone(), huge]).map(|_| ()).map_err(|e| e.kind()), Err(ErrorKind::Internal));
}

#[test]
fn thousands_of_long_keys_with_one_prefix_have_a_small_index() {
    let world = world();
    let samples: Vec<Sample> = (0..2_500u32)
        .map(|number| Sample {
            key: key::inner(TreeId(3), &[&[b'a'; 20 << 10][..], &number.to_be_bytes()].concat()),
            payload: Vec::new(),
            ..mixed(1, 1).remove(0)
        })
        .collect();
    let meta = world.write(&samples).expect("writes");
    assert!(meta.bytes < 2 << 20, "{}", meta.bytes);
    let run = world.open(&meta);
    run.verify().expect("is sound");
    for sample in samples.iter().step_by(7) {
        assert!(
            run.get(&sample.key, key_hash(&sample.key), &mut |_| ControlFlow::Break(())).expect("reads").is_break()
        );
    }
}

#[test]
fn range_deletes_travel_with_the_run() {
    let mut world = world();
    world.options.has_seq = true;
    let range = |start: u8, end: u8, seq| RangeDelete {
        start: vec![0, 0, 0, 1, start],
        end: vec![0, 0, 0, 1, end],
        seq,
        stamp: Stamp::Written { txn: TxnId(seq), step: 2 },
    };
    let mut writer = RunWriter::new(&world.store, RunId(8), &world.options, 0);
    for range in [range(9, 20, 5), range(3, 4, 6), range(3, 8, 9)] {
        writer.add_range(range).expect("adds");
    }
    assert!(writer.add_range(range(5, 5, 1)).is_err());
    let (meta, _) = writer.finish().expect("writes");
    assert_eq!((meta.range_deletes, meta.messages, meta.min_seq, meta.max_seq), (3, 0, 5, 9));
    assert_eq!(meta.unresolved, [TxnId(5), TxnId(6), TxnId(9)]);
    let run = world.open(&meta);
    run.verify().expect("is sound");
    assert_eq!(run.range_deletes().expect("reads")[..], [range(3, 8, 9), range(3, 4, 6), range(9, 20, 5)]);
    let mut cursor = run.cursor(CursorMode::default());
    assert!(!cursor.first().expect("reads") && !cursor.seek(b"x").expect("reads") && !cursor.last().expect("reads"));
    assert_eq!(run.estimate(&[], &[]).expect("reads"), Held::default());
    world.options.has_seq = false;
    let mut writer = RunWriter::new(&world.store, RunId(9), &world.options, 0);
    assert!(writer.add_range(range(1, 2, 1)).is_err());
    let (empty, _) = writer.finish().expect("writes nothing");
    assert!(empty.extents.is_empty() && empty.index.is_none());
    world.open(&empty).verify().expect("is sound");
}

#[test]
fn whatever_call_fails_the_space_comes_back() {
    for class in [CallClass::Write, CallClass::Allocate] {
        let mut failures = 0;
        for nth in 1..100 {
            let world = world();
            world.options.codecs.set_default(Codec::None);
            let mut random = Random(nth);
            let samples: Vec<Sample> =
                mixed(2, 4000).into_iter().map(|sample| Sample { payload: random.bytes(700), ..sample }).collect();
            let before = world.used();
            // A single growth that fails is made good by another.
            world.plan.add(FaultRule::from(class, nth, Fault::Error));
            let outcome = world.write(&samples);
            if let Ok(meta) = &outcome {
                meta.extents.iter().for_each(|extent| world.store.free_unpublished(*extent));
            }
            assert_eq!(world.used(), before, "class={class:?} nth={nth}");
            assert!(world.store.poisoned().is_none());
            if outcome.is_ok() {
                break;
            }
            failures += 1;
        }
        assert!(failures > 0, "class={class:?}");
    }
}

#[test]
fn a_failing_read_leaves_the_cursor_nowhere_and_can_be_repeated() {
    let world = world();
    let samples = mixed(5, 2000);
    let meta = world.write(&samples).expect("writes");
    let run = world.open(&meta);
    for nth in 1..30 {
        world.forget_cached(&meta);
        world.plan.add(FaultRule::from(CallClass::Read, nth, Fault::NoMemory));
        let mut cursor = run.cursor(CursorMode {
            fill_cache: nth % 2 == 0,
            read_ahead_bytes: 4096,
            is_long: false,
            asks_ahead: false,
        });
        let mut walk = || -> crate::base::Result<usize> {
            let mut count = 0;
            let mut more = cursor.first()?;
            while more {
                count += 1;
                more = cursor.next()?;
            }
            Ok(count)
        };
        assert_eq!(walk().map_err(|error| error.kind()), Err(ErrorKind::Io), "nth={nth}");
        world.plan.clear();
        assert_eq!(walk().expect("works again"), samples.len());
    }
}

#[test]
fn filters_answer_most_absent_keys_and_are_counted() {
    let mut world = world();
    world.options.block_bytes = 16 << 10;
    let samples = iibench(20_000)[2].clone();
    let (inside, absent): (Vec<_>, Vec<_>) = samples.iter().cloned().enumerate().partition(|(at, _)| at % 2 == 0);
    let inside: Vec<Sample> = inside.into_iter().map(|(_, sample)| sample).collect();
    let run = world.open(&world.write(&inside).expect("writes"));
    let mut asked = 0;
    for (_, sample) in absent.iter().take(9_000) {
        let _ = run.get(&sample.key, key_hash(&sample.key), &mut |_| panic!("is absent")).expect("reads");
        asked += 1;
    }
    let statistics = world.counters.statistics();
    assert_eq!(statistics.point_reads, asked);
    assert_eq!(statistics.filter_negatives + statistics.filter_positives, asked);
    assert_eq!(statistics.filter_false_positives, statistics.filter_positives);
    assert!(statistics.filter_false_positives < asked * 2 / 100, "{statistics:?}");
}

#[test]
fn where_keys_are_there_bases_are_searched_without_their_filter_until_many_are_not() {
    let mut world = world();
    world.cache = Arc::new(Cache::new(MemoryBudget::new(4 << 20)));
    world.options.cache = world.cache.clone();
    let samples = iibench(20_000)[2].clone();
    let (inside, absent): (Vec<_>, Vec<_>) = samples.iter().cloned().enumerate().partition(|(at, _)| at % 2 == 0);
    let inside: Vec<Sample> = inside.into_iter().map(|(_, sample)| sample).collect();
    let run = world.open(&world.write(&inside).expect("writes"));
    let asked = || {
        let statistics = world.counters.statistics();
        statistics.filter_negatives + statistics.filter_positives
    };
    let is_there = |sample: &Sample, place| {
        run.get_entries(&sample.key, key_hash(&sample.key), place, &mut |_, _, _| ControlFlow::Break(()))
            .expect("reads")
            .is_break()
    };
    let holds_filter = || world.cache.contains(run.meta().filter.offset);

    let mut reads = 0;
    while asked() == reads {
        assert!(is_there(&inside[reads as usize], Place::Base));
        reads += 1;
    }
    assert!((3000..7000).contains(&reads), "reads={reads}");
    // As long as there is room it stays.
    let all = || inside.iter().for_each(|sample| assert!(is_there(sample, Place::Base)));
    all();
    assert!(holds_filter());
    world.cache.set_read_nanos(1_000_000);
    world.cache.set_data_bytes(1 << 30);
    all();
    assert!(!holds_filter());
    assert_eq!(asked(), reads - 1);

    // In a buffer it is asked all the same.
    assert!(is_there(&inside[0], Place::Buffer));
    assert_eq!(asked(), reads);
    let blocks = world.counters.statistics().block_reads_point;
    for (_, sample) in &absent[..16] {
        assert!(!is_there(sample, Place::Base));
    }
    assert_eq!(asked(), reads, "the first that are absent are searched for");
    for (_, sample) in &absent[16..1000] {
        assert!(!is_there(sample, Place::Base));
    }
    assert_eq!(asked(), reads + 1000 - 16);
    assert!(world.counters.statistics().block_reads_point <= blocks + 16 + 20, "and then false positives");
}

#[test]
fn a_filter_that_no_extent_holds_has_fewer_bits() {
    let mut world = world();
    world.options.block_bytes = 64 << 10;
    world.options.filter_bits_per_key = 255;
    let mut writer = RunWriter::new(&world.store, RunId(7), &world.options, 0);
    let key = |number: u32| [&[0, 0, 0, 1], &number.to_be_bytes()[..]].concat();
    for number in 0..2_200_000u32 {
        let message =
            Message { kind: Kind::Put, key: &key(number), stamp: Stamp::Settled, seq: 0, payload: &[], blob: false };
        writer.add(&message).expect("adds");
    }
    let (meta, _) = writer.finish().expect("a filter of fewer bits");
    assert!(!meta.filter.is_none());
    let run = world.open(&meta);
    assert!((0..2_200_000).step_by(200_000).all(|number| run.may_contain(key_hash(&key(number))).expect("reads")));
    assert!(!run.may_contain(key_hash(&key(3_000_000))).expect("reads"));
    run.verify().expect("whole");
}

/// On a full disk whose free space lies in pieces.
#[test]
fn a_seal_that_finds_no_place_for_a_filter_goes_without() {
    let world = world();
    let extents: Vec<_> = (0..400).map(|_| world.store.allocate(16, Urgency::Ordinary).expect("takes")).collect();
    world.memory.set_capacity(world.memory.occupied_bytes());
    while world.store.allocate(1, Urgency::Ordinary).is_ok() {}
    extents.iter().step_by(2).for_each(|extent| world.store.free_unpublished(*extent));
    let key = |number: u32| [&[0, 0, 0, 1], &number.to_be_bytes()[..]].concat();
    let write = |urgency| {
        let mut writer = RunWriter::new(&world.store, RunId(7), &world.options, 0).with_urgency(urgency);
        for number in 0..60_000u32 {
            let (key, stamp) = (key(number), Stamp::Settled);
            let message = Message { kind: Kind::Put, key: &key, stamp, seq: 0, payload: &[], blob: false };
            writer.add(&message)?;
        }
        writer.finish().map(|(meta, _)| meta)
    };
    let used = world.used();
    assert_eq!(write(Urgency::Ordinary).map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
    assert_eq!(world.used(), used);
    let meta = write(Urgency::Seal).expect("level 0 is emptied");
    assert!(meta.filter.is_none() && meta.bytes <= meta.extent_bytes());
    let run = world.open(&meta);
    assert!((0..60_000).step_by(1_000).all(|number| run.may_contain(key_hash(&key(number))).expect("reads")));
    run.verify().expect("whole");
}

#[test]
fn range_deletes_that_no_block_holds_come_back() {
    let mut world = world();
    world.options.has_seq = true;
    let mut random = Random(5);
    for (count, parts) in [(1, 1..=1), (100, 1..=1), (5_000, 10..=100)] {
        let before = world.counters.statistics().block_reads_meta;
        let mut writer = RunWriter::new(&world.store, RunId(7), &world.options, 0);
        let mut wanted: Vec<RangeDelete> = (0..count)
            .map(|number| {
                let start = [&[0, 0, 0, 1], &random.next().to_be_bytes()[..]].concat();
                let end = [&start[..], b"x"].concat();
                RangeDelete { start, end, seq: number, stamp: Stamp::Written { txn: TxnId(number % 3 + 1), step: 0 } }
            })
            .collect();
        for range in &wanted {
            writer.add_range(range.clone()).expect("adds");
        }
        wanted.sort_by(|a, b| a.start.cmp(&b.start));
        let (meta, _) = writer.finish().expect("writes");
        let run = world.open(&meta);
        assert_eq!(run.range_deletes().expect("reads")[..], wanted[..]);
        let read = world.counters.statistics().block_reads_meta - before;
        assert!(parts.contains(&read), "count={count} parts={read}");
        run.verify().expect("whole");
    }
}

#[test]
fn range_deletes_in_several_blocks_stay_when_all_messages_have_gone() {
    let mut world = world();
    world.options.has_seq = true;
    let mut writer = RunWriter::new(&world.store, RunId(7), &world.options, 0);
    let key = |number: u32| [&[0, 0, 0, 1], &number.to_be_bytes()[..], &mix(u64::from(number)).to_be_bytes()].concat();
    for number in 0..2000 {
        let (key, stamp) = (key(number), Stamp::Settled);
        writer.add(&Message { kind: Kind::Put, key: &key, stamp, seq: 1, payload: &key, blob: false }).expect("adds");
    }
    for number in 1000..6000 {
        let end = [&key(number)[..], b"x"].concat();
        writer.add_range(RangeDelete { start: key(number), end, seq: 2, stamp: Stamp::Settled }).expect("adds");
    }
    let (meta, _) = writer.finish().expect("writes");
    let run = world.open(&meta);
    for (from, left) in [(1500, 4500), (2000, 4000), (3000, 3000), (5999, 1), (6000, 0)] {
        let clipped = run.clipped(&key(from), CursorMode::default()).expect("reads");
        assert!(!clipped.freed.is_empty(), "from={from}");
        let Some(run) = clipped.run else {
            assert_eq!(left, 0);
            continue;
        };
        run.verify().expect("whole");
        assert_eq!(run.range_deletes().expect("reads").len(), left);
        world.open(run.meta()).verify().expect("whole");
    }
}

#[test]
fn the_transactions_of_a_run_are_listed_once() {
    let world = world();
    let samples = mixed(2, 2000);
    let expected: BTreeSet<TxnId> = samples
        .iter()
        .filter_map(|sample| match sample.stamp {
            Stamp::Written { txn, .. } => Some(txn),
            _ => None,
        })
        .collect();
    assert!(!expected.is_empty());
    assert!(world.write(&samples).expect("writes").unresolved.iter().eq(&expected));
}

/// `cargo test --release -p fronddb speed_of_runs -- --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn speed_of_runs() {
    let mut world = world();
    world.options.block_bytes = 16 << 10;
    let trees = iibench(400_000);
    let mut stored = 0;
    for (number, samples) in trees.iter().enumerate() {
        // The first time also pays for the memory of the simulated disk.
        let first = world.write(samples).expect("writes");
        first.extents.iter().for_each(|extent| world.store.free_unpublished(*extent));
        let start = CpuTime::now();
        let meta = world.write(samples).expect("writes");
        let write = start.elapsed() / samples.len() as f64;
        stored += meta.bytes;
        let run = world.open(&meta);
        let walk = |mode: CursorMode| {
            let start = CpuTime::now();
            let mut cursor = run.cursor(mode);
            let (mut more, mut sum) = (cursor.first().expect("reads"), 0);
            while more {
                let message = cursor.message();
                sum += message.key.len() + message.payload.len();
                more = cursor.next().expect("reads");
            }
            std::hint::black_box(sum);
            start.elapsed() / samples.len() as f64
        };
        let cold =
            walk(CursorMode { fill_cache: false, read_ahead_bytes: 256 << 10, is_long: false, asks_ahead: false });
        walk(CursorMode::default());
        let warm = walk(CursorMode::default());
        let mut random = Random(6);
        let mut time = |cached: u64| {
            let probes: Vec<(usize, u64)> = (0..200_000)
                .map(|_| random.below(cached) as usize)
                .map(|at| (at, key_hash(&samples[at].key)))
                .collect();
            let start = CpuTime::now();
            for (at, hash) in &probes {
                let flow = run.get(&samples[*at].key, *hash, &mut |_| ControlFlow::Break(())).expect("reads");
                assert!(flow.is_break());
            }
            let get = start.elapsed() / probes.len() as f64;
            let start = CpuTime::now();
            let mut passed = 0;
            for (_, hash) in &probes {
                passed += usize::from(run.may_contain(!hash).expect("reads"));
            }
            std::hint::black_box(passed);
            (get, start.elapsed() / probes.len() as f64)
        };
        let (near, all) = (time(10_000), time(samples.len() as u64));
        println!(
            "tree {number}: write {write:.0} ns, cold walk {cold:.0} ns, cached walk {warm:.1} ns a message; get {:.0} ns among 10,000 keys ({:.0} among all), absent {:.0} ns; {:.1} B a message",
            near.0,
            all.0,
            all.1,
            meta.bytes as f64 / samples.len() as f64
        );
    }
    println!("{:.1} stored bytes a row, filters and indexes included", stored as f64 / 400_000.0);
    let small = &trees[2][..13_000];
    let start = CpuTime::now();
    for _ in 0..50 {
        world.write(small).expect("writes");
    }
    let each = start.elapsed() / 50_000.0;
    println!("small run of 13,000 messages: {each:.0} us, {:.0} ns a message", each * 1000.0 / 13_000.0);
}

#[test]
fn a_writer_keeps_no_memory_of_a_block_far_larger_than_others() {
    let world = world();
    let budget = world.cache.budget().clone();
    let write = |bytes: usize| {
        let payload = Random(bytes as u64).bytes(bytes);
        let message = Message {
            kind: Kind::Put,
            key: &[0, 0, 0, 1, 5],
            stamp: Stamp::Settled,
            seq: 0,
            payload: &payload,
            blob: false,
        };
        let mut writer = RunWriter::new(&world.store, RunId(7), &world.options, 0);
        writer.add(&message).expect("adds");
        writer.finish().expect("writes");
    };
    write(100);
    let before = budget.used(Purpose::Work);
    write(8 << 20);
    let after = budget.used(Purpose::Work);
    assert!(after <= before, "before={before} after={after}");
    let scratch = world.options.codecs.take_scratch();
    assert!(scratch.memory_bytes() <= after, "what is kept is counted");
}

#[test]
fn a_writer_keeps_no_memory_of_very_many_trees() {
    let world = world();
    let mut writer = RunWriter::new(&world.store, RunId(7), &world.options, 0);
    for tree in 1..=20_000 {
        let (kind, stamp, key) = (Kind::Put, Stamp::Settled, key::inner(TreeId(tree), &[5]));
        writer.add(&Message { kind, key: &key, stamp, seq: 0, payload: b"value", blob: false }).expect("adds");
    }
    writer.finish().expect("writes");
    assert_eq!(world.options.codecs.take_scratch().shares.memory_bytes(), 0);
}
