//! The steps that move messages down. A thread, a test or a scheduler calls them; several calls may run
//! at once, from any threads.
//!
//! Each step reserves (under the latch), works (without it), installs (under it). An error in between
//! gives the reservation back and leaves the tree as it was.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::compact::{self, Compaction, Cuts, Outcome, Output, blob_ref};
use super::node::{Node, Slot, Target};
use super::plan::{self, Job, Planned, SlotName};
use super::source::Source;
use super::{BeTree, State, TreeEnv, split};
use crate::base::metrics::Counter;
use crate::base::{Error, ErrorKind, Extent, Result};
use crate::format::message::{RangeDelete, Stamp};
use crate::format::visibility::Retention;
use crate::memtable::Level0;
use crate::run::{Clipped, CursorMode, Run};
use crate::store::Urgency;

/// Bytes that a compaction reads from a run at once, at least and at most.
const BULK_BYTES: std::ops::RangeInclusive<usize> = 32 << 10..=256 << 10;
/// A compaction's read buffers take such a part of the memory budget, unless it has very many runs.
const BULK_PART: usize = 64;

/// How a compaction of `runs` runs reads: past the cache, in large pieces.
fn bulk(env: &TreeEnv, runs: usize) -> CursorMode {
    let each = env.budget.limit() / BULK_PART / runs.max(1);
    let read_ahead_bytes = each.clamp(*BULK_BYTES.start(), *BULK_BYTES.end());
    CursorMode { fill_cache: false, read_ahead_bytes, is_long: true, asks_ahead: false }
}

/// What the steps have done since the database was opened.
#[derive(Debug, Default)]
pub struct TreeCounters {
    /// Memtables written.
    pub seals: Counter,
    /// Stored bytes written by seals.
    pub seal_bytes: Counter,
    /// Slots flushed into nodes.
    pub flushes: Counter,
    /// Stored bytes written by flushes.
    pub flush_bytes: Counter,
    /// Flushes that wrote nothing, because each run lay within one slot of the child.
    pub moves: Counter,
    /// Leaves compacted.
    pub compactions: Counter,
    /// Stored bytes written by compactions and grafts.
    pub compaction_bytes: Counter,
    /// Flushes and compactions done because readers had paid for them.
    pub for_reads: Counter,
    /// Pairs of leaves that have become one.
    pub joins: Counter,
    /// Subtrees dropped whole.
    pub drops: Counter,
    /// Messages read by all steps.
    pub messages_in: Counter,
    /// Messages written by all steps.
    pub messages_out: Counter,
}

/// A memtable that has become runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Its id: it and all before it are in the tree now.
    pub memtable_id: u64,
}

/// What a job that has ended early leaves of its runs.
#[derive(Debug)]
pub(super) struct Rest {
    /// It begins at this key.
    pub from: Arc<[u8]>,
    /// Each run with what is left of it.
    pub runs: Vec<(Arc<Run>, Clipped)>,
}

impl BeTree {
    /// Writes the oldest sealed memtable into the root's buffers. `None`: there is none, or it is held
    /// ([`BeTree::hold_memtables_before`]), or it is not known which pivots the root is about to get (call again).
    ///
    /// # Errors
    /// Those of writing runs; `Internal` after a panic of another thread that sealed. The memtable stays sealed.
    pub fn seal_step(&self, retention: &Retention<'_>) -> Result<Option<Sealed>> {
        let Some(mut lookups) = self.sealing.try_lock()? else { return Ok(None) };
        let (reservation, lower, cuts, memtable) = {
            let mut state = self.state.lock();
            let version = self.version.load_full();
            let Some(memtable) = version.sealed.last().cloned() else { return Ok(None) };
            let next = version.sealed.iter().rev().nth(1).map_or_else(|| version.active.id(), Level0::id);
            if state.held_before.is_some_and(|held| next >= held) {
                return Ok(None);
            }
            let root = &version.root;
            let cuts = split::seal_cuts(&self.env.options, &state.reservations, root);
            let Some(id) = state.reservations.begin_seal(root.height(), cuts.clone()) else { return Ok(None) };
            (id, root.slots()[0].lower().clone(), cuts, memtable)
        };
        let before = std::mem::replace(&mut *lookups, self.lookups());
        // Readers look for at least half as many messages as come (who updates a row has read it): they will want these too.
        let is_in_use = 2 * (*lookups - before) >= memtable.messages() && self.env.cache.has_room();
        let written = self.write_memtable(retention, &memtable, lower, cuts, is_in_use);
        let mut state = self.state.lock();
        state.reservations.end(reservation);
        let outcome = written?;
        self.count(&outcome, &self.counters.seals, &self.counters.seal_bytes);
        self.install_seal(&mut state, outcome);
        Ok(Some(Sealed { memtable_id: memtable.id() }))
    }

    /// Lookups of messages by readers so far.
    fn lookups(&self) -> u64 {
        self.env.cache.lookups() + self.env.run_counters.statistics().blocks_remembered
    }

    fn write_memtable(
        &self,
        retention: &Retention<'_>,
        memtable: &Level0,
        lower: Arc<[u8]>,
        cuts: Vec<Arc<[u8]>>,
        is_in_use: bool,
    ) -> Result<Outcome> {
        let mut source = Source::Level0(memtable.cursor());
        source.first()?;
        let compaction = Compaction {
            sources: vec![source],
            range_deletes: memtable.range_deletes(|lists| lists.iter().cloned().collect()),
            lower,
            upper: None,
            bottom: false,
            keeps_seq: false,
            min_seq: memtable.seq_bounds().map_or(u64::MAX, |(min, _)| min),
            cuts: Cuts::At(cuts),
            bytes_max: u64::MAX,
            filter_bits: self.env.options.buffer_filter_bits,
            is_in_use,
            urgency: Urgency::Seal,
        };
        compact::run(&self.env, retention, compaction, true)
    }

    /// Does the most urgent piece of work whose urgency is at least `threshold` (1: what asks for it;
    /// 0: whatever is pending). False when there is none that can be begun now.
    ///
    /// # Errors
    /// Those of reading and writing runs and nodes. After `Corruption` the slot is left alone, so that the
    /// rest of the tree goes on.
    pub fn work_step(&self, retention: &Retention<'_>, threshold: f32) -> Result<bool> {
        self.work_piece(retention, threshold, None)
    }

    /// As [`BeTree::work_step`]; with `bytes_max`, a piece of such work that writes about so much, and then gives back the space of what it has
    /// read: for who has no space for more (`run/clip.rs`).
    ///
    /// # Errors
    /// As there.
    pub fn work_piece(&self, retention: &Retention<'_>, threshold: f32, bytes_max: Option<u64>) -> Result<bool> {
        let picked = self
            .planned(&mut |state, root| plan::pick(&self.env, &mut state.reservations, root, threshold, bytes_max))?;
        let Some(job) = picked else { return Ok(false) };
        self.do_job(retention, &job).map(|()| true)
    }

    /// The slot whose work lacked space last, in pieces of any size, gives way to the others.
    pub fn pass_over_lacking(&self) {
        self.state.lock().reservations.pass_over_lacking();
    }

    /// What `plan` comes to under the latch. Nodes that it lacks are read in between, without the latch; it begins anew then.
    ///
    /// # Errors
    /// Those of reading nodes. The slot that leads to a damaged one is left alone from then on.
    pub(super) fn planned<T>(&self, plan: &mut dyn FnMut(&mut State, &Arc<Node>) -> Planned<T>) -> Result<T> {
        loop {
            let mut state = self.state.lock();
            let version = self.version.load_full();
            let absent = match plan(&mut state, &version.root) {
                Ok(done) => return Ok(done),
                Err(absent) => absent,
            };
            drop(state);
            let Err(error) = absent.child.load(&self.env) else { continue };
            let mut state = self.state.lock();
            // Nothing was reserved: meanwhile the slot may be gone, or lead elsewhere.
            let root = self.version.load().root.clone();
            let leads_there =
                |slot: &Arc<Slot>| matches!(slot.target(), Target::Node(child) if Arc::ptr_eq(child, &absent.child));
            if plan::slot_at(&root, &absent.slot).is_some_and(|(slot, _)| leads_there(slot)) {
                self.leave_if_damaged(&mut state, &absent.slot, &error, false);
            }
            return Err(error);
        }
    }

    /// Does a job and ends its reservation.
    pub(super) fn do_job(&self, retention: &Retention<'_>, job: &Job) -> Result<()> {
        let done = self.work(retention, job);
        if let Err(error) = &done {
            // Of two leaves that were to be joined, only the damaged one is left alone.
            let is_whole = |slot: &Slot| job.next.is_some() && slot.runs().all(|run| run.verify_messages().is_ok());
            let is_damage = error.is_unreadable();
            let slots = std::iter::once(&job.slot).chain(&job.next).filter(|slot| is_damage && !is_whole(slot));
            let damaged: Vec<_> = slots.map(|slot| slot.lower().clone()).collect();
            let mut state = self.state.lock();
            state.reservations.end_job(job);
            if error.kind() == ErrorKind::NoSpace {
                state.reservations.note_space(Some(job.name.clone()));
            }
            for lower in damaged {
                let name = SlotName { height: job.name.height, lower };
                self.leave_if_damaged(&mut state, &name, error, job.gathers);
            }
        } else {
            self.state.lock().reservations.note_space(None);
        }
        self.release_some();
        done
    }

    /// Marks a slot that damage keeps from being worked on, so that it is not tried again and neither asks for work nor slows
    /// writers down, until its node is read again. Only runs in its buffer are merged, unless they are damaged as well.
    pub(super) fn leave_if_damaged(&self, state: &mut State, slot: &SlotName, error: &Error, buffer_too: bool) {
        if error.is_unreadable() {
            self.install_damaged(state, slot, buffer_too);
        }
    }

    fn work(&self, retention: &Retention<'_>, job: &Job) -> Result<()> {
        if let Some(next) = &job.next {
            return self.join(retention, job, next);
        }
        if job.gathers {
            return self.gather(retention, job);
        }
        if job.alone
            && let Some(keep) = self.begin_alone(retention, job)?
        {
            return self.drop_below(job, keep);
        }
        match job.slot.target() {
            Target::Node(child) => {
                let child = child.load(&self.env)?.clone();
                if let Some(moved) = moves(&child, &job.slot) {
                    self.counters.moves.add(1);
                    let mut state = self.state.lock();
                    self.install_flush(&mut state, job, &moved, Vec::new(), None);
                    return Ok(());
                }
                let cuts = child.slots().iter().skip(1).map(|slot| slot.lower().clone()).collect();
                let mut compaction = self.compaction(job, job.slot.buffer().to_vec(), false, Cuts::At(cuts))?;
                compaction.bytes_max = job.bytes_max;
                let outcome = compact::run(&self.env, retention, compaction, false)?;
                self.count(&outcome, &self.counters.flushes, &self.counters.flush_bytes);
                let rest = self.rest(job.slot.buffer(), &outcome)?;
                let mut state = self.state.lock();
                self.install_flush(&mut state, job, &outcome.outputs, outcome.dropped_blobs, rest);
            }
            Target::Leaf(base) => {
                let (outcome, rest) = self.compact_leaf(retention, job, base.as_ref())?;
                let mut state = self.state.lock();
                self.install_leaf(&mut state, job, &outcome.outputs, outcome.dropped_blobs, rest);
            }
        }
        Ok(())
    }

    /// Makes one leaf of two neighbours. Nothing is written when one of them is empty.
    fn join(&self, retention: &Retention<'_>, job: &Job, next: &Slot) -> Result<()> {
        self.counters.joins.add(1);
        if job.slot.is_empty() || next.is_empty() {
            self.install_join(&mut self.state.lock(), job, next, None);
            return Ok(());
        }
        // Their keys are apart, so which of them comes first does not matter.
        let runs = job.slot.runs().chain(next.runs()).cloned().collect();
        let mut compaction = self.compaction(job, runs, true, Cuts::Bytes(u64::MAX))?;
        compaction.filter_bits = self.env.options.base_filter_bits;
        let outcome = compact::run(&self.env, retention, compaction, false)?;
        self.count(&outcome, &self.counters.compactions, &self.counters.compaction_bytes);
        self.install_join(&mut self.state.lock(), job, next, Some(outcome));
        Ok(())
    }

    /// Makes one run of those of the job, without touching what lies below.
    fn gather(&self, retention: &Retention<'_>, job: &Job) -> Result<()> {
        let compaction = self.compaction(job, job.slot.buffer().to_vec(), false, Cuts::At(Vec::new()))?;
        let outcome = compact::run(&self.env, retention, compaction, false)?;
        self.count(&outcome, &self.counters.compactions, &self.counters.compaction_bytes);
        let mut state = self.state.lock();
        self.install_gathered(&mut state, job, &outcome.outputs, outcome.dropped_blobs);
        Ok(())
    }

    /// What is left of the `runs` of a job that has ended early; on failure its outputs give their space back.
    fn rest(&self, runs: &[Arc<Run>], outcome: &Outcome) -> Result<Option<Rest>> {
        let Some(from) = outcome.ended_before.as_deref() else { return Ok(None) };
        let mode = bulk(&self.env, 1);
        let clipped: Result<Vec<_>> = runs.iter().map(|run| Ok((run.clone(), run.clipped(from, mode)?))).collect();
        match clipped {
            Ok(runs) => Ok(Some(Rest { from: Arc::from(from), runs })),
            Err(error) => {
                compact::discard(&self.env, outcome.outputs.iter().map(|output| output.run.meta()));
                Err(error)
            }
        }
    }

    fn compact_leaf(
        &self,
        retention: &Retention<'_>,
        job: &Job,
        base: Option<&Arc<Run>>,
    ) -> Result<(Outcome, Option<Rest>)> {
        let tuning = &self.env.options;
        let kept_base = base.filter(|base| job.splits && plan::appends(tuning, &job.slot, base));
        let mut runs = job.slot.buffer().to_vec();
        let mut bytes = job.slot.buffer_bytes();
        if kept_base.is_none() {
            runs.extend(base.cloned());
            bytes += base.map_or(0, |base| base.meta().bytes);
        }
        let cuts = if job.splits && bytes > tuning.leaf_bytes_max {
            let pieces = bytes.div_ceil(tuning.leaf_bytes_target());
            Cuts::Bytes(bytes.div_ceil(pieces))
        } else if job.splits {
            Cuts::Bytes(tuning.leaf_bytes_max)
        } else {
            Cuts::Bytes(u64::MAX)
        };
        let mut compaction = self.compaction(job, runs.clone(), true, cuts)?;
        compaction.filter_bits = tuning.base_filter_bits;
        compaction.bytes_max = job.bytes_max;
        if let Some(base) = kept_base {
            compaction.lower = first_key(&job.slot)
                .map_or(compaction.lower, |first| Arc::from(crate::base::key::separator(&base.meta().last_key, first)));
        }
        let mut outcome = compact::run(&self.env, retention, compaction, false)?;
        self.count(&outcome, &self.counters.compactions, &self.counters.compaction_bytes);
        let rest = self.rest(&runs, &outcome)?;
        if let Some(base) = kept_base {
            outcome.outputs.insert(0, Output { lower: job.slot.lower().clone(), run: base.clone() });
        }
        Ok((outcome, rest))
    }

    pub(super) fn compaction(&self, job: &Job, runs: Vec<Arc<Run>>, bottom: bool, cuts: Cuts) -> Result<Compaction> {
        let mut range_deletes: Vec<RangeDelete> = Vec::new();
        let mut sources = Vec::with_capacity(runs.len());
        let mode = bulk(&self.env, runs.len());
        self.env.cache.trim_for(mode.read_ahead_bytes * runs.len());
        for run in &runs {
            if run.meta().range_deletes > 0 {
                range_deletes.extend(run.range_deletes()?.iter().cloned());
            }
            let mut cursor = run.cursor(mode);
            cursor.first()?;
            sources.push(Source::Run(cursor));
        }
        Ok(Compaction {
            sources,
            range_deletes,
            lower: job.slot.lower().clone(),
            upper: job.upper.clone(),
            bottom,
            keeps_seq: self.is_below_ranges(&job.name),
            min_seq: runs.iter().map(|run| run.meta().min_seq).min().unwrap_or(u64::MAX),
            cuts,
            bytes_max: u64::MAX,
            filter_bits: self.env.options.buffer_filter_bits,
            is_in_use: false,
            urgency: Urgency::Compaction,
        })
    }

    /// True when a slot above the one of a job holds range-deletes (N5). While the job runs, none of them goes, because it would go
    /// alone, and only seals bring others, which are newer than all.
    fn is_below_ranges(&self, name: &SlotName) -> bool {
        let mut node = self.version.load().root.clone();
        while node.height() > name.height {
            let slot = &node.slots()[node.find(&name.lower)];
            if slot.buffer().iter().any(|run| run.has_range_deletes()) {
                return true;
            }
            let Target::Node(child) = slot.target() else { return false };
            let Some(child) = child.loaded().cloned() else { return false };
            node = child;
        }
        false
    }

    /// How many of the newest runs stay of a slot all below which is dropped, if that is what comes of the job. Where the pivots of the slot's node
    /// stay, others may rely on them from here on: what follows may read much, and seals wait for pivots that may change.
    pub(super) fn begin_alone(&self, retention: &Retention<'_>, job: &Job) -> Result<Option<usize>> {
        let keep = self.covered_from(retention, job)?;
        let splits = match job.slot.target() {
            _ if keep.is_some() => false,
            Target::Leaf(_) => true,
            // Nobody else changes what is below the slot.
            Target::Node(child) => split::is_too_wide(&self.env.options, child.load(&self.env)?),
        };
        if !splits {
            self.state.lock().reservations.keep_pivots(job);
        }
        Ok(keep)
    }

    /// The number of newest runs that must stay when a settled range-delete covers the whole slot, so that
    /// all older runs and everything below are dead. `None` also when there is nothing older.
    fn covered_from(&self, retention: &Retention<'_>, job: &Job) -> Result<Option<usize>> {
        let mut stamper = crate::format::resolve::Stamper::new();
        for (index, run) in job.slot.buffer().iter().enumerate() {
            if run.meta().range_deletes == 0 {
                continue;
            }
            for range in run.range_deletes()?.iter() {
                let covers = range.start.as_slice() <= job.slot.lower()
                    && job.upper.as_ref().is_some_and(|upper| upper <= &range.end);
                if covers && stamper.restamp(retention, range.stamp) == Some(Stamp::Settled) {
                    let keep = index + 1;
                    let nothing_older =
                        keep == job.slot.buffer().len() && matches!(job.slot.target(), Target::Leaf(None));
                    return Ok((!nothing_older).then_some(keep));
                }
            }
        }
        Ok(None)
    }

    /// Drops what lies below the slot and all but the `keep` newest of its runs. The run with the
    /// range-delete stays, because it may hold newer messages; its next compaction cleans it.
    fn drop_below(&self, job: &Job, keep: usize) -> Result<()> {
        let mut removed: Vec<Arc<Run>> = job.slot.buffer()[keep..].to_vec();
        collect_below(&self.env, &job.slot, &mut removed)?;
        let mut blobs = Vec::new();
        for run in removed.iter().filter(|run| run.meta().blobs > 0) {
            collect_blobs(&self.env, run, &mut blobs)?;
        }
        self.counters.drops.add(1);
        let mut state = self.state.lock();
        self.install_drop(&mut state, job, keep, removed, blobs);
        Ok(())
    }

    pub(super) fn count(&self, outcome: &Outcome, steps: &Counter, bytes: &Counter) {
        steps.add(1);
        bytes.add(outcome.outputs.iter().map(|output| output.run.meta().bytes).sum());
        self.counters.messages_in.add(outcome.messages_in);
        self.counters.messages_out.add(outcome.messages_out);
    }
}

/// The slots of `child` that the runs of `slot` belong to, the oldest run first, when each lies within one:
/// then they move down as they are. So rows in key order are not written again on their way.
fn moves(child: &Node, slot: &Slot) -> Option<Vec<Output>> {
    let place = |run: &Arc<Run>| {
        let meta = run.meta();
        let at = child.find(&meta.first_key);
        let inside = meta.range_deletes == 0 && meta.messages > 0 && at == child.find(&meta.last_key);
        inside.then(|| Output { lower: child.slots()[at].lower().clone(), run: run.clone() })
    };
    slot.buffer().iter().rev().map(place).collect()
}

/// The lowest key of the runs in a slot's buffer.
fn first_key(slot: &Slot) -> Option<&[u8]> {
    slot.buffer().iter().map(|run| run.meta().first_key.as_slice()).min()
}

fn collect_below(env: &TreeEnv, slot: &Slot, runs: &mut Vec<Arc<Run>>) -> Result<()> {
    match slot.target() {
        Target::Leaf(base) => runs.extend(base.iter().cloned()),
        Target::Node(child) if child.totals().base_bytes + child.totals().pending_bytes > 0 => {
            for slot in child.load(env)?.slots() {
                runs.extend(slot.buffer().iter().cloned());
                collect_below(env, slot, runs)?;
            }
        }
        Target::Node(child) => {
            child.load(env)?;
        }
    }
    Ok(())
}

/// Adds the extents of all blobs that a run's messages hold. Those that unreadable blocks name are not known: their space is lost, which a
/// check tells, and everything else goes.
fn collect_blobs(env: &TreeEnv, run: &Arc<Run>, extents: &mut Vec<Extent>) -> Result<()> {
    let before = extents.len();
    match collect_all_blobs(env, run, extents) {
        Err(error) if error.is_unreadable() => extents.truncate(before),
        collected => return collected,
    }
    let mut salvage = run.salvage(&mut |_| {})?;
    while let Some(message) = salvage.message() {
        if message.blob
            && let Ok(blob) = blob_ref(message.payload)
        {
            extents.extend(blob.extents);
        }
        salvage.next(&mut |_| {})?;
    }
    Ok(())
}

fn collect_all_blobs(env: &TreeEnv, run: &Arc<Run>, extents: &mut Vec<Extent>) -> Result<()> {
    let mut cursor = run.cursor(bulk(env, 1));
    cursor.first()?;
    while cursor.valid() {
        let message = cursor.message();
        if message.blob {
            extents.extend(blob_ref(message.payload)?.extents);
        }
        cursor.next()?;
    }
    Ok(())
}

/// Feeds every run of the tree to `visit`, loading nodes as needed, until it breaks.
///
/// # Errors
/// Those of loading nodes.
pub fn for_each_run(
    env: &TreeEnv,
    node: &Node,
    visit: &mut dyn FnMut(&Arc<Run>) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    for_each_run_in(env, node, &[], None, visit)
}

/// As [`for_each_run`], for the runs of slots that meet `[lower, upper)` (`None`: no upper bound).
///
/// # Errors
/// As there.
pub(super) fn for_each_run_in(
    env: &TreeEnv,
    node: &Node,
    lower: &[u8],
    upper: Option<&[u8]>,
    visit: &mut dyn FnMut(&Arc<Run>) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    for slot in &node.slots()[node.find(lower)..] {
        if upper.is_some_and(|upper| slot.lower().as_ref() >= upper) {
            break;
        }
        for run in slot.runs() {
            if visit(run)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if let Target::Node(child) = slot.target()
            && for_each_run_in(env, child.load(env)?, lower, upper, visit)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
