//! Working memory that a thread keeps from one call to the next.
//!
//! A thread that is ending gives up what it keeps, and goes on to run destructors that may be an embedder's and call the engine once more.
//! They get new memory then.

use std::cell::{Cell, RefCell};
use std::thread::LocalKey;

/// Takes what the thread keeps.
#[inline]
pub fn take<T: Default>(slot: &'static LocalKey<Cell<T>>) -> T {
    slot.try_with(Cell::take).unwrap_or_default()
}

/// Keeps `value` for the next time.
#[inline]
pub fn keep<T>(slot: &'static LocalKey<Cell<T>>, value: T) {
    let _ = slot.try_with(|kept| kept.set(value));
}

/// Lends what the thread keeps; a new one where that is lent already.
#[inline]
pub fn lend<T, R>(slot: &'static LocalKey<RefCell<T>>, new: impl FnOnce() -> T, use_it: impl FnOnce(&mut T) -> R) -> R {
    let mut use_it = Some(use_it);
    let lent = slot.try_with(|kept| match kept.try_borrow_mut() {
        Ok(mut kept) => use_it.take().map(|use_it| use_it(&mut kept)),
        Err(_) => None,
    });
    match (lent, use_it) {
        (Ok(Some(answer)), _) => answer,
        (_, Some(use_it)) => use_it(&mut new()),
        _ => unreachable!("what was used has answered"),
    }
}
