//! Merging sources into one stream of *groups*: all messages of one key, newest first.
//!
//! The sources are few (rarely more than twenty) and most neighbours differ in their first bytes, so the
//! order is kept as a small sorted list of (first 16 bytes of the key, rank), in which the source that moved
//! is put back by insertion. A lower rank is a newer source.

use smallvec::SmallVec;

use super::source::Source;
use crate::base::Result;
use crate::base::key::head;
use crate::format::message::{Kind, Message, Stamp};

#[derive(Debug, Clone, Copy)]
struct Place {
    head: u128,
    rank: u32,
}

/// The messages of one key, copied out of their sources.
#[derive(Debug, Default)]
pub struct Group {
    key: Vec<u8>,
    payloads: Vec<u8>,
    entries: SmallVec<[GroupEntry; 4]>,
    is_in_use: bool,
}

#[derive(Debug, Clone, Copy)]
struct GroupEntry {
    seq: u64,
    stamp: Stamp,
    kind: Kind,
    blob: bool,
    start: usize,
    end: usize,
}

impl Group {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// True when one of them comes from a block that readers use.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        self.is_in_use
    }

    /// Number of messages.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// The messages, newest first.
    pub fn messages(&self) -> SmallVec<[Message<'_>; 4]> {
        self.entries.iter().map(|entry| self.message(entry)).collect()
    }

    /// The only message, when there is just one.
    #[inline]
    pub fn single(&self) -> Option<Message<'_>> {
        match self.entries.as_slice() {
            [entry] => Some(self.message(entry)),
            _ => None,
        }
    }

    #[inline]
    fn message(&self, entry: &GroupEntry) -> Message<'_> {
        Message {
            key: &self.key,
            seq: entry.seq,
            stamp: entry.stamp,
            kind: entry.kind,
            blob: entry.blob,
            payload: &self.payloads[entry.start..entry.end],
        }
    }

    #[inline]
    fn begin(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.payloads.clear();
        self.entries.clear();
        self.is_in_use = false;
    }

    #[inline]
    fn push(&mut self, message: &Message<'_>) {
        let start = self.payloads.len();
        self.payloads.extend_from_slice(message.payload);
        let Message { seq, stamp, kind, blob, .. } = *message;
        self.entries.push(GroupEntry { seq, stamp, kind, blob, start, end: self.payloads.len() });
    }
}

/// Merges sources, forward.
#[derive(Debug)]
pub struct Merge {
    sources: Vec<Source>,
    /// The valid sources in the order of their positions, the lowest **last**.
    order: Vec<Place>,
}

impl Merge {
    /// Merges `sources`, newest first, from their present positions.
    pub fn new(sources: Vec<Source>) -> Merge {
        let mut merge = Merge { order: Vec::with_capacity(sources.len()), sources };
        for rank in 0..merge.sources.len() {
            merge.place(rank as u32);
        }
        merge
    }

    #[inline]
    fn place(&mut self, rank: u32) {
        let source = &self.sources[rank as usize];
        if !source.valid() {
            return;
        }
        let place = Place { head: head(source.key()), rank };
        let mut at = self.order.len();
        while at > 0 && self.is_before(self.order[at - 1], place) {
            at -= 1;
        }
        self.order.insert(at, place);
    }

    #[inline]
    fn is_before(&self, a: Place, b: Place) -> bool {
        if a.head != b.head {
            return a.head < b.head;
        }
        let key = |place: Place| self.sources[place.rank as usize].key();
        (key(a), a.rank) < (key(b), b.rank)
    }

    /// The key of the next group.
    pub fn peek(&self) -> Option<&[u8]> {
        self.order.last().map(|place| self.sources[place.rank as usize].key())
    }

    /// Takes the next group; false at the end.
    ///
    /// # Errors
    /// Those of reading a run.
    pub fn next(&mut self, group: &mut Group) -> Result<bool> {
        let Some(first) = self.order.pop() else { return Ok(false) };
        group.begin(self.sources[first.rank as usize].key());
        self.take(first, group)?;
        while let Some(place) = self.order.last().copied() {
            if place.head != first.head || self.sources[place.rank as usize].key() != group.key() {
                break;
            }
            self.order.pop();
            self.take(place, group)?;
        }
        Ok(true)
    }

    /// Moves all messages of the group's key out of one source, and puts the source back in order.
    #[inline]
    fn take(&mut self, place: Place, group: &mut Group) -> Result<()> {
        let source = &mut self.sources[place.rank as usize];
        group.is_in_use |= source.is_in_use();
        loop {
            group.push(&source.message());
            source.next()?;
            if !source.valid() || source.key() != group.key() {
                break;
            }
        }
        self.place(place.rank);
        Ok(())
    }
}
