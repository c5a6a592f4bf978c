//! Whole-table scans, forward and backward, and short ones from random places: after a load in random order, and again
//! when a tenth of the rows has newer versions, which buffers hold.
//!
//! A whole scan of a small table is over in milliseconds, so each kind is repeated, and the pass of median rate is
//! recorded. An engine may merge what a scan had to skip; so that no pass finds the table better than the first one did, the
//! same tenth is updated anew before each. Where the table fits (`--ratio` below about 0.5), one scan warms the cache first.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::parallel::repeat_for;
use super::records::{FITS, RecordOptions, Records, TREES, load, warm};
use super::{Common, Outcome};
use crate::engine::{Cursor, Durability, Engine, Transaction};
use crate::generate::Random;
use crate::measure::{Phase, Worker};
use crate::{Error, Result};

/// Options of the scans.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct Options {
    /// Keys and values together, as a multiple of the memory budget
    #[arg(long, default_value_t = 4.0)]
    pub ratio: f64,
    /// Share of the rows updated before the second round
    #[arg(long, default_value_t = 0.1)]
    pub update: f64,
    /// Scans of the whole table in each direction, before and after the update
    #[arg(long, default_value_t = 9)]
    pub passes: u64,
    /// Rows of a short scan
    #[arg(long, default_value_t = 100)]
    pub short_rows: u64,
    /// Seconds of short scans
    #[arg(long, value_parser = super::parse_seconds, default_value_t = 5.0)]
    pub seconds: f64,
    /// Shape of the records
    #[command(flatten)]
    #[serde(flatten)]
    pub records: RecordOptions,
}

/// Loads, scans, updates, scans.
pub fn run<E: Engine>(common: &Common, options: &Options) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let engine: E = common.create(&TREES)?;
    let records = Records::new(common.seed, &options.records);
    let count = records.count_of((common.memory_bytes() as f64 * options.ratio) as u64).max(1);
    outcome.phases.push(load(&engine, common, &records, count)?);
    if options.ratio < FITS {
        warm(&engine)?;
    }
    let table = Table { engine: &engine, common, options, records: &records, count };
    table.scan_all("loaded", &mut outcome)?;
    outcome.phases.push(table.update(LOADED + 1)?);
    table.scan_all(UPDATED, &mut outcome)?;
    outcome.statistics = engine.statistics()?;
    engine.close()?;
    Ok(outcome)
}

/// Version of the rows before any update.
const LOADED: u64 = 0;
const UPDATED: &str = "updated";

/// What is scanned.
struct Table<'a, E> {
    engine: &'a E,
    common: &'a Common,
    options: &'a Options,
    records: &'a Records,
    count: u64,
}

impl<E: Engine> Table<'_, E> {
    /// Always the same random rows, in transactions of 1,000.
    fn update(&self, version: u64) -> Result<Phase> {
        let updates = (self.count as f64 * self.options.update) as u64;
        let mut meter = self.common.meter("update", updates);
        let mut worker = meter.worker();
        let mut random = Random::new(self.common.seed);
        let mut value = Vec::new();
        let mut left = updates;
        while left > 0 {
            let batch = left.min(1_000);
            worker.time(batch, || {
                let mut transaction = self.engine.begin()?;
                for _ in 0..batch {
                    let number = random.below(self.count);
                    self.records.value(number, version, &mut value);
                    transaction.put(0, &self.records.key(number), &value)?;
                }
                transaction.commit(Durability::Write)
            })?;
            left -= batch;
        }
        meter.add(worker);
        meter.finish(&self.common.directory)
    }

    fn scan_all(&self, state: &str, outcome: &mut Outcome) -> Result<()> {
        for (direction, forward) in [("forward", true), ("backward", false)] {
            let mut passes = Vec::new();
            for pass in 0..self.options.passes.max(1) {
                // The recorded update was right before the very first pass.
                if state == UPDATED && !(forward && pass == 0) {
                    self.update(LOADED + 2 + pass)?;
                }
                passes.push(self.whole_scan(&format!("{direction}, {state}"), forward)?);
            }
            outcome.phases.extend(median(passes));
        }
        let mut meter = self.common.meter(&format!("short, {state}"), 0);
        let mut worker = meter.worker();
        let mut random = Random::new(self.common.seed);
        repeat_for(self.options.seconds, || {
            let key = self.records.key(random.below(self.count));
            worker.time(1, || short_scan(self.engine, &key, self.options.short_rows))
        })?;
        meter.add(worker);
        outcome.phases.push(meter.finish(&self.common.directory)?);
        Ok(())
    }

    /// One pass, which must have met every row.
    fn whole_scan(&self, name: &str, forward: bool) -> Result<Phase> {
        let mut meter = self.common.meter(name, self.count);
        let mut worker = meter.worker();
        let rows = visit_all(self.engine, forward, &mut worker)?;
        if rows != self.count {
            return Err(Error::new(format!("a scan missed rows scan={name} got={rows} want={}", self.count)));
        }
        meter.add(worker);
        meter.finish(&self.common.directory)
    }
}

/// The pass of median rate.
fn median(mut passes: Vec<Phase>) -> Option<Phase> {
    passes.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    let middle = passes.len() / 2;
    passes.into_iter().nth(middle)
}

/// Visits every row, checks that keys go one way, and counts rows by thousands.
fn visit_all<E: Engine>(engine: &E, forward: bool, worker: &mut Worker) -> Result<u64> {
    let mut cursor = engine.cursor(0)?;
    let mut more = if forward { cursor.seek_first()? } else { cursor.seek_last()? };
    let mut last = [0u8; super::records::KEY_BYTES];
    let (mut rows, mut bytes) = (0u64, 0u64);
    while more {
        let in_order = rows == 0 || (cursor.key() > last.as_slice()) == forward;
        if !in_order {
            return Err(Error::new(format!("a scan went the wrong way forward={forward} row={rows}")));
        }
        last.copy_from_slice(cursor.key());
        bytes += cursor.value().len() as u64;
        rows += 1;
        if rows.is_multiple_of(1_000) {
            worker.count(1_000);
        }
        more = if forward { cursor.next()? } else { cursor.previous()? };
    }
    std::hint::black_box(bytes);
    worker.count(rows % 1_000);
    Ok(rows)
}

fn short_scan<E: Engine>(engine: &E, from: &[u8], rows: u64) -> Result<()> {
    let mut cursor = engine.cursor(0)?;
    let mut more = cursor.seek(from)?;
    let mut left = rows;
    while more && left > 0 {
        std::hint::black_box(cursor.value());
        more = cursor.next()?;
        left -= 1;
    }
    Ok(())
}
