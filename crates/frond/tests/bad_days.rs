//! What the tool says on a bad day of the disk: exit codes from 19 on, end to end.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use fronddb::base::checksum;
use fronddb::format::superblock::{FORMAT_VERSION, SLOTS, SUPERBLOCK_BYTES, slot_offset};
use support::{Place, Said};

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const ENOSPC: i32 = 28;

/// The library that makes calls fail; see `failing_disk.c`.
fn failing_disk() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("failing_disk.so");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let compiled = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failing_disk.c"))
            .arg("-ldl")
            .output()
            .expect("run the C compiler");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        library
    })
}

/// Runs the tool while `call` fails for files whose path contains `path`.
fn run_failing(place: &Place, call: &str, path: &str, errno: i32, line: &str) -> Said {
    run_failing_after(0, place, call, path, errno, line)
}

/// As [`run_failing`], but that the first `calls` do not fail.
fn run_failing_after(calls: u32, place: &Place, call: &str, path: &str, errno: i32, line: &str) -> Said {
    let mut command = place.command(line.split_whitespace());
    command.env("LD_PRELOAD", failing_disk()).env("FAIL_CALL", call).env("FAIL_PATH", path);
    command.env("FAIL_AFTER", calls.to_string()).env("FAIL_ERRNO", errno.to_string());
    Said::from(command.output().expect("run frond"))
}

fn one_row() -> Place {
    let place = Place::new();
    place.good("create demo t");
    place.good("put demo t apple red");
    place
}

#[test]
fn a_plug_run_that_met_a_full_disk_does_not_say_that_rows_were_lost() {
    let place = Place::new();
    let said = run_failing(&place, "write", "db/data.frond", ENOSPC, "plug --rows 30K --rate max --results plug");
    assert_eq!(said.code, 19, "{}{}", said.out, said.err);
    for part in ["make room", "the loading process ended by itself: exit status: 19"] {
        assert!(said.err.contains(part), "{}", said.err);
    }
}

/// Two trees in several leaves, so that an estimate reads what the catalog does not.
fn two_large_trees() -> Place {
    let place = Place::new();
    let options = fronddb::Options::new().create_if_missing(true).memory_bytes(16 << 20);
    let db = fronddb::Database::open(place.path("demo"), options).expect("open");
    let mut state = 1u64;
    for name in ["left", "right"] {
        let tree = db.create_tree(name, &fronddb::TreeOptions::default()).expect("create");
        for transaction in 0..30u32 {
            let mut batch = fronddb::WriteBatch::new();
            for row in 0..1000u32 {
                let mut value = Vec::new();
                for _ in 0..100 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    value.extend_from_slice(&(state >> 8).to_le_bytes());
                }
                batch.put(&tree, &(transaction * 1000 + row).to_be_bytes(), &value).expect("put");
            }
            db.write(&batch, fronddb::TxnOptions::default()).expect("write");
        }
    }
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).expect("compact");
    db.close().expect("close");
    place
}

#[test]
fn a_tree_whose_size_cannot_be_told_is_listed_beside_the_others() {
    let place = two_large_trees();
    let failing = |reads, line| run_failing_after(reads, &place, "read", "data.frond", EIO, line);
    let listed = (0..200).map(|reads| (reads, failing(reads, "trees demo"))).find(|(_, said)| said.out.contains('?'));
    let (reads, said) = listed.expect("some read is an estimate's");
    assert_ne!(said.code, 0);
    said.complained(&["estimate tree", "offset="]);
    let json: serde_json::Value = serde_json::from_str(&failing(reads, "trees demo --json").out).expect("JSON");
    for (at, name) in ["left", "right"].iter().enumerate() {
        let line = said.out.lines().find(|line| line.starts_with(name)).expect("listed");
        assert_eq!(line.contains('?'), json[at]["rows"].is_null(), "{line}");
    }
}

#[test]
fn a_full_disk_is_19_and_with_room_it_works() {
    let place = Place::new();
    run_failing(&place, "write", "other/data.frond", ENOSPC, "create other t").failed(19, &["no space", "make room"]);
    place.good("create other t");
    let bench = "bench commit --threads 1 --seconds 0.01 --quiet";
    run_failing(&place, "write", "data.frond", ENOSPC, bench).failed(19, &["no space", "data.frond"]);
    let recovery = "bench recovery --size 1 --quiet --directory other.db";
    run_failing(&place, "write", "data.frond", ENOSPC, recovery).failed(19, &["no space", "data.frond"]);
}

#[test]
fn a_disk_that_gives_nothing_back_is_21_and_another_failure_of_reading_is_20() {
    let place = one_row();
    let get = "get demo t apple";
    run_failing(&place, "read", "data.frond", EIO, get).failed(21, &["data.frond", "os error 5", "frond salvage"]);
    run_failing(&place, "read", "data.frond", ENOMEM, get).failed(20, &["data.frond", "kernel's log"]);
}

#[test]
fn a_newer_format_is_22_and_both_versions_are_named() {
    let place = one_row();
    let data = place.path("demo").join("data.frond");
    let mut bytes = std::fs::read(&data).expect("read");
    for generation in 0..SLOTS {
        let start = usize::try_from(slot_offset(generation)).expect("fits");
        let slot = &mut bytes[start..start + SUPERBLOCK_BYTES];
        if slot.iter().all(|byte| *byte == 0) {
            continue;
        }
        slot[8..12].copy_from_slice(&99u32.to_le_bytes());
        slot[16..24].fill(0);
        let sum = checksum::block(slot_offset(generation), slot);
        slot[16..24].copy_from_slice(&sum.to_le_bytes());
    }
    std::fs::write(&data, bytes).expect("write");
    for line in ["get demo t apple", "put demo t pear green", "stat demo"] {
        place.run(line).failed(22, &["99", &FORMAT_VERSION.to_string(), "a newer one"]);
    }
}

#[test]
fn a_log_that_cannot_be_written_is_23_and_opening_again_helps() {
    let place = one_row();
    let rows: String = (0..100).map(|row| format!("{row:03},green\n")).collect();
    std::fs::write(place.path("rows.csv"), format!("key,value\n{rows}")).expect("write");
    let load = "load demo --tree t --batch 1 rows.csv";
    // Few of the writes are those of headers, with which segments are prepared.
    let said = run_failing_after(9, &place, "write", "demo/log", EIO, load);
    said.failed(23, &["poisoned", "run this again"]);
    let loaded = place.good("scan demo t --count");
    assert!((1..100).contains(&loaded.trim().parse::<usize>().expect("a number")), "{loaded}");
    place.good("put demo t pear green");
    assert_eq!(place.good("scan demo t --from a"), "apple\tred\npear\tgreen\n");
}
