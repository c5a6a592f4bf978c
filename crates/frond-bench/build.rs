//! Builds the commit into the binary: a result names what ran, not what lies in the checkout when it is recorded.

use std::process::Command;

/// What the binary is made of, from this crate's directory.
const SOURCES: [&str; 3] = ["..", "../../Cargo.toml", "../../Cargo.lock"];

fn main() {
    let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let status = ["--no-optional-locks", "status", "--porcelain", "--untracked-files=normal", "--"];
    let status = git(&[&status[..], &SOURCES[..]].concat());
    let mark = if status.is_some_and(|changes| !changes.is_empty()) { "-dirty" } else { "" };
    println!("cargo::rustc-env=FROND_BENCH_COMMIT={commit}{mark}");
    // A commit or checkout appends to the log of HEAD.
    let head = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    SOURCES.iter().copied().chain(head.as_deref()).for_each(|path| println!("cargo::rerun-if-changed={path}"));
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
