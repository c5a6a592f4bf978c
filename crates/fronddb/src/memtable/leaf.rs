//! One leaf, or one inner node, of a memtable's list: up to 15 entries that never move, and a word that orders them.
//!
//! The entries of a leaf are messages; those of an inner node are the leaves or inner nodes one level below, each
//! standing for its anchor. All entries are of one tree. The first bytes of the entries' keys lie side by side.
//!
//! Writers hold the latch. Readers take none: they load the order, follow it, and start again if the node was split or forgot messages
//! meanwhile, because only that lets slots be used again. So a reader never waits for a writer.
//!
//! - S3: slots that an order ever named, links, anchors and roots are null or point into the list's arenas.
//! - S4: tree, level and anchor never change. What an order names is in order, and at or after the anchor.
//! - S5: `state` is even when nobody holds the latch; it grows by 2 at each split, and when messages are forgotten, after the order was cut and
//!   before a slot that it had is used again.
#![allow(unsafe_code, reason = "leaves in an arena, linked by atomic pointers")]

use std::ptr::{NonNull, null_mut};

use super::arena::Arena;
use super::node::{self, Node, Target};
use super::order::{self, SLOTS};
use crate::base::prefetch::prefetch;
use crate::base::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Entries that stay when a leaf is split in the middle.
const KEPT: usize = SLOTS.div_ceil(2);

/// A leaf or inner node, or null.
pub(super) type Link = *mut Leaf;

/// A leaf or inner node. Its links lie before it, level 0 of the chain last.
pub(super) struct Leaf {
    pub(super) tree: u64,
    /// 0: a leaf; above: the height of an inner node.
    pub(super) level: u64,
    anchor_prefix: u64,
    /// The first entry's message; null: the start of the tree.
    pub(super) anchor: Node,
    pub(super) order: AtomicU64,
    state: AtomicU64,
    prefixes: [AtomicU64; SLOTS],
    entries: [AtomicPtr<u8>; SLOTS],
    /// In the first leaf of a tree: the root of the tree's inner nodes, or the leaf itself. Changed under its latch.
    pub(super) root: AtomicPtr<Leaf>,
}

/// Makes a leaf without entries whose links are null, in memory that nobody else knows.
pub(super) fn make(arena: &Arena, links: usize, tree: u64, level: u64, anchor: (u64, Node)) -> NonNull<Leaf> {
    let bytes = links * size_of::<AtomicPtr<Leaf>>();
    let piece = arena.allocate(bytes + size_of::<Leaf>());
    // Safety: the piece has room for the links and the leaf, is aligned for both, and this call's alone; all fields may be
    // zero.
    unsafe {
        piece.write_bytes(0, bytes + size_of::<Leaf>());
        let leaf = piece.add(bytes).cast::<Leaf>();
        #[cfg(feature = "schedules")]
        make_scheduled(piece.cast(), links, leaf);
        (&raw mut (*leaf.as_ptr()).tree).write(tree);
        (&raw mut (*leaf.as_ptr()).level).write(level);
        (&raw mut (*leaf.as_ptr()).anchor_prefix).write(anchor.0);
        (&raw mut (*leaf.as_ptr()).anchor).write(anchor.1);
        (*leaf.as_ptr()).order.store(order::EMPTY, Ordering::Relaxed);
        leaf
    }
}

/// Atomics that a scheduler knows are more than zeros.
///
/// # Safety
/// The piece of a leaf of so many links, which lie at `first` and before `leaf`.
#[cfg(feature = "schedules")]
unsafe fn make_scheduled(first: NonNull<AtomicPtr<Leaf>>, links: usize, leaf: NonNull<Leaf>) {
    let leaf = leaf.as_ptr();
    // Safety: by contract.
    unsafe {
        (0..links).for_each(|link| first.add(link).write(AtomicPtr::default()));
        (&raw mut (*leaf).order).write(AtomicU64::default());
        (&raw mut (*leaf).state).write(AtomicU64::default());
        (&raw mut (*leaf).prefixes).write(Default::default());
        (&raw mut (*leaf).entries).write(Default::default());
        (&raw mut (*leaf).root).write(AtomicPtr::default());
    }
}

/// The link of `leaf` on `level` of its chain.
///
/// # Safety
/// `leaf` was made with more than `level` links, in an arena that outlives `'l`.
#[inline]
pub(super) unsafe fn next_of<'l>(leaf: Link, level: usize) -> &'l AtomicPtr<Leaf> {
    // Safety: the links lie before the leaf, one aligned pointer per level.
    unsafe { &*leaf.cast::<AtomicPtr<Leaf>>().sub(level + 1) }
}

/// Has the processor read a node whole: where in it a search looks next depends on what it finds first.
#[inline]
pub(super) fn prefetch_node(link: Link) {
    let link_bytes = size_of::<AtomicPtr<Leaf>>();
    prefetch(link.cast::<u8>().wrapping_sub(link_bytes), link_bytes + size_of::<Leaf>());
}

impl Leaf {
    /// True when the anchor comes before `target`: then what lies at `target` does not belong to an earlier leaf.
    #[inline]
    pub(super) fn precedes(&self, target: &Target<'_>) -> bool {
        let place = (self.tree, self.anchor_prefix);
        let other = (u64::from(target.tree), target.prefix);
        if place != other {
            return place < other;
        }
        // Safety: an anchor is null or a node (S3) of this tree with this prefix.
        self.anchor.is_null() || unsafe { node::precedes_beyond_prefix(self.anchor, target) }
    }

    /// The entry of this rank.
    #[inline]
    pub(super) fn entry(&self, order: u64, rank: usize) -> *mut u8 {
        self.entries[order::slot(order, rank)].load(Ordering::Acquire)
    }

    /// The prefix of this entry's key.
    #[inline]
    pub(super) fn prefix(&self, order: u64, rank: usize) -> u64 {
        self.prefixes[order::slot(order, rank)].load(Ordering::Acquire)
    }

    /// The rank of the first entry that does not precede `target`.
    #[inline]
    pub(super) fn lower_bound(&self, order: u64, target: &Target<'_>) -> usize {
        let (mut low, mut high) = (0, order::count(order));
        if self.tree != u64::from(target.tree) {
            return high;
        }
        while low < high {
            let middle = (low + high) / 2;
            let prefix = self.prefix(order, middle);
            if prefix < target.prefix || prefix == target.prefix && self.entry_precedes(order, middle, target) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// As [`Leaf::precedes`], for an entry with the target's prefix.
    fn entry_precedes(&self, order: u64, rank: usize, target: &Target<'_>) -> bool {
        let entry = self.entry(order, rank);
        let message = match self.level {
            0 => entry,
            // Safety: entries of inner nodes are leaves or inner nodes (S3), also when the order was replaced meanwhile.
            _ => unsafe { (*entry.cast::<Leaf>()).anchor },
        };
        // Safety: a message of this tree (S3). In a slot that was used again the prefix may be another's: then what is
        // found out is thrown away by `read`.
        message.is_null() || unsafe { node::precedes_beyond_prefix(message, target) }
    }

    /// The entry of an inner node below which `target` lies.
    #[inline]
    pub(super) fn child(&self, target: &Target<'_>) -> Link {
        let (.., child) = self.read(|order| self.entry(order, self.lower_bound(order, target).saturating_sub(1)));
        child.cast()
    }

    /// What `read` makes of the order, from a moment at which the leaf was not being split; with state and order.
    #[inline]
    pub(super) fn read<T>(&self, read: impl Fn(u64) -> T) -> (u64, u64, T) {
        loop {
            let state = self.state();
            let order = self.order.load(Ordering::Acquire);
            let value = read(order);
            if self.state() == state {
                return (state, order, value);
            }
        }
    }

    /// Forgets all entries but those of the ranks that `is_kept` is true for, of which there is one; under the latch. Who has found one of them
    /// before may still read it.
    pub(super) fn keep(&self, is_kept: impl Fn(usize) -> bool) {
        self.forget_all_but(order::keep(self.order.load(Ordering::Relaxed), is_kept));
    }

    /// Leaves what `order` names, which is less than before (S5).
    fn forget_all_but(&self, order: u64) {
        self.order.store(order, Ordering::Release);
        self.state.fetch_add(2, Ordering::Release);
    }

    /// A number that is different after each split, and after messages were forgotten.
    #[inline]
    pub(super) fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire) & !1
    }

    #[inline]
    pub(super) fn latch(&self) {
        let mut spins = 0u32;
        while self.state.fetch_or(1, Ordering::Acquire) & 1 == 1 {
            spins += 1;
            if spins.is_multiple_of(64) {
                crate::base::sync::yield_now();
            } else {
                crate::base::sync::spin_loop();
            }
        }
    }

    #[inline]
    pub(super) fn unlatch(&self) {
        self.state.store(self.state.load(Ordering::Relaxed) & !1, Ordering::Release);
    }

    /// Puts an entry into a free slot and publishes it; under the latch, or before the leaf is reachable.
    #[inline]
    pub(super) fn put(&self, rank: usize, prefix: u64, entry: *mut u8) {
        let order = self.order.load(Ordering::Relaxed);
        let slot = order::free_slot(order);
        self.prefixes[slot].store(prefix, Ordering::Release);
        self.entries[slot].store(entry, Ordering::Release);
        self.order.store(order::insert(order, rank), Ordering::Release);
    }

    /// The prefix of the anchor's key.
    pub(super) fn anchor_prefix(&self) -> u64 {
        self.anchor_prefix
    }
}

/// Inserts an entry at `rank` of a full leaf by splitting it: a new one takes the upper half, or, when the insert is
/// at the end and more are `ascending`, just the new entry. Returns the new one, linked behind on level 0.
///
/// # Safety
/// `link` is latched, full, and of the target's tree; `next` follows it; `entry` is a node (of a leaf) or a leaf or inner
/// node one level below (of an inner node), complete and with `message` as its message or anchor and `prefix` as that's
/// prefix; `links` is at least 1.
pub(super) unsafe fn split(
    arena: &Arena,
    link: Link,
    next: Link,
    (rank, ascending): (usize, bool),
    (prefix, entry, message): (u64, *mut u8, Node),
) -> NonNull<Leaf> {
    // Safety: by contract.
    let leaf = unsafe { &*link };
    let order = leaf.order.load(Ordering::Relaxed);
    let (anchor, kept) = if rank == SLOTS && ascending {
        ((prefix, message), SLOTS)
    } else {
        let slot = order::slot(order, KEPT);
        let first = leaf.entries[slot].load(Ordering::Relaxed);
        // Safety: entries of inner nodes are leaves or inner nodes (S3).
        let message = if leaf.level == 0 { first } else { unsafe { (*first.cast::<Leaf>()).anchor } };
        ((leaf.prefixes[slot].load(Ordering::Relaxed), message), KEPT)
    };
    let new = make(arena, 1, leaf.tree, leaf.level, anchor);
    // Safety: made just now, and not reachable before it is linked.
    let right = unsafe { new.as_ref() };
    for from in kept..SLOTS {
        let slot = order::slot(order, from);
        let (prefix, entry) = (&leaf.prefixes[slot], &leaf.entries[slot]);
        right.put(from - kept, prefix.load(Ordering::Relaxed), entry.load(Ordering::Relaxed));
    }
    if rank > KEPT {
        right.put(rank - kept, prefix, entry);
    }
    // Safety: both have level 0; under the latch nobody else changes the link of `link`.
    unsafe {
        next_of(new.as_ptr(), 0).store(next, Ordering::Relaxed);
        next_of(link, 0).store(new.as_ptr(), Ordering::Release);
    }
    if kept < SLOTS {
        leaf.forget_all_but(order::cut(order, kept));
        if rank <= KEPT {
            leaf.put(rank, prefix, entry);
        }
    }
    new
}

/// Null.
pub(super) const NO_LINK: Link = null_mut();

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::chunk_pool::ChunkPool;
    use super::*;
    use crate::base::TreeId;
    use crate::base::TxnId;
    use crate::base::key::inner;
    use crate::base::memory::MemoryBudget;
    use crate::format::{Kind, Message, Stamp};

    fn message(arena: &Arena, number: u64) -> (u64, Node) {
        let key = inner(TreeId(1), &number.to_be_bytes());
        let message =
            Message { key: &key, seq: 1, stamp: Stamp::Settled, kind: Kind::Put, blob: false, payload: b"payload" };
        (number, node::write(arena, 1, TxnId(1), 0, &message))
    }

    #[test]
    fn a_reader_that_meets_a_split_reads_again() {
        let arena = Arena::new(&ChunkPool::new(&MemoryBudget::new(1 << 30)));
        let first = make(&arena, 1, 1, 0, (0, null_mut()));
        // Safety: the arena outlives the test's use of the leaf.
        let leaf = unsafe { first.as_ref() };
        for rank in 0..SLOTS {
            let (prefix, node) = message(&arena, 10 * rank as u64);
            leaf.put(rank, prefix, node);
        }
        let key = inner(TreeId(1), &100u64.to_be_bytes());
        let target = Target::new(&key, u64::MAX);
        let reads = Cell::new(0);
        let (.., rank) = leaf.read(|order| {
            reads.set(reads.get() + 1);
            if reads.get() == 1 {
                // Another thread splits after the order was loaded, and inserts into slots that became free.
                leaf.latch();
                let (prefix, node) = message(&arena, 5);
                // Safety: latched, full, and 5 belongs between 0 and 10.
                unsafe { split(&arena, first.as_ptr(), NO_LINK, (1, true), (prefix, node, node)) };
                let (prefix, node) = message(&arena, 6);
                leaf.put(2, prefix, node);
                leaf.unlatch();
            }
            leaf.lower_bound(order, &target)
        });
        assert_eq!((reads.get(), rank), (2, 10), "the old order names slots that hold other messages now");
        assert_eq!(order::count(leaf.order.load(Ordering::Relaxed)), 10);
    }
}
