//! The plots of the report: which values they are made of. How they are drawn is told by [`super::svg`] and [`super::bars`].

use crate::e3_durable::cells;
use crate::engine::Engine;
use crate::measure::Work;
use crate::plan::Experiment::{self, E1, E3, E4, E6};
use crate::scale::Sizing;

use super::bars::{Bar, Bars};
use super::goals::RECOVERIES;
use super::svg::{Plot, Series};
use super::table::{Spread, Unit, Values};

/// A stretch of work: experiment, variant, name.
pub(crate) type Place<'a> = (Experiment, &'a str, &'a str);

/// What plots are made of.
pub(crate) struct Plots<'a> {
    pub(crate) values: &'a Values<'a>,
    pub(crate) engines: &'a [Engine],
}

impl Plots<'_> {
    /// Plots that stand alone as well, for documents: file name and SVG.
    pub(crate) fn pictures(&self) -> Vec<(&'static str, String)> {
        let rate = |variant, title| self.over_time((E1, variant, "insert"), title, "rows per second", true);
        vec![
            ("rate.svg", rate("unlimited", "Rows inserted per second, no limit on I/O")),
            ("rate-limited.svg", rate("limited", "Rows inserted per second, limited volume")),
            ("recovery.svg", self.recovery()),
        ]
    }

    /// The rate of each second; the plug is marked where it was pulled.
    pub(crate) fn over_time(&self, place: Place, title: &str, y: &str, plug: bool) -> String {
        let (experiment, variant, work) = place;
        let series = self.series(plug, |engine| {
            let work = self.values.curve(experiment, engine, variant, work)?;
            Some(work.by_second.iter().enumerate().map(|(second, rate)| (second as f64 + 1.0, *rate)).collect())
        });
        let x = if plug { "seconds (✕: the plug is pulled)" } else { "seconds" };
        drawn(Plot { title, x, y, x_log: false, y_log: false, series })
    }

    pub(crate) fn recovery(&self) -> String {
        let mut all = Vec::new();
        for (volume, suffix) in [("unlimited", ""), ("limited", ", limited")] {
            for mut one in self.series(false, |engine| self.recoveries(engine, volume)) {
                if volume == "limited" {
                    one.colour = lighter(one.colour);
                }
                one.name.push_str(suffix);
                all.push(one);
            }
        }
        drawn(Plot {
            title: "Recovery time against insert rate",
            x: "rows inserted per second before the kill",
            y: "seconds until the first SELECT",
            x_log: true,
            y_log: true,
            series: all,
        })
    }

    /// Insert rates and recovery times, by rate.
    fn recoveries(&self, engine: Engine, volume: &str) -> Option<Vec<(f64, f64)>> {
        let runs = RECOVERIES.iter().filter(|(_, variant, _)| variant.rsplit('-').next() == Some(volume));
        let mut points: Vec<(f64, f64)> = runs
            .filter_map(|&(experiment, variant, _)| {
                let rate = self.values.work(experiment, engine, variant, "insert", Work::rate)?;
                let ready = self.values.number(experiment, engine, variant, "ready_seconds")?;
                Some((rate.median, ready.median))
            })
            .collect();
        points.sort_by(|left, right| left.0.total_cmp(&right.0));
        (!points.is_empty()).then_some(points)
    }

    /// Which share of the transactions was answered within a time.
    pub(crate) fn latencies(&self, place: Place, title: &str) -> String {
        let (experiment, variant, work) = place;
        let series = self.series(false, |engine| {
            let work = self.values.curve(experiment, engine, variant, work)?;
            Some(work.latency_ms.distribution.iter().map(|&(ms, share)| (ms, share * 100.0)).collect())
        });
        drawn(Plot { title, x: "milliseconds", y: "percent answered", x_log: true, y_log: false, series })
    }

    /// Durable insertion by one client against the size of a transaction.
    pub(crate) fn transaction_size(&self, sizing: &Sizing) -> String {
        let series = self.series(false, |engine| {
            let wanted = cells(sizing).into_iter().filter(|cell| cell.sync && cell.clients == 1);
            let point = |cell: crate::e3_durable::Cell| {
                let rate = self.values.work(E3, engine, "memory", &cell.name(), Work::rate)?;
                Some((cell.rows as f64, rate.median))
            };
            Some(wanted.filter_map(point).collect())
        });
        let title = "Rows per second, one client, every transaction synced";
        drawn(Plot { title, x: "rows per transaction", y: "rows per second", x_log: true, y_log: true, series })
    }

    /// Throughput on the limited volume against the table's size.
    pub(crate) fn table_size(&self, sizing: &Sizing, test: &str, name: &str) -> String {
        let sizes = [("small", sizing.sysbench_rows), ("large", sizing.sysbench_large_rows)];
        let series = self.series(false, |engine| {
            let point = |&(variant, rows): &(&str, u64)| {
                self.values.work(E4, engine, variant, name, Work::rate).map(|rate| (rows as f64, rate.median))
            };
            let points: Vec<(f64, f64)> = sizes.iter().filter_map(point).collect();
            (points.len() > 1).then_some(points)
        });
        let title = format!("{test}: transactions per second against table size");
        drawn(Plot { title: &title, x: "rows", y: "transactions per second", x_log: true, y_log: true, series })
    }

    pub(crate) fn written_per_row(&self) -> String {
        let written = |experiment, variant, work| {
            self.bars(|engine| self.values.work(experiment, engine, variant, work, Work::written_per_unit))
        };
        let groups = vec![
            ("inserting, no limit".into(), written(E1, "unlimited", "insert")),
            ("inserting, limited volume".into(), written(E1, "limited", "insert")),
            ("loading".into(), written(E6, "iibench", "load")),
        ];
        Bars { title: "Bytes written per row of iiBench's table", unit: Unit::Bytes, groups }.draw()
    }

    pub(crate) fn size_on_disk(&self) -> String {
        let per_row = |experiment, variant, rows| self.bars(|engine| self.per_row(experiment, engine, variant, rows));
        let groups = vec![
            ("iiBench, after loading".into(), per_row(E6, "iibench", "rows")),
            ("iiBench, after experiment 1".into(), per_row(E1, "unlimited", "rows_on_disk")),
            ("sysbench, after loading".into(), per_row(E6, "sysbench", "rows")),
        ];
        Bars { title: "Size on disk, bytes per row", unit: Unit::Bytes, groups }.draw()
    }

    /// Bytes on disk by the number of rows of that name.
    pub(crate) fn per_row(&self, experiment: Experiment, engine: Engine, variant: &str, rows: &str) -> Option<Spread> {
        let bytes = self.values.number(experiment, engine, variant, "bytes_on_disk")?;
        let rows = self.values.number(experiment, engine, variant, rows)?.median;
        Some(bytes.map(|bytes| bytes / rows))
    }

    fn bars(&self, value: impl Fn(Engine) -> Option<Spread>) -> Vec<Bar> {
        let bar = |&engine: &Engine| {
            let value = value(engine)?.median;
            Some(Bar { name: engine.title(), colour: colour(engine), value })
        };
        self.engines.iter().filter_map(bar).collect()
    }

    /// A series per engine that has points.
    fn series(&self, plug: bool, points: impl Fn(Engine) -> Option<Vec<(f64, f64)>>) -> Vec<Series> {
        let one = |&engine: &Engine| {
            let points = points(engine).filter(|points| !points.is_empty())?;
            Some(Series { name: engine.title().into(), colour: colour(engine), points, plug })
        };
        self.engines.iter().filter_map(one).collect()
    }
}

/// Nothing where nothing was measured.
fn drawn(plot: Plot) -> String {
    if plot.series.is_empty() { String::new() } else { plot.draw() }
}

fn colour(engine: Engine) -> &'static str {
    match engine {
        Engine::Frond => "#0a7d33",
        Engine::Innodb => "#c45500",
        Engine::Rocksdb => "#2255bb",
        Engine::Blackhole => "#999999",
    }
}

/// The colour of the same engine in a second role.
fn lighter(colour: &'static str) -> &'static str {
    match colour {
        "#0a7d33" => "#7cc795",
        "#c45500" => "#f0b080",
        "#2255bb" => "#93b0e6",
        other => other,
    }
}
