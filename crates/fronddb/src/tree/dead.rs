//! Dead ranges: intervals of keys that scans have found to hold nothing but committed deletes.
//!
//! In a queue table (insert at one end, delete at the other) every scan from the front passes over all
//! that was deleted since the last compaction; in a stack, every scan from the back. So a scan that has passed over many dead keys in a
//! row leaves a *marker* behind, and the next scan, in either direction, jumps. Markers live in memory only; losing one costs
//! time, never a row.
//!
//! A marker `[lower, upper)` with commit number `since` promises: no snapshot at or above `since` sees a
//! row in the interval. A write into the interval takes the written key out of the marker: two are left, or the one below it where there are many.
//!
//! How a scan makes a marker while others write:
//! 1. it registers a *watch* from the key where it stands, in its direction, then checks that the active memtable is still
//!    the one that it reads, and looks for that key in it anew (before, its place there was that of the next row);
//! 2. it goes on; every write from now on calls [`DeadRanges::on_write`] **after** its message is in the
//!    memtable and before it returns, which moves the watch's end to this side of the written key;
//! 3. at the first live row it turns the watch into a marker up to that row or the watch's end, whichever is nearer.
//!
//! A watch fixes the end of the interval at which the scan began: the lower one of a forward scan, the upper one of a backward scan.
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

/// Where a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To higher keys.
    Up,
    /// To lower keys.
    Down,
}

#[derive(Debug)]
struct Watch {
    id: u64,
    way: Way,
    /// Where the scan began: up, the lowest key that is watched; down, the first that is not.
    from: Vec<u8>,
    /// What the interval reaches to because of writes since: up, the lowest key written in it; down, the first key above the highest one.
    end: Option<Vec<u8>>,
}

impl Watch {
    /// Something was written in `[lower, upper)`, which is not empty (`None`: no upper bound).
    fn cut(&mut self, lower: &[u8], upper: Option<&[u8]>) {
        let from = self.from.as_slice();
        let end = match self.way {
            Way::Up if upper.is_none_or(|upper| from < upper) => lower.max(from),
            Way::Down if lower < from => upper.map_or(from, |upper| upper.min(from)),
            _ => return,
        };
        let is_nearer = |now: &[u8]| if self.way == Way::Up { end < now } else { end > now };
        if self.end.as_deref().is_none_or(is_nearer) {
            self.end = Some(end.to_vec());
        }
    }
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
        let inner = &mut *inner;
        let mut behind = Vec::new();
        for key in keys {
            if !inner.watches.is_empty() {
                behind.clear();
                behind.extend_from_slice(key);
                behind.push(0);
                inner.watches.iter_mut().for_each(|watch| watch.cut(key, Some(&behind)));
            }
            inner.take_out(key);
        }
        self.recount(inner);
    }

    /// Tells of a graft in `[lower, upper)` (`None`: no upper bound) that has just been installed, as [`DeadRanges::on_write`].
    pub fn on_graft(&self, lower: &[u8], upper: Option<&[u8]>) {
        if !self.is_watching() {
            return;
        }
        let below_upper = |key: &[u8]| upper.is_none_or(|upper| key < upper);
        let mut inner = self.inner.lock();
        inner.watches.iter_mut().for_each(|watch| watch.cut(lower, upper));
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

    /// Watches writes at or above `from`, or below it, as the scan goes its `way`. `None` when too many scans watch, or it is too long to be
    /// remembered.
    pub fn watch(&self, way: Way, from: &[u8]) -> Option<WatchId> {
        let mut inner = self.inner.lock();
        if inner.watches.len() >= WATCHES_MAX || from.len() > KEY_BYTES_MAX {
            return None;
        }
        if inner.markers.len() >= MARKERS_MAX {
            inner.markers.clear();
        }
        inner.next_watch += 1;
        let id = inner.next_watch;
        inner.watches.push(Watch { id, way, from: from.to_vec(), end: None });
        self.recount(&inner);
        fence(Ordering::SeqCst);
        Some(WatchId(id))
    }

    /// Ends a watch. With an end and `since`, leaves a marker between its begin and that end: up, the first key that is not dead; down, the
    /// lowest that is. What was written meanwhile lies outside. It is joined to those that it touches.
    pub fn end_watch(&self, watch: WatchId, dead: Option<(&[u8], CommitNumber)>) {
        let mut inner = self.inner.lock();
        let Some(at) = inner.watches.iter().position(|other| other.id == watch.0) else { return };
        let watch = inner.watches.swap_remove(at);
        if let Some((end, since)) = dead {
            let Watch { way, from, end: cut, .. } = watch;
            let cut = cut.as_deref().unwrap_or(end);
            let end = if way == Way::Up { end.min(cut) } else { end.max(cut) };
            let fits = end.len() <= KEY_BYTES_MAX;
            match way {
                Way::Up if fits && from.as_slice() < end => inner.add(from, Marker { upper: end.to_vec(), since }),
                Way::Down if fits && end < from.as_slice() => inner.add(end.to_vec(), Marker { upper: from, since }),
                _ => {}
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
    /// Takes `key` out of the marker around it.
    fn take_out(&mut self, key: &[u8]) {
        let at = (Bound::Unbounded, Bound::Included(key));
        let hit = self.markers.range_mut::<[u8], _>(at).next_back().filter(|(_, marker)| key < marker.upper.as_slice());
        let Some((lower, marker)) = hit else { return };
        let since = marker.since;
        let upper = std::mem::replace(&mut marker.upper, key.to_vec());
        if lower.as_slice() == key {
            let lower = lower.clone();
            self.markers.remove(&lower);
        }
        let above = [key, &[0]].concat();
        if above < upper && above.len() <= KEY_BYTES_MAX && self.markers.len() < MARKERS_MAX {
            self.markers.insert(above, Marker { upper, since });
        }
    }

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
        let watch = dead.watch(Way::Up, lower).expect("room");
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
    fn a_write_takes_its_key_out_of_the_marker() {
        let dead = marked(b"b", b"f");
        dead.on_write([b"d".as_slice()]);
        assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b".to_vec(), b"d".to_vec())));
        assert_eq!(bounds(&dead, b"d", SINCE), None);
        assert_eq!(bounds(&dead, b"e", SINCE), Some((b"d\0".to_vec(), b"f".to_vec())));
        dead.on_write([b"b".as_slice()]);
        assert_eq!(bounds(&dead, b"b", SINCE), None);
        assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b\0".to_vec(), b"d".to_vec())));
        assert_eq!(bounds(&dead, b"d\0", CommitNumber(6)), None, "what is left promises no more than it did");
        let dead = marked(b"b", b"b\0");
        dead.on_write([b"b".as_slice()]);
        assert_eq!(dead.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn writes_into_dead_ranges_leave_no_more_markers_than_there_may_be() {
        let dead = marked(b"b", b"f");
        for number in 0..2 * MARKERS_MAX as u32 {
            dead.on_write([[b"c", &number.to_be_bytes()[..]].concat().as_slice()]);
        }
        assert_eq!(dead.count.load(Ordering::Relaxed), MARKERS_MAX);
        for number in 0..2 * MARKERS_MAX as u32 {
            assert_eq!(bounds(&dead, &[b"c", &number.to_be_bytes()[..]].concat(), SINCE), None);
        }
    }

    #[test]
    fn a_watch_downwards_mirrors_one_upwards() {
        let dead = DeadRanges::default();
        let watch = dead.watch(Way::Down, b"m").expect("room");
        dead.on_write([b"d".as_slice(), b"e", b"b", b"m", b"z"]);
        dead.end_watch(watch, Some((b"a", SINCE)));
        assert_eq!(bounds(&dead, b"f", SINCE), Some((b"e\0".to_vec(), b"m".to_vec())));
        assert_eq!((bounds(&dead, b"e", SINCE), bounds(&dead, b"m", SINCE)), (None, None));
        // A row above what was written is nearer.
        let dead = DeadRanges::default();
        let watch = dead.watch(Way::Down, b"m").expect("room");
        dead.on_write([b"d".as_slice()]);
        dead.end_watch(watch, Some((b"k\0", SINCE)));
        assert_eq!(bounds(&dead, b"l", SINCE), Some((b"k\0".to_vec(), b"m".to_vec())));
        assert_eq!(bounds(&dead, b"k", SINCE), None);
        // It is joined to the marker that begins where it began.
        let watch = dead.watch(Way::Down, b"k\0").expect("room");
        dead.end_watch(watch, Some((b"c", CommitNumber(9))));
        assert_eq!(bounds(&dead, b"l", CommitNumber(9)), Some((b"c".to_vec(), b"m".to_vec())));
        assert_eq!(bounds(&dead, b"l", SINCE), None);
        for (lower, upper, left) in [
            (b"d", Some(b"f"), Some(b"f")),
            (b"d", None, None),
            (b"g", Some(b"z"), None),
            (b"m", None, Some(b"a")),
            (b"h", Some(b"m"), None),
        ] {
            let dead = DeadRanges::default();
            let watch = dead.watch(Way::Down, b"m").expect("room");
            dead.on_graft(lower, upper.map(<[u8; 1]>::as_slice));
            dead.end_watch(watch, Some((b"a", SINCE)));
            assert_eq!(bounds(&dead, b"lll", SINCE), left.map(|left| (left.to_vec(), b"m".to_vec())), "{lower:?}");
        }
    }

    #[test]
    fn a_write_during_the_scan_ends_the_marker() {
        let dead = DeadRanges::default();
        let watch = dead.watch(Way::Up, b"b").expect("room");
        dead.on_write([b"e".as_slice(), b"d", b"a"]);
        dead.end_watch(watch, Some((b"z", SINCE)));
        assert_eq!(bounds(&dead, b"c", SINCE), Some((b"b".to_vec(), b"d".to_vec())));
    }

    #[test]
    fn a_graft_cuts_markers_and_watches_off() {
        let dead = marked(b"b", b"f");
        dead.end_watch(dead.watch(Way::Up, b"g").expect("room"), Some((b"i", SINCE)));
        dead.end_watch(dead.watch(Way::Up, b"m").expect("room"), Some((b"p", SINCE)));
        let (below, inside, above) = (dead.watch(Way::Up, b"a"), dead.watch(Way::Up, b"e"), dead.watch(Way::Up, b"m"));
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
            dead.end_watch(dead.watch(Way::Up, &lower).expect("room"), Some((&upper, SINCE)));
        }
        assert!(dead.count.load(Ordering::Relaxed) <= MARKERS_MAX);
        dead.end_watch(dead.watch(Way::Up, b"b").expect("room"), Some((b"c", SINCE)));
        assert!(bounds(&dead, b"b", SINCE).is_some());
        assert_eq!(dead.watch(Way::Up, &[b'x'; 2000]), None);
    }

    #[test]
    fn neighbours_join() {
        let dead = marked(b"b", b"f");
        let watch = dead.watch(Way::Up, b"f").expect("room");
        dead.end_watch(watch, Some((b"k", CommitNumber(9))));
        assert_eq!(bounds(&dead, b"c", CommitNumber(9)), Some((b"b".to_vec(), b"k".to_vec())));
    }
}
