//! Cursors that look at rows which others hold.
//!
//! Many a row that a statement meets is not one that it wants, and need not be waited for. A cursor that peeks
//! ([`CursorOptions::peeks`](super::CursorOptions::peeks)) stops at a row that another transaction holds as its last look saw it:
//! as it was committed last. It has no lock on it ([`Cursor::is_peeked`]). Who has no use for the row goes on; who
//! wants it calls [`Cursor::again`], which waits for the lock and reads the row as it is by then. A row that nobody has
//! committed yet is not there, as for each cursor that locks no gaps.
//!
//! Where the row is gone once it is locked, the next one is looked for from where the look began that had found it: as if it had
//! been waited for at once (see [`super::locking`]).

use super::locking::Taken;
use super::{At, Cursor};
use crate::base::Result;
use crate::base::key::successor;
use crate::lock::Mode;

/// Where a look for a row begins.
#[derive(Debug)]
pub(super) enum Began {
    /// It goes forward from here.
    From(Vec<u8>),
    /// It goes backward from below this; `None`: from the end of the tree.
    Below(Option<Vec<u8>>),
}

impl Began {
    /// The same way, from behind the row at `key`.
    pub(super) fn past(self, key: Vec<u8>) -> Began {
        match self {
            Began::From(_) => Began::From(successor(&key)),
            Began::Below(_) => Began::Below(Some(key)),
        }
    }
}

impl Cursor {
    /// Whether another transaction holds the row that it is at, which is not locked then: see
    /// [`CursorOptions::peeks`](super::CursorOptions::peeks).
    #[inline]
    pub fn is_peeked(&self) -> bool {
        self.at == At::Peeked
    }

    /// At a row that is peeked at: locks it, as [`CursorOptions::wait`](super::CursorOptions::wait) says, and reads it again as it
    /// is now. Where it is gone, or held by another and to be left out, goes on to the next row in the direction in which it was
    /// found, and may peek at that; false when there is none. At any other row, or none: stays.
    ///
    /// # Errors
    /// As [`Cursor::first`].
    pub fn again(&mut self) -> Result<bool> {
        let (At::Peeked, Some(began)) = (self.at, self.began.take()) else { return Ok(self.valid()) };
        let taken = self.lock_here(self.lock.unwrap_or(Mode::Shared), self.wait)?;
        match (taken, began) {
            (Taken::Row, _) => Ok(true),
            (Taken::Gone, Began::From(from)) => self.forward(&from),
            (Taken::Gone, Began::Below(below)) => self.backward(below.as_deref()),
            (Taken::Busy, Began::From(_)) => self.next(),
            (Taken::Busy, Began::Below(_)) => self.prev(),
        }
    }

    /// Stands at a row that another transaction holds.
    pub(super) fn peek(&mut self, key: Vec<u8>, value: Vec<u8>, began: Began) -> bool {
        self.key = key;
        self.value = value;
        self.began = Some(began);
        self.at = At::Peeked;
        true
    }
}
