//! Experiments 1 and 2: insertion into a table beyond memory, and recovery after a kill in the middle of it.
//!
//! The table is loaded before. One client inserts transactions of 1,000 rows (fewer where the rate is limited, so that a
//! second has 20 of them), durable each. Then the server is killed, its files dropped from memory, and a new one started
//! under the same limits on the same configuration: the recovery time ends when a SELECT on the table is answered. What
//! was acknowledged is verified without limits; then the server is stopped in order, and the start after that is timed
//! alike, for comparison.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frond_load::insert::{Outcome, Plan};
use frond_load::purchase;
use frond_load::verify::{Expected, verify};

use crate::context::Context;
use crate::dataset::{self, IIBENCH_DATABASE, IIBENCH_TABLE, Kind, insert_plan, size_of_tables};
use crate::failure::{Failure, While};
use crate::limits::Limits;
use crate::measure::Work;
use crate::plan::{BUFFERED, Finding, Part};
use crate::server::{Counters, Server};

/// `unlimited`, `limited`: full speed. `2000-limited` and the like: that many rows per second. `buffered-limited` and the like: full speed of
/// InnoDB with change buffering.
pub(crate) fn run(context: &Context, part: &Part) -> Result<Finding, Failure> {
    if part.variant == "floor" {
        return floor(context, part);
    }
    let (pace, volume) = match part.variant.split_once('-') {
        Some((pace, volume)) => (Some(pace), volume),
        None => (None, part.variant),
    };
    let rate = pace.and_then(|pace| pace.parse::<u64>().ok());
    let seconds = if rate.is_some() { context.sizing.paced_seconds } else { context.sizing.insert_seconds };
    let (directory, loaded) = dataset::copy(context, part.engine, Kind::Iibench)?;
    let limits = context.sizing.bounded(volume == "limited");
    let mut settings = context.settings(part.engine, context.sizing.cache_bytes, limits);
    settings.sizes.change_buffering = part.variant.starts_with(BUFFERED);
    let query = Kind::Iibench.first_query();
    let mut finding = Finding::new(part);

    let server = context.start(directory.path(), &settings, query)?;
    let key_before = newest_key(&server)?;
    let socket = server.socket();
    let batch = rate.map_or(1_000, |rate| (rate / 20).max(1));
    let plan = Plan { rate, rows_per_transaction: batch, ..insert_plan(&socket, loaded.rows) };
    let before = server.counters();
    let (outcome, after) = insert_and_kill(server, &plan, Duration::from_secs_f64(seconds))?;
    let work = Work::of_inserts(&outcome, &before, &after);
    finding.set("rows", outcome.rows as f64);
    finding.works.insert("insert".into(), work);

    let server = context.start(directory.path(), &settings, query)?;
    finding.set("ready_seconds", server.ready_seconds);
    finding.set("recovery_bytes_read", server.start.bytes_read as f64);
    finding.set("recovery_bytes_written", server.start.bytes_written as f64);
    context.cage.apply(&Limits { memory: limits.memory, ..Limits::default() })?;
    let expected = Expected {
        table: IIBENCH_TABLE,
        seed: plan.seed,
        first: plan.first,
        key_before,
        acknowledged: outcome.rows,
        rows_per_transaction: batch,
        sample: context.sizing.verify_sample,
        // It takes long, and full speed is what tears most.
        counts_all: rate.is_none(),
    };
    let begin = Instant::now();
    let verdict = verify(&mut server.connect(IIBENCH_DATABASE)?, &expected).or_say("verification after the kill")?;
    finding.set("verification_seconds", begin.elapsed().as_secs_f64());
    finding.faults = verdict.faults;
    server.stop(&context.cage)?;
    finding.set("bytes_on_disk", size_of_tables(directory.path(), part.engine) as f64);
    finding.set("rows_on_disk", (loaded.rows + verdict.rows) as f64);

    let server = context.start(directory.path(), &settings, query)?;
    finding.set("clean_ready_seconds", server.ready_seconds);
    Ok(finding)
}

fn newest_key(server: &Server) -> Result<i64, Failure> {
    let query = format!("SELECT COALESCE(MAX(transactionid), 0) FROM {IIBENCH_TABLE}");
    server.connect(IIBENCH_DATABASE)?.number(&query).or_say("cannot read the table")
}

/// Inserts until the server is killed in the middle. The process must not have ended by itself.
fn insert_and_kill(server: Server, plan: &Plan, time: Duration) -> Result<(Outcome, Counters), Failure> {
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let inserting = scope.spawn(|| plan.run(&stop, &acknowledged));
        let begin = Instant::now();
        while begin.elapsed() < time && !inserting.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let by_itself = inserting.is_finished().then(|| server.last_words());
        let counters = server.kill();
        stop.store(true, Ordering::Relaxed);
        let outcome = inserting.join().map_err(|_| "the inserting client panicked".to_string())?;
        match (by_itself, outcome.refused) {
            (None, false) => Ok((outcome, counters)),
            (words, _) => {
                let why = outcome.ended_by.unwrap_or_default();
                Err(format!("inserting ended before the kill: {why}\n{}", words.unwrap_or_default()))
            }
        }
    })
}

/// The same statements into an engine that throws rows away: the server's own share.
fn floor(context: &Context, part: &Part) -> Result<Finding, Failure> {
    let directory = context.fresh(part.engine)?;
    let settings = context.settings(part.engine, context.sizing.cache_bytes, context.sizing.bounded(false));
    let server = context.start(directory.path(), &settings, "SELECT 1")?;
    server.run("", "CREATE DATABASE iibench")?;
    server.run(IIBENCH_DATABASE, &purchase::create_table(IIBENCH_TABLE, part.engine.sql()))?;
    let socket = server.socket();
    let plan =
        Plan { time_max: Some(Duration::from_secs_f64(context.sizing.floor_seconds)), ..insert_plan(&socket, 0) };
    let before = server.counters();
    let outcome = plan.run(&AtomicBool::new(false), &AtomicU64::new(0));
    if let Some(why) = &outcome.ended_by {
        return Err(format!("inserting ended: {why}\n{}", server.last_words()));
    }
    let mut finding = Finding::new(part);
    let work = Work::of_inserts(&outcome, &before, &server.counters());
    finding.works.insert("insert".into(), work);
    Ok(finding)
}
