//! Workloads for FrondDB, and the same workloads for its rivals.
//!
//! Rooms, in reading order: [`engine`] (what a workload may ask of a storage engine, and who answers: FROND, RocksDB
//! behind the cargo feature `rocksdb`, and a sorted map in memory for tests) · [`generate`] (seeded rows, keys and
//! distributions) · [`measure`] (latency, CPU, bytes and memory of one phase of a run) · [`workload`] (the runs
//! themselves) · [`report`] (tables, JSON, ratios) · [`suite`] (the comparisons that are recorded) · [`plot`] (rates over time, as SVG and in the terminal) ·
//! [`child`] (each engine in a process of its own) · [`cli`] (the commands, shared by the binaries `frond-bench` and `frond bench`).
#![deny(unsafe_code, missing_docs)]

pub mod child;
pub mod cli;
pub mod engine;
pub mod error;
pub mod generate;
pub mod measure;
pub mod plot;
pub mod report;
pub mod suite;
pub mod workload;

pub use error::{At, Error, ErrorKind, Result};
