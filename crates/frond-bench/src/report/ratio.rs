//! Two engines side by side: every figure with its ratio.

use comfy_table::Cell;

use super::Report;
use super::table::{figures, number, table};
use crate::measure::Phase;

/// The same workload with the same options on several engines; the first is compared with each other one.
pub fn ratio_table(reports: &[Report]) -> String {
    let Some((first, rivals)) = reports.split_first() else {
        return String::new();
    };
    let mut header = vec!["figure".to_owned(), first.engine.clone()];
    for rival in rivals {
        header.extend([rival.engine.clone(), format!("{} ÷ {}", first.engine, rival.engine)]);
    }
    let mut table = table(&header);
    for phase in &first.outcome.phases {
        let others: Vec<Option<&Phase>> = rivals.iter().map(|rival| rival.phase(&phase.name)).collect();
        table.add_row([Cell::new(phase.name.to_uppercase())]);
        let base = first.outcome.memory_base_bytes;
        for (at, (label, value)) in figures(phase, base).into_iter().enumerate() {
            let theirs = |other: &Phase, rival: &Report| figures(other, rival.outcome.memory_base_bytes)[at].1;
            let others: Vec<Option<f64>> =
                others.iter().zip(rivals).map(|(other, rival)| other.and_then(|other| theirs(other, rival))).collect();
            if value.is_none() && others.iter().all(Option::is_none) {
                continue;
            }
            add(&mut table, label, value, others);
        }
    }
    if !first.outcome.facts.is_empty() {
        table.add_row([Cell::new("FURTHER")]);
    }
    for fact in &first.outcome.facts {
        let others = rivals.iter().map(|rival| rival.fact(&fact.name));
        add(&mut table, &format!("{} {}", fact.name, fact.unit), Some(fact.value), others);
    }
    table.to_string()
}

fn add(table: &mut comfy_table::Table, label: &str, value: Option<f64>, others: impl IntoIterator<Item = Option<f64>>) {
    let mut row = vec![format!("  {label}"), show(value)];
    for other in others {
        row.extend([show(other), ratio(value, other)]);
    }
    table.add_row(row);
}

/// A figure, or a dash.
pub(super) fn show(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

/// Ours over theirs.
pub(super) fn ratio(ours: Option<f64>, theirs: Option<f64>) -> String {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) if theirs > 0.0 => format!("{:.2}", ours / theirs),
        _ => "–".to_owned(),
    }
}
