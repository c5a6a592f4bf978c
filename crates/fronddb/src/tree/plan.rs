//! What to do next: the most urgent slot whose flush or compaction gets in nobody's way.
//!
//! Jobs run without the structure latch, several at a time, so each one reserves what it relies on:
//!
//! - its **slot** (two when leaves are joined), named by (height of the node, lower bound): no other job takes runs from it. The name
//!   survives the splitting of nodes, and only the job that holds a slot may split or remove it.
//! - *receiving*: the interval below the slot, at the height of the node that gets the runs. The pivots in
//!   there must not change while runs are being cut along them.
//! - *splitting*: a job that will change pivots at a height excludes receivers there, but for a seal that cuts its runs along the pivots
//!   which it brings.
//! - *alone*: a job that drops everything below a slot excludes all jobs there. As such a job may have much to read, it lets go of the pivots
//!   of its own node as soon as it knows that they stay.
//!
//! A seal receives at the height of the root, in its whole interval, and cuts also where children of the root are about to be parted
//! ([`super::split`]). While it cannot begin because of a splitter there whose pivots are not known beforehand, no further splitter begins
//! either: writers may be waiting for that seal.
//!
//! All of this happens under the structure latch, so nothing is read here: planning that needs a node which is not in memory ends
//! with that ([`Absent`]), and begins anew when somebody has read it without the latch.
//!
//! Invariants:
//! - P1: at most one job for a slot.
//! - P2: never a receiver and a splitter at one height with overlapping intervals, but for a seal that cuts along all pivots which the
//!   splitter brings.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::node::{Child, JOIN_URGENCY, Node, Slot, Target};
use super::tuning::TreeTuning;
use super::{TreeEnv, split};
use crate::run::Run;

/// How many times what asks for a flush one flush takes at most.
const FLUSH_PARTS_MAX: usize = 2;

/// Names a slot across copies of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotName {
    /// Height of the node that the slot is in.
    pub height: u8,
    /// The slot's lower bound.
    pub lower: Arc<[u8]>,
}

/// A job chosen, with what it reserved.
#[derive(Debug)]
pub struct Job {
    /// The slot.
    pub name: SlotName,
    /// The slot as it was: its runs are the job's input.
    pub slot: Arc<Slot>,
    /// The leaf slot behind it, when the job makes one leaf of both.
    pub next: Option<Arc<Slot>>,
    /// Upper bound of the slot, or of the one behind it.
    pub upper: Option<Vec<u8>>,
    /// True when it may change the pivots of its own node.
    pub splits: bool,
    /// True when nothing else happens below the slot.
    pub alone: bool,
    /// True when runs of the buffer become one that stays in it: all that can be done beside damage, and less than a flush for
    /// readers.
    pub gathers: bool,
    /// How much it writes at most, about: it may end at any key.
    pub bytes_max: u64,
    id: u64,
}

/// What running jobs and seals rely on.
#[derive(Debug, Default)]
pub struct Reservations {
    next_id: u64,
    held: Vec<Reservation>,
    /// The height of the root that a seal waits to put its runs into.
    seal_waits_at: Option<u8>,
    /// The slot whose job lacked space last, and those that give way to the others for that.
    lacking: Option<SlotName>,
    passed_over: Vec<SlotName>,
}

#[derive(Debug, Default)]
struct Reservation {
    id: u64,
    /// The slots whose runs are taken; none for a seal.
    slots: Vec<SlotName>,
    lower: Arc<[u8]>,
    upper: Option<Vec<u8>>,
    /// Runs will be put into slots at this height.
    receives_at: Option<u8>,
    /// Of a seal: where its runs are cut.
    cuts: Vec<Arc<[u8]>>,
    /// Pivots at this height may change.
    splits_at: Option<u8>,
    /// All that may come there; none while that is not known.
    brings: Vec<Arc<[u8]>>,
    /// Everything below this height is the job's own.
    alone_below: Option<u8>,
}

fn overlap(a: (&[u8], Option<&[u8]>), b: (&[u8], Option<&[u8]>)) -> bool {
    a.1.is_none_or(|upper| b.0 < upper) && b.1.is_none_or(|upper| a.0 < upper)
}

impl Reservation {
    fn conflicts(&self, other: &Reservation) -> bool {
        if self.slots.iter().any(|slot| other.slots.contains(slot)) {
            return true;
        }
        if !overlap((&self.lower, self.upper.as_deref()), (&other.lower, other.upper.as_deref())) {
            return false;
        }
        let fits = |a: &Reservation, b: &Reservation| {
            !a.brings.is_empty() && a.brings.iter().all(|pivot| b.cuts.binary_search(pivot).is_ok())
        };
        let split_under =
            |a: &Reservation, b: &Reservation| a.splits_at.is_some() && a.splits_at == b.receives_at && !fits(a, b);
        let inside = |a: &Reservation, b: &Reservation| {
            let touches = b.slots.first().map(|slot| slot.height).or(b.receives_at);
            a.alone_below.zip(touches).is_some_and(|(below, height)| height < below)
        };
        split_under(self, other) || split_under(other, self) || inside(self, other) || inside(other, self)
    }
}

impl Reservations {
    /// Reserves the root's slots as receivers of a seal that cuts its runs at `cuts` (ascending); `None` while other pivots may
    /// come there: then no more jobs that change them begin until it is asked for again.
    pub fn begin_seal(&mut self, root_height: u8, cuts: Vec<Arc<[u8]>>) -> Option<u64> {
        let begun = self.try_hold(Reservation { receives_at: Some(root_height), cuts, ..Reservation::default() });
        self.seal_waits_at = begun.is_none().then_some(root_height);
        begun
    }

    fn try_hold(&mut self, mut reservation: Reservation) -> Option<u64> {
        let splits_where_seal_waits = reservation.splits_at.is_some() && reservation.splits_at == self.seal_waits_at;
        if splits_where_seal_waits || self.held.iter().any(|held| held.conflicts(&reservation)) {
            return None;
        }
        self.next_id += 1;
        reservation.id = self.next_id;
        self.held.push(reservation);
        Some(self.next_id)
    }

    /// Gives a reservation back.
    pub fn end(&mut self, id: u64) {
        self.held.retain(|held| held.id != id);
    }

    /// A job of the slot has lacked space, or one has not.
    pub fn note_space(&mut self, lacking: Option<SlotName>) {
        if lacking.is_none() {
            self.passed_over.clear();
        }
        self.lacking = lacking;
    }

    fn gives_way(&self, height: u8, slot: &Slot) -> bool {
        self.passed_over.iter().any(|name| name.height == height && name.lower == *slot.lower())
    }

    /// The slot that lacked space last gives way until a job finds some, or no other slot has one.
    pub fn pass_over_lacking(&mut self) {
        self.passed_over.extend(self.lacking.take());
    }

    /// Gives a job's reservation back.
    pub fn end_job(&mut self, job: &Job) {
        self.end(job.id);
    }

    /// The pivots of the job's own node stay: a seal may begin, and runs may come on top of the slot.
    pub fn keep_pivots(&mut self, job: &Job) {
        if let Some(held) = self.held.iter_mut().find(|held| held.id == job.id) {
            held.splits_at = None;
        }
    }

    /// True when no job or seal relies on the pivots at `height` in the interval, apart from `except`.
    pub fn pivots_free(&self, height: u8, lower: &[u8], upper: Option<&[u8]>, except: &Job) -> bool {
        !self.held.iter().any(|held| {
            held.id != except.id
                && overlap((&held.lower, held.upper.as_deref()), (lower, upper))
                && (held.receives_at == Some(height) || held.splits_at == Some(height))
        })
    }

    /// True when a job holds the slot.
    pub fn holds_slot(&self, name: &SlotName) -> bool {
        self.held.iter().any(|held| held.slots.contains(name))
    }
}

struct Candidate<'a> {
    urgency: f32,
    what: What<'a>,
}

enum What<'a> {
    Node(&'a Arc<Node>, Option<&'a [u8]>),
    Slot(u8, &'a Arc<Slot>, Option<&'a [u8]>),
    Join(u8, &'a Arc<Slot>, &'a Arc<Slot>, Option<&'a [u8]>),
}

impl PartialEq for Candidate<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Candidate<'_> {}
impl PartialOrd for Candidate<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Candidate<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.urgency.total_cmp(&other.urgency)
    }
}

/// What planning cannot go on without: a node that is not in memory. It is not read here, under the latch.
#[derive(Debug)]
pub struct Absent {
    /// The slot that leads to it.
    pub slot: SlotName,
    /// The node.
    pub child: Arc<Child>,
}

/// What planning comes to, or what it lacks.
pub type Planned<T> = std::result::Result<T, Absent>;

/// The child node of a slot of a node at `height`.
pub(super) fn at_hand<'c>(height: u8, slot: &Slot, child: &'c Arc<Child>) -> Planned<&'c Arc<Node>> {
    let absent = || Absent { slot: SlotName { height, lower: slot.lower().clone() }, child: child.clone() };
    child.loaded().ok_or_else(absent)
}

/// The slot of that name, if there still is one, and its upper bound.
pub(super) fn slot_at<'n>(root: &'n Arc<Node>, name: &SlotName) -> Option<(&'n Arc<Slot>, Option<&'n [u8]>)> {
    let (mut node, mut upper) = (root, None);
    while node.height() >= name.height {
        let index = node.find(&name.lower);
        let slot = &node.slots()[index];
        upper = node.upper(index, upper);
        if node.height() == name.height {
            return (slot.lower() == &name.lower).then_some((slot, upper));
        }
        let Target::Node(child) = slot.target() else { return None };
        node = child.loaded()?;
    }
    None
}

/// Chooses and reserves the most urgent job at or above `threshold`, one that need not write more than `bytes_max` if that is given.
///
/// # Errors
/// A node that it lacks.
pub fn pick(
    env: &TreeEnv,
    reservations: &mut Reservations,
    root: &Arc<Node>,
    threshold: f32,
    bytes_max: Option<u64>,
) -> Planned<Option<Job>> {
    let mut heap = BinaryHeap::new();
    heap.push(Candidate { urgency: root.totals().urgency, what: What::Node(root, None) });
    while let Some(candidate) = heap.pop() {
        if candidate.urgency < threshold || candidate.urgency <= 0.0 {
            break;
        }
        match candidate.what {
            // Neither can end half way.
            What::Slot(_, slot, _) if slot.is_damaged() && bytes_max.is_some() => {}
            What::Slot(height, slot, _) if reservations.gives_way(height, slot) => {}
            What::Join(_, slot, next, _) if bytes_max.is_some() && !slot.is_empty() && !next.is_empty() => {}
            What::Slot(height, slot, upper) if slot.is_damaged() => {
                let runs = slot.runs_to_gather(&env.options);
                let job = runs.and_then(|runs| reserve_gathering(env, reservations, height, slot, upper, runs));
                if job.is_some() {
                    return Ok(job);
                }
            }
            What::Slot(height, slot, upper) => {
                if let Some(job) = reserve_piece(env, reservations, height, slot, upper, bytes_max)? {
                    return Ok(Some(job));
                }
            }
            What::Join(height, slot, next, upper) => {
                if let Some(job) = reserve_join(reservations, height, slot, next, upper) {
                    return Ok(Some(job));
                }
            }
            What::Node(node, node_upper) => {
                for (index, pair) in node.slots().windows(2).enumerate().filter(|(_, pair)| pair[0].may_join(&pair[1]))
                {
                    let what = What::Join(node.height(), &pair[0], &pair[1], node.upper(index + 1, node_upper));
                    heap.push(Candidate { urgency: JOIN_URGENCY, what });
                }
                for (index, slot) in node.slots().iter().enumerate() {
                    let upper = node.upper(index, node_upper);
                    heap.push(Candidate { urgency: slot.urgency(), what: What::Slot(node.height(), slot, upper) });
                    let below = slot.urgency_below();
                    if let Target::Node(child) = slot.target()
                        && below > 0.0
                        && below >= threshold
                    {
                        let child_node = at_hand(node.height(), slot, child)?;
                        heap.push(Candidate { urgency: below, what: What::Node(child_node, upper) });
                    }
                }
            }
        }
    }
    reservations.passed_over.clear();
    Ok(None)
}

/// Reserves the joining of two neighbouring leaves, the second one with `upper` as its upper bound.
pub(super) fn reserve_join(
    reservations: &mut Reservations,
    height: u8,
    slot: &Arc<Slot>,
    next: &Arc<Slot>,
    upper: Option<&[u8]>,
) -> Option<Job> {
    reserve_leaves(reservations, height, slot, Some(next), upper)
}

/// Reserves a leaf slot, or that and the one behind it, and the pivots between, below and above; `upper` bounds the last one.
/// Their height is 1, or more where everything below was dropped.
pub(super) fn reserve_leaves(
    reservations: &mut Reservations,
    height: u8,
    slot: &Arc<Slot>,
    next: Option<&Arc<Slot>>,
    upper: Option<&[u8]>,
) -> Option<Job> {
    let name_of = |slot: &Arc<Slot>| SlotName { height, lower: slot.lower().clone() };
    let reservation = Reservation {
        slots: std::iter::once(slot).chain(next).map(name_of).collect(),
        lower: slot.lower().clone(),
        upper: upper.map(<[u8]>::to_vec),
        splits_at: Some(height),
        ..Reservation::default()
    };
    let (name, slot, next, upper) = (name_of(slot), slot.clone(), next.cloned(), upper.map(<[u8]>::to_vec));
    reservations.try_hold(reservation).map(|id| Job {
        name,
        slot,
        next,
        upper,
        splits: true,
        alone: false,
        gathers: false,
        bytes_max: u64::MAX,
        id,
    })
}

/// Reserves the work of a slot with `upper` as its upper bound; `None` while something else is in the way.
///
/// # Errors
/// The slot's child node, where that is not in memory.
pub(super) fn reserve(
    env: &TreeEnv,
    reservations: &mut Reservations,
    height: u8,
    slot: &Arc<Slot>,
    upper: Option<&[u8]>,
) -> Planned<Option<Job>> {
    reserve_piece(env, reservations, height, slot, upper, None)
}

/// As [`reserve`]; with `bytes_max` for a job that ends at some key when it has written so much. That takes all runs, so that deletes
/// among them meet what they delete before anything is written.
fn reserve_piece(
    env: &TreeEnv,
    reservations: &mut Reservations,
    height: u8,
    slot: &Arc<Slot>,
    upper: Option<&[u8]>,
    bytes_max: Option<u64>,
) -> Planned<Option<Job>> {
    let name = SlotName { height, lower: slot.lower().clone() };
    let may_end_early = bytes_max.is_some();
    let alone = slot.buffer().iter().any(|run| run.meta().range_deletes > 0);
    let whole = slot.buffer().len();
    let slot = if alone || may_end_early { slot.clone() } else { oldest_part(&env.options, slot) };
    let mut brings = Vec::new();
    let (receives_at, splits) = match slot.target() {
        Target::Leaf(base) => {
            let base_bytes = base.as_ref().map_or(0, |base| base.meta().bytes);
            let bytes = base_bytes + slot.buffer_bytes();
            // A leaf that may come out empty may be removed, which changes pivots as well.
            let shrinks = slot.totals().pending_deletes > 0;
            let appends = base.as_ref().is_some_and(|base| appends(&env.options, &slot, base));
            (None, bytes > env.options.leaf_bytes_max || shrinks || appends || alone || may_end_early)
        }
        Target::Node(child) => {
            let child = at_hand(height, &slot, child)?;
            // A node splits when nothing is left above it but what comes meanwhile.
            let splits = split::is_too_wide(&env.options, child) && slot.buffer().len() == whole;
            if splits && !alone {
                brings = split::pivots(&env.options, child);
            }
            (Some(child.height()), splits || alone)
        }
    };
    let reservation = Reservation {
        slots: vec![name.clone()],
        lower: slot.lower().clone(),
        upper: upper.map(<[u8]>::to_vec),
        receives_at,
        splits_at: splits.then_some(height),
        brings,
        alone_below: alone.then_some(height),
        ..Reservation::default()
    };
    let upper = upper.map(<[u8]>::to_vec);
    Ok(reservations.try_hold(reservation).map(|id| Job {
        name,
        slot,
        next: None,
        upper,
        splits,
        alone,
        gathers: false,
        bytes_max: bytes_max.unwrap_or(u64::MAX),
        id,
    }))
}

/// Reserves the merging of the newest `runs` in the buffer of a slot with `upper` as its upper bound. Runs that come on top stay there.
pub(super) fn reserve_gathering(
    env: &TreeEnv,
    reservations: &mut Reservations,
    height: u8,
    slot: &Arc<Slot>,
    upper: Option<&[u8]>,
    runs: usize,
) -> Option<Job> {
    let slot = slot.with(&env.options, slot.buffer()[..runs].to_vec(), slot.target().clone());
    let name = SlotName { height, lower: slot.lower().clone() };
    let upper = upper.map(<[u8]>::to_vec);
    let reservation = Reservation {
        slots: vec![name.clone()],
        lower: slot.lower().clone(),
        upper: upper.clone(),
        ..Reservation::default()
    };
    let id = reservations.try_hold(reservation)?;
    Some(Job { name, slot, next: None, upper, splits: false, alone: false, gathers: true, bytes_max: u64::MAX, id })
}

/// The slot with as much of its buffer as one flush takes, the oldest runs. What a flush that fell behind would take at
/// once would keep seals and other slots waiting for seconds. Leaves take all: each compaction writes their base again.
fn oldest_part(tuning: &TreeTuning, slot: &Arc<Slot>) -> Arc<Slot> {
    if matches!(slot.target(), Target::Leaf(_)) {
        return slot.clone();
    }
    let mut bytes = 0;
    let taken = slot.buffer().iter().rev().take(FLUSH_PARTS_MAX * tuning.node_runs).take_while(|run| {
        bytes += run.meta().bytes;
        bytes <= FLUSH_PARTS_MAX as u64 * tuning.node_buffer_bytes
    });
    match slot.buffer().len().saturating_sub(taken.count().max(1)) {
        0 => slot.clone(),
        kept_back => slot.with(tuning, slot.buffer()[kept_back..].to_vec(), slot.target().clone()),
    }
}

/// True when all that is pending lies beyond a base that is large enough to stay as it is: then the base
/// is not written again and a new leaf begins behind it, as when rows arrive in the order of their keys. Range-deletes in the base would
/// reach into that.
pub(super) fn appends(tuning: &TreeTuning, slot: &Slot, base: &Run) -> bool {
    base.meta().bytes >= tuning.leaf_bytes_target() / 2
        && base.meta().range_deletes == 0
        && !slot.buffer().is_empty()
        && slot.buffer().iter().all(|run| run.meta().range_deletes == 0 && run.meta().first_key > base.meta().last_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(reservations: &mut Reservations, lower: &[u8], upper: &[u8]) -> Option<u64> {
        reservations.try_hold(Reservation {
            slots: vec![SlotName { height: 1, lower: lower.into() }],
            lower: lower.into(),
            upper: Some(upper.to_vec()),
            splits_at: Some(1),
            ..Reservation::default()
        })
    }

    #[test]
    fn a_seal_that_cuts_where_a_node_is_parted_and_that_flush_do_not_wait_for_each_other() {
        let key = |key: &[u8]| -> Arc<[u8]> { key.into() };
        let parting = |at: &[u8]| Reservation {
            slots: vec![SlotName { height: 2, lower: key(b"a") }],
            lower: key(b"a"),
            splits_at: Some(2),
            brings: vec![key(at)],
            ..Reservation::default()
        };
        for (at, fits) in [(b"c", true), (b"d", false)] {
            let mut reservations = Reservations::default();
            let flush = reservations.try_hold(parting(at)).unwrap();
            let seal = reservations.begin_seal(2, vec![key(b"b"), key(b"c")]);
            assert_eq!(seal.is_some(), fits);
            reservations.end(flush);
            let seal = seal.or_else(|| reservations.begin_seal(2, vec![key(b"b"), key(b"c")])).unwrap();
            assert_eq!(reservations.try_hold(parting(at)).is_some(), fits);
            reservations.end(seal);
        }
    }

    #[test]
    fn a_seal_that_waits_comes_before_further_splits() {
        let mut reservations = Reservations::default();
        let first = split(&mut reservations, b"a", b"b").unwrap();
        assert_eq!(reservations.begin_seal(1, Vec::new()), None);
        assert_eq!(split(&mut reservations, b"b", b"c"), None);
        reservations.end(first);
        assert_eq!(split(&mut reservations, b"b", b"c"), None);
        let seal = reservations.begin_seal(1, Vec::new()).unwrap();
        assert_eq!(split(&mut reservations, b"b", b"c"), None);
        reservations.end(seal);
        assert!(split(&mut reservations, b"b", b"c").is_some());
    }
}
