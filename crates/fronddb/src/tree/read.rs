//! Point reads: down one path, newest first, until a message decides.
//!
//! Filters keep runs without the key from being touched, so a cold existing key costs one block read (in
//! its leaf's base) and an absent key none, apart from the filters' false positives.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::compact::blob_ref;
use super::node::{Node, Target};
use super::rent::{self, Read};
use super::value::{Value, Wanted};
use super::{BeTree, Version};
use crate::base::checksum::key_hash;
use crate::base::{CommitNumber, Result, TxnId, key};
use crate::cache::Priority;
use crate::format::block::RangeList;
use crate::format::message::{Message, RangeDelete};
use crate::format::resolve::{Found, KeyReader};
use crate::format::visibility::{Uncommitted, View};
use crate::memtable::Level0;
use crate::run::{self, Place, Run};

/// One place on the path of a key where messages may lie.
enum Stop<'a> {
    Level0(&'a Level0),
    Run(&'a Arc<Run>, Place),
}

/// The visitor of [`BeTree::visit_path`].
trait PathVisitor {
    /// Range-deletes, of which some may cover the key, before any older message.
    fn range_deletes(&mut self, ranges: &RangeList);
    /// True when this read charges the slots that it goes through, for all of its kind.
    fn is_charged(&self) -> bool {
        false
    }
    /// Looks at one place; breaks when no older one matters.
    fn stop(&mut self, stop: Stop<'_>) -> Result<ControlFlow<()>>;
}

/// How large values that are read by key stay in the cache.
const KEEPS: Option<Priority> = Some(Priority::Normal);

/// What the older value of a key is.
enum Base {
    Unknown,
    Absent,
    Value(Value),
    Blob(Vec<u8>),
}

struct Getter<'a> {
    view: &'a View<'a>,
    key: &'a [u8],
    hash: u64,
    reader: KeyReader,
    base: Base,
    /// Where to say who is changing the key just now, if that is asked for.
    undecided: Option<&'a mut Option<TxnId>>,
    /// The sequence number of the first message, where older ones were needed.
    passed: Option<u64>,
}

impl PathVisitor for Getter<'_> {
    fn range_deletes(&mut self, ranges: &RangeList) {
        let stretch = ranges.stretch(self.key);
        let newest = stretch.newest(self.reader.deleted_below(), |range| self.view.sees(range.stamp, true));
        newest.into_iter().for_each(|range| self.reader.delete_below(range.seq));
    }

    #[inline]
    fn is_charged(&self) -> bool {
        rent::is_charged(self.hash)
    }

    #[inline]
    fn stop(&mut self, stop: Stop<'_>) -> Result<ControlFlow<()>> {
        let Getter { view, key, hash, reader, base, undecided, passed } = self;
        let mut take = |message: &Message<'_>, value: &mut dyn FnMut() -> Value| match reader.message(view, message) {
            Found::Undecided { by } => {
                *passed = passed.or(Some(message.seq));
                if let Some(undecided) = undecided {
                    **undecided = undecided.or(by);
                }
                ControlFlow::Continue(())
            }
            Found::Absent => {
                *base = Base::Absent;
                ControlFlow::Break(())
            }
            Found::Here => {
                *base = if message.blob { Base::Blob(message.payload.to_vec()) } else { Base::Value(value()) };
                ControlFlow::Break(())
            }
        };
        match stop {
            Stop::Level0(level0) => {
                Ok(level0.get(key, *hash, |message| take(message, &mut || Value::from(message.payload.to_vec()))))
            }
            Stop::Run(run, place) => run.get_entries(key, *hash, place, &mut |message, block, index| {
                take(message, &mut || Value::from(block.payload(index)))
            }),
        }
    }
}

/// Whether one who met the message numbered `first` first, and needed older ones, is to look again: what its snapshot sees it finds in any case,
/// but of what is newer level 0 may have forgotten some under what was written since.
#[inline]
pub(super) fn is_overtaken(version: &Version, view: &View<'_>, key: &[u8], hash: u64, first: u64) -> bool {
    let sees_newer = view.uncommitted != Uncommitted::Hidden || view.snapshot == CommitNumber::LATEST;
    sees_newer && version.active.is_overwritten_after(key, hash, first)
}

/// Finds an undecided change of a key by one transaction.
struct AuthorFinder<'a> {
    view: &'a View<'a>,
    key: &'a [u8],
    hash: u64,
    reader: KeyReader,
    txn: TxnId,
    is_found: bool,
}

impl PathVisitor for AuthorFinder<'_> {
    fn range_deletes(&mut self, _: &RangeList) {}

    fn stop(&mut self, stop: Stop<'_>) -> Result<ControlFlow<()>> {
        let AuthorFinder { view, key, hash, reader, txn, is_found } = self;
        let mut take = |message: &Message<'_>| match reader.message(view, message) {
            Found::Undecided { by } if by != Some(*txn) => ControlFlow::Continue(()),
            Found::Undecided { .. } => {
                *is_found = true;
                ControlFlow::Break(())
            }
            // It has locked the key, so what is decided is older than all of its own.
            Found::Absent | Found::Here => ControlFlow::Break(()),
        };
        match stop {
            Stop::Level0(level0) => Ok(level0.get(key, *hash, take)),
            Stop::Run(run, _) if run.meta().unresolved.binary_search(txn).is_err() => Ok(ControlFlow::Continue(())),
            Stop::Run(run, _) => run.get(key, *hash, &mut take),
        }
    }
}

/// Finds when a key last changed, if that was after `since`.
struct ChangeFinder<'a> {
    view: &'a View<'a>,
    key: &'a [u8],
    hash: u64,
    since: CommitNumber,
    newest_range: Option<(u64, CommitNumber)>,
    found: Option<(u64, CommitNumber)>,
}

impl PathVisitor for ChangeFinder<'_> {
    fn range_deletes(&mut self, ranges: &RangeList) {
        let committed = |range: &RangeDelete| self.view.committed(range.stamp);
        let known = self.newest_range.map_or(0, |(seq, _)| seq);
        let newest = ranges.stretch(self.key).newest(known, |range| committed(range).is_some());
        let newest = newest.and_then(|range| Some((range.seq, committed(range)?)));
        self.newest_range = newest.or(self.newest_range);
    }

    fn stop(&mut self, stop: Stop<'_>) -> Result<ControlFlow<()>> {
        let mut found = None;
        let mut take = |message: &Message<'_>| match self.view.committed(message.stamp) {
            Some(number) => {
                found = Some((message.seq, number));
                ControlFlow::Break(())
            }
            None => ControlFlow::Continue(()),
        };
        let flow = match stop {
            Stop::Level0(level0) => level0.get(self.key, self.hash, take),
            Stop::Run(run, _) if run.meta().unresolved.is_empty() && run.meta().newest_commit <= self.since => {
                ControlFlow::Continue(())
            }
            Stop::Run(run, _) => run.get(self.key, self.hash, &mut take)?,
        };
        self.found = found;
        Ok(flow)
    }
}

/// Brings the blocks on a path into the cache.
struct Warmer<'a>(&'a [u8]);

impl PathVisitor for Warmer<'_> {
    fn range_deletes(&mut self, _ranges: &RangeList) {}

    fn stop(&mut self, stop: Stop<'_>) -> Result<ControlFlow<()>> {
        if let Stop::Run(run, place) = stop {
            run.warm(self.0, place)?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl BeTree {
    /// Brings what a read of `key` would want into the cache.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading blocks.
    pub fn warm(&self, version: &Version, key: &[u8]) -> Result<()> {
        self.visit_path(version, key, &mut Warmer(key))
    }

    /// The value of `key` (an inner key) as `view` sees it.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading blocks.
    pub fn get(&self, version: &Version, view: &View<'_>, key: &[u8]) -> Result<Option<Value>> {
        self.get_wanted(version, view, key, Wanted::Whole)
    }

    /// As [`BeTree::get`]; `wanted` of a value that is kept apart.
    ///
    /// # Errors
    /// As there.
    pub fn get_wanted(&self, version: &Version, view: &View<'_>, key: &[u8], wanted: Wanted) -> Result<Option<Value>> {
        self.get_with(version, view, key, wanted, KEEPS, None)
    }

    /// As [`BeTree::get`]; also says which other transaction has a change of `key` that is not decided. `wanted` of a value that is kept
    /// apart.
    ///
    /// # Errors
    /// As there.
    pub fn get_watching(
        &self,
        version: &Version,
        view: &View<'_>,
        key: &[u8],
        wanted: Wanted,
    ) -> Result<(Option<Value>, Option<TxnId>)> {
        let mut undecided = None;
        let value = self.get_with(version, view, key, wanted, KEEPS, Some(&mut undecided))?;
        Ok((value, undecided))
    }

    /// Whether `key` has a value as `view` sees it; loads none that is kept apart.
    ///
    /// # Errors
    /// As [`BeTree::get`].
    pub fn contains(&self, version: &Version, view: &View<'_>, key: &[u8]) -> Result<bool> {
        Ok(self.get_wanted(version, view, key, Wanted::Nothing)?.is_some())
    }

    /// As [`BeTree::get`]; says to `undecided`, if that is given, what [`BeTree::get_watching`] says. `keeps`: as of [`BeTree::load_blob`].
    #[inline]
    pub(super) fn get_with(
        &self,
        version: &Version,
        view: &View<'_>,
        key: &[u8],
        wanted: Wanted,
        keeps: Option<Priority>,
        undecided: Option<&mut Option<TxnId>>,
    ) -> Result<Option<Value>> {
        let (hash, reader) = (key_hash(key), KeyReader::new());
        let mut getter = Getter { view, key, hash, reader, base: Base::Unknown, undecided, passed: None };
        self.visit_path(version, key, &mut getter)?;
        while getter.passed.is_some_and(|first| is_overtaken(version, view, key, hash, first)) {
            (getter.reader, getter.base, getter.passed) = (KeyReader::new(), Base::Unknown, None);
            self.visit_path(version, key, &mut getter)?;
        }
        let Getter { mut reader, base, .. } = getter;
        let base = match base {
            Base::Unknown | Base::Absent => None,
            Base::Value(value) => Some(value),
            Base::Blob(reference) => {
                Some(Value::from(self.load_blob(key, &reference, wanted.of_older(reader.is_plain()), keeps)?))
            }
        };
        if reader.is_plain() {
            return Ok(base);
        }
        Ok(reader.finish(base.map(Value::into_vec))?.map(Value::from))
    }

    /// Reads what is wanted of the value of `key` that an encoded blob reference stands for; `keeps`: how what has to be read stays in the cache, if
    /// it does. The caller holds a version that has it.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading blocks.
    pub(super) fn load_blob(
        &self,
        key: &[u8],
        reference: &[u8],
        wanted: Wanted,
        keeps: Option<Priority>,
    ) -> Result<Vec<u8>> {
        if wanted == Wanted::Nothing {
            return Ok(Vec::new());
        }
        let read = blob_ref(reference).and_then(|blob| match wanted == Wanted::Heads && !blob.head.is_empty() {
            true => Ok(blob.head),
            false => run::read_cached_blob(&self.env.store, &self.env.cache, keeps, &blob),
        });
        read.map_err(|error| match error.is_unreadable() {
            true => error.context(format_args!("unreadable row, tree={}", key::tree_of(key))),
            false => error,
        })
    }

    /// Whether a change of `key`, deletes included, was committed after `since`, which no compaction has passed. Runs that hold
    /// nothing as new are not read.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading blocks.
    pub fn changed_after(&self, version: &Version, view: &View<'_>, key: &[u8], since: CommitNumber) -> Result<bool> {
        let mut finder = ChangeFinder { view, key, hash: key_hash(key), since, newest_range: None, found: None };
        self.visit_path(version, key, &mut finder)?;
        Ok(finder.found.max(finder.newest_range).is_some_and(|(_, number)| number > since))
    }

    /// Whether `txn`, which keeps others from changing `key`, has an undecided change there. Runs that hold nothing of it are not read.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading blocks.
    pub fn is_changed_by(&self, version: &Version, view: &View<'_>, key: &[u8], txn: TxnId) -> Result<bool> {
        let mut finder =
            AuthorFinder { view, key, hash: key_hash(key), reader: KeyReader::new(), txn, is_found: false };
        self.visit_path(version, key, &mut finder)?;
        Ok(finder.is_found)
    }

    /// Shows `visitor` every place on the path of `key`, newest first, until it breaks.
    #[inline]
    fn visit_path(&self, version: &Version, key: &[u8], visitor: &mut impl PathVisitor) -> Result<()> {
        let is_charged = visitor.is_charged();
        for level0 in version.level0() {
            if level0.has_range_deletes() {
                level0.range_deletes(|lists| lists.lists().iter().for_each(|list| visitor.range_deletes(list)));
            }
            if visitor.stop(Stop::Level0(level0))?.is_break() {
                return Ok(());
            }
        }
        let mut node: &Arc<Node> = &version.root;
        loop {
            let slot = &node.slots()[node.find(key)];
            let (base, child) = match slot.target() {
                Target::Leaf(base) => (base.as_ref(), None),
                Target::Node(child) => (None, Some(child)),
            };
            if is_charged {
                self.charge(node.height(), slot, Read::Probes);
            }
            let buffer = slot.buffer().iter().map(|run| (run, Place::Buffer));
            for (run, place) in buffer.chain(base.map(|run| (run, Place::Base))) {
                if run.has_range_deletes() {
                    let ranges = run.range_deletes_of_point()?;
                    visitor.range_deletes(&ranges);
                }
                if visitor.stop(Stop::Run(run, place))?.is_break() {
                    return Ok(());
                }
            }
            match child {
                Some(child) => node = child.load(&self.env)?,
                None => return Ok(()),
            }
        }
    }
}
