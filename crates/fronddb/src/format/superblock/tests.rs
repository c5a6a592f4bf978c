//! Superblocks: round trips, damage, versions.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
use proptest::prelude::*;

use super::*;

fn ptr() -> impl Strategy<Value = BlockPtr> {
    (0..=u64::MAX / 2, 1..=u32::MAX).prop_map(|(offset, stored)| BlockPtr { offset, stored })
}

prop_compose! {
    fn superblock()(
        generation in 1..=u64::MAX,
        uuid: [u8; 16],
        root in proptest::option::of(ptr()),
        space_map in proptest::collection::vec(ptr(), 0..=PIECES_MAX),
        status in proptest::collection::vec(ptr(), 0..=PIECES_MAX),
        numbers: [u64; 7],
        height: u32,
        extra in proptest::collection::vec(any::<u8>(), 0..=EXTRA_BYTES_MAX),
    ) -> Superblock {
        Superblock {
            generation,
            uuid,
            end_page: numbers[6],
            space_map,
            body: SuperblockBody {
                root,
                height,
                status,
                log_start: Lsn(numbers[0]),
                log_end: Lsn(numbers[1]),
                oldest_memtable: numbers[2],
                next_run: RunId(numbers[3]),
                next_txn: TxnId(numbers[4]),
                next_commit: CommitNumber(numbers[5]),
                extra,
            },
        }
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(superblock in superblock()) {
        let bytes = superblock.encode()?;
        prop_assert_eq!(bytes.len(), SUPERBLOCK_BYTES);
        prop_assert_eq!(Superblock::decode(superblock.offset(), &bytes)?, Slot::Valid(Box::new(superblock)));
    }

    #[test]
    fn every_inverted_bit_is_noticed(superblock in superblock(), at in 0..SUPERBLOCK_BYTES, bit in 0..8u8) {
        let mut bytes = superblock.encode()?;
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(Superblock::decode(superblock.offset(), &bytes).map_err(|error| error.kind()), Err(ErrorKind::Corruption));
    }

    #[test]
    fn a_torn_slot_is_noticed(old in superblock(), new in superblock(), sectors in 1..7usize) {
        let new = Superblock { generation: (new.generation / 8 + 1) * SLOTS + old.generation % SLOTS, ..new };
        let (mut torn, old_bytes) = (new.encode()?, old.encode()?);
        torn[sectors * 512..].copy_from_slice(&old_bytes[sectors * 512..]);
        prop_assume!(torn != new.encode()?);
        prop_assert!(Superblock::decode(new.offset(), &torn).is_err());
    }

    #[test]
    fn arbitrary_fields_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_fields(&mut Decoder::new(&bytes));
        let _ = Superblock::decode(0, &bytes);
    }
}

#[test]
fn a_newer_version_is_refused_by_name_and_not_called_damage() {
    let mut bytes = Superblock { generation: 3, ..Superblock::default() }.encode().unwrap();
    bytes[8] = 9;
    bytes[CHECKSUM_AT].fill(0);
    let sum = checksum::block(slot_offset(3), &bytes);
    bytes[CHECKSUM_AT].copy_from_slice(&sum.to_le_bytes());
    let error = Superblock::decode(slot_offset(3), &bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedFormat);
    assert!(error.to_string().contains(&format!("got=9 known={FORMAT_VERSION}")), "{error}");
}

#[test]
fn a_slot_whose_first_sector_is_zeros_is_empty() {
    assert_eq!(Superblock::decode(0, &[0; SUPERBLOCK_BYTES]).unwrap(), Slot::Empty);
    let body = SuperblockBody { extra: vec![7; EXTRA_BYTES_MAX], ..SuperblockBody::default() };
    let mut bytes = Superblock { generation: 4, body, ..Superblock::default() }.encode().unwrap();
    bytes[..511].fill(0);
    assert_eq!(Superblock::decode(0, &bytes).unwrap_err().kind(), ErrorKind::Corruption);
    bytes[511] = 0;
    assert_eq!(Superblock::decode(0, &bytes).unwrap(), Slot::Empty);
}

#[test]
fn the_limits_are_refused_past_their_edge() {
    let body = SuperblockBody { extra: vec![0; EXTRA_BYTES_MAX + 1], ..SuperblockBody::default() };
    let superblock = Superblock { generation: 1, body, ..Superblock::default() };
    assert_eq!(superblock.encode().unwrap_err().kind(), ErrorKind::InvalidArgument);
    let space_map = vec![BlockPtr { offset: 1, stored: 1 }; PIECES_MAX + 1];
    assert!(Superblock { generation: 1, space_map, ..Superblock::default() }.encode().is_err());
}
