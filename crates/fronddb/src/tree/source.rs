//! One sorted stream of messages, whatever it lies in: a memtable or a run.

use crate::base::Result;
use crate::base::key::successor;
use crate::format::message::Message;
use crate::memtable::Level0Cursor;
use crate::run::{Goal, RunCursor};

/// Messages of one key that are gone through one by one. Past them lie rows that were written very often: there it seeks.
pub(super) const VERSIONS_MAX: usize = 8;

/// A cursor over a memtable or a run. Positioned at a message or at none.
#[derive(Debug)]
pub enum Source {
    /// Level 0.
    Level0(Level0Cursor),
    /// A run of the tree.
    Run(RunCursor),
}

#[cfg(test)]
thread_local! {
    /// How often this thread has moved a source.
    pub(super) static MOVES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

macro_rules! forward {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*);)*) => {
        $($(#[$doc])*
        #[inline]
        #[allow(clippy::should_implement_trait, reason = "a cursor moves and may fail; it is no iterator")]
        pub fn $name(&mut self $(, $arg: $type)*) -> Result<()> {
            #[cfg(test)]
            MOVES.set(MOVES.get() + 1);
            match self {
                Source::Level0(cursor) => {
                    cursor.$name($($arg),*);
                    Ok(())
                }
                Source::Run(cursor) => cursor.$name($($arg),*).map(|_| ()),
            }
        })*
    };
}

impl Source {
    forward! {
        /// To the newest message of the first key at or above `key`.
        seek(key: &[u8]);
        /// To the oldest message of the last key below `key`.
        seek_before(key: &[u8]);
        /// To the first message.
        first();
        /// To the last message.
        last();
        /// To the next message.
        next();
        /// To the message before.
        prev();
    }

    /// To the newest message of the next key, past the versions of `key`, at which it is.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    #[inline]
    pub fn next_key(&mut self, key: &[u8]) -> Result<()> {
        if let Source::Level0(cursor) = self {
            #[cfg(test)]
            MOVES.set(MOVES.get() + 1);
            cursor.next_key();
            return Ok(());
        }
        for _ in 0..VERSIONS_MAX {
            self.next()?;
            if !self.valid() || self.key() != key {
                return Ok(());
            }
        }
        self.seek(&successor(key))
    }

    /// Goes there.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    pub fn go(&mut self, goal: Goal<'_>) -> Result<()> {
        match goal {
            Goal::First => self.first(),
            Goal::AtOrAbove(key) => self.seek(key),
            Goal::Last => self.last(),
            Goal::Below(key) => self.seek_before(key),
        }
    }

    /// Goes there, unless a block of messages has to be read for it: then false, and it stands nowhere.
    ///
    /// # Errors
    /// As [`RunCursor::seek`].
    #[inline]
    pub fn try_go(&mut self, goal: Goal<'_>) -> Result<bool> {
        match self {
            Source::Level0(_) => self.go(goal).map(|()| true),
            Source::Run(cursor) => {
                #[cfg(test)]
                MOVES.set(MOVES.get() + 1);
                cursor.try_go(goal)
            }
        }
    }

    /// Asks for what has to be read to go there ([`RunCursor::ask`]).
    pub fn ask(&mut self, goal: Goal<'_>) {
        if let Source::Run(cursor) = self {
            cursor.ask(goal);
        }
    }

    /// True when positioned at a message.
    #[inline]
    pub fn valid(&self) -> bool {
        match self {
            Source::Level0(cursor) => cursor.valid(),
            Source::Run(cursor) => cursor.valid(),
        }
    }

    /// The key of the message; only while [`Source::valid`].
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self {
            Source::Level0(cursor) => cursor.key(),
            Source::Run(cursor) => cursor.key(),
        }
    }

    /// The message; only while [`Source::valid`].
    #[inline]
    pub fn message(&self) -> Message<'_> {
        match self {
            Source::Level0(cursor) => cursor.message(),
            Source::Run(cursor) => cursor.message(),
        }
    }

    /// True when the message comes from a block that readers use and that the source does not use itself.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        match self {
            Source::Level0(_) => false,
            Source::Run(cursor) => cursor.is_in_use(),
        }
    }

    /// The payload of the message; only while [`Source::valid`].
    #[inline]
    pub fn payload(&self) -> &[u8] {
        match self {
            Source::Level0(cursor) => cursor.message().payload,
            Source::Run(cursor) => cursor.payload_bytes(),
        }
    }
}
