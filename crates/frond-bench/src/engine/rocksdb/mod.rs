//! RocksDB 7.8 (Debian's `librocksdb-dev`) as a rival, through its C API.
//!
//! Rooms: [`options`] (its settings, each with the reason) · [`ffi`] (declarations) · [`database`] (the handle, gets,
//! counters) · [`transaction`] (blind write batches, or optimistic transactions where a run needs to read its own
//! writes and roll back) · [`cursor`] (iterators bounded to one tree).
//!
//! This folder is the one place of the crate with unsafe code. Its safety rests on two rules: an object is created and
//! destroyed by the same Rust value, and iterators and transactions hold the database handle by `Arc`, so that it
//! outlives them.
#![expect(unsafe_code, reason = "a C API")]

mod cursor;
mod database;
mod ffi;
mod options;
mod transaction;

pub use cursor::RocksCursor;
pub use database::Rocks;
pub use transaction::RocksTransaction;

use std::ffi::{CStr, c_char};

use crate::{Error, Result};

/// Calls `call` with an error out-parameter and turns what it left there into an `Error`.
fn checked<T>(call: impl FnOnce(ffi::ErrorPointer) -> T) -> Result<T> {
    let mut message: *mut c_char = std::ptr::null_mut();
    let answer = call(&mut message);
    if message.is_null() {
        return Ok(answer);
    }
    // Safety: RocksDB leaves a NUL-terminated string that is ours to free.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        ffi::rocksdb_free(message.cast());
        Err(Error::new(format!("rocksdb: {text}")))
    }
}

/// Copies a pinned value out and releases it; false when the key was absent.
fn take_pinned(slice: *mut ffi::PinnableSlice, value: &mut Vec<u8>) -> bool {
    value.clear();
    if slice.is_null() {
        return false;
    }
    // Safety: a non-null slice is live until destroyed here, and its value is valid as long.
    unsafe {
        let mut bytes = 0;
        let start = ffi::rocksdb_pinnableslice_value(slice, &mut bytes);
        if bytes > 0 {
            value.extend_from_slice(std::slice::from_raw_parts(start.cast(), bytes));
        }
        ffi::rocksdb_pinnableslice_destroy(slice);
    }
    true
}
