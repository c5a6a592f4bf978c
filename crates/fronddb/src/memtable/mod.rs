//! Level 0 (signatures first; the layer follows).
#![allow(missing_docs, unused_variables, clippy::unimplemented)]

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::base::TxnId;
use crate::base::memory::MemoryBudget;
use crate::format::{Message, RangeDelete};

/// The active (or sealed) memtable: concurrent inserts, lock-free reads.
#[derive(Debug)]
pub struct Memtable {}

impl Memtable {
    pub fn new(id: u64, budget: &MemoryBudget) -> Memtable {
        unimplemented!()
    }
    pub fn id(&self) -> u64 {
        unimplemented!()
    }
    /// `message.seq` and `message.stamp` are ignored: they are `seq` and `Written { txn, step }`. Cannot fail.
    pub fn insert(&self, seq: u64, txn: TxnId, step: u32, message: &Message<'_>) {
        unimplemented!()
    }
    pub fn insert_range(&self, range: RangeDelete) {
        unimplemented!()
    }
    /// Newest to oldest; `Break` when the visitor broke off.
    pub fn get(&self, key: &[u8], visit: impl FnMut(&Message<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        unimplemented!()
    }
    pub fn cursor(self: &Arc<Self>) -> Level0Cursor {
        unimplemented!()
    }
}

/// What recovery builds in bulk. Same reads as [`Memtable`].
#[derive(Debug)]
pub struct SortedMemtable {}

/// Collects messages for one [`SortedMemtable`]; one per thread, in any order of records.
#[derive(Debug)]
pub struct SortedPart {}

impl SortedPart {
    pub fn new() -> SortedPart {
        unimplemented!()
    }
    /// Takes `message.seq` and `message.stamp` (must be `Written`) as they are; messages of one record in order.
    pub fn add(&mut self, message: &Message<'_>) {
        unimplemented!()
    }
    pub fn add_range(&mut self, range: RangeDelete) {
        unimplemented!()
    }
}

impl SortedMemtable {
    /// Sorts with `parts.len()` scoped threads.
    pub fn build(id: u64, budget: &MemoryBudget, parts: Vec<SortedPart>) -> SortedMemtable {
        unimplemented!()
    }
}

/// Either, behind one interface (each variant alone has the same methods).
#[derive(Debug, Clone)]
pub enum Level0 {
    Active(Arc<Memtable>),
    Sorted(Arc<SortedMemtable>),
}

impl Level0 {
    pub fn id(&self) -> u64 {
        unimplemented!()
    }
    pub fn get(&self, key: &[u8], visit: impl FnMut(&Message<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        unimplemented!()
    }
    pub fn cursor(&self) -> Level0Cursor {
        unimplemented!()
    }
    pub fn has_range_deletes(&self) -> bool {
        unimplemented!()
    }
    /// Newest first.
    pub fn range_deletes(&self) -> Arc<[RangeDelete]> {
        unimplemented!()
    }
    /// Bytes of messages in the arena: what a seal threshold compares with.
    pub fn bytes(&self) -> usize {
        unimplemented!()
    }
    pub fn messages(&self) -> u64 {
        unimplemented!()
    }
    pub fn is_empty(&self) -> bool {
        unimplemented!()
    }
    /// By kind number, as in `RunMeta::kinds`; range-deletes are not among them.
    pub fn kinds(&self) -> [u64; 6] {
        unimplemented!()
    }
    /// `None` when empty; range-deletes count.
    pub fn seq_bounds(&self) -> Option<(u64, u64)> {
        unimplemented!()
    }
    /// Distinct writers, ascending; writers of range-deletes included.
    pub fn txns(&self) -> Vec<TxnId> {
        unimplemented!()
    }
}

/// Owns its memtable. Positioned at a message, or nowhere (`valid()` is false).
#[derive(Debug, Clone)]
pub struct Level0Cursor {}

impl Level0Cursor {
    /// The newest message of the first key >= `key`.
    pub fn seek(&mut self, key: &[u8]) {
        unimplemented!()
    }
    /// The oldest message of the last key < `key`.
    pub fn seek_before(&mut self, key: &[u8]) {
        unimplemented!()
    }
    pub fn first(&mut self) {
        unimplemented!()
    }
    pub fn last(&mut self) {
        unimplemented!()
    }
    pub fn next(&mut self) {
        unimplemented!()
    }
    pub fn prev(&mut self) {
        unimplemented!()
    }
    pub fn valid(&self) -> bool {
        unimplemented!()
    }
    /// Only when `valid()`.
    pub fn key(&self) -> &[u8] {
        unimplemented!()
    }
    /// Only when `valid()`.
    pub fn message(&self) -> Message<'_> {
        unimplemented!()
    }
}
