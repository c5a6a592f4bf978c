//! How large each experiment is: smoke shows that everything runs, desk is what the report is made from, night is larger.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::limits::Limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    /// Two minutes; the figures mean nothing.
    Smoke,
    /// An hour and a quarter on two cores.
    Desk,
    /// Larger than memory by more, longer, repeated.
    Night,
}

const MIB: u64 = 1 << 20;

/// Every size and duration. Durations in seconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Sizing {
    /// Memory of the whole server with page cache, where data is larger than memory.
    pub(crate) memory_bytes: u64,
    /// Memory of the engine there.
    pub(crate) cache_bytes: u64,
    /// Memory of the engine where data fits into memory.
    pub(crate) cache_large_bytes: u64,
    /// Memory of the engine while tables are loaded before an experiment; less where the machine has less.
    pub(crate) cache_loading_bytes: u64,
    /// After loading, the server is to write next to nothing for so long.
    pub(crate) settle_seconds: f64,
    /// InnoDB's redo log.
    pub(crate) redo_bytes: u64,
    /// The limited volume.
    pub(crate) iops: u64,
    pub(crate) bandwidth: u64,
    pub(crate) repeats: u32,
    /// How often each of those repeats what is measured in memory (3, 4 and 5).
    pub(crate) short_repeats: u32,
    /// Every cell of every table; otherwise a few.
    pub(crate) thorough: bool,
    /// Rows in iiBench's table before an experiment begins.
    pub(crate) iibench_rows: u64,
    pub(crate) insert_seconds: f64,
    pub(crate) floor_seconds: f64,
    /// Inserting at a limited rate before the kill.
    pub(crate) paced_seconds: f64,
    pub(crate) transaction_seconds: f64,
    pub(crate) sysbench_rows: u64,
    pub(crate) sysbench_seconds: u64,
    /// Turns of each engine where engines are measured in turn.
    pub(crate) sysbench_rounds: u32,
    pub(crate) sysbench_large_rows: u64,
    pub(crate) sysbench_warm_seconds: u64,
    /// The same before the first test on the limited volume: the cache is empty then.
    pub(crate) sysbench_fill_seconds: u64,
    /// That of the table that fits.
    pub(crate) sysbench_fill_small_seconds: u64,
    pub(crate) sysbench_large_seconds: u64,
    pub(crate) warehouses: u64,
    pub(crate) tpcc_seconds: u64,
    /// The same in memory.
    pub(crate) tpcc_memory_seconds: u64,
    /// Before that, not measured: the caches fill.
    pub(crate) tpcc_warm_seconds: u64,
    /// Memory of the engine for TPC-C with data five times as large.
    pub(crate) tpcc_cache_bytes: u64,
    pub(crate) rollback_rows: u64,
    pub(crate) queue_rows: u64,
    pub(crate) worst_seconds: f64,
    /// Rows looked up by every secondary key after a crash.
    pub(crate) verify_sample: u64,
}

impl Scale {
    pub(crate) fn key(self) -> &'static str {
        match self {
            Scale::Smoke => "smoke",
            Scale::Desk => "desk",
            Scale::Night => "night",
        }
    }

    pub(crate) fn sizing(self) -> Sizing {
        match self {
            Scale::Smoke => Sizing {
                memory_bytes: 512 * MIB,
                cache_bytes: 32 * MIB,
                cache_large_bytes: 64 * MIB,
                cache_loading_bytes: 64 * MIB,
                settle_seconds: 0.5,
                redo_bytes: 32 * MIB,
                iops: 2_000,
                bandwidth: 320 * MIB,
                repeats: 1,
                short_repeats: 1,
                thorough: false,
                iibench_rows: 5_000,
                insert_seconds: 1.0,
                floor_seconds: 0.5,
                paced_seconds: 0.6,
                transaction_seconds: 0.2,
                sysbench_rows: 2_000,
                sysbench_seconds: 1,
                sysbench_rounds: 2,
                sysbench_large_rows: 5_000,
                sysbench_warm_seconds: 0,
                sysbench_fill_seconds: 0,
                sysbench_fill_small_seconds: 0,
                sysbench_large_seconds: 1,
                warehouses: 1,
                tpcc_seconds: 2,
                tpcc_memory_seconds: 2,
                tpcc_warm_seconds: 0,
                tpcc_cache_bytes: 32 * MIB,
                rollback_rows: 5_000,
                queue_rows: 2_000,
                worst_seconds: 1.5,
                verify_sample: 20,
            },
            Scale::Desk => Sizing {
                memory_bytes: 1_024 * MIB,
                cache_bytes: 256 * MIB,
                cache_large_bytes: 1_024 * MIB,
                cache_loading_bytes: 4_096 * MIB,
                settle_seconds: 2.0,
                redo_bytes: 1_024 * MIB,
                iops: 2_000,
                bandwidth: 320 * MIB,
                repeats: 1,
                short_repeats: 3,
                thorough: true,
                iibench_rows: 10_000_000,
                insert_seconds: 60.0,
                floor_seconds: 5.0,
                paced_seconds: 10.0,
                transaction_seconds: 0.8,
                sysbench_rows: 1_000_000,
                sysbench_seconds: 2,
                sysbench_rounds: 30,
                sysbench_large_rows: 10_000_000,
                sysbench_warm_seconds: 5,
                sysbench_fill_seconds: 25,
                sysbench_fill_small_seconds: 10,
                sysbench_large_seconds: 13,
                warehouses: 10,
                tpcc_seconds: 30,
                tpcc_memory_seconds: 20,
                tpcc_warm_seconds: 10,
                tpcc_cache_bytes: 192 * MIB,
                rollback_rows: 1_000_000,
                queue_rows: 500_000,
                worst_seconds: 16.0,
                verify_sample: 300,
            },
            Scale::Night => Sizing {
                memory_bytes: 1_024 * MIB,
                cache_bytes: 256 * MIB,
                cache_large_bytes: 2_048 * MIB,
                cache_loading_bytes: 16_384 * MIB,
                settle_seconds: 2.0,
                redo_bytes: 1_024 * MIB,
                iops: 2_000,
                bandwidth: 320 * MIB,
                repeats: 3,
                short_repeats: 1,
                thorough: true,
                iibench_rows: 50_000_000,
                insert_seconds: 300.0,
                floor_seconds: 10.0,
                paced_seconds: 60.0,
                transaction_seconds: 20.0,
                sysbench_rows: 1_000_000,
                sysbench_seconds: 60,
                sysbench_rounds: 60,
                sysbench_large_rows: 20_000_000,
                sysbench_warm_seconds: 120,
                sysbench_fill_seconds: 300,
                sysbench_fill_small_seconds: 60,
                sysbench_large_seconds: 180,
                warehouses: 40,
                tpcc_seconds: 600,
                tpcc_memory_seconds: 600,
                tpcc_warm_seconds: 60,
                tpcc_cache_bytes: 768 * MIB,
                rollback_rows: 5_000_000,
                queue_rows: 5_000_000,
                worst_seconds: 120.0,
                verify_sample: 2_000,
            },
        }
    }
}

impl Sizing {
    /// Applies `MEMORY=`: the server's bound; the engine's cache keeps its share of it.
    pub(crate) fn with_memory(mut self, bytes: u64) -> Self {
        let share = |part: u64| (part as f64 * bytes as f64 / self.memory_bytes as f64) as u64 / MIB * MIB;
        (self.cache_bytes, self.tpcc_cache_bytes) = (share(self.cache_bytes), share(self.tpcc_cache_bytes));
        self.memory_bytes = bytes;
        self
    }

    /// Memory bounded, and the volume limited or not.
    pub(crate) fn bounded(&self, limited: bool) -> Limits {
        Limits {
            iops: limited.then_some(self.iops),
            bandwidth: limited.then_some(self.bandwidth),
            memory: Some(self.memory_bytes),
        }
    }

    /// Bytes of disk that a run wants free: a loaded table for each engine, and a copy at work.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let kinds =
            [self.iibench_rows * 250, self.sysbench_large_rows * 300, self.warehouses * 200 * MIB].map(|one| one * 4);
        // Where all is repeated, tables of all kinds are kept to the end.
        let tables = if self.repeats == 1 { kinds.iter().copied().max().unwrap_or(0) } else { kinds.iter().sum() };
        tables + 3 * self.redo_bytes + 500 * MIB
    }
}
