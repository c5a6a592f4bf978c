//! The plain uses of each call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::harness::{create, data_path, dir, new_piece, open, options, publish, verify};
use crate::base::page_buf::PageBuf;
use crate::base::space::PAGE_BYTES;
use crate::base::{BlockPtr, CommitNumber, ErrorKind, Extent, Lsn, RunId, TxnId};
use crate::format::SuperblockBody;
use crate::io::{CallClass, DiskStorage, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};
use crate::store::{EXTENT_PAGES_MAX, ShrinkLimits, SpaceChanges, Store, StoreOptions, Urgency, extent_of};

fn memory() -> (MemoryStorage, Arc<dyn Storage>) {
    let storage = MemoryStorage::new();
    (storage.clone(), Arc::new(storage))
}

#[test]
fn what_the_body_says_comes_back() {
    let (_, storage) = memory();
    let store = create(&storage);
    let body = SuperblockBody {
        log_start: Lsn(5),
        log_end: Lsn(6),
        oldest_memtable: 7,
        next_run: RunId(8),
        next_txn: TxnId(9),
        next_commit: CommitNumber(10),
        extra: vec![11; 2048],
        ..SuperblockBody::default()
    };
    let publication = store.begin_publication().unwrap();
    assert_eq!(publication.generation(), 2);
    publication.commit(&SpaceChanges::default(), body.clone()).unwrap();
    let opened = open(&storage).unwrap();
    assert_eq!(opened.store.superblock().body, body);
    assert_eq!(opened.superblocks.len(), 2);
    assert!(opened.damaged.is_empty());
}

#[test]
fn what_long_reads_use_is_kept_for_all_threads_and_not_for_each() {
    let (_, storage) = memory();
    let store = create(&storage);
    let extent = store.allocate(512, Urgency::Ordinary).unwrap();
    store.write(extent, 0, &PageBuf::zeroed(512 * 4096)).unwrap();
    let read = |bytes| store.read_with(extent.offset(), bytes, |read| Ok(read.len())).unwrap();
    for bytes in [64 << 10, 2 << 20] {
        assert_eq!((read(bytes), store.scratches.bytes()), (bytes, 0));
    }
    let ready = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                ready.wait();
                (0..3).for_each(|_| _ = read(768 << 10));
                ready.wait();
            });
        }
    });
    let kept = store.scratches.bytes();
    assert!((768 << 10..=2 << 20).contains(&kept), "kept={kept}");
    read(100 << 10);
    assert_eq!(store.scratches.bytes(), kept, "the longer ones stay");
}

#[test]
fn syncs_that_are_asked_for_during_one_share_the_next() {
    const THREADS: u64 = 8;
    let plan = FaultPlan::new();
    let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(Arc::new(MemoryStorage::new()), plan.clone()));
    let store = create(&storage);
    let syncs = || {
        plan.add(FaultRule::once(CallClass::Sync, 1, Fault::Hold));
        let (before, asking) = (plan.calls(CallClass::Sync), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| store.sync().unwrap());
            let _held = plan.wait_held();
            for _ in 0..THREADS {
                scope.spawn(|| {
                    asking.fetch_add(1, Ordering::SeqCst);
                    store.sync().unwrap();
                });
            }
            while asking.load(Ordering::SeqCst) < THREADS {
                std::thread::yield_now();
            }
        });
        plan.clear();
        plan.calls(CallClass::Sync) - before
    };
    // Who comes to ask only when the first is over makes one of its own.
    let fewest = (0..50).map(|_| syncs()).min().unwrap();
    assert!(fewest <= 3, "syncs={fewest}");
}

#[test]
fn reads_need_no_alignment_and_writes_do() {
    let (_, storage) = memory();
    let store = create(&storage);
    let extent = store.allocate(3, Urgency::Ordinary).unwrap();
    let mut buf = PageBuf::zeroed(3 * 4096);
    for (index, byte) in buf.iter_mut().enumerate() {
        *byte = index as u8 ^ (index >> 8) as u8;
    }
    store.write(extent, 0, &buf).unwrap();
    for (offset, bytes) in [(0, 3 * 4096), (1, 4095), (4095, 2), (5000, 6000), (12287, 1), (77, 0)] {
        let read = store.read(extent.offset() + offset as u64, bytes).unwrap();
        assert_eq!(read[..], buf[offset..offset + bytes]);
        let nested = store.read_with(extent.offset() + offset as u64, bytes, |outer| {
            store.read_with(extent.offset(), 10, |inner| Ok((outer.to_vec(), inner.to_vec())))
        });
        let (outer, inner) = nested.unwrap();
        assert_eq!((&outer[..], &inner[..]), (&buf[offset..offset + bytes], &buf[..10]));
    }
    for (offset, length) in [(4096, 3 * 4096), (100, 10), (3 * 4096, 1), (u64::MAX - 4095, 4096)] {
        let error = store.write(extent, offset, &PageBuf::zeroed(length)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    let over_slots = Extent { start: 2, pages: 1 };
    assert_eq!(store.write(over_slots, 0, &PageBuf::zeroed(1)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let outside = store.read(1 << 40, 10).unwrap_err();
    assert_eq!(outside.kind(), ErrorKind::Corruption);
    assert!(outside.message().contains("data.frond"));
}

#[test]
fn extents_are_bounded_and_contiguous_up_to_a_region() {
    let (_, storage) = memory();
    let store = create(&storage);
    assert_eq!(store.allocate(0, Urgency::Ordinary).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(store.allocate(EXTENT_PAGES_MAX + 1, Urgency::Ordinary).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let whole = store.allocate(EXTENT_PAGES_MAX, Urgency::Ordinary).unwrap();
    assert_eq!(whole.start % u64::from(EXTENT_PAGES_MAX), 0);
    let small = store.allocate(2, Urgency::Ordinary).unwrap();
    assert!(small.end() <= whole.start, "low addresses first");
    let second = store.allocate(EXTENT_PAGES_MAX, Urgency::Ordinary).unwrap();
    assert_eq!(second.start, whole.end());
}

#[test]
fn images_of_any_length_come_back() {
    let (_, storage) = memory();
    let store = create(&storage);
    for bytes in [0, 1, 4064, 4065, 1 << 20, (3 << 20) + 5, 60 << 20] {
        let image: Vec<u8> = (0..bytes).map(|index| (index * 7 + index / 256) as u8).collect();
        let mut publication = store.begin_publication().unwrap();
        let status = publication.write_image(&image).unwrap();
        publication.commit(&SpaceChanges::default(), SuperblockBody { status, ..SuperblockBody::default() }).unwrap();
        let opened = open(&storage).unwrap();
        let status = &opened.store.superblock().body.status;
        assert!(opened.store.read_image(status).unwrap() == image, "bytes={bytes}");
    }
    // Kept unchanged, an image stays; superseded, its space comes back by itself.
    let kept = store.superblock().body.clone();
    let publication = store.begin_publication().unwrap();
    publication.commit(&SpaceChanges::default(), kept.clone()).unwrap();
    assert_eq!(store.read_image(&kept.status).unwrap().len(), 60 << 20);
    for _ in 0..3 {
        publish(&store, &[], &SpaceChanges::default()).unwrap();
    }
    assert!(store.statistics().used_bytes < 2 << 20);
}

#[test]
fn a_block_takes_only_the_pages_it_needs() {
    let (_, storage) = memory();
    let store = create(&storage);
    let mut publication = store.begin_publication().unwrap();
    let first = publication.write_block(&mut [7; 5000], 100_000, |_, _| {}).unwrap();
    let second = publication.write_block(&mut [7], 100, |_, _| {}).unwrap();
    assert_eq!((first.stored, extent_of(first).pages), (5000, 2));
    assert_eq!(extent_of(second), Extent { start: second.offset / 4096, pages: 1 });
    assert!(publication.write_block(&mut [], 10, |_, _| {}).is_err());
    drop(publication);
    let used = store.statistics().used_bytes;
    let publication = store.begin_publication().unwrap();
    drop(publication);
    assert_eq!(store.statistics().used_bytes, used);
}

#[test]
fn recovery_marks_what_the_log_names() {
    let (memory, storage) = memory();
    let store = create(&storage);
    let published = new_piece(&store, 4, 1).unwrap();
    publish(&store, &[published], &SpaceChanges { added: vec![published.extent], removed: vec![] }).unwrap();
    let blob = new_piece(&store, 9, 2).unwrap();
    let far = Extent { start: 40_000, pages: 10 };
    store.sync().unwrap();

    let crashed: Arc<dyn Storage> = Arc::new(memory.crash(3));
    let store = open(&crashed).unwrap().store;
    store.mark_used(blob.extent).unwrap();
    store.mark_used(blob.extent).unwrap();
    store.mark_used(far).unwrap();
    for extent in [published.extent, Extent { start: 3, pages: 1 }, Extent { start: 16380, pages: 10 }] {
        assert_eq!(store.mark_used(extent).unwrap_err().kind(), ErrorKind::Corruption, "{extent:?}");
    }
    for _ in 0..200 {
        let other = store.allocate(50, Urgency::Ordinary).unwrap();
        for taken in [blob.extent, far] {
            assert!(other.end() <= taken.start || taken.end() <= other.start);
        }
    }
    publish(&store, &[published, blob], &SpaceChanges { added: vec![blob.extent], removed: vec![far] }).unwrap();
    store.release(&[far]);
    verify(&store).unwrap();
    publish(&store, &[published, blob], &SpaceChanges::default()).unwrap();
    assert_eq!(store.statistics().released_early, 0);
}

#[test]
fn what_the_log_names_far_beyond_the_file_is_damage_of_the_log() {
    let (memory, storage) = memory();
    let store = create(&storage);
    memory.set_capacity(64 << 20);
    let file_bytes = || memory.files().iter().find(|(path, _)| *path == data_path()).unwrap().1;
    let (before, beyond) = (file_bytes(), (1u64 << 40) / PAGE_BYTES);
    for start in [before / PAGE_BYTES + beyond, 1 << 47] {
        let error = store.mark_used(Extent { start, pages: 1 }).unwrap_err();
        assert!(error.kind() == ErrorKind::Corruption && error.message().contains("data.frond"), "{error}");
    }
    assert_eq!(file_bytes(), before);
}

#[test]
fn a_store_opened_for_reading_writes_nothing() {
    let (memory, storage) = memory();
    let store = create(&storage);
    publish(&store, &[], &SpaceChanges::default()).unwrap();
    drop(store);
    memory.flip_bit(&data_path(), 2 * 16384 + 40, 0).unwrap();
    let before = crate::io::read_file(&memory, &data_path()).unwrap();
    let read_only = StoreOptions { read_only: true, ..options() };
    let opened = Store::open(&storage, dir(), &read_only).unwrap();
    assert_eq!((opened.store.superblock().generation, opened.damaged.len()), (1, 1));
    assert_eq!(opened.store.allocate(1, Urgency::Ordinary).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(opened.store.begin_publication().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(crate::io::read_file(&memory, &data_path()).unwrap() == before);
}

#[test]
fn creating_twice_is_refused() {
    let (_, storage) = memory();
    create(&storage);
    let again = Store::create(&storage, dir(), &options(), [1; 16], SuperblockBody::default());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let body = SuperblockBody { root: Some(BlockPtr { offset: 1, stored: 1 }), ..SuperblockBody::default() };
    assert!(Store::create(&storage, "/".as_ref(), &options(), [1; 16], body).is_err());
}

#[test]
fn opening_reads_no_bitmap_however_much_is_stored() {
    let (_, storage) = memory();
    let store = create(&storage);
    let mut added = Vec::new();
    for _ in 0..40 {
        added.push(store.allocate(EXTENT_PAGES_MAX, Urgency::Ordinary).unwrap());
    }
    publish(&store, &[], &SpaceChanges { added, removed: vec![] }).unwrap();
    let opened = open(&storage).unwrap();
    let statistics = opened.store.statistics();
    assert!(statistics.regions > 40 && statistics.image_bytes > 40 << 26);
    assert_eq!((statistics.regions_loaded, statistics.reads <= 3), (0, true), "{statistics:?}");
    opened.store.allocate(10, Urgency::Ordinary).unwrap();
    assert!(opened.store.statistics().regions_loaded <= 2);
}

#[test]
fn shrinking_looks_at_some_regions_at_a_time_and_at_none_twice_for_nothing() {
    let (_, storage) = memory();
    let store = create(&storage);
    // Each region has free space, in pieces that are not worth a hole.
    let mut added = Vec::new();
    for _ in 0..40 {
        let taken = store.allocate(EXTENT_PAGES_MAX - 40, Urgency::Ordinary).unwrap();
        added.push(taken);
    }
    publish(&store, &[], &SpaceChanges { added: added.clone(), removed: vec![] }).unwrap();
    let opened = open(&storage).unwrap().store;
    let step = || {
        let before = opened.statistics().reads;
        let is_done = opened.shrink_step(ShrinkLimits::default()).unwrap().is_done;
        (opened.statistics().reads - before, is_done)
    };
    let mut steps = 1;
    loop {
        let (reads, is_done) = step();
        assert!(reads <= 2 * 16 + 4, "reads={reads}");
        if is_done {
            break;
        }
        steps += 1;
    }
    assert!(steps > 2, "steps={steps}");
    assert_eq!(step(), (0, true));
    // What is freed is looked at.
    let before = opened.statistics().regions_loaded;
    let taken = opened.allocate(1000, Urgency::Ordinary).unwrap();
    opened.free_unpublished(taken);
    let mut punched = 0;
    loop {
        let shrunk = opened.shrink_step(ShrinkLimits { keep_bytes: 0, ..ShrinkLimits::default() }).unwrap();
        punched += shrunk.punched_bytes + shrunk.cut_bytes;
        if shrunk.is_done {
            break;
        }
    }
    assert!(punched > 0 && opened.statistics().regions_loaded <= before + 1);
}

#[test]
fn shrinking_cuts_the_tail_and_punches_holes() {
    let (memory, storage) = memory();
    let store = create(&storage);
    let pieces: Vec<_> = (0..40).map(|tag| new_piece(&store, 400, tag).unwrap()).collect();
    for piece in pieces.iter().filter(|piece| piece.tag % 2 == 0 || piece.tag > 20) {
        store.write(piece.extent, 0, &PageBuf::from_slice(&vec![1; 400 * 4096])).unwrap();
        store.free_unpublished(piece.extent);
    }
    let full = memory.occupied_bytes();
    let mut steps = 0;
    while !store.shrink_step(ShrinkLimits { step_bytes: 1 << 20, keep_bytes: 0, small_holes: false }).unwrap().is_done {
        steps += 1;
    }
    assert!(steps >= 10 && memory.occupied_bytes() < full / 2, "steps={steps}");
    for piece in pieces.iter().filter(|piece| piece.tag % 2 == 1 && piece.tag <= 20) {
        assert!(super::harness::is_intact(&store, *piece).unwrap());
    }
    // Punched space serves again, and the disk is asked for room first.
    memory.set_capacity(memory.occupied_bytes());
    assert_eq!(store.allocate(400, Urgency::Ordinary).unwrap_err().kind(), ErrorKind::NoSpace);
    memory.set_capacity(u64::MAX);
    new_piece(&store, 400, 1).unwrap();
}

#[test]
fn a_step_gives_back_no_more_than_it_may_of_the_tail_and_of_holes() {
    let (memory, storage) = memory();
    let store = create(&storage);
    let extents: Vec<Extent> = (0..20).map(|_| store.allocate(400, Urgency::Ordinary).unwrap()).collect();
    for extent in extents.iter().enumerate().filter(|(at, _)| at % 2 == 0 || *at > 12).map(|(_, extent)| extent) {
        store.free_unpublished(*extent);
    }
    let full = memory.occupied_bytes();
    let mut steps = 0;
    loop {
        let before = memory.occupied_bytes();
        let limits = ShrinkLimits { step_bytes: 1 << 20, keep_bytes: 0, small_holes: false };
        let is_done = store.shrink_step(limits).unwrap().is_done;
        let given = before - memory.occupied_bytes();
        assert!(given <= (1 << 20) + (64 << 10), "step {steps} gave back {given} bytes");
        if is_done {
            break;
        }
        steps += 1;
    }
    assert!(steps >= 10 && memory.occupied_bytes() < full / 2, "steps={steps}");
}

#[test]
fn space_is_given_back_although_more_is_to_be_kept_than_was_asked_for_yet() {
    let (memory, storage) = memory();
    let store = create(&storage);
    let extents: Vec<Extent> = (0..20).map(|_| store.allocate(400, Urgency::Ordinary).unwrap()).collect();
    let full = memory.occupied_bytes();
    for extent in extents {
        store.free_unpublished(extent);
    }
    let kept = 4 << 20;
    store.set_compaction_reserve(kept);
    while !store.shrink_step(ShrinkLimits { keep_bytes: 0, ..ShrinkLimits::default() }).unwrap().is_done {}
    assert_eq!(store.compaction_reserve_bytes(), kept);
    let occupied = memory.occupied_bytes();
    assert!(occupied < kept + full / 10, "{occupied} of {full} bytes are still occupied");
}

/// After a start it is not known of free space whether the disk holds room for it: what a full disk's reserve was is found among holes.
#[test]
fn what_the_disk_holds_of_free_space_is_found_on_a_full_disk_after_a_start() {
    let (memory, storage) = memory();
    let store = create(&storage);
    let mut pieces: Vec<_> = (0..300).map(|tag| new_piece(&store, 20, tag).unwrap()).collect();
    let added = pieces.iter().map(|piece| piece.extent).collect();
    publish(&store, &pieces, &SpaceChanges { added, removed: vec![] }).unwrap();
    let mut give_up = |store: &Store, nth: usize| {
        let mut index = 0;
        let (gone, left): (Vec<_>, Vec<_>) = pieces.drain(..).partition(|_| {
            index += 1;
            index % 3 == nth
        });
        pieces = left;
        let removed: Vec<Extent> = gone.iter().map(|piece| piece.extent).collect();
        publish(store, &pieces, &SpaceChanges { added: vec![], removed: removed.clone() }).unwrap();
        store.release(&removed);
        publish(store, &pieces, &SpaceChanges::default()).unwrap();
        removed.len() as u64 * 20 * PAGE_BYTES
    };
    give_up(&store, 0);
    while !store.shrink_step(ShrinkLimits { keep_bytes: 1 << 40, ..ShrinkLimits::default() }).unwrap().is_done {}
    let backed = give_up(&store, 1);
    drop(store);
    memory.set_capacity(memory.occupied_bytes());
    let store = open(&storage).unwrap().store;
    let wanted = backed / 2;
    store.reserve_level0(wanted).unwrap();
    assert!(store.level0_reserve_bytes() >= wanted);
}

/// Of free space nothing is known after a start, and most of it are holes: what the disk holds side by side serves in one piece.
#[test]
fn long_runs_that_the_disk_holds_are_found_on_a_full_disk_after_a_start() {
    let (memory, storage) = memory();
    let store = create(&storage);
    let mut pieces: Vec<_> = (0..60).map(|tag| new_piece(&store, 40, tag).unwrap()).collect();
    let added = pieces.iter().map(|piece| piece.extent).collect();
    publish(&store, &pieces, &SpaceChanges { added, removed: vec![] }).unwrap();
    let mut give_up = |is_gone: &dyn Fn(u64) -> bool| {
        let (gone, left): (Vec<_>, Vec<_>) = pieces.drain(..).partition(|piece| is_gone(piece.tag));
        pieces = left;
        let removed: Vec<Extent> = gone.iter().map(|piece| piece.extent).collect();
        publish(&store, &pieces, &SpaceChanges { added: vec![], removed: removed.clone() }).unwrap();
        store.release(&removed);
        publish(&store, &pieces, &SpaceChanges::default()).unwrap();
    };
    give_up(&|tag| tag % 2 == 0 && !(30..36).contains(&tag));
    while !store.shrink_step(ShrinkLimits { keep_bytes: 0, ..ShrinkLimits::default() }).unwrap().is_done {}
    give_up(&|tag| tag % 2 == 0);
    drop(store);
    memory.set_capacity(memory.occupied_bytes());
    let store = open(&storage).unwrap().store;
    let mut publication = store.begin_publication().unwrap();
    for _ in 0..2 {
        // There is none for what it may take.
        publication.write_block(&mut [7; 39 * PAGE_BYTES as usize], 64 * PAGE_BYTES as usize, |_, _| {}).unwrap();
    }
    store.allocate(40, Urgency::Seal).unwrap();
}

#[test]
fn free_space_of_which_nothing_is_known_is_found_again_when_who_had_taken_it_gives_it_back() {
    let (_, storage) = memory();
    let store = create(&storage);
    let taken: Vec<_> = (0..5).map(|_| store.allocate(4000, Urgency::Ordinary).unwrap()).collect();
    publish(&store, &[], &SpaceChanges { added: taken, removed: vec![] }).unwrap();
    drop(store);
    let store = open(&storage).unwrap().store;
    let mut allocator = store.allocator.lock();
    let mut taken = std::iter::from_fn(|| allocator.take_unknown(1, &store.data)).collect::<Vec<_>>().into_iter();
    let (known, last) = (taken.next().unwrap(), taken.next().unwrap());
    assert_eq!((known.unknown.len(), last.unknown.len()), (1, 1));
    allocator.free(known.extent, false);
    assert!(allocator.take_unknown(1, &store.data).is_none());
    allocator.free_again(&last);
    assert!(allocator.take_unknown(1, &store.data).is_some());
}

#[test]
fn small_holes_are_given_back_only_where_what_must_be_kept_finds_no_space() {
    let (memory, storage) = memory();
    let store = create(&storage);
    let extents: Vec<Extent> = (0..400).map(|_| store.allocate(4, Urgency::Ordinary).unwrap()).collect();
    let punched = |small_holes| {
        let mut bytes = 0;
        loop {
            let shrunk = store
                .shrink_step(ShrinkLimits { keep_bytes: 1 << 40, small_holes, ..ShrinkLimits::default() })
                .unwrap();
            bytes += shrunk.punched_bytes;
            if shrunk.is_done {
                return bytes;
            }
        }
    };
    punched(true);
    memory.set_capacity(memory.occupied_bytes());
    for extent in extents.iter().step_by(2) {
        store.free_unpublished(*extent);
    }
    // Half of the space is free, and none of it in pieces of 64 KiB.
    assert_eq!(punched(true), 0);
    assert_eq!(store.allocate(60, Urgency::Ordinary).unwrap_err().kind(), ErrorKind::NoSpace);
    store.set_compaction_reserve(1 << 20);
    assert_eq!(punched(false), 0);
    assert!(punched(true) >= 1 << 20);
    assert_eq!(store.compaction_reserve_bytes(), 1 << 20);
    assert_eq!(punched(true), 0);
    store.allocate(60, Urgency::Compaction).unwrap();
}

#[test]
fn it_works_on_real_files_direct_and_buffered() {
    for direct in [true, false] {
        let path = std::env::temp_dir().join(format!("fronddb-store-{}-{direct}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let storage: Arc<dyn Storage> = Arc::new(DiskStorage::new());
        storage.create_dir_all(&path).unwrap();
        let options = StoreOptions { direct, ..StoreOptions::default() };
        let store = Store::create(&storage, &path, &options, [1; 16], SuperblockBody::default()).unwrap();
        let mut pieces = Vec::new();
        for tag in 0..20 {
            let piece = new_piece(&store, 100, tag).unwrap();
            pieces.push(piece);
            publish(&store, &pieces, &SpaceChanges { added: vec![piece.extent], removed: vec![] }).unwrap();
        }
        let gone: Vec<Extent> = pieces.drain(..15).map(|piece| piece.extent).collect();
        publish(&store, &pieces, &SpaceChanges { added: vec![], removed: gone.clone() }).unwrap();
        store.release(&gone);
        publish(&store, &pieces, &SpaceChanges::default()).unwrap();
        let shrunk = store.shrink_step(ShrinkLimits { keep_bytes: 0, ..ShrinkLimits::default() }).unwrap();
        assert!(shrunk.punched_bytes >= 15 * 100 * 4096 && shrunk.is_done, "{shrunk:?}");
        drop(store);
        let opened = Store::open(&storage, &path, &options).unwrap();
        assert_eq!(verify(&opened.store).unwrap(), pieces);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
