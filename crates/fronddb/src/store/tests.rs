//! The store under crashes, faults and a model.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;
mod failures;
mod harness;
mod model;
mod pieces;
mod units;
