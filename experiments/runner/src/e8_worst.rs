//! Experiment 8: the worst moments. A queue (insert at the tail, delete at the head), and iiBench's inserts with a long
//! reader open and a checkpoint in the middle. The worst seconds of the other experiments join them in the report.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frond_load::insert::{Outcome, Plan};
use hdrhistogram::Histogram;

use crate::context::Context;
use crate::dataset::{self, IIBENCH_DATABASE, Kind, insert_plan};
use crate::failure::{Failure, While};
use crate::measure::{Latency, Work};
use crate::plan::{Finding, Part};
use crate::server::Server;

/// Rows that go in and out of the queue by one transaction.
const QUEUE_BATCH: u64 = 100;

pub(crate) fn run(context: &Context, part: &Part) -> Result<Finding, Failure> {
    if part.variant == "queue" { queue(context, part) } else { checkpoint(context, part) }
}

fn checkpoint(context: &Context, part: &Part) -> Result<Finding, Failure> {
    let (directory, loaded) = dataset::copy(context, part.engine, Kind::Iibench)?;
    let settings = context.settings(part.engine, context.sizing.cache_bytes, context.sizing.bounded(false));
    let server = context.start(directory.path(), &settings, Kind::Iibench.first_query())?;
    let mut finding = Finding::new(part);
    let mut reader = server.connect(IIBENCH_DATABASE)?;
    let first_row = "SELECT COUNT(*) FROM purchases_index WHERE transactionid <= 100";
    reader.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").or_say("cannot open a reader")?;
    reader.run("START TRANSACTION WITH CONSISTENT SNAPSHOT").or_say("cannot open a reader")?;
    let newest = "SELECT MAX(transactionid) FROM purchases_index";
    let (seen, newest_seen) =
        (reader.number(first_row).or_say("the reader")?, reader.number(newest).or_say("the reader")?);

    let time = Duration::from_secs_f64(context.sizing.worst_seconds);
    let socket = server.socket();
    let plan = Plan { time_max: Some(time), ..insert_plan(&socket, loaded.rows) };
    let before = server.counters();
    let outcome = std::thread::scope(|scope| {
        let inserting = scope.spawn(|| plan.run(&AtomicBool::new(false), &AtomicU64::new(0)));
        std::thread::sleep(time / 2);
        let begin = Instant::now();
        match server.run("", part.engine.checkpoint()) {
            Ok(()) => finding.set("checkpoint_seconds", begin.elapsed().as_secs_f64()),
            Err(why) => finding.notes.push(format!("no checkpoint could be asked for; its own ones happened: {why}")),
        }
        inserting.join().map_err(|_| "the inserting client panicked".to_string())
    })?;
    ended_well(&outcome, &server)?;
    if reader.number(first_row).or_say("the reader")? != seen
        || reader.number(newest).or_say("the reader")? != newest_seen
    {
        finding.faults.push("the long reader's snapshot changed".into());
    }
    finding.works.insert("insert".into(), Work::of_inserts(&outcome, &before, &server.counters()));
    Ok(finding)
}

fn ended_well(outcome: &Outcome, server: &Server) -> Result<(), Failure> {
    match &outcome.ended_by {
        Some(why) => Err(format!("inserting ended: {why}\n{}", server.last_words())),
        None => Ok(()),
    }
}

fn queue(context: &Context, part: &Part) -> Result<Finding, Failure> {
    let directory = context.fresh(part.engine)?;
    let settings = context.settings(part.engine, context.sizing.cache_bytes, context.sizing.bounded(false));
    let server = context.start(directory.path(), &settings, "SELECT 1")?;
    server.run("", "CREATE DATABASE IF NOT EXISTS test")?;
    let table = "CREATE TABLE q (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, w CHAR(60) NOT NULL)";
    server.run("test", &format!("{table} ENGINE={}", part.engine.sql()))?;
    server.run("test", &format!("INSERT INTO q (w) SELECT MD5(seq) FROM seq_1_to_{}", context.sizing.queue_rows))?;
    let time = Duration::from_secs_f64(context.sizing.worst_seconds);
    let stop = AtomicBool::new(false);
    let before = server.counters();
    let (produced, consumed) = std::thread::scope(|scope| {
        let tail = format!("INSERT INTO q (w) SELECT MD5(seq) FROM seq_1_to_{QUEUE_BATCH}");
        let head = format!("DELETE FROM q ORDER BY id LIMIT {QUEUE_BATCH}");
        let stop = &stop;
        let server = &server;
        let produce = scope.spawn(move || repeat(server, &tail, stop));
        let consume = scope.spawn(move || repeat(server, &head, stop));
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        (produce.join(), consume.join())
    });
    let panicked = |_| "a client of the queue panicked".to_string();
    let (produced, consumed) = (produced.map_err(panicked)??, consumed.map_err(panicked)??);
    let after = server.counters();
    let mut finding = Finding::new(part);
    let expected = context.sizing.queue_rows as i64 + produced.units as i64 - consumed.units as i64;
    let found = server.connect("test")?.number("SELECT COUNT(*) FROM q").or_say("cannot count the queue")?;
    if found != expected {
        finding.faults.push(format!("the queue's length is wrong: expected={expected} found={found}"));
    }
    let mut reader = server.connect("test")?;
    let begin = Instant::now();
    let head = reader.column("SELECT id FROM q ORDER BY id LIMIT 1").or_say("cannot read the head")?;
    finding.set("head_seconds", begin.elapsed().as_secs_f64());
    // Whoever takes out may have caught up with who puts in.
    if head.is_empty() != (found == 0) {
        finding.faults.push(format!("the queue's head is wrong: rows={found} head={head:?}"));
    }
    finding.works.insert("insert at the tail".into(), produced.with(&before, &after));
    finding.works.insert("delete at the head".into(), consumed.with(&before, &after));
    Ok(finding)
}

/// Runs a statement until told to stop; units are affected rows. A conflict or timeout is tried again.
fn repeat(server: &Server, statement: &str, stop: &AtomicBool) -> Result<Work, Failure> {
    let mut connection = server.connect("test")?;
    let mut latency = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).or_say("histogram")?;
    let mut work = Work::default();
    let begin = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let sent = Instant::now();
        match connection.run(statement) {
            Ok(frond_load::wire::Answer::Done { affected, .. }) => {
                latency.saturating_record(sent.elapsed().as_micros() as u64);
                let second = begin.elapsed().as_secs() as usize;
                work.by_second.resize(work.by_second.len().max(second + 1), 0.0);
                work.by_second[second] += affected as f64;
                work.units += affected as f64;
            }
            Ok(_) => return Err(format!("{statement}: rows instead of a count")),
            Err(error) if [1213, 1205, 1020].contains(&error.code()) => {}
            Err(error) => return Err(format!("{statement}: {error}\n{}", server.last_words())),
        }
    }
    work.seconds = begin.elapsed().as_secs_f64();
    work.by_second.resize(work.seconds as usize, 0.0);
    work.latency_ms = Latency::of(&latency);
    Ok(work)
}
