//! Values out of the findings, and tables of them: a line per measure, a column per engine, and how FROND compares.

use crate::engine::Engine;
use crate::measure::{Work, median};
use crate::plan::{Experiment, Finding};

use super::svg::escape;

/// Repeats of a part at most.
const REPEATS_MAX: usize = 8;

/// A value of several runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) runs: usize,
    /// By repeat; NaN where there is none.
    values: [f64; REPEATS_MAX],
}

impl Spread {
    /// Of the value of each repeat.
    fn of(repeats: impl IntoIterator<Item = (u32, f64)>) -> Option<Self> {
        let mut values = [f64::NAN; REPEATS_MAX];
        for (repeat, value) in repeats.into_iter().filter(|(_, value)| value.is_finite()) {
            values[repeat as usize] = value;
        }
        let there = || values.iter().copied().filter(|value| !value.is_nan());
        let (low, high) = (there().fold(f64::INFINITY, f64::min), there().fold(f64::NEG_INFINITY, f64::max));
        let runs = there().count();
        (runs > 0).then(|| Spread { median: median(&values), low, high, runs, values })
    }

    /// The same of another measure, which grows with this one.
    pub(crate) fn map(self, of: impl Fn(f64) -> f64) -> Self {
        let values = self.values.map(&of);
        Spread { median: of(self.median), low: of(self.low), high: of(self.high), runs: self.runs, values }
    }

    /// How many times the other it is: the median of what it was in each round, because engines take turns on a machine whose speed
    /// drifts from one round to the next. None where they share no round.
    pub(crate) fn over(&self, other: &Spread) -> Option<f64> {
        let rounds: Vec<f64> = self.values.iter().zip(&other.values).map(|(own, other)| own / other).collect();
        Some(median(&rounds)).filter(|ratio| !ratio.is_nan())
    }
}

/// The findings, by what they are about.
pub(crate) struct Values<'a>(pub(crate) &'a [Finding]);

impl<'a> Values<'a> {
    fn of(&self, experiment: Experiment, engine: Engine, variant: &str) -> impl Iterator<Item = &'a Finding> {
        self.0.iter().filter(move |finding| {
            (finding.experiment, finding.engine) == (experiment, engine)
                && finding.variant == variant
                && finding.failed.is_none()
        })
    }

    pub(crate) fn number(&self, experiment: Experiment, engine: Engine, variant: &str, name: &str) -> Option<Spread> {
        let of = |finding: &Finding| Some((finding.repeat, *finding.numbers.get(name)?));
        Spread::of(self.of(experiment, engine, variant).filter_map(of))
    }

    pub(crate) fn work(
        &self,
        experiment: Experiment,
        engine: Engine,
        variant: &str,
        name: &str,
        value: impl Fn(&Work) -> f64,
    ) -> Option<Spread> {
        let of = |finding: &Finding| Some((finding.repeat, value(finding.works.get(name)?)));
        Spread::of(self.of(experiment, engine, variant).filter_map(of))
    }

    /// The stretch of the first run, for its curve.
    pub(crate) fn curve(&self, experiment: Experiment, engine: Engine, variant: &str, name: &str) -> Option<&'a Work> {
        self.of(experiment, engine, variant).find_map(|finding| finding.works.get(name))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Better {
    Higher,
    Lower,
    /// Told, not compared.
    Neither,
}

/// How a number is printed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Count,
    Seconds,
    Milliseconds,
    Bytes,
    Microseconds,
    Share,
    /// A share, printed as a percentage.
    Percent,
    /// 1 or 0.
    YesNo,
}

impl Unit {
    pub(crate) fn print(self, value: f64) -> String {
        match self {
            Unit::Count => count(value),
            Unit::Seconds if value < 0.0995 => format!("{:.1} ms", value * 1e3),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Milliseconds if value < 10.0 => format!("{value:.2} ms"),
            Unit::Milliseconds => format!("{} ms", count(value)),
            Unit::Microseconds => format!("{value:.1} µs"),
            Unit::Share => format!("{value:.2}"),
            Unit::Percent if value < 0.0995 => format!("{:.1} %", value * 100.0),
            Unit::Percent => format!("{:.0} %", value * 100.0),
            Unit::YesNo => if value > 0.0 { "yes" } else { "no" }.into(),
            Unit::Bytes if value >= 1e9 => format!("{:.2} GB", value / 1e9),
            Unit::Bytes if value >= 1e6 => format!("{:.1} MB", value / 1e6),
            Unit::Bytes if value >= 1e3 => format!("{:.2} KB", value / 1e3),
            Unit::Bytes => format!("{value:.0} B"),
        }
    }
}

/// With thousands apart.
fn count(value: f64) -> String {
    if value.abs() < 10.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// A line of a table.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) better: Better,
    pub(crate) unit: Unit,
    pub(crate) cells: Vec<Option<Spread>>,
}

/// FROND's value over the better rival's, so that more than 1 is always good; none where a value is not positive.
pub(crate) fn advantage(engines: &[Engine], cells: &[Option<Spread>], better: Better) -> Option<f64> {
    let value = |engine: Engine| {
        let at = engines.iter().position(|other| *other == engine)?;
        cells.get(at).copied().flatten()
    };
    let own = value(Engine::Frond)?;
    let rivals = Engine::RIVALS.into_iter().filter_map(value);
    let ratio = match better {
        // One that did nothing is not the better rival.
        Better::Higher => {
            rivals.filter(|rival| rival.median > 0.0).filter_map(|rival| own.over(&rival)).reduce(f64::min)
        }
        Better::Lower => rivals.filter_map(|rival| rival.over(&own)).reduce(f64::min),
        Better::Neither => None,
    };
    ratio.filter(|ratio| own.median > 0.0 && *ratio > 0.0)
}

/// The table as HTML. The floor has a column only where it has a value.
pub(crate) fn table(engines: &[Engine], lines: &[Line]) -> String {
    let has_value = |column: usize| lines.iter().any(|line| line.cells.get(column).is_some_and(Option::is_some));
    let shown: Vec<usize> =
        (0..engines.len()).filter(|&column| engines[column] != Engine::Blackhole || has_value(column)).collect();
    let mut html = String::from("<table><tr><th></th>");
    for &column in &shown {
        html.push_str(&format!("<th>{}</th>", engines[column].title()));
    }
    html.push_str("<th>FROND against the better rival</th></tr>");
    for line in lines.iter().filter(|line| line.cells.iter().any(Option::is_some)) {
        html.push_str(&format!("<tr><td>{}</td>", escape(&line.name)));
        for cell in shown.iter().map(|&column| line.cells[column]) {
            html.push_str(&match cell {
                None => "<td>–</td>".into(),
                Some(spread) if spread.runs > 1 => format!(
                    "<td>{} <small>({} to {})</small></td>",
                    line.unit.print(spread.median),
                    line.unit.print(spread.low),
                    line.unit.print(spread.high)
                ),
                Some(spread) => format!("<td>{}</td>", line.unit.print(spread.median)),
            });
        }
        html.push_str(&match advantage(engines, &line.cells, line.better) {
            None => "<td></td>".into(),
            Some(ratio) if ratio >= 1.0 => format!("<td class='win'>{} × better</td>", factor(ratio)),
            Some(ratio) => format!("<td class='loss'>{} × worse</td>", factor(1.0 / ratio)),
        });
        html.push_str("</tr>");
    }
    html + "</table>"
}

fn factor(ratio: f64) -> String {
    if ratio >= 100.0 { format!("{ratio:.0}") } else { format!("{ratio:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Engine; 3] = [Engine::Frond, Engine::Innodb, Engine::Rocksdb];

    fn cells(values: [f64; 3]) -> Vec<Option<Spread>> {
        values.map(|value| Spread::of([(0, value)])).to_vec()
    }

    #[test]
    fn frond_is_compared_with_the_better_rival() {
        assert_eq!(advantage(&ALL, &cells([10.0, 5.0, 8.0]), Better::Higher), Some(1.25));
        assert_eq!(advantage(&ALL, &cells([10.0, 5.0, 8.0]), Better::Lower), Some(0.5));
        assert_eq!(advantage(&ALL, &cells([-0.5, 5.0, 8.0]), Better::Lower), None);
        assert_eq!(advantage(&ALL, &cells([0.5, -5.0, 8.0]), Better::Lower), None);
        assert_eq!(advantage(&ALL, &cells([0.5, 0.0, 0.0]), Better::Higher), None);
        assert_eq!(advantage(&ALL, &cells([10.0, 0.0, 8.0]), Better::Higher), Some(1.25));
        assert_eq!(advantage(&ALL[..1], &cells([10.0, 5.0, 8.0])[..1], Better::Higher), None);
    }

    #[test]
    fn engines_are_compared_round_by_round() {
        // In the second round the machine was half as fast.
        let of = |values: [f64; 3]| Spread::of((0..).zip(values)).unwrap();
        let (own, other) = (of([110.0, 55.0, 90.0]), of([100.0, 50.0, 200.0]));
        assert_eq!((own.median, other.median), (90.0, 100.0));
        assert_eq!(own.over(&other), Some(1.1));
        // A round that one of them lacks does not count.
        let without = Spread::of([(1, 50.0), (2, 200.0)]).unwrap();
        assert_eq!((without.runs, own.over(&without)), (2, Some((1.1 + 0.45) / 2.0)));
        assert_eq!(Spread::of([(3, 1.0)]).unwrap().over(&own), None);
    }

    #[test]
    fn losses_are_told_as_plainly_as_wins() {
        let line = |values| Line { name: "n".into(), better: Better::Higher, unit: Unit::Count, cells: cells(values) };
        let html = table(&ALL, &[line([10.0, 5.0, 8.0]), line([4.0, 5.0, 8.0])]);
        assert!(
            html.contains("<td class='win'>1.25 × better</td>") && html.contains("<td class='loss'>2.00 × worse</td>")
        );
    }

    #[test]
    fn the_floor_has_a_column_only_with_a_value_in_it() {
        let engines = [Engine::Frond, Engine::Blackhole];
        let line = |floor: Option<f64>| Line {
            name: "n".into(),
            better: Better::Higher,
            unit: Unit::Count,
            cells: vec![Spread::of([(0, 1.0)]), floor.and_then(|floor| Spread::of([(0, floor)]))],
        };
        assert!(!table(&engines, &[line(None)]).contains("BLACKHOLE"));
        let html = table(&engines, &[line(None), line(Some(7.0))]);
        assert!(html.contains("BLACKHOLE") && html.contains("<td>–</td>") && html.contains("<td>7</td>"));
    }

    #[test]
    fn numbers_are_for_people() {
        assert_eq!([Unit::Percent.print(0.034), Unit::Percent.print(0.5)], ["3.4 %", "50 %"].map(String::from));
        assert_eq!([Unit::YesNo.print(1.0), Unit::YesNo.print(0.0)], ["yes", "no"].map(String::from));
        assert_eq!(Unit::Count.print(1_234_567.0), "1,234,567");
        assert_eq!(Unit::Seconds.print(0.0123), "12.3 ms");
        assert_eq!(Unit::Bytes.print(1_500.0), "1.50 KB");
        assert_eq!(Unit::Count.print(123.0), "123");
    }
}
