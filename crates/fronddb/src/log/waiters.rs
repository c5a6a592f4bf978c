//! Those who wait for a position of the log to be written, or durable.
//!
//! Each sleeps on a parker of its own, so whoever has served a group wakes just that group, and those woken go on without
//! a latch that all of them need. Of the others one is woken to lead the next pass; the rest sleep on, because they would be woken
//! only to wait again.
//!
//! A leader holds a role (a latch that says who leads) during its pass, lets go of it, and only then wakes others. Who waits
//! looks, with the queue's latch held, whether it still must ([`Turn::wait`]): somebody has the role, or has said to be about to take it,
//! and what is waited for has not been reached. So either the leader finds it in the queue, or it does not wait. Being
//! woken says only to look again.
//!
//! - T1: while anybody is in the queue, somebody outside has the [`Turn`] to wake them: who has the role, is about to take it, or was woken to take it.
//!   What is waited for may be reached without the role (by whoever writes or syncs beside the leaders), or fail, so who was woken to lead may
//!   return without it: it wakes others then, as a leader does. Who waits anew has seen that somebody has the role, and so
//!   has the turn no longer.

use std::sync::Arc;

use crate::base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{Mutex, Parker, Unparker};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    queue: Mutex<Vec<Waiting>>,
    /// How many waited when the last pass ended, served or not, and who led it.
    crowd: AtomicUsize,
    /// How many are in the queue.
    count: AtomicUsize,
}

#[derive(Debug)]
struct Waiting {
    /// What it waits for: the position that must be reached.
    end: u64,
    unparker: Unparker,
    /// Set before it is woken to lead.
    is_next: Arc<AtomicBool>,
}

/// Somebody's part in waking others: nothing to do for most, who lead nothing. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    waiters: &'a Waiters,
    /// The position up to which those who wait are served.
    reached: &'a AtomicU64,
    has: bool,
}

impl Turn<'_> {
    /// Sleeps until woken, if `must_wait`, which says that somebody has the role or is about to take it.
    pub(super) fn wait(&mut self, end: u64, must_wait: impl FnOnce() -> bool) {
        let mut queue = self.waiters.queue.lock();
        if must_wait() {
            let parker = Parker::new();
            let is_next = Arc::new(AtomicBool::new(false));
            queue.push(Waiting { end, unparker: parker.unparker().clone(), is_next: Arc::clone(&is_next) });
            self.waiters.counted(&queue);
            drop(queue);
            parker.park();
            self.has = is_next.load(Ordering::Acquire);
        }
    }

    /// Called by who has just taken the role, or says that it is about to.
    pub(super) fn begin(&mut self) {
        self.has = true;
    }

    /// Called by who has let go of the role. Wakes those who are served, and one who is to lead next.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.has) {
            self.waiters.served(self.reached.load(Ordering::Acquire));
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Waiters {
    /// Of one who comes to wait for something, and has no turn yet.
    pub(super) fn turn<'a>(&'a self, reached: &'a AtomicU64) -> Turn<'a> {
        Turn { waiters: self, reached, has: false }
    }

    /// Wakes all who wait for no more than `reached`, and one of the others.
    pub(super) fn served(&self, reached: u64) {
        let mut queue = self.queue.lock();
        // Ordering: a hint.
        self.crowd.store(queue.len() + 1, Ordering::Relaxed);
        let next = queue.iter().position(|waiting| waiting.end > reached).map(|at| queue.remove(at));
        let served: Vec<Waiting> = queue.extract_if(.., |waiting| waiting.end <= reached).collect();
        self.counted(&queue);
        drop(queue);
        next.iter().for_each(|next| next.is_next.store(true, Ordering::Release));
        next.iter().chain(&served).for_each(|waiting| waiting.unparker.unpark());
    }

    /// How many threads were here when the last pass ended.
    pub(super) fn crowd(&self) -> usize {
        self.crowd.load(Ordering::Relaxed)
    }

    /// How many wait, as a hint.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn counted(&self, queue: &[Waiting]) {
        self.count.store(queue.len(), Ordering::Relaxed);
    }

    /// Wakes all.
    pub(super) fn wake_all(&self) {
        let mut queue = self.queue.lock();
        let all = std::mem::take(&mut *queue);
        self.counted(&queue);
        drop(queue);
        all.iter().for_each(|waiting| waiting.unparker.unpark());
    }
}
