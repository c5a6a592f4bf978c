//! What a message no longer says under a newer one of its key, from these two alone: so level 0 need not keep the whole past of a row until
//! a compaction comes. The rules are those of [`super::compact`] (R1, R4).

use super::{Fate, Stamper};
use crate::format::{Kind, Message, Retention};

/// Whether `older`, next below `newer`, says nothing to anybody: it is aborted, or whoever sees it sees the other, which decides. What holds a
/// blob does, because the one who drops it has to tell ([`super::Sink::drop_blob`]), and so does a single-delete (R4).
pub fn is_written_over(
    stamper: &mut Stamper,
    retention: &Retention<'_>,
    newer: &Message<'_>,
    older: &Message<'_>,
) -> bool {
    if !matches!(newer.kind, Kind::Put | Kind::Delete) || older.kind == Kind::SingleDelete || older.blob {
        return false;
    }
    let newer = stamper.fate(retention, newer.stamp);
    match (newer, stamper.fate(retention, older.stamp)) {
        (_, Fate::Aborted) => true,
        (Fate::Committed(newer), Fate::Committed(older)) => !retention.separates(older, newer),
        _ => false,
    }
}
