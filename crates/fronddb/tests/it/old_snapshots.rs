//! A snapshot that stays open for long: what it sees stays as it was, and what it keeps of others' transactions is bounded.

use std::collections::BTreeMap;

use fronddb::{CursorOptions, Database, Durability, Transaction, Tree, TxnOptions};

use crate::support::{begin, collect, fresh};

const KEYS: u32 = 60;
const ROUNDS: u32 = 48;
/// Transactions of a round that only fill the states of transactions.
const FILLERS: u32 = 1500;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Commits without waiting for anything.
fn begin_quick(db: &Database) -> Transaction {
    db.begin(TxnOptions { durability: Durability::None, ..TxnOptions::default() }).unwrap()
}

fn key(number: u32) -> Vec<u8> {
    [&b"row"[..], &number.to_be_bytes()].concat()
}

fn rows(txn: &Transaction, tree: &Tree) -> Rows {
    collect(&mut txn.cursor(tree, CursorOptions::default()).unwrap()).unwrap().into_iter().collect()
}

fn at_rest(db: &Database) {
    db.checkpoint().unwrap();
    while db.step_background().unwrap() {}
}

fn metadata(db: &Database) -> u64 {
    db.statistics().unwrap().memory_metadata_bytes
}

/// Changes rows in every way: written over, deleted, inserted, rolled back, rolled back in part.
fn change(db: &Database, tree: &Tree, round: u32, now: &mut Rows) {
    let value = round.to_be_bytes();
    for number in [round % KEYS, (7 * round + 1) % KEYS, KEYS + round] {
        db.put(tree, &key(number), &value).unwrap();
        now.insert(key(number), value.to_vec());
    }
    let deleted = key((11 * round + 5) % KEYS);
    db.delete(tree, &deleted).unwrap();
    now.remove(&deleted);
    let undone = begin_quick(db);
    undone.put(tree, &key((13 * round + 2) % KEYS), b"undone").unwrap();
    undone.delete(tree, &key((13 * round + 3) % KEYS)).unwrap();
    undone.put(tree, &key(1000 + round), b"undone").unwrap();
    undone.rollback().unwrap();
    let in_part = begin_quick(db);
    let kept = key((17 * round + 4) % KEYS);
    in_part.put(tree, &kept, b"kept").unwrap();
    let savepoint = in_part.savepoint().unwrap();
    in_part.put(tree, &kept, b"undone").unwrap();
    in_part.delete(tree, &key((19 * round + 6) % KEYS)).unwrap();
    in_part.put(tree, &key(2000 + round), b"undone").unwrap();
    in_part.rollback_to(savepoint).unwrap();
    in_part.commit().unwrap();
    now.insert(kept, b"kept".to_vec());
}

/// Behind it, states of transactions go with level 0: the snapshot does not need them any more. With `reads_on`, somebody stands in the
/// midst of a scan all the time, and holds the version of the tree that was there at its beginning.
fn bounded(reads_on: bool) {
    let (_storage, db, tree) = fresh();
    let mut now = Rows::new();
    for number in 0..KEYS {
        db.put(&tree, &key(number), b"before").unwrap();
        now.insert(key(number), b"before".to_vec());
    }
    at_rest(&db);
    // One that the snapshot does not see, in the memtable that the scan holds.
    db.put(&tree, &key(0), b"seen").unwrap();
    now.insert(key(0), b"seen".to_vec());
    let old = begin(&db);
    let seen = rows(&old, &tree);
    assert_eq!(seen, now);
    db.put(&tree, &key(1), b"unseen").unwrap();
    now.insert(key(1), b"unseen".to_vec());
    let mut scan = reads_on.then(|| old.cursor(&tree, CursorOptions::default()).unwrap());
    assert!(scan.as_mut().is_none_or(|scan| scan.first().unwrap()));
    let before = metadata(&db);
    for round in 0..ROUNDS {
        // It is undecided when the memtable with its row is written, and is committed beside ones that go.
        let late = (round % 16 == 5).then(|| begin_quick(&db));
        if let Some(late) = &late {
            late.put(&tree, &key(3000 + round), b"late").unwrap();
        }
        change(&db, &tree, round, &mut now);
        for filler in 0..FILLERS {
            let txn = begin_quick(&db);
            txn.put(&tree, &key(4000 + filler % 10), &round.to_be_bytes()).unwrap();
            if filler % 100 == 0 { txn.rollback().unwrap() } else { txn.commit().unwrap() }
        }
        (0..10).for_each(|filler| _ = now.insert(key(4000 + filler), round.to_be_bytes().to_vec()));
        at_rest(&db);
        if let Some(late) = late {
            late.commit().unwrap();
            now.insert(key(3000 + round), b"late".to_vec());
        }
        assert_eq!(rows(&old, &tree), seen, "round={round}");
        assert_eq!(rows(&begin(&db), &tree), now, "round={round}");
        let number = round % KEYS;
        assert_eq!(old.get(&tree, &key(number)).unwrap().as_deref(), seen.get(&key(number)).map(Vec::as_slice));
        assert!(old.changed_after_snapshot(&tree, &key(number)).unwrap(), "round={round}");
    }
    let kept = metadata(&db).saturating_sub(before);
    assert!(kept < 300_000, "of {} bytes of states: {kept}", 8 * ROUNDS * FILLERS);
    if let Some(scan) = &mut scan {
        let mut rest = vec![(scan.key().to_vec(), scan.value().to_vec())];
        while scan.next().unwrap() {
            rest.push((scan.key().to_vec(), scan.value().to_vec()));
        }
        assert_eq!(rest.into_iter().collect::<Rows>(), seen);
    }
    drop((scan, old));
    at_rest(&db);
    assert_eq!(rows(&begin(&db), &tree), now);
    db.check(&mut |finding| panic!("{finding:?}"), None).unwrap();
}

#[test]
fn states_of_transactions_behind_an_old_snapshot_go_with_level_0() {
    bounded(false);
}

#[test]
fn and_also_while_somebody_stands_in_the_midst_of_a_scan() {
    bounded(true);
}
