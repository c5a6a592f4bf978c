//! The report: one HTML file that a database administrator can read alone, and the raw figures as JSON beside it.
//!
//! Rooms: [`table`] (values and tables), [`svg`] and [`bars`] (how plots are drawn), [`plots`] (of what), [`sections`] (a section per experiment), [`goals`] (what was to be
//! reached). A report with parts that are missing says so at its top and in its name, one
//! of some experiments or engines only at its top; wrong results come before all else.

pub(crate) mod bars;
pub(crate) mod goals;
pub(crate) mod plots;
pub(crate) mod sections;
pub(crate) mod svg;
pub(crate) mod table;

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::Written;
use crate::engine::{Engine, Sizes, common_settings};
use crate::failure::{Failure, While};
use crate::machine::Machine;
use crate::plan::{Finding, Part};
use crate::scale::{Scale, Sizing};
use crate::state::{Identity, write_whole};

use goals::Goal;
use svg::escape;
use table::{Unit, Values};

/// All that a report is made of.
pub(crate) struct Report {
    pub(crate) scale: Scale,
    pub(crate) sizing: Sizing,
    pub(crate) identity: Identity,
    pub(crate) machine: Machine,
    /// What this machine does not allow, one sentence each.
    pub(crate) missing: Vec<String>,
    /// What was to be measured.
    pub(crate) parts: Vec<Part>,
    /// How many more parts all experiments on all engines would have: not asked for, or without a tool on this machine.
    pub(crate) left_out: usize,
    pub(crate) findings: Vec<Finding>,
}

const WHOLE: &str = "report.html";
const INCOMPLETE: &str = "report-INCOMPLETE.html";

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:.7em 0}td,th{border:1px solid #ccc;padding:.25em .6em;text-align:right}\
td:first-child,th:first-child{text-align:left}th{background:#f3f3f3}.win{color:#060;font-weight:bold}\
.loss{color:#b00;font-weight:bold}.alarm{background:#fdd;border:2px solid #b00;padding:.6em 1em}\
.note{background:#fff7d6;border:1px solid #dcb;padding:.4em 1em}pre{white-space:pre-wrap;background:#f6f6f6;padding:.5em}\
small{color:#555}svg{width:100%;display:block;margin:.7em 0}";

impl Report {
    /// Writes `report.html` and `report.json` into `folder`, under the name of an incomplete one if parts are missing.
    pub(crate) fn write(&self, folder: &Path) -> Result<Written, Failure> {
        let missing = self.parts.iter().filter(|part| !self.is_measured(part)).count();
        let faults: Vec<String> = self.faults();
        let (name, stale) = if missing == 0 { (WHOLE, INCOMPLETE) } else { (INCOMPLETE, WHOLE) };
        let _ = fs::remove_file(folder.join(stale));
        let html = self.html(missing, &faults);
        let path = folder.join(name);
        write_whole(&path, html.as_bytes())?;
        let raw = json!({
            "made": now(), "complete": missing == 0 && self.left_out == 0, "identity": self.identity, "machine": self.machine,
            "missing": self.missing, "findings": self.findings,
        });
        write_whole(&folder.join("report.json"), &serde_json::to_vec_pretty(&raw).or_say("cannot write JSON")?)?;
        for (file, plot) in (plots::Plots { values: &self.values(), engines: &self.engines() }).pictures() {
            write_whole(&folder.join(file), plot.as_bytes())?;
        }
        let mut sentence = match (missing, faults.len()) {
            (0, 0) => format!("all {} parts measured, nothing wrong was seen", self.parts.len()),
            (0, wrong) => format!("all {} parts measured, {wrong} WRONG RESULTS", self.parts.len()),
            (missing, wrong) => {
                format!("INCOMPLETE: {missing} of {} parts missing, {wrong} wrong results", self.parts.len())
            }
        };
        if let Some(part_of) = self.part_of_the_whole() {
            sentence.push_str(&format!("; {part_of}"));
        }
        Ok(Written { path, whole: missing == 0 && faults.is_empty(), sentence })
    }

    /// What is said where less than everything was to be measured.
    fn part_of_the_whole(&self) -> Option<String> {
        let (left_out, all) = (self.left_out, self.left_out + self.parts.len());
        (left_out > 0).then(|| format!("{left_out} of {all} parts were not asked for or have no tool on this machine"))
    }

    fn is_measured(&self, part: &Part) -> bool {
        self.findings.iter().any(|finding| {
            (finding.experiment, finding.engine, finding.repeat) == (part.experiment, part.engine, part.repeat)
                && finding.variant == part.variant
                && finding.failed.is_none()
        })
    }

    fn values(&self) -> Values<'_> {
        Values(&self.findings)
    }

    /// The engines of the run, the floor last.
    fn engines(&self) -> Vec<Engine> {
        let all = [Engine::Frond, Engine::Innodb, Engine::Rocksdb, Engine::Blackhole];
        all.into_iter().filter(|engine| self.parts.iter().any(|part| part.engine == *engine)).collect()
    }

    fn faults(&self) -> Vec<String> {
        let of = |finding: &Finding| {
            let place = format!("{} {} {}", finding.experiment.key(), finding.engine.title(), finding.variant);
            finding.faults.iter().map(move |fault| format!("{place}: {fault}")).collect::<Vec<_>>()
        };
        self.findings.iter().flat_map(of).collect()
    }

    fn html(&self, missing: usize, faults: &[String]) -> String {
        let mut html = format!(
            "<!DOCTYPE html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>\
             <title>FrondDB: the published experiments</title><style>{STYLE}</style>\
             <h1>FROND, InnoDB and MyRocks: the published experiments</h1>\
             <p>Made {} from commit {}, at scale <b>{}</b>, on a stock MariaDB server {}.</p>",
            now(),
            escape(&self.identity.commit),
            self.scale.key(),
            escape(&self.identity.server_version),
        );
        if missing > 0 {
            let total = self.parts.len();
            html.push_str(&format!(
                "<p class='alarm'>INCOMPLETE: {missing} of {total} parts are missing or failed.</p>"
            ));
        }
        if let Some(part_of) = self.part_of_the_whole() {
            html.push_str(&format!("<p class='alarm'>NOT THE WHOLE: {part_of}.</p>"));
        }
        html.push_str(&alarms("Wrong results", faults));
        if self.scale == Scale::Smoke {
            html.push_str(
                "<p class='note'>Smoke scale shows that every experiment runs; its tables fit into memory and its \
                 figures mean nothing.</p>",
            );
        }
        html.push_str(&self.how_to_read());
        let engines = self.engines();
        html.push_str(&summary(&goals::goals(&self.values(), &self.sizing)));
        html.push_str(&sections::all(&self.values(), &engines, &self.sizing, &self.machine));
        html.push_str(&self.failures());
        html.push_str(&self.machine());
        html.push_str(&self.configurations(&engines));
        html + "</html>\n"
    }

    fn how_to_read(&self) -> String {
        let volume = match self.identity.limits.io {
            true => format!(
                "a control group allows the server {} reads and as many writes per second, and {} per second each way",
                Unit::Count.print(self.sizing.iops as f64),
                Unit::Bytes.print(self.sizing.bandwidth as f64)
            ),
            false => "<b>this machine did not permit it: these runs had no limit</b>".into(),
        };
        let memory = match self.identity.limits.memory {
            true => format!("bounded to {} with page cache", Unit::Bytes.print(self.sizing.memory_bytes as f64)),
            false => "<b>not bounded, because this machine did not permit it</b>".into(),
        };
        let mut html = format!(
            "<h2>How to read it</h2><p>Every engine runs alone in the same private server on the same disk, one after the \
             other, each experiment from a copy of the same loaded tables and with files that are not in the page cache. \
             The configuration of an engine is the same for its speed and for its recovery; all commits are durable \
             unless a line says otherwise. “Limited volume”: {volume}. Where data is larger than memory the server is \
             {memory}, and the engine's cache is {}.</p>\
             <p>A crash is SIGKILL in the middle of work, after which the server's files are dropped from the page cache. \
             Recovery ends when a SELECT on the table is answered. Then the rows are verified, for every engine alike: those \
             inserted before the kill by sums over every column and by looking up a sample in each secondary key, and \
             at full speed all rows by the number of entries in every index.</p>\
             <p>Rates are means over the whole run; “worst second” is its slowest. Bytes written are those of the server \
             process until the moment of the kill. The last column compares FROND with the better of the two rivals.</p>\
             <p>Engines take turns in every part. What is in memory, experiment 3 and a part of 5, is measured in {} rounds, \
             each of which begins with another engine; a figure of several runs is their median, with the lowest and highest beside it, and a \
             comparison of such figures the median of what it was in each round.</p>",
            Unit::Bytes.print(self.sizing.cache_bytes as f64),
            self.sizing.short_repeats * self.sizing.repeats,
        );
        html.push_str(&alarms("Not as meant on this machine", &self.missing));
        html
    }

    fn failures(&self) -> String {
        let mut html = String::new();
        for finding in &self.findings {
            let place = format!("{} {} {}", finding.experiment.key(), finding.engine.title(), finding.variant);
            if let Some(why) = &finding.failed {
                html.push_str(&format!("<li>{place}: could not be measured<pre>{}</pre>", escape(why)));
            }
            for note in &finding.notes {
                html.push_str(&format!("<li>{place}: {}", escape(note)));
            }
        }
        if html.is_empty() { html } else { format!("<h2>Remarks</h2><ul>{html}</ul>") }
    }

    fn machine(&self) -> String {
        let machine = &self.machine;
        format!(
            "<h2>The machine</h2><p>{} cores ({}), {} of memory, Linux {}, {}, {}. Its disk: {} per synced 4 KiB write, {} \
             random 4 KiB reads per second by 16 threads, {} per second written in sequence.</p>",
            machine.cores,
            escape(&machine.processor),
            Unit::Bytes.print(machine.memory_bytes as f64),
            escape(&machine.kernel),
            escape(&machine.distribution),
            escape(&machine.file_system),
            Unit::Microseconds.print(machine.sync_us),
            Unit::Count.print(machine.reads_per_second),
            Unit::Bytes.print(machine.bytes_per_second),
        )
    }

    fn configurations(&self, engines: &[Engine]) -> String {
        let list = |title: &str, settings: &[crate::engine::Setting]| {
            let mut html = format!("<h3>{title}</h3><table><tr><th>option</th><th>why</th></tr>");
            for setting in settings {
                let option = escape(&setting.option);
                html.push_str(&format!("<tr><td><code>{option}</code></td><td>{}</td></tr>", escape(setting.why)));
            }
            html + "</table>"
        };
        let sizes =
            Sizes { cache: self.sizing.cache_bytes, redo: self.sizing.redo_bytes, iops: None, change_buffering: false };
        let mut html = String::from(
            "<h2>Configurations</h2><p>As they are where data is larger than memory and the volume is not limited. In memory \
             the sizes are larger by the same factor for all but InnoDB's redo log, which stays; on the limited volume InnoDB's <code>innodb_io_capacity</code> \
             is the volume's.</p>",
        );
        html.push_str(&list("All engines", &common_settings()));
        for &engine in engines.iter().filter(|engine| **engine != Engine::Blackhole) {
            html.push_str(&list(engine.title(), &engine.settings(sizes)));
        }
        html
    }
}

fn alarms(title: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let items: String = lines.iter().map(|line| format!("<li>{}", escape(line))).collect();
    format!("<div class='alarm'><b>{title}</b><ul>{items}</ul></div>")
}

fn summary(goals: &[Goal]) -> String {
    let count = |reached| goals.iter().filter(|goal| goal.reached == Some(reached)).count();
    let mut html = format!(
        "<h2>What FROND was to reach</h2><p>{} goals reached, {} not reached, {} not measured.</p>\
         <table><tr><th>measure</th><th>goal</th><th>seen</th><th></th></tr>",
        count(true),
        count(false),
        goals.len() - count(true) - count(false)
    );
    for goal in goals {
        let verdict = match goal.reached {
            Some(true) => "<td class='win'>reached</td>",
            Some(false) => "<td class='loss'>not reached</td>",
            None => "<td>–</td>",
        };
        html.push_str(&format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td>{verdict}</tr>",
            escape(&goal.what),
            escape(&goal.goal),
            escape(&goal.seen)
        ));
    }
    html + "</table>"
}

/// Date and time, UTC.
fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", seconds / 3_600 % 24, seconds / 60 % 60)
}

/// The date of a day since 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests;
