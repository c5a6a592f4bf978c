//! Faults come when the plan says so.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::base::ErrorKind;
use crate::io::MemoryStorage;

const CREATE: OpenMode = OpenMode { create: true, exclusive: false, truncate: false, direct: false, read_only: false };

fn setup() -> (FaultPlan, FaultStorage) {
    let plan = FaultPlan::new();
    (plan.clone(), FaultStorage::new(Arc::new(MemoryStorage::new()), plan))
}

#[test]
fn the_nth_call_fails_once_or_from_then_on() {
    let (plan, storage) = setup();
    let file = storage.open("/f".as_ref(), CREATE).unwrap();
    plan.add(FaultRule::once(CallClass::Write, 2, Fault::Error));
    let results: Vec<bool> = (0..4).map(|_| file.write_at(b"x", 0).is_ok()).collect();
    assert_eq!(results, [true, false, true, true]);
    plan.add(FaultRule::from(CallClass::Sync, 2, Fault::NoSpace));
    let kinds: Vec<_> = (0..3).map(|_| file.sync_data().map_err(|error| error.kind())).collect();
    assert_eq!(kinds, [Ok(()), Err(ErrorKind::NoSpace), Err(ErrorKind::NoSpace)]);
    plan.set_enabled(false);
    file.sync_data().unwrap();
    plan.set_enabled(true);
    assert!(file.sync_data().is_err());
    plan.clear();
    file.sync_data().unwrap();
    assert_eq!((plan.calls(CallClass::Write), plan.calls(CallClass::Sync), plan.fired()), (4, 6, 4));
    assert_eq!(plan.calls_total(), 11);
}

#[test]
fn a_durable_write_is_a_write_and_a_sync() {
    let memory = MemoryStorage::new();
    let plan = FaultPlan::new();
    let storage = FaultStorage::new(Arc::new(memory.clone()), plan.clone());
    let file = storage.open("/f".as_ref(), CREATE).unwrap();
    file.write_at(b"old", 0).unwrap();
    file.sync_data().unwrap();
    storage.sync_dir("/".as_ref()).unwrap();
    let left = |mode| crate::io::read_file(&memory.crash_with(mode, 1), "/f".as_ref()).unwrap();
    use crate::io::CrashMode::{Kept, Lost};
    for (class, kept) in [(CallClass::Write, b"old"), (CallClass::Sync, b"new")] {
        plan.add(FaultRule::once(class, 1, Fault::Error));
        assert!(file.write_durable_at(b"new", 0).is_err());
        assert_eq!((left(Lost), left(Kept)), (b"old".to_vec(), kept.to_vec()));
    }
    file.write_durable_at(b"newer", 0).unwrap();
    assert_eq!(left(Lost), b"newer");
    assert_eq!((plan.calls(CallClass::Write), plan.calls(CallClass::Sync)), (4, 3));
}

#[test]
fn a_rule_may_watch_some_files_only_or_every_call() {
    let (plan, storage) = setup();
    plan.add(FaultRule::once(CallClass::Write, 1, Fault::Error).on("log"));
    let (data, log) = (storage.open("/data".as_ref(), CREATE).unwrap(), storage.open("/log".as_ref(), CREATE).unwrap());
    data.write_at(b"x", 0).unwrap();
    assert!(log.write_at(b"x", 0).is_err());
    plan.clear();
    plan.add(FaultRule::once(CallClass::Lock, 3, Fault::Error).any_call());
    data.len().unwrap();
    data.write_at(b"x", 0).unwrap();
    assert!(data.sync_data().is_err());
    data.sync_data().unwrap();
}

#[test]
fn a_bad_sector_fails_the_reads_that_touch_it_and_no_write() {
    let (plan, storage) = setup();
    let file = storage.open("/f".as_ref(), CREATE).unwrap();
    file.write_at(&[7; 3 * 4096], 0).unwrap();
    plan.add(FaultRule::unreadable(4096..4608).on("f"));
    let read = |offset, bytes| file.read_at(&mut vec![0; bytes], offset);
    for _ in 0..2 {
        assert!(read(0, 4096).is_ok() && read(4608, 100).is_ok());
        for (offset, bytes) in [(0, 4097), (4096, 1), (4500, 4096), (0, 3 * 4096)] {
            let error = read(offset, bytes).unwrap_err();
            assert!(crate::io::is_lost(&error) && error.message().contains(&format!("offset={offset}")), "{error}");
        }
    }
    file.write_at(&[8; 4096], 4096).unwrap();
    plan.add(FaultRule::once(CallClass::Read, 1, Fault::NoMemory));
    assert!(!crate::io::is_lost(&read(0, 1).unwrap_err()));
}

#[test]
fn a_short_write_leaves_half() {
    let (plan, storage) = setup();
    let file = storage.open("/f".as_ref(), CREATE).unwrap();
    plan.add(FaultRule::once(CallClass::Write, 1, Fault::ShortWrite));
    assert!(file.write_at(&[7; 4 * 4096], 0).is_err());
    assert_eq!(file.len().unwrap(), 2 * 4096);
}

#[test]
fn a_flipped_bit_is_reported_as_success() {
    let (plan, storage) = setup();
    let file = storage.open("/f".as_ref(), CREATE).unwrap();
    plan.add(FaultRule::once(CallClass::Write, 1, Fault::BitFlip));
    file.write_at(&[0; 100], 0).unwrap();
    let mut buf = [0; 100];
    file.read_at(&mut buf, 0).unwrap();
    let ones = |buf: &[u8]| buf.iter().map(|byte| byte.count_ones()).sum::<u32>();
    assert_eq!(ones(&buf), 1);
    plan.add(FaultRule::once(CallClass::Read, 1, Fault::BitFlip));
    let mut again = [0; 100];
    file.read_at(&mut again, 0).unwrap();
    let differing: Vec<u8> = buf.iter().zip(&again).map(|(a, b)| a ^ b).collect();
    assert_eq!(ones(&differing), 1);
    plan.add(FaultRule::once(CallClass::Sync, 1, Fault::BitFlip));
    assert!(file.sync_data().is_err(), "there is no data in which to flip a bit");
}

#[test]
fn flips_are_spread_over_all_of_a_read_by_the_seed() {
    let storage = MemoryStorage::new();
    let file = storage.open("/f".as_ref(), CREATE).unwrap();
    file.write_at(&[0; 4096], 0).unwrap();
    let flipped = |seed: u64| {
        let plan = FaultPlan::seeded(seed);
        plan.add(FaultRule::from(CallClass::Read, 1, Fault::BitFlip));
        let file = FaultStorage::new(Arc::new(storage.clone()), plan).open("/f".as_ref(), CREATE).unwrap();
        [(); 2].map(|()| {
            let mut buf = [0; 4096];
            file.read_at(&mut buf, 0).unwrap();
            buf.iter().position(|byte| *byte != 0).map(|byte| (byte, buf[byte])).unwrap()
        })
    };
    let places: Vec<[(usize, u8); 2]> = (0..200).map(flipped).collect();
    assert_eq!(places, (0..200).map(flipped).collect::<Vec<_>>(), "a seed is a history");
    for draw in 0..2 {
        let quarters = (0..4).map(|quarter| places.iter().filter(|place| place[draw].0 / 1024 == quarter).count());
        assert!(quarters.clone().all(|count| count > 25), "{:?}", quarters.collect::<Vec<_>>());
        let bits = (0..8).map(|bit| places.iter().filter(|place| place[draw].1 == 1 << bit).count());
        assert!(bits.clone().all(|count| count > 8), "{:?}", bits.collect::<Vec<_>>());
    }
}

#[test]
fn latency_delays_and_succeeds() {
    let (plan, storage) = setup();
    plan.add(FaultRule::once(CallClass::Names, 1, Fault::Latency(Duration::from_millis(20))));
    let start = std::time::Instant::now();
    storage.create_dir_all("/d".as_ref()).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_held_call_waits_to_be_let_go() {
    let (plan, storage) = setup();
    plan.add(FaultRule::from(CallClass::Names, 1, Fault::Hold));
    for dir in ["/d", "/e"] {
        std::thread::scope(|scope| {
            let made = scope.spawn(|| storage.create_dir_all(dir.as_ref()));
            let held = plan.wait_held();
            assert!(!made.is_finished() && !storage.exists(dir.as_ref()).unwrap());
            drop(held);
            made.join().unwrap().unwrap();
        });
        assert!(storage.exists(dir.as_ref()).unwrap());
    }
}

#[test]
fn every_class_of_call_can_fail() {
    for class in CallClass::ALL {
        let (plan, storage) = setup();
        let file = storage.open("/f".as_ref(), CREATE).unwrap();
        plan.add(FaultRule::from(class, 1, Fault::Error));
        let dir = Path::new("/");
        let results = [
            storage.open("/f".as_ref(), CREATE).map(drop),
            file.read_at(&mut [], 0),
            file.write_at(b"x", 0),
            file.sync_data(),
            file.set_len(1),
            file.allocate(0, 1).map(drop),
            file.punch(0, 1),
            storage.rename("/f".as_ref(), "/g".as_ref()),
            storage.sync_dir(dir),
            storage.exists(dir).map(drop),
            storage.lock("/l".as_ref()).map(drop),
        ];
        let failed: Vec<usize> = (0..results.len()).filter(|index| results[*index].is_err()).collect();
        assert_eq!(failed, [class as usize]);
        let other = [
            (CallClass::Names, storage.remove("/none".as_ref()).is_err()),
            (CallClass::Query, storage.list(dir).is_err() && storage.free_bytes(dir).is_err() && file.len().is_err()),
        ];
        assert!(other.iter().all(|(of, failed)| *failed || *of != class));
    }
}
