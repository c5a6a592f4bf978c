//! Keys of the lock table: a tree id and a user key, ordered as the tree orders them.
//!
//! A key of up to 16 bytes lies in place, as two big-endian words padded with zeros, so that the common
//! comparison is three integer comparisons and no allocation; a longer one keeps its tail in a box. When two
//! heads are equal, the padding makes the shorter of two keys a prefix of the other, so that the length
//! decides, unless both have tails.

use std::cmp::Ordering;

use crate::base::TreeId;

const HEAD_BYTES: usize = 16;
/// The length of the sentinel above all keys of a tree.
const END: u32 = u32::MAX;

/// A key of a tree, or the end of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LockKey {
    tree: TreeId,
    bytes: u32,
    head: [u64; 2],
    tail: Box<[u8]>,
}

impl LockKey {
    #[inline]
    pub(super) fn new(tree: TreeId, key: &[u8]) -> LockKey {
        let (head, tail) = key.split_at(key.len().min(HEAD_BYTES));
        let mut padded = [0; HEAD_BYTES];
        padded[..head.len()].copy_from_slice(head);
        let word = u128::from_be_bytes(padded);
        LockKey { tree, bytes: key.len() as u32, head: [(word >> 64) as u64, word as u64], tail: tail.into() }
    }

    /// The excluded upper end of a range: `key`, or the end of the tree when it is empty.
    pub(super) fn upper(tree: TreeId, key: &[u8]) -> LockKey {
        if key.is_empty() {
            return LockKey { tree, bytes: END, head: [u64::MAX; 2], tail: Box::default() };
        }
        LockKey::new(tree, key)
    }

    /// The lowest key above this one.
    pub(super) fn successor(&self) -> LockKey {
        let mut key = self.to_bytes();
        key.push(0);
        LockKey::new(self.tree, &key)
    }

    pub(super) fn tree(&self) -> TreeId {
        self.tree
    }

    pub(super) fn is_end(&self) -> bool {
        self.bytes == END
    }

    /// The user key; empty for the end of a tree.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        if self.is_end() {
            return Vec::new();
        }
        let word = u128::from(self.head[0]) << 64 | u128::from(self.head[1]);
        let mut key = Vec::with_capacity(self.bytes as usize + 1);
        key.extend_from_slice(&word.to_be_bytes()[..(self.bytes as usize).min(HEAD_BYTES)]);
        key.extend_from_slice(&self.tail);
        key
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        // An allocator rounds up to 16 bytes, at least.
        self.tail.len().next_multiple_of(16)
    }

    /// Spreads keys over shards.
    #[inline]
    pub(super) fn hash(&self) -> u64 {
        const K: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut hash = (self.head[0] ^ u64::from(self.tree.0).rotate_left(40)).wrapping_mul(K);
        hash = (hash ^ (hash >> 32) ^ self.head[1] ^ u64::from(self.bytes)).wrapping_mul(K);
        if !self.tail.is_empty() {
            hash = (hash ^ crate::base::checksum::key_hash(&self.tail)).wrapping_mul(K);
        }
        hash ^ (hash >> 29)
    }

    /// How far `other` is above this key, reading eight bytes after the first `skip`. An estimate that orders gaps.
    pub(super) fn distance(&self, other: &LockKey, skip: usize) -> u64 {
        other.word_at(skip).saturating_sub(self.word_at(skip))
    }

    fn word_at(&self, skip: usize) -> u64 {
        let byte = |at: usize| match at {
            0..HEAD_BYTES => (self.head[at / 8] >> (56 - at % 8 * 8)) as u8,
            _ => self.tail.get(at - HEAD_BYTES).copied().unwrap_or(0),
        };
        (skip..skip + 8).fold(0, |word, at| word << 8 | u64::from(byte(at)))
    }

    /// Length of the common prefix of two keys, in bytes.
    pub(super) fn common_prefix(&self, other: &LockKey) -> usize {
        for word in 0..2 {
            let difference = self.head[word] ^ other.head[word];
            if difference != 0 {
                return word * 8 + difference.leading_zeros() as usize / 8;
            }
        }
        HEAD_BYTES + self.tail.iter().zip(&other.tail).take_while(|(a, b)| a == b).count()
    }
}

impl PartialOrd for LockKey {
    #[inline]
    fn partial_cmp(&self, other: &LockKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LockKey {
    #[inline]
    fn cmp(&self, other: &LockKey) -> Ordering {
        (self.tree, self.head).cmp(&(other.tree, other.head)).then_with(|| {
            let long = HEAD_BYTES as u32;
            if self.bytes > long && other.bytes > long && !self.is_end() && !other.is_end() {
                self.tail.cmp(&other.tail)
            } else {
                self.bytes.cmp(&other.bytes)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, 0xff]), 0..20)
    }

    proptest! {
        #[test]
        fn order_is_that_of_tree_and_bytes(a in key_bytes(), b in key_bytes(), tree_a in 0u32..2, tree_b in 0u32..2) {
            let (ka, kb) = (LockKey::new(TreeId(tree_a), &a), LockKey::new(TreeId(tree_b), &b));
            prop_assert_eq!(ka.cmp(&kb), (tree_a, &a).cmp(&(tree_b, &b)));
            prop_assert_eq!(ka.to_bytes(), a.clone());
            prop_assert!(ka < LockKey::upper(TreeId(tree_a), b""));
            prop_assert!(LockKey::upper(TreeId(tree_a), b"") < LockKey::new(TreeId(tree_a + 1), b""));
            let next = ka.successor();
            prop_assert!(ka < next && !(ka < kb && kb < next));
            let shared = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            if tree_a == tree_b && shared < a.len().min(b.len()) {
                prop_assert_eq!(ka.common_prefix(&kb), shared);
                prop_assert_eq!(ka < kb, ka.distance(&kb, shared) > 0);
            }
        }
    }

    #[test]
    fn keys_spread_over_shards() {
        let mut counts = [0u32; 16];
        for n in 0u64..16_000 {
            counts[LockKey::new(TreeId(3), &n.to_be_bytes()).hash() as usize & 15] += 1;
        }
        assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
    }
}
