//! What runs did, for statistics.

/// Counters of all runs of a database. Share it in an `Arc`.
#[derive(Debug, Default)]
pub struct RunCounters {}
