//! Runs: immutable sorted sequences of messages in the data file.
//!
//! Owns how messages, filter, index and range-deletes of a run are laid out in extents, and how they are
//! read through the cache. What messages mean, and when runs are merged, is for the tree.
//!
//! Rooms, in reading order: [`options`] (how runs are written, and what their writers share), [`layout`] (which block
//! layout suits a tree), [`output`] (sealed blocks become large writes), [`hashes`], [`scratch`] (working memory), [`writer`], [`heirs`] (what of it
//! goes into the cache), [`clip`] (what is left of a run of which a part has gone elsewhere), [`load`] (reading blocks, and naming damage), [`reader`] (point reads), [`shortcut`]
//! (to what each of them needs), [`path`] (walking the index), [`estimate`], [`cursor`], [`verify`], [`blob_io`] (large values),
//! [`counters`], [`traffic`] (how much is written for each tree).
//!
//! # Where the blocks of a run lie
//!
//! ```text
//! entries entries … ░ entries entries … filter ranges index … top index ░
//! └──── one write ────┘└────────────────── one write ───────────────────┘     ░ padding to a page
//! ```
//!
//! A small run is a single write into a single extent of just its size. Blocks are packed; only what one
//! write starts is aligned to pages.
//!
//! # Invariants
//!
//! - **R1** the blocks of a run lie inside its extents, and each inside one extent;
//! - **R2** messages ascend by key; those of one key are newest first, also across blocks;
//! - **R3** the index has an entry for each entry block, in order; its separators are above the last key of the
//!   block before and at or below the first key of the block;
//! - **R4** the filter, if there is one, has every key of a message (not the range-deletes);
//! - **R5** of a clipped run, index and filter still speak of what has gone. Its first key is the key of a message, and nothing
//!   below it is read.
//!
//! [`Run::verify`] checks them all.

pub mod blob_io;
mod clip;
pub mod counters;
pub mod cursor;
pub mod estimate;
mod hashes;
pub mod heirs;
mod layout;
mod load;
pub mod options;
mod output;
mod path;
pub mod presence;
pub mod reader;
pub mod salvage;
mod scratch;
mod shortcut;
mod traffic;
mod verify;
pub mod writer;

#[cfg(test)]
mod tests;

use crate::store::Store;
pub use blob_io::{free_blob, read_blob, read_cached_blob, write_blob};
pub use clip::Clipped;
pub use counters::{RunCounters, RunStatistics};
pub use cursor::{CursorMode, Goal, RunCursor};
pub use heirs::Heirs;
pub use options::{CodecTable, RunOptions};
pub use presence::Place;
pub use reader::Run;
pub use salvage::{Lost, SalvageCursor};
pub use traffic::TreeTraffic;
pub use verify::{Flaw, RunVisitor};
pub use writer::RunWriter;
