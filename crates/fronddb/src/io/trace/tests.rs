//! Traces can be played back to any point.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::io::read_file;

const CREATE: OpenMode = OpenMode { create: true, exclusive: false, truncate: false, direct: false, read_only: false };

fn content(storage: &MemoryStorage) -> Vec<(PathBuf, Vec<u8>)> {
    let files = storage.files().into_iter();
    files.map(|(path, _)| (path.clone(), read_file(storage, &path).unwrap())).collect()
}

#[test]
fn every_prefix_can_be_rebuilt_with_its_volatile_state() {
    let start = MemoryStorage::new();
    start.open("/old".as_ref(), CREATE).unwrap().write_at(b"old", 0).unwrap();
    let traced = TraceStorage::new(&start);
    let mut images = vec![content(traced.storage())];
    let mut volatile = vec![traced.storage().has_unsynced()];
    let mut note = || {
        images.push(content(traced.storage()));
        volatile.push(traced.storage().has_unsynced());
    };
    traced.create_dir_all("/d".as_ref()).unwrap();
    note();
    let file = traced.open("/d/f".as_ref(), CREATE).unwrap();
    note();
    file.write_at(&[5; 5000], 10).unwrap();
    note();
    // Two events: what is written, and that it is durable.
    file.write_durable_at(&[6; 5000], 10).unwrap();
    images.push(content(traced.storage()));
    volatile.push(true);
    let mut note = || {
        images.push(content(traced.storage()));
        volatile.push(traced.storage().has_unsynced());
    };
    note();
    file.allocate(0, 9000).unwrap();
    note();
    file.punch(0, 4096).unwrap();
    note();
    file.read_at(&mut [0; 5], 0).unwrap();
    note();
    file.set_len(4500).unwrap();
    note();
    file.sync_data().unwrap();
    note();
    traced.rename("/d/f".as_ref(), "/d/g".as_ref()).unwrap();
    note();
    traced.sync_dir("/d".as_ref()).unwrap();
    note();
    traced.remove("/old".as_ref()).unwrap();
    note();
    assert!(traced.open("/none".as_ref(), OpenMode::default()).is_err());
    note();
    drop(traced.lock("/d/LOCK".as_ref()).unwrap());
    note();
    assert_eq!((traced.list("/d".as_ref()).unwrap().len(), traced.exists("/d/g".as_ref()).unwrap()), (2, true));
    assert!(traced.free_bytes("/".as_ref()).unwrap() > 0);

    let count = traced.events().len();
    assert_eq!(images.len(), count + 1);
    let mut replay = traced.replay();
    for at in 0..=count {
        assert_eq!(replay.done(), at);
        assert_eq!(replay.upcoming().is_none(), at == count);
        assert_eq!(content(replay.storage()), images[at], "event={at}");
        assert_eq!(replay.storage().has_unsynced(), volatile[at], "event={at}");
        assert_eq!(content(&traced.storage_at(at)), images[at]);
        replay.step();
    }
    assert!(!replay.step());
    assert_eq!(traced.events().iter().filter(|event| !event.is_change()).count(), 1);
    assert_eq!(content(&start), images[0], "the start is not touched");
}

#[test]
fn crashes_of_a_replay_equal_crashes_of_the_original() {
    let traced = TraceStorage::new(&MemoryStorage::new());
    let file = traced.open("/f".as_ref(), CREATE).unwrap();
    for at in 0..30 {
        file.write_at(&[at as u8; 700], at * 600).unwrap();
        if at % 7 == 6 {
            file.sync_data().unwrap();
        }
    }
    let mut replay = traced.replay();
    while replay.step() {}
    for seed in 0..50 {
        assert_eq!(content(&replay.storage().crash(seed)), content(&traced.storage().crash(seed)));
    }
}
