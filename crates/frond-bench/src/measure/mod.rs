//! Measuring one phase of a run.
//!
//! Rooms: [`resources`] (what the operating system says of this process) · [`histogram`] (latencies) · [`curve`]
//! (progress over time) · [`meter`] (all of them around a phase) · [`files`] (sizes on disk, dropping cached pages).

mod curve;
mod files;
mod histogram;
mod meter;
mod resources;

pub use curve::{Curve, Point};
pub use files::{disk_bytes, drop_cached_pages};
pub use histogram::{Latencies, LatencySummary};
pub use meter::{Meter, Phase, Worker};
pub use resources::{Resources, ThreadReads, peak_memory_of, reset_peak_memory, whole_peak_memory};
