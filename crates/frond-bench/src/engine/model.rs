//! A sorted map in memory behind the engine traits: the reference that tests compare against, and the cost of the
//! workloads themselves (run with `--engine model` to see what a generator can deliver at most).
//!
//! Cursors walk a copy made when they are created: simple, and right by construction. Nothing survives `close`.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Cursor, Durability, Engine, OpenOptions, Statistics, Transaction, TreeIndex};
use crate::{Error, Result};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The reference engine.
#[derive(Debug, Clone)]
pub struct Model {
    trees: Arc<RwLock<Vec<Map>>>,
}

impl Model {
    fn read(&self) -> Result<RwLockReadGuard<'_, Vec<Map>>> {
        self.trees.read().map_err(|_| Error::new("a thread of the model panicked"))
    }

    fn write(&self) -> Result<RwLockWriteGuard<'_, Vec<Map>>> {
        self.trees.write().map_err(|_| Error::new("a thread of the model panicked"))
    }
}

fn copy(found: Option<&Vec<u8>>, value: &mut Vec<u8>) -> bool {
    value.clear();
    found.inspect(|found| value.extend_from_slice(found)).is_some()
}

impl Engine for Model {
    type Transaction = ModelTransaction;
    type Cursor = ModelCursor;

    const NAME: &'static str = "model";

    fn open(options: &OpenOptions) -> Result<Model> {
        Ok(Model { trees: Arc::new(RwLock::new(vec![Map::new(); options.trees.len()])) })
    }

    fn close(self) -> Result<()> {
        Ok(())
    }

    fn begin(&self) -> Result<ModelTransaction> {
        Ok(ModelTransaction { model: self.clone(), changes: BTreeMap::new() })
    }

    fn get(&self, tree: TreeIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(copy(self.read()?[tree].get(key), value))
    }

    fn cursor(&self, tree: TreeIndex) -> Result<ModelCursor> {
        let entries = self.read()?[tree].iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(ModelCursor { entries, position: None })
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics> {
        Ok(Statistics::default())
    }
}

/// Changes kept beside the model until commit.
#[derive(Debug)]
pub struct ModelTransaction {
    model: Model,
    changes: BTreeMap<(TreeIndex, Vec<u8>), Option<Vec<u8>>>,
}

impl Transaction for ModelTransaction {
    fn put(&mut self, tree: TreeIndex, key: &[u8], value: &[u8]) -> Result<()> {
        self.changes.insert((tree, key.to_vec()), Some(value.to_vec()));
        Ok(())
    }

    fn insert(&mut self, tree: TreeIndex, key: &[u8], value: &[u8]) -> Result<bool> {
        if self.get(tree, key, &mut Vec::new())? {
            return Ok(false);
        }
        self.put(tree, key, value)?;
        Ok(true)
    }

    fn delete(&mut self, tree: TreeIndex, key: &[u8]) -> Result<()> {
        self.changes.insert((tree, key.to_vec()), None);
        Ok(())
    }

    fn single_delete(&mut self, tree: TreeIndex, key: &[u8]) -> Result<()> {
        self.delete(tree, key)
    }

    fn get(&mut self, tree: TreeIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        match self.changes.get(&(tree, key.to_vec())) {
            Some(changed) => Ok(copy(changed.as_ref(), value)),
            None => self.model.get(tree, key, value),
        }
    }

    fn commit(self, _durability: Durability) -> Result<()> {
        let mut trees = self.model.write()?;
        for ((tree, key), change) in self.changes {
            match change {
                Some(value) => trees[tree].insert(key, value),
                None => trees[tree].remove(&key),
            };
        }
        Ok(())
    }

    fn rollback(self) -> Result<()> {
        Ok(())
    }
}

/// A walk over a copy.
#[derive(Debug)]
pub struct ModelCursor {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    position: Option<usize>,
}

impl ModelCursor {
    fn go(&mut self, position: Option<usize>) -> Result<bool> {
        self.position = position.filter(|&at| at < self.entries.len());
        Ok(self.position.is_some())
    }
}

impl Cursor for ModelCursor {
    fn seek_first(&mut self) -> Result<bool> {
        self.go(Some(0))
    }

    fn seek_last(&mut self) -> Result<bool> {
        self.go(self.entries.len().checked_sub(1))
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let at = self.entries.partition_point(|(entry, _)| entry.as_slice() < key);
        self.go(Some(at))
    }

    fn next(&mut self) -> Result<bool> {
        self.go(self.position.map(|at| at + 1))
    }

    fn previous(&mut self) -> Result<bool> {
        self.go(self.position.and_then(|at| at.checked_sub(1)))
    }

    fn key(&self) -> &[u8] {
        self.position.map_or(&[], |at| &self.entries[at].0)
    }

    fn value(&self) -> &[u8] {
        self.position.map_or(&[], |at| &self.entries[at].1)
    }
}
