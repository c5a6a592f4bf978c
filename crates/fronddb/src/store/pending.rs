//! Space that is on its way to being free.
//!
//! An extent that a publication no longer references is free again when two things have happened, in either
//! order: a *later* generation is durable (until then the older one must stay intact, since losing the newest
//! superblock falls back to it), and the caller has released it (no reader holds it any more).
//!
//! ```text
//!   in use ── removed by g ──▶ removed ── release ──▶ aging ── g + 1 durable ──▶ free
//!      │                                                ▲
//!      └── release ──▶ released early ── removed by g ──┘
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::base::Extent;

#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Removed by this generation, and a reader may hold it.
    removed: HashMap<Extent, u64>,
    /// Released, and the next or a later publication will remove it.
    early: HashSet<Extent>,
    /// Removed by this generation, and released.
    aging: BTreeMap<u64, Vec<Extent>>,
    pages: u64,
    /// The newest durable generation.
    durable: u64,
}

impl Pending {
    /// Nothing waits; `durable` is the newest durable generation.
    pub(super) fn new(durable: u64) -> Pending {
        Pending { durable, ..Pending::default() }
    }

    /// Pages that were removed and are not free yet.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Extents that were released without having been removed yet.
    pub(super) fn early_count(&self) -> usize {
        self.early.len()
    }

    /// True when the extent waits here already: removing it again is a mistake of the caller.
    pub(super) fn is_removed(&self, extent: Extent) -> bool {
        self.removed.contains_key(&extent)
    }

    /// `extent` left the image with `generation`.
    pub(super) fn remove(&mut self, extent: Extent, generation: u64) {
        self.pages += u64::from(extent.pages);
        if self.early.remove(&extent) {
            self.aging.entry(generation).or_default().push(extent);
        } else {
            self.removed.insert(extent, generation);
        }
    }

    /// No reader holds `extent`. True when it is free at once.
    #[must_use]
    pub(super) fn release(&mut self, extent: Extent) -> bool {
        match self.removed.remove(&extent) {
            Some(generation) if generation < self.durable => {
                self.pages -= u64::from(extent.pages);
                true
            }
            Some(generation) => {
                self.aging.entry(generation).or_default().push(extent);
                false
            }
            None => {
                self.early.insert(extent);
                false
            }
        }
    }

    /// What becomes free now that `durable` is.
    pub(super) fn ripen(&mut self, durable: u64) -> Vec<Extent> {
        self.durable = durable;
        let young = self.aging.split_off(&durable);
        let ripe: Vec<Extent> = std::mem::replace(&mut self.aging, young).into_values().flatten().collect();
        self.pages -= ripe.iter().map(|extent| u64::from(extent.pages)).sum::<u64>();
        ripe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent { start: 20, pages: 3 };

    #[test]
    fn an_extent_is_free_after_the_next_generation_and_its_release_in_either_order() {
        let mut pending = Pending::new(5);
        pending.remove(EXTENT, 5);
        assert!(!pending.release(EXTENT));
        assert_eq!((pending.ripen(5), pending.pages()), (vec![], 3));
        assert_eq!((pending.ripen(6), pending.pages()), (vec![EXTENT], 0));

        pending.remove(EXTENT, 6);
        assert_eq!(pending.ripen(7), vec![]);
        assert!(pending.release(EXTENT));
        assert_eq!(pending.pages(), 0);
    }

    #[test]
    fn an_early_release_waits_for_the_removal() {
        let mut pending = Pending::new(9);
        assert!(!pending.release(EXTENT));
        assert_eq!((pending.ripen(10), pending.pages(), pending.early_count()), (vec![], 0, 1));
        pending.remove(EXTENT, 11);
        assert_eq!(pending.ripen(11), vec![]);
        assert_eq!((pending.ripen(12), pending.early_count()), (vec![EXTENT], 0));
    }
}
