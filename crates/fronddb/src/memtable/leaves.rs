//! The sorted list of a memtable: concurrent inserts, reads without latches; removed is only what nobody needs ([`forget`]), and its memory stays.
//!
//! A B-link tree (Lehman and Yao 1981) for each tree of the database that has messages here, in memory that is freed as a
//! whole: pointers once read stay good, without epochs or reference counts. The leaves of all trees form one
//! chain in key order. A leaf holds the messages from its *anchor* (its first message, or the start of the tree) to the
//! next leaf's anchor. A full leaf is split: the upper half is copied to a new leaf, which is linked behind, and then
//! cut off; for a moment both have it. Only then the new leaf is made known to the inner nodes, which may
//! therefore lag behind: every step of a search moves right while the next node's anchor precedes what is looked for.
//!
//! Inside a node, entries stay in their slots and a word holds their order, as in Masstree (Mao, Kohler, Morris 2012); see
//! [`super::leaf`] for how readers do without latches.
//!
//! The first leaves of the trees, each of which has the root of its tree, are found by a skip list above the chain, and
//! the last used ones by a small table ([`STARTS`]). Ascending inserts find their leaf by a *hint*: for each tree (by
//! such a table too) the leaf at whose end was inserted last. A leaf that is split by an insert at its end stays full, unless the insert is of
//! a newer version of the row that the next leaf begins with: more of those come to the same place.
//!
//! - S1: a message is complete before a release store of an order (or of a link to its leaf) makes it reachable.
//! - S2: leaves are in order of their anchors. On level 0 of the chain are all of them, on level 1 the first ones of the
//!   trees, and each level above has some of those of the level below.
//! - S3, S4, S5: see [`super::leaf`].
//! - S6: a link on level 0 is changed only under its leaf's latch.
//! - S7: a root is the first node of its level, and no node of the tree has a higher level.
//! - S8: a leaf's first message stays in it, and its anchor with that (of a tree's first leaf, which has none, a newer message may come
//!   before). So the one before what follows the anchor is in the anchor's leaf.
//!
//! Latches: one node's at a time, taken with nothing else held.
//!
//! [`cursor`] walks the list and keeps it alive.
#![allow(unsafe_code, reason = "leaves in an arena, linked by atomic pointers")]

mod cursor;
mod forget;

use std::ptr::{NonNull, null_mut};

use crossbeam_utils::CachePadded;

use super::arena::Arena;
use super::chunk_pool::ChunkPool;
use super::leaf::{self, Leaf, Link, NO_LINK, next_of};
use super::node::{self, Node, Target};
use super::order;
use crate::base::TxnId;
use crate::base::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::format::{Message, Retention};
pub(super) use cursor::LeafCursor;
pub(super) use forget::Forgotten;

/// Most links of a leaf: enough for 16 million trees, each with one more link with probability 1/4.
const LINKS_MAX: usize = 13;
/// Trees whose places are remembered at a time.
const STARTS: usize = 64;
/// Leaves that are gone through one by one to get past the messages of a key; further, the search is shorter.
const LEAVES_NEAR: usize = 2;
/// The tree of the head, which holds nothing, and above all trees.
const NO_TREE: u64 = u64::MAX;

#[derive(Default)]
struct Place {
    /// The first leaf of a tree.
    start: AtomicPtr<Leaf>,
    /// The leaf of a tree at whose end was inserted last.
    hint: AtomicPtr<Leaf>,
}

/// The list.
pub(super) struct LeafList {
    head: NonNull<Leaf>,
    /// Levels of the skip list in use: links of its highest leaf.
    height: AtomicUsize,
    places: Box<[CachePadded<Place>; STARTS]>,
    /// Of leaves alone, so that they lie close together.
    leaves: Arena,
    nodes: Arena,
}

// Safety: all pointers are into the arenas (S3); nodes are immutable, leaves are changed by atomic operations only.
unsafe impl Send for LeafList {}
// Safety: as above.
unsafe impl Sync for LeafList {}

/// A message found: its node, and where it was when it was found.
#[derive(Clone, Copy)]
struct Position {
    node: Node,
    leaf: Link,
    state: u64,
    order: u64,
    rank: usize,
}

const NOWHERE: Position = Position { node: null_mut(), leaf: NO_LINK, state: 0, order: 0, rank: 0 };

impl LeafList {
    pub(super) fn new(chunks: &ChunkPool) -> LeafList {
        let leaves = Arena::new(chunks);
        let head = leaf::make(&leaves, LINKS_MAX, NO_TREE, 0, (0, null_mut()));
        let places = Box::new(std::array::from_fn(|_| CachePadded::new(Place::default())));
        LeafList { head, height: AtomicUsize::new(2), places, leaves, nodes: Arena::new(chunks) }
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.leaves.used_bytes() + self.nodes.used_bytes()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.leaves.held_bytes() + self.nodes.held_bytes()
    }

    fn head(&self) -> Link {
        self.head.as_ptr()
    }

    fn place(&self, tree: u32) -> &Place {
        &self.places[tree as usize % STARTS]
    }

    /// The leaf or inner node of a link.
    ///
    /// # Safety
    /// `link` is to a leaf or inner node of this list.
    #[inline]
    pub(super) unsafe fn at(&self, link: Link) -> &Leaf {
        // Safety: by contract; the arena lives as long as `self`.
        unsafe { &*link }
    }

    /// Moves right from a node that precedes `target`, or the head, to the last one on its level that does; with the
    /// one after that.
    ///
    /// # Safety
    /// `link` is to a leaf or inner node of this list.
    #[inline]
    pub(super) unsafe fn move_right(&self, mut link: Link, target: &Target<'_>) -> (&Leaf, Link, Link) {
        loop {
            // Safety: by contract, then a link (S3); every node has level 0 of a chain.
            let next = unsafe { next_of(link, 0).load(Ordering::Acquire) };
            // Safety: as above.
            if next.is_null() || !unsafe { self.at(next) }.precedes(target) {
                // Safety: as above.
                return (unsafe { self.at(link) }, link, next);
            }
            link = next;
        }
    }

    /// As [`LeafList::move_right`], and latches the node.
    ///
    /// # Safety
    /// As [`LeafList::move_right`].
    #[inline]
    unsafe fn latch_right(&self, mut link: Link, target: &Target<'_>) -> (&Leaf, Link, Link) {
        loop {
            // Safety: by contract, then a link (S3).
            let leaf = unsafe { self.at(link) };
            leaf.latch();
            // Safety: every node has level 0 of a chain.
            let next = unsafe { next_of(link, 0).load(Ordering::Acquire) };
            // Safety: a link (S3).
            if next.is_null() || !unsafe { self.at(next) }.precedes(target) {
                return (leaf, link, next);
            }
            leaf.unlatch();
            link = next;
        }
    }

    /// Adds a message; `message.seq` and `message.stamp` are not looked at. It may have messages forgotten that `retention` lets go, and returns
    /// how many of each kind.
    #[inline]
    pub(super) fn insert<'r>(
        &self,
        (seq, txn, step): (u64, TxnId, u32),
        message: &Message<'_>,
        retention: impl FnOnce() -> Option<Retention<'r>>,
    ) -> Option<Forgotten> {
        let node = node::write(&self.nodes, seq, txn, step, message);
        let target = Target::new(message.key, seq);
        let place = self.place(target.tree);
        let from = self.hinted(&place.hint, &target).unwrap_or_else(|| self.search(&target));
        // Safety: found in this list.
        let (leaf, link, next) = unsafe { self.latch_right(from, &target) };
        if leaf.tree != u64::from(target.tree) {
            // Safety: the tree's place is after the latched leaf, and `next` is of a higher tree.
            unsafe { self.begin_tree(leaf, link, next, &target, node) };
            return None;
        }
        let order = leaf.order.load(Ordering::Relaxed);
        let (mut rank, mut count) = (leaf.lower_bound(order, &target), order::count(order));
        let (prefix, follower) = match rank < count {
            true => (leaf.prefix(order, rank), leaf.entry(order, rank)),
            // Safety: a link is null or to a leaf.
            false => unsafe { anchor_of(next) },
        };
        // The follower itself mostly lies in no cache of the processor, so its prefix is asked first.
        // Safety: `follower` is null or a node; `node` is not reachable.
        let is_version = unsafe {
            let same = prefix == target.prefix && !follower.is_null() && node::key_of(follower) == message.key;
            if same && node::seq_of(follower) == seq {
                node::set_turn(node, node::turn_of(follower) + 1);
            }
            same
        };
        let mut forgotten = None;
        if count == order::SLOTS && is_version {
            // Safety: latched.
            forgotten = retention().and_then(|retention| unsafe { forget::forget(leaf, &retention) });
            if forgotten.is_some() {
                let order = leaf.order.load(Ordering::Relaxed);
                (rank, count) = (leaf.lower_bound(order, &target), order::count(order));
            }
        }
        if count < order::SLOTS {
            leaf.put(rank, target.prefix, node);
            leaf.unlatch();
            if rank == count && place.hint.load(Ordering::Relaxed) != link {
                place.hint.store(link, Ordering::Release);
            }
            return forgotten;
        }
        let entry = (target.prefix, node, node);
        // Safety: latched, full, and where `node` belongs, which is filled in.
        let new = unsafe { leaf::split(&self.leaves, link, next, (rank, !is_version), entry) };
        leaf.unlatch();
        if rank == count {
            place.hint.store(new.as_ptr(), Ordering::Release);
        }
        self.make_known(target.tree, new);
        None
    }

    /// The leaf of a hint, when `target` belongs there.
    #[inline]
    fn hinted(&self, hint: &AtomicPtr<Leaf>, target: &Target<'_>) -> Option<Link> {
        let link = hint.load(Ordering::Acquire);
        // Safety: a hint is null or a leaf (S3).
        if link.is_null() || unsafe { self.at(link).tree != u64::from(target.tree) || !self.at(link).precedes(target) }
        {
            return None;
        }
        // Safety: every leaf has level 0; a link is null or to a leaf.
        let next = unsafe { next_of(link, 0).load(Ordering::Acquire) };
        // Safety: as above.
        (next.is_null() || !unsafe { self.at(next) }.precedes(target)).then_some(link)
    }

    /// Inserts the first message of a tree, and unlatches.
    ///
    /// # Safety
    /// `leaf`, at `link`, is latched and of a lower tree, or the head; `next` follows it and is of a higher tree or
    /// null; `node` is filled in and not reachable.
    #[cold]
    unsafe fn begin_tree(&self, leaf: &Leaf, link: Link, next: Link, target: &Target<'_>, node: Node) {
        let links = self.random_links();
        let tree = u64::from(target.tree);
        let new = leaf::make(&self.leaves, links, tree, 0, (0, null_mut()));
        // Safety: made just now with at least two links; under the latch of `leaf` nobody else changes its link (S6).
        unsafe {
            new.as_ref().put(0, target.prefix, node);
            new.as_ref().root.store(new.as_ptr(), Ordering::Relaxed);
            next_of(new.as_ptr(), 0).store(next, Ordering::Relaxed);
            next_of(link, 0).store(new.as_ptr(), Ordering::Release);
        }
        leaf.unlatch();
        self.height.fetch_max(links, Ordering::Relaxed);
        let mut befores = [self.head(); LINKS_MAX];
        self.start_below(tree, |level, before| befores[level] = before);
        for (level, mut before) in befores.into_iter().enumerate().take(links).skip(1) {
            loop {
                // Safety: the head or found on this level.
                let mut next = unsafe { next_of(before, level).load(Ordering::Acquire) };
                // Safety: a link is null or to a leaf, here of this level.
                while !next.is_null() && unsafe { self.at(next) }.tree < tree {
                    before = next;
                    // Safety: as above.
                    next = unsafe { next_of(before, level).load(Ordering::Acquire) };
                }
                // Safety: `new` has this level, and only this call links it there; `before` has it.
                let place = unsafe {
                    next_of(new.as_ptr(), level).store(next, Ordering::Relaxed);
                    next_of(before, level)
                };
                if place.compare_exchange(next, new.as_ptr(), Ordering::Release, Ordering::Relaxed).is_ok() {
                    break;
                }
            }
        }
        self.place(target.tree).start.store(new.as_ptr(), Ordering::Release);
        self.place(target.tree).hint.store(new.as_ptr(), Ordering::Release);
    }

    /// Two, or more by tossing coins, from an address that is different for each leaf.
    fn random_links(&self) -> usize {
        let mixed = self.leaves.ticket().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let zeros = (mixed ^ (mixed >> 32)).trailing_zeros() as usize;
        (2 + zeros / 2).min(LINKS_MAX)
    }

    /// Enters a leaf that came from a split into the inner nodes, which may have to be split themselves.
    fn make_known(&self, tree: u32, mut new: NonNull<Leaf>) {
        let start = self.start_of(tree);
        // Safety: the head or the first leaf of a tree.
        let first = unsafe { self.at(start) };
        if first.tree != u64::from(tree) {
            // Its thread is about to enter the tree into the skip list. The leaf is found from its neighbour.
            return;
        }
        loop {
            // Safety: made by a split, which gave it an anchor.
            let (below, target) = unsafe { (new.as_ref(), Target::of(new.as_ref().anchor, false)) };
            let level = below.level + 1;
            let mut link = first.root.load(Ordering::Acquire);
            // Safety: a root is a leaf or inner node (S3).
            if unsafe { self.at(link) }.level < level {
                first.latch();
                link = first.root.load(Ordering::Acquire);
                // Safety: as above.
                if unsafe { self.at(link) }.level < level {
                    let root = leaf::make(&self.leaves, 1, first.tree, level, (0, null_mut()));
                    // Safety: made just now; its entries are the first node of the level below (S7), and the new one.
                    unsafe { root.as_ref() }.put(0, 0, link.cast());
                    // Safety: as above.
                    unsafe { root.as_ref() }.put(1, below.anchor_prefix(), new.as_ptr().cast());
                    first.root.store(root.as_ptr(), Ordering::Release);
                    first.unlatch();
                    return;
                }
                first.unlatch();
            }
            let parent = self.walk_down(link, &target, level);
            // Safety: found in this list.
            let (parent, link, next) = unsafe { self.latch_right(parent, &target) };
            let order = parent.order.load(Ordering::Relaxed);
            let rank = parent.lower_bound(order, &target);
            let entry = (below.anchor_prefix(), new.as_ptr().cast(), below.anchor);
            if order::count(order) < order::SLOTS {
                parent.put(rank, entry.0, entry.1);
                parent.unlatch();
                return;
            }
            // Safety: latched, full, and where the new node belongs, which is complete.
            new = unsafe { leaf::split(&self.leaves, link, next, (rank, true), entry) };
            parent.unlatch();
        }
    }

    /// The node on `level`, or a leaf or inner node left of it, below which `target` lies.
    #[inline]
    fn walk_down(&self, mut link: Link, target: &Target<'_>, level: u64) -> Link {
        loop {
            leaf::prefetch_node(link);
            // Safety: a root or an entry of an inner node (S3).
            let node = unsafe { self.at(link) };
            if node.level <= level {
                return link;
            }
            // Safety: as above.
            link = unsafe { self.move_right(link, target) }.0.child(target);
        }
    }

    /// A leaf that precedes `target`, or the head; near to where it belongs.
    #[inline]
    fn search(&self, target: &Target<'_>) -> Link {
        let start = self.start_of(target.tree);
        if start == self.head() {
            return start;
        }
        // Safety: the first leaf of a tree.
        let root = unsafe { self.at(start) }.root.load(Ordering::Acquire);
        self.walk_down(root, target, 0)
    }

    /// The first leaf of this tree, or of the last known one below, or the head.
    #[inline]
    pub(super) fn start_of(&self, tree: u32) -> Link {
        let place = self.place(tree);
        let link = place.start.load(Ordering::Acquire);
        // Safety: null or the first leaf of a tree (S3).
        if !link.is_null() && unsafe { self.at(link) }.tree == u64::from(tree) {
            return link;
        }
        let link = self.start_below(u64::from(tree) + 1, |_, _| ());
        // Safety: the head or the first leaf of a tree.
        if unsafe { self.at(link) }.tree == u64::from(tree) {
            place.start.store(link, Ordering::Release);
        }
        link
    }

    /// The first leaf of the last tree below `bound`, or the head. Tells `visit` the last one on each level.
    fn start_below(&self, bound: u64, mut visit: impl FnMut(usize, Link)) -> Link {
        let mut before = self.head();
        for level in (1..self.height.load(Ordering::Relaxed)).rev() {
            loop {
                // Safety: the head or found on this level or a higher one (S2).
                let next = unsafe { next_of(before, level).load(Ordering::Acquire) };
                // Safety: a link is null or to a leaf.
                if next.is_null() || unsafe { self.at(next) }.tree >= bound {
                    break;
                }
                before = next;
            }
            visit(level, before);
        }
        before
    }

    /// The first message that does not precede `target`, looked for from a leaf on that precedes it, or the head.
    #[inline]
    fn first_from(&self, mut from: Link, target: &Target<'_>) -> Position {
        loop {
            // Safety: in this list.
            let (leaf, link, next) = unsafe { self.move_right(from, target) };
            let (state, order, (rank, node)) = leaf.read(|order| {
                let rank = leaf.lower_bound(order, target);
                (rank, if rank < order::count(order) { leaf.entry(order, rank) } else { null_mut() })
            });
            if !node.is_null() {
                let position = Position { node, leaf: link, state, order, rank };
                self.prefetch(&position);
                return position;
            }
            // Safety: every leaf has level 0. A leaf that was linked meanwhile may hold what is looked for.
            if unsafe { next_of(link, 0).load(Ordering::Acquire) } == next {
                return self.edge_of(next, |_| 0);
            }
            from = link;
        }
    }

    /// The message of a leaf at a rank that depends on the number of messages; nowhere for null or the head.
    #[inline]
    fn edge_of(&self, link: Link, rank: impl Fn(usize) -> usize) -> Position {
        if link.is_null() || link == self.head() {
            return NOWHERE;
        }
        // Safety: a leaf of this list. It holds at least one message from before it was linked.
        let leaf = unsafe { self.at(link) };
        let (state, order, node) = leaf.read(|order| leaf.entry(order, rank(order::count(order))));
        Position { node, leaf: link, state, order, rank: rank(order::count(order)) }
    }

    /// The last message that precedes `target`.
    fn last_before(&self, target: &Target<'_>) -> Position {
        let mut from = self.search(target);
        loop {
            // Safety: in this list.
            let (leaf, link, next) = unsafe { self.move_right(from, target) };
            let (state, order, (rank, node)) = leaf.read(|order| {
                let rank = leaf.lower_bound(order, target);
                (rank, if rank > 0 { leaf.entry(order, rank - 1) } else { null_mut() })
            });
            // Safety: every leaf has level 0. What lies last may have moved to a leaf that was linked meanwhile.
            if unsafe { next_of(link, 0).load(Ordering::Acquire) } != next {
                from = link;
                continue;
            }
            if !node.is_null() {
                return Position { node, leaf: link, state, order, rank: rank - 1 };
            }
            // Only the first leaf of a tree can hold nothing before the target: its anchor is not a message.
            return if link == self.head() { NOWHERE } else { self.last_below(leaf.tree) };
        }
    }

    /// The last message of the trees below `bound`.
    fn last_below(&self, bound: u64) -> Position {
        let start = self.start_below(bound, |_, _| ());
        let mut link = start;
        if start != self.head() {
            // Safety: the first leaf of a tree.
            link = unsafe { self.at(start) }.root.load(Ordering::Acquire);
        }
        loop {
            // Safety: a leaf or inner node of this list; each has level 0 of a chain.
            let (node, next) = unsafe { (self.at(link), next_of(link, 0).load(Ordering::Acquire)) };
            // Safety: a link is null or to a leaf or inner node.
            if !next.is_null() && unsafe { self.at(next) }.tree < bound {
                link = next;
                continue;
            }
            if node.level > 0 {
                link = node.read(|order| node.entry(order, order::count(order) - 1)).2.cast();
                continue;
            }
            let position = self.edge_of(link, |count| count - 1);
            // Safety: as above.
            if unsafe { next_of(link, 0).load(Ordering::Acquire) } == next {
                return position;
            }
        }
    }

    #[inline]
    fn seek(&self, key: &[u8]) -> Position {
        let target = Target::new(key, u64::MAX);
        self.first_from(self.search(&target), &target)
    }

    /// The message after the one at `position`.
    #[inline]
    fn next(&self, position: &Position) -> Position {
        match self.neighbour(position, |rank| rank.wrapping_add(1)) {
            Some(next) => {
                self.prefetch(&next);
                next
            }
            // Safety: a node of this list. Its leaf precedes the place after it, also when the node is the anchor.
            None => self.first_from(position.leaf, &unsafe { Target::of(position.node, true) }),
        }
    }

    /// The newest message of the first key after that of the message at `position`; nowhere from nowhere.
    #[inline]
    fn next_key(&self, position: &Position) -> Position {
        if position.node.is_null() {
            return NOWHERE;
        }
        if let Some(next) = self.neighbour(position, |rank| rank.wrapping_add(1)) {
            // Safety: nodes of this list.
            if unsafe { node::key_of(next.node) != node::key_of(position.node) } {
                self.prefetch(&next);
                return next;
            }
        }
        self.past_versions(position)
    }

    /// The same where the key has more messages.
    fn past_versions(&self, position: &Position) -> Position {
        // Behind the oldest that there can be.
        // Safety: a node of this list.
        let target = Target { seq: 0, turn: 0, ..unsafe { Target::of(position.node, true) } };
        let mut from = position.leaf;
        for _ in 0..LEAVES_NEAR {
            // Safety: a leaf of this list; every leaf has level 0.
            let next = unsafe { next_of(from, 0).load(Ordering::Acquire) };
            // Safety: a link is null or to a leaf.
            if next.is_null() || !unsafe { self.at(next) }.precedes(&target) {
                return self.first_from(from, &target);
            }
            from = next;
        }
        self.first_from(self.search(&target), &target)
    }

    /// Has the processor read the message at `position`, and the key of the one after it in its leaf: a walk comes there when it has done
    /// something else, in a merge mostly.
    #[inline]
    fn prefetch(&self, position: &Position) {
        node::prefetch_message(position.node);
        if !position.node.is_null() && position.rank + 1 < order::count(position.order) {
            // Safety: a position is in a leaf of this list.
            node::prefetch_key(unsafe { self.at(position.leaf) }.entry(position.order, position.rank + 1));
        }
    }

    /// The message before the one at `position`.
    fn prev(&self, position: &Position) -> Position {
        match self.neighbour(position, |rank| rank.wrapping_sub(1)) {
            Some(prev) => prev,
            // Safety: a node of this list.
            None => self.last_before(&unsafe { Target::of(position.node, false) }),
        }
    }

    /// The message at another rank of the position's leaf, if the leaf is as it was; nowhere from nowhere.
    #[inline]
    fn neighbour(&self, position: &Position, rank: impl Fn(usize) -> usize) -> Option<Position> {
        if position.node.is_null() {
            return Some(NOWHERE);
        }
        let rank = rank(position.rank);
        // Safety: a position is in a leaf of this list.
        let leaf = unsafe { self.at(position.leaf) };
        if rank >= order::count(position.order) || leaf.order.load(Ordering::Acquire) != position.order {
            return None;
        }
        let node = leaf.entry(position.order, rank);
        (leaf.state() == position.state).then_some(Position { node, rank, ..*position })
    }

    /// Visits the messages of `key`, newest first, until `visit` is false.
    #[inline]
    pub(super) fn get<'l>(&'l self, key: &[u8], mut visit: impl FnMut(&Message<'l>) -> bool) {
        let mut position = self.seek(key);
        // Safety: null or a node of this list (S3), whose arena lives as long as `'l`.
        while !position.node.is_null() && unsafe { node::key_of(position.node) } == key {
            // Safety: as above.
            if !visit(&unsafe { node::message_of(position.node) }) {
                return;
            }
            position = self.next(&position);
        }
    }
}

/// The anchor of a leaf, with the prefix of its key; null for null.
///
/// # Safety
/// `link` is null or to a leaf in an arena that lives.
#[inline]
unsafe fn anchor_of(link: Link) -> (u64, Node) {
    // Safety: by contract.
    if link.is_null() { (0, null_mut()) } else { unsafe { ((*link).anchor_prefix(), (*link).anchor) } }
}
