//! Rows of many versions.

use super::*;
use crate::tree::source::MOVES;

const VERSIONS: u64 = 3_000;

/// How often `step` moves a source.
fn moves(step: impl FnOnce()) -> u64 {
    let before = MOVES.get();
    step();
    MOVES.get() - before
}

/// Three rows beside each other, the one in the middle of many versions of all kinds, with snapshots among them.
fn hot_row() -> Harness {
    let mut harness = Harness::new();
    let mut append = Vec::new();
    Program { ops: vec![Op::Append { bytes: b"+".to_vec() }] }.encode(&mut append);
    [3, 6, 9].iter().for_each(|number| harness.write(&key(*number), Kind::Put, b"row"));
    for version in 0..VERSIONS {
        match version % 40 {
            0..10 => harness.write(&key(6), Kind::Put, &version.to_be_bytes()),
            10 => harness.write(&key(6), Kind::Delete, &[]),
            11..15 => harness.write(&key(6), Kind::InsertIfAbsent, &version.to_be_bytes()),
            _ => harness.write(&key(6), Kind::Update, &append),
        }
        if version % 247 == 0 {
            harness.snapshots.push(CommitNumber(harness.now));
        }
    }
    harness
}

#[test]
fn a_row_of_many_versions_is_read_both_ways_as_it_was_at_any_time() {
    let mut harness = hot_row();
    harness.check();
    // Half of them in a run.
    harness.seal_all();
    for version in 0..VERSIONS {
        harness.write(&key(6), Kind::Put, &version.to_le_bytes());
    }
    harness.check();
    harness.check_to_the_end();
}

#[test]
fn a_scan_passes_a_row_of_many_versions_without_going_through_them() {
    let mut harness = hot_row();
    harness.write(&key(6), Kind::Put, b"newest");
    let mut cursor =
        harness.tree.cursor(harness.view(CommitNumber::LATEST), Vec::new(), None, CursorOptions::default());
    let forward = moves(|| {
        assert!(cursor.first().expect("first"));
        while cursor.next().expect("next") {}
    });
    let backward = moves(|| {
        assert!(cursor.last().expect("last"));
        while cursor.prev().expect("prev") {}
    });
    assert!(forward < 40 && backward < 60, "forward={forward} backward={backward}");
}

/// Answers that a transaction has committed, and updates a row meanwhile, again and again.
struct Busy {
    memtable: Arc<Memtable>,
    key: Vec<u8>,
    asked: AtomicU64,
}

impl Statuses for Busy {
    fn status(&self, txn: TxnId, _step: u32) -> Status {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if asked < 1000 {
            put_at(&self.memtable, &self.key, Kind::Update, 1000 + asked, || None);
        }
        Status::Committed(CommitNumber(txn.0))
    }
}

/// A message with this number, by the transaction of that number.
fn put_at<'r>(
    memtable: &Memtable,
    key: &[u8],
    kind: Kind,
    seq: u64,
    retention: impl FnOnce() -> Option<Retention<'r>>,
) {
    let mut append = Vec::new();
    Program { ops: vec![Op::Append { bytes: b"+".to_vec() }] }.encode(&mut append);
    let payload = if kind == Kind::Update { append.as_slice() } else { b"row" };
    let message = Message { key, seq, stamp: Stamp::Settled, kind, blob: false, payload };
    memtable.insert(seq, (TxnId(seq), 0), &message, retention);
}

#[test]
fn updates_of_others_keep_no_reader_of_the_uncommitted() {
    let harness = Harness::new();
    let (memtable, key) = (harness.tree.version().active.clone(), key(6));
    put_at(&memtable, &key, Kind::Put, 1, || None);
    put_at(&memtable, &key, Kind::Update, 2, || None);
    let busy = Arc::new(Busy { memtable, key: key.clone(), asked: AtomicU64::new(0) });
    let statuses: Arc<dyn Statuses> = busy.clone();
    let view =
        OwnedView { statuses: statuses.into(), uncommitted: Uncommitted::Seen, ..harness.view(CommitNumber::LATEST) };
    let value = harness.tree.get(&harness.tree.version(), &view.view(), &key).expect("get");
    assert_eq!(value.as_deref(), Some(&b"row+"[..]));
    assert_eq!(busy.asked.load(Ordering::Relaxed), 2, "it looks at each message once");
}

#[test]
fn a_row_that_is_added_again_while_a_cursor_stands_before_it_is_met() {
    let mut harness = Harness::new();
    [3, 6].iter().for_each(|number| harness.write(&key(*number), Kind::Put, b"row"));
    harness.seal_all();
    let (memtable, positioned) = (harness.tree.version().active.clone(), harness.now);
    let nothing = || None;
    put_at(&memtable, &key(9), Kind::Put, positioned + 1, nothing);
    put_at(&memtable, &key(9), Kind::Delete, positioned + 2, nothing);
    let view = OwnedView { uncommitted: Uncommitted::Added, ..harness.view(CommitNumber(positioned)) };
    let mut cursor = harness.tree.cursor(view, Vec::new(), None, CursorOptions::default());
    assert!(cursor.first().expect("first"));
    for seq in positioned + 3..positioned + 40 {
        let snapshots = vec![CommitNumber(positioned), CommitNumber(seq - 1)];
        put_at(&memtable, &key(9), Kind::Put, seq, || Some(Retention { snapshots, statuses: &AllCommitted }));
    }
    assert!(memtable.messages() < 30, "nothing was forgotten");
    assert!(cursor.next().expect("next") && cursor.next().expect("next"), "the row is passed over");
    assert_eq!(cursor.key(), key(9));
}
