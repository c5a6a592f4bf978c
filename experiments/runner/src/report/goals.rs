//! What FROND is meant to reach, and whether it did.

use crate::e3_durable::cells;
use crate::e4_sysbench::{self, LIMITED_TESTS, LIMITED_THREADS};
use crate::engine::Engine;
use crate::measure::Work;
use crate::plan::Experiment::{self, E1, E2, E3, E4, E5, E6, E7};
use crate::plan::IN_TURN;
use crate::scale::Sizing;

use super::table::{Spread, Values};

/// A goal: what was seen in words, and whether that is enough; `None` where it was not measured.
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) goal: String,
    pub(crate) seen: String,
    pub(crate) reached: Option<bool>,
}

/// With two digits; with three where a goal that was just missed would look reached.
fn rounded(value: f64, enough: impl Fn(f64) -> bool) -> String {
    match enough((value * 100.0).round() / 100.0) == enough(value) {
        true => format!("{value:.2}"),
        false => format!("{value:.3}"),
    }
}

struct Judge<'a> {
    values: &'a Values<'a>,
    goals: Vec<Goal>,
}

/// Recovery runs: where their figures stand, and how the report calls them.
pub(crate) const RECOVERIES: [(Experiment, &str, &str); 6] = [
    (E1, "unlimited", "full speed, no limit"),
    (E1, "limited", "full speed, limited volume"),
    (E2, "2000-unlimited", "2,000 rows/s, no limit"),
    (E2, "2000-limited", "2,000 rows/s, limited volume"),
    (E2, "200-unlimited", "200 rows/s, no limit"),
    (E2, "200-limited", "200 rows/s, limited volume"),
];
/// Seconds beyond a clean start that a start after a kill may take.
const RECOVERY_SECONDS: f64 = 0.3;
/// Differences of starts below this are noise.
const NOISE_SECONDS: f64 = 0.05;

/// Every goal that the run's experiments can tell about.
pub(crate) fn goals(values: &Values, sizing: &Sizing) -> Vec<Goal> {
    let mut judge = Judge { values, goals: Vec::new() };
    judge.insertion();
    judge.recovery();
    judge.durable(sizing);
    judge.sysbench(sizing);
    judge.tpcc();
    judge.size();
    judge.rollback();
    judge.worst_seconds();
    judge.goals
}

impl Judge<'_> {
    fn tell(&mut self, what: impl Into<String>, goal: &str, seen: String, reached: Option<bool>) {
        self.goals.push(Goal { what: what.into(), goal: goal.into(), seen, reached });
    }

    /// FROND's value over that of the rival against which it is lowest.
    fn ratio(&self, value: impl Fn(Engine) -> Option<Spread>, rivals: &[Engine]) -> Option<f64> {
        let own = value(Engine::Frond)?;
        rivals.iter().filter_map(|&rival| own.over(&value(rival)?)).reduce(f64::min)
    }

    fn compare(&mut self, what: String, goal: &str, ratio: Option<f64>, enough: impl Fn(f64) -> bool) {
        let seen = ratio.map_or("not measured".into(), |ratio| format!("{} ×", rounded(ratio, &enough)));
        self.tell(what, goal, seen, ratio.map(enough));
    }

    fn insertion(&mut self) {
        for (variant, title) in [("unlimited", "no limit"), ("limited", "limited volume")] {
            let values = self.values;
            let rate = |engine| values.work(E1, engine, variant, "insert", Work::rate);
            for (rival, factor) in
                [(Engine::Rocksdb, 2.0), (Engine::Innodb, if variant == "limited" { 200.0 } else { 35.0 })]
            {
                let ratio = self.ratio(rate, &[rival]);
                let what = format!("iiBench beyond memory, {title}, rows/s");
                self.compare(what, &format!("≥ {factor:.0} × {}", rival.title()), ratio, |ratio| ratio >= factor);
            }
            let own = |value: fn(&Work) -> f64| values.work(E1, Engine::Frond, variant, "insert", value);
            if let Some(share) = own(|work| work.quarters().1 / work.quarters().0) {
                let enough = |share| share >= 0.85;
                let seen = rounded(share.median, enough);
                let what = format!("last quarter against first, {title}");
                self.tell(what, "≥ 0.85", seen, Some(enough(share.median)));
            }
            if let Some(bytes) = own(Work::written_per_unit) {
                let seen = format!("{:.2} KB", bytes.median / 1e3);
                self.tell(format!("written per row, {title}"), "≤ 0.45 KB", seen, Some(bytes.median <= 450.0));
            }
        }
    }

    fn recovery(&mut self) {
        for (experiment, variant, title) in RECOVERIES {
            self.start(experiment, variant, &format!("recovery after a kill at {title}"));
            let values = self.values;
            let ready =
                |engine| values.number(experiment, engine, variant, "ready_seconds").map(|spread| spread.median);
            let (Some(own), Some(rival)) =
                (ready(Engine::Frond), Engine::RIVALS.into_iter().filter_map(ready).reduce(f64::min))
            else {
                continue;
            };
            let seen = format!("{own:.2} s against {rival:.2} s");
            let what = format!("the same against the rivals, {title}");
            self.tell(what, "never behind either (50 ms are noise)", seen, Some(own <= rival + NOISE_SECONDS));
        }
    }

    /// Ready soon after a clean start.
    fn start(&mut self, experiment: Experiment, variant: &str, what: &str) {
        let number = |name| self.values.number(experiment, Engine::Frond, variant, name).map(|spread| spread.median);
        if let (Some(ready), Some(clean)) = (number("ready_seconds"), number("clean_ready_seconds")) {
            let seen = format!("{ready:.2} s; clean start {clean:.2} s");
            self.tell(what, "within 0.3 s of a clean start", seen, Some(ready <= clean + RECOVERY_SECONDS));
        }
    }

    fn durable(&mut self, sizing: &Sizing) {
        for cell in cells(sizing) {
            let (name, values) = (cell.name(), self.values);
            let ratio = self.ratio(|engine| values.work(E3, engine, "memory", &name, Work::rate), &Engine::RIVALS);
            self.compare(format!("durable insertion: {name}"), "≥ 1.0 × the better rival", ratio, |ratio| {
                ratio >= 1.0
            });
        }
    }

    fn sysbench(&mut self, sizing: &Sizing) {
        let values = self.values;
        for (test, threads) in e4_sysbench::cells(sizing) {
            let name = e4_sysbench::name(test, threads);
            let ratio = self.ratio(|engine| values.work(E4, engine, IN_TURN, &name, Work::rate), &Engine::RIVALS);
            self.compare(format!("in memory: {name}"), "≥ 1.0 × the better rival", ratio, |ratio| ratio >= 1.0);
        }
        for (test, factor) in LIMITED_TESTS {
            let name = e4_sysbench::name(test, LIMITED_THREADS);
            let ratio = self.ratio(|engine| values.work(E4, engine, "large", &name, Work::rate), &Engine::RIVALS);
            let goal = format!("≥ {factor:.1} × the better rival");
            self.compare(format!("table beyond memory: {test}"), &goal, ratio, |ratio| ratio >= factor);
        }
    }

    fn tpcc(&mut self) {
        for (variant, title, factor) in
            [("memory", "in memory", 1.0), ("limited", "beyond memory, limited volume", 1.5)]
        {
            let values = self.values;
            let ratio = self.ratio(|engine| values.number(E5, engine, variant, "tpmc"), &Engine::RIVALS);
            let goal = format!("≥ {factor:.1} × the better rival");
            self.compare(format!("TPC-C {title}, tpmC"), &goal, ratio, |ratio| ratio >= factor);
            self.start(E5, variant, &format!("TPC-C {title}, after the kill"));
            if let Some(consistent) = values.number(E5, Engine::Frond, variant, "consistent") {
                // Of every run.
                let holds = consistent.low > 0.0;
                let seen = if holds { "they hold" } else { "violated" };
                self.tell(
                    format!("TPC-C {title}, consistency conditions after the kill"),
                    "they hold",
                    seen.into(),
                    Some(holds),
                );
            }
        }
    }

    fn size(&mut self) {
        for (variant, title) in [("iibench", "iiBench"), ("sysbench", "sysbench")] {
            for (rival, factor) in [(Engine::Rocksdb, 0.85), (Engine::Innodb, 0.35)] {
                let values = self.values;
                let ratio = self.ratio(|engine| values.number(E6, engine, variant, "bytes_on_disk"), &[rival]);
                let goal = format!("≤ {factor} × {}", rival.title());
                self.compare(format!("size of the {title} table"), &goal, ratio, |ratio| ratio <= factor);
            }
        }
    }

    fn rollback(&mut self) {
        for variant in ["insert", "update"] {
            let number = |name| self.values.number(E7, Engine::Frond, variant, name).map(|spread| spread.median);
            let clean = number("clean_ready_seconds");
            if let Some(seconds) = number("rollback_seconds") {
                let seen = format!("{:.1} ms", seconds * 1e3);
                self.tell(format!("rollback ({variant})"), "≤ 10 ms", seen, Some(seconds <= 0.01));
            }
            for (name, killed) in
                [("free_seconds", "in rollback, or right after it"), ("open_free_seconds", "with the transaction open")]
            {
                if let (Some(free), Some(clean)) = (number(name), clean) {
                    let seen = format!("{free:.2} s; clean start {clean:.2} s");
                    let what = format!("rows free after a kill {killed} ({variant})");
                    self.tell(what, "within 0.3 s of a clean start", seen, Some(free <= clean + RECOVERY_SECONDS));
                }
            }
        }
    }

    fn worst_seconds(&mut self) {
        for (experiment, variant, work, title) in WRITES {
            let share =
                self.values.work(experiment, Engine::Frond, variant, work, |work| work.worst_second() / work.rate());
            if let Some(share) = share {
                let enough = |share| share >= 0.5;
                let seen = format!("{} × the mean", rounded(share.median, enough));
                self.tell(format!("worst second: {title}"), "≥ 0.5 × the mean", seen, Some(enough(share.median)));
            }
        }
    }
}

/// Stretches of writing whose worst moments are told together.
pub(crate) const WRITES: [(Experiment, &str, &str, &str); 13] = [
    (E1, "unlimited", "insert", "iiBench, no limit"),
    (E1, "limited", "insert", "iiBench, limited volume"),
    (Experiment::E8, "checkpoint", "insert", "iiBench, long reader and checkpoint"),
    (Experiment::E8, "queue", "insert at the tail", "queue, insert at the tail"),
    (Experiment::E8, "queue", "delete at the head", "queue, delete at the head"),
    (E4, "small", "oltp_update_index, 16 threads", "sysbench update_index of the small table, limited volume"),
    (E4, "small", "oltp_update_non_index, 16 threads", "sysbench update_non_index of the small table, limited volume"),
    (E4, "small", "oltp_read_write, 16 threads", "sysbench read_write of the small table, limited volume"),
    (E4, "large", "oltp_update_index, 16 threads", "sysbench update_index beyond memory"),
    (E4, "large", "oltp_update_non_index, 16 threads", "sysbench update_non_index beyond memory"),
    (E4, "large", "oltp_read_write, 16 threads", "sysbench read_write beyond memory"),
    (E5, "memory", "new_order", "TPC-C in memory"),
    (E5, "limited", "new_order", "TPC-C beyond memory, limited volume"),
];
