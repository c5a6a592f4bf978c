//! Cursors that stay open while a history of the model goes on, and are positioned and stepped now and then; of rows that they are
//! at they take the lock, and give it back.
//!
//! When it is positioned by key or end, a cursor shows what its level shows at that moment, with what its transaction has written. Steps go on
//! among these rows; one that locks looks for each at what is committed last. Whether a step sees what has been changed since, by
//! its own transaction or (at READ UNCOMMITTED) by anybody, is not defined: then it may show any state that the key had since.
//!
//! One that sees what others add ([`Sees::Added`]) must show each row that there was when it was positioned or that somebody has written,
//! and may show one that was deleted meanwhile; which of its values is not defined.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds as _};

use fronddb::format::blob::head_bytes;
use fronddb::{Cursor, CursorOptions, ErrorKind, Isolation, LockMode, Sees, Wait};

use super::{Change, Key, Map, World, apply};
use crate::support::BLOB_BYTES_MIN;

/// Of one transaction.
const CURSORS_MAX: usize = 3;

#[derive(Debug)]
enum At {
    New,
    End,
    Row(Vec<u8>, Vec<u8>),
    /// Where this row was, which was gone when it was to be locked, or held by another.
    Gone(Vec<u8>),
}

/// What a key may show.
#[derive(Debug, Clone, PartialEq)]
enum State {
    Absent,
    Value(Vec<u8>),
    Any,
}

/// The keys that may show a row, each with what it may show; all others are absent.
type Rows = BTreeMap<Vec<u8>, Vec<State>>;

fn shows(states: Option<&Vec<State>>, value: Option<&Vec<u8>>) -> bool {
    let is_shown = |state: &State| match (state, value) {
        (State::Absent, None) | (State::Any, Some(_)) => true,
        (State::Value(state), Some(value)) => state == value,
        _ => false,
    };
    states.map_or(value.is_none(), |states| states.iter().any(is_shown))
}

/// Where a cursor was sent.
#[derive(Debug, Clone)]
enum Move {
    First,
    Last,
    Seek(Vec<u8>),
    SeekForPrev(Vec<u8>),
    Next,
    Prev,
}

impl Move {
    fn is_forward(&self) -> bool {
        matches!(self, Move::First | Move::Seek(_) | Move::Next)
    }
}

/// What a cursor sees of others.
enum Base {
    /// What it saw when it was positioned.
    Fixed(Map),
    Committed,
    Uncommitted,
    /// The same as `Fixed`, and what others have written: those that committed since, after so many, and those that have not.
    Added(Map, usize),
}

pub(super) struct Held {
    cursor: Cursor,
    pub(super) tree: usize,
    /// Of its bounds.
    keys: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    locks: bool,
    /// Leaves out rows that others hold; stops at them without a lock.
    skips: bool,
    peeks: bool,
    sees: Sees,
    shows: Shows,
    base: Base,
    /// Each key that it saw when it was positioned, or may have come to see since, with all that it may have shown.
    states: Rows,
    at: At,
    /// How it came there, and from which row.
    came: (Move, Option<Vec<u8>>),
}

/// How much of a value a cursor shows.
#[derive(Debug, Clone, Copy)]
struct Shows {
    keys_only: bool,
    heads_only: bool,
}

impl Shows {
    /// What of a value is compared: of a large one the head, where it may show no more.
    fn of(self, mut value: Vec<u8>) -> Vec<u8> {
        if self.heads_only && value.len() >= BLOB_BYTES_MIN {
            value.truncate(head_bytes(value.len()));
        }
        if self.keys_only { Vec::new() } else { value }
    }
}

impl Held {
    /// These are its rows now.
    fn note(&mut self, rows: Rows) {
        for (key, states) in &mut self.states {
            if !rows.contains_key(key) && !states.contains(&State::Absent) {
                states.push(State::Absent);
            }
        }
        for (key, now) in rows {
            let states = self.states.entry(key).or_insert_with(|| vec![State::Absent]);
            for state in now {
                if !states.contains(&state) {
                    states.push(state);
                }
            }
        }
    }

    /// Those rows of its tree that are within its bounds, as it shows them.
    fn rows_of(&self, map: Map) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let rows = map.into_iter().filter(|((tree, key), _)| *tree == self.tree && self.keys.contains(key));
        rows.map(|((_, key), value)| (key, self.shows.of(value)))
    }

    /// Its row.
    fn shown(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.cursor.valid().then(|| (self.cursor.key().to_vec(), self.shows.of(self.cursor.value().to_vec())))
    }

    /// Whatever went on since, it shows the row that it was at.
    fn is_where_it_was(&self, context: &str) {
        let row = match &self.at {
            At::Row(key, value) => Some((key.clone(), value.clone())),
            At::New | At::End | At::Gone(_) => None,
        };
        assert_eq!(self.shown(), row, "{context}: the row that it was at");
        assert!(row.is_some() || self.cursor.key().is_empty() && self.cursor.value().is_empty(), "{context}");
    }

    fn go(&mut self, to: &Move) -> fronddb::Result<bool> {
        match to {
            Move::First => self.cursor.first(),
            Move::Last => self.cursor.last(),
            Move::Seek(key) => self.cursor.seek(key),
            Move::SeekForPrev(key) => self.cursor.seek_for_prev(key),
            Move::Next => self.cursor.next(),
            Move::Prev => self.cursor.prev(),
        }
    }

    /// It cannot be positioned any more, and says so.
    pub(super) fn refuses(mut self, kind: ErrorKind) {
        let error = self.cursor.first().unwrap_err();
        assert_eq!((error.kind(), self.cursor.valid()), (kind, false), "{error}");
    }
}

/// Their transaction has ended.
pub(super) fn are_closed(cursors: Vec<Held>) {
    cursors.into_iter().for_each(|held| held.refuses(ErrorKind::Closed));
}

impl World {
    /// Moves a cursor of each open transaction, now and then a new one.
    pub(super) fn move_cursors(&mut self) {
        for at in 0..self.open.len() {
            if self.open[at].cursors.len() == CURSORS_MAX && self.random.below(6) == 0 {
                self.open[at].cursors.remove(0);
            }
            let count = self.open[at].cursors.len();
            if count == 0 || count < CURSORS_MAX && self.random.below(6) == 0 {
                self.open_cursor(at);
            }
            let which = self.random.below(self.open[at].cursors.len() as u64) as usize;
            self.move_a_while(at, which);
        }
    }

    fn move_a_while(&mut self, at: usize, which: usize) {
        // Others may have ended since it stopped.
        if self.random.below(2) == 0 {
            self.take_peeked(at, which);
        }
        for _ in 0..1 + self.random.below(6) {
            let key = self.key_to_seek(at, which);
            let to = match self.random.below(16) {
                0 => Move::First,
                1 => Move::Last,
                2..4 => Move::Seek(key),
                4..6 => Move::SeekForPrev(key),
                6..11 => Move::Next,
                _ => Move::Prev,
            };
            self.move_cursor(at, which, to);
            match self.random.below(12) {
                0..3 => self.pass_rows(at, which),
                3 => self.lock_row(at, which),
                4 => self.take_peeked(at, which),
                5 => self.unlock_row(at, which),
                _ => {}
            }
        }
    }

    /// Any key, or one that was changed of late: by its transaction, or by the one that committed last.
    fn key_to_seek(&mut self, at: usize, which: usize) -> Vec<u8> {
        let (any, by_own, among) = (self.key().1, self.random.below(2) == 0, self.random.below(4) as usize);
        let changes = if by_own { Some(&self.open[at].changes) } else { self.commits.last() };
        let tree = self.open[at].cursors[which].tree;
        let of_tree = |change: &&Change| matches!(change.place(), Some((of, _)) if of == tree);
        let change = changes.and_then(|changes| changes.iter().rev().filter(of_tree).nth(among));
        change.and_then(Change::place).map_or(any, |(_, key)| key.clone())
    }

    fn open_cursor(&mut self, at: usize) {
        let ((tree, lower), upper) = (self.key(), self.key().1);
        let keys = match self.random.below(4) {
            0 if lower < upper => (Bound::Included(lower), Bound::Excluded(upper)),
            1 if lower < upper => (Bound::Excluded(lower), Bound::Included(upper)),
            _ => (Bound::Unbounded, Bound::Unbounded),
        };
        let open = &self.open[at];
        // Where the first updater wins, whoever locks may be refused: the model's single locking reads show that.
        let lock = match self.random.below(8) {
            0 if !open.first_updater_wins => Some(LockMode::Shared),
            1 if !open.first_updater_wins => Some(LockMode::Exclusive),
            _ => None,
        };
        let sees = match self.random.below(10) {
            0 => Sees::Committed,
            1 => Sees::Latest,
            2 => Sees::Others,
            3 => Sees::Added,
            _ => Sees::Level,
        };
        let skips = self.random.below(4) == 0;
        let peeks = self.random.below(2) == 0;
        let (keys_only, heads_only) = (self.random.below(6) == 0, self.random.below(4) == 0);
        let (lower, upper) = keys.clone();
        let wait = if skips { Wait::SkipLocked } else { Wait::Default };
        let options =
            CursorOptions { lower, upper, lock, wait, peeks, sees, keys_only, heads_only, ..CursorOptions::default() };
        let cursor = open.txn.cursor(&self.trees[tree], options).unwrap();
        let locks = lock.is_some() || open.isolation == Isolation::Serializable;
        let peeks = peeks && !open.locks_gaps();
        let (base, states) = (Base::Committed, BTreeMap::new());
        let (shows, came) = (Shows { keys_only, heads_only }, (Move::First, None));
        let held = Held { cursor, tree, keys, locks, skips, peeks, sees, shows, base, states, at: At::New, came };
        self.open[at].cursors.push(held);
    }

    /// What a cursor sees that is positioned now.
    fn base(&mut self, at: usize, which: usize) -> Base {
        let (isolation, held) = (self.open[at].isolation, &self.open[at].cursors[which]);
        let tree = held.tree;
        match (held.locks, held.sees, isolation) {
            (true, ..) => Base::Committed,
            (false, Sees::Level, Isolation::ReadUncommitted) => Base::Uncommitted,
            (false, Sees::Level | Sees::Committed | Sees::Others, Isolation::RepeatableRead) => {
                Base::Fixed(of_tree(&self.snapshot(at).map, tree))
            }
            (false, Sees::Committed, Isolation::ReadCommitted)
            | (false, Sees::Committed | Sees::Others, Isolation::ReadUncommitted) => {
                Base::Fixed(of_tree(&self.walked(at), tree))
            }
            (false, Sees::Level | Sees::Committed | Sees::Others, _) => Base::Fixed(of_tree(&self.statement(at), tree)),
            (false, Sees::Latest, _) => Base::Fixed(of_tree(self.committed(), tree)),
            (false, Sees::Added, _) => Base::Added(of_tree(self.committed(), tree), self.commits.len()),
        }
    }

    /// The rows that there are now for a cursor.
    fn rows(&self, at: usize, which: usize) -> Rows {
        let (open, held) = (&self.open[at], &self.open[at].cursors[which]);
        let map = match &held.base {
            Base::Fixed(map) => map.clone(),
            Base::Committed => of_tree(self.committed(), held.tree),
            Base::Uncommitted => of_tree(&self.with_others(at), held.tree),
            Base::Added(map, commits) => return self.rows_added(at, held, map, *commits),
        };
        let sees_own = held.locks || held.sees != Sees::Others;
        let map = if sees_own { apply(&open.changes, &map) } else { map };
        held.rows_of(map).map(|(key, value)| (key, vec![State::Value(value)])).collect()
    }

    /// The same for one that sees what others add.
    fn rows_added(&self, at: usize, held: &Held, seen: &Map, commits: usize) -> Rows {
        let own = &self.open[at].changes;
        let others: Vec<&Change> = self.commits[commits..].iter().chain(self.of_others(at)).flatten().collect();
        let mut most = seen.clone();
        let is_kept = |change: &&&Change| !matches!(change, Change::Delete(_) | Change::DeleteRange(..));
        others.iter().filter(is_kept).for_each(|change| change.apply(&mut most));
        let mut least = of_tree(&self.with_others(at), held.tree);
        least.extend(seen.clone());
        let least = apply(own, &least);
        let states = |(key, value): (Vec<u8>, Vec<u8>)| {
            let inner = (held.tree, key.clone());
            let is_touched = others.iter().any(|change| change.touches(&inner));
            let mut states = vec![if is_touched { State::Any } else { State::Value(value) }];
            if !least.contains_key(&inner) {
                states.push(State::Absent);
            }
            (key, states)
        };
        held.rows_of(apply(own, &most)).map(states).collect()
    }

    /// Takes note of what a step changed that open cursors may see.
    pub(super) fn follow_cursors(&mut self) {
        for at in 0..self.open.len() {
            for which in 0..self.open[at].cursors.len() {
                if matches!(self.open[at].cursors[which].at, At::Row(..) | At::Gone(_)) {
                    let rows = self.rows(at, which);
                    self.open[at].cursors[which].note(rows);
                }
            }
        }
    }

    fn context(&self, at: usize, which: usize, done: &dyn std::fmt::Debug) -> String {
        let held = &self.open[at].cursors[which];
        format!(
            "seed {}, {:?}, tree {}, {:?} sees {:?} locks={} skips={} peeks={}, {done:?} from {:?}",
            self.seed,
            self.open[at].isolation,
            held.tree,
            held.keys,
            held.sees,
            held.locks,
            held.skips,
            held.peeks,
            held.at
        )
    }

    fn move_cursor(&mut self, at: usize, which: usize, to: Move) {
        let context = self.context(at, which, &to);
        let held = &self.open[at].cursors[which];
        held.is_where_it_was(&context);
        let from = match (&held.at, &to) {
            (At::Row(key, _) | At::Gone(key), Move::Next | Move::Prev) => Some(key.clone()),
            (At::End, Move::Next | Move::Prev) => {
                assert!(!self.open[at].cursors[which].go(&to).unwrap(), "{context}");
                return;
            }
            _ => None,
        };
        if from.is_none() {
            self.open[at].cursors[which].base = self.base(at, which);
        }
        let rows = self.rows(at, which);
        if from.is_none() {
            self.open[at].cursors[which].states = rows.clone();
        }
        let held = &mut self.open[at].cursors[which];
        let result = held.go(&to);
        held.at = At::End;
        assert_eq!(*result.as_ref().unwrap_or(&false), held.cursor.valid(), "{context}");
        let found = held.shown();
        if self.granted(&result) {
            self.comes_to(at, which, (to, from), &rows, found, &context);
        }
    }

    /// A cursor came to the row that it `found`, or to none, by this move, from the row at which it was.
    fn comes_to(
        &mut self,
        at: usize,
        which: usize,
        (to, from): (Move, Option<Vec<u8>>),
        rows: &Rows,
        found: Option<(Vec<u8>, Vec<u8>)>,
        context: &str,
    ) {
        let is_contended = self.contended();
        let open = &mut self.open[at];
        let held = &mut open.cursors[which];
        // What it passed, and what it came to.
        let forward = to.is_forward();
        let is_ahead = |key: &Vec<u8>| match &to {
            Move::Seek(sought) => key >= sought,
            Move::SeekForPrev(sought) => key <= sought,
            _ => from.as_ref().is_none_or(|from| if forward { key > from } else { key < from }),
        };
        let is_passed = |key: &Vec<u8>| {
            let ends = |(end, _): &(Vec<u8>, Vec<u8>)| if forward { key < end } else { key > end };
            is_ahead(key) && found.as_ref().is_none_or(ends)
        };
        let (tree, locks) = (held.tree, held.locks);
        let may_be = |key: &Vec<u8>, value: Option<&Vec<u8>>| {
            let own = |key: &Key| open.changes.iter().any(|change| change.touches(key));
            let states = if locks && !own(&(tree, key.clone())) { rows } else { &held.states };
            shows(states.get(key), value)
        };
        let skips = locks && is_contended && held.skips;
        let passed = held.states.keys().chain(rows.keys()).find(|key| is_passed(key) && !may_be(key, None));
        assert!(passed.is_none() || skips, "{context}: passed over {passed:?}, found {found:?}");
        if let Some((key, value)) = found {
            assert!(is_ahead(&key) && may_be(&key, Some(&value)), "{context}: found {key:?} {value:?}");
            held.at = At::Row(key, value);
        }
        assert!(!held.cursor.is_peeked() || is_contended && locks && held.peeks, "{context}: peeks");
        held.came = (to, from);
    }

    /// Steps that look at nothing, as many as are to be had.
    fn pass_rows(&mut self, at: usize, which: usize) {
        let (most, wanted) = (self.random.below(20) as usize, self.random.below(20) as usize);
        let context = self.context(at, which, &("pass", most, wanted));
        let rows = self.rows(at, which);
        let held = &mut self.open[at].cursors[which];
        let (shows, mut taken) = (held.shows, Vec::new());
        let passed = held.cursor.pass(most, |key, value| {
            let takes = taken.len() < wanted;
            if takes {
                taken.push((key.concat(), shows.of(value.to_vec())));
            }
            takes
        });
        assert!(passed == taken.len() && passed <= most, "{context}: {passed} of {taken:?}");
        if held.cursor.advance() {
            taken.extend(held.shown());
        }
        for row in taken {
            let At::Row(from, _) = &self.open[at].cursors[which].at else {
                panic!("{context}: from no row to {row:?}")
            };
            let by = (Move::Next, Some(from.clone()));
            self.comes_to(at, which, by, &rows, Some(row), &context);
        }
        self.open[at].cursors[which].is_where_it_was(&context);
    }

    /// The row as a transaction must find it that locks it, nothing where it is a cursor of keys alone.
    fn latest(&self, at: usize, which: usize, key: &Key) -> Option<Vec<u8>> {
        let value = apply(&self.open[at].changes, self.committed()).remove(key)?;
        Some(self.open[at].cursors[which].shows.of(value))
    }

    fn lock_row(&mut self, at: usize, which: usize) {
        let At::Row(key, _) = &self.open[at].cursors[which].at else { return };
        let key = (self.open[at].cursors[which].tree, key.clone());
        let mode = if self.random.below(2) == 0 { LockMode::Shared } else { LockMode::Exclusive };
        // Where the first updater wins, it must be known whether it came to look for a conflict.
        let skips = !self.open[at].first_updater_wins && self.random.below(2) == 0;
        let wait = if skips { Wait::SkipLocked } else { Wait::NoWait };
        let context = self.context(at, which, &("lock", mode, wait));
        let latest = self.latest(at, which, &key);
        let held = &mut self.open[at].cursors[which];
        let result = held.cursor.lock_row(mode, wait);
        let shown = held.shown();
        assert_eq!(*result.as_ref().unwrap_or(&false), shown.is_some(), "{context}");
        held.at = shown.clone().map_or(At::Gone(key.1.clone()), |(key, value)| At::Row(key, value));
        if self.is_conflict(at, &key, &result) || !self.granted(&result) {
            return;
        }
        match shown {
            Some((shown, value)) => {
                assert!(!self.is_prepared(&key), "{context}: locked what a prepared transaction wrote");
                assert_eq!((shown, Some(value)), (key.1, latest), "{context}");
            }
            None => assert!(latest.is_none() || skips && self.contended(), "{context}: not locked, {latest:?}"),
        }
    }

    /// A row that it peeks at becomes its own, or it goes on as if it had waited for the row at once.
    fn take_peeked(&mut self, at: usize, which: usize) {
        let context = self.context(at, which, &"again");
        let held = &mut self.open[at].cursors[which];
        if !held.cursor.is_peeked() {
            assert_eq!(held.cursor.again().unwrap(), held.cursor.valid(), "{context}");
            return held.is_where_it_was(&context);
        }
        let At::Row(key, _) = &held.at else { panic!("{context}: peeks at nothing") };
        let key = (held.tree, key.clone());
        let result = held.cursor.again();
        let (shown, came) = (held.shown(), held.came.clone());
        held.at = At::Gone(key.1.clone());
        if !self.granted(&result) {
            return assert_eq!(shown, None, "{context}");
        }
        let (rows, latest) = (self.rows(at, which), self.latest(at, which, &key));
        let held = &mut self.open[at].cursors[which];
        match shown {
            Some((shown, value)) if shown == key.1 => {
                assert!(
                    Some(&value) == latest.as_ref() && !held.cursor.is_peeked(),
                    "{context}: {value:?}, not {latest:?}"
                );
                held.at = At::Row(shown, value);
            }
            shown => {
                held.at = At::End;
                self.comes_to(at, which, came, &rows, shown, &context);
            }
        }
    }

    fn unlock_row(&mut self, at: usize, which: usize) {
        let context = self.context(at, which, &"unlock");
        let locks_gaps = self.open[at].locks_gaps();
        let open = &mut self.open[at];
        let held = &mut open.cursors[which];
        if held.cursor.unlock_row().unwrap() {
            let At::Row(key, _) = &held.at else { panic!("{context}: of no row") };
            let key = (held.tree, key.clone());
            let is_own = open.changes.iter().any(|change| change.touches(&key));
            assert!(!is_own && !locks_gaps, "{context}: unlocked, is_own={is_own}");
        }
        held.is_where_it_was(&context);
    }
}

/// The rows of one tree.
fn of_tree(map: &Map, tree: usize) -> Map {
    map.range((tree, Vec::new())..(tree + 1, Vec::new())).map(|(key, value)| (key.clone(), value.clone())).collect()
}
