//! The merge rules against a model: whatever is compacted, every reader gets the same answer.

use proptest::prelude::*;

use super::*;
use crate::base::TxnId;
use crate::format::program::{Op, Overflow, Program};
use crate::format::visibility::Uncommitted;

/// What a transaction does to the one key of these tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Put,
    InsertIfAbsent,
    Delete,
    SingleDelete,
    Update,
    RangeDelete,
    Savepoint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Commit,
    Abort,
    CommitWithoutLastStep,
}

/// One transaction after the other, as the lock on the key makes them; the last may still be open.
#[derive(Debug, Clone)]
struct History {
    transactions: Vec<(Vec<Action>, Ending)>,
    last_is_open: bool,
    /// Another one then deletes the range and commits: the lock on the key was not one of this key.
    wiped: bool,
    /// The key is removed by single-deletes: then it is put only while absent, and neither updated nor
    /// deleted in full.
    single: bool,
}

fn history() -> impl Strategy<Value = History> {
    let action = prop_oneof![
        4 => Just(Action::Put),
        2 => Just(Action::InsertIfAbsent),
        2 => Just(Action::Delete),
        3 => Just(Action::SingleDelete),
        2 => Just(Action::Update),
        1 => Just(Action::RangeDelete),
        1 => Just(Action::Savepoint),
    ];
    let ending =
        prop_oneof![4 => Just(Ending::Commit), 1 => Just(Ending::Abort), 1 => Just(Ending::CommitWithoutLastStep)];
    let transactions = prop::collection::vec((prop::collection::vec(action, 1..4), ending), 1..7);
    (transactions, any::<bool>(), any::<bool>(), any::<bool>())
        .prop_map(|(transactions, last_is_open, wiped, single)| History { transactions, last_is_open, wiped, single })
}

struct World {
    /// Newest first.
    messages: Vec<Owned>,
    ranges: Vec<(u64, Stamp)>,
    fates: Vec<Fates>,
}

#[derive(Debug, Clone, PartialEq)]
struct Owned {
    seq: u64,
    stamp: Stamp,
    kind: Kind,
    payload: Vec<u8>,
}

impl Owned {
    fn borrow(&self) -> Message<'_> {
        Message { key: b"key!", seq: self.seq, stamp: self.stamp, kind: self.kind, blob: false, payload: &self.payload }
    }
}

#[derive(Debug, Clone, Copy)]
struct Fates {
    whole: Status,
    aborted_step: Option<u32>,
}

impl crate::format::Statuses for Vec<Fates> {
    fn status(&self, txn: TxnId, step: u32) -> Status {
        let fates = self[txn.0 as usize - 1];
        if fates.aborted_step == Some(step) { Status::Aborted } else { fates.whole }
    }
}

fn program(seq: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    let op = match seq % 5 {
        0 => Op::Append { bytes: vec![seq as u8] },
        1 => {
            let (offset, delta) = (1, seq as i64 % 3 * 90 - 90);
            Op::Add { offset, width: 1, big_endian: false, signed: true, delta, overflow: Overflow::Saturate }
        }
        _ => Op::SetBytes { offset: (seq % 3) as u32, bytes: vec![seq as u8] },
    };
    Program { ops: vec![op] }.encode(&mut payload);
    payload
}

/// Plays the history, with the contract of single-deletes kept.
fn play(history: &History) -> World {
    let mut world = World { messages: Vec::new(), ranges: Vec::new(), fates: Vec::new() };
    let mut committed_number = 0;
    let mut puts = 0u32; // 1: the key is there
    let mut seq = 0;
    for (index, (actions, ending)) in history.transactions.iter().enumerate() {
        let txn = TxnId(index as u64 + 1);
        let open = history.last_is_open && index + 1 == history.transactions.len();
        let mut step = 0;
        let mut puts_at_step = vec![puts];
        for action in actions {
            seq += 1;
            let stamp = Stamp::Written { txn, step };
            let now = *puts_at_step.last().expect("one per step");
            let (kind, after) = match action {
                Action::Savepoint => {
                    step += 1;
                    puts_at_step.push(now);
                    continue;
                }
                Action::RangeDelete => {
                    world.ranges.push((seq, stamp));
                    puts_at_step[step as usize] = 0;
                    continue;
                }
                _ if history.single => match now {
                    0 => (Kind::Put, 1),
                    _ => (Kind::SingleDelete, 0),
                },
                Action::Put => (Kind::Put, 1),
                Action::InsertIfAbsent => (Kind::InsertIfAbsent, 1),
                Action::Delete | Action::SingleDelete => (Kind::Delete, 0),
                Action::Update => (Kind::Update, now),
            };
            puts_at_step[step as usize] = after;
            let payload = match kind {
                Kind::Put | Kind::InsertIfAbsent => vec![seq as u8; 4],
                Kind::Update => program(seq),
                _ => Vec::new(),
            };
            world.messages.insert(0, Owned { seq, stamp, kind, payload });
        }
        let mut fates = Fates { whole: Status::Active, aborted_step: None };
        if !open {
            match ending {
                Ending::Abort => fates.whole = Status::Aborted,
                Ending::Commit => puts = puts_at_step[step as usize],
                Ending::CommitWithoutLastStep => {
                    fates.aborted_step = Some(step);
                    puts = if step == 0 { puts } else { puts_at_step[step as usize - 1] };
                }
            }
            if *ending != Ending::Abort {
                committed_number += 1;
                fates.whole = Status::Committed(CommitNumber(committed_number));
            }
        }
        world.fates.push(fates);
    }
    if history.wiped {
        world.ranges.push((seq + 1, Stamp::Written { txn: TxnId(world.fates.len() as u64 + 1), step: 0 }));
        let whole = Status::Committed(CommitNumber(committed_number + 1));
        world.fates.push(Fates { whole, aborted_step: None });
    }
    world
}

fn read(world: &World, view: &View<'_>, messages: &[Owned], ranges: &[(u64, Stamp)]) -> Option<Vec<u8>> {
    let _ = world;
    let mut reader = KeyReader::new();
    ranges.iter().for_each(|(seq, stamp)| reader.range_delete(view, *seq, *stamp));
    let mut older = None;
    for message in messages {
        match reader.message(view, &message.borrow()) {
            Found::Undecided { .. } => {}
            Found::Absent => break,
            Found::Here => {
                older = Some(message.payload.clone());
                break;
            }
        }
    }
    reader.finish(older).expect("programs are well formed")
}

/// The answer by definition: replay what the view sees, oldest first.
fn replay(world: &World, view: &View<'_>) -> Option<Vec<u8>> {
    let mut all: Vec<(u64, Stamp, Option<&Owned>)> =
        world.messages.iter().map(|message| (message.seq, message.stamp, Some(message))).collect();
    all.extend(world.ranges.iter().map(|(seq, stamp)| (*seq, *stamp, None)));
    all.sort_by_key(|(seq, ..)| *seq);
    let mut value: Option<Vec<u8>> = None;
    for (_, stamp, message) in all {
        let is_delete = message.is_none_or(|message| matches!(message.kind, Kind::Delete | Kind::SingleDelete));
        if !view.sees(stamp, is_delete) {
            continue;
        }
        value = match message.map(|message| (message.kind, &message.payload)) {
            None | Some((Kind::Delete | Kind::SingleDelete, _)) => None,
            Some((Kind::Put, payload)) => Some(payload.clone()),
            Some((Kind::InsertIfAbsent, payload)) => value.or_else(|| Some(payload.clone())),
            Some((Kind::Update, payload)) => program::apply(payload, value).expect("well formed"),
        };
    }
    value
}

#[derive(Default)]
struct Kept(Vec<Owned>);

impl Sink for Kept {
    fn keep(&mut self, message: &Message<'_>) -> Result<()> {
        let Message { seq, stamp, kind, payload, .. } = *message;
        self.0.push(Owned { seq, stamp, kind, payload: payload.to_vec() });
        Ok(())
    }

    fn drop_blob(&mut self, _payload: &[u8]) {
        unreachable!("no blobs here");
    }
}

fn compacted(retention: &Retention<'_>, bottom: bool, messages: &[Owned], ranges: &[(u64, Stamp)]) -> Vec<Owned> {
    let mut kept = Kept::default();
    let borrowed: Vec<Message<'_>> = messages.iter().map(Owned::borrow).collect();
    if !borrowed.is_empty() {
        compact(&mut Stamper::new(), retention, bottom, &borrowed, ranges, &mut kept)
            .expect("programs are well formed");
    }
    kept.0
}

/// Level 0 forgets among these neighbours.
fn without_written_over(retention: &Retention<'_>, messages: &[Owned]) -> Vec<Owned> {
    let (mut stamper, mut left) = (Stamper::new(), Vec::<Owned>::new());
    for message in messages {
        let is_needless = |newer: &Owned| is_written_over(&mut stamper, retention, &newer.borrow(), &message.borrow());
        if !left.last().is_some_and(is_needless) {
            left.push(message.clone());
        }
    }
    left
}

/// Some of so many neighbours: from the lower number to the other, as far as there are so many.
fn part((one, other): (usize, usize), count: usize) -> (usize, usize) {
    (one.min(other).min(count), one.max(other).min(count))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn no_compaction_changes_what_any_reader_sees(
        history in history(),
        snapshot_bits: u8,
        horizon in 0u64..8,
        rounds in prop::collection::vec((0usize..12, 0usize..12), 1..4),
        forgotten in (0usize..12, 0usize..12),
    ) {
        let world = play(&history);
        let newest = world.fates.iter().filter_map(|fates| match fates.whole {
            Status::Committed(number) => Some(number.0),
            _ => None,
        }).max().unwrap_or(0);
        let horizon = horizon.min(newest);
        let mut snapshots: Vec<CommitNumber> =
            (horizon..=newest).filter(|number| *number == horizon || *number == newest || snapshot_bits >> (number % 8) & 1 == 1).map(CommitNumber).collect();
        snapshots.dedup();
        let retention = Retention { snapshots: snapshots.clone(), statuses: &world.fates };
        let own = history.last_is_open.then_some(TxnId(history.transactions.len() as u64));
        let mut views: Vec<View<'_>> = snapshots.iter().flat_map(|snapshot| {
            [None, own].map(|own| View { snapshot: *snapshot, own, uncommitted: Uncommitted::Hidden, statuses: &world.fates })
        }).collect();
        views.push(View { snapshot: CommitNumber::LATEST, own, uncommitted: Uncommitted::Hidden, statuses: &world.fates });
        let expected: Vec<_> = views.iter().map(|view| replay(&world, view)).collect();
        let uncompacted: Vec<_> = views.iter().map(|view| read(&world, view, &world.messages, &world.ranges)).collect();
        prop_assert_eq!(&expected, &uncompacted, "reading");
        let added = View { snapshot: CommitNumber(horizon), own, uncommitted: Uncommitted::Added, statuses: &world.fates };
        prop_assert_eq!(replay(&world, &added), read(&world, &added, &world.messages, &world.ranges), "reading what is added");

        // What level 0 drops by itself, of all messages: the same for all of them, and for who sees what is not committed.
        let left = without_written_over(&retention, &world.messages);
        let got: Vec<_> = views.iter().map(|view| read(&world, view, &left, &world.ranges)).collect();
        prop_assert_eq!(&expected, &got, "left {:?}", left);
        let seen = View { snapshot: CommitNumber::LATEST, own: None, uncommitted: Uncommitted::Seen, statuses: &world.fates };
        prop_assert_eq!(read(&world, &seen, &world.messages, &world.ranges), read(&world, &seen, &left, &world.ranges));

        // The same of neighbours: what is older lay deeper, and what is newer had not been written.
        let mut messages = world.messages.clone();
        let (from, to) = part(forgotten, messages.len());
        let left = without_written_over(&retention, &messages[from..to]);
        messages.splice(from..to, left);
        let got: Vec<_> = views.iter().map(|view| read(&world, view, &messages, &world.ranges)).collect();
        prop_assert_eq!(&expected, &got, "forgetting in {}..{} leaves {:?}", from, to, messages);

        // Of what level 0 has left, any neighbours, several times over, then everything at the bottom.
        for round in rounds {
            let (from, to) = part(round, messages.len());
            // A part sees the range-deletes that lie in it or above: below it they would not be read.
            let oldest = messages[from..to].last().map_or(0, |message| message.seq);
            let ranges: Vec<_> = world.ranges.iter().copied().filter(|(seq, _)| *seq > oldest).collect();
            let part = compacted(&retention, to == messages.len(), &messages[from..to], &ranges);
            messages.splice(from..to, part);
            let got: Vec<_> = views.iter().map(|view| read(&world, view, &messages, &world.ranges)).collect();
            prop_assert_eq!(&expected, &got, "compaction of {}..{} leaves {:?}", from, to, messages);
        }
        let messages = compacted(&retention, true, &messages, &world.ranges);
        let mut stamper = Stamper::new();
        let ranges: Vec<_> = world.ranges.iter().filter_map(|(seq, stamp)| {
            stamper.restamp(&retention, *stamp).filter(|stamp| *stamp != Stamp::Settled).map(|stamp| (*seq, stamp))
        }).collect();
        let got: Vec<_> = views.iter().map(|view| read(&world, view, &messages, &ranges)).collect();
        prop_assert_eq!(&expected, &got, "bottom leaves {:?}", messages);
        if newest == horizon && own.is_none() {
            prop_assert!(messages.len() <= 1, "one settled version at most, got {:?}", messages);
        }
    }
}

#[test]
fn what_a_range_delete_hides_from_all_leaves_with_it_though_it_is_undecided() {
    let fates = vec![Fates { whole: Status::Active, aborted_step: None }];
    let retention = Retention { snapshots: vec![CommitNumber(5)], statuses: &fates };
    for kind in [Kind::Put, Kind::InsertIfAbsent, Kind::Delete, Kind::SingleDelete, Kind::Update] {
        let stamp = Stamp::Written { txn: TxnId(1), step: 0 };
        let message = Owned { seq: 3, stamp, kind, payload: program(3) };
        for range in [Stamp::Settled, Stamp::Committed(CommitNumber(5))] {
            let older = std::slice::from_ref(&message);
            assert_eq!(compacted(&retention, true, older, &[(4, range)]), [], "{kind:?}");
            assert_eq!(compacted(&retention, true, older, &[(2, range)]).len(), 1, "{kind:?}");
        }
        let kept =
            compacted(&retention, true, std::slice::from_ref(&message), &[(4, Stamp::Committed(CommitNumber(6)))]);
        assert_eq!(kept, [message], "an older snapshot does not see the range-delete");
    }
}

#[test]
fn a_single_delete_leaves_only_with_its_put() {
    let fates: Vec<Fates> = Vec::new();
    let retention = Retention { snapshots: vec![CommitNumber(5)], statuses: &fates };
    let message = |seq, kind| Owned { seq, stamp: Stamp::Settled, kind, payload: Vec::new() };
    let put_over = [message(3, Kind::Put), message(2, Kind::SingleDelete)];
    assert_eq!(compacted(&retention, false, &put_over, &[]), put_over, "the older put lies deeper");
    let all = [message(4, Kind::SingleDelete), message(3, Kind::Put), message(2, Kind::SingleDelete)];
    assert_eq!(compacted(&retention, false, &all, &[]), [message(2, Kind::SingleDelete)]);
}

/// What level 0 forgets while everybody sees both messages: whatever lies under a put or delete, but no single-delete, and nothing under one (R4).
#[test]
fn a_single_delete_is_not_written_over_and_writes_nothing_over() {
    let fates: Vec<Fates> = Vec::new();
    let retention = Retention { snapshots: vec![CommitNumber(5)], statuses: &fates };
    for newer in [Kind::Put, Kind::InsertIfAbsent, Kind::Delete, Kind::SingleDelete, Kind::Update] {
        for older in [Kind::Put, Kind::InsertIfAbsent, Kind::Delete, Kind::SingleDelete, Kind::Update] {
            let pair = [settled(4, newer, program(4)), settled(3, older, program(3))];
            let expected = matches!(newer, Kind::Put | Kind::Delete) && older != Kind::SingleDelete;
            let left = without_written_over(&retention, &pair).len();
            assert_eq!(left, if expected { 1 } else { 2 }, "{older:?} under {newer:?}");
        }
    }
}

#[test]
fn a_single_delete_stays_at_the_bottom_while_a_snapshot_keeps_its_put() {
    let fates: Vec<Fates> = Vec::new();
    let snapshots = |numbers: &[u64]| numbers.iter().copied().map(CommitNumber).collect();
    let message = |number, kind, payload| {
        let stamp = Stamp::Committed(CommitNumber(number));
        Owned { seq: number, stamp, kind, payload }
    };
    let mut or_else = Vec::new();
    Program { ops: vec![Op::IfNull { value: vec![7] }] }.encode(&mut or_else);
    for above in [message(9, Kind::InsertIfAbsent, vec![7]), message(9, Kind::Update, or_else)] {
        let kind = above.kind;
        let all = [above, message(8, Kind::SingleDelete, Vec::new()), message(5, Kind::Put, vec![5])];
        let retention = Retention { snapshots: snapshots(&[6, 10]), statuses: &fates };
        let mut left = compacted(&retention, true, &all, &[]);
        left.insert(0, message(12, Kind::SingleDelete, Vec::new()));
        let later = Retention { snapshots: snapshots(&[12]), statuses: &fates };
        assert_eq!(compacted(&later, true, &left, &[]), [], "{kind:?}");
    }
}

#[test]
fn an_insert_that_finds_a_value_leaves() {
    let fates = vec![Fates { whole: Status::Active, aborted_step: None }];
    let retention = Retention { snapshots: vec![CommitNumber(5), CommitNumber(8)], statuses: &fates };
    // Newest first; what stays is named by its number in the order of writing.
    let left = |bottom, messages: &[(Stamp, Kind)]| -> Vec<u64> {
        let owned = |(at, (stamp, kind)): (usize, &(Stamp, Kind))| {
            let seq = (messages.len() - at) as u64;
            Owned { seq, stamp: *stamp, kind: *kind, payload: program(seq) }
        };
        let messages: Vec<Owned> = messages.iter().enumerate().map(owned).collect();
        compacted(&retention, bottom, &messages, &[]).iter().map(|message| message.seq).collect()
    };
    let at = |number| Stamp::Committed(CommitNumber(number));
    let open = |step| Stamp::Written { txn: TxnId(1), step };
    let (insert, update, put) = (Kind::InsertIfAbsent, Kind::Update, Kind::Put);
    for bottom in [false, true] {
        assert_eq!(left(bottom, &[(at(3), insert), (at(2), insert), (at(1), insert)]), [1]);
        assert_eq!(
            left(bottom, &[(at(7), insert), (at(6), insert), (at(1), insert)]),
            [2, 1],
            "a snapshot lies between"
        );
        assert_eq!(left(bottom, &[(open(3), insert), (open(3), insert)]), [1]);
        assert_eq!(left(bottom, &[(open(4), insert), (open(3), insert)]), [2, 1], "the second step alone may stay");
    }
    // An update takes no row away, and of several before and behind inserts that say nothing one is left.
    assert_eq!(left(false, &[(at(3), insert), (at(2), update), (at(1), insert)]), [2, 1]);
    let alternating = [(at(5), insert), (at(4), update), (at(3), insert), (at(2), update), (at(1), insert)];
    assert_eq!(left(false, &alternating), [4, 1]);
    assert_eq!(left(false, &[(at(2), insert), (at(1), update)]), [2, 1], "what is deeper may be nothing");
    assert_eq!(left(false, &[(at(7), insert), (at(6), update), (at(1), put)]), [3, 2, 1]);
    // To its own transaction, which reads at the first snapshot, the update says nothing.
    assert_eq!(left(true, &[(open(3), insert), (open(3), update), (at(8), put)]), [3, 2, 1]);
    assert_eq!(left(true, &[(open(3), insert), (open(3), update), (open(3), insert)]), [2, 1]);
}

/// A message that everybody sees.
fn settled(seq: u64, kind: Kind, payload: Vec<u8>) -> Owned {
    Owned { seq, stamp: Stamp::Settled, kind, payload }
}

/// The payload of an update.
fn encoded(ops: Vec<Op>) -> Vec<u8> {
    let mut payload = Vec::new();
    Program { ops }.encode(&mut payload);
    payload
}

#[test]
fn a_read_keeps_little_of_very_many_counts_of_a_row_that_may_be_new() {
    let statuses: Vec<Fates> = Vec::new();
    let (snapshot, own, uncommitted) = (CommitNumber::LATEST, None, Uncommitted::Hidden);
    let view = View { snapshot, own, uncommitted, statuses: &statuses };
    let add = |overflow| Op::Add { offset: 0, width: 2, big_endian: false, signed: false, delta: 7, overflow };
    let mut reader = KeyReader::new();
    for overflow in [Overflow::Wrap, Overflow::Saturate] {
        for in_one in [true, false] {
            reader.clear();
            // Newest first: each row is inserted if it is not there, then added to.
            for seq in (0..20_000u64).rev() {
                let given = vec![(seq % 5) as u8, 0];
                let messages = if in_one {
                    vec![(Kind::Update, encoded(vec![Op::IfNull { value: given }, add(overflow)]))]
                } else {
                    vec![(Kind::Update, encoded(vec![add(overflow)])), (Kind::InsertIfAbsent, given)]
                };
                for (kind, payload) in messages {
                    let found = reader.message(&view, &settled(seq, kind, payload).borrow());
                    assert_eq!(found, Found::Undecided { by: None });
                }
            }
            let kept: usize = reader
                .pending
                .iter()
                .map(|pending| match pending {
                    Pending::Updates(program, _) => program.ops.len(),
                    _ => 1,
                })
                .sum();
            assert!(kept < 60, "in_one={in_one} {overflow:?}: kept={kept}");
            let expected = if overflow == Overflow::Wrap { (20_000u32 * 7) as u16 } else { u16::MAX };
            assert_eq!(reader.finish(None).expect("well formed"), Some(expected.to_le_bytes().to_vec()));
        }
    }
}

#[test]
fn a_read_keeps_little_of_very_many_updates_of_the_same_bytes() {
    let statuses: Vec<Fates> = Vec::new();
    let (snapshot, own, uncommitted) = (CommitNumber::LATEST, None, Uncommitted::Hidden);
    let view = View { snapshot, own, uncommitted, statuses: &statuses };
    let add = |at: u64| {
        let (offset, overflow) = (4 * (at % 10) as u32, Overflow::Wrap);
        encoded(vec![Op::Add { offset, width: 4, big_endian: false, signed: false, delta: 1, overflow }])
    };
    let mut reader = KeyReader::new();
    for kinds in [&[Kind::Update][..], &[Kind::InsertIfAbsent], &[Kind::Update, Kind::InsertIfAbsent]] {
        reader.clear();
        for seq in (0..20_000).rev() {
            let kind = kinds[usize::from(seq < 10_000) % kinds.len()];
            let payload = if kind == Kind::Update { add(seq) } else { vec![seq as u8; 40] };
            let found = reader.message(&view, &settled(seq, kind, payload).borrow());
            assert_eq!(found, Found::Undecided { by: None });
        }
        assert!(reader.pending.len() < 20, "{kinds:?}: pending={}", reader.pending.len());
        let value = reader.finish(Some(vec![0; 40]).filter(|_| kinds.len() == 1)).expect("well formed");
        let each = if kinds == [Kind::Update] { 2_000u32 } else { 1_000 };
        if kinds[0] == Kind::Update {
            assert_eq!(value, Some([each.to_le_bytes(); 10].concat()));
        } else {
            assert_eq!(value, Some(vec![0; 40]));
        }
    }
}

/// These take seconds or forever, according to how time grows with the number of messages.
#[test]
fn a_key_with_very_many_versions_is_compacted() {
    const COUNT: u64 = 200_000;
    let statuses = vec![Fates { whole: Status::Active, aborted_step: None }];
    let retention = Retention { snapshots: vec![CommitNumber(5)], statuses: &statuses };
    let newest_first = |at: &dyn Fn(u64) -> (Stamp, Kind, Vec<u8>)| {
        let owned = |seq| {
            let (stamp, kind, payload) = at(seq);
            Owned { seq, stamp, kind, payload }
        };
        (1..=COUNT).rev().map(owned).collect::<Vec<_>>()
    };
    let encoded = |op: Op| {
        let mut payload = Vec::new();
        Program { ops: vec![op] }.encode(&mut payload);
        payload
    };
    let add = |overflow| encoded(Op::Add { offset: 0, width: 4, big_endian: false, signed: false, delta: 1, overflow });
    let put = Owned { seq: 0, stamp: Stamp::Settled, kind: Kind::Put, payload: vec![0; 4] };

    for overflow in [Overflow::Wrap, Overflow::Saturate] {
        let mut messages = newest_first(&|_| (Stamp::Settled, Kind::Update, add(overflow)));
        let folded = compacted(&retention, false, &messages, &[]);
        assert_eq!(folded.len(), 1);
        messages.push(put.clone());
        for messages in [messages, vec![folded[0].clone(), put.clone()]] {
            let value = compacted(&retention, true, &messages, &[]);
            assert_eq!((value.len(), &value[0].payload[..]), (1, &(COUNT as u32).to_le_bytes()[..]));
        }
    }
    let mut messages =
        newest_first(&|seq| (Stamp::Settled, Kind::Update, encoded(Op::Append { bytes: vec![seq as u8; 40] })));
    messages.push(put);
    assert_eq!(compacted(&retention, true, &messages, &[])[0].payload.len(), 4 + 40 * COUNT as usize);
    // A transaction with a savepoint before each of its writes, which is still open.
    let stamp = |step| Stamp::Written { txn: TxnId(1), step };
    for kind in [Kind::Put, Kind::Update] {
        let messages = newest_first(&|seq| (stamp(seq as u32), kind, add(Overflow::Wrap)));
        assert_eq!(compacted(&retention, true, &messages, &[]).len(), COUNT as usize);
    }
}
