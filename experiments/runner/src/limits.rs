//! Limits of I/O and memory on the private server, by control groups where this is permitted.
//!
//! One group per run, `frond-experiments-PID`, below the group of this process (or the root where that is not visible):
//! version 1 (`blkio`, `memory`) or version 2 (`io`, `memory`). The server's process joins it before it starts. Where no
//! group can be made the experiments run without, and the report says so. In version 2 the parent group passes both controllers on while
//! the run's group is there, and is set back after it.
//!
//! All engines use O_DIRECT, because the kernel's write-back belongs to nobody's group in version 1.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cleanup::{GROUP, Group, Janitor, PassedOn, remove_group};
use crate::failure::{Failure, While};

const ROOT: &str = "/sys/fs/cgroup";
/// Those of version 2 that a parent group has to pass on.
const CONTROLLERS: [&str; 2] = ["io", "memory"];

/// What the server may use; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Reads per second, and as many writes.
    pub(crate) iops: Option<u64>,
    /// Bytes per second read, and as many written.
    pub(crate) bandwidth: Option<u64>,
    /// Bytes of memory, with the page cache.
    pub(crate) memory: Option<u64>,
}

/// Which of them a run could set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InForce {
    pub(crate) io: bool,
    pub(crate) memory: bool,
}

impl InForce {
    /// What a run went without; `None` when both were set.
    pub(crate) fn complaint(self) -> Option<String> {
        let without = match (self.io, self.memory) {
            (true, true) => return None,
            (false, true) => "I/O",
            (true, false) => "memory",
            (false, false) => "I/O and memory",
        };
        Some(format!("the run had no limit of {without}"))
    }
}

/// The run's group.
pub(crate) struct Cage {
    io: Option<Group>,
    /// In version 2 the same group as `io`.
    memory: Option<Group>,
    version2: bool,
    device: Option<String>,
    has_memory: bool,
    why_not: Vec<String>,
    /// Dropped after the groups.
    _janitor: Option<Janitor>,
}

impl Cage {
    /// Removes what dead runs left, and makes this run's group for the device below `data`.
    pub(crate) fn make(data: &Path) -> Self {
        Self::make_in(Path::new(ROOT), &fs::read_to_string("/proc/self/cgroup").unwrap_or_default(), device_of(data))
    }

    fn make_in(root: &Path, own: &str, device: Option<String>) -> Self {
        let mut cage = Cage {
            io: None,
            memory: None,
            version2: false,
            device,
            has_memory: true,
            why_not: Vec::new(),
            _janitor: None,
        };
        if root.join("cgroup.controllers").exists() {
            cage.version2 = true;
            match make_version2(root, own_group(own, "")) {
                Ok(group) => cage.io = Some(group),
                Err(why) => cage.why_not.push(why),
            }
        } else {
            for controller in ["blkio", "memory"] {
                match make_below(&root.join(controller), own_group(own, controller)) {
                    Ok(group) if controller == "blkio" => cage.io = Some(group),
                    Ok(group) => cage.memory = Some(group),
                    Err(why) => cage.why_not.push(format!("{controller}: {why}")),
                }
            }
        }
        if cage.device.is_none() {
            cage.why_not.push("the data does not lie on a block device".into());
        }
        cage.try_out();
        let groups: Vec<&Group> = [&cage.io, &cage.memory].into_iter().flatten().collect();
        if !groups.is_empty() {
            // Without it the next run removes them.
            cage._janitor = Janitor::watch(&groups).ok();
        }
        cage
    }

    /// What this machine's groups refuse is not limited, and said to be so.
    fn try_out(&mut self) {
        let none = Limits::default();
        if let Err(why) = self.limit_io(&none) {
            self.why_not.push(why);
            self.device = None;
        }
        if let Err(why) = self.limit_memory(&none) {
            self.why_not.push(why);
            self.has_memory = false;
        }
    }

    /// What it can limit.
    pub(crate) fn in_force(&self) -> InForce {
        InForce {
            io: self.io.is_some() && self.device.is_some(),
            memory: self.has_memory && if self.version2 { self.io.is_some() } else { self.memory.is_some() },
        }
    }

    /// What is not limited and why, for the report; `None` when all is.
    pub(crate) fn complaint(&self) -> Option<String> {
        (!self.why_not.is_empty()).then(|| self.why_not.join("; "))
    }

    /// Where the group's operations on the disk are counted; `None` where nobody counts them.
    pub(crate) fn operations(&self) -> Option<Operations> {
        let (group, device) = (self.io.as_ref()?, self.device.as_ref()?);
        let file = if self.version2 { "io.stat" } else { "blkio.throttle.io_serviced" };
        Some(Operations { file: group.path().join(file), device: device.clone() })
    }

    /// The files that a process joins the group by.
    pub(crate) fn doors(&self) -> Vec<PathBuf> {
        [&self.io, &self.memory].into_iter().flatten().map(|group| group.path().join("cgroup.procs")).collect()
    }

    /// Sets the limits of whatever runs in the group. What cannot be limited on this machine is left alone.
    pub(crate) fn apply(&self, limits: &Limits) -> Result<(), Failure> {
        self.limit_io(limits)?;
        self.limit_memory(limits)
    }

    fn limit_io(&self, limits: &Limits) -> Result<(), Failure> {
        if let (Some(group), Some(device)) = (&self.io, &self.device) {
            for (file, line) in io_lines(self.version2, device, limits) {
                let path = group.path().join(file);
                fs::write(&path, line).or_say(format!("cannot limit I/O by {file}"))?;
            }
        }
        Ok(())
    }

    fn limit_memory(&self, limits: &Limits) -> Result<(), Failure> {
        let group = if self.version2 { &self.io } else { &self.memory };
        if let Some(group) = group.as_ref().filter(|_| self.has_memory) {
            let (file, none) = if self.version2 { ("memory.max", "max") } else { ("memory.limit_in_bytes", "-1") };
            let line = limits.memory.map_or(none.into(), |bytes| bytes.to_string());
            fs::write(group.path().join(file), line).or_say(format!("cannot limit memory by {file}"))?;
        }
        Ok(())
    }
}

/// Counts the operations on the disk of whatever runs in the group.
#[derive(Clone, Debug)]
pub(crate) struct Operations {
    file: PathBuf,
    device: String,
}

impl Operations {
    /// Reads and writes so far.
    pub(crate) fn count(&self) -> Option<(u64, u64)> {
        operations_of(&fs::read_to_string(&self.file).ok()?, &self.device)
    }
}

/// Version 1 has a line for each kind (`8:0 Read 5`), version 2 one for all (`8:0 rbytes=1 wbytes=2 rios=5 wios=6`). A device that
/// was not used yet may be missing.
fn operations_of(text: &str, device: &str) -> Option<(u64, u64)> {
    let (mut reads, mut writes) = (0, 0);
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(device).and_then(|rest| rest.strip_prefix(' ')) else { continue };
        match rest.split_once(' ') {
            Some(("Read", count)) => reads = count.parse().ok()?,
            Some(("Write", count)) => writes = count.parse().ok()?,
            _ => {
                let field = |name| rest.split(' ').find_map(|word| word.strip_prefix(name)?.parse().ok());
                reads = field("rios=").unwrap_or(reads);
                writes = field("wios=").unwrap_or(writes);
            }
        }
    }
    Some((reads, writes))
}

fn io_lines(version2: bool, device: &str, limits: &Limits) -> Vec<(&'static str, String)> {
    if version2 {
        let word = |limit: Option<u64>| limit.map_or("max".into(), |limit| limit.to_string());
        let (iops, bytes) = (word(limits.iops), word(limits.bandwidth));
        return vec![("io.max", format!("{device} riops={iops} wiops={iops} rbps={bytes} wbps={bytes}"))];
    }
    let line = |limit: Option<u64>| format!("{device} {}", limit.unwrap_or(0));
    vec![
        ("blkio.throttle.read_iops_device", line(limits.iops)),
        ("blkio.throttle.write_iops_device", line(limits.iops)),
        ("blkio.throttle.read_bps_device", line(limits.bandwidth)),
        ("blkio.throttle.write_bps_device", line(limits.bandwidth)),
    ]
}

/// The path of this process's group for a version 1 controller, or the version 2 one (empty controller).
fn own_group(own: &str, controller: &str) -> PathBuf {
    own.lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers.split(',').any(|one| one == controller).then(|| path.trim_start_matches('/').into())
        })
        .next()
        .unwrap_or_default()
}

fn make_below(root: &Path, own: PathBuf) -> Result<Group, String> {
    let parent = if root.join(&own).is_dir() { root.join(&own) } else { root.to_path_buf() };
    remove_stale(&parent);
    let path = parent.join(format!("{GROUP}{}", std::process::id()));
    fs::create_dir(&path).map_err(|error| format!("no control group can be made ({error})"))?;
    Ok(Group::new(path))
}

/// In version 2 a group with processes cannot have limited children, except the root: try the own one, then its parent.
fn make_version2(root: &Path, own: PathBuf) -> Result<Group, String> {
    let mut why = String::from("no control group can be made");
    for parent in [own.as_path(), own.parent().unwrap_or(Path::new(""))] {
        let group = make_below(root, parent.to_path_buf())?;
        let control = group.path().parent().unwrap_or(root).join("cgroup.subtree_control");
        let before = fs::read_to_string(&control).unwrap_or_default();
        match fs::write(&control, "+io +memory") {
            Ok(()) => {
                let is_new = |controller: &&str| !before.split_whitespace().any(|one| one == *controller);
                let back: Vec<_> =
                    CONTROLLERS.into_iter().filter(is_new).map(|controller| format!("-{controller}")).collect();
                if !back.is_empty() {
                    group.set_back(PassedOn { control, back: back.join(" ") });
                }
                return Ok(group);
            }
            Err(error) => why = format!("the controllers io and memory cannot be passed on ({error})"),
        }
    }
    Err(why)
}

/// Groups of runs whose process is gone.
fn remove_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.strip_prefix(GROUP)) else { continue };
        if !Path::new("/proc").join(process).exists() {
            remove_group(&entry.path());
        }
    }
}

/// The whole disk below a path as `major:minor`; `None` where there is none (memory, network, overlays).
fn device_of(path: &Path) -> Option<String> {
    let device = rustix::fs::stat(path).ok()?.st_dev;
    let name = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let node = fs::canonicalize(Path::new("/sys/dev/block").join(&name)).ok()?;
    if node.join("partition").exists() {
        return fs::read_to_string(node.parent()?.join("dev")).ok().map(|text| text.trim().into());
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "7:blkio:/\n4:memory:/box/inner\n0::/slice/scope\n";

    /// A real group's files are not in the way of removing it.
    fn let_go(cage: Cage) {
        for door in cage.doors() {
            for file in fs::read_dir(door.parent().unwrap()).unwrap() {
                let path = file.unwrap().path();
                if path.is_dir() { fs::remove_dir(path).unwrap() } else { fs::remove_file(path).unwrap() }
            }
        }
    }

    #[test]
    fn version_1_groups_stand_below_the_own_ones_and_go_with_the_cage() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("blkio")).unwrap();
        fs::create_dir_all(root.path().join("memory/box/inner")).unwrap();
        let cage = Cage::make_in(root.path(), OWN, Some("8:0".into()));
        assert_eq!(cage.complaint(), None);
        cage.apply(&Limits { iops: Some(2000), bandwidth: None, memory: Some(1 << 30) }).unwrap();
        let name = format!("{GROUP}{}", std::process::id());
        let (io, memory) = (root.path().join("blkio").join(&name), root.path().join("memory/box/inner").join(&name));
        assert_eq!(fs::read_to_string(io.join("blkio.throttle.write_iops_device")).unwrap(), "8:0 2000");
        assert_eq!(fs::read_to_string(io.join("blkio.throttle.read_bps_device")).unwrap(), "8:0 0");
        assert_eq!(fs::read_to_string(memory.join("memory.limit_in_bytes")).unwrap(), "1073741824");
        let_go(cage);
        assert!(!io.exists() && !memory.exists());
    }

    #[test]
    fn operations_are_counted_by_device_in_both_versions() {
        let version1 =
            "8:16 Read 9\n8:16 Write 9\n8:1 Read 5\n8:1 Write 6\n8:1 Sync 10\n8:1 Async 1\n8:1 Total 11\nTotal 29\n";
        assert_eq!(operations_of(version1, "8:1"), Some((5, 6)));
        let version2 = "8:16 rbytes=1 wbytes=1 rios=9 wios=9 dbytes=0 dios=0\n8:1 rbytes=1 wbytes=2 rios=5 wios=6 dbytes=0 dios=3\n";
        assert_eq!(operations_of(version2, "8:1"), Some((5, 6)));
        assert_eq!(operations_of("Total 0\n", "8:1"), Some((0, 0)));
        assert_eq!(operations_of("8:1 Read many\n", "8:1"), None);
    }

    #[test]
    fn groups_of_dead_runs_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let stale = root.path().join("blkio").join(format!("{GROUP}4194999"));
        fs::create_dir_all(&stale).unwrap();
        fs::create_dir_all(root.path().join("memory")).unwrap();
        let cage = Cage::make_in(root.path(), OWN, Some("8:0".into()));
        assert!(!stale.exists());
        let_go(cage);
    }

    #[test]
    fn version_2_passes_the_controllers_on() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "io memory").unwrap();
        fs::create_dir_all(root.path().join("slice/scope")).unwrap();
        let cage = Cage::make_in(root.path(), OWN, Some("8:0".into()));
        assert_eq!(cage.in_force(), InForce { io: true, memory: true });
        let scope = root.path().join("slice/scope");
        assert_eq!(fs::read_to_string(scope.join("cgroup.subtree_control")).unwrap(), "+io +memory");
        let lines = io_lines(true, "8:0", &Limits { iops: Some(2000), ..Limits::default() });
        assert_eq!(lines, [("io.max", "8:0 riops=2000 wiops=2000 rbps=max wbps=max".to_string())]);
        let_go(cage);
        assert_eq!(fs::read_to_string(scope.join("cgroup.subtree_control")).unwrap(), "-io -memory");
    }

    #[test]
    fn what_was_passed_on_before_is_left_so() {
        for (before, after) in [("memory pids", "-io"), ("io memory", "+io +memory")] {
            let root = tempfile::tempdir().unwrap();
            fs::write(root.path().join("cgroup.controllers"), "io memory").unwrap();
            let scope = root.path().join("slice/scope");
            fs::create_dir_all(&scope).unwrap();
            let control = scope.join("cgroup.subtree_control");
            fs::write(&control, before).unwrap();
            let_go(Cage::make_in(root.path(), OWN, Some("8:0".into())));
            assert_eq!(fs::read_to_string(&control).unwrap(), after);
        }
    }

    #[test]
    fn a_limit_that_the_group_refuses_is_said_not_to_be_in_force() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("memory/box/inner");
        let name = format!("{GROUP}{}", std::process::id());
        fs::create_dir_all(root.path().join("blkio")).unwrap();
        fs::create_dir_all(&own).unwrap();
        // A directory in the place of the file refuses to be written.
        let mut cage = Cage::make_in(root.path(), OWN, Some("8:0".into()));
        let file = own.join(&name).join("memory.limit_in_bytes");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        cage.try_out();
        assert_eq!(cage.in_force(), InForce { io: true, memory: false });
        assert!(cage.complaint().unwrap().contains("memory.limit_in_bytes"));
        cage.apply(&Limits { memory: Some(1), ..Limits::default() }).unwrap();
        let_go(cage);
    }

    #[test]
    fn without_rights_or_device_it_says_so() {
        let root = tempfile::tempdir().unwrap();
        let cage = Cage::make_in(root.path(), OWN, None);
        assert_eq!(cage.in_force(), InForce { io: false, memory: false });
        let complaint = cage.complaint().unwrap();
        assert!(complaint.contains("blkio") && complaint.contains("memory") && complaint.contains("block device"));
        cage.apply(&Limits { iops: Some(1), ..Limits::default() }).unwrap();
    }
}
