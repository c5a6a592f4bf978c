//! An owner of locks (a transaction, to the layers above) and the list of what it holds.
//!
//! The list exists for prepare records, so that one transaction's locks are found without a search through all:
//! it names the points, packed in chunks of bytes, in the order of their locking. It may name more than is held (after
//! an unlock, or when points coalesced), never less. An owner of very many points stops keeping it; its
//! points are then found by a scan of the table.

use std::sync::Arc;

use super::key::LockKey;
use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::base::sync::{Condvar, Mutex};
use crate::base::{TreeId, TxnId};

/// Points in the list, at most; about 1 MiB of short keys.
const LISTED_MAX: usize = 64 << 10;
const CHUNK_BYTES: usize = 64 << 10;

/// The shared part of an owner.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) id: TxnId,
    /// The caller's own number for it, which the observer is told; 0 for none.
    pub(super) label: u64,
    /// Set once. From then on its locks count as free (invariant L2).
    ended: AtomicBool,
    /// Set by a cancellation; consumed by the wait that it ends.
    pub(super) cancelled: AtomicBool,
    /// It has a wait in the graph. Written under the graph's mutex.
    pub(super) waiting: AtomicBool,
    /// How many edges of the wait-for graph point at it. Written under the graph's mutex.
    pub(super) followers: AtomicU32,
    /// Locks ever granted to it: what a deadlock's victim is chosen by. Coalescing does not lower it.
    pub(super) weight: AtomicU64,
    pub(super) held: Mutex<Held>,
    /// Wakes its one waiting thread; used with the graph's mutex.
    pub(super) wake: Condvar,
}

impl Owner {
    pub(super) fn new(id: TxnId, label: u64) -> Arc<Owner> {
        Arc::new(Owner {
            id,
            label,
            ended: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            followers: AtomicU32::new(0),
            weight: AtomicU64::new(0),
            held: Mutex::new(Held::default()),
            wake: Condvar::new(),
        })
    }

    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Marks the end; false if it had ended before.
    pub(super) fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::SeqCst)
    }
}

/// What an owner holds, as far as it is listed.
#[derive(Debug, Default)]
pub(super) struct Held {
    chunks: Vec<Vec<u8>>,
    points: usize,
    /// Where the newest point starts in the last chunk.
    last_start: Option<usize>,
    /// The list was given up: points are found by scanning the table.
    pub(super) unlisted: bool,
    /// Trees and node numbers of granted ranges; may name nodes that are no longer this owner's.
    pub(super) ranges: Vec<(TreeId, u32)>,
}

impl Held {
    /// Lists a point. Returns by how many bytes the list grew.
    #[inline]
    pub(super) fn push(&mut self, tree: TreeId, key: &[u8]) -> isize {
        if self.unlisted {
            return 0;
        }
        if self.points >= LISTED_MAX {
            return -(self.give_up() as isize);
        }
        self.points += 1;
        let bytes = key.len() + 10;
        let mut grown = 0;
        if self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < bytes) {
            let size = self.chunks.last().map_or(128, |chunk| chunk.capacity() * 4).min(CHUNK_BYTES).max(bytes);
            self.chunks.push(Vec::with_capacity(size));
            grown = size as isize;
        }
        if let Some(chunk) = self.chunks.last_mut() {
            self.last_start = Some(chunk.len());
            put_varint(chunk, u64::from(tree.0));
            put_bytes(chunk, key);
        }
        grown
    }

    /// Lists a range.
    pub(super) fn push_range(&mut self, tree: TreeId, id: u32) {
        if self.ranges.len() == self.ranges.capacity() && self.ranges.len() >= 1024 {
            // Numbers are used again, so joining many ranges leaves the same ones many times.
            self.ranges.sort_unstable();
            self.ranges.dedup();
        }
        self.ranges.push((tree, id));
    }

    /// Takes `key` off the list if it was pushed last, as it is when a row is locked, looked at and let go.
    /// Returns the bytes freed.
    pub(super) fn unlist_last(&mut self, key: &LockKey) -> isize {
        let Some(chunk) = self.chunks.last_mut() else { return 0 };
        let mut point = Vec::new();
        put_varint(&mut point, u64::from(key.tree().0));
        put_bytes(&mut point, &key.to_bytes());
        if self.last_start.is_none_or(|start| chunk.get(start..) != Some(point.as_slice())) {
            return 0;
        }
        chunk.truncate(chunk.len() - point.len());
        self.last_start = None;
        self.points -= 1;
        if !chunk.is_empty() {
            return 0;
        }
        self.chunks.pop().map_or(0, |chunk| chunk.capacity() as isize)
    }

    /// Stops listing points and returns the bytes freed.
    pub(super) fn give_up(&mut self) -> usize {
        self.unlisted = true;
        self.points = 0;
        self.last_start = None;
        std::mem::take(&mut self.chunks).iter().map(Vec::capacity).sum()
    }

    pub(super) fn points(&self) -> usize {
        self.points
    }

    /// All listed points.
    pub(super) fn list(&self) -> Vec<LockKey> {
        self.chunks.iter().flat_map(|chunk| chunk_points(chunk)).collect()
    }
}

/// The points of a chunk.
fn chunk_points(chunk: &[u8]) -> impl Iterator<Item = LockKey> {
    let mut decoder = Decoder::new(chunk);
    std::iter::from_fn(move || {
        let tree = decoder.varint_u32().ok()?;
        Some(LockKey::new(TreeId(tree), decoder.bytes().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_gives_back_what_was_pushed() {
        let mut held = Held::default();
        let mut bytes = 0;
        let keys: Vec<Vec<u8>> = (0..5000u32).map(|n| vec![n as u8; n as usize % 40]).collect();
        for key in &keys {
            bytes += held.push(TreeId(7), key);
        }
        let expected: Vec<LockKey> = keys.iter().map(|key| LockKey::new(TreeId(7), key)).collect();
        assert_eq!(held.list(), expected);
        assert_eq!(held.points(), 5000);
        assert_eq!(held.give_up() as isize, bytes);
        assert_eq!(held.push(TreeId(7), b"x"), 0);
    }

    #[test]
    fn a_long_list_is_given_up_and_its_memory_returned() {
        let mut held = Held::default();
        let grown: isize = (0..=LISTED_MAX).map(|n| held.push(TreeId(1), &n.to_be_bytes())).sum();
        assert!(held.unlisted);
        assert_eq!(grown, 0);
    }
}
