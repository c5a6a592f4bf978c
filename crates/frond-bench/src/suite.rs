//! The comparisons of `docs/benchmarks.md`, in its order, each as on the command line.

use clap::Parser;

use crate::workload::Workload;
use crate::{Error, Result};

/// One recorded comparison.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name of its section and files.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Memory budget of the engines in MiB.
    pub memory: u64,
    /// Settings of an engine, as `--set` takes them.
    pub set: &'static [(&'static str, &'static str)],
    /// The workload with its options.
    pub line: &'static str,
    /// The same in a minute at most, for trying the whole suite.
    pub quick: &'static str,
}

/// So small that tables of many times the budget are filled in seconds.
const SMALL_MIB: u64 = 64;

/// All of them.
pub const SUITE: [Entry; 12] = [
    Entry {
        name: "iibench",
        title: "iiBench load",
        memory: 256,
        // Its goal is about bytes written, with the same codec: so both logs are compressed.
        set: &[("rocksdb.wal_compression", "true")],
        line: "iibench --rows 20000000",
        quick: "iibench --rows 1000000",
    },
    Entry {
        name: "reads-cached",
        title: "Random point reads, all cached",
        memory: SMALL_MIB,
        set: &[],
        line: "reads --ratio 0.4",
        quick: "reads --ratio 0.1 --seconds 2",
    },
    Entry {
        name: "reads-beyond",
        title: "Random point reads, ten times the memory",
        memory: SMALL_MIB,
        set: &[],
        line: "reads --ratio 10 --seconds 30",
        quick: "reads --ratio 1.5 --seconds 2",
    },
    Entry {
        name: "scans-cached",
        title: "Scans, all cached",
        memory: SMALL_MIB,
        set: &[],
        line: "scans --ratio 0.4",
        quick: "scans --ratio 0.1 --seconds 1",
    },
    Entry {
        name: "scans-beyond",
        title: "Scans, four times the memory",
        memory: SMALL_MIB,
        set: &[],
        line: "scans --ratio 4",
        quick: "scans --ratio 0.5 --seconds 1",
    },
    Entry {
        name: "commit",
        title: "Durable single-row commits",
        memory: SMALL_MIB,
        set: &[],
        line: "commit --threads 1,16 --seconds 20",
        quick: "commit --threads 1,16 --seconds 2",
    },
    Entry {
        name: "recovery-1g",
        title: "Reopening after kill -9 at full load speed, 1 GiB",
        memory: SMALL_MIB,
        set: &[],
        line: "recovery --size 1024",
        quick: "recovery --size 100 --seconds 3 --kills 2",
    },
    Entry {
        name: "recovery-10g",
        title: "Reopening after kill -9 at full load speed, 10 GiB",
        memory: SMALL_MIB,
        set: &[],
        line: "recovery --size 10240",
        quick: "recovery --size 200 --seconds 3 --kills 2",
    },
    Entry {
        name: "rollback",
        title: "Rollback",
        memory: SMALL_MIB,
        set: &[],
        line: "rollback --rows 1000,5000000",
        quick: "rollback --rows 1000,200000",
    },
    Entry {
        name: "recovery-open",
        title: "Reopening after kill -9 with 5 million rows changed by a transaction that never commits",
        memory: SMALL_MIB,
        set: &[],
        line: "recovery --size 256 --value-bytes 100 --open-rows 5000000 --kills 3",
        quick: "recovery --size 50 --value-bytes 100 --open-rows 100000 --seconds 3 --kills 2",
    },
    Entry {
        name: "queue",
        title: "A queue: insert at the tail, delete at the head",
        memory: SMALL_MIB,
        set: &[],
        line: "queue --rows 5000000 --seconds-max 180",
        quick: "queue --rows 200000",
    },
    Entry {
        name: "ycsb",
        title: "YCSB A to F",
        memory: SMALL_MIB,
        set: &[],
        line: "ycsb --rows 1000000",
        quick: "ycsb --rows 100000 --seconds 2",
    },
];

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    workload: Workload,
}

/// A workload as on the command line.
pub fn parse_workload(line: &str) -> Result<Workload> {
    let words = std::iter::once("frond-bench").chain(line.split_whitespace());
    Line::try_parse_from(words).map(|line| line.workload).map_err(|error| Error::usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_suite_is_understood() -> Result<()> {
        for entry in SUITE {
            parse_workload(entry.line)?;
            parse_workload(entry.quick)?;
        }
        Ok(())
    }
}
