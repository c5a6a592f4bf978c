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
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod tree;
#[doc(hidden)]
pub mod txn;
