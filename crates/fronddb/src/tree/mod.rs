//! The Bε-tree: from level 0 to the leaves.
//!
//! Owns the shape of the tree (which runs stand where), the current [`Version`], and the steps that move
//! messages down. Does not own threads, the log, transactions or the admission of writers: the database
//! layer calls the steps and passes visibility in as values.
//!
//! # How it works
//!
//! A Bε-tree (Bender et al., "How to build fractal trees", ;login: 2015) with size-tiered buffers
//! (SplinterDB, ATC 2020): a node is small, and what it buffers for each child is a short list of
//! immutable sorted runs. Five things happen to runs:
//!
//! - **seal**: the oldest full memtable is written as one run for each slot of the root, or for each part of one that is about to be parted;
//! - **flush**: the runs of a slot are merged and cut at the pivots of the child node, one new run on top
//!   of each of its slots' buffers;
//! - **compaction**: the runs of a slot above a leaf are merged with the leaf's base into a new base, or
//!   several when the leaf has grown too large (split);
//! - **join**: two small neighbouring leaves become one; child nodes of few slots are joined in passing, and a root with
//!   a single slot gives way to its child;
//! - **drop**: a settled range-delete that covers a slot makes everything below it disappear at once.
//!
//! Besides, sorted rows of an interval that holds nothing may become leaves at once: a **graft**.
//!
//! Unlike SplinterDB, a flush rewrites the runs that it moves instead of passing references on, so each
//! run stands in one place and its space comes back as a whole (`docs/decisions/0001-partitioned-runs.md`).
//!
//! # Versions
//!
//! Everything that a reader needs is a [`Version`]: the active memtable, the sealed ones, the root. It
//! never changes; an installation makes the next one. A reader holds the version that it began with, and
//! space that a version may still read is not reused: what an installation removes is *retired* with the
//! number of the first version without it, and handed to the store when no older version lives.
//!
//! # Latches
//!
//! `state` (reservations, retired space, installation) → the list of what readers paid for, the store's and the cache's own. `sealing` and
//! `publishing` are held for the length of a seal and a publication, `releasing` while retired space is handed to the store; all three come
//! before `state`, `releasing` behind `publishing`. Who waits for one of the first two while its holder panics gets an error.
//!
//! # Failure
//!
//! Steps do all their I/O before they install; a failed step changes nothing and can be tried again. A slot beside something
//! that cannot be read is left alone: what is written into it stays in its buffer, where runs become one when there are too many.
//!
//! Rooms, in reading order: [`tuning`], [`node`], [`source`], [`merge`], [`compact`] (the merge rules on
//! streams), [`plan`] (what next), [`split`] (of nodes), [`step`] (flush, compaction, drop, seal, join), [`pass`] (compacting a range on request), [`rent`] (flushing for readers), [`graft`], [`install`] (new versions), [`release`] (of their space),
//! [`publish`], [`read`] (get), [`cursor`], [`dead`] (what scans may jump over), [`estimate`], [`border`], [`verify`], [`salvage`],
//! [`shape`].

pub mod border;
pub mod compact;
pub mod cursor;
pub mod dead;
pub mod estimate;
pub mod graft;
pub mod install;
pub mod merge;
pub mod node;
pub mod pass;
pub mod plan;
pub mod publish;
pub mod read;
mod release;
pub mod rent;
pub mod salvage;
pub mod shape;
pub mod source;
mod split;
pub mod step;
pub mod tuning;
pub mod value;
pub mod verify;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::base::memory::MemoryBudget;
use crate::base::poison_mutex::PoisonMutex;
use crate::base::sync::ArcSwap;
use crate::base::sync::Mutex;
use crate::base::{BlockPtr, Extent, Result, RunId, TxnId};
use crate::cache::Cache;
use crate::format::Statuses;
use crate::memtable::{Level0, Memtable};
use crate::run::{CodecTable, Run, RunCounters};
use crate::store::Store;

pub use cursor::{CursorOptions, TreeCursor};
pub use estimate::RangeEstimate;
pub use graft::{Graft, GraftStep, GraftWriter};
pub use node::Node;
pub use pass::{CompactPass, CompactStep};
pub use publish::{PublishInput, Published};
pub use step::Sealed;
pub use tuning::TreeTuning;
pub use value::{Value, Wanted};

/// Told which undecided transactions runs hold, so that an aborted one is remembered as long as needed.
pub trait RunHolders: Send + Sync {
    /// A run with messages of these undecided transactions has been installed.
    fn run_added(&self, txns: &[TxnId]);
    /// Such a run has left the tree. Readers of older versions may still read it.
    fn run_removed(&self, txns: &[TxnId]);
    /// Nobody reads such a run any more.
    fn run_released(&self, txns: &[TxnId]);
}

/// What the tree stands on.
#[derive(Clone)]
pub struct TreeEnv {
    /// Where runs and nodes are stored.
    pub store: Arc<Store>,
    /// Blocks, indexes and filters in memory.
    pub cache: Arc<Cache>,
    /// Counts the memory of nodes.
    pub budget: MemoryBudget,
    /// States of transactions.
    pub statuses: Arc<dyn Statuses>,
    /// Reads by cause.
    pub run_counters: Arc<RunCounters>,
    /// Keeps count of undecided transactions in runs.
    pub holders: Arc<dyn RunHolders>,
    /// Sizes and thresholds.
    pub options: TreeTuning,
    /// Codec of each tree.
    pub codecs: CodecTable,
    /// The next run id.
    pub run_ids: Arc<AtomicU64>,
}

impl std::fmt::Debug for TreeEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeEnv").field("options", &self.options).finish_non_exhaustive()
    }
}

impl TreeEnv {
    /// Draws a run id.
    pub fn next_run_id(&self) -> RunId {
        RunId(self.run_ids.fetch_add(1, Ordering::Relaxed))
    }
}

/// Everything that one operation reads.
#[derive(Debug)]
pub struct Version {
    /// Ascends with each installation.
    pub number: u64,
    /// Takes new messages.
    pub active: Arc<Memtable>,
    /// Full memtables that are not in the tree yet, newest first.
    pub sealed: Vec<Level0>,
    /// The root.
    pub root: Arc<Node>,
    /// Grafts installed before it.
    pub grafts: u64,
    /// `active`, as a part of level 0.
    front: Level0,
}

impl Version {
    fn new(number: u64, active: Arc<Memtable>, sealed: Vec<Level0>, root: Arc<Node>, grafts: u64) -> Version {
        let front = Level0::Active(active.clone());
        Version { number, active, sealed, root, grafts, front }
    }

    /// The memtables, newest first.
    #[inline]
    pub fn level0(&self) -> impl Iterator<Item = &Level0> {
        std::iter::once(&self.front).chain(&self.sealed)
    }

    /// Bytes of messages in level 0.
    pub fn level0_bytes(&self) -> usize {
        self.level0().map(Level0::bytes).sum()
    }
}

/// Space that left the tree with version `since`; versions before it may still read it.
#[derive(Debug)]
struct Retired {
    since: u64,
    extents: Vec<Extent>,
    /// Undecided transactions of the runs that lay in them.
    txns: Vec<Vec<TxnId>>,
}

#[derive(Debug, Default)]
struct State {
    reservations: plan::Reservations,
    /// Versions that may live, ascending.
    past: VecDeque<(u64, Weak<Version>)>,
    /// With so many of them, those that are over are looked for.
    past_max: usize,
    retired: VecDeque<Retired>,
    /// Blobs that seals brought into the tree since the last publication.
    blobs_added: Vec<Extent>,
    /// What has left the tree since the last publication, whether that knew of it or not.
    removed: Vec<Extent>,
    /// Grafts installed.
    grafts: u64,
    /// Level 0 does not begin with the memtable of this id or a newer one.
    held_before: Option<u64>,
}

/// What writers are measured against when flushing falls behind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Debt {
    /// Full memtables waiting.
    pub sealed: usize,
    /// The highest urgency of any slot: 1 asks for work, 3 says that work falls behind.
    pub urgency: f32,
    /// Stored bytes in all buffers.
    pub pending_bytes: u64,
}

/// The tree.
pub struct BeTree {
    env: TreeEnv,
    version: ArcSwap<Version>,
    state: Mutex<State>,
    /// Held while a memtable is written: what readers had looked up in the cache when the last one began.
    sealing: PoisonMutex<u64>,
    publishing: PoisonMutex<publish::LastPublished>,
    /// Held while space that left [`State::retired`] is on its way to the store.
    releasing: Mutex<()>,
    counters: step::TreeCounters,
    dead: dead::DeadRanges,
    noted: rent::Noted,
}

impl std::fmt::Debug for BeTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BeTree").field("version", &self.version.load().number).finish_non_exhaustive()
    }
}

impl BeTree {
    /// The tree whose root a publication stored at `root` (none: an empty tree), below memtables that
    /// recovery rebuilt (`sealed`, newest first) and a new active one.
    ///
    /// # Errors
    /// Those of loading the root.
    pub fn open(env: TreeEnv, root: Option<BlockPtr>, sealed: Vec<Level0>, active: Arc<Memtable>) -> Result<BeTree> {
        let root = root.map(|ptr| Node::load(&env, ptr)).transpose()?;
        Ok(BeTree::with_root(env, root, sealed, active))
    }

    /// As [`BeTree::open`], with a root that has been loaded.
    pub fn with_root(env: TreeEnv, saved: Option<Arc<Node>>, sealed: Vec<Level0>, active: Arc<Memtable>) -> BeTree {
        let root = saved.clone().unwrap_or_else(|| Node::empty_root(&env));
        let version = Arc::new(Version::new(1, active, sealed, root, 0));
        let mut state = State::default();
        state.add_version(1, &version);
        BeTree {
            env,
            version: ArcSwap::new(version),
            state: Mutex::new(state),
            sealing: PoisonMutex::default(),
            publishing: PoisonMutex::new(publish::LastPublished::new(saved)),
            releasing: Mutex::default(),
            counters: step::TreeCounters::default(),
            dead: dead::DeadRanges::default(),
            noted: rent::Noted::default(),
        }
    }

    /// What an operation that begins now reads.
    #[inline]
    pub fn version(&self) -> Arc<Version> {
        self.version.load_full()
    }

    /// The same without touching the shared reference count, for short operations.
    #[inline]
    pub fn version_guard(&self) -> arc_swap::Guard<Arc<Version>> {
        self.version.load()
    }

    /// What the tree stands on.
    pub fn env(&self) -> &TreeEnv {
        &self.env
    }

    /// Counters of the steps.
    pub fn counters(&self) -> &step::TreeCounters {
        &self.counters
    }

    /// Intervals that hold nothing visible; every write must be reported to them.
    pub fn dead_ranges(&self) -> &dead::DeadRanges {
        &self.dead
    }

    /// How far flushing is behind.
    pub fn debt(&self) -> Debt {
        let version = self.version.load();
        let totals = version.root.totals();
        Debt { sealed: version.sealed.len(), urgency: totals.urgency, pending_bytes: totals.pending_bytes }
    }
}

/// The extents of some runs.
fn extents_of<'a>(runs: impl IntoIterator<Item = &'a Arc<Run>>) -> Vec<Extent> {
    runs.into_iter().flat_map(|run| run.meta().extents.iter().copied()).collect()
}

#[cfg(test)]
pub(crate) mod tests;
