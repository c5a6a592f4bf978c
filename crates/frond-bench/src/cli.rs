//! The commands, shared by the binaries `frond-bench` and `frond bench`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::child::{Task, Worker};
use crate::report::{
    Comparison, Report, commit, facts_table, goals, machine, phases_table, ratio_table, section, summary, with_section,
};
use crate::suite::{Entry, SUITE, parse_workload};
use crate::workload::{Common, EngineName, Outcome, Spec, Workload, run};
use crate::{At, Error, Result};

/// Run one workload on one engine.
#[derive(Debug, Args)]
pub struct RunCommand {
    /// Which engine
    #[arg(long, global = true, value_enum, default_value_t = EngineName::FIRST)]
    pub engine: EngineName,
    /// Settings
    #[command(flatten)]
    pub common: Common,
    /// Write the result as JSON to this file, `-` for the output
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write rates over time as SVG to this file
    #[arg(long, global = true, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Which workload
    #[command(subcommand)]
    pub workload: Workload,
}

/// Run one workload on several engines, each in a process of its own, and compare.
#[derive(Debug, Args)]
pub struct CompareCommand {
    /// Which engines, the one to be judged first
    #[arg(long, global = true, value_enum, value_delimiter = ',', default_values_t = EngineName::compared())]
    pub engines: Vec<EngineName>,
    /// Settings
    #[command(flatten)]
    pub common: Common,
    /// Run each engine this many times, in turn, and take the one of middling rate
    #[arg(long, global = true, default_value_t = 1)]
    pub repeat: usize,
    /// Record the result in docs/benchmarks.md under this name
    #[arg(long, global = true, value_name = "NAME")]
    pub record: Option<String>,
    /// Heading of the recorded section
    #[arg(long, global = true, requires = "record")]
    pub title: Option<String>,
    /// Write the result as JSON to this file, `-` for the output
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Which workload
    #[command(subcommand)]
    pub workload: Workload,
}

/// Run the recorded comparisons, all or some, and write docs/benchmarks.md.
#[derive(Debug, Args)]
pub struct SuiteCommand {
    /// Names of the comparisons; all when none is given
    names: Vec<String>,
    /// The same in small: minutes instead of an hour, and nothing is recorded
    #[arg(long)]
    quick: bool,
    /// Run each engine this many times, in turn, and take the one of middling rate
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Settings
    #[command(flatten)]
    common: Common,
}

/// Write docs/benchmarks.md anew from the recorded results.
#[derive(Debug, Args)]
pub struct RenderCommand {
    /// Directory of the documentation
    #[arg(long, default_value = "docs")]
    pub docs: PathBuf,
}

const CHART_COLUMNS: usize = 100;
const CHART_ROWS: usize = 20;
/// Samples kept of each recorded curve: enough for a picture, small enough for the repository.
const RECORDED_POINTS: usize = 300;

impl RunCommand {
    /// Runs, prints the tables, writes the JSON.
    pub fn execute(self) -> Result<()> {
        let spec = Spec::new(self.engine, &self.common, &self.workload);
        on_interrupt(&self.common);
        let report = Report::new(&spec, run(&spec).map_err(|error| error.leaving(|| self.common.left()))?)?;
        if write_json(self.json.as_deref(), &report)? {
            return Ok(());
        }
        print(&phases_table(&report))?;
        print(&facts_table(&report))?;
        let comparison = Comparison {
            title: report.workload.clone(),
            command: String::new(),
            commit: String::new(),
            machine: String::new(),
            reports: vec![report],
        };
        print_chart(&comparison)?;
        match (self.plot, comparison.chart()) {
            (Some(path), Some(chart)) => std::fs::write(&path, chart.svg()).at_path(&path),
            _ => Ok(()),
        }
    }
}

impl CompareCommand {
    /// Runs each engine, prints the ratios, records.
    pub fn execute(self) -> Result<()> {
        self.execute_as(command_line())
    }

    fn execute_as(self, command: String) -> Result<()> {
        self.refuse_to_record_alone()?;
        self.common.prepare()?;
        on_interrupt(&self.common);
        let machine = machine(&self.common.directory)?;
        let runs = self.run_all().map_err(|error| error.leaving(|| self.common.left()))?;
        let reports = runs.into_iter().filter_map(middling).collect();
        let title = self.title.unwrap_or_else(|| self.workload.name().to_owned());
        let comparison = Comparison { title, command, commit: commit(), machine, reports };
        if let Some(name) = &self.record {
            record(Path::new("docs"), name, &comparison)?;
        }
        if write_json(self.json.as_deref(), &comparison)? {
            return Ok(());
        }
        print(&ratio_table(&comparison.reports))?;
        for goal in goals(&comparison) {
            let mark = if goal.reached() { "reached" } else { "NOT REACHED" };
            print(&format!("{mark:>12}  {}  {:?}  got {:.3?}", goal.what, goal.bound, goal.got))?;
        }
        print_chart(&comparison)
    }

    /// The runs of each engine.
    fn run_all(&self) -> Result<Vec<Vec<Report>>> {
        let mut runs: Vec<Vec<Report>> = vec![Vec::new(); self.engines.len()];
        for _ in 0..self.repeat.max(1) {
            for (&engine, runs) in self.engines.iter().zip(&mut runs) {
                let spec = Spec::new(engine, &self.common, &self.workload);
                let outcome: Outcome = Worker::start(&self.common, &Task::Run(spec.clone()))?.finish()?;
                runs.push(Report::new(&spec, outcome)?);
            }
        }
        Ok(runs)
    }

    /// A recorded comparison is not replaced by one engine's figures, without ratios and goals.
    fn refuse_to_record_alone(&self) -> Result<()> {
        if self.record.is_none() || self.engines.len() > 1 {
            return Ok(());
        }
        Err(Error::usage(
            "only one engine, and what is recorded compares: build with `--features rocksdb` (Debian's librocksdb-dev); \
             without recording, `suite --quick` and `compare` run it alone",
        ))
    }
}

/// The run of median rate.
fn middling(mut runs: Vec<Report>) -> Option<Report> {
    runs.sort_by(|one, other| one.typical_rate().total_cmp(&other.typical_rate()));
    let middle = runs.len() / 2;
    runs.into_iter().nth(middle)
}

impl SuiteCommand {
    /// Runs one comparison after the other.
    pub fn execute(self) -> Result<()> {
        if let Some(name) = self.names.iter().find(|name| SUITE.iter().all(|entry| entry.name != name.as_str())) {
            let known: Vec<&str> = SUITE.iter().map(|entry| entry.name).collect();
            return Err(Error::usage(format!("no such comparison; there are {} name={name}", known.join(", "))));
        }
        let chosen = |entry: &&Entry| self.names.is_empty() || self.names.iter().any(|name| name == entry.name);
        for entry in SUITE.iter().filter(chosen) {
            print(&format!("\n{}", entry.title))?;
            let compare = CompareCommand {
                engines: EngineName::compared(),
                common: self.common_for(entry),
                repeat: self.repeat,
                record: (!self.quick).then(|| entry.name.to_owned()),
                title: Some(entry.title.to_owned()),
                json: None,
                workload: parse_workload(self.line_of(entry))?,
            };
            compare.execute_as(self.command_of(entry))?;
        }
        Ok(())
    }

    fn common_for(&self, entry: &Entry) -> Common {
        let set = entry.set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let tuning = set.chain(self.common.tuning.iter().cloned()).collect();
        Common { memory: self.common.memory.or(Some(entry.memory)), tuning, ..self.common.clone() }
    }

    fn line_of(&self, entry: &Entry) -> &'static str {
        if self.quick { entry.quick } else { entry.line }
    }

    /// The command to repeat one comparison.
    fn command_of(&self, entry: &Entry) -> String {
        let repeat = if self.repeat > 1 { format!("--repeat {} ", self.repeat) } else { String::new() };
        format!("frond-bench compare {} {repeat}{}", self.common_for(entry).arguments(), self.line_of(entry))
    }
}

impl RenderCommand {
    /// Rewrites every recorded section.
    pub fn execute(self) -> Result<()> {
        let directory = self.docs.join("benchmarks");
        let entries = std::fs::read_dir(&directory).at_path(&directory)?;
        let mut files: Vec<PathBuf> =
            entries.map(|entry| Ok(entry.at_path(&directory)?.path())).collect::<Result<_>>()?;
        files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        for path in files {
            let comparison: Comparison = serde_json::from_slice(&std::fs::read(&path).at_path(&path)?)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            write_page(&self.docs, &name, &comparison)?;
        }
        write_summary(&self.docs)
    }
}

/// Keeps the comparison as JSON beside the page, and writes its section.
fn record(docs: &Path, name: &str, comparison: &Comparison) -> Result<()> {
    let mut comparison = comparison.clone();
    for phase in comparison.reports.iter_mut().flat_map(|report| &mut report.outcome.phases) {
        phase.curve = phase.curve.thinned(RECORDED_POINTS);
    }
    let directory = docs.join("benchmarks");
    std::fs::create_dir_all(&directory).at_path(&directory)?;
    let path = directory.join(format!("{name}.json"));
    std::fs::write(&path, serde_json::to_string_pretty(&comparison)?).at_path(&path)?;
    write_page(docs, name, &comparison)?;
    write_summary(docs)
}

/// All goals in one table, in the suite's order.
fn write_summary(docs: &Path) -> Result<()> {
    let mut recorded = Vec::new();
    for entry in SUITE {
        let path = docs.join("benchmarks").join(format!("{}.json", entry.name));
        if path.exists() {
            recorded.push(serde_json::from_slice::<Comparison>(&std::fs::read(&path).at_path(&path)?)?);
        }
    }
    let path = docs.join("benchmarks.md");
    let page = std::fs::read_to_string(&path).at_path(&path)?;
    std::fs::write(&path, with_section(&page, "summary", &summary(&recorded))).at_path(&path)
}

fn write_page(docs: &Path, name: &str, comparison: &Comparison) -> Result<()> {
    let path = docs.join("benchmarks.md");
    let page = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Benchmarks\n".to_owned());
    let plot = match comparison.chart() {
        None => None,
        Some(chart) => {
            let plot = format!("benchmarks/{name}.svg");
            let path = docs.join(&plot);
            std::fs::write(&path, chart.svg()).at_path(&path)?;
            Some(plot)
        }
    };
    std::fs::write(&path, with_section(&page, name, &section(comparison, plot.as_deref()))).at_path(&path)
}

/// The command to repeat this run: without the places of its files.
fn command_line() -> String {
    let mut words = vec!["frond-bench".to_owned()];
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        let own_place = ["--directory", "--json", "--title", "--record"];
        if own_place.contains(&word.as_str()) {
            arguments.next();
        } else if word != "--quiet" && !own_place.iter().any(|name| word.starts_with(&format!("{name}="))) {
            words.push(word);
        }
    }
    words.join(" ")
}

/// True when the JSON went to the output, so that nothing else should.
fn write_json(path: Option<&Path>, value: &impl serde::Serialize) -> Result<bool> {
    match path {
        None => Ok(false),
        Some(path) if path.as_os_str() == "-" => print(&serde_json::to_string_pretty(value)?).map(|()| true),
        Some(path) => std::fs::write(path, serde_json::to_string_pretty(value)?).map(|()| false).at_path(path),
    }
}

fn print_chart(comparison: &Comparison) -> Result<()> {
    use std::io::IsTerminal;
    let colour = std::io::stdout().is_terminal();
    comparison.chart().map_or(Ok(()), |chart| print(&chart.terminal(CHART_COLUMNS, CHART_ROWS, colour)))
}

/// Makes Ctrl-C say what is left. Only the first call counts: all runs of a process use one directory.
fn on_interrupt(common: &Common) {
    let common = common.clone();
    let ended = move || {
        let left = common.left().unwrap_or_else(|| "nothing of it is left".to_owned());
        eprintln!("\ninterrupted; {left}");
        std::process::exit(INTERRUPTED);
    };
    // Where no handler can be had, the signal ends the run without a word.
    ctrlc::try_set_handler(ended).unwrap_or_default();
}

/// Exit code, as shells show SIGINT.
const INTERRUPTED: i32 = 130;

/// Prints a line; a closed pipe is an error like any other.
fn print(text: &str) -> Result<()> {
    use std::io::Write;
    writeln!(std::io::stdout(), "{text}").at("standard output")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    enum Line {
        Compare(CompareCommand),
        Suite(SuiteCommand),
    }

    fn suite(arguments: &str) -> SuiteCommand {
        let words = format!("frond-bench suite {arguments}");
        match Line::try_parse_from(words.split(' ')).expect("the line is understood") {
            Line::Suite(suite) => suite,
            Line::Compare(_) => unreachable!("the line names the suite"),
        }
    }

    fn comparison(command: &str) -> CompareCommand {
        match Line::try_parse_from(command.split(' ')).expect("a recorded command is understood") {
            Line::Compare(compare) => compare,
            Line::Suite(_) => unreachable!("the line names a comparison"),
        }
    }

    #[test]
    fn a_recorded_command_has_every_setting_that_made_the_figures() {
        let suite = suite("--codec lz4 --seed 7 --set rocksdb.background_jobs=1 --set frond.a=b --repeat 3");
        let repeated = comparison(&suite.command_of(&SUITE[0]));
        let common = suite.common_for(&SUITE[0]);
        assert_eq!(format!("{:?}", repeated.common), format!("{common:?}"));
        assert_eq!(repeated.repeat, 3);
    }

    #[test]
    fn the_suite_alone_repeats_the_sections_each_with_its_memory() {
        let memory = |line: &str, name: &str| {
            let entry = SUITE.iter().find(|entry| entry.name == name).expect("it is in the suite");
            comparison(&suite(line).command_of(entry)).common.memory_bytes() >> 20
        };
        assert_eq!((memory("--quiet", "iibench"), memory("--quiet", "reads-beyond")), (256, 64));
        assert_eq!(memory("--memory 100", "reads-beyond"), 100);
    }

    #[test]
    fn one_engine_alone_is_not_recorded() {
        let directory = std::env::temp_dir().join(format!("frond-bench-alone-{}", std::process::id()));
        let mut alone = comparison("frond-bench compare --engines model --quiet commit");
        alone.common.directory = directory.clone();
        alone.record = Some("never".to_owned());
        let refused = alone.execute().expect_err("there is nothing to compare with").to_string();
        assert!(refused.contains("rocksdb"), "{refused}");
        assert!(!directory.exists(), "nothing was run");
    }
}
