//! The set of transactions that have written into a memtable.
//!
//! Ids are drawn in ascending order, so they are dense: the set is a bitmap in pages of [`IDS`] ids. Every insert
//! asks, so each shard remembers its last answer, and the messages of a transaction after its first cost one load.

use crossbeam_utils::CachePadded;

use crate::base::TxnId;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering};

/// Ids in a page.
const IDS: u64 = 1024;
const SHARDS: usize = 8;

/// One bit for each id of a page.
type Bits = Box<[u64; (IDS / 64) as usize]>;

#[derive(Debug, Default)]
struct Shard {
    last: AtomicU64,
    /// Ascending by number. Nearly every insert is into the last.
    pages: Mutex<Vec<(u64, Bits)>>,
}

/// The set. Transaction 0, which is none, is never in it.
#[derive(Debug, Default)]
pub(super) struct TxnSet {
    shards: [CachePadded<Shard>; SHARDS],
}

impl TxnSet {
    #[inline]
    pub(super) fn insert(&self, txn: TxnId) {
        let shard = &*self.shards[(txn.0 % SHARDS as u64) as usize];
        if shard.last.load(Ordering::Relaxed) != txn.0 {
            Self::insert_slowly(shard, txn);
        }
    }

    #[cold]
    fn insert_slowly(shard: &Shard, txn: TxnId) {
        let id = txn.0 / SHARDS as u64;
        let (word, bit) = ((id % IDS / 64) as usize, id % 64);
        let mut pages = shard.pages.lock();
        let at = match pages.last() {
            Some((page, _)) if *page == id / IDS => pages.len() - 1,
            _ => pages.binary_search_by_key(&(id / IDS), |(page, _)| *page).unwrap_or_else(|at| {
                pages.insert(at, (id / IDS, Bits::default()));
                at
            }),
        };
        pages[at].1[word] |= 1 << bit;
        shard.last.store(txn.0, Ordering::Relaxed);
    }

    /// All of them, ascending.
    pub(super) fn to_vec(&self) -> Vec<TxnId> {
        let mut all = Vec::new();
        for (index, shard) in self.shards.iter().enumerate() {
            for (page, words) in shard.pages.lock().iter() {
                for (word, bits) in words.iter().enumerate() {
                    for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
                        let id = page * IDS + word as u64 * 64 + bit;
                        all.push(TxnId(id.wrapping_mul(SHARDS as u64) + index as u64));
                    }
                }
            }
        }
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const IDS_MAX: usize = if cfg!(miri) { 10 } else { 200 };

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 3 } else { 256 }, ..ProptestConfig::default() })]
        #[test]
        fn holds_what_was_inserted(ids in prop::collection::vec(prop_oneof![1u64..50_000, 1..=u64::MAX], 0..IDS_MAX)) {
            let set = TxnSet::default();
            for id in &ids {
                set.insert(TxnId(*id));
            }
            let expected: Vec<_> = ids.into_iter().map(TxnId).collect::<BTreeSet<_>>().into_iter().collect();
            prop_assert_eq!(set.to_vec(), expected);
        }
    }
}
