//! A place in the list of a memtable, which keeps the list alive.
#![allow(unsafe_code, reason = "positions are pointers into the list's arenas")]

use std::sync::Arc;

use super::{LeafList, NO_TREE, NOWHERE, Position};
use crate::base::sync::atomic::Ordering;
use crate::format::Message;
use crate::memtable::leaf::next_of;
use crate::memtable::node::{self, Target};

/// A place in a list, which it keeps alive.
#[derive(Clone)]
pub(in crate::memtable) struct LeafCursor {
    list: Arc<LeafList>,
    position: Position,
}

// Safety: the position points into the arenas of `list` (S3), which the cursor owns a share of.
unsafe impl Send for LeafCursor {}
// Safety: as above.
unsafe impl Sync for LeafCursor {}

impl LeafCursor {
    pub(in crate::memtable) fn new(list: Arc<LeafList>) -> LeafCursor {
        LeafCursor { list, position: NOWHERE }
    }

    #[inline]
    pub(in crate::memtable) fn seek(&mut self, key: &[u8]) {
        self.position = self.list.seek(key);
    }

    pub(in crate::memtable) fn seek_before(&mut self, key: &[u8]) {
        self.position = self.list.last_before(&Target::new(key, u64::MAX));
    }

    pub(in crate::memtable) fn first(&mut self) {
        // Safety: the head has level 0.
        let first = unsafe { next_of(self.list.head(), 0).load(Ordering::Acquire) };
        self.position = self.list.edge_of(first, |_| 0);
    }

    pub(in crate::memtable) fn last(&mut self) {
        self.position = self.list.last_below(NO_TREE);
    }

    #[inline]
    pub(in crate::memtable) fn next(&mut self) {
        self.position = self.list.next(&self.position);
    }

    #[inline]
    pub(in crate::memtable) fn next_key(&mut self) {
        self.position = self.list.next_key(&self.position);
    }

    pub(in crate::memtable) fn prev(&mut self) {
        self.position = self.list.prev(&self.position);
    }

    #[inline]
    pub(in crate::memtable) fn valid(&self) -> bool {
        !self.position.node.is_null()
    }

    #[inline]
    pub(in crate::memtable) fn message(&self) -> Option<Message<'_>> {
        // Safety: a node of the list (S3), alive as long as `self.list`.
        self.valid().then(|| unsafe { node::message_of(self.position.node) })
    }
}
