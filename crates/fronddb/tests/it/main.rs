//! The one integration-test binary: whole databases, mostly on the simulated disk.
#![expect(clippy::unwrap_used, reason = "tests")]

mod basics;
mod model;
mod support;
mod threads;
mod tidy;
