//! Kill -9 at full load speed, reopen, compare with reopening after a clean close.
//!
//! The table is filled to a size in order of key (fast for every engine), closed, and then, for each kill: a child
//! overwrites random records in durable transactions as fast as it can, one number per transaction acknowledged on a pipe; the
//! parent kills it, drops the files' cached pages, and has a fresh child open the database, answer one query, check what
//! was acknowledged, and close; cached pages are dropped again and a further child opens what was closed cleanly.
//!
//! What is checked: transaction `n` writes its number into the row `newest` and into its records. After the kill `newest`
//! names at least the last acknowledged transaction, and each record has the value of the newest transaction up to that one
//! which wrote it; so a lost transaction, a torn one and one that was never acknowledged are all seen. Reopening after the kill
//! looks at the records of about a hundred transactions from the first to the newest, and of the one that would be next. All
//! records of the table are read after the clean close: of a table up to 1 GiB after every kill, of a larger one after the last.
//!
//! Memory is that of every process: the one that fills, those that are killed, and those that reopen, up to their first answer.
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
use crate::measure::{Phase, Resources, disk_bytes, drop_cached_pages};
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
    Open {
        /// The last acknowledged number.
        acknowledged: u64,
        /// Read every row.
        whole: bool,
    },
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
    /// Largest anonymous memory up to then.
    pub memory_peak_bytes: u64,
}

/// What the kills showed.
#[derive(Default)]
struct Kills {
    rates: Vec<f64>,
    killed_ms: Vec<f64>,
    clean_ms: Vec<f64>,
    killed_memory_bytes: u64,
    opened_memory_bytes: u64,
}

const TREES: [&str; 3] = ["rows", "newest", "open"];
const ROWS: usize = 0;
const NEWEST: usize = 1;
const OPEN: usize = 2;
const FILL_BATCH: u64 = 1_000;
/// Tables up to this size are read whole after every kill: seconds each.
const SCANNED_MIB: u64 = 1_024;
/// Transactions looked at by gets.
const LOOKED_AT: u64 = 100;

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
    let mut kills = Kills::default();
    let mut newest = 0;
    for kill in 1..=options.kills {
        let killed = load_and_kill(start(Step::Load(newest + 1))?, options, newest)?;
        drop_cached_pages(&common.directory)?;
        let open = |acknowledged, whole| start(Step::Open { acknowledged, whole })?.finish::<Opened>();
        let after_kill = open(killed.acknowledged, false)?;
        newest = after_kill.newest;
        drop_cached_pages(&common.directory)?;
        let after_close = open(newest, kill == options.kills || options.size <= SCANNED_MIB)?;
        kills.add(&killed, &after_kill, &after_close);
    }
    kills.report(&mut outcome);
    Ok(outcome)
}

impl Kills {
    fn add(&mut self, killed: &Killed, after_kill: &Opened, after_close: &Opened) {
        self.rates.push(killed.rate);
        self.killed_ms.push(after_kill.ready_ms);
        self.clean_ms.push(after_close.ready_ms);
        self.killed_memory_bytes = self.killed_memory_bytes.max(killed.memory_peak_bytes);
        self.opened_memory_bytes =
            self.opened_memory_bytes.max(after_kill.memory_peak_bytes).max(after_close.memory_peak_bytes);
    }

    fn report(&self, outcome: &mut Outcome) {
        outcome.memory_peak_bytes = self.killed_memory_bytes.max(self.opened_memory_bytes);
        outcome.fact("rows per second when killed", mean(&self.rates), "/s");
        outcome.fact("first answer after a kill, mean", mean(&self.killed_ms), "ms");
        outcome.fact("first answer after a kill, worst", worst(&self.killed_ms), "ms");
        outcome.fact("first answer after a clean close, mean", mean(&self.clean_ms), "ms");
        outcome.fact("first answer after a clean close, worst", worst(&self.clean_ms), "ms");
        let above = worst(&self.killed_ms) - mean(&self.clean_ms);
        outcome.fact("worst after a kill above mean after a close", above, "ms");
        let base = outcome.memory_base_bytes;
        let mib = |bytes: u64| bytes.saturating_sub(base) as f64 / (1 << 20) as f64;
        outcome.fact("memory peak when killed", mib(self.killed_memory_bytes), "MiB");
        outcome.fact("memory peak up to the first answer", mib(self.opened_memory_bytes), "MiB");
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// A process that loaded and was killed.
struct Killed {
    acknowledged: u64,
    /// Rows per second.
    rate: f64,
    memory_peak_bytes: u64,
}

/// Reads acknowledgements until it is time, kills, and reads those that were on their way.
fn load_and_kill(mut worker: Worker, options: &Options, newest: u64) -> Result<Killed> {
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
    let memory_peak_bytes = worker.memory_peak_bytes()?;
    let ended = worker.kill()?;
    while let Some(number) = worker.answer::<u64>()? {
        acknowledged = number;
    }
    if ended.code().is_some() || seconds < options.seconds {
        return Err(Error::child(ended));
    }
    let rate = (acknowledged - first) as f64 * options.batch as f64 / seconds;
    Ok(Killed { acknowledged, rate, memory_peak_bytes })
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
            Step::Open { acknowledged, whole } => reply(&open::<E>(common, options, acknowledged, whole)?),
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
        overwrite(&engine, common, options, number)?;
        reply(&number)?;
    }
    Ok(())
}

/// Transaction `number`.
fn overwrite<E: Engine>(engine: &E, common: &Common, options: &Options, number: u64) -> Result<()> {
    let values = values(common, options);
    let mut value = Vec::new();
    let mut transaction = engine.begin()?;
    for row in rows_of(common, options, number) {
        value_of(&values, row, number, &mut value);
        transaction.put(ROWS, &row.to_be_bytes(), &value)?;
    }
    transaction.put(NEWEST, b"newest", &number.to_be_bytes())?;
    transaction.commit(Durability::Sync)
}

fn open<E: Engine>(common: &Common, options: &Options, acknowledged: u64, whole: bool) -> Result<Opened> {
    let mut value = Vec::new();
    let began = Instant::now();
    let engine = E::open(&common.open_options(&TREES))?;
    let found = engine.get(NEWEST, b"newest", &mut value)?;
    let ready_ms = began.elapsed().as_secs_f64() * 1e3;
    let memory_peak_bytes = Resources::now().memory_peak_bytes;
    let newest = if found { number_in(&value)? } else { 0 };
    if newest < acknowledged {
        return Err(Error::new(format!(
            "an acknowledged transaction is lost newest={newest} acknowledged={acknowledged}"
        )));
    }
    check(&engine, common, options, newest, whole)?;
    engine.close()?;
    Ok(Opened { ready_ms, newest, memory_peak_bytes })
}

fn number_in(value: &[u8]) -> Result<u64> {
    let number = value.first_chunk().map(|number| u64::from_be_bytes(*number));
    number.ok_or_else(|| Error::new("a value is too short"))
}

/// Every row, or those of some transactions, are as the newest transaction left them, and nothing is there of one that never
/// committed.
fn check<E: Engine>(engine: &E, common: &Common, options: &Options, newest: u64, whole: bool) -> Result<()> {
    let expected = Expected::after(common, options, newest);
    if whole {
        expected.check_all(engine)?;
    } else {
        // From the newest down, so that it is among them.
        let numbers = (1..=newest).rev().step_by((newest / LOOKED_AT).max(1) as usize);
        let rows = numbers.chain([newest + 1]).flat_map(|number| rows_of(common, options, number));
        expected.check_some(engine, rows)?;
    }
    if engine.cursor(OPEN)?.seek_first()? {
        return Err(Error::new("a row of a transaction that never committed is visible"));
    }
    Ok(())
}

/// What the rows must hold.
struct Expected {
    values: Values,
    /// Each row's newest transaction; 0 for the filling.
    writers: Vec<u64>,
}

impl Expected {
    fn after(common: &Common, options: &Options, newest: u64) -> Expected {
        let mut writers = vec![0; options.rows() as usize];
        for number in 1..=newest {
            rows_of(common, options, number).for_each(|row| writers[row as usize] = number);
        }
        Expected { values: values(common, options), writers }
    }

    fn check_some<E: Engine>(&self, engine: &E, rows: impl Iterator<Item = u64>) -> Result<()> {
        let (mut got, mut want) = (Vec::new(), Vec::new());
        for row in rows {
            let found = engine.get(ROWS, &row.to_be_bytes(), &mut got)?;
            self.compare(row, found.then_some(got.as_slice()), &mut want)?;
        }
        Ok(())
    }

    fn check_all<E: Engine>(&self, engine: &E) -> Result<()> {
        let mut cursor = engine.cursor(ROWS)?;
        let mut more = cursor.seek_first()?;
        let mut want = Vec::new();
        for row in 0..self.writers.len() as u64 {
            let found = more && cursor.key() == row.to_be_bytes();
            self.compare(row, found.then(|| cursor.value()), &mut want)?;
            more = cursor.next()?;
        }
        if more { Err(Error::new("a row is there that nobody wrote")) } else { Ok(()) }
    }

    fn compare(&self, row: u64, got: Option<&[u8]>, want: &mut Vec<u8>) -> Result<()> {
        let writer = self.writers[row as usize];
        value_of(&self.values, row, writer, want);
        if got == Some(want.as_slice()) {
            return Ok(());
        }
        let got = got.map(number_in).transpose()?;
        Err(Error::new(format!("a row is not as its newest transaction left it row={row} writer={writer} got={got:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::Model;

    const NEWEST_NUMBER: u64 = 1_000;
    const LOST: u64 = 7;

    fn loaded(numbers: impl Iterator<Item = u64>) -> Result<(Model, Common, Options)> {
        let options = Options { size: 1, seconds: 1.0, kills: 1, batch: 10, value_bytes: 100, open_rows: 0 };
        let common = Common::new(&std::env::temp_dir().join("frond-bench-never-made"));
        let model = Model::open(&common.open_options(&TREES))?;
        let mut transaction = model.begin()?;
        let mut value = Vec::new();
        for row in 0..options.rows() {
            value_of(&values(&common, &options), row, 0, &mut value);
            transaction.put(ROWS, &row.to_be_bytes(), &value)?;
        }
        transaction.commit(Durability::Sync)?;
        for number in numbers {
            overwrite(&model, &common, &options, number)?;
        }
        Ok((model, common, options))
    }

    #[test]
    fn what_is_all_there_passes() -> Result<()> {
        let (model, common, options) = loaded(1..=NEWEST_NUMBER)?;
        check(&model, &common, &options, NEWEST_NUMBER, false)?;
        check(&model, &common, &options, NEWEST_NUMBER, true)
    }

    #[test]
    fn an_old_acknowledged_transaction_that_is_lost_is_found() -> Result<()> {
        let (model, common, options) = loaded((1..=NEWEST_NUMBER).filter(|&number| number != LOST))?;
        assert!(check(&model, &common, &options, NEWEST_NUMBER, true).is_err());
        Ok(())
    }

    #[test]
    fn a_tenth_of_the_transactions_lost_is_found_by_some_gets() -> Result<()> {
        let (model, common, options) = loaded((1..=NEWEST_NUMBER).filter(|number| number / 100 != 4))?;
        assert!(check(&model, &common, &options, NEWEST_NUMBER, false).is_err());
        Ok(())
    }

    #[test]
    fn a_transaction_after_the_newest_is_found() -> Result<()> {
        for whole in [false, true] {
            let (model, common, options) = loaded(1..=NEWEST_NUMBER)?;
            assert!(check(&model, &common, &options, NEWEST_NUMBER - 1, whole).is_err());
        }
        Ok(())
    }
}
