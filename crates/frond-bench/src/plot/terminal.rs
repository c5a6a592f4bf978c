//! The chart in the terminal: Braille characters are two dots wide and four high, so a window of 100 by 20 characters
//! shows 200 by 80 dots. One colour per series; a character that two series share takes the later one's.

use super::axis::{Axis, label};
use super::{Chart, Scale};

const LABEL_COLUMNS: usize = 8;
const COLUMNS_MIN: usize = 30;
const ROWS_MIN: usize = 6;
const RESET: &str = "\x1b[0m";
const MARK: &str = "\x1b[31m";
const COLOURS: [&str; 6] = ["\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[93m", "\x1b[94m"];

/// What one character shows.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// Bits of the Braille block (U+2800).
    dots: u8,
    series: usize,
    mark: bool,
}

/// Dots of a Braille character by row and column.
const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

struct Canvas {
    columns: usize,
    rows: usize,
    cells: Vec<Cell>,
}

impl Canvas {
    fn new(columns: usize, rows: usize) -> Canvas {
        Canvas { columns, rows, cells: vec![Cell::default(); columns * rows] }
    }

    /// Dot positions count from the lower left.
    fn dot(&mut self, x: usize, y: usize, series: usize) {
        let (x, y) = (x.min(self.columns * 2 - 1), self.rows * 4 - 1 - y.min(self.rows * 4 - 1));
        let cell = &mut self.cells[y / 4 * self.columns + x / 2];
        cell.dots |= DOTS[y % 4][x % 2];
        cell.series = series;
    }

    /// From dot to dot, every column of dots touched.
    fn line(&mut self, from: (usize, usize), to: (usize, usize), series: usize) {
        let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
        for step in 0..=steps {
            let between = |from: usize, to: usize| {
                (from as f64 + (to as f64 - from as f64) * step as f64 / steps as f64).round() as usize
            };
            self.dot(between(from.0, to.0), between(from.1, to.1), series);
        }
    }
}

impl Chart {
    /// Lines of text, at most `columns` wide and `rows` high and not less than a readable minimum. `colour` uses ANSI
    /// escapes.
    pub fn terminal(&self, columns: usize, rows: usize, colour: bool) -> String {
        let plot_columns = columns.max(COLUMNS_MIN) - LABEL_COLUMNS - 1;
        let plot_rows = rows.max(ROWS_MIN + 4) - 4;
        let (time, rate) = self.axes(plot_columns / 12, plot_rows / 3);
        let mut canvas = Canvas::new(plot_columns, plot_rows);
        self.draw(&time, &rate, &mut canvas);
        let mut out = self.head(columns.max(COLUMNS_MIN), colour);
        for row in 0..plot_rows {
            out.push_str(&rate_label(&rate, row, plot_rows));
            out.push('┤');
            let cells = &canvas.cells[row * plot_columns..(row + 1) * plot_columns];
            cells.iter().for_each(|cell| push_cell(&mut out, cell, colour));
            out.push('\n');
        }
        out.push_str(&time_axis(&time, plot_columns));
        out
    }

    fn draw(&self, time: &Axis, rate: &Axis, canvas: &mut Canvas) {
        let (width, height) = (canvas.columns * 2 - 1, canvas.rows * 4 - 1);
        let place = |point: &(f64, f64)| {
            let scale = |share: f64, dots: usize| (share * dots as f64).round() as usize;
            (scale(time.place(point.0), width), scale(rate.place(point.1), height))
        };
        for (number, series) in self.series.iter().enumerate() {
            for piece in series.pieces(&self.marks) {
                let dots: Vec<_> = piece.iter().map(place).collect();
                dots.windows(2).for_each(|pair| canvas.line(pair[0], pair[1], number));
                if let [only] = dots.as_slice() {
                    canvas.dot(only.0, only.1, number);
                }
            }
        }
        for mark in &self.marks {
            let column = place(&(mark.seconds, 0.0)).0 / 2;
            (0..canvas.rows).for_each(|row| canvas.cells[row * canvas.columns + column].mark = true);
        }
    }

    /// Title, legend, and the marks' labels.
    fn head(&self, columns: usize, colour: bool) -> String {
        let scale = if self.scale == Scale::Logarithmic { ", logarithmic" } else { "" };
        let title: String = format!("{} ({}{scale})", self.title, self.unit).chars().take(columns).collect();
        let mut legend: Vec<String> = Vec::new();
        for (number, series) in self.series.iter().enumerate() {
            legend.push(painted("━━ ", COLOURS[number % COLOURS.len()], colour) + &series.name);
        }
        let mut labels: Vec<&str> = self.marks.iter().map(|mark| mark.label.as_str()).collect();
        labels.dedup();
        if !labels.is_empty() {
            legend.push(painted("┊ ", MARK, colour) + &labels.join(", "));
        }
        format!("{title}\n{}\n", legend.join("   "))
    }
}

fn painted(text: &str, paint: &str, colour: bool) -> String {
    if colour { format!("{paint}{text}{RESET}") } else { text.to_owned() }
}

fn push_cell(out: &mut String, cell: &Cell, colour: bool) {
    match (cell.dots, cell.mark) {
        (0, false) => out.push(' '),
        (0, true) => out.push_str(&painted("┊", MARK, colour)),
        (dots, mark) => {
            let braille = char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' ').to_string();
            let paint = if mark { MARK } else { COLOURS[cell.series % COLOURS.len()] };
            out.push_str(&painted(&braille, paint, colour));
        }
    }
}

/// The label of the tick that lies in this row, padded.
fn rate_label(rate: &Axis, row: usize, rows: usize) -> String {
    let of_row = |tick: &f64| ((1.0 - rate.place(*tick)) * (rows - 1) as f64).round() as usize == row;
    let text = rate.ticks.iter().copied().find(|tick| of_row(tick)).map(label).unwrap_or_default();
    format!("{text:>LABEL_COLUMNS$}")
}

fn time_axis(time: &Axis, columns: usize) -> String {
    let mut line = vec!['─'; columns];
    let mut labels = vec![' '; columns + LABEL_COLUMNS];
    for &tick in &time.ticks {
        let column = (time.place(tick) * (columns - 1) as f64).round() as usize;
        line[column] = '┴';
        let text = format!("{} s", label(tick));
        if column + text.len() <= columns + LABEL_COLUMNS {
            text.chars().enumerate().for_each(|(at, letter)| labels[column + at] = letter);
        }
    }
    let indent = " ".repeat(LABEL_COLUMNS);
    let (line, labels): (String, String) = (line.into_iter().collect(), labels.into_iter().collect());
    format!("{indent}└{line}\n{indent} {}\n", labels.trim_end())
}
