//! Live snapshots, and the horizon below which compaction may forget history.
//!
//! A snapshot is a commit number in a *slot*, an atomic word on a cache line of its own. To acquire
//! one is to find a free slot, first where this thread found one the last time, and to write the visible number into it.
//!
//! # Why the horizon is safe
//!
//! The computing thread must not overlook a snapshot that is just being acquired. It
//!
//! 1. reads the visible number `F` and raises the *floor* to it, then
//! 2. reads all slots; the horizon is the least of them and `F`.
//!
//! The acquiring thread
//!
//! 1. writes the visible number `v` into its slot, then
//! 2. reads the floor; when it is above `v`, it writes a newer visible number and reads the floor again.
//!
//! All four steps are sequentially consistent. If the acquirer's reading of the floor comes before the raising, its
//! slot was written before all slots are read, so the horizon is at most `v`. If it comes after, the acquirer
//! sees a floor of `F` or more and ends with `v >= F`, and the horizon is at most `F`. Either way no snapshot that
//! is handed out lies below a horizon that was computed (**N1**). A retry ends, because the visible number that
//! was raised to is there to be read. A slot's older value during a retry only makes a horizon lower.
//!
//! Slots come in blocks, each of twice as many as the one before, which are added when all are taken and never removed.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::OnceLock;

use crossbeam_utils::CachePadded;

use super::status::StatusTable;
use crate::base::CommitNumber;
use crate::base::striped::thread_number;
use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::format::{Retention, Statuses};

/// Of the first block; few in tests of schedules, so that a look at all of them is not most of the schedule.
const BLOCK_SLOTS: usize = if cfg!(feature = "schedules") { 4 } else { 64 };
/// For more snapshots than there is memory for.
const BLOCKS_MAX: usize = 24;
/// A slot's value when nobody has it; else it holds the snapshot's number plus one.
const FREE: u64 = 0;

#[derive(Debug, Default)]
struct Slot {
    value: AtomicU64,
    /// The registry's clock when it was acquired.
    since: AtomicU64,
}

type Block = Box<[Arc<CachePadded<Slot>>]>;

/// The slots of all blocks, by number.
#[derive(Debug)]
struct Slots {
    blocks: [OnceLock<Block>; BLOCKS_MAX],
    /// How many there are.
    count: AtomicUsize,
}

impl Slots {
    fn new() -> Slots {
        let slots = Slots { blocks: std::array::from_fn(|_| OnceLock::new()), count: AtomicUsize::new(0) };
        slots.add(0);
        slots
    }

    /// Adds a block where there are `count` slots.
    fn add(&self, count: usize) {
        if let Some(block) = self.blocks.get(place(count).0) {
            let more = count + BLOCK_SLOTS;
            block.get_or_init(|| (0..more).map(|_| Arc::default()).collect());
            self.count.fetch_max(count + more, Ordering::AcqRel);
        }
    }

    fn get(&self, number: usize) -> Option<&Arc<CachePadded<Slot>>> {
        let (block, within) = place(number);
        self.blocks.get(block)?.get()?.get(within)
    }

    fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.blocks.iter().map_while(OnceLock::get).flatten().map(|slot| &***slot)
    }
}

/// The block of a slot, and which of its slots it is.
fn place(number: usize) -> (usize, usize) {
    let block = (number / BLOCK_SLOTS + 1).ilog2() as usize;
    (block, number - BLOCK_SLOTS * ((1 << block) - 1))
}

/// The registry of live snapshots.
#[derive(Debug)]
pub struct Snapshots {
    visible: Arc<AtomicU64>,
    floor: CachePadded<AtomicU64>,
    clock_micros: CachePadded<AtomicU64>,
    slots: Slots,
}

/// A live snapshot; released when dropped. Share it in an `Arc` where several need it.
#[derive(Debug)]
pub struct Snapshot {
    number: CommitNumber,
    slot: Arc<CachePadded<Slot>>,
}

impl Snapshot {
    /// It sees the commits up to and including this one.
    #[inline]
    pub fn number(&self) -> CommitNumber {
        self.number
    }
}

impl Drop for Snapshot {
    #[inline]
    fn drop(&mut self) {
        self.slot.value.store(FREE, Ordering::Release);
    }
}

thread_local! {
    /// The slot that this thread had last.
    static LAST: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Where this thread found a slot the last time. A schedule that is tried may not depend on those before.
fn last_slot() -> Option<usize> {
    if cfg!(feature = "schedules") { None } else { LAST.try_with(Cell::get).ok().flatten() }
}

impl Snapshots {
    /// The registry of snapshots of what `statuses` makes visible.
    pub fn new(statuses: &StatusTable) -> Snapshots {
        Snapshots {
            visible: statuses.visible_cell(),
            floor: CachePadded::default(),
            clock_micros: CachePadded::default(),
            slots: Slots::new(),
        }
    }

    /// A snapshot of everything that is committed now.
    #[inline]
    pub fn acquire(&self) -> Snapshot {
        self.acquire_pausing(|| {})
    }

    /// Acquires; `pause` is called between the steps, for tests to do something there.
    fn acquire_pausing(&self, mut pause: impl FnMut()) -> Snapshot {
        let mut value = self.visible.load(Ordering::SeqCst);
        pause();
        let slot = self.take_slot(value);
        pause();
        while self.floor.load(Ordering::SeqCst) > value {
            value = self.visible.load(Ordering::SeqCst);
            pause();
            slot.value.store(value + 1, Ordering::SeqCst);
            pause();
        }
        slot.since.store(self.clock_micros.load(Ordering::Relaxed), Ordering::Relaxed);
        Snapshot { number: CommitNumber(value), slot }
    }

    fn take_slot(&self, value: u64) -> Arc<CachePadded<Slot>> {
        let last = last_slot();
        loop {
            let count = self.slots.count.load(Ordering::Acquire);
            let first = last.unwrap_or_else(|| thread_number() % BLOCK_SLOTS) % count;
            for number in (first..count).chain(0..first) {
                let Some(slot) = self.slots.get(number) else { continue };
                if slot.value.load(Ordering::Relaxed) == FREE
                    && slot.value.compare_exchange(FREE, value + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
                {
                    if last != Some(number) {
                        let _ = LAST.try_with(|last| last.set(Some(number)));
                    }
                    return slot.clone();
                }
            }
            self.slots.add(count);
        }
    }

    /// Raises the floor, then reads the live numbers. See the header.
    fn survey(&self) -> (u64, Vec<CommitNumber>) {
        let visible = self.visible.load(Ordering::SeqCst);
        self.floor.fetch_max(visible, Ordering::SeqCst);
        let values = self.slots.iter().map(|slot| slot.value.load(Ordering::SeqCst));
        (visible, values.filter(|value| *value != FREE).map(|value| CommitNumber(value - 1)).collect())
    }

    /// Every snapshot that is live now or acquired later is at or above this number.
    pub fn horizon(&self) -> CommitNumber {
        let (visible, live) = self.survey();
        live.into_iter().fold(CommitNumber(visible), CommitNumber::min)
    }

    /// What a compaction, or a leaf of level 0 that forgets, must keep if it starts now. The last of the snapshots is the visible number; every
    /// version committed above it has to be kept, for snapshots acquired meanwhile.
    pub fn retention<'a>(&self, statuses: &'a dyn Statuses) -> Retention<'a> {
        let (visible, live) = self.survey();
        let visible = CommitNumber(visible);
        let mut snapshots: Vec<CommitNumber> = live.into_iter().filter(|number| *number < visible).collect();
        snapshots.push(visible);
        snapshots.sort_unstable();
        snapshots.dedup();
        Retention { snapshots, statuses }
    }

    /// How many snapshots are live.
    pub fn live(&self) -> usize {
        self.slots.iter().filter(|slot| slot.value.load(Ordering::Relaxed) != FREE).count()
    }

    /// Tells the time for [`Snapshots::oldest_age_micros`]; to be called from time to time. Ages are as coarse as the
    /// calls, which spares each acquisition the reading of a clock.
    pub fn tick(&self, now_micros: u64) {
        self.clock_micros.store(now_micros, Ordering::Relaxed);
    }

    /// The age of the oldest live snapshot, in microseconds; `None` when there is none.
    pub fn oldest_age_micros(&self) -> Option<u64> {
        let live = self.slots.iter().filter(|slot| slot.value.load(Ordering::Acquire) != FREE);
        let oldest = live.map(|slot| slot.since.load(Ordering::Relaxed)).min()?;
        Some(self.clock_micros.load(Ordering::Relaxed).saturating_sub(oldest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Lsn, Result};

    #[test]
    fn slots_have_places_in_blocks_that_double() {
        let places: Vec<_> = [0, 1, 2, 3, 4, 6, 7].iter().map(|block| place(block * BLOCK_SLOTS)).collect();
        let half = |block, slots| (block, slots * BLOCK_SLOTS);
        assert_eq!(places, [half(0, 0), half(1, 0), half(1, 1), half(2, 0), half(2, 1), half(2, 3), half(3, 0)]);
    }

    #[test]
    fn a_thread_finds_a_slot_at_once_however_many_are_taken() {
        let snapshots = Snapshots::new(&StatusTable::new());
        let open: Vec<Snapshot> = (0..1000).map(|_| snapshots.acquire()).collect();
        assert_eq!((snapshots.live(), snapshots.slots.count.load(Ordering::Relaxed)), (1000, 31 * BLOCK_SLOTS));
        let own = snapshots.acquire().slot.clone();
        for _ in 0..10 {
            assert!(Arc::ptr_eq(&own, &snapshots.acquire().slot), "where it was the last time");
        }
        drop(open);
        assert_eq!(snapshots.live(), 0);
    }

    #[test]
    fn a_horizon_computed_amid_an_acquisition_is_not_above_the_snapshot() -> Result<()> {
        // Bit n: commit and compute a horizon in the n-th pause.
        for pattern in 0u32..64 {
            let table = StatusTable::new();
            let snapshots = Snapshots::new(&table);
            let mut horizon = CommitNumber(0);
            let mut failed = None;
            let mut pauses = 0;
            let snapshot = snapshots.acquire_pausing(|| {
                if pauses < 6 && pattern >> pauses & 1 == 1 {
                    failed = table.commit_with(table.begin(), |_| Ok(Lsn(0))).err();
                    horizon = snapshots.horizon();
                }
                pauses += 1;
            });
            failed.map_or(Ok(()), Err)?;
            assert!(snapshot.number() >= horizon, "N1: pattern={pattern:b}");
            table.commit_with(table.begin(), |_| Ok(Lsn(0)))?;
            assert!((horizon..=snapshot.number()).contains(&snapshots.horizon()), "N1: pattern={pattern:b}");
        }
        Ok(())
    }
}
