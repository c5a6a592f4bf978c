//! How much is written for each tree: what its users gave, and what runs took to keep it.
//!
//! Owns the counts of a database by tree ([`Traffic`]), since it was opened, and a writer's share of them ([`Shares`]).
//!
//! Trees share the buffers above their leaves, so a run, and a small block of it, may be of several trees. A block is
//! counted for its trees by their part of it before compression, filter and index of a run by their part of its blocks. What users
//! gave is counted where it reaches a run for the first time (when level 0 is sealed, when rows are loaded), so
//! counting costs those who write nothing; what was overwritten in level 0 never gets there. Log and publications are of no tree.

use crate::base::TreeId;
use crate::base::sync::Mutex;
use std::collections::HashMap;

/// Trees remembered, dropped ones too; past that all are counted from zero again.
const TREES_MAX: usize = if cfg!(test) { 64 } else { 1 << 16 };

/// Bytes written for one tree since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeTraffic {
    /// Keys and values that left level 0 or were loaded, as their user gave them.
    pub user_bytes: u64,
    /// Bytes written to storage for it: sealing, loads, flushes, compactions, large values.
    pub bytes_written: u64,
}

/// The counts by tree.
#[derive(Debug, Default)]
pub(super) struct Traffic(Mutex<HashMap<TreeId, TreeTraffic>>);

impl Traffic {
    pub(super) fn get(&self, tree: TreeId) -> TreeTraffic {
        self.0.lock().get(&tree).copied().unwrap_or_default()
    }

    pub(super) fn add(&self, tree: TreeId, traffic: TreeTraffic) {
        add(&mut self.0.lock(), tree, traffic);
    }
}

fn add(all: &mut HashMap<TreeId, TreeTraffic>, tree: TreeId, traffic: TreeTraffic) {
    if all.len() >= TREES_MAX && !all.contains_key(&tree) {
        all.clear();
    }
    let known = all.entry(tree).or_default();
    known.user_bytes += traffic.user_bytes;
    known.bytes_written += traffic.bytes_written;
}

/// What one run holds of each tree.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The trees so far, ascending.
    trees: Vec<(TreeId, TreeTraffic)>,
    /// Which of them was met last.
    last: usize,
    /// Trees of the block being built before its last one, each with the size of the block, as it lies in memory, at the tree's end.
    ends: Vec<(TreeId, u64)>,
}

impl Shares {
    pub(super) fn clear(&mut self) {
        self.last = 0;
        self.trees.clear();
        self.ends.clear();
    }

    /// Memory that it takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.trees.capacity() * size_of::<(TreeId, TreeTraffic)>() + self.ends.capacity() * size_of::<(TreeId, u64)>()
    }

    /// A user gave `bytes` for a message of `tree`.
    #[inline]
    pub(super) fn given(&mut self, tree: TreeId, bytes: u64) {
        self.of(tree).user_bytes += bytes;
    }

    /// The block being built goes on with another tree than `tree`, at this size.
    pub(super) fn tree_ends(&mut self, tree: TreeId, size: u64) {
        self.ends.push((tree, size));
    }

    /// The block being built, its last messages of `tree`, had this size and takes `stored` bytes.
    pub(super) fn block_ends(&mut self, tree: TreeId, size: u64, stored: u64) {
        let mut ends = std::mem::take(&mut self.ends);
        ends.push((tree, size));
        let mut counted = 0;
        for (tree, end) in ends.drain(..) {
            // The sum of the parts is the whole, whatever is lost by rounding.
            let until = stored * end.min(size) / size.max(1);
            self.of(tree).bytes_written += until - counted;
            counted = until;
        }
        self.ends = ends;
    }

    /// Counts a run that took `bytes` with filter and index.
    pub(super) fn count(&mut self, bytes: u64, traffic: &Traffic) {
        let blocks: u64 = self.trees.iter().map(|(_, share)| share.bytes_written).sum();
        let mut all = traffic.0.lock();
        for (tree, mut share) in self.trees.drain(..) {
            let whole = u128::from(share.bytes_written) * u128::from(bytes) / u128::from(blocks.max(1));
            share.bytes_written = whole as u64;
            add(&mut all, tree, share);
        }
    }

    #[inline]
    fn of(&mut self, tree: TreeId) -> &mut TreeTraffic {
        if self.trees.get(self.last).is_none_or(|(last, _)| *last != tree) {
            self.find(tree);
        }
        &mut self.trees[self.last].1
    }

    #[cold]
    fn find(&mut self, tree: TreeId) {
        self.last = self.trees.binary_search_by_key(&tree, |(met, _)| *met).unwrap_or_else(|at| {
            self.trees.insert(at, (tree, TreeTraffic::default()));
            at
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_counted_for_its_trees_by_their_parts_and_the_rest_of_the_run_by_theirs() {
        let mut shares = Shares::default();
        shares.given(TreeId(1), 700);
        shares.tree_ends(TreeId(1), 600);
        shares.given(TreeId(2), 100);
        shares.tree_ends(TreeId(2), 800);
        shares.given(TreeId(3), 100);
        shares.block_ends(TreeId(3), 1000, 101);
        shares.given(TreeId(3), 200);
        shares.block_ends(TreeId(3), 500, 99);
        let traffic = Traffic::default();
        shares.count(400, &traffic);
        let found = [1, 2, 3].map(|tree| traffic.get(TreeId(tree)));
        let expected = [(700, 120), (100, 40), (300, 240)];
        assert_eq!(found, expected.map(|(user_bytes, bytes_written)| TreeTraffic { user_bytes, bytes_written }));
        assert_eq!(traffic.get(TreeId(4)), TreeTraffic::default());
    }

    #[test]
    fn no_more_trees_are_remembered_than_allowed() {
        let traffic = Traffic::default();
        let one = TreeTraffic { user_bytes: 1, bytes_written: 1 };
        for tree in 0..3 * TREES_MAX as u32 {
            traffic.add(TreeId(tree), one);
            assert_eq!(traffic.get(TreeId(tree)), one);
            assert!(traffic.0.lock().len() <= TREES_MAX);
        }
    }

    #[test]
    fn a_run_without_messages_counts_for_no_tree() {
        let (mut shares, traffic) = (Shares::default(), Traffic::default());
        shares.count(100, &traffic);
        assert!(traffic.0.lock().is_empty());
    }
}
