//! Experiment 7: rolling back a large transaction, a kill in the middle of rolling back, and a kill while it is open.
//!
//! `insert`: the transaction inserts the rows; `update`: it changes an indexed column of every row. After the kill two
//! times are taken: until a SELECT on the table is answered, and until the rows that the transaction touched are free: one
//! that it changed can be updated, one that it inserted can be inserted anew (neither there nor locked).

use std::sync::mpsc;
use std::time::{Duration, Instant};

use frond_load::wire::Connection;

use crate::context::Context;
use crate::failure::{Failure, While};
use crate::limits::Limits;
use crate::plan::{Finding, Part};
use crate::server::Server;

const QUERY: &str = "SELECT v FROM test.r WHERE id = 1";
/// A row that stays locked is given up then.
const FREE_SECONDS_MAX: u64 = 600;
/// How long after the ROLLBACK was sent the server is killed, at most: a faster one is over by then.
pub(crate) const KILL_AFTER: Duration = Duration::from_millis(100);

pub(crate) fn run(context: &Context, part: &Part) -> Result<Finding, Failure> {
    let rows = context.sizing.rollback_rows;
    let directory = context.fresh(part.engine)?;
    let settings = context.settings(part.engine, context.sizing.cache_bytes, Limits::default());
    let server = context.start(directory.path(), &settings, "SELECT 1")?;
    server.run("", "CREATE DATABASE IF NOT EXISTS test")?;
    let table = "CREATE TABLE r (id INT NOT NULL PRIMARY KEY, v INT NOT NULL, w VARCHAR(60) NOT NULL, KEY (v))";
    server.run("test", &format!("{table} ENGINE={}", part.engine.sql()))?;
    let base = if part.variant == "insert" { 1 } else { rows };
    server.run("test", &insert(1, base))?;
    let change = match part.variant {
        "insert" => insert(2, rows + 1),
        _ => "UPDATE r SET v = v + 1".into(),
    };
    let mut finding = Finding::new(part);
    finding.set("rows", rows as f64);

    let sum = state(&server)?;
    let mut connection = open(&server, &change, &mut finding, "change_seconds")?;
    let begin = Instant::now();
    connection.run("ROLLBACK").or_say("the rollback failed")?;
    finding.set("rollback_seconds", begin.elapsed().as_secs_f64());
    finding.set("memory_peak", server.counters().memory_peak as f64);
    if state(&server)? != sum {
        finding.faults.push("the table is not what it was before the rolled back transaction".into());
    }
    drop(connection);

    let connection = open(&server, &change, &mut finding, "second_change_seconds")?;
    kill_in_rollback(server, connection, &mut finding)?;
    let after_kill = |finding: &mut Finding, [ready_name, free_name]: [&str; 2], interrupted: &str| {
        let server = context.start(directory.path(), &settings, QUERY)?;
        let ready = Instant::now();
        finding.set(ready_name, server.ready_seconds);
        wait_until_free(&server, &probes(part.variant, rows))?;
        finding.set(free_name, server.ready_seconds + ready.elapsed().as_secs_f64());
        if state(&server)? != sum {
            finding.faults.push(format!("the table is not what it was before the {interrupted}"));
        }
        Ok::<_, Failure>(server)
    };
    let server = after_kill(&mut finding, ["ready_seconds", "free_seconds"], "interrupted transaction")?;
    server.stop(&context.cage)?;
    let server = context.start(directory.path(), &settings, QUERY)?;
    finding.set("clean_ready_seconds", server.ready_seconds);
    if part.variant == "update" {
        let connection = open(&server, &change, &mut finding, "third_change_seconds")?;
        server.kill();
        drop(connection);
        let names = ["open_ready_seconds", "open_free_seconds"];
        after_kill(&mut finding, names, "transaction that was open")?;
    }
    Ok(finding)
}

fn insert(first: u64, last: u64) -> String {
    format!("INSERT INTO r SELECT seq, seq * 7919 % 1000003, MD5(seq) FROM seq_{first}_to_{last}")
}

/// Begins the transaction and makes its change.
fn open(server: &Server, change: &str, finding: &mut Finding, name: &str) -> Result<Connection, Failure> {
    let mut connection = server.connect("test")?;
    connection.run("BEGIN").or_say("a transaction could not begin")?;
    let begin = Instant::now();
    connection.run(change).or_say("the transaction's change failed")?;
    finding.set(name, begin.elapsed().as_secs_f64());
    Ok(connection)
}

fn state(server: &Server) -> Result<(i64, i64), Failure> {
    let mut connection = server.connect("test")?;
    let count = connection.number("SELECT COUNT(*) FROM r FORCE INDEX (PRIMARY)").or_say("cannot read the table")?;
    let sum = connection.number("SELECT COALESCE(SUM(v), 0) FROM r FORCE INDEX (v)").or_say("cannot read the table")?;
    Ok((count, sum))
}

fn kill_in_rollback(server: Server, mut connection: Connection, finding: &mut Finding) -> Result<(), Failure> {
    let (tell, told) = mpsc::channel();
    let rolling = std::thread::spawn(move || tell.send(connection.run("ROLLBACK").map(|_| ())));
    let over = match told.recv_timeout(KILL_AFTER) {
        Ok(answer) => answer.map(|()| true).or_say(format!("the rollback failed\n{}", server.last_words()))?,
        Err(_) => false,
    };
    server.kill();
    rolling.join().map_err(|_| "the client that rolls back panicked".to_string())?.ok();
    finding.set("over_before_kill", f64::from(u8::from(over)));
    Ok(())
}

/// Statements that want the first, a middle and the last row that the transaction touched.
fn probes(variant: &str, rows: u64) -> [String; 3] {
    let touched = [1, rows / 2 + 1, rows];
    match variant {
        "insert" => touched.map(|at| format!("INSERT INTO r VALUES ({}, 0, '')", at + 1)),
        _ => touched.map(|id| format!("UPDATE r SET w = w WHERE id = {id}")),
    }
}

/// Each statement must succeed, now or later, and is taken back.
fn wait_until_free(server: &Server, probes: &[String]) -> Result<(), Failure> {
    let begin = Instant::now();
    for probe in probes {
        let mut connection = server.connect("test")?;
        connection.run("BEGIN").or_say("a transaction could not begin")?;
        while let Err(error) = connection.run(probe) {
            if error.is_lost() || begin.elapsed() > Duration::from_secs(FREE_SECONDS_MAX) {
                return Err(format!("a row is not free after the kill: {probe}: {error}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        connection.run("ROLLBACK").or_say("the rollback failed")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_that_are_tried_are_those_that_the_transaction_touched() {
        assert_eq!(insert(2, 1_001).rsplit("FROM ").next(), Some("seq_2_to_1001"));
        let ids = |variant: &str| probes(variant, 1_000).map(|probe| first_number(&probe));
        assert_eq!(ids("insert"), [2, 502, 1_001]);
        assert_eq!(ids("update"), [1, 501, 1_000]);
    }

    fn first_number(text: &str) -> u64 {
        text.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty()).unwrap().parse().unwrap()
    }
}
