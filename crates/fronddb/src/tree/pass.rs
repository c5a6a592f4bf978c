//! Compacting in the order of keys, for one of two ends.
//!
//! *On request* ([`BeTree::compact_pass`]): all that is pending in a range goes down to the leaves, and leaves that hold anything but
//! one settled message per row, or a filter of which somebody found that it cannot be read, are written again.
//!
//! *For what was left over* ([`BeTree::leftovers_pass`]): a leaf without anything pending asks for no work, whatever lies in
//! it. When it was written last, an older snapshot may have needed old versions, deletes and what a range-delete covers, and
//! transactions may have been open that were rolled back since. Such leaves are written again when that is over, and
//! messages of transactions that were rolled back are moved on wherever they are. Nodes that are not in memory are left alone.
//!
//! It is one pass in the order of keys. At each leaf range the path from the root is made empty of what was written before the
//! pass began, top down, then the leaf is looked at; then the pass goes on behind the leaf. Messages that arrive
//! meanwhile do not keep it from ending: a run is moved on only when it is made of something from before the beginning, and what it becomes
//! lies lower. Every piece of work is an ordinary job under an ordinary reservation, so readers, writers and other jobs go on.
//!
//! After it, the count of rows that leaves and buffers give is exact for what was there when it began, unless an older
//! snapshot or an open transaction keeps versions alive.

use std::sync::Arc;

use super::BeTree;
use super::node::{Node, Slot, Target};
use super::plan::{self, Job, Planned};
use crate::base::{Result, TxnId};
use crate::format::message::Kind;
use crate::format::visibility::{Retention, Status};
use crate::run::Run;

/// A pass over a range of inner keys.
#[derive(Debug)]
pub struct CompactPass {
    /// Where it is.
    at: Vec<u8>,
    upper: Option<Vec<u8>>,
    business: Business,
    /// Runs from this number on are newer than the pass: their leaves are done.
    run_min: u64,
    /// Stored bytes of the leaves behind it.
    bytes_done: u64,
}

/// What a pass is for.
#[derive(Debug)]
enum Business {
    /// All messages up to this sequence number.
    All { seq_max: u64 },
    /// What was left over, also of these transactions, of which something was rolled back; ascending.
    Leftovers { aborted: Vec<TxnId> },
}

/// A leaf of which this part would be dropped is worth writing again.
const LEFTOVERS_PART: u64 = 16;
/// Leaves that a step for what was left over looks at.
const LOOKS: usize = 256;

/// What a step of a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactStep {
    /// It moved messages or wrote a leaf.
    Worked,
    /// It went on to another leaf.
    Passed,
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

    /// True when a run of a buffer has to be moved on. Where runs are merged, messages lose their own sequence numbers, but the lowest one of
    /// the runs stays known.
    fn concerns(&self, run: &Run) -> bool {
        match &self.business {
            Business::All { seq_max } => run.meta().id.0 < self.run_min || run.meta().min_seq <= *seq_max,
            Business::Leftovers { aborted } => run.meta().id.0 < self.run_min && lists_any(run, aborted),
        }
    }

    /// True for a leaf whose base is older than the pass and has something that a compaction may drop, or mend.
    fn is_unclean(&self, retention: &Retention<'_>, slot: &Slot) -> bool {
        let Target::Leaf(Some(base)) = slot.target() else { return false };
        let meta = base.meta();
        if meta.id.0 >= self.run_min || slot.is_damaged() {
            return false;
        }
        match &self.business {
            Business::All { .. } => {
                let only_puts = meta.kinds[Kind::Put as usize] == meta.messages && meta.range_deletes == 0;
                !(only_puts && meta.is_settled()) || base.lacks_filter()
            }
            Business::Leftovers { aborted } => {
                let worth_it = base.leftovers() > 0 && base.leftovers() >= meta.messages / LEFTOVERS_PART;
                lists_any(base, aborted) || (worth_it && is_over(retention, base))
            }
        }
    }
}

fn lists_any(run: &Run, txns: &[TxnId]) -> bool {
    !txns.is_empty() && run.meta().unresolved.iter().any(|txn| txns.binary_search(txn).is_ok())
}

/// True when all that a run holds is settled, although that was not so when it was written.
fn is_over(retention: &Retention<'_>, run: &Run) -> bool {
    let horizon = retention.horizon();
    // No step has this number: what is asked for is the state of the whole.
    let is_settled = |txn: &TxnId| match retention.statuses.status(*txn, u32::MAX) {
        Status::Committed(number) => number <= horizon,
        Status::Aborted => true,
        Status::Active => false,
    };
    !run.meta().is_settled() && run.meta().newest_commit <= horizon && run.meta().unresolved.iter().all(is_settled)
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
        CompactPass { at: lower, upper, business: Business::All { seq_max }, run_min, bytes_done: 0 }
    }

    /// A pass for what was left over, also of transactions of which something was rolled back (ascending).
    pub fn leftovers_pass(&self, aborted: Vec<TxnId>) -> CompactPass {
        CompactPass { business: Business::Leftovers { aborted }, ..self.compact_pass(Vec::new(), None, 0) }
    }

    /// Does the next piece of a pass.
    ///
    /// # Errors
    /// Those of reading and writing runs and nodes. The pass may be continued.
    pub fn compact_step(&self, retention: &Retention<'_>, pass: &mut CompactPass) -> Result<CompactStep> {
        let looks = if matches!(pass.business, Business::All { .. }) { 1 } else { LOOKS };
        for _ in 0..looks {
            let next = self.planned(&mut |state, root| self.next_of(retention, &mut state.reservations, root, pass))?;
            match next {
                Next::Busy => return Ok(CompactStep::Busy),
                Next::Job(job) => {
                    self.do_job(retention, &job)?;
                    return Ok(CompactStep::Worked);
                }
                Next::Leaf(upper, bytes) => {
                    pass.bytes_done += bytes;
                    let inside = |next: &Vec<u8>| pass.upper.as_ref().is_none_or(|upper| next < upper);
                    let Some(next) = upper.filter(inside) else { return Ok(CompactStep::Done) };
                    pass.at = next;
                }
            }
        }
        Ok(CompactStep::Passed)
    }

    /// The highest slot on the path of the pass with something to move, or what the leaf needs.
    fn next_of(
        &self,
        retention: &Retention<'_>,
        reservations: &mut plan::Reservations,
        root: &Arc<Node>,
        pass: &CompactPass,
    ) -> Planned<Next> {
        let env = &self.env;
        let mut node = root.clone();
        let mut upper: Option<Vec<u8>> = None;
        loop {
            let index = node.find(&pass.at);
            let slot = node.slots()[index].clone();
            let slot_upper = node.upper(index, upper.as_deref()).map(<[u8]>::to_vec);
            let pending = slot.buffer().iter().any(|run| pass.concerns(run));
            if pending || pass.is_unclean(retention, &slot) {
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
                    let child = match (&pass.business, child.loaded()) {
                        (_, Some(child)) => child.clone(),
                        (Business::All { .. }, None) => plan::at_hand(node.height(), &slot, child)?.clone(),
                        (Business::Leftovers { .. }, None) => return Ok(Next::Leaf(slot_upper, 0)),
                    };
                    (node, upper) = (child, slot_upper);
                }
            }
        }
    }
}
