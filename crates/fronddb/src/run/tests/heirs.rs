//! What of a new run goes into the cache.

use super::*;

/// A run of these messages, those of `in_use` from blocks in use, opened; its heirs are adopted.
fn with_heirs(world: &World, samples: &[Sample], in_use: impl Fn(usize) -> bool) -> (RunMeta, Arc<Run>) {
    let mut writer = RunWriter::new(&world.store, RunId(7), &world.options, 0);
    for (row, sample) in samples.iter().enumerate() {
        writer.set_in_use(in_use(row));
        writer.add(&sample.message()).expect("adds");
    }
    let (meta, heirs) = writer.finish().expect("writes");
    assert_eq!(world.cache.statistics().blocks, 0, "nothing before the run is complete");
    let run = world.open(&meta);
    run.adopt(heirs, Place::Buffer);
    (meta, run)
}

/// Blocks read from the file, of messages and others.
fn reads(world: &World) -> (u64, u64) {
    let now = world.counters.statistics();
    (now.block_reads_point + now.block_reads_scan + now.block_reads_bulk, now.block_reads_meta)
}

fn get_all<'a>(run: &Run, samples: impl IntoIterator<Item = &'a Sample>) {
    for sample in samples {
        let found = run.get(&sample.key, key_hash(&sample.key), &mut |message| {
            assert_eq!((message.seq, message.payload), (run.meta().max_seq, sample.payload.as_slice()));
            ControlFlow::Break(())
        });
        assert!(found.expect("reads").is_break());
    }
}

#[test]
fn blocks_of_messages_in_use_are_there_when_the_run_is() {
    for (payload_bytes, several_chunks) in [(8, false), (400, true)] {
        let world = world();
        world.options.codecs.set_default(Codec::None);
        let samples: Vec<Sample> = iibench(3000)[1]
            .iter()
            .map(|sample| Sample { payload: vec![sample.key[6]; payload_bytes], ..sample.clone() })
            .collect();
        let half = samples.len() / 2;
        let (meta, run) = with_heirs(&world, &samples, |row| row < half);
        assert_eq!(meta.bytes > 512 << 10, several_chunks);
        get_all(&run, &samples[..half - half / 8]);
        assert_eq!(reads(&world), (0, 0), "filter and index came along");
        get_all(&run, &samples);
        assert!(reads(&world).0 > 0 && reads(&world).1 == 0, "{:?}", reads(&world));
        run.verify().expect("what is stored is sound");
    }
}

#[test]
fn a_run_that_nobody_reads_leaves_the_cache_alone() {
    let world = world();
    let samples = &iibench(2000)[1];
    // A third of each block is not enough.
    let (_, run) = with_heirs(&world, samples, |row| row % 3 == 0);
    assert_eq!(world.cache.statistics().blocks, 0);
    get_all(&run, samples);
}

#[test]
fn a_compaction_sees_what_is_in_use_and_does_not_use_it() {
    let world = world();
    let samples = &iibench(2000)[1];
    let (_, run) = with_heirs(&world, samples, |row| row < 1000);
    let bulk = CursorMode { fill_cache: false, is_long: true, asks_ahead: false, ..CursorMode::default() };
    let (mut cursor, before) = (run.cursor(bulk), world.cache.statistics());
    let mut more = cursor.first().expect("reads");
    let mut in_use = Vec::new();
    while more {
        in_use.push(cursor.is_in_use());
        more = cursor.next().expect("reads");
    }
    let border = in_use.iter().position(|it| !it).expect("not all");
    assert!((950..1050).contains(&border) && !in_use[border..].contains(&true), "border={border}");
    let after = world.cache.statistics();
    assert_eq!((after.hits[0], after.misses[0], after.blocks), (before.hits[0], before.misses[0], before.blocks));
}

#[test]
fn heirs_are_counted_while_they_wait() {
    let world = world();
    let samples = &iibench(6000)[1];
    let mut writer = RunWriter::new(&world.store, RunId(7), &world.options, 0);
    writer.set_in_use(true);
    for sample in samples {
        writer.add(&sample.message()).expect("adds");
    }
    let (meta, heirs) = writer.finish().expect("writes");
    let waiting = world.cache.bytes() as u64;
    assert!(waiting >= meta.bytes / 2, "waiting={waiting} stored={}", meta.bytes);
    // An open run that is dropped with its heirs leaves nothing.
    drop(heirs);
    world.cache.budget().set_limit(1 << 20);
    world.cache.trim();
    assert_eq!(world.cache.statistics().blocks, 0);
    assert!(world.cache.pool().idle_bytes() == world.cache.pool().resident_bytes());
}
