//! Every engine behind the benchmark's traits answers as the sorted map does: same gets, same scans both ways, same
//! rollbacks, also after reopening. Without this a comparison could be won by an adapter that does less.

use std::path::PathBuf;

use frond_bench::engine::frond::Frond;
use frond_bench::engine::model::Model;
use frond_bench::engine::{Cursor, Durability, Engine, OpenOptions, Transaction};
use frond_bench::generate::Random;
use frond_bench::{At, Result};

const TREES: [&str; 3] = ["first", "second", "third"];
const KEYS: u64 = 300;
const ROUNDS: u64 = 400;

fn directory(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("frond-bench-conformance-{name}-{}", std::process::id()))
}

fn options(name: &str, transactional: bool) -> OpenOptions {
    OpenOptions { memory_bytes: 16 << 20, transactional, ..OpenOptions::new(&directory(name), &TREES) }
}

/// Keys of two lengths, so that one is a prefix of others.
fn key(random: &mut Random) -> Vec<u8> {
    let number = random.below(KEYS);
    let bytes = number.to_be_bytes();
    if number.is_multiple_of(7) { bytes[6..].to_vec() } else { [&bytes[6..], &[0xff, 0][..]].concat() }
}

/// The same random changes on both; true if they were committed.
fn change<A: Engine, B: Engine>(engine: &A, model: &B, random: &mut Random) -> Result<()> {
    let (mut ours, mut theirs) = (engine.begin()?, model.begin()?);
    for _ in 0..random.below(20) {
        let (tree, key) = (random.below(3) as usize, key(random));
        let value = vec![b'v'; random.below(50) as usize];
        match random.below(4) {
            0 => {
                ours.delete(tree, &key)?;
                theirs.delete(tree, &key)?;
            }
            _ => {
                ours.put(tree, &key, &value)?;
                theirs.put(tree, &key, &value)?;
            }
        }
    }
    if random.below(4) == 0 {
        ours.rollback()?;
        theirs.rollback()
    } else {
        let durability = [Durability::Sync, Durability::Write][random.below(2) as usize];
        ours.commit(durability)?;
        theirs.commit(durability)
    }
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn scan<E: Engine>(engine: &E, tree: usize, forward: bool) -> Result<Entries> {
    let mut cursor = engine.cursor(tree)?;
    let mut entries = Entries::new();
    let mut more = if forward { cursor.seek_first()? } else { cursor.seek_last()? };
    while more {
        entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
        more = if forward { cursor.next()? } else { cursor.previous()? };
    }
    Ok(entries)
}

fn compare<A: Engine, B: Engine>(engine: &A, model: &B, random: &mut Random) -> Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for tree in 0..TREES.len() {
        for forward in [true, false] {
            assert_eq!(scan(engine, tree, forward)?, scan(model, tree, forward)?, "tree={tree} forward={forward}");
        }
        let key = key(random);
        assert_eq!(engine.get(tree, &key, &mut ours)?, model.get(tree, &key, &mut theirs)?);
        assert_eq!(ours, theirs);
        let (mut ours, mut theirs) = (engine.cursor(tree)?, model.cursor(tree)?);
        let found = ours.seek(&key)?;
        assert_eq!(found, theirs.seek(&key)?);
        if found {
            assert_eq!(ours.key(), theirs.key());
            assert_eq!(ours.previous()?, theirs.previous()?);
        }
    }
    Ok(())
}

fn conforms<E: Engine>(name: &str, transactional: bool) -> Result<()> {
    let options = options(name, transactional);
    std::fs::remove_dir_all(&options.directory)
        .or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
        .at_path(&options.directory)?;
    let mut engine = E::open(&options)?;
    let model = Model::open(&options)?;
    let mut random = Random::new(11);
    for round in 0..ROUNDS {
        change(&engine, &model, &mut random)?;
        match round % 100 {
            20 => engine.checkpoint()?,
            40 => engine.compact()?,
            60 => {
                engine.close()?;
                engine = E::open(&options)?;
            }
            _ => {}
        }
        if round.is_multiple_of(10) {
            compare(&engine, &model, &mut random)?;
        }
    }
    compare(&engine, &model, &mut random)?;
    if transactional {
        own_changes_are_seen(&engine)?;
    }
    engine.close()?;
    std::fs::remove_dir_all(&options.directory).at_path(&options.directory)
}

fn own_changes_are_seen<E: Engine>(engine: &E) -> Result<()> {
    let mut transaction = engine.begin()?;
    let mut value = Vec::new();
    transaction.put(0, b"new", b"value")?;
    assert!(transaction.get(0, b"new", &mut value)?);
    assert_eq!(value, b"value");
    assert!(!transaction.insert(0, b"new", b"other")?);
    assert!(transaction.insert(0, b"newer", b"other")?);
    assert!(!engine.get(0, b"new", &mut value)?);
    transaction.rollback()?;
    assert!(!engine.get(0, b"newer", &mut value)?);
    Ok(())
}

#[test]
fn frond_with_blind_batches_conforms() -> Result<()> {
    conforms::<Frond>("frond-blind", false)
}

#[test]
fn frond_with_transactions_conforms() -> Result<()> {
    conforms::<Frond>("frond-transactional", true)
}

#[cfg(feature = "rocksdb")]
mod rocksdb {
    use super::*;
    use frond_bench::engine::rocksdb::Rocks;

    #[test]
    fn rocksdb_with_blind_batches_conforms() -> Result<()> {
        conforms::<Rocks>("rocksdb-blind", false)
    }

    #[test]
    fn rocksdb_with_transactions_conforms() -> Result<()> {
        conforms::<Rocks>("rocksdb-transactional", true)
    }
}

#[test]
fn the_model_sees_its_own_changes() -> Result<()> {
    own_changes_are_seen(&Model::open(&options("model", true))?)
}
