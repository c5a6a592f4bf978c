//! The open transactions, so that others can list and cancel them.
//!
//! Sharded by number; holds weak references, so a forgotten transaction costs an entry until it is dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::core::TxnCore;
use crate::base::hash::NumberMap;
use crate::base::sync::Mutex;

const SHARDS: usize = 16;

/// Open transactions by number.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    next: AtomicU64,
    shards: [Mutex<NumberMap<u64, Weak<TxnCore>>>; SHARDS],
}

impl Sessions {
    /// A number for a new transaction, from 1.
    pub(crate) fn draw(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn shard(&self, id: u64) -> &Mutex<NumberMap<u64, Weak<TxnCore>>> {
        &self.shards[id as usize % SHARDS]
    }

    pub(crate) fn add(&self, core: &Arc<TxnCore>) {
        self.shard(core.id).lock().insert(core.id, Arc::downgrade(core));
    }

    pub(crate) fn remove(&self, id: u64) {
        self.shard(id).lock().remove(&id);
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<TxnCore>> {
        self.shard(id).lock().get(&id).and_then(Weak::upgrade)
    }

    /// All open transactions, in the order in which they began.
    pub(crate) fn all(&self) -> Vec<Arc<TxnCore>> {
        let mut all: Vec<_> = self
            .shards
            .iter()
            .flat_map(|shard| shard.lock().values().filter_map(Weak::upgrade).collect::<Vec<_>>())
            .collect();
        all.sort_by_key(|core| core.id);
        all
    }

    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}
