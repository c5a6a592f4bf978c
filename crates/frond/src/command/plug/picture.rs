//! The rate over time with the kills marked: as SVG, and in blocks for a terminal. The rate's axis is logarithmic, because
//! the rates asked for lie three decades apart.

use std::fmt::Write as _;

use super::timeline::{Span, Timeline};

/// Columns of the terminal's picture.
const COLUMNS: usize = 84;
/// Rows of the terminal's picture.
const ROWS: usize = 10;
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The axis of rates.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(timeline: &Timeline, step: f64) -> Scale {
        let rates = || timeline.spans.iter().flat_map(|span| rates(span, step)).map(|(_, _, rate)| rate);
        let decade = |rate: f64| rate.max(1.0).log10();
        let high = rates().fold(10.0, f64::max);
        let low = rates().filter(|rate| *rate >= 1.0).fold(high, f64::min);
        Scale { low: decade(low).floor().min(decade(high).ceil() - 1.0), high: decade(high).ceil() }
    }

    /// Where a rate is, from 0 to 1.
    fn place(&self, rate: f64) -> f64 {
        ((rate.max(1.0).log10() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn decades(&self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high as i32).map(|decade| 10f64.powi(decade))
    }
}

/// Rates of a span in steps of about `step` seconds: from, to, rate.
fn rates(span: &Span, step: f64) -> Vec<(f64, f64, f64)> {
    let (start, length) = (span.start(), span.killed - span.start());
    let steps = (length / step).round().max(1.0);
    (0..steps as u32)
        .filter_map(|at| {
            let from = start + length * f64::from(at) / steps;
            let to = start + length * f64::from(at + 1) / steps;
            span.rate(from, to).map(|rate| (from, to, rate))
        })
        .collect()
}

fn short(rate: f64) -> String {
    if rate >= 1e6 {
        format!("{}M", rate / 1e6)
    } else if rate >= 1e3 {
        format!("{}k", rate / 1e3)
    } else {
        format!("{rate}")
    }
}

/// In blocks.
pub(crate) fn terminal(timeline: &Timeline) -> String {
    let width = timeline.end() / COLUMNS as f64;
    let scale = Scale::of(timeline, width);
    let levels: Vec<Option<f64>> = (0..COLUMNS)
        .map(|column| {
            let (from, to) = (width * column as f64, width * (column + 1) as f64);
            timeline.spans.iter().find_map(|span| span.rate(from, to)).map(|rate| scale.place(rate))
        })
        .collect();
    let mut out = String::from("rows/s, logarithmic\n");
    for row in (0..ROWS).rev() {
        let top = (row + 1) as f64 / ROWS as f64;
        let label = scale
            .decades()
            .find(|decade| {
                let place = scale.place(*decade) * ROWS as f64;
                place > row as f64 && place <= (row + 1) as f64 || (row == 0 && place == 0.0)
            })
            .map(short)
            .unwrap_or_default();
        let _ = write!(out, "{label:>5} │");
        for level in &levels {
            let filled = level.map_or(0.0, |level| (level - (top - 1.0 / ROWS as f64)) * ROWS as f64);
            out.push(BLOCKS[(filled.clamp(0.0, 1.0) * 8.0).round() as usize]);
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    let _ = writeln!(out, "      └{}", "─".repeat(COLUMNS));
    let mut marks = vec![' '; COLUMNS + 1];
    for span in &timeline.spans {
        marks[((span.killed / width) as usize).min(COLUMNS)] = '✖';
    }
    let _ = writeln!(out, "       {}", marks.iter().collect::<String>().trim_end());
    let end = format!("{:.0} s", timeline.end());
    let _ = writeln!(out, "       0 s{:>1$}", end, COLUMNS - 3);
    let kills: Vec<String> =
        timeline.spans.iter().map(|span| format!("✖ {:.1} s, at {}", span.killed, span.name)).collect();
    let _ = write!(out, "       killed: {}; between: reopening, verifying all rows, reopening", kills.join(" · "));
    out
}

/// As a picture for a browser.
pub(crate) fn svg(timeline: &Timeline) -> String {
    const STEP: f64 = 0.25;
    let (width, height) = (980.0, 430.0);
    let (left, right, top, bottom) = (70.0, 20.0, 60.0, 60.0);
    let scale = Scale::of(timeline, STEP);
    let x = |seconds: f64| left + seconds / timeline.end() * (width - left - right);
    let y = |rate: f64| height - bottom - scale.place(rate) * (height - top - bottom);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let mut line = |text: std::fmt::Arguments<'_>| {
        let _ = writeln!(out, "{text}");
    };
    line(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">"
    ));
    line(format_args!("<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"));
    line(format_args!(
        "<text x=\"{left}\" y=\"24\" font-size=\"16\" fill=\"#222\">The pulled plug: rows per second over time</text>"
    ));
    line(format_args!(
        "<text x=\"{left}\" y=\"42\" fill=\"#666\">iiBench table, four indexes, durable transactions of 1,000 rows; red: \
         SIGKILL; grey: reopening and verifying every row</text>"
    ));
    for decade in scale.decades() {
        let at = y(decade);
        line(format_args!(
            "<line x1=\"{left}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>",
            width - right
        ));
        line(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{}</text>",
            left - 8.0,
            at + 4.0,
            short(decade)
        ));
    }
    let floor = height - bottom;
    let mut spans = timeline.spans.iter().enumerate().peekable();
    while let Some((at, span)) = spans.next() {
        let next = spans.peek().map_or(timeline.end(), |(_, next)| next.start());
        line(format_args!(
            "<rect x=\"{:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f1f1f1\"/>",
            x(span.killed),
            (x(next) - x(span.killed)).max(0.5),
            floor - top
        ));
        let mut path = String::new();
        for (from, to, rate) in rates(span, STEP) {
            let step = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1} {:.1} L{:.1} {:.1} ", x(from), y(rate), x(to), y(rate));
        }
        line(format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"#2a7f3f\" stroke-width=\"1.6\"/>"));
        let kill = x(span.killed);
        line(format_args!(
            "<line x1=\"{kill:.1}\" x2=\"{kill:.1}\" y1=\"{top}\" y2=\"{floor}\" stroke=\"#c0392b\" stroke-width=\"1.6\"/>"
        ));
        line(format_args!(
            "<text x=\"{kill:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#c0392b\">✖ {}, answering after {:.0} ms </text>",
            top + 14.0 + 16.0 * at as f64,
            span.name,
            (span.answering - span.killed) * 1e3
        ));
    }
    line(format_args!(
        "<line x1=\"{left}\" x2=\"{:.1}\" y1=\"{floor}\" y2=\"{floor}\" stroke=\"#444\"/>",
        width - right
    ));
    for tenth in 0..=10 {
        let seconds = timeline.end() * f64::from(tenth) / 10.0;
        line(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#666\">{seconds:.0} s</text>",
            x(seconds),
            floor + 18.0
        ));
    }
    line(format_args!("</svg>"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline() -> Timeline {
        let mut timeline = Timeline::new();
        for (name, start, rate) in [("full speed", 0.0, 100_000), ("200 rows/s", 14.0, 200)] {
            timeline.spans.push(Span {
                name: name.to_owned(),
                rows: (0..=10).map(|second| (start + second as f64, second * rate)).collect(),
                killed: start + 10.0,
                answering: start + 10.1,
            });
        }
        timeline
    }

    #[test]
    fn the_terminal_shows_levels_and_kills() {
        let picture = terminal(&timeline());
        assert_eq!(picture.matches('✖').count(), 4, "{picture}");
        assert!(picture.contains("100k │▄"), "{picture}");
        assert!(picture.lines().all(|line| line.chars().count() <= 7 + COLUMNS + 30), "{picture}");
    }

    #[test]
    fn the_svg_is_closed_and_marks_each_kill() {
        let picture = svg(&timeline());
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert_eq!(picture.matches('✖').count(), 2);
        assert!(!picture.contains("NaN"), "{picture}");
    }

    #[test]
    fn nothing_happened_is_drawn_too() {
        assert!(!svg(&Timeline::new()).contains("NaN"));
        assert!(!terminal(&Timeline::new()).is_empty());
    }
}
