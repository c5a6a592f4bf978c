//! Undecided changes of others among the keys that a cursor passes: implicit locks, to who locks what it reads.

use super::TreeCursor;
use crate::base::TxnId;

/// What a watching cursor has met since it was positioned last.
#[derive(Debug, Default)]
pub(super) struct Undecided {
    is_on: bool,
    met: Option<TxnId>,
    key: Vec<u8>,
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
        }
    }
}

impl TreeCursor {
    /// Takes note, from the next positioning on, of undecided changes of other transactions at the keys that it passes or
    /// stops at.
    pub fn watch_undecided(&mut self) {
        self.undecided.is_on = true;
    }

    /// The last such change met since the last positioning by key or end: who made it, at which inner key.
    pub fn undecided(&self) -> Option<(TxnId, &[u8])> {
        self.undecided.met.map(|txn| (txn, self.undecided.key.as_slice()))
    }
}
