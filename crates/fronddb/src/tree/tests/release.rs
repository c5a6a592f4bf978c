//! Space that versions have left.

use super::*;
use crate::base::random::Random;

#[test]
fn an_installation_frees_nothing_and_a_publication_all() {
    what_is_freed(true);
}

/// The last reader may go when nobody changes or publishes anything any more.
#[test]
fn without_a_publication_it_is_freed_when_that_is_asked_for() {
    what_is_freed(false);
}

fn what_is_freed(by_publication: bool) {
    let (mut harness, mut random) = (Harness::new(), Random(7));
    for number in 0..2000 {
        harness.write(&key(number), Kind::Put, &random.bytes(300));
    }
    harness.seal_all();
    harness.compact(Vec::new(), None);
    harness.check();
    let env = harness.tree.env().clone();
    let blocks = || env.cache.statistics().blocks;
    let reader = harness.tree.version();
    harness.delete_range(key(0), key(2000));
    harness.seal_all();
    while harness.tree.work_step(&harness.retention(), 0.0).expect("work") {}
    (0..3).for_each(|_| harness.publish());
    let (before, used) = (blocks(), env.store.statistics().used_bytes);
    assert!(before > 10, "what the reader may want stays, blocks={before}");
    drop(reader);
    harness.switch();
    assert_eq!(blocks(), before, "writers wait for the switch");
    if by_publication {
        (0..3).for_each(|_| harness.publish());
    } else {
        // What is removed by a generation that is not the newest is free at once.
        while harness.tree.release_some() {}
    }
    assert_eq!(blocks(), 0);
    let left = env.store.statistics().used_bytes;
    assert!(left < used / 2, "used={used} left={left}");
}

#[test]
fn behind_a_version_that_is_read_for_long_others_are_not_remembered() {
    let harness = Harness::new();
    let reader = harness.tree.version();
    let remembered = || harness.tree.state.lock().past.len();
    for memtable in 1..=200 {
        harness.tree.switch_active(Arc::new(Memtable::new(memtable, &ChunkPool::new(&harness.budget))));
        assert!(remembered() <= 40, "after {memtable}: {}", remembered());
    }
    drop(reader);
    harness.tree.release_some();
    assert!(remembered() <= 40);
}
