//! Compacting a range of keys on request: all that is pending in it goes down to the leaves, and leaves that hold
//! anything but one settled message per row are written again.
//!
//! It is one pass in the order of keys. At each leaf range the path from the root is made empty of what was written before the
//! pass began, top down, then the leaf is looked at; then the pass goes on behind the leaf. Messages that arrive
//! meanwhile do not keep it from ending: a run is moved on only when it holds something from before the beginning. Every
//! piece of work is an ordinary job under an ordinary reservation, so readers, writers and other jobs go on.
//!
//! After it, the count of rows that leaves and buffers give is exact for what was there when it began, unless an older
//! snapshot or an open transaction keeps versions alive.

use std::sync::Arc;

use super::BeTree;
use super::node::{Node, Slot, Target};
use super::plan::{self, Job};
use crate::base::Result;
use crate::format::message::Kind;
use crate::format::visibility::Retention;
use crate::run::Run;

/// A pass over a range of inner keys.
#[derive(Debug)]
pub struct CompactPass {
    /// Where it is.
    at: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// Messages up to this sequence number are its business.
    seq_max: u64,
    /// Runs from this number on are newer than the pass: their leaves are done.
    run_min: u64,
    /// Stored bytes of the leaves behind it.
    bytes_done: u64,
}

/// What a step of a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactStep {
    /// It moved messages or wrote a leaf, or went on to the next leaf.
    Worked,
    /// Another job is in the way: try again after it.
    Busy,
    /// The pass is over.
    Done,
}

impl CompactPass {
    /// Stored bytes of the leaves that it has passed.
    pub fn bytes_done(&self) -> u64 {
        self.bytes_done
    }

    /// Where it is.
    pub fn position(&self) -> &[u8] {
        &self.at
    }

    /// True when `run` holds something from before the pass.
    fn concerns(&self, run: &Run) -> bool {
        run.meta().id.0 < self.run_min || run.meta().min_seq <= self.seq_max
    }

    /// True for a leaf whose base is older than the pass and has something that a compaction may drop.
    fn is_unclean(&self, slot: &Slot) -> bool {
        let Target::Leaf(Some(base)) = slot.target() else { return false };
        let meta = base.meta();
        let only_puts = meta.kinds[Kind::Put as usize] == meta.messages && meta.range_deletes == 0;
        meta.id.0 < self.run_min && !(only_puts && meta.is_settled())
    }
}

/// What is to be done at one place.
enum Next {
    Job(Box<Job>),
    Busy,
    /// Nothing: go on from this key, if there is one.
    Leaf(Option<Vec<u8>>, u64),
}

impl BeTree {
    /// A pass over the inner keys in `[lower, upper)` (`None`: no upper bound), for messages up to `seq_max`.
    pub fn compact_pass(&self, lower: Vec<u8>, upper: Option<Vec<u8>>, seq_max: u64) -> CompactPass {
        let run_min = self.env.run_ids.load(std::sync::atomic::Ordering::Relaxed);
        CompactPass { at: lower, upper, seq_max, run_min, bytes_done: 0 }
    }

    /// Does the next piece of a pass.
    ///
    /// # Errors
    /// Those of reading and writing runs and nodes. The pass may be continued.
    pub fn compact_step(&self, retention: &Retention<'_>, pass: &mut CompactPass) -> Result<CompactStep> {
        let next = {
            let mut state = self.state.lock();
            let root = self.version.load().root.clone();
            self.next_of(&mut state.reservations, &root, pass)?
        };
        match next {
            Next::Busy => Ok(CompactStep::Busy),
            Next::Job(job) => {
                self.do_job(retention, &job)?;
                Ok(CompactStep::Worked)
            }
            Next::Leaf(upper, bytes) => {
                pass.bytes_done += bytes;
                let inside = |next: &Vec<u8>| pass.upper.as_ref().is_none_or(|upper| next < upper);
                match upper.filter(inside) {
                    Some(next) => {
                        pass.at = next;
                        Ok(CompactStep::Worked)
                    }
                    None => Ok(CompactStep::Done),
                }
            }
        }
    }

    /// The highest slot on the path of the pass with something to move, or what the leaf needs.
    fn next_of(&self, reservations: &mut plan::Reservations, root: &Arc<Node>, pass: &CompactPass) -> Result<Next> {
        let env = &self.env;
        let mut node = root.clone();
        let mut upper: Option<Vec<u8>> = None;
        loop {
            let index = node.find(&pass.at);
            let slot = node.slots()[index].clone();
            let slot_upper = node.upper(index, upper.as_deref()).map(<[u8]>::to_vec);
            let pending = slot.buffer().iter().any(|run| pass.concerns(run));
            if pending || pass.is_unclean(&slot) {
                let job = plan::reserve(env, reservations, node.height(), &slot, slot_upper.as_deref())?;
                return Ok(job.map_or(Next::Busy, |job| Next::Job(Box::new(job))));
            }
            match slot.target() {
                Target::Leaf(base) => {
                    let next = node.slots().get(index + 1).filter(|next| slot.may_join(next));
                    let join = next.and_then(|next| {
                        let upper = node.upper(index + 1, upper.as_deref());
                        plan::reserve_join(reservations, node.height(), &slot, next, upper)
                    });
                    if let Some(job) = join {
                        return Ok(Next::Job(Box::new(job)));
                    }
                    return Ok(Next::Leaf(slot_upper, base.as_ref().map_or(0, |base| base.meta().bytes)));
                }
                Target::Node(child) => {
                    let child = child.load(env)?.clone();
                    (node, upper) = (child, slot_upper);
                }
            }
        }
    }
}
