//! Many range-deletes, of which the newest that covers a key is found in logarithmic time, however many do.
//!
//! The starts and ends of the range-deletes part the keys into *stretches*: within one, the same of them cover every key. Over the stretches
//! stands a segment tree (Bentley, "Algorithms for Klee's rectangle problems", 1977): each range-delete lies in the nodes, some 2 log n at most, that
//! together are its interval. Those that cover a key lie in the nodes above its stretch, in each by age. So whoever wants the newest that he
//! sees looks at one of each node, and at those that he does not see. Lists of the range-deletes of every stretch would answer at
//! once, but there are n² places in them where range-deletes lie inside each other.

use crate::format::RangeDelete;

/// Range-deletes, ascending by start, newest first among equals.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RangeList {
    list: Vec<RangeDelete>,
    /// Where stretches begin, ascending; at the last one, the last range-deletes end.
    borders: Vec<Border>,
    /// The tree, its root at 1, the children of a node at twice its number and beside. The upper half are the stretches.
    nodes: Vec<Node>,
    /// The range-deletes of all nodes by their places in `list`, those of a node together, newest first.
    places: Vec<u32>,
    seq_max: u64,
}

/// The start or the end of a range-delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Border {
    place: u32,
    is_end: bool,
}

/// Range-deletes whose interval has all stretches below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Node {
    /// Where they begin in `places`; they end where the next one's begin.
    begin: u32,
    /// The place of the one that begins first.
    first: u32,
    /// The place of the one that ends last.
    last: u32,
}

impl RangeList {
    /// Of range-deletes in any order.
    pub fn new(mut list: Vec<RangeDelete>) -> RangeList {
        sort_ranges(&mut list);
        RangeList::of_sorted(list)
    }

    pub(super) fn of_sorted(list: Vec<RangeDelete>) -> RangeList {
        let seq_max = list.iter().map(|range| range.seq).max().unwrap_or_default();
        let mut ranges = RangeList { list, seq_max, ..RangeList::default() };
        let bounds = ranges.part();
        ranges.plant(&bounds);
        ranges
    }

    /// Finds the borders. Returns the stretch with which each range-delete begins, and the one behind it.
    fn part(&mut self) -> Vec<(u32, u32)> {
        let list = &self.list;
        let mut by_end: Vec<u32> = (0..list.len() as u32).collect();
        by_end.sort_by(|a, b| list[*a as usize].end.cmp(&list[*b as usize].end));
        let mut bounds = vec![(0, 0); list.len()];
        let mut starts = list.iter().zip(0..).peekable();
        let mut last: Option<&[u8]> = None;
        let mut number = |borders: &mut Vec<Border>, key, border| {
            if last.replace(key) != Some(key) {
                borders.push(border);
            }
            borders.len() as u32 - 1
        };
        for place in by_end {
            let end = list[place as usize].end.as_slice();
            while let Some((range, place)) = starts.next_if(|(range, _)| range.start.as_slice() <= end) {
                bounds[place as usize].0 = number(&mut self.borders, &range.start, Border { place, is_end: false });
            }
            bounds[place as usize].1 = number(&mut self.borders, end, Border { place, is_end: true });
        }
        bounds
    }

    /// Fills the tree.
    fn plant(&mut self, bounds: &[(u32, u32)]) {
        let stretches = self.borders.len().saturating_sub(1);
        let mut nodes = vec![Node::default(); 2 * stretches + 1];
        for bounds in bounds {
            // Those of a node are counted in the one behind it, whose begin that becomes.
            nodes_within(stretches, *bounds, |node| nodes[node + 1].begin += 1);
        }
        for at in 1..nodes.len() {
            nodes[at].begin += nodes[at - 1].begin;
        }
        let mut filled: Vec<u32> = nodes.iter().map(|node| node.begin).collect();
        self.places = vec![0; nodes.last().map_or(0, |node| node.begin as usize)];
        let mut by_age: Vec<u32> = (0..self.list.len() as u32).collect();
        by_age.sort_by_key(|place| std::cmp::Reverse(self.list[*place as usize].seq));
        for place in by_age {
            nodes_within(stretches, bounds[place as usize], |at| {
                let node = &mut nodes[at];
                if filled[at] == node.begin {
                    (node.first, node.last) = (place, place);
                }
                node.first = node.first.min(place);
                if bounds[place as usize].1 > bounds[node.last as usize].1 {
                    node.last = place;
                }
                self.places[filled[at] as usize] = place;
                filled[at] += 1;
            });
        }
        self.nodes = nodes;
    }

    /// The highest sequence number of them.
    pub fn seq_max(&self) -> u64 {
        self.seq_max
    }

    /// Bytes beside the keys.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<RangeList>()
            + self.list.capacity() * size_of::<RangeDelete>()
            + self.borders.capacity() * size_of::<Border>()
            + self.nodes.capacity() * size_of::<Node>()
            + self.places.capacity() * size_of::<u32>()
    }

    /// The stretch of `key`.
    pub fn stretch(&self, key: &[u8]) -> Stretch<'_> {
        Stretch { list: self, begun: self.borders.partition_point(|border| self.key(*border) <= key) }
    }

    /// Those that cover `key`, in no order of age.
    pub fn covering(&self, key: &[u8]) -> impl Iterator<Item = &RangeDelete> {
        self.stretch(key).covering()
    }

    /// Those that meet `[lower, upper)` (`None`: no upper bound), in no order of age.
    pub fn meeting(&self, lower: &[u8], upper: Option<&[u8]>) -> impl Iterator<Item = &RangeDelete> {
        let begin = self.list.partition_point(|range| range.start.as_slice() <= lower);
        let begins_below = move |range: &&RangeDelete| upper.is_none_or(|upper| range.start.as_slice() < upper);
        let inside = self.list[begin..].iter().take_while(begins_below).inspect(|range| range.look());
        self.covering(lower).filter(begins_below).chain(inside)
    }

    fn key(&self, border: Border) -> &[u8] {
        let range = &self.list[border.place as usize];
        if border.is_end { &range.end } else { &range.start }
    }
}

impl std::ops::Deref for RangeList {
    type Target = [RangeDelete];

    fn deref(&self) -> &[RangeDelete] {
        &self.list
    }
}

/// An interval of keys whose range-deletes are the same.
#[derive(Debug, Clone, Copy)]
pub struct Stretch<'a> {
    list: &'a RangeList,
    /// Borders up to its own begin.
    begun: usize,
}

impl<'a> Stretch<'a> {
    /// Its lowest key; the first one has the empty key.
    pub fn lower(self) -> &'a [u8] {
        self.begun.checked_sub(1).map_or(&[], |last| self.list.key(self.list.borders[last]))
    }

    /// The lowest key above it, if there is another stretch.
    pub fn upper(self) -> Option<&'a [u8]> {
        self.list.borders.get(self.begun).map(|border| self.list.key(*border))
    }

    /// The nodes above it.
    fn nodes(self) -> impl Iterator<Item = usize> {
        let stretches = self.list.borders.len().saturating_sub(1);
        let at = self.begun.checked_sub(1).filter(|at| *at < stretches);
        std::iter::successors(at.map(|at| at + stretches), |node| (*node > 1).then_some(node / 2))
    }

    /// The range-deletes of a node, newest first.
    fn of(self, node: usize) -> impl Iterator<Item = &'a RangeDelete> {
        let RangeList { list, nodes, places, .. } = self.list;
        let places = &places[nodes[node].begin as usize..nodes[node + 1].begin as usize];
        places.iter().map(|place| &list[*place as usize]).inspect(|range| range.look())
    }

    /// Those that cover its keys, in no order of age.
    pub fn covering(self) -> impl Iterator<Item = &'a RangeDelete> {
        self.nodes().flat_map(move |node| self.of(node))
    }

    /// The newest of them that is newer than `seq` and seen.
    pub fn newest(self, seq: u64, mut is_seen: impl FnMut(&RangeDelete) -> bool) -> Option<&'a RangeDelete> {
        let mut newest: Option<&RangeDelete> = None;
        for node in self.nodes() {
            let seq = newest.map_or(seq, |newest| newest.seq);
            newest = self.of(node).take_while(|range| range.seq > seq).find(|range| is_seen(range)).or(newest);
        }
        newest
    }

    /// Some of those that are newer than `seq` and seen, if there are any: the newest, and as a rule the one that reaches farthest to either side.
    pub fn farthest(
        self,
        seq: u64,
        mut is_seen: impl FnMut(&RangeDelete) -> bool,
    ) -> impl Iterator<Item = &'a RangeDelete> {
        self.nodes().flat_map(move |node| {
            let newest = self.of(node).take_while(|range| range.seq > seq).find(|range| is_seen(range));
            let Node { first, last, .. } = self.list.nodes[node];
            let outer = [first, last].map(|place| &self.list.list[place as usize]);
            let outer = outer.map(|range| (newest.is_some() && range.seq > seq && is_seen(range)).then_some(range));
            outer.into_iter().chain([newest]).flatten()
        })
    }
}

/// Shows `visit` the nodes of a tree over `stretches` that together are the stretches from the first bound to below the second.
fn nodes_within(stretches: usize, (lower, upper): (u32, u32), mut visit: impl FnMut(usize)) {
    let (mut lower, mut upper) = (lower as usize + stretches, upper as usize + stretches);
    while lower < upper {
        if lower % 2 == 1 {
            visit(lower);
            lower += 1;
        }
        if upper % 2 == 1 {
            upper -= 1;
            visit(upper);
        }
        (lower, upper) = (lower / 2, upper / 2);
    }
}

/// Sorts range-deletes as a block has them.
pub fn sort_ranges(list: &mut [RangeDelete]) {
    list.sort_by(|a, b| a.start.cmp(&b.start).then(b.seq.cmp(&a.seq)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Stamp;
    use crate::format::message::LOOKS;
    use proptest::prelude::*;

    fn range(start: u32, end: u32, seq: u64) -> RangeDelete {
        let key = |number: u32| number.to_be_bytes().to_vec();
        RangeDelete { start: key(start), end: key(end), seq, stamp: Stamp::Settled }
    }

    proptest! {
        #[test]
        fn a_list_finds_those_that_meet(
            bounds in prop::collection::vec((0u8..30, 1u8..12), 0..40),
            probes in prop::collection::vec((0u8..45, 0u8..10), 20),
        ) {
            let list: Vec<RangeDelete> = bounds
                .into_iter()
                .enumerate()
                .map(|(seq, (start, length))| RangeDelete { start: vec![start], end: vec![start + length], seq: seq as u64, stamp: Stamp::Settled })
                .collect();
            let ranges = RangeList::new(list.clone());
            let sorted = |mut seqs: Vec<u64>| {
                seqs.sort_unstable();
                seqs
            };
            for (low, length) in probes {
                let (low, high) = ([low], [low + length]);
                let wanted: Vec<u64> = list.iter().filter(|range| range.covers(&low)).map(|range| range.seq).collect();
                prop_assert_eq!(sorted(ranges.covering(&low).map(|range| range.seq).collect()), wanted);
                for upper in [Some(&high[..]), None] {
                    let meets = |range: &&RangeDelete| range.end[..] > low[..] && upper.is_none_or(|upper| range.start[..] < *upper);
                    let wanted: Vec<u64> = list.iter().filter(meets).map(|range| range.seq).collect();
                    prop_assert_eq!(sorted(ranges.meeting(&low, upper).map(|range| range.seq).collect()), wanted);
                }
            }
        }

        #[test]
        fn the_newest_that_is_seen_is_found_wherever_a_stretch_lies(
            bounds in prop::collection::vec((0u32..30, 1u32..12, 1u64..60, any::<bool>()), 0..40),
            probe in 0u32..45,
            above in 0u64..60,
        ) {
            let list: Vec<RangeDelete> = bounds.iter().map(|(start, length, seq, _)| range(*start, start + length, *seq)).collect();
            let hidden: Vec<u64> = bounds.iter().filter(|(.., is_hidden)| *is_hidden).map(|(_, _, seq, _)| *seq).collect();
            let is_seen = |range: &RangeDelete| !hidden.contains(&range.seq);
            let key = probe.to_be_bytes();
            let wanted = |range: &&RangeDelete| range.covers(&key) && range.seq > above && is_seen(range);
            let ranges = RangeList::new(list.clone());
            let stretch = ranges.stretch(&key);
            let newest = list.iter().filter(wanted).map(|range| range.seq).max();
            prop_assert_eq!(stretch.newest(above, is_seen).map(|range| range.seq), newest);
            let farthest: Vec<&RangeDelete> = stretch.farthest(above, is_seen).collect();
            prop_assert!(farthest.iter().all(wanted));
            prop_assert_eq!(farthest.iter().map(|range| range.seq).max(), newest);
            if hidden.is_empty() && above == 0 {
                prop_assert_eq!(farthest.iter().map(|range| &range.end).max(), list.iter().filter(wanted).map(|range| &range.end).max());
                prop_assert_eq!(farthest.iter().map(|range| &range.start).min(), list.iter().filter(wanted).map(|range| &range.start).min());
            }
            let borders = || list.iter().flat_map(|range| [&range.start[..], &range.end[..]]);
            prop_assert_eq!(stretch.lower(), borders().filter(|border| *border <= &key[..]).max().unwrap_or_default());
            prop_assert_eq!(stretch.upper(), borders().filter(|border| *border > &key[..]).min());
        }
    }

    #[test]
    fn few_range_deletes_are_looked_at_whatever_lies_around_a_key() {
        const COUNT: u32 = 10_000;
        let narrow = |at: u32| range(4 * at, 4 * at + 2, u64::from(at));
        let wide = range(0, u32::MAX, 0);
        let inside_each_other = |at: u32| range(at, 8 * COUNT - at, u64::from(at));
        let around_each_other = |at: u32| range(COUNT - at, 7 * COUNT + at, u64::from(at));
        let in_groups =
            |at: u32| range(4 * at, if at.is_multiple_of(100) { 4 * at + 350 } else { 4 * at + 2 }, u64::from(at));
        let lists: [(&str, Vec<RangeDelete>); 7] = [
            ("narrow", (0..COUNT).map(narrow).collect()),
            ("behind a wide one", (0..COUNT).map(narrow).chain([wide.clone()]).collect()),
            ("inside each other", (0..COUNT).map(inside_each_other).collect()),
            ("around each other", (0..COUNT).map(around_each_other).collect()),
            ("in groups behind a wide one", (0..COUNT).map(in_groups).chain([wide]).collect()),
            ("the same again and again", (0..COUNT).map(|at| range(100, 5 * COUNT, u64::from(at))).collect()),
            ("from one start, the newer the wider", (0..COUNT).map(|at| range(100, 200 + at, u64::from(at))).collect()),
        ];
        for (name, list) in lists {
            let ranges = RangeList::new(list);
            for key in (0..9 * COUNT).step_by(997) {
                let key = key.to_be_bytes();
                let looks = |ask: &dyn Fn(Stretch<'_>) -> usize| {
                    let before = LOOKS.get();
                    let found = ask(ranges.stretch(&key));
                    (LOOKS.get() - before, found as u64)
                };
                let (looked, found) = looks(&|stretch| stretch.covering().take(3).count());
                assert!(looked <= found, "{name}: key={key:?} found={found} looked={looked}");
                let (looked, found) = looks(&|stretch| stretch.newest(0, |_| true).iter().count());
                assert!(looked <= 20, "{name}: key={key:?} found={found} looked={looked}");
                let (looked, found) = looks(&|stretch| stretch.farthest(0, |_| true).count());
                assert!(looked <= 20, "{name}: key={key:?} found={found} looked={looked}");
            }
        }
    }
}
