//! Entry blocks against a plain list of messages, and their speed.

use super::samples::{Sample, iibench, mixed};
use super::{EntryBlock, EntryBlockBuilder, EntryCursor, Layout};
use crate::base::compress::{Codec, Compressor, decompress};
use crate::base::random::Random;
use crate::base::{CommitNumber, TxnId};
use crate::format::{Kind, Stamp};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Instant;

const LAYOUTS: [Layout; 4] = [
    Layout { key_planes: true, payload_planes: true },
    Layout { key_planes: true, payload_planes: false },
    Layout { key_planes: false, payload_planes: true },
    Layout { key_planes: false, payload_planes: false },
];

fn build(samples: &[Sample], layout: Layout, has_seq: bool) -> Vec<u8> {
    let mut builder = EntryBlockBuilder::new(has_seq);
    samples.iter().for_each(|sample| {
        builder.add(&sample.message());
    });
    let mut raw = Vec::new();
    builder.finish(layout, &mut raw);
    assert!(builder.is_empty());
    raw
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn messages_come_back_in_every_layout(seed: u64, count in 1usize..400, layout in 0usize..4, has_seq: bool) {
        let samples = mixed(seed, count);
        let raw = build(&samples, LAYOUTS[layout], has_seq);
        let block = EntryBlock::decode(&raw, 77)?;
        prop_assert_eq!(block.count(), samples.len());
        let mut key = Vec::new();
        for (index, sample) in samples.iter().enumerate() {
            block.copy_key(index, &mut key);
            let mut expected = sample.message();
            expected.seq = if has_seq { sample.seq } else { 77 };
            prop_assert_eq!(block.message(index, &key), expected);
            prop_assert!(block.key_equals(index, &sample.key));
        }
    }

    #[test]
    fn a_block_is_uniform_where_its_messages_differ_in_keys_and_values_alone(
        seed: u64, count in 1usize..40, change in prop::option::of((0usize..40, 0u8..5)), stamp in 0u8..3,
    ) {
        let stamp = [Stamp::Settled, Stamp::Committed(CommitNumber(7)), Stamp::Written { txn: TxnId(9), step: 2 }]
            [usize::from(stamp)];
        let mut samples = mixed(seed, count);
        samples.iter_mut().for_each(|sample| (sample.kind, sample.blob, sample.stamp) = (Kind::Put, false, stamp));
        samples.dedup_by(|one, other| one.key == other.key);
        let count = samples.len();
        if let Some((at, what)) = change {
            let sample = &mut samples[at % count];
            match what {
                0 => sample.kind = Kind::Update,
                1 => sample.blob = true,
                2 => sample.stamp = Stamp::Committed(CommitNumber(8)),
                3 => sample.stamp = Stamp::Written { txn: TxnId(9), step: 3 },
                _ => {
                    let older = Sample { seq: 0, ..sample.clone() };
                    samples.insert(at % count + 1, older);
                }
            }
        }
        let block = EntryBlock::decode(&build(&samples, LAYOUTS[0], false), 0)?;
        let plain = |sample: &Sample| sample.kind == Kind::Put && !sample.blob && sample.stamp == samples[0].stamp;
        let distinct = samples.windows(2).all(|pair| pair[0].key != pair[1].key);
        prop_assert_eq!(block.is_uniform(), distinct && samples.iter().all(plain));
    }

    #[test]
    fn a_cursor_walks_like_one_over_a_list(seed: u64, count in 1usize..200, layout in 0usize..4, probes: u64) {
        let samples = mixed(seed, count);
        let block = Arc::new(EntryBlock::decode(&build(&samples, LAYOUTS[layout], false), 0)?);
        let mut cursor = EntryCursor::new(Arc::clone(&block));
        prop_assert!(!cursor.valid());
        let mut random = Random(probes);
        for _ in 0..50 {
            let mut key = samples[random.below(samples.len() as u64) as usize].key.clone();
            match random.below(6) {
                0 => { key.pop(); }
                1 => key.push(0),
                2 => { let at = random.below(key.len() as u64) as usize; key[at] = random.next() as u8; }
                3 => key.truncate(random.below(key.len() as u64) as usize),
                _ => {}
            }
            let bound = samples.partition_point(|sample| sample.key < key);
            prop_assert_eq!(block.lower_bound(&key), bound);
            prop_assert_eq!(cursor.seek(&key), bound < samples.len());
            for at in bound..bound + 4 {
                prop_assert_eq!(cursor.valid(), at < samples.len());
                if !cursor.valid() {
                    break;
                }
                prop_assert_eq!(cursor.key(), &samples[at].key[..]);
                prop_assert_eq!(cursor.message().payload, &samples[at].payload[..]);
                let payload = block.payload(at);
                prop_assert_eq!(&payload[..], &samples[at].payload[..]);
                cursor.next();
            }
            if cursor.seek(&key) {
                let (most, refused) = (random.below(6) as usize, random.below(6) as usize);
                let mut taken = Vec::new();
                let passed = cursor.pass(most, |common, rest, payload| {
                    let takes = taken.len() < refused;
                    if takes {
                        taken.push(([common, rest].concat(), payload.to_vec()));
                    }
                    takes
                });
                let expected = &samples[bound + 1..][..most.min(refused).min(samples.len() - bound - 1)];
                let expected: Vec<_> = expected.iter().map(|sample| (sample.key.clone(), sample.payload.clone())).collect();
                prop_assert_eq!(&taken, &expected);
                prop_assert_eq!((passed, cursor.index()), (expected.len(), bound + expected.len()));
                prop_assert_eq!(cursor.key(), &samples[bound + passed].key[..]);
            }
            prop_assert_eq!(cursor.seek_before(&key), bound > 0);
            for at in (0..bound).rev().take(4) {
                prop_assert_eq!(cursor.key(), &samples[at].key[..]);
                prop_assert_eq!(cursor.prev(), at > 0);
            }
        }
    }

    #[test]
    fn damaged_blocks_are_errors_or_still_walkable(seed: u64, count in 1usize..100, layout in 0usize..4, damage: u64) {
        let mut raw = build(&mixed(seed, count), LAYOUTS[layout], seed % 2 == 0);
        let mut random = Random(damage);
        for _ in 0..1 + random.below(4) {
            let at = random.below(raw.len() as u64) as usize;
            match random.below(4) {
                0 => raw[at] ^= 1 << random.below(8),
                1 => raw[at] = random.next() as u8,
                2 => raw.truncate(at.max(1)),
                _ => { raw.insert(at, random.next() as u8); }
            }
        }
        walk(&raw);
    }

    #[test]
    fn arbitrary_bytes_never_panic(raw: Vec<u8>, flags in 0u8..8, count in 1u8..20, tag in 1u8..120) {
        walk(&raw);
        let mut shaped = vec![flags, count, 0, tag];
        shaped.extend(raw);
        walk(&shaped);
    }
}

/// Whatever decodes can be walked.
fn walk(raw: &[u8]) {
    let Ok(block) = EntryBlock::decode(raw, 0) else { return };
    let mut cursor = EntryCursor::new(Arc::new(block));
    let mut more = cursor.first();
    while more {
        let key = cursor.key().to_vec();
        let _ = cursor.message();
        assert_eq!(cursor.block().map(|block| block.lower_bound(&key) <= cursor.index()), Some(true));
        more = cursor.next();
    }
}

#[test]
fn a_single_large_message_makes_a_large_block() {
    let mut random = Random(1);
    let mut sample = mixed(1, 1).remove(0);
    sample.key = random.bytes(32 << 10);
    sample.payload = random.bytes(3 << 20);
    let raw = build(std::slice::from_ref(&sample), Layout::default(), false);
    let block = EntryBlock::decode(&raw, 0).expect("decodes");
    assert_eq!(block.message(0, &sample.key).payload, &sample.payload[..]);
}

#[test]
fn the_size_estimate_is_close_to_the_memory_taken() {
    for seed in 0..50 {
        let samples = mixed(seed, 300);
        let mut builder = EntryBlockBuilder::new(false);
        samples.iter().for_each(|sample| {
            builder.add(&sample.message());
        });
        let (size, mut raw) = (builder.size(), Vec::new());
        builder.finish(Layout::default(), &mut raw);
        let block = EntryBlock::decode(&raw, 0).expect("decodes");
        let taken = block.raw_bytes();
        assert!(taken <= size * 3 / 2 + 64 && size <= taken * 3 / 2 + 64, "seed={seed} size={size} taken={taken}");
    }
}

/// `cargo test --release -p fronddb speed_of_blocks -- --ignored --nocapture`: the numbers of
/// `docs/decisions/0002-block-format.md`.
#[test]
#[ignore = "measures"]
fn speed_of_blocks() {
    let trees = iibench(400_000);
    let rows = Layout { key_planes: false, payload_planes: false };
    let codecs = [
        ("none", Codec::None),
        ("lz4", Codec::Lz4),
        ("zstd-1", Codec::Zstd { level: 1 }),
        ("zstd-3", Codec::Zstd { level: 3 }),
    ];
    for block_bytes in [8 << 10, 16 << 10, 32 << 10] {
        for (name, layout) in [("rows", rows), ("planes", Layout::default())] {
            for (codec_name, codec) in codecs {
                let mut stored = [0f64; 4];
                let [mut add, mut encode, mut pack, mut unpack, mut decode, mut next, mut messages] = [0f64; 7];
                for (tree, samples) in trees.iter().enumerate() {
                    let mut builder = EntryBlockBuilder::new(false);
                    let mut compressor = Compressor::new();
                    let (mut at, mut bytes, mut added) = (0, 0, 0);
                    while at < samples.len() {
                        let start = Instant::now();
                        let first = at;
                        while at < samples.len()
                            && builder.size() + samples[at].key.len() + samples[at].payload.len() < block_bytes
                        {
                            builder.add(&samples[at].message());
                            at += 1;
                        }
                        add += start.elapsed().as_nanos() as f64;
                        let (mut raw, mut packed) =
                            (Vec::with_capacity(block_bytes), Vec::with_capacity(2 * block_bytes));
                        let start = Instant::now();
                        builder.finish(layout, &mut raw);
                        encode += start.elapsed().as_nanos() as f64;
                        let start = Instant::now();
                        let tag = compressor.compress(codec, &raw, &mut packed).expect("compresses");
                        pack += start.elapsed().as_nanos() as f64;
                        let mut back = vec![0; raw.len()];
                        let start = Instant::now();
                        decompress(tag, &packed, &mut back).expect("decompresses");
                        unpack += start.elapsed().as_nanos() as f64;
                        let start = Instant::now();
                        let block = EntryBlock::decode(&back, 0).expect("decodes");
                        decode += start.elapsed().as_nanos() as f64;
                        let mut cursor = EntryCursor::new(Arc::new(block));
                        let start = Instant::now();
                        let mut more = cursor.first();
                        let mut sum = 0;
                        while more {
                            let message = cursor.message();
                            sum += message.key.len() + message.payload.len();
                            more = cursor.next();
                        }
                        next += start.elapsed().as_nanos() as f64;
                        std::hint::black_box(sum);
                        bytes += packed.len() + super::HEADER_BYTES;
                        added += at - first;
                    }
                    stored[tree] = bytes as f64 / added as f64;
                    messages += added as f64;
                }
                println!(
                    "{:>2} KiB {name:6} {codec_name:6} {:5.1} B/row ({:.1} {:.1} {:.1} {:.1}); ns a message: add {:.0} encode {:.0} compress {:.0} decompress {:.0} decode {:.0} next {:.1}",
                    block_bytes >> 10,
                    stored.iter().sum::<f64>(),
                    stored[0],
                    stored[1],
                    stored[2],
                    stored[3],
                    add / messages,
                    encode / messages,
                    pack / messages,
                    unpack / messages,
                    decode / messages,
                    next / messages
                );
            }
        }
    }
    for (name, samples) in [("primary", &trees[0]), ("secondary", &trees[2])] {
        let mut builder = EntryBlockBuilder::new(false);
        let mut count = 0;
        while builder.size() + 60 < 16 << 10 {
            builder.add(&samples[count].message());
            count += 1;
        }
        let mut raw = Vec::new();
        builder.finish(Layout::default(), &mut raw);
        let block = EntryBlock::decode(&raw, 0).expect("decodes");
        let mut random = Random(3);
        let probes: Vec<usize> = (0..4096).map(|_| random.below(count as u64) as usize).collect();
        let (start, mut sum) = (Instant::now(), 0);
        for round in 0..100 {
            for probe in &probes {
                let key = &samples[*probe].key;
                let index = block.lower_bound(key);
                sum += index + round;
                if block.key_equals(index, key) {
                    sum += block.message(index, key).payload.len();
                }
            }
        }
        println!(
            "{name}: {count} messages, seek and message {:.0} ns ({})",
            start.elapsed().as_nanos() as f64 / 409_600.0,
            sum % 10
        );
    }
}
