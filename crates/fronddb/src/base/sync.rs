//! Locks and atomics that the engine's concurrent algorithms use, named in one place so that a scheduler can stand
//! in for them.
//!
//! Normally these are `parking_lot`'s locks, `crossbeam`'s parker, `arc_swap`'s pointer and the standard library's atomics, re-exported: the
//! facade costs nothing. With the feature `schedules`, which is for tests alone, they are [`scheduled`]: each use is then a
//! point at which another thread may be let go on, and a test tries many orders of steps (`docs/testing.md`). Such a
//! build works inside of a test of schedules only.
//!
//! Counters that nothing depends on (statistics, memory) stay the standard library's.

#[cfg(not(feature = "schedules"))]
mod direct {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic;
    pub use std::thread::yield_now;

    pub use arc_swap::ArcSwap;
    pub use crossbeam_utils::sync::{Parker, Unparker};
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
}
#[cfg(not(feature = "schedules"))]
pub use direct::*;

#[cfg(feature = "schedules")]
#[expect(missing_docs, reason = "as in `parking_lot`, `arc_swap` and the standard library")]
pub mod scheduled;
#[cfg(feature = "schedules")]
pub use scheduled::*;
