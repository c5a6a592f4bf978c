//! Plots as inline SVG, without scripts or fonts of their own: lines over two axes, linear or logarithmic.

use std::fmt::Write;

pub(crate) const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 318.0;
const LEFT: f64 = 78.0;
pub(crate) const RIGHT: f64 = 14.0;
/// The title stands above the legend, the legend above the plot.
pub(crate) const TITLE: f64 = 18.0;
const LEGEND_ROW: f64 = 18.0;
const BOTTOM: f64 = 46.0;
/// Width of a letter of the legend, rather too much: fonts differ.
const LETTER: f64 = 7.0;
/// What an entry of the legend takes beside its letters.
const ENTRY: f64 = 34.0;

/// A line of points.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) colour: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
    /// A mark at the end: the plug was pulled there.
    pub(crate) plug: bool,
}

/// A plot.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) x_log: bool,
    pub(crate) y_log: bool,
    pub(crate) series: Vec<Series>,
}

struct Axis {
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    /// Room for all values; a linear axis begins at 0.
    fn of(values: impl Iterator<Item = f64>, log: bool) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            (low, high) = (low.min(value), high.max(value));
        }
        if !low.is_finite() {
            return Axis { low: if log { 1.0 } else { 0.0 }, high: 10.0, log };
        }
        if log {
            let (low, high) = (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()));
            Axis { low, high: if high > low { high } else { low * 10.0 }, log }
        } else {
            let high = if high > 0.0 { high * 1.05 } else { 1.0 };
            Axis { low: 0.0, high, log }
        }
    }

    /// From 0 to 1.
    fn place(&self, value: f64) -> f64 {
        match self.log {
            true => (value / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|decade| self.low * 10f64.powi(decade)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|f| f * power).find(|step| *step >= rough).unwrap_or(rough);
        (0..).map(|count| count as f64 * step).take_while(|tick| *tick <= self.high).collect()
    }
}

impl Plot<'_> {
    /// The whole `<svg>` element.
    pub(crate) fn draw(&self) -> String {
        let positive = |log: bool, value: f64| value.is_finite() && (!log || value > 0.0);
        let points = || {
            let all = self.series.iter().flat_map(|series| &series.points);
            all.filter(|(x, y)| positive(self.x_log, *x) && positive(self.y_log, *y))
        };
        let horizontal = Axis::of(points().map(|point| point.0), self.x_log);
        let vertical = Axis::of(points().map(|point| point.1), self.y_log);
        let legend = legend(self.series.iter().map(|series| series.name.as_str()));
        let top = legend.last().map_or(TITLE, |last| last.1) + 12.0;
        let x = |value: f64| LEFT + horizontal.place(value) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - vertical.place(value) * (HEIGHT - top - BOTTOM);
        let mut svg = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img' \
             style='max-width:{WIDTH}px;font:12px sans-serif'><title>{title}</title>\
             <rect width='{WIDTH}' height='{HEIGHT}' fill='#fff'/>\
             <text x='{LEFT}' y='{TITLE}' font-weight='bold'>{title}</text>",
            title = escape(self.title)
        );
        for tick in vertical.ticks() {
            let at = y(tick);
            let _ = write!(
                svg,
                "<line x1='{LEFT}' x2='{}' y1='{at:.1}' y2='{at:.1}' stroke='#ddd'/>\
                 <text x='{}' y='{:.1}' text-anchor='end' fill='#555'>{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0,
                short(tick)
            );
        }
        for tick in horizontal.ticks() {
            let at = x(tick);
            let _ = write!(
                svg,
                "<line x1='{at:.1}' x2='{at:.1}' y1='{top}' y2='{}' stroke='#eee'/>\
                 <text x='{at:.1}' y='{}' text-anchor='middle' fill='#555'>{}</text>",
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 15.0,
                short(tick)
            );
        }
        let _ = write!(
            svg,
            "<text x='{}' y='{}' text-anchor='middle' fill='#555'>{}</text>\
             <text x='14' y='{}' text-anchor='middle' fill='#555' transform='rotate(-90 14 {})'>{}</text>",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 12.0,
            escape(self.x),
            HEIGHT / 2.0,
            HEIGHT / 2.0,
            escape(self.y)
        );
        for (series, (at, row)) in self.series.iter().zip(legend) {
            let drawn: Vec<(f64, f64)> = series
                .points
                .iter()
                .filter(|(px, py)| positive(self.x_log, *px) && positive(self.y_log, *py))
                .map(|&(px, py)| (x(px), y(py)))
                .collect();
            let path: Vec<String> = drawn.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
            let colour = series.colour;
            let _ =
                write!(svg, "<polyline points='{}' fill='none' stroke='{colour}' stroke-width='2'/>", path.join(" "));
            if drawn.len() <= 12 {
                for (px, py) in &drawn {
                    let _ = write!(svg, "<circle cx='{px:.1}' cy='{py:.1}' r='3.5' fill='{colour}'/>");
                }
            }
            if let (true, Some((px, py))) = (series.plug, drawn.last()) {
                let _ =
                    write!(svg, "<text x='{px:.1}' y='{:.1}' fill='{colour}' text-anchor='middle'>✕</text>", py + 5.0);
            }
            svg.push_str(&entry(at, row, colour, &series.name));
        }
        svg.push_str("</svg>");
        svg
    }
}

/// Where the legend's entries stand: side by side below the title, in as many rows as it takes.
pub(crate) fn legend<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(f64, f64)> {
    let (mut at, mut row) = (LEFT, TITLE + LEGEND_ROW);
    let place = |name: &str| {
        let width = ENTRY + LETTER * name.chars().count() as f64;
        if at > LEFT && at + width > WIDTH - RIGHT {
            (at, row) = (LEFT, row + LEGEND_ROW);
        }
        at += width;
        (at - width, row)
    };
    names.map(place).collect()
}

/// An entry of a legend.
pub(crate) fn entry(at: f64, row: f64, colour: &str, name: &str) -> String {
    format!(
        "<rect x='{at}' y='{}' width='12' height='4' fill='{colour}'/><text x='{}' y='{row}'>{}</text>",
        row - 7.0,
        at + 17.0,
        escape(name)
    )
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;").replace('"', "&quot;")
}

/// A tick's number.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v >= 1e6 => format!("{} M", trim(value / 1e6)),
        v if v >= 1e3 => format!("{} k", trim(value / 1e3)),
        v if v >= 1.0 => trim(value),
        _ => format!("{value:.4}").trim_end_matches('0').into(),
    }
}

fn trim(value: f64) -> String {
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_their_values() {
        let linear = Axis::of([3.0, 97.0].into_iter(), false);
        assert!(linear.place(0.0) == 0.0 && linear.place(97.0) < 1.0);
        assert_eq!(linear.ticks(), [0.0, 50.0, 100.0]);
        let log = Axis::of([0.2, 300.0].into_iter(), true);
        assert_eq!(log.ticks().len(), 5);
        assert!(log.place(0.2) > 0.0 && log.place(300.0) < 1.0);
        assert_eq!(Axis::of([].into_iter(), true).ticks(), [1.0, 10.0]);
    }

    #[test]
    fn a_plot_leaves_out_what_a_log_axis_cannot_show() {
        let series = Series { name: "a<b".into(), colour: "red", points: vec![(1.0, 0.0), (2.0, 5.0)], plug: true };
        let plot = Plot { title: "t", x: "x", y: "y", x_log: false, y_log: true, series: vec![series] };
        let svg = plot.draw();
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(svg.contains("a&lt;b") && svg.contains('✕') && !svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn a_legend_stays_below_the_title_and_on_the_canvas() {
        let names = ["FROND", "InnoDB", "MyRocks", "FROND, limited", "InnoDB, limited", "MyRocks, limited", "another"];
        let places = legend(names.into_iter());
        for (name, (at, row)) in names.iter().zip(&places) {
            let end = at + ENTRY + LETTER * name.len() as f64;
            assert!(*at >= LEFT && end <= WIDTH - RIGHT && *row > TITLE, "{name} at={at} end={end} row={row}");
        }
        for pair in places.windows(2) {
            assert!(pair[1].1 > pair[0].1 || pair[1].0 > pair[0].0);
        }
        assert!(places[6].1 > places[0].1, "seven names take two rows");
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(
            [short(0.0), short(1500.0), short(2e6), short(0.25)],
            ["0", "1.5 k", "2 M", "0.25"].map(String::from)
        );
    }
}
