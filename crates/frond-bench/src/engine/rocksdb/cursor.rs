//! Iterators bounded to one tree.

use std::sync::Arc;

use super::database::{Inner, PREFIX_BYTES};
use super::{checked, ffi};
use crate::Result;
use crate::engine::{Cursor, TreeIndex};

/// A position in one tree.
pub struct RocksCursor {
    iterator: *mut ffi::Iterator,
    options: *mut ffi::ReadOptions,
    /// Bytes in front of every key; empty when the tree has its own column family.
    prefix: Vec<u8>,
    /// The first key past the tree. RocksDB keeps pointing at it while the iterator lives; never touched after `new`.
    _end: Vec<u8>,
    seek_key: Vec<u8>,
    _inner: Arc<Inner>,
}

// Safety: an iterator may move between threads as long as one at a time uses it.
unsafe impl Send for RocksCursor {}

impl RocksCursor {
    pub(super) fn new(inner: Arc<Inner>, tree: TreeIndex) -> RocksCursor {
        let (column, prefix, end) = if inner.prefixed {
            let bound = |number: usize| (number as u32).to_be_bytes().to_vec();
            (inner.columns[0], bound(tree), bound(tree + 1))
        } else {
            (inner.columns[tree], Vec::new(), Vec::new())
        };
        // Safety: live handles; the bounds' heap memory is owned by the cursor and outlives the iterator.
        let (options, iterator) = unsafe {
            let options = ffi::rocksdb_readoptions_create();
            if !prefix.is_empty() {
                ffi::rocksdb_readoptions_set_iterate_lower_bound(options, prefix.as_ptr().cast(), PREFIX_BYTES);
                ffi::rocksdb_readoptions_set_iterate_upper_bound(options, end.as_ptr().cast(), PREFIX_BYTES);
            }
            (options, ffi::rocksdb_create_iterator_cf(inner.db, options, column))
        };
        RocksCursor { iterator, options, prefix, _end: end, seek_key: Vec::new(), _inner: inner }
    }

    fn valid(&self) -> Result<bool> {
        // Safety: a live iterator.
        unsafe {
            if ffi::rocksdb_iter_valid(self.iterator) != 0 {
                return Ok(true);
            }
            checked(|error| ffi::rocksdb_iter_get_error(self.iterator, error))?;
        }
        Ok(false)
    }

    fn slice(&self, read: unsafe extern "C" fn(*const ffi::Iterator, *mut usize) -> *const std::ffi::c_char) -> &[u8] {
        let mut bytes = 0;
        // Safety: asked only while valid; the memory is the iterator's until it moves, and moving needs `&mut self`.
        unsafe {
            let start = read(self.iterator, &mut bytes);
            if bytes == 0 { &[] } else { std::slice::from_raw_parts(start.cast(), bytes) }
        }
    }
}

impl Cursor for RocksCursor {
    fn seek_first(&mut self) -> Result<bool> {
        self.seek(&[])
    }

    fn seek_last(&mut self) -> Result<bool> {
        // Safety: a live iterator; the upper bound keeps it inside the tree.
        unsafe { ffi::rocksdb_iter_seek_to_last(self.iterator) };
        self.valid()
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.seek_key.clear();
        self.seek_key.extend_from_slice(&self.prefix);
        self.seek_key.extend_from_slice(key);
        // Safety: a live iterator, and a key that lives across the call.
        unsafe { ffi::rocksdb_iter_seek(self.iterator, self.seek_key.as_ptr().cast(), self.seek_key.len()) };
        self.valid()
    }

    fn next(&mut self) -> Result<bool> {
        // Safety: called while valid, as the trait asks.
        unsafe { ffi::rocksdb_iter_next(self.iterator) };
        self.valid()
    }

    fn previous(&mut self) -> Result<bool> {
        // Safety: as above.
        unsafe { ffi::rocksdb_iter_prev(self.iterator) };
        self.valid()
    }

    fn key(&self) -> &[u8] {
        &self.slice(ffi::rocksdb_iter_key)[self.prefix.len()..]
    }

    fn value(&self) -> &[u8] {
        self.slice(ffi::rocksdb_iter_value)
    }
}

impl Drop for RocksCursor {
    fn drop(&mut self) {
        // Safety: made in `new`, destroyed once, iterator first.
        unsafe {
            ffi::rocksdb_iter_destroy(self.iterator);
            ffi::rocksdb_readoptions_destroy(self.options);
        }
    }
}
