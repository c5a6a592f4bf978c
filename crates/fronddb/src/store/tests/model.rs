//! Random use of the store, with crashes, against a model that knows which pages are whose.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::harness::{Piece, create, described, new_piece, open, pages_of, publish, take, verify};
use crate::base::random::Random;
use crate::base::{ErrorKind, Extent};
use crate::io::{MemoryStorage, Storage};
use crate::store::{ShrinkLimits, SpaceChanges, Store};

struct Model {
    storage: MemoryStorage,
    store: Arc<Store>,
    rng: Random,
    next_tag: u64,
    /// Allocated, in no publication.
    unpublished: Vec<Piece>,
    /// In the durable generation, and not going to be removed by the next.
    published: Vec<Piece>,
    /// In the durable generation; the next publication removes them.
    leaving: Vec<Piece>,
    /// Removed or leaving, and still to be released.
    unreleased: Vec<Extent>,
    /// Pages that the durable generation and the one before reference, their maps included.
    protected: BTreeSet<u64>,
    image_before: BTreeSet<u64>,
}

fn shared(storage: &MemoryStorage) -> Arc<dyn Storage> {
    Arc::new(storage.clone())
}

impl Model {
    fn new(seed: u64) -> Model {
        let storage = MemoryStorage::new();
        let store = create(&shared(&storage));
        Model {
            storage,
            store,
            rng: Random(seed),
            next_tag: 0,
            unpublished: Vec::new(),
            published: Vec::new(),
            leaving: Vec::new(),
            unreleased: Vec::new(),
            protected: BTreeSet::new(),
            image_before: BTreeSet::new(),
        }
    }

    fn allocate(&mut self) {
        let pages = match self.rng.below(20) {
            0 => 1 + self.rng.below(3000) as u32,
            1..=4 => 1 + self.rng.below(200) as u32,
            _ => 1 + self.rng.below(12) as u32,
        };
        self.next_tag += 1;
        let piece = new_piece(&self.store, pages, self.next_tag).unwrap();
        let taken = [&self.unpublished, &self.published, &self.leaving];
        for other in taken.into_iter().flatten() {
            let apart = piece.extent.end() <= other.extent.start || other.extent.end() <= piece.extent.start;
            assert!(apart, "{piece:?} overlaps {other:?}");
        }
        let clash = self.protected.range(piece.extent.start..piece.extent.end()).next();
        assert_eq!(clash, None, "{piece:?} overlaps a page of a generation that must stay intact");
        for waiting in &self.unreleased {
            let apart = piece.extent.end() <= waiting.start || waiting.end() <= piece.extent.start;
            assert!(apart, "{piece:?} overlaps {waiting:?}, which a reader holds");
        }
        self.unpublished.push(piece);
    }

    fn publish(&mut self) {
        let added = (0..self.unpublished.len())
            .filter_map(|_| if self.rng.below(3) > 0 { take(&mut self.rng, &mut self.unpublished) } else { None });
        let added: Vec<Piece> = added.collect();
        let removed = std::mem::take(&mut self.leaving);
        self.published.extend(&added);
        let changes = SpaceChanges {
            added: added.iter().map(|piece| piece.extent).collect(),
            removed: removed.iter().map(|piece| piece.extent).collect(),
        };
        publish(&self.store, &self.published, &changes).unwrap();
        self.note_image();
    }

    fn note_image(&mut self) {
        let image: BTreeSet<u64> = pages_of(&self.store.stored_image().unwrap().extents).into_iter().collect();
        self.protected = &image | &self.image_before;
        self.image_before = image;
    }

    fn crash(&mut self) {
        let generation = self.store.superblock().generation;
        self.storage = self.storage.crash(self.rng.next());
        let opened = open(&shared(&self.storage)).unwrap();
        assert_eq!(opened.store.superblock().generation, generation, "nothing was in flight");
        self.store = opened.store;
        self.unpublished.clear();
        self.published.append(&mut self.leaving);
        self.unreleased.clear();
        let mut pieces = verify(&self.store).unwrap();
        pieces.sort_unstable();
        self.published.sort_unstable();
        assert_eq!(pieces, self.published);
        let image = self.store.stored_image().unwrap();
        let statistics = self.store.statistics();
        // A2: what is used is the image and the slots, before anything is taken.
        assert_eq!(statistics.used_bytes, statistics.image_bytes);
        assert_eq!(statistics.image_bytes / 4096, pages_of(&image.extents).len() as u64 + 16);
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..=44 => self.allocate(),
            45..=54 => {
                if let Some(piece) = take(&mut self.rng, &mut self.unpublished) {
                    self.store.free_unpublished(piece.extent);
                }
            }
            55..=69 => {
                if let Some(piece) = take(&mut self.rng, &mut self.published) {
                    self.leaving.push(piece);
                    self.unreleased.push(piece.extent);
                }
            }
            70..=79 => {
                if let Some(extent) = take(&mut self.rng, &mut self.unreleased) {
                    self.store.release(&[extent]);
                }
            }
            80..=91 => self.publish(),
            92..=94 => {
                let keep_bytes = self.rng.below(4) << 20;
                self.store.shrink_step(ShrinkLimits { step_bytes: 4 << 20, keep_bytes, small_holes: true }).unwrap();
            }
            95..=97 => {
                for piece in self.unpublished.iter().chain(&self.published).chain(&self.leaving) {
                    assert!(super::harness::is_intact(&self.store, *piece).unwrap(), "{piece:?}");
                }
            }
            _ => self.crash(),
        }
    }
}

#[test]
fn no_page_is_handed_out_twice_and_every_generation_is_what_it_says() {
    for seed in 0..60 {
        let mut model = Model::new(seed);
        for _ in 0..250 {
            model.step();
        }
        model.publish();
        model.crash();
        assert!(model.store.poisoned().is_none(), "seed {seed}: {:?}", model.store.poisoned());
    }
}

#[test]
fn all_space_comes_back_when_everything_is_removed() {
    let mut model = Model::new(77);
    for _ in 0..400 {
        model.allocate();
    }
    model.publish();
    let full = model.store.statistics().used_bytes;
    for piece in std::mem::take(&mut model.unpublished) {
        model.store.free_unpublished(piece.extent);
    }
    model.leaving = std::mem::take(&mut model.published);
    let extents: Vec<Extent> = model.leaving.iter().map(|piece| piece.extent).collect();
    model.store.release(&extents);
    model.publish();
    assert!(model.store.statistics().used_bytes > full / 2, "the generation before stays intact");
    model.publish();
    model.publish();
    let statistics = model.store.statistics();
    assert!(statistics.used_bytes < 1 << 20, "{statistics:?}");
    // What waits is what the last publication superseded: a root, a status image, a summary, some bitmaps.
    assert!(statistics.pending_bytes <= 40 << 12, "{statistics:?}");

    let before = model.storage.occupied_bytes();
    while !model.store.shrink_step(ShrinkLimits { keep_bytes: 0, ..ShrinkLimits::default() }).unwrap().is_done {}
    let after = model.storage.occupied_bytes();
    assert!(after < 4 << 20 && before > 10 * after, "before={before} after={after}");
    model.crash();
    assert_eq!(described(&model.store, &model.store.superblock()).unwrap(), vec![]);
}

#[test]
fn threads_allocate_write_and_publish_at_once() {
    let storage = MemoryStorage::new();
    let store = create(&shared(&storage));
    let published = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u64)
            .map(|worker| {
                let store = &store;
                scope.spawn(move || {
                    let mut rng = Random(worker);
                    let mut kept = Vec::new();
                    for round in 0..300 {
                        let piece = new_piece(store, 1 + rng.below(40) as u32, worker << 32 | round).unwrap();
                        if rng.below(3) == 0 { store.free_unpublished(piece.extent) } else { kept.push(piece) }
                    }
                    kept
                })
            })
            .collect();
        for _ in 0..20 {
            publish(&store, &[], &SpaceChanges::default()).unwrap();
        }
        let kept = workers.into_iter().flat_map(|worker| worker.join().unwrap());
        kept.collect::<Vec<Piece>>()
    });
    let changes = SpaceChanges { added: published.iter().map(|piece| piece.extent).collect(), removed: vec![] };
    publish(&store, &published, &changes).unwrap();
    assert_eq!(verify(&store).unwrap().len(), published.len());
}

#[test]
fn a_contradiction_is_refused_without_effect() {
    let storage = MemoryStorage::new();
    let store = create(&shared(&storage));
    let piece = new_piece(&store, 4, 1).unwrap();
    let twice = SpaceChanges { added: vec![piece.extent, piece.extent], removed: vec![] };
    assert_eq!(publish(&store, &[piece], &twice).unwrap_err().kind(), ErrorKind::Internal);
    let free = Extent { start: piece.extent.end() + 200, pages: 3 };
    let nothing = SpaceChanges { added: vec![], removed: vec![free] };
    assert_eq!(publish(&store, &[piece], &nothing).unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(store.superblock().generation, 1);
    publish(&store, &[piece], &SpaceChanges { added: vec![piece.extent], removed: vec![] }).unwrap();
    verify(&store).unwrap();
    store.free_unpublished(piece.extent);
    assert_eq!(store.allocate(1, crate::store::Urgency::Ordinary).unwrap_err().kind(), ErrorKind::Poisoned);
    verify(&store).unwrap();
}
