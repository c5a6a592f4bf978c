//! The Yahoo! cloud serving benchmark, workloads A to F (Cooper et al., SoCC 2010), over one table.
//!
//! | | mix | keys |
//! |---|---|---|
//! | A | 50 % read, 50 % update | scrambled Zipf |
//! | B | 95 % read, 5 % update | scrambled Zipf |
//! | C | read | scrambled Zipf |
//! | D | 95 % read, 5 % insert | the latest |
//! | E | 95 % scan of 1 to 100 rows, 5 % insert | scrambled Zipf |
//! | F | 50 % read, 50 % read-modify-write | scrambled Zipf |
//!
//! They run in the order A, B, C, F, D, E on one table, as its authors advise.

use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::parallel::{parallel, repeat_for};
use super::records::{RecordOptions, Records, TREES, expect, load};
use super::{Common, Outcome};
use crate::Result;
use crate::engine::{Cursor, Durability, Engine, Transaction};
use crate::generate::{Latest, Random, ScrambledZipf};

/// Which mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// 50 % read, 50 % update
    A,
    /// 95 % read, 5 % update
    B,
    /// Read
    C,
    /// 50 % read, 50 % read-modify-write
    F,
    /// 95 % read of the latest, 5 % insert
    D,
    /// 95 % scan of 1 to 100 rows, 5 % insert
    E,
}

impl Mix {
    /// Percent of plain reads (of scans, for E); the rest changes something.
    fn reads(self) -> u64 {
        match self {
            Mix::A | Mix::F => 50,
            Mix::B | Mix::D | Mix::E => 95,
            Mix::C => 100,
        }
    }
}

/// Options of YCSB.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct Options {
    /// Mixes to run, in this order
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Mix::A, Mix::B, Mix::C, Mix::F, Mix::D, Mix::E])]
    pub mixes: Vec<Mix>,
    /// Records loaded
    #[arg(long, default_value_t = 1_000_000)]
    pub rows: u64,
    /// Seconds of each mix
    #[arg(long, value_parser = super::parse_seconds, default_value_t = 15.0)]
    pub seconds: f64,
    /// Threads
    #[arg(long, default_value_t = 2)]
    pub threads: u64,
    /// When a change is acknowledged
    #[arg(long, value_enum, default_value_t = Durability::Write)]
    pub durability: Durability,
    /// Bytes per value
    #[arg(long, default_value_t = 1_000)]
    pub value_bytes: usize,
    /// Share of a value that cannot be compressed
    #[arg(long, default_value_t = 0.5)]
    pub entropy: f64,
}

const SCAN_ROWS_MAX: u64 = 100;

struct Table<'a, E: Engine> {
    engine: &'a E,
    records: Records,
    options: &'a Options,
    /// Records `0..end` are there; an insert reserves the next and counts it when committed.
    end: AtomicU64,
    reserved: AtomicU64,
    zipf: ScrambledZipf,
    latest: Latest,
}

/// Loads, then one phase per mix.
pub fn run<E: Engine>(common: &Common, options: &Options) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let engine: E = common.create(&TREES)?;
    let shape = RecordOptions { value_bytes: options.value_bytes, entropy: options.entropy };
    let records = Records::new(common.seed, &shape);
    outcome.phases.push(load(&engine, common, &records, options.rows)?);
    let rows = options.rows.max(2);
    let table = Table {
        engine: &engine,
        records,
        options,
        end: AtomicU64::new(options.rows),
        reserved: AtomicU64::new(options.rows),
        zipf: ScrambledZipf::new(rows),
        latest: Latest::new(rows),
    };
    for &mix in &options.mixes {
        let mut meter = common.meter(&format!("{mix:?}"), 0);
        parallel(&mut meter, options.threads, |thread, worker| {
            let mut random = Random::new(common.seed ^ (thread + 1));
            let mut value = Vec::new();
            repeat_for(options.seconds, || worker.time(1, || table.step(mix, &mut random, &mut value)))
        })?;
        outcome.phases.push(meter.finish(&common.directory)?);
    }
    outcome.statistics = engine.statistics()?;
    engine.close()?;
    Ok(outcome)
}

impl<E: Engine> Table<'_, E> {
    /// One operation of `mix`.
    fn step(&self, mix: Mix, random: &mut Random, value: &mut Vec<u8>) -> Result<()> {
        let read = random.below(100) < mix.reads();
        let number = match mix {
            Mix::D => self.latest.next(random, self.end.load(Ordering::Relaxed)),
            _ => self.zipf.next(random),
        };
        match (mix, read) {
            (Mix::E, true) => self.scan(number, 1 + random.below(SCAN_ROWS_MAX)),
            (_, true) => self.read(number, value),
            (Mix::D | Mix::E, false) => self.insert(value),
            (Mix::F, false) => {
                self.read(number, value)?;
                self.update(number, random.bits(), value)
            }
            (_, false) => self.update(number, random.bits(), value),
        }
    }

    fn read(&self, number: u64, value: &mut Vec<u8>) -> Result<()> {
        let found = self.engine.get(0, &self.records.key(number), value)?;
        expect(found, true, number)
    }

    fn update(&self, number: u64, version: u64, value: &mut Vec<u8>) -> Result<()> {
        self.records.value(number, version, value);
        let mut transaction = self.engine.begin()?;
        transaction.put(0, &self.records.key(number), value)?;
        transaction.commit(self.options.durability)
    }

    /// The count of readable records advances in order: an insert waits for those reserved before it.
    fn insert(&self, value: &mut Vec<u8>) -> Result<()> {
        let number = self.reserved.fetch_add(1, Ordering::Relaxed);
        let done = self.update(number, 0, value);
        while self.end.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
        done
    }

    fn scan(&self, number: u64, rows: u64) -> Result<()> {
        let mut cursor = self.engine.cursor(0)?;
        let mut more = cursor.seek(&self.records.key(number))?;
        expect(more, true, number)?;
        for _ in 1..rows {
            if !more {
                break;
            }
            std::hint::black_box(cursor.value());
            more = cursor.next()?;
        }
        Ok(())
    }
}
