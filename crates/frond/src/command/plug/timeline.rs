//! The rate over time, with the kills.

use std::time::Instant;

/// What happened when, in seconds since the beginning.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    origin: Option<Instant>,
    /// One per load.
    pub spans: Vec<Span>,
}

/// A load, its kill, and the first answer after it.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Span {
    /// The rate asked for.
    pub name: String,
    /// Rows inserted by the span's process, at times; the first at 0 rows.
    pub rows: Vec<(f64, u64)>,
    /// When it was killed.
    pub killed: f64,
    /// When the database answered again.
    pub answering: f64,
}

impl Timeline {
    /// Nothing yet.
    pub(crate) fn new() -> Timeline {
        Timeline::default()
    }

    fn seconds(&mut self, at: Instant) -> f64 {
        at.duration_since(*self.origin.get_or_insert(at)).as_secs_f64()
    }

    /// A load begins.
    pub(crate) fn begin(&mut self, at: Instant, name: &str) {
        let start = self.seconds(at);
        self.spans.push(Span { name: name.to_owned(), rows: vec![(start, 0)], ..Span::default() });
    }

    /// So many rows are inserted by now.
    pub(crate) fn rows(&mut self, at: Instant, rows: u64) {
        let seconds = self.seconds(at);
        if let Some(span) = self.spans.last_mut() {
            span.rows.push((seconds, rows));
        }
    }

    /// The kill.
    pub(crate) fn killed(&mut self, at: Instant) {
        let seconds = self.seconds(at);
        if let Some(span) = self.spans.last_mut() {
            (span.killed, span.answering) = (seconds, seconds);
        }
    }

    /// The first answer after it.
    pub(crate) fn answering(&mut self, at: Instant) {
        let seconds = self.seconds(at);
        if let Some(span) = self.spans.last_mut() {
            span.answering = seconds;
        }
    }

    /// When it ends.
    pub(crate) fn end(&self) -> f64 {
        self.spans.last().map_or(1.0, |span| span.answering).max(1e-3)
    }
}

impl Span {
    /// When it began.
    pub(crate) fn start(&self) -> f64 {
        self.rows.first().map_or(0.0, |(at, _)| *at)
    }

    /// Rows inserted by `at`, linear between the times told.
    fn inserted(&self, at: f64) -> f64 {
        let after = self.rows.partition_point(|(time, _)| *time < at);
        match (after.checked_sub(1).and_then(|before| self.rows.get(before)), self.rows.get(after)) {
            (Some((t0, r0)), Some((t1, r1))) => {
                *r0 as f64 + (*r1 as f64 - *r0 as f64) * (at - t0) / (t1 - t0).max(1e-9)
            }
            (Some((_, rows)), None) => *rows as f64,
            _ => 0.0,
        }
    }

    /// Mean rate from `from` to `to`, in rows per second, cut to the span; `None` outside it.
    pub(crate) fn rate(&self, from: f64, to: f64) -> Option<f64> {
        let (from, to) = (from.max(self.start()), to.min(self.killed));
        (to > from).then(|| (self.inserted(to) - self.inserted(from)).max(0.0) / (to - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_rows_between() {
        let span =
            Span { name: "max".to_owned(), rows: vec![(1.0, 0), (2.0, 100), (3.0, 300)], killed: 3.0, answering: 3.1 };
        assert_eq!(span.rate(1.0, 2.0), Some(100.0));
        assert_eq!(span.rate(2.0, 9.0), Some(200.0));
        assert_eq!(span.rate(1.5, 2.5), Some(150.0));
        assert_eq!(span.rate(3.0, 4.0), None);
    }
}
