//! The tool as a user runs it: the real program in a temporary directory.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A directory for a test, and the tool run in it.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
}

/// What a run of the tool said.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { dir: tempfile::tempdir().expect("temporary directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frond"));
        command.args(arguments).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs it with words separated by spaces.
    pub(crate) fn run(&self, line: &str) -> Said {
        self.run_with(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn run_with(&self, arguments: &[&str]) -> Said {
        Said::from(self.command(arguments).output().expect("run frond"))
    }

    /// Runs it with words separated by spaces, and this input.
    pub(crate) fn run_on(&self, line: &str, input: &[u8]) -> Said {
        let mut command = self.command(line.split_whitespace());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("run frond");
        // The tool may have refused the input before reading it.
        let _ = child.stdin.take().expect("piped").write_all(input);
        Said::from(child.wait_with_output().expect("wait for frond"))
    }

    /// Runs it, expects it to succeed, and returns what it printed.
    pub(crate) fn good(&self, line: &str) -> String {
        let said = self.run(line);
        assert_eq!(said.code, 0, "frond {line}: {}", said.err);
        said.out
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Said {
    /// Failed with this code, nothing on standard output, and one line that has all these parts.
    pub(crate) fn failed(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{}", self.err);
        assert_eq!(self.out, "");
        self.complained(parts);
    }

    pub(crate) fn complained(&self, parts: &[&str]) {
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("frond: "), "{}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is missing in: {}", self.err);
        }
    }
}
