//! Checks every invariant of a stored tree, and finds what is damaged without stopping at it.

use std::sync::Arc;

use super::compact::blob_ref;
use super::node::{Node, Slot, Target, node_extent};
use super::{BeTree, TreeEnv};
use crate::base::{Error, Extent, Result, TreeId, key};
use crate::run::{CursorMode, Run, read_blob};

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
    /// What is wrong.
    pub problems: Vec<Problem>,
}

struct Walk<'a> {
    env: &'a TreeEnv,
    report: VerifyReport,
    progress: &'a mut dyn FnMut(&VerifyReport),
}

impl BeTree {
    /// Reads and checks everything that the present root refers to. `progress` is called now and then.
    pub fn verify(&self, progress: &mut dyn FnMut(&VerifyReport)) -> VerifyReport {
        let root = self.version().root.clone();
        let mut walk = Walk { env: &self.env, report: VerifyReport::default(), progress };
        walk.node(&root, &[], None);
        walk.report
    }
}

impl Walk<'_> {
    fn problem(&mut self, lower: &[u8], upper: Option<&[u8]>, extent: Option<Extent>, error: Error) {
        let tree = key::tree_of(lower);
        let tree_last = upper.map_or(TreeId(u32::MAX), key::tree_of);
        self.report.problems.push(Problem { tree, tree_last, extent, error });
    }

    fn node(&mut self, node: &Arc<Node>, lower: &[u8], upper: Option<&[u8]>) {
        self.report.nodes += 1;
        self.report.extents.extend(node.saved().map(node_extent));
        let first = node.slots()[0].lower();
        if first.as_ref() != lower {
            let error = Error::corruption(format!("N1: node begins at {first:02x?} and its slot at {lower:02x?}"));
            self.problem(lower, upper, None, error);
        }
        for (index, slot) in node.slots().iter().enumerate() {
            let slot_upper = node.upper(index, upper).map(<[u8]>::to_vec);
            self.slot(node.height(), slot, slot_upper.as_deref());
        }
    }

    fn slot(&mut self, height: u8, slot: &Slot, upper: Option<&[u8]>) {
        let lower = slot.lower().clone();
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
                    self.problem(&lower, upper, Some(node_extent(child.ptr())), error);
                }
                Err(error) => self.problem(&lower, upper, Some(node_extent(child.ptr())), error),
            },
        }
    }

    fn run(&mut self, run: &Arc<Run>, lower: &[u8], upper: Option<&[u8]>) {
        let meta = run.meta();
        self.report.runs += 1;
        self.report.messages += meta.messages;
        self.report.extents.extend(&meta.extents);
        let outside = meta.messages > 0
            && (meta.first_key.as_slice() < lower || upper.is_some_and(|upper| meta.last_key.as_slice() >= upper));
        let extent = meta.extents.first().copied();
        if outside {
            let error = Error::corruption(format!("N2: run {} leaves its slot", meta.id));
            self.problem(lower, upper, extent, error);
        }
        let checked = run.verify().and_then(|()| if meta.blobs > 0 { self.blobs(run) } else { Ok(()) });
        if let Err(error) = checked {
            self.problem(&meta.first_key, Some(&meta.last_key), extent, error);
        }
        (self.progress)(&self.report);
    }

    /// Reads every blob of a run; damage in one does not hide the next.
    fn blobs(&mut self, run: &Arc<Run>) -> Result<()> {
        let mut cursor = run.cursor(CursorMode { fill_cache: false, ..CursorMode::default() });
        let mut more = cursor.first()?;
        while more {
            let message = cursor.message();
            if message.blob {
                let blob = blob_ref(message.payload)?;
                self.report.extents.extend(&blob.extents);
                if let Err(error) = read_blob(&self.env.store, &blob) {
                    self.problem(message.key, Some(message.key), blob.extents.first().copied(), error);
                }
            }
            more = cursor.next()?;
        }
        Ok(())
    }
}
