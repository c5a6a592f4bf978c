//! What the run says while it goes: one line per part, with the time that is left.

use std::time::Instant;

use crate::plan::Part;

/// Guesses of parts are corrected by how the finished ones compared to theirs.
pub(crate) struct Progress {
    parts: usize,
    at: usize,
    /// Guessed and real seconds of what is done.
    guessed: f64,
    real: f64,
    left: f64,
    begin: Instant,
}

impl Progress {
    pub(crate) fn new(all: &[Part]) -> Self {
        let left = all.iter().map(|part| part.seconds).sum();
        Progress { parts: all.len(), at: 0, guessed: 0.0, real: 0.0, left, begin: Instant::now() }
    }

    pub(crate) fn kept(&mut self, part: &Part) {
        self.at += 1;
        self.left -= part.seconds;
        println!("{} kept from before", self.head(part));
    }

    /// It was measured, and told of, together with one before it.
    pub(crate) fn done_before(&mut self, part: &Part) {
        self.at += 1;
        self.guessed += part.seconds;
        self.left -= part.seconds;
    }

    pub(crate) fn begin(&mut self, part: &Part) {
        self.at += 1;
        self.begin = Instant::now();
        println!("{} … about {} left", self.head(part), span(self.left * self.ratio()));
    }

    pub(crate) fn end(&mut self, part: &Part, outcome: &str) {
        let seconds = self.begin.elapsed().as_secs_f64();
        self.guessed += part.seconds;
        self.real += seconds;
        self.left -= part.seconds;
        println!("        {outcome} ({})", span(seconds));
    }

    fn ratio(&self) -> f64 {
        // The guess weighs as much as 60 seconds of experience.
        (self.real + 60.0) / (self.guessed + 60.0)
    }

    fn head(&self, part: &Part) -> String {
        format!("[{:2}/{}] {} {} {}", self.at, self.parts, part.experiment.key(), part.engine.title(), part.variant)
    }
}

fn span(seconds: f64) -> String {
    if seconds < 100.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn spans_are_seconds_then_minutes() {
        assert_eq!([super::span(99.4), super::span(150.0)], ["99 s", "2 min"].map(String::from));
    }
}
