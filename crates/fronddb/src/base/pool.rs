//! Memory for what the cache holds, counted as the system counts it: by resident page.
//!
//! Blocks of many sizes come and go in the cache all the time, and many threads bring them. A general allocator keeps
//! holes between them, and holes of each thread apart, so that the resident set may be far larger than the sum of what is
//! in use. Here a *piece* is cut from anonymous maps (*segments*) that belong to one [`Pool`]: the
//! smallest hole that fits, the lowest among equals, neighbouring holes joined. The pool knows which pages it
//! has touched and tells the budget of these, holes included; [`Pool::purge`] gives the pages of holes back to the
//! system while the map stays.
//!
//! Blocks are read all over the cache. Where the budget is not small, segments are therefore made of the processor's large
//! pages (*grains*), as far as the system gives them: the first touch makes a whole grain resident. A grain of which a part
//! is purged is of small pages from then on, until all of it is purged.
//!
//! A hole costs nothing but the parts of pages at its two ends once it is purged; until then, the next piece that goes in
//! costs no page fault.
//!
//! Invariants:
//! - L1: the pieces and the holes of a segment do not overlap and cover it; two holes never touch.
//! - L2: every page that a piece touches is in `resident`, and `resident_bytes` counts those pages; of a large grain all or
//!   none are. So no fewer are counted than the system holds, and no more where it has large pages.
//! - L3: a piece larger than [`PIECE_BYTES_MAX`] has a map of its own.
//! - L4: a hole with a whole resident page in it is among `idle`.
//!
//! Latch: one, held for a few map operations; last of all.
#![allow(unsafe_code, reason = "memory from the system has no safe form")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::memory::{MemoryBudget, Purpose};
use super::page_buf::{LARGE_PAGE_BYTES, PageBuf};
use super::prefetch::prefetch;
use super::space::PAGE_BYTES;
use super::sync::Mutex;

/// Pieces are multiples of this, and aligned to it.
pub const UNIT_BYTES: usize = 256;
/// Pieces above this have maps of their own.
pub const PIECE_BYTES_MAX: usize = SEGMENT_BYTES / 4;

const SEGMENT_BYTES: usize = 4 << 20;
const SEGMENT_UNITS: u64 = (SEGMENT_BYTES / UNIT_BYTES) as u64;
const PAGE: usize = PAGE_BYTES as usize;
const PAGE_UNITS: u64 = (PAGE / UNIT_BYTES) as u64;
const SEGMENT_PAGES: usize = SEGMENT_BYTES / PAGE;
const GRAIN_PAGES: usize = LARGE_PAGE_BYTES / PAGE;
const SEGMENT_GRAINS: usize = SEGMENT_BYTES / LARGE_PAGE_BYTES;
/// Grains are small where a large page is more than one part in so many of the budget.
const LARGE_PART: usize = 128;

/// Where pieces come from. Clones share it.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    budget: MemoryBudget,
    space: Mutex<Space>,
    /// Pages that the system holds for segments and for pieces with maps of their own, in bytes (L2).
    resident_bytes: AtomicUsize,
    /// Units of living pieces, in bytes.
    used_bytes: AtomicUsize,
}

/// Units of all segments are numbered through: segment times [`SEGMENT_UNITS`] plus the unit in it.
#[derive(Default)]
struct Space {
    segments: Vec<Segment>,
    /// Length of each hole by its first unit, and the same by length (L1).
    holes: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    /// Those of a page and more that were not purged since a piece was there (L4), by length.
    idle: BTreeSet<(u64, u64)>,
}

struct Segment {
    memory: PageBuf,
    /// A bit for each page that has been touched since it was last purged.
    resident: [u64; SEGMENT_PAGES / 64],
    /// Grains may be large.
    is_large: bool,
    large: [bool; SEGMENT_GRAINS],
}

/// Memory that goes back to its pool when dropped. Derefs to its bytes.
pub struct Piece {
    pointer: NonNull<u8>,
    length: usize,
    home: Home,
}

enum Home {
    /// First unit, in a segment of the pool.
    Segment(Arc<Shared>, u64),
    /// A map of its own.
    Own(Option<Arc<Shared>>, PageBuf),
}

// Safety: a piece owns its memory alone and hands it out by the borrow rules of `&self` and `&mut self`.
unsafe impl Send for Piece {}
// Safety: as above; `&Piece` gives shared reads only.
unsafe impl Sync for Piece {}

fn units(bytes: usize) -> u64 {
    bytes.div_ceil(UNIT_BYTES).max(1) as u64
}

/// Pages that lie wholly in `length` units of a segment from `unit` on.
fn whole_pages(unit: u64, length: u64) -> Range<usize> {
    unit.div_ceil(PAGE_UNITS) as usize..((unit + length) / PAGE_UNITS) as usize
}

impl Pool {
    /// An empty pool that tells `budget` of its pages, as the cache's.
    pub fn new(budget: &MemoryBudget) -> Pool {
        Pool(Arc::new(Shared {
            budget: budget.clone(),
            space: Mutex::default(),
            resident_bytes: AtomicUsize::new(0),
            used_bytes: AtomicUsize::new(0),
        }))
    }

    /// A piece of `length` bytes. What they are is not defined.
    pub fn take(&self, length: usize) -> Piece {
        let shared = &self.0;
        if length > PIECE_BYTES_MAX {
            let map = PageBuf::zeroed(length);
            shared.count(map.capacity() as isize);
            shared.used_bytes.fetch_add(map.capacity(), Ordering::Relaxed);
            return Piece::own(map, Some(shared.clone()));
        }
        let units = units(length);
        let mut space = shared.space.lock();
        let first = space.take_hole(units, || shared.budget.limit() / LARGE_PART >= LARGE_PAGE_BYTES);
        let (pointer, touched) = space.touch(first, units);
        drop(space);
        shared.count(touched as isize);
        shared.used_bytes.fetch_add(units as usize * UNIT_BYTES, Ordering::Relaxed);
        Piece { pointer, length, home: Home::Segment(shared.clone(), first) }
    }

    /// A piece with these bytes.
    pub fn copy(&self, bytes: &[u8]) -> Piece {
        let mut piece = self.take(bytes.len());
        piece.copy_from_slice(bytes);
        piece
    }

    /// Bytes that the system holds for it.
    pub fn resident_bytes(&self) -> usize {
        self.0.resident_bytes.load(Ordering::Relaxed)
    }

    /// Resident bytes that no piece uses.
    pub fn idle_bytes(&self) -> usize {
        self.resident_bytes().saturating_sub(self.0.used_bytes.load(Ordering::Relaxed))
    }

    /// Gives about `bytes` of pages in holes back to the system, those of large holes first; the bytes given back.
    pub fn purge(&self, bytes: usize) -> usize {
        let mut space = self.0.space.lock();
        let Space { segments, idle, .. } = &mut *space;
        let mut purged = 0;
        while purged < bytes
            && let Some((length, first)) = idle.pop_last()
        {
            purged += segments[(first / SEGMENT_UNITS) as usize].purge(first % SEGMENT_UNITS, length);
        }
        self.0.count(-(purged as isize));
        purged
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("resident", &self.resident_bytes()).field("idle", &self.idle_bytes()).finish()
    }
}

impl Shared {
    fn count(&self, bytes: isize) {
        match usize::try_from(bytes) {
            Ok(more) => {
                self.resident_bytes.fetch_add(more, Ordering::Relaxed);
                self.budget.add(Purpose::Cache, more);
            }
            Err(_) => {
                self.resident_bytes.fetch_sub(bytes.unsigned_abs(), Ordering::Relaxed);
                self.budget.sub(Purpose::Cache, bytes.unsigned_abs());
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.budget.sub(Purpose::Cache, *self.resident_bytes.get_mut());
    }
}

impl Space {
    /// Takes `units` units out of the best hole, or of a new segment; the first of them.
    fn take_hole(&mut self, units: u64, is_large: impl FnOnce() -> bool) -> u64 {
        let (length, first) = match self.by_length.range((units, 0)..).next().copied() {
            Some(hole) => hole,
            None => {
                let first = self.segments.len() as u64 * SEGMENT_UNITS;
                self.segments.push(Segment::new(is_large()));
                self.add_hole(first, SEGMENT_UNITS, false);
                (SEGMENT_UNITS, first)
            }
        };
        let is_idle = self.remove_hole(first, length);
        if length > units {
            self.add_hole(first + units, length - units, is_idle);
        }
        first
    }

    fn add_hole(&mut self, first: u64, length: u64, is_idle: bool) {
        self.holes.insert(first, length);
        self.by_length.insert((length, first));
        if is_idle && length >= PAGE_UNITS {
            self.idle.insert((length, first));
        }
    }

    /// True if it was among `idle`.
    fn remove_hole(&mut self, first: u64, length: u64) -> bool {
        self.holes.remove(&first);
        self.by_length.remove(&(length, first));
        self.idle.remove(&(length, first))
    }

    /// Makes a hole of a piece, joined with its neighbours in the segment (L1).
    fn give_back(&mut self, mut first: u64, mut length: u64) {
        let same_segment = |other: u64| other / SEGMENT_UNITS == first / SEGMENT_UNITS;
        let before = self.holes.range(..first).next_back().map(|(at, length)| (*at, *length));
        let before = before.filter(|(at, length)| at + length == first && same_segment(*at));
        let end = first + length;
        let after = self.holes.get(&end).map(|length| (end, *length)).filter(|(at, _)| same_segment(*at));
        for (at, more) in before.into_iter().chain(after) {
            self.remove_hole(at, more);
            first = first.min(at);
            length += more;
        }
        self.add_hole(first, length, true);
    }

    /// Address of a unit, and the bytes of pages that become resident by touching `units` from there.
    fn touch(&mut self, first: u64, units: u64) -> (NonNull<u8>, usize) {
        let segment = &mut self.segments[(first / SEGMENT_UNITS) as usize];
        let unit = first % SEGMENT_UNITS;
        let (mut pages, mut beyond) = (0, false);
        for page in (unit / PAGE_UNITS) as usize..=((unit + units - 1) / PAGE_UNITS) as usize {
            if segment.is_resident(page) {
                continue;
            }
            let grain = page / GRAIN_PAGES;
            if segment.large[grain] {
                segment.set_resident(grain * GRAIN_PAGES..(grain + 1) * GRAIN_PAGES, true);
                (pages, beyond) = (pages + GRAIN_PAGES, true);
            } else {
                segment.set_resident(page..page + 1, true);
                pages += 1;
            }
        }
        let at = unit as usize * UNIT_BYTES;
        let bytes = segment.memory.raw(at, units as usize * UNIT_BYTES);
        let after = first + units;
        if beyond
            && !after.is_multiple_of(SEGMENT_UNITS)
            && let Some(length) = self.holes.get(&after).filter(|length| **length >= PAGE_UNITS)
        {
            // Its pages came along (L4).
            self.idle.insert((*length, after));
        }
        (bytes, pages * PAGE)
    }
}

impl Segment {
    fn new(is_large: bool) -> Segment {
        let memory = if is_large { PageBuf::large(SEGMENT_BYTES) } else { PageBuf::scattered(SEGMENT_BYTES) };
        Segment { memory, resident: [0; SEGMENT_PAGES / 64], is_large, large: [is_large; SEGMENT_GRAINS] }
    }

    fn is_resident(&self, page: usize) -> bool {
        self.resident[page / 64] & (1 << (page % 64)) != 0
    }

    fn set_resident(&mut self, pages: Range<usize>, resident: bool) {
        for page in pages {
            let (word, bit) = (page / 64, 1 << (page % 64));
            self.resident[word] = self.resident[word] & !bit | if resident { bit } else { 0 };
        }
    }

    /// Before pages of a large grain that is resident are given back: unless it is all of them, it is a small one now.
    fn break_grains(&mut self, pages: &Range<usize>) {
        for grain in pages.start / GRAIN_PAGES..pages.end.div_ceil(GRAIN_PAGES) {
            let all = grain * GRAIN_PAGES..(grain + 1) * GRAIN_PAGES;
            if self.large[grain] && !(pages.start <= all.start && all.end <= pages.end) {
                self.large[grain] = false;
                self.memory.ask_for_large(all.start * PAGE, LARGE_PAGE_BYTES, false);
            }
        }
    }

    /// After pages were given back: small grains of which none is left may be large again.
    fn mend_grains(&mut self, pages: &Range<usize>) {
        for grain in pages.start / GRAIN_PAGES..pages.end.div_ceil(GRAIN_PAGES) {
            let mut all = grain * GRAIN_PAGES..(grain + 1) * GRAIN_PAGES;
            if self.is_large && !self.large[grain] && !all.any(|page| self.is_resident(page)) {
                self.large[grain] = true;
                self.memory.ask_for_large(grain * LARGE_PAGE_BYTES, LARGE_PAGE_BYTES, true);
            }
        }
    }

    /// Gives the whole resident pages in a hole back; their bytes.
    fn purge(&mut self, unit: u64, length: u64) -> usize {
        let mut purged = 0;
        let pages = whole_pages(unit, length);
        let mut page = pages.start;
        while page < pages.end {
            let from = page;
            while page < pages.end && self.is_resident(page) {
                page += 1;
            }
            if page > from {
                self.break_grains(&(from..page));
                self.set_resident(from..page, false);
                self.memory.discard(from * PAGE, (page - from) * PAGE);
                self.mend_grains(&(from..page));
                purged += (page - from) * PAGE;
            }
            page += 1;
        }
        purged
    }
}

impl Piece {
    /// Not from a pool, and not counted: for tools and tests.
    pub fn alone(length: usize) -> Piece {
        Piece::own(PageBuf::zeroed(length), None)
    }

    fn own(mut map: PageBuf, shared: Option<Arc<Shared>>) -> Piece {
        let (pointer, length) = (map.raw(0, map.len()), map.len());
        Piece { pointer, length, home: Home::Own(shared, map) }
    }

    /// See [`prefetch`].
    #[inline]
    pub fn prefetch(&self, range: Range<usize>) {
        let range = range.start.min(self.length)..range.end.min(self.length);
        prefetch(self.pointer.as_ptr().wrapping_add(range.start), range.len());
    }

    /// Bytes that it takes and no pool counts.
    pub fn uncounted_bytes(&self) -> usize {
        match &self.home {
            Home::Own(None, map) => map.capacity(),
            Home::Segment(..) | Home::Own(Some(_), _) => 0,
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        match &self.home {
            Home::Segment(shared, first) => {
                let units = units(self.length);
                shared.used_bytes.fetch_sub(units as usize * UNIT_BYTES, Ordering::Relaxed);
                shared.space.lock().give_back(*first, units);
            }
            Home::Own(Some(shared), map) => {
                shared.used_bytes.fetch_sub(map.capacity(), Ordering::Relaxed);
                shared.count(-(map.capacity() as isize));
            }
            Home::Own(None, _) => {}
        }
    }
}

impl Deref for Piece {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // Safety: L1: the memory is this piece's alone and stays mapped while its home is held; it was zeroed by the
        // system or written by an earlier piece.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.length) }
    }
}

impl DerefMut for Piece {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // Safety: as in `deref`; the borrow of `self` is unique.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.length) }
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Piece").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    fn check(pool: &Pool) {
        let space = pool.0.space.lock();
        assert_eq!(space.holes.len(), space.by_length.len());
        let mut end = 0;
        for (first, length) in &space.holes {
            assert!(*first > end || first % SEGMENT_UNITS == 0, "L1: holes neither overlap nor touch");
            assert!(space.by_length.contains(&(*length, *first)));
            if !space.idle.contains(&(*length, *first)) {
                let segment = &space.segments[(first / SEGMENT_UNITS) as usize];
                let mut pages = whole_pages(first % SEGMENT_UNITS, *length);
                assert!(!pages.any(|page| segment.is_resident(page)), "L4: what is resident is idle");
            }
            end = first + length;
            assert_eq!(first / SEGMENT_UNITS, (end - 1) / SEGMENT_UNITS);
        }
        assert!(space.idle.is_subset(&space.by_length));
        let holes: u64 = space.holes.values().sum();
        let pages: u32 = space.segments.iter().flat_map(|segment| segment.resident).map(u64::count_ones).sum();
        let in_segments = space.segments.len() * SEGMENT_BYTES - holes as usize * UNIT_BYTES;
        drop(space);
        assert!(pool.0.used_bytes.load(Ordering::Relaxed) >= in_segments);
        assert!(pool.resident_bytes() >= pages as usize * PAGE);
        assert_eq!(pool.resident_bytes(), pool.0.budget.used(Purpose::Cache));
    }

    /// Budgets of pools with small and with large grains.
    const LIMITS: [usize; 2] = [64 << 20, 1 << 30];
    /// Under Miri each byte that is looked at takes its time.
    const ROUNDS: u64 = if cfg!(miri) { 300 } else { 4000 };
    const LOOK_AT_EACH: usize = if cfg!(miri) { 1009 } else { 1 };

    #[test]
    fn pieces_keep_what_is_written_into_them_and_everything_comes_back() {
        LIMITS.into_iter().for_each(take_and_give_back);
    }

    fn take_and_give_back(limit: usize) {
        let budget = MemoryBudget::new(limit);
        let pool = Pool::new(&budget);
        let mut random = Random(7);
        let mut pieces: Vec<(u8, Piece)> = Vec::new();
        for round in 0..ROUNDS {
            if pieces.len() > 100 || (random.below(3) == 0 && !pieces.is_empty()) {
                let (mark, piece) = pieces.swap_remove(random.below(pieces.len() as u64) as usize);
                let mut seen = piece.iter().step_by(LOOK_AT_EACH);
                assert!(seen.all(|byte| *byte == mark), "nobody else writes into a piece");
            } else {
                let length = if random.below(50) == 0 { PIECE_BYTES_MAX + 1 } else { random.below(40_000) as usize };
                let mut piece = pool.take(length);
                let mark = random.below(256) as u8;
                piece.fill(mark);
                pieces.push((mark, piece));
            }
            if round % 97 == 0 {
                pool.purge(random.below(1 << 20) as usize);
                check(&pool);
            }
        }
        pieces.clear();
        check(&pool);
        let resident = pool.resident_bytes();
        assert_eq!(pool.idle_bytes(), resident);
        assert_eq!(pool.purge(usize::MAX), resident);
        assert_eq!((pool.resident_bytes(), budget.used(Purpose::Cache)), (0, 0));
        let last = pool.take(100);
        drop(pool);
        assert!(budget.used(Purpose::Cache) > 0, "a piece outlives its pool and stays counted");
        drop(last);
        assert_eq!(budget.used(Purpose::Cache), 0);
    }

    #[test]
    fn purged_pages_can_be_used_again() {
        LIMITS.into_iter().for_each(purge_and_use);
    }

    fn purge_and_use(limit: usize) {
        let pool = Pool::new(&MemoryBudget::new(limit));
        let keep = pool.take(10_000);
        let mut piece = pool.take(50_000);
        piece.fill(9);
        drop(piece);
        assert!(pool.purge(usize::MAX) >= 11 * PAGE);
        let mut again = pool.take(50_000);
        let mut seen = again[PAGE..40_000].iter().step_by(LOOK_AT_EACH);
        assert!(seen.all(|byte| *byte == 0), "the system took the pages");
        again.fill(1);
        drop(keep);
        check(&pool);
    }

    /// The system's own view of each page agrees with the pool's.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn resident_pages_are_those_that_the_system_holds() {
        LIMITS.into_iter().for_each(compare_with_system);
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    fn compare_with_system(limit: usize) {
        use std::os::unix::fs::FileExt;
        let present = |at: usize| -> bool {
            let file = std::fs::File::open("/proc/self/pagemap").expect("is there");
            let mut entry = [0; 8];
            file.read_exact_at(&mut entry, (at / PAGE * 8) as u64).expect("readable");
            u64::from_le_bytes(entry) >> 62 != 0
        };
        let pool = Pool::new(&MemoryBudget::new(limit));
        let mut random = Random(3);
        let take = |random: &mut Random| {
            let mut piece = pool.take(15_000 + random.below(4000) as usize);
            piece.fill(1);
            piece
        };
        let mut pieces: Vec<Piece> = (0..600).map(|_| take(&mut random)).collect();
        let is_small = !pool.0.space.lock().segments[0].is_large;
        assert_eq!(is_small, limit == LIMITS[0]);
        for round in 0..3 {
            for _ in 0..300 {
                pieces.swap_remove(random.below(pieces.len() as u64) as usize);
            }
            pool.purge(if round == 1 { 1 << 20 } else { usize::MAX });
            let mut pages = 0;
            for segment in &mut pool.0.space.lock().segments {
                let base = segment.memory.raw(0, 0).as_ptr() as usize;
                for page in 0..SEGMENT_PAGES {
                    let counted = segment.is_resident(page);
                    // A system may give no large page where it is asked for one.
                    let present = present(base + page * PAGE);
                    assert!(if is_small { counted == present } else { counted || !present }, "page={page}");
                    pages += usize::from(counted);
                }
            }
            assert_eq!(pool.resident_bytes(), pages * PAGE);
            pieces.extend((0..300).map(|_| take(&mut random)));
        }
    }
}
