//! Dead ranges: intervals of keys that scans have found to hold nothing but committed deletes.
//!
//! In a queue table (insert at one end, delete at the other) every scan from the front passes over all
//! that was deleted since the last compaction. So a forward scan that has passed over many dead keys in a
//! row leaves a *marker* behind, and the next scan jumps. Markers live in memory only; losing one costs
//! time, never a row.
//!
//! A marker `[lower, upper)` with commit number `since` promises: no snapshot at or above `since` sees a
//! row in the interval. A write into the interval cuts the marker off at the written key.
//!
//! How a scan makes a marker while others write:
//! 1. it registers a *watch* from the key where it stands, then checks that the active memtable is still
//!    the one that it reads, and looks for that key in it anew (before, its place there was that of the next row);
//! 2. it goes on; every write from now on calls [`DeadRanges::on_write`] **after** its message is in the
//!    memtable and before it returns, which lowers the watch's end to the written key;
//! 3. at the first live row it turns the watch into a marker up to that row or the watch's end.
//!
//! A graft ([`super::graft`]) is a write of a whole interval that goes past the memtable: in step 1 the scan also checks that none was installed
//! since its version.
//!
//! A write whose message was in the memtable before step 1 is seen by the scan; a later one meets the watch
//! or the marker (both sides fence between their store and their load). A marker that is met late hides only
//! what is not committed yet.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::base::CommitNumber;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicUsize, Ordering, fence};

/// Most markers kept; past it, all are forgotten: those that are of use come again with the next scans.
const MARKERS_MAX: usize = 4096;
/// Intervals between longer keys are not remembered, so that markers take 8 MiB at most.
const KEY_BYTES_MAX: usize = 1 << 10;
/// Most scans that may watch at a time.
const WATCHES_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Marker {
    upper: Vec<u8>,
    since: CommitNumber,
}

#[derive(Debug)]
struct Watch {
    id: u64,
    lower: Vec<u8>,
    /// The lowest key written at or above `lower` since the watch began.
    written: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Inner {
    next_watch: u64,
    watches: Vec<Watch>,
    markers: BTreeMap<Vec<u8>, Marker>,
}

/// The markers and watches of a database.
#[derive(Debug, Default)]
pub struct DeadRanges {
    /// Watches and markers; 0 lets writers pass without the latch.
    count: AtomicUsize,
    inner: Mutex<Inner>,
}

/// An interval without visible rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadRange {
    /// Its lowest key.
    pub lower: Vec<u8>,
    /// The lowest key above it.
    pub upper: Vec<u8>,
    /// Holds for snapshots from this one on.
    pub since: CommitNumber,
}

/// Names a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchId(u64);

impl DeadRanges {
    /// True when there is anything that writes must be told to. To be asked after the messages are in the
    /// memtable.
    #[inline]
    pub fn is_watching(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Tells of keys whose messages have just been put into the memtable. Must be called before the write
    /// returns to its caller.
    pub fn on_write<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) {
        if !self.is_watching() {
            return;
        }
        let mut inner = self.inner.lock();
        for key in keys {
            for watch in &mut inner.watches {
                if watch.lower.as_slice() <= key && watch.written.as_deref().is_none_or(|written| key < written) {
                    watch.written = Some(key.to_vec());
                }
            }
            let at = (Bound::Unbounded, Bound::Included(key));
            let hit =
                inner.markers.range_mut::<[u8], _>(at).next_back().filter(|(_, marker)| key < marker.upper.as_slice());
            if let Some((lower, marker)) = hit {
                if lower.as_slice() == key {
                    let lower = lower.clone();
                    inner.markers.remove(&lower);
                } else {
                    marker.upper = key.to_vec();
                }
            }
        }
        self.recount(&inner);
    }

    /// Tells of a graft in `[lower, upper)` (`None`: no upper bound) that has just been installed, as [`DeadRanges::on_write`].
    pub fn on_graft(&self, lower: &[u8], upper: Option<&[u8]>) {
        if !self.is_watching() {
            return;
        }
        let below_upper = |key: &[u8]| upper.is_none_or(|upper| key < upper);
        let mut inner = self.inner.lock();
        for watch in inner.watches.iter_mut().filter(|watch| below_upper(&watch.lower)) {
            let first = watch.lower.as_slice().max(lower);
            if watch.written.as_deref().is_none_or(|written| first < written) {
                watch.written = Some(first.to_vec());
            }
        }
        inner.markers.retain(|from, marker| {
            if from.as_slice() < lower && marker.upper.as_slice() > lower {
                marker.upper = lower.to_vec();
            }
            from.as_slice() < lower || !below_upper(from)
        });
        self.recount(&inner);
    }

    fn recount(&self, inner: &Inner) {
        self.count.store(inner.watches.len() + inner.markers.len(), Ordering::SeqCst);
    }

    /// Watches writes at or above `lower`. `None` when too many scans watch, or it is too long to be remembered.
    pub fn watch(&self, lower: &[u8]) -> Option<WatchId> {
        let mut inner = self.inner.lock();
        if inner.watches.len() >= WATCHES_MAX || lower.len() > KEY_BYTES_MAX {
            return None;
        }
        if inner.markers.len() >= MARKERS_MAX {
            inner.markers.clear();
        }
        inner.next_watch += 1;
        let id = inner.next_watch;
        inner.watches.push(Watch { id, lower: lower.to_vec(), written: None });
        self.recount(&inner);
        fence(Ordering::SeqCst);
        Some(WatchId(id))
    }

    /// Ends a watch. With `upper` and `since`, leaves a marker from its begin to `upper` (or to the lowest
    /// key written meanwhile), joined to the marker that ends where it begins.
    pub fn end_watch(&self, watch: WatchId, dead: Option<(&[u8], CommitNumber)>) {
        let mut inner = self.inner.lock();
        let Some(at) = inner.watches.iter().position(|other| other.id == watch.0) else { return };
        let watch = inner.watches.swap_remove(at);
        if let Some((upper, since)) = dead {
            let upper = watch.written.as_deref().map_or(upper, |written| written.min(upper)).to_vec();
            if watch.lower < upper && upper.len() <= KEY_BYTES_MAX {
                inner.add(watch.lower, Marker { upper, since });
            }
        }
        self.recount(&inner);
    }

    /// The marker around `key` that a reader at `snapshot` may use.
    pub fn around(&self, key: &[u8], snapshot: CommitNumber) -> Option<DeadRange> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let inner = self.inner.lock();
        let (lower, marker) = inner.markers.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        let usable = key < marker.upper.as_slice() && marker.since <= snapshot;
        usable.then(|| DeadRange { lower: lower.clone(), upper: marker.upper.clone(), since: marker.since })
    }
}

impl Inner {
    fn add(&mut self, lower: Vec<u8>, mut marker: Marker) {
        // What lies inside the new interval is part of it; neighbours that touch it are joined.
        let inside: Vec<Vec<u8>> = self
            .markers
            .range::<Vec<u8>, _>(lower.clone()..=marker.upper.clone())
            .map(|(lower, _)| lower.clone())
            .collect();
        for key in inside {
            if let Some(other) = self.markers.remove(&key) {
                marker.since = marker.since.max(other.since);
                marker.upper = marker.upper.max(other.upper);
            }
        }
        match self.markers.range_mut::<Vec<u8>, _>(..lower.clone()).next_back() {
            Some((_, before)) if before.upper >= lower => {
                before.since = before.since.max(marker.since);
                before.upper = before.upper.clone().max(marker.upper);
            }
            _ => {
                self.markers.insert(lower, marker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE: CommitNumber = CommitNumber(7);

    fn marked(lower: &[u8], upper: &[u8]) -> DeadRanges {
        let dead = DeadRanges::default();
        let watch = dead.watch(lower).expect("room");
        dead.end_watch(watch, Some((upper, SINCE)));
        dead
    }

    fn bounds(dead: &DeadRanges, key: &[u8], snapshot: CommitNumber) -> Option<(Vec<u8>, Vec<u8>)> {
        dead.around(key, snapshot).map(|range| (range.lower, range.upper))
    }

    #[test]
    fn a_marker_is_used_by_snapshots_that_see_its_deletes() {
        let dead = marked(b"b", b"f");
        assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b".to_vec(), b"f".to_vec())));
        assert_eq!(bounds(&dead, b"c", CommitNumber(6)), None);
        assert_eq!(bounds(&dead, b"f", SINCE), None);
        assert_eq!(bounds(&dead, b"a", SINCE), None);
    }

    #[test]
    fn a_write_cuts_the_marker_off() {
        let dead = marked(b"b", b"f");
        dead.on_write([b"d".as_slice()]);
        assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b".to_vec(), b"d".to_vec())));
        assert_eq!(bounds(&dead, b"e", SINCE), None);
        dead.on_write([b"b".as_slice()]);
        assert_eq!(bounds(&dead, b"b", SINCE), None);
    }

    #[test]
    fn a_write_during_the_scan_ends_the_marker() {
        let dead = DeadRanges::default();
        let watch = dead.watch(b"b").expect("room");
        dead.on_write([b"e".as_slice(), b"d", b"a"]);
        dead.end_watch(watch, Some((b"z", SINCE)));
        assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b".to_vec(), b"d".to_vec())));
    }

    #[test]
    fn a_graft_cuts_markers_and_watches_off() {
        let dead = marked(b"b", b"f");
        dead.end_watch(dead.watch(b"g").expect("room"), Some((b"i", SINCE)));
        dead.end_watch(dead.watch(b"m").expect("room"), Some((b"p", SINCE)));
        let (below, inside, above) = (dead.watch(b"a"), dead.watch(b"e"), dead.watch(b"m"));
        dead.on_graft(b"d", Some(b"m"));
        assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b".to_vec(), b"d".to_vec())));
        assert_eq!(bounds(&dead, b"d", SINCE), None);
        assert_eq!(bounds(&dead, b"h", SINCE), None);
        assert_eq!(bounds(&dead, b"n", SINCE), Some((b"m".to_vec(), b"p".to_vec())));
        dead.end_watch(inside.expect("room"), Some((b"z", SINCE)));
        assert_eq!(bounds(&dead, b"e", SINCE), None, "nothing was left of it");
        dead.end_watch(above.expect("room"), Some((b"r", SINCE)));
        assert_eq!(bounds(&dead, b"q", SINCE), Some((b"m".to_vec(), b"r".to_vec())));
        dead.end_watch(below.expect("room"), Some((b"z", SINCE)));
        assert_eq!(bounds(&dead, b"c", SINCE), Some((b"a".to_vec(), b"d".to_vec())));
    }

    #[test]
    fn markers_that_nobody_needs_any_more_keep_no_others_out() {
        let dead = DeadRanges::default();
        for number in 0..2 * MARKERS_MAX as u32 {
            let lower = [b"a", &number.to_be_bytes()[..]].concat();
            let upper = [&lower[..], &[0]].concat();
            dead.end_watch(dead.watch(&lower).expect("room"), Some((&upper, SINCE)));
        }
        assert!(dead.count.load(Ordering::Relaxed) <= MARKERS_MAX);
        dead.end_watch(dead.watch(b"b").expect("room"), Some((b"c", SINCE)));
        assert!(bounds(&dead, b"b", SINCE).is_some());
        assert_eq!(dead.watch(&[b'x'; 2000]), None);
    }

    #[test]
    fn neighbours_join() {
        let dead = marked(b"b", b"f");
        let watch = dead.watch(b"f").expect("room");
        dead.end_watch(watch, Some((b"k", CommitNumber(9))));
        assert_eq!(bounds(&dead, b"c", CommitNumber(9)), Some((b"b".to_vec(), b"k".to_vec())));
    }
}
