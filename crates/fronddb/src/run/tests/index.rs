//! How index blocks come into the cache, and how long they stay.

use super::super::RunCursor;
use super::super::path::Access;
use super::*;

/// A run with some index blocks below its top one, and these.
fn two_levels(world: &mut World) -> (Vec<Sample>, Arc<Run>, Vec<u64>) {
    let (samples, meta) = write_large(world);
    let run = world.open(&meta);
    let top = run.top_index(Access::Scan).expect("reads");
    let blocks: Vec<u64> = (0..top.count()).map(|at| top.entry(at).ptr.offset).collect();
    assert!(top.level() == 1 && blocks.len() > 1);
    drop(top);
    world.forget_cached(&meta);
    (samples, run, blocks)
}

fn walk(run: &Arc<Run>, mode: CursorMode) -> RunCursor {
    let mut cursor = run.cursor(mode);
    let mut more = cursor.first().expect("reads");
    while more {
        more = cursor.next().expect("reads");
    }
    cursor
}

const BULK: CursorMode =
    CursorMode { fill_cache: false, read_ahead_bytes: 64 << 10, is_long: false, asks_ahead: false };

#[test]
fn what_fills_no_cache_reads_each_index_block_once_and_leaves_none() {
    let mut world = world();
    let (samples, run, blocks) = two_levels(&mut world);
    let reads = || world.counters.statistics().block_reads_meta;
    let before = reads();
    let cursor = walk(&run, BULK);
    assert_eq!(reads() - before, 1 + blocks.len() as u64);
    // While it is there, another finds the top of the index where it has it.
    let mut other = run.cursor(BULK);
    let before = reads();
    assert!(other.seek(&samples[5000].key).expect("reads"));
    assert_eq!(reads() - before, 1);
    drop(cursor);
    for sample in &samples[5000..5100] {
        assert!(other.seek(&sample.key).expect("reads"));
    }
    assert!(other.seek_before(&samples[5001].key).expect("reads"));
    assert!(reads() - before <= 3, "the path has what a jump needs");
    assert_eq!(world.cache.statistics().blocks, 0);
}

#[test]
fn index_blocks_of_a_long_scan_go_before_those_of_others() {
    let mut world = world();
    let ((_, short, short_blocks), (_, long, long_blocks)) = (two_levels(&mut world), two_levels(&mut world));
    walk(&short, CursorMode { asks_ahead: false, ..CursorMode::default() });
    walk(&long, CursorMode { is_long: true, asks_ahead: false, ..CursorMode::default() });
    let cached = |blocks: &[u64]| blocks.iter().filter(|offset| world.cache.contains(**offset)).count();
    assert_eq!((cached(&short_blocks), cached(&long_blocks)), (short_blocks.len(), long_blocks.len()));
    // Down to where some of the long scan's went.
    for limit in (1..16).rev() {
        world.cache.budget().set_limit(limit << 20);
        world.cache.trim();
        if cached(&long_blocks) < long_blocks.len() {
            break;
        }
    }
    assert!(cached(&long_blocks) < long_blocks.len());
    assert_eq!(cached(&short_blocks), short_blocks.len());
}
