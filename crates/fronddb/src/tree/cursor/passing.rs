//! Keys that a cursor passes over because they have no visible row: how many, and whether it is to stop among them.
//!
//! Who moves a cursor looks for himself, between two rows, whether he was cancelled. Only where there are very many keys and no row
//! between them the cursor looks: every [`PASSED_PER_LOOK`] keys, and in each leaf range. Who only takes samples may say how many such
//! keys are too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Current, TreeCursor};
use crate::base::{Error, ErrorKind, Result};

/// Keys without a row after which a cursor looks whether it is to stop.
const PASSED_PER_LOOK: u64 = 256;

/// What a cursor knows of that.
#[derive(Debug, Default)]
pub(super) struct Passing {
    keys: u64,
    keys_max: Option<u64>,
    stop: Option<Arc<AtomicBool>>,
}

impl Passing {
    /// A key without a row.
    #[inline]
    pub(super) fn key(&mut self) -> Result<()> {
        self.keys += 1;
        if self.keys.is_multiple_of(PASSED_PER_LOOK) { self.look() } else { Ok(()) }
    }

    /// It has passed over more than it is to.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.keys_max.is_some_and(|most| self.keys > most)
    }

    /// `Cancelled` if it is to stop.
    pub(super) fn look(&self) -> Result<()> {
        self.stop.as_deref().map_or(Ok(()), check_stop)
    }
}

/// For who goes on where he could stop at a row: `Cancelled` while `stop` is set.
pub fn check_stop(stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) {
        return Err(Error::new(ErrorKind::Cancelled, "the scan was cancelled between two rows"));
    }
    Ok(())
}

impl TreeCursor {
    /// From now on it gives up with `Cancelled`, and is at no row, where it passes over many keys without one while `stop` is set.
    pub fn stop_when(&mut self, stop: Arc<AtomicBool>) {
        self.passing.stop = Some(stop);
    }

    /// From now on it gives up, and is at no row, when it has passed over more than `keys` keys without a row in all.
    pub fn give_up_after(&mut self, keys: u64) {
        self.passing.keys_max = Some(keys);
    }

    /// At no row, and nowhere to go on from.
    pub(super) fn give_up(&mut self) -> bool {
        self.end_chain(false);
        (self.current, self.leaf) = (Current::None, None);
        false
    }

    /// True when it has given up: that it is at no row says nothing.
    pub fn gave_up(&self) -> bool {
        self.passing.is_over()
    }

    /// The key at which it did: from where it began to this one there is no visible row.
    pub fn gave_up_at(&self) -> Option<&[u8]> {
        self.gave_up().then_some(self.key.as_slice())
    }

    /// Keys that the cursor has passed over because they had no visible row.
    pub fn rows_passed_over(&self) -> u64 {
        self.passing.keys
    }
}
