//! Compression of long records, by whoever appends them.
//!
//! A record of many messages is turned first ([`crate::format::record::turned`]), which suits keys and rows made of integers, but not text.
//! Whether that makes it shorter is tried now and then, for each tree that records begin with.

use super::{Appended, Log, frame};
use crate::base::compress::Compressor;
use crate::base::memory::{Charge, Purpose};
use crate::base::sync::atomic::{AtomicU8, Ordering};
use crate::base::{Result, TreeId};
use crate::format::record::turned::{self, Turner};

/// A compressor and the buffers that it needs.
#[derive(Debug, Default)]
pub(super) struct Compression {
    compressor: Compressor,
    turner: Turner,
    turned: Vec<u8>,
    stored: Vec<u8>,
    charge: Option<Charge>,
}

/// Working memory of a compressor of long records, about; of short records less.
const COMPRESSOR_BYTES: usize = 512 << 10;

/// Compressors kept between uses: more threads than this seldom compress at the same time, and each has working memory.
const COMPRESSORS_MAX: usize = 4;

/// Records between trials of both forms.
const TRIAL_INTERVAL: u8 = 63;
/// Set where the record as it is was as good.
const AS_IT_IS: u8 = 0x80;

/// Which form was the better one at the last trial, by tree: many trees may share a place.
#[derive(Debug)]
pub(super) struct Trials([AtomicU8; 256]);

/// What to do with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    AsItIs,
    Turned,
    /// Both, and the shorter one is stored.
    Either,
}

impl Trials {
    pub(super) fn new() -> Trials {
        Trials(std::array::from_fn(|_| AtomicU8::new(0)))
    }

    fn of(&self, tree: TreeId) -> &AtomicU8 {
        &self.0[tree.0 as usize % self.0.len()]
    }

    /// The form for the next record that begins with `tree`. Two threads at once may miscount.
    fn next(&self, tree: TreeId) -> Form {
        let place = self.of(tree);
        let known = place.load(Ordering::Relaxed);
        if known & !AS_IT_IS == 0 {
            return Form::Either;
        }
        place.store(known - 1, Ordering::Relaxed);
        if known & AS_IT_IS != 0 { Form::AsItIs } else { Form::Turned }
    }

    fn decided(&self, tree: TreeId, as_it_is: bool) {
        let winner = if as_it_is { AS_IT_IS } else { 0 };
        self.of(tree).store(TRIAL_INTERVAL | winner, Ordering::Relaxed);
    }
}

/// Turning takes time, of wide rows more than compressing them: it has to save a quarter of what would be stored.
fn is_worth_it(turned: usize, as_it_is: usize) -> bool {
    turned <= as_it_is - as_it_is / 4
}

impl Log {
    /// Appends a record, compressed where that makes it shorter.
    pub(super) fn append_compressed(&self, record: &[u8]) -> Result<Appended> {
        let mut compression = self.compressors.lock().pop().unwrap_or_default();
        let tag = compression.compress(record, self)?;
        let stored = &compression.stored;
        let appended = match tag {
            0 => self.append_stored(tag, record),
            _ => self.append_stored(tag, stored),
        };
        if stored.capacity() <= self.options.buffer_bytes {
            let turning = compression.turned.capacity() + compression.turner.memory_bytes();
            let mut bytes = COMPRESSOR_BYTES.min(8 * stored.capacity()) + stored.capacity();
            if turning <= self.options.buffer_bytes {
                bytes += turning;
            } else {
                (compression.turner, compression.turned) = (Turner::default(), Vec::new());
            }
            let charge = compression.charge.get_or_insert_with(|| Charge::new(&self.options.budget, Purpose::Work, 0));
            charge.set(bytes);
            let mut kept = self.compressors.lock();
            if kept.len() < COMPRESSORS_MAX {
                kept.push(compression);
            }
        }
        appended
    }
}

impl Compression {
    /// Leaves the stored form of `record` in `stored` and returns its tag; 0: it is the record itself.
    fn compress(&mut self, record: &[u8], log: &Log) -> Result<u8> {
        let Compression { compressor, turner, turned, stored, .. } = self;
        let mut compress = |raw: &[u8], stored: &mut Vec<u8>| -> Result<u8> {
            stored.clear();
            stored.extend_from_slice(&(raw.len() as u32).to_le_bytes());
            compressor.compress(log.options.codec, raw, stored)
        };
        let tree = turned::first_tree(record);
        let form = tree.map_or(Form::AsItIs, |tree| log.trials.next(tree));
        turned.clear();
        let Some(tree) = tree.filter(|_| form != Form::AsItIs) else { return compress(record, stored) };
        // One that cannot be turned says nothing of others.
        if !turner.turn(record, turned) {
            return compress(record, stored);
        }
        let turned_tag = compress(turned, stored)? | frame::TURNED;
        if form == Form::Turned && stored.len() < record.len() {
            return Ok(turned_tag);
        }
        let mut as_it_is = Vec::new();
        let tag = compress(record, &mut as_it_is)?;
        let bytes = if tag == 0 { record.len() } else { as_it_is.len() };
        log.trials.decided(tree, !is_worth_it(stored.len(), bytes));
        if bytes <= stored.len() {
            *stored = as_it_is;
            return Ok(tag);
        }
        Ok(turned_tag)
    }
}
