//! Clients that insert iiBench's rows: each on its own connection, one statement per transaction, at full speed or paced.
//!
//! They end when the time or the rows are used up, when told to, or when the server is gone, which is no failure here: a
//! killed server is part of an experiment. What was acknowledged until then is exact.
//!
//! With one client row numbers are consecutive, so that [`crate::verify`] can tell what the table must hold; each further
//! client draws from a seed of its own.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use crate::purchase::print_insert;
use crate::wire::{Connection, Failure};

/// Longest statement that the histogram tells apart.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// What to insert, and how fast.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    pub socket: &'a Path,
    pub database: &'a str,
    pub table: &'a str,
    pub seed: u64,
    /// Number of the first row; the rows before it are in the table.
    pub first: u64,
    pub rows_per_transaction: u64,
    pub clients: u64,
    /// Rows per second over all clients; `None` is full speed.
    pub rate: Option<u64>,
    /// Rows over all clients.
    pub rows_max: Option<u64>,
    pub time_max: Option<Duration>,
}

/// What the clients saw.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Rows of acknowledged transactions.
    pub rows: u64,
    pub elapsed: Duration,
    /// Acknowledged rows by second.
    pub rows_by_second: Vec<u64>,
    /// Microseconds of each transaction.
    pub latency_us: Histogram<u64>,
    /// CPU that the clients took.
    pub client_cpu: Duration,
    /// Why the clients ended before their time: a lost connection, a refused statement.
    pub ended_by: Option<String>,
    /// Whether `ended_by` is the server's refusal.
    pub refused: bool,
}

impl Plan<'_> {
    /// Runs the clients to their end. `stop` ends them early; `acknowledged` shows the rows so far.
    pub fn run(&self, stop: &AtomicBool, acknowledged: &AtomicU64) -> Outcome {
        let begin = Instant::now();
        let clients: Vec<Client> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..self.clients)
                .map(|client| scope.spawn(move || self.client(client, begin, stop, acknowledged)))
                .collect();
            handles.into_iter().map(|handle| handle.join().expect("a client does not panic")).collect()
        });
        let mut outcome = Outcome {
            rows: 0,
            elapsed: begin.elapsed(),
            rows_by_second: Vec::new(),
            latency_us: histogram(),
            client_cpu: Duration::ZERO,
            ended_by: None,
            refused: false,
        };
        for client in clients {
            outcome.rows += client.rows;
            outcome.client_cpu += client.cpu;
            outcome.latency_us += &client.latency_us;
            if client.rows_by_second.len() > outcome.rows_by_second.len() {
                outcome.rows_by_second.resize(client.rows_by_second.len(), 0);
            }
            for (all, own) in outcome.rows_by_second.iter_mut().zip(client.rows_by_second) {
                *all += own;
            }
            if let Some(failure) = client.ended_by {
                outcome.refused |= !failure.is_lost();
                outcome.ended_by.get_or_insert(failure.to_string());
            }
        }
        outcome
    }

    fn client(&self, number: u64, begin: Instant, stop: &AtomicBool, acknowledged: &AtomicU64) -> Client {
        let mut client = Client {
            rows: 0,
            rows_by_second: Vec::new(),
            latency_us: histogram(),
            cpu: Duration::ZERO,
            ended_by: None,
        };
        if let Err(failure) = self.insert(number, begin, stop, acknowledged, &mut client) {
            client.ended_by = Some(failure);
        }
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        client.cpu = Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32);
        client
    }

    fn insert(
        &self,
        number: u64,
        begin: Instant,
        stop: &AtomicBool,
        acknowledged: &AtomicU64,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let mut connection = Connection::open(self.socket, self.database)?;
        let seed = client_seed(self.seed, number);
        let rows_max = self.rows_max.map(|rows| rows / self.clients + u64::from(number < rows % self.clients));
        let batch = self.rows_per_transaction;
        let mut statement = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let rows = rows_max.map_or(batch, |max| batch.min(max - client.rows));
            if rows == 0 || self.time_max.is_some_and(|time| begin.elapsed() >= time) {
                break;
            }
            print_insert(self.table, seed, self.first + client.rows, rows, &mut statement);
            if let Some(rate) = self.rate {
                let due = Duration::from_secs_f64(client.rows as f64 * self.clients as f64 / rate as f64);
                wait_until(begin + due, stop);
            }
            let sent = Instant::now();
            connection.run(&statement)?;
            let answered = Instant::now();
            client.latency_us.saturating_record((answered - sent).as_micros() as u64);
            client.rows += rows;
            acknowledged.fetch_add(rows, Ordering::Relaxed);
            let second = (answered - begin).as_secs() as usize;
            if client.rows_by_second.len() <= second {
                client.rows_by_second.resize(second + 1, 0);
            }
            client.rows_by_second[second] += rows;
        }
        Ok(())
    }
}

struct Client {
    rows: u64,
    rows_by_second: Vec<u64>,
    latency_us: Histogram<u64>,
    cpu: Duration,
    ended_by: Option<Failure>,
}

/// The first client's rows are those of the plan's seed.
fn client_seed(seed: u64, client: u64) -> u64 {
    seed ^ client.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("valid bounds")
}

/// Sleeps in steps short enough to be told to stop.
fn wait_until(due: Instant, stop: &AtomicBool) {
    while let Some(left) = due.checked_duration_since(Instant::now()) {
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}
