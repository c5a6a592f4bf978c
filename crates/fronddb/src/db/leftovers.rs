//! Cleaning what compactions had to leave: see [`crate::tree`]'s pass for what was left over.
//!
//! While there is no other work, a pass begins when the set of transactions of which runs hold something rolled back has changed,
//! and now and then when the horizon has moved on, since snapshots that ended may have kept old versions, deletes, and rows of
//! dropped tables alive. A pass looks at descriptions in memory; it reads and writes leaves only where that gives space back.
//!
//! Messages of a small rolled-back transaction that are on their way down are left to go with the others while writes come in, which
//! costs nothing; those of a large one are moved at once.
//!
//! Who writes a run looks once at what became of a transaction. If that is rolled back afterwards, the run is installed with its
//! messages, maybe when the pass for it is over or has gone by. Such runs are counted ([`Holders`]), and another pass comes after each.
//! There is an end to that: what begins after the rollback writes none.
//!
//! On failure a pass ends, and another one tries again, unless it was damage, which that would meet as well: what lies behind it in the
//! order of keys stays until something else moves it.

use std::sync::Arc;

use super::engine::Engine;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::{CommitNumber, ErrorKind, Result, TxnId};
use crate::format::{Status, Statuses};
use crate::tree::{CompactPass, CompactStep, RunHolders};
use crate::txn::StatusTable;

/// A rolled-back transaction of at least so many runs is large.
const LARGE_RUNS: u32 = 4;
/// After a pass, another begins no sooner, in microseconds: for transactions rolled back meanwhile, and for a horizon that moved.
const PAUSE_MICROS: u64 = 10_000_000;
const HORIZON_PAUSE_MICROS: u64 = 60_000_000;

#[derive(Debug, Default)]
struct State {
    pass: Option<CompactPass>,
    /// A thread is at it.
    is_cleaning: bool,
    known: Known,
    /// When the last pass ended, on the database's clock.
    ended_micros: u64,
}

/// What the last pass knew.
#[derive(Debug, Default)]
struct Known {
    /// Transactions of which something was rolled back, and whether all of it was.
    rolled_back: Vec<(TxnId, bool)>,
    late_runs: u64,
    horizon: CommitNumber,
}

/// How far the cleaning is.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    state: Mutex<State>,
    /// Runs installed with messages of a transaction that had been rolled back meanwhile.
    late_runs: AtomicU64,
}

/// Passes the counts of undecided transactions in runs on to the status table, and counts runs that come late.
pub(super) struct Holders {
    pub(super) statuses: Arc<StatusTable>,
    pub(super) leftovers: Arc<Leftovers>,
}

impl RunHolders for Holders {
    fn run_added(&self, txns: &[TxnId]) {
        self.statuses.note_run_added(txns);
        // Looked at after it was counted: who is rolled back after this look is new to the next pass.
        if txns.iter().any(|txn| is_rolled_back(&self.statuses, *txn)) {
            self.leftovers.late_runs.fetch_add(1, Ordering::Release);
        }
    }

    fn run_removed(&self, txns: &[TxnId]) {
        self.statuses.note_run_removed(txns);
    }

    fn run_released(&self, txns: &[TxnId]) {
        self.statuses.note_run_released(txns);
    }
}

/// True when a transaction was rolled back whole: no step has the number that is asked for.
fn is_rolled_back(statuses: &StatusTable, txn: TxnId) -> bool {
    statuses.status(txn, u32::MAX) == Status::Aborted
}

impl Engine {
    /// Goes on with cleaning; false when there is nothing to do just now.
    pub(crate) fn clean_leftovers_step(&self) -> Result<bool> {
        let mut pass = {
            let mut state = self.leftovers.state.lock();
            if state.is_cleaning {
                return Ok(false);
            }
            let Some(pass) = state.pass.take().or_else(|| self.next_pass(&mut state)) else { return Ok(false) };
            state.is_cleaning = true;
            pass
        };
        let stepped = loop {
            match self.tree.compact_step(&self.retention(), &mut pass) {
                Ok(CompactStep::Passed) => {}
                stepped => break stepped,
            }
        };
        let mut state = self.leftovers.state.lock();
        state.is_cleaning = false;
        match &stepped {
            Ok(CompactStep::Done) | Err(_) => state.ended_micros = self.clock.micros(),
            Ok(_) => state.pass = Some(pass),
        }
        if stepped.as_ref().is_err_and(|error| !error.is_unreadable()) {
            state.known = Known::default();
        }
        match stepped {
            // It can wait, so the disk is not full on its account.
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(false),
            stepped => Ok(stepped? == CompactStep::Worked),
        }
    }

    fn next_pass(&self, state: &mut State) -> Option<CompactPass> {
        let by_hand = self.options.manual_background;
        let since = self.clock.micros().saturating_sub(state.ended_micros);
        if since < PAUSE_MICROS && !by_hand {
            return None;
        }
        let at_rest = by_hand || self.tree.version_guard().active.is_empty();
        let known = &mut state.known;
        // Read before the pass begins, so that what comes late from now on is seen to have come.
        let late_runs = self.leftovers.late_runs.load(Ordering::Acquire);
        if late_runs != known.late_runs {
            known.rolled_back.clear();
            known.late_runs = late_runs;
        }
        let aborted = self.statuses.aborted_in_runs(if at_rest { 1 } else { LARGE_RUNS });
        let rolled_back: Vec<_> = aborted.iter().map(|txn| (*txn, is_rolled_back(&self.statuses, *txn))).collect();
        let horizon = self.snapshots.horizon();
        let are_new = rolled_back != known.rolled_back && !rolled_back.is_empty();
        let has_moved = horizon != known.horizon && (by_hand || since >= HORIZON_PAUSE_MICROS);
        if !are_new && !has_moved {
            return None;
        }
        known.horizon = horizon;
        known.rolled_back = rolled_back;
        Some(self.tree.leftovers_pass(if are_new { aborted } else { Vec::new() }))
    }
}
