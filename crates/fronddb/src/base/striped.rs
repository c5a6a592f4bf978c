//! What many threads change often and few look at: one of each for some threads, on cache lines of its own, so that
//! threads on different processors do not take the lines from each other.

use crossbeam_utils::CachePadded;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads beyond so many share.
const STRIPES: usize = 8;

/// The number of this thread, from 0 in the order in which threads ask.
#[inline]
pub fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// Several `T`, of which each thread uses one.
#[derive(Debug, Default)]
pub struct Striped<T>([CachePadded<T>; STRIPES]);

impl<T> Striped<T> {
    /// This thread's.
    #[inline]
    pub fn here(&self) -> &T {
        &self.0[thread_number() % STRIPES]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|stripe| &**stripe)
    }
}

/// Keeps a `T` alive, as an `Arc` does. How many do is counted in several places where it comes from a [`Spread`].
#[derive(Debug)]
pub struct Kept<T: ?Sized>(Arc<Place<T>>);

#[derive(Debug)]
struct Place<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Clone for Kept<T> {
    #[inline]
    fn clone(&self) -> Kept<T> {
        Kept(self.0.clone())
    }
}

impl<T: ?Sized> Deref for Kept<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.0
    }
}

impl<T: ?Sized> From<Arc<T>> for Kept<T> {
    fn from(shared: Arc<T>) -> Kept<T> {
        Kept(Arc::new(Place(shared)))
    }
}

/// What many threads keep and let go often.
#[derive(Debug)]
pub struct Spread<T: ?Sized>(Striped<Kept<T>>);

impl<T: ?Sized> Spread<T> {
    /// Of `shared`, which is dropped when this and all that was made of it are.
    pub fn new(shared: &Arc<T>) -> Spread<T> {
        Spread(Striped(std::array::from_fn(|_| CachePadded::new(Kept::from(shared.clone())))))
    }

    /// One for this thread to keep, wherever it is dropped.
    #[inline]
    pub fn get(&self) -> Kept<T> {
        self.0.here().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_thread_stays_with_its_own_and_nothing_is_lost() {
        let striped = Striped::<AtomicU64>::default();
        let add = || {
            let here = striped.here();
            here.fetch_add(1, Ordering::Relaxed);
            assert!(std::ptr::eq(here, striped.here()));
        };
        std::thread::scope(|scope| (0..3 * STRIPES).for_each(|_| drop(scope.spawn(add))));
        let counts: Vec<u64> = striped.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert_eq!(counts.iter().sum::<u64>(), 3 * STRIPES as u64);
        assert!(counts.iter().filter(|count| **count > 0).count() > 1, "{counts:?}");
    }

    #[test]
    fn what_is_spread_is_dropped_with_the_last_of_all() {
        let shared = Arc::new(7);
        let spread = Spread::new(&shared);
        let (one, other) = (spread.get(), std::thread::scope(|scope| scope.spawn(|| spread.get()).join().ok()));
        drop(spread);
        assert_eq!((*one, other.as_deref().copied()), (7, Some(7)));
        assert_eq!(Arc::strong_count(&shared), 3);
        drop((one, other));
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
