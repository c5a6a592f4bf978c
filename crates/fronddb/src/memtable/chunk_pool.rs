//! Chunks of memory for the arenas of memtables, one memtable after the other.
//!
//! Large ones stay here when a memtable is dropped, for the next: the system clears a page before it gives it, and a virtual machine has to find
//! one first, which takes a writer milliseconds for each large page (`docs/decisions/0028-chunks-stay.md`). As many stay as the memtable had that was
//! dropped last, so level 0 holds on to what it is about to need again and to no more; the others go back to the system, whichever
//! allocator the host program has. A memtable that needs more than the last one had (the first ones after a start) finds a few that a thread in the background
//! has [touched ahead](ChunkPool::prepare), so that its writers do not wait for the system. All, lent or not, are reported to the budget as [`Purpose::Level0`].
//!
//! - K1: a chunk is lent to one arena, and is in whatever state the last one left it in, or zero.

use std::sync::Arc;

use crate::base::memory::{MemoryBudget, Purpose};
use crate::base::page_buf::{ALIGNMENT, LARGE_PAGE_BYTES, PageBuf};
use crate::base::sync::Mutex;

/// Arenas of a memtable.
const ARENAS: usize = 2;
/// So many are ready for a memtable that grows, where it pays: as many as are written in the time between two calls of [`ChunkPool::prepare`].
const AHEAD: usize = ARENAS;
/// With so many lent there is enough of level 0 for [`AHEAD`] more not to count.
const LENT_MIN: usize = 2 * AHEAD;

#[derive(Debug, Default)]
struct Spare {
    chunks: Vec<PageBuf>,
    /// Large chunks of the arenas that came back last.
    had: [usize; ARENAS],
    /// Large chunks that arenas have.
    lent: usize,
}

#[derive(Debug)]
struct Shared {
    budget: MemoryBudget,
    spare: Mutex<Spare>,
}

/// See the module. Clones share what is kept.
#[derive(Debug, Clone)]
pub struct ChunkPool(Arc<Shared>);

impl ChunkPool {
    /// None yet. They are counted in `budget`.
    pub fn new(budget: &MemoryBudget) -> ChunkPool {
        ChunkPool(Arc::new(Shared { budget: budget.clone(), spare: Mutex::default() }))
    }

    /// Where they are counted.
    pub(super) fn budget(&self) -> &MemoryBudget {
        &self.0.budget
    }

    /// A chunk of `bytes`, with any content (K1).
    pub(super) fn take(&self, bytes: usize) -> PageBuf {
        if bytes == LARGE_PAGE_BYTES {
            let mut spare = self.0.spare.lock();
            spare.lent += 1;
            if let Some(taken) = spare.chunks.pop() {
                return taken;
            }
        }
        self.fresh(bytes)
    }

    /// One from the system.
    fn fresh(&self, bytes: usize) -> PageBuf {
        self.0.budget.add(Purpose::Level0, bytes);
        let fresh = if bytes.is_multiple_of(LARGE_PAGE_BYTES) { PageBuf::large(bytes) } else { PageBuf::zeroed(bytes) };
        #[cfg(test)]
        let fresh = {
            let mut used = fresh;
            used.fill(0xff); // so that tests see who counts on zeros
            used
        };
        fresh
    }

    /// Gets chunks from the system and touches all their pages, until there are some for who needs the next ones, if level 0 is growing. Called
    /// again and again, by one thread at a time.
    pub fn prepare(&self) {
        while self.is_short() {
            let mut chunk = self.fresh(LARGE_PAGE_BYTES);
            chunk.iter_mut().step_by(ALIGNMENT).for_each(|byte| *std::hint::black_box(byte) = 0);
            self.0.spare.lock().chunks.push(chunk);
        }
    }

    fn is_short(&self) -> bool {
        let spare = self.0.spare.lock();
        spare.lent >= LENT_MIN && spare.chunks.len() < AHEAD
    }

    /// All chunks of an arena.
    pub(super) fn give_back(&self, chunks: impl IntoIterator<Item = PageBuf>) {
        let (large, mut gone): (Vec<_>, Vec<_>) = chunks.into_iter().partition(|chunk| chunk.len() == LARGE_PAGE_BYTES);
        {
            let mut spare = self.0.spare.lock();
            spare.had.rotate_left(1);
            spare.had[ARENAS - 1] = large.len();
            spare.lent -= large.len();
            spare.chunks.extend(large);
            let had: usize = spare.had.iter().sum();
            let ahead = if had >= LENT_MIN { AHEAD } else { 0 };
            let kept = (had + ahead).min(spare.chunks.len());
            gone.extend(spare.chunks.drain(kept..));
        }
        self.0.budget.sub(Purpose::Level0, gone.iter().map(|chunk| chunk.len()).sum());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.budget.sub(Purpose::Level0, self.spare.get_mut().chunks.len() * LARGE_PAGE_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_stay_as_the_last_memtable_had() {
        let budget = MemoryBudget::new(1 << 30);
        let chunks = ChunkPool::new(&budget);
        let arena = |large: usize| {
            let mut all: Vec<_> = (0..large).map(|_| chunks.take(LARGE_PAGE_BYTES)).collect();
            all.push(chunks.take(LARGE_PAGE_BYTES / 2));
            all
        };
        let spare = || chunks.0.spare.lock().chunks.len();
        let (nodes, leaves, next) = (arena(3), arena(1), arena(2));
        assert_eq!(budget.used(Purpose::Level0), 6 * LARGE_PAGE_BYTES + 3 * LARGE_PAGE_BYTES / 2);
        [nodes, leaves].into_iter().for_each(|arena| chunks.give_back(arena));
        assert_eq!((spare(), budget.used(Purpose::Level0)), (4, 6 * LARGE_PAGE_BYTES + LARGE_PAGE_BYTES / 2));
        // One that stayed, not a new one.
        let taken = chunks.take(LARGE_PAGE_BYTES);
        assert_eq!((spare(), budget.used(Purpose::Level0)), (3, 6 * LARGE_PAGE_BYTES + LARGE_PAGE_BYTES / 2));
        chunks.give_back([taken]);
        chunks.give_back(next);
        assert_eq!(spare(), 3);
        // Memtables that need none.
        chunks.give_back(arena(0));
        chunks.give_back(arena(0));
        assert_eq!((spare(), budget.used(Purpose::Level0)), (0, 0));
        chunks.give_back(arena(1));
        assert_eq!((spare(), budget.used(Purpose::Level0)), (1, LARGE_PAGE_BYTES));
        drop(chunks);
        assert_eq!(budget.used(Purpose::Level0), 0);
    }

    #[test]
    fn while_a_memtable_grows_some_are_ready_and_stay_for_the_next() {
        let budget = MemoryBudget::new(1 << 30);
        let chunks = ChunkPool::new(&budget);
        let spare = || chunks.0.spare.lock().chunks.len();
        let all = || budget.used(Purpose::Level0) / LARGE_PAGE_BYTES;
        // Takes one as often, a step of the background after each; true when none came from the system at that moment.
        let grow = |arena: &mut Vec<PageBuf>, count| {
            (0..count).fold(true, |ready, _| {
                let had = all();
                arena.push(chunks.take(LARGE_PAGE_BYTES));
                let ready = ready && all() == had;
                chunks.prepare();
                ready
            })
        };
        let (mut nodes, mut leaves) = (Vec::new(), Vec::new());
        grow(&mut leaves, LENT_MIN - 1);
        assert_eq!((spare(), all()), (0, LENT_MIN - 1), "too few for more to be worth it");
        assert!(!grow(&mut nodes, 1));
        assert_eq!((spare(), all()), (AHEAD, LENT_MIN + AHEAD));
        assert!(grow(&mut leaves, 10), "a writer finds one");
        let most = LENT_MIN + 10 + AHEAD;
        assert_eq!((spare(), all()), (AHEAD, most));
        // The next memtables are as large: nothing comes from the system, and but for the first, when it is not known yet, nothing goes back.
        for kept in [most - AHEAD, most, most] {
            chunks.give_back(std::mem::take(&mut nodes));
            chunks.give_back(std::mem::take(&mut leaves));
            assert_eq!((spare(), all()), (kept, kept));
            assert!(grow(&mut nodes, 1) && grow(&mut leaves, LENT_MIN + 9));
            assert_eq!((spare(), all()), (AHEAD, most));
        }
        // Smaller ones.
        chunks.give_back(nodes);
        chunks.give_back(leaves);
        chunks.give_back([]);
        chunks.give_back([]);
        assert_eq!((spare(), all()), (0, 0));
    }
}
