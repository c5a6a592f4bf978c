//! Messages as they lie in a memtable's arena, and the order in which they are kept.
//!
//! Order: key ascending, sequence number descending, and of messages that one record has for one key the later
//! first: those are numbered (`turn`), the later higher.
//!
//! A node is written once, before it is made reachable, and never changes; so whoever finds a pointer to it may read it.
//!
//! Bytes of a node at `p`, which is 8-aligned:
//!
//! | at | what |
//! |---|---|
//! | `p` | length of payload (u32), of key (u16), kind and blob flag (u8), a zero byte |
//! | `p + 8` | sequence number (u64) |
//! | `p + 16` | transaction (u64) |
//! | `p + 24` | step (u32), turn (u32) |
//! | `p + 32` | key, payload |
#![allow(unsafe_code, reason = "nodes of variable length in an arena, reached by pointers")]

use std::cmp::Ordering as Order;

use super::arena::Arena;
use crate::base::TxnId;
use crate::base::key::PREFIX_BYTES;
use crate::base::prefetch::{CACHE_LINE_BYTES, FRONT_BYTES, prefetch};
use crate::format::{Kind, Message, Stamp};

const KEY_AT: usize = 32;
const BLOB: u8 = 0x80;
/// Bytes of the user's key that are compared as one integer.
const COMPARED_BYTES: usize = 8;

/// A node, or null.
pub(super) type Node = *mut u8;

/// A place in the order: before all messages that do not precede it.
#[derive(Clone, Copy)]
pub(super) struct Target<'k> {
    pub(super) tree: u32,
    /// The first 8 bytes of the user's key, zero-padded.
    pub(super) prefix: u64,
    pub(super) key: &'k [u8],
    pub(super) seq: u64,
    pub(super) turn: u32,
    /// The place after the message that is equal, not before it.
    pub(super) after: bool,
}

impl<'k> Target<'k> {
    /// The place before all messages of `key` with this sequence number or a lower one.
    #[inline]
    pub(super) fn new(key: &'k [u8], seq: u64) -> Target<'k> {
        let (tree, prefix) = match key.first_chunk::<{ PREFIX_BYTES + COMPARED_BYTES }>() {
            Some(bytes) => {
                let (tree, user) = bytes.split_at(PREFIX_BYTES);
                (
                    u32::from_be_bytes(tree.try_into().unwrap_or_default()),
                    u64::from_be_bytes(user.try_into().unwrap_or_default()),
                )
            }
            None => {
                let mut padded = [0; 16];
                padded[..key.len()].copy_from_slice(key);
                let all = u128::from_be_bytes(padded);
                ((all >> 96) as u32, (all >> 32) as u64)
            }
        };
        Target { tree, prefix, key, seq, turn: u32::MAX, after: false }
    }

    /// The place of a message itself.
    ///
    /// # Safety
    /// `node` is a node in an arena that outlives `'k`.
    #[inline]
    pub(super) unsafe fn of(node: Node, after: bool) -> Target<'k> {
        // Safety: by contract.
        let (key, seq, turn) = unsafe { (key_of(node), seq_of(node), turn_of(node)) };
        Target { turn, after, ..Target::new(key, seq) }
    }
}

/// Writes a message into the arena; `message.seq` and `message.stamp` are not looked at.
pub(super) fn write(arena: &Arena, seq: u64, txn: TxnId, step: u32, message: &Message<'_>) -> Node {
    let (key, payload) = (message.key, message.payload);
    assert!(key.len() <= usize::from(u16::MAX) && payload.len() <= u32::MAX as usize, "message past the limits");
    let node = arena.allocate(KEY_AT + key.len() + payload.len()).as_ptr();
    // Safety: the piece has this length, is 8-aligned, and this call's alone until it is made reachable.
    unsafe {
        node.cast::<u32>().write(payload.len() as u32);
        node.add(4).cast::<u16>().write(key.len() as u16);
        node.add(6).write(message.kind as u8 | if message.blob { BLOB } else { 0 });
        node.add(7).write(0);
        node.add(8).cast::<u64>().write(seq);
        node.add(16).cast::<u64>().write(txn.0);
        node.add(24).cast::<u32>().write(step);
        node.add(28).cast::<u32>().write(0);
        std::ptr::copy_nonoverlapping(key.as_ptr(), node.add(KEY_AT), key.len());
        std::ptr::copy_nonoverlapping(payload.as_ptr(), node.add(KEY_AT + key.len()), payload.len());
    }
    node
}

/// Has the processor read what most messages take.
#[inline]
pub(super) fn prefetch_message(node: Node) {
    prefetch(node, FRONT_BYTES);
}

/// Has the processor read what most messages have before their payload.
#[inline]
pub(super) fn prefetch_key(node: Node) {
    prefetch(node, CACHE_LINE_BYTES);
}

/// Sets the turn of a node.
///
/// # Safety
/// `node` is a node that is not reachable yet.
pub(super) unsafe fn set_turn(node: Node, turn: u32) {
    // Safety: see the table of bytes; nobody else has the pointer.
    unsafe { node.add(28).cast::<u32>().write(turn) };
}

/// # Safety
/// `node` is a node in an arena that outlives `'l`.
#[inline]
pub(super) unsafe fn key_of<'l>(node: Node) -> &'l [u8] {
    // Safety: see the table of bytes.
    unsafe {
        let length = usize::from(node.add(4).cast::<u16>().read());
        std::slice::from_raw_parts(node.add(KEY_AT), length)
    }
}

/// # Safety
/// `node` is a node.
#[inline]
pub(super) unsafe fn seq_of(node: Node) -> u64 {
    // Safety: see the table of bytes.
    unsafe { node.add(8).cast::<u64>().read() }
}

/// # Safety
/// `node` is a node.
#[inline]
pub(super) unsafe fn turn_of(node: Node) -> u32 {
    // Safety: see the table of bytes.
    unsafe { node.add(28).cast::<u32>().read() }
}

/// # Safety
/// `node` is a node in an arena that outlives `'l`.
#[inline]
pub(super) unsafe fn message_of<'l>(node: Node) -> Message<'l> {
    // Safety: see the table of bytes.
    unsafe {
        let key = key_of(node);
        let payload_length = node.cast::<u32>().read() as usize;
        let tag = node.add(6).read();
        Message {
            key,
            seq: seq_of(node),
            stamp: Stamp::Written {
                txn: TxnId(node.add(16).cast::<u64>().read()),
                step: node.add(24).cast::<u32>().read(),
            },
            kind: Kind::from_number(tag & !BLOB).unwrap_or(Kind::Put),
            blob: tag & BLOB != 0,
            payload: std::slice::from_raw_parts(node.add(KEY_AT + key.len()), payload_length),
        }
    }
}

/// True when `node`, which is of the target's tree and has its prefix, comes before `target`.
///
/// # Safety
/// `node` is a node.
#[inline]
pub(super) unsafe fn precedes_beyond_prefix(node: Node, target: &Target<'_>) -> bool {
    const FROM: usize = PREFIX_BYTES + COMPARED_BYTES;
    // Safety: the arena outlives this call.
    let key = unsafe { key_of(node) };
    let rest = key.get(FROM..).unwrap_or_default();
    let target_rest = target.key.get(FROM..).unwrap_or_default();
    match rest.cmp(target_rest).then(key.len().cmp(&target.key.len())) {
        Order::Less => true,
        Order::Greater => false,
        Order::Equal => {
            // Safety: `node` is a node.
            let (seq, turn) = unsafe { (seq_of(node), turn_of(node)) };
            match seq.cmp(&target.seq).then(turn.cmp(&target.turn)) {
                Order::Greater => true,
                Order::Less => false,
                Order::Equal => target.after,
            }
        }
    }
}
