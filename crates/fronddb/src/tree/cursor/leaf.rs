//! The merged sources of one leaf range.

use std::sync::Arc;

use smallvec::SmallVec;

use super::OwnedView;
use super::ranges::Ranges;
use crate::base::Result;
use crate::base::key::{KeyRange, head, lower_of};
use crate::run::{CursorMode, Goal};
use crate::tree::node::{Node, Target};
use crate::tree::rent::Read;
use crate::tree::source::Source;
use crate::tree::{BeTree, Version};

/// Runs that there mostly are at most on the way to a leaf and in it.
const PATH_RUNS_USUAL: usize = 8;
/// Memtables that there mostly are at most.
const LEVEL0_USUAL: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) head: u128,
    pub(super) rank: u32,
}

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) source: Source,
    /// All its messages have sequence numbers up to this.
    pub(super) seq_max: u64,
    /// Of the node in whose buffer it lies; 0 where what is passed in it is not paid for: it is in none, or a long scan has paid already.
    pub(super) height: u8,
    /// Keys that the cursor went through in it, one by one.
    pub(super) passed: u32,
}

/// The merged sources of one leaf range.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Keeps what the sources read.
    pub(super) version: Arc<Version>,
    /// The keys for which the sources are complete.
    pub(super) range: Arc<KeyRange>,
    /// [`head`] of its end; keys with a lower one are inside.
    upper_head: u128,
    pub(super) streams: Vec<Stream>,
    /// Valid sources by position; the next one in the direction of travel is last.
    pub(super) order: Vec<Place>,
    /// Visible range-deletes that touch the range.
    pub(super) ranges: Ranges,
}

impl Leaf {
    /// The leaf range of `key` (backward: of the keys just below it; `None`: below the end of all) inside
    /// `range`, with every source at its first message in the direction of travel.
    pub(super) fn open(
        tree: &BeTree,
        view: &OwnedView,
        range: &Arc<KeyRange>,
        mode: CursorMode,
        direction: Direction,
        key: Option<&[u8]>,
    ) -> Result<Leaf> {
        let version = tree.version_guard();
        let forward = direction == Direction::Forward;
        let mut lower: &[u8] = &[];
        let mut upper: Option<&[u8]> = None;
        let mut runs = SmallVec::<[_; PATH_RUNS_USUAL]>::new();
        let mut node: &Arc<Node> = &version.root;
        loop {
            let index = match key {
                Some(key) if forward => node.find(key),
                Some(key) => node.find_below(key),
                None => node.slots().len() - 1,
            };
            let slot = &node.slots()[index];
            lower = if index == 0 { lower } else { slot.lower() };
            upper = node.upper(index, upper);
            runs.extend(slot.buffer().iter().map(|run| (run, Some((node.height(), slot)))));
            tree.charge(node.height(), slot, if mode.is_long { Read::Scan } else { Read::Seek });
            match slot.target() {
                Target::Leaf(base) => {
                    runs.extend(base.iter().map(|run| (run, None)));
                    break;
                }
                Target::Node(child) => node = child.load(&tree.env)?,
            }
        }
        let range = inside(lower, upper, range);
        let (lower, upper) = (range.lower.as_slice(), range.upper.as_deref());
        let mut ranges = Ranges::default();
        let mut streams = Vec::with_capacity(runs.len() + LEVEL0_USUAL);
        for level0 in version.level0() {
            if level0.has_range_deletes() {
                level0.range_deletes(|lists| ranges.add_all(lists, view, lower, upper));
            }
            // The first one is what writers add to.
            let seq_max = match streams.is_empty() {
                true => u64::MAX,
                false => level0.seq_bounds().map_or(0, |(_, max)| max),
            };
            streams.push(Stream { source: Source::Level0(level0.cursor()), seq_max, height: 0, passed: 0 });
        }
        let touches = |first: &[u8], last: &[u8]| last >= lower && upper.is_none_or(|upper| first < upper);
        let first_run = streams.len();
        // The slot in whose buffer each of those runs lies.
        let mut pays = SmallVec::<[_; PATH_RUNS_USUAL]>::new();
        for (run, slot) in runs {
            let meta = run.meta();
            if run.has_range_deletes() {
                ranges.add(&run.range_deletes()?, view, lower, upper);
            }
            if meta.messages > 0 && touches(&meta.first_key, &meta.last_key) {
                let source = Source::Run(run.cursor_within(mode, &range));
                let height = slot.filter(|_| !mode.is_long).map_or(0, |(height, _)| height);
                streams.push(Stream { source, seq_max: meta.max_seq, height, passed: 0 });
                pays.push(slot);
            }
        }
        let order = Vec::with_capacity(streams.len());
        let upper_head = upper.map_or(u128::MAX, head);
        let mut leaf = Leaf { range, upper_head, streams, order, ranges, version: Arc::clone(&version) };
        let goal = match key {
            Some(key) if forward => Goal::AtOrAbove(key.max(leaf.range.lower.as_slice())),
            None if forward => Goal::First,
            Some(key) => Goal::Below(key),
            None => Goal::Last,
        };
        go(&mut leaf.streams, goal)?;
        for rank in 0..leaf.streams.len() {
            let pays = rank.checked_sub(first_run).and_then(|run| pays[run]);
            if let (Some((height, slot)), Source::Run(cursor)) = (pays, &leaf.streams[rank].source) {
                tree.charge_misses(height, slot, cursor.lone_reads());
            }
            leaf.place(rank as u32, direction)?;
        }
        Ok(leaf)
    }

    /// The buffers that it went through keys of are charged for those.
    pub(super) fn settle(&self, tree: &BeTree) {
        let passed = |height| {
            let streams = self.streams.iter().filter(|stream| stream.height == height);
            streams.map(|stream| u64::from(stream.passed)).sum()
        };
        if self.streams.iter().any(|stream| stream.height > 0 && stream.passed > 0) {
            tree.charge_passed(&self.version, &self.range.lower, passed);
        }
    }

    /// Puts a source that has moved back in order, after jumping over what a range-delete has emptied.
    #[inline]
    pub(super) fn place(&mut self, rank: u32, direction: Direction) -> Result<()> {
        let stream = &mut self.streams[rank as usize];
        if !self.ranges.is_empty() {
            jump(stream, &mut self.ranges, direction)?;
        }
        if !stream.source.valid() {
            return Ok(());
        }
        let place = Place { head: head(stream.source.key()), rank };
        self.insert(place, direction);
        Ok(())
    }

    /// As [`Leaf::place`] for a valid source whose key has this head.
    #[inline]
    pub(super) fn place_ahead(&mut self, place: Place) -> Result<()> {
        if !self.ranges.is_empty() {
            return self.place(place.rank, Direction::Forward);
        }
        self.insert(place, Direction::Forward);
        Ok(())
    }

    #[inline]
    fn insert(&mut self, place: Place, direction: Direction) {
        let mut at = self.order.len();
        while at > 0 && self.comes_before(self.order[at - 1], place, direction) {
            at -= 1;
        }
        self.order.insert(at, place);
    }

    /// True when the source at `place` stands at `key`, whose head the caller has at hand.
    #[inline]
    pub(super) fn stands_at(&self, place: Place, key: &[u8], key_head: u128) -> bool {
        place.head == key_head && self.streams[place.rank as usize].source.key() == key
    }

    /// True when `a` is reached before `b`; at one key the newer source first.
    #[inline]
    fn comes_before(&self, a: Place, b: Place, direction: Direction) -> bool {
        let key = |place: Place| self.streams[place.rank as usize].source.key();
        let by_key = if a.head == b.head { key(a).cmp(key(b)) } else { a.head.cmp(&b.head) };
        let by_key = if direction == Direction::Forward { by_key } else { by_key.reverse() };
        by_key.then(a.rank.cmp(&b.rank)).is_lt()
    }

    /// Rows of a stretch that follow the one at which the next source stands, if there is one: see [`super`]. Also whether no row
    /// at all comes after them below `end`, which is the end of this range or beyond it.
    pub(super) fn uniform_ahead(&self, end: Option<&[u8]>) -> Option<(usize, bool)> {
        let (current, others) = self.order.split_last()?;
        let Source::Run(cursor) = &self.streams[current.rank as usize].source else { return None };
        let gap_end = self.ranges.known_gap_end(cursor.key())?;
        let other = others.last().map(|place| self.streams[place.rank as usize].source.key());
        let limit = lower_of(lower_of(other, self.range.upper.as_deref()), gap_end);
        let (left, is_limit_met) = cursor.uniform_ahead(limit)?;
        Some((left, is_limit_met && limit == end))
    }

    #[inline]
    pub(super) fn is_inside(&self, place: Place) -> bool {
        place.head < self.upper_head
            || self.range.upper.as_deref().is_none_or(|upper| self.streams[place.rank as usize].source.key() < upper)
    }
}

/// What lies in `range` of the keys in `[lower, upper)`: itself where that is all of it.
fn inside(lower: &[u8], upper: Option<&[u8]>, range: &Arc<KeyRange>) -> Arc<KeyRange> {
    let end = lower_of(upper, range.upper.as_deref());
    if lower <= range.lower.as_slice() && end == range.upper.as_deref() {
        return range.clone();
    }
    Arc::new(KeyRange { lower: lower.max(&range.lower).to_vec(), upper: end.map(<[u8]>::to_vec) })
}

/// All sources go there. The blocks of messages that have to be read for that are read at once: by this thread for the newest of them, which is mostly
/// small, by those that read ahead for the others.
fn go(streams: &mut [Stream], goal: Goal<'_>) -> Result<()> {
    let mut missed = Vec::new();
    for (rank, stream) in streams.iter_mut().enumerate() {
        if !stream.source.try_go(goal)? {
            missed.push(rank);
        }
    }
    for rank in missed.iter().skip(1) {
        streams[*rank].source.ask(goal);
    }
    for rank in missed {
        streams[rank].source.go(goal)?;
    }
    Ok(())
}

fn jump(stream: &mut Stream, ranges: &mut Ranges, direction: Direction) -> Result<()> {
    let Stream { source, seq_max, .. } = stream;
    while source.valid() {
        match (ranges.end_above(source.key(), *seq_max, direction), direction) {
            (None, _) => return Ok(()),
            (Some(end), Direction::Forward) => source.seek(end)?,
            (Some(start), Direction::Backward) => source.seek_before(start)?,
        }
    }
    Ok(())
}
