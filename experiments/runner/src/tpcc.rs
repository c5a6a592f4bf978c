//! go-tpc on the private server: TPC-C over TCP on a free port of this machine, and its own consistency check.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::cleanup;
use crate::context::Context;
use crate::failure::{Failure, While};
use crate::measure::Work;
use crate::server::Server;
use crate::tool::{self, Line, Running};

const MODULE: &str = "github.com/pingcap/go-tpc";
/// A fixed version, so that figures of different days compare.
pub(crate) const VERSION: &str = "v1.0.12";
pub(crate) const THREADS: u64 = 8;

/// The program, built once from its Go module.
pub(crate) fn program(out: &std::path::Path) -> PathBuf {
    out.join("tools").join(format!("go-tpc-{VERSION}"))
}

/// Builds the program unless it is there. A failure is a sentence for the report: the experiment is left out.
pub(crate) fn install(out: &std::path::Path) -> Result<(), Failure> {
    let program = program(out);
    if program.exists() {
        return Ok(());
    }
    eprintln!("experiments: building go-tpc {VERSION} (once)");
    let module = format!("{MODULE}@{VERSION}");
    let output = cleanup::output(Command::new("go").args(["mod", "download", "-json", &module]).current_dir(out));
    let output = output.or_say("go-tpc is built with Go, which is missing")?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let Some(directory) = answer.get("Dir").and_then(|value| value.as_str()) else {
        let why = answer.get("Error").and_then(|value| value.as_str()).unwrap_or("no answer");
        return Err(format!("go-tpc could not be fetched: {}", why.lines().next().unwrap_or_default()));
    };
    let unfinished = program.with_extension("new");
    let mut build = Command::new("go");
    build.args(["-C", directory, "build", "-o"]).arg(&unfinished).arg("./cmd/go-tpc");
    let output = cleanup::output(&mut build).or_say("go-tpc is built with Go, which is missing")?;
    if !output.status.success() {
        return Err(format!("go-tpc could not be built: {}", String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::rename(&unfinished, &program).or_say("go-tpc could not be kept")
}

/// A port that nothing listens on.
pub(crate) fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").or_say("no TCP port is free")?;
    Ok(listener.local_addr().or_say("no TCP port is free")?.port())
}

fn launch(
    context: &Context,
    server: &Server,
    warehouses: u64,
    command: &str,
    own: &[String],
) -> Result<Running, Failure> {
    let port = server.settings.port.ok_or("go-tpc needs a server with a port")?;
    let mut arguments: Vec<String> = ["tpcc", "-H", "127.0.0.1", "-U", "root", "-D", "tpcc"].map(Into::into).into();
    arguments.extend([format!("-P={port}"), format!("-T={THREADS}"), format!("--warehouses={warehouses}")]);
    arguments.push(command.into());
    arguments.extend_from_slice(own);
    tool::launch(&program(&context.out).to_string_lossy(), &arguments)
}

/// Creates and fills the tables.
pub(crate) fn prepare(context: &Context, server: &Server, warehouses: u64) -> Result<(), Failure> {
    let printed = launch(context, server, warehouses, "prepare", &["--no-check".into()])?.succeed(server)?;
    // It ends well even if it could not connect.
    let districts = server.connect("tpcc")?.number("SELECT COUNT(*) FROM district");
    match districts {
        Ok(count) if count as u64 == warehouses * 10 => Ok(()),
        other => Err(format!("go-tpc did not fill its tables: districts={other:?}\n{}", printed.trim())),
    }
}

/// Indexes and statistics without which the server looks at every payment for every customer (condition 10), which takes
/// hours; made after the crash, for every engine alike.
const CHECKABLE: [&str; 2] = [
    "ALTER TABLE history ADD KEY customer (h_c_w_id, h_c_d_id, h_c_id)",
    "ANALYZE TABLE customer, history, orders, order_line PERSISTENT FOR ALL",
];
/// A check that takes longer is given up.
pub(crate) const CHECK_SECONDS_MAX: u64 = 300;

/// What the consistency conditions of the specification came to.
pub(crate) enum Consistency {
    Holds,
    Violated(String),
    /// The check took too long.
    Unknown,
}

/// Checks the consistency conditions of the specification.
pub(crate) fn check(context: &Context, server: &Server, warehouses: u64) -> Result<Consistency, Failure> {
    CHECKABLE.iter().try_for_each(|statement| server.run("tpcc", statement))?;
    let checking = launch(context, server, warehouses, "check", &[])?;
    let Some((well, printed)) = checking.finish_within(Duration::from_secs(CHECK_SECONDS_MAX))? else {
        return Ok(Consistency::Unknown);
    };
    let violated = printed.lines().find(|line| line.contains("failed") || line.contains("error"));
    match (well, violated) {
        (true, None) => Ok(Consistency::Holds),
        (_, Some(line)) => Ok(Consistency::Violated(line.trim().into())),
        (false, None) => Err(format!("the consistency check did not run: {}", printed.trim())),
    }
}

/// Begins the mix of transactions; it ends with the server.
pub(crate) fn begin(context: &Context, server: &Server, warehouses: u64) -> Result<Running, Failure> {
    // Without --ignore-error a thread ends at its first error, and an engine that answers write conflicts with errors would
    // soon be measured with fewer threads than the others.
    let own = ["--time=24h", "--interval=1s", "--ignore-error"].map(String::from);
    launch(context, server, warehouses, "run", &own)
}

/// What every line of a report begins with; reports come every second.
const REPORT: &str = "[Current] ";
/// An engine that did nothing for so long is measured from any moment.
const FIRST_REPORT_SECONDS_MAX: u64 = 10;

/// Lets the caches fill; gives the moment at which the measured time is to begin. It lies half way between two reports, so
/// that neither end of the measured time, which lasts whole seconds, comes near one.
pub(crate) fn warm_up(mix: &mut Running, seconds: u64) -> Instant {
    mix.ends_within(Duration::from_secs(seconds));
    let begin = Instant::now();
    while mix.last_at(REPORT).is_none() && begin.elapsed() < Duration::from_secs(FIRST_REPORT_SECONDS_MAX) {
        if mix.ends_within(Duration::from_millis(20)) {
            break;
        }
    }
    let now = Instant::now();
    mix.last_at(REPORT).map_or(now, |last| half_way(last, now))
}

/// The next moment, from `now` on, that is half way between two reports.
fn half_way(last: Instant, now: Instant) -> Instant {
    let half = Duration::from_millis(500);
    let beyond = (now - last).saturating_sub(half);
    let seconds = beyond.as_secs() + u64::from(beyond.subsec_nanos() > 0);
    last + half + Duration::from_secs(seconds)
}

/// What a run did in its measured time; units are NEW_ORDER transactions.
#[derive(Debug, Default)]
pub(crate) struct Mix {
    pub(crate) work: Work,
    /// PAYMENT transactions that were acknowledged from the beginning to the end; unlike NEW_ORDER none of them is rolled
    /// back on purpose.
    pub(crate) payments: f64,
    /// Transactions of every kind that ended with an error, from the beginning to the end of the measured time.
    pub(crate) aborted: f64,
}

/// Reads the reports that were printed every second until the server was gone. The measured time is from `begin` and of so
/// many whole seconds, for every engine alike. A report counts for the second in which it came, and a second without one
/// was a second without a NEW_ORDER: go-tpc says nothing of a kind that did not happen, and takes the time (`Takes(s)`) from
/// the first transaction of a kind.
pub(crate) fn parse(lines: &[Line], begin: Instant, seconds: u64) -> Mix {
    let mut mix = Mix::default();
    mix.work.seconds = seconds as f64;
    mix.work.by_second = vec![0.0; seconds as usize];
    let latency = &mut mix.work.latency_ms;
    for Line { at, text } in lines {
        let field = |name: &str| -> Option<f64> {
            let (_, rest) = text.split_once(name)?;
            rest.trim_start_matches(':').trim().split(',').next()?.trim().parse().ok()
        };
        let count = field("Count").unwrap_or(0.0);
        let since = at.checked_duration_since(begin);
        let is_over = since.is_some_and(|since| since.as_secs() >= seconds);
        if text.starts_with("[Current] PAYMENT ") {
            mix.payments += count;
        } else if is_of_errors(text) && !is_over {
            mix.aborted += count;
        } else if text.starts_with("[Current] NEW_ORDER ")
            && let Some(since) = since
            && let Some(second) = mix.work.by_second.get_mut(since.as_secs() as usize)
        {
            mix.work.units += count;
            *second += count;
            for (worst, name) in [
                (&mut latency.p50, "50th(ms)"),
                (&mut latency.p99, "99th(ms)"),
                (&mut latency.p999, "99.9th(ms)"),
                (&mut latency.max, "Max(ms)"),
            ] {
                *worst = worst.max(field(&format!(" {name}")).unwrap_or(0.0));
            }
        }
    }
    mix
}

/// `[Current] X_ERR …`, of any kind X of transactions.
fn is_of_errors(line: &str) -> bool {
    let kind = line.strip_prefix(REPORT).and_then(|rest| rest.split_whitespace().next());
    kind.is_some_and(|kind| kind.ends_with("_ERR"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
[Current] NEW_ORDER - Takes(s): 1.0, Count: 100, TPM: 6000.0, Sum(ms): 900.0, Avg(ms): 9.0, 50th(ms): 8.0, 90th(ms): 9.0, 95th(ms): 10.0, 99th(ms): 20.0, 99.9th(ms): 30.0, Max(ms): 31.5
[Current] NEW_ORDER_ERR - Takes(s): 1.0, Count: 3, TPM: 180.0, Sum(ms): 9.0, Avg(ms): 9.0, 50th(ms): 8.0, 90th(ms): 9.0, 95th(ms): 10.0, 99th(ms): 20.0, 99.9th(ms): 30.0, Max(ms): 31.5
[Current] ORDER_STATUS_ERR - Takes(s): 1.0, Count: 1, TPM: 60.0, Sum(ms): 9.0, Avg(ms): 9.0, 50th(ms): 8.0, 90th(ms): 9.0, 95th(ms): 10.0, 99th(ms): 20.0, 99.9th(ms): 30.0, Max(ms): 31.5
[Current] DELIVERY_ERR - Takes(s): 1.0, Count: 2, TPM: 120.0, Sum(ms): 9.0, Avg(ms): 9.0, 50th(ms): 8.0, 90th(ms): 9.0, 95th(ms): 10.0, 99th(ms): 20.0, 99.9th(ms): 30.0, Max(ms): 31.5
[Current] DELIVERY - Takes(s): 1.0, Count: 7, TPM: 420.0, Sum(ms): 9.0, Avg(ms): 9.0, 50th(ms): 8.0, 90th(ms): 9.0, 95th(ms): 10.0, 99th(ms): 20.0, 99.9th(ms): 30.0, Max(ms): 31.5
[Current] PAYMENT - Takes(s): 1.0, Count: 90, TPM: 5400.0, Sum(ms): 900.0, Avg(ms): 9.0, 50th(ms): 8.0, 90th(ms): 9.0, 95th(ms): 10.0, 99th(ms): 20.0, 99.9th(ms): 30.0, Max(ms): 99.0
";

    /// A report of so many NEW_ORDERs, so many milliseconds after `begin`.
    fn report(begin: Instant, ms: u64, takes: f64, count: u64) -> Line {
        let text = format!(
            "[Current] NEW_ORDER - Takes(s): {takes:.1}, Count: {count}, TPM: 3000.0, Sum(ms): 900.0, Avg(ms): 9.0, 50th(ms): 7.0, \
             90th(ms): 9.0, 95th(ms): 10.0, 99th(ms): 25.0, 99.9th(ms): 28.0, Max(ms): 28.0"
        );
        Line { at: begin + Duration::from_millis(ms), text }
    }

    #[test]
    fn its_output_is_understood() {
        let begin = Instant::now();
        let mut lines: Vec<Line> =
            PRINTED.lines().map(|text| Line { at: begin + Duration::from_millis(500), text: text.into() }).collect();
        lines.push(report(begin, 1_500, 1.0, 50));
        let mix = parse(&lines, begin, 2);
        assert_eq!((mix.work.units, mix.payments, mix.aborted), (150.0, 90.0, 6.0));
        assert_eq!((mix.work.by_second.as_slice(), mix.work.seconds), ([100.0, 50.0].as_slice(), 2.0));
        assert_eq!((mix.work.latency_ms.p50, mix.work.latency_ms.p99, mix.work.latency_ms.max), (8.0, 25.0, 31.5));
        let warm = parse(&lines, begin + Duration::from_secs(1), 1);
        assert_eq!((warm.work.units, warm.payments, warm.work.latency_ms.max), (50.0, 90.0, 28.0));
        let over = parse(&lines, begin, 0);
        assert_eq!((over.work.units, over.payments, over.aborted), (0.0, 90.0, 0.0));
    }

    #[test]
    fn a_late_first_transaction_costs_no_measured_second() {
        let begin = Instant::now();
        let lines: Vec<Line> =
            (1..=50).map(|at| report(begin, at * 1_000, if at == 1 { 0.3 } else { 1.0 }, 100)).collect();
        let mix = parse(&lines, begin + Duration::from_millis(10_500), 40);
        assert_eq!(mix.work.units, 4_000.0);
        assert_eq!(mix.work.by_second, [100.0; 40]);
    }

    #[test]
    fn a_second_without_a_transaction_is_a_zero() {
        let begin = Instant::now();
        let lines: Vec<Line> = [11, 12, 15].map(|at| report(begin, at * 1_000, 0.1, 100)).into();
        let mix = parse(&lines, begin + Duration::from_millis(10_500), 5);
        assert_eq!(mix.work.by_second, [100.0, 100.0, 0.0, 0.0, 100.0]);
        assert_eq!((mix.work.worst_second(), mix.work.rate()), (0.0, 60.0));
    }

    #[test]
    fn the_measured_time_begins_half_way_between_two_reports() {
        let last = Instant::now();
        for (now, begin) in [(0, 500), (499, 500), (501, 1_500), (1_400, 1_500), (7_600, 8_500)] {
            assert_eq!(half_way(last, last + Duration::from_millis(now)), last + Duration::from_millis(begin), "{now}");
        }
    }
}
