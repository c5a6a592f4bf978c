//! Range-delete blocks: the range-deletes of a run, few as a rule, read as a whole.
//!
//! Raw form: their number (varint); then for each, ascending by start, newest first among equals: start
//! and end (byte strings), sequence number (varint), stamp (0 settled · 1 committed, number · 2 written,
//! transaction, step; all varints).

use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::{CommitNumber, Error, Result, TxnId};
use crate::format::{RangeDelete, Stamp};
use std::sync::Arc;

/// The decoded range-deletes of a run.
#[derive(Debug)]
pub struct RangeBlock {
    /// Ascending by start, newest first among equals.
    pub list: Arc<[RangeDelete]>,
}

/// Sorts range-deletes as a block has them.
pub fn sort_ranges(list: &mut [RangeDelete]) {
    list.sort_by(|a, b| a.start.cmp(&b.start).then(b.seq.cmp(&a.seq)));
}

impl RangeBlock {
    /// Appends the raw form of a sorted list.
    pub fn encode(list: &[RangeDelete], out: &mut Vec<u8>) {
        put_varint(out, list.len() as u64);
        for range in list {
            put_bytes(out, &range.start);
            put_bytes(out, &range.end);
            put_varint(out, range.seq);
            match range.stamp {
                Stamp::Settled => out.push(0),
                Stamp::Committed(number) => {
                    out.push(1);
                    put_varint(out, number.0);
                }
                Stamp::Written { txn, step } => {
                    out.push(2);
                    put_varint(out, txn.0);
                    put_varint(out, u64::from(step));
                }
            }
        }
    }

    /// Decodes and validates the raw form.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(raw: &[u8]) -> Result<RangeBlock> {
        let mut decoder = Decoder::new(raw);
        let mut list: Vec<RangeDelete> = Vec::new();
        for _ in 0..decoder.count(4)? {
            let start = decoder.bytes()?.to_vec();
            let end = decoder.bytes()?.to_vec();
            let seq = decoder.varint()?;
            let stamp = match decoder.u8()? {
                0 => Stamp::Settled,
                1 => Stamp::Committed(CommitNumber(decoder.varint()?)),
                2 => Stamp::Written { txn: TxnId(decoder.varint()?), step: decoder.varint_u32()? },
                other => return Err(Error::corruption(format!("range-delete with an unknown stamp, stamp={other}"))),
            };
            if start >= end || list.last().is_some_and(|last| last.start > start) {
                return Err(Error::corruption("range-deletes empty or out of order"));
            }
            list.push(RangeDelete { start, end, seq, stamp });
        }
        decoder.finish()?;
        Ok(RangeBlock { list: list.into() })
    }

    /// Bytes really allocated, about.
    pub fn memory_bytes(&self) -> usize {
        let keys: usize = self.list.iter().map(|range| range.start.capacity() + range.end.capacity() + 32).sum();
        keys + size_of_val(&*self.list) + size_of::<RangeBlock>() + 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn range_deletes_come_back(keys in prop::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>(), any::<u64>(), 0u8..3), 0..20)) {
            let mut list: Vec<RangeDelete> = keys
                .into_iter()
                .filter(|(start, end, _, _)| start != end)
                .map(|(start, end, seq, stamp)| RangeDelete {
                    start: start.clone().min(end.clone()),
                    end: start.max(end),
                    seq,
                    stamp: [Stamp::Settled, Stamp::Committed(CommitNumber(seq)), Stamp::Written { txn: TxnId(seq), step: 9 }]
                        [usize::from(stamp)],
                })
                .collect();
            sort_ranges(&mut list);
            let mut raw = Vec::new();
            RangeBlock::encode(&list, &mut raw);
            let block = RangeBlock::decode(&raw)?;
            prop_assert_eq!(&block.list[..], &list[..]);
        }

        #[test]
        fn arbitrary_bytes_never_panic(raw: Vec<u8>) {
            let _ = RangeBlock::decode(&raw);
        }
    }
}
