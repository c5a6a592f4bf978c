//! Sorting in memory and through spills, and damage of these.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::io::{DiskStorage, MemoryStorage};

thread_local! {
    /// Names of temporary files that this thread will draw, the last one first.
    pub(super) static NEXT_NAMES: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn sorter(storage: &MemoryStorage, budget: &MemoryBudget) -> Sorter {
    Sorter::new(Arc::new(storage.clone()), Path::new("/tmp"), budget, 0, Arc::default())
}

/// Key, number, value.
type Drained = (Vec<u8>, u64, Vec<u8>);

fn drain(mut merged: Merged) -> Result<Vec<Drained>> {
    let mut rows = Vec::new();
    while let Some(Row { key, value, number }) = merged.row() {
        rows.push((key.to_vec(), number, value.to_vec()));
        merged.advance()?;
    }
    Ok(rows)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_goes_in_comes_out_in_order(
        rows in prop::collection::vec((prop::collection::vec(0u8..5, 0..12), 0usize..400), 0..3000),
    ) {
        let (storage, budget) = (MemoryStorage::new(), MemoryBudget::new(1 << 30));
        let mut sorter = sorter(&storage, &budget);
        let mut model: Vec<Drained> = Vec::new();
        for (number, (key, length)) in rows.into_iter().enumerate() {
            let value = vec![key.len() as u8; length];
            sorter.add(&key, &value)?;
            model.push((key, number as u64, value));
        }
        prop_assert!(budget.used(Purpose::Work) <= sorter.memory_bytes && sorter.data.capacity() <= sorter.memory_bytes);
        let found = drain(sorter.finish()?)?;
        model.sort();
        prop_assert_eq!(found, model, "in the order of keys, and of those in the order in which they came");
        prop_assert_eq!((budget.used(Purpose::Work), storage.files().len()), (0, 0));
    }
}

#[test]
fn memory_is_taken_as_rows_come() -> Result<()> {
    const MEMORY: usize = 1 << 20;
    let (storage, budget) = (MemoryStorage::new(), MemoryBudget::new(1 << 30));
    let mut sorter = Sorter::new(Arc::new(storage), Path::new("/tmp"), &budget, MEMORY, Arc::default());
    let (mut before, mut added) = (0, 0);
    for number in 0..40_000u32 {
        sorter.add(&number.wrapping_mul(2_654_435_761).to_be_bytes(), &[0; 40])?;
        added += ROW_HEADER_BYTES + 44;
        let held = budget.used(Purpose::Work);
        assert!(held >= before && held <= (4 * added).clamp(MEMORY_BYTES_MIN, MEMORY), "held={held} added={added}");
        assert!(sorter.data.capacity() + sorter.entries.capacity() * size_of::<Entry>() <= held);
        before = held;
    }
    assert!(before == MEMORY && sorter.spilled_bytes() > 0);
    assert!(drain(sorter.finish()?)?.is_sorted_by(|a, b| a.0 < b.0));
    Ok(())
}

#[test]
fn a_merge_of_spills_ends_when_it_is_to_stop() -> Result<()> {
    let (storage, budget) = (MemoryStorage::new(), MemoryBudget::new(1 << 30));
    let stop = Arc::new(AtomicBool::new(false));
    let mut sorter = Sorter::new(Arc::new(storage), Path::new("/tmp"), &budget, 0, stop.clone());
    let mut number = 0u32;
    let mut add = |sorter: &mut Sorter| {
        number += 1;
        sorter.add(&number.wrapping_mul(2_654_435_761).to_be_bytes(), &[0; 100])
    };
    while sorter.levels.first().is_none_or(|spills| spills.len() < FAN_IN - 1) {
        add(&mut sorter)?;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut added = 0;
    let failed = loop {
        added += 1;
        match add(&mut sorter) {
            Ok(()) => assert!(added < 10_000, "the next spill is merged with those before"),
            Err(error) => break error,
        }
    };
    assert_eq!(failed.kind(), ErrorKind::Cancelled);
    drop(sorter);
    assert_eq!(budget.used(Purpose::Work), 0);
    Ok(())
}

#[test]
fn many_spills_are_merged_level_by_level() -> Result<()> {
    let (storage, budget) = (MemoryStorage::new(), MemoryBudget::new(1 << 30));
    let mut sorter = sorter(&storage, &budget);
    let count = 400_000u32;
    for number in 0..count {
        sorter.add(&number.wrapping_mul(2_654_435_761).to_be_bytes(), b"12345678")?;
    }
    assert!(sorter.levels.len() > 1 && sorter.levels.iter().all(|level| level.len() < FAN_IN));
    let spills = || sorter.levels.iter().flatten();
    let files: HashSet<_> = spills().map(|spill| Arc::as_ptr(&spill.file).cast::<()>()).collect();
    assert!(
        spills().count() > 10 && files.len() <= sorter.levels.len(),
        "a descriptor for each level, not for each spill"
    );
    let rows = drain(sorter.finish()?)?;
    assert!(rows.len() == count as usize && rows.is_sorted_by(|a, b| a.0 < b.0));
    Ok(())
}

#[test]
fn long_rows_are_merged_one_at_a_time() -> Result<()> {
    let (storage, budget) = (MemoryStorage::new(), MemoryBudget::new(1 << 30));
    let mut sorter = sorter(&storage, &budget);
    let value = |number: u32| vec![number as u8; if number.is_multiple_of(3) { 300 << 10 } else { 2 << 10 }];
    for number in 0..400u32 {
        let number = number * 7 % 400;
        sorter.add(&[&number.to_be_bytes()[..], &[7; 20_000]].concat(), &value(number))?;
    }
    assert!(sorter.data.capacity() <= sorter.memory_bytes || sorter.data.len() > sorter.memory_bytes);
    let mut merged = sorter.finish()?;
    for number in 0..400u32 {
        let row = merged.row().expect("is there");
        assert!(row.key.starts_with(&number.to_be_bytes()) && row.value == value(number));
        let held = |source: &Source| match source {
            Source::File(reader) => reader.block.capacity(),
            Source::Memory { .. } => 0,
        };
        let held: usize = merged.sources.iter().map(held).sum();
        assert!(held < (400 << 10) + merged.sources.len() * 2 * HEAD_BYTES, "{held}");
        merged.advance()?;
    }
    assert!(merged.row().is_none());
    Ok(())
}

#[test]
fn a_damaged_spill_is_noticed() -> Result<()> {
    let (storage, budget) = (MemoryStorage::new(), MemoryBudget::new(1 << 30));
    let mut sorter = sorter(&storage, &budget);
    for number in 0..20_000u32 {
        sorter.add(&number.to_be_bytes(), b"12345678")?;
    }
    let spill = &sorter.levels[0][0];
    let mut byte = [0];
    spill.file.read_at(&mut byte, 500)?;
    spill.file.write_at(&[!byte[0]], 500)?;
    let failed = sorter.finish().and_then(drain).map(|_| ()).map_err(|error| error.kind());
    assert_eq!(failed, Err(ErrorKind::Corruption));
    Ok(())
}

#[test]
fn damage_anywhere_in_the_head_of_a_long_row_is_noticed() -> Result<()> {
    for (at, bit) in (0..BLOCK_HEADER_BYTES + ROW_HEADER_BYTES + 4).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let (storage, budget) = (MemoryStorage::new(), MemoryBudget::new(1 << 30));
        let mut sorter = sorter(&storage, &budget);
        for number in 0..8u32 {
            sorter.add(&number.to_be_bytes(), &vec![7; 300_000])?;
        }
        let spill = &sorter.levels[0][0];
        let mut byte = [0];
        spill.file.read_at(&mut byte, at as u64)?;
        spill.file.write_at(&[byte[0] ^ (1 << bit)], at as u64)?;
        let failed = sorter.finish().and_then(drain).map(|_| ()).map_err(|error| error.kind());
        assert_eq!(failed, Err(ErrorKind::Corruption), "at={at} bit={bit}");
    }
    Ok(())
}

/// Somebody has put files and links where temporary files are to go.
#[test]
fn what_lies_in_the_directory_already_is_never_opened() {
    let directory = std::env::temp_dir().join(format!("fronddb-sorter-{}", std::process::id()));
    let (memory, disk) = (MemoryStorage::new(), DiskStorage::new());
    for storage in [&memory as &dyn Storage, &disk] {
        storage.create_dir_all(&directory).expect("directory");
        let there = |name: &str| directory.join(name);
        let mode = OpenMode { create: true, ..OpenMode::default() };
        storage.open(&there("a"), mode).expect("create").write_at(b"theirs", 0).expect("write");
        NEXT_NAMES.set(vec!["b".to_owned(), "a".to_owned()]);
        let file = create_file(storage, &directory).expect("another name");
        file.write_at(b"rows", 0).expect("write");
        assert_eq!(NEXT_NAMES.take(), [""; 0], "the first name was taken");
        assert_eq!(crate::io::read_file(storage, &there("a")).expect("read"), b"theirs");
        assert_eq!(storage.list(&directory).expect("list"), ["a"]);
        NEXT_NAMES.set(vec!["a".to_owned(); NAMES_MAX]);
        assert_eq!(create_file(storage, &directory).expect_err("no other name").kind(), ErrorKind::Io);
    }
    std::os::unix::fs::symlink(directory.join("elsewhere"), directory.join("link")).expect("link");
    NEXT_NAMES.set(vec!["b".to_owned(), "link".to_owned()]);
    create_file(&disk, &directory).expect("another name");
    assert!(!directory.join("elsewhere").exists());
    std::fs::remove_dir_all(&directory).expect("remove");
}
