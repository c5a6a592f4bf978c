//! The parent while the child loads: what it is told, what it shows, when it kills.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use frond_bench::generate::Random;

use super::loader::PlugLoad;
use super::timeline::Timeline;
use super::{Rate, Run, TRANSACTION_ROWS};
use crate::failure::{Failure, NEGATIVE, Outcome};
use crate::output::note;
use crate::progress::Progress;
use crate::quantity::{bytes, count, micros};

/// When it is time to kill.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// When this many rows of the table are acknowledged.
    Rows(u64),
    /// After this time, and one acknowledged transaction.
    Time(Duration),
}

/// What was seen until the kill.
pub(crate) struct Watched {
    /// The last row acknowledged.
    pub acknowledged: u64,
    /// Rows inserted, committed or not, as last told.
    pub inserted: u64,
    /// Time from the first insert to the kill.
    pub seconds: f64,
    /// Bytes written to storage, as last told.
    pub bytes_written: u64,
    /// 99th percentile of commit times, as last told.
    pub commit_p99_micros: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tick {
    rows: u64,
    bytes: u64,
    level0: u64,
    level0_max: u64,
    commit_p99: u64,
}

enum Told {
    Begun,
    Acknowledged(u64),
    Tick(Tick),
}

/// Kills the child, should the parent fail before it does.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        // It may be dead already: that is the point.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a child that goes on after `rows` rows, kills it with SIGKILL at a random moment once `goal` is reached.
pub(crate) fn load_and_kill(
    run: &Run,
    rate: Rate,
    rows: u64,
    goal: Goal,
    seed: u64,
    timeline: &mut Timeline,
) -> Outcome<Watched> {
    let mut victim = start(run, rate, rows)?;
    let told = listen(&mut victim)?;
    let name = super::report::rate_name(rate);
    let mut view = View::new(&name, goal);
    let delay = Duration::from_micros(Random::new(seed).below(match rate {
        None => 30_000,
        Some(rate) => (TRANSACTION_ROWS * 1_000_000 / rate).min(1_000_000),
    }));
    let mut watched = Watched { acknowledged: rows, inserted: 0, seconds: 0.0, bytes_written: 0, commit_p99_micros: 0 };
    let mut begun: Option<Instant> = None;
    let mut deadline: Option<Instant> = None;
    let mut last = Tick::default();
    loop {
        let next = told.recv_timeout(Duration::from_millis(5));
        if let Ok((at, _)) = &next
            && begun.is_none()
        {
            begun = Some(*at);
            timeline.begin(*at, &name);
        }
        match next {
            Ok((_, Told::Begun)) => {}
            Ok((_, Told::Acknowledged(row))) => watched.acknowledged = row,
            Ok((at, Told::Tick(tick))) => {
                timeline.rows(at, tick.rows);
                last = tick;
                view.show(rows, &tick, watched.acknowledged);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let status = victim.0.wait().map_err(|error| Failure::files("wait for the loading process", &error))?;
                return Err(ended_by_itself(status));
            }
        }
        let reached = match goal {
            Goal::Rows(goal) => watched.acknowledged >= goal.max(rows + 1),
            Goal::Time(time) => watched.acknowledged > rows && begun.is_some_and(|begun| begun.elapsed() >= time),
        };
        if reached && deadline.is_none() {
            deadline = Some(Instant::now() + delay);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
    }
    let failed = |error| Failure::files("kill the loading process", &error);
    victim.0.kill().map_err(failed)?;
    let killed = Instant::now();
    victim.0.wait().map_err(failed)?;
    // What was acknowledged before the kill is still in the pipe.
    for (_, told) in told {
        match told {
            Told::Begun => {}
            Told::Acknowledged(row) => watched.acknowledged = row,
            Told::Tick(tick) => last = tick,
        }
    }
    timeline.rows(killed, last.rows.max(watched.acknowledged - rows));
    timeline.killed(killed);
    watched.inserted = last.rows.max(watched.acknowledged - rows);
    watched.seconds = begun.map_or(0.0, |begun| (killed - begun).as_secs_f64());
    watched.bytes_written = last.bytes;
    watched.commit_p99_micros = last.commit_p99;
    Ok(watched)
}

/// Nothing was lost by it, so its exit code is handed on, and a signal as shells show it.
fn ended_by_itself(status: ExitStatus) -> Failure {
    const OF_SIGNALS: i32 = 128;
    let code = status.code().or_else(|| status.signal().map(|signal| OF_SIGNALS + signal));
    let code = code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(NEGATIVE);
    Failure::new(code, format!("the loading process ended by itself: {status}; what it says is above"))
}

fn start(run: &Run, rate: Rate, rows: u64) -> Outcome<Victim> {
    let failed = |error| Failure::files("start the loading process", &error);
    let tool = std::env::current_exe().map_err(failed)?;
    Command::new(tool)
        .args(PlugLoad::arguments(run, rate, rows))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map(Victim)
        .map_err(failed)
}

fn listen(victim: &mut Victim) -> Outcome<Receiver<(Instant, Told)>> {
    let Some(pipe) = victim.0.stdout.take() else {
        return Err(Failure::negative("the loading process has no pipe"));
    };
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for told in lines(pipe) {
            if sender.send((Instant::now(), told)).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

/// What the child says. The last line may be cut short by the kill: without its newline it does not count.
fn lines(pipe: ChildStdout) -> impl Iterator<Item = Told> {
    let mut reader = BufReader::new(pipe);
    std::iter::from_fn(move || {
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(told) = line.strip_suffix('\n').and_then(parse) {
                return Some(told);
            }
        }
    })
}

fn parse(line: &str) -> Option<Told> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    match (kind, numbers.as_slice()) {
        ("begin", []) => Some(Told::Begun),
        ("ack", [row]) => Some(Told::Acknowledged(*row)),
        ("tick", [rows, bytes, level0, level0_max, commit_p99]) => Some(Told::Tick(Tick {
            rows: *rows,
            bytes: *bytes,
            level0: *level0,
            level0_max: *level0_max,
            commit_p99: *commit_p99,
        })),
        _ => None,
    }
}

/// Live progress: a line that changes on a terminal, a line every few seconds elsewhere.
struct View {
    progress: Progress,
    name: String,
    goal: Goal,
    started: Instant,
    shown: Instant,
    shown_rows: u64,
}

impl View {
    const EVERY: Duration = Duration::from_secs(5);
    const EVERY_ON_TERMINAL: Duration = Duration::from_millis(500);

    fn new(name: &str, goal: Goal) -> View {
        let now = Instant::now();
        View {
            progress: Progress::words(&format!("load, {name}")),
            name: name.to_owned(),
            goal,
            started: now,
            shown: now,
            shown_rows: 0,
        }
    }

    fn show(&mut self, rows_before: u64, tick: &Tick, acknowledged: u64) {
        let hidden = self.progress.is_hidden();
        let every = if hidden { View::EVERY } else { View::EVERY_ON_TERMINAL };
        let elapsed = self.shown.elapsed();
        if elapsed < every {
            return;
        }
        let rate = (tick.rows - self.shown_rows.min(tick.rows)) as f64 / elapsed.as_secs_f64();
        let goal = match self.goal {
            Goal::Rows(rows) => format!("of {}", count(rows)),
            Goal::Time(time) => format!("{:.0} of {:.0} s", self.started.elapsed().as_secs_f64(), time.as_secs_f64()),
        };
        let message = format!(
            "{} rows {goal}, {} acknowledged · {} rows/s · {} written · level 0 {}, seals at {} · commit p99 {}",
            count(rows_before + tick.rows),
            count(acknowledged),
            count(rate as u64),
            bytes(tick.bytes),
            bytes(tick.level0),
            bytes(tick.level0_max),
            micros(tick.commit_p99)
        );
        if hidden {
            note(&format!("{}: {message}", self.name));
        } else {
            self.progress.say(message);
        }
        self.shown = Instant::now();
        self.shown_rows = tick.rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_child_are_understood_and_others_ignored() {
        assert!(matches!(parse("ack 3000"), Some(Told::Acknowledged(3000))));
        assert!(matches!(parse("tick 1 2 3 4 5"), Some(Told::Tick(Tick { rows: 1, commit_p99: 5, .. }))));
        for line in ["", "ack", "ack x", "tick 1 2", "hello 1"] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
