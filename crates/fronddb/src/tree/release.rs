//! Hands retired space to the store once no version that may read it lives.
//!
//! A dropped table is retired at once, and each of its blocks that the cache holds has to leave it: seconds, perhaps. So this is done
//! apart from installations, a piece at a time, with no latch but `releasing` held: after a job one piece, because others wait
//! for its thread; after a publication as much as takes no time that counts beside it; and now and then one piece, because the last reader
//! of a version may go when nothing else is done.
//!
//! An extent leaves the cache first (C1 of [`crate::cache`]): once the store has it, it may be written anew.

use std::sync::Arc;

use super::{BeTree, State, Version};
use crate::base::{Extent, TxnId};

/// A piece ends with the extent that makes it so large: some thousand blocks.
const PIECE_PAGES: u64 = 16 << 10;
/// After a publication: a GiB, then.
const PIECES_MAX: usize = 16;
/// Fewer versions are not worth looking through.
const VERSIONS_MIN: usize = 16;

impl BeTree {
    /// Hands over a piece of what no version reads any more; true when there was something. Nothing is done while somebody else is at it.
    pub fn release_some(&self) -> bool {
        self.releasing.try_lock().is_some_and(|_releasing| self.release_piece())
    }

    /// Hands over what no version reads any more, up to [`PIECES_MAX`] pieces.
    pub(super) fn release_most(&self) {
        let _releasing = self.releasing.lock();
        for _ in 0..PIECES_MAX {
            if !self.release_piece() {
                break;
            }
        }
    }

    /// False when there was nothing.
    fn release_piece(&self) -> bool {
        let unread = self.state.lock().take_unread(PIECE_PAGES);
        let Some((extents, txns)) = unread else { return false };
        for extent in &extents {
            self.env.cache.remove_range(*extent);
        }
        self.env.store.release(&extents);
        txns.iter().for_each(|txns| self.env.holders.run_released(txns));
        true
    }
}

impl State {
    /// From now on this version may be read. Behind one that is read for long, those that are over leave when they are as many as the rest.
    pub(super) fn add_version(&mut self, number: u64, version: &Arc<Version>) {
        if self.past.len() >= self.past_max {
            self.past.retain(|(_, version)| version.strong_count() > 0);
            self.past_max = 2 * self.past.len().max(VERSIONS_MIN);
        }
        self.past.push_back((number, Arc::downgrade(version)));
    }

    /// Takes out what no version that lives may read, up to the extent with which it is `pages` large, and the transactions of runs
    /// all of which is out.
    fn take_unread(&mut self, pages: u64) -> Option<(Vec<Extent>, Vec<Vec<TxnId>>)> {
        while self.past.front().is_some_and(|(_, version)| version.strong_count() == 0) {
            self.past.pop_front();
        }
        let oldest = self.past.front().map_or(u64::MAX, |(number, _)| *number);
        let (mut extents, mut txns, mut taken) = (Vec::new(), Vec::new(), 0);
        while taken < pages
            && let Some(retired) = self.retired.front_mut().filter(|retired| retired.since <= oldest)
        {
            match retired.extents.pop() {
                Some(extent) => {
                    taken += u64::from(extent.pages);
                    extents.push(extent);
                }
                None => {
                    txns.append(&mut retired.txns);
                    self.retired.pop_front();
                }
            }
        }
        (!extents.is_empty() || !txns.is_empty()).then_some((extents, txns))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Retired;
    use super::*;

    #[test]
    fn what_is_retired_goes_in_pieces_and_its_transactions_with_the_last() {
        let extent = |start| Extent { start, pages: 4 };
        let retired = |since, starts: &[u64], txn| Retired {
            since,
            extents: starts.iter().copied().map(extent).collect(),
            txns: vec![vec![TxnId(txn)]],
        };
        let mut state = State::default();
        state.past.push_back((3, std::sync::Weak::new()));
        state.retired.extend([retired(2, &[10, 20, 30], 7), retired(3, &[40], 8)]);
        let mut pieces = Vec::new();
        while let Some((extents, txns)) = state.take_unread(6) {
            pieces.push((extents.iter().map(|extent| extent.start).collect::<Vec<_>>(), txns.concat()));
        }
        assert_eq!(pieces, [(vec![30, 20], vec![]), (vec![10, 40], vec![TxnId(7)]), (vec![], vec![TxnId(8)])]);
        assert!(state.past.is_empty() && state.retired.is_empty());
    }
}
