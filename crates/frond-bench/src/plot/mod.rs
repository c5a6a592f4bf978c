//! A chart of rates over time, with marks (a kill, a reopening) on the time axis: one description, drawn as SVG
//! ([`Chart::svg`]) or in the terminal with Braille dots ([`Chart::terminal`]).
//!
//! Written here rather than with a plotting crate: two hundred lines give text that a browser lays out itself, colours
//! that follow its light or dark scheme, and the same axes in the terminal.

mod axis;
mod svg;
mod terminal;

use crate::measure::Curve;

/// A line of the chart.
#[derive(Debug, Clone)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Seconds and rate, seconds rising.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// The rate of each `period` seconds of a measured curve, beginning at `offset` seconds of the chart.
    pub fn of_curve(name: &str, curve: &Curve, offset: f64, period: f64) -> Series {
        let rates = curve.rates(period).into_iter().map(|(seconds, rate)| (seconds + offset, rate)).collect();
        Series { name: name.to_owned(), points: rates }
    }

    /// This line, cut where `gaps` say that nothing ran (a killed process, a reopening).
    fn pieces(&self, marks: &[Mark]) -> Vec<&[(f64, f64)]> {
        let mut pieces = Vec::new();
        let mut rest = self.points.as_slice();
        for mark in marks {
            let at = rest.partition_point(|point| point.0 <= mark.seconds);
            let (before, after) = rest.split_at(at);
            pieces.push(before);
            rest = after;
        }
        pieces.push(rest);
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
}

/// A moment worth a vertical line. Lines of the chart are interrupted there.
#[derive(Debug, Clone)]
pub struct Mark {
    /// When.
    pub seconds: f64,
    /// What happened, in a word or two.
    pub label: String,
}

/// How rates are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// From zero.
    Linear,
    /// By powers of ten: rates that differ a thousandfold stay readable.
    Logarithmic,
}

/// What to draw.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Above the chart.
    pub title: String,
    /// Of the vertical axis; the horizontal one is seconds.
    pub unit: String,
    /// Of the vertical axis.
    pub scale: Scale,
    /// At most as many as there are colours are told apart; six.
    pub series: Vec<Series>,
    /// In order of time.
    pub marks: Vec<Mark>,
}

#[cfg(test)]
mod tests;
