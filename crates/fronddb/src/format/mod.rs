//! Bytes ↔ plain structs, and the rules by which messages combine. Pure: no I/O, no threads, no clock.
//!
//! Rooms, in reading order: [`message`], [`visibility`], [`program`] (updates), [`resolve`] (which message
//! wins, what a snapshot sees, what may be dropped), `columns` and `strings` (how numbers and strings become small), [`block`], [`filter`], [`blob`], [`run_meta`], [`node`],
//! [`record`] (log), [`superblock`].

pub mod blob;
pub mod block;
mod columns;
pub mod filter;
pub mod hot_keys;
pub mod message;
pub mod node;
pub mod program;
pub mod record;
pub mod resolve;
pub mod run_meta;
mod strings;
pub mod superblock;
pub mod visibility;

pub use message::{Kind, Message, RangeDelete, Stamp};
pub use run_meta::RunMeta;
pub use superblock::{Slot, Superblock, SuperblockBody};
pub use visibility::{Retention, Status, Statuses, Uncommitted, View};
