//! Tables for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::Report;
use super::ratio::show;
use crate::measure::Phase;

const MIB: f64 = (1u64 << 20) as f64;

/// An empty table; numbers to the right.
pub(super) fn table<T: AsRef<str>>(header: &[T]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header(header.iter().map(AsRef::as_ref));
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// A number with as many digits as it deserves.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{:.2} M", value / 1e6),
        size if size >= 1e3 => grouped(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size > 0.0 && size < 0.01 => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}

/// With a comma between thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let head = digits.len() % 3;
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && at % 3 == head {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A phase's figures, as label and value. A phase of one operation has no rates.
pub(super) fn figures(phase: &Phase, base_bytes: u64) -> Vec<(&'static str, Option<f64>)> {
    let many = phase.operations > 1;
    let rate = |rate: Option<f64>| rate.filter(|_| many);
    let latency = phase.latency.filter(|_| many);
    vec![
        ("operations", rate(Some(phase.operations as f64))),
        ("seconds", Some(phase.seconds)),
        ("rate /s", rate(Some(phase.rate))),
        ("first quarter /s", rate(phase.first_quarter)),
        ("last quarter /s", rate(phase.last_quarter)),
        ("slowest second /s", rate(phase.slowest_second)),
        ("p50 µs", latency.map(|latency| latency.p50_us)),
        ("p99 µs", latency.map(|latency| latency.p99_us)),
        ("p99.9 µs", latency.map(|latency| latency.p999_us)),
        ("max µs", latency.map(|latency| latency.max_us)),
        ("CPU µs each", Some(phase.cpu_us_per_operation)),
        ("written B each", Some(phase.written_bytes_per_operation)),
        ("read B each", Some(phase.read_bytes_per_operation)),
        ("reads each", Some(phase.read_calls_per_operation)),
        ("on disk MiB", Some(phase.disk_bytes as f64 / MIB)),
        ("memory peak MiB", Some(phase.memory_peak_bytes.saturating_sub(base_bytes) as f64 / MIB)),
    ]
}

/// One column per phase.
pub fn phases_table(report: &Report) -> String {
    let outcome = &report.outcome;
    let mut header = vec![report.engine.as_str()];
    header.extend(outcome.phases.iter().map(|phase| phase.name.as_str()));
    let columns: Vec<_> = outcome.phases.iter().map(|phase| figures(phase, outcome.memory_base_bytes)).collect();
    let Some(first) = columns.first() else {
        return String::new();
    };
    let mut table = table(&header);
    for (at, (label, _)) in first.iter().enumerate() {
        table.add_row(std::iter::once((*label).to_owned()).chain(columns.iter().map(|column| show(column[at].1))));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

/// The further figures, and the engine's own counters.
pub fn facts_table(report: &Report) -> String {
    let outcome = &report.outcome;
    let mut table = table(&["figure", "value", "unit"]);
    for fact in &outcome.facts {
        table.add_row([fact.name.clone(), number(fact.value), fact.unit.clone()]);
    }
    let statistics = &outcome.statistics;
    for (cause, bytes) in &statistics.written_bytes {
        table.add_row([format!("engine: {cause} written"), number(*bytes as f64 / MIB), "MiB".to_owned()]);
    }
    for (part, bytes) in &statistics.memory_bytes {
        table.add_row([format!("engine memory: {part}"), number(*bytes as f64 / MIB), "MiB".to_owned()]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_what_matters() {
        for (value, text) in [
            (0.0, "0.00"),
            (0.0031, "0.0031"),
            (1.234, "1.23"),
            (45.67, "45.7"),
            (678.9, "679"),
            (1234.5, "1,234"),
            (58_313.0, "58,313"),
            (2.5e6, "2.50 M"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
