//! E8: a table as a queue. Half of the connections add at the tail, the others take from the head: look for the first rows in
//! order, delete them, commit. Engines that leave tombstones behind get slower at the head with every row taken.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use super::Target;
use super::meter::Meter;

#[derive(Debug, Args)]
pub(crate) struct Queue {
    #[command(flatten)]
    target: Target,
    /// Rows in the queue at the start
    #[arg(long, default_value_t = 10_000)]
    length: u64,
    /// Rows that a transaction adds or takes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
}

const TABLE: &str =
    "(id BIGINT AUTO_INCREMENT PRIMARY KEY, due INT NOT NULL, payload VARCHAR(200) NOT NULL, KEY by_due (due, id))";
/// The queue stays near its length: who adds waits while it is longer by so many rows.
const LEAD_MAX: i64 = 10_000;

impl Queue {
    /// Two connections. What the meter counts are the rows taken from the head.
    pub(crate) fn execute(&self) -> Result<(), String> {
        let mut connection = self.target.connect()?;
        let mut run = |statement: String| connection.run(statement).map_err(|error| error.to_string());
        run("DROP TABLE IF EXISTS queue".into())?;
        run(format!("CREATE TABLE queue {TABLE} ENGINE={} {}", self.target.engine, self.target.table_options))?;
        for _ in 0..self.length / self.batch {
            run(self.insertion())?;
        }
        let meter = Meter::new(self.target.server_pid);
        let lead = AtomicI64::new(0);
        let label = format!(
            "\"experiment\":\"queue\",\"engine\":\"{}\",\"batch\":{},\"length\":{}",
            self.target.engine, self.batch, self.length
        );
        meter.run(&label, 2, |number| if number == 0 { self.add(&meter, &lead) } else { self.take(&meter, &lead) })
    }

    fn insertion(&self) -> String {
        let row = format!("(7,'{}')", "p".repeat(100));
        let rows = vec![row.as_str(); self.batch as usize].join(",");
        format!("INSERT INTO queue (due, payload) VALUES {rows}")
    }

    fn lasts(&self, meter: &Meter) -> bool {
        meter.elapsed() < Duration::from_secs_f64(self.seconds)
    }

    fn add(&self, meter: &Meter, lead: &AtomicI64) -> Result<(), String> {
        let mut connection = self.target.connect()?;
        let insertion = self.insertion();
        while self.lasts(meter) {
            if lead.load(Ordering::Relaxed) > LEAD_MAX {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            connection.run(&insertion).map_err(|error| error.to_string())?;
            lead.fetch_add(self.batch as i64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn take(&self, meter: &Meter, lead: &AtomicI64) -> Result<(), String> {
        let mut connection = self.target.connect()?;
        let head = format!("SELECT id FROM queue WHERE due = 7 ORDER BY due, id LIMIT {} FOR UPDATE", self.batch);
        while self.lasts(meter) {
            let begun = Instant::now();
            let mut run = |statement: &str| connection.column(statement).map_err(|error| error.to_string());
            run("BEGIN")?;
            let ids = run(&head)?;
            if !ids.is_empty() {
                run(&format!("DELETE FROM queue WHERE id IN ({})", ids.join(",")))?;
            }
            run("COMMIT")?;
            meter.record(ids.len() as u64, begun.elapsed());
            lead.fetch_sub(ids.len() as i64, Ordering::Relaxed);
        }
        Ok(())
    }
}
