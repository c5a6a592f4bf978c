//! A disk that gives what it has, and keeps that although it was not enough.

use std::path::Path;
use std::sync::Arc;

use super::harness::{create, data_path, new_piece, publish, verify};
use crate::base::space::PAGE_BYTES;
use crate::base::{ErrorKind, Extent};
use crate::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};
use crate::store::{ShrinkLimits, SpaceChanges, Store, Urgency};

fn file_bytes(memory: &MemoryStorage) -> u64 {
    memory.files().iter().find(|(path, _)| *path == data_path()).unwrap().1
}

fn lacks(store: &Store, pages: u32) {
    assert_eq!(store.allocate(pages, Urgency::Ordinary).unwrap_err().kind(), ErrorKind::NoSpace);
}

/// Disk and store, with a hole of 1000 pages before the end of the file and room on the disk for 100.
fn with_hole(plan: &FaultPlan) -> (MemoryStorage, Arc<Store>) {
    let memory = MemoryStorage::new();
    let store = create(&(Arc::new(FaultStorage::new(Arc::new(memory.clone()), plan.clone())) as Arc<dyn Storage>));
    let hole = store.allocate(1000, Urgency::Ordinary).unwrap();
    store.allocate(1, Urgency::Ordinary).unwrap();
    store.free_unpublished(hole);
    while !store.shrink_step(ShrinkLimits { keep_bytes: 1 << 40, ..ShrinkLimits::default() }).unwrap().is_done {}
    memory.set_capacity(memory.occupied_bytes() + 100 * PAGE_BYTES);
    (memory, store)
}

#[test]
fn a_file_that_could_not_grow_ends_where_the_store_thinks_that_it_ends() {
    let memory = MemoryStorage::new();
    let store = create(&(Arc::new(memory.clone()) as Arc<dyn Storage>));
    memory.set_capacity(memory.occupied_bytes() + (6 << 20));
    let mut pages = 4000;
    let mut pieces = Vec::new();
    while pages > 0 {
        match new_piece(&store, pages, u64::from(pages)) {
            Ok(piece) => pieces.push(piece),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace);
                pages /= 2;
            }
        }
        let known = store.statistics().file_bytes;
        assert_eq!((memory.occupied_bytes(), file_bytes(&memory)), (known, known), "pages={pages}");
    }
    let stored: u64 = pieces.iter().map(|piece| piece.extent.bytes()).sum();
    assert!(stored > 5 << 20, "of 6 MiB only {stored} bytes serve");
    let added = pieces.iter().map(|piece| piece.extent).collect();
    publish(&store, &pieces, &SpaceChanges { added, removed: vec![] }).unwrap();
    verify(&store).unwrap();
}

#[test]
fn what_the_log_names_beyond_a_file_that_cannot_grow_keeps_nothing_of_the_disk() {
    let memory = MemoryStorage::new();
    let store = create(&(Arc::new(memory.clone()) as Arc<dyn Storage>));
    let occupied = memory.occupied_bytes();
    memory.set_capacity(occupied + 100 * PAGE_BYTES);
    store.mark_used(Extent { start: file_bytes(&memory) / PAGE_BYTES, pages: 400 }).unwrap();
    assert_eq!((memory.occupied_bytes(), file_bytes(&memory)), (occupied, store.statistics().file_bytes));
}

#[test]
fn a_hole_for_which_the_disk_has_not_enough_keeps_nothing_of_it() {
    let (memory, store) = with_hole(&FaultPlan::new());
    let occupied = memory.occupied_bytes();
    for pages in [1000, 400, 101] {
        lacks(&store, pages);
        assert_eq!(memory.occupied_bytes(), occupied, "pages={pages}");
    }
    store.allocate(100, Urgency::Ordinary).unwrap();
}

#[test]
fn what_the_disk_does_not_take_back_is_found_again() {
    let plan = FaultPlan::new();
    let (memory, store) = with_hole(&plan);
    plan.add(FaultRule::from(CallClass::Punch, 1, Fault::Error));
    lacks(&store, 400);
    assert_eq!(memory.free_bytes(Path::new("/")).unwrap(), 0, "it is in the hole");
    for _ in 0..10 {
        store.allocate(10, Urgency::Ordinary).unwrap();
    }
    lacks(&store, 10);
}
