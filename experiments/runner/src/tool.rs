//! Programs that put load on the server: run to their end or killed, their output taken as they go.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frond_load::child::dies_with_us;

use crate::cleanup;
use crate::failure::{Failure, While};
use crate::server::Server;

/// A line that a program printed, and when.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) at: Instant,
    pub(crate) text: String,
}

/// The lines of both outputs, in the order in which they came.
type Lines = Arc<Mutex<Vec<Line>>>;

/// A program under way.
pub(crate) struct Running {
    child: Child,
    name: String,
    lines: Lines,
    /// Readers of its two outputs: a full pipe would stop it.
    readers: Vec<JoinHandle<()>>,
}

/// Starts a program with its output kept.
pub(crate) fn launch(program: &str, arguments: &[String]) -> Result<Running, Failure> {
    let words: Vec<String> = dies_with_us().into_iter().chain([program.to_owned()]).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = cleanup::spawn(&mut command).or_say(format!("cannot run {program}"))?;
    let lines = Lines::default();
    let mut readers: Vec<_> = child.stdout.take().map(|pipe| reader(pipe, &lines)).into_iter().collect();
    readers.extend(child.stderr.take().map(|pipe| reader(pipe, &lines)));
    Ok(Running { child, name: program.rsplit('/').next().unwrap_or(program).into(), lines, readers })
}

fn reader(pipe: impl Read + Send + 'static, lines: &Lines) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let line = Line { at: Instant::now(), text: String::from_utf8_lossy(&line).into_owned() };
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    })
}

impl Running {
    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end; gives whether it went well, and all that the program printed.
    pub(crate) fn finish(mut self) -> Result<(bool, String), Failure> {
        let status = self.child.wait().or_say(format!("cannot wait for {}", self.name))?;
        Ok((status.success(), self.printed()))
    }

    /// Waits until it has ended by itself or the time is up; whether it has ended.
    pub(crate) fn ends_within(&mut self, time: Duration) -> bool {
        let begin = Instant::now();
        while !self.has_ended() {
            if begin.elapsed() > time {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// As `finish`, but ends it when the time is up: then nothing is given.
    pub(crate) fn finish_within(mut self, time: Duration) -> Result<Option<(bool, String)>, Failure> {
        if self.ends_within(time) { self.finish().map(Some) } else { Ok(None) }
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it; gives what it printed until then.
    pub(crate) fn kill(mut self) -> Vec<Line> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.lines()
    }

    /// When it last printed a line that begins so.
    pub(crate) fn last_at(&self, begins: &str) -> Option<Instant> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().rfind(|line| line.text.starts_with(begins)).map(|line| line.at)
    }

    /// What it printed; once it has ended.
    pub(crate) fn lines(&mut self) -> Vec<Line> {
        self.readers.drain(..).for_each(|reader| drop(reader.join()));
        std::mem::take(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn printed(&mut self) -> String {
        text(&self.lines())
    }

    /// Waits for the end; anything but success is a failure with the program's last words and the server's.
    pub(crate) fn succeed(self, server: &Server) -> Result<String, Failure> {
        let name = self.name.clone();
        let (well, printed) = self.finish()?;
        if well {
            return Ok(printed);
        }
        let lines: Vec<&str> = printed.lines().collect();
        let last = lines[lines.len().saturating_sub(12)..].join("\n");
        Err(format!("{name} failed:\n{last}\nthe server's last words:\n{}", server.last_words()))
    }
}

/// What was printed, without the times.
pub(crate) fn text(lines: &[Line]) -> String {
    lines.iter().flat_map(|line| [line.text.as_str(), "\n"]).collect()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        cleanup::forget_process(self.child.id());
    }
}
