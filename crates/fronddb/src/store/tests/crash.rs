//! Every point at which a crash can hit a sequence of publications, and what opening makes of it.

use std::sync::Arc;

use super::harness::{Piece, create, dir, new_piece, open, options, publish, verify};
use crate::base::random::Random;
use crate::format::SuperblockBody;
use crate::io::{CrashMode, MemoryStorage, Storage, TraceStorage};
use crate::store::{ShrinkLimits, SpaceChanges, Store, StoreOptions};

/// Publishes `generations` generations of random content; returns after how many events each was durable.
fn run(traced: &TraceStorage, seed: u64, generations: u64) -> Vec<(usize, u64)> {
    let storage: Arc<dyn Storage> = Arc::new(traced.clone());
    let mut rng = Random(seed);
    let store = create(&storage);
    let mut durable = vec![(traced.events().len(), 1)];
    let mut pieces: Vec<Piece> = Vec::new();
    for generation in 2..=generations {
        let mut changes = SpaceChanges::default();
        for tag in 0..rng.below(6) {
            let piece = new_piece(&store, 1 + rng.below(30) as u32, generation << 32 | tag).unwrap();
            changes.added.push(piece.extent);
            pieces.push(piece);
        }
        for _ in 0..rng.below(4) {
            let old = pieces.iter().position(|piece| !changes.added.contains(&piece.extent));
            if let Some(index) = old {
                changes.removed.push(pieces.remove(index).extent);
            }
        }
        publish(&store, &pieces, &changes).unwrap();
        durable.push((traced.events().len(), generation));
        store.release(&changes.removed);
        if rng.below(3) == 0 {
            store.shrink_step(ShrinkLimits { step_bytes: 1 << 20, keep_bytes: 0, small_holes: true }).unwrap();
        }
    }
    durable
}

fn check(left: &MemoryStorage, durable: u64, what: &str) {
    let storage: Arc<dyn Storage> = Arc::new(left.clone());
    if durable == 0 && !Store::exists(&*storage, dir()).unwrap() {
        return;
    }
    let as_left = left.snapshot();
    let opened = open(&storage).unwrap_or_else(|error| panic!("{what}: {error}"));
    let generation = opened.store.superblock().generation;
    assert!((durable..=durable + 1).contains(&generation), "{what}: generation={generation} durable={durable}");
    verify(&opened.store).unwrap_or_else(|error| panic!("{what}: {error}"));
    // S1: the generation before is intact as well.
    if generation > 1 {
        let storage: Arc<dyn Storage> = Arc::new(as_left);
        let older = StoreOptions { generation: Some(generation - 1), ..options() };
        let older = Store::open(&storage, dir(), &older).unwrap_or_else(|error| panic!("{what}, older: {error}"));
        verify(&older.store).unwrap_or_else(|error| panic!("{what}, older: {error}"));
    }
    // And life goes on: the next generation too is whole, and the one it came from stays.
    let pieces = verify(&opened.store).unwrap();
    let piece = new_piece(&opened.store, 5, 1).unwrap();
    let all: Vec<Piece> = pieces.iter().copied().chain([piece]).collect();
    publish(&opened.store, &all, &SpaceChanges { added: vec![piece.extent], removed: vec![] }).unwrap();
    verify(&opened.store).unwrap();
}

#[test]
fn a_crash_at_any_call_leaves_the_last_generation_or_the_one_in_flight() {
    for seed in 0..4 {
        let traced = TraceStorage::new(&MemoryStorage::new());
        let durable = run(&traced, seed, 8);
        let mut replay = traced.replay();
        loop {
            let at = replay.done();
            let floor = durable.iter().rev().find(|(events, _)| *events <= at).map_or(0, |(_, generation)| *generation);
            for mode in CrashMode::ALL {
                for draw in 0..2 {
                    let draw = seed << 40 | (at as u64) << 8 | draw;
                    let left = replay.storage().crash_with(mode, draw);
                    check(&left, floor, &format!("seed={seed} event={at} mode={mode:?} draw={draw}"));
                }
            }
            if !replay.step() {
                break;
            }
        }
    }
}

#[test]
fn crashes_in_long_histories_with_many_seeds() {
    for seed in 100..130 {
        let traced = TraceStorage::new(&MemoryStorage::new());
        let durable = run(&traced, seed, 30);
        let mut rng = Random(seed);
        let mut replay = traced.replay();
        while replay.step() {
            if rng.below(20) == 0 {
                let at = replay.done();
                let floor = durable.iter().rev().find(|(events, _)| *events <= at);
                let floor = floor.map_or(0, |(_, generation)| *generation);
                let draw = rng.next();
                check(&replay.storage().crash(draw), floor, &format!("seed={seed} event={at} draw={draw}"));
            }
        }
    }
}

#[test]
fn what_a_crash_and_another_crash_leave_is_still_whole() {
    for seed in 0..40 {
        let mut storage = MemoryStorage::new();
        let mut rng = Random(seed);
        let mut pieces: Vec<Piece> = Vec::new();
        let mut store = create(&(Arc::new(storage.clone()) as Arc<dyn Storage>));
        for round in 0..12 {
            for _ in 0..rng.below(3) {
                let piece = new_piece(&store, 1 + rng.below(50) as u32, round).unwrap();
                pieces.push(piece);
                let gone = (pieces.len() > 4).then(|| pieces.remove(0));
                let removed: Vec<_> = gone.iter().map(|piece| piece.extent).collect();
                publish(&store, &pieces, &SpaceChanges { added: vec![piece.extent], removed: removed.clone() })
                    .unwrap();
                store.release(&removed);
            }
            // Space that the crash frees by itself.
            new_piece(&store, 1 + rng.below(50) as u32, 99).unwrap();
            storage = storage.crash(rng.next());
            store = open(&(Arc::new(storage.clone()) as Arc<dyn Storage>)).unwrap().store;
            let mut found = verify(&store).unwrap();
            found.sort_unstable();
            pieces.sort_unstable();
            assert_eq!(found, pieces, "seed={seed} round={round}");
        }
    }
}

#[test]
fn creation_is_all_or_nothing() {
    let traced = TraceStorage::new(&MemoryStorage::new());
    let storage: Arc<dyn Storage> = Arc::new(traced.clone());
    create(&storage);
    let mut replay = traced.replay();
    while replay.step() {
        for draw in 0..20 {
            let left: Arc<dyn Storage> = Arc::new(replay.storage().crash(draw));
            left.create_dir_all(dir()).unwrap();
            if Store::exists(&*left, dir()).unwrap() {
                assert_eq!(open(&left).unwrap().store.superblock().uuid, [9; 16]);
            } else {
                Store::create(&left, dir(), &options(), [8; 16], SuperblockBody::default()).unwrap();
            }
        }
    }
}
