//! Records of many messages, turned by 90 degrees: how the log stores them where that is shorter.
//!
//! Rows of a table arrive one after another, each with an entry of every index, and a general compressor finds little in
//! that: what repeats are columns of two to eight bytes, scattered. Turned, the keys of each tree stand together, and so do
//! their payloads, in planes ([`crate::format::strings`]): what hardly varies takes no room, and a column
//! that several indexes share is the same bytes again, one piece, which the compressor does find. iiBench's rows take
//! 16 bytes each instead of 45, and 30 instead of 102 go through the compressor (`docs/decisions/0024-turned-records.md`).
//!
//! Turning keeps all messages and their order. What [`turn_back`] returns is a record like the one that was turned, but its keys share no prefixes. Records
//! of few messages, of many trees, or longer than [`TURNED_BYTES_MAX`] are not turned.
//!
//! # Bytes
//!
//! | field | form |
//! |---|---|
//! | head | as in the record: its number, the transaction, the step, the commit number if it commits |
//! | trees | varint, 1 to [`TREES_MAX`] |
//! | messages | varint |
//! | tree of each message | integers: which of the trees below |
//! | for each tree, its number | u32, big endian, as keys begin with it |
//! | … forms | integers, one per message: see [`super::batch`] |
//! | … keys | strings, one per message, without the number of the tree |
//! | … payloads | strings, one per message whose form has a payload |
//!
//! Strings: lengths (integers), then planes 0 to P-1: their heads, their bodies; then what is left of each string. P is the least
//! length, at most [`PLANES_MAX`]; 0 of fewer than eight strings. No strings take no bytes.

use super::batch::{form_of, has_payload, kind_of};
use super::{COMMIT_WITH_MESSAGES, MESSAGES, Messages};
use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::key::PREFIX_BYTES;
use crate::base::{Error, Lsn, Result, TreeId, TxnId};
use crate::format::columns::{Ints, put_ints};
use crate::format::strings::{Planes, StoredStrings, Strings, shortest, total};

// These are part of the format: the reader goes by all of them.

/// Most bytes of keys and payloads in a turned record, each message counting for [`MESSAGE_BYTES`] more.
pub const TURNED_BYTES_MAX: usize = 4 << 20;
/// Most trees in a turned record.
const TREES_MAX: usize = 16;
/// Fewest messages in one.
const MESSAGES_MIN: usize = 16;
/// Fewer strings have no planes.
const PLANES_MIN: usize = 8;
/// Most planes of a string: what comes after them is seldom made of columns.
const PLANES_MAX: usize = 512;
/// What a message counts besides its key and its payload, so that none is free.
const MESSAGE_BYTES: usize = 8;

fn damaged(what: &str) -> Error {
    Error::corruption(format!("turned record: {what}"))
}

/// Bytes before the messages of a record that has some; `None` for others.
fn head_bytes(record: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::new(record);
    let numbers = match decoder.u8().ok()? {
        MESSAGES => 2,
        COMMIT_WITH_MESSAGES => 3,
        _ => return None,
    };
    for _ in 0..numbers {
        decoder.varint().ok()?;
    }
    Some(decoder.offset())
}

fn messages_of(record: &[u8]) -> Option<(&[u8], Messages<'_>)> {
    let (head, messages) = record.split_at_checked(head_bytes(record)?)?;
    Some((head, Messages::new(Lsn(0), TxnId(0), 0, messages)))
}

/// The tree of a record's first message, if it has one.
pub fn first_tree(record: &[u8]) -> Option<TreeId> {
    let (_, mut messages) = messages_of(record)?;
    let message = messages.next().ok()??;
    message.key.first_chunk().map(|tree| TreeId(u32::from_be_bytes(*tree)))
}

/// How many bytes of strings stand in planes.
fn planes(count: usize, shortest: usize) -> usize {
    if count < PLANES_MIN { 0 } else { shortest.min(PLANES_MAX) }
}

/// The messages of one tree.
#[derive(Debug, Default)]
struct OfTree {
    tree: [u8; PREFIX_BYTES],
    forms: Vec<u64>,
    keys: Strings,
    payloads: Strings,
}

/// Turns records, one after another; keeps its memory between them.
#[derive(Debug, Default)]
pub struct Turner {
    trees: Vec<OfTree>,
    used: usize,
    order: Vec<u64>,
    planes: Planes,
}

impl Turner {
    /// Appends the turned form of `record` to `out`. False: it is not one to be turned, and `out` is as it was.
    pub fn turn(&mut self, record: &[u8], out: &mut Vec<u8>) -> bool {
        if record.len() > TURNED_BYTES_MAX {
            return false;
        }
        let Some((head, messages)) = messages_of(record) else { return false };
        if self.gather(messages).is_none() || self.order.len() < MESSAGES_MIN {
            return false;
        }
        out.extend_from_slice(head);
        put_varint(out, self.used as u64);
        put_varint(out, self.order.len() as u64);
        put_ints(&self.order, out);
        for OfTree { tree, forms, keys, payloads } in &self.trees[..self.used] {
            out.extend_from_slice(tree);
            put_ints(forms, out);
            put_strings(keys, &mut self.planes, out);
            put_strings(payloads, &mut self.planes, out);
        }
        true
    }

    /// Puts the messages of each tree together. `None`: they are too many, or damaged.
    fn gather(&mut self, mut messages: Messages<'_>) -> Option<()> {
        self.used = 0;
        self.order.clear();
        let (mut bytes, mut next) = (0, 0);
        while let Some(message) = messages.next().ok()? {
            bytes += MESSAGE_BYTES + message.key.len() + message.payload.len();
            let (tree, key) = message.key.split_first_chunk()?;
            let at = self.find(*tree, next).filter(|_| bytes <= TURNED_BYTES_MAX)?;
            self.order.push(at as u64);
            let of_tree = &mut self.trees[at];
            let form = form_of(&message);
            of_tree.forms.push(u64::from(form));
            of_tree.keys.push(key);
            if has_payload(form) {
                of_tree.payloads.push(message.payload);
            }
            next = if at + 1 < self.used { at + 1 } else { 0 };
        }
        Some(())
    }

    /// Where the messages of `tree` are kept, which is likely at `guess`; `None` when there are too many trees.
    #[inline]
    fn find(&mut self, tree: [u8; PREFIX_BYTES], guess: usize) -> Option<usize> {
        let used = &self.trees[..self.used];
        if used.get(guess).is_some_and(|of_tree| of_tree.tree == tree) {
            return Some(guess);
        }
        if let Some(at) = used.iter().position(|of_tree| of_tree.tree == tree) {
            return Some(at);
        }
        if self.used == TREES_MAX {
            return None;
        }
        if self.used == self.trees.len() {
            self.trees.push(OfTree::default());
        }
        let of_tree = &mut self.trees[self.used];
        of_tree.tree = tree;
        of_tree.forms.clear();
        of_tree.keys.clear();
        of_tree.payloads.clear();
        self.used += 1;
        Some(self.used - 1)
    }

    /// Bytes really allocated, about.
    pub fn memory_bytes(&self) -> usize {
        let words = |list: &Vec<u64>| list.capacity() * size_of::<u64>();
        let of_tree = |of_tree: &OfTree| {
            words(&of_tree.forms) + of_tree.keys.memory_bytes() + of_tree.payloads.memory_bytes() + size_of::<OfTree>()
        };
        let trees: usize = self.trees.iter().map(of_tree).sum();
        trees + words(&self.order) + self.planes.memory_bytes()
    }
}

fn put_strings(strings: &Strings, memory: &mut Planes, out: &mut Vec<u8>) {
    if strings.len() > 0 {
        memory.put(strings, planes(strings.len(), strings.shortest), out);
    }
}

/// Strings of one tree, end to end again, taken one after another.
#[derive(Default)]
struct Rows<'a> {
    lengths: Ints<'a>,
    bytes: Vec<u8>,
    next: usize,
    at: usize,
}

impl<'a> Rows<'a> {
    /// Reads `count` strings of at most `left` bytes, which become less by what there is.
    fn decode(decoder: &mut Decoder<'a>, count: usize, left: &mut usize) -> Result<Rows<'a>> {
        if count == 0 {
            return Ok(Rows::default());
        }
        let lengths = Ints::decode(decoder, count)?;
        let sum = total(&lengths, count, *left)?;
        *left -= sum;
        let shortest = shortest(&lengths, count);
        let columns = planes(count, shortest);
        let (mut plane, matrix) = (Vec::new(), Vec::new());
        let stored = StoredStrings::decode(decoder, lengths, columns, count, sum, true, sum, &mut plane, matrix)?;
        let mut bytes = vec![0; sum];
        if lengths.is_constant() {
            stored.fill_fixed(&mut bytes, shortest, 0, count);
        } else {
            let (mut at, mut tail) = (0, 0);
            for row in 0..count {
                let length = stored.length(row);
                stored.fill_one(&mut bytes[at..at + length], 0, row, tail);
                at += length;
                tail += length - columns;
            }
        }
        Ok(Rows { lengths, bytes, next: 0, at: 0 })
    }

    #[inline]
    fn next(&mut self) -> &[u8] {
        let start = self.at;
        self.at += self.lengths.get(self.next) as usize;
        self.next += 1;
        self.bytes.get(start..self.at).unwrap_or_default()
    }
}

/// Replaces `record` by the record that was turned: the same messages in the same order.
///
/// # Errors
/// `Corruption` when the bytes are not a turned record.
pub fn turn_back(turned: &[u8], record: &mut Vec<u8>) -> Result<()> {
    record.clear();
    let head = head_bytes(turned).ok_or_else(|| damaged("impossible head"))?;
    record.extend_from_slice(&turned[..head]);
    let mut decoder = Decoder::new(&turned[head..]);
    let (trees, count) = (decoder.length()?, decoder.length()?);
    if !(1..=TREES_MAX).contains(&trees) || !(MESSAGES_MIN..=TURNED_BYTES_MAX / MESSAGE_BYTES).contains(&count) {
        return Err(damaged(&format!("impossible numbers, trees={trees} messages={count}")));
    }
    let mut left = TURNED_BYTES_MAX;
    let order = Ints::decode(&mut decoder, count)?;
    let mut counts = [0; TREES_MAX];
    for index in 0..count {
        match counts[..trees].get_mut(order.get(index) as usize) {
            Some(count) => *count += 1,
            None => return Err(damaged("a message of no tree")),
        }
    }
    let mut of_trees = Vec::with_capacity(trees);
    for count in &counts[..trees] {
        let tree = decoder.take(PREFIX_BYTES)?;
        let forms = Ints::decode(&mut decoder, *count)?;
        let mut with_payload = 0;
        for index in 0..*count {
            let form = u8::try_from(forms.get(index)).map_err(|_| damaged("impossible form"))?;
            kind_of(form)?;
            with_payload += usize::from(has_payload(form));
        }
        let keys = Rows::decode(&mut decoder, *count, &mut left)?;
        let payloads = Rows::decode(&mut decoder, with_payload, &mut left)?;
        of_trees.push((tree, forms, keys, payloads));
    }
    decoder.finish()?;
    for index in 0..count {
        let Some((tree, forms, keys, payloads)) = of_trees.get_mut(order.get(index) as usize) else { continue };
        let form = forms.get(keys.next) as u8;
        record.push(form);
        let key = keys.next();
        put_varint(record, (tree.len() + key.len()) as u64);
        record.extend_from_slice(tree);
        record.extend_from_slice(key);
        if has_payload(form) {
            put_bytes(record, payloads.next());
        }
    }
    Ok(())
}
