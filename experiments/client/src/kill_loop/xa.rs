//! Distributed transactions: a prepared branch survives a kill, and nothing but a decision ends it.

use super::{LOCK_REFUSALS, Trouble, Worker, attempt};
use frond_load::random::Random;
use frond_load::wire::{Connection, Failure, text};

pub(crate) fn create(connection: &mut Connection) -> Result<(), Failure> {
    connection.run(
        "CREATE TABLE branch (worker INT, number INT, step INT, PRIMARY KEY (worker, number, step), KEY (step))",
    )?;
    Ok(())
}

/// How far the branch is; what was sent and not answered may have happened or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Preparing,
    Prepared,
    Committing,
    RollingBack,
}

pub(crate) struct Brancher {
    worker: u64,
    random: Random,
    /// Numbers of committed branches.
    committed: Vec<u64>,
    number: u64,
    stage: Stage,
}

impl Brancher {
    pub(crate) fn new(worker: u64, random: Random) -> Self {
        Brancher { worker, random, committed: Vec::new(), number: 0, stage: Stage::Open }
    }

    fn xid(&self) -> String {
        format!("'{}','{}'", self.worker, self.number)
    }

    fn decide(&mut self, connection: &mut Connection) -> Result<(), Trouble> {
        let xid = self.xid();
        if self.random.chance(70) {
            self.stage = Stage::Committing;
            attempt(connection, &format!("XA COMMIT {xid}"), &[])?;
            self.committed.push(self.number);
        } else {
            self.stage = Stage::RollingBack;
            attempt(connection, &format!("XA ROLLBACK {xid}"), &[])?;
        }
        self.stage = Stage::Open;
        Ok(())
    }
}

impl Worker for Brancher {
    fn name(&self) -> String {
        format!("xa {}", self.worker)
    }

    fn step(&mut self, connection: &mut Connection) -> Result<(), Trouble> {
        self.number += 1;
        self.stage = Stage::Open;
        let xid = self.xid();
        attempt(connection, &format!("XA START {xid}"), &[])?;
        for step in 0..self.random.between(1, 3) {
            let insert = format!("INSERT INTO branch VALUES ({}, {}, {step})", self.worker, self.number);
            if !attempt(connection, &insert, &LOCK_REFUSALS)? {
                attempt(connection, &format!("XA END {xid}"), &[1614, 1402])?;
                attempt(connection, &format!("XA ROLLBACK {xid}"), &[])?;
                return Ok(());
            }
        }
        attempt(connection, &format!("XA END {xid}"), &[])?;
        self.stage = Stage::Preparing;
        attempt(connection, &format!("XA PREPARE {xid}"), &[])?;
        self.stage = Stage::Prepared;
        self.decide(connection)
    }

    fn verify(&mut self, connection: &mut Connection) -> Result<(), String> {
        let mine = self.worker.to_string();
        let listed: Vec<u64> = connection
            .rows("XA RECOVER")
            .map_err(|error| error.to_string())?
            .iter()
            .filter_map(|row| {
                let global = text(row.get(1)?).parse().ok()?;
                let data = text(row.get(3)?);
                (data.get(..global)? == mine).then(|| data.get(global..)?.parse().ok())?
            })
            .collect();
        let is_listed = listed == [self.number];
        if !is_listed && !listed.is_empty() {
            return Err(format!("branches that nobody prepared: {listed:?}, last number={}", self.number));
        }
        let fits = match self.stage {
            Stage::Open => !is_listed,
            Stage::Prepared => is_listed,
            Stage::Preparing | Stage::Committing | Stage::RollingBack => true,
        };
        if !fits {
            return Err(format!("branch {} is listed={is_listed} in stage {:?}", self.number, self.stage));
        }
        if is_listed {
            self.decide(connection).map_err(|trouble| match trouble {
                Trouble::Lost => "connection lost".into(),
                Trouble::Finding(words) => format!("branch {} cannot be decided: {words}", self.number),
            })?;
        }
        let query = format!("SELECT DISTINCT number FROM branch WHERE worker = {mine} ORDER BY number");
        let there: Vec<u64> = connection
            .column(&query)
            .map_err(|error| error.to_string())?
            .iter()
            .filter_map(|number| number.parse().ok())
            .collect();
        if there != self.committed {
            if self.stage != Stage::Committing || there.split_last() != Some((&self.number, &self.committed[..])) {
                let tail = |numbers: &[u64]| numbers[numbers.len().saturating_sub(5)..].to_vec();
                return Err(format!(
                    "committed: {:?}, there: {:?}, stage {:?}",
                    tail(&self.committed),
                    tail(&there),
                    self.stage
                ));
            }
            self.committed.push(self.number);
        }
        self.stage = Stage::Open;
        Ok(())
    }

    fn acknowledged(&self) -> u64 {
        self.committed.len() as u64
    }
}
