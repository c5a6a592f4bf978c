//! Experiment 3: durable insertion against the size of a transaction, with and without a sync per commit, by 1 and 16
//! clients, into a table in memory. Every cell begins with an empty table.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use frond_load::insert::Plan;
use frond_load::purchase;

use crate::context::Context;
use crate::dataset::{IIBENCH_DATABASE, IIBENCH_TABLE, insert_plan};
use crate::engine::Engine;
use crate::failure::Failure;
use crate::limits::Limits;
use crate::measure::Work;
use crate::plan::{Finding, Part};
use crate::scale::Sizing;

/// A cell of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) rows: u64,
    pub(crate) clients: u64,
    pub(crate) sync: bool,
}

impl Cell {
    pub(crate) fn name(&self) -> String {
        format!("{} rows, {} clients, sync {}", self.rows, self.clients, if self.sync { "on" } else { "off" })
    }
}

pub(crate) fn cells(sizing: &Sizing) -> Vec<Cell> {
    let sizes: &[u64] = if sizing.thorough { &[1, 10, 100, 1_000, 10_000] } else { &[1, 1_000] };
    let mut cells = Vec::new();
    for sync in [true, false] {
        for clients in [1, 16] {
            cells.extend(sizes.iter().map(|&rows| Cell { rows, clients, sync }));
        }
    }
    cells
}

pub(crate) fn run(context: &Context, part: &Part) -> Result<Finding, Failure> {
    let directory = context.fresh(part.engine)?;
    let settings = context.settings(part.engine, context.sizing.cache_large_bytes, Limits::default());
    let server = context.start(directory.path(), &settings, "SELECT 1")?;
    server.run("", "CREATE DATABASE iibench")?;
    let mut finding = Finding::new(part);
    let socket = server.socket();
    for cell in cells(&context.sizing) {
        if part.engine == Engine::Blackhole && !cell.sync {
            continue;
        }
        server.run("", part.engine.sync(cell.sync))?;
        server.run(IIBENCH_DATABASE, &format!("DROP TABLE IF EXISTS {IIBENCH_TABLE}"))?;
        server.run(IIBENCH_DATABASE, &purchase::create_table(IIBENCH_TABLE, part.engine.sql()))?;
        let plan = Plan {
            rows_per_transaction: cell.rows,
            clients: cell.clients,
            time_max: Some(Duration::from_secs_f64(context.sizing.transaction_seconds)),
            ..insert_plan(&socket, 0)
        };
        let before = server.counters();
        let outcome = plan.run(&AtomicBool::new(false), &AtomicU64::new(0));
        if let Some(why) = &outcome.ended_by {
            return Err(format!("{}: inserting ended: {why}\n{}", cell.name(), server.last_words()));
        }
        finding.works.insert(cell.name(), Work::of_inserts(&outcome, &before, &server.counters()));
    }
    Ok(finding)
}
