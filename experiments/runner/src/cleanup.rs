//! What must not outlive the run: processes, control groups, directories of unfinished parts.
//!
//! Each is registered while it exists. Ending in any ordinary way drops its guard; a signal (Ctrl-C, TERM, HUP) goes through
//! the register: processes are killed, groups and directories removed, and the run ends with status 130. Should the run
//! itself be killed, its servers die with it (`setpriv --pdeathsig`), a [`Janitor`] removes its control groups, and the next
//! run removes the rest.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

static REGISTER: Mutex<Register> =
    Mutex::new(Register { processes: Vec::new(), groups: Vec::new(), directories: Vec::new() });

struct Register {
    processes: Vec<u32>,
    groups: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

fn register() -> MutexGuard<'static, Register> {
    REGISTER.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Makes signals end the run cleanly.
pub(crate) fn on_signals() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| {
        eprintln!("\nexperiments: interrupted; finished parts are kept, and the same command goes on from there");
        let register = register();
        for &process in &register.processes {
            kill(process);
        }
        register.processes.iter().for_each(|&process| wait_until_gone(process));
        for directory in &register.directories {
            let _ = std::fs::remove_dir_all(directory);
        }
        for group in &register.groups {
            remove_group(group);
        }
        std::process::exit(130);
    })
}

/// SIGKILL.
pub(crate) fn kill(process: u32) {
    if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// A killed child stays a zombie until its parent asks for it; then its resources are free already.
fn wait_until_gone(process: u32) {
    for _ in 0..500 {
        let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        if status.is_empty() || status.contains(") Z ") {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A control group can be removed a moment after its last process has gone.
pub(crate) fn remove_group(group: &Path) {
    for _ in 0..100 {
        match std::fs::remove_dir(group) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(20))
            }
            _ => return,
        }
    }
    eprintln!("experiments: a control group could not be removed: {}", group.display());
}

/// Starts a process that is killed if the run ends; `forget` it when it has ended. No signal comes between its start and
/// its place in the register.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let mut register = register();
    let child = command.spawn()?;
    register.processes.push(child.id());
    Ok(child)
}

/// What a process prints that is killed if the run ends.
pub(crate) fn output(command: &mut Command) -> std::io::Result<Output> {
    let child = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let process = child.id();
    let output = child.wait_with_output();
    forget_process(process);
    output
}

pub(crate) fn forget_process(process: u32) {
    register().processes.retain(|&other| other != process);
}

/// A control group that is removed when the guard is dropped.
pub(crate) struct Group(PathBuf);

impl Group {
    pub(crate) fn new(path: PathBuf) -> Self {
        register().groups.push(path.clone());
        Group(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        remove_group(&self.0);
        register().groups.retain(|other| *other != self.0);
    }
}

/// Waits for the end of its input, which is this process's end whatever it died of; then removes the groups, as soon as
/// their last processes have gone.
const JANITOR: &str = "read -r end; tries=0; while [ $tries -lt 100 ]; do rmdir \"$@\" 2>/dev/null; left=; \
                       for group; do [ -d \"$group\" ] && left=1; done; [ $left ] || exit 0; \
                       tries=$((tries + 1)); sleep 0.1; done";

/// A process that removes control groups if this one dies without a chance to.
pub(crate) struct Janitor {
    child: Child,
    input: Option<ChildStdin>,
}

impl Janitor {
    /// It stands in a process group of its own, so that no Ctrl-C reaches it.
    pub(crate) fn watch(groups: &[&Path]) -> std::io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", JANITOR, "sh"]).args(groups).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Janitor { input: child.stdin.take(), child })
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// A directory that is removed when the guard is dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Self {
        register().directories.push(path.clone());
        Directory(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        register().directories.retain(|other| *other != self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_janitor_removes_groups_when_its_input_ends_and_not_before() {
        let root = tempfile::tempdir().unwrap();
        let groups = [root.path().join("io"), root.path().join("memory")];
        groups.iter().for_each(|group| std::fs::create_dir(group).unwrap());
        let mut janitor = Janitor::watch(&[&groups[0], &groups[1]]).unwrap();
        assert!(janitor.child.try_wait().unwrap().is_none() && groups.iter().all(|group| group.exists()));
        janitor.input = None;
        assert!(janitor.child.wait().unwrap().success());
        assert!(groups.iter().all(|group| !group.exists()));
    }
}
