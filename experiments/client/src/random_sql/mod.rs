//! Random SQL side by side: the same statements on InnoDB tables and on FROND tables of one server give the same answers.
//!
//! A case is a seed: out of it come a schema (`schema`) and a list of statements (`statement`), fixed before anything runs, so
//! that a case that differs can be made smaller by leaving statements out and running it again. Each statement runs in the
//! database `reference` (InnoDB) and in `frond`; compared are the rows (in order where the statement orders them wholly, else
//! as a set), the count of affected rows, and the error number.
//!
//! With two connections (`--connections 2`) the statements of both alternate at random and no lock is waited for. What is
//! locked differs between the engines, so a case ends, unjudged, at the first statement that one engine refuses for a lock and
//! the other does not; until then the answers must agree at every isolation level.
//!
//! Accepted differences
//!   - The count of affected rows of ALTER TABLE: it tells whether rows were copied.
//!   - 1205 and 1213 against anything, with two connections: see above.
//!   - What InnoDB answers only because of an open table's state: with FLUSH TABLES before the statement it answers as FROND
//!     did. The server's partitioning does so, for any engine: a statement for which it has pruned every partition leaves it
//!     without the columns that the next UPDATE of the partitions' key by a scan of the primary key needs, and no row matches.
//!   - 1020 (record has changed): InnoDB updates what is newer than the transaction's snapshot and FROND refuses it, as
//!     `innodb_snapshot_isolation=ON` does, which the server is therefore started with; it may come one statement apart.

use std::path::PathBuf;

use clap::Args;
use frond_load::random::Random;
use frond_load::wire::{Answer, Connection, Failure, text};

use crate::server::{Installation, Server, clear_directory, remove_directory};

mod schema;
mod statement;

use statement::Statement;

/// The two copies: database, engine.
const COPIES: [(&str, &str); 2] = [("reference", "InnoDB"), ("frond", "FROND")];
/// Lock wait timeout, deadlock, record has changed.
const LOCK_REFUSALS: [u16; 3] = [1205, 1213, 1020];

#[derive(Debug, Args)]
pub(crate) struct RandomSql {
    /// The first case
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many cases
    #[arg(long, default_value_t = 100)]
    cases: u64,
    /// Statements of a case
    #[arg(long, default_value_t = 80)]
    statements: usize,
    /// Connections that take turns
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=2))]
    connections: u64,
    /// Tables with rows that FROND stores apart
    #[arg(long)]
    long_rows: bool,
    /// Go on after a difference
    #[arg(long)]
    keep_going: bool,
    /// Print the statements of each case
    #[arg(long)]
    verbose: bool,
    /// Where the server lives; removed when all is well
    #[arg(long, default_value_os_t = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/mariadb/random-sql")))]
    directory: PathBuf,
    /// Further options of mariadbd
    #[arg(last = true)]
    server_options: Vec<String>,
}

/// What a statement came to, as far as it is compared.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Affected(u64),
    Rows(Vec<String>),
    Refused(u16),
}

/// How a case ended.
enum Verdict {
    /// With the answer to the last statement.
    Same(Option<Outcome>),
    /// Ended at a lock that only one engine has.
    Unjudged,
    /// InnoDB itself answers otherwise once the server has opened its tables anew.
    Stale,
    Different(Difference),
}

struct Difference {
    /// Number of the statement.
    at: usize,
    got: Outcome,
    words: String,
}

struct Case {
    tables: Vec<String>,
    statements: Vec<Statement>,
}

impl RandomSql {
    pub(crate) fn execute(&self) -> Result<(), String> {
        let installation = Installation::find()?;
        clear_directory(&self.directory)?;
        let mut options = vec![
            "--frond-cache-size=64M".into(),
            "--innodb-flush-log-at-trx-commit=0".into(),
            "--frond-commit-sync=NONE".into(),
            "--innodb-snapshot-isolation=ON".into(),
        ];
        if self.connections > 1 {
            options.extend(["--innodb-lock-wait-timeout=0".into(), "--frond-lock-wait-timeout=0".into()]);
        }
        options.extend(self.server_options.iter().cloned());
        println!("random-sql: seed={} cases={} connections={}", self.seed, self.cases, self.connections);
        let server = Server::create(&installation, &self.directory, &options)?;
        match self.run_cases(server) {
            Ok(()) => {
                let _ = remove_directory(&self.directory);
                Ok(())
            }
            Err(error) => Err(format!("{error}\nthe server's directory is kept: {}", self.directory.display())),
        }
    }

    fn run_cases(&self, mut server: Server) -> Result<(), String> {
        server.start()?;
        let (mut found, mut unjudged, mut stale) = (0, 0, 0);
        for seed in self.seed..self.seed + self.cases {
            match self.case(seed, &server).map_err(|error| format!("seed={seed}: {error}"))? {
                Verdict::Same(_) => {}
                Verdict::Unjudged => unjudged += 1,
                Verdict::Stale => stale += 1,
                Verdict::Different(difference) => {
                    println!("random-sql: seed={seed}: {}", difference.words);
                    found += 1;
                    if !self.keep_going {
                        break;
                    }
                }
            }
        }
        server.stop()?;
        if found > 0 {
            return Err(format!("{found} cases differ"));
        }
        println!(
            "random-sql: all the same; of {} cases {unjudged} ended early at a lock, {stale} where InnoDB answers otherwise after FLUSH TABLES",
            self.cases
        );
        Ok(())
    }

    fn case(&self, seed: u64, server: &Server) -> Result<Verdict, String> {
        let mut random = Random::new(seed);
        let tables = schema::tables(&mut random, self.long_rows);
        let statements = statement::statements(&mut random, &tables, self.statements, self.connections as usize);
        let mut case = Case { tables: tables.iter().map(schema::Table::definition).collect(), statements };
        if self.verbose {
            println!("{}", case.script());
        }
        let verdict = self.run(&case, server)?;
        let Verdict::Different(difference) = verdict else { return Ok(verdict) };
        let smaller = self.minimise(&mut case, difference, server)?;
        if self.is_stale(&case, &smaller, server)? {
            return Ok(Verdict::Stale);
        }
        let words = format!("{}\n{}", smaller.words, case.script());
        Ok(Verdict::Different(Difference { words, ..smaller }))
    }

    /// Whether InnoDB gives FROND's answer when the tables are opened anew before the statement.
    fn is_stale(&self, case: &Case, difference: &Difference, server: &Server) -> Result<bool, String> {
        let mut anew = Case { tables: case.tables.clone(), statements: case.statements.clone() };
        let Some(last) = anew.statements.get(difference.at) else { return Ok(false) };
        let flush = Statement { text: "FLUSH TABLES".into(), ..last.clone() };
        anew.statements.insert(difference.at, flush);
        anew.statements.truncate(difference.at + 2);
        Ok(matches!(self.run(&anew, server)?, Verdict::Same(Some(answer)) if answer == difference.got))
    }

    /// Leaves out whatever the difference does not need.
    fn minimise(&self, case: &mut Case, mut difference: Difference, server: &Server) -> Result<Difference, String> {
        case.statements.truncate(difference.at + 1);
        let mut step = case.statements.len() / 2;
        while step > 0 {
            let mut at = 0;
            while at + step < case.statements.len() {
                let mut fewer = case.statements.clone();
                fewer.drain(at..at + step);
                let smaller = Case { tables: case.tables.clone(), statements: fewer };
                match self.run(&smaller, server)? {
                    Verdict::Different(same) => {
                        difference = same;
                        *case = smaller;
                        case.statements.truncate(difference.at + 1);
                    }
                    _ => at += step,
                }
            }
            step /= 2;
        }
        Ok(difference)
    }

    fn run(&self, case: &Case, server: &Server) -> Result<Verdict, String> {
        let failed = |error: Failure| error.to_string();
        let mut copies = Vec::new();
        for (database, engine) in COPIES {
            let mut connection = Connection::open(&server.socket(), "").map_err(failed)?;
            connection.run(format!("DROP DATABASE IF EXISTS {database}")).map_err(failed)?;
            connection.run(format!("CREATE DATABASE {database} CHARACTER SET utf8mb4")).map_err(failed)?;
            connection.run(format!("USE {database}")).map_err(failed)?;
            connection.run(format!("SET SESSION default_storage_engine={engine}")).map_err(failed)?;
            for table in &case.tables {
                connection.run(table).map_err(|error| format!("{error} in {table} on {engine}"))?;
            }
            let mut connections = vec![connection];
            for _ in 1..self.connections {
                connections.push(Connection::open(&server.socket(), database).map_err(failed)?);
            }
            copies.push(connections);
        }
        let [reference, frond] = copies.as_mut_slice() else { return Err("two copies".into()) };
        let mut last = None;
        for (at, statement) in case.statements.iter().enumerate() {
            let expected = run_one(&mut reference[statement.connection], statement)?;
            let got = run_one(&mut frond[statement.connection], statement)
                .map_err(|error| format!("{error}\n{}\n{}", case.script(), server.last_words()))?;
            if expected == got {
                last = Some(got);
                continue;
            }
            let is_lock = |outcome: &Outcome| matches!(outcome, Outcome::Refused(code) if LOCK_REFUSALS.contains(code));
            if self.connections > 1 && (is_lock(&expected) || is_lock(&got)) {
                return Ok(Verdict::Unjudged);
            }
            let words = format!("different answers to: {}\n  InnoDB {expected:?}\n  FROND  {got:?}", statement.text);
            return Ok(Verdict::Different(Difference { at, got, words }));
        }
        Ok(Verdict::Same(last))
    }
}

impl Case {
    fn script(&self) -> String {
        let statements = self.statements.iter().map(|statement| match statement.connection {
            0 => statement.text.clone(),
            other => format!("/* connection {other} */ {}", statement.text),
        });
        let lines: Vec<String> =
            self.tables.iter().cloned().chain(statements).map(|line| format!("  {line};")).collect();
        lines.join("\n")
    }
}

fn run_one(connection: &mut Connection, statement: &Statement) -> Result<Outcome, String> {
    match connection.run(&statement.text) {
        Ok(Answer::Done { .. }) if statement.text.starts_with("ALTER") => Ok(Outcome::Affected(0)),
        Ok(Answer::Done { affected, .. }) => Ok(Outcome::Affected(affected)),
        Ok(Answer::Rows(rows)) => {
            let words = |row: &Vec<_>| row.iter().map(text).collect::<Vec<_>>().join("|");
            let mut rows: Vec<String> = rows.iter().map(words).collect();
            if !statement.is_ordered {
                rows.sort_unstable();
            }
            Ok(Outcome::Rows(rows))
        }
        Err(Failure::Refused { code, .. }) => Ok(Outcome::Refused(code)),
        Err(Failure::Lost(why)) => Err(format!("the server is gone: {why}; it was asked: {}", statement.text)),
    }
}
