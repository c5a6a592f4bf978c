//! Every committed row that can still be read, in key order, from a tree of which parts are damaged.
//!
//! One walk, down and from left to right, that carries a cursor for each memtable and each run on the path. What cannot be
//! read (a node, an index, a block, a blob) is told and passed over; the messages above and below it are merged as if
//! it had been empty. So a row whose newest message is lost comes back in an older version, and a deleted one may
//! come back; a row that only an update or an insert-if-absent remains of is left out, because nobody knows what was there.

use std::sync::Arc;

use super::compact::blob_ref;
use super::node::{Node, Slot, Target, node_extent};
use super::verify::trees_in;
use super::{BeTree, TreeEnv};
use crate::base::{CommitNumber, Error, Extent, Result, TreeId, key};
use crate::format::message::{Message, RangeDelete};
use crate::format::resolve::{Found, KeyReader};
use crate::format::visibility::{Uncommitted, View};
use crate::memtable::Level0Cursor;
use crate::run::{self, Lost, Run, SalvageCursor};

/// A part of the tree that could not be read.
#[derive(Debug, Clone)]
pub struct Damage {
    /// The first and the last tree that it may belong to.
    pub trees: (TreeId, TreeId),
    /// Where it lies, as far as that can be named.
    pub extent: Option<Extent>,
    /// What is wrong with it.
    pub error: Error,
    /// Messages that it held, as far as is known.
    pub messages: u64,
}

/// Takes what a salvage finds.
pub trait SalvageSink {
    /// A committed row, by its inner key; keys ascend.
    ///
    /// # Errors
    /// End the salvage.
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Something that could not be read.
    fn damage(&mut self, damage: Damage);
}

enum Source {
    Level0(Level0Cursor),
    Run(SalvageCursor),
}

impl Source {
    fn message(&self) -> Option<Message<'_>> {
        match self {
            Source::Level0(cursor) => cursor.get(),
            Source::Run(cursor) => cursor.message(),
        }
    }
}

/// Intervals of trees.
#[derive(Default)]
struct Torn(Vec<(TreeId, TreeId)>);

impl Torn {
    fn add(&mut self, trees: (TreeId, TreeId)) {
        if self.0.last() != Some(&trees) {
            self.0.push(trees);
        }
    }

    fn has(&self, tree: TreeId) -> bool {
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&tree))
    }
}

struct Walk<'a> {
    env: &'a TreeEnv,
    sink: &'a mut dyn SalvageSink,
    /// Newest first: memtables, then the runs on the path from the root down.
    sources: Vec<Source>,
    /// The range-deletes of the sources.
    ranges: Vec<RangeDelete>,
    /// The trees of which something was lost so far.
    torn: Torn,
}

impl BeTree {
    /// Shows `sink` what is readable of the present version.
    ///
    /// # Errors
    /// `Io`, and what `sink` returns. Damage is told to it and no error.
    pub fn salvage(&self, sink: &mut dyn SalvageSink) -> Result<()> {
        let version = self.version();
        let mut walk = Walk { env: &self.env, sink, sources: Vec::new(), ranges: Vec::new(), torn: Torn::default() };
        for level0 in version.level0() {
            let mut cursor = level0.cursor();
            cursor.first();
            walk.sources.push(Source::Level0(cursor));
            level0.range_deletes(|lists| walk.ranges.extend(lists.iter().cloned()));
        }
        walk.node(&version.root, None)
    }
}

impl Walk<'_> {
    fn damage(&mut self, trees: (TreeId, TreeId), extent: Option<Extent>, error: Error, messages: u64) {
        self.torn.add(trees);
        self.sink.damage(Damage { trees, extent, error, messages });
    }

    /// Damage of one row.
    fn row_damage(&mut self, key: &[u8], error: Error) {
        let tree = key::tree_of(key);
        self.damage((tree, tree), None, error, 1);
    }

    fn node(&mut self, node: &Arc<Node>, upper: Option<&[u8]>) -> Result<()> {
        for (index, slot) in node.slots().iter().enumerate() {
            let (sources, ranges) = (self.sources.len(), self.ranges.len());
            let slot_upper = node.upper(index, upper).map(<[u8]>::to_vec);
            self.slot(slot, slot_upper.as_deref())?;
            self.sources.truncate(sources);
            self.ranges.truncate(ranges);
        }
        Ok(())
    }

    fn slot(&mut self, slot: &Slot, upper: Option<&[u8]>) -> Result<()> {
        let trees = trees_in(slot.lower(), upper);
        slot.buffer().iter().try_for_each(|run| self.open(run, trees))?;
        match slot.target() {
            Target::Leaf(base) => base.iter().try_for_each(|base| self.open(base, trees))?,
            Target::Node(child) => match child.load(self.env) {
                Ok(node) => return self.node(node, upper),
                Err(error) if error.is_unreadable() => {
                    let totals = child.totals();
                    let messages = totals.base_rows + totals.pending_puts + totals.pending_deletes;
                    self.damage(trees, Some(node_extent(child.ptr())), error, messages);
                }
                Err(error) => return Err(error),
            },
        }
        self.merge(upper)
    }

    /// Opens a run of a slot of these trees.
    fn open(&mut self, run: &Arc<Run>, trees: (TreeId, TreeId)) -> Result<()> {
        match run.range_deletes() {
            Ok(ranges) => self.ranges.extend(ranges.iter().cloned()),
            Err(error) if error.is_unreadable() => {
                self.damage(trees, run.meta().extents.first().copied(), error, run.meta().range_deletes);
            }
            Err(error) => return Err(error),
        }
        let (sink, torn) = (&mut *self.sink, &mut self.torn);
        let cursor = run.salvage(&mut |lost| tell(sink, torn, lost))?;
        self.sources.push(Source::Run(cursor));
        Ok(())
    }

    /// Shows all rows below `upper` that the sources make.
    fn merge(&mut self, upper: Option<&[u8]>) -> Result<()> {
        let mut key = Vec::new();
        loop {
            let lowest = self.sources.iter().filter_map(|source| Some(source.message()?.key)).min();
            match lowest {
                Some(lowest) if upper.is_none_or(|upper| lowest < upper) => {
                    key.clear();
                    key.extend_from_slice(lowest);
                }
                _ => return Ok(()),
            }
            self.resolve(&key)?;
        }
    }

    /// Takes all messages of `key` from the sources and shows its row, if it has one.
    fn resolve(&mut self, key: &[u8]) -> Result<()> {
        let statuses = self.env.statuses.clone();
        let view =
            View { snapshot: CommitNumber::LATEST, own: None, uncommitted: Uncommitted::Hidden, statuses: &*statuses };
        let mut reader = KeyReader::new();
        for range in self.ranges.iter().filter(|range| range.covers(key)) {
            reader.range_delete(&view, range.seq, range.stamp);
        }
        let is_open = |found| matches!(found, Found::Undecided { .. });
        let mut found = Found::Undecided { by: None };
        let (mut value, mut blob, mut pending) = (None, false, false);
        for source in &mut self.sources {
            while let Some(message) = source.message().filter(|message| message.key == key) {
                if is_open(found) {
                    found = reader.message(&view, &message);
                    pending |= is_open(found) && view.sees(message.stamp, false);
                    if found == Found::Here {
                        (value, blob) = (Some(message.payload.to_vec()), message.blob);
                    }
                }
                match source {
                    Source::Level0(cursor) => cursor.next(),
                    Source::Run(cursor) => {
                        let (sink, torn) = (&mut *self.sink, &mut self.torn);
                        cursor.next(&mut |lost| tell(sink, torn, lost))?;
                    }
                }
            }
        }
        let value = match value {
            Some(reference) if blob => {
                match blob_ref(&reference).and_then(|blob| run::read_blob(&self.env.store, &blob)) {
                    Ok(value) => Some(value),
                    Err(error) if error.is_unreadable() => {
                        self.row_damage(key, error);
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
            other => other,
        };
        if pending && is_open(found) && self.torn.has(key::tree_of(key)) {
            let tree = key::tree_of(key);
            let error = Error::corruption(format!("a change of a row without what the row was, tree={tree}"));
            self.row_damage(key, error);
            return Ok(());
        }
        match reader.finish(value) {
            Ok(Some(value)) => self.sink.row(key, &value),
            Ok(None) => Ok(()),
            Err(error) => {
                self.row_damage(key, error);
                Ok(())
            }
        }
    }
}

fn tell(sink: &mut dyn SalvageSink, torn: &mut Torn, lost: Lost) {
    torn.add(lost.trees);
    sink.damage(Damage { trees: lost.trees, extent: None, error: lost.error, messages: lost.messages });
}
