//! The messages inside a log record.
//!
//! Rows of a table arrive as one message per index, so neighbours in a batch belong to different trees and the
//! key to share a prefix with is a few messages back. Each message therefore says how far back (at most
//! [`BACK_MAX`]) its model lies, and how many bytes of its key it takes from there: an ascending primary key costs
//! a few bytes, and no secondary key repeats its tree. Reader and writer keep the last keys ([`Recent`]).
//!
//! # Bytes of a message
//!
//! | bytes | field |
//! |---|---|
//! | 1 | form (low four bits), distance back to the model (high four bits, 0: none) |
//! | varint | bytes shared with the model's key, if there is a model |
//! | varint | bytes of the rest of the key |
//! | | rest of the key |
//! | varint, bytes | payload, if the form has one |
//!
//! Forms: 1 to 5 the kinds of that number ([`Kind`]); 6 put and 7 insert-if-absent with an empty payload; 8 put and
//! 9 insert-if-absent whose payload is a blob reference. Deletes have no payload.

use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::key::{KEY_BYTES_MAX, PREFIX_BYTES, VALUE_BYTES_MAX};
use crate::base::{CommitNumber, Error, Lsn, Result, TxnId};
use crate::format::{Kind, Message, Stamp};

/// How far back a message may look for a key to share a prefix with.
const BACK_MAX: usize = 15;
/// Bytes kept free before the messages for the longest header of a record.
const HEADROOM: usize = 32;
/// Forgotten keys are squeezed out of [`Recent`] when it holds so many bytes.
const RECENT_BYTES: usize = 4 << 10;

const EMPTY_PUT: u8 = 6;
const EMPTY_INSERT: u8 = 7;
const BLOB_PUT: u8 = 8;
const BLOB_INSERT: u8 = 9;

/// The last keys of a batch, in one buffer.
#[derive(Debug, Clone, Default)]
struct Recent {
    bytes: Vec<u8>,
    /// Start and length of the last keys; key `i` of the batch is at `i % 16`.
    spans: [(u32, u32); BACK_MAX + 1],
    count: usize,
}

impl Recent {
    fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// The key `back` messages ago; `None` when there was none.
    #[inline]
    fn get(&self, back: usize) -> Option<&[u8]> {
        let index = self.count.checked_sub(back)?;
        let (start, length) = self.spans[index % (BACK_MAX + 1)];
        self.bytes.get(start as usize..)?.get(..length as usize)
    }

    /// Adds a key made of the first `shared` bytes of the key `back` messages ago, and `rest`.
    #[inline]
    fn push(&mut self, back: usize, shared: usize, rest: &[u8]) {
        if self.bytes.len() > RECENT_BYTES {
            self.squeeze();
        }
        let start = self.bytes.len();
        if shared > 0 {
            let (from, _) = self.spans[(self.count - back) % (BACK_MAX + 1)];
            self.bytes.extend_from_within(from as usize..from as usize + shared);
        }
        self.bytes.extend_from_slice(rest);
        self.spans[self.count % (BACK_MAX + 1)] = (start as u32, (shared + rest.len()) as u32);
        self.count += 1;
    }

    fn squeeze(&mut self) {
        let kept = self.count.min(BACK_MAX);
        let Some(first) = self.count.checked_sub(kept).filter(|_| kept > 0) else { return };
        let cut = self.spans[first % (BACK_MAX + 1)].0;
        self.bytes.drain(..cut as usize);
        for index in first..self.count {
            self.spans[index % (BACK_MAX + 1)].0 -= cut;
        }
    }
}

/// Messages on their way into the log, already encoded. Kept and cleared between uses, it does not allocate.
#[derive(Debug, Clone)]
pub struct MessageBatch {
    bytes: Vec<u8>,
    recent: Recent,
    back: usize,
}

impl Default for MessageBatch {
    fn default() -> MessageBatch {
        MessageBatch::new()
    }
}

impl MessageBatch {
    /// Without messages.
    pub fn new() -> MessageBatch {
        MessageBatch { bytes: Vec::new(), recent: Recent::default(), back: 1 }
    }

    /// Forgets the messages and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.recent.clear();
    }

    /// Number of messages.
    pub fn count(&self) -> usize {
        self.recent.count
    }

    /// True without messages.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Encoded length so far, in bytes, without the record's header.
    pub fn bytes(&self) -> usize {
        self.bytes.len().saturating_sub(HEADROOM)
    }

    /// Memory held, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.recent.bytes.capacity() + size_of::<MessageBatch>()
    }

    /// Adds a message, newer than those before it. Its `seq` and `stamp` are not kept: the record has them.
    pub fn add(&mut self, message: &Message<'_>) {
        let key = message.key;
        debug_assert!((PREFIX_BYTES..=PREFIX_BYTES + KEY_BYTES_MAX).contains(&key.len()), "not an inner key");
        if self.bytes.is_empty() {
            self.bytes.resize(HEADROOM, 0);
        }
        let form = form_of(message);
        let back = self.model(key);
        self.bytes.push(form | (back as u8) << 4);
        let shared = match self.recent.get(back) {
            Some(model) if back > 0 => key.iter().zip(model).take_while(|(a, b)| a == b).count(),
            _ => 0,
        };
        if back > 0 {
            put_varint(&mut self.bytes, shared as u64);
        }
        put_bytes(&mut self.bytes, &key[shared..]);
        if has_payload(form) {
            put_bytes(&mut self.bytes, message.payload);
        } else {
            debug_assert!(message.payload.is_empty(), "a delete with a payload");
        }
        self.recent.push(back, shared, &key[shared..]);
    }

    /// How far back the last key of the same tree lies; 0 when it is out of reach.
    fn model(&mut self, key: &[u8]) -> usize {
        let tree = key.get(..PREFIX_BYTES);
        let same = |back: usize| self.recent.get(back).is_some_and(|model| model.get(..PREFIX_BYTES) == tree);
        if self.recent.count > 0 && same(self.back) {
            return self.back;
        }
        match (1..=BACK_MAX.min(self.recent.count)).find(|back| same(*back)) {
            Some(back) => {
                self.back = back;
                back
            }
            None => 0,
        }
    }

    /// The whole batch as a record of messages of a transaction that goes on.
    pub fn record(&mut self, txn: TxnId, step: u32) -> &[u8] {
        self.with_header(super::MESSAGES, txn, step, None)
    }

    /// The whole batch as a record that also commits the transaction.
    pub fn commit_record(&mut self, txn: TxnId, step: u32, number: CommitNumber) -> &[u8] {
        self.with_header(super::COMMIT_WITH_MESSAGES, txn, step, Some(number))
    }

    fn with_header(&mut self, kind: u8, txn: TxnId, step: u32, number: Option<CommitNumber>) -> &[u8] {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADROOM, 0);
        }
        let mut header = Header { bytes: [0; HEADROOM], length: 0 };
        header.push(kind);
        header.varint(txn.0);
        header.varint(u64::from(step));
        if let Some(number) = number {
            header.varint(number.0);
        }
        let start = HEADROOM - header.length;
        self.bytes[start..HEADROOM].copy_from_slice(&header.bytes[..header.length]);
        &self.bytes[start..]
    }

    /// The messages, as the memtable takes them once the record's place in the log is known.
    pub fn messages(&self, lsn: Lsn, txn: TxnId, step: u32) -> Messages<'_> {
        Messages::new(lsn, txn, step, self.bytes.get(HEADROOM..).unwrap_or_default())
    }
}

/// The front of a record: at most 1 + 10 + 5 + 10 bytes.
struct Header {
    bytes: [u8; HEADROOM],
    length: usize,
}

impl Header {
    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }
}

pub(super) fn form_of(message: &Message<'_>) -> u8 {
    match (message.kind, message.blob) {
        (Kind::Put, true) => BLOB_PUT,
        (Kind::InsertIfAbsent, true) => BLOB_INSERT,
        (Kind::Put, false) if message.payload.is_empty() => EMPTY_PUT,
        (Kind::InsertIfAbsent, false) if message.payload.is_empty() => EMPTY_INSERT,
        (kind, _) => kind as u8,
    }
}

/// What a form says of the message: its kind, and whether its payload is a blob reference.
#[inline]
pub(super) fn kind_of(form: u8) -> Result<(Kind, bool)> {
    Ok(match form {
        EMPTY_PUT => (Kind::Put, false),
        EMPTY_INSERT => (Kind::InsertIfAbsent, false),
        BLOB_PUT => (Kind::Put, true),
        BLOB_INSERT => (Kind::InsertIfAbsent, true),
        _ => (Kind::from_number(form)?, false),
    })
}

pub(super) fn has_payload(form: u8) -> bool {
    const NONE: [u8; 4] = [Kind::Delete as u8, Kind::SingleDelete as u8, EMPTY_PUT, EMPTY_INSERT];
    !NONE.contains(&form)
}

/// The messages of a record, read one after another in the order in which they were added: oldest first.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    all: &'a [u8],
    decoder: Decoder<'a>,
    recent: Recent,
    lsn: Lsn,
    txn: TxnId,
    step: u32,
}

impl<'a> Messages<'a> {
    /// Reads the messages that follow a record's header.
    pub(crate) fn new(lsn: Lsn, txn: TxnId, step: u32, bytes: &'a [u8]) -> Messages<'a> {
        Messages { all: bytes, decoder: Decoder::new(bytes), recent: Recent::default(), lsn, txn, step }
    }

    /// The transaction that wrote them.
    pub fn txn(&self) -> TxnId {
        self.txn
    }

    /// Its step.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// The bytes of all messages, as [`MessageBatch`] wrote them.
    pub fn encoded(&self) -> &'a [u8] {
        self.all
    }

    /// The next message; `None` after the last. Its key is valid until the next call.
    ///
    /// # Errors
    /// `Corruption` when the bytes are not messages; there is nothing to be read after that.
    #[expect(clippy::should_implement_trait, reason = "it lends: a key put together from two places lives here")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Message<'_>>> {
        if self.decoder.is_empty() {
            return Ok(None);
        }
        match self.read() {
            Ok((kind, blob, payload)) => {
                let key = self.recent.get(1).unwrap_or_default();
                let stamp = Stamp::Written { txn: self.txn, step: self.step };
                Ok(Some(Message { key, seq: self.lsn.0, stamp, kind, blob, payload }))
            }
            Err(error) => {
                let at = self.decoder.offset();
                self.decoder = Decoder::new(&[]);
                Err(error.context(format!("message in log record, lsn={} offset={at}", self.lsn)))
            }
        }
    }

    #[inline]
    fn read(&mut self) -> Result<(Kind, bool, &'a [u8])> {
        let first = self.decoder.u8()?;
        let (form, back) = (first & 15, usize::from(first >> 4));
        let (kind, blob) = kind_of(form)?;
        let shared = if back > 0 { self.decoder.length()? } else { 0 };
        let rest = self.decoder.bytes()?;
        if back > 0 && self.recent.get(back).is_none_or(|model| model.len() < shared) {
            return Err(Error::corruption(format!("no key to share with, back={back} shared={shared}")));
        }
        let length = shared.saturating_add(rest.len());
        if !(PREFIX_BYTES..=PREFIX_BYTES + KEY_BYTES_MAX).contains(&length) {
            return Err(Error::corruption(format!("key of impossible length, bytes={length}")));
        }
        let payload = if has_payload(form) { self.decoder.bytes()? } else { &[] };
        if payload.len() > VALUE_BYTES_MAX {
            return Err(Error::corruption(format!("payload too long, bytes={}", payload.len())));
        }
        self.recent.push(back, shared, rest);
        Ok((kind, blob, payload))
    }
}
