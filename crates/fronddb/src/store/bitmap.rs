//! The bitmap of a region: one bit per page, set when the page is taken.

use crate::base::space::PAGE_BYTES;

/// Pages of a region: 64 MiB.
pub(super) const REGION_PAGES: u32 = 16_384;
/// Length of a stored bitmap, in bytes.
pub(super) const BITMAP_BYTES: usize = WORDS * 8;
const WORDS: usize = REGION_PAGES as usize / 64;

const _: () = assert!(REGION_PAGES as u64 * PAGE_BYTES == 64 << 20, "a region is 64 MiB");

/// A set of the pages of one region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bitmap(Box<[u64; WORDS]>);

/// The words that a range of bits touches, each with the mask of its bits in the range.
fn masks(start: u32, pages: u32) -> impl Iterator<Item = (usize, u64)> {
    let end = start + pages;
    debug_assert!(end <= REGION_PAGES, "start={start} pages={pages}");
    let words = if pages == 0 { 0..0 } else { start / 64..end.div_ceil(64) };
    words.map(move |word| {
        let low = start.saturating_sub(word * 64);
        let high = (end - word * 64).min(64);
        (word as usize, (u64::MAX >> (64 - (high - low))) << low)
    })
}

impl Bitmap {
    /// No page.
    pub(super) fn empty() -> Bitmap {
        Bitmap(Box::new([0; WORDS]))
    }

    pub(super) fn from_bytes(bytes: &[u8; BITMAP_BYTES]) -> Bitmap {
        let mut words = Box::new([0; WORDS]);
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Bitmap(words)
    }

    pub(super) fn to_bytes(&self) -> [u8; BITMAP_BYTES] {
        let mut bytes = [0; BITMAP_BYTES];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(self.0.iter()) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }

    pub(super) fn set(&mut self, start: u32, pages: u32) {
        masks(start, pages).for_each(|(word, mask)| self.0[word] |= mask);
    }

    pub(super) fn clear(&mut self, start: u32, pages: u32) {
        masks(start, pages).for_each(|(word, mask)| self.0[word] &= !mask);
    }

    /// Number of pages of the range that are set.
    pub(super) fn count_in(&self, start: u32, pages: u32) -> u32 {
        masks(start, pages).map(|(word, mask)| (self.0[word] & mask).count_ones()).sum()
    }

    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The pages that are in neither.
    pub(super) fn neither(&self, other: &Bitmap) -> Bitmap {
        self.combine(other, |a, b| !(a | b))
    }

    /// The pages that are in `self` and not in `other`.
    pub(super) fn without(&self, other: &Bitmap) -> Bitmap {
        self.combine(other, |a, b| a & !b)
    }

    /// The pages that are in both.
    pub(super) fn intersection(&self, other: &Bitmap) -> Bitmap {
        self.combine(other, |a, b| a & b)
    }

    /// The pages that are in either.
    pub(super) fn union(&self, other: &Bitmap) -> Bitmap {
        self.combine(other, |a, b| a | b)
    }

    fn combine(&self, other: &Bitmap, with: impl Fn(u64, u64) -> u64) -> Bitmap {
        Bitmap(Box::new(std::array::from_fn(|word| with(self.0[word], other.0[word]))))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// One past the last page that is set; 0 when none is.
    pub(super) fn end(&self) -> u32 {
        let last = self.0.iter().rposition(|word| *word != 0);
        last.map_or(0, |word| word as u32 * 64 + 64 - self.0[word].leading_zeros())
    }

    /// The first run of at least `pages` clear pages in `from..end`; when there is none, the length of the longest.
    pub(super) fn find_clear(&self, from: u32, end: u32, pages: u32) -> Result<u32, u32> {
        let (mut at, mut start, mut longest) = (from, from, 0);
        while at < end {
            let rest = 64 - at % 64;
            let free = (self.0[at as usize / 64] >> (at % 64)).trailing_zeros().min(rest);
            at += free;
            if at.min(end) - start >= pages {
                return Ok(start);
            }
            if free == rest {
                continue;
            }
            longest = longest.max(at.min(end) - start);
            let rest = 64 - at % 64;
            at += (self.0[at as usize / 64] >> (at % 64)).trailing_ones().min(rest);
            start = at;
        }
        Err(longest.max(end.saturating_sub(start)))
    }

    /// The maximal runs of set pages below `end`: (first page, pages).
    pub(super) fn runs(&self, end: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, end, true)?;
            let stop = self.next(start, end, false).unwrap_or(end);
            at = stop;
            Some((start, stop - start))
        })
    }

    /// The maximal runs of clear pages that start in `from..to`: (first page, pages). They may end later, at `end` at
    /// the latest.
    pub(super) fn clear_runs_starting_in(&self, from: u32, to: u32, end: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let to = to.min(end);
        // A run that comes from before does not start here.
        let goes_on = from > 0 && from < to && self.count_in(from - 1, 1) == 0;
        let mut at = if goes_on { self.next(from, to, true).unwrap_or(to) } else { from };
        std::iter::from_fn(move || {
            let start = self.next(at, to, false)?;
            let stop = self.next(start, end, true).unwrap_or(end);
            at = stop;
            Some((start, stop - start))
        })
    }

    /// The first page of the run of clear pages that ends before `at`; `at` when the page before it is set.
    pub(super) fn clear_run_before(&self, at: u32) -> u32 {
        let mut start = at;
        while start > 0 {
            let within = (start - 1) % 64 + 1;
            // The highest bit of the shifted word is page start - 1.
            let clear = (self.0[(start as usize - 1) / 64] << (64 - within)).leading_zeros().min(within);
            start -= clear;
            if clear < within {
                break;
            }
        }
        start
    }

    /// The first page from `from` on, below `end`, that is set (or clear).
    fn next(&self, from: u32, end: u32, set: bool) -> Option<u32> {
        let mut at = from;
        while at < end {
            let word = self.0[at as usize / 64] >> (at % 64);
            let skip = if set { word.trailing_zeros() } else { word.trailing_ones() };
            let rest = 64 - at % 64;
            if skip < rest {
                return Some(at + skip).filter(|found| *found < end);
            }
            at += rest;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use proptest::prelude::*;

    use super::*;

    fn ranges() -> impl Strategy<Value = Vec<(bool, u32, u32)>> {
        let range = (any::<bool>(), 0..REGION_PAGES, 1..300u32);
        let range = range.prop_map(|(set, start, pages)| (set, start, pages.min(REGION_PAGES - start)));
        proptest::collection::vec(range, 0..40)
    }

    fn build(ranges: &[(bool, u32, u32)]) -> (Bitmap, Vec<bool>) {
        let (mut bitmap, mut model) = (Bitmap::empty(), vec![false; REGION_PAGES as usize]);
        for (set, start, pages) in ranges {
            if *set {
                bitmap.set(*start, *pages)
            } else {
                bitmap.clear(*start, *pages)
            }
            model[*start as usize..(*start + *pages) as usize].fill(*set);
        }
        (bitmap, model)
    }

    proptest! {
        #[test]
        fn it_answers_like_a_list_of_flags(ranges in ranges(), from in 0..REGION_PAGES, length in 0..REGION_PAGES, want in 1..400u32) {
            let (bitmap, model) = build(&ranges);
            let end = (from + length).min(REGION_PAGES);
            let part = &model[from as usize..end as usize];
            prop_assert_eq!(bitmap.count() as usize, model.iter().filter(|set| **set).count());
            prop_assert_eq!(bitmap.count_in(from, end - from) as usize, part.iter().filter(|set| **set).count());
            prop_assert_eq!(bitmap.end() as usize, model.iter().rposition(|set| *set).map_or(0, |at| at + 1));
            prop_assert_eq!(bitmap.is_empty(), !model.contains(&true));
            prop_assert_eq!(&Bitmap::from_bytes(&bitmap.to_bytes()), &bitmap);

            let clear: Vec<(usize, usize)> = part.chunk_by(|a, b| a == b).scan(0, |at, run| {
                *at += run.len();
                Some((*at - run.len(), if run[0] { 0 } else { run.len() }))
            }).collect();
            let expected = clear.iter().find(|(_, length)| *length >= want as usize).map(|(at, _)| from + *at as u32)
                .ok_or(clear.iter().map(|(_, length)| *length as u32).max().unwrap_or(0));
            prop_assert_eq!(bitmap.find_clear(from, end, want), expected);

            let left = model[..from as usize].iter().rposition(|set| *set).map_or(0, |at| at + 1);
            prop_assert_eq!(bitmap.clear_run_before(from) as usize, left);
            let mut whole = Bitmap::empty();
            whole.set(0, REGION_PAGES);
            let clear = whole.without(&bitmap);
            let starting: Vec<(u32, u32)> = bitmap.clear_runs_starting_in(from, end, REGION_PAGES).collect();
            let expected: Vec<(u32, u32)> = clear.runs(REGION_PAGES).filter(|(start, _)| (from..end).contains(start)).collect();
            prop_assert_eq!(starting, expected);

            let mut rebuilt = Bitmap::empty();
            let mut last = None;
            for (start, pages) in bitmap.runs(end) {
                prop_assert!(last.is_none_or(|end| end < start) && pages > 0 && start + pages <= end);
                last = Some(start + pages);
                rebuilt.set(start, pages);
            }
            let mut cut = bitmap.clone();
            cut.clear(end, REGION_PAGES - end);
            prop_assert_eq!(rebuilt, cut);
        }

        #[test]
        fn sets_combine_bit_by_bit(a in ranges(), b in ranges()) {
            let ((a, model_a), (b, model_b)) = (build(&a), build(&b));
            let count = |with: fn(bool, bool) -> bool| model_a.iter().zip(&model_b).filter(|(a, b)| with(**a, **b)).count() as u32;
            prop_assert_eq!(a.union(&b).count(), count(|a, b| a | b));
            prop_assert_eq!(a.without(&b).count(), count(|a, b| a & !b));
            prop_assert_eq!(a.neither(&b).count(), count(|a, b| !(a | b)));
        }
    }

    #[test]
    fn an_empty_range_touches_nothing() {
        assert_eq!(masks(1, 0).count(), 0);
        assert_eq!(masks(64, 0).count(), 0);
    }
}
