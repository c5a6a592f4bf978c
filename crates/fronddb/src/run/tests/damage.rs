//! Damage of one block of a run costs no more than what only that block knows, and is named by the trees that it concerns.

use super::*;

/// Settled puts of `count` rows of a tree.
fn rows(tree: u32, count: u16) -> Vec<Sample> {
    let row = |number: u16| Sample {
        key: key::inner(TreeId(tree), &number.to_be_bytes()),
        seq: 1,
        stamp: Stamp::Settled,
        kind: Kind::Put,
        blob: false,
        payload: mix(u64::from(number)).to_be_bytes().repeat(3),
    };
    (0..count).map(row).collect()
}

/// Flips a bit of the data file.
fn spoil(world: &World, offset: u64) {
    world.memory.flip_bit(&Path::new("/db").join(DATA_FILE), offset, 3).expect("flips");
}

/// Reads the messages of a key, and says how many there are.
fn count(run: &Run, key: &[u8]) -> crate::base::Result<usize> {
    let mut count = 0;
    let _ = run.get(key, key_hash(key), &mut |_| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

#[test]
fn a_run_is_read_without_a_filter_that_cannot_be_read() {
    for is_bad_sector in [false, true] {
        let world = world();
        let samples = rows(5, 8000);
        let meta = world.write(&samples).expect("writes");
        let run = world.open(&meta);
        if is_bad_sector {
            // In a page that is the filter's alone.
            assert!(u64::from(meta.filter.stored) > 2 * PAGE_BYTES);
            let bad = meta.filter.offset.next_multiple_of(PAGE_BYTES);
            world.plan.add(FaultRule::unreadable(bad..bad + 1));
        } else {
            spoil(&world, meta.filter.offset + 100);
        }
        world.forget_cached(&meta);
        run.warm(&samples[0].key, Place::Buffer).expect("does without");
        for sample in &samples {
            assert_eq!(count(&run, &sample.key).expect("reads"), 1);
        }
        assert_eq!(count(&run, &[&samples[9].key[..], b"x"].concat()).expect("reads"), 0);
        let statistics = world.counters.statistics();
        assert!(statistics.block_reads_meta <= 5, "the filter is read once: {statistics:?}");
        assert_eq!((statistics.filter_positives, statistics.filter_false_positives), (0, 0));
        assert_eq!(run.verify().map_err(|error| error.kind()), Err(ErrorKind::Corruption));
    }
}

#[test]
fn a_filter_that_could_not_be_read_just_now_is_asked_again() {
    let world = world();
    let samples = rows(5, 300);
    let meta = world.write(&samples).expect("writes");
    let run = world.open(&meta);
    world.forget_cached(&meta);
    world.plan.add(FaultRule::from(CallClass::Read, 1, Fault::NoMemory));
    assert_eq!(count(&run, &samples[0].key).map_err(|error| error.kind()), Err(ErrorKind::Io));
    world.plan.clear();
    assert_eq!(count(&run, &samples[0].key).expect("reads"), 1);
    assert_eq!(world.counters.statistics().filter_positives, 1);
}

#[test]
fn a_filter_serves_again_once_a_check_has_read_it() {
    let world = world();
    let samples = rows(5, 8000);
    let meta = world.write(&samples).expect("writes");
    let run = world.open(&meta);
    world.forget_cached(&meta);
    // In a page that is the filter's alone.
    let bad = meta.filter.offset.next_multiple_of(PAGE_BYTES);
    world.plan.add(FaultRule::unreadable(bad..bad + 1));
    assert!(run.verify().is_err() && run.verify_messages().is_ok());
    world.plan.clear();
    assert_eq!(count(&run, &[&samples[9].key[..], b"x"].concat()).expect("reads"), 0);
    assert!(run.lacks_filter() && world.counters.statistics().filter_negatives == 0);
    run.verify().expect("whole again");
    assert_eq!(count(&run, &[&samples[9].key[..], b"x"].concat()).expect("reads"), 0);
    assert!(!run.lacks_filter() && world.counters.statistics().filter_negatives == 1);
}

#[test]
fn a_point_read_leaves_the_block_behind_its_key_alone() {
    for filter_bits_per_key in [0, 10] {
        let mut world = world();
        world.options.filter_bits_per_key = filter_bits_per_key;
        let mut samples = rows(5, 300);
        let last = samples.len() - 1;
        samples[last].kind = Kind::Update;
        samples.extend(rows(6, 300));
        let meta = world.write(&samples).expect("writes");
        let run = world.open(&meta);
        // All blocks of the second tree.
        let index = run.read_index(meta.index, super::super::counters::Event::BlockReadMeta).expect("reads");
        let (first, second) = (index.find(&samples[last].key), index.find(&samples[last + 1].key));
        assert!(first + 1 == second && second + 2 < index.count(), "blocks end with trees here");
        (second..index.count()).for_each(|at| spoil(&world, index.entry(at).ptr.offset + 40));
        world.forget_cached(&meta);
        let before = world.counters.statistics().block_reads_point;
        assert_eq!(count(&run, &samples[last].key).expect("reads no other tree's block"), 1);
        if filter_bits_per_key == 0 {
            let absent = [&samples[last].key[..], b"x"].concat();
            assert_eq!(count(&run, &absent).expect("reads no other tree's block"), 0);
        }
        assert_eq!(world.counters.statistics().block_reads_point - before, 1);
        assert!(count(&run, &samples[last + 1].key).is_err());
    }
}

#[test]
fn damage_of_what_several_trees_share_names_the_first_and_the_last() {
    let mut world = world();
    world.options.has_seq = true;
    let samples = [rows(5, 300), rows(6, 10), rows(9, 300)].concat();
    let mut writer = RunWriter::new(&world.store, RunId(7), &world.options, 0);
    samples.iter().for_each(|sample| writer.add(&sample.message()).expect("adds"));
    let (start, end) = (key::tree_start(TreeId(12)), key::tree_end(TreeId(12)));
    writer.add_range(RangeDelete { start, end, seq: 1, stamp: Stamp::Settled }).expect("adds");
    let (meta, _) = writer.finish().expect("writes");
    let run = world.open(&meta);
    [meta.index, meta.ranges].iter().for_each(|ptr| spoil(&world, ptr.offset + 30));
    world.forget_cached(&meta);
    let error = count(&run, &samples[400].key).expect_err("damaged").to_string();
    assert!(error.contains("run=7 tree=5 tree_last=9, file="), "{error}");
    // They reach where the run has no messages.
    let error = run.range_deletes().expect_err("damaged").to_string();
    assert!(error.contains("run=7, file=/db/data.frond offset=") && !error.contains("tree="), "{error}");
}

#[test]
fn a_bad_sector_under_a_large_value_is_named_like_its_damage() {
    let world = world();
    let value = Random(3).bytes(3_000_000);
    let blob = write_blob(&world.store, Codec::default(), &value).expect("writes");
    let bad = blob.chunks[7];
    world.plan.add(FaultRule::unreadable(bad.offset..bad.offset + 1));
    let error = read_blob(&world.store, &blob).expect_err("named");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.message().starts_with("piece of a large value, file=/db/data.frond offset="), "{error}");
}
