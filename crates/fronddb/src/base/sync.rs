//! The locks that the engine uses, named in one place so that a schedule checker can stand in for them.

pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
