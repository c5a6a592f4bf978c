//! `make experiments`: the published experiments on FROND, InnoDB and MyRocks in one private server, and their report.
//!
//! Rooms, in reading order: [`plan`] (what is done), [`scale`] (how large), [`engine`] (on what configurations), [`server`] and
//! [`limits`] (under which conditions), `e1` to `e8` (the experiments), [`state`] (what is kept), [`report`] (what is told).
//!
//! A part that fails does not end the run: it is told in the report, and tried again by the next run.

mod cleanup;
mod context;
mod dataset;
mod e1_insertion;
mod e3_durable;
mod e4_sysbench;
mod e5_tpcc;
mod e6_size;
mod e7_rollback;
mod e8_worst;
mod engine;
mod failure;
mod in_turn;
mod limits;
mod machine;
mod measure;
mod plan;
mod progress;
mod report;
mod scale;
mod server;
mod state;
mod sysbench;
mod tool;
mod tpcc;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};

use context::Context;
use engine::Engine;
use failure::{Failure, While};
use in_turn::Places;
use limits::{Cage, InForce};
use machine::Machine;
use plan::{Experiment, Finding, IN_TURN, Part, parts};
use progress::Progress;
use scale::{Scale, Sizing};
use server::Installation;
use state::{Identity, State};

/// The published experiments, side by side on FROND, InnoDB and MyRocks; writes one HTML report.
#[derive(Parser)]
#[command(name = "frond-experiments")]
struct Arguments {
    /// smoke: 2 minutes, figures mean nothing; desk: an hour and a quarter; night: larger
    #[arg(long, value_enum, default_value = "desk")]
    scale: Scale,
    /// Engines, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "frond,innodb,rocksdb")]
    engines: Vec<Engine>,
    /// Experiments, separated by commas; all by default
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Experiment>,
    /// Reads per second, and as many writes, of the limited volume
    #[arg(long, value_parser = clap::value_parser!(u64).range(50..))]
    iops: Option<u64>,
    /// Memory of the whole server where data is larger than memory, as 512M or 2G; the engine's cache is a quarter
    #[arg(long, value_parser = memory)]
    memory: Option<u64>,
    /// Begin anew instead of keeping the finished parts of an interrupted run
    #[arg(long)]
    fresh: bool,
    /// Only sysbench in memory, on the servers of all engines in turn, in so many rounds; prints a table and writes no report
    #[arg(long, value_name = "ROUNDS", conflicts_with_all = ["only", "report_only", "fresh"])]
    in_turn: Option<std::num::NonZero<u16>>,
    /// With --in-turn: clients run where the system puts them, not on their sessions' processors, and start six times
    #[arg(long, requires = "in_turn")]
    unpaired: bool,
    /// Only write the report from the finished parts of this commit, plugin and size
    #[arg(long)]
    report_only: bool,
}

fn memory(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, |c| usize::from(c.is_alphabetic())));
    let unit: u64 = match unit {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        _ => return Err(format!("not an amount of memory: {text}; say 512M or 2G")),
    };
    let number: u64 = number.parse().map_err(|_| format!("not an amount of memory: {text}; say 512M or 2G"))?;
    match number.checked_mul(unit) {
        Some(bytes) if bytes >= 256 << 20 => Ok(bytes),
        _ => Err(format!("too little memory for a server: {text}; the least is 256M")),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(why) => {
            eprintln!("experiments: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all was measured and no wrong result was seen.
fn run(arguments: &Arguments) -> Result<bool, Failure> {
    let checkout = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).or_say("no checkout")?;
    let out = checkout.join("target/experiments");
    fs::create_dir_all(out.join("tools")).or_say(format!("cannot create {}", out.display()))?;
    let _lock = state::lock(&out)?;
    cleanup::on_signals().or_say("cannot handle signals")?;
    let sizing = sizing(arguments);
    let experiments: Vec<Experiment> = match arguments.only.as_slice() {
        [] => Experiment::value_variants().to_vec(),
        only => only.to_vec(),
    };
    let mut engines = arguments.engines.clone();
    engines.sort();
    engines.dedup();
    let installation = Installation::find(&checkout)?;
    let folder = out.join(arguments.scale.key());
    let mut missing = Vec::new();
    let parts = feasible(parts(&sizing, &experiments, &engines), &out, &mut missing);
    if let Some(rounds) = arguments.in_turn {
        let places = if arguments.unpaired { Places::Free } else { Places::Paired };
        return in_turn(&checkout, &out, sizing, installation, &engines, usize::from(rounds.get()), places);
    }
    let whole = plan::parts(&sizing, Experiment::value_variants(), Engine::value_variants());
    let identify =
        |installation: &Installation, limits| identity(&checkout, &sizing, arguments.scale, installation, limits);

    let (state, identity) = if arguments.report_only {
        let (state, identity) = State::existing(&folder, identify(&installation, InForce::default()))?;
        missing.extend(identity.limits.complaint());
        missing.iter().for_each(|line| println!("experiments: {line}"));
        (state, identity)
    } else {
        let context = make_context(installation, &out, sizing, &engines)?;
        let identity = identify(&context.installation, context.cage.in_force());
        missing.extend(context.cage.complaint().map(|why| format!("limits are not all in force: {why}")));
        missing.iter().for_each(|line| println!("experiments: {line}"));
        (go_on(arguments, &context, &folder, &identity, &parts)?, identity)
    };
    let machine = known_machine(&folder, &out, arguments.scale)?;
    let findings: Vec<Finding> = parts.iter().filter_map(|part| state.read(part)).collect();
    let report = report::Report {
        scale: arguments.scale,
        sizing,
        identity,
        machine,
        missing,
        left_out: whole.len() - parts.len(),
        parts,
        findings,
    };
    let written = report.write(&folder)?;
    println!("experiments: {}", written.sentence);
    println!("experiments: the report is {}", written.path.display());
    Ok(written.whole)
}

/// The plugins and the control group of a run.
fn make_context(
    installation: Installation,
    out: &Path,
    sizing: Sizing,
    engines: &[Engine],
) -> Result<Context, Failure> {
    let needed: Vec<Engine> = engines.iter().copied().chain([Engine::Blackhole]).collect();
    Ok(Context {
        installation: installation.keep_plugins(&out.join("plugins"), &needed)?,
        cage: Cage::make(out),
        sizing,
        datasets: out.join("datasets"),
        work: out.join("work"),
        out: out.into(),
    })
}

/// What an earlier run was ended in the middle of goes; then there has to be space.
fn make_room(context: &Context) -> Result<(), Failure> {
    let _ = fs::remove_dir_all(&context.work);
    let _ = fs::remove_dir_all(&context.datasets);
    enough_space(&context.out, &context.sizing)
}

/// `--in-turn`.
fn in_turn(
    checkout: &Path,
    out: &Path,
    sizing: Sizing,
    installation: Installation,
    engines: &[Engine],
    rounds: usize,
    places: Places,
) -> Result<bool, Failure> {
    if !sysbench::is_installed() {
        return Err("sysbench is not installed".into());
    }
    let context = make_context(installation, out, sizing, engines)?;
    make_room(&context)?;
    in_turn::run(&context, engines, rounds, places, &commit(checkout))?;
    Ok(true)
}

/// The commit of the checkout, as it is named.
fn commit(checkout: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(checkout).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()).unwrap_or_default()
    };
    let mut commit = git(&["rev-parse", "--short=12", "HEAD"]);
    if !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty() {
        commit.push_str(" with changes");
    }
    commit
}

/// Measures what the run kept in the folder has not measured yet, if it is the same run.
fn go_on(
    arguments: &Arguments,
    context: &Context,
    folder: &Path,
    identity: &Identity,
    parts: &[Part],
) -> Result<State, Failure> {
    // Before anything of an earlier run is dropped.
    make_room(context)?;
    let state = State::open(folder, identity, arguments.fresh)?;
    known_machine(folder, &context.out, arguments.scale)?;
    measure(context, &state, parts)?;
    Ok(state)
}

fn sizing(arguments: &Arguments) -> Sizing {
    let mut sizing = arguments.scale.sizing();
    sizing.iops = arguments.iops.unwrap_or(sizing.iops);
    match arguments.memory {
        Some(bytes) => sizing.with_memory(bytes),
        None => sizing,
    }
}

fn identity(checkout: &Path, sizing: &Sizing, scale: Scale, installation: &Installation, limits: InForce) -> Identity {
    Identity::new(scale, sizing, commit(checkout), installation.plugin_digest(), installation.version(), limits)
}

/// Leaves out what has no tool on this machine, and says so.
fn feasible(mut parts: Vec<Part>, out: &Path, missing: &mut Vec<String>) -> Vec<Part> {
    let has = |parts: &[Part], experiment| parts.iter().any(|part| part.experiment == experiment);
    if (has(&parts, Experiment::E4) || has(&parts, Experiment::E6)) && !sysbench::is_installed() {
        missing.push("experiment 4 is left out, and half of 6: sysbench is not installed".into());
        parts.retain(|part| part.experiment != Experiment::E4 && part.variant != "sysbench");
    }
    if has(&parts, Experiment::E5)
        && let Err(why) = tpcc::install(out)
    {
        missing.push(format!("experiment 5 is left out: {why}"));
        parts.retain(|part| part.experiment != Experiment::E5);
    }
    parts
}

/// The machine is measured once per run.
fn known_machine(folder: &Path, out: &Path, scale: Scale) -> Result<Machine, Failure> {
    let note = folder.join("machine.json");
    if let Some(machine) = fs::read(&note).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        return Ok(machine);
    }
    let time = if scale == Scale::Smoke { Duration::from_millis(200) } else { Duration::from_secs(2) };
    let machine = Machine::measure(out, time)?;
    state::write_whole(&note, &serde_json::to_vec_pretty(&machine).or_say("cannot write JSON")?)?;
    Ok(machine)
}

fn enough_space(out: &Path, sizing: &Sizing) -> Result<(), Failure> {
    let stat = rustix::fs::statvfs(out).or_say("cannot ask for free space")?;
    space_for(stat.f_bavail * stat.f_frsize, sizing.disk_bytes())
}

fn space_for(free: u64, wanted: u64) -> Result<(), Failure> {
    if free >= wanted {
        return Ok(());
    }
    Err(format!("no disk space: {} MB are free, and this scale wants {} MB", free / 1_000_000, wanted / 1_000_000))
}

fn measure(context: &Context, state: &State, parts: &[Part]) -> Result<(), Failure> {
    let _datasets = cleanup::Directory::new(context.datasets.clone());
    let mut progress = Progress::new(parts);
    let mut are_done_in_turn = false;
    for (at, part) in parts.iter().enumerate() {
        if part.variant == IN_TURN && are_done_in_turn {
            progress.done_before(part);
        } else if state.finished(part).is_some() {
            progress.kept(part);
        } else {
            are_done_in_turn |= part.variant == IN_TURN;
            progress.begin(part);
            let begin = Instant::now();
            let together: Vec<&Part> = match part.variant {
                IN_TURN => parts.iter().filter(|other| other.variant == IN_TURN).collect(),
                _ => vec![part],
            };
            let findings = run_parts(context, &together).unwrap_or_else(|why| {
                let failed = |part: &&Part| Finding { failed: Some(why.clone()), ..Finding::new(part) };
                together.iter().map(failed).collect()
            });
            progress.end(part, &findings.first().map_or_else(String::new, outcome));
            for (part, mut finding) in together.into_iter().zip(findings) {
                finding.seconds = begin.elapsed().as_secs_f64();
                state.keep(part, &finding)?;
            }
        }
        let later =
            |kind| parts[at + 1..].iter().any(|other| other.engine == part.engine && other.dataset == Some(kind));
        if let Some(kind) = part.dataset.filter(|&kind| !later(kind)) {
            dataset::forget(context, part.engine, kind);
        }
    }
    Ok(())
}

/// The findings of parts that are measured together, or of one.
fn run_parts(context: &Context, parts: &[&Part]) -> Result<Vec<Finding>, Failure> {
    match parts {
        [part] if part.variant != IN_TURN => Ok(vec![run_part(context, part)?]),
        parts => in_turn::findings(context, parts),
    }
}

fn run_part(context: &Context, part: &Part) -> Result<Finding, Failure> {
    match part.experiment {
        Experiment::E1 | Experiment::E2 => e1_insertion::run(context, part),
        Experiment::E3 => e3_durable::run(context, part),
        Experiment::E4 => e4_sysbench::run(context, part),
        Experiment::E5 => e5_tpcc::run(context, part),
        Experiment::E6 => e6_size::run(context, part),
        Experiment::E7 => e7_rollback::run(context, part),
        Experiment::E8 => e8_worst::run(context, part),
    }
}

/// One line for whoever watches.
fn outcome(finding: &Finding) -> String {
    if let Some(why) = &finding.failed {
        return format!("FAILED: {why}");
    }
    let mut words: Vec<String> = finding.faults.iter().map(|fault| format!("WRONG: {fault}")).collect();
    if finding.works.len() == 1 {
        words.extend(finding.works.iter().map(|(name, work)| format!("{name} {:.0}/s", work.rate())));
    }
    for (name, unit) in [("ready_seconds", "ready after the kill"), ("rollback_seconds", "rollback")] {
        words.extend(finding.numbers.get(name).map(|seconds| format!("{unit} {seconds:.3} s")));
    }
    if words.is_empty() { "done".into() } else { words.join(", ") }
}

/// Where the report of a run was written.
pub(crate) struct Written {
    pub(crate) path: PathBuf,
    pub(crate) whole: bool,
    pub(crate) sentence: String,
}

#[cfg(test)]
mod tests {
    use super::{memory, space_for};

    #[test]
    fn amounts_of_memory_have_units_and_a_floor() {
        assert_eq!(memory("512M"), Ok(512 << 20));
        assert_eq!(memory("2G"), Ok(2 << 30));
        assert!(memory("12M").unwrap_err().contains("too little"));
        assert!(memory("much").unwrap_err().contains("not an amount"));
        assert!(memory("").is_err());
        assert!(memory("18446744073709551615G").is_err());
    }

    #[test]
    fn a_disk_that_is_too_small_is_told_with_both_figures() {
        assert_eq!(space_for(5_000_000, 5_000_000), Ok(()));
        let told = space_for(4_999_999, 30_000_000).unwrap_err();
        assert_eq!(told, "no disk space: 4 MB are free, and this scale wants 30 MB");
    }
}
