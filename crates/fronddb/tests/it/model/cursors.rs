//! Cursors that stay open while a history of the model goes on, and are positioned and stepped now and then.
//!
//! When it is positioned by key or end, a cursor shows what its level shows at that moment, with what its transaction has written. Steps go on
//! among these rows; one that locks looks for each at what is committed last. Whether a step sees what has been changed since, by
//! its own transaction or (at READ UNCOMMITTED) by anybody, is not defined: then it may show any state that the key had since.

use std::collections::BTreeMap;
use std::ops::Bound;

use fronddb::{Cursor, CursorOptions, ErrorKind, Isolation, LockMode, Sees};

use super::{Change, Key, Map, World, apply};

/// Of one transaction.
const CURSORS_MAX: usize = 3;

#[derive(Debug)]
enum At {
    New,
    End,
    Row(Vec<u8>, Vec<u8>),
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
}

pub(super) struct Held {
    cursor: Cursor,
    pub(super) tree: usize,
    /// Of its bounds.
    keys: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    locks: bool,
    sees: Sees,
    keys_only: bool,
    base: Base,
    /// Each key that it saw when it was positioned, or may have come to see since, with the values that it had, in turn.
    states: BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>,
    at: At,
}

impl Held {
    /// The keys of these rows were changed, if they were.
    fn note(&mut self, rows: &BTreeMap<Vec<u8>, Vec<u8>>) {
        for (key, states) in &mut self.states {
            if states.last().is_some_and(|last| last.as_ref() != rows.get(key)) {
                states.push(rows.get(key).cloned());
            }
        }
        for (key, value) in rows {
            self.states.entry(key.clone()).or_insert_with(|| vec![None, Some(value.clone())]);
        }
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
            _ => Sees::Level,
        };
        let keys_only = self.random.below(6) == 0;
        let (lower, upper) = keys.clone();
        let options = CursorOptions { lower, upper, lock, sees, keys_only, ..CursorOptions::default() };
        let cursor = open.txn.cursor(&self.trees[tree], options).unwrap();
        let locks = lock.is_some() || open.isolation == Isolation::Serializable;
        let (base, states) = (Base::Committed, BTreeMap::new());
        let held = Held { cursor, tree, keys, locks, sees, keys_only, base, states, at: At::New };
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
            _ => Base::Fixed(of_tree(self.committed(), tree)),
        }
    }

    /// The rows that there are now for a cursor.
    fn rows(&self, at: usize, which: usize) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let (open, held) = (&self.open[at], &self.open[at].cursors[which]);
        let mut map = match &held.base {
            Base::Fixed(map) => map.clone(),
            Base::Committed => of_tree(self.committed(), held.tree),
            Base::Uncommitted => of_tree(&self.with_others(at), held.tree),
        };
        if held.locks || held.sees != Sees::Others {
            map = apply(&open.changes, &map);
        }
        let rows = of_tree(&map, held.tree).into_iter().map(|((_, key), value)| (key, value));
        let value = |value| if held.keys_only { Vec::new() } else { value };
        rows.filter(|(key, _)| std::ops::RangeBounds::contains(&held.keys, key))
            .map(|(key, row)| (key, value(row)))
            .collect()
    }

    /// Takes note of what a step changed that open cursors may see.
    pub(super) fn follow_cursors(&mut self) {
        for at in 0..self.open.len() {
            for which in 0..self.open[at].cursors.len() {
                if matches!(self.open[at].cursors[which].at, At::Row(..)) {
                    let rows = self.rows(at, which);
                    self.open[at].cursors[which].note(&rows);
                }
            }
        }
    }

    fn move_cursor(&mut self, at: usize, which: usize, to: Move) {
        let held = &self.open[at].cursors[which];
        let context = format!(
            "seed {}, {:?}, tree {}, {:?} sees {:?} locks={}, {to:?} from {:?}",
            self.seed, self.open[at].isolation, held.tree, held.keys, held.sees, held.locks, held.at
        );
        let shown = (held.cursor.valid(), held.cursor.key(), held.cursor.value());
        let expected = match &held.at {
            At::Row(key, value) => (true, key.as_slice(), value.as_slice()),
            At::New | At::End => (false, &[][..], &[][..]),
        };
        assert_eq!(shown, expected, "{context}: the row that it was at");
        let from = match (&held.at, &to) {
            (At::Row(key, _), Move::Next | Move::Prev) => Some(key.clone()),
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
        let open = &mut self.open[at];
        let held = &mut open.cursors[which];
        if from.is_none() {
            held.states = rows.iter().map(|(key, value)| (key.clone(), vec![Some(value.clone())])).collect();
        }
        let result = held.go(&to);
        let shown = result.is_ok().then(|| (held.cursor.key().to_vec(), held.cursor.value().to_vec()));
        held.at = At::End;
        assert_eq!(*result.as_ref().unwrap_or(&false), held.cursor.valid(), "{context}");
        if !self.granted(&result) {
            return;
        }
        let open = &mut self.open[at];
        let held = &mut open.cursors[which];
        let found = shown.filter(|_| held.cursor.valid());
        // What it passed, and what it came to.
        let (forward, begin) = (to.is_forward(), from.as_ref());
        let is_ahead = |key: &Vec<u8>| match &to {
            Move::Seek(sought) => key >= sought,
            Move::SeekForPrev(sought) => key <= sought,
            _ => begin.is_none_or(|begin| if forward { key > begin } else { key < begin }),
        };
        let is_passed = |key: &Vec<u8>| {
            let ends = |(end, _): &(Vec<u8>, Vec<u8>)| if forward { key < end } else { key > end };
            is_ahead(key) && found.as_ref().is_none_or(ends)
        };
        let (tree, locks) = (held.tree, held.locks);
        let may_be = |key: &Vec<u8>, value: Option<&Vec<u8>>| {
            let own = |key: &Key| open.changes.iter().any(|change| change.touches(key));
            if locks && !own(&(tree, key.clone())) {
                return rows.get(key) == value;
            }
            held.states.get(key).map_or(value.is_none(), |states| states.iter().any(|state| state.as_ref() == value))
        };
        let passed = held.states.keys().chain(rows.keys()).find(|key| is_passed(key) && !may_be(key, None));
        assert_eq!(passed, None, "{context}: passed over, found {found:?}");
        if let Some((key, value)) = found {
            assert!(is_ahead(&key) && may_be(&key, Some(&value)), "{context}: found {key:?} {value:?}");
            held.at = At::Row(key, value);
        }
    }
}

/// The rows of one tree.
fn of_tree(map: &Map, tree: usize) -> Map {
    map.range((tree, Vec::new())..(tree + 1, Vec::new())).map(|(key, value)| (key.clone(), value.clone())).collect()
}
