//! Long records, compressed as they are or turned.

use super::*;
use crate::base::key::inner;
use crate::base::{TreeId, TxnId};
use crate::format::record::{MessageBatch, Record};
use crate::format::{Kind, Message, Stamp};

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Rows of integers, each with an index entry: turned they are shorter.
fn integers(random: &mut Random, tree: u32, count: u32) -> Rows {
    let mut rows = Rows::new();
    for id in 0..count {
        let column = (random.below(1 << 20) as u32).to_be_bytes();
        rows.push((inner(TreeId(tree), &id.to_be_bytes()), [&column[..], &[0, 0, 0, 1]].concat()));
        rows.push((inner(TreeId(tree + 1), &[column, id.to_be_bytes()].concat()), Vec::new()));
    }
    rows
}

/// Rows of words at whichever place: as they are they are shorter.
fn words(random: &mut Random, tree: u32, count: u32) -> Rows {
    const WORDS: [&str; 8] =
        ["compaction ", "of ", "the tree ", "goes on ", "behind ", "a seal ", "and flushes ", "it "];
    let mut row = |id: u32| {
        let text: String = (0..60).map(|_| WORDS[random.below(8) as usize]).collect();
        (inner(TreeId(tree), &id.to_be_bytes()), text.into_bytes()[..150].to_vec())
    };
    (0..count).map(&mut row).collect()
}

fn record_of(rows: &Rows) -> Vec<u8> {
    let mut batch = MessageBatch::new();
    for (key, payload) in rows {
        batch.add(&Message { key, seq: 0, stamp: Stamp::Settled, kind: Kind::Put, blob: false, payload });
    }
    batch.record(TxnId(7), 2).to_vec()
}

fn rows_of(record: &[u8]) -> Rows {
    let Record::Messages(mut messages) = Record::decode(Lsn(0), record).expect("record") else { panic!("kind") };
    let mut rows = Rows::new();
    while let Some(message) = messages.next().expect("message") {
        rows.push((message.key.to_vec(), message.payload.to_vec()));
    }
    rows
}

/// Bytes of each record in the log, and what is read back.
fn through_the_log(all: &[Rows]) -> Vec<u64> {
    let (_, storage) = memory();
    let log = create(&storage).expect("create");
    let appended: Vec<_> = all.iter().map(|rows| log.append(&record_of(rows)).expect("append")).collect();
    log.sync().expect("sync");
    let (records, _) = read_from(&*storage, Lsn(0)).expect("read");
    assert_eq!(records.len(), all.len());
    for (rows, (_, record)) in all.iter().zip(&records) {
        assert!(rows_of(record) == *rows);
    }
    appended.iter().map(|at| at.end.0 - at.lsn.0).collect()
}

#[test]
fn records_of_rows_are_turned_and_of_text_are_not() {
    let mut random = Random(3);
    let mut all = Vec::new();
    for _ in 0..150 {
        all.push(integers(&mut random, 10, 300));
        all.push(words(&mut random, 20, 40));
    }
    let bytes = through_the_log(&all);
    let (integers, words): (Vec<_>, Vec<_>) = bytes.chunks(2).map(|pair| (pair[0], pair[1])).unzip();
    // 300 rows with 20 bits of noise each.
    assert!(integers.iter().all(|bytes| (750..1_200).contains(bytes)), "{integers:?}");
    // Turned, no word is whole.
    assert!(words.iter().all(|bytes| *bytes < 1_700), "{words:?}");
    let mut turned = Vec::new();
    let mut compressed = Vec::new();
    assert!(crate::format::record::turned::Turner::default().turn(&record_of(&all[1]), &mut turned));
    crate::base::compress::Compressor::new().compress(options().codec, &turned, &mut compressed).expect("compressed");
    assert!(compressed.len() > 2_000, "{}", compressed.len());
}

#[test]
fn a_tree_whose_rows_change_their_nature_gets_the_other_form_after_a_while() {
    let mut random = Random(4);
    let all: Vec<_> =
        (0..200).map(|at| if at < 20 { words(&mut random, 10, 40) } else { integers(&mut random, 10, 300) }).collect();
    let bytes = through_the_log(&all);
    assert!(bytes[20] > 2_000 && bytes[20..].iter().rev().take(100).all(|bytes| *bytes < 1_200), "{bytes:?}");
}

#[test]
fn a_record_that_cannot_be_turned_says_nothing_of_the_others() {
    let mut random = Random(6);
    let few: Rows = vec![(inner(TreeId(10), b"a wide row"), b"4,000 bytes".repeat(400))];
    let all: Vec<_> =
        (0..40).map(|at| if at % 2 == 0 { integers(&mut random, 10, 300) } else { few.clone() }).collect();
    let bytes = through_the_log(&all);
    assert!(bytes.iter().step_by(2).all(|bytes| *bytes < 1_200), "{bytes:?}");
}

#[test]
fn a_turned_record_that_does_not_compress_is_kept_turned() {
    let mut random = Random(5);
    let mut rows = Rows::new();
    for id in 0..600u32 {
        let payload = [[0; 8], random.next().to_le_bytes()].concat();
        rows.push((inner(TreeId(3), &id.to_be_bytes()), payload));
    }
    let bytes = through_the_log(&[rows]);
    assert!(bytes.iter().all(|bytes| (4_800..5_000).contains(bytes)), "{bytes:?}");
}
