//! Those who wait for a position of the log to be written, or durable.
//!
//! Each sleeps on a parker of its own, so whoever has served a group wakes just that group, and those woken go on without
//! a latch that all of them need. Of the others one is woken to lead the next pass; the rest sleep on, because they would be woken
//! only to wait again.
//!
//! A leader holds a role (a latch that says who leads) during its pass, lets go of it, and only then calls
//! [`Waiters::served`]. Who waits looks, with the queue's latch held, whether it still must ([`Waiters::wait`]): somebody has the role
//! and what is waited for has not been reached. So either the leader finds it in the queue, or it does not wait. Being
//! woken says only to look again.

use crate::base::sync::{Mutex, Parker, Unparker};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    queue: Mutex<Vec<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    /// What it waits for: the position that must be reached.
    end: u64,
    unparker: Unparker,
}

impl Waiters {
    /// Sleeps until woken, if `must_wait`.
    pub(super) fn wait(&self, end: u64, must_wait: impl FnOnce() -> bool) {
        let mut queue = self.queue.lock();
        if must_wait() {
            let parker = Parker::new();
            queue.push(Waiting { end, unparker: parker.unparker().clone() });
            drop(queue);
            parker.park();
        }
    }

    /// Wakes all who wait for no more than `reached`, and one of the others.
    pub(super) fn served(&self, reached: u64) {
        let mut queue = self.queue.lock();
        let next = queue.iter().position(|waiting| waiting.end > reached).map(|at| queue.remove(at));
        let served: Vec<Waiting> = queue.extract_if(.., |waiting| waiting.end <= reached).collect();
        drop(queue);
        next.iter().chain(&served).for_each(|waiting| waiting.unparker.unpark());
    }

    /// Wakes all.
    pub(super) fn wake_all(&self) {
        let all = std::mem::take(&mut *self.queue.lock());
        all.iter().for_each(|waiting| waiting.unparker.unpark());
    }
}
