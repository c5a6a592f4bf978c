//! Damage, a full disk, failing calls.

use std::sync::Arc;

use super::harness::{
    Piece, create, data_path, dir, is_intact, new_piece, open, options, publish, publish_with, verify, write,
};
use crate::base::page_buf::PageBuf;
use crate::base::{ErrorKind, Extent, checksum};
use crate::format::superblock::{SUPERBLOCK_BYTES, slot_offset};
use crate::io::{
    CallClass, CrashMode, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, OpenMode, Storage, read_file,
};
use crate::store::frame::FrameKind;
use crate::store::{EXTENT_PAGES_MAX, ShrinkLimits, SpaceChanges, Store, StoreOptions, Urgency};

fn shared(storage: &MemoryStorage) -> Arc<dyn Storage> {
    Arc::new(storage.clone())
}

/// A store of five generations, the last of which references two pieces.
fn grown(storage: &Arc<dyn Storage>) -> (Arc<Store>, Vec<Piece>) {
    let store = create(storage);
    let mut pieces: Vec<Piece> = Vec::new();
    for tag in 2..=5 {
        let piece = new_piece(&store, 7, tag).unwrap();
        pieces.push(piece);
        let removed: Vec<Extent> = if pieces.len() > 2 { vec![pieces.remove(0).extent] } else { vec![] };
        publish(&store, &pieces, &SpaceChanges { added: vec![piece.extent], removed: removed.clone() }).unwrap();
        store.release(&removed);
    }
    (store, pieces)
}

#[test]
fn losing_the_newest_slot_loses_nothing_but_the_newest_generation() {
    let storage = MemoryStorage::new();
    grown(&shared(&storage));
    storage.flip_bit(&data_path(), slot_offset(5) + 100, 3).unwrap();
    let opened = open(&shared(&storage)).unwrap();
    assert_eq!(opened.store.superblock().generation, 4);
    assert_eq!(opened.damaged.len(), 1);
    assert!(opened.damaged[0].to_string().contains("data.frond"), "{}", opened.damaged[0]);
    verify(&opened.store).unwrap();
    // The damaged slot is erased: if it came back, it would name space that is used again.
    let bytes = read_file(&storage, &data_path()).unwrap();
    let at = slot_offset(5) as usize;
    assert!(bytes[at..at + SUPERBLOCK_BYTES].iter().all(|byte| *byte == 0));
    let piece = new_piece(&opened.store, 3, 50).unwrap();
    publish(&opened.store, &[piece], &SpaceChanges { added: vec![piece.extent], removed: vec![] }).unwrap();
    assert_eq!(open(&shared(&storage)).unwrap().store.superblock().generation, 5);
}

#[test]
fn an_older_generation_can_be_asked_for_and_newer_ones_do_not_come_back() {
    let storage = MemoryStorage::new();
    grown(&shared(&storage));
    let older = StoreOptions { generation: Some(4), ..options() };
    let opened = Store::open(&shared(&storage), dir(), &older).unwrap();
    assert_eq!(opened.superblocks.iter().map(|one| one.generation).collect::<Vec<_>>(), [5, 4, 3, 2]);
    verify(&opened.store).unwrap();
    assert_eq!(open(&shared(&storage)).unwrap().store.superblock().generation, 4);
    let missing = StoreOptions { generation: Some(77), ..options() };
    assert_eq!(Store::open(&shared(&storage), dir(), &missing).unwrap_err().kind(), ErrorKind::Corruption);
}

/// What two generations before a lost one had may have been used again, also when nobody sees any more that there was a newer one.
#[test]
fn the_generation_before_an_older_one_that_is_taken_up_does_not_come_back() {
    for is_lost in [true, false] {
        let storage = MemoryStorage::new();
        grown(&shared(&storage));
        let candidates = || Store::candidates(&shared(&storage), dir(), &options()).unwrap().generations;
        assert_eq!(candidates(), [5, 4]);
        if is_lost {
            storage.flip_bit(&data_path(), slot_offset(5) + 100, 3).unwrap();
        }
        let taken_up = StoreOptions { generation: Some(4), ..options() };
        let opened = Store::open(&shared(&storage), dir(), &taken_up).unwrap();
        assert_eq!(candidates(), [4], "is_lost={is_lost}");
        publish(&opened.store, &[], &SpaceChanges::default()).unwrap();
        assert_eq!(candidates(), [5, 4], "is_lost={is_lost}");
    }
}

/// Superblocks of four sectors; the newest of five generations is torn, or the one before it is asked for.
#[test]
fn a_crash_while_slots_are_erased_leaves_the_generation_that_was_taken_up() {
    for is_torn in [true, false] {
        let memory = MemoryStorage::new();
        let store = create(&shared(&memory));
        for _ in 2..=5 {
            publish_with(&store, &[], &SpaceChanges::default(), vec![7; 1800]).unwrap();
        }
        drop(store);
        if is_torn {
            memory.overwrite(&data_path(), slot_offset(5), &[0; 512]).unwrap();
            memory.overwrite(&data_path(), slot_offset(5), b"FRONDSUP").unwrap();
        }
        let taken_up = StoreOptions { generation: Some(4), ..options() };
        let mut syncs = 0;
        loop {
            let (erasing, plan) = (memory.snapshot(), FaultPlan::new());
            let failing: Arc<dyn Storage> = Arc::new(FaultStorage::new(shared(&erasing), plan.clone()));
            plan.add(FaultRule::once(CallClass::Sync, syncs + 1, Fault::Error));
            let opened = Store::open(&failing, dir(), &taken_up);
            if plan.fired() == 0 {
                opened.unwrap();
                break;
            }
            opened.unwrap_err();
            for seed in 0..32 {
                let context = format!("is_torn={is_torn} syncs={syncs} seed={seed}");
                let left = shared(&erasing.crash_with(CrashMode::Torn, seed));
                let candidates = Store::candidates(&left, dir(), &options()).unwrap();
                assert!(candidates.overtaken.is_none(), "{context}: {candidates:?}");
                assert!(candidates.generations.contains(&4), "{context}: {candidates:?}");
                verify(&Store::open(&left, dir(), &taken_up).unwrap().store).unwrap();
                assert_eq!(open(&left).unwrap().store.superblock().generation, 4, "{context}");
            }
            syncs += 1;
        }
        assert!(syncs >= 3, "three slots are erased one after the other, syncs={syncs}");
    }
}

#[test]
fn a_newer_version_is_refused() {
    let storage = MemoryStorage::new();
    grown(&shared(&storage));
    let bytes = read_file(&storage, &data_path()).unwrap();
    let at = slot_offset(3) as usize;
    let mut slot = bytes[at..at + SUPERBLOCK_BYTES].to_vec();
    slot[8] = 99;
    slot[16..24].fill(0);
    let sum = checksum::block(slot_offset(3), &slot);
    slot[16..24].copy_from_slice(&sum.to_le_bytes());
    storage.overwrite(&data_path(), slot_offset(3), &slot).unwrap();
    let error = open(&shared(&storage)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedFormat);
    assert!(error.to_string().contains("got=99 known="), "{error}");
}

#[test]
fn no_valid_slot_and_a_cut_file_are_named() {
    let storage = MemoryStorage::new();
    grown(&shared(&storage));
    let cut = storage.snapshot();
    let file = cut.open(&data_path(), crate::io::OpenMode::default()).unwrap();
    file.set_len(20 * 4096).unwrap();
    let error = open(&shared(&cut)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.message().contains("was cut"), "{error}");
    for generation in 2..=5 {
        storage.flip_bit(&data_path(), slot_offset(generation), 0).unwrap();
    }
    let error = open(&shared(&storage)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
    assert!(error.message().contains("no valid superblock"), "{error}");
}

#[test]
fn every_inverted_bit_of_the_stores_own_blocks_is_noticed_or_harmless() {
    let storage = MemoryStorage::new();
    let (store, pieces) = grown(&shared(&storage));
    let own = store.stored_image().unwrap().own;
    let (root, status) = (store.superblock().body.root, store.superblock().body.status.clone());
    assert!(own.len() >= 3 && root.is_some() && !status.is_empty());
    for extent in own {
        for step in 0..extent.bytes() / 97 {
            let damaged = storage.snapshot();
            damaged.flip_bit(&data_path(), extent.offset() + step * 97, (step % 8) as u8).unwrap();
            let noticed = match open(&shared(&damaged)) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption);
                    true
                }
                Ok(opened) => {
                    let image = opened.store.stored_image().unwrap();
                    let statuses = opened.store.read_image(&status);
                    // Reads of the rest go on, and so do allocations elsewhere or nowhere.
                    assert!(is_intact(&opened.store, pieces[0]).unwrap());
                    let allocated = opened.store.allocate(4, Urgency::Ordinary).unwrap();
                    assert!(pieces.iter().all(|piece| piece.extent.end() <= allocated.start || allocated.end() <= piece.extent.start));
                    !image.damaged.is_empty() || statuses.is_err()
                }
            };
            // What lies after a frame's payload is padding.
            assert!(noticed || step * 97 >= 32, "{extent:?} step={step}");
        }
    }
}

/// A store whose bitmap of the first region is damaged: its storage, and what the store references.
fn with_damaged_bitmap() -> (MemoryStorage, Vec<Piece>) {
    let storage = MemoryStorage::new();
    let (store, pieces) = grown(&shared(&storage));
    let map = store.stored_image().unwrap().own.into_iter().find(|own| {
        let bytes = store.read(own.offset() + 6, 2).unwrap();
        bytes[..] == [1, 0]
    });
    storage.flip_bit(&data_path(), map.unwrap().offset() + 200, 1).unwrap();
    (storage, pieces)
}

/// Whether its own map can be read or not, the generation before the newest keeps its space while it may be opened again.
#[test]
fn space_of_the_generation_before_is_kept_although_its_map_is_damaged() {
    for kind in [FrameKind::Region, FrameKind::Summary] {
        let storage = MemoryStorage::new();
        let (store, mut pieces) = grown(&shared(&storage));
        let map = store.stored_image().unwrap().own.into_iter().find(|own| {
            let bytes = store.read(own.offset() + 6, 2).unwrap();
            bytes[..] == (kind as u16).to_le_bytes()
        });
        let before = pieces.clone();
        let removed = pieces.remove(0).extent;
        publish(&store, &pieces, &SpaceChanges { added: vec![], removed: vec![removed] }).unwrap();
        store.release(&[removed]);
        let generation = store.superblock().generation;
        drop(store);
        storage.flip_bit(&data_path(), map.unwrap().offset() + 40, 1).unwrap();
        let store = open(&shared(&storage)).unwrap().store;
        assert_eq!(store.superblock().generation, generation);
        for tag in 0..100 {
            new_piece(&store, 3, 1000 + tag).unwrap();
        }
        // The newest is found damaged.
        let left = shared(&storage.snapshot());
        let candidates = Store::candidates(&left, dir(), &options()).unwrap().generations;
        if candidates.contains(&(generation - 1)) {
            let older = StoreOptions { generation: Some(generation - 1), ..options() };
            let older = Store::open(&left, dir(), &older).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            assert!(before.iter().all(|piece| is_intact(&older.store, *piece).unwrap()), "{kind:?}");
        }
        assert_eq!(candidates.len(), 1 + usize::from(kind == FrameKind::Region), "{kind:?}");
        // From the next generation on it is nobody's.
        publish(&store, &pieces, &SpaceChanges::default()).unwrap();
        let room = store.statistics();
        assert!(room.used_bytes < 2 << 20, "{kind:?}: {room:?}");
    }
}

#[test]
fn a_damaged_bitmap_costs_the_free_space_of_its_region_and_nothing_else() {
    let (storage, mut pieces) = with_damaged_bitmap();
    let store = open(&shared(&storage)).unwrap().store;
    let elsewhere = new_piece(&store, 3, 1).unwrap();
    assert!(elsewhere.extent.start >= 16384, "the next region serves");
    let damage = store.map_damage();
    assert_eq!((damage.len(), damage[0].kind()), (1, ErrorKind::Corruption));
    assert!(damage[0].message().contains("data.frond") && damage[0].message().contains("index=0"), "{}", damage[0]);

    // Publications go on, also those that change the region; the first writes its bitmap anew.
    let removed = vec![pieces.remove(0).extent];
    pieces.push(elsewhere);
    publish(&store, &pieces, &SpaceChanges { added: vec![elsewhere.extent], removed: removed.clone() }).unwrap();
    store.release(&removed);
    publish(&store, &pieces, &SpaceChanges::default()).unwrap();
    assert_eq!((store.map_damage().len(), store.statistics().regions_damaged), (1, 1));
    let again = new_piece(&store, removed[0].pages, 9).unwrap();
    assert_eq!(again.extent, removed[0], "what is freed there serves again");
    pieces.push(again);
    publish(&store, &pieces, &SpaceChanges { added: vec![again.extent], removed: vec![] }).unwrap();

    let reopened = open(&shared(&storage)).unwrap().store;
    assert!(pieces.iter().all(|piece| is_intact(&reopened, *piece).unwrap()));
    assert!(reopened.stored_image().unwrap().damaged.is_empty());
    publish(&reopened, &pieces, &SpaceChanges::default()).unwrap();
    assert_eq!(reopened.statistics().regions_damaged, 0);
}

#[test]
fn what_the_log_names_in_a_region_with_a_damaged_bitmap_can_be_published() {
    let (storage, mut pieces) = with_damaged_bitmap();
    let named = Extent { start: pieces.iter().map(|piece| piece.extent.end()).max().unwrap() + 40, pages: 2 };
    for round in 0..2 {
        let store = open(&shared(&storage)).unwrap().store;
        store.mark_used(named).unwrap();
        if round == 0 {
            // As if the machine stopped before the log needed to name it no longer.
            publish(&store, &pieces, &SpaceChanges::default()).unwrap();
            continue;
        }
        let piece = Piece { extent: named, tag: 5 };
        write(&store, piece).unwrap();
        pieces.push(piece);
        publish(&store, &pieces, &SpaceChanges { added: vec![named], removed: vec![] }).unwrap();
    }
    let store = open(&shared(&storage)).unwrap().store;
    assert!(pieces.iter().all(|piece| is_intact(&store, *piece).unwrap()));
    assert_eq!(store.mark_used(named).unwrap_err().kind(), ErrorKind::Corruption, "it is the image's");
}

/// A dead value's space was used again for another's after a restart, and then the log that still knows the first is replayed.
#[test]
fn space_that_the_log_names_twice_is_not_given_back_for_the_dead_one() {
    let storage = MemoryStorage::new();
    let (store, mut pieces) = grown(&shared(&storage));
    let start = pieces.iter().map(|piece| piece.extent.end()).max().unwrap() + 40;
    let (dead, alive) = (Extent { start, pages: 4 }, Extent { start: start + 2, pages: 5 });
    drop(store);
    let store = open(&shared(&storage)).unwrap().store;
    store.mark_used(dead).unwrap();
    store.mark_used(alive).unwrap();
    let piece = Piece { extent: alive, tag: 3 };
    write(&store, piece).unwrap();
    pieces.push(piece);
    publish(&store, &pieces, &SpaceChanges { added: vec![alive], removed: vec![dead] }).unwrap();
    store.release(&[dead]);
    for _ in 0..3 {
        publish(&store, &pieces, &SpaceChanges::default()).unwrap();
    }
    let taken = new_piece(&store, 4, 9).unwrap();
    assert!(taken.extent.end() <= start || taken.extent.start >= alive.end(), "{taken:?}");
    let store = open(&shared(&storage)).unwrap().store;
    assert!(pieces.iter().all(|piece| is_intact(&store, *piece).unwrap()));
    // From then on it is like any other.
    publish(&store, &pieces[..pieces.len() - 1], &SpaceChanges { added: vec![], removed: vec![alive] }).unwrap();
}

/// The value that lives is dropped before the next opening: the image has none of it any more, whichever went first.
#[test]
fn space_that_the_log_names_twice_leaves_the_image_with_the_last_that_it_is_named_for() {
    for (dead, alive) in [((0, 4), (2, 5)), ((0, 4), (0, 7)), ((0, 4), (0, 4)), ((2, 1), (0, 7))] {
        for dead_first in [true, false] {
            let storage = MemoryStorage::new();
            let (store, pieces) = grown(&shared(&storage));
            let start = pieces.iter().map(|piece| piece.extent.end()).max().unwrap() + 40;
            let extent = |(first, pages)| Extent { start: start + first, pages };
            let (dead, alive) = (extent(dead), extent(alive));
            drop(store);
            let store = open(&shared(&storage)).unwrap().store;
            store.mark_used(dead).unwrap();
            store.mark_used(alive).unwrap();
            write(&store, Piece { extent: alive, tag: 3 }).unwrap();
            let with: Vec<Piece> = pieces.iter().copied().chain([Piece { extent: alive, tag: 3 }]).collect();
            let early = if dead_first { vec![dead] } else { vec![] };
            publish(&store, &with, &SpaceChanges { added: vec![alive], removed: early.clone() }).unwrap();
            store.release(&early);
            let again = open(&shared(&storage.snapshot())).unwrap().store;
            assert!(with.iter().all(|piece| is_intact(&again, *piece).unwrap()));
            verify(&again).unwrap();

            let late = if dead_first { vec![alive] } else { vec![alive, dead] };
            publish(&store, &pieces, &SpaceChanges { added: vec![], removed: late.clone() }).unwrap();
            store.release(&late);
            publish(&store, &pieces, &SpaceChanges::default()).unwrap();
            verify(&store).unwrap();
            let again = open(&shared(&storage)).unwrap().store;
            verify(&again).unwrap();
            again.allocate(alive.pages, Urgency::Ordinary).unwrap();
        }
    }
}

#[test]
fn a_full_disk_fails_ordinary_allocations_and_keeps_publications_possible() {
    let storage = MemoryStorage::new();
    let options = StoreOptions { reserve_bytes: 256 << 10, ..options() };
    let storage_dyn = shared(&storage);
    storage.create_dir_all(dir()).unwrap();
    let store = Store::create(&storage_dyn, dir(), &options, [1; 16], Default::default()).unwrap();
    storage.set_capacity(8 << 20);
    let mut pieces = Vec::new();
    let error = loop {
        match new_piece(&store, 16, pieces.len() as u64) {
            Ok(piece) => pieces.push(piece),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(pieces.len() > 90, "{}", pieces.len());
    let added: Vec<Extent> = pieces.iter().map(|piece| piece.extent).collect();
    publish(&store, &pieces, &SpaceChanges { added, removed: vec![] }).unwrap();
    assert!(store.poisoned().is_none());

    // A checkpoint has its reserve, then that is used up too.
    let mut urgent = Vec::new();
    while let Ok(extent) = store.allocate(16, Urgency::Compaction) {
        store.write(extent, 0, &PageBuf::zeroed(65536)).unwrap();
        urgent.push(extent);
    }
    assert!(urgent.len() >= 3, "{}", urgent.len());
    assert_eq!(store.allocate(1, Urgency::Ordinary).unwrap_err().kind(), ErrorKind::NoSpace);
    for extent in urgent {
        store.free_unpublished(extent);
    }

    // Space in small pieces serves who can use those.
    let some = store.allocate_some(200, 2, Urgency::Compaction).unwrap();
    assert!((2..200).contains(&some.pages), "{some:?}");
    store.free_unpublished(some);

    // Many publications on the full disk: each supersedes what it wrote before.
    for _ in 0..20 {
        publish(&store, &pieces, &SpaceChanges::default()).unwrap();
    }
    // Deleting makes room again.
    let removed: Vec<Extent> = pieces.drain(..pieces.len() / 2).map(|piece| piece.extent).collect();
    publish(&store, &pieces, &SpaceChanges { added: vec![], removed: removed.clone() }).unwrap();
    store.release(&removed);
    publish(&store, &pieces, &SpaceChanges::default()).unwrap();
    new_piece(&store, 16, 7).unwrap();
    verify(&store).unwrap();

    // So does a larger disk, and a crash on the full one is nothing special.
    let left = storage.crash_with(CrashMode::Lost, 1);
    verify(&open(&shared(&left)).unwrap().store).unwrap();
    storage.set_capacity(u64::MAX);
    new_piece(&store, 3000, 8).unwrap();
}

#[test]
fn a_publication_without_space_has_no_effect_and_can_be_retried() {
    let storage = MemoryStorage::new();
    let options = StoreOptions { reserve_bytes: 0, ..options() };
    storage.create_dir_all(dir()).unwrap();
    let store = Store::create(&shared(&storage), dir(), &options, [1; 16], Default::default()).unwrap();
    let piece = new_piece(&store, 4, 1).unwrap();
    storage.set_capacity(storage.occupied_bytes());
    let used = store.statistics().used_bytes;
    let changes = SpaceChanges { added: vec![piece.extent], removed: vec![] };
    let mut publication = store.begin_publication().unwrap();
    while publication.write_block(&mut [1], 4096, |_, _| {}).is_ok() {}
    assert_eq!(publication.commit(&changes, Default::default()).unwrap_err().kind(), ErrorKind::Internal);
    let before = store.statistics();
    assert_eq!((before.generation, store.poisoned().is_none()), (1, true));
    assert!(before.used_bytes <= used, "all it took is back");
    publish(&store, &[piece], &changes).unwrap();
    verify(&store).unwrap();
}

/// For whatever reason the system gives no room: what was acknowledged has to find some.
#[test]
fn the_reserve_serves_as_well_where_the_system_gives_no_room_for_another_reason_than_a_full_disk() {
    for fault in [Fault::Error, Fault::NoMemory] {
        let (memory, plan) = (MemoryStorage::new(), FaultPlan::new());
        let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(shared(&memory), plan.clone()));
        let store = create(&storage);
        store.reserve_level0(1 << 20).unwrap();
        plan.add(FaultRule::from(CallClass::Allocate, 1, fault));
        // What the file has besides.
        while store.allocate(16, Urgency::Ordinary).is_ok() {}
        let kept = store.level0_reserve_bytes();
        assert!(kept >= 1 << 20);
        for pages in [16, 16, 512] {
            let piece = store.allocate_some(pages, 16, Urgency::Seal);
            assert!(piece.is_ok(), "{fault:?} pages={pages}: {piece:?}");
        }
        assert!(store.level0_reserve_bytes() < kept / 2);
        publish(&store, &[], &SpaceChanges::default()).unwrap();
        verify(&store).unwrap();
        plan.clear();
        new_piece(&store, 3000, 1).unwrap();
    }
}

/// Fails each call of a class in turn; whatever happens, opening again finds a whole generation.
fn fail_each(class: CallClass, fault: Fault, poisons: bool) {
    for nth in 1..200 {
        let memory = MemoryStorage::new();
        let plan = FaultPlan::new();
        let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(shared(&memory), plan.clone()));
        let (store, mut pieces) = grown(&storage);
        let before = store.superblock().generation;
        plan.add(FaultRule::once(class, nth, fault));
        let mut failures = 0;
        let mut durable = before;
        for tag in 0..4 {
            let Ok(piece) = new_piece(&store, 600, tag) else {
                failures += 1;
                continue;
            };
            let with: Vec<Piece> = pieces.iter().copied().chain([piece]).collect();
            match publish(&store, &with, &SpaceChanges { added: vec![piece.extent], removed: vec![] }) {
                Ok(superblock) => {
                    pieces = with;
                    durable = superblock.generation;
                }
                Err(_) => {
                    failures += 1;
                    store.free_unpublished(piece.extent);
                }
            }
        }
        if plan.fired() == 0 {
            assert!(nth > 1, "{class:?} never happens");
            return;
        }
        // Publications have what is kept for a full disk.
        let may_go_on = class == CallClass::Allocate;
        assert!(failures > 0 || may_go_on, "{class:?} nth={nth}: a failed call was swallowed");
        if poisons {
            assert_eq!(store.sync().unwrap_err().kind(), ErrorKind::Poisoned);
        } else if store.poisoned().is_none() {
            assert!(durable > before);
        }
        let found = verify(&store).unwrap();
        assert_eq!(found, pieces);
        for seed in 0..4 {
            let left = memory.crash(seed);
            let opened = open(&shared(&left)).unwrap();
            let generation = opened.store.superblock().generation;
            assert!((durable..=durable + 1).contains(&generation), "{class:?} nth={nth} generation={generation}");
            verify(&opened.store).unwrap();
        }
    }
    panic!("{class:?} happens too often to be enumerated");
}

#[test]
fn a_failed_sync_poisons_and_reopening_recovers() {
    fail_each(CallClass::Sync, Fault::Error, true);
}

/// A panic behind the superblock leaves a generation that others do not know of. Until they know of the panic they go on.
#[test]
fn what_a_publication_that_panicked_has_written_is_not_written_over() {
    for nth in 1..=2 {
        let memory = MemoryStorage::new();
        let plan = FaultPlan::new();
        let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(shared(&memory), plan.clone()));
        let (store, pieces) = grown(&storage);
        let generation = store.superblock().generation;
        plan.add(FaultRule::once(CallClass::Sync, nth, Fault::Panic).on("data.frond"));
        let changes = SpaceChanges { added: vec![], removed: vec![] };
        let publishing = std::panic::AssertUnwindSafe(|| publish(&store, &pieces, &changes).map(drop));
        assert!(std::panic::catch_unwind(publishing).is_err(), "nth={nth}");
        for _ in 0..100 {
            new_piece(&store, 3, 99).unwrap();
        }
        let reopened = open(&shared(&memory.snapshot())).unwrap().store;
        assert_eq!(reopened.superblock().generation, generation + nth - 1, "nth={nth}");
        verify(&reopened).unwrap();
        assert!(pieces.iter().all(|piece| is_intact(&reopened, *piece).unwrap()), "nth={nth}");
    }
}

#[test]
fn a_failed_write_loses_nothing() {
    fail_each(CallClass::Write, Fault::Error, false);
    fail_each(CallClass::Write, Fault::ShortWrite, false);
    fail_each(CallClass::Write, Fault::NoSpace, false);
}

#[test]
fn a_failed_growth_loses_nothing() {
    fail_each(CallClass::Allocate, Fault::Error, false);
}

#[test]
fn a_read_that_lacks_memory_is_an_error_and_not_damage() {
    let memory = MemoryStorage::new();
    let plan = FaultPlan::new();
    let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(shared(&memory), plan.clone()));
    let (store, pieces) = grown(&storage);
    let fail = |nth| plan.add(FaultRule::from(CallClass::Read, nth, Fault::NoMemory).on("data.frond"));
    fail(1);
    let error = store.read(pieces[0].extent.offset(), 10).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.is_passing(), "{error}");
    plan.clear();
    assert!(is_intact(&store, pieces[0]).unwrap());
    // A bitmap that could not be read at first is not given up for what can wait.
    let reopened = open(&storage).unwrap().store;
    fail(1);
    assert!(reopened.allocate(1, Urgency::Ordinary).unwrap().start >= 16384, "the next region serves meanwhile");
    let removed = SpaceChanges { added: vec![], removed: vec![pieces[0].extent] };
    assert!(publish(&reopened, &pieces[1..], &removed).unwrap_err().is_passing());
    plan.clear();
    publish(&reopened, &pieces[1..], &removed).unwrap();
    assert_eq!((reopened.statistics().regions_damaged, reopened.map_damage().len()), (0, 0));
    assert!(reopened.poisoned().is_none());
    verify(&reopened).unwrap();
    for nth in 1..12 {
        plan.clear();
        fail(nth);
        match open(&storage) {
            Err(error) => assert!(error.is_passing(), "{error}"),
            Ok(opened) => {
                let _ = opened.store.allocate(1, Urgency::Ordinary);
                plan.clear();
                assert!(verify(&opened.store).is_ok());
            }
        }
    }
}

#[test]
fn space_whose_bitmap_could_not_be_read_once_serves_again_before_the_file_grows() {
    let memory = MemoryStorage::new();
    let plan = FaultPlan::new();
    let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(shared(&memory), plan.clone()));
    drop(grown(&storage));
    let store = open(&storage).unwrap().store;
    let region_pages = 16384;
    plan.add(FaultRule::from(CallClass::Read, 1, Fault::NoMemory).on("data.frond"));
    let in_first = || store.allocate(50, Urgency::Ordinary).unwrap().start < region_pages;
    assert!((0..100).all(|_| !in_first()), "nobody knows what is free there");
    plan.clear();
    assert!((0..region_pages).any(|_| in_first()), "its space is lost until something else looks there");
}

#[test]
fn a_bad_sector_is_damage_of_what_lies_there_and_a_passing_failure_is_nothing() {
    let memory = MemoryStorage::new();
    let plan = FaultPlan::new();
    let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(shared(&memory), plan.clone()));
    let (store, pieces) = grown(&storage);
    for nth in 1..8 {
        plan.add(FaultRule::once(CallClass::Read, nth, Fault::Error).on("data.frond"));
        assert!(pieces.iter().all(|piece| is_intact(&store, *piece).unwrap()));
        assert!(plan.fired() > 0, "nth={nth}");
        verify(&open(&storage).unwrap().store).unwrap();
        plan.clear();
    }
    let offset = pieces[0].extent.offset();
    plan.add(FaultRule::unreadable(offset..offset + 512).on("data.frond"));
    let error = store.read(offset + 100, 10).unwrap_err();
    let place = format!("offset={offset}");
    assert!(error.kind() == ErrorKind::Corruption && error.message().contains("data.frond"), "{error}");
    assert!(error.message().contains(&place) && error.to_string().contains("os error 5"), "{error}");
    assert!(is_intact(&store, pieces[1]).unwrap() && store.poisoned().is_none());
    // Of a file that somebody cut below us.
    let file = memory.open(&data_path(), OpenMode::default()).unwrap();
    file.set_len(offset).unwrap();
    plan.clear();
    assert_eq!(store.read(offset, 10).unwrap_err().kind(), ErrorKind::Corruption);
}

#[test]
fn a_hole_that_a_full_disk_cannot_take_is_left_until_more_is_freed_beside_it() {
    let (memory, plan) = (MemoryStorage::new(), FaultPlan::new());
    let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(shared(&memory), plan.clone()));
    let store = create(&storage);
    let extents: Vec<Extent> = (0..4).map(|_| store.allocate(400, Urgency::Ordinary).unwrap()).collect();
    let step = || store.shrink_step(ShrinkLimits { keep_bytes: 1 << 40, ..ShrinkLimits::default() });
    while !step().unwrap().is_done {}
    let full = memory.occupied_bytes();
    store.free_unpublished(extents[0]);
    plan.add(FaultRule::once(CallClass::Punch, 1, Fault::NoSpace));
    assert_eq!(step().unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(step().unwrap().is_done && memory.occupied_bytes() == full);
    store.free_unpublished(extents[2]);
    while !step().unwrap().is_done {}
    assert_eq!(full - memory.occupied_bytes(), extents[0].bytes() + extents[2].bytes());
}

#[test]
fn a_hole_or_a_cut_that_the_system_refuses_is_passed_over_and_told() {
    for fault in [Fault::Error, Fault::NoMemory] {
        let (memory, plan) = (MemoryStorage::new(), FaultPlan::new());
        let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(shared(&memory), plan.clone()));
        let store = create(&storage);
        let step = |keep_bytes| store.shrink_step(ShrinkLimits { keep_bytes, ..ShrinkLimits::default() }).unwrap();
        let first = store.allocate(100, Urgency::Ordinary).unwrap();
        let holes: Vec<Extent> = (0..3).map(|_| store.allocate(EXTENT_PAGES_MAX, Urgency::Ordinary).unwrap()).collect();
        store.allocate(1, Urgency::Ordinary).unwrap();
        let full = memory.occupied_bytes();
        holes.iter().chain([&first]).for_each(|hole| store.free_unpublished(*hole));
        plan.add(FaultRule::once(CallClass::Punch, 1, fault));
        let mut failures = 0;
        loop {
            let shrunk = step(1 << 40);
            failures += u32::from(shrunk.failure.is_some());
            if shrunk.is_done {
                break;
            }
        }
        assert_eq!((failures, store.poisoned().is_none()), (1, true));
        assert_eq!(full - memory.occupied_bytes(), 3 * holes[0].bytes(), "all but the first");

        let tail = store.allocate(4000, Urgency::Ordinary).unwrap();
        store.free_unpublished(tail);
        plan.add(FaultRule::once(CallClass::SetLen, 1, fault));
        let shrunk = step(0);
        assert!(shrunk.failure.is_some() && shrunk.cut_bytes == 0, "{shrunk:?}");
        while !step(0).is_done {}
        assert_eq!((plan.fired(), store.poisoned().is_none()), (2, true), "it is not tried again and again");
        let pieces: Vec<Piece> = (0..40).map(|tag| new_piece(&store, 4000, tag).unwrap()).collect();
        assert!(pieces.iter().all(|piece| is_intact(&store, *piece).unwrap()));
        let file = memory.open(&data_path(), OpenMode::default()).unwrap();
        pieces.iter().for_each(|piece| store.free_unpublished(piece.extent));
        assert!(step(0).cut_bytes > 0, "the next one succeeds");
        assert_eq!(file.len().unwrap(), store.statistics().file_bytes);
    }
}
