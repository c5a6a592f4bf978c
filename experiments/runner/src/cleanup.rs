//! What must not outlive the run: processes, control groups, directories of unfinished parts.
//!
//! Each is registered while it exists. Ending in any ordinary way drops its guard; a signal (Ctrl-C, TERM, HUP) goes through
//! the register: processes are killed, groups and directories removed, and the run ends with status 130. Should the run
//! itself be killed, its servers die with it (`setpriv --pdeathsig`), and the next run removes the rest, which carries the
//! dead process's number.

use std::path::{Path, PathBuf};
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

/// A process that is killed if the run ends; `forget` it when it has ended.
pub(crate) fn guard_process(process: u32) {
    register().processes.push(process);
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
