//! The backlog of aborted ids and aborted steps, and when each may be forgotten. Pure bookkeeping.
//!
//! A message of an aborted writer may lie in a memtable that was active at the abort or before, or in a run whose
//! description lists the writer as unresolved. Once all those memtables are flushed and no such run is left, neither in
//! the root nor under a reader's hands, nobody can ask for the id again. What is tracked:
//!
//! * per id: the number of *runs* of the root that list it, and of *lingering* runs that have left the root but
//!   may still be read; for all ids, because one that is active today may abort tomorrow;
//! * per aborted id: the memtable that was active when it aborted.
//!
//! The stored image counts runs of the root only: after a restart there are no readers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::steps::Steps;
use crate::base::TxnId;

/// How much is in the backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BacklogStats {
    /// Aborted transactions that are not forgotten.
    pub aborted: usize,
    /// Transactions, active or committed, with aborted steps that are not forgotten.
    pub with_aborted_steps: usize,
    /// Distinct ids that some run lists as unresolved.
    pub held_by_runs: usize,
}

/// What of a transaction is aborted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Whole,
    Steps(Steps),
}

impl What {
    fn intervals(&self) -> usize {
        match self {
            What::Whole => 1,
            What::Steps(steps) => steps.len(),
        }
    }
}

#[derive(Debug)]
struct Aborted {
    what: What,
    /// Messages lie in memtables up to this one.
    memtable: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Holders {
    runs: u32,
    lingering: u32,
}

/// The backlog.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    holders: BTreeMap<TxnId, Holders>,
    aborted: BTreeMap<TxnId, Aborted>,
    /// How many of them are whole transactions.
    whole: usize,
    /// The aborted ones that a memtable may still hold.
    waiting: BTreeSet<(u64, TxnId)>,
    flushed_below: u64,
    /// How many intervals of steps were ever forgotten; a whole transaction counts as one.
    forgotten: u64,
}

impl Backlog {
    /// Notes that `txn` aborted while `memtable` was active.
    pub(super) fn abort(&mut self, txn: TxnId, memtable: u64) {
        self.put(txn, What::Whole, memtable);
    }

    /// Notes that steps of `txn`, which goes on, aborted while `memtable` was active.
    pub(super) fn abort_steps(&mut self, txn: TxnId, from: u32, to: u32, memtable: u64) {
        let mut steps = Steps::default();
        if let Some(What::Steps(earlier)) = self.take(txn) {
            steps = earlier;
        }
        steps.add(from, to);
        self.put(txn, What::Steps(steps), memtable);
    }

    /// Enters what an image says, to be given a memtable later.
    pub(super) fn put(&mut self, txn: TxnId, what: What, memtable: u64) {
        self.take(txn);
        self.whole += usize::from(what == What::Whole);
        self.aborted.insert(txn, Aborted { what, memtable });
        self.waiting.insert((memtable, txn));
    }

    fn take(&mut self, txn: TxnId) -> Option<What> {
        let Aborted { what, memtable } = self.aborted.remove(&txn)?;
        self.whole -= usize::from(what == What::Whole);
        self.waiting.remove(&(memtable, txn));
        Some(what)
    }

    /// Recovery is over: all that is aborted may lie in memtables up to `memtable`.
    pub(super) fn set_memtables(&mut self, memtable: u64) {
        self.waiting = self.aborted.keys().map(|txn| (memtable, *txn)).collect();
        self.aborted.values_mut().for_each(|aborted| aborted.memtable = memtable);
    }

    pub(super) fn run_added(&mut self, unresolved: &[TxnId]) {
        for txn in unresolved {
            self.holders.entry(*txn).or_default().runs += 1;
        }
    }

    pub(super) fn set_runs(&mut self, txn: TxnId, runs: u32) {
        self.holders.insert(txn, Holders { runs, lingering: 0 });
    }

    pub(super) fn run_removed(&mut self, unresolved: &[TxnId]) {
        for txn in unresolved {
            if let Some(holders) = self.holders.get_mut(txn) {
                debug_assert!(holders.runs > 0, "a run is removed once, after it was added, txn={txn}");
                holders.runs = holders.runs.saturating_sub(1);
                holders.lingering += 1;
            }
        }
    }

    /// Returns the ids forgotten.
    pub(super) fn run_released(&mut self, unresolved: &[TxnId]) -> Vec<TxnId> {
        for txn in unresolved {
            if let Some(holders) = self.holders.get_mut(txn) {
                debug_assert!(holders.lingering > 0, "a run is released once, after it was removed, txn={txn}");
                holders.lingering = holders.lingering.saturating_sub(1);
                if holders.runs == 0 && holders.lingering == 0 {
                    self.holders.remove(txn);
                }
            }
        }
        unresolved.iter().copied().filter(|txn| self.forget(*txn)).collect()
    }

    /// Looks at `count` of the ids that these memtables held, or all. Returns those forgotten, and whether there may be more, which
    /// are remembered until then.
    pub(super) fn memtables_flushed_below(&mut self, id: u64, count: usize) -> (Vec<TxnId>, bool) {
        self.flushed_below = self.flushed_below.max(id);
        let flushed: Vec<TxnId> = std::iter::from_fn(|| self.pop_flushed()).take(count).collect();
        let may_be_more = flushed.len() == count;
        (flushed.into_iter().filter(|txn| self.forget(*txn)).collect(), may_be_more)
    }

    fn pop_flushed(&mut self) -> Option<TxnId> {
        let (_, txn) = *self.waiting.first().filter(|(memtable, _)| *memtable < self.flushed_below)?;
        self.waiting.pop_first();
        Some(txn)
    }

    /// Forgets `txn` if nothing can hold a message of it.
    fn forget(&mut self, txn: TxnId) -> bool {
        let held = |aborted: &Aborted| aborted.memtable >= self.flushed_below || self.holders.contains_key(&txn);
        if self.aborted.get(&txn).is_none_or(held) {
            return false;
        }
        self.forgotten += self.take(txn).map_or(0, |what| what.intervals() as u64);
        true
    }

    pub(super) fn get(&self, txn: TxnId) -> Option<&What> {
        self.aborted.get(&txn).map(|aborted| &aborted.what)
    }

    /// All of which something is aborted, ascending.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (TxnId, &What)> {
        self.aborted.iter().map(|(txn, aborted)| (*txn, &aborted.what))
    }

    /// Whether a run, in the root or under a reader's hands, lists one of these ids.
    pub(super) fn is_any_held(&self, ids: Range<u64>) -> bool {
        self.holders.range(TxnId(ids.start)..TxnId(ids.end)).next().is_some()
    }

    /// What is aborted of these ids, ascending.
    pub(super) fn range(&self, ids: Range<u64>) -> impl Iterator<Item = (TxnId, &What)> {
        let ids = TxnId(ids.start)..TxnId(ids.end.max(ids.start));
        self.aborted.range(ids).map(|(txn, aborted)| (*txn, &aborted.what))
    }

    /// How many intervals of aborted steps were ever forgotten.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Those of which something is aborted and that at least `runs_min` runs of the root list, ascending. `runs_min` is not 0.
    pub(super) fn held_by(&self, runs_min: u32) -> Vec<TxnId> {
        debug_assert!(runs_min > 0, "what no run lists is not looked at");
        let is_held = |txn: &TxnId| self.runs(*txn) >= runs_min && self.aborted.contains_key(txn);
        let mut held: Vec<TxnId> = self.maybe_held().filter(is_held).collect();
        held.sort_unstable();
        held
    }

    /// What [`Backlog::held_by`] looks at: runs list only what was undecided when they were written, mostly few of many aborted ones.
    fn maybe_held(&self) -> impl Iterator<Item = TxnId> {
        let is_listed_less = self.holders.len() < self.aborted.len();
        let listed = is_listed_less.then(|| self.holders.keys());
        let aborted = (!is_listed_less).then(|| self.aborted.keys());
        listed.into_iter().flatten().chain(aborted.into_iter().flatten()).copied()
    }

    /// Runs of the root that list `txn`.
    pub(super) fn runs(&self, txn: TxnId) -> u32 {
        self.holders.get(&txn).map_or(0, |holders| holders.runs)
    }

    pub(super) fn stats(&self) -> BacklogStats {
        BacklogStats {
            aborted: self.whole,
            with_aborted_steps: self.aborted.len() - self.whole,
            held_by_runs: self.holders.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_forgotten_when_neither_memtable_nor_run_nor_reader_can_hold_it() {
        let (a, b) = (TxnId(1), TxnId(2));
        let mut backlog = Backlog::default();
        backlog.run_added(&[a, b]);
        backlog.abort(a, 5);
        backlog.abort(b, 6);
        assert_eq!(backlog.memtables_flushed_below(6, 10), (vec![], false));
        backlog.run_added(&[b]);
        backlog.run_removed(&[a, b]);
        assert_eq!((backlog.runs(a), backlog.runs(b)), (0, 1));
        assert_eq!(backlog.run_released(&[a, b]), [a]);
        backlog.run_removed(&[b]);
        assert_eq!(backlog.run_released(&[b]), [], "memtable 6 may hold it");
        assert_eq!(backlog.memtables_flushed_below(7, 10), (vec![b], false));
        assert_eq!(backlog.stats(), BacklogStats::default());
    }

    #[test]
    fn of_many_aborted_ids_only_those_that_runs_list_are_looked_at() {
        let mut backlog = Backlog::default();
        (1..=100_000).for_each(|txn| backlog.abort(TxnId(txn), 5));
        let [twice, once, open] = [70_000, 40_000, 100_001].map(TxnId);
        backlog.run_added(&[once, twice, open]);
        backlog.run_added(&[twice, open]);
        assert_eq!((backlog.held_by(1), backlog.held_by(2)), (vec![once, twice], vec![twice]));
        assert_eq!(backlog.maybe_held().count(), 3);
    }

    #[test]
    fn a_memtable_is_forgotten_in_pieces_with_others_coming_between() {
        let ids: Vec<TxnId> = (1..=10).map(TxnId).collect();
        let mut backlog = Backlog::default();
        ids.iter().for_each(|txn| backlog.abort(*txn, 5));
        backlog.run_added(&ids[1..2]);
        backlog.run_added(&ids[8..9]);
        let aborted = |backlog: &Backlog| backlog.stats().aborted;
        assert_eq!(backlog.memtables_flushed_below(6, 4), (vec![ids[0], ids[2], ids[3]], true));
        assert_eq!(aborted(&backlog), 7);
        // One goes with its run before its turn, one aborts meanwhile, and of another steps do in a later memtable.
        backlog.run_removed(&ids[8..9]);
        assert_eq!(backlog.run_released(&ids[8..9]), [ids[8]]);
        backlog.abort(TxnId(11), 6);
        backlog.abort_steps(TxnId(12), 1, 2, 5);
        backlog.abort_steps(TxnId(12), 4, 4, 6);
        assert_eq!(backlog.memtables_flushed_below(6, 4), (ids[4..8].to_vec(), true));
        assert_eq!(backlog.memtables_flushed_below(6, 4), (vec![ids[9]], false));
        let stats = BacklogStats { aborted: 2, with_aborted_steps: 1, held_by_runs: 1 };
        assert_eq!(backlog.stats(), stats, "one is in a run, two in the next memtable");
        backlog.run_removed(&ids[1..2]);
        assert_eq!(backlog.run_released(&ids[1..2]), [ids[1]]);
        assert_eq!(backlog.memtables_flushed_below(7, 4), (vec![TxnId(11), TxnId(12)], false));
        assert_eq!(backlog.stats(), BacklogStats::default());
    }
}
