//! Which pages are taken, and which of them belong to the image.
//!
//! The file is cut into regions of 64 MiB. A loaded region has bitmaps:
//!
//! | bitmap | a page is in it when |
//! |---|---|
//! | `image` | the durable generation references it: what is stored |
//! | `used` | it may not be handed out: in the image, allocated, waiting in [`Pending`], or held |
//! | `held` | only the generation before the one that was opened references it; free after the next publication |
//! | `hollow` | it is free and the disk may hold no room for it (punched, or free since before the start) |
//! | `idle` | it is free, and room that the disk holds for it could be given back; hollow as well: whether there is room is not known |
//!
//! Regions are loaded when they are first needed; opening reads the summary only. `room` keeps, per region, an upper bound of
//! its longest free run, so an allocation goes straight to the lowest region that can serve it; inside, [`Runs`] leads it to
//! the next place after the last allocation there.
//!
//! - A1: `image ⊆ used`, `held ⊆ used ∖ image`, `hollow` and `idle` are disjoint from `used`.
//! - A2: `used_pages` of a loaded region is the size of `used`; of another one, that of its image.
//! - A3: an extent lies in one region.
//! - A4: `room` is the longest free run of a loaded region, 0 of a `bad` one, and the number of free pages of another.
//!
//! A region whose bitmap cannot be read hands nothing out. When a publication or the log has to change it, its pages up to the
//! file's end are *assumed* to be in the image, but for what the log names: so its free space is lost until the database is
//! rebuilt (at most 64 MiB), and everything else goes on. The next publication writes the new bitmap. One that could not be read for a
//! reason that may have passed is tried again when there is no room elsewhere.
//!
//! No locks in here: the store keeps all of it in one mutex. Loading reads one or two pages under that mutex.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::bitmap::{BITMAP_BYTES, Bitmap, REGION_PAGES};
use super::data_file::DataFile;
use super::pending::Pending;
use super::reserve::{Pool, Reserve};
use super::room::Room;
use super::runs::Runs;
use super::space_map::{self, Entry};
use crate::base::space::PAGE_BYTES;
use crate::base::{Error, Extent, Result};
use crate::format::superblock::SLOTS_BYTES;

/// Pages at the start of the file that hold the superblock slots: in the image of every generation.
pub(super) const SLOT_PAGES: u32 = (SLOTS_BYTES / PAGE_BYTES) as u32;
pub(super) const REGION: u64 = REGION_PAGES as u64;
/// The file grows by an eighth, within these bounds (in pages).
const GROW_PAGES_MIN: u64 = 256;
const GROW_PAGES_MAX: u64 = REGION;

#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) used: Bitmap,
    pub(super) image: Bitmap,
    pub(super) held: Option<Bitmap>,
    pub(super) hollow: Bitmap,
    pub(super) idle: Bitmap,
    runs: Runs,
    /// One past the last allocation.
    cursor: u32,
    /// Its bitmap could not be read.
    assumed: bool,
}

impl Loaded {
    fn memory_bytes(&self) -> usize {
        size_of::<Loaded>() + (4 + usize::from(self.held.is_some())) * BITMAP_BYTES
    }
}

#[derive(Debug, Default)]
pub(super) struct Region {
    pub(super) entry: Entry,
    used_pages: u32,
    /// Its bitmap could not be read: nothing is allocated there.
    bad: bool,
    /// That was for a reason that may have passed.
    is_passing: bool,
    pub(super) loaded: Option<Box<Loaded>>,
}

/// Space just taken.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) extent: Extent,
    /// Parts of it for which the disk holds no room.
    pub(super) empty: Vec<Extent>,
    /// Parts for which it may: nobody has asked it since the start.
    pub(super) unknown: Vec<Extent>,
}

impl Taken {
    /// True when the disk holds room for all of it.
    pub(super) fn is_backed(&self) -> bool {
        self.empty.is_empty() && self.unknown.is_empty()
    }
}

/// How the file could grow: from its present length to at least the one, and better to the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth {
    pub(super) from: u64,
    pub(super) needed: u64,
    pub(super) wanted: u64,
}

/// What became of an extent that the log names.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// How many of those that it is named for have not been dropped.
    pub(super) count: u32,
    /// One of them is in the image.
    pub(super) is_added: bool,
}

#[derive(Debug)]
pub(super) struct Allocator {
    pub(super) regions: Vec<Region>,
    room: Room,
    file_pages: u64,
    /// The summary of the generation before the one that was opened; empty when nothing is held for it.
    previous: Vec<Entry>,
    pub(super) pending: Pending,
    pub(super) reserve: Reserve,
    /// Regions that may have free space to be given back to the file system ([`super::shrink`]).
    pub(super) to_shrink: BTreeSet<usize>,
    /// Of the others those that have some in pieces too small for that.
    pub(super) scraps: BTreeSet<usize>,
    /// What the log names (first page, and one past the last), and of it what nobody is given: see [`Allocator::mark_used`].
    named: BTreeMap<u64, u64>,
    kept: Vec<Extent>,
    pub(super) names: HashMap<Extent, Names>,
    /// The disk may hold no room for what the log names from this page on.
    unbacked_from: u64,
    /// Of no free page below this region it is unknown whether the disk holds room for it.
    pub(super) unknown_from: usize,
    used_pages: u64,
    damaged: Vec<Error>,
}

/// Region and first page in it.
pub(super) fn place(extent: Extent) -> (usize, u32) {
    ((extent.start / REGION) as usize, (extent.start % REGION) as u32)
}

/// True when an extent can exist at all: not empty, in one region, and not over the slots.
pub(super) fn is_possible(extent: Extent) -> bool {
    extent.pages > 0
        && extent.start >= u64::from(SLOT_PAGES)
        && extent.start % REGION + u64::from(extent.pages) <= REGION
        && extent.start < u64::MAX / PAGE_BYTES - REGION
}

impl Allocator {
    /// From the summary of the generation that was opened, and that of the one before if it is valid.
    pub(super) fn new(
        entries: &[Entry],
        previous: Vec<Entry>,
        file_pages: u64,
        generation: u64,
        reserve: Reserve,
    ) -> Allocator {
        let mut allocator = Allocator {
            regions: entries.iter().map(|entry| Region { entry: *entry, ..Region::default() }).collect(),
            room: Room::default(),
            file_pages,
            previous,
            pending: Pending::new(generation),
            reserve,
            named: BTreeMap::new(),
            kept: Vec::new(),
            names: HashMap::new(),
            unbacked_from: u64::MAX,
            unknown_from: 0,
            used_pages: 0,
            damaged: Vec::new(),
            to_shrink: BTreeSet::new(),
            scraps: BTreeSet::new(),
        };
        let count = file_pages.div_ceil(REGION).max(1) as usize;
        allocator.regions.resize_with(count.max(entries.len()), Region::default);
        if let Some(first) = allocator.regions.first_mut() {
            first.entry.image_pages = first.entry.image_pages.max(SLOT_PAGES);
        }
        allocator.to_shrink.extend(0..allocator.regions.len());
        for index in 0..allocator.regions.len() {
            let pages = allocator.regions[index].entry.image_pages;
            allocator.regions[index].used_pages = pages;
            allocator.used_pages += u64::from(pages);
            allocator.note_room(index);
        }
        allocator
    }

    /// Bytes of the bitmaps in memory and of what leads to them.
    pub(super) fn memory_bytes(&self) -> usize {
        let loaded = |region: &Region| region.loaded.as_ref().map_or(0, |loaded| loaded.memory_bytes());
        self.regions.iter().map(|region| size_of::<Region>() + loaded(region)).sum()
    }

    pub(super) fn file_pages(&self) -> u64 {
        self.file_pages
    }

    pub(super) fn used_pages(&self) -> u64 {
        self.used_pages
    }

    pub(super) fn image_pages(&self) -> u64 {
        self.regions.iter().map(|region| u64::from(region.entry.image_pages)).sum()
    }

    /// Regions whose bitmap could not be read.
    pub(super) fn bad_regions(&self) -> usize {
        let is_assumed = |region: &Region| region.loaded.as_ref().is_some_and(|loaded| loaded.assumed);
        self.regions.iter().filter(|region| region.bad || is_assumed(region)).count()
    }

    /// Why bitmaps could not be read so far.
    pub(super) fn damaged(&self) -> &[Error] {
        &self.damaged
    }

    /// Pages of a region that the file reaches.
    pub(super) fn limit(&self, region: usize) -> u32 {
        self.file_pages.saturating_sub(region as u64 * REGION).min(REGION) as u32
    }

    pub(super) fn free_pages(&self, region: usize) -> u32 {
        self.limit(region).saturating_sub(self.regions[region].used_pages)
    }

    /// The bitmaps of a region, read if they are not yet.
    pub(super) fn load(&mut self, index: usize, data: &DataFile) -> Result<&mut Loaded> {
        if self.regions[index].loaded.is_none() {
            match self.read(index, data) {
                // A region that could not be read earlier, perhaps by a passing error, serves again.
                Ok(loaded) => self.keep(index, loaded),
                Err(error) => {
                    if !self.regions[index].bad && error.is_unreadable() {
                        self.damaged.push(error.clone());
                    }
                    self.regions[index].bad = true;
                    self.regions[index].is_passing = error.is_passing();
                    self.room.set(index, 0);
                    return Err(error);
                }
            }
        }
        self.regions[index].loaded.as_deref_mut().ok_or_else(|| Error::internal("region was not loaded"))
    }

    fn keep(&mut self, index: usize, loaded: Loaded) {
        let region = &mut self.regions[index];
        let used = loaded.used.count();
        self.used_pages = self.used_pages - u64::from(region.used_pages) + u64::from(used);
        region.used_pages = used;
        region.loaded = Some(Box::new(loaded));
        region.bad = false;
        self.note_room(index);
    }

    /// The bitmaps of a region that must change: if they are damaged, at the second attempt too, everything in it is assumed to
    /// be in the image.
    fn load_or_assume(&mut self, index: usize, data: &DataFile) -> Result<&mut Loaded> {
        if self.load(index, data).is_err()
            && let Err(error) = self.load(index, data)
        {
            if !error.is_unreadable() {
                return Err(error);
            }
            let limit = self.limit(index);
            let mut image = Bitmap::empty();
            image.set(0, limit);
            let free = Bitmap::empty().neither(&image);
            let (used, runs) = (image.clone(), Runs::new(&image, limit));
            let (hollow, idle) = (free.clone(), free);
            self.keep(index, Loaded { used, image, held: None, hollow, idle, runs, cursor: 0, assumed: true });
        }
        self.load(index, data)
    }

    fn read(&self, index: usize, data: &DataFile) -> Result<Loaded> {
        let entry = self.regions[index].entry;
        let mut image = space_map::read_bitmap(data, index, entry)?;
        if index == 0 {
            image.set(0, SLOT_PAGES);
        }
        if image.end() > self.limit(index) {
            return Err(data.corruption(format!("the file ends before pages in use, region={index}")));
        }
        let before = self.previous.get(index).filter(|before| **before != entry && before.map_page != 0);
        let before = match before.map(|before| space_map::read_bitmap(data, index, *before)).transpose() {
            // That generation may still be opened, so it keeps all that may be its.
            Err(error) if error.is_unreadable() => Some(Bitmap::empty().neither(&Bitmap::empty())),
            before => before?,
        };
        let held = before.map(|before| {
            let mut held = before.without(&image);
            let limit = self.limit(index);
            held.clear(limit, REGION_PAGES - limit);
            held
        });
        let used = held.as_ref().map_or_else(|| image.clone(), |held| image.union(held));
        let free = Bitmap::empty().neither(&used);
        let runs = Runs::new(&used, self.limit(index));
        Ok(Loaded { used, image, held, hollow: free.clone(), idle: free, runs, cursor: 0, assumed: false })
    }

    /// Takes the first suitable free run; `None` when the file has none.
    pub(super) fn take(&mut self, pages: u32, data: &DataFile) -> Option<Taken> {
        let mut is_retried = false;
        loop {
            let Some(index) = self.room.find(pages) else {
                if std::mem::replace(&mut is_retried, true) || !self.retry_passing() {
                    return None;
                }
                continue;
            };
            let limit = self.limit(index);
            let Ok(region) = self.load(index, data) else {
                continue;
            };
            // Loading may have shown that there is less room than the summary let hope for.
            if let Some(start) = region.runs.find(&region.used, limit, region.cursor, pages) {
                let extent = Extent { start: index as u64 * REGION + u64::from(start), pages };
                return Some(self.mark_taken(extent));
            }
        }
    }

    /// Marks a free run of a loaded region as used.
    pub(super) fn mark_taken(&mut self, extent: Extent) -> Taken {
        let (index, start) = place(extent);
        let (mut empty, mut unknown) = (Vec::new(), Vec::new());
        if let Some(region) = &self.regions[index].loaded
            && region.hollow.count_in(start, extent.pages) > 0
        {
            let mut wanted = Bitmap::empty();
            wanted.set(start, extent.pages);
            let extents = |bitmap: &Bitmap| {
                let extent = |(start, pages)| Extent { start: index as u64 * REGION + u64::from(start), pages };
                bitmap.runs(REGION_PAGES).map(extent).collect()
            };
            let wanted = wanted.intersection(&region.hollow);
            empty = extents(&wanted.without(&region.idle));
            unknown = extents(&wanted.intersection(&region.idle));
        }
        self.mark(extent);
        Taken { extent, empty, unknown }
    }

    /// Hopes again for regions whose bitmaps could not be read for a reason that may have passed; false when there are none.
    fn retry_passing(&mut self) -> bool {
        let mut is_any = false;
        for index in 0..self.regions.len() {
            if std::mem::take(&mut self.regions[index].is_passing) && self.regions[index].bad {
                self.regions[index].bad = false;
                self.note_room(index);
                is_any = true;
            }
        }
        is_any
    }

    /// Takes `pages` out of the first of the pools that has them in one piece.
    pub(super) fn take_reserved(&mut self, pools: &[Pool], pages: u32) -> Option<Extent> {
        let (taken, left) = pools.iter().find_map(|pool| self.reserve.take(*pool, pages))?;
        if let Some(left) = left {
            self.free(left, false);
        }
        Some(taken)
    }

    /// Marks free pages of a loaded region as used.
    pub(super) fn mark(&mut self, extent: Extent) {
        let (index, start) = place(extent);
        let limit = self.limit(index);
        let region = &mut self.regions[index];
        let Some(loaded) = &mut region.loaded else {
            return;
        };
        debug_assert_eq!(loaded.used.count_in(start, extent.pages), 0, "A1: {extent:?} is taken twice");
        loaded.used.set(start, extent.pages);
        loaded.hollow.clear(start, extent.pages);
        loaded.idle.clear(start, extent.pages);
        loaded.cursor = start + extent.pages;
        loaded.runs.update(&loaded.used, limit, start, extent.pages);
        region.used_pages += extent.pages;
        self.used_pages += u64::from(extent.pages);
        self.note_room(index);
    }

    /// Frees pages of a loaded region. `hollow`: the disk holds no room for them.
    pub(super) fn free(&mut self, extent: Extent, hollow: bool) {
        let (index, start) = place(extent);
        let limit = self.limit(index);
        let region = &mut self.regions[index];
        let Some(loaded) = &mut region.loaded else {
            return;
        };
        debug_assert_eq!(loaded.used.count_in(start, extent.pages), extent.pages, "A1: {extent:?} is freed twice");
        loaded.used.clear(start, extent.pages);
        if hollow {
            loaded.hollow.set(start, extent.pages);
        } else {
            loaded.idle.set(start, extent.pages);
            self.to_shrink.insert(index);
        }
        loaded.runs.update(&loaded.used, limit, start, extent.pages);
        region.used_pages -= extent.pages;
        self.used_pages -= u64::from(extent.pages);
        self.note_room(index);
    }

    /// Brings `room` up to date: exact for a loaded region, what the summary lets hope for else.
    fn note_room(&mut self, index: usize) {
        let bound = match &self.regions[index] {
            Region { bad: true, .. } => 0,
            Region { loaded: Some(loaded), .. } => loaded.runs.longest(),
            _ => self.free_pages(index),
        };
        self.room.set(index, bound);
    }

    /// (pages of the extent that are used, pages of it in the image). Loads its region, of which nothing may have to be assumed.
    pub(super) fn state(&mut self, extent: Extent, data: &DataFile) -> Result<(u32, u32)> {
        self.check_possible(extent, data)?;
        let (index, start) = place(extent);
        let region = self.load(index, data)?;
        Ok((region.used.count_in(start, extent.pages), region.image.count_in(start, extent.pages)))
    }

    /// As [`Allocator::state`], for an extent whose region is to change.
    pub(super) fn state_for_change(&mut self, extent: Extent, data: &DataFile) -> Result<(u32, u32)> {
        self.check_possible(extent, data)?;
        self.load_or_assume(place(extent).0, data)?;
        self.state(extent, data)
    }

    fn check_possible(&self, extent: Extent, data: &DataFile) -> Result<()> {
        if !is_possible(extent) || extent.end() > self.file_pages {
            return Err(data.name(Error::internal(format!("impossible extent, {extent:?}"))));
        }
        Ok(())
    }

    /// Marks an extent that the log names as used. The file must reach it.
    ///
    /// Pages may be named twice, when the log of the generation before the newest is replayed: a value that was dead in the newest
    /// generation lay there, and after a restart another. The dead one's space must not be given back then, so what is named
    /// twice stays taken until the next opening. It leaves the image when all that this very extent is named for are dropped: only
    /// then it is sure that the one that lives is. What the disk holds no room for stays taken as well ([`Allocator::stretch`]).
    pub(super) fn mark_used(&mut self, extent: Extent, data: &DataFile) -> Result<()> {
        let (_, image) = self.state_for_change(extent, data)?;
        self.names.entry(extent).or_default().count += 1;
        let before = self.named.range(..extent.end()).next_back().map(|(start, end)| (*start, *end));
        match before.filter(|(_, end)| *end > extent.start) {
            Some((start, end)) => {
                self.kept.push(extent);
                self.named.insert(start.min(extent.start), end.max(extent.end()));
            }
            None => {
                if extent.end() > self.unbacked_from {
                    self.kept.push(extent);
                }
                self.named.insert(extent.start, extent.end());
            }
        }
        let (index, start) = place(extent);
        let free: Vec<(u32, u32)> = {
            let region = self.load(index, data)?;
            if region.assumed {
                region.image.clear(start, extent.pages);
            } else if image > 0 {
                return Err(data.corruption(format!("the log names space that the tree uses, {extent:?}")));
            }
            if let Some(held) = &mut region.held {
                held.clear(start, extent.pages);
            }
            let mut wanted = Bitmap::empty();
            wanted.set(start, extent.pages);
            wanted.without(&region.used).runs(REGION_PAGES).collect()
        };
        for (first, pages) in free {
            self.mark(Extent { start: index as u64 * REGION + u64::from(first), pages });
        }
        Ok(())
    }

    /// Nothing more will be named by the log.
    pub(super) fn end_naming(&mut self) {
        if !self.named.is_empty() {
            self.named = BTreeMap::new();
            let mut names = std::mem::take(&mut self.names);
            names.retain(|extent, _| self.stays_taken(*extent));
            self.names = names;
        }
    }

    /// Whether the space of an extent stays taken whatever its owner says.
    pub(super) fn stays_taken(&self, extent: Extent) -> bool {
        self.kept.iter().any(|other| other.start < extent.end() && extent.start < other.end())
    }

    /// How the file must grow to hold a run of `pages` at its end.
    pub(super) fn growth(&self, pages: u32) -> Growth {
        let from = self.file_pages;
        let last = (from / REGION) as usize;
        // A run that reaches the end of the file counts towards the new one.
        let tail = match self.regions.get(last) {
            Some(region) if region.bad => (last as u64 + 1) * REGION,
            Some(Region { loaded: Some(loaded), .. }) => last as u64 * REGION + u64::from(loaded.used.end()),
            _ => from,
        };
        let start = if tail % REGION + u64::from(pages) > REGION { tail.next_multiple_of(REGION) } else { tail };
        let needed = (start + u64::from(pages)).max(from + 1);
        let step = (from / 8).clamp(GROW_PAGES_MIN, GROW_PAGES_MAX);
        Growth { from, needed, wanted: needed.max(from + step) }
    }

    /// The file has grown, and the disk holds room for the new pages.
    pub(super) fn extend(&mut self, pages: u64) {
        self.grow(pages, true);
    }

    /// The file reaches further, but the disk holds no room for the new pages: they are hollow, and what the log names of them is
    /// given to nobody.
    pub(super) fn stretch(&mut self, pages: u64) {
        self.unbacked_from = self.unbacked_from.min(self.file_pages);
        self.grow(pages, false);
    }

    fn grow(&mut self, pages: u64, is_backed: bool) {
        let old = self.file_pages;
        self.file_pages = old.max(pages);
        let known = self.regions.len();
        self.regions.resize_with(known.max(self.file_pages.div_ceil(REGION) as usize), Region::default);
        self.to_shrink.extend((old / REGION) as usize..self.regions.len());
        for index in (old / REGION) as usize..self.regions.len() {
            let start = old.saturating_sub(index as u64 * REGION) as u32;
            let added = self.limit(index) - start;
            let region = &mut self.regions[index];
            if index >= known {
                let none = Bitmap::empty();
                region.loaded = Some(Box::new(Loaded {
                    used: none.clone(),
                    image: none.clone(),
                    held: None,
                    hollow: none.clone(),
                    idle: none,
                    runs: Runs::default(),
                    cursor: 0,
                    assumed: false,
                }));
            }
            if let Some(loaded) = &mut region.loaded {
                if is_backed {
                    loaded.hollow.clear(start, added);
                } else {
                    loaded.hollow.set(start, added);
                }
                loaded.runs = Runs::new(&loaded.used, start + added);
            }
            self.note_room(index);
        }
    }

    /// Cuts free pages off the end, so that nobody takes them; the caller cuts the file.
    pub(super) fn cut(&mut self, pages: u64) {
        let old = std::mem::replace(&mut self.file_pages, pages);
        for index in (pages / REGION) as usize..old.div_ceil(REGION) as usize {
            let start = self.limit(index);
            if let Some(loaded) = &mut self.regions[index].loaded {
                loaded.hollow.set(start, REGION_PAGES - start);
                loaded.idle.clear(start, REGION_PAGES - start);
                loaded.runs = Runs::new(&loaded.used, start);
            }
            self.note_room(index);
        }
    }

    /// One past the last used page of the file.
    pub(super) fn used_end(&mut self, data: &DataFile) -> Result<u64> {
        for index in (0..self.regions.len()).rev() {
            if self.regions[index].used_pages > 0 || self.previous.get(index).is_some_and(|entry| entry.map_page != 0) {
                let end = self.load(index, data)?.used.end();
                if end > 0 {
                    return Ok(index as u64 * REGION + u64::from(end));
                }
            }
        }
        Ok(u64::from(SLOT_PAGES))
    }

    /// A new generation is durable: what only the one before the opened one referenced is free.
    pub(super) fn release_held(&mut self) {
        if std::mem::take(&mut self.previous).is_empty() {
            return;
        }
        for index in 0..self.regions.len() {
            let held = self.regions[index].loaded.as_mut().and_then(|loaded| loaded.held.take());
            for (start, pages) in held.iter().flat_map(|held| held.runs(REGION_PAGES)) {
                self.free(Extent { start: index as u64 * REGION + u64::from(start), pages }, false);
            }
        }
    }
}
