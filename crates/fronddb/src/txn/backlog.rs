//! The backlog of aborted ids and aborted steps, and when each may be forgotten. Pure bookkeeping.
//!
//! A message of an aborted writer may lie in a memtable that was active at the abort or before, or in a run whose
//! footer lists the writer as unresolved. Once all those memtables are flushed and no such run is left, neither in
//! the root nor under a reader's hands, nobody can ask for the id again. What is tracked:
//!
//! * per id: the number of *runs* of the root that list it, and of *lingering* runs that have left the root but
//!   may still be read; for all ids, because one that is active today may abort tomorrow;
//! * per aborted id: the memtable that was active when it aborted.
//!
//! The stored image counts runs of the root only: after a restart there are no readers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    holders: HashMap<TxnId, Holders>,
    aborted: BTreeMap<TxnId, Aborted>,
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
        if let Some(before) = self.aborted.remove(&txn) {
            self.waiting.remove(&(before.memtable, txn));
            if let What::Steps(earlier) = before.what {
                steps = earlier;
            }
        }
        steps.add(from, to);
        self.put(txn, What::Steps(steps), memtable);
    }

    /// Enters what an image says, to be given a memtable later.
    pub(super) fn put(&mut self, txn: TxnId, what: What, memtable: u64) {
        if let Some(old) = self.aborted.insert(txn, Aborted { what, memtable }) {
            self.waiting.remove(&(old.memtable, txn));
        }
        self.waiting.insert((memtable, txn));
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

    /// Returns the ids forgotten.
    pub(super) fn memtables_flushed_below(&mut self, id: u64) -> Vec<TxnId> {
        self.flushed_below = self.flushed_below.max(id);
        let rest = self.waiting.split_off(&(self.flushed_below, TxnId(0)));
        let flushed = std::mem::replace(&mut self.waiting, rest);
        flushed.into_iter().map(|(_, txn)| txn).filter(|txn| self.forget(*txn)).collect()
    }

    /// Forgets `txn` if nothing can hold a message of it.
    fn forget(&mut self, txn: TxnId) -> bool {
        let held = |aborted: &Aborted| aborted.memtable >= self.flushed_below || self.holders.contains_key(&txn);
        if self.aborted.get(&txn).is_none_or(held) {
            return false;
        }
        self.forgotten += self.aborted.remove(&txn).map_or(0, |aborted| aborted.what.intervals() as u64);
        true
    }

    pub(super) fn get(&self, txn: TxnId) -> Option<&What> {
        self.aborted.get(&txn).map(|aborted| &aborted.what)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TxnId, &What)> {
        self.aborted.iter().map(|(txn, aborted)| (*txn, &aborted.what))
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

    /// Those of which something is aborted and that at least `runs_min` runs of the root list, ascending.
    pub(super) fn held_by(&self, runs_min: u32) -> Vec<TxnId> {
        self.aborted.keys().copied().filter(|txn| self.runs(*txn) >= runs_min).collect()
    }

    /// Runs of the root that list `txn`.
    pub(super) fn runs(&self, txn: TxnId) -> u32 {
        self.holders.get(&txn).map_or(0, |holders| holders.runs)
    }

    pub(super) fn stats(&self) -> BacklogStats {
        let whole = self.aborted.values().filter(|aborted| aborted.what == What::Whole).count();
        BacklogStats {
            aborted: whole,
            with_aborted_steps: self.aborted.len() - whole,
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
        assert_eq!(backlog.memtables_flushed_below(6), []);
        backlog.run_added(&[b]);
        backlog.run_removed(&[a, b]);
        assert_eq!((backlog.runs(a), backlog.runs(b)), (0, 1));
        assert_eq!(backlog.run_released(&[a, b]), [a]);
        backlog.run_removed(&[b]);
        assert_eq!(backlog.run_released(&[b]), [], "memtable 6 may hold it");
        assert_eq!(backlog.memtables_flushed_below(7), [b]);
        assert_eq!(backlog.stats(), BacklogStats::default());
    }
}
