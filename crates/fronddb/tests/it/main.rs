//! The one integration-test binary: whole databases, mostly on the simulated disk.
#![expect(clippy::unwrap_used, reason = "tests")]

mod basics;
mod support;
mod tidy;
