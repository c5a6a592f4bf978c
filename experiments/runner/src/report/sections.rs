//! A section per experiment: what it shows, what was published, the table, the plots.

use crate::e3_durable::cells;
use crate::e4_sysbench::{self, LIMITED_TESTS, LIMITED_THREADS};
use crate::engine::Engine;
use crate::machine::Machine;
use crate::measure::Work;
use crate::plan::Experiment::{self, E1, E3, E4, E5, E6, E7, E8};
use crate::scale::Sizing;

use super::goals::{RECOVERIES, WRITES};
use super::svg::{Plot, Series};
use super::table::{Better, Line, Spread, Unit, Values, table};

struct Section<'a> {
    values: &'a Values<'a>,
    engines: &'a [Engine],
    sizing: &'a Sizing,
    machine: &'a Machine,
}

/// Every section, in the order of the experiments.
pub(crate) fn all(values: &Values, engines: &[Engine], sizing: &Sizing, machine: &Machine) -> String {
    let section = Section { values, engines, sizing, machine };
    [
        section.insertion(),
        section.recovery(),
        section.durable(),
        section.sysbench(),
        section.tpcc(),
        section.size(),
        section.rollback(),
        section.worst(),
    ]
    .concat()
}

/// Plots that stand alone as well, for documents: file name and SVG.
pub(crate) fn pictures(values: &Values, engines: &[Engine]) -> Vec<(&'static str, String)> {
    vec![
        ("rate.svg", rate_plot(values, engines, "unlimited", "Rows inserted per second, no limit on I/O")),
        ("rate-limited.svg", rate_plot(values, engines, "limited", "Rows inserted per second, limited volume")),
        ("recovery.svg", recovery_plot(values, engines)),
    ]
}

fn colour(engine: Engine) -> &'static str {
    match engine {
        Engine::Frond => "#0a7d33",
        Engine::Innodb => "#c45500",
        Engine::Rocksdb => "#2255bb",
        Engine::Blackhole => "#999999",
    }
}

/// A series per engine that has points.
fn series(engines: &[Engine], plug: bool, points: impl Fn(Engine) -> Option<Vec<(f64, f64)>>) -> Vec<Series> {
    let one = |&engine: &Engine| {
        let points = points(engine)?;
        Some(Series { name: engine.title().into(), colour: colour(engine), points, plug })
    };
    engines.iter().filter_map(one).collect()
}

fn rate_plot(values: &Values, engines: &[Engine], variant: &str, title: &str) -> String {
    let series = series(engines, true, |engine| {
        let work = values.curve(E1, engine, variant, "insert")?;
        Some(work.by_second.iter().enumerate().map(|(second, rate)| (second as f64 + 1.0, *rate)).collect())
    });
    let x = "seconds (✕: the plug is pulled)";
    Plot { title, x, y: "rows per second", x_log: false, y_log: false, series }.draw()
}

fn recovery_plot(values: &Values, engines: &[Engine]) -> String {
    let mut all = Vec::new();
    for (volume, suffix) in [("unlimited", ""), ("limited", ", limited")] {
        for mut one in series(engines, false, |engine| {
            let runs = RECOVERIES.iter().filter(|(_, variant, _)| variant.rsplit('-').next() == Some(volume));
            let mut points: Vec<(f64, f64)> = runs
                .filter_map(|&(experiment, variant, _)| {
                    let rate = values.work(experiment, engine, variant, "insert", Work::rate)?;
                    let ready = values.number(experiment, engine, variant, "ready_seconds")?;
                    Some((rate.median, ready.median))
                })
                .collect();
            points.sort_by(|left, right| left.0.total_cmp(&right.0));
            (!points.is_empty()).then_some(points)
        }) {
            if volume == "limited" {
                one.colour = lighter(one.colour);
            }
            one.name.push_str(suffix);
            all.push(one);
        }
    }
    Plot {
        title: "",
        x: "rows inserted per second before the kill",
        y: "seconds until the first SELECT",
        x_log: true,
        y_log: true,
        series: all,
    }
    .draw()
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

impl Section<'_> {
    fn line(
        &self,
        name: impl Into<String>,
        better: Better,
        unit: Unit,
        value: impl Fn(Engine) -> Option<Spread>,
    ) -> Line {
        Line { name: name.into(), better, unit, cells: self.engines.iter().map(|&engine| value(engine)).collect() }
    }

    fn of_work(
        &self,
        place: (Experiment, &str, &str),
        name: &str,
        better: Better,
        unit: Unit,
        value: impl Fn(&Work) -> f64,
    ) -> Line {
        let (experiment, variant, work) = place;
        self.line(name, better, unit, |engine| self.values.work(experiment, engine, variant, work, &value))
    }

    fn of_number(&self, place: (Experiment, &str), name: &str, better: Better, unit: Unit, number: &str) -> Line {
        let (experiment, variant) = place;
        self.line(name, better, unit, |engine| self.values.number(experiment, engine, variant, number))
    }

    fn after_orderly_end(&self, place: (Experiment, &str)) -> Line {
        self.of_number(place, "  after an orderly end", Better::Neither, Unit::Seconds, "clean_ready_seconds")
    }

    fn table(&self, lines: &[Line]) -> String {
        table(self.engines, lines)
    }

    fn insertion(&self) -> String {
        let mut html = format!(
            "<h2>1. Insertion beyond memory</h2><p>iiBench's table holds {} rows, several times the engine's cache; one \
             client adds transactions of 1,000 rows, durable each. Every row makes three random index entries, which a \
             B-tree must read and write at random places. Published: TokuDB 16,000 rows/s where InnoDB made under 200 \
             (2009); MyRocks 36,000 to 43,000 where InnoDB made 3,600 to 5,800 (2021).</p>",
            Unit::Count.print(self.sizing.iibench_rows as f64)
        );
        let floor = self.values.work(E1, Engine::Blackhole, "floor", "insert", Work::rate);
        for (variant, title) in [("unlimited", "No limit on I/O"), ("limited", "Limited volume")] {
            let place = (E1, variant, "insert");
            let disk = self.machine.bytes_per_second;
            let mut lines = vec![
                self.of_work(place, "rows per second", Better::Higher, Unit::Count, Work::rate),
                self.of_work(place, "first quarter", Better::Neither, Unit::Count, |work| work.quarters().0),
                self.of_work(place, "last quarter", Better::Higher, Unit::Count, |work| work.quarters().1),
                self.of_work(place, "worst second", Better::Higher, Unit::Count, Work::worst_second),
                self.of_work(place, "p99.9 of a transaction", Better::Lower, Unit::Milliseconds, |work| {
                    work.latency_ms.p999
                }),
                self.of_work(place, "longest transaction", Better::Lower, Unit::Milliseconds, |work| {
                    work.latency_ms.max
                }),
                self.of_work(place, "written per row", Better::Lower, Unit::Bytes, Work::written_per_unit),
                self.of_work(place, "read per row", Better::Lower, Unit::Bytes, |work| {
                    work.bytes_read as f64 / work.units
                }),
                self.of_work(place, "server CPU per row", Better::Lower, Unit::Microseconds, Work::cpu_us_per_unit),
                self.of_work(
                    place,
                    "share of the disk's sequential writing",
                    Better::Neither,
                    Unit::Share,
                    move |work| work.bytes_written as f64 / work.seconds / disk,
                ),
                self.of_number(
                    (E1, variant),
                    "client's share of all CPU",
                    Better::Neither,
                    Unit::Share,
                    "client_cpu_share",
                ),
            ];
            if let Some(floor) = floor.filter(|_| variant == "unlimited") {
                lines.push(self.of_work(
                    place,
                    "share of the server's own limit",
                    Better::Higher,
                    Unit::Share,
                    move |work| work.rate() / floor.median,
                ));
            }
            html.push_str(&format!("<h3>{title}</h3>{}", self.table(&lines)));
            html.push_str(&rate_plot(
                self.values,
                self.engines,
                variant,
                &format!("Rows inserted per second: {title}"),
            ));
        }
        if let Some(floor) = floor {
            html.push_str(&format!(
                "<p>The server itself takes {} rows/s of the same statements into an engine that throws them away: the \
                 limit of any engine.</p>",
                Unit::Count.print(floor.median)
            ));
        }
        html + &self.latencies()
    }

    fn latencies(&self) -> String {
        let series = series(self.engines, false, |engine| {
            let work = self.values.curve(E1, engine, "unlimited", "insert")?;
            Some(work.latency_ms.distribution.iter().map(|&(ms, share)| (ms, share * 100.0)).collect())
        });
        let title = "Transactions of 1,000 rows: how many were answered within a time";
        Plot { title, x: "milliseconds", y: "percent", x_log: true, y_log: false, series }.draw()
    }

    fn recovery(&self) -> String {
        let mut lines = Vec::new();
        for (experiment, variant, title) in RECOVERIES {
            let place = (experiment, variant);
            let lost = format!("{title}: first SELECT after the kill");
            lines.push(self.of_number(place, &lost, Better::Lower, Unit::Seconds, "ready_seconds"));
            lines.push(self.after_orderly_end(place));
            lines.push(self.of_number(
                place,
                "  read by recovery",
                Better::Neither,
                Unit::Bytes,
                "recovery_bytes_read",
            ));
        }
        if lines.iter().all(|line| line.cells.iter().all(Option::is_none)) {
            return String::new();
        }
        format!(
            "<h2>2. Recovery against insert rate</h2><p>The server is killed at work. Published (the power cord pulled): \
             TokuDB 501 s at 16,000 rows/s, 13 s at 2,000, 2 s at 200; InnoDB 18,505 s.</p>{}{}",
            self.table(&lines),
            recovery_plot(self.values, self.engines)
        )
    }

    fn durable(&self) -> String {
        let lines: Vec<Line> = cells(self.sizing)
            .iter()
            .map(|cell| {
                self.of_work((E3, "memory", &cell.name()), &cell.name(), Better::Higher, Unit::Count, Work::rate)
            })
            .collect();
        let series = series(self.engines, false, |engine| {
            let wanted = cells(self.sizing).into_iter().filter(|cell| cell.sync && cell.clients == 1);
            let points: Vec<(f64, f64)> = wanted
                .filter_map(|cell| {
                    let rate = self.values.work(E3, engine, "memory", &cell.name(), Work::rate)?;
                    Some((cell.rows as f64, rate.median))
                })
                .collect();
            (!points.is_empty()).then_some(points)
        });
        let title = "Rows per second, one client, every transaction synced";
        let plot = Plot { title, x: "rows per transaction", y: "rows per second", x_log: true, y_log: true, series };
        if series_is_empty(&plot) {
            return String::new();
        }
        format!(
            "<h2>3. Durable insertion against transaction size</h2><p>Rows per second into a table in memory. “Sync off”: a \
             commit is written but not synced, which is done within a second or so (InnoDB and MyRocks: 2; FROND: \
             WRITE). Published (TokuDB, beyond memory): 1,000 rows per transaction 10,000 rows/s, 10,000 rows 15,000, \
             without sync 17,000.</p>{}{}",
            self.table(&lines),
            plot.draw()
        )
    }

    fn sysbench(&self) -> String {
        let mut memory = Vec::new();
        for (test, threads) in e4_sysbench::cells(self.sizing) {
            let name = e4_sysbench::name(test, threads);
            memory.push(self.of_work((E4, "memory", &name), &name, Better::Higher, Unit::Count, Work::rate));
            let place = (E4, "memory", name.as_str());
            memory.push(self.of_work(
                place,
                "  CPU per transaction",
                Better::Lower,
                Unit::Microseconds,
                Work::cpu_us_per_unit,
            ));
            let cpu = |engine| self.values.work(E4, engine, "memory", &name, Work::cpu_us_per_unit);
            if let Some(floor) = cpu(Engine::Blackhole) {
                let own = |engine| {
                    cpu(engine).filter(|_| engine != Engine::Blackhole).map(|cpu| cpu.map(|cpu| cpu - floor.median))
                };
                memory.push(self.line("  CPU of the engine alone", Better::Lower, Unit::Microseconds, own));
            }
        }
        let mut limited = Vec::new();
        let mut plots = String::new();
        for test in LIMITED_TESTS {
            let name = e4_sysbench::name(test, LIMITED_THREADS);
            for (variant, size) in [("small", self.sizing.sysbench_rows), ("large", self.sizing.sysbench_large_rows)] {
                let place = (E4, variant, name.as_str());
                let title = format!("{test}, {} rows", Unit::Count.print(size as f64));
                limited.push(self.of_work(place, &title, Better::Higher, Unit::Count, Work::rate));
                limited.push(self.of_work(place, "  worst second", Better::Higher, Unit::Count, Work::worst_second));
                limited.push(
                    self.of_work(place, "  p99.9", Better::Lower, Unit::Milliseconds, |work| work.latency_ms.p999),
                );
                limited.push(self.of_work(
                    place,
                    "  written per transaction",
                    Better::Lower,
                    Unit::Bytes,
                    Work::written_per_unit,
                ));
            }
            plots.push_str(&self.size_plot(test, &name));
        }
        if memory.iter().chain(&limited).all(|line| line.cells.iter().all(Option::is_none)) {
            return String::new();
        }
        format!(
            "<h2>4. Throughput against table size (sysbench)</h2><p>Transactions per second of sysbench's stock tests, keys \
             uniformly random. Published (2,000-IOPS volume, InnoDB with a 20 GB pool, up to 50 M rows): InnoDB ahead on \
             small tables, TokuDB from about 10 M rows on. “The engine alone”: less what the server takes for the same \
             statements on a table of BLACKHOLE.</p><h3>In memory, {} rows</h3>{}\
             <h3>Limited volume, {} of cache, 16 threads</h3>{}{plots}",
            Unit::Count.print(self.sizing.sysbench_rows as f64),
            self.table(&memory),
            Unit::Bytes.print(self.sizing.cache_bytes as f64),
            self.table(&limited),
        )
    }

    fn size_plot(&self, test: &str, name: &str) -> String {
        let sizes = [("small", self.sizing.sysbench_rows), ("large", self.sizing.sysbench_large_rows)];
        let series = series(self.engines, false, |engine| {
            let point = |&(variant, rows): &(&str, u64)| {
                self.values.work(E4, engine, variant, name, Work::rate).map(|rate| (rows as f64, rate.median))
            };
            let points: Vec<(f64, f64)> = sizes.iter().filter_map(point).collect();
            (points.len() > 1).then_some(points)
        });
        let title = format!("{test}: transactions per second against table size");
        let plot = Plot { title: &title, x: "rows", y: "transactions per second", x_log: true, y_log: true, series };
        if series_is_empty(&plot) { String::new() } else { plot.draw() }
    }

    fn tpcc(&self) -> String {
        let mut lines = Vec::new();
        for (variant, title) in [("memory", "in memory"), ("limited", "limited volume")] {
            let (place, work) = ((E5, variant), (E5, variant, "new_order"));
            lines.push(self.of_number(place, &format!("{title}: tpmC"), Better::Higher, Unit::Count, "tpmc"));
            lines.push(self.of_number(place, "  aborted transactions", Better::Neither, Unit::Count, "aborted"));
            lines.push(self.of_work(
                work,
                "  worst second, NEW_ORDER",
                Better::Higher,
                Unit::Count,
                Work::worst_second,
            ));
            lines.push(
                self.of_work(work, "  worst p99.9 of a second", Better::Lower, Unit::Milliseconds, |w| {
                    w.latency_ms.p999
                }),
            );
            lines.push(self.of_work(
                work,
                "  written per NEW_ORDER",
                Better::Lower,
                Unit::Bytes,
                Work::written_per_unit,
            ));
            lines.push(self.of_number(place, "  consistent (1: checked)", Better::Neither, Unit::Count, "consistent"));
            lines.push(self.of_number(place, "  size afterwards", Better::Lower, Unit::Bytes, "bytes_on_disk"));
            lines.push(self.of_number(
                place,
                "  first SELECT after the kill",
                Better::Lower,
                Unit::Seconds,
                "ready_seconds",
            ));
            lines.push(self.after_orderly_end(place));
        }
        if lines.iter().all(|line| line.cells.iter().all(Option::is_none)) {
            return String::new();
        }
        let mut html = format!(
            "<h2>5. TPC-C with a crash</h2><p>{} warehouses, {} threads (go-tpc {}), measured after {} s of warming up, killed at work; then the consistency \
             conditions of the specification are checked. Published: InnoDB with an 8 GB log needed 8 to 15 minutes to \
             come back after 30 minutes of tpcc-mysql.</p>{}",
            self.sizing.warehouses,
            crate::tpcc::THREADS,
            crate::tpcc::VERSION,
            self.sizing.tpcc_warm_seconds,
            self.table(&lines)
        );
        for (variant, title) in
            [("memory", "NEW_ORDER per second, in memory"), ("limited", "NEW_ORDER per second, limited volume")]
        {
            let series = series(self.engines, true, |engine| {
                let work = self.values.curve(E5, engine, variant, "new_order")?;
                Some(work.by_second.iter().enumerate().map(|(second, rate)| (second as f64 + 1.0, *rate)).collect())
            });
            html.push_str(
                &Plot { title, x: "seconds", y: "NEW_ORDER per second", x_log: false, y_log: false, series }.draw(),
            );
        }
        html
    }

    fn size(&self) -> String {
        let mut lines = Vec::new();
        for (variant, title) in [("iibench", "iiBench"), ("sysbench", "sysbench")] {
            let per_row = |engine| {
                let bytes = self.values.number(E6, engine, variant, "bytes_on_disk")?;
                let rows = self.values.number(E6, engine, variant, "rows")?.median;
                Some(bytes.map(|bytes| bytes / rows))
            };
            lines.push(self.line(format!("{title}: bytes per row after loading"), Better::Lower, Unit::Bytes, per_row));
            let place = (E6, variant, "load");
            lines.push(self.of_work(place, "  rows loaded per second", Better::Higher, Unit::Count, Work::rate));
            lines.push(self.of_work(
                place,
                "  written per row by loading",
                Better::Lower,
                Unit::Bytes,
                Work::written_per_unit,
            ));
        }
        if lines.iter().all(|line| line.cells.iter().all(Option::is_none)) {
            return String::new();
        }
        let grown = |engine| {
            let bytes = self.values.number(E1, engine, "unlimited", "bytes_on_disk")?;
            let rows = self.values.number(E1, engine, "unlimited", "rows_on_disk")?.median;
            Some(bytes.map(|bytes| bytes / rows))
        };
        lines.push(self.line("iiBench: bytes per row after experiment 1", Better::Lower, Unit::Bytes, grown));
        let place = (E1, "unlimited", "insert");
        lines.push(self.of_work(
            place,
            "iiBench: written per row, experiment 1",
            Better::Lower,
            Unit::Bytes,
            Work::written_per_unit,
        ));
        format!(
            "<h2>6. Size and write volume</h2><p>Tables are loaded with much memory and without a sync per commit, then the \
             server settles and is stopped. An iiBench row has about 107 bytes of content over its four indexes, and about 30 \
             bytes of entropy; one copy in a log and one in a leaf make 100 to 190 bytes the least that inserting a row \
             writes.</p>{}",
            self.table(&lines)
        )
    }

    fn rollback(&self) -> String {
        let mut lines = Vec::new();
        for variant in ["insert", "update"] {
            let place = (E7, variant);
            lines.push(self.of_number(
                place,
                &format!("{variant}: the change"),
                Better::Lower,
                Unit::Seconds,
                "change_seconds",
            ));
            lines.push(self.of_number(place, "  ROLLBACK", Better::Lower, Unit::Seconds, "rollback_seconds"));
            let killed = "  killed in ROLLBACK: first SELECT";
            lines.push(self.of_number(place, killed, Better::Lower, Unit::Seconds, "ready_seconds"));
            lines.push(self.of_number(
                place,
                "  killed in ROLLBACK: rows free",
                Better::Lower,
                Unit::Seconds,
                "free_seconds",
            ));
            lines.push(self.after_orderly_end(place));
            lines.push(self.of_number(place, "  memory at most", Better::Lower, Unit::Bytes, "memory_peak"));
        }
        if lines.iter().all(|line| line.cells.iter().all(Option::is_none)) {
            return String::new();
        }
        format!(
            "<h2>7. Rollback</h2><p>One transaction of {} rows; engines have {} of cache. Published: rolling back a \
             transaction of hours takes days in the worst case (InnoDB). MyRocks fails with its default \
             <code>rocksdb_max_row_locks</code>; here it is raised.</p>{}",
            Unit::Count.print(self.sizing.rollback_rows as f64),
            Unit::Bytes.print(self.sizing.cache_bytes as f64),
            self.table(&lines)
        )
    }

    fn worst(&self) -> String {
        let mut lines = Vec::new();
        for (experiment, variant, work, title) in WRITES {
            let place = (experiment, variant, work);
            lines.push(self.of_work(
                place,
                &format!("{title}: mean per second"),
                Better::Higher,
                Unit::Count,
                Work::rate,
            ));
            let share = |work: &Work| work.worst_second() / work.rate();
            lines.push(self.of_work(place, "  worst second over mean", Better::Higher, Unit::Share, share));
            lines.push(self.of_work(place, "  p99.9", Better::Lower, Unit::Milliseconds, |work| work.latency_ms.p999));
            lines.push(self.of_work(place, "  longest", Better::Lower, Unit::Milliseconds, |work| work.latency_ms.max));
        }
        lines.push(self.of_number(
            (E8, "queue"),
            "queue: reading the head afterwards",
            Better::Lower,
            Unit::Seconds,
            "head_seconds",
        ));
        let table = self.table(&lines);
        let series = series(self.engines, false, |engine| {
            let work = self.values.curve(E8, engine, "checkpoint", "insert")?;
            Some(work.by_second.iter().enumerate().map(|(second, rate)| (second as f64 + 1.0, *rate)).collect())
        });
        let title = "Rows inserted per second with a long reader open, a checkpoint in the middle";
        let plot = Plot { title, x: "seconds", y: "rows per second", x_log: false, y_log: false, series };
        format!(
            "<h2>8. The worst moments</h2><p>Of every write experiment, besides its mean: the slowest second, p99.9 and the \
             longest transaction. In the queue one client inserts at the tail and one deletes at the head.</p>{table}{}",
            if series_is_empty(&plot) { String::new() } else { plot.draw() }
        )
    }
}

fn series_is_empty(plot: &Plot) -> bool {
    plot.series.iter().all(|series| series.points.is_empty())
}
