//! Reads what is readable of a damaged run, in order, and tells what is not.

use std::sync::Arc;

use super::Run;
use super::counters::Event;
use super::verify::trees_of;
use crate::base::{BlockPtr, Error, Result, TreeId, key};
use crate::format::Message;
use crate::format::block::{EntryBlock, EntryCursor, IndexBlock};

/// A part of a run that cannot be read.
#[derive(Debug, Clone)]
pub struct Lost {
    /// Why, with file, offset and tree.
    pub error: Error,
    /// The first and the last tree that it may hold messages of.
    pub trees: (TreeId, TreeId),
    /// Messages that it held, as the index says.
    pub messages: u64,
}

/// A block of messages: its place, the first and the last tree in it, and how many messages it holds, as the index says.
type Block = (BlockPtr, (TreeId, TreeId), u64);

/// Goes forward over the readable messages of a run. Positioned at a message or at none.
#[derive(Debug)]
pub struct SalvageCursor {
    run: Arc<Run>,
    /// Blocks to come, the next one last.
    blocks: Vec<Block>,
    entries: EntryCursor,
}

impl Run {
    /// A cursor at its first readable message. What cannot be read is passed over and told to `lost`.
    ///
    /// # Errors
    /// None for damage; `Io` when reading fails.
    pub fn salvage(self: &Arc<Run>, lost: &mut dyn FnMut(Lost)) -> Result<SalvageCursor> {
        let mut blocks = Vec::new();
        self.collect_blocks(&mut blocks, lost)?;
        if self.is_clipped() {
            // The others have gone.
            blocks.retain(|(ptr, _, _)| self.holds(*ptr));
        }
        blocks.reverse();
        let mut cursor = SalvageCursor { run: Arc::clone(self), blocks, entries: EntryCursor::default() };
        cursor.enter(lost)?;
        Ok(cursor)
    }

    fn collect_blocks(&self, blocks: &mut Vec<Block>, lost: &mut dyn FnMut(Lost)) -> Result<()> {
        if self.meta.index.is_none() {
            return Ok(());
        }
        let trees = (self.tree(), key::tree_of(&self.meta.last_key));
        let root = self.read_index(self.meta.index, Event::BlockReadMeta);
        let Some(root) = readable(root, trees, self.meta.messages, lost)? else { return Ok(()) };
        if root.level() == 0 {
            blocks.extend(entries_of(&root, trees.1));
            return Ok(());
        }
        for (ptr, trees, messages) in entries_of(&root, trees.1) {
            let part = self.read_index(ptr, Event::BlockReadMeta);
            if let Some(part) = readable(part, trees, messages, lost)? {
                blocks.extend(entries_of(&part, trees.1));
            }
        }
        Ok(())
    }
}

/// What an index block, whose last message is of the tree `last`, says of the blocks under it.
fn entries_of(index: &IndexBlock, last: TreeId) -> impl Iterator<Item = Block> + '_ {
    (0..index.count()).map(move |at| {
        let entry = index.entry(at);
        let held = index.held_until(at).saturating_sub(entry.before);
        (entry.ptr, trees_of(index, at, last), held.messages)
    })
}

/// Damage is told and passed over.
fn readable<T>(
    result: Result<T>,
    trees: (TreeId, TreeId),
    messages: u64,
    lost: &mut dyn FnMut(Lost),
) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_unreadable() => {
            lost(Lost { error, trees, messages });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl SalvageCursor {
    /// To the next readable message.
    ///
    /// # Errors
    /// As [`Run::salvage`].
    pub fn next(&mut self, lost: &mut dyn FnMut(Lost)) -> Result<()> {
        if self.entries.valid() && !self.entries.next() {
            self.enter(lost)?;
        }
        Ok(())
    }

    /// Goes to the next readable block.
    fn enter(&mut self, lost: &mut dyn FnMut(Lost)) -> Result<()> {
        self.entries.clear();
        while let Some((ptr, trees, messages)) = self.blocks.pop() {
            let read: Result<EntryBlock> = self.run.read_entries(ptr, trees.0, Event::BlockReadBulk);
            if let Some(block) = readable(read, trees, messages, lost)? {
                self.entries.reset(Arc::new(block));
                let found = match self.run.is_clipped() {
                    true => self.entries.seek(&self.run.meta.first_key),
                    false => self.entries.first(),
                };
                if found {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The message; none at the end.
    pub fn message(&self) -> Option<Message<'_>> {
        self.entries.valid().then(|| self.entries.message())
    }
}
