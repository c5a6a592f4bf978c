//! Integer columns (to come).
