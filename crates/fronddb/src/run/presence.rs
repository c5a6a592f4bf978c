//! Whether the keys that are read are there: then the filters of leaves are not worth asking.
//!
//! A program that reads rows by keys that it knows finds all of them. Filters of the bases of leaves, where the rows are, then say
//! yes each time, and the room that they take in the cache is lost to rows: a fifteenth of it where a row takes a hundred bytes as it is
//! stored. So where some thousand reads of a tree found their key in the base of a leaf, nearly all, reads of that tree search bases without their
//! filters, and have the cache forget them where it needs the room.
//!
//! Each tree has a level, which a read that finds its key raises by one and a read that finds nothing lowers by [`READS_PER_ABSENT`].
//! At the top its keys are likely to be there, until the level comes to the bottom. So as many reads lie between two changes of
//! mind as bringing the filters in again is worth, and where one read in more than [`READS_PER_ABSENT`] finds nothing, it
//! searches a block in vain, and filters stay away: their room saves more reads than that.
//!
//! Runs in buffers are always asked through their filters: most of them do not have the key.
//!
//! Trees share [`SLOTS`] slots. One that has another's slot is asked more than it need be, or reads more blocks in vain.

use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_utils::CachePadded;

use crate::base::TreeId;

const SLOTS: usize = 64;
/// A key that is not there counts as much as so many that are.
const READS_PER_ABSENT: u32 = 256;
/// One read that finds its key in so many is counted, for all of them, so that processors seldom share a line.
const READS_PER_COUNT: u32 = 16;
/// The top, in reads.
const TOP: u32 = 4096;
/// Added to the level while keys are likely to be there.
const LIKELY: u32 = 1 << 31;

/// Where a run lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Above others that may have the key too.
    Buffer,
    /// Below all others: the base of a leaf.
    Base,
}

/// True when a read of the key with this hash is counted.
#[inline]
pub(super) fn is_counted(hash: u64) -> bool {
    hash.is_multiple_of(u64::from(READS_PER_COUNT))
}

/// What reads of bases found lately.
#[derive(Debug)]
pub(super) struct Presence {
    levels: [CachePadded<AtomicU32>; SLOTS],
}

impl Default for Presence {
    fn default() -> Presence {
        Presence { levels: std::array::from_fn(|_| CachePadded::default()) }
    }
}

impl Presence {
    fn slot(&self, tree: TreeId) -> &AtomicU32 {
        &self.levels[tree.0 as usize % SLOTS]
    }

    /// True when a key of `tree` that is read is there in all likelihood.
    #[inline]
    pub(super) fn is_likely(&self, tree: TreeId) -> bool {
        self.slot(tree).load(Ordering::Relaxed) & LIKELY != 0
    }

    /// The key with this hash was, or was not, in the base that would have it.
    #[inline]
    pub(super) fn learn(&self, tree: TreeId, hash: u64, is_found: bool) {
        // Ordering: what two threads learn at once may be lost; it decides how a row is looked for and nothing else.
        let slot = self.slot(tree);
        let (level, likely) = split(slot.load(Ordering::Relaxed));
        if is_found && level < TOP && is_counted(hash) {
            let raised = level + READS_PER_COUNT;
            slot.store(if raised < TOP { raised | likely } else { TOP | LIKELY }, Ordering::Relaxed);
        } else if !is_found && level > 0 {
            let lowered = level.saturating_sub(READS_PER_ABSENT);
            slot.store(if lowered > 0 { lowered | likely } else { 0 }, Ordering::Relaxed);
        }
    }
}

fn split(slot: u32) -> (u32, u32) {
    (slot & !LIKELY, slot & LIKELY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads of `tree` of which the last of every `one_in` finds nothing, until it is, or is no longer, `likely`; their number.
    fn reads_until(presence: &Presence, tree: TreeId, likely: bool, one_in: u64) -> Option<u64> {
        (1..100_000).find(|read| {
            presence.learn(tree, *read, !read.is_multiple_of(one_in));
            presence.is_likely(tree) == likely
        })
    }

    #[test]
    fn a_key_is_likely_to_be_there_where_nearly_all_were() {
        let presence = Presence::default();
        let (tree, other) = (TreeId(7), TreeId(8));
        assert_eq!(reads_until(&presence, tree, true, u64::MAX), Some(u64::from(TOP)));
        assert!(!presence.is_likely(other));
        assert_eq!(reads_until(&presence, tree, false, 1000), None, "one in a thousand is no reason to ask");
        assert_eq!(reads_until(&presence, other, true, 100), None, "one in a hundred is");
        assert!(presence.is_likely(tree));
        assert_eq!(reads_until(&presence, tree, false, 1), Some(u64::from(TOP / READS_PER_ABSENT)));
        assert_eq!(reads_until(&presence, tree, true, 1000).map(|reads| reads > u64::from(TOP)), Some(true));
        assert!(reads_until(&presence, tree, false, 100).is_some_and(|reads| reads > 2000), "it takes a while");
    }
}
