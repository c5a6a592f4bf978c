//! Writing: single writes, arrays of writes, batches.
//!
//! An array becomes a [`WriteBatch`] that its thread keeps, so that a row with all its index entries costs no
//! allocation.

use std::cell::RefCell;

use engine::base::key::{check_key, check_value};
use engine::base::scratch;
use engine::{Result, Tree, WriteBatch};

use crate::border::{Bytes, Out, Status, array, check_flags, enter, guard, need, unknown};
use crate::constants::*;
use crate::database::frond_db;
use crate::transaction::frond_txn;
use crate::tree::frond_tree;
use crate::types::{frond_operation, frond_txn_options};

/// Memory beyond which a thread does not keep its batch.
const KEPT_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static SCRATCH: RefCell<WriteBatch> = RefCell::new(WriteBatch::new());
}

/// The handle.
pub struct frond_batch {
    inner: WriteBatch,
}

/// A write whose arguments are of the right kind.
struct Operation<'a> {
    tree: &'a Tree,
    key: &'a [u8],
    value: &'a [u8],
    op: u32,
    covered: bool,
    sharing: bool,
}

impl<'a> Operation<'a> {
    #[inline]
    fn new(operation: &frond_operation<'a>) -> Result<Operation<'a>> {
        check_flags(operation.flags, FROND_OPERATION_COVERED | FROND_OPERATION_SHARING)?;
        if !(FROND_OP_PUT..=FROND_OP_UPDATE).contains(&operation.op) {
            return Err(unknown("op", operation.op));
        }
        Ok(Operation {
            tree: &need(operation.tree, "operation.tree")?.inner,
            key: operation.key.get()?,
            value: operation.value.get()?,
            op: operation.op,
            covered: operation.flags & FROND_OPERATION_COVERED != 0,
            sharing: operation.flags & FROND_OPERATION_SHARING != 0,
        })
    }

    /// Finds out beforehand what [`Operation::add`] would refuse.
    fn check(&self) -> Result<()> {
        if self.op == FROND_OP_UPDATE {
            return with_scratch(|batch| self.add(batch));
        }
        check_key(self.key)?;
        check_value(self.value)
    }

    #[inline]
    fn add(&self, batch: &mut WriteBatch) -> Result<()> {
        batch.set_covered(self.covered);
        batch.set_sharing(self.sharing);
        match self.op {
            FROND_OP_PUT => batch.put(self.tree, self.key, self.value),
            FROND_OP_INSERT => batch.insert(self.tree, self.key, self.value),
            FROND_OP_INSERT_IF_ABSENT => batch.insert_if_absent(self.tree, self.key, self.value),
            FROND_OP_DELETE => batch.delete(self.tree, self.key),
            FROND_OP_SINGLE_DELETE => batch.single_delete(self.tree, self.key),
            _ => batch.update(self.tree, self.key, self.value),
        }
    }
}

/// Runs `step` for each write; remembers which one failed.
#[inline]
fn for_each<'a>(
    operations: &[frond_operation<'a>],
    failed: &mut Option<usize>,
    mut step: impl FnMut(Operation<'a>) -> Result<()>,
) -> Result<()> {
    for (index, operation) in operations.iter().enumerate() {
        Operation::new(operation).and_then(&mut step).inspect_err(|_| *failed = Some(index))?;
    }
    Ok(())
}

/// Lends the thread's batch, empty; a new one while it is lent: a wait observer may write, in the thread whose write is
/// about to wait.
fn with_scratch<T>(use_it: impl FnOnce(&mut WriteBatch) -> Result<T>) -> Result<T> {
    scratch::lend(&SCRATCH, WriteBatch::new, |batch| {
        batch.clear();
        let answer = use_it(batch);
        if batch.bytes() > KEPT_BYTES_MAX {
            *batch = WriteBatch::new();
        }
        answer
    })
}

/// Runs `body` with the thread's batch, filled with the writes.
fn with_batch<T>(
    operations: &[frond_operation<'_>],
    failed: &mut Option<usize>,
    body: impl FnOnce(&WriteBatch) -> Result<T>,
) -> Result<T> {
    with_scratch(|batch| {
        for_each(operations, failed, |operation| operation.add(batch))?;
        body(batch)
    })
}

/// Like [`enter`], for functions that say on failure which write was at fault.
#[inline]
fn enter_batch(name: &str, failed: Out<'_, usize>, body: impl FnOnce(&mut Option<usize>) -> Result<()>) -> Status {
    let mut index = None;
    let status = enter(name, || body(&mut index));
    if let (Some(failed), true) = (failed, status != 0) {
        failed.write(index.unwrap_or(FROND_NONE));
    }
    status
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_txn_write(
    txn: Option<&mut frond_txn>,
    operations: *const frond_operation<'_>,
    count: usize,
    failed: Out<'_, usize>,
) -> Status {
    enter_batch("frond_txn_write", failed, |failed| {
        let txn = need(txn, "txn")?;
        // Safety: C2.
        let operations = unsafe { array(operations, count)? };
        let mut at = None;
        let answer = with_batch(operations, failed, |batch| {
            txn.inner.write(batch).inspect_err(|_| at = txn.inner.failed_operation())
        });
        *failed = failed.or(at);
        answer
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_db_write(
    db: Option<&frond_db>,
    operations: *const frond_operation<'_>,
    count: usize,
    options: Option<&frond_txn_options>,
) -> Status {
    enter("frond_db_write", || {
        let db = need(db, "db")?;
        let options = frond_txn_options::to_engine(options)?;
        // Safety: C2.
        let operations = unsafe { array(operations, count)? };
        with_batch(operations, &mut None, |batch| db.inner.write(batch, options))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_put(
    db: Option<&frond_db>,
    tree: Option<&frond_tree>,
    key: Bytes<'_>,
    value: Bytes<'_>,
) -> Status {
    enter("frond_db_put", || need(db, "db")?.inner.put(&need(tree, "tree")?.inner, key.get()?, value.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_delete(db: Option<&frond_db>, tree: Option<&frond_tree>, key: Bytes<'_>) -> Status {
    enter("frond_db_delete", || need(db, "db")?.inner.delete(&need(tree, "tree")?.inner, key.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_write_batch(
    db: Option<&frond_db>,
    batch: Option<&frond_batch>,
    options: Option<&frond_txn_options>,
) -> Status {
    enter("frond_db_write_batch", || {
        let options = frond_txn_options::to_engine(options)?;
        need(db, "db")?.inner.write(&need(batch, "batch")?.inner, options)
    })
}

/// Exports single writes: of a key and a payload, or of a key alone.
macro_rules! single_writes {
    ($($name:ident($method:ident $(, $payload:ident)?);)*) => {
        $(#[unsafe(no_mangle)]
        pub extern "C" fn $name(
            txn: Option<&mut frond_txn>,
            tree: Option<&frond_tree>,
            key: Bytes<'_>,
            $($payload: Bytes<'_>,)?
        ) -> Status {
            enter(stringify!($name), || {
                let (txn, tree) = (need(txn, "txn")?, need(tree, "tree")?);
                txn.inner.$method(&tree.inner, key.get()? $(, $payload.get()?)?)
            })
        })*
    };
}

single_writes! {
    frond_txn_put(put, value);
    frond_txn_insert(insert, value);
    frond_txn_insert_if_absent(insert_if_absent, value);
    frond_txn_delete(delete);
    frond_txn_single_delete(single_delete);
    frond_txn_update(update, program);
    frond_txn_delete_range(delete_range, upper);
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_delete_existing(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    key: Bytes<'_>,
    existed: Out<'_, bool>,
) -> Status {
    enter("frond_txn_delete_existing", || {
        let (txn, tree, existed) = (need(txn, "txn")?, need(tree, "tree")?, need(existed, "existed")?);
        existed.write(txn.inner.delete_existing(&tree.inner, key.get()?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_batch_new() -> Box<frond_batch> {
    guard("frond_batch_new", || Box::new(frond_batch { inner: WriteBatch::new() }))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_batch_free(batch: Option<Box<frond_batch>>) {
    guard("frond_batch_free", || drop(batch));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_batch_add(
    batch: Option<&mut frond_batch>,
    operations: *const frond_operation<'_>,
    count: usize,
    failed: Out<'_, usize>,
) -> Status {
    enter_batch("frond_batch_add", failed, |failed| {
        let batch = need(batch, "batch")?;
        // Safety: C2.
        let operations = unsafe { array(operations, count)? };
        for_each(operations, failed, |operation| operation.check())?;
        for_each(operations, failed, |operation| operation.add(&mut batch.inner))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_batch_clear(batch: Option<&mut frond_batch>) {
    guard("frond_batch_clear", || {
        if let Some(batch) = batch {
            batch.inner.clear();
        }
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_batch_count(batch: Option<&frond_batch>) -> usize {
    guard("frond_batch_count", || batch.map_or(0, |batch| batch.inner.len()))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_batch_bytes(batch: Option<&frond_batch>) -> usize {
    guard("frond_batch_bytes", || batch.map_or(0, |batch| batch.inner.bytes()))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_write_batch(
    txn: Option<&mut frond_txn>,
    batch: Option<&frond_batch>,
    failed: Out<'_, usize>,
) -> Status {
    enter_batch("frond_txn_write_batch", failed, |failed| {
        let (txn, batch) = (need(txn, "txn")?, need(batch, "batch")?);
        txn.inner.write(&batch.inner).inspect_err(|_| *failed = txn.inner.failed_operation())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::io::MemoryStorage;
    use engine::{Database, Error, Op, Options, Program, TreeOptions};
    use std::sync::Arc;

    #[test]
    fn what_a_batch_refuses_is_known_before_anything_is_added() -> Result<()> {
        let storage = Arc::new(MemoryStorage::new());
        let options = Options::new().create_if_missing(true).storage(Some(storage)).manual_background(true);
        let tree = &Database::open("/db", options)?.create_tree("t", &TreeOptions::default())?;
        for (bytes, is_refused) in [(1 << 10, false), (2 << 20, true)] {
            let mut program = Vec::new();
            Program { ops: vec![Op::SetBytes { offset: 0, bytes: vec![7; bytes] }] }.encode(&mut program);
            let value = program.as_slice();
            let update = Operation { tree, key: b"key", value, op: FROND_OP_UPDATE, covered: false, sharing: false };
            let added = update.add(&mut WriteBatch::new());
            assert_eq!((update.check().is_err(), added.is_err()), (is_refused, is_refused), "bytes={bytes}");
        }
        Ok(())
    }

    #[test]
    fn a_thread_keeps_no_large_batch_also_when_it_was_refused() -> Result<()> {
        let storage = Arc::new(MemoryStorage::new());
        let options = Options::new().create_if_missing(true).storage(Some(storage)).manual_background(true);
        let tree = Database::open("/db", options)?.create_tree("t", &TreeOptions::default())?;
        let held = || SCRATCH.with_borrow(WriteBatch::bytes);
        for (bytes, kept) in [(KEPT_BYTES_MAX / 2, true), (2 * KEPT_BYTES_MAX, false)] {
            let value = vec![7; bytes];
            with_scratch(|batch| batch.put(&tree, b"key", &value))?;
            assert_eq!(held() >= bytes, kept, "bytes={bytes}");
            let refused = with_scratch(|batch| {
                batch.put(&tree, b"key", &value)?;
                Err::<(), Error>(Error::invalid("the second write"))
            });
            assert!(refused.is_err());
            assert_eq!(held() >= bytes, kept, "refused, bytes={bytes}");
        }
        Ok(())
    }
}
