//! The i-th call to the storage fails, for every i of a workload with transactions, blobs, flushes, compactions and
//! checkpoints, reads and the opening included: typed errors, never a panic, and after a crash every acknowledged commit is
//! there, whole. That the workload does all this is asserted where it ends without a fault.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use fronddb::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage};
use fronddb::tree::TreeTuning;
use fronddb::{
    Codec, CursorOptions, Database, Error, ErrorKind, Options, Result, Statistics, Tree, TreeOptions, TxnOptions,
    WriteBatch,
};

use crate::support::{DIRECTORY, Random, begin, collect, options};

const ROWS: usize = 6;
const TXNS: usize = 40;
/// Places of each read in which a bit is flipped.
const FLIPS_EACH: u64 = 16;

/// What the workload heard about each of its transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Committed,
    Unknown,
    RolledBack,
}

fn value(txn: usize, row: usize) -> Vec<u8> {
    let length = if row == 0 && txn.is_multiple_of(5) { 9000 } else { 150 };
    Random::new((txn * ROWS + row) as u64).bytes(length)
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
    // What cannot be read of the data file is damaged.
    let is_unread = error.kind() == ErrorKind::Corruption && error.message().contains("injected: Read failed");
    is_unread || matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned)
}

/// What came of the workload.
#[derive(Default)]
struct Outcome {
    heard: BTreeMap<usize, Heard>,
    errors: Vec<Error>,
    /// How the database stood before it was closed.
    statistics: Statistics,
}

impl Outcome {
    /// Nothing failed, and all was done that is to be met by failures.
    fn assert_whole(&self) {
        assert!(self.errors.is_empty(), "{:?}", self.errors);
        let done = &self.statistics;
        assert!(done.height > 1 && done.flush_bytes > 0, "nothing was flushed into a child, height={}", done.height);
        assert!(done.compactions > 0 && done.compact_bytes > 0, "{done:?}");
        assert!(done.checkpoints_by_request > 1 && done.seals > 1 && done.publications > 3, "{done:?}");
        assert!(done.blob_bytes > 0 && done.blocks_read > 0 && done.rollbacks > 0, "{done:?}");
    }
}

/// Runs the workload on a storage that may fail: two sessions, so that opening is met with a log to replay.
fn workload(options: &Options) -> Outcome {
    let mut outcome = Outcome::default();
    for txns in [0..TXNS / 2 + 5, TXNS / 2 + 5..TXNS] {
        // What failed once may do at the second attempt.
        let opened = open(options).or_else(|error| {
            outcome.errors.push(error);
            open(options)
        });
        match opened {
            Ok((db, tree)) => session(db, &tree, txns, &mut outcome),
            Err(error) => outcome.errors.push(error),
        }
    }
    outcome
}

fn open(options: &Options) -> Result<(Database, Tree)> {
    let db = Database::open(DIRECTORY, options.clone())?;
    let tree = match db.open_tree("t") {
        Err(error) if error.kind() == ErrorKind::NotFound => db.create_tree("t", &TreeOptions::default())?,
        opened => opened?,
    };
    Ok((db, tree))
}

fn session(db: Database, tree: &Tree, txns: Range<usize>, outcome: &mut Outcome) {
    for txn in txns {
        let written = write(&db, tree, txn);
        outcome.errors.extend(written.as_ref().err().cloned());
        outcome.heard.insert(txn, written.unwrap_or(Heard::Unknown));
        if txn % 10 == 9 {
            outcome.errors.extend(db.checkpoint().err());
        }
        for _ in 0..3 {
            outcome.errors.extend(db.step_background().err());
        }
    }
    let scan =
        || -> Result<_> { collect(&mut db.begin(TxnOptions::default())?.cursor(tree, CursorOptions::default())?) };
    outcome.errors.extend(scan().err());
    outcome.statistics = db.statistics().unwrap();
    outcome.errors.extend(db.close().err());
}

/// What is there after reopening must agree with what was heard.
fn verify(storage: &MemoryStorage, heard: &BTreeMap<usize, Heard>, context: &str) {
    let db = match Database::open(DIRECTORY, options(storage)) {
        Ok(db) => db,
        Err(error) => panic!("{context}: {error}"),
    };
    db.check(&mut |finding| panic!("{context}: {finding:?}"), None).unwrap();
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
    let options = small(options(&memory).storage(Some(Arc::new(storage))));
    (memory, plan, options)
}

/// So small that few rows make a tree of several levels.
fn small(options: Options) -> Options {
    let tuning =
        TreeTuning { fanout_max: 3, leaf_bytes_max: 4 << 10, node_buffer_bytes: 4 << 10, ..TreeTuning::tiny() };
    options.level0_bytes(64 << 10).default_codec(Codec::None).tree_tuning(Some(tuning))
}

/// Every call is watched.
fn calls() -> FaultRule {
    FaultRule::once(CallClass::Open, 1, Fault::Error).any_call()
}

/// Runs the workload once for every `stride`-th call that a rule watches.
fn each(rule: &FaultRule, stride: u64) {
    let mut nth = 1;
    loop {
        let (memory, plan, options) = faulty(Some(FaultRule { nth, ..rule.clone() }));
        let outcome = workload(&options);
        let context = format!("{:?} at call {nth}", rule.fault);
        if plan.fired() == 0 {
            outcome.assert_whole();
            for class in CallClass::ALL.iter().filter(|class| rule.classes.is_empty() || rule.classes.contains(class)) {
                assert!(plan.calls(*class) > 0, "the workload makes no such call, class={class:?}");
            }
            return;
        }
        for error in &outcome.errors {
            assert!(expected(error), "{context}: {error}");
        }
        let image = if nth % 2 == 0 { memory.crash(nth) } else { memory.snapshot() };
        verify(&image, &outcome.heard, &context);
        nth += stride;
    }
}

fn stride() -> u64 {
    std::env::var("FAULT_STRIDE").ok().and_then(|value| value.parse().ok()).unwrap_or(1)
}

#[test]
fn every_failing_call_is_survived() {
    each(&calls(), stride());
}

#[test]
fn every_short_write_is_survived() {
    each(&FaultRule { fault: Fault::ShortWrite, classes: vec![CallClass::Write], ..calls() }, stride());
}

#[test]
fn a_disk_that_fails_for_good_is_survived() {
    each(&FaultRule { permanent: true, ..calls() }, stride());
}

#[test]
fn a_disk_that_is_full_from_any_call_on_is_survived() {
    let rule = FaultRule {
        fault: Fault::NoSpace,
        permanent: true,
        classes: vec![CallClass::Allocate, CallClass::SetLen],
        ..calls()
    };
    for nth in 1.. {
        let (memory, plan, options) = faulty(Some(FaultRule { nth, ..rule.clone() }));
        let outcome = workload(&options);
        if plan.fired() == 0 {
            outcome.assert_whole();
            return;
        }
        let context = format!("full at call {nth}");
        for error in &outcome.errors {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{context}: {error}");
        }
        verify(&memory.crash(nth), &outcome.heard, &context);
    }
}

#[test]
fn a_flipped_bit_in_any_read_is_never_served() {
    let (memory, _plan, first) = faulty(None);
    let outcome = workload(&first);
    outcome.assert_whole();
    let scan = |plan: &FaultPlan| -> Result<()> {
        let image = memory.snapshot();
        let storage = FaultStorage::new(Arc::new(image.clone()), plan.clone());
        let db = Database::open(DIRECTORY, small(options(&image).storage(Some(Arc::new(storage)))))?;
        let tree = db.open_tree("t")?;
        let txn = db.begin(TxnOptions::default())?;
        let rows: BTreeMap<_, _> = collect(&mut txn.cursor(&tree, CursorOptions::default())?)?.into_iter().collect();
        for (number, heard) in &outcome.heard {
            for row in 0..ROWS {
                let wanted = (*heard == Heard::Committed).then(|| value(*number, row));
                assert_eq!(rows.get(&key(*number, row)), wanted.as_ref());
            }
        }
        Ok(())
    };
    let (mut flipped, mut noticed) = (0, Vec::new());
    for nth in 1.. {
        for draw in 0..FLIPS_EACH {
            let plan = FaultPlan::seeded(nth * FLIPS_EACH + draw);
            plan.add(FaultRule::once(CallClass::Read, nth, Fault::BitFlip));
            let result = scan(&plan);
            if plan.fired() == 0 {
                result.unwrap();
                // The others met zeros, the rest of a page, or what a copy stands in for.
                assert!(noticed.len() > flipped / 8, "noticed={} flipped={flipped}", noticed.len());
                noticed.dedup();
                assert!(noticed.len() as u64 > nth / 2, "reads where a flip was noticed: {noticed:?} of {nth}");
                return;
            }
            flipped += 1;
            if let Err(error) = result {
                let kinds = [ErrorKind::Corruption, ErrorKind::UnsupportedFormat];
                assert!(kinds.contains(&error.kind()), "read {nth}, draw {draw}: {error}");
                noticed.push(nth);
            }
        }
    }
}
