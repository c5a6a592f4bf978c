//! Tables that are loaded once per engine and copied for each experiment that begins with them.
//!
//! They are loaded with much memory and without limits, because how long that takes is not the matter of any experiment
//! (experiment 6 tells it all the same), then settle until the engine writes no more, and the server is stopped in order.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use frond_load::insert::Plan;
use frond_load::purchase;
use serde::{Deserialize, Serialize};

use crate::cleanup;
use crate::context::Context;
use crate::engine::Engine;
use crate::failure::{Failure, While};
use crate::limits::Limits;
use crate::measure::Work;
use crate::server::{self, Server};
use crate::{sysbench, tpcc};

/// The seed of iiBench's rows.
pub(crate) const SEED: u64 = 42;
pub(crate) const IIBENCH_TABLE: &str = "purchases_index";
pub(crate) const IIBENCH_DATABASE: &str = "iibench";
/// An engine that still writes then is measured as it is.
const SETTLE_SECONDS_MAX: u64 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Kind {
    Iibench,
    Sysbench,
    SysbenchLarge,
    Tpcc,
}

/// What loading gave.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Loaded {
    pub(crate) rows: u64,
    pub(crate) work: Work,
    pub(crate) bytes_on_disk: u64,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Iibench => "iibench",
            Kind::Sysbench => "sysbench",
            Kind::SysbenchLarge => "sysbench-large",
            Kind::Tpcc => "tpcc",
        }
    }

    /// Answered when a table of it can be read.
    pub(crate) fn first_query(self) -> &'static str {
        match self {
            Kind::Iibench => "SELECT price FROM iibench.purchases_index WHERE transactionid = 1",
            Kind::Sysbench | Kind::SysbenchLarge => "SELECT k FROM sbtest.sbtest1 WHERE id = 1",
            Kind::Tpcc => "SELECT d_next_o_id FROM tpcc.district WHERE d_w_id = 1 AND d_id = 1",
        }
    }
}

fn path(context: &Context, engine: Engine, kind: Kind) -> PathBuf {
    context.datasets.join(format!("{}-{}", engine.key(), kind.name()))
}

/// Loads the table unless it is there.
pub(crate) fn ensure(context: &Context, engine: Engine, kind: Kind) -> Result<Loaded, Failure> {
    let path = path(context, engine, kind);
    let note = path.join("loaded.json");
    if let Some(loaded) = fs::read(&note).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        return Ok(loaded);
    }
    let _ = fs::remove_dir_all(&path);
    let directory = context.fresh(engine)?;
    let loaded = load(context, directory.path(), engine, kind)?;
    fs::write(directory.path().join("loaded.json"), serde_json::to_vec(&loaded).or_say("cannot keep a note")?)
        .or_say("cannot keep a note")?;
    fs::create_dir_all(&context.datasets).or_say("cannot create a directory")?;
    fs::rename(directory.path(), &path).or_say("cannot keep a loaded table")?;
    Ok(loaded)
}

/// A copy of the loaded table's server directory, for one part.
pub(crate) fn copy(context: &Context, engine: Engine, kind: Kind) -> Result<(cleanup::Directory, Loaded), Failure> {
    let loaded = ensure(context, engine, kind)?;
    let place = context.place()?;
    copy_to(context, engine, kind, place.path())?;
    Ok((place, loaded))
}

/// The same of one that is loaded.
pub(crate) fn copy_to(context: &Context, engine: Engine, kind: Kind, directory: &Path) -> Result<(), Failure> {
    server::copy(&path(context, engine, kind), directory)
}

/// Removes a loaded table that no further part begins with.
pub(crate) fn forget(context: &Context, engine: Engine, kind: Kind) {
    let _ = fs::remove_dir_all(path(context, engine, kind));
}

fn load(context: &Context, directory: &Path, engine: Engine, kind: Kind) -> Result<Loaded, Failure> {
    let sizing = &context.sizing;
    let cache = sizing.cache_loading_bytes.min(memory_available() / 2).max(64 << 20);
    let mut settings = context.settings(engine, cache, Limits::default());
    if kind == Kind::Tpcc {
        settings.port = Some(tpcc::free_port()?);
    }
    let server = context.start(directory, &settings, "SELECT 1")?;
    server.run("", engine.sync(false))?;
    let before = server.counters();
    let (rows, work) = match kind {
        Kind::Iibench => load_iibench(&server, engine, sizing.iibench_rows)?,
        Kind::Sysbench => load_sysbench(&server, engine, sizing.sysbench_rows)?,
        Kind::SysbenchLarge => load_sysbench(&server, engine, sizing.sysbench_large_rows)?,
        Kind::Tpcc => load_tpcc(context, &server, sizing.warehouses)?,
    };
    let work = work.with(&before, &server.counters());
    // So that all rows are in the tables, whose size is told, and none in a log only.
    server.run("", engine.checkpoint())?;
    settle(&server, sizing.settle_seconds);
    server.stop(&context.cage)?;
    Ok(Loaded { rows, work, bytes_on_disk: size_of_tables(directory, engine) })
}

fn load_iibench(server: &Server, engine: Engine, rows: u64) -> Result<(u64, Work), Failure> {
    server.run("", "CREATE DATABASE iibench")?;
    server.run(IIBENCH_DATABASE, &purchase::create_table(IIBENCH_TABLE, engine.sql()))?;
    let socket = server.socket();
    let plan = Plan { rows_max: Some(rows), ..insert_plan(&socket, 0) };
    let before = server.counters();
    let outcome = plan.run(&AtomicBool::new(false), &AtomicU64::new(0));
    match &outcome.ended_by {
        Some(why) => Err(format!("loading ended: {why}\n{}", server.last_words())),
        None => Ok((outcome.rows, Work::of_inserts(&outcome, &before, &server.counters()))),
    }
}

/// Transactions of 1,000 rows at full speed by one client, rows from number `first`.
pub(crate) fn insert_plan(socket: &Path, first: u64) -> Plan<'_> {
    Plan {
        socket,
        database: IIBENCH_DATABASE,
        table: IIBENCH_TABLE,
        seed: SEED,
        first,
        rows_per_transaction: 1_000,
        clients: 1,
        rate: None,
        rows_max: None,
        time_max: None,
    }
}

fn load_sysbench(server: &Server, engine: Engine, rows: u64) -> Result<(u64, Work), Failure> {
    server.run("", "CREATE DATABASE sbtest")?;
    let begin = Instant::now();
    sysbench::prepare(server, engine, rows)?;
    Ok((rows, Work { units: rows as f64, seconds: begin.elapsed().as_secs_f64(), ..Work::default() }))
}

fn load_tpcc(context: &Context, server: &Server, warehouses: u64) -> Result<(u64, Work), Failure> {
    server.run("", "CREATE DATABASE tpcc")?;
    server.run("", "CREATE USER IF NOT EXISTS root@'127.0.0.1'")?;
    server.run("", "GRANT ALL ON *.* TO root@'127.0.0.1'")?;
    let begin = Instant::now();
    tpcc::prepare(context, server, warehouses)?;
    let rows = warehouses * 500_000;
    Ok((rows, Work { units: rows as f64, seconds: begin.elapsed().as_secs_f64(), ..Work::default() }))
}

/// Waits until the server has written next to nothing for `seconds`.
fn settle(server: &Server, seconds: f64) {
    const STEP: Duration = Duration::from_millis(500);
    let begin = Instant::now();
    let mut quiet = Duration::ZERO;
    let mut written = server.counters().bytes_written;
    while quiet.as_secs_f64() < seconds && begin.elapsed() < Duration::from_secs(SETTLE_SECONDS_MAX) {
        std::thread::sleep(STEP);
        let now = server.counters().bytes_written;
        quiet = if now - written < 512 << 10 { quiet + STEP } else { Duration::ZERO };
        written = now;
    }
}

/// Bytes of the engine's tables on disk, without transaction logs: InnoDB's lie elsewhere.
pub(crate) fn size_of_tables(directory: &Path, engine: Engine) -> u64 {
    let data = directory.join("data");
    match engine {
        Engine::Frond => server::size_on_disk(&data.join("#frond")),
        Engine::Rocksdb => server::size_on_disk(&data.join("#rocksdb")),
        Engine::Innodb | Engine::Blackhole => {
            ["iibench", "sbtest", "tpcc"].iter().map(|database| server::size_on_disk(&data.join(database))).sum()
        }
    }
}

/// Bytes that programs could take without swapping.
pub(crate) fn memory_available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(4 << 20) * 1024
}
