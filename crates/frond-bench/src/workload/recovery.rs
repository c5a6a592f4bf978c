//! Kill -9 at full load speed, reopen, compare with reopening after a clean close.
//!
//! The table is filled to a size in order of key (fast for every engine), closed, and then, for each kill: a child
//! overwrites random records in durable transactions as fast as it can, one number per transaction acknowledged on a pipe; the
//! parent kills it, drops the files' cached pages, and has a fresh child open the database, answer one query, check what
//! was acknowledged, and close; cached pages are dropped again and a further child opens what was closed cleanly.
//!
//! What is checked: transaction `n` writes its number into the row `newest` and into its records. After the kill `newest`
//! names at least the last acknowledged transaction, its records are all there, and the following transaction's are
//! absent altogether.
//!
//! With an open transaction, the child first begins one that never commits and keeps adding to it while it commits
//! others; after the kill none of its rows may be visible.

use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Common, EngineName, Outcome, Spec, Workload};
use crate::child::{Task, Worker, reply};
use crate::engine::{Cursor, Durability, Engine, Transaction};
use crate::generate::{Random, Values};
use crate::measure::{Latencies, Phase, Resources, disk_bytes, drop_cached_pages};
use crate::{Error, Result};

/// Options of the recovery workload.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct Options {
    /// Size of the filled table in MiB; values are incompressible
    #[arg(long, default_value_t = 1024)]
    pub size: u64,
    /// Seconds of load before each kill
    #[arg(long, value_parser = super::parse_seconds, default_value_t = 10.0)]
    pub seconds: f64,
    /// Kills
    #[arg(long, default_value_t = 5)]
    pub kills: u64,
    /// Rows per transaction of the load
    #[arg(long, default_value_t = 100)]
    pub batch: u64,
    /// Bytes per value
    #[arg(long, default_value_t = 1_000)]
    pub value_bytes: usize,
    /// Rows that a transaction which never commits has changed when the kill comes
    #[arg(long, default_value_t = 0)]
    pub open_rows: u64,
}

/// What a child does.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Fill the table and close; answers [`Filled`].
    Fill,
    /// Overwrite until killed, from this transaction number on; answers each acknowledged number.
    Load(u64),
    /// Open, query, check against the last acknowledged number, close; answers [`Opened`].
    Open(u64),
}

/// How the table was filled.
#[derive(Debug, Serialize, Deserialize)]
struct Filled {
    phase: Phase,
    /// As in [`Outcome`], of the process that filled it.
    memory_base_bytes: u64,
}

/// What opening showed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Opened {
    /// Milliseconds from the call of open to the answer of the first query.
    pub ready_ms: f64,
    /// The newest transaction found.
    pub newest: u64,
}

const TREES: [&str; 3] = ["rows", "newest", "open"];
const ROWS: usize = 0;
const NEWEST: usize = 1;
const OPEN: usize = 2;
const FILL_BATCH: u64 = 1_000;

impl Options {
    fn rows(&self) -> u64 {
        (self.size << 20) / (8 + self.value_bytes as u64)
    }
}

/// The parent's side.
pub fn run<E: Engine>(common: &Common, options: &Options, engine: EngineName) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    common.prepare()?;
    let spec = Spec { engine, common: common.clone(), workload: Workload::Recovery(options.clone()) };
    let start = |step| Worker::start(common, &Task::Recovery(spec.clone(), step));
    let filled: Filled = start(Step::Fill)?.finish()?;
    outcome.memory_base_bytes = filled.memory_base_bytes;
    outcome.phases.push(filled.phase);
    outcome.fact("size of the filled table", disk_bytes(&common.directory)? as f64 / (1 << 20) as f64, "MiB");
    let (mut killed, mut clean, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let mut newest = 0;
    for _ in 0..options.kills {
        let (acknowledged, rate) = load_and_kill(start(Step::Load(newest + 1))?, options, newest)?;
        rates.push(rate);
        drop_cached_pages(&common.directory)?;
        let opened: Opened = start(Step::Open(acknowledged))?.finish()?;
        killed.push(opened.ready_ms);
        newest = opened.newest;
        drop_cached_pages(&common.directory)?;
        clean.push(start(Step::Open(newest))?.finish::<Opened>()?.ready_ms);
    }
    outcome.fact("rows per second when killed", mean(&rates), "/s");
    outcome.fact("first answer after a kill, mean", mean(&killed), "ms");
    outcome.fact("first answer after a kill, worst", worst(&killed), "ms");
    outcome.fact("first answer after a clean close, mean", mean(&clean), "ms");
    outcome.fact("first answer after a clean close, worst", worst(&clean), "ms");
    outcome.fact("worst after a kill above mean after a close", worst(&killed) - mean(&clean), "ms");
    Ok(outcome)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Reads acknowledgements until it is time, kills, and reads those that were on their way. The last acknowledged
/// number, and rows per second.
fn load_and_kill(mut worker: Worker, options: &Options, newest: u64) -> Result<(u64, f64)> {
    let mut acknowledged = newest;
    let mut began: Option<Instant> = None;
    let mut first = newest;
    while let Some(number) = worker.answer::<u64>()? {
        acknowledged = number;
        // The clock starts at the first answer: opening, and an open transaction's rows, are not part of the load.
        let since = *began.get_or_insert_with(|| {
            first = number;
            Instant::now()
        });
        if since.elapsed() >= Duration::from_secs_f64(options.seconds) {
            break;
        }
    }
    let seconds = began.map_or(0.0, |began| began.elapsed().as_secs_f64());
    let ended = worker.kill()?;
    while let Some(number) = worker.answer::<u64>()? {
        acknowledged = number;
    }
    if ended.code().is_some() || seconds < options.seconds {
        return Err(Error::child(ended));
    }
    Ok((acknowledged, (acknowledged - first) as f64 * options.batch as f64 / seconds))
}

/// The child's side.
pub fn serve(spec: &Spec, step: &Step) -> Result<()> {
    let Workload::Recovery(options) = &spec.workload else {
        return Err(Error::new("a step of another workload"));
    };
    spec.engine.dispatch(ServeStep { common: &spec.common, options, step })
}

struct ServeStep<'a> {
    common: &'a Common,
    options: &'a Options,
    step: &'a Step,
}

impl super::OnEngine for ServeStep<'_> {
    type Answer = ();

    fn call<E: Engine>(self) -> Result<()> {
        let (common, options) = (self.common, self.options);
        match *self.step {
            Step::Fill => reply(&fill::<E>(common, options)?),
            Step::Load(number) => load_forever::<E>(common, options, number),
            Step::Open(acknowledged) => reply(&open::<E>(common, options, acknowledged)?),
        }
    }
}

fn values(common: &Common, options: &Options) -> Values {
    Values::new(common.seed, options.value_bytes, 1.0)
}

/// A value begins with the number of the transaction that wrote it.
fn value_of(values: &Values, row: u64, number: u64, out: &mut Vec<u8>) {
    values.generate(row, number, out);
    out.splice(..8, number.to_be_bytes());
}

fn fill<E: Engine>(common: &Common, options: &Options) -> Result<Filled> {
    let memory_base_bytes = Resources::now().memory_bytes;
    let engine = E::open(&common.open_options(&TREES))?;
    let (values, rows) = (values(common, options), options.rows());
    let mut meter = common.meter("fill", rows);
    let mut worker = meter.worker();
    let mut value = Vec::new();
    for first in (0..rows).step_by(FILL_BATCH as usize) {
        let end = (first + FILL_BATCH).min(rows);
        worker.time(end - first, || {
            let mut transaction = engine.begin()?;
            for row in first..end {
                value_of(&values, row, 0, &mut value);
                transaction.put(ROWS, &row.to_be_bytes(), &value)?;
            }
            transaction.commit(Durability::Write)
        })?;
    }
    meter.add(worker);
    engine.settle()?;
    let phase = meter.finish(&common.directory)?;
    engine.close()?;
    Ok(Filled { phase, memory_base_bytes })
}

/// Rows that transaction `number` overwrites.
fn rows_of(common: &Common, options: &Options, number: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::new(common.seed ^ number);
    let rows = options.rows();
    (0..options.batch).map(move |_| random.below(rows))
}

fn load_forever<E: Engine>(common: &Common, options: &Options, first: u64) -> Result<()> {
    let mut open_options = common.open_options(&TREES);
    open_options.transactional = options.open_rows > 0;
    let engine = E::open(&open_options)?;
    let values = values(common, options);
    let mut value = Vec::new();
    let mut never_committed = engine.begin()?;
    for row in 0..options.open_rows {
        value_of(&values, row, first, &mut value);
        never_committed.put(OPEN, &row.to_be_bytes(), &value)?;
    }
    for number in first.. {
        let mut transaction = engine.begin()?;
        for row in rows_of(common, options, number) {
            value_of(&values, row, number, &mut value);
            transaction.put(ROWS, &row.to_be_bytes(), &value)?;
        }
        transaction.put(NEWEST, b"newest", &number.to_be_bytes())?;
        transaction.commit(Durability::Sync)?;
        reply(&number)?;
    }
    Ok(())
}

fn open<E: Engine>(common: &Common, options: &Options, acknowledged: u64) -> Result<Opened> {
    let mut value = Vec::new();
    let began = Instant::now();
    let engine = E::open(&common.open_options(&TREES))?;
    let found = engine.get(NEWEST, b"newest", &mut value)?;
    let ready_ms = began.elapsed().as_secs_f64() * 1e3;
    let newest = if found { number_in(&value)? } else { 0 };
    if newest < acknowledged {
        return Err(Error::new(format!(
            "an acknowledged transaction is lost newest={newest} acknowledged={acknowledged}"
        )));
    }
    check(&engine, common, options, newest)?;
    engine.close()?;
    Ok(Opened { ready_ms, newest })
}

fn number_in(value: &[u8]) -> Result<u64> {
    let number = value.first_chunk().map(|number| u64::from_be_bytes(*number));
    number.ok_or_else(|| Error::new("a value is too short"))
}

/// The newest transaction is there as a whole, the next one not at all, and nothing of one that never committed.
fn check<E: Engine>(engine: &E, common: &Common, options: &Options, newest: u64) -> Result<()> {
    let mut value = Vec::new();
    let mut expected = Vec::new();
    let mut latencies = Latencies::new();
    for (number, present) in [(newest, newest > 0), (newest + 1, false)] {
        for row in rows_of(common, options, number) {
            let began = Instant::now();
            let found = engine.get(ROWS, &row.to_be_bytes(), &mut value)?;
            latencies.record(began.elapsed());
            let writer = if found { number_in(&value)? } else { 0 };
            value_of(&values(common, options), row, writer, &mut expected);
            if !found || (writer == number) != present || writer > newest || value != expected {
                return Err(Error::new(format!(
                    "a transaction is half there number={number} row={row} writer={writer}"
                )));
            }
        }
    }
    if engine.cursor(OPEN)?.seek_first()? {
        return Err(Error::new("a row of a transaction that never committed is visible"));
    }
    Ok(())
}
