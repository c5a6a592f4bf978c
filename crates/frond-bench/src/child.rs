//! Child processes: every measured engine gets a fresh one, and the recovery workload needs ones that it can kill.
//!
//! The parent starts its own binary with [`Common::child_arguments`](crate::workload::Common) and writes a [`Task`] as
//! JSON to its input; the child answers with JSON on its output, by line where it reports as it goes. Progress bars go to
//! the shared error output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::measure::peak_memory_of;
use crate::workload::{Common, Spec, recovery, run};
use crate::{At, Error, Result};

/// What a child is to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// A whole workload; answers an `Outcome`.
    Run(Spec),
    /// A step of the recovery workload.
    Recovery(Spec, recovery::Step),
}

/// A child at work. Killed when dropped.
pub struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a child on `task`.
    pub fn start(common: &Common, task: &Task) -> Result<Worker> {
        let program = std::env::current_exe().at("the path of this program")?;
        let mut child = Command::new(&program)
            .args(&common.child_arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .at_path(&program)?;
        let task = serde_json::to_vec(task)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(mut input), Some(output)) => {
                input.write_all(&task).at("input of a child process")?;
                Ok(Worker { child, output: BufReader::new(output) })
            }
            _ => Err(Error::new("a child process has no pipes")),
        }
    }

    /// The next answer, `None` at the end of the child's output. A half-written last line is no answer.
    pub fn answer<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut line = String::new();
        self.output.read_line(&mut line).at("output of a child process")?;
        if line.ends_with('\n') { Ok(Some(serde_json::from_str(&line)?)) } else { Ok(None) }
    }

    /// The largest anonymous memory that it has had.
    pub fn memory_peak_bytes(&self) -> Result<u64> {
        peak_memory_of(self.child.id())
    }

    /// SIGKILL, and waits until the process is gone; how it ended, should it have been quicker.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.child.kill().at("kill a child process")?;
        self.child.wait().at("wait for a child process")
    }

    /// Waits for its one answer and for success.
    pub fn finish<T: DeserializeOwned>(mut self) -> Result<T> {
        let answer = self.answer()?;
        let status = self.child.wait().at("wait for a child process")?;
        match answer {
            Some(answer) if status.success() => Ok(answer),
            _ => Err(Error::child(status)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Gone already, in the good case.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(|_| ()).unwrap_or_default();
    }
}

/// Writes one answer line.
pub fn reply(answer: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    output.write_all(&line).and_then(|()| output.flush()).at("standard output")
}

/// The child's side: reads its task, does it, answers. It dies with its parent, whatever that died of.
pub fn serve() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(std::io::Error::from).at("parent's death signal")?;
    let task: Task = serde_json::from_reader(std::io::stdin().lock())?;
    let (Task::Run(Spec { common, .. }) | Task::Recovery(Spec { common, .. }, _)) = &task;
    let done = match &task {
        Task::Run(spec) => run(spec).and_then(|outcome| reply(&outcome)),
        Task::Recovery(spec, step) => recovery::serve(spec, step),
    };
    done.map_err(|error| error.leaving(|| common.left()))
}
