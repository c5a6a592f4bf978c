//! `frond bench`: every workload in its smallest form, and how it ends when it cannot go on.

mod support;

use support::Place;

const SMALL: [(&str, &str); 8] = [
    ("iibench", "--rows 2000 --batch 100 --threads 2 --verify"),
    ("ycsb", "--rows 200 --seconds 0.02 --value-bytes 50"),
    ("commit", "--threads 1,2 --seconds 0.05"),
    ("reads", "--ratio 0.05 --seconds 0.02"),
    ("scans", "--ratio 0.05 --seconds 0.02"),
    ("rollback", "--rows 10,1000 --before 100"),
    ("queue", "--rows 300 --depth 20 --batch 10"),
    ("recovery", "--size 2 --seconds 0.1 --kills 1 --open-rows 10"),
];

#[test]
fn every_workload_runs_and_reports_as_json() {
    let place = Place::new();
    for (name, options) in SMALL {
        let out = place.good(&format!("bench {name} {options} --memory 16 --quiet --json - --directory run.db"));
        let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((&report["engine"], &report["workload"]), (&"frond".into(), &name.into()), "{out}");
        let phases = report["outcome"]["phases"].as_array().map_or(0, Vec::len);
        assert!(phases > 0, "{name}: {out}");
        assert!(!place.path("run.db").exists(), "{name}");
    }
}

#[test]
fn a_time_that_never_ends_is_wrong_usage() {
    let place = Place::new();
    let refused = |line: &str| {
        let said = place.run(&format!("bench {line} --memory 16 --quiet"));
        assert!(said.code == 2 && said.err.contains("not a time in seconds"), "{line}: {}", said.err);
    };
    refused("commit --seconds 1e19");
    for name in ["commit", "reads --ratio 0.05", "recovery --size 2", "scans --ratio 0.05", "ycsb --rows 200"] {
        for seconds in ["1e20", "-1", "nan"] {
            refused(&format!("{name} --seconds={seconds}"));
        }
    }
}

#[test]
fn a_directory_of_the_users_own_is_wrong_usage_and_stays() {
    let place = Place::new();
    std::fs::create_dir(place.path("letters")).expect("make");
    std::fs::write(place.path("letters/first"), "dear").expect("write");
    for name in ["commit --seconds 0.01", "rollback", "recovery"] {
        place.run(&format!("bench {name} --quiet --directory letters")).failed(2, &["letters", "--directory"]);
    }
    place.good("create demo");
    place.run("bench commit --quiet --directory demo").failed(2, &["demo holds files"]);
    assert_eq!(std::fs::read(place.path("letters/first")).expect("read"), b"dear");
}

#[test]
fn a_failure_has_the_code_of_its_kind_and_a_path() {
    let place = Place::new();
    std::fs::write(place.path("plain"), "").expect("write");
    let commit = "bench commit --threads 1 --seconds 0.01 --quiet";
    place.run(&format!("{commit} --directory plain")).failed(4, &["plain", "directory"]);
    place.run(&format!("{commit} --json missing/result.json")).failed(4, &["missing/result.json", "No such file"]);
    place.run(&format!("{commit} --set frobnicate=1")).failed(2, &["frobnicate"]);
    place.run(&format!("{commit} --set block_bytes=1")).failed(15, &["invalid argument", "stays in frond-bench.db"]);
    // In a child process, which says it once.
    place
        .run("bench recovery --quiet --size 1 --set block_bytes=1")
        .failed(15, &["invalid argument", "stays in frond-bench.db"]);
}
