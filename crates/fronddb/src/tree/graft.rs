//! Grafting: sorted rows of an interval of keys in which the tree holds nothing become leaves, written once.
//!
//! What enters the tree otherwise passes through level 0, the root's buffers and a compaction. All of that exists to bring
//! messages into order with what is there already. Where nothing is there ([`BeTree::is_bare`]) the sorted rows are written as
//! leaf bases at once ([`GraftWriter`]), and one installation ([`BeTree::graft_step`]) puts them between what lies
//! below and above them in the leaf slot around the interval. A run there that lies on both sides of the interval is cut first, by an ordinary
//! compaction of that leaf.
//!
//! The rows carry the stamp of a transaction that is open, as those of a seal may. So nothing else has to know of
//! grafts: the transaction's fate decides what the rows mean, and its runs are counted like others. What makes them durable is the
//! publication of a root that has them; the caller publishes before the transaction may commit.
//!
//! - G1: the interval is bare, in level 0 and in the tree, and nobody but the caller writes to it, from before the check
//!   until the installation. So order among messages is no question, and their sequence number is 0: what they are merged with, when
//!   leaves join, must not come out newer than a range-delete that is still above it (N5).
//! - G2: the graft's slot is reserved as a job that splits is: no run comes into it and no pivot around it moves.
//! - G3: after the installation, scans that leave markers behind ([`super::dead`]) know of it: they compare [`Version::grafts`].
//!
//! On failure, and when dropped before its installation, a graft gives its space back: no root has ever held it.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::compact::{self, Cuts, Outcome, Output};
use super::node::{Node, Slot, Target};
use super::plan::{self, Job};
use super::step::for_each_run_in;
use super::{BeTree, TreeEnv, Version};
use crate::base::{Error, Extent, Result, key};
use crate::format::message::{Kind, Message, Stamp};
use crate::format::visibility::Retention;
use crate::run::{CursorMode, Run, RunOptions, RunWriter, write_blob};
use crate::store::Urgency;

/// Rows that have been written and are in no tree yet.
pub struct Graft {
    env: TreeEnv,
    lower: Arc<[u8]>,
    upper: Option<Vec<u8>>,
    runs: Vec<Output>,
    blobs: Vec<Extent>,
    blob_bytes: u64,
    rows: u64,
    stamp: Stamp,
}

/// Writes rows in key order for a [`Graft`].
pub struct GraftWriter {
    graft: Graft,
    options: RunOptions,
    open: Option<RunWriter>,
    /// Where the run being written begins.
    run_lower: Arc<[u8]>,
    last_key: Vec<u8>,
    payload: Vec<u8>,
}

/// What became of an attempt to install a graft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraftStep {
    /// It is in the tree.
    Done,
    /// Another job is in the way: try again after it.
    Busy,
    /// No single leaf is around the interval.
    Unfit,
}

/// What of a leaf slot lies on one side of a graft.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) buffer: Vec<Arc<Run>>,
    pub(super) base: Option<Arc<Run>>,
}

/// A leaf slot, the height of its node, and its upper bound, if it has one.
struct LeafSlot {
    height: u8,
    slot: Arc<Slot>,
    upper: Option<Vec<u8>>,
}

impl Side {
    fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.base.is_none()
    }
}

impl std::fmt::Debug for Graft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graft").field("rows", &self.rows).field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for GraftWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GraftWriter").field("graft", &self.graft).finish_non_exhaustive()
    }
}

impl Graft {
    /// Rows in it.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The stamp of all of them.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Stored bytes of values that are kept apart.
    pub fn blob_bytes(&self) -> u64 {
        self.blob_bytes
    }

    /// The slots that take the place of `slot`, and the space of values kept apart: the graft's from now on no more.
    pub(super) fn into_slots(
        mut self,
        slot: &Slot,
        below: Side,
        above: Side,
    ) -> (Vec<Arc<Slot>>, Vec<Output>, Vec<Extent>) {
        let tuning = &self.env.options;
        let mut slots = Vec::with_capacity(self.runs.len() + 2);
        if !below.is_empty() {
            slots.push(Slot::new(tuning, slot.lower().clone(), below.buffer, Target::Leaf(below.base)));
        }
        for output in &self.runs {
            let lower = if slots.is_empty() { slot.lower() } else { &output.lower };
            slots.push(Slot::new(tuning, lower.clone(), Vec::new(), Target::Leaf(Some(output.run.clone()))));
        }
        if let Some(upper) = self.upper.as_deref().filter(|_| !above.is_empty()) {
            slots.push(Slot::new(tuning, Arc::from(upper), above.buffer, Target::Leaf(above.base)));
        }
        (slots, std::mem::take(&mut self.runs), std::mem::take(&mut self.blobs))
    }

    /// On which side of the interval a run of its slot lies; `None` when it has something on both.
    fn is_below(&self, run: &Run) -> Option<bool> {
        let meta = run.meta();
        if meta.range_deletes > 0 || meta.messages == 0 {
            None
        } else if meta.last_key.as_slice() < self.lower.as_ref() {
            Some(true)
        } else {
            self.upper.as_ref().is_some_and(|upper| meta.first_key >= *upper).then_some(false)
        }
    }

    /// What lies below and above; `None` when a run does both.
    fn sides(&self, slot: &Slot) -> Option<(Side, Side)> {
        let (mut below, mut above) = (Side::default(), Side::default());
        for run in slot.buffer() {
            let side = if self.is_below(run)? { &mut below } else { &mut above };
            side.buffer.push(run.clone());
        }
        if let Target::Leaf(Some(base)) = slot.target() {
            let side = if self.is_below(base)? { &mut below } else { &mut above };
            side.base = Some(base.clone());
        }
        Some((below, above))
    }

    /// The same of the outputs of a compaction that was cut at the interval.
    fn sides_of(&self, outcome: &Outcome) -> Result<(Side, Side)> {
        let (mut below, mut above) = (Side::default(), Side::default());
        for output in &outcome.outputs {
            let is_above = self.upper.as_ref().is_some_and(|upper| output.lower.as_ref() >= upper.as_slice());
            let side = if is_above { &mut above } else { &mut below };
            let meta = output.run.meta();
            if side.base.is_some()
                || (!is_above && meta.messages > 0 && meta.last_key.as_slice() >= self.lower.as_ref())
            {
                return Err(Error::internal("G1: something lies where a graft is to be"));
            }
            side.base = Some(output.run.clone());
        }
        Ok((below, above))
    }
}

impl Drop for Graft {
    fn drop(&mut self) {
        compact::discard(&self.env, std::mem::take(&mut self.runs).iter().map(|output| output.run.meta()));
        self.blobs.iter().for_each(|extent| self.env.store.free_unpublished(*extent));
    }
}

impl GraftWriter {
    /// Adds a row, its key above the last one's. The value is `kept_apart` or in the row.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; `Internal` when out of order.
    pub fn add(&mut self, key: &[u8], value: &[u8], kept_apart: bool) -> Result<()> {
        let full =
            self.open.as_ref().is_some_and(|run| run.stored_bytes() >= self.graft.env.options.leaf_bytes_target());
        if full {
            self.close()?;
            self.run_lower = Arc::from(key::separator(&self.last_key, key));
        }
        let mut payload = value;
        if kept_apart {
            let env = &self.graft.env;
            let reference = write_blob(&env.store, env.codecs.get(key::tree_of(key)), value)?;
            let stored = reference.stored_bytes();
            self.graft.blob_bytes += stored;
            env.codecs.count_blob(key::tree_of(key), value.len() as u64, stored);
            self.graft.blobs.extend(&reference.extents);
            self.payload.clear();
            reference.encode(&mut self.payload);
            payload = &self.payload;
        }
        let message = Message { key, seq: 0, stamp: self.graft.stamp, kind: Kind::Put, blob: kept_apart, payload };
        let run = self.open.get_or_insert_with(|| {
            let env = &self.graft.env;
            RunWriter::new(&env.store, env.next_run_id(), &self.options, env.options.leaf_bytes_target())
                .with_urgency(Urgency::Ordinary)
                .with_first(true)
        });
        run.add(&message)?;
        self.graft.rows += 1;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let Some(run) = self.open.take() else { return Ok(()) };
        let (env, (meta, _)) = (&self.graft.env, run.finish()?);
        let run = Run::new(meta, &env.store, &env.cache, &env.run_counters);
        self.graft.runs.push(Output { lower: self.run_lower.clone(), run });
        Ok(())
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// As [`GraftWriter::add`].
    pub fn finish(mut self) -> Result<Graft> {
        self.close()?;
        Ok(self.graft)
    }
}

impl BeTree {
    /// Begins a graft of rows in `[lower, upper)` (`None`: no upper bound), all with this stamp.
    pub fn graft_writer(&self, lower: &[u8], upper: Option<&[u8]>, stamp: Stamp) -> GraftWriter {
        let env = self.env.clone();
        let options = RunOptions {
            block_bytes: env.options.block_bytes,
            filter_bits_per_key: env.options.base_filter_bits,
            has_seq: false,
            codecs: env.codecs.clone(),
            cache: env.cache.clone(),
        };
        let lower: Arc<[u8]> = Arc::from(lower);
        let upper = upper.map(<[u8]>::to_vec);
        let run_lower = lower.clone();
        let graft = Graft { env, lower, upper, runs: Vec::new(), blobs: Vec::new(), blob_bytes: 0, rows: 0, stamp };
        GraftWriter { graft, options, open: None, run_lower, last_key: Vec::new(), payload: Vec::new() }
    }

    /// True when no message and no range-delete, of whatever fate, lies in `[lower, upper)`, and one leaf is around it.
    ///
    /// # Errors
    /// Those of reading nodes and blocks.
    pub fn is_bare(&self, version: &Version, lower: &[u8], upper: Option<&[u8]>) -> Result<bool> {
        let inside = |key: &[u8]| key >= lower && upper.is_none_or(|upper| key < upper);
        let meets = |start: &[u8], end: &[u8]| lower < end && upper.is_none_or(|upper| start < upper);
        for level0 in version.level0() {
            let mut cursor = level0.cursor();
            cursor.seek(lower);
            let is_met = level0.range_deletes(|lists| lists.iter().any(|range| meets(&range.start, &range.end)));
            if is_met || (cursor.valid() && inside(cursor.key())) {
                return Ok(false);
            }
        }
        if self.leaf_around(&version.root, lower, upper)?.is_none() {
            return Ok(false);
        }
        let flow = for_each_run_in(&self.env, &version.root, lower, upper, &mut |run| {
            let meta = run.meta();
            if meta.range_deletes > 0 && run.range_deletes()?.iter().any(|range| meets(&range.start, &range.end)) {
                return Ok(ControlFlow::Break(()));
            }
            if meta.messages == 0
                || meta.last_key.as_slice() < lower
                || upper.is_some_and(|upper| meta.first_key.as_slice() >= upper)
            {
                return Ok(ControlFlow::Continue(()));
            }
            let mut cursor = run.cursor(CursorMode { read_ahead_bytes: 0, ..CursorMode::default() });
            cursor.seek(lower)?;
            let found = cursor.valid() && inside(cursor.key());
            Ok(if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(flow.is_continue())
    }

    /// The leaf slot whose interval is around `[lower, upper)`, with its upper bound.
    fn leaf_around(&self, root: &Arc<Node>, lower: &[u8], upper: Option<&[u8]>) -> Result<Option<LeafSlot>> {
        let mut node = root.clone();
        let mut node_upper: Option<Vec<u8>> = None;
        loop {
            let index = node.find(lower);
            let slot = node.slots()[index].clone();
            let slot_upper = node.upper(index, node_upper.as_deref()).map(<[u8]>::to_vec);
            let is_around = slot_upper.as_ref().is_none_or(|end| upper.is_some_and(|upper| upper <= end.as_slice()));
            if !is_around || slot.is_damaged() {
                return Ok(None);
            }
            let Target::Node(child) = slot.target() else {
                return Ok(Some(LeafSlot { height: node.height(), slot, upper: slot_upper }));
            };
            (node, node_upper) = (child.load(&self.env)?.clone(), slot_upper);
        }
    }

    /// Installs a graft, for whose interval G1 holds; it is gone from `graft` when that is done.
    ///
    /// # Errors
    /// Those of reading nodes, and of compacting a leaf that lies on both sides. Nothing has changed then.
    pub fn graft_step(&self, retention: &Retention<'_>, graft: &mut Option<Graft>) -> Result<GraftStep> {
        let Some(ready) = graft.as_ref().filter(|graft| !graft.runs.is_empty()) else { return Ok(GraftStep::Done) };
        // Under the latch nothing is read: the path to a key stays in memory once it was loaded.
        let version = self.version();
        self.leaf_around(&version.root, &ready.lower, ready.upper.as_deref())?;
        drop(version);
        let job = {
            let mut state = self.state.lock();
            let root = self.version.load().root.clone();
            let around = self.leaf_around(&root, &ready.lower, ready.upper.as_deref())?;
            let Some(LeafSlot { height, slot, upper }) = around else { return Ok(GraftStep::Unfit) };
            match plan::reserve_leaves(&mut state.reservations, height, &slot, None, upper.as_deref()) {
                Some(job) => job,
                None => return Ok(GraftStep::Busy),
            }
        };
        let room = self.make_room(retention, &job, ready);
        let mut state = self.state.lock();
        let (below, above, written) = match room {
            Ok(room) => room,
            Err(error) => {
                state.reservations.end_job(&job);
                self.leave_if_damaged(&mut state, &job.name, &error, false);
                return Err(error);
            }
        };
        let bytes = ready.runs.iter().map(|output| output.run.meta().bytes).sum();
        let (lower, upper, rows) = (ready.lower.clone(), ready.upper.clone(), ready.rows);
        if let Some(graft) = graft.take() {
            self.install_graft(&mut state, &job, graft, (below, above), written);
        }
        self.dead.on_graft(&lower, upper.as_deref());
        self.counters.compaction_bytes.add(bytes);
        self.counters.messages_out.add(rows);
        Ok(GraftStep::Done)
    }

    /// What of the job's slot lies below and above the graft, after a compaction where a run lies on both sides.
    fn make_room(&self, retention: &Retention<'_>, job: &Job, graft: &Graft) -> Result<(Side, Side, Option<Outcome>)> {
        if let Some((below, above)) = graft.sides(&job.slot) {
            return Ok((below, above, None));
        }
        let cuts = std::iter::once(graft.lower.clone()).chain(graft.upper.as_deref().map(Arc::from)).collect();
        let mut compaction = self.compaction(job, job.slot.runs().cloned().collect(), true, Cuts::At(cuts))?;
        compaction.filter_bits = self.env.options.base_filter_bits;
        let mut outcome = compact::run(&self.env, retention, compaction, false)?;
        match graft.sides_of(&outcome) {
            Ok((below, above)) => {
                self.count(&outcome, &self.counters.compactions, &self.counters.compaction_bytes);
                Ok((below, above, Some(outcome)))
            }
            Err(error) => {
                let outputs = std::mem::take(&mut outcome.outputs);
                compact::discard(&self.env, outputs.iter().map(|output| output.run.meta()));
                Err(error)
            }
        }
    }
}
