//! Messages of one key, turned round for going backward.

use crate::base::Result;
use crate::format::message::{Kind, Message, Stamp};
use crate::tree::source::Source;

/// Messages of one key of one source, for going backward.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    payloads: Vec<u8>,
    entries: Vec<Copied>,
}

/// A message whose payload is `payloads[start..end]`.
#[derive(Debug)]
struct Copied {
    seq: u64,
    stamp: Stamp,
    kind: Kind,
    blob: bool,
    start: usize,
    end: usize,
}

impl Scratch {
    /// Takes all messages of `key` out of `source`, which stands at the oldest, and moves it before them. False, and at any of them, where
    /// there are more than `max`.
    pub(super) fn collect(&mut self, source: &mut Source, key: &[u8], max: usize) -> Result<bool> {
        self.payloads.clear();
        self.entries.clear();
        while source.valid() && source.key() == key {
            if self.entries.len() == max {
                return Ok(false);
            }
            let message = source.message();
            let start = self.payloads.len();
            self.payloads.extend_from_slice(message.payload);
            let end = self.payloads.len();
            let Message { seq, stamp, kind, blob, .. } = message;
            self.entries.push(Copied { seq, stamp, kind, blob, start, end });
            source.prev()?;
        }
        Ok(true)
    }

    pub(super) fn newest_first<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = Message<'a>> {
        self.entries.iter().rev().map(move |copied| Message {
            key,
            seq: copied.seq,
            stamp: copied.stamp,
            kind: copied.kind,
            blob: copied.blob,
            payload: &self.payloads[copied.start..copied.end],
        })
    }
}
