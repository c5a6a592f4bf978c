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

/// Begins the name of each run's control groups; the number of its process ends it.
pub(crate) const GROUP: &str = "frond-experiments-";

struct Register {
    processes: Vec<u32>,
    groups: Vec<Made>,
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
        register.groups.iter().for_each(Made::undo);
        std::process::exit(130);
    })
}

/// SIGKILL.
pub(crate) fn kill(process: u32) {
    let _ = signal(process, Signal::KILL);
}

/// Sends a signal; false if the process is not there.
pub(crate) fn signal(process: u32, signal: Signal) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
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

/// A control group of this run.
#[derive(Clone)]
struct Made {
    path: PathBuf,
    passed_on: Option<PassedOn>,
}

/// Controllers that a parent group passes on to its children only since this run asked for it (version 2).
#[derive(Clone)]
pub(crate) struct PassedOn {
    /// The parent's `cgroup.subtree_control`.
    pub(crate) control: PathBuf,
    /// What makes it keep them for itself again: `-io -memory`.
    pub(crate) back: String,
}

impl Made {
    /// The group goes, and its parent is as it was, unless another run is there now that may rely on it.
    fn undo(&self) {
        remove_group(&self.path);
        let Some(PassedOn { control, back }) = &self.passed_on else { return };
        let parent = control.parent().unwrap_or(Path::new(""));
        let is_group = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(GROUP);
        if std::fs::read_dir(parent).into_iter().flatten().flatten().any(is_group) {
            return;
        }
        if let Err(error) = std::fs::write(control, back) {
            eprintln!("experiments: {} was not set back by {back:?}: {error}", control.display());
        }
    }
}

/// A control group that is removed when the guard is dropped.
pub(crate) struct Group(PathBuf);

impl Group {
    pub(crate) fn new(path: PathBuf) -> Self {
        register().groups.push(Made { path: path.clone(), passed_on: None });
        Group(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// To be set back when the group goes.
    pub(crate) fn set_back(&self, passed_on: PassedOn) {
        if let Some(made) = register().groups.iter_mut().find(|made| made.path == self.0) {
            made.passed_on = Some(passed_on);
        }
    }

    fn made(&self) -> Option<Made> {
        register().groups.iter().find(|made| made.path == self.0).cloned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(made) = self.made() {
            made.undo();
        }
        register().groups.retain(|other| other.path != self.0);
    }
}

/// Waits for the end of its input, which is this process's end whatever it died of; then removes the groups, as soon as
/// their last processes have gone, and sets their parent back, unless the run has done so.
const JANITOR: &str = "read -r end; tries=0; while [ $tries -lt 100 ]; do left=; for group; do [ -d \"$group\" ] && left=1; done; \
                       [ $left ] || break; [ $tries = 0 ] || sleep 0.1; tries=$((tries + 1)); \
                       rmdir \"$@\" 2>/dev/null; done; [ $tries -gt 0 ] && [ \"$CONTROL\" ] || exit 0; \
                       for other in \"${CONTROL%/*}/$GROUP\"*; do [ ! -d \"$other\" ] || exit 0; done; \
                       printf %s \"$BACK\" >\"$CONTROL\"";

/// A process that removes control groups if this one dies without a chance to.
pub(crate) struct Janitor {
    child: Child,
    input: Option<ChildStdin>,
}

impl Janitor {
    /// It stands in a process group of its own, so that no Ctrl-C reaches it.
    pub(crate) fn watch(groups: &[&Group]) -> std::io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", JANITOR, "sh"]).args(groups.iter().map(|group| group.path())).process_group(0);
        let passed_on = groups.iter().filter_map(|group| group.made()?.passed_on).next();
        let (control, back) = passed_on.map(|passed_on| (passed_on.control, passed_on.back)).unwrap_or_default();
        command.env("CONTROL", control).env("BACK", back).env("GROUP", GROUP);
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

    fn groups(root: &Path) -> [Group; 2] {
        ["io", "memory"].map(|name| {
            let path = root.join(format!("{GROUP}{name}"));
            std::fs::create_dir(&path).unwrap();
            Group::new(path)
        })
    }

    #[test]
    fn the_janitor_removes_groups_when_its_input_ends_and_not_before() {
        let root = tempfile::tempdir().unwrap();
        let groups = groups(root.path());
        let mut janitor = Janitor::watch(&[&groups[0], &groups[1]]).unwrap();
        assert!(janitor.child.try_wait().unwrap().is_none() && groups.iter().all(|group| group.path().exists()));
        janitor.input = None;
        assert!(janitor.child.wait().unwrap().success());
        assert!(groups.iter().all(|group| !group.path().exists()));
    }

    #[test]
    fn who_removes_the_last_group_sets_its_parent_back() {
        for by_janitor in [false, true] {
            let root = tempfile::tempdir().unwrap();
            let [group, other] = groups(root.path());
            let control = root.path().join("cgroup.subtree_control");
            for one in [&group, &other] {
                one.set_back(PassedOn { control: control.clone(), back: "-io".into() });
            }
            let is_set_back = || control.exists();
            drop(other);
            assert!(!is_set_back(), "the first group is still there");
            match by_janitor {
                false => drop(group),
                true => {
                    drop(Janitor::watch(&[&group]).unwrap());
                    assert!(is_set_back());
                }
            }
            assert_eq!(std::fs::read_to_string(&control).unwrap(), "-io");
        }
    }
}
