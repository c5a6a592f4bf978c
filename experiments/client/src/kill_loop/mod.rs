//! A server under mixed concurrent SQL is killed with SIGKILL at random moments, many times in a row.
//!
//! Each round: workers, one connection and thread each, run until the connection breaks, which is not before one of them has
//! something acknowledged; the server is started again (sometimes killed once more in mid-recovery); what each worker knows
//! and what the tables hold are compared.
//!
//! What is checked after each restart
//!   K1  every acknowledged transaction is there; the one in flight is there as a whole or not at all; nothing else is
//!   K2  the money: the sum over both tables, and each balance against the journal of transfers (`bank`); with `--mixed` one table
//!       is InnoDB's, and a transfer is in both engines or in neither
//!   K3  DDL: each table is as before or as after the statement in flight (`ddl`); no table is left that nobody knows
//!   K4  XA: a prepared branch survives and can be decided either way (`xa`)
//!   K5  CHECK TABLE is clean, and all indexes of a table agree (`indexes`)
//!   K6  no tree of the engine without a table of the server, no temporary file of the server's
//!   K7  with `--binlog`: the binary log and the tables tell the same transactions (`binlog`)
//!
//! Start-up is timed from the launch of the process to the first SELECT on a FROND table, against starts after an orderly stop.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use clap::Args;

use crate::server::{Installation, Server, clear_directory, remove_directory};
use frond_load::random::Random;
use frond_load::wire::{Connection, Failure};

mod bank;
mod binlog;
mod churn;
mod ddl;
mod indexes;
mod xa;

/// The database that all tables are in.
const DATABASE: &str = "bank";
const BINLOG_NAME: &str = "binlog";
/// Every so many kills the server is stopped in order instead, to time a clean start on the same data.
const CLEAN_STOP_EVERY: u64 = 8;
/// Percentage of restarts that are killed once more while they recover.
const KILLED_AGAIN_PERCENT: u64 = 20;
/// A server under which nothing gets done by then is taken for hung.
const ACKNOWLEDGED_SECONDS_MAX: u64 = 60;

#[derive(Debug, Args)]
pub(crate) struct KillLoop {
    /// How often the server is killed
    #[arg(long, default_value_t = 5)]
    kills: u64,
    /// Of the random choices; what the threads make of it differs from run to run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// With the binary log (sync_binlog=1), and its agreement with the tables
    #[arg(long)]
    binlog: bool,
    /// One of the two tables of accounts is InnoDB's, so that transfers are of two engines; whole ones need the binary log
    #[arg(long, requires = "binlog")]
    mixed: bool,
    /// Longest time between the start of the work and the kill, in milliseconds
    #[arg(long, default_value_t = 1500)]
    work_ms_max: u64,
    /// Memory of the engine, in MiB
    #[arg(long, default_value_t = 32)]
    memory: u64,
    /// Fail when a start after a kill takes so many seconds more than a clean one
    #[arg(long)]
    start_bound: Option<f64>,
    /// Where the server lives; it is removed when all is well, and stays to be looked at when not
    #[arg(long, default_value_os_t = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/mariadb/kill-loop")))]
    directory: PathBuf,
    /// Further options of mariadbd
    #[arg(last = true)]
    server_options: Vec<String>,
}

/// Why a step ended.
pub(crate) enum Trouble {
    /// The server is gone, as it should be sooner or later.
    Lost,
    /// Something is wrong.
    Finding(String),
}

/// A client with a connection of its own, and what it knows to be in the database.
pub(crate) trait Worker: Send {
    /// What it is called in messages.
    fn name(&self) -> String;
    /// One transaction or statement.
    fn step(&mut self, connection: &mut Connection) -> Result<(), Trouble>;
    /// After a restart: what is there is what it knows; what was in flight is settled.
    fn verify(&mut self, connection: &mut Connection) -> Result<(), String>;
    /// Transactions acknowledged so far.
    fn acknowledged(&self) -> u64;
}

/// Runs a statement of which only the listed refusals are expected. `Ok(false)`: refused.
pub(crate) fn attempt(connection: &mut Connection, statement: &str, expected: &[u16]) -> Result<bool, Trouble> {
    match connection.run(statement) {
        Ok(_) => Ok(true),
        Err(Failure::Lost(_)) => Err(Trouble::Lost),
        Err(Failure::Refused { code, .. }) if expected.contains(&code) => Ok(false),
        Err(error) => Err(Trouble::Finding(format!("{error} in {statement}"))),
    }
}

/// Lock wait timeout and deadlock.
pub(crate) const LOCK_REFUSALS: [u16; 2] = [1205, 1213];

impl KillLoop {
    pub(crate) fn execute(&self) -> Result<(), String> {
        let installation = Installation::find()?;
        clear_directory(&self.directory)?;
        // Nobody sees a deadlock over two engines.
        let lock_wait = if self.mixed { 1 } else { 5 };
        let mut options = vec![
            format!("--frond-cache-size={}M", self.memory),
            format!("--innodb-lock-wait-timeout={lock_wait}"),
            format!("--frond-lock-wait-timeout={lock_wait}"),
            "--lock-wait-timeout=60".into(),
        ];
        if self.binlog {
            options.extend([format!("--log-bin={BINLOG_NAME}"), "--sync-binlog=1".into(), "--server-id=1".into()]);
            options.push("--binlog-format=ROW".into());
        }
        options.extend(self.server_options.iter().cloned());
        println!("kill-loop: seed={} kills={} binlog={} mixed={}", self.seed, self.kills, self.binlog, self.mixed);
        let mut run = Run {
            command: self,
            random: Random::new(self.seed),
            server: Server::create(&installation, &self.directory, &options)?,
            binlog: self.binlog.then(|| binlog::Agreement::new(&installation)),
            workers: Vec::new(),
            starts_clean: Vec::new(),
            starts_killed: Vec::new(),
        };
        let done = run.execute();
        run.server.kill();
        match done {
            Ok(()) => {
                let _ = remove_directory(&self.directory);
                Ok(())
            }
            Err(error) => Err(format!(
                "{error}\nthe server's directory is kept: {} (seed={})",
                self.directory.display(),
                self.seed
            )),
        }
    }
}

struct Run<'a> {
    command: &'a KillLoop,
    random: Random,
    server: Server,
    binlog: Option<binlog::Agreement>,
    workers: Vec<Box<dyn Worker>>,
    starts_clean: Vec<Duration>,
    starts_killed: Vec<Duration>,
}

impl Run<'_> {
    fn execute(&mut self) -> Result<(), String> {
        let mut connection = self.server.start()?;
        create(&mut connection, self.command.mixed).map_err(|error| error.to_string())?;
        self.workers = self.hire();
        for kill in 1..=self.command.kills {
            self.work()?;
            if kill % CLEAN_STOP_EVERY == 1 {
                // A first orderly stop, right after a kill and recovery, so that there is something to compare with.
                self.restart(kill)?;
                self.server.stop()?;
                let (_, time) = self.start_timed()?;
                self.starts_clean.push(time);
                self.verify(kill)?;
                continue;
            }
            self.restart(kill)?;
            self.verify(kill)?;
        }
        self.server.stop()?;
        self.report()
    }

    fn hire(&self) -> Vec<Box<dyn Worker>> {
        let mut workers: Vec<Box<dyn Worker>> = Vec::new();
        for number in 0..4 {
            workers.push(Box::new(bank::Transfers::new(number, self.random.fork(number))));
        }
        for number in 10..13 {
            workers.push(Box::new(churn::Churn::new(number, self.random.fork(number))));
        }
        for number in 20..22 {
            workers.push(Box::new(ddl::Definer::new(number, self.random.fork(number))));
        }
        for number in 30..32 {
            workers.push(Box::new(xa::Brancher::new(number, self.random.fork(number))));
        }
        workers
    }

    /// Lets the workers run and kills the server under them.
    fn work(&mut self) -> Result<(), String> {
        let socket = self.server.socket();
        let pause = Duration::from_millis(20 + self.random.below(self.command.work_ms_max.max(21) - 20));
        let (tell, first) = mpsc::channel();
        let findings: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .workers
                .iter_mut()
                .map(|worker| {
                    let (socket, tell) = (&socket, tell.clone());
                    scope.spawn(move || run_worker(worker.as_mut(), socket, &tell))
                })
                .collect();
            drop(tell);
            std::thread::sleep(pause);
            let begun = wait_for_work(&first, ACKNOWLEDGED_SECONDS_MAX);
            let alive = self.server.is_running();
            self.server.kill();
            let mut findings: Vec<String> = threads
                .into_iter()
                .filter_map(|thread| thread.join().unwrap_or(Some("a worker panicked".into())))
                .collect();
            if !alive {
                findings.push(format!("the server ended by itself\n{}", self.server.last_words()));
            } else {
                findings.extend(begun.err());
            }
            findings
        });
        if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
    }

    fn start_timed(&mut self) -> Result<(Connection, Duration), String> {
        let since = Instant::now();
        self.server.launch()?;
        self.server.wait(&format!("SELECT COUNT(*) FROM {DATABASE}.probe"), since)
    }

    fn restart(&mut self, kill: u64) -> Result<(), String> {
        while self.random.chance(KILLED_AGAIN_PERCENT) {
            self.server.launch()?;
            std::thread::sleep(Duration::from_millis(self.random.below(400)));
            self.server.kill();
        }
        let (_, time) = self.start_timed().map_err(|error| format!("kill={kill}: {error}"))?;
        self.starts_killed.push(time);
        Ok(())
    }

    fn verify(&mut self, kill: u64) -> Result<(), String> {
        let mut connection = Connection::open(&self.server.socket(), DATABASE).map_err(|error| error.to_string())?;
        let context = |words: String| format!("kill={kill}: {words}");
        for worker in &mut self.workers {
            worker.verify(&mut connection).map_err(|words| context(format!("{}: {words}", worker.name())))?;
        }
        bank::verify_balances(&mut connection).map_err(context)?;
        let tables = connection.column("SHOW TABLES").map_err(|error| context(error.to_string()))?;
        ddl::verify_no_stranger(&tables).map_err(context)?;
        for table in &tables {
            indexes::verify(&mut connection, table).map_err(|words| context(format!("table={table}: {words}")))?;
        }
        self.verify_no_orphan(&mut connection, &tables).map_err(context)?;
        if let Some(binlog) = &mut self.binlog {
            binlog.verify(&self.server.data(), &mut connection).map_err(context)?;
        }
        let acknowledged: u64 = self.workers.iter().map(|worker| worker.acknowledged()).sum();
        let milliseconds = self.starts_killed.last().map_or(0, Duration::as_millis);
        println!("kill-loop: kill={kill} ready_ms={milliseconds} acknowledged={acknowledged} tables={}", tables.len());
        Ok(())
    }

    /// K6. Trees are named `database/table` and `database/table/number`.
    fn verify_no_orphan(&self, connection: &mut Connection, tables: &[String]) -> Result<(), String> {
        let folder = self.server.data().join(DATABASE);
        for entry in std::fs::read_dir(&folder).map_err(|error| error.to_string())? {
            let name = entry.map_err(|error| error.to_string())?.file_name().to_string_lossy().into_owned();
            if name.starts_with('#') {
                return Err(format!("the server left a file: {name}"));
            }
        }
        let known: BTreeSet<&str> = tables.iter().map(String::as_str).collect();
        let trees = match connection.column("SELECT tree_name FROM information_schema.frond_trees") {
            Ok(trees) => trees,
            Err(Failure::Refused { code: 1109, .. }) => return Ok(()), // a plugin that lists no trees
            Err(error) => return Err(error.to_string()),
        };
        for tree in trees {
            let mut parts = tree.split('/');
            match (parts.next(), parts.next()) {
                (Some(DATABASE), Some(table)) if known.contains(table.split("#P#").next().unwrap_or(table)) => {}
                (Some("#frond" | "mysql"), _) => {} // the engine's own, the server's own
                _ => return Err(format!("a tree without a table: {tree}")),
            }
        }
        Ok(())
    }

    fn report(&self) -> Result<(), String> {
        let seconds = |times: &[Duration]| {
            let mut sorted: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
            sorted.sort_by(f64::total_cmp);
            let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
            (middle, sorted.last().copied().unwrap_or(0.0))
        };
        let (clean, clean_max) = seconds(&self.starts_clean);
        let (killed, killed_max) = seconds(&self.starts_killed);
        println!("kill-loop: start after an orderly stop: median {clean:.3} s, longest {clean_max:.3} s");
        println!("kill-loop: start after a kill: median {killed:.3} s, longest {killed_max:.3} s");
        for worker in &self.workers {
            println!("kill-loop: {}: {} acknowledged", worker.name(), worker.acknowledged());
        }
        match self.command.start_bound {
            Some(bound) if killed_max > clean + bound => {
                Err(format!("a start after a kill took {killed_max:.3} s, a clean one {clean:.3} s; bound={bound}"))
            }
            _ => Ok(()),
        }
    }
}

/// Runs until the connection breaks, and tells of the first thing acknowledged. Gives what is wrong.
fn run_worker(worker: &mut dyn Worker, socket: &Path, tell: &Sender<()>) -> Option<String> {
    let mut connection = Connection::open(socket, DATABASE).ok()?;
    let before = worker.acknowledged();
    let mut told = false;
    loop {
        match worker.step(&mut connection) {
            Ok(()) => {}
            Err(Trouble::Lost) => return None,
            Err(Trouble::Finding(words)) => return Some(format!("{}: {words}", worker.name())),
        }
        if !told && worker.acknowledged() > before {
            let _ = tell.send(());
            told = true;
        }
    }
}

/// Waits until some worker has something acknowledged: a round that changes nothing proves nothing, and one that cannot is
/// that of a server which came back with all refused or locked.
fn wait_for_work(first: &Receiver<()>, seconds_max: u64) -> Result<(), String> {
    match first.recv_timeout(Duration::from_secs(seconds_max)) {
        Ok(()) => Ok(()),
        Err(RecvTimeoutError::Timeout) => Err(format!("nothing was acknowledged within {seconds_max} s")),
        Err(RecvTimeoutError::Disconnected) => Err("no worker got anything acknowledged".into()),
    }
}

fn create(connection: &mut Connection, mixed: bool) -> Result<(), Failure> {
    connection.run(format!("CREATE DATABASE {DATABASE}"))?;
    connection.run(format!("USE {DATABASE}"))?;
    connection.run("CREATE TABLE probe (id INT PRIMARY KEY)")?;
    bank::create(connection, if mixed { "InnoDB" } else { "FROND" })?;
    churn::create(connection)?;
    xa::create(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_counts_when_something_was_acknowledged() {
        let (tell, first) = mpsc::channel();
        assert!(wait_for_work(&first, 0).is_err(), "nothing yet");
        tell.send(()).unwrap();
        assert_eq!(wait_for_work(&first, 0), Ok(()));
        drop(tell);
        assert!(wait_for_work(&first, 600).is_err(), "all workers have lost their connections");
    }
}
