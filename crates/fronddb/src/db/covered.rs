//! Covered writes and range locks: why none overlooks the other.
//!
//! A covered write takes no lock of its own, because a lock on another key keeps other *writers* away. Readers that lock
//! are another matter: who locks a range of a secondary index must meet the entries that others are writing there, or
//! there are phantoms, and two transactions at SERIALIZABLE that each miss what the other writes. Both directions cost next
//! to nothing where nobody locks ranges.
//!
//! *The reader comes later*: it finds the undecided message in the tree and waits for its writer (see
//! `lock::implicit`). *The reader comes first*: the writer sees that there are range locks in the tree and takes a point lock
//! on its key before it writes, which waits for them; a write that fails there has had no effect, and keeps none of the locks that it took.
//!
//! *At the same time* the order is kept by counters, of writes that have entered and writes that have left:
//!
//! | writer | reader |
//! |---|---|
//! | W1 enters (counts up) | R1 registers its range (counts the tree's ranges up) |
//! | W2 looks at the tree's count of ranges; if there are some: leaves, locks, enters again | R2 waits until it has seen each counter pair with nobody inside |
//! | W3 puts its messages into level 0 | R3 reads |
//! | W4 leaves | |
//!
//! W1, W2, R1 and R2 are sequentially consistent. If W2 comes before R1, then so does W1, and R2 waits for W4: R3 finds the
//! message. Otherwise W2 sees the range, and the point lock conflicts with it (V1). Nobody waits for a lock between W1
//! and W4, so R2 is short (V2); a batch of many megabytes may wait for level 0 there.
//!
//! Threads are spread over slots, and several share one. So that a reader need not wait for who comes later, a slot has two *lanes*,
//! of which one is open: R2 opens the other one, waits for the one that was open to become empty, and then does so once more.
//! A writer that saw a lane open and enters it late delays R2, and nothing else: that lane has been seen empty or will be.
//!
//! A reader that looked *before* it knew which range to lock need not look again if nobody has entered since before that look
//! ([`CoveredGate::mark`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::batch::WriteBatch;
use super::core::{TxnCore, TxnState};
use super::decide::Taken;
use super::options::Wait;
use crate::base::sync::Mutex;
use crate::base::{Result, TreeId};
use crate::lock::{Granted, Mode};

/// Threads spread over so many counters.
const SLOTS: usize = 16;
/// Looks before a waiting reader lets others run.
const SPINS: u32 = 200;

#[derive(Debug, Default)]
struct Lane {
    entered: AtomicU64,
    left: AtomicU64,
}

impl Lane {
    /// How many have been here, if nobody is inside.
    fn empty(&self) -> Option<u64> {
        // In this order: equal means that nobody was inside when `entered` was read.
        let left = self.left.load(Ordering::SeqCst);
        (self.entered.load(Ordering::SeqCst) == left).then_some(left)
    }
}

/// Who is writing covered keys just now.
#[derive(Debug, Default)]
pub(crate) struct CoveredGate {
    slots: [CachePadded<[Lane; 2]>; SLOTS],
    /// Its last bit: the lane that is open.
    open: CachePadded<AtomicUsize>,
    /// One reader opens lanes at a time.
    draining: Mutex<()>,
}

/// Held from W1 to W4; leaves when dropped.
#[derive(Debug)]
pub(crate) struct CoveredPass<'a> {
    lane: &'a Lane,
}

impl Drop for CoveredPass<'_> {
    fn drop(&mut self) {
        self.lane.left.fetch_add(1, Ordering::SeqCst);
    }
}

/// The slot of this thread.
fn home() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static HOME: Cell<usize> = const { Cell::new(usize::MAX) });
    HOME.with(|home| {
        if home.get() == usize::MAX {
            home.set(NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS);
        }
        home.get()
    })
}

impl CoveredGate {
    fn enter(&self) -> CoveredPass<'_> {
        let lane = &self.slots[home()][self.open.load(Ordering::Relaxed) & 1];
        lane.entered.fetch_add(1, Ordering::SeqCst);
        CoveredPass { lane }
    }

    /// R2: waits until all who had entered have left.
    pub(crate) fn drain(&self) {
        if self.mark().is_some() {
            return;
        }
        let _one = self.draining.lock();
        for _ in 0..2 {
            let closed = self.open.fetch_xor(1, Ordering::SeqCst) & 1;
            for slot in &self.slots {
                let mut looks = 0;
                while slot[closed].empty().is_none() {
                    looks += 1;
                    if looks < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
                }
            }
        }
    }

    /// Two equal marks say that nobody wrote from before the first to after the second; `None` while somebody does.
    pub(crate) fn mark(&self) -> Option<u64> {
        let mut sum = 0u64;
        for lane in self.slots.iter().flat_map(|slot| slot.iter()) {
            sum = sum.wrapping_add(lane.empty()?);
        }
        Some(sum)
    }
}

impl TxnCore {
    /// W1 and W2 for a batch: its covered writes may go in until the pass is dropped, and no range lock of another
    /// transaction covers them. The locks that it takes for that are added to `taken`, also when one cannot be had.
    pub(super) fn enter_covered(
        &self,
        state: &mut TxnState,
        batch: &WriteBatch,
        taken: &mut Taken,
    ) -> Result<Option<CoveredPass<'_>>> {
        if batch.covered_trees().next().is_none() {
            return Ok(None);
        }
        let locks = &self.engine.locks;
        let mut locked: SmallVec<[TreeId; 4]> = SmallVec::new();
        loop {
            let contested = |locked: &[TreeId]| -> SmallVec<[TreeId; 4]> {
                let ids = batch.covered_trees().map(|tree| tree.id);
                ids.filter(|tree| !locked.contains(tree) && locks.has_ranges(*tree)).collect()
            };
            let mut found = contested(&locked);
            if found.is_empty() {
                let pass = self.engine.covered.enter();
                found = contested(&locked);
                if found.is_empty() {
                    // Who drops a tree locks all of it and lets those inside leave: dropped before, or not until the pass is.
                    batch.covered_trees().try_for_each(|tree| tree.check())?;
                    return Ok(Some(pass));
                }
            }
            self.lock_covered(state, batch, &found, taken)?;
            locked.append(&mut found);
        }
    }

    /// Locks the keys of a batch's covered writes into these trees.
    #[cold]
    fn lock_covered(
        &self,
        state: &mut TxnState,
        batch: &WriteBatch,
        trees: &[TreeId],
        taken: &mut Taken,
    ) -> Result<()> {
        let wait = self.lock_wait(Wait::Default);
        for (index, write) in batch.writes().enumerate() {
            if write.covered && trees.contains(&write.tree()) {
                match self.writer(state).locker.lock(write.tree(), write.user_key(), Mode::Exclusive, wait) {
                    Ok(Granted::Already) => (),
                    Ok(granted) => taken.push((index, granted)),
                    Err(error) => {
                        state.failed_operation = Some(index);
                        return Err(self.lock_failed(state, error));
                    }
                }
            }
        }
        // A tree may have been dropped by whom a lock was waited for.
        batch.trees().try_for_each(|tree| tree.check())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::db::cursor::Cursor;
    use crate::db::database::Database;
    use crate::db::options::{CursorOptions, LockMode, Options, TreeOptions, TxnOptions};
    use crate::io::MemoryStorage;

    fn first_and_last(cursor: &mut Cursor, backward: bool) -> Result<bool> {
        if backward { cursor.last() } else { cursor.first() }
    }

    #[test]
    fn a_reader_that_registers_amid_a_covered_write_finds_it() -> Result<()> {
        let storage = Arc::new(MemoryStorage::new());
        let options = Options::new().create_if_missing(true).storage(Some(storage)).manual_background(true);
        let db = Database::open("/db", options)?;
        let tree = db.create_tree("t", &TreeOptions::default())?;
        let engine = db.engine();
        for backward in [false, true] {
            let writer = db.begin(TxnOptions::default())?;
            let reader = db.begin(TxnOptions::default())?;
            let mut batch = WriteBatch::new();
            batch.set_covered(true);
            batch.put(&tree, &[u8::from(backward)], b"")?;
            // W1 and W2: the range is not there yet.
            let core = writer.core().clone();
            let pass = core.enter_covered(&mut *core.active()?, &batch, &mut Taken::new())?;
            let options = CursorOptions { lock: Some(LockMode::Exclusive), ..CursorOptions::default() };
            let mut cursor = reader.cursor(&tree, options)?;
            std::thread::scope(|scope| -> Result<()> {
                let found = scope.spawn(move || {
                    let found = first_and_last(&mut cursor, backward)?;
                    Ok((found, cursor.key().to_vec()))
                });
                // R1, and the reader's first look is over.
                while !engine.locks.has_ranges(tree.id()) {
                    std::thread::yield_now();
                }
                // W3 and W4.
                core.apply_inside(&batch)?;
                drop(pass);
                while db.locks()?.iter().all(|lock| lock.waits_for.is_empty()) {
                    assert!(!found.is_finished(), "R3 has overlooked the entry");
                    std::thread::yield_now();
                }
                writer.commit()?;
                let found = found.join().unwrap_or_else(|_| Ok((false, Vec::new())));
                assert_eq!(found?, (true, vec![u8::from(backward)]));
                Ok(())
            })?;
        }
        Ok(())
    }

    #[test]
    fn a_mark_is_equal_exactly_when_nobody_has_entered() {
        let gate = CoveredGate::default();
        let before = gate.mark();
        assert!(before.is_some() && before == gate.mark());
        let pass = gate.enter();
        assert_eq!(gate.mark(), None);
        drop(pass);
        assert!(gate.mark().is_some() && gate.mark() != before);
        gate.drain();
    }

    #[test]
    fn draining_waits_for_who_has_entered() {
        let gate = CoveredGate::default();
        let pass = gate.enter();
        let left = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let drained = scope.spawn(|| {
                gate.drain();
                left.load(Ordering::SeqCst)
            });
            std::thread::yield_now();
            left.store(true, Ordering::SeqCst);
            drop(pass);
            assert!(drained.join().is_ok_and(|saw| saw));
        });
    }

    #[test]
    fn draining_takes_nobody_elses_leaving_for_that_of_who_has_entered() {
        let gate = CoveredGate::default();
        let pass = gate.enter();
        let left = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let drained = scope.spawn(|| {
                gate.drain();
                left.load(Ordering::SeqCst)
            });
            // This thread's slot, as another thread that shares it.
            for _ in 0..1000 {
                drop(gate.enter());
                std::thread::yield_now();
            }
            left.store(true, Ordering::SeqCst);
            drop(pass);
            assert!(drained.join().is_ok_and(|saw| saw));
        });
    }

    #[test]
    fn draining_ends_though_somebody_is_always_inside() {
        let gate = CoveredGate::default();
        std::thread::scope(|scope| {
            let mut pass = gate.enter();
            let drained = scope.spawn(|| gate.drain());
            while !drained.is_finished() {
                let next = gate.enter();
                pass = next;
                std::thread::yield_now();
            }
            drop(pass);
        });
    }
}
