//! Cursors, a row at a time. [`crate::fetch`] takes many rows.

use std::ops::Bound;

use engine::{Cursor, CursorOptions, Result, Sees};

use crate::border::{Bytes, Out, Status, check_flags, enter, frond_slice, guard, need, unknown};
use crate::constants::*;
use crate::transaction::frond_txn;
use crate::tree::frond_tree;
use crate::types::{frond_cursor_options, frond_row, lock_mode, lock_mode_or_none, wait};

/// The handle.
pub struct frond_cursor {
    pub(crate) inner: Cursor,
    /// True when its row did not fit into the last fetch's buffer: the next one begins with it.
    pub(crate) pending: bool,
    /// Which way it has been moved last.
    is_backward: bool,
}

/// glibc keeps freed pieces of up to so many bytes at hand for each thread; a larger one costs as much as five of those each time.
const CHEAP_BYTES_MAX: usize = 1032;

const _: () =
    assert!(size_of::<frond_cursor>() <= CHEAP_BYTES_MAX, "a cursor is made and dropped for each range that is read");

/// A checked `frond_move` with its key.
#[derive(Clone, Copy)]
pub(crate) enum Move<'a> {
    First,
    Last,
    Seek(&'a [u8]),
    SeekForPrev(&'a [u8]),
    Next,
    Prev,
    Again,
}

impl<'a> Move<'a> {
    pub(crate) fn new(number: u32, key: Bytes<'a>) -> Result<Move<'a>> {
        Ok(match number {
            FROND_MOVE_FIRST => Move::First,
            FROND_MOVE_LAST => Move::Last,
            FROND_MOVE_SEEK => Move::Seek(key.get()?),
            FROND_MOVE_SEEK_FOR_PREV => Move::SeekForPrev(key.get()?),
            FROND_MOVE_NEXT => Move::Next,
            FROND_MOVE_PREV => Move::Prev,
            FROND_MOVE_AGAIN => Move::Again,
            _ => return Err(unknown("move", number)),
        })
    }
}

impl frond_cursor {
    /// Takes the direction of a move; the step that goes on in it.
    pub(crate) fn turn(&mut self, to: Move<'_>) -> Move<'static> {
        self.is_backward = match to {
            Move::First | Move::Seek(_) | Move::Next => false,
            Move::Last | Move::SeekForPrev(_) | Move::Prev => true,
            Move::Again => self.is_backward,
        };
        if self.is_backward { Move::Prev } else { Move::Next }
    }

    pub(crate) fn go(&mut self, to: Move<'_>) -> Result<bool> {
        self.pending = false;
        if let Move::Seek(key) | Move::SeekForPrev(key) = to
            && self.lends(key)
        {
            let copy = key.to_vec();
            return if let Move::Seek(_) = to { self.inner.seek(&copy) } else { self.inner.seek_for_prev(&copy) };
        }
        match to {
            Move::First => self.inner.first(),
            Move::Last => self.inner.last(),
            Move::Seek(key) => self.inner.seek(key),
            Move::SeekForPrev(key) => self.inner.seek_for_prev(key),
            Move::Next => self.inner.next(),
            Move::Prev => self.inner.prev(),
            Move::Again => self.inner.again(),
        }
    }

    /// Whether these bytes are part of its row, which moving it changes.
    fn lends(&self, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr();
        [self.inner.key(), self.inner.value()].iter().any(|row| row.as_ptr_range().contains(&start))
    }

    fn lend(&self, row: Out<'_, frond_row>, present: bool) {
        if let Some(row) = row {
            row.write(if present { frond_row::lend(self.inner.key(), self.inner.value()) } else { frond_row::NONE });
        }
    }
}

/// With room for what the engine makes of it.
fn to_own(key: &[u8]) -> Vec<u8> {
    const MORE_BYTES: usize = 8;
    let mut own = Vec::with_capacity(key.len() + MORE_BYTES);
    own.extend_from_slice(key);
    own
}

fn to_engine(options: Option<&frond_cursor_options<'_>>) -> Result<CursorOptions> {
    let Some(options) = options else { return Ok(CursorOptions::default()) };
    let known = FROND_CURSOR_LOWER_EXCLUDED
        | FROND_CURSOR_UPPER_INCLUDED
        | FROND_CURSOR_KEYS_ONLY
        | FROND_CURSOR_NO_READ_AHEAD
        | FROND_CURSOR_NO_FILL_CACHE
        | FROND_CURSOR_COMMITTED
        | FROND_CURSOR_LATEST
        | FROND_CURSOR_ADDED
        | FROND_CURSOR_OTHERS
        | FROND_CURSOR_PEEK
        | FROND_CURSOR_GIVE_UP
        | FROND_CURSOR_HEADS_ONLY;
    check_flags(options.flags, known)?;
    let set = |flag: u32| options.flags & flag != 0;
    let bound = |bytes: Bytes<'_>, included: bool| -> Result<Bound<Vec<u8>>> {
        Ok(match bytes.get_some()? {
            None => Bound::Unbounded,
            Some(key) if included => Bound::Included(to_own(key)),
            Some(key) => Bound::Excluded(to_own(key)),
        })
    };
    let defaults = CursorOptions::default();
    Ok(CursorOptions {
        lower: bound(options.lower, !set(FROND_CURSOR_LOWER_EXCLUDED))?,
        upper: bound(options.upper, set(FROND_CURSOR_UPPER_INCLUDED))?,
        prefix: options.prefix.get()?.to_vec(),
        lock: lock_mode_or_none(options.lock)?,
        wait: wait(options.wait_ms)?,
        peeks: set(FROND_CURSOR_PEEK),
        sees: match () {
            () if set(FROND_CURSOR_ADDED) => Sees::Added,
            () if set(FROND_CURSOR_OTHERS) => Sees::Others,
            () if set(FROND_CURSOR_LATEST) => Sees::Latest,
            () if set(FROND_CURSOR_COMMITTED) => Sees::Committed,
            () => Sees::Level,
        },
        keys_only: set(FROND_CURSOR_KEYS_ONLY),
        heads_only: set(FROND_CURSOR_HEADS_ONLY),
        read_ahead_bytes: match options.read_ahead_bytes {
            _ if set(FROND_CURSOR_NO_READ_AHEAD) => 0,
            0 => defaults.read_ahead_bytes,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        },
        fill_cache: !set(FROND_CURSOR_NO_FILL_CACHE),
        passed_over_max: set(FROND_CURSOR_GIVE_UP).then_some(FROND_CURSOR_KEYS_BEFORE_GIVING_UP),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_cursor_open(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    options: Option<&frond_cursor_options<'_>>,
    cursor: Out<'_, Option<Box<frond_cursor>>>,
) -> Status {
    enter("frond_cursor_open", || {
        let (txn, tree, cursor) = (need(txn, "txn")?, need(tree, "tree")?, need(cursor, "cursor")?);
        let inner = txn.inner.cursor(&tree.inner, to_engine(options)?)?;
        cursor.write(Some(Box::new(frond_cursor { inner, pending: false, is_backward: false })));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_cursor_close(cursor: Option<Box<frond_cursor>>) {
    guard("frond_cursor_close", || drop(cursor));
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_cursor_move(
    cursor: Option<&mut frond_cursor>,
    r#move: u32,
    key: Bytes<'_>,
    row: Out<'_, frond_row>,
) -> Status {
    enter("frond_cursor_move", || {
        let cursor = need(cursor, "cursor")?;
        let to = Move::new(r#move, key)?;
        cursor.turn(to);
        let present = cursor.go(to)?;
        cursor.lend(row, present);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_cursor_row(cursor: Option<&frond_cursor>, row: Out<'_, frond_row>) -> Status {
    enter("frond_cursor_row", || {
        let cursor = need(cursor, "cursor")?;
        let row = need(row, "row")?;
        cursor.inner.check_live()?;
        cursor.lend(Some(row), cursor.inner.valid());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_cursor_is_peeked(cursor: Option<&frond_cursor>) -> bool {
    guard("frond_cursor_is_peeked", || cursor.is_some_and(|cursor| cursor.inner.is_peeked()))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_cursor_gave_up_at(cursor: Option<&frond_cursor>) -> frond_slice {
    guard("frond_cursor_gave_up_at", || frond_slice::lend_some(cursor.and_then(|cursor| cursor.inner.gave_up_at())))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_cursor_gave_up(cursor: Option<&frond_cursor>) -> bool {
    guard("frond_cursor_gave_up", || cursor.is_some_and(|cursor| cursor.inner.gave_up()))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_cursor_lock_row(
    cursor: Option<&mut frond_cursor>,
    mode: u32,
    wait_ms: i64,
    row: Out<'_, frond_row>,
) -> Status {
    enter("frond_cursor_lock_row", || {
        let cursor = need(cursor, "cursor")?;
        let locked = cursor.inner.lock_row(lock_mode(mode)?, wait(wait_ms)?);
        // After a failure it stands nowhere: the next fetch must not begin with where it stood.
        cursor.pending &= cursor.inner.valid();
        let present = locked?;
        cursor.lend(row, present);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_cursor_unlock_row(cursor: Option<&mut frond_cursor>) -> Status {
    enter("frond_cursor_unlock_row", || need(cursor, "cursor")?.inner.unlock_row().map(|_| ()))
}
