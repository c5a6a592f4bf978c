//! What point and range requests share: finding who is in the way, entering the graph, sleeping.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::graph::{Blocker, Blockers, Graph, Waiting};
use super::intervals::Intervals;
use super::key::LockKey;
use super::owner::Owner;
use super::points::conflict;
use super::table::Inner;
use super::{Mode, Wait, WaitObserver};
use crate::base::sync::MutexGuard;
use crate::base::sync::atomic::Ordering;
use crate::base::{Error, ErrorKind, Result, TxnId};

/// A request on its way.
pub(super) struct Request<'a> {
    pub(super) owner: &'a Arc<Owner>,
    pub(super) mode: Mode,
    pub(super) seq: u64,
    /// `None`: answer `Busy` rather than wait.
    pub(super) wait: Option<Wait>,
    /// It asks for no lock: see `implicit`.
    pub(super) is_implicit: bool,
}

impl Request<'_> {
    pub(super) fn may_sleep(&self) -> bool {
        !matches!(self.wait, None | Some(Wait::NoWait))
    }
}

/// Blockers of a request that the observer was told of. Once there are any, it is told of the end of the wait when this is
/// dropped: no latch may be held then.
pub(super) struct Told<'a> {
    table: &'a Inner,
    owner: &'a Owner,
    blockers: SmallVec<[TxnId; 4]>,
}

impl<'a> Told<'a> {
    pub(super) fn new(table: &'a Inner, owner: &'a Owner) -> Told<'a> {
        Told { table, owner, blockers: SmallVec::new() }
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if let (Some(WaitObserver(observe)), false) = (&self.table.observer, self.blockers.is_empty()) {
            observe(self.owner.label, None);
        }
    }
}

/// Collects who is in the way of a request. The graph is locked when it is first needed and stays so.
pub(super) struct Search<'a, 'r> {
    table: &'a Inner,
    request: &'r Request<'r>,
    pub(super) blockers: Blockers,
    graph: Option<MutexGuard<'a, Graph>>,
    /// Waiting requests that wait for this owner, so that it goes before them.
    passed: SmallVec<[TxnId; 2]>,
    passed_ranges: SmallVec<[u32; 2]>,
}

impl<'a, 'r> Search<'a, 'r> {
    pub(super) fn new(table: &'a Inner, request: &'r Request<'r>) -> Search<'a, 'r> {
        Search {
            table,
            request,
            blockers: Blockers::new(),
            graph: None,
            passed: SmallVec::new(),
            passed_ranges: SmallVec::new(),
        }
    }

    fn concerns(&self, other: &Arc<Owner>, mode: Mode) -> bool {
        conflict(mode, self.request.mode) && !Arc::ptr_eq(other, self.request.owner) && !other.has_ended()
    }

    /// `queued`: as in [`Blocker`].
    fn block(&mut self, other: &Arc<Owner>, queued: Option<u64>) {
        match self.blockers.iter_mut().find(|blocker| Arc::ptr_eq(&blocker.owner, other)) {
            Some(blocker) if queued.is_none() => blocker.queued = None,
            Some(_) => {}
            None => self.blockers.push(Blocker { owner: other.clone(), queued }),
        }
    }

    /// Meets a lock that is held.
    pub(super) fn held(&mut self, other: &Arc<Owner>, mode: Mode) {
        if self.concerns(other, mode) {
            self.block(other, None);
        }
    }

    pub(super) fn graph(&mut self) -> &mut Graph {
        self.graph.get_or_insert_with(|| self.table.graph.lock())
    }

    /// Meets a request that waits. True when it must be waited for.
    pub(super) fn waiting(&mut self, other: &Arc<Owner>, mode: Mode, seq: u64) -> bool {
        if seq >= self.request.seq || !self.concerns(other, mode) {
            return false;
        }
        let owner = self.request.owner;
        if owner.followers.load(Ordering::SeqCst) > 0 && self.graph().reaches(other, owner) {
            self.passed.push(other.id);
            return false;
        }
        self.block(other, Some(seq));
        true
    }

    /// Meets the ranges of the tree that overlap `[low, high)`, but for `own_id`. True when the owner itself
    /// holds a range that covers all of it, in this mode or a stronger one.
    pub(super) fn ranges(&mut self, intervals: &Intervals, low: &LockKey, high: &LockKey, own_id: Option<u32>) -> bool {
        let mut covered = false;
        intervals.touching(low, high, &mut |id, range| {
            if Some(id) == own_id || !range.overlaps(low, high) {
                return ControlFlow::Continue(());
            }
            if Arc::ptr_eq(&range.owner, self.request.owner) {
                if range.granted && range.mode >= self.request.mode && range.low <= *low && *high <= range.high {
                    covered = true;
                    return ControlFlow::Break(());
                }
            } else if range.granted {
                self.held(&range.owner, range.mode);
            } else {
                let passed = self.passed.len();
                self.waiting(&range.owner, range.mode, range.seq);
                if self.passed.len() > passed {
                    self.passed_ranges.push(id);
                }
            }
            ControlFlow::Continue(())
        });
        covered
    }

    /// The request is granted: those it passed examine themselves again (they may have a new reason to wait),
    /// and ranges among them cannot go by what they have seen so far (L5). Ends its wait, if it had one.
    pub(super) fn finish(mut self, intervals: Option<&mut Intervals>, queued: bool) {
        if let Some(intervals) = intervals {
            for id in &self.passed_ranges {
                if let Some(range) = intervals.get_mut(*id) {
                    range.disturbed = true;
                }
            }
        }
        for id in std::mem::take(&mut self.passed) {
            self.graph().poke(id);
        }
        if queued {
            let owner = self.request.owner;
            let micros = self.table.clock.micros();
            let graph = self.graph();
            let since = graph.wait_of(owner).map(|wait| wait.since_micros);
            graph.grant(owner);
            self.table.metrics.wait_micros.record(micros.saturating_sub(since.unwrap_or(micros)));
        }
    }

    /// Registers edges to those found, which makes a waiting request known as such, and looks for a deadlock.
    pub(super) fn register(mut self, low: &LockKey, high: Option<&LockKey>) -> Registered<'a> {
        let request = self.request;
        let micros = self.table.clock.micros();
        let blockers = std::mem::take(&mut self.blockers);
        let graph = self.graph();
        if !graph.is_waiting(request.owner, request.seq) {
            graph.start(Waiting {
                owner: request.owner.clone(),
                low: low.clone(),
                high: high.cloned(),
                mode: request.mode,
                seq: request.seq,
                since_micros: micros,
                is_implicit: request.is_implicit,
                blockers: Blockers::new(),
                poked: false,
                doomed: None,
            });
            self.table.metrics.waits.add(1);
        }
        let graph = self.graph();
        if let Some(cycle) = graph.wait_of(request.owner).and_then(|wait| wait.doomed.take()) {
            return Registered::Failed(self.table.deadlock(&cycle));
        }
        if !graph.set_blockers(request.owner, blockers) {
            return Registered::Again;
        }
        graph.resolve(request.owner);
        match self.graph {
            Some(graph) => Registered::Sleep(graph),
            None => Registered::Again,
        }
    }
}

/// What became of a request that has to wait.
pub(super) enum Registered<'a> {
    /// Sleep with this, which keeps wake-ups out until then.
    Sleep(MutexGuard<'a, Graph>),
    /// A blocker has ended meanwhile: examine again.
    Again,
    /// Give up.
    Failed(Error),
}

impl Inner {
    /// The clock's time at which the wait is over.
    pub(super) fn deadline(&self, wait: Option<Wait>) -> Option<u64> {
        match wait {
            Some(Wait::Timeout(after)) => {
                Some(self.clock.micros().saturating_add(u64::try_from(after.as_micros()).unwrap_or(u64::MAX)))
            }
            _ => None,
        }
    }

    /// Labels of those in the way of a registered request whom the observer has not been told of; they count as told
    /// from now on.
    pub(super) fn untold(&self, graph: &mut Graph, owner: &Owner, told: &mut Told<'_>) -> SmallVec<[u64; 4]> {
        let mut labels = SmallVec::new();
        if self.observer.is_some()
            && let Some(wait) = graph.wait_of(owner)
        {
            for blocker in &wait.blockers {
                if !told.blockers.contains(&blocker.owner.id) {
                    told.blockers.push(blocker.owner.id);
                    labels.push(blocker.owner.label);
                }
            }
        }
        labels
    }

    /// Tells the observer. No latch may be held.
    pub(super) fn tell(&self, owner: &Owner, blockers: &[u64]) {
        if let Some(WaitObserver(observe)) = &self.observer {
            blockers.iter().for_each(|blocker| observe(owner.label, Some(*blocker)));
        }
    }

    /// Sleeps until the request is to be examined again, or has failed. Wakes early when it was poked
    /// before the sleep began, because both happen under the graph's mutex.
    pub(super) fn sleep(&self, owner: &Owner, mut graph: MutexGuard<'_, Graph>, deadline: Option<u64>) -> Result<()> {
        loop {
            if owner.has_ended() {
                return Err(Inner::closed(owner));
            }
            if let Some(wait) = graph.wait_of(owner) {
                if let Some(cycle) = wait.doomed.take() {
                    return Err(self.deadlock(&cycle));
                }
                if std::mem::take(&mut wait.poked) {
                    return Ok(());
                }
            }
            if owner.cancelled.swap(false, Ordering::SeqCst) {
                self.metrics.cancellations.add(1);
                let message = format!("the wait for a lock was cancelled, txn={}", owner.id);
                return Err(Error::new(ErrorKind::Cancelled, message));
            }
            match deadline {
                None => owner.wake.wait(&mut graph),
                Some(deadline) => {
                    let now = self.clock.micros();
                    if now >= deadline {
                        return Err(self.timed_out(owner));
                    }
                    owner.wake.wait_for(&mut graph, Duration::from_micros(deadline - now));
                }
            }
        }
    }

    pub(super) fn timed_out(&self, owner: &Owner) -> Error {
        self.metrics.timeouts.add(1);
        Error::new(ErrorKind::LockTimeout, format!("a lock was not granted in time, txn={}", owner.id))
    }

    fn deadlock(&self, cycle: &str) -> Error {
        self.metrics.deadlocks.add(1);
        Error::new(ErrorKind::Deadlock, format!("chosen to end a deadlock, {cycle}"))
    }
}
