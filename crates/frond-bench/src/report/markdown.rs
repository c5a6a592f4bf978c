//! `docs/benchmarks.md`: hand-written text with generated sections.
//!
//! Each comparison that is recorded is a JSON file beside the page; a section between `<!-- results: NAME -->` and
//! `<!-- end -->` is replaced by that file's tables. Sections of new files are added at the end, and nothing outside
//! the marks is touched.

use std::fmt::Write;

use super::goals::{Bound, Goal, goals, goals_between};
use super::ratio::{ratio, show};
use super::table::{figures, number};
use super::{Comparison, Report};

const END: &str = "<!-- end -->";

/// The page with the section `name` replaced or added.
pub fn with_section(page: &str, name: &str, section: &str) -> String {
    let begin = format!("<!-- results: {name} -->");
    let block = format!("{begin}\n{section}{END}");
    let Some(start) = page.find(&begin) else {
        return format!("{}\n\n{block}\n", page.trim_end());
    };
    let rest = &page[start..];
    let end = rest.find(END).map_or(rest.len(), |end| end + END.len());
    format!("{}{block}{}", &page[..start], &rest[end..])
}

/// The section of one comparison. `plot` is the file name of its picture, if there is one.
pub fn section(comparison: &Comparison, plot: Option<&str>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    write_section(comparison, plot, &mut out).unwrap_or_default();
    out
}

/// The goals of all comparisons in one table.
pub fn summary(comparisons: &[Comparison]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    write_summary(comparisons, &mut out).unwrap_or_default();
    out
}

fn write_summary(comparisons: &[Comparison], out: &mut String) -> std::fmt::Result {
    writeln!(out, "| workload | must reach | bound | measured | |\n|---|---|---:|---:|---|")?;
    for comparison in comparisons {
        for goal in goals(comparison) {
            write!(out, "| {} ", comparison.title)?;
            write_goal(&goal, out)?;
        }
    }
    for (title, goal) in goals_between(comparisons) {
        write!(out, "| {title} ")?;
        write_goal(&goal, out)?;
    }
    Ok(())
}

fn write_section(comparison: &Comparison, plot: Option<&str>, out: &mut String) -> std::fmt::Result {
    writeln!(out, "## {}\n", comparison.title)?;
    writeln!(out, "`{}`  ", comparison.command)?;
    writeln!(out, "commit {}, {}{}\n", comparison.commit, comparison.machine, settings(&comparison.reports))?;
    let goals = goals(comparison);
    if !goals.is_empty() {
        writeln!(out, "| must reach | bound | measured | |\n|---|---:|---:|---|")?;
        goals.iter().try_for_each(|goal| write_goal(goal, out))?;
        writeln!(out)?;
    }
    write_figures(&comparison.reports, out)?;
    if let Some(plot) = plot {
        writeln!(out, "\n![rate over time]({plot})")?;
    }
    Ok(())
}

/// The codec, and what was set for single engines.
fn settings(reports: &[Report]) -> String {
    let mut words = reports.first().map_or_else(String::new, |report| format!(", codec {}", report.codec));
    for report in reports.iter().filter(|report| !report.tuning.is_empty()) {
        let tuning: Vec<String> = report.tuning.iter().map(|(name, value)| format!("{name}={value}")).collect();
        words += &format!(", {}: {}", report.engine, tuning.join(" "));
    }
    words
}

fn write_goal(goal: &Goal, out: &mut String) -> std::fmt::Result {
    let bound = match goal.bound {
        Bound::AtLeast(bound) => format!("≥ {}", number(bound)),
        Bound::AtMost(bound) => format!("≤ {}", number(bound)),
    };
    let verdict = if goal.reached() { "reached" } else { "**not reached**" };
    writeln!(out, "| {} | {bound} | {} | {verdict} |", goal.what, show(goal.got))
}

/// Figures of all phases: rows are figures, columns engines and the ratio to the first rival.
fn write_figures(reports: &[Report], out: &mut String) -> std::fmt::Result {
    let Some((ours, rivals)) = reports.split_first() else {
        return Ok(());
    };
    let rival = rivals.first();
    let theirs = rival.map_or("–", |rival| rival.engine.as_str());
    writeln!(out, "| | {} | {theirs} | ratio |\n|---|---:|---:|---:|", ours.engine)?;
    for phase in &ours.outcome.phases {
        let mine = figures(phase, ours.outcome.memory_base_bytes);
        let other = rival
            .and_then(|rival| rival.phase(&phase.name).map(|phase| figures(phase, rival.outcome.memory_base_bytes)));
        for (at, (label, value)) in mine.into_iter().enumerate().filter(|(_, (_, value))| value.is_some()) {
            let other = other.as_ref().and_then(|other| other[at].1);
            writeln!(out, "| {}: {label} | {} | {} | {} |", phase.name, show(value), show(other), ratio(value, other))?;
        }
    }
    for fact in &ours.outcome.facts {
        let other = rival.and_then(|rival| rival.fact(&fact.name));
        let value = Some(fact.value);
        let label = format!("{} {}", fact.name, fact.unit);
        writeln!(out, "| {} | {} | {} | {} |", label.trim(), show(value), show(other), ratio(value, other))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_replaces_its_own_text_only() {
        let page = "# Title\n\nwords\n\n<!-- results: a -->\nold\n<!-- end -->\n\nmore\n";
        let new = with_section(page, "a", "new\n");
        assert_eq!(new, "# Title\n\nwords\n\n<!-- results: a -->\nnew\n<!-- end -->\n\nmore\n");
        let both = with_section(&new, "b", "other\n");
        assert!(both.starts_with(new.trim_end()));
        assert!(both.ends_with("<!-- results: b -->\nother\n<!-- end -->\n"));
        assert_eq!(with_section(&both, "b", "other\n"), both);
    }
}
