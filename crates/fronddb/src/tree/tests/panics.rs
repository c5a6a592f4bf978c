//! What a step leaves that ends by a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::base::{ErrorKind, Result};

/// A seal or a publication that waited for one that panicked does not go on from what that left: the database may not know of the panic yet.
#[test]
fn nobody_goes_on_from_a_step_that_panicked() {
    let steps: [fn(&Harness) -> Result<()>; 2] =
        [|harness| harness.tree.seal_step(&harness.retention()).map(drop), |harness| harness.try_publish().map(drop)];
    for (number, step) in steps.into_iter().enumerate() {
        let mut harness = Harness::new();
        let plan = FaultPlan::new();
        harness.reopen_on(&|storage| Arc::new(FaultStorage::new(storage, plan.clone())));
        harness.write(&key(1), Kind::Put, b"value");
        harness.switch();
        plan.add(FaultRule::once(CallClass::Write, 1, Fault::Panic));
        assert!(catch_unwind(AssertUnwindSafe(|| step(&harness))).is_err(), "step {number} writes");
        let again = step(&harness).map_err(|error| error.kind());
        assert_eq!(again, Err(ErrorKind::Internal), "step {number}");
    }
}
