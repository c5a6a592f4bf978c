//! iiBench: load the table of `experiments.md` in order of its primary key, so that every row makes three random index
//! entries. Transactions of a fixed number of rows; every one durable by default.
//!
//! Threads share the auto-increment counter: each reserves the ids of its next transaction. [`verify`] recomputes every
//! row from the seed and checks it through all four trees.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::parallel::{pace, parallel};
use super::{Common, DURABLE, Outcome};
use crate::engine::{Cursor, Durability, Engine, Transaction};
use crate::generate::{INDEXES, Purchase};
use crate::measure::{Meter, Phase};
use crate::{Error, Result};

/// Options of the load.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct Options {
    /// Rows to insert
    #[arg(long, default_value_t = 20_000_000)]
    pub rows: u64,
    /// Rows per transaction
    #[arg(long, default_value_t = 1_000)]
    pub batch: u64,
    /// Inserting threads
    #[arg(long, default_value_t = 1)]
    pub threads: u64,
    /// Rows per second over all threads; 0 for no limit
    #[arg(long, default_value_t = 0)]
    pub rate: u64,
    /// When a transaction is acknowledged
    #[arg(long, value_enum, default_value_t = DURABLE)]
    pub durability: Durability,
    /// Check that the primary key is not there yet, as SQL does
    #[arg(long)]
    pub unique: bool,
    /// Merge everything pending at the end, and report the size again
    #[arg(long)]
    pub compact: bool,
    /// Check every row through all four indexes at the end
    #[arg(long)]
    pub verify: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            rows: 20_000_000,
            batch: 1_000,
            threads: 1,
            rate: 0,
            durability: DURABLE,
            unique: false,
            compact: false,
            verify: false,
        }
    }
}

/// Loads, and reports rate, bytes written, size.
pub fn run<E: Engine>(common: &Common, options: &Options) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let engine: E = common.create(&INDEXES)?;
    let mut meter = common.meter("load", options.rows);
    load(&engine, common.seed, options, &mut meter)?;
    let phase = meter.finish(&common.directory)?;
    outcome.fact("disk bytes per row after the load", phase.disk_bytes as f64 / options.rows as f64, "B");
    let written_in_load = phase.written_bytes_per_operation;
    outcome.phases.push(phase);
    // What the load left in memory, and background work, belong to its price.
    let settle = once(common, "settle", || engine.checkpoint().and_then(|()| engine.settle()))?;
    let written = written_in_load + settle.written_bytes_per_operation / options.rows as f64;
    outcome.fact("bytes written per row, background work included", written, "B");
    outcome.fact("disk bytes per row at rest", settle.disk_bytes as f64 / options.rows as f64, "B");
    outcome.phases.push(settle);
    outcome.statistics = engine.statistics()?;
    if options.compact {
        let phase = once(common, "compact", || engine.compact())?;
        outcome.fact("disk bytes per row, compacted", phase.disk_bytes as f64 / options.rows as f64, "B");
        outcome.phases.push(phase);
    }
    if options.verify {
        verify(&engine, common.seed, options.rows)?;
    }
    engine.close()?;
    Ok(outcome)
}

/// Times `work` as a phase of one operation.
fn once(common: &Common, name: &str, work: impl FnOnce() -> Result<()>) -> Result<Phase> {
    let mut meter = common.meter(name, 0);
    let mut worker = meter.worker();
    worker.time(1, work)?;
    meter.add(worker);
    meter.finish(&common.directory)
}

/// Inserts rows 1 to `options.rows`.
pub fn load<E: Engine>(engine: &E, seed: u64, options: &Options, meter: &mut Meter) -> Result<()> {
    let next = AtomicU64::new(1);
    let began = Instant::now();
    parallel(meter, options.threads, |_, worker| {
        loop {
            let first = next.fetch_add(options.batch, Ordering::Relaxed);
            if first > options.rows {
                return Ok(());
            }
            let end = (first + options.batch).min(options.rows + 1);
            pace(began, first - 1, options.rate);
            worker.time(end - first, || insert_rows(engine, seed, first, end, options))?;
        }
    })
}

/// One transaction: rows `first..end` of the table into all four trees.
pub fn insert_rows<E: Engine>(engine: &E, seed: u64, first: u64, end: u64, options: &Options) -> Result<()> {
    let mut transaction = engine.begin()?;
    for id in first..end {
        let row = Purchase::generate(seed, id);
        if options.unique {
            if !transaction.insert(0, &row.primary_key(), &row.value())? {
                return Err(Error::new(format!("the row is there already id={id}")));
            }
        } else {
            transaction.put(0, &row.primary_key(), &row.value())?;
        }
        transaction.put_entry(1, &row.price_customer_key())?;
        transaction.put_entry(2, &row.register_price_customer_key())?;
        transaction.put_entry(3, &row.price_date_customer_key())?;
    }
    transaction.commit(options.durability)
}

/// Checks that the table holds exactly rows 1 to `rows`, and that every index has exactly their entries.
///
/// An index is right when it has `rows` entries in strictly rising order, each of which is the entry of a row of the
/// table: distinct entries of `rows` rows, one possible entry per row, leave no room for a missing one.
pub fn verify<E: Engine>(engine: &E, seed: u64, rows: u64) -> Result<()> {
    for (tree, name) in INDEXES.iter().enumerate() {
        let mut cursor = engine.cursor(tree)?;
        let mut count = 0;
        let mut last: Vec<u8> = Vec::new();
        let mut more = cursor.seek_first()?;
        while more {
            let key = cursor.key();
            let damaged = |what: &str| Err(Error::new(format!("{what} tree={name} key={key:02x?}")));
            if key <= last.as_slice() {
                return damaged("keys do not rise");
            }
            let Some(id) = key.last_chunk().map(|id| u64::from_be_bytes(*id)).filter(|id| (1..=rows).contains(id))
            else {
                return damaged("an entry of no row");
            };
            if !entry_is_right(&Purchase::generate(seed, id), tree, key, cursor.value()) {
                return damaged("a wrong entry");
            }
            last.clear();
            last.extend_from_slice(key);
            count += 1;
            more = cursor.next()?;
        }
        if count != rows {
            return Err(Error::new(format!("entries are missing tree={name} got={count} want={rows}")));
        }
    }
    Ok(())
}

fn entry_is_right(row: &Purchase, tree: usize, key: &[u8], value: &[u8]) -> bool {
    match tree {
        0 => key == row.primary_key() && value == row.value(),
        1 => key == row.price_customer_key() && value.is_empty(),
        2 => key == row.register_price_customer_key() && value.is_empty(),
        _ => key == row.price_date_customer_key() && value.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::Model;

    #[test]
    fn a_missing_and_a_foreign_entry_are_found() -> Result<()> {
        let directory = std::env::temp_dir();
        let common = Common::new(&directory);
        let engine = Model::open(&common.open_options(&INDEXES))?;
        insert_rows(&engine, 1, 1, 11, &Options::default())?;
        verify(&engine, 1, 10)?;
        assert!(verify(&engine, 1, 11).is_err());
        assert!(verify(&engine, 2, 10).is_err());
        let mut transaction = engine.begin()?;
        transaction.delete(2, &Purchase::generate(1, 5).register_price_customer_key())?;
        transaction.commit(Durability::Sync)?;
        assert!(verify(&engine, 1, 10).is_err());
        Ok(())
    }
}
