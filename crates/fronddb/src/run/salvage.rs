//! Reads what is readable of a damaged run, in order, and tells what is not.

use std::sync::Arc;

use super::Run;
use super::counters::Event;
use crate::base::{BlockPtr, Error, Result, TreeId, key};
use crate::format::Message;
use crate::format::block::{EntryBlock, EntryCursor};

/// A part of a run that cannot be read.
#[derive(Debug, Clone)]
pub struct Lost {
    /// Why, with file, offset and tree.
    pub error: Error,
    /// The tree that it begins with.
    pub tree: TreeId,
    /// Messages that it held, as the index says.
    pub messages: u64,
}

/// Goes forward over the readable messages of a run. Positioned at a message or at none.
#[derive(Debug)]
pub struct SalvageCursor {
    run: Arc<Run>,
    /// Blocks to come, the next one last.
    blocks: Vec<(BlockPtr, TreeId, u64)>,
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
        blocks.reverse();
        let mut cursor = SalvageCursor { run: Arc::clone(self), blocks, entries: EntryCursor::default() };
        cursor.enter(lost)?;
        Ok(cursor)
    }

    fn collect_blocks(&self, blocks: &mut Vec<(BlockPtr, TreeId, u64)>, lost: &mut dyn FnMut(Lost)) -> Result<()> {
        if self.meta.index.is_none() {
            return Ok(());
        }
        let Some(root) =
            readable(self.read_index(self.meta.index, Event::BlockReadMeta), self.tree(), self.meta.messages, lost)?
        else {
            return Ok(());
        };
        for at in 0..root.count() {
            let entry = root.entry(at);
            let messages = root.totals_after(at).0.saturating_sub(entry.messages_before);
            if root.level() == 0 {
                blocks.push((entry.ptr, key::tree_of(root.separator(at)), messages));
            } else if let Some(part) = readable(
                self.read_index(entry.ptr, Event::BlockReadMeta),
                key::tree_of(root.separator(at)),
                messages,
                lost,
            )? {
                for at in 0..part.count() {
                    let entry = part.entry(at);
                    let messages = part.totals_after(at).0.saturating_sub(entry.messages_before);
                    blocks.push((entry.ptr, key::tree_of(part.separator(at)), messages));
                }
            }
        }
        Ok(())
    }
}

/// Damage is told and passed over.
fn readable<T>(result: Result<T>, tree: TreeId, messages: u64, lost: &mut dyn FnMut(Lost)) -> Result<Option<T>> {
    use crate::base::ErrorKind::{Corruption, UnsupportedFormat};
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), Corruption | UnsupportedFormat) => {
            lost(Lost { error, tree, messages });
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
        while let Some((ptr, tree, messages)) = self.blocks.pop() {
            let read: Result<EntryBlock> = self.run.read_entries(ptr, tree, Event::BlockReadBulk);
            if let Some(block) = readable(read, tree, messages, lost)? {
                self.entries.reset(Arc::new(block));
                if self.entries.first() {
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
