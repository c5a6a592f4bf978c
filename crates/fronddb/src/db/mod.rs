//! The database: everything a user calls.
//!
//! Rooms, in reading order. For users: [`options`] (every knob), [`database`] (open, close, upkeep), [`transaction`],
//! [`batch`], [`bulk`] (loading an empty tree; with `sorter` and `graft`), [`cursor`], [`tree_handle`] (trees and their names), [`monitor`] (transactions and locks),
//! [`statistics`], [`report`] (recovery), [`events`] (what an error log should hold). Behind them: `engine` (what an open database consists of), `core` (one
//! transaction's state and ends), `statement` (its statements), `write`, with `decide`, and `read` (the two paths), `covered`
//! (writes without locks of their own), `ddl` and `catalog` (trees), `prepared` (distributed transactions), `checkpoint`
//! with [`checkpoint_times`], [`compact`] (on request), `recovery` and `replay`, `admission`, `full_disk`, `background` (the only threads), `sessions`, `warm`
//! (hot blocks after a start),
//! `callbacks` (none is called after the closing), `counters`, `gather`, `json`, `decoders` (for the fuzz targets). For databases that nobody has open: [`check`], [`salvage`], [`log_print`].

mod admission;
mod background;
pub mod batch;
pub mod bulk;
mod callbacks;
mod catalog;
pub mod check;
mod checkpoint;
pub mod checkpoint_times;
pub mod compact;
mod core;
mod counters;
mod covered;
pub mod cursor;
pub mod database;
mod ddl;
mod decide;
#[doc(hidden)]
pub mod decoders;
mod engine;
pub mod events;
mod full_disk;
mod gather;
mod graft;
mod json;
mod leftovers;
pub mod log_print;
pub mod monitor;
pub mod options;
pub(crate) mod prepared;
mod read;
mod recovery;
mod replay;
pub mod report;
pub mod salvage;
mod sessions;
mod sorter;
mod statement;
pub mod statistics;
pub mod transaction;
pub mod tree_handle;
mod warm;
mod write;
