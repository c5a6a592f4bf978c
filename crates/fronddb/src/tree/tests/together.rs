//! Cursors that go to a key in several runs at once.

use super::*;

#[test]
fn what_a_cursor_has_to_read_to_get_to_its_key_is_asked_for_at_once_but_for_the_first() {
    let harness = Harness::with_runs_above_a_leaf(3);
    let (cache, store) = (&harness.tree.env().cache, &harness.tree.env().store);
    let view = harness.view(CommitNumber(harness.now));
    let everything = Extent { start: 0, pages: 1 << 14 };
    for backward in [false, true] {
        let mut cursor = harness.tree.cursor(view.clone(), Vec::new(), None, CursorOptions::default());
        let mut seek = || {
            let before = harness.tree.env().run_counters.statistics();
            let went = if backward { cursor.seek_before(&key(303)) } else { cursor.seek(&key(300)) };
            went.expect("seek");
            assert_eq!((cursor.key(), cursor.value()), (key(300).as_slice(), [2; 20].as_slice()));
            let after = harness.tree.env().run_counters.statistics();
            (after.read_aheads - before.read_aheads, after.block_reads_scan - before.block_reads_scan)
        };
        cache.remove_range(everything);
        assert_eq!(seek(), (3, 4), "three pending runs and the leaf: backward={backward}");
        assert_eq!(store.most_asks(), 3, "all before the first of them is read: backward={backward}");
        assert_eq!(seek(), (0, 0), "all are cached: backward={backward}");
        assert_eq!(store.most_asks(), 0);
        assert!(!store.has_asks());
    }
}
