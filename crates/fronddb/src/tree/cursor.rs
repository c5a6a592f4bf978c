//! Ordered reads, forward and backward.
//!
//! A cursor walks leaf range by leaf range. For one leaf range it merges, newest first: the memtables, the
//! runs on the path from the root, the leaf's base. At the border it goes down again from the root of the
//! newest version, so that a long scan holds no version longer than a leaf takes; what it sees is fixed by
//! its snapshot number, not by the version.
//!
//! Forward, the sources stay at the current row, and its key and value are borrowed from where they lie.
//! Backward, the messages of a key come oldest first, so they are copied out and turned round, if they are few.
//!
//! At the first row, and where two rows in a row came from one source, or one from the source that others only interrupt, the rows that
//! follow in its block are counted up to where another source or a range-delete has something to say. If the block is all puts with one stamp, the cursor goes through such a *stretch* without looking at
//! other sources or resolving anything.
//!
//! Visible range-deletes of the leaf range are found once, and asked by key; a source all of whose messages are older
//! than a range-delete jumps over its interval.
//!
//! The order of the sources is kept as in [`super::merge`].
//!
//! Rooms: `backward` (finding the row before), `leaf` (the merged sources of one leaf range), `passing` and `chain` (passing over keys without a row, over dead ones),
//! `ranges` (range-deletes), `scratch`, `undecided` (what others are changing just now).

mod backward;
mod chain;
mod large;
mod leaf;
mod passing;
mod ranges;
mod scratch;
mod undecided;

use std::sync::Arc;

use super::BeTree;
use super::source::Source;
use super::value::{Value, Wanted};
use crate::base::key::{KeyRange, head, successor};
use crate::base::striped::Kept;
use crate::base::{CommitNumber, Result, TxnId};
use crate::format::block::EntryBlock;
use crate::format::resolve::{Found, KeyReader};
use crate::format::visibility::{Statuses, Uncommitted, View};
use crate::run::CursorMode;
use chain::{Chain, Death};
use large::LargeValues;
use leaf::{Direction, Leaf, Place, Stream};
use passing::Passing;
pub use passing::check_stop;
use scratch::Scratch;
use undecided::Undecided;

/// A stretch of as many rows was worth looking for.
const LONG_ROWS: usize = 2;
/// No window is longer.
const READ_AHEAD_BYTES_MAX: usize = 16 << 20;

/// How a cursor reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorOptions {
    /// Keeps the blocks that it reads in the cache.
    pub fill_cache: bool,
    /// Reads so many bytes ahead when blocks are not cached; 0: block by block.
    pub read_ahead_bytes: usize,
    /// What it loads of values that are kept apart.
    pub wanted: Wanted,
}

impl Default for CursorOptions {
    fn default() -> CursorOptions {
        CursorOptions { fill_cache: true, read_ahead_bytes: 128 << 10, wanted: Wanted::Whole }
    }
}

/// A [`View`] that owns what it refers to.
#[derive(Clone)]
pub struct OwnedView {
    /// As in [`View`].
    pub snapshot: CommitNumber,
    /// As in [`View`].
    pub own: Option<TxnId>,
    /// As in [`View`].
    pub uncommitted: Uncommitted,
    /// As in [`View`].
    pub statuses: Kept<dyn Statuses>,
}

impl OwnedView {
    /// Borrowed.
    pub fn view(&self) -> View<'_> {
        View { snapshot: self.snapshot, own: self.own, uncommitted: self.uncommitted, statuses: &*self.statuses }
    }
}

impl std::fmt::Debug for OwnedView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedView").field("snapshot", &self.snapshot).field("own", &self.own).finish_non_exhaustive()
    }
}

/// Leaf ranges after which a scan counts as long.
const LONG_LEAVES: u32 = 2;

/// Where the current value lies.
#[derive(Debug)]
enum Current {
    None,
    /// In the message at which this stream stands, as its key does, while `left` more rows of a stretch follow it there. The
    /// cursor's own key and the stream's place lag behind.
    Stretch {
        rank: u32,
        left: usize,
        /// No row of the cursor's range comes after them.
        is_last: bool,
    },
    /// In the message at which this stream stands.
    Stream(u32),
    /// In the cursor's own buffer.
    Buffer,
}

/// Blocks that a cursor keeps for lent values at most: rows that are far apart would keep many, which the cache may have given up.
const KEPT_BLOCKS_MAX: usize = 16;

/// A cursor over the rows between two inner keys.
#[derive(Debug)]
pub struct TreeCursor {
    tree: Kept<BeTree>,
    view: OwnedView,
    /// Of the inner keys; shared with the leaf ranges and the runs that it lies in wholly.
    range: Arc<KeyRange>,
    options: CursorOptions,
    /// Leaf ranges since it was positioned by a key or an end.
    leaves: u32,
    leaf: Option<Leaf>,
    direction: Direction,
    key: Vec<u8>,
    /// [`head`] of `key`, while going forward.
    head: u128,
    current: Current,
    buffer: Vec<u8>,
    reader: KeyReader,
    scratch: Scratch,
    passing: Passing,
    chain: Chain,
    /// It is worth looking for a stretch: the row is the first one, or came from the same stream as the one before, or from `long`.
    is_steady: bool,
    /// The stream whose last stretch was worth it: others only interrupt it.
    long: Option<u32>,
    /// Set by resolving a key.
    death: Death,
    undecided: Undecided,
    large: LargeValues,
    /// Blocks that [`TreeCursor::keep_value`] keeps.
    kept: Vec<Arc<EntryBlock>>,
}

impl BeTree {
    /// A cursor over the inner keys in `[lower, upper)`; `None`: no upper bound. Not positioned.
    pub fn cursor(
        self: &Arc<Self>,
        view: OwnedView,
        lower: Vec<u8>,
        upper: Option<Vec<u8>>,
        options: CursorOptions,
    ) -> TreeCursor {
        TreeCursor::new(self.clone().into(), view, Arc::new(KeyRange { lower, upper }), options)
    }
}

impl TreeCursor {
    /// A cursor over the inner keys in `range`. Not positioned.
    pub fn new(tree: Kept<BeTree>, view: OwnedView, range: Arc<KeyRange>, options: CursorOptions) -> TreeCursor {
        TreeCursor {
            tree,
            view,
            range,
            options,
            leaves: 0,
            leaf: None,
            direction: Direction::Forward,
            key: Vec::new(),
            head: 0,
            current: Current::None,
            buffer: Vec::new(),
            reader: KeyReader::new(),
            scratch: Scratch::default(),
            passing: Passing::default(),
            chain: Chain::default(),
            is_steady: false,
            long: None,
            death: Death::new(),
            undecided: Undecided::default(),
            large: LargeValues::default(),
            kept: Vec::new(),
        }
    }

    /// Sees the state of this commit number, from the next positioning by key or end on.
    pub fn see(&mut self, snapshot: CommitNumber) {
        self.view.snapshot = snapshot;
    }

    /// To the first row.
    ///
    /// # Errors
    /// As [`TreeCursor::seek`].
    pub fn first(&mut self) -> Result<bool> {
        let range = self.range.clone();
        self.seek(&range.lower)
    }

    /// To the last row.
    ///
    /// # Errors
    /// As [`TreeCursor::seek`].
    pub fn last(&mut self) -> Result<bool> {
        self.end_chain(false);
        self.undecided.clear();
        (self.direction, self.leaves, self.large) = (Direction::Backward, 0, LargeValues::default());
        let range = self.range.clone();
        self.open(range.upper.as_deref())?;
        self.find_backward()
    }

    /// To the first row at or above `key`; false if there is none.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading blocks, `Cancelled` ([`TreeCursor::stop_when`]). The cursor is then at no row.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.end_chain(false);
        self.undecided.clear();
        (self.direction, self.leaves, self.large) = (Direction::Forward, 0, LargeValues::default());
        let range = self.range.clone();
        let key = key.max(range.lower.as_slice());
        if range.upper.as_deref().is_some_and(|upper| key >= upper) {
            self.current = Current::None;
            self.leave();
            return Ok(false);
        }
        self.open(Some(key))?;
        self.is_steady = self.find_forward()?;
        Ok(self.is_steady)
    }

    /// To the last row below `key`; false if there is none.
    ///
    /// # Errors
    /// As [`TreeCursor::seek`].
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool> {
        self.end_chain(false);
        self.undecided.clear();
        (self.direction, self.leaves, self.large) = (Direction::Backward, 0, LargeValues::default());
        let range = self.range.clone();
        let bound = range.upper.as_deref().map_or(key, |upper| key.min(upper));
        if bound <= range.lower.as_slice() {
            self.current = Current::None;
            self.leave();
            return Ok(false);
        }
        self.open(Some(bound))?;
        self.find_backward()
    }

    /// To the next row.
    ///
    /// # Errors
    /// As [`TreeCursor::seek`].
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a cursor moves and may fail; it is no iterator")]
    pub fn next(&mut self) -> Result<bool> {
        if !self.valid() {
            return Ok(false);
        }
        if self.direction == Direction::Backward {
            return self.seek(&successor(&self.key));
        }
        if self.advance() || (self.begin_stretch() && self.advance()) {
            return Ok(true);
        }
        if matches!(self.current, Current::Stretch { is_last: true, .. }) {
            self.current = Current::None;
            return Ok(false);
        }
        let before = self.rank();
        self.skip_key()?;
        let found = self.find_forward()?;
        let rank = self.rank();
        self.is_steady = rank.is_some() && (rank == before || rank == self.long);
        Ok(found)
    }

    /// The stream at whose message it stands.
    #[inline]
    fn rank(&self) -> Option<u32> {
        match self.current {
            Current::Stream(rank) => Some(rank),
            _ => None,
        }
    }

    /// Goes one row on in a stretch; false when there is none left, and then on its last row, which is like any other unless no row
    /// comes after it.
    #[inline]
    pub fn advance(&mut self) -> bool {
        let (Current::Stretch { rank, left, is_last }, Some(leaf)) = (&mut self.current, &mut self.leaf) else {
            return false;
        };
        let Source::Run(cursor) = &mut leaf.streams[*rank as usize].source else { return false };
        if let Some(less) = left.checked_sub(1) {
            *left = less;
            cursor.advance();
            return true;
        }
        if !*is_last {
            self.end_stretch();
        }
        false
    }

    /// Shows `take` the rows that follow in a stretch, up to `most`, each as two parts of its inner key and its value. Stands on the
    /// last one of those before the first that it refuses; how many those are.
    #[inline]
    pub fn pass(&mut self, most: usize, take: impl FnMut(&[u8], &[u8], &[u8]) -> bool) -> usize {
        if !matches!(self.current, Current::Stretch { .. }) && !self.begin_stretch() {
            return 0;
        }
        let (Current::Stretch { rank, left, .. }, Some(leaf)) = (&mut self.current, &mut self.leaf) else { return 0 };
        let Source::Run(cursor) = &mut leaf.streams[*rank as usize].source else { return 0 };
        let passed = cursor.pass(most.min(*left), take);
        *left -= passed;
        passed
    }

    /// Stands on the row of a stretch like on any other.
    fn end_stretch(&mut self) {
        let (Current::Stretch { rank, .. }, Some(leaf)) = (&self.current, &mut self.leaf) else { return };
        let rank = *rank;
        self.key.clear();
        self.key.extend_from_slice(leaf.streams[rank as usize].source.key());
        self.head = head(&self.key);
        if let Some(place) = leaf.order.last_mut() {
            place.head = self.head;
        }
        self.current = Current::Stream(rank);
    }

    /// Looks for a stretch of rows after this one, if that is worth it and has not been done at this row; true where one begins.
    #[inline]
    fn begin_stretch(&mut self) -> bool {
        let (true, Some(rank), Some(leaf)) = (self.is_steady, self.rank(), &self.leaf) else { return false };
        self.is_steady = false;
        let Some((left, is_last)) = leaf.uniform_ahead(self.range.upper.as_deref()) else { return false };
        // What is seen before it is committed may be rolled back while the cursor goes on.
        let stamp = || leaf.streams[rank as usize].source.message().stamp;
        if left >= LONG_ROWS {
            self.long = Some(rank);
        } else if self.long == Some(rank) {
            self.long = None;
        }
        let begins = (left > 0 || is_last) && self.view.view().committed(stamp()).is_some();
        if begins {
            self.current = Current::Stretch { rank, left, is_last };
        }
        begins
    }

    /// To the row before.
    ///
    /// # Errors
    /// As [`TreeCursor::seek`].
    pub fn prev(&mut self) -> Result<bool> {
        if !self.valid() {
            return Ok(false);
        }
        if self.direction == Direction::Forward {
            self.end_stretch();
            let key = std::mem::take(&mut self.key);
            return self.seek_before(&key);
        }
        self.find_backward()
    }

    /// True when at a row.
    #[inline]
    pub fn valid(&self) -> bool {
        !matches!(self.current, Current::None)
    }

    /// The inner key of the row.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match (&self.current, &self.leaf) {
            (Current::Stretch { rank, .. }, Some(leaf)) => leaf.streams[*rank as usize].source.key(),
            _ => &self.key,
        }
    }

    /// The value of the row.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match (&self.current, &self.leaf) {
            (Current::Stream(rank) | Current::Stretch { rank, .. }, Some(leaf)) => {
                leaf.streams[*rank as usize].source.payload()
            }
            (Current::Buffer, _) => &self.buffer,
            _ => &[],
        }
    }

    /// Keeps the bytes of the value where they are, wherever the cursor goes, until [`TreeCursor::let_go`] or its end; false where
    /// they lie in no block, or enough blocks are kept already.
    #[inline]
    pub fn keep_value(&mut self) -> bool {
        let (Current::Stream(rank) | Current::Stretch { rank, .. }, Some(leaf)) = (&self.current, &self.leaf) else {
            return false;
        };
        let Source::Run(cursor) = &leaf.streams[*rank as usize].source else { return false };
        let (block, _) = cursor.entry();
        if !self.kept.iter().rev().any(|kept| Arc::ptr_eq(kept, block)) {
            if self.kept.len() == KEPT_BLOCKS_MAX {
                return false;
            }
            self.kept.push(block.clone());
        }
        true
    }

    /// Keeps no value any more.
    #[inline]
    pub fn let_go(&mut self) {
        self.kept.clear();
    }

    /// Leaves the leaf range, and pays for what it went through there.
    fn leave(&mut self) -> Option<Leaf> {
        let leaf = self.leaf.take()?;
        leaf.settle(&self.tree);
        Some(leaf)
    }

    /// Opens the leaf range in which travel goes on: forward the one of `key`, backward the one of the keys
    /// just below `key` (`None`: below the end of all).
    fn open(&mut self, key: Option<&[u8]>) -> Result<()> {
        self.current = Current::None;
        (self.is_steady, self.long) = (false, None);
        let CursorOptions { fill_cache, read_ahead_bytes, .. } = self.options;
        let read_ahead_bytes = read_ahead_bytes.min(READ_AHEAD_BYTES_MAX);
        // Past the cache, what buffers above both leaves have for an index is found where the last cursors hold it.
        let _before = self.leave().filter(|_| !fill_cache);
        let mode = CursorMode { fill_cache, read_ahead_bytes, is_long: self.leaves >= LONG_LEAVES, asks_ahead: true };
        let leaf = Leaf::open(&self.tree, &self.view, &self.range, mode, self.direction, key)?;
        if !leaf.ranges.is_empty() {
            self.end_chain(false);
        }
        self.leaf = Some(leaf);
        Ok(())
    }

    /// Goes over the border of the leaf range to the one beyond; false where that is a border of the cursor's, too (`None`).
    fn go_on_at(&mut self, border: Option<Vec<u8>>) -> Result<bool> {
        let Some(border) = border else {
            self.end_chain(true);
            return Ok(false);
        };
        self.leaves = self.leaves.saturating_add(1);
        self.passing.look()?;
        self.open(Some(&border))?;
        Ok(true)
    }

    /// Moves every source past the current key.
    #[inline]
    fn skip_key(&mut self) -> Result<()> {
        let Some(leaf) = &mut self.leaf else { return Ok(()) };
        while let Some(place) = leaf.order.last().copied() {
            // The source that the value lies in has not moved.
            let is_current = matches!(self.current, Current::Stream(rank) if rank == place.rank);
            if !is_current && !leaf.stands_at(place, &self.key, self.head) {
                break;
            }
            self.current = Current::None;
            leaf.order.pop();
            let Stream { source, passed, .. } = &mut leaf.streams[place.rank as usize];
            *passed = passed.saturating_add(1);
            source.next_key(&self.key)?;
            if source.valid() {
                let head = head(source.key());
                leaf.place_ahead(Place { head, rank: place.rank })?;
            }
        }
        Ok(())
    }

    /// Finds the first visible row at or after the positions of the sources.
    fn find_forward(&mut self) -> Result<bool> {
        loop {
            self.current = Current::None;
            let Some(leaf) = &mut self.leaf else { return Ok(false) };
            let inside = leaf.order.last().is_some_and(|place| leaf.is_inside(*place));
            if !inside {
                let next = leaf.range.upper.clone();
                let next = next.filter(|next| self.range.upper.as_ref().is_none_or(|upper| next < upper));
                if !self.go_on_at(next)? {
                    return Ok(false);
                }
                continue;
            }
            if self.resolve_forward()? {
                if self.chain.keys > 0 {
                    self.end_chain(true);
                }
                return Ok(true);
            }
            self.passing.key()?;
            if self.passing.is_over() {
                return Ok(self.give_up());
            }
            if !self.pass_dead()? {
                self.skip_key()?;
            }
        }
    }

    /// Resolves the lowest key of the sources, leaving the source with the value at its message.
    #[inline]
    fn resolve_forward(&mut self) -> Result<bool> {
        let Some(leaf) = &mut self.leaf else { return Ok(false) };
        let Some(first) = leaf.order.last().copied() else { return Ok(false) };
        self.key.clear();
        self.key.extend_from_slice(leaf.streams[first.rank as usize].source.key());
        self.head = first.head;
        self.reader.clear();
        let view = self.view.view();
        if !leaf.ranges.is_empty() {
            self.reader.delete_below(leaf.ranges.newest(&self.key));
        }
        let mut found = None;
        let (mut is_newest, mut passed) = (true, None);
        self.death = Death::new();
        // A source that leaves the key undecided is put back in order, so the next older one with the key,
        // if there is one, is always the last.
        while let Some(place @ Place { rank, .. }) = leaf.order.last().copied() {
            if !is_newest && !leaf.stands_at(place, &self.key, self.head) {
                break;
            }
            let source = &mut leaf.streams[rank as usize].source;
            let decided = loop {
                let message = source.message();
                is_newest = false;
                match self.reader.message(&view, &message) {
                    Found::Here => {
                        found = Some((rank, message.blob));
                        break true;
                    }
                    Found::Absent => {
                        self.death.absent(&view, &message);
                        break true;
                    }
                    Found::Undecided { by } => {
                        passed = passed.or(Some(message.seq));
                        self.death.undecided(&view, &message);
                        self.undecided.note(by, &self.key);
                        source.next()?;
                    }
                }
                if !source.valid() || source.key() != self.key {
                    break false;
                }
            };
            if decided {
                break;
            }
            leaf.order.pop();
            leaf.place(rank, Direction::Forward)?;
        }
        if let Some(first) = passed
            && let Some(is_row) = self.look_again(first)?
        {
            return Ok(is_row);
        }
        match found {
            Some((rank, false)) if self.reader.is_plain() => {
                self.current = Current::Stream(rank);
                Ok(true)
            }
            None if self.reader.is_plain() => Ok(false),
            found => {
                let Some(leaf) = &self.leaf else { return Ok(false) };
                let payload = found.map(|(rank, blob)| (leaf.streams[rank as usize].source.payload(), blob));
                let older = match payload {
                    Some((stored, true)) => {
                        let wanted = self.options.wanted.of_older(self.reader.is_plain());
                        Some(self.large.load(&self.tree, &self.key, stored, wanted, self.options.fill_cache)?)
                    }
                    Some((value, false)) => Some(value.to_vec()),
                    None => None,
                };
                self.finish_value(older)
            }
        }
    }

    fn finish_value(&mut self, older: Option<Vec<u8>>) -> Result<bool> {
        match self.reader.finish(older)? {
            Some(value) => {
                self.buffer = value;
                self.current = Current::Buffer;
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

/// The value at which a cursor stands, for keeping it longer than the position.
impl From<&TreeCursor> for Value {
    fn from(cursor: &TreeCursor) -> Value {
        Value::from(cursor.value().to_vec())
    }
}
