//! The child: inserts rows until it is killed, and tells on its standard output what the database acknowledged.
//!
//! Lines, each written at once: `begin` when the table is open; `ack LAST` after a commit returned, with the last row of the transaction; `tick ROWS
//! BYTES LEVEL0 LEVEL0_MAX P99` every 100 ms, with rows written so far (committed or not), bytes written to storage,
//! fill of level 0 and where it seals, and the 99th percentile of commit times in µs.
//!
//! Beside the transactions that commit, one stays open all the time and gets a few rows with each of them, whose syncs make
//! its rows durable too: half-done work that is on the disk when the kill comes and must not be seen afterwards.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use fronddb::{Database, TxnOptions, WriteBatch};

use super::table::Table;
use super::{Run, TRANSACTION_ROWS};
use crate::failure::{During, Failure, Outcome};

/// Name of the hidden subcommand.
pub(crate) const LOADER: &str = "plug-load";

const TICK: Duration = Duration::from_millis(100);
/// Rows of one write at full speed: several writes make a transaction, so that a kill can fall between them.
const WRITE_ROWS: u64 = 250;
/// Writes per second at a limited rate.
const WRITES_PER_SECOND: u64 = 50;

/// The first row of the transaction that never ends, far from all others.
const STRAGGLER_FIRST: u64 = 1 << 40;
/// Rows that it gets with each transaction that commits.
const STRAGGLER_ROWS: u64 = 10;

/// The loading process of `frond plug`
#[derive(Debug, Args)]
pub(crate) struct PlugLoad {
    #[arg(long)]
    database: PathBuf,
    #[arg(long)]
    memory: u64,
    #[arg(long)]
    seed: u64,
    /// The first row to insert
    #[arg(long)]
    first: u64,
    /// Rows per second; 0: no limit
    #[arg(long)]
    rate: u64,
}

impl PlugLoad {
    /// Its arguments for a child that goes on after `rows` rows.
    pub(super) fn arguments(run: &Run, rate: super::Rate, rows: u64) -> Vec<std::ffi::OsString> {
        let mut arguments = vec![LOADER.into(), "--database".into(), run.database.clone().into_os_string()];
        let numbers =
            [("--memory", run.memory), ("--seed", run.seed), ("--first", rows + 1), ("--rate", rate.unwrap_or(0))];
        for (name, number) in numbers {
            arguments.extend([name.into(), number.to_string().into()]);
        }
        arguments
    }

    /// Inserts until the pipe or the process ends.
    pub(crate) fn run(self) -> Outcome {
        let run = Run { database: self.database.clone(), memory: self.memory, seed: self.seed };
        let db = Database::open(&run.database, run.options().create_if_missing(true)).during("open")?;
        let table = Table::open_or_create(&db)?;
        let written = Arc::new(AtomicU64::new(0));
        let ticking = (db.clone(), Arc::clone(&written));
        std::thread::spawn(move || tick(&ticking.0, &ticking.1));
        tell("begin\n")?;
        let start = Instant::now();
        let mut batch = WriteBatch::new();
        let mut next = self.first;
        let straggler = db.begin(TxnOptions::default()).during("begin")?;
        let mut straggler_next = STRAGGLER_FIRST;
        loop {
            batch.clear();
            for _ in 0..STRAGGLER_ROWS {
                table.insert(&run.row(straggler_next), &mut batch).during("insert")?;
                straggler_next += 1;
            }
            straggler.write(&batch).during("insert rows that are never committed")?;
            let txn = db.begin(TxnOptions::default()).during("begin")?;
            let end = next + TRANSACTION_ROWS;
            while next < end {
                let write_end = end.min(next + self.write_rows());
                batch.clear();
                for id in next..write_end {
                    table.insert(&run.row(id), &mut batch).during("insert")?;
                }
                txn.write(&batch).during(format_args!("insert rows from {next}"))?;
                next = write_end;
                written.store(next - self.first, Ordering::Relaxed);
                self.wait(start, next - self.first);
            }
            txn.commit().during(format_args!("commit rows to {}", next - 1))?;
            tell(&format!("ack {}\n", next - 1))?;
        }
    }

    fn write_rows(&self) -> u64 {
        if self.rate == 0 { WRITE_ROWS } else { (self.rate / WRITES_PER_SECOND).clamp(1, WRITE_ROWS) }
    }

    fn wait(&self, start: Instant, rows: u64) {
        if self.rate > 0 {
            let due = Duration::from_secs_f64(rows as f64 / self.rate as f64);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
        }
    }
}

fn tick(db: &Database, written: &AtomicU64) {
    loop {
        std::thread::sleep(TICK);
        let Ok(now) = db.statistics() else { return };
        let line = format!(
            "tick {} {} {} {} {}\n",
            written.load(Ordering::Relaxed),
            now.bytes_written(),
            now.level0_bytes,
            now.level0_bytes_max,
            now.commit.p99_micros
        );
        if tell(&line).is_err() {
            // The parent is gone: so is the reason to go on.
            std::process::exit(0);
        }
    }
}

/// Writes a line in one piece.
fn tell(line: &str) -> Outcome {
    let mut output = std::io::stdout().lock();
    let told = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    told.map_err(|error| Failure::files("tell the parent", &error))
}
