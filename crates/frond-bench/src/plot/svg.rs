//! The chart as a self-contained SVG file: no fonts, no scripts; readable on light and dark pages.

use std::fmt::Write;

use super::axis::{Axis, label};
use super::{Chart, Scale};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 46.0;
const TIME_TICKS: usize = 10;
const RATE_TICKS: usize = 5;
/// Mark labels closer than this share a row only if they are further apart.
const LABEL_CLEARANCE: f64 = 80.0;

/// Colour-blind safe (Okabe and Ito), readable on white and on black.
pub(super) const COLOURS: usize = 6;

const STYLE: &str = "
  text { font: 12px system-ui, sans-serif; fill: #333 }
  .title { font-size: 15px; font-weight: 600; fill: #111 }
  .paper { fill: #fff }
  .grid { stroke: #ddd; stroke-width: 1 }
  .axis { stroke: #888; stroke-width: 1 }
  .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round }
  .area { stroke: none; fill-opacity: .1 }
  .mark { stroke: #c0392b; stroke-width: 1.2; stroke-dasharray: 4 3 }
  .cross { stroke: #c0392b; stroke-width: 2.2; stroke-linecap: round }
  .marklabel { fill: #c0392b; font-size: 11px }
  .s0 { stroke: #0072b2; fill: #0072b2 } .s1 { stroke: #d55e00; fill: #d55e00 } .s2 { stroke: #009e73; fill: #009e73 }
  .s3 { stroke: #cc79a7; fill: #cc79a7 } .s4 { stroke: #e69f00; fill: #e69f00 } .s5 { stroke: #56b4e9; fill: #56b4e9 }
  .line.s0, .line.s1, .line.s2, .line.s3, .line.s4, .line.s5 { fill: none }
  .area.s0, .area.s1, .area.s2, .area.s3, .area.s4, .area.s5 { stroke: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #ccc } .title { fill: #eee } .paper { fill: #16181c } .grid { stroke: #333 } .axis { stroke: #777 }
    .mark, .cross { stroke: #ff7b6b } .marklabel { fill: #ff7b6b }
    .s0 { stroke: #4aa8e0; fill: #4aa8e0 } .s1 { stroke: #f08a3c; fill: #f08a3c } .s2 { stroke: #2fc596; fill: #2fc596 }
  }
";

impl Chart {
    /// The whole file.
    pub fn svg(&self) -> String {
        let (time, rate) = self.axes(TIME_TICKS, RATE_TICKS);
        let frame = Frame { time, rate };
        let mut out = String::new();
        // Writing to a string cannot fail.
        self.write(&frame, &mut out).unwrap_or_default();
        out
    }

    fn write(&self, frame: &Frame, out: &mut String) -> std::fmt::Result {
        let title = escape(&self.title);
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{title}">"#
        )?;
        writeln!(out, "<style>{STYLE}</style>")?;
        writeln!(out, r#"<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>"#)?;
        writeln!(out, r#"<text class="title" x="{LEFT}" y="24">{title}</text>"#)?;
        self.write_legend(out)?;
        frame.write(&self.unit, self.scale, out)?;
        for (number, series) in self.series.iter().enumerate() {
            let class = number % COLOURS;
            for piece in series.pieces(&self.marks) {
                let path: Vec<String> =
                    piece.iter().map(|point| format!("{:.1} {:.1}", frame.x(point.0), frame.y(point.1))).collect();
                let (first, last) = (frame.x(piece[0].0), frame.x(piece[piece.len() - 1].0));
                let path = path.join("L");
                let floor = HEIGHT - BOTTOM;
                writeln!(out, r#"<path class="area s{class}" d="M{first:.1} {floor}L{path}L{last:.1} {floor}Z"/>"#)?;
                writeln!(out, r#"<path class="line s{class}" d="M{path}"/>"#)?;
            }
        }
        self.write_marks(frame, out)?;
        writeln!(out, "</svg>")
    }

    fn write_legend(&self, out: &mut String) -> std::fmt::Result {
        let mut x = LEFT;
        for (number, series) in self.series.iter().enumerate() {
            let class = number % COLOURS;
            writeln!(out, r#"<rect class="s{class}" x="{x}" y="36" width="14" height="4" rx="2"/>"#)?;
            writeln!(out, r#"<text x="{}" y="43">{}</text>"#, x + 20.0, escape(&series.name))?;
            // Text is laid out by the browser; 7 px per letter is a safe estimate at 12 px.
            x += 36.0 + 7.0 * series.name.chars().count() as f64;
        }
        Ok(())
    }

    fn write_marks(&self, frame: &Frame, out: &mut String) -> std::fmt::Result {
        let mut row_ends = [f64::NEG_INFINITY; 2];
        for mark in &self.marks {
            let x = frame.x(mark.seconds);
            let row = usize::from(x - row_ends[0] < LABEL_CLEARANCE);
            row_ends[row] = x;
            let y = TOP - 7.0 - 12.0 * row as f64;
            writeln!(out, r#"<line class="mark" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{}"/>"#, HEIGHT - BOTTOM)?;
            writeln!(out, r#"<path class="cross" d="M{:.1} {:.1}l8 8m0 -8l-8 8"/>"#, x - 4.0, HEIGHT - BOTTOM - 4.0)?;
            let anchor = if x > WIDTH - RIGHT - LABEL_CLEARANCE / 2.0 { "end" } else { "middle" };
            writeln!(
                out,
                r#"<text class="marklabel" x="{x:.1}" y="{y}" text-anchor="{anchor}">{}</text>"#,
                escape(&mark.label)
            )?;
        }
        Ok(())
    }
}

/// The plotting area.
struct Frame {
    time: Axis,
    rate: Axis,
}

impl Frame {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + self.time.place(seconds) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, rate: f64) -> f64 {
        HEIGHT - BOTTOM - self.rate.place(rate) * (HEIGHT - TOP - BOTTOM)
    }

    fn write(&self, unit: &str, scale: Scale, out: &mut String) -> std::fmt::Result {
        let (end, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for &tick in &self.rate.ticks {
            let y = self.y(tick);
            writeln!(out, r#"<line class="grid" x1="{LEFT}" x2="{end}" y1="{y:.1}" y2="{y:.1}"/>"#)?;
            writeln!(out, r#"<text x="{}" y="{:.1}" text-anchor="end">{}</text>"#, LEFT - 8.0, y + 4.0, label(tick))?;
        }
        for &tick in &self.time.ticks {
            let x = self.x(tick);
            writeln!(out, r#"<line class="axis" x1="{x:.1}" x2="{x:.1}" y1="{floor}" y2="{}"/>"#, floor + 5.0)?;
            writeln!(out, r#"<text x="{x:.1}" y="{}" text-anchor="middle">{}</text>"#, floor + 19.0, label(tick))?;
        }
        writeln!(out, r#"<line class="axis" x1="{LEFT}" x2="{end}" y1="{floor}" y2="{floor}"/>"#)?;
        let note = if scale == Scale::Logarithmic { ", logarithmic" } else { "" };
        writeln!(out, r#"<text x="{end}" y="43" text-anchor="end">{}{note}</text>"#, escape(unit))?;
        writeln!(out, r#"<text x="{end}" y="{}" text-anchor="end">seconds</text>"#, HEIGHT - 10.0)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
