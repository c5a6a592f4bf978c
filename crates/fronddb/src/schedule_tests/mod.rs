//! Tests of schedules: small concurrent histories, tried under many orders of their steps.
//!
//! Every use of a lock or atomic of [`crate::base::sync`] is a point at which `shuttle` may let another thread go on. Half of
//! the schedules choose at random at each point; the other half (probabilistic concurrency testing, Burckhardt et al.,
//! ASPLOS 2010) run by priorities that change a few times, which finds what takes one thread to be held up for long. When all
//! threads wait, the test fails: so a lost wake-up shows.
//!
//! All orders of memory are modelled as sequentially consistent here. What relies on weaker ones (the leaves of a
//! memtable, the log's ring, the fences of dead ranges) has a model in [`super::weak_memory_tests`].
//!
//! `SCHEDULES=5000 cargo test --release -p fronddb --features schedules --lib schedule_tests` tries more of them (default 150
//! of each kind); `SCHEDULE_SEED` draws others. A failure prints its schedule.

mod locks;
mod log;
mod memtable;
mod prepared;
mod snapshots;
mod store;
mod tree;

use shuttle::rand::Rng as _;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Changes of priority in a schedule of the second kind.
const CHANGES: usize = 4;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().expect("a number"))
}

/// Runs `body` under many schedules; every `share`-th of them for those that take long.
fn explore(share: u64, body: impl Fn() + Send + Sync + Clone + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    let count = number("SCHEDULES", 150).div_ceil(share) as usize;
    let seed = number("SCHEDULE_SEED", 1);
    Runner::new(RandomScheduler::new_from_seed(seed, count), config.clone()).run(body.clone());
    Runner::new(PctScheduler::new_from_seed(seed, CHANGES, count), config).run(body);
}

/// A number below `bound`, which is part of the schedule.
fn below(bound: usize) -> usize {
    shuttle::rand::thread_rng().gen_range(0..bound)
}
