//! Transfers between accounts of two tables, and a journal that tells every one of them.
//!
//! A transfer changes two accounts and adds the journal's next row of its worker, so that a worker's journal has the numbers
//! 1 to n without a gap, and every balance can be worked out from the journal.

use super::{LOCK_REFUSALS, Trouble, Worker, attempt};
use frond_load::random::Random;
use frond_load::wire::{Connection, Failure};

const ACCOUNTS_PER_TABLE: i64 = 150;
const BALANCE_AT_START: i64 = 1000;

/// The second table of accounts is of the engine `engine_b`; all others are FROND's.
pub(crate) fn create(connection: &mut Connection, engine_b: &str) -> Result<(), Failure> {
    for (side, engine) in [("a", "FROND"), ("b", engine_b)] {
        connection.run(format!(
            "CREATE TABLE account_{side} (id INT PRIMARY KEY, owner INT NOT NULL, balance BIGINT NOT NULL, touched INT, \
             note VARCHAR(60), KEY by_owner (owner), KEY by_balance (balance), KEY by_touch (touched, owner)) ENGINE={engine}"
        ))?;
        connection.run(format!(
            "INSERT INTO account_{side} SELECT seq, seq % 7, {BALANCE_AT_START}, NULL, NULL FROM seq_1_to_{ACCOUNTS_PER_TABLE}"
        ))?;
    }
    connection.run(
        "CREATE TABLE journal (worker INT, seq INT, from_side CHAR(1), from_id INT, to_side CHAR(1), to_id INT, \
         amount INT, PRIMARY KEY (worker, seq), KEY by_source (from_side, from_id), UNIQUE KEY by_number (seq, worker))",
    )?;
    Ok(())
}

/// K2.
pub(crate) fn verify_balances(connection: &mut Connection) -> Result<(), String> {
    let number = |connection: &mut Connection, query: &str| connection.number(query).map_err(|error| error.to_string());
    let sum = number(connection, "SELECT (SELECT SUM(balance) FROM account_a) + (SELECT SUM(balance) FROM account_b)")?;
    let expected = 2 * ACCOUNTS_PER_TABLE * BALANCE_AT_START;
    if sum != expected {
        return Err(format!("money was lost or made: sum={sum} expected={expected}"));
    }
    for side in ["a", "b"] {
        let wrong = connection
            .column(&format!(
                "SELECT CONCAT(id, ': ', balance, ' but by the journal ', {BALANCE_AT_START} \
                   + COALESCE((SELECT SUM(amount) FROM journal j WHERE j.to_side = '{side}' AND j.to_id = t.id), 0) \
                   - COALESCE((SELECT SUM(amount) FROM journal j WHERE j.from_side = '{side}' AND j.from_id = t.id), 0)) AS words \
                 FROM account_{side} t \
                 LEFT JOIN (SELECT to_id, SUM(amount) AS moved FROM journal WHERE to_side = '{side}' GROUP BY to_id) got \
                   ON got.to_id = t.id \
                 LEFT JOIN (SELECT from_id, SUM(amount) AS moved FROM journal WHERE from_side = '{side}' GROUP BY from_id) gave \
                   ON gave.from_id = t.id \
                 WHERE balance <> {BALANCE_AT_START} + COALESCE(got.moved, 0) - COALESCE(gave.moved, 0)"
            ))
            .map_err(|error| error.to_string())?;
        if !wrong.is_empty() {
            return Err(format!("balances of account_{side} are not those of the journal: {wrong:?}"));
        }
    }
    Ok(())
}

pub(crate) struct Transfers {
    number: u64,
    random: Random,
    /// Transfers acknowledged; the journal has the rows 1 to this.
    acknowledged: u64,
    /// COMMIT was sent and not answered.
    deciding: bool,
}

impl Transfers {
    pub(crate) fn new(number: u64, random: Random) -> Self {
        Transfers { number, random, acknowledged: 0, deciding: false }
    }

    /// The statements of one transfer.
    fn statements(&mut self) -> Vec<String> {
        let random = &mut self.random;
        let (from_side, to_side) = (*random.pick(&["a", "b"]), *random.pick(&["a", "b"]));
        let (from, mut to) = (random.between(1, ACCOUNTS_PER_TABLE), random.between(1, ACCOUNTS_PER_TABLE));
        if from_side == to_side && from == to {
            to = from % ACCOUNTS_PER_TABLE + 1;
        }
        let amount = random.between(1, 50);
        let number = self.acknowledged + 1;
        let touched = random.below(1000);
        let mut statements = Vec::new();
        if random.chance(20) {
            statements.push(format!("SELECT * FROM account_{from_side} WHERE id = {from} FOR UPDATE"));
        }
        statements.push(format!(
            "UPDATE account_{from_side} SET balance = balance - {amount}, touched = {touched} WHERE id = {from}"
        ));
        if random.chance(20) {
            // What is undone leaves no trace.
            statements.push("SAVEPOINT s".into());
            statements.push(format!("UPDATE account_{to_side} SET balance = balance + 1000000 WHERE id = {to}"));
            statements.push(format!("INSERT INTO journal VALUES ({}, {}, 'a', 1, 'b', 1, 1)", self.number, number + 1));
            statements.push("ROLLBACK TO SAVEPOINT s".into());
        }
        statements.push(format!(
            "UPDATE account_{to_side} SET balance = balance + {amount}, note = REPEAT('n', {}) WHERE id = {to}",
            touched % 60
        ));
        statements.push(format!(
            "INSERT INTO journal VALUES ({}, {number}, '{from_side}', {from}, '{to_side}', {to}, {amount})",
            self.number
        ));
        statements
    }
}

impl Worker for Transfers {
    fn name(&self) -> String {
        format!("transfers {}", self.number)
    }

    fn step(&mut self, connection: &mut Connection) -> Result<(), Trouble> {
        attempt(connection, "BEGIN", &[])?;
        for statement in self.statements() {
            if !attempt(connection, &statement, &LOCK_REFUSALS)? {
                attempt(connection, "ROLLBACK", &[])?;
                return Ok(());
            }
        }
        if self.random.chance(10) {
            attempt(connection, "ROLLBACK", &[])?;
            return Ok(());
        }
        self.deciding = true;
        attempt(connection, "COMMIT", &[])?;
        self.deciding = false;
        self.acknowledged += 1;
        Ok(())
    }

    fn verify(&mut self, connection: &mut Connection) -> Result<(), String> {
        let query = format!(
            "SELECT COUNT(*), COALESCE(MIN(seq), 1), COALESCE(MAX(seq), 0) FROM journal WHERE worker = {}",
            self.number
        );
        let rows = connection.rows(&query).map_err(|error| error.to_string())?;
        let row: Vec<u64> =
            rows.iter().flatten().map(|value| frond_load::wire::text(value).parse().unwrap_or(u64::MAX)).collect();
        let &[count, first, last] = row.as_slice() else { return Err(format!("unexpected row: {row:?}")) };
        if count != last || first != 1 {
            return Err(format!("the journal has gaps: count={count} first={first} last={last}"));
        }
        if count != self.acknowledged && !(self.deciding && count == self.acknowledged + 1) {
            return Err(format!(
                "transfers there: {count}, acknowledged: {}, deciding={}",
                self.acknowledged, self.deciding
            ));
        }
        self.acknowledged = count;
        self.deciding = false;
        Ok(())
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}
