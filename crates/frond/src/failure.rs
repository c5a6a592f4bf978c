//! How a command ends when it does not end well: an exit code, and one line on standard error that says what happened,
//! where, and what to do.
//!
//! The codes are listed in `frond --help`, and a test compares the two.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use fronddb::{Error, ErrorKind};

/// The answer is no.
pub(crate) const NEGATIVE: u8 = 1;
/// Wrong usage, as clap has it.
pub(crate) const USAGE: u8 = 2;
/// A line of the input is not what it should be.
pub(crate) const INPUT: u8 = 3;
/// Standard input, standard output or a plain file failed.
pub(crate) const FILES: u8 = 4;
/// The engine's status codes begin at 1; its exit codes here follow this one.
pub(crate) const ENGINE: u8 = 10;
/// As the shell shows a program that SIGPIPE ended.
const PIPE: u8 = 141;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

/// Result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// An exit code and its line; an empty one prints nothing.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    /// The answer is no.
    pub(crate) fn negative(message: impl Into<String>) -> Failure {
        Failure::new(NEGATIVE, message)
    }

    /// Wrong usage that only shows when the command runs.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(USAGE, message)
    }

    /// A failure of a plain file or stream. A pipe that nobody reads ends the tool silently.
    pub(crate) fn files(place: impl Display, error: &std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::new(PIPE, "");
        }
        Failure::new(FILES, format!("{place}: {error}"))
    }

    /// An error of the engine, met while doing `what`.
    pub(crate) fn engine(what: impl Display, error: &Error) -> Failure {
        let advice = advice(error);
        let separator = if advice.is_empty() { "" } else { "; " };
        Failure::new(ENGINE + error.kind() as u8, format!("{what}: {error}{separator}{advice}"))
    }

    /// The same failure, with advice behind it.
    pub(crate) fn then(mut self, advice: impl Display) -> Failure {
        self.message = format!("{}; {advice}", self.message);
        self
    }

    /// Prints the line and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            let line = self.message.replace('\n', " ");
            // There is nowhere left to tell it if standard error is gone.
            let _ = writeln!(std::io::stderr(), "frond: {line}");
        }
        ExitCode::from(self.code)
    }
}

/// What to do about an error, for people.
fn advice(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::AlreadyOpen => "wait until the process that has it open is done with it",
        ErrorKind::NoSpace => "nothing is lost: make room and run this again",
        ErrorKind::Io if error.is_refused() => "run this as the owner of the directory, or change its rights",
        ErrorKind::Io => "see the kernel's log for the disk's state",
        ErrorKind::Corruption => "`frond check` lists all damage, `frond salvage` rescues what is readable",
        ErrorKind::UnsupportedFormat => "use the version of frond that wrote it, or a newer one",
        ErrorKind::Poisoned => "run this again: opening recovers everything that was acknowledged",
        ErrorKind::Deadlock | ErrorKind::LockTimeout | ErrorKind::Conflict => "run this again",
        ErrorKind::Internal => "this is a bug: please report it with this line",
        _ => "",
    }
}

/// Adds what was being done to an engine's error.
pub(crate) trait During<T> {
    /// See [`Failure::engine`].
    fn during(self, what: impl Display) -> Outcome<T>;
}

impl<T> During<T> for fronddb::Result<T> {
    fn during(self, what: impl Display) -> Outcome<T> {
        self.map_err(|error| Failure::engine(what, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_text_names_the_codes_of_the_engine() {
        for (kind, words) in [
            (ErrorKind::InvalidArgument, "invalid argument"),
            (ErrorKind::NotFound, "not found"),
            (ErrorKind::AlreadyOpen, "already open"),
            (ErrorKind::NoSpace, "disk full"),
            (ErrorKind::Io, "i/o error"),
            (ErrorKind::Corruption, "damaged data"),
            (ErrorKind::UnsupportedFormat, "newer format"),
            (ErrorKind::Poisoned, "poisoned"),
            (ErrorKind::Internal, "bug"),
        ] {
            let entry = format!("{} {words}", ENGINE + kind as u8);
            assert!(crate::FIRST_STEPS.contains(&entry), "{entry}");
        }
    }

    #[test]
    fn a_failure_is_one_line_with_place_and_advice() {
        let failure = Failure::engine("open demo", &Error::corruption("block does not match,\n file=data.frond"));
        assert_eq!(failure.code, 21);
        assert!(failure.message.starts_with("open demo: corruption: block does not match"));
        assert!(failure.message.contains("frond salvage"));
        for (system, advice) in [
            (std::io::ErrorKind::PermissionDenied, "owner of the directory"),
            (std::io::ErrorKind::Other, "kernel's log"),
        ] {
            let failure = Failure::engine("open demo", &Error::io("cannot open a file", system.into()));
            assert!(failure.message.contains(advice), "{}", failure.message);
        }
    }
}
