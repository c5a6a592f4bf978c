//! The callbacks of the user, each call of which lies within the life of the database: none begins once [`super::Database::close`]
//! has returned, and it waits for those under way.
//!
//! Transactions and cursors that outlive the closing hold the engine, and a wait for a lock that the closing cancels ends in the
//! thread that waits, at any time after. What a callback refers to may be gone by then.
//!
//! - C1: who calls back is in `running` from before to after; nobody enters who finds `is_closed`. A closing from within a
//!   callback does not wait for that one.

use std::sync::Arc;
use std::thread::ThreadId;

use super::options::Options;
use crate::base::sync::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    running: Vec<ThreadId>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Callbacks(Arc<(Mutex<State>, Condvar)>);

impl Callbacks {
    /// The options with callbacks that are called no more once these are closed.
    pub(crate) fn bind(&self, options: &Options) -> Options {
        let mut bound = options.clone();
        if let Some(callback) = bound.on_lock_wait.take() {
            let own = self.clone();
            bound.on_lock_wait = Some(Arc::new(move |waiter, blocker| own.call((), || callback(waiter, blocker))));
        }
        if let Some(callback) = bound.on_lock_wait_end.take() {
            let own = self.clone();
            bound.on_lock_wait_end = Some(Arc::new(move |waiter| own.call((), || callback(waiter))));
        }
        if let Some(callback) = bound.on_deadlock.take() {
            let own = self.clone();
            let no_preference = std::cmp::Ordering::Equal;
            bound.on_deadlock = Some(Arc::new(move |one, other| own.call(no_preference, || callback(one, other))));
        }
        if let Some(callback) = bound.on_log.take() {
            let own = self.clone();
            bound.on_log = Some(Arc::new(move |level, message: &str| own.call((), || callback(level, message))));
        }
        bound
    }

    /// What `callback` says; `otherwise` once these are closed.
    fn call<T>(&self, otherwise: T, callback: impl FnOnce() -> T) -> T {
        let (state, _) = &*self.0;
        {
            let mut state = state.lock();
            if state.is_closed {
                return otherwise;
            }
            state.running.push(std::thread::current().id());
        }
        let _running = Running(self);
        callback()
    }

    /// Whether this thread is in a callback.
    pub(crate) fn is_called_here(&self) -> bool {
        self.0.0.lock().running.contains(&std::thread::current().id())
    }

    /// Lets no further call begin and waits for those under way in other threads.
    pub(crate) fn close(&self) {
        let (state, ended) = &*self.0;
        let own = std::thread::current().id();
        let mut state = state.lock();
        state.is_closed = true;
        while state.running.iter().any(|thread| *thread != own) {
            ended.wait(&mut state);
        }
    }
}

/// A call under way; also a panic ends it.
struct Running<'a>(&'a Callbacks);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let (state, ended) = &*self.0.0;
        let own = std::thread::current().id();
        let mut state = state.lock();
        if let Some(at) = state.running.iter().rposition(|thread| *thread == own) {
            state.running.swap_remove(at);
        }
        drop(state);
        ended.notify_all();
    }
}
