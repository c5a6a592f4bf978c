//! Reading by key. Values are lent by the transaction's handle, so that a read of a cached block copies nothing.

use engine::{Locked, Value, Wait};

use crate::border::{Bytes, Out, Status, array, enter, frond_slice, need, null, unknown};
use crate::constants::FROND_WAIT_SKIP;
use crate::database::frond_db;
use crate::monitor::{Owner, frond_list};
use crate::transaction::frond_txn;
use crate::tree::frond_tree;
use crate::types::{frond_estimate, lock_mode, wait};

impl frond_txn {
    /// Keeps what was read until the next read.
    #[inline]
    fn lend(&mut self, value: Option<Value>) -> frond_slice {
        self.values.clear();
        self.value = value;
        frond_slice::lend_some(self.value.as_deref())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_get(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    key: Bytes<'_>,
    value: Out<'_, frond_slice>,
) -> Status {
    enter("frond_txn_get", || {
        let (txn, tree, out) = (need(txn, "txn")?, need(tree, "tree")?, need(value, "value")?);
        let value = txn.inner.get(&tree.inner, key.get()?)?;
        out.write(txn.lend(value));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_get_head(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    key: Bytes<'_>,
    value: Out<'_, frond_slice>,
) -> Status {
    enter("frond_txn_get_head", || {
        let (txn, tree, out) = (need(txn, "txn")?, need(tree, "tree")?, need(value, "value")?);
        let value = txn.inner.get_head(&tree.inner, key.get()?)?;
        out.write(txn.lend(value));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_contains(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    key: Bytes<'_>,
    found: Out<'_, bool>,
) -> Status {
    enter("frond_txn_contains", || {
        let (txn, tree, found) = (need(txn, "txn")?, need(tree, "tree")?, need(found, "found")?);
        found.write(txn.inner.contains(&tree.inner, key.get()?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_changed_after_snapshot(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    key: Bytes<'_>,
    changed: Out<'_, bool>,
) -> Status {
    enter("frond_txn_changed_after_snapshot", || {
        let (txn, tree, changed) = (need(txn, "txn")?, need(tree, "tree")?, need(changed, "changed")?);
        changed.write(txn.inner.changed_after_snapshot(&tree.inner, key.get()?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_txn_get_many(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    keys: *const Bytes<'_>,
    count: usize,
    values: *mut frond_slice,
) -> Status {
    enter("frond_txn_get_many", || {
        let (txn, tree) = (need(txn, "txn")?, need(tree, "tree")?);
        // Safety: C2.
        let keys = unsafe { array(keys, count)? };
        if values.is_null() && count > 0 {
            return Err(null("values"));
        }
        // The keys may be what the last read lent, so that is kept to the end.
        let found = txn.inner.get_many(&tree.inner, keys.iter().map(|key| key.get()))?;
        let present: Vec<bool> = found.iter().map(Option::is_some).collect();
        (txn.value, txn.values) = (None, found.into_iter().flatten().collect());
        let mut lent = txn.values.iter();
        for (index, present) in present.into_iter().enumerate() {
            let value = if present { lent.next().map(|value| &**value) } else { None };
            // Safety: C1: `values` has room for `count` slices, and the loop runs over `count` keys.
            unsafe { values.add(index).write(frond_slice::lend_some(value)) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_get_locked(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    key: Bytes<'_>,
    mode: u32,
    wait_ms: i64,
    value: Out<'_, frond_slice>,
    skipped: Out<'_, bool>,
) -> Status {
    enter("frond_txn_get_locked", || {
        let (txn, tree, out) = (need(txn, "txn")?, need(tree, "tree")?, need(value, "value")?);
        if wait_ms == FROND_WAIT_SKIP && skipped.is_none() {
            return Err(null("skipped"));
        }
        let locked = txn.inner.get_locked(&tree.inner, key.get()?, lock_mode(mode)?, wait(wait_ms)?)?;
        if let Some(skipped) = skipped {
            skipped.write(locked == Locked::Skipped);
        }
        out.write(match locked {
            Locked::Row(value) => txn.lend(Some(value)),
            Locked::Absent | Locked::Skipped => txn.lend(None),
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_unlock(txn: Option<&mut frond_txn>, tree: Option<&frond_tree>, key: Bytes<'_>) -> Status {
    enter("frond_txn_unlock", || {
        let (txn, tree) = (need(txn, "txn")?, need(tree, "tree")?);
        txn.inner.unlock(&tree.inner, key.get()?).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_lock_range(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    lower: Bytes<'_>,
    upper: Bytes<'_>,
    mode: u32,
    wait_ms: i64,
) -> Status {
    enter("frond_txn_lock_range", || {
        let (txn, tree) = (need(txn, "txn")?, need(tree, "tree")?);
        let wait = wait(wait_ms)?;
        if wait == Wait::SkipLocked {
            return Err(unknown("wait_ms", wait_ms));
        }
        txn.inner.lock_range(&tree.inner, lower.get()?, upper.get()?, lock_mode(mode)?, wait)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_estimate(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    lower: Bytes<'_>,
    upper: Bytes<'_>,
    estimate: Out<'_, frond_estimate>,
) -> Status {
    enter("frond_txn_estimate", || {
        let (txn, tree, out) = (need(txn, "txn")?, need(tree, "tree")?, need(estimate, "estimate")?);
        let estimate = txn.inner.estimate(&tree.inner, lower.get()?, upper.get()?)?;
        out.write(estimate.into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_get(
    db: Option<&frond_db>,
    tree: Option<&frond_tree>,
    key: Bytes<'_>,
    list: Out<'_, Option<Box<frond_list>>>,
    value: Out<'_, frond_slice>,
) -> Status {
    enter("frond_db_get", || {
        let (db, tree) = (need(db, "db")?, need(tree, "tree")?);
        let (list, out) = (need(list, "list")?, need(value, "value")?);
        let value = db.inner.get(&tree.inner, key.get()?)?;
        Owner::give_one(value, |value| frond_slice::lend_some(value.as_deref()), list, out);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_estimate(
    db: Option<&frond_db>,
    tree: Option<&frond_tree>,
    lower: Bytes<'_>,
    upper: Bytes<'_>,
    estimate: Out<'_, frond_estimate>,
) -> Status {
    enter("frond_db_estimate", || {
        let (db, tree, out) = (need(db, "db")?, need(tree, "tree")?, need(estimate, "estimate")?);
        let estimate = db.inner.estimate(&tree.inner, lower.get()?, upper.get()?)?;
        out.write(estimate.into());
        Ok(())
    })
}
