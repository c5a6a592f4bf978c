//! Every knob of the engine, with its default, in one place.
//!
//! [`Options`] belong to an open database, [`TxnOptions`] to a transaction, [`TreeOptions`] to a tree,
//! [`CursorOptions`] to a cursor. A value past a limit is refused by [`Options::validate`] when the
//! database opens; nothing is silently clamped, except what says so.

use std::cmp::Ordering;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::events::LogCallback;
use super::report::RecoveryProgress;
use crate::base::clock::Clock;
use crate::base::compress::Codec;
use crate::base::memory::default_level0_bytes;
use crate::base::{Error, Result};
use crate::format::block::BLOCK_BYTES_MAX;
use crate::io::Storage;
use crate::tree::TreeTuning;

/// Smallest memory budget, in bytes.
pub const MEMORY_BYTES_MIN: usize = 8 << 20;

/// Called while recovery runs, from the thread that opens the database.
pub type ProgressCallback = Arc<dyn Fn(&RecoveryProgress) + Send + Sync>;

/// Told that the transaction whose number is first is about to wait for a lock that the other one is in the way of.
pub type WaitCallback = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Told that the transaction of this number waits no longer.
pub type WaitEndCallback = Arc<dyn Fn(u64) + Send + Sync>;

/// Asked which of two transactions, by their numbers, is rather to be the victim of a deadlock: `Less`: the first.
pub type VictimCallback = Arc<dyn Fn(u64, u64) -> Ordering + Send + Sync>;

/// How a database is opened. Made by [`Options::new`], changed by its setters:
///
/// ```
/// let options = fronddb::Options::new().create_if_missing(true).memory_bytes(64 << 20);
/// # let _ = options;
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    pub(crate) read_only: bool,
    pub(crate) memory_bytes: usize,
    pub(crate) level0_bytes: usize,
    pub(crate) log_dir: Option<PathBuf>,
    pub(crate) log_segment_bytes: u64,
    pub(crate) log_compression: bool,
    pub(crate) log_sync_period_ms: u64,
    pub(crate) checkpoint_interval_ms: u64,
    pub(crate) recovery_target_ms: u64,
    pub(crate) background_threads: usize,
    pub(crate) direct_io: bool,
    pub(crate) block_bytes: usize,
    pub(crate) filter_bits_per_key: u8,
    pub(crate) default_codec: Codec,
    pub(crate) blob_bytes_min: usize,
    pub(crate) lock_timeout: Duration,
    pub(crate) storage: Option<Arc<dyn Storage>>,
    pub(crate) clock: Option<Clock>,
    pub(crate) tree_tuning: Option<TreeTuning>,
    pub(crate) manual_background: bool,
    pub(crate) on_recovery_progress: Option<ProgressCallback>,
    pub(crate) on_lock_wait: Option<WaitCallback>,
    pub(crate) on_lock_wait_end: Option<WaitEndCallback>,
    pub(crate) on_deadlock: Option<VictimCallback>,
    pub(crate) on_log: Option<LogCallback>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty),* $(,)?) => {
        impl Options {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $name: $type) -> Options {
                self.$name = $name;
                self
            })*
        }
    };
}

setters! {
    /// Makes a new database where there is none. Default: false, a missing database is `NotFound`.
    create_if_missing: bool,
    /// Refuses to open a database that exists (`InvalidArgument`). Default: false.
    error_if_exists: bool,
    /// Opens without writing a byte: the log is replayed into memory only. Default: false.
    read_only: bool,
    /// The one memory budget, in bytes, at least [`MEMORY_BYTES_MIN`]. Default: 256 MiB. See
    /// [`crate::Database::set_memory_bytes`].
    memory_bytes: usize,
    /// Bytes of messages at which a memtable seals; 0 (default): an eighth of the budget, at most 32 MiB.
    /// Level 0 as a whole is bounded by twice this much, and with it the work of a restart.
    level0_bytes: usize,
    /// Where log segments live; to be given at each opening. Default: `log` in the database's directory.
    log_dir: Option<PathBuf>,
    /// Length of a log segment, in bytes, at most the size at which memtables seal (see `level0_bytes`; 32 MiB by default), which is
    /// all that a segment needs, and at least four log buffers (16 MiB by default). Default: 100 MB, so that size.
    log_segment_bytes: u64,
    /// Compresses log records of 4 KiB and more (Zstandard, level 1). Default: true.
    log_compression: bool,
    /// Syncs the log this often, in milliseconds, for the sake of commits that did not wait
    /// ([`Durability::Write`], [`Durability::None`]). 0 (default): never by itself.
    log_sync_period_ms: u64,
    /// A checkpoint at least this often, in milliseconds. Default: 60 000. 0: never by time.
    checkpoint_interval_ms: u64,
    /// Seals level 0 as soon as replaying the log would take longer than this, in milliseconds.
    /// Default: 200. 0: no target, only the size of level 0 bounds it.
    recovery_target_ms: u64,
    /// Threads that seal, flush and compact. Default: 2, at least 1.
    background_threads: usize,
    /// Reads and writes the data file past the operating system's cache where the file system can; where it cannot, a note
    /// at opening says so ([`Options::on_log`]). Default: true.
    direct_io: bool,
    /// Uncompressed size of a block, in bytes: 1 KiB to 512 KiB. Default: 16 KiB.
    block_bytes: usize,
    /// Size of the filters of leaf bases, in bits per key; 0: none. Default: 10. Runs in buffers have 14 whatever it is.
    filter_bits_per_key: u8,
    /// Codec of trees that name none. Default: zstd level 1.
    default_codec: Codec,
    /// Values of at least this many bytes are written straight to the data file. Default: 64 KiB. Insert-if-absent of such
    /// a value reads first whether the key has one.
    blob_bytes_min: usize,
    /// How long a lock is waited for unless a transaction or call says otherwise. Default: 50 s.
    lock_timeout: Duration,
    /// Where files are. Default: the machine's file systems. Tests pass a simulated disk.
    storage: Option<Arc<dyn Storage>>,
    /// The clock; a test may move it by hand. Default: the machine's.
    clock: Option<Clock>,
    /// Sizes of nodes and leaves; tests make them tiny. Default: as measured.
    tree_tuning: Option<TreeTuning>,
    /// Starts no threads: background work happens in [`crate::Database::step_background`] and, where a
    /// writer would have to wait for it, in that writer. For deterministic tests. Default: false.
    manual_background: bool,
    /// Told how recovery goes on while the database opens. Default: none.
    on_recovery_progress: Option<ProgressCallback>,
    /// Told before a wait for a lock begins, once for each transaction in the way, by their numbers ([`crate::Transaction::id`];
    /// a prepared one keeps its number until it is decided, and has 0 when it was prepared before the database was opened).
    /// Called in the waiting thread with no latch of the engine held: it may end the transaction in the way, and cancel
    /// either, and must not otherwise use the waiting one. Default: none.
    on_lock_wait: Option<WaitCallback>,
    /// Told that a wait for a lock that [`Options::on_lock_wait`] is told of is over, granted or not; in the same thread, and bound
    /// in the same way. Default: none.
    on_lock_wait_end: Option<WaitEndCallback>,
    /// Asked when a deadlock is found, about two of its transactions at a time, by their numbers: `Less`, the first is rather
    /// the victim, `Equal`, the one that holds fewer locks. Called under a latch of the engine: it must be quick and must not
    /// call the database. Default: none; `Equal` for all.
    on_deadlock: Option<VictimCallback>,
    /// Told what a server's error log should hold: rare events, from any thread. Must be quick and must not call the database.
    /// Default: none.
    on_log: Option<LogCallback>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            create_if_missing: false,
            error_if_exists: false,
            read_only: false,
            memory_bytes: 256 << 20,
            level0_bytes: 0,
            log_dir: None,
            log_segment_bytes: 100_000_000,
            log_compression: true,
            log_sync_period_ms: 0,
            checkpoint_interval_ms: 60_000,
            recovery_target_ms: 200,
            background_threads: 2,
            direct_io: true,
            block_bytes: 16 << 10,
            filter_bits_per_key: 10,
            default_codec: Codec::default(),
            blob_bytes_min: 64 << 10,
            lock_timeout: Duration::from_secs(50),
            storage: None,
            clock: None,
            tree_tuning: None,
            manual_background: false,
            on_recovery_progress: None,
            on_lock_wait: None,
            on_lock_wait_end: None,
            on_deadlock: None,
            on_log: None,
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Bytes of messages at which a memtable seals, under a budget of `memory_bytes`.
    pub(crate) fn level0_limit(&self, memory_bytes: usize) -> usize {
        match self.level0_bytes {
            0 => default_level0_bytes(memory_bytes),
            wanted => wanted.min(memory_bytes / 4),
        }
    }

    /// Checks every value against its limits.
    ///
    /// # Errors
    /// `InvalidArgument` naming the first value that is past a limit.
    pub fn validate(&self) -> Result<()> {
        let checks = [
            (self.memory_bytes >= MEMORY_BYTES_MIN, "memory_bytes", self.memory_bytes as u64),
            (self.level0_bytes == 0 || self.level0_bytes >= 64 << 10, "level0_bytes", self.level0_bytes as u64),
            (self.level0_bytes <= self.memory_bytes / 4, "level0_bytes", self.level0_bytes as u64),
            ((1 << 20..=16 << 30).contains(&self.log_segment_bytes), "log_segment_bytes", self.log_segment_bytes),
            ((1..=64).contains(&self.background_threads), "background_threads", self.background_threads as u64),
            ((1 << 10..=BLOCK_BYTES_MAX).contains(&self.block_bytes), "block_bytes", self.block_bytes as u64),
            (self.filter_bits_per_key <= 32, "filter_bits_per_key", u64::from(self.filter_bits_per_key)),
            ((1 << 10..=16 << 20).contains(&self.blob_bytes_min), "blob_bytes_min", self.blob_bytes_min as u64),
            (!(self.read_only && self.create_if_missing), "create_if_missing (with read_only)", 1),
        ];
        if let Some((_, name, value)) = checks.iter().find(|(valid, ..)| !valid) {
            return Err(Error::invalid(format!("option out of range, {name}={value}")));
        }
        self.default_codec.check().map_err(|error| error.context("default_codec"))?;
        check_directory("log_dir", self.log_dir.as_deref())
    }
}

/// Refuses the empty path: it comes from a name that somebody forgot to fill in, and must not mean the working directory.
pub(super) fn check_directory(name: &str, path: Option<&Path>) -> Result<()> {
    match path {
        Some(path) if path.as_os_str().is_empty() => Err(Error::invalid(format!("{name} is empty"))),
        _ => Ok(()),
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("memory_bytes", &self.memory_bytes)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// What a transaction sees of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Isolation {
    /// Plain reads also see what is not committed; never what was rolled back.
    ReadUncommitted,
    /// Each operation (for a cursor: each positioning by key or end) sees what was committed when it began.
    ReadCommitted,
    /// All plain reads see one snapshot, taken at the first of them. Locking reads and writes act on the
    /// latest committed row, as in MySQL; see [`TxnOptions::first_updater_wins`] for the strict form.
    #[default]
    RepeatableRead,
    /// Plain reads take shared locks, on rows and on the ranges scanned, and see the latest committed rows.
    Serializable,
}

/// What a returned commit promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// It survives power loss.
    #[default]
    Sync,
    /// The operating system has it: it survives the end of the process, and power loss once synced by
    /// anybody's later sync.
    Write,
    /// Nothing yet. A crash leaves a consistent earlier state.
    None,
}

/// How a transaction behaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct TxnOptions {
    /// What it sees of others.
    pub isolation: Isolation,
    /// What its commit promises.
    pub durability: Durability,
    /// Refuses writes (`ReadOnly`) and never draws an id.
    pub read_only: bool,
    /// How long it waits for a lock; `None`: as [`Options::lock_timeout`] says.
    pub lock_timeout: Option<Duration>,
    /// At REPEATABLE READ: a write or locking read of a row that somebody changed after the snapshot is
    /// `Conflict`, instead of acting on the latest row. Rows that a range-delete removes are not looked at.
    pub first_updater_wins: bool,
    /// Takes the snapshot at once and not at the first read.
    pub consistent_snapshot: bool,
}

/// How strongly a row is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Others may read-lock it too.
    Shared,
    /// Nobody else may lock or write it.
    Exclusive,
}

/// What to do when a lock is held by another transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Wait {
    /// Wait as long as the transaction says.
    #[default]
    Default,
    /// Wait this long, then `LockTimeout`.
    Timeout(Duration),
    /// `LockTimeout` at once.
    NoWait,
    /// Leave the row out.
    SkipLocked,
}

/// Options of a tree. They may change at any time; stored blocks follow as they are rewritten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// How its blocks are compressed; `None`: as [`Options::default_codec`] says when it is created.
    pub codec: Option<Codec>,
    /// Bytes that belong to the tree's owner (a table definition, a comment); the engine only keeps them.
    pub metadata: Vec<u8>,
}

/// What a cursor that does not lock sees. The three after the first are for who finds rows with it and locks them then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sees {
    /// What the isolation level says.
    #[default]
    Level,
    /// The same, and at READ UNCOMMITTED what READ COMMITTED says. At these two all such cursors of a statement see one state, which is
    /// not that of its plain reads.
    Committed,
    /// What is committed when it is positioned by key or end, at every level.
    Latest,
    /// The same, and with it what others have written since or not committed, but not what they have deleted since or not
    /// committed: a row that moves is met where it was and where it comes to be.
    Added,
    /// What its plain reads see, at READ UNCOMMITTED as [`Sees::Committed`], without what the transaction itself has written.
    Others,
}

/// What a cursor ranges over.
#[derive(Debug, Clone)]
pub struct CursorOptions {
    /// Where it starts.
    pub lower: Bound<Vec<u8>>,
    /// Where it ends.
    pub upper: Bound<Vec<u8>>,
    /// Only keys that begin with this; combined with the bounds.
    pub prefix: Vec<u8>,
    /// Locks each row that it stops at and the gaps it passes; then it sees the latest committed rows.
    pub lock: Option<LockMode>,
    /// What to do about rows locked by others. Only with `lock`.
    pub wait: Wait,
    /// Stops at rows that others hold without waiting for them: it shows such a row as it was committed last, and does not lock it
    /// ([`crate::Cursor::is_peeked`]). Who wants the row takes it by [`crate::Cursor::again`], where `wait` holds. Only with
    /// `lock`, and only where gaps are not locked: at READ COMMITTED and READ UNCOMMITTED.
    pub peeks: bool,
    /// What it sees without `lock`.
    pub sees: Sees,
    /// Does not load values kept apart as blobs; [`crate::Cursor::value`] is then empty for all rows.
    pub keys_only: bool,
    /// Of values of [`crate::Options::blob_bytes_min`] and more, which are kept apart, loads no more than the head: the first 2 KiB, or a sixteenth
    /// of the value where that is less. Of values written before there were heads, of rows that it locks, and of what an update has changed
    /// since, [`crate::Cursor::value`] is whole as ever.
    pub heads_only: bool,
    /// How far to read ahead of a scan, in bytes, but not past its bounds; 0: not at all. Long scans hold twice as much for each
    /// run that they merge. Default: 256 KiB, once steps are sequential; never more than 16 MiB.
    pub read_ahead_bytes: usize,
    /// Whether blocks that it reads stay in the cache. Turn it off for one-off scans of large trees.
    pub fill_cache: bool,
    /// Gives up, and is at no row, once it has passed over more keys without a row than this in all ([`crate::Cursor::gave_up`]): for who
    /// takes samples and must not read all that was deleted or rolled back a while ago to find one. Only without `lock`.
    pub passed_over_max: Option<u64>,
}

impl Default for CursorOptions {
    fn default() -> CursorOptions {
        CursorOptions {
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            prefix: Vec::new(),
            lock: None,
            wait: Wait::Default,
            peeks: false,
            sees: Sees::Level,
            keys_only: false,
            heads_only: false,
            read_ahead_bytes: 256 << 10,
            fill_cache: true,
            passed_over_max: None,
        }
    }
}

impl CursorOptions {
    /// Only keys that begin with `prefix`.
    pub fn prefix(prefix: impl Into<Vec<u8>>) -> CursorOptions {
        CursorOptions { prefix: prefix.into(), ..CursorOptions::default() }
    }

    /// Keys from `lower` (included) to `upper` (excluded).
    pub fn range(lower: impl Into<Vec<u8>>, upper: impl Into<Vec<u8>>) -> CursorOptions {
        CursorOptions {
            lower: Bound::Included(lower.into()),
            upper: Bound::Excluded(upper.into()),
            ..CursorOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_block_is_the_largest_that_is_written() {
        assert!(Options::new().block_bytes(BLOCK_BYTES_MAX).validate().is_ok());
        let error = Options::new().block_bytes(BLOCK_BYTES_MAX + 1).validate().expect_err("would be clamped");
        assert_eq!(error.kind(), crate::base::ErrorKind::InvalidArgument);
    }
}
