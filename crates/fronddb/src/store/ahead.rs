//! Reads that are asked for before they are needed.
//!
//! Direct reads have no kernel that reads ahead. So whoever reads in order asks for its next *window* ([`Store::ask`]) and
//! goes on with the one it has while a reader thread ([`Store::serve_ask`]) reads. When it comes to the window, it takes it
//! ([`Asked::take`]). And who needs several windows at once asks for all but one, and reads that.
//!
//! - A1: a window is read once, by a reader or by who asked: what no reader has begun is taken back and read in place. So
//!   nobody waits for a reader that is busy or does not exist, and without readers (manual mode) all reads are made in
//!   the caller's thread, in the order in which they are needed.
//! - A2: who asks brings the memory, counted on the budget: that of the window before, where it suffices. It is free with the
//!   window or, when nobody takes it, with the end of the read.
//! - A3: an error is told to who takes the window, and to nobody else.
//! - A4: dropping an [`Asked`] does not wait. A read in progress ends in its reader; the space may be another's by then, and
//!   nobody looks at what was read.
//!
//! Latches: `asks` and an ask's `stage`, leaves, never both; no I/O under them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{ReadBuf, Store};
use crate::base::memory::{Charge, MemoryBudget, Purpose};
use crate::base::page_buf::PageBuf;
use crate::base::sync::{Condvar, Mutex};
use crate::base::{BlockPtr, Error, Result, scratch};

/// Windows up to this size leave their memory to the thread's next one.
const SPARE_BYTES_MAX: usize = 64 << 10;

/// Consecutive bytes of the data file, on the budget as long as they live.
#[derive(Debug)]
pub struct Window {
    range: Range<u64>,
    stored: ReadBuf,
    _charge: Charge,
}

impl Window {
    /// The part of the file that it holds.
    pub fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// The stored block, if it is in it.
    pub fn block(&self, ptr: BlockPtr) -> Option<&[u8]> {
        let start = usize::try_from(ptr.offset.checked_sub(self.range.start)?).ok()?;
        self.stored.get(start..start.checked_add(ptr.stored as usize)?)
    }

    fn read(mut self, store: &Store) -> Result<Window> {
        store.fill(&mut self.stored, self.range.start)?;
        Ok(self)
    }

    fn into_memory(mut self) -> PageBuf {
        std::mem::take(&mut self.stored.buf)
    }
}

thread_local! {
    /// Memory of the last small window that the thread gave up, for its next: short scans come one after the other.
    static SPARE: Cell<PageBuf> = Cell::default();
}

impl Drop for Window {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.stored.buf);
        if (1..=SPARE_BYTES_MAX).contains(&memory.capacity()) {
            // A thread that ends has no use for it.
            scratch::keep(&SPARE, memory);
        }
    }
}

/// What is wanted, shared by who asked and the reader.
#[derive(Debug)]
struct Ask {
    range: Range<u64>,
    stage: Mutex<Stage>,
    done: Condvar,
}

#[derive(Debug)]
enum Stage {
    /// Not begun: the memory for it.
    Empty(Window),
    /// Being read, or taken.
    Away,
    Done(Result<Window>),
}

impl Ask {
    fn go_on(&self, stage: Stage) -> Stage {
        std::mem::replace(&mut *self.stage.lock(), stage)
    }
}

/// The asks of a store that no reader has begun, oldest first.
#[derive(Debug, Default)]
pub(super) struct AskQueue {
    asks: Mutex<Asks>,
    asked: Condvar,
}

#[derive(Debug, Default)]
struct Asks {
    waiting: VecDeque<Arc<Ask>>,
    is_stopped: bool,
    /// The most that have waited at once.
    #[cfg(test)]
    most: usize,
}

impl AskQueue {
    /// No reader is to begin it.
    fn withdraw(&self, ask: &Arc<Ask>) {
        self.asks.lock().waiting.retain(|other| !Arc::ptr_eq(other, ask));
    }
}

/// A window that was asked for. Dropping it gives it up.
#[derive(Debug)]
pub struct Asked {
    store: Arc<Store>,
    ask: Arc<Ask>,
}

impl Asked {
    /// The part of the file that was asked for.
    pub fn range(&self) -> &Range<u64> {
        &self.ask.range
    }

    /// The window, once it is read.
    ///
    /// # Errors
    /// As [`Store::read_window`].
    pub fn take(self) -> Result<Window> {
        self.store.ask_queue.withdraw(&self.ask);
        let mut stage = self.ask.stage.lock();
        loop {
            match std::mem::replace(&mut *stage, Stage::Away) {
                Stage::Empty(window) => {
                    drop(stage);
                    return window.read(&self.store);
                }
                Stage::Away => self.ask.done.wait(&mut stage),
                Stage::Done(outcome) => return outcome,
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.store.ask_queue.withdraw(&self.ask);
    }
}

impl Store {
    /// Memory for a part of the data file: that of `old`, if it suffices.
    fn window(&self, range: &Range<u64>, old: Option<Window>, budget: &MemoryBudget) -> Result<Window> {
        let old = old.map_or_else(|| scratch::take(&SPARE), Window::into_memory);
        let stored = self.buffer(range.start, (range.end - range.start) as usize, old)?;
        let charge = Charge::new(budget, Purpose::Work, stored.memory_bytes());
        Ok(Window { range: range.clone(), stored, _charge: charge })
    }

    /// Reads a part of the data file.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub fn read_window(&self, range: &Range<u64>, budget: &MemoryBudget) -> Result<Window> {
        self.window(range, None, budget)?.read(self)
    }

    /// Asks for a part of the data file that is soon needed, to be read into the memory of `old`, if it suffices.
    ///
    /// # Errors
    /// `Corruption` when it is outside the file.
    pub fn ask(self: &Arc<Store>, range: &Range<u64>, old: Option<Window>, budget: &MemoryBudget) -> Result<Asked> {
        let stage = Mutex::new(Stage::Empty(self.window(range, old, budget)?));
        let ask = Arc::new(Ask { range: range.clone(), stage, done: Condvar::new() });
        let mut asks = self.ask_queue.asks.lock();
        asks.waiting.push_back(ask.clone());
        #[cfg(test)]
        {
            asks.most = asks.most.max(asks.waiting.len());
        }
        drop(asks);
        self.ask_queue.asked.notify_one();
        Ok(Asked { store: self.clone(), ask })
    }

    /// A reader's turn: waits for an ask and reads its window. False, at once, after [`Store::stop_readers`].
    pub fn serve_ask(&self) -> bool {
        let mut asks = self.ask_queue.asks.lock();
        while !asks.is_stopped && asks.waiting.is_empty() {
            self.ask_queue.asked.wait(&mut asks);
        }
        let next = if asks.is_stopped { None } else { asks.waiting.pop_front() };
        drop(asks);
        let Some(ask) = next else { return false };
        // Who asked may have come for it in between, and reads it then.
        if let Stage::Empty(window) = ask.go_on(Stage::Away) {
            let read = AssertUnwindSafe(|| window.read(self));
            let outcome = catch_unwind(read).unwrap_or_else(|_| Err(Error::internal("panic in a reader thread")));
            ask.go_on(Stage::Done(outcome));
            ask.done.notify_one();
        }
        true
    }

    /// True when there are asks that no reader has begun.
    #[cfg(test)]
    pub(crate) fn has_asks(&self) -> bool {
        !self.ask_queue.asks.lock().waiting.is_empty()
    }

    /// The most asks that no reader had begun, at one time since this was asked last.
    #[cfg(test)]
    pub(crate) fn most_asks(&self) -> usize {
        std::mem::take(&mut self.ask_queue.asks.lock().most)
    }

    /// Lets the readers go, for good.
    pub fn stop_readers(&self) {
        self.ask_queue.asks.lock().is_stopped = true;
        self.ask_queue.asked.notify_all();
    }
}
