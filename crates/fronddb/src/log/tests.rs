//! The log on the simulated disk: crashes, damage, failing calls, threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::base::clock::Clock;
use crate::base::memory::MemoryBudget;
use crate::base::random::Random;
use crate::base::sync::RwLock;
use crate::io::{CallClass, Event, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, OpenMode, TraceStorage};

mod compression;
mod files;
mod waiters;

const RING: usize = 16 << 10;
const SEGMENT: u64 = 64 << 10;

fn dir() -> PathBuf {
    PathBuf::from("/db/log")
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: SEGMENT,
        buffer_bytes: RING,
        unsynced_bytes_max: 8 << 10,
        fill_bytes: 4 << 10,
        compress_bytes_min: 2000,
        clock: Clock::manual(),
        ..LogOptions::new([1; 16], &MemoryBudget::new(1 << 30))
    }
}

/// A record with a mark in front: mostly short, at times larger than the ring, at times compressible.
fn record(random: &mut Random, mark: u64) -> Vec<u8> {
    let bytes = match random.below(40) {
        0 => 1 + random.below(3 * SEGMENT),
        1..5 => 1 + random.below(RING as u64),
        _ => 1 + random.below(200),
    };
    let mut record = mark.to_le_bytes().to_vec();
    let same = random.below(2) == 0;
    record.extend((0..bytes).map(|byte| if same { (byte / 50) as u8 } else { random.next() as u8 }));
    record
}

type Records = Vec<(Lsn, Vec<u8>)>;

fn read_from(storage: &dyn Storage, from: Lsn) -> Result<(Records, LogTail)> {
    let mut reader = LogReader::open(storage, &dir(), &options(), from)?;
    let mut records = Vec::new();
    while let Some(mut batch) = reader.next_batch()? {
        while let Some((lsn, record)) = batch.next()? {
            records.push((lsn, record.to_vec()));
        }
    }
    Ok((records, reader.finish()?))
}

fn create(storage: &Arc<dyn Storage>) -> Result<Log> {
    Log::create(Arc::clone(storage), &dir(), options(), Lsn(0))
}

fn create_in(storage: &Arc<dyn Storage>, dir: &str) -> Log {
    Log::create(Arc::clone(storage), Path::new(dir), options(), Lsn(0)).expect("create")
}

fn memory() -> (MemoryStorage, Arc<dyn Storage>) {
    let memory = MemoryStorage::new();
    (memory.clone(), Arc::new(memory))
}

/// What a test knows about a log: everything appended, and from where on it must still be there.
#[derive(Default)]
struct Expected {
    records: Vec<(Appended, Vec<u8>)>,
    released: Lsn,
    durable: Lsn,
    /// Its creation was seen to succeed.
    is_created: bool,
}

impl Expected {
    /// Compares with what a restart finds, forgets what was lost, and returns where the log ends.
    fn check(&mut self, storage: &dyn Storage) -> LogTail {
        let (found, tail) = read_from(storage, self.released).expect("a log after a crash is never damaged");
        let mut expected = self.records.iter().filter(|(at, _)| at.lsn >= self.released);
        for (lsn, record) in &found {
            let (at, wanted) = expected.next().expect("no record that was not appended");
            assert_eq!(at.lsn, *lsn, "a prefix");
            assert!(wanted == record, "a record as it was, lsn={lsn}");
        }
        if let Some((at, _)) = expected.next() {
            assert!(at.end > self.durable, "acknowledged and lost: {at:?} durable={}", self.durable);
        }
        let end = tail.end();
        assert!(end >= self.durable.max(self.released));
        self.records.retain(|(at, _)| at.lsn < end);
        self.durable = end;
        tail
    }
}

/// Random use of a log; returns at the first error.
fn use_log(log: &Log, random: &mut Random, steps: u64, expected: &mut Expected) -> Result<()> {
    let mut boundaries = Vec::new();
    for _ in 0..steps {
        match random.below(30) {
            0 => boundaries.push(log.rotate(false)?),
            1 => {
                if let Some(boundary) = boundaries.pop() {
                    // As after a publication, which syncs what it makes superfluous.
                    expected.durable = expected.durable.max(log.sync()?);
                    expected.released = expected.released.max(boundary);
                    log.release(boundary)?;
                }
            }
            2 | 3 => {
                log.prepare_step()?;
            }
            4 => {
                log.wait_written(log.end_lsn())?;
            }
            5..8 => {
                let end = log.sync()?;
                assert!(log.durable_lsn() >= end);
                expected.durable = expected.durable.max(end);
            }
            _ => {
                let record = record(random, expected.records.len() as u64);
                let before = log.end_lsn();
                let appended = log.append(&record);
                // What a poisoned log was about to write may be found again; it was not acknowledged.
                let at = appended.clone().unwrap_or(Appended { lsn: before, end: Lsn(u64::MAX) });
                assert_eq!(at.lsn, before);
                expected.records.push((at, record));
                appended?;
                expected.durable = expected.durable.max(log.durable_lsn());
            }
        }
    }
    Ok(())
}

#[test]
fn what_was_durable_before_a_crash_is_there_after_it_and_nothing_stale_is() {
    let seeds = std::env::var("FROND_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(150);
    for seed in 0..seeds {
        let mut random = Random(seed);
        let (mut memory, mut storage) = memory();
        let mut expected = Expected::default();
        let mut log = create(&storage).expect("create");
        for _ in 0..5 {
            let steps = random.below(120);
            use_log(&log, &mut random, steps, &mut expected).expect("no failures here");
            drop(log);
            // A crash of the process keeps what was written, one of the machine what was synced.
            if random.below(4) > 0 {
                memory = memory.crash(random.next());
                storage = Arc::new(memory.clone());
            }
            let tail = expected.check(&*storage);
            if random.below(4) == 0 {
                // A crash while recovering.
                drop(Log::open(Arc::clone(&storage), &dir(), options(), tail).expect("open"));
                memory = memory.crash(random.next());
                storage = Arc::new(memory.clone());
                let tail = expected.check(&*storage);
                log = Log::open(Arc::clone(&storage), &dir(), options(), tail).expect("open");
            } else {
                log = Log::open(Arc::clone(&storage), &dir(), options(), tail).expect("open");
            }
        }
    }
}

#[test]
fn every_failing_call_is_a_typed_error_that_loses_nothing_acknowledged() {
    let script = |storage: &Arc<dyn Storage>, expected: &mut Expected| -> Result<()> {
        let log = create(storage)?;
        expected.is_created = true;
        let mut random = Random(11);
        let result = use_log(&log, &mut random, 150, expected);
        if let Some(cause) = log.poisoned() {
            assert_eq!(cause.kind(), ErrorKind::Poisoned);
            for result in [
                log.append(b"x").map(drop),
                log.rotate(false).map(drop),
                log.release(Lsn(0)),
                log.prepare_step().map(drop),
                log.wait_durable(Lsn(log.end_lsn().0 + 8)),
            ] {
                let error = result.expect_err("poisoned");
                assert_eq!((error.kind(), error.message()), (ErrorKind::Poisoned, cause.message()));
            }
        }
        drop(log);
        result
    };
    let classes =
        [CallClass::Write, CallClass::Sync, CallClass::Allocate, CallClass::Names, CallClass::SyncDir, CallClass::Open];
    for class in classes {
        for fault in [Fault::Error, Fault::ShortWrite] {
            for nth in 1.. {
                let memory = MemoryStorage::new();
                let plan = FaultPlan::new();
                plan.add(FaultRule::once(class, nth, fault));
                let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(Arc::new(memory.clone()), plan));
                let mut expected = Expected::default();
                let result = script(&storage, &mut expected);
                let Err(error) = result else { break };
                assert!(matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Io), "{error}");
                // Nothing is in a segment yet that is only prepared.
                let is_preparing = error.to_string().contains("prepare log segment");
                if matches!(class, CallClass::Write | CallClass::Sync) && nth > 1 && !is_preparing {
                    assert_eq!(error.kind(), ErrorKind::Poisoned, "{class:?} {nth}: {error}");
                }
                if !expected.is_created {
                    continue;
                }
                for seed in 0..3 {
                    let after = memory.crash(seed);
                    let records = expected.records.clone();
                    let mut copy = Expected { records, ..expected };
                    let tail = copy.check(&after);
                    let log = Log::open(Arc::new(after.clone()), &dir(), options(), tail).expect("opens again");
                    let at = log.append(b"goes on").expect("append");
                    log.wait_durable(at.end).expect("durable");
                    copy.records.push((at, b"goes on".to_vec()));
                    copy.durable = at.end;
                    copy.check(&after.crash(seed));
                }
            }
        }
    }
}

/// The offset in its file of a position, in a log of one opening.
fn place(storage: &dyn Storage, at: Lsn) -> (PathBuf, u64) {
    let reader = LogReader::open(storage, &dir(), &options(), at).expect("reader");
    let tail_of = reader;
    let (path, start) = tail_of.first_segment().expect("segment");
    (path, segment::HEADER_BYTES + (at.0 - start))
}

/// Of each frame: its position, the one after it, up to where the log was durable.
type Frames = Vec<(u64, u64, u64)>;

/// A segment's header and frames.
fn frames(storage: &dyn Storage, name: &str) -> Option<(segment::Header, Frames)> {
    let number = segment::number_of(name)?;
    let bytes = crate::io::read_file(storage, &segment::path_of(&dir(), number)).expect("segment");
    let header = segment::Header::decode(&bytes, number, &[1; 16]).expect("header")?;
    let (mut frames, mut at) = (Vec::new(), header.start);
    while let Some(rest) = bytes.get((segment::HEADER_BYTES + at - header.start) as usize..)
        && let Some(frame) = Header::decode(rest, at, header.epoch)
    {
        let end = at + frame::frame_bytes(frame.stored);
        frames.push((at, end, frame.durable));
        at = end;
    }
    Some((header, frames))
}

#[test]
fn no_frame_lies_further_above_what_was_durable_than_the_window_says() {
    let (_, storage) = memory();
    let log = create(&storage).expect("create");
    let mut random = Random(11);
    for number in 0..3000 {
        let bytes = 1 + random.below((RING / RING_SHARE - frame::HEADER_BYTES) as u64);
        let at = log.append(&vec![number as u8 | 1; bytes as usize]).expect("append");
        match random.below(40) {
            0 => log.wait_durable(at.end).expect("durable"),
            1..4 => log.wait_written(at.end).expect("written"),
            _ => {}
        }
    }
    log.sync().expect("sync");
    let (mut farthest, mut count, mut window) = (0, 0, 0);
    for name in storage.list(&dir()).expect("list") {
        let Some((header, frames)) = frames(&*storage, &name) else { continue };
        window = header.window;
        count += frames.len();
        farthest = frames.iter().map(|(_, end, durable)| end - durable).fold(farthest, u64::max);
    }
    assert_eq!(count, 3000);
    assert!(farthest + log.ring_frame_max <= window, "farthest={farthest} window={window}");
    // And it is not much more than that: a restart looks through all of it.
    assert!(2 * farthest > window, "farthest={farthest} window={window}");
}

/// Bytes that are read to find the end of the log, and the end.
fn bytes_read(memory: &MemoryStorage) -> (u64, Lsn) {
    let traced = TraceStorage::new(memory);
    let (_, tail) = read_from(&traced, Lsn(0)).expect("read");
    let read = |event: &Event| if let Event::Read { bytes, .. } = event { *bytes as u64 } else { 0 };
    (traced.events().iter().map(read).sum(), tail.end())
}

#[test]
fn behind_a_log_that_was_ended_nothing_is_read_and_behind_one_that_was_not_a_window() {
    let (memory, storage) = memory();
    let options = LogOptions { segment_bytes: 16 << 20, ..options() };
    let log = Log::create(Arc::clone(&storage), &dir(), options.clone(), Lsn(0)).expect("create");
    log.append(b"first").expect("append");
    log.sync().expect("sync");
    let (read, end) = bytes_read(&memory);
    assert_eq!(end, log.end_lsn());
    // Twice the reader's piece: with the record, and once more from its end on.
    assert!(read < (2 << 20) + log.window() + (64 << 10), "read={read}");
    drop(log);
    for opening in 0..4 {
        let tail = read_from(&*storage, Lsn(0)).expect("read").1;
        let log = Log::open(Arc::clone(&storage), &dir(), options.clone(), tail).expect("open");
        // At first the end of an earlier opening is what is cut off.
        for number in 0..opening {
            log.append(&vec![1; 1 + 3000 * number]).expect("append");
        }
        log.end().expect("end");
        let (read, end) = bytes_read(&memory);
        assert_eq!(end, log.end_lsn(), "every record is there");
        // Of each opening a header, the pages of its records and the last one again; the headers of prepared segments.
        let most = 4096 * (6 + 2 * opening as u64) + 2 * log.live_bytes();
        assert!(read <= most, "opening={opening} read={read} most={most}");
    }
}

#[test]
fn damage_below_what_a_later_record_calls_durable_is_named() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    let mut random = Random(5);
    let mut all = Vec::new();
    while log.live_bytes() < 3 * SEGMENT {
        let record = record(&mut random, all.len() as u64);
        let at = log.append(&record).expect("append");
        log.wait_durable(at.end).expect("durable");
        all.push((at, record));
    }
    drop(log);
    let last = all.len() - 1;
    for (index, (at, record)) in all.iter().enumerate() {
        let (path, offset) = place(&*storage, at.lsn);
        let stored = at.end.0 - at.lsn.0;
        let inside = if record.len() < 2000 { 16 + record.len() as u64 } else { stored - 8 };
        for byte in [0, 5, 9, 15, 16, random.below(inside), inside - 1] {
            let damaged = memory.snapshot();
            damaged.flip_bit(&path, offset + byte, (byte % 8) as u8).expect("flip");
            let result = read_from(&damaged, Lsn(0));
            if index == last {
                assert_eq!(result.expect("nothing vouches for the last record").1.end(), at.lsn);
                continue;
            }
            let error = result.expect_err("damage");
            assert_eq!(error.kind(), ErrorKind::Corruption);
            let name = path.display().to_string();
            assert!(
                error.message().contains(&name) && error.message().contains(&format!("offset={offset} ")),
                "{error}"
            );
        }
        let zeroed = memory.snapshot();
        zeroed.overwrite(&path, offset / 4096 * 4096, &[0; 4096]).expect("zero");
        assert_eq!(
            read_from(&zeroed, at.lsn).is_err(),
            all[last].0.lsn.0 / 4096 != at.lsn.0 / 4096 || {
                // The zeroed page may hold the last record too, when both lie in one page of one segment.
                let (last_path, last_offset) = place(&*storage, all[last].0.lsn);
                (last_path, last_offset / 4096) != (path.clone(), offset / 4096)
            }
        );
    }
}

#[test]
fn a_missing_damaged_foreign_or_newer_segment_is_refused() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    let mut starts = Vec::new();
    for _ in 0..4 {
        log.append(&[7; 1000]).expect("append");
        log.sync().expect("sync");
        starts.push(log.rotate(false).expect("rotate"));
    }
    log.append(b"last").expect("append");
    log.sync().expect("sync");
    let kind = |storage: &dyn Storage| read_from(storage, Lsn(0)).map(drop).expect_err("refused").kind();
    for number in 1..=4 {
        let without = memory.snapshot();
        without.remove(&segment::path_of(&dir(), number)).expect("remove");
        assert_eq!(kind(&without), ErrorKind::Corruption);
    }
    for number in 1..=5 {
        let damaged = memory.snapshot();
        damaged.flip_bit(&segment::path_of(&dir(), number), 50, 3).expect("flip");
        assert_eq!(kind(&damaged), ErrorKind::Corruption);
    }
    let other = LogOptions { uuid: [2; 16], ..options() };
    let error = LogReader::open(&*storage, &dir(), &other, Lsn(0)).map(drop).expect_err("foreign");
    assert!(error.message().contains("another database"));
    assert_eq!(create(&storage).map(drop).expect_err("exists").kind(), ErrorKind::InvalidArgument);
    let error = log.wait_durable(Lsn(log.end_lsn().0 + 8)).expect_err("not appended");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    // A restart from the newest root leaves the segments of an older one alone until they are released.
    let copy: Arc<dyn Storage> = Arc::new(memory.snapshot());
    let tail = read_from(&*copy, starts[2]).expect("read").1;
    let again = Log::open(Arc::clone(&copy), &dir(), options(), tail).expect("open");
    again.append(b"of the new opening").expect("append");
    again.sync().expect("sync");
    assert_eq!(read_from(&*copy, starts[0]).expect("older").0.len(), 5);
    again.release(starts[1]).expect("release");
    assert_eq!(read_from(&*copy, starts[0]).map(drop).expect_err("released").kind(), ErrorKind::Corruption);
    assert_eq!(read_from(&*copy, starts[1]).expect("kept").0.len(), 4);
    for start in starts {
        let (records, tail) = read_from(&*storage, start).expect("from a boundary on");
        assert!(records.iter().all(|(lsn, _)| *lsn >= start) && !records.is_empty());
        assert_eq!(tail.end(), log.end_lsn());
    }
}

#[test]
fn released_segments_are_written_again_and_the_directory_stays_small() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    let mut released = Lsn(0);
    for round in 0..200u64 {
        for _ in 0..20 {
            log.append(&round.to_le_bytes().repeat(100)).expect("append");
        }
        log.sync().expect("sync");
        while log.prepare_step().expect("prepare") {}
        let boundary = log.rotate(false).expect("rotate");
        log.release(released).expect("release");
        released = boundary;
        let (records, _) = read_from(&*storage, Lsn(boundary.0 - 20 * 816)).expect("read");
        assert!(records.len() == 20 && records.iter().all(|(_, record)| *record == round.to_le_bytes().repeat(100)));
    }
    assert!(memory.files().len() <= 6, "{:?}", memory.files());
    assert!(log.live_bytes() < 4 * 20 * 816);
    let (records, _) = read_from(&*storage, released).expect("read");
    assert!(records.is_empty());
}

#[test]
fn what_a_crash_left_beyond_the_end_never_passes_although_positions_are_given_out_again() {
    let (memory, storage) = memory();
    let plain = || LogOptions { codec: Codec::None, ..options() };
    let log = Log::create(Arc::clone(&storage), &dir(), plain(), Lsn(0)).expect("create");
    log.append(b"first").expect("append");
    log.sync().expect("sync");
    let boundary = log.rotate(false).expect("rotate");
    // Frames of one page each.
    let record = |text: &[u8]| text.repeat(510);
    for _ in 0..10 {
        log.append(&record(b"obsolete")).expect("append");
    }
    log.wait_written(log.end_lsn()).expect("written");
    drop(log);
    // A legal image: the records of the second segment reached the disk, its header did not.
    let path = segment::path_of(&dir(), 2);
    memory.overwrite(&path, 0, &[0; 4096]).expect("overwrite");
    let obsolete = crate::io::read_file(&memory, &path).expect("read");
    let (records, tail) = read_from(&*storage, Lsn(0)).expect("read");
    assert_eq!((records.len(), tail.end()), (1, boundary));
    let log = Log::open(Arc::clone(&storage), &dir(), plain(), tail).expect("open");
    let at = log.append(&record(b"new life")).expect("append");
    assert_eq!((at.lsn, at.end), (boundary, Lsn(boundary.0 + 4096)));
    log.wait_written(at.end).expect("written");
    drop(log);
    // Another: the new record reached the disk, the zeros written after it did not.
    memory.overwrite(&segment::path_of(&dir(), 3), 8192, &obsolete[8192..]).expect("overwrite");
    let (records, tail) = read_from(&*storage, Lsn(0)).expect("read");
    assert_eq!((records.len(), tail.end()), (2, at.end));
    assert!(records[1].1 == record(b"new life"));
}

#[test]
fn records_larger_than_the_ring_and_than_a_segment_are_read_back() {
    let (_, storage) = memory();
    let log = create(&storage).expect("create");
    let mut random = Random(3);
    let mut all = Vec::new();
    for bytes in [
        1,
        RING / 4 - 16,
        RING / 4 - 15,
        RING / 4,
        RING,
        RING + 1,
        SEGMENT as usize,
        5 * SEGMENT as usize,
        9,
        70 << 20,
        10,
    ] {
        let record: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(bytes).collect();
        all.push((log.append(&record).expect("append").lsn, record));
    }
    all.push((log.append(&vec![5; 80 << 20]).expect("compressible").lsn, vec![5; 80 << 20]));
    log.sync().expect("sync");
    let (records, _) = read_from(&*storage, Lsn(0)).expect("read");
    assert!(records == all);
    assert_eq!(log.append(&[]).expect_err("empty").kind(), ErrorKind::InvalidArgument);
    assert_eq!(log.append(&vec![0; RECORD_BYTES_MAX + 1]).expect_err("too long").kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_full_disk_refuses_records_before_they_are_appended_and_goes_on_when_there_is_space() {
    fill_the_disk(&memory());
}

#[test]
fn where_space_cannot_be_reserved_it_is_written_before_records_need_it() {
    let disk = memory();
    disk.0.refuse_allocate();
    fill_the_disk(&disk);
    // A record that is larger than a segment, of which the disk has no more than a part.
    let (memory, storage) = disk;
    let log = create_in(&storage, "/db/other");
    log.append(b"first").expect("append");
    log.sync().expect("sync");
    memory.set_capacity(memory.occupied_bytes() + SEGMENT);
    let mut random = Random(2);
    let large: Vec<u8> = (0..3 * SEGMENT).map(|_| random.next() as u8).collect();
    assert_eq!(log.append(&large).expect_err("full").kind(), ErrorKind::NoSpace);
    memory.set_capacity(u64::MAX);
    log.append(&large).expect("append");
    log.sync().expect("sync");
}

fn fill_the_disk((memory, storage): &(MemoryStorage, Arc<dyn Storage>)) {
    let log = create(storage).expect("create");
    memory.set_capacity(memory.occupied_bytes() + 2 * SEGMENT);
    let mut all = Vec::new();
    let error = loop {
        match log.append(&(all.len() as u64).to_le_bytes().repeat(50)) {
            Ok(at) => all.push(at.lsn),
            Err(error) => break error,
        }
        log.sync().expect("what was appended finds its space");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(all.len() > 100 && log.poisoned().is_none());
    let mut random = Random(1);
    let random: Vec<u8> = (0..SEGMENT).map(|_| random.next() as u8).collect();
    assert_eq!(log.append(&random).expect_err("full").kind(), ErrorKind::NoSpace);
    assert_eq!(log.prepare_step().expect_err("full").kind(), ErrorKind::NoSpace);
    let end = log.rotate(false).expect("level 0 can be sealed");
    assert_eq!((log.rotate(false).expect("again"), log.end_lsn()), (end, end));
    assert_eq!(log.append(b"x").expect_err("full").kind(), ErrorKind::NoSpace);
    assert!(log.lacks_segment() && !log.has_room_for(1) && log.poisoned().is_none());
    // What nobody needs any more becomes the segment that was lacking.
    log.release(end).expect("release");
    assert!(log.has_room_for(1));
    all.retain(|lsn| *lsn >= end);
    all.push(log.append(b"in the same room").expect("append").lsn);
    assert_eq!(all, [end]);
    memory.set_capacity(u64::MAX);
    all.push(log.append(b"service resumes").expect("append").lsn);
    log.sync().expect("sync");
    log.rotate(false).expect("rotate");
    assert_holds(&**storage, end, &all);
}

#[test]
fn who_finds_a_segment_does_not_wait_for_who_prepares_or_releases_others() {
    let calls: [fn(&Log) -> Result<Lsn>; 2] = [
        |log| log.rotate(false),
        |log| {
            // Too large for the ring, also compressed.
            let mut random = Random(1);
            let record: Vec<u8> = (0..RING).map(|_| random.next() as u8).collect();
            log.append(&record).map(|appended| appended.end)
        },
    ];
    for call in calls {
        let (_, storage) = memory();
        let log = create(&storage).expect("create");
        log.append(b"a record").expect("append");
        log.sync().expect("sync");
        while log.lacks_segment() {
            log.prepare_step().expect("prepare");
        }
        let preparing = log.pool.preparing();
        let (done, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let log = &log;
            scope.spawn(move || done.send(call(log)));
            let told = told.recv_timeout(std::time::Duration::from_secs(20));
            drop(preparing);
            assert_eq!(told.expect("it waits").expect("done"), log.end_lsn());
        });
    }
}

/// The log holds these records from `start` on and no others.
fn assert_holds(storage: &dyn Storage, start: Lsn, all: &[Lsn]) {
    let (records, _) = read_from(storage, start).expect("read");
    assert_eq!(records.iter().map(|(lsn, _)| *lsn).collect::<Vec<_>>(), all);
}

#[test]
fn behind_a_large_record_there_is_no_room_without_another_segment() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    memory.set_capacity(memory.occupied_bytes());
    let mut all = vec![log.append(&Random(3).bytes(RING / RING_SHARE)).expect("the segment is its own").lsn];
    assert!(!log.has_room_for(1));
    for _ in 0..2 {
        assert_eq!(log.append(b"x").expect_err("full").kind(), ErrorKind::NoSpace);
        assert_eq!(log.append(&Random(3).bytes(RING)).expect_err("full").kind(), ErrorKind::NoSpace);
        log.sync().expect("sync");
    }
    memory.set_capacity(u64::MAX);
    all.push(log.append(b"service resumes").expect("append").lsn);
    log.sync().expect("sync");
    assert_holds(&*storage, Lsn(0), &all);
}

#[test]
fn a_large_record_finds_its_room_behind_what_the_ring_holds() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    let mut all = Vec::new();
    let mut append = |record: &[u8]| all.push(log.append(record).expect("append").lsn);
    append(b"in a segment");
    log.sync().expect("sync");
    // In the ring, and to begin a segment.
    log.rotate(false).expect("rotate");
    append(b"in the next");
    append(&Random(3).bytes(3 * SEGMENT as usize));
    append(b"behind");
    log.sync().expect("sync");
    for live in log.pool.live() {
        let file = memory.open(&segment::path_of(&dir(), live.number), OpenMode::default()).expect("open");
        let segment = live.segment.expect("of this opening");
        assert_eq!(file.len().expect("len"), segment::HEADER_BYTES + segment.capacity, "number={}", live.number);
    }
    assert_holds(&*storage, Lsn(0), &all);
}

#[test]
fn a_log_is_opened_on_a_full_disk() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    let mut all = vec![log.append(b"before").expect("append").lsn];
    log.sync().expect("sync");
    drop(log);
    memory.set_capacity(0);
    let open = || {
        let (_, tail) = read_from(&*storage, Lsn(0)).expect("read");
        Log::open(storage.clone(), &dir(), options(), tail).expect("open")
    };
    for _ in 0..2 {
        assert_eq!(open().append(b"x").expect_err("full").kind(), ErrorKind::NoSpace);
    }
    let log = open();
    memory.set_capacity(u64::MAX);
    all.push(log.append(b"service resumes").expect("append").lsn);
    log.sync().expect("sync");
    drop(log);
    assert_holds(&*storage, Lsn(0), &all);
}

#[test]
fn threads_append_commit_and_rotate_at_the_same_time() {
    for seed in 0..8u64 {
        let (memory, storage) = memory();
        let log = create(&storage).expect("create");
        let gate = RwLock::new(());
        let acknowledged = Mutex::new(Vec::new());
        let count = 300;
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (log, gate, acknowledged) = (&log, &gate, &acknowledged);
                scope.spawn(move || {
                    let mut random = Random(seed * 100 + thread);
                    for index in 0..count {
                        let mut record = record(&mut random, thread << 32 | index);
                        record.truncate(20 << 10);
                        let shared = gate.read();
                        let at = log.append(&record).expect("append");
                        drop(shared);
                        if random.below(3) == 0 {
                            log.wait_durable(at.end).expect("durable");
                            assert!(log.durable_lsn() >= at.end);
                        }
                        acknowledged.lock().push((at.lsn, record));
                    }
                });
            }
            let (log, gate) = (&log, &gate);
            scope.spawn(move || {
                for _ in 0..30 {
                    while log.prepare_step().expect("prepare") {}
                    let exclusive = gate.write();
                    let at = log.rotate(false).expect("rotate");
                    assert_eq!(at, log.end_lsn());
                    drop(exclusive);
                    std::thread::yield_now();
                }
            });
        });
        log.sync().expect("sync");
        let statistics = log.statistics();
        assert!(statistics.sync_micros.count() > 0 && statistics.appended_bytes == log.end_lsn().0);
        let mut all = acknowledged.into_inner();
        all.sort();
        let (records, _) = read_from(&memory.crash(seed), Lsn(0)).expect("read");
        assert!(records == all);
    }
}

#[test]
fn several_threads_take_turns_at_one_reader() {
    let (_, storage) = memory();
    let log = create(&storage).expect("create");
    for index in 0..20_000u64 {
        log.append(&index.to_le_bytes().repeat(10)).expect("append");
    }
    log.sync().expect("sync");
    let reader = Mutex::new(LogReader::open(&*storage, &dir(), &options(), Lsn(0)).expect("reader"));
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let batch = reader.lock().next_batch().expect("batch");
                    let Some(mut batch) = batch else { break };
                    while let Some((_, record)) = batch.next().expect("record") {
                        total
                            .fetch_add(u64::from_le_bytes(record[..8].try_into().expect("8 bytes")), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 19_999 * 20_000 / 2);
    assert_eq!(reader.into_inner().finish().expect("tail").end(), log.end_lsn());
}

#[test]
fn memory_is_counted_and_given_back() {
    let (_, storage) = memory();
    let options = options();
    let log = Log::create(storage, Path::new("/l"), options.clone(), Lsn(4096)).expect("create");
    assert!(options.budget.used(Purpose::Work) >= RING);
    assert_eq!(log.append(b"first").expect("append").lsn, Lsn(4096));
    drop(log);
    assert_eq!(options.budget.used(Purpose::Work), 0);
}

#[test]
fn a_segment_is_kept_for_what_must_follow_a_rotation_on_a_full_disk() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    log.keep_segment(true).expect("prepares one");
    memory.set_capacity(memory.occupied_bytes());
    let record = Random(5).bytes(500);
    let mut all = Vec::new();
    // Full, as far as ordinary records go.
    while let Ok(at) = log.append(&record) {
        all.push(at.lsn);
    }
    // Nor does one that has a segment to itself take that one.
    let large = Random(6).bytes(RING / RING_SHARE);
    assert_eq!(log.append(&large).expect_err("full").kind(), ErrorKind::NoSpace);
    assert!(!log.has_room_for(large.len()));
    let boundary = log.rotate(true).expect("a segment is kept for it");
    all.push(log.append(b"what must follow").expect("has room").lsn);
    log.sync().expect("sync");
    // There is none for another.
    assert_eq!(log.rotate(true).expect_err("full").kind(), ErrorKind::NoSpace);
    all.push(log.append(b"goes on in the last").expect("has room").lsn);
    assert_eq!(log.keep_segment(true).expect_err("full").kind(), ErrorKind::NoSpace);
    log.release(boundary).expect("release");
    log.rotate(true).expect("what was released serves");
    log.sync().expect("sync");
    all.retain(|lsn| *lsn >= boundary);
    assert_holds(&*storage, boundary, &all);
}

#[test]
fn a_rotation_does_not_claim_the_segment_that_the_ring_is_about_to_take() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    log.append(b"begins the first").expect("append");
    log.sync().expect("sync");
    log.prepare_step().expect("prepare");
    memory.set_capacity(memory.occupied_bytes());
    let record = Random(5).bytes(RING / RING_SHARE / 2);
    while log.end_lsn().0 <= SEGMENT {
        log.append(&record).expect("there is another segment");
    }
    log.rotate(false).expect("rotate");
    if let Err(error) = log.append(b"x") {
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }
    log.sync().expect("what was appended finds its space");
    assert!(log.poisoned().is_none());
}

#[test]
fn of_the_segments_that_lie_ready_one_stays_when_the_space_is_wanted() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    log.append(b"x").expect("append");
    log.sync().expect("sync");
    for _ in 0..3 {
        log.pool.prepare_one(None).expect("prepare");
    }
    let full = memory.occupied_bytes();
    for _ in 0..3 {
        log.give_back_spare().expect("gives back");
    }
    assert_eq!((log.pool.prepared(), full - memory.occupied_bytes()), (1, 2 * (SEGMENT + segment::HEADER_BYTES)));
    while log.end_lsn().0 < 3 * SEGMENT {
        log.append(&[1; 100]).expect("there is space");
    }
    log.sync().expect("sync");
}
