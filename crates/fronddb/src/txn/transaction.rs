//! What one transaction knows of itself. Pure: ids, steps, savepoints and counts, no locks and no I/O.
//!
//! # Steps and savepoints
//!
//! Each message carries the step in which it was written. Setting a savepoint begins a new step (unless nothing was
//! written in the current one), so what is written after the savepoint has its step or a later one. Rolling back
//! to it aborts the interval from that step to the current one and begins a new step; nothing is visited. The
//! savepoint stays and begins anew; those set after it are gone. Releasing a savepoint forgets the mark only. A
//! statement is a savepoint that is released at its end. Locks are kept in either case.

use super::snapshots::Snapshot;
use crate::base::{CommitNumber, Error, ErrorKind, Result, TxnId};

/// What a transaction's reads see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Isolation {
    /// Also what is not committed, never what is aborted.
    ReadUncommitted = 1,
    /// Each statement has its own snapshot.
    ReadCommitted = 2,
    /// One snapshot, taken at the first read.
    #[default]
    RepeatableRead = 3,
    /// As repeatable read, and reads lock.
    Serializable = 4,
}

/// Names a savepoint within its transaction. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SavepointId(pub u64);

/// Steps to abort, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRange {
    /// First step.
    pub from: u32,
    /// Last step.
    pub to: u32,
}

#[derive(Debug, Clone, Copy)]
struct Savepoint {
    id: SavepointId,
    /// What is written after it has this step or a later one.
    first_step: u32,
}

/// The state of one transaction, kept by its handle.
#[derive(Debug, Default)]
pub struct TransactionState {
    id: Option<TxnId>,
    isolation: Isolation,
    snapshot: Option<Snapshot>,
    step: u32,
    /// Something was written in the current step.
    wrote_in_step: bool,
    savepoints: Vec<Savepoint>,
    next_savepoint: u64,
    messages: u64,
    bytes: u64,
}

impl TransactionState {
    /// A transaction that has neither read nor written.
    pub fn new(isolation: Isolation) -> TransactionState {
        TransactionState { isolation, ..TransactionState::default() }
    }

    /// Its id, from its first write (or lock) on.
    #[inline]
    pub fn id(&self) -> Option<TxnId> {
        self.id
    }

    /// Its id, drawn by `begin` if it has none yet.
    #[inline]
    pub fn id_or_begin(&mut self, begin: impl FnOnce() -> TxnId) -> TxnId {
        *self.id.get_or_insert_with(begin)
    }

    /// Its isolation.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The snapshot of its reads, if it has one now.
    #[inline]
    pub fn snapshot(&self) -> Option<CommitNumber> {
        self.snapshot.as_ref().map(Snapshot::number)
    }

    /// The snapshot of its reads, taken by `acquire` if it has none. READ UNCOMMITTED takes one as well, so that
    /// what it reads is kept from compaction.
    #[inline]
    pub fn snapshot_or_acquire(&mut self, acquire: impl FnOnce() -> Snapshot) -> CommitNumber {
        self.snapshot.get_or_insert_with(acquire).number()
    }

    /// Lets the snapshot go at the end of a statement, where the isolation says so.
    pub fn end_statement(&mut self) {
        if self.isolation <= Isolation::ReadCommitted {
            self.snapshot = None;
        }
    }

    /// Lets the snapshot go, for a fresh one at the next read.
    pub fn drop_snapshot(&mut self) {
        self.snapshot = None;
    }

    /// The step for messages written now.
    #[inline]
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Counts messages about to be written in the current step. To be called *before* they are, so that a failure
    /// half-way can be rolled back.
    #[inline]
    pub fn note_write(&mut self, messages: u64, bytes: u64) {
        self.wrote_in_step = true;
        self.messages += messages;
        self.bytes += bytes;
    }

    /// True once it has written.
    pub fn has_written(&self) -> bool {
        self.messages > 0
    }

    /// Messages and bytes written so far, also those rolled back.
    pub fn written(&self) -> (u64, u64) {
        (self.messages, self.bytes)
    }

    /// Number of savepoints that can be rolled back to.
    pub fn savepoints(&self) -> usize {
        self.savepoints.len()
    }

    /// Sets a savepoint.
    ///
    /// # Errors
    /// `InvalidArgument` after four thousand million steps.
    pub fn set_savepoint(&mut self) -> Result<SavepointId> {
        if self.wrote_in_step {
            self.next_step()?;
        }
        let id = SavepointId(self.next_savepoint);
        self.next_savepoint += 1;
        self.savepoints.push(Savepoint { id, first_step: self.step });
        Ok(id)
    }

    /// The steps that a rollback to `savepoint` aborts; `None` when nothing was written since.
    ///
    /// # Errors
    /// `NotFound` when it is not there (any more).
    pub fn steps_since(&self, savepoint: SavepointId) -> Result<Option<StepRange>> {
        let from = self.savepoints[self.find(savepoint)?].first_step;
        Ok((self.step > from || self.wrote_in_step).then_some(StepRange { from, to: self.step }))
    }

    /// Rolls back to `savepoint`, which stays, and whose later ones go. Returns the steps that the caller has
    /// to have aborted: do that first (see [`TransactionState::steps_since`]), for it can fail.
    ///
    /// # Errors
    /// `NotFound` as above; `InvalidArgument` after four thousand million steps.
    pub fn rollback_to(&mut self, savepoint: SavepointId) -> Result<Option<StepRange>> {
        let index = self.find(savepoint)?;
        let steps = self.steps_since(savepoint)?;
        if steps.is_some() {
            self.next_step()?;
        }
        self.savepoints.truncate(index + 1);
        self.savepoints[index].first_step = self.step;
        Ok(steps)
    }

    /// Forgets `savepoint` and those set after it; what was written stays.
    ///
    /// # Errors
    /// `NotFound` as above.
    pub fn release_savepoint(&mut self, savepoint: SavepointId) -> Result<()> {
        let index = self.find(savepoint)?;
        self.savepoints.truncate(index);
        Ok(())
    }

    fn find(&self, savepoint: SavepointId) -> Result<usize> {
        self.savepoints
            .binary_search_by_key(&savepoint, |one| one.id)
            .map_err(|_| Error::new(ErrorKind::NotFound, format!("no such savepoint, id={}", savepoint.0)))
    }

    fn next_step(&mut self) -> Result<()> {
        let step = self.step.checked_add(1).filter(|step| *step < u32::MAX);
        self.step = step.ok_or_else(|| Error::invalid("too many steps in one transaction"))?;
        self.wrote_in_step = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_rollback_without_writes_aborts_nothing() -> Result<()> {
        let mut state = TransactionState::new(Isolation::RepeatableRead);
        let outer = state.set_savepoint()?;
        let inner = state.set_savepoint()?;
        assert_eq!((state.step(), state.rollback_to(inner)?), (0, None));
        state.note_write(1, 10);
        assert_eq!(state.rollback_to(outer)?, Some(StepRange { from: 0, to: 0 }));
        assert_eq!(state.rollback_to(inner).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
        assert_eq!(state.rollback_to(outer)?, None, "it begins anew");
        assert_eq!((state.step(), state.written()), (1, (1, 10)));
        Ok(())
    }

    #[test]
    fn many_statements_without_writes_use_no_steps() -> Result<()> {
        let mut state = TransactionState::new(Isolation::Serializable);
        for _ in 0..1000 {
            let statement = state.set_savepoint()?;
            state.release_savepoint(statement)?;
        }
        assert_eq!((state.step(), state.savepoints()), (0, 0));
        Ok(())
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write,
        Set,
        Rollback(prop::sample::Index),
        Release(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Write),
            2 => Just(Step::Set),
            1 => any::<prop::sample::Index>().prop_map(Step::Rollback),
            1 => any::<prop::sample::Index>().prop_map(Step::Release),
        ]
    }

    proptest! {
        #[test]
        fn exactly_the_writes_since_the_savepoint_are_aborted(steps in prop::collection::vec(step(), 1..80)) {
            let mut state = TransactionState::new(Isolation::RepeatableRead);
            // Writes: step and whether alive. Savepoints: id and number of writes at the time.
            let mut writes: Vec<(u32, bool)> = Vec::new();
            let mut savepoints: Vec<(SavepointId, usize)> = Vec::new();
            let mut aborted: Vec<StepRange> = Vec::new();
            for step in steps {
                match step {
                    Step::Write => {
                        state.note_write(1, 1);
                        writes.push((state.step(), true));
                    }
                    Step::Set => savepoints.push((state.set_savepoint()?, writes.len())),
                    Step::Rollback(_) | Step::Release(_) if savepoints.is_empty() => {}
                    Step::Rollback(pick) => {
                        let index = pick.index(savepoints.len());
                        let (id, from) = savepoints[index];
                        aborted.extend(state.rollback_to(id)?);
                        writes[from..].iter_mut().for_each(|write| write.1 = false);
                        savepoints.truncate(index + 1);
                    }
                    Step::Release(pick) => {
                        let index = pick.index(savepoints.len());
                        state.release_savepoint(savepoints[index].0)?;
                        savepoints.truncate(index);
                    }
                }
                for (step, alive) in &writes {
                    let hit = aborted.iter().any(|range| range.from <= *step && *step <= range.to);
                    prop_assert_eq!(*alive, !hit);
                }
                prop_assert!(aborted.iter().all(|range| range.to < state.step()));
            }
        }
    }
}
