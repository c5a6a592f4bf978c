//! The facade's stand-ins that `shuttle` schedules, with the interfaces of what they stand in for.
//!
//! Time does not pass for them: a wait with a limit ends only when it is woken. All atomic operations are sequentially
//! consistent, whatever they ask for; what relies on weaker orders has a model of its own for `loom`.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

pub use shuttle::hint::spin_loop;
pub use shuttle::sync::atomic;
pub use shuttle::thread::yield_now;

/// A panic in a test has failed it already.
fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

fn tried<T>(result: TryLockResult<T>) -> Option<T> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[derive(Default)]
pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

/// The guard is taken out only for the length of a wait.
pub struct MutexGuard<'a, T: ?Sized>(Option<shuttle::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    #[track_caller]
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub fn into_inner(self) -> T {
        unpoisoned(self.0.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(unpoisoned(self.0.lock())))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        tried(self.0.try_lock()).map(|guard| MutexGuard(Some(guard)))
    }

    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.0.get_mut())
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("taken out only for the length of a wait")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("taken out only for the length of a wait")
    }
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(shuttle::sync::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.0 = guard.0.take().map(|inner| unpoisoned(self.0.wait(inner)));
    }

    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _limit: Duration) {
        self.wait(guard);
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Wakes the owner of the parker that it belongs to.
#[derive(Clone, Debug)]
pub struct Unparker(Arc<(Mutex<bool>, Condvar)>);

impl Unparker {
    pub fn unpark(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_one();
    }
}

#[derive(Debug)]
pub struct Parker(Unparker);

impl Parker {
    #[allow(clippy::new_without_default, reason = "as what it stands in for")]
    pub fn new() -> Parker {
        Parker(Unparker(Arc::new((Mutex::new(false), Condvar::new()))))
    }

    pub fn unparker(&self) -> &Unparker {
        &self.0
    }

    pub fn park(&self) {
        let (token, given) = &*self.0.0;
        let mut token = token.lock();
        while !*token {
            given.wait(&mut token);
        }
        *token = false;
    }
}

#[derive(Default)]
pub struct RwLock<T: ?Sized>(shuttle::sync::RwLock<T>);

pub use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

impl<T> RwLock<T> {
    #[track_caller]
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(shuttle::sync::RwLock::new(value))
    }

    pub fn into_inner(self) -> T {
        unpoisoned(self.0.into_inner())
    }
}

impl<T: ?Sized> RwLock<T> {
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        unpoisoned(self.0.read())
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        unpoisoned(self.0.write())
    }

    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        tried(self.0.try_read())
    }

    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        tried(self.0.try_write())
    }

    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.0.get_mut())
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The pointer itself is `arc_swap`'s; before each use of it others may go on.
pub struct ArcSwap<T> {
    inner: arc_swap::ArcSwap<T>,
    point: atomic::AtomicU64,
}

impl<T> ArcSwap<T> {
    pub fn new(value: Arc<T>) -> ArcSwap<T> {
        ArcSwap { inner: arc_swap::ArcSwap::new(value), point: atomic::AtomicU64::new(0) }
    }

    pub fn from_pointee(value: T) -> ArcSwap<T> {
        ArcSwap::new(Arc::new(value))
    }

    pub fn load(&self) -> arc_swap::Guard<Arc<T>> {
        self.point.load(atomic::Ordering::SeqCst);
        self.inner.load()
    }

    pub fn load_full(&self) -> Arc<T> {
        self.point.load(atomic::Ordering::SeqCst);
        self.inner.load_full()
    }

    pub fn store(&self, value: Arc<T>) {
        self.point.fetch_add(1, atomic::Ordering::SeqCst);
        self.inner.store(value);
    }
}

impl<T: fmt::Debug> fmt::Debug for ArcSwap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
