//! The ground floor: what every other layer may use.
//!
//! Rooms, in reading order: [`error`] (what a caller can do about a failure), [`ids`] (numbers that
//! name things), [`key`] (how a tree id and a key become one string of bytes), [`codec`] (bounds-checked
//! reading and writing of integers and strings), [`compress`] (block codecs), [`checksum`],
//! [`page_buf`] (aligned memory for direct I/O), [`poison_mutex`] (closed by a panic), [`clock`], [`metrics`], [`memory`] (the one budget), [`pool`]
//! (the cache's memory, counted by page), [`prefetch`] (memory that is about to be read), [`processors`] (whether they are idle, how long a thread waited for one), [`scratch`] (what a thread keeps from call to call),
//! [`helpers`] (threads that share a piece of work).

pub mod checksum;
pub mod clock;
pub mod codec;
pub mod compress;
pub mod error;
pub mod hash;
pub mod helpers;
pub mod ids;
pub mod key;
pub mod memory;
pub mod metrics;
pub mod page_buf;
pub mod poison_mutex;
pub mod pool;
pub mod prefetch;
pub mod processors;
pub mod random;
pub mod scratch;
pub mod space;
pub mod striped;
pub mod sync;

pub use error::{Error, ErrorKind, Result};
pub use ids::{CommitNumber, Lsn, RunId, TreeId, TxnId};
pub use space::{BlockPtr, Extent};
