//! Seeded rows, keys and distributions. Everything is a pure function of a seed and a number, so that a row can be
//! recomputed when it is verified, and two engines see the same bytes.

mod purchase;
mod random;
mod value;
mod zipf;

pub use purchase::{INDEXES, Purchase, VALUE_BYTES};
pub use random::{Random, mix};
pub use value::Values;
pub use zipf::{Latest, ScrambledZipf, Zipf};
