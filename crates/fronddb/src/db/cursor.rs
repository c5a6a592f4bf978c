//! Cursors: ordered reading, forward and backward, with a transaction's eyes.
//!
//! A plain cursor reads its snapshot through the tree's merging cursor and lends keys and values from there. A
//! *locking* cursor (asked for, or plain at SERIALIZABLE) locks the rows at which it stops: see [`locking`]. It may be told
//! not to wait at rows that others hold: see [`peek`].

mod batch;
mod locking;
mod peek;

use std::ops::Bound;
use std::sync::Arc;

use self::peek::Began;
use super::core::{TxnCore, TxnState};
use super::engine::Engine;
use super::options::{CursorOptions, Isolation, LockMode, Sees, Wait};
use super::read::mode_of;
use super::tree_handle::{Tree, TreeInner};
use crate::base::key::{
    KeyRange, PREFIX_BYTES, check_key, inner, into_inner, prefix_end, successor, tree_end, tree_start,
};
use crate::base::{CommitNumber, Result, TreeId, TxnId};
use crate::format::Uncommitted;
use crate::lock::Mode;
use crate::tree::cursor::{CursorOptions as ReadOptions, OwnedView};
use crate::tree::{TreeCursor, Wanted};
use crate::txn::Snapshot;

/// Walks over the visible rows of one tree, between bounds. Made by [`crate::Transaction::cursor`].
///
/// It is at a row or at none ([`Cursor::valid`]); a new one is at none. It sees its own transaction's writes up to
/// its last positioning by key or end ([`Cursor::first`], [`Cursor::last`], [`Cursor::seek`],
/// [`Cursor::seek_for_prev`]); whether it sees later ones while stepping is not defined, and neither is it
/// disturbed by them. It must not be used after its transaction has ended (`Closed`). After an error it is at no row.
#[derive(Debug)]
pub struct Cursor {
    core: Arc<TxnCore>,
    tree: Arc<TreeInner>,
    /// Bounds as inner keys.
    range: Arc<KeyRange>,
    lock: Option<Mode>,
    gaps: bool,
    wait: Wait,
    peeks: bool,
    sees: Sees,
    keys_only: bool,
    passed_over_max: Option<u64>,
    read: ReadOptions,
    source: Option<Source>,
    at: At,
    /// The row of a locking cursor, or one that was locked and read again: inner key and value.
    key: Vec<u8>,
    value: Vec<u8>,
    /// Of a row that it peeks at.
    began: Option<Began>,
    steps: u64,
}

/// The tree's cursor and what it was made for.
#[derive(Debug)]
struct Source {
    cursor: TreeCursor,
    own: Option<TxnId>,
    snapshot: Option<Arc<Snapshot>>,
    /// Where it reads the uncommitted, so that level 0 keeps what it comes down to.
    _kept: Option<Snapshot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Not positioned yet.
    New,
    /// Past an end.
    End,
    /// At the source's row.
    Source,
    /// At the row in `key` and `value`, which it has locked.
    Own,
    /// At the row in `key` and `value`, which another transaction holds.
    Peeked,
    /// Where the row in `key` was.
    Gone,
}

impl TxnCore {
    pub(crate) fn cursor(self: &Arc<Self>, tree: &Tree, mut options: CursorOptions) -> Result<Cursor> {
        let state = self.active()?;
        self.check_tree(&state, &tree.inner)?;
        drop(state);
        let serializable = self.options.isolation == Isolation::Serializable && !self.options.read_only;
        let lock = options.lock.or(if serializable { Some(LockMode::Shared) } else { None });
        if options.lock.is_some() {
            self.check_not_read_only()?;
        }
        let (lower, upper) = bounds(tree.id(), &mut options)?;
        let gaps = matches!(self.options.isolation, Isolation::RepeatableRead | Isolation::Serializable);
        let peeks = options.peeks && lock.is_some() && !gaps;
        let wanted = match lock {
            _ if options.keys_only => Wanted::Nothing,
            // It reads the row when it has locked it.
            Some(_) if !gaps && !peeks => Wanted::Nothing,
            None if options.heads_only => Wanted::Heads,
            _ => Wanted::Whole,
        };
        Ok(Cursor {
            core: self.clone(),
            tree: tree.inner.clone(),
            range: Arc::new(KeyRange { lower, upper }),
            lock: lock.map(mode_of),
            gaps,
            wait: options.wait,
            peeks,
            sees: options.sees,
            keys_only: options.keys_only,
            passed_over_max: options.passed_over_max.filter(|_| lock.is_none()),
            read: ReadOptions { fill_cache: options.fill_cache, read_ahead_bytes: options.read_ahead_bytes, wanted },
            source: None,
            at: At::New,
            key: Vec::new(),
            value: Vec::new(),
            began: None,
            steps: 0,
        })
    }
}

/// The bounds of a cursor, which are taken from the options, as inner keys.
fn bounds(tree: TreeId, options: &mut CursorOptions) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let after = |key: Vec<u8>| {
        let mut key = into_inner(tree, key);
        key.push(0);
        key
    };
    for bound in [&options.lower, &options.upper] {
        if let Bound::Included(key) | Bound::Excluded(key) = bound {
            check_key(key)?;
        }
    }
    check_key(&options.prefix)?;
    let lower = match std::mem::replace(&mut options.lower, Bound::Unbounded) {
        Bound::Included(key) => into_inner(tree, key),
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => tree_start(tree),
    };
    let upper = match std::mem::replace(&mut options.upper, Bound::Unbounded) {
        Bound::Included(key) => after(key),
        Bound::Excluded(key) => into_inner(tree, key),
        Bound::Unbounded => tree_end(tree),
    };
    let upper = Some(upper).filter(|upper| !upper.is_empty());
    if options.prefix.is_empty() {
        return Ok((lower, upper));
    }
    let first = inner(tree, &options.prefix);
    let end = prefix_end(&first);
    let upper = match (upper, end) {
        (Some(upper), Some(end)) => Some(upper.min(end)),
        (upper, end) => upper.or(end),
    };
    Ok((lower.max(first), upper))
}

pub(super) fn user_key(inner: &[u8]) -> &[u8] {
    inner.get(PREFIX_BYTES..).unwrap_or_default()
}

impl Engine {
    pub(crate) fn owned_view(&self, snapshot: CommitNumber, own: Option<TxnId>, uncommitted: Uncommitted) -> OwnedView {
        OwnedView { snapshot, own, uncommitted, statuses: self.spread_statuses.get() }
    }

    /// A cursor of the tree over inner keys.
    pub(crate) fn tree_cursor(
        &self,
        view: OwnedView,
        lower: Vec<u8>,
        upper: Option<Vec<u8>>,
        fill_cache: bool,
        read_ahead_bytes: usize,
    ) -> TreeCursor {
        self.tree.cursor(view, lower, upper, ReadOptions { fill_cache, read_ahead_bytes, wanted: Wanted::Whole })
    }
}

impl Cursor {
    /// Goes to the first row; false when there is none.
    ///
    /// # Errors
    /// As all positioning: `Closed`, `Io`, `Corruption`, `Cancelled`; with locks also `Deadlock`, `LockTimeout`.
    pub fn first(&mut self) -> Result<bool> {
        let range = self.range.clone();
        self.forward(&range.lower)
    }

    /// Goes to the last row; false when there is none.
    ///
    /// # Errors
    /// As [`Cursor::first`].
    pub fn last(&mut self) -> Result<bool> {
        let range = self.range.clone();
        self.backward(range.upper.as_deref())
    }

    /// Goes to the first row at or after `key`; false when there is none.
    ///
    /// # Errors
    /// As [`Cursor::first`].
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.forward(&inner(self.tree.id, key))
    }

    /// Goes to the last row at or before `key`; false when there is none.
    ///
    /// # Errors
    /// As [`Cursor::first`].
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<bool> {
        self.backward(Some(&successor(&inner(self.tree.id, key))))
    }

    /// Goes to the row after this one; false when there is none. At no row: as [`Cursor::first`] after
    /// creation, otherwise false.
    ///
    /// # Errors
    /// As [`Cursor::first`].
    #[expect(clippy::should_implement_trait, reason = "a cursor goes both ways and lends its rows; it is no iterator")]
    pub fn next(&mut self) -> Result<bool> {
        match self.at {
            At::New => return self.first(),
            At::End => return Ok(false),
            At::Own | At::Peeked | At::Gone if self.lock.is_some() => {
                let after = successor(&self.key);
                return self.forward(&after);
            }
            _ => {}
        }
        self.step(TreeCursor::next)
    }

    /// Goes to the row before this one; false when there is none. At no row: as [`Cursor::last`] after
    /// creation, otherwise false.
    ///
    /// # Errors
    /// As [`Cursor::first`].
    pub fn prev(&mut self) -> Result<bool> {
        match self.at {
            At::New => return self.last(),
            At::End => return Ok(false),
            At::Own | At::Peeked | At::Gone if self.lock.is_some() => {
                let key = self.key.clone();
                return self.backward(Some(&key));
            }
            _ => {}
        }
        self.step(TreeCursor::prev)
    }

    /// True when it is at a row.
    pub fn valid(&self) -> bool {
        matches!(self.at, At::Source | At::Own | At::Peeked)
    }

    /// Fails with `Closed` once its transaction has ended: the row that it stands at is then nobody's, and may have another value.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`.
    pub fn check_live(&self) -> Result<()> {
        self.core.check_live()
    }

    /// True when it has given up ([`CursorOptions::passed_over_max`]): that it is at no row says nothing then.
    pub fn gave_up(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.cursor.gave_up())
    }

    /// The key at which it did: from where it began to this one there is no row that it sees.
    pub fn gave_up_at(&self) -> Option<&[u8]> {
        self.source.as_ref().and_then(|source| source.cursor.gave_up_at()).map(user_key)
    }

    /// The key of its row; empty when it is at none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match (self.at, &self.source) {
            (At::Source, Some(source)) => user_key(source.cursor.key()),
            (At::Own | At::Peeked, _) => user_key(&self.key),
            _ => &[],
        }
    }

    /// The value of its row; empty when it is at none.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match (self.at, &self.source) {
            _ if self.keys_only => &[],
            (At::Source, Some(source)) => source.cursor.value(),
            (At::Own | At::Peeked, _) => &self.value,
            _ => &[],
        }
    }

    /// Steps the tree's cursor.
    #[inline]
    fn step(&mut self, step: impl FnOnce(&mut TreeCursor) -> Result<bool>) -> Result<bool> {
        let Some(source) = &mut self.source else { return Ok(false) };
        if let Err(error) = self.core.check_live() {
            self.at = At::End;
            return Err(error);
        }
        self.steps += 1;
        self.at = At::End;
        if step(&mut source.cursor).inspect_err(|error| self.core.step_failed(error))? {
            self.at = At::Source;
        }
        Ok(self.valid())
    }

    /// The tree's cursor, made anew if what it sees has changed.
    fn source(&mut self, state: &mut TxnState) -> &mut TreeCursor {
        let core = &self.core;
        let with_own = self.lock.is_some() || self.sees != Sees::Others;
        let own = state.writer.as_ref().filter(|_| with_own).map(|writer| writer.txn);
        let snapshot = match (self.lock, self.sees) {
            (Some(_), _) => None,
            (None, Sees::Level) => core.snapshot(state),
            (None, Sees::Committed) => core.committed_snapshot(state),
            (None, Sees::Others) => core.snapshot(state).or_else(|| core.committed_snapshot(state)),
            (None, Sees::Latest | Sees::Added) => Some(Arc::new(core.engine.snapshots.acquire())),
        };
        let same = |source: &Source| {
            let number = |snapshot: &Option<Arc<Snapshot>>| snapshot.as_ref().map(|snapshot| snapshot.number());
            source.own == own && number(&source.snapshot) == number(&snapshot)
        };
        if !self.source.as_ref().is_some_and(same) {
            self.source = None;
        }
        let source = self.source.get_or_insert_with(|| {
            let number = snapshot.as_ref().map_or(CommitNumber::LATEST, |snapshot| snapshot.number());
            let uncommitted = match (self.lock, self.sees) {
                (None, Sees::Level) => core.uncommitted(),
                (None, Sees::Added) => Uncommitted::Added,
                _ => Uncommitted::Hidden,
            };
            let view = core.engine.owned_view(number, own, uncommitted);
            let mut cursor = TreeCursor::new(core.engine.spread_tree.get(), view, self.range.clone(), self.read);
            cursor.stop_when(core.cancelled.clone());
            if let Some(keys) = self.passed_over_max {
                cursor.give_up_after(keys);
            }
            if self.lock.is_some() {
                cursor.watch_undecided();
            }
            Source { cursor, own, snapshot, _kept: None }
        });
        // Anew whenever it is positioned: what is kept for an older one may lie below what it stands at.
        if self.lock.is_none() && source.snapshot.is_none() {
            source._kept = Some(core.engine.snapshots.acquire());
        }
        &mut source.cursor
    }

    fn forward(&mut self, from: &[u8]) -> Result<bool> {
        let core = self.core.clone();
        self.forward_from(&core, from).inspect_err(|error| core.engine.events.damage(error))
    }

    fn forward_from(&mut self, core: &TxnCore, from: &[u8]) -> Result<bool> {
        self.at = At::End;
        let mut state = core.active()?;
        core.check_tree(&state, &self.tree)?;
        core.engine.counters.here().cursor_seeks.add(1);
        if self.lock.is_some() {
            return self.forward_locked(core, &mut state, from);
        }
        let found = self.source(&mut state).seek(from);
        if found.inspect_err(|error| core.scan_failed(&state, error))? {
            self.at = At::Source;
        }
        Ok(self.valid())
    }

    fn backward(&mut self, below: Option<&[u8]>) -> Result<bool> {
        let core = self.core.clone();
        self.backward_from(&core, below).inspect_err(|error| core.engine.events.damage(error))
    }

    fn backward_from(&mut self, core: &TxnCore, below: Option<&[u8]>) -> Result<bool> {
        self.at = At::End;
        let mut state = core.active()?;
        core.check_tree(&state, &self.tree)?;
        core.engine.counters.here().cursor_seeks.add(1);
        if self.lock.is_some() {
            return self.backward_locked(core, &mut state, below);
        }
        let source = self.source(&mut state);
        let found = match below {
            Some(below) => source.seek_before(below),
            None => source.last(),
        };
        if found.inspect_err(|error| core.scan_failed(&state, error))? {
            self.at = At::Source;
        }
        Ok(self.valid())
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.core.engine.counters.here().cursor_steps.add(self.steps);
    }
}
