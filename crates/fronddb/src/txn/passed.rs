//! The aborted steps of transactions whose state is gone: an ordered list of intervals, in blocks that lists share.
//!
//! The list is part of a value that is never changed ([`super::states`]), so a longer list is another one. It has the blocks of the list
//! before, but for those into which something falls. Ids pass about in the order in which they were drawn, so that is the last
//! block alone nearly always, however long the list is.
//!
//! - No block is empty, and none is longer than [`BLOCK`].
//! - Through all blocks, intervals ascend by transaction and first step; those of one transaction are disjoint.

use std::sync::Arc;

use crate::base::TxnId;

/// Intervals in a block. Small in tests of schedules, so that blocks are split.
const BLOCK: usize = if cfg!(feature = "schedules") { 2 } else { 4096 };

/// Aborted steps `from..=to` of a transaction; all steps of one that was aborted whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AbortedSteps {
    pub(super) txn: TxnId,
    pub(super) from: u32,
    pub(super) to: u32,
}

impl AbortedSteps {
    fn place(&self) -> (TxnId, u32) {
        (self.txn, self.from)
    }
}

type Block = Arc<[AbortedSteps]>;

/// The list.
#[derive(Debug, Clone, Default)]
pub(super) struct Passed {
    blocks: Vec<Block>,
    count: usize,
}

impl Passed {
    /// How many intervals.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn contains(&self, txn: TxnId, step: u32) -> bool {
        let place = (txn, step);
        let block = self.index_of(place).and_then(|index| self.blocks.get(index));
        let last = block.and_then(|block| {
            let behind = block.partition_point(|aborted| aborted.place() <= place);
            behind.checked_sub(1).and_then(|index| block.get(index))
        });
        last.is_some_and(|aborted| aborted.txn == txn && step <= aborted.to)
    }

    /// The block that an interval with this beginning is in, or falls into: the last that does not begin behind it.
    fn index_of(&self, place: (TxnId, u32)) -> Option<usize> {
        let begins_by = |block: &Block| block.first().is_some_and(|first| first.place() <= place);
        self.blocks.partition_point(begins_by).checked_sub(1)
    }

    /// Adds intervals that ascend and are not in the list.
    pub(super) fn add(&mut self, added: &[AbortedSteps]) {
        self.add_to_blocks(added, BLOCK);
    }

    fn add_to_blocks(&mut self, mut added: &[AbortedSteps], block_max: usize) {
        self.count += added.len();
        while let Some(first) = added.first() {
            let index = self.index_of(first.place()).unwrap_or(0);
            let end = self.blocks.get(index + 1).and_then(|block| block.first()).map(AbortedSteps::place);
            let here = added.partition_point(|aborted| end.is_none_or(|end| aborted.place() < end));
            let (here, rest) = added.split_at(here);
            self.add_to_block(index, here, block_max);
            added = rest;
        }
    }

    /// Adds intervals, at least one, to the block at `index`, which is the first of all when there is none. Makes several of one
    /// that becomes too long.
    fn add_to_block(&mut self, index: usize, added: &[AbortedSteps], block_max: usize) {
        let old = self.blocks.get(index).map_or(&[][..], |block| &block[..]);
        let mut all = [old, added].concat();
        all.sort_by_key(AbortedSteps::place);
        debug_assert!(all.windows(2).all(|pair| pair[0].place() < pair[1].place()), "an interval passes once");
        let length = all.len().div_ceil(all.len().div_ceil(block_max));
        let replaced = index..self.blocks.len().min(index + 1);
        drop(self.blocks.splice(replaced, all.chunks(length).map(Block::from)));
    }

    /// Where the blocks lie.
    #[cfg(test)]
    pub(super) fn blocks_at(&self) -> Vec<*const ()> {
        self.blocks.iter().map(|block| Arc::as_ptr(block).cast()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const IDS: u64 = 40;

    proptest! {
        #[test]
        fn what_was_added_in_any_order_is_found_and_nothing_else(
            parts in prop::collection::vec(prop::collection::btree_map((0..IDS, 0u32..8), 0u32..2, 0..40), 1..8),
            block_max in 1usize..9
        ) {
            let mut passed = Passed::default();
            // The last step of each interval by its beginning: steps 3n to 3n + 2 are its room.
            let mut model: BTreeMap<(TxnId, u32), u32> = BTreeMap::new();
            for part in parts {
                let news = part.into_iter().map(|((txn, slot), more)| ((TxnId(txn), 3 * slot), 3 * slot + more));
                let news: BTreeMap<_, _> = news.filter(|(place, _)| !model.contains_key(place)).collect();
                let added: Vec<_> = news.iter().map(|((txn, from), to)| AbortedSteps { txn: *txn, from: *from, to: *to }).collect();
                model.extend(news);
                passed.add_to_blocks(&added, block_max);
                prop_assert_eq!(passed.len(), model.len());
                prop_assert!(passed.blocks.iter().all(|block| (1..=block_max).contains(&block.len())));
                let all: Vec<_> = passed.blocks.iter().flat_map(|block| block.iter()).map(|a| (a.place(), a.to)).collect();
                prop_assert_eq!(all, model.iter().map(|(place, to)| (*place, *to)).collect::<Vec<_>>());
                for (txn, step) in (0..IDS + 1).flat_map(|txn| (0..25).map(move |step| (TxnId(txn), step))) {
                    let is_in = |(from, to): (u32, u32)| (from..=to).contains(&step);
                    let expected = model.range((txn, 0)..=(txn, step)).any(|((_, from), to)| is_in((*from, *to)));
                    prop_assert_eq!(passed.contains(txn, step), expected, "txn={} step={}", txn, step);
                }
            }
        }
    }

    #[test]
    fn an_interval_at_the_end_moves_the_last_block_alone() {
        let mut passed = Passed::default();
        let whole = |txn: u64| AbortedSteps { txn: TxnId(txn), from: 0, to: u32::MAX };
        passed.add_to_blocks(&(0..100).map(whole).collect::<Vec<_>>(), 8);
        for txn in 100..200 {
            let before = passed.blocks_at();
            passed.add_to_blocks(&[whole(txn)], 8);
            assert!(passed.blocks_at().starts_with(&before[..before.len() - 1]), "txn={txn}");
        }
        assert!((0..200).all(|txn| passed.contains(TxnId(txn), 7)) && !passed.contains(TxnId(200), 0));
    }
}
