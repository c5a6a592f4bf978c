//! DDL: each worker creates, fills, renames, empties, alters and drops tables of its own and knows what they should be.
//!
//! A kill inside a statement leaves the tables as before it or as after it (K3). Tables with partitions are not among them:
//! the server's own file of a partitioned table (`.par`) is not part of its atomic DDL, whatever the engine, and a kill inside
//! an ALTER that copies can leave the table without one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Trouble, Worker, attempt};
use frond_load::random::Random;
use frond_load::wire::{Connection, text};

const TABLES_MAX: usize = 5;
const COLUMNS_MAX: usize = 8;

/// K3: tables that are neither the fixed ones nor named by a worker.
pub(crate) fn verify_no_stranger(tables: &[String]) -> Result<(), String> {
    const FIXED: [&str; 7] = ["account_a", "account_b", "journal", "churn", "churn_parts", "branch", "probe"];
    match tables.iter().find(|table| !FIXED.contains(&table.as_str()) && !table.starts_with("ddl_")) {
        Some(table) => Err(format!("a table that nobody created: {table}")),
        None => Ok(()),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    columns: Vec<String>,
    indexes: BTreeSet<String>,
    rows: BTreeSet<i64>,
}

type Tables = BTreeMap<String, Table>;

pub(crate) struct Definer {
    number: u64,
    random: Random,
    acknowledged: u64,
    tables: Tables,
    deciding: Option<(String, Tables)>,
    names: u64,
}

impl Definer {
    pub(crate) fn new(number: u64, random: Random) -> Self {
        Definer { number, random, acknowledged: 0, tables: Tables::new(), deciding: None, names: 0 }
    }

    fn new_name(&mut self) -> String {
        self.names += 1;
        format!("ddl_{}_{}", self.number, self.names)
    }

    fn create(&mut self, tables: &mut Tables) -> String {
        let name = self.new_name();
        let mut table = Table { columns: ["id", "a", "b"].map(String::from).to_vec(), ..Table::default() };
        table.indexes.insert("by_a".into());
        let unique = *self.random.pick(&["", "UNIQUE "]);
        let statement = if self.random.chance(30) {
            // With rows from the start: dropped as a whole when it is cut short.
            table.rows = (1..=50).collect();
            format!(
                "CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b VARCHAR(20), {unique}KEY by_a (a)) \
                 SELECT seq AS id, seq * 3 AS a, 'text' AS b FROM seq_1_to_50"
            )
        } else {
            format!("CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b VARCHAR(20), {unique}KEY by_a (a))")
        };
        tables.insert(name, table);
        statement
    }

    /// A statement, with its effect done to `tables`.
    fn statement(&mut self, tables: &mut Tables) -> String {
        let names: Vec<String> = tables.keys().cloned().collect();
        if names.is_empty() || names.len() < TABLES_MAX && self.random.chance(20) {
            return self.create(tables);
        }
        let name = self.random.pick(&names).clone();
        let Some(table) = tables.get_mut(&name) else { return String::new() };
        match self.random.below(12) {
            0 => {
                tables.remove(&name);
                format!("DROP TABLE {name}")
            }
            1 | 2 => {
                let new = self.new_name();
                let moved = std::mem::take(table);
                tables.remove(&name);
                tables.insert(new.clone(), moved);
                let verb = *self.random.pick(&["RENAME TABLE {} TO", "ALTER TABLE {} RENAME"]);
                format!("{} {new}", verb.replace("{}", &name))
            }
            3 => {
                table.rows.clear();
                format!("TRUNCATE TABLE {name}")
            }
            4 | 5 if table.columns.len() < COLUMNS_MAX => {
                self.names += 1;
                let column = format!("c{}", self.names);
                let place = *self.random.pick(&["", " FIRST", " AFTER a"]);
                match place {
                    " FIRST" => table.columns.insert(0, column.clone()),
                    " AFTER a" => {
                        let at = table.columns.iter().position(|column| column == "a").map_or(0, |at| at + 1);
                        table.columns.insert(at, column.clone());
                    }
                    _ => table.columns.push(column.clone()),
                }
                let index = format!("by_{column}");
                let with_index =
                    if self.random.chance(50) { format!(", ADD INDEX {index} ({column})") } else { String::new() };
                if !with_index.is_empty() {
                    table.indexes.insert(index);
                }
                format!("ALTER TABLE {name} ADD COLUMN {column} INT DEFAULT 5{place}{with_index}")
            }
            6 => {
                let Some(at) = table.columns.iter().position(|column| column.starts_with('c')) else {
                    return format!("ALTER TABLE {name} FORCE");
                };
                let column = table.columns.remove(at);
                table.indexes.remove(&format!("by_{column}"));
                format!("ALTER TABLE {name} DROP COLUMN {column}")
            }
            7 | 8 => {
                let columns: Vec<&String> =
                    table.columns.iter().filter(|column| !table.indexes.contains(&format!("by_{column}"))).collect();
                let Some(&column) = columns.iter().find(|column| **column != "id") else {
                    return format!("ALTER TABLE {name} FORCE");
                };
                let index = format!("by_{column}");
                let statement = if self.random.chance(50) {
                    format!("CREATE INDEX {index} ON {name} ({column} DESC)")
                } else {
                    format!("ALTER TABLE {name} ADD INDEX {index} ({column})")
                };
                table.indexes.insert(index);
                statement
            }
            9 if !table.indexes.is_empty() => {
                let indexes: Vec<String> = table.indexes.iter().cloned().collect();
                let index = self.random.pick(&indexes).clone();
                table.indexes.remove(&index);
                format!("DROP INDEX {index} ON {name}")
            }
            10 if names.len() > 1 => {
                // Two tables change names in one statement.
                let other = names.iter().find(|other| **other != name).cloned().unwrap_or_default();
                if let (Some(a), Some(b)) = (tables.remove(&name), tables.remove(&other)) {
                    tables.insert(name.clone(), b);
                    tables.insert(other.clone(), a);
                }
                self.names += 1;
                let middle = format!("ddl_{}_{}", self.number, self.names);
                format!("RENAME TABLE {name} TO {middle}, {other} TO {name}, {middle} TO {other}")
            }
            _ => {
                let first = table.rows.last().map_or(1, |last| last + 1);
                let last = first + self.random.between(0, 80);
                table.rows.extend(first..=last);
                format!("INSERT INTO {name} (id, a, b) SELECT seq, seq * 3, 'text' FROM seq_{first}_to_{last}")
            }
        }
    }

    fn found(&self, connection: &mut Connection) -> Result<Tables, String> {
        let failed = |error: frond_load::wire::Failure| error.to_string();
        let mut tables = Tables::new();
        for name in connection.column(&format!("SHOW TABLES LIKE 'ddl\\_{}\\_%'", self.number)).map_err(failed)? {
            let mut table = Table::default();
            for row in connection.rows(&format!("SHOW COLUMNS FROM {name}")).map_err(failed)? {
                table.columns.extend(row.first().map(text));
            }
            for row in connection.rows(&format!("SHOW INDEX FROM {name}")).map_err(failed)? {
                let index = row.get(2).map(text).unwrap_or_default();
                if index != "PRIMARY" {
                    table.indexes.insert(index);
                }
            }
            let rows = connection.rows(&format!("SELECT id, a = id * 3 AND b = 'text' FROM {name}"));
            for row in rows.map_err(|error| format!("{name} cannot be read: {error}"))? {
                let [id, right] = row.as_slice() else { return Err(format!("unexpected row of {name}")) };
                if right.as_deref() != Some(b"1") {
                    return Err(format!("a wrong row: table={name} id={}", text(id)));
                }
                table.rows.extend(text(id).parse::<i64>().ok());
            }
            tables.insert(name, table);
        }
        Ok(tables)
    }
}

impl Worker for Definer {
    fn name(&self) -> String {
        format!("ddl {}", self.number)
    }

    fn step(&mut self, connection: &mut Connection) -> Result<(), Trouble> {
        let mut next = self.tables.clone();
        let statement = self.statement(&mut next);
        self.deciding = Some((statement.clone(), next.clone()));
        attempt(connection, &statement, &[])?;
        self.deciding = None;
        self.tables = next;
        self.acknowledged += 1;
        Ok(())
    }

    fn verify(&mut self, connection: &mut Connection) -> Result<(), String> {
        let deciding = self.deciding.take();
        let in_flight = deciding.as_ref().map_or("nothing", |(statement, _)| statement);
        let found = self.found(connection).map_err(|error| format!("{error}; in flight: {in_flight}"))?;
        if found != self.tables {
            if deciding.as_ref().map(|(_, next)| next) != Some(&found) {
                let differing = |from: &Tables, to: &Tables| {
                    from.iter()
                        .filter(|&(name, table)| to.get(name) != Some(table))
                        .map(|(name, table)| {
                            format!(
                                "{name} columns={:?} indexes={:?} rows={}",
                                table.columns,
                                table.indexes,
                                table.rows.len()
                            )
                        })
                        .collect::<Vec<_>>()
                };
                return Err(format!(
                    "tables are neither as before nor as after; in flight: {in_flight}; known: {:?}, found: {:?}",
                    differing(&self.tables, &found),
                    differing(&found, &self.tables)
                ));
            }
            self.acknowledged += 1;
        }
        self.tables = found;
        Ok(())
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}
