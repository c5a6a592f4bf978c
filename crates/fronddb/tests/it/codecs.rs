//! Codec and level of each tree: that they take effect, stay, and change.

use std::ops::ControlFlow;

use fronddb::io::MemoryStorage;
use fronddb::{Codec, Database, Options, Tree, TreeOptions, TxnOptions, WriteBatch};

use crate::support::{DIRECTORY, Random, begin, collect, options};

const CODECS: [Codec; 4] = [Codec::None, Codec::Lz4, Codec::Zstd { level: 1 }, Codec::Zstd { level: 19 }];

fn large(storage: &MemoryStorage) -> Options {
    options(storage).memory_bytes(64 << 20).tree_tuning(None)
}

/// Rows such as codecs are good at, the same for every tree.
fn fill(db: &Database, tree: &Tree, from: u32, to: u32) {
    const WORDS: [&str; 12] = [
        "buffer", "message", "pivot", "child", "leaf", "run", "extent", "snapshot", "commit", "publish", "seal",
        "flush",
    ];
    let mut batch = WriteBatch::new();
    for row in from..to {
        let mut random = Random::new(u64::from(row));
        let words: Vec<&str> = (0..20).map(|_| WORDS[random.below(12) as usize]).collect();
        batch.put(tree, &row.to_be_bytes(), format!("{} {}", random.below(1000), words.join(" ")).as_bytes()).unwrap();
    }
    db.write(&batch, TxnOptions::default()).unwrap();
}

fn compact(db: &Database) {
    db.compact(None, b"", b"", &mut |_| ControlFlow::Continue(())).unwrap();
}

/// Stored bytes of each tree.
fn stored<const N: usize>(db: &Database, trees: &[Tree; N]) -> [u64; N] {
    [0; N].map({
        let mut trees = trees.iter();
        move |_: u64| db.estimate(trees.next().unwrap(), b"", b"").unwrap().bytes
    })
}

fn reopen(storage: &MemoryStorage, db: Database) -> (Database, [Tree; 4]) {
    db.close().unwrap();
    let db = Database::open(DIRECTORY, large(storage)).unwrap();
    let trees = std::array::from_fn(|number| db.open_tree(&number.to_string()).unwrap());
    (db, trees)
}

/// Each codec stores less than the one before.
fn assert_ordered([none, lz4, fast, best]: [u64; 4], rows: u64) {
    assert!(none > rows * 100, "not compressed, bytes={none}");
    assert!(lz4 < none * 3 / 4 && fast < lz4 * 9 / 10 && best < fast * 97 / 100, "{none} {lz4} {fast} {best}");
}

#[test]
fn each_tree_is_stored_with_its_codec_and_level() {
    let storage = MemoryStorage::new();
    let db = Database::open(DIRECTORY, large(&storage)).unwrap();
    let trees: [Tree; 4] = std::array::from_fn(|number| {
        let options = TreeOptions { codec: Some(CODECS[number]), metadata: Vec::new() };
        db.create_tree(&number.to_string(), &options).unwrap()
    });
    trees.iter().for_each(|tree| fill(&db, tree, 0, 8000));
    compact(&db);
    let first = stored(&db, &trees);
    assert_ordered(first, 8000);
    let (db, trees) = reopen(&storage, db);
    assert_eq!(stored(&db, &trees), first);
    // What is written after opening follows as well.
    trees.iter().for_each(|tree| fill(&db, tree, 8000, 16_000));
    compact(&db);
    let second = stored(&db, &trees);
    assert_ordered(second, 16_000);
    for (first, second) in first.into_iter().zip(second) {
        assert!(second.abs_diff(2 * first) < first / 10, "twice the rows: {first} {second}");
    }
    // Every codec becomes another one, and stored blocks follow when they are rewritten.
    let txn = begin(&db);
    for (tree, codec) in trees.iter().zip(CODECS.iter().rev()) {
        let mut options = txn.tree_options(tree).unwrap();
        options.codec = Some(*codec);
        txn.set_tree_options(tree, &options).unwrap();
    }
    txn.commit().unwrap();
    assert_eq!(stored(&db, &trees), second, "nothing was rewritten yet");
    trees.iter().for_each(|tree| fill(&db, tree, 0, 16_000));
    compact(&db);
    let mut changed = stored(&db, &trees);
    changed.reverse();
    for (was, is) in second.into_iter().zip(changed) {
        assert!(was.abs_diff(is) < was / 20, "{second:?} {changed:?}");
    }
    let (db, trees) = reopen(&storage, db);
    for tree in &trees {
        let txn = begin(&db);
        let rows = collect(&mut txn.cursor(tree, Default::default()).unwrap()).unwrap();
        let same = collect(&mut txn.cursor(&trees[0], Default::default()).unwrap()).unwrap();
        assert!(rows.len() == 16_000 && rows == same);
    }
}
