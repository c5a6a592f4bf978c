//! The i-th call to the storage fails, for every i of a workload with transactions, blobs, flushes, compactions and
//! checkpoints: typed errors, never a panic, and after a crash every acknowledged commit is there, whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};
use fronddb::{CursorOptions, Database, Error, ErrorKind, Options, Result, Tree, TreeOptions, TxnOptions, WriteBatch};

use crate::support::{DIRECTORY, begin, collect, options};

const ROWS: usize = 6;
const TXNS: usize = 40;

/// What the workload heard about each of its transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Committed,
    Unknown,
    RolledBack,
}

fn value(txn: usize, row: usize) -> Vec<u8> {
    let length = if row == 0 && txn.is_multiple_of(5) { 9000 } else { 150 };
    vec![(txn * 7 + row) as u8; length]
}

fn key(txn: usize, row: usize) -> Vec<u8> {
    // Rows of a transaction lie apart, so that they meet different leaves.
    format!("{row}-{txn:04}").into_bytes()
}

fn write(db: &Database, tree: &Tree, txn: usize) -> Result<Heard> {
    let mut batch = WriteBatch::new();
    for row in 0..ROWS {
        batch.put(tree, &key(txn, row), &value(txn, row))?;
    }
    if txn.is_multiple_of(3) {
        return db.write(&batch, TxnOptions::default()).map(|()| Heard::Committed);
    }
    let open = db.begin(TxnOptions::default())?;
    open.put(tree, &key(txn, 0), b"replaced")?;
    let mark = open.savepoint()?;
    open.delete_range(tree, b"", b"")?;
    open.rollback_to(mark)?;
    open.write(&batch)?;
    if txn % 7 == 6 {
        open.rollback()?;
        return Ok(Heard::RolledBack);
    }
    open.commit()?;
    Ok(Heard::Committed)
}

fn expected(error: &Error) -> bool {
    use ErrorKind::{Corruption, Io, NoSpace, Poisoned};
    matches!(error.kind(), Io | NoSpace | Poisoned | Corruption)
}

/// Runs the workload on a storage that may fail; says what it heard of each transaction.
fn workload(options: Options) -> (BTreeMap<usize, Heard>, Vec<Error>) {
    let mut heard = BTreeMap::new();
    let mut errors = Vec::new();
    let opened = Database::open(DIRECTORY, options)
        .and_then(|db| db.create_tree("t", &TreeOptions::default()).map(|tree| (db, tree)));
    let (db, tree) = match opened {
        Ok(opened) => opened,
        Err(error) => return (heard, vec![error]),
    };
    for txn in 0..TXNS {
        let outcome = write(&db, &tree, txn);
        errors.extend(outcome.as_ref().err().cloned());
        heard.insert(txn, outcome.unwrap_or(Heard::Unknown));
        if txn % 10 == 9 {
            errors.extend(db.checkpoint().err());
        }
        for _ in 0..3 {
            errors.extend(db.step_background().err());
        }
    }
    errors.extend(db.close().err());
    (heard, errors)
}

/// What is there after reopening must agree with what was heard.
fn verify(storage: &MemoryStorage, heard: &BTreeMap<usize, Heard>, context: &str) {
    let db = match Database::open(DIRECTORY, options(storage)) {
        Ok(db) => db,
        Err(error) => panic!("{context}: {error}"),
    };
    db.check(&mut |finding| panic!("{context}: {finding:?}")).unwrap();
    let Ok(tree) = db.open_tree("t") else {
        assert!(heard.is_empty(), "{context}: the tree is gone");
        return;
    };
    let txn = begin(&db);
    let rows: BTreeMap<_, _> =
        collect(&mut txn.cursor(&tree, CursorOptions::default()).unwrap()).unwrap().into_iter().collect();
    for (number, heard) in heard {
        let present = (0..ROWS).filter(|row| rows.get(&key(*number, *row)) == Some(&value(*number, *row))).count();
        let some = (0..ROWS).filter(|row| rows.contains_key(&key(*number, *row))).count();
        match heard {
            Heard::Committed => assert_eq!(present, ROWS, "{context}: transaction {number} is lost"),
            Heard::RolledBack => assert_eq!(some, 0, "{context}: transaction {number} was rolled back"),
            Heard::Unknown => assert!(some == 0 || present == ROWS, "{context}: transaction {number} is torn"),
        }
    }
}

fn faulty(rule: Option<FaultRule>) -> (MemoryStorage, FaultPlan, Options) {
    let memory = MemoryStorage::new();
    let plan = FaultPlan::new();
    if let Some(rule) = rule {
        plan.add(rule);
    }
    let storage = FaultStorage::new(Arc::new(memory.clone()), plan.clone());
    let options = options(&memory).level0_bytes(64 << 10).storage(Some(Arc::new(storage)));
    (memory, plan, options)
}

fn changes() -> FaultRule {
    FaultRule::once(CallClass::Write, 1, Fault::Error).any_change()
}

/// Runs the workload once for every `stride`-th call that a rule watches.
fn each(rule: &FaultRule, stride: u64) {
    let mut nth = 1;
    loop {
        let (memory, plan, options) = faulty(Some(FaultRule { nth, ..rule.clone() }));
        let (heard, errors) = workload(options);
        let context = format!("{:?} at call {nth}", rule.fault);
        if plan.fired() == 0 {
            assert!(errors.is_empty(), "{context}: {errors:?}");
            assert!(nth > 100, "the workload makes few calls");
            return;
        }
        for error in &errors {
            assert!(expected(error), "{context}: {error}");
        }
        let image = if nth % 2 == 0 { memory.crash(nth) } else { memory.snapshot() };
        verify(&image, &heard, &context);
        nth += stride;
    }
}

fn stride() -> u64 {
    std::env::var("FAULT_STRIDE").ok().and_then(|value| value.parse().ok()).unwrap_or(3)
}

#[test]
fn every_failing_change_is_survived() {
    each(&changes(), stride());
}

#[test]
fn every_short_write_is_survived() {
    each(&FaultRule { fault: Fault::ShortWrite, classes: vec![CallClass::Write], ..changes() }, stride());
}

#[test]
fn a_disk_that_fails_for_good_is_survived() {
    each(&FaultRule { permanent: true, ..changes() }, 2 * stride());
}

#[test]
fn a_disk_that_is_full_from_any_call_on_is_survived() {
    let rule = FaultRule {
        fault: Fault::NoSpace,
        permanent: true,
        classes: vec![CallClass::Allocate, CallClass::SetLen],
        ..changes()
    };
    for nth in 1..40 {
        let (memory, plan, options) = faulty(Some(FaultRule { nth, ..rule.clone() }));
        let (heard, errors) = workload(options);
        if plan.fired() == 0 {
            return;
        }
        let context = format!("full at call {nth}");
        for error in &errors {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{context}: {error}");
        }
        verify(&memory.crash(nth), &heard, &context);
    }
}

#[test]
fn a_flipped_bit_in_any_read_is_never_served() {
    let (memory, _plan, first) = faulty(None);
    let (heard, errors) = workload(first);
    assert!(errors.is_empty(), "{errors:?}");
    let mut nth = 1;
    loop {
        let plan = FaultPlan::new();
        plan.add(FaultRule::once(CallClass::Read, nth, Fault::BitFlip));
        let image = memory.snapshot();
        let storage = FaultStorage::new(Arc::new(image.clone()), plan.clone());
        let scan = || -> Result<()> {
            let db = Database::open(DIRECTORY, options(&image).storage(Some(Arc::new(storage))))?;
            let tree = db.open_tree("t")?;
            let txn = db.begin(TxnOptions::default())?;
            let rows: BTreeMap<_, _> =
                collect(&mut txn.cursor(&tree, CursorOptions::default())?)?.into_iter().collect();
            for (number, heard) in &heard {
                for row in 0..ROWS {
                    let wanted = (*heard == Heard::Committed).then(|| value(*number, row));
                    assert_eq!(rows.get(&key(*number, row)), wanted.as_ref(), "flipped read {nth}");
                }
            }
            Ok(())
        };
        if let Err(error) = scan() {
            assert!(
                matches!(error.kind(), ErrorKind::Corruption | ErrorKind::UnsupportedFormat),
                "read {nth}: {error}"
            );
        }
        if plan.fired() == 0 {
            return;
        }
        nth += 1;
    }
}
