//! Grafting: sorted rows of an interval of keys in which the tree holds nothing become leaves, written once.
//!
//! What enters the tree otherwise passes through level 0, the root's buffers and a compaction. All of that exists to bring
//! messages into order with what is there already. Where nothing is there ([`BeTree::is_bare`]) the sorted rows are written as
//! leaf bases at once ([`GraftWriter`]), and an installation ([`BeTree::graft_step`]) puts them between what lies
//! below and above them in the leaf slot around the interval. A run there that lies on both sides of the interval is cut first, by an ordinary
//! compaction of that leaf.
//!
//! The rows carry the stamp of a transaction that is open, as those of a seal may. So nothing else has to know of
//! grafts: the transaction's fate decides what the rows mean, and its runs are counted like others. What makes them durable is the
//! publication of a root that has them; the caller publishes before the transaction may commit.
//!
//! A large load has more leaves than a node may have slots. Where the nodes on the path can be parted at once, all leaves go in with one
//! installation. Where something waits above one of them, or somebody relies on its pivots, it is so many leaves as leave the node of a size
//! that a publication can write; then the slot above is flushed, which parts the node, and more go in.
//!
//! - G1: the interval is bare, in level 0 and in the tree, and nobody but the caller writes to it, from before the check
//!   until the last installation. So order among messages is no question, and their sequence number is 0: what they are merged with, when
//!   leaves join, must not come out newer than a range-delete that is still above it (N5).
//! - G2: the graft's slot is reserved as a job that splits is: no run comes into it and no pivot around it moves.
//! - G3: after each installation, scans that leave markers behind ([`super::dead`]) know of it: they compare [`Version::grafts`].
//! - G4: no installation of leaves makes a node that nobody parts at once of more than [`SLOTS_FULL_PARTS`] times the slots that ask for it, and a few. A
//!   publication writes each node as one block, so one of any size would be one that no publication can write.
//!
//! On failure, and when dropped before it is whole in the tree, a graft gives the space of the leaves back that no root has ever held. The
//! others are for who made it to undo, as the writes of an open transaction are.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::compact::{self, Cuts, Outcome, Output};
use super::node::{Node, Slot, Target};
use super::plan::{self, Job, Planned};
use super::step::for_each_run_in;
use super::tuning::TreeTuning;
use super::{BeTree, State, TreeEnv, Version};
use crate::base::{Error, Extent, Result, key};
use crate::format::message::{Kind, Message, Stamp};
use crate::format::visibility::Retention;
use crate::run::{CursorMode, Run, RunOptions, RunWriter, write_blob};
use crate::store::Urgency;

/// A node of so many times the slots that ask for parting gets no more leaves until it was parted (G4).
const SLOTS_FULL_PARTS: usize = 8;

/// Rows that have been written and are not in the tree yet, or not all of them.
pub struct Graft {
    env: TreeEnv,
    /// Where what is not in the tree begins.
    lower: Arc<[u8]>,
    upper: Option<Vec<u8>>,
    /// Those that are not in the tree.
    leaves: Vec<Leaf>,
    /// Values kept apart of rows of the leaf that is being written.
    blobs: Vec<Extent>,
    blob_bytes: u64,
    rows: u64,
    stamp: Stamp,
}

struct Leaf {
    output: Output,
    /// Of its values that are kept apart.
    blobs: Vec<Extent>,
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
    /// A part of it is, or a node has been made ready for one: go on.
    Worked,
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

/// Slots from which on a node gets no more leaves until it was parted.
pub(super) fn slots_full(tuning: &TreeTuning) -> usize {
    SLOTS_FULL_PARTS * tuning.fanout_max
}

impl Side {
    fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.base.is_none()
    }
}

impl std::fmt::Debug for Graft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graft").field("rows", &self.rows).field("leaves", &self.leaves.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for GraftWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GraftWriter").field("graft", &self.graft).finish_non_exhaustive()
    }
}

impl Graft {
    /// Rows that were written for it.
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

    /// The slots that take the place of `slot` when the first `count` leaves come there, these leaves, and the space of their values kept
    /// apart: the graft's from now on no more. The last of these slots that is the graft's has room for what is left.
    pub(super) fn take_slots(
        &mut self,
        count: usize,
        slot: &Slot,
        below: Side,
        above: Side,
    ) -> (Vec<Arc<Slot>>, Vec<Output>, Vec<Extent>) {
        let tuning = &self.env.options;
        let mut slots = Vec::with_capacity(count + 2);
        if !below.is_empty() {
            slots.push(Slot::new(tuning, slot.lower().clone(), below.buffer, Target::Leaf(below.base)));
        }
        let (mut outputs, mut blobs) = (Vec::with_capacity(count), Vec::new());
        for leaf in self.leaves.drain(..count) {
            let lower = if slots.is_empty() { slot.lower() } else { &leaf.output.lower };
            slots.push(Slot::new(tuning, lower.clone(), Vec::new(), Target::Leaf(Some(leaf.output.run.clone()))));
            outputs.push(leaf.output);
            blobs.extend(leaf.blobs);
        }
        if let Some(upper) = self.upper.as_deref().filter(|_| !above.is_empty()) {
            slots.push(Slot::new(tuning, Arc::from(upper), above.buffer, Target::Leaf(above.base)));
        }
        if let Some(next) = self.leaves.first() {
            self.lower = next.output.lower.clone();
        }
        (slots, outputs, blobs)
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
        compact::discard(&self.env, self.leaves.iter().map(|leaf| leaf.output.run.meta()));
        let blobs = self.leaves.iter().flat_map(|leaf| &leaf.blobs).chain(&self.blobs);
        blobs.for_each(|extent| self.env.store.free_unpublished(*extent));
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
        let output = Output { lower: self.run_lower.clone(), run };
        self.graft.leaves.push(Leaf { output, blobs: std::mem::take(&mut self.graft.blobs) });
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
        let graft = Graft { env, lower, upper, leaves: Vec::new(), blobs: Vec::new(), blob_bytes: 0, rows: 0, stamp };
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

    /// Installs a graft, for whose interval G1 holds, or a part of it.
    ///
    /// # Errors
    /// Those of reading nodes, of compacting a leaf that lies on both sides, and of a flush that parts a node. What is in the tree stays there then.
    pub fn graft_step(&self, retention: &Retention<'_>, graft: &mut Graft) -> Result<GraftStep> {
        if graft.leaves.is_empty() {
            return Ok(GraftStep::Done);
        }
        let (lower, upper) = (graft.lower.clone(), graft.upper.clone());
        // Under the latch nothing is read: the path to a key stays in memory once it was loaded.
        let version = self.version();
        self.leaf_around(&version.root, &lower, upper.as_deref())?;
        drop(version);
        let job = {
            let mut state = self.state.lock();
            let root = self.version.load().root.clone();
            let around = self.leaf_around(&root, &lower, upper.as_deref())?;
            let Some(LeafSlot { height, slot, upper }) = around else { return Ok(GraftStep::Unfit) };
            let reserved = plan::reserve_leaves(&mut state.reservations, height, &slot, None, upper.as_deref());
            let Some(job) = reserved else { return Ok(GraftStep::Busy) };
            let has_room = self.room_for_leaves(&state, &root, &job) > 0;
            if !has_room {
                state.reservations.end_job(&job);
            }
            has_room.then_some(job)
        };
        let Some(job) = job else { return self.part_full_node(retention, &lower) };
        let room = self.make_room(retention, &job, graft);
        let mut state = self.state.lock();
        let (below, above, written) = match room {
            Ok(room) => room,
            Err(error) => {
                state.reservations.end_job(&job);
                self.leave_if_damaged(&mut state, &job.name, &error, false);
                return Err(error);
            }
        };
        // Others may have come to the node meanwhile: one more is a step forward whatever they did.
        let root = self.version.load().root.clone();
        let count = self.room_for_leaves(&state, &root, &job).clamp(1, graft.leaves.len());
        for leaf in &graft.leaves[..count] {
            self.counters.compaction_bytes.add(leaf.output.run.meta().bytes);
            self.counters.messages_out.add(leaf.output.run.meta().messages);
        }
        self.install_graft(&mut state, &job, (graft, count), (below, above), written);
        self.dead.on_graft(&lower, upper.as_deref());
        Ok(if graft.leaves.is_empty() { GraftStep::Done } else { GraftStep::Worked })
    }

    /// Flushes the slot above the highest full node on the path to `lower`, which parts that once nothing is left in the slot. The root is
    /// parted by whichever job ends when nobody relies on its pivots.
    fn part_full_node(&self, retention: &Retention<'_>, lower: &[u8]) -> Result<GraftStep> {
        match self.planned(&mut |state, root| self.reserve_above_full(state, root, lower))? {
            Some(job) => self.do_job(retention, &job).map(|()| GraftStep::Worked),
            None => Ok(GraftStep::Busy),
        }
    }

    fn reserve_above_full(&self, state: &mut State, root: &Arc<Node>, lower: &[u8]) -> Planned<Option<Job>> {
        let (mut node, mut node_upper) = (root, None);
        loop {
            let index = node.find(lower);
            let (slot, upper) = (&node.slots()[index], node.upper(index, node_upper));
            let Target::Node(child) = slot.target() else { return Ok(None) };
            let child = plan::at_hand(node.height(), slot, child)?;
            if child.slots().len() >= slots_full(&self.env.options) {
                return plan::reserve(&self.env, &mut state.reservations, node.height(), slot, upper);
            }
            (node, node_upper) = (child, upper);
        }
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
