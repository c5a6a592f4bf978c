//! What a message says under a newer one of its key, from these two alone: so level 0 need not keep the whole past of a row until a
//! compaction comes. The rules are those of [`super::compact`] (R1, R4).

use super::{Fate, Stamper};
use crate::format::{Kind, Message, Retention};

/// What a message next below another of its key still says, found without looking at any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Under {
    /// What it says may be needed.
    Needed,
    /// Nothing to anybody: it is aborted, or whoever sees it sees the other, which decides.
    WrittenOver,
    /// It is the put that the other, a single-delete, takes away for all who see it: both together say nothing.
    Paired,
}

/// What `older`, next below `newer`, still says. What holds a blob is needed, because the one who drops it has to tell ([`super::Sink::drop_blob`]).
pub fn under(stamper: &mut Stamper, retention: &Retention<'_>, newer: &Message<'_>, older: &Message<'_>) -> Under {
    let under = match (newer.kind, older.kind) {
        _ if older.blob => return Under::Needed,
        (Kind::Put | Kind::Delete, Kind::SingleDelete) => return Under::Needed,
        (Kind::Put | Kind::Delete, _) => Under::WrittenOver,
        (Kind::SingleDelete, Kind::Put) => Under::Paired,
        _ => return Under::Needed,
    };
    let newer = stamper.fate(retention, newer.stamp);
    match (newer, stamper.fate(retention, older.stamp)) {
        (_, Fate::Aborted) => Under::WrittenOver,
        (Fate::Committed(newer), Fate::Committed(older)) if newer.0 == 0 || !retention.separates(older, newer) => under,
        _ => Under::Needed,
    }
}
