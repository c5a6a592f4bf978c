//! Models of the algorithms that rely on weak orders of memory, explored in full by `loom`.
//!
//! The schedules of `schedule_tests` run the code itself but know sequential consistency alone; here it is the other way
//! round: each model repeats the few loads and stores that matter, with the orders that the code gives them, and `loom`
//! tries everything that the memory model allows. A change of orders in the code is made in the model, too.
//!
//! Each model takes the order in question as a parameter and is run twice: as the code has it, and weakened, which
//! must fail. So it is known that the model can find the fault.

use std::sync::Arc;

use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use loom::thread;

/// The log's ring (`log/ring.rs`, R2): one frame, put in and taken out.
fn frame(header_order: Ordering) {
    loom::model(move || {
        let (header, payload) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (first, second) = (header.clone(), payload.clone());
        let writer = thread::spawn(move || {
            second.store(10, Relaxed);
            first.store(1, header_order);
        });
        if header.load(Acquire) != 0 {
            assert_eq!(payload.load(Relaxed), 10, "R2: a frame that says it is complete is not");
        }
        writer.join().expect("no panic");
    });
}

#[test]
fn a_frame_in_the_ring_that_has_a_header_is_complete() {
    frame(Release);
}

#[test]
#[should_panic(expected = "R2")]
fn a_frame_needs_its_header_to_be_stored_with_release() {
    frame(Relaxed);
}

/// The same (R1): room that a frame was taken out of, and a writer that uses it again.
fn room(consume_order: Ordering) {
    loom::model(move || {
        let (word, consumed) = (Arc::new(AtomicU64::new(10)), Arc::new(AtomicU64::new(0)));
        let (zeroed, given_back) = (word.clone(), consumed.clone());
        let taker = thread::spawn(move || {
            zeroed.store(0, Relaxed);
            given_back.store(1, consume_order);
        });
        let has_room = consumed.load(Acquire) == 1;
        if has_room {
            assert_eq!(word.load(Relaxed), 0, "R1: room that was given back is not zero");
            word.store(20, Relaxed);
        }
        taker.join().expect("no panic");
        assert_eq!(word.load(Relaxed), if has_room { 20 } else { 0 }, "R1: zeros over a frame");
    });
}

#[test]
fn room_in_the_ring_is_zero_when_it_is_given_back() {
    room(Release);
}

#[test]
#[should_panic(expected = "R1")]
fn room_in_the_ring_must_be_given_back_with_release() {
    room(Relaxed);
}

/// Orders of a leaf in the model: what it holds in its one slot.
const OLD: u64 = 1;
const CUT: u64 = 0;
const NEW: u64 = 2;

/// A memtable's leaf (`memtable/leaf.rs`, S1 and S5): a reader, while the leaf is split and the slot used again.
fn leaf(slot_order: Ordering, state_order: Ordering, looks_again: bool) {
    #[derive(Default)]
    struct Leaf {
        order: AtomicU64,
        state: AtomicU64,
        slot: AtomicU64,
        /// The message that the slot points to, by its number.
        messages: [AtomicU64; 3],
    }
    loom::model(move || {
        let leaf = Arc::new(Leaf::default());
        leaf.messages[OLD as usize].store(OLD, Relaxed);
        leaf.slot.store(OLD, Relaxed);
        leaf.order.store(OLD, Relaxed);
        let splitter = leaf.clone();
        let splitter = thread::spawn(move || {
            splitter.order.store(CUT, Release);
            splitter.state.fetch_add(2, state_order);
            splitter.messages[NEW as usize].store(NEW, Relaxed);
            splitter.slot.store(NEW, slot_order);
            splitter.order.store(NEW, Release);
        });
        loop {
            let state = leaf.state.load(Acquire);
            let order = leaf.order.load(Acquire);
            let found = (order != CUT).then(|| {
                let entry = leaf.slot.load(Acquire);
                (entry, leaf.messages[entry as usize].load(Relaxed))
            });
            if looks_again && leaf.state.load(Acquire) != state {
                continue;
            }
            assert!(found.is_none_or(|found| found == (order, order)), "S5: what the order names is in the slot");
            break;
        }
        splitter.join().expect("no panic");
    });
}

#[test]
fn a_reader_of_a_leaf_that_is_split_finds_what_its_order_names() {
    leaf(Release, Release, true);
}

#[test]
#[should_panic(expected = "S5")]
fn a_reader_of_a_leaf_has_to_look_at_its_state_again() {
    leaf(Release, Release, false);
}

#[test]
#[should_panic(expected = "S5")]
fn a_slot_of_a_leaf_must_be_stored_with_release() {
    leaf(Relaxed, Release, true);
}

/// Dead ranges (`tree/dead.rs`): a scan that begins to watch, and a write. One of them knows of the other.
fn watch(fenced: bool) {
    loom::model(move || {
        let (message, watches) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (written, known) = (message.clone(), watches.clone());
        let writer = thread::spawn(move || {
            written.store(1, Release);
            if fenced {
                fence(SeqCst);
            }
            known.load(Relaxed) != 0
        });
        watches.store(1, if fenced { SeqCst } else { Release });
        if fenced {
            fence(SeqCst);
        }
        let seen = message.load(Acquire) == 1;
        let told = writer.join().expect("no panic");
        assert!(seen || told, "neither saw the other");
    });
}

#[test]
fn a_write_beside_a_beginning_watch_is_seen_or_told() {
    watch(true);
}

#[test]
#[should_panic(expected = "neither saw the other")]
fn a_watch_needs_its_fences() {
    watch(false);
}

/// The low-water mark of transactions (`txn/states.rs`, S2): whoever sees the mark sees the flag that was set before.
fn low_water(mark_order: Ordering) {
    loom::model(move || {
        let (mark, any_passed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (moved, set) = (mark.clone(), any_passed.clone());
        let advance = thread::spawn(move || {
            set.store(1, Release);
            moved.store(5, mark_order);
        });
        if mark.load(Acquire) == 5 {
            assert_eq!(any_passed.load(Acquire), 1, "S2: an aborted id below the mark is taken for committed");
        }
        advance.join().expect("no panic");
    });
}

#[test]
fn an_aborted_id_below_the_mark_is_known_to_be_passed() {
    low_water(Release);
}

#[test]
#[should_panic(expected = "S2")]
fn the_mark_must_be_moved_with_release() {
    low_water(Relaxed);
}

/// An arena's chunk (`memtable/arena.rs`): pieces given out by an add are disjoint, also with relaxed orders.
#[test]
fn pieces_of_a_chunk_are_handed_out_once() {
    loom::model(|| {
        let used = Arc::new(AtomicUsize::new(0));
        let other = used.clone();
        let other = thread::spawn(move || other.fetch_add(8, Relaxed));
        let mine = used.fetch_add(8, Relaxed);
        assert_ne!(mine, other.join().expect("no panic"));
        assert_eq!(used.fetch_add(0, AcqRel), 16);
    });
}
