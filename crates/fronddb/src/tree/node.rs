//! Nodes in memory. A node never changes: an installation copies the path from the slot that it changes
//! to the root, and readers keep the nodes that they began with.
//!
//! A node is a list of *slots*, ascending by pivot; a slot is a pivot (`lower`), a buffer of runs (newest
//! first) and a target: a leaf or a child node. Child nodes are loaded from the store when first reached,
//! so opening a database reads none but the root.
//!
//! Invariants:
//! - N1: slots ascend by `lower`; the first slot's `lower` equals the node's own lower bound.
//! - N2: every key and range-delete of a run in a slot lies in `[lower, next slot's lower)`. A run stands in one slot only.
//! - N3: for one key, everything in a slot's buffer is newer than everything below the slot, and a
//!   buffer's earlier runs are newer than its later ones.
//! - N4: a node below a saved node is saved.
//! - N5: a range-delete in a slot's buffer, or in level 0, is newer than *all* that lies below its range, by its sequence number too. (A run that
//!   stores no sequence numbers gives all its messages its highest, so merging a run with a newer one of other keys makes it newer; and newer
//!   ones of other keys lie below where a flush has ended early. Hence below a slot whose buffer holds range-deletes runs are written with sequence
//!   numbers, such slots are not joined, and a graft is older than all.)
//! - N6: the space of a stored node is given up only when the node is in its place in memory. A read that began before may end after that, and find
//!   anything there: what it comes to is of no account then, be it an error or a node.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::TreeEnv;
use super::rent::{self, Relief, Rent};
use super::tuning::TreeTuning;
use crate::base::key::{head, tree_of};
use crate::base::memory::{Charge, MemoryBudget, Purpose};
use crate::base::space::PAGE_BYTES;
use crate::base::{BlockPtr, Extent, Result};
use crate::format::block::{self, BlockKind};
use crate::format::message::Kind;
use crate::format::node::{NodeImage, SlotImage, TargetImage, Totals};
use crate::run::Run;

/// Two leaves that may become one ask for it so much.
pub const JOIN_URGENCY: f32 = 1.0;
/// Leaves join that are at most such a part of the largest leaf each, and together: appending leaves larger ones behind.
const JOIN_FILL_EACH: f32 = 0.25;
const JOIN_FILL: f32 = 0.5;
/// The same across a border between trees, where leaves are cut on purpose once they have as much as this.
const JOIN_FILL_OF_TREES: f32 = 0.125;

/// Runs in the buffer of a damaged slot are merged when they are more than this times what asks for a flush.
const GATHER_PARTS: usize = 2;

/// What the allocator and reference counts add to a slot, its lower bound, its buffer and its place in the node.
const ALLOCATION_BYTES: usize = 96;

/// An internal node.
#[derive(Debug)]
pub struct Node {
    height: u8,
    slots: Vec<Arc<Slot>>,
    /// [`head`] of each slot's `lower`, side by side for searching.
    heads: Box<[u128]>,
    totals: Totals,
    saved: OnceLock<BlockPtr>,
    budget: MemoryBudget,
    /// For itself and its slots; runs count themselves.
    _charge: Charge,
}

/// One child of a node, with its buffer.
#[derive(Debug)]
pub struct Slot {
    lower: Arc<[u8]>,
    buffer: Vec<Arc<Run>>,
    target: Target,
    totals: Totals,
    urgency: f32,
    /// Of a leaf: stored bytes of base and buffer, as a part of the largest leaf.
    fill: Option<f32>,
    /// What its own work would read is damaged: it asks for none, but for merging runs of its buffer, apart from so many of the
    /// oldest.
    damaged: Option<usize>,
    /// What reads have paid for what is in its buffer.
    rent: Rent,
    relief: Relief,
}

/// What a slot leads to.
#[derive(Debug, Clone)]
pub enum Target {
    /// A leaf and its base run; none while the leaf is empty.
    Leaf(Option<Arc<Run>>),
    /// A child node.
    Node(Arc<Child>),
}

/// A child node that may not have been loaded yet.
#[derive(Debug)]
pub struct Child {
    stored: BlockPtr,
    totals: Totals,
    node: OnceLock<Arc<Node>>,
}

impl Node {
    /// A node of these slots, not saved yet.
    ///
    /// # Panics
    /// If there are no slots, or they do not ascend (N1).
    pub fn new(budget: &MemoryBudget, height: u8, slots: Vec<Arc<Slot>>) -> Arc<Node> {
        assert!(height > 0 && !slots.is_empty(), "N1: a node has a height and slots");
        assert!(slots.is_sorted_by(|a, b| a.lower < b.lower), "N1: slots ascend");
        let mut totals = Totals::default();
        slots.iter().for_each(|slot| totals.add(&slot.totals));
        if slots.windows(2).any(|pair| pair[0].may_join(&pair[1])) {
            totals.urgency = totals.urgency.max(JOIN_URGENCY);
        }
        let heads: Box<[u128]> = slots.iter().map(|slot| head(&slot.lower)).collect();
        let bytes = size_of::<Node>()
            + size_of_val(heads.as_ref())
            + slots.iter().map(|slot| slot.memory_bytes()).sum::<usize>();
        let charge = Charge::new(budget, Purpose::Metadata, bytes);
        Arc::new(Node { height, slots, heads, totals, saved: OnceLock::new(), budget: budget.clone(), _charge: charge })
    }

    /// The root of an empty tree: one slot, an empty leaf.
    pub fn empty_root(env: &TreeEnv) -> Arc<Node> {
        let slot = Slot::new(&env.options, Arc::from([].as_slice()), Vec::new(), Target::Leaf(None));
        Node::new(&env.budget, 1, vec![slot])
    }

    /// 1 for the lowest internal nodes.
    pub fn height(&self) -> u8 {
        self.height
    }

    /// The slots, ascending.
    pub fn slots(&self) -> &[Arc<Slot>] {
        &self.slots
    }

    /// What lies in and below the slots.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Index of the slot that `key` belongs to. A key below the first pivot belongs to the first slot.
    #[inline]
    pub fn find(&self, key: &[u8]) -> usize {
        self.slots_until(key, |lower| lower <= key).saturating_sub(1)
    }

    /// As [`Node::find`] for the keys just below `key`.
    pub fn find_below(&self, key: &[u8]) -> usize {
        self.slots_until(key, |lower| lower < key).saturating_sub(1)
    }

    /// Number of slots whose `lower` is below `key` by its head, or has the same head and `is_low`.
    #[inline]
    fn slots_until(&self, key: &[u8], is_low: impl Fn(&[u8]) -> bool) -> usize {
        let wanted = head(key);
        let below = self.heads.partition_point(|head| *head < wanted);
        let equal = self.heads[below..].iter().take_while(|head| **head == wanted).count();
        below + self.slots[below..below + equal].partition_point(|slot| is_low(&slot.lower))
    }

    /// The lowest key above slot `index`, given the one above the node. `None`: no upper bound.
    pub fn upper<'a>(&'a self, index: usize, node_upper: Option<&'a [u8]>) -> Option<&'a [u8]> {
        self.slots.get(index + 1).map(|slot| slot.lower.as_ref()).or(node_upper)
    }

    /// The node with slot `index` replaced by `slots` (none: removed).
    pub fn with_slots(&self, index: usize, slots: impl IntoIterator<Item = Arc<Slot>>) -> Arc<Node> {
        self.with_range(index..index + 1, slots)
    }

    /// The node with the slots of `range` replaced by `slots`.
    pub fn with_range(&self, range: Range<usize>, slots: impl IntoIterator<Item = Arc<Slot>>) -> Arc<Node> {
        let mut all = self.slots.clone();
        all.splice(range, slots);
        Node::new(&self.budget, self.height, all)
    }

    /// Where it is stored, if a publication has written it.
    pub fn saved(&self) -> Option<BlockPtr> {
        self.saved.get().copied()
    }

    /// Records where a publication has written it.
    pub(super) fn set_saved(&self, ptr: BlockPtr) {
        assert!(self.saved.set(ptr).is_ok(), "a node is saved once");
    }

    /// Its stored form; `ptr_of` says where each child is stored (N4).
    pub(super) fn image(&self, ptr_of: &dyn Fn(&Child) -> BlockPtr) -> NodeImage {
        let slots = self.slots.iter().map(|slot| {
            let target = match &slot.target {
                Target::Leaf(base) => TargetImage::Leaf(base.as_ref().map(|run| Box::new(run.meta().clone()))),
                Target::Node(child) => {
                    let ptr = ptr_of(child);
                    assert!(!ptr.is_none(), "N4: children are saved first");
                    TargetImage::Node(ptr, child.totals)
                }
            };
            let buffer = slot.buffer.iter().map(|run| run.meta().clone()).collect();
            SlotImage { lower: slot.lower.to_vec(), buffer, target }
        });
        NodeImage { height: self.height, slots: slots.collect() }
    }

    /// Reads the node stored at `ptr`.
    ///
    /// # Errors
    /// `Corruption` when it is damaged, `Io` when it cannot be read.
    pub fn load(env: &TreeEnv, ptr: BlockPtr) -> Result<Arc<Node>> {
        let image = env
            .store
            .read_with(ptr.offset, ptr.stored as usize, |bytes| {
                NodeImage::decode(&block::open(BlockKind::Node, ptr.offset, bytes)?)
            })
            .map_err(|error| error.context(format!("node in data.frond, offset={}", ptr.offset)))?;
        let slots = image.slots.into_iter().map(|slot| {
            let open = |meta| Run::new(meta, &env.store, &env.cache, &env.run_counters);
            let buffer = slot.buffer.into_iter().map(open).collect();
            let target = match slot.target {
                TargetImage::Leaf(base) => Target::Leaf(base.map(|meta| open(*meta))),
                TargetImage::Node(stored, totals) => {
                    Target::Node(Arc::new(Child { stored, totals, node: OnceLock::new() }))
                }
            };
            Slot::new(&env.options, Arc::from(slot.lower), buffer, target)
        });
        let node = Node::new(&env.budget, image.height, slots.collect());
        node.set_saved(ptr);
        Ok(node)
    }
}

impl Slot {
    /// A slot from its parts.
    pub fn new(tuning: &TreeTuning, lower: Arc<[u8]>, buffer: Vec<Arc<Run>>, target: Target) -> Arc<Slot> {
        Slot::assemble(tuning, lower, buffer, target, None, Rent::default())
    }

    /// This slot with another buffer and target.
    pub(super) fn with(&self, tuning: &TreeTuning, buffer: Vec<Arc<Run>>, target: Target) -> Arc<Slot> {
        let rent = if buffer.len() >= self.buffer.len() { self.rent.continued() } else { Rent::default() };
        Slot::assemble(tuning, self.lower.clone(), buffer, target, self.damaged, rent)
    }

    /// This slot, known to be damaged; `buffer_too`: and so is one of the runs in its buffer.
    pub(super) fn damaged(&self, tuning: &TreeTuning, buffer_too: bool) -> Arc<Slot> {
        let (lower, buffer, target) = (self.lower.clone(), self.buffer.clone(), self.target.clone());
        let left_alone = if buffer_too { buffer.len() } else { self.damaged.unwrap_or_default() };
        Slot::assemble(tuning, lower, buffer, target, Some(left_alone), Rent::default())
    }

    fn assemble(
        tuning: &TreeTuning,
        lower: Arc<[u8]>,
        buffer: Vec<Arc<Run>>,
        target: Target,
        damaged: Option<usize>,
        rent: Rent,
    ) -> Arc<Slot> {
        let mut totals = match &target {
            Target::Leaf(None) => Totals::default(),
            Target::Leaf(Some(base)) => Totals {
                base_rows: base.meta().rows(),
                base_bytes: base.meta().bytes,
                blobs: base.meta().blobs,
                blob_bytes: base.meta().blob_bytes,
                ..Totals::default()
            },
            Target::Node(child) => child.totals,
        };
        let is_damaged = damaged.is_some();
        let below = urgency_below(&target, is_damaged);
        for run in &buffer {
            let meta = run.meta();
            let count = |kind: Kind| meta.kinds[kind as usize];
            totals.add(&Totals {
                pending_puts: count(Kind::Put) + count(Kind::InsertIfAbsent),
                pending_deletes: count(Kind::Delete) + count(Kind::SingleDelete),
                pending_bytes: meta.bytes,
                blobs: meta.blobs,
                blob_bytes: meta.blob_bytes,
                ..Totals::default()
            });
        }
        let own_bytes = bytes_of(&buffer);
        let urgency = match damaged {
            Some(left_alone) if runs_to_gather(tuning, &buffer, &target, left_alone).is_some() => 1.0,
            Some(_) => 0.0,
            None => own_urgency(tuning, &buffer, own_bytes, &target, &totals),
        };
        totals.urgency = urgency.max(below);
        let fill = match &target {
            Target::Leaf(_) if !is_damaged => {
                Some((totals.base_bytes + totals.pending_bytes) as f32 / tuning.leaf_bytes_max as f32)
            }
            _ => None,
        };
        // Asked for by each read that goes through the buffer.
        let relief = rent::relief(tuning, &buffer, own_bytes, &target);
        Arc::new(Slot { lower, buffer, target, totals, urgency, fill, damaged, rent, relief })
    }

    /// The lowest key that belongs to it.
    pub fn lower(&self) -> &Arc<[u8]> {
        &self.lower
    }

    /// Its runs, newest first.
    pub fn buffer(&self) -> &[Arc<Run>] {
        &self.buffer
    }

    /// The runs of its buffer, and its leaf's base.
    pub fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        let base = match &self.target {
            Target::Leaf(base) => base.as_ref(),
            Target::Node(_) => None,
        };
        self.buffer.iter().chain(base)
    }

    /// What it leads to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What lies in its buffer and below.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// How much its own buffer asks for a flush: 1 and above asks, below does not.
    pub fn urgency(&self) -> f32 {
        self.urgency
    }

    /// True when this leaf and the next slot's would make a good leaf together.
    pub fn may_join(&self, next: &Slot) -> bool {
        let (Some(one), Some(other)) = (self.fill, next.fill) else { return false };
        let together = match tree_of(&self.lower) == tree_of(&next.lower) {
            true => JOIN_FILL,
            false => JOIN_FILL_OF_TREES,
        };
        one == 0.0 || other == 0.0 || (one.max(other) <= JOIN_FILL_EACH && one + other <= together)
    }

    /// True for a leaf without runs.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty() && matches!(self.target, Target::Leaf(None))
    }

    /// True when what its own work would read is damaged.
    pub fn is_damaged(&self) -> bool {
        self.damaged.is_some()
    }

    /// How many runs of a damaged slot's buffer are to become one: the newest, when there are too many.
    pub(super) fn runs_to_gather(&self, tuning: &TreeTuning) -> Option<usize> {
        runs_to_gather(tuning, &self.buffer, &self.target, self.damaged?)
    }

    /// What reads have paid for what is in its buffer.
    pub(super) fn rent(&self) -> &Rent {
        &self.rent
    }

    /// What they pay for first.
    pub(super) fn relief(&self) -> &Relief {
        &self.relief
    }

    /// The highest urgency below it.
    pub fn urgency_below(&self) -> f32 {
        urgency_below(&self.target, self.is_damaged())
    }

    /// Bytes that it takes in memory, its runs and its child not included.
    fn memory_bytes(&self) -> usize {
        let child = if matches!(self.target, Target::Node(_)) { size_of::<Child>() } else { 0 };
        size_of::<Slot>() + child + self.lower.len() + self.buffer.capacity() * size_of::<Arc<Run>>() + ALLOCATION_BYTES
    }

    /// Stored bytes in its own buffer.
    pub fn buffer_bytes(&self) -> u64 {
        bytes_of(&self.buffer)
    }
}

fn bytes_of(buffer: &[Arc<Run>]) -> u64 {
    buffer.iter().map(|run| run.meta().bytes).sum()
}

/// How many of the newest runs of a damaged slot's buffer are to become one, if there are too many without the `left_alone`
/// oldest: half of what is too many, and then all that are no larger than those before them together. So what has become large
/// is seldom written again, and what has come to a buffer's size never: nothing cuts runs there, and the filter of one has to fit
/// into an extent.
fn runs_to_gather(tuning: &TreeTuning, buffer: &[Arc<Run>], target: &Target, left_alone: usize) -> Option<usize> {
    let bound = GATHER_PARTS * if matches!(target, Target::Leaf(_)) { tuning.leaf_runs } else { tuning.node_runs };
    let candidates = &buffer[..buffer.len().saturating_sub(left_alone)];
    let runs = candidates.iter().take_while(|run| run.meta().bytes < tuning.node_buffer_bytes).count();
    if runs <= bound {
        return None;
    }
    let mut count = (bound / 2).max(2);
    let mut bytes = bytes_of(&buffer[..count]);
    while count < runs && buffer[count].meta().bytes <= bytes {
        bytes += buffer[count].meta().bytes;
        count += 1;
    }
    Some(count)
}

/// The highest urgency below `target`. Nothing can be done below a node that cannot be read.
fn urgency_below(target: &Target, is_damaged: bool) -> f32 {
    match target {
        Target::Leaf(_) => 0.0,
        Target::Node(child) if is_damaged && child.loaded().is_none() => 0.0,
        Target::Node(child) => child.totals.urgency,
    }
}

/// Urgency that says of work that it falls behind.
const BEHIND: f32 = 3.0;
/// Bytes bring a leaf above this part of it only where they would be too much for the buffer of a node as well.
const LEAF_BEHIND_MIN: f32 = 0.9;

/// What a large value takes in a run, with its head, about.
const REFERENCE_BYTES: u64 = 4 << 10;

fn own_urgency(tuning: &TreeTuning, buffer: &[Arc<Run>], bytes: u64, target: &Target, totals: &Totals) -> f32 {
    if buffer.is_empty() {
        return 0.0;
    }
    let ratio = |part: u64, whole: u64| part as f32 / whole.max(1) as f32;
    let by_size = match target {
        Target::Leaf(_) => {
            let base = (totals.base_bytes as f32 * tuning.leaf_pending_ratio) as u64;
            // Much that comes at once to a small leaf, the last one of ascending keys say, is one piece of work like any other.
            let behind = BEHIND * ratio(bytes, tuning.node_buffer_bytes).max(LEAF_BEHIND_MIN);
            ratio(buffer.len() as u64, tuning.leaf_runs as u64)
                .max(ratio(bytes, base.max(tuning.leaf_pending_bytes_min)).min(behind))
        }
        Target::Node(_) => {
            ratio(buffer.len() as u64, tuning.node_runs as u64).max(ratio(bytes, tuning.node_buffer_bytes))
        }
    };
    // Deletes make readers pass over what they delete: they go down before their bytes would ask for it.
    let deletes: u64 = buffer
        .iter()
        .map(|run| run.meta().kinds[Kind::Delete as usize] + run.meta().kinds[Kind::SingleDelete as usize])
        .sum();
    let by_deletes = if deletes >= 1000 { ratio(2 * deletes, totals.base_rows.max(1000)).min(2.0) } else { 0.0 };
    // What large values take is in no run's bytes. Those that are written over or deleted lie there until the message that does it meets theirs.
    let pending: u64 = buffer.iter().map(|run| run.meta().blobs).sum();
    let below = totals.blobs - pending;
    let over = pending + if 2 * below > totals.base_rows { deletes } else { 0 };
    let least = (tuning.leaf_pending_bytes_min / REFERENCE_BYTES).max(1);
    let by_blobs = if over >= least { ratio(2 * over, below.max(2 * least)).min(2.0) } else { 0.0 };
    // A range-delete gives space back only when it meets what it deletes.
    let by_ranges = if buffer.iter().any(|run| run.meta().range_deletes > 0) { 1.2 } else { 0.0 };
    by_size.max(by_deletes).max(by_blobs).max(by_ranges)
}

impl Target {
    /// A child that is in memory and perhaps not saved yet.
    pub fn node(node: Arc<Node>) -> Target {
        let totals = *node.totals();
        let cell = OnceLock::new();
        let _ = cell.set(node);
        Target::Node(Arc::new(Child { stored: BlockPtr::NONE, totals, node: cell }))
    }
}

impl Child {
    /// The node, loaded if it was not. Several may load it at once, and only what the first of them puts in its place is used (N6).
    ///
    /// # Errors
    /// Those of [`Node::load`], if nobody else has loaded it meanwhile.
    pub fn load(&self, env: &TreeEnv) -> Result<&Arc<Node>> {
        if let Some(node) = self.node.get() {
            return Ok(node);
        }
        match Node::load(env, self.stored) {
            Ok(node) => Ok(self.node.get_or_init(|| node)),
            // What was read may no longer have been the node.
            Err(error) => self.node.get().ok_or(error),
        }
    }

    /// The node, if it is in memory.
    pub fn loaded(&self) -> Option<&Arc<Node>> {
        self.node.get()
    }

    /// Where it is stored; [`BlockPtr::NONE`] if it is not.
    pub fn ptr(&self) -> BlockPtr {
        if self.stored.is_none() {
            self.node.get().and_then(|node| node.saved()).unwrap_or_default()
        } else {
            self.stored
        }
    }

    /// What lies in and below it.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }
}

/// The extent of a node stored at `ptr`: nodes begin at a page and own their pages.
pub fn node_extent(ptr: BlockPtr) -> Extent {
    debug_assert_eq!(ptr.offset % PAGE_BYTES, 0, "nodes begin at a page");
    Extent { start: ptr.offset / PAGE_BYTES, pages: u64::from(ptr.stored).div_ceil(PAGE_BYTES) as u32 }
}
