//! sysbench in memory, engine against engine in turn: for the report, and alone by `--in-turn ROUNDS`.
//!
//! A machine that others share may be a third faster or slower by the time that one engine has been measured by itself and the next one's
//! turn comes. Here the servers and clients of all engines are there all the time, and all are stopped
//! (SIGSTOP) but those of one engine, which has the machine for a fifth of a second. So what an engine does in the background it does in
//! its own time, and what is compared was measured within a second. The order changes from round to round in such a way that within
//! rounds each engine comes after each other one equally often ([`order`]), or nearly, if the number of rounds is none of those that make it so.
//! What is told is the ratio of what two engines did in all rounds, with its standard error from round to round ([`ratio_of_totals`]): a slice in
//! which the disk did not answer at all costs its engine that slice, where a mean of the rounds' ratios would be about it alone.
//!
//! Each client is a process of its own. A message from one processor of a virtual machine to another takes longer than the statement itself, and which
//! of the clients are on another than their session, the system leaves as it was when they came. By that alone a server was a fifth faster or slower
//! from one start of the clients to the next, and with one client by twice. So ([`Places`]) either each client is on the same processor as the session
//! that serves it, the first on the first, the second on the second, and so on in turn; whatever else the servers do has all processors. All move on
//! by one processor from round to round ([`processor_of`]): the one that serves the disk's interrupts is a third faster for one client that syncs, and to some engines it
//! gives more than to others. Or the clients are where the system puts them, as those of a usual benchmark, and start anew several times; the error
//! is then of what these starts gave.

use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};

use frond_load::wire::{self, Connection};
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use crate::cleanup;
use crate::context::Context;
use crate::dataset::{self, Kind};
use crate::e4_sysbench::{cells, name, warm};
use crate::engine::Engine;
use crate::failure::{Failure, While};
use crate::limits::Limits;
use crate::measure::{Work, mean_ratio, ratio_of_totals};
use crate::plan::{Finding, Part};
use crate::server::Server;
use crate::sysbench;
use crate::tool::{self, Running};

/// How long an engine has the machine at once.
const SLICE: Duration = Duration::from_millis(200);
/// An engine that has done nothing in so many of its turns, one after the other, half a minute, will not do anything.
const IDLE_SLICES_MAX: usize = 150;
/// How long a test runs before it is measured: what the test before has left to do is under way.
const WARM: Duration = Duration::from_secs(1);
/// So often clients start that are where the system puts them.
const FREE_STARTS: usize = 6;
/// Clients that have not come or left by then never will.
const BEGIN: Duration = Duration::from_secs(30);

/// Where clients and sessions run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Places {
    /// A client on its session's processor.
    Paired,
    /// Where the system puts them.
    Free,
}

impl Places {
    /// How often the clients of a test start.
    fn starts(self, rounds: usize) -> usize {
        match self {
            Places::Paired => 1,
            Places::Free => FREE_STARTS.min(rounds),
        }
    }
}

/// A server under measurement, with the directory that goes with it. It is stopped but for its turn.
struct Contestant {
    engine: Engine,
    server: Server,
    /// For questions to the server.
    connection: Connection,
    _directory: cleanup::Directory,
}

/// A client, with the thread of the server that serves it.
struct Client {
    process: Running,
    session: i32,
}

/// What a test gave on one engine, round by round.
#[derive(Serialize)]
struct Series {
    engine: Engine,
    statements: Vec<u64>,
    seconds: Vec<f64>,
    /// Processor time of the server; it has none between the rounds.
    cpu_seconds: Vec<f64>,
}

#[derive(Serialize)]
struct Cell {
    test: String,
    threads: u64,
    /// How often the clients started, each time for an equal share of the rounds, or nearly.
    starts: usize,
    series: Vec<Series>,
}

/// Measures, prints a line for each test as it is done, and writes the figures of all rounds to `in-turn.json`.
pub(crate) fn run(
    context: &Context,
    engines: &[Engine],
    rounds: usize,
    places: Places,
    commit: &str,
) -> Result<(), Failure> {
    let _datasets = cleanup::Directory::new(context.datasets.clone());
    let clients = match places {
        Places::Paired => "each client on its session's processor".to_string(),
        Places::Free => format!("clients where the system puts them, {} starts", places.starts(rounds)),
    };
    println!(
        "in turn: {rounds} rounds of {} s for each test on each engine, at {commit}; {clients}",
        SLICE.as_secs_f64()
    );
    let all: Vec<Engine> = engines.iter().copied().chain([Engine::Blackhole]).collect();
    println!("in turn: the tables are loaded and the servers started");
    println!("{}", header(engines));
    let cells_done = measure_all(context, &all, rounds, places, |cell| println!("{}", line(cell)))?;
    let path = context.out.join("in-turn.json");
    let text = serde_json::to_vec_pretty(&cells_done).or_say("cannot write JSON")?;
    fs::write(&path, text).or_say(format!("cannot write {}", path.display()))?;
    println!("in turn: the figures of all rounds are in {}", path.display());
    Ok(())
}

/// The same for a report: what each of these parts gave, all engines' and all repeats, each of which has an equal share of the rounds.
pub(crate) fn findings(context: &Context, parts: &[&Part]) -> Result<Vec<Finding>, Failure> {
    let mut engines: Vec<Engine> = parts.iter().map(|part| part.engine).collect();
    engines.sort();
    engines.dedup();
    let repeats = 1 + parts.iter().map(|part| part.repeat as usize).max().unwrap_or(0);
    let rounds = context.sizing.sysbench_rounds as usize * repeats;
    let cells = measure_all(context, &engines, rounds, Places::Paired, |_| ())?;
    let finding = |part: &&Part| {
        let mut finding = Finding::new(part);
        for cell in &cells {
            let work = cell
                .of(part.engine)
                .map(|series| series.work(&cell.test, share(rounds, repeats, part.repeat as usize)));
            finding.works.extend(work.map(|work| (name(&cell.test, cell.threads), work)));
        }
        finding
    };
    Ok(parts.iter().map(finding).collect())
}

/// Starts the servers of these engines, and measures every test on them.
fn measure_all(
    context: &Context,
    engines: &[Engine],
    rounds: usize,
    places: Places,
    mut done: impl FnMut(&Cell),
) -> Result<Vec<Cell>, Failure> {
    let contestants = engines.iter().map(|&engine| start(context, engine));
    let mut contestants = contestants.collect::<Result<Vec<_>, _>>()?;
    let mut all = Vec::new();
    for (number, (test, threads)) in cells(&context.sizing).into_iter().enumerate() {
        // No two clients of all tests have the same keys; those of different engines have.
        let seed = 1 + 1000 * number as u64;
        let cell = measure(context, &mut contestants, (test, threads, seed), rounds, places)?;
        done(&cell);
        all.push(cell);
    }
    Ok(all)
}

fn start(context: &Context, engine: Engine) -> Result<Contestant, Failure> {
    dataset::ensure(context, engine, Kind::Sysbench)?;
    let directory = context.place_of(engine.key())?;
    dataset::copy_to(context, engine, Kind::Sysbench, directory.path())?;
    dataset::forget(context, engine, Kind::Sysbench);
    let settings = context.settings(engine, context.sizing.cache_large_bytes, Limits::default());
    let server = context.start(directory.path(), &settings, Kind::Sysbench.first_query())?;
    warm(&server)?;
    let connection = server.connect("")?;
    let contestant = Contestant { engine, server, connection, _directory: directory };
    contestant.rest()?;
    Ok(contestant)
}

impl Contestant {
    fn rest(&self) -> Result<(), Failure> {
        send(self.server.pid(), Signal::STOP)
    }

    fn go_on(&self) -> Result<(), Failure> {
        send(self.server.pid(), Signal::CONT)
    }

    fn ask(&mut self, query: &str) -> Result<Vec<wire::Row>, Failure> {
        self.connection.rows(query).map_err(|error| format!("{error}\n{}", self.server.last_words()))
    }

    /// Statements that the server was asked to execute, prepared or not; this question is one of them.
    fn questions(&mut self) -> Result<u64, Failure> {
        let rows = self.ask("SHOW GLOBAL STATUS LIKE 'Questions'")?;
        let count = rows.first().and_then(|row| wire::text(row.get(1)?).parse().ok());
        count.ok_or_else(|| "the server does not count statements".into())
    }

    /// The threads that serve clients.
    fn sessions(&mut self) -> Result<HashSet<i32>, Failure> {
        let rows = self.ask("SELECT TID FROM information_schema.PROCESSLIST WHERE DB = 'sbtest'")?;
        Ok(rows.iter().filter_map(|row| wire::text(row.first()?).parse().ok()).collect())
    }

    /// Starts the clients of a test, and stops them when they have been at it for a moment.
    fn begin(
        &mut self,
        context: &Context,
        (test, threads, seed): (&str, u64, u64),
        places: Places,
    ) -> Result<Vec<Client>, Failure> {
        self.go_on()?;
        // The next client may be served by the thread that served one of the test before.
        self.wait_for_sessions("leave", |sessions| sessions.is_empty().then_some(()))?;
        let (mut clients, mut known) = (Vec::new(), HashSet::new());
        for number in 0..threads {
            let process = sysbench::start(&self.server, test, context.sizing.sysbench_rows, seed + number)?;
            let session = self.wait_for_sessions("come", |sessions| sessions.difference(&known).next().copied())?;
            known.insert(session);
            clients.push(Client { process, session });
        }
        if places == Places::Paired {
            pair(&clients, 0)?;
        }
        std::thread::sleep(WARM);
        send_all(&clients, Signal::STOP)?;
        self.rest()?;
        Ok(clients)
    }

    /// Waits until the sessions are such that `find` finds something.
    fn wait_for_sessions<T>(&mut self, what: &str, find: impl Fn(&HashSet<i32>) -> Option<T>) -> Result<T, Failure> {
        let begin = Instant::now();
        loop {
            if let Some(found) = find(&self.sessions()?) {
                return Ok(found);
            }
            if begin.elapsed() > BEGIN {
                let words = self.server.last_words();
                return Err(format!("clients of {} do not {what}\n{words}", self.engine.title()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Lets it and its clients go on for the time of a turn.
    fn turn(&mut self, clients: &mut [Client], series: &mut Series) -> Result<(), Failure> {
        let cpu = self.server.counters().cpu_seconds;
        self.go_on()?;
        let before = self.questions()?;
        let begin = Instant::now();
        send_all(clients, Signal::CONT)?;
        std::thread::sleep(SLICE);
        send_all(clients, Signal::STOP)?;
        let seconds = begin.elapsed().as_secs_f64();
        let executed = self.questions()? - before - 1;
        self.rest()?;
        for client in clients {
            if client.process.has_ended() {
                return Err(format!(
                    "a client of {} ended:\n{}",
                    self.engine.title(),
                    tool::text(&client.process.lines())
                ));
            }
        }
        let idle = series.statements.iter().rev().take_while(|executed| **executed == 0).count();
        if executed == 0 && idle >= IDLE_SLICES_MAX {
            return Err(format!("{} did nothing in its turn", self.engine.title()));
        }
        series.statements.push(executed);
        series.seconds.push(seconds);
        series.cpu_seconds.push(self.server.counters().cpu_seconds - cpu);
        Ok(())
    }
}

fn send(process: u32, signal: Signal) -> Result<(), Failure> {
    if cleanup::signal(process, signal) { Ok(()) } else { Err(format!("process {process} has ended")) }
}

fn send_all(clients: &[Client], signal: Signal) -> Result<(), Failure> {
    clients.iter().try_for_each(|client| send(client.process.id(), signal))
}

/// Has each client run where its session does: the first on the processor of that number, the next on the next.
fn pair(clients: &[Client], first: usize) -> Result<(), Failure> {
    let processors = processors()?;
    for (number, client) in clients.iter().enumerate() {
        let mut one = CpuSet::new();
        one.set(processors[(first + number) % processors.len()]);
        place(client.session, &one);
        tasks(client.process.id())?.into_iter().for_each(|task| place(task, &one));
    }
    Ok(())
}

/// The processors that this process may use.
fn processors() -> Result<Vec<usize>, Failure> {
    let all = sched_getaffinity(None).or_say("cannot ask for the processors")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&at| all.is_set(at)).collect())
}

/// The threads of a process.
fn tasks(process: u32) -> Result<Vec<i32>, Failure> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).or_say("cannot list the threads of a process")?;
    Ok(tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect())
}

/// Has a thread run there alone. One that has ended meanwhile needs no place.
fn place(task: i32, processors: &CpuSet) {
    let _ = Pid::from_raw(task).map(|task| sched_setaffinity(Some(task), processors));
}

fn measure(
    context: &Context,
    contestants: &mut [Contestant],
    (test, threads, seed): (&str, u64, u64),
    rounds: usize,
    places: Places,
) -> Result<Cell, Failure> {
    let new = |one: &Contestant| Series {
        engine: one.engine,
        statements: Vec::new(),
        seconds: Vec::new(),
        cpu_seconds: Vec::new(),
    };
    let mut series: Vec<Series> = contestants.iter().map(new).collect();
    let starts = places.starts(rounds);
    for start in 0..starts {
        let mut clients = Vec::new();
        for one in contestants.iter_mut() {
            clients.push(one.begin(context, (test, threads, seed + 100 * start as u64), places)?);
        }
        for round in share(rounds, starts, start) {
            if places == Places::Paired {
                clients.iter().try_for_each(|clients| pair(clients, processor_of(round, contestants.len())))?;
            }
            for at in order(round, contestants.len()) {
                contestants[at].turn(&mut clients[at], &mut series[at])?;
            }
        }
    }
    Ok(Cell { test: test.into(), threads, starts, series })
}

/// The rounds of a start, of so many.
fn share(rounds: usize, starts: usize, start: usize) -> Range<usize> {
    rounds * start / starts..rounds * (start + 1) / starts
}

/// After so many rounds of `count` engines each order of them has been had.
fn period(count: usize) -> usize {
    if count.is_multiple_of(2) { count } else { 2 * count }
}

/// Where the first client is in a round, of `count` engines: on another processor than in the round before, and over twice [`period`] rounds with each
/// order on each of two processors once.
fn processor_of(round: usize, count: usize) -> usize {
    round + round / period(count)
}

/// Who comes when in a round, of `count`. In [`period`] rounds each comes at each place equally often, and directly after each other one equally
/// often: the design of E. J. Williams, "Experimental designs balanced for the estimation of residual
/// effects of treatments", Australian Journal of Scientific Research A 2 (1949).
fn order(round: usize, count: usize) -> Vec<usize> {
    let zigzag = (0..count).map(|turn| if turn % 2 == 1 { turn.div_ceil(2) } else { count - turn / 2 });
    let mut order: Vec<usize> = zigzag.map(|at| (at + round) % count).collect();
    if count % 2 == 1 && round / count % 2 == 1 {
        order.reverse();
    }
    order
}

impl Series {
    fn rates(&self) -> impl Iterator<Item = f64> {
        self.statements.iter().zip(&self.seconds).map(|(&statements, seconds)| statements as f64 / seconds)
    }

    fn total(&self) -> f64 {
        self.statements.iter().sum::<u64>() as f64
    }

    fn rate(&self) -> f64 {
        self.total() / self.seconds.iter().sum::<f64>()
    }

    /// Processor time of the server for a statement, in microseconds.
    fn cpu_us(&self) -> f64 {
        self.cpu_seconds.iter().sum::<f64>() * 1e6 / self.total()
    }

    /// What it did in these rounds; units are transactions of the test.
    fn work(&self, test: &str, rounds: Range<usize>) -> Work {
        let statements: u64 = self.statements[rounds.clone()].iter().sum();
        Work {
            units: statements as f64 / sysbench::statements(test) as f64,
            seconds: self.seconds[rounds.clone()].iter().sum(),
            server_cpu_seconds: self.cpu_seconds[rounds].iter().sum(),
            ..Work::default()
        }
    }
}

impl Cell {
    fn of(&self, engine: Engine) -> Option<&Series> {
        self.series.iter().find(|series| series.engine == engine)
    }

    fn rivals(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| Engine::RIVALS.contains(&series.engine))
    }

    /// FROND's rate by a rival's, with its standard error: from round to round, or from start to start where clients started several times.
    fn ratio(&self, rival: &Series) -> (f64, f64) {
        let own = self.of(Engine::Frond).into_iter().flat_map(Series::rates);
        let pairs: Vec<(f64, f64)> = own.zip(rival.rates()).collect();
        match self.starts {
            1 => ratio_of_totals(&pairs),
            starts => {
                let of_start = |start| ratio_of_totals(&pairs[share(pairs.len(), starts, start)]).0;
                mean_ratio(&(0..starts).map(of_start).collect::<Vec<_>>())
            }
        }
    }
}

fn header(engines: &[Engine]) -> String {
    let rivals = || engines.iter().filter(|engine| Engine::RIVALS.contains(engine));
    let mut words = vec!["test".to_string(), "threads".to_string()];
    words.extend(engines.iter().map(|engine| format!("{}, statements/s", engine.title())));
    words.extend(rivals().map(|rival| format!("FROND ÷ {}", rival.title())));
    words.extend(engines.iter().map(|engine| format!("{}, µs over the floor", engine.title())));
    let rule = ["---"; 2].into_iter().chain(std::iter::repeat_n("---:", words.len() - 2));
    format!("| {} |\n|{}|", words.join(" | "), rule.collect::<Vec<_>>().join("|"))
}

/// A row of the table. The floor is what the server takes with an engine that throws rows away.
fn line(cell: &Cell) -> String {
    let floor = cell.of(Engine::Blackhole).map_or(0.0, Series::cpu_us);
    let measured = || cell.series.iter().filter(|series| series.engine != Engine::Blackhole);
    let mut words = vec![cell.test.trim_start_matches("oltp_").to_string(), cell.threads.to_string()];
    words.extend(measured().map(|series| format!("{:.0}", series.rate())));
    words.extend(cell.rivals().map(|rival| {
        let (ratio, error) = cell.ratio(rival);
        format!("{ratio:.3} ± {error:.3}")
    }));
    words.extend(measured().map(|series| format!("{:.1}", series.cpu_us() - floor)));
    format!("| {} |", words.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_at_each_place_and_after_each_other_equally_often() {
        for count in 1..=7 {
            let rounds = period(count);
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
    fn all_rounds_are_compared_and_each_adds_to_the_error() {
        let series = |engine, statements: &[u64], cpu_us: f64| Series {
            engine,
            statements: statements.to_vec(),
            seconds: vec![0.5; statements.len()],
            cpu_seconds: statements.iter().map(|&count| cpu_us * 1e-6 * count as f64).collect(),
        };
        // The machine is three times as fast in the second round, which is no error: both are.
        let cell = Cell {
            test: "oltp_insert".into(),
            threads: 16,
            starts: 1,
            series: vec![
                series(Engine::Frond, &[110, 330, 121], 12.5),
                series(Engine::Innodb, &[100, 300, 100], 14.0),
                series(Engine::Blackhole, &[1, 1, 1], 2.0),
            ],
        };
        assert_eq!(line(&cell), "| insert | 16 | 374 | 333 | 1.122 ± 0.027 | 10.5 | 12.0 |");
        let columns =
            header(&[Engine::Frond, Engine::Innodb]).lines().map(|line| line.matches('|').count()).collect::<Vec<_>>();
        assert_eq!(columns, [8, 8]);
        assert_eq!(line(&cell).matches('|').count(), 8);
        let work = cell.series[0].work("oltp_write_only", share(3, 2, 1));
        assert_eq!((work.units, work.seconds), (451.0 / 6.0, 1.0));
        assert!((work.server_cpu_seconds - 451.0 * 12.5e-6).abs() < 1e-9, "{}", work.server_cpu_seconds);
        // Of two starts the second had the second and the third round.
        let twice = Cell { starts: 2, ..cell };
        let expected = mean_ratio(&[1.1, 451.0 / 400.0]);
        assert_eq!(twice.ratio(twice.rivals().next().expect("InnoDB")), expected);
    }
}
