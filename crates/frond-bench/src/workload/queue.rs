//! A queue table: rows are inserted at the tail and deleted at the head, each once, so everything in front of the head
//! is dead. An engine that only marks rows deleted crawls over the marks whenever it looks for the head.
//!
//! A transaction inserts a batch at the tail, finds the head with a cursor from the beginning of the tree, and deletes
//! a batch from there. At the end the walk to the first live row is timed, and again when the queue has been emptied.
//!
//! Each transaction may take an engine longer than the one before, so a run may be bounded in time: it ends where it is
//! then, and says how many rows have passed through.

use std::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::{Common, DURABLE, Outcome};
use crate::engine::{Cursor, Durability, Engine, Transaction};
use crate::generate::Values;
use crate::measure::Latencies;
use crate::{Error, Result};

/// Options of the queue.
#[derive(Debug, Clone, Serialize, Deserialize, Args)]
pub struct Options {
    /// Rows that pass through
    #[arg(long, default_value_t = 5_000_000)]
    pub rows: u64,
    /// Live rows
    #[arg(long, default_value_t = 10_000)]
    pub depth: u64,
    /// Rows inserted, and deleted, per transaction
    #[arg(long, default_value_t = 100)]
    pub batch: u64,
    /// When a transaction is acknowledged
    #[arg(long, value_enum, default_value_t = DURABLE)]
    pub durability: Durability,
    /// Delete with ordinary deletes instead of single deletes
    #[arg(long)]
    pub plain_delete: bool,
    /// Bytes per value
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Stop after this many seconds, with as many rows through as there are then
    #[arg(long)]
    pub seconds_max: Option<f64>,
}

struct Queue<'a, E: Engine> {
    engine: &'a E,
    options: &'a Options,
    values: Values,
    head: u64,
    tail: u64,
    /// From nothing to the first live row, in every transaction.
    finding_head: Latencies,
}

/// Passes rows through, then times the walk to the head.
pub fn run<E: Engine>(common: &Common, options: &Options) -> Result<Outcome> {
    let mut outcome = Outcome::new();
    let engine: E = common.create(&["queue"])?;
    let values = Values::new(common.seed, options.value_bytes, 0.5);
    let mut queue = Queue { engine: &engine, options, values, head: 0, tail: 0, finding_head: Latencies::new() };
    while queue.tail < options.depth {
        queue.turn(options.batch.min(options.depth - queue.tail), 0)?;
    }
    let mut meter = common.meter("queue", options.rows);
    let mut worker = meter.worker();
    let began = Instant::now();
    let bound = options.seconds_max.unwrap_or(f64::INFINITY);
    while queue.head < options.rows && began.elapsed().as_secs_f64() < bound {
        let batch = options.batch.min(options.rows - queue.head);
        worker.time(batch, || queue.turn(batch, batch))?;
    }
    meter.add(worker);
    outcome.phases.push(meter.finish(&common.directory)?);
    if let Some(found) = queue.finding_head.summary() {
        outcome.fact("finding the head while it runs, p50", found.p50_us, "µs");
        outcome.fact("finding the head while it runs, p99", found.p99_us, "µs");
        outcome.fact("finding the head while it runs, max", found.max_us, "µs");
    }
    outcome.fact("rows through the queue", queue.head as f64, "");
    let head = queue.head;
    outcome.fact("first live row, right after", queue.walk(Some(head))?, "µs");
    queue.turn(0, options.depth)?;
    outcome.fact("finding the queue empty", queue.walk(None)?, "µs");
    queue.turn(1, 0)?;
    let head = queue.head;
    outcome.fact("first live row of one", queue.walk(Some(head))?, "µs");
    outcome.statistics = engine.statistics()?;
    engine.close()?;
    Ok(outcome)
}

impl<E: Engine> Queue<'_, E> {
    /// One transaction: `insert` rows at the tail, `delete` rows from the head.
    fn turn(&mut self, insert: u64, delete: u64) -> Result<()> {
        let mut transaction = self.engine.begin()?;
        let mut value = Vec::new();
        for number in self.tail..self.tail + insert {
            self.values.generate(number, 0, &mut value);
            transaction.put(0, &number.to_be_bytes(), &value)?;
        }
        if delete > 0 {
            let began = Instant::now();
            let mut cursor = self.engine.cursor(0)?;
            let mut more = cursor.seek_first()?;
            self.finding_head.record(began.elapsed());
            for number in self.head..self.head + delete {
                if !more || cursor.key() != number.to_be_bytes() {
                    return Err(Error::new(format!("the head is not where it should be number={number}")));
                }
                if self.options.plain_delete {
                    transaction.delete(0, cursor.key())?;
                } else {
                    transaction.single_delete(0, cursor.key())?;
                }
                more = cursor.next()?;
            }
        }
        self.tail += insert;
        self.head += delete;
        transaction.commit(self.options.durability)
    }

    /// Microseconds from nothing to the first live row, checked.
    fn walk(&self, head: Option<u64>) -> Result<f64> {
        let began = Instant::now();
        let mut cursor = self.engine.cursor(0)?;
        let found = cursor.seek_first()?.then(|| cursor.key().to_vec());
        let took = began.elapsed();
        if found != head.map(|head| head.to_be_bytes().to_vec()) {
            return Err(Error::new(format!("the head is not where it should be found={found:02x?}")));
        }
        Ok(took.as_secs_f64() * 1e6)
    }
}
