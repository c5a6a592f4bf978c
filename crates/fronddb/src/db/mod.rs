//! The database: everything a user calls.
//!
//! Rooms, in reading order: [`options`] (every knob), [`database`] (open, close, upkeep), [`transaction`],
//! [`batch`], [`cursor`], [`tree_handle`] (trees and their names), [`monitor`] (looking at transactions and locks),
//! [`statistics`], [`report`] (recovery), [`json`]; and for databases that nobody has open: [`check`], [`salvage`],
//! [`log_print`].

pub mod batch;
pub mod check;
pub mod cursor;
pub mod database;
pub(crate) mod json;
pub mod log_print;
pub mod monitor;
pub mod options;
pub mod report;
pub mod salvage;
pub mod statistics;
pub mod transaction;
pub mod tree_handle;

fn not_built() -> crate::base::Error {
    crate::base::Error::internal("not built yet")
}
