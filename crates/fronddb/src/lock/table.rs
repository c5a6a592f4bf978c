//! The table as a whole: its parts, its accounting, and the handles through which owners lock.

use std::sync::Arc;

use super::coalesce::Coalescer;
use super::graph::{Graph, IdMap};
use super::intervals::Intervals;
use super::key::LockKey;
use super::monitor::Metrics;
use super::owner::Owner;
use super::points::Shard;
use super::release::Sweeper;
use super::{Attempt, Granted, LockOptions, Mode, Wait, WaitObserver};
use crate::base::clock::Clock;
use crate::base::memory::{MemoryBudget, Purpose};
use crate::base::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::{Error, ErrorKind, Result, TreeId, TxnId};
use crossbeam_utils::CachePadded;

/// Groups of trees that share a mutex for their ranges.
const RANGE_GROUPS: usize = 16;
/// Groups of owners that share a mutex in the registry.
const OWNER_GROUPS: usize = 16;
/// A shard reports its memory when it has changed by this much.
const REPORT_BYTES: isize = 4 << 10;

/// The ranges of a group of trees.
#[derive(Debug, Default)]
pub(super) struct RangeGroup {
    pub(super) trees: Mutex<std::collections::HashMap<u32, Intervals>>,
    /// Ranges in the group, held or waiting. Counted up before a range looks at the points.
    pub(super) count: AtomicUsize,
}

/// What the clones of a [`LockTable`] share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) shards: Box<[CachePadded<Mutex<Shard>>]>,
    pub(super) ranges: [CachePadded<RangeGroup>; RANGE_GROUPS],
    pub(super) graph: Mutex<Graph>,
    pub(super) owners: [CachePadded<Mutex<IdMap<Arc<Owner>>>>; OWNER_GROUPS],
    pub(super) sweeper: Sweeper,
    pub(super) coalescer: Mutex<Coalescer>,
    /// Orders requests that meet others (invariant L4).
    pub(super) next_seq: AtomicU64,
    pub(super) bytes: AtomicIsize,
    pub(super) bytes_max: AtomicUsize,
    pub(super) budget: MemoryBudget,
    pub(super) clock: Clock,
    pub(super) metrics: Metrics,
    pub(super) observer: Option<WaitObserver>,
}

/// The lock table of a database. Clones share it.
#[derive(Debug, Clone)]
pub struct LockTable(pub(super) Arc<Inner>);

/// The handle of one owner: the fast way to lock. Clones share the owner. Dropping it releases nothing.
#[derive(Debug, Clone)]
pub struct Locker {
    pub(super) table: Arc<Inner>,
    pub(super) owner: Arc<Owner>,
}

impl LockTable {
    /// An empty table that reports its memory to `budget` and takes time from `clock`.
    pub fn new(budget: MemoryBudget, clock: Clock, options: LockOptions) -> LockTable {
        let shards = options.shards.clamp(1, 1 << 12).next_power_of_two();
        LockTable(Arc::new(Inner {
            shards: (0..shards).map(|_| CachePadded::default()).collect(),
            ranges: Default::default(),
            graph: Mutex::new(Graph::new(options.preference)),
            owners: Default::default(),
            sweeper: Sweeper::default(),
            coalescer: Mutex::default(),
            next_seq: AtomicU64::new(1),
            bytes: AtomicIsize::new(0),
            bytes_max: AtomicUsize::new(options.bytes_max),
            budget,
            clock,
            metrics: Metrics::default(),
            observer: options.observer,
        }))
    }

    /// The handle of `owner`, which is registered if it is not known.
    pub fn locker(&self, owner: TxnId) -> Locker {
        self.labelled_locker(owner, 0)
    }

    /// As [`LockTable::locker`]; the observer is told `label` for an owner that this registers.
    pub fn labelled_locker(&self, owner: TxnId, label: u64) -> Locker {
        let mut owners = self.0.owner_group(owner).lock();
        let owner = owners.entry(owner).or_insert_with(|| Owner::new(owner, label)).clone();
        Locker { table: self.0.clone(), owner }
    }

    /// As [`Locker::lock`].
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self, owner: TxnId, tree: TreeId, key: &[u8], mode: Mode, wait: Wait) -> Result<Granted> {
        self.locker(owner).lock(tree, key, mode, wait)
    }

    /// As [`Locker::lock_range`].
    ///
    /// # Errors
    /// As there.
    pub fn lock_range(
        &self,
        owner: TxnId,
        tree: TreeId,
        low: &[u8],
        high: &[u8],
        mode: Mode,
        wait: Wait,
    ) -> Result<Granted> {
        self.locker(owner).lock_range(tree, low, high, mode, wait)
    }

    /// As [`Locker::release_all`]. An unknown owner has nothing to release.
    pub fn release_all(&self, owner: TxnId) {
        if let Some(owner) = self.0.find_owner(owner) {
            self.0.end(&owner);
        }
    }

    /// As [`Locker::cancel`]. An unknown owner has nothing to cancel.
    pub fn cancel(&self, owner: TxnId) {
        if let Some(owner) = self.0.find_owner(owner) {
            self.0.cancel(&owner);
        }
    }

    /// Has every waiting request look at the clock: to be called after a manual clock was moved.
    pub fn wake_expired(&self) {
        self.0.graph.lock().wake_all();
    }

    /// Changes the bound above which point locks coalesce, in bytes.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.0.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Memory in use, in bytes, up to the few that shards have not reported yet.
    pub fn bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed).max(0) as usize
    }
}

impl Locker {
    /// The owner's id.
    pub fn id(&self) -> TxnId {
        self.owner.id
    }

    /// Locks one key, present or not.
    ///
    /// # Errors
    /// `LockTimeout` when it was not granted in time; `Deadlock` when this owner was chosen as the victim (its
    /// locks are still held: roll back and release them); `Cancelled` after [`Locker::cancel`]; `Closed` when
    /// the owner has ended.
    #[inline]
    pub fn lock(&self, tree: TreeId, key: &[u8], mode: Mode, wait: Wait) -> Result<Granted> {
        match self.table.lock_point(&self.owner, tree, key, mode, Some(wait))? {
            Attempt::Granted(granted) => Ok(granted),
            Attempt::Busy => Err(Error::internal("a request that waits was answered as busy")),
        }
    }

    /// Locks one key unless another owner is in the way (SKIP LOCKED).
    ///
    /// # Errors
    /// `Closed` when the owner has ended.
    pub fn try_lock(&self, tree: TreeId, key: &[u8], mode: Mode) -> Result<Attempt> {
        self.table.lock_point(&self.owner, tree, key, mode, None)
    }

    /// Locks all keys, present or not, from `low` up to and excluding `high` (empty: to the end of the tree).
    ///
    /// # Errors
    /// As [`Locker::lock`]; `InvalidArgument` when the range is empty.
    pub fn lock_range(&self, tree: TreeId, low: &[u8], high: &[u8], mode: Mode, wait: Wait) -> Result<Granted> {
        match self.table.lock_interval(&self.owner, tree, low, high, mode, Some(wait))? {
            Attempt::Granted(granted) => Ok(granted),
            Attempt::Busy => Err(Error::internal("a request that waits was answered as busy")),
        }
    }

    /// As [`Locker::lock_range`], unless another owner is in the way.
    ///
    /// # Errors
    /// `Closed` when the owner has ended; `InvalidArgument` when the range is empty.
    pub fn try_lock_range(&self, tree: TreeId, low: &[u8], high: &[u8], mode: Mode) -> Result<Attempt> {
        self.table.lock_interval(&self.owner, tree, low, high, mode, None)
    }

    /// Gives back a point lock before the end (READ COMMITTED, a row that did not match). What a range
    /// covers stays locked.
    pub fn unlock(&self, tree: TreeId, key: &[u8]) {
        self.table.unlock(&self.owner, tree, key);
    }

    /// Makes an exclusive point lock of this owner a shared one. What a range covers stays as it is locked.
    pub fn lower(&self, tree: TreeId, key: &[u8]) {
        self.table.lower(&self.owner, tree, key);
    }

    /// Releases everything, in constant time. Later requests of this handle fail with `Closed`; a wait in
    /// another thread ends so.
    pub fn release_all(&self) {
        self.table.end(&self.owner);
    }

    /// Ends the current wait, or else the next one, with `Cancelled`. For other threads.
    pub fn cancel(&self) {
        self.table.cancel(&self.owner);
    }

    /// Whether there is a cancellation that met no wait.
    pub fn is_cancelled(&self) -> bool {
        self.owner.cancelled.load(Ordering::Relaxed)
    }

    /// Forgets a cancellation that met no wait, as at the start of the next statement.
    pub fn clear_cancel(&self) {
        self.owner.cancelled.store(false, Ordering::SeqCst);
    }
}

impl Inner {
    #[inline]
    pub(super) fn shard(&self, key: &LockKey) -> &Mutex<Shard> {
        // The number of shards is a power of two.
        &self.shards[key.hash() as usize & (self.shards.len() - 1)]
    }

    #[inline]
    pub(super) fn range_group(&self, tree: TreeId) -> &RangeGroup {
        &self.ranges[tree.0 as usize % RANGE_GROUPS]
    }

    pub(super) fn owner_group(&self, owner: TxnId) -> &Mutex<IdMap<Arc<Owner>>> {
        &self.owners[owner.0 as usize % OWNER_GROUPS]
    }

    pub(super) fn find_owner(&self, owner: TxnId) -> Option<Arc<Owner>> {
        self.owner_group(owner).lock().get(&owner).cloned()
    }

    pub(super) fn cancel(&self, owner: &Owner) {
        owner.cancelled.store(true, Ordering::SeqCst);
        let _graph = self.graph.lock();
        owner.wake.notify_all();
    }

    /// Counts what a shard has gained or lost, once it is worth it. True when the table is over its bound.
    #[inline]
    pub(super) fn report(&self, shard: &mut MutexGuard<'_, Shard>) -> bool {
        if shard.unreported.abs() < REPORT_BYTES {
            return false;
        }
        let unreported = std::mem::take(&mut shard.unreported);
        self.charge(unreported)
    }

    pub(super) fn is_over(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.bytes_max.load(Ordering::Relaxed) as isize
    }

    /// Counts memory at once. True when the table is over its bound.
    pub(super) fn charge(&self, bytes: isize) -> bool {
        if bytes >= 0 {
            self.budget.add(Purpose::Locks, bytes.unsigned_abs());
        } else {
            self.budget.sub(Purpose::Locks, bytes.unsigned_abs());
        }
        let now = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        bytes > 0 && now > self.bytes_max.load(Ordering::Relaxed) as isize
    }

    pub(super) fn closed(owner: &Owner) -> Error {
        Error::new(ErrorKind::Closed, format!("the owner of the locks has ended, txn={}", owner.id))
    }
}
