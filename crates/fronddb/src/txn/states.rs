//! The state of each transaction id, looked up without a lock.
//!
//! States lie in chunks of 1,024 atomic words. A chunk is *settled*, and dropped, when all its ids are decided and nobody needs the
//! numbers of its commits: every snapshot sees them, or nobody can ask for them any more, because no message of these ids is left that
//! does not say itself when it was committed ([`super::waiting`] knows when that is). Chunks go in the middle, too. So neither a
//! transaction that stays open for long nor an old snapshot keeps the states of all that come after it: the one keeps its chunk, the
//! other what level 0 and undecided transactions of runs can be asked about. The list of chunks is an immutable value behind an
//! `ArcSwap`, together with the aborted ids whose chunk is gone or that are below the low-water mark ([`Passed`]): one load gives a
//! consistent pair. Most lookups of old ids are answered before that, by the mark and one flag. Making a longer list copies it, once for
//! 1,024 transactions: a few thousand pointers behind an old snapshot at most, as level 0 is bounded.
//!
//! An id is looked up in the backlog when it passes and never again, for nothing is aborted of what is settled. The list keeps what is
//! forgotten, for which nobody asks, until that may be more than a quarter of it; then it is made anew. So an abort costs the same,
//! however many hundreds of thousands are in the list.
//!
//! Writers are serialised by the table above. Order of publication:
//!
//! * **S1** An id's chunk is published before the id is handed out; an id beyond the last chunk is active.
//! * **S2** An aborted id is in `passed` before its chunk is gone or the low-water mark is above it, and the flag is
//!   set before the mark moves.
//! * **S3** A step interval is in the map of intervals before its transaction's state says so, and leaves the map
//!   only after it is in `passed` (or was forgotten); a reader that misses it in the map looks in `passed` again.
//! * **S4** The number of a commit that not every snapshot sees is there as long as a memtable that somebody may read, or a run of the
//!   root or under a reader's hands, has a message that names its writer. After that the id is answered like one that all see, to nobody.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::backlog::{Backlog, What};
use super::passed::{AbortedSteps, Passed};
use super::steps::Steps;
use super::waiting::{Look, Waiting};
use crate::base::sync::ArcSwap;
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Mutex, RwLock};
use crate::base::{CommitNumber, TxnId};
use crate::format::Status;

/// Small in tests of schedules, so that chunks come and go.
const CHUNK: u64 = if cfg!(feature = "schedules") { 4 } else { 1024 };
const STEP_GROUPS: usize = 16;

/// Low two bits of a state.
const TAG: u64 = 3;
const ACTIVE: u64 = 0;
const COMMITTED: u64 = 1;
const ABORTED: u64 = 2;
/// Some steps are aborted.
const STEPS: u64 = 4;
const NUMBER_SHIFT: u32 = 3;

#[derive(Debug)]
struct Chunk {
    number: u64,
    states: Box<[AtomicU64]>,
}

#[derive(Debug, Default, Clone)]
struct Published {
    low_water: u64,
    /// Ascending by number.
    chunks: Vec<Arc<Chunk>>,
    /// Chunks below this number that are not in the list are settled.
    chunks_end: u64,
    passed: Passed,
    /// What the backlog had forgotten when `passed` was made anew the last time; none before the first.
    forgotten: Option<u64>,
}

/// Aborted steps of some transactions.
type StepGroup = RwLock<HashMap<u64, Steps>>;

/// The states of all ids.
#[derive(Debug)]
pub(super) struct States {
    published: ArcSwap<Published>,
    waiting: Mutex<Waiting>,
    low_water: AtomicU64,
    any_passed: AtomicBool,
    /// Step intervals of transactions whose chunk is there.
    steps: [StepGroup; STEP_GROUPS],
}

/// The ids of a chunk.
fn ids_of(number: u64) -> Range<u64> {
    number * CHUNK..(number + 1) * CHUNK
}

impl Chunk {
    fn ids(&self) -> Range<u64> {
        ids_of(self.number)
    }

    fn statuses(&self) -> impl Iterator<Item = Status> {
        self.states.iter().map(|state| decode(state.load(Ordering::Acquire)))
    }

    /// Ids at its beginning that are decided, and whose commits are at or below the horizon.
    fn settled(&self, horizon: CommitNumber) -> u64 {
        let is_settled = |status: &Status| match status {
            Status::Active => false,
            Status::Committed(number) => *number <= horizon,
            Status::Aborted => true,
        };
        self.statuses().take_while(is_settled).count() as u64
    }

    /// What there is from this place on, before which nothing is undecided.
    fn look(&self, from: usize) -> Look {
        let undecided = self.statuses().skip(from).position(|status| status == Status::Active);
        let number = |status| if let Status::Committed(number) = status { number.0 } else { 0 };
        undecided.map_or_else(
            || Look::Decided(self.statuses().map(number).max().unwrap_or(0)),
            |at| Look::Undecided(from + at),
        )
    }
}

fn decode(state: u64) -> Status {
    match state & TAG {
        COMMITTED => Status::Committed(CommitNumber(state >> NUMBER_SHIFT)),
        ABORTED => Status::Aborted,
        _ => Status::Active,
    }
}

impl Published {
    fn chunk(&self, number: u64) -> Option<&Arc<Chunk>> {
        // Usually the list is dense at its end.
        let back = self.chunks_end.checked_sub(number)? as usize;
        let guess = self.chunks.len().checked_sub(back).and_then(|index| self.chunks.get(index));
        if let Some(chunk) = guess.filter(|chunk| chunk.number == number) {
            return Some(chunk);
        }
        let index = self.chunks.binary_search_by_key(&number, |chunk| chunk.number).ok()?;
        self.chunks.get(index)
    }

    fn state(&self, txn: u64) -> Option<&AtomicU64> {
        self.chunk(txn / CHUNK)?.states.get((txn % CHUNK) as usize)
    }

    fn settled(&self, txn: u64, step: u32) -> Status {
        if self.passed.contains(TxnId(txn), step) { Status::Aborted } else { Status::Committed(CommitNumber(0)) }
    }

    /// The ids whose state is gone, ascending.
    fn passed_ids(&self) -> Vec<Range<u64>> {
        let mut from = 0;
        let mut ranges = Vec::new();
        for ids in self.chunks.iter().map(|chunk| chunk.ids()) {
            ranges.push(from..self.low_water.clamp(ids.start, ids.end));
            from = ids.end;
        }
        ranges.push(from..self.chunks_end * CHUNK);
        ranges
    }

    /// Whether more than a quarter of what has passed may be forgotten, or nothing was ever collected.
    fn is_stale(&self, backlog: &Backlog) -> bool {
        self.forgotten.is_none_or(|before| 4 * (backlog.forgotten() - before) > self.passed.len() as u64)
    }

    /// Adds what is aborted of ids that pass, given ascending. Returns those of which only some steps are.
    fn pass(&mut self, ids: Vec<Range<u64>>, backlog: &Backlog) -> Vec<TxnId> {
        let (mut aborted, mut in_part) = (Vec::new(), Vec::new());
        for (txn, what) in ids.into_iter().filter(|ids| !ids.is_empty()).flat_map(|ids| backlog.range(ids)) {
            match what {
                What::Whole => aborted.push(AbortedSteps { txn, from: 0, to: u32::MAX }),
                What::Steps(steps) => {
                    aborted.extend(steps.iter().map(|(from, to)| AbortedSteps { txn, from, to }));
                    in_part.push(txn);
                }
            }
        }
        self.passed.add(&aborted);
        in_part
    }
}

impl States {
    /// All ids below `next` are settled, but for those [`States::add`]ed now; complete it by a first
    /// [`States::advance`].
    pub(super) fn new(next: u64) -> States {
        let states = States {
            published: ArcSwap::from_pointee(Published { chunks_end: next / CHUNK, ..Published::default() }),
            waiting: Mutex::default(),
            low_water: AtomicU64::new(0),
            any_passed: AtomicBool::new(false),
            steps: Default::default(),
        };
        states.add(TxnId(next), next);
        states
    }

    #[cfg(test)]
    pub(super) fn low_water(&self) -> TxnId {
        TxnId(self.low_water.load(Ordering::Acquire))
    }

    /// The state of a step.
    #[inline]
    pub(super) fn status(&self, txn: TxnId, step: u32) -> Status {
        if txn.0 < self.low_water.load(Ordering::Acquire) && !self.any_passed.load(Ordering::Acquire) {
            return Status::Committed(CommitNumber(0));
        }
        self.status_above(txn.0, step)
    }

    fn status_above(&self, txn: u64, step: u32) -> Status {
        let published = self.published.load();
        if txn < published.low_water {
            return published.settled(txn, step);
        }
        match published.state(txn) {
            Some(state) => {
                let state = state.load(Ordering::Acquire);
                if state & STEPS != 0 && self.is_step_aborted(txn, step) { Status::Aborted } else { decode(state) }
            }
            None if txn / CHUNK < published.chunks_end => published.settled(txn, step),
            None => Status::Active,
        }
    }

    fn is_step_aborted(&self, txn: u64, step: u32) -> bool {
        if let Some(steps) = self.step_group(txn).read().get(&txn) {
            return steps.contains(step);
        }
        self.published.load().passed.contains(TxnId(txn), step)
    }

    fn step_group(&self, txn: u64) -> &StepGroup {
        &self.steps[txn as usize % STEP_GROUPS]
    }

    /// Makes room for an id (S1). Ids below `settled_below` of a fresh chunk are committed, the others active.
    pub(super) fn add(&self, txn: TxnId, settled_below: u64) {
        let number = txn.0 / CHUNK;
        if self.published.load().chunk(number).is_none() {
            self.add_chunk(number, settled_below);
        }
    }

    fn add_chunk(&self, number: u64, settled_below: u64) {
        let state = |id| AtomicU64::new(if id < settled_below { COMMITTED } else { ACTIVE });
        let states = ids_of(number).map(state).collect();
        let mut published = Published::clone(&self.published.load());
        let index = published.chunks.partition_point(|chunk| chunk.number < number);
        published.chunks.insert(index, Arc::new(Chunk { number, states }));
        published.chunks_end = published.chunks_end.max(number + 1);
        self.published.store(Arc::new(published));
        self.waiting.lock().add(number);
    }

    /// Sets the state of an id whose chunk is there, keeping its mark of aborted steps.
    pub(super) fn set(&self, txn: TxnId, status: Status) {
        let word = match status {
            Status::Active => ACTIVE,
            Status::Committed(number) => COMMITTED | number.0 << NUMBER_SHIFT,
            Status::Aborted => ABORTED,
        };
        if let Some(state) = self.published.load().state(txn.0) {
            // Writers are serialised, so nothing comes between the two.
            state.store(word | state.load(Ordering::Relaxed) & STEPS, Ordering::Release);
        }
    }

    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.published.load().chunks.len()
    }

    /// Bytes of the states of ids.
    pub(super) fn memory_bytes(&self) -> usize {
        let chunk_bytes = size_of::<Chunk>() + size_of::<Arc<Chunk>>() + CHUNK as usize * size_of::<AtomicU64>();
        self.published.load().chunks.len() * chunk_bytes
    }

    /// Where the blocks of passed aborts lie.
    #[cfg(test)]
    pub(super) fn passed_at(&self) -> Vec<*const ()> {
        self.published.load().passed.blocks_at()
    }

    /// How many intervals of aborted steps have passed.
    #[cfg(test)]
    pub(super) fn passed(&self) -> usize {
        self.published.load().passed.len()
    }

    /// Settles the ids that have a word but no fate, but for those that are open.
    pub(super) fn settle_unseen(&self, ids: Range<u64>, is_open: impl Fn(TxnId) -> bool) {
        for chunk in &self.published.load().chunks {
            for (id, state) in (chunk.number * CHUNK..).zip(&chunk.states) {
                if ids.contains(&id) && state.load(Ordering::Relaxed) & TAG == ACTIVE && !is_open(TxnId(id)) {
                    state.store(COMMITTED, Ordering::Release);
                }
            }
        }
    }

    /// Adds aborted steps `from..=to` of an id whose chunk is there (S3).
    pub(super) fn add_steps(&self, txn: TxnId, from: u32, to: u32) {
        self.step_group(txn.0).write().entry(txn.0).or_default().add(from, to);
        if let Some(state) = self.published.load().state(txn.0) {
            state.fetch_or(STEPS, Ordering::Release);
        }
    }

    /// Drops the intervals of a forgotten id.
    pub(super) fn forget_steps(&self, txn: TxnId) {
        self.step_group(txn.0).write().remove(&txn.0);
    }

    /// The numbers of the chunks that are settled now, ascending; they wait no more.
    fn take_settled(
        &self,
        current: &Published,
        horizon: CommitNumber,
        memtables: impl FnOnce() -> Vec<u64>,
        backlog: &Backlog,
    ) -> Vec<u64> {
        let look = |number, from| current.chunk(number).map_or(Look::Undecided(from), |chunk| chunk.look(from));
        self.waiting.lock().take(horizon.0, look, memtables, |number| backlog.is_any_held(ids_of(number)))
    }

    /// How many chunks [`States::advance`] would look at.
    #[cfg(test)]
    pub(super) fn due(&self, horizon: CommitNumber) -> usize {
        self.waiting.lock().due(horizon.0)
    }

    /// Moves the low-water mark and drops settled chunks. `memtables` are those that somebody may still read, ascending, the active one
    /// last. `next` is the next id; `backlog` has all that is aborted and not forgotten, of which what passes now is looked up, and all
    /// that has passed when much of that was forgotten.
    pub(super) fn advance(
        &self,
        horizon: CommitNumber,
        memtables: impl FnOnce() -> Vec<u64>,
        next: u64,
        backlog: &Backlog,
    ) {
        let current = self.published.load_full();
        let low_before = current.low_water;
        let settled = self.take_settled(&current, horizon, memtables, backlog);
        let is_settled = |chunk: &Chunk| settled.binary_search(&chunk.number).is_ok();
        let first = current.chunks.iter().find(|chunk| !is_settled(chunk));
        let low_water =
            first.map_or(next, |chunk| (chunk.ids().start + chunk.settled(horizon)).clamp(low_before, next));
        let is_stale = current.is_stale(backlog);
        if low_water == low_before && settled.is_empty() && !is_stale {
            return;
        }
        let mut published = Published { low_water, ..Published::clone(&current) };
        published.chunks.retain(|chunk| !is_settled(chunk));
        let passing = if is_stale {
            published.passed = Passed::default();
            published.forgotten = Some(backlog.forgotten());
            published.passed_ids()
        } else {
            // What is below the mark or has no chunk has passed before.
            let ids = |chunk: &Arc<Chunk>| {
                let Range { start, end } = chunk.ids();
                start.max(low_before)..if is_settled(chunk) { end } else { end.min(low_water) }
            };
            current.chunks.iter().map(ids).collect()
        };
        let in_part = published.pass(passing, backlog);
        let any_passed = published.passed.len() > 0;
        self.published.store(Arc::new(published));
        self.any_passed.store(any_passed, Ordering::Release);
        self.low_water.store(low_water, Ordering::Release);
        for txn in in_part {
            self.forget_steps(txn);
        }
    }
}
