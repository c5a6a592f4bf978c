//! Space that is kept for when the disk is full.
//!
//! The reserve consists of ordinary extents that are used but in no image, so a crash gives them back by itself. Room for
//! them is demanded from the disk when they are taken. There are three pools:
//!
//! | pool | may be drawn on by | holds |
//! |---|---|---|
//! | publication | publications | what the bitmaps that one may rewrite need |
//! | level 0 | seals | as much as level 0 holds, so that it can always be emptied: [`crate::db`]'s admission sees to it |
//! | compaction | compactions, and seals | enough for one that will free space |
//!
//! What runs are written to is kept in pieces that serve a chunk of one ([`PIECE_PAGES_MIN`]): a pool of single pages would pass for
//! whole and serve nobody. What is left of a piece goes back when it is smaller.
//!
//! A publication that finds its own pool empty draws on the others. While a pool is not whole, ordinary allocations first try
//! to refill it, and fail with `NoSpace` when that fails; compactions have only their pool then: so deletes, checkpoints and reads go on when the disk is full, and
//! writes resume when there is space again. Where the system gives no room for another reason than a full disk, the pools serve as well.

use super::RESERVE_PIECE_PAGES_MIN as PIECE_PAGES_MIN;
use crate::base::Extent;

/// Who may draw on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pool {
    Publication = 0,
    Compaction = 1,
    Level0 = 2,
}

impl Pool {
    /// Pages of the smallest piece that serves who draws on it.
    pub(super) fn piece_pages_min(self) -> u32 {
        if self == Pool::Publication { 1 } else { PIECE_PAGES_MIN }
    }
}

pub(super) const POOLS: [Pool; 3] = [Pool::Publication, Pool::Compaction, Pool::Level0];

/// Pages for publications at least; grows with the number of regions, whose bitmaps a publication may rewrite.
const PUBLICATION_PAGES_MIN: u64 = 64;

#[derive(Debug, Default)]
struct Held {
    extents: Vec<Extent>,
    pages: u64,
    target: u64,
}

#[derive(Debug, Default)]
pub(super) struct Reserve {
    pools: [Held; POOLS.len()],
    /// Somebody has asked for it to be made whole since the opening.
    pub(super) is_wanted: bool,
}

impl Reserve {
    /// Nothing held yet; `pages` wanted for compactions.
    pub(super) fn new(pages: u64) -> Reserve {
        let mut reserve = Reserve::default();
        reserve.pools[Pool::Compaction as usize].target = pages;
        reserve.set_regions(1);
        reserve
    }

    /// Adapts the pool of publications to the size of the space map.
    pub(super) fn set_regions(&mut self, regions: usize) {
        let regions = regions as u64;
        self.pools[Pool::Publication as usize].target = PUBLICATION_PAGES_MIN + regions / 4 + regions / 64;
    }

    /// Sets what is wanted in a pool; returns extents that are too much.
    pub(super) fn set_target(&mut self, pool: Pool, pages: u64) -> Vec<Extent> {
        let pool = &mut self.pools[pool as usize];
        pool.target = pages;
        let mut surplus = Vec::new();
        while let Some(last) = pool.extents.last().copied()
            && pool.pages - u64::from(last.pages) >= pool.target
        {
            pool.extents.pop();
            pool.pages -= u64::from(last.pages);
            surplus.push(last);
        }
        surplus
    }

    /// Pages held in a pool.
    pub(super) fn pages_in(&self, pool: Pool) -> u64 {
        self.pools[pool as usize].pages
    }

    /// Pages held in all pools.
    pub(super) fn pages(&self) -> u64 {
        self.pools.iter().map(|pool| pool.pages).sum()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.pools.iter().all(|pool| pool.pages >= pool.target)
    }

    /// A pool that is not whole, and the pages that are wanted for it now.
    pub(super) fn lacking(&self) -> Option<(Pool, u64)> {
        let lacking = |pool: &Pool| {
            let held = &self.pools[*pool as usize];
            let lacking = held.target.saturating_sub(held.pages);
            (*pool, if lacking > 0 { lacking.max(u64::from(pool.piece_pages_min())) } else { 0 })
        };
        POOLS.iter().map(lacking).find(|(_, pages)| *pages > 0)
    }

    pub(super) fn put(&mut self, pool: Pool, extent: Extent) {
        let pool = &mut self.pools[pool as usize];
        pool.pages += u64::from(extent.pages);
        pool.extents.push(extent);
    }

    /// Takes `pages` off the smallest extent that has them; also returns what is left of that, if it is of no use here.
    pub(super) fn take(&mut self, pool: Pool, pages: u32) -> Option<(Extent, Option<Extent>)> {
        let useful = pool.piece_pages_min();
        let pool = &mut self.pools[pool as usize];
        let fitting = pool.extents.iter_mut().enumerate().filter(|(_, extent)| extent.pages >= pages);
        let (index, extent) = fitting.min_by_key(|(_, extent)| extent.pages)?;
        let taken = Extent { start: extent.start, pages };
        extent.start += u64::from(pages);
        extent.pages -= pages;
        let mut left = None;
        if extent.pages < useful {
            let rest = pool.extents.swap_remove(index);
            pool.pages -= u64::from(rest.pages);
            left = Some(rest).filter(|rest| rest.pages > 0);
        }
        pool.pages -= u64::from(pages);
        Some((taken, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_gives_from_its_smallest_fitting_extent_and_knows_what_it_lacks() {
        let mut reserve = Reserve::new(40);
        assert_eq!(reserve.lacking(), Some((Pool::Publication, 64)));
        reserve.put(Pool::Publication, Extent { start: 100, pages: 64 });
        assert_eq!(reserve.lacking(), Some((Pool::Compaction, 40)));
        let extent = |start, pages| Extent { start, pages };
        reserve.put(Pool::Compaction, extent(200, 24));
        reserve.put(Pool::Compaction, extent(300, 16));
        assert!(reserve.is_whole());
        assert_eq!(reserve.take(Pool::Compaction, 16), Some((extent(300, 16), None)));
        assert_eq!(reserve.take(Pool::Compaction, 3), Some((extent(200, 3), None)));
        assert_eq!(reserve.take(Pool::Compaction, 22), None);
        assert_eq!((reserve.lacking(), reserve.pages()), (Some((Pool::Compaction, 19)), 85));
        reserve.put(Pool::Compaction, extent(300, 17));
        assert_eq!(reserve.lacking(), Some((Pool::Compaction, 16)), "a piece, although two pages would do");
        reserve.put(Pool::Compaction, extent(400, 16));
        assert!(reserve.is_whole());
        assert_eq!(reserve.take(Pool::Compaction, 4), Some((extent(400, 4), Some(extent(404, 12)))), "of no use");
        assert_eq!(reserve.pages_in(Pool::Compaction), 38);
        assert_eq!(reserve.set_target(Pool::Compaction, 38), vec![]);
        assert_eq!(reserve.take(Pool::Publication, 63), Some((extent(100, 63), None)));
        reserve.put(Pool::Publication, extent(100, 63));
        assert_eq!(reserve.set_target(Pool::Level0, 5), vec![]);
        assert_eq!(reserve.lacking(), Some((Pool::Level0, 16)));
        reserve.put(Pool::Level0, Extent { start: 400, pages: 5 });
        reserve.put(Pool::Level0, Extent { start: 500, pages: 2 });
        assert_eq!((reserve.is_whole(), reserve.pages_in(Pool::Level0)), (true, 7));
        assert_eq!(reserve.set_target(Pool::Level0, 5), vec![Extent { start: 500, pages: 2 }]);
        assert_eq!(reserve.set_target(Pool::Level0, 0), vec![Extent { start: 400, pages: 5 }]);
    }
}
