//! Undecided changes of others among the keys that a cursor passes: implicit locks, to who locks what it reads. And the second look at a key
//! that is changed just then.

use super::TreeCursor;
use super::chain::Death;
use crate::base::checksum::key_hash;
use crate::base::{Result, TxnId};
use crate::tree::Value;
use crate::tree::read::is_overtaken;

/// What a watching cursor has met since it was positioned last.
#[derive(Debug, Default)]
pub(super) struct Undecided {
    is_on: bool,
    met: Option<TxnId>,
    key: Vec<u8>,
    collected: Option<Collected>,
}

/// The keys that one transaction is changing.
#[derive(Debug)]
struct Collected {
    txn: TxnId,
    keys: Vec<Vec<u8>>,
    keys_max: usize,
}

impl Undecided {
    pub(super) fn clear(&mut self) {
        self.met = None;
    }

    /// A message of `key` was not decisive, because of `by` if that is not nobody.
    #[inline]
    pub(super) fn note(&mut self, by: Option<TxnId>, key: &[u8]) {
        if self.is_on
            && let Some(txn) = by
        {
            self.met = Some(txn);
            self.key.clear();
            self.key.extend_from_slice(key);
            if let Some(collected) = &mut self.collected
                && collected.txn == txn
                && collected.keys.len() <= collected.keys_max
                && collected.keys.last().is_none_or(|last| last != key)
            {
                collected.keys.push(key.to_vec());
            }
        }
    }
}

impl TreeCursor {
    /// Resolves the current key once more, by itself, where a change overtook the look at it that met the message numbered `first` first and
    /// needed older ones; whether it has a row.
    pub(super) fn look_again(&mut self, first: u64) -> Result<Option<bool>> {
        let Some(leaf) = &self.leaf else { return Ok(None) };
        let (version, view, key) = (&leaf.version, self.view.view(), self.key.as_slice());
        if !is_overtaken(version, &view, key, key_hash(key), first) {
            return Ok(None);
        }
        let mut undecided = None;
        let keeps = self.large.priority(&self.tree, self.options.fill_cache);
        let value = self.tree.get_with(version, &view, key, self.options.wanted, keeps, Some(&mut undecided))?;
        self.undecided.note(undecided, &self.key);
        self.death = Death::unknown();
        self.reader.clear();
        self.finish_value(value.map(Value::into_vec)).map(Some)
    }

    /// Takes note, from the next positioning on, of undecided changes of other transactions at the keys that it passes or
    /// stops at.
    pub fn watch_undecided(&mut self) {
        self.undecided.is_on = true;
    }

    /// The same, and collects the inner keys at which `txn` has changes, `keys_max` of them and one at most.
    pub fn collect_undecided(&mut self, txn: TxnId, keys_max: usize) {
        self.watch_undecided();
        self.undecided.collected = Some(Collected { txn, keys: Vec::new(), keys_max });
    }

    /// What has been collected, in the order in which it was met.
    pub fn collected(&self) -> &[Vec<u8>] {
        self.undecided.collected.as_ref().map_or(&[], |collected| &collected.keys)
    }

    /// The last such change met since the last positioning by key or end: who made it, at which inner key.
    pub fn undecided(&self) -> Option<(TxnId, &[u8])> {
        self.undecided.met.map(|txn| (txn, self.undecided.key.as_slice()))
    }
}
