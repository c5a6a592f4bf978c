//! Markers and watches beside writes and grafts.

use super::*;
use crate::base::key::{inner, tree_end, tree_start};
use crate::base::random::Random;

const SINCE: CommitNumber = CommitNumber(7);

fn marked(lower: &[u8], upper: &[u8]) -> DeadRanges {
    let dead = DeadRanges::default();
    let watch = dead.watch(Way::Up, lower, None).expect("room");
    dead.end_watch(watch, Some((upper, SINCE)));
    dead
}

fn write(dead: &DeadRanges, keys: &[&[u8]]) {
    dead.on_write(|tell| keys.iter().for_each(|key| tell(key)));
}

fn markers(dead: &DeadRanges) -> usize {
    dead.inner.lock().markers.len()
}

fn bounds(dead: &DeadRanges, key: &[u8], snapshot: CommitNumber) -> Option<(Vec<u8>, Vec<u8>)> {
    dead.around(key, snapshot).map(|range| (range.lower, range.upper))
}

#[test]
fn a_marker_is_used_by_snapshots_that_see_its_deletes() {
    let dead = marked(b"b", b"f");
    assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b".to_vec(), b"f".to_vec())));
    assert_eq!(bounds(&dead, b"c", CommitNumber(6)), None);
    assert_eq!(bounds(&dead, b"f", SINCE), None);
    assert_eq!(bounds(&dead, b"a", SINCE), None);
}

#[test]
fn a_write_takes_its_key_out_of_the_marker() {
    let dead = marked(b"b", b"f");
    write(&dead, &[b"d"]);
    assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b".to_vec(), b"d".to_vec())));
    assert_eq!(bounds(&dead, b"d", SINCE), None);
    assert_eq!(bounds(&dead, b"e", SINCE), Some((b"d\0".to_vec(), b"f".to_vec())));
    write(&dead, &[b"b"]);
    assert_eq!(bounds(&dead, b"b", SINCE), None);
    assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b\0".to_vec(), b"d".to_vec())));
    assert_eq!(bounds(&dead, b"d\0", CommitNumber(6)), None, "what is left promises no more than it did");
    let dead = marked(b"b", b"b\0");
    write(&dead, &[b"b"]);
    assert_eq!((markers(&dead), dead.trees.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn writes_into_dead_ranges_leave_no_more_markers_than_there_may_be() {
    let dead = marked(b"b", b"f");
    for number in 0..2 * MARKERS_MAX as u32 {
        write(&dead, &[&[b"c", &number.to_be_bytes()[..]].concat()]);
    }
    assert_eq!(markers(&dead), MARKERS_MAX);
    for number in 0..2 * MARKERS_MAX as u32 {
        assert_eq!(bounds(&dead, &[b"c", &number.to_be_bytes()[..]].concat(), SINCE), None);
    }
}

#[test]
fn a_watch_downwards_mirrors_one_upwards() {
    let dead = DeadRanges::default();
    let watch = dead.watch(Way::Down, b"m", None).expect("room");
    write(&dead, &[b"d", b"e", b"b", b"m", b"z"]);
    dead.end_watch(watch, Some((b"a", SINCE)));
    assert_eq!(bounds(&dead, b"f", SINCE), Some((b"e\0".to_vec(), b"m".to_vec())));
    assert_eq!((bounds(&dead, b"e", SINCE), bounds(&dead, b"m", SINCE)), (None, None));
    // A row above what was written is nearer.
    let dead = DeadRanges::default();
    let watch = dead.watch(Way::Down, b"m", None).expect("room");
    write(&dead, &[b"d"]);
    dead.end_watch(watch, Some((b"k\0", SINCE)));
    assert_eq!(bounds(&dead, b"l", SINCE), Some((b"k\0".to_vec(), b"m".to_vec())));
    assert_eq!(bounds(&dead, b"k", SINCE), None);
    // It is joined to the marker that begins where it began.
    let watch = dead.watch(Way::Down, b"k\0", None).expect("room");
    dead.end_watch(watch, Some((b"c", CommitNumber(9))));
    assert_eq!(bounds(&dead, b"l", CommitNumber(9)), Some((b"c".to_vec(), b"m".to_vec())));
    assert_eq!(bounds(&dead, b"l", SINCE), None);
    for (lower, upper, left) in [
        (b"d", Some(b"f"), Some(b"f")),
        (b"d", None, None),
        (b"g", Some(b"z"), None),
        (b"m", None, Some(b"a")),
        (b"h", Some(b"m"), None),
    ] {
        let dead = DeadRanges::default();
        let watch = dead.watch(Way::Down, b"m", None).expect("room");
        dead.on_graft(lower, upper.map(<[u8; 1]>::as_slice));
        dead.end_watch(watch, Some((b"a", SINCE)));
        assert_eq!(bounds(&dead, b"lll", SINCE), left.map(|left| (left.to_vec(), b"m".to_vec())), "{lower:?}");
    }
}

#[test]
fn a_write_during_the_scan_ends_the_marker() {
    let dead = DeadRanges::default();
    let watch = dead.watch(Way::Up, b"b", None).expect("room");
    write(&dead, &[b"e", b"d", b"a"]);
    dead.end_watch(watch, Some((b"z", SINCE)));
    assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b".to_vec(), b"d".to_vec())));
}

#[test]
fn a_graft_cuts_markers_and_watches_off() {
    let dead = marked(b"b", b"f");
    dead.end_watch(dead.watch(Way::Up, b"g", None).expect("room"), Some((b"i", SINCE)));
    dead.end_watch(dead.watch(Way::Up, b"m", None).expect("room"), Some((b"p", SINCE)));
    let [below, inside, above] = [b"a", b"e", b"m"].map(|from| dead.watch(Way::Up, from, None));
    dead.on_graft(b"d", Some(b"m"));
    assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b".to_vec(), b"d".to_vec())));
    assert_eq!(bounds(&dead, b"d", SINCE), None);
    assert_eq!(bounds(&dead, b"h", SINCE), None);
    assert_eq!(bounds(&dead, b"n", SINCE), Some((b"m".to_vec(), b"p".to_vec())));
    dead.end_watch(inside.expect("room"), Some((b"z", SINCE)));
    assert_eq!(bounds(&dead, b"e", SINCE), None, "nothing was left of it");
    dead.end_watch(above.expect("room"), Some((b"r", SINCE)));
    assert_eq!(bounds(&dead, b"q", SINCE), Some((b"m".to_vec(), b"r".to_vec())));
    dead.end_watch(below.expect("room"), Some((b"z", SINCE)));
    assert_eq!(bounds(&dead, b"c", SINCE), Some((b"a".to_vec(), b"d".to_vec())));
}

#[test]
fn markers_that_nobody_needs_any_more_keep_no_others_out() {
    let dead = DeadRanges::default();
    for number in 0..2 * MARKERS_MAX as u32 {
        let lower = [b"a", &number.to_be_bytes()[..]].concat();
        let upper = [&lower[..], &[0]].concat();
        dead.end_watch(dead.watch(Way::Up, &lower, None).expect("room"), Some((&upper, SINCE)));
    }
    assert!(markers(&dead) <= MARKERS_MAX);
    dead.end_watch(dead.watch(Way::Up, b"b", None).expect("room"), Some((b"c", SINCE)));
    assert!(bounds(&dead, b"b", SINCE).is_some());
    assert_eq!(dead.watch(Way::Up, &[b'x'; 2000], None), None);
}

#[test]
fn neighbours_join() {
    let dead = marked(b"b", b"f");
    let watch = dead.watch(Way::Up, b"f", None).expect("room");
    dead.end_watch(watch, Some((b"k", CommitNumber(9))));
    assert_eq!(bounds(&dead, b"c", CommitNumber(9)), Some((b"b".to_vec(), b"k".to_vec())));
}

/// A queue, from which each scan finds some more dead keys behind those of the scans before.
#[test]
fn of_what_scan_after_scan_adds_to_a_reader_misses_the_newest_only() {
    let dead = DeadRanges::default();
    let key = |number: u64| number.to_be_bytes();
    for number in 1..=10_000u64 {
        let watch = dead.watch(Way::Up, &key(0), None).expect("room");
        dead.end_watch(watch, Some((&key(number), CommitNumber(number))));
        assert!(markers(&dead) <= 10, "{number}");
    }
    for behind in [0, 1, 10, 100, 1000] {
        let (snapshot, mut at) = (CommitNumber(10_000 - behind), key(0).to_vec());
        while let Some(range) = dead.around(&at, snapshot) {
            assert_eq!(range.lower, at);
            at = range.upper;
        }
        let reached = u64::from_be_bytes(at.try_into().expect("a key"));
        let missed = if behind == 0 { 0 } else { 64.max(10 * behind) };
        assert!((10_000u64.saturating_sub(missed)..=10_000 - behind).contains(&reached), "{behind}: {reached}");
    }
}

/// As cursors add to it: what lies behind the markers that they have jumped over; in a queue, and in a stack. Where others insert and roll back
/// beside it, every other marker holds for every snapshot.
#[test]
fn nor_does_it_where_each_scan_adds_only_what_is_new() {
    const FIRST: u64 = 1_000_000;
    let ways = [(Way::Up, false), (Way::Up, true), (Way::Down, false), (Way::Down, true)];
    for (way, are_some_rolled_back) in ways {
        let dead = DeadRanges::default();
        let key = |number: u64| if way == Way::Up { number } else { u64::MAX - number }.to_be_bytes().to_vec();
        // The end of what a reader jumps over from there on.
        let behind = |number: u64, snapshot: u64| {
            let range = dead.around(&key(number + u64::from(way == Way::Down)), CommitNumber(snapshot));
            range.map_or(key(number), |range| if way == Way::Up { range.upper } else { range.lower })
        };
        for number in 1..=10_000 {
            let since = if are_some_rolled_back && number % 2 == 0 { 0 } else { FIRST + number };
            let watch = dead.watch(way, &behind(0, FIRST + number), None).expect("room");
            dead.end_watch(watch, Some((&key(number), CommitNumber(since))));
            let most = if are_some_rolled_back { PIECES_MAX } else { 10 };
            assert!(markers(&dead) <= most, "{way:?} {number}: {}", markers(&dead));
        }
        for late in [0, 1, 10, 100, 1000] {
            let reached = u64::from_be_bytes(behind(0, FIRST + 10_000 - late).try_into().expect("a key"));
            let reached = if way == Way::Up { reached } else { u64::MAX - reached };
            let missed = if late == 0 { 0 } else { 64.max(10 * late) };
            let expected = 10_000u64.saturating_sub(missed)..=10_000 - late + 1;
            assert!(expected.contains(&reached), "{way:?} rolled_back={are_some_rolled_back} {late}: {reached}");
        }
    }
}

/// Of old readers those pass over what was rolled back who pass over none of the rest.
#[test]
fn what_holds_for_every_snapshot_does_so_beside_what_does_not() {
    let dead = marked(b"b", b"f");
    for (lower, upper, since) in [(b"f", b"m", 0), (b"m", b"p", 9)] {
        let watch = dead.watch(Way::Up, lower, None).expect("room");
        dead.end_watch(watch, Some((upper, CommitNumber(since))));
    }
    assert_eq!(bounds(&dead, b"g", CommitNumber(1)), Some((b"f".to_vec(), b"m".to_vec())));
    assert_eq!(bounds(&dead, b"c", CommitNumber(9)), Some((b"b".to_vec(), b"p".to_vec())));
}

#[test]
fn markers_promise_what_was_promised_of_each_key_and_no_more() {
    const KEYS: u8 = 40;
    for seed in 0..200 {
        let mut random = Random(seed);
        let dead = DeadRanges::default();
        // By key: the lowest snapshot that does not see it, of all that was told.
        let mut told: Vec<Option<u64>> = vec![None; usize::from(KEYS)];
        let mut now = 0;
        for _ in 0..60 {
            now += 1 + random.below(200);
            let (one, other) = (random.below(u64::from(KEYS)) as u8, random.below(u64::from(KEYS)) as u8);
            let (lower, upper) = (one.min(other), one.max(other));
            if random.below(3) == 0 {
                write(&dead, &[&[one]]);
                told[usize::from(one)] = None;
            } else if lower < upper {
                let since = now - random.below(now);
                let watch = dead.watch(Way::Up, &[lower], None).expect("room");
                dead.end_watch(watch, Some((&[upper], CommitNumber(since))));
                for known in &mut told[usize::from(lower)..usize::from(upper)] {
                    *known = Some(known.map_or(since, |known| known.min(since)));
                }
            }
            let inner = dead.inner.lock();
            for (key, known) in (0..KEYS).zip(&told) {
                let marker = inner.around(&[key]).map(|(_, marker)| marker.since.0);
                assert_eq!(marker.is_some(), known.is_some(), "seed={seed} key={key}");
                assert!(marker >= *known, "seed={seed} key={key}: {marker:?} promises more than {known:?}");
            }
            let ends: Vec<_> =
                inner.markers.iter().map(|(lower, marker)| (lower.clone(), marker.upper.clone())).collect();
            assert!(ends.iter().all(|(lower, upper)| lower < upper));
            assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "none lies in another");
        }
    }
}

#[test]
fn a_watch_reaches_no_further_than_its_scan() {
    for (way, from, bound, end) in [(Way::Up, b"c", b"m", b"z"), (Way::Down, b"m", b"c", b"a")] {
        let dead = DeadRanges::default();
        let watch = dead.watch(way, from, Some(bound)).expect("room");
        write(&dead, &[b"b", b"n"]);
        dead.end_watch(watch, Some((end, SINCE)));
        assert_eq!(bounds(&dead, b"d", SINCE), Some((b"c".to_vec(), b"m".to_vec())), "{way:?}");
    }
}

#[test]
fn what_is_left_over_in_one_tree_keeps_no_writer_of_another_waiting() {
    let key = |tree, key: &[u8]| inner(TreeId(tree), key);
    let dead = marked(&key(1, b"b"), &key(1, b"f"));
    // A scan of a third tree is under way.
    let [start, end] = [tree_start(TreeId(3)), tree_end(TreeId(3))];
    let watches = [(Way::Up, &start, &end), (Way::Down, &end, &start)];
    let watches = watches.map(|(way, from, bound)| dead.watch(way, from, Some(bound)).expect("room"));
    dead.on_write(|tell| {
        tell(&key(2, b"c"));
        assert!(dead.inner.try_lock().is_some(), "the latch was taken for a key of another tree");
        tell(&key(1, b"d"));
        assert!(dead.inner.try_lock().is_none(), "the latch is given back after each key");
        tell(&key(1, b"b"));
        tell(&key(3, b"k"));
    });
    assert_eq!(bounds(&dead, &key(1, b"c"), SINCE), Some((key(1, b"b\0"), key(1, b"d"))));
    assert_eq!((bounds(&dead, &key(1, b"b"), SINCE), bounds(&dead, &key(1, b"d"), SINCE)), (None, None));
    let [up, down] = watches;
    dead.end_watch(up, Some((&end, SINCE)));
    assert_eq!(bounds(&dead, &key(3, b"a"), SINCE), Some((start.clone(), key(3, b"k"))));
    dead.end_watch(down, Some((&start, SINCE)));
    assert_eq!(bounds(&dead, &key(3, b"z"), SINCE), Some((key(3, b"k\0"), end)));
}

#[test]
fn bits_are_those_of_the_trees_with_keys_between_two_bounds() {
    let bits = |trees: std::ops::RangeInclusive<u32>| trees.fold(0, |bits, tree| bits | bit(TreeId(tree)));
    let start = |tree| tree_start(TreeId(tree));
    assert_eq!(bits_of(&start(3), Some(&start(4))), bits(3..=3));
    assert_eq!(bits_of(&start(3), Some(&start(5))), bits(3..=4));
    assert_eq!(bits_of(&inner(TreeId(3), b"k"), Some(&inner(TreeId(5), b"k"))), bits(3..=5));
    assert_eq!(bits_of(&inner(TreeId(3), b"a"), Some(&inner(TreeId(3), b"b"))), bits(3..=3));
    assert_eq!(bits_of(&[], Some(&start(2))), bits(0..=1));
    assert_eq!(bits_of(&start(60), Some(&start(70))), bits(60..=69));
    assert_eq!((bits_of(&start(3), Some(&start(100))), bits_of(&start(3), None)), (u64::MAX, u64::MAX));
}

/// D1.
#[test]
fn the_bits_that_writers_see_are_those_of_all_watches_and_markers() {
    let mut random = Random(1);
    let dead = DeadRanges::default();
    let mut watches = Vec::new();
    for _ in 0..20_000 {
        let mut key = || {
            let tree = [1, 2, 3, 9, 66, 700][random.below(6) as usize];
            inner(TreeId(tree), &[b'a' + random.below(20) as u8])
        };
        let (one, other) = (key(), key());
        let way = if one < other { Way::Up } else { Way::Down };
        match random.below(8) {
            0 | 1 => watches.extend(dead.watch(way, &one, Some(&other))),
            2 => watches.extend(dead.watch(way, &one, None)),
            3..=5 if !watches.is_empty() => {
                let watch = watches.swap_remove(random.below(watches.len() as u64) as usize);
                dead.end_watch(watch, (random.below(4) > 0).then_some((other.as_slice(), SINCE)));
            }
            6 if random.below(20) == 0 => dead.on_graft(&one, (way == Way::Up).then_some(other.as_slice())),
            _ => write(&dead, &[&one, &other]),
        }
        let mut trees = Trees::default();
        let inner = dead.inner.lock();
        inner.watches.iter().for_each(|watch| trees.add(watch.bits));
        inner.markers.iter().for_each(|(lower, marker)| trees.add(bits_of(lower, Some(&marker.upper))));
        assert_eq!(inner.trees, trees);
        assert_eq!(dead.trees.load(Ordering::Relaxed), trees.bits());
    }
    assert!(markers(&dead) > 0);
}
