//! The store: syncs of the data file beside each other.

use std::path::Path;
use std::sync::Arc;

use shuttle::thread;

use super::{below, explore};
use crate::base::ErrorKind;
use crate::base::page_buf::PageBuf;
use crate::format::SuperblockBody;
use crate::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};
use crate::store::{Store, StoreOptions, Urgency};

const DIRECTORY: &str = "/db";

/// Each thread writes and syncs, and one of the syncs fails. The system tells a lost write to one sync alone, whoever made
/// it: so nobody may sync after that, and be told of success.
fn failing_sync() {
    let plan = FaultPlan::new();
    let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(Arc::new(MemoryStorage::new()), plan.clone()));
    storage.create_dir_all(Path::new(DIRECTORY)).expect("directory");
    let options = StoreOptions { reserve_bytes: 0, ..StoreOptions::default() };
    let store = Store::create(&storage, Path::new(DIRECTORY), &options, [7; 16], SuperblockBody::default());
    let store = store.expect("create");
    let fails = 1 + below(2) as u64;
    plan.add(FaultRule::once(CallClass::Sync, fails, Fault::Error));
    let before = plan.calls(CallClass::Sync);
    let threads: Vec<_> = (0..3u8)
        .map(|byte| {
            let store = store.clone();
            thread::spawn(move || {
                let extent = store.allocate(1, Urgency::Ordinary);
                let written = extent.and_then(|extent| store.write(extent, 0, &PageBuf::from_slice(&[byte; 8])));
                written.and_then(|()| store.sync())
            })
        })
        .collect();
    let told: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    let successes = told.iter().filter(|told| told.is_ok()).count() as u64;
    assert_eq!((successes, plan.calls(CallClass::Sync) - before), (fails - 1, fails), "{told:?}");
    let kinds: Vec<_> = told.iter().filter_map(|told| told.as_ref().err()).map(|error| error.kind()).collect();
    assert!(kinds.iter().all(|kind| matches!(kind, ErrorKind::Io | ErrorKind::Poisoned)), "{kinds:?}");
    assert!(store.poisoned().is_some());
}

#[test]
fn no_sync_of_the_data_file_succeeds_after_one_that_failed() {
    explore(1, failing_sync);
}
