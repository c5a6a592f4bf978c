//! Real files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::io::{read_file, replace_file};

/// A directory that goes away with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("fronddb-io-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CREATE: OpenMode = OpenMode { create: true, exclusive: false, truncate: false, direct: false, read_only: false };

#[test]
fn an_exclusive_file_is_new_and_the_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, storage) = (Dir::new("exclusive"), DiskStorage::new());
    storage.create_dir_all(&dir.0).unwrap();
    let mode = OpenMode { exclusive: true, ..CREATE };
    storage.open(&dir.0.join("f"), mode).unwrap();
    let permissions = std::fs::metadata(dir.0.join("f")).unwrap().permissions();
    assert_eq!(permissions.mode() & 0o777, 0o600);
    let error = storage.open(&dir.0.join("f"), mode).unwrap_err();
    assert_eq!(error.system().map(std::io::Error::kind), Some(std::io::ErrorKind::AlreadyExists));
}

/// A name is made durable by the directory that is held, wherever that is by then: nothing is opened for it.
#[test]
fn a_directory_that_is_held_open_is_synced_without_its_path() {
    let (dir, storage) = (Dir::new("held"), DiskStorage::new());
    let (before, after) = (dir.0.join("before"), dir.0.join("after"));
    assert!(storage.open_dir(&before).is_err());
    storage.create_dir_all(&before).unwrap();
    let held = storage.open_dir(&before).unwrap();
    std::fs::rename(&before, &after).unwrap();
    held.sync().unwrap();
    assert!(storage.sync_dir(&before).is_err());
}

#[test]
fn a_durable_write_writes_past_the_page_cache_and_into_it() {
    let (dir, storage) = (Dir::new("durable"), DiskStorage::new());
    storage.create_dir_all(&dir.0).unwrap();
    for direct in [false, true] {
        let path = dir.0.join(if direct { "direct" } else { "cached" });
        let file = storage.open(&path, OpenMode { direct, ..CREATE }).unwrap();
        let page = |byte: u8| PageBuf::from_slice(&[byte; 4096]);
        file.write_durable_at(&page(1), 0).unwrap();
        file.write_durable_at(&page(2), 8192).unwrap();
        file.write_durable_at(&page(3), 0).unwrap();
        file.write_durable_at(&[], 0).unwrap();
        let expected = [vec![3; 4096], vec![0; 4096], vec![2; 4096]].concat();
        assert!(read_file(&storage, &path).unwrap() == expected, "direct={direct}");
        let reading = storage.open(&path, OpenMode { read_only: true, ..OpenMode::default() }).unwrap();
        let error = reading.write_durable_at(&page(4), 4096).unwrap_err();
        assert!(error.message().contains("durable write failed") && error.message().contains("offset=4096"), "{error}");
        assert!(read_file(&storage, &path).unwrap() == expected, "direct={direct}");
    }
}

#[test]
fn files_are_created_renamed_listed_and_removed() {
    let (dir, storage) = (Dir::new("names"), DiskStorage::new());
    let deep = dir.0.join("a/b");
    storage.create_dir_all(&deep).unwrap();
    storage.create_dir_all(&deep).unwrap();
    for name in ["2", "1"] {
        storage.open(&deep.join(name), CREATE).unwrap().write_at(name.as_bytes(), 0).unwrap();
    }
    storage.create_dir_all(&deep.join("sub")).unwrap();
    assert_eq!(storage.list(&deep).unwrap(), ["1", "2"]);
    storage.rename(&deep.join("2"), &deep.join("1")).unwrap();
    storage.sync_dir(&deep).unwrap();
    assert_eq!(read_file(&storage, &deep.join("1")).unwrap(), b"2");
    assert!(!storage.exists(&deep.join("2")).unwrap());
    storage.remove(&deep.join("1")).unwrap();
    assert_eq!(storage.list(&deep).unwrap(), [""; 0]);
    assert!(storage.free_bytes(&deep).unwrap() > 0);
    let missing = storage.open(&deep.join("no"), OpenMode::default()).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Io);
    assert!(missing.message().contains("path="), "{missing}");
    let over_file = storage.open(&deep.join("file"), CREATE).map(drop);
    assert!(over_file.is_ok() && storage.create_dir_all(&deep.join("file")).is_err());
}

#[test]
fn directories_are_made_by_any_name_but_none() {
    let (dir, storage) = (Dir::new("empty"), DiskStorage::new());
    let refused = storage.create_dir_all(Path::new("")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    for name in [".", "./", "/", "..", "src"] {
        storage.create_dir_all(Path::new(name)).unwrap();
    }
    storage.create_dir_all(&dir.0.join("a/./b//c/")).unwrap();
    assert!(dir.0.join("a/b/c").is_dir());
}

#[test]
fn reads_past_the_end_are_errors_in_both_modes() {
    let (dir, storage) = (Dir::new("end"), DiskStorage::new());
    storage.create_dir_all(&dir.0).unwrap();
    for direct in [false, true] {
        let file = storage.open(&dir.0.join("f"), OpenMode { direct, ..CREATE }).unwrap();
        file.set_len(0).unwrap();
        file.write_at(&PageBuf::from_slice(&[7; 8192]), 0).unwrap();
        let mut buf = PageBuf::zeroed(8192);
        file.read_at(&mut buf, 0).unwrap();
        assert!(buf.iter().all(|byte| *byte == 7));
        assert_eq!(file.read_at(&mut buf, 4096).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(file.read_at(&mut buf, 1 << 30).unwrap_err().kind(), ErrorKind::Io);
        file.set_len(5000).unwrap();
        let error = file.read_at(&mut buf, 0).unwrap_err();
        assert!(error.to_string().contains("path="), "{error}");
        assert_eq!((file.len().unwrap(), file.is_empty().unwrap()), (5000, false));
        file.sync_data().unwrap();
    }
}

#[test]
fn a_file_says_that_direct_access_was_refused() {
    // A device that has no such access, so that the test does not depend on a file system.
    let null =
        |direct| DiskStorage::new().open("/dev/null".as_ref(), OpenMode { direct, ..OpenMode::default() }).unwrap();
    assert!(null(true).refused_direct() && !null(false).refused_direct());
}

#[test]
fn allocated_space_reads_as_zeros_and_holes_too() {
    let (dir, storage) = (Dir::new("holes"), DiskStorage::new());
    storage.create_dir_all(&dir.0).unwrap();
    let file = storage.open(&dir.0.join("f"), OpenMode { direct: true, ..CREATE }).unwrap();
    file.allocate(0, 1 << 20).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
    file.allocate(0, 0).unwrap();
    file.write_at(&PageBuf::from_slice(&[1; 16384]), 0).unwrap();
    file.punch(4096, 8192).unwrap();
    file.punch((1 << 20) - 4096, 1 << 30).unwrap();
    let mut buf = PageBuf::zeroed(16384);
    file.read_at(&mut buf, 0).unwrap();
    let ones = |range: std::ops::Range<usize>| buf[range].iter().all(|byte| *byte == 1);
    assert!(ones(0..4096) && ones(12288..16384) && buf[4096..12288].iter().all(|byte| *byte == 0));
    assert_eq!(file.len().unwrap(), 1 << 20, "a hole does not change the length");
}

#[test]
fn a_lock_is_exclusive_until_it_is_dropped() {
    let (dir, storage) = (Dir::new("lock"), DiskStorage::new());
    storage.create_dir_all(&dir.0).unwrap();
    let guard = storage.lock(&dir.0.join("LOCK")).unwrap();
    assert_eq!(storage.lock(&dir.0.join("LOCK")).map(drop).unwrap_err().kind(), ErrorKind::AlreadyOpen);
    drop(guard);
    storage.lock(&dir.0.join("LOCK")).unwrap();
}

#[test]
fn a_file_is_replaced_as_a_whole() {
    let (dir, storage) = (Dir::new("replace"), DiskStorage::new());
    storage.create_dir_all(&dir.0).unwrap();
    let path = dir.0.join("recovery.json");
    replace_file(&storage, &path, b"first").unwrap();
    replace_file(&storage, &path, b"2").unwrap();
    assert_eq!(read_file(&storage, &path).unwrap(), b"2");
    assert_eq!(storage.list(&dir.0).unwrap(), ["recovery.json"]);
    assert!(replace_file(&storage, "/".as_ref(), b"").is_err());
}

#[test]
fn a_handle_for_reading_refuses_writes() {
    let (dir, storage) = (Dir::new("read-only"), DiskStorage::new());
    storage.create_dir_all(&dir.0).unwrap();
    storage.open(&dir.0.join("f"), CREATE).unwrap().write_at(b"x", 0).unwrap();
    let mode = OpenMode { read_only: true, truncate: true, ..OpenMode::default() };
    let file = storage.open(&dir.0.join("f"), mode).unwrap();
    assert!(file.write_at(b"y", 0).is_err());
    assert_eq!(file.len().unwrap(), 1);
}

#[test]
fn writes_past_the_page_cache_and_into_it_meet_in_one_file() {
    let (dir, storage) = (Dir::new("cached"), DiskStorage::new());
    storage.create_dir_all(&dir.0).unwrap();
    let file = storage.open(&dir.0.join("1"), OpenMode { direct: true, ..CREATE }).unwrap();
    storage.rename(&dir.0.join("1"), &dir.0.join("2")).unwrap();
    let (mut page, mut seen) = (PageBuf::zeroed(4096), PageBuf::zeroed(8192));
    for round in 1..=9u8 {
        page.fill(round);
        file.write_cached_at(&page, 4096).unwrap();
        page[..512].fill(100 + round);
        file.write_at(&page, 0).unwrap();
        if round % 3 == 0 {
            file.write_at(&page, 4096).unwrap();
            page.fill(200 + round);
            file.write_cached_at(&page, 4096).unwrap();
        }
        file.read_at(&mut seen, 0).unwrap();
        assert_eq!((seen[0], seen[4095], seen[4096]), (100 + round, round, page[4095].max(round)));
    }
    file.sync_data().unwrap();
    assert_eq!(read_file(&storage, &dir.0.join("2")).unwrap(), &seen[..]);
    assert_eq!(storage.list(&dir.0).unwrap(), ["2"]);
}
