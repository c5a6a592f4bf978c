//! How many rows and bytes a range of keys has, in time logarithmic in the size of the tree.
//!
//! Slots that lie wholly inside the range count by their totals; at its two borders the indexes of the
//! runs say how much lies inside, exact to a block, and to a row in leaves where the range is a whole tree. Puts in buffers count as
//! new rows (in level 0 of a key that is written over and over only the first), and deletes as rows gone, so the figure for a tree is exact once buffers are compacted, unless an old snapshot made that keep
//! versions, and cannot drift: it is added up from what runs record about themselves. Of many runs in a buffer that reach beyond the range, the largest is taken as a sample. Of level 0
//! few messages are counted and many are estimated from samples (within a factor of two, mostly much nearer).

use std::sync::Arc;

use super::node::{Node, Slot, Target};
use super::{BeTree, Version};
use crate::base::Result;
use crate::format::block::Held;
use crate::format::message::Kind;
use crate::memtable::{Level0, RangeSample};
use crate::run::Run;

/// Runs of a buffer that are looked at one by one though they reach beyond the range; of more, the largest stands for all.
const RUNS_COUNTED_MAX: usize = 2;
/// Messages of a memtable that are counted one by one; where there are more, all are estimated.
const LEVEL0_COUNTED_MAX: u64 = 12;

/// An estimate for a range of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RangeEstimate {
    /// Rows.
    pub rows: u64,
    /// Stored bytes, buffers and large values included, and keys and values in level 0.
    pub bytes: u64,
    /// Of these, what large values take that are kept apart, also such as are deleted or written over and not given back yet.
    pub blob_bytes: u64,
    /// Messages of the range that are not in leaves yet: 0 means that `rows` counts what leaves hold.
    pub pending: u64,
}

#[derive(Debug, Default)]
struct Sum {
    base: u64,
    puts: u64,
    deletes: u64,
    bytes: u64,
    blob_bytes: u64,
}

impl BeTree {
    /// Estimates the inner keys in `[lower, upper)`; `None`: no upper bound.
    ///
    /// # Errors
    /// Those of loading nodes and indexes.
    pub fn estimate(&self, version: &Version, lower: &[u8], upper: Option<&[u8]>) -> Result<RangeEstimate> {
        let mut sum = Sum::default();
        for level0 in version.level0() {
            count_level0(level0, lower, upper, &mut sum);
        }
        self.add_node(&version.root, None, lower, upper, &mut sum)?;
        Ok(RangeEstimate {
            rows: (sum.base + sum.puts).saturating_sub(sum.deletes),
            bytes: sum.bytes + sum.blob_bytes,
            blob_bytes: sum.blob_bytes,
            pending: sum.puts + sum.deletes,
        })
    }

    fn add_node(
        &self,
        node: &Node,
        node_upper: Option<&[u8]>,
        lower: &[u8],
        upper: Option<&[u8]>,
        sum: &mut Sum,
    ) -> Result<()> {
        for index in node.find(lower)..node.slots().len() {
            let slot = &node.slots()[index];
            if upper.is_some_and(|upper| slot.lower().as_ref() >= upper) {
                break;
            }
            let slot_upper = node.upper(index, node_upper);
            let whole = lower <= slot.lower().as_ref()
                && upper.is_none_or(|upper| slot_upper.is_some_and(|slot_upper| slot_upper <= upper));
            if whole {
                let totals = slot.totals();
                sum.base += totals.base_rows;
                sum.puts += totals.pending_puts;
                sum.deletes += totals.pending_deletes;
                sum.bytes += totals.base_bytes + totals.pending_bytes;
                sum.blob_bytes += totals.blob_bytes;
            } else {
                self.add_part(slot, slot_upper, lower, upper, sum)?;
            }
        }
        Ok(())
    }

    fn add_part(
        &self,
        slot: &Slot,
        slot_upper: Option<&[u8]>,
        lower: &[u8],
        upper: Option<&[u8]>,
        sum: &mut Sum,
    ) -> Result<()> {
        let sample = Sample::of(slot.buffer(), lower, upper)?;
        for run in slot.buffer() {
            let held = match &sample {
                Some(sample) if is_wide(run, lower, upper) => sample.part_of(run),
                _ => part_of_run(run, lower, upper)?,
            };
            let kinds = &run.meta().kinds;
            let share = |count: u64| {
                (u128::from(count) * u128::from(held.messages) / u128::from(run.meta().messages.max(1))) as u64
            };
            sum.puts += share(puts(kinds));
            sum.deletes += share(deletes(kinds));
            sum.bytes += held.bytes;
            sum.blob_bytes += held.blob_bytes;
        }
        match slot.target() {
            Target::Leaf(Some(base)) => {
                if !is_apart(base, lower, upper) {
                    let (rows, held) = base.rows(lower, upper.unwrap_or_default())?;
                    sum.base += rows;
                    sum.bytes += held.bytes;
                    sum.blob_bytes += held.blob_bytes;
                }
                Ok(())
            }
            Target::Leaf(None) => Ok(()),
            Target::Node(child) => self.add_node(child.load(&self.env)?, slot_upper, lower, upper, sum),
        }
    }
}

/// The largest of many runs that reach beyond a range on both sides, and its part in the range.
struct Sample {
    messages: u64,
    part: Held,
}

impl Sample {
    /// A look at the sample of a buffer; none where its runs are few enough to be looked at each. One look costs a read of a
    /// small range as much as merging the run does.
    fn of(buffer: &[Arc<Run>], lower: &[u8], upper: Option<&[u8]>) -> Result<Option<Sample>> {
        let wide = buffer.iter().filter(|run| is_wide(run, lower, upper));
        let (count, largest) = wide.fold((0, None::<&Arc<Run>>), |(count, largest), run| {
            let is_larger = largest.is_none_or(|largest| run.meta().messages >= largest.meta().messages);
            (count + 1, if is_larger { Some(run) } else { largest })
        });
        let Some(run) = largest.filter(|_| count > RUNS_COUNTED_MAX) else { return Ok(None) };
        Ok(Some(Sample { messages: run.meta().messages.max(1), part: part_of_run(run, lower, upper)? }))
    }

    /// What a run like it has in the range.
    fn part_of(&self, run: &Run) -> Held {
        let scaled =
            |part: u64| (u128::from(part) * u128::from(run.meta().messages) / u128::from(self.messages)) as u64;
        let Held { messages, bytes, blob_bytes } = self.part;
        Held { messages: scaled(messages), bytes: scaled(bytes), blob_bytes: scaled(blob_bytes) }
    }
}

/// True when a run reaches beyond the range on both sides.
fn is_wide(run: &Run, lower: &[u8], upper: Option<&[u8]>) -> bool {
    let meta = run.meta();
    meta.first_key.as_slice() <= lower && upper.is_some_and(|upper| upper <= meta.last_key.as_slice())
}

/// What a run has in the range.
fn part_of_run(run: &Run, lower: &[u8], upper: Option<&[u8]>) -> Result<Held> {
    if is_apart(run, lower, upper) { Ok(Held::default()) } else { run.estimate(lower, upper.unwrap_or_default()) }
}

/// True when no message of a run is in the range.
fn is_apart(run: &Run, lower: &[u8], upper: Option<&[u8]>) -> bool {
    let meta = run.meta();
    meta.last_key.as_slice() < lower || upper.is_some_and(|upper| meta.first_key.as_slice() >= upper)
}

fn count_level0(level0: &Level0, lower: &[u8], upper: Option<&[u8]>, sum: &mut Sum) {
    let mut cursor = level0.cursor();
    cursor.seek(lower);
    let mut ahead = None;
    let mut found = RangeSample::default();
    while cursor.valid() && upper.is_none_or(|upper| cursor.key() < upper) {
        if found.messages == LEVEL0_COUNTED_MAX as f64 {
            return add_sample(level0, lower, upper, found, sum);
        }
        found.messages += 1.0;
        let ahead = ahead.get_or_insert_with(|| cursor.clone());
        ahead.next();
        let older = ahead.valid().then(|| ahead.message());
        found.look_at(&cursor.message(), older.as_ref());
        cursor.next();
    }
    add(&found, sum);
}

/// Adds what lies in the range by estimate; it is more than is worth counting, which was `counted`.
fn add_sample(level0: &Level0, lower: &[u8], upper: Option<&[u8]>, counted: RangeSample, sum: &mut Sum) {
    let all = || RangeSample {
        messages: level0.messages() as f64,
        kinds: level0.kinds(),
        bytes: level0.bytes() as u64,
        blob_bytes: 0,
    };
    let mut found = level0.sample(lower, upper).unwrap_or_else(all);
    // A leaf that the nodes above do not know of yet is not met.
    if found.messages < counted.messages {
        found = counted;
    }
    add(&found, sum);
}

fn add(found: &RangeSample, sum: &mut Sum) {
    let each = found.messages / found.kinds.iter().sum::<u64>().max(1) as f64;
    let scaled = |looked_at: u64| (looked_at as f64 * each).round() as u64;
    sum.puts += scaled(puts(&found.kinds));
    sum.deletes += scaled(deletes(&found.kinds));
    sum.bytes += scaled(found.bytes);
    sum.blob_bytes += scaled(found.blob_bytes);
}

fn puts(kinds: &[u64; 6]) -> u64 {
    kinds[Kind::Put as usize] + kinds[Kind::InsertIfAbsent as usize]
}

fn deletes(kinds: &[u64; 6]) -> u64 {
    kinds[Kind::Delete as usize] + kinds[Kind::SingleDelete as usize]
}
