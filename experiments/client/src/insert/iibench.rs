//! E1, E2, E3: rows into `purchases_index`, a fixed number per transaction.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use super::meter::{Meter, Pace};
use super::{PURCHASES, Target};
use frond_load::purchase::print_insert;
use frond_load::wire::Answer;

/// Rows per statement while the table is filled before the measurement.
const PREFILL_ROWS: u64 = 10_000;

#[derive(Debug, Args)]
pub(crate) struct Iibench {
    #[command(flatten)]
    target: Target,
    /// Rows of each transaction
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Connections
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Stop after so many seconds
    #[arg(long, required_unless_present = "rows")]
    seconds: Option<f64>,
    /// Stop after so many rows
    #[arg(long)]
    rows: Option<u64>,
    /// Rows per second of all connections together; 0 is as fast as it goes
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// Rows that the table gets, if it has fewer, before the measurement begins
    #[arg(long, default_value_t = 0)]
    prefill: u64,
    /// A statement for each connection to begin with, as SET SESSION …
    #[arg(long)]
    init: Option<String>,
    /// File that gets the first id and the number of rows of each acknowledged transaction, to verify after a crash
    #[arg(long)]
    acknowledged: Option<PathBuf>,
}

impl Iibench {
    pub(crate) fn execute(&self) -> Result<(), String> {
        let first = self.prepare()?;
        let file = match &self.acknowledged {
            Some(path) => Some(Mutex::new(
                std::fs::File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))?,
            )),
            None => None,
        };
        let meter = Meter::new(self.target.server_pid);
        let sent = AtomicU64::new(0);
        let label = format!(
            "\"experiment\":\"iibench\",\"engine\":\"{}\",\"batch\":{},\"threads\":{},\"rate\":{},\"prefill\":{}",
            self.target.engine, self.batch, self.threads, self.rate, self.prefill
        );
        meter.run(&label, self.threads, |number| self.insert(number, first, &meter, &sent, file.as_ref()))
    }

    /// Fills the table up to what was asked for, and gives the number of rows in it.
    fn prepare(&self) -> Result<u64, String> {
        let mut connection = self.target.connect_to_purchases()?;
        let mut run = |statement: &[u8]| connection.run(statement).map_err(|error| error.to_string());
        let answer = run(b"SELECT COALESCE(MAX(transactionid), 0) FROM purchases_index")?;
        let there = match answer {
            Answer::Rows(rows) => {
                rows.concat().first().map(frond_load::wire::text).and_then(|number| number.parse().ok()).unwrap_or(0)
            }
            Answer::Done { .. } => 0,
        };
        let mut left = self.prefill.saturating_sub(there);
        let mut statement = Vec::new();
        while left > 0 {
            let count = left.min(PREFILL_ROWS);
            print_insert(PURCHASES, self.target.seed, there.max(self.prefill) - left, count, &mut statement);
            run(&statement)?;
            left -= count;
        }
        Ok(there.max(self.prefill))
    }

    fn insert(
        &self,
        number: u64,
        first: u64,
        meter: &Meter,
        sent: &AtomicU64,
        file: Option<&Mutex<std::fs::File>>,
    ) -> Result<(), String> {
        let failed = |error: frond_load::wire::Failure| format!("connection {number}: {error}");
        let mut connection = self.target.connect()?;
        if let Some(init) = &self.init {
            connection.run(init).map_err(failed)?;
        }
        let mut pace = Pace::new(self.rate / self.threads as f64);
        let mut statement = Vec::with_capacity(self.batch as usize * 96);
        let end = self.seconds.map(Duration::from_secs_f64);
        while end.is_none_or(|end| meter.elapsed() < end) {
            let so_far = sent.fetch_add(self.batch, Ordering::Relaxed);
            if self.rows.is_some_and(|rows| so_far >= rows) {
                break;
            }
            print_insert(PURCHASES, self.target.seed, first + so_far, self.batch, &mut statement);
            pace.wait(self.batch);
            let begun = Instant::now();
            let answer = connection.run(&statement).map_err(failed)?;
            meter.record(self.batch, begun.elapsed());
            if let (Some(file), Answer::Done { last_id, affected, .. }) = (file, answer) {
                let mut file = file.lock().map_err(|_| "a thread panicked")?;
                writeln!(file, "{last_id} {affected}")
                    .map_err(|error| format!("cannot write acknowledgements: {error}"))?;
            }
        }
        Ok(())
    }
}
