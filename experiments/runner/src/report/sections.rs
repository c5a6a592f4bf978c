//! A section per experiment: what it shows, what was published, the table, the plots.

use frond_load::purchase::LOGICAL_BYTES;

use crate::e3_durable::{Cell, cells};
use crate::e4_sysbench::{self, LIMITED_TESTS, LIMITED_THREADS};
use crate::e7_rollback::KILL_AFTER;
use crate::engine::Engine;
use crate::machine::Machine;
use crate::measure::Work;
use crate::plan::Experiment::{self, E1, E3, E4, E5, E6, E7, E8};
use crate::plan::{BUFFERED, IN_TURN};
use crate::scale::Sizing;
use crate::{sysbench, tpcc};

use super::goals::{RECOVERIES, WRITES};
use super::plots::{Place, Plots};
use super::table::{Better, Line, Spread, Unit, Values, table};

/// What clients are to take of the processors at most.
const CLIENT_SHARE_MAX: f64 = 0.15;

struct Section<'a> {
    values: &'a Values<'a>,
    engines: &'a [Engine],
    sizing: &'a Sizing,
    machine: &'a Machine,
    plots: Plots<'a>,
}

/// Every section, in the order of the experiments.
pub(crate) fn all(values: &Values, engines: &[Engine], sizing: &Sizing, machine: &Machine) -> String {
    let section = Section { values, engines, sizing, machine, plots: Plots { values, engines } };
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

/// Tables of what stands beside a table of means, folded.
fn folded(title: &str, table: &str) -> String {
    format!("<details><summary>{title}</summary>{table}</details>")
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

    fn of_work(&self, place: Place, name: &str, better: Better, unit: Unit, value: impl Fn(&Work) -> f64) -> Line {
        let (experiment, variant, work) = place;
        self.line(name, better, unit, |engine| self.values.work(experiment, engine, variant, work, &value))
    }

    fn of_number(&self, place: (Experiment, &str), name: &str, better: Better, unit: Unit, number: &str) -> Line {
        let (experiment, variant) = place;
        self.line(name, better, unit, |engine| self.values.number(experiment, engine, variant, number))
    }

    /// What stands beside a mean: the worst second, p99.9, what a unit of it wrote and what CPU it took.
    fn beside(&self, place: Place, unit: &str) -> [Line; 4] {
        let p999 = match place.0 {
            E5 => "  p99.9 of the worst second",
            _ => "  p99.9",
        };
        // One server's counters: they tell no two clients apart.
        let of_both = if (place.0, place.1) == (E8, "queue") { ", of both clients" } else { "" };
        let (written, cpu) = (format!("  written per {unit}{of_both}"), format!("  server CPU per {unit}{of_both}"));
        [
            self.of_work(place, "  worst second", Better::Higher, Unit::Count, Work::worst_second),
            self.of_work(place, p999, Better::Lower, Unit::Milliseconds, |work| work.latency_ms.p999),
            self.of_work(place, &written, Better::Lower, Unit::Bytes, Work::written_per_unit),
            self.of_work(place, &cpu, Better::Lower, Unit::Microseconds, Work::cpu_us_per_unit),
        ]
    }

    /// What was asked of the limited volume, in operations, of those that it gives.
    fn of_the_volume(&self, place: Place) -> [Line; 2] {
        let iops = self.sizing.iops as f64;
        let of = |name, share: fn(&Work) -> f64| {
            self.of_work(place, name, Better::Neither, Unit::Percent, move |work| share(work) / iops)
        };
        [
            of("  of the volume's reads", |work| work.operations_per_second().0),
            of("  of the volume's writes", |work| work.operations_per_second().1),
        ]
    }

    /// What the client that loads the server took of the machine.
    fn client_share(&self, place: Place, name: &str) -> Line {
        self.of_work(place, name, Better::Neither, Unit::Percent, self.share_of_client())
    }

    fn share_of_client(&self) -> impl Fn(&Work) -> f64 + use<> {
        let cores = self.machine.cores;
        move |work| work.client_cpu_seconds / (work.seconds * cores)
    }

    /// What a directory takes on disk, in times of a cache.
    fn times_the_cache(&self, place: (Experiment, &str), name: &str, cache_bytes: u64) -> Line {
        self.line(name, Better::Neither, Unit::Share, |engine| {
            let bytes = self.values.number(place.0, engine, place.1, "bytes_on_disk")?;
            Some(bytes.map(|bytes| bytes / cache_bytes as f64))
        })
    }

    /// What bounds an operation on the limited volume.
    fn bound_by_the_volume(&self, operation: &str) -> String {
        let iops = Unit::Count.print(self.sizing.iops as f64);
        format!(
            "The volume gives {iops} reads per second: an engine that reads once per {operation} cannot make more than {iops} \
             of them in a second."
        )
    }

    /// All of the server's memory: engines count different things against the cache that they are given.
    fn memory_peak(&self, place: Place) -> Line {
        self.of_work(place, "  server's memory at its peak", Better::Lower, Unit::Bytes, |work| work.memory_peak as f64)
    }

    fn after_orderly_end(&self, place: (Experiment, &str)) -> Line {
        self.of_number(place, "  after an orderly end", Better::Neither, Unit::Seconds, "clean_ready_seconds")
    }

    fn table(&self, lines: &[Line]) -> String {
        table(self.engines, lines)
    }

    fn insertion(&self) -> String {
        let mut html = format!(
            "<h2>1. Insertion beyond memory</h2><p>iiBench's table holds {} rows, larger than the engine's cache; one \
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
                self.of_work(place, "  first quarter", Better::Neither, Unit::Count, |work| work.quarters().0),
                self.of_work(place, "  last quarter", Better::Higher, Unit::Count, |work| work.quarters().1),
            ];
            lines.extend(self.beside(place, "row"));
            lines.extend([
                self.of_work(place, "  longest transaction", Better::Lower, Unit::Milliseconds, |work| {
                    work.latency_ms.max
                }),
                self.of_work(place, "  read per row", Better::Lower, Unit::Bytes, |work| {
                    work.bytes_read as f64 / work.units
                }),
                self.of_work(
                    place,
                    "  of the disk's sequential writing",
                    Better::Neither,
                    Unit::Percent,
                    move |work| work.bytes_written as f64 / work.seconds / disk,
                ),
                self.memory_peak(place),
                self.client_share(place, "  client's share of all CPU"),
                self.times_the_cache(
                    (E1, variant),
                    "  table on disk, times the engine's cache",
                    self.sizing.cache_bytes,
                ),
            ]);
            if let Some(floor) = floor.filter(|_| variant == "unlimited") {
                lines.push(self.of_work(
                    place,
                    "  of the server's own limit",
                    Better::Higher,
                    Unit::Percent,
                    move |work| work.rate() / floor.median,
                ));
            }
            if variant == "limited" {
                lines.extend(self.of_the_volume(place));
            }
            lines.extend(self.with_change_buffering(variant));
            html.push_str(&format!("<h3>{title}</h3>"));
            if variant == "limited" {
                html.push_str(&format!("<p>{}</p>", self.bound_by_the_volume("row")));
            }
            html.push_str(&self.table(&lines));
            let rate = format!("Rows inserted per second: {title}");
            html.push_str(&self.plots.over_time(place, &rate, "rows per second", true));
            let answered = format!("Transactions of 1,000 rows answered within a time: {title}");
            html.push_str(&self.plots.latencies(place, &answered));
        }
        if let Some(floor) = floor {
            html.push_str(&format!(
                "<p>The server itself takes {} rows/s of the same statements into an engine that throws them away: the \
                 limit of any engine.</p>",
                Unit::Count.print(floor.median)
            ));
        }
        html + &self.plots.written_per_row()
    }

    /// InnoDB as it was before 10.11.
    fn with_change_buffering(&self, variant: &str) -> [Line; 4] {
        let buffered = format!("{BUFFERED}-{variant}");
        let place = (E1, buffered.as_str(), "insert");
        let of = |name, unit, value: fn(&Work) -> f64| self.of_work(place, name, Better::Neither, unit, value);
        [
            of("with change buffering: rows per second", Unit::Count, Work::rate),
            of("  written per row", Unit::Bytes, Work::written_per_unit),
            of("  longest transaction", Unit::Milliseconds, |work| work.latency_ms.max),
            self.of_number(
                (E1, &buffered),
                "  first SELECT after the kill",
                Better::Neither,
                Unit::Seconds,
                "ready_seconds",
            ),
        ]
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
            self.plots.recovery()
        )
    }

    fn durable(&self) -> String {
        let mut lines: Vec<Line> = cells(self.sizing)
            .iter()
            .map(|cell| {
                self.of_work((E3, "memory", &cell.name()), &cell.name(), Better::Higher, Unit::Count, Work::rate)
            })
            .collect();
        // Below the cell that it is about, which is the first.
        lines.insert(1, self.of_the_syncs());
        if lines.iter().all(|line| line.cells.iter().all(Option::is_none)) {
            return String::new();
        }
        let beside: Vec<Line> = cells(self.sizing)
            .iter()
            .flat_map(|cell| {
                let name = cell.name();
                let place = (E3, "memory", name.as_str());
                let mut lines = vec![self.of_work(place, &name, Better::Higher, Unit::Count, Work::rate)];
                lines.extend(self.beside(place, "row"));
                lines.push(self.client_share(place, "  client's share of all CPU"));
                lines
            })
            .collect();
        format!(
            "<h2>3. Durable insertion against transaction size</h2><p>Rows per second into a table in memory. “Sync off”: a \
             commit is written but not synced, which is done within a second or so (InnoDB and MyRocks: 2; FROND: \
             WRITE). Published (TokuDB, beyond memory): 1,000 rows per transaction 10,000 rows/s, 10,000 rows 15,000, \
             without sync 17,000. {}</p>{}{}{}",
            self.clients_of_durable(),
            self.table(&lines),
            folded("Worst second, p99.9, bytes written and CPU of each", &self.table(&beside)),
            self.plots.transaction_size(self.sizing)
        )
    }

    /// Where the clients take 15 % of the processors and more.
    fn clients_of_durable(&self) -> String {
        let most_of = |name: &str| {
            let share = |engine: &Engine| self.values.work(E3, *engine, "memory", name, self.share_of_client());
            let of = |engine: &Engine| share(engine).map(|share| share.median);
            self.engines.iter().filter_map(of).reduce(f64::max)
        };
        let names = cells(self.sizing).into_iter().map(|cell| cell.name());
        let shares = names.filter_map(|name| Some((most_of(&name)?, name)));
        let crowded: Vec<(f64, String)> = shares.filter(|(share, _)| *share >= CLIENT_SHARE_MAX).collect();
        let Some(most) = crowded.iter().map(|(share, _)| *share).reduce(f64::max) else {
            return "The clients take less than 15 % of the CPU everywhere (their share is below).".into();
        };
        let names: Vec<&str> = crowded.iter().map(|(_, name)| name.as_str()).collect();
        format!(
            "The clients take less than 15 % of the CPU (their share is below), but for {}: there it is up to {:.0} %, the system calls of one \
             statement after the other, and holds back the faster engine more.",
            names.join("; "),
            most * 100.0
        )
    }

    /// One client that waits for its sync before the next transaction makes no more of them than the disk makes syncs.
    fn of_the_syncs(&self) -> Line {
        let (cell, sync_us) = (Cell { rows: 1, clients: 1, sync: true }.name(), self.machine.sync_us);
        self.line("  of the disk's syncs, one after the other", Better::Higher, Unit::Percent, |engine| {
            // What is thrown away is not synced.
            let rate =
                self.values.work(E3, engine, "memory", &cell, Work::rate).filter(|_| engine != Engine::Blackhole)?;
            Some(rate.map(|rate| rate * sync_us / 1e6))
        })
    }

    fn sysbench(&self) -> String {
        let (mut memory, mut beside) = (Vec::new(), Vec::new());
        for (test, threads) in e4_sysbench::cells(self.sizing) {
            let name = e4_sysbench::name(test, threads);
            let rate = |variant| self.of_work((E4, variant, &name), &name, Better::Higher, Unit::Count, Work::rate);
            memory.push(rate(IN_TURN));
            beside.push(rate("memory"));
            beside.extend(self.beside((E4, "memory", &name), "transaction"));
            let cpu = |engine| self.values.work(E4, engine, IN_TURN, &name, Work::cpu_us_per_unit);
            // What throws rows away may be slower than what keeps them, on a machine that others share: then it is no floor.
            let rate_of = |engine| self.values.work(E4, engine, IN_TURN, &name, Work::rate).map(|rate| rate.median);
            let fastest = self
                .engines
                .iter()
                .filter(|engine| **engine != Engine::Blackhole)
                .filter_map(|engine| rate_of(*engine));
            let is_floor = rate_of(Engine::Blackhole) > fastest.reduce(f64::max);
            if let Some(floor) = cpu(Engine::Blackhole).filter(|_| is_floor) {
                let own = |engine| {
                    cpu(engine).filter(|_| engine != Engine::Blackhole).map(|cpu| cpu.map(|cpu| cpu - floor.median))
                };
                memory.push(self.line("  CPU of the engine alone", Better::Lower, Unit::Microseconds, own));
            }
        }
        let mut limited = Vec::new();
        let mut plots = String::new();
        for (test, _) in LIMITED_TESTS {
            let name = e4_sysbench::name(test, LIMITED_THREADS);
            for (variant, size) in [("small", self.sizing.sysbench_rows), ("large", self.sizing.sysbench_large_rows)] {
                let place = (E4, variant, name.as_str());
                let title = format!("{test}, {} rows", Unit::Count.print(size as f64));
                limited.push(self.of_work(place, &title, Better::Higher, Unit::Count, Work::rate));
                limited.extend(self.beside(place, "transaction"));
                limited.extend(self.of_the_volume(place));
            }
            plots.push_str(&self.plots.table_size(self.sizing, test, &name));
            let rows = Unit::Count.print(self.sizing.sysbench_large_rows as f64);
            let answered = format!("{test}, {rows} rows: transactions answered within a time");
            plots.push_str(&self.plots.latencies((E4, "large", &name), &answered));
        }
        if memory.iter().chain(&limited).all(|line| line.cells.iter().all(Option::is_none)) {
            return String::new();
        }
        let times = self.sizing.sysbench_large_rows as f64 / self.sizing.cache_bytes as f64;
        let name = "large table on disk, times the engine's cache (bytes per row of experiment 6)";
        limited.push(self.line(name, Better::Neither, Unit::Share, |engine| {
            let per_row = self.plots.per_row(E6, engine, "sysbench", "rows")?;
            Some(per_row.map(|bytes| bytes * times))
        }));
        format!(
            "<h2>4. Throughput against table size (sysbench)</h2><p>Transactions per second of sysbench's stock tests, keys \
             uniformly random, conflicts tried again (<code>{}</code>). Published (2,000-IOPS volume, InnoDB with a 20 GB pool, up to 50 M rows): InnoDB ahead on \
             small tables, TokuDB from about 10 M rows on. “The engine alone”: less what the server takes for the same \
             statements on a table of BLACKHOLE.</p><h3>In memory, {} rows</h3><p>The servers and clients of all engines are there \
             all the time, and each engine in turn has the machine for 0.2 s, {} times; each client is on the processor of the session \
             that serves it.</p>{}{}\
             <h3>Limited volume, {} of cache, 16 threads</h3><p>Before the first test it runs for {} s to fill the \
             cache ({} s where the table fits), before each other one that one runs for {} s. {}</p>{}{plots}",
            sysbench::OPTIONS.join(" "),
            Unit::Count.print(self.sizing.sysbench_rows as f64),
            self.sizing.sysbench_rounds,
            self.table(&memory),
            folded(
                "Each engine by itself, once: rate, worst second, p99.9, bytes written and CPU",
                &self.table(&beside)
            ),
            Unit::Bytes.print(self.sizing.cache_bytes as f64),
            self.sizing.sysbench_fill_seconds,
            self.sizing.sysbench_fill_small_seconds,
            self.sizing.sysbench_warm_seconds,
            self.bound_by_the_volume("transaction"),
            self.table(&limited),
        )
    }

    fn tpcc(&self) -> String {
        let mut lines = Vec::new();
        for (variant, title) in [("memory", "in memory"), ("limited", "limited volume")] {
            let (place, work) = ((E5, variant), (E5, variant, "new_order"));
            lines.push(self.of_number(place, &format!("{title}: tpmC"), Better::Higher, Unit::Count, "tpmc"));
            lines.push(self.of_number(place, "  aborted transactions", Better::Neither, Unit::Count, "aborted"));
            lines.extend(self.beside(work, "NEW_ORDER"));
            lines.push(self.memory_peak(work));
            if variant == "limited" {
                lines.extend(self.of_the_volume(work));
            }
            lines.push(self.of_number(place, "  consistent", Better::Neither, Unit::YesNo, "consistent"));
            lines.push(self.of_number(place, "  size afterwards", Better::Lower, Unit::Bytes, "bytes_on_disk"));
            if variant == "limited" {
                let cache = self.sizing.tpcc_cache_bytes;
                lines.push(self.times_the_cache(place, "  size, times the engine's cache", cache));
            }
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
            "<h2>5. TPC-C with a crash</h2><p>{} warehouses, {} threads (go-tpc {}), measured after {} s of warming up, killed at work; then no PAYMENT that was \
             reported as done may be missing, and the consistency conditions of the specification are checked (in memory after the first round). In memory engines have {} of cache, on the limited volume {}. \
             Worst second, p99.9, bytes and CPU are told of NEW_ORDERs; the CPU and the bytes are those of the whole mix. {} \
             Published: InnoDB with an 8 GB log needed 8 to 15 minutes to \
             come back after 30 minutes of tpcc-mysql.</p>{}",
            self.sizing.warehouses,
            tpcc::THREADS,
            tpcc::VERSION,
            self.sizing.tpcc_warm_seconds,
            Unit::Bytes.print(self.sizing.cache_large_bytes as f64),
            Unit::Bytes.print(self.sizing.tpcc_cache_bytes as f64),
            self.bound_by_the_volume("transaction"),
            self.table(&lines)
        );
        for (variant, title) in
            [("memory", "NEW_ORDER per second, in memory"), ("limited", "NEW_ORDER per second, limited volume")]
        {
            html.push_str(&self.plots.over_time((E5, variant, "new_order"), title, "NEW_ORDER per second", true));
        }
        html
    }

    fn size(&self) -> String {
        let mut lines = Vec::new();
        for (variant, title) in [("iibench", "iiBench"), ("sysbench", "sysbench")] {
            let per_row = |engine| self.plots.per_row(E6, engine, variant, "rows");
            lines.push(self.line(format!("{title}: bytes per row after loading"), Better::Lower, Unit::Bytes, per_row));
            let place = (E6, variant, "load");
            lines.push(self.of_work(place, "  rows loaded per second", Better::Higher, Unit::Count, Work::rate));
            lines.push(self.of_work(place, "  worst second", Better::Higher, Unit::Count, Work::worst_second));
            let cpu = "  server CPU per row";
            lines.push(self.of_work(place, cpu, Better::Lower, Unit::Microseconds, Work::cpu_us_per_unit));
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
        let grown = |engine| self.plots.per_row(E1, engine, "unlimited", "rows_on_disk");
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
             server settles and is stopped. An iiBench row has {LOGICAL_BYTES} bytes of content over its four indexes, and about 30 \
             bytes of entropy; one copy in a log and one in a leaf make 100 to 190 bytes the least that inserting a row \
             writes.</p>{}{}",
            self.table(&lines),
            self.plots.size_on_disk()
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
            let over = format!("  ROLLBACK was over within {} ms, before the kill", KILL_AFTER.as_millis());
            lines.push(self.of_number(place, &over, Better::Neither, Unit::YesNo, "over_before_kill"));
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
            if variant == "update" {
                let killed = "  killed with the transaction open: first SELECT";
                lines.push(self.of_number(place, killed, Better::Lower, Unit::Seconds, "open_ready_seconds"));
                let free = "  killed with the transaction open: rows free";
                lines.push(self.of_number(place, free, Better::Lower, Unit::Seconds, "open_free_seconds"));
            }
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
            let unit = match experiment {
                E4 => "transaction",
                E5 => "NEW_ORDER",
                _ => "row",
            };
            lines.push(self.of_work(
                place,
                &format!("{title}: mean per second"),
                Better::Higher,
                Unit::Count,
                Work::rate,
            ));
            let share = |work: &Work| work.worst_second() / work.rate();
            lines.push(self.of_work(place, "  worst second over mean", Better::Higher, Unit::Share, share));
            lines.extend(self.beside(place, unit));
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
        let title = "Rows inserted per second with a long reader open, a checkpoint in the middle";
        let plot = self.plots.over_time((E8, "checkpoint", "insert"), title, "rows per second", false);
        format!(
            "<h2>8. The worst moments</h2><p>Of the longer write experiments, the loading of tables left out, besides their means: the \
             slowest second, p99.9 (for TPC-C that of the worst second), bytes written, CPU and the longest transaction. In the queue one client inserts at the tail and one deletes at the head.</p>{table}{plot}"
        )
    }
}
