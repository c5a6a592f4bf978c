//! What readers use stays cached when it is rewritten.

use super::*;

/// Blocks that the tree read from the file for readers.
fn reads(harness: &Harness) -> u64 {
    let now = harness.tree.env.run_counters.statistics();
    now.block_reads_point + now.block_reads_scan + now.block_reads_meta
}

fn get_all(harness: &Harness, numbers: std::ops::Range<u16>) {
    let (version, view) = (harness.tree.version(), harness.view(CommitNumber(harness.now)));
    for number in numbers {
        let got = harness.tree.get(&version, &view.view(), &key(number)).expect("get");
        assert!(got.is_some(), "{number}");
    }
}

/// Writes every third row of the lower half again, seals that and compacts all.
fn rewrite(harness: &mut Harness, round: u8) {
    for number in (0..300).step_by(3) {
        harness.write(&key(number), Kind::Put, &[round; 40]);
    }
    harness.seal_all();
    harness.compact(Vec::new(), None);
}

#[test]
fn readers_do_not_notice_that_their_rows_were_moved() {
    let mut harness = Harness::new();
    for number in 0..600 {
        harness.write(&key(number), Kind::Put, format!("value {number:08} {:x}", u32::from(number) * 7919).as_bytes());
    }
    harness.seal_all();
    harness.compact(Vec::new(), None);
    get_all(&harness, 0..600);
    let warm = reads(&harness);
    assert!(warm > 0, "nothing of a bulk of new rows is in the cache");
    for round in 0..3 {
        rewrite(&mut harness, round);
        get_all(&harness, 0..600);
        assert_eq!(reads(&harness), warm, "round {round}");
    }
    harness.check();
}

#[test]
fn rows_that_nobody_reads_are_not_cached() {
    let mut harness = Harness::new();
    for round in 0..4 {
        for number in 0..600 {
            harness.write(&key(number), Kind::Put, &[round; 40]);
        }
        rewrite(&mut harness, round);
    }
    assert_eq!(harness.tree.env.cache.statistics().misses[0], 0);
    harness.tree.env.cache.for_each_hot(1, &mut |_| panic!("a block of messages"));
}

#[test]
fn what_readers_look_for_is_cached_when_level_0_is_sealed() {
    let mut harness = grown(3);
    for round in 0..3u8 {
        get_all(&harness, 0..900);
        for number in 0..100 {
            harness.write(&key(number), Kind::Put, &[round; 40]);
        }
        harness.seal_all();
    }
    let before = reads(&harness);
    get_all(&harness, 0..100);
    assert_eq!(reads(&harness), before);
    harness.check();
}

#[test]
fn half_as_many_looks_as_messages_are_enough() {
    // How often who comes after a seal of 100 rows reads the file, when readers had looked for so many since the seal before.
    let reads_after = |looks: u16| {
        let mut harness = grown(3);
        get_all(&harness, 0..900);
        harness.write(&key(899), Kind::Put, &[0; 40]);
        harness.seal_all();
        get_all(&harness, 0..looks);
        for number in 0..100 {
            harness.write(&key(number), Kind::Put, &[1; 40]);
        }
        harness.seal_all();
        let before = reads(&harness);
        get_all(&harness, 0..100);
        reads(&harness) - before
    };
    assert_eq!(reads_after(60), 0);
    assert!(reads_after(30) > 0);
}
