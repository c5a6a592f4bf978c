//! The store: syncs of the data file beside each other.

use std::path::Path;
use std::sync::Arc;

use shuttle::thread;

use super::{below, explore};
use crate::base::ErrorKind;
use crate::base::page_buf::PageBuf;
use crate::format::SuperblockBody;
use crate::io::{CallClass, CrashMode, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, OpenMode, Storage};
use crate::store::{DATA_FILE, Store, StoreOptions, Urgency};

const DIRECTORY: &str = "/db";

/// Each thread writes and syncs, and one of the syncs fails. The system tells a lost write to one sync alone, whoever made
/// it: so nobody may sync after that, and be told of success. Who asks while one is made may share the next with others.
fn failing_sync() {
    let (memory, plan) = (MemoryStorage::new(), FaultPlan::new());
    let storage: Arc<dyn Storage> = Arc::new(FaultStorage::new(Arc::new(memory.clone()), plan.clone()));
    storage.create_dir_all(Path::new(DIRECTORY)).expect("directory");
    let options = StoreOptions { reserve_bytes: 0, ..StoreOptions::default() };
    let store = Store::create(&storage, Path::new(DIRECTORY), &options, [7; 16], SuperblockBody::default());
    let store = store.expect("create");
    let fails = 1 + below(2) as u64;
    plan.add(FaultRule::once(CallClass::Sync, fails, Fault::Error));
    let before = plan.calls(CallClass::Sync);
    let threads: Vec<_> = (1..4u8)
        .map(|byte| {
            let store = store.clone();
            thread::spawn(move || {
                let extent = store.allocate(1, Urgency::Ordinary)?;
                store.write(extent, 0, &PageBuf::from_slice(&[byte; 8]))?;
                store.sync().map(|()| (extent, byte))
            })
        })
        .collect();
    let told: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    let made = plan.calls(CallClass::Sync) - before;
    assert!((1..=fails).contains(&made), "made={made} fails={fails} {told:?}");
    assert_eq!(store.poisoned().is_some(), made == fails);
    assert_eq!(told.iter().all(Result::is_ok), made < fails, "{told:?}");
    let kinds: Vec<_> = told.iter().filter_map(|told| told.as_ref().err()).map(|error| error.kind()).collect();
    assert!(kinds.iter().all(|kind| matches!(kind, ErrorKind::Io | ErrorKind::Poisoned)), "{kinds:?}");
    let left = memory.crash_with(CrashMode::Lost, 0);
    let file = left.open(&Path::new(DIRECTORY).join(DATA_FILE), OpenMode::default()).expect("there");
    for (extent, byte) in told.into_iter().flatten() {
        let mut found = PageBuf::zeroed(4096);
        file.read_at(found.padded_mut(), extent.offset()).expect("readable");
        assert_eq!(found[..8], [byte; 8], "who was told of success has lost what was written");
    }
}

#[test]
fn no_sync_of_the_data_file_succeeds_after_one_that_failed() {
    explore(1, failing_sync);
}
