//! The range-deletes of a leaf range that a cursor sees, to be asked at each key that it comes to.
//!
//! The keys lie in *stretches*, in each of which the same range-deletes cover every key ([`RangeList`]). What was found for the last stretch is
//! remembered: while a scan is in it, a key costs two comparisons, however many range-deletes there are. It is not remembered where it
//! may be different at the next key, because a transaction that wrote one of them may be decided meanwhile.
//!
//! Lists are shared with who holds them, with what the cursor does not see: whether it sees one is asked where a stretch is.

use std::sync::Arc;

use super::OwnedView;
use super::leaf::Direction;
use crate::base::CommitNumber;
use crate::base::key::lower_of;
use crate::format::block::{RangeList, RangeLists};
use crate::format::visibility::{Sight, View};

/// Range-deletes of a list that are looked at to find that a cursor sees none of those in its leaf range.
const LOOKS_MAX: usize = 64;

/// So many that are never seen may be in the way before they are dropped, at least.
const UNSEEN_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Whose they are; there when there is a list.
    view: Option<OwnedView>,
    /// Each has one that meets the leaf range, and is seen if there are few of those.
    lists: Vec<Arc<RangeList>>,
    /// No sequence number among those is higher.
    seq_max: u64,
    known: Option<Known>,
    /// How often one that is never seen was in the way.
    unseen: usize,
}

/// The last stretch.
#[derive(Debug)]
struct Known {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// The number of the newest range-delete that is seen there, or 0.
    seq: u64,
}

impl Known {
    #[inline]
    fn holds(&self, key: &[u8]) -> bool {
        self.lower.as_slice() <= key && self.upper.as_deref().is_none_or(|upper| key < upper)
    }
}

impl Ranges {
    pub(super) fn add_all(&mut self, lists: &RangeLists, view: &OwnedView, lower: &[u8], upper: Option<&[u8]>) {
        lists.lists().iter().for_each(|list| self.add(list, view, lower, upper));
    }

    /// Adds `list` if `view` sees one of those that meet the leaf range `[lower, upper)`, or if they are too many to look at.
    pub(super) fn add(&mut self, list: &Arc<RangeList>, view: &OwnedView, lower: &[u8], upper: Option<&[u8]>) {
        let seen = view.view();
        let mut meeting = list.meeting(lower, upper);
        if meeting.by_ref().take(LOOKS_MAX).any(|range| seen.sees(range.stamp, true)) || meeting.next().is_some() {
            self.view.get_or_insert_with(|| view.clone());
            self.seq_max = self.seq_max.max(list.seq_max());
            self.lists.push(list.clone());
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The sequence number of the newest that covers a key of the leaf range and is seen, or 0.
    pub(super) fn newest(&mut self, key: &[u8]) -> u64 {
        match &self.known {
            Some(known) if known.holds(key) => known.seq,
            _ => self.find_newest(key),
        }
    }

    fn find_newest(&mut self, key: &[u8]) -> u64 {
        if self.unseen > UNSEEN_MAX.max(self.lists.iter().map(|list| list.len()).sum()) {
            self.drop_unseen();
        }
        let Some(view) = &self.view else { return 0 };
        let view = view.view();
        let (mut lower, mut upper): (&[u8], Option<&[u8]>) = (&[], None);
        let mut newest = None;
        let mut is_final = true;
        for list in &self.lists {
            let stretch = list.stretch(key);
            (lower, upper) = (lower.max(stretch.lower()), lower_of(upper, stretch.upper()));
            let found = stretch.newest(newest.map_or(0, |(seq, _)| seq), |range| {
                let sight = view.sight(range.stamp, true);
                let is_seen = sight == Sight::Seen;
                let is_never_seen = is_never_seen(&view, sight);
                is_final &= is_seen || is_never_seen;
                self.unseen += usize::from(is_never_seen);
                is_seen
            });
            newest = found.map(|range| (range.seq, range.stamp)).or(newest);
        }
        is_final &= newest.is_none_or(|(_, stamp)| view.committed(stamp).is_some());
        let seq = newest.map_or(0, |(seq, _)| seq);
        self.known = is_final.then(|| Known { lower: lower.to_vec(), upper: upper.map(<[u8]>::to_vec), seq });
        seq
    }

    /// Makes a list of its own of those that are seen, or may come to be. It costs what was lost to the others.
    fn drop_unseen(&mut self) {
        let Some(view) = &self.view else { return };
        let view = view.view();
        let ranges = self.lists.iter().flat_map(|list| list.iter());
        let left = ranges.filter(|range| !is_never_seen(&view, view.sight(range.stamp, true)));
        self.lists = vec![Arc::new(RangeList::new(left.cloned().collect()))];
        self.unseen = 0;
    }

    /// Where those end, going this way, that cover `key`, are seen and are newer than `seq`; `None` if there are none. Others may begin there.
    pub(super) fn end_above(&mut self, key: &[u8], seq: u64, direction: Direction) -> Option<&[u8]> {
        if seq >= self.seq_max || self.newest(key) <= seq {
            return None;
        }
        let view = self.view.as_ref()?.view();
        let farthest = self.lists.iter().filter(|list| list.seq_max() > seq);
        let farthest = farthest.flat_map(|list| list.stretch(key).farthest(seq, |range| view.sees(range.stamp, true)));
        match direction {
            Direction::Forward => farthest.map(|range| range.end.as_slice()).max(),
            Direction::Backward => farthest.map(|range| range.start.as_slice()).min(),
        }
    }

    /// Where the stretch ends in which `key` lies (`Some(None)`: nowhere), if it is known that no range-delete is seen there.
    pub(super) fn known_gap_end(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        if self.is_empty() {
            return Some(None);
        }
        let gap = self.known.as_ref().filter(|known| known.seq == 0 && known.holds(key));
        gap.map(|gap| gap.upper.as_deref())
    }
}

/// True where a range-delete is not seen, and will not be: what commits later is behind every snapshot that there is now.
fn is_never_seen(view: &View<'_>, sight: Sight) -> bool {
    match sight {
        Sight::Seen => false,
        Sight::Unseen => true,
        Sight::Undecided(_) => view.snapshot != CommitNumber::LATEST,
    }
}
