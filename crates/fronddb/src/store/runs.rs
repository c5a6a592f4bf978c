//! How long the free runs of a region are, so that no allocation scans it.
//!
//! A region is cut into chunks of 1024 pages. For each, the longest free run that *starts* in it is kept, exactly. A change of
//! a few pages recomputes the chunk in which the run around them starts and the one behind them, and looking for
//! a run reads one chunk: about a tenth of a microsecond each, also in a region full of small holes.

use super::bitmap::{Bitmap, REGION_PAGES};

const CHUNK_PAGES: u32 = 1024;
const CHUNKS: usize = (REGION_PAGES / CHUNK_PAGES) as usize;

/// The longest free run that starts in each chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Runs([u32; CHUNKS]);

impl Runs {
    /// Of a region of which the file reaches `limit` pages.
    pub(super) fn new(used: &Bitmap, limit: u32) -> Runs {
        let mut runs = Runs::default();
        runs.recompute(used, limit, 0, CHUNKS - 1);
        runs
    }

    fn recompute(&mut self, used: &Bitmap, limit: u32, first: usize, last: usize) {
        for chunk in first..=last {
            let start = chunk as u32 * CHUNK_PAGES;
            let runs = used.clear_runs_starting_in(start, start + CHUNK_PAGES, limit);
            self.0[chunk] = runs.map(|(_, pages)| pages).max().unwrap_or(0);
        }
    }

    /// Pages of `used` have changed.
    pub(super) fn update(&mut self, used: &Bitmap, limit: u32, start: u32, pages: u32) {
        let first = used.clear_run_before(start) / CHUNK_PAGES;
        let last = (start + pages).min(REGION_PAGES - 1) / CHUNK_PAGES;
        self.recompute(used, limit, first as usize, last as usize);
    }

    /// The longest of all.
    pub(super) fn longest(&self) -> u32 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// A free run of at least `pages`: the best fitting in the first chunk that has one from that of page `from` on, and else from the
    /// start.
    pub(super) fn find(&self, used: &Bitmap, limit: u32, from: u32, pages: u32) -> Option<u32> {
        let first = (from / CHUNK_PAGES) as usize;
        let chunk = (first..CHUNKS).chain(0..first.min(CHUNKS)).find(|chunk| self.0[*chunk] >= pages)?;
        let start = chunk as u32 * CHUNK_PAGES;
        let runs = used.clear_runs_starting_in(start, start + CHUNK_PAGES, limit);
        runs.filter(|(_, found)| *found >= pages).min_by_key(|(_, found)| *found).map(|(start, _)| start)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn updates_equal_a_fresh_count(
            changes in proptest::collection::vec((any::<bool>(), 0..REGION_PAGES, 1..3000u32), 1..60),
            limit in prop_oneof![Just(REGION_PAGES), 1..REGION_PAGES],
            from in 0..=REGION_PAGES,
            pages in 1..3000u32,
        ) {
            let mut used = Bitmap::empty();
            let mut runs = Runs::new(&used, limit);
            for (set, start, pages) in changes {
                let pages = pages.min(REGION_PAGES - start);
                if set { used.set(start, pages) } else { used.clear(start, pages) }
                runs.update(&used, limit, start, pages);
                prop_assert_eq!(&runs, &Runs::new(&used, limit));
            }
            let longest = used.find_clear(0, limit, REGION_PAGES + 1).unwrap_err();
            prop_assert_eq!(runs.longest(), longest);
            match runs.find(&used, limit, from, pages) {
                Some(start) => prop_assert!(start + pages <= limit && used.count_in(start, pages) == 0),
                None => prop_assert!(longest < pages),
            }
        }
    }
}
