//! Transactions: a blind write batch, or an optimistic transaction where the run reads its own writes.

use std::sync::Arc;

use super::database::Inner;
use super::{checked, ffi, take_pinned};
use crate::Result;
use crate::engine::{Durability, Transaction, TreeIndex};

/// Changes not yet committed.
pub struct RocksTransaction {
    inner: Arc<Inner>,
    kind: Kind,
}

enum Kind {
    Batch(*mut ffi::WriteBatch),
    /// RocksDB fixes the durability of a transaction when it begins, so the common one, sync, is used.
    Optimistic(*mut ffi::Transaction),
}

// Safety: a batch or transaction may move between threads as long as one at a time uses it, which `&mut` grants.
unsafe impl Send for RocksTransaction {}

impl RocksTransaction {
    pub(super) fn new(inner: Arc<Inner>) -> RocksTransaction {
        // Safety: live handles; the objects are destroyed in `drop`.
        let kind = unsafe {
            if inner.transaction_db.is_null() {
                Kind::Batch(ffi::rocksdb_writebatch_create())
            } else {
                let durable = inner.write_options(Durability::Sync);
                let options = inner.transaction_options;
                let reuse = std::ptr::null_mut();
                Kind::Optimistic(ffi::rocksdb_optimistictransaction_begin(
                    inner.transaction_db,
                    durable,
                    options,
                    reuse,
                ))
            }
        };
        RocksTransaction { inner, kind }
    }
}

impl Transaction for RocksTransaction {
    fn put(&mut self, tree: TreeIndex, key: &[u8], value: &[u8]) -> Result<()> {
        let (start, length) = (value.as_ptr().cast(), value.len());
        self.inner.with_key(tree, key, |column, key, bytes| match self.kind {
            // Safety: live handles; key and value live across the calls.
            Kind::Batch(batch) => unsafe {
                ffi::rocksdb_writebatch_put_cf(batch, column, key, bytes, start, length);
                Ok(())
            },
            // Safety: as above.
            Kind::Optimistic(transaction) => checked(|error| unsafe {
                ffi::rocksdb_transaction_put_cf(transaction, column, key, bytes, start, length, error)
            }),
        })
    }

    fn insert(&mut self, tree: TreeIndex, key: &[u8], value: &[u8]) -> Result<bool> {
        let inner = &self.inner;
        let found = inner.with_key(tree, key, |column, key, bytes| {
            // Safety: live handles; the key lives across the calls.
            checked(|error| unsafe {
                let read = inner.read_options;
                match self.kind {
                    Kind::Batch(_) => ffi::rocksdb_get_pinned_cf(inner.db, read, column, key, bytes, error),
                    Kind::Optimistic(transaction) => ffi::rocksdb_transaction_get_pinned_for_update_cf(
                        transaction,
                        read,
                        column,
                        key,
                        bytes,
                        1,
                        error,
                    ),
                }
            })
        })?;
        if !found.is_null() {
            // Safety: a non-null slice is ours to destroy.
            unsafe { ffi::rocksdb_pinnableslice_destroy(found) };
            return Ok(false);
        }
        self.put(tree, key, value)?;
        Ok(true)
    }

    fn delete(&mut self, tree: TreeIndex, key: &[u8]) -> Result<()> {
        self.inner.with_key(tree, key, |column, key, bytes| match self.kind {
            // Safety: live handles; the key lives across the calls.
            Kind::Batch(batch) => unsafe {
                ffi::rocksdb_writebatch_delete_cf(batch, column, key, bytes);
                Ok(())
            },
            // Safety: as above.
            Kind::Optimistic(transaction) => {
                checked(|error| unsafe { ffi::rocksdb_transaction_delete_cf(transaction, column, key, bytes, error) })
            }
        })
    }

    /// The C API has no single delete for transactions; there it is a delete.
    fn single_delete(&mut self, tree: TreeIndex, key: &[u8]) -> Result<()> {
        let Kind::Batch(batch) = self.kind else {
            return self.delete(tree, key);
        };
        // Safety: live handles; the key lives across the call.
        self.inner.with_key(tree, key, |column, key, bytes| unsafe {
            ffi::rocksdb_writebatch_singledelete_cf(batch, column, key, bytes);
        });
        Ok(())
    }

    fn get(&mut self, tree: TreeIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let inner = &self.inner;
        let slice = inner.with_key(tree, key, |column, key, bytes| {
            // Safety: live handles; the key lives across the calls.
            checked(|error| unsafe {
                let read = inner.read_options;
                match self.kind {
                    Kind::Batch(_) => ffi::rocksdb_get_pinned_cf(inner.db, read, column, key, bytes, error),
                    Kind::Optimistic(transaction) => {
                        ffi::rocksdb_transaction_get_pinned_cf(transaction, read, column, key, bytes, error)
                    }
                }
            })
        })?;
        Ok(take_pinned(slice, value))
    }

    fn commit(self, durability: Durability) -> Result<()> {
        // Safety: live handles.
        checked(|error| unsafe {
            match self.kind {
                Kind::Batch(batch) => {
                    ffi::rocksdb_write(self.inner.db, self.inner.write_options(durability), batch, error)
                }
                Kind::Optimistic(transaction) => ffi::rocksdb_transaction_commit(transaction, error),
            }
        })
    }

    fn rollback(self) -> Result<()> {
        match self.kind {
            Kind::Batch(_) => Ok(()),
            // Safety: a live transaction.
            Kind::Optimistic(transaction) => {
                checked(|error| unsafe { ffi::rocksdb_transaction_rollback(transaction, error) })
            }
        }
    }
}

impl Drop for RocksTransaction {
    fn drop(&mut self) {
        // Safety: made in `new`, destroyed once, while `inner` still lives.
        unsafe {
            match self.kind {
                Kind::Batch(batch) => ffi::rocksdb_writebatch_destroy(batch),
                Kind::Optimistic(transaction) => ffi::rocksdb_transaction_destroy(transaction),
            }
        }
    }
}
