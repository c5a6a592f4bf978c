//! Ids whose state goes: behind an old snapshot with their memtables and runs; of aborted ones, how little of their list is made anew;
//! and that long random histories are answered as a model answers them, with fates that stay open, horizons that stay behind and
//! memtables that are flushed.

use super::*;

/// Ends so many transactions; those that committed, with their numbers.
fn end_many(table: &StatusTable, count: u64, memtable: u64) -> Result<Vec<(TxnId, CommitNumber)>> {
    let mut committed = Vec::new();
    for n in 0..count {
        let txn = table.begin();
        if n % 7 == 1 {
            table.abort_steps_with(txn, 2, 3, memtable, || Ok(Lsn(0)))?;
        }
        if n % 5 == 1 { abort(table, txn, memtable)? } else { committed.push((txn, commit(table, txn)?)) }
    }
    Ok(committed)
}

fn numbers_are_known(table: &StatusTable, committed: &[(TxnId, CommitNumber)]) -> bool {
    committed.iter().all(|(txn, number)| table.status(*txn, 0) == Status::Committed(*number))
}

#[test]
fn behind_an_old_snapshot_states_go_with_their_memtables() -> Result<()> {
    const PER_MEMTABLE: u64 = 3000;
    let table = StatusTable::new();
    let snapshots = Snapshots::new(&table);
    let old = snapshots.acquire();
    let reads = |memtables: &[u64]| table.advance(snapshots.horizon(), || memtables.to_vec());
    let mut before = Vec::new();
    for memtable in 1..60 {
        let committed = end_many(&table, PER_MEMTABLE, memtable)?;
        // The one before is written into the tree only now.
        reads(&[memtable.saturating_sub(1), memtable]);
        assert!(numbers_are_known(&table, &before) && numbers_are_known(&table, &committed), "memtable={memtable}");
        reads(&[memtable]);
        assert!(numbers_are_known(&table, &committed), "memtable={memtable}");
        let chunks = table.states.chunks();
        assert!(chunks <= 8, "memtable={memtable} chunks={chunks}");
        before = committed;
    }
    assert!(table.low_water().0 > 57 * PER_MEMTABLE && old.number() == CommitNumber(0));
    // Nobody asks.
    assert_eq!(table.status(TxnId(1), 0), Status::Committed(CommitNumber(0)));
    Ok(())
}

#[test]
fn behind_an_old_snapshot_states_stay_for_who_reads_an_old_memtable_and_for_runs_that_list_them() -> Result<()> {
    let table = StatusTable::new();
    let snapshots = Snapshots::new(&table);
    let _old = snapshots.acquire();
    let reads = |memtables: &[u64]| table.advance(snapshots.horizon(), || memtables.to_vec());
    reads(&[1]);
    let first = end_many(&table, 4000, 1)?;
    reads(&[1]);
    // Undecided when its memtable is written, and when the run is written again.
    let late = table.begin();
    table.note_run_added(&[late]);
    end_many(&table, 2000, 2)?;
    let late_number = commit(&table, late)?;
    for memtable in 3..20 {
        end_many(&table, 3000, memtable)?;
        reads(&[1, memtable]);
        assert!(numbers_are_known(&table, &first) && numbers_are_known(&table, &[(late, late_number)]));
        let chunks = table.states.chunks();
        assert!(chunks <= 16, "memtable={memtable} chunks={chunks}");
    }
    reads(&[20]);
    assert!(table.states.chunks() <= 4 && numbers_are_known(&table, &[(late, late_number)]), "a run lists it");
    assert_eq!(table.status(first[0].0, 0), Status::Committed(CommitNumber(0)));
    table.note_run_added(&[late]);
    table.note_run_removed(&[late]);
    table.note_run_released(&[late]);
    table.note_run_removed(&[late]);
    reads(&[20]);
    assert!(numbers_are_known(&table, &[(late, late_number)]), "somebody may read the run");
    table.note_run_released(&[late]);
    reads(&[20]);
    assert_eq!(table.status(late, 0), Status::Committed(CommitNumber(0)));
    assert!(table.states.chunks() <= 3);
    Ok(())
}

#[test]
fn passed_aborts_are_made_anew_only_when_they_change() -> Result<()> {
    let table = StatusTable::new();
    let aborted = table.begin();
    abort(&table, aborted, 1)?;
    table.advance(table.visible(), all_read);
    let passed = table.states.passed_at();
    for _ in 0..3000 {
        let txn = table.begin();
        commit(&table, txn)?;
        table.advance(table.visible(), all_read);
        assert_eq!(table.low_water().0, txn.0 + 1);
        assert_eq!(table.states.passed_at(), passed);
    }
    assert_eq!(table.status(aborted, 0), Status::Aborted);
    let later = table.begin();
    abort(&table, later, 2)?;
    table.advance(table.visible(), all_read);
    assert_ne!(table.states.passed_at(), passed);
    assert_eq!([aborted, later].map(|txn| table.status(txn, 0)), [Status::Aborted; 2]);
    table.memtables_flushed_below(2);
    table.advance(table.visible(), all_read);
    let statuses = [aborted, later].map(|txn| table.status(txn, 0));
    assert_eq!(statuses, [Status::Committed(CommitNumber(0)), Status::Aborted]);
    Ok(())
}

#[test]
fn many_passed_aborts_stay_where_they_are_when_others_abort() -> Result<()> {
    let table = StatusTable::new();
    let aborted: Vec<TxnId> = (0..100_000).map(|_| table.begin()).collect();
    // A few can be forgotten before the others.
    let is_early = |txn: TxnId| txn.0 % 1000 == 7;
    aborted.iter().try_for_each(|txn| abort(&table, *txn, if is_early(*txn) { 1 } else { 2 }))?;
    table.advance(table.visible(), all_read);
    let mut passed = table.states.passed_at();
    for n in 0..3000 {
        let [first, second] = [table.begin(), table.begin()];
        abort(&table, first, 2)?;
        commit(&table, second)?;
        if n == 1000 {
            table.memtables_flushed_below(2);
        }
        table.advance(table.visible(), all_read);
        assert_eq!(table.low_water().0, second.0 + 1);
        let before = std::mem::replace(&mut passed, table.states.passed_at());
        assert!(passed.starts_with(&before[..before.len() - 1]), "n={n}: more than the last block was made anew");
        assert_eq!(table.status(first, 0), Status::Aborted);
    }
    assert!(aborted.iter().filter(|txn| !is_early(**txn)).all(|txn| table.status(*txn, 3) == Status::Aborted));
    table.memtables_flushed_below(3);
    table.advance(table.visible(), all_read);
    assert_eq!((table.states.passed(), table.backlog()), (0, BacklogStats::default()));
    assert_eq!(table.status(aborted[50_000], 0), Status::Committed(CommitNumber(0)), "forgotten");
    Ok(())
}

/// What became of a transaction, and in which memtables it may lie.
#[derive(Debug, Default)]
struct Fate {
    committed: Option<CommitNumber>,
    aborted: bool,
    aborted_steps: Vec<(u32, u32)>,
    /// The active one when something was last aborted, and when it ended.
    memtable: u64,
    ended_memtable: u64,
}

#[derive(Debug, Clone)]
enum Event {
    Abort(usize),
    Commit(usize),
    /// Transactions of which some steps are aborted commit, or go on.
    Steps(usize, bool),
    End(prop::sample::Index, bool),
    /// The next memtable; those so far behind it are flushed.
    Seal(u64),
    /// The newest commits are not seen by all snapshots.
    Advance(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1usize..700).prop_map(Event::Abort),
        3 => (1usize..700).prop_map(Event::Commit),
        2 => (1usize..60, any::<bool>()).prop_map(|(count, ends)| Event::Steps(if ends { count } else { 1 }, ends)),
        2 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(pick, commits)| Event::End(pick, commits)),
        2 => (0u64..4).prop_map(Event::Seal),
        5 => prop_oneof![Just(0), 1u64..900].prop_map(Event::Advance),
    ]
}

struct World {
    table: StatusTable,
    /// By id; the first is 1.
    fates: Vec<Fate>,
    open: Vec<TxnId>,
    memtable: u64,
    flushed_below: u64,
    horizon: CommitNumber,
}

impl World {
    fn new() -> World {
        let (table, horizon) = (StatusTable::new(), CommitNumber(0));
        World { table, fates: vec![Fate::default()], open: Vec::new(), memtable: 1, flushed_below: 1, horizon }
    }

    fn begin(&mut self) -> TxnId {
        self.fates.push(Fate::default());
        self.table.begin()
    }

    fn fate(&mut self, txn: TxnId) -> &mut Fate {
        let memtable = self.memtable;
        let fate = &mut self.fates[txn.0 as usize];
        fate.memtable = memtable;
        fate
    }

    fn end(&mut self, txn: TxnId, commits: bool) -> Result<()> {
        if commits {
            let number = commit(&self.table, txn)?;
            let fate = &mut self.fates[txn.0 as usize];
            (fate.committed, fate.ended_memtable) = (Some(number), self.memtable);
        } else {
            abort(&self.table, txn, self.memtable)?;
            self.fate(txn).aborted = true;
        }
        Ok(())
    }

    fn apply(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Abort(count) | Event::Commit(count) => {
                for _ in 0..count {
                    let txn = self.begin();
                    self.end(txn, matches!(event, Event::Commit(_)))?;
                }
            }
            Event::Steps(count, ends) => {
                for n in 0..count as u32 {
                    let txn = self.begin();
                    for (from, to) in [(1, 1 + n % 3), (7, 7), (u32::MAX - 9, u32::MAX - 8)] {
                        self.table.abort_steps_with(txn, from, to, self.memtable, || Ok(Lsn(0)))?;
                        self.fate(txn).aborted_steps.push((from, to));
                    }
                    if ends { self.end(txn, true)? } else { self.open.push(txn) }
                }
            }
            Event::End(pick, commits) if !self.open.is_empty() => {
                let txn = self.open.swap_remove(pick.index(self.open.len()));
                self.end(txn, commits)?;
            }
            Event::End(..) => {}
            Event::Seal(kept) => {
                self.memtable += 1;
                self.flushed_below = self.flushed_below.max(self.memtable.saturating_sub(kept));
                self.table.memtables_flushed_below(self.flushed_below);
            }
            Event::Advance(behind) => {
                self.horizon = self.horizon.max(CommitNumber(self.table.visible().0.saturating_sub(behind)));
                self.table.advance(self.horizon, || (self.flushed_below..=self.memtable).collect());
                // What has been forgotten is a quarter of the list at most.
                let held = self.fates.iter().filter(|fate| fate.memtable >= self.flushed_below);
                let held: usize = held.map(|fate| if fate.aborted { 1 } else { fate.aborted_steps.len() }).sum();
                assert!(3 * self.table.states.passed() <= 4 * held, "{} of {held}", self.table.states.passed());
            }
        }
        Ok(())
    }

    /// Looks at every `stride`th transaction.
    fn check(&self, stride: usize) {
        for (id, fate) in self.fates.iter().enumerate().skip(1).step_by(stride) {
            let is_forgotten = fate.memtable < self.flushed_below;
            for step in [0, 1, 2, 3, 7, 8, u32::MAX - 9, u32::MAX - 7] {
                let is_undone = fate.aborted_steps.iter().any(|(from, to)| (*from..=*to).contains(&step));
                if is_forgotten && (fate.aborted || is_undone) {
                    continue;
                }
                let answer = self.table.status(TxnId(id as u64), step);
                let is_right = match (fate.aborted || is_undone, fate.committed) {
                    (true, _) => answer == Status::Aborted,
                    (false, None) => answer == Status::Active,
                    (false, Some(number)) => {
                        let may_be_settled = number <= self.horizon || fate.ended_memtable < self.flushed_below;
                        let is_settled = may_be_settled && answer == Status::Committed(CommitNumber(0));
                        is_settled || answer == Status::Committed(number)
                    }
                };
                assert!(is_right, "txn={id} step={step} {fate:?}: {answer:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn long_histories_are_answered_as_a_model_answers_them(events in prop::collection::vec(event(), 1..50)) {
        let mut world = World::new();
        for (n, event) in events.into_iter().enumerate() {
            world.apply(event)?;
            world.check(29 + n);
        }
        world.check(1);
        for txn in std::mem::take(&mut world.open) {
            world.end(txn, true)?;
        }
        world.apply(Event::Advance(0))?;
        world.check(1);
        world.apply(Event::Seal(0))?;
        world.apply(Event::Advance(0))?;
        prop_assert_eq!((world.table.states.passed(), world.table.backlog()), (0, BacklogStats::default()));
    }
}
