//! How a node that has too many slots is parted.
//!
//! The flush of the slot above it does that, when it leaves nothing in the slot's buffer that lies on both sides of a new pivot. A seal
//! may put runs there meanwhile, so it cuts them not only at the root's pivots but also where the root's children are about to be parted
//! ([`seal_cuts`]): then it does not matter which of the two is installed first, and neither waits for the other. Otherwise writers
//! would wait for a seal that waits for a flush.
//!
//! Invariants:
//! - X1: where a node is parted depends on its pivots alone, which stay while a flush into it cuts runs along them. A seal that knew others
//!   before has not cut where that flush will part the node, and its reservation refuses the flush (P2 of [`super::plan`]).

use std::sync::Arc;

use super::TreeEnv;
use super::node::{Node, Slot, Target};
use super::plan::{Reservations, SlotName};
use super::tuning::TreeTuning;
use crate::base::key::PREFIX_BYTES;
use crate::run::Run;

/// Into so many parts at most a node is parted beside seals: each leaves a run above every part until then, and runs are what a slot
/// asks for a flush by.
const PARTS_BESIDE_SEALS_MAX: usize = 4;

/// Whether a node has more slots than it should.
pub(super) fn is_too_wide(tuning: &TreeTuning, node: &Node) -> bool {
    node.slots().len() > tuning.fanout_max
}

/// The pivots that parting a node brings to the one above.
pub(super) fn pivots(tuning: &TreeTuning, node: &Node) -> Vec<Arc<[u8]>> {
    parts(tuning, node).iter().skip(1).map(|part| part[0].lower().clone()).collect()
}

/// Where a seal cuts its runs, ascending: at the pivots of the root, and at those that flushes under way or due will bring, where these
/// are few.
pub(super) fn seal_cuts(tuning: &TreeTuning, reservations: &Reservations, root: &Node) -> Vec<Arc<[u8]>> {
    let mut cuts = Vec::new();
    for (index, slot) in root.slots().iter().enumerate() {
        cuts.extend((index > 0).then(|| slot.lower().clone()));
        let name = || SlotName { height: root.height(), lower: slot.lower().clone() };
        if let Target::Node(child) = slot.target()
            && let Some(child) = child.loaded().filter(|child| is_too_wide(tuning, child))
            && (slot.urgency() >= 1.0 || reservations.holds_slot(&name()))
        {
            cuts.extend(
                Some(pivots(tuning, child))
                    .filter(|pivots| pivots.len() < PARTS_BESIDE_SEALS_MAX)
                    .into_iter()
                    .flatten(),
            );
        }
    }
    cuts
}

/// Slots with empty buffers for the parts of `child`.
pub(super) fn split(env: &TreeEnv, lower: &Arc<[u8]>, child: &Arc<Node>) -> Vec<Arc<Slot>> {
    slots_of(env, lower, child, |_| Vec::new())
}

/// Slots for the parts of `child`, each with its own of the runs above; `None` when one of those may lie in several.
pub(super) fn split_below(
    env: &TreeEnv,
    lower: &Arc<[u8]>,
    buffer: &[Arc<Run>],
    child: &Arc<Node>,
) -> Option<Vec<Arc<Slot>>> {
    let pivots = pivots(&env.options, child);
    let part_of = |key: &[u8]| pivots.partition_point(|pivot| pivot.as_ref() <= key);
    let is_whole = |run: &Arc<Run>| {
        let meta = run.meta();
        meta.range_deletes == 0 && part_of(&meta.first_key) == part_of(&meta.last_key)
    };
    let own = |index, run: &&Arc<Run>| part_of(&run.meta().first_key) == index;
    buffer
        .iter()
        .all(is_whole)
        .then(|| slots_of(env, lower, child, |index| buffer.iter().filter(|run| own(index, run)).cloned().collect()))
}

fn slots_of(
    env: &TreeEnv,
    lower: &Arc<[u8]>,
    child: &Arc<Node>,
    buffer_of: impl Fn(usize) -> Vec<Arc<Run>>,
) -> Vec<Arc<Slot>> {
    let slot = |(index, slots): (usize, &[Arc<Slot>])| {
        let node = Node::new(&env.budget, child.height(), slots.to_vec());
        let lower = if index == 0 { lower } else { slots[0].lower() };
        Slot::new(&env.options, lower.clone(), buffer_of(index), Target::node(node))
    };
    parts(&env.options, child).into_iter().enumerate().map(slot).collect()
}

/// The slots of a node in parts: as many as they ask for, two at least. A cut that is near a border
/// between trees is moved there. Runs that are cut at such a border can move down whole.
fn parts<'n>(tuning: &TreeTuning, node: &'n Node) -> Vec<&'n [Arc<Slot>]> {
    let mut parts = Vec::new();
    let mut rest = node.slots();
    let fanout = tuning.fanout_max;
    let count = if rest.len() <= 2 * fanout { 2 } else { rest.len().div_ceil((fanout * 3 / 4).max(1)) };
    for left in (2..=count).rev() {
        let middle = rest.len() / left;
        // Of two parts, each may take what the other has not, up to seven eighths; of more, none may grow by much.
        let reach = if parts.is_empty() && left == 2 { middle * 3 / 4 } else { middle / 4 };
        let borders = (middle - reach).max(1)..=(middle + reach).min(rest.len() - 1);
        let border = borders.filter(|at| rest[*at].lower().len() == PREFIX_BYTES).min_by_key(|at| at.abs_diff(middle));
        let (part, behind) = rest.split_at(border.unwrap_or(middle));
        parts.push(part);
        rest = behind;
    }
    parts.push(rest);
    parts
}
