//! `frond plug`, the pulled plug: loads the iiBench table in a child process, kills it in mid-insert at several rates,
//! and shows what is left and how soon it answers again.
//!
//! Rooms, in reading order: [`table`] (the four indexes), [`loader`] (the child), [`watch`] (the parent while the child
//! runs: progress, timeline, kill), [`reopen`] (time until the first query), [`verify`] (every row through
//! every index), [`report`] (table and JSON), [`timeline`] and [`picture`] (the rate over time).
//!
//! What is promised and checked: P1, a transaction whose commit was acknowledged (a line on the child's pipe, written
//! after `commit` returned) is there, whole. P2, of the one in flight all is there or nothing, and of one that was open all the time nothing. P3, the four
//! indexes agree. A SIGKILL ends the process and not the machine: the operating system keeps what it was given. That a
//! sync means what it says is for the crash tests on the simulated disk, which lose everything unsynced.

mod loader;
mod picture;
mod reopen;
mod report;
mod table;
mod timeline;
mod verify;
mod watch;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use frond_bench::generate::Purchase;

pub(crate) use loader::{LOADER, PlugLoad};

use crate::failure::{During, Failure, Outcome};
use crate::output::{note, print, write_file};
use crate::quantity::{parse_bytes, parse_count, parse_seconds};
use report::{Drop, Report};
use timeline::Timeline;

/// Rows of a transaction.
pub(crate) const TRANSACTION_ROWS: u64 = 1_000;

/// Rows per second; `None`: as fast as it goes.
pub(crate) type Rate = Option<u64>;

/// Kill the database at full insert speed, and see what is left: the pulled plug
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frond plug                             about a minute: kills at full speed, at 2,000 and at 200 rows/s
  frond plug --rows 20M --memory 1G      for a table that does not fit
  frond plug --rate max --rate max       twice at full speed
  make run ROWS=20M RATE=max,500         the same, from the repository

It loads the iiBench table (primary key and three secondary indexes on random values) in durable transactions of 1,000
rows, kills the loading process with SIGKILL in mid-insert, reopens, and checks every acknowledged transaction row by
row through all four indexes. The results (table, JSON, picture) stay in a folder that it names. Exit code 1 if anything
was lost or half-done.")]
pub(crate) struct Plug {
    /// Rows to load at full speed before the first kill
    #[arg(long, value_parser = parse_count, default_value = "2M")]
    rows: u64,
    /// Memory budget of the database
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "256M")]
    memory: u64,
    /// Rows per second of each kill, in order; `max` for no limit
    #[arg(long = "rate", value_name = "ROWS", value_parser = parse_rate, value_delimiter = ',', default_value = "max,2000,200")]
    rates: Vec<Rate>,
    /// Seconds of inserting at a limited rate before the kill; at least one transaction is awaited
    #[arg(long, value_parser = parse_seconds, default_value = "8")]
    seconds: Duration,
    /// Names the random rows and moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the results [default: target/plug/… or one in the temporary directory]
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Keep the database (in the results folder)
    #[arg(long)]
    keep: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// What the parts of a run share.
#[derive(Debug)]
struct Run {
    database: PathBuf,
    memory: u64,
    seed: u64,
}

impl Plug {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        if self.rates.is_empty() {
            return Err(Failure::usage("--rate names at least one rate"));
        }
        let results = self.results_folder()?;
        note(&format!("the results will be in {}", results.display()));
        let run = Run { database: results.join("db"), memory: self.memory, seed: self.seed };
        let mut timeline = Timeline::new();
        let mut report = Report { rows_asked: self.rows, memory: self.memory, seed: self.seed, ..Report::default() };
        let mut rows = 0;
        for (at, rate) in self.rates.iter().enumerate() {
            let drop = self.drop_once(&run, at, *rate, rows, &mut timeline)?;
            rows = drop.rows_found;
            note(&drop.describe());
            let bad = !drop.is_good();
            report.drops.push(drop);
            if bad {
                break;
            }
        }
        if report.is_good() {
            let progress = crate::progress::Progress::bytes("check", 0);
            let options = fronddb::CheckOptions { memory_bytes: run.memory_bytes(), ..Default::default() };
            let check = fronddb::check(&run.database, &options, &mut |at| {
                progress.set_total(at.total);
                progress.set(at.done);
            });
            report.check = Some(check.during("check")?);
        }
        report.disk_bytes = frond_bench::measure::disk_bytes(&run.database).unwrap_or(0);
        self.show(&run, &results, &report, &timeline)
    }

    fn drop_once(&self, run: &Run, at: usize, rate: Rate, rows: u64, timeline: &mut Timeline) -> Outcome<Drop> {
        let goal = match rate {
            None => watch::Goal::Rows(self.rows),
            Some(_) => watch::Goal::Time(self.seconds),
        };
        let watched = watch::load_and_kill(run, rate, rows, goal, self.seed ^ at as u64, timeline)?;
        frond_bench::measure::drop_cached_pages(&run.database).map_err(|error| Failure::negative(error.to_string()))?;
        let after_kill = reopen::reopen(run, watched.acknowledged, "open after the kill")?;
        timeline.answering(Instant::now());
        let verdict = verify::verify(&after_kill.db, run.seed, watched.acknowledged)?;
        let recovery = after_kill.recovery.clone();
        after_kill.db.checkpoint().during("checkpoint")?;
        after_kill.db.close().during("close")?;
        frond_bench::measure::drop_cached_pages(&run.database).map_err(|error| Failure::negative(error.to_string()))?;
        let after_close = reopen::reopen(run, verdict.rows, "open after a clean close")?;
        after_close.db.close().during("close")?;
        Ok(Drop {
            rate,
            rows_before: rows,
            rows_acknowledged: watched.acknowledged,
            rows_inserted: watched.inserted,
            rows_found: verdict.rows,
            seconds: watched.seconds,
            bytes_written: watched.bytes_written,
            commit_p99_micros: watched.commit_p99_micros,
            recovery,
            after_kill: after_kill.first_query,
            after_close: after_close.first_query,
            problems: verdict.problems,
        })
    }

    fn show(&self, run: &Run, results: &Path, report: &Report, timeline: &Timeline) -> Outcome {
        let table = report.table();
        let terminal = picture::terminal(timeline);
        write_file(&results.join("plug.json"), &format!("{:#}\n", report.to_json()))?;
        write_file(&results.join("plug.txt"), &format!("{table}\n\n{terminal}\n"))?;
        write_file(&results.join("plug.svg"), &picture::svg(timeline))?;
        let keep = self.keep || !report.is_good();
        if !keep {
            std::fs::remove_dir_all(&run.database)
                .map_err(|error| Failure::files(format_args!("remove {}", run.database.display()), &error))?;
        }
        if self.json {
            print(&report.to_json().to_string())?;
        } else {
            let kept = if keep { ", and the database in db/" } else { "" };
            print(&format!(
                "\n{terminal}\n\n{table}\n\n{}\nIn {}: plug.svg (the picture), plug.json, plug.txt{kept}",
                report.legend(),
                results.display()
            ))?;
        }
        if report.is_good() {
            return Ok(());
        }
        Err(Failure::negative(format!(
            "the database did not survive the kill: problems={}; it is kept in {}",
            report.problems(),
            run.database.display()
        )))
    }

    fn results_folder(&self) -> Outcome<PathBuf> {
        let folder = match &self.results {
            Some(folder) => folder.clone(),
            None => {
                let target = Path::new("target");
                let base = if target.is_dir() { target.join("plug") } else { std::env::temp_dir().join("frond-plug") };
                let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                base.join(format!("{}-{}", seconds.map_or(0, |time| time.as_secs()), std::process::id()))
            }
        };
        if folder.join("db").exists() {
            return Err(Failure::usage(format!("{} holds a database already; name another folder", folder.display())));
        }
        std::fs::create_dir_all(&folder)
            .map_err(|error| Failure::files(format_args!("create {}", folder.display()), &error))?;
        Ok(folder)
    }
}

impl Run {
    fn memory_bytes(&self) -> usize {
        usize::try_from(self.memory).unwrap_or(usize::MAX)
    }

    fn options(&self) -> fronddb::Options {
        fronddb::Options::new().memory_bytes(self.memory_bytes())
    }

    fn row(&self, id: u64) -> Purchase {
        Purchase::generate(self.seed, id)
    }
}

fn parse_rate(text: &str) -> Result<Rate, String> {
    match text {
        "max" => Ok(None),
        _ => match parse_count(text)? {
            0 => Err("a rate of 0 inserts nothing; `max` is without limit".to_owned()),
            rate => Ok(Some(rate)),
        },
    }
}
