//! The recovery workload with real processes and a real kill, in small.

use std::process::Command;

fn recovers(engine: &str, more: &[&str]) {
    let directory =
        std::env::temp_dir().join(format!("frond-bench-recovery-{engine}-{}-{}", more.len(), std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_frond-bench"))
        .args(["run", "recovery", "--engine", engine, "--quiet", "--memory", "16", "--directory"])
        .arg(&directory)
        .args(["--size", "4", "--seconds", "0.3", "--kills", "2"])
        .args(more)
        .output()
        .expect("the binary was built");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!directory.exists());
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
