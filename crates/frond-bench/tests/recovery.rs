//! The recovery workload with real processes and a real kill, in small.

use std::process::Command;

use frond_bench::report::Report;

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
