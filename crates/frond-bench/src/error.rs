//! The one error of the benchmarks. A run that fails is reported and ended, never repaired, so a sentence is enough.

use std::fmt;

/// Why a run ended early.
#[derive(Debug)]
pub struct Error(String);

/// Short form.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this message: lower case, values last as `name=value`.
    pub fn new(message: impl Into<String>) -> Error {
        Error(message.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error(format!("i/o: {error}"))
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Error {
        Error(format!("json: {error}"))
    }
}
