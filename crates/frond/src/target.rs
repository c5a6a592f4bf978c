//! Which database a command works on, and opening it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use fronddb::{
    CheckOptions, Database, ErrorKind, Options, RecoveryPhase, RecoveryProgress, Transaction, Tree, TreeInfo,
    TxnOptions,
};

use crate::encoding::shown_name;
use crate::failure::{During, Failure, Outcome};
use crate::progress::Progress;
use crate::quantity::parse_bytes;

/// The database, and how it is opened.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// Directory of the database
    #[arg(value_name = "DATABASE")]
    pub path: PathBuf,
    #[command(flatten)]
    pub opening: Opening,
}

/// How a database is opened.
#[derive(Debug, Clone, Args)]
pub(crate) struct Opening {
    /// Memory for everything: level 0, cache, filters
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "64M")]
    pub memory: u64,
    /// Where the log is, if not in the database's directory
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
}

impl Opening {
    /// As engine options.
    pub(crate) fn options(&self) -> Options {
        Options::new().memory_bytes(usize::try_from(self.memory).unwrap_or(usize::MAX)).log_dir(self.log_dir.clone())
    }

    /// For commands that work on a database without opening it.
    pub(crate) fn check_options(&self) -> CheckOptions {
        CheckOptions {
            log_dir: self.log_dir.clone(),
            memory_bytes: usize::try_from(self.memory).unwrap_or(usize::MAX),
            ..CheckOptions::default()
        }
    }
}

impl Target {
    /// Its path, for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Opens it for reading; not a byte of it changes.
    pub(crate) fn open_read_only(&self) -> Outcome<Database> {
        self.open_with(self.opening.options().read_only(true))
    }

    /// Opens it for reading and writing.
    pub(crate) fn open(&self) -> Outcome<Database> {
        self.open_with(self.opening.options())
    }

    /// Opens it with these options, showing recovery when it takes long.
    pub(crate) fn open_with(&self, options: Options) -> Outcome<Database> {
        let progress = Arc::new(Progress::bytes("recovery", 0));
        let options = options.on_recovery_progress(Some(Arc::new(shown_by(&progress))));
        Database::open(&self.path, options).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::engine(format_args!("open {}", self.name()), &error)
                .then(format_args!("`frond create {}` makes one", self.name())),
            _ => Failure::engine(format_args!("open {}", self.name()), &error),
        })
    }

    /// A transaction that reads one snapshot and writes nothing.
    pub(crate) fn begin_read(&self, db: &Database) -> Outcome<Transaction> {
        let options = TxnOptions { read_only: true, consistent_snapshot: true, ..TxnOptions::default() };
        db.begin(options).during(format_args!("read {}", self.name()))
    }

    /// Opens a tree.
    pub(crate) fn open_tree(&self, db: &Database, name: &str) -> Outcome<Tree> {
        db.open_tree(name).map_err(|error| {
            let failure = Failure::engine(format_args!("open tree {:?} of {}", name, self.name()), &error);
            match (error.kind(), db.readable_trees()) {
                (ErrorKind::NotFound, Ok((trees, _))) => failure.then(known(&self.name(), &trees)),
                _ => failure,
            }
        })
    }

    /// Closes it; a failure counts only if nothing failed before.
    pub(crate) fn close(&self, db: Database) -> Outcome {
        db.close().during(format_args!("close {}", self.name()))
    }
}

/// Shows how far recovery is. The database keeps it as long as it is open, and the bar is gone when opening is done.
fn shown_by(progress: &Arc<Progress>) -> impl Fn(&RecoveryProgress) + use<> {
    let shown = Arc::downgrade(progress);
    move |at| {
        let Some(shown) = shown.upgrade() else { return };
        shown.set_total(at.bytes_total);
        shown.set(at.bytes_done);
        if at.phase != RecoveryPhase::Done {
            shown.say(at.phase.name());
        }
    }
}

/// What trees there are, for somebody who named one that is not there.
fn known(database: &str, trees: &[TreeInfo]) -> String {
    const SHOWN_MAX: usize = 8;
    if trees.is_empty() {
        return format!("it has no tree yet: `frond create {database} TREE` makes one");
    }
    let names: Vec<String> = trees.iter().take(SHOWN_MAX).map(|tree| shown_name(&tree.name)).collect();
    let more = if trees.len() > SHOWN_MAX { ", …" } else { "" };
    format!("it has: {}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_of_recovery_does_not_outlive_opening() {
        let progress = Arc::new(Progress::bytes("recovery", 0));
        let bar = Arc::downgrade(&progress);
        let shown = shown_by(&progress);
        shown(&RecoveryProgress { phase: RecoveryPhase::Log, bytes_done: 1, bytes_total: 2 });
        assert!(bar.upgrade().is_some());
        drop(progress);
        assert!(bar.upgrade().is_none(), "the database still holds the bar");
        shown(&RecoveryProgress { phase: RecoveryPhase::Done, bytes_done: 2, bytes_total: 2 });
    }
}
