//! The work of a flush, a compaction and a seal: merge sources, apply the merge rules, write runs.
//!
//! Needs no latch: the inputs never change. Nothing becomes visible here; the caller installs the runs.
//! On failure the runs already written give their space back (they are in no root).

use std::sync::Arc;

use super::TreeEnv;
use super::merge::{Group, Merge};
use super::source::Source;
use crate::base::codec::Decoder;
use crate::base::{Extent, Result, key};
use crate::format::RunMeta;
use crate::format::blob::BlobRef;
use crate::format::message::{Message, RangeDelete, Stamp};
use crate::format::resolve::{self, Sink, Stamper};
use crate::format::visibility::Retention;
use crate::run::{Place, Run, RunOptions, RunWriter};
use crate::store::Urgency;

/// Where one output run ends and the next begins.
#[derive(Debug)]
pub enum Cuts {
    /// At these keys, ascending: one output for each interval that gets messages.
    At(Vec<Arc<[u8]>>),
    /// After so many stored bytes, between keys; from an eighth of them on also between trees.
    Bytes(u64),
}

/// What is merged and how.
#[derive(Debug)]
pub struct Compaction {
    /// Positioned at their first messages; newest first.
    pub sources: Vec<Source>,
    /// Range-deletes of all sources.
    pub range_deletes: Vec<RangeDelete>,
    /// Where it begins: the lower bound of the slot.
    pub lower: Arc<[u8]>,
    /// Where it ends, if anywhere.
    pub upper: Option<Vec<u8>>,
    /// Nothing older than the sources exists for any of their keys.
    pub bottom: bool,
    /// Each message keeps its own sequence number (N5 of [`super::node`]).
    pub keeps_seq: bool,
    /// Nothing in the sources was written before this: what the outputs are known to be no older than.
    pub min_seq: u64,
    /// Where to cut.
    pub cuts: Cuts,
    /// It ends before the next key when it has written so many bytes.
    pub bytes_max: u64,
    /// Filter bits per key of the outputs.
    pub filter_bits: u8,
    /// Readers want all of it, wherever it comes from.
    pub is_in_use: bool,
    /// Who asks for space.
    pub urgency: Urgency,
}

/// One run written, with the lowest key that it stands for.
#[derive(Debug)]
pub struct Output {
    /// Where the run's interval begins: the lower bound, or a cut.
    pub lower: Arc<[u8]>,
    /// The run.
    pub run: Arc<Run>,
}

/// What a compaction wrote and dropped.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Runs, ascending.
    pub outputs: Vec<Output>,
    /// Extents of blobs whose messages were dropped.
    pub dropped_blobs: Vec<Extent>,
    /// Extents of blobs whose messages were kept; filled for seals only.
    pub kept_blobs: Vec<Extent>,
    /// The key before which it has ended, because it has written enough; nothing from there on has been looked at.
    pub ended_before: Option<Vec<u8>>,
    /// Messages read.
    pub messages_in: u64,
    /// Messages written.
    pub messages_out: u64,
}

/// Runs it.
///
/// # Errors
/// Those of reading and writing runs; nothing has changed then.
pub fn run(env: &TreeEnv, retention: &Retention<'_>, compaction: Compaction, is_seal: bool) -> Result<Outcome> {
    let mut stamper = Stamper::new();
    let mut ranges: Vec<RangeDelete> = compaction.range_deletes;
    ranges.retain_mut(|range| match stamper.restamp(retention, range.stamp) {
        Some(stamp) => {
            range.stamp = stamp;
            true
        }
        None => false,
    });
    // Of equal starts the newest comes first.
    ranges.sort_by(|a, b| a.start.cmp(&b.start).then(b.seq.cmp(&a.seq)));
    let ranges = telling_ranges(ranges, retention);
    let mut writer = Writer {
        env,
        filter_bits: compaction.filter_bits,
        keeps_seq: compaction.keeps_seq,
        min_seq: compaction.min_seq,
        keep_ranges: kept_ranges(&ranges, compaction.bottom, &compaction.lower, compaction.upper.as_deref()),
        upper: compaction.upper,
        cuts: compaction.cuts,
        next_cut: 0,
        lower: compaction.lower,
        last_key: Vec::new(),
        open: None,
        closed_bytes: 0,
        outcome: Outcome::default(),
        is_seal,
        place: if compaction.bottom { Place::Base } else { Place::Buffer },
        is_in_use: false,
        urgency: compaction.urgency,
    };
    let mut active = ActiveRanges { ranges: &ranges, next: 0, active: Vec::new(), covering: Vec::new() };
    let mut merge = Merge::new(compaction.sources);
    let mut group = Group::default();
    while merge.next(&mut group)? {
        writer.outcome.messages_in += group.count() as u64;
        writer.start_key(group.key())?;
        writer.is_in_use = compaction.is_in_use || group.is_in_use();
        let covering = active.covering(group.key());
        match group.single() {
            Some(message) => {
                resolve::compact(&mut stamper, retention, compaction.bottom, &[message], covering, &mut writer)?;
            }
            None => {
                resolve::compact(&mut stamper, retention, compaction.bottom, &group.messages(), covering, &mut writer)?;
            }
        }
        if compaction.bytes_max != u64::MAX
            && writer.written_bytes() >= compaction.bytes_max
            && let Some(next) = merge.peek()
        {
            writer.end_before(next);
            break;
        }
    }
    writer.finish()
}

/// Those of sorted range-deletes that tell some reader something: not where a newer one reaches as far and whoever sees the one sees
/// the other. Without this a snapshot that stays open would keep all range-deletes after it, however often they empty the
/// same range, and each key there would be looked up in all of them.
fn telling_ranges(ranges: Vec<RangeDelete>, retention: &Retention<'_>) -> Vec<RangeDelete> {
    let mut telling: Vec<RangeDelete> = Vec::with_capacity(ranges.len());
    // Of these the places of those that reach beyond the start of the next.
    let mut open: Vec<usize> = Vec::new();
    for range in ranges {
        open.retain(|at| telling[*at].end > range.start);
        let is_hidden = open.iter().map(|at| &telling[*at]).any(|newer| {
            newer.seq > range.seq && newer.end >= range.end && retention.shows_with(range.stamp, newer.stamp)
        });
        if !is_hidden {
            open.push(telling.len());
            telling.push(range);
        }
    }
    telling
}

/// The range-deletes that the outputs must still carry, clipped to the interval of the compaction.
fn kept_ranges(ranges: &[RangeDelete], bottom: bool, lower: &[u8], upper: Option<&[u8]>) -> Vec<RangeDelete> {
    let needed = |range: &&RangeDelete| !(bottom && range.stamp == Stamp::Settled);
    ranges.iter().filter(needed).filter_map(|range| clip(range, lower, upper)).collect()
}

/// The part of `range` in `[lower, upper)`.
pub fn clip(range: &RangeDelete, lower: &[u8], upper: Option<&[u8]>) -> Option<RangeDelete> {
    let start = range.start.as_slice().max(lower);
    let end = upper.map_or(range.end.as_slice(), |upper| upper.min(range.end.as_slice()));
    (start < end).then(|| RangeDelete { start: start.to_vec(), end: end.to_vec(), ..*range })
}

/// Sweeps over range-deletes sorted by start, for keys that ascend.
struct ActiveRanges<'a> {
    ranges: &'a [RangeDelete],
    next: usize,
    active: Vec<&'a RangeDelete>,
    covering: Vec<(u64, Stamp)>,
}

impl<'a> ActiveRanges<'a> {
    /// Of range-deletes that every reader sees, one says nothing where a newer one reaches as far: without this, a table that is
    /// trimmed at its front again and again would have each of its keys looked up in all of them.
    fn enter(&mut self, range: &'a RangeDelete) {
        let is_hidden = |older: &RangeDelete, newer: &RangeDelete| {
            newer.stamp == Stamp::Settled && newer.seq > older.seq && newer.end >= older.end
        };
        if !self.active.iter().any(|other| is_hidden(range, other)) {
            self.active.retain(|other| !is_hidden(other, range));
            self.active.push(range);
        }
    }

    #[inline]
    fn covering(&mut self, key: &[u8]) -> &[(u64, Stamp)] {
        if self.next == self.ranges.len() && self.active.is_empty() {
            return &[];
        }
        while let Some(range) = self.ranges.get(self.next).filter(|range| range.start.as_slice() <= key) {
            self.enter(range);
            self.next += 1;
        }
        self.active.retain(|range| key < range.end.as_slice());
        self.covering.clear();
        self.covering.extend(self.active.iter().map(|range| (range.seq, range.stamp)));
        &self.covering
    }
}

/// Distributes kept messages over runs.
struct Writer<'a> {
    env: &'a TreeEnv,
    filter_bits: u8,
    keeps_seq: bool,
    min_seq: u64,
    /// Not yet written, ascending by start.
    keep_ranges: Vec<RangeDelete>,
    upper: Option<Vec<u8>>,
    cuts: Cuts,
    next_cut: usize,
    lower: Arc<[u8]>,
    last_key: Vec<u8>,
    open: Option<RunWriter>,
    /// Bytes of the extents of the outputs that are complete.
    closed_bytes: u64,
    outcome: Outcome,
    is_seal: bool,
    /// Where its runs will lie.
    place: Place,
    /// See [`RunWriter::set_in_use`].
    is_in_use: bool,
    urgency: Urgency,
}

impl Writer<'_> {
    /// Cuts before `key` where the plan says so.
    #[inline]
    fn start_key(&mut self, key: &[u8]) -> Result<()> {
        match &self.cuts {
            Cuts::At(_) => {
                while let Some(cut) = self.cut_at().filter(|cut| cut.as_ref() <= key).cloned() {
                    self.next_cut += 1;
                    self.close(Some(cut))?;
                }
            }
            Cuts::Bytes(bytes) => {
                let stored = self.open.as_ref().map_or(0, RunWriter::stored_bytes);
                let border = stored >= *bytes / 8 && key::tree_of(&self.last_key) != key::tree_of(key);
                if stored >= *bytes || border {
                    let cut = key::separator(&self.last_key, key);
                    self.close(Some(Arc::from(cut)))?;
                }
            }
        }
        Ok(())
    }

    /// The next fixed cut.
    #[inline]
    fn cut_at(&self) -> Option<&Arc<[u8]>> {
        match &self.cuts {
            Cuts::At(cuts) => cuts.get(self.next_cut),
            Cuts::Bytes(_) => None,
        }
    }

    fn writer(&mut self) -> Result<&mut RunWriter> {
        if self.open.is_none() {
            let upper = self.output_upper();
            let mut ranges = self.keep_ranges.iter();
            let has_seq = self.keeps_seq || ranges.any(|range| clip(range, &self.lower, upper.as_deref()).is_some());
            let options = RunOptions {
                block_bytes: self.env.options.block_bytes,
                filter_bits_per_key: self.filter_bits,
                has_seq,
                codecs: self.env.codecs.clone(),
                cache: self.env.cache.clone(),
            };
            let writer = RunWriter::new(&self.env.store, self.env.next_run_id(), &options, 0);
            self.open = Some(writer.with_urgency(self.urgency).with_min_seq(self.min_seq).with_first(self.is_seal));
        }
        Ok(self.open.as_mut().unwrap_or_else(|| unreachable!("opened above")))
    }

    #[inline]
    fn written_bytes(&self) -> u64 {
        self.closed_bytes + self.open.as_ref().map_or(0, RunWriter::stored_bytes)
    }

    /// Nothing at or above `key` is written.
    fn end_before(&mut self, key: &[u8]) {
        self.keep_ranges = self.keep_ranges.iter().filter_map(|range| clip(range, &[], Some(key))).collect();
        self.upper = Some(key.to_vec());
        self.outcome.ended_before = Some(key.to_vec());
    }

    /// Where the present output ends at the latest.
    fn output_upper(&self) -> Option<Vec<u8>> {
        self.cut_at().map(|cut| cut.to_vec()).or_else(|| self.upper.clone())
    }

    /// Ends the present output; the next one begins at `cut`.
    fn close(&mut self, cut: Option<Arc<[u8]>>) -> Result<()> {
        let end = cut.as_deref().map(<[u8]>::to_vec).or_else(|| self.upper.clone());
        let ranges: Vec<RangeDelete> =
            self.keep_ranges.iter().filter_map(|range| clip(range, &self.lower, end.as_deref())).collect();
        if !ranges.is_empty() {
            let writer = self.writer()?;
            for range in ranges {
                writer.add_range(range)?;
            }
        }
        if let Some(writer) = self.open.take() {
            let old_versions = writer.old_versions();
            let (meta, heirs) = writer.finish()?;
            let run = Run::new(meta, &self.env.store, &self.env.cache, &self.env.run_counters);
            run.set_old_versions(old_versions);
            run.adopt(heirs, self.place);
            self.closed_bytes += run.meta().extent_bytes();
            self.outcome.outputs.push(Output { lower: self.lower.clone(), run });
        }
        if let Some(cut) = cut {
            self.lower = cut;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Outcome> {
        while let Some(cut) = self.cut_at().filter(|_| !self.keep_ranges.is_empty()).cloned() {
            self.next_cut += 1;
            self.close(Some(cut))?;
        }
        self.close(None)?;
        Ok(std::mem::take(&mut self.outcome))
    }
}

impl Sink for Writer<'_> {
    #[inline]
    fn keep(&mut self, message: &Message<'_>) -> Result<()> {
        if message.blob && self.is_seal {
            self.outcome.kept_blobs.extend(blob_ref(message.payload)?.extents);
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(message.key);
        self.outcome.messages_out += 1;
        let is_in_use = self.is_in_use;
        let writer = match &mut self.open {
            Some(writer) => writer,
            None => self.writer()?,
        };
        writer.set_in_use(is_in_use);
        writer.add(message)
    }

    fn drop_blob(&mut self, payload: &[u8]) {
        // A reference that does not decode passed its block's checksum: a bug. Leaking its space is safer
        // than guessing, and `check` finds it.
        if let Ok(blob) = blob_ref(payload) {
            self.outcome.dropped_blobs.extend(blob.extents);
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // Outputs left here were never handed out: a step failed.
        discard(self.env, std::mem::take(&mut self.outcome.outputs).iter().map(|output| output.run.meta()));
    }
}

/// Reads the blob reference in a message's payload.
pub(super) fn blob_ref(payload: &[u8]) -> Result<BlobRef> {
    BlobRef::decode(&mut Decoder::new(payload))
}

/// Gives back the space of runs that no root has ever held.
pub fn discard<'a>(env: &TreeEnv, runs: impl Iterator<Item = &'a RunMeta>) {
    for run in runs {
        for extent in &run.extents {
            env.cache.remove_range(*extent);
            env.store.free_unpublished(*extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{CommitNumber, TxnId};

    #[test]
    fn of_range_deletes_inside_each_other_those_count_that_say_something() {
        let range = |end: u8, seq, stamp| RangeDelete { start: vec![1], end: vec![end], seq, stamp };
        let undecided = Stamp::Written { txn: TxnId(1), step: 0 };
        let mut ranges: Vec<RangeDelete> =
            (2..=200).rev().map(|end| range(end, u64::from(end), Stamp::Settled)).collect();
        ranges.insert(0, range(90, 500, undecided));
        ranges.push(range(255, 1, Stamp::Committed(CommitNumber(1))));
        let mut active = ActiveRanges { ranges: &ranges, next: 0, active: Vec::new(), covering: Vec::new() };
        let seqs = |covering: &[(u64, Stamp)]| covering.iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
        assert_eq!(seqs(active.covering(&[1])), [500, 200, 1]);
        assert_eq!(seqs(active.covering(&[89])), [500, 200, 1]);
        assert_eq!(seqs(active.covering(&[90])), [200, 1]);
        assert_eq!(seqs(active.covering(&[200])), [1]);
        // The older ones come first.
        ranges.reverse();
        let mut active = ActiveRanges { ranges: &ranges, next: 0, active: Vec::new(), covering: Vec::new() };
        assert_eq!(seqs(active.covering(&[1])), [1, 200, 500]);
    }
}
