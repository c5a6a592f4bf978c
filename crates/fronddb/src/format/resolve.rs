//! The rules by which messages of one key combine: what a reader gets, what a compaction may drop.
//!
//! Both take the messages of one key **newest first** and the range-deletes that cover the key. Pure:
//! the answers depend on nothing but the arguments, so that property tests can compare them with a model.
//!
//! A *decisive* message (put, delete, single-delete, or a covering range-delete) settles what the key is
//! without looking at older ones; an update or an insert-if-absent needs the older state.
//!
//! Invariants, all tested in `resolve/tests.rs` by comparing every reader's answer before and after:
//! - R1: compaction changes no answer of any snapshot in [`Retention::snapshots`], nor of any later one.
//! - R2: compaction of a part of the messages of a key (newest, middle or oldest neighbours) keeps R1 for
//!   the whole; only with `bottom` may it assume that nothing older exists.
//! - R3: a message whose transaction is undecided is kept, unless a newer message of the same step
//!   decides the same key, or it is an insert-if-absent that finds a value of the same step, or a newer range-delete that every
//!   reader sees covers it. (Such a message was written covered, see
//!   `db/covered.rs`: range-deletes do not wait for those. Its own transaction does not see it either.)
//! - R4: a single-delete leaves only together with its put, or under a newer full delete, or when nothing
//!   older is left at the bottom. (If a newer put could push it out, the next single-delete would uncover the older put.
//!   For the same reason a key that knows single-deletes must not know plain deletes: see [`Kind`].)
//! - R5: only aborted, superseded or annihilated messages leave, and inserts-if-absent that find a value; each blob of such a message is reported.

mod written_over;

use std::borrow::Cow;

use smallvec::SmallVec;

use super::message::{Kind, Message, Stamp};
use super::program::{self, Program};
use super::visibility::{Retention, Sight, Status, View};
use crate::base::{CommitNumber, Result, TxnId};
pub use written_over::is_written_over;

/// What a reader finds out about one key, fed with its messages newest first.
#[derive(Debug, Default)]
pub struct KeyReader {
    deleted_below: u64,
    /// Newest first.
    pending: SmallVec<[Pending; 0]>,
}

/// What is to be done with the older value.
#[derive(Debug)]
enum Pending {
    /// It counts where there is no value.
    Insert(Vec<u8>),
    /// An update as it is stored.
    Update(Vec<u8>),
    /// So many updates.
    Updates(Program, usize),
}

/// Operations to which updates are taken together while a reader collects them: each new one is compared with those before it.
const PENDING_OPS_MAX: usize = 256;

/// Where the value of a key comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Not settled yet: older messages are needed. `by`: the other transaction whose change this message is, where that was
    /// neither committed nor aborted when it was looked at.
    Undecided {
        /// See above.
        by: Option<TxnId>,
    },
    /// The key has no older value.
    Absent,
    /// The payload of the message just given is the older value.
    Here,
}

impl KeyReader {
    /// For a key about which nothing is known yet.
    pub fn new() -> KeyReader {
        KeyReader::default()
    }

    /// Ready for the next key; keeps its memory.
    pub fn clear(&mut self) {
        self.deleted_below = 0;
        self.pending.clear();
    }

    /// Tells of a covering range-delete. To be told before any message that is older than it.
    pub fn range_delete(&mut self, view: &View<'_>, seq: u64, stamp: Stamp) {
        if seq > self.deleted_below && view.sees(stamp, true) {
            self.delete_below(seq);
        }
    }

    /// As of a range-delete with this number that the reader sees.
    #[inline]
    pub fn delete_below(&mut self, seq: u64) {
        self.deleted_below = self.deleted_below.max(seq);
    }

    /// Of a range-delete that is no newer nothing need be told.
    pub fn deleted_below(&self) -> u64 {
        self.deleted_below
    }

    /// Takes the next older message. On anything but [`Found::Undecided`], no more are needed.
    #[inline]
    pub fn message(&mut self, view: &View<'_>, message: &Message<'_>) -> Found {
        if message.seq < self.deleted_below {
            return Found::Absent;
        }
        match view.sight(message.stamp, matches!(message.kind, Kind::Delete | Kind::SingleDelete)) {
            Sight::Seen => {}
            Sight::Unseen => return Found::Undecided { by: None },
            Sight::Undecided(by) => return Found::Undecided { by: Some(by) },
        }
        match message.kind {
            Kind::Put => Found::Here,
            Kind::Delete | Kind::SingleDelete => Found::Absent,
            Kind::InsertIfAbsent => {
                self.insert(message.payload);
                Found::Undecided { by: None }
            }
            Kind::Update => {
                self.pending.push(Pending::Update(message.payload.to_vec()));
                self.take_together();
                Found::Undecided { by: None }
            }
        }
    }

    fn insert(&mut self, payload: &[u8]) {
        // From this one on there is a value, which no update takes away: a newer insert finds it.
        if let Some(newer) = self.pending.iter().rposition(|pending| matches!(pending, Pending::Insert(_))) {
            self.pending.remove(newer);
            self.take_together();
        }
        self.pending.push(Pending::Insert(payload.to_vec()));
    }

    /// Makes updates next to each other one: so a counter that was added to very often takes no memory for each time. Those that are more wait for
    /// those that are fewer, as the digits of a binary number do: however long programs get, each operation is moved some log n times.
    fn take_together(&mut self) {
        while let [.., newer, older] = &mut self.pending[..]
            && newer.count() <= older.count()
            && let (Some((newer, newer_count)), Some((older, older_count))) = (newer.updates(), older.updates())
            && newer.ops.len() + older.ops.len() <= PENDING_OPS_MAX
        {
            older.append(std::mem::take(newer));
            let together = Pending::Updates(std::mem::take(older), newer_count + older_count);
            self.pending.truncate(self.pending.len() - 2);
            self.pending.push(together);
        }
    }

    /// True when the older value alone is the answer.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.pending.is_empty()
    }

    /// The value, given the older one (`None`: absent).
    ///
    /// # Errors
    /// `Corruption` when an update's program is malformed.
    pub fn finish(&mut self, older: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let mut value = older;
        while let Some(pending) = self.pending.pop() {
            value = match pending {
                Pending::Insert(given) => value.or(Some(given)),
                Pending::Update(payload) => program::apply(&payload, value)?,
                Pending::Updates(program, _) => program.apply(value),
            };
        }
        Ok(value)
    }
}

impl Pending {
    /// Updates in it; more than any of an insert.
    fn count(&self) -> usize {
        match self {
            Pending::Insert(_) => usize::MAX,
            Pending::Update(_) => 1,
            Pending::Updates(_, count) => *count,
        }
    }

    /// The updates decoded, and how many they are; none where that fails: then applying them fails.
    fn updates(&mut self) -> Option<(&mut Program, usize)> {
        if let Pending::Update(payload) = self {
            *self = Pending::Updates(Program::decode(payload).ok()?, 1);
        }
        match self {
            Pending::Updates(program, count) => Some((program, *count)),
            _ => None,
        }
    }
}

/// What compaction knows about when a message was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Aborted,
    Undecided,
    /// At this number; 0 when settled.
    Committed(CommitNumber),
}

/// Resolves stamps for a compaction; remembers the last lookup, because neighbours share transactions.
#[derive(Debug)]
pub struct Stamper {
    last: Option<(Stamp, Fate)>,
}

impl Default for Stamper {
    fn default() -> Self {
        Stamper::new()
    }
}

impl Stamper {
    /// Knows nothing yet.
    pub fn new() -> Stamper {
        Stamper { last: None }
    }

    #[inline]
    fn fate(&mut self, retention: &Retention<'_>, stamp: Stamp) -> Fate {
        if stamp == Stamp::Settled {
            return Fate::Committed(CommitNumber(0));
        }
        if let Some((last, fate)) = self.last
            && last == stamp
        {
            return fate;
        }
        let commit = match stamp {
            Stamp::Settled => Ok(CommitNumber(0)),
            Stamp::Committed(number) => Ok(number),
            Stamp::Written { txn, step } => match retention.statuses.status(txn, step) {
                Status::Committed(number) if number <= retention.newest() => Ok(number),
                Status::Committed(_) | Status::Active => Err(Fate::Undecided),
                Status::Aborted => Err(Fate::Aborted),
            },
        };
        let fate = match commit {
            Ok(number) if number <= retention.horizon() => Fate::Committed(CommitNumber(0)),
            Ok(number) => Fate::Committed(number),
            Err(fate) => fate,
        };
        self.last = Some((stamp, fate));
        fate
    }

    /// The stamp that a range-delete leaves a compaction with; `None` when it was aborted.
    pub fn restamp(&mut self, retention: &Retention<'_>, stamp: Stamp) -> Option<Stamp> {
        match self.fate(retention, stamp) {
            Fate::Aborted => None,
            Fate::Undecided => Some(stamp),
            Fate::Committed(number) => Some(committed(number)),
        }
    }
}

fn committed(number: CommitNumber) -> Stamp {
    if number.0 == 0 { Stamp::Settled } else { Stamp::Committed(number) }
}

/// Receives what a compaction keeps, newest first, and the payloads of blob messages that it drops.
pub trait Sink {
    /// Keeps a message.
    ///
    /// # Errors
    /// Whatever the sink's storage reports.
    fn keep(&mut self, message: &Message<'_>) -> Result<()>;

    /// A dropped message held this blob reference.
    fn drop_blob(&mut self, payload: &[u8]);
}

#[derive(Debug)]
struct Entry<'a> {
    message: Message<'a>,
    fate: Fate,
    /// Replaces the message's own payload.
    folded: Folded,
    /// Stands for a range-delete that covers the key; never written.
    ranged: bool,
}

/// What was made of several messages.
#[derive(Debug, Default)]
enum Folded {
    #[default]
    No,
    Value(Vec<u8>),
    /// A program, and how long it is at most when it is encoded.
    Program(Program, usize),
}

impl Entry<'_> {
    fn payload(&self) -> Cow<'_, [u8]> {
        match &self.folded {
            Folded::No => Cow::Borrowed(self.message.payload),
            Folded::Value(value) => Cow::Borrowed(value),
            Folded::Program(program, _) => {
                let mut bytes = Vec::new();
                program.encode(&mut bytes);
                Cow::Owned(bytes)
            }
        }
    }

    /// The value of a put.
    fn value_bytes(&self) -> usize {
        match &self.folded {
            Folded::Value(value) => value.len(),
            _ => self.message.payload.len(),
        }
    }

    fn take_value(&mut self) -> Vec<u8> {
        match std::mem::take(&mut self.folded) {
            Folded::Value(value) => value,
            _ => self.message.payload.to_vec(),
        }
    }

    /// The program of an update, and how long it is at most when it is encoded.
    fn take_program(&mut self) -> Result<(Program, usize)> {
        match std::mem::take(&mut self.folded) {
            Folded::Program(program, bytes) => Ok((program, bytes)),
            _ => Ok((Program::decode(self.message.payload)?, self.message.payload.len())),
        }
    }

    fn is_delete(&self) -> bool {
        matches!(self.message.kind, Kind::Delete | Kind::SingleDelete)
    }
}

/// Compacts the messages of one key (newest first). `covering` are the range-deletes that cover the key,
/// in any order; `bottom` says that nothing older exists anywhere.
///
/// # Errors
/// `Corruption` for a malformed update program, and the sink's.
pub fn compact(
    stamper: &mut Stamper,
    retention: &Retention<'_>,
    bottom: bool,
    messages: &[Message<'_>],
    covering: &[(u64, Stamp)],
    sink: &mut impl Sink,
) -> Result<()> {
    if let ([message], []) = (messages, covering) {
        return compact_one(stamper, retention, bottom, message, sink);
    }
    let entries = survivors(stamper, retention, messages, covering, sink);
    let entries = supersede(retention, entries, sink);
    let entries = fold(retention, bottom, entries, sink)?;
    for entry in entries.iter().filter(|entry| !entry.ranged) {
        let stamp = match entry.fate {
            Fate::Committed(number) => committed(number),
            _ => entry.message.stamp,
        };
        sink.keep(&Message { stamp, payload: &entry.payload(), ..entry.message })?;
    }
    Ok(())
}

/// The common case: a key with a single message.
#[inline]
fn compact_one(
    stamper: &mut Stamper,
    retention: &Retention<'_>,
    bottom: bool,
    message: &Message<'_>,
    sink: &mut impl Sink,
) -> Result<()> {
    let (stamp, decided) = match stamper.fate(retention, message.stamp) {
        Fate::Aborted => {
            if message.blob {
                sink.drop_blob(message.payload);
            }
            return Ok(());
        }
        Fate::Undecided => (message.stamp, false),
        Fate::Committed(number) => (committed(number), true),
    };
    if bottom && decided {
        match message.kind {
            Kind::Put => {}
            Kind::InsertIfAbsent => return sink.keep(&Message { stamp, kind: Kind::Put, ..*message }),
            Kind::Delete | Kind::SingleDelete => return Ok(()),
            Kind::Update => {
                let program = Program::decode(message.payload)?;
                // As in `become_value`, what would be too long stays what it is.
                if program.length_after(None).unwrap_or(0) <= FOLDED_BYTES_MAX {
                    return match program.apply(None) {
                        Some(value) => sink.keep(&Message { stamp, kind: Kind::Put, payload: &value, ..*message }),
                        None => Ok(()),
                    };
                }
            }
        }
    }
    sink.keep(&Message { stamp, ..*message })
}

/// Step 1: drops what was aborted and weaves the covering range-deletes in as deletes.
fn survivors<'a>(
    stamper: &mut Stamper,
    retention: &Retention<'_>,
    messages: &[Message<'a>],
    covering: &[(u64, Stamp)],
    sink: &mut impl Sink,
) -> Vec<Entry<'a>> {
    let mut entries: Vec<Entry<'a>> = Vec::with_capacity(messages.len() + covering.len());
    let mut covering = covering.to_vec();
    covering.sort_by_key(|(seq, _)| *seq); // the newest last, to be popped first
    let key = messages.first().map_or(&[][..], |message| message.key);
    let mut weave = |entries: &mut Vec<Entry<'a>>, stamper: &mut Stamper, above: u64| {
        while let Some((seq, stamp)) = covering.pop_if(|(seq, _)| *seq > above) {
            let fate = stamper.fate(retention, stamp);
            if fate != Fate::Aborted {
                let message = Message { key, seq, stamp, kind: Kind::Delete, blob: false, payload: &[] };
                entries.push(Entry { message, fate, folded: Folded::No, ranged: true });
            }
        }
    };
    for message in messages {
        weave(&mut entries, stamper, message.seq);
        match stamper.fate(retention, message.stamp) {
            Fate::Aborted if message.blob => sink.drop_blob(message.payload),
            Fate::Aborted => {}
            fate => entries.push(Entry { message: *message, fate, folded: Folded::No, ranged: false }),
        }
    }
    entries
}

/// Step 2: drops what no reader can see below a newer decisive message, and pairs of put and single-delete.
///
/// Of the decisive messages only the nearest can do that: commits of one key come in the order of its messages, so what is not of
/// one stripe with the nearest is not with those further up; and the steps of a transaction that is not decided come in order too.
fn supersede<'a>(retention: &Retention<'_>, entries: Vec<Entry<'a>>, sink: &mut impl Sink) -> Vec<Entry<'a>> {
    let mut kept: Vec<Entry<'a>> = Vec::with_capacity(entries.len());
    // The last that is decisive.
    let mut nearest: Vec<usize> = Vec::new();
    for entry in entries {
        let hides = |newer: &Entry<'_>| newer.ranged && newer.fate == Fate::Committed(CommitNumber(0));
        let newer = nearest
            .last()
            .copied()
            .filter(|newer| hides(&kept[*newer]) || same_stripe(retention, &entry, &kept[*newer]));
        let superseded = newer.is_some_and(|newer| {
            let above = &kept[newer];
            let pair = above.message.kind == Kind::SingleDelete && !above.ranged && entry.message.kind == Kind::Put;
            if pair && newer + 1 == kept.len() {
                kept.pop();
                nearest.pop();
                return true;
            }
            // R4
            entry.message.kind != Kind::SingleDelete || above.message.kind == Kind::Delete
        });
        if superseded {
            drop_entry(&entry, sink);
            continue;
        }
        if is_decisive(&entry) {
            nearest.push(kept.len());
        }
        kept.push(entry);
    }
    kept
}

fn drop_entry(entry: &Entry<'_>, sink: &mut impl Sink) {
    if entry.message.blob && !entry.ranged {
        sink.drop_blob(entry.message.payload);
    }
}

/// An undecided single-delete does not count: its own transaction, which may read at an old snapshot, sees
/// no row because of it, and what lies below the pair may be a row at that snapshot.
fn is_decisive(entry: &Entry<'_>) -> bool {
    match entry.message.kind {
        Kind::Put | Kind::Delete => true,
        Kind::SingleDelete => entry.fate != Fate::Undecided,
        Kind::InsertIfAbsent | Kind::Update => false,
    }
}

/// True when every reader that sees `older` sees `newer` too.
fn same_stripe(retention: &Retention<'_>, older: &Entry<'_>, newer: &Entry<'_>) -> bool {
    match (older.fate, newer.fate) {
        (Fate::Committed(older), Fate::Committed(newer)) => !retention.separates(older, newer),
        (Fate::Undecided, Fate::Undecided) => older.message.stamp == newer.message.stamp,
        _ => false,
    }
}

/// A value or an update that would grow beyond this stays in pieces: a block must fit an extent.
const FOLDED_BYTES_MAX: usize = 16 << 20;

/// Step 3: applies updates and inserts to the older state where that is known, from the oldest on.
fn fold<'a>(
    retention: &Retention<'_>,
    bottom: bool,
    entries: Vec<Entry<'a>>,
    sink: &mut impl Sink,
) -> Result<Vec<Entry<'a>>> {
    let mut done: Vec<Entry<'a>> = Vec::with_capacity(entries.len()); // oldest first
    // Whoever sees the newest of those finds a value: that one's, or that of older ones of its stripe.
    let mut has_value = false;
    for mut entry in entries.into_iter().rev() {
        let decided = matches!(entry.fate, Fate::Committed(_));
        let is_beside = done.last().is_some_and(|older| same_stripe(retention, older, &entry));
        // True when the last in `done` has nothing below it anywhere.
        let is_lowest = bottom && done.len() == 1;
        match (entry.message.kind, done.last_mut()) {
            (Kind::Update, None) if bottom && decided => {
                become_value(&mut entry, None)?;
            }
            (Kind::InsertIfAbsent, None) if bottom && decided => entry.message.kind = Kind::Put,
            (Kind::Update, Some(older)) if is_beside && !older.message.blob => {
                let is_spent = take_in(&mut entry, older, is_lowest)?;
                if is_spent {
                    done.pop();
                }
            }
            (Kind::InsertIfAbsent, Some(_)) if is_beside && has_value => {
                drop_entry(&entry, sink);
                continue;
            }
            (Kind::InsertIfAbsent, Some(older)) if is_beside => match older.message.kind {
                Kind::Delete => {
                    entry.message.kind = Kind::Put;
                    if !older.ranged {
                        done.pop();
                    }
                }
                Kind::SingleDelete if is_lowest => {
                    entry.message.kind = Kind::Put;
                    done.pop();
                }
                _ => {}
            },
            _ => {}
        }
        has_value = match entry.message.kind {
            Kind::Put | Kind::InsertIfAbsent => true,
            // No update takes a row away. Its own transaction may see it and not what another stripe has below it.
            Kind::Update => has_value && is_beside,
            Kind::Delete | Kind::SingleDelete => false,
        };
        // At the bottom a delete with nothing below it says nothing. An undecided one stays, because
        // write-conflict checks look for it.
        let says_nothing = bottom && done.is_empty() && entry.is_delete() && !matches!(entry.fate, Fate::Undecided);
        if !says_nothing {
            done.push(entry);
        }
    }
    done.reverse();
    Ok(done)
}

/// An update takes an older message of its stripe in, as far as that can be; true when the older one says nothing any more.
/// `is_lowest`: there is nothing below the older one.
fn take_in(entry: &mut Entry<'_>, older: &mut Entry<'_>, is_lowest: bool) -> Result<bool> {
    match older.message.kind {
        Kind::Put => become_value(entry, Some(older)),
        Kind::Delete | Kind::SingleDelete => {
            let full = older.message.kind == Kind::Delete;
            // A put above must not push a delete out that holds back something older.
            Ok(become_value(entry, None)? && (is_lowest || (!older.ranged && full)))
        }
        Kind::Update => follow(entry, older),
        Kind::InsertIfAbsent => Ok(false),
    }
}

/// An update becomes what it makes of an older value (`None`: of none), unless that would be too long.
fn become_value(entry: &mut Entry<'_>, older: Option<&mut Entry<'_>>) -> Result<bool> {
    let (program, bytes) = entry.take_program()?;
    if program.length_after(older.as_ref().map(|older| older.value_bytes())).unwrap_or(0) > FOLDED_BYTES_MAX {
        entry.folded = Folded::Program(program, bytes);
        return Ok(false);
    }
    let value = program.apply(older.map(Entry::take_value));
    entry.message.kind = if value.is_some() { Kind::Put } else { Kind::Delete };
    entry.message.blob = false;
    entry.folded = Folded::Value(value.unwrap_or_default());
    Ok(true)
}

/// An update becomes one that does what an older one does first, unless that would be too long.
fn follow(entry: &mut Entry<'_>, older: &mut Entry<'_>) -> Result<bool> {
    let (newer, newer_bytes) = entry.take_program()?;
    let (mut program, mut bytes) = older.take_program()?;
    if bytes + newer_bytes > FOLDED_BYTES_MAX {
        // As many updates of the same bytes are one, it may be shorter than it looks.
        bytes = program.encoded_bytes();
    }
    if bytes + newer_bytes > FOLDED_BYTES_MAX {
        older.folded = Folded::Program(program, bytes);
        entry.folded = Folded::Program(newer, newer_bytes);
        return Ok(false);
    }
    program.append(newer);
    entry.folded = Folded::Program(program, bytes + newer_bytes);
    Ok(true)
}

#[cfg(test)]
mod tests;
