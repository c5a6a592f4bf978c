//! The skip list of a memtable: concurrent inserts, reads without locks, nothing is ever removed.
//!
//! The textbook skip list (Pugh 1990) in the form of LevelDB and RocksDB's inline list: nodes lie in an arena that
//! is freed as a whole, so that a pointer once read stays good and neither epochs nor reference counts are needed.
//! Ours differs in three things:
//!
//! - *Keys compare by two integers first.* The first 16 bytes of a key (tree id and 12 bytes of the user's key,
//!   zero-padded) lie beside the tower; most searches touch one cache line per node.
//! - *Ascending inserts skip the search.* For each tree (by a small table, [`HINTS`]) the list remembers the node of
//!   its highest key and the nodes that precede a place right after it on every level.
//! - *Heights come from addresses*, so the list needs no generator and no thread-local state.
//!
//! Order: key ascending, sequence number descending; of equals the one inserted later comes first.
//!
//! - S1: a node is filled in before a release store makes it reachable, and never changes after, except its tower.
//! - S2: on each level the reachable nodes are in order, and a node on a level is on all levels below.
//! - S3: pointers in towers, hints and cursors are null or to nodes of this list's arena.
//! - S4: a hint's nodes all sort before the place right after its highest key; a node at index `l` has height > `l`.
//!
//! Bytes of a node at `p`, which is 8-aligned:
//!
//! | at | what |
//! |---|---|
//! | `p - 8 * (l + 1)` | next node on level `l` |
//! | `p` | length of payload (u32), of key (u16), height (u8), kind and blob flag (u8) |
//! | `p + 8` | key, zero-padded to 16 bytes |
//! | after the key | sequence number (u64), transaction (u64), step (u32), unaligned |
//! | after that | payload |
#![allow(unsafe_code, reason = "nodes of variable length in an arena, linked by atomic pointers")]

use std::cmp::Ordering as Order;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

use super::arena::Arena;
use crate::base::TxnId;
use crate::base::memory::MemoryBudget;
use crate::format::{Kind, Message, Stamp};

/// Most levels. A node has one more level with probability 1/4: enough for 16 million nodes.
const HEIGHT_MAX: usize = 12;
/// Trees whose ascending inserts are remembered at a time.
const HINTS: usize = 64;
const KEY_AT: usize = 8;
const KEY_PADDED: usize = 16;
const STAMP_BYTES: usize = 20;
const BLOB: u8 = 0x80;

/// A node, or null.
type Link = *mut u8;

/// What a search looks for: a place in the order.
#[derive(Clone, Copy)]
struct Target<'k> {
    prefix: (u64, u64),
    key: &'k [u8],
    seq: u64,
}

impl<'k> Target<'k> {
    /// The place before all messages of `key` that are older than `seq`, and before those of `seq` itself.
    #[inline]
    fn new(key: &'k [u8], seq: u64) -> Target<'k> {
        let mut padded = [0; KEY_PADDED];
        let length = key.len().min(KEY_PADDED);
        padded[..length].copy_from_slice(&key[..length]);
        let (high, low) = padded.split_at(8);
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap_or_default());
        Target { prefix: (number(high), number(low)), key, seq }
    }

    fn tree(&self) -> usize {
        (self.prefix.0 >> 32) as usize
    }
}

#[derive(Default)]
struct Hint {
    /// The node of the highest key of a tree that was inserted at its end.
    highest: AtomicPtr<u8>,
    /// Held by the thread that uses `before`.
    busy: AtomicBool,
    /// Per level: a node before the place right after `highest` (S4), or null for the head.
    before: [AtomicPtr<u8>; HEIGHT_MAX],
}

/// The list.
pub(super) struct SkipList {
    head: NonNull<u8>,
    height: AtomicUsize,
    hints: Box<[CachePadded<Hint>; HINTS]>,
    arena: Arena,
}

// Safety: all pointers are to nodes in `arena` (S3), which are immutable but for their towers (S1), which are atomic.
unsafe impl Send for SkipList {}
// Safety: as above.
unsafe impl Sync for SkipList {}

/// The tower entry of `node` on `level`.
///
/// # Safety
/// `node` is a node whose height is above `level`, in an arena that outlives `'l`.
#[inline]
unsafe fn next_of<'l>(node: Link, level: usize) -> &'l AtomicPtr<u8> {
    // Safety: the tower of the caller's node extends below it, one aligned pointer per level.
    unsafe { &*node.cast::<AtomicPtr<u8>>().sub(level + 1) }
}

/// Length of the key of `node`.
///
/// # Safety
/// `node` is a node.
#[inline]
unsafe fn key_length(node: Link) -> usize {
    // Safety: see the table of bytes.
    usize::from(unsafe { node.add(4).cast::<u16>().read() })
}

/// The key of `node`.
///
/// # Safety
/// `node` is a node in an arena that outlives `'l`.
#[inline]
unsafe fn key_of<'l>(node: Link) -> &'l [u8] {
    // Safety: see the table of bytes; a reachable node's key does not change (S1).
    unsafe { std::slice::from_raw_parts(node.add(KEY_AT), key_length(node)) }
}

/// True when `node` comes before `target`.
///
/// # Safety
/// `node` is a node.
#[inline]
unsafe fn precedes(node: Link, target: &Target<'_>) -> bool {
    // Safety: the key is padded to 16 bytes and 8-aligned.
    let prefix = unsafe {
        let words = node.add(KEY_AT).cast::<u64>();
        (u64::from_be(words.read()), u64::from_be(words.add(1).read()))
    };
    if prefix != target.prefix {
        return prefix < target.prefix;
    }
    // Safety: `node` is a node.
    unsafe { precedes_beyond_prefix(node, target) }
}

/// As [`precedes`], when the first 16 bytes are the same.
///
/// # Safety
/// `node` is a node.
#[inline]
unsafe fn precedes_beyond_prefix(node: Link, target: &Target<'_>) -> bool {
    // Safety: `node` is a node; the arena outlives this call.
    let key = unsafe { key_of(node) };
    let rest = key.get(KEY_PADDED..).unwrap_or_default();
    let target_rest = target.key.get(KEY_PADDED..).unwrap_or_default();
    match rest.cmp(target_rest).then(key.len().cmp(&target.key.len())) {
        Order::Less => true,
        Order::Greater => false,
        // Safety: the stamp follows the padded key.
        Order::Equal => unsafe { seq_of(node) > target.seq },
    }
}

/// # Safety
/// `node` is a node.
#[inline]
unsafe fn stamp_at(node: Link) -> Link {
    // Safety: the stamp follows the padded key inside the node's piece.
    unsafe { node.add(KEY_AT + key_length(node).max(KEY_PADDED)) }
}

/// # Safety
/// `node` is a node.
#[inline]
unsafe fn seq_of(node: Link) -> u64 {
    // Safety: the sequence number comes first in the stamp.
    unsafe { stamp_at(node).cast::<u64>().read_unaligned() }
}

/// # Safety
/// `node` is a node in an arena that outlives `'l`.
#[inline]
unsafe fn message_of<'l>(node: Link) -> Message<'l> {
    // Safety: see the table of bytes; a reachable node does not change (S1).
    unsafe {
        let stamp = stamp_at(node);
        let tag = node.add(7).read();
        let payload_length = node.cast::<u32>().read() as usize;
        let txn = TxnId(stamp.add(8).cast::<u64>().read_unaligned());
        let step = stamp.add(16).cast::<u32>().read_unaligned();
        Message {
            key: key_of(node),
            seq: stamp.cast::<u64>().read_unaligned(),
            stamp: Stamp::Written { txn, step },
            kind: Kind::from_number(tag & !BLOB).unwrap_or(Kind::Put),
            blob: tag & BLOB != 0,
            payload: std::slice::from_raw_parts(stamp.add(STAMP_BYTES), payload_length),
        }
    }
}

impl SkipList {
    pub(super) fn new(budget: &MemoryBudget) -> SkipList {
        let arena = Arena::new(budget);
        let tower = HEIGHT_MAX * size_of::<Link>();
        let piece = arena.allocate(tower + KEY_AT + KEY_PADDED + STAMP_BYTES);
        // Safety: the piece is longer than the tower. It is zero: all links are null.
        let head = unsafe { piece.add(tower) };
        let hints = Box::new(std::array::from_fn(|_| CachePadded::new(Hint::default())));
        SkipList { head, height: AtomicUsize::new(1), hints, arena }
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
        let (node, height) = self.make_node(seq, txn, step, message);
        let target = Target::new(message.key, seq);
        if height > self.height.load(Ordering::Relaxed) {
            self.height.fetch_max(height, Ordering::Relaxed);
        }
        let hint = &*self.hints[target.tree() % HINTS];
        if !self.insert_after_highest(hint, node, height, &target) {
            self.insert_by_search(hint, node, height, &target);
        }
    }

    fn make_node(&self, seq: u64, txn: TxnId, step: u32, message: &Message<'_>) -> (Link, usize) {
        let (key, payload) = (message.key, message.payload);
        assert!(key.len() <= usize::from(u16::MAX) && payload.len() <= u32::MAX as usize, "message past the limits");
        let tail = KEY_AT + key.len().max(KEY_PADDED) + STAMP_BYTES + payload.len();
        let (piece, height) = self.allocate(tail);
        // Safety: the piece has room for the tower and `tail` bytes, is 8-aligned, and is not reachable yet (S1).
        unsafe {
            let node = piece.as_ptr().add(height * size_of::<Link>());
            node.cast::<u32>().write(payload.len() as u32);
            node.add(4).cast::<u16>().write(key.len() as u16);
            node.add(6).write(height as u8);
            node.add(7).write(message.kind as u8 | if message.blob { BLOB } else { 0 });
            std::ptr::copy_nonoverlapping(key.as_ptr(), node.add(KEY_AT), key.len());
            let stamp = stamp_at(node);
            stamp.cast::<u64>().write_unaligned(seq);
            stamp.add(8).cast::<u64>().write_unaligned(txn.0);
            stamp.add(16).cast::<u32>().write_unaligned(step);
            std::ptr::copy_nonoverlapping(payload.as_ptr(), stamp.add(STAMP_BYTES), payload.len());
            (node, height)
        }
    }

    /// Memory for a node of `tail` bytes below its tower, and its height.
    fn allocate(&self, tail: usize) -> (NonNull<u8>, usize) {
        let height = height_of(self.arena.ticket());
        (self.arena.allocate(height * size_of::<Link>() + tail), height)
    }

    /// Inserts right after the highest key of the tree, if that is where `target` belongs and nobody else is there.
    #[inline]
    fn insert_after_highest(&self, hint: &Hint, node: Link, height: usize, target: &Target<'_>) -> bool {
        let highest = hint.highest.load(Ordering::Acquire);
        // Safety: a hint is null or a node (S3).
        if highest.is_null() || !unsafe { precedes(highest, target) } {
            return false;
        }
        // Safety: every node has level 0; a link is null or a node (S3).
        let next = unsafe { next_of(highest, 0).load(Ordering::Acquire) };
        // Safety: as above.
        if !next.is_null() && unsafe { precedes(next, target) } {
            return false;
        }
        if hint.busy.swap(true, Ordering::Acquire) {
            return false;
        }
        if hint.highest.load(Ordering::Relaxed) != highest {
            hint.busy.store(false, Ordering::Release);
            return false;
        }
        for level in 0..height {
            let before = hint.before[level].load(Ordering::Relaxed);
            let before = if before.is_null() { self.head.as_ptr() } else { before };
            // Safety: before `highest` or itself (S4), hence before `target`, and of sufficient height.
            unsafe { self.link(node, level, before, target) };
            hint.before[level].store(node, Ordering::Relaxed);
        }
        hint.highest.store(node, Ordering::Release);
        hint.busy.store(false, Ordering::Release);
        true
    }

    fn insert_by_search(&self, hint: &Hint, node: Link, height: usize, target: &Target<'_>) {
        let mut before = [self.head.as_ptr(); HEIGHT_MAX];
        let next = self.search(target, |level, pred| before[level] = pred);
        for (level, before) in before.iter().enumerate().take(height) {
            // Safety: the search found it on this level, before `target`.
            unsafe { self.link(node, level, *before, target) };
        }
        // Safety: a link is null or a node (S3) whose padded key holds the tree first.
        let ends_tree = next.is_null() || unsafe { Target::new(key_of(next), 0).tree() } != target.tree();
        if ends_tree && !hint.busy.swap(true, Ordering::Acquire) {
            for (level, before) in before.iter().enumerate() {
                hint.before[level].store(if level < height { node } else { *before }, Ordering::Relaxed);
            }
            hint.highest.store(node, Ordering::Release);
            hint.busy.store(false, Ordering::Release);
        }
    }

    /// Links `node` into `level` at `target`'s place, which lies after `before`.
    ///
    /// # Safety
    /// `node` is a filled node that is not yet on `level` and whose height is above it; `before` is the head or a
    /// node that precedes `target` and whose height is above `level`.
    #[inline]
    unsafe fn link(&self, node: Link, level: usize, mut before: Link, target: &Target<'_>) {
        loop {
            // Safety: by contract at first, then a node found on this level.
            let mut next = unsafe { next_of(before, level).load(Ordering::Acquire) };
            // Safety: a link is null or a node (S3), here of this level.
            while !next.is_null() && unsafe { precedes(next, target) } {
                before = next;
                // Safety: as above.
                next = unsafe { next_of(before, level).load(Ordering::Acquire) };
            }
            // Safety: by contract; the release below publishes the node and this link (S1, S2).
            unsafe { next_of(node, level).store(next, Ordering::Relaxed) };
            // Safety: `before` is of this level.
            let swapped =
                unsafe { next_of(before, level).compare_exchange(next, node, Ordering::Release, Ordering::Relaxed) };
            if swapped.is_ok() {
                return;
            }
        }
    }

    /// The first node that does not precede `target`, or null; tells `visit` the last one before on each level.
    #[inline]
    fn search(&self, target: &Target<'_>, mut visit: impl FnMut(usize, Link)) -> Link {
        let mut before = self.head.as_ptr();
        let mut known: Link = null_mut();
        let mut level = self.height.load(Ordering::Relaxed);
        loop {
            level -= 1;
            let next = loop {
                // Safety: `before` is the head or was found on this level or a higher one (S2).
                let next = unsafe { next_of(before, level).load(Ordering::Acquire) };
                // Safety: a link is null or a node (S3). `known` was found not to precede the target one level up.
                if next.is_null() || next == known || !unsafe { precedes(next, target) } {
                    break next;
                }
                before = next;
            };
            visit(level, before);
            if level == 0 {
                return next;
            }
            known = next;
        }
    }

    /// The newest message of the first key >= `key`.
    #[inline]
    fn seek(&self, key: &[u8]) -> Link {
        self.search(&Target::new(key, u64::MAX), |_, _| ())
    }

    /// The last node before `target`, or null.
    fn seek_before(&self, target: &Target<'_>) -> Link {
        let mut found = null_mut();
        self.search(target, |_, before| found = before);
        if found == self.head.as_ptr() { null_mut() } else { found }
    }

    fn last(&self) -> Link {
        let mut node = self.head.as_ptr();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            loop {
                // Safety: the head or a node found on this level or a higher one (S2).
                let next = unsafe { next_of(node, level).load(Ordering::Acquire) };
                if next.is_null() {
                    break;
                }
                node = next;
            }
        }
        if node == self.head.as_ptr() { null_mut() } else { node }
    }

    /// The messages of `key`, newest first.
    #[inline]
    pub(super) fn get<'l>(&'l self, key: &[u8], mut visit: impl FnMut(&Message<'l>) -> bool) {
        let mut node = self.seek(key);
        // Safety: null or a node of this list (S3), whose arena lives as long as `'l`.
        while !node.is_null() && unsafe { key_of(node) } == key {
            // Safety: as above.
            if !visit(&unsafe { message_of(node) }) {
                return;
            }
            // Safety: every node has level 0.
            node = unsafe { next_of(node, 0).load(Ordering::Acquire) };
        }
    }
}

/// A height whose distribution is that of coin tosses: from a number that is different for each node.
fn height_of(ticket: usize) -> usize {
    let mixed = ticket.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let zeros = (mixed ^ (mixed >> 32)).trailing_zeros() as usize;
    (1 + zeros / 2).min(HEIGHT_MAX)
}

/// A place in a list, which it keeps alive.
#[derive(Clone)]
pub(super) struct SkipCursor {
    list: Arc<SkipList>,
    node: Link,
}

// Safety: the node lies in the arena of `list` (S3), which the cursor owns a share of; nodes may be read anywhere.
unsafe impl Send for SkipCursor {}
// Safety: as above.
unsafe impl Sync for SkipCursor {}

impl SkipCursor {
    pub(super) fn new(list: Arc<SkipList>) -> SkipCursor {
        SkipCursor { list, node: null_mut() }
    }

    #[inline]
    pub(super) fn seek(&mut self, key: &[u8]) {
        self.node = self.list.seek(key);
    }

    pub(super) fn seek_before(&mut self, key: &[u8]) {
        self.node = self.list.seek_before(&Target::new(key, u64::MAX));
    }

    pub(super) fn first(&mut self) {
        // Safety: the head has all levels.
        self.node = unsafe { next_of(self.list.head.as_ptr(), 0).load(Ordering::Acquire) };
    }

    pub(super) fn last(&mut self) {
        self.node = self.list.last();
    }

    #[inline]
    pub(super) fn next(&mut self) {
        if !self.node.is_null() {
            // Safety: a node of the list (S3); every node has level 0.
            self.node = unsafe { next_of(self.node, 0).load(Ordering::Acquire) };
        }
    }

    /// Finds the predecessor by a search: the list has no way back. Of equals the search finds the one before all
    /// of them, and the walk ends at the node that is asked for.
    pub(super) fn prev(&mut self) {
        if self.node.is_null() {
            return;
        }
        // Safety: a node of the list (S3), alive as long as `self.list`.
        let target = unsafe { Target::new(key_of(self.node), seq_of(self.node)) };
        let found = self.list.seek_before(&target);
        let mut before = if found.is_null() { self.list.head.as_ptr() } else { found };
        loop {
            // Safety: the head or a node of the list.
            let next = unsafe { next_of(before, 0).load(Ordering::Acquire) };
            if next == self.node || next.is_null() {
                break;
            }
            before = next;
        }
        self.node = if before == self.list.head.as_ptr() { null_mut() } else { before };
    }

    #[inline]
    pub(super) fn valid(&self) -> bool {
        !self.node.is_null()
    }

    #[inline]
    pub(super) fn message(&self) -> Option<Message<'_>> {
        // Safety: a node of the list (S3), alive as long as `self.list`.
        (!self.node.is_null()).then(|| unsafe { message_of(self.node) })
    }
}
