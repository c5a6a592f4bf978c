//! Counters (to come).
