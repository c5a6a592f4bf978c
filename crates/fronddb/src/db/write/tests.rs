//! What a thread keeps, and who keeps the space of large values.

use std::sync::Arc;

use super::*;
use crate::db::database::Database;
use crate::db::options::{Options, TreeOptions, TxnOptions};
use crate::db::tree_handle::Tree;
use crate::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};

#[test]
fn a_thread_keeps_the_memory_of_small_writes_and_not_of_large_ones() {
    let tree = Tree::for_tests(TreeId(7), "t", TreeOptions::default());
    let held = || (with_single(|batch| Ok(batch.memory_bytes())), with_record(|record| record.memory_bytes()));
    for (bytes, kept) in [(10 << 10, true), (2 * KEPT_BYTES_MAX, false)] {
        let value = vec![7; bytes];
        with_single(|batch| batch.put(&tree, b"key", &value)).expect("within limits");
        let stamp = Stamp::Settled;
        let message = Message { key: b"\0\0\0\x07key", seq: 1, stamp, kind: Kind::Put, blob: false, payload: &value };
        with_record(|record| record.add(&message));
        let (single, record) = held();
        assert_eq!((single.expect("held") >= bytes, record >= bytes), (kept, kept), "bytes={bytes}");
    }
}

/// A sync of the log fails after the record, which is too large for the ring, was written: a restart may find it.
#[test]
fn a_large_value_keeps_its_space_when_the_log_may_have_its_record() -> Result<()> {
    let (memory, plan) = (MemoryStorage::new(), FaultPlan::new());
    let storage = FaultStorage::new(Arc::new(memory), plan.clone());
    let options = Options::new().create_if_missing(true).storage(Some(Arc::new(storage))).manual_background(true);
    let options = options.memory_bytes(8 << 20).blob_bytes_min(4 << 10).log_compression(false);
    let db = Database::open("/db", options)?;
    let tree = db.create_tree("t", &TreeOptions::default())?;
    let large = [1; 8 << 10];
    let mut batch = WriteBatch::new();
    batch.put(&tree, b"large", &large)?;
    (0..100u8).try_for_each(|row| batch.put(&tree, &[row], &[row; 1 << 10]))?;
    // The log has its segments, which are synced when they are prepared.
    while db.step_background()? {}
    let used = || db.statistics().map(|statistics| statistics.file_bytes_used);
    let before = used()?;
    plan.add(FaultRule::once(CallClass::Sync, 1, Fault::Error).on(".log"));
    let txn = db.begin(TxnOptions::default())?;
    assert_eq!(txn.write(&batch).map_err(|error| error.kind()), Err(ErrorKind::Poisoned));
    assert_eq!(plan.fired(), 1);
    assert!(used()? > before, "work that is under way may still take space");
    Ok(())
}

/// All commits wait for the record of one: a long batch goes in before.
#[test]
fn a_short_batch_shares_its_record_with_its_commit_and_a_long_one_does_not() -> Result<()> {
    let options = Options::new().create_if_missing(true).storage(Some(Arc::new(MemoryStorage::new())));
    let db = Database::open("/db", options.manual_background(true).memory_bytes(8 << 20))?;
    let tree = db.create_tree("t", &TreeOptions::default())?;
    for (rows, records) in [(3, 1), (5, 2), (2000, 3)] {
        let mut batch = WriteBatch::new();
        (0..rows).try_for_each(|row: u32| batch.put(&tree, &row.to_be_bytes(), &[7; 1 << 10]))?;
        let before = db.statistics()?.log_records;
        db.write(&batch, TxnOptions::default())?;
        assert_eq!(db.statistics()?.log_records - before, records, "rows={rows}");
    }
    Ok(())
}

/// What the failure of one batch was told with is not told with that of the next, which is refused before it is looked at.
#[test]
fn a_batch_that_is_refused_failed_at_none_of_its_writes() -> Result<()> {
    let paths: [fn(&TxnCore, &WriteBatch) -> Result<()>; 3] =
        [TxnCore::write, TxnCore::write_locked, TxnCore::write_and_commit];
    for (at, write) in paths.into_iter().enumerate() {
        let plan = FaultPlan::new();
        let storage = FaultStorage::new(Arc::new(MemoryStorage::new()), plan.clone());
        let options = Options::new().create_if_missing(true).storage(Some(Arc::new(storage)));
        let db = Database::open("/db", options.manual_background(true).memory_bytes(8 << 20))?;
        let tree = db.create_tree("t", &TreeOptions::default())?;
        db.put(&tree, &[3], b"there")?;
        let txn = db.begin(TxnOptions::default())?;
        let mut batch = WriteBatch::new();
        (0..5u8).try_for_each(|row| batch.insert(&tree, &[row], b"value"))?;
        assert_eq!(txn.write(&batch).map_err(|error| error.kind()), Err(ErrorKind::KeyExists));
        assert_eq!(txn.failed_operation(), Some(3));
        plan.add(FaultRule::once(CallClass::Sync, 1, Fault::Error).on(".log"));
        assert!(db.put(&tree, &[9], b"lost").is_err());
        batch.clear();
        batch.put(&tree, &[0], b"value")?;
        let refused = write(txn.core(), &batch).map_err(|error| error.kind());
        assert_eq!((refused, txn.failed_operation()), (Err(ErrorKind::Poisoned), None), "path {at}");
    }
    Ok(())
}
