//! The range-deletes of a leaf range that a cursor sees, to be asked at each key that it comes to.
//!
//! Most keys lie in a *gap*, an interval that none of them covers. The last gap is remembered: while a scan is in it, a key costs
//! two comparisons, however many the range-deletes are. Lists are shared with who holds them, with what the cursor does not see:
//! whether it sees one is asked where a key is.

use std::sync::Arc;

use super::OwnedView;
use crate::format::block::{RangeList, RangeLists};
use crate::format::message::RangeDelete;

#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Whose they are; there when there is a list.
    view: Option<OwnedView>,
    /// Each has one that is seen and meets the leaf range.
    lists: Vec<Arc<RangeList>>,
    /// No sequence number among those is higher.
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
    pub(super) fn add_all(&mut self, lists: &RangeLists, view: &OwnedView, lower: &[u8], upper: Option<&[u8]>) {
        lists.lists().iter().for_each(|list| self.add(list, view, lower, upper));
    }

    /// Adds `list` if `view` sees one of those that meet the leaf range `[lower, upper)`.
    pub(super) fn add(&mut self, list: &Arc<RangeList>, view: &OwnedView, lower: &[u8], upper: Option<&[u8]>) {
        let seen = view.view();
        if list.meeting(lower, upper).any(|range| seen.sees(range.stamp, true)) {
            self.view.get_or_insert_with(|| view.clone());
            self.seq_max = self.seq_max.max(list.seq_max());
            self.lists.push(list.clone());
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Those that cover a key of the leaf range, seen or not.
    pub(super) fn covering(&mut self, key: &[u8]) -> impl Iterator<Item = &RangeDelete> {
        let lists = if self.is_gap(key) { &[] } else { &self.lists[..] };
        lists.iter().flat_map(move |list| list.covering(key))
    }

    /// Those of them that are seen and newer than `seq`.
    pub(super) fn covering_above(&mut self, key: &[u8], seq: u64) -> Option<impl Iterator<Item = &RangeDelete>> {
        if seq >= self.seq_max || self.is_gap(key) {
            return None;
        }
        let view = self.view.as_ref()?.view();
        let covering = self.lists.iter().flat_map(move |list| list.covering(key));
        Some(covering.filter(move |range| seq < range.seq && view.sees(range.stamp, true)))
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
