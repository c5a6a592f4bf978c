//! Experiment 4: sysbench on a table in memory, and on tables of two sizes on a limited volume with little memory.

use crate::context::Context;
use crate::dataset::{self, Kind};
use crate::failure::Failure;
use crate::limits::Limits;
use crate::plan::{Finding, Part};
use crate::scale::Sizing;
use crate::server::Server;
use crate::sysbench;

/// Tests in memory; the one that grows the table is last.
pub(crate) const TESTS: [&str; 7] = [
    "oltp_point_select",
    "oltp_read_only",
    "oltp_read_write",
    "oltp_update_index",
    "oltp_update_non_index",
    "oltp_write_only",
    "oltp_insert",
];
/// Tests on the limited volume, with what FROND is to make of them in times of the better rival where the table is large.
pub(crate) const LIMITED_TESTS: [(&str, f64); 4] =
    [("oltp_update_index", 1.3), ("oltp_update_non_index", 1.3), ("oltp_read_write", 1.3), ("oltp_read_only", 1.0)];
pub(crate) const LIMITED_THREADS: u64 = 16;

/// Tests in memory with their numbers of threads.
pub(crate) fn cells(sizing: &Sizing) -> Vec<(&'static str, u64)> {
    if !sizing.thorough {
        return vec![("oltp_read_write", 16), ("oltp_update_index", 1)];
    }
    [16, 1].iter().flat_map(|&threads| TESTS.map(|test| (test, threads))).collect()
}

pub(crate) fn name(test: &str, threads: u64) -> String {
    format!("{test}, {threads} threads")
}

/// Every page once, so that the first test is not the one that reads the disk.
pub(crate) fn warm(server: &Server) -> Result<(), Failure> {
    server.run("sbtest", "SELECT SUM(k), MAX(pad) FROM sbtest1 FORCE INDEX (PRIMARY)")?;
    server.run("sbtest", "SELECT COUNT(k) FROM sbtest1 FORCE INDEX (k_1)")
}

/// `memory`, or `small` and `large` on the limited volume.
pub(crate) fn run(context: &Context, part: &Part) -> Result<Finding, Failure> {
    let sizing = &context.sizing;
    let kind = if part.variant == "large" { Kind::SysbenchLarge } else { Kind::Sysbench };
    let (directory, loaded) = dataset::copy(context, part.engine, kind)?;
    let in_memory = part.variant == "memory";
    let (cache, limits) = match in_memory {
        true => (sizing.cache_large_bytes, Limits::default()),
        false => (sizing.cache_bytes, sizing.bounded(true)),
    };
    let settings = context.settings(part.engine, cache, limits);
    let server = context.start(directory.path(), &settings, kind.first_query())?;
    let mut finding = Finding::new(part);
    finding.set("table_rows", loaded.rows as f64);
    if in_memory {
        warm(&server)?;
        for (test, threads) in cells(sizing) {
            let work = sysbench::run(&server, test, loaded.rows, threads, sizing.sysbench_seconds)?;
            finding.works.insert(name(test, threads), work);
        }
        return Ok(finding);
    }
    for (test, _) in LIMITED_TESTS {
        let warm_seconds = match (finding.works.is_empty(), kind) {
            (false, _) => sizing.sysbench_warm_seconds,
            (true, Kind::SysbenchLarge) => sizing.sysbench_fill_seconds,
            (true, _) => sizing.sysbench_fill_small_seconds,
        };
        if warm_seconds > 0 {
            sysbench::run(&server, test, loaded.rows, LIMITED_THREADS, warm_seconds)?;
        }
        let work = sysbench::run(&server, test, loaded.rows, LIMITED_THREADS, sizing.sysbench_large_seconds)?;
        finding.works.insert(name(test, LIMITED_THREADS), work);
    }
    Ok(finding)
}
