//! Experiment 5: TPC-C, killed at work, in memory and with data beyond memory on the limited volume. It is measured when the
//! caches have had a while to fill, for every engine alike.
//!
//! After the kill the recovery time is taken as in experiment 2, and no PAYMENT that was reported as done may be missing (of the
//! NEW_ORDERs one in a hundred is rolled back on purpose). In the first of the rounds in memory, and on the limited volume, the
//! consistency conditions of the specification are checked, and the start after an orderly end is timed alike.

use std::time::{Duration, Instant};

use crate::context::Context;
use crate::dataset::{self, Kind};
use crate::failure::{Failure, While};
use crate::limits::Limits;
use crate::plan::{Finding, Part};
use crate::server::Server;
use crate::tool;
use crate::tpcc::{self, Consistency};

/// Each PAYMENT adds a row; nothing removes one.
const PAYMENTS: &str = "SELECT COUNT(*) FROM history";

pub(crate) fn run(context: &Context, part: &Part) -> Result<Finding, Failure> {
    let sizing = &context.sizing;
    let (directory, loaded) = dataset::copy(context, part.engine, Kind::Tpcc)?;
    let (cache, limits, seconds) = match part.variant {
        "memory" => (sizing.cache_large_bytes, Limits::default(), sizing.tpcc_memory_seconds),
        _ => (sizing.tpcc_cache_bytes, sizing.bounded(true), sizing.tpcc_seconds),
    };
    let mut settings = context.settings(part.engine, cache, limits);
    settings.port = Some(tpcc::free_port()?);
    let query = Kind::Tpcc.first_query();
    let mut finding = Finding::new(part);
    finding.set("loaded_bytes", loaded.bytes_on_disk as f64);

    let mut server = context.start(directory.path(), &settings, query)?;
    let payments_before = payments(&server)?;
    let mut mix = tpcc::begin(context, &server, sizing.warehouses)?;
    let begin = tpcc::warm_up(&mut mix, sizing.tpcc_warm_seconds);
    mix.ends_within(begin.saturating_duration_since(Instant::now()));
    let (before, end) = (server.counters(), begin + Duration::from_secs(seconds));
    // go-tpc goes on with errors when the server is gone.
    let by_itself = mix.ends_within(end.saturating_duration_since(Instant::now())) || server.ended().is_some();
    let words = server.last_words();
    let after = server.kill();
    let lines = mix.kill();
    if by_itself {
        let printed = tool::text(&lines);
        return Err(format!(
            "go-tpc or the server ended before the kill:\n{printed}\nthe server's last words:\n{words}"
        ));
    }
    let mix = tpcc::parse(&lines, begin, seconds);
    let work = mix.work.with(&before, &after);
    finding.set("tpmc", work.rate() * 60.0);
    finding.set("aborted", mix.aborted);
    finding.works.insert("new_order".into(), work);

    let server = context.start(directory.path(), &settings, query)?;
    finding.set("ready_seconds", server.ready_seconds);
    finding.set("recovery_bytes_read", server.start.bytes_read as f64);
    context.cage.apply(&Limits { memory: limits.memory, ..Limits::default() })?;
    let done = payments(&server)? - payments_before;
    if (done as f64) < mix.payments {
        finding.faults.push(format!("acknowledged payments are lost: acknowledged={} found={done}", mix.payments));
    }
    if part.variant == "memory" && !part.repeat.is_multiple_of(sizing.short_repeats) {
        return Ok(finding);
    }
    match tpcc::check(context, &server, sizing.warehouses)? {
        Consistency::Holds => finding.set("consistent", 1.0),
        Consistency::Violated(what) => {
            finding.set("consistent", 0.0);
            finding.faults.push(format!("a consistency condition is violated: {what}"));
        }
        // It may be the engine that hangs.
        Consistency::Unknown => {
            finding.failed = Some(format!("the consistency check took more than {} s", tpcc::CHECK_SECONDS_MAX));
        }
    }
    server.stop(&context.cage)?;
    finding.set("bytes_on_disk", dataset::size_of_tables(directory.path(), part.engine) as f64);
    let server = context.start(directory.path(), &settings, query)?;
    finding.set("clean_ready_seconds", server.ready_seconds);
    Ok(finding)
}

fn payments(server: &Server) -> Result<i64, Failure> {
    server.connect("tpcc")?.number(PAYMENTS).or_say("cannot count the payments")
}
