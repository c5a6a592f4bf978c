//! Space in the data file: extents, the allocator, and the publication of a new root.
//! (Signatures; bodies follow.)
#![allow(unused_variables, missing_docs)]
use std::path::Path;
use std::sync::Arc;

use crate::base::page_buf::PageBuf;
use crate::base::{BlockPtr, Error, Extent, Result};
use crate::format::{Superblock, SuperblockBody};
use crate::io::Storage;

/// Most pages of one extent: 64 MiB.
pub const EXTENT_PAGES_MAX: u32 = 16384;

/// Who asks for space, when it is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Fails with `NoSpace` while the reserve is not whole.
    Ordinary,
    /// May use the reserve: sealing a memtable, compactions that free space.
    Checkpoint,
}

/// How to open a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub direct: bool,
    pub read_only: bool,
    /// Kept free for checkpoints, in bytes.
    pub reserve_bytes: u64,
    /// Open this generation and not the newest valid one (a later one is erased).
    pub generation: Option<u64>,
}

/// Result of opening.
#[derive(Debug)]
pub struct Opened {
    pub store: Arc<Store>,
    /// The valid superblocks, newest first.
    pub superblocks: Vec<Superblock>,
    /// What is wrong with slots that are neither valid nor empty.
    pub damaged: Vec<Error>,
}

/// What a publication changes, besides what it writes itself.
#[derive(Debug, Clone, Default)]
pub struct SpaceChanges {
    /// Referenced from now on.
    pub added: Vec<Extent>,
    /// No longer referenced.
    pub removed: Vec<Extent>,
}

/// Aligned memory and the part of it that was asked for; derefs to that part.
#[derive(Debug, Clone)]
pub struct ReadBuf {
    buf: PageBuf,
    range: std::ops::Range<usize>,
}

impl std::ops::Deref for ReadBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[self.range.clone()]
    }
}

#[derive(Debug)]
pub struct Store {}

impl Store {
    pub fn create(storage: Arc<dyn Storage>, dir: &Path, options: StoreOptions, uuid: [u8; 16], body: SuperblockBody) -> Result<Arc<Store>> {
        unimplemented!()
    }
    pub fn open(storage: Arc<dyn Storage>, dir: &Path, options: StoreOptions) -> Result<Opened> {
        unimplemented!()
    }
    /// Contiguous, at most `EXTENT_PAGES_MAX`.
    pub fn allocate(&self, pages: u32, urgency: Urgency) -> Result<Extent> {
        unimplemented!()
    }
    /// Gives back, at once, space that no publication references or has referenced.
    pub fn free_unpublished(&self, extent: Extent) {
        unimplemented!()
    }
    /// No reader holds these any more; each must be (or become) `removed` by a publication.
    pub fn release(&self, extents: &[Extent]) {
        unimplemented!()
    }
    pub fn mark_used(&self, extent: Extent) -> Result<()> {
        unimplemented!()
    }
    pub fn read(&self, offset: u64, bytes: usize) -> Result<ReadBuf> {
        unimplemented!()
    }
    /// Like `read`, into memory that the thread reuses.
    pub fn read_with<T>(&self, offset: u64, bytes: usize, with: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        unimplemented!()
    }
    /// Writes the padded content of `buf` at a page-aligned offset within an extent.
    pub fn write(&self, extent: Extent, offset_in_extent: u64, buf: &PageBuf) -> Result<()> {
        unimplemented!()
    }
    pub fn sync(&self) -> Result<()> {
        unimplemented!()
    }
    /// Reads an image written by `Publication::write_image`.
    pub fn read_image(&self, pieces: &[BlockPtr]) -> Result<Vec<u8>> {
        unimplemented!()
    }
    pub fn begin_publication(&self) -> Result<Publication<'_>> {
        unimplemented!()
    }
    pub fn superblock(&self) -> Arc<Superblock> {
        unimplemented!()
    }
}

/// A publication in the making; dropped without `commit`, all its space is given back.
#[derive(Debug)]
pub struct Publication<'a> {
    store: &'a Store,
}

impl Publication<'_> {
    /// Allocates room for `bytes_max`, lets `seal` append the block's bytes for its address, writes them. The extent
    /// `Publication::extent_of(ptr)` belongs to the image when committed; the caller passes it in `removed` when superseded.
    pub fn write_block(&mut self, bytes_max: usize, seal: impl FnOnce(u64, &mut Vec<u8>) -> Result<()>) -> Result<(BlockPtr, Extent)> {
        unimplemented!()
    }
    /// Writes a status image in checksummed pieces. The store supersedes the previous one by itself.
    pub fn write_image(&mut self, bytes: &[u8]) -> Result<Vec<BlockPtr>> {
        unimplemented!()
    }
    /// Makes the new generation durable. Any failure before the superblock write has no effect.
    pub fn commit(self, changes: &SpaceChanges, body: SuperblockBody) -> Result<Arc<Superblock>> {
        unimplemented!()
    }
}
