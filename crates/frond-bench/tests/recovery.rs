//! The recovery workload with real processes and a real kill, in small.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use frond_bench::report::Report;

fn place(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("frond-bench-{test}-{}", std::process::id()))
}

#[test]
fn a_run_that_fails_says_where_its_database_is_left() {
    let directory = place("fails");
    let output = Command::new(env!("CARGO_BIN_EXE_frond-bench"))
        .args(["run", "commit", "--quiet", "--set", "block_bytes=1", "--directory"])
        .arg(&directory)
        .output()
        .expect("the binary was built");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&format!("stays in {}", directory.display())), "{said}");
    std::fs::remove_dir_all(&directory).expect("it was left");
}

#[test]
fn an_interrupted_run_says_where_its_database_is_left_and_leaves_no_process() {
    let directory = place("interrupted");
    // A compared run has a child, and that has one more, which fills. What a shell starts in the background ignores Ctrl-C,
    // and what nohup starts its terminal's end: then the run leaves signals alone.
    let mut run = Command::new("env")
        .args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_frond-bench")])
        .args(["compare", "recovery", "--engines", "frond", "--quiet", "--size", "100000", "--directory"])
        .arg(&directory)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    while !directory.join("data.frond").exists() {
        assert!(run.try_wait().expect("it is our child").is_none(), "it ended before it was interrupted");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let interrupted = Command::new("kill").args(["-INT", &run.id().to_string()]).status().expect("kill is there");
    assert!(interrupted.success());
    // The descendants hold the other end: it closes when the last of them is gone.
    let said: Vec<String> = BufReader::new(run.stderr.take().expect("a pipe")).lines().map_while(Result::ok).collect();
    let status = run.wait().expect("it is our child");
    assert_eq!(status.code(), Some(130), "{status}: {said:?}");
    assert!(said.iter().any(|line| line.contains(&format!("stays in {}", directory.display()))), "{said:?}");
    std::fs::remove_dir_all(&directory).expect("it was left");
}

fn recovers(engine: &str, more: &[&str]) {
    let directory =
        std::env::temp_dir().join(format!("frond-bench-recovery-{engine}-{}-{}", more.len(), std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_frond-bench"))
        .args(["run", "recovery", "--engine", engine, "--quiet", "--memory", "16", "--directory"])
        .arg(&directory)
        .args(["--size", "4", "--seconds", "0.3", "--kills", "2", "--json", "-"])
        .args(more)
        .output()
        .expect("the binary was built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!directory.exists());
    let report: Report = serde_json::from_slice(&output.stdout).expect("a report");
    let memory = |what: &str| report.fact(what).expect("it was looked at");
    let largest = memory("memory peak when killed").max(memory("memory peak up to the first answer"));
    let budget = report.memory_budget_bytes as f64 / f64::from(1 << 20);
    let share = report.memory_share().expect("there are phases");
    assert!(largest > 0.0 && share >= largest / budget - 1e-6, "share={share} largest={largest}");
}

#[test]
fn frond_recovers_what_it_acknowledged() {
    recovers("frond", &[]);
}

#[test]
fn frond_forgets_an_open_transaction() {
    recovers("frond", &["--open-rows", "1000"]);
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_recovers_what_it_acknowledged() {
    recovers("rocksdb", &[]);
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_forgets_an_open_transaction() {
    recovers("rocksdb", &["--open-rows", "1000"]);
}
