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

/// Percentage of rounds with a branch that is left prepared.
const KEPT_PERCENT: u64 = 40;
/// It is one of the first so many of its round, which must come before the kill.
const KEPT_WITHIN: u64 = 20;

/// Longer than any round; a prepared branch lets its connection do little else.
const UNTIL_KILLED: &str = "DO SLEEP(86400)";

/// How far the branch is; what was sent and not answered may have happened or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Preparing,
    Prepared,
    Committing,
    RollingBack,
}

impl Stage {
    /// K4: whether a branch of this stage may be found so after a restart: listed by XA RECOVER, its rows there without an
    /// acknowledged XA COMMIT. One whose XA COMMIT was sent is listed or committed: it must not be neither.
    fn allows(self, is_listed: bool, is_there: bool) -> bool {
        match (is_listed, is_there) {
            (true, true) => false,
            (true, false) => self != Stage::Open,
            (false, true) => self == Stage::Committing,
            (false, false) => matches!(self, Stage::Open | Stage::Preparing | Stage::RollingBack),
        }
    }
}

pub(crate) struct Brancher {
    worker: u64,
    random: Random,
    /// Numbers of committed branches.
    committed: Vec<u64>,
    number: u64,
    stage: Stage,
    /// The branch that is left prepared until the kill, in some of the rounds: a decision follows so soon that a kill
    /// hardly ever comes before it.
    kept: Option<u64>,
}

impl Brancher {
    pub(crate) fn new(worker: u64, random: Random) -> Self {
        let mut brancher =
            Brancher { worker, random, committed: Vec::new(), number: 0, stage: Stage::Open, kept: None };
        brancher.begin_round();
        brancher
    }

    fn begin_round(&mut self) {
        self.stage = Stage::Open;
        self.kept = self.random.chance(KEPT_PERCENT).then(|| self.number + 1 + self.random.below(KEPT_WITHIN));
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

    /// Numbers of the branches whose rows are there.
    fn there(&self, connection: &mut Connection) -> Result<Vec<u64>, String> {
        let query = format!("SELECT DISTINCT number FROM branch WHERE worker = {} ORDER BY number", self.worker);
        let numbers = connection.column(&query).map_err(|error| error.to_string())?;
        Ok(numbers.iter().filter_map(|number| number.parse().ok()).collect())
    }

    /// Numbers of the branches that wait for a decision.
    fn listed(&self, connection: &mut Connection) -> Result<Vec<u64>, String> {
        let mine = self.worker.to_string();
        let rows = connection.rows("XA RECOVER").map_err(|error| error.to_string())?;
        let numbers = rows.iter().filter_map(|row| {
            let global = text(row.get(1)?).parse().ok()?;
            let data = text(row.get(3)?);
            (data.get(..global)? == mine).then(|| data.get(global..)?.parse().ok())?
        });
        Ok(numbers.collect())
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
        if self.kept == Some(self.number) {
            attempt(connection, UNTIL_KILLED, &[])?;
        }
        self.decide(connection)
    }

    fn verify(&mut self, connection: &mut Connection) -> Result<(), String> {
        let listed = self.listed(connection)?;
        let is_listed = listed == [self.number];
        if !is_listed && !listed.is_empty() {
            return Err(format!("branches that nobody prepared: {listed:?}, last number={}", self.number));
        }
        let is_there =
            self.committed.last() != Some(&self.number) && self.there(connection)?.last() == Some(&self.number);
        if !self.stage.allows(is_listed, is_there) {
            let (number, stage) = (self.number, self.stage);
            return Err(format!("branch {number} is listed={is_listed} there={is_there} in stage {stage:?}"));
        }
        if is_there {
            self.committed.push(self.number);
        }
        if is_listed {
            self.decide(connection).map_err(|trouble| match trouble {
                Trouble::Lost => "connection lost".into(),
                Trouble::Finding(words) => format!("branch {} cannot be decided: {words}", self.number),
            })?;
        }
        let there = self.there(connection)?;
        if there != self.committed {
            let tail = |numbers: &[u64]| numbers[numbers.len().saturating_sub(5)..].to_vec();
            return Err(format!(
                "committed: {:?}, there: {:?}, stage {:?}",
                tail(&self.committed),
                tail(&there),
                self.stage
            ));
        }
        self.begin_round();
        Ok(())
    }

    fn acknowledged(&self) -> u64 {
        self.committed.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Stage;

    #[test]
    fn a_branch_that_was_prepared_is_listed_or_decided_after_a_restart() {
        for (stage, listed, there, nowhere) in [
            (Stage::Open, false, false, true),
            (Stage::Preparing, true, false, true),
            (Stage::Prepared, true, false, false),
            (Stage::Committing, true, true, false),
            (Stage::RollingBack, true, false, true),
        ] {
            assert_eq!(stage.allows(true, false), listed, "listed in stage {stage:?}");
            assert_eq!(stage.allows(false, true), there, "there in stage {stage:?}");
            assert_eq!(stage.allows(false, false), nowhere, "nowhere in stage {stage:?}");
            assert!(!stage.allows(true, true), "listed and there in stage {stage:?}");
        }
    }
}
