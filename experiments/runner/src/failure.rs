//! Why something could not be done, in words for whoever started the run.

/// The words; nothing here is handled by kind.
pub(crate) type Failure = String;

/// Puts what was being done before what went wrong.
pub(crate) trait While<T> {
    fn or_say(self, doing: impl std::fmt::Display) -> Result<T, Failure>;
}

impl<T, E: std::fmt::Display> While<T> for Result<T, E> {
    fn or_say(self, doing: impl std::fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| format!("{doing}: {error}"))
    }
}
