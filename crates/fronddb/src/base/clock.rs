//! Time is reached through a [`Clock`] only, so that a whole database runs deterministically in a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A monotonic clock: the machine's, or one that a test moves by hand. Clones share their time.
#[derive(Debug, Clone)]
pub struct Clock(Inner);

#[derive(Debug, Clone)]
enum Inner {
    Machine(Instant),
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's monotonic clock, counted from now.
    pub fn machine() -> Clock {
        Clock(Inner::Machine(Instant::now()))
    }

    /// A clock at 0 that moves only by [`Clock::advance_micros`].
    pub fn manual() -> Clock {
        Clock(Inner::Manual(Arc::new(AtomicU64::new(0))))
    }

    /// Microseconds since the clock was made.
    pub fn micros(&self) -> u64 {
        match &self.0 {
            Inner::Machine(start) => u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
            Inner::Manual(micros) => micros.load(Ordering::Relaxed),
        }
    }

    /// Milliseconds since 1970 began, for what is to mean something after a restart: by the machine's wall clock, which may be set, also
    /// back. Of a clock that is moved by hand those since it was made.
    pub fn wall_ms(&self) -> u64 {
        match &self.0 {
            Inner::Machine(_) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            }
            Inner::Manual(_) => self.micros() / 1000,
        }
    }

    /// Moves a manual clock; the machine's goes its own way.
    pub fn advance_micros(&self, micros: u64) {
        if let Inner::Manual(now) = &self.0 {
            now.fetch_add(micros, Ordering::Relaxed);
        }
    }
}
