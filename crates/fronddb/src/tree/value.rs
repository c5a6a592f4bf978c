//! Values as they are read: pointing into a cached block where possible, so that a read copies nothing.

use std::fmt;
use std::ops::Deref;

use crate::format::block::Payload;

/// What a reader wants of values that are kept apart; of others it gets all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wanted {
    /// All.
    #[default]
    Whole,
    /// No more than their head ([`crate::format::blob`]), where an update does not want the rest; all of those that have none.
    Heads,
    /// Nothing: then a value may be anything.
    Nothing,
}

impl Wanted {
    /// Of the older value, of which updates make another where it is not `plain`: they take no row away, but may want any byte.
    pub(super) fn of_older(self, plain: bool) -> Wanted {
        if self == Wanted::Heads && !plain { Wanted::Whole } else { self }
    }
}

/// A value. Derefs to its bytes. May hold a block of the cache in memory for as long as it lives.
#[derive(Clone)]
pub struct Value(Inner);

#[derive(Clone)]
enum Inner {
    Owned(Vec<u8>),
    Pinned(Payload),
}

impl Value {
    /// The bytes, copied only if they lie in a block.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Inner::Owned(bytes) => bytes,
            Inner::Pinned(payload) => payload.to_vec(),
        }
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value(Inner::Owned(bytes))
    }
}

impl From<Payload> for Value {
    fn from(payload: Payload) -> Value {
        Value(Inner::Pinned(payload))
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Owned(bytes) => bytes,
            Inner::Pinned(payload) => payload,
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self[..].fmt(f)
    }
}
