//! Decisions about prepared transactions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shuttle::thread;

use super::{below, explore};
use crate::base::{ErrorKind, TxnId};
use crate::db::prepared::{LoggedPrepare, PreparedTable};
use crate::txn::Prepared;

const XID: &[u8] = b"x";

/// Several decide one transaction, and each gives that up now and then, as on a full disk. Who hears that there is no such transaction takes it for
/// decided, and tells others.
#[test]
fn no_such_transaction_is_said_of_one_that_is_decided() {
    explore(1, || {
        let table = Arc::new(PreparedTable::default());
        table.recovered(&Prepared { txn: TxnId(7), xid: XID.to_vec() }, &LoggedPrepare::default(), 0);
        // Not a lock or atomic at which others go on.
        let decided = Arc::new(AtomicBool::new(false));
        let decide = |table: &PreparedTable, decided: &AtomicBool| match table.claim(XID) {
            Ok(claim) if below(2) == 0 => {
                assert!(!decided.swap(true, Ordering::Relaxed), "decided twice");
                claim.decided();
            }
            // Given up.
            Ok(claim) => drop(claim),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound);
                assert!(decided.load(Ordering::Relaxed), "unknown while somebody may decide it");
            }
        };
        let deciders: Vec<_> = (0..3)
            .map(|_| {
                let (table, decided) = (table.clone(), decided.clone());
                thread::spawn(move || (0..2).for_each(|_| decide(&table, &decided)))
            })
            .collect();
        for decider in deciders {
            decider.join().expect("no panic");
        }
    });
}
