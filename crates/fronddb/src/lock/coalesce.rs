//! Keeping the memory of locks bounded: many points of one owner become few ranges.
//!
//! Whoever takes the table over its bound first sweeps what ended owners left, then coalesces a *window*: with
//! all shards latched it walks a few hundred points in key order (the shards merged) and, within each stretch
//! of points of one owner and mode with nobody else's point in between, joins neighbours across the smaller
//! three quarters of the gaps. A gap is measured by the distance of its two keys as numbers, after their common prefix: keys
//! written in sequence become one range that locks little more than they did; scattered keys give up the small gaps
//! first. Later rounds join ranges with ranges in the same way. A range never reaches past the owner's own first
//! and last key.
//!
//! A group is not joined when anything of another owner lies inside it that would conflict, held or waiting;
//! then its halves are tried. So widening never takes a key that somebody else holds or stands in line for (L1, L3).
//!
//! Owners of few locks are left alone, so a very great number of small owners can exceed the bound; a lock is
//! never refused for memory. When a whole round gains little, the next begins only after further growth.

use std::collections::HashMap;
use std::iter::Peekable;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::Mode;
use super::intervals::{Intervals, Range};
use super::key::LockKey;
use super::owner::Owner;
use super::points::{Entry, Shard, conflict};
use super::table::Inner;
use crate::base::sync::MutexGuard;
use crate::base::sync::atomic::Ordering;
use crate::base::{TreeId, TxnId};

/// Points or ranges looked at in one step, with all shards latched: some tens of microseconds.
const WINDOW: usize = 256;
/// An owner of fewer locks is left alone.
const WEIGHT_MIN: u64 = 64;
/// Fewer points are not worth a range.
const GROUP_MIN: usize = 3;
/// An owner whose points coalesce stops listing them once it has so many.
const LISTED_MAX: usize = 1024;
/// Steps that one request takes at most. Shards report their memory in portions, so that requests find the bound
/// exceeded by some hundred points at a time.
const STEPS_MAX: usize = 8;
/// What a step of sweeping visits.
const SWEEP_BUDGET: usize = 512;

/// Where the next step goes on.
#[derive(Debug, Default)]
pub(super) struct Coalescer {
    after_point: Option<LockKey>,
    range_group: usize,
    after_range: Option<LockKey>,
    /// In this round, which ends with the last point: locks looked at, and locks that became part of a range.
    visited: usize,
    joined: usize,
    /// Do nothing below this.
    resume_bytes: isize,
}

/// Neighbours of one owner and mode, in key order.
struct Stretch {
    owner: Arc<Owner>,
    mode: Mode,
    tree: TreeId,
    pieces: Vec<Piece>,
}

/// A point or a range about to be joined with its neighbours.
struct Piece {
    low: LockKey,
    /// The key again for a point, the excluded end for a range.
    high: LockKey,
    is_range: bool,
}

type Shards<'a> = Vec<MutexGuard<'a, Shard>>;

impl Inner {
    /// Brings memory back towards its bound. Called by requests that find it exceeded, holding no latch.
    #[cold]
    pub(super) fn relieve(&self) {
        for _ in 0..STEPS_MAX {
            if self.has_garbage() {
                self.sweep_step(SWEEP_BUDGET);
            } else if !self.coalesce_step() {
                return;
            }
            if !self.is_over() {
                return;
            }
        }
    }

    /// Coalesces one window of points and one of ranges; false when it is of no use now.
    pub(super) fn coalesce_step(&self) -> bool {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let Some(mut coalescer) = self.coalescer.try_lock() else { return false };
        if bytes < coalescer.resume_bytes / 4 * 3 {
            coalescer.resume_bytes = 0;
        }
        if bytes <= coalescer.resume_bytes {
            return false;
        }
        self.coalesce_points(&mut coalescer);
        self.coalesce_ranges(&mut coalescer);
        true
    }

    fn latch_shards(&self) -> Shards<'_> {
        self.shards.iter().map(|shard| shard.lock()).collect()
    }

    fn coalesce_points(&self, coalescer: &mut Coalescer) {
        let mut shards = self.latch_shards();
        let stretches = collect(&shards, &mut coalescer.after_point);
        coalescer.visited += WINDOW;
        let mut owners = Vec::new();
        for mut stretch in stretches {
            let mut trees = self.range_group(stretch.tree).trees.lock();
            let intervals = trees.entry(stretch.tree.0).or_default();
            add_own_ranges(&mut stretch, intervals);
            let joined = self.join(&mut shards, intervals, &stretch);
            if intervals.len() == 0 {
                trees.remove(&stretch.tree.0);
            }
            drop(trees);
            if joined > 0 {
                coalescer.joined += joined;
                let mut held = stretch.owner.held.lock();
                if held.points() > LISTED_MAX {
                    self.charge(-(held.give_up() as isize));
                }
                drop(held);
                owners.push(stretch.owner);
            }
        }
        self.report_all(&mut shards);
        drop(shards);
        self.sweep_if_ended(&owners);
        if coalescer.after_point.is_none() {
            let bytes = self.bytes.load(Ordering::Relaxed);
            coalescer.resume_bytes = if coalescer.joined < coalescer.visited / 16 { bytes / 8 * 9 } else { 0 };
            (coalescer.visited, coalescer.joined) = (0, 0);
        }
    }

    /// An owner that ends while its locks are joined has swept its ranges before it got the last ones.
    fn sweep_if_ended(&self, owners: &[Arc<Owner>]) {
        owners.iter().filter(|owner| owner.has_ended()).for_each(|owner| self.sweep_all_ranges(owner));
    }

    fn report_all(&self, shards: &mut Shards<'_>) {
        let unreported = shards.iter_mut().map(|shard| std::mem::take(&mut shard.unreported)).sum();
        self.charge(unreported);
    }

    /// Joins ranges with ranges, in a window of one tree.
    fn coalesce_ranges(&self, coalescer: &mut Coalescer) {
        let many = |group: usize| self.ranges[group].count.load(Ordering::Relaxed) >= 4 * GROUP_MIN;
        let groups = self.ranges.len();
        let Some(group) = (0..groups).map(|n| (coalescer.range_group + n) % groups).find(|group| many(*group)) else {
            return;
        };
        let start = coalescer.after_range.take().filter(|_| group == coalescer.range_group);
        coalescer.range_group = group;
        let mut shards = self.latch_shards();
        let mut trees = self.ranges[group].trees.lock();
        let first_tree = start.as_ref().map_or(0, |key| key.tree().0);
        let Some(tree) = trees.keys().copied().filter(|tree| *tree >= first_tree).min() else {
            coalescer.range_group = group + 1;
            return;
        };
        let Some(intervals) = trees.get_mut(&tree) else { return };
        let tree = TreeId(tree);
        let start = start.filter(|key| key.tree() == tree).unwrap_or_else(|| LockKey::new(tree, b""));
        let (stretches, end) = collect_ranges(intervals, tree, &start);
        for stretch in &stretches {
            coalescer.joined += self.join(&mut shards, intervals, stretch);
        }
        self.report_all(&mut shards);
        drop(trees);
        drop(shards);
        let owners: Vec<Arc<Owner>> = stretches.into_iter().map(|stretch| stretch.owner).collect();
        self.sweep_if_ended(&owners);
        coalescer.after_range = end.filter(|end| *end > start).or_else(|| {
            let next = tree.0.checked_add(1)?;
            Some(LockKey::new(TreeId(next), b""))
        });
    }

    /// Joins the pieces of a stretch across the smaller gaps; returns by how many locks there are fewer.
    fn join(&self, shards: &mut Shards<'_>, intervals: &mut Intervals, stretch: &Stretch) -> usize {
        let pieces = &stretch.pieces;
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return 0 };
        let skip = first.low.common_prefix(&last.low);
        let gaps: Vec<u64> = pieces.windows(2).map(|pair| pair[0].high.distance(&pair[1].low, skip)).collect();
        if gaps.is_empty() {
            return 0;
        }
        let mut sorted = gaps.clone();
        let (_, limit, _) = sorted.select_nth_unstable(gaps.len() * 3 / 4);
        let limit = *limit;
        let mut joined = 0;
        let mut start = 0;
        for end in 1..=pieces.len() {
            if gaps.get(end - 1).is_none_or(|gap| *gap > limit) {
                joined += self.join_group(shards, intervals, stretch, &pieces[start..end]);
                start = end;
            }
        }
        joined
    }

    fn join_group(
        &self,
        shards: &mut Shards<'_>,
        intervals: &mut Intervals,
        stretch: &Stretch,
        group: &[Piece],
    ) -> usize {
        let ranges = group.iter().filter(|piece| piece.is_range).count();
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return 0 };
        if group.len() < GROUP_MIN && (ranges == 0 || group.len() < 2) {
            return 0;
        }
        let low = first.low.clone();
        let high = group.iter().filter(|piece| piece.is_range).map(|piece| piece.high.clone());
        let high = high.chain((!last.is_range).then(|| last.high.successor())).max();
        let Some(high) = high else { return 0 };
        if is_in_the_way(shards, intervals, stretch, &low, &high) {
            if group.len() <= GROUP_MIN {
                return 0;
            }
            let (left, right) = group.split_at(group.len() / 2);
            return self.join_group(shards, intervals, stretch, left)
                + self.join_group(shards, intervals, stretch, right);
        }
        let before = intervals.len();
        let points = remove_points(shards, stretch, &low, &high);
        let Stretch { owner, mode, .. } = stretch;
        let range = Range { low, high, owner: owner.clone(), mode: *mode, granted: false, seq: 0, disturbed: false };
        let id = self.insert_range(intervals, range);
        self.grant_range(intervals, owner, id);
        self.metrics.coalesced.add(points as u64);
        (points + before).saturating_sub(intervals.len())
    }
}

/// The next stretches of points after the cursor, which moves on, or becomes `None` at the end.
fn collect(shards: &Shards<'_>, after: &mut Option<LockKey>) -> Vec<Stretch> {
    let start = after.take().map_or(Bound::Unbounded, Bound::Excluded);
    let mut cursors: Vec<Peekable<_>> =
        shards.iter().map(|shard| shard.map.range((start.clone(), Bound::Unbounded)).peekable()).collect();
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut broken = true;
    for visited in 1..=WINDOW {
        let heads = cursors.iter_mut().enumerate();
        let lowest = heads.filter_map(|(index, cursor)| cursor.peek().map(|(key, _)| (*key, index))).min();
        let Some((key, entry)) = lowest.and_then(|(_, index)| cursors[index].next()) else { break };
        if visited == WINDOW {
            *after = Some(key.clone());
        }
        let Some((owner, mode)) = sole_holder(entry) else {
            broken |= entry.has_waiters() || entry.holders().any(|holder| !holder.has_ended());
            continue;
        };
        let piece = Piece { low: key.clone(), high: key.clone(), is_range: false };
        match stretches.last_mut() {
            Some(last)
                if !broken && Arc::ptr_eq(&last.owner, owner) && last.mode == mode && last.tree == key.tree() =>
            {
                last.pieces.push(piece);
            }
            _ => stretches.push(Stretch { owner: owner.clone(), mode, tree: key.tree(), pieces: vec![piece] }),
        }
        broken = false;
    }
    stretches.retain(|stretch| stretch.owner.weight.load(Ordering::Relaxed) >= WEIGHT_MIN);
    stretches
}

/// The live owner of an entry that nobody shares or waits for.
fn sole_holder(entry: &Entry) -> Option<(&Arc<Owner>, Mode)> {
    let holder = entry.holder.as_ref().filter(|holder| entry.more.is_none() && !holder.has_ended())?;
    Some((holder, entry.mode))
}

/// Puts the held ranges of the stretch's owner among its points.
fn add_own_ranges(stretch: &mut Stretch, intervals: &Intervals) {
    let (Some(first), Some(last)) = (stretch.pieces.first(), stretch.pieces.last()) else { return };
    let mut ranges = Vec::new();
    intervals.touching(&first.low, &last.high, &mut |_, range| {
        if range.granted && range.mode == stretch.mode && Arc::ptr_eq(&range.owner, &stretch.owner) {
            ranges.push(Piece { low: range.low.clone(), high: range.high.clone(), is_range: true });
        }
        ControlFlow::Continue(())
    });
    if !ranges.is_empty() {
        stretch.pieces.append(&mut ranges);
        stretch.pieces.sort_by(|a, b| a.low.cmp(&b.low));
    }
}

/// The held ranges of a tree from `start` on, by owner and mode, and where the next window starts; `None` at
/// the end of the tree.
fn collect_ranges(intervals: &Intervals, tree: TreeId, start: &LockKey) -> (Vec<Stretch>, Option<LockKey>) {
    let mut stretches: HashMap<(TxnId, Mode), Stretch> = HashMap::new();
    let mut visited = 0;
    let mut end = None;
    intervals.touching(start, &LockKey::upper(tree, b""), &mut |_, range| {
        visited += 1;
        if visited > WINDOW {
            end = Some(range.low.clone());
            return ControlFlow::Break(());
        }
        if range.granted && !range.owner.has_ended() {
            let (owner, mode) = (range.owner.clone(), range.mode);
            let stretch =
                stretches.entry((owner.id, mode)).or_insert(Stretch { owner, mode, tree, pieces: Vec::new() });
            stretch.pieces.push(Piece { low: range.low.clone(), high: range.high.clone(), is_range: true });
        }
        ControlFlow::Continue(())
    });
    let large = |stretch: &Stretch| stretch.pieces.len() > GROUP_MIN;
    (stretches.into_values().filter(large).collect(), end)
}

/// True when somebody else holds, or waits for, something in `[low, high)` that a lock of the stretch would
/// conflict with.
fn is_in_the_way(shards: &Shards<'_>, intervals: &Intervals, stretch: &Stretch, low: &LockKey, high: &LockKey) -> bool {
    let foreign = |other: &Arc<Owner>, mode| {
        conflict(mode, stretch.mode) && !Arc::ptr_eq(other, &stretch.owner) && !other.has_ended()
    };
    let mut found = false;
    intervals.touching(low, high, &mut |_, range| {
        found = range.overlaps(low, high) && foreign(&range.owner, range.mode);
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
        || shards.iter().flat_map(|shard| shard.map.range(low..high)).any(|(_, entry)| {
            // Those who wait for a point that the owner holds as strongly already wait for the owner.
            let held = entry.mode_of(&stretch.owner).is_some_and(|mode| mode >= stretch.mode);
            entry.holders().any(|holder| foreign(holder, entry.mode))
                || (!held && entry.waiters().any(|waiter| foreign(&waiter.owner, waiter.mode)))
        })
}

/// Removes the points of the stretch's owner that a range of its mode over `[low, high)` stands for.
fn remove_points(shards: &mut Shards<'_>, stretch: &Stretch, low: &LockKey, high: &LockKey) -> usize {
    let mut removed = 0;
    for shard in shards {
        let points = shard.map.range(low..high);
        let points = points.filter(|(_, entry)| entry.is_only(&stretch.owner) && entry.mode <= stretch.mode);
        let points: Vec<LockKey> = points.map(|(key, _)| key.clone()).collect();
        removed += points.len();
        for key in &points {
            shard.remove_holder(key, &stretch.owner);
        }
    }
    removed
}
