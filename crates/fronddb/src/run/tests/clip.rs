//! Runs of which a part has gone: what is left is as in a run that never had more, and the space before it may hold anything.

use super::*;
use crate::base::{Extent, Result};
use crate::run::Clipped;

fn scribble(world: &World, freed: &[Extent]) {
    for extent in freed {
        let mut garbage = crate::base::page_buf::PageBuf::zeroed(extent.bytes() as usize);
        garbage.fill(0xa5);
        world.store.write(*extent, 0, &garbage).expect("writes");
        world.cache.remove_range(*extent);
    }
}

/// Keys and payloads from where the cursor stands to the end.
fn walk(cursor: &mut crate::run::RunCursor, mut more: Result<bool>, backward: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    while more.expect("reads") {
        found.push((cursor.key().to_vec(), cursor.message().payload.to_vec()));
        more = if backward { cursor.prev() } else { cursor.next() };
    }
    found
}

fn compare(world: &World, run: &Arc<Run>, left: &[&Sample], all: &[Sample], random: &mut Random) {
    let pairs: Vec<_> = left.iter().map(|sample| (sample.key.clone(), sample.payload.clone())).collect();
    let reversed: Vec<_> = pairs.iter().rev().cloned().collect();
    for number in 0..24 {
        let mut cursor = run.cursor(mode(number));
        let more = cursor.first();
        assert!(walk(&mut cursor, more, false) == pairs, "forward, mode {number}");
        let more = cursor.last();
        assert!(walk(&mut cursor, more, true) == reversed, "backward, mode {number}");
        if number == 1 {
            run.meta().extents.iter().for_each(|extent| world.cache.remove_range(*extent));
        }
    }
    for _ in 0..60 {
        let key = probe(all, random);
        let at = pairs.partition_point(|(other, _)| *other < key);
        let mut cursor = run.cursor(mode(random.next()));
        let more = cursor.seek(&key);
        assert!(walk(&mut cursor, more, false) == pairs[at..], "from {key:02x?}");
        let more = cursor.seek_before(&key);
        assert!(walk(&mut cursor, more, true) == reversed[pairs.len() - at..], "before {key:02x?}");
        let mut got = Vec::new();
        let _ = run.get(&key, key_hash(&key), &mut |message| {
            got.push(message.payload.to_vec());
            ControlFlow::Continue(())
        });
        let wanted = pairs[at..].iter().take_while(|(other, _)| *other == key).map(|(_, payload)| payload.clone());
        assert!(got == wanted.collect::<Vec<_>>(), "of {key:02x?}");
        let high = probe(all, random).max(key.clone());
        if high.is_empty() {
            // No bound.
            continue;
        }
        let held = run.estimate(&key, &high).expect("reads");
        let between = left.iter().copied().filter(|sample| sample.key >= key && sample.key < high);
        let found = (held.messages, held.blob_bytes);
        assert_eq!(found, counts(between), "all blocks are cached: {key:02x?}..{high:02x?}");
    }
    let mut lost = |lost: crate::run::salvage::Lost| panic!("{lost:?}");
    let mut salvage = run.salvage(&mut lost).expect("reads");
    let mut found = Vec::new();
    while let Some(message) = salvage.message() {
        found.push((message.key.to_vec(), message.payload.to_vec()));
        salvage.next(&mut lost).expect("reads");
    }
    assert!(found == pairs, "salvage");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn what_is_left_of_a_clipped_run_is_all_that_is_read(seed: u64, count in 2usize..3000, block_bytes in 0usize..4) {
        let samples = mixed(seed, count);
        let mut world = world();
        world.options.block_bytes = 1 << (block_bytes + 9);
        let meta = world.write(&samples)?;
        let mut run = world.open(&meta);
        let mut random = Random(seed);
        let mut bytes = run.meta().bytes;
        let used = world.used();
        let mut freed_pages = 0;
        for _ in 0..3 {
            let mut from = probe(&samples, &mut random);
            if from <= run.meta().clip {
                continue;
            }
            if random.below(2) == 0 {
                // Where messages of one key lie in two blocks, too.
                from.clone_from(&samples[random.below(samples.len() as u64) as usize].key);
            }
            if from <= run.meta().clip {
                continue;
            }
            let left: Vec<&Sample> = samples.iter().filter(|sample| sample.key >= from).collect();
            let Clipped { run: clipped, freed } = run.clipped(&from, mode(seed))?;
            freed_pages += freed.iter().map(|extent| u64::from(extent.pages)).sum::<u64>();
            scribble(&world, &freed);
            let Some(clipped) = clipped else {
                prop_assert!(left.is_empty());
                prop_assert_eq!(freed_pages * PAGE_BYTES, meta.extent_bytes());
                break;
            };
            run = world.open(clipped.meta());
            prop_assert_eq!(run.meta().extent_bytes() + freed_pages * PAGE_BYTES, meta.extent_bytes());
            prop_assert!(run.meta().bytes <= bytes && run.meta().extent_bytes() >= run.meta().bytes.saturating_sub(PAGE_BYTES));
            bytes = run.meta().bytes;
            prop_assert_eq!((run.meta().messages, run.meta().blob_bytes), counts(left.iter().copied()));
            prop_assert_eq!(&run.meta().first_key, &left[0].key);
            run.verify()?;
            compare(&world, &run, &left, &samples, &mut random);
        }
        prop_assert_eq!(world.used(), used);
    }
}

#[test]
fn range_deletes_of_a_clipped_run_begin_at_the_clip() {
    let mut world = world();
    world.options.has_seq = true;
    let mut writer = RunWriter::new(&world.store, RunId(7), &world.options, 0);
    let samples = mixed(3, 200);
    samples.iter().for_each(|sample| writer.add(&sample.message()).expect("adds"));
    let middle = &samples[100].key;
    let range = |start: &[u8], end: &[u8], seq| RangeDelete {
        start: start.to_vec(),
        end: end.to_vec(),
        seq,
        stamp: Stamp::Settled,
    };
    let low = range(&samples[0].key, middle, 5);
    let across = range(&samples[0].key, &[0xff; 9], 6);
    writer.add_range(low).expect("adds");
    writer.add_range(across).expect("adds");
    let (meta, _) = writer.finish().expect("finishes");
    let run = world.open(&meta);
    let clip = |run: &Arc<Run>, from: &[u8]| run.clipped(from, CursorMode::default()).expect("reads").run;
    let half = clip(&run, middle).expect("half");
    assert_eq!(half.range_deletes().expect("reads")[..], [range(middle, &[0xff; 9], 6)]);
    half.verify().expect("whole");
    // No message is left, but a range-delete.
    let beyond = clip(&half, &[0xff; 8]).expect("the range");
    assert_eq!((beyond.meta().messages, beyond.meta().range_deletes), (0, 1));
    let beyond = world.open(beyond.meta());
    assert_eq!(beyond.range_deletes().expect("reads")[..], [range(&[0xff; 8], &[0xff; 9], 6)]);
    beyond.verify().expect("whole");
    assert!(!beyond.cursor(CursorMode::default()).first().expect("reads"));
    assert_eq!(beyond.estimate(&[], &[]).expect("reads"), Held::default());
    assert!(clip(&beyond, &[0xff; 9]).is_none());
}
