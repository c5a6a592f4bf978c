//! Targets that need a file around their bytes: the space map in a data file, frames in a log segment.

use std::path::Path;
use std::sync::Arc;

use fronddb::base::memory::MemoryBudget;
use fronddb::base::{BlockPtr, checksum};
use fronddb::format::superblock::SLOTS_BYTES;
use fronddb::format::{Superblock, SuperblockBody};
use fronddb::io::{MemoryStorage, OpenMode, Storage};
use fronddb::log::{LogOptions, LogReader};
use fronddb::store::{Store, StoreOptions, Urgency};

const UUID: [u8; 16] = [7; 16];
const PAGE: u64 = 4096;
const BITMAP_BYTES: usize = 2048;
/// Where the fuzzed frames lie in the data file.
const SUMMARY_AT: u64 = SLOTS_BYTES;
const BITMAP_AT: u64 = SLOTS_BYTES + (1 << 20);
const FILE_BYTES: u64 = SLOTS_BYTES + (2 << 20);

fn write(storage: &Arc<dyn Storage>, path: &str, parts: &[(u64, &[u8])]) {
    let mode = OpenMode { create: true, ..OpenMode::default() };
    let file = storage.open(Path::new(path), mode).expect("a file in memory");
    for (offset, bytes) in parts {
        file.write_at(bytes, *offset).expect("room in memory");
    }
}

fn storage() -> Arc<dyn Storage> {
    let storage = MemoryStorage::new();
    storage.create_dir_all(Path::new("/db/log")).expect("a directory in memory");
    Arc::new(storage)
}

/// A frame of the store (`store/frame.rs`) with a right checksum.
fn frame(kind: u16, index: u32, payload: &[u8], address: u64) -> Vec<u8> {
    let mut out = b"FSPC\x01\x00".to_vec();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&2u64.to_le_bytes());
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(payload);
    let seed = address ^ u64::from(kind ^ (1 << 8)) << 48;
    let sum = checksum::block(seed, &out[16..]);
    out[8..16].copy_from_slice(&sum.to_le_bytes());
    out
}

/// The space map of a data file. First byte even: the rest is the payload of its summary; odd: the rest, continued by zeros,
/// is the bitmap of the first region, under a summary that fits.
pub fn space_map(bytes: &[u8]) {
    let Some((form, rest)) = bytes.split_first() else { return };
    let rest = &rest[..rest.len().min(1 << 16)];
    let mut bitmap_frame = Vec::new();
    let mut summary = rest.to_vec();
    if form % 2 == 1 {
        let mut bitmap = rest.to_vec();
        bitmap.resize(BITMAP_BYTES, 0);
        let pages: u32 = bitmap.iter().map(|byte| byte.count_ones()).sum();
        bitmap_frame = frame(1, 0, &bitmap, BITMAP_AT);
        summary = 1u32.to_le_bytes().to_vec();
        summary.extend_from_slice(&(BITMAP_AT / PAGE).to_le_bytes());
        summary.extend_from_slice(&(pages as u16).to_le_bytes());
        summary.extend_from_slice(&bitmap_frame[8..12]);
    }
    let summary_frame = frame(2, 0, &summary, SUMMARY_AT);
    let superblock = Superblock {
        generation: 2,
        uuid: UUID,
        end_page: FILE_BYTES / PAGE,
        space_map: vec![BlockPtr { offset: SUMMARY_AT, stored: summary_frame.len() as u32 }],
        body: SuperblockBody::default(),
    };
    let slot = superblock.encode().expect("it fits");
    let storage = storage();
    let zeros = vec![0; PAGE as usize];
    let parts: [(u64, &[u8]); 4] = [
        (superblock.offset(), &slot),
        (SUMMARY_AT, &summary_frame),
        (BITMAP_AT, &bitmap_frame),
        (FILE_BYTES - PAGE, &zeros),
    ];
    write(&storage, "/db/data.frond", &parts);
    let options = StoreOptions { direct: false, ..StoreOptions::default() };
    let Ok(opened) = Store::open(&storage, Path::new("/db"), &options) else { return };
    let _ = opened.store.stored_image();
    if let Ok(extent) = opened.store.allocate(3, Urgency::Ordinary) {
        assert!(extent.offset() >= SLOTS_BYTES, "the slots are never handed out");
        opened.store.free_unpublished(extent);
    }
    let _ = (opened.store.statistics(), opened.store.map_damage());
}

fn read_log(file: &[u8]) {
    let storage = storage();
    write(&storage, "/db/log/00000001.log", &[(0, file)]);
    let options = LogOptions { direct: false, ..LogOptions::new(UUID, &MemoryBudget::new(1 << 30)) };
    let Ok(mut reader) = LogReader::open_oldest(&*storage, Path::new("/db/log"), &options) else { return };
    while let Ok(Some(mut batch)) = reader.next_batch() {
        while let Ok(Some((lsn, record))) = batch.next() {
            super::read_record(lsn.0, record);
        }
    }
    let _ = reader.finish();
}

fn sign_header(page: &mut [u8]) {
    page[12..16].fill(0);
    let crc = checksum::log(0, &page[..512]);
    page[12..16].copy_from_slice(&crc.to_le_bytes());
}

/// The header page of segment 1, epoch 1, that begins at position 0.
pub fn segment_header() -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    page[..8].copy_from_slice(b"FRONDLOG");
    page[8] = 1;
    page[16..32].copy_from_slice(&UUID);
    for (field, number) in [(32, 1u64), (40, 1), (64, 1 << 20)] {
        page[field..field + 8].copy_from_slice(&number.to_le_bytes());
    }
    sign_header(&mut page);
    page
}

/// A whole segment; its header gets a right checksum.
pub fn log_segment(bytes: &[u8]) {
    let mut file = bytes.to_vec();
    read_log(&file);
    if file.len() >= 512 {
        sign_header(&mut file);
        read_log(&file);
    }
}

/// Right frames around any records. Input, repeated: codec and flag (u8; 128: the record's checksum is wrong), distance to what was
/// durable in words (u8), length less 1 (u8), the record (continued by zeros).
pub fn log_frames(bytes: &[u8]) {
    let mut file = segment_header();
    append_frames(&mut file, bytes);
    read_log(&file);
}

/// Appends the frames that the bytes stand for to a segment that ends with its last frame, and a page of zeros; their records, with
/// their codecs.
pub(super) fn append_frames(file: &mut Vec<u8>, bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut records = Vec::new();
    let number = |at: usize| file[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let (epoch, start) = (number(40), number(48));
    let mut rest = bytes;
    while let [form, distance, length, tail @ ..] = rest {
        let length = usize::from(*length) + 1;
        let (taken, after) = tail.split_at(length.min(tail.len()));
        rest = after;
        let mut record = taken.to_vec();
        record.resize(length, 0);
        let position = start + file.len() as u64 - PAGE;
        let crc = crc32c::crc32c(&record) ^ u32::from(form >> 7);
        let mut header = (length as u32 | u32::from(form & 15) << 28).to_le_bytes().to_vec();
        header.extend_from_slice(&crc.to_le_bytes());
        header.extend_from_slice(&(u32::from(*distance) * 8).to_le_bytes());
        let checked = [&epoch.to_le_bytes()[..], &header].concat();
        let check = checksum::log(position, &checked);
        header.extend_from_slice(&check.to_le_bytes());
        record.resize(length.next_multiple_of(8), 0);
        file.extend_from_slice(&header);
        file.extend_from_slice(&record);
        record.truncate(length);
        records.push((form & 15, record));
    }
    file.resize(file.len().next_multiple_of(PAGE as usize) + PAGE as usize, 0);
    records
}
