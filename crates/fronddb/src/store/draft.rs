//! The image of a generation in the making, beside the present one.
//!
//! A draft copies the image bitmap of each region when it first changes it. That the draft changes a region supersedes the
//! region's stored bitmap, whose page lies in some region, which thereby changes too: [`Draft::supersede_maps`] goes on until
//! none is left. Nothing outside the draft changes before [`Draft::apply`].
//!
//! Takes the allocator's lock for each step and keeps none in between: other threads allocate meanwhile, which changes
//! `used` bitmaps only. One publication at a time changes images.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::allocator::Names;
use super::bitmap::Bitmap;
use super::space_map::Entry;
use super::{EXTENT_PAGES_MAX, Store, allocator};
use crate::base::{Error, Extent, Result};

/// The image of a generation in the making.
pub(super) struct Draft<'a> {
    store: &'a Store,
    /// The regions that change.
    pub(super) regions: BTreeMap<usize, Drafted>,
    /// Old bitmaps that are still to be removed from the image.
    old_maps: Vec<Extent>,
    /// What leaves the image or, if not in it, its protection by the log; `true`: the store's own, which nobody reads.
    removed: Vec<(Extent, bool)>,
    seen: HashSet<Extent>,
    /// Of what the log names and stays taken: what was added, and how often each was dropped.
    added_of_named: Vec<Extent>,
    dropped_of_named: HashMap<Extent, u32>,
}

/// A region that changes.
pub(super) struct Drafted {
    pub(super) image: Bitmap,
    /// Its page is 0 until it has one for the new bitmap; the rest is known when that is written.
    pub(super) entry: Entry,
}

impl<'a> Draft<'a> {
    pub(super) fn new(store: &'a Store) -> Draft<'a> {
        Draft {
            store,
            regions: BTreeMap::new(),
            old_maps: Vec::new(),
            removed: Vec::new(),
            seen: HashSet::new(),
            added_of_named: Vec::new(),
            dropped_of_named: HashMap::new(),
        }
    }

    fn contradiction(&self, what: &str, extent: Extent) -> Error {
        self.store.data.name(Error::internal(format!("publication {what}, {extent:?}")))
    }

    /// Checks that the extent is allocated, and returns the draft of its region.
    fn touch(&mut self, extent: Extent) -> Result<&mut Drafted> {
        let mut allocator = self.store.allocator.lock();
        let (used, _) = allocator.state_for_change(extent, &self.store.data)?;
        if used != extent.pages || allocator.pending.is_removed(extent) {
            return Err(self.contradiction("names space that is not in use", extent));
        }
        let (index, _) = allocator::place(extent);
        match self.regions.entry(index) {
            std::collections::btree_map::Entry::Occupied(drafted) => Ok(drafted.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                let image = allocator.load(index, &self.store.data)?.image.clone();
                let old = allocator.regions[index].entry.map_page;
                if old != 0 {
                    self.old_maps.push(Extent { start: old, pages: 1 });
                }
                Ok(place.insert(Drafted { image, entry: Entry::default() }))
            }
        }
    }

    pub(super) fn add(&mut self, extent: Extent) -> Result<()> {
        let (_, start) = allocator::place(extent);
        let drafted = self.touch(extent)?;
        if drafted.image.count_in(start, extent.pages) != 0 {
            return Err(self.contradiction("adds what is in the image", extent));
        }
        drafted.image.set(start, extent.pages);
        if self.store.allocator.lock().stays_taken(extent) {
            self.added_of_named.push(extent);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, extent: Extent, own: bool) -> Result<()> {
        if self.store.allocator.lock().stays_taken(extent) {
            return self.drop_named(extent);
        }
        let (_, start) = allocator::place(extent);
        let drafted = self.touch(extent)?;
        let in_image = drafted.image.count_in(start, extent.pages);
        drafted.image.clear(start, extent.pages);
        if (in_image != 0 && in_image != extent.pages) || !self.seen.insert(extent) {
            return Err(self.contradiction("removes what is not in the image", extent));
        }
        self.removed.push((extent, own));
        Ok(())
    }

    /// One of those that an extent is named for by the log is dropped, and its space stays taken.
    fn drop_named(&mut self, extent: Extent) -> Result<()> {
        let dropped = self.dropped_of_named.entry(extent).or_default();
        *dropped += 1;
        let dropped = *dropped;
        let is_added = self.added_of_named.contains(&extent);
        let is_last = {
            let allocator = self.store.allocator.lock();
            let is_last = |names: &Names| names.count <= dropped && (names.is_added || is_added);
            allocator.names.get(&extent).is_some_and(is_last)
        };
        if is_last {
            let (_, start) = allocator::place(extent);
            self.touch(extent)?.image.clear(start, extent.pages);
        }
        Ok(())
    }

    /// Removes the old bitmaps of the regions that change, which changes more regions.
    pub(super) fn supersede_maps(&mut self) -> Result<()> {
        while let Some(extent) = self.old_maps.pop() {
            self.remove(extent, true)?;
        }
        Ok(())
    }

    /// Changed regions that have no page for their bitmap yet.
    pub(super) fn lacking(&self) -> Vec<usize> {
        let lacking = self.regions.iter().filter(|(_, drafted)| drafted.entry.map_page == 0);
        lacking.map(|(region, _)| *region).collect()
    }

    pub(super) fn assign(&mut self, regions: &[usize], extent: Extent) {
        for (region, page) in regions.iter().zip(extent.start..extent.end()) {
            if let Some(drafted) = self.regions.get_mut(region) {
                drafted.entry.map_page = page;
            }
        }
    }

    /// Regions up to the last that has something in the image.
    pub(super) fn summary_regions(&self) -> usize {
        let allocator = self.store.allocator.lock();
        let drafted = self.regions.keys().next_back().map_or(0, |last| last + 1);
        let kept = allocator.regions.iter().rposition(|region| region.entry.map_page != 0).map_or(0, |last| last + 1);
        drafted.max(kept)
    }

    /// The summary; the entries of changed regions are complete.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let count = self.summary_regions();
        let allocator = self.store.allocator.lock();
        let entry = |region: usize| match self.regions.get(&region) {
            Some(drafted) => drafted.entry,
            None => allocator.regions[region].entry,
        };
        (0..count).map(entry).map(|entry| if entry.map_page == 0 { Entry::default() } else { entry }).collect()
    }

    /// One past the last page of the image; of a region that does not change and cannot be read, the last that the file has.
    pub(super) fn end_page(&self) -> u64 {
        let mut allocator = self.store.allocator.lock();
        for index in (0..self.summary_regions_of(&allocator)).rev() {
            let end = match self.regions.get(&index) {
                Some(drafted) => drafted.image.end(),
                None if allocator.regions[index].entry.image_pages == 0 => 0,
                None => match allocator.load(index, &self.store.data) {
                    Ok(loaded) => loaded.image.end(),
                    Err(_) => allocator.limit(index),
                },
            };
            if end > 0 {
                return index as u64 * u64::from(EXTENT_PAGES_MAX) + u64::from(end);
            }
        }
        u64::from(allocator::SLOT_PAGES)
    }

    fn summary_regions_of(&self, allocator: &allocator::Allocator) -> usize {
        let drafted = self.regions.keys().next_back().map_or(0, |last| last + 1);
        drafted.max(allocator.regions.len())
    }

    /// The last look before the point of no return: nothing in the new image was freed meanwhile (A1).
    pub(super) fn check_used(&self) -> Result<()> {
        let allocator = self.store.allocator.lock();
        for (index, drafted) in &self.regions {
            let used = allocator.regions[*index].loaded.as_ref().map(|loaded| &loaded.used);
            if used.is_none_or(|used| !drafted.image.without(used).is_empty()) {
                let error = Error::internal(format!("space was freed while it was published, region={index}"));
                return Err(self.store.data.poison(self.store.data.name(error)));
            }
        }
        Ok(())
    }

    /// The generation is durable: the draft is the image.
    pub(super) fn apply(self, generation: u64) {
        let mut allocator = self.store.allocator.lock();
        for (index, drafted) in self.regions {
            let region = &mut allocator.regions[index];
            region.entry = drafted.entry;
            if let Some(loaded) = &mut region.loaded {
                loaded.image = drafted.image;
            }
        }
        for extent in self.added_of_named {
            allocator.names.entry(extent).or_default().is_added = true;
        }
        for (extent, dropped) in self.dropped_of_named {
            if let Some(names) = allocator.names.get_mut(&extent) {
                names.count = names.count.saturating_sub(dropped);
                names.is_added &= names.count > 0;
            }
        }
        let mut free = Vec::new();
        for (extent, own) in self.removed {
            allocator.pending.remove(extent, generation);
            if own && allocator.pending.release(extent) {
                free.push(extent);
            }
        }
        free.extend(allocator.pending.ripen(generation));
        free.into_iter().for_each(|extent| allocator.free(extent, false));
        allocator.release_held();
    }
}
