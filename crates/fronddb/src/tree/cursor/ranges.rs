//! The range-deletes of a leaf range that a cursor sees, to be asked at each key that it comes to.
//!
//! Most keys lie in a *gap*, an interval that none of them covers. The last gap is remembered: while a scan is in it, a key costs
//! two comparisons, however many the range-deletes are.

use std::sync::Arc;

use crate::format::block::{RangeList, RangeLists};
use crate::format::message::RangeDelete;
use crate::format::visibility::View;

#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// What they have in the leaf range is seen.
    lists: Vec<Arc<RangeList>>,
    /// The highest sequence number among those.
    seq_max: u64,
    gap: Option<Gap>,
}

#[derive(Debug)]
struct Gap {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl Gap {
    fn holds(&self, key: &[u8]) -> bool {
        self.lower.as_slice() <= key && self.upper.as_deref().is_none_or(|upper| key < upper)
    }
}

impl Ranges {
    pub(super) fn add_all(&mut self, lists: &RangeLists, view: &View<'_>, lower: &[u8], upper: Option<&[u8]>) {
        lists.lists().iter().for_each(|list| self.add(list, view, lower, upper));
    }

    /// Adds those of `list` that meet the leaf range `[lower, upper)` and that `view` sees. The list is shared where that is all of them.
    pub(super) fn add(&mut self, list: &Arc<RangeList>, view: &View<'_>, lower: &[u8], upper: Option<&[u8]>) {
        let mut met = 0;
        let meeting = list.meeting(lower, upper).inspect(|_| met += 1);
        let seen: Vec<&RangeDelete> = meeting.filter(|range| view.sees(range.stamp, true)).collect();
        let Some(seq_max) = seen.iter().map(|range| range.seq).max() else { return };
        self.seq_max = self.seq_max.max(seq_max);
        self.lists.push(match seen.len() == met {
            true => list.clone(),
            false => Arc::new(RangeList::new(seen.into_iter().cloned().collect())),
        });
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Those that cover a key of the leaf range.
    pub(super) fn covering(&mut self, key: &[u8]) -> impl Iterator<Item = &RangeDelete> {
        let lists = if self.is_gap(key) { &[] } else { &self.lists[..] };
        lists.iter().flat_map(move |list| list.covering(key))
    }

    /// Those of them that are newer than `seq`.
    pub(super) fn covering_above(&mut self, key: &[u8], seq: u64) -> Option<impl Iterator<Item = &RangeDelete>> {
        (seq < self.seq_max).then(|| self.covering(key).filter(move |range| seq < range.seq))
    }

    fn is_gap(&mut self, key: &[u8]) -> bool {
        if self.gap.as_ref().is_some_and(|gap| gap.holds(key)) {
            return true;
        }
        let is_covered = self.lists.iter().any(|list| list.covering(key).next().is_some());
        if !is_covered {
            let lower = self.lists.iter().filter_map(|list| list.farthest_end(key)).max();
            let upper = self.lists.iter().filter_map(|list| list.next_start(key)).min();
            self.gap = Some(Gap { lower: lower.unwrap_or_default().to_vec(), upper: upper.map(<[u8]>::to_vec) });
        }
        !is_covered
    }

    /// Where the gap ends in which `key` is known to lie (`Some(None)`: nowhere); `None` where it is not.
    pub(super) fn known_gap_end(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        if self.is_empty() {
            return Some(None);
        }
        self.gap.as_ref().filter(|gap| gap.holds(key)).map(|gap| gap.upper.as_deref())
    }
}
