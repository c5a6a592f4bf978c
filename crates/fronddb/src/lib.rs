//! FrondDB: a write-optimised, transactional, embedded storage engine; a durable fractal tree.
#![deny(unsafe_code, missing_docs)]

#[doc(hidden)]
pub mod base;
#[doc(hidden)]
pub mod cache;
#[doc(hidden)]
pub mod db;
#[doc(hidden)]
pub mod format;
#[doc(hidden)]
pub mod io;
#[doc(hidden)]
pub mod lock;
#[doc(hidden)]
pub mod log;
#[doc(hidden)]
pub mod memtable;
#[doc(hidden)]
pub mod run;
#[cfg(all(test, feature = "schedules"))]
mod schedule_tests;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod tree;
#[doc(hidden)]
pub mod txn;
#[cfg(test)]
mod weak_memory_tests;

pub use base::compress::Codec;
pub use base::{CommitNumber, Error, ErrorKind, Result, TreeId, TxnId};
pub use db::batch::WriteBatch;
pub use db::bulk::{Bulk, BulkOptions, BulkProgress};
pub use db::check::{CheckOptions, CheckProgress, CheckReport, OnlineCheckCallback, OnlineCheckProgress, check};
pub use db::checkpoint_times::{CheckpointCause, CheckpointSummary};
pub use db::compact::{CompactCallback, CompactProgress};
pub use db::cursor::Cursor;
pub use db::database::Database;
pub use db::events::{LogCallback, LogLevel};
pub use db::log_print::{LogAction, LogEvent, log_records};
pub use db::monitor::{Finding, LOCKS_LISTED_MAX, LockInfo, PreparedInfo, TransactionInfo};
pub use db::options::{
    CursorOptions, Durability, Isolation, LockMode, MEMORY_BYTES_MIN, Options, ProgressCallback, Sees, TreeOptions,
    TxnOptions, VictimCallback, Wait, WaitCallback, WaitEndCallback,
};
pub use db::report::{RecoveryEstimate, RecoveryPhase, RecoveryProgress, RecoveryReport};
pub use db::salvage::{SalvageReport, SalvagedTree, salvage};
pub use db::statistics::{Amplification, Distribution, Statistics};
pub use db::transaction::{Locked, Savepoint, Transaction};
pub use db::tree_handle::{RangeEstimate, Tree, TreeInfo};
pub use format::program::{Op, Overflow, Program, UPDATE_REACH_BYTES_MAX};
pub use run::TreeTraffic;
pub use tree::Value;

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
