//! The decoders of this layer that nobody outside of it calls, for the fuzz targets: each takes bytes, and panics on a
//! defect.

use std::path::Path;

use super::catalog::{self, Row};
use super::graft::Grafts;
use super::sorter::Merged;
use crate::base::checksum;
use crate::format::SuperblockBody;
use crate::io::{MemoryStorage, OpenMode, Storage};

/// A row of the catalog: what was read and written again is the same row.
pub fn catalog_row(bytes: &[u8]) {
    let Ok(row) = Row::decode(bytes) else { return };
    let again = Row::decode(&row.encode()).expect("what was written can be read");
    assert_eq!(again, row);
}

/// A key of the catalog: of a row by name or by id, never both.
pub fn catalog_key(bytes: &[u8]) {
    let (name, id) = (catalog::name_of_key(bytes), catalog::id_of_key(bytes));
    assert!(name.is_err() || id.is_none());
    if let Ok(name) = name {
        assert_eq!(catalog::name_key(&name), bytes);
    }
    if let Some(id) = id {
        assert_eq!(catalog::id_key(id), bytes);
    }
}

/// The notes of grafts in the extra bytes of a superblock.
pub fn graft_notes(bytes: &[u8]) {
    let again = |extra: Vec<u8>| {
        let grafts = Grafts::restore(&SuperblockBody { extra, ..SuperblockBody::default() });
        let mut out = vec![0; 4];
        grafts.encode(&mut out);
        out
    };
    let _ = again(bytes.to_vec());
    let once = again([&[0; 4], bytes].concat());
    assert_eq!(again(once.clone()), once);
}

/// The temporary file of a sort. First byte even: the rest is the file; odd: the rest is its blocks, each a length (u16)
/// and rows, which get a right header.
pub fn sort_file(bytes: &[u8]) {
    let Some((form, mut rest)) = bytes.split_first() else { return };
    let mut file = rest.to_vec();
    if form % 2 == 1 {
        file.clear();
        while let Some((length, rows)) = rest.split_first_chunk() {
            let (block, next) = rows.split_at(usize::from(u16::from_le_bytes(*length)).min(rows.len()));
            let sum = checksum::block(file.len() as u64, block);
            file.extend_from_slice(&(block.len() as u32).to_le_bytes());
            file.extend_from_slice(&sum.to_le_bytes());
            file.extend_from_slice(block);
            rest = next;
        }
    }
    let storage = MemoryStorage::new();
    let mode = OpenMode { create: true, ..OpenMode::default() };
    let opened = storage.open(Path::new("/sorted"), mode).expect("a file in memory");
    opened.write_at(&file, 0).expect("room in memory");
    let Ok(mut merged) = Merged::of_file(opened, file.len() as u64) else { return };
    let mut bytes = 0;
    while let Some(row) = merged.row() {
        bytes += row.key.len() + row.value.len() + 1;
        assert!(bytes <= file.len(), "no byte is read twice");
        if merged.advance().is_err() {
            return;
        }
    }
}
