//! The sorted list of a memtable: concurrent inserts, reads without locks, nothing is ever removed.
//!
//! An unrolled skip list. The bottom is a chain of *leaves*, each with up to 15 messages of one tree; above them is
//! a skip list (Pugh 1990) whose elements are the leaves. Compared with a skip list of messages it has a fifteenth of
//! the elements, and their keys' first bytes lie side by side, so that an insert among half a million messages misses
//! the cache a few times and not twenty. In a leaf we do what Masstree does (Mao, Kohler, Morris 2012): messages stay in
//! their slots and a word holds their *order*, so that an insert shifts nothing and is published by one store.
//! Memory is an arena that is freed as a whole, so pointers once read stay good, without epochs or reference counts.
//!
//! A leaf holds the messages from its *anchor* (its first message, or the start of the tree) to the next leaf's anchor.
//! A writer latches the leaf. A full leaf is split: the upper half is copied to a new leaf, which is linked behind, and
//! then cut off; for a moment both have it. Readers take no latch. They move right while the next leaf's anchor
//! precedes what they look for, and read again when the leaf was split meanwhile, because only a split lets slots be
//! used again. So a reader is never stopped by a writer that is not running.
//!
//! Ascending inserts find their leaf by a *hint*: for each tree (by a small table), the leaf at whose end was inserted last.
//! A leaf that is split by an insert at its end stays full.
//!
//! - S1: a message is complete before a release store of an order (or of a link to its leaf) makes it reachable.
//! - S2: on each level the leaves are in order of their anchors, and a leaf on a level is on all levels below.
//! - S3: links, slots in an order, anchors and hints are null or point into this list's arena.
//! - S4: tree, anchor and height of a leaf never change. What an order names is in order, and at or after the anchor.
//! - S5: `state` is even when nobody holds the latch; it grows by 2 at each split, after the order was cut and before
//!   a slot that it had is used again.
//! - S6: a leaf's link on level 0 is changed only under its latch.
//!
//! Latches: one leaf's at a time, taken with nothing else held.
#![allow(unsafe_code, reason = "leaves in an arena, linked by atomic pointers")]

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

use super::arena::Arena;
use super::node::{self, Node, Target};
use super::order;
use crate::base::TxnId;
use crate::base::memory::MemoryBudget;
use crate::format::Message;

/// Most levels. A leaf has one more level with probability 1/4: enough for 16 million leaves.
const HEIGHT_MAX: usize = 12;
/// Trees whose ascending inserts are remembered at a time.
const HINTS: usize = 64;
/// Messages in a leaf.
const SLOTS: usize = order::SLOTS;
/// Messages that stay when a leaf is split in the middle.
const KEPT: usize = SLOTS.div_ceil(2);
/// The tree of the head, which holds nothing.
const NO_TREE: u64 = u64::MAX;

/// A leaf. Its links lie before it, level 0 last.
struct Leaf {
    tree: u64,
    anchor_prefix: u64,
    /// Null: the start of the tree.
    anchor: Node,
    order: AtomicU64,
    state: AtomicU64,
    prefixes: [AtomicU64; SLOTS],
    nodes: [AtomicPtr<u8>; SLOTS],
}

type Link = *mut Leaf;

/// The list.
pub(super) struct LeafList {
    head: NonNull<Leaf>,
    height: AtomicUsize,
    hints: Box<[CachePadded<AtomicPtr<Leaf>>; HINTS]>,
    arena: Arena,
}

// Safety: all pointers are into `arena` (S3); nodes are immutable, leaves are changed by atomic operations only.
unsafe impl Send for LeafList {}
// Safety: as above.
unsafe impl Sync for LeafList {}

/// The link of `leaf` on `level`.
///
/// # Safety
/// `leaf` is a leaf whose height is above `level`, in an arena that outlives `'l`.
#[inline]
unsafe fn next_of<'l>(leaf: Link, level: usize) -> &'l AtomicPtr<Leaf> {
    // Safety: a leaf's links lie before it, one aligned pointer per level.
    unsafe { &*leaf.cast::<AtomicPtr<Leaf>>().sub(level + 1) }
}

impl Leaf {
    /// True when the anchor comes before `target`: then a message at `target` does not belong to an earlier leaf.
    #[inline]
    fn precedes(&self, target: &Target<'_>) -> bool {
        let place = (self.tree, self.anchor_prefix);
        let other = (u64::from(target.tree), target.prefix);
        if place != other {
            return place < other;
        }
        // Safety: an anchor is null or a node (S3) of this tree with this prefix.
        self.anchor.is_null() || unsafe { node::precedes_beyond_prefix(self.anchor, target) }
    }

    #[inline]
    fn node_at(&self, order: u64, rank: usize) -> Node {
        self.nodes[order::slot(order, rank)].load(Ordering::Acquire)
    }

    /// The rank of the first message that does not precede `target`.
    #[inline]
    fn lower_bound(&self, order: u64, target: &Target<'_>) -> usize {
        let (mut low, mut high) = (0, order::count(order));
        if self.tree != u64::from(target.tree) {
            return high;
        }
        while low < high {
            let middle = (low + high) / 2;
            let prefix = self.prefixes[order::slot(order, middle)].load(Ordering::Acquire);
            let precedes = prefix < target.prefix
                // Safety: what an order names is a node (S3), also when the order was replaced meanwhile.
                || prefix == target.prefix && unsafe { node::precedes_beyond_prefix(self.node_at(order, middle), target) };
            if precedes {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// What `read` makes of the leaf's order, from a moment at which it was not split.
    #[inline]
    fn read<T>(&self, read: impl Fn(u64) -> T) -> (u64, u64, T) {
        loop {
            let state = self.state.load(Ordering::Acquire) & !1;
            let order = self.order.load(Ordering::Acquire);
            let value = read(order);
            if self.state.load(Ordering::Acquire) & !1 == state {
                return (state, order, value);
            }
        }
    }

    fn latch(&self) {
        let mut spins = 0u32;
        while self.state.fetch_or(1, Ordering::Acquire) & 1 == 1 {
            spins += 1;
            if spins.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn unlatch(&self) {
        self.state.store(self.state.load(Ordering::Relaxed) & !1, Ordering::Release);
    }

    /// Puts a node into a free slot and publishes it; under the latch, or before the leaf is reachable.
    #[inline]
    fn put(&self, rank: usize, prefix: u64, node: Node) {
        let order = self.order.load(Ordering::Relaxed);
        let slot = order::free_slot(order);
        self.prefixes[slot].store(prefix, Ordering::Release);
        self.nodes[slot].store(node, Ordering::Release);
        self.order.store(order::insert(order, rank), Ordering::Release);
    }
}

/// A message found: its node, and where it was when it was found.
#[derive(Clone, Copy)]
struct Position {
    node: Node,
    leaf: Link,
    state: u64,
    order: u64,
    rank: usize,
}

const NOWHERE: Position = Position { node: null_mut(), leaf: null_mut(), state: 0, order: 0, rank: 0 };

impl LeafList {
    pub(super) fn new(budget: &MemoryBudget) -> LeafList {
        let arena = Arena::new(budget);
        let head = make_leaf(&arena, HEIGHT_MAX, NO_TREE, 0, null_mut()).leaf;
        let hints = Box::new(std::array::from_fn(|_| CachePadded::new(AtomicPtr::new(null_mut()))));
        LeafList { head, height: AtomicUsize::new(1), hints, arena }
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.arena.used_bytes()
    }

    pub(super) fn mapped_bytes(&self) -> usize {
        self.arena.mapped_bytes()
    }

    /// Adds a message; `message.seq` and `message.stamp` are not looked at.
    #[inline]
    pub(super) fn insert(&self, seq: u64, txn: TxnId, step: u32, message: &Message<'_>) {
        let node = node::write(&self.arena, seq, txn, step, message);
        let target = Target::new(message.key, seq);
        let hint = &*self.hints[target.tree as usize % HINTS];
        let mut link = self.hinted(hint, &target).unwrap_or_else(|| self.search(&target, |_, _| ()));
        let (leaf, next) = loop {
            // Safety: the head, or a leaf (S3); the arena lives as long as `self`.
            let leaf = unsafe { &*link };
            leaf.latch();
            // Safety: every leaf has level 0.
            let next = unsafe { next_of(link, 0).load(Ordering::Acquire) };
            // Safety: as above.
            if next.is_null() || !unsafe { &*next }.precedes(&target) {
                break (leaf, next);
            }
            leaf.unlatch();
            link = next;
        };
        // Safety: `leaf` is latched and the place for `target`; `node` is filled and not reachable.
        let (at_end, into) = unsafe { self.insert_into(link, leaf, next, &target, node) };
        leaf.unlatch();
        if at_end && hint.load(Ordering::Relaxed) != into {
            hint.store(into, Ordering::Release);
        }
    }

    /// The leaf of a hint, when `target` belongs there.
    #[inline]
    fn hinted(&self, hint: &AtomicPtr<Leaf>, target: &Target<'_>) -> Option<Link> {
        let link = hint.load(Ordering::Acquire);
        // Safety: a hint is null or a leaf (S3).
        if link.is_null() || unsafe { (*link).tree != u64::from(target.tree) || !(*link).precedes(target) } {
            return None;
        }
        // Safety: every leaf has level 0; a link is null or a leaf.
        let next = unsafe { next_of(link, 0).load(Ordering::Acquire) };
        // Safety: as above.
        (next.is_null() || !unsafe { &*next }.precedes(target)).then_some(link)
    }

    /// Inserts where `target` belongs. True when it came to lie at the end of a leaf; and that leaf.
    ///
    /// # Safety
    /// `leaf`, at `link`, is latched, it precedes `target`, and `next`, which follows it, does not; `node` is filled in
    /// and not reachable.
    #[inline]
    unsafe fn insert_into(&self, link: Link, leaf: &Leaf, next: Link, target: &Target<'_>, node: Node) -> (bool, Link) {
        if leaf.tree != u64::from(target.tree) {
            let new = make_leaf(&self.arena, self.new_height(), target.tree.into(), 0, null_mut());
            // Safety: made just now.
            unsafe { new.leaf() }.put(0, target.prefix, node);
            // Safety: by contract; the tree's first leaf is before everything of the tree.
            unsafe { self.link(link, next, &new, target.tree, null_mut()) };
            return (true, new.as_link());
        }
        let order = leaf.order.load(Ordering::Relaxed);
        let (rank, count) = (leaf.lower_bound(order, target), order::count(order));
        let follower = match rank < count {
            true => leaf.node_at(order, rank),
            // Safety: a link is null or a leaf.
            false if !next.is_null() => unsafe { (*next).anchor },
            false => null_mut(),
        };
        // Safety: `follower` is null or a node; `node` is not reachable.
        unsafe {
            if !follower.is_null() && node::seq_of(follower) == target.seq && node::key_of(follower) == target.key {
                node::set_turn(node, node::turn_of(follower) + 1);
            }
        }
        if count < SLOTS {
            leaf.put(rank, target.prefix, node);
            return (rank == count, link);
        }
        if rank == SLOTS {
            let new = make_leaf(&self.arena, self.new_height(), leaf.tree, target.prefix, node);
            // Safety: made just now.
            unsafe { new.leaf() }.put(0, target.prefix, node);
            // Safety: by contract; the anchor is after everything in `leaf` and before `next`.
            unsafe { self.link(link, next, &new, target.tree, node) };
            return (true, new.as_link());
        }
        // Safety: by contract.
        unsafe { self.split(link, leaf, next, rank, target, node) }
        (false, link)
    }

    /// Splits a full leaf and inserts at `rank`.
    ///
    /// # Safety
    /// As [`LeafList::insert_into`]; the leaf is full and of the target's tree.
    unsafe fn split(&self, link: Link, leaf: &Leaf, next: Link, rank: usize, target: &Target<'_>, node: Node) {
        let order = leaf.order.load(Ordering::Relaxed);
        let slot = order::slot(order, KEPT);
        let (prefix, anchor) = (leaf.prefixes[slot].load(Ordering::Relaxed), leaf.nodes[slot].load(Ordering::Relaxed));
        let new = make_leaf(&self.arena, self.new_height(), leaf.tree, prefix, anchor);
        // Safety: made just now, and not reachable before it is linked.
        let right = unsafe { new.leaf() };
        for from in KEPT..SLOTS {
            let slot = order::slot(order, from);
            let (prefix, node) = (&leaf.prefixes[slot], &leaf.nodes[slot]);
            right.put(from - KEPT, prefix.load(Ordering::Relaxed), node.load(Ordering::Relaxed));
        }
        if rank > KEPT {
            right.put(rank - KEPT, target.prefix, node);
        }
        // Safety: by contract; the anchor is a message of `leaf`, and `next` comes after all of them.
        unsafe { self.link(link, next, &new, target.tree, anchor) };
        leaf.order.store(order::cut(order, KEPT), Ordering::Release);
        leaf.state.fetch_add(2, Ordering::Release);
        if rank <= KEPT {
            leaf.put(rank, target.prefix, node);
        }
    }

    /// Makes `new` reachable: after `before` on level 0, then on its other levels.
    ///
    /// # Safety
    /// `before` is latched and `next` follows it; `new` is filled in, not reachable, has this tree and anchor, and
    /// belongs between them.
    unsafe fn link(&self, before: Link, next: Link, new: &NewLeaf, tree: u32, anchor: Node) {
        let link = new.as_link();
        // Safety: every leaf has level 0; under the latch of `before` nobody else changes its link (S6).
        unsafe {
            next_of(link, 0).store(next, Ordering::Relaxed);
            next_of(before, 0).store(link, Ordering::Release);
        }
        if new.height == 1 {
            return;
        }
        self.height.fetch_max(new.height, Ordering::Relaxed);
        // Safety: an anchor is null or a node of this arena.
        let target = (!anchor.is_null()).then(|| unsafe { Target::of(anchor, false) });
        let is_before = |leaf: &Leaf| match &target {
            Some(target) => leaf.precedes(target),
            None => leaf.tree < u64::from(tree),
        };
        let mut befores = [self.head.as_ptr(); HEIGHT_MAX];
        self.descend(is_before, |level, found| befores[level] = found);
        for (level, mut before) in befores.into_iter().enumerate().take(new.height).skip(1) {
            loop {
                // Safety: found on this level, or the head.
                let mut next = unsafe { next_of(before, level).load(Ordering::Acquire) };
                // Safety: a link is null or a leaf, here of this level.
                while !next.is_null() && is_before(unsafe { &*next }) {
                    before = next;
                    // Safety: as above.
                    next = unsafe { next_of(before, level).load(Ordering::Acquire) };
                }
                // Safety: `new` is higher than `level`, and only this call links it there.
                unsafe { next_of(link, level).store(next, Ordering::Relaxed) };
                // Safety: `before` is of this level.
                let place = unsafe { next_of(before, level) };
                if place.compare_exchange(next, link, Ordering::Release, Ordering::Relaxed).is_ok() {
                    break;
                }
            }
        }
    }

    /// A height whose distribution is that of coin tosses, from an address that is different for each leaf.
    fn new_height(&self) -> usize {
        let mixed = self.arena.ticket().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let zeros = (mixed ^ (mixed >> 32)).trailing_zeros() as usize;
        (1 + zeros / 2).min(HEIGHT_MAX)
    }

    /// The last leaf for which `is_before` holds, as it does for all before it; else the head. Tells `visit` the last
    /// one on each level.
    #[inline]
    fn descend(&self, is_before: impl Fn(&Leaf) -> bool, mut visit: impl FnMut(usize, Link)) -> Link {
        let mut before = self.head.as_ptr();
        let mut known: Link = null_mut();
        let mut level = self.height.load(Ordering::Relaxed);
        loop {
            level -= 1;
            let next = loop {
                // Safety: `before` is the head or was found on this level or a higher one (S2).
                let next = unsafe { next_of(before, level).load(Ordering::Acquire) };
                // Safety: a link is null or a leaf (S3). `known` was looked at one level up.
                if next.is_null() || next == known || !is_before(unsafe { &*next }) {
                    break next;
                }
                before = next;
            };
            visit(level, before);
            if level == 0 {
                return before;
            }
            known = next;
        }
    }

    /// The last leaf that precedes `target`, or the head.
    #[inline]
    fn search(&self, target: &Target<'_>, visit: impl FnMut(usize, Link)) -> Link {
        self.descend(|leaf| leaf.precedes(target), visit)
    }

    /// The first message that does not precede `target`, looked for from a leaf on that precedes it, or the head.
    #[inline]
    fn first_from(&self, mut link: Link, target: &Target<'_>) -> Position {
        loop {
            // Safety: the head or a leaf (S3); every leaf has level 0.
            let (leaf, next) = unsafe { (&*link, next_of(link, 0).load(Ordering::Acquire)) };
            // Safety: a link is null or a leaf.
            if !next.is_null() && unsafe { &*next }.precedes(target) {
                link = next;
                continue;
            }
            let (state, order, (rank, node)) = leaf.read(|order| {
                let rank = leaf.lower_bound(order, target);
                (rank, if rank < order::count(order) { leaf.node_at(order, rank) } else { null_mut() })
            });
            if !node.is_null() {
                return Position { node, leaf: link, state, order, rank };
            }
            // Safety: as above. A leaf that was linked meanwhile may hold what is looked for.
            if unsafe { next_of(link, 0).load(Ordering::Acquire) } == next {
                return self.edge_of(next, |_| 0);
            }
        }
    }

    /// The message of `leaf` at a rank that depends on the number of messages; nowhere for null or the head.
    fn edge_of(&self, link: Link, rank: impl Fn(usize) -> usize) -> Position {
        if link.is_null() || link == self.head.as_ptr() {
            return NOWHERE;
        }
        // Safety: a leaf (S3). It holds at least one message from before it was linked.
        let leaf = unsafe { &*link };
        let (state, order, node) = leaf.read(|order| leaf.node_at(order, rank(order::count(order))));
        Position { node, leaf: link, state, order, rank: rank(order::count(order)) }
    }

    /// The last message that precedes `target`.
    fn last_before(&self, target: &Target<'_>) -> Position {
        let mut link = self.search(target, |_, _| ());
        loop {
            // Safety: the head or a leaf (S3); every leaf has level 0.
            let (leaf, next) = unsafe { (&*link, next_of(link, 0).load(Ordering::Acquire)) };
            // Safety: a link is null or a leaf.
            if !next.is_null() && unsafe { &*next }.precedes(target) {
                link = next;
                continue;
            }
            let (state, order, (rank, node)) = leaf.read(|order| {
                let rank = leaf.lower_bound(order, target);
                (rank, if rank > 0 { leaf.node_at(order, rank - 1) } else { null_mut() })
            });
            // Safety: as above. What lies last may have moved to a leaf that was linked meanwhile.
            if unsafe { next_of(link, 0).load(Ordering::Acquire) } != next {
                continue;
            }
            if !node.is_null() {
                return Position { node, leaf: link, state, order, rank: rank - 1 };
            }
            // Only the first leaf of a tree can hold nothing before the target: its anchor is not a message.
            return if link == self.head.as_ptr() { NOWHERE } else { self.last_of(|other| other.tree < leaf.tree) };
        }
    }

    /// The last message of the leaves for which `is_before` holds, as it does for all before them.
    fn last_of(&self, is_before: impl Fn(&Leaf) -> bool) -> Position {
        let mut link = self.descend(&is_before, |_, _| ());
        loop {
            // Safety: the head or a leaf; every leaf has level 0.
            let next = unsafe { next_of(link, 0).load(Ordering::Acquire) };
            // Safety: a link is null or a leaf.
            if !next.is_null() && is_before(unsafe { &*next }) {
                link = next;
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
        self.first_from(self.search(&target, |_, _| ()), &target)
    }

    /// The message after the one at `position`.
    #[inline]
    fn next(&self, position: &Position) -> Position {
        let Position { node, leaf: link, state, order, rank } = *position;
        if node.is_null() {
            return NOWHERE;
        }
        // Safety: a position is in a leaf of this list.
        let leaf = unsafe { &*link };
        if rank + 1 < order::count(order) && leaf.order.load(Ordering::Acquire) == order {
            let node = leaf.node_at(order, rank + 1);
            if leaf.state.load(Ordering::Acquire) & !1 == state {
                return Position { node, rank: rank + 1, ..*position };
            }
        }
        // Safety: a node of this list.
        let target = unsafe { Target::of(node, true) };
        // The leaf still precedes its message, unless that is the anchor itself: then it precedes the place after.
        self.first_from(link, &target)
    }

    /// The message before the one at `position`.
    fn prev(&self, position: &Position) -> Position {
        let Position { node, leaf: link, state, order, rank } = *position;
        if node.is_null() {
            return NOWHERE;
        }
        // Safety: a position is in a leaf of this list.
        let leaf = unsafe { &*link };
        if rank > 0 && leaf.order.load(Ordering::Acquire) == order {
            let node = leaf.node_at(order, rank - 1);
            if leaf.state.load(Ordering::Acquire) & !1 == state {
                return Position { node, rank: rank - 1, ..*position };
            }
        }
        // Safety: a node of this list.
        self.last_before(&unsafe { Target::of(node, false) })
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

/// A leaf that is not reachable yet.
struct NewLeaf {
    leaf: NonNull<Leaf>,
    height: usize,
}

impl NewLeaf {
    fn as_link(&self) -> Link {
        self.leaf.as_ptr()
    }

    /// # Safety
    /// The arena of the leaf outlives `'l`.
    unsafe fn leaf<'l>(&self) -> &'l Leaf {
        // Safety: initialised by `make_leaf`; changed by atomic operations only.
        unsafe { self.leaf.as_ref() }
    }
}

/// A leaf without messages, whose links are null.
fn make_leaf(arena: &Arena, height: usize, tree: u64, anchor_prefix: u64, anchor: Node) -> NewLeaf {
    let links = height * size_of::<AtomicPtr<Leaf>>();
    let piece = arena.allocate(links + size_of::<Leaf>());
    // Safety: the piece has room for the links and the leaf, is aligned for both, zero (which all fields may be), and
    // this call's alone.
    let leaf = unsafe {
        let leaf = piece.add(links).cast::<Leaf>();
        (&raw mut (*leaf.as_ptr()).tree).write(tree);
        (&raw mut (*leaf.as_ptr()).anchor_prefix).write(anchor_prefix);
        (&raw mut (*leaf.as_ptr()).anchor).write(anchor);
        (*leaf.as_ptr()).order.store(order::EMPTY, Ordering::Relaxed);
        leaf
    };
    NewLeaf { leaf, height }
}

/// A place in a list, which it keeps alive.
#[derive(Clone)]
pub(super) struct LeafCursor {
    list: Arc<LeafList>,
    position: Position,
}

// Safety: the position points into the arena of `list` (S3), which the cursor owns a share of.
unsafe impl Send for LeafCursor {}
// Safety: as above.
unsafe impl Sync for LeafCursor {}

impl LeafCursor {
    pub(super) fn new(list: Arc<LeafList>) -> LeafCursor {
        LeafCursor { list, position: NOWHERE }
    }

    #[inline]
    pub(super) fn seek(&mut self, key: &[u8]) {
        self.position = self.list.seek(key);
    }

    pub(super) fn seek_before(&mut self, key: &[u8]) {
        self.position = self.list.last_before(&Target::new(key, u64::MAX));
    }

    pub(super) fn first(&mut self) {
        // Safety: the head has all levels.
        let first = unsafe { next_of(self.list.head.as_ptr(), 0).load(Ordering::Acquire) };
        self.position = self.list.edge_of(first, |_| 0);
    }

    pub(super) fn last(&mut self) {
        self.position = self.list.last_of(|_| true);
    }

    #[inline]
    pub(super) fn next(&mut self) {
        self.position = self.list.next(&self.position);
    }

    pub(super) fn prev(&mut self) {
        self.position = self.list.prev(&self.position);
    }

    #[inline]
    pub(super) fn valid(&self) -> bool {
        !self.position.node.is_null()
    }

    #[inline]
    pub(super) fn message(&self) -> Option<Message<'_>> {
        // Safety: a node of the list (S3), alive as long as `self.list`.
        self.valid().then(|| unsafe { node::message_of(self.position.node) })
    }
}
