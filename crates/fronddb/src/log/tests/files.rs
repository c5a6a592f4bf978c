//! Which files the log has, after a crash as well, whose they are, and how they are written.

use std::time::Duration;

use super::*;
use crate::io::CrashMode;

fn segments(storage: &dyn Storage) -> Vec<PathBuf> {
    let names = storage.list(&dir()).expect("list");
    names.iter().filter_map(|name| segment::number_of(name)).map(|number| segment::path_of(&dir(), number)).collect()
}

fn open(storage: &Arc<dyn Storage>, options: LogOptions) -> Log {
    let tail = read_from(&**storage, Lsn(0)).expect("read").1;
    Log::open(Arc::clone(storage), &dir(), options, tail).expect("open")
}

#[test]
fn from_its_creation_on_no_crash_leaves_a_log_without_a_segment() {
    let larger = || LogOptions { segment_bytes: 2 * SEGMENT, ..options() };
    let traced = TraceStorage::new(&MemoryStorage::new());
    let storage: Arc<dyn Storage> = Arc::new(traced.clone());
    drop(create(&storage).expect("create"));
    let created = traced.events().len();
    // Nothing was ever written; all that there is has the wrong size.
    drop(open(&storage, larger()));
    let log = open(&storage, options());
    log.append(b"first").expect("append");
    log.end().expect("end");
    drop(log);
    // What was written is needed no more, and nothing else is.
    let log = open(&storage, options());
    log.release(log.end_lsn()).expect("release");
    assert_eq!(log.live_bytes(), 0);
    drop(log);
    for size in [larger(), options()] {
        let tail = LogReader::open(&*storage, &dir(), &options(), Lsn(24)).expect("reader");
        let mut tail = tail;
        assert!(tail.next_batch().expect("read").is_none());
        drop(Log::open(Arc::clone(&storage), &dir(), size, tail.finish().expect("tail")).expect("open"));
    }
    let mut replay = traced.replay();
    while replay.step() {
        if replay.done() < created {
            continue;
        }
        for mode in CrashMode::ALL {
            for seed in 0..8 {
                let left = replay.storage().crash_with(mode, seed);
                let event = traced.events()[replay.done() - 1].clone();
                assert!(!segments(&left).is_empty(), "{mode:?} seed={seed} after {event:?}");
            }
        }
    }
}

/// Of several segments that were written and not synced a crash may keep a later one alone.
#[test]
fn no_crash_leaves_a_later_segment_without_the_first() {
    // What came before is released before anything follows, or with two segments there that no sync has seen.
    for is_late in [false, true] {
        let (memory, storage) = memory();
        let log = create(&storage).expect("create");
        log.append(b"first").expect("append");
        log.sync().expect("sync");
        let boundary = log.rotate(false).expect("rotate");
        drop(log);
        let log = open(&storage, options());
        if !is_late {
            log.release(boundary).expect("release");
        }
        for record in [b"one", b"two"] {
            let end = log.append(record).expect("append").end;
            log.wait_written(end).expect("write");
            log.rotate(false).expect("rotate");
        }
        if is_late {
            log.release(boundary).expect("release");
        }
        for mode in CrashMode::ALL {
            for seed in 0..100 {
                let left = memory.crash_with(mode, seed);
                if let Err(error) = read_from(&left, boundary) {
                    panic!("is_late={is_late} {mode:?} seed={seed}: {error}");
                }
            }
        }
    }
}

#[test]
fn on_a_full_disk_the_last_segment_stays_until_there_is_another() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    log.append(b"first").expect("append");
    log.end().expect("end");
    drop(log);
    // What the end of the log gave back is somebody else's by now.
    memory.set_capacity(memory.occupied_bytes());
    for _ in 0..2 {
        let log = open(&storage, options());
        let end = log.end_lsn();
        log.release(end).expect("release");
        assert_eq!(log.append(b"x").expect_err("full").kind(), ErrorKind::NoSpace);
        assert_eq!(segments(&*storage).len(), 1);
    }
    let log = open(&storage, options());
    let end = log.end_lsn();
    memory.set_capacity(u64::MAX);
    let last = segments(&*storage);
    assert_eq!(log.append(b"service resumes").expect("append").lsn, end);
    log.sync().expect("sync");
    log.release(end).expect("release");
    assert!(segments(&*storage).iter().all(|path| !last.contains(path)), "nobody needs the old one any more");
    assert_holds(&*storage, end, &[end]);
}

#[test]
fn on_a_full_disk_the_last_segment_gets_back_what_the_end_of_the_log_cut_off() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    log.append(b"first").expect("append");
    memory.set_capacity(memory.occupied_bytes());
    log.end().expect("end");
    drop(log);
    let log = open(&storage, options());
    let end = log.end_lsn();
    assert!(!log.has_room_for(1));
    log.release(end).expect("release");
    assert_eq!(segments(&*storage).len(), 1);
    assert_eq!(log.append(b"in the same room").expect("append").lsn, end);
    log.sync().expect("sync");
    assert_holds(&*storage, end, &[end]);
}

/// As programs that copy files leave out what is zero.
#[test]
fn a_sparse_copy_of_a_log_asks_for_its_space_before_anything_is_appended() {
    let (original, storage) = memory();
    drop(create(&storage).expect("create"));
    let (copy, copied) = memory();
    copied.create_dir_all(&dir()).expect("directory");
    let (path, mut page) = (segments(&original)[0].clone(), [0; 4096]);
    original.open(&path, OpenMode::default()).and_then(|file| file.read_at(&mut page, 0)).expect("read");
    let file = copied.open(&path, OpenMode { create: true, ..OpenMode::default() }).expect("open");
    file.write_at(&page, 0).and_then(|()| file.set_len(segment::HEADER_BYTES + SEGMENT)).expect("write");
    copy.set_capacity(copy.occupied_bytes());
    for _ in 0..2 {
        let log = open(&copied, options());
        assert_eq!(log.append(b"x").expect_err("full").kind(), ErrorKind::NoSpace);
        assert!(log.poisoned().is_none() && segments(&copy) == [path.clone()]);
    }
    copy.set_capacity(u64::MAX);
    let log = open(&copied, options());
    log.append(b"service resumes").and_then(|at| log.wait_durable(at.end)).expect("append");
}

#[test]
fn a_directory_without_segments_and_segments_of_another_log_are_refused_and_left_alone() {
    let (memory, storage) = memory();
    let refused = |storage: &dyn Storage, options: &LogOptions| {
        let error = LogReader::open(storage, &dir(), options, Lsn(0)).map(drop).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Corruption);
        error.message().to_owned()
    };
    assert!(refused(&*storage, &options()).contains("directory=/db/log"), "no directory");
    storage.create_dir_all(&dir()).expect("directory");
    assert!(refused(&*storage, &options()).contains("directory=/db/log"), "an empty one");
    // Prepared segments say whose they are, new ones and those that held something.
    let other = LogOptions { uuid: [2; 16], ..options() };
    let log = create(&storage).expect("create");
    let foreign = |storage: &dyn Storage| assert!(refused(storage, &other).contains("another database"));
    foreign(&memory.crash_with(CrashMode::Lost, 0));
    log.append(b"first").expect("append");
    let boundary = log.sync().and_then(|_| log.rotate(false)).expect("rotate");
    log.append(b"second").expect("append");
    log.sync().expect("sync");
    log.release(boundary).expect("release");
    let live = segment::path_of(&dir(), 2);
    memory.remove(&live).expect("only prepared segments stay");
    foreign(&*storage);
}

#[test]
fn a_log_that_ends_below_what_is_known_to_be_durable_is_damaged() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    let mut ends = Vec::new();
    for _ in 0..3 {
        log.append(&[7; 1000]).expect("append");
        ends.push(log.sync().expect("sync"));
        log.rotate(false).expect("rotate");
    }
    let read = |storage: &dyn Storage, known: Lsn| -> Result<Lsn> {
        let mut reader = LogReader::open(storage, &dir(), &options(), Lsn(0))?.known_durable(known);
        while reader.next_batch()?.is_some() {}
        Ok(reader.finish()?.end())
    };
    assert_eq!(read(&*storage, ends[2]).expect("whole"), ends[2]);
    let cut = memory.snapshot();
    cut.remove(&segment::path_of(&dir(), 3)).expect("remove");
    assert_eq!(read(&cut, ends[1]).expect("nothing says more"), ends[1]);
    let error = read(&cut, ends[2]).expect_err("the last segment is missing");
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.message().contains("00000002.log") && error.message().contains("missing"), "{error}");
    let bare = memory.snapshot();
    for number in 1..=3 {
        bare.overwrite(&segment::path_of(&dir(), number), 0, &[0; 4096]).expect("overwrite");
    }
    assert_eq!(read(&bare, Lsn(0)).expect("nothing says more"), Lsn(0));
    let error = read(&bare, ends[0]).expect_err("nothing was begun");
    assert!(error.message().contains("directory=/db/log"), "{error}");
}

/// Ends of what was written of each file, while going through events.
#[derive(Default)]
struct Files {
    paths: std::collections::BTreeMap<u64, PathBuf>,
    written: std::collections::BTreeMap<PathBuf, u64>,
}

impl Files {
    /// The path, what was written before, and the end, if this is a write.
    fn follow(&mut self, event: &Event) -> Option<(PathBuf, u64, u64)> {
        match event {
            Event::Open { file, path, .. } => {
                self.paths.insert(*file, path.clone());
            }
            Event::Rename { from, to } => {
                let written = self.written.remove(from).unwrap_or_default();
                self.written.insert(to.clone(), written);
                self.paths.values_mut().filter(|path| *path == from).for_each(|path| *path = to.clone());
            }
            Event::Write { file, offset, data } => {
                let path = self.paths.get(file)?.clone();
                let end = offset + data.len() as u64;
                let written = self.written.entry(path.clone()).or_default();
                let before = *written;
                *written = before.max(end);
                return Some((path, before, end));
            }
            _ => {}
        }
        None
    }
}

#[test]
fn commits_write_only_where_zeros_were_written_before() {
    let traced = TraceStorage::new(&MemoryStorage::new());
    let storage: Arc<dyn Storage> = Arc::new(traced.clone());
    let log = create(&storage).expect("create");
    let (mut files, mut seen, mut commits) = (Files::default(), 0, 0);
    for round in 0..60u64 {
        while log.prepare_step().expect("prepare") {}
        for event in &traced.events()[std::mem::replace(&mut seen, traced.events().len())..] {
            files.follow(event);
        }
        for _ in 0..4 {
            let at = log.append(&round.to_le_bytes().repeat(100)).expect("append");
            log.wait_durable(at.end).expect("durable");
        }
        if round % 20 == 19 {
            log.rotate(false).expect("rotate");
        }
        for event in &traced.events()[std::mem::replace(&mut seen, traced.events().len())..] {
            let is_size = matches!(event, Event::Allocate { .. } | Event::SetLen { .. } | Event::SyncDir { .. });
            assert!(!is_size, "a commit changes what a file system writes down: {event:?}");
            if let Some((path, before, end)) = files.follow(event) {
                assert!(end <= before, "round={round} path={} end={end} written={before}", path.display());
                commits += 1;
            }
        }
    }
    assert!(commits >= 240 && segments(&*storage).len() > 3, "commits={commits}");
}

#[test]
fn a_released_segment_gets_another_name_and_is_written_again_as_it_is() {
    let traced = TraceStorage::new(&MemoryStorage::new());
    let storage: Arc<dyn Storage> = Arc::new(traced.clone());
    let log = create(&storage).expect("create");
    let commit = || {
        log.append(&[7; 1000]).expect("append");
        log.sync().expect("sync");
    };
    commit();
    while log.prepare_step().expect("prepare") {}
    let boundary = log.rotate(false).expect("rotate");
    commit();
    let before = traced.events().len();
    log.release(boundary).expect("release");
    // It is the next that is begun.
    log.rotate(false).expect("rotate");
    commit();
    let events = traced.events();
    let after = &events[before..];
    let names: Vec<&Event> = after
        .iter()
        .filter(|event| {
            matches!(event, Event::Open { .. } | Event::Remove { .. } | Event::Rename { .. } | Event::Allocate { .. })
        })
        .collect();
    let (old, new) = (segment::path_of(&dir(), 1), segment::path_of(&dir(), 3));
    assert!(matches!(&names[..], [Event::Rename { from, to }] if *from == old && *to == new), "{names:?}");
    let opened = events.iter().find_map(|event| match event {
        Event::Open { file, path, .. } if *path == old => Some(*file),
        _ => None,
    });
    let again = |event: &Event| matches!(event, Event::Write { file, offset: 0, .. } if Some(*file) == opened);
    assert!(after.iter().any(again), "the segment that is begun is the one that was released");
}

#[test]
fn a_segment_that_is_begun_again_while_its_last_sync_is_noted_is_synced_again() {
    let (memory, storage) = memory();
    let log = create(&storage).expect("create");
    log.append(b"first").expect("append");
    log.sync().expect("sync");
    let boundary = log.rotate(false).expect("rotate");
    let at = log.append(b"second").expect("append");
    log.wait_written(at.end).expect("written");
    // As a pass of `sync_pass` does, which is held up before its last step.
    let synced = log.writer.lock().unsynced();
    log.sync_segments(&synced, at.end.0).expect("sync");
    log.release(boundary).expect("release");
    log.rotate(false).expect("rotate");
    let at = log.append(b"third").expect("append");
    log.wait_written(at.end).expect("written");
    assert_eq!(log.pool.live().len(), 2, "the first segment's file is the third's");
    log.writer.lock().forget_synced(&synced);
    log.wait_durable(at.end).expect("durable");
    let (records, _) = read_from(&memory.crash_with(CrashMode::Lost, 0), boundary).expect("read");
    assert_eq!(records.iter().map(|(_, record)| record.as_slice()).collect::<Vec<_>>(), [&b"second"[..], b"third"]);
}

#[test]
fn an_opening_through_the_page_cache_writes_only_what_nothing_calls_durable_again() {
    for (direct, refused) in [(false, false), (true, true), (true, false)] {
        let (memory, storage) = memory();
        if refused {
            memory.refuse_direct();
        }
        let options = || LogOptions { direct, ..options() };
        let log = Log::create(Arc::clone(&storage), &dir(), options(), Lsn(0)).expect("create");
        for _ in 0..2000 {
            log.append(&[7; 500]).expect("append");
            log.sync().expect("sync");
        }
        let mut records = 2000;
        while log.end_lsn().0 - log.durable_lsn().0 < 4000 {
            records += 1;
            log.append(&[8; 500]).expect("append");
        }
        log.wait_written(log.end_lsn()).expect("write");
        drop(log);
        let traced = TraceStorage::new(&memory);
        if refused {
            traced.storage().refuse_direct();
        }
        let used: Arc<dyn Storage> = Arc::new(traced.clone());
        let before = segments(&memory);
        drop(open(&used, options()));
        // What is written in the segment that is prepared is not written again.
        let mut old = Vec::new();
        let mut written = |event: &Event| match event {
            Event::Open { file, path, .. } if before.contains(path) => {
                old.push(*file);
                0
            }
            Event::Write { file, data, .. } if old.contains(file) => data.len(),
            _ => 0,
        };
        let rewritten: usize = traced.events().iter().map(&mut written).sum();
        // The pages of the tail and of the sync before it; perhaps the header of its segment.
        let expected = if direct && !refused { 0..=0 } else { 4000..=5 * 4096 };
        assert!(expected.contains(&rewritten), "rewritten={rewritten} direct={direct} refused={refused}");
        let left = traced.storage().crash_with(CrashMode::Lost, 1);
        assert_eq!(read_from(&left, Lsn(0)).expect("read").0.len(), records);
    }
}

/// Events that write a log's files or make them durable, in short; zeros ahead are left out.
fn ways(traced: &TraceStorage, from: usize) -> String {
    let way = |event: &Event| match event {
        Event::Write { data, .. } if data.iter().any(|byte| *byte != 0) => Some('w'),
        Event::Persist { .. } => Some('p'),
        Event::Sync { .. } => Some('s'),
        _ => None,
    };
    traced.events()[from..].iter().filter_map(way).collect()
}

/// Writes that say nothing of others make durable what nobody else has written to.
#[test]
fn a_commit_is_one_durable_write_unless_others_write_beside_it() {
    let traced = TraceStorage::new(&MemoryStorage::new());
    let storage: Arc<dyn Storage> = Arc::new(traced.clone());
    let options = LogOptions { unsynced_bytes_max: 1 << 20, ..options() };
    let log = Log::create(Arc::clone(&storage), &dir(), options, Lsn(0)).expect("create");
    let mut records = 0;
    let mut ways_of = |records_now: &[usize], wait: &dyn Fn(&Log) -> Result<()>| {
        let from = traced.events().len();
        for bytes in records_now {
            log.append(&vec![7; *bytes]).expect("append");
        }
        records += records_now.len();
        wait(&log).expect("wait");
        (
            ways(&traced, from),
            records,
            read_from(&traced.storage().crash_with(CrashMode::Lost, 1), Lsn(0)).expect("read").0.len(),
        )
    };
    let sync = |log: &Log| log.sync().map(drop);
    let write = |log: &Log| log.wait_written(log.end_lsn());
    // The first one's segment begins with it.
    assert_eq!(ways_of(&[100], &sync), ("wp".into(), 1, 1));
    assert_eq!(ways_of(&[100, 200], &sync), ("wp".into(), 3, 3));
    assert_eq!(log.statistics().sync_micros.count(), 2);
    // Somebody writes and does not sync: what is synced next holds that, too.
    assert_eq!(ways_of(&[100], &write), ("w".into(), 4, 3));
    assert_eq!(ways_of(&[100], &sync), ("ws".into(), 5, 5));
    for count in 6..6 + 63 {
        assert_eq!(
            ways_of(&[100], &sync),
            ("ws".into(), count, count),
            "who writes beside it is not forgotten at once"
        );
    }
    assert_eq!(ways_of(&[100], &sync), ("wp".into(), 69, 69));
    // In the next segment as well, if nothing is left for the one before.
    log.rotate(false).expect("rotate");
    assert_eq!(ways_of(&[100], &sync), ("wp".into(), 70, 70));
    log.append(&[7; 100]).expect("append");
    log.rotate(false).expect("rotate");
    assert_eq!(ways_of(&[100], &sync), ("wwss".into(), 71, 72));
    // Nor if it takes more than one write.
    assert_eq!(ways_of(&[1900; 8], &sync).0, "wws");
    assert_eq!(ways_of(&[100], &sync), ("wp".into(), 80, 81));
    assert_eq!(log.statistics().sync_micros.count(), 71);
}

#[test]
fn what_syncs_took_is_told_as_a_distribution() {
    let plan = FaultPlan::new();
    let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(memory().1, plan.clone()));
    let options = LogOptions { clock: Clock::machine(), ..options() };
    let log = Log::create(Arc::clone(&storage), &dir(), options, Lsn(0)).expect("create");
    // One that is a durable write, and one that is apart.
    for apart in [false, true] {
        log.append(b"record").expect("append");
        if apart {
            log.wait_written(log.end_lsn()).expect("write");
        }
        plan.add(FaultRule::once(CallClass::Sync, 1, Fault::Latency(Duration::from_millis(3))));
        log.sync().expect("sync");
    }
    let took = log.statistics().sync_micros;
    assert_eq!(took.count(), 2);
    assert!(took.percentile(1.0) >= 3000 && took.max() >= 3000 && took.sum() >= 6000, "{took:?}");
}

/// Who fills ahead stands still between choosing a segment and filling it, until its file has been released and taken again.
#[test]
fn zeros_ahead_in_a_released_segment_do_not_cover_the_records_of_the_next_one_in_its_file() {
    let (_memory, storage) = memory();
    storage.create_dir_all(&dir()).expect("directory");
    let pool = pool::Pool::new(storage, dir(), &LogOptions { direct: false, ..options() }, 0).expect("pool");
    let old = pool.take(0).expect("take");
    pool.take(SEGMENT).expect("take");
    pool.release(Lsn(SEGMENT), Lsn(u64::MAX)).expect("release");
    let new = pool.take(2 * SEGMENT).expect("take");
    assert!(Arc::ptr_eq(&old.file, &new.file) && old.number < new.number);
    let record = [7; 4096];
    new.write(&record, 4096, 4096, segment::Way::Direct).expect("write");
    while old.fill_ahead(0, SEGMENT, 4096).expect("fill") {}
    let mut found = [0; 4096];
    new.file.read_at(&mut found, 4096).expect("read");
    assert!(found == record, "zeros cover a record");
    assert_eq!(new.filled(), SEGMENT, "what is filled for the one is filled for the other");
}

#[test]
fn a_segment_that_no_descriptor_is_left_for_is_released_the_next_time() {
    for class in [CallClass::Open, CallClass::Names, CallClass::Query] {
        let memory = MemoryStorage::new();
        let plan = FaultPlan::new();
        let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(Arc::new(memory.clone()), plan.clone()));
        let log = create(&storage).expect("create");
        log.append(b"first").expect("append");
        log.sync().expect("sync");
        drop(log);
        let log = open(&storage, options());
        let end = log.end_lsn();
        let first = segments(&*storage).into_iter().next();
        plan.add(FaultRule::from(class, 1, Fault::NoDescriptor));
        for _ in 0..2 {
            let error = log.release(end).expect_err("no descriptor");
            assert!(error.is_passing() && log.poisoned().is_none(), "{class:?}: {error}");
            assert!(log.live_bytes() > 0, "{class:?}: it is forgotten");
        }
        plan.clear();
        log.release(end).expect("release");
        assert_eq!(log.live_bytes(), 0, "{class:?}");
        assert!(!segments(&memory).into_iter().any(|path| Some(path) == first), "{class:?}");
        log.append(b"goes on").expect("append");
        log.sync().expect("sync");
        assert_eq!(read_from(&memory.crash(1), end).expect("read").0.len(), 1, "{class:?}");
    }
}

#[test]
fn a_segment_that_cannot_be_prepared_says_whether_that_may_be_tried_again() {
    let passing = [CallClass::Open, CallClass::Allocate, CallClass::Write];
    for (class, fault) in passing.into_iter().chain([CallClass::Sync, CallClass::SyncDir]).zip([Fault::NoMemory; 5]) {
        let plan = FaultPlan::new();
        let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(memory().1, plan.clone()));
        let log = create(&storage).expect("create");
        log.append(b"first").expect("append");
        log.rotate(false).expect("rotate");
        plan.add(FaultRule::once(class, 1, fault));
        let error = log.prepare_step().expect_err("no memory");
        assert_eq!(error.is_passing(), passing.contains(&class), "{class:?}: {error}");
        assert!(log.prepare_step().expect("again"), "{class:?}");
    }
}
