//! Aligned memory (to come).
