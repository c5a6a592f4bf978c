//! Rolling back transactions of different sizes: the caller's time, and the memory that the open transaction took. At the
//! end FrondDB commits the same changes: no row is visited, but a durable commit waits for what the log has not synced yet, some MiB at most.

use std::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::records::{RecordOptions, Records, TREES, expect};
use super::{Common, Outcome};
use crate::engine::frond::Frond;
use crate::engine::{Durability, Engine, OpenOptions, Transaction};
use crate::measure::{Phase, Resources};
use crate::{Error, Result};

/// Options of the rollbacks.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct Options {
    /// Rows of each transaction that is rolled back
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 5_000_000])]
    pub rows: Vec<u64>,
    /// Committed rows there before; the transactions overwrite these first
    #[arg(long, default_value_t = 100_000)]
    pub before: u64,
    /// Shape of the records
    #[command(flatten)]
    #[serde(flatten)]
    pub records: RecordOptions,
}

/// Version of the changed rows.
const CHANGED: u64 = 1;

const LABELS: [(u64, &str); 2] = [(1_000_000, " M"), (1_000, " k")];

fn label(rows: u64) -> String {
    let unit = LABELS.iter().find(|(size, _)| rows >= *size && rows.is_multiple_of(*size));
    unit.map_or_else(|| rows.to_string(), |(size, name)| format!("{}{name}", rows / size))
}

/// For each size: changes rows, rolls back, checks that the old rows are back and the new ones gone.
pub fn run<E: Engine>(common: &Common, options: &Options) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    common.prepare()?;
    let engine = E::open(&OpenOptions { transactional: true, ..common.open_options(&TREES) })?;
    let records = Records::new(common.seed, &options.records);
    records.put(&engine, 0, options.before, Durability::Sync)?;
    for &rows in &options.rows {
        let (transaction, phase) = change(&engine, common, &records, rows)?;
        outcome.phases.push(phase);
        let held = Resources::now().memory_bytes.saturating_sub(outcome.memory_base_bytes);
        let began = Instant::now();
        transaction.rollback()?;
        let took = began.elapsed();
        outcome.fact(&format!("rollback of {} rows", label(rows)), took.as_secs_f64() * 1e6, "µs");
        outcome.fact(
            &format!("memory before the rollback of {} rows", label(rows)),
            held as f64 / (1 << 20) as f64,
            "MiB",
        );
        check(&engine, &records, options.before, rows)?;
    }
    if E::NAME == Frond::NAME {
        commit(&engine, common, &records, &options.rows, &mut outcome)?;
    }
    outcome.statistics = engine.statistics()?;
    engine.close()?;
    Ok(outcome)
}

/// A transaction that has put so many rows, and how long they took.
fn change<E: Engine>(engine: &E, common: &Common, records: &Records, rows: u64) -> Result<(E::Transaction, Phase)> {
    let mut meter = common.meter(&format!("change {}", label(rows)), rows);
    let mut worker = meter.worker();
    let mut transaction = engine.begin()?;
    let mut value = Vec::new();
    for number in 0..rows {
        records.value(number, CHANGED, &mut value);
        worker.time(1, || transaction.put(0, &records.key(number), &value))?;
    }
    meter.add(worker);
    Ok((transaction, meter.finish(&common.directory)?))
}

/// For each size: makes the same changes once more, commits, checks that they are there.
fn commit<E: Engine>(
    engine: &E,
    common: &Common,
    records: &Records,
    sizes: &[u64],
    outcome: &mut Outcome,
) -> Result<()> {
    for &rows in sizes {
        let (transaction, _) = change(engine, common, records, rows)?;
        let began = Instant::now();
        transaction.commit(Durability::Sync)?;
        let took = began.elapsed();
        outcome.fact(&format!("commit of {} rows", label(rows)), took.as_secs_f64() * 1e6, "µs");
        let (mut got, mut want) = (Vec::new(), Vec::new());
        for number in sampled(rows, rows) {
            expect(engine.get(0, &records.key(number), &mut got)?, true, number)?;
            records.value(number, CHANGED, &mut want);
            if got != want {
                return Err(Error::new(format!("a committed change is missing number={number}")));
            }
        }
    }
    Ok(())
}

/// Some rows below `end`, about a thousand of `rows`.
fn sampled(rows: u64, end: u64) -> impl Iterator<Item = u64> {
    (0..end).step_by((rows / 1_000).max(1) as usize)
}

/// Samples rows on both sides of `before`.
fn check<E: Engine>(engine: &E, records: &Records, before: u64, rows: u64) -> Result<()> {
    let (mut got, mut want) = (Vec::new(), Vec::new());
    for number in sampled(rows, rows.max(before)) {
        let found = engine.get(0, &records.key(number), &mut got)?;
        expect(found, number < before, number)?;
        records.value(number, 0, &mut want);
        if found && got != want {
            return Err(Error::new(format!("a rolled back change is visible number={number}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn sizes_are_named_shortly() {
        assert_eq!([1_000, 5_000_000, 1_500, 10].map(label), ["1 k", "5 M", "1500", "10"]);
    }
}
