//! A way to a cached block that belongs to a run: its top index, its filter.
//!
//! It refers to the block without keeping it, so the cache decides what stays. Most uses leave the cache's table alone, which
//! costs a point read more than the search in the block itself; now and then one goes through it, so that the
//! cache sees that the block is in use. While there is room for all ([`Cache::room`](crate::cache::Cache::room)), one in each phase is enough.

use crate::base::sync::Mutex;
use crate::base::{Result, prefetch};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// One use in so many goes through the cache. An index or filter survives three rounds of the cache's hand.
const USES_PER_LOOKUP: u32 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Shortcut<T> {
    block: Mutex<Weak<T>>,
    uses: AtomicU32,
    /// In which the cache was told of a use last; odd: in none.
    phase: AtomicU8,
}

impl<T> Default for Shortcut<T> {
    fn default() -> Shortcut<T> {
        Shortcut { block: Mutex::new(Weak::new()), uses: AtomicU32::new(0), phase: AtomicU8::new(1) }
    }
}

impl<T> Shortcut<T> {
    /// The block; by `lookup` in the cache when it is not there any more, and every so often, or once in this phase where there is `room`.
    #[inline]
    pub(super) fn follow(&self, room: Option<u8>, lookup: impl FnOnce() -> Result<Arc<T>>) -> Result<Arc<T>> {
        // Ordering: only how often the cache is asked depends on it.
        let is_due = match room {
            Some(phase) => self.phase.load(Ordering::Relaxed) != phase,
            None => self.uses.fetch_add(1, Ordering::Relaxed).is_multiple_of(USES_PER_LOOKUP),
        };
        if is_due {
            let block = self.remember(lookup()?)?;
            room.into_iter().for_each(|phase| self.phase.store(phase, Ordering::Relaxed));
            return Ok(block);
        }
        self.borrow(lookup)
    }

    /// The block, by `lookup` when it is not there any more. Is no use of it.
    #[inline]
    pub(super) fn borrow(&self, lookup: impl FnOnce() -> Result<Arc<T>>) -> Result<Arc<T>> {
        let known = prefetch::upgrade(&self.block.lock());
        known.map_or_else(|| self.remember(lookup()?), Ok)
    }

    /// True when the block is still there. Is no use of it.
    pub(super) fn leads_somewhere(&self) -> bool {
        self.block.lock().strong_count() > 0
    }

    fn remember(&self, block: Arc<T>) -> Result<Arc<T>> {
        *self.block.lock() = Arc::downgrade(&block);
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Error;

    #[test]
    fn the_block_is_found_while_another_keeps_it_and_looked_up_every_so_often() {
        let (shortcut, block) = (Shortcut::default(), Arc::new(7));
        let mut lookups = 0;
        for _ in 0..3 * USES_PER_LOOKUP {
            let found = shortcut.follow(None, || {
                lookups += 1;
                Ok(Arc::clone(&block))
            });
            assert_eq!(found.ok().as_deref(), Some(&7));
        }
        assert_eq!(lookups, 3);
        for phase in [2, 2, 2, 4, 4] {
            let found = shortcut.follow(Some(phase), || {
                lookups += 1;
                Ok(Arc::clone(&block))
            });
            assert_eq!(found.ok().as_deref(), Some(&7));
        }
        assert_eq!(lookups, 3 + 2, "once in each phase with room");
        assert_eq!(Arc::strong_count(&block), 1, "it keeps nothing");
        assert!(shortcut.leads_somewhere());
        drop(block);
        assert!(!shortcut.leads_somewhere());
        assert!(shortcut.follow(None, || Err(Error::internal("evicted"))).is_err());
        assert!(shortcut.follow(Some(4), || Err(Error::internal("evicted"))).is_err());
    }
}
