//! Bulk loads of empty trees.

use std::ffi::c_void;
use std::path::PathBuf;

use engine::{Bulk, BulkOptions, BulkProgress, Error};

use crate::border::{Bytes, Out, Status, Text, check_flags, check_reserved, enter, guard, need};
use crate::constants::{FROND_BULK_FIRST_DUPLICATE, FROND_BULK_GIVE_UP, FROND_CURSOR_KEYS_BEFORE_GIVING_UP};
use crate::transaction::frond_txn;
use crate::tree::frond_tree;
use crate::types::{c_structs, frond_row};

/// The handle.
pub struct frond_bulk {
    inner: Bulk,
}

c_structs! {
    frond_bulk_options<'a> { temporary_dir: Text<'a>, memory_bytes: u64, flags: u32, reserved: u32, }
    frond_bulk_progress { rows_added: u64, bytes_added: u64, bytes_spilled: u64, rows_written: u64, }
}

/// Told how far a load is; false gives it up.
pub type frond_bulk_progress_fn = Option<unsafe extern "C" fn(*mut c_void, *const frond_bulk_progress) -> bool>;

impl frond_bulk_progress {
    fn new(progress: BulkProgress) -> frond_bulk_progress {
        let BulkProgress { rows_added, bytes_added, bytes_spilled, rows_written } = progress;
        frond_bulk_progress { rows_added, bytes_added, bytes_spilled, rows_written }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_bulk_begin(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    options: Option<&frond_bulk_options<'_>>,
    bulk: Out<'_, Option<Box<frond_bulk>>>,
) -> Status {
    enter("frond_bulk_begin", || {
        let (txn, tree, bulk) = (need(txn, "txn")?, need(tree, "tree")?, need(bulk, "bulk")?);
        let mut engine = BulkOptions::default();
        if let Some(options) = options {
            let bytes = options.memory_bytes;
            engine.memory_bytes = usize::try_from(bytes)
                .map_err(|_| Error::invalid(format!("option out of range, memory_bytes={bytes}")))?;
            check_flags(options.flags, FROND_BULK_FIRST_DUPLICATE | FROND_BULK_GIVE_UP)?;
            check_reserved(options.reserved)?;
            engine.first_duplicate = options.flags & FROND_BULK_FIRST_DUPLICATE != 0;
            let gives_up = options.flags & FROND_BULK_GIVE_UP != 0;
            engine.passed_over_max = gives_up.then_some(FROND_CURSOR_KEYS_BEFORE_GIVING_UP);
            if options.temporary_dir.get_some().is_some() {
                engine.temporary_dir = Some(PathBuf::from(options.temporary_dir.get("temporary_dir")?));
            }
        }
        let inner = txn.inner.bulk(&tree.inner, &engine)?;
        bulk.write(Some(Box::new(frond_bulk { inner })));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_bulk_add(bulk: Option<&mut frond_bulk>, key: Bytes<'_>, value: Bytes<'_>) -> Status {
    enter("frond_bulk_add", || need(bulk, "bulk")?.inner.add(key.get()?, value.get()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_bulk_finish(
    bulk: Option<&mut frond_bulk>,
    progress: frond_bulk_progress_fn,
    context: *mut c_void,
    duplicate: Out<'_, frond_row>,
) -> Status {
    let Some(bulk) = bulk else { return enter("frond_bulk_finish", || Err(crate::border::null("bulk"))) };
    let status = enter("frond_bulk_finish", || {
        bulk.inner.finish(&mut |now| {
            let Some(progress) = progress else { return true };
            let now = frond_bulk_progress::new(*now);
            // Safety: the header binds the callback: it takes what it was declared for, returns and does not throw.
            unsafe { progress(context, &raw const now) }
        })
    });
    if let Some(duplicate) = duplicate {
        duplicate.write(bulk.inner.duplicate().map_or(frond_row::NONE, |(key, value)| frond_row::lend(key, value)));
    }
    status
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_bulk_now(bulk: Option<&frond_bulk>, progress: Out<'_, frond_bulk_progress>) -> Status {
    enter("frond_bulk_now", || {
        let (bulk, progress) = (need(bulk, "bulk")?, need(progress, "progress")?);
        progress.write(frond_bulk_progress::new(bulk.inner.progress()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_bulk_duplicate_number(bulk: Option<&frond_bulk>) -> u64 {
    let number = || bulk.and_then(|bulk| bulk.inner.duplicate_number());
    guard("frond_bulk_duplicate_number", || number().unwrap_or(u64::MAX))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_bulk_free(bulk: Option<Box<frond_bulk>>) {
    guard("frond_bulk_free", || drop(bulk));
}
