//! The log: reserving, copying, group commit, rotation.

use std::path::Path;
use std::sync::Arc;

use shuttle::thread;

use super::{below, explore};
use crate::base::clock::Clock;
use crate::base::memory::MemoryBudget;
use crate::base::sync::{Mutex, RwLock};
use crate::base::{ErrorKind, Lsn, Result};
use crate::io::{CallClass, CrashMode, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};
use crate::log::{Log, LogOptions, LogReader};

const DIRECTORY: &str = "/log";
const RING: usize = 4096;

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 16 << 10,
        buffer_bytes: RING,
        unsynced_bytes_max: 8 << 10,
        fill_bytes: 4 << 10,
        clock: Clock::manual(),
        processors: 1,
        ..LogOptions::new([1; 16], &MemoryBudget::new(1 << 20))
    }
}

fn create(storage: Arc<dyn Storage>) -> Arc<Log> {
    Arc::new(Log::create(storage, Path::new(DIRECTORY), options(), Lsn(0)).expect("create"))
}

fn records(storage: &dyn Storage) -> Result<Vec<(Lsn, Vec<u8>)>> {
    let mut reader = LogReader::open(storage, Path::new(DIRECTORY), &options(), Lsn(0))?;
    let mut records = Vec::new();
    while let Some(mut batch) = reader.next_batch()? {
        while let Some((lsn, record)) = batch.next()? {
            records.push((lsn, record.to_vec()));
        }
    }
    Ok(records)
}

/// Three threads append, and wait or not; another rotates. What was waited for survives the loss of all that was not
/// synced, and the log is whole.
fn history() {
    let memory = MemoryStorage::new();
    let log = create(Arc::new(memory.clone()));
    let (gate, appended) = (Arc::new(RwLock::new(())), Arc::new(Mutex::new(Vec::new())));
    let mut threads: Vec<_> = (0..3u8)
        .map(|writer| {
            let (log, gate, appended, memory) = (log.clone(), gate.clone(), appended.clone(), memory.clone());
            thread::spawn(move || {
                for number in 0..2u8 {
                    // The third is the longest that goes through the ring, which so fills; the last does not go through it.
                    let record = vec![16 * (writer + 1) + number; [24, 300, 1000, 3000][below(4)]];
                    let shared = gate.read();
                    let at = log.append(&record).expect("append");
                    drop(shared);
                    appended.lock().push((at.lsn, record.clone()));
                    if below(3) == 0 {
                        log.wait_written(at.end).expect("written");
                    } else if below(3) > 0 {
                        log.wait_durable(at.end).expect("durable");
                        assert!(log.durable_lsn() >= at.end);
                        let survivors = records(&memory.crash_with(CrashMode::Lost, 1)).expect("readable");
                        assert!(survivors.contains(&(at.lsn, record)), "a durable record is lost, lsn={}", at.lsn);
                    }
                }
            })
        })
        .collect();
    let (other, gate) = (log.clone(), gate.clone());
    threads.push(thread::spawn(move || {
        for _ in 0..2 {
            other.prepare_step().expect("prepare");
        }
        let exclusive = gate.write();
        assert_eq!(other.rotate(false).expect("rotate"), other.end_lsn());
        drop(exclusive);
        other.prepare_step().expect("prepare");
    }));
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    log.sync().expect("sync");
    let mut appended = std::mem::take(&mut *appended.lock());
    appended.sort();
    assert_eq!(records(&memory.crash_with(CrashMode::Lost, 1)).expect("readable"), appended);
}

#[test]
fn what_was_waited_for_is_durable_and_the_log_is_whole() {
    explore(3, history);
}

/// One thread syncs while another writes, begins the next segment and syncs there: what lies below is durable, too.
fn rotation_beside_a_sync() {
    let memory = MemoryStorage::new();
    let log = create(Arc::new(memory.clone()));
    let other = log.clone();
    let syncer = thread::spawn(move || {
        let at = other.append(&[1; 40]).expect("append");
        other.wait_durable(at.end).expect("durable");
    });
    let before = log.append(&[2; 40]).expect("append");
    log.wait_written(before.end).expect("written");
    // The other thread may have appended on either side; the gate is not needed to begin a segment.
    log.rotate(false).expect("rotate");
    let after = log.append(&[3; 40]).expect("append");
    log.wait_durable(after.end).expect("durable");
    let survivors = records(&memory.crash_with(CrashMode::Lost, 1)).expect("readable");
    for (at, byte) in [(before, 2), (after, 3)] {
        assert!(survivors.contains(&(at.lsn, vec![byte; 40])), "a durable record is lost, lsn={}", at.lsn);
    }
    syncer.join().expect("no panic");
}

#[test]
fn a_segment_left_during_its_sync_is_synced_again() {
    explore(1, rotation_beside_a_sync);
}

/// One sync fails while others wait for it or for the next: nobody is told of success, and nobody waits for ever.
fn failing_sync() {
    let memory = MemoryStorage::new();
    let plan = FaultPlan::new();
    let log = create(Arc::new(FaultStorage::new(Arc::new(memory.clone()), plan.clone())));
    // Each record may take one; a new one is synced by itself, and its failure poisons nothing.
    (0..3).for_each(|_| log.prepare_small(8 << 10).expect("prepare"));
    let fails = 1 + below(2) as u64;
    plan.add(FaultRule::once(CallClass::Sync, fails, Fault::Error).on("log"));
    let synced = plan.calls(CallClass::Sync);
    let threads: Vec<_> = (0..3u8)
        .map(|writer| {
            let (log, memory) = (log.clone(), memory.clone());
            thread::spawn(move || {
                // One that does not go through the ring is synced by whom it is written by.
                let record = vec![writer + 1; [100, 3000][below(2)]];
                let Ok(at) = log.append(&record) else { return false };
                if log.wait_durable(at.end).is_err() {
                    return false;
                }
                let survivors = records(&memory.crash_with(CrashMode::Lost, 1)).expect("readable");
                assert!(survivors.contains(&(at.lsn, record)), "told of success after a failed sync");
                true
            })
        })
        .collect();
    let told: Vec<bool> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    assert!(log.poisoned().is_some() || told.iter().all(|success| *success), "{told:?}");
    // The system reports a lost write to one sync only: a later one must not be asked.
    let synced = plan.calls(CallClass::Sync) - synced;
    assert!(plan.fired() == 0 || synced == fails, "synced again after a failed sync, syncs={synced} failed={fails}");
}

#[test]
fn a_failed_sync_fails_everybody_who_waits_for_it() {
    explore(1, failing_sync);
}

/// Threads wait for the write alone, another for the sync. Who is woken to write for others may find that the one that syncs
/// has done it: they still have to be woken.
fn writes_beside_a_sync() {
    let log = create(Arc::new(MemoryStorage::new()));
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let log = log.clone();
            thread::spawn(move || {
                let at = log.append(&[1; 100]).expect("append");
                if number == 0 { log.wait_durable(at.end) } else { log.wait_written(at.end) }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic").expect("written"));
}

#[test]
fn nobody_waits_for_a_write_that_a_sync_has_made() {
    explore(1, writes_beside_a_sync);
}

/// Who gathers for the next sync may find that a writer has made one, of what was written and not waited for: those who waited for it to
/// lead still have to be woken.
fn writes_beside_a_gathering() {
    let log = create(Arc::new(MemoryStorage::new()));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let log = log.clone();
            thread::spawn(move || {
                (0..4).try_for_each(|_| {
                    let at = log.append(&[1; 3000][..[100, 3000][below(2)]])?;
                    if below(3) == 0 { log.wait_written(at.end) } else { log.wait_durable(at.end) }
                })
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic").expect("durable"));
}

#[test]
fn nobody_waits_for_who_gathered_and_need_not_lead() {
    explore(1, writes_beside_a_gathering);
}

/// Threads append when there is room for one of them, and no more space. Each of the others is told so before its record has a
/// place in the log, which goes on.
fn full_disk() {
    let memory = MemoryStorage::new();
    let log = create(Arc::new(memory.clone()));
    memory.set_capacity(memory.occupied_bytes());
    let record = |byte: u8| vec![byte; 1000];
    let mut count = 0;
    while count == 0 || log.has_room_for(2 * 1000) {
        log.append(&record(1)).and_then(|_| log.sync()).expect("append");
        count += 1;
    }
    let threads: Vec<_> = (0..12u8)
        .map(|writer| {
            let log = log.clone();
            thread::spawn(move || log.append(&record(writer + 2)).map(drop))
        })
        .collect();
    let told: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    log.sync().expect("what was appended finds its space");
    count += told.iter().filter(|told| told.is_ok()).count();
    assert!(
        told.iter().filter_map(|told| told.as_ref().err()).all(|error| error.kind() == ErrorKind::NoSpace),
        "{told:?}"
    );
    assert_eq!(records(&memory.crash_with(CrashMode::Lost, 1)).expect("readable").len(), count);
}

#[test]
fn a_full_disk_is_told_to_each_thread_before_its_record_is_appended() {
    explore(1, full_disk);
}

/// Threads find no room in the present segment, and none prepared.
fn next_segment() {
    let memory = MemoryStorage::new();
    let log = create(Arc::new(memory.clone()));
    log.append(&[1; 1000]).expect("append");
    log.sync().expect("sync");
    while log.has_room_for(1000) {
        log.append(&[1; 1000]).expect("append");
    }
    log.sync().expect("sync");
    let segments = memory.files().len();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let log = log.clone();
            thread::spawn(move || log.append(&[2; 1000]).map(drop))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic").expect("append"));
    assert_eq!(memory.files().len(), segments + 1, "one segment for all");
}

#[test]
fn threads_that_lack_a_segment_prepare_one_together() {
    explore(1, next_segment);
}
