//! Publication: makes the present root durable and tells the store which space it stands for.
//!
//! The nodes that changed since the last publication are written children first, then the store writes its
//! own map and the superblock. What the store must know (space that is referenced from now on, space that
//! no longer is) is the difference between the last published root and this one. Both roots share every
//! node that did not change, so the work is proportional to the change:
//!
//! - nodes of the new root that are not saved are new; the saved nodes that they lead to are *shared*;
//! - nodes of the old root that are not shared (nor below shared ones) have gone;
//! - the runs in new nodes less those in gone nodes were added. What was removed is known from the
//!   installations, because runs may come and go between two publications.
//!
//! Invariants:
//! - U1: while a publication runs it holds the version that it captured, so nothing that this version
//!   refers to is released before the superblock stands.
//! - U2: nodes count as saved only after the superblock stands; a failed publication has no effect.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::node::{Child, Node, Target, node_extent};
use super::{BeTree, TreeEnv, Version, extents_of};
use crate::base::compress::{Codec, Compressor};
use crate::base::{BlockPtr, CommitNumber, Extent, Lsn, Result, RunId, TxnId};
use crate::format::SuperblockBody;
use crate::format::block::{self, BlockKind};
use crate::run::Run;
use crate::store::{Publication, SpaceChanges};

/// What the database layer adds to a publication.
#[derive(Debug, Clone)]
pub struct PublishInput {
    /// States of transactions, opaque here.
    pub status_image: Vec<u8>,
    /// Where replay begins: the first position of the oldest memtable that is not in the root.
    pub log_start: Lsn,
    /// The log is durable up to here before the superblock is written; 0: not known.
    pub log_end: Lsn,
    /// Next transaction id.
    pub next_txn: TxnId,
    /// Next commit number.
    pub next_commit: CommitNumber,
    /// Opaque to tree and store.
    pub extra: Vec<u8>,
}

/// A publication that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Its generation.
    pub generation: u64,
    /// Where replay begins if the machine stops now.
    pub log_start: Lsn,
}

/// The root that the newest superblock refers to.
#[derive(Debug)]
pub(super) struct LastPublished {
    root: Option<Arc<Node>>,
}

impl LastPublished {
    pub(super) fn new(root: Option<Arc<Node>>) -> LastPublished {
        LastPublished { root }
    }
}

#[derive(Debug, Default)]
struct Difference {
    /// New nodes, children before parents.
    new_nodes: Vec<Arc<Node>>,
    /// Addresses of saved nodes that new nodes lead to.
    shared: HashSet<u64>,
    gone_nodes: Vec<BlockPtr>,
    new_runs: HashMap<RunId, Arc<Run>>,
    old_runs: HashSet<RunId>,
}

impl Difference {
    fn between(env: &TreeEnv, old: Option<&Arc<Node>>, new: &Arc<Node>) -> Result<Difference> {
        let mut difference = Difference::default();
        difference.collect_new(new);
        if let Some(old) = old {
            difference.collect_gone(env, old)?;
        }
        let Difference { new_runs, old_runs, .. } = &mut difference;
        new_runs.retain(|id, _| !old_runs.contains(id));
        Ok(difference)
    }

    fn collect_new(&mut self, node: &Arc<Node>) {
        if let Some(ptr) = node.saved() {
            self.shared.insert(ptr.offset);
            return;
        }
        for slot in node.slots() {
            self.new_runs.extend(slot.runs().map(|run| (run.meta().id, run.clone())));
            if let Target::Node(child) = slot.target() {
                let ptr = child.ptr();
                match child.loaded() {
                    Some(child) if ptr.is_none() => self.collect_new(child),
                    _ => {
                        self.shared.insert(ptr.offset);
                    }
                }
            }
        }
        self.new_nodes.push(node.clone());
    }

    fn collect_gone(&mut self, env: &TreeEnv, node: &Arc<Node>) -> Result<()> {
        let Some(ptr) = node.saved().filter(|ptr| !self.shared.contains(&ptr.offset)) else { return Ok(()) };
        self.gone_nodes.push(ptr);
        for slot in node.slots() {
            self.old_runs.extend(slot.runs().map(|run| run.meta().id));
            if let Target::Node(child) = slot.target()
                && !self.shared.contains(&child.ptr().offset)
            {
                self.collect_gone(env, child.load(env)?)?;
            }
        }
        Ok(())
    }
}

/// What a publication takes out of the shared state, to be put back if it fails.
struct Captured {
    version: Arc<Version>,
    input: PublishInput,
    blobs_added: Vec<Extent>,
    removed: Vec<Extent>,
}

impl BeTree {
    /// Makes the present root durable. `input` is called once, when the root is captured: no installation
    /// happens meanwhile, so what it reads of the transactions is at least as new as the root.
    ///
    /// # Errors
    /// `NoSpace` and `Io` before the superblock is written (nothing changed, try again); `Poisoned` after
    /// a failed sync; `Internal` after a panic of another thread that published; what `ready` says, and then nothing changed either.
    ///
    /// `ready` is called before the superblock is written: it makes durable what the input relies on.
    pub fn publish(
        &self,
        input: impl FnOnce(&Version) -> PublishInput,
        ready: impl FnOnce() -> Result<()>,
    ) -> Result<Published> {
        let mut last = self.publishing.lock()?;
        let captured = {
            let mut state = self.state.lock();
            let version = self.version.load_full();
            let input = input(&version);
            Captured {
                version,
                input,
                blobs_added: std::mem::take(&mut state.blobs_added),
                removed: std::mem::take(&mut state.removed),
            }
        };
        match self.publish_captured(&last, &captured, ready) {
            Ok(published) => {
                last.root = Some(captured.version.root.clone());
                drop(captured);
                self.release_most();
                Ok(published)
            }
            Err(error) => {
                let mut state = self.state.lock();
                state.blobs_added.extend(captured.blobs_added);
                state.removed.extend(captured.removed);
                Err(error)
            }
        }
    }

    fn publish_captured(
        &self,
        last: &LastPublished,
        captured: &Captured,
        ready: impl FnOnce() -> Result<()>,
    ) -> Result<Published> {
        let root = &captured.version.root;
        let difference = Difference::between(&self.env, last.root.as_ref(), root)?;
        let mut publication = self.env.store.begin_publication()?;
        let mut places: HashMap<*const Node, BlockPtr> = HashMap::new();
        let mut compressor = Compressor::new();
        for node in &difference.new_nodes {
            let ptr_of = |child: &Child| match child.loaded() {
                Some(node) if child.ptr().is_none() => places.get(&Arc::as_ptr(node)).copied().unwrap_or_default(),
                _ => child.ptr(),
            };
            let ptr = write_node(&mut publication, &mut compressor, node, &ptr_of)?;
            places.insert(Arc::as_ptr(node), ptr);
        }
        let root_ptr = places.get(&Arc::as_ptr(root)).copied().or(root.saved());
        let gone_nodes: Vec<Extent> = difference.gone_nodes.iter().map(|ptr| node_extent(*ptr)).collect();
        let mut added = extents_of(difference.new_runs.values());
        added.extend(&captured.blobs_added);
        let removed = captured.removed.iter().chain(&gone_nodes).copied().collect();
        let status = publication.write_image(&captured.input.status_image)?;
        let input = &captured.input;
        let body = SuperblockBody {
            root: root_ptr,
            height: u32::from(root.height()),
            status,
            log_start: input.log_start,
            log_end: input.log_end,
            oldest_memtable: captured.version.sealed.last().map_or(captured.version.active.id(), |oldest| oldest.id()),
            next_run: RunId(self.env.run_ids.load(std::sync::atomic::Ordering::Relaxed)),
            next_txn: input.next_txn,
            next_commit: input.next_commit,
            extra: input.extra.clone(),
        };
        ready()?;
        let superblock = publication.commit(&SpaceChanges { added, removed }, body)?;
        for node in &difference.new_nodes {
            if let Some(ptr) = places.get(&Arc::as_ptr(node)) {
                node.set_saved(*ptr);
            }
        }
        // All of them are in memory: no reader begins to read their stored form any more, and one that has begun does without (N6).
        self.env.store.release(&gone_nodes);
        Ok(Published { generation: superblock.generation, log_start: input.log_start })
    }
}

fn write_node(
    publication: &mut Publication<'_>,
    compressor: &mut Compressor,
    node: &Node,
    ptr_of: &dyn Fn(&Child) -> BlockPtr,
) -> Result<BlockPtr> {
    let mut raw = Vec::new();
    node.image(ptr_of).encode(&mut raw);
    let mut sealed = Vec::new();
    block::seal_unplaced(BlockKind::Node, Codec::default(), &raw, compressor, &mut sealed)?;
    publication.write_block(&mut sealed, raw.len() + block::HEADER_BYTES, block::place)
}
