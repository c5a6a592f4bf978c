//! Range-delete blocks: the range-deletes of a run, few as a rule, read as a whole.
//!
//! Raw form: their number (varint); then for each, ascending by start, newest first among equals: start
//! and end (byte strings), sequence number (varint), stamp (0 settled · 1 committed, number · 2 written,
//! transaction, step; all varints). From version 2 on, the address of the block with those before them may follow (two varints): what would make
//! too large a block is parted, and read from its last part on.

use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::{BlockPtr, CommitNumber, Error, Result, TxnId};
use crate::format::{RangeDelete, Stamp};
use std::sync::Arc;

/// Range-deletes, ascending by start, newest first among equals, to be asked which of them meet a key or an interval. One that does is found
/// in logarithmic time, whatever lies around it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RangeList {
    list: Vec<RangeDelete>,
    /// For each.
    farther: Vec<Farther>,
    seq_max: u64,
}

/// Which of the range-deletes before one end farther than it does, by their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Farther {
    /// The nearest; [`NONE`] if none does. Those in between say nothing of a key at which the one itself has ended.
    nearest: u32,
    /// The one that is some steps to the nearest away, or the one itself if it has no nearest. The steps are chosen so that the
    /// first that ends above a key is some log n of these and those away (Myers, "An applicative random-access stack", 1983).
    far: u32,
}

const NONE: u32 = u32::MAX;

impl RangeList {
    /// Of range-deletes in any order.
    pub fn new(mut list: Vec<RangeDelete>) -> RangeList {
        sort_ranges(&mut list);
        RangeList::of_sorted(list)
    }

    fn of_sorted(list: Vec<RangeDelete>) -> RangeList {
        let mut farther: Vec<Farther> = Vec::with_capacity(list.len());
        let mut depths: Vec<u32> = Vec::with_capacity(list.len());
        for (at, range) in list.iter().enumerate() {
            let mut nearest = at.checked_sub(1).map_or(NONE, |before| before as u32);
            while nearest != NONE && list[nearest as usize].end <= range.end {
                nearest = farther[nearest as usize].nearest;
            }
            if nearest == NONE {
                farther.push(Farther { nearest, far: at as u32 });
                depths.push(0);
                continue;
            }
            let steps = |from: u32, to: u32| depths[from as usize] - depths[to as usize];
            let far = farther[nearest as usize].far;
            let farthest = farther[far as usize].far;
            let far = if steps(nearest, far) == steps(far, farthest) { farthest } else { nearest };
            farther.push(Farther { nearest, far });
            depths.push(depths[nearest as usize] + 1);
        }
        let seq_max = list.iter().map(|range| range.seq).max().unwrap_or_default();
        RangeList { list, farther, seq_max }
    }

    /// The highest sequence number of them.
    pub fn seq_max(&self) -> u64 {
        self.seq_max
    }

    /// Those that cover `key`, in no order of age.
    pub fn covering(&self, key: &[u8]) -> impl Iterator<Item = &RangeDelete> {
        self.beyond(self.begun(key), key)
    }

    /// Those that meet `[lower, upper)` (`None`: no upper bound), in no order of age.
    pub fn meeting(&self, lower: &[u8], upper: Option<&[u8]>) -> impl Iterator<Item = &RangeDelete> {
        let count =
            upper.map_or(self.list.len(), |upper| self.list.partition_point(|range| range.start.as_slice() < upper));
        self.beyond(count, lower)
    }

    /// Where the next one begins above `key`.
    pub fn next_start(&self, key: &[u8]) -> Option<&[u8]> {
        self.list.get(self.begun(key)).map(|range| range.start.as_slice())
    }

    /// The farthest end of those that begin at or below `key`.
    pub fn farthest_end(&self, key: &[u8]) -> Option<&[u8]> {
        let mut at = self.begun(key).checked_sub(1)?;
        while self.farther[at].nearest != NONE {
            at = self.farther[at].far as usize;
        }
        Some(self.list[at].end.as_slice())
    }

    /// How many begin at or below `key`.
    fn begun(&self, key: &[u8]) -> usize {
        self.list.partition_point(|range| range.start.as_slice() <= key)
    }

    /// Of the first `count`, those that end above `key`.
    fn beyond(&self, count: usize, key: &[u8]) -> impl Iterator<Item = &RangeDelete> {
        let mut place = count.checked_sub(1);
        std::iter::from_fn(move || {
            loop {
                let at = place?;
                let range = &self.list[at];
                if range.ends_above(key) {
                    place = at.checked_sub(1);
                    return Some(range);
                }
                place = self.skip_ended(at, key);
            }
        })
    }

    /// Where to look next, down from one that does not end above `key`.
    fn skip_ended(&self, at: usize, key: &[u8]) -> Option<usize> {
        let Farther { nearest, far } = self.farther[at];
        let next = if nearest == NONE || self.list[far as usize].ends_above(key) { nearest } else { far };
        (next != NONE).then_some(next as usize)
    }
}

impl std::ops::Deref for RangeList {
    type Target = [RangeDelete];

    fn deref(&self) -> &[RangeDelete] {
        &self.list
    }
}

/// Range-deletes that become more, to be asked the same. Never changes: one more makes another.
///
/// The logarithmic method (Bentley, Saxe, 1980): sorted lists, each more than twice as long as the next one. A new one is a list of its own; lists
/// that are too short for those behind them become one. So each range-delete is put into some log n lists, and a question is put to as many.
#[derive(Debug, Clone, Default)]
pub struct RangeLists {
    lists: Vec<Arc<RangeList>>,
}

impl RangeLists {
    /// These and one more.
    #[must_use]
    pub fn with(&self, range: RangeDelete) -> RangeLists {
        let mut lists = self.lists.clone();
        let mut added = vec![range];
        while let Some(last) = lists.pop_if(|last| last.len() <= 2 * added.len()) {
            added.extend_from_slice(&last);
        }
        lists.push(Arc::new(RangeList::new(added)));
        RangeLists { lists }
    }

    /// None yet.
    pub fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The sorted lists.
    pub fn lists(&self) -> &[Arc<RangeList>] {
        &self.lists
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &RangeDelete> {
        self.lists.iter().flat_map(|list| list.iter())
    }

    /// As [`RangeList::covering`].
    pub fn covering(&self, key: &[u8]) -> impl Iterator<Item = &RangeDelete> {
        self.lists.iter().flat_map(move |list| list.covering(key))
    }

    /// As [`RangeList::meeting`].
    pub fn meeting(&self, lower: &[u8], upper: Option<&[u8]>) -> impl Iterator<Item = &RangeDelete> {
        self.lists.iter().flat_map(move |list| list.meeting(lower, upper))
    }
}

impl From<Vec<RangeDelete>> for RangeLists {
    fn from(list: Vec<RangeDelete>) -> RangeLists {
        let lists = if list.is_empty() { Vec::new() } else { vec![Arc::new(RangeList::new(list))] };
        RangeLists { lists }
    }
}

/// The decoded range-deletes of a run, or a part of them.
#[derive(Debug)]
pub struct RangeBlock {
    /// All of them.
    pub list: Arc<RangeList>,
    /// The block with those that come before them.
    pub before: Option<BlockPtr>,
}

/// Bytes that a range-delete takes in the raw form, at most.
pub fn encoded_bytes_max(range: &RangeDelete) -> usize {
    range.start.len() + range.end.len() + 48
}

/// Sorts range-deletes as a block has them.
pub fn sort_ranges(list: &mut [RangeDelete]) {
    list.sort_by(|a, b| a.start.cmp(&b.start).then(b.seq.cmp(&a.seq)));
}

impl RangeBlock {
    /// Appends the raw form of a sorted list, or of a part of one that others come `before`.
    pub fn encode(list: &[RangeDelete], before: Option<BlockPtr>, out: &mut Vec<u8>) {
        put_varint(out, list.len() as u64);
        for range in list {
            put_bytes(out, &range.start);
            put_bytes(out, &range.end);
            put_varint(out, range.seq);
            match range.stamp {
                Stamp::Settled => out.push(0),
                Stamp::Committed(number) => {
                    out.push(1);
                    put_varint(out, number.0);
                }
                Stamp::Written { txn, step } => {
                    out.push(2);
                    put_varint(out, txn.0);
                    put_varint(out, u64::from(step));
                }
            }
        }
        if let Some(before) = before {
            before.encode(out);
        }
    }

    /// Decodes and validates the raw form.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(raw: &[u8]) -> Result<RangeBlock> {
        let mut decoder = Decoder::new(raw);
        let mut list: Vec<RangeDelete> = Vec::new();
        for _ in 0..decoder.count(4)? {
            let start = decoder.bytes()?.to_vec();
            let end = decoder.bytes()?.to_vec();
            let seq = decoder.varint()?;
            let stamp = match decoder.u8()? {
                0 => Stamp::Settled,
                1 => Stamp::Committed(CommitNumber(decoder.varint()?)),
                2 => Stamp::Written { txn: TxnId(decoder.varint()?), step: decoder.varint_u32()? },
                other => return Err(Error::corruption(format!("range-delete with an unknown stamp, stamp={other}"))),
            };
            if start >= end || list.last().is_some_and(|last| last.start > start) {
                return Err(Error::corruption("range-deletes empty or out of order"));
            }
            list.push(RangeDelete { start, end, seq, stamp });
        }
        let before = if decoder.is_empty() { None } else { Some(BlockPtr::decode(&mut decoder)?) };
        decoder.finish()?;
        if before.is_some_and(BlockPtr::is_none) || (before.is_some() && list.is_empty()) {
            return Err(Error::corruption("a part of the range-deletes that continues nothing"));
        }
        Ok(RangeBlock { list: Arc::new(RangeList::of_sorted(list)), before })
    }

    /// Bytes really allocated, about.
    pub fn memory_bytes(&self) -> usize {
        let keys: usize = self.list.iter().map(|range| range.start.capacity() + range.end.capacity() + 32).sum();
        keys + self.list.len() * (size_of::<RangeDelete>() + size_of::<Farther>()) + size_of::<RangeList>() + 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::message::LOOKS;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn range_deletes_come_back(keys in prop::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>(), any::<u64>(), 0u8..3), 0..20)) {
            let mut list: Vec<RangeDelete> = keys
                .into_iter()
                .filter(|(start, end, _, _)| start != end)
                .map(|(start, end, seq, stamp)| RangeDelete {
                    start: start.clone().min(end.clone()),
                    end: start.max(end),
                    seq,
                    stamp: [Stamp::Settled, Stamp::Committed(CommitNumber(seq)), Stamp::Written { txn: TxnId(seq), step: 9 }]
                        [usize::from(stamp)],
                })
                .collect();
            sort_ranges(&mut list);
            let mut raw = Vec::new();
            RangeBlock::encode(&list, None, &mut raw);
            let block = RangeBlock::decode(&raw)?;
            prop_assert_eq!(&block.list[..], &list[..]);
            prop_assert_eq!(block.before, None);
            let mut part = Vec::new();
            let before = BlockPtr { offset: 1 << 40, stored: 7 };
            RangeBlock::encode(&list, Some(before), &mut part);
            prop_assert!(list.iter().map(encoded_bytes_max).sum::<usize>() + 32 > part.len());
            match RangeBlock::decode(&part) {
                Ok(block) => prop_assert!(block.before == Some(before) && block.list[..] == list[..]),
                Err(_) => prop_assert!(list.is_empty()),
            }
        }

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
        fn lists_that_grow_find_what_one_list_finds(
            bounds in prop::collection::vec((0u8..30, 1u8..12), 0..200),
            probes in prop::collection::vec((0u8..45, 0u8..10), 5),
        ) {
            let (mut lists, mut all) = (RangeLists::default(), Vec::new());
            for (seq, (start, length)) in bounds.into_iter().enumerate() {
                let range = RangeDelete { start: vec![start], end: vec![start + length], seq: seq as u64, stamp: Stamp::Settled };
                all.push(range.clone());
                lists = lists.with(range);
                prop_assert!(lists.lists.windows(2).all(|pair| pair[0].len() > 2 * pair[1].len()));
                let sorted = |ranges: &mut dyn Iterator<Item = &RangeDelete>| {
                    let mut seqs: Vec<u64> = ranges.map(|range| range.seq).collect();
                    seqs.sort_unstable();
                    seqs
                };
                let one = RangeList::new(all.clone());
                prop_assert_eq!(sorted(&mut lists.iter()), sorted(&mut one.iter()));
                for (low, length) in &probes {
                    let (low, high) = ([*low], [*low + *length]);
                    prop_assert_eq!(sorted(&mut lists.covering(&low)), sorted(&mut one.covering(&low)));
                    for upper in [Some(&high[..]), None] {
                        prop_assert_eq!(sorted(&mut lists.meeting(&low, upper)), sorted(&mut one.meeting(&low, upper)));
                    }
                }
            }
        }

        #[test]
        fn a_list_knows_how_far_its_gaps_reach(bounds in prop::collection::vec((0u8..30, 1u8..6), 0..12), probe in 0u8..40) {
            let range = |(start, length): (u8, u8)| RangeDelete { start: vec![start], end: vec![start + length], seq: 1, stamp: Stamp::Settled };
            let ranges = RangeList::new(bounds.into_iter().map(range).collect());
            let next = ranges.iter().filter(|range| range.start > vec![probe]).map(|range| &range.start[..]).min();
            prop_assert_eq!(ranges.next_start(&[probe]), next);
            let farthest = ranges.iter().filter(|range| range.start <= vec![probe]).map(|range| &range.end[..]).max();
            prop_assert_eq!(ranges.farthest_end(&[probe]), farthest);
        }

        #[test]
        fn arbitrary_bytes_never_panic(raw: Vec<u8>) {
            let _ = RangeBlock::decode(&raw);
        }
    }

    #[test]
    fn few_range_deletes_are_looked_at_whatever_lies_around_a_key() {
        const COUNT: u32 = 10_000;
        let range = |start: u32, end: u32| RangeDelete {
            start: start.to_be_bytes().to_vec(),
            end: end.to_be_bytes().to_vec(),
            seq: 1,
            stamp: Stamp::Settled,
        };
        let narrow = |at: u32| range(4 * at, 4 * at + 2);
        let inside_each_other = |at: u32| range(at, 8 * COUNT - at);
        let in_groups = |at: u32| range(4 * at, if at.is_multiple_of(100) { 4 * at + 350 } else { 4 * at + 2 });
        let lists: [(&str, Vec<RangeDelete>); 4] = [
            ("narrow", (0..COUNT).map(narrow).collect()),
            ("behind a wide one", (0..COUNT).map(narrow).chain([range(0, u32::MAX)]).collect()),
            ("inside each other", (0..COUNT).map(inside_each_other).collect()),
            ("in groups behind a wide one", (0..COUNT).map(in_groups).chain([range(0, u32::MAX)]).collect()),
        ];
        for (name, list) in lists {
            let ranges = RangeList::new(list);
            for key in (0..9 * COUNT).step_by(997) {
                let before = LOOKS.get();
                let found = ranges.covering(&key.to_be_bytes()).take(3).count() as u64;
                let looks = LOOKS.get() - before;
                assert!(looks <= 60 * (found + 1), "{name}: key={key} found={found} looks={looks}");
            }
        }
    }
}
