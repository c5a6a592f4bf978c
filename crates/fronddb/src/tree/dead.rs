//! Dead ranges: intervals of keys that scans have found to hold nothing but committed deletes and what is rolled back.
//!
//! In a queue table (insert at one end, delete at the other) every scan from the front passes over all
//! that was deleted since the last compaction; in a stack, every scan from the back; after a large rollback, every scan over what was
//! inserted. So a scan that has passed over many dead keys in a
//! row leaves a *marker* behind, and the next scan, in either direction, jumps. Markers live in memory only; losing one costs
//! time, never a row.
//!
//! A marker `[lower, upper)` with commit number `since` promises: no snapshot at or above `since` sees a
//! row in the interval. A write into the interval takes the written key out of the marker: two are left, or the one below it where there are many.
//! Markers that touch each other in a row are joined where that makes none of them much younger ([`Pieces`]).
//!
//! How a scan makes a marker while others write:
//! 1. it registers a *watch* from the key where it stands, in its direction, then checks that the active memtable is still
//!    the one that it reads, and looks for that key in it anew (before, its place there was that of the next row);
//! 2. it goes on; every write from now on calls [`DeadRanges::on_write`] **after** its message is in the
//!    memtable and before it returns, which moves the watch's end to this side of the written key;
//! 3. at the first live row it turns the watch into a marker up to that row or the watch's end, whichever is nearer.
//!
//! A watch fixes the end of the interval at which the scan began: the lower one of a forward scan, the upper one of a backward scan. The other
//! one is the scan's bound at first.
//!
//! Before a writer takes the latch it looks at one word, in which each tree that has watches or markers sets a bit. So what is left over in one
//! tree, where it may stay for ever, costs writers of others nothing, unless their trees share the bit.
//!
//! A graft ([`super::graft`]) is a write of a whole interval that goes past the memtable: in step 1 the scan also checks that none was installed
//! since its version.
//!
//! A write whose message was in the memtable before step 1 is seen by the scan; a later one meets the watch
//! or the marker. For both sides fence between their store and their load: the writer finds the word as step 1 stored it, or as somebody
//! did after that. The word is stored under the latch alone, after each change, with the bits of all that is there. So the bit of the key's tree
//! is missing only where the key is in no watch and no marker any more. A marker that is met late hides only
//! what is not committed yet.
//!
//! - D1: the bits of the word are those of the watches and markers, as they are whenever the latch is free.
//! - D2: at most [`PIECES_MAX`] markers touch each other in a row: a row gets longer where one is added, and is joined then.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::base::key::{PREFIX_BYTES, tree_below, tree_of};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering, fence};
use crate::base::{CommitNumber, TreeId};

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
    /// Of those that were joined to it the oldest one's `since`; those that hold for every snapshot, whose `since` is 0, do not count.
    oldest: CommitNumber,
}

impl Marker {
    fn new(upper: &[u8], since: CommitNumber) -> Marker {
        Marker { upper: upper.to_vec(), since, oldest: since }
    }

    /// Whether it holds for every snapshot.
    fn is_for_all(&self) -> bool {
        self.since.0 == 0
    }
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
    /// What the interval reaches to. It begins as the scan's bound, and then up it is the lowest key written since; down, the first key above the
    /// highest one.
    end: Option<Vec<u8>>,
    /// Of the trees that it reached into when it began.
    bits: u64,
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

/// How many watches and markers there are for each bit.
#[derive(Debug, PartialEq, Eq)]
struct Trees([u32; u64::BITS as usize]);

impl Default for Trees {
    fn default() -> Trees {
        Trees([0; u64::BITS as usize])
    }
}

impl Trees {
    fn add(&mut self, bits: u64) {
        self.of(bits).for_each(|count| *count += 1);
    }

    fn remove(&mut self, bits: u64) {
        self.of(bits).for_each(|count| *count -= 1);
    }

    fn of(&mut self, bits: u64) -> impl Iterator<Item = &mut u32> {
        self.0.iter_mut().enumerate().filter(move |(at, _)| bits >> at & 1 == 1).map(|(_, count)| count)
    }

    fn bits(&self) -> u64 {
        self.0.iter().enumerate().fold(0, |bits, (at, count)| bits | u64::from(*count > 0) << at)
    }
}

fn bit(tree: TreeId) -> u64 {
    1 << (tree.0 % u64::BITS)
}

/// The bits of the trees that have keys in `[lower, upper)` (`None`: no upper bound).
fn bits_of(lower: &[u8], upper: Option<&[u8]>) -> u64 {
    let first = tree_of(lower).0;
    let upper = upper.filter(|upper| upper.len() >= PREFIX_BYTES);
    let last = upper.map_or(u32::MAX, |upper| tree_below(upper).0).max(first);
    if last - first >= u64::BITS {
        return u64::MAX;
    }
    (first..=last).fold(0, |bits, tree| bits | bit(TreeId(tree)))
}

#[derive(Debug, Default)]
struct Inner {
    next_watch: u64,
    watches: Vec<Watch>,
    markers: BTreeMap<Vec<u8>, Marker>,
    trees: Trees,
}

/// The markers and watches of a database.
#[derive(Debug, Default)]
pub struct DeadRanges {
    /// The bits of the trees that watches and markers lie in (D1): what lets writers pass without the latch.
    trees: AtomicU64,
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
    /// Tells of keys whose messages have just been put into the memtable: `keys` shows them. Must be called before the write
    /// returns to its caller.
    #[inline]
    pub fn on_write(&self, keys: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        let trees = self.watched();
        if trees != 0 {
            self.tell(trees, keys);
        }
    }

    /// The bits of trees whose writes have to be told of. To be asked after the messages are in the memtable.
    #[inline]
    fn watched(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.trees.load(Ordering::Relaxed)
    }

    /// Takes the latch at the first key of one of `trees`, and holds it until the last.
    fn tell(&self, trees: u64, keys: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        let mut latched = None;
        keys(&mut |key| {
            if trees & bit(tree_of(key)) != 0 {
                latched.get_or_insert_with(|| self.inner.lock()).write(key);
            }
        });
        if let Some(inner) = latched {
            self.show(&inner);
        }
    }

    /// Tells of a graft in `[lower, upper)` (`None`: no upper bound) that has just been installed, as [`DeadRanges::on_write`].
    pub fn on_graft(&self, lower: &[u8], upper: Option<&[u8]>) {
        if self.watched() & bits_of(lower, upper) == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        inner.graft(lower, upper);
        self.show(&inner);
    }

    /// Ends a change (D1).
    fn show(&self, inner: &Inner) {
        self.trees.store(inner.trees.bits(), Ordering::SeqCst);
    }

    /// Watches writes at or above `from`, or below it, as the scan goes its `way`, up to its `bound`: the lowest key above it, or the lowest of it.
    /// `None` when too many scans watch, or it is too long to be remembered.
    pub fn watch(&self, way: Way, from: &[u8], bound: Option<&[u8]>) -> Option<WatchId> {
        let mut inner = self.inner.lock();
        if inner.watches.len() >= WATCHES_MAX || from.len() > KEY_BYTES_MAX {
            return None;
        }
        if inner.markers.len() >= MARKERS_MAX {
            inner.forget_markers();
        }
        inner.next_watch += 1;
        let id = inner.next_watch;
        let bits = match way {
            Way::Up => bits_of(from, bound),
            Way::Down => bits_of(bound.unwrap_or_default(), Some(from)),
        };
        inner.trees.add(bits);
        inner.watches.push(Watch { id, way, from: from.to_vec(), end: bound.map(<[u8]>::to_vec), bits });
        self.show(&inner);
        fence(Ordering::SeqCst);
        Some(WatchId(id))
    }

    /// Ends a watch. With an end and `since`, leaves a marker between its begin and that end: up, the first key that is not dead; down, the
    /// lowest that is. What was written meanwhile lies outside. It is joined to those that it touches.
    pub fn end_watch(&self, watch: WatchId, dead: Option<(&[u8], CommitNumber)>) {
        let mut inner = self.inner.lock();
        let Some(at) = inner.watches.iter().position(|other| other.id == watch.0) else { return };
        let watch = inner.watches.swap_remove(at);
        inner.trees.remove(watch.bits);
        if let Some((end, since)) = dead {
            let Watch { way, from, end: cut, .. } = watch;
            let cut = cut.as_deref().unwrap_or(end);
            let end = if way == Way::Up { end.min(cut) } else { end.max(cut) };
            let fits = end.len() <= KEY_BYTES_MAX;
            match way {
                Way::Up if fits && from.as_slice() < end => inner.add(from, Marker::new(end, since)),
                Way::Down if fits && end < from.as_slice() => inner.add(end.to_vec(), Marker::new(&from, since)),
                _ => {}
            }
        }
        self.show(&inner);
    }

    /// What lies around `key` in markers that touch and that a reader at `snapshot` may use.
    pub fn around(&self, key: &[u8], snapshot: CommitNumber) -> Option<DeadRange> {
        if self.trees.load(Ordering::Acquire) & bit(tree_of(key)) == 0 {
            return None;
        }
        let inner = self.inner.lock();
        let (lower, marker) = inner.around(key).filter(|(_, marker)| marker.since <= snapshot)?;
        let mut range = DeadRange { lower: lower.clone(), upper: marker.upper.clone(), since: marker.since };
        let above = inner.markers.range::<[u8], _>((Bound::Included(marker.upper.as_slice()), Bound::Unbounded));
        for (from, next) in above {
            if *from != range.upper || next.since > snapshot {
                break;
            }
            range.upper.clone_from(&next.upper);
            range.since = range.since.max(next.since);
        }
        for (from, next) in inner.markers.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(lower.as_slice()))).rev()
        {
            if next.upper != range.lower || next.since > snapshot {
                break;
            }
            range.lower.clone_from(from);
            range.since = range.since.max(next.since);
        }
        Some(range)
    }
}

impl Inner {
    /// The marker that `key` lies in.
    fn around(&self, key: &[u8]) -> Option<(&Vec<u8>, &Marker)> {
        let before = self.markers.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        before.filter(|(_, marker)| key < marker.upper.as_slice())
    }

    fn insert(&mut self, lower: Vec<u8>, marker: Marker) {
        self.trees.add(bits_of(&lower, Some(&marker.upper)));
        let before = self.markers.insert(lower, marker);
        debug_assert!(before.is_none(), "markers lie beside each other");
    }

    fn remove(&mut self, lower: &[u8]) -> Option<Marker> {
        let marker = self.markers.remove(lower)?;
        self.trees.remove(bits_of(lower, Some(&marker.upper)));
        Some(marker)
    }

    fn forget_markers(&mut self) {
        while let Some((lower, marker)) = self.markers.pop_first() {
            self.trees.remove(bits_of(&lower, Some(&marker.upper)));
        }
    }

    /// Takes `key` out of the marker around it, and cuts the watches at it.
    fn write(&mut self, key: &[u8]) {
        let lower = self.around(key).map(|(lower, _)| lower.clone());
        if lower.is_none() && self.watches.is_empty() {
            return;
        }
        let behind = [key, &[0]].concat();
        self.watches.iter_mut().for_each(|watch| watch.cut(key, Some(&behind)));
        let Some(lower) = lower else { return };
        let Some(marker) = self.remove(&lower) else { return };
        if lower.as_slice() < key {
            self.insert(lower, Marker { upper: key.to_vec(), ..marker });
        }
        if behind < marker.upper && behind.len() <= KEY_BYTES_MAX && self.markers.len() < MARKERS_MAX {
            self.insert(behind, marker);
        }
    }

    /// Leaves markers and watches nothing of `[lower, upper)`; of a marker that is around it the part below.
    fn graft(&mut self, lower: &[u8], upper: Option<&[u8]>) {
        self.watches.iter_mut().for_each(|watch| watch.cut(lower, upper));
        let below = (Bound::Unbounded, upper.map_or(Bound::Unbounded, Bound::Excluded));
        let from_behind = self.markers.range::<[u8], _>(below).rev();
        let hit = from_behind.take_while(|(_, marker)| marker.upper.as_slice() > lower);
        let hit: Vec<Vec<u8>> = hit.map(|(from, _)| from.clone()).collect();
        for from in hit {
            if let Some(marker) = self.remove(&from).filter(|_| from.as_slice() < lower) {
                self.insert(from, Marker { upper: lower.to_vec(), ..marker });
            }
        }
    }

    /// Where the markers begin that touch `[lower, upper)`, and those that touch these, and so on, ascending.
    fn touching(&self, lower: &[u8], upper: &[u8]) -> Vec<Vec<u8>> {
        let (mut low, mut high) = (lower, upper);
        let mut row = Vec::new();
        for (from, other) in self.markers.range::<[u8], _>((Bound::Unbounded, Bound::Included(upper))).rev() {
            if other.upper.as_slice() < low {
                break;
            }
            low = low.min(from);
            high = high.max(&other.upper);
            row.push(from.clone());
        }
        row.reverse();
        for (from, other) in self.markers.range::<[u8], _>((Bound::Excluded(upper), Bound::Unbounded)) {
            if from.as_slice() > high {
                break;
            }
            high = &other.upper;
            row.push(from.clone());
        }
        row
    }

    /// Adds a marker. What others have promised stays as it is where that is more; of the row that it lies in then, those that promise about
    /// the same are joined (D2).
    fn add(&mut self, lower: Vec<u8>, marker: Marker) {
        let upper = &marker.upper;
        let (mut pieces, mut at) = (Pieces::default(), lower.clone());
        for from in self.touching(&lower, upper) {
            let Some(other) = self.remove(&from) else { continue };
            let shared = (&other.upper).min(upper);
            pieces.push(&from, (&other.upper).min(&lower), &other);
            pieces.push(&at, (&from).min(upper), &marker);
            pieces.push((&from).max(&lower), shared, if other.since < marker.since { &other } else { &marker });
            at = (&at).max(shared).clone();
            pieces.push((&from).max(upper), &other.upper, &other);
        }
        pieces.push(&at, upper, &marker);
        for (lower, marker) in pieces.join() {
            self.insert(lower, marker);
        }
    }
}

/// Intervals of which markers are made, ascending.
///
/// A reader jumps over a marker only when its snapshot is not older than `since`. Where scan after scan adds to one end, as in a queue, a single
/// marker would be younger than the snapshots of nearly all who read beside others. So neighbours are joined when what that makes of the older
/// one is little beside its age: who is some commits behind misses the rows of ten times as many commits at most, or of 64. One that holds for
/// every snapshot is joined to others only where there are too many pieces.
#[derive(Debug, Default)]
struct Pieces(Vec<(Vec<u8>, Marker)>);

/// Commits that are joined in any case, and how many times as many as the joined one is old.
const JOINED_MIN: u64 = 63;
const JOINED_AGES: u64 = 8;
/// More pieces than this are joined to one: to jump from each to the next costs more than to find rows that few miss.
const PIECES_MAX: usize = 32;

impl Pieces {
    /// `[lower, upper)`, if there is anything in it, with what a marker promises.
    fn push(&mut self, lower: &Vec<u8>, upper: &Vec<u8>, marker: &Marker) {
        if lower < upper {
            self.0.push((lower.clone(), Marker { upper: upper.clone(), ..marker.clone() }));
        }
    }

    fn join(self) -> Vec<(Vec<u8>, Marker)> {
        let newest = self.0.iter().map(|(_, marker)| marker.since.0).max().unwrap_or_default();
        let is_little = |joined: &Marker| {
            let age = newest - joined.since.0;
            joined.since.0 - joined.oldest.0 <= JOINED_MIN.max(age.saturating_mul(JOINED_AGES))
        };
        let mut joined =
            join_if(self.0, |last, next, joined| last.is_for_all() == next.is_for_all() && is_little(joined));
        if joined.len() > PIECES_MAX {
            joined = join_if(joined, |_, _, joined| is_little(joined));
        }
        if joined.len() <= PIECES_MAX { joined } else { join_if(joined, |_, _, _| true) }
    }
}

/// Joins each piece with those before it that it touches, where these, it and the whole `may_be`.
fn join_if(
    pieces: Vec<(Vec<u8>, Marker)>,
    may_be: impl Fn(&Marker, &Marker, &Marker) -> bool,
) -> Vec<(Vec<u8>, Marker)> {
    let mut joined: Vec<(Vec<u8>, Marker)> = Vec::with_capacity(pieces.len());
    for (lower, marker) in pieces {
        if let Some((_, last)) = joined.last_mut().filter(|(_, last)| last.upper == lower) {
            let oldest = match (last.is_for_all(), marker.is_for_all()) {
                (true, _) => marker.oldest,
                (_, true) => last.oldest,
                _ => last.oldest.min(marker.oldest),
            };
            let whole = Marker { upper: marker.upper.clone(), since: last.since.max(marker.since), oldest };
            if may_be(last, &marker, &whole) {
                *last = whole;
                continue;
            }
        }
        joined.push((lower, marker));
    }
    joined
}

#[cfg(test)]
mod tests;
