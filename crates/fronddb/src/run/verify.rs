//! Reads a whole run past the cache and checks it against its description and itself (R1 to R4).

use super::Run;
use super::counters::Event;
use crate::base::checksum::key_hash;
use crate::base::{BlockPtr, CommitNumber, Error, Result, TreeId, TxnId, key};
use crate::format::Stamp;
use crate::format::block::{EntryBlock, IndexBlock, IndexEntry};
use crate::format::filter::Filter;
use crate::format::run_meta::KIND_COUNT;
use std::collections::BTreeSet;

/// What was found so far.
struct Found<'a> {
    run: &'a Run,
    filter: Option<Filter>,
    messages: u64,
    bytes: u64,
    entry_bytes: u64,
    kinds: [u64; KIND_COUNT],
    blobs: u64,
    first_key: Option<Vec<u8>>,
    last_key: Vec<u8>,
    newest_commit: CommitNumber,
    unresolved: BTreeSet<TxnId>,
}

impl Run {
    /// Reads everything past the cache and checks it against the description.
    ///
    /// # Errors
    /// `Io`; `Corruption` naming the first damage.
    pub fn verify(&self) -> Result<()> {
        let meta = &self.meta;
        let mut found = Found {
            run: self,
            filter: if meta.filter.is_none() { None } else { Some(self.read_filter(Event::BlockReadMeta)?) },
            messages: 0,
            bytes: 0,
            entry_bytes: 0,
            kinds: [0; KIND_COUNT],
            blobs: 0,
            first_key: None,
            last_key: Vec::new(),
            newest_commit: CommitNumber(0),
            unresolved: BTreeSet::new(),
        };
        for ptr in [meta.filter, meta.ranges] {
            found.block(ptr)?;
        }
        let mut range_deletes = 0;
        if !meta.ranges.is_none() {
            for range in self.read_ranges(Event::BlockReadMeta)?.list.iter() {
                found.stamp(range.stamp);
                range_deletes += 1;
            }
        }
        if !meta.index.is_none() {
            found.block(meta.index)?;
            let root = self.read_index(meta.index, Event::BlockReadMeta)?;
            if root.level() == 0 {
                found.index(&root)?;
            } else {
                for part in 0..root.count() {
                    let (entry, before) = (root.entry(part), (found.messages, found.entry_bytes));
                    found.block(entry.ptr)?;
                    let index = self.read_index(entry.ptr, Event::BlockReadMeta)?;
                    let first = index.entry(0);
                    let same = index.level() == 0
                        && index.separator(0) == root.separator(part)
                        && first.continues == entry.continues
                        && (entry.messages_before, entry.bytes_before) == before;
                    self.expect(same, entry.ptr, "index levels disagree")?;
                    found.index(&index)?;
                }
                let totals = root.totals_after(root.count() - 1);
                self.expect(totals == (found.messages, found.entry_bytes), meta.index, "index totals are wrong")?;
            }
        }
        let same = found.messages == meta.messages
            && found.bytes == meta.bytes
            && found.kinds == meta.kinds
            && found.blobs == meta.blobs
            && found.first_key.as_deref().unwrap_or_default() == meta.first_key
            && found.last_key == meta.last_key
            && found.newest_commit == meta.newest_commit
            && found.unresolved.iter().eq(&meta.unresolved)
            && range_deletes == meta.range_deletes;
        self.expect(same, meta.index, "the run is not as described")
    }

    fn expect(&self, condition: bool, ptr: BlockPtr, what: &str) -> Result<()> {
        if condition { Ok(()) } else { Err(self.damage(ptr, self.tree(), what)) }
    }

    fn damage(&self, ptr: BlockPtr, tree: TreeId, what: &str) -> Error {
        self.located(Error::corruption(what), ptr, tree, "damaged run")
    }
}

impl Found<'_> {
    /// Counts a block and checks that it lies in an extent (R1).
    fn block(&mut self, ptr: BlockPtr) -> Result<()> {
        if ptr.is_none() {
            return Ok(());
        }
        self.bytes += u64::from(ptr.stored);
        let end = ptr.offset + u64::from(ptr.stored);
        let inside =
            |extent: &crate::base::Extent| extent.offset() <= ptr.offset && end <= extent.offset() + extent.bytes();
        let inside = self.run.meta.extents.iter().any(inside);
        self.run.expect(inside, ptr, "a block lies outside the run")
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

    /// Checks the blocks under an index block of the lower level.
    fn index(&mut self, index: &IndexBlock) -> Result<()> {
        for at in 0..index.count() {
            let entry = index.entry(at);
            let (ptr, tree) = (entry.ptr, key::tree_of(index.separator(at)));
            self.block(ptr)?;
            let before = (self.messages, self.entry_bytes);
            self.run.expect((entry.messages_before, entry.bytes_before) == before, ptr, "index counts are wrong")?;
            let block = self.run.read_entries(ptr, tree, Event::BlockReadBulk)?;
            self.entries(&block, entry, index.separator(at)).map_err(|what| self.run.damage(ptr, tree, what))?;
            self.entry_bytes += u64::from(ptr.stored);
            let after = (self.messages, self.entry_bytes);
            self.run.expect(index.totals_after(at) == after, ptr, "index counts are wrong")?;
        }
        Ok(())
    }

    fn entries(
        &mut self,
        block: &EntryBlock,
        entry: IndexEntry,
        separator: &[u8],
    ) -> std::result::Result<(), &'static str> {
        let mut key = Vec::new();
        for index in 0..block.count() {
            block.copy_key(index, &mut key);
            let message = block.message(index, &key);
            if index == 0 {
                let continues = self.first_key.is_some() && key == self.last_key;
                if continues != entry.continues || (continues && separator != key) {
                    return Err("the index is wrong about a key in two blocks");
                }
                if separator > key.as_slice()
                    || (self.first_key.is_some() && !continues && separator <= self.last_key.as_slice())
                {
                    return Err("a separator does not separate");
                }
            }
            if self.first_key.is_none() {
                self.first_key = Some(key.clone());
            } else if key < self.last_key {
                return Err("keys out of order");
            }
            if self.filter.as_ref().is_some_and(|filter| !filter.may_contain(key_hash(&key))) {
                return Err("the filter lacks a key");
            }
            if message.seq < self.run.meta.min_seq || message.seq > self.run.meta.max_seq {
                return Err("a sequence number is out of range");
            }
            self.messages += 1;
            self.kinds[message.kind as usize] += 1;
            self.blobs += u64::from(message.blob);
            self.stamp(message.stamp);
            self.last_key.clone_from(&key);
        }
        Ok(())
    }
}
