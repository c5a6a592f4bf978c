//! sysbench in memory, engine against engine in turn: `--in-turn ROUNDS`.
//!
//! The report measures each engine by itself for half a minute before it comes to the next, soon after a start, and a machine that
//! others share may be a third faster by then. Here the servers of all engines are up all the time, and each round of a test runs it for
//! a second on one engine after the other. What an engine leaves behind, work in the background and a disk that is awake, the next one
//! feels, so the order changes from round to round in such a way that within rounds each engine comes after each other one equally often ([`order`]), or nearly, if the
//! number of rounds is none of those that make it so.
//! What is compared is what was measured within seconds, and of many such pairs the median is told, with the quartiles beside it.

use std::fs;

use serde::Serialize;

use crate::cleanup;
use crate::context::Context;
use crate::dataset::{self, Kind};
use crate::e4_sysbench::{cells, warm};
use crate::engine::Engine;
use crate::failure::{Failure, While};
use crate::limits::Limits;
use crate::measure::{Work, median, quartiles};
use crate::server::Server;
use crate::sysbench;

/// How long a test runs at once. Shorter, and starting the clients would be seen.
const SECONDS: u64 = 1;

/// A server under measurement, with the directory that goes with it.
struct Contestant {
    engine: Engine,
    server: Server,
    _directory: cleanup::Directory,
}

/// What a test gave on one engine, round by round.
#[derive(Serialize)]
struct Series {
    engine: Engine,
    rates: Vec<f64>,
    /// Processor time of the server for a transaction, in microseconds.
    cpu_us: Vec<f64>,
}

#[derive(Serialize)]
struct Cell {
    test: String,
    threads: u64,
    series: Vec<Series>,
}

/// Measures, prints a line for each test as it is done, and writes the figures of all rounds to `in-turn.json`.
pub(crate) fn run(context: &Context, engines: &[Engine], rounds: usize, commit: &str) -> Result<(), Failure> {
    let _datasets = cleanup::Directory::new(context.datasets.clone());
    let mut contestants = Vec::new();
    for &engine in engines.iter().chain([&Engine::Blackhole]) {
        println!("in turn: {} is loaded and started", engine.title());
        contestants.push(start(context, engine)?);
    }
    println!("in turn: {rounds} rounds of {SECONDS} s for each test on each engine, at {commit}");
    println!("{}", header(engines));
    let mut cells_done = Vec::new();
    for (test, threads) in cells(&context.sizing) {
        let cell = measure(context, &contestants, test, threads, rounds)?;
        println!("{}", line(&cell));
        cells_done.push(cell);
    }
    let path = context.out.join("in-turn.json");
    let text = serde_json::to_vec_pretty(&cells_done).or_say("cannot write JSON")?;
    fs::write(&path, text).or_say(format!("cannot write {}", path.display()))?;
    println!("in turn: the figures of all rounds are in {}", path.display());
    Ok(())
}

fn start(context: &Context, engine: Engine) -> Result<Contestant, Failure> {
    dataset::ensure(context, engine, Kind::Sysbench)?;
    let directory = context.place_of(engine.key())?;
    dataset::copy_to(context, engine, Kind::Sysbench, directory.path())?;
    dataset::forget(context, engine, Kind::Sysbench);
    let settings = context.settings(engine, context.sizing.cache_large_bytes, Limits::default());
    let server = context.start(directory.path(), &settings, Kind::Sysbench.first_query())?;
    warm(&server)?;
    Ok(Contestant { engine, server, _directory: directory })
}

fn measure(
    context: &Context,
    contestants: &[Contestant],
    test: &str,
    threads: u64,
    rounds: usize,
) -> Result<Cell, Failure> {
    let run = |one: &Contestant| sysbench::run(&one.server, test, context.sizing.sysbench_rows, threads, SECONDS);
    let mut series: Vec<Series> =
        contestants.iter().map(|one| Series { engine: one.engine, rates: Vec::new(), cpu_us: Vec::new() }).collect();
    // Not measured: what the test before has left to do in the background.
    contestants.iter().try_for_each(|one| run(one).map(drop))?;
    for round in 0..rounds {
        for at in order(round, contestants.len()) {
            let work: Work = run(&contestants[at])?;
            series[at].rates.push(work.rate());
            series[at].cpu_us.push(work.cpu_us_per_unit());
        }
    }
    Ok(Cell { test: test.into(), threads, series })
}

/// Who comes when in a round, of `count`. In `count` rounds, twice as many where `count` is odd, each comes at each place equally often, and
/// directly after each other one equally often: the design of E. J. Williams, "Experimental designs balanced for the estimation of residual
/// effects of treatments", Australian Journal of Scientific Research A 2 (1949).
fn order(round: usize, count: usize) -> Vec<usize> {
    let zigzag = (0..count).map(|turn| if turn % 2 == 1 { turn.div_ceil(2) } else { count - turn / 2 });
    let mut order: Vec<usize> = zigzag.map(|at| (at + round) % count).collect();
    if count % 2 == 1 && round / count % 2 == 1 {
        order.reverse();
    }
    order
}

impl Cell {
    fn of(&self, engine: Engine) -> Option<&Series> {
        self.series.iter().find(|series| series.engine == engine)
    }

    fn rivals(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| Engine::RIVALS.contains(&series.engine))
    }

    /// FROND's rate by a rival's, round by round.
    fn ratios(&self, rival: &Series) -> Vec<f64> {
        let own = self.of(Engine::Frond).map_or(&[][..], |series| &series.rates);
        own.iter().zip(&rival.rates).map(|(own, rival)| own / rival).collect()
    }
}

fn header(engines: &[Engine]) -> String {
    let rivals = || engines.iter().filter(|engine| Engine::RIVALS.contains(engine));
    let mut words = vec!["test".to_string(), "threads".to_string()];
    words.extend(engines.iter().map(|engine| format!("{}, per second", engine.title())));
    words.extend(rivals().map(|rival| format!("FROND ÷ {} (quartiles)", rival.title())));
    words.extend(engines.iter().map(|engine| format!("{}, µs over the floor", engine.title())));
    let rule = ["---"; 2].into_iter().chain(std::iter::repeat_n("---:", words.len() - 2));
    format!("| {} |\n|{}|", words.join(" | "), rule.collect::<Vec<_>>().join("|"))
}

/// A row of the table. The floor is what the server takes with an engine that throws rows away.
fn line(cell: &Cell) -> String {
    let floor = cell.of(Engine::Blackhole).map_or(0.0, |series| median(&series.cpu_us));
    let measured = || cell.series.iter().filter(|series| series.engine != Engine::Blackhole);
    let mut words = vec![cell.test.trim_start_matches("oltp_").to_string(), cell.threads.to_string()];
    words.extend(measured().map(|series| format!("{:.0}", median(&series.rates))));
    words.extend(cell.rivals().map(|rival| {
        let ratios = cell.ratios(rival);
        let (low, high) = quartiles(&ratios);
        format!("{:.2} ({low:.2}–{high:.2})", median(&ratios))
    }));
    words.extend(measured().map(|series| format!("{:.1}", median(&series.cpu_us) - floor)));
    format!("| {} |", words.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_at_each_place_and_after_each_other_equally_often() {
        for count in 1..=7 {
            let rounds = if count % 2 == 0 { count } else { 2 * count };
            let each = rounds / count;
            let (mut places, mut after) = (vec![vec![0; count]; count], vec![vec![0; count]; count]);
            for round in 0..rounds {
                let order = order(round, count);
                order.iter().enumerate().for_each(|(place, &at)| places[place][at] += 1);
                order.windows(2).for_each(|pair| after[pair[0]][pair[1]] += 1);
            }
            assert!(places.iter().flatten().all(|&times| times == each), "{count}: {places:?}");
            let expected = |one, other| if one == other { 0 } else { each };
            for (one, row) in after.iter().enumerate() {
                assert!(
                    row.iter().enumerate().all(|(other, &times)| times == expected(one, other)),
                    "{count}: {after:?}"
                );
            }
        }
    }

    #[test]
    fn what_was_measured_in_one_round_is_compared() {
        let series =
            |engine, rates: &[f64], cpu: f64| Series { engine, rates: rates.to_vec(), cpu_us: vec![cpu; rates.len()] };
        // The machine is three times as fast in the second round: the median of the rates would say nothing.
        let cell = Cell {
            test: "oltp_insert".into(),
            threads: 16,
            series: vec![
                series(Engine::Frond, &[110.0, 330.0, 100.0], 12.5),
                series(Engine::Innodb, &[100.0, 300.0, 100.0], 14.0),
                series(Engine::Blackhole, &[1.0, 1.0, 1.0], 2.0),
            ],
        };
        assert_eq!(line(&cell), "| insert | 16 | 110 | 100 | 1.10 (1.00–1.10) | 10.5 | 12.0 |");
        let columns =
            header(&[Engine::Frond, Engine::Innodb]).lines().map(|line| line.matches('|').count()).collect::<Vec<_>>();
        assert_eq!(columns, [8, 8]);
        assert_eq!(line(&cell).matches('|').count(), 8);
    }
}
