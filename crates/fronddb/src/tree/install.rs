//! New versions: the only place where the current version changes.
//!
//! Every function here runs under the `state` latch, does no I/O and cannot fail. What follows an installation, and may take
//! long, is [`release`](super::release)'s.

use std::sync::Arc;

use super::compact::{Outcome, Output};
use super::graft::{Graft, Side, slots_full};
use super::node::{Node, Slot, Target};
use super::plan::{Job, Reservations, SlotName};
use super::split::{is_too_wide, split, split_below};
use super::step::Rest;
use super::{BeTree, Retired, State, TreeEnv, Version, extents_of};
use crate::base::{Extent, TxnId};
use crate::memtable::{Level0, Memtable};
use crate::run::Run;

impl BeTree {
    /// Makes `active` the active memtable and the one before it the newest sealed one. The caller keeps
    /// writers out meanwhile and gives the new memtable the sequence numbers that follow.
    pub fn switch_active(&self, active: Arc<Memtable>) {
        let mut state = self.state.lock();
        let version = self.version.load_full();
        let mut sealed = Vec::with_capacity(version.sealed.len() + 1);
        sealed.push(Level0::Active(version.active.clone()));
        sealed.extend(version.sealed.iter().cloned());
        let root = version.root.clone();
        self.install(&mut state, |number, grafts| Version::new(number, active, sealed, root, grafts));
    }

    /// From now on level 0 keeps the newest memtable that is older than the one of this id, until [`BeTree::let_memtables_go`]. To be
    /// called before that one becomes active; of several such ids the first counts.
    pub fn hold_memtables_before(&self, id: u64) {
        self.state.lock().held_before.get_or_insert(id);
    }

    /// All memtables may leave level 0.
    pub fn let_memtables_go(&self) {
        self.state.lock().held_before = None;
    }

    /// Whether one is held.
    pub fn holds_memtables(&self) -> bool {
        self.state.lock().held_before.is_some()
    }

    /// Puts a new version in place. Space that no version reads any more is left to [`super::release`]: writers may be waiting
    /// for the latch, and it takes as long as the cache holds blocks of it.
    pub(super) fn install(&self, state: &mut State, next: impl FnOnce(u64, u64) -> Version) {
        let number = self.version.load().number + 1;
        let version = Arc::new(next(number, state.grafts));
        state.add_version(number, &version);
        self.version.store(version);
    }

    /// `extents` are read by no version from the next one on.
    fn retire(&self, state: &mut State, extents: Vec<Extent>, txns: Vec<Vec<TxnId>>) {
        if !extents.is_empty() || !txns.is_empty() {
            state.removed.extend(&extents);
            state.retired.push_back(Retired { since: self.version.load().number + 1, extents, txns });
        }
    }

    fn install_root(&self, state: &mut State, root: Arc<Node>) {
        let version = self.version.load_full();
        let (active, sealed) = (version.active.clone(), version.sealed.clone());
        self.install(state, |number, grafts| Version::new(number, active, sealed, root, grafts));
    }

    /// Installs the runs of a seal on top of the root's buffers and removes the memtable from level 0.
    pub(super) fn install_seal(&self, state: &mut State, outcome: Outcome) {
        let Outcome { outputs, dropped_blobs, kept_blobs, .. } = outcome;
        let version = self.version.load_full();
        let mut root = version.root.clone();
        for output in outputs {
            self.env.holders.run_added(&output.run.meta().unresolved);
            // It may begin inside of a slot, where a child is still to be parted.
            let index = root.find(&output.lower);
            let (upper, last) = (root.upper(index, None), &output.run.meta().last_key);
            assert!(upper.is_none_or(|upper| last.as_slice() < upper), "P2: a run of a seal lies in two slots");
            let lower = root.slots()[index].lower().clone();
            let name = SlotName { height: root.height(), lower };
            root = replace(&self.env, &root, &name, &mut |node, index| {
                let slot = &node.slots()[index];
                vec![on_top(&self.env, slot, output.run.clone())]
            });
        }
        state.blobs_added.extend(kept_blobs);
        self.retire(state, dropped_blobs, Vec::new());
        let mut sealed = version.sealed.clone();
        sealed.pop();
        let active = version.active.clone();
        self.install(state, |number, grafts| Version::new(number, active, sealed, root, grafts));
    }

    /// Installs a flush: `outputs` go on top of the child's buffers, the job's runs leave the slot, but for the `rest` of one that has ended
    /// early.
    pub(super) fn install_flush(
        &self,
        state: &mut State,
        job: &Job,
        outputs: &[Output],
        dropped_blobs: Vec<Extent>,
        rest: Option<Rest>,
    ) {
        let root = self.version.load().root.clone();
        let env = &self.env;
        let root = replace(env, &root, &job.name, &mut |node, index| {
            let slot = &node.slots()[index];
            let Target::Node(child) = slot.target() else {
                unreachable!("P1: only this job changes its slot's target")
            };
            let mut child = child.loaded().unwrap_or_else(|| unreachable!("the job loaded it")).clone();
            for output in outputs {
                let at = child.find(&output.lower);
                assert_eq!(child.slots()[at].lower(), &output.lower, "P2: pivots hold while runs are cut along them");
                let merged = on_top(env, &child.slots()[at], output.run.clone());
                child = child.with_slots(at, [merged]);
            }
            let buffer = left_of(slot.buffer(), job.slot.buffer(), rest.as_ref());
            if job.splits
                && is_too_wide(&env.options, &child)
                && let Some(slots) = split_below(env, slot.lower(), &buffer, &child)
            {
                return slots;
            }
            vec![Slot::new(&env.options, slot.lower().clone(), buffer, Target::node(child))]
        });
        self.finish_part(state, root, job, outputs, job.slot.buffer().to_vec(), dropped_blobs, rest);
    }

    /// Installs a compaction: `bases` (ascending, with their lower bounds) replace the leaf. The `rest` of one that has ended early becomes
    /// a leaf behind them.
    pub(super) fn install_leaf(
        &self,
        state: &mut State,
        job: &Job,
        bases: &[Output],
        dropped_blobs: Vec<Extent>,
        rest: Option<Rest>,
    ) {
        let root = self.version.load().root.clone();
        let env = &self.env;
        let root = replace(env, &root, &job.name, &mut |node, index| {
            let slot = &node.slots()[index];
            let buffer = without(slot.buffer(), job.slot.buffer());
            if let Some(rest) = &rest {
                assert!(buffer.is_empty(), "P2: a leaf that splits receives nothing");
                return leaves_with_rest(env, slot, job, bases, rest);
            }
            let removable = job.splits && index > 0 && buffer.is_empty();
            match bases {
                [] if removable => Vec::new(),
                [] => vec![Slot::new(&env.options, slot.lower().clone(), buffer, Target::Leaf(None))],
                [first, rest @ ..] => {
                    assert!(rest.is_empty() || buffer.is_empty(), "P2: a leaf that splits receives nothing");
                    let leaf = |lower: &Arc<[u8]>, buffer, base: &Output| {
                        Slot::new(&env.options, lower.clone(), buffer, Target::Leaf(Some(base.run.clone())))
                    };
                    let mut slots = vec![leaf(slot.lower(), buffer, first)];
                    slots.extend(rest.iter().map(|base| leaf(&base.lower, Vec::new(), base)));
                    slots
                }
            }
        });
        let mut removed = job.slot.buffer().to_vec();
        if let Target::Leaf(Some(base)) = job.slot.target() {
            removed.push(base.clone());
        }
        self.finish_part(state, root, job, bases, removed, dropped_blobs, rest);
    }

    /// As [`BeTree::finish_job`], for one of which the `rest` of its runs stays.
    #[expect(clippy::too_many_arguments, reason = "those of finish_job and what is left")]
    fn finish_part(
        &self,
        state: &mut State,
        root: Arc<Node>,
        job: &Job,
        added: &[Output],
        mut removed: Vec<Arc<Run>>,
        mut gone: Vec<Extent>,
        rest: Option<Rest>,
    ) {
        for (run, clipped) in rest.into_iter().flat_map(|rest| rest.runs) {
            // It keeps its name and its undecided transactions.
            if clipped.run.is_some() {
                removed.retain(|other| !Arc::ptr_eq(other, &run));
                gone.extend(clipped.freed);
            }
        }
        self.finish_job(state, root, job, added, removed, gone);
    }

    /// How many leaves of a graft may come to the job's slot: any number where all nodes on the path are parted at once, else no more than make the
    /// node full, and none while one above is (G4 of [`super::graft`]).
    pub(super) fn room_for_leaves(&self, state: &State, root: &Arc<Node>, job: &Job) -> usize {
        let slots_full = slots_full(&self.env.options);
        let mut is_free = state.reservations.pivots_free(root.height(), &[], None, job);
        let mut is_full = false;
        let mut node = root;
        while node.height() > job.name.height {
            let index = node.find(&job.name.lower);
            is_free &= may_part(&state.reservations, node, index, job);
            let Target::Node(child) = node.slots()[index].target() else {
                unreachable!("P1: the path to a reserved slot stays")
            };
            node = child.loaded().unwrap_or_else(|| unreachable!("the path to a reserved slot is loaded"));
            is_full |= node.slots().len() >= slots_full;
        }
        match (is_free, is_full) {
            (true, _) => usize::MAX,
            (false, true) => 0,
            (false, false) => slots_full.saturating_sub(node.slots().len()),
        }
    }

    /// Installs the first leaves of a graft, so many of it: they, and what lies `sides` of it, take the place of the leaf slot. What was `written` to
    /// part the sides takes the place of the slot's runs.
    pub(super) fn install_graft(
        &self,
        state: &mut State,
        job: &Job,
        (graft, count): (&mut Graft, usize),
        sides: (Side, Side),
        written: Option<Outcome>,
    ) {
        let root = self.version.load().root.clone();
        let env = &self.env;
        let (slots, mut added, blobs) = graft.take_slots(count, &job.slot, sides.0, sides.1);
        let root = replace(env, &root, &job.name, &mut |node, index| {
            let now = &node.slots()[index];
            assert!(now.buffer().len() == job.slot.buffer().len(), "G2: the slot is as it was reserved");
            slots.clone()
        });
        let root = split_path(env, &state.reservations, &root, job).unwrap_or(root);
        state.blobs_added.extend(blobs);
        state.grafts += 1;
        let mut written = written;
        let removed = if written.is_some() { job.slot.runs().cloned().collect() } else { Vec::new() };
        let dropped = written.as_mut().map(|outcome| std::mem::take(&mut outcome.dropped_blobs)).unwrap_or_default();
        added.extend(written.map(|mut outcome| std::mem::take(&mut outcome.outputs)).unwrap_or_default());
        self.finish_job(state, root, job, &added, removed, dropped);
    }

    /// Installs that two neighbouring leaves are one: what was written of both, or the one that is not empty as it is.
    pub(super) fn install_join(&self, state: &mut State, job: &Job, next: &Slot, written: Option<Outcome>) {
        let root = self.version.load().root.clone();
        let env = &self.env;
        let lower = job.slot.lower();
        let mut written = written;
        let blobs = written.as_mut().map(|outcome| std::mem::take(&mut outcome.dropped_blobs)).unwrap_or_default();
        let outputs = written.as_mut().map(|outcome| std::mem::take(&mut outcome.outputs));
        assert!(outputs.as_ref().is_none_or(|outputs| outputs.len() <= 1), "leaves that join are not cut");
        let root = replace_slots(env, &root, &job.name, 2, &mut |node, index| {
            let slot = &node.slots()[index];
            let behind = &node.slots()[index + 1];
            let stays = |now: &Slot, then: &Slot| now.buffer().len() == then.buffer().len();
            assert!(behind.lower() == next.lower() && stays(slot, &job.slot) && stays(behind, next), "P2: as reserved");
            let (buffer, base) = match &outputs {
                Some(outputs) => (Vec::new(), Target::Leaf(outputs.first().map(|output| output.run.clone()))),
                None if slot.is_empty() => (behind.buffer().to_vec(), behind.target().clone()),
                None => (slot.buffer().to_vec(), slot.target().clone()),
            };
            vec![Slot::new(&env.options, lower.clone(), buffer, base)]
        });
        let removed = match &outputs {
            Some(_) => job.slot.runs().chain(next.runs()).cloned().collect(),
            None => Vec::new(),
        };
        self.finish_job(state, root, job, &outputs.unwrap_or_default(), removed, blobs);
    }

    /// Installs a drop: of the slot's runs only the first `keep` stay, and it leads to an empty leaf.
    pub(super) fn install_drop(
        &self,
        state: &mut State,
        job: &Job,
        keep: usize,
        removed: Vec<Arc<Run>>,
        dropped_blobs: Vec<Extent>,
    ) {
        let root = self.version.load().root.clone();
        let env = &self.env;
        let root = replace(env, &root, &job.name, &mut |node, index| {
            let slot = &node.slots()[index];
            let buffer = without(slot.buffer(), &job.slot.buffer()[keep..]);
            vec![Slot::new(&env.options, slot.lower().clone(), buffer, Target::Leaf(None))]
        });
        self.finish_job(state, root, job, &[], removed, dropped_blobs);
    }

    /// Installs that a slot is damaged; `buffer_too`: and a run in its buffer.
    pub(super) fn install_damaged(&self, state: &mut State, slot: &SlotName, buffer_too: bool) {
        let root = self.version.load().root.clone();
        let root = replace(&self.env, &root, slot, &mut |node, index| {
            vec![node.slots()[index].damaged(&self.env.options, buffer_too)]
        });
        self.install_root(state, root);
    }

    /// Installs that the job's runs in the slot's buffer have become `outputs`: one run, or none.
    pub(super) fn install_gathered(
        &self,
        state: &mut State,
        job: &Job,
        outputs: &[Output],
        dropped_blobs: Vec<Extent>,
    ) {
        assert!(outputs.len() <= 1, "runs that are gathered are not cut");
        let root = self.version.load().root.clone();
        let env = &self.env;
        let root = replace(env, &root, &job.name, &mut |node, index| {
            let slot = &node.slots()[index];
            let is_first = |run: &Arc<Run>| job.slot.buffer().first().is_some_and(|first| Arc::ptr_eq(run, first));
            let at = slot.buffer().iter().position(is_first).unwrap_or_else(|| unreachable!("P1: the job's runs stay"));
            let mut buffer = without(slot.buffer(), job.slot.buffer());
            buffer.splice(at..at, outputs.iter().map(|output| output.run.clone()));
            vec![slot.with(&env.options, buffer, slot.target().clone())]
        });
        self.finish_job(state, root, job, outputs, job.slot.buffer().to_vec(), dropped_blobs);
    }

    /// What all installations of jobs share: the counts of undecided transactions, a root of good shape,
    /// retired space, and the end of the reservation. Runs among both `removed` and `added` stay.
    fn finish_job(
        &self,
        state: &mut State,
        root: Arc<Node>,
        job: &Job,
        added: &[Output],
        mut removed: Vec<Arc<Run>>,
        dropped_blobs: Vec<Extent>,
    ) {
        let env = &self.env;
        let stays = |run: &Arc<Run>| added.iter().any(|output| Arc::ptr_eq(&output.run, run));
        for output in added.iter().filter(|output| !removed.iter().any(|run| Arc::ptr_eq(run, &output.run))) {
            env.holders.run_added(&output.run.meta().unresolved);
        }
        removed.retain(|run| !stays(run));
        for run in &removed {
            env.holders.run_removed(&run.meta().unresolved);
        }
        let mut gone = extents_of(&removed);
        gone.extend(dropped_blobs);
        let root = join_nodes(env, &state.reservations, &root, job).unwrap_or(root);
        let root = self.shape_root(state, root, job);
        let txns = removed.iter().map(|run| run.meta().unresolved.clone()).filter(|txns| !txns.is_empty()).collect();
        self.retire(state, gone, txns);
        self.install_root(state, root);
        state.reservations.end_job(job);
    }

    /// Grows the tree when the root has too many slots and lowers it while the root has but one empty one,
    /// unless somebody relies on the root's pivots.
    fn shape_root(&self, state: &State, root: Arc<Node>, job: &Job) -> Arc<Node> {
        let env = &self.env;
        if !state.reservations.pivots_free(root.height(), &[], None, job) {
            return root;
        }
        if is_too_wide(&env.options, &root) {
            let mut root = root;
            while is_too_wide(&env.options, &root) {
                let lower = root.slots()[0].lower().clone();
                root = Node::new(&env.budget, root.height() + 1, split(env, &lower, &root));
            }
            return root;
        }
        match root.slots() {
            [only] if only.buffer().is_empty() => match only.target() {
                Target::Node(child) => match child.loaded() {
                    Some(child) => self.shape_root(state, child.clone(), job),
                    None => root,
                },
                Target::Leaf(_) => root,
            },
            _ => root,
        }
    }
}

/// `slot` with `run` as the newest of its buffer.
fn on_top(env: &TreeEnv, slot: &Slot, run: Arc<Run>) -> Arc<Slot> {
    let mut buffer = Vec::with_capacity(slot.buffer().len() + 1);
    buffer.push(run);
    buffer.extend(slot.buffer().iter().cloned());
    slot.with(&env.options, buffer, slot.target().clone())
}

/// `buffer` less the runs of `taken`.
fn without(buffer: &[Arc<Run>], taken: &[Arc<Run>]) -> Vec<Arc<Run>> {
    buffer.iter().filter(|run| !taken.iter().any(|other| Arc::ptr_eq(run, other))).cloned().collect()
}

/// `buffer` less the runs of `taken`, but for what is left of them.
fn left_of(buffer: &[Arc<Run>], taken: &[Arc<Run>], rest: Option<&Rest>) -> Vec<Arc<Run>> {
    match rest {
        None => without(buffer, taken),
        Some(rest) => buffer.iter().filter_map(|run| rest.of(run)).collect(),
    }
}

/// The slots of a leaf's first part, and of what is left behind it; a job that has kept the base has put it first.
fn leaves_with_rest(env: &TreeEnv, slot: &Slot, job: &Job, bases: &[Output], rest: &Rest) -> Vec<Arc<Slot>> {
    let leaf = |lower: &Arc<[u8]>, buffer, base| Slot::new(&env.options, lower.clone(), buffer, Target::Leaf(base));
    let mut slots: Vec<Arc<Slot>> = Vec::with_capacity(bases.len() + 1);
    for output in bases {
        let lower = if slots.is_empty() { slot.lower() } else { &output.lower };
        slots.push(leaf(lower, Vec::new(), Some(output.run.clone())));
    }
    let base = match job.slot.target() {
        Target::Leaf(Some(base)) if !bases.iter().any(|output| Arc::ptr_eq(&output.run, base)) => rest.of(base),
        _ => None,
    };
    let lower = if slots.is_empty() { slot.lower() } else { &rest.from };
    slots.push(leaf(lower, job.slot.buffer().iter().filter_map(|run| rest.of(run)).collect(), base));
    slots
}

impl Rest {
    /// What is left of a run: the run itself, if it is none of the job's.
    fn of(&self, run: &Arc<Run>) -> Option<Arc<Run>> {
        match self.runs.iter().find(|(other, _)| Arc::ptr_eq(run, other)) {
            Some((_, clipped)) => clipped.run.clone(),
            None => Some(run.clone()),
        }
    }
}

/// Splits child nodes that have become too large on the path to the job's slot, from below, as far as nobody relies on them and
/// nothing waits above them: what waits would have to be cut, and two leaves that are being joined stay in one node. A node that is
/// left is split by its next flush.
fn split_path(env: &TreeEnv, reservations: &Reservations, node: &Arc<Node>, job: &Job) -> Option<Arc<Node>> {
    if node.height() <= job.name.height {
        return None;
    }
    let index = node.find(&job.name.lower);
    let slot = &node.slots()[index];
    let Target::Node(child) = slot.target() else { return None };
    let child = child.loaded()?;
    let below = split_path(env, reservations, child, job);
    let child = below.as_ref().unwrap_or(child);
    if is_too_wide(&env.options, child) && may_part(reservations, node, index, job) {
        return Some(node.with_slots(index, split(env, slot.lower(), child)));
    }
    below.map(|child| node.with_slots(index, [slot.with(&env.options, slot.buffer().to_vec(), Target::node(child))]))
}

/// Whether the child node of a slot may be parted as it is: nothing waits above it, and nobody but the job relies on the slot or the pivots.
fn may_part(reservations: &Reservations, node: &Node, index: usize, job: &Job) -> bool {
    let slot = &node.slots()[index];
    let upper = node.slots().get(index + 1).map(|slot| slot.lower().as_ref());
    slot.buffer().is_empty()
        && !slot.is_damaged()
        && !reservations.holds_slot(&SlotName { height: node.height(), lower: slot.lower().clone() })
        && [node.height(), node.height() - 1]
            .iter()
            .all(|height| reservations.pivots_free(*height, slot.lower(), upper, job))
}

/// Joins child nodes of few slots with their neighbours, on the path to the job's slot; `None` when there are none, or when
/// somebody relies on them. The buffers of both are one list, because the runs of each lie in their own interval.
fn join_nodes(env: &TreeEnv, reservations: &Reservations, node: &Arc<Node>, job: &Job) -> Option<Arc<Node>> {
    if node.height() <= job.name.height {
        return None;
    }
    let index = node.find(&job.name.lower);
    let slot = &node.slots()[index];
    let Target::Node(child) = slot.target() else { return None };
    let below = join_nodes(env, reservations, child.loaded()?, job);
    let below = below
        .map(|child| node.with_slots(index, [slot.with(&env.options, slot.buffer().to_vec(), Target::node(child))]));
    let node = below.as_ref().unwrap_or(node);
    let pairs = [(index, index + 1), (index.wrapping_sub(1), index)];
    let joined = pairs.into_iter().find_map(|(first, second)| {
        let (one, other) = (node.slots().get(first)?, node.slots().get(second)?);
        let slot = join_slots(env, one, other)?;
        let name = |slot: &Slot| SlotName { height: node.height(), lower: slot.lower().clone() };
        let upper = node.slots().get(second + 1).map(|slot| slot.lower().as_ref());
        let is_free = reservations.pivots_free(node.height(), one.lower(), upper, job)
            && [one, other].iter().all(|slot| name(slot) == job.name || !reservations.holds_slot(&name(slot)));
        is_free.then(|| node.with_range(first..second + 1, [slot]))
    });
    joined.or(below)
}

/// One slot for two neighbours whose child nodes are in memory and small together, and that hold no range-deletes (N5).
pub(super) fn join_slots(env: &TreeEnv, one: &Slot, other: &Slot) -> Option<Arc<Slot>> {
    if one.buffer().iter().chain(other.buffer()).any(|run| run.meta().range_deletes > 0) {
        return None;
    }
    let child = |slot: &Slot| match slot.target() {
        Target::Node(child) if !slot.is_damaged() => child.loaded().cloned(),
        _ => None,
    };
    let (left, right) = (child(one)?, child(other)?);
    if left.slots().len() + right.slots().len() > env.options.fanout_max / 2 {
        return None;
    }
    let slots = [left.slots(), right.slots()].concat();
    let buffer = [one.buffer(), other.buffer()].concat();
    let node = Node::new(&env.budget, left.height(), slots);
    Some(Slot::new(&env.options, one.lower().clone(), buffer, Target::node(node)))
}

/// What becomes of one slot of a node: the slots that replace it.
type Change<'a> = &'a mut dyn FnMut(&Arc<Node>, usize) -> Vec<Arc<Slot>>;

/// Copies the path from `node` to the named slot and replaces that slot by what `change` makes of it.
fn replace(env: &TreeEnv, node: &Arc<Node>, name: &SlotName, change: Change<'_>) -> Arc<Node> {
    replace_slots(env, node, name, 1, change)
}

/// As [`replace`], for `count` neighbouring slots from the named one on.
fn replace_slots(env: &TreeEnv, node: &Arc<Node>, name: &SlotName, count: usize, change: Change<'_>) -> Arc<Node> {
    let index = node.find(&name.lower);
    let slot = &node.slots()[index];
    if node.height() == name.height {
        assert_eq!(slot.lower(), &name.lower, "P1: a reserved slot keeps its name");
        return node.with_range(index..index + count, change(node, index));
    }
    let Target::Node(child) = slot.target() else { unreachable!("P1: the path to a reserved slot stays") };
    let child = child.loaded().unwrap_or_else(|| unreachable!("the path to a reserved slot is loaded"));
    let child = replace_slots(env, child, name, count, change);
    node.with_slots(index, [slot.with(&env.options, slot.buffer().to_vec(), Target::node(child))])
}
