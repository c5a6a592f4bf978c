//! Forgetting what was written over: a row that is changed over and over leaves few versions, however long its memtable lives.
//!
//! When a leaf is full and would be split for one more version of a row that it, or the leaf behind it, has already, what nobody can see any more
//! of its messages leaves its order first: as in a compaction, what lies under a newer message that everybody sees who sees it
//! ([`is_written_over`]). The nodes stay in the arena until the memtable goes: who stands at one may read it, and finds its way on
//! from its key.
//!
//! The newest message that a snapshot sees of a key never leaves while the snapshot is held. So who goes through the messages of a key, from the newest down or (in
//! a walk backward) from the oldest up, meets it, whatever leaves above and below meanwhile. A put and its single-delete do not leave together,
//! as they may in a compaction: who comes to the put from below would not meet what takes it away.
//!
//! The oldest message of a row stays where it says another thing than the newest whether the row is there: by the two, estimates know what
//! the row was before them ([`super::sample`](crate::memtable::sample)).
//!
//! Who reads the latest, or what is uncommitted, comes down to more than what its snapshot sees. Where it does not hold the row's lock, a change above
//! the place that it has come to may be committed, and take away below what it was to find there, as when it stands at a message that is rolled
//! back. What takes that away is newer than all that it met, so it asks for such, and looks again then
//! ([`is_overwritten_after`](crate::memtable::Memtable::is_overwritten_after)).
#![allow(unsafe_code, reason = "messages are reached by pointers")]

use crate::base::sync::atomic::Ordering;
use crate::format::Retention;
use crate::format::resolve::{Stamper, is_written_over};
use crate::memtable::leaf::Leaf;
use crate::memtable::node;
use crate::memtable::order::{self, SLOTS};
use crate::memtable::sample::puts;

/// Fewer are not worth the search: the leaf is split then, and of its halves each is searched when it is full.
const FORGOTTEN_MIN: usize = SLOTS / 4;

/// How many messages, by the number of their kind.
pub(in crate::memtable) type Forgotten = [u8; 6];

/// Forgets what `retention` lets go of a leaf, if that is enough.
///
/// # Safety
/// `leaf` is a leaf, no inner node, holds a message, and is latched.
#[cold]
pub(super) unsafe fn forget(leaf: &Leaf, retention: &Retention<'_>) -> Option<Forgotten> {
    let order = leaf.order.load(Ordering::Relaxed);
    // Safety: entries of a leaf are messages (S3).
    let message = |rank| unsafe { node::message_of(leaf.entry(order, rank)) };
    let mut stamper = Stamper::new();
    // Of each rank one bit; the first stays (S8).
    let mut kept = 1u16;
    for rank in 1..order::count(order) {
        let newer = kept.ilog2() as usize;
        // Elsewhere there is nothing to find, and the message lies in no cache of the processor.
        let same_prefix = leaf.prefix(order, rank) == leaf.prefix(order, newer);
        let is_needless = same_prefix && {
            let (above, below) = (message(newer), message(rank));
            let is_oldest = || rank + 1 == order::count(order) || message(rank + 1).key != below.key;
            above.key == below.key
                && is_written_over(&mut stamper, retention, &above, &below)
                && (puts(&above) == puts(&below) || !is_oldest())
        };
        kept |= u16::from(!is_needless) << rank;
    }
    let is_kept = |rank: usize| kept >> rank & 1 == 1;
    if order::count(order) < kept.count_ones() as usize + FORGOTTEN_MIN {
        return None;
    }
    let mut forgotten = Forgotten::default();
    for rank in (0..order::count(order)).filter(|rank| !is_kept(*rank)) {
        forgotten[message(rank).kind as usize] += 1;
    }
    leaf.keep(is_kept);
    Some(forgotten)
}
