//! About how many messages lie between two keys, from few nodes of a tree of the list.
//!
//! A search for each end says exactly how much of each node on the way lies inside. What lies wholly inside, below the
//! nodes between the two ways, is estimated: some of those nodes are chosen evenly, and from each one goes down at random to a leaf;
//! the product of the numbers of entries on that way is, on average, the number of messages below (Knuth 1975, "Estimating the efficiency of
//! backtrack programs"). Where there are no more leaves than ways, all are looked at. Most nodes are between half full and full (a leaf that has forgotten may be
//! emptier), so a handful of ways comes near.
//!
//! Inner nodes may lag behind the leaves (see [`super::leaves`]): what they do not know yet is not counted.
//!
//! A row that is written over and over is one row: of its puts only the oldest counts as one ([`counted_as`]). Of a leaf that has nothing but
//! messages of one row, what they come to is told from the first and the last.
#![allow(unsafe_code, reason = "leaves in an arena, linked by atomic pointers")]

use std::sync::atomic::Ordering;

use super::leaf::{Leaf, Link, next_of};
use super::leaves::LeafList;
use super::node::{self, Target};
use super::order::{self, SLOTS};
use crate::format::{Kind, Message};

/// Ways down from the nodes between the two searches, where these part, at most.
const WAYS: usize = 64;
/// Ways down on each level below that, at most.
const WAYS_AT_THE_ENDS: usize = 24;

/// What lies in a range: about how many messages, and how many of each kind were among those looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RangeSample {
    pub(crate) messages: f64,
    /// By the number of [`counted_as`].
    pub(crate) kinds: [u64; 6],
    /// Bytes of keys and payloads of those that count.
    pub(crate) bytes: u64,
    /// Bytes of the data file that their large values take; 0 for a range over several trees.
    pub(crate) blob_bytes: u64,
}

impl RangeSample {
    /// One more was looked at. `older`: the next one in order.
    pub(crate) fn look_at(&mut self, message: &Message<'_>, older: Option<&Message<'_>>) {
        let number = counted_as(message, older);
        self.kinds[number] += 1;
        if number > 0 {
            self.bytes += (message.key.len() + message.payload.len()) as u64;
            self.blob_bytes += message.blob_bytes();
        }
    }

    /// `count` messages of one key were met, of which the first, the last, and `older`, the one after that in order, are known. The row is there after
    /// them or not, and was before them or not. What lies between adds up to the difference, as [`counted_as`] counts, and is not looked at, as each
    /// message is in a place of its own.
    fn look_at_row(&mut self, count: u64, newest: &Message<'_>, oldest: &Message<'_>, older: Option<&Message<'_>>) {
        let was_there = match older.filter(|older| older.key == oldest.key) {
            Some(older) => puts(older),
            None => !puts(oldest),
        };
        self.kinds[0] += count - 1;
        match (puts(newest), was_there) {
            (true, false) => self.look_at(newest, None),
            (false, true) => self.kinds[Kind::Delete as usize] += 1,
            _ => self.kinds[0] += 1,
        }
    }
}

/// As what a message counts beside the next older one of the memtable, whatever its key: the number of its kind, or 0, which is none's, for a
/// put of a key that has been put before and not been deleted since.
fn counted_as(message: &Message<'_>, older: Option<&Message<'_>>) -> usize {
    let is_put_before = older.is_some_and(|older| puts(older) && older.key == message.key);
    if puts(message) && is_put_before { 0 } else { message.kind as usize }
}

/// Whether its row is there afterwards, as far as it tells.
pub(super) fn puts(message: &Message<'_>) -> bool {
    matches!(message.kind, Kind::Put | Kind::InsertIfAbsent | Kind::Update)
}

struct Sampler<'l> {
    list: &'l LeafList,
    found: RangeSample,
    random: u64,
}

impl LeafList {
    /// Estimates the messages of one tree from `lower` on, up to `upper` (`None`: to the end of that tree).
    pub(super) fn sample(&self, lower: &Target<'_>, upper: Option<&Target<'_>>) -> RangeSample {
        let start = self.start_of(lower.tree);
        // Safety: the head or the first leaf of a tree.
        let first = unsafe { self.at(start) };
        if first.tree != u64::from(lower.tree) {
            return RangeSample::default();
        }
        let mut sampler = Sampler { list: self, found: RangeSample::default(), random: 0x9e37_79b9_7f4a_7c15 };
        let messages = sampler.between(first.root.load(Ordering::Acquire), Some(lower), upper, WAYS);
        RangeSample { messages, ..sampler.found }
    }
}

impl Sampler<'_> {
    /// Messages below a node, from `lower` up to `upper`; `None`: from its first, to its last.
    fn between(&mut self, link: Link, lower: Option<&Target<'_>>, upper: Option<&Target<'_>>, ways: usize) -> f64 {
        let list = self.list;
        // Safety: a root or an entry of an inner node (S3); the node left of `lower` precedes it.
        let (node, link) = match lower {
            Some(target) => {
                let (node, link, _) = unsafe { list.move_right(link, target) };
                (node, link)
            }
            None => (unsafe { list.at(link) }, link),
        };
        if node.level == 0 {
            return self.between_messages((node, link), lower, upper);
        }
        let (.., (children, first, last)) = node.read(|order| {
            let rank = |target: &Target<'_>| node.lower_bound(order, target).saturating_sub(1);
            let count = order::count(order);
            let mut children: [Link; SLOTS] = [std::ptr::null_mut(); SLOTS];
            (0..count).for_each(|rank| children[rank] = node.entry(order, rank).cast());
            (children, lower.map_or(0, rank), upper.map_or(count.saturating_sub(1), rank))
        });
        if first >= last {
            return self.between(children[first], lower, upper, ways);
        }
        let ends = self.between(children[first], lower, None, WAYS_AT_THE_ENDS)
            + self.between(children[last], None, upper, WAYS_AT_THE_ENDS);
        let whole = &children[first + 1..last];
        let leaves_max = whole.len().saturating_mul(SLOTS.saturating_pow(node.level as u32 - 1));
        if leaves_max <= ways {
            return ends + whole.iter().map(|&child| self.between(child, None, None, ways)).sum::<f64>();
        }
        let below: f64 = (0..ways).map(|way| self.way_down(whole[way * whole.len() / ways])).sum();
        ends + below * whole.len() as f64 / ways as f64
    }

    /// Messages of a leaf, which is given with its link.
    fn between_messages(
        &mut self,
        (leaf, link): (&Leaf, Link),
        lower: Option<&Target<'_>>,
        upper: Option<&Target<'_>>,
    ) -> f64 {
        let (.., (nodes, count, follower)) = leaf.read(|order| {
            let rank = |target: &Target<'_>| leaf.lower_bound(order, target);
            let (first, last) = (lower.map_or(0, rank), upper.map_or(order::count(order), rank));
            let mut nodes = [std::ptr::null_mut(); SLOTS];
            (first..last).for_each(|rank| nodes[rank - first] = leaf.entry(order, rank));
            let follower = (last < order::count(order)).then(|| leaf.entry(order, last));
            (nodes, last.saturating_sub(first), follower)
        });
        // Safety: the link of a leaf, which leads to leaves with an anchor; messages that an order named, and anchors (S3).
        let message = |node| unsafe { node::message_of(node) };
        let anchor_behind = || {
            let next = unsafe { next_of(link, 0).load(Ordering::Acquire) };
            let anchor = if next.is_null() { std::ptr::null_mut() } else { unsafe { self.list.at(next) }.anchor };
            (!anchor.is_null()).then_some(anchor)
        };
        let mut older = follower.or_else(anchor_behind).map(message);
        let nodes = &nodes[..count];
        if let [newest, .., oldest] = nodes {
            let (newest, oldest) = (message(*newest), message(*oldest));
            if newest.key == oldest.key {
                self.found.look_at_row(count as u64, &newest, &oldest, older.as_ref());
                return count as f64;
            }
        }
        for &node in nodes.iter().rev() {
            let found = message(node);
            self.found.look_at(&found, older.as_ref());
            older = Some(found);
        }
        count as f64
    }

    /// Goes down at random; what one finds on the way, multiplied.
    fn way_down(&mut self, mut link: Link) -> f64 {
        let mut product = 1.0;
        loop {
            // Safety: an entry of an inner node (S3).
            let node = unsafe { self.list.at(link) };
            if node.level == 0 {
                return product * self.between_messages((node, link), None, None);
            }
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let random = self.random as usize;
            let (.., (count, child)) = node.read(|order| {
                let count = order::count(order);
                (count, node.entry(order, random % count.max(1)))
            });
            product *= count as f64;
            link = child.cast();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::key::inner;
    use crate::base::memory::MemoryBudget;
    use crate::base::{TreeId, TxnId};
    use crate::format::{Kind, Message, Stamp};
    use crate::memtable::ChunkPool;

    fn add(list: &LeafList, tree: u32, number: u64, kind: Kind) {
        let key = inner(TreeId(tree), &number.to_be_bytes());
        let message = Message { key: &key, seq: 1, stamp: Stamp::Settled, kind, blob: false, payload: b"" };
        list.insert((1, TxnId(1), 0), &message, || None);
    }

    /// A number that has no factor in common with `count`.
    fn step(count: u64) -> u64 {
        let common = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        (7919..).find(|step| common(*step, count) == 1).unwrap_or(1)
    }

    fn sample(list: &LeafList, from: u64, to: Option<u64>) -> RangeSample {
        let key = |number: u64| inner(TreeId(5), &number.to_be_bytes());
        let (from, to) = (key(from), to.map(key));
        let upper = to.as_deref().map(|key| Target::new(key, u64::MAX));
        list.sample(&Target::new(&from, u64::MAX), upper.as_ref())
    }

    const COUNT_MAX: u64 = if cfg!(miri) { 200 } else { 30_000 };

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn what_is_done_to_a_row_comes_to_the_same_from_both_ends(
            is_put in prop::collection::vec(any::<bool>(), 3..20),
            older in prop::option::of((any::<bool>(), any::<bool>())),
        ) {
            let message = |key, is_put: bool| {
                let kind = if is_put { Kind::Put } else { Kind::Delete };
                Message { key, seq: 1, stamp: Stamp::Settled, kind, blob: false, payload: b"" }
            };
            let mut row: Vec<_> = is_put.into_iter().map(|is_put| message(b"row", is_put)).collect();
            let older = older.map(|(is_same, is_put)| message(if is_same { b"row" } else { b"other" }, is_put));
            // What is not there is not deleted.
            row.dedup_by(|later, newer| later.kind == Kind::Delete && newer.kind == Kind::Delete);
            let oldest = row[row.len() - 1];
            let none_there = |older: &Message<'_>| older.key == b"row" && older.kind == Kind::Delete;
            prop_assume!(row.len() > 1 && !(oldest.kind == Kind::Delete && older.as_ref().is_some_and(none_there)));
            let (mut one_by_one, mut at_once) = (RangeSample::default(), RangeSample::default());
            for at in 0..row.len() {
                one_by_one.look_at(&row[at], row.get(at + 1).or(older.as_ref()));
            }
            at_once.look_at_row(row.len() as u64, &row[0], &oldest, older.as_ref());
            let rows = |found: &RangeSample| found.kinds[Kind::Put as usize] as i64 - found.kinds[Kind::Delete as usize] as i64;
            prop_assert_eq!(rows(&one_by_one), rows(&at_once));
            prop_assert_eq!(one_by_one.kinds.iter().sum::<u64>(), at_once.kinds.iter().sum::<u64>());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 24 }, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn an_estimate_is_near(
            count in 1..COUNT_MAX,
            ascending: bool,
            ends in prop::collection::vec((0..COUNT_MAX, 0..COUNT_MAX), 20),
        ) {
            let list = LeafList::new(&ChunkPool::new(&MemoryBudget::new(1 << 30)));
            add(&list, 4, 0, Kind::Put);
            add(&list, 6, 0, Kind::Put);
            for number in 0..count {
                // Every number below `count` once: in order, or spread by a step without a common factor.
                let number = if ascending { number } else { number * step(count) % count };
                add(&list, 5, number, if number % 3 == 0 { Kind::Delete } else { Kind::Put });
            }
            for (from, to) in ends {
                let found = sample(&list, from, Some(to));
                let real = to.min(count).saturating_sub(from.min(count)) as f64;
                prop_assert!(found.messages <= 1.6 * real + 3.0 && real <= 1.6 * found.messages + 3.0, "{found:?} {real}");
                if real > 300.0 {
                    let looked_at: u64 = found.kinds.iter().sum();
                    let deletes = found.kinds[Kind::Delete as usize] as f64 / looked_at as f64;
                    prop_assert!((deletes - 1.0 / 3.0).abs() < 0.1, "{found:?}");
                }
            }
            let all = sample(&list, 0, None).messages;
            prop_assert!(all <= 1.5 * count as f64 && count as f64 <= 1.5 * all);
        }
    }
}
