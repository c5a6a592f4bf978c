//! What the fuzz targets call: one function for each, from bytes to nothing, that panics on a defect.
//!
//! `crates/fronddb/tests/it/fuzz_seeds.rs` includes this file and calls the same functions with the seed corpora on the
//! stable compiler. Bytes that a checksum protects get a right one here, so that fuzzing reaches what lies behind it.
#![allow(unreachable_pub, reason = "also a private module of a test")]

mod files;
mod operations;
mod replay;

use std::sync::Arc;

use fronddb::base::codec::Decoder;
use fronddb::base::{Lsn, checksum};
use fronddb::format::blob::BlobRef;
use fronddb::format::block::{self, BlockKind, EntryBlock, EntryCursor, IndexBlock, RangeBlock};
use fronddb::format::filter::Filter;
use fronddb::format::hot_keys as hot;
use fronddb::format::node::NodeImage;
use fronddb::format::program::{Op, Program};
use fronddb::format::record::Record;
use fronddb::format::record::turned::{self, Turner};
use fronddb::format::superblock::{self, SUPERBLOCK_BYTES};
use fronddb::format::{RunMeta, Slot, Superblock};
use fronddb::txn::StatusTable;

pub use fronddb::db::decoders::{catalog_key, catalog_row, graft_notes, sort_file};

pub use files::{log_frames, log_segment, segment_header, space_map};
pub use operations::{operations, small_disk};
pub use replay::replay;

/// A target: bytes in, a panic for a defect.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("superblock", superblock),
    ("sealed_block", sealed_block),
    ("entry_block", entry_block),
    ("index_block", index_block),
    ("range_block", range_block),
    ("filter", filter),
    ("blob", blob),
    ("node", node),
    ("run_meta", run_meta),
    ("program", program),
    ("record", record),
    ("status_image", status_image),
    ("space_map", space_map),
    ("log_segment", log_segment),
    ("log_frames", log_frames),
    ("replay", replay),
    ("hot_keys", hot_keys),
    ("catalog_row", catalog_row),
    ("catalog_key", catalog_key),
    ("graft_notes", graft_notes),
    ("sort_file", sort_file),
    ("operations", operations),
    ("small_disk", small_disk),
];

/// Values past this are left alone, to spend the time on more of them.
const VALUE_BYTES_MAX: usize = 1 << 16;

/// A superblock slot; with a right checksum at the slot of its generation, and as it is.
pub fn superblock(bytes: &[u8]) {
    let mut page = bytes.to_vec();
    page.resize(SUPERBLOCK_BYTES, 0);
    let _ = Superblock::decode(0, bytes);
    let _ = Superblock::decode(0, &page);
    let generation = page[24..32].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let offset = superblock::slot_offset(generation);
    page[..8].copy_from_slice(b"FRONDSUP");
    page[16..24].fill(0);
    let sum = checksum::block(offset, &page);
    page[16..24].copy_from_slice(&sum.to_le_bytes());
    if let Ok(Slot::Valid(superblock)) = Superblock::decode(offset, &page) {
        let again = superblock.encode().expect("what was read can be written");
        assert_eq!(Superblock::decode(offset, &again).ok(), Some(Slot::Valid(superblock)));
    }
}

/// The envelope of a stored block, with a right checksum.
pub fn sealed_block(bytes: &[u8]) {
    const ADDRESS: u64 = 8192;
    let mut stored = bytes.to_vec();
    if stored.len() >= 16 {
        // A checksum vouches for the size, so a decoder may believe it.
        stored[14..16].fill(0);
        block::place(ADDRESS, &mut stored);
    }
    for kind in [
        BlockKind::Entries,
        BlockKind::Index,
        BlockKind::Filter,
        BlockKind::Ranges,
        BlockKind::BlobChunk,
        BlockKind::Node,
        BlockKind::SpaceMap,
        BlockKind::Status,
    ] {
        let _ = block::open(kind, ADDRESS, &stored);
        assert!(stored.len() < 16 || block::open(kind, ADDRESS + 4096, &stored).is_err(), "a misdirected block");
    }
}

/// The messages of a block: all of them can be visited, both ways, in order.
pub fn entry_block(raw: &[u8]) {
    let Ok(block) = EntryBlock::decode(raw, 7) else { return };
    let count = block.count();
    let mut cursor = EntryCursor::new(Arc::new(block));
    let mut keys = Vec::new();
    let mut more = cursor.first();
    while more {
        let _ = cursor.message();
        keys.push(cursor.key().to_vec());
        more = cursor.next();
    }
    assert_eq!(keys.len(), count);
    assert!(keys.is_sorted());
    let mut more = cursor.last();
    while more {
        assert_eq!(keys.pop().as_deref(), Some(cursor.key()));
        more = cursor.prev();
    }
    assert!(keys.is_empty());
}

/// The index of a run.
pub fn index_block(raw: &[u8]) {
    let Ok(block) = IndexBlock::decode(raw) else { return };
    for entry in 0..block.count() {
        let _ = (block.entry(entry), block.held_until(entry));
        let separator = block.separator(entry).to_vec();
        assert!(block.find(&separator) <= entry);
    }
    let _ = block.find(&[0xff; 40]);
}

/// The range-deletes of a run.
pub fn range_block(raw: &[u8]) {
    let Ok(block) = RangeBlock::decode(raw) else { return };
    let mut again = Vec::new();
    RangeBlock::encode(&block.list, None, &mut again);
    assert_eq!(RangeBlock::decode(&again).map(|again| again.list.to_vec()).ok(), Some(block.list.to_vec()));
}

/// A filter.
pub fn filter(raw: &[u8]) {
    let Ok(filter) = Filter::decode(raw) else { return };
    for hash in [0, 1, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
        filter.may_contain(hash);
    }
}

/// Where a large value is.
pub fn blob(bytes: &[u8]) {
    let Ok(blob) = BlobRef::decode(&mut Decoder::new(bytes)) else { return };
    let mut again = Vec::new();
    blob.encode(&mut again);
    assert_eq!(BlobRef::decode(&mut Decoder::new(&again)).ok(), Some(blob));
}

/// A node. Compared as bytes, because an urgency may be no number.
pub fn node(bytes: &[u8]) {
    let Ok(node) = NodeImage::decode(bytes) else { return };
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    node.encode(&mut once);
    NodeImage::decode(&once).expect("what was written can be read").encode(&mut twice);
    assert_eq!(once, twice);
}

/// The description of a run.
pub fn run_meta(bytes: &[u8]) {
    let Ok(run) = RunMeta::decode(&mut Decoder::new(bytes)) else { return };
    let mut again = Vec::new();
    run.encode(&mut again);
    assert_eq!(RunMeta::decode(&mut Decoder::new(&again)).ok(), Some(run));
}

/// An update program: total on every value, and composing its operations, twice, is applying them one after the other.
pub fn program(bytes: &[u8]) {
    let Ok(decoded) = Program::decode(bytes) else { return };
    let far = |op: &Op| match op {
        Op::SetBytes { offset, .. } | Op::Add { offset, .. } => *offset as usize > VALUE_BYTES_MAX,
        Op::IfNull { .. } | Op::Append { .. } => false,
    };
    if decoded.ops.iter().any(far) {
        return;
    }
    let mut twice = Program::default();
    decoded.ops.iter().for_each(|op| twice.append(Program { ops: vec![op.clone()] }));
    twice.append(decoded.clone());
    for value in [None, Some(&b""[..]), Some(&b"a value of some length"[..]), Some(bytes)] {
        let value = value.map(<[u8]>::to_vec);
        let expected = decoded.apply(decoded.apply(value.clone()));
        let length = twice.length_after(value.as_ref().map(Vec::len));
        assert!(length >= expected.as_ref().map(Vec::len));
        assert_eq!(twice.apply(value), expected);
    }
}

/// A log record and the messages inside, as it is and turned.
pub fn record(bytes: &[u8]) {
    read_record(8, bytes);
    let (mut turned, mut record, mut again) = (Vec::new(), Vec::new(), Vec::new());
    if turned::turn_back(bytes, &mut record).is_ok() {
        read_record(8, &record);
    }
    if Turner::default().turn(bytes, &mut turned) {
        turned::turn_back(&turned, &mut record).expect("what was turned turns back");
        turned.clear();
        assert!(Turner::default().turn(&record, &mut turned), "it can be turned again");
        turned::turn_back(&turned, &mut again).expect("what was turned turns back");
        assert_eq!(again, record);
    }
}

fn read_record(lsn: u64, bytes: &[u8]) {
    let Ok(record) = Record::decode(Lsn(lsn), bytes) else { return };
    let _ = (record.txn(), record.to_range_delete());
    let mut again = Vec::new();
    record.encode(&mut again);
    assert!(Record::decode(Lsn(lsn), &again).is_ok(), "what was written can be read");
    match record {
        Record::Messages(mut messages) | Record::CommitWithMessages { mut messages, .. } => {
            while let Ok(Some(message)) = messages.next() {
                assert_eq!(message.seq, lsn);
            }
        }
        Record::Prepare { locks, .. } | Record::Locks { locks, .. } => assert!(locks.count() <= bytes.len()),
        _ => {}
    }
}

/// The list of hot keys, behind its magic and version and before its checksum.
pub fn hot_keys(bytes: &[u8]) {
    let _ = hot::decode(bytes);
    let mut list = b"FRONDHOT\x01".to_vec();
    list.extend_from_slice(bytes);
    let sum = checksum::block(0, &list);
    list.extend_from_slice(&sum.to_le_bytes());
    let Ok(keys) = hot::decode(&list) else { return };
    assert_eq!(hot::decode(&hot::encode(&keys)).ok(), Some(keys));
}

/// The stored states of transactions.
pub fn status_image(bytes: &[u8]) {
    let Ok(statuses) = StatusTable::restore(bytes) else { return };
    let image = statuses.image();
    let again = StatusTable::restore(&image).expect("what was written can be read");
    assert_eq!(again.image(), image);
    statuses.finish_recovery(1);
}
