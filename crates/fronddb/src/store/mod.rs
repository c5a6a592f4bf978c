//! Space in the data file: extents, the allocator, and the publication of a new root.
//!
//! Owns `data.frond`: its first 64 KiB hold the superblock slots, the rest is pages of 4 KiB. Does not know what
//! extents contain (runs, nodes, blobs are for the layers above), nor the log.
//!
//! Rooms, in reading order: [`allocator`] (which pages are taken; bitmaps per region), [`pending`] (when a page
//! becomes free), [`reserve`] (what is kept for a full disk), [`space_map`] and [`frame`] (the stored form),
//! [`publication`] and [`draft`] (how a generation becomes durable), [`open`] (which generation is taken up), [`shrink`] (giving
//! space back to the file system), [`reads`], [`ahead`] (reads that are asked for before they are needed), [`check`], [`data_file`], [`bitmap`], [`room`], [`runs`].
//!
//! # The life of an extent
//!
//! ```text
//!            allocate                    added                    removed by g       released and g + 1 durable
//!   free ───────────────▶ unpublished ───────────▶ in the image ───────────────▶ waiting ─────────▶ free
//!     ◀─── free_unpublished ───┘
//! ```
//!
//! - [`Store::allocate`], then [`Store::write`]: the extent is the caller's. A crash frees it by itself, for only the image is
//!   stored. [`Store::free_unpublished`] gives it back at once; only for extents that no publication was
//!   given, and that no log record names.
//! - [`Publication::commit`] with [`SpaceChanges`]: `added` extents belong to the image of the new generation and are durable with
//!   it; `removed` ones left it.
//! - [`Store::release`]: no reader holds these extents any more (and no cache holds blocks of them). Before or after their
//!   removal, exactly once per extent, and with the very extents that are removed.
//! - [`Store::mark_used`]: recovery found an extent named in the log (a blob). It is as if allocated just now: `added` when its
//!   memtable is sealed. If its message was dropped instead, pass it in `removed` (and release it) with the
//!   publication whose `log_start` is past its record, so that no log that may be replayed names free space.
//!
//! # Invariants
//! - S1: what the durable generations g and g - 1 reference (g - 1: while its superblock is valid) is never handed out or changed.
//! - S2: the stored image of a generation is exactly what it references: extents added and not removed, its own map, its
//!   status image, and the slots.
//! - S3: no extent is handed out twice, whatever fails or crashes in between.
//! - S4: a publication that fails before it writes its superblock changed nothing. A failed sync or superblock write
//!   poisons the store: writes fail with the first cause, reads go on, and opening again recovers.
//! - S5: opening reads the slots and summaries, not the bitmaps: its time does not depend on what is stored.
//!
//! # Locks
//! In this order: `turn` (one publication at a time; held by [`Publication`]), `refilling`, `growing` (file length; held
//! over the system calls that change it), `allocator` (a leaf held for about a microsecond, or for one or two page reads
//! when a region is first touched). [`Store::read`] takes none, [`Store::write`] only the file's, shared, which closing takes alone.
#![allow(rustdoc::private_intra_doc_links, reason = "the headers are for readers of the source")]

use std::path::Path;
use std::sync::Arc;

use crate::base::page_buf::PageBuf;
use crate::base::space::PAGE_BYTES;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::{BlockPtr, Error, ErrorKind, Extent, Result};
use crate::format::Superblock;

mod ahead;
mod allocator;
mod backed;
mod bitmap;
mod check;
mod data_file;
mod draft;
mod frame;
mod open;
mod pending;
mod publication;
mod reads;
mod reserve;
mod room;
mod runs;
mod shrink;
mod space_map;

pub use ahead::{Asked, Window};
pub use check::StoredImage;
pub use open::{DATA_FILE, Opened, StoreOptions};
pub use publication::{Publication, SpaceChanges};
pub use reads::ReadBuf;
pub use shrink::{ShrinkLimits, Shrunk};

use ahead::AskQueue;
use allocator::Allocator;
use data_file::DataFile;
use frame::FrameKind;
use reads::Scratches;
use reserve::Pool;

/// Most pages of one extent: 64 MiB.
pub const EXTENT_PAGES_MAX: u32 = bitmap::REGION_PAGES;
/// So far beyond the end of the file may lie what the log names: more than is written without a sync of the file.
const UNSYNCED_PAGES_MAX: u64 = (1 << 40) / PAGE_BYTES;
/// The reserve is not refilled from pieces smaller than this.
pub const RESERVE_PIECE_BYTES_MIN: u64 = 64 << 10;
const RESERVE_PIECE_PAGES_MIN: u32 = (RESERVE_PIECE_BYTES_MIN / PAGE_BYTES) as u32;

/// Who asks for space, which matters when it is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Fails with `NoSpace` while the reserve is not whole.
    Ordinary,
    /// May use the reserve for compactions: they will free space.
    Compaction,
    /// May use what is kept for level 0 as well: sealing a memtable.
    Seal,
}

/// The data file of an open database. Shared by `Arc`; every method may be called from any thread.
///
/// Dropping it closes the file; nothing is written then.
#[derive(Debug)]
pub struct Store {
    data: DataFile,
    allocator: Mutex<Allocator>,
    growing: Mutex<()>,
    refilling: Mutex<()>,
    is_short: AtomicBool,
    turn: Mutex<()>,
    current: Mutex<Arc<Superblock>>,
    ask_queue: AskQueue,
    scratches: Scratches,
}

/// What a store has and does. Bytes and counts since opening, unless they are a state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// The durable generation.
    pub generation: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Taken space: the image, unpublished, waiting, reserve.
    pub used_bytes: u64,
    /// What the durable generation references.
    pub image_bytes: u64,
    /// Removed from the image and not free yet.
    pub pending_bytes: u64,
    /// Held for a full disk.
    pub reserve_bytes: u64,
    /// Free space inside the file.
    pub free_bytes: u64,
    /// Extents released that no publication has removed yet.
    pub released_early: u64,
    /// Regions of 64 MiB.
    pub regions: u64,
    /// Regions whose bitmaps are in memory.
    pub regions_loaded: u64,
    /// Regions whose stored bitmap is damaged: nothing is allocated there.
    pub regions_damaged: u64,
    /// Memory of the bitmaps.
    pub memory_bytes: u64,
    /// Calls and bytes of reading.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Calls of writing.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Bytes given back to the file system by holes.
    pub punched_bytes: u64,
    /// Generations published.
    pub publications: u64,
}

/// The extent of a block that lies alone in whole pages, as [`Publication::write_block`] places them.
pub fn extent_of(block: BlockPtr) -> Extent {
    Extent { start: block.offset / PAGE_BYTES, pages: u64::from(block.stored).div_ceil(PAGE_BYTES) as u32 }
}

impl Store {
    /// Writes `buf`, padded to whole pages, at a page-aligned offset within an extent. Not durable before a sync or the
    /// next publication.
    ///
    /// # Errors
    /// `InvalidArgument` when it is not aligned or does not fit, `Poisoned`, `ReadOnly`, `NoSpace`, `Io`: the
    /// content of the range is undefined then, and nothing else changed.
    pub fn write(&self, extent: Extent, offset_in_extent: u64, buf: &PageBuf) -> Result<()> {
        let end = offset_in_extent.checked_add(buf.padded().len() as u64);
        if !offset_in_extent.is_multiple_of(PAGE_BYTES) || end.is_none_or(|end| end > extent.bytes()) {
            return Err(Error::invalid(format!(
                "write outside its extent, {extent:?} offset={offset_in_extent} bytes={}",
                buf.len()
            )));
        }
        if !allocator::is_possible(extent) {
            return Err(Error::invalid(format!("write to an impossible extent, {extent:?}")));
        }
        self.data.write(buf, extent.offset() + offset_in_extent)
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// A failure poisons the store.
    pub fn sync(&self) -> Result<()> {
        self.data.sync()
    }

    /// Takes `pages` contiguous pages, at most [`EXTENT_PAGES_MAX`]. What they contain is undefined. The disk holds
    /// room for them, so writing them does not run out of space.
    ///
    /// # Errors
    /// `NoSpace` when neither the file nor the disk has room besides the reserve; `InvalidArgument`, `Poisoned`,
    /// `ReadOnly`, `Io`.
    pub fn allocate(&self, pages: u32, urgency: Urgency) -> Result<Extent> {
        if pages == 0 || pages > EXTENT_PAGES_MAX {
            return Err(Error::invalid(format!("extent of wrong size, pages={pages} pages_max={EXTENT_PAGES_MAX}")));
        }
        match urgency {
            Urgency::Ordinary => {
                self.fill_reserve()?;
                self.take_or_grow(pages)
            }
            Urgency::Compaction => {
                if self.is_short() {
                    // What others free is for the reserve first: else compactions could leave nothing to seals and publications.
                    // It takes pieces of some size; what is left then in smaller ones is for everybody.
                    match self.refill_reserve() {
                        Err(error) if error.lacks_room() => {
                            let small =
                                (pages < RESERVE_PIECE_PAGES_MIN).then(|| self.take_or_grow(pages).ok()).flatten();
                            let kept = || self.allocator.lock().take_reserved(&[Pool::Compaction], pages);
                            return small.or_else(kept).ok_or(error);
                        }
                        result => result?,
                    }
                }
                self.take_or_reserved(pages, &[Pool::Compaction])
            }
            Urgency::Seal => self.take_or_reserved(pages, &[Pool::Level0, Pool::Compaction]),
        }
    }

    /// Takes `pages` contiguous pages or, when free space is scattered and the disk is full, as many as there are in one
    /// place, but at least `pages_min`. For writers that can go on in another extent.
    ///
    /// # Errors
    /// As [`Store::allocate`].
    pub fn allocate_some(&self, pages: u32, pages_min: u32, urgency: Urgency) -> Result<Extent> {
        let mut wanted = pages;
        loop {
            match self.allocate(wanted, urgency) {
                Err(error) if error.lacks_room() && wanted > pages_min.max(1) => {
                    wanted = (wanted / 2).max(pages_min);
                }
                result => return result,
            }
        }
    }

    fn allocate_for_publication(&self, pages: u32) -> Result<Extent> {
        self.take_or_reserved(pages, &[Pool::Publication, Pool::Compaction, Pool::Level0])
    }

    fn take_or_reserved(&self, pages: u32, pools: &[Pool]) -> Result<Extent> {
        self.take_or_grow(pages).or_else(|error| {
            if !error.lacks_room() {
                return Err(error);
            }
            self.is_short.store(true, Ordering::Relaxed);
            self.allocator.lock().take_reserved(pools, pages).ok_or(error)
        })
    }

    /// True when somebody needed the reserve and it was not made whole since: what is left lies in pieces of
    /// [`RESERVE_PIECE_BYTES_MIN`] and more.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    fn take_or_grow(&self, pages: u32) -> Result<Extent> {
        self.data.check_writable()?;
        loop {
            let (taken, file_pages) = {
                let mut allocator = self.allocator.lock();
                (allocator.take(pages, &self.data), allocator.file_pages())
            };
            match taken {
                Some(taken) if taken.is_backed() => return Ok(taken.extent),
                Some(taken) => match self.data.back(taken.extent.start, u64::from(pages)) {
                    Ok(()) => return Ok(taken.extent),
                    Err(error) => {
                        self.give_up(taken);
                        if !error.lacks_room() {
                            return Err(error);
                        }
                        let backed = self.allocator.lock().take_backed(pages);
                        return backed.map_or_else(|| self.take_unknown(pages)?.ok_or(error), Ok);
                    }
                },
                None => self.grow(pages, file_pages)?,
            }
        }
    }

    /// Makes the file longer, unless somebody did since it had `seen` pages.
    fn grow(&self, pages: u32, seen: u64) -> Result<()> {
        let _growing = self.growing.lock();
        let growth = {
            let allocator = self.allocator.lock();
            if allocator.file_pages() != seen {
                return Ok(());
            }
            allocator.growth(pages)
        };
        let mut end = growth.wanted;
        match self.data.lengthen(growth.from, growth.wanted) {
            Err(error) if error.kind() == ErrorKind::NoSpace && growth.needed < growth.wanted => {
                end = growth.needed;
                self.data.lengthen(growth.from, growth.needed)?;
            }
            result => result?,
        }
        let mut allocator = self.allocator.lock();
        allocator.extend(end);
        let regions = allocator.regions.len();
        allocator.reserve.set_regions(regions);
        Ok(())
    }

    /// Makes the reserve whole where it is not.
    fn fill_reserve(&self) -> Result<()> {
        let is_whole = self.allocator.lock().reserve.is_whole();
        if is_whole { Ok(()) } else { self.refill_reserve() }
    }

    fn refill_reserve(&self) -> Result<()> {
        let _refilling = self.refilling.lock();
        self.allocator.lock().reserve.is_wanted = true;
        loop {
            let Some((pool, lacking)) = self.allocator.lock().reserve.lacking() else {
                self.is_short.store(false, Ordering::Relaxed);
                return Ok(());
            };
            let mut pages = lacking.min(u64::from(EXTENT_PAGES_MAX)) as u32;
            let piece = pool.piece_pages_min();
            let extent = loop {
                match self.take_or_grow(pages) {
                    Err(error) if error.kind() == ErrorKind::NoSpace && pages > piece => {
                        pages = (pages / 2).max(piece);
                    }
                    result => break result?,
                }
            };
            self.allocator.lock().reserve.put(pool, extent);
        }
    }

    /// Keeps space for `bytes` of level 0, or gives back what is kept beyond them, and makes the reserve whole.
    ///
    /// # Errors
    /// `NoSpace`: what could be had is kept, see [`Store::level0_reserve_bytes`]; `Poisoned`, `ReadOnly`, `Io`.
    pub fn reserve_level0(&self, bytes: u64) -> Result<()> {
        self.set_reserve(Pool::Level0, bytes);
        self.fill_reserve()
    }

    /// Keeps space for compactions from the next allocations on, or gives back what is kept beyond `bytes`.
    pub fn set_compaction_reserve(&self, bytes: u64) {
        self.set_reserve(Pool::Compaction, bytes);
    }

    fn set_reserve(&self, pool: Pool, bytes: u64) {
        let mut allocator = self.allocator.lock();
        for extent in allocator.reserve.set_target(pool, bytes.div_ceil(PAGE_BYTES)) {
            allocator.free(extent, false);
        }
    }

    /// Space kept for compactions, in bytes.
    pub fn compaction_reserve_bytes(&self) -> u64 {
        self.allocator.lock().reserve.pages_in(Pool::Compaction) * PAGE_BYTES
    }

    /// Space kept for level 0, in bytes.
    pub fn level0_reserve_bytes(&self) -> u64 {
        self.allocator.lock().reserve.pages_in(Pool::Level0) * PAGE_BYTES
    }

    /// Gives back an extent (or a part of one) that no publication was given and no log record names. It may be handed out again
    /// at once. An extent that is published or free is a bug of the caller, and poisons the store.
    pub fn free_unpublished(&self, extent: Extent) {
        let mut allocator = self.allocator.lock();
        if allocator.stays_taken(extent) {
            return;
        }
        match allocator.state(extent, &self.data) {
            Ok((used, 0)) if used == extent.pages => allocator.free(extent, false),
            Ok((used, image)) => {
                let message = format!("freed space that is not unpublished, {extent:?} used={used} image={image}");
                self.data.poison(self.data.name(Error::internal(message)));
            }
            Err(error) => {
                self.data.poison(error);
            }
        }
    }

    /// No reader holds these extents any more. Each must be the very extent that a publication removes, before or after.
    pub fn release(&self, extents: &[Extent]) {
        let mut allocator = self.allocator.lock();
        for extent in extents {
            if !allocator.stays_taken(*extent) && allocator.pending.release(*extent) {
                allocator.free(*extent, false);
            }
        }
    }

    /// Recovery: the log names this extent. Makes it as if allocated; no error when it is already.
    ///
    /// Where the file does not reach it, its growth was not synced before the crash while the log record was. Then no data in it
    /// was, and no commit: nobody will read it. So a store that is only read passes it over, and where the disk has no
    /// room for it, it stays without: taken until the next opening, and given to nobody.
    ///
    /// # Errors
    /// `Corruption` when it cannot exist, lies farther beyond the file than anything that is written without a sync, or the image references
    /// it; what the storage reports.
    pub fn mark_used(&self, extent: Extent) -> Result<()> {
        if !allocator::is_possible(extent) {
            return Err(self.data.corruption(format!("the log names an impossible extent, {extent:?}")));
        }
        let _growing = self.growing.lock();
        let file_pages = self.allocator.lock().file_pages();
        if extent.end() > file_pages + UNSYNCED_PAGES_MAX {
            let message = format!("the log names space far beyond the file, {extent:?} pages={file_pages}");
            return Err(self.data.corruption(message));
        }
        if extent.end() > file_pages {
            if self.data.is_read_only() {
                return Ok(());
            }
            match self.data.lengthen(file_pages, extent.end()) {
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    self.data.stretch(extent.end())?;
                    self.allocator.lock().stretch(extent.end());
                }
                backed => {
                    backed?;
                    self.allocator.lock().extend(extent.end());
                }
            }
        }
        self.allocator.lock().mark_used(extent, &self.data)
    }

    /// Reads a status image, see [`Publication::write_image`].
    ///
    /// # Errors
    /// `Corruption` when a piece is damaged, else what the storage reports.
    pub fn read_image(&self, pieces: &[BlockPtr]) -> Result<Vec<u8>> {
        space_map::read_pieces(&self.data, FrameKind::Status, pieces, None)
    }

    /// True when the file system refused access past the page cache.
    pub fn refused_direct(&self) -> bool {
        self.data.refused_direct()
    }

    /// The durable superblock.
    pub fn superblock(&self) -> Arc<Superblock> {
        self.current.lock().clone()
    }

    /// Path of the data file, for messages.
    pub fn path(&self) -> &Path {
        self.data.path()
    }

    /// The first fatal failure, if there was one.
    pub fn poisoned(&self) -> Option<Error> {
        self.data.poisoned().cloned()
    }

    /// Ends all writing, what is under way first; then the files may be another's. Reads go on.
    pub fn close(&self) {
        self.data.close();
    }

    /// Refuses all writing from now on, because a layer above found that it must not go on.
    pub fn poison(&self, cause: Error) {
        self.data.poison(cause);
    }

    /// What is wrong with stored bitmaps that could not be read so far.
    pub fn map_damage(&self) -> Vec<Error> {
        self.allocator.lock().damaged().to_vec()
    }

    /// Memory of the bitmaps.
    pub fn map_bytes(&self) -> usize {
        self.allocator.lock().memory_bytes()
    }

    /// Bytes in use in the data file, by what is published or about to be.
    pub fn data_bytes(&self) -> u64 {
        let allocator = self.allocator.lock();
        let idle = allocator.pending.pages() + allocator.reserve.pages();
        allocator.used_pages().saturating_sub(idle) * PAGE_BYTES
    }

    /// What the store has and does.
    pub fn statistics(&self) -> StoreStatistics {
        let generation = self.superblock().generation;
        let allocator = self.allocator.lock();
        let loaded = allocator.regions.iter().filter(|region| region.loaded.is_some()).count() as u64;
        let counters = &self.data.counters;
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        StoreStatistics {
            generation,
            file_bytes: allocator.file_pages() * PAGE_BYTES,
            used_bytes: allocator.used_pages() * PAGE_BYTES,
            image_bytes: allocator.image_pages() * PAGE_BYTES,
            pending_bytes: allocator.pending.pages() * PAGE_BYTES,
            reserve_bytes: allocator.reserve.pages() * PAGE_BYTES,
            free_bytes: allocator.file_pages().saturating_sub(allocator.used_pages()) * PAGE_BYTES,
            released_early: allocator.pending.early_count() as u64,
            regions: allocator.regions.len() as u64,
            regions_loaded: loaded,
            regions_damaged: allocator.bad_regions() as u64,
            memory_bytes: allocator.memory_bytes() as u64,
            reads: read(&counters.reads),
            read_bytes: read(&counters.read_bytes),
            writes: read(&counters.writes),
            written_bytes: read(&counters.written_bytes),
            syncs: read(&counters.syncs),
            punched_bytes: read(&counters.punched_bytes),
            publications: read(&counters.publications),
        }
    }
}

#[cfg(test)]
mod tests;
