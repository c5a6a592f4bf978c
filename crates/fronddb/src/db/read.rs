//! Point reads, plain and locking, and estimates.
//!
//! A plain read takes its snapshot first and the tree's version second: the version then holds everything that
//! the snapshot sees. A locking read takes the lock first, for the same reason.

use std::cell::RefCell;
use std::sync::Arc;

use super::core::{TxnCore, TxnState};
use super::counters::READ_SAMPLE;
use super::engine::Engine;
use super::options::{Isolation, LockMode, Wait};
use super::transaction::Locked;
use super::tree_handle::{RangeEstimate, Tree, TreeInner, no_tree};
use crate::base::key::{check_key, inner, split, tree_end, write_inner};
use crate::base::{CommitNumber, Error, ErrorKind, Result, TreeId, TxnId, scratch};
use crate::format::{Uncommitted, View};
use crate::lock::{self, Attempt, Granted, Mode};
use crate::tree::{Value, Wanted};

thread_local! {
    static KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Lends the inner key of `key` in `tree`, from memory that this thread keeps.
#[inline]
pub(crate) fn with_inner<T>(tree: TreeId, key: &[u8], use_it: impl FnOnce(&[u8]) -> T) -> T {
    scratch::lend(&KEY, Vec::new, |buffer| {
        write_inner(tree, key, buffer);
        use_it(buffer)
    })
}

/// The same of two bounds; the upper one may be empty for the end of the tree, and is none at the end of all trees.
#[inline]
fn with_inner_range<T>(tree: TreeId, lower: &[u8], upper: &[u8], use_it: impl FnOnce(&[u8], Option<&[u8]>) -> T) -> T {
    scratch::lend(&KEY, Vec::new, |buffer| {
        write_inner(tree, lower, buffer);
        let middle = buffer.len();
        let prefix = if upper.is_empty() { tree.0.checked_add(1) } else { Some(tree.0) };
        buffer.extend(prefix.map(u32::to_be_bytes).iter().flatten());
        buffer.extend_from_slice(upper);
        let (lower, upper) = buffer.split_at(middle);
        use_it(lower, Some(upper).filter(|upper| !upper.is_empty()))
    })
}

pub(crate) fn mode_of(mode: LockMode) -> Mode {
    match mode {
        LockMode::Shared => Mode::Shared,
        LockMode::Exclusive => Mode::Exclusive,
    }
}

impl Engine {
    /// The value of an inner key as `view` sees it, counted and sometimes timed; what is `wanted` of it.
    #[inline]
    pub(crate) fn read(&self, view: &View<'_>, key: &[u8], wanted: Wanted) -> Result<Option<Value>> {
        let count = self.counters.here().gets.get();
        self.counters.here().gets.add(1);
        if !count.is_multiple_of(READ_SAMPLE) {
            let value = self.find(view, key, wanted)?;
            self.counters.here().gets_found.add(u64::from(value.is_some()));
            return Ok(value);
        }
        let started = std::time::Instant::now();
        let value = self.find(view, key, wanted)?;
        self.counters.here().gets_found.add(u64::from(value.is_some()));
        self.counters.read.record(started.elapsed().as_nanos() as u64);
        Ok(value)
    }

    /// As [`Engine::read`]; also says who else is changing the key just now.
    fn read_watching(&self, view: &View<'_>, key: &[u8], wanted: Wanted) -> Result<(Option<Value>, Option<TxnId>)> {
        self.counters.here().gets.add(1);
        let found = self.tree.get_watching(&self.tree.version_guard(), view, key, wanted);
        let (value, undecided) = found.inspect_err(|error| self.events.damage(error))?;
        self.counters.here().gets_found.add(u64::from(value.is_some()));
        Ok((value, undecided))
    }

    #[inline]
    fn find(&self, view: &View<'_>, key: &[u8], wanted: Wanted) -> Result<Option<Value>> {
        let found = self.tree.get_wanted(&self.tree.version_guard(), view, key, wanted);
        found.inspect_err(|error| self.events.damage(error))
    }

    /// The latest committed value.
    pub(crate) fn read_latest(&self, tree: TreeId, key: &[u8]) -> Result<Option<Value>> {
        self.check_open()?;
        // A snapshot also for one key: a commit while its messages are looked at would show some of them.
        let snapshot = self.snapshots.acquire();
        let view = View { snapshot: snapshot.number(), ..self.latest() };
        with_inner(tree, key, |key| self.read(&view, key, Wanted::Whole))
    }

    /// Sees everything committed.
    pub(crate) fn latest(&self) -> View<'_> {
        View {
            snapshot: CommitNumber::LATEST,
            own: None,
            uncommitted: Uncommitted::Hidden,
            statuses: self.statuses.as_ref(),
        }
    }

    pub(crate) fn estimate(&self, tree: TreeId, lower: &[u8], upper: &[u8]) -> Result<RangeEstimate> {
        with_inner_range(tree, lower, upper, |lower, upper| {
            let found = self.tree.estimate(&self.tree.version_guard(), lower, upper)?;
            Ok(RangeEstimate { rows: found.rows, bytes: found.bytes, blob_bytes: found.blob_bytes })
        })
    }
}

/// What a locked key is, once nobody else is changing it.
pub(crate) enum Settled {
    Value(Option<Value>),
    /// Another transaction is changing it, and such rows are to be left out.
    Busy,
}

impl Settled {
    fn into_value(self) -> Option<Value> {
        match self {
            Settled::Value(value) => value,
            Settled::Busy => None,
        }
    }
}

impl TxnCore {
    /// Fails with `NotFound` when the tree is dropped, by others or by this transaction.
    #[inline]
    pub(crate) fn check_tree(&self, state: &TxnState, tree: &Arc<TreeInner>) -> Result<()> {
        self.engine.catalog.check(tree)?;
        if !state.catalog.is_empty() && state.catalog.has_dropped(tree.id) {
            return Err(no_tree(&tree.name));
        }
        Ok(())
    }

    /// Fails when the transaction is read-only: such a one neither writes nor holds locks.
    pub(crate) fn check_not_read_only(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "transaction is read-only"));
        }
        Ok(())
    }

    pub(crate) fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Value>> {
        self.look(tree, key, Wanted::Whole)
    }

    /// Many reads of one state, also outside of a statement.
    pub(crate) fn get_many<'k>(
        &self,
        tree: &Tree,
        keys: impl IntoIterator<Item = Result<&'k [u8]>>,
    ) -> Result<Vec<Option<Value>>> {
        let is_alone = self.active()?.statement.join();
        let found = keys.into_iter().map(|key| self.get(tree, key?)).collect();
        if is_alone && let Ok(mut state) = self.active() {
            state.statement.part();
        }
        found
    }

    /// No more than the head of a value that is kept apart.
    pub(crate) fn get_head(&self, tree: &Tree, key: &[u8]) -> Result<Option<Value>> {
        self.look(tree, key, Wanted::Heads)
    }

    pub(crate) fn contains(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        Ok(self.look(tree, key, Wanted::Nothing)?.is_some())
    }

    pub(crate) fn changed_after_snapshot(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let state = self.active()?;
        self.check_tree(&state, &tree.inner)?;
        let Some(snapshot) = state.read_snapshot() else { return Ok(false) };
        self.changed_after(&state, snapshot, &inner(tree.id(), key))
    }

    /// What plain reads see of the uncommitted.
    pub(crate) fn uncommitted(&self) -> Uncommitted {
        match self.options.isolation {
            Isolation::ReadUncommitted => Uncommitted::Seen,
            _ => Uncommitted::Hidden,
        }
    }

    /// A plain read of what is `wanted` of a value that is kept apart.
    #[inline]
    fn look(&self, tree: &Tree, key: &[u8], wanted: Wanted) -> Result<Option<Value>> {
        check_key(key)?;
        let mut state = self.active()?;
        self.check_tree(&state, &tree.inner)?;
        if self.options.isolation == Isolation::Serializable && !self.options.read_only {
            self.lock_point(&mut state, tree.id(), key, Mode::Shared, Wait::Default)?;
            tree.inner.check()?;
            let key = inner(tree.id(), key);
            let settled = self.read_settled(&mut state, &key, Mode::Shared, Wait::Default, wanted)?;
            return Ok(settled.into_value());
        }
        let snapshot = self.snapshot(&mut state);
        // Who reads the uncommitted has one only so that level 0 keeps what it comes down to.
        let _kept = snapshot.is_none().then(|| self.engine.snapshots.acquire());
        let view = View {
            snapshot: snapshot.as_ref().map_or(CommitNumber::LATEST, |snapshot| snapshot.number()),
            uncommitted: self.uncommitted(),
            ..self.latest_view(&state)
        };
        with_inner(tree.id(), key, |key| self.engine.read(&view, key, wanted))
    }

    pub(crate) fn get_locked(&self, tree: &Tree, key: &[u8], mode: LockMode, wait: Wait) -> Result<Locked> {
        check_key(key)?;
        let mut state = self.active()?;
        self.check_not_read_only()?;
        self.check_tree(&state, &tree.inner)?;
        match self.lock_point(&mut state, tree.id(), key, mode_of(mode), wait)? {
            Attempt::Busy => Ok(Locked::Skipped),
            Attempt::Granted(_) => {
                tree.inner.check()?;
                let key = inner(tree.id(), key);
                let snapshot = self.conflict_snapshot(&mut state);
                self.check_conflict(&state, snapshot, &key)?;
                match self.read_settled(&mut state, &key, mode_of(mode), wait, Wanted::Whole)? {
                    Settled::Value(value) => Ok(value.map_or(Locked::Absent, Locked::Row)),
                    Settled::Busy => {
                        self.unlock_fresh(&mut state, &key);
                        Ok(Locked::Skipped)
                    }
                }
            }
        }
    }

    /// Locks a key as asked; `Busy` only with [`Wait::SkipLocked`].
    pub(crate) fn lock_point(
        &self,
        state: &mut TxnState,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
        wait: Wait,
    ) -> Result<Attempt> {
        let limit = self.lock_wait(wait);
        let writer = self.writer(state);
        let attempt = match wait {
            Wait::SkipLocked => writer.locker.try_lock(tree, key, mode),
            _ => writer.locker.lock(tree, key, mode, limit).map(Attempt::Granted),
        };
        let attempt = attempt.map_err(|error| self.lock_failed(state, error))?;
        if let Attempt::Granted(granted) = attempt {
            self.note_locked(state, tree, key, granted);
        }
        Ok(attempt)
    }

    /// Reads an inner key that is locked. A covered write takes no lock, so another transaction may be changing it all the
    /// same: that one is waited for.
    pub(crate) fn read_settled(
        &self,
        state: &mut TxnState,
        key: &[u8],
        mode: Mode,
        wait: Wait,
        wanted: Wanted,
    ) -> Result<Settled> {
        loop {
            // Covered writes go on beside it, and level 0 is to keep what it comes down to; not while it waits.
            let kept = self.engine.snapshots.acquire();
            let (value, undecided) = self.engine.read_watching(&self.latest_view(state), key, wanted)?;
            drop(kept);
            match undecided {
                None => return Ok(Settled::Value(value)),
                Some(_) if wait == Wait::SkipLocked => return Ok(Settled::Busy),
                Some(txn) => self.wait_for_txn(state, txn, key, mode, wait)?,
            }
        }
    }

    /// Waits for another transaction, whose undecided change of an inner key was met, to end or to undo it.
    pub(crate) fn wait_for_txn(
        &self,
        state: &mut TxnState,
        txn: TxnId,
        key: &[u8],
        mode: Mode,
        wait: Wait,
    ) -> Result<()> {
        let limit = self.lock_wait(wait);
        let locker = self.writer(state).locker.clone();
        let is_there = || {
            let _kept = self.engine.snapshots.acquire();
            let (_, undecided) = self.engine.read_watching(&self.latest_view(state), key, Wanted::Nothing)?;
            Ok(undecided.is_some())
        };
        let waited = locker.wait_for(txn, split(key).unwrap_or((TreeId(0), key)), mode, limit, is_there);
        waited.map_err(|error| self.lock_failed(state, error))
    }

    /// Locks the user keys from `lower` up to `upper` (empty: all that follow).
    pub(crate) fn lock_span(
        &self,
        state: &mut TxnState,
        tree: TreeId,
        lower: &[u8],
        upper: &[u8],
        mode: Mode,
        wait: lock::Wait,
    ) -> Result<Granted> {
        let writer = self.writer(state);
        let granted = writer.locker.lock_range(tree, lower, upper, mode, wait);
        let granted = granted.map_err(|error| self.lock_failed(state, error))?;
        // From here on it sees every covered write that went past the lock (V1).
        self.engine.covered.drain();
        Ok(granted)
    }

    pub(crate) fn lock_range(&self, tree: &Tree, lower: &[u8], upper: &[u8], mode: LockMode, wait: Wait) -> Result<()> {
        check_key(lower)?;
        check_key(upper)?;
        if !upper.is_empty() && lower >= upper {
            return Ok(());
        }
        let mut state = self.active()?;
        self.check_not_read_only()?;
        self.check_tree(&state, &tree.inner)?;
        let limit = self.lock_wait(wait);
        self.lock_span(&mut state, tree.id(), lower, upper, mode_of(mode), limit)?;
        tree.inner.check()
    }

    /// Deletes a range after locking it.
    pub(crate) fn delete_range(&self, tree: &Tree, lower: &[u8], upper: &[u8]) -> Result<()> {
        check_key(lower)?;
        check_key(upper)?;
        if !upper.is_empty() && lower >= upper {
            return Ok(());
        }
        let mut state = self.writing()?;
        self.check_tree(&state, &tree.inner)?;
        let limit = self.lock_wait(Wait::Default);
        self.lock_span(&mut state, tree.id(), lower, upper, Mode::Exclusive, limit)?;
        tree.inner.check()?;
        let end = if upper.is_empty() { tree_end(tree.id()) } else { inner(tree.id(), upper) };
        self.write_range_delete(&mut state, &inner(tree.id(), lower), &end)
    }

    pub(crate) fn delete_existing(&self, tree: &Tree, key: &[u8]) -> Result<bool> {
        match self.get_locked(tree, key, LockMode::Exclusive, Wait::Default)? {
            Locked::Row(_) => {
                super::write::with_single(|batch| {
                    batch.delete(tree, key)?;
                    self.write(batch)
                })?;
                Ok(true)
            }
            Locked::Absent | Locked::Skipped => Ok(false),
        }
    }
}
