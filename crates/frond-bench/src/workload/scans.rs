//! Whole-table scans, forward and backward, and short ones from random places: after a load in random order, and again
//! right after a random update of a tenth of the rows, when buffers are full of newer versions.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::parallel::repeat_for;
use super::records::{RecordOptions, Records, TREES, load};
use super::{Common, Outcome};
use crate::engine::{Cursor, Durability, Engine, Transaction};
use crate::generate::Random;
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
    scan_all(&engine, common, options, &records, count, "loaded", &mut outcome)?;
    update(&engine, common, options, &records, count, &mut outcome)?;
    scan_all(&engine, common, options, &records, count, "updated", &mut outcome)?;
    outcome.statistics = engine.statistics()?;
    engine.close()?;
    Ok(outcome)
}

/// Random rows, newest version 1, in transactions of 1,000.
fn update<E: Engine>(
    engine: &E,
    common: &Common,
    options: &Options,
    records: &Records,
    count: u64,
    outcome: &mut Outcome,
) -> Result<()> {
    let updates = (count as f64 * options.update) as u64;
    let mut meter = common.meter("update", updates);
    let mut worker = meter.worker();
    let mut random = Random::new(common.seed);
    let mut value = Vec::new();
    let mut left = updates;
    while left > 0 {
        let batch = left.min(1_000);
        worker.time(batch, || {
            let mut transaction = engine.begin()?;
            for _ in 0..batch {
                let number = random.below(count);
                records.value(number, 1, &mut value);
                transaction.put(0, &records.key(number), &value)?;
            }
            transaction.commit(Durability::Write)
        })?;
        left -= batch;
    }
    meter.add(worker);
    outcome.phases.push(meter.finish(&common.directory)?);
    Ok(())
}

fn scan_all<E: Engine>(
    engine: &E,
    common: &Common,
    options: &Options,
    records: &Records,
    count: u64,
    state: &str,
    outcome: &mut Outcome,
) -> Result<()> {
    for (direction, forward) in [("forward", true), ("backward", false)] {
        let mut meter = common.meter(&format!("{direction}, {state}"), count);
        let mut worker = meter.worker();
        let rows = whole_scan(engine, forward, &mut worker)?;
        if rows != count {
            return Err(Error::new(format!("a scan missed rows direction={direction} got={rows} want={count}")));
        }
        meter.add(worker);
        outcome.phases.push(meter.finish(&common.directory)?);
    }
    let mut meter = common.meter(&format!("short, {state}"), 0);
    let mut worker = meter.worker();
    let mut random = Random::new(common.seed);
    repeat_for(options.seconds, || {
        let key = records.key(random.below(count));
        worker.time(1, || short_scan(engine, &key, options.short_rows))
    })?;
    meter.add(worker);
    outcome.phases.push(meter.finish(&common.directory)?);
    Ok(())
}

/// Visits every row, checks that keys go one way, and counts rows by thousands.
fn whole_scan<E: Engine>(engine: &E, forward: bool, worker: &mut crate::measure::Worker) -> Result<u64> {
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
