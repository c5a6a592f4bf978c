//! Rows come, change and go in a table with many indexes, partitioned or not; each worker keeps a copy of its rows.

use std::collections::BTreeMap;

use super::{LOCK_REFUSALS, Trouble, Worker, attempt};
use frond_load::random::Random;
use frond_load::wire::{Connection, Failure, text};

const ROWS_MAX: usize = 400;
const LENGTH_MAX: usize = 150;
const K1_VALUES: u64 = 40;
const TABLES: [&str; 2] = ["churn", "churn_parts"];

pub(crate) fn create(connection: &mut Connection) -> Result<(), Failure> {
    let columns = "worker INT, id INT, k1 INT NOT NULL, k2 INT, v VARCHAR(200) CHARACTER SET utf8mb4, \
                   PRIMARY KEY (worker, id), KEY by_k1 (k1, k2), KEY by_k2 (k2 DESC), KEY by_v (v(10))";
    connection.run(format!(
        "CREATE TABLE churn ({columns}, UNIQUE KEY one (id, worker, k1), KEY whole (k2, k1) CLUSTERING=YES)"
    ))?;
    connection.run(format!("CREATE TABLE churn_parts ({columns}) PARTITION BY KEY (id) PARTITIONS 3"))?;
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    k1: i64,
    k2: Option<i64>,
    v: String,
}

type Rows = BTreeMap<i64, Content>;

pub(crate) struct Churn {
    number: u64,
    random: Random,
    acknowledged: u64,
    /// Of each table.
    rows: [Rows; 2],
    /// What there will be if the statement or COMMIT in flight took place.
    deciding: Option<[Rows; 2]>,
    next_id: i64,
}

impl Churn {
    pub(crate) fn new(number: u64, random: Random) -> Self {
        Churn { number, random, acknowledged: 0, rows: [Rows::new(), Rows::new()], deciding: None, next_id: 0 }
    }

    fn content(&mut self) -> Content {
        let random = &mut self.random;
        let letter = char::from(b'a' + random.below(26) as u8);
        Content {
            k1: random.below(K1_VALUES) as i64,
            k2: (!random.chance(10)).then(|| random.between(-1000, 1000)),
            v: letter.to_string().repeat(random.below(100) as usize),
        }
    }

    /// A statement on one of the tables, with its effect done to `rows`.
    fn statement(&mut self, rows: &mut [Rows; 2]) -> String {
        let which = self.random.below(2) as usize;
        let (table, worker) = (TABLES[which], self.number);
        let rows = &mut rows[which];
        let kind = if rows.len() >= ROWS_MAX { 9 } else { self.random.below(10) };
        let k1 = self.random.below(K1_VALUES) as i64;
        match kind {
            0..=3 => {
                let count = self.random.between(1, 60);
                let mut values = Vec::new();
                for _ in 0..count {
                    self.next_id += 1;
                    let content = self.content();
                    values.push(literal(worker, self.next_id, &content));
                    rows.insert(self.next_id, content);
                }
                format!("INSERT INTO {table} VALUES {}", values.join(","))
            }
            4 => {
                let id = self.random.between(1, self.next_id.max(1));
                let content = self.content();
                let statement = format!("REPLACE INTO {table} VALUES {}", literal(worker, id, &content));
                self.next_id = self.next_id.max(id);
                rows.insert(id, content);
                statement
            }
            5 => {
                let id = self.random.between(1, self.next_id.max(1));
                let content = self.content();
                let values = literal(worker, id, &content);
                self.next_id = self.next_id.max(id);
                rows.entry(id).and_modify(|row| row.k2 = row.k2.map(|k2| k2 + 1)).or_insert(content);
                format!("INSERT INTO {table} VALUES {values} ON DUPLICATE KEY UPDATE k2 = k2 + 1")
            }
            6 => {
                for row in rows.values_mut().filter(|row| row.k1 == k1) {
                    row.k2 = row.k2.map(|k2| k2 + 7);
                    row.v.insert(0, 'x');
                    row.v.truncate(LENGTH_MAX);
                }
                format!(
                    "UPDATE {table} FORCE INDEX (by_k1) SET k2 = k2 + 7, v = LEFT(CONCAT('x', v), {LENGTH_MAX}) \
                     WHERE k1 = {k1} AND worker = {worker}"
                )
            }
            7 => {
                // The primary key moves.
                let id = self.random.between(1, self.next_id.max(1));
                self.next_id += 1;
                if let Some(content) = rows.remove(&id) {
                    rows.insert(self.next_id, content);
                }
                format!("UPDATE {table} SET id = {} WHERE worker = {worker} AND id = {id}", self.next_id)
            }
            8 => {
                rows.retain(|_, row| row.k1 != k1);
                format!("DELETE FROM {table} WHERE k1 = {k1} AND worker = {worker}")
            }
            _ => {
                let id = self.random.between(1, self.next_id.max(1));
                rows.retain(|&row, _| row > id);
                format!("DELETE FROM {table} WHERE worker = {worker} AND id <= {id}")
            }
        }
    }
}

fn literal(worker: u64, id: i64, content: &Content) -> String {
    let k2 = content.k2.map_or("NULL".into(), |k2| k2.to_string());
    format!("({worker},{id},{},{k2},'{}')", content.k1, content.v)
}

impl Worker for Churn {
    fn name(&self) -> String {
        format!("churn {}", self.number)
    }

    fn step(&mut self, connection: &mut Connection) -> Result<(), Trouble> {
        let mut next = self.rows.clone();
        if self.random.chance(50) {
            let statement = self.statement(&mut next);
            self.deciding = Some(next.clone());
            let done = attempt(connection, &statement, &LOCK_REFUSALS)?;
            self.deciding = None;
            if !done {
                return Ok(());
            }
        } else {
            attempt(connection, "BEGIN", &[])?;
            for _ in 0..self.random.between(1, 5) {
                let statement = self.statement(&mut next);
                if !attempt(connection, &statement, &LOCK_REFUSALS)? {
                    attempt(connection, "ROLLBACK", &[])?;
                    return Ok(());
                }
            }
            if self.random.chance(20) {
                attempt(connection, "ROLLBACK", &[])?;
                return Ok(());
            }
            self.deciding = Some(next.clone());
            attempt(connection, "COMMIT", &[])?;
            self.deciding = None;
        }
        self.rows = next;
        self.acknowledged += 1;
        Ok(())
    }

    fn verify(&mut self, connection: &mut Connection) -> Result<(), String> {
        let mut found = [Rows::new(), Rows::new()];
        for (table, rows) in TABLES.iter().zip(&mut found) {
            let query = format!("SELECT id, k1, k2, v FROM {table} WHERE worker = {}", self.number);
            for row in connection.rows(&query).map_err(|error| error.to_string())? {
                let [id, k1, k2, v] = row.as_slice() else { return Err(format!("unexpected row of {table}: {row:?}")) };
                let number = |value| text(value).parse().unwrap_or(i64::MIN);
                let content = Content { k1: number(k1), k2: k2.is_some().then(|| number(k2)), v: text(v) };
                rows.insert(number(id), content);
            }
        }
        let deciding = self.deciding.take();
        if found != self.rows {
            if deciding.as_ref() != Some(&found) {
                let what = TABLES.iter().zip(self.rows.iter().zip(&found)).map(|(table, (known, found))| {
                    let wrong = |a: &Rows, b: &Rows| {
                        a.iter().filter(|&(id, row)| b.get(id) != Some(row)).map(|(id, _)| *id).collect::<Vec<_>>()
                    };
                    format!("{table}: not as known {:?}, not known {:?}", wrong(known, found), wrong(found, known))
                });
                return Err(format!(
                    "rows are neither those before nor those after (in flight: {}): {:?}",
                    deciding.is_some(),
                    what.collect::<Vec<_>>()
                ));
            }
            self.acknowledged += 1;
        }
        self.rows = found;
        Ok(())
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}
