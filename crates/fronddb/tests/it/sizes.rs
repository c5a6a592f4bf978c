//! What a tree is said to take, where its values are kept apart and its neighbours' are not.

use fronddb::{Codec, Database, RangeEstimate, Tree, TreeOptions};

use crate::support::{Random, begin, open};

const ROWS: u32 = 400;
const VALUE_BYTES: usize = 12_000;
/// What one of them takes: the sixteenth part that is its head lies in the tree, the rest in whole pages.
const STORED_BYTES: u64 = 3 * 4096;
const ALL_BYTES: u64 = ROWS as u64 * STORED_BYTES;

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn whole(db: &Database, tree: &Tree) -> RangeEstimate {
    db.estimate(tree, b"", b"").unwrap()
}

/// The tree of large values is between two that have none: what shares leaves, blocks and buffers with them has none of their bytes.
fn expect(db: &Database, blob_bytes: std::ops::RangeInclusive<u64>) {
    let large = whole(db, &db.open_tree("large").unwrap());
    assert!(blob_bytes.contains(&large.blob_bytes), "{large:?}");
    assert!(large.bytes >= large.blob_bytes, "{large:?}");
    for name in ["before", "behind"] {
        let small = whole(db, &db.open_tree(name).unwrap());
        assert!(small.blob_bytes == 0 && small.rows > 0, "{name}: {small:?}");
    }
}

#[test]
fn values_kept_apart_are_in_the_size_of_their_tree_alone() {
    let storage = fronddb::io::MemoryStorage::new();
    let db = open(&storage);
    let plain = TreeOptions { codec: Some(Codec::None), ..TreeOptions::default() };
    let [before, large, behind] = ["before", "large", "behind"].map(|name| db.create_tree(name, &plain).unwrap());
    let mut random = Random::new(1);
    let mut write = |number: u32| {
        let txn = begin(&db);
        txn.put(&before, &key(number), b"small").unwrap();
        txn.put(&large, &key(number), &random.bytes(VALUE_BYTES)).unwrap();
        txn.put(&behind, &key(number), b"small").unwrap();
        txn.commit().unwrap();
    };
    (0..5).for_each(&mut write);
    expect(&db, 5 * STORED_BYTES..=5 * STORED_BYTES);
    (5..ROWS).for_each(&mut write);
    db.checkpoint().unwrap();
    // Of many runs in a buffer, the largest may stand for all.
    expect(&db, ALL_BYTES / 10 * 9..=ALL_BYTES / 10 * 11);
    while db.step_background().unwrap() {}
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    expect(&db, ALL_BYTES..=ALL_BYTES);
    db.close().unwrap();

    // What is below a node that nobody has reached yet stands in the node above.
    let db = open(&storage);
    expect(&db, ALL_BYTES..=ALL_BYTES);
    let large = db.open_tree("large").unwrap();
    let quarter = db.estimate(&large, &key(ROWS / 2), &key(ROWS / 4 * 3)).unwrap();
    let rows = u64::from(ROWS / 4);
    assert!(quarter.blob_bytes.abs_diff(rows * STORED_BYTES) <= rows / 10 * STORED_BYTES, "{quarter:?}");
    db.check(&mut |finding| panic!("{finding:?}"), None).unwrap();

    // They are there until the deletes meet them.
    let txn = begin(&db);
    (0..ROWS).for_each(|number| txn.delete(&large, &key(number)).unwrap());
    txn.commit().unwrap();
    expect(&db, ALL_BYTES..=ALL_BYTES);
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    expect(&db, 0..=0);
}
