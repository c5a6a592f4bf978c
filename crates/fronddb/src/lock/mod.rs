//! The lock table (signatures; the bodies follow).

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::memory::MemoryBudget;
use crate::base::{Result, TreeId, TxnId};

/// What a lock allows others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Others may hold shared locks.
    Shared = 1,
    /// Others hold nothing.
    Exclusive = 2,
}

/// What to do while another owner is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Fail at once with `LockTimeout`.
    NoWait,
    /// Fail with `LockTimeout` after this long.
    Timeout(Duration),
    /// Wait as long as it takes.
    Forever,
}

/// How a lock was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted {
    /// The owner holds more than before.
    New,
    /// The owner held it, or more, before.
    Already,
}

/// The answer of the try variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Granted.
    Granted(Granted),
    /// Another owner is in the way; nothing changed.
    Busy,
}

/// One held lock, as exported for a prepare record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldLock {
    /// Tree.
    pub tree: TreeId,
    /// The key, or the lower end of the range.
    pub low: Vec<u8>,
    /// `None` for a point; the excluded upper end of a range, empty for no bound.
    pub high: Option<Vec<u8>>,
    /// Mode.
    pub mode: Mode,
}

/// Options.
#[derive(Debug, Clone)]
pub struct LockOptions {
    /// Number of shards, rounded up to a power of two.
    pub shards: usize,
    /// Above this many bytes, point locks coalesce into ranges.
    pub bytes_max: usize,
}

/// The lock table. Clones share it.
#[derive(Debug, Clone)]
pub struct LockTable(Arc<()>);

/// One owner's handle: the fast way to lock.
#[derive(Debug, Clone)]
pub struct Locker(Arc<()>);

#[expect(unused_variables, reason = "signatures first")]
impl LockTable {
    /// An empty table.
    pub fn new(budget: MemoryBudget, clock: Clock, options: LockOptions) -> LockTable {
        unimplemented!()
    }
    /// The handle of `owner`, made at its first use.
    pub fn locker(&self, owner: TxnId) -> Locker {
        unimplemented!()
    }
    /// See [`Locker::lock`].
    pub fn lock(&self, owner: TxnId, tree: TreeId, key: &[u8], mode: Mode, wait: Wait) -> Result<Granted> {
        unimplemented!()
    }
    /// See [`Locker::lock_range`].
    pub fn lock_range(
        &self,
        owner: TxnId,
        tree: TreeId,
        low: &[u8],
        high: &[u8],
        mode: Mode,
        wait: Wait,
    ) -> Result<Granted> {
        unimplemented!()
    }
    /// Releases everything in constant time.
    pub fn release_all(&self, owner: TxnId) {
        unimplemented!()
    }
    /// Ends the current wait of `owner` (or its next one) with `Cancelled`.
    pub fn cancel(&self, owner: TxnId) {
        unimplemented!()
    }
    /// Frees the memory of ended owners, visiting about `budget` locks; true while there is more to do.
    pub fn sweep_step(&self, budget: usize) -> bool {
        unimplemented!()
    }
    /// What `owner` holds.
    pub fn export(&self, owner: TxnId) -> Vec<HeldLock> {
        unimplemented!()
    }
    /// Grants what a prepared transaction held.
    pub fn import(&self, owner: TxnId, locks: &[HeldLock]) -> Result<()> {
        unimplemented!()
    }
}

#[expect(unused_variables, reason = "signatures first")]
impl Locker {
    /// Locks one key.
    pub fn lock(&self, tree: TreeId, key: &[u8], mode: Mode, wait: Wait) -> Result<Granted> {
        unimplemented!()
    }
    /// Locks one key unless another owner is in the way (for SKIP LOCKED).
    pub fn try_lock(&self, tree: TreeId, key: &[u8], mode: Mode) -> Result<Attempt> {
        unimplemented!()
    }
    /// Locks all keys, present or not, from `low` up to and excluding `high` (empty: no bound).
    pub fn lock_range(&self, tree: TreeId, low: &[u8], high: &[u8], mode: Mode, wait: Wait) -> Result<Granted> {
        unimplemented!()
    }
    /// As [`Locker::lock_range`], without waiting.
    pub fn try_lock_range(&self, tree: TreeId, low: &[u8], high: &[u8], mode: Mode) -> Result<Attempt> {
        unimplemented!()
    }
    /// Gives back a point lock early (READ COMMITTED, a row that did not match). A key that is covered by a range stays locked.
    pub fn unlock(&self, tree: TreeId, key: &[u8]) {
        unimplemented!()
    }
    /// Releases everything in constant time; later calls of this handle fail with `Closed`.
    pub fn release_all(&self) {
        unimplemented!()
    }
    /// Ends the current wait (or the next one) with `Cancelled`.
    pub fn cancel(&self) {
        unimplemented!()
    }
    /// Forgets a cancellation that met no wait.
    pub fn clear_cancel(&self) {
        unimplemented!()
    }
}
