//! Numbers that name things, each a type of its own so that they cannot be mixed up.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// Names a tree inside a database. Never used again after the tree is dropped.
    TreeId(u32)
);
id!(
    /// Names a transaction that writes. Drawn in ascending order from 1; 0 is no transaction.
    TxnId(u64)
);
id!(
    /// The place of a commit in the order of commits, from 1. A snapshot is a commit number: it sees
    /// every commit up to and including it.
    CommitNumber(u64)
);
id!(
    /// A position in the log, in bytes since the database was created; also the sequence number of the
    /// messages of the record at this position.
    Lsn(u64)
);
id!(
    /// Names a run. Drawn in ascending order from 1.
    RunId(u64)
);

impl CommitNumber {
    /// Sees every commit, also those to come: for reads of the latest committed state.
    pub const LATEST: CommitNumber = CommitNumber(u64::MAX);
}
