//! Range-delete blocks: the range-deletes of a run, few as a rule, read as a whole.
//!
//! Raw form: their number (varint); then for each, ascending by start, newest first among equals: start
//! and end (byte strings), sequence number (varint), stamp (0 settled · 1 committed, number · 2 written,
//! transaction, step; all varints). From version 2 on, the address of the block with those before them may follow (two varints): what would make
//! too large a block is parted, and read from its last part on.

use super::range_list::RangeList;
use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::{BlockPtr, CommitNumber, Error, Result, TxnId};
use crate::format::{RangeDelete, Stamp};
use std::sync::Arc;

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
        keys + self.list.memory_bytes() + 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::block::sort_ranges;
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
                    let mut covering = lists.lists().iter().flat_map(|list| list.covering(&low));
                    prop_assert_eq!(sorted(&mut covering), sorted(&mut one.covering(&low)));
                    for upper in [Some(&high[..]), None] {
                        let mut meeting = lists.lists().iter().flat_map(|list| list.meeting(&low, upper));
                        prop_assert_eq!(sorted(&mut meeting), sorted(&mut one.meeting(&low, upper)));
                    }
                }
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(raw: Vec<u8>) {
            let _ = RangeBlock::decode(&raw);
        }
    }
}
