//! Every fuzz target takes every file of its seed corpus, and simple damage to it, on the stable compiler.
//!
//! The targets are those of `fuzz/`; `fuzz/seeds.sh` writes the seeds anew.

#[path = "../../../../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fronddb::base::compress::Compressor;
use fronddb::base::memory::MemoryBudget;
use fronddb::base::{BlockPtr, Extent, Lsn, RunId, checksum};
use fronddb::format::blob::BlobRef;
use fronddb::format::block::{self, BlockKind, EntryBlockBuilder, Held, IndexBuilder, Layout, RangeBlock};
use fronddb::format::filter;
use fronddb::format::node::{NodeImage, SlotImage, TargetImage, Totals};
use fronddb::format::record::turned::Turner;
use fronddb::format::record::{MessageBatch, Origin, PreparedLock, Record, encode_locks, encode_prepare};
use fronddb::format::{Kind, Message, RangeDelete, RunMeta, Stamp, Superblock, SuperblockBody};
use fronddb::io::{MemoryStorage, OpenMode, Storage};
use fronddb::log::{Log, LogOptions};
use fronddb::txn::StatusTable;
use fronddb::{Codec, CommitNumber, Op, Overflow, Program, TreeId, TxnId};
use targets::{TARGETS, Target};

use crate::support::Random;

/// Targets that cost more than a decoding: fewer damaged forms of each seed.
const SLOW: &[&str] = &["space_map", "log_segment", "log_frames", "replay", "sort_file"];

/// Targets whose bytes are operations, so that any are as good as damaged ones.
const SEQUENCES: &[&str] = &["operations", "small_disk"];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn run(name: &str, target: Target, what: &str, bytes: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
        panic!("target {name}: {what}, input {:02x?}", &bytes[..bytes.len().min(4096)]);
    }
}

/// Cuts it at many places, and changes many bytes.
fn damage(name: &str, target: Target, what: &str, seed: &[u8]) {
    let places = if SLOW.contains(&name) { 30 } else { 300 };
    let step = seed.len().div_ceil(places).max(1);
    for at in (0..seed.len()).step_by(step) {
        run(name, target, &format!("{what} cut at {at}"), &seed[..at]);
        for mask in [1, 0x80, 0xff] {
            let mut bytes = seed.to_vec();
            bytes[at] ^= mask;
            run(name, target, &format!("{what} with byte {at} xor {mask}"), &bytes);
        }
    }
}

#[test]
fn every_target_takes_every_seed_and_damaged_ones() {
    for (name, target) in TARGETS {
        let mut files: Vec<PathBuf> =
            fs::read_dir(corpus().join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(files.len() > 1, "target {name} has no seeds");
        for file in files {
            let what = file.file_name().unwrap().to_string_lossy().into_owned();
            let seed = fs::read(&file).unwrap();
            run(name, *target, &what, &seed);
            if !SEQUENCES.contains(name) {
                damage(name, *target, &what, &seed);
            }
        }
    }
}

/// Fuzzing without a fuzzer: `FUZZ_SEED=17 FUZZ_ROUNDS=1000000 cargo test --test it random_damage -- --ignored`, of one target with
/// `FUZZ_ONLY=replay`.
#[test]
#[ignore = "takes as long as it is told to"]
fn random_damage_is_taken() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let mut random = Random::new(number("FUZZ_SEED").unwrap_or(1));
    let only = std::env::var("FUZZ_ONLY").ok();
    let mut seeds = seeds();
    seeds.retain(|(name, ..)| only.as_deref().is_none_or(|only| only == *name));
    for round in 0..number("FUZZ_ROUNDS").unwrap_or(20_000) {
        let (name, what, seed) = &seeds[random.below(seeds.len() as u64) as usize];
        let costs = if SEQUENCES.contains(name) { 200 } else { 1 + 19 * u64::from(SLOW.contains(name)) };
        if only.is_none() && round % costs > 0 {
            continue;
        }
        let mut bytes = seed.clone();
        for _ in 0..=random.below(6) {
            let at = random.below(bytes.len() as u64 + 1) as usize;
            match random.below(4) {
                0 if at < bytes.len() => bytes[at] = random.next() as u8,
                1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
                2 => bytes.insert(at, random.next() as u8),
                _ => {
                    let end = (at + random.below(9) as usize).min(bytes.len());
                    bytes.drain(at..end);
                }
            }
        }
        let (_, target) = TARGETS.iter().find(|(known, _)| known == name).unwrap();
        run(name, *target, &format!("{what}, round {round}"), &bytes);
    }
}

#[test]
fn every_target_is_one_of_the_fuzzing_workspace() {
    for (name, _) in TARGETS {
        let path = corpus().join(format!("../fuzz_targets/{name}.rs"));
        assert!(fs::read_to_string(path).unwrap().contains(&format!("fronddb_fuzz::{name}(")));
    }
}

#[test]
#[ignore = "writes the seed corpora"]
fn write_the_seeds() {
    for (target, name, bytes) in seeds() {
        assert!(TARGETS.iter().any(|(known, _)| *known == target), "{target}");
        let dir = corpus().join(target);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(name), bytes).unwrap();
    }
}

type Seed = (&'static str, &'static str, Vec<u8>);

fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    superblocks(&mut seeds);
    blocks(&mut seeds);
    nodes(&mut seeds);
    programs(&mut seeds);
    records(&mut seeds);
    statuses(&mut seeds);
    files(&mut seeds);
    lists(&mut seeds);
    for target in SEQUENCES {
        for (number, name) in ["short", "middling", "long"].into_iter().enumerate() {
            let mut random = Random::new(number as u64);
            seeds.push((target, name, (0..30 * 8usize.pow(number as u32)).map(|_| random.next() as u8).collect()));
        }
    }
    seeds
}

fn superblocks(seeds: &mut Vec<Seed>) {
    let first = Superblock { generation: 1, uuid: [3; 16], end_page: 16, ..Superblock::default() };
    let body = SuperblockBody {
        root: Some(BlockPtr { offset: 1 << 33, stored: 5000 }),
        height: 3,
        status: vec![BlockPtr { offset: 90 << 12, stored: 70 }],
        log_start: Lsn(1 << 40),
        oldest_memtable: 1 << 40,
        next_run: RunId(900),
        extra: vec![17, 0, 0, 0],
        ..SuperblockBody::default()
    };
    let space_map = vec![BlockPtr { offset: 80 << 12, stored: 50 }];
    let later = Superblock { generation: 1234, uuid: [9; 16], end_page: 1 << 22, space_map, body };
    seeds.push(("superblock", "first", first.encode().unwrap()));
    seeds.push(("superblock", "later", later.encode().unwrap()));
}

fn message<'a>(key: &'a [u8], kind: Kind, stamp: Stamp, payload: &'a [u8]) -> Message<'a> {
    Message { key, seq: 50, stamp, kind, blob: false, payload }
}

fn inner(tree: u32, key: &str) -> Vec<u8> {
    fronddb::base::key::inner(TreeId(tree), key.as_bytes())
}

fn blocks(seeds: &mut Vec<Seed>) {
    let rows: Vec<(Vec<u8>, String)> =
        (0..40).map(|row| (inner(1, &format!("row{row:05}")), format!("value {}", row * 7))).collect();
    for (name, planes, has_seq) in [("planes", true, false), ("rows", false, true)] {
        let mut builder = EntryBlockBuilder::new(has_seq);
        for (row, (key, value)) in rows.iter().enumerate() {
            let stamp = match row % 3 {
                0 => Stamp::Settled,
                1 => Stamp::Committed(CommitNumber(row as u64)),
                _ => Stamp::Written { txn: TxnId(row as u64), step: 2 },
            };
            builder.add(&message(key, Kind::Put, stamp, value.as_bytes()));
            if row % 5 == 0 {
                builder.add(&message(key, Kind::Delete, Stamp::Settled, b""));
            }
        }
        let mut raw = Vec::new();
        builder.finish(Layout { key_planes: planes, payload_planes: planes }, &mut raw);
        let mut stored = Vec::new();
        block::seal(BlockKind::Entries, Codec::default(), &raw, 8192, &mut Compressor::new(), &mut stored).unwrap();
        seeds.push(("entry_block", name, raw));
        seeds.push(("sealed_block", name, stored));
    }
    let mut stored = Vec::new();
    block::seal(BlockKind::Node, Codec::None, b"not compressed", 8192, &mut Compressor::new(), &mut stored).unwrap();
    seeds.push(("sealed_block", "plain", stored));

    let mut index = IndexBuilder::default();
    for (level, name) in [(0, "bottom"), (1, "top")] {
        for (row, (key, _)) in rows.iter().enumerate() {
            let ptr = BlockPtr { offset: 70_000 + row as u64 * 900, stored: 900 };
            let blob_bytes = if row % 7 == 6 { 3 << 16 } else { 0 };
            index.add(level, key, row % 9 == 8, ptr, Held { messages: 40, bytes: 900, blob_bytes });
        }
        let mut raw = Vec::new();
        index.finish(level, &mut raw);
        seeds.push(("index_block", name, raw));
    }

    let range =
        |start: &str, end: &str, stamp| RangeDelete { start: inner(1, start), end: inner(1, end), seq: 9, stamp };
    let written = Stamp::Written { txn: TxnId(4), step: 1 };
    for (name, list) in [
        ("one", vec![range("a", "b", Stamp::Settled)]),
        (
            "three",
            vec![
                range("a", "c", written),
                range("b", "x", Stamp::Committed(CommitNumber(8))),
                range("d", "e", written),
            ],
        ),
    ] {
        let mut raw = Vec::new();
        RangeBlock::encode(&list, None, &mut raw);
        seeds.push(("range_block", name, raw));
    }

    let hashes: Vec<u64> = rows.iter().map(|(key, _)| checksum::key_hash(key)).collect();
    for (name, bits) in [("ten_bits", 10), ("thirty_bits", 30)] {
        let mut raw = Vec::new();
        filter::encode(hashes.iter().copied(), bits, &mut raw);
        seeds.push(("filter", name, raw));
    }

    for (name, chunks) in [("one_chunk", 1u64), ("many_chunks", 20)] {
        let blob = BlobRef {
            bytes: chunks << 18,
            extents: vec![Extent { start: 500, pages: chunks as u32 * 64 }],
            chunks: (0..chunks).map(|chunk| BlockPtr { offset: (500 + chunk * 64) << 12, stored: 9000 }).collect(),
            // As before there were heads, and with one.
            head: if chunks == 1 { Vec::new() } else { b"the first bytes of a large value".repeat(64) },
        };
        let mut raw = Vec::new();
        blob.encode(&mut raw);
        seeds.push(("blob", name, raw));
    }
}

fn run_description(id: u64) -> RunMeta {
    RunMeta {
        id: RunId(id),
        extents: vec![Extent { start: 40 * id, pages: 9 }],
        bytes: 30_000,
        raw_bytes: 90_000,
        index: BlockPtr { offset: (40 * id) << 12, stored: 400 },
        filter: BlockPtr { offset: (41 * id) << 12, stored: 1000 },
        messages: 800,
        kinds: [0, 700, 0, 50, 40, 10],
        first_key: inner(1, "a"),
        last_key: inner(3, "z"),
        min_seq: 5,
        max_seq: 90_000,
        has_seq: id.is_multiple_of(2),
        newest_commit: CommitNumber(id * 3),
        unresolved: vec![TxnId(3), TxnId(900)],
        blobs: 1,
        ..RunMeta::default()
    }
}

fn nodes(seeds: &mut Vec<Seed>) {
    let clipped = RunMeta { clip: inner(1, "a"), ..run_description(2) };
    let runs = [
        ("plain", run_description(1)),
        ("empty", RunMeta::default()),
        ("with_seq", run_description(8)),
        ("clipped", clipped),
    ];
    for (name, run) in runs {
        let mut raw = Vec::new();
        run.encode(&mut raw);
        seeds.push(("run_meta", name, raw));
    }
    let slot =
        |lower: Vec<u8>, target| SlotImage { lower, buffer: vec![run_description(6), run_description(5)], target };
    let totals = Totals { base_rows: 5000, pending_puts: 8, urgency: 0.5, ..Totals::default() };
    let child = TargetImage::Node(BlockPtr { offset: 1 << 20, stored: 700 }, totals);
    let leaf = TargetImage::Leaf(Some(Box::new(run_description(2))));
    let upper = NodeImage { height: 2, slots: vec![slot(Vec::new(), child.clone()), slot(inner(1, "m"), child)] };
    let lower =
        NodeImage { height: 1, slots: vec![slot(inner(1, "a"), leaf), slot(inner(2, ""), TargetImage::Leaf(None))] };
    for (name, node) in [("upper", upper), ("lower", lower)] {
        let mut raw = Vec::new();
        node.encode(&mut raw);
        seeds.push(("node", name, raw));
    }
}

fn programs(seeds: &mut Vec<Seed>) {
    let add = |width, overflow| Op::Add { offset: 3, width, big_endian: true, signed: true, delta: -9, overflow };
    for (name, ops) in [
        ("set", vec![Op::SetBytes { offset: 4, bytes: vec![1, 2, 3] }, Op::Append { bytes: b"end".to_vec() }]),
        ("add", vec![add(4, Overflow::Wrap), add(8, Overflow::Saturate)]),
        ("if_null", vec![Op::IfNull { value: vec![0; 9] }, add(1, Overflow::Wrap)]),
    ] {
        let mut raw = Vec::new();
        Program { ops }.encode(&mut raw);
        seeds.push(("program", name, raw));
    }
}

fn batch() -> MessageBatch {
    let mut batch = MessageBatch::new();
    let stamp = Stamp::Settled;
    for row in 0..12u32 {
        batch.add(&message(&inner(1, &format!("row{row:04}")), Kind::Put, stamp, b"some value"));
        batch.add(&message(&inner(2, &format!("{}", row * 77 % 13)), Kind::InsertIfAbsent, stamp, b""));
        batch.add(&message(&inner(3, &format!("{row}")), Kind::SingleDelete, stamp, b""));
    }
    batch
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut raw = Vec::new();
    record.encode(&mut raw);
    raw
}

fn records(seeds: &mut Vec<Seed>) {
    let txn = TxnId(300);
    seeds.push(("record", "messages", batch().record(txn, 2).to_vec()));
    seeds.push(("record", "commit_with_messages", batch().commit_record(txn, 2, CommitNumber(70)).to_vec()));
    let mut turned = Vec::new();
    assert!(Turner::default().turn(batch().record(txn, 2), &mut turned));
    seeds.push(("record", "turned", turned));
    seeds.push(("record", "commit", encoded(&Record::Commit { txn, number: CommitNumber(7) })));
    seeds.push(("record", "abort", encoded(&Record::Abort { txn })));
    seeds.push(("record", "abort_steps", encoded(&Record::AbortSteps { txn, from: 2, to: 5 })));
    let (start, end) = (inner(1, "a"), inner(1, "b"));
    seeds.push((
        "record",
        "range_delete",
        encoded(&Record::RangeDelete { txn, step: 1, start: &start, end: &end, seq: 8 }),
    ));
    let locks = [
        PreparedLock { tree: TreeId(1), exclusive: true, key: b"a key", end: None },
        PreparedLock { tree: TreeId(2), exclusive: false, key: b"from", end: Some(b"to") },
    ];
    let mut raw = Vec::new();
    let mut more = Vec::new();
    encode_locks(&mut more, txn, locks.into_iter());
    seeds.push(("record", "locks", more));
    encode_prepare(&mut raw, txn, b"external id", None, locks.into_iter());
    seeds.push(("record", "prepare_without_origin", raw));
    let origin = Origin { began_ms: 1_790_000_000_000, isolation: 1, messages: 300 };
    let mut raw = Vec::new();
    encode_prepare(&mut raw, txn, b"external id", Some(origin), locks.into_iter());
    seeds.push(("record", "prepare", raw));
}

fn statuses(seeds: &mut Vec<Seed>) {
    let table = StatusTable::new();
    seeds.push(("status_image", "new", table.image()));
    let ids: Vec<TxnId> = (0..6).map(|_| table.begin()).collect();
    table.note_run_added(&ids[..3]);
    table.commit_with(ids[0], |_| Ok(Lsn(8))).unwrap();
    table.abort_with(ids[1], 0, || Ok(Lsn(16))).unwrap();
    table.abort_steps_with(ids[2], 1, 4, 0, || Ok(Lsn(24))).unwrap();
    table.prepare_with(ids[3], b"external id", || Ok(Lsn(32))).unwrap();
    seeds.push(("status_image", "all_kinds", table.image()));
}

/// A frame as the target `log_frames` reads it.
fn plan(form: u8, record: &[u8]) -> Vec<u8> {
    let record = &record[..record.len().min(256)];
    [&[form, 1, (record.len() - 1) as u8], record].concat()
}

fn files(seeds: &mut Vec<Seed>) {
    let mut bitmap = vec![1, 0xff, 0xff, 0x0f];
    bitmap.resize(1 + 2048, 0x11);
    seeds.push(("space_map", "bitmap", bitmap));
    let mut summary = vec![0, 2, 0, 0, 0];
    summary.resize(5 + 2 * 14, 0);
    seeds.push(("space_map", "summary", summary));

    let messages = batch().record(TxnId(3), 0)[..].to_vec();
    let mut packed = (messages.len() as u32).to_le_bytes().to_vec();
    let tag = Compressor::new().compress(Codec::default(), &messages, &mut packed).unwrap();
    let find = |seeds: &[Seed], wanted| seeds.iter().find(|(_, name, _)| *name == wanted).unwrap().2.clone();
    let prepare = find(seeds, "prepare");
    let mut turned = Vec::new();
    assert!(Turner::default().turn(&messages, &mut turned));
    let mut packed_turned = (turned.len() as u32).to_le_bytes().to_vec();
    let turned_tag = 8 | Compressor::new().compress(Codec::default(), &turned, &mut packed_turned).unwrap();
    seeds.push(("log_frames", "turned", plan(turned_tag, &packed_turned)));
    seeds.push(("log_frames", "three", [plan(0, &prepare), plan(tag, &packed), plan(0, &prepare)].concat()));
    let mut few = MessageBatch::new();
    for (kind, payload) in [(Kind::Put, &b"value"[..]), (Kind::Update, &[4, 1, 7]), (Kind::Delete, b"")] {
        few.add(&message(&inner(1, "row"), kind, Stamp::Settled, payload));
    }
    let (few, deleted) = (few.record(TxnId(200), 0).to_vec(), find(seeds, "range_delete"));
    let commit = encoded(&Record::Commit { txn: TxnId(200), number: CommitNumber(40) });
    let abort = find(seeds, "abort_steps");
    seeds.push(("replay", "committed", [plan(0, &few), plan(0, &commit), plan(0, &abort)].concat()));
    seeds.push(("replay", "deleted_and_prepared", [plan(0, &deleted), plan(0, &prepare)].concat()));
    seeds.push(("log_frames", "damaged", [plan(0, &prepare), plan(128, &prepare), plan(0, &prepare)].concat()));

    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let dir = Path::new("/db/log");
    storage.create_dir_all(dir).unwrap();
    let budget = MemoryBudget::new(1 << 30);
    let options = LogOptions { segment_bytes: 64 << 10, buffer_bytes: 16 << 10, ..LogOptions::new([7; 16], &budget) };
    let log = Log::create(Arc::clone(&storage), dir, options, Lsn(0)).unwrap();
    for _ in 0..3 {
        log.append(&messages).unwrap();
        log.append(&prepare).unwrap();
        log.sync().unwrap();
    }
    let file = storage.open(&dir.join("00000001.log"), OpenMode { read_only: true, ..OpenMode::default() }).unwrap();
    let mut segment = vec![0; 12 << 10];
    file.read_at(&mut segment, 0).unwrap();
    seeds.push(("log_segment", "six_records", segment));
    let mut empty = targets::segment_header();
    empty.resize(8 << 10, 0);
    seeds.push(("log_segment", "empty", empty));
}

/// A row of a sort's temporary file.
fn sorted_row(number: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut row = (key.len() as u16).to_le_bytes().to_vec();
    row.extend_from_slice(&(value.len() as u32).to_le_bytes());
    row.extend_from_slice(&number.to_le_bytes()[..6]);
    row.extend_from_slice(key);
    row.extend_from_slice(value);
    row
}

fn lists(seeds: &mut Vec<Seed>) {
    for (name, count) in [("no_key", 0), ("keys", 20)] {
        let keys: Vec<Vec<u8>> = (0..count).map(|row| inner(1 + row / 8, &format!("row{:05}", row * 31))).collect();
        let list = fronddb::format::hot_keys::encode(&keys);
        // Magic and version, and the checksum, are the target's.
        seeds.push(("hot_keys", name, list[9..list.len() - 8].to_vec()));
    }
    seeds.push(("catalog_row", "zstd", vec![1, 0x85, 1, 2, 3, b'm', b'e', b't', b'a']));
    seeds.push(("catalog_row", "plain", vec![1, 7, 0, 0]));
    seeds.push(("catalog_row", "negative_level", vec![1, 7, 2, 0xfb]));
    seeds.push(("catalog_key", "by_name", b"nschema/table#index".to_vec()));
    seeds.push(("catalog_key", "by_id", vec![b'i', 0, 0, 1, 44]));
    seeds.push(("graft_notes", "none", vec![0]));
    seeds.push(("graft_notes", "two", vec![2, 0x90, 3, 1, 7, 0xac, 2, 0, 0x81, 1]));
    let rows = |from: u64| -> Vec<u8> {
        (from..from + 6).flat_map(|row| sorted_row(row, &inner(1, &format!("k{row:04}")), b"value")).collect()
    };
    let (first, second) = (rows(0), rows(6));
    let mut blocks = vec![1];
    for block in [&first, &second] {
        blocks.extend_from_slice(&(block.len() as u16).to_le_bytes());
        blocks.extend_from_slice(block);
    }
    seeds.push(("sort_file", "two_blocks", blocks));
    let mut file = vec![0];
    file.extend_from_slice(&(first.len() as u32).to_le_bytes());
    file.extend_from_slice(&checksum::block(0, &first).to_le_bytes());
    file.extend_from_slice(&first);
    seeds.push(("sort_file", "as_it_is", file));
}
