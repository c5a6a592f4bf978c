//! Reads a whole run past the cache and checks it against its description and itself (R1 to R4), and goes on after what is
//! damaged.

use super::Run;
use super::counters::Event;
use super::path::IndexPath;
use crate::base::checksum::key_hash;
use crate::base::{BlockPtr, CommitNumber, Error, Result, TreeId, TxnId, key};
use crate::format::block::{EntryBlock, Held, IndexBlock, IndexEntry};
use crate::format::filter::Filter;
use crate::format::run_meta::KIND_COUNT;
use crate::format::{Message, Stamp};
use std::collections::BTreeSet;

/// Something wrong with a part of a run.
#[derive(Debug, Clone)]
pub struct Flaw {
    /// What, with file, offset and the first tree.
    pub error: Error,
    /// The first and the last tree that the part may hold messages of; `None`: all that the run may concern.
    pub trees: Option<(TreeId, TreeId)>,
}

/// Takes what a walk over a run finds.
pub trait RunVisitor {
    /// Something wrong.
    fn flaw(&mut self, flaw: Flaw);
    /// A message, of those that can be read, whose payload is a blob.
    fn blob(&mut self, message: &Message<'_>);
}

/// For who only wants to know whether a run is whole.
struct First(Option<Error>);

impl RunVisitor for First {
    fn flaw(&mut self, flaw: Flaw) {
        self.0.get_or_insert(flaw.error);
    }

    fn blob(&mut self, _: &Message<'_>) {}
}

/// What was found so far. The numbers are those of the index for what could not be read.
struct Found<'a> {
    run: &'a Run,
    visitor: &'a mut dyn RunVisitor,
    with_filter: bool,
    filter: Option<Filter>,
    /// In the blocks passed so far, as the index counts.
    held: Held,
    bytes: u64,
    kinds: [u64; KIND_COUNT],
    /// Messages that have gone from a clipped run, and the first block with others until it is met.
    gone: u64,
    floor: Option<u64>,
    blobs: u64,
    blob_bytes: u64,
    first_key: Option<Vec<u8>>,
    last_key: Vec<u8>,
    /// The block before could not be read: nothing is known of its last key.
    after_gap: bool,
    newest_commit: CommitNumber,
    unresolved: BTreeSet<TxnId>,
    /// No flaw so far.
    whole: bool,
}

impl Run {
    /// Reads everything past the cache and checks it against the description.
    ///
    /// # Errors
    /// `Io`; `Corruption` naming the first damage.
    pub fn verify(&self) -> Result<()> {
        let mut first = First(None);
        self.inspect(&mut first);
        first.0.map_or(Ok(()), Err)
    }

    /// The same without the filter, which merges do not read.
    ///
    /// # Errors
    /// As [`Run::verify`].
    pub fn verify_messages(&self) -> Result<()> {
        let mut first = First(None);
        self.look_at(&mut first, false);
        first.0.map_or(Ok(()), Err)
    }

    /// The same, telling `visitor` of every damage, and of the large values that are not read here.
    pub fn inspect(&self, visitor: &mut dyn RunVisitor) {
        self.look_at(visitor, true);
    }

    fn look_at(&self, visitor: &mut dyn RunVisitor, with_filter: bool) {
        let mut found = Found {
            run: self,
            visitor,
            with_filter,
            filter: None,
            held: Held::default(),
            bytes: 0,
            kinds: [0; KIND_COUNT],
            blob_bytes: 0,
            gone: 0,
            floor: None,
            blobs: 0,
            first_key: None,
            last_key: Vec::new(),
            after_gap: false,
            newest_commit: CommitNumber(0),
            unresolved: BTreeSet::new(),
            whole: true,
        };
        found.all();
    }

    fn expect(&self, condition: bool, ptr: BlockPtr, tree: TreeId, what: &str) -> Result<()> {
        let damage = || self.located(Error::corruption(what), ptr, tree, "damaged run");
        if condition { Ok(()) } else { Err(damage()) }
    }
}

impl Found<'_> {
    /// Tells of damage; it concerns these trees.
    fn tell<T>(&mut self, result: Result<T>, trees: Option<(TreeId, TreeId)>) -> Option<T> {
        result
            .map_err(|error| {
                self.whole = false;
                self.visitor.flaw(Flaw { error, trees });
            })
            .ok()
    }

    fn all(&mut self) {
        let meta = &self.run.meta;
        let (first, last) = (self.run.tree(), key::tree_of(&meta.last_key));
        let trees = self.run.trees();
        if !meta.filter.is_none() {
            self.block(meta.filter, trees);
        }
        if !meta.filter.is_none() && self.with_filter {
            self.filter = self.tell(self.run.read_filter(Event::BlockReadMeta), trees);
        }
        let mut range_deletes = 0;
        if !meta.ranges.is_none() {
            // They reach where the run has no messages.
            let mut parts = Vec::new();
            let ranges = self.run.read_ranges(Event::BlockReadMeta, |part| parts.push(part));
            parts.into_iter().for_each(|part| self.block(part, None));
            if let Some(ranges) = self.tell(ranges, None) {
                for range in ranges.list.iter().filter(|range| range.end > meta.clip) {
                    self.stamp(range.stamp);
                    range_deletes += 1;
                }
            }
        }
        if !meta.index.is_none() {
            self.block(meta.index, trees);
            if meta.is_clipped() {
                let floor = IndexPath::seek(self.run, &meta.first_key).map(|path| path.ptr().offset);
                self.floor = self.tell(floor, trees);
            }
            if let Some(root) = self.tell(self.run.read_index(meta.index, Event::BlockReadMeta), trees) {
                self.top(&root, last);
            }
        }
        let same = self.held.messages - self.gone == meta.messages
            && self.bytes == meta.bytes
            && self.kinds == meta.kinds
            && self.blobs == meta.blobs
            && (self.blob_bytes == meta.blob_bytes || meta.blob_bytes == 0)
            && self.first_key.as_deref().unwrap_or_default() == meta.first_key
            && self.last_key == meta.last_key
            && self.stamps_are_described()
            && range_deletes == meta.range_deletes;
        // What could not be read is missing from the sums.
        let same = same || !self.whole;
        self.tell(self.run.expect(same, meta.index, first, "the run is not as described"), trees);
    }

    /// A clipped run still names those of what has gone.
    fn stamps_are_described(&self) -> bool {
        let meta = &self.run.meta;
        if meta.is_clipped() {
            let is_named = |txn| meta.unresolved.binary_search(txn).is_ok();
            return self.newest_commit <= meta.newest_commit && self.unresolved.iter().all(is_named);
        }
        self.newest_commit == meta.newest_commit && self.unresolved.iter().eq(&meta.unresolved)
    }

    /// Counts a block and checks that it lies in an extent (R1).
    fn block(&mut self, ptr: BlockPtr, trees: Option<(TreeId, TreeId)>) {
        self.bytes += u64::from(ptr.stored);
        if !self.run.holds(ptr) {
            let error = Error::corruption("a block lies outside the run");
            self.tell::<()>(Err(self.run.located_in(error, ptr, trees, "damaged run")), trees);
        }
    }

    fn stamp(&mut self, stamp: Stamp) {
        match stamp {
            Stamp::Settled => {}
            Stamp::Committed(number) => self.newest_commit = self.newest_commit.max(number),
            Stamp::Written { txn, .. } => {
                self.unresolved.insert(txn);
            }
        }
    }

    /// Checks what is under the top index block; the run's last message is of the tree `last`.
    fn top(&mut self, root: &IndexBlock, last: TreeId) {
        if root.level() == 0 {
            return self.index(root, last);
        }
        for part in 0..root.count() {
            let entry = root.entry(part);
            let trees = trees_of(root, part, last);
            self.block(entry.ptr, Some(trees));
            let same = entry.before == self.held;
            self.tell(self.run.expect(same, entry.ptr, trees.0, "index levels disagree"), Some(trees));
            if let Some(index) = self.tell(self.run.read_index(entry.ptr, Event::BlockReadMeta), Some(trees)) {
                let first = index.entry(0);
                let same = index.level() == 0
                    && index.separator(0) == root.separator(part)
                    && first.continues == entry.continues
                    && first.before == entry.before;
                self.tell(self.run.expect(same, entry.ptr, trees.0, "index levels disagree"), Some(trees));
                if index.level() == 0 {
                    self.index(&index, trees.1);
                    let same = root.held_until(part) == self.held;
                    self.tell(
                        self.run.expect(same, self.run.meta.index, trees.0, "index totals are wrong"),
                        Some(trees),
                    );
                } else {
                    self.after_gap = true;
                }
            } else {
                self.after_gap = true;
            }
            self.held = root.held_until(part);
        }
    }

    /// Checks the blocks under an index block of the lower level; the last message under it is of the tree `last`.
    fn index(&mut self, index: &IndexBlock, last: TreeId) {
        for at in 0..index.count() {
            let entry = index.entry(at);
            let (ptr, trees, until) = (entry.ptr, trees_of(index, at, last), index.held_until(at));
            if self.floor.is_some_and(|floor| floor != ptr.offset) {
                self.held = until;
                (self.gone, self.after_gap) = (self.held.messages, true);
                continue;
            }
            self.floor = None;
            self.block(ptr, Some(trees));
            let mut same = entry.before == self.held;
            match self.tell(self.run.read_entries(ptr, trees.0, Event::BlockReadBulk), Some(trees)) {
                Some(block) => {
                    let wrong = self.entries(&block, entry, index.separator(at));
                    if let Some(what) = wrong {
                        self.tell(self.run.expect(false, ptr, trees.0, what), Some(trees));
                    }
                    self.held.bytes += u64::from(ptr.stored);
                    if until.blob_bytes == entry.before.blob_bytes {
                        // They were not counted yet.
                        self.held.blob_bytes = until.blob_bytes;
                    }
                    same &= until == self.held;
                }
                None => self.after_gap = true,
            }
            self.tell(self.run.expect(same, ptr, trees.0, "index counts are wrong"), Some(trees));
            self.held = until;
        }
    }

    /// Checks the messages of a block and says what is wrong first.
    fn entries(&mut self, block: &EntryBlock, entry: IndexEntry, separator: &[u8]) -> Option<&'static str> {
        let (mut key, mut wrong) = (Vec::new(), None);
        let after_gap = std::mem::take(&mut self.after_gap);
        for index in 0..block.count() {
            block.copy_key(index, &mut key);
            let message = block.message(index, &key);
            let mut expect = |condition: bool, what| {
                if !condition {
                    wrong.get_or_insert(what);
                }
            };
            if index == 0 {
                let known = self.first_key.is_some() && !after_gap;
                let continues = if after_gap { entry.continues } else { known && key == self.last_key };
                let about_key = continues == entry.continues && (!continues || separator == key);
                expect(about_key, "the index is wrong about a key in two blocks");
                let separates = separator <= key.as_slice()
                    && (self.first_key.is_none() || continues || separator > self.last_key.as_slice());
                expect(separates, "a separator does not separate");
            }
            let is_gone = self.run.is_clipped() && key < self.run.meta.first_key;
            match &self.first_key {
                None if is_gone => {}
                None => self.first_key = Some(key.clone()),
                Some(_) => expect(key >= self.last_key, "keys out of order"),
            }
            let filtered = self.filter.as_ref().is_some_and(|filter| !filter.may_contain(key_hash(&key)));
            expect(!filtered, "the filter lacks a key");
            let meta = &self.run.meta;
            expect((meta.min_seq..=meta.max_seq).contains(&message.seq), "a sequence number is out of range");
            self.held.messages += 1;
            let blob_bytes = message.blob_bytes();
            self.held.blob_bytes += blob_bytes;
            if is_gone {
                self.gone += 1;
                continue;
            }
            self.kinds[message.kind as usize] += 1;
            self.blobs += u64::from(message.blob);
            self.blob_bytes += blob_bytes;
            self.stamp(message.stamp);
            if message.blob {
                self.visitor.blob(&message);
            }
            self.last_key.clone_from(&key);
        }
        wrong
    }
}

/// The first and the last tree under an entry of an index whose last is `last`.
pub(super) fn trees_of(index: &IndexBlock, at: usize, last: TreeId) -> (TreeId, TreeId) {
    let first = key::tree_of(index.separator(at));
    if at + 1 == index.count() {
        return (first, first.max(last));
    }
    let next = index.separator(at + 1);
    let continues = index.entry(at + 1).continues;
    (first, first.max(if continues { key::tree_of(next) } else { key::tree_below(next) }))
}
