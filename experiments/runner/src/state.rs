//! A run's folder: what it was asked for, and each finished part at once, so that an interrupted run goes on.
//!
//! `run.json` says what the figures depend on: scale, sizes, commit, the built plugin, which limits were in force. A run goes
//! on only if these are the same; otherwise it begins anew and says so. Who only reads a run never changes its folder. A lock keeps two runs in one checkout apart.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, While};
use crate::limits::InForce;
use crate::plan::{Finding, Part};
use crate::scale::{Scale, Sizing};

/// What the figures depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) scale: Scale,
    pub(crate) sizing: serde_json::Value,
    pub(crate) commit: String,
    /// Of FROND's plugin, the file as it was built.
    pub(crate) plugin_digest: String,
    pub(crate) server_version: String,
    pub(crate) limits: InForce,
}

impl Identity {
    pub(crate) fn new(
        scale: Scale,
        sizing: &Sizing,
        commit: String,
        plugin_digest: String,
        server_version: String,
        limits: InForce,
    ) -> Self {
        let sizing = serde_json::to_value(sizing).unwrap_or_default();
        Identity { scale, sizing, commit, plugin_digest, server_version, limits }
    }

    /// That of the run that a folder holds.
    fn of(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(NOTE)).ok()?).ok()
    }
}

/// The run's note of what it was asked for, and the folder of its parts.
const NOTE: &str = "run.json";
const PARTS: &str = "parts";

/// The run's folder.
pub(crate) struct State {
    parts: PathBuf,
}

impl State {
    /// Opens the folder; keeps its finished parts if they are of the same identity and `fresh` is not asked for.
    pub(crate) fn open(folder: &Path, identity: &Identity, fresh: bool) -> Result<Self, Failure> {
        let note = folder.join(NOTE);
        let parts = folder.join(PARTS);
        match Identity::of(folder) {
            Some(kept) if kept == *identity && !fresh => {}
            Some(_) | None => {
                if parts.exists() && !fresh {
                    eprintln!(
                        "experiments: what was measured before was another commit, plugin or size, or had other limits; beginning anew"
                    );
                }
                let _ = fs::remove_dir_all(folder);
            }
        }
        fs::create_dir_all(&parts).or_say(format!("cannot create {}", parts.display()))?;
        write(&note, identity)?;
        Ok(State { parts })
    }

    /// The folder as a run of this identity left it, with the limits that the run had: those of who only reads do not matter.
    pub(crate) fn existing(folder: &Path, identity: Identity) -> Result<(Self, Identity), Failure> {
        let kept = Identity::of(folder).ok_or_else(|| format!("nothing was measured in {}", folder.display()))?;
        if (Identity { limits: kept.limits, ..identity }) == kept {
            return Ok((State { parts: folder.join(PARTS) }, kept));
        }
        Err(format!(
            "nothing of this commit, plugin and size was measured; what is kept is of another, commit={}",
            kept.commit
        ))
    }

    /// A part that is finished and did not fail.
    pub(crate) fn finished(&self, part: &Part) -> Option<Finding> {
        self.read(part).filter(|finding| finding.failed.is_none())
    }

    /// A part that was tried.
    pub(crate) fn read(&self, part: &Part) -> Option<Finding> {
        serde_json::from_slice(&fs::read(self.path(part)).ok()?).ok()
    }

    pub(crate) fn keep(&self, part: &Part, finding: &Finding) -> Result<(), Failure> {
        write(&self.path(part), finding)
    }

    fn path(&self, part: &Part) -> PathBuf {
        self.parts.join(format!("{}.json", part.key()))
    }
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, bytes).or_say(format!("cannot write {}", path.display()))?;
    fs::rename(&unfinished, path).or_say(format!("cannot write {}", path.display()))
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    write_whole(path, &serde_json::to_vec_pretty(value).or_say("cannot write JSON")?)
}

/// Held while a run is under way in this checkout.
pub(crate) fn lock(out: &Path) -> Result<File, Failure> {
    let file = File::create(out.join("lock")).or_say("cannot create the lock")?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| "another run of the experiments is under way in this checkout".to_string())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::plan::Experiment;

    const ALL: InForce = InForce { io: true, memory: true };

    fn identity(commit: &str) -> Identity {
        Identity::new(Scale::Smoke, &Scale::Smoke.sizing(), commit.into(), "d".into(), "1".into(), ALL)
    }

    fn part() -> Part {
        Part {
            experiment: Experiment::E1,
            engine: Engine::Frond,
            variant: "limited",
            repeat: 0,
            dataset: None,
            seconds: 1.0,
        }
    }

    #[test]
    fn finished_parts_are_kept_for_the_same_commit_only() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("smoke");
        let state = State::open(&folder, &identity("a"), false).unwrap();
        assert!(state.finished(&part()).is_none());
        let mut finding = Finding::new(&part());
        finding.set("ready_seconds", 0.5);
        state.keep(&part(), &finding).unwrap();
        let again = State::open(&folder, &identity("a"), false).unwrap();
        assert_eq!(again.finished(&part()).unwrap().numbers["ready_seconds"], 0.5);
        assert!(State::open(&folder, &identity("b"), false).unwrap().finished(&part()).is_none());
    }

    #[test]
    fn who_only_reads_finds_the_run_asked_for_or_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("smoke");
        assert!(State::existing(&folder, identity("a")).is_err_and(|why| why.contains("nothing was measured")));
        assert!(!folder.exists());
        let state = State::open(&folder, &identity("a"), false).unwrap();
        state.keep(&part(), &Finding::new(&part())).unwrap();
        assert!(State::existing(&folder, identity("b")).is_err_and(|why| why.contains("commit=a")));
        let mut rebuilt = identity("a");
        rebuilt.plugin_digest = "e".into();
        assert!(State::existing(&folder, rebuilt).is_err());
        assert!(State::existing(&folder, identity("a")).unwrap().0.finished(&part()).is_some());
    }

    #[test]
    fn a_run_with_other_limits_keeps_nothing_and_who_reads_is_told_those_of_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let unlimited = Identity { limits: InForce { io: false, memory: true }, ..identity("a") };
        State::open(folder.path(), &unlimited, false).unwrap().keep(&part(), &Finding::new(&part())).unwrap();
        let (state, kept) = State::existing(folder.path(), identity("a")).unwrap();
        assert!(state.finished(&part()).is_some());
        assert_eq!(kept.limits, unlimited.limits);
        assert!(State::open(folder.path(), &identity("a"), false).unwrap().finished(&part()).is_none());
    }

    #[test]
    fn failed_parts_are_tried_again_and_a_fresh_run_keeps_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path(), &identity("a"), false).unwrap();
        let mut finding = Finding::new(&part());
        state.keep(&part(), &finding).unwrap();
        assert!(state.finished(&part()).is_some());
        finding.failed = Some("no".into());
        state.keep(&part(), &finding).unwrap();
        assert!(state.finished(&part()).is_none());
        finding.failed = None;
        state.keep(&part(), &finding).unwrap();
        assert!(State::open(folder.path(), &identity("a"), true).unwrap().finished(&part()).is_none());
    }

    #[test]
    fn one_run_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path()).unwrap();
        assert!(lock(folder.path()).unwrap_err().contains("another run"));
        drop(held);
        lock(folder.path()).unwrap();
    }
}
