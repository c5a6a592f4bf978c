//! A client of the store that describes itself: each published generation lists, in its status image, the extents that it
//! references and what they contain. So whatever generation a crash leaves, a test can check all of it.

use std::path::Path;
use std::sync::Arc;

use crate::base::codec::{Decoder, put_varint};
use crate::base::page_buf::PageBuf;
use crate::base::random::Random;
use crate::base::space::PAGE_BYTES;
use crate::base::{Extent, Result};
use crate::format::{Superblock, SuperblockBody};
use crate::io::Storage;
use crate::store::{DATA_FILE, Opened, SpaceChanges, Store, StoreOptions, Urgency, extent_of};

pub(super) const DIR: &str = "/db";

pub(super) fn dir() -> &'static Path {
    Path::new(DIR)
}

pub(super) fn data_path() -> std::path::PathBuf {
    dir().join(DATA_FILE)
}

pub(super) fn options() -> StoreOptions {
    StoreOptions { reserve_bytes: 64 << 10, ..StoreOptions::default() }
}

pub(super) fn create(storage: &Arc<dyn Storage>) -> Arc<Store> {
    storage.create_dir_all(dir()).unwrap();
    Store::create(storage, dir(), &options(), [9; 16], SuperblockBody::default()).unwrap()
}

pub(super) fn open(storage: &Arc<dyn Storage>) -> Result<Opened> {
    Store::open(storage, dir(), &options())
}

/// Takes one of them out, if there are any.
pub(super) fn take<T>(random: &mut Random, from: &mut Vec<T>) -> Option<T> {
    if from.is_empty() {
        return None;
    }
    let index = random.below(from.len() as u64) as usize;
    Some(from.swap_remove(index))
}

/// An extent and the tag that its first and last page carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    pub(super) extent: Extent,
    pub(super) tag: u64,
}

fn page(piece: Piece) -> PageBuf {
    let mut buf = PageBuf::zeroed(PAGE_BYTES as usize);
    for (index, word) in buf.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(piece.tag ^ piece.extent.start.rotate_left(20) ^ index as u64).to_le_bytes());
    }
    buf
}

pub(super) fn write(store: &Store, piece: Piece) -> Result<()> {
    let buf = page(piece);
    store.write(piece.extent, 0, &buf)?;
    store.write(piece.extent, piece.extent.bytes() - PAGE_BYTES, &buf)
}

pub(super) fn is_intact(store: &Store, piece: Piece) -> Result<bool> {
    let expected = page(piece);
    for offset in [piece.extent.offset(), piece.extent.offset() + piece.extent.bytes() - PAGE_BYTES] {
        if store.read(offset, PAGE_BYTES as usize)?[..] != expected[..] {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn new_piece(store: &Store, pages: u32, tag: u64) -> Result<Piece> {
    let piece = Piece { extent: store.allocate(pages, Urgency::Ordinary)?, tag };
    match write(store, piece) {
        Ok(()) => Ok(piece),
        Err(error) => {
            store.free_unpublished(piece.extent);
            Err(error)
        }
    }
}

fn describe(pieces: &[Piece]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        piece.extent.encode(&mut out);
        put_varint(&mut out, piece.tag);
    }
    out
}

/// The pieces that a generation says it references.
pub(super) fn described(store: &Store, superblock: &Superblock) -> Result<Vec<Piece>> {
    let bytes = store.read_image(&superblock.body.status)?;
    let mut decoder = Decoder::new(&bytes);
    let mut pieces = Vec::new();
    while !decoder.is_empty() {
        pieces.push(Piece { extent: Extent::decode(&mut decoder)?, tag: decoder.varint()? });
    }
    Ok(pieces)
}

/// Publishes a generation that references `pieces` (the root is one of the publication's own blocks).
pub(super) fn publish(store: &Store, pieces: &[Piece], changes: &SpaceChanges) -> Result<Arc<Superblock>> {
    publish_with(store, pieces, changes, Vec::new())
}

/// The same with extra bytes in its superblock.
pub(super) fn publish_with(
    store: &Store,
    pieces: &[Piece],
    changes: &SpaceChanges,
    extra: Vec<u8>,
) -> Result<Arc<Superblock>> {
    let before = store.superblock();
    let mut changes = changes.clone();
    let mut publication = store.begin_publication()?;
    let generation = publication.generation();
    let root = publication.write_block(&mut [0; 16], 9000, |address, bytes| {
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..].copy_from_slice(&generation.to_le_bytes());
    })?;
    if let Some(root) = before.body.root {
        changes.removed.push(extent_of(root));
    }
    let status = publication.write_image(&describe(pieces))?;
    let published = publication
        .commit(&changes, SuperblockBody { root: Some(root), height: 1, status, extra, ..SuperblockBody::default() })?;
    if let Some(root) = before.body.root {
        store.release(&[extent_of(root)]);
    }
    Ok(published)
}

/// Everything that a generation promises: its pieces and its root are intact, and its stored image is exactly what it references.
pub(super) fn verify(store: &Store) -> Result<Vec<Piece>> {
    let superblock = store.superblock();
    let pieces = described(store, &superblock)?;
    for piece in &pieces {
        assert!(is_intact(store, *piece)?, "generation {} lost {piece:?}", superblock.generation);
    }
    let mut expected: Vec<Extent> = pieces.iter().map(|piece| piece.extent).collect();
    if let Some(root) = superblock.body.root {
        let bytes = store.read(root.offset, root.stored as usize)?;
        assert_eq!(bytes[..8], root.offset.to_le_bytes());
        assert_eq!(bytes[8..], superblock.generation.to_le_bytes());
        expected.push(extent_of(root));
    }
    let image = store.stored_image()?;
    assert!(image.damaged.is_empty(), "{:?}", image.damaged);
    expected.extend(&image.own);
    assert_eq!(pages_of(&image.extents), pages_of(&expected), "image of generation {}", superblock.generation);
    Ok(pieces)
}

/// The single pages of extents, sorted; a page that is in two extents is a failure.
pub(super) fn pages_of(extents: &[Extent]) -> Vec<u64> {
    let mut pages: Vec<u64> = extents.iter().flat_map(|extent| extent.start..extent.end()).collect();
    pages.sort_unstable();
    let count = pages.len();
    pages.dedup();
    assert_eq!(pages.len(), count, "a page is in two extents");
    pages
}
