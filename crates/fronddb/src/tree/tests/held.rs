//! Memtables that are held in level 0.

use super::*;

#[test]
fn the_memtable_before_the_one_that_is_named_stays_in_level_0() {
    let mut harness = Harness::new();
    let seal = |harness: &Harness| {
        let sealed = harness.tree.seal_step(&harness.retention()).expect("seal");
        sealed.map(|sealed| sealed.memtable_id)
    };
    for memtable in 2..=4 {
        harness.write(&key(memtable), Kind::Put, b"value");
        if memtable > 2 {
            harness.tree.hold_memtables_before(u64::from(memtable));
        }
        harness.switch();
    }
    assert_eq!([seal(&harness), seal(&harness)], [Some(1), None]);
    assert!(harness.tree.holds_memtables());
    harness.check();
    harness.tree.let_memtables_go();
    assert_eq!([seal(&harness), seal(&harness), seal(&harness)], [Some(2), Some(3), None]);
    harness.check();
}
