//! Transactions as in constant-time recovery (Antonopoulos et al., PVLDB 12(12), 2019): what became of each, and what a snapshot is.
//! What one transaction knows of itself is `db::core`'s.
//!
//! Rooms, in reading order: [`states`] (the state of each id, read without a lock), [`passed`] (aborted ids whose state is gone),
//! [`waiting`] (when a state may go), [`backlog`] (aborted ids, and when they may be forgotten), [`status`] (the table: begin, commit,
//! abort, prepare), [`image`] (its stored form, and replay), [`snapshots`] (live snapshots and the horizon).
//!
//! # Life of an id
//!
//! ```text
//! begin ─► active ─► prepared ─┬─► committed at n ─► (horizon ≥ n, or no message that names it is left) settled: no memory
//!             └────────────────┴─► aborted ────────► (no run, memtable or reader can hold it) forgotten
//! ```
//!
//! A transaction counts its *steps*; a rollback to a savepoint aborts an interval of steps while the
//! transaction goes on, and that interval is kept in the same backlog until it can be forgotten.

mod backlog;
mod image;
mod passed;
mod snapshots;
mod states;
mod status;
mod steps;
#[cfg(test)]
mod tests;
mod waiting;

pub use backlog::BacklogStats;
pub use snapshots::{Snapshot, Snapshots};
pub use status::{Prepared, StatusTable, XID_BYTES_MAX};
