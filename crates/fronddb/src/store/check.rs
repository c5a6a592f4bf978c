//! What is stored about space, for `frond check` to compare with what a walk over the tree finds.

use super::allocator::SLOT_PAGES;
use super::bitmap::REGION_PAGES;
use super::frame::FrameKind;
use super::space_map::{self, Entry};
use super::{Store, extent_of};
use crate::base::{Error, Extent, Result};

/// The image of the durable generation as it is on the disk.
#[derive(Debug, Clone, Default)]
pub struct StoredImage {
    /// Everything in the image except the slots: maximal runs of pages, ascending. Runs end at regions of 64 MiB.
    pub extents: Vec<Extent>,
    /// What of it is the store's own: bitmaps, summary, status image. The rest is what the tree must reference.
    pub own: Vec<Extent>,
    /// Bitmaps that are damaged: the extents of these regions are missing above.
    pub damaged: Vec<Error>,
}

impl Store {
    /// Reads the stored image of the durable generation, past everything that is in memory. No publication is made meanwhile.
    ///
    /// # Errors
    /// `Corruption` when the summary is damaged, else what the storage reports.
    pub fn stored_image(&self) -> Result<StoredImage> {
        let _turn = self.turn.lock();
        let superblock = self.superblock();
        let mut image = StoredImage::default();
        let mut entries: Vec<Entry> = Vec::new();
        if !superblock.space_map.is_empty() {
            let generation = Some(superblock.generation);
            let bytes = space_map::read_pieces(&self.data, FrameKind::Summary, &superblock.space_map, generation)?;
            entries = space_map::decode_summary(&bytes).map_err(|error| self.data.name(error))?;
        }
        for (region, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.map_page != 0) {
            image.own.push(Extent { start: entry.map_page, pages: 1 });
            match space_map::read_bitmap(&self.data, region, *entry) {
                Ok(mut bitmap) => {
                    if region == 0 {
                        bitmap.clear(0, SLOT_PAGES);
                    }
                    let first = region as u64 * u64::from(REGION_PAGES);
                    let runs = bitmap.runs(REGION_PAGES);
                    image.extents.extend(runs.map(|(start, pages)| Extent { start: first + u64::from(start), pages }));
                }
                Err(error) => image.damaged.push(error),
            }
        }
        let pieces = superblock.space_map.iter().chain(&superblock.body.status);
        image.own.extend(pieces.map(|piece| extent_of(*piece)));
        image.own.sort_unstable();
        Ok(image)
    }
}
