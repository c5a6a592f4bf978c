//! Checks every invariant of a stored tree, and finds what is damaged without stopping at it.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::compact::blob_ref;
use super::node::{Node, Slot, Target, node_extent};
use super::{BeTree, TreeEnv, Version};
use crate::base::{CommitNumber, Error, Extent, Result, TreeId, key};
use crate::format::{Message, RangeDelete, Uncommitted, View};
use crate::run::{CursorMode, Flaw, Run, RunVisitor, read_blob};

/// Something wrong with a part of the tree.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The tree that the damaged part belongs to, as far as its place in the key space says.
    pub tree: TreeId,
    /// The last tree that it may belong to.
    pub tree_last: TreeId,
    /// The damaged extent, if one can be named.
    pub extent: Option<Extent>,
    /// What is wrong, with file and offset.
    pub error: Error,
}

/// What a walk found.
#[derive(Debug, Clone, Default)]
pub struct VerifyReport {
    /// Nodes read.
    pub nodes: u64,
    /// Runs read.
    pub runs: u64,
    /// Messages read.
    pub messages: u64,
    /// Extents that the tree refers to: runs, nodes, blobs. Complete only without problems.
    pub extents: Vec<Extent>,
    /// Their length.
    pub bytes: u64,
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// It was ended before its end.
    pub ended: bool,
}

/// Told of what a walk has found so far; breaks to end it.
pub type VerifyCallback<'a> = &'a mut dyn FnMut(&VerifyReport) -> ControlFlow<()>;

struct Walk<'a> {
    env: &'a TreeEnv,
    report: VerifyReport,
    progress: VerifyCallback<'a>,
    /// The range-deletes of the buffers above, and of the newer runs of the one that it is in.
    above: Vec<RangeDelete>,
}

impl BeTree {
    /// Reads and checks everything that the present version refers to: what lies under its root, and the large values of
    /// level 0, which are all of it that is stored. `progress` is called first, and
    /// now and then.
    pub fn verify(&self, progress: VerifyCallback<'_>) -> VerifyReport {
        // Held to the end: what it refers to is not used again meanwhile.
        let version = self.version();
        let mut walk = Walk { env: &self.env, report: VerifyReport::default(), progress, above: Vec::new() };
        walk.tell();
        walk.level0(&version);
        walk.node(&version.root, &[], None);
        walk.report
    }
}

/// The trees that have keys from `lower` up to `upper`.
pub(super) fn trees_in(lower: &[u8], upper: Option<&[u8]>) -> (TreeId, TreeId) {
    let first = key::tree_of(lower);
    (first, first.max(upper.map_or(TreeId(u32::MAX), key::tree_below)))
}

/// A walk that is at a run.
struct AtRun<'w, 'a> {
    walk: &'w mut Walk<'a>,
    extent: Option<Extent>,
    /// The trees of its slot.
    trees: (TreeId, TreeId),
}

impl RunVisitor for AtRun<'_, '_> {
    fn flaw(&mut self, flaw: Flaw) {
        self.walk.problem(flaw.trees.unwrap_or(self.trees), self.extent, flaw.error);
    }

    fn blob(&mut self, message: &Message<'_>) {
        if let Some(extents) = self.walk.blob(message) {
            self.walk.add_extents(&extents);
            self.walk.tell();
        }
    }
}

impl Walk<'_> {
    fn tell(&mut self) {
        self.report.ended = self.report.ended || (self.progress)(&self.report).is_break();
    }

    fn add_extents(&mut self, extents: &[Extent]) {
        self.report.bytes += extents.iter().map(|extent| extent.bytes()).sum::<u64>();
        self.report.extents.extend(extents);
    }

    fn problem(&mut self, (tree, tree_last): (TreeId, TreeId), extent: Option<Extent>, error: Error) {
        self.report.problems.push(Problem { tree, tree_last, extent, error });
    }

    /// Reads the large values of level 0, but for those of aborted transactions: they need not have reached the file. The
    /// stored map of space does not know of any.
    fn level0(&mut self, version: &Version) {
        let statuses = self.env.statuses.clone();
        let view =
            View { snapshot: CommitNumber::LATEST, own: None, uncommitted: Uncommitted::Seen, statuses: &*statuses };
        for level0 in version.level0() {
            let mut cursor = level0.cursor();
            cursor.first();
            while let Some(message) = cursor.get() {
                if message.blob && view.sees(message.stamp, false) {
                    self.blob(&message);
                    self.tell();
                }
                if self.report.ended {
                    return;
                }
                cursor.next();
            }
        }
    }

    fn node(&mut self, node: &Arc<Node>, lower: &[u8], upper: Option<&[u8]>) {
        self.report.nodes += 1;
        self.add_extents(node.saved().map(node_extent).as_slice());
        let first = node.slots()[0].lower();
        if first.as_ref() != lower {
            let error = Error::corruption(format!("N1: node begins at {first:02x?} and its slot at {lower:02x?}"));
            self.problem(trees_in(lower, upper), None, error);
        }
        for (index, slot) in node.slots().iter().enumerate() {
            let slot_upper = node.upper(index, upper).map(<[u8]>::to_vec);
            self.slot(node.height(), slot, slot_upper.as_deref());
        }
    }

    fn slot(&mut self, height: u8, slot: &Slot, upper: Option<&[u8]>) {
        if self.report.ended {
            return;
        }
        let lower = slot.lower().clone();
        let trees = trees_in(&lower, upper);
        let above = self.above.len();
        for run in slot.buffer() {
            self.run(run, &lower, upper);
        }
        match slot.target() {
            Target::Leaf(base) => base.iter().for_each(|base| self.run(base, &lower, upper)),
            Target::Node(child) => match child.load(self.env) {
                Ok(node) if node.height() + 1 == height => self.node(node, &lower, upper),
                Ok(node) => {
                    let error = Error::corruption(format!(
                        "node has the wrong height, height={} parent={height}",
                        node.height()
                    ));
                    self.problem(trees, Some(node_extent(child.ptr())), error);
                }
                Err(error) => self.problem(trees, Some(node_extent(child.ptr())), error),
            },
        }
        self.above.truncate(above);
    }

    /// Reads a run with its large values; damage hides neither what comes after it nor them.
    fn run(&mut self, run: &Arc<Run>, lower: &[u8], upper: Option<&[u8]>) {
        if self.report.ended {
            return;
        }
        let meta = run.meta();
        self.report.runs += 1;
        self.report.messages += meta.messages;
        self.add_extents(&meta.extents);
        let outside = meta.messages > 0
            && (meta.first_key.as_slice() < lower || upper.is_some_and(|upper| meta.last_key.as_slice() >= upper));
        let (extent, trees) = (meta.extents.first().copied(), trees_in(lower, upper));
        // Those that cannot be read are told of below.
        let leaves = |start: &[u8], end: &[u8]| start < lower || upper.is_some_and(|upper| end > upper);
        let ranges = if meta.range_deletes > 0 { run.range_deletes().ok() } else { None };
        let ranges = ranges.iter().flat_map(|ranges| ranges.iter());
        if outside || ranges.clone().any(|range| leaves(&range.start, &range.end)) {
            let error = Error::corruption(format!("N2: run {} leaves its slot", meta.id));
            self.problem(trees, extent, error);
        }
        run.inspect(&mut AtRun { walk: self, extent, trees });
        if let Ok(Some((key, range))) = self.newer_than_above(run) {
            let error = Error::corruption(format!(
                "N5: run {} holds what is newer than a range-delete above, key={key:02x?} range={range}",
                meta.id
            ));
            self.problem(trees, extent, error);
        }
        self.above.extend(ranges.cloned());
        self.tell();
    }

    /// A key that a range-delete above covers though its message is newer by its sequence number, and that of the
    /// range-delete. What cannot be read has been told of.
    fn newer_than_above(&self, run: &Arc<Run>) -> Result<Option<(Vec<u8>, u64)>> {
        let mode = CursorMode { fill_cache: false, asks_ahead: false, ..CursorMode::default() };
        for range in self.above.iter().filter(|range| range.seq <= run.meta().max_seq) {
            let mut cursor = run.cursor(mode);
            let mut is_there = cursor.seek(&range.start)?;
            while is_there && cursor.key() < range.end.as_slice() {
                if cursor.message().seq >= range.seq {
                    return Ok(Some((cursor.key().to_vec(), range.seq)));
                }
                is_there = cursor.next()?;
            }
        }
        Ok(None)
    }

    /// Reads a large value and gives its extents.
    fn blob(&mut self, message: &Message<'_>) -> Option<Vec<Extent>> {
        if self.report.ended {
            return None;
        }
        let tree = key::tree_of(message.key);
        let blob = blob_ref(message.payload).map_err(|error| self.problem((tree, tree), None, error)).ok()?;
        if let Err(error) = read_blob(&self.env.store, &blob) {
            self.problem((tree, tree), blob.extents.first().copied(), error);
        }
        Some(blob.extents)
    }
}
