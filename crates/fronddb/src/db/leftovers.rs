//! Cleaning what compactions had to leave: see [`crate::tree`]'s pass for what was left over.
//!
//! While there is no other work, a pass begins when the set of transactions of which runs hold something rolled back has changed,
//! and now and then when the horizon has moved on, since snapshots that ended may have kept old versions, deletes, and rows of
//! dropped tables alive. A pass looks at descriptions in memory; it reads and writes leaves only where that gives space back.
//!
//! Messages of a small rolled-back transaction that are on their way down are left to go with the others while writes come in, which
//! costs nothing; those of a large one are moved at once. On failure a pass ends, and the next one tries again.

use super::engine::Engine;
use crate::base::sync::Mutex;
use crate::base::{CommitNumber, Result, TxnId};
use crate::tree::{CompactPass, CompactStep};

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
    /// What the last pass knew.
    aborted: Vec<TxnId>,
    horizon: CommitNumber,
    /// When it ended, on the database's clock.
    ended_micros: u64,
}

/// How far the cleaning is.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Mutex<State>);

impl Engine {
    /// Goes on with cleaning; false when there is nothing to do just now.
    pub(crate) fn clean_leftovers_step(&self) -> Result<bool> {
        let mut pass = {
            let mut state = self.leftovers.0.lock();
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
        let mut state = self.leftovers.0.lock();
        state.is_cleaning = false;
        match &stepped {
            Ok(CompactStep::Done) | Err(_) => state.ended_micros = self.clock.micros(),
            Ok(_) => state.pass = Some(pass),
        }
        Ok(stepped? == CompactStep::Worked)
    }

    fn next_pass(&self, state: &mut State) -> Option<CompactPass> {
        let by_hand = self.options.manual_background;
        let since = self.clock.micros().saturating_sub(state.ended_micros);
        if since < PAUSE_MICROS && !by_hand {
            return None;
        }
        let at_rest = by_hand || self.tree.version_guard().active.is_empty();
        let aborted = self.statuses.aborted_in_runs(if at_rest { 1 } else { LARGE_RUNS });
        let horizon = self.snapshots.horizon();
        let are_new = aborted != state.aborted && !aborted.is_empty();
        let has_moved = horizon != state.horizon && (by_hand || since >= HORIZON_PAUSE_MICROS);
        if !are_new && !has_moved {
            return None;
        }
        state.horizon = horizon;
        state.aborted.clone_from(&aborted);
        Some(self.tree.leftovers_pass(if are_new { aborted } else { Vec::new() }))
    }
}
