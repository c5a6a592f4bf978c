//! Records are read back as they were written.

use super::*;
use crate::base::key::inner;
use crate::format::{Kind, Message};
use proptest::prelude::*;

#[derive(Debug, Clone, PartialEq)]
struct Owned {
    key: Vec<u8>,
    kind: Kind,
    blob: bool,
    payload: Vec<u8>,
}

fn owned() -> impl Strategy<Value = Owned> {
    let kind =
        prop::sample::select(vec![Kind::Put, Kind::InsertIfAbsent, Kind::Delete, Kind::SingleDelete, Kind::Update]);
    let key = (0u32..6, prop::collection::vec(0u8..3, 0..40), 1usize..60);
    (key, kind, any::<bool>(), prop::collection::vec(any::<u8>(), 0..80)).prop_map(
        |((tree, key, repeat), kind, blob, payload)| {
            let deletes = matches!(kind, Kind::Delete | Kind::SingleDelete);
            let blob = blob && matches!(kind, Kind::Put | Kind::InsertIfAbsent);
            Owned {
                key: inner(TreeId(tree), &key.repeat(repeat)),
                kind,
                blob,
                payload: if deletes { vec![] } else { payload },
            }
        },
    )
}

fn borrowed(owned: &Owned) -> Message<'_> {
    let stamp = Stamp::Written { txn: TxnId(9), step: 3 };
    Message { key: &owned.key, seq: 77, stamp, kind: owned.kind, blob: owned.blob, payload: &owned.payload }
}

fn collect(mut messages: Messages<'_>) -> Vec<Owned> {
    let mut all = Vec::new();
    while let Some(message) = messages.next().expect("messages") {
        assert_eq!((message.seq, message.stamp), (77, Stamp::Written { txn: TxnId(9), step: 3 }));
        let Message { key, kind, blob, payload, .. } = message;
        all.push(Owned { key: key.to_vec(), kind, blob, payload: payload.to_vec() });
    }
    all
}

fn lock() -> impl Strategy<Value = (u32, bool, Vec<u8>, Option<Vec<u8>>)> {
    (any::<u32>(), any::<bool>(), any::<Vec<u8>>(), any::<Option<Vec<u8>>>())
}

fn origin() -> impl Strategy<Value = Origin> {
    (any::<u64>(), 0..=ISOLATION_MAX, any::<u64>()).prop_map(|(began_ms, isolation, messages)| Origin {
        began_ms,
        isolation,
        messages,
    })
}

proptest! {
    #[test]
    fn messages_are_read_back_as_written(list in prop::collection::vec(owned(), 0..200), number: u64) {
        let mut batch = MessageBatch::new();
        batch.add(&borrowed(&Owned { key: inner(TreeId(1), b"of an earlier use"), kind: Kind::Put, blob: false, payload: vec![1] }));
        batch.clear();
        for message in &list {
            batch.add(&borrowed(message));
        }
        prop_assert_eq!(batch.count(), list.len());
        prop_assert_eq!(&collect(batch.messages(Lsn(77), TxnId(9), 3)), &list);
        let Record::Messages(messages) = Record::decode(Lsn(77), batch.record(TxnId(9), 3))? else { panic!("kind") };
        let mut again = Vec::new();
        Record::Messages(messages.clone()).encode(&mut again);
        prop_assert_eq!(&collect(messages), &list);
        prop_assert_eq!(&again[..], batch.record(TxnId(9), 3));
        let bytes = batch.commit_record(TxnId(9), 3, CommitNumber(number));
        let Record::CommitWithMessages { number: read, messages } = Record::decode(Lsn(77), bytes)? else { panic!("kind") };
        prop_assert_eq!(read.0, number);
        prop_assert_eq!(&collect(messages), &list);
    }

    #[test]
    fn decisions_are_read_back_as_written(txn: u64, number: u64, a: u32, b: u32) {
        for record in [
            Record::Commit { txn: TxnId(txn), number: CommitNumber(number) },
            Record::Abort { txn: TxnId(txn) },
            Record::AbortSteps { txn: TxnId(txn), from: a.min(b), to: a.max(b) },
            Record::RangeDelete { txn: TxnId(txn), step: a, start: b"a", end: b"b", seq: 5 },
        ] {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let read = Record::decode(Lsn(5), &bytes)?;
            prop_assert_eq!(format!("{read:?}"), format!("{record:?}"));
            prop_assert_eq!(read.txn(), TxnId(txn));
            prop_assert!(Record::decode(Lsn(5), &bytes[..bytes.len() - 1]).is_err());
            bytes.push(0);
            prop_assert!(Record::decode(Lsn(5), &bytes).is_err());
        }
    }

    #[test]
    fn prepared_transactions_are_read_back(
        external_id: Vec<u8>,
        origin in prop::option::of(origin()),
        list in prop::collection::vec(lock(), 0..20),
    ) {
        let locks: Vec<_> = list
            .iter()
            .map(|(tree, exclusive, key, end)| PreparedLock { tree: TreeId(*tree), exclusive: *exclusive, key, end: end.as_deref() })
            .collect();
        let mut bytes = Vec::new();
        encode_prepare(&mut bytes, TxnId(4), &external_id, origin, locks.iter().copied());
        let record = Record::decode(Lsn(1), &bytes)?;
        let mut copied = Vec::new();
        record.encode(&mut copied);
        prop_assert_eq!(&copied, &bytes);
        prop_assert_eq!(record.txn(), TxnId(4));
        let Record::Prepare { external_id: read, origin: from, locks: again, .. } = record else { panic!("kind") };
        prop_assert_eq!((read, from), (&external_id[..], origin));
        prop_assert_eq!(again.collect::<Vec<_>>(), &locks[..]);
        prop_assert!(Record::decode(Lsn(1), &bytes[..bytes.len() - 1]).is_err());
        bytes.push(0);
        prop_assert!(Record::decode(Lsn(1), &bytes).is_err());
        bytes.clear();
        encode_locks(&mut bytes, TxnId(4), locks.iter().copied());
        let record = Record::decode(Lsn(1), &bytes)?;
        let mut copied = Vec::new();
        record.encode(&mut copied);
        prop_assert_eq!(&copied, &bytes);
        prop_assert_eq!(record.txn(), TxnId(4));
        let Record::Locks { locks: again, .. } = record else { panic!("kind") };
        prop_assert_eq!(again.collect::<Vec<_>>(), locks);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(prop_oneof![0u8..20, any::<u8>()], 0..300)) {
        if let Ok(Record::Messages(mut messages) | Record::CommitWithMessages { mut messages, .. }) = Record::decode(Lsn(1), &bytes) {
            while let Ok(Some(_)) = messages.next() {}
            prop_assert!(matches!(messages.next(), Ok(None)), "nothing follows an error");
        }
    }
}

#[test]
fn a_prepare_record_has_an_origin_from_log_format_4_on() {
    let lock = [1, 5, 1, 1, b'k'];
    let without = [&[7, 4, 1, b'x'][..], &lock].concat();
    let with = [&[9, 4, 1, b'x', 0xac, 2, 3, 6][..], &lock].concat();
    let origin = Origin { began_ms: 300, isolation: 3, messages: 6 };
    for (bytes, expected) in [(without, None), (with.clone(), Some(origin))] {
        let Ok(Record::Prepare { txn, external_id, origin, locks }) = Record::decode(Lsn(1), &bytes) else {
            panic!("kind")
        };
        assert_eq!((txn, external_id, origin), (TxnId(4), &b"x"[..], expected));
        let lock = PreparedLock { tree: TreeId(5), exclusive: true, key: b"k", end: None };
        assert_eq!(locks.clone().collect::<Vec<_>>(), [lock]);
        let mut written = Vec::new();
        encode_prepare(&mut written, txn, external_id, origin, locks);
        assert_eq!(written, bytes);
    }
    let mut unknown = with;
    unknown[6] = ISOLATION_MAX + 1;
    assert!(Record::decode(Lsn(1), &unknown).is_err(), "an isolation level that there is not");
}

#[test]
fn a_row_of_four_messages_takes_less_than_110_bytes() {
    let mut batch = MessageBatch::new();
    let mut random = 88_172_645_463_325_252_u64;
    let mut bytes = |n: usize| -> Vec<u8> {
        (0..n)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                (random >> 32) as u8
            })
            .collect()
    };
    for row in 0..1000u64 {
        let row = row.to_be_bytes();
        let (register, price, date, customer, data) = (bytes(4), bytes(4), bytes(5), bytes(4), bytes(18));
        let primary = inner(TreeId(100), &row);
        let market = inner(TreeId(101), &[&price[..], &customer, &row].concat());
        let registers = inner(TreeId(102), &[&register[..], &price, &customer, &row].concat());
        let pdc = inner(TreeId(103), &[&price[..], &date, &customer, &row].concat());
        let value = [register, price, date, customer, data].concat();
        assert_eq!(value.len(), 35);
        batch.add(&borrowed(&Owned { key: primary, kind: Kind::Put, blob: false, payload: value }));
        for key in [market, registers, pdc] {
            batch.add(&borrowed(&Owned { key, kind: Kind::Put, blob: false, payload: vec![] }));
        }
    }
    let per_row = batch.record(TxnId(1_000_000), 0).len() as f64 / 1000.0;
    println!("bytes per iiBench row, uncompressed: {per_row}");
    assert!(per_row < 110.0, "{per_row}");
}

/// What a turned record turns back to, and whether it was turned.
fn through(record: &[u8]) -> (Vec<u8>, bool) {
    let (mut turned, mut back) = (vec![7], Vec::new());
    let is_turned = turned::Turner::default().turn(record, &mut turned);
    assert_eq!(turned[0], 7, "appended");
    if !is_turned {
        assert_eq!(turned.len(), 1, "nothing appended");
        return (record.to_vec(), false);
    }
    turned::turn_back(&turned[1..], &mut back).expect("turned record");
    (back, true)
}

proptest! {
    #[test]
    fn turned_records_turn_back(list in prop::collection::vec(owned(), 0..200), number: u64) {
        let mut batch = MessageBatch::new();
        list.iter().for_each(|message| batch.add(&borrowed(message)));
        let (record, is_turned) = through(batch.record(TxnId(9), 3));
        prop_assert_eq!(is_turned, list.len() >= 16);
        let Record::Messages(messages) = Record::decode(Lsn(77), &record)? else { panic!("kind") };
        prop_assert_eq!(&collect(messages), &list);
        prop_assert_eq!(turned::first_tree(&record).map(|tree| tree.0.to_be_bytes()), list.first().map(|first| first.key[..4].try_into().unwrap()));
        let (record, _) = through(batch.commit_record(TxnId(9), 3, CommitNumber(number)));
        let Record::CommitWithMessages { number: read, messages } = Record::decode(Lsn(77), &record)? else { panic!("kind") };
        prop_assert_eq!(read.0, number);
        prop_assert_eq!(&collect(messages), &list);
    }

    #[test]
    fn damaged_turned_records_never_panic(list in prop::collection::vec(owned(), 16..60), bytes: Vec<u8>, at: prop::sample::Index, bit in 0u8..8) {
        let mut batch = MessageBatch::new();
        list.iter().for_each(|message| batch.add(&borrowed(message)));
        let (mut turned, mut record) = (Vec::new(), Vec::new());
        turned::Turner::default().turn(batch.record(TxnId(9), 3), &mut turned);
        let at = at.index(turned.len());
        turned[at] ^= 1 << bit;
        let _ = turned::turn_back(&turned, &mut record);
        prop_assert!(turned::turn_back(&turned[..at], &mut record).is_err());
        let _ = turned::turn_back(&bytes, &mut record);
    }
}

#[test]
fn what_is_stored_does_not_change() {
    // Eight messages of one tree, in planes, and seven of another, which are not; one has no payload.
    let mut batch = MessageBatch::new();
    for at in 0..16u32 {
        let tree = if at < 8 || at == 15 { 1 } else { 2 };
        let payload = if at == 15 { vec![] } else { vec![at as u8; 2] };
        batch.add(&borrowed(&Owned {
            key: inner(TreeId(tree), &[0x40, at as u8]),
            kind: Kind::Put,
            blob: false,
            payload,
        }));
    }
    let mut turned = Vec::new();
    assert!(turned::Turner::default().turn(batch.record(TxnId(9), 3), &mut turned));
    let expected: Vec<u8> = [
        &[1, 9, 3, 2, 16][..],  // messages, transaction, step; two trees, sixteen messages
        &[1, 0, 0x00, 0x7f],    // 8 of the first, 7 of the second, 1 of the first
        &[0, 0, 0, 1],          // tree 1
        &[3, 1, 0, 0, 0, 5],    // forms 1, and 6 for the one without a payload
        &[0, 2],                // keys of 2 bytes
        &[0, 0x40, 0x13, 1, 0], // planes: all 0x40; differences of 1 to 8 in three bits, from 0
        &[0, 0, 0xe0],
        &[0, 2],                   // payloads of 2 bytes, of eight messages
        &[16, 1, 0, 16, 1, 0],     // planes: differences of 1, from 0
        &[0, 0, 0, 2, 0, 1, 0, 2], // tree 2: forms 1, keys of 2 bytes
        &[0x40, 8, 0x40, 9, 0x40, 10, 0x40, 11, 0x40, 12, 0x40, 13, 0x40, 14],
        &[0, 2], // payloads of 2 bytes
        &[8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14],
    ]
    .concat();
    assert_eq!(turned, expected);
}

#[test]
fn long_strings_of_all_lengths_turn_back() {
    let mut batch = MessageBatch::new();
    let list: Vec<Owned> = (0..40u32)
        .map(|at| Owned {
            key: inner(TreeId(at % 3), &vec![at as u8; 505 + at as usize % 13]),
            kind: Kind::Put,
            blob: at % 5 == 0,
            payload: (0..500 + 17 * at).map(|byte| (byte * 7 + at) as u8).collect(),
        })
        .collect();
    list.iter().for_each(|message| batch.add(&borrowed(message)));
    let (record, is_turned) = through(batch.record(TxnId(9), 3));
    assert!(is_turned);
    let Ok(Record::Messages(messages)) = Record::decode(Lsn(77), &record) else { panic!("kind") };
    assert_eq!(collect(messages), list);
}

#[test]
fn what_is_not_turned() {
    let put = |tree: u32, at: u32, payload: usize| Owned {
        key: inner(TreeId(tree), &at.to_be_bytes()),
        kind: Kind::Put,
        blob: false,
        payload: vec![at as u8; payload],
    };
    let is_turned = |list: &[Owned]| {
        let mut batch = MessageBatch::new();
        list.iter().for_each(|message| batch.add(&borrowed(message)));
        let (record, is_turned) = through(batch.record(TxnId(9), 3));
        assert!(is_turned || record == batch.record(TxnId(9), 3));
        is_turned
    };
    let list = |count: u32, trees: u32, payload: usize| -> Vec<Owned> {
        (0..count).map(|at| put(at % trees, at, payload)).collect()
    };
    assert!(is_turned(&list(16, 4, 10)));
    assert!(!is_turned(&list(15, 4, 10)), "few messages");
    assert!(is_turned(&list(100, 16, 10)));
    assert!(!is_turned(&list(100, 17, 10)), "many trees");
    assert!(is_turned(&list(40, 2, 100_000)));
    assert!(!is_turned(&list(42, 2, 100_000)), "too long");
    let mut bytes = Vec::new();
    Record::Abort { txn: TxnId(9) }.encode(&mut bytes);
    assert!(!through(&bytes).1, "no messages");
    assert_eq!(turned::first_tree(&bytes), None);
}

#[test]
fn rows_with_their_index_entries_take_the_room_of_their_columns() {
    use crate::base::compress::{Codec, Compressor};
    // Four columns of 16 bits of noise, each in the row and in two of three indexes.
    let mut batch = MessageBatch::new();
    let mut noise = 1u64;
    for id in 0..1000u32 {
        noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let column = |at: u32| u32::from((noise >> (16 * at)) as u16).to_be_bytes();
        let entry = |columns: [u32; 2]| [column(columns[0]), column(columns[1]), id.to_be_bytes()].concat();
        let row: Vec<u8> = (0..4).flat_map(column).collect();
        let mut put = |tree: u32, key: &[u8], payload: &[u8]| {
            let owned =
                Owned { key: inner(TreeId(tree), key), kind: Kind::Put, blob: false, payload: payload.to_vec() };
            batch.add(&borrowed(&owned));
        };
        put(1, &id.to_be_bytes(), &row);
        put(2, &entry([0, 1]), &[]);
        put(3, &entry([2, 0]), &[]);
        put(4, &entry([3, 2]), &[]);
    }
    let record = batch.record(TxnId(9), 3).to_vec();
    let stored = |raw: &[u8]| {
        let mut stored = Vec::new();
        Compressor::new().compress(Codec::default(), raw, &mut stored).expect("compressed");
        stored.len()
    };
    let mut turned = Vec::new();
    assert!(turned::Turner::default().turn(&record, &mut turned));
    assert!(turned.len() < record.len() / 2, "{} of {}", turned.len(), record.len());
    assert!(stored(&turned) < 9_000, "8,000 bytes of noise and little else, but {}", stored(&turned));
    assert!(stored(&record) > 2 * stored(&turned), "{} as it is", stored(&record));
}
