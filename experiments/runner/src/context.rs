//! What every experiment works with: where things are, how large they are, how to get a server.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cleanup;
use crate::engine::{Engine, Sizes};
use crate::failure::{Failure, While};
use crate::limits::{Cage, Limits};
use crate::scale::Sizing;
use crate::server::{Installation, Server, Settings};

pub(crate) struct Context {
    pub(crate) installation: Installation,
    pub(crate) cage: Cage,
    pub(crate) sizing: Sizing,
    /// This checkout's folder of experiments.
    pub(crate) out: PathBuf,
    /// Loaded tables, which outlive a part but not the run.
    pub(crate) datasets: PathBuf,
    /// The server of the part under way.
    pub(crate) work: PathBuf,
}

impl Context {
    /// An empty directory for a part's server of this engine; removed with the guard.
    pub(crate) fn fresh(&self, engine: Engine) -> Result<cleanup::Directory, Failure> {
        let guard = self.place()?;
        self.installation.create(&self.out, guard.path(), engine, self.sizing.redo_bytes)?;
        Ok(guard)
    }

    /// A place where a server directory can be put.
    pub(crate) fn place(&self) -> Result<cleanup::Directory, Failure> {
        place_at(self.work.clone())
    }

    /// The same for one of several servers.
    pub(crate) fn place_of(&self, name: &str) -> Result<cleanup::Directory, Failure> {
        place_at(self.datasets.join(format!("server-{name}")))
    }

    pub(crate) fn sizes(&self, cache: u64, limits: &Limits) -> Sizes {
        Sizes { cache, redo: self.sizing.redo_bytes, iops: limits.iops, change_buffering: false }
    }

    pub(crate) fn settings(&self, engine: Engine, cache: u64, limits: Limits) -> Settings {
        Settings { engine, sizes: self.sizes(cache, &limits), limits, port: None }
    }

    pub(crate) fn start(&self, directory: &Path, settings: &Settings, query: &str) -> Result<Server, Failure> {
        Server::start(&self.installation, &self.cage, directory, settings, query)
    }
}

fn place_at(path: PathBuf) -> Result<cleanup::Directory, Failure> {
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).or_say("cannot create a directory")?;
    Ok(cleanup::Directory::new(path))
}
