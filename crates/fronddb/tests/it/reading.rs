//! What reads leave alone, and how near estimates come.

use std::path::Path;

use fronddb::io::MemoryStorage;
use fronddb::{
    CursorOptions, Database, Isolation, LockMode, Op, Program, RangeEstimate, Result, Transaction, Tree, TreeOptions,
    TxnOptions, Wait,
};

use crate::support::{BLOB_BYTES_MIN, DIRECTORY, Random, begin, collect, collect_backward, fresh, open, options};

/// Everything that must not touch a value kept apart.
fn read_keys(db: &Database, tree: &Tree) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let txn = db.begin(TxnOptions { isolation, ..TxnOptions::default() })?;
        for lock in [None, Some(LockMode::Shared)] {
            let options = CursorOptions { keys_only: true, lock, ..CursorOptions::default() };
            let mut cursor = txn.cursor(tree, options)?;
            found.push(collect(&mut cursor)?.len());
            found.push(collect_backward(&mut cursor)?.len());
            assert!(cursor.first()? && cursor.lock_row(LockMode::Shared, Wait::NoWait)? && cursor.value().is_empty());
        }
        found.push(usize::from(txn.contains(tree, b"large")?) + usize::from(txn.contains(tree, b"changed")?) + 1);
        txn.rollback()?;
    }
    Ok(found)
}

/// A scan stands at the first of two rows with many dead keys between them, where the memtable that it reads has nothing.
#[test]
fn a_row_that_is_written_before_a_scan_proves_its_range_dead_stays_visible() {
    let (_storage, db, tree) = fresh();
    (0..300u32).for_each(|row| db.put(&tree, &row.to_be_bytes(), b"old").unwrap());
    db.checkpoint().unwrap();
    (0..300u32).filter(|row| ![5, 299].contains(row)).for_each(|row| db.delete(&tree, &row.to_be_bytes()).unwrap());
    db.checkpoint().unwrap();
    let txn = begin(&db);
    let mut cursor = txn.cursor(&tree, CursorOptions::default()).unwrap();
    assert!(cursor.first().unwrap() && cursor.key() == 5u32.to_be_bytes());
    db.put(&tree, &150u32.to_be_bytes(), b"new").unwrap();
    assert!(cursor.next().unwrap() && cursor.key() == 299u32.to_be_bytes());
    let later = begin(&db);
    let mut cursor = later.cursor(&tree, CursorOptions::default()).unwrap();
    let rows: Vec<_> = collect(&mut cursor).unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(rows, [5u32, 150, 299].map(|row| row.to_be_bytes().to_vec()));
}

/// Rows in blocks under newer ones, of which some are changed, gone, or not for all to see; between those of other trees.
fn layers(db: &Database, trees: &[Tree]) -> Result<()> {
    for tree in trees {
        let txn = db.begin(TxnOptions::default())?;
        (0..4000u32)
            .try_for_each(|row| txn.put(tree, &row.to_be_bytes(), &row.to_le_bytes().repeat(1 + row as usize % 7)))?;
        txn.commit()?;
    }
    db.checkpoint()?;
    for tree in trees {
        (0..4000u32).filter(|row| row % 97 == 5).try_for_each(|row| db.delete(tree, &row.to_be_bytes()))?;
        (0..4000u32).filter(|row| row % 83 == 7).try_for_each(|row| db.put(tree, &row.to_be_bytes(), b"newer"))?;
    }
    Ok(())
}

#[test]
fn rows_that_are_passed_over_are_those_of_single_steps() {
    let (_storage, db, tree) = fresh();
    let other = db.create_tree("other", &TreeOptions::default()).unwrap();
    layers(&db, &[tree.clone(), other.clone()]).unwrap();
    let mut passed_in_all = 0;
    for (seed, keys_only) in (0..20).zip([false, true].into_iter().cycle()) {
        let mut random = Random::new(seed);
        let txn = begin(&db);
        let options = || CursorOptions { keys_only, ..CursorOptions::default() };
        let expected = collect(&mut txn.cursor(&tree, options()).unwrap()).unwrap();
        let mut cursor = txn.cursor(&tree, options()).unwrap();
        let mut found = Vec::new();
        let mut at_row = cursor.first().unwrap();
        while at_row {
            found.push((cursor.key().to_vec(), cursor.value().to_vec()));
            let (most, refused) = (random.below(9) as usize * 10, random.below(60) as usize);
            let mut left = refused;
            let passed = cursor.pass(most, |[front, rest], value| {
                let takes = left > 0;
                if takes {
                    found.push(([front, rest].concat(), value.to_vec()));
                }
                left = left.saturating_sub(1);
                takes
            });
            assert!(passed <= most.min(refused));
            assert_eq!((cursor.key(), cursor.value()), (&found.last().unwrap().0[..], &found.last().unwrap().1[..]));
            passed_in_all += passed;
            at_row = match random.below(3) {
                0 => cursor.advance() || cursor.next().unwrap(),
                // There and back again.
                1 if found.len() > 1 && cursor.prev().unwrap() => cursor.next().unwrap() && cursor.next().unwrap(),
                _ => cursor.next().unwrap(),
            };
        }
        assert!(found == expected, "seed={seed}");
        assert!(passed_in_all > 0 || seed < 3);
    }
    assert!(passed_in_all > 20_000, "few rows are passed over: {passed_in_all}");
}

/// The same, from the other end.
#[test]
fn a_row_that_is_written_before_a_scan_down_proves_its_range_dead_stays_visible() {
    for written in [298u32, 240, 234, 150, 6] {
        let (_storage, db, tree) = fresh();
        (0..300u32).for_each(|row| db.put(&tree, &row.to_be_bytes(), b"old").unwrap());
        db.checkpoint().unwrap();
        (0..300u32).filter(|row| ![5, 299].contains(row)).for_each(|row| db.delete(&tree, &row.to_be_bytes()).unwrap());
        db.checkpoint().unwrap();
        let txn = begin(&db);
        let mut cursor = txn.cursor(&tree, CursorOptions::default()).unwrap();
        assert!(cursor.last().unwrap() && cursor.key() == 299u32.to_be_bytes());
        db.put(&tree, &written.to_be_bytes(), b"new").unwrap();
        assert!(cursor.prev().unwrap() && cursor.key() == 5u32.to_be_bytes());
        let later = begin(&db);
        let mut cursor = later.cursor(&tree, CursorOptions::default()).unwrap();
        let mut rows: Vec<_> = collect_backward(&mut cursor).unwrap().into_iter().map(|(key, _)| key).collect();
        rows.sort();
        assert_eq!(rows, [5, written, 299].map(|row| row.to_be_bytes().to_vec()));
        assert_eq!(collect(&mut cursor).unwrap().len(), 3);
    }
}

/// Pops and pushes at the end, and elsewhere, by several threads: no row that is there before a scan and not deleted since is missing.
#[test]
fn stacks_that_threads_share_lose_no_row() {
    let (_storage, db, tree) = fresh();
    (0..2000u32).for_each(|row| db.put(&tree, &row.to_be_bytes(), b"old").unwrap());
    std::thread::scope(|scope| {
        for thread in 0..3u32 {
            let (db, tree) = (&db, &tree);
            scope.spawn(move || {
                let mut random = Random::new(u64::from(thread));
                for round in 0..400u32 {
                    // A row of its own, in the midst of what is popped.
                    let own = (3 * (random.below(600) as u32) + 100)
                        .to_be_bytes()
                        .into_iter()
                        .chain([thread as u8])
                        .collect::<Vec<_>>();
                    db.put(tree, &own, &round.to_be_bytes()).unwrap();
                    let txn = begin(db);
                    let mut cursor = txn.cursor(tree, CursorOptions::default()).unwrap();
                    assert!(cursor.seek_for_prev(&own).unwrap());
                    assert_eq!(cursor.key(), own, "thread={thread} round={round}");
                    assert!(cursor.last().unwrap());
                    let mut popped = 0;
                    while popped < 5 && cursor.valid() {
                        if cursor.key().len() == 4 {
                            db.delete(tree, cursor.key()).unwrap();
                            popped += 1;
                        }
                        if !cursor.prev().unwrap() {
                            break;
                        }
                    }
                    drop(cursor);
                    txn.rollback().unwrap();
                    let txn = begin(db);
                    let mut cursor = txn.cursor(tree, CursorOptions::default()).unwrap();
                    let found = collect_backward(&mut cursor).unwrap();
                    assert!(found.iter().any(|(key, _)| *key == own), "thread={thread} round={round}");
                    drop(cursor);
                    txn.rollback().unwrap();
                    db.delete(tree, &own).unwrap();
                }
            });
        }
    });
}

/// Of how many pages of the data file, the one damaged alone, `holds` is true. The database is closed.
fn damaged_pages(storage: &MemoryStorage, holds: impl Fn(&Database, &Tree) -> bool) -> usize {
    let file = Path::new(DIRECTORY).join("data.frond");
    let length = storage.files().iter().find(|(path, _)| *path == file).unwrap().1;
    let pages = (64 << 10..length).step_by(4 << 10).filter(|page| {
        let damaged = storage.snapshot();
        damaged.flip_bit(&file, page + 100, 1).unwrap();
        let Ok(db) = Database::open(DIRECTORY, options(&damaged)) else { return false };
        db.open_tree("t").is_ok_and(|tree| holds(&db, &tree))
    });
    pages.count()
}

#[test]
fn reading_keys_loads_no_blob() {
    let (storage, db, tree) = fresh();
    let mut random = Random::new(3);
    let large: Vec<u8> = (0..8 * BLOB_BYTES_MIN).map(|_| random.next() as u8).collect();
    db.put(&tree, b"large", &large).unwrap();
    db.put(&tree, b"changed", &large).unwrap();
    let txn = begin(&db);
    let mut program = Vec::new();
    Program { ops: vec![Op::Append { bytes: b"!".to_vec() }] }.encode(&mut program);
    txn.update(&tree, b"changed", &program).unwrap();
    txn.put(&tree, b"small", b"v").unwrap();
    txn.commit().unwrap();
    assert_eq!(read_keys(&db, &tree).unwrap(), [3; 15]);
    db.checkpoint().unwrap();
    db.close().unwrap();
    // Pages whose damage keeps the values from being read, and the keys not.
    let kept_apart = damaged_pages(&storage, |db, tree| {
        let values = [&b"large"[..], b"changed"].map(|key| db.get(tree, key));
        let are_read = values.iter().all(|value| value.as_ref().is_ok_and(Option::is_some));
        !are_read && read_keys(db, tree).is_ok_and(|found| found == [3; 15])
    });
    let pages = 2 * large.len() / (4 << 10);
    assert!(kept_apart >= pages - 2, "pages={pages}");
}

/// What heads-only reads find of each row: by key, and by cursors forward and backward.
fn read_heads(db: &Database, tree: &Tree) -> Result<[Vec<Vec<u8>>; 3]> {
    let txn = begin(db);
    let mut cursor = txn.cursor(tree, CursorOptions { heads_only: true, ..CursorOptions::default() })?;
    let forward = collect(&mut cursor)?;
    let backward = collect_backward(&mut cursor)?;
    let by_key = forward.iter().map(|(key, _)| Ok(txn.get_head(tree, key)?.expect("the row").to_vec()));
    let by_key = by_key.collect::<Result<_>>()?;
    let values = |rows: Vec<(Vec<u8>, Vec<u8>)>| rows.into_iter().map(|(_, value)| value).collect();
    Ok([by_key, values(forward), values(backward)])
}

#[test]
fn reading_heads_loads_no_blob() {
    let (storage, db, tree) = fresh();
    let mut random = Random::new(4);
    let large: Vec<u8> = (0..8 * BLOB_BYTES_MIN).map(|_| random.next() as u8).collect();
    let head = &large[..8 * BLOB_BYTES_MIN / 16];
    db.put(&tree, b"large", &large).unwrap();
    db.put(&tree, b"small", b"v").unwrap();
    assert!(read_heads(&db, &tree).unwrap().iter().all(|rows| *rows == [head, &b"v"[..]]));
    db.checkpoint().unwrap();
    db.close().unwrap();
    let kept_apart = damaged_pages(&storage, |db, tree| {
        db.get(tree, b"large").is_err()
            && read_heads(db, tree).is_ok_and(|found| found.iter().all(|rows| *rows == [head, &b"v"[..]]))
    });
    assert!(kept_apart >= large.len() / (4 << 10) - 1);

    // What an update changes, and what is locked, is whole.
    let db = open(&storage);
    let tree = db.open_tree("t").unwrap();
    let txn = begin(&db);
    let locked = CursorOptions { heads_only: true, lock: Some(LockMode::Shared), ..CursorOptions::default() };
    let mut cursor = txn.cursor(&tree, locked).unwrap();
    assert!(cursor.first().unwrap() && cursor.value() == large);
    let mut program = Vec::new();
    Program { ops: vec![Op::Append { bytes: b"!".to_vec() }] }.encode(&mut program);
    txn.update(&tree, b"large", &program).unwrap();
    drop(cursor);
    txn.commit().unwrap();
    let changed = [&large[..], b"!"].concat();
    assert!(read_heads(&db, &tree).unwrap().iter().all(|rows| rows[0] == changed));
}

#[test]
fn estimates_are_within_a_factor_of_two_wherever_the_rows_are() {
    const ROWS: u64 = 20_000;
    /// Rows of two blocks: what lies in leaves is counted by blocks.
    const BLOCK: u64 = 250;
    let storage = fronddb::io::MemoryStorage::new();
    let options = || crate::support::options(&storage).memory_bytes(64 << 20).level0_bytes(16 << 20);
    let db = Database::open(DIRECTORY, options()).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let other = db.create_tree("other", &TreeOptions::default()).unwrap();
    let txn = begin(&db);
    for number in 0..ROWS {
        txn.put(&tree, &(number * 7919 % ROWS).to_be_bytes(), b"row").unwrap();
        txn.put(&other, &number.to_be_bytes(), b"row").unwrap();
    }
    txn.commit().unwrap();
    let check = |db: &Database, tree: &Tree, what: &str, slack: u64| {
        let mut random = Random::new(5);
        let near = |from: u64, to: u64| {
            let upper = if to >= ROWS { Vec::new() } else { to.to_be_bytes().to_vec() };
            let found = db.estimate(tree, &from.to_be_bytes(), &upper).unwrap().rows;
            let real = to.min(ROWS).saturating_sub(from);
            assert!(found <= 2 * real + slack && real <= 2 * found + slack, "{what} {from}..{to}: {found}");
        };
        near(0, ROWS);
        for _ in 0..200 {
            let from = random.below(ROWS);
            near(from, from + random.below(ROWS - from) + 1);
            near(from, (from + random.below(150)).min(ROWS - 1).max(from));
        }
    };
    check(&db, &tree, "active", 0);
    check(&db, &other, "active, ascending", 0);
    drop((db, tree, other));
    let db = Database::open(DIRECTORY, options()).unwrap();
    check(&db, &db.open_tree("t").unwrap(), "recovered", 0);
    db.checkpoint().unwrap();
    db.wait_idle().unwrap();
    drop(db);
    let db = open(&storage);
    check(&db, &db.open_tree("t").unwrap(), "leaves", BLOCK);
}

/// Rows of the tree whose cold reads are counted; each is a few hundred to a block.
const COLD_ROWS: u32 = 100_000;

/// A tree in leaves, with runs of other rows of the same keys above them; the keys have gaps.
fn cold(filter_bits_per_key: u8) -> (fronddb::io::MemoryStorage, impl Fn(&fronddb::io::MemoryStorage) -> Database) {
    let options = move |storage: &fronddb::io::MemoryStorage| {
        let options = crate::support::options(storage).memory_bytes(64 << 20).tree_tuning(None);
        options.filter_bits_per_key(filter_bits_per_key)
    };
    let open = move |storage: &fronddb::io::MemoryStorage| Database::open(DIRECTORY, options(storage)).unwrap();
    let storage = fronddb::io::MemoryStorage::new();
    let db = open(&storage);
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let mut random = Random::new(6);
    let mut fill = |rows: &mut dyn Iterator<Item = u32>| {
        let txn = begin(&db);
        for row in rows {
            txn.put(&tree, &row.to_be_bytes(), &random.bytes(40)).unwrap();
        }
        txn.commit().unwrap();
        db.checkpoint().unwrap();
    };
    fill(&mut (0..COLD_ROWS).map(|row| 8 * row));
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    for run in 1..4 {
        fill(&mut (0..COLD_ROWS / 20).map(|row| 8 * 20 * row + run));
    }
    drop((db, tree));
    (storage, open)
}

/// Blocks read by point reads of these keys in a database that was just opened, and how many are there.
fn blocks_read(db: &Database, keys: impl Iterator<Item = u32>) -> (u64, usize) {
    let tree = db.open_tree("t").unwrap();
    let before = db.statistics().unwrap().blocks_read;
    let found = keys.filter(|key| db.get(&tree, &key.to_be_bytes()).unwrap().is_some()).count();
    (db.statistics().unwrap().blocks_read - before, found)
}

#[test]
fn a_cold_point_read_reads_one_block_and_none_for_an_absent_key() {
    // Keys so far apart that none is in the block of another, or the next.
    let keys = || (0..COLD_ROWS).step_by(2000).map(|row| 8 * row);
    let absent = |gap: u32| (0..COLD_ROWS).step_by(100).map(move |row| 8 * row + gap);
    let (storage, open) = cold(10);
    let db = open(&storage);
    let statistics = db.statistics().unwrap();
    assert!(statistics.root_runs >= 3 && statistics.pending_bytes > 0, "nothing but leaves");
    let (read, found) = blocks_read(&db, absent(5));
    assert!(found == 0 && read < 100, "the filters themselves, once, blocks_read={read}");
    let (read, found) = blocks_read(&db, keys());
    // A top index of each leaf besides; some blocks were read above, in error.
    assert!(found == 50 && (40..60).contains(&read), "blocks_read={read} found={found}");
    let (read, found) = blocks_read(&db, absent(6));
    assert!(found == 0 && read <= 20, "one read in a hundred, by error, blocks_read={read}");
    let (storage, open) = cold(0);
    let (read, _) = blocks_read(&open(&storage), absent(5));
    assert!(read > 250, "without filters each is looked for, blocks_read={read}");
}

#[test]
fn an_estimate_of_a_cold_range_reads_at_its_borders_alone() {
    const PARTS: u32 = 10;
    const BLOCKS_MAX: u64 = 40;
    let (storage, open) = cold(10);
    let rows = u64::from(COLD_ROWS + 3 * COLD_ROWS / 20);
    // From one place in tenths to another, in a database that was just opened.
    let estimate = |from: f64, to: f64| {
        let db = open(&storage);
        let tree = db.open_tree("t").unwrap();
        let border = |tenths: f64| ((f64::from(8 * COLD_ROWS) / 10.0 * tenths) as u32).to_be_bytes();
        let before = db.statistics().unwrap();
        let found = db.estimate(&tree, &border(from), &border(to)).unwrap();
        let after = db.statistics().unwrap();
        let real = (rows as f64 / 10.0 * (to - from)) as u64;
        assert!(found.rows.abs_diff(real) < rows / 10 / 5, "{from}..{to}: {found:?}, in truth {real}");
        let (read, read_bulk) =
            (after.blocks_read - before.blocks_read, after.blocks_read_bulk - before.blocks_read_bulk);
        assert!(read <= BLOCKS_MAX && read_bulk == 0, "{from}..{to}: blocks_read={read} blocks_read_bulk={read_bulk}");
        found
    };
    let parts = (0..PARTS).map(|part| estimate(f64::from(part), f64::from(part + 1)));
    let parts = parts.fold(RangeEstimate::default(), |sum, part| RangeEstimate {
        rows: sum.rows + part.rows,
        bytes: sum.bytes + part.bytes,
        blob_bytes: sum.blob_bytes + part.blob_bytes,
    });
    // Nine tenths cost no more than one.
    estimate(0.5, 9.5);
    let whole = estimate(0.0, 10.0);
    assert!(parts.rows.abs_diff(whole.rows) < rows / 20, "{parts:?} {whole:?}");
    assert!(parts.bytes.abs_diff(whole.bytes) < whole.bytes / 20, "{parts:?} {whole:?}");
    let db = open(&storage);
    let tree = db.open_tree("t").unwrap();
    assert_eq!(collect(&mut begin(&db).cursor(&tree, CursorOptions::default()).unwrap()).unwrap().len() as u64, rows);
    let scanned = db.statistics().unwrap().blocks_read;
    assert!(scanned > 5 * BLOCKS_MAX, "all of it is many blocks, blocks_read={scanned}");
}

#[test]
fn what_a_range_delete_hides_from_one_scan_is_there_for_others() {
    let (_storage, db, tree) = fresh();
    let key = |number: u32| number.to_be_bytes();
    for number in 0..300 {
        db.put(&tree, &key(number), b"v").unwrap();
    }
    db.checkpoint().unwrap();
    for number in 0..100 {
        db.delete(&tree, &key(number)).unwrap();
    }
    let rows = |txn: &Transaction| collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap().len();
    let deleter = begin(&db);
    deleter.delete_range(&tree, &key(100), &key(200)).unwrap();
    // Long rows of deleted keys make a scan remember what is dead, for all.
    assert_eq!((rows(&deleter), rows(&deleter)), (100, 100));
    assert_eq!(rows(&begin(&db)), 200);
    deleter.rollback().unwrap();
    assert_eq!((rows(&begin(&db)), rows(&begin(&db))), (200, 200));
}

#[test]
fn long_keys_that_are_alike_and_one_that_is_not_are_read_back() {
    let storage = MemoryStorage::new();
    let settings = options(&storage).memory_bytes(128 << 20).level0_bytes(32 << 20).tree_tuning(None);
    let db = Database::open(DIRECTORY, settings).unwrap();
    let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
    let alike = |number: u16| [&[b'a'; 3072][..], &number.to_be_bytes()].concat();
    for number in 0..3000 {
        db.put(&tree, &alike(number), b"").unwrap();
    }
    db.put(&tree, b"b", b"").unwrap();
    db.checkpoint().unwrap();
    let txn = begin(&db);
    let rows = collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap();
    assert_eq!(rows.len(), 3001);
    assert!(db.get(&tree, &alike(2999)).unwrap().is_some() && db.get(&tree, b"b").unwrap().is_some());
}

/// A cursor that sees the uncommitted and goes elsewhere stands at a message that is undone then; below it level 0 may have forgotten what was
/// committed since the cursor was first positioned, but not what it comes to.
#[test]
fn a_row_stays_for_a_cursor_over_the_uncommitted_that_has_gone_elsewhere() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"j", b"in a run").unwrap();
    db.checkpoint().unwrap();
    for key in [b"a", b"b", b"c"] {
        db.put(&tree, key, b"before it in its leaf").unwrap();
    }
    let reader = db.begin(TxnOptions { isolation: Isolation::ReadUncommitted, ..TxnOptions::default() }).unwrap();
    let mut cursor = reader.cursor(&tree, CursorOptions::default()).unwrap();
    assert!(cursor.seek(b"j").unwrap());
    db.put(&tree, b"k", b"first").unwrap();
    let undone = begin(&db);
    undone.put(&tree, b"k", b"undone").unwrap();
    assert!(cursor.seek(b"j").unwrap());
    undone.rollback().unwrap();
    for number in 0..40u32 {
        db.put(&tree, b"k", &number.to_be_bytes()).unwrap();
    }
    assert!(cursor.next().unwrap(), "a row that was there all the time");
    assert_eq!(cursor.key(), b"k");
}
