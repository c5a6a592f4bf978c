//! The one error of the benchmarks. A run that fails is reported and ended, never repaired, so a sentence is enough, and
//! whose fault it is, for the tool's exit code.

use std::fmt;

/// Why a run ended early.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    left: Option<String>,
}

/// Whose fault it is.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The run's: an engine answered wrongly, or a thread or process of the run came to nothing.
    Run,
    /// The command line's.
    Usage,
    /// That of a file or stream, which the message names.
    Files(std::io::Error),
    /// FrondDB reported it.
    Frond(fronddb::Error),
    /// A child process ended with this exit code, and has said why on the error output.
    Child(u8),
}

/// Short form.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Of the run, with this message: lower case, values last as `name=value`.
    pub fn new(message: impl Into<String>) -> Error {
        Error { kind: ErrorKind::Run, message: message.into(), left: None }
    }

    /// Of the command line.
    pub fn usage(message: impl Into<String>) -> Error {
        Error { kind: ErrorKind::Usage, message: message.into(), left: None }
    }

    /// Of a child process that ended with `status`.
    pub fn child(status: std::process::ExitStatus) -> Error {
        let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
        let kind = code.map_or(ErrorKind::Run, ErrorKind::Child);
        Error { kind, message: format!("a child process failed status={status}"), left: None }
    }

    /// Whose fault it is.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The message without that of the file system or the engine: the place of an [`ErrorKind::Files`].
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same, with what is left of the run in words. A wrong command line ran nothing, and a child has said it itself.
    #[must_use]
    pub fn leaving(mut self, left: impl FnOnce() -> Option<String>) -> Error {
        if self.left.is_none() && !matches!(self.kind, ErrorKind::Usage | ErrorKind::Child(_)) {
            self.left = left();
        }
        self
    }

    /// What is left of the run, if anything is.
    pub fn left(&self) -> Option<&str> {
        self.left.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ErrorKind::Files(error) => write!(f, "{}: {error}", self.message),
            ErrorKind::Frond(error) => write!(f, "frond: {error}"),
            _ => f.write_str(&self.message),
        }?;
        self.left.as_deref().map_or(Ok(()), |left| write!(f, "; {left}"))
    }
}

impl std::error::Error for Error {}

impl From<fronddb::Error> for Error {
    fn from(error: fronddb::Error) -> Error {
        Error { kind: ErrorKind::Frond(error), message: String::new(), left: None }
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Error {
        Error::new(format!("json: {error}"))
    }
}

/// Adds to a failure of a file or stream which one it is.
pub trait At<T> {
    /// At `place`: a path, or in words.
    fn at(self, place: impl fmt::Display) -> Result<T>;

    /// At this path.
    fn at_path(self, path: &std::path::Path) -> Result<T>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, place: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error { kind: ErrorKind::Files(error), message: place.to_string(), left: None })
    }

    fn at_path(self, path: &std::path::Path) -> Result<T> {
        self.at(path.display())
    }
}
