//! E7: many rows are inserted or updated in one transaction; how long does ROLLBACK take?

use std::time::Instant;

use clap::{Args, ValueEnum};

use super::cpu::Stretch;
use super::{PURCHASES, Target};
use frond_load::purchase::print_insert;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Change {
    Insert,
    Update,
}

#[derive(Debug, Args)]
pub(crate) struct Rollback {
    #[command(flatten)]
    target: Target,
    /// Rows that the transaction changes
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// What it does to them
    #[arg(long, value_enum, default_value = "insert")]
    change: Change,
    /// Rows per INSERT statement
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: u64,
    /// Stop before ROLLBACK, print "ready" and wait: for an experiment that kills the server now
    #[arg(long)]
    hold: bool,
}

impl Rollback {
    pub(crate) fn execute(&self) -> Result<(), String> {
        let mut connection = self.target.connect_to_purchases()?;
        let mut run = |statement: &[u8]| connection.run(statement).map_err(|error| error.to_string());
        let mut statement = Vec::new();
        let mut fill = |run: &mut dyn FnMut(&[u8]) -> Result<_, String>| {
            let mut left = self.rows;
            while left > 0 {
                let count = left.min(self.batch);
                print_insert(PURCHASES, self.target.seed, self.rows - left, count, &mut statement);
                run(&statement)?;
                left -= count;
            }
            Ok::<(), String>(())
        };
        if self.change == Change::Update {
            fill(&mut run)?;
        }
        let cpu = Stretch::begin(self.target.server_pid);
        run(b"BEGIN")?;
        let begun = Instant::now();
        match self.change {
            Change::Insert => fill(&mut run)?,
            Change::Update => {
                let update = format!(
                    "UPDATE purchases_index SET price = price + 1, customerid = customerid + 1 LIMIT {}",
                    self.rows
                );
                run(update.as_bytes()).map(drop)?;
            }
        }
        let changing = begun.elapsed().as_secs_f64();
        if self.hold {
            println!("{{\"kind\":\"ready\",\"change_s\":{changing:.3}}}");
            loop {
                std::thread::park();
            }
        }
        let begun = Instant::now();
        run(b"ROLLBACK")?;
        let rolling_back = begun.elapsed().as_secs_f64();
        println!(
            "{{\"kind\":\"summary\",\"experiment\":\"rollback\",\"engine\":\"{}\",\"rows\":{},\"change\":\"{}\",\"change_s\":{changing:.3},\
             \"rollback_s\":{rolling_back:.6}{}}}",
            self.target.engine,
            self.rows,
            format!("{:?}", self.change).to_lowercase(),
            cpu.json()
        );
        Ok(())
    }
}
