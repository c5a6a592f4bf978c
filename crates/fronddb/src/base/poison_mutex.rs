//! A mutex that a panic closes for good, nearly as the standard library's does: what its holder was in the middle of, nobody takes up. (It also closes when it
//! is only used on the way of a panic: then the database is poisoned in any case.)
//!
//! A panic poisons the database (`db/engine.rs`, E2), but on its way there it lets go of one latch after the other, and whoever waits
//! for one may go on before the database knows. The latches of the long steps, which other threads wait for and which leave something
//! durable, are of this kind; the error is of the kind `Internal`.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use super::sync::{Mutex, MutexGuard};
use super::{Error, Result};

/// See the module.
#[derive(Debug, Default)]
pub struct PoisonMutex<T> {
    inner: Mutex<T>,
    is_poisoned: AtomicBool,
}

/// Held while it lives.
#[derive(Debug)]
pub struct PoisonGuard<'a, T> {
    // Dropped behind `drop`, so that the next holder sees what that has set.
    inner: MutexGuard<'a, T>,
    is_poisoned: &'a AtomicBool,
}

impl<T> PoisonMutex<T> {
    /// A free one.
    pub fn new(value: T) -> PoisonMutex<T> {
        PoisonMutex { inner: Mutex::new(value), is_poisoned: AtomicBool::new(false) }
    }

    /// Waits for it.
    ///
    /// # Errors
    /// `Internal` when a holder has panicked.
    pub fn lock(&self) -> Result<PoisonGuard<'_, T>> {
        self.guard(self.inner.lock())
    }

    /// Takes it unless somebody else holds it.
    ///
    /// # Errors
    /// As [`PoisonMutex::lock`].
    pub fn try_lock(&self) -> Result<Option<PoisonGuard<'_, T>>> {
        self.inner.try_lock().map(|inner| self.guard(inner)).transpose()
    }

    fn guard<'a>(&'a self, inner: MutexGuard<'a, T>) -> Result<PoisonGuard<'a, T>> {
        if self.is_poisoned.load(Ordering::Relaxed) {
            return Err(Error::internal("a step that changes the tree ended by a panic"));
        }
        Ok(PoisonGuard { inner, is_poisoned: &self.is_poisoned })
    }
}

impl<T> Deref for PoisonGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for PoisonGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for PoisonGuard<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.is_poisoned.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(feature = "schedules")))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::base::ErrorKind;

    #[test]
    fn a_panic_closes_it_for_good() {
        let mutex = PoisonMutex::new(1);
        *mutex.lock().unwrap() += 1;
        let held = mutex.lock().unwrap();
        assert!(mutex.try_lock().unwrap().is_none());
        drop(held);
        assert_eq!(mutex.try_lock().unwrap().as_deref(), Some(&2));
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _held = mutex.lock().unwrap();
            panic!("with the latch held");
        }));
        assert!(ended.is_err());
        assert_eq!(mutex.lock().map(drop).unwrap_err().kind(), ErrorKind::Internal);
        assert_eq!(mutex.try_lock().map(drop).unwrap_err().kind(), ErrorKind::Internal);
    }
}
