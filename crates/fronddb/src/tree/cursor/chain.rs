//! Passing over dead keys: the cursor's side of [`crate::tree::dead`].

use std::sync::Arc;

use super::TreeCursor;
use super::leaf::Direction;
use crate::base::{CommitNumber, Result};
use crate::format::message::{Kind, Message};
use crate::format::{Uncommitted, View};
use crate::tree::dead::{WatchId, Way};

/// Dead keys in a row before a scan begins to watch for a marker.
const CHAIN_BEFORE_WATCH: u32 = 64;

/// A row of dead keys that the cursor is passing over.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) keys: u32,
    /// The first of them, if there are any.
    first: Vec<u8>,
    /// The newest commit among their deletes.
    pub(super) since: CommitNumber,
    pub(super) watch: Option<WatchId>,
}

/// Whether a key without a row is dead: whether its newest message that is not rolled back is a delete that the view sees as committed, or
/// there is none.
#[derive(Debug)]
pub(super) struct Death {
    /// That commit, 0 where there is no message; of what was looked at until now.
    pub(super) since: Option<CommitNumber>,
    is_open: bool,
}

impl Death {
    /// Of a key none of whose messages was looked at.
    pub(super) fn new() -> Death {
        Death { since: Some(CommitNumber(0)), is_open: true }
    }

    /// Of a key about which no more is known than that it has no row.
    pub(super) fn unknown() -> Death {
        Death { since: None, is_open: false }
    }

    /// The next older message, which says that there is no older value.
    #[inline]
    pub(super) fn absent(&mut self, view: &View<'_>, message: &Message<'_>) {
        if self.is_open {
            *self = Death { since: committed_delete(view, message), is_open: false };
        }
    }

    /// The next older message, which decides nothing.
    #[inline]
    pub(super) fn undecided(&mut self, view: &View<'_>, message: &Message<'_>) {
        if self.is_open && !view.aborted(message.stamp) {
            *self = Death { since: None, is_open: false };
        }
    }
}

/// The commit of a delete that `view` sees as committed.
fn committed_delete(view: &View<'_>, message: &Message<'_>) -> Option<CommitNumber> {
    let is_delete = matches!(message.kind, Kind::Delete | Kind::SingleDelete);
    if is_delete { view.committed(message.stamp).filter(|number| *number <= view.snapshot) } else { None }
}

impl Drop for TreeCursor {
    fn drop(&mut self) {
        self.end_chain(false);
        self.leave();
    }
}

impl TreeCursor {
    /// At a key without a row, which becomes part of the chain: puts all sources behind it, or behind the marker around it (true), or
    /// leaves them where they are.
    pub(super) fn pass_dead(&mut self) -> Result<bool> {
        let Some(since) = self.death.since.filter(|_| self.view.uncommitted != Uncommitted::Seen) else {
            self.end_chain(false);
            return Ok(false);
        };
        self.chain.keys += 1;
        if self.chain.keys == 1 {
            self.chain.first.clear();
            self.chain.first.extend_from_slice(&self.key);
        }
        if let Some(marker) = self.tree.dead.around(&self.key, self.view.snapshot) {
            let behind = if self.direction == Direction::Forward { marker.upper } else { marker.lower };
            if self.chain.watch.is_some() {
                self.chain.since = self.chain.since.max(marker.since);
            } else if self.chain.keys > 1 && self.begin_again()? {
                return Ok(true);
            } else {
                self.begin_watch(&behind);
            }
            self.jump(behind)?;
            return Ok(true);
        }
        self.chain.since = self.chain.since.max(since);
        Ok(self.chain.watch.is_none() && self.chain.keys >= CHAIN_BEFORE_WATCH && self.begin_again()?)
    }

    /// Begins to watch, and puts all sources where the chain began or, where that is in another leaf range, behind the current key: so those keys
    /// are read once more, and by nobody after that. The memtable's source has to be moved in any case: where it stands it has not seen what was
    /// written before it until now. False when there can be no watch.
    fn begin_again(&mut self) -> Result<bool> {
        let Some(leaf) = &self.leaf else { return Ok(false) };
        let forward = self.direction == Direction::Forward;
        let first = self.chain.first.as_slice();
        let is_inside = if forward {
            leaf.range.lower.as_slice() <= first
        } else {
            leaf.range.upper.as_deref().is_none_or(|upper| first < upper)
        };
        let mut from = if is_inside { first.to_vec() } else { self.key.clone() };
        // Up, what is read again is watched with its first key, and the current key is passed.
        if is_inside != forward {
            from.push(0);
        }
        self.begin_watch(&from);
        if self.chain.watch.is_none() {
            return Ok(false);
        }
        self.jump(from)?;
        Ok(true)
    }

    /// Begins to watch writes from `from` on, the way it goes, where all sources must be put next, unless some may already have gone to a newer memtable or a graft. Where this cursor sees
    /// range-deletes there is no chain: what its sources jump over is dead for its view alone.
    pub(super) fn begin_watch(&mut self, from: &[u8]) {
        let Some(leaf) = self.leaf.as_ref().filter(|leaf| leaf.ranges.is_empty()) else { return };
        let (way, bound) = match self.direction {
            Direction::Forward => (Way::Up, self.range.upper.as_deref()),
            Direction::Backward => (Way::Down, Some(self.range.lower.as_slice())),
        };
        let Some(watch) = self.tree.dead.watch(way, from, bound) else { return };
        let now = self.tree.version_guard();
        if Arc::ptr_eq(&now.active, &leaf.version.active) && now.grafts == leaf.version.grafts {
            self.chain.watch = Some(watch);
            self.chain.since = CommitNumber(0);
        } else {
            self.tree.dead.end_watch(watch, None);
        }
    }

    /// Ends the chain; if `proved`, everything between the watch's begin and the current key is dead, which is not the key of a row
    /// unless the cursor stands at it.
    pub(super) fn end_chain(&mut self, proved: bool) {
        let (watch, since) = (self.chain.watch.take(), std::mem::take(&mut self.chain.since));
        self.chain.keys = 0;
        let Some(watch) = watch else { return };
        if !proved {
            self.tree.dead.end_watch(watch, None);
            return;
        }
        let mut end = self.key.clone();
        if self.direction == Direction::Backward && self.valid() {
            end.push(0);
        }
        self.tree.dead.end_watch(watch, Some((&end, since)));
    }

    /// Moves all sources to `key`, or backward to before it, in this leaf range or the one that it lies in.
    pub(super) fn jump(&mut self, key: Vec<u8>) -> Result<()> {
        let Some(leaf) = &mut self.leaf else { return Ok(()) };
        leaf.order.clear();
        let forward = self.direction == Direction::Forward;
        if forward && leaf.range.upper.as_deref().is_some_and(|upper| key.as_slice() >= upper) {
            Arc::make_mut(&mut leaf.range).upper = Some(key);
            return Ok(());
        }
        if !forward && key <= leaf.range.lower {
            Arc::make_mut(&mut leaf.range).lower = key;
            return Ok(());
        }
        for rank in 0..leaf.streams.len() as u32 {
            let source = &mut leaf.streams[rank as usize].source;
            if forward {
                source.seek(&key)?
            } else {
                source.seek_before(&key)?
            }
            leaf.place(rank, self.direction)?;
        }
        Ok(())
    }
}
