//! Debian's sysbench on the private server: one table, its stock tests, its own figures.

use std::process::{Command, Stdio};

use crate::engine::Engine;
use crate::failure::Failure;
use crate::measure::{Latency, Work};
use crate::server::Server;
use crate::tool::{self, Running};

/// Uniform keys; and write conflicts that an engine reports instead of waiting are tried again, as an application would.
pub(crate) const OPTIONS: [&str; 2] = ["--rand-type=uniform", "--mysql-ignore-errors=1213,1020,1205"];

/// Whether the program is there.
pub(crate) fn is_installed() -> bool {
    Command::new("sysbench")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

fn arguments(server: &Server, test: &str, rows: u64, own: &[String], command: &str) -> Vec<String> {
    let mut arguments = vec![
        test.to_string(),
        format!("--mysql-socket={}", server.socket().display()),
        "--mysql-user=root".into(),
        "--mysql-db=sbtest".into(),
        "--tables=1".into(),
        format!("--table-size={rows}"),
    ];
    arguments.extend_from_slice(own);
    arguments.push(command.into());
    arguments
}

/// Creates and fills `sbtest1`.
pub(crate) fn prepare(server: &Server, engine: Engine, rows: u64) -> Result<(), Failure> {
    let own = [format!("--mysql-storage-engine={}", engine.sql())];
    tool::launch("sysbench", &arguments(server, "oltp_common", rows, &own, "prepare"))?.succeed(server)?;
    Ok(())
}

/// Statements of one transaction of a test, its BEGIN and COMMIT among them.
pub(crate) fn statements(test: &str) -> u64 {
    match test {
        "oltp_read_only" => 16,
        "oltp_read_write" => 20,
        "oltp_write_only" => 6,
        _ => 1,
    }
}

/// Runs a test; units are transactions.
pub(crate) fn run(server: &Server, test: &str, rows: u64, threads: u64, seconds: u64) -> Result<Work, Failure> {
    let own = [
        format!("--threads={threads}"),
        format!("--time={seconds}"),
        "--report-interval=1".into(),
        "--histogram=on".into(),
        OPTIONS[0].into(),
        OPTIONS[1].into(),
    ];
    let before = server.counters();
    let printed = tool::launch("sysbench", &arguments(server, test, rows, &own, "run"))?.succeed(server)?;
    parse(&printed).map(|work| work.with(&before, &server.counters()))
}

/// Starts a client of a test without an end, whose keys follow from the seed.
pub(crate) fn start(server: &Server, test: &str, rows: u64, seed: u64) -> Result<Running, Failure> {
    let own = ["--threads=1".into(), "--time=0".into(), format!("--rand-seed={seed}")];
    let own: Vec<String> = own.into_iter().chain(OPTIONS.map(String::from)).collect();
    tool::launch("sysbench", &arguments(server, test, rows, &own, "run"))
}

fn parse(printed: &str) -> Result<Work, Failure> {
    let after = |line: &str, key: &str| -> Option<f64> {
        let (_, rest) = line.split_once(key)?;
        rest.trim().split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok()
    };
    let find = |key: &str| printed.lines().find_map(|line| after(line, key));
    let (Some(transactions), Some(seconds)) = (find("transactions:"), find("total time:")) else {
        return Err(format!("sysbench's output is not understood:\n{printed}"));
    };
    let by_second =
        printed.lines().filter(|line| line.starts_with("[ ")).filter_map(|line| after(line, "tps:")).collect();
    let histogram: Vec<(f64, f64)> = printed
        .lines()
        .filter_map(|line| {
            let (value, rest) = line.split_once('|')?;
            Some((value.trim().parse().ok()?, rest.split_whitespace().last()?.parse().ok()?))
        })
        .collect();
    Ok(Work {
        units: transactions,
        seconds,
        by_second,
        latency_ms: latency(&histogram, find("max:").unwrap_or(f64::NAN)),
        ..Work::default()
    })
}

fn latency(histogram: &[(f64, f64)], max: f64) -> Latency {
    let total: f64 = histogram.iter().map(|(_, count)| count).sum();
    let mut seen = 0.0;
    let distribution: Vec<(f64, f64)> = histogram
        .iter()
        .map(|&(value, count)| {
            seen += count;
            (value, seen / total)
        })
        .collect();
    let at = |quantile| distribution.iter().find(|(_, share)| *share >= quantile).map_or(max, |(value, _)| *value);
    Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999), max, distribution: distribution.clone() }
}

#[cfg(test)]
mod tests {
    use super::parse;

    const PRINTED: &str = "\
[ 1s ] thds: 16 tps: 812.40 qps: 812.40 (r/w/o: 0.00/812.40/0.00) lat (ms,95%): 2.14 err/s: 0.00 reconn/s: 0.00
[ 2s ] thds: 16 tps: 900.00 qps: 900.00 (r/w/o: 0.00/900.00/0.00) lat (ms,95%): 2.00 err/s: 0.00 reconn/s: 0.00
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       1.044 |************************************     990
       2.108 |*                                        9
      13.000 |                                         1

SQL statistics:
    transactions:                        1713   (856.11 per sec.)
    total time:                          2.0009s
         max:                                   13.22
";

    #[test]
    fn its_output_is_understood() {
        let work = parse(PRINTED).unwrap();
        assert_eq!((work.units, work.seconds), (1713.0, 2.0009));
        assert_eq!(work.by_second, [812.4, 900.0]);
        assert_eq!((work.latency_ms.p50, work.latency_ms.p999, work.latency_ms.max), (1.044, 2.108, 13.22));
        assert!(parse("FATAL: nothing").is_err());
    }
}
