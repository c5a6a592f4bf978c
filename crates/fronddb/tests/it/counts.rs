//! Counts of rows: exact once buffers are compacted, at once after opening, also where trees share leaves and blocks.

use std::ops::ControlFlow;
use std::path::Path;

use fronddb::io::MemoryStorage;
use fronddb::{Codec, Database, Op, Options, Program, Tree, TreeOptions, WriteBatch};

use crate::support::{BLOB_BYTES_MIN, DIRECTORY, Random, options};

/// As large as the leaves and blocks of real databases: many trees lie in one leaf.
fn large(storage: &MemoryStorage) -> Options {
    options(storage).memory_bytes(64 << 20).tree_tuning(None)
}

fn fill(db: &Database, tree: &Tree, rows: u32, value: impl Fn(u32) -> Vec<u8>) {
    let mut batch = WriteBatch::new();
    for row in 0..rows {
        batch.put(tree, &row.to_be_bytes(), &value(row)).unwrap();
    }
    db.write(&batch, Default::default()).unwrap();
}

fn short(row: u32) -> Vec<u8> {
    Random::new(u64::from(row)).bytes(40 + row as usize % 50)
}

fn compact(db: &Database) {
    db.compact(None, b"", b"", &mut |_| ControlFlow::Continue(())).unwrap();
}

fn counted(db: &Database, name: &str) -> u64 {
    db.estimate(&db.open_tree(name).unwrap(), b"", b"").unwrap().rows
}

#[test]
fn trees_that_share_a_leaf_are_counted_exactly_at_once_after_opening() {
    let codecs = [[None; 5], [None, Some(Codec::Lz4), None, Some(Codec::None), None]];
    for (codecs, rows) in
        codecs.iter().flat_map(|codecs| [(codecs, [300, 5000, 1, 77, 700]), (codecs, [9, 8, 7, 6, 5])])
    {
        let storage = MemoryStorage::new();
        let db = Database::open(DIRECTORY, large(&storage)).unwrap();
        for (number, codec) in codecs.iter().enumerate() {
            let tree =
                db.create_tree(&number.to_string(), &TreeOptions { codec: *codec, metadata: Vec::new() }).unwrap();
            fill(&db, &tree, rows[number], short);
        }
        compact(&db);
        db.close().unwrap();
        for first in 0..rows.len() {
            let db = Database::open(DIRECTORY, large(&storage)).unwrap();
            for number in (first..rows.len()).chain(0..first) {
                let (read, name) = (db.statistics().unwrap().blocks_read, number.to_string());
                let counted = counted(&db, &name);
                assert_eq!(
                    counted,
                    u64::from(rows[number]),
                    "tree {name} of {rows:?}, first {first}, codecs {codecs:?}"
                );
                let read = db.statistics().unwrap().blocks_read - read;
                assert!(read <= 5, "the catalog's block, an index, and one at each border: {read}");
            }
        }
    }
}

#[test]
fn a_value_kept_apart_that_was_updated_is_one_row() {
    // In leaves that hold nothing else, and in one that others share.
    for (options, rows) in [(options as fn(&MemoryStorage) -> Options, 1500), (large, 60)] {
        let storage = MemoryStorage::new();
        let db = Database::open(DIRECTORY, options(&storage)).unwrap();
        let [before, tree, after] =
            ["before", "t", "after"].map(|name| db.create_tree(name, &TreeOptions::default()).unwrap());
        fill(&db, &before, 500, short);
        fill(&db, &after, 900, short);
        fill(&db, &tree, rows, |row| vec![row as u8; BLOB_BYTES_MIN + row as usize]);
        compact(&db);
        let mut program = Vec::new();
        Program { ops: vec![Op::Append { bytes: b"!".to_vec() }] }.encode(&mut program);
        let txn = db.begin(Default::default()).unwrap();
        for row in 0..rows - 10 {
            txn.update(&tree, &row.to_be_bytes(), &program).unwrap();
        }
        txn.commit().unwrap();
        compact(&db);
        let counts = |db: &Database| ["before", "t", "after"].map(|name| counted(db, name));
        assert_eq!(counts(&db), [500, rows.into(), 900]);
        db.close().unwrap();
        let db = Database::open(DIRECTORY, options(&storage)).unwrap();
        assert_eq!(counts(&db), [500, rows.into(), 900]);
        assert_eq!(db.get(&db.open_tree("t").unwrap(), &3u32.to_be_bytes()).unwrap().unwrap().last(), Some(&b'!'));
    }
}

#[test]
fn a_damaged_block_at_the_border_of_a_tree_is_counted_by_half() {
    const ROWS: [u32; 3] = [900, 400, 700];
    let storage = MemoryStorage::new();
    let db = Database::open(DIRECTORY, large(&storage)).unwrap();
    for (number, rows) in ROWS.into_iter().enumerate() {
        fill(&db, &db.create_tree(&number.to_string(), &TreeOptions::default()).unwrap(), rows, short);
    }
    compact(&db);
    db.close().unwrap();
    let path = Path::new(DIRECTORY).join("data.frond");
    let bytes = fronddb::io::read_file(&storage, &path).unwrap();
    let used = (0..).zip(&bytes).filter(|(_, byte)| **byte != 0).map(|(at, _)| at);
    let mut guessed = 0;
    for offset in used.step_by(500) {
        let image = storage.snapshot();
        image.flip_bit(&path, offset, 3).unwrap();
        let Ok(db) = Database::open(DIRECTORY, large(&image)) else { continue };
        for (number, rows) in ROWS.into_iter().enumerate() {
            let Ok(tree) = db.open_tree(&number.to_string()) else { continue };
            let Ok(estimate) = db.estimate(&tree, b"", b"") else { continue };
            assert!(estimate.rows.abs_diff(u64::from(rows)) < 200, "{} of {rows}", estimate.rows);
            guessed += usize::from(estimate.rows != u64::from(rows));
        }
    }
    assert!(guessed > 0, "no border was damaged");
}
