//! Random lives of transactions over memtables and runs, with restarts, against a naive model. What some memtable or
//! run can ask about must be answered as the model does; once nothing can ask, the backlog must be empty.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// What a transaction wrote: id and step.
type Wrote = BTreeSet<(TxnId, u32)>;

#[derive(Debug, Clone)]
enum Logged {
    Write(TxnId, u32),
    Commit(TxnId, CommitNumber),
    Abort(TxnId),
    AbortSteps(TxnId, u32, u32),
    Prepare(TxnId, Vec<u8>),
}

#[derive(Debug, Clone, Default)]
struct Naive {
    committed: BTreeMap<TxnId, CommitNumber>,
    aborted: BTreeSet<TxnId>,
    aborted_steps: Vec<(TxnId, u32, u32)>,
}

impl Naive {
    fn status(&self, txn: TxnId, step: u32) -> Status {
        let hit = |(other, from, to): &(TxnId, u32, u32)| *other == txn && (*from..=*to).contains(&step);
        if self.aborted.contains(&txn) || self.aborted_steps.iter().any(hit) {
            return Status::Aborted;
        }
        self.committed.get(&txn).map_or(Status::Active, |number| Status::Committed(*number))
    }
}

/// What a publication would have stored.
#[derive(Debug, Clone, Default)]
struct Publication {
    image: Vec<u8>,
    runs: Vec<Wrote>,
    log_start: usize,
}

struct World {
    table: StatusTable,
    snapshots: Snapshots,
    live: Vec<Snapshot>,
    naive: Naive,
    /// Open transactions and their current step.
    open: BTreeMap<TxnId, u32>,
    prepared: BTreeSet<TxnId>,
    log: Vec<Logged>,
    /// Ascending ids; with the start of its log.
    memtables: Vec<(u64, usize, Wrote)>,
    runs: Vec<Wrote>,
    lingering: Vec<Wrote>,
    published: Publication,
    settled: CommitNumber,
}

fn ids(wrote: &Wrote) -> Vec<TxnId> {
    wrote.iter().map(|(txn, _)| *txn).collect::<BTreeSet<_>>().into_iter().collect()
}

impl World {
    fn new() -> World {
        let table = StatusTable::new();
        let published = Publication { image: table.image(), ..Publication::default() };
        World {
            snapshots: Snapshots::new(&table),
            table,
            live: Vec::new(),
            naive: Naive::default(),
            open: BTreeMap::new(),
            prepared: BTreeSet::new(),
            log: Vec::new(),
            memtables: vec![(1, 0, Wrote::new())],
            runs: Vec::new(),
            lingering: Vec::new(),
            published,
            settled: CommitNumber(0),
        }
    }

    fn active_memtable(&self) -> u64 {
        self.memtables.last().map_or(0, |(id, ..)| *id)
    }

    fn pick(&self, index: prop::sample::Index) -> Option<(TxnId, u32)> {
        let open: Vec<_> = self.open.iter().filter(|(txn, _)| !self.prepared.contains(txn)).collect();
        (!open.is_empty()).then(|| open[index.index(open.len())]).map(|(txn, step)| (*txn, *step))
    }

    fn apply(&mut self, action: u8, index: prop::sample::Index) -> Result<()> {
        match action {
            0..=2 => {
                let txn = self.table.begin();
                // An id that the log had never seen is drawn again after a restart.
                self.naive.aborted.remove(&txn);
                self.open.insert(txn, 0);
            }
            3..=11 => {
                if let (Some((txn, step)), Some((.., wrote))) = (self.pick(index), self.memtables.last_mut()) {
                    self.log.push(Logged::Write(txn, step));
                    wrote.insert((txn, step));
                }
            }
            12..=14 => self.commit(index)?,
            15 => {
                let all: Vec<TxnId> = self.open.keys().copied().collect();
                if !all.is_empty() {
                    let txn = all[index.index(all.len())];
                    abort(&self.table, txn, self.active_memtable())?;
                    self.log.push(Logged::Abort(txn));
                    self.naive.aborted.insert(txn);
                    self.open.remove(&txn);
                    self.prepared.remove(&txn);
                }
            }
            16 | 17 => {
                if let Some((txn, step)) = self.pick(index) {
                    let from = step.saturating_sub(index.index(3) as u32);
                    self.table.abort_steps_with(txn, from, step, self.active_memtable(), || Ok(Lsn(0)))?;
                    self.log.push(Logged::AbortSteps(txn, from, step));
                    self.naive.aborted_steps.push((txn, from, step));
                    self.open.insert(txn, step + 1);
                }
            }
            18 => self.open.values_mut().for_each(|step| *step += 1),
            19 => {
                if let Some((txn, _)) = self.pick(index) {
                    let xid = txn.0.to_be_bytes().to_vec();
                    self.table.prepare_with(txn, &xid, || Ok(Lsn(0)))?;
                    self.log.push(Logged::Prepare(txn, xid));
                    self.prepared.insert(txn);
                }
            }
            20 => self.memtables.push((self.active_memtable() + 1, self.log.len(), Wrote::new())),
            21 | 22 => self.flush(),
            23 | 24 => self.compact(),
            25 => {
                if let Some(wrote) = self.lingering.pop() {
                    self.table.note_run_released(&ids(&wrote));
                }
            }
            26 => self.live.push(self.snapshots.acquire()),
            27 if !self.live.is_empty() => drop(self.live.swap_remove(index.index(self.live.len()))),
            28 | 29 => {
                let horizon = self.snapshots.horizon();
                self.settled = self.settled.max(horizon);
                self.table.advance(horizon, || self.memtables.iter().map(|(id, ..)| *id).collect());
            }
            30 => {
                let log_start = self.memtables[0].1;
                self.published = Publication { image: self.table.image(), runs: self.runs.clone(), log_start };
            }
            31 => self.restart()?,
            // Many that lock and write nothing: states come and go.
            32 => {
                for _ in 0..700 {
                    let txn = self.table.begin();
                    self.naive.aborted.remove(&txn);
                    self.table.end_unwritten(txn);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn commit(&mut self, index: prop::sample::Index) -> Result<()> {
        let all: Vec<TxnId> = self.open.keys().copied().collect();
        if !all.is_empty() {
            let txn = all[index.index(all.len())];
            let number = commit(&self.table, txn)?;
            self.log.push(Logged::Commit(txn, number));
            self.naive.committed.insert(txn, number);
            self.open.remove(&txn);
            self.prepared.remove(&txn);
        }
        Ok(())
    }

    /// What a writer of runs leaves unresolved.
    fn unresolved(&self, wrote: &Wrote) -> Wrote {
        wrote.iter().copied().filter(|(txn, step)| self.naive.status(*txn, *step) == Status::Active).collect()
    }

    fn flush(&mut self) {
        if self.memtables.len() > 1 {
            let (id, _, wrote) = self.memtables.remove(0);
            let run = self.unresolved(&wrote);
            self.table.note_run_added(&ids(&run));
            self.runs.push(run);
            self.table.memtables_flushed_below(id + 1);
        }
    }

    fn compact(&mut self) {
        if self.runs.len() > 1 {
            let inputs: Vec<Wrote> = self.runs.drain(..2).collect();
            let output = self.unresolved(&inputs.iter().flatten().copied().collect());
            self.table.note_run_added(&ids(&output));
            self.runs.push(output);
            inputs.iter().for_each(|input| self.table.note_run_removed(&ids(input)));
            self.lingering.extend(inputs);
        }
    }

    fn restart(&mut self) -> Result<()> {
        self.live.clear();
        self.table = StatusTable::restore(&self.published.image)?;
        self.snapshots = Snapshots::new(&self.table);
        self.lingering.clear();
        self.runs = self.published.runs.clone();
        let memtable = self.active_memtable() + 1;
        let mut wrote = Wrote::new();
        for record in &self.log[self.published.log_start..] {
            match record {
                Logged::Write(txn, step) => {
                    self.table.replay_seen(*txn)?;
                    wrote.insert((*txn, *step));
                }
                Logged::Commit(txn, number) => self.table.replay_commit(*txn, *number)?,
                Logged::Abort(txn) => self.table.replay_abort(*txn)?,
                Logged::AbortSteps(txn, from, to) => self.table.replay_abort_steps(*txn, *from, *to)?,
                Logged::Prepare(txn, xid) => self.table.replay_prepare(*txn, xid)?,
            }
        }
        self.memtables =
            vec![(memtable, self.published.log_start, wrote), (memtable + 1, self.log.len(), Wrote::new())];
        self.table.finish_recovery(memtable);
        let prepared: BTreeSet<TxnId> = self.table.prepared().into_iter().map(|prepared| prepared.txn).collect();
        assert_eq!(prepared, self.prepared);
        for txn in std::mem::take(&mut self.open).into_keys() {
            if self.prepared.contains(&txn) {
                self.open.insert(txn, 1000);
            } else {
                // This is in no log; the next recovery from the same publication decides the same.
                self.naive.aborted.insert(txn);
            }
        }
        let newest = self.naive.committed.values().max().copied().unwrap_or_default();
        assert_eq!(self.table.visible(), newest);
        self.settled = newest;
        Ok(())
    }

    fn check(&self) {
        let memtables = self.memtables.iter().flat_map(|(.., wrote)| wrote);
        for (txn, step) in memtables.chain(self.runs.iter().flatten()).chain(self.lingering.iter().flatten()) {
            let expected = self.naive.status(*txn, *step);
            let answer = self.table.status(*txn, *step);
            let settled = match (expected, answer) {
                (Status::Committed(number), Status::Committed(CommitNumber(0))) => number <= self.settled,
                _ => expected == answer,
            };
            assert!(settled, "txn={txn} step={step} expected={expected:?} answer={answer:?}");
        }
        assert_eq!(self.table.open().0, self.open.len());
        if self.live.iter().any(|snapshot| snapshot.number() < self.table.visible()) {
            assert!(self.snapshots.horizon() <= self.live.iter().map(Snapshot::number).min().unwrap_or_default());
        }
    }

    /// Lets everything be flushed, compacted and released; then nothing aborted is remembered.
    fn drain(&mut self) -> Result<()> {
        for txn in std::mem::take(&mut self.open).into_keys() {
            let number = commit(&self.table, txn)?;
            self.naive.committed.insert(txn, number);
        }
        self.memtables.push((self.active_memtable() + 1, self.log.len(), Wrote::new()));
        while self.memtables.len() > 1 {
            self.flush();
        }
        self.runs.push(Wrote::new());
        while self.runs.len() > 1 {
            self.compact();
        }
        // A single run may still list ids that are decided now.
        self.runs.push(Wrote::new());
        self.compact();
        for wrote in self.lingering.drain(..) {
            self.table.note_run_released(&ids(&wrote));
        }
        self.live.clear();
        self.table.advance(self.snapshots.horizon(), all_read);
        self.settled = self.table.visible();
        assert_eq!(self.table.backlog(), BacklogStats::default());
        assert_eq!(self.table.low_water(), self.table.next_txn());
        Ok(())
    }
}

proptest! {
    #[test]
    fn what_can_be_asked_is_answered_and_the_rest_is_forgotten(
        actions in prop::collection::vec((0u8..33, any::<prop::sample::Index>()), 1..250)
    ) {
        let mut world = World::new();
        for (action, index) in actions {
            world.apply(action, index)?;
            world.check();
        }
        world.drain()?;
    }
}
