//! Programs that put load on the server: run to their end or killed, their output taken as they go.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frond_load::child::dies_with_us;

use crate::cleanup;
use crate::failure::{Failure, While};
use crate::server::Server;

/// A program under way.
pub(crate) struct Running {
    child: Child,
    name: String,
    /// Readers of its two outputs: a full pipe would stop it.
    output: Vec<JoinHandle<String>>,
}

/// Starts a program with its output kept.
pub(crate) fn launch(program: &str, arguments: &[String]) -> Result<Running, Failure> {
    let words: Vec<&str> = dies_with_us().iter().copied().chain([program]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = cleanup::spawn(&mut command).or_say(format!("cannot run {program}"))?;
    let mut output: Vec<_> = child.stdout.take().map(reader).into_iter().collect();
    output.extend(child.stderr.take().map(reader));
    Ok(Running { child, name: program.rsplit('/').next().unwrap_or(program).into(), output })
}

fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = pipe.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
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

    /// Ends it; gives what it printed until then.
    pub(crate) fn kill(mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.printed()
    }

    fn printed(&mut self) -> String {
        self.output.drain(..).map(|reader| reader.join().unwrap_or_default()).collect()
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

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        cleanup::forget_process(self.child.id());
    }
}
