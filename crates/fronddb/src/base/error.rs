//! Errors, sorted by what the caller can do about them.
//!
//! Messages are in lower case, with values last as `name=value`. The kinds equal the C status codes one
//! to one (`crates/fronddb-capi`, compared by a test there).

use std::fmt;

/// What the caller can do about an [`Error`]. The numbers are the C status codes: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
pub enum ErrorKind {
    /// Another transaction of a deadlock cycle goes on; this one was rolled back. Retry the transaction.
    Deadlock = 1,
    /// A lock was not granted in time. The statement had no effect; retry it or roll back.
    LockTimeout = 2,
    /// Another transaction changed the row first. Roll back and retry the transaction.
    Conflict = 3,
    /// The key already exists.
    KeyExists = 4,
    /// An argument is wrong or past a limit. Nothing changed.
    InvalidArgument = 5,
    /// No such tree, prepared transaction or savepoint.
    NotFound = 6,
    /// The database or the transaction is read-only.
    ReadOnly = 7,
    /// Another process (or handle) has the database open.
    AlreadyOpen = 8,
    /// The disk is full. Nothing changed; service resumes when space is back.
    NoSpace = 9,
    /// The operating system reported an I/O error.
    Io = 10,
    /// Stored data is damaged, or the disk cannot give back what the data file held at a place. The message names file,
    /// offset and tree.
    Corruption = 11,
    /// The files are of a format that this version does not know.
    UnsupportedFormat = 12,
    /// An earlier fatal failure stopped writing. Close and open again to recover.
    Poisoned = 13,
    /// The wait, or the scan, was cancelled from another thread.
    Cancelled = 14,
    /// The handle was closed or its transaction has ended.
    Closed = 15,
    /// A broken invariant: a bug in FrondDB.
    Internal = 16,
}

impl ErrorKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [ErrorKind; 16] = [
        ErrorKind::Deadlock,
        ErrorKind::LockTimeout,
        ErrorKind::Conflict,
        ErrorKind::KeyExists,
        ErrorKind::InvalidArgument,
        ErrorKind::NotFound,
        ErrorKind::ReadOnly,
        ErrorKind::AlreadyOpen,
        ErrorKind::NoSpace,
        ErrorKind::Io,
        ErrorKind::Corruption,
        ErrorKind::UnsupportedFormat,
        ErrorKind::Poisoned,
        ErrorKind::Cancelled,
        ErrorKind::Closed,
        ErrorKind::Internal,
    ];

    /// A short name in words, as shown to people.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Deadlock => "deadlock",
            ErrorKind::LockTimeout => "lock timeout",
            ErrorKind::Conflict => "write conflict",
            ErrorKind::KeyExists => "key exists",
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::NotFound => "not found",
            ErrorKind::ReadOnly => "read-only",
            ErrorKind::AlreadyOpen => "already open",
            ErrorKind::NoSpace => "no space",
            ErrorKind::Io => "input/output error",
            ErrorKind::Corruption => "corruption",
            ErrorKind::UnsupportedFormat => "unsupported format",
            ErrorKind::Poisoned => "poisoned",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Closed => "closed",
            ErrorKind::Internal => "internal error",
        }
    }
}

/// The error of every fallible call of the engine. Cheap to clone, so that a poisoned database can
/// hand its first cause to each later caller.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<std::sync::Arc<std::io::Error>>,
    is_passing: bool,
}

/// `std::result::Result` with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `kind`; `message` in lower case, values last as `name=value`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None, is_passing: false }
    }

    /// Wraps an operating system error; a full disk or quota becomes [`ErrorKind::NoSpace`].
    pub fn io(context: impl Into<String>, source: std::io::Error) -> Error {
        let kind = match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        Error { kind, message: context.into(), source: Some(std::sync::Arc::new(source)), is_passing: false }
    }

    /// Shorthand for [`ErrorKind::Corruption`].
    pub fn corruption(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corruption, message)
    }

    /// Shorthand for [`ErrorKind::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument, message)
    }

    /// Shorthand for [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Internal, message)
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// True when something stored cannot be read: it is damaged, the disk does not give it back, or it is of a newer version.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.kind, ErrorKind::Corruption | ErrorKind::UnsupportedFormat)
    }

    /// True when a read failed, a segment of the log could not be prepared or recycled, or room in the data file not be had, by something that says
    /// nothing about what is stored, as the want of memory or of file descriptors. Nothing changed, and the same may succeed later.
    pub fn is_passing(&self) -> bool {
        self.is_passing
    }

    /// True when what asks for room got none: the disk has none, or the system did not give any for another reason, which may pass.
    pub(crate) fn lacks_room(&self) -> bool {
        self.kind == ErrorKind::NoSpace || self.is_passing
    }

    /// The same failure of the system, known to have changed nothing and to be that of something which may succeed later.
    #[must_use]
    pub(crate) fn into_passing(self) -> Error {
        Error { is_passing: true, ..self }
    }

    /// The same failure of the system, known to be damage of what is stored.
    #[must_use]
    pub(crate) fn into_damage(self) -> Error {
        Error { kind: ErrorKind::Corruption, ..self }
    }

    /// True when the system refused for want of rights, or because the file system is read-only.
    pub fn is_refused(&self) -> bool {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        self.system().is_some_and(|error| matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem))
    }

    /// What the operating system said, if it said something.
    pub(crate) fn system(&self) -> Option<&std::io::Error> {
        self.source.as_deref()
    }

    /// The message without the kind and the source.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same error, its message preceded by where or during what it happened.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Error {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_from_one_without_gaps() {
        for (index, kind) in ErrorKind::ALL.iter().enumerate() {
            assert_eq!(*kind as i32, index as i32 + 1);
        }
    }

    #[test]
    fn a_full_disk_is_no_space_and_shows_its_source() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = Error::io("write data.frond", full).context("flush");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().starts_with("no space: flush: write data.frond: "));
    }
}
