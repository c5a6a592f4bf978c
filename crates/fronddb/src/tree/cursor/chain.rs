//! Passing over dead keys: the cursor's side of [`crate::tree::dead`].

use std::sync::Arc;

use super::TreeCursor;
use super::leaf::Direction;
use crate::base::{CommitNumber, Result};
use crate::format::Uncommitted;
use crate::tree::dead::WatchId;

/// Dead keys in a row before a scan begins to watch for a marker.
const CHAIN_BEFORE_WATCH: u32 = 64;

/// A row of dead keys that the cursor is passing over, forward.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) keys: u32,
    /// The newest commit among their deletes.
    pub(super) since: CommitNumber,
    pub(super) watch: Option<WatchId>,
}

impl TreeCursor {
    /// At a key without a row, which becomes part of the chain: puts all sources behind it, or behind the marker around it (true), or
    /// leaves them where they are.
    pub(super) fn pass_dead(&mut self) -> Result<bool> {
        let Some(since) = self.dead_since.filter(|_| self.view.uncommitted != Uncommitted::Seen) else {
            self.end_chain(false);
            return Ok(false);
        };
        self.chain.keys += 1;
        if let Some(marker) = self.tree.dead.around(&self.key, self.view.snapshot) {
            if self.chain.watch.is_some() {
                self.chain.since = self.chain.since.max(marker.since);
            } else {
                self.begin_watch(&marker.upper);
            }
            self.jump_forward(marker.upper)?;
            return Ok(true);
        }
        self.chain.since = self.chain.since.max(since);
        if self.chain.watch.is_none() && self.chain.keys >= CHAIN_BEFORE_WATCH {
            let mut next = self.key.clone();
            next.push(0);
            self.begin_watch(&next);
            if self.chain.watch.is_some() {
                // The memtable's source may stand further on already: it has not seen what was written before it until now.
                self.jump_forward(next)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Begins to watch writes from `lower` on, where all sources must be put next, unless some may already have gone to a newer memtable or a graft. Where this cursor sees
    /// range-deletes there is no chain: what its sources jump over is dead for its view alone.
    pub(super) fn begin_watch(&mut self, lower: &[u8]) {
        let Some(leaf) = self.leaf.as_ref().filter(|leaf| leaf.ranges.is_empty()) else { return };
        let Some(watch) = self.tree.dead.watch(lower) else { return };
        let now = self.tree.version_guard();
        if Arc::ptr_eq(&now.active, &leaf.version.active) && now.grafts == leaf.version.grafts {
            self.chain.watch = Some(watch);
            self.chain.since = CommitNumber(0);
        } else {
            self.tree.dead.end_watch(watch, None);
        }
    }

    /// Ends the chain; if `proved`, everything from the watch's begin to the current key is dead.
    pub(super) fn end_chain(&mut self, proved: bool) {
        let chain = std::mem::take(&mut self.chain);
        if let Some(watch) = chain.watch {
            self.tree.dead.end_watch(watch, proved.then_some((self.key.as_slice(), chain.since)));
        }
    }

    /// Moves all sources to `key`, in this leaf range or the one that it lies in.
    pub(super) fn jump_forward(&mut self, key: Vec<u8>) -> Result<()> {
        let Some(leaf) = &mut self.leaf else { return Ok(()) };
        leaf.order.clear();
        if leaf.upper.as_deref().is_some_and(|upper| key.as_slice() >= upper) {
            leaf.upper = Some(key);
            return Ok(());
        }
        for rank in 0..leaf.streams.len() as u32 {
            leaf.streams[rank as usize].source.seek(&key)?;
            leaf.place(rank, Direction::Forward)?;
        }
        Ok(())
    }

    /// Jumps before the marker around the current key, if there is one.
    pub(super) fn jump_backward(&mut self) -> Result<()> {
        let Some(marker) =
            self.tree.dead.around(&self.key, self.view.snapshot).filter(|_| self.view.uncommitted != Uncommitted::Seen)
        else {
            return Ok(());
        };
        let Some(leaf) = &mut self.leaf else { return Ok(()) };
        leaf.order.clear();
        if marker.lower <= leaf.lower {
            leaf.lower = marker.lower;
            return Ok(());
        }
        for rank in 0..leaf.streams.len() as u32 {
            leaf.streams[rank as usize].source.seek_before(&marker.lower)?;
            leaf.place(rank, Direction::Backward)?;
        }
        Ok(())
    }
}
