//! Transactions: begin, end, savepoints, and ending the waits of others.

use engine::{Isolation, Savepoint, Transaction, TxnOptions, Value};

use crate::border::{Out, Status, enter, guard, need};
use crate::database::frond_db;
use crate::types::{durability, frond_txn_options, lock_timeout};

/// The handle, with what it lends.
pub struct frond_txn {
    pub(crate) inner: Transaction,
    /// Values that the last read lends.
    pub(crate) value: Option<Value>,
    pub(crate) values: Vec<Value>,
    /// Metadata that `frond_tree_get_options` lends.
    pub(crate) metadata: Vec<u8>,
}

impl frond_txn {
    fn handle(inner: Transaction) -> Option<Box<frond_txn>> {
        Some(Box::new(frond_txn { inner, value: None, values: Vec::new(), metadata: Vec::new() }))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_begin(
    db: Option<&frond_db>,
    options: Option<&frond_txn_options>,
    txn: Out<'_, Option<Box<frond_txn>>>,
) -> Status {
    enter("frond_txn_begin", || {
        let (db, txn) = (need(db, "db")?, need(txn, "txn")?);
        txn.write(frond_txn::handle(db.inner.begin(frond_txn_options::to_engine(options)?)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_snapshot(db: Option<&frond_db>, snapshot: Out<'_, Option<Box<frond_txn>>>) -> Status {
    enter("frond_db_snapshot", || {
        let (db, snapshot) = (need(db, "db")?, need(snapshot, "snapshot")?);
        let options = TxnOptions {
            isolation: Isolation::RepeatableRead,
            read_only: true,
            consistent_snapshot: true,
            ..TxnOptions::default()
        };
        snapshot.write(frond_txn::handle(db.inner.begin(options)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_has_snapshot(txn: Option<&frond_txn>) -> bool {
    guard("frond_txn_has_snapshot", || txn.is_some_and(|txn| txn.inner.has_snapshot()))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_id(txn: Option<&frond_txn>) -> u64 {
    guard("frond_txn_id", || txn.map_or(0, |txn| txn.inner.id()))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_set_lock_wait_ms(txn: Option<&mut frond_txn>, lock_wait_ms: i64) -> Status {
    enter("frond_txn_set_lock_wait_ms", || need(txn, "txn")?.inner.set_lock_timeout(lock_timeout(lock_wait_ms)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_commit(txn: Option<Box<frond_txn>>) -> Status {
    enter("frond_txn_commit", || need(txn, "txn")?.inner.commit())
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_commit_with(txn: Option<Box<frond_txn>>, number: u32) -> Status {
    enter("frond_txn_commit_with", || need(txn, "txn")?.inner.commit_with(durability(number)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_rollback(txn: Option<Box<frond_txn>>) -> Status {
    enter("frond_txn_rollback", || need(txn, "txn")?.inner.rollback())
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_begin_statement(txn: Option<&mut frond_txn>) -> Status {
    enter("frond_txn_begin_statement", || need(txn, "txn")?.inner.begin_statement())
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_end_statement(txn: Option<&mut frond_txn>) -> Status {
    enter("frond_txn_end_statement", || need(txn, "txn")?.inner.end_statement())
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_cancel(db: Option<&frond_db>, id: u64) -> Status {
    enter("frond_db_cancel", || need(db, "db")?.inner.cancel(id))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_savepoint_set(txn: Option<&mut frond_txn>, savepoint: Out<'_, u32>) -> Status {
    enter("frond_savepoint_set", || {
        let (txn, savepoint) = (need(txn, "txn")?, need(savepoint, "savepoint")?);
        savepoint.write(txn.inner.savepoint()?.number());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_savepoint_rollback(txn: Option<&mut frond_txn>, savepoint: u32) -> Status {
    enter("frond_savepoint_rollback", || need(txn, "txn")?.inner.rollback_to(Savepoint::from_number(savepoint)))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_savepoint_release(txn: Option<&mut frond_txn>, savepoint: u32) -> Status {
    enter("frond_savepoint_release", || need(txn, "txn")?.inner.release(Savepoint::from_number(savepoint)))
}
