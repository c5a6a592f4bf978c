//! Undecided changes of others among the keys that a cursor passes: implicit locks, to who locks what it reads.

use super::TreeCursor;
use crate::base::TxnId;
use crate::format::message::Stamp;
use crate::format::visibility::View;

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

    /// A message of `key` was not decisive.
    #[inline]
    pub(super) fn note(&mut self, view: &View<'_>, stamp: Stamp, key: &[u8]) {
        if self.is_on
            && let Some(txn) = view.undecided(stamp)
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
