//! The plain table of the read, commit and YCSB workloads: records under scattered keys in one tree.
//!
//! A record's key is a hash of its number followed by the number, so loading in order of number is random insertion,
//! and a number past the end is surely absent. Its value carries a version, so that updates are told apart.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::Common;
use super::parallel::parallel;
use crate::engine::{Cursor, Durability, Engine, Transaction};
use crate::generate::{Values, mix};
use crate::measure::{Meter, Phase};
use crate::{Error, Result};

/// Shape of the records.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct RecordOptions {
    /// Bytes per value
    #[arg(long, default_value_t = 200)]
    pub value_bytes: usize,
    /// Share of a value that cannot be compressed
    #[arg(long, default_value_t = 0.5)]
    pub entropy: f64,
}

/// Names of the trees.
pub(super) const TREES: [&str; 1] = ["records"];

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;

/// Records of one seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records {
    seed: u64,
    values: Values,
}

impl Records {
    pub(super) fn new(seed: u64, options: &RecordOptions) -> Records {
        Records { seed: mix(seed), values: Values::new(seed, options.value_bytes, options.entropy) }
    }

    /// How many records make `bytes` of keys and values.
    pub(super) fn count_of(&self, bytes: u64) -> u64 {
        bytes / (KEY_BYTES + self.values.bytes()) as u64
    }

    pub(super) fn key(&self, number: u64) -> [u8; KEY_BYTES] {
        let scattered = u128::from(mix(number ^ self.seed)) << 64;
        (scattered | u128::from(number)).to_be_bytes()
    }

    pub(super) fn value(&self, number: u64, version: u64, out: &mut Vec<u8>) {
        self.values.generate(number, version, out);
    }

    /// Puts records `first..end` in one transaction.
    pub(super) fn put<E: Engine>(&self, engine: &E, first: u64, end: u64, durability: Durability) -> Result<()> {
        let mut transaction = engine.begin()?;
        let mut value = Vec::new();
        for number in first..end {
            self.value(number, 0, &mut value);
            transaction.put(0, &self.key(number), &value)?;
        }
        transaction.commit(durability)
    }
}

const LOAD_BATCH: u64 = 1_000;

/// Loads records `0..count` and lets background work come to rest; one phase for both.
pub(super) fn load<E: Engine>(engine: &E, common: &Common, records: &Records, count: u64) -> Result<Phase> {
    let mut meter: Meter = common.meter("load", count);
    parallel(&mut meter, 1, |_, worker| {
        for first in (0..count).step_by(LOAD_BATCH as usize) {
            let end = (first + LOAD_BATCH).min(count);
            worker.time(end - first, || records.put(engine, first, end, Durability::Write))?;
        }
        engine.checkpoint()?;
        engine.settle()
    })?;
    meter.finish(&common.directory)
}

/// Below this multiple of the budget a table is expected to fit, and is warmed.
pub(super) const FITS: f64 = 0.75;

/// Reads all of the table, so that the cache holds what it can.
pub(super) fn warm<E: Engine>(engine: &E) -> Result<()> {
    let mut cursor = engine.cursor(0)?;
    let mut more = cursor.seek_first()?;
    while more {
        std::hint::black_box(cursor.value());
        more = cursor.next()?;
    }
    Ok(())
}

/// Fails unless `found` is `wanted`.
pub(super) fn expect(found: bool, wanted: bool, number: u64) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::new(format!("a get answered wrongly number={number} found={found} wanted={wanted}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_scattered() {
        let records = Records::new(1, &RecordOptions { value_bytes: 8, entropy: 1.0 });
        let keys: Vec<_> = (0..1_000).map(|number| records.key(number)).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 1_000);
        assert_ne!(sorted, keys);
        assert_eq!(records.count_of(2_400), 100);
    }
}
