//! What must be reached, and what was: the engine's speed and memory goals beside RocksDB, read off comparisons.

use super::table::number;
use super::{Comparison, Report};
use crate::workload::reads::READS_PER_MISS;

/// One requirement.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// What is asked.
    pub what: String,
    /// The bound.
    pub bound: Bound,
    /// What was measured; `None` where a figure is missing.
    pub got: Option<f64>,
}

/// A bound on a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Goal {
    /// Measured, and within its bound.
    pub fn reached(&self) -> bool {
        match (self.got, self.bound) {
            (Some(got), Bound::AtLeast(bound)) => got >= bound,
            (Some(got), Bound::AtMost(bound)) => got <= bound,
            (None, _) => false,
        }
    }
}

/// The goals of a comparison's workload; none without a rival, or for workloads without goals.
pub fn goals(comparison: &Comparison) -> Vec<Goal> {
    let [ours, theirs, ..] = comparison.reports.as_slice() else {
        return Vec::new();
    };
    let pair = Pair { ours, theirs };
    let mut goals = match comparison.workload() {
        "iibench" => pair.iibench(),
        "reads" => pair.reads(),
        "scans" => pair.scans(),
        "commit" => pair.commit(),
        "recovery" => vec![pair.own_fact("worst after a kill above mean after a close", Bound::AtMost(300.0), "ms")],
        "rollback" => pair.rollback(),
        "queue" => pair.queue(),
        _ => Vec::new(),
    };
    if let Some(share) = ours.memory_share() {
        goals.push(own("memory peak ÷ budget", Bound::AtMost(MEMORY_SHARE_MAX), Some(share)));
    }
    goals
}

/// Goals of one comparison beside another, with its title: reopening takes as long whatever the size of the table.
pub fn goals_between(comparisons: &[Comparison]) -> Vec<(&str, Goal)> {
    let recoveries: Vec<&Comparison> = comparisons
        .iter()
        .filter(|comparison| comparison.workload() == "recovery" && comparison.reports.len() > 1)
        .collect();
    let mut goals = Vec::new();
    for (at, larger) in recoveries.iter().enumerate() {
        let smaller = recoveries[..at].iter().find(|smaller| differ_in_size(smaller, larger));
        if let Some(goal) = smaller.and_then(|smaller| as_quick(smaller.reports.first()?, larger.reports.first()?)) {
            goals.push((larger.title.as_str(), goal));
        }
    }
    goals
}

/// Were recovery bound to the data, tenfold would take ten times as long; the rest is room for chance in a few kills.
const EQUAL_WITHIN: f64 = 1.5;

fn as_quick(smaller: &Report, larger: &Report) -> Option<Goal> {
    let name = "first answer after a kill, mean";
    let got = larger.fact(name).zip(smaller.fact(name)).map(|(larger, smaller)| larger / smaller);
    let what = format!("{name}, ÷ that at {} MiB", number(smaller.number("size")?));
    Some(own(&what, Bound::AtMost(EQUAL_WITHIN), got))
}

/// The same run, but on more data.
fn differ_in_size(smaller: &Comparison, larger: &Comparison) -> bool {
    let (Some(smaller), Some(larger)) = (smaller.reports.first(), larger.reports.first()) else {
        return false;
    };
    let others = |report: &Report| {
        let mut options = report.parameters.clone();
        options.remove("size");
        (options, report.memory_budget_bytes, report.codec.clone())
    };
    smaller.number("size") < larger.number("size") && others(smaller) == others(larger)
}

/// The budget is kept within 5 %.
const MEMORY_SHARE_MAX: f64 = 1.05;

struct Pair<'a> {
    ours: &'a Report,
    theirs: &'a Report,
}

impl Pair<'_> {
    fn iibench(&self) -> Vec<Goal> {
        let load = self.ours.phase("load");
        let over = |part: Option<f64>, whole: Option<f64>| part.zip(whole).map(|(part, whole)| part / whole);
        let first = load.and_then(|load| load.first_quarter);
        let last = load.and_then(|load| load.last_quarter);
        let slowest = load.and_then(|load| load.slowest_second);
        let mut goals = self.rates(|name| name == "load");
        goals.iter_mut().for_each(|goal| goal.bound = Bound::AtLeast(1.5));
        goals.push(self.fact_ratio("bytes written per row, background work included", Bound::AtMost(0.6)));
        goals.push(own("rate in the last quarter ÷ in the first", Bound::AtLeast(0.8), over(last, first)));
        let mean = load.map(|load| load.rate);
        goals.push(own("slowest 1-s interval ÷ mean", Bound::AtLeast(0.5), over(slowest, mean)));
        goals.push(self.fact_ratio("disk bytes per row at rest", Bound::AtMost(1.0)));
        goals
    }

    fn reads(&self) -> Vec<Goal> {
        let mut goals = self.rates(|name| name.starts_with("get"));
        if self.ours.number("ratio").is_some_and(|ratio| ratio > 1.0) {
            goals.push(own(READS_PER_MISS, Bound::AtMost(1.05), self.ours.fact(READS_PER_MISS)));
            let reads = self.ours.phase("get absent").map(|phase| phase.read_calls_per_operation);
            goals.push(own("reads from storage per get absent", Bound::AtMost(0.02), reads));
        }
        goals
    }

    fn scans(&self) -> Vec<Goal> {
        self.rates(|name| name.contains(','))
    }

    /// One thread's commits are groups of one each: one sync for each, and no other.
    fn commit(&self) -> Vec<Goal> {
        let mut goals = self.rates(|_| true);
        let name = "1 thread: syncs of the log per commit";
        goals.push(own(name, Bound::AtMost(1.01), self.ours.fact(name)));
        goals
    }

    /// All rows have to pass, whatever the bound in time.
    fn queue(&self) -> Vec<Goal> {
        let rows = self.ours.number("rows").unwrap_or(f64::INFINITY);
        let name = "rows through the queue";
        let through = own(name, Bound::AtLeast(rows), self.ours.fact(name));
        vec![through, self.own_fact("first live row, right after", Bound::AtMost(1_000.0), "µs")]
    }

    fn rollback(&self) -> Vec<Goal> {
        let names = self.ours.outcome.facts.iter().map(|fact| fact.name.as_str());
        let rollbacks = names.filter(|name| name.starts_with("rollback of"));
        rollbacks.map(|name| self.own_fact(name, Bound::AtMost(1_000.0), "µs")).collect()
    }

    /// Rates no lower than the rival's, for the phases chosen by name.
    fn rates(&self, choose: impl Fn(&str) -> bool) -> Vec<Goal> {
        let phases = self.ours.outcome.phases.iter().filter(|phase| choose(&phase.name));
        let goal = |phase: &crate::measure::Phase| {
            let theirs = self.theirs.phase(&phase.name);
            let what = format!("{}: rate ÷ {}'s", phase.name, self.theirs.engine);
            own(&what, Bound::AtLeast(1.0), theirs.map(|theirs| phase.rate / theirs.rate))
        };
        phases.map(goal).collect()
    }

    fn fact_ratio(&self, name: &str, bound: Bound) -> Goal {
        let both = self.ours.fact(name).zip(self.theirs.fact(name));
        own(&format!("{name} ÷ {}'s", self.theirs.engine), bound, both.map(|(ours, theirs)| ours / theirs))
    }

    fn own_fact(&self, name: &str, bound: Bound, unit: &str) -> Goal {
        own(&format!("{name}, {unit}"), bound, self.ours.fact(name))
    }
}

fn own(what: &str, bound: Bound, got: Option<f64>) -> Goal {
    Goal { what: what.to_owned(), bound, got }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Outcome;

    #[test]
    fn a_bound_is_reached_at_its_edge_and_never_by_a_missing_figure() {
        assert!(own("", Bound::AtLeast(1.0), Some(1.0)).reached());
        assert!(!own("", Bound::AtLeast(1.0), Some(0.99)).reached());
        assert!(own("", Bound::AtMost(1.0), Some(1.0)).reached());
        assert!(!own("", Bound::AtMost(1.0), Some(1.01)).reached());
        assert!(!own("", Bound::AtMost(1.0), None).reached());
    }
    fn recovery(size: u64, memory: u64, mean_ms: f64) -> Comparison {
        let mut outcome = Outcome::new();
        outcome.fact("first answer after a kill, mean", mean_ms, "ms");
        let report = Report {
            engine: "frond".to_owned(),
            workload: "recovery".to_owned(),
            parameters: [("size".to_owned(), size.into()), ("kills".to_owned(), 5.into())].into(),
            memory_budget_bytes: memory,
            codec: "none".to_owned(),
            tuning: Vec::new(),
            outcome,
        };
        Comparison {
            title: format!("{size} MiB"),
            command: String::new(),
            commit: String::new(),
            machine: String::new(),
            reports: vec![report.clone(), report],
        }
    }

    #[test]
    fn recovery_that_grows_with_the_table_misses_its_goal() {
        let reached = |small_ms, large_ms| {
            let both = [recovery(1_024, 64, small_ms), recovery(10_240, 64, large_ms)];
            let goals = goals_between(&both);
            assert_eq!((goals.len(), goals[0].0), (1, "10240 MiB"));
            assert_eq!(goals[0].1.what, "first answer after a kill, mean, ÷ that at 1,024 MiB");
            goals[0].1.reached()
        };
        assert!(reached(20.0, 19.0) && reached(20.0, 30.0));
        assert!(!reached(20.0, 31.0));
        assert!(goals_between(&[recovery(1_024, 64, 1.0), recovery(10_240, 32, 1.0)]).is_empty(), "another budget");
    }
}
