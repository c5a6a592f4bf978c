//! The one integration-test binary: whole databases, mostly on the simulated disk.
#![expect(clippy::unwrap_used, reason = "tests")]

mod bad_days;
mod bad_sectors;
mod basics;
mod bulk;
mod bulk_speed;
mod catalog;
mod checkpoints;
mod close;
mod codecs;
mod compact;
mod counts;
mod covered;
mod damage;
mod duplicates;
mod durability;
mod formats;
mod full_disk;
mod fuzz_seeds;
mod grafts;
mod io_errors;
mod leftovers;
mod limits;
mod log_files;
mod model;
mod observers;
mod reading;
mod scripts;
mod start;
mod statements;
mod statistics;
mod support;
mod threads;
mod tidy;
mod transactions;
mod warm;
