//! How a generation becomes durable.
//!
//! The caller has a new root in mind. It calls [`Store::begin_publication`], writes the nodes that changed with
//! [`Publication::write_block`] (bottom up, since each needs the addresses below it), the transaction statuses with
//! [`Publication::write_image`], and then [`Publication::commit`]:
//!
//! 1. *Draft* ([`super::draft`]): the image of the new generation is computed beside the present one: plus `added` and everything written by this
//!    publication, minus `removed`, minus what it supersedes of the store's own: the summary, the status image if
//!    replaced, the bitmaps of changed regions.
//! 2. *Close*: each changed region needs a page for its new bitmap, and the summary needs pages; taking these changes regions
//!    too. Repeat until nothing changes: each round touches new regions or ends.
//! 3. *Write* bitmaps and summary; sync. Until here every failure leaves everything as it was: the space taken is given back
//!    when the publication is dropped, and the same changes may be committed again later.
//! 4. *Superblock*: write it to its slot; sync. A failure here poisons: nobody knows which generation is on the disk, and both
//!    are good, so opening again settles it.
//! 5. *Apply*: the draft becomes the image; what was removed begins to wait (see [`super::pending`]); what waited for
//!    this generation and is released becomes free.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use fronddb::base::page_buf::PageBuf;
//! use fronddb::format::SuperblockBody;
//! use fronddb::io::{MemoryStorage, Storage};
//! use fronddb::store::{SpaceChanges, Store, StoreOptions, Urgency};
//!
//! let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
//! storage.create_dir_all("/db".as_ref())?;
//! let options = StoreOptions::default();
//! let store = Store::create(&storage, "/db".as_ref(), &options, [7; 16], SuperblockBody::default())?;
//! let run = store.allocate(3, Urgency::Ordinary)?;
//! store.write(run, 0, &PageBuf::from_slice(b"a run"))?;
//!
//! let mut publication = store.begin_publication()?;
//! let root = publication.write_block(&mut b"a node".to_vec(), 100, |_address, _bytes| {})?;
//! let status = publication.write_image(b"statuses")?;
//! let changes = SpaceChanges { added: vec![run], removed: vec![] };
//! publication.commit(&changes, SuperblockBody { root: Some(root), height: 1, status, ..SuperblockBody::default() })?;
//!
//! let opened = Store::open(&storage, "/db".as_ref(), &options)?;
//! let superblock = opened.store.superblock();
//! assert_eq!(superblock.generation, 2);
//! assert_eq!(opened.store.read_image(&superblock.body.status)?, b"statuses");
//! assert_eq!(&opened.store.read(root.offset, root.stored as usize)?[..], b"a node");
//! # Ok::<(), fronddb::base::Error>(())
//! ```

use std::sync::Arc;

use super::bitmap::BITMAP_BYTES;
use super::data_file::count;
use super::draft::Draft;
use super::frame::{self, FrameKind, HEADER_BYTES};
use super::space_map::{self, Entry};
use super::{EXTENT_PAGES_MAX, Store, extent_of};
use crate::base::page_buf::PageBuf;
use crate::base::space::PAGE_BYTES;
use crate::base::sync::MutexGuard;
use crate::base::{BlockPtr, Error, ErrorKind, Extent, Result};
use crate::format::superblock::PIECES_MAX;
use crate::format::{Superblock, SuperblockBody};

/// Images are cut into pieces of this many pages, larger ones when there would be too many.
const PIECE_PAGES: u32 = 256;

/// The largest block; in tests less, which nodes of tiny trees come to as well.
const BLOCK_PAGES_MAX: u32 = if cfg!(test) { 64 } else { EXTENT_PAGES_MAX };

/// What a publication changes, besides what it writes itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpaceChanges {
    /// Referenced from now on: allocated, written, and in no generation yet.
    pub added: Vec<Extent>,
    /// No longer referenced: nodes, runs and blobs of older generations; and extents that were never added but that the
    /// log before the new `log_start` names.
    pub removed: Vec<Extent>,
}

impl SpaceChanges {
    /// Appends later changes, for a publication that takes up those of one that failed.
    pub fn extend(&mut self, later: SpaceChanges) {
        self.added.extend(later.added);
        self.removed.extend(later.removed);
    }

    /// True when nothing changes.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

/// A publication in the making. There is one at a time; the next [`Store::begin_publication`] waits for it.
///
/// Dropped without [`Publication::commit`], it gives back all space that it took.
#[derive(Debug)]
pub struct Publication<'a> {
    store: &'a Store,
    /// What it took, and gives back unless it succeeds.
    written: Vec<Extent>,
    /// A write failed: what it took is in no block, so it must not become part of an image.
    failed: bool,
    _turn: MutexGuard<'a, ()>,
}

impl Store {
    /// Begins a publication; waits for the one that is being made.
    ///
    /// # Errors
    /// `Poisoned`, `ReadOnly`.
    pub fn begin_publication(&self) -> Result<Publication<'_>> {
        let turn = self.turn.lock();
        self.data.check_writable()?;
        self.allocator.lock().end_naming();
        Ok(Publication { store: self, written: Vec::new(), failed: false, _turn: turn })
    }
}

impl Drop for Publication<'_> {
    /// Gives back what an unsuccessful publication took. Of one that panicked a superblock may name it already: it stays taken, since
    /// others may go on until they know of the panic.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for extent in &self.written {
            self.store.free_unpublished(*extent);
        }
    }
}

impl Publication<'_> {
    /// The generation that a commit makes.
    pub fn generation(&self) -> u64 {
        self.store.superblock().generation + 1
    }

    fn take(&mut self, pages: u32) -> Result<Extent> {
        let extent = self.store.allocate_for_publication(pages)?;
        self.written.push(extent);
        Ok(extent)
    }

    /// Writes a block into whole pages of its own, as many as its bytes take. They are the first of a run for `bytes_max` bytes, or where there is none
    /// on a full disk, of any. `place` is told the address, which the bytes may depend on.
    /// The extent, [`extent_of`] the result, belongs to the image; the caller names it in `removed` when a later
    /// publication supersedes the block, and releases it when no reader holds it.
    ///
    /// # Errors
    /// `InvalidArgument` when there are no bytes, or too many for an extent; `NoSpace`, `Io`.
    pub fn write_block(
        &mut self,
        bytes: &mut [u8],
        bytes_max: usize,
        place: impl FnOnce(u64, &mut [u8]),
    ) -> Result<BlockPtr> {
        let block = self.place_block(bytes, bytes_max, place);
        self.failed |= block.is_err();
        block
    }

    fn place_block(
        &mut self,
        bytes: &mut [u8],
        bytes_max: usize,
        place: impl FnOnce(u64, &mut [u8]),
    ) -> Result<BlockPtr> {
        let pages = |bytes: usize| u32::try_from(bytes.div_ceil(PAGE_BYTES as usize)).unwrap_or(u32::MAX);
        let needed = pages(bytes.len());
        if needed == 0 || needed > BLOCK_PAGES_MAX {
            return Err(Error::invalid(format!("block of wrong size, bytes={}", bytes.len())));
        }
        // Pages taken one by one, wherever there is one, would cut up the runs that compactions need to make space.
        let wanted = pages(bytes_max).clamp(needed, BLOCK_PAGES_MAX);
        let extent = match self.take(wanted) {
            Err(error) if error.lacks_room() && wanted > needed => self.take(needed)?,
            taken => taken?,
        };
        if needed < extent.pages {
            self.written.pop();
            self.written.push(Extent { pages: needed, ..extent });
            let rest = Extent { start: extent.start + u64::from(needed), pages: extent.pages - needed };
            self.store.free_unpublished(rest);
        }
        place(extent.offset(), bytes);
        self.store.data.write(&PageBuf::from_slice(bytes), extent.offset())?;
        Ok(BlockPtr { offset: extent.offset(), stored: bytes.len() as u32 })
    }

    /// Writes an image of any length in checksummed pieces, for [`SuperblockBody::status`]. The store removes the pieces by itself when a
    /// later generation names others.
    ///
    /// # Errors
    /// `InvalidArgument` when it is longer than about 2 GiB; `NoSpace`, `Io`.
    pub fn write_image(&mut self, bytes: &[u8]) -> Result<Vec<BlockPtr>> {
        let generation = self.generation();
        let extents = self.take_pieces(bytes.len());
        let pieces = extents.and_then(|extents| self.write_pieces(FrameKind::Status, generation, &extents, bytes));
        self.failed |= pieces.is_err();
        pieces
    }

    /// Takes extents whose payloads together hold `bytes`.
    fn take_pieces(&mut self, bytes: usize) -> Result<Vec<Extent>> {
        let room = |extent: &Extent| extent.bytes() as usize - HEADER_BYTES;
        let pages = |bytes: usize| (bytes + HEADER_BYTES).div_ceil(PAGE_BYTES as usize);
        let largest = pages(bytes.div_ceil(PIECES_MAX / 2)).max(PIECE_PAGES as usize);
        let mut largest = u32::try_from(largest).unwrap_or(u32::MAX);
        if largest > EXTENT_PAGES_MAX {
            return Err(Error::invalid(format!("image too long, bytes={bytes}")));
        }
        let mut extents: Vec<Extent> = Vec::new();
        let mut left = bytes;
        while left > 0 {
            let wanted = pages(left).min(largest as usize) as u32;
            match self.take(wanted) {
                Ok(extent) => {
                    left = left.saturating_sub(room(&extent));
                    extents.push(extent);
                }
                // Free space in small runs serves too, as long as they are few enough.
                Err(error) if error.lacks_room() && wanted > 1 => largest = wanted / 2,
                Err(error) => return Err(error),
            }
            if extents.len() > PIECES_MAX {
                return Err(Error::new(ErrorKind::NoSpace, "free space is too scattered for an image"));
            }
        }
        Ok(extents)
    }

    fn write_pieces(
        &self,
        kind: FrameKind,
        generation: u64,
        extents: &[Extent],
        bytes: &[u8],
    ) -> Result<Vec<BlockPtr>> {
        let mut rest = bytes;
        let mut pieces = Vec::with_capacity(extents.len());
        for (index, extent) in extents.iter().enumerate() {
            let (payload, tail) = rest.split_at(rest.len().min(extent.bytes() as usize - HEADER_BYTES));
            let mut buf = PageBuf::zeroed(extent.bytes() as usize);
            frame::seal(&mut buf, kind, generation, index as u32, payload, extent.offset());
            self.store.data.write(&buf, extent.offset())?;
            // The piece names its whole extent, however much of it the frame fills.
            pieces.push(BlockPtr { offset: extent.offset(), stored: buf.len() as u32 });
            rest = tail;
        }
        Ok(pieces)
    }

    /// Makes the new generation durable and returns its superblock.
    ///
    /// # Errors
    /// Before the superblock is written: `NoSpace`, `Io`, `Internal` (the changes contradict the allocator); nothing has changed then, and the same changes may be committed again later. A failed
    /// sync or superblock write poisons the store.
    pub fn commit(mut self, changes: &SpaceChanges, body: SuperblockBody) -> Result<Arc<Superblock>> {
        let store = self.store;
        store.data.check_writable()?;
        if self.failed {
            return Err(Error::internal("commit of a publication in which a write failed"));
        }
        let before = store.superblock();
        let generation = before.generation + 1;
        let mut draft = Draft::new(store);
        for extent in self.written.iter().chain(&changes.added) {
            draft.add(*extent)?;
        }
        for extent in &changes.removed {
            draft.remove(*extent, false)?;
        }
        let replaced = before.body.status.iter().filter(|piece| !body.status.contains(piece));
        for piece in before.space_map.iter().chain(replaced) {
            draft.remove(extent_of(*piece), true)?;
        }
        let summary_extents = self.close(&mut draft)?;
        let entries = self.write_bitmaps(&mut draft, generation)?;
        let summary = space_map::encode_summary(&entries);
        let space_map = self.write_pieces(FrameKind::Summary, generation, &summary_extents, &summary)?;
        let superblock = Superblock { generation, uuid: before.uuid, end_page: draft.end_page(), space_map, body };
        let slot = PageBuf::from_slice(&superblock.encode()?);
        store.data.sync()?;
        draft.check_used()?;

        let durable = store.data.write(&slot, superblock.offset()).and_then(|()| store.data.sync());
        if let Err(error) = durable {
            // The space stays taken: the new generation may be the one on the disk.
            self.written.clear();
            return Err(store.data.poison(error));
        }
        self.written.clear();
        let superblock = Arc::new(superblock);
        draft.apply(generation);
        *store.current.lock() = superblock.clone();
        count(&store.data.counters.publications, 1);
        Ok(superblock)
    }

    /// Gives every changed region a page for its bitmap, and the summary enough pages.
    fn close(&mut self, draft: &mut Draft<'_>) -> Result<Vec<Extent>> {
        let mut summary: Vec<Extent> = Vec::new();
        loop {
            draft.supersede_maps()?;
            let lacking = draft.lacking();
            let room: usize = summary.iter().map(|extent| extent.bytes() as usize - HEADER_BYTES).sum();
            let missing = space_map::summary_bytes(draft.summary_regions()).saturating_sub(room);
            if lacking.is_empty() && missing == 0 {
                if summary.len() > PIECES_MAX {
                    return Err(Error::new(ErrorKind::NoSpace, "free space is too scattered for the space map"));
                }
                return Ok(summary);
            }
            for extent in self.take_pieces(missing)? {
                draft.add(extent)?;
                summary.push(extent);
            }
            let mut regions = lacking.as_slice();
            let mut run = regions.len().min(PIECE_PAGES as usize);
            while !regions.is_empty() {
                run = run.min(regions.len());
                match self.take(run as u32) {
                    Ok(extent) => {
                        draft.add(extent)?;
                        let (now, later) = regions.split_at(run);
                        draft.assign(now, extent);
                        regions = later;
                    }
                    Err(error) if error.lacks_room() && run > 1 => run /= 2,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Writes the bitmaps of the draft, neighbouring ones in one call, and returns the new summary.
    fn write_bitmaps(&self, draft: &mut Draft<'_>, generation: u64) -> Result<Vec<Entry>> {
        let mut by_page: Vec<(u64, usize)> =
            draft.regions.iter().map(|(region, drafted)| (drafted.entry.map_page, *region)).collect();
        by_page.sort_unstable();
        for run in by_page.chunk_by(|(a, _), (b, _)| a + 1 == *b) {
            let mut buf = PageBuf::zeroed(run.len() * PAGE_BYTES as usize);
            for ((page, region), out) in run.iter().zip(buf.chunks_exact_mut(PAGE_BYTES as usize)) {
                let Some(drafted) = draft.regions.get_mut(region) else {
                    continue;
                };
                let payload: [u8; BITMAP_BYTES] = drafted.image.to_bytes();
                let sum = frame::seal(out, FrameKind::Region, generation, *region as u32, &payload, page * PAGE_BYTES);
                drafted.entry.check = sum as u32;
                drafted.entry.image_pages = drafted.image.count();
            }
            self.store.data.write(&buf, run[0].0 * PAGE_BYTES)?;
        }
        Ok(draft.entries())
    }
}
