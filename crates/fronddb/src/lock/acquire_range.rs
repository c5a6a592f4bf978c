//! A range request. It registers as a waiting range, so that later requests queue behind it, then looks at
//! the points of each shard in turn and at the other ranges, until it finds nobody in the way.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::intervals::{Intervals, Range};
use super::key::LockKey;
use super::owner::Owner;
use super::points::conflict;
use super::table::Inner;
use super::wait::{Registered, Request, Search, Told};
use super::{Attempt, Granted, Mode, Wait};
use crate::base::sync::atomic::Ordering;
use crate::base::{Error, Result, TreeId};

/// The interval of a request.
struct Span {
    tree: TreeId,
    low: LockKey,
    high: LockKey,
}

/// What the examination of a range found.
enum Decision<'a> {
    Granted,
    Busy,
    Wait(Registered<'a>),
}

/// Points in the way, as seen shard after shard.
#[derive(Default)]
struct Seen {
    held: Vec<(Arc<Owner>, Mode)>,
    waiting: Vec<(Arc<Owner>, Mode, u64)>,
}

impl Inner {
    /// Locks a range. `wait` is `None` for an attempt that answers `Busy`.
    pub(super) fn lock_interval(
        &self,
        owner: &Arc<Owner>,
        tree: TreeId,
        low: &[u8],
        high: &[u8],
        mode: Mode,
        wait: Option<Wait>,
    ) -> Result<Attempt> {
        if owner.has_ended() {
            return Err(Inner::closed(owner));
        }
        let span = Span { tree, low: LockKey::new(tree, low), high: LockKey::upper(tree, high) };
        if span.low >= span.high {
            return Err(Error::invalid(format!("empty range to lock, low={low:02x?} high={high:02x?}")));
        }
        let Some((id, seq)) = self.register_range(owner, &span, mode) else {
            return Ok(Attempt::Granted(Granted::Already));
        };
        let request = Request { owner, mode, seq, wait, is_implicit: false };
        let deadline = self.deadline(wait);
        let mut queued = false;
        let mut told = Told::new(self, owner);
        let failure = loop {
            match self.examine_range(&span, id, &request, &mut queued) {
                Decision::Granted => {
                    if owner.has_ended() {
                        // Ended by another thread, which may have swept before this range was there.
                        self.sweep_all_ranges(owner);
                        return Err(Inner::closed(owner));
                    }
                    if self.is_over() {
                        self.relieve();
                    }
                    owner.weight.fetch_add(1, Ordering::Relaxed);
                    self.metrics.ranges.add(1);
                    return Ok(Attempt::Granted(Granted::New));
                }
                Decision::Busy => {
                    self.withdraw_range(&request, &span, id);
                    return match wait {
                        None => Ok(Attempt::Busy),
                        Some(_) => Err(self.timed_out(owner)),
                    };
                }
                Decision::Wait(Registered::Again) => {}
                Decision::Wait(Registered::Failed(error)) => break error,
                Decision::Wait(Registered::Sleep(mut graph)) => {
                    let untold = self.untold(&mut graph, owner, &mut told);
                    if !untold.is_empty() {
                        drop(graph);
                        self.tell(owner, &untold);
                        continue;
                    }
                    if let Err(error) = self.sleep(owner, graph, deadline) {
                        break error;
                    }
                }
            }
        };
        self.withdraw_range(&request, &span, id);
        Err(failure)
    }

    /// Registers the request as a waiting range and numbers it; `None` when the owner holds it already.
    fn register_range(&self, owner: &Arc<Owner>, span: &Span, mode: Mode) -> Option<(u32, u64)> {
        let group = self.range_group(span.tree);
        let mut trees = group.trees.lock();
        let intervals = trees.entry(span.tree.0).or_default();
        let mut covered = false;
        intervals.touching(&span.low, &span.high, &mut |_, range| {
            covered = range.granted
                && Arc::ptr_eq(&range.owner, owner)
                && range.mode >= mode
                && range.low <= span.low
                && span.high <= range.high;
            if covered { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if covered {
            return None;
        }
        // L4: counted, then numbered, then the points are looked at.
        group.count.fetch_add(1, Ordering::SeqCst);
        let seq = self.next_seq.fetch_add(1, Ordering::SeqCst);
        let (low, high) = (span.low.clone(), span.high.clone());
        let range = Range { low, high, owner: owner.clone(), mode, granted: false, seq, disturbed: false };
        self.charge(range.bytes() as isize);
        Some((intervals.insert(range), seq))
    }

    fn examine_range<'a>(&'a self, span: &Span, id: u32, request: &Request<'_>, queued: &mut bool) -> Decision<'a> {
        let group = self.range_group(span.tree);
        if let Some(range) = group.trees.lock().get_mut(&span.tree.0).and_then(|intervals| intervals.get_mut(id)) {
            range.disturbed = false;
        }
        let seen = self.points_in_the_way(span, request);
        let mut trees = group.trees.lock();
        let Some(intervals) = trees.get_mut(&span.tree.0) else { return Decision::Wait(Registered::Again) };
        if intervals.get(id).is_none_or(|range| range.disturbed) {
            return Decision::Wait(Registered::Again);
        }
        let mut search = Search::new(self, request);
        seen.held.iter().for_each(|(holder, mode)| search.held(holder, *mode));
        for (waiter, mode, seq) in &seen.waiting {
            if !search.graph().is_waiting(waiter, *seq) {
                // Granted or gone since its shard was looked at.
                return Decision::Wait(Registered::Again);
            }
            search.waiting(waiter, *mode, *seq);
        }
        search.ranges(intervals, &span.low, &span.high, Some(id));
        if search.blockers.is_empty() {
            search.finish(Some(intervals), *queued);
            self.grant_range(intervals, request.owner, id);
            return Decision::Granted;
        }
        if !request.may_sleep() {
            return Decision::Busy;
        }
        *queued = true;
        Decision::Wait(search.register(&span.low, Some(&span.high)))
    }

    fn points_in_the_way(&self, span: &Span, request: &Request<'_>) -> Seen {
        let mut seen = Seen::default();
        for shard in &self.shards {
            let shard = shard.lock();
            for (_, entry) in shard.map.range(&span.low..&span.high) {
                if entry.is_only(request.owner) {
                    continue;
                }
                let mode = entry.mode;
                seen.held.extend(entry.holders().map(|holder| (holder.clone(), mode)));
                seen.waiting.extend(
                    entry
                        .waiters()
                        .filter(|waiter| waiter.seq < request.seq)
                        .map(|waiter| (waiter.owner.clone(), waiter.mode, waiter.seq)),
                );
            }
        }
        seen.held.retain(|(holder, mode)| conflict(*mode, request.mode) && !holder.has_ended());
        seen.held.sort_unstable_by_key(|(holder, _)| holder.id);
        seen.held.dedup_by(|a, b| Arc::ptr_eq(&a.0, &b.0));
        seen
    }

    /// Makes a waiting range a held one, joined with those of the same owner and mode that it touches.
    pub(super) fn grant_range(&self, intervals: &mut Intervals, owner: &Arc<Owner>, id: u32) {
        let Some(range) = intervals.get_mut(id) else { return };
        range.granted = true;
        let (low, high, mode) = (range.low.clone(), range.high.clone(), range.mode);
        let mut joined = Vec::new();
        intervals.touching(&low, &high, &mut |other, range| {
            if other != id && range.granted && range.mode == mode && Arc::ptr_eq(&range.owner, owner) {
                joined.push(other);
            }
            ControlFlow::Continue(())
        });
        let mut id = id;
        // Counted once more while its parts are out: points that find no range counted do not look for any.
        let group = self.range_group(low.tree());
        group.count.fetch_add(1, Ordering::SeqCst);
        if !joined.is_empty()
            && let Some(mut union) = self.remove_range(intervals, id)
        {
            for other in joined {
                if let Some(other) = self.remove_range(intervals, other) {
                    union.low = union.low.min(other.low);
                    union.high = union.high.max(other.high);
                }
            }
            id = self.insert_range(intervals, union);
        }
        group.count.fetch_sub(1, Ordering::SeqCst);
        owner.held.lock().push_range(low.tree(), id);
    }

    /// Adds a range with its accounting.
    pub(super) fn insert_range(&self, intervals: &mut Intervals, range: Range) -> u32 {
        self.range_group(range.low.tree()).count.fetch_add(1, Ordering::SeqCst);
        self.charge(range.bytes() as isize);
        intervals.insert(range)
    }

    /// Takes a range out with its accounting.
    pub(super) fn remove_range(&self, intervals: &mut Intervals, id: u32) -> Option<Range> {
        let range = intervals.remove(id)?;
        self.range_group(range.low.tree()).count.fetch_sub(1, Ordering::SeqCst);
        self.charge(-(range.bytes() as isize));
        Some(range)
    }

    /// Takes a request out that is not granted. Those behind it examine themselves again, also when it never
    /// slept: whoever saw it has registered under the mutex of the ranges.
    fn withdraw_range(&self, request: &Request<'_>, span: &Span, id: u32) {
        let mut trees = self.range_group(span.tree).trees.lock();
        if let Some(intervals) = trees.get_mut(&span.tree.0) {
            self.remove_range(intervals, id);
            if intervals.len() == 0 {
                trees.remove(&span.tree.0);
            }
        }
        drop(trees);
        self.graph.lock().withdraw(request.owner, request.seq);
    }
}
