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
    fn locks_of_prepared_transactions_are_read_back(external_id: Vec<u8>, list in prop::collection::vec(lock(), 0..20)) {
        let locks: Vec<_> = list
            .iter()
            .map(|(tree, exclusive, key, end)| PreparedLock { tree: TreeId(*tree), exclusive: *exclusive, key, end: end.as_deref() })
            .collect();
        let mut bytes = Vec::new();
        encode_prepare(&mut bytes, TxnId(4), &external_id, locks.iter().copied());
        let Record::Prepare { external_id: read, locks: again, .. } = Record::decode(Lsn(1), &bytes)? else { panic!("kind") };
        prop_assert_eq!(read, &external_id[..]);
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
