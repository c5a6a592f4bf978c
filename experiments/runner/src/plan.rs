//! The parts of a run: an experiment on an engine in one variant; each is finished or not, and kept when it is.
//!
//! Engines take turns in every variant, so that a machine whose speed drifts treats them alike; what is in memory is short and
//! repeated in rounds, each of which begins with another engine.
//! Parts stand in an order in which loaded tables are used one after the other and then removed. The two
//! first experiments share their runs: the insertion run at full speed ends with the kill that experiment 2 starts with.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::dataset::Kind;
use crate::e4_sysbench::LIMITED_TESTS;
use crate::engine::Engine;
use crate::measure::Work;
use crate::scale::Sizing;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Experiment {
    /// Insertion beyond memory (iiBench)
    E1,
    /// Recovery against insert rate
    E2,
    /// Durable insertion against transaction size
    E3,
    /// Throughput against table size on a limited volume (sysbench)
    E4,
    /// TPC-C with a crash
    E5,
    /// Size and write volume
    E6,
    /// Rollback
    E7,
    /// The worst moments
    E8,
}

impl Experiment {
    pub(crate) fn key(self) -> &'static str {
        ["e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8"][self as usize]
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) experiment: Experiment,
    pub(crate) engine: Engine,
    pub(crate) variant: &'static str,
    pub(crate) repeat: u32,
    /// The loaded table that it begins with.
    pub(crate) dataset: Option<Kind>,
    /// A guess before anything is known.
    pub(crate) seconds: f64,
}

impl Part {
    /// Names the part's file.
    pub(crate) fn key(&self) -> String {
        format!("{}-{}-{}-{}", self.experiment.key(), self.engine.key(), self.variant, self.repeat)
    }
}

/// What came out of a part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) experiment: Experiment,
    pub(crate) engine: Engine,
    pub(crate) variant: String,
    pub(crate) repeat: u32,
    /// How long the part took in all.
    pub(crate) seconds: f64,
    /// Measured stretches by name.
    pub(crate) works: BTreeMap<String, Work>,
    pub(crate) numbers: BTreeMap<String, f64>,
    pub(crate) notes: Vec<String>,
    /// Wrong results: lost or torn transactions, failed checks. Empty is good.
    pub(crate) faults: Vec<String>,
    /// Why the part could not be measured.
    pub(crate) failed: Option<String>,
}

impl Finding {
    pub(crate) fn new(part: &Part) -> Self {
        Finding {
            experiment: part.experiment,
            engine: part.engine,
            variant: part.variant.into(),
            repeat: part.repeat,
            seconds: 0.0,
            works: BTreeMap::new(),
            numbers: BTreeMap::new(),
            notes: Vec::new(),
            faults: Vec::new(),
            failed: None,
        }
    }

    pub(crate) fn set(&mut self, name: &str, number: f64) {
        self.numbers.insert(name.into(), number);
    }
}

/// The variant of short measurements.
const IN_MEMORY: &str = "memory";
/// What the variants of InnoDB with change buffering begin with.
pub(crate) const BUFFERED: &str = "buffered";
/// The variant whose parts are measured together ([`crate::in_turn`]).
pub(crate) const IN_TURN: &str = "in-turn";

/// What is measured on one engine after the other.
struct Round {
    experiment: Experiment,
    variant: &'static str,
    dataset: Option<Kind>,
    seconds: f64,
    repeats: u32,
    /// Of one engine only, in a configuration that the others do not have.
    only: Option<Engine>,
}

/// The parts of the chosen experiments and engines.
pub(crate) fn parts(sizing: &Sizing, experiments: &[Experiment], engines: &[Engine]) -> Vec<Part> {
    let mut parts = Vec::new();
    for repeat in 0..sizing.repeats {
        for round in rounds(sizing, experiments) {
            // A load is kept, and so measured once.
            if round.experiment == Experiment::E6 && repeat > 0 {
                continue;
            }
            for again in 0..round.repeats {
                let (before, after) = engines.split_at(again as usize % engines.len().max(1));
                let turns = after.iter().chain(before).filter(|engine| round.only.is_none_or(|only| only == **engine));
                parts.extend(turns.map(|&engine| Part {
                    experiment: round.experiment,
                    engine,
                    variant: round.variant,
                    repeat: repeat * round.repeats + again,
                    dataset: round.dataset,
                    seconds: round.seconds,
                }));
            }
        }
    }
    let floor = Part {
        experiment: Experiment::E1,
        engine: Engine::Blackhole,
        variant: "floor",
        repeat: 0,
        dataset: None,
        seconds: sizing.floor_seconds + 2.0,
    };
    if experiments.contains(&Experiment::E1) {
        parts.push(floor.clone());
    }
    // As often as what it is the floor of.
    let mut add = |experiment, variant, dataset, repeats, seconds| {
        let of = |repeat| Part { experiment, variant, dataset, repeat, seconds, ..floor.clone() };
        if experiments.contains(&experiment) {
            parts.extend((0..repeats).map(of));
        }
    };
    let seconds = crate::e3_durable::cells(sizing).len() as f64 * (sizing.transaction_seconds + 0.2) + 2.0;
    add(Experiment::E3, IN_MEMORY, None, sizing.repeats * sizing.short_repeats, seconds);
    add(Experiment::E4, IN_TURN, Some(Kind::Sysbench), sizing.repeats, turns_seconds(sizing));
    parts
}

/// What one engine's part of the measuring in turn takes.
fn turns_seconds(sizing: &Sizing) -> f64 {
    crate::e4_sysbench::cells(sizing).len() as f64 * (1.5 + 0.21 * f64::from(sizing.sysbench_rounds)) + 6.0
}

fn rounds(sizing: &Sizing, experiments: &[Experiment]) -> Vec<Round> {
    let wanted = |experiment| experiments.contains(&experiment);
    let mut rounds = Vec::new();
    let mut add = |experiment, variant, dataset, seconds| {
        let repeats = match (experiment, variant) {
            // By itself once, for what is not compared in turn.
            (Experiment::E4, IN_MEMORY) => 1,
            (_, IN_MEMORY) => sizing.short_repeats,
            _ => 1,
        };
        let only = variant.starts_with(BUFFERED).then_some(Engine::Innodb);
        rounds.push(Round { experiment, variant, dataset, seconds, repeats, only });
    };
    let load = sizing.iibench_rows as f64 / 80e3 + 3.0;
    let copy = sizing.iibench_rows as f64 / 4e6 + 1.0;
    if wanted(Experiment::E6) {
        add(Experiment::E6, "iibench", Some(Kind::Iibench), load);
    }
    if wanted(Experiment::E1) || wanted(Experiment::E2) {
        add(Experiment::E1, "unlimited", Some(Kind::Iibench), sizing.insert_seconds + copy + 10.0);
        add(Experiment::E1, "limited", Some(Kind::Iibench), sizing.insert_seconds + copy + 20.0);
    }
    if wanted(Experiment::E1) && sizing.thorough {
        add(Experiment::E1, "buffered-unlimited", Some(Kind::Iibench), sizing.insert_seconds + copy + 10.0);
        add(Experiment::E1, "buffered-limited", Some(Kind::Iibench), sizing.insert_seconds + copy + 20.0);
    }
    if wanted(Experiment::E2) {
        let paced = sizing.paced_seconds + copy + 8.0;
        add(Experiment::E2, "2000-limited", Some(Kind::Iibench), paced + 10.0);
        if sizing.thorough {
            add(Experiment::E2, "2000-unlimited", Some(Kind::Iibench), paced);
            add(Experiment::E2, "200-unlimited", Some(Kind::Iibench), paced);
            add(Experiment::E2, "200-limited", Some(Kind::Iibench), paced + 10.0);
        }
    }
    if wanted(Experiment::E8) {
        add(Experiment::E8, "checkpoint", Some(Kind::Iibench), sizing.worst_seconds + copy + 3.0);
        add(Experiment::E8, "queue", None, sizing.worst_seconds + 5.0);
    }
    if wanted(Experiment::E6) {
        let load = sizing.sysbench_large_rows as f64 / 70e3 + 3.0;
        add(Experiment::E6, "sysbench", Some(Kind::SysbenchLarge), load);
    }
    if wanted(Experiment::E4) {
        let limited = LIMITED_TESTS.len() as u64;
        let tests = (limited * sizing.sysbench_large_seconds + (limited - 1) * sizing.sysbench_warm_seconds) as f64;
        let large = tests + sizing.sysbench_fill_seconds as f64 + 10.0;
        add(Experiment::E4, "large", Some(Kind::SysbenchLarge), large);
        if sizing.thorough {
            let small = tests + sizing.sysbench_fill_small_seconds as f64 + 5.0;
            add(Experiment::E4, "small", Some(Kind::Sysbench), small);
        }
        let tests = crate::e4_sysbench::cells(sizing).len() as f64;
        let seconds = tests * (sizing.sysbench_seconds as f64 + 0.5) + 5.0;
        add(Experiment::E4, IN_MEMORY, Some(Kind::Sysbench), seconds);
        add(Experiment::E4, IN_TURN, Some(Kind::Sysbench), turns_seconds(sizing));
    }
    if wanted(Experiment::E5) {
        let more = sizing.tpcc_warm_seconds as f64 + 2.0 * sizing.warehouses as f64;
        add(Experiment::E5, IN_MEMORY, Some(Kind::Tpcc), sizing.tpcc_memory_seconds as f64 + more);
        if sizing.thorough {
            add(Experiment::E5, "limited", Some(Kind::Tpcc), sizing.tpcc_seconds as f64 + more + 15.0);
        }
    }
    if wanted(Experiment::E3) {
        let cells = crate::e3_durable::cells(sizing).len() as f64;
        add(Experiment::E3, IN_MEMORY, None, cells * (sizing.transaction_seconds + 0.5) + 3.0);
    }
    if wanted(Experiment::E7) {
        let change = sizing.rollback_rows as f64 / 40e3;
        add(Experiment::E7, "insert", None, 4.0 * change + 3.0);
        add(Experiment::E7, "update", None, 7.0 * change + 3.0);
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::Scale;

    #[test]
    fn engines_are_measured_next_to_each_other_and_no_part_twice() {
        use Experiment::{E1, E2, E3, E4, E5, E6, E7, E8};
        let engines = [Engine::Frond, Engine::Innodb, Engine::Rocksdb];
        for scale in [Scale::Smoke, Scale::Desk, Scale::Night] {
            let parts = parts(&scale.sizing(), &[E1, E2, E3, E4, E5, E6, E7, E8], &engines);
            let mut keys: Vec<_> = parts.iter().map(Part::key).collect();
            let is_alone = |part: &Part| part.variant.starts_with(BUFFERED);
            assert!(parts.iter().all(|part| !is_alone(part) || part.engine == Engine::Innodb));
            let rivals: Vec<_> =
                parts.iter().filter(|part| part.engine != Engine::Blackhole && !is_alone(part)).collect();
            let mut first = [0; 3];
            for same in rivals.chunks(engines.len()) {
                let what = |part: &Part| (part.experiment, part.variant, part.repeat);
                assert!(same.iter().all(|part| what(part) == what(same[0])), "{same:?}");
                let mut turns: Vec<_> = same.iter().map(|part| part.engine).collect();
                if what(same[0]).1 == IN_MEMORY && what(same[0]).0 != E4 {
                    first[engines.iter().position(|engine| *engine == turns[0]).unwrap()] += 1;
                }
                turns.sort();
                assert_eq!(turns, engines);
            }
            if scale == Scale::Desk {
                assert_eq!(first, [2; 3], "in memory each engine begins one round of each of two experiments");
            }
            for measured in [(E3, IN_MEMORY), (E4, IN_TURN)] {
                let of =
                    |engine| move |part: &&Part| ((part.experiment, part.variant), part.engine) == (measured, engine);
                let runs = |engine| parts.iter().filter(of(engine)).count();
                assert_eq!(runs(Engine::Blackhole), runs(Engine::Frond), "the floor is measured as often");
            }
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), parts.len());
        }
    }
}
