//! Walking a memtable of level 0, whichever it is.

use std::fmt;
use std::sync::Arc;

use super::SortedMemtable;
use super::leaves::LeafCursor;
use crate::format::Message;

/// A cursor over a memtable, whose messages it keeps alive. It is at a message, or nowhere.
///
/// Over an active memtable it meets messages that are inserted ahead of it while it walks.
#[derive(Clone)]
pub struct Level0Cursor(Inner);

#[derive(Clone)]
enum Inner {
    Active(LeafCursor),
    /// A place in the list; nowhere when there is no message at it.
    Sorted(Arc<SortedMemtable>, usize),
}

const NOWHERE: usize = usize::MAX;

impl Level0Cursor {
    pub(super) fn active(cursor: LeafCursor) -> Level0Cursor {
        Level0Cursor(Inner::Active(cursor))
    }

    pub(super) fn sorted(memtable: Arc<SortedMemtable>) -> Level0Cursor {
        Level0Cursor(Inner::Sorted(memtable, NOWHERE))
    }

    /// Goes to the newest message of the first key >= `key`; nowhere when there is none.
    #[inline]
    pub fn seek(&mut self, key: &[u8]) {
        match &mut self.0 {
            Inner::Active(cursor) => cursor.seek(key),
            Inner::Sorted(memtable, at) => *at = memtable.lower_bound(key),
        }
    }

    /// Goes to the oldest message of the last key < `key`; nowhere when there is none.
    pub fn seek_before(&mut self, key: &[u8]) {
        match &mut self.0 {
            Inner::Active(cursor) => cursor.seek_before(key),
            Inner::Sorted(memtable, at) => *at = memtable.lower_bound(key).checked_sub(1).unwrap_or(NOWHERE),
        }
    }

    /// Goes to the newest message of the first key.
    pub fn first(&mut self) {
        match &mut self.0 {
            Inner::Active(cursor) => cursor.first(),
            Inner::Sorted(_, at) => *at = 0,
        }
    }

    /// Goes to the oldest message of the last key.
    pub fn last(&mut self) {
        match &mut self.0 {
            Inner::Active(cursor) => cursor.last(),
            Inner::Sorted(memtable, at) => *at = memtable.len().checked_sub(1).unwrap_or(NOWHERE),
        }
    }

    /// Goes one message on; from nowhere it stays there.
    #[inline]
    pub fn next(&mut self) {
        match &mut self.0 {
            Inner::Active(cursor) => cursor.next(),
            Inner::Sorted(_, at) => *at = at.saturating_add(1),
        }
    }

    /// Goes to the newest message of the next key; from nowhere it stays there.
    #[inline]
    pub fn next_key(&mut self) {
        match &mut self.0 {
            Inner::Active(cursor) => cursor.next_key(),
            Inner::Sorted(memtable, at) => *at = memtable.next_key(*at),
        }
    }

    /// Goes one message back; from nowhere it stays there.
    pub fn prev(&mut self) {
        match &mut self.0 {
            Inner::Active(cursor) => cursor.prev(),
            Inner::Sorted(memtable, at) if *at < memtable.len() => *at = at.checked_sub(1).unwrap_or(NOWHERE),
            Inner::Sorted(..) => {}
        }
    }

    /// The message, if it is at one.
    #[inline]
    pub fn get(&self) -> Option<Message<'_>> {
        match &self.0 {
            Inner::Active(cursor) => cursor.message(),
            Inner::Sorted(memtable, at) => memtable.message_at(*at),
        }
    }

    /// True when it is at a message.
    #[inline]
    pub fn valid(&self) -> bool {
        match &self.0 {
            Inner::Active(cursor) => cursor.valid(),
            Inner::Sorted(memtable, at) => *at < memtable.len(),
        }
    }

    /// The key of the message that it is at.
    ///
    /// # Panics
    /// When it is not [`Level0Cursor::valid`].
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.message().key
    }

    /// The message that it is at.
    ///
    /// # Panics
    /// When it is not [`Level0Cursor::valid`].
    #[inline]
    #[expect(clippy::expect_used, reason = "documented contract")]
    pub fn message(&self) -> Message<'_> {
        self.get().expect("the cursor is at a message")
    }
}

impl fmt::Debug for Level0Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Level0Cursor").field(&self.get()).finish()
    }
}
