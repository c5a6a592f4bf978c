//! Bars as inline SVG: a group of them per measure, a bar per engine, its value beside it. The axis is linear and begins at 0.

use std::fmt::Write;

use super::svg::{RIGHT, TITLE, WIDTH, entry, escape, legend};
use super::table::Unit;

/// Where the bars begin; the groups' names stand before.
const LEFT: f64 = 210.0;
/// Room for the value behind the longest bar.
const VALUE: f64 = 76.0;
const BAR: f64 = 15.0;
/// Between two groups.
const GAP: f64 = 10.0;

/// A bar.
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) colour: &'static str,
    pub(crate) value: f64,
}

/// Groups of bars that share an axis.
pub(crate) struct Bars<'a> {
    pub(crate) title: &'a str,
    pub(crate) unit: Unit,
    pub(crate) groups: Vec<(String, Vec<Bar>)>,
}

impl Bars<'_> {
    /// The whole `<svg>` element; empty where there is no bar.
    pub(crate) fn draw(&self) -> String {
        let bars = || self.groups.iter().flat_map(|(_, bars)| bars);
        let largest = bars().map(|bar| bar.value).fold(0.0, f64::max);
        if largest <= 0.0 {
            return String::new();
        }
        let mut known: Vec<(&str, &str)> = Vec::new();
        for bar in bars().filter(|bar| bar.value > 0.0) {
            if !known.contains(&(bar.name, bar.colour)) {
                known.push((bar.name, bar.colour));
            }
        }
        let places = legend(known.iter().map(|(name, _)| *name));
        let mut down = places.last().map_or(TITLE, |last| last.1) + GAP;
        let mut body: String =
            known.iter().zip(&places).map(|(&(name, colour), &(at, row))| entry(at, row, colour, name)).collect();
        for (name, bars) in self.groups.iter().filter(|(_, bars)| !bars.is_empty()) {
            let middle = down + BAR * bars.len() as f64 / 2.0 + 4.0;
            let _ = write!(body, "<text x='{}' y='{middle:.1}' text-anchor='end'>{}</text>", LEFT - 8.0, escape(name));
            for bar in bars {
                let width = (bar.value / largest).max(0.0) * (WIDTH - RIGHT - VALUE - LEFT);
                let _ = write!(
                    body,
                    "<rect x='{LEFT}' y='{down:.1}' width='{:.1}' height='{}' fill='{}'/>\
                     <text x='{:.1}' y='{:.1}' fill='#555'>{}</text>",
                    width.max(1.0),
                    BAR - 3.0,
                    bar.colour,
                    LEFT + width + 6.0,
                    down + BAR - 5.0,
                    escape(&self.unit.print(bar.value))
                );
                down += BAR;
            }
            down += GAP;
        }
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {down}' role='img' \
             style='max-width:{WIDTH}px;font:12px sans-serif'><title>{title}</title>\
             <rect width='{WIDTH}' height='{down}' fill='#fff'/>\
             <text x='78' y='{TITLE}' font-weight='bold'>{title}</text>{body}</svg>",
            title = escape(self.title)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &'static str, value: f64) -> Bar {
        Bar { name, colour: "red", value }
    }

    #[test]
    fn the_largest_bar_fills_the_axis_and_every_bar_tells_its_value() {
        let groups = vec![("a<b".into(), vec![bar("x", 400.0), bar("y", 100.0)]), ("none".into(), Vec::new())];
        let svg = Bars { title: "t", unit: Unit::Bytes, groups }.draw();
        let full = WIDTH - RIGHT - VALUE - LEFT;
        assert!(svg.contains(&format!("width='{full:.1}'")) && svg.contains(&format!("width='{:.1}'", full / 4.0)));
        assert!(svg.contains(">400 B<") && svg.contains(">100 B<") && svg.contains("a&lt;b") && !svg.contains("none"));
    }

    #[test]
    fn without_values_there_is_no_plot() {
        assert!(Bars { title: "t", unit: Unit::Bytes, groups: vec![("a".into(), Vec::new())] }.draw().is_empty());
    }
}
