//! The ranges of one tree that are held or waited for: an interval treap.
//!
//! A treap ordered by lower end whose nodes also know the highest upper end below them (by the number of the
//! node that has it), so that all ranges that touch an interval are found in O(log n + found). Nodes live in
//! an arena and are named by number; a number is used again after removal, so whoever keeps one checks whose
//! node it is.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Mode;
use super::key::LockKey;
use super::owner::Owner;

/// Is shown the number and the content of a range.
pub(super) type Visit<'a> = dyn FnMut(u32, &Range) -> ControlFlow<()> + 'a;

/// No node.
const NIL: u32 = u32::MAX;

/// A range lock, held or waited for.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) low: LockKey,
    /// Excluded.
    pub(super) high: LockKey,
    pub(super) owner: Arc<Owner>,
    pub(super) mode: Mode,
    /// False while the request waits (or is being examined).
    pub(super) granted: bool,
    /// Place in the order of requests.
    pub(super) seq: u64,
    /// A later request was let past this waiting one since its examination began (invariant L5).
    pub(super) disturbed: bool,
}

impl Range {
    /// Memory of a range with its node, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Node>() + self.low.heap_bytes() + self.high.heap_bytes()
    }

    pub(super) fn covers(&self, key: &LockKey) -> bool {
        self.low <= *key && *key < self.high
    }

    pub(super) fn overlaps(&self, low: &LockKey, high: &LockKey) -> bool {
        self.low < *high && *low < self.high
    }
}

#[derive(Debug)]
struct Node {
    range: Option<Range>,
    priority: u32,
    left: u32,
    right: u32,
    /// The node of this subtree with the highest upper end.
    highest: u32,
}

/// The ranges of a tree.
#[derive(Debug)]
pub(super) struct Intervals {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
    random: u32,
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals { nodes: Vec::new(), free: Vec::new(), root: NIL, random: 0x9e37_79b9 }
    }
}

impl Intervals {
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// The range with this number.
    pub(super) fn get(&self, id: u32) -> Option<&Range> {
        self.nodes.get(id as usize)?.range.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Range> {
        self.nodes.get_mut(id as usize)?.range.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Range)> {
        (0..).zip(&self.nodes).filter_map(|(id, node)| Some((id, node.range.as_ref()?)))
    }

    /// Adds a range and returns its number.
    pub(super) fn insert(&mut self, range: Range) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let node = Node { range: Some(range), priority: self.random, left: NIL, right: NIL, highest: NIL };
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.nodes[id as usize].highest = id;
        self.root = self.insert_at(self.root, id);
        id
    }

    /// Takes a range out.
    pub(super) fn remove(&mut self, id: u32) -> Option<Range> {
        self.get(id)?;
        self.root = self.remove_at(self.root, id);
        self.free.push(id);
        self.nodes[id as usize].range.take()
    }

    /// Marks the waiting ranges over `key` as disturbed.
    pub(super) fn disturb(&mut self, key: &LockKey) {
        let mut waiting = Vec::new();
        self.touching(key, key, &mut |id, range| {
            if !range.granted && range.covers(key) {
                waiting.push(id);
            }
            ControlFlow::Continue(())
        });
        for id in waiting {
            if let Some(range) = self.get_mut(id) {
                range.disturbed = true;
            }
        }
    }

    /// Visits all ranges with `range.low <= high && low <= range.high`: those that overlap and those that
    /// only touch, for the caller to tell apart.
    /// In the order of their lower ends, until `visit` breaks.
    pub(super) fn touching(&self, low: &LockKey, high: &LockKey, visit: &mut Visit<'_>) {
        let _ = self.visit_at(self.root, low, high, visit);
    }

    fn visit_at(&self, at: u32, low: &LockKey, high: &LockKey, visit: &mut Visit<'_>) -> ControlFlow<()> {
        let Some(node) = self.nodes.get(at as usize) else { return ControlFlow::Continue(()) };
        let Some(range) = &node.range else { return ControlFlow::Continue(()) };
        if self.high_of(node.highest) < low {
            return ControlFlow::Continue(());
        }
        self.visit_at(node.left, low, high, visit)?;
        if range.low <= *high {
            if *low <= range.high {
                visit(at, range)?;
            }
            self.visit_at(node.right, low, high, visit)?;
        }
        ControlFlow::Continue(())
    }

    fn range(&self, at: u32) -> &Range {
        self.nodes[at as usize].range.as_ref().expect("a linked node has a range")
    }

    fn high_of(&self, at: u32) -> &LockKey {
        &self.range(at).high
    }

    /// Equal lower ends are ordered by number.
    fn is_before(&self, a: u32, b: u32) -> bool {
        (&self.range(a).low, a) < (&self.range(b).low, b)
    }

    fn update(&mut self, at: u32) -> u32 {
        let (left, right) = (self.nodes[at as usize].left, self.nodes[at as usize].right);
        let mut highest = at;
        for child in [left, right] {
            if child != NIL {
                let candidate = self.nodes[child as usize].highest;
                if self.high_of(candidate) > self.high_of(highest) {
                    highest = candidate;
                }
            }
        }
        self.nodes[at as usize].highest = highest;
        at
    }

    fn insert_at(&mut self, at: u32, new: u32) -> u32 {
        if at == NIL {
            return new;
        }
        if self.nodes[new as usize].priority > self.nodes[at as usize].priority {
            let (left, right) = self.split(at, new);
            self.nodes[new as usize].left = left;
            self.nodes[new as usize].right = right;
            return self.update(new);
        }
        if self.is_before(new, at) {
            self.nodes[at as usize].left = self.insert_at(self.nodes[at as usize].left, new);
        } else {
            self.nodes[at as usize].right = self.insert_at(self.nodes[at as usize].right, new);
        }
        self.update(at)
    }

    /// Splits a subtree into what is before `pivot` and what is after.
    fn split(&mut self, at: u32, pivot: u32) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        if self.is_before(at, pivot) {
            let (low, high) = self.split(self.nodes[at as usize].right, pivot);
            self.nodes[at as usize].right = low;
            (self.update(at), high)
        } else {
            let (low, high) = self.split(self.nodes[at as usize].left, pivot);
            self.nodes[at as usize].left = high;
            (low, self.update(at))
        }
    }

    fn remove_at(&mut self, at: u32, id: u32) -> u32 {
        if at == id {
            return self.join(self.nodes[at as usize].left, self.nodes[at as usize].right);
        }
        if self.is_before(id, at) {
            self.nodes[at as usize].left = self.remove_at(self.nodes[at as usize].left, id);
        } else {
            self.nodes[at as usize].right = self.remove_at(self.nodes[at as usize].right, id);
        }
        self.update(at)
    }

    fn join(&mut self, low: u32, high: u32) -> u32 {
        if low == NIL || high == NIL {
            return low.min(high);
        }
        if self.nodes[low as usize].priority > self.nodes[high as usize].priority {
            self.nodes[low as usize].right = self.join(self.nodes[low as usize].right, high);
            self.update(low)
        } else {
            self.nodes[high as usize].left = self.join(low, self.nodes[high as usize].left);
            self.update(high)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{TreeId, TxnId};
    use proptest::prelude::*;

    fn key(n: u8) -> LockKey {
        LockKey::new(TreeId(1), &[n])
    }

    proptest! {
        #[test]
        fn answers_like_a_list(steps in prop::collection::vec((any::<bool>(), 0u8..60, 1u8..20, any::<prop::sample::Index>()), 1..120)) {
            let owner = Owner::new(TxnId(1), 0);
            let mut tree = Intervals::default();
            let mut model: Vec<(u32, u8, u8)> = Vec::new();
            for (add, low, length, pick) in steps {
                if add || model.is_empty() {
                    let range = Range { low: key(low), high: key(low + length), owner: owner.clone(), mode: Mode::Shared, granted: true, seq: 0, disturbed: false };
                    let id = tree.insert(range);
                    prop_assert!(model.iter().all(|(other, ..)| *other != id));
                    model.push((id, low, low + length));
                } else {
                    let (id, low_was, _) = model.swap_remove(pick.index(model.len()));
                    prop_assert_eq!(tree.remove(id).map(|range| range.low), Some(key(low_was)));
                    prop_assert!(tree.remove(id).is_none());
                }
                let mut found = Vec::new();
                tree.touching(&key(low), &key(low + length), &mut |id, _| {
                    found.push(id);
                    ControlFlow::Continue(())
                });
                found.sort_unstable();
                let mut expected: Vec<u32> = model.iter().filter(|(_, l, h)| *l <= low + length && low <= *h).map(|(id, ..)| *id).collect();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
                prop_assert_eq!(tree.len(), model.len());
            }
        }
    }
}
