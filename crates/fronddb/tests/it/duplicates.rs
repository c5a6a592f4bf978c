//! What an insertion that finds its key taken leaves locked, and what the rest of its batch does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fronddb::{Database, ErrorKind, Isolation, LockMode, Result, Transaction, Tree, TxnOptions, Wait, WriteBatch};

use crate::support::{Random, fresh};

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];

fn at(db: &Database, isolation: Isolation, timeout: Duration) -> Transaction {
    db.begin(TxnOptions { isolation, lock_timeout: Some(timeout), ..TxnOptions::default() }).unwrap()
}

fn impatient(db: &Database) -> Transaction {
    at(db, Isolation::RepeatableRead, Duration::ZERO)
}

fn insert(txn: &Transaction, tree: &Tree, sharing: bool, keys: &[&[u8]]) -> Option<ErrorKind> {
    let mut batch = WriteBatch::new();
    batch.set_sharing(sharing);
    keys.iter().for_each(|key| batch.insert(tree, key, b"new").unwrap());
    kind(txn.write(&batch))
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

fn lock(txn: &Transaction, tree: &Tree, key: &[u8], mode: LockMode) -> Option<ErrorKind> {
    kind(txn.get_locked(tree, key, mode, Wait::NoWait))
}

const EXISTS: Option<ErrorKind> = Some(ErrorKind::KeyExists);
const TIMEOUT: Option<ErrorKind> = Some(ErrorKind::LockTimeout);

#[test]
fn who_only_tells_of_a_duplicate_shares_its_key() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"k", b"old").unwrap();
    for isolation in LEVELS {
        for sharing in [true, false] {
            let one = at(&db, isolation, Duration::ZERO);
            assert_eq!(insert(&one, &tree, sharing, &[b"k"]), EXISTS);
            let others = if sharing { EXISTS } else { TIMEOUT };
            assert_eq!(insert(&impatient(&db), &tree, true, &[b"k"]), others, "{isolation:?}");
            assert_eq!(lock(&impatient(&db), &tree, b"k", LockMode::Exclusive), TIMEOUT);
            assert_eq!(insert(&one, &tree, false, &[b"k"]), EXISTS, "it may still have it for itself");
            assert_eq!(lock(&impatient(&db), &tree, b"k", LockMode::Shared), TIMEOUT);
        }
    }
}

#[test]
fn who_shares_a_key_inserts_it_for_nobody_and_waits_for_nobody_who_shares_it() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"k", b"old").unwrap();
    let reader = impatient(&db);
    assert_eq!(lock(&reader, &tree, b"k", LockMode::Shared), None);
    assert_eq!(insert(&impatient(&db), &tree, true, &[b"k"]), EXISTS);
    // Of a place without a row a shared lock keeps insertions away.
    assert_eq!(lock(&reader, &tree, b"none", LockMode::Shared), None);
    let other = impatient(&db);
    assert_eq!(insert(&other, &tree, true, &[b"none"]), TIMEOUT);
    assert_eq!(lock(&impatient(&db), &tree, b"none", LockMode::Shared), None, "and it has left nothing there");
    assert_eq!(insert(&reader, &tree, true, &[b"none"]), None);
    assert_eq!(lock(&impatient(&db), &tree, b"none", LockMode::Shared), TIMEOUT);
}

#[test]
fn a_failed_batch_leaves_the_keys_before_the_duplicate_as_they_were() {
    let (_storage, db, tree) = fresh();
    db.put(&tree, b"taken", b"old").unwrap();
    for isolation in LEVELS {
        for (sharing, blocked) in [(true, false), (false, false), (true, true)] {
            let one = at(&db, isolation, Duration::ZERO);
            assert_eq!(insert(&one, &tree, true, &[b"mine"]), None);
            assert_eq!(lock(&one, &tree, b"shared", LockMode::Shared), None);
            let blocker = impatient(&db);
            if blocked {
                assert_eq!(lock(&blocker, &tree, b"taken", LockMode::Exclusive), None);
            }
            one.delete(&tree, b"mine").unwrap();
            let failure = if blocked { TIMEOUT } else { EXISTS };
            assert_eq!(insert(&one, &tree, sharing, &[b"mine", b"shared", b"free", b"taken"]), failure);
            let free = |mode| lock(&impatient(&db), &tree, b"free", mode);
            let tells = isolation == Isolation::Serializable;
            assert_eq!(free(LockMode::Exclusive), if tells { TIMEOUT } else { None }, "{isolation:?}");
            assert_eq!(free(LockMode::Shared), None);
            assert_eq!(lock(&impatient(&db), &tree, b"shared", LockMode::Shared), None);
            assert_eq!(lock(&impatient(&db), &tree, b"shared", LockMode::Exclusive), TIMEOUT);
            assert_eq!(lock(&impatient(&db), &tree, b"mine", LockMode::Shared), TIMEOUT, "written before");
            one.rollback().unwrap();
        }
    }
}

/// Insertions and deletions of a few keys by many threads, half of them rolled back: who holds a lock of a key knows whether it is
/// there. Each transaction takes one key, so none is ever in a deadlock.
#[test]
fn under_threads_a_duplicate_is_there_and_no_insertion_ends_in_a_deadlock() {
    const KEYS: usize = 3;
    let (_storage, db, tree) = fresh();
    let present: [AtomicBool; KEYS] = Default::default();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (db, tree, present) = (&db, &tree, &present);
            scope.spawn(move || {
                let mut random = Random::new(thread + 1);
                for _ in 0..400 {
                    let at_key = random.below(KEYS as u64) as usize;
                    let (key, here) = ([at_key as u8], &present[at_key]);
                    let isolation = LEVELS[random.below(3) as usize];
                    let txn = at(db, isolation, Duration::from_secs(60));
                    let inserts = random.below(3) > 0;
                    let done = match inserts {
                        true => match insert(&txn, tree, random.below(4) > 0, &[&key]) {
                            None => true,
                            failure => {
                                assert_eq!(failure, EXISTS);
                                assert!(here.load(Ordering::SeqCst));
                                false
                            }
                        },
                        false => txn.delete_existing(tree, &key).unwrap(),
                    };
                    if done {
                        assert_eq!(here.swap(inserts, Ordering::SeqCst), !inserts);
                    }
                    if random.below(2) == 0 {
                        txn.commit().unwrap();
                    } else {
                        if done {
                            here.store(!inserts, Ordering::SeqCst);
                        }
                        txn.rollback().unwrap();
                    }
                }
            });
        }
    });
    for (key, here) in present.iter().enumerate() {
        assert_eq!(db.get(&tree, &[key as u8]).unwrap().is_some(), here.load(Ordering::SeqCst));
    }
}
