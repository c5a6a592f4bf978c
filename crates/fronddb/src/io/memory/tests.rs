//! The simulated disk: what a crash may leave.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::base::page_buf::PageBuf;
use crate::io::{read_file, replace_file};

const CREATE: OpenMode = OpenMode { create: true, exclusive: false, truncate: false, direct: false, read_only: false };

fn path(name: &str) -> PathBuf {
    Path::new("/d").join(name)
}

fn storage() -> MemoryStorage {
    let storage = MemoryStorage::new();
    storage.create_dir_all("/d".as_ref()).unwrap();
    storage
}

fn durable_file(storage: &MemoryStorage, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = storage.open(&path(name), CREATE).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    storage.sync_dir("/d".as_ref()).unwrap();
    file
}

/// A change of a file, for the comparison with a plain vector.
#[derive(Debug, Clone)]
enum Change {
    Write(u64, usize, u8),
    SetLen(u64),
    Punch(u64, u64),
    Allocate(u64, u64),
    Sync,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0..40_000u64, 0..10_000usize, 1..=255u8).prop_map(|(at, length, byte)| Change::Write(at, length, byte)),
        1 => (0..50_000u64).prop_map(Change::SetLen),
        1 => (0..40_000u64, 0..20_000u64).prop_map(|(at, length)| Change::Punch(at, length)),
        1 => (0..40_000u64, 1..20_000u64).prop_map(|(at, length)| Change::Allocate(at, length)),
        1 => Just(Change::Sync),
    ]
}

fn apply(change: &Change, file: &dyn File, model: &mut Vec<u8>) {
    match *change {
        Change::Write(at, length, byte) => {
            file.write_at(&vec![byte; length], at).unwrap();
            if length > 0 {
                model.resize(model.len().max(at as usize + length), 0);
                model[at as usize..at as usize + length].fill(byte);
            }
        }
        Change::SetLen(length) => {
            file.set_len(length).unwrap();
            model.resize(length as usize, 0);
        }
        Change::Punch(at, length) => {
            file.punch(at, length).unwrap();
            let end = model.len().min((at + length) as usize);
            model[(at as usize).min(end)..end].fill(0);
        }
        Change::Allocate(at, length) => {
            file.allocate(at, length).unwrap();
            model.resize(model.len().max((at + length) as usize), 0);
        }
        Change::Sync => file.sync_data().unwrap(),
    }
}

proptest! {
    #[test]
    fn a_file_behaves_like_a_vector(changes in proptest::collection::vec(change(), 0..40)) {
        let storage = storage();
        let file = storage.open(&path("f"), CREATE)?;
        let mut model = Vec::new();
        for change in &changes {
            apply(change, &*file, &mut model);
            prop_assert_eq!(file.len()?, model.len() as u64);
        }
        prop_assert!(read_file(&storage, &path("f"))? == model);
        let copy = storage.snapshot();
        file.write_at(b"later", 0)?;
        prop_assert!(read_file(&copy, &path("f"))? == model, "a snapshot is a deep copy");
        drop(file);
        storage.remove(&path("f"))?;
        storage.sync_dir("/d".as_ref())?;
        prop_assert_eq!(storage.occupied_bytes(), 0);
    }

    #[test]
    fn each_sector_after_a_crash_is_one_that_was_written_since_the_last_sync(
        before in proptest::collection::vec(change(), 0..10),
        after in proptest::collection::vec(change().prop_filter("no sync", |change| !matches!(change, Change::Sync)), 0..8),
        seed: u64,
    ) {
        let storage = storage();
        let file = durable_file(&storage, "f", b"");
        let mut model = Vec::new();
        before.iter().for_each(|change| apply(change, &*file, &mut model));
        file.sync_data()?;
        let mut versions = vec![model.clone()];
        for change in &after {
            apply(change, &*file, &mut model);
            versions.push(model.clone());
        }
        for mode in CrashMode::ALL {
            let left = read_file(&storage.crash_with(mode, seed), &path("f"))?;
            prop_assert!(versions.iter().any(|version| version.len() == left.len()), "length={}", left.len());
            for (index, sector) in left.chunks(512).enumerate() {
                // A version that ends before has zeros there.
                let possible = versions.iter().any(|version| (0..sector.len()).all(|at| {
                    version.get(index * 512 + at).copied().unwrap_or(0) == sector[at]
                }));
                prop_assert!(possible, "mode={:?} sector={}", mode, index);
            }
            match mode {
                CrashMode::Lost => prop_assert!(left == versions[0]),
                CrashMode::Kept => prop_assert!(left == model),
                _ => {}
            }
        }
        prop_assert!(read_file(&storage, &path("f"))? == model, "the disk that crashed goes on in another world");
    }
}

#[test]
fn a_crash_keeps_what_was_synced_and_reaches_every_subset_of_the_rest() {
    let storage = storage();
    let file = durable_file(&storage, "f", &[1; 2048]);
    file.write_at(&[2; 2048], 0).unwrap();
    let images: HashSet<Vec<u8>> = (0..2000)
        .map(|seed| {
            let bytes = read_file(&storage.crash(seed), &path("f")).unwrap();
            bytes.chunks(512).map(|sector| sector[0]).collect()
        })
        .collect();
    assert_eq!(images.len(), 16, "each of four sectors may be old or new: {images:?}");
    assert!(storage.has_unsynced());
    file.sync_data().unwrap();
    assert!(!storage.has_unsynced());
    for seed in 0..50 {
        assert_eq!(read_file(&storage.crash(seed), &path("f")).unwrap(), [2; 2048]);
    }
}

#[test]
fn a_durable_write_is_there_after_a_crash_and_takes_nothing_else_with_it() {
    let storage = storage();
    let file = durable_file(&storage, "f", &[0; 3 * 4096]);
    file.write_at(&[1; 3 * 4096], 0).unwrap();
    // A whole page, part of the next, and what makes the file longer.
    file.write_durable_at(&[2; 4096 + 1024], 4096).unwrap();
    file.write_durable_at(&[3; 512], 3 * 4096).unwrap();
    let sectors = |left: &MemoryStorage| -> Vec<u8> {
        let bytes = read_file(left, &path("f")).unwrap();
        bytes.chunks(512).map(|sector| sector[0]).collect()
    };
    let durable = [vec![2; 10], vec![3]];
    let left = |old: u8| [vec![old; 8], durable[0].clone(), vec![old; 6], durable[1].clone()].concat();
    assert_eq!(sectors(&storage.crash_with(CrashMode::Lost, 1)), left(0));
    assert_eq!(sectors(&storage.crash_with(CrashMode::Kept, 1)), left(1));
    for seed in 0..100 {
        let found = sectors(&storage.crash(seed));
        assert_eq!([found[8..18].to_vec(), found[24..].to_vec()], durable);
    }
    assert!(storage.has_unsynced());
}

#[test]
fn unsynced_writes_overtake_each_other() {
    let storage = storage();
    let file = durable_file(&storage, "f", &[0; 8192]);
    file.write_at(&[1; 4096], 0).unwrap();
    file.write_at(&[2; 4096], 4096).unwrap();
    let images: HashSet<(u8, u8)> = (0..200)
        .map(|seed| {
            let bytes = read_file(&storage.crash_with(CrashMode::Reordered, seed), &path("f")).unwrap();
            (bytes[0], bytes[4096])
        })
        .collect();
    assert_eq!(images, HashSet::from([(0, 0), (1, 0), (0, 2), (1, 2)]));
}

#[test]
fn many_writes_of_one_page_stay_cheap_and_legal() {
    let storage = storage();
    let file = durable_file(&storage, "f", &[0; 512]);
    for value in 1..=100 {
        file.write_at(&[value; 512], 0).unwrap();
    }
    let left: HashSet<u8> = (0..300).map(|seed| read_file(&storage.crash(seed), &path("f")).unwrap()[0]).collect();
    assert!(left.contains(&0) && left.contains(&100) && left.len() > 3, "{left:?}");
}

#[test]
fn names_survive_a_crash_only_after_the_directory_is_synced() {
    let storage = storage();
    durable_file(&storage, "old", b"old");
    storage.open(&path("new"), CREATE).unwrap().sync_data().unwrap();
    storage.rename(&path("old"), &path("renamed")).unwrap();
    let outcomes: HashSet<Vec<String>> =
        (0..300).map(|seed| storage.crash(seed).list("/d".as_ref()).unwrap()).collect();
    let expected: HashSet<Vec<String>> = [vec!["old"], vec!["new", "old"], vec!["renamed"], vec!["new", "renamed"]]
        .into_iter()
        .map(|names| names.into_iter().map(str::to_owned).collect())
        .collect();
    assert_eq!(outcomes, expected, "a rename is wholly done or not at all");
    storage.sync_dir("/d".as_ref()).unwrap();
    storage.remove(&path("new")).unwrap();
    for seed in 0..50 {
        let left = storage.crash(seed);
        assert_eq!(read_file(&left, &path("renamed")).unwrap(), b"old");
    }
    assert!((0..50).any(|seed| storage.crash(seed).exists(&path("new")).unwrap()), "a removal may be lost");
    assert!((0..50).any(|seed| !storage.crash(seed).exists(&path("new")).unwrap()));
}

#[test]
fn replacing_a_file_leaves_the_old_or_the_new_content() {
    let storage = storage();
    replace_file(&storage, &path("f"), b"old").unwrap();
    let traced = crate::io::TraceStorage::new(&storage);
    replace_file(&traced, &path("f"), b"newer").unwrap();
    let mut replay = traced.replay();
    while replay.step() {
        for seed in 0..30 {
            let bytes = read_file(&replay.storage().crash(seed), &path("f")).unwrap();
            assert!(bytes == b"old" || bytes == b"newer");
        }
    }
    assert_eq!(read_file(&replay.storage().crash_with(CrashMode::Lost, 0), &path("f")).unwrap(), b"newer");
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let build = || {
        let storage = storage();
        for name in ["a", "b", "c"] {
            let file = storage.open(&path(name), CREATE).unwrap();
            (0..20).for_each(|at| file.write_at(&[at as u8; 3000], at * 1000).unwrap());
        }
        storage
    };
    let image = |storage: MemoryStorage| {
        let files = storage.files();
        files.into_iter().map(|(path, _)| (read_file(&storage, &path).unwrap(), path)).collect::<Vec<_>>()
    };
    for seed in 0..50 {
        assert!(image(build().crash(seed)) == image(build().crash(seed)), "seed={seed}");
    }
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let storage = storage();
    let file = storage.open(&path("f"), CREATE).unwrap();
    storage.set_capacity(4 * 4096);
    assert_eq!(file.allocate(0, 5 * 4096).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!((file.len().unwrap(), storage.occupied_bytes()), (4 * 4096, 4 * 4096), "it keeps what there was");
    file.set_len(0).unwrap();
    assert_eq!(storage.occupied_bytes(), 0);
    file.allocate(0, 3 * 4096).unwrap();
    assert_eq!(storage.free_bytes("/d".as_ref()).unwrap(), 4096);
    assert_eq!(file.write_at(&[1; 5 * 4096], 0).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(file.len().unwrap(), 4 * 4096, "what came before the first missing page was written");
    file.write_at(&[2; 4096], 0).unwrap();
    let left = storage.crash(1);
    assert!(left.occupied_bytes() <= 4 * 4096);
    file.punch(0, 2 * 4096).unwrap();
    file.write_at(&[3; 4096], 4 * 4096).unwrap();
    file.set_len(0).unwrap();
    assert_eq!(storage.occupied_bytes(), 0);
}

#[test]
fn locks_are_shared_by_clones_and_gone_after_a_crash() {
    let storage = storage();
    let guard = storage.lock(&path("LOCK")).unwrap();
    assert_eq!(storage.clone().lock(&path("./LOCK")).map(drop).unwrap_err().kind(), ErrorKind::AlreadyOpen);
    storage.crash(1).lock(&path("LOCK")).unwrap();
    drop(guard);
    storage.lock(&path("LOCK")).unwrap();
}

#[test]
fn damage_reaches_what_is_durable_and_what_is_cached() {
    let storage = storage();
    let file = durable_file(&storage, "f", &[0; 1000]);
    file.write_at(&[1; 10], 500).unwrap();
    storage.flip_bit(&path("f"), 700, 4).unwrap();
    storage.overwrite(&path("f"), 10, b"xyz").unwrap();
    for mode in [CrashMode::Lost, CrashMode::Kept] {
        let left = read_file(&storage.crash_with(mode, 0), &path("f")).unwrap();
        assert_eq!((left[700], &left[10..13]), (16, b"xyz".as_slice()));
    }
    assert!(storage.flip_bit(&path("f"), 1000, 0).is_err());
    assert!(storage.flip_bit(&path("none"), 0, 0).is_err());
}

#[test]
fn direct_files_insist_on_alignment() {
    let storage = storage();
    let file = storage.open(&path("f"), OpenMode { direct: true, ..CREATE }).unwrap();
    let mut buf = PageBuf::zeroed(8192);
    file.write_at(&buf, 4096).unwrap();
    file.read_at(&mut buf, 0).unwrap();
    assert_eq!(file.write_at(&buf[..100], 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(file.write_at(&buf, 512).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(file.read_at(&mut buf[512..4608], 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn handles_outlive_their_name_and_reading_ones_refuse_writes() {
    let storage = storage();
    let file = durable_file(&storage, "f", b"abc");
    let reader = storage.open(&path("f"), OpenMode { read_only: true, ..OpenMode::default() }).unwrap();
    storage.remove(&path("f")).unwrap();
    file.write_at(b"d", 3).unwrap();
    let mut buf = [0; 4];
    reader.read_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"abcd");
    for refused in [reader.write_at(b"x", 0), reader.set_len(0), reader.allocate(0, 1).map(drop), reader.punch(0, 1)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnly);
    }
    assert!(reader.read_at(&mut buf, 1).is_err());
    for missing in [
        storage.remove(&path("f")),
        storage.rename(&path("f"), &path("g")),
        storage.open(&path("f"), OpenMode::default()).map(drop),
        storage.open("/none/f".as_ref(), CREATE).map(drop),
        storage.sync_dir("/none".as_ref()),
        storage.list("/none".as_ref()).map(drop),
        storage.create_dir_all(&path("LOCK")).and_then(|()| storage.open(&path("LOCK"), CREATE).map(drop)),
    ] {
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::Io);
    }
}
