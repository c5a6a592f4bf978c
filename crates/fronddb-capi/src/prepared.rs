//! Two-phase commit.

use crate::border::{Bytes, Out, Status, enter, frond_slice, need};
use crate::database::frond_db;
use crate::monitor::{Owner, frond_list};
use crate::transaction::frond_txn;
use crate::types::{c_structs, durability};

c_structs! {
    frond_prepared_info { xid: frond_slice, txn: u64, recovered: u32, reserved: u32, }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_release_unwritten(txn: Option<&mut frond_txn>) -> Status {
    enter("frond_txn_release_unwritten", || need(txn, "txn")?.inner.release_unwritten())
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_txn_prepare(txn: Option<Box<frond_txn>>, xid: Bytes<'_>, number: u32) -> Status {
    enter("frond_txn_prepare", || {
        let txn = need(txn, "txn")?;
        txn.inner.prepare_with(xid.get()?, durability(number)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_commit_prepared(db: Option<&frond_db>, xid: Bytes<'_>, number: u32) -> Status {
    enter("frond_db_commit_prepared", || {
        let durability = durability(number)?;
        need(db, "db")?.inner.commit_prepared_with(xid.get()?, durability)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_rollback_prepared(db: Option<&frond_db>, xid: Bytes<'_>) -> Status {
    enter("frond_db_rollback_prepared", || need(db, "db")?.inner.rollback_prepared(xid.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_prepared(
    db: Option<&frond_db>,
    list: Out<'_, Option<Box<frond_list>>>,
    items: Out<'_, *const frond_prepared_info>,
    count: Out<'_, usize>,
) -> Status {
    enter("frond_db_prepared", || {
        let mut owner = Owner::new();
        let prepared = need(db, "db")?.inner.prepared()?;
        let infos = prepared.iter().map(|info| frond_prepared_info {
            xid: owner.slice(&info.xid),
            txn: info.txn.0,
            recovered: u32::from(info.recovered),
            reserved: 0,
        });
        let infos = infos.collect();
        owner.give(infos, list, items, count)
    })
}
